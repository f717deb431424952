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
from numbaops.ops._direct import Convolution, direct, integers_convolved, limit_of, product, representable
from numbaops.ops._precision import narrowed, widened
from numbaops.ops._windows import (
    AUTO_PADS,
    Axis,
    add_columns,
    both_pads,
    columns,
    halves,
    positive,
    size_of,
    spatial_shape,
    windows,
)
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf

_MOST_SHAPES = 64
"""Shapes of which a node keeps where the windows lie."""

COLUMN_BYTES = 1 << 25
"""Columns made at a time, if one image has less: a batch of images would else take the kernel's size times its memory."""


def _kernel_of(x: Array, w: Array, kernel_shape: Sequence[int] | None) -> tuple[int, ...]:
    rank = 2 + len(spatial_shape(x))
    if w.ndim != rank:
        raise InvalidValueError(f"W has shape {list(w.shape)}; allowed: the rank of the input, {rank}", attribute="W")
    kernel = w.shape[2:]
    if kernel_shape is not None and tuple(kernel_shape) != kernel:
        raise InvalidValueError(f"kernel_shape is {list(kernel_shape)}; allowed: that of W, {list(kernel)}", attribute="kernel_shape")
    return kernel


def _check_groups(x: Array, w: Array, group: int) -> None:
    """Refuse channels of Conv that the groups do not divide."""
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        text = f"the input has {x.shape[1]} channels, W has shape {list(w.shape)}, and group is {group}; allowed: W of [M, C / group, ...]"
        raise InvalidValueError(f"{text}, M a multiple of group", attribute="group")


def _check_bias(w: Array, bias: Array | None) -> None:
    if bias is not None and bias.shape != (len(w),):
        raise InvalidValueError(f"B has shape {list(bias.shape)}; allowed: [{len(w)}]", attribute="B")


def _add_bias(y: Array, bias: Array | None) -> None:
    if bias is not None:
        if bias.shape != y.shape[1:2]:
            raise InvalidValueError(f"B has shape {list(bias.shape)}; allowed: [{y.shape[1]}]", attribute="B")
        y += bias.astype(y.dtype).reshape(-1, *(1,) * (y.ndim - 2))


def _convolved(x: Array, w: Array, axes: Sequence[Axis], group: int) -> Array:
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


def _windows_of(x: Array, w: Array, kernel_shape: Sequence[int] | None, group: int, attributes: Any) -> tuple[Axis, ...]:
    """The windows of a convolution, once the shapes are known to be right."""
    kernel = _kernel_of(x, w, kernel_shape)
    _check_groups(x, w, group)
    return windows(x.shape[2:], kernel, **attributes)


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
            axes = _windows_of(x, w, self._kernel_shape, self.group, self._attributes)
            if len(self._axes) >= _MOST_SHAPES:
                self._axes.clear()
            self._axes[x.shape, w.shape] = axes
        return axes

    def __call__(self, x: Array, w: Array, bias: Array | None = None) -> Array:
        """The output."""
        axes = self.axes(x, w)
        _check_bias(w, bias)
        wide = widened(x)
        if direct(wide, w, axes):
            return narrowed(Convolution(widened(w), None if bias is None else widened(bias), self.group)(wide, axes), x.dtype)
        with np.errstate(all="ignore"):
            result = _convolved(wide, widened(w), axes, self.group)
            _add_bias(result, bias)
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
        self.conv, self.w, self.bias = conv, w, bias
        self._laid_out: Convolution | None = None

    def __call__(self, x: Array, w: Any = None, bias: Any = None) -> Array:
        """The output; the weights are those that are known."""
        conv = self.conv
        axes = conv.axes(x, self.w)
        wide = widened(x)
        if not direct(wide, self.w, axes):
            return conv(x, self.w, self.bias)
        if self._laid_out is None:
            _check_bias(self.w, self.bias)
            self._laid_out = Convolution(widened(self.w), None if self.bias is None else widened(self.bias), conv.group)
        return narrowed(self._laid_out(wide, axes), x.dtype)


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

    def __init__(self, conv: Conv, w: Array, bias: Array | None, scale: Array | None, shift: Array | None, low: float, high: float) -> None:
        self._conv, self._w, self._bias, self._scale, self._shift = conv, w, bias, scale, shift
        self._low, self._high = low, high
        self._folds = True
        self._served: dict[tuple[Any, ...], tuple[tuple[Axis, ...], tuple[int, ...]]] = {}
        self._laid_out: Convolution | None = None

    def __call__(self, x: Array, residual: Array | None = None) -> Array | None:
        """The output, or None if the shapes or types are none of the kernel's."""
        served = self._served.get((x.shape, x.dtype))
        if served is None:
            axes = self._conv.axes(x, self._w)
            counts = tuple(axis.count for axis in axes) if x.dtype == self._w.dtype and direct(widened(x), self._w, axes) else ()
            if len(self._served) >= _MOST_SHAPES:
                self._served.clear()
            self._served[x.shape, x.dtype] = served = axes, counts
        axes, counts = served
        if not counts or not self._folds:
            return None
        if residual is not None:
            if residual.shape != (len(x), len(self._w), *counts) or residual.dtype != x.dtype:
                return None
            residual = widened(residual)
        if self._laid_out is None:
            self._laid_out = self._lay_out()
            if self._laid_out is None:
                self._folds = False
                return None
        return narrowed(self._laid_out(widened(x), axes, residual, self._low, self._high), x.dtype)

    @np.errstate(all="ignore")
    def _lay_out(self) -> Convolution | None:
        """The convolution with the scale in its weights; None if they would leave the range of float32."""
        _check_bias(self._w, self._bias)
        w, bias = widened(self._w), None if self._bias is None else widened(self._bias)
        if self._scale is not None and self._shift is not None:
            shift = self._shift if bias is None else bias * self._scale + self._shift
            scaled = w * self._scale.reshape(-1, *(1,) * (w.ndim - 1))
            lost = ((scaled == 0) & (w != 0)).any() and self._scale.all()
            if lost or not representable(self._scale) or not representable(scaled) or not representable(shift):
                return None
            w, bias = scaled.astype(np.float32), shift.astype(np.float32)
        return Convolution(w, bias, self._conv.group)


def _less_zero_point(x: Array, zero_point: Array | None, what: str, channels: bool = False) -> Array:
    """Quantised elements less their zero point, as float32, which holds them all."""
    wide = x.astype(np.float32)
    if zero_point is not None:
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
    axes = _windows_of(x, w, kernel_shape, group, attributes)
    return _sums_of_integers(x, w, x_zero_point, w_zero_point, axes, group)


def _sums_of_integers(
    x: Array, w: Array, x_zero_point: Array | None, w_zero_point: Array | None, axes: tuple[Axis, ...], group: int
) -> Array:
    """The windows of quantised elements times quantised weights, both less their zero points, as int32."""
    wide_x, wide_w = _less_zero_point(x, x_zero_point, "x_zero_point"), _less_zero_point(w, w_zero_point, "w_zero_point", True)
    sums = integers_convolved(wide_x, wide_w, axes, group, limit_of(x, x_zero_point) * limit_of(w, w_zero_point))
    if sums is None:  # float64 holds the sums, and BLAS takes it
        sums = _convolved(wide_x.astype(np.float64), wide_w.astype(np.float64), axes, group).astype(np.int64).astype(np.int32)
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
    axes = _windows_of(x, w, kernel_shape, group, attributes)
    result = _sums_of_integers(x, w, x_zero_point, w_zero_point, axes, group).astype(np.float64)
    _add_bias(result, bias)
    y_scale, x_scale = _per_channel(y_scale, w, "y_scale", False), _per_channel(x_scale, w, "x_scale", False)
    result *= (x_scale * _per_channel(w_scale, w, "w_scale") / y_scale).reshape(-1, *(1,) * (result.ndim - 2))
    result = np.rint(result) + _per_channel(y_zero_point, w, "y_zero_point", False)
    limits = np.iinfo(y_zero_point.dtype)
    # fmax, for NaN gives the lowest value, as QuantizeLinear has it
    return np.fmin(np.fmax(result, limits.min), limits.max).astype(y_zero_point.dtype)


@np.errstate(all="ignore")
def conv_transpose(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    **attributes: Any,
) -> Array:
    """ConvTranspose: ``[N, C, D1, ...]`` and kernels ``[C, M / group, k1, ...]`` to ``[N, M, O1, ...]``."""
    kernel = _kernel_of(x, w, kernel_shape)
    if group < 1 or len(w) != x.shape[1] or len(w) % group:
        text = f"the input has {x.shape[1]} channels, W has shape {list(w.shape)}, and group is {group}; allowed: W of [C, M / group, ...]"
        raise InvalidValueError(f"{text}, C a multiple of group", attribute="group")
    axes = _transposed_windows(x.shape[2:], kernel, strides, dilations, **attributes)
    per_group = len(w) // group
    kernels = widened(w).reshape(group, per_group, math.prod(w.shape[1:])).swapaxes(1, 2)
    images = widened(x).reshape(len(x), group, per_group, size_of(axes))
    cells = product(np.broadcast_to(kernels, (len(x), *kernels.shape)), images)
    result = add_columns(cells.reshape(len(x), group * w.shape[1], *kernel, *x.shape[2:]), axes)
    _add_bias(result, bias)
    return result.astype(x.dtype, copy=False)


def _transposed_windows(
    counts: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    *,
    pads: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
) -> tuple[Axis, ...]:
    """The windows over the output of ConvTranspose, one for each element of the input.

    Pads follow from ``output_shape``, or from the shape that ``SAME_UPPER`` and ``SAME_LOWER`` stand for. Where it is larger than
    what the windows reach there are none, and zeros are added at the end, as in ONNX's own case. The odd pad is at the end for
    ``SAME_UPPER`` and at the begin otherwise, in version 1 too: its equation says the reverse of its attribute's description, and of
    what version 11 has in its place.
    """
    rank = len(counts)
    strides, dilations = positive("strides", strides, rank), positive("dilations", dilations, rank)
    positive("kernel_shape", kernel, rank)
    begins, ends = both_pads(pads, rank)
    extra = (0,) * rank if output_padding is None else output_padding
    if len(extra) != rank or min(extra) < 0:
        raise InvalidValueError(f"output_padding is {list(extra)}; allowed: {rank} numbers from 0 on", attribute="output_padding")
    if auto_pad not in AUTO_PADS:
        raise InvalidValueError(f"auto_pad is {auto_pad!r}; allowed: {', '.join(AUTO_PADS)}", attribute="auto_pad")
    if output_shape is not None:
        if len(output_shape) not in (rank, rank + 2) or min(output_shape) < 0:
            text = f"output_shape is {list(output_shape)}; allowed: {rank} numbers from 0 on"
            raise InvalidValueError(text, attribute="output_shape")
        sizes: Sequence[int] | None = output_shape[-rank:]
    else:
        same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
        sizes = [count * stride for count, stride in zip(counts, strides, strict=True)] if same else None
    axes = []
    for number, (count, cells, stride, dilation) in enumerate(zip(counts, kernel, strides, dilations, strict=True)):
        reach = stride * (count - 1) + (cells - 1) * dilation + 1 + extra[number]
        if sizes is not None:
            size = sizes[number]
            begin, _ = halves(max(0, reach - size), upper=auto_pad == "SAME_UPPER")
        else:
            begin, end = (0, 0) if auto_pad == "VALID" else (begins[number], ends[number])
            size = reach - begin - end
            if size < 0 and count:
                raise InvalidValueError(f"pads of {begin} and {end} take more than all of {reach} elements of an axis", attribute="pads")
            size = max(0, size)
        axes.append(Axis(size, cells, count, stride, dilation, begin))
    return tuple(axes)


def col2im(
    x: Array,
    image_shape: Array,
    block_shape: Array,
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
) -> Array:
    """Col2Im: blocks ``[N, C * product of block_shape, L]`` added up to images ``[N, C, *image_shape]``.

    Elements that no block has are zero, or empty strings.
    """
    image, block = image_shape.reshape(-1).tolist(), block_shape.reshape(-1).tolist()
    if not image or min(image) < 0:
        raise InvalidValueError(f"image_shape is {image}; allowed: dimensions from 0 on", attribute="image_shape")
    positive("block_shape", block, len(image))
    axes = windows(image, block, strides=strides, dilations=dilations, pads=pads)
    cells, blocks = math.prod(block), size_of(axes)
    if x.ndim != 3 or x.shape[1] % cells or x.shape[2] != blocks:
        text = f"the input has shape {list(x.shape)}; allowed: [N, C * {cells}, {blocks}]"
        raise InvalidValueError(f"{text} with blocks of {block} in images of {image}", attribute="input")
    parts = widened(x).reshape(len(x), x.shape[1] // cells, *block, *(axis.count for axis in axes))
    return add_columns(parts, axes).astype(x.dtype, copy=False)


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
    kernel = _kernel_of(x, w, kernel_shape)
    _check_groups(x, w, group)
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
    _add_bias(result, bias)
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
    result = _convolved(widened(whole), widened(w), windows(whole.shape[2:], w.shape[2:]), len(w))
    _add_bias(result, bias)
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
