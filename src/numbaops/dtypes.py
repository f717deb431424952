"""The table of ONNX element types, and the look-ups into it.

One row a type; everything else in the package that depends on an element type is derived from its row. The bit layouts
are those of https://onnx.ai/onnx/technical/float8.html, .../float4.html, .../int4.html and .../int2.html.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from numbaops.errors import InvalidTypeError

OCP_FP8 = "https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1"
OCP_MX = "https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf"
FNUZ = "https://arxiv.org/abs/2206.02915"
BFLOAT16 = "https://cloud.google.com/tpu/docs/bfloat16"
IEEE = "https://ieeexplore.ieee.org/document/8766229"


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """Bit layout of a floating-point type: sign (if any), exponent, mantissa, from the high bit down.

    Attributes:
        exponent_bits: width of the exponent field.
        mantissa_bits: width of the mantissa field.
        bias: exponent bias.
        infinities: whether the type has +Inf and -Inf.
        nan: ``"ieee"`` (exponent all ones, mantissa not zero), ``"all_ones"`` (all bits but the sign set),
            ``"negative_zero"`` (only the sign bit set) or ``"none"``.
        signed: whether there is a sign bit.
        zero: whether the type has a zero (float8e8m0 has none).
        negative_zero: whether the type has a zero with the sign bit set.
        source: where the format is defined.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    infinities: bool
    nan: str
    signed: bool
    zero: bool
    negative_zero: bool
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class ElementType:
    """One ONNX element type; there is one object for each, also after pickling.

    Attributes:
        name: the name in ONNX type strings, e.g. ``"float"`` or ``"float8e4m3fn"``.
        code: the number in ``TensorProto.DataType``.
        bits: storage width of one element; 0 for strings.
        dtype: the NumPy dtype of arrays of this type; sub-byte types take one byte an element in arrays.
        kind: ``"float"``, ``"signed"``, ``"unsigned"``, ``"bool"``, ``"complex"`` or ``"string"``.
        format: the layout of a float type, else None.
    """

    name: str
    code: int
    bits: int
    dtype: np.dtype[Any]
    kind: str
    format: FloatFormat | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def packed(self) -> bool:
        """Whether ``raw_data`` holds several elements in a byte (storage width below 8)."""
        return 0 < self.bits < 8

    def packed_size(self, count: int) -> int:
        """Bytes that ``count`` elements take in ``raw_data``; ``count`` may be any non-negative Python int."""
        return (count * self.bits + 7) // 8

    def __reduce__(self) -> tuple[Any, ...]:
        return element_type, (self.name,)


def _row(name: str, code: int, bits: int, dtype: Any, kind: str, *layout: Any) -> ElementType:
    return ElementType(name, code, bits, np.dtype(dtype), kind, FloatFormat(*layout) if layout else None)


# fmt: off
ELEMENT_TYPES: tuple[ElementType, ...] = (
    #    name             code bits dtype                       kind   exp man bias  inf    nan              sign   zero   -0     source
    _row("float",            1, 32, np.float32,                "float",8, 23,  127, True,  "ieee",          True,  True,  True,  IEEE),
    _row("uint8",            2,  8, np.uint8,                  "unsigned"),
    _row("int8",             3,  8, np.int8,                   "signed"),
    _row("uint16",           4, 16, np.uint16,                 "unsigned"),
    _row("int16",            5, 16, np.int16,                  "signed"),
    _row("int32",            6, 32, np.int32,                  "signed"),
    _row("int64",            7, 64, np.int64,                  "signed"),
    _row("string",           8,  0, np.object_,                "string"),
    _row("bool",             9,  8, np.bool_,                  "bool"),
    _row("float16",         10, 16, np.float16,                "float",5, 10,   15, True,  "ieee",          True,  True,  True,  IEEE),
    _row("double",          11, 64, np.float64,                "float",    11, 52, 1023, True,  "ieee",          True,  True,  True,  IEEE),
    _row("uint32",          12, 32, np.uint32,                 "unsigned"),
    _row("uint64",          13, 64, np.uint64,                 "unsigned"),
    _row("complex64",       14, 64, np.complex64,              "complex"),
    _row("complex128",      15, 128, np.complex128,            "complex"),
    _row("bfloat16",        16, 16, ml_dtypes.bfloat16,        "float",8,  7,  127, True,  "ieee",          True,  True,  True,  BFLOAT16),
    _row("float8e4m3fn",    17,  8, ml_dtypes.float8_e4m3fn,   "float",4,  3,    7, False, "all_ones",      True,  True,  True,  OCP_FP8),
    _row("float8e4m3fnuz",  18,  8, ml_dtypes.float8_e4m3fnuz, "float",4,  3,    8, False, "negative_zero", True,  True,  False, FNUZ),
    _row("float8e5m2",      19,  8, ml_dtypes.float8_e5m2,     "float",5,  2,   15, True,  "ieee",          True,  True,  True,  OCP_FP8),
    _row("float8e5m2fnuz",  20,  8, ml_dtypes.float8_e5m2fnuz, "float",5,  2,   16, False, "negative_zero", True,  True,  False, FNUZ),
    _row("uint4",           21,  4, ml_dtypes.uint4,           "unsigned"),
    _row("int4",            22,  4, ml_dtypes.int4,            "signed"),
    _row("float4e2m1",      23,  4, ml_dtypes.float4_e2m1fn,   "float",2,  1,    1, False, "none",          True,  True,  True,  OCP_MX),
    _row("float8e8m0",      24,  8, ml_dtypes.float8_e8m0fnu,  "float",8,  0,  127, False, "all_ones",      False, False, False, OCP_MX),
    _row("uint2",           25,  2, ml_dtypes.uint2,           "unsigned"),
    _row("int2",            26,  2, ml_dtypes.int2,            "signed"),
    _row("float6e2m3",      27,  6, ml_dtypes.float6_e2m3fn,   "float",2,  3,    1, False, "none",          True,  True,  True,  OCP_MX),
    _row("float6e3m2",      28,  6, ml_dtypes.float6_e3m2fn,   "float",3,  2,    3, False, "none",          True,  True,  True,  OCP_MX),
)
# fmt: on

BY_CODE: Mapping[int, ElementType] = MappingProxyType({row.code: row for row in ELEMENT_TYPES})
BY_NAME: Mapping[str, ElementType] = MappingProxyType({row.name: row for row in ELEMENT_TYPES})
BY_DTYPE: Mapping[np.dtype[Any], ElementType] = MappingProxyType({row.dtype: row for row in ELEMENT_TYPES})
# Most dtypes of ml_dtypes have one hash: a look-up by dtype takes up to 0.8 us, by scalar type 0.06.
_BY_SCALAR_TYPE = {row.dtype.type: row for row in ELEMENT_TYPES}
# "float32" and "float8_e4m3fn" beside ONNX's "float" and "float8e4m3fn"
_BY_DTYPE_NAME = {row.dtype.name: row for row in ELEMENT_TYPES if row.kind != "string"}


def element_type(key: Any) -> ElementType:
    """The element type that ``key`` names.

    Args:
        key: an :class:`ElementType`; an ONNX name in any case (``"FLOAT8E4M3FN"``, ``"tensor(float)"``) or the name of
            a NumPy or ml_dtypes dtype; a ``TensorProto.DataType`` number; a dtype or a scalar type.

    Raises:
        InvalidTypeError: no element type has that name, number or dtype.
    """
    if isinstance(key, ElementType):
        return key
    if isinstance(key, str):
        return _by_name(key)
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if (row := BY_CODE.get(int(key))) is not None:
            return row
        raise InvalidTypeError(f"no ONNX element type has the number {key}; TensorProto.DataType has 1 to {max(BY_CODE)}")
    if key is not None and not isinstance(key, (bool, bytes)):
        try:
            return of_dtype(np.dtype(key))
        except TypeError:  # np.dtype's own, or ours from of_dtype: one message for both
            pass
    raise InvalidTypeError(f"{key!r} is no ONNX element type; allowed: {', '.join(BY_NAME)}")


@functools.lru_cache(maxsize=256)
def _by_name(name: str) -> ElementType:
    plain = name.strip().lower().removeprefix("tensor(").removesuffix(")")
    row = BY_NAME.get(plain) or _BY_DTYPE_NAME.get(plain)
    if row is None:
        raise InvalidTypeError(f"{name!r} is no ONNX element type; allowed: {', '.join(BY_NAME)}")
    return row


def of_dtype(dtype: np.dtype[Any]) -> ElementType:
    """The element type of arrays of ``dtype``; every string dtype is ``string``, every byte order is the native one's.

    Raises:
        InvalidTypeError: ONNX has no such element type.
    """
    row = _BY_SCALAR_TYPE.get(dtype.type)
    if row is not None and dtype.isnative:
        return row
    row = BY_DTYPE.get(dtype)
    if row is None and dtype.kind in "SUT":
        row = BY_NAME["string"]
    if row is None and not dtype.isnative:
        row = BY_DTYPE.get(dtype.newbyteorder("="))
    if row is None:
        raise InvalidTypeError(f"NumPy dtype {dtype} is no ONNX element type; allowed: {', '.join(BY_NAME)}")
    return row
