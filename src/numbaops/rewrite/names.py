"""Names in graphs and in the bodies inside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
        branch = is_if(node)
        found.update(_taken(body, defined(body, inputs=not branch), branch))
    return found


def _taken(body: GraphProto, own: Collection[str], branch: bool) -> dict[str, None]:
    """The names of the outer values that a body takes, in order."""
    taken = [name for inner in body.node for name in takes(inner)]
    taken += [value.name for value in body.output]
    if branch:
        taken += [value.name for value in body.input]
    return {name: None for name in taken if name and name not in own}


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


def every_definition(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """The names of the values that nodes and their bodies make, as often as they do."""
    for node in nodes:
        yield from filter(None, node.output)
        for body in bodies(node):
            if not is_if(node):
                yield from (value.name for value in body.input)
            yield from (tensor.name for tensor in body.initializer)
            yield from (sparse.values.name for sparse in body.sparse_initializer)
            yield from every_definition(body.node)


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


def rename_inputs(node: NodeProto, names: Mapping[str, str], fresh: Callable[[str], str]) -> None:
    """Let a node and its bodies take other values in the place of outer ones; a body's own value of such a name gets a fresh one."""
    for position, name in enumerate(node.input):
        if name in names:
            node.input[position] = names[name]
    branch = is_if(node)
    for body in bodies(node):
        own = defined(body, inputs=not branch)
        taken = _taken(body, own, branch)
        inner = {name: other for name, other in names.items() if name in taken}
        inner |= {name: fresh(name) for name in sorted(own.intersection(inner.values()))}
        _rename_inside(body, inner, fresh)


def hide(nodes: Iterable[NodeProto], names: Collection[str], fresh: Callable[[str], str]) -> None:
    """Give fresh names to values of bodies, at any depth, that are called like one that is outside of them from now on."""
    for node in nodes:
        for body in bodies(node):
            clash = defined(body, inputs=not is_if(node)).intersection(names)
            if clash:
                _rename_inside(body, {name: fresh(name) for name in sorted(clash)}, fresh)
            hide(body.node, names, fresh)


def _rename_inside(graph: GraphProto, names: Mapping[str, str], fresh: Callable[[str], str]) -> None:
    """Rename values in a graph and its bodies, whether they are its own or come from outside."""
    if not names:
        return
    for node in graph.node:
        rename_inputs(node, names, fresh)
        for position, name in enumerate(node.output):
            if name in names:
                node.output[position] = names[name]
    for values in (graph.input, graph.output, graph.initializer, graph.value_info):
        _rename_declared(values, names)
    _rename_declared([sparse.values for sparse in graph.sparse_initializer], names)
    _rename_notes(graph, names)


def _rename_notes(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename what quantization annotations are of, and the tensors that they name."""
    for note in graph.quantization_annotation:
        note.tensor_name = names.get(note.tensor_name, note.tensor_name)
        for entry in note.quant_parameter_tensor_names:
            entry.value = names.get(entry.value, entry.value)


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
        used: how often each name is that of a value in the whole graph, and at least so often if that is not certain any more.

    Returns:
        The nodes in the place of the If.
    """
    own = defined(branch, inputs=False)
    inside = Counter(every_definition([node]))  # of both branches: one goes with the If
    inside.subtract(filter(None, node.output))
    hide(branch.node, set(node.output), fresh)
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
    for copy in copies:
        copy.input[0] = names.get(copy.input[0], copy.input[0])
    _rename_inside(branch, names, fresh)
    return [*branch.node, *copies]
