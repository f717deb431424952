"""What takes windows apart again: ConvTranspose and Col2Im."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._convolving import add_bias, kernel_of
from numbaops.ops._precision import widened
from numbaops.ops._products import product
from numbaops.ops._windows import AUTO_PADS, Axis, add_columns, both_pads, halves, positive, size_of, windows
from numbaops.ops.base import Array


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
    kernel = kernel_of(x, w, kernel_shape)
    if group < 1 or len(w) != x.shape[1] or len(w) % group:
        text = f"the input has {x.shape[1]} channels, W has shape {list(w.shape)}, and group is {group}; allowed: W of [C, M / group, ...]"
        raise InvalidValueError(f"{text}, C a multiple of group", attribute="group")
    axes = _transposed_windows(x.shape[2:], kernel, strides, dilations, **attributes)
    per_group = len(w) // group
    kernels = widened(w).reshape(group, per_group, math.prod(w.shape[1:])).swapaxes(1, 2)
    images = widened(x).reshape(len(x), group, per_group, size_of(axes))
    cells = product(np.broadcast_to(kernels, (len(x), *kernels.shape)), images)
    result = add_columns(cells.reshape(len(x), group * w.shape[1], *kernel, *x.shape[2:]), axes)
    add_bias(result, bias)
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
