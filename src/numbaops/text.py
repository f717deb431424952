"""Numbers as text and back, as ONNX's Cast writes and reads them: https://onnx.ai/onnx/operators/onnx__Cast.html."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from numbaops.dtypes import ElementType
from numbaops.errors import InvalidValueError

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?", re.ASCII)
_SPECIAL = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_FAR = 10**15
"""Exponents beyond, which Decimal lacks, are as good as this one."""


def texts_of(x: npt.NDArray[Any], kind: ElementType) -> list[str]:
    """Each number as text: the fewest digits that read as the same number of its type (types without digits of their own: of float32)."""
    if kind.kind != "float":
        return [str(int(value)) for value in x.tolist()]
    if kind.dtype.isbuiltin != 1:
        x = x.astype(np.float32)
    return [_text(value) for value in x]


def _text(value: Any) -> str:
    if np.isfinite(value):
        return np.format_float_positional(value, trim="0")
    return "NaN" if np.isnan(value) else "INF" if value > 0 else "-INF"


def number_in(text: str, position: int) -> float | Decimal:
    """The exact number that a text means; infinities and NaN as a float."""
    if (special := _SPECIAL.get(text.lower())) is not None:
        return special
    match = _NUMBER.fullmatch(text)
    if match is None:
        allowed = "decimal literals, INF, +INF, -INF and NaN"
        raise InvalidValueError(f"{text!r} at position {position} is no number; allowed: {allowed}", attribute="x")
    if (exponent := match[1]) is not None and len(exponent) > len(str(_FAR)):
        digits = exponent.lstrip("+-").lstrip("0")
        power = int(digits or "0") if len(digits) < len(str(_FAR)) else _FAR
        return Decimal(f"{text[: match.start(1)]}{'-' if exponent[0] == '-' else ''}{power}")
    return Decimal(text)


def whole_part(number: float | Decimal) -> int:
    """The integer part, or one with the same low 64 bits; 0 of infinities and NaN."""
    if isinstance(number, float) or number.adjusted() < 0:
        return 0
    exponent = number.as_tuple().exponent
    return 0 if isinstance(exponent, int) and exponent >= 64 else int(number)  # 10**64 is a multiple of 2**64


def rounded_to_odd(number: float | Decimal) -> float:
    """The number rounded to odd: one rounding to a narrower type may follow."""
    near = float(number)
    if isinstance(number, float) or Decimal(near) == number:
        return near
    if Decimal(near).copy_abs() > number.copy_abs():
        near = math.nextafter(near, 0.0)
    return near if np.float64(near).view(np.uint64) & np.uint64(1) else math.nextafter(near, math.copysign(math.inf, near))
