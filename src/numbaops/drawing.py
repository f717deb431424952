"""What a model declares of its inputs, and values of that kind, drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from numbaops.dtypes import BY_CODE, ElementType
from numbaops.errors import InvalidTypeError, InvalidValueError

_LARGEST_DRAWN_INTEGER = 9


@dataclass(frozen=True, slots=True)
class Declared:
    """A graph input or output as the model declares it; an input is required if no initializer has its name."""

    name: str
    type: onnx.TypeProto
    required: bool = True


def declared_inputs(model: onnx.ModelProto) -> list[Declared]:
    """The inputs of a model, those that a run needs first."""
    constants = {tensor.name for tensor in model.graph.initializer} | {tensor.values.name for tensor in model.graph.sparse_initializer}
    inputs = [Declared(value.name, value.type, value.name not in constants) for value in model.graph.input]
    return sorted(inputs, key=lambda one: not one.required)


def declared_outputs(model: onnx.ModelProto) -> list[Declared]:
    """The outputs of a model."""
    return [Declared(value.name, value.type) for value in model.graph.output]


def draw(declared: onnx.TypeProto, dimensions: Mapping[str, int], random: np.random.Generator, name: str) -> Any:
    """A value of a declared type; unknown dimensions are 1."""
    kind = declared.WhichOneof("value")
    if kind == "sequence_type":
        return [draw(declared.sequence_type.elem_type, dimensions, random, name) for _ in range(2)]
    if kind == "optional_type":
        return draw(declared.optional_type.elem_type, dimensions, random, name)
    row = BY_CODE.get(declared.tensor_type.elem_type)
    if kind != "tensor_type" or row is None:
        raise InvalidTypeError(f"input {name!r} is of a type that cannot be drawn ({kind or 'none declared'}); give it with --input")
    if not declared.tensor_type.HasField("shape"):
        raise InvalidValueError(f"input {name!r} has no declared rank, so it cannot be drawn; give it with --input")
    sizes = ((_known_size(dim), dim.dim_param) for dim in declared.tensor_type.shape.dim)
    shape = tuple(dimensions.get(symbol, 1) if known is None else known for known, symbol in sizes)
    return _draw_array(row, shape, random)


def _draw_array(row: ElementType, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if row.kind == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    if row.kind == "string":
        words = np.array([f"text {number}" for number in range(_LARGEST_DRAWN_INTEGER + 1)], object)
        return words[random.integers(0, words.size, shape)].reshape(shape)
    if row.kind in ("signed", "unsigned"):
        largest = min(_LARGEST_DRAWN_INTEGER, (1 << row.bits - (row.kind == "signed")) - 1)
        return random.integers(0, largest + 1, shape).astype(row.dtype)
    if row.kind == "complex":
        return np.asarray(random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(row.dtype)
    values = np.asarray(random.standard_normal(shape, np.float64 if row.bits == 64 else np.float32))
    if row.format is not None and not row.format.signed:
        values = np.abs(values)
    return values.astype(row.dtype)


def _known_size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    # Some exporters write -1 for "unknown".
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def dimensions(inputs: Sequence[Declared], feeds: Mapping[str, Any], sizes: Iterable[str]) -> dict[str, int]:
    """Sizes of the symbolic dimensions of inputs.

    Args:
        inputs: what the model declares.
        feeds: the inputs that are given, whose sizes count.
        sizes: ``NAME=SIZE`` each, which come before.
    """
    symbols = {dim.dim_param for one in inputs for dim in one.type.tensor_type.shape.dim if dim.dim_param}
    found: dict[str, int] = {}
    for text in sizes:
        name, _, size = text.rpartition("=")
        if not (size.isascii() and size.isdigit() and int(size) < 1 << 63):
            raise InvalidValueError(f"--dim {text}: it takes NAME=SIZE, the size a whole number below 2**63")
        if name not in symbols:
            raise InvalidValueError(f"--dim {text}: no input has a dimension {name!r}; symbolic dimensions: {listed(sorted(symbols))}")
        if name in found:
            raise InvalidValueError(f"--dim {text}: the size of {name!r} is given twice")
        found[name] = int(size)
    for one in inputs:
        if isinstance(value := feeds.get(one.name), np.ndarray):
            for dim, size in zip(one.type.tensor_type.shape.dim, value.shape, strict=False):
                if dim.dim_param:
                    found.setdefault(dim.dim_param, size)
    return found


def listed(names: Iterable[str]) -> str:
    """Names in an error message."""
    return ", ".join(names) or "none"
