"""What operators had before opset 7, and later lack."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from numbaops.errors import InvalidValueError
from numbaops.ops.base import Array

Function = Callable[..., Any]


def with_consumed_inputs(function: Function) -> Function:
    """A ``bind`` for version 1 of an operator, whose attribute ``consumed_inputs`` was a hint about memory."""

    def bind(consumed_inputs: Sequence[int] = (), **attributes: Any) -> Function:
        return functools.partial(function, **attributes) if attributes else function

    return bind


def with_limited_broadcast(function: Function) -> Function:
    """A ``bind`` for versions before 7 of a binary operator, whose second input is stretched only on demand."""

    def bind(broadcast: int = 0, axis: int | None = None, consumed_inputs: Sequence[int] = ()) -> Function:
        return lambda a, b: function(a, _aligned(a, b, broadcast, axis))

    return bind


def _aligned(a: Array, b: Array, broadcast: int, axis: int | None) -> Array:
    """The second input with ones for the dimensions that it lacks at the end."""
    if a.shape == b.shape:
        return b
    if not broadcast:
        raise InvalidValueError(
            f"the shapes are {list(a.shape)} and {list(b.shape)}; allowed: equal ones, or broadcast=1", attribute="broadcast"
        )
    if b.size == 1:
        return b.reshape(())
    start = a.ndim - b.ndim if axis is None else axis + a.ndim if axis < 0 else axis
    # A size of 1 is stretched too: so PyTorch exported it, and ONNX's own suite has it.
    sizes = a.shape[start : start + b.ndim] if start >= 0 else ()
    if len(sizes) != b.ndim or not all(size in (1, wanted) for size, wanted in zip(b.shape, sizes, strict=True)):
        where = "the end" if axis is None else f"axis {axis}"
        raise InvalidValueError(
            f"the shapes are {list(a.shape)} and {list(b.shape)}; allowed: one element, or 1 or the sizes that the first has at {where}",
            attribute="axis",
        )
    return b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim))
