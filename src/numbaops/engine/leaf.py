"""What stands in ``rt_nodes_`` for the nodes that numbaops runs itself: all have the interface of onnx's ``OpRun``."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import onnx.defs
import onnx.helper
from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto
from onnx.external_data_helper import uses_external_data
from onnx.reference import ReferenceEvaluator, op_run

from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError, NumbaopsError
from numbaops.ops.generator import Constant
from numbaops.opset import NEWEST_OPSET, OPERATOR_VERSIONS, OperatorVersion, operators, resolve
from numbaops.tensors import to_array

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


@functools.cache
def _warn_of_newer_version(op_type: str, since_version: int) -> None:
    warnings.warn(
        f"numbaops does not know {op_type}-{since_version} yet (its table ends at opset {NEWEST_OPSET}); onnx.reference runs it instead",
        stacklevel=2,
    )


def node_label(node: NodeProto) -> str:
    """What to call a node in an error: its name, or that of the first value it computes."""
    return node.name or next((name for name in node.output if name), "")


class _Node(op_run.OpRun):
    """An ``OpRun`` that reads the attributes of its node itself, or not at all."""

    def __init__(self, node: NodeProto, run_params: dict[str, Any]) -> None:
        # not OpRun.__init__: it would convert attributes by its own rules, and fill in those of an operator of the same name
        self.onnx_node = node
        self.run_params = run_params
        self._schema = None
        self.has_subgraph = False
        self.has_linked_attribute = False
        self.attributes_names_: set[str] = set()

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)  # type: ignore[no-untyped-call]


class OwnOperator(_Node):
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
        try:
            attributes = {each.name: _value(each, version, check_types, read_external) for each in node.attribute}
            self.bound = version.bind(attributes, check_types=check_types)
            _check_arity(node, version)
        except NumbaopsError as error:
            error.node_name = node_label(node)
            raise
        # what the operator keeps is read-only, and may be shared as it is
        self._results = (self.bound.result,) if isinstance(self.bound, Constant) else None
        # as OpRun shows them
        for name, value in attributes.items():
            setattr(self, name, self.bound.attributes[name] if isinstance(value, TensorProto) else value)
        self.attributes_names_ = set(attributes)

    def evaluate(self, *inputs: Any) -> tuple[Any]:
        """The outputs; a constant is shared and read-only."""
        if self._results is not None:
            return self._results
        try:
            if inputs and isinstance(inputs[0], (list, tuple)):  # the bound operator would take it for a shape
                raise InvalidTypeError(f"the input is a {type(inputs[0]).__name__}; allowed: an array", op_type=self.op_type)
            return (self.bound(*inputs),)
        except NumbaopsError as error:
            error.node_name = node_label(self.onnx_node)
            raise

    def run(self, *args: Any, linked_attributes: Any = None, context: Any = None, bindings: Any = None) -> tuple[Any]:
        """As ``OpRun.run``."""
        self.run_params["log"]("-- begin %s.run(%d inputs)", self.op_type, len(args))
        results = self.evaluate(*args)
        self.run_params["log"]("-- done %s.run -> %d outputs", self.op_type, len(results))
        return results


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


def sparse_parts(sparse: SparseTensorProto, read_external: Callable[[TensorProto], Any]) -> Any:
    """A sparse tensor, as values, indices and shape where onnx has left parts of it in another file."""
    if not any(map(uses_external_data, (sparse.values, sparse.indices))):
        return sparse
    values, indices = (read_external(part) if uses_external_data(part) else to_array(part) for part in (sparse.values, sparse.indices))
    return values, indices, tuple(sparse.dims)


def _check_arity(node: NodeProto, version: OperatorVersion) -> None:
    for what, names, wanted in (("input", node.input, version.inputs), ("output", node.output, version.outputs)):
        given = list(names)
        while given and not given[-1] and len(given) > len(wanted):
            given.pop()
        if len(given) != len(wanted) or (what == "input" and not all(given)):
            expected = f"{len(wanted)} ({', '.join(wanted)})" if wanted else "none"
            raise InvalidValueError(
                f"the node has the {what}s {given}; allowed: {expected}", op_type=version.op_type, since_version=version.since_version
            )


@runtime_checkable
class Specialisable(Protocol):
    """An evaluator that can fill in the attributes of its function ahead of the run."""

    def specialised(self, given: Mapping[str, AttributeProto]) -> ReferenceEvaluator: ...


class OpFunction(_Node, op_run.OpFunction):
    """A node that calls a function: one of the model, or the one by which ONNX defines an operator.

    Args:
        node: the calling node, without references to function attributes.
        run_params: what onnx's evaluator hands to every ``OpRun``.
        impl: the function's evaluator.
        defaults: attributes that apply where the node has none.
    """

    def __init__(
        self, node: NodeProto, run_params: dict[str, Any], impl: ReferenceEvaluator, defaults: Mapping[str, AttributeProto] | None = None
    ) -> None:
        super().__init__(node, run_params)
        self.impl_ = impl
        given = {**(defaults or {}), **{each.name: each for each in node.attribute}}
        self.attributes_: dict[str, Any] = {}
        if isinstance(impl, Specialisable):
            self._body = impl.specialised(given)
        else:
            self._body = impl
            self.attributes_ = {name: self._extract_attribute_value(each) for name, each in given.items()}
        self._input_names: Sequence[str] = impl.input_names
        if len(node.input) > len(self._input_names):
            raise InvalidValueError(
                f"the call has {len(node.input)} inputs; the function has {len(self._input_names)}",
                op_type=node.op_type,
                node_name=node_label(node),
            )

    def run(self, *args: Any, linked_attributes: Any = None, context: Any = None, bindings: Any = None) -> tuple[Any, ...]:
        """As ``OpRun.run``; trailing inputs may be left out."""
        self.run_params["log"]("-- begin %s.run(%d inputs)", self.op_type, len(args))
        feeds = dict.fromkeys(self._input_names) | dict(zip(self._input_names, args, strict=False))
        options = {} if bindings is None else {"check_shape_annotations": True, "_bindings": bindings}
        results = self._body.run(None, feeds, attributes=self.attributes_, **options)
        self.run_params["log"]("-- done %s.run -> %d outputs", self.op_type, len(results))
        return tuple(results)


class ReferringNode(_Node):
    """A node with attributes that refer to those of the function it belongs to.

    It stands for the node in the function's own evaluator. What runs is the function with its attributes filled in.
    """

    def __init__(self, node: NodeProto, run_params: dict[str, Any]) -> None:
        super().__init__(node, run_params)
        self.has_linked_attribute = True

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Never possible."""
        raise EvaluationError(
            "the node refers to attributes of its function, and runs only as part of it",
            op_type=self.op_type,
            node_name=node_label(self.onnx_node),
        )


class DeferredFunction(op_run.OpFunctionContextDependant):
    """An operator whose defining function depends on input types that only a run shows.

    Args:
        node: the node.
        run_params: what onnx's evaluator hands to every ``OpRun``.
        parent: the evaluator of the graph around it.
        nesting: makes the evaluators built meanwhile part of ``parent``.
    """

    def __init__(
        self, node: NodeProto, run_params: dict[str, Any], parent: ReferenceEvaluator, nesting: Callable[[], AbstractContextManager[None]]
    ) -> None:
        super().__init__(node, run_params, parent=parent)
        self._nesting = nesting

    def _run(self, *inputs: Any, **kwargs: Any) -> Any:
        with self._nesting():
            return super()._run(*inputs, **kwargs)  # type: ignore[no-untyped-call]
