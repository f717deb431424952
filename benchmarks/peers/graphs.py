"""Models: common operators as one node each, and small graphs in which the evaluator's own time counts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..common import Thunk
from .case import IR_VERSION, Array, Case, normal
from .evaluators import EVALUATORS

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
OPSET = 21
CHANNELS = 16
CHAIN = 1000
TRIPS = 1000
Model = tuple[onnx.ModelProto, dict[str, Any]]

_info = helper.make_tensor_value_info
_node = helper.make_node


def make_model(nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: Any) -> onnx.ModelProto:
    """A model of these nodes; constants become initializers."""
    initializers = [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "benchmark", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _one_node(op_type: str, *arrays: Array, constants: dict[str, Array] | None = None, **attributes: Any) -> Model:
    fed = {f"x{position}": array for position, array in enumerate(arrays)}
    inputs = [_info(name, FLOAT, list(array.shape)) for name, array in fed.items()]
    node = _node(op_type, [*fed, *(constants or {})], ["y"], **attributes)
    return make_model([node], inputs, [_info("y", FLOAT, None)], **(constants or {})), fed


def _image(case: Case) -> Array:
    return normal((1, CHANNELS, *case.shape))


def _filters() -> Array:
    return normal((CHANNELS, CHANNELS, 3, 3), seed=1) / 12


NODES: dict[str, Callable[[Case], Model]] = {
    "Add": lambda case: _one_node("Add", normal(case.shape), normal(case.shape, 1)),
    "Softmax": lambda case: _one_node("Softmax", normal(case.shape)),
    "ReduceMean": lambda case: _one_node("ReduceMean", normal(case.shape), constants={"axes": np.array([1])}, keepdims=0),
    "MatMul": lambda case: _one_node("MatMul", normal(case.shape), constants={"w": normal(case.shape[::-1], 1)}),
    "Conv": lambda case: _one_node("Conv", _image(case), constants={"w": _filters()}, pads=[1, 1, 1, 1]),
    "MaxPool": lambda case: _one_node("MaxPool", _image(case), kernel_shape=[2, 2], strides=[2, 2]),
}
"""Common operators; weights are initializers."""


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
    model = make_model(nodes, [_info("x", FLOAT, ["a", "b"])], [_info("y", FLOAT, None)], first=[0], second=[1], two=np.float32(2))
    return model, {"x": np.zeros((4, 4), np.float32)}


def chain(length: int = CHAIN, shape: tuple[int, ...] = (4, 4)) -> Model:
    """So many additions, one after the other."""
    nodes = [_node("Add", [f"v{position}", "b"], [f"v{position + 1}"]) for position in range(length)]
    inputs = [_info("v0", FLOAT, list(shape)), _info("b", FLOAT, list(shape))]
    model = make_model(nodes, inputs, [_info(f"v{length}", FLOAT, None)])
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
    model = make_model(
        [outer],
        [_info("trips", INT64, []), _info("going_first", BOOL, []), _info("start", FLOAT, [4])],
        [_info("y", FLOAT, None)],
        one=np.float32(1),
        half=np.float32(0.5),
    )
    return model, {"trips": np.array(TRIPS), "going_first": np.array(True), "start": np.zeros(4, np.float32)}


GRAPHS: dict[str, Callable[[], Model]] = {
    "8-node shape subgraph": shape_subgraph,
    f"{CHAIN} Adds": chain,
    f"Loop of {TRIPS} x 5 nodes": loop,
}
"""Small graphs, whose sizes are their own."""


def _model(case: Case) -> Model:
    return GRAPHS[case.operation]() if case.operation in GRAPHS else NODES[case.operation](case)


def _evaluator(name: str, case: Case) -> Thunk:
    return EVALUATORS[name](*_model(case), case.threads)


def _numpy(case: Case) -> Thunk:
    model, fed = _model(case)
    arrays = [*fed.values(), *map(numpy_helper.to_array, model.graph.initializer)]
    return functools.partial(NUMPY[case.operation], *arrays)


def _softmax(x: Array) -> Array:
    y = np.exp(x - x.max(1, keepdims=True))
    y /= y.sum(1, keepdims=True)
    return y  # type: ignore[no-any-return]


def _max_pool(x: Array) -> Array:
    return np.maximum(np.maximum(x[..., ::2, ::2], x[..., ::2, 1::2]), np.maximum(x[..., 1::2, ::2], x[..., 1::2, 1::2]))


NUMPY: dict[str, Callable[..., Array]] = {
    "Add": np.add,
    "Softmax": _softmax,
    "ReduceMean": lambda x, axes: x.mean(1),
    "MatMul": np.matmul,
    "MaxPool": _max_pool,
}
"""What one would write."""


def _convolution(x: Array, w: Array) -> Array:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w, optimize=True)


def _loop() -> Array:
    state = np.zeros(4, np.float32)
    for _ in range(TRIPS):
        state = -((state + np.float32(1)) * np.float32(0.5) - np.float32(1))
    return state


def expected(case: Case) -> Array:
    if case.operation == "Conv":
        return _convolution(_image(case), _filters())
    if case.operation in NUMPY:
        return _numpy(case)()  # type: ignore[no-any-return]
    answers: dict[str, Callable[[], Array]] = {
        "8-node shape subgraph": lambda: 2 * (np.full((4, 4), 1.5, np.float32) + np.eye(4, dtype=np.float32)),
        f"{CHAIN} Adds": lambda: np.full((4, 4), CHAIN, np.float32),
        f"Loop of {TRIPS} x 5 nodes": _loop,
    }
    return answers[case.operation]()


_EVALUATORS: dict[str, Callable[[Case], Thunk]] = {name: functools.partial(_evaluator, name) for name in EVALUATORS}

PEERS: dict[str, dict[str, Callable[[Case], Thunk]]] = {
    **{name: {**_EVALUATORS, **({"numpy": _numpy} if name in NUMPY else {})} for name in NODES},
    **dict.fromkeys(GRAPHS, _EVALUATORS),
}
