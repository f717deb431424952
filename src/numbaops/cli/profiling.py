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
    """Run a model once, with every node timed; the operator that took longest comes first."""
    evaluator = ReferenceEvaluator(model, profile=True)
    evaluator.run(None, dict(feeds))
    calls: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for node in evaluator.profile():
        name = node.operator.rpartition("-")[0] or node.operator
        calls[name] = calls.get(name, 0) + node.calls
        seconds[name] = seconds.get(name, 0.0) + node.seconds
    total = sum(seconds.values()) or 1.0
    found = [OperatorTime(name, calls[name], taken, taken / total) for name, taken in seconds.items()]
    return sorted(found, key=lambda one: one.seconds, reverse=True)
