"""Draws of element-wise operators; and what the other arithmetic families share: types and values of an operator version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper

from drawn.case import Case

TOLERANCES = {"float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2)}
BINARY = (
    *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"),
    *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "PRelu"),
)
VARIADIC = ("Max", "Min", "Sum", "Mean")
UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor"),
    *("Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round"),
    *("Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu"),
)
PARAMETERS = {"alpha", "beta", "gamma", "bias", "lambd"}


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for op_type in UNARY:
        for opset in versions(op_type):
            for _ in range(12):
                yield unary(rng, op_type, opset)
    for op_type in BINARY:
        for opset in versions(op_type):
            for _ in range(25):
                yield binary(rng, op_type, opset)
    for op_type in VARIADIC:
        for opset in versions(op_type):
            for _ in range(12):
                x = tensor(rng, op_type, opset)
                others = [values(rng, x.dtype, x.shape if opset < 8 else stretchable(rng, x.shape)) for _ in range(rng.integers(0, 4))]
                yield Case(op_type, opset, [*others, x], **tolerance(x))
    for opset in versions("Clip"):
        for _ in range(25):
            yield clip(rng, opset)
    for opset in versions("Where"):
        for _ in range(20):
            x = tensor(rng, "Where", opset)
            y, condition = values(rng, x.dtype, stretchable(rng, x.shape)), values(rng, np.dtype(bool), stretchable(rng, x.shape))
            yield Case("Where", opset, [condition, x, y])
    for opset in versions("SwiGLU"):
        for _ in range(12):
            x = tensor(rng, "SwiGLU", opset)
            yield Case("SwiGLU", opset, [x, values(rng, x.dtype, x.shape)], {"alpha": 0.75}, **tolerance(x))


def versions(op_type: str) -> list[int]:
    return sorted(each.since_version for each in onnx.defs.get_all_schemas_with_history() if (each.domain, each.name) == ("", op_type))


def types(op_type: str, opset: int, place: int = 0) -> list[np.dtype[Any]]:
    """The element types that an operator version allows for an input."""
    schema = onnx.defs.get_schema(op_type, opset)
    name = schema.inputs[min(place, len(schema.inputs) - 1)].type_str
    allowed = next(each.allowed_type_strs for each in schema.type_constraints if each.type_param_str == name)
    named = {
        helper.tensor_dtype_to_string(code): helper.tensor_dtype_to_np_dtype(code) for code in onnx.TensorProto.DataType.values() if code
    }
    codes = {f"tensor({key.removeprefix('TensorProto.').lower()})": dtype for key, dtype in named.items()}
    return [codes[each] for each in sorted(allowed)]


def values(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Elements of a type: small ones, extreme ones, few different ones."""
    kind = rng.integers(4)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "OU":
        return rng.choice(np.array(["", "a", "b", "\u00e4"], object), shape).reshape(shape)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = (limits.min, limits.max) if kind == 0 else (max(limits.min, -4), 5)
        return np.asarray(rng.integers(low, high, shape, dtype, endpoint=True))
    if dtype.kind == "c":
        return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    drawn = np.asarray(rng.normal(size=shape) * (10 if kind == 0 else 1))
    if kind == 1:
        drawn = np.asarray(np.round(drawn * 2) / 2)
    if kind == 2 and drawn.size:
        drawn = np.where(rng.random(shape) < 0.15, rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], shape), drawn)
    return np.asarray(drawn.astype(dtype))


def a_shape(rng: np.random.Generator, least: int = 0, most: int = 4, zero: float = 0.04) -> tuple[int, ...]:
    return tuple(0 if rng.random() < zero else int(size) for size in rng.integers(1, 5, rng.integers(least, most + 1)))


def stretchable(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another."""
    return tuple(1 if rng.random() < 0.3 else size for size in shape[rng.integers(0, len(shape) + 1) :])


def tensor(rng: np.random.Generator, op_type: str, opset: int, shape: tuple[int, ...] | None = None) -> Any:
    allowed = types(op_type, opset)
    return values(rng, allowed[rng.integers(len(allowed))], a_shape(rng) if shape is None else shape)


def tolerance(x: Any) -> dict[str, float]:
    rtol, atol = TOLERANCES.get(x.dtype.name, (1e-5, 1e-5))
    return {"rtol": rtol, "atol": atol}


def unary(rng: np.random.Generator, op_type: str, opset: int) -> Case:
    schema = onnx.defs.get_schema(op_type, opset)
    attributes: dict[str, Any] = {
        name: float(rng.choice([-1.5, -0.5, 0.25, 0.5, 1.5, 2.0])) for name in PARAMETERS & set(schema.attributes) if rng.random() < 0.6
    }
    if op_type == "Shrink":
        attributes["lambd"] = abs(attributes.get("lambd", 0.5))
    if op_type == "IsInf":
        attributes = {"detect_negative": int(rng.integers(2)), "detect_positive": int(rng.integers(2))}
    if op_type == "Gelu" and rng.random() < 0.5:
        attributes = {"approximate": "tanh"}
    if "consumed_inputs" in schema.attributes and rng.random() < 0.3:
        attributes["consumed_inputs"] = [0]
    x = tensor(rng, op_type, opset)
    return Case(op_type, opset, [x], attributes, **tolerance(x))


def binary(rng: np.random.Generator, op_type: str, opset: int) -> Case:
    schema = onnx.defs.get_schema(op_type, opset)
    a = tensor(rng, op_type, opset)
    attributes: dict[str, Any] = {}
    if op_type == "PRelu" and opset < 7:
        b = values(rng, a.dtype, (a.shape[1] if a.ndim > 1 and rng.random() < 0.6 else 1,))
    elif "broadcast" in schema.attributes:
        start, length = rng.integers(0, a.ndim + 1), rng.integers(0, 3)
        shape, attributes = a.shape[start : start + length], {"broadcast": 1, "axis": int(start)}
        if rng.random() < 0.3:
            shape, attributes = a.shape[start:], {"broadcast": 1}
        elif rng.random() < 0.2:
            shape, attributes = a.shape, {}
        elif rng.random() < 0.2:
            shape, attributes = (1,) * min(a.ndim, 2), {"broadcast": 1}
        b = values(rng, a.dtype, shape)
    else:
        others = types(op_type, opset, 1)
        dtype = others[rng.integers(len(others))] if op_type == "Pow" and opset >= 12 and rng.random() < 0.7 else a.dtype
        b = values(rng, dtype, stretchable(rng, a.shape))
        if op_type != "PRelu" and rng.random() < 0.3:
            a, b = (b, a) if dtype == a.dtype else (a, b)
    if op_type in ("Div", "Mod") and a.dtype.kind in "iu":
        b = np.where(b == 0, b.dtype.type(3), b)
        if a.dtype.kind == "i":  # the least number divided by -1 ends some programs
            b = np.where(b == -1, b.dtype.type(1), b)
    if op_type == "Mod":
        attributes["fmod"] = int(a.dtype.kind not in "iu" and (opset < 28 or rng.random() < 0.5))
    if op_type == "BitShift":
        attributes["direction"] = str(rng.choice(["LEFT", "RIGHT"]))
    return Case(op_type, opset, [a, np.asarray(b)], attributes, **tolerance(a))


def clip(rng: np.random.Generator, opset: int) -> Case:
    x = tensor(rng, "Clip", opset)
    low, high = sorted(int(limit) for limit in rng.integers(0 if x.dtype.kind == "u" else -3, 4, 2))
    if rng.random() < 0.1:
        low, high = high, low
    if opset < 11:
        attributes = {name: float(limit) for name, limit in (("min", low), ("max", high)) if rng.random() < 0.7}
        return Case("Clip", opset, [x], attributes, **tolerance(x))
    limits = [np.array(limit).astype(x.dtype) if rng.random() < 0.7 else None for limit in (low, high)]
    return Case("Clip", opset, [x, *limits], **tolerance(x))
