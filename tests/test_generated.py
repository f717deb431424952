"""Chains of element-wise nodes that become a kernel of their own, beside the same nodes run one by one."""

from __future__ import annotations

import itertools
import logging
import math
import threading
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, parser

from numbaops import ReferenceEvaluator
from numbaops.engine import chains, generated
from numbaops.engine.blocks import Blocks
from numbaops.engine.generated import Generated, dimensions_of
from numbaops.kernels import vectors
from numbaops.runtime import jit, threads
from processes import run_python

pytestmark = pytest.mark.skipif(not vectors.AVAILABLE, reason="without the JIT there are no such kernels")

RUNS = 10
SHAPE = (2, 3, 5, 20)
RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal(SHAPE).astype(np.float32)
SPECIAL = np.resize(
    np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 3e38, -3e38, 6, 3, 1e-20, 88.8, -104], np.float32), SHAPE
)


@pytest.fixture(autouse=True, params=[(1, 1 << 13), (3, 7)], ids=["one thread", "short segments"])
def small_arrays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are large enough here; (threads, elements of a unit)."""
    count, segment = request.param
    monkeypatch.setattr(chains, "SMALLEST", 1)
    monkeypatch.setattr(generated, "_SEGMENT", segment)
    monkeypatch.setattr(threads, "thread_count", lambda: count)
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 1)


def model(text: str, opset: int = 22) -> ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


def found(evaluator: ReferenceEvaluator, feeds: dict[str, np.ndarray]) -> list[Generated]:
    """The kernels of a plan for such inputs."""
    plan = evaluator._plan(tuple(evaluator.output_names_), ())
    seen: dict[str, Any] = {}
    plan._step_by_step([feeds[name] for name in plan.inputs], seen)
    steps = plan._in_chains([feeds[name] for name in plan.inputs], seen).steps
    return [step.fast.function for step in steps if isinstance(step.fast.function, Generated)]


def check(text: str, feeds: dict[str, np.ndarray], opset: int = 22, ulps: int = 0) -> int:
    """Run before and after there is a kernel; returns how many kernels there are."""
    evaluator = ReferenceEvaluator(model(text, opset))
    with np.errstate(all="ignore"):
        wanted = evaluator.run(None, feeds, intermediate=True)
        count = len(found(evaluator, feeds))
        for number in range(RUNS + 3):
            for name, got in zip(evaluator.output_names_, evaluator.run(None, feeds), strict=True):
                assert got.dtype == wanted[name].dtype
                np.testing.assert_array_max_ulp(got, wanted[name], ulps) if ulps else np.testing.assert_array_equal(got, wanted[name])
                assert not any(np.shares_memory(got, fed) for fed in feeds.values())
            if number == RUNS:
                jit.Later.wait()
    return count


OPERANDS = [*itertools.product((1, 2), (1, 3), (1, 5), (1, 20)), (), (20,), (5, 1), (1,), (3, 1, 1), (1, 1, 20)]


@pytest.mark.parametrize("shape", OPERANDS, ids=str)
def test_operands_of_every_shape(shape: tuple[int, ...]) -> None:
    other = RANDOM.standard_normal(shape).astype(np.float32)
    text = "g (float[a,b,c,d] x, float k) => (y) { s = Sub(x, k)  r = Relu(s)  m = Mul(k, r)  n = Neg(m)  y = Max(n, x, k) }"
    dimensions = dimensions_of(SHAPE, [SHAPE, shape])
    assert check(text, {"x": X, "k": other}) == (dimensions is not None)


def test_dimensions() -> None:
    """Of the result, and where the operands have their elements."""

    def of(*shapes: tuple[int, ...]) -> Any:
        result = dimensions_of(np.broadcast_shapes(*shapes), shapes)
        return result if result is None else (result[:3], result[3].tolist(), result[4])

    assert of((2, 3, 4, 20), ()) == ((1, 1, 480), [[0, 0], [0, 0]], (False, True))
    assert of((2, 3, 4, 20), (3, 1, 1)) == ((2, 3, 80), [[240, 80], [0, 1]], (False, True))
    assert of((2, 3, 4, 20), (20,)) == ((1, 24, 20), [[0, 20], [0, 0]], (False, False))
    assert of((2, 1, 20), (3, 1)) == ((2, 3, 20), [[20, 0], [0, 1]], (False, True))
    assert of((2, 3, 4, 15), (15,)) is None  # too short for vectors
    assert of((2, 3, 4, 20), (2, 1, 4, 1)) is None  # four dimensions
    assert of((1, 1), ()) is None


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a = Neg(x)  b = Abs(a)  c = Reciprocal(b)  d = Div(x, c)  y = Sqrt(d)", 1),
        ("a = Relu(x)  b = HardSwish(a)  y = HardSigmoid <alpha = 0.3, beta = 0.4> (b)", 1),
        ("a = LeakyRelu <alpha = 0.1> (x)  y = LeakyRelu <alpha = -2.5> (a)", 1),
        (
            "l = Constant <value_float = -1.5> ()  h = Constant <value_float = 2.5> ()  a = Clip(x, l, h)  b = Clip(a, l)  y = Clip(b,, h)",
            1,
        ),
        ("a = Max(x, x)  b = Min(a, x, x)  c = Sum(b, x)  y = Add(c, x)", 1),
        ("k = Constant <value_float = 0.5> ()  a = Abs(x)  y = Pow(a, k)", 0),
        ("m = Greater(x, x)  y = Where(m, x, x)", 0),
        ("m = IsNaN(x)  n = Not(m)  a = Where(n, x, x)  y = Neg(a)", 1),
        ("a = Sub(x, x)  s = Sin(a)  b = Neg(s)  y = Abs(b)", 1),
        ("a = Neg(x)  y = Identity(a)", 0),
        ("a = Sum(x)  b = Neg(a)  y = Relu(b)", 1),
    ],
)
@pytest.mark.parametrize("x", [X, SPECIAL], ids=["drawn", "special"])
def test_formulas_give_what_nodes_give(x: np.ndarray, text: str, count: int) -> None:
    assert check(f"g (float[a,b,c,d] x) => (y) {{ {text} }}", {"x": x}) == count


@pytest.mark.parametrize(
    ("text", "ulps"),
    [
        ("k = Constant <value_float = 2.0> ()  a = Neg(x)  y = Pow(a, k)", 1),
        ("a = Neg(x)  y = Exp(a)", 2),
        ("a = Neg(x)  y = Tanh(a)", 4),
        ("a = Sigmoid(x)  y = Mul(a, x)", 4),
        ("a = Neg(x)  y = Erf(a)", 4),
        ("a = Neg(x)  y = Softplus(a)", 4),
    ],
)
def test_formulas_give_what_nodes_give_but_for_roundings(text: str, ulps: int) -> None:
    assert check(f"g (float[a,b,c,d] x) => (y) {{ {text} }}", {"x": X}, ulps=ulps) == 1


def test_gelu() -> None:
    evaluator = ReferenceEvaluator(model("g (float[a,b,c,d] x) => (y) { a = Neg(x)  y = Gelu(a) }"))
    wanted = [-value / 2 * math.erfc(value / math.sqrt(2)) for value in X.reshape(-1).astype(np.float64)]
    for _ in range(RUNS):
        evaluator.run(None, {"x": X})
    jit.Later.wait()
    np.testing.assert_allclose(evaluator.run(None, {"x": X})[0].reshape(-1), wanted, 1e-6)


def test_limits_of_old_versions_are_attributes() -> None:
    assert check("g (float[a,b,c,d] x) => (y) { a = Neg(x)  y = Clip <min = -0.5, max = 0.75> (a) }", {"x": X}, opset=9) == 1


@pytest.mark.parametrize("kind", ["float16", "double", "int32"])
def test_other_types_are_left_to_numpy(kind: str) -> None:
    dtype = {"double": "float64"}.get(kind, kind)
    assert check(f"g ({kind}[a,b,c,d] x) => (y) {{ a = Neg(x)  y = Abs(a) }}", {"x": X.astype(dtype)}) == 0


def test_masks() -> None:
    text = "g (bool[a,1,c,d] m, float[a,b,c,d] x) => (y) { a = Where(m, x, x)  y = Mul(a, x) }"
    assert check(text, {"m": X[:, :1] > 0, "x": X}) == 1
    text = "g (bool[a,1,1,d] m, float[a,b,c,d] x) => (y) { k = Constant <value_float = -10000.0> ()  a = Neg(x)  y = Where(m, a, k) }"
    assert check(text, {"m": X[:, :1, :1] > 0, "x": X}) == 1


def test_layouts() -> None:
    for x in (np.ascontiguousarray(X.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0), X[::-1], X[:, 1:2], np.asfortranarray(X), X[:0]):
        check("g (float[a,b,c,d] x) => (y) { a = Neg(x)  b = Add(a, x)  y = Abs(b) }", {"x": x})


def test_inputs_of_other_layouts_keep_theirs() -> None:
    """NumPy's results have the layout of the inputs, and a sum over them adds up in that order."""
    x = np.ascontiguousarray(RANDOM.standard_normal((4, 30, 31, 8)).astype(np.float32)).transpose(0, 3, 1, 2)
    assert check("g (float[a,b,c,d] x) => (y) { a = Mul(x, x)  b = Add(a, x)  y = ReduceMean(b) }", {"x": x}) == 1


def test_exact_runs_have_none() -> None:
    evaluator = ReferenceEvaluator(model("g (float[a,b,c,d] x) => (y) { a = Neg(x)  y = Abs(a) }"), exact=True)
    assert found(evaluator, {"x": X}) == []


def test_until_the_kernel_is_there_numpy_serves(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """And for ever, if it cannot be compiled."""
    text = "g (float[a,b,c,d] x) => (y) { a = Neg(x)  b = Sqrt(a)  y = Add(b, b) }"
    evaluator = ReferenceEvaluator(model(text))
    goes_on, used = threading.Event(), []

    def compile_late(self: Any, signature: Any) -> None:
        goes_on.wait(60)
        raise ValueError("no such instruction")

    with np.errstate(all="ignore"), caplog.at_level(logging.WARNING, "numbaops"):
        (kernel,) = found(ReferenceEvaluator(model(text.replace("Add(b, b)", "Add(b, x)"))), {"x": X})
        jit.Later.wait()
        monkeypatch.setattr(type(kernel._kernel), "compile", compile_late)
        monkeypatch.setattr(Blocks, "__call__", lambda self, *values: used.append(1) or Blocks._run(self, list(values)))
        for _ in range(RUNS):
            wanted = evaluator.run(None, {"x": X})[0]
        assert used
        goes_on.set()
        jit.Later.wait()
        used.clear()
        np.testing.assert_array_equal(evaluator.run(None, {"x": X})[0], wanted)
    assert used
    assert "no such instruction" in caplog.text


def test_a_process_may_end_or_fork_while_kernels_are_compiled() -> None:
    code = """
        import os, sys
        import numpy as np
        from onnx import parser
        from numbaops import ReferenceEvaluator
        from numbaops.runtime import jit
        x = np.ones(100000, np.float32)
        def run(text):
            body = f"g (float[a] x) => (y) {{ {text} }}"
            evaluator = ReferenceEvaluator(parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + body))
            for _ in range(10):
                y = evaluator.run(None, {"x": x})[0]
            return y.sum()
        text = "a = Neg(x)  b = Abs(a)  c = Sqrt(b)  y = Add(c, x)"
        first = run(text)
        if hasattr(os, "fork"):
            child = os.fork()
            if not child:
                same = run(text) == first and run("a = Neg(x)  y = Add(a, a)") == -2 * x.size
                jit.Later.wait()
                os._exit(0 if same else 1)
            assert os.waitpid(child, 0)[1] == 0
        print(first)
        run("a = Neg(x)  y = Sub(a, x)")
        run("a = Neg(x)  b = Abs(a)  c = Neg(b)  y = Mul(c, x)")
    """
    assert run_python(code, NUMBAOPS_CACHE_DIR="/nonexistent") == "200000.0"
