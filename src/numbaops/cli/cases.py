"""What ``numbaops bench`` measures: cases, each with the ways to do it.

Among them are those where others are faster. Every way makes its result anew, allocation included; small shapes show what a call costs,
large ones what the work does. All give the same answer, which is checked before anything is timed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnx.reference

import numbaops
from numbaops.cli.compare import onnxruntime_session
from numbaops.dtypes import BY_NAME
from numbaops.runtime.threads import thread_count

Thunk = Callable[[], Any]
Ways = dict[str, Callable[[], Thunk]]
"""By the name of who does it: what sets it up and gives the call to time."""

OURS = "numbaops"
PEERS = {"numpy": "n", "ml_dtypes": "m", "onnx.numpy_helper": "h", "onnx.reference": "r", "onnxruntime": "o"}
"""Whom we stand beside, with a letter for the plot."""

_LARGE = (4096, 4096)
_MANY = 1 << 22


@dataclass(frozen=True, slots=True)
class Case:
    """Something to do.

    Attributes:
        group: what sort of thing it is.
        name: what it is.
        peers: who does it beside us.
        ways: makes the data, and gives the ways to do it.
    """

    group: str
    name: str
    peers: tuple[str, ...]
    ways: Callable[[], Ways]


def _random() -> np.random.Generator:
    return np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return _random().standard_normal(shape, np.float32)


# ------------------------------------------------------------------------------------------------------------------ operators


def _constant() -> Ways:
    value = _normal(4, 4)
    return {OURS: lambda: numbaops.operator("Constant", value=value), "numpy": lambda: value.copy}


def _constant_of_shape(shape: tuple[int, int], dtype: np.dtype[Any]) -> Ways:
    fill = np.full(1, 1.5, dtype)
    return {
        OURS: lambda: functools.partial(numbaops.operator("ConstantOfShape", value=fill), shape),
        "numpy": lambda: functools.partial(np.full, shape, fill[0], dtype),
    }


def _eye_like(rows: int, columns: int) -> Ways:
    like = np.zeros((rows, columns), np.float32)
    return {
        OURS: lambda: functools.partial(numbaops.operator("EyeLike"), like),
        "numpy": lambda: functools.partial(np.eye, rows, columns, 0, np.float32),
    }


# ---------------------------------------------------------------------------------------------------------------- conversions


def _cast(size: int, source: np.dtype[Any], target: np.dtype[Any]) -> Ways:
    values = _normal(size).astype(source)
    return {
        OURS: lambda: functools.partial(numbaops.cast, values, target),
        "ml_dtypes": lambda: functools.partial(values.astype, target),
    }


def _int4(size: int) -> np.ndarray:
    return _random().integers(-8, 8, size, np.int8).astype(BY_NAME["int4"].dtype)


def _pack() -> Ways:
    values = _int4(_MANY)

    def by_numpy() -> np.ndarray:
        codes = values.view(np.uint8)
        return (codes[::2] & np.uint8(15)) | (codes[1::2] << np.uint8(4))

    return {
        OURS: lambda: functools.partial(numbaops.from_array, values),
        "numpy": lambda: by_numpy,
        "onnx.numpy_helper": lambda: functools.partial(onnx.numpy_helper.from_array, values),
    }


def _unpack() -> Ways:
    tensor = numbaops.from_array(_int4(_MANY))
    return {
        OURS: lambda: functools.partial(numbaops.to_array, tensor),
        "onnx.numpy_helper": lambda: functools.partial(onnx.numpy_helper.to_array, tensor),
    }


# --------------------------------------------------------------------------------------------------------------------- models


def _model(text: str, constants: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> bench {text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
    return model


def _ways_of_model(text: str, feeds: Mapping[str, np.ndarray], **constants: np.ndarray) -> Ways:
    model, fed = _model(text, constants), dict(feeds)
    return {
        OURS: lambda: functools.partial(numbaops.ReferenceEvaluator(model).run, None, fed),
        "onnx.reference": lambda: functools.partial(onnx.reference.ReferenceEvaluator(model).run, None, fed),
        "onnxruntime": lambda: functools.partial(onnxruntime_session(model.SerializeToString(), thread_count()).run, None, fed),
    }


def _int64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _one_node() -> Ways:
    # the shape is an input: a constant one would let a runtime compute the result at load
    return _ways_of_model("(int64[2] shape) => (float[r, c] y) { y = ConstantOfShape(shape) }", {"shape": _int64(4, 4)})


def _eight_nodes() -> Ways:
    text = """(float[r, c] x) => (float[r, c] y) {
        shape = Shape(x)
        rows = Gather(shape, first)
        columns = Gather(shape, second)
        more_rows = Mul(rows, two)
        sizes = Concat<axis = 0>(more_rows, columns)
        zeros = ConstantOfShape(sizes)
        eye = EyeLike(zeros)
        y = Identity(eye)
    }"""
    return _ways_of_model(text, {"x": _normal(4, 4)}, first=_int64(0), second=_int64(1), two=_int64(2))


def _adds() -> Ways:
    chain = "\n".join(f"v{number} = Add(v{number - 1}, x)" for number in range(1, 100))
    text = f"(float[4, 4] x) => (float[4, 4] y) {{ v0 = Add(x, x)\n{chain}\ny = Identity(v99) }}"
    return _ways_of_model(text, {"x": _normal(4, 4)})


def _loop() -> Ways:
    text = """(float[4] x) => (float[4] y) {
        y = Loop(trips, yes, x) <body = step (int64 i, bool before, float[4] v) => (bool after, float[4] w) {
            after = Identity(before)
            a = Mul(v, half)
            b = Add(a, x)
            c = Abs(b)
            w = Sub(c, half)
        }>
    }"""
    constants = {"trips": np.array(1000, np.int64), "yes": np.array(True), "half": np.array(0.5, np.float32)}
    return _ways_of_model(text, {"x": _normal(4)}, **constants)


def _lstm() -> Ways:
    text = "(float[32, 1, 64] x) => (float[32, 1, 1, 64] y) { y, h, c = LSTM<hidden_size = 64>(x, w, r) }"
    return _ways_of_model(text, {"x": _normal(32, 1, 64)}, w=_normal(1, 256, 64) / 8, r=_normal(1, 256, 64) / 8)


# ----------------------------------------------------------------------------------------------------------- parts of networks


def _matmul(size: int) -> Ways:
    left, right = _normal(size, size), _normal(size, size)[::-1].copy()
    ways = _ways_of_model(f"(float[{size}, {size}] x) => (float[{size}, {size}] y) {{ y = MatMul(x, w) }}", {"x": left}, w=right)
    return {**ways, "numpy": lambda: functools.partial(np.matmul, left, right)}


def _conv(channels: int, size: int, group: int) -> Ways:
    shape = f"float[1, {channels}, {size}, {size}]"
    text = f"({shape} x) => ({shape} y) {{ y = Conv<pads = [1, 1, 1, 1], group = {group}>(x, w, b) }}"
    inner = channels // group
    weights = _normal(channels, inner, 3, 3) / np.float32(3 * inner**0.5)
    return _ways_of_model(text, {"x": _normal(1, channels, size, size)}, w=weights, b=_normal(channels))


def _matmul_integer() -> Ways:
    values = _random().integers(-128, 128, (2, 256, 256), np.int8)
    return _ways_of_model("(int8[256, 256] x) => (int32[256, 256] y) { y = MatMulInteger(x, w) }", {"x": values[0]}, w=values[1])


def _unary(node: str) -> Ways:
    return _ways_of_model(f"(float[1024, 1024] x) => (float[1024, 1024] y) {{ y = {node} }}", {"x": _normal(1024, 1024)})


def _top_k() -> Ways:
    text = "(float[1000, 1000] x) => (float[1000, 10] y, int64[1000, 10] i) { y, i = TopK(x, k) }"
    return _ways_of_model(text, {"x": _normal(1000, 1000)}, k=_int64(10))


def _quantize(blocks: bool) -> Ways:
    rows, columns = 4096, 1024
    scales = np.abs(_normal(rows, columns // 32)) + np.float32(0.01) if blocks else np.array(0.02, np.float32)
    attributes = "<axis = 1, block_size = 32>" if blocks else ""
    zeros = np.zeros(scales.shape, np.int8)
    text = f"(float[{rows}, {columns}] x) => (int8[{rows}, {columns}] y) {{ y = QuantizeLinear{attributes}(x, scale, zero) }}"
    return _ways_of_model(text, {"x": _normal(rows, columns)}, scale=scales, zero=zeros)


def _text_to_float() -> Ways:
    words = np.array([f"{value:.6g}" for value in _normal(1000)], object)
    return _ways_of_model("(string[1000] x) => (float[1000] y) { y = Cast<to = 1>(x) }", {"x": words})


_FLOAT, _BFLOAT16, _FLOAT8, _FLOAT4 = (BY_NAME[name].dtype for name in ("float", "bfloat16", "float8e4m3fn", "float4e2m1"))
_NUMPY, _ML_DTYPES, _EVALUATORS = ("numpy",), ("ml_dtypes",), ("onnx.reference", "onnxruntime")
_OPERATORS, _CONVERSIONS, _MODELS, _PARTS = "operators", "conversions", "small models", "parts of networks"

CASES: tuple[Case, ...] = (
    Case(_OPERATORS, "Constant 4x4", _NUMPY, _constant),
    Case(_OPERATORS, "ConstantOfShape 4x4", _NUMPY, lambda: _constant_of_shape((4, 4), _FLOAT)),
    Case(_OPERATORS, "ConstantOfShape 64 MiB", _NUMPY, lambda: _constant_of_shape(_LARGE, _FLOAT)),
    Case(_OPERATORS, "ConstantOfShape float8", _NUMPY, lambda: _constant_of_shape((1024, 1024), _FLOAT8)),
    Case(_OPERATORS, "EyeLike 4x4", _NUMPY, lambda: _eye_like(4, 4)),
    Case(_OPERATORS, "EyeLike 64 MiB", _NUMPY, lambda: _eye_like(*_LARGE)),
    Case(_CONVERSIONS, "float to bfloat16, 8", _ML_DTYPES, lambda: _cast(8, _FLOAT, _BFLOAT16)),
    Case(_CONVERSIONS, "float to float8, 4 M", _ML_DTYPES, lambda: _cast(_MANY, _FLOAT, _FLOAT8)),
    Case(_CONVERSIONS, "float8 to float, 4 M", _ML_DTYPES, lambda: _cast(_MANY, _FLOAT8, _FLOAT)),
    Case(_CONVERSIONS, "float to float4, 4 M", _ML_DTYPES, lambda: _cast(_MANY, _FLOAT, _FLOAT4)),
    Case(_CONVERSIONS, "pack int4, 4 M", ("numpy", "onnx.numpy_helper"), _pack),
    Case(_CONVERSIONS, "unpack int4, 4 M", ("onnx.numpy_helper",), _unpack),
    Case(_CONVERSIONS, "quantize to int8, 4 M", _EVALUATORS, lambda: _quantize(blocks=False)),
    Case(_CONVERSIONS, "the same in blocks", _EVALUATORS, lambda: _quantize(blocks=True)),
    Case(_CONVERSIONS, "text to float, 1000", _EVALUATORS, _text_to_float),
    Case(_MODELS, "one node", _EVALUATORS, _one_node),
    Case(_MODELS, "eight small nodes", _EVALUATORS, _eight_nodes),
    Case(_MODELS, "100 small Adds", _EVALUATORS, _adds),
    Case(_MODELS, "Loop of 1000 trips", _EVALUATORS, _loop),
    Case(_MODELS, "LSTM, 32 steps of 64", _EVALUATORS, _lstm),
    Case(_PARTS, "MatMul 512", ("numpy", *_EVALUATORS), lambda: _matmul(512)),
    Case(_PARTS, "MatMulInteger 256", _EVALUATORS, _matmul_integer),
    Case(_PARTS, "Conv 3x3, 64 channels", _EVALUATORS, lambda: _conv(64, 56, 1)),
    Case(_PARTS, "depthwise Conv 3x3", _EVALUATORS, lambda: _conv(64, 56, 64)),
    Case(_PARTS, "Softmax 1 M", _EVALUATORS, lambda: _unary("Softmax(x)")),
    Case(_PARTS, "Erf 1 M", _EVALUATORS, lambda: _unary("Erf(x)")),
    Case(_PARTS, "TopK 10 of 1000", _EVALUATORS, _top_k),
)
