"""The type to compute in."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbaops.dtypes import element_type
from numbaops.errors import InvalidTypeError
from numbaops.ops.base import Array

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_STAGES = (1, 10, 11, 16)


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
