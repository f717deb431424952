"""Operators that read and write elements by index (of the family ``onnx/defs/tensor``).

https://onnx.ai/onnx/operators/onnx__Gather.html and the other operators in ``LEAVES``
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.dense import copied
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.ops._axes import normalized_axis, single_integer
from numbaops.ops._elements import gathered, rows_combined, scattered
from numbaops.ops._losses import negative_log_likelihood_loss, softmax_cross_entropy_loss
from numbaops.ops._precision import check_same_type, narrowed, wide_dtype
from numbaops.ops._sorting import top_k, top_k_by_attribute, unique
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf
from numbaops.runtime import memory
from numbaops.runtime.threads import split

_Function = Callable[..., Any]


_FEW = 64
"""Indices up to which indexing takes half of the time of ``take``."""


def gather(axis: int = 0) -> _Function:
    """Gather: the slices of ``axis`` that the indices name; a view for an index of rank 0."""

    def call(data: Array, indices: Array) -> Array:
        if indices.dtype.kind not in "iu":
            raise InvalidTypeError(f"indices has the element type {indices.dtype}; allowed: int32, int64", attribute="indices")
        try:
            if indices.ndim == 0:  # 0.1 us, where take needs 0.3
                return data[(*_lead(axis, data.ndim), indices.item(), ...)]
            if axis == 0 and indices.size <= _FEW:
                return data[indices]
            return _taken(data, indices, axis)
        except IndexError:  # which NumPy's error for axes is as well
            raise _out_of_bounds(indices, data.shape[normalized_axis(axis, data.ndim)]) from None

    return call


def _taken(data: Array, indices: Array, axis: int) -> Array:
    """The slices of ``axis``; many rows are copied by several threads."""
    nbytes = indices.size * data[:1].nbytes
    if axis != 0 or not memory.recycles(nbytes) or data.dtype == object or indices.dtype.kind != "i":
        return data.take(indices, axis)
    size, rows = len(data), indices.reshape(-1)
    if rows.min() < -size or rows.max() >= size:
        raise IndexError
    out = memory.empty((rows.size, *data.shape[1:]), data.dtype, nbytes)[0]
    # indices are in range: "wrap" counts from the back, and writes into the result itself
    split(lambda first, last: data.take(rows[first:last], 0, out[first:last], "wrap"), rows.size, 2 * nbytes // rows.size)
    return out.reshape(*indices.shape, *data.shape[1:])


def _lead(axis: int, rank: int) -> tuple[Any, ...]:
    return () if axis == 0 and rank else (slice(None),) * normalized_axis(axis, rank)


def _out_of_bounds(indices: Array, size: int) -> InvalidValueError:
    wrong = indices[(indices < -size) | (indices >= size)].reshape(-1)
    allowed = f"{-size} to {size - 1}" if size else "none, for the dimension has no elements"
    return InvalidValueError(f"indices holds {wrong[:1].tolist()}; allowed: {allowed}", attribute="indices")


def gather_elements(axis: int = 0) -> _Function:
    """GatherElements: for each index the element at that place of ``axis``, and at the index's own place of the other axes."""

    def call(data: Array, indices: Array) -> Array:
        place = normalized_axis(axis, data.ndim)
        places = _elements(data, indices, place)
        try:
            found = gathered(data, indices, place)
            return data[places] if found is None else found
        except IndexError:
            raise _out_of_bounds(indices, data.shape[place]) from None

    return call


def _elements(data: Array, indices: Array, axis: int) -> tuple[Any, ...]:
    """What to index ``data`` with to reach the elements that ``indices`` name along ``axis``."""
    fits = indices.ndim == data.ndim and all(
        one <= other for place, (one, other) in enumerate(zip(indices.shape, data.shape, strict=True)) if place != axis
    )
    if not fits:
        raise InvalidValueError(
            f"indices has the shape {list(indices.shape)}; allowed: not larger than the data's {list(data.shape)} but for axis {axis}",
            attribute="indices",
        )
    return tuple(indices if place == axis else _counting(indices.shape, place) for place in range(indices.ndim))


def _counting(shape: tuple[int, ...], axis: int) -> Array:
    """The indices along one axis, in a shape that broadcasts to ``shape``."""
    return np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - axis - 1))


def gather_nd(batch_dims: int = 0) -> _Function:
    """GatherND: the elements or slices that index tuples name, apart for each element of the batch dimensions."""

    def call(data: Array, indices: Array) -> Array:
        try:
            return data[(*_tuples(data, indices, batch_dims), ...)]
        except IndexError:
            raise _outside(data, indices, batch_dims) from None

    return call


def _tuples(data: Array, indices: Array, batch_dims: int = 0) -> tuple[Any, ...]:
    """What to index ``data`` with to reach what the tuples in the last dimension of ``indices`` name."""
    if not 0 <= batch_dims < min(indices.ndim, data.ndim) or indices.shape[:batch_dims] != data.shape[:batch_dims]:
        raise InvalidValueError(
            f"batch_dims is {batch_dims} for shapes {list(data.shape)} and {list(indices.shape)}; allowed: less than the ranks, "
            "of equal dimensions",
            attribute="batch_dims",
        )
    length = indices.shape[-1]
    if not 1 <= length <= data.ndim - batch_dims:
        raise InvalidValueError(
            f"indices has the shape {list(indices.shape)}; allowed: a last dimension of 1 to {data.ndim - batch_dims}", attribute="indices"
        )
    batch = (_counting(indices.shape[:-1], place) for place in range(batch_dims))
    return (*batch, *(indices[..., place] for place in range(length)))


def _outside(data: Array, indices: Array, batch_dims: int = 0) -> InvalidValueError:
    sizes = data.shape[batch_dims : batch_dims + indices.shape[-1]]
    return InvalidValueError(f"indices holds tuples outside of the shape {list(sizes)}", attribute="indices")


def scatter_elements(axis: int = 0, reduction: str = "none") -> _Function:
    """ScatterElements: a copy of the data with the updates at the places that the indices name, as in GatherElements."""
    combine = _combiner(reduction)

    def call(data: Array, indices: Array, updates: Array) -> Array:
        place = normalized_axis(axis, data.ndim)
        places = _elements(data, indices, place)
        if updates.shape != indices.shape:
            raise InvalidValueError(
                f"updates has the shape {list(updates.shape)}; allowed: that of indices, {list(indices.shape)}", attribute="updates"
            )
        try:
            return _scattered(data, places, updates, combine, lambda out, new, name: scattered(out, indices, new, place, name))
        except IndexError:
            raise _out_of_bounds(indices, data.shape[place]) from None

    return call


def scatter_nd(reduction: str = "none") -> _Function:
    """ScatterND: a copy of the data with the updates at the places that the index tuples name, as in GatherND."""
    combine = _combiner(reduction)

    def call(data: Array, indices: Array, updates: Array) -> Array:
        places = _tuples(data, indices)
        wanted = indices.shape[:-1] + data.shape[indices.shape[-1] :]
        if updates.shape != wanted:
            raise InvalidValueError(f"updates has the shape {list(updates.shape)}; allowed: {list(wanted)}", attribute="updates")

        def by_rows(out: Array, new: Array, operation: str | None) -> bool:
            if operation is None or not new.size or not out.flags.c_contiguous:
                return False
            sizes = data.shape[: len(places)]
            rows = np.ravel_multi_index([np.where(each < 0, each + size, each) for each, size in zip(places, sizes, strict=True)], sizes)
            return rows_combined(out, rows.reshape(-1), new, operation)

        try:
            return _scattered(data, places, updates, combine, by_rows)
        except (IndexError, ValueError):
            raise _outside(data, indices) from None

    return call


_REDUCTIONS = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
_NAMES: dict[np.ufunc, str] = {function: name for name, function in _REDUCTIONS.items() if function is not None}


def _combiner(reduction: str) -> np.ufunc | None:
    if reduction not in _REDUCTIONS:
        raise InvalidValueError(f"reduction is {reduction!r}; allowed: {', '.join(_REDUCTIONS)}", attribute="reduction")
    return _REDUCTIONS[reduction]


def _scattered(
    data: Array,
    places: tuple[Any, ...],
    updates: Array,
    combine: np.ufunc | None,
    by_kernel: Callable[[Array, Array, str | None], bool],
) -> Array:
    """A copy with the updates, written by a kernel if one serves."""
    check_same_type(data, updates)
    if combine is None:
        out = copied(data)
        if not by_kernel(out, updates, None):
            out[places] = updates
        return out
    # one rounding for all updates of an element
    wide = wide_dtype(data.dtype)
    out = data.astype(wide, order="C") if wide != data.dtype else copied(data)
    try:
        with np.errstate(all="ignore"):
            new = narrowed(updates, out.dtype)
            if not by_kernel(out, new, _NAMES[combine]):
                combine.at(out, places, new)
            return narrowed(out, data.dtype)
    except TypeError:
        raise InvalidTypeError(f"elements of {data.dtype} cannot be reduced by {combine.__name__}", attribute="reduction") from None


def tensor_scatter(mode: str = "linear", axis: int = -2) -> _Function:
    """TensorScatter: a copy of the cache with the update written from each sample's index on."""
    if mode not in ("linear", "circular"):
        raise InvalidValueError(f"mode is {mode!r}; allowed: linear, circular", attribute="mode")

    def call(cache: Array, update: Array, write_indices: Array | None = None) -> Array:
        place = normalized_axis(axis, cache.ndim)
        size = cache.shape[place]
        rest = (*cache.shape[:place], *cache.shape[place + 1 :])
        if place == 0 or update.ndim != cache.ndim or (*update.shape[:place], *update.shape[place + 1 :]) != rest:
            raise InvalidValueError(
                f"axis is {axis} for a cache of shape {list(cache.shape)} and an update of shape {list(update.shape)}; allowed: shapes "
                "that differ in this axis only, and not in the first",
                attribute="axis",
            )
        batch, length = cache.shape[0], update.shape[place]
        starts = np.zeros(batch, np.int64) if write_indices is None else write_indices
        if starts.shape != (batch,) or length > size:
            raise InvalidValueError(
                f"write_indices has the shape {list(starts.shape)} and the update {length} steps; allowed: [{batch}] and at most {size}"
            )
        positions = starts[:, None] + np.arange(length)
        if mode == "circular":
            positions %= max(size, 1)
        elif positions.size and (starts.min() < 0 or positions.max() >= size):
            raise InvalidValueError(
                f"write_indices is {starts.tolist()} for an update of {length} steps; allowed: what ends within {size}",
                attribute="write_indices",
            )
        out = cache.copy()
        np.moveaxis(out, place, 1)[np.arange(batch)[:, None], positions] = np.moveaxis(update, place, 1)
        return out

    return call


def one_hot(axis: int = -1) -> _Function:
    """OneHot: ``off`` everywhere but where an index says ``on`` along a new axis; negative indices count from the back."""
    return lambda indices, depth, values: _one_hot(indices, depth, values, axis, wrap=True)


def one_hot_from_zero(axis: int = -1) -> _Function:
    """OneHot-9, in which negative indices are out of range."""
    return lambda indices, depth, values: _one_hot(indices, depth, values, axis, wrap=False)


def _one_hot(indices: Array, depth: Array, values: Array, axis: int, wrap: bool) -> Array:
    classes = single_integer(depth if depth.dtype.kind in "iu" else depth.astype(np.int64), "depth")
    if classes < 0:
        raise InvalidValueError(f"depth is {classes}; allowed: from 0 on", attribute="depth")
    if values.shape != (2,):
        raise InvalidValueError(f"values has the shape {list(values.shape)}; allowed: [2], off and on", attribute="values")
    place = normalized_axis(axis, indices.ndim + 1)
    out = np.empty((*indices.shape[:place], classes, *indices.shape[place:]), values.dtype)
    out[...] = values[0]
    if indices.dtype == np.uint64:  # what int64 lacks is out of range, and must not become negative
        indices = np.minimum(indices, np.uint64(classes))
    outer, inner = math.prod(indices.shape[:place]), math.prod(indices.shape[place:])
    with np.errstate(invalid="ignore"):
        hot = indices.astype(np.int64).reshape(outer, inner)
    if wrap:
        hot[hot < 0] += classes
    # where the flat output is hot: class by class in each outer element, inner element by inner element
    places = np.arange(outer)[:, None] * (classes * inner) + hot * inner + np.arange(inner)
    out.reshape(-1)[places[(hot >= 0) & (hot < classes)]] = values[1]
    return out


def non_zero(data: Array) -> Array:
    """NonZero: the indices of all elements that are not zero, a row for each dimension; of a scalar there are no rows."""
    if data.ndim == 0:
        return np.empty((0, int(bool(data))), np.int64)
    return np.array(data.nonzero(), np.int64)


def compress(axis: int | None = None) -> _Function:
    """Compress: the slices of ``axis``, or the elements, for which the condition holds; it may be shorter."""

    def call(data: Array, condition: Array) -> Array:
        size = data.size if axis is None else data.shape[normalized_axis(axis, data.ndim)]
        if condition.ndim != 1 or condition[size:].any():
            raise InvalidValueError(f"condition has the shape {list(condition.shape)}; allowed: [{size}] or less", attribute="condition")
        return data.compress(condition[:size], axis)

    return call


LEAVES: tuple[Leaf, ...] = (
    Leaf("Gather", (1, 11, 13), gather, aliases=True, bind=True),
    Leaf("GatherElements", (11, 13), gather_elements, bind=True),
    Leaf("GatherND", (11, 12, 13), gather_nd, aliases=True, bind=True),
    Leaf("Scatter", (9, 11), scatter_elements, bind=True),
    Leaf("ScatterElements", (11, 13, 16, 18), scatter_elements, bind=True),
    Leaf("ScatterND", (11, 13, 16, 18), scatter_nd, bind=True),
    Leaf("TensorScatter", (24,), tensor_scatter, bind=True),
    Leaf("OneHot", (9,), one_hot_from_zero, bind=True),
    Leaf("OneHot", (11, 28), one_hot, bind=True),
    Leaf("NonZero", (9, 13), non_zero),
    Leaf("Compress", (9, 11, 28), compress, bind=True),
    Leaf("Unique", (11, 28), unique, bind=True),
    Leaf("TopK", (1,), top_k_by_attribute, bind=True),
    Leaf("TopK", (10, 11, 24), top_k, bind=True),
    Leaf("NegativeLogLikelihoodLoss", (12, 13, 22), negative_log_likelihood_loss, bind=True),
    Leaf("SoftmaxCrossEntropyLoss", (12, 13), softmax_cross_entropy_loss, bind=True),
)
