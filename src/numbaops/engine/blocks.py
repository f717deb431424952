"""Chains of element-wise nodes over large arrays, run block by block: what lies between two nodes stays in the cache."""

from __future__ import annotations

import contextvars
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from numbaops.engine.steps import Fast, Step
from numbaops.engine.values import mixed
from numbaops.ops._maps import of_halves
from numbaops.runtime import memory
from numbaops.runtime.threads import split

Array = np.ndarray[Any, Any]
Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""Dtype and shape."""

BLOCK = 1 << 18
"""Bytes of a block: a few of them fit into the second cache, and NumPy takes longer for it than Python to ask for it."""

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
    takers: dict[str, set[int]] = defaultdict(set)
    for position in live:
        for name in (*steps[position].inputs, *steps[position].captured):
            takers[name].add(position)
    for name in outputs:
        takers[name].add(-1)
    kinds = dict(seen)
    kinds.update((name, (value.dtype, value.shape)) for name, value in constants.items() if isinstance(value, np.ndarray))
    links = {}
    for position in live:
        link = _link(steps[position], kinds)
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
            (after,) = takers[value] if len(takers[value]) == 1 else {-1}
            if after not in links or after in taken or kinds[steps[after].outputs[0]][1] != kinds[value][1]:
                break
            positions.append(after)
        taken.update(positions)
        if len(positions) < _LEAST:
            continue
        found[positions[-1]] = _step([steps[each] for each in positions], [links[each] for each in positions], kinds), positions[:-1]
    chained = {each for last, (_, others) in found.items() for each in (last, *others)}
    for position in live:
        step = steps[position]
        function = _of_halves(step, kinds) if position not in chained else None
        if function is not None:
            found[position] = replace(step, fast=replace(step.fast, function=function, ufunc=None, arrays=True)), []
    return found


def _of_halves(step: Step, kinds: Mapping[str, Kind]) -> Callable[..., Any] | None:
    """What serves in the place of a NumPy function for the 16-bit floats that a step takes; None if that function does."""
    if step.fast.ufunc is None or len(step.outputs) != 1 or any(name not in kinds for name in (*step.inputs, *step.outputs)):
        return None
    dtype, shape = kinds[step.outputs[0]]
    if any(kinds[name][0] != dtype for name in step.inputs):
        return None
    return of_halves(step.fast.ufunc, dtype, math.prod(shape))


@dataclass(frozen=True)
class _Link:
    """One node of a chain: the function, whether it is NumPy's own, and the names of its inputs."""

    function: Callable[..., Any]
    ufunc: bool
    inputs: tuple[str, ...]


def _link(step: Step, kinds: Mapping[str, Kind]) -> _Link | None:
    if step.fast.compound or step.kind != "numbaops" or len(step.outputs) != 1 or step.outputs[0] not in kinds:
        return None
    dtype, shape = kinds[step.outputs[0]]
    if math.prod(shape) * dtype.itemsize < LARGE:
        return None
    names = [name for name in step.inputs if name]
    if not step.fast.elementwise or "" in step.inputs or any(name not in kinds for name in names):
        return None
    if np.broadcast_shapes(*(kinds[name][1] for name in names)) != shape:
        return None
    halves = _of_halves(step, kinds)
    return _Link(halves or step.fast.function, halves is None and step.fast.ufunc is not None, step.inputs)


def _step(steps: Sequence[Step], links: Sequence[_Link], kinds: Mapping[str, Kind]) -> Step:
    """The step that takes the place of a chain."""
    inner = {step.outputs[0] for step in steps[:-1]}
    inputs = tuple(dict.fromkeys(name for link in links for name in link.inputs if name not in inner))
    dtype, shape = kinds[steps[-1].outputs[0]]
    run = _Blocks(links, [step.outputs[0] for step in steps], inputs, [kinds[name] for name in inputs], shape, dtype)
    fast = Fast(run, single=True, arrays=True, aliases=False, pure=True, compound=True)
    return replace(steps[-1], inputs=inputs, fast=fast)


class _Blocks:
    """A chain ready to run.

    Args:
        links: the nodes in order.
        results: names of what they give.
        inputs: names of what the chain takes.
        kinds: the dtype and shape of each input.
        shape: of every result.
        dtype: of the last result.
    """

    def __init__(
        self,
        links: Sequence[_Link],
        results: Sequence[str],
        inputs: Sequence[str],
        kinds: Sequence[Kind],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._kinds, self._shape, self._dtype = list(kinds), shape, dtype
        slots = {name: number for number, name in enumerate(inputs)}
        self._program: list[tuple[Callable[..., Any], bool, list[int], list[int]]] = []
        count = len(inputs)
        for link, result in zip(links, results, strict=True):
            arguments = [slots[name] for name in link.inputs]
            # of the slots of a chain, each result is for the next node alone
            self._program.append((link.function, link.ufunc, arguments, [slot for slot in set(arguments) if slot >= len(inputs)]))
            slots[result] = count
            count += 1

    def __call__(self, *values: Array) -> Array:
        if any((value.dtype, value.shape) != kind for value, kind in zip(values, self._kinds, strict=True)):
            return self._run(list(values))  # a shape depends on values
        if not all(value.flags.c_contiguous for value in values):
            return self._run(list(values))  # NumPy's results keep the layout, and sums over them their order
        out = memory.empty(self._shape, self._dtype, math.prod(self._shape) * self._dtype.itemsize)[0]
        given = list(values)
        shape = self._shape
        if all(value.size == 1 or (value.shape == shape and value.flags.c_contiguous) for value in given):
            shape = (math.prod(shape),)
            given = [value.reshape(-1) for value in given]
        rank = len(shape)
        given = [value.reshape((1,) * (rank - value.ndim) + value.shape) for value in given]
        target = out.reshape(shape)
        most = BLOCK // max(value.itemsize for value in (*given, out))
        axis = next(axis for axis in range(rank) if math.prod(shape[axis + 1 :]) <= most)
        rows = max(1, most // math.prod(shape[axis + 1 :]))
        chunks = -(-shape[axis] // rows)
        rows = -(-shape[axis] // chunks)  # all of about one size: a few elements may take another way through a function

        def work(first: int, last: int) -> None:
            for number in range(first, last):
                lead, chunk = divmod(number, chunks)
                outer = np.unravel_index(lead, shape[:axis]) if axis else ()
                place = (*(slice(at, at + 1) for at in outer), slice(chunk * rows, min(chunk * rows + rows, shape[axis])))
                parts = [
                    value[tuple(part if size > 1 else slice(None) for part, size in zip(place, value.shape, strict=False))]
                    for value in given
                ]
                self._run(parts, target[place])

        context = contextvars.copy_context()  # NumPy's error state is the caller's in every thread

        def share(first: int, last: int) -> None:
            context.copy().run(work, first, last)

        split(share, math.prod(shape[:axis]) * chunks, 8 * rows * math.prod(shape[axis + 1 :]) * len(self._program))
        return out

    def _run(self, values: list[Any], out: Array | None = None) -> Array:
        last = len(self._program) - 1
        result: Any = None
        for number, (function, ufunc, arguments, dying) in enumerate(self._program):
            taken = [values[slot] for slot in arguments]
            for slot in dying:
                values[slot] = None
            if ufunc and number == last and out is not None:
                return function(*taken, out=out)  # type: ignore[no-any-return]
            result = mixed(function, *taken) if ufunc and len(taken) == 2 else function(*taken)  # type: ignore[arg-type]
            values.append(result)
            del taken
        if out is None:
            return np.asarray(result)
        out[...] = result
        return out
