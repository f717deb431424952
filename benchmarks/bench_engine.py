"""What the evaluator adds to the operators: small graphs, loops, memory and load time, beside onnx.reference and ONNX Runtime.

:func:`rows` has the same as ratios for the table of :mod:`.acceptance`.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnx.reference
from onnx import helper

from .common import Comparison, Thunk, available_cpus, compare, interleave, set_threads
from .models import LIGHT, feeds_of
from .peers import Case, build
from .peers.evaluators import EVALUATORS, settle
from .peers.graphs import CHAIN, FLOAT, GRAPHS, TRIPS, chain, make_model


def rows() -> Iterator[tuple[str, str, float | None, Callable[[], Comparison]]]:
    """What is measured, the rival, the largest ratio that is good enough, and the measurement."""
    targets = {
        "8-node shape subgraph": (0.5, 0.06),
        f"{CHAIN} Adds": (1.0, None),
        f"Loop of {TRIPS} x 5 nodes": (1.0, 0.04),
    }
    for name, (runtime, reference) in targets.items():
        yield name, "ONNX Runtime", runtime, functools.partial(_beside, name, "onnxruntime")
        yield name, "onnx.reference", reference, functools.partial(_beside, name, "onnx_reference")
    for name in ("light_densenet121", "light_resnet50", "light_squeezenet"):
        yield f"load {name}", "onnx.reference", 1.0, functools.partial(_load, name)
    yield "peak memory, 30 Adds of 64 MB", "one tensor", 2.1, _peak
    yield "2 threads share an evaluator, per run", "1 thread", 1 / 1.7, _threads


def _beside(name: str, rival: str) -> Comparison:
    case = Case(name, (4, 4))
    return compare(build(case, "numbaops_evaluator"), build(case, rival))


def _load(name: str) -> Comparison:
    import numbaops

    model = onnx.load(LIGHT / f"{name}.onnx")
    return compare(functools.partial(numbaops.ReferenceEvaluator, model), functools.partial(onnx.reference.ReferenceEvaluator, model))


def _peak() -> Comparison:
    """Bytes at most in use beside the inputs, as a multiple of a tensor."""
    model, feeds = chain(30, (4096, 4096))
    run = EVALUATORS["numbaops_evaluator"](model, feeds, available_cpus())
    for _ in range(12):
        run()  # makes a variant for these shapes
    tracemalloc.start()
    try:
        run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    ratio = peak / feeds["b"].nbytes
    return Comparison(ratio, 1.0, ratio, 1)


def _threads() -> Comparison:
    """Seconds a run, with two threads and with one, of a model whose work releases the GIL."""
    if available_cpus() < 2:
        raise NotImplementedError("2 threads on 1 CPU")
    set_threads(1)
    names = [f"v{position}" for position in range(9)]
    nodes = [helper.make_node("Tanh", [before], [after]) for before, after in itertools.pairwise(names)]
    infos = helper.make_tensor_value_info("v0", FLOAT, [512, 512]), helper.make_tensor_value_info("v8", FLOAT, None)
    model = make_model(nodes, [infos[0]], [infos[1]])
    run = EVALUATORS["numbaops_evaluator"](model, {"v0": np.ones((512, 512), np.float32)}, 1)
    runs = 5

    def work() -> None:
        for _ in range(runs):
            run()

    def seconds(count: int) -> float:
        workers = [threading.Thread(target=work) for _ in range(count)]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return (time.perf_counter() - started) / (count * runs)

    return interleave(lambda: seconds(2), lambda: seconds(1), 4.0)


class Graphs:
    params = (["numbaops_evaluator", "onnx_reference", "onnxruntime"], list(GRAPHS))
    param_names = ("implementation", "graph")

    run: Thunk

    def setup(self, implementation: str, graph: str) -> None:
        self.run = build(Case(graph, (4, 4)), implementation)

    def time_run(self, implementation: str, graph: str) -> None:
        self.run()


class Load:
    def setup(self) -> None:
        self.model, self.feeds = chain()

    def time_load(self) -> None:
        from numbaops import ReferenceEvaluator

        ReferenceEvaluator(self.model)

    def time_load_and_run(self) -> None:
        EVALUATORS["numbaops_evaluator"](self.model, self.feeds, 1)()


class LightModels:
    """Whole networks; those of the onnx wheel, whose large weights are made by ConstantOfShape nodes."""

    params = (
        [
            "light_bvlc_alexnet",
            "light_densenet121",
            "light_inception_v1",
            "light_inception_v2",
            "light_resnet50",
            "light_shufflenet",
            "light_squeezenet",
            "light_vgg19",
            "light_zfnet512",
        ],
    )
    param_names = ("model",)
    timeout = 300

    run: Thunk

    def setup(self, model: str) -> None:
        self.model = onnx.load(LIGHT / f"{model}.onnx")
        self.feeds = feeds_of(self.model, model)
        self.run = EVALUATORS["numbaops_evaluator"](self.model, self.feeds, 1)
        settle(self.run)
        (answer,) = self.run()
        assert np.isfinite(answer).all()

    def time_load(self, model: str) -> None:
        from numbaops import ReferenceEvaluator

        ReferenceEvaluator(self.model)

    def time_run(self, model: str) -> None:
        self.run()


class LightModelsMemory:
    """Loading and a few runs, from a process that has only imported the libraries."""

    params = (["light_resnet50", "light_squeezenet"],)
    param_names = ("model",)

    def peakmem_load_and_run(self, model: str) -> None:
        path = LIGHT / f"{model}.onnx"
        run = EVALUATORS["numbaops_evaluator"](onnx.load(path), feeds_of(onnx.load(path), model), 1)
        for _ in range(3):
            run()
