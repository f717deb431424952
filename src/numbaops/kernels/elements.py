"""Kernels that read and write elements by index, and triangles of matrices. Where only bytes move, elements are unsigned integers.

An index that is out of range is counted and never used: the caller looks at ``wrong``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from numbaops.runtime.jit import kernel

COMPILED = not numba.config.DISABLE_JIT
"""Whether kernels are machine code; otherwise NumPy serves."""

WORDS = ("uint8", "uint16", "uint32", "uint64")
NUMBERS = ("float32", "float64", "int32", "int64")
OPERATIONS = ("add", "mul", "max", "min")

_INDICES = "Array(int64, 1, 'C', True, aligned=True)"


def _source(dtype: str) -> str:
    return f"Array({dtype}, 1, 'C', True, aligned=True)"


def make_gather(word: str) -> Callable[..., None]:
    """The elements at given places of an axis.

    Returns:
        ``gather(data, size, inner, indices, count, out, wrong, first, last)``: ``out[o, j, i] = data[o, indices[o, j, i], i]`` for
        ``first <= o < last``, all of them flat, of shapes ``[outer, size or count, inner]``; ``wrong[0]`` becomes 1 if an index is not
        within ``-size`` and ``size - 1``.
    """

    @kernel(f"void({_source(word)}, int64, int64, {_INDICES}, int64, {word}[::1], int64[::1], int64, int64)", key=(word,))
    def gather(data: Any, size: int, inner: int, indices: Any, count: int, out: Any, wrong: Any, first: int, last: int) -> None:
        outside = 0
        # one long loop where the axis is the last one
        lines, width, step = (1, count, 0) if inner == 1 else (count, inner, 1)
        for outer in range(first, last):
            part, places, values = data[outer * size * inner :], indices[outer * count * inner :], out[outer * count * inner :]
            for line in range(lines):
                for number in range(width):
                    at = np.uintp(line * width + number)
                    index = places[at]
                    index += size if index < 0 else 0
                    if 0 <= index < size:
                        values[at] = part[np.uintp(index * inner + number * step)]
                    else:
                        outside = 1
        if outside:
            wrong[0] = 1

    return gather


def make_scatter(word: str) -> Callable[..., None]:
    """The reverse of gathering.

    Returns:
        ``scatter(out, size, inner, indices, count, updates, wrong, first, last)``: ``out[o, indices[o, j, i], i] = updates[o, j, i]``,
        as in :func:`make_gather`; later updates win.
    """

    @kernel(f"void({word}[::1], int64, int64, {_INDICES}, int64, {_source(word)}, int64[::1], int64, int64)", key=(word,))
    def scatter(out: Any, size: int, inner: int, indices: Any, count: int, updates: Any, wrong: Any, first: int, last: int) -> None:
        outside = 0
        # one long loop where the axis is the last one
        lines, width, step = (1, count, 0) if inner == 1 else (count, inner, 1)
        for outer in range(first, last):
            part, places, values = out[outer * size * inner :], indices[outer * count * inner :], updates[outer * count * inner :]
            for line in range(lines):
                for number in range(width):
                    at = np.uintp(line * width + number)
                    index = places[at]
                    index += size if index < 0 else 0
                    if 0 <= index < size:
                        part[np.uintp(index * inner + number * step)] = values[at]
                    else:
                        outside = 1
        if outside:
            wrong[0] = 1

    return scatter


def _make_combine(dtype: str) -> Callable[[int, Any, Any], Any]:
    """``combine(operation, so_far, update)``: the operation is a number, a place in ``OPERATIONS``; NaN wins."""

    @kernel(f"{dtype}(int64, {dtype}, {dtype})", key=(dtype,))
    def combine(operation: int, so_far: Any, update: Any) -> Any:
        if operation == 0:
            return so_far + update
        if operation == 1:
            return so_far * update
        if so_far != so_far or update != update:
            return so_far if so_far != so_far else update
        if operation == 2:
            return so_far if so_far >= update else update
        return so_far if so_far <= update else update

    return combine


def make_scatter_combined(dtype: str) -> Callable[..., None]:
    """Updates combined with what is there, in their order.

    Returns:
        ``scatter_combined(out, size, inner, indices, count, updates, operation, wrong, first, last)``, as :func:`make_scatter`; the
        operation is a place in ``OPERATIONS``.
    """
    combine = _make_combine(dtype)

    @kernel(f"void({dtype}[::1], int64, int64, {_INDICES}, int64, {_source(dtype)}, int64, int64[::1], int64, int64)", key=(dtype,))
    def scatter_combined(
        out: Any, size: int, inner: int, indices: Any, count: int, updates: Any, operation: int, wrong: Any, first: int, last: int
    ) -> None:
        outside = 0
        # one long loop where the axis is the last one
        lines, width, step = (1, count, 0) if inner == 1 else (count, inner, 1)
        for outer in range(first, last):
            part, places, values = out[outer * size * inner :], indices[outer * count * inner :], updates[outer * count * inner :]
            for line in range(lines):
                for number in range(width):
                    at = np.uintp(line * width + number)
                    index = places[at]
                    index += size if index < 0 else 0
                    if 0 <= index < size:
                        to = np.uintp(index * inner + number * step)
                        part[to] = combine(operation, part[to], values[at])
                    else:
                        outside = 1
        if outside:
            wrong[0] = 1

    return scatter_combined


def make_combine_rows(dtype: str) -> Callable[..., None]:
    """Rows combined with those that are there, in their order.

    Returns:
        ``combine_rows(out, rows, inner, updates, operation)``: each row of ``updates``, ``[rows, inner]``, flat, goes to the row of
        ``out`` that ``rows`` says, which is one that there is.
    """
    combine = _make_combine(dtype)

    @kernel(f"void({dtype}[::1], int64[::1], int64, {_source(dtype)}, int64)", key=(dtype,))
    def combine_rows(out: Any, rows: Any, inner: int, updates: Any, operation: int) -> None:
        for place in range(rows.size):
            row, new = out[rows[place] * inner : (rows[place] + 1) * inner], updates[place * inner : (place + 1) * inner]
            for number in range(inner):
                row[number] = combine(operation, row[number], new[number])

    return combine_rows


def make_triangle(word: str) -> Callable[..., None]:
    """Triangles of matrices.

    Returns:
        ``triangle(x, rows, columns, offset, upper, out, first, last)``: rows ``first`` to ``last`` of all matrices ``[rows, columns]``
        one after the other, flat, with zero bits below the diagonal ``offset`` if ``upper``, else above it.
    """
    zero = getattr(np, word)(0)

    @kernel(f"void({_source(word)}, int64, int64, int64, boolean, {word}[::1], int64, int64)", key=(word,))
    def triangle(x: Any, rows: int, columns: int, offset: int, upper: bool, out: Any, first: int, last: int) -> None:
        for row in range(first, last):
            edge = min(max(row % rows + offset + (0 if upper else 1), 0), columns)
            low, high = (edge, columns) if upper else (0, edge)
            source, target = x[row * columns : (row + 1) * columns], out[row * columns : (row + 1) * columns]
            for place in range(low):
                target[place] = zero
            source, target = source[low:], target[low:]
            for place in range(high - low):
                target[place] = source[place]
            target = target[high - low :]
            for place in range(columns - high):
                target[place] = zero

    return triangle


gather = {word: make_gather(word) for word in WORDS}
scatter = {word: make_scatter(word) for word in WORDS}
scatter_combined = {dtype: make_scatter_combined(dtype) for dtype in NUMBERS}
combine_rows = {dtype: make_combine_rows(dtype) for dtype in NUMBERS}
triangle = {word: make_triangle(word) for word in WORDS}
