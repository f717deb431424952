"""Draws of operators that read and write by index, sort, or compare with class numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from drawn.case import Case
from drawn.movement import axis_of, dims, int64, tensor, types, versions


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for op_type, draw in DRAWS.items():
        for version in versions(op_type):
            dtypes = types(op_type, version, 2 if op_type == "OneHot" else 0)
            for dtype in dtypes:
                for _ in range((80 if len(dtypes) < 5 else 30) if dtype is np.float32 else 3):
                    yield draw(rng, version, dtype)


def indices_within(rng: np.random.Generator, shape: Any, size: int, negative: bool = True) -> Any:
    """Indices of either integer type; for size 0 there must be none."""
    found = rng.integers(-size if negative else 0, size, size=shape) if np.prod(shape) else np.zeros(shape, np.int64)
    return found.astype(rng.choice([np.int32, np.int64]))


def without_zeros(rng: np.random.Generator, low: int = 1, high: int = 4) -> list[int]:
    return [max(each, 1) for each in dims(rng, low, high)]


def gather(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 1)
    axis = axis_of(rng, len(shape))
    chosen = dims(rng, 0, 2)
    if shape[axis] == 0:
        chosen = [0, 2]
    attributes = {} if axis == 0 and rng.integers(2) else {"axis": axis}
    return Case("Gather", version, [tensor(rng, shape, dtype), indices_within(rng, chosen, shape[axis], version >= 11)], attributes)


def gather_elements(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape, axis, chosen = element_shapes(rng)
    attributes = {} if axis == 0 and rng.integers(2) else {"axis": axis}
    return Case("GatherElements", version, [tensor(rng, shape, dtype), indices_within(rng, chosen, shape[axis])], attributes)


def element_shapes(rng: np.random.Generator) -> tuple[list[int], int, list[int]]:
    """A shape, an axis, and the shape of indices along it."""
    shape = without_zeros(rng) if rng.integers(4) else dims(rng, 1)
    axis = axis_of(rng, len(shape))
    chosen = [int(rng.integers(0, size + 1)) if rng.integers(3) == 0 else size for size in shape]
    chosen[axis] = int(rng.integers(0, 6)) if shape[axis] else 0
    return shape, axis, chosen


def gather_nd(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = without_zeros(rng)
    batch = int(rng.integers(0, len(shape))) if version >= 12 and rng.integers(2) else 0
    depth = int(rng.integers(1, len(shape) - batch + 1))
    outer = shape[:batch] + dims(rng, 0, 2)
    attributes = {"batch_dims": batch} if batch or (version >= 12 and rng.integers(2)) else {}
    return Case("GatherND", version, [tensor(rng, shape, dtype), tuples(rng, outer, shape[batch : batch + depth])], attributes)


def tuples(rng: np.random.Generator, outer: list[int], sizes: list[int]) -> Any:
    return np.stack([rng.integers(-size, size, size=outer) for size in sizes], -1).astype(np.int64)


def scatter_elements(op_type: str) -> Callable[[np.random.Generator, int, Any], Case]:
    def draw(rng: np.random.Generator, version: int, dtype: Any) -> Case:
        shape, axis, chosen = element_shapes(rng)
        attributes: dict[str, Any] = {} if axis == 0 and rng.integers(2) else {"axis": axis}
        reduction = reduction_of(rng, version)
        if reduction == "none":  # indices must differ
            chosen[axis] = min(chosen[axis], shape[axis])
            indices = np.argsort(rng.random([*chosen[: axis % len(shape)], shape[axis], *chosen[axis % len(shape) + 1 :]]), axis)
            indices = indices.take(range(chosen[axis]), axis)
            if version >= 11 and rng.integers(2):
                indices = np.where(rng.random(indices.shape) < 0.5, indices, indices - shape[axis])
            indices = indices.astype(rng.choice([np.int32, np.int64]))
        else:
            indices = indices_within(rng, chosen, shape[axis])
        if version >= 16:
            attributes["reduction"] = reduction
        return Case(op_type, version, [tensor(rng, shape, dtype), indices, tensor(rng, chosen, dtype, -3, 4)], attributes)

    return draw


def reduction_of(rng: np.random.Generator, version: int) -> str:
    return str(rng.choice(["none"] if version < 16 else ["none", "add", "mul"] if version < 18 else ["none", "add", "mul", "min", "max"]))


def scatter_nd(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = without_zeros(rng)
    depth = int(rng.integers(1, len(shape) + 1))
    reduction = reduction_of(rng, version)
    if reduction == "none":
        places = np.stack(np.unravel_index(rng.permutation(int(np.prod(shape[:depth]))), shape[:depth]), -1)
        indices = places[: rng.integers(0, len(places) + 1)].astype(np.int64)
        if rng.integers(2):
            indices = np.where(rng.random(indices.shape) < 0.5, indices, indices - np.array(shape[:depth]))
        if len(indices) and rng.integers(3) == 0:
            indices = indices[:1] if rng.integers(2) else indices[0]
    else:
        indices = tuples(rng, dims(rng, 0, 2), shape[:depth])
    updates = tensor(rng, [*indices.shape[:-1], *shape[depth:]], dtype, -3, 4)
    return Case("ScatterND", version, [tensor(rng, shape, dtype), indices, updates], {"reduction": reduction} if version >= 16 else {})


def tensor_scatter(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = without_zeros(rng, 3, 4)
    axis = int(rng.integers(1, len(shape)))
    shape[axis] += 2
    chosen = list(shape)
    chosen[axis] = int(rng.integers(1, shape[axis] + 1))
    mode = str(rng.choice(["linear", "circular"]))
    most = shape[axis] - chosen[axis] if mode == "linear" else 9
    starts = [int64(rng.integers(0, most + 1, size=shape[0]))] if rng.integers(4) else []
    attributes: dict[str, Any] = {"axis": axis - len(shape) * int(rng.integers(2)), "mode": mode}
    return Case("TensorScatter", version, [tensor(rng, shape, dtype), tensor(rng, chosen, dtype), *starts], attributes)


def one_hot(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 0, 3)
    axis = axis_of(rng, len(shape) + 1, version >= 11)
    depth = int(rng.integers(1, 6))
    kinds = types("OneHot", version, 0)
    indices = rng.integers(0 if version < 11 else -7, 8, size=shape)
    kind = kinds[rng.integers(len(kinds))]
    if np.dtype(kind).kind == "u":
        indices = abs(indices)
    attributes = {"axis": axis} if rng.integers(4) else {}
    size = np.array(depth, kinds[rng.integers(len(kinds))])
    inputs = [np.asarray(indices).astype(kind), size.reshape([[], [1]][rng.integers(2)]), tensor(rng, [2], dtype)]
    return Case("OneHot", version, inputs, attributes)


def non_zero(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    return Case("NonZero", version, [tensor(rng, dims(rng, 1), dtype, -1, 2)])


def compress(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 1)
    axis = axis_of(rng, len(shape), version >= 11) if rng.integers(3) else None
    size = int(np.prod(shape)) if axis is None else shape[axis]
    condition = rng.random(int(rng.integers(0, size + 1)) if rng.integers(2) else size) < 0.5
    return Case("Compress", version, [tensor(rng, shape, dtype), condition], {} if axis is None else {"axis": axis})


def unique(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = without_zeros(rng) if rng.integers(8) else dims(rng, 1)
    attributes: dict[str, Any] = {} if rng.integers(2) else {"axis": axis_of(rng, len(shape))}
    if rng.integers(2):
        attributes["sorted"] = int(rng.integers(2))
    return Case("Unique", version, [tensor(rng, shape, dtype, -1, 2)], attributes, outputs=int(rng.integers(1, 5)))


def top_k(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = without_zeros(rng) if version == 1 or rng.integers(8) else dims(rng, 1)
    axis = axis_of(rng, len(shape))
    attributes: dict[str, Any] = {"axis": axis} if rng.integers(3) else {}
    k = int(rng.integers(0, shape[attributes.get("axis", -1)] + 1))
    if version >= 11 and rng.integers(3):
        attributes["largest"] = int(rng.integers(2))
    x = tensor(rng, shape, dtype, -4, 5)
    if version == 1:
        return Case("TopK", 1, [x], {"k": max(k, 1), **attributes}, outputs=2)
    return Case("TopK", version, [x, int64([k])], attributes, outputs=2)


def loss(op_type: str) -> Callable[[np.random.Generator, int, Any], Case]:
    def draw(rng: np.random.Generator, version: int, dtype: Any) -> Case:
        shape = without_zeros(rng, 2, 4)
        classes = shape[1]
        target = np.asarray(rng.integers(0, classes, size=[shape[0], *shape[2:]])).astype(rng.choice([np.int32, np.int64]))
        attributes: dict[str, Any] = {"reduction": str(rng.choice(["none", "sum", "mean"]))} if rng.integers(3) else {}
        if rng.integers(2):
            ignored = int(rng.choice([-1, 0, 1, classes, 255]))
            attributes["ignore_index"] = ignored
            target[rng.random(target.shape) < 0.3] = ignored if ignored != 1 or classes > 1 else 0
        scores = np.asarray(rng.normal(size=shape) * 3).astype(dtype)
        weight = [np.asarray(rng.random(classes) + 0.1).astype(dtype)] if rng.integers(2) else []
        tolerance = 1e-5 if np.dtype(dtype).itemsize > 2 else 2e-2
        outputs = int(rng.integers(1, 3)) if op_type == "SoftmaxCrossEntropyLoss" else 1
        return Case(op_type, version, [scores, target, *weight], attributes, outputs, rtol=tolerance, atol=tolerance)

    return draw


DRAWS: dict[str, Callable[[np.random.Generator, int, Any], Case]] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Scatter": scatter_elements("Scatter"),
    "ScatterElements": scatter_elements("ScatterElements"),
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "OneHot": one_hot,
    "NonZero": non_zero,
    "Compress": compress,
    "Unique": unique,
    "TopK": top_k,
    "NegativeLogLikelihoodLoss": loss("NegativeLogLikelihoodLoss"),
    "SoftmaxCrossEntropyLoss": loss("SoftmaxCrossEntropyLoss"),
}
