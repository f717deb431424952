"""Nodes that onnx.reference or the caller's own classes run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx.defs import OpSchema
from onnx.reference import op_run
from onnx.reference.op_run import OpRun

from numbaops.dtypes import of_dtype
from numbaops.engine.calls import OpFunction, Specialisable
from numbaops.engine.nodes import LeafOperator, Node, OwnOperator
from numbaops.engine.signature import RANDOM, node_label, signature_of
from numbaops.engine.steps import Fast, Step, keeping
from numbaops.engine.values import copy_of
from numbaops.errors import InvalidTypeError, NumbaopsError


def make_step(node: OpRun, opset: int | None, *, check_types: bool) -> Step:
    """The step for a node's implementation.

    Args:
        node: the implementation.
        opset: the opset of the node's domain.
        check_types: refuse inputs of element types that the operator version lacks.
    """
    proto = node.onnx_node
    signature = signature_of(proto.domain, proto.op_type, opset)
    since_version = getattr(node, "since_version", None) or (signature.since_version if signature is not None else None)
    call: Callable[..., Sequence[Any]]
    if isinstance(node, Node):
        kind, fast = node.kind, node.fast()
        call = node.run
        if isinstance(node, OpFunction) and not isinstance(node.impl_, Specialisable):
            kind, call = "given", keeping(call)
    else:
        kind = "onnx.reference" if type(node).__module__.partition(".")[0] == "onnx" else "given"
        call = keeping(_guarded(node))
        pure = kind == "onnx.reference" and proto.op_type not in RANDOM and not node.need_context() and not _trains(proto)
        fast = Fast(call, pure=pure, foreign=True, given=kind == "given")
    has_body = node.need_context()
    captured: tuple[str, ...] = getattr(node, "captured", ())
    if has_body and not isinstance(node, Node):
        captured = _captured_by(node)
        fast = Fast(_with_context(call, len(proto.input), captured), foreign=True, given=kind == "given")
    if check_types and signature is not None and not isinstance(node, OwnOperator):
        check = _type_check(signature.schema, len(proto.input))
        call = _checked(check, call)
        fast = replace(fast, function=_checked(check, fast.function), ufunc=None, renames=False, elementwise=False, prepared=None)
    inputs = tuple(proto.input)
    if isinstance(node, (LeafOperator, OwnOperator)):
        while inputs and not inputs[-1]:  # an absent input at the end, even one more than there are
            inputs = inputs[:-1]
    return Step(
        node=node,
        kind=kind,
        name=node_label(proto),
        since_version=since_version,
        inputs=inputs,
        outputs=tuple(proto.output),
        captured=captured,
        call=call,
        has_body=has_body,
        binds_symbols=has_body or isinstance(node, op_run.OpFunction),
        fast=fast,
    )


def _trains(node: Any) -> bool:
    return bool(node.op_type == "Dropout" and (len(node.input) > 2 or len(node.output) > 1))


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
            return run(*map(copy_of, inputs), **options)
        except TypeError as error:
            # OpRun.run, and some operators, hide what happened in a body behind a TypeError of their own
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, NumbaopsError):
                cause = cause.__cause__
            if cause is None:
                raise
            raise cause from cause.__cause__

    return call


def _captured_by(node: OpRun) -> tuple[str, ...]:
    """The outer values that the bodies of a foreign operator use; whoever built them, their evaluators are ours or onnx's."""
    names: dict[str, None] = {}
    for attribute in node.onnx_node.attribute:
        body: Any = getattr(node, attribute.name, None)
        if hasattr(body, "captured"):
            names.update(dict.fromkeys(body.captured))
        elif hasattr(body, "proto_"):
            names.update(dict.fromkeys(OpRun.implicit_inputs(body.proto_)))
    return tuple(names)


def _with_context(call: Callable[..., Sequence[Any]], count: int, captured: Sequence[str]) -> Callable[..., Sequence[Any]]:
    def function(*values: Any) -> Sequence[Any]:
        return tuple(call(*values[:count], context=dict(zip(captured, values[count:], strict=True))))

    return function


def _checked(check: Callable[[Sequence[Any]], None], call: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*values: Any, **options: Any) -> Any:
        check(values)
        return call(*values, **options)

    return checked


def _type_check(schema: OpSchema, count: int) -> Callable[[Sequence[Any]], None]:
    """What raises if the element types of inputs are none that the operator version has, or differ where they must not."""
    allowed = {one.type_param_str: frozenset(one.allowed_type_strs) for one in schema.type_constraints}
    formal = list(schema.inputs)
    variadic = bool(formal) and formal[-1].option == OpSchema.FormalParameterOption.Variadic
    parameters = [formal[min(position, len(formal) - 1)] for position in range(count if variadic else min(count, len(formal)))]

    def check(values: Sequence[Any]) -> None:
        bound: dict[str, str] = {}
        for value, parameter in zip(values, parameters, strict=False):
            if not isinstance(value, np.ndarray):
                continue
            kind = f"tensor({of_dtype(value.dtype)})"
            types = allowed.get(parameter.type_str, frozenset((parameter.type_str,)))
            if not any(each.startswith("tensor(") for each in types):
                continue
            if kind not in types:
                names = ", ".join(sorted(each.removeprefix("tensor(").removesuffix(")") for each in types))
                raise InvalidTypeError(
                    f"{parameter.name} has element type {of_dtype(value.dtype)}; this version allows {names}", attribute=parameter.name
                )
            if parameter.is_homogeneous and bound.setdefault(parameter.type_str, kind) != kind:
                other = bound[parameter.type_str].removeprefix("tensor(").removesuffix(")")
                raise InvalidTypeError(
                    f"{parameter.name} has element type {of_dtype(value.dtype)} and another input {other}; they must be equal",
                    attribute=parameter.name,
                )

    return check
