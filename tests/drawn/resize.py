"""Draws of Resize and Upsample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from drawn.case import Case

OPSETS = (10, 11, 13, 18, 19, 23)
MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
SCALES = (0.25, 0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0)
TYPES = (np.float32, np.float32, np.float32, np.float64, np.float16, np.uint8, np.int8, np.int32)


def tensor(rng: np.random.Generator, shape: list[int], kind: Any) -> np.ndarray:
    values = rng.normal(size=shape) * 4
    if kind is np.bool_:
        return values > 0
    return (values + 8 if np.dtype(kind).kind == "u" else values).astype(kind)


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for _ in range(300):
        yield drawn_resize(rng, int(rng.choice(OPSETS)))
    for _ in range(60):
        yield drawn_upsample(rng)
    for opset in OPSETS:
        x = rng.normal(size=(1, 1, 4, 0)).astype(np.float32)
        scales = np.array([1, 1, 2, 2], np.float32)
        yield Case("Resize", opset, [x, scales] if opset == 10 else [x, None if opset > 10 else scales, scales])
        y = rng.normal(size=(1, 2, 3, 4)).astype(ml_dtypes.bfloat16)
        if opset > 11:
            yield Case("Resize", opset, [y, None, scales], {"mode": "linear"}, rtol=1e-2)


def drawn_resize(rng: np.random.Generator, opset: int) -> Case:
    rank = int(rng.choice([1, 2, 3, 4, 4, 4, 5]))
    spatial = min(rank, int(rng.choice([1, 2, 2, 3])))
    shape = [int(size) for size in rng.integers(1, 4, rank - spatial)] + [int(size) for size in rng.integers(1, 8, spatial)]
    x = tensor(rng, shape, TYPES[rng.integers(len(TYPES))])
    factors = np.array([1.0] * (rank - spatial) + [float(rng.choice(SCALES)) for _ in range(spatial)], np.float32)
    if opset == 10:
        return Case("Resize", opset, [x, factors], {"mode": str(rng.choice(["nearest", "linear"]))}, rtol=tolerance(x), atol=tolerance(x))
    attributes: dict[str, Any] = {"mode": str(rng.choice(["nearest", "linear", "cubic"]))}
    modes = [*MODES, *(["half_pixel_symmetric"] if opset >= 19 else []), *(["tf_half_pixel_for_nn"] if opset == 11 else [])]
    attributes["coordinate_transformation_mode"] = str(rng.choice(modes))
    if attributes["mode"] == "nearest":
        attributes["nearest_mode"] = str(rng.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    if attributes["mode"] == "cubic":
        attributes["cubic_coeff_a"] = float(rng.choice([-0.75, -0.5]))
        attributes["exclude_outside"] = int(rng.integers(2))
    axes = list(range(rank))
    if opset >= 18 and rng.integers(2):
        axes = [int(axis) for axis in rng.permutation(np.arange(rank - spatial, rank))]
        attributes["axes"] = [axis - rank * int(rng.integers(2)) for axis in axes]
    if opset >= 18 and attributes["mode"] != "nearest" and rng.integers(2):
        attributes["antialias"] = 1
    inputs: list[Any] = [x, None]
    if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        region = rng.uniform(-0.2, 0.6, len(axes)), rng.uniform(0.4, 1.2, len(axes))
        whole = np.array([axis < rank - spatial for axis in axes])
        inputs[1] = np.concatenate([np.where(whole, 0, region[0]), np.where(whole, 1, region[1])]).astype(np.float32)
        attributes["extrapolation_value"] = 10.0
    elif opset < 13:
        inputs[1] = np.array([], np.float32)
    if rng.integers(2):
        inputs.append(factors[axes])
    else:
        sizes = np.array([shape[axis] if factors[axis] == 1 else int(rng.integers(1, 12)) for axis in axes], np.int64)
        if opset >= 18 and rng.integers(2):
            attributes["keep_aspect_ratio_policy"] = str(rng.choice(["not_larger", "not_smaller"]))
        inputs += [np.array([], np.float32) if opset < 13 else None, sizes]
    return Case("Resize", opset, inputs, attributes, rtol=tolerance(x), atol=tolerance(x))


def drawn_upsample(rng: np.random.Generator) -> Case:
    opset = int(rng.choice([1, 7, 9]))
    rank = 4 if opset == 1 else int(rng.choice([2, 4, 5]))
    shape = [int(size) for size in rng.integers(1, 5, rank)]
    x = tensor(rng, shape, TYPES[rng.integers(len(TYPES))])
    factors = [1.0] * (rank - 2) + [float(rng.choice(SCALES[5:])) for _ in range(2)]
    mode = str(rng.choice(["nearest", "bilinear" if opset == 1 else "linear"]))
    if opset == 1:
        return Case("Upsample", 1, [x], {"mode": mode, "height_scale": factors[2], "width_scale": factors[3]})
    if opset == 7:
        return Case("Upsample", 7, [x], {"mode": mode, "scales": factors}, rtol=tolerance(x), atol=tolerance(x))
    return Case("Upsample", 9, [x, np.array(factors, np.float32)], {"mode": mode}, rtol=tolerance(x), atol=tolerance(x))


def tolerance(x: np.ndarray) -> float:
    return 4e-3 if x.dtype == np.float16 else 1e-4
