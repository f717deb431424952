"""Pad and CenterCropPad: dimensions made longer or shorter at either end.

https://onnx.ai/onnx/operators/onnx__Pad.html, onnx__CenterCropPad.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._axes import integers, normalized_axes
from numbaops.ops.base import Array

_MODES = ("constant", "reflect", "edge", "wrap")


def pad(mode: str = "constant") -> Callable[..., Array]:
    """Pad: elements added, or removed where their number is negative, at both ends of the given dimensions or of all."""
    _check_mode(mode)

    def call(data: Array, pads: Array, constant_value: Array | None = None, axes: Array | None = None) -> Array:
        if constant_value is not None and constant_value.size != 1:
            raise InvalidValueError(
                f"constant_value has the shape {list(constant_value.shape)}; allowed: one element", attribute="constant_value"
            )
        positions = range(data.ndim) if axes is None else normalized_axes(integers(axes, "axes"), data.ndim)
        return _padded(data, integers(pads.reshape(-1), "pads"), positions, mode, constant_value)

    return call


def pad_by_attributes(
    mode: str = "constant", pads: Sequence[int] | None = None, paddings: Sequence[int] = (), value: float = 0.0
) -> Callable[..., Array]:
    """Pad before 11: the numbers are the attribute ``pads``, ``paddings`` in version 1."""
    _check_mode(mode)
    numbers = list(paddings if pads is None else pads)
    return lambda data: _padded(data, numbers, range(data.ndim), mode, np.array(value, data.dtype))


def center_crop_pad(axes: Sequence[int] | None = None) -> Callable[..., Array]:
    """CenterCropPad: the middle of the input, or the input in the middle of zeros; of odd numbers the larger half is at the end."""

    def call(data: Array, shape: Array) -> Array:
        wanted = integers(shape, "shape")
        positions = tuple(range(data.ndim)) if axes is None else normalized_axes(axes, data.ndim)
        if len(wanted) != len(positions) or min(wanted, default=0) < 0:
            raise InvalidValueError(f"shape is {wanted}; allowed: {len(positions)} numbers from 0 on, one an axis", attribute="shape")
        more = [size - data.shape[position] for size, position in zip(wanted, positions, strict=True)]
        before = [number // 2 if number > 0 else -(-number // 2) for number in more]
        after = [number - first for number, first in zip(more, before, strict=True)]
        return _padded(data, before + after, positions, "constant", None)

    return call


def _check_mode(mode: str) -> None:
    if mode not in _MODES:
        raise InvalidValueError(f"mode is {mode!r}; allowed: {', '.join(_MODES)}", attribute="mode")


def _padded(data: Array, pads: list[int], axes: Sequence[int], mode: str, constant: Array | None) -> Array:
    """A view where elements are only removed, else a new array."""
    if len(pads) != 2 * len(axes):
        raise InvalidValueError(
            f"pads are {pads}; allowed: {2 * len(axes)} numbers, one for each end of {len(axes)} axes", attribute="pads"
        )
    shape = list(data.shape)
    kept: list[Any] = [slice(None)] * data.ndim
    inner: list[Any] = list(kept)
    bands = []
    for number, axis in enumerate(axes):
        before, after = pads[number], pads[number + len(axes)]
        size = shape[axis]
        shape[axis] = size + before + after
        if shape[axis] < 0:
            raise InvalidValueError(f"pads are {pads}, which leaves less than nothing of the shape {list(data.shape)}", attribute="pads")
        kept[axis] = slice(max(-before, 0), max(size - max(-after, 0), 0))
        rest = len(range(size)[kept[axis]])
        if before > 0 or after > 0:
            # where one end takes away more than there is, the other end pads the rest
            first = min(max(before, 0), shape[axis])
            inner[axis] = slice(first, first + rest)
            bands.append((axis, first, rest))
            if rest == 0 and mode != "constant" and shape[axis]:
                raise InvalidValueError(f"pads are {pads} in mode {mode!r}, with nothing in dimension {axis} to repeat", attribute="pads")
    middle = data[(*kept, ...)]
    if not bands:
        return middle
    out = np.empty(shape, data.dtype)
    out[(*inner, ...)] = middle
    value: Any = ("" if data.dtype == object else np.zeros((), data.dtype)) if constant is None else constant.reshape(())
    for axis, first, rest in bands:
        # dimension by dimension, so that later ones repeat what earlier ones added
        lead = (slice(None),) * axis
        for start, stop in ((0, first), (first + rest, shape[axis])):
            if start == stop:
                continue
            band = (*lead, slice(start, stop))
            out[band] = value if mode == "constant" else out.take(_sources(mode, start - first, stop - first, rest) + first, axis)
    return out


def _sources(mode: str, start: int, stop: int, size: int) -> Array:
    """Which of ``size`` elements the positions from ``start`` to ``stop`` repeat; position 0 is the first element's own."""
    positions = np.arange(start, stop)
    if mode == "edge":
        return positions.clip(0, size - 1)
    if mode == "wrap" or size == 1:
        return positions % size
    period = 2 * (size - 1)
    return (size - 1) - np.abs(positions % period - (size - 1))
