"""Chains of element-wise nodes that run block by block, beside the same nodes run one by one."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, parser

from numbaops import ReferenceEvaluator
from numbaops.engine import blocks, chains
from numbaops.engine.blocks import Blocks
from numbaops.runtime import threads

RUNS = 10
SHAPE = (2, 3, 4, 5)
RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal(SHAPE).astype(np.float32)


@pytest.fixture(autouse=True, params=[(1, 16), (3, 52), (2, 1 << 20)], ids=["one element", "some rows", "all at once"])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are large here; (threads, bytes of a block)."""
    count, size = request.param
    monkeypatch.setattr(chains, "LARGE", 1)
    monkeypatch.setattr(chains, "_generates", lambda: False)
    monkeypatch.setattr(blocks, "BLOCK", size)
    monkeypatch.setattr(blocks, "LONE", size)
    for module in (threads, chains):
        monkeypatch.setattr(module, "thread_count", lambda: count)
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 1)


def model(text: str, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def check(text: str, feeds: dict[str, np.ndarray], opset: int = 17, **options: Any) -> list[int]:
    """Run often enough for a variant; returns how many nodes each of its chains of several has."""
    return [length for length in check_all(text, feeds, opset, **options) if length > 1]


def check_all(text: str, feeds: dict[str, np.ndarray], opset: int = 17, **options: Any) -> list[int]:
    """The same with nodes that are split over threads alone."""
    evaluator = ReferenceEvaluator(model(text, opset), **options)
    wanted = evaluator.run(None, feeds, intermediate=True)
    for _ in range(RUNS):
        for name, got in zip(evaluator.output_names_, evaluator.run(None, feeds), strict=True):
            assert got.dtype == wanted[name].dtype
            np.testing.assert_array_equal(got, wanted[name])
            assert not any(np.shares_memory(got, fed) for fed in feeds.values())
    plan = evaluator._plan(tuple(evaluator.output_names_), ())
    seen: dict[str, Any] = {}
    plan._step_by_step(list(feeds.values()), seen)
    steps = plan._in_chains([feeds[name] for name in plan.inputs], seen).steps
    return [len(step.fast.function._program) for step in steps if isinstance(step.fast.function, Blocks)]


NODES = ["Neg(x)", "Add(x, k)", "Greater(x, k)", "Sub(k, x)", "Mul(x, x)"]


@pytest.mark.parametrize("node", NODES)
def test_a_node_alone_is_for_several_threads(node: str) -> None:
    lengths = [] if threads.thread_count() == 1 else [1]
    k = RANDOM.standard_normal((3, 1, 5)).astype(np.float32)
    assert check_all(f"g (float[a,b,c,d] x, float[e,1,d] k) => (y) {{ y = {node} }}", {"x": X, "k": k}) == lengths


def test_a_node_alone_that_is_no_function_of_numpy_is_left_as_it_is() -> None:
    assert check_all("g (float[a,b,c,d] x) => (y) { y = Elu(x) }", {"x": X}) == []


def test_a_node_alone_of_16_bit_floats_has_blocks_of_its_own() -> None:
    x = RANDOM.standard_normal(4096).astype(np.float16)
    assert check_all("g (float16[a] x) => (y) { y = Add(x, x) }", {"x": x}) == []


def test_a_node_alone_has_large_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 4)
    monkeypatch.setattr(blocks, "LONE", 1 << 20)
    taken: list[int] = []
    run = Blocks._run
    monkeypatch.setattr(Blocks, "_run", lambda self, values, out=None: taken.append(values[0].size) or run(self, values, out))
    check_all("g (float[a,b,c,d] x) => (y) { y = Neg(x) }", {"x": X})
    assert set(taken) == (set() if threads.thread_count() == 1 else {X.size})


OPERANDS = [*itertools.product((1, 2), (1, 3), (1, 4), (1, 5)), (), (5,), (4, 1), (1,), (3, 1, 1), (1, 1, 5)]


@pytest.mark.parametrize("shape", OPERANDS, ids=str)
def test_operands_of_every_shape(shape: tuple[int, ...]) -> None:
    other = RANDOM.standard_normal(shape).astype(np.float32)
    text = "g (float[a,b,c,d] x, float[...] k) => (y) { s = Sub(x, k)  r = Relu(s)  m = Mul(k, r)  t = Greater(m, k)  y = Where(t, m, x) }"
    assert check(text.replace("float[...] k", "float k"), {"x": X, "k": other}) == [3, 2]


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("a = Neg(x)  b = Abs(a)  c = Exp(b)  y = Sqrt(c)", [4]),
        ("a = Neg(x)  b = Abs(x)  y = Add(a, b)", [2]),
        ("a = Sigmoid(x)  y = Mul(x, a)", [2]),
        ("a = Sigmoid(x)  y = Mul(a, a)", [2]),
        ("a = Neg(x)  b = Transpose <perm = [1, 0, 2, 3]> (a)  y = Abs(b)", []),
        ("a = Cast <to = 11> (x)  b = Neg(a)  y = Abs(b)", [2]),
        ("a = HardSigmoid(x)  b = Elu <alpha = 0.5> (a)  c = Clip(b)  y = Max(c, x, x)", [4]),
        ("k = Constant <value_float = 2.0> ()  a = Pow(x, k)  b = Mod <fmod = 1> (a, k)  y = Mean(b, k, x)", [3]),
        ("n = IsNaN(x)  m = Not(n)  y = And(m, n)", [2]),
        ("a = ReduceMax <axes = [1, 2, 3]> (x)  b = Neg(a)  c = Abs(b)  y = Add(x, c)", [2]),
    ],
)
def test_chains(text: str, lengths: list[int]) -> None:
    assert check(f"g (float[a,b,c,d] x) => (y) {{ {text} }}", {"x": X}) == lengths


def test_values_that_are_wanted_end_a_chain() -> None:
    assert check("g (float[a,b,c,d] x) => (y, a) { a = Neg(x)  b = Abs(a)  y = Exp(b) }", {"x": X}) == [2]


def test_layouts() -> None:
    for x in (X.transpose(3, 2, 1, 0), X[::-1], X[:, 1:2], np.asfortranarray(X), X[:0]):
        check("g (float[a,b,c,d] x) => (y) { a = Neg(x)  b = Add(a, x)  y = Abs(b) }", {"x": x})


def test_a_node_that_stands_for_several_is_none_of_a_chain() -> None:
    text = """g (float[a,3,c,d] x) => (y)
        <float[3] s = {1, 2, 3}, float[3] b = {0.5, 0, -1}, float[3] m = {0, 1, 2}, float[3] v = {1, 2, 4}>
        { n = BatchNormalization(x, s, b, m, v)  r = Relu(n)  a = Neg(r)  y = Abs(a) }"""
    assert check(text, {"x": X}) == [2]


def test_shapes_that_depend_on_values() -> None:
    text = "g (float[a,b,c,d] x) => (y) { i = NonZero(x)  f = Cast <to = 1> (i)  a = Neg(f)  y = Abs(a) }"
    evaluator = ReferenceEvaluator(model(text))
    for number in range(2 * RUNS):
        x = X.copy()
        x.reshape(-1)[: number % 5] = 0
        assert evaluator.run(None, {"x": x})[0].shape == (4, X.size - number % 5)


def test_warnings_are_the_callers_in_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    monkeypatch.setattr(blocks, "BLOCK", 16)
    text = "g (float[a] x, float[a] z) => (y) { m = Log(z)  n = Neg(m)  y = Add(n, x) }"
    evaluator = ReferenceEvaluator(model(text))
    feeds = {"x": np.ones(5000, np.float32), "z": np.zeros(5000, np.float32)}
    helped = threading.Event()
    run = Blocks._run

    def wait_for_the_other(self: Blocks, *arguments: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            helped.wait(20)  # else this thread does it all before the other one wakes up
        try:
            return run(self, *arguments)
        finally:
            if threading.current_thread() is not threading.main_thread():
                helped.set()

    with np.errstate(divide="ignore"):
        for _ in range(RUNS - 1):
            evaluator.run(None, feeds)
        monkeypatch.setattr(Blocks, "_run", wait_for_the_other)
        assert np.isinf(evaluator.run(None, feeds)[0]).all()
    assert helped.is_set()
    helped.clear()
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        evaluator.run(None, feeds)


def test_inputs_of_another_type_later() -> None:
    text = "g (float[a] x, float[a] z) => (y) { a = Neg(x)  m = Mul(a, z)  y = Add(m, x) }"
    evaluator = ReferenceEvaluator(model(text))
    for kind in (np.float32, np.float64) * RUNS:
        x = np.arange(100, dtype=kind)
        np.testing.assert_array_equal(evaluator.run(None, {"x": x, "z": x})[0], -x * x + x)


def test_exact_runs_no_blocks() -> None:
    assert check("g (float[a,b,c,d] x) => (y) { a = Erf(x)  y = Mul(a, x) }", {"x": X}, exact=True) == []


def test_inputs_of_other_layouts_keep_theirs() -> None:
    """NumPy's results have the layout of the inputs, and a sum over them adds up in that order."""
    x = np.ascontiguousarray(RANDOM.standard_normal((4, 30, 31, 8)).astype(np.float32)).transpose(0, 3, 1, 2)
    check("g (float[a,b,c,d] x) => (y) { a = Mul(x, x)  b = Add(a, x)  y = ReduceMean(b) }", {"x": x})
