"""Draws of normalizations, the Softmax family and Dropout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from drawn.case import Case

TYPES = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(bfloat16)": np.dtype(ml_dtypes.bfloat16),
}
VERSIONS = {
    "BatchNormalization": (1, 6, 7, 9, 14, 15),
    "InstanceNormalization": (1, 6, 22),
    "GroupNormalization": (18, 21),
    "LayerNormalization": (17,),
    "RMSNormalization": (23,),
    "LpNormalization": (1, 22),
    "MeanVarianceNormalization": (9, 13),
    "LRN": (1, 13),
    "Softmax": (1, 11, 13),
    "LogSoftmax": (1, 11, 13),
    "Hardmax": (1, 11, 13),
    "Dropout": (1, 6, 7, 10, 12, 13, 22),
}


def types(op_type: str, version: int) -> list[np.dtype[Any]]:
    """The float types of the first input in that version."""
    schema = onnx.defs.get_schema(op_type, version)
    (allowed,) = (each.allowed_type_strs for each in schema.type_constraints if each.type_param_str == schema.inputs[0].type_str)
    return [TYPES[name] for name in sorted(allowed) if name in TYPES]


def opsets(op_type: str, version: int) -> list[int]:
    """The opset of a version, and if that is one that ONNX Runtime refuses, the first that it takes."""
    later = [each for each in VERSIONS[op_type] if each > version]
    return [version, 7] if version < 7 and (not later or later[0] > 7) else [version]


def tolerance(dtype: np.dtype[Any]) -> dict[str, float]:
    """One rounding of the type, or two where one is in between."""
    unit = float(ml_dtypes.finfo(dtype).eps)
    return {"rtol": max(1e-5, 1.01 * unit), "atol": max(1e-6, unit / 4)} if dtype.itemsize < 8 else {"rtol": 1e-6, "atol": 1e-8}


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Normal numbers around a random mean."""
    return np.asarray(rng.normal(rng.normal() * 3, 1 + rng.random(), shape)).astype(dtype)


def positive(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return np.asarray(rng.random(shape) * 3 + 0.1).astype(dtype)


def shape(rng: np.random.Generator, least: int, most: int, zero: bool = True) -> tuple[int, ...]:
    rank = int(rng.integers(least, most + 1))
    sizes = rng.integers(1, 5, rank)
    if zero and rank and rng.random() < 0.05:
        sizes[rng.integers(rank)] = 0
    return tuple(int(size) for size in sizes)


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    makers = {
        "BatchNormalization": batch_normalization,
        "InstanceNormalization": instance_normalization,
        "GroupNormalization": group_normalization,
        "LayerNormalization": layer_normalization,
        "RMSNormalization": rms_normalization,
        "LpNormalization": lp_normalization,
        "MeanVarianceNormalization": mean_variance_normalization,
        "LRN": lrn,
        "Softmax": softmax,
        "LogSoftmax": softmax,
        "Hardmax": softmax,
        "Dropout": dropout,
    }
    for op_type, make in makers.items():
        for version in VERSIONS[op_type]:
            for dtype in types(op_type, version):
                for _ in range(12):
                    inputs, attributes, outputs = make(rng, version, dtype)
                    for opset in opsets(op_type, version):
                        exact = {"rtol": 0.0} if op_type in ("Hardmax", "Dropout") else tolerance(dtype)
                        yield Case(op_type, opset, inputs, attributes, outputs, **exact)


Drawn = tuple[list[Any], dict[str, Any], int]


def batch_normalization(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    sizes = (4, 3, 2, 2)[: int(rng.integers(2, 5))] if version == 1 else shape(rng, 1 if version >= 9 else 2, 5)
    attributes: dict[str, Any] = {"epsilon": float(rng.choice([1e-5, 1e-3])), "momentum": float(rng.choice([0.9, 0.3]))}
    channels: tuple[int, ...] = (sizes[1] if len(sizes) > 1 else 1,)
    training = bool(rng.random() < 0.3)
    outputs = {14: 3, 15: 3}.get(version, 5) if training else 1
    if version == 1:
        attributes["consumed_inputs"] = [0, 0, 0, 1, 1]
    if version <= 6:
        attributes["is_test"] = int(not training)
    elif version == 7:
        attributes["spatial"] = int(rng.integers(2))
        channels = channels if attributes["spatial"] else sizes[1:]
    elif version >= 14:
        attributes["training_mode"] = int(training)
    others = [dtype] * 4
    if version >= 14 and rng.random() < 0.5:
        choices = [each for each in TYPES.values() if each.itemsize < 8] if dtype.itemsize < 8 else [dtype]
        statistics = choices[rng.integers(len(choices))]
        others = [dtype, dtype, statistics, statistics]
        if version == 15:
            others[:2] = [choices[rng.integers(len(choices))]] * 2
    scale, bias, mean = (values(rng, channels, each) for each in others[:3])
    return [values(rng, sizes, dtype), scale, bias, mean, positive(rng, channels, others[3])], attributes, outputs


def instance_normalization(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    sizes = shape(rng, 3, 5)
    attributes: dict[str, Any] = {"epsilon": 1e-3} if rng.random() < 0.5 else {}
    return [values(rng, sizes, dtype), values(rng, sizes[1:2], dtype), values(rng, sizes[1:2], dtype)], attributes, 1


def group_normalization(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    groups, each = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    sizes = (int(rng.integers(0, 3)), groups * each, *shape(rng, 1, 3, zero=False))
    parameters = (groups if version == 18 else groups * each,)
    attributes: dict[str, Any] = {"num_groups": groups} | ({"epsilon": 1e-3} if rng.random() < 0.5 else {})
    return [values(rng, sizes, dtype), values(rng, parameters, dtype), values(rng, parameters, dtype)], attributes, 1


def layer_normalization(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    sizes = shape(rng, 1, 4)
    axis = int(rng.integers(-len(sizes), len(sizes)))
    normalized = sizes[axis:]
    attributes: dict[str, Any] = {"axis": axis} if rng.random() < 0.8 or axis == len(sizes) - 1 else {}
    if not attributes:
        normalized = sizes[-1:]
    bias = values(rng, normalized, dtype) if rng.random() < 0.6 else None
    inputs = [values(rng, sizes, dtype), values(rng, normalized, dtype), *([] if bias is None else [bias])]
    return inputs, attributes, int(rng.integers(1, 4))


def rms_normalization(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    inputs, attributes, _ = layer_normalization(rng, version, dtype)
    return inputs[:2], attributes, 1


def lp_normalization(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    sizes = shape(rng, 1, 4)
    attributes: dict[str, Any] = {"p": int(rng.integers(1, 3))} if rng.random() < 0.8 else {}
    if rng.random() < 0.8:
        attributes["axis"] = int(rng.integers(-len(sizes), len(sizes)))
    x = values(rng, sizes, dtype)
    if rng.random() < 0.2:
        x[:1] = 0
    return [x], attributes, 1


def mean_variance_normalization(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    if rng.random() < 0.3:
        return [values(rng, shape(rng, 4, 4, zero=False), dtype)], {}, 1
    sizes = shape(rng, 1, 4, zero=False)
    axes = rng.permutation(len(sizes))[: int(rng.integers(1, len(sizes) + 1))]
    return [values(rng, sizes, dtype)], {"axes": [int(axis) for axis in axes]}, 1


def lrn(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    attributes: dict[str, Any] = {"size": int(rng.integers(1, 8))}
    if rng.random() < 0.5:
        attributes |= {"alpha": float(rng.random()), "beta": 0.5, "bias": 2.0}
    sizes = (int(rng.integers(1, 4)), int(rng.integers(1, 9)), *shape(rng, 2, 2)) if rng.random() < 0.7 else shape(rng, 2, 5)
    return [values(rng, sizes, dtype)], attributes, 1


def softmax(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    sizes = shape(rng, 1, 4)
    x = values(rng, sizes, dtype) * np.asarray(rng.choice([1, 30]), dtype)
    if rng.random() < 0.2:
        x = np.round(x.astype(np.float32) / 3).astype(dtype)  # doubled maxima
    if rng.random() < 0.1:
        x[..., :1] = -np.inf
    first = 0 if version == 1 else -len(sizes)
    attributes = {"axis": int(rng.integers(first, len(sizes)))} if rng.random() < 0.7 or (len(sizes) == 1 and version < 13) else {}
    return [x], attributes, 1


def dropout(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Drawn:
    x = values(rng, shape(rng, 0, 3), dtype)
    outputs = int(rng.integers(1, 3))
    if version < 12:
        attributes: dict[str, Any] = {"ratio": 0.3} if rng.random() < 0.5 else {}
        if version < 7:
            attributes["is_test"] = 1
        return [x], attributes, outputs
    ratio, training = np.array(rng.choice([0, 0.4]), np.float32), np.array(False)
    optional = [[], [ratio], [ratio, training], [None, training]][rng.integers(4)]
    return [x, *optional], {"seed": 3} if rng.random() < 0.3 else {}, outputs
