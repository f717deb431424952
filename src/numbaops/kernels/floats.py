"""Kernels from floats to narrower formats, given as rows of bits: one encoder for all.

Every encoder reads the bits of float32. Wider sources are brought to float32 by rounding to odd: where a value is no float32, of its two
neighbours the one whose last bit is set. That keeps on which side of every midpoint of a narrower format the value lies, so
that the encoder's is the only rounding. Numba promotes uint32 to uint64, which halves the vector lanes: each step is truncated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from numbaops.kernels.bits import group, pack
from numbaops.runtime.jit import kernel

if TYPE_CHECKING:
    from numbaops.dtypes import FloatFormat

Kernel = Callable[[Any, Any], None]
Table = Callable[[Any, Any, Any], None]

BLOCK = 2048
"""Elements of a stage of several; what lies between two stages stays in the L1 cache."""

SIGN = np.uint32(0x80000000)
MAGNITUDE = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)


def signatures(source: str, *others: str) -> tuple[str, ...]:
    """A kernel's signatures for sources that can be written, and that cannot."""
    rest = "".join(f", {other}" for other in others)
    return tuple(f"void(Array({source}, 1, 'C', {fixed}, aligned=True){rest})" for fixed in (False, True))


# float32 to the codes of a narrower format


def _magnitude(form: FloatFormat) -> tuple[int, int]:
    """The code of the largest finite value, and of NaN; without NaN the latter is minus zero."""
    everything = (1 << form.exponent_bits + form.mantissa_bits) - 1
    if form.infinities:
        infinity = everything - ((1 << form.mantissa_bits) - 1)
        return infinity - 1, infinity | 1 << form.mantissa_bits - 1
    return (everything - 1, everything) if form.nan == "all_ones" else (everything, everything + 1)


def make_encoder(form: FloatFormat, saturate: bool, half: bool = False) -> Callable[[Any], Any]:
    """The rounding of float32, or float16, to a narrower format, ties to even.

    Args:
        form: the format; it has a sign.
        saturate: whether values beyond the largest finite one become that, and not what the format has next: infinity, or else NaN.
        half: whether from float16. To a format of at most its exponents, that saves half of the work.

    Returns:
        ``encode(bits)``: the code, as uint32, of the float32 with these bits. Those of a float16 are shifted to where float32 has its
        sign and its mantissa. In a format without NaN it is minus zero for +NaN, and zero for -NaN.
    """
    # As float32 the bits of a float16 are its value times 2**-112; so are then all numbers below, and only the difference counts.
    bias = 15 if half else 127
    magnitude, infinity = np.uint32(0x0FFFFFFF if half else MAGNITUDE), np.uint32(2 * bias + 1 << 23)
    mantissa, rebias = form.mantissa_bits, bias - form.bias
    shift = 23 - mantissa
    largest, nan = _magnitude(form)
    last = largest if saturate or form.nan == "none" else largest + 1
    cap = np.uint32((last + (rebias << mantissa)) << shift)
    lowest = np.uint32(rebias + 1 << 23)
    exponent, offset = INFINITY, np.uint32(shift << 23)
    below_half, rest = np.uint32((1 << shift - 1) - 1), np.uint32(shift)
    quiet = np.uint32(nan)
    sign, to_sign = np.uint32(1 << form.exponent_bits + mantissa), np.uint32(31 - form.exponent_bits - mantissa)
    minus_zero, no_nan = form.negative_zero, form.nan == "none"
    same_exponents = rebias == 0

    @kernel("uint32(uint32)", key=(form.exponent_bits, mantissa, form.bias, form.nan, last, half))
    def encode(bits: Any) -> Any:
        size = np.uint32(bits & magnitude)
        least = size if size < cap else cap
        if same_exponents:
            code = np.uint32(np.uint32(least + below_half + np.uint32(np.uint32(least >> rest) & np.uint32(1))) >> rest)
        else:
            # Adding a power of two that leaves only the target's bits lets the FPU round, subnormals and ties included.
            top = np.uint32((least if least > lowest else lowest) & exponent)
            power = np.uint32(top + offset)
            rounded = np.float32(np.uint32(least).view(np.float32) + np.uint32(power).view(np.float32)).view(np.uint32)
            code = np.uint32(np.uint32(rounded - power) + np.uint32(np.uint32(top - lowest) >> rest))
        negative = np.uint32(np.uint32(bits >> to_sign) & sign)
        if no_nan:
            return np.uint32(negative ^ sign) if size > infinity else np.uint32(code | negative)
        code = quiet if size > infinity else code
        if minus_zero:
            return np.uint32(code | negative)
        return np.uint32(code | negative) if code else code

    return encode


def make_scale_encoder(round_mode: str, saturate: bool) -> Callable[[Any], Any]:
    """The rounding of float32 to float8e8m0, an exponent without sign, zero or infinity.

    Args:
        round_mode: ``"up"``, ``"down"`` or ``"nearest"``, which rounds the midpoint up.
        saturate: whether what lies outside of 2**-127 to 2**127 becomes the nearer of them, and not NaN.

    Returns:
        ``encode(bits)``: the code, as uint32, of the float32 with these bits.
    """
    # Carries into the exponent from this part of the mantissa on.
    carry = np.uint32({"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}[round_mode])
    # 2**-127, code 0, is the subnormal 0x400000; between it and 2**-126 the mantissa's scale is half of the others'.
    first, second, limit = np.uint32(0x400000), np.uint32(0x800000), np.uint32(0x7F000000)
    step = np.uint32({"up": 0x400001, "down": 0x800000, "nearest": 0x600000}[round_mode])

    @kernel("uint32(uint32)", key=(round_mode, saturate))
    def encode(bits: Any) -> Any:
        if saturate:
            size = np.uint32(0) if bits >= SIGN else bits
            size = size if size < limit else limit
        else:
            size = np.uint32(bits & MAGNITUDE)
        code = np.uint32(np.uint32(size + carry) >> np.uint32(23))
        small = np.uint32(1) if size >= step else np.uint32(0)
        code = small if size < second else code
        if saturate:
            return np.uint32(255) if np.uint32(bits & MAGNITUDE) > INFINITY else code
        return np.uint32(255) if bits < first or bits > limit else code

    return encode


def make_integer_encoder(bits: int) -> Callable[[Any], Any]:
    """The rounding of float32 to an integer, ties to even, of which the low ``bits`` (2 or 4) are kept; 0 of infinities and NaN."""
    mask = np.uint32((1 << bits) - 1)
    whole = np.uint32(0x4D000000)  # 2**27: from there on multiples of 16

    @kernel("uint32(uint32)", key=(bits,))
    def encode(word: Any) -> Any:
        near = np.uint32(word if np.uint32(word & MAGNITUDE) < whole else np.uint32(0))
        return np.uint32(np.int32(np.rint(near.view(np.float32))) & mask)

    return encode


def make_encode(encoder: Callable[[Any], Any], name: tuple[Any, ...], word: str = "uint8", source: str = "float32") -> Kernel:
    """An encoder over an array.

    Args:
        encoder: what one of the factories above returned.
        name: values that determine the encoder.
        word: the unsigned dtype of codes.
        source: ``"float32"``; ``"bfloat16"``, which is its upper half; or ``"float16"``, if the encoder is made for that.

    Returns:
        ``encode(bits, out)``: writes the code of each number, given as its bits, to ``out``.
    """
    given = "uint32" if source == "float32" else "uint16"
    shift = np.uint32({"float32": 0, "bfloat16": 16, "float16": 13}[source])
    sign, to_sign = np.uint32(0x8000 if source == "float16" else 0), np.uint32(16)

    @kernel(*signatures(given, f"{word}[::1]"), key=(*name, source))
    def encode(x: Any, out: Any) -> None:
        for i in range(out.size):
            bits = np.uint32(x[i])
            out[i] = encoder(np.uint32(np.uint32(bits << shift) | np.uint32(np.uint32(bits & sign) << to_sign)))

    return encode


def make_staged(first: Kernel, second: Kernel, name: tuple[Any, ...], source: str, between: str, target: str) -> Kernel:
    """Two kernels in turn over blocks, each of which takes as many elements as it gives.

    Args:
        first: from arrays of ``source`` to arrays of ``between``.
        second: from these to arrays of ``target``.
        name: values that determine both kernels.
        source: a dtype.
        between: a dtype.
        target: a dtype.

    Returns:
        ``staged(x, out)``.
    """
    scratch = np.dtype(between).type

    @kernel(*signatures(source, f"{target}[::1]"), key=(*name, source))
    def staged(x: Any, out: Any) -> None:
        block = np.empty(BLOCK, scratch)
        for start in range(0, x.size, BLOCK):
            stop = min(start + BLOCK, x.size)
            first(x[start:stop], block[: stop - start])
            second(block[: stop - start], out[start:stop])

    return staged


def make_packed(encode: Kernel, bits: int, name: tuple[Any, ...], source: str) -> Kernel:
    """An encoder to codes of ``bits`` (2, 4 or 6) and their packing, in one pass.

    Returns:
        ``encode_packed(x, out)``: from an array of ``source`` to packed bytes, first element in the low bits.
    """
    combine = pack[bits]
    elements, whole_bytes = group(bits)
    bytes_each = BLOCK // elements * whole_bytes

    @kernel(*signatures(source, "uint8[::1]"), key=(*name, source))
    def encode_packed(x: Any, out: Any) -> None:
        block = np.empty(BLOCK, np.uint8)
        place = 0
        for start in range(0, x.size, BLOCK):
            stop = min(start + BLOCK, x.size)
            encode(x[start:stop], block[: stop - start])
            combine(block[: stop - start], out[place : min(place + bytes_each, out.size)])
            place += bytes_each

    return encode_packed


# Other sources to float32


@kernel(*signatures("uint16", "uint32[::1]"))
def widen_bfloat16(codes: Any, out: Any) -> None:
    """Write the bits of the float32 that equals each bfloat16."""
    for i in range(out.size):
        out[i] = np.uint32(codes[i]) << np.uint32(16)


@kernel(*signatures("uint16", "uint32[::1]"))
def widen_float16(codes: Any, out: Any) -> None:
    """Write the bits of the float32 that equals each float16."""
    subnormal, special = np.uint32(0x400 << 13), np.uint32(0x7C00 << 13)
    for i in range(out.size):
        code = np.uint32(codes[i])
        size = np.uint32(np.uint32(code & np.uint32(0x7FFF)) << np.uint32(13))
        # A subnormal is a fraction of 2**-14: put there, it carries a one too many, which the FPU takes away; multiplying would be
        # five times slower, since the operand is subnormal in float32 as well.
        placed = np.uint32(size + np.uint32(113 << 23))
        exact = np.float32(placed.view(np.float32) - np.float32(2.0**-14)).view(np.uint32)
        wide = np.uint32(size + np.uint32(112 << 23))
        wide = wide if size < special else np.uint32(size + np.uint32(224 << 23))
        wide = exact if size < subnormal else wide
        out[i] = wide | np.uint32(np.uint32(code & np.uint32(0x8000)) << np.uint32(16))


@kernel(*signatures("float64", "uint32[::1]"))
def narrow_float64(x: Any, out: Any) -> None:
    """Write the bits of each float64 rounded to odd to float32."""
    for i in range(out.size):
        near = np.float32(x[i])
        back = np.float64(near)
        bits = near.view(np.uint32)
        towards_zero = np.uint32(bits - np.uint32(1)) if abs(back) > abs(x[i]) else bits
        out[i] = bits if back == x[i] else np.uint32(towards_zero | np.uint32(1))


def make_narrow_integer(source: str) -> Kernel:
    """The rounding to odd of ``"int64"`` or ``"uint64"`` to float64, to at least 40 bits: enough for a second one, to float32."""
    word = np.dtype(source).type
    large, lost, low, one, nothing = word(1 << 40), word(16), word(0xFFFF), word(1), word(0)
    negative = word(-(1 << 40) if source == "int64" else 0)

    @kernel(*signatures(source, "float64[::1]"), key=(source,))
    def narrow_integer(x: Any, out: Any) -> None:
        for i in range(out.size):
            value = x[i]
            sticky = one if word(value & low) else nothing
            top = word(word(value >> lost) | sticky)
            out[i] = np.float64(top) * 65536.0 if value >= large or value < negative else np.float64(value)

    return narrow_integer


narrow_integer = {source: make_narrow_integer(source) for source in ("int64", "uint64")}


# To integers


def _word(source: str, target: str) -> Any:
    """The lanes that a truncation needs: of 64 bits if either side has them."""
    return np.uint32 if source == "float32" and target != "uint64" else np.uint64


def make_wrap(source: str, target: str) -> Kernel:
    """The same as ``make_truncate``, by shifts of the bits.

    Returns:
        ``wrap(bits, out)``: from floats, given as unsigned words, to the unsigned ``target``.
    """
    word = _word(source, target)
    width, (mantissa, bias) = word(np.dtype(word).itemsize * 8), ((23, 127) if source == "float32" else (52, 1023))
    point, one = word(bias + mantissa), word(1)
    fraction, hidden = word((1 << mantissa) - 1), word(1 << mantissa)
    exponents, to_exponent = word(2 * bias + 1), word(mantissa)
    to_sign = word(31 if source == "float32" else 63)
    ones, nothing = word(np.iinfo(word).max), word(0)
    bits = "uint32" if source == "float32" else "uint64"

    @kernel(*signatures(bits, f"{target}[::1]"), key=(source, target))
    def wrap(x: Any, out: Any) -> None:
        for i in range(out.size):
            value = word(x[i])
            exponent = word(word(value >> to_exponent) & exponents)
            whole = word(word(value & fraction) | hidden)
            right = word(point - exponent) if exponent < point else nothing
            left = word(exponent - point) if exponent > point else nothing
            size = word(whole >> right) if right < width else nothing
            size = word(size << left) if left < width else nothing
            negated = word(word(size ^ ones) + one) if size else nothing
            out[i] = negated if word(value >> to_sign) else size

    return wrap


def make_truncate(source: str, target: str) -> Kernel:
    """The integer part of ``"float32"`` or ``"float64"``, of which the low bits are kept; 0 of infinities and NaN.

    Returns:
        ``truncate(x, out)``: from floats to the unsigned ``target``, two's complement.
    """
    word, bits = _word(source, target), (np.uint32 if source == "float32" else np.uint64)
    signed = np.int32 if word is np.uint32 else np.int64
    limit = 2.0**31 if word is np.uint32 else 2.0**63
    wrap = make_wrap(source, target)

    @kernel(*signatures(source, f"{target}[::1]"), key=(source, target))
    def truncate(x: Any, out: Any) -> None:
        for start in range(0, out.size, BLOCK):
            part, whole = x[start : start + BLOCK], out[start : start + BLOCK]
            beyond = 0
            for i in range(part.size):
                beyond += 0 if abs(part[i]) < limit else 1
            if beyond:
                wrap(part.view(bits), whole)
            else:  # the processor's own conversion is faster, but says nothing of the low bits of others
                for i in range(part.size):
                    whole[i] = signed(part[i])

    return truncate


def make_round_float64(bits: int) -> Kernel:
    """The rounding of float64 to an integer, ties to even, of which the low ``bits`` (2 or 4) are kept; 0 of infinities and NaN.

    Returns:
        ``round_float64(x, out)``: from float64 to a uint8 each.
    """
    mask = np.int64((1 << bits) - 1)

    @kernel(*signatures("float64", "uint8[::1]"), key=(bits,))
    def round_float64(x: Any, out: Any) -> None:
        for i in range(out.size):
            near = x[i] if abs(x[i]) < 2.0**57 else 0.0  # beyond, multiples of 16
            out[i] = np.int64(np.rint(near)) & mask

    return round_float64


# From codes of at most 8 bits


def make_look_up(word: str) -> Table:
    """The look-up of whatever codes of at most 8 bits become.

    Returns:
        ``look_up(codes, table, out)``: writes ``table[code]``, elements of the unsigned ``word``, for each uint8 code; the table has 256.
    """

    @kernel(*signatures("uint8", f"{word}[::1]", f"{word}[::1]"), key=(word,))
    def look_up(codes: Any, table: Any, out: Any) -> None:
        for i in range(out.size):
            out[i] = table[codes[i]]

    return look_up


def make_look_up_packed(bits: int, word: str) -> Table:
    """The same from packed codes of ``bits`` (2 or 4) each, in one pass.

    Returns:
        ``look_up_packed(packed, table, out)``: the table may be longer than needed; surplus codes of the last byte are ignored.
    """
    per_byte, mask = 8 // bits, (1 << bits) - 1

    @kernel(*signatures("uint8", f"{word}[::1]", f"{word}[::1]"), key=(bits, word))
    def look_up_packed(packed: Any, table: Any, out: Any) -> None:
        whole = out.size // per_byte
        for i in range(whole):
            byte = packed[i]
            for lane in range(per_byte):
                out[per_byte * i + lane] = table[byte >> lane * bits & mask]
        for lane in range(out.size - whole * per_byte):
            out[whole * per_byte + lane] = table[packed[whole] >> lane * bits & mask]

    return look_up_packed


truncate = functools.cache(make_truncate)
look_up = functools.cache(make_look_up)
look_up_packed = functools.cache(make_look_up_packed)
