"""Models with the same tensors in fewer bytes; see :func:`compact`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.external_data_helper import uses_external_data

from numbaops.dtypes import BY_CODE, ElementType
from numbaops.errors import InvalidValueError
from numbaops.rewrite import files
from numbaops.rewrite.comparison import check_same
from numbaops.rewrite.patterns import Array, patterns, words
from numbaops.rewrite.payloads import field_bytes, length_bytes, payload_bytes, repacked, smallest, tensor_bytes
from numbaops.rewrite.recipes import NOT_IN_ONNXRUNTIME, PREVIOUS, SPARSE, Recipe, Step, offered, recipes, why_not
from numbaops.rewrite.scopes import Held, Tree, trees

MIN_BYTES = 256
"""Bytes of elements below which a tensor is left as it is: shapes, axes and the like, which some programs look for in initializers."""

_SHORT = 8
"""Elements up to which a tensor that nodes need has them in its name, so that nodes of the same shape share it."""


@dataclass(frozen=True, slots=True)
class TensorChange:
    """What became of a tensor.

    Attributes:
        tensor: its name.
        where: "" for the model's graph; else the node and the attribute of the body, or the function, that it is in.
        element_type: the name of its element type.
        shape: its shape.
        outcome: the operators that make it now, ``"sparse_value"``, ``"shared"``, ``"packed"``, or ``"kept"``.
        note: what it is shared with, or why it was kept.
        bytes_before: bytes that it took, names and all.
        bytes_after: bytes that what is there now takes.
    """

    tensor: str
    where: str
    element_type: str
    shape: tuple[int, ...]
    outcome: str
    note: str
    bytes_before: int
    bytes_after: int

    @property
    def saved(self) -> int:
        """Bytes."""
        return self.bytes_before - self.bytes_after


@dataclass(frozen=True, slots=True)
class Compacted(files.Rewritten):
    """What :func:`compact` gives.

    Attributes:
        changes: what became of each tensor; a tensor that was shared and whose other one was made smaller has a line for each.
        small: tensors that were not looked at because they are below ``min_bytes``.
        bytes_before: of the model and its external data.
        bytes_after: the same of the compacted model.
    """

    changes: tuple[TensorChange, ...]
    small: int
    bytes_before: int
    bytes_after: int


def compact(
    model: Any,
    *,
    min_bytes: int = MIN_BYTES,
    check: int = 0,
    dims: Iterable[str] = (),
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
) -> Compacted:
    """A model whose tensors take fewer bytes, and have the same bits when it runs.

    Initializers and Constants, also those in bodies and functions, become the nodes that make them: ConstantOfShape if they are uniform,
    EyeLike (and Mul) if they have one diagonal, Range (and Reshape) if they are ramps, Constant with ``sparse_value`` if they are mostly
    zero, each followed by Cast where the operator lacks the element type. Equal tensors become one. Elements in typed fields become raw
    data where these take fewer bytes. What onnx.checker or ONNX Runtime would not have is not done. Names of inputs, outputs and
    remaining values stay, but for those in bodies that values around them have too, and so do initializers that are inputs, or that
    training or quantization annotations name. To compact the result changes nothing.

    Before IR version 4 every initializer had to be an input, and none is a default; those that go are no inputs any more.

    Args:
        model: a ModelProto, which is left as it is, or a model as a path, bytes or a file object.
        min_bytes: tensors whose elements take fewer bytes are left as they are.
        check: run the model before and after on so many drawn inputs, and compare the outputs to the bit.
        dims: ``"NAME=SIZE"`` of symbolic dimensions of drawn inputs; of others it is 1.
        seed: of drawn inputs.
        folder: where external data are; by default beside a file that has a path.

    Raises:
        InvalidModelError: it is no ONNX model.
        InvalidValueError: a tensor cannot be read, or ``min_bytes`` or ``check`` is no integer from 0 on.
        InvalidTypeError: ``model`` is neither model nor file.
        EvaluationError: ``check`` found a difference, or the model fails on drawn inputs.
    """
    for name, value in (("min_bytes", min_bytes), ("check", check)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 0:
            raise InvalidValueError(f"{name} is {value!r}; allowed: an integer from 0 on", attribute=name)
    loaded = files.load(model, folder)
    # kept: which files the model refers to, which its new one may not replace
    copy = files.copied(loaded.model, lambda tensor: not check and not uses_external_data(tensor))
    source = files.LoadedModel(copy, loaded.external, loaded.path, loaded.folder)
    before = model_bytes(loaded.model)
    work = _Work(loaded, int(min_bytes))
    while work.one_pass():
        pass
    if check:
        check_same(source, loaded, int(check), dims, seed)
    return Compacted(loaded.model, source, (*work.done, *work.kept), work.small, before, model_bytes(loaded.model))


def model_bytes(model: ModelProto) -> int:
    """Bytes of a model with its external data; raw data of initializers are not copied for it."""
    raw = [tensor for tensor in model.graph.initializer if tensor.HasField("raw_data") and not uses_external_data(tensor)]
    rest = files.copied(model, lambda tensor: tensor.HasField("raw_data") and not uses_external_data(tensor))
    emptied = [TensorProto(name=each.name, data_type=each.data_type, dims=each.dims, doc_string=each.doc_string) for each in raw]
    graph = rest.graph.ByteSize()
    more = sum(map(tensor_bytes, raw)) - sum(map(field_bytes, emptied))
    outside = sum(payload_bytes(tensor) for tensor in files.tensors_of_model(model) if uses_external_data(tensor))
    return int(rest.ByteSize()) + more + length_bytes(graph + more) - length_bytes(graph) + outside


@dataclass(slots=True)
class _Facts:
    """What is known of a tensor's elements, for the passes after the first."""

    digest: bytes = b""
    recipes: list[Recipe] | None = None
    reason: str = ""
    packed: bool = False


@dataclass(slots=True)
class _Work:
    loaded: files.LoadedModel
    min_bytes: int
    done: list[TensorChange] = field(default_factory=list)
    kept: list[TensorChange] = field(default_factory=list)
    small: int = 0
    _known: dict[tuple[tuple[int, int], str], _Facts] = field(default_factory=dict)
    _added: set[str] = field(default_factory=set)

    def one_pass(self) -> bool:
        """Share or replace what can be; whether there was any."""
        self.kept, self.small, before = [], 0, len(self.done)
        for tree in trees(self.loaded.model, self.min_bytes):
            self._tree(tree)
        return len(self.done) > before

    def _tree(self, tree: Tree) -> None:
        held = [each for scope in tree.scopes for each in scope.held]
        if not self._share(tree, held):
            for each in held:
                self._one(tree, each)
        tree.finish()

    def _facts(self, one: Held) -> _Facts:
        return self._known.setdefault(self._key(one), _Facts())

    @staticmethod
    def _key(one: Held) -> tuple[tuple[int, int], str]:
        return one.scope.place, one.name

    # ------------------------------------------------------------------------------------------------------------ equal tensors

    def _share(self, tree: Tree, held: Iterable[Held]) -> bool:
        """Let one tensor stand for all that equal it; whether there were any."""
        shared = False
        by_size: dict[tuple[Any, ...], list[Held]] = {}
        for one in held:
            if not one.pinned and payload_bytes(one.tensor) >= self.min_bytes:
                by_size.setdefault((one.tensor.data_type, *one.tensor.dims), []).append(one)
        for alike in by_size.values():
            groups: dict[tuple[Any, ...], list[Held]] = {}
            for one in alike if len(alike) > 1 else ():
                groups.setdefault((self._digest(one), *one.documentation), []).append(one)
            for group in groups.values():
                shared |= len(group) > 1 and self._merge(tree, group)
        return shared

    def _digest(self, one: Held) -> bytes:
        facts = self._facts(one)
        if not facts.digest:
            array = self._read(one)
            content: Any = repr(array.tolist()).encode() if array.dtype == object else words(array)
            facts.digest = hashlib.sha256(content).digest()
        return facts.digest

    def _merge(self, tree: Tree, group: Sequence[Held]) -> bool:
        """Replace the tensors of a group by one of them."""
        home = tree.common_scope([one.scope for one in group])
        # outputs keep their names, and an initializer need not be moved to where it is before all that use it
        order = sorted(group, key=lambda one: (one.scope is not home, not one.is_output, one.node is not None, len(one.name)))
        found = ((one, tree.name_in(home, one)) for one in order if one.scope is home or self._may_be_given_on(tree, one))
        first, name = next(((one, name) for one, name in found if name is not None), (None, ""))
        if first is None:
            return False
        others = [one for one in group if one is not first and self._may_merge(tree, name, one)]
        saved = sum(one.bytes - self._cost_shared(tree, name, one) for one in others)
        moved = None
        if first.scope is not home or first.node is not None or name != first.name:
            moved = home.moved(first, name, tree)
            if first.node is None and moved.node is not None and not tree.takes(first.tensor):
                return False
            passed_on = field_bytes(tree.identity(first, name)) if first.is_output and first.scope is not home else 0
            before, after = first.bytes, moved.bytes + passed_on + tree.renaming(first, name)
            saved -= after - before
        if saved <= 0:
            return False
        if moved is not None:
            if after != before:
                self._note(first, "shared", f"as {name!r}", before, after)
            home.take(first, moved, tree)
            self._forget(first)
        for one in others:
            before, after = one.bytes, self._cost_shared(tree, name, one)
            self._forget(one)
            if one.is_output:
                tree.replace(one, [tree.identity(one, name)])
            else:
                one.replace([])
                one.scope.rename(one.name, name)
            self._note(one, "shared", f"with {name!r}", before, after)
        return True

    def _may_merge(self, tree: Tree, name: str, one: Held) -> bool:
        return self._may_be_given_on(tree, one) and one.bytes > self._cost_shared(tree, name, one)

    @staticmethod
    def _cost_shared(tree: Tree, name: str, one: Held) -> int:
        """Bytes that it takes to have a tensor by the name of one that equals it."""
        return field_bytes(tree.identity(one, name)) if one.is_output else tree.renaming(one, name)

    @staticmethod
    def _may_be_given_on(tree: Tree, one: Held) -> bool:
        """Whether the body or graph that a tensor is in could have it from elsewhere, if it is an output."""
        return not one.is_output or BY_CODE[one.tensor.data_type].name in offered("Identity", tree.opset)

    def _forget(self, one: Held) -> None:
        """What is known of a tensor that goes, whose name another one may get."""
        self._known.pop(self._key(one), None)

    # -------------------------------------------------------------------------------------------------------------- other forms

    def _one(self, tree: Tree, one: Held) -> None:
        """Make a tensor of nodes, or pack it, or keep it."""
        row, before = BY_CODE[one.tensor.data_type], one.bytes
        if payload_bytes(one.tensor) < self.min_bytes:
            self.small += one.name not in self._added
            return
        unused = row.name in NOT_IN_ONNXRUNTIME and not tree.uses[one.name]  # which drops it, and then lacks the nodes that would make it
        if one.pinned or unused:
            self._keep(one, one.pinned or "nothing takes it")
            return
        facts = self._facts(one)
        if facts.recipes is None:
            array = self._read(one)
            packed = repacked(one.tensor, array)
            if packed is not None:
                one.tensor.CopyFrom(packed)
            facts.recipes, facts.reason = _recipes(array, row, tree.opset)
            if one.is_output:  # ONNX Runtime would give its caller a sparse tensor, or fail
                facts.recipes = [recipe for recipe in facts.recipes if recipe.title != SPARSE]
        best, cost = None, one.bytes
        for recipe in facts.recipes:
            nodes, operands = self._nodes(tree, one, recipe)
            if not all(map(tree.takes, operands)):
                continue
            size = sum(map(field_bytes, nodes)) + sum(map(tree.operand_bytes, operands))
            size += tree.renaming(one, nodes[-1].output[0])
            if size < cost:
                best, cost = (recipe, nodes, operands), size
        if best is not None:
            recipe, nodes, operands = best
            for operand in operands:
                tree.add_operand(operand)
                self._added.add(operand.name)
            tree.replace(one, nodes)
            self._forget(one)
            self._note(one, recipe.title, "", before, cost)
        elif one.bytes < before:
            facts.packed = True
            self._note(one, "packed", "", before, one.bytes)
        elif not facts.packed:
            self._keep(one, "nodes that make it would take more bytes" if facts.recipes else facts.reason)

    def _nodes(self, tree: Tree, one: Held, recipe: Recipe) -> tuple[list[NodeProto], list[TensorProto]]:
        """The nodes of a recipe that make a tensor, and the tensors that these need and that are not there yet."""
        nodes: list[NodeProto] = []
        needed: list[TensorProto] = []
        for step in recipe.steps:
            inputs = []
            for operand in step.inputs:
                if operand is PREVIOUS:
                    inputs.append(nodes[-1].output[0])
                    continue
                tensor = smallest(operand)  # type: ignore[arg-type]
                name = tree.operand_named(tensor, one.scope)
                if name is None:
                    name = next((each.name for each in needed if _same_content(each, tensor)), None)
                if name is None:
                    before = [each.name for each in needed] + [each.output[0] for each in nodes]
                    tensor.name = name = tree.fresh(_operand_name(operand, one.name), before)
                    needed.append(tensor)
                inputs.append(name)
            last = step is recipe.steps[-1]
            before = [each.name for each in needed] + [each.output[0] for each in nodes]
            output = tree.node_name(one, before) if last else tree.fresh(f"{one.name}_{len(nodes)}", before)
            nodes.append(_node(step, inputs, output))
        one.describe(nodes[-1])
        return nodes, needed

    # ------------------------------------------------------------------------------------------------------------------ records

    def _read(self, one: Held) -> Array:
        return np.ascontiguousarray(self.loaded.array(one.tensor)).reshape(tuple(one.tensor.dims))

    def _keep(self, one: Held, reason: str) -> None:
        if one.name not in self._added:
            self.kept.append(_change(one, "kept", reason, one.bytes, one.bytes))

    def _note(self, one: Held, outcome: str, note: str, before: int, after: int) -> None:
        self.done.append(_change(one, outcome, note, before, after))


def _change(one: Held, outcome: str, note: str, before: int, after: int) -> TensorChange:
    row = BY_CODE[one.tensor.data_type]
    return TensorChange(one.name, one.scope.where, row.name, tuple(one.tensor.dims), outcome, note, before, after)


def _recipes(array: Array, row: ElementType, opset: int) -> tuple[list[Recipe], str]:
    """The ways to make an array, and the reason if there is none."""
    found: list[Recipe] = []
    reason = "its elements follow no pattern"
    for number, pattern in enumerate(patterns(array)):
        found += recipes(pattern, row, array.shape, opset)
        if not found and number == 0:
            reason = why_not(pattern, row, opset)
    return found, reason


def _node(step: Step, inputs: Sequence[str], output: str) -> NodeProto:
    return helper.make_node(step.op_type, list(inputs), [output], **step.attributes)


def _operand_name(operand: Any, owner: str) -> str:
    if operand.dtype.kind == "i" and operand.size <= _SHORT:
        numbers = "_".join(str(number).replace("-", "m") for number in operand.reshape(-1).tolist())
        return f"{operand.dtype.name}_{numbers}" + ("" if operand.ndim else "_scalar")
    return f"{owner}_values"


def _same_content(one: TensorProto, other: TensorProto) -> bool:
    renamed = TensorProto()
    renamed.CopyFrom(one)
    renamed.ClearField("name")
    return renamed == other
