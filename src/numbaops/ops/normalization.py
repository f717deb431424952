"""Normalizations, the Softmax family, and Dropout.

Statistics are computed as a mean and the mean of squared deviations, never as a difference of two large means, in float32 or float64.
Kernels normalize float32 and the 16-bit types run by run, while a run is in the cache; NumPy serves for float64 and for small arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._axes import normalized_axes, normalized_axis
from numbaops.ops._dropout import dropout_1, dropout_7, dropout_10, dropout_12
from numbaops.ops._layer_normalization import layer_normalization, rms_normalization
from numbaops.ops._precision import rounded, stage_dtype, working_dtype
from numbaops.ops._rows import Runs, folded, normalized, scaled
from numbaops.ops._softmax import hardmax_1, hardmax_13, log_softmax_1, log_softmax_13, softmax_1, softmax_13
from numbaops.ops._statistics import centred, runs_of_axes, standardized, stashed
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf

_quiet = np.errstate(all="ignore")

MVN_EPSILON = 1e-9
"""Added to the standard deviation by the function with which ONNX defines MeanVarianceNormalization."""


def _per_channel(parameter: Array, name: str, x: Array, dtype: np.dtype[Any]) -> Array:
    """A parameter of one element a channel, shaped so that it broadcasts to ``x``; of rank 1, ``x`` is one channel."""
    channels = x.shape[1] if x.ndim > 1 else 1
    if parameter.shape != (channels,):
        raise InvalidValueError(f"{name} has shape {list(parameter.shape)} for an input of shape {list(x.shape)}; allowed: [{channels}]")
    return parameter.astype(dtype, copy=False).reshape(channels, *(1,) * (x.ndim - 2))


def _runs_of_channels(x: Array) -> Runs:
    """Each channel, through all images."""
    channels, plane = x.shape[1], math.prod(x.shape[2:])
    return Runs(channels, plane, len(x), channels * plane, plane, 1)


def _check_has_channels(x: Array) -> None:
    if x.ndim < 2:
        raise InvalidValueError(f"the input has shape {list(x.shape)}; allowed: [N, C, ...]")


@_quiet
def _batch_normalization(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float, momentum: float, training: bool, spatial: bool
) -> tuple[Array, ...]:
    """Y; if in training also the running and the saved mean and variance, population statistics all."""
    if x.ndim < 1:
        raise InvalidValueError("X has rank 0; allowed: [N], or [N, C, ...]")
    dtype = working_dtype(x, scale, bias, mean, var)
    # before version 7 the text gives the parameters one element a channel even where statistics are per activation
    scale, bias, used_mean, used_var = (
        each.astype(dtype) if not spatial and each.shape == x.shape[1:] else _per_channel(each, name, x, dtype)
        for name, each in (("scale", scale), ("B", bias), ("mean", mean), ("var", var))
    )
    usual = spatial and x.ndim > 1 and dtype == np.float32
    statistics: tuple[Array, ...] = ()
    if training:
        found = normalized(x, _runs_of_channels(x), scale, bias, epsilon) if usual else None
        if found is None:
            axes = [axis for axis in range(x.ndim) if axis != 1] if spatial else [0]
            y, batch_mean, batch_var = (
                each[0] if number else each for number, each in enumerate(centred(x.astype(dtype, copy=False), axes))
            )
            y *= scale / np.sqrt(batch_var + dtype.type(epsilon))
            y += bias
        else:
            y, batch_mean, batch_var = found[0], *(each.reshape(scale.shape) for each in found[1:])
        keep, take = dtype.type(momentum), dtype.type(1 - momentum)
        running_mean, running_var = used_mean * keep + batch_mean * take, used_var * keep + batch_var * take
        shaped = zip((running_mean, running_var, batch_mean, batch_var), (mean, var, mean, var), strict=True)
        statistics = tuple(
            value.reshape(like.shape if value.size == like.size else value.shape).astype(like.dtype) for value, like in shaped
        )
    else:
        factor = scale / np.sqrt(used_var + dtype.type(epsilon))
        known = scaled(x, used_mean, factor, bias) if usual else None
        if known is not None:
            return (known,)
        y = x.astype(dtype, copy=False) - used_mean
        y *= factor
        y += bias
    return y.astype(x.dtype, copy=False), *statistics


def batch_normalization_1(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float,
    momentum: float,
    is_test: int,
    spatial: int,
    consumed_inputs: Sequence[int] = (),
) -> tuple[Array, ...]:
    """BatchNormalization 1 and 6, in training unless ``is_test``.

    https://onnx.ai/onnx/operators/onnx__BatchNormalization.html

    Returns:
        Y, and in training the running mean and variance, and those of the batch.
    """
    return _batch_normalization(x, scale, bias, mean, var, epsilon, momentum, not is_test, bool(spatial))


def batch_normalization_7(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, *, epsilon: float, momentum: float, spatial: int = 1, outputs: int
) -> tuple[Array, ...]:
    """BatchNormalization 7 and 9, in training if all five outputs are asked for.

    Without ``spatial`` (7) every activation has statistics of its own: the parameters have shape ``(C, D1, ..., Dn)``.
    """
    return _batch_normalization(x, scale, bias, mean, var, epsilon, momentum, outputs > 1, bool(spatial))


def batch_normalization_14(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, *, epsilon: float, momentum: float, training_mode: int
) -> tuple[Array, ...]:
    """BatchNormalization 14 and 15: Y, and in training the running mean and variance."""
    return _batch_normalization(x, scale, bias, mean, var, epsilon, momentum, bool(training_mode), True)[:3]


@_quiet
def scale_and_shift(
    attributes: Mapping[str, Any], since_version: int | None, parameters: Sequence[Array], count: int
) -> tuple[Array, Array] | None:
    """What BatchNormalization of some version does to each of ``count`` channels: a factor and a summand, float64.

    None if it trains, has statistics for each activation, or parameters of another shape.
    """
    trains = attributes.get("training_mode", 0) or (since_version in (1, 6) and not attributes.get("is_test"))
    if trains or not attributes.get("spatial", 1) or any(each.shape != (count,) for each in parameters):
        return None
    scale, bias, mean, var = (each.astype(np.float64) for each in parameters)
    factor = scale / np.sqrt(var + attributes["epsilon"])
    return factor, bias - mean * factor


@_quiet
def instance_normalization(x: Array, scale: Array, bias: Array, *, epsilon: float, consumed_inputs: Sequence[int] = ()) -> Array:
    """InstanceNormalization: statistics per instance and channel.

    https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html
    """
    _check_has_channels(x)
    dtype = working_dtype(x, scale, bias)
    scale, bias = _per_channel(scale, "scale", x, dtype), _per_channel(bias, "B", x, dtype)
    found = normalized(x, runs_of_axes(x, 2), scale, bias, epsilon) if dtype == np.float32 else None
    if found is not None:
        return found[0]
    y, _, _ = standardized(x.astype(dtype, copy=False), range(2, x.ndim), epsilon)
    y *= scale
    y += bias
    return y.astype(x.dtype, copy=False)


def _groups(x: Array, num_groups: int) -> tuple[int, int, int]:
    """The shape that has a group in each row."""
    _check_has_channels(x)
    if num_groups < 1 or x.shape[1] % num_groups:
        raise InvalidValueError(f"num_groups is {num_groups}; allowed: a divisor of the {x.shape[1]} channels", attribute="num_groups")
    return len(x), num_groups, x.size // (len(x) * num_groups) if x.size else 0


@_quiet
def group_normalization_18(x: Array, scale: Array, bias: Array, *, epsilon: float, num_groups: int) -> Array:
    """GroupNormalization 18, with a scale and a bias for each group.

    https://onnx.ai/onnx/operators/onnx__GroupNormalization.html
    """
    return instance_normalization(x.reshape(_groups(x, num_groups)), scale, bias, epsilon=epsilon).reshape(x.shape)


@_quiet
def group_normalization_21(x: Array, scale: Array, bias: Array, *, epsilon: float, num_groups: int, stash_type: int) -> Array:
    """GroupNormalization 21, with a scale and a bias for each channel; ``stash_type`` is the type to standardize in."""
    stash, dtype = stage_dtype(stash_type, "stash_type"), working_dtype(x, scale, bias)
    rows = x.reshape(_groups(x, num_groups))
    scale, bias = _per_channel(scale, "scale", x, dtype), _per_channel(bias, "bias", x, dtype)
    if stash == dtype == np.float32:
        channels, plane = x.shape[1] // num_groups, math.prod(x.shape[2:])
        runs = Runs(len(x) * num_groups, channels * plane, channels, plane, plane, channels, 1)
        found = normalized(x, runs, scale, bias, epsilon)
        if found is not None:
            return found[0]
    source = stashed(rows, stash)
    y = standardized(source.astype(working_dtype(source), copy=False), (2,), epsilon)[0].reshape(x.shape)
    y = rounded(y, source.dtype).astype(dtype, copy=False)
    y *= scale
    y += bias
    return y.astype(x.dtype, copy=False)


@_quiet
def lp_normalization(x: Array, *, axis: int, p: int) -> Array:
    """LpNormalization: zero where the norm is zero.

    https://onnx.ai/onnx/operators/onnx__LpNormalization.html
    """
    if p not in (1, 2):
        raise InvalidValueError(f"p is {p}; allowed: 1, 2", attribute="p")
    axis = normalized_axis(axis, x.ndim)
    wide = x.astype(working_dtype(x), copy=False)
    known = folded(x, (axis,), "absolute" if p == 1 else "square")
    if known is None:
        total = np.add.reduce(np.abs(wide) if p == 1 else wide * wide, axis, keepdims=True)
    else:
        total = np.expand_dims(known.astype(np.float32), axis)
    norm = total if p == 1 else np.sqrt(total)
    norm[norm == 0] = 1  # all elements are zero there
    return (wide / norm).astype(x.dtype, copy=False)


@_quiet
def mean_variance_normalization(x: Array, *, axes: Sequence[int]) -> Array:
    """MeanVarianceNormalization: ``(X - EX) / sqrt(E(X - EX)^2)``.

    https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html
    """
    chosen = normalized_axes(axes, x.ndim)
    kept = [axis for axis in range(x.ndim) if axis not in chosen]
    runs = _runs_of_channels(x) if kept == [1] else runs_of_axes(x, len(kept)) if kept == list(range(len(kept))) else None
    found = normalized(x, runs, None, None, 0, beyond=MVN_EPSILON) if runs is not None else None
    if found is not None:
        return found[0]
    y, _, variance = centred(x.astype(working_dtype(x), copy=False), chosen)
    y /= np.sqrt(variance) + y.dtype.type(MVN_EPSILON)
    return y.astype(x.dtype, copy=False)


@_quiet
def lrn(x: Array, *, alpha: float, beta: float, bias: float, size: int) -> Array:
    """LRN: over the ``size`` channels around each, of which an even size has one more after than before.

    https://onnx.ai/onnx/operators/onnx__LRN.html
    """
    _check_has_channels(x)
    if size < 1:
        raise InvalidValueError(f"size is {size}; allowed: 1 and more", attribute="size")
    wide = x.astype(working_dtype(x), copy=False)
    square, channels = wide * wide, x.shape[1]
    total = np.array(square)
    for shift in range(1, min(size // 2, channels - 1) + 1):
        total[:, :-shift] += square[:, shift:]
    for shift in range(1, min((size - 1) // 2, channels - 1) + 1):
        total[:, shift:] += square[:, :-shift]
    total *= total.dtype.type(alpha / size)
    total += total.dtype.type(bias)
    if beta == 0.75:  # as most have it; roots take a third of the time
        np.sqrt(total, out=total)
        total *= np.sqrt(total)
    else:
        np.power(total, total.dtype.type(beta), out=total)
    np.divide(wide, total, out=total)
    return total.astype(x.dtype, copy=False)


LEAVES: tuple[Leaf, ...] = (
    Leaf("BatchNormalization", (1, 6), batch_normalization_1),
    Leaf("BatchNormalization", (7, 9), batch_normalization_7),
    Leaf("BatchNormalization", (14, 15), batch_normalization_14),
    Leaf("InstanceNormalization", (1, 6, 22), instance_normalization),
    Leaf("GroupNormalization", (18,), group_normalization_18),
    Leaf("GroupNormalization", (21,), group_normalization_21),
    Leaf("LayerNormalization", (17,), layer_normalization),
    Leaf("RMSNormalization", (23,), rms_normalization),
    Leaf("LpNormalization", (1, 22), lp_normalization),
    Leaf("MeanVarianceNormalization", (9, 13), mean_variance_normalization),
    Leaf("LRN", (1, 13), lrn),
    Leaf("Softmax", (1, 11), softmax_1),
    Leaf("Softmax", (13,), softmax_13),
    Leaf("LogSoftmax", (1, 11), log_softmax_1),
    Leaf("LogSoftmax", (13,), log_softmax_13),
    Leaf("Hardmax", (1, 11), hardmax_1),
    Leaf("Hardmax", (13,), hardmax_13),
    Leaf("Dropout", (1, 6), dropout_1, aliases=True),
    Leaf("Dropout", (7,), dropout_7, aliases=True),
    Leaf("Dropout", (10,), dropout_10, aliases=True),
    Leaf("Dropout", (12, 13, 22), dropout_12, aliases=True),
)
