"""Chains of element-wise nodes, which become one step: a kernel of its own, or NumPy's functions block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from numbaops.engine.blocks import Blocks, Kind, Link
from numbaops.engine.formulas import formula_of
from numbaops.engine.generated import SMALLEST, Generated, dimensions_of
from numbaops.engine.steps import Fast, Step, sole_takers
from numbaops.ops._maps import of_halves
from numbaops.runtime.threads import thread_count

LARGE = 1 << 23
"""Bytes from which an array is run over in blocks: 0.4 of the time at 16 MiB, but 1.3 at 4 MiB, where it stays in the cache anyway."""

_LEAST = 2
"""Nodes from which a chain is worth it."""


def chains(
    steps: Sequence[Step],
    live: Sequence[int],
    outputs: Sequence[str],
    constants: Mapping[str, Any],
    seen: Mapping[str, Kind],
) -> dict[int, tuple[Step, list[int]]]:
    """The chains among steps, for values of known shapes and types; and steps for whose types something faster than NumPy serves.

    Args:
        steps: all steps.
        live: the positions of those that run.
        outputs: names of the values that are wanted after them.
        constants: values that never change.
        seen: the dtype and the shape of each other value.

    Returns:
        For the last position of each chain, or the one of a step, the step that takes its place, and the positions of the others.
    """
    next_of = sole_takers(steps, live, outputs)
    kinds = dict(seen)
    kinds.update((name, (value.dtype, value.shape)) for name, value in constants.items() if isinstance(value, np.ndarray))
    links = {}
    for position in live:
        link = _link(steps[position], kinds, constants)
        if link is not None:
            links[position] = link
    found: dict[int, tuple[Step, list[int]]] = {}
    taken: set[int] = set()
    for position in links:
        if position in taken:
            continue
        positions = [position]
        while True:
            value = steps[positions[-1]].outputs[0]
            after = next_of.get(value)
            if after not in links or after in taken or kinds[steps[after].outputs[0]][1] != kinds[value][1]:
                break
            positions.append(after)
        taken.update(positions)
        if len(positions) < _LEAST and not _splits(steps[position], kinds):
            continue
        step = _step([steps[each] for each in positions], [links[each] for each in positions], kinds)
        if step is not None:
            found[positions[-1]] = step, positions[:-1]
    chained = {each for last, (_, others) in found.items() for each in (last, *others)}
    for position in live:
        function = _of_halves(steps[position], kinds) if position not in chained else None
        if function is not None:
            fast = replace(steps[position].fast, function=function, ufunc=None, arrays=True)
            found[position] = replace(steps[position], fast=fast), []
    return found


def _splits(step: Step, kinds: Mapping[str, Kind]) -> bool:
    """Whether a step alone is worth several threads: it is NumPy's function, for its types too, and its result is large."""
    dtype, shape = kinds[step.outputs[0]]
    large = math.prod(shape) * dtype.itemsize >= LARGE and thread_count() > 1
    return large and step.fast.ufunc is not None and _of_halves(step, kinds) is None


def _of_halves(step: Step, kinds: Mapping[str, Kind]) -> Callable[..., Any] | None:
    """What serves in the place of a NumPy function for the 16-bit floats that a step takes; None if that function does."""
    if step.fast.ufunc is None or len(step.outputs) != 1 or any(name not in kinds for name in (*step.inputs, *step.outputs)):
        return None
    dtype, shape = kinds[step.outputs[0]]
    if any(kinds[name][0] != dtype for name in step.inputs):
        return None
    return of_halves(step.fast.ufunc, dtype, math.prod(shape))


def _link(step: Step, kinds: Mapping[str, Kind], constants: Mapping[str, Any]) -> Link | None:
    if step.fast.compound or step.kind != "numbaops" or len(step.outputs) != 1 or step.outputs[0] not in kinds:
        return None
    dtype, shape = kinds[step.outputs[0]]
    if math.prod(shape) * dtype.itemsize < min(SMALLEST, LARGE):
        return None
    names = [name for name in step.inputs if name]
    if not step.fast.elementwise or "" in step.inputs or any(name not in kinds for name in names):
        return None
    if np.broadcast_shapes(*(kinds[name][1] for name in names)) != shape:
        return None
    formula = formula_of(step, [kinds[name][0] for name in names], constants) if _generates() else None
    if formula is None and math.prod(shape) * dtype.itemsize < LARGE:
        return None
    halves = _of_halves(step, kinds)
    return Link(halves or step.fast.function, halves is None and step.fast.ufunc is not None, formula, step.inputs, step.outputs[0])


def _generates() -> bool:
    from numbaops.kernels import vectors

    return bool(vectors.AVAILABLE)


def _step(steps: Sequence[Step], links: Sequence[Link], kinds: Mapping[str, Kind]) -> Step | None:
    """The step that takes the place of a chain; None if that would be no use."""
    inner = {link.output for link in links[:-1]}
    inputs = tuple(dict.fromkeys(name for link in links for name in link.inputs if name not in inner))
    dtype, shape = kinds[links[-1].output]
    given = [kinds[name] for name in inputs]
    blocks = Blocks(links, inputs, given, shape, dtype)
    run: Callable[..., Any] = blocks
    generates = len(links) >= _LEAST and all(link.formula for link in links)
    dimensions = dimensions_of(shape, [each for _, each in given]) if generates else None
    if dimensions is not None:
        run = Generated(links, inputs, given, shape, blocks, dimensions)
    elif math.prod(shape) * dtype.itemsize < LARGE:
        return None
    fast = Fast(run, single=True, arrays=True, aliases=False, pure=True, compound=True)
    return replace(steps[-1], inputs=inputs, fast=fast)
