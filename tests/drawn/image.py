"""Draws of GridSample, AffineGrid and NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from drawn.case import Case


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for _ in range(250):
        yield drawn_grid_sample(rng)
    for _ in range(60):
        yield drawn_affine_grid(rng)
    for _ in range(150):
        yield drawn_suppression(rng)


def drawn_grid_sample(rng: np.random.Generator) -> Case:
    opset = int(rng.choice([16, 20, 22]))
    rank = 2 if opset == 16 else int(rng.choice([1, 2, 2, 3, 3]))
    shape = [int(size) for size in rng.integers(1, 3, 2)] + [int(size) for size in rng.integers(1, 6, rank)]
    places = [int(size) for size in rng.integers(1, 5, rank)]
    x = (rng.normal(size=shape) * 4).astype(rng.choice(["float32", "float32", "float64", "float16", "int32", "uint8"]))
    grid = rng.uniform(-1.6, 1.6, (shape[0], *places, rank)).astype(rng.choice(["float32", "float32", "float64"]))
    if rng.integers(4) == 0:
        grid = np.round(grid * 4) / 4
    if x.dtype.kind == "u":
        x = np.abs(x)
    modes = ["nearest", "bilinear", "bicubic"] if opset == 16 else ["nearest", "linear", "cubic"]
    attributes: dict[str, Any] = {
        "mode": str(rng.choice(modes)),
        "padding_mode": str(rng.choice(["zeros", "border", "reflection"])),
        "align_corners": int(rng.integers(2)),
    }
    tolerance = 4e-3 if x.dtype == np.float16 else 1e-4
    return Case("GridSample", opset, [x, grid], attributes, rtol=tolerance, atol=tolerance)


def drawn_affine_grid(rng: np.random.Generator) -> Case:
    rank = int(rng.choice([2, 3]))
    theta = rng.normal(size=(int(rng.integers(1, 3)), rank, rank + 1)).astype(rng.choice(["float32", "float64", "float16"]))
    size = np.array([theta.shape[0], 3, *rng.integers(1, 6, rank)], np.int64)
    tolerance = 4e-3 if theta.dtype == np.float16 else 1e-5
    return Case("AffineGrid", 20, [theta, size], {"align_corners": int(rng.integers(2))}, rtol=tolerance, atol=tolerance)


def drawn_suppression(rng: np.random.Generator) -> Case:
    batches, classes, count = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(0, 9))
    boxes = rng.uniform(0, 1, (batches, count, 4)).astype(np.float32)
    if rng.integers(2):
        boxes = np.round(boxes * 4) / 4
    scores = rng.uniform(0, 1, (batches, classes, count)).astype(np.float32)
    if rng.integers(2):
        scores = np.round(scores * 5) / 5
    rank = [1] if rng.integers(2) else []
    inputs: list[Any] = [
        boxes,
        scores,
        np.full(rank, rng.integers(0, 5), np.int64) if rng.integers(8) else None,
        np.full(rank, rng.choice([0.0, 0.2, 0.5, 1.0]), np.float32) if rng.integers(5) else None,
        np.full(rank, rng.choice([0.0, 0.3, 0.6]), np.float32) if rng.integers(3) else None,
    ]
    while inputs[-1] is None:
        inputs.pop()
    return Case("NonMaxSuppression", int(rng.choice([10, 11])), inputs, {"center_point_box": int(rng.integers(2))})
