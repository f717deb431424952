"""Kernels that sample images between their elements: at the places of a grid, and in the bins of regions.

Which elements a sample is made of, and with what weights, is worked out once, for all channels.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from numbaops.runtime.jit import kernel

COMPILED = not numba.config.DISABLE_JIT
"""Whether kernels are machine code; otherwise NumPy serves."""

_FLOATS = "Array(float32, 1, 'C', True, aligned=True)"
_PAIRS = "Array(float32, 2, 'C', True, aligned=True)"
_INDICES = "Array(int64, 1, 'C', True, aligned=True)"
_BLOCK = 64
"""Places of a grid that are worked out at once."""

FAR = np.float32(2.0**31)
"""Where an element more makes no difference, and integers still hold the position."""

_ONE, _TWO = np.float32(1), np.float32(2)

ZEROS, BORDER, REFLECTION = 0, 1, 2
"""What stands outside of an image."""


@kernel("float32(float32, float32, float32)")
def _reflected(x: Any, low: Any, high: Any) -> Any:
    """Mirrored at both ends until it lies between them; what does already stays."""
    if low <= x <= high:
        return x
    span = np.float32(high - low)
    if span <= 0:
        return low
    way = np.float32(np.fmod(abs(np.float32(x - low)), np.float32(_TWO * span)))
    return np.float32(low + (np.float32(_TWO * span - way) if way > span else way))


@kernel("float32(float32)")
def _cubic(distance: Any) -> Any:
    """Keys' cubic convolution, with a = -0.75."""
    if distance <= _ONE:
        return (np.float32(1.25) * distance - np.float32(2.25)) * distance * distance + _ONE
    if distance < _TWO:
        return ((np.float32(-0.75) * distance + np.float32(3.75)) * distance - np.float32(6)) * distance + np.float32(3)
    return np.float32(0)


@kernel("float32(float32, int64, boolean)")
def _mirrored(x: Any, length: int, corners: bool) -> Any:
    """A position mirrored into an axis."""
    if corners:
        return _reflected(x, np.float32(0), np.float32(length - 1))
    return _reflected(x, np.float32(-0.5), np.float32(length - 0.5))


@kernel("float32(float32, int64, boolean, boolean, boolean)")
def _element(coordinate: Any, length: int, corners: bool, rounds: bool, reflects: bool) -> Any:
    """Where a coordinate from -1 to 1 lies, in elements."""
    x = coordinate if coordinate == coordinate else np.float32(-1)
    x = min(max(x, -FAR), FAR)  # infinity times 0 would be NaN
    if corners:
        x = np.float32(np.float32(np.float32(x + _ONE) * np.float32(0.5)) * np.float32(length - 1))
    else:
        x = np.float32(np.float32(np.float32(np.float32(x + _ONE) * np.float32(length)) - _ONE) * np.float32(0.5))
    x = min(max(x, -FAR), FAR)
    x = np.float32(np.rint(x)) if rounds else x
    return _mirrored(x, length, corners) if reflects else x


@kernel(f"float32({_FLOATS}, int64[::1], float32[::1], boolean[::1], uint64)")
def _of_four(source: Any, index: Any, factors: Any, counts: Any, at: Any) -> Any:
    """The weighted sum of four elements; those that do not count are zeros."""
    one, two, three = np.uintp(1), np.uintp(2), np.uintp(3)
    zero = np.float32(0)
    a, b = source[np.uintp(index[at])], source[np.uintp(index[at + one])]
    c, d = source[np.uintp(index[at + two])], source[np.uintp(index[at + three])]
    a, b = a if counts[at] else zero, b if counts[at + one] else zero
    c, d = c if counts[at + two] else zero, d if counts[at + three] else zero
    return zero + a * factors[at] + b * factors[at + one] + c * factors[at + two] + d * factors[at + three]


@kernel(f"void({_FLOATS}, {_INDICES}, int64, {_FLOATS}, int64, int64, int64, boolean, float32[::1], int64, int64)")
def sample_grid(
    x: Any, lengths: Any, channels: int, grid: Any, places: int, taps: int, padding: int, corners: bool, out: Any, first: int, last: int
) -> None:
    """Images at the places of a grid.

    Args:
        x: ``[images, channels, *lengths]``, flat.
        lengths: of up to three axes.
        channels: of an image.
        grid: ``[images, places, axes]``, flat; coordinates from -1 to 1, the last axis first. NaN counts as -1.
        places: of an image.
        taps: elements along an axis that count: 1 for the nearest, 2 for linear and 4 for cubic sampling.
        padding: what stands outside of an image.
        corners: whether -1 and 1 are the centres of the outer elements, else their outer edges.
        out: ``[images, channels, places]``, flat.
        first: the place to begin with, counted through all images.
        last: the place to end before.
    """
    rank = lengths.size
    plane = 1
    for axis in range(rank):
        plane *= lengths[axis]
    samples = taps**rank
    weights, positions, inside = np.empty(3 * taps, np.float32), np.empty(3 * taps, np.int64), np.empty(3 * taps, np.bool_)
    index, factors = np.empty((_BLOCK, samples), np.int64), np.empty((_BLOCK, samples), np.float32)
    counts = np.empty((_BLOCK, samples), np.bool_)
    flat_index, flat_factors, flat_counts = index.reshape(-1), factors.reshape(-1), counts.reshape(-1)
    start = first
    while start < last:
        image, place = start // places, start % places
        count = min(_BLOCK, last - start, places - place)
        whole = True
        for number in range(count):
            for axis in range(rank):
                coordinate = grid[(start + number) * rank + rank - 1 - axis]
                length = lengths[axis]
                element = _element(coordinate, length, corners, taps == 1, padding == REFLECTION)
                below = np.float32(np.floor(element))
                fraction = np.float32(element - below)
                for tap in range(taps):
                    offset = np.float32(tap - 1 if taps == 4 else tap)
                    position = np.float32(below + offset)
                    if padding == REFLECTION and not 0 <= position < length:
                        position = _mirrored(position, length, corners)
                    if padding != ZEROS:
                        position = min(max(position, np.float32(0)), np.float32(length - 1))
                    # no branches: whether a place lies inside is anybody's guess
                    at, to = axis * taps + tap, np.int64(position)
                    inside[at] = (to >= 0) & (to < length)
                    positions[at] = min(max(to, 0), length - 1)
                    distance = np.float32(abs(np.float32(offset - fraction)))
                    weights[at] = _cubic(distance) if taps == 4 else np.float32(_ONE - distance)
            width = 1
            index[number, 0], factors[number, 0], counts[number, 0] = 0, _ONE, True
            for axis in range(rank):
                # from the last to the first, so that each is read before its place is written
                for held in range(width - 1, -1, -1):
                    to, weight, counting = index[number, held] * lengths[axis], factors[number, held], counts[number, held]
                    for tap in range(taps):
                        at = axis * taps + tap
                        index[number, held * taps + tap] = to + positions[at]
                        factors[number, held * taps + tap] = np.float32(weight * weights[at])
                        counts[number, held * taps + tap] = counting & inside[at]
                width *= taps
            for sample in range(samples):
                whole &= counts[number, sample]
        for channel in range(channels):
            source = x[(image * channels + channel) * plane : (image * channels + channel + 1) * plane]
            target = out[(image * channels + channel) * places + place :]
            if taps == 1:
                for number in range(count):
                    value = source[np.uintp(index[number, 0])]
                    target[number] = value if counts[number, 0] else np.float32(0)
            elif samples == 4:  # linear, of two axes: what most models have
                for number in range(count):
                    target[number] = _of_four(source, flat_index, flat_factors, flat_counts, np.uintp(4 * number))
            elif whole:
                for number in range(count):
                    total = np.float32(0)
                    for sample in range(samples):
                        total += source[np.uintp(index[number, sample])] * factors[number, sample]
                    target[number] = total
            else:
                for number in range(count):
                    total = np.float32(0)
                    for sample in range(samples):
                        value = source[np.uintp(index[number, sample])]
                        total += (value if counts[number, sample] else np.float32(0)) * factors[number, sample]
                    target[number] = total
        start += count


@kernel("void(float32, float32, int64, int64, int64, float32[:, ::1], int64[:, ::1])")
def _in_bins(start: Any, extent: Any, bins: int, each: int, size: int, weights: Any, positions: Any) -> None:
    """Where the samples of a region lie along one axis, ``each`` in a bin: the elements before and after them, with their weights."""
    bin_size = np.float32(extent / np.float32(bins))
    zero = np.float32(0)
    for number in range(bins * each):
        within = np.float32(np.float32(np.float32(number % each) + np.float32(0.5)) * bin_size)
        at = np.float32(np.float32(start + np.float32(np.float32(number // each) * bin_size)) + np.float32(within / np.float32(each)))
        outside = at < np.float32(-1) or at > np.float32(size)
        at = min(max(at, zero), np.float32(size - 1))
        before = np.int64(at)
        after_weight = np.float32(at - np.float32(before))
        positions[0, number], positions[1, number] = before, min(before + 1, size - 1)
        weights[0, number] = zero if outside else np.float32(_ONE - after_weight)
        weights[1, number] = zero if outside else after_weight


@kernel(f"void({_FLOATS}, int64, int64, int64, {_INDICES}, {_PAIRS}, {_PAIRS}, int64, int64, int64, boolean, float32[::1], int64, int64)")
def align_regions(
    x: Any,
    channels: int,
    height: int,
    width: int,
    images: Any,
    starts: Any,
    sizes: Any,
    rows: int,
    columns: int,
    ratio: int,
    largest: bool,
    out: Any,
    first: int,
    last: int,
) -> None:
    """Means of bilinear samples in the bins of regions, or the largest of their weighted corners.

    Args:
        x: ``[images, channels, height, width]``, flat.
        channels: of an image.
        height: of an image.
        width: of an image.
        images: of each region, in range.
        starts: ``[regions, 2]``: left and top, finite.
        sizes: ``[regions, 2]``: width and height.
        rows: bins along the height.
        columns: bins along the width.
        ratio: samples of a bin along each axis; 0 for as many as it has elements.
        largest: whether the largest corner is wanted.
        out: ``[regions, channels, rows, columns]``, flat.
        first: the region to begin with.
        last: the region to end before.
    """
    plane, bins = height * width, rows * columns
    for region in range(first, last):
        down = ratio if ratio else max(0, math.ceil(np.float32(sizes[region, 1] / np.float32(rows))))
        right = ratio if ratio else max(0, math.ceil(np.float32(sizes[region, 0] / np.float32(columns))))
        samples = 4 * down * right
        row_weights, row_places = np.empty((2, rows * down), np.float32), np.empty((2, rows * down), np.int64)
        column_weights, column_places = np.empty((2, columns * right), np.float32), np.empty((2, columns * right), np.int64)
        if samples:
            _in_bins(starts[region, 1], sizes[region, 1], rows, down, height, row_weights, row_places)
            _in_bins(starts[region, 0], sizes[region, 0], columns, right, width, column_weights, column_places)
        index, factors = np.empty((samples, bins), np.int64), np.empty((samples, bins), np.float32)
        for sample in range(samples):
            corner, inside = sample % 4, sample // 4
            for cell in range(bins):
                row, column = cell // columns * down + inside // right, cell % columns * right + inside % right
                index[sample, cell] = row_places[corner // 2, row] * width + column_places[corner % 2, column]
                factors[sample, cell] = row_weights[corner // 2, row] * column_weights[corner % 2, column]
        count = np.float32(max(1, down * right))
        for channel in range(channels):
            at = (images[region] * channels + channel) * plane
            source = x[at : at + plane]
            target = out[(region * channels + channel) * bins : (region * channels + channel + 1) * bins]
            for cell in range(bins):
                target[cell] = np.float32(-np.inf) if largest and samples else np.float32(0)
            for sample in range(samples):
                if largest:
                    for cell in range(bins):
                        value, best = source[np.uintp(index[sample, cell])] * factors[sample, cell], target[cell]
                        target[cell] = best if best >= value or best != best else value
                else:
                    for cell in range(bins):
                        target[cell] += source[np.uintp(index[sample, cell])] * factors[sample, cell]
            if not largest:
                for cell in range(bins):
                    target[cell] /= count
