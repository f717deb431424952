"""Softmax, LogSoftmax and Hardmax.

https://onnx.ai/onnx/operators/onnx__Softmax.html, onnx__LogSoftmax.html, onnx__Hardmax.html

Since version 13 they run along one axis. Before, the tensor became a matrix: the axes before ``axis`` its rows, the others its columns.
Kernels serve for large tensors of float32 and of 16-bit floats, NumPy for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.casting.steps import QUIET
from numbaops.ops._axes import normalized_axis
from numbaops.ops._maps import KERNEL_FROM
from numbaops.ops._precision import HALVES, narrowed, rounded, widened, working_dtype
from numbaops.ops.base import Array
from numbaops.runtime import memory
from numbaops.runtime.threads import split

_FLOAT32 = np.dtype(np.float32)

_BYTES = 16
"""Bytes that could be copied, to and fro, while a kernel computes an element."""

_NARROW = 8
"""Columns below which rows are copied to where columns were: most of a vector would be for nothing."""


def _by_kernel(x: Array, axis: int, logarithmic: bool = False, in_steps: bool = False) -> Array | None:
    """What a kernel gives along an axis; None where NumPy serves.

    Args:
        x: the tensor.
        axis: not negative.
        logarithmic: whether LogSoftmax is asked for.
        in_steps: whether each step is rounded to the type of ``x``.
    """
    if x.size < KERNEL_FROM or (x.dtype != _FLOAT32 and x.dtype not in HALVES):
        return None
    from numbaops.kernels import softmax

    if not softmax.AVAILABLE:
        return None
    count, width = x.shape[axis], math.prod(x.shape[axis + 1 :])
    if 1 < width < _NARROW:
        y = _by_kernel(np.moveaxis(x, axis, -1), x.ndim - 1, logarithmic, in_steps)
        return None if y is None else np.ascontiguousarray(np.moveaxis(y, -1, axis))
    flat = np.ascontiguousarray(widened(x)).reshape(-1)
    result = memory.empty(x.shape, _FLOAT32, 4 * x.size)[0]
    out, step = result.reshape(-1), x.dtype.name if in_steps else "float32"
    if width == 1:
        kernel: Any = softmax.log_softmax_rows if logarithmic else softmax.softmax_rows[step]
        split(lambda first, last: kernel(flat, count, out, first, last), x.size // count, _BYTES * count)
    else:
        kernel = softmax.log_softmax_columns if logarithmic else softmax.softmax_columns[step]
        units = math.prod(x.shape[:axis]) * -(-width // softmax.BLOCK)
        split(lambda first, last: kernel(flat, count, width, out, first, last), units, _BYTES * x.size // units)
    return narrowed(result, x.dtype)


def _shifted(x: Array, axis: int) -> Array:
    """A new array: ``x`` minus its maximum along the axis, in the type to compute in."""
    wide = x.astype(working_dtype(x), copy=False)
    y: Array = wide - np.maximum.reduce(wide, axis, keepdims=True, initial=-math.inf)
    return y


def _softmax(x: Array, axis: int) -> Array:
    y = _by_kernel(x, axis)
    return QUIET.copy().run(_softmax_by_numpy, x, axis) if y is None else y


def _softmax_by_numpy(x: Array, axis: int) -> Array:
    y = _shifted(x, axis)
    np.exp(y, out=y)
    y /= np.add.reduce(y, axis, keepdims=True)
    return y.astype(x.dtype, copy=False)


def _softmax_in_steps(x: Array, axis: int) -> Array:
    """Rounds where the function rounds with which ONNX defines Softmax 13.

    Rounding once, as everywhere else, is two units of float16 away from what ONNX's node suite has for Attention as a function
    ("test_attention_4d_causal_fp16_expanded"), which allows one.
    """
    y = _by_kernel(x, axis, in_steps=True)
    return QUIET.copy().run(_softmax_in_steps_by_numpy, x, axis) if y is None else y


def _softmax_in_steps_by_numpy(x: Array, axis: int) -> Array:
    y = rounded(np.exp(rounded(_shifted(x, axis), x.dtype)), x.dtype)
    y /= rounded(np.add.reduce(y, axis, keepdims=True), x.dtype)
    return y.astype(x.dtype, copy=False)


def _log_softmax(x: Array, axis: int) -> Array:
    y = _by_kernel(x, axis, logarithmic=True)
    return QUIET.copy().run(_log_softmax_by_numpy, x, axis) if y is None else y


def _log_softmax_by_numpy(x: Array, axis: int) -> Array:
    y = _shifted(x, axis)
    y -= np.log(np.add.reduce(np.exp(y), axis, keepdims=True))
    return y.astype(x.dtype, copy=False)


def _hardmax(x: Array, axis: int) -> Array:
    y = np.zeros(x.shape, x.dtype)
    if x.size:
        first = np.expand_dims(x.astype(working_dtype(x), copy=False).argmax(axis), axis)
        np.put_along_axis(y, first, np.ones(1, x.dtype), axis)
    return y


def _along_axis(function: Callable[[Array, int], Array], x: Array, axis: int) -> Array:
    # the text asks for rank 1 and more, but a scalar runs in onnx.reference
    return function(x.reshape(1), 0).reshape(()) if x.ndim == 0 and axis in (-1, 0) else function(x, normalized_axis(axis, x.ndim))


def _of_matrix(function: Callable[[Array, int], Array], x: Array, axis: int) -> Array:
    # version 1 has no range for the axis; the rank itself makes columns of one element
    axis = x.ndim if axis == x.ndim else normalized_axis(axis, x.ndim)
    return function(x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), 1).reshape(x.shape)


def softmax_1(x: Array, *, axis: int) -> Array:
    """Softmax 1 and 11."""
    return _of_matrix(_softmax, x, axis)


def softmax_13(x: Array, *, axis: int) -> Array:
    """Softmax 13."""
    return _along_axis(_softmax_in_steps if x.itemsize == 2 else _softmax, x, axis)


def log_softmax_1(x: Array, *, axis: int) -> Array:
    """LogSoftmax 1 and 11."""
    return _of_matrix(_log_softmax, x, axis)


def log_softmax_13(x: Array, *, axis: int) -> Array:
    """LogSoftmax 13."""
    return _along_axis(_log_softmax, x, axis)


def hardmax_1(x: Array, *, axis: int) -> Array:
    """Hardmax 1 and 11: 1 for the first maximum of a row."""
    return _of_matrix(_hardmax, x, axis)


def hardmax_13(x: Array, *, axis: int) -> Array:
    """Hardmax 13: 1 for the first maximum along the axis."""
    return _along_axis(_hardmax, x, axis)
