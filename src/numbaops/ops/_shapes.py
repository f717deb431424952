"""Operators that give another shape to the same elements: Reshape, Flatten, Squeeze and Unsqueeze.

https://onnx.ai/onnx/operators/onnx__Reshape.html, onnx__Flatten.html, onnx__Squeeze.html, onnx__Unsqueeze.html
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from numbaops.errors import InvalidValueError, NumbaopsError
from numbaops.ops._axes import integers, normalized_axes, normalized_axis
from numbaops.ops.base import Array

_Function = Callable[..., Any]
ALL = slice(None)


class Reshape:
    """Reshape: a view of the other shape, or a copy where strides cannot express it."""

    def __init__(self, allowzero: int = 0) -> None:
        self._allowzero = allowzero

    def __call__(self, data: Array, shape: Array) -> Array:
        """The output."""
        return _reshaped(data, integers(shape, "shape"), self._allowzero)

    def prepared(self, data: Any, shape: Any) -> _Function | None:
        """The same for a known shape."""
        dims = known_integers(shape, "shape")
        if dims is None or min(dims, default=0) < -1 or (0 in dims and not self._allowzero):
            return None
        fixed = tuple(dims)

        def call(data: Array, shape: Array) -> Array:
            try:
                return data.reshape(fixed)
            except ValueError:
                return self(data, shape)  # which says what is wrong

        return call


def reshape_to_attribute(shape: Sequence[int] = (), consumed_inputs: Sequence[int] = ()) -> _Function:
    """Reshape-1, whose shape is an attribute."""
    return lambda data: _reshaped(data, list(shape), 0)


def _reshaped(data: Array, shape: list[int], allowzero: int) -> Array:
    dims = shape
    if 0 in shape and not allowzero:
        if 0 in shape[data.ndim :]:
            raise InvalidValueError(
                f"shape is {shape}, where a 0 stands for a dimension of the input, whose shape is {list(data.shape)}", attribute="shape"
            )
        dims = [size or data.shape[position] if position < data.ndim else size for position, size in enumerate(shape)]
    try:
        if min(dims, default=0) < -1:  # for which NumPy takes any negative number for a -1
            raise ValueError
        return data.reshape(dims)
    except ValueError:
        raise InvalidValueError(
            f"shape is {shape} for an input of shape {list(data.shape)}; allowed: as many elements, and at most one -1", attribute="shape"
        ) from None


def flatten(axis: int) -> _Function:
    """Flatten: a matrix whose rows are the dimensions before ``axis``."""

    def call(data: Array) -> Array:
        if not -data.ndim <= axis <= data.ndim:
            raise InvalidValueError(f"axis is {axis}; allowed: {-data.ndim} to {data.ndim} for rank {data.ndim}", attribute="axis")
        return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))

    return call


class Squeeze:
    """Squeeze: without the given dimensions of size 1, or without all of them."""

    def __call__(self, data: Array, axes: Array | None = None) -> Array:
        """The output."""
        return data.squeeze() if axes is None else _squeezed(data, tuple(integers(axes, "axes")))

    def prepared(self, data: Any, axes: Any = None) -> _Function | None:
        """The same for known axes."""
        known = known_integers(axes, "axes")
        if known is None:
            return None
        fixed = tuple(known)
        return lambda data, axes: _squeezed(data, fixed)


def squeeze_by_attribute(axes: Sequence[int] = ()) -> _Function:
    """Squeeze before 13, whose axes are an attribute; an empty one counts as absent."""
    if not axes:
        return Squeeze()
    fixed = tuple(axes)
    return lambda data: _squeezed(data, fixed)


def _squeezed(data: Array, axes: tuple[int, ...]) -> Array:
    try:
        return data.squeeze(axes)
    except ValueError:
        raise InvalidValueError(
            f"axes are {list(axes)} for an input of shape {list(data.shape)}; allowed: dimensions of size 1, each once", attribute="axes"
        ) from None


class Unsqueeze:
    """Unsqueeze: with dimensions of size 1 inserted at the given axes of the result, in whatever order they come."""

    def __call__(self, data: Array, axes: Array) -> Array:
        """The output."""
        return data[_with_ones(data.ndim, integers(axes, "axes"))]  # type: ignore[no-any-return]

    def prepared(self, data: Any, axes: Any) -> _Function | None:
        """The same for known axes."""
        known = known_integers(axes, "axes")
        return None if known is None else by_rank(lambda rank: _with_ones(rank, known))


def unsqueeze_by_attribute(axes: Sequence[int]) -> _Function:
    """Unsqueeze before 13, whose axes are an attribute."""
    return by_rank(lambda rank: _with_ones(rank, axes))


def _with_ones(rank: int, axes: Sequence[int]) -> tuple[Any, ...]:
    """What to index an array of that rank with."""
    if len(axes) == 1:
        return (*(ALL,) * normalized_axis(axes[0], rank + 1), None, ...)
    index: list[Any] = [ALL] * rank
    for axis in sorted(normalized_axes(axes, rank + len(axes))):
        index.insert(axis, None)
    return (*index, ...)


def by_rank(index_of: Callable[[int], tuple[Any, ...]]) -> _Function:
    """What indexes its first input, with the index for its rank, which is kept: 0.25 us a call."""
    kept: dict[int, tuple[Any, ...]] = {}

    def call(data: Array, *known: Any) -> Array:
        index = kept.get(data.ndim)
        if index is None:
            index = kept[data.ndim] = index_of(data.ndim)
        return data[index]  # type: ignore[no-any-return]

    return call


def known_integers(values: Any, what: str) -> list[int] | None:
    """The numbers in an input that is known beforehand; None if it is not, is left out, or is wrong, which the run will say."""
    if values is ... or values is None:
        return None
    try:
        return integers(values, what)
    except NumbaopsError:
        return None
