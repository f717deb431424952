"""Planes each by itself: convolutions in which an output channel sees one plane, scales and summands, and what follows sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbaops.kernels.vectors import LANES, copy_even_part, copy_part, row_1, row_2, row_3, row_4
from numbaops.runtime.jit import kernel

_FLOATS, _INTS = "float32[::1]", "int64[::1]"


@kernel(f"void({_FLOATS}, int64, int64, {_FLOATS}, float32, float32)")
def finish(out: Any, at: int, length: int, residual: Any, low: Any, high: Any) -> None:
    """What comes after the sums: another summand, if there is one, and limits; NaN stays."""
    line = out[at : at + length]  # of a slice no index is negative, so that LLVM makes vectors
    if residual.size:
        added = residual[at : at + length]
        for place in range(length):
            line[place] += added[place]
    if low > -np.inf or high < np.inf:
        for place in range(length):
            number = line[place]
            number = low if number < low else number
            line[place] = high if number > high else number


@kernel(f"void({_FLOATS}, int64, {_INTS}, int64, int64, int64, {_INTS}, int64, {_FLOATS})")
def _lay_out(x: Any, at: int, rows: Any, width: int, begin: int, stride: int, phases: Any, cells: int, out: Any) -> None:
    """A plane between its pads, which stay as they are, and with the phases of strides apart.

    So each cell of a kernel sees the elements of a row of windows in one line.
    """
    for phase in range(phases.size):
        start = phases[phase] - begin
        low = min(cells, max(0, -(start // stride)))
        high = max(low, min(cells, (width - 1 - start) // stride + 1))
        for row in range(rows.size):
            if rows[row] < 0:
                continue
            place = (row * phases.size + phase) * cells
            source = at + rows[row] * width + start
            cell = low
            if stride <= 2:
                while cell < high and source + stride * (cell + LANES) <= x.size:
                    if stride == 1:
                        copy_part(out, place + cell, x, source + cell, high - cell)
                    else:
                        copy_even_part(out, place + cell, x, source + 2 * cell, high - cell)
                    cell += LANES
            while cell < high:
                out[place + cell] = x[source + cell * stride]
                cell += 1


@kernel(f"void(int64, {_FLOATS}, int64, {_FLOATS}, int64, {_INTS}, int64, {_FLOATS}, int64, {_FLOATS}, int64, int64)")
def _lines(
    vectors: int, w: Any, w_at: int, x: Any, x_at: int, taps: Any, apart: int, bias: Any, bias_at: int, out: Any, at: int, out_apart: int
) -> None:
    """Vectors of windows of one plane: ``apart`` in ``x``, ``out_apart`` in ``out``."""
    count, no, none, zero = taps.size, False, out[:0], np.float32(0)
    if vectors == 4:
        row_4(w, w_at, x, x_at, taps, count, apart, bias, bias_at, out, at, 0, out_apart, no, no, none, zero, zero)
    elif vectors == 3:
        row_3(w, w_at, x, x_at, taps, count, apart, bias, bias_at, out, at, 0, out_apart, no, no, none, zero, zero)
    elif vectors == 2:
        row_2(w, w_at, x, x_at, taps, count, apart, bias, bias_at, out, at, 0, out_apart, no, no, none, zero, zero)
    else:
        row_1(w, w_at, x, x_at, taps, count, apart, bias, bias_at, out, at, 0, out_apart, no, no, none, zero, zero)


@kernel(
    f"void({_FLOATS}, int64, {_INTS}, int64, int64, int64, {_INTS}, int64, {_INTS}, {_INTS}, int64, {_FLOATS}, {_FLOATS}, {_FLOATS}, "
    f"{_FLOATS}, float64, float64, int64, int64, int64, int64)"
)
def convolve_planes(
    x: Any,
    plane: int,
    rows: Any,
    width: int,
    begin: int,
    stride: int,
    phases: Any,
    cells: int,
    taps: Any,
    starts: Any,
    windows: int,
    weights: Any,
    bias: Any,
    out: Any,
    residual: Any,
    low: float,
    high: float,
    channels: int,
    multiplier: int,
    first: int,
    last: int,
) -> None:
    """A convolution in which each output channel sees one plane.

    Args:
        x: planes, flat.
        plane: elements of a plane.
        rows: for each row of a padded plane, which row of the plane it is; -1 for a row of pads.
        width: elements of a row.
        begin: pads at the begin of a row.
        stride: elements from a window to the next.
        phases: where in a stride each phase that the kernel sees begins.
        cells: elements of each phase of a padded row.
        taps: where each cell of the kernel lies in a padded plane, from the begin of its window.
        starts: where in a padded plane each row of windows begins.
        windows: windows in a row.
        weights: ``[channels, taps]``, flat.
        bias: one number for each output channel.
        out: ``[images * channels, starts * windows]``, flat.
        residual: what is added, of the layout of ``out``; or empty.
        low: smaller results become this.
        high: larger results become this.
        channels: output channels.
        multiplier: output channels for each plane.
        first: the output plane to begin with.
        last: the output plane to end before.
    """
    least, most = np.float32(low), np.float32(high)
    padded = np.zeros(rows.size * phases.size * cells + 6 * LANES, np.float32)
    scratch = np.empty(LANES, np.float32)
    size = starts.size * windows
    limit = last * size  # behind it is what another thread writes
    held = -1
    for number in range(first, last):
        image, channel = number // channels, number % channels
        source = image * (channels // multiplier) + channel // multiplier
        if source != held:
            _lay_out(x, source * plane, rows, width, begin, stride, phases, cells, padded)
            held = source
        weight, target = channel * taps.size, number * size
        row = 0
        while row < starts.size:
            if windows <= LANES and starts.size >= 4:
                # four rows at once; where there are not four left, some are done again
                begin_row = min(row, starts.size - 4)
                at, place = starts[begin_row], target + begin_row * windows
                apart = starts[begin_row + 1] - at
                even = starts[begin_row + 2] - at == 2 * apart and starts[begin_row + 3] - at == 3 * apart
                if even and place + 3 * windows + LANES <= limit:
                    _lines(4, weights, weight, padded, at, taps, apart, bias, channel, out, place, windows)
                    row = begin_row + 4
                    continue
            at, place = starts[row], target + row * windows
            column = 0
            while column < windows:
                vectors = min(4, -(-(windows - column) // LANES))
                if place + column + vectors * LANES <= limit:
                    _lines(vectors, weights, weight, padded, at + column, taps, LANES, bias, channel, out, place + column, LANES)
                else:
                    vectors = 1
                    _lines(1, weights, weight, padded, at + column, taps, LANES, bias, channel, scratch, 0, LANES)
                    for lane in range(min(windows - column, LANES)):
                        out[place + column + lane] = scratch[lane]
                column += vectors * LANES
            row += 1
        finish(out, target, size, residual, least, most)


@kernel(f"void({_FLOATS}, {_FLOATS}, {_FLOATS}, float64, float64, int64, {_FLOATS}, int64, int64)")
def scale_planes(x: Any, scale: Any, shift: Any, low: float, high: float, plane: int, out: Any, first: int, last: int) -> None:
    """Planes times the factor of their channel, plus its summand, within limits; NaN stays.

    Args:
        x: ``[images * channels, plane]``, flat.
        scale: a factor for each channel.
        shift: a summand for each channel.
        low: smaller results become this.
        high: larger results become this.
        plane: elements of a plane.
        out: like ``x``.
        first: the plane to begin with.
        last: the plane to end before.
    """
    least, most = np.float32(low), np.float32(high)
    for number in range(first, last):
        factor, summand = scale[number % scale.size], shift[number % scale.size]
        given, line = x[number * plane : (number + 1) * plane], out[number * plane : (number + 1) * plane]
        for place in range(plane):
            result = given[place] * factor + summand
            result = least if result < least else result
            line[place] = most if result > most else result
