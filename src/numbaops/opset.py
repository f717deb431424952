"""The table of operator versions, and the look-up into it.

One row for each (operator, since version): element types, attributes, and the class that implements it. Opset ``N`` uses
the row with the largest since version that is at most ``N``. ``tests/test_opset.py`` rebuilds every fact here from
``onnx.defs`` and names the row that a newer onnx asks for. Source: https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

import functools
import operator as _operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from numbaops.dtypes import BY_NAME, ElementType
from numbaops.errors import InvalidTypeError, InvalidValueError, UnsupportedError
from numbaops.ops.base import BoundOperator
from numbaops.ops.generator import Constant, ConstantOfShape, EyeLike
from numbaops.ops.quantization import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from numbaops.ops.tensor import BitCast, Cast, CastLike

NEWEST_OPSET = 28
"""The newest opset of the default domain that the table was checked against."""

DEFAULT_DOMAIN_ALIASES = ("", "ai.onnx")


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an operator version.

    Attributes:
        kind: the name in ``AttributeProto.AttributeType``, e.g. ``"TENSOR"``.
        required: whether a node must carry it.
        default: the value that a missing attribute stands for, or None.
    """

    kind: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class OperatorVersion:
    """One row of the table; there is one object for each, also after pickling.

    Attributes:
        op_type: the operator, e.g. ``"EyeLike"``.
        since_version: the opset that introduced this version.
        inputs: allowed element types of each input, by the schema's input name.
        outputs: allowed element types of each output, by the schema's output name.
        attributes: the attributes, by name.
        implementation: the class that checks attributes once and is then called with arrays.
        optional: names of the inputs that may be left out.
        domain: the operator's domain; ``""`` is ONNX's own.
    """

    op_type: str
    since_version: int
    inputs: Mapping[str, frozenset[ElementType]]
    outputs: Mapping[str, frozenset[ElementType]]
    attributes: Mapping[str, Attribute] = field(repr=False)
    implementation: type[BoundOperator] = field(repr=False)
    optional: frozenset[str] = frozenset()
    domain: str = ""

    def bind(self, attributes: Mapping[str, Any], *, check_types: bool = True) -> BoundOperator:
        """The operator with its attributes checked and bound.

        Args:
            attributes: attribute values by name.
            check_types: refuse element types that this version lacks; without it any type that the operator can
                carry is accepted, as ``onnx.reference`` does.

        Raises:
            NumbaopsError: an attribute is unknown, missing or wrong.
        """
        return self.implementation(self, attributes, check_types=check_types)

    def __reduce__(self) -> tuple[Any, ...]:
        return resolve, (self.op_type, self.since_version, self.domain)


def _types(names: str) -> frozenset[ElementType]:
    return frozenset(BY_NAME[name] for name in names.split())


_FLOATS = _types("float16 float double")
_INTEGERS = _types("int8 int16 int32 int64 uint8 uint16 uint32 uint64")
_NUMBERS = _FLOATS | _INTEGERS | _types("bool")
_TEXTS = _NUMBERS | _types("string")
_ALL_OF_9 = _TEXTS | _types("complex64 complex128")
_FLOAT8 = _types("float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz")
_FLOAT6 = _types("float6e2m3 float6e3m2")

# What each opset added to the types that constants may have, and casts.
_ADDED = {
    13: _types("bfloat16"),
    19: _FLOAT8,
    21: _types("int4 uint4"),
    23: _types("float4e2m1"),
    24: _types("float8e8m0"),
    25: _types("int2 uint2"),
    28: _FLOAT6,
}
# The same of quantised tensors.
_QUANTIZED = {
    10: _types("int8 uint8"),
    19: _FLOAT8,
    21: _types("int16 uint16 int4 uint4"),
    23: _types("float4e2m1"),
    25: _types("int2 uint2"),
    28: _FLOAT6,
}


def _grown(base: frozenset[ElementType], opset: int, added: Mapping[int, frozenset[ElementType]] = _ADDED) -> frozenset[ElementType]:
    return base.union(*(types for since, types in added.items() if since <= opset))


_REQUIRED_VALUE = {"value": Attribute("TENSOR", required=True)}
_DENSE_OR_SPARSE = {"value": Attribute("TENSOR"), "sparse_value": Attribute("SPARSE_TENSOR")}
_ANY_VALUE = _DENSE_OR_SPARSE | {
    "value_float": Attribute("FLOAT"),
    "value_floats": Attribute("FLOATS"),
    "value_int": Attribute("INT"),
    "value_ints": Attribute("INTS"),
    "value_string": Attribute("STRING"),
    "value_strings": Attribute("STRINGS"),
}
_FILL = {"value": Attribute("TENSOR")}
_EYE = {"dtype": Attribute("INT"), "k": Attribute("INT", default=0)}
_TO = {"to": Attribute("INT", required=True)}
_SATURATE = {"saturate": Attribute("INT", default=1)}
_ROUND = _SATURATE | {"round_mode": Attribute("STRING", default="up")}
_AXIS = {"axis": Attribute("INT", default=1)}
_BLOCK = _AXIS | {"block_size": Attribute("INT", default=0)}
_BLOCK_TO = _BLOCK | {"output_dtype": Attribute("INT", default=0)}
_PRECISION = _BLOCK_TO | _SATURATE | {"precision": Attribute("INT", default=0)}

_Types = frozenset[ElementType]
_Attributes = dict[str, Attribute]


def _row(
    implementation: type[BoundOperator],
    since_version: int,
    attributes: _Attributes,
    inputs: dict[str, _Types],
    outputs: _Types | dict[str, _Types],
    *optional: str,
) -> OperatorVersion:
    named = outputs if isinstance(outputs, dict) else {"output": outputs}
    return OperatorVersion(
        implementation.__name__,
        since_version,
        MappingProxyType(inputs),
        MappingProxyType(named),
        MappingProxyType(attributes),
        implementation,
        frozenset(optional),
    )


def _cast(since_version: int, attributes: _Attributes, base: _Types = _TEXTS) -> OperatorVersion:
    types = _grown(base, since_version)
    return _row(Cast, since_version, attributes, {"input": types}, types)


def _cast_like(since_version: int, attributes: _Attributes) -> OperatorVersion:
    types = _grown(_TEXTS, since_version)
    return _row(CastLike, since_version, attributes, {"input": types, "target_type": types}, types)


def _quantize(since_version: int, attributes: _Attributes, x: _Types, scale: _Types) -> OperatorVersion:
    types = _grown(frozenset(), since_version, _QUANTIZED)
    return _row(QuantizeLinear, since_version, attributes, {"x": x, "y_scale": scale, "y_zero_point": types}, {"y": types}, "y_zero_point")


def _dequantize(since_version: int, attributes: _Attributes, scale: _Types, y: _Types) -> OperatorVersion:
    types = _grown(_types("int32"), since_version, _QUANTIZED)
    return _row(
        DequantizeLinear, since_version, attributes, {"x": types, "x_scale": scale, "x_zero_point": types}, {"y": y}, "x_zero_point"
    )


_FLOAT, _INT64, _UINT8 = _types("float"), _types("int64"), _types("uint8")
_SHORT = _types("float float16 bfloat16")
_SHORT_INT32 = _SHORT | _types("int32")
_SCALE = _types("float8e8m0")
_BITS_OF_26 = _grown(_ALL_OF_9, 26) - _types("string")

# fmt: off
OPERATOR_VERSIONS: tuple[OperatorVersion, ...] = (
    _row(Constant,         1, _REQUIRED_VALUE,  {}, _FLOATS),
    _row(Constant,         9, _REQUIRED_VALUE,  {}, _ALL_OF_9),
    _row(Constant,        11, _DENSE_OR_SPARSE, {}, _ALL_OF_9),
    _row(Constant,        12, _ANY_VALUE,       {}, _ALL_OF_9),
    _row(Constant,        13, _ANY_VALUE,       {}, _grown(_ALL_OF_9, 13)),
    _row(Constant,        19, _ANY_VALUE,       {}, _grown(_ALL_OF_9, 19)),
    _row(Constant,        21, _ANY_VALUE,       {}, _grown(_ALL_OF_9, 21)),
    _row(Constant,        23, _ANY_VALUE,       {}, _grown(_ALL_OF_9, 23)),
    _row(Constant,        24, _ANY_VALUE,       {}, _grown(_ALL_OF_9, 24)),
    _row(Constant,        25, _ANY_VALUE,       {}, _grown(_ALL_OF_9, 25)),
    _row(ConstantOfShape,  9, _FILL, {"input": _INT64}, _NUMBERS),
    _row(ConstantOfShape, 20, _FILL, {"input": _INT64}, _grown(_NUMBERS, 20)),
    _row(ConstantOfShape, 21, _FILL, {"input": _INT64}, _grown(_NUMBERS, 21)),
    _row(ConstantOfShape, 23, _FILL, {"input": _INT64}, _grown(_NUMBERS, 23)),
    _row(ConstantOfShape, 24, _FILL, {"input": _INT64}, _grown(_NUMBERS, 24)),
    _row(ConstantOfShape, 25, _FILL, {"input": _INT64}, _grown(_NUMBERS, 25)),
    _row(EyeLike,          9, _EYE, {"input": _NUMBERS}, _NUMBERS),
    _row(EyeLike,         22, _EYE, {"input": _grown(_NUMBERS, 13)}, _grown(_NUMBERS, 13)),
    _cast( 1, {"to": Attribute("STRING", required=True)}, _NUMBERS),
    _cast( 6, _TO, _NUMBERS),
    _cast( 9, _TO),
    _cast(13, _TO),
    _cast(19, _TO | _SATURATE),
    _cast(21, _TO | _SATURATE),
    _cast(23, _TO | _SATURATE),
    _cast(24, _TO | _ROUND),
    _cast(25, _TO | _ROUND),
    _cast(28, _TO | _ROUND),
    _cast_like(15, {}),
    _cast_like(19, _SATURATE),
    _cast_like(21, _SATURATE),
    _cast_like(23, _SATURATE),
    _cast_like(24, _ROUND),
    _cast_like(25, _ROUND),
    _row(BitCast,         26, _TO, {"input": _BITS_OF_26}, _BITS_OF_26),
    _quantize(10, {},                    _types("float int32"), _FLOAT),
    _quantize(13, _AXIS,                 _types("float int32"), _FLOAT),
    _quantize(19, _AXIS | _SATURATE,     _SHORT_INT32, _SHORT_INT32),
    _quantize(21, _BLOCK_TO | _SATURATE, _SHORT_INT32, _SHORT_INT32),
    _quantize(23, _PRECISION,            _SHORT_INT32, _SHORT_INT32),
    _quantize(24, _PRECISION,            _SHORT_INT32, _SHORT_INT32 | _SCALE),
    _quantize(25, _PRECISION,            _SHORT_INT32, _SHORT_INT32 | _SCALE),
    _quantize(28, _PRECISION,            _SHORT_INT32, _SHORT_INT32 | _SCALE),
    _dequantize(10, {},        _FLOAT, _FLOAT),
    _dequantize(13, _AXIS,     _FLOAT, _FLOAT),
    _dequantize(19, _AXIS,     _SHORT, _SHORT),
    _dequantize(21, _BLOCK,    _SHORT, _SHORT),
    _dequantize(23, _BLOCK_TO, _SHORT, _SHORT),
    _dequantize(24, _BLOCK_TO, _SHORT | _SCALE, _SHORT),
    _dequantize(25, _BLOCK_TO, _SHORT | _SCALE, _SHORT),
    _dequantize(28, _BLOCK_TO, _SHORT | _SCALE, _SHORT),
    _row(DynamicQuantizeLinear, 11, {}, {"x": _FLOAT}, {"y": _UINT8, "y_scale": _FLOAT, "y_zero_point": _UINT8}),
)
# fmt: on


def operators() -> Iterator[tuple[str, tuple[OperatorVersion, ...]]]:
    """Every operator of the table with its versions, oldest first."""
    for name in dict.fromkeys(row.op_type for row in OPERATOR_VERSIONS):
        yield name, tuple(row for row in OPERATOR_VERSIONS if row.op_type == name)


def resolve(op_type: str, opset: int | None = None, domain: str = "") -> OperatorVersion:
    """The version of an operator that an opset uses.

    Args:
        op_type: the operator's name.
        opset: the opset version of ``domain``; None is the newest that the table knows.
        domain: ``""`` and ``"ai.onnx"`` are one domain.

    Raises:
        UnsupportedError: the operator is not in the table, or the opset is older than its first version.
        InvalidTypeError: ``opset`` is not an integer, or a name is not a ``str``.
        InvalidValueError: ``opset`` is below 1.
    """
    if not isinstance(op_type, str) or not isinstance(domain, str):
        raise InvalidTypeError(f"op_type is {op_type!r} and domain {domain!r}; allowed: two str", attribute="op_type")
    if opset is None:
        opset = NEWEST_OPSET
    try:
        number = None if isinstance(opset, (bool, np.bool_)) else _operator.index(opset)
    except TypeError:
        number = None
    if number is None:
        raise InvalidTypeError(f"opset is {opset!r}; allowed: an integer from 1 on, or None", op_type=op_type, attribute="opset")
    return _resolve(op_type, number, domain)


@functools.lru_cache(maxsize=1024)
def _resolve(op_type: str, opset: int, domain: str) -> OperatorVersion:
    if opset < 1:
        raise InvalidValueError(f"opset is {opset}; allowed: an integer from 1 on", op_type=op_type, attribute="opset")
    name = "" if domain in DEFAULT_DOMAIN_ALIASES else domain
    versions = [row for row in OPERATOR_VERSIONS if row.op_type == op_type and row.domain == name]
    if not versions:
        known = ", ".join(name for name, _ in operators())
        raise UnsupportedError(f"numbaops has no operator {op_type!r} of domain {domain!r}; it has {known} of domain ''", op_type=op_type)
    usable = [row for row in versions if row.since_version <= opset]
    if not usable:
        since = ", ".join(str(row.since_version) for row in versions)
        raise UnsupportedError(f"does not exist at opset {opset}; its versions are since opset {since}", op_type=op_type, attribute="opset")
    return usable[-1]
