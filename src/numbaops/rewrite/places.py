"""A graph, body or function whose nodes are folded, and where it keeps what was computed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from onnx import FunctionProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto

from numbaops.engine.load import canonical_domain
from numbaops.rewrite.evaluation import Scope
from numbaops.rewrite.known import Known
from numbaops.rewrite.payloads import field_bytes, tensor_bytes


@dataclass(slots=True)
class Place:
    """A graph, body or function whose nodes are folded.

    Attributes:
        owner: its proto.
        scope: the opsets of its nodes.
        label: what it is called in facts.
        values: by name, the values that are known and its nodes may take, of the graphs around it as well.
        main: whether it is the model's graph.
        old: whether the model is of an IR version before 4, where every initializer is an input as well.
        shapes: by name, what stands for graph inputs of declared shape, for who looks at nothing but the shape.
        outer: the names of known values of the graphs around it.
        early: the names of values that are constants now, which bodies before the nodes that made them see as well.
        outputs: the names of what it gives.
    """

    owner: GraphProto | FunctionProto
    scope: Scope
    label: str
    values: dict[str, Known]
    main: bool = False
    old: bool = False
    shapes: dict[str, Known] = field(default_factory=dict)
    outer: frozenset[str] = frozenset()
    early: set[str] = field(default_factory=set)
    outputs: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        given = self.owner.output
        self.outputs = frozenset(given if isinstance(self.owner, FunctionProto) else (value.name for value in given))

    @property
    def takes_initializers(self) -> bool:
        """Whether what is computed may be an initializer: a function has none, and a body, before IR version 4, only its inputs."""
        return isinstance(self.owner, GraphProto) and (self.main or not self.old)

    def add_initializer(self, tensor: TensorProto) -> None:
        """Store a tensor."""
        owner = self.owner
        assert isinstance(owner, GraphProto)
        owner.initializer.append(tensor)
        if self.old:
            owner.input.append(declared(tensor))

    def stored_bytes(self, tensor: TensorProto, as_node: bool = False) -> int:
        """Bytes that a tensor takes here as an initializer, or as a Constant."""
        if as_node:
            return tensor_bytes(tensor) + field_bytes(constant(TensorProto(name=tensor.name)))
        return tensor_bytes(tensor) + (field_bytes(declared(tensor)) if self.old else 0)

    def tidy(self, needed: Collection[str], stored: Iterable[TensorProto]) -> list[str]:
        """Take out initializers that nobody needs, store others, and take out declarations of what is no more.

        Returns:
            The names of the initializers that went.
        """
        owner, gone = self.owner, []
        names = {name for node in owner.node for name in node.output}
        if isinstance(owner, GraphProto):
            gone = self._remove_initializers(owner, needed)
            for tensor in stored:
                self.add_initializer(tensor)
            names |= {value.name for value in owner.input}
            names |= {_name(one) for one in (*owner.initializer, *owner.sparse_initializer)}
            _remove(owner.quantization_annotation, lambda note: note.tensor_name not in names)
        else:
            names.update(owner.input)
        _remove(owner.value_info, lambda value: value.name not in names)
        return gone

    def _remove_initializers(self, graph: GraphProto, needed: Collection[str]) -> list[str]:
        kept = {*needed, *(one.value for note in graph.quantization_annotation for one in note.quant_parameter_tensor_names)}
        if not (self.old and self.main):  # without its default, an input would have to be given
            kept.update(value.name for value in graph.input)
        gone = [_name(one) for one in (*graph.initializer, *graph.sparse_initializer) if _name(one) not in kept]
        set_gone = frozenset(gone)
        for values in (graph.initializer, graph.sparse_initializer, graph.input):
            _remove(values, lambda one: _name(one) in set_gone)
        return gone


def declared(tensor: TensorProto) -> ValueInfoProto:
    """A tensor as an input, which every initializer had to be once."""
    value = ValueInfoProto(name=tensor.name)
    kind = value.type.tensor_type
    kind.elem_type = tensor.data_type
    kind.shape.SetInParent()
    for size in tensor.dims:
        kind.shape.dim.add(dim_value=size)
    return value


def _name(one: Any) -> str:
    return str(one.values.name if isinstance(one, SparseTensorProto) else one.name)


def _remove(values: Any, unwanted: Callable[[Any], bool]) -> None:
    """Take items out of a repeated field, the others left in place: they may be large."""
    for position in reversed(range(len(values))):
        if unwanted(values[position]):
            del values[position]


def tensor_of(node: NodeProto) -> TensorProto | None:
    """The tensor of a Constant that has it as it is stored."""
    if node.op_type != "Constant" or canonical_domain(node.domain) != "" or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    return attribute.t if attribute.name == "value" and attribute.HasField("t") and not attribute.ref_attr_name else None


def constant(tensor: TensorProto) -> NodeProto:
    """The node that gives a tensor."""
    node = NodeProto(op_type="Constant", output=[tensor.name])
    attribute = node.attribute.add(name="value", type=4)
    attribute.t.CopyFrom(tensor)
    attribute.t.ClearField("name")
    return node
