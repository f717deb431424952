"""Launching the kernels of ``numbaops.kernels.elements``: elements by index along an axis, and triangles of matrices.

Each function returns None where no kernel serves: few elements, strings, elements of 16 bytes, or no JIT.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from numbaops.ops.base import Array
from numbaops.runtime import memory
from numbaops.runtime.threads import split

KERNEL_FROM = 1 << 10
"""Elements from which a kernel is faster: fewer need no Numba."""

_WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def _kernels() -> Any:
    """The kernels, or None without the JIT."""
    from numbaops.kernels import elements

    return elements if elements.COMPILED else None


def _word(dtype: np.dtype[Any]) -> str | None:
    return None if dtype.hasobject else _WORDS.get(dtype.itemsize)


def _flat(array: Array, dtype: Any) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(dtype)


class _Along:
    """An axis of data, and indices of the same shape but for that axis: ``[outer, size or count, inner]``."""

    __slots__ = ("count", "fits", "inner", "outer", "size")

    def __init__(self, data: Array, indices: Array, axis: int) -> None:
        before, after = data.shape[:axis], data.shape[axis + 1 :]
        self.fits = indices.shape[:axis] == before and indices.shape[axis + 1 :] == after and indices.size >= KERNEL_FROM
        self.outer, self.inner = math.prod(before), math.prod(after)
        self.size, self.count = data.shape[axis], indices.shape[axis]


def _indices(indices: Array) -> Array:
    return np.ascontiguousarray(indices).reshape(-1).astype(np.int64, copy=False)


def gathered(data: Array, indices: Array, axis: int) -> Array | None:
    """For each index the element at that place of ``axis``.

    Raises:
        IndexError: an index is out of range.
    """
    word, along = _word(data.dtype), _Along(data, indices, axis)
    kernels = _kernels() if word and along.fits and indices.dtype.kind == "i" else None
    if kernels is None:
        return None
    nbytes = indices.size * data.itemsize
    out, wrong = memory.empty(indices.shape, data.dtype, nbytes)[0], np.zeros(1, np.int64)
    fixed = (_flat(data, word), along.size, along.inner, _indices(indices), along.count, _flat(out, word), wrong)
    gather = kernels.gather[word]
    split(lambda first, last: gather(*fixed, first, last), along.outer, along.count * along.inner * (16 + 2 * data.itemsize))
    if wrong[0]:
        raise IndexError
    return out


def scattered(out: Array, indices: Array, updates: Array, axis: int, operation: str | None) -> bool:
    """Write updates into the C-contiguous ``out``, at the places that the indices name, or combine them with what is there.

    Returns:
        Whether a kernel served; nothing is written otherwise.

    Raises:
        IndexError: an index is out of range.
    """
    along, word = _Along(out, indices, axis), _word(out.dtype) if operation is None else out.dtype.name
    kernels = _kernels() if word and along.fits and indices.dtype.kind == "i" else None
    if kernels is None or word not in (kernels.WORDS if operation is None else kernels.NUMBERS):
        return False
    wrong = np.zeros(1, np.int64)
    fixed = (_flat(out, word), along.size, along.inner, _indices(indices), along.count, _flat(updates, word))
    more: tuple[Any, ...] = (wrong,) if operation is None else (kernels.OPERATIONS.index(operation), wrong)
    function = kernels.scatter[word] if operation is None else kernels.scatter_combined[word]
    split(lambda first, last: function(*fixed, *more, first, last), along.outer, along.count * along.inner * (16 + 2 * out.itemsize))
    if wrong[0]:
        raise IndexError
    return True


def rows_combined(out: Array, rows: Array, updates: Array, operation: str) -> bool:
    """Combine rows of updates, ``[rows, inner]``, with those of the C-contiguous ``out``, whose numbers are in range.

    Returns:
        Whether a kernel served.
    """
    kernels = _kernels() if updates.size >= KERNEL_FROM else None
    if kernels is None or out.dtype.name not in kernels.NUMBERS:
        return False
    word = out.dtype.name
    kernels.combine_rows[word](_flat(out, word), rows, updates.size // rows.size, _flat(updates, word), kernels.OPERATIONS.index(operation))
    return True


def triangle(data: Array, offset: int, upper: bool) -> Array | None:
    """Matrices with zero bits below the diagonal ``offset``, or above it."""
    word = _word(data.dtype)
    kernels = _kernels() if word and data.size >= KERNEL_FROM else None
    if kernels is None:
        return None
    out = memory.empty(data.shape, data.dtype, data.nbytes)[0]
    rows, columns = data.shape[-2:]
    fixed = (_flat(data, word), rows, columns, offset, upper, _flat(out, word))
    split(lambda first, last: kernels.triangle[word](*fixed, first, last), data.size // columns, 2 * columns * data.itemsize)
    return out
