"""The type to compute in: float16 and bfloat16 are computed in float32 and rounded once, at the end."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from numbaops.casting import cast
from numbaops.dtypes import element_type
from numbaops.errors import InvalidTypeError
from numbaops.ops.base import Array

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_STAGES = (1, 10, 11, 16)


HALVES = frozenset((np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)))


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for the 16-bit floats, and any other type itself."""
    return np.dtype(np.float32) if dtype in HALVES else dtype


def widened(x: Array) -> Array:
    """The array in its ``wide_dtype``."""
    return cast(x, _FLOAT32) if x.dtype in HALVES else x  # type: ignore[return-value]


def narrowed(x: Array, dtype: np.dtype[Any]) -> Array:
    """The array in the given type; itself where it has that. What is beyond the type becomes infinite, without a warning."""
    if x.dtype == dtype:
        return x
    if dtype in HALVES and x.dtype == _FLOAT32:
        return cast(x, dtype)  # type: ignore[return-value]
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def working_dtype(*arrays: Array | None) -> np.dtype[Any]:
    """float64 if one of the arrays is of that type, else float32: narrower floats are rounded once, at the end."""
    return _FLOAT64 if any(array is not None and array.dtype == _FLOAT64 for array in arrays) else _FLOAT32


def stage_dtype(code: int, attribute: str) -> np.dtype[Any]:
    """The type of a stage whose precision an attribute gives by number.

    Raises:
        InvalidTypeError: it is none of float, float16, double and bfloat16.
    """
    if code not in _STAGES:
        raise InvalidTypeError(f"{attribute} is {code}; allowed: 1 (float), 10 (float16), 11 (double), 16 (bfloat16)", attribute=attribute)
    return element_type(code).dtype


def rounded(wide: Array, dtype: np.dtype[Any]) -> Array:
    """``wide`` rounded to a narrower type, still in a type to compute in."""
    return wide if dtype.itemsize >= wide.dtype.itemsize else wide.astype(dtype).astype(wide.dtype)


def check_same_type(first: Array, *others: Array) -> None:
    """Refuse inputs of several element types where the operator has one for all.

    Raises:
        InvalidTypeError: they differ.
    """
    for each in others:
        if each.dtype != first.dtype:
            raise InvalidTypeError(f"the element types are {first.dtype} and {each.dtype}; allowed: equal ones")
