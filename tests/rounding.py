"""What a conversion between element types must give, by exact arithmetic, and nothing of numbaops.

All numbers of the formats and all midpoints between them are dyadic rationals. They are worked out as fractions, and searched
as float64 once each is known to be one exactly: comparing those is exact too.
"""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from typing import NamedTuple

import ml_dtypes
import numpy as np


class Format(NamedTuple):
    """A narrow format: ``largest`` is the code of its largest finite value, ``beyond`` what overflow gives when not saturating,
    ``nan`` the code of NaN and ``minus_nan`` of NaN with its sign set."""

    bits: int
    mantissa: int
    bias: int
    largest: int
    beyond: int
    nan: int
    minus_nan: int
    minus_zero: int
    dtype: type


# The tables of https://onnx.ai/onnx/technical/float8.html and float4.html, written out.
FORMATS: dict[str, Format] = {
    #                        bits man bias largest beyond  nan     -nan    -0
    "float8e4m3fn": Format(8, 3, 7, 0x7E, 0x7F, 0x7F, 0xFF, 0x80, ml_dtypes.float8_e4m3fn),
    "float8e4m3fnuz": Format(8, 3, 8, 0x7F, 0x80, 0x80, 0x80, 0x00, ml_dtypes.float8_e4m3fnuz),
    "float8e5m2": Format(8, 2, 15, 0x7B, 0x7C, 0x7E, 0xFE, 0x80, ml_dtypes.float8_e5m2),
    "float8e5m2fnuz": Format(8, 2, 16, 0x7F, 0x80, 0x80, 0x80, 0x00, ml_dtypes.float8_e5m2fnuz),
    "float6e2m3": Format(6, 3, 1, 0x1F, 0x1F, 0x20, 0x00, 0x20, ml_dtypes.float6_e2m3fn),
    "float6e3m2": Format(6, 2, 3, 0x1F, 0x1F, 0x20, 0x00, 0x20, ml_dtypes.float6_e3m2fn),
    "float4e2m1": Format(4, 1, 1, 0x7, 0x7, 0x8, 0x0, 0x8, ml_dtypes.float4_e2m1fn),
    "bfloat16": Format(16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, 0xFFC0, 0x8000, ml_dtypes.bfloat16),
    "float16": Format(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00, 0xFE00, 0x8000, np.float16),
}
SATURATING = [name for name in FORMATS if name.startswith("float8")]
NARROW = [name for name in FORMATS if name != "float16"]


def magnitude(name: str, code: int) -> Fraction:
    """The number that the code stands for; its sign bit is clear. One beyond the largest is where the format would go on."""
    form = FORMATS[name]
    exponent, fraction = code >> form.mantissa, code & ((1 << form.mantissa) - 1)
    if exponent:
        fraction += 1 << form.mantissa
    return fraction * Fraction(2) ** (max(exponent, 1) - form.bias - form.mantissa)


@functools.cache
def values(name: str) -> np.ndarray:
    """The numbers of codes 0 to the largest, and the one beyond."""
    return exact([magnitude(name, code) for code in range(FORMATS[name].largest + 2)])


@functools.cache
def midpoints(name: str) -> np.ndarray:
    """The middle of each pair of neighbours among these."""
    numbers = [magnitude(name, code) for code in range(FORMATS[name].largest + 2)]
    return exact([(low + high) / 2 for low, high in itertools.pairwise(numbers)])


def exact(numbers: list[Fraction]) -> np.ndarray:
    result = np.array([float(number) for number in numbers])
    assert [Fraction(number) for number in result.tolist()] == numbers
    return result


def around(points: np.ndarray, dtype: type) -> np.ndarray:
    """Each of these and its two neighbours in ``dtype``, with both signs."""
    with np.errstate(over="ignore"):
        near = points.astype(dtype)
    each = [near, np.nextafter(near, dtype(0)), np.nextafter(near, dtype(math.inf))]
    return np.concatenate(each + [-part for part in each])


def encode(name: str, x: np.ndarray, saturate: bool = True) -> np.ndarray:
    """The codes of ``x``, numbers that float64 holds: to nearest, ties to even."""
    form = FORMATS[name]
    x = x.astype(np.float64)
    size, middle = np.abs(x), midpoints(name)
    below = np.searchsorted(middle, size, "left")
    tie = (middle[np.minimum(below, middle.size - 1)] == size) & (below < middle.size)
    codes = below + (tie & (below % 2 == 1))
    codes = np.where(codes <= form.largest, codes, form.largest if saturate and name in SATURATING else form.beyond)
    sign = 1 << form.bits - 1
    minus = np.where(codes == 0, form.minus_zero, codes | sign)
    codes = np.where(np.signbit(x), minus, codes)
    codes = np.where(np.isnan(x), np.where(np.signbit(x), form.minus_nan, form.nan), codes)
    return codes.astype(np.uint8 if form.bits <= 8 else np.uint16)


def decode(name: str, code: int) -> float:
    """The number of a code, a float64."""
    if name == "float8e8m0":
        return math.nan if code == 255 else math.ldexp(1.0, code - 127)
    form = FORMATS[name]
    size = code & ((1 << form.bits - 1) - 1)
    if (code in (form.nan, form.minus_nan) and form.bits >= 8) or size > form.beyond:
        return math.nan
    if form.beyond == size and form.bits >= 8:
        return math.copysign(math.inf, -1.0 if code != size else 1.0) if name != "float8e4m3fn" else math.nan
    return float(magnitude(name, size)) * (-1.0 if code != size else 1.0)


def encode_scale(number: Fraction | float, round_mode: str, saturate: bool) -> int:
    """The float8e8m0 code of one number."""
    low, high = Fraction(2) ** -127, Fraction(2) ** 127
    if number != number:
        return 255
    if number == math.inf or number > high:
        return 254 if saturate else 255
    if number < low:
        return 0 if saturate else 255
    number = Fraction(number)
    code = next(code for code in range(254, -1, -1) if Fraction(2) ** (code - 127) <= number)
    value = Fraction(2) ** (code - 127)
    rest = number - value
    return code + {"up": rest > 0, "down": False, "nearest": rest >= value / 2}[round_mode]


def encode_scales(x: np.ndarray, round_mode: str, saturate: bool) -> np.ndarray:
    """The float8e8m0 codes of float64 numbers."""
    powers = 2.0 ** np.arange(-127, 128)
    codes = {
        "up": np.searchsorted(powers, x, "left"),
        "down": np.searchsorted(powers, x, "right") - 1,
        "nearest": np.searchsorted((powers[:-1] + powers[1:]) / 2, x, "right"),
    }[round_mode]
    codes = np.where(x < powers[0], 0 if saturate else 255, codes)
    codes = np.where(x > powers[-1], 254 if saturate else 255, codes)
    return np.where(np.isnan(x), 255, codes).astype(np.uint8)


def truncated(number: float, bits: int) -> int:
    """The integer part in ``bits`` bits of two's complement; 0 of what is no number."""
    return math.trunc(Fraction(number)) & ((1 << bits) - 1) if math.isfinite(number) else 0


def rounded(number: float, bits: int) -> int:
    """The nearest integer, ties to even, in ``bits`` bits of two's complement; 0 of what is no number."""
    return round(Fraction(number)) & ((1 << bits) - 1) if math.isfinite(number) else 0
