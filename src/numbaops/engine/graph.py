"""What a proto holds, loaded: names and types, initializers, and the implementation of every node, as attributes that others read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

import onnx
import onnx.defs
import onnx.reference
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto
from onnx.external_data_helper import uses_external_data
from onnx.model_container import ModelContainer
from onnx.reference import op_run

from numbaops.engine.calls import DeferredFunction, OpFunction, ReferringNode
from numbaops.engine.control_flow import control_flow
from numbaops.engine.fallback import make_step
from numbaops.engine.functions import FunctionTable, attribute_from_value, nodes_of, references, substitute
from numbaops.engine.load import canonical_domain, canonical_node, imports_of, opened
from numbaops.engine.nodes import own_implementation, sparse_parts
from numbaops.engine.passes import Passes
from numbaops.engine.plan import Budget
from numbaops.engine.profile import Profile
from numbaops.engine.signature import node_label, signature_of
from numbaops.engine.steps import Step, check_unique
from numbaops.engine.validity import check_valid
from numbaops.engine.values import shared
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError, NumbaopsError, UnsupportedError
from numbaops.tensors import dense_from_sparse, to_array

# The evaluator that is being built in this thread: those of its bodies and functions are built by code of onnx or of
# subclasses, which pass on what onnx knows of, and nothing else.
_enclosing: ContextVar[LoadedGraph | None] = ContextVar("_enclosing", default=None)

_MOST_SPECIALISED = 64
"""Function bodies kept for attributes that calls gave; those of a model's own calls are kept by their nodes too."""


class LoadedGraph(onnx.reference.ReferenceEvaluator):
    """A model, graph, function or node with all that its proto refers to; :class:`numbaops.ReferenceEvaluator` runs it.

    One that is built while another one loads belongs to that: it is a body or a function of it, and shares its functions, external data,
    budget and profile.

    Args:
        proto: see :class:`numbaops.ReferenceEvaluator`, as for the other arguments.
        opsets: opset version by domain.
        functions: functions that the nodes may call.
        new_ops: classes that implement operators.
        verbose: what bodies are built with, less two.
        strict: whether the proto and element types are checked.
        budget: what values computed once for all may hold.
        profile: where to note times, or None.
        passes: what plans do to their steps.
    """

    def __init__(
        self,
        proto: Any,
        opsets: dict[str, int] | None,
        functions: Sequence[onnx.reference.ReferenceEvaluator | FunctionProto] | None,
        new_ops: Sequence[type[op_run.OpRun]],
        *,
        verbose: int,
        strict: bool,
        budget: Budget,
        profile: Profile | None,
        passes: Passes,
    ) -> None:
        # not the base's __init__: its parameters differ from version to version, and it builds functions in its own order
        self.proto_, self._external = opened(proto)
        self.opsets_ = imports_of(self.proto_, opsets)
        if isinstance(self.proto_, ModelProto) and functions is not None:
            raise ValueError("functions must be None if proto is ModelProto.")
        self.verbose = verbose
        self.strict = strict
        self.container_ = proto if isinstance(proto, ModelContainer) else None
        self.new_ops_ = _new_ops(new_ops)
        self._budget, self._profile, self._passes = budget, profile, passes
        self._alike: dict[tuple[Any, ...], Any] = {}
        self._describe()

        parent = _enclosing.get()
        self._nested = parent is not None and isinstance(self.proto_, (GraphProto, FunctionProto))
        self.functions_: dict[tuple[str, str], onnx.reference.ReferenceEvaluator] = {}
        if parent is not None and self._nested:
            self.strict = strict or parent.strict
            self.container_ = parent.container_
            self._external = parent._external
            self._budget, self._profile, self._passes = parent._budget, parent._profile, parent._passes
            self._alike = parent._alike
            self._function_table: FunctionTable = parent._function_table
            self.functions_ = parent.functions_
        else:
            own_functions = self.proto_.functions if isinstance(self.proto_, ModelProto) else functions or ()
            self._function_table = FunctionTable(own_functions, self._nested_evaluator)
            for domain, name, overload in self._function_table:
                function = self._function_table.find(domain, name, overload)
                assert function is not None
                self.functions_[domain, name] = function

        self._references = references(self.nodes_)
        self._specialised: dict[bytes, Self] = {}
        self._implementations: dict[tuple[str, str], Callable[..., op_run.OpRun] | None] = {}
        self._init()
        if self.strict and not self._nested:
            check_valid(self.proto_, self.opsets_)

    def _describe(self) -> None:
        """Set the attributes that onnx's own evaluator has, and others read."""
        proto = self.proto_
        graph = proto.graph if isinstance(proto, ModelProto) else proto if isinstance(proto, GraphProto) else None
        self.onnx_graph_ = graph  # type: ignore[assignment]
        self.input_types_: list[TypeProto] | None = None
        self.output_types_: list[TypeProto] | None = None
        self.all_types_ = None  # type: ignore[assignment]
        self.attributes_ = list(proto.attribute) if isinstance(proto, FunctionProto) else []
        self.nodes_: Sequence[NodeProto] = list(nodes_of(proto))
        self.inits_: list[TensorProto | SparseTensorProto] = []
        if graph is not None:
            self.input_names_ = [each.name for each in graph.input]
            self.input_types_ = [each.type for each in graph.input]
            self.output_names_ = [each.name for each in graph.output]
            self.output_types_ = [each.type for each in graph.output]
            self.inits_ = [*graph.initializer, *graph.sparse_initializer]
            self.all_types_ = {each.name: each.type for each in (*graph.input, *graph.value_info, *graph.output)}
        else:
            self.input_names_ = list(proto.input)
            self.output_names_ = list(proto.output)
            if isinstance(proto, FunctionProto):
                self.all_types_ = {each.name: each.type for each in proto.value_info}

    @contextmanager
    def _nesting(self) -> Iterator[None]:
        """Evaluators built within become part of this one."""
        token = _enclosing.set(self)
        try:
            yield
        finally:
            _enclosing.reset(token)

    def _nested_evaluator(self, proto: GraphProto | FunctionProto) -> Self:
        with self._nesting():
            opsets = self.opsets_ if isinstance(proto, GraphProto) else None
            verbose = max(0, self.verbose - 2) if isinstance(proto, GraphProto) else self.verbose
            kind: Callable[..., Self] = type(self)  # which takes what onnx's evaluator does
            return kind(proto, opsets=opsets, verbose=verbose, new_ops=list(self.new_ops_.values()))

    def _init(self) -> None:
        """Load the initializers, and the implementation of every node."""
        self.rt_inits_: dict[str, Any] = {}
        for initializer in self.inits_:
            name = initializer.values.name if isinstance(initializer, SparseTensorProto) else initializer.name
            try:
                self.rt_inits_[name] = shared(self._initial(initializer))
            except NumbaopsError as error:
                error.args = (f"initializer {name!r}: {error.args[0]}",)
                raise
        self._run_params = {
            "log": lambda pattern, *args: self._log(10, pattern, *args),
            "opsets": self.opsets_,
            "verbose": self.verbose,
            "new_ops": self.new_ops_,
            "existing_functions": self.functions_.copy(),
            "evaluator_cls": self.__class__,
            "read_external": self.retrieve_external_data,
            "alike": self._alike,
        }
        with self._nesting():
            self.rt_nodes_ = [self._load_node(canonical_node(node), self._run_params) for node in self.nodes_]

    def _initial(self, initializer: TensorProto | SparseTensorProto) -> Any:
        if isinstance(initializer, SparseTensorProto):
            parts = sparse_parts(initializer, self.retrieve_external_data)
            return dense_from_sparse(*parts) if isinstance(parts, tuple) else to_array(parts)
        return self.retrieve_external_data(initializer) if uses_external_data(initializer) else to_array(initializer)

    def retrieve_external_data(self, initializer: TensorProto) -> Any:
        """A tensor whose elements are in a ModelContainer, or in a file beside the model."""
        if self.container_ is not None:
            return super().retrieve_external_data(initializer)
        return self._external.read(initializer)

    def _load_node(self, node: NodeProto, run_params: dict[str, Any]) -> op_run.OpRun:
        if not isinstance(node.op_type, str):  # protobuf leaves what is no UTF-8 as bytes
            raise InvalidValueError(f"the operator's name is {node.op_type!r}; allowed: UTF-8", node_name=node_label(node))
        try:
            implementation = self._load_impl(node)
        except op_run.RuntimeContextError:
            implementation = self._load_context_dependent(node, run_params)
        if self._references and references([node]):
            # of the name that onnx's own class would have
            referring: type[ReferringNode] = type(node.op_type, (ReferringNode,), {})
            return referring(node, run_params)
        try:
            loaded: op_run.OpRun = implementation(node, run_params)
        except TypeError as error:
            if isinstance(error, NumbaopsError):
                raise
            raise InvalidTypeError(f"unable to load the node: {error}", op_type=node.op_type, node_name=node_label(node)) from error
        return self._with_defaults(loaded, run_params)

    def _with_defaults(self, loaded: op_run.OpRun, run_params: dict[str, Any]) -> op_run.OpRun:
        """The implementation; of an operator that ONNX defines as a function, one that knows the operator's defaults."""
        if type(loaded) is not op_run.OpFunction:
            return loaded
        node = loaded.onnx_node
        schema = onnx.defs.get_schema(node.op_type, self.opsets_[node.domain], node.domain)
        defaults = {name: each.default_value for name, each in schema.attributes.items() if each.default_value.type}
        return OpFunction(node, run_params, loaded.impl_, defaults)

    def _load_context_dependent(self, node: NodeProto, run_params: dict[str, Any]) -> Callable[..., op_run.OpRun]:
        """The implementation of an operator that ONNX defines as a function which depends on the types of its inputs."""
        types = [(self.all_types_ or {}).get(name) for name in node.input]
        if None in types:
            return functools.partial(DeferredFunction, load=functools.partial(self._load_for_types, run_params=run_params))
        return self._load_impl(node, types)  # type: ignore[no-any-return]

    def _load_for_types(self, node: NodeProto, types: list[TypeProto], run_params: dict[str, Any]) -> op_run.OpRun:
        with self._nesting():
            return self._with_defaults(self._load_impl(node, types)(node, run_params), run_params)

    def _load_impl(self, node: NodeProto, input_types: Any = None) -> Any:
        """What makes the implementation of a node out of the node and onnx's ``run_params``."""
        domain = canonical_domain(node.domain)
        if domain not in self.opsets_:
            raise EvaluationError(f"Domain {node.domain!r} (node type: {node.op_type!r}) is not specified. Known opsets: {self.opsets_!r}.")
        if (domain, node.op_type) not in self.new_ops_:
            own = self._own_implementation(domain, node.op_type)
            if own is not None:
                return own
            if not onnx.defs.has(node.op_type, domain):  # a function named like a standard operator does not replace it
                function = self._function_table.find(domain, node.op_type, node.overload)
                if function is not None:
                    return functools.partial(OpFunction, impl=function)
                if (domain, node.op_type) in self.functions_:
                    raise UnsupportedError(f"the function {node.op_type!r} of domain {domain!r} has no overload {node.overload!r}")
            elif signature_of(domain, node.op_type, self.opsets_[domain]) is None:  # for which onnx.reference takes a later version
                text = f"the operator does not exist at opset {self.opsets_[domain]}"
                raise UnsupportedError(text, op_type=node.op_type, node_name=node_label(node))
        try:
            return super()._load_impl(node, input_types)
        except NotImplementedError as error:
            text = f"nobody implements this operator of domain {domain!r}"
            raise UnsupportedError(text, op_type=node.op_type, node_name=node_label(node)) from error

    def _own_implementation(self, domain: str, op_type: str) -> Callable[..., op_run.OpRun] | None:
        """What makes a node of an operator that numbaops implements; looked up once for all nodes of an operator."""
        if (domain, op_type) not in self._implementations:
            signature = signature_of(domain, op_type, self.opsets_[domain])
            flow = control_flow(op_type, signature.since_version) if signature is not None and domain == "" else None
            made: Callable[..., op_run.OpRun] | None
            if flow is not None and signature is not None:
                made = functools.partial(flow, build=self._nested_evaluator, since_version=signature.since_version)
            else:
                read = self.retrieve_external_data
                made = own_implementation(domain, op_type, self.opsets_[domain], check_types=self.strict, read_external=read)
            self._implementations[domain, op_type] = made
        return self._implementations[domain, op_type]

    @functools.cached_property
    def steps(self) -> list[Step]:
        opsets = self.opsets_
        steps = [make_step(node, opsets.get(node.domain), check_types=self.strict) for node in self.rt_nodes_]
        check_unique(steps, {*self.input_names_, *self.rt_inits_})
        return steps

    def step_of(self, node: NodeProto) -> Step:
        """A node that is none of this graph, made ready with the opsets, functions and external data of this graph."""
        with self._nesting():
            loaded = self._load_node(canonical_node(node), self._run_params)
        return make_step(loaded, self.opsets_.get(canonical_domain(node.domain)), check_types=self.strict)

    @functools.cached_property
    def captured(self) -> tuple[str, ...]:
        """Names of values that the graph takes without declaring them: those of the graph around it. A function sees none."""
        if isinstance(self.proto_, FunctionProto):
            return ()
        known = {*self.input_names_, *self.rt_inits_, *(name for step in self.steps for name in step.outputs)}
        taken = [*(name for step in self.steps for name in (*step.inputs, *step.captured)), *self.output_names_]
        return tuple(dict.fromkeys(name for name in taken if name and name not in known))

    def uses(self, name: str) -> bool:
        """Whether a node takes the value of that name, or it is an output."""
        return name in self.output_names_ or any(name in step.inputs or name in step.captured for step in self.steps)

    @functools.cached_property
    def foreign(self) -> bool:
        """Whether code of others runs in it, which may write into inputs."""
        return any(step.fast.foreign for step in self.steps)

    @functools.cached_property
    def given(self) -> bool:
        """Whether code of the caller runs in it, which may do anything."""
        return any(step.fast.given for step in self.steps)

    @functools.cached_property
    def pure(self) -> bool:
        """Whether it gives the same for the same inputs, and does nothing else."""
        return all(step.fast.pure for step in self.steps)

    def specialised(self, given: Mapping[str, AttributeProto]) -> Self:
        """This function with attributes filled in, which runs with no attributes.

        Args:
            given: the attributes that a call gives. Where one is missing, the function's own default applies; where there
                is none either, the nodes that refer to it do without.
        """
        if not self._references:
            return self
        defaults = {each.name: each for each in self.proto_.attribute_proto} if isinstance(self.proto_, FunctionProto) else {}
        attributes = {name: each for name, each in {**defaults, **given}.items() if name in self._references}
        key = repr([(name, attributes[name].SerializeToString(deterministic=True)) for name in sorted(attributes)]).encode()
        found = self._specialised.get(key)
        if found is None:
            if len(self._specialised) >= _MOST_SPECIALISED:
                self._specialised.clear()
            body = type(self.proto_)()
            body.CopyFrom(self.proto_)
            if isinstance(body, FunctionProto):
                del body.attribute[:]
                del body.attribute_proto[:]
            substitute(nodes_of(body), attributes)
            found = self._nested_evaluator(body)
            found._nested = self._nested
            self._specialised[key] = found
        return found

    def specialised_from_values(self, attributes: Mapping[str, Any]) -> Self:
        """The same with attributes as values, as ``run(attributes=...)`` takes them."""
        return self.specialised(
            {
                name: attribute_from_value(name, value, self._references[name])
                for name, value in attributes.items()
                if name in self._references and value is not None
            }
        )


def _new_ops(classes: Sequence[type[op_run.OpRun]]) -> dict[tuple[str, str], type[op_run.OpRun]]:
    found: dict[tuple[str, str], type[op_run.OpRun]] = {}
    for each in classes:
        if not hasattr(each, "op_domain"):
            raise AttributeError(f"Class {each} must define attribute 'op_domain'.")
        if not issubclass(each, op_run.OpRun):
            raise TypeError(f"Class {each} must inherit from OpRun (in new_ops).")
        # of several for one operator, the first counts
        found.setdefault((canonical_domain(each.op_domain), each.__name__), each)
    return found
