"""Kernels over runs of elements: sums and the like of each, of each column, and normalizations, of float32 and 16-bit floats.

A run is added up in ``WIDTH`` sums at once, so that none waits for the one before, and these in pairs; after ``BLOCK`` elements the total
goes into a float64. So sums are at least as exact as pairwise ones, and the same on every CPU and for every number of threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.kernels.floats import widen_bfloat16, widen_float16
from numbaops.kernels.functions import exp
from numbaops.kernels.row_vectors import AVAILABLE, IDENTITIES, make_fold, write_with_each, write_with_one
from numbaops.runtime.jit import kernel

__all__ = ["AVAILABLE", "accumulate", "fold_columns", "fold_rows", "log_sums", "normalize_runs", "place_columns", "scale_runs"]

Kernel = Callable[..., None]

BLOCK = 1024
"""Elements that are added up in float32."""

LINES = 32
"""Rows of which columns are added up in float32."""

TILE = 512
"""Columns that are added up at once: they stay in the L1 cache."""

_fold = functools.cache(make_fold)
_sum, _square, _largest = _fold("sum"), _fold("square"), _fold("max")


def source_of(source: str) -> str:
    """The type of an array of numbers, of 16-bit floats as their bits; constants are read-only."""
    word = "uint16" if source.endswith("float16") else source
    return f"Array({word}, 1, 'C', True, aligned=True)"


# Reductions


def make_fold_rows(operation: str, source: str) -> Kernel:
    """One number for each part of each row.

    Args:
        operation: one of ``IDENTITIES``.
        source: ``"float32"``, or a 16-bit type given as its bits.

    Returns:
        ``fold_rows(x, out, size, part, first, last)``: rows have ``size`` (1 or more) elements, of which each ``part`` gives one number
        of ``out``; it does those from ``first`` to ``last``, counted through all rows. NaN wins.
    """
    fold, identity = _fold(operation), IDENTITIES[operation]
    product, largest, least = (operation == each for each in ("product", "max", "min"))
    wide = source == "float32"
    widen = widen_float16 if source == "float16" else widen_bfloat16

    @kernel(f"void({source_of(source)}, float64[::1], int64, int64, int64, int64)", key=(operation, source))
    def fold_rows(x: Any, out: Any, size: int, part: int, first: int, last: int) -> None:
        parts = -(-size // part)
        scratch = np.empty(BLOCK, np.float32)
        for number in range(first, last):
            start = number // parts * size + number % parts * part
            stop = min(start + part, (number // parts + 1) * size)
            total = identity
            for at in range(start, stop, BLOCK):
                count = min(BLOCK, stop - at)
                if wide:
                    value = fold(x, at, count, np.float32(0))
                else:
                    widen(x[at : at + count], scratch[:count].view(np.uint32))
                    value = fold(scratch, 0, count, np.float32(0))
                if product:
                    total *= value
                elif largest:
                    total = value if value > total or value != value else total
                elif least:
                    total = value if value < total or value != value else total
                else:
                    total += value
            out[number] = total

    return fold_rows


def make_fold_columns(operation: str, source: str) -> Kernel:
    """One number for each column of each part of the rows of matrices.

    Args:
        operation: one of ``IDENTITIES``.
        source: ``"float32"``, or a 16-bit type given as its bits.

    Returns:
        ``fold_columns(x, out, rows, part, columns, first, last)``: matrices have ``rows`` (1 or more) of as many ``columns``; each ``part``
        of their rows gives one row of ``out``; it does those from ``first`` to ``last``, counted through all matrices. NaN wins.
    """
    identity = np.float64(IDENTITIES[operation])
    product, largest, least, square, absolute = (operation == each for each in ("product", "max", "min", "square", "absolute"))
    short = np.float32 if not product else np.float64
    wide = source == "float32"
    widen = widen_float16 if source == "float16" else widen_bfloat16

    @kernel(key=(operation, source))
    def term(value: Any) -> Any:
        return short(abs(value) if absolute else value * value if square else value)

    @kernel(key=(operation, source))
    def combine(total: Any, value: Any) -> Any:
        if product:
            return total * value
        if largest:
            return total if total >= value or total != total else value
        if least:
            return total if total <= value or total != total else value
        return total + value

    @kernel(f"void({source_of(source)}, float64[::1], int64, int64, int64, int64, int64)", key=(operation, source))
    def fold_columns(x: Any, out: Any, rows: int, part: int, columns: int, first: int, last: int) -> None:
        parts = -(-rows // part)
        sums, scratch = np.empty(TILE, short), np.empty(4 * TILE, np.float32)
        for number in range(first, last):
            begin = number // parts * rows + number % parts * part
            end = min(begin + part, (number // parts + 1) * rows)
            for tile in range(0, columns, TILE):
                count = min(TILE, columns - tile)
                total = out[number * columns + tile : number * columns + tile + count]
                short_total = sums[:count]
                total[:] = identity
                for block in range(begin, end, LINES):
                    short_total[:] = short(identity)
                    row, stop = block, min(block + LINES, end)
                    while row < stop:
                        together = 4 if row + 4 <= stop else 1
                        at = row * columns + tile
                        if wide:
                            lines, pitch, base = x, columns, at
                        else:
                            lines, pitch, base = scratch, TILE, 0
                            for line in range(together):
                                place = at + line * columns
                                widen(x[place : place + count], scratch[line * TILE : line * TILE + count].view(np.uint32))
                        a = lines[base : base + count]
                        if together == 4:
                            b, c, d = (
                                lines[base + pitch : base + pitch + count],
                                lines[base + 2 * pitch : base + 2 * pitch + count],
                                lines[base + 3 * pitch : base + 3 * pitch + count],
                            )
                            for i in range(count):
                                upper, lower = combine(term(a[i]), term(b[i])), combine(term(c[i]), term(d[i]))
                                short_total[i] = combine(short_total[i], combine(upper, lower))
                        else:
                            for i in range(count):
                                short_total[i] = combine(short_total[i], term(a[i]))
                        row += together
                    for i in range(count):
                        total[i] = combine(total[i], np.float64(short_total[i]))

    return fold_columns


@kernel(f"void({source_of('float32')}, float64[::1], int64, int64, int64)")
def log_sums(x: Any, out: Any, size: int, first: int, last: int) -> None:
    """The logarithm of the sum of the exponentials of each row of ``size`` (1 or more) elements."""
    scratch = np.empty(BLOCK, np.float32)
    for row in range(first, last):
        start, stop = row * size, (row + 1) * size
        largest = -np.inf
        for at in range(start, stop, BLOCK):
            value = _largest(x, at, min(BLOCK, stop - at), np.float32(0))
            largest = value if value > largest or value != value else largest
        shift = np.float32(largest if abs(largest) < np.inf else 0)
        total = 0.0
        for at in range(start, stop, BLOCK):
            count = min(BLOCK, stop - at)
            line = x[at : at + count]
            for i in range(count):
                scratch[i] = exp(np.float32(line[i] - shift))
            total += _sum(scratch, 0, count, shift)
        out[row] = np.log(total) + shift


# Places and running totals


@kernel(f"void({source_of('float32')}, int64[::1], int64, int64, boolean, boolean, int64, int64)")
def place_columns(x: Any, out: Any, rows: int, columns: int, least: bool, from_last: bool, first: int, last: int) -> None:
    """In which row of each column of matrices the largest element is, or the least one; NaN wins.

    Args:
        x: matrices of as many ``rows`` and ``columns``, one after the other.
        out: a number for each column of each matrix.
        rows: 1 or more.
        columns: 1 or more.
        least: whether the least element is looked for.
        from_last: whether the last of equal ones counts, not the first.
        first: the tile of ``TILE`` columns, counted through all matrices, to begin with.
        last: the tile to end before.
    """
    tiles, sign = -(-columns // TILE), np.float32(-1 if least else 1)
    all_best, all_places = np.empty(TILE, np.float32), np.empty(TILE, np.int32)
    for number in range(first, last):
        matrix, start = number // tiles, number % tiles * TILE
        count = min(TILE, columns - start)
        best, places = all_best[:count], all_places[:count]
        for step in range(rows):
            row = np.int32(rows - 1 - step if from_last else step)
            at = (matrix * rows + row) * columns + start
            line = x[at : at + count]
            if step == 0:
                for i in range(count):
                    best[i] = line[i] * sign
                    places[i] = row
            else:
                for i in range(count):
                    value, held = line[i] * sign, best[i]
                    wins = (value > held) | ((value != value) & (held == held))
                    best[i] = value if wins else held
                    places[i] = row if wins else places[i]
        found = out[matrix * columns + start : matrix * columns + start + count]
        for i in range(count):  # assigning the whole would take four times as long to compile
            found[i] = places[i]


def make_accumulate(operation: str, dtype: str) -> Kernel:
    """Running totals along the columns of matrices.

    Args:
        operation: ``"sum"`` or ``"product"``.
        dtype: of elements and totals.

    Returns:
        ``accumulate(x, out, rows, columns, exclusive, reverse, first, last)``: matrices have ``rows`` (1 or more) of as many
        ``columns``; tiles of ``TILE`` columns, counted through all matrices, are done from ``first`` to ``last``. ``exclusive`` totals
        are those of what comes before an element, ``reverse`` ones begin with the last row. One is added after the other.
    """
    number_of = np.dtype(dtype).type
    identity, product = number_of(IDENTITIES[operation]), operation == "product"

    @kernel(key=(operation, dtype))
    def combine(total: Any, value: Any) -> Any:
        return number_of(total * value if product else total + value)

    @kernel(f"void({source_of(dtype)}, {dtype}[::1], int64, int64, boolean, boolean, int64, int64)", key=(operation, dtype))
    def accumulate(x: Any, out: Any, rows: int, columns: int, exclusive: bool, reverse: bool, first: int, last: int) -> None:
        tiles, lag = -(-columns // TILE), 1 if exclusive else 0
        for number in range(first, last):
            at, start = number // tiles * rows, number % tiles * TILE
            count = min(TILE, columns - start)
            total = identity
            for step in range(rows):
                taken = step - lag
                to = (at + (rows - 1 - step if reverse else step)) * columns + start
                source = (at + (rows - 1 - taken if reverse else taken)) * columns + start
                if columns == 1:  # the total stays in a register
                    if taken >= 0:
                        total = combine(total, x[source]) if taken else x[source]
                    out[to] = total
                elif taken < 0:
                    out[to : to + count] = identity
                elif taken == 0:
                    out[to : to + count] = x[source : source + count]
                else:
                    before = (at + (rows - step if reverse else step - 1)) * columns + start
                    line, totals, values = out[to : to + count], out[before : before + count], x[source : source + count]
                    for i in range(count):
                        line[i] = combine(totals[i], values[i])

    return accumulate


# Normalizations


@kernel()
def _total(x: Any, at: int, pieces: int, apart: int, length: int, centre: Any, square: bool) -> float:
    """The sum over pieces of a run, or of the squares of what they are away from the centre."""
    if apart == length:
        pieces, length = 1, pieces * length
    total = 0.0
    for piece in range(pieces):
        start = at + piece * apart
        for place in range(start, start + length, BLOCK):
            count = min(BLOCK, start + length - place)
            total += _square(x, place, count, centre) if square else _sum(x, place, count, centre)
    return total


@kernel()
def _normalize(
    x: Any, at: int, out: Any, to: int, row: int, layout: Any, centred: bool, epsilon: Any, beyond: Any, scale: Any, shift: Any, each: bool
) -> tuple[Any, Any]:
    """Normalizes one run; returns its mean and variance."""
    _, pieces, apart, length, channel, channel_step = layout
    mean = np.float32(0)
    if centred:
        mean = np.float32(_total(x, at, pieces, apart, length, mean, False) / (pieces * length))
    variance = np.float32(_total(x, at, pieces, apart, length, mean, True) / (pieces * length))
    inverse = np.float32(np.divide(1.0, math.sqrt(variance + epsilon) + beyond))  # / raises where the divisor is zero
    for piece in range(pieces):
        place, target = at + piece * apart, to + piece * apart
        if each:
            write_with_each(x, place, out, target, length, mean, inverse, scale, shift, 0)
        else:
            number = (row * channel + piece * channel_step) % scale.size
            write_with_one(x, place, out, target, length, mean, inverse, scale, shift, number)
    return mean, variance


def _make_narrow(source: str, encode: Any) -> Kernel:
    """``narrow(wide, out)``: float32 rounded to the codes of a 16-bit type."""

    @kernel(key=(source,))
    def narrow(wide: Any, out: Any) -> None:
        bits = wide.view(np.uint32)
        for i in range(out.size):
            out[i] = encode(bits[i])

    return narrow


_PARAMETER = source_of("float32")


def make_normalize_runs(source: str, encode: Any) -> Kernel:
    """The normalization of runs: ``(x - mean) / (sqrt(variance + epsilon) + beyond) * scale + shift``.

    Args:
        source: ``"float32"``, or a 16-bit type given as its bits.
        encode: for a 16-bit type, its code for the bits of a float32.

    Returns:
        ``normalize_runs(x, out, scale, shift, means, variances, layout, centred, each, epsilon, beyond, first, last)``. The ``layout`` is
        ``step, pieces, apart, length, channel, channel_step``: run ``r`` begins at ``r * step`` and has as many pieces of some length
        as there are, which begin ``apart``. If ``each``, every element of a piece has a factor and a summand; else piece ``p`` has those
        of number ``r * channel + p * channel_step``, counted in a circle. Unless ``centred``, the mean is taken for zero.
    """
    wide = source == "float32"
    widen, narrow = widen_float16 if source == "float16" else widen_bfloat16, _make_narrow(source, encode)
    word = "float32" if wide else "uint16"
    floats = "float32[::1], float32[::1]"

    @kernel(
        f"void({source_of(source)}, {word}[::1], {_PARAMETER}, {_PARAMETER}, {floats}, UniTuple(int64, 6), boolean, boolean, "
        "float64, float64, int64, int64)",
        key=(source,),
    )
    def normalize_runs(
        x: Any,
        out: Any,
        scale: Any,
        shift: Any,
        means: Any,
        variances: Any,
        layout: Any,
        centred: bool,
        each: bool,
        epsilon: float,
        beyond: float,
        first: int,
        last: int,
    ) -> None:
        step, pieces, apart, length, channel, channel_step = layout
        if wide:
            for row in range(first, last):
                at = row * step
                means[row], variances[row] = _normalize(x, at, out, at, row, layout, centred, epsilon, beyond, scale, shift, each)
        else:
            run, packed = np.empty(pieces * length, np.float32), (0, pieces, length, length, channel, channel_step)
            for row in range(first, last):
                for piece in range(pieces):
                    at = row * step + piece * apart
                    widen(x[at : at + length], run[piece * length : (piece + 1) * length].view(np.uint32))
                means[row], variances[row] = _normalize(run, 0, run, 0, row, packed, centred, epsilon, beyond, scale, shift, each)
                for piece in range(pieces):
                    at = row * step + piece * apart
                    narrow(run[piece * length : (piece + 1) * length], out[at : at + length])

    return normalize_runs


def make_scale_runs(source: str, encode: Any) -> Kernel:
    """The normalization of runs whose statistics are known.

    Args:
        source: ``"float32"``, or a 16-bit type given as its bits.
        encode: for a 16-bit type, its code for the bits of a float32.

    Returns:
        ``scale_runs(x, out, mean, scale, shift, length, first, last)``: ``(x - mean) * scale + shift`` of runs, with the numbers of the
        run, counted in a circle.
    """
    wide = source == "float32"
    widen, narrow = widen_float16 if source == "float16" else widen_bfloat16, _make_narrow(source, encode)
    word = "float32" if wide else "uint16"

    @kernel(
        f"void({source_of(source)}, {word}[::1], {_PARAMETER}, {_PARAMETER}, {_PARAMETER}, int64, int64, int64)",
        key=(source,),
    )
    def scale_runs(x: Any, out: Any, mean: Any, scale: Any, shift: Any, length: int, first: int, last: int) -> None:
        block, one = np.empty(BLOCK, np.float32), np.float32(1)
        for number in range(first, last):
            channel, at = number % scale.size, number * length
            if wide:
                write_with_one(x, at, out, at, length, mean[channel], one, scale, shift, channel)
            else:
                for start in range(at, at + length, BLOCK):
                    count = min(BLOCK, at + length - start)
                    widen(x[start : start + count], block[:count].view(np.uint32))
                    write_with_one(block, 0, block, 0, count, mean[channel], one, scale, shift, channel)
                    narrow(block[:count], out[start : start + count])

    return scale_runs


fold_rows, fold_columns = functools.cache(make_fold_rows), functools.cache(make_fold_columns)
accumulate = functools.cache(make_accumulate)
normalize_runs, scale_runs = functools.cache(make_normalize_runs), functools.cache(make_scale_runs)

# What is compiled ahead.
for _operation in IDENTITIES:
    fold_rows(_operation, "float32")
    fold_columns(_operation, "float32")
accumulate("sum", "float32")
normalize_runs("float32", None)
scale_runs("float32", None)
