"""What ``onnx.defs`` says of an operator version, and whether a node keeps to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx.defs
import onnx.helper
from onnx import AttributeProto, NodeProto, TensorProto
from onnx.defs import OpSchema
from onnx.external_data_helper import uses_external_data

from numbaops.errors import InvalidValueError
from numbaops.tensors import to_array

RANDOM = frozenset(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"))
"""Operators that give other values each time; Dropout does so when it trains."""


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """What a schema of ``onnx.defs`` says of nodes, taken out of it once: each look into it costs microseconds.

    Attributes:
        name: the operator.
        since_version: of the operator.
        inputs: the least and the largest number of inputs.
        outputs: the least and the largest number of outputs.
        single: whether there is exactly one output.
        attributes: by name, the default as a Python value, or None.
        required: names of the attributes that a node must have.
        schema: the schema.
    """

    name: str
    since_version: int
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    single: bool
    attributes: Mapping[str, Any]
    required: frozenset[str]
    schema: OpSchema


@functools.lru_cache(maxsize=4096)
def signature_of(domain: str, op_type: str, opset: int | None) -> Signature | None:
    """The operator version that an opset uses, or None if the installed onnx has none."""
    try:
        schema = None if opset is None else onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        schema = None
    if schema is None:
        return None
    declared = dict(schema.attributes)
    return Signature(
        name=op_type,
        since_version=schema.since_version,
        inputs=(schema.min_input, schema.max_input),
        outputs=(schema.min_output, schema.max_output),
        single=schema.min_output == schema.max_output == 1,
        attributes={
            name: _plain_value(each.default_value, to_array) if each.default_value.type else None for name, each in declared.items()
        },
        required=frozenset(name for name, each in declared.items() if each.required),
        schema=schema,
    )


def node_label(node: NodeProto) -> str:
    """What to call a node in an error: its name, or that of the first value it computes."""
    return node.name or next((name for name in node.output if name), "")


def own_attributes(node: NodeProto) -> list[AttributeProto]:
    """The attributes of a node, without those whose names begin with two underscores: ``onnx.checker`` leaves them to their writers."""
    return [each for each in node.attribute if not each.name.startswith("__")]


def attribute_values(node: NodeProto, signature: Signature, read_external: Callable[[TensorProto], Any]) -> dict[str, Any]:
    """The attributes of a node and the defaults of the others, as int, float, str, lists of these, or arrays.

    Raises:
        InvalidValueError: the operator version has no such attribute, or requires one that the node lacks.
    """

    def refused(name: str, text: str) -> InvalidValueError:
        return InvalidValueError(
            text, op_type=node.op_type, since_version=signature.since_version, node_name=node_label(node), attribute=name
        )

    given = {each.name: each for each in own_attributes(node)}
    for name in given:
        if name not in signature.attributes:
            raise refused(name, f"there is no attribute {name!r} in this version; it has {', '.join(signature.attributes) or 'none'}")
    for name in signature.required:
        if name not in given:
            raise refused(name, f"the attribute {name!r} is missing; this version requires it")
    values = {name: default for name, default in signature.attributes.items() if default is not None}
    values.update((name, _plain_value(each, read_external)) for name, each in given.items())
    return values


def _plain_value(attribute: AttributeProto, read_external: Callable[[TensorProto], Any]) -> Any:
    kind = AttributeProto.AttributeType.Name(attribute.type)
    if kind == "TENSOR":
        return read_external(attribute.t) if uses_external_data(attribute.t) else to_array(attribute.t)
    value = onnx.helper.get_attribute_value(attribute)
    if kind == "STRING":
        return value.decode()
    if kind == "STRINGS":
        return [text.decode() for text in value]
    if kind == "TENSORS":
        return [to_array(tensor) for tensor in value]
    return list(value) if kind.endswith("S") else value


def check_arity(node: NodeProto, signature: Signature) -> None:
    """Check the number of inputs and outputs of a node.

    Raises:
        InvalidValueError: they are not what the operator version has.
    """
    for what, names, (least, most) in (("input", node.input, signature.inputs), ("output", node.output, signature.outputs)):
        if least <= len(names) <= most:
            continue
        given = list(names)
        while given and not given[-1] and len(given) > least:
            given.pop()
        if not least <= len(given) <= most:
            expected = f"{least}" if least == most else f"at least {least}" if most > 1 << 30 else f"{least} to {most}"
            raise InvalidValueError(
                f"the node has {len(given)} {what}s; allowed: {expected}",
                op_type=signature.name,
                since_version=signature.since_version,
                node_name=node_label(node),
            )
