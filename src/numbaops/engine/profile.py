"""Time and bytes of nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbaops.engine.steps import Step


@dataclass(slots=True)
class NodeProfile:
    """What one node took over all runs.

    Attributes:
        name: of the node, or of the first value it computes.
        operator: domain, type and version.
        kind: who implements it: ``"numbaops"``, ``"function"``, ``"control flow"``, ``"onnx.reference"`` or ``"given"``.
        calls: how often it ran.
        seconds: in the node itself, without the nodes of its bodies or function.
        nbytes: of its outputs, over all calls.
    """

    name: str
    operator: str
    kind: str
    calls: int = 0
    seconds: float = 0.0
    nbytes: int = 0


class Profile:
    """Adds up time and bytes by node; time in an inner call does not count for the outer one."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[Step, NodeProfile]] = {}  # with the step, so that its id is no other's meanwhile
        self._lock = threading.Lock()
        self._local = threading.local()

    def __iter__(self) -> Iterator[NodeProfile]:
        return iter([found for _, found in list(self._nodes.values())])

    def run(self, step: Step, call: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """What ``call`` returns, which runs the step."""
        local = self._local
        outer, local.inner = getattr(local, "inner", 0.0), 0.0
        started = time.perf_counter()
        outputs: Sequence[Any] = ()
        try:
            outputs = call()
            return outputs
        finally:
            taken = time.perf_counter() - started
            with self._lock:
                _, found = self._nodes.setdefault(id(step), (step, NodeProfile(step.name, step.label, step.kind)))
                found.calls += 1
                found.seconds += taken - local.inner
                found.nbytes += sum(value.nbytes for value in outputs if isinstance(value, np.ndarray))
            local.inner = outer + taken
