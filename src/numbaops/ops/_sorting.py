"""Operators that sort: TopK and Unique.

https://onnx.ai/onnx/operators/onnx__TopK.html, onnx__Unique.html
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._axes import normalized_axis, single_integer
from numbaops.ops._precision import widened
from numbaops.ops.base import Array
from numbaops.runtime.threads import split

_FEW = 8
"""How many times as many elements as are wanted make it worth not to sort them all."""

KERNEL_FROM = 1 << 9
"""Elements from which the kernel is faster: fewer need no Numba."""

_MOST = np.int64((1 << 63) - 1)
_WORK = 32
"""Bytes that an element counts for when threads share rows: looking at it takes as long as moving them."""


def top_k(axis: int = -1, largest: int = 1, sorted: int = 1) -> Callable[..., tuple[Array, Array]]:
    """TopK: the largest or smallest elements along ``axis`` and their indices, in order; of equal ones the first comes first.

    NaN counts as larger than all numbers, as in NumPy. The order is kept where ``sorted=0`` would let it be any.
    """
    return lambda data, k: _top(data, single_integer(k, "K"), axis, largest)


def top_k_by_attribute(k: int, axis: int = -1) -> Callable[..., tuple[Array, Array]]:
    """TopK-1, whose number of elements is an attribute."""
    return lambda data: _top(data, k, axis, 1)


def _top(data: Array, k: int, axis: int, largest: int) -> tuple[Array, Array]:
    place = normalized_axis(axis, data.ndim)
    size = data.shape[place]
    if not 0 <= k <= size:
        raise InvalidValueError(f"K is {k}; allowed: 0 to {size}, the size of axis {place}", attribute="K")
    keys = _sortable(data)
    if 2 * k <= size and k and data.size >= KERNEL_FROM:
        rows = np.moveaxis(keys, place, -1) if place < data.ndim - 1 else keys
        indices = _by_kernel(rows, k, bool(largest))
        if indices is not None and rows is keys:
            starts = np.arange(data.size // size)[:, None] * size
            values = data.reshape(-1).take((indices.reshape(-1, k) + starts).reshape(indices.shape))
            return values, indices
        if indices is not None:
            indices = np.moveaxis(indices, -1, place)
            return np.take_along_axis(data, indices, place), indices
    if _FEW * k < size and not (keys.dtype.kind == "f" and np.isnan(keys).any()):
        indices = _few(np.moveaxis(keys, place, -1), k, bool(largest))
        indices = np.moveaxis(indices, -1, place)
        return np.take_along_axis(data, indices, place), indices
    if largest:
        # sorted backward, so that the first of equal elements is the last one, and read backward
        backward = (slice(None),) * place + (slice(None, None, -1),)
        order = size - 1 - keys[backward].argsort(place, kind="stable")[backward]
    else:
        order = keys.argsort(place, kind="stable")
    indices = order[(slice(None),) * place + (slice(k),)].astype(np.int64, copy=False)
    return np.take_along_axis(data, indices, place), indices


def _by_kernel(keys: Array, k: int, largest: bool) -> Array | None:
    """Indices of the ``k`` (1 or more) largest or smallest along the last axis, in order; None if no kernel serves."""
    from numbaops.kernels import ranking

    if not ranking.COMPILED or keys.dtype.kind not in "iuf":
        return None
    if keys.dtype == np.float64:  # bits in the same order; what is -0 is equal to 0, and all NaN are
        bits = np.where(np.isnan(keys), np.nan, keys + 0.0).view(np.int64)
        keys = np.where(bits < 0, bits ^ _MOST, bits)
    elif keys.dtype == np.uint64:
        keys = (keys ^ np.uint64(1 << 63)).view(np.int64)
    keys = widened(keys)
    kind = np.dtype(np.float32 if keys.dtype.kind == "f" else np.int64)
    size = keys.shape[-1]
    rows = np.ascontiguousarray(keys, kind).reshape(-1)
    indices = np.empty((*keys.shape[:-1], k), np.int64)
    fixed = (rows, size, k, largest, indices.reshape(-1))
    top = ranking.top[kind.name]
    split(lambda first, last: top(*fixed, first, last), rows.size // size, _WORK * size)
    return indices


def _few(keys: Array, k: int, largest: bool) -> Array:
    """Indices of the ``k`` largest or smallest of many along the last axis, in order, without sorting the others; there is no NaN."""
    size = keys.shape[-1]
    rows = keys.reshape(-1, size)
    if not k or not len(rows):
        return np.zeros((*keys.shape[:-1], k), np.int64)
    last = np.partition(rows, size - k if largest else k - 1, 1)[:, size - k if largest else k - 1, None]
    better = rows > last if largest else rows < last
    equal = rows == last
    # of those equal to the last one, the first ones
    equal &= equal.cumsum(1) <= k - better.sum(1, keepdims=True)
    indices = (better | equal).nonzero()[1].reshape(len(rows), k)
    found = np.take_along_axis(rows, indices, 1)
    order = found[:, ::-1].argsort(1, kind="stable")[:, ::-1] if largest else found.argsort(1, kind="stable")
    order = k - 1 - order if largest else order
    return np.take_along_axis(indices, order, 1).reshape(*keys.shape[:-1], k)


def unique(axis: int | None = None, sorted: int = 1) -> Callable[..., tuple[Array, ...]]:
    """Unique: the different elements, or slices along ``axis``, with the index of the first, their numbers, and how many there are.

    They are in ascending order, or in that of their first occurrence. All NaN are one value, as in NumPy.
    """

    def call(data: Array) -> tuple[Array, ...]:
        first, inverse, counts = _groups(data.reshape(-1) if axis is None else _slice_codes(data, normalized_axis(axis, data.ndim)))
        if not sorted:
            order = first.argsort()
            rank = np.empty_like(order)
            rank[order] = np.arange(order.size)
            first, inverse, counts = first[order], rank[inverse], counts[order]
        values = data.reshape(-1).take(first) if axis is None else data.take(first, axis)
        return values, *(each.astype(np.int64, copy=False) for each in (first, inverse, counts))

    return call


def _groups(elements: Array) -> tuple[Array, Array, Array]:
    """Of a vector's different elements in order: the index of the first one, the number of each, how often each occurs."""
    _, first, inverse, counts = np.unique(_sortable(elements), return_index=True, return_inverse=True, return_counts=True)
    return first, inverse.reshape(-1), counts


def _slice_codes(data: Array, axis: int) -> Array:
    """A number for each slice along ``axis``, in the order of the slices."""
    count = data.shape[axis]
    _, codes, _ = _groups(np.moveaxis(data, axis, 0).reshape(-1))
    rows = codes.reshape(count, data.size // count if count else 0)
    if rows.shape[1] == 0:
        return np.zeros(count, np.int64)
    order = np.lexsort(rows.T[::-1])
    new = (rows[order[1:]] != rows[order[:-1]]).any(1)
    numbers = np.empty(count, np.int64)
    numbers[order] = np.concatenate(([0], new.cumsum()))
    return numbers


def _sortable(data: Array) -> Array:
    """The elements in a type that NumPy sorts by itself; those of ml_dtypes are exact in float32."""
    return data.astype(np.float32) if data.dtype.kind == "V" else data
