"""Time by operator type."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx.reference.op_run import OpRun

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
    watch = _Stopwatch()

    class Profiled(ReferenceEvaluator):
        """Its bodies and functions are of this class too, so one stopwatch sees all nodes."""

        def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Callable[[onnx.NodeProto, Any], OpRun]:
            make = super()._load_impl(node, input_types)
            return lambda *args: watch.timed(make(*args))

    evaluator = Profiled(model)
    watch.reset()  # constants may have been folded
    evaluator.run(None, dict(feeds))
    total = sum(watch.seconds.values()) or 1.0
    found = [OperatorTime(name, watch.calls[name], taken, taken / total) for name, taken in watch.seconds.items()]
    return sorted(found, key=lambda one: one.seconds, reverse=True)


class _Stopwatch:
    """Adds up the time of calls by name; time in an inner call does not count for the outer one."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._inner = 0.0

    def timed(self, node: Any) -> OpRun:
        """The node, whose runs are timed from now on."""
        name = f"{node.onnx_node.domain}.{node.op_type}".lstrip(".")
        for method in ("run", "evaluate"):  # numbaops calls "evaluate" where a node has it
            if hasattr(node, method):
                setattr(node, method, self._around(name, getattr(node, method)))
        return node  # type: ignore[no-any-return]

    def _around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            outer, self._inner = self._inner, 0.0
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.perf_counter() - started
                self.seconds[name] = self.seconds.get(name, 0.0) + taken - self._inner
                self.calls[name] = self.calls.get(name, 0) + 1
                self._inner = outer + taken

        return timed
