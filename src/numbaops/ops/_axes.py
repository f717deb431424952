"""Axes as ONNX gives them: negative ones count from the back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from numbaops.errors import InvalidTypeError, InvalidValueError


def normalized_axis(axis: int, rank: int) -> int:
    """The axis as a number from 0 to ``rank - 1``.

    Raises:
        InvalidValueError: a tensor of that rank has no such axis.
    """
    if -rank <= axis < rank:
        return axis + rank if axis < 0 else axis
    raise InvalidValueError(f"axis is {axis}; allowed: {axis_range(rank)}", attribute="axis")


def normalized_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """The axes, in their order, as numbers from 0 to ``rank - 1``.

    Args:
        axes: a list, or a tensor of rank 1.
        rank: the tensor's rank.

    Raises:
        InvalidValueError: a tensor of that rank has no such axis, or an axis is repeated.
    """
    given = axes.tolist() if isinstance(axes, np.ndarray) else list(axes)
    for axis in given:
        if not -rank <= axis < rank:
            raise InvalidValueError(f"axes are {given}; allowed: {axis_range(rank)}", attribute="axes")
    found = tuple(axis + rank if axis < 0 else axis for axis in given)
    if len(set(found)) < len(found):
        raise InvalidValueError(f"axes are {given} of {rank} dimensions; allowed: every axis once", attribute="axes")
    return found


def axis_range(rank: int) -> str:
    """For error messages: the axes of a tensor of that rank."""
    return f"{-rank} to {rank - 1} for a tensor of rank {rank}" if rank else "none for a tensor of rank 0"


def integers(values: Any, what: str) -> list[int]:
    """The elements of an attribute, or of a tensor of integers of rank 0 or 1.

    Args:
        values: a list or an array.
        what: its name, for errors.

    Raises:
        InvalidTypeError: the array holds other things than integers.
        InvalidValueError: the array's rank is above 1.
    """
    if not isinstance(values, np.ndarray):
        return list(values)
    if values.ndim == 1 and values.dtype.kind in "iu":
        return values.tolist()  # type: ignore[no-any-return]
    if values.ndim > 1:
        raise InvalidValueError(f"{what} has the shape {list(values.shape)}; allowed: rank 1", attribute=what)
    if values.dtype.kind not in "iu" and values.size:
        raise InvalidTypeError(f"{what} has element type {values.dtype}; allowed: int32 and int64", attribute=what)
    return values.reshape(-1).tolist()


def single_integer(values: Any, what: str) -> int:
    """The one element of an attribute, or of a tensor of one integer, of rank 0 or more.

    Args:
        values: an int or an array.
        what: its name, for errors.

    Raises:
        InvalidTypeError: the array holds other things than integers.
        InvalidValueError: the array holds none or several elements.
    """
    if isinstance(values, np.ndarray):
        if values.size != 1:
            raise InvalidValueError(f"{what} has the shape {list(values.shape)}; allowed: one element", attribute=what)
        if values.dtype.kind not in "iu":
            raise InvalidTypeError(f"{what} has element type {values.dtype}; allowed: int32 and int64", attribute=what)
        return int(values.item())
    return int(values)
