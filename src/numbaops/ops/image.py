"""Operators of the families ``onnx/defs/image`` and ``onnx/defs/object_detection``, and the samplers of tensors at given places.

https://onnx.ai/onnx/operators/onnx__GridSample.html, onnx__AffineGrid.html, onnx__NonMaxSuppression.html, onnx__ImageDecoder.html
"""

from __future__ import annotations

import importlib
import io
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from numbaops.errors import InvalidTypeError, InvalidValueError, UnsupportedError
from numbaops.ops._precision import narrowed, wide_dtype
from numbaops.ops._resampling import Array, as_output, cubic_weights, type_name, weighted_type
from numbaops.ops._suppression import non_max_suppression
from numbaops.ops.leaf import Leaf
from numbaops.runtime.threads import split

_SAMPLES: Mapping[str, tuple[int, ...]] = {
    "nearest": (0,),
    "linear": (0, 1),
    "bilinear": (0, 1),
    "cubic": (-1, 0, 1, 2),
    "bicubic": (-1, 0, 1, 2),
}
"""The elements that count along an axis, from the one at or below the coordinate."""

_PADDING_MODES = ("zeros", "border", "reflection")
_MOST_AXES = 3
_PLACE = 16
"""Elements that finding a place of the grid counts for when threads share the places."""


def grid_sample(x: Array, grid: Array, *, mode: str, padding_mode: str, align_corners: int) -> Array:
    """GridSample of all versions: opset 20 renamed ``bilinear`` and ``bicubic`` and added other ranks.

    Args:
        x: (N, C, D1, ..., Dr); any type with mode ``nearest``, else any but string.
        grid: (N, E1, ..., Er, r), coordinates from -1 to 1, those of the last dimension first. NaN counts as -1.
        mode: ``nearest`` (halves to even), ``linear`` or ``cubic``.
        padding_mode: what stands outside: ``zeros``, ``border`` or ``reflection``.
        align_corners: whether -1 and 1 are the centres of the outer elements, else their outer edges.

    Returns:
        (N, C, E1, ..., Er) of x's type; integers are cut off, as the text has it.
    """
    if mode not in _SAMPLES:
        raise InvalidValueError(f"mode is {mode!r}; allowed: {', '.join(_SAMPLES)}", attribute="mode")
    if padding_mode not in _PADDING_MODES:
        raise InvalidValueError(f"padding_mode is {padding_mode!r}; allowed: {', '.join(_PADDING_MODES)}", attribute="padding_mode")
    lengths = x.shape[2:]
    if x.ndim < 3 or grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != len(lengths):
        wanted = f"[{x.shape[0] if x.ndim else 'N'}, ..., {max(x.ndim - 2, 1)}] of rank {max(x.ndim, 3)}"
        raise InvalidValueError(f"the input has the shape {list(x.shape)} and the grid {list(grid.shape)}; allowed: a grid {wanted}")
    if grid.dtype.kind in "OUSbiuc":
        raise InvalidTypeError(f"the grid has element type {type_name(grid)}; allowed: floats")
    places = grid.shape[1:-1]
    if 0 in lengths and padding_mode != "zeros" and 0 not in places:
        raise InvalidValueError(f"the input has the shape {list(x.shape)}: it has no border", attribute="padding_mode")
    found = _by_kernel(x, grid, lengths, len(_SAMPLES[mode]), _PADDING_MODES.index(padding_mode), bool(align_corners))
    if found is not None:
        return found
    coordinates = grid.reshape(x.shape[0], math.prod(places), len(lengths)).astype(np.promote_types(np.float32, _plain(grid)), copy=False)
    axes = [
        _samples(coordinates[..., len(lengths) - 1 - axis], length, mode, padding_mode, bool(align_corners))
        for axis, length in enumerate(lengths)
    ]
    size = math.prod(lengths)
    flat = x.reshape(*x.shape[:2], size)
    if padding_mode == "zeros":
        # places outside read the element after the last
        flat = np.concatenate([flat, np.full((*x.shape[:2], 1), "" if x.dtype.kind == "O" else 0).astype(x.dtype)], axis=2)
    strides = [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
    kind = x.dtype if mode == "nearest" else weighted_type(x.dtype, mode)
    y = np.zeros((*x.shape[:2], coordinates.shape[1]), kind)
    for samples in itertools.product(*axes):
        index = np.sum([position * stride for (position, _), stride in zip(samples, strides, strict=True)], axis=0)
        index = np.where(np.logical_and.reduce([position >= 0 for position, _ in samples]), index, size)
        weights = None if mode == "nearest" else np.multiply.reduce([weight for _, weight in samples]).astype(y.real.dtype)
        for batch in range(x.shape[0]):
            values = np.take(flat[batch], index[batch], axis=1)
            if weights is None:
                y[batch] = values
            else:
                y[batch] += values * weights[batch]
    y = y.reshape(*x.shape[:2], *places)
    return y if mode == "nearest" else as_output(y, x.dtype)


def _by_kernel(x: Array, grid: Array, lengths: tuple[int, ...], taps: int, padding: int, corners: bool) -> Array | None:
    """The same for float and the 16-bit floats; None if no kernel serves."""
    if wide_dtype(x.dtype) != np.float32 or _plain(grid) != np.float32 or len(lengths) > _MOST_AXES or not x.size or not grid.size:
        return None
    from numbaops.kernels import sampling

    if not sampling.COMPILED:
        return None
    places, channels = math.prod(grid.shape[1:-1]), x.shape[1]
    out = np.empty((*x.shape[:2], *grid.shape[1:-1]), np.float32)
    images, coordinates = (np.ascontiguousarray(each, np.float32).reshape(-1) for each in (x, grid))
    fixed = (images, np.array(lengths), channels, coordinates, places, taps, padding, corners, out.reshape(-1))
    work = 32 * taps ** len(lengths) * (channels + _PLACE)
    split(lambda first, last: sampling.sample_grid(*fixed, first, last), x.shape[0] * places, work)
    return narrowed(out, x.dtype)


def _plain(grid: Array) -> np.dtype[Any]:
    return np.dtype(np.float64 if grid.dtype == np.float64 else np.float32)


def _samples(coordinate: Array, length: int, mode: str, padding_mode: str, align_corners: bool) -> list[tuple[Array, Array]]:
    """Positions along an axis, -1 for outside, and their weights: one pair for every element that counts."""
    low, high = (0.0, length - 1.0) if align_corners else (-0.5, length - 0.5)
    scale = length - 1 if align_corners else length
    # far out lies where an element more makes no difference, and integers still hold the position
    with np.errstate(invalid="ignore", over="ignore"):
        x = np.clip(np.where(np.isnan(coordinate), -1, coordinate), -(2.0**31), 2.0**31)  # infinity times 0 would be NaN
        x = (x + 1) / 2 * scale if align_corners else ((x + 1) * scale - 1) / 2
        x = np.clip(x, -(2.0**31), 2.0**31).astype(coordinate.dtype, copy=False)
    if mode == "nearest":
        x = np.rint(x)
    if padding_mode == "reflection":
        x = np.where((x >= low) & (x <= high), x, _reflected(x, low, high))
    below = np.floor(x)
    fraction = x - below
    found = []
    for offset in _SAMPLES[mode]:
        position = below + offset
        if padding_mode == "reflection":
            position = np.where((position >= 0) & (position < length), position, _reflected(position, low, high))
        if padding_mode == "zeros":
            position = np.where((position >= 0) & (position < length), position, -1)
        else:
            position = np.clip(position, 0, length - 1)
        distance = np.abs(offset - fraction)
        weight = 1 - distance if len(_SAMPLES[mode]) <= 2 else cubic_weights(distance, -0.75)
        found.append((position.astype(np.intp), weight))
    return found


def _reflected(x: Array, low: float, high: float) -> Array:
    """Mirrored at both ends until it lies between them."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    way = np.abs(x - low) % (2 * span)
    return low + np.where(way > span, 2 * span - way, way)


def affine_grid(theta: Array, size: Array, *, align_corners: int) -> Array:
    """AffineGrid.

    Args:
        theta: (N, 2, 3) or (N, 3, 4), floats.
        size: (N, C, H, W) or (N, C, D, H, W).
        align_corners: whether -1 and 1 are the centres of the outer elements, else their outer edges.

    Returns:
        (N, H, W, 2) or (N, D, H, W, 3), of theta's type, computed in float, or double where theta is one. With aligned corners a
        dimension of 1 lies at -1, where the range from -1 starts.
    """
    lengths = [int(length) for length in size.reshape(-1)[2:]]
    rank = len(lengths)
    if rank not in (2, 3) or theta.ndim != 3 or theta.shape[1:] != (rank, rank + 1):
        shape = [int(length) for length in size.reshape(-1)]
        raise InvalidValueError(f"theta has the shape {list(theta.shape)} for size {shape}; allowed: [N, 2, 3] for 4 and [N, 3, 4] for 5")
    if theta.shape[0] != size.reshape(-1)[0] or min(lengths) < 0:
        raise InvalidValueError(f"size is {size.tolist()}; allowed: {theta.shape[0]} first, as theta has it, and no negative size")
    kind = _plain(theta)
    # the coordinates come first while they are computed: a last dimension of 2 makes short loops
    matrix = theta.astype(kind, copy=False).reshape(theta.shape[0], rank, rank + 1, *(1,) * rank)
    grid = np.empty((theta.shape[0], *lengths, rank), kind)
    total = matrix[:, :, rank]
    for axis, length in enumerate(lengths):
        steps = np.arange(length, dtype=np.float64)
        places = steps * (2 / max(length - 1, 1)) - 1 if align_corners else (2 * steps + 1) / max(length, 1) - 1
        term = matrix[:, :, rank - 1 - axis] * places.astype(kind).reshape(-1, *(1,) * (rank - 1 - axis))
        total = np.add(total, term, out=np.moveaxis(grid, -1, 1) if axis == rank - 1 else None)
    return grid.astype(theta.dtype, copy=False)


_PIXEL_FORMATS = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
"""The mode that Pillow converts an image to."""


def image_decoder(stream: Array, *, pixel_format: str) -> Array:
    """ImageDecoder, with Pillow.

    Args:
        stream: the bytes of an image file.
        pixel_format: ``RGB``, ``BGR`` or ``Grayscale``.

    Returns:
        (height, width, channels); (0, 0, 0) for what is no image, as the text asks.
    """
    if pixel_format not in _PIXEL_FORMATS:
        raise InvalidValueError(f"pixel_format is {pixel_format!r}; allowed: {', '.join(_PIXEL_FORMATS)}", attribute="pixel_format")
    try:
        image = importlib.import_module("PIL.Image")
    except ImportError as error:
        raise UnsupportedError("Pillow decodes images, and is not installed") from error
    try:
        pixels = np.array(image.open(io.BytesIO(stream.tobytes())).convert(_PIXEL_FORMATS[pixel_format]))
    except (OSError, SyntaxError, ValueError):
        return np.empty((0, 0, 0), np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return np.ascontiguousarray(pixels[:, :, ::-1]) if pixel_format == "BGR" else pixels


LEAVES: tuple[Leaf, ...] = (
    Leaf("GridSample", (16, 20, 22), grid_sample),
    Leaf("AffineGrid", (20,), affine_grid),
    Leaf("NonMaxSuppression", (10, 11), non_max_suppression),
    Leaf("ImageDecoder", (20,), image_decoder),
)
