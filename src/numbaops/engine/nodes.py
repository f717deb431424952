"""What stands in ``rt_nodes_`` for the nodes that numbaops runs itself: all have the interface of onnx's ``OpRun``."""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
import onnx.defs
import onnx.helper
from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto
from onnx.external_data_helper import uses_external_data
from onnx.reference import op_run

from numbaops.engine.signature import RANDOM, Signature, attribute_values, check_arity, node_label, own_attributes, signature_of
from numbaops.engine.steps import Fast
from numbaops.engine.values import as_value, mixed
from numbaops.errors import InvalidTypeError, InvalidValueError, NumbaopsError
from numbaops.ops.base import BoundOperator
from numbaops.ops.generator import Constant, ConstantOfShape
from numbaops.ops.leaf import Leaf
from numbaops.ops.leaves import LEAVES
from numbaops.opset import NEWEST_OPSET, OPERATOR_VERSIONS, OperatorVersion, operators, resolve
from numbaops.tensors import to_array

_T = TypeVar("_T")

_ALIKE_BYTES = 1 << 10
"""Bytes of a node up to which its attributes are compared with those of others: of large ones, two are hardly ever equal."""

_OWN = frozenset((row.domain, row.op_type) for row in OPERATOR_VERSIONS)


def own_version(domain: str, op_type: str, opset: int) -> OperatorVersion | None:
    """The row of the operator table that a node of that opset uses; None if the operator is not ours.

    An opset newer than the table may have changed the operator. The installed onnx knows; if it has, None, with a warning.

    Raises:
        UnsupportedError: the operator is ours, and does not exist yet at that opset.
    """
    if (domain, op_type) not in _OWN:
        return None
    if opset > NEWEST_OPSET:
        since = onnx.defs.get_schema(op_type, opset, domain).since_version
        if since not in [row.since_version for name, rows in operators() if name == op_type for row in rows]:
            _warn_of_newer_version(op_type, since)
            return None
        opset = since
    return resolve(op_type, opset, domain)


def own_implementation(
    domain: str, op_type: str, opset: int, *, check_types: bool, read_external: Callable[[TensorProto], Any]
) -> Callable[..., Node] | None:
    """What makes the implementation of a node out of the node and onnx's ``run_params``, if numbaops has one; not for control flow.

    Raises:
        UnsupportedError: the operator is one of the table, and does not exist yet at that opset.
    """
    version = own_version(domain, op_type, opset)
    if version is not None:
        return functools.partial(OwnOperator, version=version, check_types=check_types, read_external=read_external)
    signature = signature_of(domain, op_type, opset)
    if signature is None:
        return None
    return leaf_class(domain, op_type, signature)


@functools.cache
def _warn_of_newer_version(op_type: str, since_version: int) -> None:
    warnings.warn(
        f"numbaops does not know {op_type}-{since_version} yet (its table ends at opset {NEWEST_OPSET}); onnx.reference runs it instead",
        stacklevel=2,
    )


class Node(op_run.OpRun):
    """An ``OpRun`` that reads the attributes of its node itself, or not at all.

    Attributes:
        kind: who implements it, as :class:`~numbaops.engine.steps.Step` has it.
        since_version: of the operator, or None.
    """

    kind: ClassVar[str] = "numbaops"
    since_version: int | None = None

    def __init__(self, node: NodeProto, run_params: dict[str, Any]) -> None:
        # not OpRun.__init__: it would convert attributes by its own rules, and fill in those of an operator of the same name
        self.onnx_node = node
        self.run_params = run_params
        self._schema = None
        self.has_subgraph = False
        self.has_linked_attribute = False
        self.attributes_names_: set[str] = set()

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)

    def evaluate(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs."""
        results = self.fast().function(*inputs)
        return tuple(map(as_value, results)) if type(results) is tuple else (as_value(results),)

    def run(self, *args: Any, linked_attributes: Any = None, context: Any = None, bindings: Any = None) -> tuple[Any, ...]:
        """As ``OpRun.run``."""
        self.run_params["log"]("-- begin %s.run(%d inputs)", self.op_type, len(args))
        results = self.evaluate(*args)
        self.run_params["log"]("-- done %s.run -> %d outputs", self.op_type, len(results))
        return results

    def fast(self) -> Fast:
        """How a plan calls it."""
        raise NotImplementedError


class OwnOperator(Node):
    """A node that an operator of numbaops runs.

    Args:
        node: the node, without references to function attributes.
        run_params: what onnx's evaluator hands to every ``OpRun``.
        version: the row of the operator table.
        check_types: refuse element types that the version lacks.
        read_external: makes an array of a tensor with external data.

    Raises:
        NumbaopsError: an attribute, or the number of inputs or outputs, is not what the version has.
    """

    def __init__(
        self,
        node: NodeProto,
        run_params: dict[str, Any],
        *,
        version: OperatorVersion,
        check_types: bool,
        read_external: Callable[[TensorProto], Any],
    ) -> None:
        super().__init__(node, run_params)

        def bound() -> tuple[dict[str, Any], BoundOperator]:
            attributes = {each.name: _value(each, version, check_types, read_external) for each in own_attributes(node)}
            return attributes, version.bind(attributes, check_types=check_types)

        try:
            attributes, self.bound = _alike(node, run_params, (version, check_types), bound)
            _check_arity(node, version)
        except NumbaopsError as error:
            error.node_name = node_label(node)
            raise
        self.since_version = version.since_version
        # as OpRun shows them
        for name, value in attributes.items():
            setattr(self, name, self.bound.attributes[name] if isinstance(value, TensorProto) else value)
        self.attributes_names_ = set(attributes)

    def evaluate(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs; a constant is shared and read-only."""
        if inputs and isinstance(inputs[0], (list, tuple)):  # the bound operator would take it for a shape
            raise InvalidTypeError(f"the input is a {type(inputs[0]).__name__}; allowed: an array", op_type=self.op_type)
        return super().evaluate(*inputs)

    def fast(self) -> Fast:
        if isinstance(self.bound, Constant):  # what it keeps is read-only, and may be shared as it is
            result = self.bound.result
            return Fast(lambda: result, single=True, arrays=True, pure=True)
        single = len(self.bound.version.outputs) == 1
        lazy = self.bound.view if isinstance(self.bound, ConstantOfShape) else None
        return Fast(self.bound.__call__, single=single, arrays=single, aliases=False, pure=True, lazy=lazy)


def _value(attribute: AttributeProto, version: OperatorVersion, check_types: bool, read_external: Callable[[TensorProto], Any]) -> Any:
    declared = version.attributes.get(attribute.name)
    kind = AttributeProto.AttributeType.Name(attribute.type)
    as_declared = declared is None or kind == declared.kind
    # onnx.reference takes a tensor for a number or a list, and its own tests have it so
    if not as_declared and (check_types or kind != "TENSOR"):
        raise InvalidTypeError(
            f"attribute {attribute.name!r} is given as {kind}; allowed: {declared.kind if declared else 'none'}",
            op_type=version.op_type,
            since_version=version.since_version,
            attribute=attribute.name,
        )
    if kind == "TENSOR":
        if uses_external_data(attribute.t):
            return read_external(attribute.t)
        return attribute.t if as_declared else to_array(attribute.t)
    if kind == "SPARSE_TENSOR":
        return sparse_parts(attribute.sparse_tensor, read_external)
    value = onnx.helper.get_attribute_value(attribute)
    return list(value) if kind.endswith("S") else value


def _alike(node: NodeProto, run_params: dict[str, Any], operator: tuple[Any, ...], bound: Callable[[], _T]) -> _T:
    """What ``bound()`` makes of a node's attributes; those of a model that are alike share it, as most are alike in real models.

    Args:
        node: the node.
        run_params: of the evaluator; its ``alike`` is where that is kept.
        operator: what it depends on beside the attributes.
        bound: reads the attributes.
    """
    kept = run_params.get("alike")
    if kept is None or node.ByteSize() > _ALIKE_BYTES:
        return bound()
    key = (*operator, *[each.SerializeToString() for each in node.attribute])
    if key not in kept:
        kept[key] = bound()
    return kept[key]  # type: ignore[no-any-return]


class LeafOperator(Node):
    """A node that a function of ``numbaops.ops`` runs, which knows the values of attributes and nothing of protos.

    There is a subclass for each operator version, named as that of onnx.reference is, and derived from it too, for those who ask.

    Args:
        node: the node, without references to function attributes.
        run_params: what onnx's evaluator hands to every ``OpRun``; its ``read_external`` makes an array of a tensor with external data.
    """

    leaf: ClassVar[Leaf]
    signature: ClassVar[Signature]

    def __init__(self, node: NodeProto, run_params: dict[str, Any], schema: Any = None) -> None:
        super().__init__(node, run_params)
        leaf, signature = self.leaf, self.signature
        self._schema = signature.schema
        self.since_version = signature.since_version
        counted = {}
        if _counts_outputs(leaf.function):
            counted["outputs"] = max((position for position, name in enumerate(node.output, 1) if name), default=1)

        def bound() -> tuple[dict[str, Any], Callable[..., Any]]:
            values = attribute_values(node, signature, run_params.get("read_external", to_array))
            arguments = {**values, **counted}
            if leaf.bind:
                return values, leaf.function(**arguments)
            return values, functools.partial(leaf.function, **arguments) if arguments else leaf.function

        check_arity(node, signature)
        try:
            attributes, self._function = _alike(node, run_params, (type(self), *counted.values()), bound)
        except NumbaopsError as error:
            error.op_type, error.since_version, error.node_name = node.op_type, signature.since_version, node_label(node)
            raise
        self.__dict__.update(attributes)  # as OpRun shows them
        self.attributes_names_ = set(attributes)

    def evaluate(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs."""
        if isinstance(self._function, np.ufunc):
            return (as_value(mixed(self._function, *inputs)),)
        return super().evaluate(*inputs)

    def fast(self) -> Fast:
        return Fast(
            self._function,
            single=self.signature.single,
            aliases=self.leaf.aliases,
            pure=self.op_type not in RANDOM and not self._trains(),
            ufunc=self._function if isinstance(self._function, np.ufunc) else None,
            renames=self.op_type == "Identity",
            elementwise=self.leaf.elementwise,
            prepared=getattr(self._function, "prepared", None),
        )

    def _trains(self) -> bool:
        """Whether it may be Dropout in training, which is random."""
        since_version = self.signature.since_version
        return self.op_type == "Dropout" and (len(self.input) > 2 or (since_version < 7 and not self.__dict__["is_test"]))


@functools.lru_cache(maxsize=2048)
def leaf_class(domain: str, op_type: str, signature: Signature) -> type[LeafOperator] | None:
    """The class for an operator version, or None if there is no function for it."""
    leaf = LEAVES.get((domain, op_type, signature.since_version))
    if leaf is None:
        return None
    try:
        theirs: type[op_run.OpRun] | None = theirs_of(domain, op_type, signature.since_version)
    except Exception:  # nobody else has it
        theirs = None
    bases = (LeafOperator,) if theirs is None else (LeafOperator, theirs)
    fields = {
        "leaf": leaf,
        "signature": signature,
        "op_domain": domain,
        "op_schema": signature.schema,
        "__module__": LeafOperator.__module__,
    }
    return type(op_type if theirs is None else theirs.__name__, bases, fields)


def theirs_of(domain: str, op_type: str, version: int) -> type[op_run.OpRun]:
    """The class of onnx.reference for an operator version."""
    names = {"": "_op_list", "ai.onnx.ml": "aionnxml"}
    module = importlib.import_module(f"onnx.reference.ops.{names.get(domain, 'aionnx_preview_training')}")
    found: type[op_run.OpRun] = module.load_op(domain, op_type, version)
    return found


@functools.cache
def _counts_outputs(function: Callable[..., Any]) -> bool:
    """Whether a function wants to know the number of outputs."""
    return not isinstance(function, np.ufunc) and "outputs" in inspect.signature(function).parameters


def sparse_parts(sparse: SparseTensorProto, read_external: Callable[[TensorProto], Any]) -> Any:
    """A sparse tensor, as values, indices and shape where onnx has left parts of it in another file."""
    if not any(map(uses_external_data, (sparse.values, sparse.indices))):
        return sparse
    values, indices = (read_external(part) if uses_external_data(part) else to_array(part) for part in (sparse.values, sparse.indices))
    return values, indices, tuple(sparse.dims)


def _check_arity(node: NodeProto, version: OperatorVersion) -> None:
    least = len(version.inputs) - len(version.optional)
    for what, names, known, required in (("input", node.input, version.inputs, least), ("output", node.output, version.outputs, 1)):
        given = list(names)
        if len(given) == len(known) == required and (required == 0 or all(given)):
            continue
        while given and not given[-1] and len(given) > required:
            given.pop()
        missing = len(given) < required or (what == "input" and not all(given[:required]))
        if missing or len(given) > len(known):
            options = [f"[{name}]" if name in version.optional else name for name in known]
            expected = f"{len(options)} ({', '.join(options)})" if options else "none"
            raise InvalidValueError(
                f"the node has the {what}s {list(names)}; allowed: {expected}", op_type=version.op_type, since_version=version.since_version
            )
