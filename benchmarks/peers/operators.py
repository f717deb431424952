"""Constant, ConstantOfShape and EyeLike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common import Thunk
from .case import IR_VERSION, Array, Case, pattern
from .evaluators import EVALUATORS

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 22


def expected(case: Case) -> Array:
    if case.operation == "Constant":
        return pattern(case)
    if case.operation == "EyeLike":
        return np.eye(*case.shape, dtype=case.dtype)
    return np.full(case.shape, case.value, case.dtype)


def _attributes(case: Case) -> dict[str, Array]:
    if case.operation == "Constant":
        return {"value": pattern(case)}
    if case.operation == "ConstantOfShape":
        return {"value": np.full(1, case.value, case.dtype)}
    return {}


def _inputs(case: Case) -> list[Array]:
    if case.operation == "ConstantOfShape":
        return [np.array(case.shape, np.int64)]
    if case.operation == "EyeLike":
        return [np.zeros(case.shape, case.dtype)]
    return []


def _model(case: Case) -> tuple[ModelProto, dict[str, Array]]:
    """One node; the shape is an input of the graph, since a constant one would let a runtime compute the result at load."""
    from onnx import helper

    from numbaops import element_type, from_array

    feeds = {f"input{i}": array for i, array in enumerate(_inputs(case))}
    attributes = {name: from_array(array) for name, array in _attributes(case).items()}
    node = helper.make_node(case.operation, list(feeds), ["output"], **attributes)
    inputs = [helper.make_tensor_value_info(name, element_type(array.dtype).code, [None] * array.ndim) for name, array in feeds.items()]
    output = helper.make_tensor_value_info("output", case.kind.code, [None, None])
    graph = helper.make_graph([node], "benchmark", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION), feeds


def _numbaops(case: Case) -> Thunk:
    import numbaops

    return functools.partial(numbaops.operator(case.operation, OPSET, **_attributes(case)), *_inputs(case))


def _numbaops_out(case: Case) -> Thunk:
    return functools.partial(_numbaops(case), out=np.empty(case.shape, case.dtype))


def _evaluator(name: str, case: Case) -> Thunk:
    return EVALUATORS[name](*_model(case), case.threads)


def _numpy_constant(case: Case) -> Thunk:
    return pattern(case).copy


def _numpy_full(case: Case) -> Thunk:
    return functools.partial(np.full, case.shape, case.dtype.type(case.value), case.dtype)


def _numpy_eye(case: Case) -> Thunk:
    rows, columns = case.shape
    return functools.partial(np.eye, rows, columns, 0, case.dtype)


def _as_word(value: float, dtype: np.dtype[Any]) -> Array:
    """``value`` as an unsigned integer of the same width."""
    if dtype.itemsize > 8:
        raise NotImplementedError(f"NumPy has no unsigned integer of {dtype.itemsize} bytes")
    return np.full(1, value, dtype).view(f"u{dtype.itemsize}")[0]  # type: ignore[no-any-return]


def _numpy_view_full(case: Case) -> Thunk:
    shape, dtype, word = case.shape, case.dtype, _as_word(case.value, case.dtype)
    if not word:
        return functools.partial(np.zeros, shape, dtype)

    def full() -> Array:
        out = np.empty(shape, dtype)
        out.view(word.dtype).fill(word)
        return out

    return full


def _numpy_view_eye(case: Case) -> Thunk:
    shape, dtype, word = case.shape, case.dtype, _as_word(1, case.dtype)
    columns = shape[1]

    def eye() -> Array:
        out = np.zeros(shape, dtype)
        out.view(word.dtype).reshape(-1)[: columns * columns : columns + 1] = word
        return out

    return eye


_ALL: dict[str, Callable[[Case], Thunk]] = {
    "numbaops": _numbaops,
    "numbaops_out": _numbaops_out,
    **{name: functools.partial(_evaluator, name) for name in EVALUATORS},
}

PEERS: dict[str, dict[str, Callable[[Case], Thunk]]] = {
    "Constant": {**_ALL, "numpy": _numpy_constant},
    "ConstantOfShape": {**_ALL, "numpy": _numpy_full, "numpy_view": _numpy_view_full},
    "EyeLike": {**_ALL, "numpy": _numpy_eye, "numpy_view": _numpy_view_eye},
}
