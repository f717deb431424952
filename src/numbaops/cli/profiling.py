"""Time by operator type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx

from numbaops.reference import ReferenceEvaluator


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """What one operator type took.

    Attributes:
        op_type: the operator, after its domain unless that is ONNX's own.
        calls: how often it ran.
        seconds: the time in it, without that of the nodes inside it, as an If, a Loop or a function has them.
        share: of the time in all operators.
    """

    op_type: str
    calls: int
    seconds: float
    share: float


def profile_run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[OperatorTime]:
    """Time every node in the second run of a model, for the first compiles; the operator that took longest comes first."""
    evaluator = ReferenceEvaluator(model, profile=True)
    evaluator.run(None, dict(feeds))
    first = _by_type(evaluator)
    evaluator.run(None, dict(feeds))
    second = {}
    for name, (calls, seconds) in _by_type(evaluator).items():
        calls_before, seconds_before = first.get(name, (0, 0.0))
        second[name] = calls - calls_before, seconds - seconds_before
    total = sum(seconds for _, seconds in second.values()) or 1.0
    found = [OperatorTime(name, calls, seconds, seconds / total) for name, (calls, seconds) in second.items() if calls]
    return sorted(found, key=lambda one: one.seconds, reverse=True)


def _by_type(evaluator: ReferenceEvaluator) -> dict[str, tuple[int, float]]:
    """Calls and seconds so far."""
    found: dict[str, tuple[int, float]] = {}
    for node in evaluator.profile():
        name = node.operator.rpartition("-")[0] or node.operator
        calls, seconds = found.get(name, (0, 0.0))
        found[name] = calls + node.calls, seconds + node.seconds
    return found
