"""Means and variances for normalizations: of squared deviations, never as a difference of two large means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.ops._rows import Runs
from numbaops.ops.base import Array


def mean_over(x: Array, axes: Sequence[int]) -> Array:
    """The mean with the axes kept as 1; NaN where there is nothing to take it of."""
    total = np.add.reduce(x, tuple(axes), keepdims=True)
    return total / x.dtype.type(x.size // total.size if total.size else 0)  # type: ignore[no-any-return]


def centred(x: Array, axes: Sequence[int]) -> tuple[Array, Array, Array]:
    """The deviations from the mean, the mean and the variance over ``axes``, which are kept as 1."""
    mean = mean_over(x, axes)
    deviation = x - mean
    return deviation, mean, mean_over(deviation * deviation, axes)


def standardized(x: Array, axes: Sequence[int], epsilon: float) -> tuple[Array, Array, Array]:
    """``(x - mean) / sqrt(variance + epsilon)``, the mean and ``1 / sqrt(variance + epsilon)``."""
    deviation, mean, variance = centred(x, axes)
    inverse = 1 / np.sqrt(variance + x.dtype.type(epsilon))
    deviation *= inverse
    return deviation, mean, inverse


def runs_of_axes(x: Array, first: int) -> Runs:
    """All that lies along the axes from one on."""
    size = math.prod(x.shape[first:])
    return Runs(math.prod(x.shape[:first]), size, 1, size, size, 1)


def stashed(x: Array, stash: np.dtype[Any]) -> Array:
    """The input of a first stage that has a precision of its own.

    float64 stays: that is what both ONNX Runtime and onnx.reference do, and ``stash_type`` is float32 unless given.
    """
    return x if x.dtype == np.float64 and stash.itemsize >= 4 else x.astype(stash, copy=False)
