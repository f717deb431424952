"""Draws of convolutions and their reverses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from drawn.case import Case
from drawn.pooling import geometry, tensor, tolerance


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for opset in (1, 7, 11, 22):
        for _ in range(60):
            yield conv(rng, opset)
        for _ in range(60):
            yield conv_transpose(rng, opset)
    for _ in range(60):
        yield conv_integer(rng)
    for _ in range(60):
        yield qlinear_conv(rng)
    for _ in range(60):
        yield col2im(rng)
    for opset in (19, 22):
        for _ in range(30):
            yield deform_conv(rng, opset)
    for _ in range(30):
        yield causal_conv(rng)


def window_attributes(rng: np.random.Generator) -> tuple[list[int], list[int], dict[str, Any]]:
    """Spatial dimensions, the kernel's, and attributes of windows that fit in."""
    spatial, attributes = geometry(rng, dilations=True, ceil_mode=False, small_pads=rng.random() < 0.5)
    kernel = attributes["kernel_shape"]
    if rng.random() < 0.5:
        del attributes["kernel_shape"]
    return spatial, kernel, attributes


def counts_of(spatial: list[int], kernel: list[int], attributes: dict[str, Any]) -> list[int]:
    """How many windows there are along each axis, without auto_pad."""
    rank = len(spatial)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * 2 * rank)
    return [
        (spatial[axis] + pads[axis] + pads[rank + axis] - (kernel[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1
        for axis in range(rank)
    ]


def conv(rng: np.random.Generator, opset: int) -> Case:
    spatial, kernel, attributes = window_attributes(rng)
    group = int(rng.choice([1, 1, 2, 3]))
    if group > 1 or rng.random() < 0.2:
        attributes["group"] = group
    channels, features = int(rng.integers(1, 4)), int(rng.integers(1, 4)) * group
    x = tensor(rng, opset, [int(rng.integers(0 if rng.random() < 0.1 else 1, 4)), channels * group, *spatial])
    inputs = [x, rng.normal(size=(features, channels, *kernel)).astype(x.dtype)]
    if rng.random() < 0.5:
        inputs.append(rng.normal(size=features).astype(x.dtype))
    return Case("Conv", opset, inputs, attributes, **tolerance(x))


def conv_transpose(rng: np.random.Generator, opset: int) -> Case:
    rank = int(rng.integers(1, 4))
    kernel, counts = rng.integers(1, 4, rank), rng.integers(1, 5, rank)
    strides = rng.integers(1, 4, rank) if rng.random() < 0.7 else np.ones(rank, int)
    dilations = rng.integers(1, 4, rank) if rng.random() < 0.4 else np.ones(rank, int)
    attributes: dict[str, Any] = {}
    if strides.max() > 1:
        attributes["strides"] = strides.tolist()
    if dilations.max() > 1:
        attributes["dilations"] = dilations.tolist()
    if rng.random() < 0.5:
        attributes["kernel_shape"] = kernel.tolist()
    if rng.random() < 0.3:
        attributes["output_padding"] = [
            int(rng.integers(0, max(stride, dilation))) for stride, dilation in zip(strides, dilations, strict=True)
        ]
    reach = strides * (counts - 1) + (kernel - 1) * dilations + 1 + attributes.get("output_padding", 0)
    how = rng.integers(5)
    if how == 0:
        attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]))
    elif how == 1:
        attributes["output_shape"] = np.maximum(1, reach - rng.integers(-1, 4, rank)).tolist()
        if rng.random() < 0.6:
            attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))
    elif how < 4:
        begins = [int(rng.integers(0, size)) for size in reach]
        ends = [int(rng.integers(0, size - begin)) for size, begin in zip(reach, begins, strict=True)]
        attributes["pads"] = begins + ends
    group = int(rng.choice([1, 1, 2, 3]))
    if group > 1:
        attributes["group"] = group
    channels, features = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    x = tensor(rng, opset, [int(rng.integers(1, 3)), channels * group, *counts])
    inputs = [x, rng.normal(size=(channels * group, features, *kernel)).astype(x.dtype)]
    if rng.random() < 0.5:
        inputs.append(rng.normal(size=features * group).astype(x.dtype))
    return Case("ConvTranspose", opset, inputs, attributes, **tolerance(x))


def quantized(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def conv_integer(rng: np.random.Generator) -> Case:
    spatial, kernel, attributes = window_attributes(rng)
    group = int(rng.choice([1, 1, 2]))
    attributes["group"] = group
    channels, features = int(rng.integers(1, 4)), int(rng.integers(1, 4)) * group
    x_type, w_type = (rng.choice([np.uint8, np.int8]) for _ in range(2))
    inputs: list[Any] = [quantized(rng, (2, channels * group, *spatial), x_type), quantized(rng, (features, channels, *kernel), w_type)]
    if rng.random() < 0.7:
        inputs.append(quantized(rng, (), x_type) if rng.random() < 0.8 else None)
        if inputs[-1] is None or rng.random() < 0.7:
            inputs.append(quantized(rng, features if rng.random() < 0.5 else (), w_type))
    return Case("ConvInteger", 10, inputs, attributes)


def qlinear_conv(rng: np.random.Generator) -> Case:
    spatial, kernel, attributes = window_attributes(rng)
    group = int(rng.choice([1, 1, 2]))
    attributes["group"] = group
    channels, features = int(rng.integers(1, 4)), int(rng.integers(1, 4)) * group
    x_type, w_type = (rng.choice([np.uint8, np.int8]) for _ in range(2))
    scales: Any = features if rng.random() < 0.5 else ()

    def scale(shape: Any, size: float) -> Any:
        values = rng.uniform(0.5, 2, shape) * size
        return np.asarray(2.0 ** np.round(np.log2(values)) if rng.random() < 0.5 else values, np.float32)

    inputs = [
        quantized(rng, (2, channels * group, *spatial), x_type),
        scale((), 0.01),
        quantized(rng, (), x_type),
        quantized(rng, (features, channels, *kernel), w_type),
        scale(scales, 0.01),
        quantized(rng, scales, w_type),
        scale((), 0.05),
        quantized(rng, (), x_type),
    ]
    if rng.random() < 0.5:
        inputs.append(rng.integers(-3000, 3000, features).astype(np.int32))
    return Case("QLinearConv", 10, inputs, attributes)


def col2im(rng: np.random.Generator) -> Case:
    image, attributes = geometry(rng, dilations=True, ceil_mode=False, small_pads=True)
    block = attributes.pop("kernel_shape")
    attributes.pop("auto_pad", None)
    channels, count = int(rng.integers(1, 4)), int(np.prod(counts_of(image, block, attributes)))
    shape = (2, channels * int(np.prod(block)), count)
    dtype = rng.choice([np.float32, np.float32, np.float64, np.float16, np.int32, np.uint8, np.bool_, np.complex64])
    x = rng.integers(0, 5, shape).astype(dtype) if np.dtype(dtype).kind in "iub" else rng.normal(size=shape).astype(dtype)
    return Case("Col2Im", 18, [x, np.array(image, np.int64), np.array(block, np.int64)], attributes, **tolerance(x))


def deform_conv(rng: np.random.Generator, opset: int) -> Case:
    spatial, attributes = geometry(rng, dilations=True, ceil_mode=False, small_pads=True)
    attributes.pop("auto_pad", None)
    kernel = attributes["kernel_shape"]
    counts = counts_of(spatial, kernel, attributes)
    group, offset_group = int(rng.choice([1, 2])), int(rng.choice([1, 2]))
    attributes |= {"group": group, "offset_group": offset_group}
    channels, features = int(rng.integers(1, 3)) * 2, int(rng.integers(1, 3)) * group
    x = tensor(rng, opset, (2, channels, *spatial))
    cells = offset_group * int(np.prod(kernel))
    inputs = [
        x,
        rng.normal(size=(features, channels // group, *kernel)).astype(x.dtype),
        rng.normal(size=(2, cells * len(kernel), *counts)).astype(x.dtype),
    ]
    if rng.random() < 0.5:
        inputs.append(rng.normal(size=features).astype(x.dtype) if rng.random() < 0.6 else None)
        if inputs[-1] is None or rng.random() < 0.6:
            inputs.append(rng.uniform(size=(2, cells, *counts)).astype(x.dtype))
    return Case("DeformConv", opset, inputs, attributes, **tolerance(x))


def causal_conv(rng: np.random.Generator) -> Case:
    batch, channels, length, kernel = rng.integers(1, 3), rng.integers(1, 4), rng.integers(1, 6), rng.integers(1, 5)
    x = tensor(rng, 27, (batch, channels, length))
    if x.dtype == np.float64:
        x = x.astype(np.float32)
    inputs = [x, rng.normal(size=(channels, 1, kernel)).astype(x.dtype)]
    inputs.append(rng.normal(size=channels).astype(x.dtype) if rng.random() < 0.5 else None)
    if inputs[-1] is None or rng.random() < 0.5:
        inputs.append(rng.normal(size=(batch, channels, kernel - 1)).astype(x.dtype))
    attributes = {"activation": str(rng.choice(["none", "silu", "swish"]))}
    return Case("CausalConvWithState", 27, inputs, attributes, 2, **tolerance(x))
