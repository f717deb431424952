"""One node made ready to run, and the two ways to run a list of them: by names, with somebody looking on, is here; the fast one in plan."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TypeProto
from onnx.reference.op_run import OpRun

from numbaops.engine.values import as_value, described, shared
from numbaops.errors import EvaluationError, NumbaopsError

if TYPE_CHECKING:
    from numbaops.engine.profile import Profile

Values = dict[str, Any]


@dataclass(slots=True)
class Fast:
    """How a plan calls a node.

    Attributes:
        function: takes the inputs, None for an absent one, and then the captured values; returns the output, or a tuple of outputs.
        single: it always returns the one output itself.
        arrays: what it returns are arrays already, no NumPy scalars.
        aliases: outputs may share memory with inputs, or with what the implementation keeps.
        pure: it gives the same for the same inputs and does nothing else, so that it may run once for all.
        ufunc: the NumPy function that it is, if it is one.
        foreign: code of others runs in it, which may write into inputs.
        given: code of the caller runs in it, which may do anything.
        renames: it gives its input as it is.
        elementwise: each element of the output depends on those at its place alone; inputs are stretched as NumPy does it.
        compound: it does what several nodes do; the step's node is only one of them.
        lazy: gives the same without the memory for it, for who only reads it.
        prepared: takes the inputs and captured values that are constant, and ``...`` for each other one; returns what to call in the
            place of ``function``, or None.
    """

    function: Callable[..., Any]
    single: bool = False
    arrays: bool = False
    aliases: bool = True
    pure: bool = False
    ufunc: np.ufunc | None = None
    foreign: bool = False
    given: bool = False
    renames: bool = False
    elementwise: bool = False
    compound: bool = False
    lazy: Callable[..., Any] | None = None
    prepared: Callable[..., Callable[..., Any] | None] | None = None


@dataclass(slots=True)
class Step:
    """One node, made ready.

    Attributes:
        node: the node's implementation, as it stands in ``rt_nodes_``.
        kind: who implements it: ``"numbaops"``, ``"function"``, ``"control flow"``, ``"onnx.reference"`` or ``"given"``.
        name: what to call the node in an error.
        since_version: of the operator, or None where there is no schema.
        inputs: names of the values it takes; ``""`` is an absent one.
        outputs: names of the values it gives; ``""`` is one that nobody wants.
        captured: names of the values around it that its bodies use.
        call: takes the input values, and ``context=`` if it has bodies; gives the output values.
        has_body: it runs graphs that see the values around it.
        binds_symbols: it passes the bindings of symbolic dimensions on to bodies.
        fast: how a plan calls it.
    """

    node: OpRun
    kind: str
    name: str
    since_version: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captured: tuple[str, ...]
    call: Callable[..., Sequence[Any]]
    has_body: bool
    binds_symbols: bool
    fast: Fast

    @property
    def op_type(self) -> str:
        return str(self.node.onnx_node.op_type)

    @property
    def label(self) -> str:
        """Operator and version."""
        domain = self.node.onnx_node.domain
        version = "" if self.since_version is None else f"-{self.since_version}"
        return f"{domain}.{self.op_type}{version}" if domain else f"{self.op_type}{version}"


def sole_takers(steps: Sequence[Step], live: Sequence[int], outputs: Iterable[str]) -> dict[str, int]:
    """For each value that one step alone takes, and nobody wants afterwards, the position of that step.

    Args:
        steps: all steps.
        live: the positions of those that run.
        outputs: names of the values that are wanted after them.
    """
    takers: dict[str, set[int]] = defaultdict(set)
    for position in live:
        for name in (*steps[position].inputs, *steps[position].captured):
            takers[name].add(position)
    for name in outputs:
        takers[name].add(-1)
    return {name: position for name, (position, *others) in takers.items() if not others and position >= 0}


class Watch:
    """Looks on while steps run: logs what happens, takes times, and checks values against the declared shapes.

    Args:
        log: the evaluator's ``_log``.
        types: the declared type of each value, as far as known.
        bindings: what the symbolic dimensions stand for so far; None to check no shapes.
        profile: where to note times, or None.
    """

    def __init__(
        self, log: Callable[..., None], types: Mapping[str, TypeProto] | None, bindings: Any, profile: Profile | None = None
    ) -> None:
        self._log = log
        self._types = types or {}
        self.bindings = bindings
        self._profile = profile

    def start(self, values: Values, initializers: Values, feeds: Mapping[str, Any]) -> None:
        """What is known before the first step."""
        for name, value in initializers.items():
            self._log(2, " +C %s: %s", name, value)
        for name, value in feeds.items():
            self._log(2, " +I %s: %s", name, value)
        self._check(values)

    def run(self, step: Step, inputs: Sequence[Any], values: Values) -> Sequence[Any]:
        """The outputs of a step."""
        self._log(1, "%s(%s) -> %s", step.node.op_type, step.node.input, step.node.output)
        options: dict[str, Any] = {"context": values} if step.has_body else {}
        if step.binds_symbols and self.bindings is not None:
            options["bindings"] = self.bindings
        call = functools.partial(step.call, *inputs, **options)
        outputs = call() if self._profile is None else self._profile.run(step, call)
        for name, value in zip(step.outputs, outputs, strict=False):
            self._log(2, " + %s: %s", name, value)
            self._check({name: value})
        return outputs

    def _check(self, values: Values) -> None:
        if self.bindings is None:
            return
        # onnx has this module since 1.23, and the evaluator lets nobody ask for it before
        from onnx.reference.shape_annotation_checker import check_value_against_type

        for name, value in values.items():
            if name in self._types:
                check_value_against_type(self._types[name], value, self.bindings, name)


def execute(steps: Sequence[Step], values: Values, watch: Watch | None = None) -> None:
    """Run the steps in order, reading from ``values`` and writing to it."""
    for step in steps:
        try:
            inputs = [values[name] for name in step.inputs]
        except KeyError as missing:
            raise missing_input(missing.args[0], step) from None
        try:
            if watch is not None:
                outputs = watch.run(step, inputs, values)
            elif step.has_body:
                outputs = step.call(*inputs, context=values)
            else:
                outputs = step.call(*inputs)
        except Exception as error:
            failure = located(error, step, inputs)
            try:
                raise failure from failure.__cause__
            finally:
                del failure  # no cycle of traceback and frame that would keep values alive
        # a foreign operator may give fewer outputs than the node names
        values.update((name, as_value(value)) for name, value in zip(step.outputs, outputs, strict=False) if name)


def missing_input(name: str, step: Step) -> EvaluationError:
    """The error for a value that a node takes and nobody gives."""
    return EvaluationError(
        f"Unable to find input {name!r}: nothing before this node computes it, and it is neither fed nor an initializer",
        op_type=step.op_type,
        since_version=step.since_version,
        node_name=step.name,
    )


def check_unique(steps: Sequence[Step], known: Iterable[str]) -> dict[str, int]:
    """By name, the position of the step that computes it.

    Args:
        steps: the steps.
        known: names of the values that are there before the first step.

    Raises:
        EvaluationError: two steps compute a value of one name, or a step computes a known one.
    """
    computed: dict[str, int] = {}
    for position, step in enumerate(steps):
        for name in filter(None, step.outputs):
            if name in computed or name in known:
                other = f"the node {steps[computed[name]].name!r}" if name in computed else "an input or initializer"
                raise invalid(step, f"computes {name!r}, as {other} does; a name may stand for one value only")
            computed[name] = position
    return computed


def invalid(step: Step, text: str) -> EvaluationError:
    """The error for a step that does not fit in with the others."""
    return EvaluationError(text, op_type=step.op_type, since_version=step.since_version, node_name=step.name)


_KINDS: tuple[type[Exception], ...] = (
    NotImplementedError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    ZeroDivisionError,
    OverflowError,
    MemoryError,
    AssertionError,
    NameError,
    ImportError,
    RuntimeError,
)


def _both(kind: type[Exception]) -> type[EvaluationError]:
    """``EvaluationError`` that whoever catches ``kind`` catches too."""
    if issubclass(EvaluationError, kind):
        return EvaluationError
    return type("EvaluationError", (EvaluationError, kind), {"__module__": EvaluationError.__module__, "__reduce__": _reduced})


def _reduced(error: EvaluationError) -> tuple[Any, ...]:
    kind = next(each for each in _KINDS if isinstance(error, each))
    return _rebuilt, (kind, error.args, {name: value for name, value in error.__dict__.items() if name != "__notes__"})


def _rebuilt(kind: type[Exception], args: tuple[Any, ...], fields: dict[str, Any]) -> EvaluationError:
    error = _ERRORS[kind](*args)
    error.__dict__.update(fields)
    return error


_ERRORS: dict[type[Exception], type[EvaluationError]] = {kind: _both(kind) for kind in _KINDS}


def located(error: Exception, step: Step, inputs: Sequence[Any]) -> Exception:
    """The error of a step, with the node and its inputs in its text; built-in errors keep their kind and become the cause."""
    if isinstance(error, NumbaopsError):
        if error.node_name is None:
            error.node_name = step.name
            error.op_type = error.op_type or step.op_type
            error.since_version = error.since_version or step.since_version
            error.args = (f"{error.args[0]} (inputs: {', '.join(map(described, inputs)) or 'none'})",)
        return error
    kind = type(error)
    if kind.__module__.partition(".")[0] == "numpy":  # of NumPy's own classes, the built-in one that they derive from
        kind = next((each for each in kind.__mro__ if each in _ERRORS), kind)
    if kind not in _ERRORS:  # somebody's own class: it stays what it is
        error.add_note(f"in node {step.name!r}, {step.label}, inputs: {', '.join(map(described, inputs)) or 'none'}")
        return error
    origin: BaseException = error
    while type(error).__module__ == "builtins" and origin.__cause__ is not None:  # OpRun puts a text of its own around what happened
        origin = origin.__cause__
    text = origin.args[0] if isinstance(origin, KeyError) and origin.args else origin
    found = _ERRORS[kind](
        f"{text} (inputs: {', '.join(map(described, inputs)) or 'none'})",
        op_type=step.op_type,
        since_version=step.since_version,
        node_name=step.name,
    )
    found.__cause__ = error
    return found


def keeping(call: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """For code that may keep the arrays that it returns: they are shared, so that the caller gets copies."""
    return lambda *inputs, **options: tuple([shared(value) for value in call(*inputs, **options)])
