"""Plans: constant folding, writing into inputs, who owns what, errors that know their node, and the views of a plan."""

from __future__ import annotations

import collections
import contextlib
import copy
import gc
import itertools
import linecache
import pickle
import threading
import time
import tracemalloc
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper, parser
from onnx.reference.op_run import OpRun

from drawn.fuzz import inconsistent
from drawn.graphs import draw
from numbaops.engine.code import Code
from numbaops.engine.plan import FIRST_RUNS, HOT, Plan
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError, NumbaopsError
from numbaops.reference import ReferenceEvaluator
from numbaops.runtime import memory

pytestmark = pytest.mark.usefixtures("stage")


def model(text: str, opset: int = 17, ir_version: int = 8) -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "f" : 1]>\n{text}')


def f(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def run(text: str, feeds: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    evaluator = ReferenceEvaluator(model(text), **options)
    first = evaluator.run(None, feeds or {})
    again = evaluator.run(None, feeds or {})  # by another way, perhaps
    for one, other in zip(first, again, strict=True):
        assert_same(one, other) if isinstance(one, np.ndarray) else None
    return list(again)


def assert_same(got: Any, wanted: Any) -> None:
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


X = f(1, -2, 3)
WARM = FIRST_RUNS + HOT + 2
"""Runs after which a plan has made a variant for shapes that came each time."""

# --- folding ------------------------------------------------------------------------------------------------------------

FOLDS = """g (float[3] x) => (y) <float[3] k = {1, 2, 3}> {
    a = Mul(k, k)
    b = ReduceSum(a)
    unused = Exp(k)
    y = Add(x, b)
}"""


def notes(evaluator: ReferenceEvaluator) -> dict[str, str]:
    """What ``explain()`` says of each node, by its first output."""
    found = {}
    for line in evaluator.explain().splitlines():
        place, _, rest = line.strip().partition(": ")
        if place.isdigit():
            found[rest.partition(" = ")[0].split(",")[0]] = rest.partition("; ")[2]
    return found


def test_what_depends_on_constants_is_computed_at_load() -> None:
    evaluator = ReferenceEvaluator(model(FOLDS))
    told = notes(evaluator)
    assert (told["a"], told["b"], told["unused"], told["y"]) == ("folded", "folded", "unused", "frees x, b")
    assert_same(evaluator.run(None, {"x": X})[0], X + 14)
    plain = ReferenceEvaluator(model(FOLDS), fold_budget=0)
    assert "folded" not in plain.explain()
    assert_same(plain.run(None, {"x": X})[0], X + 14)


@pytest.mark.parametrize(("budget", "folded"), [(0, ""), (11, "b"), (12, "a"), (15, "a"), (16, "ab")])
def test_budget(budget: int, folded: str) -> None:
    """a takes 12 bytes and b 4. What does not fit is computed by each run, and so is what depends on it."""
    evaluator = ReferenceEvaluator(model(FOLDS.replace("a = Mul(k, k)", "a = Mul(k, k)  c = Shape(k)")), fold_budget=budget)
    told = notes(evaluator)
    expected = folded if budget != 11 else ""
    assert "".join(name for name in "ab" if told[name] == "folded") == expected
    assert_same(evaluator.run(None, {"x": X})[0], X + 14)


RANDOM_NODES = {
    "RandomNormal": ("RandomNormal <shape = [8]> ()", 17),
    "RandomNormalLike": ("RandomNormalLike (k)", 17),
    "RandomUniform": ("RandomUniform <shape = [8]> ()", 22),
    "RandomUniformLike": ("RandomUniformLike (k)", 1),
    "Bernoulli": ("Bernoulli (h)", 15),
    "Multinomial": ("Multinomial <sample_size = 40> (m)", 17),
    "Dropout-1": ("Dropout (k)", 1),
    "Dropout-6": ("Dropout (k)", 6),
    "Dropout-12": ("Dropout (k, h0, yes)", 12),
    "Dropout-13": ("Dropout (k, , yes)", 13),
}
RANDOM_PLACES = {
    "graph": "g () => (y) %(constants)s { y = %(node)s }",
    "branch": "g () => (y) %(constants)s { y = If (yes) <then_branch = t () => (a) { a = %(node)s }, "
    "else_branch = e () => (b) { b = Identity(k) }> }",
    "loop": "g () => (y) %(constants)s { y = Loop (one, , k) <body = b (int64 i, bool go, float[8] s) => (bool go, a) { a = %(node)s }> }",
    "scan": "g () => (y) %(constants)s { y = Scan <num_scan_inputs = 1, body = b (float s) => (a) { a = %(node)s }> (k) }",
    "map": "g () => (y) %(constants)s { q = SequenceConstruct(k)  z = SequenceMap (q) <body = b (float[8] s) => (a) { a = %(node)s }>  "
    "y = ConcatFromSequence <axis = 0> (z) }",
    "function": "g () => (y) %(constants)s { y = f.F (k, h, m, h0, yes) }\n"
    '<domain: "f", opset_import: ["" : %(opset)d]>\nF (k, h, m, h0, yes) => (y) { y = %(node)s }',
}
CONSTANTS = (
    "<float[24] k = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[8] h = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, "
    "float[1,4] m = {0, 0, 0, 0}, float h0 = {0.5}, bool yes = {1}, int64 one = {1}>"
)
FIRST_OPSETS = {"branch": 1, "loop": 1, "scan": 9, "map": 17, "function": 1, "graph": 1}


@pytest.mark.parametrize("place", RANDOM_PLACES)
@pytest.mark.parametrize("name", RANDOM_NODES)
def test_random_nodes_draw_anew_in_each_run(name: str, place: str) -> None:
    node, opset = RANDOM_NODES[name]
    if opset < FIRST_OPSETS[place]:
        pytest.skip(f"there is no {place} in opset {opset}")
    text = RANDOM_PLACES[place] % {"constants": CONSTANTS, "node": node, "opset": opset}
    evaluator = ReferenceEvaluator(model(text, opset))
    results = [evaluator.run(None, {})[0] for _ in range(4)]
    assert any(not np.array_equal(results[0], each) for each in results[1:])


@pytest.mark.parametrize(
    ("opset", "node"), [(6, "Dropout <is_test = 1> (k)"), (7, "Dropout (k)"), (13, "Dropout (k)"), (13, "Dropout (k, h0)")]
)
def test_dropout_that_infers_is_folded(opset: int, node: str) -> None:
    text = f"g () => (y) <float[3] k = {{1, 2, 3}}, float h0 = {{0.5}}> {{ y = {node} }}"
    assert notes(ReferenceEvaluator(model(text, opset)))["y"] == "folded"


def test_errors_in_folding_appear_when_a_run_comes_to_the_node() -> None:
    text = "g (float[3] x) => (y, z) <int64[2] s = {2, 2}, float[3] k = {1, 2, 3}> { y = Reshape(k, s)  z = Neg(x) }"
    evaluator = ReferenceEvaluator(model(text))
    assert_same(evaluator.run(["z"], {"x": X})[0], -X)
    for _ in range(2):
        with pytest.raises(InvalidValueError, match=r"Reshape-14 \(node 'y'\)"):
            evaluator.run(None, {"x": X})


def test_folding_gives_no_warnings() -> None:
    text = "g (float[2] x) => (y, z) <float[2] k = {0, -1}> { r = Reciprocal(k)  l = Log(k)  y = Add(x, r)  z = Add(x, l) }"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluator = ReferenceEvaluator(model(text))
        evaluator.explain()


@pytest.mark.parametrize("fold_budget", [0, 1 << 20])
@pytest.mark.parametrize(
    "text",
    [
        "g () => (y) <float[2] k = {1, 2}> { y = Neg(k) }",
        "g () => (y) <float[2] k = {1, 2}> { y = Identity(k) }",
        "g () => (k) <float[2] k = {1, 2}> { }",
        "g () => (y) { y = Constant <value_floats = [1.0, 2.0]> () }",
        "g () => (y) <int64[1] s = {2}> { y = ConstantOfShape(s) }",
        "g () => (y) <int64[1] s = {2}> { a = ConstantOfShape(s)  y = Identity(a) }",
        "g () => (y) <float[1] k = {1}, int64[1] s = {3}> { y = Expand(k, s) }",
        "g () => (y, z) <float[2] k = {1, 2}> { y = Neg(k)  z = Reshape <allowzero = 0> (y, t)  t = Shape(y) }".replace(
            "z = Reshape <allowzero = 0> (y, t)  t = Shape(y)", "t = Shape(y)  z = Reshape(y, t)"
        ),
        "g () => (y) <float[2] k = {1, 2}> { s = SequenceConstruct(k, k)  y = ConcatFromSequence <axis = 0> (s) }",
    ],
    ids=["computed", "identity", "initializer", "constant", "fill", "fill-and-identity", "expand", "view", "sequence"],
)
def test_constant_outputs_belong_to_the_caller(text: str, fold_budget: int) -> None:
    evaluator = ReferenceEvaluator(model(text), fold_budget=fold_budget)
    first = evaluator.run(None, {})
    wanted = [each.copy() for each in first]
    for each in first:
        each += 9
    for each, value in zip(evaluator.run(None, {}), wanted, strict=True):
        assert_same(each, value)


# --- writing into inputs, and ownership -----------------------------------------------------------------------------------

TYPES = ["float32", "float64", "int32", "int64"]
SIZES = [5, 2 * memory.SMALLEST // 4]
"""A small one, and one for which memory is recycled."""


def chain(rng: np.random.Generator, length: int) -> str:
    """Arithmetic over two inputs, a constant, views of values, and values that are used again."""
    names, nodes = ["x", "y", "k"], []
    for number in range(length):
        # new values most often, so that chains are long
        first, second = (names[-1 - min(int(rng.geometric(0.5)) - 1, len(names) - 1)] for _ in range(2))
        kind = rng.integers(8)
        if kind < 5:
            nodes.append(f"v{number} = {rng.choice(['Add', 'Sub', 'Mul', 'Max', 'Min'])}({first}, {second})")
        elif kind == 5:
            nodes.append(f"v{number} = {rng.choice(['Neg', 'Abs'])}({first})")
        else:
            nodes.append(f"v{number} = {rng.choice(['Identity(%s)', 'Transpose(%s)', 'Reshape(%s, flat)', 'Squeeze(%s)']) % first}")
        names.append(f"v{number}")
    outputs = [names[-1], *[str(rng.choice(names)) for _ in range(int(rng.integers(0, 3)))]]
    return f"g (float[n] x, float[m] y) => ({', '.join(outputs)}) <float k = {{3}}, int64[1] flat = {{-1}}> {{ {'  '.join(nodes)} }}"


@pytest.mark.parametrize(("seed", "size"), [*((seed, SIZES[0]) for seed in range(40)), *((seed, SIZES[1]) for seed in range(40, 44))])
def test_chains_give_what_plain_runs_give(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    made = model(chain(rng, 12))
    evaluators: dict[str, Any] = {}
    # types and shapes change from run to run of one evaluator, and come back
    for dtype, first, second in 3 * [("float32", size, size), ("float64", size, 1), ("float32", 1, size), ("int64", size, size)]:
        made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(3, dtype), "k"))
        evaluator = evaluators.setdefault(dtype, ReferenceEvaluator(made))
        feeds = {"x": rng.integers(-9, 9, first).astype(dtype), "y": rng.integers(-9, 9, second).astype(dtype)}
        before = {name: value.copy() for name, value in feeds.items()}
        with np.errstate(all="ignore"):
            results = evaluator.run(None, feeds)
            watched = evaluator.run(None, feeds, intermediate=True)
        for position, (each, output) in enumerate(zip(results, made.graph.output, strict=True)):
            assert_same(each, watched[output.name])
            assert each.flags.writeable
            assert not any(np.shares_memory(each, value) for value in (*feeds.values(), *results[:position]))
        for name, value in feeds.items():
            assert_same(value, before[name])
        for each in results:  # the next run must not see it
            each[...] = 77


@pytest.mark.parametrize("seed", range(3000, 3080))
def test_drawn_graphs_run_the_same_in_all_ways(seed: int) -> None:
    """Fast or looked on at, first run or second, folded or not, strict or not; and no output shares memory with anything."""
    with np.errstate(all="ignore"):
        drawn, feeds = draw(np.random.default_rng(seed))
        assert inconsistent(drawn, feeds) is None


TWICE = [
    pytest.param("y = Neg(x)  z = Add(y, y)", "z", [-2 * X], id="used-twice-by-one-node"),
    pytest.param("y = Neg(x)  a = Abs(y)  z = Add(y, a)", "z", [f(0, 4, 0)], id="used-by-two-nodes"),
    pytest.param("y = Neg(x)  z = Abs(y)", "y, z", [-X, f(1, 2, 3)], id="output-that-is-used"),
    pytest.param("y = Neg(x)  t = Identity(y)  z = Abs(y)", "t, z", [-X, f(1, 2, 3)], id="view-of-it-is-an-output"),
    pytest.param("y = Neg(x)  t = Identity(y)  z = Abs(t)  w = Add(y, z)", "w, z", [f(0, 4, 0), f(1, 2, 3)], id="view-dies-first"),
    pytest.param("y = Neg(x)", "y, y", [-X, -X], id="same-output-twice"),
    pytest.param("y = Neg(x)", "x, y, x", [X, -X, X], id="input-is-an-output"),
    pytest.param("y = Identity(x)", "y, x", [X, X], id="view-of-an-input"),
    pytest.param("y = Add(x, k)", "k, y, k", [f(5), X + 5, f(5)], id="initializer-is-an-output"),
    pytest.param("a, b = Split <axis = 0> (x, s)", "a, b", [X[:1], X[1:]], id="parts-of-an-input"),
    pytest.param("y = Neg(x)  a, b = Split <axis = 0> (y, s)  z = Neg(y)", "a, b, z", [-X[:1], -X[1:], X], id="parts-of-a-value"),
    pytest.param("y = Neg(x)  a, b = Split <axis = 0> (y, s)  z = Add(a, b)", "z, b", [f(1, -4), f(2, -3)], id="parts-one-broadcast"),
    pytest.param("y = Neg(k)  z = Add(y, x)", "z", [X - 5], id="smaller-than-the-result"),
    pytest.param("y = Neg(x)  q = SequenceConstruct(y, y)  z = SequenceAt(q, i)  w = Neg(z)", "w, z", [X, -X], id="through-a-sequence"),
    pytest.param("y = Neg(x)  o = Optional(y)  z = OptionalGetElement(o)  w = Neg(z)", "w, y", [X, -X], id="through-an-optional"),
]


@pytest.mark.parametrize(("nodes", "outputs", "wanted"), TWICE)
def test_values_with_many_users(nodes: str, outputs: str, wanted: list[Any]) -> None:
    text = f"g (float[3] x) => ({outputs}) <float[1] k = {{5}}, int64[2] s = {{1, 2}}, int64 i = {{1}}> {{ {nodes} }}"
    evaluator = ReferenceEvaluator(model(text))
    x = X.copy()
    for _ in range(3):
        results = evaluator.run(None, {"x": x})
        for position, (each, value) in enumerate(zip(results, wanted, strict=True)):
            assert_same(each, value)
            assert not any(np.shares_memory(each, other) for other in (x, *results[:position]))
        for each in results:
            each += 1
        assert_same(x, X)


def test_types_and_shapes_may_change_from_run_to_run() -> None:
    text = "g (float[n] x, float[m] y) => (w) { a = Add(x, y)  b = Mul(a, a)  w = Sub(b, a) }"
    evaluator = ReferenceEvaluator(model(text))
    values = [
        np.arange(size).astype(dtype).reshape(shape) for dtype in TYPES for size, shape in ((3, 3), (1, 1), (3, (3, 1)), (1, ()), (0, 0))
    ]
    for x, y in itertools.product(values, values):
        if x.dtype == y.dtype and not {x.shape, y.shape} >= {(3,), (0,)} and not {x.shape, y.shape} >= {(3, 1), (0,)}:
            total = x + y
            (got,) = evaluator.run(None, {"x": x, "y": y})
            assert_same(got, np.asarray(total * total - total))


@pytest.mark.parametrize("size", SIZES)
def test_feeds_of_every_kind_are_left_alone(size: int, tmp_path: Path) -> None:
    text = "g (float[n] x) => (y, x2) { a = Neg(x)  y = Abs(a)  x2 = Identity(x) }"
    plain = np.linspace(-2, 2, size, dtype=np.float32)
    plain.tofile(tmp_path / "x")
    frozen = plain.copy()
    frozen.setflags(write=False)

    class Mine(np.ndarray):
        pass

    feeds = {
        "read-only": frozen,
        "memory map": np.memmap(tmp_path / "x", np.float32, "r"),
        "writable memory map": np.memmap(tmp_path / "x", np.float32, "r+"),
        "subclass": plain.copy().view(Mine),
        "strided": np.repeat(plain, 2)[::2],
        "backwards": plain[::-1].copy()[::-1],
        "other byte order": plain.astype(">f4"),
        "unaligned": np.frombuffer(bytearray(b"." + plain.tobytes()), np.float32, offset=1),
    }
    evaluator = ReferenceEvaluator(model(text))
    for name, x in feeds.items():
        for _ in range(2):
            y, x2 = evaluator.run(None, {"x": x})
            np.testing.assert_array_equal(y, np.abs(plain), err_msg=name)
            np.testing.assert_array_equal(x2, plain, err_msg=name)
            assert type(y) is type(x2) is np.ndarray, name
            assert y.flags.writeable and x2.flags.writeable, name
            assert not np.shares_memory(x2, x), name
            x2[...] = y[...] = 0
            np.testing.assert_array_equal(x, plain, err_msg=name)


@pytest.mark.parametrize("x", [np.float32(-2), np.array(-2, np.float32), np.float64(-2)], ids=["scalar", "rank-0", "float64"])
def test_scalars(x: Any) -> None:
    (y,) = run("g (float x) => (y) { a = Neg(x)  b = Add(a, a)  y = Abs(b) }", {"x": x})
    assert_same(y, np.array(4, x.dtype))


@pytest.mark.parametrize(("op_types", "arrays"), [(["Neg", "Abs"], 1.1), (["Relu", "Neg"], 2.1), (["Neg", "Sigmoid", "Relu"], 3.1)])
def test_a_long_chain_needs_few_arrays_at_a_time(op_types: list[str], arrays: float) -> None:
    """One for what is written in place, two else; and Sigmoid takes one for itself."""
    size = 1 << 20
    nodes = "  ".join(f"v{number + 1} = {op_types[number % len(op_types)]}(v{number})" for number in range(30))
    evaluator = ReferenceEvaluator(model(f"g (double[n] v0) => (v30) {{ {nodes} }}"))
    x = np.full(size, 0.5)
    for _ in range(WARM):
        evaluator.run(None, {"v0": x})
    memory.trim()
    tracemalloc.start()
    try:
        (y,) = evaluator.run(None, {"v0": x})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < arrays * y.nbytes


# --- errors ---------------------------------------------------------------------------------------------------------------


def raising(error: BaseException) -> type[OpRun]:
    class Fails(OpRun):
        op_domain = "f"

        def _run(self, x: Any, **_: Any) -> Any:
            raise error

    return Fails


KINDS = [ValueError, TypeError, IndexError, KeyError, ZeroDivisionError, OverflowError, MemoryError, NotImplementedError, RuntimeError]
FAILS = "g (float[3] x) => (y) { w = Abs(x)  v = Neg(w)  y = f.Fails(v) }"


@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_keep_their_kind_and_their_cause(kind: type[Exception], slow: bool) -> None:
    evaluator = ReferenceEvaluator(model(FAILS), new_ops=[raising(kind("oh no"))])
    for _ in range(2):
        with pytest.raises(kind, match=r"f\.Fails|Fails.*node 'y'.*oh no.*float32\[3\]") as caught:
            evaluator.run(None, {"x": X}, intermediate=slow)
        error = caught.value
        assert isinstance(error, EvaluationError)
        assert (error.node_name, error.op_type) == ("y", "Fails")
        assert isinstance(error.__cause__, kind)


def test_errors_of_somebodys_own_class_stay_what_they_are() -> None:
    class Own(Exception):
        pass

    with pytest.raises(Own, match="oh no") as caught:
        ReferenceEvaluator(model(FAILS), new_ops=[raising(Own("oh no"))]).run(None, {"x": X})
    assert any("'y'" in note and "float32[3]" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
@pytest.mark.parametrize(
    ("text", "message", "kind"),
    [
        (
            "g (x) => (y) <float[2] k = {1, 2}> { w = Neg(x)  y = Add(w, k) }",
            r"Add-14 \(node 'y'\).*inputs: float32\[3\], float32\[2\]",
            ValueError,
        ),
        (
            "g (x) => (y) <int64[2] k = {2, 2}> { y = Reshape(x, k) }",
            r"Reshape-14 \(node 'y'\).*inputs: float32\[3\], int64\[2\]",
            ValueError,
        ),
        (
            "g (x) => (y) <int64[2] k = {0, 9}> { y = Gather(x, k) }",
            r"Gather-13 \(node 'y'\).*inputs: float32\[3\], int64\[2\]",
            NumbaopsError,
        ),
        (
            "g (x) => (y) { y = MatMul(x, w)  }".replace("y = MatMul(x, w)", "w = Concat <axis = 0> (x, x)  y = MatMul(x, w)"),
            r"MatMul-13 \(node 'y'\).*inputs: float32\[3\], float32\[6\]",
            ValueError,
        ),
    ],
    ids=["ufunc", "view", "gather", "matmul"],
)
def test_errors_name_node_version_and_inputs(text: str, message: str, kind: type[Exception], slow: bool) -> None:
    evaluator = ReferenceEvaluator(model(text))
    for _ in range(2):
        with pytest.raises(kind, match=message) as caught:
            evaluator.run(None, {"x": X}, intermediate=slow)
        assert isinstance(caught.value, NumbaopsError)
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (str(copy), copy.node_name, copy.op_type, copy.since_version) == (
            str(caught.value),
            caught.value.node_name,
            caught.value.op_type,
            caught.value.since_version,
        )
        assert isinstance(copy, kind)


def test_an_error_in_a_specialised_plan_is_that_of_the_node() -> None:
    """The variant that writes into inputs fails, then the plain one, whose error counts."""
    evaluator = ReferenceEvaluator(model("g (x, y) => (z) { a = Neg(x)  b = Abs(a)  c = Add(b, y)  z = Neg(c) }"))
    for _ in range(2):
        assert_same(evaluator.run(None, {"x": X, "y": X})[0], -(np.abs(X) + X))
    with pytest.raises(ValueError, match=r"Add-14 \(node 'c'\).*inputs: float32\[3\], float32\[2\]"):
        evaluator.run(None, {"x": X, "y": X[:2]})
    assert_same(evaluator.run(None, {"x": X, "y": X})[0], -(np.abs(X) + X))


# --- threads, profile, explain, names -------------------------------------------------------------------------------------


def test_threads_share_an_evaluator() -> None:
    evaluator = ReferenceEvaluator(
        model("g (x) => (y) <int64[1] s = {-1}> { a = Neg(x)  b = Mul(a, a)  c = Reshape(b, s)  d = Add(c, a)  y = Neg(d) }")
    )
    failures: list[Any] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        barrier.wait()
        for turn in range(50):
            x = rng.integers(-9, 9, 1 + turn).astype(TYPES[(number + turn) % 4])
            (y,) = evaluator.run(None, {"x": x})
            if y.dtype != x.dtype or not np.array_equal(y, x - x * x):
                failures.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []


WITH_BODY = """g (float[3] x, bool c) => (y) {
    a = Neg(x)
    b = f.F (a)
    y = If (c) <then_branch = t () => (float[3] p) { p = Add(a, b) }, else_branch = e () => (float[3] q) { q = Sub(a, b) }>
}
<domain: "f", opset_import: ["" : 17]> F (u) => (v) { v = Abs(u) }"""


def test_profile() -> None:
    evaluator = ReferenceEvaluator(model(WITH_BODY), profile=True)
    for _ in range(3):
        assert_same(evaluator.run(None, {"x": X, "c": np.array(True)})[0], np.abs(X) - X)
    rows = {each.name: each for each in evaluator.profile()}
    assert {name: (each.operator, each.kind, each.calls) for name, each in rows.items()} == {
        "a": ("Neg-13", "numbaops", 3),
        "b": ("f.F", "function", 3),
        "v": ("Abs-13", "numbaops", 3),
        "y": ("If-16", "control flow", 3),
        "p": ("Add-14", "numbaops", 3),
    }
    assert all(each.seconds > 0 and each.nbytes == 3 * X.nbytes for each in rows.values())
    with pytest.raises(EvaluationError, match="profile=True"):
        ReferenceEvaluator(model(WITH_BODY)).profile()


def test_explain() -> None:
    assert ReferenceEvaluator(model(WITH_BODY)).explain().splitlines() == [
        "0: a = Neg-13(x) [numbaops]; frees x",
        "1: b = f.F(a) [function]",
        "    0: v = Abs-13(u) [numbaops]; frees u",
        "2: y = If-16(c) [control flow]; frees c, a, b",
        "  then_branch() -> (p)",
        "    0: p = Add-14(a, b) [numbaops]; frees a, b",
        "  else_branch() -> (q)",
        "    0: q = Sub-14(a, b) [numbaops]; frees a, b",
    ]


def test_explain_shows_what_is_written_in_place() -> None:
    told = notes(ReferenceEvaluator(model("g (x) => (y) { a = Neg(x)  y = Abs(a) }")))
    assert told == {"a": "frees x", "y": "in place; frees a"}


def test_every_value_may_be_asked_for() -> None:
    evaluator = ReferenceEvaluator(
        model(
            "g (x) => (y) <float[1] k = {5}> { a, b = Split <axis = 0> (x, s)  c = Neg(a)  y = Add(c, k) }".replace(
                "<float[1] k = {5}>", "<float[1] k = {5}, int64[2] s = {1, 2}>"
            )
        )
    )
    wanted = {"x": X, "k": f(5), "a": X[:1], "b": X[1:], "c": -X[:1], "y": f(4)}
    for names in [*[[name] for name in wanted], ["y", "a", "y"], ["b", "x", "k"], []]:
        results = evaluator.run(names, {"x": X})
        assert len(results) == len(names)
        for name, each in zip(names, results, strict=True):
            assert_same(each, wanted[name])
            each += 1
    with pytest.raises(EvaluationError, match="Unable to find output name 'nothing'"):
        evaluator.run(["nothing"], {"x": X})


def test_only_what_is_asked_for_is_computed() -> None:
    evaluator = ReferenceEvaluator(model("g (x) => (y, z) { y = Neg(x)  z = f.Fails(x) }"), new_ops=[raising(ValueError("oh no"))])
    assert_same(evaluator.run(["y"], {"x": X})[0], -X)
    with pytest.raises(ValueError, match="oh no"):
        evaluator.run(None, {"x": X})


def test_initializers_that_are_inputs_may_be_overridden() -> None:
    made = model(
        "g (float[3] x, float[1] k) => (y, z) <float[1] k = {5}> { a = Neg(k)  b = Mul(a, k)  y = Add(x, b)  z = Identity(k) }",
        ir_version=3,
    )
    evaluator = ReferenceEvaluator(made)
    for _ in range(2):
        y, z = evaluator.run(None, {"x": X})
        assert_same(y, X - 25)
        assert_same(z, f(5))
        y, z = evaluator.run(None, {"x": X, "k": f(2)})
        assert_same(y, X - 4)
        assert_same(z, f(2))
        z += 1
    with pytest.raises(EvaluationError, match="'k' is an initializer and not an input"):
        ReferenceEvaluator(model("g (x) => (y) <float[1] k = {5}> { y = Add(x, k) }")).run(None, {"x": X, "k": f(2)})


def test_free_names_of_a_graph_are_fed() -> None:
    graph = model("g (float[3] x) => (y) { w = Neg(free)  y = Add(x, w) }").graph
    evaluator = ReferenceEvaluator(graph, opsets={"": 17})
    assert_same(evaluator.run(None, {"x": X, "free": f(1)})[0], X - 1)
    assert_same(evaluator.run(None, {"x": X, "free": f(2)})[0], X - 2)
    with pytest.raises(EvaluationError, match="Unable to find input 'free'"):
        evaluator.run(None, {"x": X})


def test_new_operators_see_what_they_saw_under_onnx() -> None:
    """One that writes into its input gets an array of its own, and nobody else sees that."""

    class Spoils(OpRun):
        op_domain = "f"

        def _run(self, x: Any, **_: Any) -> Any:
            x += 1
            return (x,)

    evaluator = ReferenceEvaluator(model("g (x) => (y, z, w) { y = Neg(x)  z = f.Spoils(y)  w = f.Spoils(x) }"), new_ops=[Spoils])
    x = X.copy()
    for _ in range(2):
        y, z, w = evaluator.run(None, {"x": x})
        assert_same(z, 1 - X)
        assert_same(w, X + 1)
        assert_same(x, X)
    del y


def test_a_feed_of_the_wrong_kind() -> None:
    evaluator = ReferenceEvaluator(model("g (float[3] x) => (y) { y = Neg(x) }"))
    with pytest.raises(InvalidTypeError, match="input 'x' is a list; declared: a tensor"):
        evaluator.run(None, {"x": [1.0, 2.0, 3.0]})
    with pytest.raises(EvaluationError, match="'z' is fed, but the graph has no such value"):
        evaluator.run(None, {"x": X, "z": X})


# --- what a second reader found -------------------------------------------------------------------------------------------


class Writes(OpRun):
    """Writes into its input."""

    op_domain = "my"
    calls = 0

    def _run(self, x: Any) -> tuple[Any]:
        type(self).calls += 1
        x += 100
        return (x.copy(),)


def writing_in_function() -> onnx.ModelProto:
    function = helper.make_function(
        "loc", "F", ["a"], ["b"], [helper.make_node("Writes", ["a"], ["b"], domain="my")], [helper.make_opsetid("my", 1)]
    )
    nodes = [helper.make_node("F", ["x"], ["t"], domain="loc"), helper.make_node("Add", ["t", "t"], ["y"])]
    return whole(nodes, functions=[function])


def writing_in_branch() -> onnx.ModelProto:
    branches = [
        helper.make_graph(
            [helper.make_node("Writes", ["x"], [name], domain="my")], name, [], [helper.make_tensor_value_info(name, 1, None)]
        )
        for name in ("b1", "b2")
    ]
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    return whole(nodes)


def whole(nodes: list[Any], functions: Sequence[Any] = ()) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", 1, ["n"])], [info("y", 1, None)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1), helper.make_opsetid("loc", 1)]
    return helper.make_model(graph, functions=list(functions), opset_imports=imports, ir_version=10)


@pytest.mark.parametrize("made", [writing_in_function, writing_in_branch])
def test_feeds_are_kept_from_foreign_code_inside_functions_and_bodies(made: Any) -> None:
    x = np.zeros(2, np.float32)
    for _ in range(WARM):
        ReferenceEvaluator(made(), new_ops=[Writes]).run(None, {"x": x})
    assert x.tolist() == [0, 0]


def test_more_shapes_than_variants_are_not_compiled_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = ReferenceEvaluator(model("g (float[n] x) => (y) { a = Abs(x)  b = Neg(a)  y = Exp(b) }"))
    made: list[Any] = []
    compiled = Code._compiled
    monkeypatch.setattr(Code, "_compiled", lambda self: (made.append(1), compiled(self))[1])
    for _ in range(40):
        for size in range(1, 31):
            assert evaluator.run(None, {"x": np.zeros(size, np.float32)})[0].size == size
    assert len(made) < 150  # of 1200 runs


def test_a_type_that_depends_on_values_is_noticed_in_place() -> None:
    branches = [
        helper.make_graph(
            [helper.make_node("Identity", [name], [f"{name}1"])], name, [], [helper.make_tensor_value_info(f"{name}1", kind, None)]
        )
        for name, kind in (("b", onnx.TensorProto.BOOL), ("z", onnx.TensorProto.FLOAT))
    ]
    nodes = [
        helper.make_node("If", ["c"], ["t"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Transpose", ["t"], ["u"]),
        helper.make_node("Where", ["b", "u", "u"], ["v"]),
        helper.make_node("Equal", ["v", "v"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    inputs = [info("c", onnx.TensorProto.BOOL, []), info("b", onnx.TensorProto.BOOL, [2]), info("z", onnx.TensorProto.FLOAT, [2])]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", onnx.TensorProto.BOOL, None)])
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    feeds = {"b": np.array([True, False]), "z": np.array([1, 2], np.float32)}
    for _ in range(WARM):
        assert_same(evaluator.run(None, {"c": np.array(True), **feeds})[0], np.array([True, True]))
    assert_same(evaluator.run(None, {"c": np.array(False), **feeds})[0], np.array([True, True]))


@pytest.mark.parametrize("path", ["fast", "watched"])
def test_a_failed_run_keeps_no_values_alive(path: str) -> None:
    evaluator = ReferenceEvaluator(model("g (float[n] x, int64[m] i) => (y) { a = Neg(x)  y = Gather(a, i) }"), profile=path == "watched")
    gc.collect()
    gc.disable()
    try:
        x = np.zeros(1 << 16, np.float32)
        gone = weakref.ref(x)
        with contextlib.suppress(ValueError):
            evaluator.run(None, {"x": x, "i": np.array([1 << 20])})
        del x
        assert gone() is None
    finally:
        gc.enable()


def test_a_failing_feed_does_not_retire_the_variant() -> None:
    evaluator = ReferenceEvaluator(model("g (float[n] x, int64[m] i) => (y) { a = Neg(x)  b = Abs(a)  y = Gather(b, i) }"))
    good = {"x": np.ones(4, np.float32), "i": np.array([1])}
    for _ in range(WARM):
        evaluator.run(None, good)
    plan = evaluator._default_plan
    assert plan is not None
    entry = plan.entry
    with pytest.raises(ValueError, match="Gather"):
        evaluator.run(None, {**good, "i": np.array([9])})
    assert plan.entry is entry


def test_folded_values_that_nothing_takes_are_dropped() -> None:
    folds = "a = ConstantOfShape(n)  b = Exp(a)  c = Neg(b)  s = ReduceSum<keepdims = 0>(c)"
    text = f"g (float x) => (y) <int64[1] n = {{100000}}> {{ {folds}  y = Add(x, s) }}"
    evaluator = ReferenceEvaluator(model(text), fold_budget=1 << 20)
    assert evaluator.run(None, {"x": np.array(0, np.float32)})[0] == -100000
    plan = evaluator._default_plan
    assert plan is not None
    assert set(plan.constants) == {"n", "s"}
    assert evaluator._budget.left == (1 << 20) - 4


def test_a_branch_that_is_not_taken_is_not_prepared() -> None:
    branches = [
        helper.make_graph([helper.make_node("Neg", ["x"], [name])], name, [], [helper.make_tensor_value_info(name, 1, None)])
        for name in ("t", "e")
    ]
    nodes = [
        helper.make_node("Not", ["x_is_empty"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    made = whole(nodes)
    made.graph.initializer.append(numpy_helper.from_array(np.array(False), "x_is_empty"))
    evaluator = ReferenceEvaluator(made)
    assert_same(evaluator.run(None, {"x": np.ones(2, np.float32)})[0], -np.ones(2, np.float32))
    graphs = evaluator.rt_nodes_[1].graphs
    assert ["body_plan" in graphs[name].__dict__ for name in ("then_branch", "else_branch")] == [True, False]


def test_strict_checks_identity_too() -> None:
    import ml_dtypes

    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 16, [1])], [helper.make_tensor_value_info("y", 16, [1])])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 1)], ir_version=3)
    with pytest.raises(TypeError, match="Identity-1"):
        ReferenceEvaluator(made, strict=True).run(None, {"x": np.ones(1, ml_dtypes.bfloat16)})


def test_verbose_may_be_set_later_and_log_overridden(capsys: pytest.CaptureFixture[str]) -> None:
    class Logging(ReferenceEvaluator):
        seen = 0

        def _log(self, level: int, pattern: str, *args: Any) -> None:
            type(self).seen += 1

    text = "g (float[n] x) => (y) { y = Neg(x) }"
    x = np.ones(1, np.float32)
    Logging(model(text)).run(None, {"x": x})
    assert Logging.seen
    evaluator = ReferenceEvaluator(model(text))
    evaluator.run(None, {"x": x})
    assert capsys.readouterr().out == ""
    evaluator.verbose = 3
    evaluator.run(None, {"x": x})
    assert "Neg(x) -> y" in capsys.readouterr().out


def test_buffers_that_share_memory_are_refused() -> None:
    evaluator = ReferenceEvaluator(model("g (float[n] x) => (y, z) { y = Neg(x)  z = Abs(x) }"))
    buffer = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="share memory"):
        evaluator.run(None, {"x": np.ones(2, np.float32)}, outputs=[buffer, buffer])


def test_a_default_dictionary_is_no_feed_for_wrong_names() -> None:
    evaluator = ReferenceEvaluator(model("g (float[n] x) => (y) { y = Neg(x) }"))
    feeds = collections.defaultdict(lambda: np.zeros(1, np.float32), X=np.ones(1, np.float32))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="'x'"):
            evaluator.run(None, feeds)
    assert set(feeds) == {"X"}


def test_string_feeds_of_fixed_width_do_not_cut() -> None:
    evaluator = ReferenceEvaluator(model("g (string[n] x, int64[m] i, string[m] u) => (y) { y = ScatterElements(x, i, u) }"))
    (y,) = evaluator.run(None, {"x": np.array(["a", "b"]), "i": np.array([0]), "u": np.array(["longer"], object)})
    assert y.tolist() == ["longer", "b"]


class Tagged(ReferenceEvaluator):
    def __init__(self, proto: Any, tag: int) -> None:
        super().__init__(proto)
        self.tag = tag


@pytest.mark.parametrize("way", ["copy", "pickle"])
def test_subclasses_with_arguments_of_their_own_are_copied(way: str) -> None:
    evaluator = Tagged(model("g (float[n] x) => (y) { y = Neg(x) }"), 7)
    evaluator.run(None, {"x": X})
    again = copy.copy(evaluator) if way == "copy" else pickle.loads(pickle.dumps(evaluator))
    assert (type(again), again.tag) == (Tagged, 7)
    assert_same(again.run(None, {"x": X})[0], -X)


def test_failing_runs_leave_nothing_behind() -> None:
    evaluator = ReferenceEvaluator(model("g (float[n] x, int64[m] i) => (y) { a = Neg(x)  b = Abs(a)  y = Gather(b, i) }"))
    feeds = {"x": X, "i": np.array([9])}
    for _ in range(WARM):
        with pytest.raises(ValueError, match="Gather"):
            evaluator.run(None, feeds)
    before = len(linecache.cache)
    for _ in range(3 * WARM):
        with pytest.raises(ValueError, match="Gather"):
            evaluator.run(None, feeds)
    assert len(linecache.cache) <= before + 1


@pytest.mark.parametrize("budget", [-1, 1.5, "a", None, True], ids=repr)
def test_fold_budget_is_checked(budget: Any) -> None:
    with pytest.raises(ValueError, match="fold_budget"):
        ReferenceEvaluator(model("g (float[n] x) => (y) { y = Neg(x) }"), fold_budget=budget)


def test_outputs_and_intermediate_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="intermediate"):
        ReferenceEvaluator(model("g (float[n] x) => (y) { y = Neg(x) }")).run(None, {"x": X}, intermediate=True, outputs=[X.copy()])


class Counts(OpRun):
    """Counts its calls."""

    op_domain = "my"
    calls = 0

    def _run(self, x: Any) -> tuple[Any]:
        type(self).calls += 1
        return (x.copy(),)


def test_code_of_the_caller_in_a_function_runs_once_also_where_a_run_fails() -> None:
    function = helper.make_function(
        "loc", "F", ["a"], ["b"], [helper.make_node("Counts", ["a"], ["b"], domain="my")], [helper.make_opsetid("my", 1)]
    )
    nodes = [
        helper.make_node("F", ["x"], ["t"], domain="loc"),
        helper.make_node("Neg", ["t"], ["u"]),
        helper.make_node("Abs", ["u"], ["v"]),
        helper.make_node("Gather", ["v", "i"], ["y"]),
    ]
    made = whole(nodes, functions=[function])
    made.graph.input.append(helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ["m"]))
    evaluator = ReferenceEvaluator(made, new_ops=[Counts])
    Counts.calls = 0
    for _ in range(WARM):
        evaluator.run(None, {"x": X, "i": np.array([0])})
    with pytest.raises(ValueError, match="Gather"):
        evaluator.run(None, {"x": X, "i": np.array([9])})
    assert Counts.calls == WARM + 1


def test_a_first_run_frees_values_at_their_last_use() -> None:
    size = 1 << 20
    nodes = "  ".join(f"v{number + 1} = Relu(v{number})" for number in range(20))
    evaluator = ReferenceEvaluator(model(f"g (double[n] v0) => (v20) {{ {nodes} }}"))
    x = np.full(size, 0.5)
    memory.trim()
    tracemalloc.start()
    try:
        (y,) = evaluator.run(None, {"v0": x})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3.2 * y.nbytes


def test_learning_that_fails_is_not_tried_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    usual = Plan._specialise
    monkeypatch.setattr(Plan, "_specialise", lambda self, *args: (tried.append(1), usual(self, *args))[1])
    evaluator = ReferenceEvaluator(model("g (float[n] x, int64[m] i) => (y) { a = Neg(x)  b = Abs(a)  y = Gather(b, i) }"))
    for _ in range(4 * WARM):
        with pytest.raises(ValueError, match="Gather"):
            evaluator.run(None, {"x": X, "i": np.array([9])})
    assert 1 <= len(tried) <= 5


class Slow(OpRun):
    """Takes 30 ms."""

    op_domain = "my"

    def _run(self, x: Any) -> tuple[Any]:
        time.sleep(0.03)
        return (x.copy(),)


def test_the_time_of_a_function_is_without_that_of_its_nodes() -> None:
    function = helper.make_function(
        "loc", "F", ["a"], ["b"], [helper.make_node("Slow", ["a"], ["b"], domain="my")], [helper.make_opsetid("my", 1)]
    )
    evaluator = ReferenceEvaluator(whole([helper.make_node("F", ["x"], ["y"], domain="loc")], [function]), new_ops=[Slow], profile=True)
    evaluator.run(None, {"x": X})
    seconds = {node.operator.rpartition(".")[2].partition("-")[0]: node.seconds for node in evaluator.profile()}
    assert seconds["Slow"] >= 0.03 > seconds["F"] + 0.01
