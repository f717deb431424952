"""Where windows lie in planes, worked out in Python once for a geometry: see :mod:`.windows`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

LINE = 64
"""Bytes of a vector, and of a cache line."""

BLOCK = 1 << 14
"""Bytes of rows that wait to be combined along themselves."""


def lanes_of(dtype: str) -> int:
    """Elements of a vector."""
    return LINE // np.dtype(dtype).itemsize


def identity(operation: str, dtype: str) -> Any:
    """What changes nothing: zero for ``"sum"``, the lowest value for ``"max"``."""
    kind = np.dtype(dtype)
    if operation == "sum":
        return kind.type(0)
    return kind.type(-math.inf) if kind.kind == "f" else kind.type(np.iinfo(kind).min)


# Where windows lie


@dataclass(frozen=True, slots=True)
class Extent:
    """Windows along one axis: cell ``k`` of window ``o`` lies at ``o * stride + k * dilation - begin``, which may be outside."""

    size: int
    count: int
    cells: int
    stride: int
    dilation: int
    begin: int

    def reached(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """For each window the place of the first of its cells that lies on an element, and how many do."""
        starts = np.arange(self.count, dtype=np.int64) * self.stride - self.begin
        outside = np.maximum(0, -(starts // self.dilation))
        last = np.minimum(self.cells, (self.size - 1 - starts) // self.dilation + 1)
        return starts + outside * self.dilation, np.maximum(0, last - outside)

    def met(self) -> npt.NDArray[Any]:
        """For each cell the windows, from one to before another, where it lies on an element; int64 [2, cells]."""
        starts = np.arange(self.cells, dtype=np.int64) * self.dilation - self.begin
        first = np.maximum(0, -(starts // self.stride))
        return np.stack((first, np.maximum(first, np.minimum(self.count, (self.size - 1 - starts) // self.stride + 1))))


FIRST, LAYERS, LINES, ALIKE, PLACE = range(5)
"""Rows of a layout's table."""


class Layout(NamedTuple):
    """What a kernel has to know of a geometry.

    Attributes:
        table: int64 [5, rows of windows in an image]: the first element that a window meets in its first column, how many layers and
            lines it meets, how many rows from this one on meet as many at the next places, and what the first element's place counts.
        met: int64 [2, cells along a row]: the windows for which each cell lies on an element.
        numbers: the others.
        windows: how many there are in a row.
        scratch: elements of the memory that a call of the kernel needs for itself.
        fold_bytes: how many bytes a core copies, from and to its caches, in the time that a row of windows takes.
        place_bytes: the same where places are looked for.
    """

    table: npt.NDArray[Any]
    met: npt.NDArray[Any]
    numbers: tuple[int, ...]
    windows: int
    scratch: int
    fold_bytes: int
    place_bytes: int


def window_layout(extents: Sequence[Extent], dtype: str, *, column_major: bool = False) -> Layout:
    """The layout of windows that have a count above zero along each axis.

    Args:
        extents: of depth, height and width.
        dtype: of the elements.
        column_major: whether places count along the first axis first.
    """
    deep, high, wide = extents
    lanes = lanes_of(dtype)
    weights = (1, deep.size, deep.size * high.size) if column_major else (high.size * wide.size, wide.size, 1)
    table = np.empty((5, deep.count, high.count), np.int64)
    (first_layer, table[LAYERS].T[:]), (first_line, table[LINES]) = deep.reached(), high.reached()
    table[FIRST] = (first_layer[:, None] * high.size + first_line) * wide.size
    table[PLACE] = first_layer[:, None] * weights[0] + first_line * weights[1]
    # How far it is to the next row that differs from the one before it.
    differs = np.flatnonzero((np.diff(table[LINES, 0]) != 0) | (np.diff(first_line) != high.stride)) + 1
    rows = np.arange(high.count)
    table[ALIKE] = np.append(differs, high.count)[np.searchsorted(differs, rows, "right")] - rows
    table[ALIKE][table[LAYERS] != 1] = 1

    beyond = (wide.cells - 1) * wide.dilation
    pads = max(0, (wide.count - 1) * wide.stride + beyond + 1 - wide.begin - wide.size)
    lead, vectors, out_vectors = (-(-number // lanes) * lanes for number in (wide.begin, wide.size, wide.count))
    pitch = max(lead + max(vectors, wide.size + pads), lead - wide.begin + out_vectors * wide.stride + beyond)
    pitch = -(-pitch // lanes) * lanes
    block = max(1, BLOCK // (pitch * np.dtype(dtype).itemsize))
    overrun = -(-(out_vectors - wide.count) // wide.count)
    tall = vectors * high.cells if deep.cells > 1 else 0
    below, behind, stride = high.dilation * wide.size, deep.dilation * high.size * wide.size, high.stride * wide.size
    image, along = deep.size * high.size * wide.size, (wide.size, wide.count, wide.stride, wide.cells, wide.dilation, wide.begin)
    places = (deep.dilation * weights[0], high.dilation * weights[1], weights[2])
    numbers = (image, *along, below, behind, stride, *places, lead, pitch, pads, block, overrun)
    loads = vectors // lanes * high.cells * deep.cells, out_vectors // lanes * wide.cells * min(wide.stride, 2)
    fold_bytes, place_bytes = LINE // 2 * (sum(loads) + 4), 3 * LINE * (loads[1] * high.cells * deep.cells + 4)
    return Layout(table.reshape(5, -1), wide.met(), numbers, wide.count, block * pitch + tall + lanes, fold_bytes, place_bytes)


# Instructions
