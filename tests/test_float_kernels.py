"""The conversion kernels one by one: from Python, and from a user's own ``@njit`` function.

The file passes compiled, with ``NUMBA_DISABLE_JIT=1`` (on fewer numbers) and with ``NUMBA_BOUNDSCHECK=1``.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import config

from numbaops import element_type
from numbaops.kernels import floats
from rounding import FORMATS, around, encode, midpoints, truncated

COMPILED = not config.DISABLE_JIT
EVERY = 1 if COMPILED else 251


def test_widen_float16_is_exact() -> None:
    x = np.arange(0, 65536, EVERY, dtype=np.uint16)
    out = np.empty(x.size, np.uint32)
    floats.widen_float16(x, out)
    with np.errstate(invalid="ignore"):
        want = x.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(out.view(np.float32), want)
    assert (np.signbit(out.view(np.float32)) == np.signbit(want)).all()


def test_widen_bfloat16_moves_bits() -> None:
    out = np.empty(3, np.uint32)
    floats.widen_bfloat16(np.array([0x3F80, 0x8000, 0xFFFF], np.uint16), out)
    assert out.tolist() == [0x3F800000, 0x80000000, 0xFFFF0000]


REALS = [0.0, 1.0, 1 + 2.0**-24, 1 + 2.0**-52, 1 - 2.0**-53, 3 + 2.0**-22, math.pi, 1e-40, 5e-324, 1e39, 1.7e308]
REALS += [2.0**-149, 2.0**-150, 2.0**128 - 2.0**104]


def test_float64_is_rounded_to_odd() -> None:
    x = np.array([sign * number for number in REALS for sign in (1, -1)])
    out = np.empty(x.size, np.uint32)
    with np.errstate(over="ignore"):  # only without the JIT
        floats.narrow_float64(x, out)
    for number, bits, got in zip(x.tolist(), out.tolist(), out.view(np.float32).tolist(), strict=True):
        if Fraction(got) != Fraction(number):
            assert bits & 1
            neighbours = (np.float32(got), np.nextafter(np.float32(got), np.float32(0)))
            with np.errstate(over="ignore"):
                outer = np.nextafter(np.float32(got), np.float32(math.copysign(math.inf, number)))
            assert abs(float(neighbours[1])) < abs(number) < abs(float(outer))
        assert math.copysign(1, got) == math.copysign(1, number)


def test_what_is_no_number_stays_so() -> None:
    out = np.empty(4, np.uint32)
    floats.narrow_float64(np.array([math.inf, -math.inf, math.nan, -math.nan]), out)
    assert out[:2].tolist() == [0x7F800000, 0xFF800000]
    assert np.isnan(out[2:].view(np.float32)).all() and (out[2:] >> 31).tolist() == [0, 1]


@pytest.mark.parametrize("source", ["int64", "uint64"])
def test_integers_are_rounded_to_odd(source: str) -> None:
    limits = np.iinfo(source)
    numbers = [sign * (2**power + step) for power in range(64) for step in (-1, 0, 1) for sign in (1, -1)]
    x = np.array([number for number in [*numbers, limits.min, limits.max] if limits.min <= number <= limits.max], source)
    out = np.empty(x.size)
    floats.narrow_integer[source](x, out)
    for number, got in zip(x.tolist(), out.tolist(), strict=True):
        if abs(number) < 2**40:
            assert got == number
        else:
            unit = Fraction(number, 2**16)
            assert got == number if unit.denominator == 1 else int(got) >> 16 == math.floor(unit) | 1


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["uint8", "uint16", "uint32", "uint64"])
def test_truncate(source: str, target: str) -> None:
    with np.errstate(over="ignore"):
        numbers = [sign * number * scale for number in REALS for scale in (1, 77.7) for sign in (1, -1)]
        x = np.array([*numbers, math.nan, math.inf]).astype(source)
    out = np.empty(x.size, target)
    floats.truncate(source, target)(x, out)
    assert out.tolist() == [truncated(number, out.itemsize * 8) for number in x.tolist()]


@pytest.mark.parametrize("bits", [2, 4])
def test_round_float64(bits: int) -> None:
    x = np.array([0.5, 1.5, -0.5, -0.50000000001, 2.0**22 + 1.25, 2.0**56 + 16, 2.0**60 + 2**10, math.inf, math.nan])
    out = np.empty(x.size, np.uint8)
    floats.make_round_float64(bits)(x, out)
    want = [round(number) & ((1 << bits) - 1) if math.isfinite(number) else 0 for number in x.tolist()]
    assert out.tolist() == want


@pytest.mark.parametrize("word", ["uint8", "uint16", "uint32", "uint64"])
def test_look_up(word: str) -> None:
    table = np.random.default_rng(1).integers(0, np.iinfo(word).max, 256, dtype=word)
    codes = np.arange(255, -1, -1, dtype=np.uint8)
    out = np.empty(256, word)
    floats.look_up(word)(codes, table, out)
    assert out.tolist() == table[::-1].tolist()


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("size", [0, 1, 3, 4, 9])
def test_look_up_packed(bits: int, size: int) -> None:
    table = np.arange(100, 356, dtype=np.uint16)
    codes = [(3 * i + 1) % (1 << bits) for i in range(size)]
    packed = np.frombuffer(sum(code << bits * i for i, code in enumerate(codes)).to_bytes((size * bits + 7) // 8, "little"), np.uint8)
    out = np.empty(size, np.uint16)
    floats.look_up_packed(bits, "uint16")(packed, table, out)
    assert out.tolist() == [100 + code for code in codes]


@pytest.mark.parametrize("name", ["float8e4m3fn", "float8e5m2fnuz", "float4e2m1", "bfloat16"])
def test_an_encoder_in_a_users_function(name: str) -> None:
    form = element_type(name).format
    assert form is not None
    encoder = floats.make_encoder(form, saturate=True)

    @numba.njit
    def each(bits: Any, out: Any) -> None:
        for i in range(bits.size):
            out[i] = encoder(bits[i])

    x = around(midpoints(name)[:: max(1, EVERY // 30)][:300], np.float32)
    out = np.empty(x.size, np.uint16)
    each(x.view(np.uint32), out)
    assert out.tolist() == encode(name, x).tolist()
    assert FORMATS[name].dtype == element_type(name).dtype


@pytest.mark.skipif(not COMPILED, reason="for compiled kernels")
def test_kernels_of_one_factory_do_not_mix_when_some_come_from_the_cache(tmp_path: Path) -> None:
    """Each process compiles one more than the one before; Numba counts what a process has compiled, and begins anew in each."""
    names = ["float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz"]
    code = """
import sys
import numpy as np
from numbaops.casting import cast
x = np.linspace(-300, 300, 2000).astype(np.float16)
print([int(cast(x, name, saturate=False).view(np.uint8).astype(int).sum()) for name in sys.argv[1:]])
"""
    x = np.linspace(-300, 300, 2000).astype(np.float16)
    sums = [int(encode(name, x, saturate=False).astype(int).sum()) for name in names]
    environment = {**os.environ, "NUMBAOPS_CACHE_DIR": str(tmp_path)}
    for chosen in ([0], [1], [2, 0], [1, 2, 0], [3, 2, 1, 0]):
        command = [sys.executable, "-c", code, *(names[i] for i in chosen)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == str([sums[i] for i in chosen])
