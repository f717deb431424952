"""The conversion kernels one by one: from Python, and from a user's own ``@njit`` function.

The file passes compiled, with ``NUMBA_DISABLE_JIT=1`` (on fewer numbers) and with ``NUMBA_BOUNDSCHECK=1``.
"""

from __future__ import annotations

import math
import platform
from fractions import Fraction
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import config

from numbaops import element_type
from numbaops.kernels import decoders, floats
from processes import run_python
from rounding import FORMATS, around, decode, encode, midpoints, truncated

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


def decoder_of(name: str) -> Any:
    kind = element_type(name)
    if name == "float8e8m0":
        return decoders.make_scale_decoder()
    return decoders.make_decoder(kind.format) if kind.format else decoders.make_integer_decoder(kind.bits, kind.kind == "signed")


INTEGERS = {"int4": (4, 8), "uint4": (4, 0), "int2": (2, 2), "uint2": (2, 0)}
NARROW = [*(name for name in FORMATS if element_type(name).bits <= 8), "float8e8m0", *INTEGERS]


def decoded(name: str, code: int) -> float:
    bits, half = INTEGERS.get(name, (0, 0))
    return decode(name, code) if not bits else float((code ^ half) - half)


@pytest.mark.parametrize("word", ["uint16", "uint32", "uint64"])
@pytest.mark.parametrize("name", NARROW)
def test_decode(name: str, word: str) -> None:
    """Every code, whatever the bits above it."""
    codes = np.arange(256, dtype=np.uint8)
    out = np.empty(256, word)
    decoders.make_decode(decoder_of(name), (name,), word)(codes, out)
    got = out.astype(np.uint32) << 16 if word == "uint16" else out
    got = got.view(np.float64 if word == "uint64" else np.float32)
    want = np.array([decoded(name, code % (1 << element_type(name).bits)) for code in range(256)])
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("size", [0, 1, 5, 2 * floats.BLOCK, 2 * floats.BLOCK + 3])
@pytest.mark.parametrize("name", ["float4e2m1", "float6e3m2", "int4", "uint2"])
def test_decode_packed(name: str, size: int) -> None:
    bits = element_type(name).bits
    codes = [(3 * i + 1) % (1 << bits) for i in range(size)]
    packed = np.frombuffer(sum(code << bits * i for i, code in enumerate(codes)).to_bytes((size * bits + 7) // 8, "little"), np.uint8)
    out = np.empty(size, np.uint32)
    decode_each = decoders.make_decode(decoder_of(name), (name,))
    decoders.make_decode_packed(decode_each, bits, (name,))(packed, out)
    assert out.view(np.float32).tolist() == [decoded(name, code) for code in codes]


@pytest.mark.skipif(not COMPILED or platform.machine() not in ("x86_64", "AMD64"), reason="for compiled kernels on x86-64")
def test_kernels_use_vector_instructions(tmp_path: Path) -> None:
    """What each needs is there as an instruction for several numbers; the names of those for one differ."""
    code = """
        import re
        import numpy as np
        from numbaops import element_type
        from numbaops.kernels import bits, decoders, floats

        def encode(name, encoder, word="uint8", source="float32"):
            return floats.make_encode(encoder, (name,), word, source)

        def decode(name, decoder, word="uint32"):
            return decoders.make_decode(decoder, (name,), word)

        e4m3, e5m2, bfloat16 = (element_type(name).format for name in ("float8e4m3fn", "float8e5m2fnuz", "bfloat16"))
        encoder, decoder = floats.make_encoder(e4m3, True), decoders.make_decoder(e4m3)
        for name, kernel, given, word, wanted in [
            ("float8", encode("a", encoder), "uint32", "uint8", "addps"),
            ("fnuz", encode("b", floats.make_encoder(e5m2, False)), "uint32", "uint8", "addps"),
            ("bfloat16", encode("c", floats.make_encoder(bfloat16, False), "uint16"), "uint32", "uint16", "psrld"),
            ("from bfloat16", encode("d", encoder, source="bfloat16"), "uint16", "uint8", "addps"),
            ("from float16", encode("e", floats.make_encoder(e4m3, True, half=True), source="float16"), "uint16", "uint8", "addps"),
            ("scale", encode("f", floats.make_scale_encoder("up", True)), "uint32", "uint8", "psrld"),
            ("int4", encode("g", floats.make_integer_encoder(4)), "uint32", "uint8", "(cvtps2dq|roundps|rndscaleps)"),
            ("to odd", floats.narrow_float64, "float64", "uint32", "cvtpd2ps"),
            ("widen float16", floats.widen_float16, "uint16", "uint32", "(sub|add)ps"),
            ("widen bfloat16", floats.widen_bfloat16, "uint16", "uint32", "pslld"),
            ("truncate", floats.truncate("float32", "uint8"), "float32", "uint8", "cvttps2dq"),
            ("decode float8", decode("a", decoder), "uint8", "uint32", "(sub|add)ps"),
            ("decode to bfloat16", decode("a", decoder, "uint16"), "uint8", "uint16", "(sub|add)ps"),
            ("decode to float64", decode("a", decoder, "uint64"), "uint8", "uint64", "cvtps2pd"),
            ("decode scale", decode("b", decoders.make_scale_decoder()), "uint8", "uint32", "pslld"),
            ("decode int4", decode("c", decoders.make_integer_decoder(4, True)), "uint8", "uint32", "cvtdq2ps"),
            ("pack", bits.pack[4], "uint8", "uint8", "pand|pternlog"),
        ]:
            kernel(np.zeros(2, given), np.zeros(2 if name != "pack" else 1, word))
            (assembly,) = kernel.inspect_asm().values()
            if not re.search(rf"v?({wanted})[dq]?\\s", assembly):
                print(name)
    """
    assert run_python(code, NUMBAOPS_CACHE_DIR=str(tmp_path)) == ""


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
    x = np.linspace(-300, 300, 2000)
    sums = [int(encode(name, x, saturate=False).astype(int).sum()) for name in names]
    for chosen in ([0], [1], [2, 0], [1, 2, 0], [3, 2, 1, 0]):
        code = f"""
            import numpy as np
            from numbaops.casting import cast
            x = np.linspace(-300, 300, 2000)
            for name in {[names[i] for i in chosen]}:
                print(cast(x, name, saturate=False).view(np.uint8).astype(int).sum())
        """
        assert run_python(code, NUMBAOPS_CACHE_DIR=str(tmp_path)).split() == [str(sums[i]) for i in chosen]
