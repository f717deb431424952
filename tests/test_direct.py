"""Convolutions by the kernels, beside sums of products in float64 over the same windows; every small geometry."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numbaops
from numbaops.kernels import products
from numbaops.ops import _direct, _products, convolution, linear
from numbaops.ops._direct import Convolution, few_windows
from numbaops.ops._products import multiplied
from numbaops.ops._windows import columns, windows
from numbaops.ops.convolution import Conv
from numbaops.runtime import threads
from processes import run_python

pytestmark = pytest.mark.skipif(not products.AVAILABLE, reason="without the JIT there are no such kernels")


def drawn(*shape: int) -> np.ndarray:
    """Small integers: every sum of products of them is exact in float32."""
    return np.random.default_rng(math.prod(shape)).integers(-4, 5, shape).astype(np.float32)


def summed(x: np.ndarray, w: np.ndarray, axes: Any, group: int) -> np.ndarray:
    cells = columns(x.astype(np.float64), axes)
    counts = [axis.count for axis in axes]
    parts = cells.reshape(len(x), group, -1, math.prod(counts))
    return (w.astype(np.float64).reshape(group, len(w) // group, -1) @ parts).reshape(len(x), len(w), *counts)


def check(x: np.ndarray, w: np.ndarray, axes: Any, group: int) -> None:
    bias = drawn(len(w))
    wanted = summed(x, w, axes, group) + bias.reshape(-1, *(1,) * len(axes))
    residual = drawn(*wanted.shape)
    np.testing.assert_array_equal(Convolution(w, None, group, few_windows(axes))(x, axes), summed(x, w, axes, group))
    kept = Convolution(w, bias, group, few_windows(axes))
    got = kept(x, axes)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(kept(x, axes, residual, -20.0, 30.0), np.clip(wanted + residual, -20, 30))


CHANNELS = [(1, 1, 1), (3, 8, 1), (4, 12, 2), (6, 6, 6), (4, 8, 4), (4, 20, 1), (2, 1, 1)]


@pytest.mark.parametrize(("channels", "count", "group"), CHANNELS)
@pytest.mark.parametrize("size", [(9,), (40,), (7, 20), (5, 6, 7)], ids=str)
def test_every_small_geometry(size: tuple[int, ...], channels: int, count: int, group: int) -> None:
    tried = 0
    for kernel, stride, dilation, begin, end in itertools.product((1, 2, 3), (1, 2, 3), (1, 2), (0, 1, 2), (0, 1)):
        rank = len(size)
        if any((kernel - 1) * dilation + 1 > length + begin + end for length in size):
            continue
        pads = (begin,) * rank + (end,) * rank
        axes = windows(size, (kernel,) * rank, strides=(stride,) * rank, dilations=(dilation,) * rank, pads=pads)
        check(drawn(2, channels, *size), drawn(count, channels // group, *(kernel,) * rank), axes, group)
        tried += 1
    assert tried > 90


@pytest.mark.parametrize("columns_of_tile", range(1, 3 * products.COLUMNS, 7))
@pytest.mark.parametrize("count", [1, products.ROWS, products.ROWS + 1])
def test_every_size_of_the_last_tile(columns_of_tile: int, count: int) -> None:
    check(drawn(1, 5, 1, columns_of_tile), drawn(count, 5, 1, 1), windows((1, columns_of_tile), (1, 1)), 1)


@pytest.mark.parametrize("images", [1, 2, 3, 5, 9, 17])
@pytest.mark.parametrize("windows_of_image", [1, 2, 3, 4])
@pytest.mark.parametrize(("count", "group"), [(1, 1), (products.COLUMNS, 1), (products.COLUMNS + 5, 1), (9, 3), (8, 4)])
def test_images_of_few_windows(count: int, group: int, windows_of_image: int, images: int) -> None:
    axes = windows((2 * windows_of_image + 1,), (5,), strides=(2,), pads=(1, 1))
    assert [axis.count for axis in axes] == [windows_of_image]
    check(drawn(images, 4 * group, 2 * windows_of_image + 1), drawn(count, 4, 5), axes, group)


@pytest.mark.parametrize("channels", [products.TERMS - 1, products.TERMS, products.TERMS + 1, 2 * products.TERMS + 3])
@pytest.mark.parametrize("kernel", [1, 3])
def test_more_terms_than_a_panel_holds(kernel: int, channels: int) -> None:
    axes = windows((4, 9), (kernel, kernel), pads=(kernel // 2,) * 4)
    check(drawn(1, channels, 4, 9), drawn(11, channels, kernel, kernel), axes, 1)


def test_a_kernel_of_more_cells_than_a_panel_holds() -> None:
    axes = windows((30, 30), (25, 25), pads=(3,) * 4)
    check(drawn(1, 2, 30, 30), drawn(3, 2, 25, 25), axes, 1)


@pytest.mark.parametrize("group", [1, 3, 24])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_in_several_threads(group: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: count)
    monkeypatch.setattr(_direct, "thread_count", lambda: count)
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 1)
    check(drawn(2, 24, 17, 19), drawn(48, 24 // group, 3, 3), windows((17, 19), (3, 3), pads=(1,) * 4), group)


@pytest.mark.parametrize("group", [1, 4])
def test_numbers_that_are_none(group: int) -> None:
    """NaN and infinities go where NumPy has them, and through limits."""
    x, w = drawn(1, 4, 12, 12), drawn(8, 4 // group, 3, 3)
    x[0, 0, 3, 3], x[0, 1, 8, 8], x[0, 2, 5, 5] = np.nan, np.inf, -np.inf
    axes = windows((12, 12), (3, 3), pads=(1,) * 4)
    with np.errstate(all="ignore"):
        wanted = summed(x, w, axes, group)
    kept = Convolution(w, None, group, few_windows(axes))
    np.testing.assert_array_equal(kept(x, axes), wanted)
    np.testing.assert_array_equal(kept(x, axes, None, 0.0, 6.0), np.clip(wanted, 0, 6))


def test_inputs_of_other_layouts_and_what_lies_behind_them() -> None:
    """No element outside of the input is read, not even where a vector would reach beyond it."""
    w, axes = drawn(9, 3, 3, 3), windows((10, 11), (3, 3), strides=(2, 2), pads=(1,) * 4)
    x = drawn(1, 3, 10, 11)
    room = np.full(x.size + 64, np.nan, np.float32)
    room[: x.size] = x.reshape(-1)
    for given in (x.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2), room[: x.size].reshape(x.shape), x[:, ::-1].copy()[:, ::-1]):
        check(given, w, axes, 1)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_the_operator_takes_the_kernel_for_large_inputs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = numbaops.element_type(kind).dtype
    x, w, bias = drawn(1, 8, 30, 30).astype(dtype), drawn(16, 8, 3, 3).astype(dtype), drawn(16).astype(dtype)
    conv = Conv(pads=[1, 1, 1, 1])
    wanted = conv(x, w, bias)
    used = []
    monkeypatch.setattr(Convolution, "__call__", lambda self, *arguments: used.append(1))
    prepared = conv.prepared(..., w, bias)
    monkeypatch.undo()
    assert (prepared is None) == (kind == "float64")
    axes = windows((30, 30), (3, 3), pads=(1,) * 4)
    exact = (summed(x.astype(np.float64), w.astype(np.float64), axes, 1) + bias.astype(np.float64).reshape(-1, 1, 1)).astype(dtype)
    for got in [wanted] if prepared is None else [wanted, prepared(x), prepared(x, w, bias)]:
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.astype(np.float64), exact.astype(np.float64))


def test_weights_that_are_known_are_laid_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(convolution, "Convolution", lambda *arguments: made.append(1) or Convolution(*arguments))
    w = drawn(16, 8, 3, 3)
    prepared = Conv().prepared(..., w, None)
    assert prepared is not None
    for size in (30, 40, 4, 30, 4, 3):  # of 4 and 3, too few windows for a vector
        np.testing.assert_array_equal(
            prepared(drawn(1, 8, size, size)), summed(drawn(1, 8, size, size), w, windows((size, size), (3, 3)), 1)
        )
    assert len(made) == 2
    assert Conv().prepared(..., ..., None) is None
    assert Conv().prepared(..., w, ...) is None


MATRICES = [
    ((9, 5), (5, 7)),
    ((8, 600), (600, 48)),
    ((3, 2, 17, 4), (3, 2, 4, 50)),
    ((4, 6, 3), (3, 49)),
    ((4, 6, 3), (1, 3, 49)),
    ((3, 1, 17, 20), (4, 20, 50)),
    ((5, 7), (4, 7, 16)),
    ((130, 40), (40, 33)),
    ((2, 5, 0), (2, 0, 3)),
    ((1, 600), (600, 48)),
    ((3, 1001), (1001, 7)),
    ((2, 1, 70), (70, 4099)),
    ((1, 300001), (300001, 1)),
]
FEW = MATRICES[-4:]


@pytest.mark.parametrize(("first", "second"), MATRICES, ids=str)
def test_products_of_matrices(first: tuple[int, ...], second: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_products, "MATRIX_FROM", 0)
    a, b = drawn(*first), drawn(*second)
    kept = []  # else the next result may lie where this one was right
    for x, y in ((a, b), (a.swapaxes(-1, -2).copy().swapaxes(-1, -2), b.swapaxes(-1, -2).copy().swapaxes(-1, -2))):
        got = multiplied(x, y)
        kept.append(got)
        assert got is not None
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize(("first", "second"), MATRICES, ids=str)
def test_products_of_matrices_of_integers_keep_the_low_bits(
    first: tuple[int, ...], second: tuple[int, ...], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_products, "MATRIX_FROM", 0)
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 1 << 10)
    info, random = np.iinfo(kind), np.random.default_rng(5)
    a, b = (random.integers(info.min, info.max, shape, kind, endpoint=True) for shape in (first, second))
    for x, y in ((a, b), (a[..., ::-1].copy()[..., ::-1], b.swapaxes(-1, -2).copy().swapaxes(-1, -2))):
        got = multiplied(x, y)
        assert got is not None
        assert got.dtype == kind
        np.testing.assert_array_equal(got, np.matmul(a, b))


@pytest.mark.parametrize(("first", "second"), FEW, ids=str)
def test_products_of_few_rows_do_not_depend_on_threads(
    first: tuple[int, ...], second: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with columns that follow each other in memory nor with rows that do."""
    monkeypatch.setattr(_products, "MATRIX_FROM", 0)
    monkeypatch.setattr(_products, "UNIT", 1 << 10)
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 1)
    random = np.random.default_rng(6)
    a, b = (random.standard_normal(shape, np.float32) for shape in (first, second))
    for y in (b, b.T.copy().T):
        results = []
        for count in (1, 2, 5):
            monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
            results.append(multiplied(a, y))
        for result in results:
            np.testing.assert_array_equal(result, results[0])
        limit = 1e-6 * np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        assert (np.abs(results[0] - a.astype(np.float64) @ b.astype(np.float64)) <= limit).all()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_products_in_several_threads(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: count)
    monkeypatch.setattr(_products, "thread_count", lambda: count)
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 1)
    a, b = drawn(3, 70, 90), drawn(3, 90, 110)
    np.testing.assert_array_equal(multiplied(a, b), a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (drawn(100), drawn(100, 100)),
        (drawn(100, 100).astype(np.float64), drawn(100, 100).astype(np.float64)),
        (drawn(3, 50, 50), drawn(4, 50, 50)),
        (drawn(50, 50), drawn(49, 500)),
        (drawn(4, 4), drawn(4, 4)),
    ],
    ids=["a vector", "doubles", "stacks that do not broadcast", "sizes that do not fit", "small"],
)
def test_products_that_are_left_to_blas(a: np.ndarray, b: np.ndarray) -> None:
    assert multiplied(a, b) is None


@pytest.mark.parametrize("channels", [2, 300, 700])
@pytest.mark.parametrize(("points", "kinds"), [((0, 0), ("int8", "int8")), ((255, 255), ("uint8", "uint8")), ((7, -3), ("uint8", "int8"))])
def test_sums_of_integers_are_exact(points: tuple[int, int], kinds: tuple[str, str], channels: int) -> None:
    """At the worst: every product as large as it can be."""
    low, high = (np.iinfo(kind) for kind in kinds)
    x = np.full((1, channels, 9, 20), low.min, kinds[0])
    w = np.full((9, channels, 3, 3), high.min, kinds[1])
    x[0, ::5], w[:, ::7] = low.max, high.max
    zero_points = [np.array(point, kind) for point, kind in zip(points, kinds, strict=True)]
    axes = windows((9, 20), (3, 3), pads=(1,) * 4)
    wide = [each.astype(np.int64) - point for each, point in zip((x, w), points, strict=True)]
    wanted = summed(*wide, axes, 1).astype(np.int64).astype(np.int32)
    np.testing.assert_array_equal(convolution.conv_integer(x, w, *zero_points, pads=[1] * 4), wanted)
    a, b = np.repeat(x.reshape(channels, -1).T, 3, 1), np.repeat(w[:, :, 0, 0].T, 3, 0)
    product = (a.astype(np.int64) - points[0]) @ (b.astype(np.int64) - points[1])
    np.testing.assert_array_equal(linear.matmul_integer(a, b, *zero_points), product.astype(np.int32))


def test_code_for_a_processor_with_narrow_vectors(tmp_path: Path) -> None:
    """Its tiles have other shapes."""
    code = """
        import numpy as np
        from numbaops.kernels import products
        from numbaops.ops._direct import Convolution, few_windows
        from numbaops.ops._windows import columns, windows
        random = np.random.default_rng(0)
        for channels, count, group, size in ((3, 10, 1, (9, 31)), (6, 6, 6, (12, 20)), (5, 7, 1, (1, 1)), (600, 9, 1, (3, 7))):
            for kernel, stride in ((1, 1), (3, 1), (3, 2)):
                if kernel > size[0] + 2: continue
                axes = windows(size, (kernel,) * 2, strides=(stride,) * 2, pads=(kernel // 2,) * 4)
                x = random.integers(-4, 5, (1, channels, *size)).astype(np.float32)
                w = random.integers(-4, 5, (count, channels // group, kernel, kernel)).astype(np.float32)
                cells = columns(x, axes).reshape(group, -1, axes[0].count * axes[1].count)
                want = (w.reshape(group, count // group, -1) @ cells).reshape(1, count, axes[0].count, axes[1].count)
                assert (Convolution(w, None, group, few_windows(axes))(x, axes, None, 0.0) == np.maximum(want, 0)).all()
        print(products.LANES, products.ROWS, products.COLUMNS)
    """
    assert run_python(code, NUMBA_CPU_NAME="generic", NUMBAOPS_CACHE_DIR=str(tmp_path)) == "4 4 8"
