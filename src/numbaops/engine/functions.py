"""Model-local functions: finding them in any order, and filling in the attributes that a call gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.helper
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, SparseTensorProto, TensorProto
from onnx.reference import ReferenceEvaluator

from numbaops.engine.load import Proto, canonical_domain
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.tensors import from_array

_WITHOUT_GRAPHS = frozenset(AttributeProto.AttributeType.values()) - {
    AttributeProto.UNDEFINED,
    AttributeProto.GRAPH,
    AttributeProto.GRAPHS,
}

FunctionKey = tuple[str, str, str]
"""Domain, name and overload."""


class FunctionTable:
    """The functions that the nodes of a model may call; each is built when first asked for, so their order is free.

    Args:
        functions: the functions as protos, or as evaluators that somebody built.
        build: makes an evaluator of a proto.
    """

    def __init__(
        self, functions: Iterable[FunctionProto | ReferenceEvaluator], build: Callable[[FunctionProto], ReferenceEvaluator]
    ) -> None:
        self._build = build
        self._protos: dict[FunctionKey, FunctionProto] = {}
        self._built: dict[FunctionKey, ReferenceEvaluator] = {}
        self._being_built: list[FunctionKey] = []
        for function in functions:
            if isinstance(function, FunctionProto):
                self._protos[_key(function)] = function
            elif isinstance(function, ReferenceEvaluator):
                self._built[_key(function.proto_)] = function
            else:
                raise InvalidTypeError(f"Unexpected type {type(function)!r} for a function; allowed: FunctionProto and ReferenceEvaluator")

    def __iter__(self) -> Iterator[FunctionKey]:
        return iter(dict.fromkeys([*self._protos, *self._built]))

    def find(self, domain: str, name: str, overload: str) -> ReferenceEvaluator | None:
        """The evaluator of a function, or None.

        Raises:
            InvalidValueError: the function calls itself.
        """
        key = canonical_domain(domain), name, overload
        if key in self._built or key not in self._protos:
            return self._built.get(key)
        if key in self._being_built:
            chain = " -> ".join(".".join(filter(None, each)) for each in [*self._being_built, key])
            raise InvalidValueError(f"a function must not call itself: {chain}")
        self._being_built.append(key)
        try:
            self._built[key] = self._build(self._protos[key])
        finally:
            self._being_built.pop()
        return self._built[key]


def _key(function: FunctionProto) -> FunctionKey:
    return canonical_domain(function.domain), function.name, function.overload


def nodes_of(proto: Proto) -> Iterable[NodeProto]:
    """The nodes of a proto of any kind."""
    if isinstance(proto, NodeProto):
        return [proto]
    nodes: Iterable[NodeProto] = (proto.graph if isinstance(proto, onnx.ModelProto) else proto).node
    return nodes


def references(nodes: Iterable[NodeProto]) -> dict[str, int]:
    """The function attributes that nodes refer to, also from bodies inside them, with the type each is wanted as."""
    found: dict[str, int] = {}
    for node in nodes:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                found[attribute.ref_attr_name] = attribute.type
            if attribute.type not in _WITHOUT_GRAPHS:
                for graph in _graphs(attribute):
                    found |= references(graph.node)
    return found


def _graphs(attribute: AttributeProto) -> list[GraphProto]:
    return [attribute.g] if attribute.HasField("g") else list(attribute.graphs)


def substitute(nodes: Iterable[NodeProto], given: Mapping[str, AttributeProto]) -> None:
    """Write the given attributes into nodes, in place of the references to them.

    A reference to an attribute that is not given is removed: the operator's own default then applies.
    """
    for node in nodes:
        for position in reversed(range(len(node.attribute))):
            attribute = node.attribute[position]
            for graph in _graphs(attribute):
                substitute(graph.node, given)
            if not attribute.ref_attr_name:
                continue
            if attribute.ref_attr_name not in given:
                del node.attribute[position]
                continue
            name = attribute.name
            attribute.CopyFrom(given[attribute.ref_attr_name])
            attribute.name = name


def attribute_from_value(name: str, value: Any, kind: int) -> AttributeProto:
    """An attribute of a Python value, as ``run(attributes=...)`` takes them.

    Args:
        name: its name.
        value: what ``onnx.helper.make_attribute`` takes, or an array for a tensor, or an evaluator for a graph.
        kind: the ``AttributeProto.AttributeType`` that the function's nodes want, which tells the types of empty lists.
    """
    if isinstance(value, AttributeProto):
        return value
    if isinstance(value, ReferenceEvaluator):
        value = value.proto_
    elif kind == AttributeProto.TENSOR and not isinstance(value, TensorProto):
        value = from_array(np.asarray(value))
    elif isinstance(value, np.ndarray):
        value = value.tolist()
    try:
        if isinstance(value, (TensorProto, SparseTensorProto, GraphProto)):
            return onnx.helper.make_attribute(name, value)
        return onnx.helper.make_attribute(name, value, attr_type=kind or None)
    except (TypeError, ValueError) as error:
        wanted = AttributeProto.AttributeType.Name(kind)
        raise InvalidTypeError(f"attribute {name!r} is {value!r}; the function wants {wanted}", attribute=name) from error
