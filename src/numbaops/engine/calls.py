"""Nodes that call functions: those of a model, and those by which ONNX defines operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import onnx.helper
from onnx import AttributeProto, NodeProto, TypeProto
from onnx.reference import ReferenceEvaluator, op_run

from numbaops.dtypes import of_dtype
from numbaops.engine.nodes import Node
from numbaops.engine.signature import node_label
from numbaops.engine.steps import Fast, keeping
from numbaops.errors import EvaluationError, InvalidValueError


@runtime_checkable
class Specialisable(Protocol):
    """An evaluator that can fill in the attributes of its function ahead of the run."""

    pure: bool
    foreign: bool
    given: bool

    def specialised(self, given: Mapping[str, AttributeProto]) -> ReferenceEvaluator: ...

    def body(self, often: bool = True) -> Callable[..., Sequence[Any]]: ...


class OpFunction(Node, op_run.OpFunction):
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
            self.target = impl.specialised(given)
        else:
            self.target = impl
            self.attributes_ = {name: self._extract_attribute_value(each) for name, each in given.items()}
        self._input_names: Sequence[str] = impl.input_names
        if len(node.input) > len(self._input_names):
            raise InvalidValueError(
                f"the call has {len(node.input)} inputs; the function has {len(self._input_names)}",
                op_type=node.op_type,
                node_name=node_label(node),
            )
        if len(node.output) > len(impl.output_names):
            raise InvalidValueError(
                f"the call has {len(node.output)} outputs; the function has {len(impl.output_names)}",
                op_type=node.op_type,
                node_name=node_label(node),
            )

    kind = "function"

    def fast(self) -> Fast:
        if not isinstance(self.target, Specialisable):
            return Fast(keeping(self.run), foreign=True, given=True)
        missing = [None] * (len(self._input_names) - len(self.onnx_node.input))
        evaluator = self.target
        ready: list[Callable[..., Sequence[Any]]] = []

        def function(*inputs: Any) -> tuple[Any, ...]:
            if not ready:
                ready.append(evaluator.body(often=False))
            return tuple(ready[0](*inputs, *missing))

        return Fast(function, pure=evaluator.pure, foreign=evaluator.foreign, given=evaluator.given)

    def run(self, *args: Any, linked_attributes: Any = None, context: Any = None, bindings: Any = None) -> tuple[Any, ...]:
        """As ``OpRun.run``; trailing inputs may be left out."""
        self.run_params["log"]("-- begin %s.run(%d inputs)", self.op_type, len(args))
        feeds = dict.fromkeys(self._input_names) | dict(zip(self._input_names, args, strict=False))
        options = {} if bindings is None else {"check_shape_annotations": True, "_bindings": bindings}
        results = self.target.run(None, feeds, attributes=self.attributes_, **options)
        self.run_params["log"]("-- done %s.run -> %d outputs", self.op_type, len(results))
        return tuple(results)


class ReferringNode(Node):
    """A node with attributes that refer to those of the function it belongs to.

    It stands for the node in the function's own evaluator. What runs is the function with its attributes filled in.
    """

    def __init__(self, node: NodeProto, run_params: dict[str, Any]) -> None:
        super().__init__(node, run_params)
        self.has_linked_attribute = True

    def fast(self) -> Fast:
        return Fast(self.run)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Never possible."""
        raise EvaluationError(
            "the node refers to attributes of its function, and runs only as part of it",
            op_type=self.op_type,
            node_name=node_label(self.onnx_node),
        )


class DeferredFunction(Node, op_run.OpFunctionContextDependant):
    """An operator whose defining function depends on input types that only a run shows.

    Args:
        node: the node.
        run_params: what onnx's evaluator hands to every ``OpRun``.
        load: makes the node's implementation for types of its inputs.
    """

    kind = "function"

    def __init__(self, node: NodeProto, run_params: dict[str, Any], load: Callable[[NodeProto, list[TypeProto]], op_run.OpRun]) -> None:
        super().__init__(node, run_params)
        self._load = load
        self._known: dict[tuple[Any, ...], op_run.OpRun] = {}

    def _implementation(self, inputs: Sequence[Any]) -> op_run.OpRun:
        # by type and rank; a function's text depends on nothing else
        key = tuple([(getattr(value, "dtype", None), getattr(value, "ndim", None)) for value in inputs])
        if key not in self._known:
            self._known[key] = self._load(self.onnx_node, [type_of(value) for value in inputs])
        return self._known[key]

    def fast(self) -> Fast:
        return Fast(self.evaluate, foreign=True, given=True)

    def evaluate(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs."""
        return self._implementation(inputs).run(*inputs)  # type: ignore[no-any-return, no-untyped-call]


def type_of(value: Any) -> TypeProto:
    """The type of a tensor, with its rank; an empty one for anything else."""
    if not isinstance(value, np.ndarray):
        return TypeProto()
    return onnx.helper.make_tensor_type_proto(of_dtype(value.dtype).code, [None] * value.ndim)
