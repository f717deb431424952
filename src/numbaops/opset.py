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
        domain: the operator's domain; ``""`` is ONNX's own.
    """

    op_type: str
    since_version: int
    inputs: Mapping[str, frozenset[ElementType]]
    outputs: Mapping[str, frozenset[ElementType]]
    attributes: Mapping[str, Attribute] = field(repr=False)
    implementation: type[BoundOperator] = field(repr=False)
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
_ALL_OF_9 = _NUMBERS | _types("string complex64 complex128")
_INT64 = _types("int64")

# What each opset added to the types that constants may have.
_ADDED = {
    13: _types("bfloat16"),
    19: _types("float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz"),
    21: _types("int4 uint4"),
    23: _types("float4e2m1"),
    24: _types("float8e8m0"),
    25: _types("int2 uint2"),
}


def _grown(base: frozenset[ElementType], opset: int) -> frozenset[ElementType]:
    return base.union(*(types for since, types in _ADDED.items() if since <= opset))


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


def _row(
    implementation: type[BoundOperator],
    since_version: int,
    attributes: dict[str, Attribute],
    inputs: dict[str, frozenset[ElementType]],
    output: frozenset[ElementType],
) -> OperatorVersion:
    name = implementation.__name__
    return OperatorVersion(
        name, since_version, MappingProxyType(inputs), MappingProxyType({"output": output}), MappingProxyType(attributes), implementation
    )


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
