"""Kernels of Resize: two axes at once, a row of the output at a time, from tables of elements and weights for each axis.

A row is first made of rows of the input, in vectors, and then its elements of those of that row, which lies in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from numbaops.runtime.jit import kernel

COMPILED = not numba.config.DISABLE_JIT
"""Whether kernels are machine code; otherwise NumPy serves."""

_TABLE = "Array(int64, 2, 'C', True, aligned=True)"


def _source(dtype: str) -> str:
    return f"Array({dtype}, 1, 'C', True, aligned=True)"


def make_pick(word: str) -> Callable[..., None]:
    """Elements of planes.

    Returns:
        ``pick(x, height, width, rows, columns, out, first, last)``: of planes ``[height, width]``, flat, those in the rows and columns
        that the tables ``[1, number]`` say; an empty table stands for all of them. Writes the rows of the output from ``first`` to
        ``last``, counted through all planes.
    """

    @kernel(f"void({_source(word)}, int64, int64, {_TABLE}, {_TABLE}, {word}[::1], int64, int64)", key=(word,))
    def pick(x: Any, height: int, width: int, rows: Any, columns: Any, out: Any, first: int, last: int) -> None:
        count = rows.shape[1] if rows.size else height
        length = columns.shape[1] if columns.size else width
        twice = length == 2 * width  # the usual case, which needs no table
        for number in range(columns.size):
            twice &= columns[0, number] == number >> 1
        held = -1
        for unit in range(first, last):
            plane, row = unit // count, unit % count
            line = plane * height + (rows[0, row] if rows.size else row)
            target = out[unit * length : (unit + 1) * length]
            if columns.size and line == held:
                source = out[(unit - 1) * length : unit * length]
                for number in range(length):
                    target[number] = source[number]
                continue
            source = x[line * width : (line + 1) * width]
            held = line
            if twice:
                for number in range(width):
                    target[2 * number] = source[number]
                    target[2 * number + 1] = source[number]
            elif columns.size:
                for number in range(length):
                    target[number] = source[np.uintp(columns[0, number])]
            else:
                for number in range(length):
                    target[number] = source[number]

    return pick


def make_blend(dtype: str, wide: str) -> Callable[..., None]:
    """Weighted sums of elements of planes.

    Args:
        dtype: the elements' type.
        wide: the type of weights and sums; if it is another one, sums are rounded, halves to even, and kept within uint8.

    Returns:
        ``blend(x, height, width, rows, row_weights, columns, column_weights, out, first, last)``, as in :func:`make_pick`; the tables
        ``[samples, number]`` have a line for each sample, and so have their weights.
    """
    rounds = dtype != wide
    element = getattr(np, wide)
    weights = f"Array({wide}, 2, 'C', True, aligned=True)"

    @kernel(
        f"void({_source(dtype)}, int64, int64, {_TABLE}, {weights}, {_TABLE}, {weights}, {dtype}[::1], int64, int64)", key=(dtype, wide)
    )
    def blend(
        x: Any, height: int, width: int, rows: Any, row_weights: Any, columns: Any, column_weights: Any, out: Any, first: int, last: int
    ) -> None:
        count = rows.shape[1] if rows.size else height
        length = columns.shape[1] if columns.size else width
        line, sums = np.empty(width, element), np.empty(length, element)
        for unit in range(first, last):
            plane, row = unit // count, unit % count
            if rows.size:
                for sample in range(rows.shape[0]):
                    weight, at = row_weights[sample, row], (plane * height + rows[sample, row]) * width
                    source = x[at : at + width]
                    if sample == 0:
                        for number in range(width):
                            line[number] = source[number] * weight
                    else:
                        for number in range(width):
                            line[number] += source[number] * weight
            else:
                source = x[(plane * height + row) * width : (plane * height + row + 1) * width]
                for number in range(width):
                    line[number] = source[number]
            result = line
            if columns.size:
                result = sums
                for sample in range(columns.shape[0]):
                    places, factors = columns[sample], column_weights[sample]
                    if sample == 0:
                        for number in range(length):
                            sums[number] = line[np.uintp(places[number])] * factors[number]
                    else:
                        for number in range(length):
                            sums[number] += line[np.uintp(places[number])] * factors[number]
            target = out[unit * length : (unit + 1) * length]
            if rounds:
                for number in range(length):
                    target[number] = int(min(max(np.rint(result[number]), 0.0), 255.0))
            else:
                for number in range(length):
                    target[number] = result[number]

    return blend


pick = {word: make_pick(word) for word in ("uint8", "uint16", "uint32", "uint64")}
blend = {"float32": make_blend("float32", "float32"), "uint8": make_blend("uint8", "float64")}
