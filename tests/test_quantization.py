"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear against exact arithmetic, each by NumPy and by kernels.

The file passes compiled, with ``NUMBA_DISABLE_JIT=1`` (on fewer numbers) and with ``NUMBA_BOUNDSCHECK=1``.
"""

from __future__ import annotations

import itertools
import math
import pickle
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

import numbaops
from numbaops import PackedTensor, dequantize_linear, element_type, operator, quantize_linear
from numbaops.convert import packed
from numbaops.errors import InvalidTypeError, InvalidValueError, NumbaopsError
from numbaops.quantization import linear, walks
from processes import run_python
from rounding import FORMATS, decode, encode

COMPILED = not config.DISABLE_JIT
INTS = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int2": (-2, 1),
    "uint2": (0, 3),
}
FLOATS = ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float4e2m1", "float6e2m3", "float6e3m2"]
TYPES = [*INTS, *FLOATS]
FLOAT8 = FLOATS[:4]
BITS = {name: int(name.lstrip("uint")) for name in INTS} | {name: FORMATS[name].bits for name in FLOATS}
SHORT = ["float32", "float16", "bfloat16"]
COMMON = ["int8", "int4", "float8e5m2"]
"""Types for which kernels are tried in all combinations; each takes a quarter of a second to compile."""
PACKED = ["int2", "int4", "float6e2m3"]
"""One for each width."""

every_type = pytest.mark.parametrize("name", TYPES)
both_paths = pytest.mark.parametrize("path", ["numpy", "kernels"])


@pytest.fixture
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Has all arrays go one way, whatever their size."""
    monkeypatch.setattr(linear, "JIT_FROM", {"numpy": 1 << 60, "kernels": 0}[request.param])
    return str(request.param)


def by(function: Callable[[], Any]) -> tuple[Any, Any]:
    """What it gives by NumPy and by kernels."""
    usual, results = linear.JIT_FROM, []
    try:
        for linear.JIT_FROM in (1 << 60, 0):
            results.append(function())
    finally:
        linear.JIT_FROM = usual
    return results[0], results[1]


# The oracle: plain numbers, one rounding at a time


def dtype(name: str) -> np.dtype[Any]:
    return element_type(name).dtype


def codes(array: Any) -> np.ndarray:
    return np.asarray(array).view(f"u{array.dtype.itemsize}")


def scale_of_each(values: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    """The scale or zero point that each element has, looked up one by one."""
    result = np.empty(shape, values.dtype)
    for place in np.ndindex(shape):
        if values.shape in ((), (1,)):
            where: Any = (0,) * values.ndim
        elif block:
            where = list(place)
            where[axis] //= block
            where = tuple(where)
        else:
            where = place[axis]
        result[place] = values[where]
    return result


def rounded_to(name: str, x: np.ndarray) -> np.ndarray:
    """float64 numbers rounded once to a float type, as float64."""
    with np.errstate(over="ignore"):
        if name == "float32":
            return x.astype(np.float32).astype(np.float64)
        return encode(name, x).view(dtype(name)).astype(np.float64)


def quantized(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray, name: str, precision: str = "float32", saturate: bool = True
) -> np.ndarray:
    """Codes; ``x``, ``scale`` and ``zero`` are float64, one for each element. Their float64 quotient rounds as the exact one."""
    with np.errstate(all="ignore"):
        quotients = rounded_to(precision, rounded_to(precision, x) / rounded_to(precision, scale))
        if name in FLOATS:
            sums = np.where(zero == 0, quotients, rounded_to("float32", quotients + zero))
            return encode(name, sums, saturate)
    low, high = INTS[name]
    whole = [
        low if math.isnan(q) else high if q > 1e9 else low if q < -1e9 else round(Fraction(q)) + int(z)
        for q, z in zip(quotients.flat, zero.flat, strict=True)
    ]
    numbers = np.clip(np.array(whole, np.int64).reshape(x.shape), low, high) & ((1 << BITS[name]) - 1)
    return numbers.astype(np.uint8 if BITS[name] <= 8 else np.uint16)


def dequantized(values: np.ndarray, scale: np.ndarray, zero: np.ndarray, target: str = "float32") -> np.ndarray:
    """float64 numbers; arguments are float64, one for each element. Differences are float32, products round twice."""
    with np.errstate(all="ignore"):
        differences = rounded_to("float32", values - zero)
        products = rounded_to("float32", differences * scale)
        return products if target == "float32" else rounded_to(target, products)


def numbers(array: np.ndarray, name: str) -> np.ndarray:
    """The values of an array's elements, float64."""
    low = codes(array) & ((1 << BITS[name]) - 1)
    if name in INTS:
        least = INTS[name][0]
        return np.array([(int(code) - least) % (1 << BITS[name]) + least for code in low.flat], np.float64).reshape(array.shape)
    return np.array([decode(name, int(code)) for code in low.flat], np.float64).reshape(array.shape)


def assert_same(got: Any, want: np.ndarray, x: Any = None) -> None:
    """Equal codes."""
    wrong = np.flatnonzero(codes(got).reshape(-1) != want.reshape(-1))
    shown = f" of {np.asarray(x).reshape(-1)[wrong[0]]!r}" if wrong.size and x is not None else ""
    assert not wrong.size, f"{wrong.size} wrong, first {wrong[0]}{shown}: {codes(got).flat[wrong[0]]:#x}, not {want.flat[wrong[0]]:#x}"


def assert_numbers(got: np.ndarray, want: np.ndarray) -> None:
    """Equal numbers with equal signs; NaN is NaN."""
    wide = got.astype(np.float64)
    np.testing.assert_array_equal(wide, want)
    assert (np.signbit(wide) == np.signbit(want))[~np.isnan(want)].all()


def zeros_of(name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if name in FLOATS:
        return np.asarray(random.choice([0.0, 0.0, 0.5, -1.0], shape)).astype(dtype(name))
    low, high = INTS[name]
    return np.asarray(random.integers(low, high, shape, endpoint=True)).astype(np.int32).astype(dtype(name))


def plain(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32).astype(np.float64)


# Every type


HARD = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 1e-40, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.0000002, 2.9999998]


@every_type
def test_every_type_by_either_way(name: str) -> None:
    random = np.random.default_rng(1)
    reach = INTS.get(name, (-600, 600))[1] * 1.3
    x = np.concatenate([HARD, random.uniform(-reach, reach, 400), np.arange(-20, 20) / 2]).astype(np.float32).reshape(12, 38)
    for with_zero, saturate in ((False, True), (True, True)) + (((True, False),) if name in FLOAT8 else ()):
        scale, zero = np.array(random.choice([0.5, 0.7, 1.1, 2.0]), np.float32), zeros_of(name, (), random)
        s, z = np.full(x.shape, float(scale)), np.full(x.shape, float(numbers(zero, name)) if with_zero else 0.0)
        given = (scale, zero) if with_zero else (scale,)
        bound = operator("QuantizeLinear", output_dtype=name, saturate=saturate)
        codes_wanted = quantized(x.astype(np.float64), s, z, name, saturate=saturate)
        y = codes_wanted.view(dtype(name)).reshape(x.shape)
        for got in by(lambda: bound(x, *given)):  # noqa: B023
            assert (got.dtype, got.shape) == (dtype(name), x.shape)
            assert_same(got, codes_wanted, x)
        want = dequantized(numbers(y, name), s, z)
        for got in by(lambda: dequantize_linear(y, *given)):  # noqa: B023
            assert (got.dtype, got.shape) == (np.float32, x.shape)
            assert_numbers(got, want)
        if BITS[name] >= 8 or name in PACKED:
            for got in by(lambda: bound(x, *given, packed=True)):  # noqa: B023
                assert got == packed(y)
            for got in by(lambda: dequantize_linear(packed(y), *given)):  # noqa: B023
                assert_numbers(got, want)


@every_type
def test_all_codes_become_numbers(name: str) -> None:
    every = np.arange(1 << BITS[name], dtype=np.uint16 if BITS[name] > 8 else np.uint8)[:: 1 if COMPILED or BITS[name] < 16 else 97]
    values = numbers(every.view(dtype(name)), name)
    for scale, target in itertools.product((1.0, 0.3, -3e38), SHORT):
        bound = operator("DequantizeLinear", output_dtype=target)
        once = (bound(every.view(dtype(name)), np.float32(scale)),)
        for got in by(lambda: bound(every.view(dtype(name)), np.float32(scale))) if name in COMMON else once:  # noqa: B023
            assert got.dtype == dtype(target)
            assert_numbers(plain(got), dequantized(values, np.float64(np.float32(scale)), np.float64(0), target))


@both_paths
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("name", INTS)
def test_ties_are_even_before_the_zero_point_comes(name: str) -> None:
    low, high = INTS[name]
    whole = np.arange(max(low, -300) - 3, min(high, 300) + 4)
    for zero in {0, 1, low, high, high - 1}:
        x = ((whole + 0.5) * 0.25).astype(np.float32)
        got = quantize_linear(x, np.float32(0.25), np.array(zero, np.int32).astype(dtype(name)))
        want = np.clip(
            [2 * round((number + 0.5) / 2) if False else round(Fraction(2 * int(number) + 1, 2)) + zero for number in whole], low, high
        )
        assert numbers(got, name).tolist() == want.tolist()


@both_paths
@pytest.mark.usefixtures("path")
def test_what_has_no_quotient() -> None:
    x = np.array([1.0, -1.0, 0.0, math.inf, -math.inf, math.nan], np.float32)
    #                scale, zero,                       1,   -1,    0,  inf, -inf,  nan
    for scale, zero, want in (
        (0.0, np.uint8(3), [255, 0, 0, 255, 0, 0]),
        (0.0, np.int8(-3), [127, -128, -128, 127, -128, -128]),
        (math.inf, np.int8(5), [5, 5, 5, -128, -128, -128]),
        (math.nan, np.uint16(9), [0, 0, 0, 0, 0, 0]),
        (1e-45, np.int16(0), [32767, -32768, 0, 32767, -32768, -32768]),
        (-1.0, np.int8(0), [-1, 1, 0, -128, 127, -128]),
    ):
        assert quantize_linear(x, np.float32(scale), zero).tolist() == want
    got = quantize_linear(x, np.float32(0), output_dtype="float8e4m3fn")
    assert codes(got)[[0, 1, 3, 4]].tolist() == [0x7E, 0xFE, 0x7E, 0xFE] and (codes(got)[[2, 5]] & 0x7F == 0x7F).all()
    got = quantize_linear(x, np.float32(0), output_dtype="float8e5m2", saturate=False)
    assert codes(got)[[0, 1, 3, 4]].tolist() == [0x7C, 0xFC, 0x7C, 0xFC]


# Granularity


@st.composite
def granularities(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """Shapes of a tensor and its scale, axis, block size."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    way = draw(st.sampled_from(["tensor", "one", "axis", "blocks"]))
    if way in ("tensor", "one"):
        return shape, () if way == "tensor" else (1,), axis, 0
    if way == "axis":
        return shape, (shape[axis],), axis, 0
    block = draw(st.integers(1, shape[axis] + 2))
    scales = list(shape)
    scales[axis] = -(-shape[axis] // block)
    return shape, tuple(scales), axis, block


SMALL_SHAPES = [shape for rank in (1, 2, 3) for shape in itertools.product((1, 2, 3), repeat=rank)]


@pytest.mark.parametrize("shape", SMALL_SHAPES, ids=str)
def test_every_granularity_of_small_shapes(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x = random.uniform(-9, 9, shape).astype(np.float32)
    for axis in range(-len(shape), len(shape)):
        for block in range(shape[axis] + 2):
            scales = (
                tuple(-(-size // block) if place == axis % len(shape) else size for place, size in enumerate(shape))
                if block
                else (shape[axis],)
            )
            scale, zero = np.asarray(random.uniform(0.1, 2, scales), np.float32), random.integers(-50, 50, scales).astype(np.int8)
            s, z = (scale_of_each(values.astype(np.float64), shape, axis, block) for values in (scale, zero))
            for got in by(lambda: quantize_linear(x, scale, zero, axis=axis, block_size=block)):  # noqa: B023
                assert_same(got, quantized(x.astype(np.float64), s, z, "int8"), x)
            for back in by(lambda: dequantize_linear(zero_like(x), scale, zero, axis=axis, block_size=block)):  # noqa: B023
                np.testing.assert_array_equal(back, (-z * s).astype(np.float32))


def zero_like(x: np.ndarray) -> np.ndarray:
    return np.zeros(x.shape, np.int8)


def test_other_integers_than_int32_run_in_a_model_only() -> None:
    x, scale, zero = np.array([-20, 7, 300]), np.float32(2), np.int8(1)
    with pytest.raises(numbaops.InvalidTypeError, match="x has element type int64"):
        quantize_linear(x, scale, zero)
    lenient = numbaops.resolve("QuantizeLinear").bind({}, check_types=False)
    assert lenient(x, scale, zero).tolist() == [-9, 5, 127]


@settings(max_examples=200 if COMPILED else 60)
@given(granularities(), st.sampled_from(["int8", "int4", "float8e4m3fn"]), st.integers(0, 1000))
def test_drawn_granularities(drawn: tuple[tuple[int, ...], tuple[int, ...], int, int], name: str, seed: int) -> None:
    shape, scales, axis, block = drawn
    random = np.random.default_rng(seed)
    x = random.uniform(-9, 9, shape).astype(np.float32)
    scale = np.asarray(random.uniform(0.1, 2, scales), np.float32)
    zero = zeros_of(name, scales, random)
    s = scale_of_each(scale.astype(np.float64), shape, axis, block)
    z = scale_of_each(numbers(zero, name), shape, axis, block)
    want = quantized(x.astype(np.float64), s, z, name)
    for got in by(lambda: quantize_linear(x, scale, zero, axis=axis, block_size=block)):
        assert_same(got, want, x)
    for got in by(lambda: quantize_linear(x, scale, zero, axis=axis, block_size=block, packed=True)):
        assert_same(got.unpack(), want, x)
    y = want.reshape(shape).view(dtype(name))
    back = dequantized(numbers(y, name), s, z)
    for given_y in (y, packed(y)):
        for got in by(lambda: dequantize_linear(given_y, scale, zero, axis=axis, block_size=block)):  # noqa: B023
            assert_numbers(got, back)


WIDE = [
    ((70, 130), (130,), 1, 0),
    ((70, 130), (70,), 0, 0),
    ((3, 130, 65), (130,), 1, 0),
    ((3, 130, 7), (130,), 1, 0),
    ((70, 130), (70, 5), 1, 32),
    ((70, 130), (70, 9), 1, 16),
    ((70, 130), (9, 130), 0, 8),
    ((3, 40, 65), (3, 3, 65), 1, 16),
    ((70, 130), (70, 130), 1, 1),
    ((13, 2500), (2500,), 1, 0),
    ((13, 2500), (2, 2500), 0, 7),
    ((2, 9, 2500), (2, 3, 2500), 1, 4),
]


@pytest.mark.parametrize(("shape", "scales", "axis", "block"), WIDE, ids=str)
def test_kernels_from_any_element_on(
    shape: tuple[int, ...], scales: tuple[int, ...], axis: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads may cut the work anywhere: here into pieces of 64 elements and of many."""
    random = np.random.default_rng(3)
    x = random.uniform(-9, 9, shape).astype(np.float32)
    scale = random.uniform(0.1, 2, scales).astype(np.float32)
    zero = zeros_of("int4", scales, random)

    def results() -> list[np.ndarray]:
        y = quantize_linear(x, scale, zero, axis=axis, block_size=block)
        data = quantize_linear(x, scale, zero, axis=axis, block_size=block, packed=True)
        assert isinstance(data, PackedTensor)
        back = (dequantize_linear(each, scale, zero, axis=axis, block_size=block) for each in (y, data))
        return [codes(y), data.data, *(codes(each) for each in back)]

    monkeypatch.setattr(linear, "JIT_FROM", 1 << 60)
    want = results()
    monkeypatch.setattr(linear, "JIT_FROM", 0)
    monkeypatch.setattr(walks, "UNDIVIDED", 0)
    for piece in (None, 64 * 3, 64 * 41) if COMPILED else (64 * 41,):

        def in_pieces(work: Callable[[int, int], object], size: int, *_: int, piece: int | None = piece) -> None:
            for start in range(0, size, piece or size):
                work(start, min(start + (piece or size), size))

        monkeypatch.setattr(walks, "split", in_pieces)
        for got, wanted in zip(results(), want, strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.skipif(not COMPILED, reason="for compiled kernels")
def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    x = random.standard_normal((1025, 4097), np.float32)
    scale = random.uniform(0.01, 0.1, 4097).astype(np.float32)
    results = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NUMBAOPS_NUM_THREADS", threads)
        y = quantize_linear(x, scale, output_dtype="int4", packed=True)
        assert isinstance(y, PackedTensor)
        results.append((y, dequantize_linear(y, scale)))
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])


@both_paths
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("shape", "scales", "attributes"),
    [
        ((0,), (), {}),
        ((2, 0), (0,), {}),
        ((0, 3), (3,), {}),
        ((0, 3), (0,), {"axis": 0}),
        ((2, 0), (2, 0), {"block_size": 4}),
        ((0, 4), (0, 2), {"block_size": 2}),
        ((), (), {"axis": 5, "block_size": 3}),
        ((), (1,), {}),
    ],
)
def test_nothing_and_rank_0(shape: tuple[int, ...], scales: tuple[int, ...], attributes: dict[str, int]) -> None:
    y = quantize_linear(np.ones(shape, np.float32), np.ones(scales, np.float32), output_dtype="int4", **attributes)
    assert isinstance(y, np.ndarray)
    assert (y.shape, y.dtype) == (shape, ml_dtypes.int4)
    assert dequantize_linear(y, np.ones(scales, np.float32), **attributes).tolist() == np.ones(shape).tolist()


def test_zero_point_of_one_element_has_either_shape() -> None:
    x = np.array([[1, 2], [3, 4]], np.float32)
    for scale, zero in itertools.product(((), (1,)), repeat=2):
        assert quantize_linear(x, np.full(scale, 2, np.float32), np.full(zero, 1, np.uint8)).tolist() == [[1, 2], [3, 3]]


# Element types of x, scale, result


@pytest.mark.parametrize("precision", SHORT)
@pytest.mark.parametrize("source", [*SHORT, "int32"])
def test_division_in_each_precision(source: str, precision: str) -> None:
    random = np.random.default_rng(5)
    with np.errstate(over="ignore"):
        raw = np.concatenate([random.uniform(-130, 130, 300), [0, 70000, -70000, 1e-7, 6e-8, 65519, 65520, 2**24 + 1, 2049, 2051]])
        x = raw.astype(np.int32) if source == "int32" else raw.astype(np.float32).astype(dtype(source))
    scale = np.float32(0.3).astype(dtype(precision))
    exact = x.astype(np.float64) if source == "int32" else plain(x)
    for name in ("int8", "int16", "float8e5m2", "float6e3m2"):
        want = quantized(exact, np.full(x.shape, float(scale)), np.zeros(x.shape), name, precision)
        assert_same(quantize_linear(x, scale, output_dtype=name), want, x)
        if name == "int8" or (name, source) == ("float8e5m2", precision):
            for got in by(lambda: quantize_linear(x, np.float32(scale), output_dtype=name, precision=precision)):  # noqa: B023
                assert_same(got, want, x)


def test_precision_decides_and_not_the_scale() -> None:
    x, scale = np.array([10.0, 1000.0], np.float32), np.float32(0.333)
    assert quantize_linear(x, scale, np.int16(0)).tolist() == [30, 3003]
    assert quantize_linear(x, scale, np.int16(0), precision="bfloat16").tolist() == [30, 3008]
    assert quantize_linear(x, scale, np.int16(0), precision=element_type("float16").code).tolist() == [30, 3002]
    assert quantize_linear(x, np.float16(0.333), np.int16(0), precision="float").tolist() == [30, 3003]


def test_short_scales_before_23_divide_in_float32() -> None:
    x, scale = np.array([1000.0], np.float16), np.float16(0.333)
    assert quantize_linear(x, scale, np.int8(0), opset=19).tolist() == [127]
    for opset, want in ((21, 3003), (23, 3002)):
        assert quantize_linear(x, scale, np.int16(0), opset=opset).tolist() == [want]


def test_scale_in_e8m0() -> None:
    scale = np.array([126, 128], np.uint8).view(ml_dtypes.float8_e8m0fnu)  # 0.5 and 2
    x = np.array([[3.25, 3.25]], np.float32)
    assert quantize_linear(x, scale, output_dtype="int8").tolist() == [[6, 2]]
    assert dequantize_linear(np.array([[6, 2]], np.int8), scale, output_dtype="float16").tolist() == [[3, 4]]
    with pytest.raises(InvalidValueError, match=r"DequantizeLinear-25: output_dtype is missing.*float8e8m0"):
        dequantize_linear(np.array([[6, 2]], np.int8), scale, opset=25)


def test_integer_scale_divides_in_float64() -> None:
    x = np.array([2**24 + 1, 7], np.int32)
    assert quantize_linear(x, np.int32(2**9), output_dtype="uint16").tolist() == [32768, 0]
    assert quantize_linear(np.array([5.0, 7.0], np.float32), np.int32(2), np.int8(0)).tolist() == [2, 4]


@pytest.mark.parametrize("size", [5, 2000])
def test_int32_is_subtracted_exactly(size: int) -> None:
    x = np.tile(np.array([2**31 - 1, -(2**31), 2**24 + 1, 0, 5], np.int32), size // 5)
    got = dequantize_linear(x, np.float32(1), np.int32(-(2**31)))
    want = [float(np.float32(float(number + 2**31))) for number in x.tolist()]
    assert got.tolist() == want


@both_paths
@pytest.mark.usefixtures("path")
def test_product_is_float32_and_the_result_rounded() -> None:
    y = np.arange(-128, 128).astype(np.int8)
    for target, name in itertools.product(SHORT, SHORT):
        scale = np.float32(0.123).astype(dtype(name))
        got = dequantize_linear(y, scale, np.int8(-7), output_dtype=target)
        assert_numbers(plain(got), dequantized(y.astype(np.float64), np.float64(scale), np.float64(-7), target))
    assert np.isinf(dequantize_linear(y, np.float32(1000), output_dtype="float16")[0])


@both_paths
@pytest.mark.usefixtures("path")
def test_zero_of_a_float_keeps_its_sign() -> None:
    x = np.array([-0.0, 0.0], np.float32)
    for zero in (None, np.zeros((), ml_dtypes.float8_e4m3fn), np.array(0x80, np.uint8).view(ml_dtypes.float8_e4m3fn)):
        y = quantize_linear(x, np.float32(1), zero, output_dtype="float8e4m3fn")
        assert codes(y).tolist() == [0x80, 0]
        assert np.signbit(dequantize_linear(y, np.float32(1), zero)).tolist() == [True, False]


def test_double_is_divided_as_double_where_types_are_not_checked() -> None:
    x = np.array([0.25 + 2.0**-30, 0.75 - 2.0**-30, 0.25])
    bound = operator("QuantizeLinear").version.bind({}, check_types=False)
    assert bound(x, np.float32(0.5)).tolist() == [1, 1, 0]
    with pytest.raises(InvalidTypeError, match="x has element type double; this version allows"):
        quantize_linear(x, np.float32(0.5))
    back = operator("DequantizeLinear").version.bind({}, check_types=False)(np.array([3], np.int8), np.float64(0.1))
    assert back.dtype == np.float64 and back.tolist() == [3 * 0.1]


# Arrays of all sorts


@pytest.mark.parametrize("name", ["int8", "int4", "float8e4m3fn", "int16"])
@pytest.mark.parametrize("size", [30, 3000])
def test_out(name: str, size: int) -> None:
    x = np.linspace(-9, 9, size, dtype=np.float32).reshape(10, -1)
    want = quantize_linear(x, np.float32(1.5), output_dtype=name)
    assert isinstance(want, np.ndarray)
    out = np.full_like(want, 1)
    assert quantize_linear(x, np.float32(1.5), output_dtype=name, out=out) is out
    assert_same(out, codes(want))
    data = np.empty(packed(want).nbytes, np.uint8)
    got = quantize_linear(x, np.float32(1.5), output_dtype=name, out=data, packed=True)
    assert isinstance(got, PackedTensor)
    assert got.data is data and got == packed(want)
    back = np.empty(x.shape, np.float32)
    assert dequantize_linear(want, np.float32(1.5), out=back) is back
    np.testing.assert_array_equal(back, dequantize_linear(got, np.float32(1.5)))
    for wrong, error, text in (
        (np.empty((3, 3), want.dtype), InvalidValueError, "out has shape"),
        (np.empty(x.shape, np.float64), InvalidTypeError, "out has dtype float64"),
        (np.empty((*x.shape, 2), want.dtype)[..., 0], InvalidValueError, "out is not C-contiguous"),
    ):
        with pytest.raises(error, match=f"QuantizeLinear-28: {text}"):
            quantize_linear(x, np.float32(1.5), output_dtype=name, out=wrong)
    shared = x.view(want.dtype)[:, : x.shape[1]] if want.dtype.itemsize == 4 else x.reshape(-1).view(want.dtype)[:size].reshape(x.shape)
    with pytest.raises(InvalidValueError, match="out shares memory with an input"):
        quantize_linear(x, np.float32(1.5), output_dtype=name, out=shared)


@pytest.mark.parametrize("size", [40, 4000])
def test_layouts(size: int) -> None:
    x = np.linspace(-9, 9, size, dtype=np.float32).reshape(20, -1)
    scale = np.linspace(0.1, 1, x.shape[1], dtype=np.float32)
    want = quantize_linear(x, scale, output_dtype="int8")
    frozen = x.copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(bytes(1) + x.tobytes(), np.float32, offset=1).reshape(x.shape)
    strided_scale = np.repeat(scale, 2)[::2]
    for given_x, given_scale in (
        (np.asfortranarray(x), strided_scale),
        (x.astype(">f4"), scale.astype(">f4")),
        (frozen, scale),
        (unaligned, scale),
        (np.repeat(x, 2, 0)[::2], scale),
    ):
        y = quantize_linear(given_x, given_scale, output_dtype="int8")
        assert isinstance(want, np.ndarray)
        np.testing.assert_array_equal(y, want)
        assert y.flags.c_contiguous and y.flags.writeable
        np.testing.assert_array_equal(dequantize_linear(np.asfortranarray(y), given_scale), dequantize_linear(want, scale))
    assert x.flags.writeable and scale.flags.writeable


def test_high_bits_of_narrow_elements_do_not_count() -> None:
    dirty = np.array([0xF3, 0x3D], np.uint8).view(ml_dtypes.int4)
    zero = np.array(0xF1, np.uint8).view(ml_dtypes.int4)
    for got in by(lambda: dequantize_linear(dirty, np.float32(1), zero)):
        assert got.tolist() == [2, -4]
    for got in by(lambda: quantize_linear(np.array([3, -9], np.float32), np.float32(1), zero)):
        assert codes(got).tolist() == [4, 8]


def test_small_arrays_load_no_numba() -> None:
    code = """
        import sys
        import numpy as np
        import numbaops
        x = np.arange(16, dtype=np.float32).reshape(2, 8)
        for name in ("int8", "uint8", "int16", "int4", "uint2"):
            y = numbaops.quantize_linear(x, np.full(8, 0.5, np.float32), output_dtype=name)
            numbaops.dequantize_linear(y, np.float32(0.5))
        numbaops.operator("DynamicQuantizeLinear")(x)
        print("numba" in sys.modules)
    """
    assert run_python(code) == "False"


# Versions


SINCE = dict.fromkeys(("int8", "uint8"), 10) | dict.fromkeys(FLOAT8, 19) | dict.fromkeys(("int16", "uint16", "int4", "uint4"), 21)
SINCE |= {"float4e2m1": 23, "int2": 25, "uint2": 25, "float6e2m3": 28, "float6e3m2": 28}


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25, 28])
def test_versions_take_their_types(opset: int) -> None:
    x, scale = np.array([1.0], np.float32), np.float32(0.5)
    for name, since in SINCE.items():
        zero = np.zeros((), dtype(name))
        if since <= opset:
            y = quantize_linear(x, scale, zero, opset=opset)
            assert plain(dequantize_linear(y, scale, opset=opset)).tolist() == [1.0 if name != "int2" else 0.5]
        else:
            with pytest.raises(InvalidTypeError, match=rf"QuantizeLinear-{opset}: y_zero_point has element type {name}"):
                quantize_linear(x, scale, zero, opset=opset)
            with pytest.raises(InvalidTypeError, match=rf"DequantizeLinear-{opset}: x has element type {name}"):
                dequantize_linear(zero, scale, opset=opset)
            lenient = operator("QuantizeLinear", opset).version.bind({}, check_types=False)
            assert lenient(x, scale, zero).dtype == dtype(name)


X, Y = np.ones((2, 3), np.float32), np.ones((2, 3), np.int8)
S, S3 = np.float32(1), np.ones(3, np.float32)


def blocks(count: int) -> np.ndarray:
    return np.ones((2, count), np.float32)


# fmt: off
WRONG_VALUES: list[tuple[str, Callable[[], Any], str]] = [
    ("axis", lambda: quantize_linear(X, S, axis=0, opset=10), "QuantizeLinear-10: there is no attribute 'axis'"),
    ("block_size", lambda: quantize_linear(X, S, block_size=2, opset=19), "QuantizeLinear-19: there is no attribute"),
    ("precision", lambda: quantize_linear(X, S, precision=1, opset=21), "QuantizeLinear-21: there is no attribute"),
    ("y_scale", lambda: quantize_linear(X, S3, opset=10), "-10: y_scale has shape [3]; allowed in this version: a scalar"),
    ("x_scale", lambda: dequantize_linear(Y, S3, opset=10), "-10: x_scale has shape [3]"),
    ("y_zero_point", lambda: quantize_linear(X, S3, np.zeros(2, np.int8)), "y_zero_point has shape [2]; the scale has [3]"),
    ("y_scale", lambda: quantize_linear(X, S3[:2]), "y_scale has shape [2] for 3 elements of x along axis 1; allowed: [3] or"),
    ("y_scale", lambda: quantize_linear(X, S3[None]), "y_scale has shape [1, 3]; allowed: a scalar, or without block_size"),
    ("y_scale", lambda: quantize_linear(X, S3, block_size=1), "y_scale has shape [3]; allowed: a scalar, or with block_size 1"),
    ("axis", lambda: quantize_linear(X, S3, axis=2), "axis is 2 for x of rank 2; allowed: -2 to 1"),
    ("axis", lambda: quantize_linear(X[0], S3), "axis is 1 for x of rank 1; allowed: -1 to 0"),
    ("axis", lambda: dequantize_linear(Y, S3, axis=-3), "DequantizeLinear-28: axis is -3 for x of rank 2"),
    ("y_scale", lambda: quantize_linear(X, S3[None, :2], block_size=2), "they may differ along axis 1 only"),
    ("block_size", lambda: quantize_linear(X, blocks(2), block_size=1), "3 elements are in 2 blocks; allowed: 2 to 2"),
    ("block_size", lambda: quantize_linear(X, blocks(1), block_size=2), "3 elements are in 1 blocks; allowed: 3 or more"),
    ("block_size", lambda: quantize_linear(X, blocks(5), block_size=1), "in 5 blocks; no size of blocks gives that"),
    ("block_size", lambda: quantize_linear(X, S, block_size=-1), "block_size is -1; allowed: an integer from 1 on, or 0"),
]
WRONG_TYPES: list[tuple[str, Callable[[], Any], str]] = [
    ("y_scale", lambda: quantize_linear(X, np.float16(1), opset=13), "-13: y_scale has element type float16; this version allows float"),
    ("y_scale", lambda: quantize_linear(X, np.float16(1), opset=19), "-19: y_scale has element type float16; allowed in this version"),
    ("y_scale", lambda: quantize_linear(X, np.int8(1)), "y_scale has element type int8"),
    ("x", lambda: quantize_linear(Y, S), "QuantizeLinear-28: x has element type int8; this version allows"),
    ("x", lambda: dequantize_linear(X, S), "DequantizeLinear-28: x has element type float; this version allows"),
    ("output_dtype", lambda: quantize_linear(X, S, output_dtype="int32"), "output_dtype has element type int32; allowed: float4e2m1"),
    ("output_dtype", lambda: quantize_linear(X, S, np.int8(0), output_dtype="uint8"), "is uint8, and y_zero_point has element type int8"),
    ("output_dtype", lambda: quantize_linear(X, S, output_dtype="int5"), "'int5' is no ONNX element type"),
    ("precision", lambda: quantize_linear(X, S, precision="int32"), "precision has element type int32; allowed: bfloat16, double"),
    ("x_zero_point", lambda: dequantize_linear(Y, S, np.uint8(0)), "x_zero_point has element type uint8; allowed: that of x, int8"),
    ("axis", lambda: operator("QuantizeLinear", axis=1.5), "axis is 1.5; allowed: an integer"),
    ("saturate", lambda: operator("QuantizeLinear", saturate="no"), "saturate is 'no'"),
    ("x", lambda: quantize_linear([1.0], S), "QuantizeLinear-28: x is a list; allowed: an array"),
    ("y_scale", lambda: quantize_linear(X, 0.5), "y_scale is a float; allowed: an array"),
    ("x", lambda: operator("DynamicQuantizeLinear")(Y), "DynamicQuantizeLinear-11: x has element type int8"),
    ("x", lambda: operator("DynamicQuantizeLinear")([1.0]), "x is a list"),
]
# fmt: on
ERRORS = [(InvalidValueError, *row) for row in WRONG_VALUES] + [(InvalidTypeError, *row) for row in WRONG_TYPES]


@pytest.mark.parametrize(("kind", "attribute", "call", "text"), ERRORS, ids=[row[3] for row in ERRORS])
def test_errors(kind: type[NumbaopsError], attribute: str, call: Callable[[], Any], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)) as caught:
        call()
    assert caught.value.attribute == attribute and str(caught.value.op_type) in str(caught.value)


def test_bound_operators_show_themselves_and_pickle() -> None:
    bound = operator("QuantizeLinear", 23, output_dtype=22, axis=-1, block_size=2, precision=np.float16, saturate=0)
    want = "<QuantizeLinear-23, axis=-1, block_size=2, saturate=0, output_dtype='int4', precision='float16': "
    assert repr(bound) == want + "(x, y_scale, y_zero_point) -> int4>"
    x, scale = np.arange(6, dtype=np.float32).reshape(1, 6), np.array([[0.5, 1, 2]], np.float16)
    again = pickle.loads(pickle.dumps(bound))
    assert repr(again) == repr(bound) and again(x, scale).tolist() == bound(x, scale).tolist()
    assert repr(operator("DequantizeLinear", 10)) == "<DequantizeLinear-10: (x, x_scale, x_zero_point) -> type of x_scale>"


# DynamicQuantizeLinear


def dynamic(x: np.ndarray) -> tuple[np.ndarray, np.float32, int]:
    """The function body by which ONNX defines the operator, in float32, and scale 1 where it would be 0 / 0."""
    low, high = np.float32(min(0, *x.tolist())), np.float32(max(0, *x.tolist()))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = round(Fraction(float(np.clip(np.float32(0) - low / scale, 0, 255))))
    return quantized(x.astype(np.float64), np.full(x.shape, float(scale)), np.full(x.shape, float(zero)), "uint8"), scale, zero


@both_paths
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("size", [2, 63, 64, 65, 1000])
def test_dynamic(size: int) -> None:
    bound = operator("DynamicQuantizeLinear")
    random = np.random.default_rng(size)
    for low, high in ((-3, 5), (1, 2), (-7, -1), (0, 0), (-1e-3, 1e4)):
        x = random.uniform(low, high, size).astype(np.float32)
        y, scale, zero = bound(x)
        want = dynamic(x)
        assert_same(y, want[0], x)
        assert (scale, zero) == want[1:] and (scale.shape, zero.shape) == ((), ())
        assert (y.dtype, scale.dtype, zero.dtype) == (np.uint8, np.float32, np.uint8)


@both_paths
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("x", "y", "scale", "zero"),
    [
        ([], [], 1.0, 0),
        ([0.0, -0.0], [0, 0], 1.0, 0),
        ([math.nan, 255.0], [0, 255], 1.0, 0),
        ([math.nan], [0], 1.0, 0),
        ([math.inf, 1.0], [0, 0], math.inf, 0),
        ([-math.inf, math.inf, 1.0], [0, 0, 0], math.inf, 0),
        ([3e38, -3e38], [0, 0], math.inf, 0),
    ],
)
def test_dynamic_extremes(x: list[float], y: list[int], scale: float, zero: int) -> None:
    got = operator("DynamicQuantizeLinear")(np.array(x, np.float32))
    assert [part.tolist() for part in got] == [y, scale, zero]


def test_dynamic_of_other_shapes_and_types() -> None:
    y, scale, zero = operator("DynamicQuantizeLinear")(np.array([[-51.0], [204.0]], np.float32)[::-1])
    assert (y.tolist(), scale.tolist(), zero.tolist()) == ([[255], [0]], 1.0, 51)
    lenient = operator("DynamicQuantizeLinear").version.bind({}, check_types=False)
    y, scale, zero = lenient(np.array([0.0, 255.0]))
    assert (y.tolist(), scale.dtype, scale.tolist(), zero.tolist()) == ([0, 255], np.float64, 1.0, 0)


# ONNX's node cases


def as_array(value: Any) -> np.ndarray:
    return numbaops.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def test_node_cases(node_cases: list[Any]) -> None:
    operators = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
    count = 0
    for case in node_cases:
        nodes = case.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in operators:
            continue
        count += 1
        (node,) = nodes
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        (opset,) = (entry.version for entry in case.model.opset_import)
        bound = operator(node.op_type, min(opset, 28), **attributes)
        for data in case.data_sets:
            inputs, outputs = (tuple(map(as_array, part)) for part in data)
            for results in by(lambda: bound(*inputs)):  # noqa: B023
                results = results if isinstance(results, tuple) else (results,)
                for got, want in zip(results, outputs, strict=True):
                    assert (got.dtype, got.shape) == (want.dtype, want.shape)
                    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32), case.name)
            feeds = dict(zip([value.name for value in case.model.graph.input], inputs, strict=True))
            for got, want in zip(numbaops.ReferenceEvaluator(case.model).run(None, feeds), outputs, strict=True):
                np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32), case.name)
    assert count >= 20
