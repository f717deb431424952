"""Kernels over windows that slide along up to three axes: their largest elements, sums or means, and where the largest ones are.

A window is combined along the depth and then along the lines, both from contiguous vectors, into a row that has the identity on either
side; and then along that row. So no window needs a test for the border. Rows go in blocks that stay in the L1 cache, for a load from
what was stored just before waits for the store. Vectors reach beyond the end of a row, into what the next row overwrites. All that is
emitted by hand: LLVM makes of loops a test for overlaps in each row, and its rest, which is most of a short row, it does element by
element; that took three to four times as long, and as long to compile. What depends on the geometry alone is in a :class:`Layout`,
made in Python, for the same reason.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from numbaops.kernels.window_geometry import ALIKE, FIRST, LAYERS, LINE, LINES, PLACE, identity, lanes_of
from numbaops.kernels.window_vectors import make_vector_place_row, make_vector_run, make_vector_strip
from numbaops.runtime.jit import kernel

Kernel = Callable[..., None]
Emit = Callable[[Any, Any, Any], Any]

RUN = 1024
"""Elements that are added up before their sum is added to the others', with compensation."""

COMPILED = not numba.config.DISABLE_JIT
"""Whether kernels are machine code."""

VECTORS = COMPILED and not numba.config.BOUNDSCHECK
"""Whether there are vectors; otherwise plain loops do the same, in Python or with bounds checks."""


def _source(dtype: str) -> str:
    """The type of an input: read-only, since constants of a model are."""
    return f"Array({dtype}, 1, 'C', True, aligned=True)"


def _make_pick(operation: str, dtype: str) -> Callable[[Any, Any], Any]:
    """``pick(so_far, value)``: the two combined; the first of equal elements stays, and NaN wins."""
    add = operation == "sum"

    @kernel(f"{dtype}({dtype}, {dtype})", key=(operation, dtype))
    def pick(best: Any, value: Any) -> Any:
        if add:
            return best + value
        return best if best >= value or best != best else value

    return pick


def _make_plain_strip(operation: str, dtype: str, divides: bool) -> Kernel:
    """Combines cells of each of some rows.

    Returns:
        ``strip(out, x, widths, heights, numbers)``, the numbers being ``to, out_pitch, at, x_pitch, rows, count, step, cells, apart,
        number, exact``. For each row ``r`` and column ``c``, ``out[to + r * out_pitch + c]`` is what ``cells`` (1 or more) elements of
        ``x`` give, from ``at + r * x_pitch + c * step`` on and ``apart``; if it ``divides``, divided by ``widths[c]`` and the
        ``heights``, from ``number`` on in a circle. Unless ``exact`` or the step is above 2, as many columns are written as make whole
        vectors, row after row, ``count`` of which are right.
    """
    lanes, zero, pick = lanes_of(dtype), np.dtype(dtype).type(0), _make_pick(operation, dtype)
    kinds = (f"void({dtype}[::1], {x}, {dtype}[::1], {dtype}[::1], UniTuple(int64, 11))" for x in (_source(dtype), f"{dtype}[::1]"))

    @kernel(*kinds, key=(operation, dtype, divides))
    def strip(out: Any, x: Any, widths: Any, heights: Any, numbers: Any) -> None:
        to, out_pitch, at, x_pitch, rows, count, step, cells, apart, number, exact = numbers
        columns = count if exact or step > 2 else -(-count // lanes) * lanes
        for row in range(rows):
            height = heights[(number + row) % heights.size]
            for column in range(columns):
                place = at + row * x_pitch + column * step
                total = x[place]
                for _ in range(1, cells):
                    place += apart
                    total = pick(total, x[place])
                if divides:
                    total = np.divide(total + zero, widths[column] * height)  # / raises where the divisor is zero
                out[to + row * out_pitch + column] = total

    return strip


def _make_plain_run(operation: str, dtype: str) -> Callable[[Any, int, int], Any]:
    """``run(x, first, count)``: that many elements combined."""
    pick, neutral = _make_pick(operation, dtype), identity(operation, dtype)

    @kernel(f"{dtype}({_source(dtype)}, int64, int64)", key=(operation, dtype))
    def run(x: Any, first: int, count: int) -> Any:
        total = neutral
        for i in range(first, first + count):
            total = pick(total, x[i])
        return total

    return run


def _make_plain_place_row(dtype: str) -> Kernel:
    """Finds the largest elements of one row of windows.

    Returns:
        ``place_row(x, out, places, met, numbers)``, the numbers being ``to, windows, first, layers, behind, lines, below, cells, apart,
        step, image, counted, deep, down, along, exact``. Window ``w`` has its first cell at ``first + w * step``, and as many cells
        ``apart`` as there are, in so many ``lines`` and ``layers``, which are ``below`` and ``behind``; of those in a line it has the
        ones that ``met`` says. The first cell of the first window counts ``counted``, the next element of the line ``along`` more, of
        the next line ``down``, of the next layer ``deep``; ``image`` is added. Unless ``exact`` or the step is above 2, what
        follows the row is overwritten as well, up to whole vectors.
    """
    neutral = identity("max", dtype)

    @kernel(f"void({_source(dtype)}, {dtype}[::1], int64[::1], int64[:, ::1], UniTuple(int64, 16))", key=(dtype,))
    def place_row(x: Any, out: Any, places: Any, met: Any, numbers: Any) -> None:
        to, windows, first, layers, behind, lines, below, cells, apart, step, image, counted, deep, down, along, _ = numbers
        for window in range(windows):
            best, found = neutral, -1
            for layer in range(layers):
                for line in range(lines):
                    for cell in range(cells):
                        if met[0, cell] <= window < met[1, cell]:
                            at = window * step + cell * apart
                            value = x[first + layer * behind + line * below + at]
                            if (not value <= best and best == best) or found < 0:  # not <=, for NaN wins
                                best, found = value, counted + layer * deep + line * down + at * along
            out[to + window] = best
            places[to + window] = image + found if found >= 0 else -1

    return place_row


_make_place_row = make_vector_place_row if VECTORS else _make_plain_place_row
_make_strip = make_vector_strip if VECTORS else _make_plain_strip
_make_run = make_vector_run if VECTORS else _make_plain_run


# Kernels


_NUMBERS = "int64[:, ::1], UniTuple(int64, 18), int64, int64"


def make_fold_windows(operation: str, dtype: str) -> Kernel:
    """The windows of images of up to three axes.

    Args:
        operation: ``"max"``, where NaN wins; or ``"sum"``, of which each is divided.
        dtype: of elements and results: float32 or float64; for ``"max"`` an integer type as well.

    Returns:
        ``fold_windows(x, out, scratch, widths, heights, table, numbers, start, stop)``: ``x`` and ``out`` hold whole images, flat; the
        rows of windows from ``start`` to ``stop``, counted through all images, are computed. ``table`` and ``numbers`` are those of
        a :class:`Layout`, ``scratch`` has the size it says, anything in it. A window without elements gives the identity.
        ``widths``, a whole number of vectors at least as long as a row, and ``heights``, one for each row of an image, are
        divisors; ``"max"`` takes any arrays.
    """
    itemsize, lanes, neutral = np.dtype(dtype).itemsize, lanes_of(dtype), identity(operation, dtype)
    down = _make_strip(operation, dtype, False)
    across = _make_strip(operation, dtype, True) if operation == "sum" else down
    line = f"{dtype}[::1]"

    @kernel(f"void({_source(dtype)}, {line}, {line}, {line}, {line}, {_NUMBERS})", key=(operation, dtype))
    def fold_windows(x: Any, out: Any, scratch: Any, widths: Any, heights: Any, table: Any, numbers: Any, start: int, stop: int) -> None:
        image, width, windows, step, cells, apart, begin, below, behind, stride, _, _, _, lead, pitch, pads, block, overrun = numbers
        rows = scratch[-scratch.ctypes.data % LINE // itemsize :]  # so that stores lie within a line
        tall, wide = block * pitch, -(-width // lanes) * lanes
        for row in range(block):  # vectors write the rest, which may be more than the caches hold
            for i in range(row * pitch, row * pitch + lead):
                rows[i] = neutral
            for i in range(row * pitch + lead + width, (row + 1) * pitch):
                rows[i] = neutral
        for i in range(tall, rows.size):
            rows[i] = neutral
        for number in range(start, stop, block):
            count = min(block, stop - number)
            base, within = number // table.shape[1] * image, number % table.shape[1]
            divisor, done = within, 0
            while done < count:
                at, first = lead + done * pitch, base + table[FIRST, within]
                layers, lines, together = table[LAYERS, within], table[LINES, within], min(table[ALIKE, within], count - done)
                end = first + (layers - 1) * behind + (lines - 1) * below + wide  # of what vectors read
                if end + (together - 1) * stride > x.size:
                    together = 1
                exact = int(end > x.size)
                if layers == 0 or lines == 0:
                    together = 1
                    for column in range(width):
                        rows[at + column] = neutral
                elif layers == 1:
                    down(rows, x, rows, rows, (at, pitch, first, stride, together, width, 1, lines, below, 0, exact))
                else:
                    down(rows, x, rows, rows, (tall, wide, first, below, lines, width, 1, layers, behind, 0, exact))
                    down(rows, rows, rows, rows, (at, 0, tall, 0, 1, width, 1, lines, wide, 0, 0))
                for row in range(together):
                    for pad in range(pads):  # a vector may have written there
                        rows[at + row * pitch + width + pad] = neutral
                done += together
                within += together
                if within == table.shape[1]:
                    base, within = base + image, 0
            safe = min(count, max(0, stop - overrun - number))
            to, at = number * windows, lead - begin
            across(out, rows, widths, heights, (to, windows, at, pitch, safe, windows, step, cells, apart, divisor, 0))
            to, at, divisor = to + safe * windows, at + safe * pitch, (divisor + safe) % table.shape[1]
            across(out, rows, widths, heights, (to, windows, at, pitch, count - safe, windows, step, cells, apart, divisor, 1))

    return fold_windows


def make_reduce_runs(operation: str, dtype: str) -> Kernel:
    """One result for each run of elements.

    Args:
        operation: ``"max"``, where NaN wins; or ``"sum"``, which is divided.
        dtype: of elements and results: float32 or float64; for ``"max"`` an integer type as well.

    Returns:
        ``reduce_runs(x, out, size, divisor, start, stop)``: ``out[i]`` from ``start`` to ``stop`` is what the ``size`` (1 or more)
        elements of ``x`` from ``i * size`` on give. Sums are as exact as pairwise ones at least.
    """
    run, zero, add = _make_run(operation, dtype), np.dtype(dtype).type(0), operation == "sum"

    @kernel(f"void({_source(dtype)}, {dtype}[::1], int64, {dtype}, int64, int64)", key=(operation, dtype))
    def reduce_runs(x: Any, out: Any, size: int, divisor: Any, start: int, stop: int) -> None:
        for i in range(start, stop):
            if not add:
                out[i] = run(x, i * size, size)
            else:
                total, lost = zero, zero
                for at in range(0, size, RUN):
                    part = run(x, i * size + at, min(RUN, size - at))
                    new = total + part
                    change = new - total
                    lost += (total - (new - change)) + (part - change)
                    total = new
                # What was lost is no number where the sum is infinite.
                out[i] = np.divide(total + lost if lost == lost else total, divisor)

    return reduce_runs


def make_place_largest(dtype: str) -> Kernel:
    """The largest elements of windows, and where they are.

    Returns:
        ``place_largest(x, out, places, table, met, numbers, start, stop)``: as ``fold_windows`` with ``"max"``; ``places`` takes where
        the first of the largest elements of each window is, NaN being the largest, as the layout counts; -1 for a window without
        elements. An image has less than 2**31 elements.
    """
    place_row, lanes = _make_place_row(dtype), lanes_of(dtype)

    @kernel(f"void({_source(dtype)}, {dtype}[::1], int64[::1], int64[:, ::1], {_NUMBERS})", key=(dtype,))
    def place_largest(x: Any, out: Any, places: Any, table: Any, met: Any, numbers: Any, start: int, stop: int) -> None:
        image, _, windows, step, cells, apart, begin, below, behind, _, deep, down, along, _, _, _, _, overrun = numbers
        for number in range(start, stop):
            base, within = number // table.shape[1] * image, number % table.shape[1]
            layers, lines = table[LAYERS, within], table[LINES, within]
            first, counted = base + table[FIRST, within] - begin, table[PLACE, within] - begin * along
            end = first + (layers - 1) * behind + (lines - 1) * below + (cells - 1) * apart + -(-windows // lanes) * lanes * step
            exact = int(first < 0 or end > x.size or number >= stop - overrun)
            numbers_of_row = (number * windows, windows, first, layers, behind, lines, below, cells, apart, step, base)
            place_row(x, out, places, met, (*numbers_of_row, counted, deep, down, along, exact))

    return place_largest


fold_windows = functools.cache(make_fold_windows)
reduce_runs = functools.cache(make_reduce_runs)
place_largest = functools.cache(make_place_largest)

# What is compiled ahead.
for _operation in ("max", "sum"):
    fold_windows(_operation, "float32")
    reduce_runs(_operation, "float32")
place_largest("float32")
