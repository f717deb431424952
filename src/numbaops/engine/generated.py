"""Chains of element-wise nodes as one kernel, made for the chain: compiled by and by, while NumPy still does the work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.engine.blocks import Array, Blocks, Kind, Link
from numbaops.runtime import memory
from numbaops.runtime.threads import split

SMALLEST = 1 << 16
"""Bytes from which a kernel is worth it: calling one takes as long as NumPy's functions for less."""

_SHORTEST = 16
"""Elements of the inner dimension from which a kernel is worth it: below, there is nothing to make vectors of."""

_SEGMENT = 1 << 13
"""Elements of a unit of work."""

_FLOAT32 = np.dtype(np.float32)
_KINDS = {_FLOAT32: "f", np.dtype(np.bool_): "b"}


class Generated:
    """A chain ready to run.

    Args:
        links: the nodes in order, each with a formula.
        inputs: names of what the chain takes.
        kinds: the dtype and the shape of each input.
        shape: of every result, which are float32.
        blocks: the same chain, for as long as there is no kernel, and for inputs of other layouts.
        dimensions: of the result, as :func:`dimensions_of` has them.
    """

    def __init__(
        self,
        links: Sequence[Link],
        inputs: Sequence[str],
        kinds: Sequence[Kind],
        shape: tuple[int, ...],
        blocks: Blocks,
        dimensions: tuple[int, int, int, Array, tuple[bool, ...]],
    ) -> None:
        from numbaops.kernels.chains import make_chain
        from numbaops.runtime.jit import Later

        self._kinds, self._shape, self._blocks = list(kinds), shape, blocks
        outer, middle, inner, strides, held = dimensions
        names = {name: f"x{number}" for number, name in enumerate(inputs)}
        formulas = []
        for number, link in enumerate(links):
            assert link.formula is not None
            formulas.append(link.formula.format(*(names[name] for name in link.inputs)))
            names[link.output] = f"t{number}"
        kernel, signature = make_chain(tuple(formulas), "".join(_KINDS[dtype] for dtype, _ in kinds), held)
        self._later = Later(kernel, signature)
        self._kernel: Any = kernel
        segments = -(-inner // _SEGMENT)
        step = -(-inner // segments)
        self._fixed = strides, middle, inner, segments, step
        self._units, self._bytes = outer * middle * segments, 4 * step * (1 + len(links))

    def __call__(self, *values: Array) -> Array:
        """The last result."""
        if not self._later.ready or not all(
            (value.dtype, value.shape) == kind and value.flags.c_contiguous for value, kind in zip(values, self._kinds, strict=True)
        ):
            return self._blocks(*values)
        out = memory.empty(self._shape, _FLOAT32, 4 * math.prod(self._shape))[0]
        kernel = self._kernel
        fixed = (*(value.reshape(-1) for value in values), out.reshape(-1), *self._fixed)
        split(lambda first, last: kernel(*fixed, first, last), self._units, self._bytes)
        return out


def dimensions_of(shape: tuple[int, ...], given: Sequence[tuple[int, ...]]) -> tuple[int, int, int, Array, tuple[bool, ...]] | None:
    """A shape as three dimensions, of which each operand has all or none of the elements; None if it takes more, or the inner is short.

    Args:
        shape: of the result.
        given: of the operands, which stretch to it.

    Returns:
        The elements of each dimension; for each operand the elements from one index to the next of the first two; and whether it has
        one element for the whole last one.
    """
    wholes = [(*(False,) * (len(shape) - len(each)), *(size > 1 for size in each)) for each in given]
    rows = [(size, whole) for size, *whole in zip(shape, *wholes, strict=True) if size != 1]
    groups = [(math.prod(size for size, _ in group), whole) for whole, group in itertools.groupby(rows, key=lambda row: row[1])]
    if not groups or len(groups) > 3 or groups[-1][0] < _SHORTEST:
        return None
    groups = [(1, [False] * len(given))] * (3 - len(groups)) + groups
    strides = np.zeros((len(given), 2), np.int64)
    for number in range(len(given)):
        sizes = [size if whole[number] else 1 for size, whole in groups]
        strides[number] = [math.prod(sizes[place + 1 :]) if groups[place][1][number] else 0 for place in range(2)]
    outer, middle, inner = (size for size, _ in groups)
    return outer, middle, inner, strides, tuple(not groups[2][1][number] for number in range(len(given)))
