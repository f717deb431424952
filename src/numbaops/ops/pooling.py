"""Pools: MaxPool, AveragePool, LpPool, their global forms, MaxUnpool and the pools over regions (of the family ``onnx/defs/nn``).

https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html, onnx__LpPool.html, onnx__MaxUnpool.html

``onnx.reference`` loops over windows in Python, and is wrong on ``Indices``, on int8, on partial windows of ``ceil_mode``, on ``auto_pad``
with strides or dilations, and on the rank of the global pools.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._precision import narrowed, widened
from numbaops.ops._regions import max_roi_pool, roi_align
from numbaops.ops._windows import Axis, both_pads, fold_windows, positive, spatial_shape, windows
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf
from numbaops.runtime import memory
from numbaops.runtime.threads import split

if TYPE_CHECKING:
    from numbaops.kernels.window_geometry import Layout

JIT_FROM = 1 << 12
"""Elements below which NumPy serves, so that a small array does not load Numba."""

SHORT = 4
"""Elements of a row below which NumPy serves, unless windows reach along it."""

# What kernels take, with names: dtype.name takes 2 us.
_FLOATS = {np.dtype(name): name for name in ("float32", "float64")}
_NUMBERS = _FLOATS | {np.dtype(name): name for name in ("int8", "uint8")}


# Kernels where they serve


def _compiled(x: Array, types: dict[np.dtype[Any], str]) -> Any:
    """The module of the kernels if they serve for this array; else None."""
    if x.size < JIT_FROM or x.dtype not in types:
        return None
    from numbaops.kernels import windows as kernels

    return kernels if kernels.COMPILED else None


def _flat(x: Array) -> Array:
    """The elements in order, read-only: constants of a model are, and one kernel serves all."""
    whole = x if x.flags.c_contiguous and x.flags.aligned else np.array(x, order="C", subok=False)
    view = whole.reshape(-1)
    view.setflags(write=False)
    return view


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return memory.empty(shape, dtype, math.prod(shape) * dtype.itemsize)[0]


def _axes(x: Array, kernel_shape: Sequence[int], attributes: dict[str, Any]) -> tuple[Axis, ...]:
    """The windows along each spatial axis."""
    settings = tuple((name, tuple(value) if isinstance(value, (list, np.ndarray)) else value) for name, value in attributes.items())
    return _known_axes(spatial_shape(x), tuple(kernel_shape), settings)


@functools.lru_cache(maxsize=512)
def _known_axes(spatial: tuple[int, ...], kernel_shape: tuple[int, ...], settings: tuple[tuple[str, Any], ...]) -> tuple[Axis, ...]:
    return windows(spatial, kernel_shape, **dict(settings))


def _simplified(axes: tuple[Axis, ...], column_major: bool = False) -> list[Axis]:
    """The same windows along fewer axes, if places need not be counted along each of them."""
    kept = [axis for axis in axes if axis.size != 1 or not axis.plain]
    while kept and kept[0].plain and not column_major:
        del kept[0]
    while len(kept) > 1 and kept[-1].plain and kept[-2].stride == 1 and not column_major:
        last, axis = kept.pop(), kept.pop()
        each = last.size
        kept.append(Axis(axis.size * each, axis.kernel, axis.count * each, 1, axis.dilation * each, axis.begin * each, axis.end * each))
    return kept


@functools.lru_cache(maxsize=128)
def _layout(axes: tuple[Axis, ...], dtype: str, column_major: bool = False) -> Layout | None:
    """What the kernels have to know of the windows; None where NumPy is to serve."""
    from numbaops.kernels.window_geometry import Extent, window_layout

    kept = _simplified(axes, column_major)
    short = kept and kept[-1].plain and kept[-1].size < SHORT
    if not kept or len(kept) > 3 or short or 0 in [axis.count for axis in kept]:
        return None
    extents = [Extent(axis.size, axis.count, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in kept]
    return window_layout([Extent(1, 1, 1, 1, 1, 0)] * (3 - len(kept)) + extents, dtype, column_major=column_major)


@functools.lru_cache(maxsize=128)
def _divisors(axes: tuple[Axis, ...], dtype: str, padded: bool | None) -> tuple[Array, Array]:
    """The divisors of columns and of rows of windows: how many of their cells count; ones if ``padded`` is None."""
    *outer, last = (np.ones(axis.count) if padded is None else axis.cells_within(padded=padded) for axis in _simplified(axes))
    widths = np.append(last, np.ones(-len(last) % 64)).astype(dtype)  # of whole vectors
    return widths, functools.reduce(np.multiply.outer, outer, np.ones(1)).reshape(-1).astype(dtype)


def _folded(x: Array, axes: tuple[Axis, ...], operation: str, padded: bool | None = None) -> Array | None:
    """``"max"`` or ``"sum"`` over each window, the latter divided, by a kernel; None where NumPy is to serve."""
    kernels = _compiled(x, _NUMBERS if operation == "max" else _FLOATS)
    layout = _layout(axes, _NUMBERS[x.dtype]) if kernels else None
    if layout is None:
        return None
    name = _NUMBERS[x.dtype]
    result = _empty((*x.shape[:2], *(axis.count for axis in axes)), x.dtype)
    widths, heights = _divisors(axes, name, padded) if operation == "sum" else (result.reshape(-1),) * 2
    fold, flat, out = kernels.fold_windows(operation, name), _flat(x), result.reshape(-1)

    def work(start: int, stop: int) -> None:
        scratch = _empty((layout.scratch,), x.dtype)
        fold(flat, out, scratch, widths, heights, layout.table, layout.numbers, start, stop)

    split(work, len(out) // layout.windows, layout.fold_bytes)
    return result


def _reduced(x: Array, operation: str) -> Array | None:
    """``"max"`` or the mean over all spatial axes, which stay as 1, by a kernel; None where NumPy is to serve."""
    kernels = _compiled(x, _NUMBERS if operation == "max" else _FLOATS)
    if not kernels:
        return None
    size = math.prod(x.shape[2:])
    result = _empty((*x.shape[:2], *(1,) * (x.ndim - 2)), x.dtype)
    reduce, flat, out = kernels.reduce_runs(operation, _NUMBERS[x.dtype]), _flat(x), result.reshape(-1)
    divisor = x.dtype.type(size if operation == "sum" else 1)
    split(lambda start, stop: reduce(flat, out, size, divisor, start, stop), len(out), size * x.itemsize // 2)  # twice as fast as a copy
    return result


def _one_window(axes: Sequence[Axis]) -> bool:
    """Whether there is one window only, which has all elements."""
    return all(axis.count == axis.dilation == 1 and axis.kernel == axis.size and not axis.begin for axis in axes)


# Pools


@np.errstate(all="ignore")
def max_pool(
    x: Array, *, kernel_shape: Sequence[int], storage_order: int = 0, outputs: int = 1, **attributes: Any
) -> Array | tuple[Array, Array]:
    """MaxPool: the largest element of each window; NaN if there is one.

    Returns:
        The largest elements and, for two ``outputs``, where the first of them are in ``x``, counted through all of ``x``, the spatial
        axes column-major if ``storage_order`` is 1. A window of pads alone gives the type's lowest value, and -1.
    """
    axes = _axes(x, kernel_shape, attributes)
    wide = widened(x)
    if outputs == 1:
        result = _reduced(wide, "max") if _one_window(axes) else _folded(wide, axes, "max")
        return narrowed(fold_windows(wide, axes, np.maximum, _lowest(x)) if result is None else result, x.dtype)
    both = _placed(wide, axes, storage_order)
    largest, places = both or _max_and_places(wide, axes, "F" if storage_order else "C")
    return narrowed(largest, x.dtype), places


def _lowest(x: Array) -> Any:
    return np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -math.inf


def _placed(x: Array, axes: tuple[Axis, ...], storage_order: int) -> tuple[Array, Array] | None:
    """The largest elements and where they are, by a kernel; None where NumPy is to serve."""
    kernels = _compiled(x, _NUMBERS)
    layout = _layout(axes, _NUMBERS[x.dtype], bool(storage_order)) if kernels else None
    if layout is None or math.prod(x.shape[2:]) >= 1 << 31:
        return None
    shape = (*x.shape[:2], *(axis.count for axis in axes))
    largest, places = _empty(shape, x.dtype), _empty(shape, np.dtype(np.int64))
    place, flat, out, where = kernels.place_largest(_NUMBERS[x.dtype]), _flat(x), largest.reshape(-1), places.reshape(-1)

    def work(start: int, stop: int) -> None:
        place(flat, out, where, layout.table, layout.met, layout.numbers, start, stop)

    split(work, len(out) // layout.windows, layout.place_bytes)
    return largest, places


def _max_and_places(x: Array, axes: Sequence[Axis], order: Any) -> tuple[Array, Array]:
    """The same by NumPy."""
    spatial = x.shape[2:]
    size = math.prod(spatial)
    largest = x
    places = np.broadcast_to(np.arange(size).reshape(spatial, order=order), x.shape)
    # The last axis first: of equal elements the first in row-major order is to win.
    for position in reversed(range(2, x.ndim)):
        axis = axes[position - 2]
        candidates, their_places = largest, places
        shape = (*x.shape[:position], *(each.count for each in axes[position - 2 :]))
        largest = np.full(shape, _lowest(x), candidates.dtype)
        places = np.full(shape, -1, np.int64)
        lead = (slice(None),) * position
        for _, where, elements in axis.cells():
            best, new = largest[(*lead, where)], candidates[(*lead, elements)]
            best_place, new_place = places[(*lead, where)], their_places[(*lead, elements)]
            # not (new <= best), for NaN wins, and the first one stays
            wins = (~(new <= best) & (best == best)) | (best_place < 0)
            np.copyto(best, new, where=wins)
            np.copyto(best_place, new_place, where=wins)
    image = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * len(spatial)) * size
    return largest, np.where(places < 0, -1, places + image)


@np.errstate(all="ignore")
def average_pool(x: Array, *, kernel_shape: Sequence[int], count_include_pad: int = 0, **attributes: Any) -> Array:
    """AveragePool: the mean of each window's elements.

    Pads count as zeros with ``count_include_pad``, and not at all without; what ``ceil_mode`` adds beyond the pads never counts.
    """
    axes = _axes(x, kernel_shape, attributes)
    wide, padded = widened(x), bool(count_include_pad)
    result = _reduced(wide, "sum") if _one_window(axes) else _folded(wide, axes, "sum", padded)
    return narrowed(_means(wide, axes, padded) if result is None else result, x.dtype)


def _means(x: Array, axes: Sequence[Axis], padded: bool) -> Array:
    """The means by NumPy."""
    total = fold_windows(x, axes, np.add, 0)
    counts = functools.reduce(np.multiply.outer, [axis.cells_within(padded=padded) for axis in axes])
    total /= counts.astype(total.dtype)
    return total


@np.errstate(all="ignore")
def lp_pool(x: Array, *, p: float, kernel_shape: Sequence[int] | None = None, **attributes: Any) -> Array:
    """LpPool: the p-norm of each window's elements; pads count as zeros."""
    if kernel_shape is None:
        raise InvalidValueError("kernel_shape is missing; the sizes of the windows are not known without", attribute="kernel_shape")
    axes = _axes(x, kernel_shape, attributes)
    powers = _powers(widened(x), p)
    total = _folded(powers, axes, "sum")
    return narrowed(_root(fold_windows(powers, axes, np.add, 0) if total is None else total, p), x.dtype)


def _powers(x: Array, p: float) -> Array:
    if p <= 0:
        raise InvalidValueError(f"p is {p}; allowed: numbers above 0", attribute="p")
    return np.square(x) if p == 2 else np.abs(x) if p == 1 else np.abs(x) ** x.dtype.type(p)


def _root(total: Array, p: float) -> Array:
    return np.sqrt(total) if p == 2 else total if p == 1 else total ** total.dtype.type(1 / p)


def _over_space(x: Array) -> tuple[int, ...]:
    if x.ndim < 2:
        raise InvalidValueError(f"X has shape {list(x.shape)}; allowed: [N, C, D1, ...], of rank 2 or more", attribute="X")
    return tuple(range(2, x.ndim))


@np.errstate(all="ignore")
def global_average_pool(x: Array) -> Array:
    """GlobalAveragePool: the mean over the spatial axes, which stay as 1."""
    wide, axes = widened(x), _over_space(x)
    result = _reduced(wide, "sum")
    return narrowed(_mean(wide, axes) if result is None else result, x.dtype)


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """The mean by NumPy."""
    total = np.add.reduce(x, axes, keepdims=True)
    mean: Array = total / total.dtype.type(math.prod(x.shape[2:]))
    return mean


def global_max_pool(x: Array) -> Array:
    """GlobalMaxPool: the maximum over the spatial axes, which stay as 1."""
    wide, axes = widened(x), _over_space(x)
    result = _reduced(wide, "max")
    return narrowed(np.maximum.reduce(wide, axes, keepdims=True, initial=_lowest(x)) if result is None else result, x.dtype)


@np.errstate(all="ignore")
def global_lp_pool(x: Array, *, p: float) -> Array:
    """GlobalLpPool: the p-norm over the spatial axes, which stay as 1."""
    total = np.add.reduce(_powers(widened(x), p), _over_space(x), keepdims=True)
    return _root(total, p).astype(x.dtype, copy=False)


def max_unpool(
    x: Array,
    indices: Array,
    output_shape: Array | None = None,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
) -> Array:
    """MaxUnpool: zeros, with the elements of ``x`` where ``indices`` say.

    ``indices`` count through the tensor that was pooled. Its size is the one without pads, less ``pads``; or at most ``output_shape``,
    which takes the place of ``pads``, and may be larger: zeros are added at the ends then, as in ONNX's own case.
    """
    spatial = spatial_shape(x)
    kernel_shape, strides = positive("kernel_shape", kernel_shape, len(spatial)), positive("strides", strides, len(spatial))
    begins, ends = both_pads(pads, len(spatial))
    natural = [max(0, (length - 1) * stride + kernel) for length, stride, kernel in zip(spatial, strides, kernel_shape, strict=True)]
    if indices.shape != x.shape:
        raise InvalidValueError(f"I has shape {list(indices.shape)}; allowed: that of X, {list(x.shape)}", attribute="I")
    if output_shape is None:
        pooled = (*x.shape[:2], *(max(0, size - begin - end) for size, begin, end in zip(natural, begins, ends, strict=True)))
        whole = pooled
    else:
        whole = tuple(output_shape.reshape(-1).tolist())
        if len(whole) != x.ndim or whole[:2] != x.shape[:2] or min(whole) < 0:
            text = f"output_shape is {list(whole)}; allowed: {x.ndim} dimensions that begin with {list(x.shape[:2])}"
            raise InvalidValueError(text, attribute="output_shape")
        pooled = (*x.shape[:2], *map(min, natural, whole[2:]))
    size = math.prod(pooled)
    if indices.size and not 0 <= indices.min() <= indices.max() < size:
        text = f"I has indices from {indices.min()} to {indices.max()}; allowed: 0 to {size - 1}, the elements of {list(pooled)}"
        raise InvalidValueError(text, attribute="I")
    flat = np.zeros(size, x.dtype)
    flat[indices.reshape(-1)] = x.reshape(-1)
    if whole == pooled:
        return flat.reshape(pooled)
    result = np.zeros(whole, x.dtype)
    result[tuple(map(slice, pooled))] = flat.reshape(pooled)
    return result


LEAVES: tuple[Leaf, ...] = (
    Leaf("MaxPool", (1, 8, 10, 11, 12, 22), max_pool),
    Leaf("AveragePool", (1, 7, 10, 11, 19, 22), average_pool),
    Leaf("LpPool", (1, 2, 11, 18, 22), lp_pool),
    Leaf("GlobalAveragePool", (1, 22), global_average_pool),
    Leaf("GlobalMaxPool", (1, 22), global_max_pool),
    Leaf("GlobalLpPool", (1, 2, 22), global_lp_pool),
    Leaf("MaxUnpool", (9, 11, 22), max_unpool),
    Leaf("MaxRoiPool", (1, 22), max_roi_pool),
    Leaf("RoiAlign", (10, 16, 22), roi_align),
)
