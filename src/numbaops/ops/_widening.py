"""float16 and bfloat16 are computed in float32 and rounded once, at the end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from numbaops.ops.base import Array

HALVES = frozenset((np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)))


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for the 16-bit floats, and any other type itself."""
    return np.dtype(np.float32) if dtype in HALVES else dtype


def widened(x: Array) -> Array:
    """The array in its ``wide_dtype``."""
    return x.astype(np.float32) if x.dtype in HALVES else x


def narrowed(x: Array, dtype: np.dtype[Any]) -> Array:
    """The array in the given type; itself where it has that."""
    return x if x.dtype == dtype else x.astype(dtype)


def rounding_once(function: Callable[..., Array]) -> Callable[..., Array]:
    """For a function whose result has the type of its first input: it gets its inputs wide."""

    @functools.wraps(function)
    def call(x: Array, *others: Array, **attributes: Any) -> Array:
        if x.dtype not in HALVES:
            return narrowed(function(x, *others, **attributes), x.dtype)
        return function(x.astype(np.float32), *map(widened, others), **attributes).astype(x.dtype)

    return call
