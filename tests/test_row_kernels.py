"""The kernels of rows: operators by them beside the same operators by NumPy, over shapes, axes, types and threads.

The file passes compiled, with ``NUMBA_DISABLE_JIT=1`` (only the kernels that need no vectors) and with ``NUMBA_BOUNDSCHECK=1``.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numba import config
from onnx import TensorProto, helper, numpy_helper

import numbaops
from numbaops.kernels import rows as kernels
from numbaops.ops import _rows, normalization, reduction
from numbaops.runtime import threads

COMPILED = not config.DISABLE_JIT
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16, FLOAT32, FLOAT64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
TYPES = (FLOAT32, FLOAT16, BFLOAT16)
NAN, INF = math.nan, math.inf
LEAVES = {leaf.op_type: leaf for leaf in (*reduction.LEAVES, *normalization.LEAVES)}  # the newest version of each

needs_vectors = pytest.mark.skipif(not COMPILED, reason="these kernels are of vectors")


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Has kernels serve for all arrays, or for none; parts are small."""
    monkeypatch.setattr(kernels, "AVAILABLE", True)
    monkeypatch.setattr(_rows, "PART", 1100)
    monkeypatch.setattr(_rows, "PART_ROWS", 40)
    _rows._reach.cache_clear()

    def choose(by_kernels: bool) -> None:
        for module, name in ((_rows, "JIT_FROM"), (_rows, "FOLD_FROM"), (reduction, "JIT_FROM")):
            monkeypatch.setattr(module, name, 1 if by_kernels else 1 << 60)

    yield choose
    _rows._reach.cache_clear()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were asked for."""
    seen: list[str] = []

    def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            seen.append(name)
            return function(*arguments)

        return call

    for name in ("fold_rows", "fold_columns", "log_sums", "place_columns", "accumulate", "normalize_runs", "scale_runs"):
        monkeypatch.setattr(kernels, name, recorded(name, getattr(kernels, name)))
    return seen


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = FLOAT32) -> Any:
    """Small integers, many of them equal, so that sums are exact."""
    return rng.integers(-3, 4, shape).astype(dtype)


def reduced(op_type: str, x: Any, **attributes: Any) -> Any:
    return LEAVES[op_type].function(**attributes)(x)


def assert_same(got: Any, want: Any, text: Any, **tolerance: float) -> None:
    """Equal in type, shape and value, or near; NaN is NaN."""
    assert got.dtype == want.dtype and got.shape == want.shape, text
    wide = FLOAT64 if got.dtype.kind in "fV" else got.dtype
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), err_msg=str(text), **({"rtol": 0, "atol": 0} | tolerance))


def unit(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


# Reductions

SHAPES = [(70,), (1111,), (5000,), (3, 5, 70), (2, 1, 33, 17), (9, 600), (90, 20), (40, 2, 1, 16), (8, 3, 4), (2, 3), (1, 1, 50)]
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSum")


HALVES = [("ReduceSum", FLOAT16), ("ReduceSum", BFLOAT16), ("ReduceMax", FLOAT16), ("ReduceMax", BFLOAT16), ("ReduceLogSumExp", FLOAT16)]
"""Some, for each has kernels of its own to be compiled."""


@needs_vectors
@pytest.mark.parametrize(("op_type", "dtype"), [*((each, FLOAT32) for each in (*REDUCTIONS, "ReduceLogSumExp")), *HALVES], ids=str)
def test_reductions(way: Any, served: list[str], op_type: str, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    cases = 0
    for shape in SHAPES:
        x = whole(rng, shape, dtype)
        if op_type == "ReduceLogSum":
            x = abs(x)
        if op_type == "ReduceProd":
            x = np.where(rng.random(shape) < 0.99, np.sign(x) + (x == 0), 2).astype(dtype)
        for count in range(1, len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), count):
                attributes = {"axes": rng.permutation(axes).tolist(), "keepdims": int(rng.integers(2))}
                way(False)
                want = reduced(op_type, x, **attributes)
                way(True)
                assert_same(reduced(op_type, x, **attributes), want, (shape, attributes), rtol=2e-6 if dtype == FLOAT32 else unit(dtype))
                cases += 1
    assert len(served) > cases // 4


@needs_vectors
@pytest.mark.parametrize(
    ("op_type", "dtype"), [*((f"Reduce{name}", FLOAT32) for name in ("Max", "Min", "Sum", "L1", "LogSumExp")), *HALVES], ids=str
)
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_of_what_is_not_finite(way: Any, served: list[str], op_type: str, dtype: Any, axis: int) -> None:
    rng = np.random.default_rng(11)
    x = whole(rng, (140, 140), dtype)
    for row in range(139):  # the last has none
        values = [[NAN], [INF], [-INF], [INF, -INF], [NAN, INF], [NAN, -INF], [-0.0]][row % 7]
        places = rng.choice(140, len(values), replace=False)
        x[(row, places) if axis else (places, row)] = values
    x[(0,) if axis else (slice(None), 0)] = -INF
    for y in (x, -x):
        way(False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = reduced(op_type, y, axes=[axis])
        way(True)
        assert_same(reduced(op_type, y, axes=[axis]), want, axis, rtol=2e-6 if dtype == FLOAT32 else unit(dtype))
    assert len(served) == 2 or (op_type == "ReduceLogSumExp" and axis == 0)


@needs_vectors
@pytest.mark.parametrize("shape", [(6, 100_000), (100_000, 17), (3, 20_000, 16), (200_000,)], ids=str)
def test_sums_are_as_exact_as_pairwise_ones(way: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(5).lognormal(0, 2, shape).astype(np.float32)
    axis = x.shape.index(max(shape))
    way(True)
    for op_type, terms in (("ReduceSum", x), ("ReduceL1", x), ("ReduceSumSquare", x.astype(float) ** 2)):
        want = np.apply_along_axis(math.fsum, axis, terms)
        got = reduced(op_type, x, axes=[axis], keepdims=0)
        assert np.all(abs(got - want) <= 2**-23 * want), op_type  # one unit; a pairwise sum of so many may be off by 20


@needs_vectors
def test_a_far_mean(way: Any) -> None:
    x = (10000 + np.random.default_rng(9).normal(size=(8, 3000))).astype(np.float32)
    wide = x.astype(float)
    want = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    way(True)
    ones, zeros = np.ones(3000, np.float32), np.zeros(3000, np.float32)
    got = normalization.layer_normalization(x, ones, zeros, axis=1, epsilon=0, stash_type=1)[0]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=6e-4)  # the mean is off by half a unit of it


@needs_vectors
@pytest.mark.parametrize("value", [3e38, 1e19, 1e-20, 1e-45, -0.0], ids=str)
def test_extreme_values(way: Any, value: float) -> None:
    x = np.full((3, 200), value, np.float32)
    for op_type in ("ReduceMean", "ReduceL1", "ReduceMax", "ReduceLogSumExp", "ReduceProd"):
        way(False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = reduced(op_type, x, axes=[1])
        way(True)
        got = reduced(op_type, x, axes=[1])
        if op_type == "ReduceMean" and value == 3e38:  # NumPy's sum overflows
            want = np.full((3, 1), 3e38, np.float32)
            assert np.isinf(got).all() or np.array_equal(got, want)
        else:
            assert_same(got, want, op_type, rtol=1e-6)


def test_known_axes() -> None:
    """Axes that are constant are looked at once, for any shapes and types that come; large arrays, small ones, none."""
    axes = numpy_helper.from_array(np.array([-1]), "axes")
    node = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)
    x_info, y_info = (
        helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    )
    model = helper.make_model(helper.make_graph([node], "g", [x_info], [y_info], [axes]), opset_imports=[helper.make_opsetid("", 18)])
    evaluator = numbaops.ReferenceEvaluator(model)
    for shape, dtype in itertools.product([(2, 3), (2, 0, 3), (4,), (200, 300), (3, 2), (4, 100, 200)], (np.float32, np.float64)):
        x = np.random.default_rng(1).normal(size=shape).astype(dtype)
        (got,) = evaluator.run(None, {"x": x})
        assert_same(np.asarray(got), np.asarray(x.astype(float).mean(-1)).astype(dtype), shape, rtol=1e-5, atol=1e-6)
    with pytest.raises(numbaops.errors.InvalidValueError, match=r"axes are \[-1\]; allowed: none for a tensor of rank 0"):
        evaluator.run(None, {"x": np.float32(1).reshape(())})


# Places and running totals


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_places(way: Any, served: list[str], op_type: str) -> None:
    rng = np.random.default_rng(7)
    for shape, axis in [((5, 16), 0), ((2, 9, 33), 1), ((2, 3, 4, 40), 1), ((3, 4, 600), 0), ((1, 17), 0)]:
        x = whole(rng, shape)
        x[rng.random(shape) < 0.1] = -0.0
        for value in (NAN, INF, -INF):
            x[rng.random(shape) < 0.03] = value
        for keepdims, select_last_index in itertools.product((0, 1), (0, 1)):
            results = []
            for by_kernels in (False, True):
                way(by_kernels)
                results.append(LEAVES[op_type].function(x, axis=axis, keepdims=keepdims, select_last_index=select_last_index))
            assert_same(results[1], results[0], (shape, axis, keepdims, select_last_index))
    assert len(served) == 20


@pytest.mark.parametrize("dtype", [*map(np.dtype, ("f4", "f8", "i4", "i8", "u4", "u8", "f2")), BFLOAT16], ids=str)
@pytest.mark.parametrize("op_type", ["CumSum", "CumProd"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_running_totals(way: Any, served: list[str], op_type: str, dtype: Any) -> None:
    rng = np.random.default_rng(8)
    for shape in [(40,), (2, 3, 16), (3, 530), (1, 20), (20, 1), (530, 2)] if COMPILED else [(5,), (2, 3, 4), (4, 1)]:
        x = (np.ones(shape) * 2**31 if dtype.kind in "iu" else rng.normal(size=shape)).astype(dtype)  # integers wrap
        x += whole(rng, shape, dtype)
        for axis, exclusive, reverse in itertools.product(range(len(shape)), (0, 1), (0, 1)):
            results = []
            for by_kernels in (False, True):
                way(by_kernels)
                results.append(LEAVES[op_type].function(x, np.array(axis), exclusive=exclusive, reverse=reverse))
            assert_same(results[1], results[0], (shape, axis, exclusive, reverse))
    assert served


# Normalizations


def normalizations(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Operators over images with drawn parameters, by name."""
    channels = shape[1]
    groups = 2 if channels % 2 == 0 else 1
    rank = len(shape)

    def drawn(*size: int, low: float = -2.0) -> Any:
        return rng.uniform(low, 2, size).astype(dtype)

    scale, bias, mean, var = drawn(channels), drawn(channels), drawn(channels), drawn(channels, low=0.1)
    by_group = drawn(groups), drawn(groups)
    momentum = {"epsilon": 1e-3, "momentum": 0.75}
    yield "instance", lambda x: normalization.instance_normalization(x, scale, bias, epsilon=1e-3)
    yield "group 18", lambda x: normalization.group_normalization_18(x, *by_group, epsilon=1e-3, num_groups=groups)
    yield "group 21", lambda x: normalization.group_normalization_21(x, scale, bias, epsilon=1e-3, num_groups=groups, stash_type=1)
    yield "batch", lambda x: normalization.batch_normalization_14(x, scale, bias, mean, var, **momentum, training_mode=0)[0]
    for number in range(3):
        yield (
            "trained",
            lambda x, number=number: normalization.batch_normalization_14(x, scale, bias, mean, var, **momentum, training_mode=1)[number],
        )
    for axes in ([0, 2, 3][: rank - 1], list(range(2, rank)), list(range(1, rank))):
        yield "mean, variance", lambda x, axes=axes: normalization.mean_variance_normalization(x, axes=axes)
    for axis in range(1, rank):
        parameters = drawn(*shape[axis:]), drawn(*(1,) * (rank - axis - 1), shape[-1])
        for number in range(3):
            yield (
                "layer",
                lambda x, axis=axis, parameters=parameters, number=number: normalization.layer_normalization(
                    x, *parameters, axis=axis, epsilon=1e-3, stash_type=1
                )[number],
            )
        yield (
            "layer without bias",
            lambda x, axis=axis, parameters=parameters: normalization.layer_normalization(
                x, parameters[0], axis=axis, epsilon=1e-3, stash_type=1
            )[0],
        )
        yield (
            "root mean square",
            lambda x, axis=axis, parameters=parameters: normalization.rms_normalization(
                x, parameters[0], axis=axis, epsilon=1e-3, stash_type=1
            ),
        )
    for p, axis in itertools.product((1, 2), range(rank)):
        yield f"norm {p}", lambda x, p=p, axis=axis: normalization.lp_normalization(x, axis=axis, p=p)


@needs_vectors
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 4, 17, 5), (3, 6, 64), (2, 3, 16), (1, 2, 5, 20), (5, 1, 1031)], ids=str)
def test_normalizations(way: Any, served: list[str], dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(1, 2, shape).astype(dtype)
    x[0, 0] = 3  # a run of equal elements
    cases = 0
    for name, function in normalizations(rng, shape, dtype):
        way(False)
        want = function(x)
        way(True)
        before = x.tobytes()
        got = function(x)
        assert x.tobytes() == before and not np.may_share_memory(got, x), name
        near = 1e-5 if got.dtype == FLOAT32 else unit(dtype)
        assert_same(got, want, name, rtol=near, atol=2 * near)
        cases += 1
    assert len(served) > cases // 2


@needs_vectors
def test_what_is_not_finite_stays_in_its_run(way: Any) -> None:
    x = np.random.default_rng(2).normal(size=(2, 3, 40)).astype(np.float32)
    x[0, 1, 7], x[1, 0, 39] = NAN, INF
    way(True)
    ones = np.ones(3, np.float32)
    got = normalization.instance_normalization(x, ones, ones, epsilon=1e-5)
    hurt = np.isnan(got).all(2)
    assert hurt.tolist() == [[False, True, False], [True, False, False]] and np.isfinite(got[~hurt]).all()


@needs_vectors
def test_a_variance_of_zero(way: Any) -> None:
    way(True)
    x, ones = np.full((2, 50), 0.1, np.float32), np.ones(50, np.float32)
    assert np.isnan(normalization.rms_normalization(x * 0, ones, axis=1, epsilon=0, stash_type=1)).all()
    assert (normalization.mean_variance_normalization(np.ones((2, 50), np.float32), axes=[1]) == 0).all()


# Of all


@needs_vectors
def test_threads_and_layouts_change_nothing(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(9, 4, 1500)).astype(np.float32)
    fixed = x.copy()
    fixed.setflags(write=False)
    apart = np.repeat(x, 2, 2)[..., ::2]
    raw = np.empty(x.nbytes + 1, np.uint8)
    odd = np.frombuffer(raw, np.float32, x.size, 1).reshape(x.shape)
    odd[:] = x
    ones = np.ones(1500, np.float32)
    functions = [lambda x, op=op, axis=axis: reduced(op, x, axes=[axis]) for op in REDUCTIONS[:7] for axis in (0, 2)]
    functions.append(lambda x: reduced("ReduceSum", x))
    functions.append(lambda x: reduced("ReduceLogSumExp", x, axes=[2]))
    functions.append(lambda x: LEAVES["ArgMax"].function(x, axis=0))
    functions += [lambda x, axis=axis: LEAVES["CumSum"].function(x, np.array(axis)) for axis in (0, 2)]
    functions.append(lambda x: normalization.layer_normalization(x, ones, axis=2, epsilon=1e-3, stash_type=1)[0])
    functions.append(lambda x: normalization.mean_variance_normalization(x, axes=[0, 2]))
    way(True)
    expected = [function(x) for function in functions]
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 64)
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        for number, (function, want) in enumerate(zip(functions, expected, strict=True)):
            assert function(x).tobytes() == want.tobytes() == function(fixed).tobytes(), (count, number)
    for function, want in zip(functions, expected, strict=True):  # NumPy serves for these
        assert_same(function(apart), want, "apart", rtol=1e-5, atol=1e-4)
        assert_same(function(odd), want, "not aligned", rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(0, 50), (50, 0), (0,), (3, 0, 40)], ids=str)
def test_nothing(way: Any, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    way(True)
    for axis in range(len(shape)):
        want = np.zeros((*shape[:axis], 1, *shape[axis + 1 :]), np.float32)
        assert_same(reduced("ReduceSum", x, axes=[axis]), want, axis)
        assert_same(reduced("ReduceMax", x, axes=[axis]), want - INF, axis)
        assert_same(LEAVES["CumSum"].function(x, np.array(axis)), x, axis)
        assert_same(normalization.mean_variance_normalization(x, axes=[axis]), x, axis)
        parameters = np.ones(shape[axis:], np.float32)
        assert_same(normalization.layer_normalization(x, parameters, parameters, axis=axis, epsilon=1e-5, stash_type=1)[0], x, axis)
