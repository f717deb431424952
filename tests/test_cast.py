"""Conversion between element types: exhaustive where the source is small, else both sides of every boundary, against exact arithmetic.

The file passes compiled, with ``NUMBA_DISABLE_JIT=1`` (on fewer numbers) and with ``NUMBA_BOUNDSCHECK=1``.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numba import config

from numbaops import ELEMENT_TYPES, PackedTensor, element_type, memory, to_array
from numbaops.casting import cast
from numbaops.casting.plan import JIT_FROM, plan_of
from numbaops.casting.steps import BLOCK
from numbaops.convert import pack
from numbaops.errors import InvalidTypeError, InvalidValueError
from processes import run_python
from rounding import FORMATS, NARROW, SATURATING, around, decode, encode, encode_scale, encode_scales, midpoints, rounded, truncated, values

COMPILED = not config.DISABLE_JIT
EVERY = 1 if COMPILED else 251
SMALL_INTS = {"int4": (4, -8, 7), "uint4": (4, 0, 15), "int2": (2, -2, 1), "uint2": (2, 0, 3)}
INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
NUMERIC = [kind.name for kind in ELEMENT_TYPES if kind.kind not in ("complex", "string")]

narrow = pytest.mark.parametrize("name", NARROW)


def codes(array: Any) -> np.ndarray:
    return array.view(np.dtype(f"u{array.itemsize}"))


def dtype(name: str) -> np.dtype[Any]:
    return element_type(name).dtype


def specials(name: str) -> np.ndarray:
    return np.array([0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 1e30, -1e30]).astype(np.float32).astype(dtype(name))


def assert_codes(got: Any, want: np.ndarray, x: np.ndarray) -> None:
    wrong = np.flatnonzero(codes(got) != want)
    assert not wrong.size, f"{wrong.size} wrong, first {x[wrong[0]]!r}: {codes(got)[wrong[0]]:#x}, not {want[wrong[0]]:#x}"


def saturations(name: str) -> list[bool]:
    return [True, False] if name in SATURATING else [True]


# To narrow floats


@narrow
@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_every_16_bit_float(source: str, name: str) -> None:
    x = np.arange(0, 65536, EVERY, dtype=np.uint16).view(dtype(source))
    if source == name:
        assert_codes(cast(x, name), codes(x), x)
        return
    with np.errstate(invalid="ignore"):
        exact = x.astype(np.float64)
    for saturate in saturations(name):
        want = encode(name, exact, saturate)
        with np.errstate(invalid="ignore"):  # of signalling NaN, by NumPy, in small arrays
            assert_codes(cast(x, name, saturate=saturate), want, x)
            for start in range(0, x.size, 977 if COMPILED else 77):
                assert_codes(cast(x[start : start + 5], name, saturate=saturate), want[start : start + 5], x[start:])


def test_what_is_remembered_of_an_unsaturated_call_serves_no_other() -> None:
    x = np.array([1e30, -1e30, 1.0], np.float32)
    for name in SATURATING:
        assert_codes(cast(x, name, saturate=False), encode(name, x, saturate=False), x)
        assert_codes(cast(x, name), encode(name, x), x)
        assert_codes(cast(x, name, saturate=False), encode(name, x, saturate=False), x)
    assert codes(cast(x, "float8e8m0", round_mode="down")).tolist() == [226, 0, 127]
    assert codes(cast(x, "float8e8m0")).tolist() == [227, 0, 127]


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_both_sides_of_every_boundary(source: str, name: str) -> None:
    kind = np.dtype(source).type
    x = np.concatenate([around(np.concatenate([midpoints(name), values(name)]), kind), specials(source)])
    step = 1 if COMPILED or x.size < 3000 else 397
    x = x[::step]
    for saturate in saturations(name):
        want = encode(name, x, saturate)
        assert_codes(cast(x, name, saturate=saturate), want, x)
        assert_codes(cast(np.tile(x, -(-JIT_FROM // x.size)), name, saturate=saturate)[-x.size :], want, x)


@narrow
def test_second_opinion_of_ml_dtypes(name: str) -> None:
    x = np.random.default_rng(3).standard_normal(5000 if COMPILED else 300).astype(np.float32)
    assert_codes(cast(x, name), codes(x.astype(dtype(name))), x)


@pytest.mark.skipif(not COMPILED, reason="for compiled kernels")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["float8e4m3fn", "float8e5m2fnuz", "float4e2m1"])
def test_every_float32(name: str) -> None:
    form = FORMATS[name]
    # Non-negative floats are ordered as their bits; a midpoint belongs to the even one of its neighbours.
    middle = midpoints(name)[: form.largest].astype(np.float32).view(np.uint32).tolist()
    firsts = [0, *(bits + (code % 2 == 0) for code, bits in enumerate(middle)), 0x7F800001, 1 << 31]
    step = 1 << 26
    for minus in (False, True):
        last = form.minus_nan if minus else form.nan
        runs = [*((code | 1 << form.bits - 1) if minus else code for code in range(form.largest + 1)), last]
        runs[0] = form.minus_zero if minus else 0
        for start in range(0, 1 << 31, step):
            x = np.arange(start + (minus << 31), start + (minus << 31) + step, dtype=np.uint32).view(np.float32)
            want = np.empty(step, np.uint8)
            for code, (first, after) in zip(runs, itertools.pairwise(firsts), strict=True):
                want[max(first - start, 0) : max(after - start, 0)] = code
            assert_codes(cast(x, name), want, x)


# float64, int64 and uint64 are rounded once


@narrow
def test_float64_beside_a_midpoint(name: str) -> None:
    x = around(midpoints(name)[:300], np.float64)
    twice = x.astype(np.float32).astype(np.float64)
    assert (encode(name, x) != encode(name, twice)).any()  # through float32 it would be wrong
    assert_codes(cast(x, name), encode(name, x), x)


WIDE_INTS = [
    *(sign * (2**power + step) for power in range(2, 64) for step in (-1, 0, 1, 2 ** (power - 2) + 1) for sign in (1, -1)),
    *(2**power + 2 ** max(power - 8, 0) + step for power in range(8, 63) for step in (-1, 0, 1)),
]


@pytest.mark.parametrize("source", ["int16", "uint16", "int32", "uint32", "int64", "uint64"])
@narrow
def test_integers(source: str, name: str) -> None:
    limits = np.iinfo(source)
    chosen = [0, limits.min, limits.max, *(number for number in WIDE_INTS if limits.min <= number <= limits.max)]
    x = np.array(chosen, source)
    want = encode_integers(name, tuple(chosen))
    assert_codes(cast(x, name), want, x)


@functools.cache
def encode_integers(name: str, numbers: tuple[int, ...]) -> np.ndarray:
    """By fractions, since float64 lacks most of the 64-bit numbers."""
    middle = [Fraction(point) for point in midpoints(name).tolist()]
    form = FORMATS[name]
    result = []
    for number in numbers:
        code = bisect.bisect_left(middle, abs(number))
        code += code < len(middle) and middle[code] == abs(number) and code % 2
        if code > form.largest:
            code = form.largest if name in SATURATING else form.beyond
        result.append(code | (1 << form.bits - 1) if number < 0 else code)
    return np.array(result, np.uint8 if form.bits <= 8 else np.uint16)


@pytest.mark.parametrize("name", [*NARROW, "float16", "float32", "float64", "int64", "int2"])
@pytest.mark.parametrize("source", ["bool", "int8", "uint8", *SMALL_INTS])
def test_small_integers(source: str, name: str) -> None:
    size = 2 if source == "bool" else 1 << element_type(source).bits
    x = np.arange(size, dtype=np.uint8).view(dtype(source))
    plain = x.astype(np.int64)
    got = cast(x, name)
    if name in FORMATS:
        assert_codes(got, encode(name, plain), x)
    elif name == "int2":
        assert_codes(got, (plain & 3).astype(np.uint8), x)
    else:
        assert got.dtype == name and got.tolist() == plain.tolist()
    assert_codes(cast(np.resize(x, 3 * JIT_FROM), name)[:size], codes(got), x)


def test_bool_bytes_other_than_one() -> None:
    x = np.array([0, 1, 2, 255], np.uint8).view(bool)
    for name in ("int8", "float32", "float8e4m3fn", "int4", "bfloat16"):
        assert cast(x, name).astype(np.float32).tolist() == [0, 1, 1, 1]
    assert cast(x, "string").tolist() == ["0", "1", "1", "1"]


# float8e8m0

SCALE_POWERS = (-149, -128, -127, -126, -125, -1, 0, 1, 126, 127)
SCALES = [0.0, math.inf, math.nan, *(2.0**power * factor for power in SCALE_POWERS for factor in (1, 1.5))]


@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [True, False], ids=["saturate", "keep"])
@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
def test_scales(source: str, saturate: bool, round_mode: str) -> None:
    kind = np.float32 if source in ("float16", "bfloat16") else np.dtype(source).type
    with np.errstate(over="ignore", under="ignore"):
        x = around(np.array(SCALES), kind).astype(dtype(source))
        x = np.concatenate([x, np.array([1e300, 1e-300, 1e-40]).astype(dtype(source))])
        exact = x.astype(np.float64).tolist()
    want = np.array([encode_scale(number, round_mode, saturate) for number in exact], np.uint8)
    assert_codes(cast(x, "float8e8m0", saturate=saturate, round_mode=round_mode), want, x)


@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [True, False], ids=["saturate", "keep"])
@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_scale_of_every_16_bit_float(source: str, saturate: bool, round_mode: str) -> None:
    x = np.arange(0, 65536, EVERY, dtype=np.uint16).view(dtype(source))
    with np.errstate(invalid="ignore"):
        want = encode_scales(x.astype(np.float64), round_mode, saturate)
    assert_codes(cast(x, "float8e8m0", saturate=saturate, round_mode=round_mode), want, x)


@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
def test_scales_of_integers(round_mode: str) -> None:
    numbers = [0, -1, 1, 2, 3, 2**24 + 1, 2**40, 2**40 + 1, 2**40 + 2**39, 2**40 + 2**39 - 1, 2**62 + 2**61 - 1, 2**63 - 1, -(2**63)]
    x = np.array(numbers, np.int64)
    want = np.array([encode_scale(Fraction(number), round_mode, True) for number in numbers], np.uint8)
    assert_codes(cast(x, "float8e8m0", round_mode=round_mode), want, x)


# From narrow floats


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", [name for name in [*FORMATS, "float8e8m0"] if element_type(name).bits <= 8])
def test_every_code_decoded(source: str, target: str) -> None:
    size = 1 << element_type(source).bits
    x = np.arange(size, dtype=np.uint8).view(dtype(source))
    exact = np.array([decode(source, code) for code in range(size)])
    for array in (x, np.tile(x, 64)):
        got = cast(array, target)
        assert got.dtype == dtype(target)
        if target in FORMATS:
            number = ~np.isnan(exact)
            assert_codes(got[:size][number], encode(target, exact)[number], x[number])
            assert np.isnan(got[:size][~number].astype(np.float32)).all()
        else:
            np.testing.assert_array_equal(got[:size].astype(np.float64), exact)
            assert (np.signbit(got[:size]) == np.signbit(exact))[~np.isnan(exact)].all()


@pytest.mark.parametrize("target", ["float32", "float64", "float16"])
def test_bfloat16_decoded(target: str) -> None:
    x = np.arange(0, 65536, EVERY, dtype=np.uint16)
    wide = (x.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        want = wide.astype(target)
    np.testing.assert_array_equal(cast(x.view(ml_dtypes.bfloat16), target), want)


@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "int4", "uint2", "bool"])
@pytest.mark.parametrize("source", [name for name in [*FORMATS, "float8e8m0"] if element_type(name).bits <= 8])
def test_every_code_to_integers(source: str, target: str) -> None:
    size, bits = 1 << element_type(source).bits, element_type(target).bits
    x = np.arange(size, dtype=np.uint8).view(dtype(source))
    exact = [decode(source, code) for code in range(size)]
    if target == "bool":
        want = np.array([number != 0 for number in exact], np.uint8)
    else:
        whole = rounded if bits < 8 else truncated
        want = np.array([whole(number, bits) for number in exact], f"u{max(bits, 8) // 8}")
    assert_codes(cast(np.tile(x, 64), target)[:size], want, x)
    for start in range(0, size, 8):  # whether or not there are codes that NumPy would warn of among them
        assert_codes(cast(x[start : start + 8], target), want[start : start + 8], x[start:])


@narrow
def test_between_narrow_floats(name: str) -> None:
    for source in ("float8e4m3fn", "float8e5m2fnuz", "float6e3m2", "float4e2m1"):
        x = np.arange(1 << element_type(source).bits, dtype=np.uint8).view(dtype(source))
        number = ~np.isnan(x.astype(np.float32))
        for saturate in saturations(name):
            want = codes(x) if source == name else encode(name, x.astype(np.float64), saturate)
            assert_codes(cast(x, name, saturate=saturate)[number], want[number], x[number])


# To integers

REAL_POWERS = (0, 1, 2, 7, 8, 15, 16, 22, 23, 24, 31, 32, 40, 52, 53, 62, 63, 64, 70, 100)
REALS = [
    *(sign * (2.0**power + step) for power in REAL_POWERS for step in (-1, -0.5, 0, 0.5, 1) for sign in (1, -1)),
    *(0.0, -0.0, 0.25, 0.75, -0.99, 1.5, 2.5, -2.5, 3.7, 254.9, 300.25, math.inf, -math.inf, math.nan, 1e-40, 1e38, -1e300),
]


def reals(source: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array(REALS).astype(np.float32 if source == "bfloat16" else source).astype(dtype(source))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTS)
def test_floats_truncated(source: str, target: str) -> None:
    x = reals(source)
    bits = np.dtype(target).itemsize * 8
    want = np.array([truncated(number, bits) for number in x.astype(np.float64).tolist()], f"u{bits // 8}")
    assert_codes(cast(x, target), want, x)
    assert_codes(cast(np.resize(x, 2 * JIT_FROM), target)[: x.size], want, x)
    for i in range(0, x.size, 7):  # the same in arrays of any length
        assert_codes(cast(x[i : i + 1], target), want[i : i + 1], x[i:])


@pytest.mark.parametrize("target", ["int8", "uint16", "int32", "uint32", "int64", "uint64", "int4", "uint2"])
@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_every_16_bit_float_to_integers(source: str, target: str) -> None:
    x = np.arange(0, 65536, EVERY, dtype=np.uint16).view(dtype(source))
    bits = element_type(target).bits
    with np.errstate(invalid="ignore"):
        exact = x.astype(np.float64)
        low = np.fmod(np.rint(exact) if bits < 8 else np.trunc(exact), 2.0**bits)  # exact, and NaN of what is no number
    want = np.array([int(number) & ((1 << bits) - 1) for number in np.nan_to_num(low).tolist()], f"u{max(bits, 8) // 8}")
    assert_codes(cast(x, target), want, x)
    for start in range(0, x.size, 977 if COMPILED else 77):
        assert_codes(cast(x[start : start + 5], target), want[start : start + 5], x[start:])


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", list(SMALL_INTS))
def test_floats_rounded(source: str, target: str) -> None:
    x = reals(source)
    want = np.array([rounded(number, SMALL_INTS[target][0]) for number in x.astype(np.float64).tolist()], np.uint8)
    assert_codes(cast(x, target), want, x)


@pytest.mark.parametrize("source", [*FLOATS, "float8e4m3fn", "float8e8m0", "float4e2m1", "int4", "int64"])
def test_to_bool(source: str) -> None:
    x = np.array([0.5, 1, 2, 0, -0.0, 3]).astype(np.float32).astype(dtype(source))
    want = (x.astype(np.float32) != 0).tolist()
    assert cast(x, bool).tolist() == want
    assert cast(np.tile(x, JIT_FROM), bool)[:6].tolist() == want
    if source in FLOATS:
        assert cast(np.array([math.nan, -math.inf], dtype(source)), "bool").tolist() == [True, True]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(INTS, [*INTS, *SMALL_INTS])))
def test_integers_keep_low_bits(source: str, target: str) -> None:
    limits = np.iinfo(source)
    numbers = (0, 1, 7, 8, 200, -1, -9, 2**31, -(2**31), limits.min, limits.max)
    x = np.array([number for number in numbers if limits.min <= number <= limits.max], source)
    bits = element_type(target).bits
    want = np.array([number & ((1 << bits) - 1) for number in x.tolist()], f"u{max(bits, 8) // 8}")
    assert_codes(cast(x, target), want, x)
    assert_codes(cast(np.resize(x, 2 * JIT_FROM), target)[: x.size], want, x)


@pytest.mark.parametrize(
    ("x", "target", "want"),
    [
        (np.array([1e300, -1e300, 0.1]), "float32", [math.inf, -math.inf, 0.10000000149011612]),
        (np.array([70000, 65519, -(2**62)]), "float16", [math.inf, 65504.0, -math.inf]),
        (np.array([2**64 - 1], np.uint64), "float32", [2.0**64]),
        (np.array([2**53 + 1]), "float64", [2.0**53]),
        (np.array([65520.0], np.float32), "float16", [math.inf]),
    ],
    ids=["double to float", "int64 to float16", "uint64 to float", "int64 to double", "float to float16"],
)
def test_to_numpy_floats(x: np.ndarray, target: str, want: list[float]) -> None:
    got = cast(x, target)
    assert got.dtype == target and got.tolist() == want


# Packed


PACKED = ["float4e2m1", "float6e2m3", "float6e3m2", *SMALL_INTS]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        *(("float32", name) for name in PACKED),
        *((source, "float4e2m1") for source in ("float16", "float64", "float8e5m2")),
        ("bfloat16", "float6e3m2"),
        ("float64", "int4"),
        ("int32", "int2"),
    ],
)
def test_packed(source: str, name: str) -> None:
    for size in (0, 1, 7, JIT_FROM + 1, BLOCK + 3) if COMPILED else (0, 1, 7, JIT_FROM + 1):
        x = (np.random.default_rng(size).standard_normal(size) * 4).astype(np.float32).astype(dtype(source))
        plain = cast(x, name)
        got = cast(x, name, packed=True)
        assert got == PackedTensor(pack(plain), name, (size,))
        for target in ("float32", "int8", "bfloat16", "float64", "float16", "bool"):
            assert_codes(cast(got, target), codes(cast(plain, target)), plain)
        assert cast(got, name, packed=True) == got
        assert_codes(cast(got, name), codes(plain), plain)
        into = np.full(got.nbytes, 0xA5, np.uint8)
        again = cast(x.reshape(1, size), name, packed=True, out=into)
        assert again.data is into and again == PackedTensor(got.data, name, (1, size))


def test_packed_types_of_a_byte_or_more() -> None:
    got = cast(np.array([1.0, -2.0], np.float32), "int16", packed=True)
    assert got == PackedTensor(np.array([1, 0, 0xFE, 0xFF], np.uint8), "int16", (2,))
    assert cast(got, "float8e5m2").astype(np.float32).tolist() == [1.0, -2.0]


@pytest.mark.skipif(not COMPILED, reason="for compiled kernels")
@pytest.mark.parametrize(
    ("source", "name", "packed"),
    [("float32", "float8e4m3fn", False), ("float64", "int64", False), ("bfloat16", "float32", False), ("float32", "float6e2m3", True)],
)
def test_shares_of_large_arrays(source: str, name: str, packed: bool) -> None:
    x = (np.random.default_rng(1).standard_normal(3_000_001) * 9).astype(np.float32).astype(dtype(source))
    got = cast(x, name, packed=packed)
    if packed:
        got = got.unpack()
    for start in range(0, x.size, 500_000):
        part = x[start : start + 500]
        assert_codes(got[start : start + 500], codes(cast(part, name)), part)
    assert_codes(got[-9:], codes(cast(x[-9:], name)), x[-9:])


# Text


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (np.array([0.1, 314.15926, 1e-7, -0.0, 3], np.float32), ["0.1", "314.15927", "0.0000001", "-0.0", "3.0"]),
        (np.array([0.1, 1e22, math.pi]), ["0.1", "10000000000000000000000.0", "3.141592653589793"]),
        (np.array([math.inf, -math.inf, math.nan]), ["INF", "-INF", "NaN"]),
        (np.array([0.1, 65504], np.float16), ["0.1", "65500.0"]),
        (np.array([3.140625, math.nan], ml_dtypes.bfloat16), ["3.140625", "NaN"]),
        (np.array([448, -0.001953125], ml_dtypes.float8_e4m3fn), ["448.0", "-0.001953125"]),
        (np.array([-(2**63), 2**63 - 1]), ["-9223372036854775808", "9223372036854775807"]),
        (np.array([-8, 7], ml_dtypes.int4), ["-8", "7"]),
        (np.array([True, False]), ["1", "0"]),
        (np.array([0.5], ">f4"), ["0.5"]),
    ],
    ids=["float", "double", "special", "float16", "bfloat16", "float8", "int64", "int4", "bool", "other byte order"],
)
def test_to_text(x: np.ndarray, want: list[str]) -> None:
    got = cast(x, "string")
    assert got.dtype == object and [type(text) for text in got] == [str] * len(want) and got.tolist() == want


MIDDLE = "1.00000005960464477539062500"  # between 1 and its upper neighbour in float32


@pytest.mark.parametrize(
    ("texts", "target", "want"),
    [
        (["3.14", "1e-5", "1E8", "+.5", "5.", "-0"], "float64", [3.14, 1e-5, 1e8, 0.5, 5.0, -0.0]),
        (["inf", "+INF", "-Inf", "nAn"], "float32", [math.inf, math.inf, -math.inf, math.nan]),
        ([MIDDLE, MIDDLE + "1", MIDDLE[:-6] + "0", "1e39", "-1e-50"], "float32", [1.0, 1.0000001192092896, 1.0, math.inf, -0.0]),
        (["1e99999999999999999999", "-1e-99999999999999999999", "0e99999999999999999999"], "float32", [math.inf, -0.0, 0.0]),
        (["65519.9999999999999999999", "65520"], "float16", [65504.0, math.inf]),
        (["17.00000000000000000000001", "17", "500"], "float8e4m3fn", [18.0, 16.0, 448.0]),
        (["2.5", "-2.9", "1e2", "300", "-129"], "int8", [2, -2, 100, 44, 127]),
        (["9223372036854775807", "18446744073709551617", "1e400", "INF", "1e-400"], "int64", [2**63 - 1, 1, 0, 0, 0]),
        (["18446744073709551615"], "uint64", [2**64 - 1]),
        (["-3", "15", "1.9"], "int4", [-3, -1, 1]),
        (["0", "-0.0", "1e-999", "NaN", "2"], "bool", [False, False, True, True, True]),
    ],
    ids=["double", "special", "float", "far exponents", "float16", "float8", "int8", "int64", "uint64", "int4", "bool"],
)
def test_from_text(texts: list[str], target: str, want: list[Any]) -> None:
    for x in (np.array(texts, object), np.array(texts)):
        got = cast(x, target)
        assert got.dtype == dtype(target)
        plain = got if got.dtype.kind in "biu" and got.dtype.isbuiltin == 1 else got.astype(np.float64)
        np.testing.assert_array_equal(plain, want)
        if plain.dtype.kind == "f":
            assert np.signbit(plain).tolist() == [math.copysign(1, number) < 0 for number in want]


@narrow
def test_text_at_the_middle_between_neighbours(name: str) -> None:
    """A digit far behind what a double holds decides."""
    points = midpoints(name)[:: 1 if FORMATS[name].bits <= 8 else 97]
    with localcontext() as context:
        context.prec = 2000
        exact = [Decimal(point) for point in points.tolist()]
        little = Decimal(10) ** -400
        for numbers, codes in (
            (exact, encode(name, points)),
            ([number + little for number in exact], encode(name, np.nextafter(points, math.inf))),
            ([number - little for number in exact], encode(name, np.nextafter(points, 0))),
        ):
            assert_codes(cast(np.array([f"{number:f}" for number in numbers], object), name), codes, points)


def plain_text(value: Any) -> str:
    """The fewest digits that read as the value, without an exponent."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "INF" if value > 0 else "-INF"
    text = f"{Decimal(np.format_float_scientific(value, trim='-')):f}"
    return text if "." in text else f"{text}.0"


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_text_of_many_numbers(name: str) -> None:
    if name == "float16":
        x = np.arange(65536, dtype=np.uint16)[::EVERY].view(np.float16)
    else:
        words = np.random.default_rng(0).integers(0, 1 << 8 * dtype(name).itemsize, 5000, f"u{dtype(name).itemsize}", endpoint=False)
        x = np.concatenate([words.view(dtype(name)), (10.0 ** np.arange(-30, 30)).astype(dtype(name))])
    assert cast(x, "string").tolist() == [plain_text(value) for value in x]


@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", *SMALL_INTS])
@pytest.mark.parametrize("source", SMALL_INTS)
def test_integers_of_low_bits_with_any_high_bits(source: str, target: str) -> None:
    x = np.resize(np.arange(256, dtype=np.uint8), JIT_FROM + 300)
    bits, low, _ = SMALL_INTS[source]
    numbers = x.astype(np.int64) & ((1 << bits) - 1)
    numbers -= (numbers >= 1 << bits - 1) * (1 << bits) if low else 0
    wanted = numbers & ((1 << SMALL_INTS[target][0]) - 1) if target in SMALL_INTS else numbers.astype(target)
    got = cast(x.view(dtype(source)), target)
    assert (codes(got) == wanted.astype(f"u{got.itemsize}")).all()


def test_text_of_thousands_of_digits() -> None:
    text = "1" + "0" * 6000
    assert cast(np.array([text, f"{text}e-6000", f"0.{'0' * 6000}1"], object), "int32").tolist() == [0, 1, 0]
    assert cast(np.array([text, f"{text}e-6000"], object), "float32").tolist() == [math.inf, 1.0]


def test_text_to_text_is_a_copy() -> None:
    x = np.array([["a\0", "b"]], object)
    got = cast(x, "string")
    assert got is not x and got.tolist() == x.tolist()


@pytest.mark.parametrize("text", ["", " ", "1_000", "0x10", "one", "1e", "--1", "infinity", "1,5", "\u0663", "1.5 "])
@pytest.mark.parametrize("target", ["float32", "int64", "float8e4m3fn", "bool"])
def test_text_that_is_no_number(text: str, target: str) -> None:
    with pytest.raises(InvalidValueError, match=r"at position 1 is no number; allowed: decimal literals") as caught:
        cast(np.array(["1", text], object), target)
    assert caught.value.attribute == "x" and repr(text) in str(caught.value)


# Arrays


@pytest.mark.parametrize("target", ["float8e4m3fn", "bfloat16", "int32", "float64", "float16"])
@pytest.mark.parametrize(
    "view",
    [lambda a: a.T, lambda a: a[::-1, ::2], lambda a: a[..., None], lambda a: a.astype(a.dtype.newbyteorder()), np.asfortranarray],
    ids=["transposed", "strided", "more dimensions", "other byte order", "fortran"],
)
def test_layouts(view: Any, target: str) -> None:
    for shape in ((3, 5), (41, 53)):
        x = view((np.arange(math.prod(shape)) / 8).reshape(shape).astype(np.float32))
        got = cast(x, target)
        assert got.shape == x.shape and got.flags.c_contiguous and got.flags.writeable
        assert_codes(got, codes(cast(np.array(x.astype("=f4"), order="C"), target)), x)


@pytest.mark.parametrize("source", ["float16", "float32", "float64", "int16", "int64"])
def test_other_byte_order_of_small_arrays(source: str) -> None:
    x = np.array([0, 1, -3, 7, 20, 257]).astype(source)
    for target in NUMERIC:
        want = codes(cast(x, target))
        for _ in range(2):
            assert_codes(cast(x.astype(x.dtype.newbyteorder()), target), want, x)


def test_unaligned_and_read_only() -> None:
    raw = np.zeros(4 * 2000 + 1, np.uint8)
    x = raw[1:].view(np.float32)
    x[...] = 1.5
    x.flags.writeable = False
    assert (codes(cast(x, "float8e4m3fn")) == 0x3C).all()


@pytest.mark.parametrize("target", ["float8e4m3fn", "float64", "string", "int4", "int64"])
def test_ranks(target: str) -> None:
    for x in (np.array(1.0, np.float32), np.float32(1.0), np.bool_(True), ml_dtypes.bfloat16(1.0), np.str_("1")):
        got = cast(x, target)
        assert type(got) is np.ndarray and got.shape == () and got.dtype == dtype(target)
    for shape in ((0,), (2, 0, 3)):
        assert cast(np.zeros(shape, np.float32), target).shape == shape


@pytest.mark.parametrize("name", ["float", "int4", "float8e5m2", "bool", "complex64", "int64", "bfloat16"])
def test_to_the_same_type_is_a_copy(name: str) -> None:
    kind = element_type(name)
    for size in (3, 2 * JIT_FROM):
        x = np.ones(size, kind.dtype)
        got = cast(x, kind)
        assert got.dtype == kind.dtype and not np.shares_memory(got, x) and got.tobytes() == x.tobytes()


def test_high_bits_of_a_byte_are_ignored_and_written_zero() -> None:
    x = np.array([0xF1, 0x1F], np.uint8).view(ml_dtypes.int4)
    assert codes(cast(x, "int4")).tolist() == [1, 15]
    assert cast(x, "int64").tolist() == [1, -1] and codes(cast(x, "uint2")).tolist() == [1, 3]
    for name in PACKED:
        clean = np.arange(1 << element_type(name).bits, dtype=np.uint8)
        for target in (name, "float32", "float64", "bfloat16", "int32", "int8", "float8e4m3fn", "bool"):
            want = codes(cast(clean.view(dtype(name)), target))
            for size in (clean.size, 4 * JIT_FROM):
                dirty = np.resize(clean | np.uint8(256 - clean.size), size).view(dtype(name))
                assert_codes(cast(dirty, target)[: clean.size], want, clean)


@pytest.mark.skipif(not COMPILED, reason="for compiled kernels")
@pytest.mark.slow
@pytest.mark.parametrize("source", NUMERIC)
def test_small_arrays_are_converted_as_large_ones(source: str) -> None:
    kind = element_type(source)
    drawn = np.random.default_rng(5).integers(0, 2 if source == "bool" else 256, 8 * 5000 * kind.dtype.itemsize, dtype=np.uint8)
    for target in NUMERIC:
        plan = plan_of(kind, element_type(target), True, "up")
        for x in (drawn.view(kind.dtype), near_one(drawn.size).astype(kind.dtype)):
            want = np.empty(x.size, dtype(target))
            with np.errstate(invalid="ignore"):
                plan.step(x, want)
                for start in (*range(0, 4000, 8), 4000):
                    part = slice(start, start + (8 if start < 4000 else JIT_FROM - 1))
                    got = cast(x[part], target)
                    if target in FLOATS:  # which NaN it is nobody says
                        got[np.isnan(got)] = want[part][np.isnan(want[part])] = 1
                    assert_codes(got, codes(want)[part], x[part])


def near_one(size: int) -> np.ndarray:
    return np.random.default_rng(6).standard_normal(size).astype(np.float32)


def test_large_results_are_recycled() -> None:
    if memory.enabled():
        x = np.zeros(1 << 22, np.float32) if COMPILED else np.zeros(1 << 22, np.int8)
        before = memory.stats()["leased_bytes"]
        got = cast(x, "int64")
        assert memory.stats()["leased_bytes"] >= before + got.nbytes


@pytest.mark.parametrize("size", [3, 2 * JIT_FROM])
@pytest.mark.parametrize("target", ["float8e4m3fn", "bfloat16", "float64", "int32", "string"])
def test_out(size: int, target: str) -> None:
    x = np.linspace(-2, 2, size, dtype=np.float32)
    out = np.empty(size, dtype(target))
    assert cast(x, target, out=out) is out
    assert out.tolist() == cast(x, target).tolist()


# Errors

X = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("call", "error", "attribute", "text"),
    [
        (lambda: cast(np.ma.masked_array(X, X > 0), "int8"), InvalidTypeError, None, "x is a masked array"),
        (lambda: cast(X, "float9"), InvalidTypeError, None, "'float9' is no ONNX element type; allowed: float, uint8"),
        (lambda: cast(X, 99), InvalidTypeError, None, "no ONNX element type has the number 99"),
        (lambda: cast(X, True), InvalidTypeError, None, "True is no ONNX element type"),
        (lambda: cast(X, ["float"]), InvalidTypeError, None, "is no ONNX element type"),
        (lambda: cast([1.0], "float"), InvalidTypeError, "x", "x is a list; allowed: numpy.ndarray, NumPy scalars and PackedTensor"),
        (lambda: cast(np.array(["2020"], "M8[Y]"), "float"), InvalidTypeError, None, "is no ONNX element type"),
        (lambda: cast(X, "complex64"), InvalidTypeError, "to", "no conversion from float to complex64"),
        (lambda: cast(X.astype("c8"), "float"), InvalidTypeError, "to", "complex numbers convert to themselves only"),
        (lambda: cast(X.astype("c8"), "complex128"), InvalidTypeError, "to", "no conversion from complex64 to complex128"),
        (lambda: cast(X, "float8e5m2", saturate="yes"), InvalidTypeError, "saturate", "saturate is 'yes'; allowed: True and False"),
        (lambda: cast(X, "float8e5m2", saturate=1), InvalidTypeError, "saturate", "saturate is 1; allowed: True and False"),
        (lambda: cast(X, "float8e5m2", saturate=[]), InvalidTypeError, "saturate", "allowed: True and False"),
        (lambda: cast(X, "float", round_mode="odd"), InvalidValueError, "round_mode", "round_mode is 'odd'; allowed: up, down, nearest"),
        (lambda: cast(X, "float8e8m0", round_mode=b"up"), InvalidTypeError, "round_mode", "round_mode is b'up'; allowed: up, down"),
        (lambda: cast(X, "int8", out=np.empty(3, np.uint8)), InvalidTypeError, "out", "out has dtype uint8; the result has int8"),
        (lambda: cast(X, "int8", out=np.empty(4, np.int8)), InvalidValueError, "out", "out has shape"),
        (lambda: cast(X, "int8", out=np.empty(6, np.int8)[::2]), InvalidValueError, "out", "not C-contiguous"),
        (lambda: cast(X, "int32", out=X.view(np.int32)), InvalidValueError, "out", "out shares memory with x"),
        (lambda: cast(X, "int4", packed=True, out=np.empty(3, np.uint8)), InvalidValueError, "out", "the result has (2,)"),
        (lambda: cast(X, "string", packed=True), InvalidTypeError, "to", "strings have no packed form"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors(call: Any, error: type, attribute: str | None, text: str) -> None:
    cast(X, "float"), cast(X, 1), cast(X, "float8e5m2", saturate=True)  # what is remembered of these must not let others pass
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value) and caught.value.attribute == attribute


def test_nothing_is_written_before_an_error() -> None:
    out = np.zeros(2, np.int32)
    with pytest.raises(InvalidValueError):
        cast(np.array(["1", "x"], object), "int32", out=out)
    assert out.tolist() == [0, 0]


# What others say


@pytest.mark.skipif(not hasattr(onnx.TensorProto, "FLOAT8E8M0"), reason="an onnx that lacks the types")
def test_the_node_cases_of_onnx(node_cases: list[Any]) -> None:
    done = 0
    for case in node_cases:
        node = case.model.graph.node[0]
        if node.op_type != "Cast" or len(case.model.graph.node) > 1 or len(case.model.graph.input) > 1:
            continue
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        (given,), (expected,) = case.data_sets[0]
        x, want = (to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value) for value in (given, expected))
        mode = attributes.get("round_mode", b"up").decode()
        got = cast(x, attributes["to"], saturate=bool(attributes.get("saturate", 1)), round_mode=mode)
        assert got.dtype == want.dtype and got.shape == want.shape, case.name
        np.testing.assert_array_equal(*(array.astype(np.float64) for array in (got, want)), err_msg=case.name)
        done += 1
    assert done >= 50


def test_small_arrays_of_common_types_do_not_load_numba() -> None:
    code = """
import sys
import ml_dtypes, numpy as np
from numbaops import ELEMENT_TYPES
from numbaops.casting import cast
wide = [kind for kind in ELEMENT_TYPES if kind.bits >= 8 and kind.kind not in ("complex", "string") and kind.name != "float8e8m0"]
for source in ELEMENT_TYPES:
    if source.kind in ("complex", "string"):
        continue
    with np.errstate(over="ignore"):
        x = np.array([1e30, -2, 0.5, 1] if source.kind == "float" else [0, 1], np.float32).astype(source.dtype)
    for target in wide:
        if source.name != "double" or target.kind != "float" or target.name in ("float", "float16", "double"):
            cast(x, target), cast(x, target), cast(x, target, saturate=False), cast(x, target, out=np.empty(x.shape, target.dtype))
    if source.kind in ("signed", "unsigned"):
        cast(x, "int4"), cast(x, "uint2"), cast(x, "float4e2m1")
cast(np.ones(8), "string"), cast(np.array(["1", "2.5"]), "float32"), cast(np.array(["1"]), "int4")
assert "numba" not in sys.modules
print("done")
"""
    assert run_python(code) == "done"


SIGNALLING = {"float16": 0x7D01, "bfloat16": 0x7F81, "float32": 0x7F800001, "float64": 0x7FF0000000000001}


@pytest.mark.parametrize("source", SIGNALLING)
def test_signalling_nans_are_no_warning(source: str) -> None:
    width = 8 * dtype(source).itemsize
    x = np.full(3, SIGNALLING[source], f"uint{width}").view(dtype(source))
    for target in ELEMENT_TYPES:
        if target.kind == "float":
            for _ in range(2):  # the second time by what the first one remembered
                y = cast(x, target)
                with np.errstate(all="ignore"):
                    assert target.bits < 8 or np.isnan(y).all()
