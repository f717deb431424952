"""Pools: MaxPool, AveragePool, LpPool, their global forms, MaxUnpool and the pools over regions (of the family ``onnx/defs/nn``).

https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html, onnx__LpPool.html, onnx__MaxUnpool.html

``onnx.reference`` loops over windows in Python, and is wrong on ``Indices``, on int8, on partial windows of ``ceil_mode``, on ``auto_pad``
with strides or dilations, and on the rank of the global pools.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._precision import widened
from numbaops.ops._regions import max_roi_pool, roi_align
from numbaops.ops._windows import Axis, both_pads, fold_windows, positive, spatial_shape, windows
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf


@np.errstate(all="ignore")
def max_pool(
    x: Array, *, kernel_shape: Sequence[int], storage_order: int = 0, outputs: int = 1, **attributes: Any
) -> Array | tuple[Array, Array]:
    """MaxPool: the largest element of each window; NaN if there is one.

    Returns:
        The largest elements and, for two ``outputs``, where the first of them are in ``x``, counted through all of ``x``, the spatial
        axes column-major if ``storage_order`` is 1. A window of pads alone gives the type's lowest value, and -1.
    """
    axes = windows(spatial_shape(x), kernel_shape, **attributes)
    if outputs == 1:
        return fold_windows(widened(x), axes, np.maximum, _lowest(x)).astype(x.dtype, copy=False)
    return _max_and_places(x, axes, "F" if storage_order else "C")


def _lowest(x: Array) -> Any:
    return np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -math.inf


def _max_and_places(x: Array, axes: Sequence[Axis], order: Any) -> tuple[Array, Array]:
    spatial = x.shape[2:]
    size = math.prod(spatial)
    largest = widened(x)
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
    return largest.astype(x.dtype, copy=False), np.where(places < 0, -1, places + image)


@np.errstate(all="ignore")
def average_pool(x: Array, *, kernel_shape: Sequence[int], count_include_pad: int = 0, **attributes: Any) -> Array:
    """AveragePool: the mean of each window's elements.

    Pads count as zeros with ``count_include_pad``, and not at all without; what ``ceil_mode`` adds beyond the pads never counts.
    """
    axes = windows(spatial_shape(x), kernel_shape, **attributes)
    total = fold_windows(widened(x), axes, np.add, 0)
    counts = functools.reduce(np.multiply.outer, [axis.cells_within(padded=bool(count_include_pad)) for axis in axes])
    total /= counts.astype(total.dtype)
    return total.astype(x.dtype, copy=False)


@np.errstate(all="ignore")
def lp_pool(x: Array, *, p: float, kernel_shape: Sequence[int] | None = None, **attributes: Any) -> Array:
    """LpPool: the p-norm of each window's elements; pads count as zeros."""
    if kernel_shape is None:
        raise InvalidValueError("kernel_shape is missing; the sizes of the windows are not known without", attribute="kernel_shape")
    axes = windows(spatial_shape(x), kernel_shape, **attributes)
    powers = _powers(widened(x), p)
    return _root(fold_windows(powers, axes, np.add, 0), p).astype(x.dtype, copy=False)


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
    total = np.add.reduce(wide, axes, keepdims=True)
    mean: Array = total / total.dtype.type(math.prod(x.shape[2:]))
    return mean.astype(x.dtype, copy=False)


def global_max_pool(x: Array) -> Array:
    """GlobalMaxPool: the maximum over the spatial axes, which stay as 1."""
    result: Array = np.maximum.reduce(widened(x), _over_space(x), keepdims=True, initial=_lowest(x))
    return result.astype(x.dtype, copy=False)


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
