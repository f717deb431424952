"""Convolutions, and products of matrices as such: a tile of sums stays in vector registers while it takes in all its terms.

A tile is ``ROWS`` x ``COLUMNS`` sums: of ``ROWS`` output channels and of ``COLUMNS`` places next to each other. For each term it takes a
line of ``COLUMNS`` numbers from a panel, into which windows were gathered, and ``ROWS`` weights, which were laid out in that order. That
way the processor does nothing but multiply and add: 115 of 118 GFLOP/s that one core has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numbaops.kernels.planes import finish
from numbaops.kernels.vectors import (
    AVAILABLE,
    COLUMNS,
    LANES,
    PITCH,
    ROWS,
    VECTORS,
    clear_line,
    copy_even,
    copy_line,
    dots_of_rows,
    tile_1,
    tile_2,
    tile_3,
    unpacked,
)
from numbaops.runtime.jit import kernel

__all__ = ["AVAILABLE", "COLUMNS", "LANES", "ROWS", "convolve", "panel_channels"]

TERMS = 512
"""Terms of one panel: with 98 KB it stays in the second cache, and the allocator does not ask the system for it."""

THIN = 4
"""Windows of a panel up to which its sums are made along the rows: a vector of windows would be empty but for those."""

FEW_BLOCKS = 4
"""Blocks of rows up to which a panel takes longer to gather than what it saves."""

_FLOATS, _INTS, _TABLE = "float32[::1]", "int64[::1]", "int64[:, ::1]"


@kernel(f"int64(int64, int64, {_INTS}, int64, int64, int64, int64, int64, {_TABLE})")
def _parts(begin: int, length: int, sources: Any, width: int, stride: int, shift: int, low: int, high: int, parts: Any) -> int:
    """What one cell of the kernel sees of a panel's windows: for each part where it begins in a plane (-1: it is pads), and where it ends.

    Args:
        begin: the first window.
        length: windows of the panel.
        sources: where in a plane the elements of each row of windows lie; -1 for pads.
        width: windows in a row.
        stride: elements from a window to the next.
        shift: where in a row the element of the first window lies.
        low: the first window that has an element there.
        high: the window behind the last such.
        parts: where to write.
    """
    number, place = 0, 0
    while place < length:
        row = (begin + place) // width
        column = begin + place - row * width
        run = min(width - column, length - place)
        before, inside = run, run
        if sources[row] >= 0:
            before = min(max(low - column, 0), run)
            inside = min(max(high - column, before), run)
        if before:
            parts[number, 0], parts[number, 1] = -1, place + before
            number += 1
        if inside > before:
            parts[number, 0], parts[number, 1] = sources[row] + (column + before) * stride + shift, place + inside
            number += 1
        if run > inside:
            parts[number, 0], parts[number, 1] = -1, place + run
            number += 1
        place += run
    return number


@kernel(f"void({_FLOATS}, int64, int64, int64, int64, int64, int64, {_FLOATS}, int64)")
def _gather(x: Any, at: int, plane: int, channels: int, stride: int, start: int, length: int, panel: Any, place: int) -> None:
    """One part of the lines of some channels. Behind its end more is written, which the next part overwrites or nobody reads."""
    if start < 0:
        for channel in range(channels):
            for lane in range(0, length, LANES):
                clear_line(panel, place + channel * PITCH + lane)
        return
    at += start
    end = at + (channels - 1) * plane + stride * (length + LANES)
    if stride == 1 and end <= x.size:
        if length <= LANES:
            for channel in range(channels):
                copy_line(panel, place + channel * PITCH, x, at + channel * plane)
        elif length <= 2 * LANES:
            for channel in range(channels):
                copy_line(panel, place + channel * PITCH, x, at + channel * plane)
                copy_line(panel, place + channel * PITCH + LANES, x, at + channel * plane + LANES)
        else:
            for channel in range(channels):
                for lane in range(0, VECTORS * LANES, LANES):
                    copy_line(panel, place + channel * PITCH + lane, x, at + channel * plane + lane)
    elif stride == 2 and end <= x.size:
        for channel in range(channels):
            for lane in range(0, length, LANES):
                copy_even(panel, place + channel * PITCH + lane, x, at + channel * plane + 2 * lane)
    else:
        for channel in range(channels):
            for column in range(length):
                panel[place + channel * PITCH + column] = x[at + channel * plane + column * stride]


@kernel("int64(int64, int64)")
def panel_channels(taps: int, channels: int) -> int:
    """Channels of which a panel holds the terms, if the kernel has ``taps`` cells."""
    return min(max(1, TERMS // max(1, taps)), channels)


@kernel(
    f"void(int64, {_FLOATS}, int64, {_FLOATS}, int64, {_INTS}, int64, {_FLOATS}, int64, {_FLOATS}, int64, int64, boolean, boolean, "
    f"{_FLOATS}, float32, float32)"
)
def tile(
    kind: int,
    w: Any,
    w_at: int,
    x: Any,
    x_at: int,
    lines: Any,
    terms: int,
    bias: Any,
    bias_at: int,
    out: Any,
    at: int,
    stride: int,
    more: bool,
    done: bool,
    added: Any,
    low: Any,
    high: Any,
) -> None:
    """A tile of as many vectors of windows as ``kind`` says, from a panel; or, if it is 4, of whole lines that lie where ``lines`` say."""
    if kind == 3:
        tile_3(w, w_at, x, x_at, lines, terms, LANES, bias, bias_at, out, at, stride, LANES, more, done, added, low, high)
    elif kind == 4:
        unpacked(w, w_at, x, x_at, lines, terms, LANES, bias, bias_at, out, at, stride, LANES, more, done, added, low, high)
    elif kind == 2:
        tile_2(w, w_at, x, x_at, lines, terms, LANES, bias, bias_at, out, at, stride, LANES, more, done, added, low, high)
    else:
        tile_1(w, w_at, x, x_at, lines, terms, LANES, bias, bias_at, out, at, stride, LANES, more, done, added, low, high)


@kernel(
    f"void({_FLOATS}, int64, int64, {_TABLE}, int64, int64, {_TABLE}, int64, {_FLOATS}, {_FLOATS}, {_FLOATS}, int64, int64, "
    f"{_FLOATS}, float64, float64, int64, int64, int64)"
)
def convolve(
    x: Any,
    plane: int,
    groups: int,
    sources: Any,
    width: int,
    stride: int,
    cells: Any,
    channels: int,
    weights: Any,
    bias: Any,
    out: Any,
    count: int,
    windows: int,
    residual: Any,
    low: float,
    high: float,
    blocks_each: int,
    first: int,
    last: int,
) -> None:
    """The units from ``first`` to ``last`` of a convolution; a unit is one panel and ``blocks_each`` blocks of ``ROWS`` channels.

    Args:
        x: ``[images, groups * channels, plane]``, flat.
        plane: elements of a plane.
        groups: groups of channels.
        sources: for each row of the kernel, where in a plane the elements of each row of windows lie; -1 for pads.
        width: windows in a row.
        stride: elements from a window to the next.
        cells: for each cell in a row of the kernel: where in a row of elements that of the first window lies, the first window that has
            one there, and the window behind the last such.
        channels: planes that are summed up.
        weights: ``[groups, blocks, terms, ROWS]``, flat; the terms are those of :func:`panel_channels` channels, of the next ones, ...;
            within these those of the first cell of the kernel, of the next one, ...
        bias: ``[groups, blocks, ROWS]``, flat.
        out: ``[images, groups * count, windows]``, flat.
        count: output channels of a group.
        windows: windows of a plane.
        residual: what is added, of the layout of ``out``; or empty.
        low: smaller results become this.
        high: larger results become this.
        blocks_each: blocks of a unit.
        first: the unit to begin with.
        last: the unit to end before.
    """
    least, most = np.float32(low), np.float32(high)
    taps = sources.shape[0] * cells.shape[0]
    terms = channels * taps
    blocks = -(-count // ROWS)
    chunks = -(-blocks // blocks_each)
    panels = -(-windows // COLUMNS)
    each = panel_channels(taps, channels)
    panel = np.empty(max(1, each * taps) * PITCH + 2 * LANES, np.float32)
    panel = panel[-(panel.ctypes.data // 4) % 16 :]
    scratch = np.empty(ROWS * COLUMNS, np.float32)
    parts = np.empty((3 * COLUMNS, 2), np.int64)
    nothing = np.empty(0, np.float32)
    # Of few rows a panel is hardly worth the gathering: where windows are elements, lines lie in the planes as they are.
    unpacked = blocks_each <= FEW_BLOCKS and taps == 1 and stride == 1 and width == windows == plane and sources[0, 0] == 0
    lines = np.arange(max(1, each) if unpacked else 0) * plane
    for unit in range(first, last):
        block_first = unit % chunks * blocks_each
        block_last = min(blocks, block_first + blocks_each)
        begin = unit // chunks % panels * COLUMNS
        length = min(COLUMNS, windows - begin)
        planes = unit // (chunks * panels)
        group = planes % groups
        for channel in range(0, max(1, channels), max(1, each)):
            some = min(each, channels - channel)
            in_place = unpacked and length == COLUMNS
            line = 0
            for row in range(0 if in_place else sources.shape[0]):
                for cell in range(cells.shape[0]):
                    number = _parts(begin, length, sources[row], width, stride, cells[cell, 0], cells[cell, 1], cells[cell, 2], parts)
                    at = (planes * channels + channel) * plane
                    place = 0
                    for part in range(number):
                        _gather(x, at, plane, some, stride, parts[part, 0], parts[part, 1] - place, panel, line + place)
                        place = parts[part, 1]
                    line += some * PITCH
            more, done, terms_here = channel > 0, channel + each >= channels, some * taps
            for block in range(block_first, block_last):
                at = (planes * count + block * ROWS) * windows + begin
                rows = min(ROWS, count - block * ROWS)
                weight = ((group * blocks + block) * terms + channel * taps) * ROWS
                start = (group * blocks + block) * ROWS
                if in_place:
                    source, given, kind = x, (planes * channels + channel) * plane + begin, 4
                else:
                    source, given, kind = panel, 0, min(3, -(-length // LANES))
                if rows == ROWS and length == COLUMNS:
                    tile(
                        kind,
                        weights,
                        weight,
                        source,
                        given,
                        lines,
                        terms_here,
                        bias,
                        start,
                        out,
                        at,
                        windows,
                        more,
                        done,
                        residual,
                        least,
                        most,
                    )
                elif length <= THIN:
                    for column in range(length):
                        for row in range(ROWS):
                            scratch[row] = out[at + row * windows + column] if more and row < rows else bias[start + row]
                        dots_of_rows(weights, weight, panel, column, PITCH, terms_here, scratch)
                        for row in range(rows):
                            out[at + row * windows + column] = scratch[row]
                else:
                    if more:
                        for row in range(rows):
                            for column in range(length):
                                scratch[row * COLUMNS + column] = out[at + row * windows + column]
                    tile(
                        kind,
                        weights,
                        weight,
                        source,
                        given,
                        lines,
                        terms_here,
                        bias,
                        start,
                        scratch,
                        0,
                        COLUMNS,
                        more,
                        False,
                        nothing,
                        least,
                        most,
                    )
                    for row in range(rows):
                        for column in range(length):
                            out[at + row * windows + column] = scratch[row * COLUMNS + column]
                if done and (rows < ROWS or length < COLUMNS):
                    for row in range(rows):
                        finish(out, at + row * windows, length, residual, least, most)
