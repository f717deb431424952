"""Kernels from codes of at most 8 bits to floats and integers, by arithmetic: three times as fast as a table, which the processor reads
one by one.

Every decoder to floats gives the bits of float32, which holds all numbers of these formats; bfloat16 is their upper half.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from numbaops.kernels.bits import group, unpack
from numbaops.kernels.floats import BLOCK, INFINITY, SIGN, Kernel, signatures
from numbaops.runtime.jit import kernel

if TYPE_CHECKING:
    from numbaops.dtypes import FloatFormat

Decoder = Callable[[Any], Any]

QUIET = np.uint32(0x7FC00000)
"""NaN."""


def make_decoder(form: FloatFormat) -> Decoder:
    """The value of the codes of a format with a sign.

    Returns:
        ``decode(code)``: the bits of the float32 of that value, as uint32; bits above the code are ignored.
    """
    width, mantissa = form.exponent_bits + form.mantissa_bits, form.mantissa_bits
    everything, to_exponent, to_sign = np.uint32((1 << width) - 1), np.uint32(23 - mantissa), np.uint32(31 - width)
    one = np.uint32(1 << 23)
    rebias = np.uint32(127 - form.bias << 23)
    unit = np.float32(2.0 ** (1 - form.bias))
    top = np.uint32((1 << form.exponent_bits) - 1 << 23)
    without_nan = {"ieee": (1 << width) - (1 << mantissa), "all_ones": (1 << width) - 2}
    last = np.uint32(without_nan.get(form.nan, everything) << 23 - mantissa)
    infinities, minus_zero_is_nan, minus_zero = form.infinities, form.nan == "negative_zero", np.uint32(1 << width)

    @kernel("uint32(uint32)", key=(form.exponent_bits, mantissa, form.bias, form.nan))
    def decode(code: Any) -> Any:
        size = np.uint32(np.uint32(code & everything) << to_exponent)
        bits = np.uint32(size + rebias)
        # A subnormal is a fraction of the smallest normal number: put there, it carries a one too many, which the FPU takes away;
        # multiplying would be slow, since the operand is subnormal in float32 as well.
        exact = np.float32(np.uint32(bits + one).view(np.float32) - unit).view(np.uint32)
        bits = bits if size >= one else exact
        if infinities:
            bits = INFINITY if size == top else bits
        bits = QUIET if size > last else bits
        bits = np.uint32(bits | np.uint32(np.uint32(code << to_sign) & SIGN))
        if minus_zero_is_nan:
            return np.uint32(QUIET | SIGN) if np.uint32(code & np.uint32(0xFF)) == minus_zero else bits
        return bits

    return decode


def make_scale_decoder() -> Decoder:
    """The value of float8e8m0 codes; as ``make_decoder``."""
    subnormal, nan = np.uint32(0x400000), np.uint32(255)

    @kernel("uint32(uint32)")
    def decode_scale(code: Any) -> Any:
        bits = np.uint32(code << np.uint32(23)) if code else subnormal
        return QUIET if code == nan else bits

    return decode_scale


def make_integer_decoder(bits: int, signed: bool) -> Decoder:
    """The value of integers of ``bits`` (2 or 4); as ``make_decoder``."""
    mask = np.uint32((1 << bits) - 1)
    half = np.uint32(1 << bits - 1 if signed else 0)  # flipping the sign bit and taking it away again extends it
    offset = np.int32(half)

    @kernel("uint32(uint32)", key=(bits, signed))
    def decode_integer(code: Any) -> Any:
        value = np.int32(np.int32(np.uint32(np.uint32(code & mask) ^ half)) - offset)
        return np.float32(value).view(np.uint32)

    return decode_integer


def make_extend(bits: int, signed: bool, word: str, out_bits: int) -> Kernel:
    """Low-bit integers, whose high bits may be anything, as wider ones.

    Args:
        bits: the width of a code.
        signed: whether the sign is extended.
        word: the unsigned dtype of results.
        out_bits: the width of results; higher bits of a word are zero.

    Returns:
        ``extend(codes, out)``: the codes are uint8.
    """
    unsigned = getattr(np, word)
    mask, sign = unsigned((1 << bits) - 1), unsigned(1 << bits - 1 if signed else 0)
    above = unsigned((1 << out_bits) - (1 << bits))

    @kernel(*signatures("uint8", f"{word}[::1]"), key=(bits, signed, word, out_bits))
    def extend(codes: Any, out: Any) -> None:
        for i in range(out.size):
            low = unsigned(unsigned(codes[i]) & mask)
            out[i] = unsigned(low | above) if low & sign else low

    return extend


def make_decode(decoder: Decoder, name: tuple[Any, ...], word: str = "uint32") -> Kernel:
    """A decoder over an array.

    Args:
        decoder: what one of the factories above returned.
        name: values that determine the decoder.
        word: ``"uint16"`` for bfloat16, ``"uint32"`` for float32, ``"uint64"`` for float64.

    Returns:
        ``decode(codes, out)``: writes the bits of each number to ``out``; the codes are uint8.
    """
    upper, double = word == "uint16", word == "uint64"

    @kernel(*signatures("uint8", f"{word}[::1]"), key=(*name, word))
    def decode(codes: Any, out: Any) -> None:
        for i in range(out.size):
            bits = decoder(np.uint32(codes[i]))
            if double:
                out[i] = np.float64(np.uint32(bits).view(np.float32)).view(np.uint64)
            else:
                out[i] = np.uint32(bits >> np.uint32(16)) if upper else bits

    return decode


def make_decode_packed(decode: Kernel, bits: int, name: tuple[Any, ...], word: str = "uint32") -> Kernel:
    """The separation of packed codes of ``bits`` (2, 4 or 6), and their decoding, in one pass.

    Args:
        decode: what ``make_decode`` returned for ``word``.
        bits: the width of a code.
        name: values that determine the decoder.
        word: the unsigned dtype of results.

    Returns:
        ``decode_packed(packed, out)``: from packed bytes, first element in the low bits.
    """
    separate = unpack[bits]
    elements, whole_bytes = group(bits)
    bytes_each = BLOCK // elements * whole_bytes

    @kernel(*signatures("uint8", f"{word}[::1]"), key=(*name, word))
    def decode_packed(packed: Any, out: Any) -> None:
        block = np.empty(BLOCK, np.uint8)
        place = 0
        for start in range(0, out.size, BLOCK):
            stop = min(start + BLOCK, out.size)
            separate(packed[place : min(place + bytes_each, packed.size)], block[: stop - start])
            decode(block[: stop - start], out[start:stop])
            place += bytes_each

    return decode_packed


extend = functools.cache(make_extend)
