"""Convolutions of few windows: of images as small as the kernel, or of a short piece of sound.

A vector of windows would be mostly empty; a vector of output channels is not. So a tile has its rows from windows, of one image or of
several, and its columns from channels: weights are read once for up to ``ROWS`` windows, and little else is read at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numbaops.kernels.vectors import COLUMNS, LANES, ROWS, channels_few, channels_one, channels_rows
from numbaops.runtime.jit import kernel

FEW = min(4, ROWS)
"""Rows of the tile for few windows: it takes half the time of one of ``ROWS``."""

_FLOATS, _TABLE = "float32[::1]", "int64[:, ::1]"


@kernel(
    f"void({_FLOATS}, int64, int64, {_TABLE}, int64, {_FLOATS}, {_FLOATS}, {_FLOATS}, int64, int64, {_FLOATS}, float64, float64, "
    "int64, int64)"
)
def convolve_few(
    x: Any,
    plane: int,
    groups: int,
    places: Any,
    channels: int,
    weights: Any,
    bias: Any,
    out: Any,
    count: int,
    rows: int,
    residual: Any,
    low: float,
    high: float,
    first: int,
    last: int,
) -> None:
    """The units from ``first`` to ``last`` of a convolution; a unit is ``COLUMNS`` channels of up to ``ROWS`` windows.

    Args:
        x: ``[images, groups * channels, plane]``, flat.
        plane: elements of a plane.
        groups: groups of channels.
        places: ``[windows, taps]``: where in a plane the elements of each window lie; -1 for pads.
        channels: planes that are summed up.
        weights: ``[groups, blocks, channels * taps, COLUMNS]``, flat.
        bias: ``[groups, blocks, COLUMNS]``, flat.
        out: ``[images, groups * count, windows]``, flat.
        count: output channels of a group.
        rows: windows of all images.
        residual: what is added, of the layout of ``out``; or empty.
        low: smaller results become this.
        high: larger results become this.
        first: the unit to begin with; the blocks of channels come one after the other, then groups, then windows.
        last: the unit to end before.
    """
    least, most = np.float32(low), np.float32(high)
    windows, taps = places.shape
    terms = channels * taps
    blocks = -(-count // COLUMNS)
    panel = np.empty(terms * (FEW if rows <= FEW else ROWS), np.float32)
    sums = np.empty(ROWS * COLUMNS, np.float32)
    nothing = np.empty(0, np.float32)
    lines = np.empty(0, np.int64)
    gathered = -1
    for unit in range(first, last):
        block = unit % blocks
        group = unit // blocks % groups
        begin = unit // (blocks * groups) * ROWS
        some = min(ROWS, rows - begin)
        kind = 1 if some == 1 else FEW if some <= FEW else ROWS
        if gathered != unit // blocks:
            gathered = unit // blocks
            for row in range(some):
                image, window = (begin + row) // windows, (begin + row) % windows
                at = (image * groups + group) * channels * plane
                if taps == 1 and places[window, 0] >= 0:
                    for channel in range(channels):
                        panel[channel * kind + row] = x[at + channel * plane + places[window, 0]]
                    continue
                for channel in range(channels):
                    for tap in range(taps):
                        place = places[window, tap]
                        panel[(channel * taps + tap) * kind + row] = x[at + channel * plane + place] if place >= 0 else np.float32(0)
            for row in range(some, kind):
                for term in range(terms):
                    panel[term * kind + row] = np.float32(0)
        start = (group * blocks + block) * COLUMNS
        for row in range(kind):
            for column in range(COLUMNS):
                sums[row * COLUMNS + column] = bias[start + column]
        line = start * terms
        if kind == 1:
            channels_one(panel, 0, weights, line, lines, terms, LANES, bias, 0, sums, 0, COLUMNS, LANES, True, False, nothing, least, most)
        elif kind == FEW:
            channels_few(panel, 0, weights, line, lines, terms, LANES, bias, 0, sums, 0, COLUMNS, LANES, True, False, nothing, least, most)
        else:
            channels_rows(panel, 0, weights, line, lines, terms, LANES, bias, 0, sums, 0, COLUMNS, LANES, True, False, nothing, least, most)
        for row in range(some):
            image, window = (begin + row) // windows, (begin + row) % windows
            at = ((image * groups + group) * count + block * COLUMNS) * windows + window
            for column in range(min(COLUMNS, count - block * COLUMNS)):
                number = sums[row * COLUMNS + column]
                if residual.size:
                    number += residual[at + column * windows]
                number = least if number < least else number
                out[at + column * windows] = most if number > most else number
