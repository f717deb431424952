"""Softmax, LogSoftmax and Hardmax.

https://onnx.ai/onnx/operators/onnx__Softmax.html, onnx__LogSoftmax.html, onnx__Hardmax.html

Since version 13 they run along one axis. Before, the tensor became a matrix: the axes before ``axis`` its rows, the others its columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from numbaops.ops._axes import normalized_axis
from numbaops.ops._precision import rounded, working_dtype
from numbaops.ops.base import Array

_quiet = np.errstate(all="ignore")


def _shifted(x: Array, axis: int) -> Array:
    """A new array: ``x`` minus its maximum along the axis, in the type to compute in."""
    wide = x.astype(working_dtype(x), copy=False)
    return wide - wide.max(axis, keepdims=True, initial=-math.inf)  # type: ignore[no-any-return]


@_quiet
def _softmax(x: Array, axis: int) -> Array:
    y = _shifted(x, axis)
    np.exp(y, out=y)
    y /= np.add.reduce(y, axis, keepdims=True)
    return y.astype(x.dtype, copy=False)


@_quiet
def _softmax_in_steps(x: Array, axis: int) -> Array:
    """Rounds where the function rounds with which ONNX defines Softmax 13.

    Rounding once, as everywhere else, is two units of float16 away from what ONNX's node suite has for Attention as a function
    ("test_attention_4d_causal_fp16_expanded"), which allows one.
    """
    y = rounded(np.exp(rounded(_shifted(x, axis), x.dtype)), x.dtype)
    y /= rounded(np.add.reduce(y, axis, keepdims=True), x.dtype)
    return y.astype(x.dtype, copy=False)


@_quiet
def _log_softmax(x: Array, axis: int) -> Array:
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
