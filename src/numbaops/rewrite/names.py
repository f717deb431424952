"""Names in graphs and in the bodies inside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from onnx import AttributeProto, GraphProto, NodeProto

from numbaops.engine.load import canonical_domain

_WITHOUT_GRAPHS = frozenset(AttributeProto.AttributeType.values()) - {
    AttributeProto.UNDEFINED,  # before IR version 2, attributes have no type
    AttributeProto.GRAPH,
    AttributeProto.GRAPHS,
}


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type not in _WITHOUT_GRAPHS:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def nodes_in(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of the bodies inside them."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from nodes_in(body.node)


def is_if(node: NodeProto) -> bool:
    """Whether a node is an If, whose branches have no inputs: what some tools declare as such are the outer values that they take."""
    return node.op_type == "If" and canonical_domain(node.domain) == ""


def defined(graph: GraphProto, inputs: bool = True) -> set[str]:
    """The names of the values that a graph itself has."""
    names = {tensor.name for tensor in graph.initializer}
    names.update(sparse.values.name for sparse in graph.sparse_initializer)
    names.update(name for node in graph.node for name in node.output)
    if inputs:
        names.update(value.name for value in graph.input)
    names.discard("")
    return names


def captured(node: NodeProto) -> dict[str, None]:
    """The names of the outer values that the bodies of a node take, in order."""
    found: dict[str, None] = {}
    for body in bodies(node):
        own = defined(body, inputs=not is_if(node))
        taken = [name for inner in body.node for name in takes(inner)]
        taken += [value.name for value in body.output]
        if is_if(node):
            taken += [value.name for value in body.input]
        found.update((name, None) for name in taken if name and name not in own)
    return found


def takes(node: NodeProto) -> set[str]:
    """The names of the values that a node takes, by its bodies too."""
    names = {*node.input, *captured(node)}
    names.discard("")
    return names


def every_name(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """All names of values in nodes and their bodies, as often as they come."""
    for node in nodes:
        yield from node.input
        yield from node.output
        for body in bodies(node):
            yield from (value.name for value in (*body.input, *body.output))
            yield from (tensor.name for tensor in body.initializer)
            yield from (sparse.values.name for sparse in body.sparse_initializer)
            yield from every_name(body.node)


class Fresh:
    """Names that nothing has yet."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def __call__(self, name: str) -> str:
        """``name``, or, if something has it, one like it."""
        found, number = name, 0
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found


def rename_inputs(node: NodeProto, names: Mapping[str, str]) -> None:
    """Let a node and its bodies take other values in the place of outer ones."""
    for position, name in enumerate(node.input):
        if name in names:
            node.input[position] = names[name]
    for body in bodies(node):
        branch = is_if(node)
        inner = {name: other for name, other in names.items() if name not in defined(body, inputs=not branch)}
        if inner:
            for one in body.node:
                rename_inputs(one, inner)
            _rename_declared(body.output, inner)
            if branch:
                _rename_declared(body.input, inner)


def _rename_declared(values: Iterable[Any], names: Mapping[str, str]) -> None:
    for value in values:
        if value.name in names:
            value.name = names[value.name]


def inline(node: NodeProto, branch: GraphProto, fresh: Callable[[str], str], used: Mapping[str, int]) -> list[NodeProto]:
    """What an If does by one of its branches; the branch gets the names that its values have outside.

    Args:
        node: the If.
        branch: the branch that is always taken; its nodes are changed, and its initializers belong to what is around the If afterwards.
        fresh: gives a name that nothing has yet.
        used: how often each name comes in the whole graph.

    Returns:
        The nodes in the place of the If.
    """
    own = defined(branch, inputs=False)
    inside = Counter(every_name([node]))  # of both branches: one goes with the If
    inside.subtract([*node.input, *node.output])
    names: dict[str, str] = {}
    copies: list[NodeProto] = []
    for value, output in zip(branch.output, node.output, strict=False):
        if not output:
            continue
        if value.name in own and value.name not in names:
            names[value.name] = output
        else:
            copies.append(NodeProto(op_type="Identity", input=[value.name], output=[output]))
    for name in sorted(own):
        if name not in names and used.get(name, 0) > inside[name]:
            names[name] = fresh(name)
    for one in (*branch.node, *copies):
        rename_inputs(one, names)
        for position, name in enumerate(one.output):
            one.output[position] = names.get(name, name)
    _rename_declared(branch.initializer, names)
    _rename_declared([sparse.values for sparse in branch.sparse_initializer], names)
    _rename_declared(branch.value_info, names)
    for note in branch.quantization_annotation:
        note.tensor_name = names.get(note.tensor_name, note.tensor_name)
    return [*branch.node, *copies]
