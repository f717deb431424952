"""The drop-in for ``onnx.reference.ReferenceEvaluator``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.reference
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto
from onnx.external_data_helper import uses_external_data
from onnx.model_container import ModelContainer
from onnx.reference import op_run

from numbaops.convert import as_strings
from numbaops.engine import feeds as _feeds
from numbaops.engine.calls import DeferredFunction, OpFunction, ReferringNode
from numbaops.engine.compat import symbol_bindings
from numbaops.engine.control_flow import control_flow
from numbaops.engine.explain import explained
from numbaops.engine.fallback import make_step
from numbaops.engine.functions import FunctionTable, attribute_from_value, nodes_of, references, substitute
from numbaops.engine.load import InvalidModelError, canonical_domain, canonical_node, folder_of, imports_of, load_proto
from numbaops.engine.nodes import Node, own_implementation, sparse_parts
from numbaops.engine.plan import Budget, Plan
from numbaops.engine.profile import NodeProfile, Profile
from numbaops.engine.signature import node_label, signature_of
from numbaops.engine.steps import Step, Watch, check_unique, execute
from numbaops.engine.values import find_outputs, handed_over, shared, written
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError, NumbaopsError, UnsupportedError
from numbaops.tensors import dense_from_sparse, to_array

__all__ = ["InvalidModelError", "ReferenceEvaluator"]

# The evaluator that is being built in this thread: those of its bodies and functions are built by code of onnx or of
# subclasses, which pass on what onnx knows of, and nothing else.
_enclosing: ContextVar[ReferenceEvaluator | None] = ContextVar("_enclosing", default=None)

_MOST_PLANS = 64
"""Plans kept for other outputs than the graph's, or for initializers that were fed."""

_MOST_SPECIALISED = 64
"""Function bodies kept for attributes that calls gave; those of a model's own calls are kept by their nodes too."""

FOLD_BUDGET = 1 << 26
"""Bytes that values computed once for all runs may hold, by default."""

_DEFAULTS = {
    "verbose": 0,
    "check_shape_annotations": False,
    "strict": False,
    "optimized": True,
    "fold_budget": FOLD_BUDGET,
    "profile": False,
}


class ReferenceEvaluator(onnx.reference.ReferenceEvaluator):
    """Evaluates an ONNX proto as ``onnx.reference.ReferenceEvaluator`` does, with the operators of numbaops in place.

    Outputs belong to the caller: they are writable, and share no memory with inputs, with each other or with the
    evaluator. One evaluator may run in many threads at once; it can be pickled and copied.

    Args:
        proto: a ModelProto, GraphProto, FunctionProto, NodeProto or ModelContainer; or a model file as a path, as bytes or
            as a file object. External data are found beside a file that has a path.
        opsets: opset version by domain; for a GraphProto, which has none, and only for that.
        functions: functions that the nodes may call; not for a ModelProto, which has its own.
        verbose: from 2 on, print nodes; from 3 on, values as well.
        new_ops: classes derived from ``onnx.reference.op_run.OpRun`` that implement operators; they come before all others.
        check_shape_annotations: check every value against its declared shape (onnx 1.23 or newer).
        strict: check feeds against the declared inputs, and element types against the operators' versions.
        optimized: nothing: onnx older than 1.23 has it for its convolution, and numbaops has one of its own.
        fold_budget: bytes that values may hold which depend on constants only; what fits is computed in the first run, once for all.
        profile: note the time and the bytes of every node, for :meth:`profile`.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidModelError: a file or bytes hold no ONNX model.
        NotImplementedError: an operator does not exist, or nobody implements it.
    """

    def __init__(
        self,
        proto: Any,
        opsets: dict[str, int] | None = None,
        functions: Sequence[onnx.reference.ReferenceEvaluator | FunctionProto] | None = None,
        verbose: int = 0,
        new_ops: Sequence[type[op_run.OpRun]] | None = None,
        check_shape_annotations: bool = False,
        *,
        strict: bool = False,
        optimized: bool = True,
        fold_budget: int = FOLD_BUDGET,
        profile: bool = False,
    ) -> None:
        # not the base's __init__: its parameters differ from version to version, and it builds functions in its own order
        self.proto_ = load_proto(proto)
        self._folder = folder_of(proto)
        self._arguments: dict[str, Any] = {
            "opsets": opsets,
            "functions": functions,
            "verbose": verbose,
            "new_ops": new_ops,
            "check_shape_annotations": check_shape_annotations,
            "strict": strict,
            "optimized": optimized,
            "fold_budget": fold_budget,
            "profile": profile,
        }
        if not isinstance(fold_budget, (int, np.integer)) or isinstance(fold_budget, bool) or fold_budget < 0:
            raise InvalidValueError(f"fold_budget is {fold_budget!r}; allowed: an integer from 0 on", attribute="fold_budget")
        self._budget = Budget(int(fold_budget))
        self._profile = Profile() if profile else None
        self.opsets_ = imports_of(self.proto_, opsets)
        if isinstance(self.proto_, ModelProto) and functions is not None:
            raise ValueError("functions must be None if proto is ModelProto.")
        self.verbose = verbose
        self.check_shape_annotations_ = check_shape_annotations
        if check_shape_annotations:
            symbol_bindings()
        self.container_ = proto if isinstance(proto, ModelContainer) else None
        self.strict = strict
        self.new_ops_ = _new_ops(new_ops or ())
        self._describe()

        parent = _enclosing.get()
        self._nested = parent is not None and isinstance(self.proto_, (GraphProto, FunctionProto))
        self.functions_: dict[tuple[str, str], onnx.reference.ReferenceEvaluator] = {}
        if parent is not None and self._nested:
            self.strict = strict or parent.strict
            self.container_ = parent.container_
            self._folder = parent._folder
            self._budget = parent._budget
            self._profile = parent._profile
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
        self._specialised: dict[bytes, ReferenceEvaluator] = {}
        self._implementations: dict[tuple[str, str], Callable[..., op_run.OpRun] | None] = {}
        self._init()
        self._prepare()
        self._own_fields = frozenset((*self.__dict__, *_COMPUTED, "_own_fields"))

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

    def _nested_evaluator(self, proto: GraphProto | FunctionProto) -> ReferenceEvaluator:
        with self._nesting():
            opsets = self.opsets_ if isinstance(proto, GraphProto) else None
            verbose = max(0, self.verbose - 2) if isinstance(proto, GraphProto) else self.verbose
            return type(self)(proto, opsets=opsets, verbose=verbose, new_ops=list(self.new_ops_.values()))

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
        run_params = {
            "log": lambda pattern, *args: self._log(10, pattern, *args),
            "opsets": self.opsets_,
            "verbose": self.verbose,
            "new_ops": self.new_ops_,
            "existing_functions": self.functions_.copy(),
            "evaluator_cls": self.__class__,
            "read_external": self.retrieve_external_data,
        }
        with self._nesting():
            self.rt_nodes_ = [self._load_node(canonical_node(node), run_params) for node in self.nodes_]

    def _initial(self, initializer: TensorProto | SparseTensorProto) -> Any:
        if isinstance(initializer, SparseTensorProto):
            parts = sparse_parts(initializer, self.retrieve_external_data)
            return dense_from_sparse(*parts) if isinstance(parts, tuple) else to_array(parts)
        return self.retrieve_external_data(initializer) if uses_external_data(initializer) else to_array(initializer)

    def retrieve_external_data(self, initializer: TensorProto) -> Any:
        """A tensor whose elements are in a ModelContainer, or in a file beside the model."""
        if self.container_ is not None:
            return super().retrieve_external_data(initializer)
        if self._folder is None:
            raise EvaluationError(
                f"tensor {initializer.name!r} is stored in another file, and the model came without a folder to look in; "
                "give the model's path, or load it with onnx.load"
            )
        return to_array(initializer, self._folder)

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
        try:
            return super()._load_impl(node, input_types)
        except NotImplementedError as error:
            opset = self.opsets_[domain]
            exists = onnx.defs.has(node.op_type, domain) and signature_of(domain, node.op_type, opset) is None
            text = f"the operator does not exist at opset {opset}" if exists else f"nobody implements this operator of domain {domain!r}"
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

    def _prepare(self) -> None:
        """Make the list of steps."""
        for node in self.rt_nodes_:
            if isinstance(node, Node):  # none of ours gives away what it keeps
                continue
            for name in getattr(node, "attributes_names_", ()):
                _protect(getattr(node, name, None))
            # where onnx's Constant keeps its value
            _protect(getattr(node, "cst", None))
        inputs = [name for name in self.input_names_ if name]
        self._required = tuple(name for name in inputs if name not in self.rt_inits_)
        self._is_function = isinstance(self.proto_, FunctionProto) or bool(self._references)
        declared = zip(self.input_names_, self.input_types_ or (), strict=False)
        self._texts = tuple(name for name, each in declared if each.tensor_type.elem_type == TensorProto.STRING)
        logs = type(self)._log is not ReferenceEvaluator._log  # a subclass wants to know
        self._always_watched = logs or self._profile is not None or self.check_shape_annotations_
        self._plans: dict[tuple[tuple[str, ...], tuple[str, ...]], Plan] = {}
        self._default_plan: Plan | None = None

    @functools.cached_property
    def steps(self) -> list[Step]:
        opsets = self.opsets_
        steps = [make_step(node, opsets.get(node.domain), check_types=self.strict) for node in self.rt_nodes_]
        check_unique(steps, {*self.input_names_, *self.rt_inits_})
        return steps

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

    def _plan(self, outputs: tuple[str, ...], given: tuple[str, ...]) -> Plan:
        """The plan for wanted outputs, of which ``given`` are inputs beside the required ones."""
        plan = self._plans.get((outputs, given))
        if plan is None:
            constants = {name: value for name, value in self.rt_inits_.items() if name not in given}
            inputs, texts = (*self._required, *given), self._texts
            plan = Plan(self.steps, inputs, outputs, constants, budget=self._budget, graph=not self._nested, texts=texts)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[outputs, given] = plan
        return plan

    def body(self, often: bool = True) -> Callable[..., Sequence[Any]]:
        """What runs this graph as part of another: it takes the captured values, then the inputs in order.

        Args:
            often: whether it is called many times in a run.
        """
        if type(self).run is not ReferenceEvaluator.run:  # a subclass wants to see each run
            names = (*self.captured, *self.input_names_)
            return lambda *values: self.run(None, dict(zip(names, values, strict=True)), {})
        return self.body_plan.plain if often else self.body_plan.called

    @functools.cached_property
    def body_plan(self) -> Plan:
        constants = {name: value for name, value in self.rt_inits_.items() if name not in self.input_names_}
        names = (*self.captured, *self.input_names_)
        return Plan(self.steps, names, self.output_names_, constants, budget=self._budget, graph=False)

    def specialised(self, given: Mapping[str, AttributeProto]) -> ReferenceEvaluator:
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
        if key not in self._specialised:
            if len(self._specialised) >= _MOST_SPECIALISED:
                self._specialised.clear()
            body = type(self.proto_)()
            body.CopyFrom(self.proto_)
            if isinstance(body, FunctionProto):
                del body.attribute[:]
                del body.attribute_proto[:]
            substitute(nodes_of(body), attributes)
            evaluator = self._nested_evaluator(body)
            evaluator._nested = self._nested
            self._specialised[key] = evaluator
        return self._specialised[key]

    def _specialised_from_values(self, attributes: Mapping[str, Any]) -> ReferenceEvaluator:
        return self.specialised(
            {
                name: attribute_from_value(name, value, self._references[name])
                for name, value in attributes.items()
                if name in self._references and value is not None
            }
        )

    def _log_arg(self, a: Any) -> Any:
        try:
            return super()._log_arg(a)
        except (TypeError, ValueError):
            # no minimum, as for some types of ml_dtypes
            return f"{a.dtype}:{a.shape}" if isinstance(a, np.ndarray) else repr(a)

    def run(
        self,
        output_names: Sequence[str] | None,
        feed_inputs: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        intermediate: bool = False,
        check_shape_annotations: bool | None = None,
        _bindings: Any = None,
        *,
        outputs: Sequence[Any] | Mapping[str, Any] | None = None,
    ) -> Any:
        """Evaluate.

        Args:
            output_names: names of the wanted values, also of intermediate ones; None for the graph's outputs.
            feed_inputs: the inputs by name; they are never modified.
            attributes: for a FunctionProto, its attributes by name.
            intermediate: return all values by name, instead of a list of outputs.
            check_shape_annotations: for this run, what the constructor's argument of this name says for all.
            outputs: arrays to write results into and to return in their place: one for each wanted value in order, or by name, None
                for a value that needs none. C-contiguous, of the result's dtype and shape; they may share memory with inputs. If one
                does not fit, none is written to.

        Returns:
            The wanted values in order: arrays, lists for sequences, None for an absent optional value; or all values by name.

        Raises:
            EvaluationError: an input is missing or misnamed, or there is no such output. Also an operator's own failure: the error is
                then of the operator's kind as well, e.g. a ValueError, and names node, operator version and inputs.
            NumbaopsError: an operator refuses its inputs, or one of ``outputs`` does not fit.
        """
        if outputs is not None:
            if intermediate:
                raise InvalidValueError("outputs and intermediate=True exclude each other", attribute="outputs")
            names = list(self.output_names_ if output_names is None else output_names)
            results = self.run(names, feed_inputs, attributes, False, check_shape_annotations, _bindings)
            return written(results, outputs, names)
        plan = None if output_names is not None or intermediate or self.verbose else self._default_plan
        if plan is not None and check_shape_annotations is None and _bindings is None:
            quick = plan.entry(feed_inputs)
            if quick is not None:
                return quick
        if self._is_function:
            if attributes is None and isinstance(self.proto_, FunctionProto):
                raise InvalidTypeError("attributes must be a dictionary, even an empty one, to run a FunctionProto")
            if self._references:
                body = self._specialised_from_values(attributes or {})
                return body.run(output_names, feed_inputs, {}, intermediate, check_shape_annotations, _bindings)

        check = self.check_shape_annotations_ if check_shape_annotations is None else check_shape_annotations
        watched = self._always_watched or self.verbose > 0 or check or _bindings is not None
        if not self._nested:
            feed_inputs = self._checked_feeds(feed_inputs)
            if not watched and not intermediate:
                return self._run_plan(tuple(self.output_names_ if output_names is None else output_names), feed_inputs)

        values = {"": None, **self.rt_inits_}
        if self._nested:
            values.update(feed_inputs)
            # what is fed here may be all that the graph around this one sees
            values.update((name, value) for name, value in self.rt_inits_.items() if name not in self.input_names_)
        else:
            values.update((name, shared(value)) for name, value in feed_inputs.items())
        watch = None
        if watched:
            bindings = _bindings if _bindings is not None else symbol_bindings() if check else None
            watch = Watch(self._log, self.all_types_, bindings, self._profile)
            watch.start(values, self.rt_inits_, feed_inputs)
        execute(self.steps, values, watch)

        if intermediate:
            return values if self._nested else self._all_values(values, feed_inputs)
        results = find_outputs(self.output_names_ if output_names is None else output_names, values)
        return results if self._nested else handed_over(results)

    def _run_plan(self, outputs: tuple[str, ...], feeds: Mapping[str, Any]) -> list[Any]:
        given = tuple(name for name in (*self.input_names_, *self.captured) if name in feeds and name not in self._required)
        plan = self._plan(outputs, given)
        if not (given or self.strict or self._is_function) and outputs == tuple(self.output_names_):
            self._default_plan = plan
        results: list[Any] = plan(*[self._as_text(name, feeds[name]) if name in self._texts else feeds[name] for name in plan.inputs])
        return results

    @staticmethod
    def _as_text(name: str, value: Any) -> Any:
        """Strings as objects: an array of a fixed width would cut longer ones that an operator writes into it."""
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "US":
            return value
        return as_strings(value.reshape(-1).tolist(), f"input {name!r}").reshape(value.shape)

    def _checked_feeds(self, feeds: Any) -> dict[str, Any]:
        """The fed values as plain arrays, once their names, and if strict their types, are known to be right."""
        if not isinstance(feeds, Mapping):
            raise InvalidTypeError(f"feed_inputs is a {type(feeds).__name__}; allowed: a dictionary of arrays by input name")
        _feeds.check_names(feeds, self.input_names_, self.rt_inits_, self._is_known)
        types = dict(zip(self.input_names_, self.input_types_ or (), strict=False))
        plain = {}
        for name, value in feeds.items():
            declared = types.get(name)
            if isinstance(value, (list, tuple)) and declared is not None and declared.HasField("tensor_type"):
                raise InvalidTypeError(f"input {name!r} is a {type(value).__name__}; declared: a tensor, given as a NumPy array")
            if self.strict and declared is not None:
                _feeds.check_declared(name, value, declared)
            plain[name] = np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else value
        return plain

    def _is_known(self, name: str) -> bool:
        """Whether the graph has a value of that name, also in its bodies."""
        return name in self.output_names_ or name in _feeds.names_in(self.nodes_)

    def _all_values(self, values: dict[str, Any], feeds: Mapping[str, Any]) -> dict[str, Any]:
        """All values for the caller: what was fed as it was fed, initializers read-only, the rest the caller's own."""
        fed = {name: feeds[name] for name in self.input_names_ if name in feeds}
        computed = [name for name in values if name not in fed and name not in self.rt_inits_]
        return {**values, **fed, **dict(zip(computed, handed_over([values[name] for name in computed]), strict=True))}

    def profile(self) -> list[NodeProfile]:
        """Time and bytes of every node that has run so far, also of those in bodies and functions, in the order of their first run.

        Raises:
            EvaluationError: the evaluator was made without ``profile=True``.
        """
        if self._profile is None:
            raise EvaluationError("there is no profile; make the evaluator with profile=True, then run it")
        return list(self._profile)

    def explain(self) -> str:
        """The plan as text: every node in order, who implements it, and what becomes of it and of its inputs.

        A node is *folded* if it was computed at load, *unused* if no output needs it; *in place* if it may write into an input;
        *frees* names the values whose last use it is.
        """
        plan = self._plan(tuple(self.output_names_), ()) if not self._nested else None
        return "\n".join(explained(self, plan))

    def __copy__(self) -> ReferenceEvaluator:
        # it shares all, which only grows; what a subclass added comes along
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = {name: value for name, value in self._arguments.items() if value != _DEFAULTS.get(name)}
        more = {name: value for name, value in self.__dict__.items() if name not in self._own_fields}
        return _rebuilt, (type(self), self.container_ or self.proto_, arguments, more)


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


def _protect(value: Any) -> None:
    """Make a tensor that a node holds read-only: outputs may be views of it."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False


_COMPUTED = ("steps", "captured", "pure", "foreign", "given", "body_plan")


def _rebuilt(kind: type[ReferenceEvaluator], proto: Any, arguments: Mapping[str, Any], more: Mapping[str, Any]) -> ReferenceEvaluator:
    """A pickled evaluator; what a subclass added to it is restored without its ``__init__``, which may ask for more than is known."""
    new = object.__new__(kind)
    ReferenceEvaluator.__init__(new, proto, **arguments)
    new.__dict__.update(more)
    return new
