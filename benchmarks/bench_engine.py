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
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .common import Comparison, Thunk, available_cpus, compare, interleave, set_threads
from .peers import check

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
CHAIN = 1000
TRIPS = 1000
Model = tuple[onnx.ModelProto, dict[str, Any]]

_info = helper.make_tensor_value_info
_node = helper.make_node


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: Any) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "benchmark", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def shape_subgraph() -> Model:
    """Eight nodes as exporters write them: sizes taken apart and put together, a constant and an identity made of them."""
    nodes = [
        _node("Shape", ["x"], ["sizes"]),
        _node("Gather", ["sizes", "first"], ["rows"]),
        _node("Gather", ["sizes", "second"], ["columns"]),
        _node("Concat", ["rows", "columns"], ["shape"], axis=0),
        _node("ConstantOfShape", ["shape"], ["filled"], value=numpy_helper.from_array(np.array([1.5], np.float32))),
        _node("EyeLike", ["filled"], ["eye"]),
        _node("Add", ["filled", "eye"], ["sum"]),
        _node("Mul", ["sum", "two"], ["y"]),
    ]
    model = _model(nodes, [_info("x", FLOAT, ["a", "b"])], [_info("y", FLOAT, None)], first=[0], second=[1], two=np.float32(2))
    return model, {"x": np.zeros((4, 4), np.float32)}


def chain(length: int = CHAIN, shape: tuple[int, ...] = (4, 4)) -> Model:
    """So many additions, one after the other."""
    nodes = [_node("Add", [f"v{position}", "b"], [f"v{position + 1}"]) for position in range(length)]
    inputs = [_info("v0", FLOAT, list(shape)), _info("b", FLOAT, list(shape))]
    model = _model(nodes, inputs, [_info(f"v{length}", FLOAT, None)])
    return model, {"v0": np.zeros(shape, np.float32), "b": np.ones(shape, np.float32)}


def loop() -> Model:
    """A Loop over a body of five nodes."""
    nodes = [
        _node("Add", ["state", "one"], ["t"]),
        _node("Mul", ["t", "half"], ["u"]),
        _node("Sub", ["u", "one"], ["v"]),
        _node("Neg", ["v"], ["next"]),
        _node("Identity", ["going"], ["on"]),
    ]
    inputs = [_info("number", INT64, []), _info("going", BOOL, []), _info("state", FLOAT, [4])]
    body = helper.make_graph(nodes, "body", inputs, [_info("on", BOOL, []), _info("next", FLOAT, [4])])
    outer = _node("Loop", ["trips", "going_first", "start"], ["y"], body=body)
    model = _model(
        [outer],
        [_info("trips", INT64, []), _info("going_first", BOOL, []), _info("start", FLOAT, [4])],
        [_info("y", FLOAT, None)],
        one=np.float32(1),
        half=np.float32(0.5),
    )
    return model, {"trips": np.array(TRIPS), "going_first": np.array(True), "start": np.zeros(4, np.float32)}


MODELS: dict[str, Callable[[], Model]] = {
    "8-node shape subgraph": shape_subgraph,
    f"{CHAIN} Adds": chain,
    f"Loop of {TRIPS} x 5 nodes": loop,
}


def evaluator(name: str, model: onnx.ModelProto, feeds: dict[str, Any]) -> Thunk:
    """A run of a model by one of the implementations, each with one thread."""
    if name == "numbaops":
        from numbaops import ReferenceEvaluator

        return functools.partial(ReferenceEvaluator(model).run, None, feeds)
    if name == "onnx_reference":
        import onnx.reference

        return functools.partial(onnx.reference.ReferenceEvaluator(model).run, None, feeds)
    try:
        import onnxruntime
    except ImportError as error:
        raise NotImplementedError("onnxruntime is not installed") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return functools.partial(session.run, None, feeds)


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
    set_threads(1)
    model, feeds = MODELS[name]()
    ours, theirs = evaluator("numbaops", model, feeds), evaluator(rival, model, feeds)
    check(ours()[0], theirs()[0])
    return compare(ours, theirs)


def _load(name: str) -> Comparison:
    import onnx.backend.test
    import onnx.reference

    import numbaops

    model = onnx.load(Path(onnx.backend.test.__file__).parent / "data" / "light" / f"{name}.onnx")
    return compare(functools.partial(numbaops.ReferenceEvaluator, model), functools.partial(onnx.reference.ReferenceEvaluator, model))


def _peak() -> Comparison:
    """Bytes at most in use beside the inputs, as a multiple of a tensor."""
    model, feeds = chain(30, (4096, 4096))
    run = evaluator("numbaops", model, feeds)
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
    nodes = [_node("Tanh", [before], [after]) for before, after in itertools.pairwise(names)]
    model = _model(nodes, [_info("v0", FLOAT, [512, 512])], [_info("v8", FLOAT, None)])
    run = evaluator("numbaops", model, {"v0": np.ones((512, 512), np.float32)})
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
    params = (["numbaops", "onnx_reference", "onnxruntime"], list(MODELS))
    param_names = ("implementation", "model")

    run: Thunk

    def setup(self, implementation: str, model: str) -> None:
        self.run = evaluator(implementation, *MODELS[model]())

    def time_run(self, implementation: str, model: str) -> None:
        self.run()


class Load:
    def setup(self) -> None:
        self.model, _ = chain()

    def time_load(self) -> None:
        from numbaops import ReferenceEvaluator

        ReferenceEvaluator(self.model)

    def time_load_and_run(self) -> None:
        evaluator("numbaops", *chain())()
