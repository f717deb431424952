"""The memory that a model takes, as far as shape inference tells it."""

from __future__ import annotations

import graphlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper
from onnx.external_data_helper import uses_external_data

from numbaops.cli.inputs import declared_inputs
from numbaops.dtypes import BY_CODE
from numbaops.engine.load import canonical_domain
from numbaops.rewrite.files import tensors_in, tensors_of

_KEPT_ELEMENTS = 1 << 10
"""Elements up to which an initializer goes into shape inference with its values, which may be a shape; of others the shape is enough."""


@dataclass(slots=True)
class Estimate:
    """Bytes, as NumPy has them in memory: an int4 takes one.

    Attributes:
        weight_bytes: of initializers and constants.
        external_bytes: of those, what is in other files.
        peak_bytes: at most at once of the values that nodes compute, if each is freed after its last use and none is fused away,
            computed in place or kept for the next run. What a Loop collects, and values of unknown size, are left out.
        peak_node: the operator and name of the node where that is.
        known_values: values whose size is known.
        unknown_values: values whose size is not.
        symbols: symbolic dimensions of the inputs that have no size.
        failure: why there are no sizes, or "".
    """

    weight_bytes: int
    external_bytes: int
    peak_bytes: int = 0
    peak_node: str = ""
    known_values: int = 0
    unknown_values: int = 0
    symbols: list[str] = field(default_factory=list)
    failure: str = ""


def weight_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Initializers and the tensors in attributes, also those in bodies and functions."""
    yield from tensors_of(model.graph)
    for function in model.functions:
        yield from tensors_in(function.node)


def _bodies(attribute: onnx.AttributeProto) -> Iterable[GraphProto]:
    return [attribute.g] if attribute.HasField("g") else attribute.graphs


def nodes_in(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of the bodies inside them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for body in _bodies(attribute):
                yield from nodes_in(body.node)


def function_key(called: FunctionProto | NodeProto) -> tuple[str, str, str]:
    """Domain, name and overload of a function, or of the one that a node calls."""
    name = called.name if isinstance(called, FunctionProto) else called.op_type
    return canonical_domain(called.domain), name, called.overload


def recursion(model: ModelProto) -> str:
    """That a function of the model calls itself, and by which way; "" if none does."""
    calls = {function_key(each): [function_key(node) for node in nodes_in(each.node)] for each in model.functions}
    try:
        graphlib.TopologicalSorter({key: [one for one in called if one in calls] for key, called in calls.items()}).prepare()
    except graphlib.CycleError as error:
        return "a function calls itself: " + " -> ".join(name for _, name, _ in error.args[1])
    return ""


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes of a tensor as an array."""
    row = BY_CODE.get(tensor.data_type)
    return 0 if row is None else math.prod(tensor.dims) * row.dtype.itemsize


def estimate(model: ModelProto, sizes: Mapping[str, int]) -> Estimate:
    """The memory that a model takes.

    Args:
        model: the model; what it has in other files is not read.
        sizes: of symbolic dimensions.
    """
    weights = [(tensor_bytes(tensor), uses_external_data(tensor)) for tensor in weight_tensors(model)]
    found = Estimate(sum(one for one, _ in weights), sum(one for one, outside in weights if outside))
    named = {dim.dim_param: None for one in declared_inputs(model) for dim in one.type.tensor_type.shape.dim if dim.dim_param}
    found.symbols = [name for name in named if name not in sizes]
    found.failure = recursion(model)
    if found.failure:  # which ends the process with onnx 1.18
        return found
    try:
        light = _without_weights(model)
        if light.functions:
            light = onnx.inliner.inline_local_functions(light)
        _set_sizes(light.graph, sizes)
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except Exception as error:  # of onnx, which has no common base
        found.failure = " ".join(str(error).split())[:200]
    else:
        found.peak_bytes, found.peak_node = _peak(inferred.graph, found)
    return found


def _without_weights(model: ModelProto) -> ModelProto:
    """The model with inputs in the place of its large initializers."""
    graph = model.graph
    light = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    kept = [each for each in graph.initializer if math.prod(each.dims) <= _KEPT_ELEMENTS and not uses_external_data(each)]
    names = {each.name for each in kept} | {each.name for each in graph.input}
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.initializer.extend(kept)
    light.graph.input.extend(graph.input)
    light.graph.input.extend(
        helper.make_tensor_value_info(each.name, each.data_type, list(each.dims)) for each in graph.initializer if each.name not in names
    )
    light.graph.input.extend(
        helper.make_tensor_value_info(each.values.name, each.values.data_type, list(each.dims)) for each in graph.sparse_initializer
    )
    light.graph.output.extend(graph.output)
    light.graph.value_info.extend(graph.value_info)
    return light


def _set_sizes(graph: GraphProto, sizes: Mapping[str, int]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    for node in graph.node:
        for attribute in node.attribute:
            for body in _bodies(attribute):
                _set_sizes(body, sizes)


def _peak(graph: GraphProto, found: Estimate) -> tuple[int, str]:
    """The most bytes that values of a graph take at once, and the node where they do; what is known of sizes is counted in ``found``."""
    types = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    last = {name: position for position, node in enumerate(graph.node) for name in _used(node)}
    last |= {value.name: len(graph.node) for value in graph.output}
    live: dict[str, int] = {}
    peak, where = 0, ""
    for position, node in enumerate(graph.node):
        inside = max((_peak(body, found)[0] for attribute in node.attribute for body in _bodies(attribute)), default=0)
        if node.op_type != "Constant":
            for name in filter(None, node.output):
                size = _value_bytes(types.get(name))
                found.known_values += size is not None
                found.unknown_values += size is None
                live[name] = size or 0
        total = sum(live.values()) + inside
        if total > peak:
            peak, where = total, " ".join(filter(None, (node.op_type, node.name or next(iter(node.output), ""))))
        live = {name: size for name, size in live.items() if last.get(name, -1) > position}
    return peak, where


def _used(node: NodeProto) -> Iterator[str]:
    """Names of the values that a node takes, by its bodies too."""
    yield from node.input
    for attribute in node.attribute:
        for body in _bodies(attribute):
            yield from (value.name for value in body.output)
            for inner in body.node:
                yield from _used(inner)


def _value_bytes(declared: TypeProto | None) -> int | None:
    if declared is None or not declared.HasField("tensor_type") or not declared.tensor_type.HasField("shape"):
        return None
    row = BY_CODE.get(declared.tensor_type.elem_type)
    dims = declared.tensor_type.shape.dim
    if row is None or not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        return None
    return int(math.prod(dim.dim_value for dim in dims)) * row.dtype.itemsize
