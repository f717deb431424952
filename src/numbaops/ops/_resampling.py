"""What operators share that sample a tensor between its elements: Resize, Upsample and GridSample."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from numbaops.dtypes import of_dtype
from numbaops.errors import InvalidTypeError

Array = npt.NDArray[Any]


def weighted_type(dtype: np.dtype[Any], mode: str) -> np.dtype[Any]:
    """The type in which weighted sums of elements are computed: float for the narrow floats, double for integers.

    Raises:
        InvalidTypeError: strings cannot be weighed.
    """
    if dtype.kind in "OUS":
        raise InvalidTypeError(f"the input has element type string; allowed in mode {mode!r}: numbers and bool", attribute="mode")
    if dtype.kind == "c" or dtype == np.float64:
        return dtype
    return np.dtype(np.float64 if dtype.kind in "iub" else np.float32)


def as_output(values: Array, dtype: np.dtype[Any]) -> Array:
    """Weighted sums as elements of the output: beyond an integer's range its limits, fractions cut off, bool by rounding."""
    if dtype.kind == "b":
        return np.asarray(values > 0.5)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        # the largest double below the limit: the limits of 64 bits are none themselves
        values = np.clip(values, float(limits.min), np.nextafter(limits.max + 1.0, 0.0))
    return values.astype(dtype, copy=False)


def cubic_weights(distance: Array, a: float) -> Array:
    """Keys' cubic convolution, equation (4) of https://ieeexplore.ieee.org/document/1163711, by the distance from a sample."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def type_name(array: Array) -> str:
    """For error messages."""
    return str(of_dtype(array.dtype))
