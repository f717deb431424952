"""What ``strict`` asks of a proto beyond what loading it does: that ``onnx.checker`` accepts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx.checker
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from onnx.external_data_helper import uses_external_data

from numbaops.engine.load import Proto, canonical_domain
from numbaops.errors import InvalidValueError


def check_valid(proto: Proto, opsets: Mapping[str, int]) -> None:
    """Check a proto with ``onnx.checker``.

    Two of its demands are left out: that declared values have a type and a shape, which runs tell anyway, and that external data are
    below the current folder.

    Args:
        proto: the proto.
        opsets: opset version by domain, for a proto that has none.

    Raises:
        InvalidValueError: the checker refuses it.
    """
    copy = type(proto)()
    copy.CopyFrom(proto)
    context = type(onnx.checker.DEFAULT_CONTEXT)()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {canonical_domain(domain): version for domain, version in opsets.items()}
    try:
        if isinstance(copy, ModelProto):
            _without_data(copy.graph)
            for function in copy.functions:
                _bodies_without_data(function.node)
            onnx.checker.check_model(copy)
        elif isinstance(copy, GraphProto):
            _without_data(copy)
            onnx.checker.check_graph(copy, context)
        elif isinstance(copy, FunctionProto):
            _bodies_without_data(copy.node)
            onnx.checker.check_function(copy, context)
        else:
            _bodies_without_data([copy])
            onnx.checker.check_node(copy, context)
    except (onnx.checker.ValidationError, ValueError) as error:
        kind = type(proto).__name__.removesuffix("Proto").lower()
        raise InvalidValueError(f"strict: the {kind} is not valid ONNX: {' '.join(str(error).split())}") from error


def _without_data(graph: GraphProto) -> None:
    """Leave out what loading has checked, and the checker would want to read: gigabytes, or files in a folder that it is not told."""
    for tensor in graph.initializer:
        empty = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0])
        tensor.CopyFrom(empty)
    for sparse in graph.sparse_initializer:
        for part in (sparse.values, sparse.indices):
            if uses_external_data(part):
                part.CopyFrom(TensorProto(name=part.name, data_type=part.data_type, dims=[0]))
    for value in (*graph.input, *graph.output):
        kind = value.type.WhichOneof("value")
        if kind is None:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
        if kind in (None, "tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    _bodies_without_data(graph.node)


def _bodies_without_data(nodes: Any) -> None:
    node: NodeProto
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _without_data(attribute.g)
            for graph in attribute.graphs:
                _without_data(graph)
