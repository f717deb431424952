"""Normalizations over the last axes: LayerNormalization and RMSNormalization."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._axes import normalized_axis
from numbaops.ops._precision import rounded, stage_dtype, working_dtype
from numbaops.ops._rows import SOURCES, kernels_for, normalized
from numbaops.ops._statistics import mean_over, runs_of_axes, standardized, stashed
from numbaops.ops.base import Array

_quiet = np.errstate(all="ignore")


def _broadcast(parameter: Array, name: str, x: Array, dtype: np.dtype[Any]) -> Array:
    """A parameter that broadcasts to ``x``, in the type to compute in."""
    unfit = parameter.ndim > x.ndim or any(size not in (1, full) for size, full in zip(parameter.shape[::-1], x.shape[::-1], strict=False))
    if unfit:
        raise InvalidValueError(f"{name} has shape {list(parameter.shape)}; allowed: one that broadcasts to {list(x.shape)}")
    return parameter.astype(dtype, copy=False)


def _for_each(parameter: Array, shape: tuple[int, ...]) -> Array | None:
    """A parameter that broadcasts, as one number for each element of a row of that shape; None if rows have others each."""
    if parameter.shape == shape:
        return parameter.reshape(-1)
    rank = len(shape)
    if parameter.size != math.prod(parameter.shape[-rank:]):
        return None
    return np.broadcast_to(parameter.reshape(parameter.shape[-rank:]), shape).reshape(-1)


def _normalized_rows(x: Array, axis: int, scale: Array, bias: Array | None, epsilon: float, centred: bool) -> tuple[Array, ...] | None:
    """``x`` normalized along the axes from one on, the means and the variances, by a kernel; None where NumPy is to serve."""
    if kernels_for(x, SOURCES) is None:
        return None
    factors, summands = _for_each(scale, x.shape[axis:]), None if bias is None else _for_each(bias, x.shape[axis:])
    if factors is None or (summands is None and bias is not None):
        return None
    return normalized(x, runs_of_axes(x, axis), factors, summands, epsilon, centred=centred, each=True)


@_quiet
def layer_normalization(
    x: Array, scale: Array, bias: Array | None = None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array, Array, Array]:
    """LayerNormalization: standardized in the precision of ``stash_type``, then scaled and shifted.

    The text rounds to the type of X in between; as in ONNX Runtime, that is left to the end.

    https://onnx.ai/onnx/operators/onnx__LayerNormalization.html

    Returns:
        Y, and the mean and the inverse standard deviation in the type of ``stash_type``.
    """
    stash, axis, dtype = stage_dtype(stash_type, "stash_type"), normalized_axis(axis, x.ndim), working_dtype(x, scale, bias)
    scale, bias = _broadcast(scale, "Scale", x, dtype), None if bias is None else _broadcast(bias, "B", x, dtype)
    found = _normalized_rows(x, axis, scale, bias, epsilon, True) if stash == dtype == np.float32 else None
    if found is not None:
        mean, variance = (each.reshape(*x.shape[:axis], *(1,) * (x.ndim - axis)) for each in found[1:])
        return found[0], mean, 1 / np.sqrt(variance + np.float32(epsilon))
    source = stashed(x, stash)
    y, mean, inverse = standardized(source.astype(working_dtype(source), copy=False), range(axis, x.ndim), epsilon)
    y = rounded(y, source.dtype).astype(dtype, copy=False)
    y *= scale
    if bias is not None:
        y += bias
    return y.astype(x.dtype, copy=False), mean.astype(stash, copy=False), inverse.astype(stash, copy=False)


@_quiet
def rms_normalization(x: Array, scale: Array, *, axis: int, epsilon: float, stash_type: int) -> Array:
    """RMSNormalization: divided by the root mean square in the precision of ``stash_type``, then scaled.

    https://onnx.ai/onnx/operators/onnx__RMSNormalization.html

    Returns:
        An array of the type of ``scale``.
    """
    stash, axis, dtype = stage_dtype(stash_type, "stash_type"), normalized_axis(axis, x.ndim), working_dtype(x, scale)
    factors = _broadcast(scale, "scale", x, dtype)
    if scale.dtype == x.dtype and stash == dtype == np.float32:
        found = _normalized_rows(x, axis, factors, None, epsilon, False)
        if found is not None:
            return found[0]
    source = stashed(x, stash)
    wide = source.astype(working_dtype(source), copy=False)
    square = mean_over(wide * wide, range(axis, x.ndim))
    y = wide / np.sqrt(square + wide.dtype.type(epsilon))
    y = rounded(y, source.dtype)
    if x.itemsize < scale.itemsize:  # else the last rounding includes this one, as in ONNX Runtime
        y = rounded(y, x.dtype)
    y = y.astype(dtype, copy=False)
    y *= factors
    return y.astype(scale.dtype, copy=False)
