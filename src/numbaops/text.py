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
_BELOW = np.uint64((1 << 27) - 1)
"""The digits of a double that no halfway point between two float32 numbers has."""
_SHORT = 300
"""Digits of an integer that Python reads and a double holds."""
_FAR = 10**15
"""Exponents beyond, which Decimal lacks, are as good as this one."""


def texts_of(x: npt.NDArray[Any], kind: ElementType) -> list[str]:
    """Each number as text: the fewest digits that read as the same number of its type (types without digits of their own: of float32)."""
    if kind.kind == "bool":
        return list(map(str, (x.view(np.uint8) != 0).view(np.uint8).tolist()))
    if kind.kind != "float":
        return list(map(str, x.astype(np.int8).tolist() if kind.packed else x.tolist()))
    if kind.dtype.isbuiltin != 1:
        x = x.astype(np.float32)
    # NumPy writes what is large, small or not finite otherwise
    return [text if "e" not in text and "n" not in text else _text(x[position]) for position, text in enumerate(x.astype(str).tolist())]


def _text(value: Any) -> str:
    if np.isfinite(value):
        return np.format_float_positional(value, trim="0")
    return "NaN" if np.isnan(value) else "INF" if value > 0 else "-INF"


def doubles_in(texts: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The doubles nearest to the numbers that texts mean."""
    special = _SPECIAL.get
    plain = _NUMBER.fullmatch
    return np.array(
        [float(text) if plain(text) else special(text.lower()) or _refused(text, at) for at, text in enumerate(texts.tolist())], np.float64
    )


def number_in(text: str, position: int) -> int | float | Decimal:
    """The exact number that a text means; infinities and NaN as a float."""
    if text.isascii() and text.isdigit() and len(text) <= _SHORT:
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return _SPECIAL.get(text.lower()) or _refused(text, position)
    if (exponent := match[1]) is not None and len(exponent) > len(str(_FAR)):
        digits = exponent.lstrip("+-").lstrip("0")
        power = int(digits or "0") if len(digits) < len(str(_FAR)) else _FAR
        return Decimal(f"{text[: match.start(1)]}{'-' if exponent[0] == '-' else ''}{power}")
    return Decimal(text)


def _refused(text: str, position: int) -> float:
    allowed = "decimal literals, INF, +INF, -INF and NaN"
    raise InvalidValueError(f"{text!r} at position {position} is no number; allowed: {allowed}", attribute="x")


def whole_part(number: float | Decimal) -> int:
    """The integer part, or one with the same low 64 bits; 0 of infinities and NaN."""
    if isinstance(number, int):
        return number
    if isinstance(number, float) or number.adjusted() < 0:
        return 0
    exponent = number.as_tuple().exponent
    return 0 if isinstance(exponent, int) and exponent >= 64 else int(number)  # 10**64 is a multiple of 2**64


def rounded_to_odd(near: npt.NDArray[np.float64], texts: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The numbers that texts mean such that one rounding to a type of at most 25 digits may follow: those rounded to odd that may be
    halfway between two numbers of it.

    Args:
        near: the doubles nearest to them.
        texts: the texts.
    """
    odd = near.copy()
    halfway = (near.view(np.uint64) & _BELOW == 0) & np.isfinite(near)
    for position in np.flatnonzero(halfway).tolist():
        odd[position] = _rounded_to_odd(near[position].item(), number_in(texts[position], position))
    return odd


def _rounded_to_odd(near: float, number: float | Decimal) -> float:
    exact, wanted = Decimal(near), Decimal(number)
    if exact == wanted:
        return near
    if exact.copy_abs() > wanted.copy_abs():
        near = math.nextafter(near, 0.0)
    return near if np.float64(near).view(np.uint64) & np.uint64(1) else math.nextafter(near, math.copysign(math.inf, near))
