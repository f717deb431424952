"""ml_dtypes arrays and scalars inside ``@njit`` functions, beside ml_dtypes itself."""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest
from numba import config
from numba.core.errors import TypingError

from numbaops.dtypes import ELEMENT_TYPES, ElementType
from numbaops.numba_types import register_numba_types

register_numba_types()

pytestmark = [
    pytest.mark.skipif(bool(config.DISABLE_JIT), reason="without compilation ml_dtypes itself computes"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning", "ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]

ROWS = [row for row in ELEMENT_TYPES if row.dtype.type.__module__.startswith("ml_dtypes")]
FLOATS = [row for row in ROWS if row.kind == "float"]
INTEGERS = [row for row in ROWS if row.kind != "float"]
SMALL = (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4)

rows = pytest.mark.parametrize("row", ROWS, ids=str)
floats = pytest.mark.parametrize("row", FLOATS, ids=str)
integers = pytest.mark.parametrize("row", INTEGERS, ids=str)
some = pytest.mark.parametrize("dtype", [np.dtype(each) for each in SMALL], ids=str)

bfloat16 = ml_dtypes.bfloat16


def skip_old_rounding(row: ElementType) -> None:
    if row.name == "float8e8m0" and float(ml_dtypes.float8_e8m0fnu(3)) != 4:
        pytest.skip("this ml_dtypes rounds float8_e8m0fnu ties to even, later ones and ours up")


def word(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.itemsize}")


def every(row: ElementType) -> np.ndarray:
    """All values, once each."""
    return np.arange(1 << row.bits, dtype=word(row.dtype)).view(row.dtype)


def assert_same(actual: np.ndarray, expected: np.ndarray, nan_bits: bool = True) -> None:
    """Equal dtypes and equal bits; the sign of a NaN that arithmetic makes is not defined."""
    assert actual.dtype == expected.dtype
    left, right = actual.view(word(actual.dtype)), expected.view(word(expected.dtype))
    different = left != right
    if not nan_bits:
        different &= ~((actual != actual) & (expected != expected))
    places = np.argwhere(different)
    assert places.size == 0, [(tuple(place), left[tuple(place)], right[tuple(place)]) for place in places[:5]]


@numba.njit
def copy(source: np.ndarray, out: np.ndarray) -> None:
    for i in range(source.size):
        out[i] = source[i]


def copied(source: np.ndarray, dtype: Any) -> np.ndarray:
    out = np.empty(source.shape, dtype)
    copy(source, out)
    return out


@numba.njit(error_model="numpy")
def arithmetic(x: np.ndarray, y: np.ndarray, sums: np.ndarray, differences: np.ndarray, products: np.ndarray, ratios: np.ndarray) -> None:
    for i in range(x.size):
        for j in range(y.size):
            sums[i, j] = x[i] + y[j]
            differences[i, j] = x[i] - y[j]
            products[i, j] = x[i] * y[j]
            ratios[i, j] = x[i] / y[j]


@numba.njit(error_model="numpy")
def floor_arithmetic(x: np.ndarray, y: np.ndarray, quotients: np.ndarray, remainders: np.ndarray) -> None:
    for i in range(x.size):
        for j in range(y.size):
            quotients[i, j] = x[i] // y[j]
            remainders[i, j] = x[i] % y[j]


@numba.njit
def comparisons(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    for i in range(x.size):
        for j in range(y.size):
            out[0, i, j] = x[i] == y[j]
            out[1, i, j] = x[i] != y[j]
            out[2, i, j] = x[i] < y[j]
            out[3, i, j] = x[i] <= y[j]
            out[4, i, j] = x[i] > y[j]
            out[5, i, j] = x[i] >= y[j]


@numba.njit
def unary(x: np.ndarray, negative: np.ndarray, absolute: np.ndarray, truth: np.ndarray, wide: np.ndarray) -> None:
    for i in range(x.size):
        negative[i] = -x[i]
        absolute[i] = abs(x[i])
        truth[i] = bool(x[i])
        wide[i] = float(+x[i])


@numba.njit
def extremes(x: Any, y: Any, z: Any) -> Any:
    return min(x, y), max(x, y), min(x, y, z), max(x, y, z)


# Elements: exact loads, stores with one rounding


@rows
def test_load_every_code(row: ElementType) -> None:
    target = np.float32 if row.kind == "float" else np.int32
    assert_same(copied(every(row), target), every(row).astype(target))
    assert_same(copied(every(row), np.float64), every(row).astype(np.float64))


@rows
def test_copy_every_code(row: ElementType) -> None:
    assert_same(copied(every(row), row.dtype), every(row))


@pytest.mark.parametrize("row", [row for row in ROWS if row.bits < 8], ids=str)
def test_high_bits_of_a_byte_are_ignored_and_written_as_zeros(row: ElementType) -> None:
    codes = np.arange(256, dtype=np.uint8)
    canonical = codes & (1 << row.bits) - 1
    assert_same(copied(codes.view(row.dtype), row.dtype), canonical.view(row.dtype))
    assert_same(copied(codes.view(row.dtype), np.float32), canonical.view(row.dtype).astype(np.float32))


def neighbourhood(row: ElementType) -> np.ndarray:
    """Every finite value, every midpoint of two, the float32 next to each on both sides, and numbers of all magnitudes."""
    values = every(row).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    middles = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    points = np.concatenate([values, middles])
    generator = np.random.default_rng(row.code)
    patterns = generator.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    ordinary = generator.normal(size=2_000).astype(np.float32) * np.float32(8)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 2.0**-127, 3.4e38, -3.4e38], np.float32)
    below, above = np.nextafter(points, np.float32(-np.inf)), np.nextafter(points, np.float32(np.inf))
    return np.concatenate([points, below, above, patterns, ordinary, special])


@rows
@pytest.mark.parametrize("source", [np.float32, np.float64], ids=["float32", "float64"])
def test_store_floats(row: ElementType, source: type[np.floating[Any]]) -> None:
    skip_old_rounding(row)
    x = neighbourhood(row)
    assert_same(copied(x.astype(source), row.dtype), x.astype(row.dtype))


@floats
def test_store_float64_rounds_once(row: ElementType) -> None:
    """Next to a midpoint, nearer than float32 can tell; through float32 the ties would decide."""
    values = every(row).astype(np.float64)
    values = np.unique(values[np.isfinite(values) & (values > 2.0**-126)])
    middles = (values[1:] + values[:-1]) / 2
    assert_same(copied(middles * (1 + 2.0**-40), row.dtype), values[1:].astype(row.dtype))
    assert_same(copied(middles * (1 - 2.0**-40), row.dtype), values[:-1].astype(row.dtype))


@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [
        (2**60 + 2**52, "int64", 2.0**60),
        (2**60 + 2**52 + 1, "int64", 2.0**60 + 2.0**53),
        (-(2**60) - 2**52 - 1, "int64", -(2.0**60) - 2.0**53),
        (2**60 + 3 * 2**52 - 1, "int64", 2.0**60 + 2.0**53),
        (2**63 + 2**55 + 1, "uint64", 2.0**63 + 2.0**56),
        (2**64 - 1, "uint64", 2.0**64),
        (2**63 - 1, "int64", 2.0**63),
        (-(2**63), "int64", -(2.0**63)),
        (2**53 + 2**45 + 1, "int64", 2.0**53 + 2.0**46),
        (2**30 + 2**22 + 1, "int32", 2.0**30 + 2.0**23),
        (2**31 + 2**23 + 1, "uint32", 2.0**31 + 2.0**24),
        (-129, "int16", -129.0),
        (1, "bool", 1.0),
    ],
)
def test_store_integers_in_bfloat16_rounds_once(number: int, dtype: str, expected: float) -> None:
    assert float(copied(np.array([number], dtype), bfloat16)[0]) == expected


@rows
def test_store_integers(row: ElementType) -> None:
    skip_old_rounding(row)
    x = np.arange(-300, 300, dtype=np.int64)
    assert_same(copied(x, row.dtype), x.astype(row.dtype))


@pytest.mark.slow
@pytest.mark.parametrize("target", ROWS, ids=str)
@rows
def test_convert_between_all(row: ElementType, target: ElementType) -> None:
    skip_old_rounding(target)
    x = every(row)
    exact = x.astype(np.float32 if row.kind == "float" else np.int32)
    assert_same(copied(x, target.dtype), x if row is target else exact.astype(target.dtype))  # a copy keeps a NaN's bits


def test_convert_between_two_of_the_types() -> None:
    x = every(ROWS[0])
    assert_same(copied(x, ml_dtypes.float8_e4m3fn), x.astype(np.float32).astype(ml_dtypes.float8_e4m3fn))


# Operators


def operands(row: ElementType) -> np.ndarray:
    return every(row)[::257].copy() if row.bits == 16 else every(row)


@floats
def test_arithmetic_of_floats(row: ElementType) -> None:
    skip_old_rounding(row)
    x = operands(row)
    results = np.empty((4, x.size, x.size), row.dtype)
    arithmetic(x, x, *results)
    for result, function in zip(results, (np.add, np.subtract, np.multiply, np.divide), strict=True):
        assert_same(result, function(x[:, None], x), nan_bits=False)


@integers
def test_arithmetic_of_integers(row: ElementType) -> None:
    x = operands(row)
    results = np.empty((5, x.size, x.size), row.dtype)
    ratios = np.empty((x.size, x.size))
    arithmetic(x, x, *results[:3], ratios)
    floor_arithmetic(x, x, *results[3:])
    for result, function in zip(results, (np.add, np.subtract, np.multiply, np.floor_divide, np.remainder), strict=True):
        assert_same(result, function(x[:, None], x))
    assert_same(ratios, x.astype(np.float64)[:, None] / x.astype(np.float64), nan_bits=False)


@rows
def test_comparisons(row: ElementType) -> None:
    x = operands(row)
    out = np.empty((6, x.size, x.size), bool)
    comparisons(x, x, out)
    for result, function in zip(out, (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal), strict=True):
        assert_same(result, function(x[:, None], x))


@rows
def test_unary(row: ElementType) -> None:
    x = every(row)
    negative, absolute = np.empty((2, x.size), row.dtype)
    truth, wide = np.empty(x.size, bool), np.empty(x.size)
    unary(x, negative, absolute, truth, wide)
    exact = x.astype(np.float32)
    assert_same(negative, (-exact).astype(row.dtype), nan_bits=False)
    assert_same(absolute, abs(exact).astype(row.dtype), nan_bits=False)
    assert_same(truth, exact != 0)
    assert_same(wide, x.astype(np.float64), nan_bits=False)


@some
def test_extremes(dtype: np.dtype[Any]) -> None:
    one, two, three = (dtype.type(value) for value in (1, -2, 3))
    results = extremes(one, two, three)
    assert results == (two, one, two, three)
    assert {type(result) for result in results} == {dtype.type}


@numba.njit
def mixed(x: Any, y: Any) -> Any:
    return x + y


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (bfloat16(1.5), np.float32(2**-20), np.float32(1.5 + 2**-20)),
        (bfloat16(1.5), 2.0**-40, 1.5 + 2.0**-40),
        (bfloat16(1.5), 3, 4.5),
        (bfloat16(1.5), np.int8(3), bfloat16(4.5)),
        (bfloat16(1.5), True, bfloat16(2.5)),
        (bfloat16(1.5), np.complex64(2j), np.complex64(1.5 + 2j)),
        (ml_dtypes.int4(-3), 100, 97),
        (ml_dtypes.int4(-3), np.float32(0.5), np.float32(-2.5)),
        (ml_dtypes.float4_e2m1fn(6), ml_dtypes.float8_e4m3fn(0.5), ml_dtypes.float8_e4m3fn(6.5)),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_mixed_operands_take_the_common_type(x: Any, y: Any, expected: Any) -> None:
    kind = type(expected) if np.asarray(expected).dtype.kind == "V" else type(np.asarray(expected).item())
    for result in (mixed(x, y), mixed(y, x)):
        assert result == expected and type(result) is kind


def test_integer_literals_take_the_type_of_the_other_operand() -> None:
    @numba.njit
    def literals(x: Any) -> Any:
        x += 1
        return x * 2, 2 - x, x > 3, x == 2

    results = literals(bfloat16(1.5))
    assert results == (5, -0.5, False, False)
    assert [type(result) for result in results] == [bfloat16, bfloat16, bool, bool]


def test_float_division_by_zero_gives_infinity_and_integer_division_raises() -> None:
    divide = numba.njit(lambda x, y: x / y)
    assert divide(bfloat16(1), bfloat16(0)) == np.inf
    with pytest.raises(ZeroDivisionError):
        divide(ml_dtypes.int4(1), ml_dtypes.int4(0))


# Conversions by call, scalars in and out


@rows
def test_scalars_in_and_out(row: ElementType) -> None:
    same = numba.njit(lambda x: x)
    for value in every(row)[:: max(1, (1 << row.bits) // 16)]:
        result = same(value)
        assert type(result) is row.dtype.type
        assert_same(np.array(result), np.array(value))


def test_constructors_and_casts_by_call() -> None:
    @numba.njit
    def convert(x: Any) -> Any:
        return (
            ml_dtypes.bfloat16(x),
            ml_dtypes.float8_e4m3fn(x),
            ml_dtypes.int4(x),
            np.float32(ml_dtypes.bfloat16(x)),
            int(ml_dtypes.bfloat16(x)),
        )

    for argument in (3.3, np.float32(3.3), bfloat16(3.3), 3, ml_dtypes.int4(3)):
        results = convert(argument)
        assert [type(result) for result in results] == [bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, float, int]
        number = float(argument)
        assert results[:2] == (bfloat16(number), ml_dtypes.float8_e4m3fn(number))
        assert results[2:] == (3, float(bfloat16(number)), 3)


def test_explicit_signature_takes_python_numbers() -> None:
    kind = numba.from_dtype(np.dtype(bfloat16))
    double = numba.njit(kind(kind))(lambda x: x + x)
    assert double(1.5) == 3 and type(double(1.5)) is bfloat16
    with pytest.raises((TypeError, ValueError)):
        double("text")


# Arrays


@some
def test_make_arrays(dtype: np.dtype[Any]) -> None:
    scalar = dtype.type

    @numba.njit
    def make(x: Any, value: Any) -> Any:
        return (
            np.zeros((2, 3), scalar),
            np.ones(3, scalar),
            np.full((2, 2), value),
            np.full(2, 1, scalar),
            np.zeros_like(x),
            np.ones_like(x),
            np.empty_like(x).shape,
            np.empty((2, 0), x.dtype),
            x.copy(),
            x.astype(np.float32),
            x.astype(np.float32).astype(scalar),
        )

    x = np.array([[1, 0, 1], [0, -1, 1]]).astype(dtype)
    zeros, ones, full, typed_full, zeros_like, ones_like, shape, empty, copied, wide, narrow = make(x, scalar(1))
    assert_same(zeros, np.zeros((2, 3), dtype))
    assert_same(ones, np.ones(3, dtype))
    assert_same(full, np.ones((2, 2), dtype))
    assert_same(typed_full, np.ones(2, dtype))
    assert_same(zeros_like, np.zeros((2, 3), dtype))
    assert_same(ones_like, np.ones((2, 3), dtype))
    assert shape == (2, 3) and empty.shape == (2, 0) and empty.dtype == dtype
    assert_same(copied, x)
    assert_same(wide, x.astype(np.float32))
    assert_same(narrow, x)


@numba.njit
def triple(x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for index in np.ndindex(x.shape):
        out[index] = x[index] + x[index] + x[index]
    return out


@some
def test_any_number_of_dimensions_and_any_layout(dtype: np.dtype[Any]) -> None:
    base = (np.arange(24) % 3 - 1).astype(dtype)
    cases = [
        base[0:1].reshape(()),
        base,
        base[::-2],
        base.reshape(4, 6).T,
        base.reshape(2, 3, 4)[:, ::2],
        np.asfortranarray(base.reshape(2, 2, 6)),
    ]
    for x in cases:
        assert_same(triple(x), (x + x + x).astype(dtype))


def test_slices_and_assignments() -> None:
    @numba.njit
    def assign(x: np.ndarray) -> np.ndarray:
        x[:2] = 2
        x[2:4] = x[:2]
        x[4] = 1.5
        x[5] = True
        x[-2:] = x[4:6]
        return x[::-1]

    x = np.zeros(8, bfloat16)
    assert [float(value) for value in assign(x)] == [1, 1.5, 1, 1.5, 2, 2, 2, 2]


def test_int4_indexes_an_array() -> None:
    look_up = numba.njit(lambda table, index: table[index])
    table = np.arange(16.0)
    assert [look_up(table, value) for value in every(INTEGERS[0])] == list(range(16))
    assert look_up(table, ml_dtypes.int4(-1)) == 15


def test_read_only_arrays_and_subclasses() -> None:
    class Sub(np.ndarray):
        pass

    x = np.ones(4, bfloat16)
    x.flags.writeable = False
    assert_same(triple(x), np.full(4, 3, bfloat16))
    assert_same(triple(x.view(Sub)), np.full(4, 3, bfloat16))
    with pytest.raises(TypingError):
        copy(x, x)


@pytest.mark.parametrize("size", [5, 600_000], ids=["small", "large"])
@some
def test_closure_constants(dtype: np.dtype[Any], size: int) -> None:
    array = (np.arange(2 * size) % 4 - 2).astype(dtype)
    scalar = dtype.type(1)
    strided = array[::2]

    @numba.njit
    def use(i: int) -> Any:
        return array[i] + scalar, strided[i]

    assert use(3) == (array[3] + scalar, strided[3])


def test_fortran_constant() -> None:
    array = np.asfortranarray(np.arange(6).reshape(2, 3).astype(ml_dtypes.int4))
    get = numba.njit(lambda: array.copy())
    assert_same(get(), array)


@some
def test_prange(dtype: np.dtype[Any]) -> None:
    @numba.njit(parallel=True)
    def double(x: np.ndarray, out: np.ndarray) -> float:
        total = np.float32(0)
        for i in numba.prange(x.size):
            out[i] = x[i] + x[i]
            total += np.float32(x[i])
        return total

    x = (np.arange(1000) % 3 - 1).astype(dtype)
    out = np.empty_like(x)
    assert double(x, out) == float(x.astype(np.float32).sum())
    assert_same(out, x + x)


# What there is not


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x,
        lambda x: x + x[0],
        lambda x: x < 1,
        lambda x: -x,
        lambda x: x + x * x,
        lambda x: np.exp(x),
        lambda x: np.exp(x)[0],
        lambda x: np.add(x, x, x),
        lambda x: np.maximum(x[0], x[1]),
        lambda x: x[0] ** 2,
        lambda x: x[0] & x[1],
        lambda x: ~x[0],
        lambda x: x[0] + ml_dtypes.float8_e5m2(1),
        lambda x: min(x[0], ml_dtypes.float8_e5m2(1)),
    ],
    ids=[
        "add",
        "add-scalar",
        "less",
        "negative",
        "expression",
        "exp",
        "exp-item",
        "add-out",
        "maximum",
        "power",
        "and",
        "invert",
        "two-types",
        "min-types",
    ],
)
@pytest.mark.parametrize("parallel", [False, True], ids=["serial", "parallel"])
@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPerformanceWarning")
def test_unsupported_use_is_a_typing_error(function: Callable[..., Any], parallel: bool) -> None:
    with pytest.raises(TypingError):
        numba.njit(parallel=parallel)(function)(np.ones(4, bfloat16))


def test_unsupported_use_in_place_is_a_typing_error() -> None:
    @numba.njit
    def add(x: np.ndarray) -> None:
        x += x

    with pytest.raises(TypingError, match=r"there is no iadd of \(array\(bfloat16, 1d, C\), array\(bfloat16, 1d, C\)\); loop"):
        add(np.ones(4, bfloat16))


def test_math_functions_take_float32() -> None:
    root = numba.njit(lambda x: math.sqrt(x))
    assert root(bfloat16(2)) == np.sqrt(np.float32(2))


# Registration


def python(program: str, **environment: str) -> str:
    source = str(Path(__file__).resolve().parent.parent / "src")
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path, **environment}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_changes_without_registration() -> None:
    program = """
        import ml_dtypes, numba, numpy as np
        from numba.np import numpy_support
        known = dict(numpy_support.FROM_DTYPE)
        import numbaops.numba_types.model, numbaops.numba_types.operators
        assert numpy_support.FROM_DTYPE == known
        try:
            numba.typeof(np.ones(2, ml_dtypes.bfloat16))
        except numba.core.errors.NumbaValueError as error:
            print(error)
    """
    assert "bfloat16" in python(program)


def test_registering_twice_is_harmless() -> None:
    register_numba_types()
    assert numba.njit(lambda x: x + x)(bfloat16(1)) == 2


def test_another_library_has_registered_the_dtype() -> None:
    program = """
        import ml_dtypes, numba, numpy as np
        from numba.np import numpy_support
        from numbaops.errors import UnsupportedError
        from numbaops.numba_types import register_numba_types
        numpy_support.FROM_DTYPE[np.dtype(ml_dtypes.bfloat16)] = numba.uint16
        try:
            register_numba_types()
        except UnsupportedError as error:
            print(error)
        assert np.dtype(ml_dtypes.int4) not in numpy_support.FROM_DTYPE
    """
    assert python(program) == "another library has registered bfloat16 with Numba, as uint16; use one of the two\n"


def test_registration_without_compilation() -> None:
    program = """
        import ml_dtypes, numba, numpy as np
        from numbaops.numba_types import register_numba_types
        register_numba_types()
        print(numba.njit(lambda x: x[0] + x[1])(np.array([1, 2], ml_dtypes.bfloat16)))
    """
    assert python(program, NUMBA_DISABLE_JIT="1") == "3\n"


def test_disk_cache(tmp_path: Path) -> None:
    (tmp_path / "cached_user.py").write_text(
        textwrap.dedent(
            """
            import ml_dtypes, numba, numpy as np
            from numbaops.numba_types import register_numba_types
            register_numba_types()

            @numba.njit(cache=True)
            def double(x, scalar):
                out = np.empty_like(x)
                for i in range(x.size):
                    out[i] = x[i] + x[i]
                return out, scalar + ml_dtypes.bfloat16(1)

            out, scalar = double(np.array([1, 2], ml_dtypes.float8_e4m3fn), ml_dtypes.bfloat16(2))
            print(out, out.dtype, scalar, type(scalar).__name__, sum(double.stats.cache_hits.values()))
            """
        )
    )
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import cached_user"
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert python(program, **environment) == "[2 4] float8_e4m3fn 3 bfloat16 0\n"
    assert python(program, **environment) == "[2 4] float8_e4m3fn 3 bfloat16 1\n"


@functools.cache
def dot(**options: Any) -> Callable[..., Any]:
    def product(x: np.ndarray, y: np.ndarray) -> np.float32:
        total = np.float32(0)
        for i in range(x.size):
            total += np.float32(x[i]) * np.float32(y[i])
        return total

    return numba.njit(**options)(product)  # type: ignore[no-any-return]


@pytest.mark.parametrize("row", [row for row in FLOATS if row.name in ("bfloat16", "float8e4m3fn", "float8e5m2")], ids=str)
def test_a_reordered_dot_product_uses_vectors(row: ElementType) -> None:
    x = np.ones(1000, row.dtype)
    product = numba.njit(fastmath={"reassoc", "contract"})(dot().py_func)  # type: ignore[attr-defined]
    assert product(x, x) == 1000
    (code,) = product.inspect_llvm().values()
    assert " x float>" in code
