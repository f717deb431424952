"""Pools of the sizes that networks have, by numbaops and ONNX Runtime, each with a model of one node; and by the NumPy way of numbaops.

ONNX Runtime does not spin between runs: its idle threads would slow down whoever comes next.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .common import Comparison, Thunk, compare, set_threads
from .peers.evaluators import EVALUATORS

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 21
IR_VERSION = 10

SAME = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "64x112x112 k3 s2": ((1, 64, 112, 112), {**SAME, "strides": [2, 2]}),
    "64x112x112 k2 s2": ((1, 64, 112, 112), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "480x28x28 k3": ((1, 480, 28, 28), SAME),
    "256x14x14 k3": ((1, 256, 14, 14), SAME),
    "512x20x20 k13": ((1, 512, 20, 20), {"kernel_shape": [13, 13], "pads": [6, 6, 6, 6]}),
    "1024x7x7 k7": ((1, 1024, 7, 7), {"kernel_shape": [7, 7]}),
    "16x8x8 k3": ((1, 16, 8, 8), SAME),
    "32x16x28x28 k3": ((1, 32, 16, 28, 28), {"kernel_shape": [3, 3, 3], "pads": [1] * 6}),
}
"""By name: the input's shape, and attributes."""
OPERATORS = ["MaxPool", "MaxPool with Indices", "AveragePool", "LpPool"]
PLANES = {"1024x7x7": (1, 1024, 7, 7), "2048x14x14": (1, 2048, 14, 14), "64x112x112": (1, 64, 112, 112)}


@dataclass(frozen=True)
class Case:
    """What is computed.

    Attributes:
        operator: one of ``OPERATORS``, or ``"GlobalMaxPool"`` or ``"GlobalAveragePool"``.
        windows: a key of :data:`WINDOWS`, or of :data:`PLANES` for a global pool.
        threads: for numbaops and ONNX Runtime.
    """

    operator: str
    windows: str
    threads: int = 1

    @property
    def model(self) -> ModelProto:
        from onnx import TensorProto, helper

        shape, attributes = (PLANES[self.windows], {}) if self.windows in PLANES else WINDOWS[self.windows]
        name, _, indices = self.operator.partition(" with ")
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
        results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        results += [helper.make_tensor_value_info("places", TensorProto.INT64, None)] if indices else []
        node = helper.make_node(name, ["x"], [result.name for result in results], **attributes)
        graph = helper.make_graph([node], "one_node", [given], results)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    @property
    def feeds(self) -> dict[str, Any]:
        shape = PLANES[self.windows] if self.windows in PLANES else WINDOWS[self.windows][0]
        return {"x": np.random.default_rng(7).normal(size=shape).astype(np.float32)}


def build(case: Case, implementation: str) -> Thunk:
    """The call to time, warmed up.

    Raises:
        NotImplementedError: the implementation cannot do it; in ``setup`` asv takes it as a skip.
    """
    set_threads(case.threads)
    thunk = IMPLEMENTATIONS[implementation](case)
    thunk()
    return thunk


def _numbaops(case: Case) -> Thunk:
    return EVALUATORS["numbaops_evaluator"](case.model, case.feeds, case.threads)


def _numpy_way(case: Case) -> Thunk:
    """What numbaops does with small arrays."""
    from numbaops.ops import pooling

    run = _numbaops(case)

    def call() -> Any:
        before, pooling.JIT_FROM = pooling.JIT_FROM, 1 << 60
        try:
            return run()
        finally:
            pooling.JIT_FROM = before

    return call


def _onnxruntime(case: Case) -> Thunk:
    return EVALUATORS["onnxruntime"](case.model, case.feeds, case.threads)


IMPLEMENTATIONS: dict[str, Callable[[Case], Thunk]] = {"numbaops": _numbaops, "numpy_way": _numpy_way, "onnxruntime": _onnxruntime}


def measure(case: Case, rival: str, seconds: float = 1.0) -> Comparison:
    """Seconds a call of ours and of a rival, whose answers are compared first."""
    ours, other = build(case, "numbaops"), build(case, rival)
    for mine, theirs in zip(ours(), other(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    return compare(ours, other, seconds)


def comparisons(threads: int = 2) -> Iterator[tuple[str, str, Comparison]]:
    """What was measured, the rival and the measurement, for all there is."""
    cases = [Case(operator, windows, threads) for operator in OPERATORS for windows in WINDOWS]
    cases += [Case(operator, planes, threads) for operator in ("GlobalMaxPool", "GlobalAveragePool") for planes in PLANES]
    for case in cases:
        for rival in ("numpy_way", "onnxruntime"):
            try:
                yield f"{case.operator} {case.windows}", rival, measure(case, rival)
            except NotImplementedError:
                continue


class Pools:
    params = (OPERATORS, list(WINDOWS))
    param_names = ("operator", "windows")

    run: Thunk

    def setup(self, operator: str, windows: str) -> None:
        self.run = build(Case(operator, windows), "numbaops")

    def time_pool(self, operator: str, windows: str) -> None:
        self.run()


class GlobalPools:
    params = (["GlobalMaxPool", "GlobalAveragePool"], list(PLANES))
    param_names = ("operator", "planes")

    run: Thunk

    def setup(self, operator: str, planes: str) -> None:
        self.run = build(Case(operator, planes), "numbaops")

    def time_pool(self, operator: str, planes: str) -> None:
        self.run()


class PoolPeers:
    params = (["numpy_way", "onnxruntime"], ["MaxPool", "AveragePool"], list(WINDOWS))
    param_names = ("implementation", "operator", "windows")

    run: Thunk

    def setup(self, implementation: str, operator: str, windows: str) -> None:
        self.run = build(Case(operator, windows), implementation)

    def time_pool(self, implementation: str, operator: str, windows: str) -> None:
        self.run()


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m benchmarks.bench_pooling", description="Pools beside NumPy and ONNX Runtime").parse_args()
    for what, rival, comparison in comparisons():
        print(f"{what:32} {rival:12} {comparison.ours * 1e6:9.1f} us {comparison.rival * 1e6:9.1f} us {comparison.ratio:6.2f}")
