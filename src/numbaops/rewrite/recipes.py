"""Which nodes give a tensor back, in place of its elements.

A recipe is a chain of nodes. It is offered only if ONNX has its operators for the element type at the model's opset, and ONNX Runtime
has them too, so that a model that it loads remains one. What neither has for a type is made in a wider one, and cast: by values that
both casts leave as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx.defs
from onnx import SparseTensorProto, TensorProto

from numbaops.casting import cast
from numbaops.dtypes import BY_NAME, ELEMENT_TYPES, ElementType
from numbaops.rewrite.patterns import Array, Diagonal, Pattern, Ramp, Sparse, Uniform, words
from numbaops.rewrite.payloads import smallest

_PLAIN = frozenset(["float", "double", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"])
_NARROW_FLOATS = frozenset(["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"])
_BY_BITS = _PLAIN | _NARROW_FLOATS | {"bfloat16"}

# What ONNX Runtime 1.32 has on CPUs, found by loading a model of each.
_IN_ONNXRUNTIME: Mapping[str, frozenset[str]] = {
    "ConstantOfShape": _PLAIN | {"bfloat16"},
    "EyeLike": frozenset({"float", "double", "int32", "int64", "uint64"}),
    "Mul": frozenset({"float", "double", "int32", "int64"}),
    "Range": frozenset({"float", "double", "int16", "int32", "int64"}),
    "Cast": _BY_BITS | {"uint4", "int4"},  # to float8e8m0, uint2 and int2 too, but folding such a node fails when a model is loaded
    "Constant": _BY_BITS,  # from a sparse tensor
    "Expand": frozenset({"string"}),
    "Identity": _BY_BITS | {"string"},
}
# No model that uses them loads there anyway.
NOT_IN_ONNXRUNTIME = frozenset({"complex64", "complex128", "float6e2m3", "float6e3m2"})

_LARGEST_COUNTED = 1 << 53
"""Where ONNX Runtime, which counts the elements of a Range in double, would begin to miscount."""


SPARSE = "sparse_value"
"""The title of a Constant that has few elements."""


class _Previous:
    """Stands for the output of the node before."""


PREVIOUS = _Previous()


@dataclass(frozen=True, slots=True)
class Step:
    """A node: its operator, its inputs (tensors, or :data:`PREVIOUS`) and its attributes."""

    op_type: str
    inputs: tuple[Array | _Previous, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Nodes that give a tensor; the last one's output is it."""

    steps: tuple[Step, ...]

    @property
    def title(self) -> str:
        """The operators, but for the one that has the shape for EyeLike."""
        if self.steps[0].op_type == "Constant":
            return SPARSE
        names = [step.op_type for step in self.steps]
        return " + ".join(names[1:] if "EyeLike" in names else names)


@functools.cache
def offered(op_type: str, opset: int) -> frozenset[str]:
    """The element types that an operator gives at an opset, here and in ONNX Runtime."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return frozenset()
    variable = schema.outputs[0].type_str
    texts = next(each.allowed_type_strs for each in schema.type_constraints if each.type_param_str == variable)
    types = frozenset(text.removeprefix("tensor(").removesuffix(")") for text in texts if text.startswith("tensor("))
    return types & (_IN_ONNXRUNTIME.get(op_type, types) | NOT_IN_ONNXRUNTIME)


def recipes(pattern: Pattern, row: ElementType, shape: tuple[int, ...], opset: int) -> Iterator[Recipe]:
    """The ways to make a tensor of an element type and shape in which a pattern was found."""
    if isinstance(pattern, Sparse):
        yield from _sparse(pattern, row, shape, opset)
        return
    for carrier in _carriers(row, opset):
        end = () if carrier is row else (Step("Cast", (PREVIOUS,), {"to": row.code}),)
        for steps in _MAKERS[type(pattern)](pattern, row, carrier, shape, opset):
            yield Recipe((*steps, *end))


def why_not(pattern: Pattern, row: ElementType, opset: int) -> str:
    """Why no recipe is there for a pattern."""
    what = {Uniform: "is uniform", Ramp: "is a ramp", Diagonal: "is a diagonal", Sparse: "is mostly zero"}[type(pattern)]
    operator = {Uniform: "ConstantOfShape", Ramp: "Range", Diagonal: "EyeLike", Sparse: "sparse Constant"}[type(pattern)]
    return f"{what}, but no {operator} gives these bits of {row} at opset {opset} and in ONNX Runtime"


def _carriers(row: ElementType, opset: int) -> Iterator[ElementType]:
    """The type itself, and one that has all its values and can be cast to it."""
    yield row
    if row.name not in offered("Cast", opset) or row.kind == "string":
        return
    if row.kind == "float" and row.bits <= 16:
        yield BY_NAME["float"]
    elif row.kind == "bool" or (row.kind in ("signed", "unsigned") and row.bits < 32):
        yield BY_NAME["int32"]
    elif row.kind == "unsigned":
        yield BY_NAME["int64"]


def _carried(values: Array, row: ElementType, carrier: ElementType) -> Array | None:
    """Values as the carrier has them, or None if a cast might not bring their bits back."""
    if carrier is row:
        return values
    wide = np.asarray(cast(values, carrier))
    if carrier.kind == "float":
        # infinities saturate in casts to float8, NaNs have payloads, and some processors are set to flush subnormal floats to zero
        size = np.abs(wide[wide != 0])
        if not np.isfinite(wide).all() or (size < np.finfo(np.float32).tiny).any():
            return None
    return wide if np.array_equal(words(np.asarray(cast(wide, row))), words(values)) else None


def _integers(*values: int) -> Array:
    return np.array(values, np.int64)


def _uniform(pattern: Uniform, row: ElementType, carrier: ElementType, shape: tuple[int, ...], opset: int) -> Iterator[tuple[Step, ...]]:
    if carrier.name in offered("ConstantOfShape", opset):
        value = _carried(pattern.value, row, carrier)
        if value is not None:
            zero_float = carrier.name == "float" and not words(value)[0]
            tensor = {} if zero_float else {"value": smallest(value.reshape(1))}
            yield (Step("ConstantOfShape", (_integers(*shape),), tensor),)
    elif carrier is row and row.name in offered("Expand", opset):
        yield (Step("Expand", (pattern.value, _integers(*shape))),)


def _diagonal(pattern: Diagonal, row: ElementType, carrier: ElementType, shape: tuple[int, ...], opset: int) -> Iterator[tuple[Step, ...]]:
    if carrier.name not in offered("EyeLike", opset):
        return
    values = _carried(pattern.values, row, carrier)
    if values is None:
        return
    attributes = {"dtype": carrier.code} if carrier.name != "float" else {}
    if pattern.k:
        attributes["k"] = pattern.k
    eye = (Step("ConstantOfShape", (_integers(*shape),)), Step("EyeLike", (PREVIOUS,), attributes))
    if (values == 1).all():
        yield eye
        return
    # Zero times what is not finite is no zero, and times what is negative it is -0.0.
    if carrier.kind == "float" and not (np.isfinite(values).all() and not np.signbit(values).any()):
        return
    if carrier.name not in offered("Mul", opset) or opset < 7:  # which broadcasts since then
        return
    factor: Array
    if (words(values) == words(values)[0]).all():
        factor = values[:1].reshape(())
    else:
        factor = np.ones(shape[1], values.dtype)
        first = max(0, pattern.k)
        factor[first : first + values.size] = values
    yield (*eye, Step("Mul", (PREVIOUS, factor)))


def _ramp(pattern: Ramp, row: ElementType, carrier: ElementType, shape: tuple[int, ...], opset: int) -> Iterator[tuple[Step, ...]]:
    if carrier.name not in offered("Range", opset):
        return
    start, step, count = pattern.start, pattern.step, pattern.count
    if carrier.kind == "float":
        limit = start + count * step
    else:
        limit = start + (count - 1) * step + (1 if step > 0 else -1)
        bounds = np.iinfo(carrier.dtype)
        if not all(bounds.min <= each <= bounds.max and abs(each) < _LARGEST_COUNTED for each in (start, limit, step, limit - start)):
            return
    steps = [Step("Range", tuple(np.array(each, carrier.dtype) for each in (start, limit, step)))]
    if len(shape) != 1:
        steps.append(Step("Reshape", (PREVIOUS, _integers(*shape))))
    yield tuple(steps)


def _sparse(pattern: Sparse, row: ElementType, shape: tuple[int, ...], opset: int) -> Iterator[Recipe]:
    # the attribute is there since opset 11
    if opset < 11 or row.packed or row.name not in offered("Constant", opset) or row.name in ("string", "float8e8m0"):
        return
    indices = TensorProto(data_type=BY_NAME["int64"].code, dims=[pattern.positions.size])
    indices.int64_data.extend(pattern.positions.tolist())
    values = smallest(pattern.values)
    values.name = "values"  # onnx.checker asks for one
    yield Recipe((Step("Constant", (), {"sparse_value": SparseTensorProto(values=values, indices=indices, dims=shape)}),))


_MAKERS: Mapping[Any, Any] = {Uniform: _uniform, Diagonal: _diagonal, Ramp: _ramp}

assert {row.name for row in ELEMENT_TYPES} >= _BY_BITS | NOT_IN_ONNXRUNTIME
