"""What convolutions of every kind share: checks of shapes, the bias, and the product of windows and weights by BLAS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._windows import Axis, columns, size_of, spatial_shape, windows
from numbaops.ops.base import Array

COLUMN_BYTES = 1 << 25
"""Columns made at a time, if one image has less: a batch of images would else take the kernel's size times its memory."""


def kernel_of(x: Array, w: Array, kernel_shape: Sequence[int] | None) -> tuple[int, ...]:
    rank = 2 + len(spatial_shape(x))
    if w.ndim != rank:
        raise InvalidValueError(f"W has shape {list(w.shape)}; allowed: the rank of the input, {rank}", attribute="W")
    kernel = w.shape[2:]
    if kernel_shape is not None and tuple(kernel_shape) != kernel:
        raise InvalidValueError(f"kernel_shape is {list(kernel_shape)}; allowed: that of W, {list(kernel)}", attribute="kernel_shape")
    return kernel


def check_groups(x: Array, w: Array, group: int) -> None:
    """Refuse channels of Conv that the groups do not divide."""
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        text = f"the input has {x.shape[1]} channels, W has shape {list(w.shape)}, and group is {group}; allowed: W of [M, C / group, ...]"
        raise InvalidValueError(f"{text}, M a multiple of group", attribute="group")


def check_bias(w: Array, bias: Array | None) -> None:
    if bias is not None and bias.shape != (len(w),):
        raise InvalidValueError(f"B has shape {list(bias.shape)}; allowed: [{len(w)}]", attribute="B")


def add_bias(y: Array, bias: Array | None) -> None:
    if bias is not None:
        if bias.shape != y.shape[1:2]:
            raise InvalidValueError(f"B has shape {list(bias.shape)}; allowed: [{y.shape[1]}]", attribute="B")
        y += bias.astype(y.dtype).reshape(-1, *(1,) * (y.ndim - 2))


def convolved(x: Array, w: Array, axes: Sequence[Axis], group: int) -> Array:
    """The windows of ``x`` times ``w``, in the floating-point type of both."""
    result = np.empty((len(x), len(w), *(axis.count for axis in axes)), x.dtype)
    count, length = size_of(axes), math.prod(w.shape[1:])
    kernels = w.reshape(group, len(w) // group, length)
    step = max(1, COLUMN_BYTES // max(1, length * group * count * x.itemsize))
    for start in range(0, len(x), step):
        images = x[start : start + step]
        cells = columns(images, axes).reshape(len(images), group, length, count)
        np.matmul(kernels, cells, out=result[start : start + step].reshape(len(images), group, len(w) // group, count))
    return result


def windows_of(x: Array, w: Array, kernel_shape: Sequence[int] | None, group: int, attributes: Any) -> tuple[Axis, ...]:
    """The windows of a convolution, once the shapes are known to be right."""
    kernel = kernel_of(x, w, kernel_shape)
    check_groups(x, w, group)
    return windows(x.shape[2:], kernel, **attributes)
