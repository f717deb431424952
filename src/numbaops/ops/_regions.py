"""Pools over regions of interest: MaxRoiPool and RoiAlign.

https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html, onnx__RoiAlign.html

The loop over regions is Python's, for each has a size of its own; what lies inside one is a few array operations over all channels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._precision import narrowed, widened
from numbaops.ops._windows import positive
from numbaops.ops.base import Array
from numbaops.runtime.threads import split

_MOST_SAMPLES = 1 << 31
"""Along an axis: beyond, even one row of them would not fit into memory."""


def _check(x: Array, rois: Array, columns: int) -> None:
    if x.ndim != 4:
        raise InvalidValueError(f"X has shape {list(x.shape)}; allowed: [N, C, H, W]", attribute="X")
    if rois.ndim != 2 or rois.shape[1] != columns:
        raise InvalidValueError(f"rois has shape {list(rois.shape)}; allowed: [number of regions, {columns}]", attribute="rois")


def _check_images(images: Array, count: int, what: str) -> None:
    if images.size and not 0 <= images.min() <= images.max() < count:
        text = f"{what} names images from {images.min()} to {images.max()}; allowed: 0 to {count - 1}"
        raise InvalidValueError(text, attribute=what)


@np.errstate(all="ignore")
def max_roi_pool(x: Array, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Array:
    """MaxRoiPool: regions cut into bins, of which each gives its largest element.

    The text is silent on how. As in Fast R-CNN, where the operator comes from, corners are scaled and rounded to elements (halves away
    from zero), both belong to the region, bins reach out to whole elements, and a bin without elements gives 0.

    Args:
        x: ``[N, C, H, W]``.
        rois: ``[R, 5]``, each row an image's number, x1, y1, x2 and y2.
        pooled_shape: the number of bins along H and W.
        spatial_scale: what corners are multiplied with.

    Returns:
        ``[R, C, *pooled_shape]``.
    """
    _check(x, rois, 5)
    positive("pooled_shape", pooled_shape, 2)
    wide, regions = widened(x), widened(rois)
    images = regions[:, 0].astype(np.int64)
    _check_images(images, len(x), "rois")
    scaled = np.nan_to_num(np.clip(regions[:, 1:] * regions.dtype.type(spatial_scale), -(2.0**31), 2.0**31))
    corners = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled).astype(np.int64)
    result = np.zeros((len(rois), x.shape[1], *pooled_shape), wide.dtype)
    if x.size:
        for image, (left, top, right, bottom), out in zip(images.tolist(), corners.tolist(), result, strict=True):
            rows, full_rows = _bins(top, bottom, pooled_shape[0], x.shape[2])
            columns, full_columns = _bins(left, right, pooled_shape[1], x.shape[3])
            elements = wide[image][:, rows[:, :, None, None], columns]
            np.copyto(out, elements.max((2, 4)), where=full_rows[:, None] & full_columns)
    return result.astype(x.dtype, copy=False)


def _bins(low: int, high: int, count: int, size: int) -> tuple[Array, Array]:
    """The elements of each bin of a region along one axis, as ``[count, longest]`` with the last one repeated, and which bins have any.

    In integers: whether a bin reaches an element must not depend on a rounded quotient.
    """
    extent, number = max(high - low + 1, 1), np.arange(count)
    begins = np.clip(number * extent // count + low, 0, size)
    ends = np.clip(-(-(number + 1) * extent // count) + low, 0, size)
    longest = max(1, int((ends - begins).max()))
    elements = np.minimum(begins[:, None] + np.arange(longest), ends[:, None] - 1)
    return np.clip(elements, 0, size - 1), ends > begins


@np.errstate(all="ignore")
def roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
    coordinate_transformation_mode: str = "output_half_pixel",
) -> Array:
    """RoiAlign: regions cut into bins, of which each gives the mean of bilinear samples, or the largest of their weighted corners.

    The largest corner, and not the largest sample, is what ONNX's own case and both other evaluators have for ``max``. Version 10 has
    no ``coordinate_transformation_mode``: regions begin where their numbers say and are at least one element wide.

    Args:
        x: ``[N, C, H, W]``.
        rois: ``[R, 4]``, each row x1, y1, x2, y2.
        batch_indices: ``[R]``, each region's image.
        mode: ``"avg"`` or ``"max"``.
        output_height: bins along H.
        output_width: bins along W.
        sampling_ratio: samples of a bin along each axis; 0 for as many as it has elements.
        spatial_scale: what coordinates are multiplied with.
        coordinate_transformation_mode: ``"half_pixel"`` takes half an element off the coordinates.

    Returns:
        ``[R, C, output_height, output_width]``.
    """
    _check(x, rois, 4)
    if mode not in ("avg", "max"):
        raise InvalidValueError(f"mode is {mode!r}; allowed: avg, max", attribute="mode")
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        text = f"coordinate_transformation_mode is {coordinate_transformation_mode!r}; allowed: half_pixel, output_half_pixel"
        raise InvalidValueError(text, attribute="coordinate_transformation_mode")
    if sampling_ratio < 0:
        raise InvalidValueError(f"sampling_ratio is {sampling_ratio}; allowed: numbers from 0 on", attribute="sampling_ratio")
    positive("output_height, output_width", (output_height, output_width), 2)
    if sampling_ratio * max(output_height, output_width) > _MOST_SAMPLES:
        text = (
            f"sampling_ratio is {sampling_ratio} for {output_height} x {output_width} bins; allowed: {_MOST_SAMPLES} samples along an axis"
        )
        raise InvalidValueError(text, attribute="sampling_ratio")
    if batch_indices.shape != rois.shape[:1]:
        text = f"batch_indices has shape {list(batch_indices.shape)}; allowed: [{len(rois)}], one for each region"
        raise InvalidValueError(text, attribute="batch_indices")
    _check_images(batch_indices, len(x), "batch_indices")
    half_pixel = coordinate_transformation_mode == "half_pixel"
    wide, number = widened(x), widened(rois).dtype.type
    ends = widened(rois) * number(spatial_scale) - number(0.5 if half_pixel else 0)
    if not np.isfinite(ends).all():
        raise InvalidValueError("rois has coordinates that are infinite or NaN; allowed: finite ones", attribute="rois")
    with np.errstate(over="ignore"):
        starts, sizes = ends[:, :2], ends[:, 2:] - ends[:, :2]
    if not np.isfinite(sizes).all():
        raise InvalidValueError("rois has regions larger than any number; allowed: finite sizes", attribute="rois")
    if not half_pixel:
        sizes = np.maximum(sizes, number(1))
    shape = (len(rois), x.shape[1], output_height, output_width)
    if wide.dtype == number == np.float32 and x.size and len(rois):
        found = _aligned(wide, batch_indices, starts, sizes, shape, sampling_ratio, mode == "max")
        if found is not None:
            return narrowed(found, x.dtype)
    result = np.zeros(shape, wide.dtype)
    if not x.size:
        return result.astype(x.dtype, copy=False)
    for image, (left, top), (width, height), out in zip(batch_indices.tolist(), starts, sizes, result, strict=True):
        rows = _Samples(top, height, output_height, sampling_ratio, x.shape[2])
        columns = _Samples(left, width, output_width, sampling_ratio, x.shape[3])
        if rows.each and columns.each:
            corners = [
                wide[image][:, row[:, None], column] * (row_weight[:, None] * column_weight)
                for row, row_weight in rows.corners
                for column, column_weight in columns.corners
            ]
            combine, reduce = (np.add, np.mean) if mode == "avg" else (np.maximum, np.max)
            samples = functools.reduce(combine, corners)
            reduce(samples.reshape(len(samples), output_height, rows.each, output_width, columns.each), (2, 4), out=out)
    return result.astype(x.dtype, copy=False)


def _aligned(x: Array, images: Array, starts: Array, sizes: Array, shape: tuple[int, ...], ratio: int, largest: bool) -> Array | None:
    """RoiAlign of float by a kernel; None without the JIT."""
    from numbaops.kernels import sampling

    if not sampling.COMPILED:
        return None
    regions, channels, rows, columns = shape
    out = np.empty(shape, np.float32)
    given = images.astype(np.int64), np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
    fixed = (np.ascontiguousarray(x).reshape(-1), channels, *x.shape[2:], *given, rows, columns, ratio, largest, out.reshape(-1))
    align: Any = sampling.align_regions
    split(lambda first, last: align(*fixed, first, last), regions, 16 * max(1, ratio) ** 2 * channels * rows * columns)
    return out


class _Samples:
    """Samples of a region along one axis, ``each`` in a bin: the elements before and after them, and with what weights."""

    __slots__ = ("corners", "each")

    def __init__(self, start: np.floating, extent: np.floating, bins: int, each: int, size: int) -> None:
        number = type(start)
        bin_size = extent / number(bins)
        self.each = each or max(0, math.ceil(bin_size))
        within = (np.arange(self.each, dtype=number) + number(0.5)) * bin_size / number(self.each)
        at = (start + np.arange(bins, dtype=number)[:, None] * bin_size + within).reshape(-1)
        outside = (at < -1) | (at > size)
        at = np.clip(at, 0, size - 1)
        before = at.astype(np.int64)
        after_weight = at - before.astype(number)
        weights = np.where(outside, number(0), (number(1) - after_weight, after_weight))
        self.corners = ((before, weights[0]), (np.minimum(before + 1, size - 1), weights[1]))
