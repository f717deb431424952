"""The list of steps that a graph becomes, and the loop that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TypeProto
from onnx.reference import op_run
from onnx.reference.op_run import OpRun

from numbaops.engine.leaf import OpFunction, OwnOperator, Specialisable, node_label
from numbaops.errors import EvaluationError, NumbaopsError

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One node, made ready.

    Attributes:
        node: the node's implementation, as it stands in ``rt_nodes_``.
        inputs: names of the values it takes; ``""`` is an absent one.
        outputs: names of the values it gives; ``""`` is one that nobody wants.
        only_output: the one name in ``outputs``, or ``""`` if there are more.
        call: takes the input values, gives the output values.
        has_body: it runs graphs that see the values around it.
        binds_symbols: it passes the bindings of symbolic dimensions on to bodies.
    """

    node: OpRun
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    only_output: str
    call: Callable[..., Sequence[Any]]
    has_body: bool
    binds_symbols: bool


def make_step(node: OpRun, verbose: bool) -> Step:
    """The step for a node's implementation, which tells about itself if ``verbose``."""
    call: Callable[..., Sequence[Any]]
    if isinstance(node, OwnOperator):
        call = node.run if verbose else node.evaluate
    elif isinstance(node, OpFunction):
        call = node.run
    else:
        call = _guarded(node)
    foreign_function = isinstance(node, OpFunction) and not isinstance(node.impl_, Specialisable)
    if foreign_function or type(node).__module__.partition(".")[0] not in ("onnx", "numbaops"):
        call = _keeping(call)
    has_body = node.need_context()
    outputs = tuple(node.output)
    only_output = outputs[0] if len(outputs) == 1 else ""
    return Step(node, tuple(node.input), outputs, only_output, call, has_body, has_body or isinstance(node, op_run.OpFunction))


def _guarded(node: OpRun) -> Callable[..., Sequence[Any]]:
    """A foreign operator, which may not know that its inputs are shared and that bodies are ours."""
    run: Callable[..., Sequence[Any]] = node.run

    def call(*inputs: Any, **options: Any) -> Sequence[Any]:
        try:
            return run(*inputs, **options)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            # it works in place: it gets arrays of its own
            return run(*[_copied(value) for value in inputs], **options)
        except TypeError as error:
            # OpRun.run, and some operators, hide what happened in a body behind a TypeError of their own
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, NumbaopsError):
                cause = cause.__cause__
            if cause is None:
                raise
            raise cause from cause.__cause__

    return call


def _keeping(call: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """For code that may keep the arrays that it returns: they are shared, so that the caller gets copies."""
    return lambda *inputs, **options: [shared(value) for value in call(*inputs, **options)]


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


class Watch:
    """Looks on while a plan runs: logs what happens, and checks values against the declared shapes.

    Args:
        log: the evaluator's ``_log``.
        types: the declared type of each value, as far as known.
        bindings: what the symbolic dimensions stand for so far; None to check no shapes.
    """

    def __init__(self, log: Callable[..., None], types: Mapping[str, TypeProto] | None, bindings: Any) -> None:
        self._log = log
        self._types = types or {}
        self.bindings = bindings

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
        outputs = step.call(*inputs, **options)
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
            raise _missing(missing.args[0], step.node) from None
        if watch is not None:
            outputs = watch.run(step, inputs, values)
        elif step.has_body:
            outputs = step.call(*inputs, context=values)
        else:
            outputs = step.call(*inputs)
        if step.only_output:
            values[step.only_output] = outputs[0]
        else:
            # a foreign operator may give fewer outputs than the node names
            values.update((name, value) for name, value in zip(step.outputs, outputs, strict=False) if name)


def _missing(name: str, node: OpRun) -> EvaluationError:
    return EvaluationError(
        f"Unable to find input {name!r}: nothing before this node computes it, and it is neither fed nor an initializer",
        op_type=node.op_type,
        node_name=node_label(node.onnx_node),
    )


def shared(value: Any) -> Any:
    """The value as everybody may see it: arrays read-only, the caller's own array left as it is."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.setflags(write=False)
        return view
    if isinstance(value, (list, tuple)):
        return [shared(each) for each in value]
    return value


def handed_over(values: list[Any]) -> list[Any]:
    """The values as the caller's own: arrays writable, and none sharing memory with another or with the evaluator.

    All that the evaluator shares, and all that was fed, is read-only inside a run, and so is every view of it.
    """
    if len(values) == 1 and type(values[0]) is np.ndarray and values[0].flags.writeable:
        return values
    given_away: dict[int, list[np.ndarray[Any, Any]]] = {}
    return [_own(value, given_away) for value in values]


def _own(value: Any, given_away: dict[int, list[np.ndarray[Any, Any]]]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_own(each, given_away) for each in value]
    if not isinstance(value, np.ndarray):
        return value
    if not value.flags.writeable:
        return value.copy()
    owner: Any = value
    while (base := getattr(owner, "base", None)) is not None:
        owner = base
    relatives = given_away.setdefault(id(owner), [])
    if any(np.may_share_memory(value, other) for other in relatives):
        return value.copy()
    relatives.append(value)
    return value


def find_outputs(names: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
    """The values of the given names.

    Raises:
        EvaluationError: there is no such value.
    """
    try:
        return [values[name] for name in names]
    except KeyError as missing:
        known = sorted(name for name in values if name)
        raise EvaluationError(f"Unable to find output name {missing.args[0]!r} in {known}") from None
