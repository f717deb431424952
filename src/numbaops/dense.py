"""Dense arrays of one value and matrices with one diagonal: the one place that chooses memory, NumPy or kernel, and threads.

Bits are moved, not values: an element is written as the unsigned integers of its storage width, so -0.0 and NaN payloads
survive and five widths serve every element type.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from numbaops.runtime import memory
from numbaops.runtime.settings import byte_setting
from numbaops.runtime.threads import split

Array = npt.NDArray[Any]

COPY_BELOW = 1 << 12
"""Bytes up to which ``out[...] = element`` beats a fill through a view (130 ns) also for the dtypes of ml_dtypes, which
NumPy writes one by one; its own dtypes it writes at memory speed."""

JIT_FROM = 1 << 21
"""Bytes from which a kernel beats ``ndarray.fill`` by enough (29 against 37 us at 2 MiB) to load Numba for it."""

_WORDS = {np.dtype(word).itemsize: np.dtype(word) for word in (np.uint8, np.uint16, np.uint32, np.uint64)}


@functools.cache
def stream_from() -> int:
    """Bytes from which fills of resident memory go past the caches; ``NUMBAOPS_STREAM_FROM`` overrides it.

    Twice the L3 cache, within 4 and 64 MiB: with 32 MiB of L3 the plain loop still wins at 32 MiB (41 against 29 GB/s), with
    300 MiB shared among many guests streaming wins from 64 MiB on (21 against 11 GB/s).

    Raises:
        InvalidValueError: the variable is not a number of bytes.
    """
    return byte_setting("NUMBAOPS_STREAM_FROM", _beyond_cache)


def _beyond_cache() -> int:
    try:
        cache = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (AttributeError, OSError, ValueError):
        cache = 0
    return min(64 << 20, max(4 << 20, 2 * cache)) if cache > 0 else 64 << 20


class Element:
    """One element as bits.

    Attributes:
        array: the element, of rank 0.
        word: the unsigned dtype that it is written as, of the dtype's alignment: complex elements are two words.
        low: its bits, or those of the first word.
        high: the second of two words, else the same as ``low``.
        zero: whether all bits are zero.
        builtin: whether the dtype is one of NumPy's own.
    """

    __slots__ = ("array", "builtin", "high", "low", "word", "zero")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.word: np.dtype[Any] = _WORDS[array.dtype.alignment]
        words = array.reshape(1).view(self.word)
        self.low, self.high = words[0], words[-1]
        self.zero = not (self.low or self.high)
        self.builtin = array.dtype.isbuiltin == 1

    @property
    def wide(self) -> bool:
        """Whether the element takes two words."""
        return self.array.dtype.itemsize > self.word.itemsize


def filled(shape: tuple[int, ...], element: Element, nbytes: int) -> Array:
    """A new array of ``nbytes`` with ``element`` everywhere."""
    if not memory.recycles(nbytes):
        if element.zero:
            return np.zeros(shape, element.array.dtype)
        out = np.empty(shape, element.array.dtype)
        if nbytes <= COPY_BELOW:
            out[...] = element.array
        else:
            fill(out, element, resident=False)
        return out
    out, resident, zero = memory.empty(shape, element.array.dtype, nbytes)
    if not (zero and element.zero):
        fill(out, element, resident)
    return out


def copied(array: Array) -> Array:
    """A copy, C-contiguous and writable; a large one in recycled memory."""
    if array.nbytes < memory.SMALLEST or array.dtype == object:
        return array.copy()
    new = memory.empty(array.shape, array.dtype, array.nbytes)[0]
    np.copyto(new, array)
    return new


def fill(out: Array, element: Element, resident: bool = True) -> None:
    """Write ``element`` everywhere into the C-contiguous ``out``; ``resident`` tells that its pages are mapped."""
    if out.nbytes <= COPY_BELOW or (element.builtin and out.nbytes < JIT_FROM):
        out[...] = element.array
        return
    if out.nbytes < JIT_FROM:
        out.view(element.word).fill(element.low)
        return
    words = out.reshape(-1).view(element.word)
    from numbaops import kernels

    streaming = out.nbytes >= stream_from() and resident
    low, high = element.low, element.high
    if element.wide:
        pairs = kernels.stream_pairs if streaming else kernels.fill_pairs
        split(lambda start, stop: pairs(words[start:stop], low, high), words.size, words.itemsize, 64 // words.itemsize)
    else:
        single = kernels.stream if streaming else kernels.fill
        split(lambda start, stop: single(words[start:stop], low), words.size, words.itemsize, 64 // words.itemsize)


@functools.cache
def zero_bits(dtype: np.dtype[Any]) -> Element:
    """The element of a dtype whose bits are all zero."""
    return Element(np.zeros((), dtype))


@functools.cache
def one(dtype: np.dtype[Any]) -> Element:
    """The one of a numeric dtype."""
    return Element(np.ones((), dtype))


def diagonal(rows: int, columns: int, k: int, element: Element, out: Array | None = None) -> Array:
    """A matrix with ``element`` at every ``[i, i + k]`` and zero bits elsewhere, new or written into the C-contiguous ``out``."""
    resident, zero = True, False
    nbytes = rows * columns * element.array.dtype.itemsize
    if out is None and not memory.recycles(nbytes):
        out, zero = np.zeros((rows, columns), element.array.dtype), True
    elif out is None:
        out, resident, zero = memory.empty((rows, columns), element.array.dtype, nbytes)
    inside = -rows < k < columns
    if zero or nbytes < JIT_FROM or not inside:
        if not zero:
            fill(out, zero_bits(out.dtype), resident)
        if inside:
            start = k if k >= 0 else -k * columns
            stop = (columns - k) * columns if columns - k < rows else rows * columns
            out.reshape(-1)[start : stop : columns + 1] = element.array
        return out
    from numbaops import kernels

    words = out.view(element.word)
    none = element.word.type(0)
    clear = kernels.stream if nbytes >= stream_from() and resident else kernels.fill

    def write_rows(start: int, stop: int) -> None:
        part = words[start:stop]
        clear(part.reshape(-1), none)
        if element.wide:
            kernels.write_diagonal_pairs(part, k + start, element.low, element.high)
        else:
            kernels.write_diagonal(part, k + start, element.low)

    split(write_rows, rows, words.strides[0])
    return out
