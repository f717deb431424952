"""What docs/drop-in.md says of differences from onnx.reference: each row of its tables, run in both."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import onnx.parser
import onnx.reference
import pytest

import numbaops

PAGE = Path(__file__).resolve().parents[1] / "docs" / "drop-in.md"
FLOAT = np.float32
WITNESS = tuple(map(int, onnx.__version__.split(".")[:2])) == (1, 23)
"""Whether the installed onnx is the one that the page speaks of."""

SQUARE = np.array([[1, 2], [3, 4]], FLOAT)
ONE, TWO = np.ones(1, FLOAT), np.ones(2, FLOAT)
HEAD = '<ir_version: 10, opset_import: ["": {}]> '
CALLS = '<ir_version: 10, opset_import: ["": 21, "l": 1]> g (float[2] x) => (float[2] y) {{ y = l.f(x) }} {}'
FUNCTION = '<domain: "l", opset_import: ["": 21, "l": 1]> '


def parsed(text: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD.format(opset) + text)


def calling(*functions: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(CALLS.format(" ".join(FUNCTION + function for function in functions)))


def made(node: onnx.NodeProto, kind: int, **graph: Any) -> onnx.ModelProto:
    made = oh.make_graph([node], "g", [], [oh.make_tensor_value_info("y", kind, None)], **graph)
    return oh.make_model(made, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)


def norm(opset: int, scale: int = 2) -> onnx.ModelProto:
    vectors = f"float[{scale}] s, float[2] b, float[2] m, float[2] v"
    return parsed(f"g (float[2,2] x, {vectors}) => (float[2,2] y) {{ y = BatchNormalization <epsilon = 0.0> (x,s,b,m,v) }}", opset)


def loop(count: int, condition: str, shape: str) -> onnx.ModelProto:
    results = f"bool q, float{shape} t, float{shape} u"
    body = f"b (int64 i, bool p, float{shape} s) => ({results}) {{ q = Identity(p) t = Add(s, s) u = Identity(s) }}"
    constants = f"m = Constant<value_int = {count}>() c = Constant<value = bool {{1}}>()"
    return parsed(f"g (float{shape} x) => (v, y) {{ {constants} v, y = Loop<body = {body}>(m, {condition}, x) }}")


SPARSE = oh.make_sparse_tensor(oh.make_tensor("w", 1, [1], [5.0]), oh.make_tensor("i", 7, [1], [2]), [4])
STATISTICS = {"b": TWO, "m": TWO, "v": TWO}
SCAN = "Scan<num_scan_inputs = 1{}, body = b (float[2] s, float[2] e) => (float[2] t, float[2] u) {{ t = Add(s, e) u = Identity(t) }}>"
ROWS = np.arange(6, dtype=FLOAT).reshape(3, 2)
HALF = np.full((1, 2, 2), 0.5, FLOAT)


# Case of the page, model, feeds, and what is right: outputs, or the class of the error and a part of its text.
DIFFERENCES: list[tuple[str, onnx.ModelProto, dict[str, Any], Any]] = [
    ("BatchNormalization of opsets 9 to 13", norm(9), {"x": SQUARE, "s": TWO, **STATISTICS}, [SQUARE]),
    ("BatchNormalization 7 and 8", norm(7), {"x": SQUARE, "s": TWO, **STATISTICS}, [SQUARE]),
    (
        "Softmax, LogSoftmax, Hardmax before opset 13",
        parsed("g (float[1,2,2] x) => (float[1,2,2] y) { y = Softmax(x) }", 11),
        {"x": HALF},
        [HALF / 2],
    ),
    (
        "LRN of odd sizes",
        parsed("g (float[1,3,1,1] x) => (float[1,3,1,1] y) { y = LRN<size = 3, alpha = 3.0, beta = 1.0>(x) }"),
        {"x": np.array([1, 2, 3], FLOAT).reshape(1, 3, 1, 1)},
        [(np.array([1, 2, 3]) / (1 + np.array([5, 14, 13]))).astype(FLOAT).reshape(1, 3, 1, 1)],
    ),
    (
        "pools, Resize, RNNs, Attention, reductions and about 100 other operators at some version or form",
        parsed("g (float[1,1,5] x) => (float[1,1,2] y) { y = LpPool<kernel_shape = [3], strides = [3], ceil_mode = 1>(x) }"),
        {"x": np.array([[[0, 3, 4, 3, 4]]], FLOAT)},
        [np.array([[[5, 5]]], FLOAT)],
    ),
    (
        "DequantizeLinear 10 and 13, Scatter, GlobalLpPool, MaxRoiPool, forms of version 1 such as `broadcast` of Add",
        parsed("g (uint8[2] x, float s) => (float[2] y) { y = DequantizeLinear(x, s) }", 10),
        {"x": np.array([1, 2], np.uint8), "s": FLOAT(0.5)},
        [np.array([0.5, 1], FLOAT)],
    ),
    (
        "DequantizeLinear 10 and 13, Scatter, GlobalLpPool, MaxRoiPool, forms of version 1 such as `broadcast` of Add",
        parsed("g (float[3] x, int64[1] i, float[1] u) => (float[3] y) { y = Scatter(x, i, u) }", 9),
        {"x": np.zeros(3, FLOAT), "i": np.array([1]), "u": ONE},
        [np.array([0, 1, 0], FLOAT)],
    ),
    (
        "DequantizeLinear 10 and 13, Scatter, GlobalLpPool, MaxRoiPool, forms of version 1 such as `broadcast` of Add",
        parsed("g (float[1,1,2,2] x) => (float[1,1,1,1] y) { y = GlobalLpPool(x) }"),
        {"x": np.ones((1, 1, 2, 2), FLOAT)},
        [np.full((1, 1, 1, 1), 2, FLOAT)],
    ),
    (
        "DequantizeLinear 10 and 13, Scatter, GlobalLpPool, MaxRoiPool, forms of version 1 such as `broadcast` of Add",
        parsed("g (float[1,1,2,2] x, float[1,5] r) => (float[1,1,1,1] y) { y = MaxRoiPool<pooled_shape = [1,1]>(x, r) }"),
        {"x": SQUARE.reshape(1, 1, 2, 2), "r": np.array([[0, 0, 0, 1, 1]], FLOAT)},
        [np.full((1, 1, 1, 1), 4, FLOAT)],
    ),
    (
        "DequantizeLinear 10 and 13, Scatter, GlobalLpPool, MaxRoiPool, forms of version 1 such as `broadcast` of Add",
        parsed("g (float[2,3] x, float[2] z) => (float[2,3] y) { y = Add<broadcast = 1, axis = 0>(x, z) }", 6),
        {"x": np.ones((2, 3), FLOAT), "z": np.array([1, 2], FLOAT)},
        [np.array([[2, 2, 2], [3, 3, 3]], FLOAT)],
    ),
    ("Loop with zero trips", loop(0, "c", "[2]"), {"x": TWO}, [TWO, np.zeros((0, 2), FLOAT)]),
    ("Loop without condition", loop(3, "", "[2]"), {"x": TWO}, [TWO * 8, np.array([[1, 1], [2, 2], [4, 4]], FLOAT)]),
    ("Loop with scalar scan outputs", loop(3, "c", ""), {"x": FLOAT(1)}, [np.array(8, FLOAT), np.array([1, 2, 4], FLOAT)]),
    (
        "Scan backward, along other axes, of opset 8",
        parsed(f"g (float[2] z, float[3,2] x) => (v, y) {{ v, y = {SCAN.format(', scan_input_directions = [1]')}(z, x) }}"),
        {"z": np.zeros(2, FLOAT), "x": ROWS},
        [np.array([6, 9], FLOAT), np.array([[4, 5], [6, 8], [6, 9]], FLOAT)],
    ),
    (
        "Scan backward, along other axes, of opset 8",
        parsed(f"g (float[2] z, float[2,3] x) => (v, y) {{ v, y = {SCAN.format(', scan_input_axes = [1]')}(z, x) }}"),
        {"z": np.zeros(2, FLOAT), "x": ROWS.T.copy()},
        [np.array([6, 9], FLOAT), np.array([[0, 1], [2, 4], [6, 9]], FLOAT)],
    ),
    (
        "Scan backward, along other axes, of opset 8",
        parsed(f"g (float[1,2] z, float[1,3,2] x) => (v, y) {{ v, y = {SCAN.format('')}(, z, x) }}", 8),
        {"z": np.zeros((1, 2), FLOAT), "x": ROWS[None]},
        [np.array([[6, 9]], FLOAT), np.array([[[0, 1], [2, 4], [6, 9]]], FLOAT)],
    ),
    (
        "attribute references in functions: a default",
        calling("f <alpha: float = 0.5>(a) => (b) { b = LeakyRelu<alpha: float = @alpha>(a) }"),
        {"x": -TWO},
        [-TWO / 2],
    ),
    (
        "attribute references in functions: left out",
        calling("f <alpha>(a) => (b) { b = LeakyRelu<alpha: float = @alpha>(a) }"),
        {"x": -TWO},
        [-TWO * FLOAT(0.01)],
    ),
    ("a function called without its trailing inputs", calling("f (a, low, high) => (b) { b = Clip(a, low, high) }"), {"x": -TWO}, [-TWO]),
    (
        "a function that stands before the one it calls",
        calling("f (a) => (b) { b = l.h(a) }", "h (a) => (b) { b = Neg(a) }"),
        {"x": -TWO},
        [TWO],
    ),
    (
        "Constant with `sparse_value`, sparse initializers",
        made(oh.make_node("Constant", [], ["y"], sparse_value=SPARSE), 1),
        {},
        [np.array([0, 0, 5, 0], FLOAT)],
    ),
    (
        "Constant with `sparse_value`, sparse initializers",
        made(oh.make_node("Identity", ["w"], ["y"]), 1, sparse_initializer=[SPARSE]),
        {},
        [np.array([0, 0, 5, 0], FLOAT)],
    ),
    (
        "Cast from float64 to narrow floats",
        parsed("g (double[1] x) => (float8e4m3fn[1] y) { y = Cast<to = 17>(x) }"),
        {"x": np.array([1 + 2**-4 + 2**-40])},
        [np.array([1.125], ml_dtypes.float8_e4m3fn)],
    ),
    (
        "Cast to float8e8m0",
        parsed("g (float[1] x) => (y) { y = Cast<to = 24>(x) }", 24),
        {"x": -ONE},
        [np.zeros(1, np.uint8).view(ml_dtypes.float8_e8m0fnu)],
    ),
    (
        "Cast to string",
        parsed("g (float[2] x) => (string[2] y) { y = Cast<to = 8>(x) }"),
        {"x": np.array([1e-7, np.inf], FLOAT)},
        [np.array(["0.0000001", "INF"], object)],
    ),
    (
        "Cast of floats to int4, uint4, int2, uint2",
        parsed("g (float[2] x) => (int4[2] y) { y = Cast<to = 22>(x) }"),
        {"x": np.array([1.7, -1.7], FLOAT)},
        [np.array([2, -2], ml_dtypes.int4)],
    ),
    (
        "strings that end in NUL",
        made(oh.make_node("Constant", [], ["y"], value=onnx.TensorProto(dims=[2], data_type=8, string_data=[b"ab", b"a\0"])), 8),
        {},
        [np.array(["ab", "a\0"], object)],
    ),
    (
        "an operator at an opset before its first version",
        parsed("g (float[2,2] x) => (float[2,2] y) { y = EyeLike(x) }", 8),
        {"x": SQUARE},
        (NotImplementedError, "EyeLike"),
    ),
    (
        "an attribute that the operator version lacks",
        parsed("g (float[2] x) => (float[2] y) { y = Relu<alpha = 0.5>(x) }"),
        {"x": TWO},
        (ValueError, "Relu-14 .*'alpha'"),
    ),
    ("EyeLike of rank 1", parsed("g (float[2] x) => (float[2,2] y) { y = EyeLike(x) }"), {"x": TWO}, (ValueError, "rank 1")),
    ("a bias or scale of the wrong shape", norm(15, 1), {"x": SQUARE, "s": ONE, **STATISTICS}, (ValueError, "scale has shape")),
    (
        "a bias or scale of the wrong shape",
        parsed("g (float[1,1,2,2] x, float[2,1,1,1] w, float[1] b) => (y) { y = Conv(x, w, b) }"),
        {"x": SQUARE.reshape(1, 1, 2, 2), "w": np.ones((2, 1, 1, 1), FLOAT), "b": ONE},
        (ValueError, r"B has shape \[1\]; allowed: \[2\]"),
    ),
    (
        "a feed that names nothing in the graph",
        parsed("g (float[2] x) => (float[2] y) { y = Abs(x) }"),
        {"x": TWO, "z": TWO},
        (RuntimeError, "'z'.*Inputs: 'x'"),
    ),
    (
        "a feed for an initializer that is no input",
        parsed("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"),
        {"x": TWO, "w": TWO},
        (RuntimeError, "'w' is an initializer"),
    ),
    ("a name computed twice", parsed("g (float[2] x) => (float[2] y) { y = Abs(x) y = Neg(x) }"), {"x": TWO}, (RuntimeError, "'y'")),
    (
        "a masked array",
        parsed("g (float[2] x) => (float[2] y) { y = Abs(x) }"),
        {"x": np.ma.array(TWO, mask=[False, True])},
        (TypeError, "masked"),
    ),
    (
        "a failure inside an operator",
        parsed("g (float[2,2] x, float[3,3] z) => (y) { y = MatMul(x, z) }"),
        {"x": SQUARE, "z": np.ones((3, 3), FLOAT)},
        (ValueError, r"MatMul-13 \(node 'y'\).*\[2, 2\].*\[3, 3\]"),
    ),
    (
        "element-wise operators on inputs of mixed types",
        parsed("g (float[2] x, double[2] z) => (y) { y = Mod<fmod = 1>(x, z) }"),
        {"x": TWO, "z": np.ones(2)},
        (TypeError, "float32 and float64"),
    ),
    (
        "nodes out of order",
        parsed("g (float[2] x) => (float[2] y) { y = Abs(z) z = Neg(x) }"),
        {"x": TWO},
        (RuntimeError, "the later node 'z'"),
    ),
    (
        "a payload that does not fit its shape",
        made(
            oh.make_node("Identity", ["w"], ["y"]), 1, initializer=[onnx.TensorProto(name="w", dims=[3], data_type=1, raw_data=b"\0" * 8)]
        ),
        {},
        (ValueError, "'w'.*8 bytes.*12"),
    ),
]
ELSEWHERE = {"writing into an output"}


@pytest.mark.parametrize(("case", "model", "feeds", "right"), [pytest.param(*row, id=f"{row[0]} {n}") for n, row in enumerate(DIFFERENCES)])
def test_difference(case: str, model: onnx.ModelProto, feeds: dict[str, Any], right: Any) -> None:
    if isinstance(right, tuple):
        with pytest.raises(right[0], match=re.compile(right[1], re.DOTALL)) as caught:
            numbaops.ReferenceEvaluator(model).run(None, feeds)
        assert isinstance(caught.value, numbaops.NumbaopsError)
    else:
        assert differs(numbaops.ReferenceEvaluator(model).run(None, feeds), right) == ""
    if WITNESS:
        assert theirs_is_other(model, feeds, right), f"onnx.reference is no other any more in the case of {case!r}"


def theirs_is_other(model: onnx.ModelProto, feeds: dict[str, Any], right: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
        except Exception as error:
            return not (isinstance(right, tuple) and re.search(right[1], str(error), re.DOTALL))
    return isinstance(right, tuple) or bool(differs(results, right))


def differs(results: list[Any], right: list[Any]) -> str:
    """How results differ from what is right; nothing if they do not."""
    for result, wanted in zip(results, right, strict=True):
        if result.shape != wanted.shape or result.dtype != wanted.dtype:
            return f"{result.dtype}{result.shape} for {wanted.dtype}{wanted.shape}"
        plain, wished = (each if each.dtype == object else each.astype(np.float64) for each in (result, wanted))
        close = plain.tolist() == wished.tolist() if result.dtype == object else np.allclose(plain, wished, rtol=1e-5, atol=0)
        if not close:
            return f"{result} for {wanted}"
    return ""


@pytest.mark.parametrize("ours", [True, False])
def test_writing_into_an_output(ours: bool) -> None:
    if not ours and not WITNESS:
        pytest.skip("onnx is another one than that of the page")
    kind = numbaops.ReferenceEvaluator if ours else onnx.reference.ReferenceEvaluator
    evaluator = kind(parsed("g () => (float[2] y) { y = Constant<value_floats = [1.0, 2.0]>() }"))
    evaluator.run(None, {})[0][0] = 7
    assert (evaluator.run(None, {})[0].tolist() == [1, 2]) == ours


def test_every_row_of_the_page_is_here() -> None:
    if not PAGE.exists():
        pytest.skip("no documentation beside these tests")
    text = PAGE.read_text("utf-8")
    tables = text[text.index("## What differs") : text.index("## What rounds")]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in tables.splitlines() if line.startswith("| ")]
    cases = [row for row in rows if row not in ("case", "---")]
    assert sorted(cases) == sorted({row[0] for row in DIFFERENCES} | ELSEWHERE)
