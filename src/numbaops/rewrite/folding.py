"""The work of :func:`numbaops.fold`: forward, what is known is computed; backward, what of it is wanted is stored.

Nodes that make much of little (``ConstantOfShape``, ``EyeLike``, ``Expand``, ``Tile``, ...), and what follows from them, stay where they
are smaller than what they make.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter, deque
from typing import Any

from onnx import FunctionProto, GraphProto, NodeProto, TensorAnnotation

from numbaops.engine.functions import references
from numbaops.engine.load import canonical_domain
from numbaops.engine.signature import node_label
from numbaops.rewrite import files
from numbaops.rewrite.evaluation import Key, LeftError, Scope, key_of, stored_bytes
from numbaops.rewrite.facts import Entry, Fact, fact_of
from numbaops.rewrite.known import Known, known_initializers, of_shape
from numbaops.rewrite.names import Fresh, bodies, captured, defined, every_definition, every_name, inline, is_if, rename_inputs, takes
from numbaops.rewrite.places import Place, constant, tensor_of
from numbaops.rewrite.storing import Store

GROWN = "numbaops.fold.growth"
"""Entry of ``metadata_props``: how many bytes of ``max_growth`` are used. It is there only if that limit left something as it was, so that
it leaves the same when the result is folded once more."""

_GROWTH = re.compile("[0-9]{1,18}")

GENERATORS = frozenset(("ConstantOfShape", "EyeLike", "Expand", "Tile", "Range", "DequantizeLinear"))
"""Operators that make much of little: they stay where they are smaller than what they make."""

COMPUTED = 1 << 24
"""Bytes of a value up to which it is computed though it may not be stored: what follows from it may be small."""

_ONLY_SHAPE = frozenset(("Shape", "Size", "EyeLike"))
"""Operators that look at nothing of their input but type and shape."""


class Folder:
    """Folds a model in place."""

    def __init__(self, loaded: files.LoadedModel, max_growth: int, max_tensor: int, dense: bool) -> None:
        self.loaded, self.model = loaded, loaded.model
        self.max_tensor, self.dense = max_tensor, dense
        self.facts: list[Fact] = []
        self.old = self.model.ir_version < 4
        self.store = Store(max_growth, max_tensor, self.facts)
        self.functions: dict[Key, FunctionProto] = {key_of(each): each for each in self.model.functions}

    def run(self) -> None:
        """Fold, and once more where that makes room within ``max_growth``, so that who folds the result finds nothing to do."""
        entry = next((each for each in self.model.metadata_props if each.key == GROWN), None)
        self.store.growth = int(entry.value) if entry is not None and _GROWTH.fullmatch(entry.value) else 0
        while True:
            self.facts[:] = [fact for fact in self.facts if fact.what != "left"]
            done = len(self.facts)
            self.store.over = False
            notes = self._notes()
            self._pass()
            if self._notes() < notes:
                continue  # what only a quantization annotation named that is no more
            if not self.store.over or len(self.facts) == done + sum(fact.what == "left" for fact in self.facts):
                break
        if entry is not None:
            entry.value = str(self.store.growth)
        elif self.store.over:
            self.model.metadata_props.add(key=GROWN, value=str(self.store.growth))

    def _pass(self) -> None:
        graph = self.model.graph
        trained = {entry.key for one in self.model.training_info for entry in (*one.initialization_binding, *one.update_binding)}
        fixed = trained if self.old else trained | {value.name for value in graph.input}
        scope = Scope(self.model, self.functions, self.loaded.external)
        for function in self.model.functions:
            label = ".".join(filter(None, key_of(function)))
            self._whole(Place(function, Scope(function, self.functions, self.loaded.external), label, {}, old=self.old))
        place = Place(graph, scope, "", known_initializers(graph, fixed, self.loaded), main=True, old=self.old)
        place.shapes = {value.name: shape for value in graph.input if (shape := of_shape(value.type)) is not None}
        self._whole(place)
        self._remove_functions()

    @functools.cached_property
    def trained(self) -> frozenset[str]:
        """Names in what trains the model, which may be those of values of its graph."""
        names: set[str] = set()
        for one in self.model.training_info:
            for graph in (one.initialization, one.algorithm):
                names.update(every_name(graph.node))
                names.update(value.name for value in graph.output)
            names.update(entry.key for entry in (*one.initialization_binding, *one.update_binding))
        return frozenset(names - {""})

    @functools.cached_property
    def used(self) -> Counter[str]:
        """How often each name is that of a value in the graph or function at work."""
        owner = self.owner
        names = Counter(every_definition(owner.node))
        if isinstance(owner, FunctionProto):
            names.update(owner.input)
        else:
            names.update(value.name for value in owner.input)
            names.update(tensor.name for tensor in owner.initializer)
            names.update(sparse.values.name for sparse in owner.sparse_initializer)
        return names

    @functools.cached_property
    def fresh(self) -> Fresh:
        """Gives names that nothing in it has."""
        owner = self.owner
        names = {*self.used, *every_name(owner.node)}
        names.update(value if isinstance(value, str) else value.name for value in owner.output)
        return Fresh(names | self.trained)

    def _whole(self, place: Place) -> None:
        """Fold a graph or function, in which the names of values are its own."""
        self.owner = place.owner
        for name in ("used", "fresh"):
            self.__dict__.pop(name, None)
        self._place(place)

    def _place(self, place: Place) -> None:
        """Fold the nodes of a graph, body or function."""
        entries = self._forward(place)
        self.store.store(place, entries, self._fixed(place), self.fresh)

    # Forward: what is known

    def _forward(self, place: Place) -> list[Entry]:
        """Compute what is known; bodies are folded on the way, Ifs inlined, Identities left out."""
        entries: list[Entry] = []
        renamed: dict[str, str] = {}
        fixed = {*place.outputs} | self._fixed(place) | {note.tensor_name for note in self._noted(place.owner)}
        queue = deque(place.owner.node)
        while queue:
            node = queue.popleft()
            if renamed:
                rename_inputs(node, renamed, self.fresh)
            own = canonical_domain(node.domain) == ""
            if own and node.op_type == "Identity" and self._renames(node, fixed):
                renamed[node.output[0]] = node.input[0]
                self.facts.append(fact_of("renamed", node, place))
                continue
            branch = self._branch(node, place) if own and node.op_type == "If" else None
            if branch is not None:
                self.facts.append(fact_of("inlined", node, place))
                nodes = inline(node, branch, self.fresh, self.used)
                queue.extendleft(reversed(self._take_over(branch, place) + nodes))
                for note in branch.quantization_annotation:
                    fixed |= {note.tensor_name, *_parameters(note)}
                continue
            for attribute in node.attribute:
                for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    self._body(body, node, place)
            entry = self._compute(node, place)
            for name, known in zip(node.output, entry.known or (), strict=False):
                if name:
                    place.values[name] = known
            entries.append(entry)
        return entries

    def _fixed(self, place: Place) -> set[str]:
        """Names that others than nodes take: what trains the model, and quantization annotations."""
        names = set(self.trained) if place.main else set()
        return names.union(*map(_parameters, self._noted(place.owner)))

    def _notes(self) -> int:
        return sum(len(self._noted(owner)) for owner in (self.model.graph, *self.model.functions))

    def _noted(self, owner: GraphProto | FunctionProto) -> list[TensorAnnotation]:
        """The quantization annotations in a graph or function, and in its bodies."""
        found = list(owner.quantization_annotation) if isinstance(owner, GraphProto) else []
        for node in owner.node:
            for body in bodies(node):
                found += self._noted(body)
        return found

    @staticmethod
    def _renames(node: NodeProto, outputs: set[str]) -> bool:
        return len(node.input) == len(node.output) == 1 and node.output[0] not in outputs and all((node.input[0], node.output[0]))

    def _branch(self, node: NodeProto, place: Place) -> GraphProto | None:
        """The branch that an If always takes, or None."""
        known = place.values.get(node.input[0]) if len(node.input) == 1 else None
        if known is None:
            return None
        try:
            condition = known.get()
        except Exception:  # it cannot be read, as a run will say
            return None
        if getattr(condition, "size", None) != 1:
            return None
        graphs = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
        branch = graphs.get("then_branch" if condition.item() else "else_branch")
        return branch if branch is not None and len(node.output) <= len(branch.output) else None

    def _take_over(self, branch: GraphProto, place: Place) -> list[NodeProto]:
        """Let what is around an If have the initializers of a branch; where it can have none, as the nodes that are returned."""
        made = []
        owner = place.owner
        if isinstance(owner, GraphProto):
            owner.quantization_annotation.extend(branch.quantization_annotation)
        owner.value_info.extend(branch.value_info)
        place.values.update(known_initializers(branch, frozenset(), self.loaded))
        for tensor in branch.initializer:
            place.early.add(tensor.name)
            if not place.takes_initializers:
                made.append(constant(tensor))
            else:
                place.add_initializer(tensor)
        for sparse in branch.sparse_initializer:
            node = NodeProto(op_type="Constant", output=[sparse.values.name])
            node.attribute.add(name="sparse_value", type=11).sparse_tensor.CopyFrom(sparse)
            made.append(node)
        return made

    def _body(self, body: GraphProto, node: NodeProto, place: Place) -> None:
        label = " / ".join(filter(None, (place.label, f"{node.op_type} {node_label(node)}")))
        hidden = defined(body, inputs=not is_if(node))
        inputs = {value.name for value in body.input}
        values = {name: known for name, known in place.values.items() if name not in hidden}
        values = {name: Known(known.get, known.nbytes, 0, known.made) for name, known in values.items()}
        outer = frozenset(values)
        values |= known_initializers(body, inputs, self.loaded)
        shapes = {name: known for name, known in place.shapes.items() if name not in hidden}
        self._place(Place(body, place.scope, label, values, old=self.old, shapes=shapes, outer=outer))

    def _compute(self, node: NodeProto, place: Place) -> Entry:
        """A node with its outputs, if they depend on known values only."""
        entry = Entry(node, takes(node))
        values = place.values
        if node.op_type in _ONLY_SHAPE and canonical_domain(node.domain) == "":
            values = {**place.shapes, **values} if place.shapes else values
        if not all(name in values for name in entry.takes) or _has_nan(node):
            return entry
        if node.op_type == "Constant" and (known := _of_constant(node, self.loaded)) is not None:
            entry.known = [known]
            return entry
        inputs = [values[name].get if name else _absent for name in node.input]
        outer = {name: values[name].get for name in captured(node)}
        try:
            results = place.scope.compute(node, inputs, outer, max(self.max_tensor, COMPUTED))
        except LeftError as error:
            if error.reason != "attribute of the function" or node.op_type != "Constant":
                entry.left = fact_of("left", node, place, reason=error.reason, detail=error.detail)
            return entry
        cost = node.ByteSize() + sum(values[name].cost for name in entry.takes)
        made = node.op_type in GENERATORS | {"Constant"} or any(values[name].made for name in entry.takes)
        entry.known = [_known(result, cost, made and not self.dense) for result in results]
        return entry

    def _remove_functions(self) -> None:
        """Take out functions that nothing calls."""
        if not self.functions:
            return
        scope = Scope(self.model, self.functions, self.loaded.external)
        called = {key_of(one) for node in self.model.graph.node for one, _ in scope.inside(node)}
        for one in self.model.training_info:
            called |= {
                key_of(each) for graph in (one.initialization, one.algorithm) for node in graph.node for each, _ in scope.inside(node)
            }
        for position in reversed(range(len(self.model.functions))):
            function = self.model.functions[position]
            if key_of(function) not in called:
                self.facts.append(Fact("removed", "", "function", function.name, ""))
                del self.model.functions[position]


def _parameters(note: TensorAnnotation) -> set[str]:
    return {entry.value for entry in note.quant_parameter_tensor_names}


def _absent() -> None:
    return None


def _has_nan(node: NodeProto) -> bool:
    """Whether a Constant has a NaN as a Python float: that is a double, on the way to which a NaN may lose its payload."""
    if node.op_type != "Constant" or canonical_domain(node.domain) != "":
        return False
    return any(math.isnan(value) for one in node.attribute if one.name in ("value_float", "value_floats") for value in (one.f, *one.floats))


def _of_constant(node: NodeProto, loaded: files.LoadedModel) -> Known | None:
    tensor = tensor_of(node)
    return None if tensor is None or references([node]) else Known.of_tensor(tensor, loaded)


def _known(value: Any, cost: int, made: bool) -> Known:
    nbytes = stored_bytes(value)
    made = made and nbytes is not None and nbytes > cost
    return Known(lambda: value, nbytes, cost if made or nbytes is None else nbytes, made)
