"""The graphs of a model, each with the tensors that it holds and the names that it gives; and their change.

A body sees what the graphs around it compute; a function sees nothing. A :class:`Tree` is a graph or function with all bodies in it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto, helper

from numbaops.engine.load import canonical_domain, imports_of
from numbaops.rewrite.evaluation import constant_codes
from numbaops.rewrite.names import is_if, nodes_in
from numbaops.rewrite.payloads import field_bytes, payload_bytes, smallest, tensor_bytes
from numbaops.tensors import from_array

_INITIALIZERS_ARE_INPUTS_BELOW = 4
"""IR version before which every initializer had to be an input as well."""


@dataclass(eq=False, slots=True)
class Held:
    """An initializer, or the tensor of a Constant.

    Attributes:
        scope: where it is.
        name: of the value.
        tensor: the elements.
        pinned: why it has to stay as it is, or "".
        node: the Constant, or None.
        index: its place among the nodes.
    """

    scope: Scope
    name: str
    tensor: TensorProto
    pinned: str = ""
    node: NodeProto | None = None
    index: int = -1

    @property
    def is_output(self) -> bool:
        """Whether the graph gives it to others."""
        return self.name in self.scope.outputs

    @property
    def bytes(self) -> int:
        """Bytes that it takes in the model, and in files beside it."""
        if self.node is None:
            return tensor_bytes(self.tensor)
        return tensor_bytes(self.tensor) + field_bytes(self.node) - field_bytes(self.tensor)

    @property
    def documentation(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What people or tools have written to it."""
        source = self.tensor if self.node is None else self.node
        return source.doc_string, tuple((each.key, each.value) for each in source.metadata_props)

    def describe(self, node: NodeProto) -> None:
        """Move name and documentation to a node that makes the tensor."""
        source = self.tensor if self.node is None else self.node
        if self.node is not None and self.node.name:
            node.name = self.node.name
        if source.doc_string:
            node.doc_string = source.doc_string
        node.metadata_props.extend(source.metadata_props)

    def replace(self, nodes: Sequence[NodeProto]) -> None:
        """Have nodes in its place, or, of an initializer, before all others."""
        if self.node is not None:
            self.scope.replaced[self.index] = list(nodes)
        else:
            self.scope.dropped.add(self.name)
            self.scope.front.extend(nodes)


@dataclass(eq=False)
class Scope:
    """A graph or function, or a body.

    Attributes:
        graph: the proto.
        parent: the scope around it, or None.
        where: a name for people, "" for the model's graph.
        is_branch: whether it is of an If, whose branches have no inputs: what is declared as such are outer values.
        place: the numbers of the tree in the model and of the scope in the tree, which stay as they are.
        held: its tensors.
        defined: names that it gives to values.
        outputs: names of its outputs.
        front: nodes to put before all others.
        replaced: nodes to put in the place of those at some index.
        dropped: initializers to leave out.
        renames: names of values that others take the place of, or that get other names.
        outputs_of_nodes: those of them that get other names.
    """

    graph: GraphProto | FunctionProto
    parent: Scope | None
    where: str
    is_branch: bool = False
    place: tuple[int, int] = (0, 0)
    held: list[Held] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    front: list[NodeProto] = field(default_factory=list)
    replaced: dict[int, list[NodeProto]] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    renames: dict[str, str] = field(default_factory=dict)
    outputs_of_nodes: dict[str, str] = field(default_factory=dict)

    def above(self) -> list[Scope]:
        """Itself and all around it, the outermost first."""
        return [*(self.parent.above() if self.parent else ()), self]

    def rename(self, name: str, other: str) -> None:
        """Have all that use a value use another one."""
        self.renames[name] = other

    def moved(self, one: Held, name: str, tree: Tree) -> Held:
        """What would have a tensor of this scope or of a body in it where all see it, by a name from :meth:`Tree.name_in`."""
        if tree.old or isinstance(self.graph, FunctionProto) or (one.node is not None and name in self.outputs):
            node = helper.make_node("Constant", [], [name], value=one.tensor)
            one.describe(node)
            return Held(self, name, node.attribute[0].t, node=node)
        tensor = TensorProto()
        tensor.CopyFrom(one.tensor)
        tensor.name = name
        if one.node is not None:
            text, metadata = one.documentation
            del tensor.metadata_props[:]
            tensor.metadata_props.extend(StringStringEntryProto(key=key, value=value) for key, value in metadata)
            tensor.ClearField("doc_string")
            if text:
                tensor.doc_string = text
        return Held(self, name, tensor)

    def take(self, one: Held, moved: Held, tree: Tree) -> None:
        """Have what :meth:`moved` gave in the place of a tensor."""
        name = moved.name
        tree.define(self, name)
        if moved.node is not None:
            self.front.append(moved.node)
        else:
            self.graph.initializer.append(moved.tensor)
        if one.is_output and one.scope is not self:
            tree.replace(one, [tree.identity(one, name)])
        else:
            one.replace([])
            if name != one.name or one.scope is not self:
                one.scope.rename(one.name, name)

    def sees(self, other: Scope) -> bool:
        """Whether it is another scope, or inside it."""
        scope: Scope | None = self
        while scope is not None and scope is not other:
            scope = scope.parent
        return scope is other

    def finish(self, renames: Mapping[str, str]) -> None:
        """Make the changes, once those in bodies are made."""
        graph = self.graph
        for node in itertools.chain(graph.node, self.front, *self.replaced.values()):
            for position, name in enumerate(node.input):
                if name in renames:
                    node.input[position] = renames[name]
            for position, name in enumerate(node.output):
                node.output[position] = self.outputs_of_nodes.get(name, name)
        if isinstance(graph, GraphProto):
            # those of the outermost graph keep their names; a body's are known by their places
            for value in (*graph.output, *(graph.input if self.is_branch else ())):
                value.name = renames.get(value.name, value.name)
        gone = set(self.renames)
        if gone:
            for position in reversed([at for at, info in enumerate(graph.value_info) if info.name in gone]):
                del graph.value_info[position]
        if self.dropped and isinstance(graph, GraphProto):
            # before IR version 4 they are inputs as well
            for values in (graph.initializer, graph.input):
                for position in reversed([at for at, value in enumerate(values) if value.name in self.dropped]):
                    del values[position]
        if self.front or self.replaced:
            nodes = [*self.front]
            for index, node in enumerate(graph.node):
                nodes.extend(self.replaced.get(index, [node]))
            del graph.node[:]
            graph.node.extend(nodes)


@dataclass(eq=False)
class Tree:
    """A graph or function, with all bodies in it.

    Attributes:
        opset: the version of ONNX's own operators; 0 without any.
        old: whether initializers would have to be inputs.
        scopes: every graph, those around others first.
        min_bytes: of tensors below it, which stay, nodes may use those that there are.
        definitions: how many scopes give a value a name.
        uses: how many inputs of nodes and outputs of graphs a name is.
    """

    opset: int
    old: bool
    scopes: list[Scope]
    min_bytes: int
    definitions: Counter[str] = field(default_factory=Counter)
    uses: Counter[str] = field(default_factory=Counter)
    _operands: dict[bytes, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for scope in self.scopes:
            self.definitions.update(scope.defined)
            for node in scope.graph.node:
                self.uses.update(node.input)
            if isinstance(scope.graph, GraphProto):
                self.uses.update(value.name for value in scope.graph.output)
                self._taken.update(value.name for value in (*scope.graph.input, *scope.graph.value_info))
        self._taken.update(self.definitions, self.uses)
        for one in self.scopes[0].held:
            if one.node is None and not one.pinned and payload_bytes(one.tensor) < self.min_bytes:
                self._operands.setdefault(_content(one.tensor), one.name)

    def common_scope(self, scopes: Sequence[Scope]) -> Scope:
        """The innermost scope that is around all of these."""
        found = scopes[0].above()
        for scope in scopes[1:]:
            around = scope.above()
            found = [each for each in found if each in around]
        return found[-1]

    def define(self, scope: Scope, name: str) -> None:
        """Have a name in a scope."""
        scope.defined.add(name)
        self.definitions[name] += 1
        self._taken.add(name)

    def fresh(self, name: str, taken: Iterable[str]) -> str:
        """A name that nothing has."""
        names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
        return next(each for each in names if each not in self._taken and each not in taken)

    def name_in(self, home: Scope, one: Held) -> str | None:
        """What a tensor of a scope or of a body in it would be called where all in that scope mean it by its name; None if nothing fits."""
        given_on = one.is_output and one.scope is not home  # so that the body needs its name
        related = (each for each in self.scopes if each is not one.scope and (each.sees(home) or home.sees(each)))
        if not given_on and not (self.definitions[one.name] > 1 and any(one.name in each.defined for each in related)):
            return one.name
        return None if one.is_output and home is one.scope and home.parent is None else self.fresh(one.name, ())

    def node_name(self, one: Held, taken: Iterable[str] = ()) -> str:
        """What a node's output is called that takes the place of a tensor.

        Initializers of a body may have the name of an outer value, but outputs of its nodes may not.
        """
        scope = one.scope
        if one.node is not None or scope.parent is None or not any(one.name in each.defined for each in scope.parent.above()):
            return one.name
        return self.fresh(one.name, taken)

    def identity(self, one: Held, name: str) -> NodeProto:
        """The node that gives the value of another name in the place of a tensor."""
        return helper.make_node("Identity", [name], [self.node_name(one)])

    def renaming(self, one: Held, name: str) -> int:
        """Bytes that it takes to have another name for a tensor where it is used."""
        return self.uses[one.name] * (len(name) - len(one.name))

    def replace(self, one: Held, nodes: Sequence[NodeProto]) -> None:
        """Have nodes in the place of a tensor, the last of which gives it, by its name or that of :meth:`node_name`."""
        for node in nodes:
            self.define(one.scope, node.output[0])
        if nodes[-1].output[0] != one.name:
            one.scope.rename(one.name, nodes[-1].output[0])
        one.replace(nodes)

    def operand_named(self, tensor: TensorProto, scope: Scope) -> str | None:
        """The name of a tensor with these elements, by which a scope means it."""
        name = self._operands.get(_content(tensor))
        hidden = name is not None and any(name in each.defined for each in scope.above()[1:])
        return None if hidden else name

    def operand_bytes(self, tensor: TensorProto) -> int:
        """Bytes that it takes to have one."""
        return field_bytes(self._constant(tensor)) if self._in_nodes else field_bytes(tensor)

    def takes(self, tensor: TensorProto) -> bool:
        """Whether :meth:`add_operand` can have it: before opset 9, Constant has floating point only."""
        return not self._in_nodes or tensor.data_type in constant_codes(self.opset)

    def add_operand(self, tensor: TensorProto) -> None:
        """Have a tensor that every scope sees."""
        outermost = self.scopes[0]
        if self._in_nodes:
            outermost.front.append(self._constant(tensor))
        else:
            outermost.graph.initializer.append(tensor)
        self.define(outermost, tensor.name)
        self._operands[_content(tensor)] = tensor.name

    @property
    def _in_nodes(self) -> bool:
        return self.old or isinstance(self.scopes[0].graph, FunctionProto)

    def _constant(self, tensor: TensorProto) -> NodeProto:
        plain = TensorProto()
        plain.CopyFrom(tensor)
        plain.ClearField("name")
        return helper.make_node("Constant", [], [tensor.name], value=plain)

    def separate(self) -> None:
        """Give outputs of a body's nodes other names if values around it have theirs too.

        That is valid only as long as those come later, and ONNX Runtime has an order of its own, which depends on all nodes.
        """
        for scope in self.scopes[1:]:
            around = scope.above()[:-1]
            noted = _annotated(scope.graph)
            for node in scope.graph.node:
                for name in filter(None, node.output):
                    again = self.definitions[name] > 1 and any(name in each.defined for each in around)
                    if again and name not in scope.renames and name not in noted:
                        other = scope.outputs_of_nodes[name] = self.fresh(name, ())
                        scope.rename(name, other)
                        self.define(scope, other)

    def finish(self) -> None:
        """Make all changes."""
        if any(scope.front or scope.replaced or scope.dropped for scope in self.scopes):
            self.separate()
        renames: dict[Scope | None, dict[str, str]] = {None: {}}
        for scope in self.scopes:
            around = renames[scope.parent]
            renames[scope] = {name: new for name, new in around.items() if name not in scope.defined} | scope.renames
        for scope in reversed(self.scopes):
            scope.finish(renames[scope])


def _content(tensor: TensorProto) -> bytes:
    """Type, shape and elements, as they are stored."""
    plain = TensorProto()
    plain.CopyFrom(tensor)
    for name in ("name", "doc_string", "metadata_props"):
        plain.ClearField(name)
    return plain.SerializeToString()  # type: ignore[no-any-return]


def trees(model: ModelProto, min_bytes: int) -> Iterator[Tree]:
    """The graph of a model, and its functions."""
    old = model.ir_version < _INITIALIZERS_ARE_INPUTS_BELOW
    bindings = [entry for each in model.training_info for entry in (*each.initialization_binding, *each.update_binding)]
    trained = {name for entry in bindings for name in (entry.key, entry.value)}
    for graph in (graph for each in model.training_info for graph in (each.initialization, each.algorithm)):
        # which may take any value of the model's graph
        trained.update(name for node in nodes_in(graph.node) for name in node.input)
        trained.update(value.name for value in graph.output)
    roots: list[tuple[Any, str, set[str], FunctionProto | None]] = [(model.graph, "", trained, None)]
    for function in model.functions:
        name = ".".join(filter(None, (function.domain, function.name, function.overload)))
        roots.append((function, f"function {name}", set(), function))
    for number, (graph, where, pinned, function) in enumerate(roots):
        scopes = list(_scopes(graph, None, where, pinned, old))
        for index, scope in enumerate(scopes):
            scope.place = (number, index)
        yield Tree(imports_of(model if function is None else function, None).get("", 0), old, scopes, min_bytes)


def _scopes(
    graph: GraphProto | FunctionProto, parent: Scope | None, where: str, trained: set[str], old: bool, is_branch: bool = False
) -> Iterator[Scope]:
    scope = Scope(graph, parent, where, is_branch)
    yield scope
    named = ((_annotated(graph), "a quantization annotation names it"), (trained, "training names it"))
    if isinstance(graph, GraphProto):
        scope.outputs = {value.name for value in graph.output}
        inputs = {value.name for value in graph.input}
        reasons = (
            (set() if old and (parent is None or is_branch) else inputs, "it is the default of an input"),
            *named,
        )
        for tensor in graph.initializer:
            pinned = next((reason for names, reason in reasons if tensor.name in names), "")
            scope.held.append(Held(scope, tensor.name, tensor, pinned))
        scope.defined = (set() if is_branch else inputs) | {tensor.name for tensor in graph.initializer}
        scope.defined |= {sparse.values.name for sparse in graph.sparse_initializer}
    else:
        scope.outputs = set(graph.output)
        scope.defined = set(graph.input)
    for index, node in enumerate(graph.node):
        scope.defined.update(filter(None, node.output))
        is_constant = node.op_type == "Constant" and canonical_domain(node.domain) == ""
        tensor = _tensor_of(node) if is_constant else None
        if tensor is not None:
            pinned = next((reason for names, reason in named if node.output[0] in names), "")
            scope.held.append(Held(scope, node.output[0], tensor, pinned, node, index))
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                label = f"{node.op_type} {node.name or next(iter(node.output), '')}, {attribute.name}"
                yield from _scopes(body, scope, f"{where}: {label}" if where else label, trained, old, is_if(node))


def _annotated(graph: GraphProto | FunctionProto) -> set[str]:
    """The names in a graph's quantization annotations."""
    notes = graph.quantization_annotation if isinstance(graph, GraphProto) else ()
    return {name for note in notes for name in (note.tensor_name, *(entry.value for entry in note.quant_parameter_tensor_names))}


def _tensor_of(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant that has many elements; those of a list as a tensor of its own."""
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return None
        if attribute.name == "value":
            tensor: TensorProto = attribute.t
            return tensor
        if attribute.name == "value_ints":
            return smallest(np.array(attribute.ints, np.int64))
        if attribute.name == "value_floats":
            values = np.array(attribute.floats, np.float64)
            # Python's floats are doubles, on the way to which a NaN may lose its payload
            return None if np.isnan(values).any() else from_array(values.astype(np.float32))
    return None
