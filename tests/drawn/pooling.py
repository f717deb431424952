"""Draws of pools, global pools, MaxUnpool and the pools over regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from drawn.case import Case

TOLERANCES = {"float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2)}


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for op_type, versions in (
        ("MaxPool", (1, 7, 8, 10, 11, 12, 22)),
        ("AveragePool", (1, 7, 10, 11, 19, 22)),
        ("LpPool", (1, 2, 7, 11, 18, 22)),
    ):
        for opset in versions:
            for _ in range(40):
                yield pool(rng, op_type, opset)
    for op_type, versions in (("GlobalMaxPool", (1, 7, 22)), ("GlobalAveragePool", (1, 7, 22)), ("GlobalLpPool", (1, 2, 7, 22))):
        for opset in versions:
            for _ in range(6):
                yield global_pool(rng, op_type, opset)
    for opset in (9, 11, 22):
        for _ in range(15):
            yield from max_unpool(rng, opset)
    for opset in (1, 7, 22):
        for _ in range(15):
            yield max_roi_pool(rng, opset)
    for opset in (10, 16, 22):
        for _ in range(20):
            yield roi_align(rng, opset)


def tensor(rng: np.random.Generator, opset: int, shape: Any, *, integers: bool = False, since_bfloat16: int = 22) -> Any:
    """Elements of any float type that the opset allows, or of the 8-bit integers; few different ones at times, for ties."""
    types: list[Any] = [np.float32] * 4 + [np.float64, np.float16]
    if opset >= since_bfloat16:
        types.append(ml_dtypes.bfloat16)
    if integers:
        types += [np.int8, np.uint8]
    dtype = np.dtype(types[rng.integers(len(types))])
    if dtype.kind in "iu":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)
    values = rng.normal(size=shape) if rng.random() < 0.7 else rng.integers(-2, 3, shape)
    return np.asarray(values).astype(dtype)


def tolerance(x: Any) -> dict[str, float]:
    rtol, atol = TOLERANCES.get(x.dtype.name, (1e-5, 1e-5))
    return {"rtol": rtol, "atol": atol}


def geometry(rng: np.random.Generator, *, dilations: bool, ceil_mode: bool, small_pads: bool) -> tuple[list[int], dict[str, Any]]:
    """Spatial dimensions and attributes of windows that fit in."""
    rank = int(rng.integers(1, 4))
    kernel = rng.integers(1, 5 if rank < 3 else 4, rank)
    attributes: dict[str, Any] = {"kernel_shape": kernel.tolist()}
    extent = kernel
    if rng.random() < 0.6:
        attributes["strides"] = rng.integers(1, 4, rank).tolist()
    if dilations and rng.random() < 0.4:
        attributes["dilations"] = rng.integers(1, 4, rank).tolist()
        extent = (kernel - 1) * attributes["dilations"] + 1
    spatial = extent + rng.integers(0, 6, rank)
    how = rng.integers(4)
    if how == 0:
        attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]))
    elif how < 3:
        limit = kernel if small_pads else extent
        attributes["pads"] = [int(rng.integers(0, most)) for most in (*limit, *limit)]
        if rng.random() < 0.3:  # fits with its pads only
            pads = np.array(attributes["pads"]).reshape(2, -1).sum(0)
            spatial = np.maximum(1, spatial - pads)
    if ceil_mode and rng.random() < 0.5:
        attributes["ceil_mode"] = 1
    return spatial.tolist(), attributes


def pool(rng: np.random.Generator, op_type: str, opset: int) -> Case:
    dilations = opset >= {"MaxPool": 10, "LpPool": 18, "AveragePool": 19}[op_type]
    ceil_mode = opset >= {"MaxPool": 10, "LpPool": 18, "AveragePool": 10}[op_type]
    spatial, attributes = geometry(rng, dilations=dilations, ceil_mode=ceil_mode, small_pads=True)
    batch = int(rng.integers(0 if rng.random() < 0.05 else 1, 3))
    x = tensor(rng, opset, [batch, int(rng.integers(1, 4)), *spatial], integers=op_type == "MaxPool" and opset >= 12)
    outputs = 1
    if op_type == "MaxPool" and opset >= 8:
        outputs = int(rng.integers(1, 3))
        if rng.random() < 0.3:
            attributes["storage_order"] = 1
    if op_type == "AveragePool" and opset >= 7 and rng.random() < 0.5:
        attributes["count_include_pad"] = 1
    if op_type == "LpPool" and rng.random() < 0.7:
        p = int(rng.integers(1, 4))
        attributes["p"] = p if opset >= 2 else float(p)
    return Case(op_type, opset, [x], attributes, outputs, **tolerance(x))


def global_pool(rng: np.random.Generator, op_type: str, opset: int) -> Case:
    x = tensor(rng, opset, rng.integers(1, 5, rng.integers(2, 6)))
    attributes: dict[str, Any] = {}
    if op_type == "GlobalLpPool" and rng.random() < 0.7:
        p = int(rng.integers(1, 4))
        attributes["p"] = p if opset >= 2 else float(p)
    return Case(op_type, opset, [x], attributes, **tolerance(x))


def max_unpool(rng: np.random.Generator, opset: int) -> Iterator[Case]:
    """What MaxPool would have made of distinct elements."""
    spatial, attributes = geometry(rng, dilations=False, ceil_mode=False, small_pads=True)
    attributes.pop("auto_pad", None)
    kernel = attributes["kernel_shape"]
    rank = len(kernel)
    strides, pads = attributes.get("strides", [1] * rank), attributes.get("pads", [0] * 2 * rank)
    counts = [
        (size + pads[axis] + pads[rank + axis] - kernel[axis]) // strides[axis] + 1
        for axis, size in enumerate(spatial)
    ]  # fmt: skip
    if min(counts) < 1:
        return
    pooled = [(count - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[rank + axis] for axis, count in enumerate(counts)]
    if min(pooled) < 1:
        return
    shape = [int(rng.integers(1, 3)), int(rng.integers(1, 3)), *counts]
    total = int(np.prod(shape[:2]) * np.prod(pooled))
    if total < np.prod(shape):
        return
    x = tensor(rng, opset, shape)
    places = rng.permutation(total)[: x.size].reshape(x.shape).astype(np.int64)
    inputs = [x, places]
    if rng.random() < 0.4:
        more = rng.integers(0, 3, rank)
        if not any(pads):
            inputs.append(np.array([*shape[:2], *(np.array(pooled) + more)], np.int64))
    yield Case("MaxUnpool", opset, inputs, attributes, rtol=0)


def regions(rng: np.random.Generator, count: int, height: int, width: int, scale: float, *, wild: bool) -> Any:
    """x1, y1, x2, y2 of each region."""
    low, high = (-2.0, 2.0) if wild else (0.0, 0.0)
    xs = np.sort(rng.uniform(low, width + high, (count, 2)), axis=1)
    ys = np.sort(rng.uniform(low, height + high, (count, 2)), axis=1)
    return np.stack((xs[:, 0], ys[:, 0], xs[:, 1], ys[:, 1]), 1) / scale


def max_roi_pool(rng: np.random.Generator, opset: int) -> Case:
    batch, channels, height, width = rng.integers(1, 4), rng.integers(1, 4), rng.integers(1, 9), rng.integers(1, 9)
    x = tensor(rng, opset, (batch, channels, height, width))
    scale = float(rng.choice([1.0, 0.5, 2.0]))
    count = int(rng.integers(0, 5))
    boxes = regions(rng, count, height, width, scale, wild=rng.random() < 0.3)
    rois = np.concatenate((rng.integers(0, batch, (count, 1)), boxes), 1).astype(x.dtype)
    attributes: dict[str, Any] = {"pooled_shape": rng.integers(1, 4, 2).tolist()}
    if scale != 1:
        attributes["spatial_scale"] = scale
    return Case("MaxRoiPool", opset, [x, rois], attributes, **tolerance(x))


def roi_align(rng: np.random.Generator, opset: int) -> Case:
    batch, channels, height, width = rng.integers(1, 4), rng.integers(1, 4), rng.integers(1, 9), rng.integers(1, 9)
    x = tensor(rng, opset, (batch, channels, height, width))
    scale = float(rng.choice([1.0, 0.5, 2.0]))
    count = int(rng.integers(0, 5))
    rois = regions(rng, count, height, width, scale, wild=rng.random() < 0.5).astype(x.dtype)
    attributes: dict[str, Any] = {
        "output_height": int(rng.integers(1, 4)),
        "output_width": int(rng.integers(1, 4)),
        "spatial_scale": scale,
        "sampling_ratio": int(rng.integers(0, 4)),
        "mode": str(rng.choice(["avg", "max"])),
    }
    if opset >= 16 and rng.random() < 0.7:
        attributes["coordinate_transformation_mode"] = str(rng.choice(["half_pixel", "output_half_pixel"]))
    images = rng.integers(0, batch, count).astype(np.int64)
    return Case("RoiAlign", opset, [x, rois, images], attributes, **tolerance(x))
