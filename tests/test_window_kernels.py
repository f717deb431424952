"""The kernels of windows: pools by them beside the same pools by NumPy, over all small geometries, types, layouts and threads.

The file passes compiled, with ``NUMBA_DISABLE_JIT=1`` (on fewer geometries) and with ``NUMBA_BOUNDSCHECK=1``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest
from numba import config

from numbaops.kernels import windows as kernels
from numbaops.kernels.window_geometry import Extent, window_layout
from numbaops.ops import pooling
from numbaops.ops._windows import Axis
from numbaops.runtime import threads
from processes import run_python

COMPILED = not config.DISABLE_JIT
EVERY = 1 if COMPILED else 7
"""Of as many geometries one is tried; of four times as many unless slow tests are run."""

NAN, INF = math.nan, math.inf
TYPES = ("float32", "float64", "int8", "uint8")
ALL_KERNELS = 1
NO_KERNELS = 1 << 60

GEOMETRIES = list(itertools.product((1, 2, 3), (1, 2, 3), (1, 2), (0, 1, 2), (0, 1)))
"""Along one axis: kernel, stride, dilation, pads at the begin and at the end."""
SMALL = [each for each in GEOMETRIES if each[3] < 2 and each[3] >= each[4]]


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has kernels serve from a number of elements on, also where they are not compiled."""
    monkeypatch.setattr(kernels, "COMPILED", True)
    return lambda smallest: monkeypatch.setattr(pooling, "JIT_FROM", smallest)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were asked for."""
    seen: list[str] = []

    def recorded(name: str, factory: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any) -> Any:
            seen.append(name)
            return factory(*arguments)

        return make

    for name in ("fold_windows", "reduce_runs", "place_largest"):
        monkeypatch.setattr(kernels, name, recorded(name, getattr(kernels, name)))
    return seen


def elements(rng: np.random.Generator, shape: Any, dtype: str, *, special: bool = True) -> Any:
    """Small integers, many of them equal, so that sums are exact; floats with some -0.0, and some that are not finite."""
    x = rng.integers(0 if dtype == "uint8" else -3, 4, shape).astype(dtype)
    if x.dtype.kind == "f":
        x[rng.random(shape) < 0.1] = -0.0
        for value in (NAN, INF, -INF) if special else ():
            x[rng.random(shape) < 0.04] = value
    return x


def attributes_of(geometry: Any, ceil_mode: int) -> dict[str, Any]:
    kernel, strides, dilations, begins, ends = (list(each) for each in zip(*geometry, strict=True))
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": begins + ends, "ceil_mode": ceil_mode}


def drawn_geometries(rng: np.random.Generator) -> Iterator[tuple[Any, int]]:
    """All of one axis; all pairs of small ones; some of three axes."""
    yield from itertools.product(((each,) for each in GEOMETRIES), (0, 1))
    yield from ((pair, int(rng.integers(2))) for pair in itertools.product(SMALL, SMALL))
    for _ in range(900):
        yield tuple(GEOMETRIES[number] for number in rng.integers(0, len(GEOMETRIES), 3)), int(rng.integers(2))


def pools(x: Any, attributes: dict[str, Any]) -> dict[str, Any]:
    """The results of all pools over the same windows, by name."""
    largest, places = pooling.max_pool(x, outputs=2, **attributes)
    found = {"MaxPool": pooling.max_pool(x, **attributes), "values": largest, "places": places}
    found["column-major"] = pooling.max_pool(x, outputs=2, storage_order=1, **attributes)[1]
    if x.dtype.kind not in "iu":
        for name, flag in (("AveragePool", 0), ("with pads", 1)):
            found[name] = pooling.average_pool(x, count_include_pad=flag, **attributes)
        found["LpPool"] = pooling.lp_pool(x, p=2, **attributes)
        found["LpPool 1"] = pooling.lp_pool(x, p=1, **attributes)
    return found


def assert_same(got: Any, want: Any, text: Any) -> None:
    """Equal in type, shape and value, NaN included; not in which zero a maximum is, which NumPy leaves to the processor."""
    assert got.dtype == want.dtype and got.shape == want.shape, text
    wide = np.float64 if got.dtype.kind in "fV" else got.dtype
    assert np.array_equal(got.astype(wide), want.astype(wide), equal_nan=wide == np.float64), text


@pytest.mark.parametrize("every", [4 * EVERY, pytest.param(EVERY, marks=pytest.mark.slow)], ids=["some", "all"])
def test_small_geometries(way: Any, used: list[str], every: int) -> None:
    rng = np.random.default_rng(5)
    seen = 0
    for number, (geometry, ceil_mode) in enumerate(drawn_geometries(rng)):
        if number % every:
            continue
        least = [max(1, (kernel - 1) * dilation + 1 - begin - end) for kernel, _, dilation, begin, end in geometry]
        spatial = [int(each + rng.integers(0, 6)) for each in least]
        if seen % 5 == 0:
            spatial[-1] += 17  # more than a vector of float32
        x = elements(rng, (int(rng.integers(1, 3)), 2, *spatial), TYPES[seen % 4], special=seen % 3 == 0)
        attributes = attributes_of(geometry, ceil_mode)
        way(NO_KERNELS)
        want = pools(x, attributes)
        way(ALL_KERNELS)
        got = pools(x, attributes)
        for name, value in want.items():
            assert_same(got[name], value, (name, x.shape, x.dtype, attributes))
            if name == "AveragePool" and not np.isnan(value).any() and math.prod(attributes["kernel_shape"]) > 1:
                assert np.array_equal(np.signbit(got[name]), np.signbit(value))
        seen += 1
    assert seen > 2500 / every
    assert {"fold_windows", "place_largest"} <= set(used)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_sums_are_those_of_numpy_bit_by_bit(way: Any, used: list[str], dtype: Any, stride: int) -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 9, 21)).astype(dtype)
    attributes = attributes_of([(2, 1, 1, 1, 0), (3, 2, 1, 1, 1), (3, stride, 2, 1, 2)], 1)
    way(NO_KERNELS)
    want = pools(x, attributes)
    way(ALL_KERNELS)
    got = pools(x, attributes)
    for name, value in want.items():
        assert got[name].tobytes() == value.tobytes(), name
    assert used.count("fold_windows") == 5


@pytest.mark.parametrize("dtype", TYPES)
def test_runs_of_any_length(dtype: str) -> None:
    rng = np.random.default_rng(2)
    for size in [*range(1, 70), 127, 128, 129, 500, kernels.RUN, kernels.RUN + 1, 3 * kernels.RUN + 5][:: 1 if COMPILED else 3]:
        x = elements(rng, (5, size), dtype, special=False)
        out = np.full(7, 99, dtype)
        flat = x.reshape(-1)
        flat.setflags(write=False)
        kernels.reduce_runs("max", dtype)(flat, out, size, x.dtype.type(1), 1, 5)
        assert out.tolist() == [99, *x.max(1).tolist()[1:], 99, 99]
        if x.dtype.kind == "f":
            kernels.reduce_runs("sum", dtype)(flat, out, size, x.dtype.type(4), 1, 5)
            assert out.tolist() == [99, *(x.sum(1) / 4).tolist()[1:], 99, 99]
            for place in {0, size // 2, size - 1}:
                x[3, place] = NAN
                for operation in ("max", "sum"):
                    kernels.reduce_runs(operation, dtype)(flat, out, size, x.dtype.type(1), 0, 5)
                    assert np.isnan(out[:5]).tolist() == [False, False, False, True, False]
                x[3, place] = 1


def test_runs_that_are_not_finite() -> None:
    x = np.array([[INF, 1], [-INF, 1], [INF, -INF], [3e38, 3e38], [-0.0, -0.0], [-INF, -INF]], np.float32)
    out = np.zeros((2, 6), np.float32)
    flat = x.reshape(-1)
    flat.setflags(write=False)
    with np.errstate(all="ignore"):
        for row, operation in zip(out, ("sum", "max"), strict=True):
            kernels.reduce_runs(operation, "float32")(flat, row, 2, np.float32(1), 0, 6)
    np.testing.assert_array_equal(out, np.float32([[INF, -INF, NAN, INF, 0, -INF], [INF, 1, INF, 3e38, 0, -INF]]))


@pytest.mark.skipif(not kernels.VECTORS, reason="plain loops add up one element after the other")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [7, 15, 31, 49, 196, 1000, 1100, 12544, 300000])
def test_means_are_as_exact_as_those_of_numpy(way: Any, dtype: Any, size: int) -> None:
    x = np.random.default_rng(3).normal(1, 1, (1, 40 + 100000 // size, 1, size)).astype(dtype)
    exact = np.array([math.fsum(row) / size for row in x.reshape(-1, size)])
    errors = []
    for smallest in (NO_KERNELS, ALL_KERNELS):
        way(smallest)
        errors.append(np.sqrt(np.mean((pooling.global_average_pool(x).reshape(-1) - exact) ** 2)))
    assert errors[1] <= 1.1 * errors[0]


@pytest.mark.parametrize("dtype", TYPES)
def test_global_pools(way: Any, used: list[str], dtype: str) -> None:
    rng = np.random.default_rng(4)
    for shape in ((2, 3), (2, 3, 5), (1, 2, 4, 7), (2, 1, 3, 3, 2)):
        x = elements(rng, shape, dtype, special=False)
        for pool in (pooling.global_max_pool, *([pooling.global_average_pool] if x.dtype.kind == "f" else [])):
            way(NO_KERNELS)
            want = pool(x)
            way(ALL_KERNELS)
            assert_same(pool(x), want, (pool, shape))
    assert used
    used.clear()
    for shape in ((0, 3, 2), (2, 0, 2), (2, 2, 0)):
        x = np.zeros(shape, dtype)
        assert pooling.global_max_pool(x).tolist() == np.full((*shape[:2], 1), pooling._lowest(x)).tolist()
    assert not used


def test_one_window_is_a_run(way: Any, used: list[str]) -> None:
    way(ALL_KERNELS)
    x = np.arange(60, dtype=np.float32).reshape(1, 2, 5, 6)
    assert pooling.average_pool(x, kernel_shape=[5, 6]).tolist() == [[[[14.5]], [[44.5]]]]
    assert pooling.average_pool(x, kernel_shape=[5, 6], pads=[0, 0, 0, 1], strides=[1, 2], count_include_pad=1).tolist() == [
        [[[14.5]], [[44.5]]]
    ]
    assert pooling.max_pool(x, kernel_shape=[5, 6], strides=[9, 9]).tolist() == [[[[29]], [[59]]]]
    assert set(used) == {"reduce_runs"}


STRIDES = [(slice(None), slice(None), slice(None, None, -1), slice(1, None, 2)), (slice(None), slice(0, 1), slice(2), slice(None))]


@pytest.mark.parametrize("how", ["reversed", "part", "transposed", "broadcast", "read-only", "unaligned", "big-endian"])
def test_inputs_of_any_layout(way: Any, used: list[str], how: str) -> None:
    x = np.random.default_rng(6).normal(size=(2, 3, 6, 22)).astype(np.float32)
    if how in ("reversed", "part"):
        x = x[STRIDES[how == "part"]]
    elif how == "transposed":
        x = x.transpose(0, 1, 3, 2)
    elif how == "broadcast":
        x = np.broadcast_to(x[:1], (2, 3, 6, 22))
    elif how == "read-only":
        x.setflags(write=False)
    elif how == "unaligned":
        x = np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
        assert not x.flags.aligned
    else:
        x = x.astype(">f4")
    before = x.tobytes()
    attributes = {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [1, 2]}
    way(NO_KERNELS)
    want = pools(np.ascontiguousarray(x, np.float32), attributes) | {"global": pooling.global_max_pool(x)}
    way(ALL_KERNELS)
    got = pools(x, attributes) | {"global": pooling.global_max_pool(x)}
    for name, value in want.items():
        assert_same(got[name].astype(value.dtype), value, name)
    assert x.tobytes() == before
    assert ("place_largest" in used) == (how != "big-endian")


def test_axes_that_need_no_kernel(way: Any, used: list[str]) -> None:
    """Windows of one element, along some axes or all, of any rank; and rows of few elements."""
    rng = np.random.default_rng(8)
    one, three = (1, 1, 1, 0, 0), (3, 1, 1, 1, 1)
    cases = [
        ([one], (2, 3, 5), False),
        ([one, one], (2, 3, 5, 4), False),
        ([three, one], (2, 3, 6, 5), True),
        ([three, one], (2, 3, 6, 1), True),
        ([(3, 2, 1, 1, 0), one], (2, 3, 6, 1), True),
        ([(3, 2, 1, 1, 0), one], (2, 3, 6, 3), False),
        ([(3, 2, 1, 1, 0), one], (2, 3, 6, 5), True),
        ([one, three], (2, 3, 5, 4), True),
        ([one, three, one], (2, 3, 5, 4, 3), True),
        ([one, one, three, three], (2, 1, 2, 2, 5, 4), True),
        ([one, three, three, three, one], (2, 1, 2, 2, 5, 4, 3), True),
        ([three, three, three, three], (2, 1, 2, 2, 5, 4), False),
    ]
    for geometry, shape, by_kernel in cases:
        x = elements(rng, shape, "float32")
        attributes = attributes_of(geometry, 0)
        way(NO_KERNELS)
        want = pools(x, attributes)
        way(ALL_KERNELS)
        used.clear()
        pooling.max_pool(x, **attributes)
        assert bool(used) == by_kernel, (geometry, shape)
        got = pools(x, attributes)
        for name, value in want.items():
            assert_same(got[name], value, (name, geometry, shape))


def test_which_zero_is_the_maximum(way: Any) -> None:
    way(ALL_KERNELS)
    x = np.array([[[[0.0, -0.0, 0.0, -0.0, -0.0]]]], np.float32)
    assert np.signbit(pooling.max_pool(x, kernel_shape=[1, 2])).tolist() == [[[[False, True, False, True]]]]  # the first one


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 17, 33])
def test_a_kernel_writes_its_own_rows_only(count: int) -> None:
    """Vectors reach beyond the end of a row, but not into what another thread may have written."""
    rng = np.random.default_rng(9)
    extents = [Extent(1, 1, 1, 1, 1, 0), Extent(3, 3, 2, 1, 1, 1), Extent(2 * count, count, 3, 2, 1, 1)]
    layout = window_layout(extents, "float32")
    x = elements(rng, (2, 3, 2 * count), "float32").reshape(-1)
    x.setflags(write=False)
    rows = 6
    ones = np.ones(128, np.float32), np.ones(3, np.float32)
    whole = {}
    for start, stop in [(0, rows), *itertools.combinations(range(rows + 1), 2)]:
        for name in ("max", "sum", "places"):
            out, places = np.full(rows * count, 77, np.float32), np.full(rows * count, 77)
            with np.errstate(all="ignore"):
                if name == "places":
                    kernels.place_largest("float32")(x, out, places, layout.table, layout.met, layout.numbers, start, stop)
                else:
                    scratch = np.full(layout.scratch, NAN, np.float32)
                    kernels.fold_windows(name, "float32")(x, out, scratch, *ones, layout.table, layout.numbers, start, stop)
            whole.setdefault(name, (out, places))
            for got, right in zip((out, places), whole[name], strict=True):
                inside = slice(start * count, stop * count)
                assert np.array_equal(got[inside], right[inside], equal_nan=True)
                assert (np.delete(got, np.arange(rows * count)[inside]) == 77).all()


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_threads(monkeypatch: pytest.MonkeyPatch, way: Any, used: list[str], dtype: str) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    rng = np.random.default_rng(10)
    x = elements(rng, (2, 5, 13, 19), dtype, special=False)
    attributes = attributes_of([(3, 2, 1, 1, 1), (3, 1, 1, 1, 1)], 0)
    way(NO_KERNELS)
    want = pools(x, attributes) | {"global": pooling.global_max_pool(x)}
    way(ALL_KERNELS)
    for smallest in (1, 512, 5000):
        monkeypatch.setattr(threads, "MINIMUM_SHARE", smallest)
        got = pools(x, attributes) | {"global": pooling.global_max_pool(x)}
        for name, value in want.items():
            assert_same(got[name], value, name)
    assert set(used) == {"fold_windows", "place_largest", "reduce_runs"}


@pytest.mark.skipif(not COMPILED, reason="millions of elements in interpreted kernels take minutes")
def test_large_arrays(used: list[str]) -> None:
    """As they come: a size that is split, recycled outputs, and rows that the caches do not hold."""
    rng = np.random.default_rng(11)
    for shape, geometry in (((1, 64, 300, 300), [(3, 2, 1, 1, 1)] * 2), ((1, 2, 400000), [(5, 2, 1, 2, 2)])):
        x = rng.normal(size=shape).astype(np.float32)
        attributes = attributes_of(geometry, 0)
        axes = pooling._axes(x, attributes["kernel_shape"], {name: each for name, each in attributes.items() if name != "kernel_shape"})
        got = pooling.max_pool(x, **attributes)
        assert np.array_equal(got, pooling.fold_windows(x, axes, np.maximum, -INF))
        assert np.array_equal(pooling.average_pool(x, **attributes), pooling._means(x, axes, False))
    assert used


def test_where_nothing_is_compiled_numpy_serves(monkeypatch: pytest.MonkeyPatch, used: list[str]) -> None:
    monkeypatch.setattr(kernels, "COMPILED", False)
    x = np.ones((1, 16, 32, 32), np.float32)
    attributes = {"kernel_shape": [2, 2]}
    assert pools(x, attributes)["AveragePool"].sum() == 16 * 31 * 31
    assert pooling.global_average_pool(x).sum() == pooling.global_max_pool(x).sum() == 16
    assert not used


def test_small_arrays_load_no_numba() -> None:
    code = """
    import sys
    import numpy as np
    from numbaops.ops import pooling
    x = np.ones((1, 4, 31, 31), np.float32)
    pooling.max_pool(x, kernel_shape=[2, 2], outputs=2)
    pooling.average_pool(x, kernel_shape=[2, 2]), pooling.global_max_pool(x), pooling.lp_pool(x, kernel_shape=[2, 2], p=2)
    print("numba" in sys.modules)
    pooling.max_pool(np.ones((1, 4, 32, 32), np.float32), kernel_shape=[2, 2])
    print("numba" in sys.modules)
    """
    assert run_python(code).split() == ["False", "True"]


def test_from_compiled_code() -> None:
    fold, reduce = kernels.fold_windows("max", "float32"), kernels.reduce_runs("sum", "float32")

    @numba.njit
    def both(x: Any, out: Any, scratch: Any, table: Any, numbers: Any, means: Any) -> None:
        fold(x, out, scratch, out, out, table, numbers, 0, 2)
        reduce(x, means, 5, np.float32(5), 0, 2)

    layout = window_layout([Extent(1, 1, 1, 1, 1, 0)] * 2 + [Extent(5, 4, 2, 1, 1, 0)], "float32")
    x = np.array([1, 5, 2, 3, 4, 0, 0, 9, 0, 1], np.float32)
    out, means = np.zeros(8, np.float32), np.zeros(2, np.float32)
    both(x, out, np.zeros(layout.scratch, np.float32), layout.table, layout.numbers, means)
    assert out.tolist() == [5, 5, 3, 4, 0, 9, 9, 1]
    assert means.tolist() == [3, 2]


def test_reach_of_windows() -> None:
    """Beside the arithmetic of the operators."""
    for kernel, stride, dilation, begin, end in GEOMETRIES:
        for size in range(1, 7):
            count = (size + begin + end - (kernel - 1) * dilation - 1) // stride + 1
            if count < 1:
                continue
            extent = Extent(size, count, kernel, stride, dilation, begin)
            axis = Axis(size, kernel, count, stride, dilation, begin, end)
            met = {cell: (windows.start, windows.stop) for cell, windows, _ in axis.cells()}
            assert extent.reached()[1].tolist() == axis.cells_within(padded=False).tolist()
            for cell, (first, last) in enumerate(extent.met().T.tolist()):
                assert (first, last) == met.get(cell, (first, first))
