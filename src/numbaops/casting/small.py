"""Conversions of small arrays, where a call costs more than the elements: by NumPy and ml_dtypes, without loading Numba.

``astype`` serves where it gives the same; where it does only within the target's range, what is beyond is mended afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from numbaops.casting.steps import BFLOAT16, BOOL, QUIET, SCALE, STRICT, WORDS, Array, builtin
from numbaops.dtypes import ElementType

Small = Callable[[Array], Array]
"""Converts a plain array of any layout and byte order to a new one."""

_CODES = np.arange(256, dtype=np.uint8)


def delegates(source: ElementType, target: ElementType, saturate: bool) -> bool:
    """Whether ``astype`` gives the same, bit for bit and without a warning; the source has more than 8 bits or is NumPy's own."""
    if source is target:
        return True
    if target is BOOL or builtin(target):
        if source.kind == "float":  # NumPy warns of overflow to a narrower float, ml_dtypes of NaN that becomes a bool
            return target.bits > source.bits if target.kind == "float" else target is BOOL and builtin(source)
        return target.kind != "float" or target.bits >= 32
    if target.kind != "float" or target is SCALE:
        return False
    if target is BFLOAT16 or source.bits == 64:  # where float32 lies between, which is exact or far beyond what the target has
        exact = source.bits <= 16 or source.dtype == np.float32
        return exact if target is BFLOAT16 else source.kind != "float" and not (saturate and target.bits == 8)
    return not (saturate and target.bits == 8)  # ml_dtypes never saturates its float8 types


def same_codes(source: ElementType, target: ElementType, table: Array) -> bytes:
    """Those codes of a source of at most 8 bits of which ``astype`` gives what the table has, without a warning."""

    def same(codes: Array) -> bool:
        try:
            with np.errstate(all="raise"):
                return codes.view(source.dtype).astype(target.dtype).tobytes() == table[codes].tobytes()
        except (FloatingPointError, TypeError):  # it would warn, or there is no such conversion
            return False

    return _CODES.tobytes() if same(_CODES) else bytes(code for code in range(256) if same(_CODES[code : code + 1]))


def looked_up(table: Array, target: ElementType, same: bytes = b"") -> Small:
    """The conversion of a source of at most 8 bits by a table of its 256 codes; ``same`` are those of which ``astype`` gives the same."""
    dtype = target.dtype
    if table.itemsize == 1:
        codes = table.tobytes()
        return lambda x: np.ndarray(x.shape, dtype, bytearray(x.tobytes().translate(codes)))  # half the time of NumPy's indexing

    numbers = table.view(dtype)

    def convert(x: Array) -> Array:
        if same and not x.tobytes().translate(None, same):
            return x.astype(dtype, "C")
        return numbers.take(x.view(np.uint8))

    return convert


def conversion(source: ElementType, target: ElementType, saturate: bool) -> Small | None:
    """The conversion of a source of more than 8 bits that cannot be delegated; None where a kernel is the cheapest."""
    dtype = target.dtype
    if target.kind in ("signed", "unsigned"):
        if source.kind != "float":
            low = looked_up(_CODES & ((1 << target.bits) - 1), target)
            return lambda x: low(x.astype(np.uint8))
        return _truncation(source, target) if target.bits >= 8 else None
    if builtin(target):
        return lambda x: QUIET.copy().run(x.astype, dtype, "C")
    saturates = saturate and target.bits == 8 and target is not SCALE
    return _saturation(target) if saturates and delegates(source, target, saturate=False) else None


def by_float32(source: ElementType, from_float32: Small, otherwise: Small) -> Small:
    """The conversion of integers that float32 holds, as most do."""

    def convert(x: Array) -> Array:
        near = x.astype(np.float32, "C")
        try:
            exact = source.bits <= 16 or STRICT.copy().run(near.astype, source.dtype).tobytes() == x.tobytes()
        except FloatingPointError:  # it rounded up to beyond
            exact = False
        return from_float32(near) if exact else otherwise(x)

    return convert


def _saturation(target: ElementType) -> Small:
    """``astype``, and again from numbers within the range if a code shows that one may have been beyond."""
    dtype = target.dtype
    numbers = _CODES.view(dtype).astype(np.float32)
    largest = numbers[np.isfinite(numbers)].max()
    plus, minus = np.array([math.inf, -math.inf], np.float32).astype(dtype).tobytes()

    def within(x: Array) -> Array:
        near = x.astype(np.float32, "C")
        return near.clip(-largest, largest, out=near).astype(dtype)

    def convert(x: Array) -> Array:
        result = QUIET.copy().run(x.astype, dtype, "C")
        codes = result.tobytes()
        if plus in codes or minus in codes:
            return QUIET.copy().run(within, x)
        return result

    return convert


def _truncation(source: ElementType, target: ElementType) -> Small:
    """The processor's own conversion, unless it finds a number beyond the integers that it converts to, of which it has no low bits."""
    dtype = target.dtype
    # Narrower integers would be as fast, but what comes of numbers beyond them depends on how NumPy was compiled.
    whole = np.dtype(np.int64 if target.bits == 64 or target.dtype == np.uint32 else np.int32)

    def convert(x: Array) -> Array:
        exact = x.astype(np.float32, "C") if source is BFLOAT16 else x
        try:
            result: Array = STRICT.copy().run(exact.astype, whole, "C")
        except FloatingPointError:
            numbers = QUIET.copy().run(exact.astype, np.float64).reshape(-1).tolist()
            return low_bits((int(number) if math.isfinite(number) else 0 for number in numbers), target).reshape(x.shape)
        return result if whole == dtype else result.astype(dtype)

    return convert


def low_bits(numbers: Iterable[int], target: ElementType) -> Array:
    """The low bits of integers of any size, a 1-D array of an integer type."""
    mask = (1 << target.bits) - 1
    return np.array([number & mask for number in numbers], WORDS[target.dtype.itemsize]).view(target.dtype)
