"""Pad and CenterCropPad: dimensions made longer or shorter at either end.

https://onnx.ai/onnx/operators/onnx__Pad.html, onnx__CenterCropPad.html
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._axes import integers, normalized_axes
from numbaops.ops.base import Array

_MOST_SHAPES = 64
"""Shapes for which it is kept what pads mean."""

_MODES = ("constant", "reflect", "edge", "wrap")


class Pad:
    """Pad: elements added, or removed where their number is negative, at both ends of the given dimensions or of all."""

    def __init__(self, mode: str = "constant") -> None:
        _check_mode(mode)
        self._mode = mode

    def __call__(self, data: Array, pads: Array, constant_value: Array | None = None, axes: Array | None = None) -> Array:
        """The output."""
        return _padded(data, self._recipe(data.shape, pads, axes), _constant(constant_value))

    def prepared(self, data: Any, pads: Any, constant_value: Any = None, axes: Any = None) -> Callable[..., Array] | None:
        """The same for known pads: what they mean for a shape is kept."""
        if pads is ... or axes is ...:
            return None
        kept: dict[tuple[int, ...], Recipe] = {}

        def call(data: Array, pads: Array, constant_value: Array | None = None, axes: Array | None = None) -> Array:
            recipe = kept.get(data.shape)
            if recipe is None:
                if len(kept) >= _MOST_SHAPES:
                    kept.clear()
                recipe = kept[data.shape] = self._recipe(data.shape, pads, axes)
            return _padded(data, recipe, None if constant_value is None else _constant(constant_value))

        return call

    def _recipe(self, shape: tuple[int, ...], pads: Array, axes: Array | None) -> Recipe:
        positions = range(len(shape)) if axes is None else normalized_axes(integers(axes, "axes"), len(shape))
        return _recipe(shape, tuple(integers(pads.reshape(-1), "pads")), tuple(positions), self._mode)


def _constant(value: Array | None) -> Array | None:
    if value is not None and value.size != 1:
        raise InvalidValueError(f"constant_value has the shape {list(value.shape)}; allowed: one element", attribute="constant_value")
    return value


def pad_by_attributes(
    mode: str = "constant", pads: Sequence[int] | None = None, paddings: Sequence[int] = (), value: float = 0.0
) -> Callable[..., Array]:
    """Pad before 11: the numbers are the attribute ``pads``, ``paddings`` in version 1."""
    _check_mode(mode)
    numbers = tuple(paddings if pads is None else pads)
    return lambda data: _padded(data, _recipe(data.shape, numbers, tuple(range(data.ndim)), mode), np.array(value, data.dtype))


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
        return _padded(data, _recipe(data.shape, (*before, *after), positions, "constant"), None)

    return call


def _check_mode(mode: str) -> None:
    if mode not in _MODES:
        raise InvalidValueError(f"mode is {mode!r}; allowed: {', '.join(_MODES)}", attribute="mode")


class Recipe(NamedTuple):
    """What pads mean for a shape.

    Attributes:
        shape: the output's.
        kept: what of the input stays.
        inner: where in the output that goes.
        bands: what is added, dimension by dimension, so that later ones repeat what earlier ones added: where, and what of the output
            it repeats, an index or the numbers of elements along an axis; None for the constant.
    """

    shape: tuple[int, ...]
    kept: tuple[Any, ...]
    inner: tuple[Any, ...]
    bands: tuple[tuple[tuple[Any, ...], Any, int], ...]


@functools.lru_cache(maxsize=_MOST_SHAPES)
def _recipe(shape: tuple[int, ...], pads: tuple[int, ...], axes: tuple[int, ...], mode: str) -> Recipe:
    if len(pads) != 2 * len(axes):
        raise InvalidValueError(
            f"pads are {list(pads)}; allowed: {2 * len(axes)} numbers, one for each end of {len(axes)} axes", attribute="pads"
        )
    padded = list(shape)
    kept: list[Any] = [slice(None)] * len(shape)
    inner: list[Any] = list(kept)
    bands = []
    for number, axis in enumerate(axes):
        before, after = pads[number], pads[number + len(axes)]
        size = shape[axis]
        padded[axis] = size + before + after
        if padded[axis] < 0:
            text = f"pads are {list(pads)}, which leaves less than nothing of the shape {list(shape)}"
            raise InvalidValueError(text, attribute="pads")
        kept[axis] = slice(max(-before, 0), max(size - max(-after, 0), 0))
        rest = len(range(size)[kept[axis]])
        if before > 0 or after > 0:
            # where one end takes away more than there is, the other end pads the rest
            first = min(max(before, 0), padded[axis])
            inner[axis] = slice(first, first + rest)
            if rest == 0 and mode != "constant" and padded[axis]:
                text = f"pads are {list(pads)} in mode {mode!r}, with nothing in dimension {axis} to repeat"
                raise InvalidValueError(text, attribute="pads")
            lead = (slice(None),) * axis
            for start, stop in ((0, first), (first + rest, padded[axis])):
                if start < stop:
                    source = None if mode == "constant" else _source(mode, start - first, stop - first, rest, first)
                    bands.append(((*lead, slice(start, stop)), (*lead, source) if isinstance(source, slice) else source, axis))
    return Recipe(tuple(padded), (*kept, ...), (*inner, ...), tuple(bands))


def _padded(data: Array, recipe: Recipe, constant: Array | None) -> Array:
    """A view where elements are only removed, else a new array."""
    shape, kept, inner, bands = recipe
    middle = data[kept]
    if not bands:
        return middle  # type: ignore[no-any-return]
    out = np.empty(shape, data.dtype)
    out[inner] = middle
    for band, source, axis in bands:
        if source is None:
            if constant is None:
                constant = np.array("", object) if data.dtype == object else np.zeros((), data.dtype)
            out[band] = constant.reshape(())
        else:
            out[band] = out[source] if type(source) is tuple else out.take(source, axis)
    return out


def _source(mode: str, start: int, stop: int, size: int, first: int) -> Array | slice:
    """Which elements the positions from ``start`` to ``stop`` repeat, of ``size`` that begin at ``first``; there is position 0.

    A slice where a step leads from one to the next.
    """
    positions = np.arange(start, stop)
    if mode == "edge":
        at = size - 1 if start > 0 else 0
        return slice(first + at, first + at + 1)
    if mode == "wrap" or size == 1:
        found = positions % size
    else:
        period = 2 * (size - 1)
        found = (size - 1) - np.abs(positions % period - (size - 1))
    numbers = found + first
    if stop - start <= max(size - 1, 1):  # within one period
        step = 1 if mode == "wrap" or size == 1 else -1
        end = int(numbers[-1]) + step
        return slice(int(numbers[0]), end if end >= 0 else None, step)
    return numbers
