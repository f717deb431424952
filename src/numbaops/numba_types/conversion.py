"""The LLVM instructions that turn codes into values and back: one encoder and one decoder for all float formats.

They are emitted where they are used, never called, so that a loop over them vectorises. All of it is integer arithmetic except one
addition or multiplication in the subnormal range, so it holds under every ``fastmath`` flag.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from numbaops.dtypes import ElementType, FloatFormat

FLOAT32 = ir.FloatType()
FLOAT64 = ir.DoubleType()
INT32 = ir.IntType(32)
INT64 = ir.IntType(64)

_MANTISSA = {FLOAT32: 23, FLOAT64: 52}
_BIAS = {FLOAT32: 127, FLOAT64: 1023}
_WORD = {FLOAT32: INT32, FLOAT64: INT64}


def storage(row: ElementType) -> ir.IntType:
    """The integer type that holds a code in an array."""
    return ir.IntType(8 * row.dtype.itemsize)


def mask_code(builder: Any, row: ElementType, code: Any) -> Any:
    """``code`` without what stands in the unused high bits of its byte."""
    return builder.and_(code, code.type((1 << row.bits) - 1)) if row.packed else code


def _format(row: ElementType) -> FloatFormat:
    assert row.format is not None
    return row.format


def decode_float(builder: Any, row: ElementType, code: Any) -> Any:
    """The float32 value of a code; every value of these formats is one."""
    layout = _format(row)
    wide = builder.zext(code, INT32)
    gap = 23 - layout.mantissa_bits
    if not layout.signed:  # float8e8m0: the code is the exponent, and the lowest one is subnormal in float32
        bits = builder.shl(wide, INT32(gap))
        bits = builder.select(builder.icmp_unsigned("==", wide, INT32(0)), INT32(1 << 22), bits)
        bits = builder.select(builder.icmp_unsigned("==", wide, INT32(0xFF)), INT32(0x7FC00000), bits)
        return builder.bitcast(bits, FLOAT32)
    if layout.bias == 127 and layout.exponent_bits == 8:  # bfloat16: the upper half of a float32
        return builder.bitcast(builder.shl(wide, INT32(gap)), FLOAT32)
    magnitude = builder.and_(wide, INT32((1 << row.bits - 1) - 1))
    sign = builder.shl(builder.lshr(wide, INT32(row.bits - 1)), INT32(31))
    normal = builder.add(builder.shl(magnitude, INT32(gap)), INT32(127 - layout.bias << 23))
    step = 2.0 ** (1 - layout.bias - layout.mantissa_bits)
    subnormal = builder.bitcast(builder.fmul(builder.sitofp(magnitude, FLOAT32), FLOAT32(step)), INT32)
    bits = builder.select(builder.icmp_unsigned("<", magnitude, INT32(1 << layout.mantissa_bits)), subnormal, normal)
    if layout.nan == "ieee":
        infinity = INT32(((1 << layout.exponent_bits) - 1) << layout.mantissa_bits)
        bits = builder.select(builder.icmp_unsigned("==", magnitude, infinity), INT32(0x7F800000), bits)
        bits = builder.select(builder.icmp_unsigned(">", magnitude, infinity), INT32(0x7FC00000), bits)
    elif layout.nan == "all_ones":
        bits = builder.select(builder.icmp_unsigned("==", magnitude, INT32((1 << row.bits - 1) - 1)), INT32(0x7FC00000), bits)
    bits = builder.or_(bits, sign)
    if layout.nan == "negative_zero":
        bits = builder.select(builder.icmp_unsigned("==", wide, INT32(1 << row.bits - 1)), INT32(0xFFC00000), bits)
    return builder.bitcast(bits, FLOAT32)


def encode_float(builder: Any, row: ElementType, value: Any) -> Any:
    """The code nearest to a float32 or float64, ties to even; beyond the largest value what ml_dtypes gives.

    That is infinity where the format has it, else NaN where it has that, else the largest value.
    """
    layout = _format(row)
    kind = value.type
    word, mantissa = _WORD[kind], _MANTISSA[kind]
    bias_gap = _BIAS[kind] - layout.bias
    bits = builder.bitcast(value, word)
    magnitude = builder.and_(bits, word((1 << word.width - 1) - 1))
    infinity = word((1 << word.width - 1) - (1 << mantissa))

    def choose(comparison: str, left: Any, right: Any, when: Any, otherwise: Any) -> Any:
        return builder.select(builder.icmp_unsigned(comparison, left, right), when, otherwise)

    if not layout.signed:
        return _encode_exponent(builder, row, bits, choose, mantissa, bias_gap)

    cut = mantissa - layout.mantissa_bits
    odd = builder.and_(builder.lshr(magnitude, word(cut)), word(1))
    rounded = builder.add(builder.add(magnitude, word((1 << cut - 1) - 1)), odd)
    code = builder.sub(builder.lshr(rounded, word(cut)), word(bias_gap << layout.mantissa_bits))
    if bias_gap:  # subnormals: the last place of this sum is the step between them
        anchor = (1 - layout.bias - layout.mantissa_bits + mantissa + _BIAS[kind]) << mantissa
        total = builder.fadd(builder.bitcast(magnitude, kind), builder.bitcast(word(anchor), kind))
        subnormal = builder.sub(builder.bitcast(total, word), word(anchor))
        code = choose("<", magnitude, word((bias_gap + 1) << mantissa), subnormal, code)

    sign_code = 1 << row.bits - 1
    sign = builder.lshr(builder.and_(bits, word(1 << word.width - 1)), word(word.width - row.bits))
    if layout.nan == "negative_zero":
        code = choose(">=", code, word(sign_code), word(sign_code), code)
        code = choose(">", magnitude, infinity, word(sign_code), code)
        code = choose("==", code, word(0), code, builder.or_(code, sign))
    else:
        if layout.nan == "ieee":
            limit = ((1 << layout.exponent_bits) - 1) << layout.mantissa_bits
            nan = limit | 1 << layout.mantissa_bits - 1
        else:
            limit = nan = sign_code - 1
        code = choose(">", code, word(limit), word(limit), code)
        if layout.nan == "none":  # a NaN becomes a zero of the other sign, as in ml_dtypes
            code = choose(">", magnitude, infinity, word(sign_code), code)
            code = builder.xor(code, sign)
        else:
            code = builder.or_(choose(">", magnitude, infinity, word(nan), code), sign)
    return builder.trunc(code, storage(row))


def _encode_exponent(builder: Any, row: ElementType, bits: Any, choose: Any, mantissa: int, bias_gap: int) -> Any:
    """float8e8m0 as ml_dtypes rounds to it: ties up, all between the two smallest values up, no code below one: NaN."""
    word = bits.type
    # 2**-127 is subnormal in float32, and normal in float64
    smallest = bias_gap << mantissa if bias_gap else 1 << mantissa - 1
    code = builder.sub(builder.lshr(builder.add(bits, word(1 << mantissa - 1)), word(mantissa)), word(bias_gap))
    code = choose("<", bits, word((bias_gap + 1) << mantissa), word(1), code)
    code = choose("<=", bits, word(smallest), word(0), code)
    code = choose(">", code, word(0xFF), word(0xFF), code)
    # negative numbers have the highest bit set, and zero is one less than the least positive number
    beyond = word((1 << word.width - 1) - 1)
    code = choose(">=", builder.sub(bits, word(1)), beyond, word(0xFF), code)
    return builder.trunc(code, storage(row))


def decode_integer(builder: Any, row: ElementType, code: Any) -> Any:
    """The int32 value of a code whose unused high bits are zero."""
    wide = builder.zext(code, INT32)
    if row.kind == "unsigned":
        return wide
    sign = INT32(1 << row.bits - 1)
    return builder.sub(builder.xor(wide, sign), sign)


def encode_integer(builder: Any, row: ElementType, value: Any) -> Any:
    """The code of an integer of any width, wrapped to the type's."""
    narrow = builder.trunc(value, storage(row)) if value.type.width > storage(row).width else value
    return mask_code(builder, row, narrow)


def integer_from_float(builder: Any, value: Any) -> Any:
    """A float cut to int32; 0 where int32 cannot hold it, as those ml_dtypes types get that are narrower."""
    zero = value.type(0.0)
    limit = value.type(2.0**31)
    fits = builder.and_(builder.fcmp_ordered("<", value, limit), builder.fcmp_ordered(">", value, builder.fsub(zero, limit)))
    return builder.fptosi(builder.select(fits, value, zero), INT32)


def float_from_integer(builder: Any, value: Any, signed: bool) -> Any:
    """An integer as a float from which one more rounding, to a format of at most 11 bits, is the only one."""
    width = value.type.width
    convert = builder.sitofp if signed else builder.uitofp
    if width <= 16:
        return convert(value, FLOAT32)
    if width <= 32:
        return convert(value, FLOAT64)
    # Beyond 2**53 keep 53 bits and note in the last of them that others were cut (round to odd).
    low = builder.and_(value, value.type(0x7FF))
    sticky = builder.select(builder.icmp_unsigned("!=", low, value.type(0)), value.type(0x800), value.type(0))
    odd = builder.or_(builder.sub(value, low), sticky)
    shifted = builder.add(value, value.type(1 << 53)) if signed else value
    exact = builder.icmp_unsigned("<", shifted, value.type(1 << 54 if signed else 1 << 53))
    return convert(builder.select(exact, value, odd), FLOAT64)
