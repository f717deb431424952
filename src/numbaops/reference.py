"""The drop-in for ``onnx.reference.ReferenceEvaluator``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx.reference
from onnx import FunctionProto, TensorProto
from onnx.reference import op_run

from numbaops.convert import as_strings, refuse_mask
from numbaops.engine import feeds as _feeds
from numbaops.engine.compat import symbol_bindings
from numbaops.engine.explain import explained
from numbaops.engine.graph import LoadedGraph
from numbaops.engine.load import InvalidModelError, Source
from numbaops.engine.passes import Passes
from numbaops.engine.plan import Budget, Plan
from numbaops.engine.profile import NodeProfile, Profile
from numbaops.engine.steps import Watch, execute
from numbaops.engine.values import find_outputs, handed_over, shared, written
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError

__all__ = ["InvalidModelError", "ReferenceEvaluator"]

_MOST_PLANS = 64
"""Plans kept for other outputs than the graph's, or for initializers that were fed."""

FOLD_BUDGET = 1 << 26
"""Bytes that values computed once for all runs may hold, by default."""

_DEFAULTS = {
    "verbose": 0,
    "check_shape_annotations": False,
    "strict": False,
    "optimized": True,
    "fold_budget": FOLD_BUDGET,
    "profile": False,
    "exact": False,
    "without": (),
}


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ReferenceEvaluator(LoadedGraph):
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
        strict: check the proto with ``onnx.checker``, feeds and results against what the graph declares, and element types against the
            operators' versions.
        optimized: nothing: onnx older than 1.23 has it for its convolution, and numbaops has one of its own.
        fold_budget: bytes that values may hold which depend on constants only; what fits is computed in the first run, once for all.
        profile: note the time and the bytes of every node, for :meth:`profile`.
        exact: give each node's own result to the bit. Otherwise what scales and shifts the channels of a convolution may go into its
            weights, 16-bit floats may be rounded once for several nodes, and functions such as tanh may differ in the last digit
            between arrays of different sizes.
        without: passes that plans leave out, of ``fold``, ``share``, ``fuse``, ``chain``, ``shapes`` and ``in_place``; to find out what
            one of them does.

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
        exact: bool = False,
        without: Collection[str] = (),
    ) -> None:
        given = set(self.__dict__)  # by a subclass, before it called this
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
            "exact": exact,
            "without": without,
        }
        if not isinstance(fold_budget, (int, np.integer)) or isinstance(fold_budget, bool) or fold_budget < 0:
            raise InvalidValueError(f"fold_budget is {fold_budget!r}; allowed: an integer from 0 on", attribute="fold_budget")
        self.check_shape_annotations_ = check_shape_annotations
        if check_shape_annotations:
            symbol_bindings()
        budget, times = Budget(int(fold_budget)), Profile() if profile else None
        loading: dict[str, Any] = {"verbose": verbose, "strict": strict, "budget": budget, "profile": times}
        loading["passes"] = Passes.of(without, exact)
        super().__init__(proto, opsets, functions, new_ops or (), **loading)
        self._prepare()
        self._own_fields = frozenset((*self.__dict__, *_COMPUTED, "_own_fields")) - given

    def _prepare(self) -> None:
        """What runs ask for again and again."""
        inputs = [name for name in self.input_names_ if name]
        self._required = tuple(name for name in inputs if name not in self.rt_inits_)
        self._is_function = isinstance(self.proto_, FunctionProto) or bool(self._references)
        declared = zip(self.input_names_, self.input_types_ or (), strict=False)
        self._texts = tuple(name for name, each in declared if each.tensor_type.elem_type == TensorProto.STRING)
        logs = type(self)._log is not ReferenceEvaluator._log  # a subclass wants to know
        self._always_watched = logs or self._profile is not None or self.check_shape_annotations_
        self._plans: dict[tuple[tuple[str, ...], tuple[str, ...]], Plan] = {}
        self._default_plan: Plan | None = None

    def _plan(self, outputs: tuple[str, ...], given: tuple[str, ...]) -> Plan:
        """The plan for wanted outputs, of which ``given`` are inputs beside the required ones."""
        plan = self._plans.get((outputs, given))
        if plan is None:
            constants = {name: value for name, value in self.rt_inits_.items() if name not in given}
            inputs, texts = (*self._required, *given), self._texts
            options: Any = {"budget": self._budget, "graph": not self._nested, "texts": texts, "passes": self._passes}
            plan = Plan(self.steps, inputs, outputs, constants, **options)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[outputs, given] = plan
        return plan

    def body(self, often: bool = True, known: Mapping[str, Any] = _NOTHING) -> Callable[..., Sequence[Any]]:
        """What runs this graph as part of another: it takes the captured values, then the inputs in order, but for those that are known.

        Args:
            often: whether it is called many times in a run.
            known: values that never change.
        """
        names = [name for name in (*self.captured, *self.input_names_) if name not in known]
        if type(self).run is not ReferenceEvaluator.run:  # a subclass wants to see each run
            return lambda *values: self.run(None, {**known, **dict(zip(names, values, strict=True))}, {})
        plan = self._body_plan(names, known) if known else self.body_plan
        return plan.plain if often else plan.called

    @functools.cached_property
    def body_plan(self) -> Plan:
        return self._body_plan((*self.captured, *self.input_names_), {})

    def _body_plan(self, names: Sequence[str], known: Mapping[str, Any]) -> Plan:
        constants = {name: value for name, value in self.rt_inits_.items() if name not in self.input_names_}
        return Plan(self.steps, names, self.output_names_, {**constants, **known}, budget=self._budget, graph=False, passes=self._passes)

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
        if self._external:
            self._external.check()
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
                body = self.specialised_from_values(attributes or {})
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
        if self.strict and not self._nested:
            self._check_results(values)

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
        if self.strict:
            self._check_results(dict(zip(outputs, results, strict=True)))
        return results

    def _check_results(self, values: Mapping[str, Any]) -> None:
        """Check values that are outputs against what the graph declares of them."""
        for name, declared in zip(self.output_names_, self.output_types_ or (), strict=False):
            if name in values:
                _feeds.check_declared(f"output {name!r}", values[name], declared)

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
            value = list(value) if isinstance(value, tuple) else value
            if isinstance(value, list) and declared is not None and declared.HasField("tensor_type"):
                raise InvalidTypeError(f"input {name!r} is a {type(value).__name__}; declared: a tensor, given as a NumPy array")
            if self.strict and declared is not None:
                _feeds.check_declared(f"input {name!r}", value, declared)
            plain[name] = _plain(name, value)
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

        A node is *folded* if it is computed in the first run, once for all, *unused* if no output needs it, *renamed* if who takes its
        output takes its input; *in place* if it may write into an input; *frees* names the values whose last use it is.
        """
        self._external.check()
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
        return _rebuilt, (type(self), self.container_ or Source(self.proto_, self._external), arguments, more)


def _plain(name: str, value: Any) -> Any:
    """A fed value as operators expect it: plain arrays in the machine's byte order."""
    if isinstance(value, list):
        return [_plain(name, each) for each in value]
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    refuse_mask(value, f"input {name!r}")
    array = np.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


_COMPUTED = ("steps", "captured", "pure", "foreign", "given", "body_plan")


def _rebuilt(kind: type[ReferenceEvaluator], proto: Any, arguments: Mapping[str, Any], more: Mapping[str, Any]) -> ReferenceEvaluator:
    """A pickled evaluator; what a subclass added to it is restored without its ``__init__``, which may ask for more than is known."""
    new = object.__new__(kind)
    ReferenceEvaluator.__init__(new, proto, **arguments)
    new.__dict__.update(more)
    return new
