"""Functions of float32 in kernels, activations and Softmax by them, and 16-bit floats by blocks, beside float64 and NumPy.

The file passes compiled, with ``NUMBA_DISABLE_JIT=1`` (without what only compiled code has) and with ``NUMBA_BOUNDSCHECK=1``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numba import config
from onnx import TensorProto, helper

import numbaops
from numbaops.kernels import activations, functions, softmax
from numbaops.ops import _maps, _softmax, _unary, elementwise

compiled = pytest.mark.skipif(config.DISABLE_JIT, reason="they are for compiled code")
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")

Array = Any
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
INF, NAN = math.inf, math.nan
SMALLEST, TINY, HUGE = 2.0**-149, 2.0**-126, float(np.finfo(np.float32).max)
BORDERS = (0.0, -0.0, INF, -INF, NAN, SMALLEST, -SMALLEST, TINY, -TINY, HUGE, -HUGE, 1.0, -1.0, 88.72, 88.73, -87.3, -87.4, -103.9, -104.1)

erf = np.vectorize(math.erf, otypes=[float])
erfc = np.vectorize(math.erfc, otypes=[float])


def patterns(step: int) -> Array:
    """Every so many of all float32, and borders."""
    words = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([words.view(np.float32), np.array(BORDERS, np.float32)])


def units(found: Array, exact: Array) -> float:
    """The largest distance in units of the last place of the float32 next to the exact result."""
    near = exact.astype(np.float32)
    finite = np.isfinite(near)
    assert np.array_equal(np.isnan(found), np.isnan(near))
    assert np.array_equal(found[~finite], near[~finite], equal_nan=True)
    return float((np.abs(found[finite] - exact[finite]) / np.spacing(np.abs(near[finite]))).max(initial=0))


def normal(x: Array) -> Array:
    return 0.5 * erfc(-x * math.sqrt(0.5))


def logistic(x: Array) -> Array:
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


# the function, what it is in float64, the arguments that it takes, units that it may be off
FUNCTIONS: list[tuple[str, Callable[[Array], Array], tuple[float, float], float]] = [
    ("exp", np.exp, (-INF, INF), 1.1),
    ("exp_of_negative", lambda x: np.where(x < -87.3365, 0, np.exp(x)), (-INF, 0), 1.1),
    ("expm1_of_negative", np.expm1, (-INF, 0), 1),
    ("log1p_of_fraction", np.log1p, (0, 1), 2.1),
    ("tanh", np.tanh, (-INF, INF), 2.7),
    ("sigmoid", logistic, (-INF, INF), 2.5),
    ("softplus", softplus, (-INF, INF), 2.8),
    ("erf", erf, (-INF, INF), 2.6),
    ("normal_distribution", normal, (-INF, INF), 5.5),
]


@pytest.fixture(scope="module")
def over() -> Callable[[str, Array], Array]:
    """A function over an array, as vectors or, an element or a few at a time, without."""
    made: dict[str, Any] = {}

    def call(name: str, x: Array) -> Array:
        if name not in made:
            function = getattr(functions, name)

            def each(value: Any, alpha: Any, beta: Any) -> Any:
                return function(value)

            each.__name__ = f"tested_{name}"
            made[name] = activations.make_map(functions.kernel("float32(float32, float32, float32)", key=(name,))(each))
        out = np.empty_like(x)
        made[name](x, 0.0, 0.0, out)
        return out

    return call


@compiled
@quiet
@pytest.mark.parametrize(("name", "exact", "limits", "most"), FUNCTIONS, ids=[row[0] for row in FUNCTIONS])
def test_function(
    over: Callable[[str, Array], Array], name: str, exact: Callable[[Array], Array], limits: tuple[float, float], most: float
) -> None:
    x = patterns(4999)
    x = x[~((x < limits[0]) | (x > limits[1]))]
    found = over(name, x)
    assert units(found, exact(x.astype(np.float64))) <= most
    for size in (1, 5, 17):
        part = np.concatenate([over(name, x[start : start + size]) for start in range(0, 400, size)])
        assert np.array_equal(part.view(np.uint32), found[: part.size].view(np.uint32))


@compiled
@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_zero_keeps_its_sign(over: Callable[[str, Array], Array], name: str) -> None:
    found = over(name, np.array([0.0, -0.0], np.float32))
    assert np.array_equal(np.signbit(found), [False, True])
    assert not found.any()


# the operator, its function and attributes, the formula in float64
MAPS: list[tuple[str, Callable[[Array], Array], Callable[[Array], Array]]] = [
    ("Celu", lambda x: _unary.celu(x, alpha=1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0) / 1.5))),
    ("Celu of negative alpha", lambda x: _unary.celu(x, alpha=-20.0), lambda x: np.maximum(x, 0) - 20 * np.expm1(np.minimum(x, 0) / -20)),
    ("Elu", lambda x: _unary.elu(x, alpha=0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(np.minimum(x, 0)))),
    ("Erf", _unary.error_function, erf),
    ("Exp", _unary.exponential, np.exp),
    ("Gelu", _unary.gelu(), lambda x: x * normal(x)),
    ("Gelu by tanh", _unary.gelu("tanh"), lambda x: x * logistic(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ("HardSigmoid", lambda x: _unary.hard_sigmoid(x, alpha=0.3, beta=0.4), lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    ("HardSwish", _unary.hard_swish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("LeakyRelu", lambda x: _unary.leaky_relu(x, alpha=0.1), lambda x: np.where(x < 0, 0.1 * x, x)),
    ("LeakyRelu above 1", lambda x: _unary.leaky_relu(x, alpha=2.0), lambda x: np.where(x < 0, 2 * x, x)),
    ("Mish", _unary.mish, lambda x: x * np.tanh(softplus(x))),
    ("Relu", _unary.relu, lambda x: np.where(x < 0, 0, x)),
    ("Selu", lambda x: _unary.selu(x, alpha=1.5, gamma=2.0), lambda x: 2 * np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0)))),
    ("Sigmoid", _unary.sigmoid, logistic),
    ("Softplus", _unary.softplus, softplus),
    ("Softsign", _unary.softsign, lambda x: x / (1 + np.abs(x))),
    ("Swish", lambda x: _unary.swish(x, alpha=1.5), lambda x: x * logistic(1.5 * x)),
    ("Tanh", _unary.tanh, np.tanh),
]
OVER_ALL = pytest.mark.parametrize(("function", "exact"), [row[1:] for row in MAPS], ids=[row[0] for row in MAPS])


@quiet
@OVER_ALL
@pytest.mark.parametrize("size", [40, 5003])
def test_map(function: Callable[[Array], Array], exact: Callable[[Array], Array], size: int) -> None:
    x = (np.random.default_rng(size).standard_normal(size) * 4).astype(np.float32)
    x[:15] = [0, SMALLEST, -SMALLEST, TINY, -TINY, 1e-5, -1e-5, 30, -30, 60, -60, 80, -80, 17, -17]
    found, right = function(x), exact(x.astype(np.float64))
    assert found.dtype == x.dtype
    assert found.shape == x.shape
    # the formula may cancel most of its digits; what the kernels do about that is for the functions' tests
    assert (np.abs(found - right) <= 1e-6 * np.maximum(np.abs(right), np.abs(x)) + 32 * SMALLEST).all()
    specials = np.array([NAN, HUGE, INF, -INF, -HUGE, -1e10], np.float32)
    found, right = function(np.resize(specials, size))[:6], function(specials)
    assert np.allclose(found, right, rtol=1e-6, atol=0, equal_nan=True)
    assert np.isnan(found[0])


@OVER_ALL
def test_layouts(function: Callable[[Array], Array], exact: Callable[[Array], Array]) -> None:
    x = np.random.default_rng(0).standard_normal((30, 40, 2)).astype(np.float32)
    right = function(x)
    for each in (np.asfortranarray(x), x[::-1], np.broadcast_to(x[:1], x.shape), x[..., :1]):
        found = function(each)
        assert found.shape == each.shape
        assert np.array_equal(found, function(each.copy("C")))
    assert np.array_equal(function(x.transpose(2, 0, 1)), right.transpose(2, 0, 1))


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
@quiet
@OVER_ALL
def test_map_of_halves(function: Callable[[Array], Array], exact: Callable[[Array], Array], dtype: Any) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)[:: 61 if config.DISABLE_JIT else 1]
    found, right = function(x), function(x.astype(np.float32)).astype(dtype)
    assert found.dtype == dtype
    found, right = found.astype(np.float32), right.astype(np.float32)
    if dtype == FLOAT16 and function in (_unary.exponential, _unary.tanh):  # NumPy's own are one unit off now and then
        finite = np.isfinite(right)
        assert (np.abs(found - right)[finite] <= 2.0**-10 * np.abs(right)[finite] + 2.0**-24).all()
        found, right = found[~finite], right[~finite]
    assert np.array_equal(found, right, equal_nan=True)


BINARY: list[tuple[str, Callable[..., Array], Callable[..., Array]]] = [
    ("Add", lambda a, b: _maps.by_blocks(np.add, a, b), np.add),
    ("Sub", lambda a, b: _maps.by_blocks(np.subtract, a, b), np.subtract),
    ("Mul", lambda a, b: _maps.by_blocks(np.multiply, a, b), np.multiply),
    ("Div", elementwise.divide, np.divide),
    ("Max", elementwise._folded(np.maximum), np.maximum),
    ("Sum", elementwise.total, np.add),
]


@quiet
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize(("function", "numpy"), [row[1:] for row in BINARY], ids=[row[0] for row in BINARY])
def test_two_halves(function: Callable[..., Array], numpy: Callable[..., Array], dtype: Any) -> None:
    codes = np.random.default_rng(1).integers(0, 1 << 16, (2, 3, 200 if config.DISABLE_JIT else 4000), dtype=np.uint16)
    a, b = codes.view(dtype)
    for other in (b, b[0], b[:, :1], b[0, 0], np.asfortranarray(b)):
        for first, second in ((a, other), (other, a)):
            found, right = function(first, second), numpy(first, second)
            assert found.dtype == dtype
            assert np.array_equal(found.astype(np.float32), right.astype(np.float32), equal_nan=True)


@quiet
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_halves_in_an_evaluator(dtype: Any) -> None:
    kind = TensorProto.FLOAT16 if dtype == FLOAT16 else TensorProto.BFLOAT16
    nodes = [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Mul", ["c", "b"], ["d"]), helper.make_node("Sqrt", ["d"], ["e"])]
    values = {name: helper.make_tensor_value_info(name, kind, [None]) for name in "abe"}
    model = helper.make_model(helper.make_graph(nodes, "g", [values["a"], values["b"]], [values["e"]]))
    evaluator = numbaops.ReferenceEvaluator(model)
    a, b = np.random.default_rng(2).integers(0, 1 << 16, (2, 5000), dtype=np.uint16).view(dtype)
    right = np.sqrt((a + b) * b)
    for size in (5000, 10):
        for _ in range(12):
            (found,) = evaluator.run(None, {"a": a[:size], "b": b[:size]})
            assert found.dtype == dtype
            assert np.array_equal(found.astype(np.float32), right[:size].astype(np.float32), equal_nan=True)
    with pytest.raises(numbaops.errors.NumbaopsError, match="element types"):
        evaluator.run(None, {"a": a, "b": b.astype(np.float32)})


# Softmax


def exact_softmax(x: Array, axis: int, logarithmic: bool) -> Array:
    wide = x.astype(np.float64)
    shifted = wide - wide.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return shifted - np.log(total) if logarithmic else np.exp(shifted) / total


SHAPES = [
    ((40, 33), 1),
    ((3, 1000), 1),
    ((2, 5, 300), 1),
    ((2, 70, 20), 1),
    ((50, 4, 3), 1),
    ((600, 7), 0),
    ((1, 2000), 0),
    ((300, 2, 1), 1),
]


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=[f"{shape} along {axis}" for shape, axis in SHAPES])
@pytest.mark.parametrize("logarithmic", [False, True], ids=["Softmax", "LogSoftmax"])
def test_softmax(shape: tuple[int, ...], axis: int, logarithmic: bool) -> None:
    x = (np.random.default_rng(3).standard_normal(shape) * 5).astype(np.float32)
    function = _softmax.log_softmax_13 if logarithmic else _softmax.softmax_13
    for given in (x, np.asfortranarray(x), x[::-1]):
        found, right = function(given, axis=axis), exact_softmax(given, axis, logarithmic)
        assert found.dtype == np.float32
        assert np.abs(found - right).max() <= 4e-6 * np.abs(right).max()
        if not logarithmic:
            assert np.abs(found.sum(axis, dtype=np.float64) - 1).max() <= (3e-6 if config.DISABLE_JIT else 5e-7)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize(("shape", "axis"), SHAPES[:3], ids=[f"{shape} along {axis}" for shape, axis in SHAPES[:3]])
def test_softmax_of_halves(shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    x = np.random.default_rng(4).standard_normal(shape).astype(dtype)
    step = 2.0**-11 if dtype == FLOAT16 else 2.0**-8
    for function, logarithmic, units_off in (
        (_softmax.softmax_13, False, 10),  # each step is rounded, also what exp takes
        (_softmax.log_softmax_13, True, 1),
    ):
        found, right = function(x, axis=axis), exact_softmax(x, axis, logarithmic)
        assert found.dtype == dtype
        assert (np.abs(found.astype(np.float64) - right) <= units_off * step * np.abs(right) + 2e-7).all()


@quiet
@pytest.mark.parametrize("width", [1, 20], ids=["rows", "columns"])
@pytest.mark.parametrize("function", [_softmax.softmax_13, _softmax.log_softmax_13], ids=["Softmax", "LogSoftmax"])
def test_softmax_of_specials(function: Callable[..., Array], width: int) -> None:
    x = np.zeros((6, 100, width), np.float32)
    x[1] = -INF
    x[2, 1:] = -INF
    x[3, 50] = NAN
    x[4, 50] = INF
    x[5, ::2] = HUGE
    x[5, 1::2] = -HUGE
    x = np.concatenate([x, np.where(np.isnan(x), -x, x)])
    found = function(x, axis=1)
    small = np.stack([function(each[None], axis=1)[0] for each in x[:, :, :1]])
    assert small.shape[1] < _maps.KERNEL_FROM
    assert np.array_equal(found, np.broadcast_to(small, x.shape), equal_nan=True) or np.allclose(
        found, np.broadcast_to(small, x.shape), rtol=1e-6, atol=0, equal_nan=True
    )


@compiled
@pytest.mark.parametrize("kernel", [softmax.softmax_rows["float32"], softmax.log_softmax_rows], ids=["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("count", [7, 777])
def test_rows_do_not_depend_on_their_neighbours(kernel: Any, count: int) -> None:
    x = np.random.default_rng(5).standard_normal(500 * count).astype(np.float32)
    whole, parts = np.empty_like(x), np.empty_like(x)
    kernel(x, count, whole, 0, 500)
    for first, last in ((0, 1), (1, 20), (20, 337), (337, 500)):
        kernel(x, count, parts, first, last)
    assert np.array_equal(whole, parts)


@compiled
@pytest.mark.parametrize("count", [1, 5, 300, 100_000])
def test_sum_of_equal_numbers(count: int) -> None:
    for shape in ((2, count), (2, count, 9)):
        found = _softmax.softmax_13(np.full(shape, 3, np.float32), axis=1)
        assert (found == np.float32(1 / count)).all()
