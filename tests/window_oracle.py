"""Pools and convolutions, slowly: loops over windows and cells in float64, written from the operators' texts; no numbaops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Places = list[list[int]]
"""Along one axis, for each window the places of its cells."""


def axis_places(
    size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], auto_pad: str, ceil_mode: int
) -> tuple[Places, tuple[int, int]]:
    extent = (kernel - 1) * dilation + 1
    begin, end = (0, 0) if auto_pad == "VALID" else pads
    if auto_pad.startswith("SAME"):
        count = math.ceil(Fraction(size, stride))
        total = max(0, (count - 1) * stride + extent - size)
        begin, end = total // 2, total - total // 2
        if auto_pad == "SAME_LOWER":
            begin, end = end, begin
    else:
        exact = Fraction(size + begin + end - extent, stride) + 1
        count = math.ceil(exact) if ceil_mode else math.floor(exact)
    starts = [number * stride - begin for number in range(count)]
    if ceil_mode and not auto_pad.startswith("SAME"):
        starts = [start for start in starts if start < size]
    return [[start + cell * dilation for cell in range(kernel)] for start in starts], (begin, end)


def all_places(size: Sequence[int], kernel: Sequence[int], attributes: dict[str, Any]) -> tuple[list[Places], list[tuple[int, int]]]:
    rank = len(size)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * 2 * rank)
    found = [
        axis_places(
            size[axis],
            kernel[axis],
            strides[axis],
            dilations[axis],
            (pads[axis], pads[rank + axis]),
            attributes.get("auto_pad", "NOTSET"),
            attributes.get("ceil_mode", 0),
        )
        for axis in range(rank)
    ]
    return [places for places, _ in found], [pads for _, pads in found]


def each_window(places: list[Places]) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """The number of each window and the places of its cells, in row-major order."""
    for number in itertools.product(*(range(len(along)) for along in places)):
        yield number, list(itertools.product(*(along[each] for along, each in zip(places, number, strict=True))))


def inside(place: Sequence[int], size: Sequence[int], pads: Sequence[tuple[int, int]] | None = None) -> bool:
    bounds = [(0, 0)] * len(size) if pads is None else pads
    return all(-begin <= each < length + end for each, length, (begin, end) in zip(place, size, bounds, strict=True))


def pool(op_type: str, x: Any, attributes: dict[str, Any]) -> list[Any]:
    """MaxPool with its indices, AveragePool and LpPool."""
    size = x.shape[2:]
    places, pads = all_places(size, attributes["kernel_shape"], attributes)
    wide = x.astype(np.float64)
    shape = (*x.shape[:2], *map(len, places))
    result, indices = np.zeros(shape), np.zeros(shape, np.int64)
    order: Any = "F" if attributes.get("storage_order") else "C"
    p = attributes.get("p", 2)
    for image in np.ndindex(x.shape[:2]):
        offset = int(np.ravel_multi_index(image, x.shape[:2])) * math.prod(size)
        for number, cells in each_window(places):
            here = [place for place in cells if inside(place, size)]
            values = [wide[image + place] for place in here]
            if not values and op_type == "MaxPool":  # the text leaves it open
                result[image + number] = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -math.inf
                indices[image + number] = -1
            elif op_type == "MaxPool":
                result[image + number] = max(values)
                first = here[values.index(max(values))]
                indices[image + number] = offset + np.ravel_multi_index(first, size, order=order)
            elif op_type == "AveragePool":
                counted = sum(inside(place, size, pads) for place in cells) if attributes.get("count_include_pad") else len(here)
                result[image + number] = sum(values) / counted if counted else math.nan
            else:
                result[image + number] = sum(abs(value) ** p for value in values) ** (1 / p)
    return [result.astype(x.dtype), indices]


def conv(x: Any, w: Any, bias: Any, attributes: dict[str, Any]) -> Any:
    """Conv in float64."""
    size, group = x.shape[2:], attributes.get("group", 1)
    places, _ = all_places(size, w.shape[2:], attributes)
    x, w = x.astype(np.float64), w.astype(np.float64)
    result = np.zeros((len(x), len(w), *map(len, places)))
    for image in range(len(x)):
        for number, cells in each_window(places):
            window = np.zeros((x.shape[1], len(cells)))
            for cell, place in enumerate(cells):
                if inside(place, size):
                    window[:, cell] = x[(image, slice(None), *place)]
            result[(image, slice(None), *number)] = products(window, w, group)
    return result if bias is None else result + bias.astype(np.float64).reshape(-1, *(1,) * len(size))


def products(window: Any, w: Any, group: int) -> list[float]:
    """The cells of one window, ``[C, cells]``, times each kernel."""
    found = []
    for feature in range(len(w)):
        first = feature // (len(w) // group) * w.shape[1]
        found.append(float((window[first : first + w.shape[1]] * w[feature].reshape(w.shape[1], -1)).sum()))
    return found


def scattered(parts: Any, size: Sequence[int], kernel: Sequence[int], counts: Sequence[int], moves: Any, zero: Any) -> Any:
    """``parts[image, cell, window]`` added at ``moves(axis, window, cell)``."""
    result = np.full((len(parts), *size), zero, parts.dtype)
    for image, (cell, cell_place), (window, window_place) in itertools.product(
        range(len(parts)), enumerate(np.ndindex(*kernel)), enumerate(np.ndindex(*counts))
    ):
        place = [moves(axis, window_place[axis], cell_place[axis]) for axis in range(len(size))]
        if inside(place, size):
            result[(image, *place)] += parts[image, cell, window]
    return result


def conv_transpose(x: Any, w: Any, bias: Any, attributes: dict[str, Any]) -> Any:
    """ConvTranspose in float64."""
    counts, kernel, rank = x.shape[2:], w.shape[2:], x.ndim - 2
    group = attributes.get("group", 1)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    extra, pads = attributes.get("output_padding", [0] * rank), attributes.get("pads", [0] * 2 * rank)
    auto_pad = attributes.get("auto_pad", "NOTSET")
    reach = [strides[axis] * (counts[axis] - 1) + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1 for axis in range(rank)]
    size = attributes.get("output_shape")
    if size is None and auto_pad.startswith("SAME"):
        size = [count * stride for count, stride in zip(counts, strides, strict=True)]
    if size is None:
        if auto_pad == "VALID":
            pads = [0] * 2 * rank
        begins, size = pads[:rank], [reach[axis] - pads[axis] - pads[rank + axis] for axis in range(rank)]
    else:
        totals = [max(0, whole - length) for whole, length in zip(reach, size, strict=True)]
        begins = [total // 2 if auto_pad == "SAME_UPPER" else total - total // 2 for total in totals]
    features = w.shape[1]
    result = np.zeros((len(x), features * group, *size))
    for image, feature in np.ndindex(len(x), features * group):
        part = feature // features
        channels = slice(part * len(w) // group, (part + 1) * len(w) // group)
        kernels = w[channels, feature % features].astype(np.float64).reshape(len(w) // group, -1)
        cells = np.einsum("ck,co->ko", kernels, x[image, channels].astype(np.float64).reshape(len(w) // group, -1))
        result[image, feature] = scattered(
            cells[None], size, kernel, counts, lambda axis, window, cell: window * strides[axis] + cell * dilations[axis] - begins[axis], 0
        )
        if bias is not None:
            result[image, feature] += float(bias[feature])
    return result


def col2im(x: Any, image_shape: Any, block_shape: Any, attributes: dict[str, Any]) -> Any:
    """Col2Im in the input's own type."""
    size, kernel = image_shape.tolist(), block_shape.tolist()
    places, pads = all_places(size, kernel, attributes)
    strides, dilations = (attributes.get(name, [1] * len(size)) for name in ("strides", "dilations"))
    parts = (x.astype(np.float64) if x.dtype == np.float16 else x).reshape(-1, math.prod(kernel), x.shape[2])
    result = scattered(
        parts,
        size,
        kernel,
        [len(along) for along in places],
        lambda axis, window, cell: window * strides[axis] + cell * dilations[axis] - pads[axis][0],
        "" if x.dtype == object else 0,
    )
    return result.reshape(len(x), -1, *size).astype(x.dtype)


def deform_conv(x: Any, w: Any, offset: Any, bias: Any, mask: Any, attributes: dict[str, Any]) -> Any:
    """DeformConv in float64."""
    size, kernel, rank = x.shape[2:], w.shape[2:], x.ndim - 2
    group, offset_group = attributes.get("group", 1), attributes.get("offset_group", 1)
    places, _ = all_places(size, kernel, attributes)
    counts = [len(along) for along in places]
    moves = offset.astype(np.float64).reshape(len(x), offset_group, math.prod(kernel), rank, *counts)
    factors = None if mask is None else mask.astype(np.float64).reshape(len(x), offset_group, math.prod(kernel), *counts)
    x, w = x.astype(np.float64), w.astype(np.float64)
    result = np.zeros((len(x), len(w), *counts))
    for image in range(len(x)):
        for number, cells in each_window(places):
            sampled = np.zeros((offset_group, x.shape[1] // offset_group, len(cells)))
            for which, cell in np.ndindex(offset_group, len(cells)):
                channels = slice(which * x.shape[1] // offset_group, (which + 1) * x.shape[1] // offset_group)
                at = np.array(cells[cell]) + moves[(image, which, cell, slice(None), *number)]
                for corner in itertools.product((0, 1), repeat=rank):
                    place = tuple((np.floor(at).astype(int) + corner).tolist())
                    if inside(place, size):
                        sampled[which, :, cell] += np.prod(1 - np.abs(at - place)) * x[(image, channels, *place)]
                if factors is not None:
                    sampled[which, :, cell] *= factors[(image, which, cell, *number)]
            result[(image, slice(None), *number)] = products(sampled.reshape(x.shape[1], -1), w, group)
    return result if bias is None else result + bias.astype(np.float64).reshape(-1, *(1,) * rank)


def max_roi_pool(x: Any, rois: Any, attributes: dict[str, Any]) -> Any:
    """MaxRoiPool: bins of rounded regions, in exact fractions."""
    bins = attributes["pooled_shape"]
    result = np.zeros((len(rois), x.shape[1], *bins), x.dtype)
    for region, (image, *corners) in enumerate(rois.astype(np.float64).tolist()):
        scaled = [corner * attributes.get("spatial_scale", 1.0) for corner in corners]
        left, top, right, bottom = (math.copysign(math.floor(abs(corner) + 0.5), corner) for corner in scaled)
        for bin_y, bin_x in np.ndindex(*bins):
            within = []
            for low, high, number, count, size in ((top, bottom, bin_y, bins[0], x.shape[2]), (left, right, bin_x, bins[1], x.shape[3])):
                step = Fraction(max(int(high - low) + 1, 1), count)
                within.append(range(max(0, math.floor(number * step) + int(low)), min(size, math.ceil((number + 1) * step) + int(low))))
            for channel in range(x.shape[1]):
                values = [x[int(image), channel, y, across] for y in within[0] for across in within[1]]
                result[region, channel, bin_y, bin_x] = max(values, default=0)
    return result


def roi_align(x: Any, rois: Any, images: Any, attributes: dict[str, Any], half_pixel: bool) -> Any:
    """RoiAlign; coordinates in the type that the regions have, or float32, for a sample on the edge depends on it."""
    number = np.float64 if rois.dtype == np.float64 else np.float32
    high, wide = attributes.get("output_height", 1), attributes.get("output_width", 1)
    result = np.zeros((len(rois), x.shape[1], high, wide))
    for region, channel in np.ndindex(len(rois), x.shape[1]):
        plane = x[images[region], channel].astype(np.float64)
        left, top, right, bottom = rois[region].astype(number) * number(attributes.get("spatial_scale", 1.0)) - number(half_pixel * 0.5)
        height, width = bottom - top, right - left
        if not half_pixel:
            height, width = max(height, number(1)), max(width, number(1))
        bin_height, bin_width = height / number(high), width / number(wide)
        ratio = attributes.get("sampling_ratio", 0)
        rows, columns = ratio or math.ceil(bin_height), ratio or math.ceil(bin_width)
        for bin_y, bin_x in np.ndindex(high, wide):
            corners = []
            for row, column in itertools.product(range(rows), range(columns)):
                y = top + number(bin_y) * bin_height + (number(row) + number(0.5)) * bin_height / number(rows)
                across = left + number(bin_x) * bin_width + (number(column) + number(0.5)) * bin_width / number(columns)
                corners.append(weighted_corners(plane, float(y), float(across)))
            if corners and attributes.get("mode", "avg") == "avg":
                result[region, channel, bin_y, bin_x] = sum(map(sum, corners)) / len(corners)
            elif corners:
                result[region, channel, bin_y, bin_x] = max(map(max, corners))
    return result


def weighted_corners(plane: Any, y: float, x: float) -> list[float]:
    """The four elements around a place, each times its weight; zeros beyond one element around the plane."""
    if not (-1 <= y <= plane.shape[0] and -1 <= x <= plane.shape[1]):
        return [0.0] * 4
    y, x = (min(max(place, 0), size - 1) for place, size in zip((y, x), plane.shape, strict=True))
    corners = []
    for down, right in itertools.product((0, 1), repeat=2):
        row, column = min(int(y) + down, plane.shape[0] - 1), min(int(x) + right, plane.shape[1] - 1)
        weight_y, weight_x = (y % 1 if down else 1 - y % 1), (x % 1 if right else 1 - x % 1)
        corners.append(float(plane[row, column]) * weight_y * weight_x)
    return corners
