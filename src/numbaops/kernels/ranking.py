"""Kernels that choose by rank: the largest or smallest elements of rows, and boxes by falling score that overlap with no better one.

Both keep a heap: of the elements that are the best so far, with the worst at its root; of the boxes that are left, with the best there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from numbaops.runtime.jit import kernel

COMPILED = not numba.config.DISABLE_JIT
"""Whether kernels are machine code; otherwise NumPy serves."""

_BLOCK = 32
"""Elements that are compared with the worst of the best ones before one of them is looked at."""

_LOWEST = -(1 << 63)
_INTS = "int64[::1]"


def _make_key(dtype: str) -> Callable[[Any], Any]:
    """``key(element)``: an int64 of the same order; NaN is larger than all numbers, zeros of both signs are equal."""
    if dtype == "int64":

        @kernel("int64(int64)", key=(dtype,))
        def key(element: Any) -> Any:
            return element

    else:

        @kernel("int64(float32)", key=(dtype,))
        def key(element: Any) -> Any:
            if element != element:
                return np.int64(1 << 40)
            bits = np.int64(np.float32(element).view(np.int32))
            return bits if bits >= 0 else -(bits & 0x7FFFFFFF)

    return key


_key = {dtype: _make_key(dtype) for dtype in ("float32", "int64")}


@kernel(f"void({_INTS}, {_INTS}, int64, int64, int64)")
def _sink(keys: Any, items: Any, at: int, size: int, place: int) -> None:
    """Move an entry of a heap down to where it belongs: the smallest key, and of equal ones the largest item, is at the root."""
    key, item = keys[at + place], items[at + place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size:
            less = keys[at + other] < keys[at + child]
            if less or (keys[at + other] == keys[at + child] and items[at + other] > items[at + child]):
                child = other
        if not (keys[at + child] < key or (keys[at + child] == key and items[at + child] > item)):
            break
        keys[at + place], items[at + place] = keys[at + child], items[at + child]
        place = child
    keys[at + place], items[at + place] = key, item


def make_top(dtype: str) -> Callable[..., None]:
    """The largest or smallest elements of rows.

    Returns:
        ``top(data, size, k, largest, indices, first, last)``: writes to ``indices``, ``[rows, k]``, flat, the numbers of the ``k`` (1 or
        more) largest elements of the rows from ``first`` to ``last`` of ``data``, ``[rows, size]``, flat, in order; of equal elements the
        first comes first. NaN is larger than all numbers.
    """
    key = _key[dtype]

    @kernel(f"void(Array({dtype}, 1, 'C', True, aligned=True), int64, int64, boolean, {_INTS}, int64, int64)", key=(dtype,))
    def top(data: Any, size: int, k: int, largest: bool, indices: Any, first: int, last: int) -> None:
        keys = np.empty(k, np.int64)
        flip = np.int64(0) if largest else np.int64(-1)
        for row in range(first, last):
            x = data[row * size : (row + 1) * size]
            best = indices[row * k : (row + 1) * k]
            for number in range(k):
                keys[number], best[number] = key(x[number]) ^ flip, number
            for place in range(k // 2 - 1, -1, -1):
                _sink(keys, best, 0, k, place)
            start = k
            while start < size:
                worst = x[best[0]]
                stop = min(start + _BLOCK, size)
                if stop - start == _BLOCK:
                    found = 0
                    if largest:
                        for number in range(_BLOCK):
                            found |= not x[start + number] <= worst
                    else:
                        for number in range(_BLOCK):
                            found |= not x[start + number] >= worst
                    if not found:
                        start = stop
                        continue
                for number in range(start, stop):
                    if (largest and x[number] <= worst) or (not largest and x[number] >= worst):
                        continue
                    rank = key(x[number]) ^ flip
                    if rank > keys[0]:
                        keys[0], best[0] = rank, number
                        _sink(keys, best, 0, k, 0)
                        worst = x[best[0]]
                start = stop
            for left in range(k - 1, 0, -1):  # the worst one goes to the end
                keys[0], keys[left] = keys[left], keys[0]
                best[0], best[left] = best[left], best[0]
                _sink(keys, best, 0, left, 0)

    return top


top = {dtype: make_top(dtype) for dtype in ("float32", "int64")}

_FLOATS = "Array(float32, 1, 'C', True, aligned=True)"
_key_of_score = _key["float32"]


@kernel(f"void({_FLOATS}, {_FLOATS}, int64, int64, float64, boolean, float64, boolean, int64, {_INTS}, {_INTS}, int64, int64)")
def keep_boxes(
    boxes: Any,
    scores: Any,
    count: int,
    classes: int,
    overlap: float,
    limited: bool,
    least: float,
    centred: bool,
    most: int,
    kept: Any,
    numbers: Any,
    first: int,
    last: int,
) -> None:
    """Boxes by falling score of which none overlaps with a better one.

    Args:
        boxes: ``[batches, count, 4]``, flat.
        scores: ``[batches, classes, count]``, flat; NaN is less than all numbers.
        count: boxes of a batch.
        classes: classes of a batch.
        overlap: the part of their union that two boxes may share.
        limited: whether scores must be above ``least``.
        least: what they must be above then.
        centred: whether a box is a centre, a width and a height, and not two corners.
        most: boxes that are kept of each class, at most; 1 or more, and not above ``count``.
        kept: ``[batches * classes, most]``, flat: their numbers.
        numbers: how many there are of each class.
        first: the class to begin with, counted through all batches.
        last: the class to end before.
    """
    keys, items = np.empty(count, np.int64), np.empty(count, np.int64)
    sides = np.empty((5, most), np.float32)
    zero = np.float32(0)
    for unit in range(first, last):
        size = 0
        for number in range(count):
            score = scores[unit * count + number]
            if not limited or score > least:
                rank = _key_of_score(score)
                # the root of a heap is the smallest key and the largest item
                keys[size], items[size] = -rank if score == score else np.int64(1 << 40), -number
                size += 1
        for place in range(size // 2 - 1, -1, -1):
            _sink(keys, items, 0, size, place)
        total, compared = 0, 0
        while size and total < most:
            number = -items[0]
            size -= 1
            keys[0], items[0] = keys[size], items[size]
            if size:
                _sink(keys, items, 0, size, 0)
            at = (unit // classes * count + number) * 4
            y1, x1, y2, x2 = boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3]
            if centred:
                half_y, half_x = np.float32(y2 * np.float32(0.5)), np.float32(x2 * np.float32(0.5))
                y1, x1, y2, x2 = y1 - half_y, x1 - half_x, y1 + half_y, x1 + half_x
            else:
                y1, y2 = (y2, y1) if y2 < y1 else (y1, y2)
                x1, x2 = (x2, x1) if x2 < x1 else (x1, x2)
            area = (y2 - y1) * (x2 - x1)
            number_is_compared = y1 == y1 and y2 == y2 and x1 == x1 and x2 == x2  # one with NaN overlaps with none
            good = True
            if number_is_compared:
                for other in range(compared):
                    low = sides[0, other] if sides[0, other] > y1 else y1
                    high = sides[2, other] if sides[2, other] < y2 else y2
                    height = high - low
                    if height <= zero:
                        continue
                    low = sides[1, other] if sides[1, other] > x1 else x1
                    high = sides[3, other] if sides[3, other] < x2 else x2
                    width = high - low
                    if width <= zero:
                        continue
                    shared = height * width
                    if shared > zero and np.divide(shared, sides[4, other] + area - shared) > overlap:
                        good = False
                        break
            if good:
                kept[unit * most + total] = number
                total += 1
                if number_is_compared:
                    sides[0, compared], sides[1, compared], sides[2, compared], sides[3, compared] = y1, x1, y2, x2
                    sides[4, compared] = area
                    compared += 1
        numbers[unit] = total


@kernel(f"void({_INTS}, {_INTS}, int64, int64, int64[:, ::1])")
def list_boxes(kept: Any, numbers: Any, most: int, classes: int, out: Any) -> None:
    """Write batch, class and number of each kept box, as :func:`keep_boxes` leaves them."""
    row = 0
    for unit in range(numbers.size):
        for place in range(numbers[unit]):
            out[row, 0], out[row, 1], out[row, 2] = unit // classes, unit % classes, kept[unit * most + place]
            row += 1
