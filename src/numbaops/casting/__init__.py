"""Conversion between element types, as the text of ONNX's Cast has it.

What the text leaves open, here: a float becomes an integer of at least 8 bits by truncation, of which the low bits are kept as when
an integer becomes a narrower one; infinities and NaN become 0. To 4 and 2 bits it rounds to even first. In formats without
NaN, +NaN becomes minus zero and -NaN zero. From float64, 64-bit integers and strings there is one rounding, the target's.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from numbaops.casting.plan import Plan, plan_of
from numbaops.casting.small import Small
from numbaops.casting.steps import Array, prepare
from numbaops.convert import PackedTensor, refuse_mask
from numbaops.dtypes import ElementType, of_dtype
from numbaops.dtypes import element_type as _element_type
from numbaops.errors import InvalidTypeError, InvalidValueError

__all__ = ["ROUND_MODES", "cast", "prepare"]

ROUND_MODES = ("up", "down", "nearest")

_ndarray = np.ndarray
_small: dict[Any, dict[type, tuple[int, np.dtype[Any] | None, Small]]] = {}
"""By target, as it was given, and the source's scalar type: the elements below which an array is small, the dtype to delegate to or
None, and the conversion. Half a microsecond less than the whole way, which takes longer than the conversion. Dtypes would be
slow keys: those of ml_dtypes with one size have one hash."""


def cast(
    x: npt.ArrayLike | PackedTensor,
    to: Any,
    *,
    saturate: bool = True,
    round_mode: str = "up",
    out: Array | None = None,
    packed: bool = False,
) -> Array | PackedTensor:
    """``x`` with its elements converted to another type, as ONNX's Cast does.

    Args:
        x: an array of any layout and byte order, a NumPy scalar, or packed elements.
        to: the element type to convert to; whatever :func:`~numbaops.element_type` takes.
        saturate: whether values beyond a float8 type's range become its largest finite value; otherwise its infinity, or NaN.
        round_mode: how float8e8m0 rounds: ``"up"``, ``"down"`` or ``"nearest"``, which rounds ties up.
        out: a C-contiguous array of the result's dtype and shape to write into; of the result's bytes when ``packed``.
        packed: whether to return the bytes of ``raw_data``; types below 8 bits then share bytes.

    Returns:
        A new array, or ``out``; a :class:`PackedTensor` when ``packed``.

    Raises:
        InvalidTypeError: an argument is of the wrong kind, or one type is complex or string and the other has no conversion to it.
        InvalidValueError: a text is no number, ``round_mode`` is unknown, or ``out`` does not fit.
    """
    if type(x) is _ndarray and out is None and saturate is True and not packed and round_mode == "up":
        try:
            below, dtype, convert = _small[to][x.dtype.type]
        except (KeyError, TypeError):  # ``to`` may be what cannot be hashed
            pass
        else:
            if x.size < below:
                return x.astype(dtype, "C") if dtype is not None else convert(x)
    if isinstance(x, PackedTensor):
        plan = _plan(x.element_type.dtype, to, saturate, round_mode)
        return plan.repack(x, out) if packed else plan.unpack(x, out)
    if not isinstance(x, (np.ndarray, np.generic)):
        raise InvalidTypeError(f"x is a {type(x).__name__}; allowed: numpy.ndarray, NumPy scalars and PackedTensor", attribute="x")
    refuse_mask(x, "x")
    array = np.asarray(x)
    plan = _plan(array.dtype, to, saturate, round_mode)
    if plan.saturate and plan.round_mode == "up" and isinstance(to, (str, ElementType, np.dtype, type)):  # not 1, which equals True
        _remember(plan, array.dtype.type, to)
    return plan.pack(array, out) if packed else plan.array(array, out)


def _remember(plan: Plan, scalar: type, to: Any) -> None:
    if not plan.text and len(_small) < 256:
        _small.setdefault(to, {})[scalar] = (plan.small_below, plan.target.dtype if plan.delegates and not plan.quiet else None, plan.small)


def _plan(dtype: np.dtype[Any], to: Any, saturate: bool, round_mode: str) -> Plan:
    try:
        return _cached_plan(dtype, to, saturate, round_mode)
    except TypeError as error:
        if isinstance(error, InvalidTypeError):
            raise
    return _cached_plan(dtype, _element_type(to), _checked(saturate), _checked_mode(round_mode))  # something cannot be hashed


@functools.lru_cache(maxsize=1024, typed=True)
def _cached_plan(dtype: np.dtype[Any], to: Any, saturate: bool, round_mode: str) -> Plan:
    return plan_of(of_dtype(dtype), _element_type(to), _checked(saturate), _checked_mode(round_mode))


def _checked(saturate: Any) -> bool:
    if not isinstance(saturate, (bool, np.bool_)):
        raise InvalidTypeError(f"saturate is {saturate!r}; allowed: True and False", attribute="saturate")
    return bool(saturate)


def _checked_mode(round_mode: Any) -> str:
    if not isinstance(round_mode, str):
        raise InvalidTypeError(f"round_mode is {round_mode!r}; allowed: {', '.join(ROUND_MODES)}", attribute="round_mode")
    if round_mode not in ROUND_MODES:
        raise InvalidValueError(f"round_mode is {round_mode!r}; allowed: {', '.join(ROUND_MODES)}", attribute="round_mode")
    return round_mode
