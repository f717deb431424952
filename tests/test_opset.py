"""The table of operator versions against ``onnx.defs``, in both directions, and the look-up into it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.defs import OpSchema

import oracle
from numbaops.dtypes import BY_NAME
from numbaops.errors import InvalidTypeError, InvalidValueError, NumbaopsError, UnsupportedError
from numbaops.opset import NEWEST_OPSET, OPERATOR_VERSIONS, Attribute, OperatorVersion, operators, resolve

VERSIONS = {
    "Constant": (1, 9, 11, 12, 13, 19, 21, 23, 24, 25),
    "ConstantOfShape": (9, 20, 21, 23, 24, 25),
    "EyeLike": (9, 22),
    "Cast": (1, 6, 9, 13, 19, 21, 23, 24, 25, 28),
    "CastLike": (15, 19, 21, 23, 24, 25),
    "BitCast": (26,),
    "QuantizeLinear": (10, 13, 19, 21, 23, 24, 25, 28),
    "DequantizeLinear": (10, 13, 19, 21, 23, 24, 25, 28),
    "DynamicQuantizeLinear": (11,),
}
ORACLE_TYPES = {"Constant": oracle.CONSTANT_TYPES, "ConstantOfShape": oracle.CONSTANT_OF_SHAPE_TYPES, "EyeLike": oracle.EYE_LIKE_TYPES}
NEWEST_OF_ONNX = onnx.defs.onnx_opset_version()

ROWS = [pytest.param(row, id=f"{row.op_type}-{row.since_version}") for row in OPERATOR_VERSIONS]


def schemas(op_type: str) -> dict[int, OpSchema]:
    """Every schema of an operator of the default domain that the installed onnx knows, by since version."""
    history = onnx.defs.get_all_schemas_with_history()
    return {schema.since_version: schema for schema in history if schema.name == op_type and schema.domain == ""}


def plain(names: Any) -> set[str]:
    """``{"tensor(float)"}`` as ``{"float"}``."""
    return {name.removeprefix("tensor(").removesuffix(")") for name in names}


def formal_types(schema: OpSchema, parameters: Any) -> dict[str, set[str]]:
    constraints = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    return {parameter.name: plain(constraints.get(parameter.type_str, [parameter.type_str])) for parameter in parameters}


def schema_attributes(schema: OpSchema) -> dict[str, Attribute]:
    found = {}
    for name, attribute in schema.attributes.items():
        default = attribute.default_value
        value = helper.get_attribute_value(default) if default.type else None
        value = value.decode() if isinstance(value, bytes) else value
        found[name] = Attribute(attribute.type.name, required=attribute.required, default=value)
    return found


def names_of(types: Any) -> dict[str, set[str]]:
    return {parameter: {element_type.name for element_type in allowed} for parameter, allowed in types.items()}


def test_table_has_the_52_versions() -> None:
    assert [(row.op_type, row.since_version) for row in OPERATOR_VERSIONS] == [(name, v) for name, vs in VERSIONS.items() for v in vs]
    assert [(name, tuple(row.since_version for row in rows)) for name, rows in operators()] == list(VERSIONS.items())
    assert {row.domain for row in OPERATOR_VERSIONS} == {""}


@pytest.mark.parametrize("row", [row for row in ROWS if row.values[0].op_type in ORACLE_TYPES])  # type: ignore[attr-defined]
def test_types_are_those_of_the_oracle(row: OperatorVersion) -> None:
    types = ORACLE_TYPES[row.op_type][row.since_version]
    assert names_of(row.outputs) == {"output": set(types)}
    inputs = {"Constant": {}, "ConstantOfShape": {"input": {"int64"}}, "EyeLike": {"input": set(types)}}
    assert names_of(row.inputs) == inputs[row.op_type]


@pytest.mark.parametrize("row", ROWS)
def test_row_is_the_schema_of_onnx(row: OperatorVersion) -> None:
    schema = schemas(row.op_type).get(row.since_version)
    if schema is None:
        assert row.since_version > NEWEST_OF_ONNX, f"onnx has no {row.op_type}-{row.since_version}"
        pytest.skip(f"this onnx ends at opset {NEWEST_OF_ONNX}")
    assert names_of(row.inputs) == formal_types(schema, schema.inputs)
    assert names_of(row.outputs) == formal_types(schema, schema.outputs)
    assert dict(row.attributes) == schema_attributes(schema)
    assert list(row.inputs) == [parameter.name for parameter in schema.inputs]
    assert row.optional == {parameter.name for parameter in schema.inputs if parameter.option == OpSchema.FormalParameterOption.Optional}


@pytest.mark.parametrize("op_type", VERSIONS)
def test_onnx_has_no_version_that_the_table_lacks(op_type: str) -> None:
    have = {row.since_version for row in OPERATOR_VERSIONS if row.op_type == op_type}
    missing = []
    for version, schema in sorted(schemas(op_type).items()):
        if version not in have:
            parameters = formal_types(schema, [*schema.inputs, *schema.outputs])
            types = ", ".join(f"{name}: {' '.join(sorted(allowed))}" for name, allowed in parameters.items())
            missing.append(f"{op_type}-{version} ({types}; attributes {schema_attributes(schema)})")
    assert not missing, "add a row to OPERATOR_VERSIONS in numbaops/opset.py for " + "; ".join(missing)


def test_table_was_checked_against_the_newest_opset_of_onnx() -> None:
    assert NEWEST_OPSET >= NEWEST_OF_ONNX, (
        f"onnx {onnx.__version__} has opset {NEWEST_OF_ONNX}; if the other tests of this file pass, set NEWEST_OPSET in "
        f"numbaops/opset.py to it, else add the rows that they name first"
    )


# resolve


def expected_version(op_type: str, opset: int) -> int | None:
    return max((version for version in VERSIONS[op_type] if version <= opset), default=None)


@pytest.mark.parametrize("domain", ["", "ai.onnx"], ids=["default", "ai.onnx"])
@pytest.mark.parametrize("opset", range(1, 29))
@pytest.mark.parametrize("op_type", VERSIONS)
def test_resolve_at_every_opset(op_type: str, opset: int, domain: str) -> None:
    want = expected_version(op_type, opset)
    if want is None:
        with pytest.raises(UnsupportedError) as caught:
            resolve(op_type, opset, domain)
        assert isinstance(caught.value, NotImplementedError)
        assert caught.value.op_type == op_type
        assert caught.value.attribute == "opset"
        first = VERSIONS[op_type][0]
        assert f"opset {opset};" in str(caught.value)
        assert f"since opset {first}" in str(caught.value)
        return
    row = resolve(op_type, opset, domain)
    assert (row.op_type, row.since_version, row.domain) == (op_type, want, "")
    if opset <= NEWEST_OF_ONNX:
        assert want == onnx.defs.get_schema(op_type, opset, "").since_version
    assert resolve(op_type, np.int64(opset), domain) is row


@pytest.mark.parametrize("op_type", VERSIONS)
@pytest.mark.parametrize("opset", [None, 29, 1000, 2**31, 2**70], ids=str)
def test_resolve_of_newer_opsets_is_the_newest_version(op_type: str, opset: int | None) -> None:
    assert resolve(op_type, opset).since_version == VERSIONS[op_type][-1]


@pytest.mark.parametrize("opset", [0, -1, -(2**63), np.int32(0)], ids=str)
def test_resolve_refuses_an_opset_below_one(opset: int) -> None:
    with pytest.raises(InvalidValueError, match=f"opset is {opset}; allowed: an integer from 1 on") as caught:
        resolve("Constant", opset)
    assert isinstance(caught.value, ValueError)
    assert (caught.value.op_type, caught.value.attribute) == ("Constant", "opset")


@pytest.mark.parametrize(
    "opset",
    [True, False, np.True_, 1.0, 1.5, np.float64(9), "9", b"9", [9], (9,), np.array([9]), np.array(9.0)],
    ids=lambda opset: f"{type(opset).__name__}-{opset}",
)
def test_resolve_refuses_an_opset_that_is_no_integer(opset: Any) -> None:
    with pytest.raises(InvalidTypeError, match="allowed: an integer from 1 on") as caught:
        resolve("Constant", opset)
    assert isinstance(caught.value, TypeError)
    assert repr(opset) in str(caught.value)
    assert (caught.value.op_type, caught.value.attribute) == ("Constant", "opset")


@pytest.mark.parametrize(
    ("op_type", "domain"),
    [
        ("Relu", ""),
        ("constant", ""),
        ("Constant ", ""),
        ("", ""),
        ("Constant", "ai.onnx.ml"),
        ("Constant", "AI.ONNX"),
        ("Constant", "com.microsoft"),
    ],
    ids=lambda text: repr(text),
)
def test_resolve_of_an_unknown_operator(op_type: str, domain: str) -> None:
    with pytest.raises(UnsupportedError, match="Constant, ConstantOfShape, EyeLike") as caught:
        resolve(op_type, 22, domain)
    assert isinstance(caught.value, NotImplementedError)
    assert isinstance(caught.value, NumbaopsError)
    assert repr(op_type) in str(caught.value)
    assert repr(domain) in str(caught.value)
    assert caught.value.op_type == op_type


@pytest.mark.parametrize("row", ROWS)
def test_rows_are_singletons_through_resolve_pickle_and_copy(row: OperatorVersion) -> None:
    assert resolve(row.op_type, row.since_version) is row
    assert pickle.loads(pickle.dumps(row)) is row
    assert copy.deepcopy(row) is row


def test_rows_cannot_be_changed() -> None:
    row = resolve("Constant", 1)
    with pytest.raises(AttributeError):
        row.since_version = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        row.attributes["k"] = Attribute("INT")  # type: ignore[index]
    with pytest.raises(TypeError):
        row.outputs["output"] = frozenset(BY_NAME.values())  # type: ignore[index]
