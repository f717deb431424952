"""Convolutions of quantised elements: ConvInteger and QLinearConv."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._convolving import add_bias, convolved, windows_of
from numbaops.ops._direct import Convolution, direct, few_windows
from numbaops.ops._precision import check_same_type
from numbaops.ops._products import EXACT, limit_of
from numbaops.ops._windows import Axis
from numbaops.ops.base import Array


def _less_zero_point(x: Array, zero_point: Array | None, what: str, channels: bool = False) -> Array:
    """Quantised elements less their zero point, as float32, which holds them all."""
    wide = x.astype(np.float32)
    if zero_point is not None:
        check_same_type(x, zero_point)
        wide -= _per_channel(zero_point, x, what, channels).astype(np.float32)
    return wide


def _per_channel(values: Array, x: Array, what: str, channels: bool = True) -> Array:
    """A scale or a zero point, ready to go with an array whose first axis has the channels; one number serves all."""
    if values.size == 1:
        return values.astype(np.float64).reshape(())
    came = f"it has shape {list(values.shape)}"
    if not channels:
        raise InvalidValueError(f"{what} must be a scalar; {came}", attribute=what)
    if values.ndim != 1:
        raise InvalidValueError(f"{what} must be a scalar or a 1-D tensor; {came}", attribute=what)
    if values.size != len(x):
        raise InvalidValueError(f"{what} elements must match output channels, of which there are {len(x)}; {came}", attribute=what)
    return values.astype(np.float64).reshape(-1, *(1,) * (x.ndim - 1))


def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **attributes: Any,
) -> Array:
    """ConvInteger: Conv of quantised elements less their zero points, to int32, of which the low bits are kept."""
    axes = windows_of(x, w, kernel_shape, group, attributes)
    return _sums_of_integers(x, w, x_zero_point, w_zero_point, axes, group)


def _sums_of_integers(
    x: Array, w: Array, x_zero_point: Array | None, w_zero_point: Array | None, axes: tuple[Axis, ...], group: int
) -> Array:
    """The windows of quantised elements times quantised weights, both less their zero points, as int32."""
    wide_x, wide_w = _less_zero_point(x, x_zero_point, "x_zero_point"), _less_zero_point(w, w_zero_point, "w_zero_point", True)
    sums = integers_convolved(wide_x, wide_w, axes, group, limit_of(x, x_zero_point) * limit_of(w, w_zero_point))
    if sums is None:  # float64 holds the sums, and BLAS takes it
        sums = convolved(wide_x.astype(np.float64), wide_w.astype(np.float64), axes, group).astype(np.int64).astype(np.int32)
    return sums


@np.errstate(all="ignore")
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    bias: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **attributes: Any,
) -> Array:
    """QLinearConv: ConvInteger with an int32 bias, quantised again: scaled, rounded to even, the zero point added, saturated."""
    axes = windows_of(x, w, kernel_shape, group, attributes)
    result = _sums_of_integers(x, w, x_zero_point, w_zero_point, axes, group).astype(np.float64)
    add_bias(result, bias)
    y_scale, x_scale = _per_channel(y_scale, w, "y_scale", False), _per_channel(x_scale, w, "x_scale", False)
    result *= (x_scale * _per_channel(w_scale, w, "w_scale") / y_scale).reshape(-1, *(1,) * (result.ndim - 2))
    result = np.rint(result) + _per_channel(y_zero_point, w, "y_zero_point", False)
    limits = np.iinfo(y_zero_point.dtype)
    # fmax, for NaN gives the lowest value, as QuantizeLinear has it
    return np.fmin(np.fmax(result, limits.min), limits.max).astype(y_zero_point.dtype)


def integers_convolved(x: Array, w: Array, axes: tuple[Axis, ...], group: int, limit: int) -> Array | None:
    """The convolution of integers, given as float32, modulo 2**32; None where the kernel does not serve.

    Args:
        x: ``[N, C, D1, ...]``.
        w: ``[M, C / group, k1, ...]``.
        axes: the windows.
        group: groups of channels.
        limit: what the product of an element of ``x`` and one of ``w`` does not exceed.
    """
    each = EXACT // max(1, limit) // max(1, math.prod(w.shape[2:]))  # channels of which sums are exact
    if not each or not direct(x, w, axes):
        return None
    channels = w.shape[1]
    total: Array | None = None
    grouped = x.reshape(len(x), group, channels, *x.shape[2:])
    for start in range(0, channels, each):
        part = x if each >= channels else grouped[:, :, start : start + each].reshape(len(x), -1, *x.shape[2:])
        found = Convolution(w[:, start : start + each], None, group, few_windows(axes))(part, axes).astype(np.int32)
        total = found if total is None else np.add(total, found, out=total)
    return total
