"""Which element of a tensor has which scale."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from numbaops.errors import InvalidValueError

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

SHORT_RUN = 64
"""Elements that share a scale below which a scale for each element is faster: 16 of them take 1.5 times as long, 64 the same."""

TILE = 1 << 10
"""Elements of a row with a scale each below which several rows are joined."""

ENDLESS = 1 << 62


class Grid:
    """Where each element finds its scale.

    Args:
        shape: the tensor as three dimensions, of which the middle one is the axis.
        scales: the scales likewise; the outer and the inner one may be 1, and then count for all.
        block: neighbours along the axis that share a scale.

    Attributes:
        by_rows: which of the two kernels it takes: with scales that lie side by side as the elements do, or not.
        numbers: the kernel's last four arguments.
    """

    def __init__(self, shape: tuple[int, int, int], scales: tuple[int, int, int], block: int = 1) -> None:
        self.shape, self.scales, self.block = shape, scales, block
        (_, depth, inner), (_, blocks, _) = shape, scales
        self.single = scales == (1, 1, 1) and shape[:2] == (1, 1)
        per_axis = block == 1 and scales[0] == scales[2] == 1
        self.joined = 0  # else so often the scales of one row, each of them ``inner`` times, follow each other for the kernel
        self.by_rows = True
        if per_axis and inner < SHORT_RUN and depth > 1:
            self.joined = -(-TILE // max(depth * inner, 1))
            self.numbers = self.joined * depth * inner, ENDLESS, ENDLESS, 1
        elif per_axis:
            self.by_rows, self.numbers = False, (depth * inner, inner, depth, 0)
        elif inner > 1:
            self.numbers = inner, depth, block, blocks
        elif block == 1:
            self.numbers = math.prod(scales), ENDLESS, ENDLESS, 1
        else:
            self.by_rows, self.numbers = False, (depth, block, blocks, blocks)

    def cube(self, x: Array) -> Array:
        """``x`` as an array that the scales are :meth:`spread` over."""
        return x if self.single else x.reshape(self.shape)

    def spread(self, values: Array) -> Array:
        """Scales or zero points as an array that NumPy broadcasts to that."""
        if self.single:
            return values.reshape(())
        values = values.reshape(self.scales)
        return values if self.block == 1 else values.repeat(self.block, 1)[:, : self.shape[1]]

    def flat(self, values: Array) -> Array:
        """Scales or zero points as many as the kernel takes, in its order."""
        if not self.joined:
            return values
        row = values.reshape(-1)
        if self.shape[2] > 1:
            row = row.repeat(self.shape[2])
        return row if self.joined == 1 else np.tile(row, self.joined)


ONE_SCALE = Grid((1, 1, ENDLESS), (1, 1, 1))
"""The grid of a tensor of any size that has a single scale, to which axis and ``block_size`` do not matter."""

SINGLE: tuple[Shape, ...] = ((), (1,))
"""Shapes of a single scale."""


@functools.lru_cache(maxsize=1024)
def grid(shape: Shape, scales: Shape, axis: int, block_size: int, what: str) -> Grid:
    """Where the elements of a tensor of ``shape`` find their scales, an array of shape ``scales``.

    Args:
        shape: the tensor's shape.
        scales: with ``block_size`` 0 one dimension, that of the axis; else the tensor's shape but for the axis.
        axis: counts from the end when negative.
        block_size: neighbours along the axis that share a scale.
        what: the scales' name, for errors.

    Raises:
        InvalidValueError: the shapes do not fit.
    """
    came, rank = f"{what} has shape {list(scales)}", len(shape)
    if len(scales) != (rank if block_size else 1):
        allowed = f"with block_size {block_size} the rank of x, which is {rank}" if block_size else "without block_size one dimension"
        raise InvalidValueError(f"{came}; allowed: a scalar, or {allowed}", attribute=what)
    if not -rank <= axis < rank:
        raise InvalidValueError(f"axis is {axis} for x of rank {rank}; allowed: {-rank} to {rank - 1}", attribute="axis")
    axis %= rank
    length = shape[axis]
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    if not block_size:
        if scales != (length,):
            text = f"{came} for {length} elements of x along axis {axis}; allowed: [{length}] or a scalar"
            raise InvalidValueError(text, attribute=what)
        return Grid((outer, length, inner), (1, length, 1))
    blocks = scales[axis]
    if scales[:axis] + scales[axis + 1 :] != shape[:axis] + shape[axis + 1 :]:
        raise InvalidValueError(f"{came} for x of {list(shape)}; they may differ along axis {axis} only", attribute=what)
    if blocks != -(-length // block_size):
        text = f"block_size is {block_size}, and {length} elements are in {blocks} blocks; {_block_sizes(length, blocks)}"
        raise InvalidValueError(text, attribute="block_size")
    return Grid((outer, length, inner), (outer, blocks, inner), block_size)


def _block_sizes(length: int, blocks: int) -> str:
    """Which sizes of blocks cut ``length`` elements into so many."""
    if blocks == 1 and length:
        return f"allowed: {length} or more"
    least, most = (-(-length // blocks), -(-length // (blocks - 1)) - 1) if blocks > 1 else (1, 0)
    return f"allowed: {least} to {most}" if least <= most else "no size of blocks gives that"


def check_zero_point(shape: Shape, scales: Shape, what: str) -> None:
    """Refuse a zero point of another shape than the scale; of one element both a scalar and ``[1]`` do."""
    if shape != scales and not (shape in SINGLE and scales in SINGLE):
        text = f"{what} has shape {list(shape)}; the scale has {list(scales)}, and they must be the same"
        raise InvalidValueError(text, attribute=what)
