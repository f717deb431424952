"""Convolutions and their reverses (of the family ``onnx/defs/nn``).

https://onnx.ai/onnx/operators/onnx__Conv.html, onnx__ConvTranspose.html, onnx__ConvInteger.html, onnx__QLinearConv.html,
onnx__DeformConv.html, onnx__Col2Im.html, onnx__CausalConvWithState.html

All of them lay out the windows as the columns of a matrix, or take such columns apart, and leave the rest to one matrix product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._convolving import add_bias, check_bias, check_groups, convolved, kernel_of, windows_of
from numbaops.ops._direct import Convolution, direct, few_windows, representable
from numbaops.ops._precision import narrowed, widened
from numbaops.ops._products import product
from numbaops.ops._quantized_convolutions import conv_integer, qlinear_conv
from numbaops.ops._reverse_convolutions import col2im, conv_transpose
from numbaops.ops._windows import (
    Axis,
    size_of,
    windows,
)
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf

_FLOAT32 = np.dtype(np.float32)
_MOST_SHAPES = 64
"""Shapes of which a node keeps where the windows lie."""


class Conv:
    """Conv: ``[N, C, D1, ...]`` and kernels ``[M, C / group, k1, ...]`` to ``[N, M, O1, ...]``.

    Args:
        group: groups of channels.
        kernel_shape: the spatial shape of the kernels, which they have as well.
        attributes: of the windows.
    """

    def __init__(self, *, group: int = 1, kernel_shape: Sequence[int] | None = None, **attributes: Any) -> None:
        self.group = group
        self._kernel_shape = kernel_shape
        self._attributes = attributes
        self._axes: dict[tuple[Any, ...], tuple[Axis, ...]] = {}

    def axes(self, x: Array, w: Array) -> tuple[Axis, ...]:
        """The windows, once the shapes are known to be right."""
        axes = self._axes.get((x.shape, w.shape))
        if axes is None:
            axes = windows_of(x, w, self._kernel_shape, self.group, self._attributes)
            if len(self._axes) >= _MOST_SHAPES:
                self._axes.clear()
            self._axes[x.shape, w.shape] = axes
        return axes

    def __call__(self, x: Array, w: Array, bias: Array | None = None) -> Array:
        """The output."""
        axes = self.axes(x, w)
        check_bias(w, bias)
        wide = widened(x)
        if direct(wide, w, axes):
            known = widened(w), None if bias is None else widened(bias)
            return narrowed(Convolution(*known, self.group, few_windows(axes))(wide, axes), x.dtype)
        with np.errstate(all="ignore"):
            result = convolved(wide, widened(w), axes, self.group)
            add_bias(result, bias)
            return narrowed(result, x.dtype)

    def prepared(self, x: Any, w: Any, bias: Any = None) -> Callable[..., Array] | None:
        """The same with the inputs that are known, ``...`` standing for others: what lays out weights once; None if that is no use."""
        known = w is not ... and bias is not ...
        return PreparedConv(self, w, bias) if known and widened(w).dtype == np.float32 else None


class PreparedConv:
    """A Conv whose weights are laid out in its first run.

    Args:
        conv: the operator.
        w: the weights, float32 or narrower.
        bias: one number for each output channel, or None.
    """

    def __init__(self, conv: Conv, w: Array, bias: Array | None) -> None:
        self._conv, self._known, self._chain = conv, (w, bias), ConvChain(conv, w, bias)

    def __call__(self, x: Array, w: Any = None, bias: Any = None) -> Array:
        """The output; the weights are those that are known."""
        result = self._chain(x)
        return self._conv(x, *self._known) if result is None else result


class ConvChain:
    """A Conv of known weights, and what follows it: a factor and a summand for each channel, a residual, and limits.

    Args:
        conv: the operator.
        w: the weights, of float32 or a narrower type of floats.
        bias: one number for each output channel, or None.
        scale: a factor for each output channel, float64, or None.
        shift: what is added to it, float64, or None.
        low: smaller results become this.
        high: larger results become this.
    """

    def __init__(
        self,
        conv: Conv,
        w: Array,
        bias: Array | None,
        scale: Array | None = None,
        shift: Array | None = None,
        low: float = -math.inf,
        high: float = math.inf,
    ) -> None:
        self._conv, self._w, self._bias, self._scale, self._shift = conv, w, bias, scale, shift
        self._low, self._high = low, high
        self._folds = True
        self._served: dict[tuple[Any, ...], tuple[tuple[Axis, ...], tuple[int, ...], Convolution | None]] = {}
        self._laid_out: dict[bool, Convolution] = {}

    def __call__(self, x: Array, residual: Array | None = None) -> Array | None:
        """The output, or None if the shapes or types are none of the kernel's."""
        served = self._served.get((x.shape, x.dtype))
        if served is None:
            if len(self._served) >= _MOST_SHAPES:
                self._served.clear()
            self._served[x.shape, x.dtype] = served = self._serve(x)
        axes, shape, convolution = served
        if convolution is None:
            return None
        if residual is not None:
            if residual.shape != shape or residual.dtype != x.dtype:
                return None
            residual = widened(residual)
        if x.dtype == _FLOAT32:
            return convolution(x, axes, residual, self._low, self._high)
        return narrowed(convolution(widened(x), axes, residual, self._low, self._high), x.dtype)

    def _serve(self, x: Array) -> tuple[tuple[Axis, ...], tuple[int, ...], Convolution | None]:
        """The windows, the shape of the output, and what computes it, if the kernel does."""
        axes = self._conv.axes(x, self._w)
        check_bias(self._w, self._bias)
        shape = (len(x), len(self._w), *(axis.count for axis in axes))
        if not self._folds or x.dtype != self._w.dtype or not direct(widened(x), self._w, axes):
            return axes, shape, None
        few = few_windows(axes)
        if few not in self._laid_out:
            known = self._folded()
            if known is None:
                self._folds = False
                return axes, shape, None
            self._laid_out[few] = Convolution(*known, self._conv.group, few)
        return axes, shape, self._laid_out[few]

    @np.errstate(all="ignore")
    def _folded(self) -> tuple[Array, Array | None] | None:
        """The weights with the scale in them, and the bias; None if they would leave the range of float32."""
        w, bias = widened(self._w), None if self._bias is None else widened(self._bias)
        if self._scale is None or self._shift is None:
            return w, bias
        shift = self._shift if bias is None else bias * self._scale + self._shift
        scaled = w * self._scale.reshape(-1, *(1,) * (w.ndim - 1))
        lost = ((scaled == 0) & (w != 0)).any() and self._scale.all()
        if lost or not representable(self._scale) or not representable(scaled) or not representable(shift):
            return None
        return scaled.astype(np.float32), shift.astype(np.float32)


@np.errstate(all="ignore")
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    group: int = 1,
    offset_group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **attributes: Any,
) -> Array:
    """DeformConv: Conv of elements that are sampled, bilinearly, where ``offset`` moves each cell of each window; times ``mask``.

    Corners of a sample that lie outside of the input count as zeros.
    """
    kernel = kernel_of(x, w, kernel_shape)
    check_groups(x, w, group)
    if offset_group < 1 or x.shape[1] % offset_group:
        text = f"offset_group is {offset_group}; allowed: divisors of the input's {x.shape[1]} channels"
        raise InvalidValueError(text, attribute="offset_group")
    axes = windows(x.shape[2:], kernel, **attributes)
    rank, cells, counts = len(axes), math.prod(kernel), tuple(axis.count for axis in axes)
    for values, each, what in ((offset, rank, "offset"), (mask, 1, "mask")):
        shape = (len(x), offset_group * cells * each, *counts)
        if values is not None and values.shape != shape:
            raise InvalidValueError(f"{what} has shape {list(values.shape)}; allowed: {list(shape)}", attribute=what)
    moves = widened(offset).reshape(len(x), offset_group, cells, rank, *counts)
    places = [moves[:, :, :, number] + _cells_of(axes, number) for number in range(rank)]
    elements = widened(x).reshape(len(x), offset_group, x.shape[1] // offset_group, math.prod(x.shape[2:]))
    sampled = _sampled(elements, places, x.shape[2:])
    if mask is not None:
        sampled *= widened(mask).reshape(len(x), offset_group, 1, cells * size_of(axes))
    length = math.prod(w.shape[1:])
    kernels = widened(w).reshape(group, len(w) // group, length)
    stack = np.broadcast_to(kernels, (len(x), *kernels.shape))
    result = product(stack, sampled.reshape(len(x), group, length, size_of(axes))).reshape(len(x), len(w), *counts)
    add_bias(result, bias)
    return result.astype(x.dtype, copy=False)


def _cells_of(axes: Sequence[Axis], number: int) -> Array:
    """Where all cells of all windows lie along one axis: ``[k1 * ... * kn, O1, ..., On]``, or what broadcasts to it."""
    axis, kernel = axes[number], [axis.kernel for axis in axes]
    cells = np.unravel_index(np.arange(math.prod(kernel)), kernel)[number] * axis.dilation - axis.begin
    starts = np.arange(axis.count) * axis.stride
    result: Array = cells.reshape(-1, *(1,) * len(axes)) + starts.reshape(-1, *(1,) * (len(axes) - number - 1))
    return result


def _sampled(x: Array, places: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Multilinear samples of ``[N, G, C, D1 * ... * Dn]`` at ``places`` along each axis, ``[N, G, ...]``: ``[N, G, C, product of ...]``."""
    shape = (*x.shape[:2], 1, math.prod(places[0].shape[2:]))
    result = np.zeros((*x.shape[:3], shape[3]), x.dtype)
    if not x.size:
        return result
    lows = [np.floor(place) for place in places]
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        index: Any = 0
        weight: Any = 1
        for place, low, high, size in zip(places, lows, corner, sizes, strict=True):
            position = low + high
            inside = (position >= 0) & (position < size)
            index = index * size + np.where(inside, position, 0).astype(np.int64)
            weight = weight * np.where(inside, place - low if high else low + 1 - place, 0)
        result += np.take_along_axis(x, index.reshape(shape), 3) * weight.astype(x.dtype).reshape(shape)
    return result


@np.errstate(all="ignore")
def causal_conv_with_state(
    x: Array, w: Array, bias: Array | None = None, past_state: Array | None = None, *, activation: str
) -> tuple[Array, Array]:
    """CausalConvWithState: each channel of ``[N, C, L]`` convolved with its own kernel over what came before, with the rest to go on.

    Returns:
        The output, of the shape of ``x``, and the last k - 1 elements of the state before and ``x``.
    """
    if activation not in ("none", "silu", "swish"):
        raise InvalidValueError(f"activation is {activation!r}; allowed: none, silu, swish", attribute="activation")
    if x.ndim != 3:
        raise InvalidValueError(f"input has shape {list(x.shape)}; allowed: [N, C, L]", attribute="input")
    if w.ndim != 3 or w.shape[:2] != (x.shape[1], 1) or not w.shape[2]:
        raise InvalidValueError(f"weight has shape {list(w.shape)}; allowed: [{x.shape[1]}, 1, k]", attribute="weight")
    shape = (*x.shape[:2], w.shape[2] - 1)
    if past_state is None:
        past_state = np.zeros(shape, x.dtype)
    elif past_state.shape != shape:
        raise InvalidValueError(f"past_state has shape {list(past_state.shape)}; allowed: {list(shape)}", attribute="past_state")
    whole = np.concatenate((past_state, x), 2)
    result = convolved(widened(whole), widened(w), windows(whole.shape[2:], w.shape[2:]), len(w))
    add_bias(result, bias)
    result = result.astype(x.dtype, copy=False)
    if activation != "none":
        # of the rounded sum, in float32: so the function that defines the operator has it
        sums = widened(result)
        result = (sums / (1 + np.exp(-sums))).astype(x.dtype, copy=False)
    return result, whole[:, :, x.shape[2] :].copy()


LEAVES: tuple[Leaf, ...] = (
    Leaf("Conv", (1, 11, 22), Conv, bind=True),
    Leaf("ConvInteger", (10,), conv_integer),
    Leaf("QLinearConv", (10,), qlinear_conv),
    Leaf("ConvTranspose", (1, 11, 22), conv_transpose),
    Leaf("Col2Im", (18,), col2im),
    Leaf("DeformConv", (19, 22), deform_conv),
    Leaf("CausalConvWithState", (27,), causal_conv_with_state),
)
