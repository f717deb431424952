"""What Constant, ConstantOfShape and EyeLike must give, from the text of the specification, and nothing of numbaops.

Everything here works on *codes*: the bit pattern of one element as a Python integer (complex numbers: the real part in
the low half). It is slow on purpose: plain loops over plain integers, so that it is easy to check by eye.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
from onnx import SparseTensorProto, TensorProto

_ONNX = tuple(int(number) for number in onnx.__version__.split(".")[:2])


class Type(NamedTuple):
    """One ONNX element type; ``one`` is the code of the value 1 and ``field`` the typed field of its TensorProto."""

    name: str
    code: int
    bits: int
    dtype: Any
    one: int
    field: str


# fmt: off
TYPES: dict[str, Type] = {row.name: row for row in (
    #    name             number bits dtype                    one                    typed field
    Type("float",            1,  32, np.float32,                0x3F800000,            "float_data"),
    Type("uint8",            2,   8, np.uint8,                  1,                     "int32_data"),
    Type("int8",             3,   8, np.int8,                   1,                     "int32_data"),
    Type("uint16",           4,  16, np.uint16,                 1,                     "int32_data"),
    Type("int16",            5,  16, np.int16,                  1,                     "int32_data"),
    Type("int32",            6,  32, np.int32,                  1,                     "int32_data"),
    Type("int64",            7,  64, np.int64,                  1,                     "int64_data"),
    Type("string",           8,   0, np.object_,                0,                     "string_data"),
    Type("bool",             9,   8, np.bool_,                  1,                     "int32_data"),
    Type("float16",         10,  16, np.float16,                0x3C00,                "int32_data"),
    Type("double",          11,  64, np.float64,                0x3FF0000000000000,    "double_data"),
    Type("uint32",          12,  32, np.uint32,                 1,                     "uint64_data"),
    Type("uint64",          13,  64, np.uint64,                 1,                     "uint64_data"),
    Type("complex64",       14,  64, np.complex64,              0x3F800000,            "float_data"),
    Type("complex128",      15, 128, np.complex128,             0x3FF0000000000000,    "double_data"),
    Type("bfloat16",        16,  16, ml_dtypes.bfloat16,        0x3F80,                "int32_data"),
    Type("float8e4m3fn",    17,   8, ml_dtypes.float8_e4m3fn,   0x38,                  "int32_data"),
    Type("float8e4m3fnuz",  18,   8, ml_dtypes.float8_e4m3fnuz, 0x40,                  "int32_data"),
    Type("float8e5m2",      19,   8, ml_dtypes.float8_e5m2,     0x3C,                  "int32_data"),
    Type("float8e5m2fnuz",  20,   8, ml_dtypes.float8_e5m2fnuz, 0x40,                  "int32_data"),
    Type("uint4",           21,   4, ml_dtypes.uint4,           1,                     "int32_data"),
    Type("int4",            22,   4, ml_dtypes.int4,            1,                     "int32_data"),
    Type("float4e2m1",      23,   4, ml_dtypes.float4_e2m1fn,   0x2,                   "int32_data"),
    Type("float8e8m0",      24,   8, ml_dtypes.float8_e8m0fnu,  0x7F,                  "int32_data"),
    Type("uint2",           25,   2, ml_dtypes.uint2,           1,                     "int32_data"),
    Type("int2",            26,   2, ml_dtypes.int2,            1,                     "int32_data"),
    Type("float6e2m3",      27,   6, ml_dtypes.float6_e2m3fn,   0x08,                  "int32_data"),
    Type("float6e3m2",      28,   6, ml_dtypes.float6_e3m2fn,   0x0C,                  "int32_data"),
)}
# fmt: on

CODE_OF_DTYPE = {np.dtype(row.dtype): row.code for row in TYPES.values()}

_NUMBERS = ("float16", "float", "double", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
_CONSTANT_9 = (*_NUMBERS, "string", "complex64", "complex128")
_FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")

# The output types of every version, as the pages under https://onnx.ai/onnx/operators/ list them.
CONSTANT_TYPES: dict[int, tuple[str, ...]] = {
    1: ("float16", "float", "double"),
    9: _CONSTANT_9,
    11: _CONSTANT_9,
    12: _CONSTANT_9,
    13: (*_CONSTANT_9, "bfloat16"),
    19: (*_CONSTANT_9, "bfloat16", *_FLOAT8),
    21: (*_CONSTANT_9, "bfloat16", *_FLOAT8, "int4", "uint4"),
    23: (*_CONSTANT_9, "bfloat16", *_FLOAT8, "int4", "uint4", "float4e2m1"),
    24: (*_CONSTANT_9, "bfloat16", *_FLOAT8, "int4", "uint4", "float4e2m1", "float8e8m0"),
    25: (*_CONSTANT_9, "bfloat16", *_FLOAT8, "int4", "uint4", "float4e2m1", "float8e8m0", "int2", "uint2"),
}
CONSTANT_OF_SHAPE_TYPES: dict[int, tuple[str, ...]] = {
    9: _NUMBERS,
    20: (*_NUMBERS, "bfloat16", *_FLOAT8),
    21: (*_NUMBERS, "bfloat16", *_FLOAT8, "int4", "uint4"),
    23: (*_NUMBERS, "bfloat16", *_FLOAT8, "int4", "uint4", "float4e2m1"),
    24: (*_NUMBERS, "bfloat16", *_FLOAT8, "int4", "uint4", "float4e2m1", "float8e8m0"),
    25: (*_NUMBERS, "bfloat16", *_FLOAT8, "int4", "uint4", "float4e2m1", "float8e8m0", "int2", "uint2"),
}
EYE_LIKE_TYPES: dict[int, tuple[str, ...]] = {9: _NUMBERS, 22: (*_NUMBERS, "bfloat16")}


# Codes and arrays


def _item_bytes(name: str) -> int:
    return max(TYPES[name].bits, 8) // 8


def onnx_has(name: str) -> bool:
    """Whether the installed onnx knows the type and gives it the dtype that it has had since onnx 1.19."""
    return TYPES[name].code in TensorProto.DataType.values() and (TYPES[name].code < 16 or _ONNX >= (1, 19))


def array(name: str, shape: Sequence[int], codes: Iterable[Any]) -> np.ndarray:
    """An array of the type with these codes, one a storage byte or more; strings are given as themselves."""
    row = TYPES[name]
    if name == "string":
        result = np.empty(shape, np.object_)
        result.reshape(-1)[:] = list(codes)
        return result
    payload = bytearray(b"".join(code.to_bytes(_item_bytes(name), "little") for code in codes))
    return np.frombuffer(payload, np.dtype(row.dtype)).reshape(shape)


def codes_of(values: np.ndarray, name: str) -> list[Any]:
    """The codes of an array in row-major order."""
    if name == "string":
        return list(values.reshape(-1))
    step, mask = _item_bytes(name), (1 << TYPES[name].bits) - 1
    payload = values.tobytes("C")
    return [int.from_bytes(payload[i : i + step], "little") & mask for i in range(0, len(payload), step)]


def assert_same(got: Any, want: np.ndarray) -> None:
    """Same kind of object, dtype, shape and bits; text that says where not."""
    assert type(got) is np.ndarray, type(got)
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert got.flags.c_contiguous and got.flags.writeable and got.flags.aligned, got.flags
    if want.dtype == np.object_:
        assert [type(item) for item in got.reshape(-1)] == [str] * want.size
        assert got.tolist() == want.tolist()
    elif got.tobytes() != want.tobytes():
        mine, right = (np.frombuffer(a.tobytes(), np.uint8).reshape(-1, a.itemsize) for a in (got, want))
        first = int((mine != right).any(axis=1).argmax())
        raise AssertionError(f"element {first} of {got.size} is {mine[first].tobytes().hex()}, not {right[first].tobytes().hex()}")


# Payloads


def pack(codes: Sequence[int], bits: int) -> bytes:
    """Codes of ``bits`` bits one after the other from the low bit up, the last byte filled up with zeros."""
    stream = 0
    for position, code in enumerate(codes):
        stream |= (code & ((1 << bits) - 1)) << (position * bits)
    return stream.to_bytes((len(codes) * bits + 7) // 8, "little")


def unpack(payload: bytes, bits: int, count: int) -> list[int]:
    """The first ``count`` codes of a packed payload."""
    stream = int.from_bytes(payload, "little")
    return [(stream >> (position * bits)) & ((1 << bits) - 1) for position in range(count)]


def raw_proto(name: str, dims: Sequence[int], codes: Sequence[int]) -> TensorProto:
    """A TensorProto that holds the codes in ``raw_data``."""
    bits = TYPES[name].bits
    return TensorProto(name="t", data_type=TYPES[name].code, dims=list(dims), raw_data=pack(codes, bits))


def typed_proto(name: str, dims: Sequence[int], codes: Sequence[Any]) -> TensorProto:
    """A TensorProto that holds the codes in the typed field of their type."""
    row = TYPES[name]
    proto = TensorProto(name="t", data_type=row.code, dims=list(dims))
    field = getattr(proto, row.field)
    if name == "string":
        field.extend(text.encode() for text in codes)
    elif row.field in ("float_data", "double_data"):
        field.extend(np.frombuffer(pack(codes, row.bits), np.float32 if row.field == "float_data" else np.float64))
    elif row.bits < 8 and row.bits != 6:  # an entry of int32_data is a byte of two or four elements; of float6, one element
        field.extend(pack(codes, row.bits))
    elif np.dtype(row.dtype).kind == "i":
        field.extend(code - (1 << row.bits) if code >> (row.bits - 1) else code for code in codes)
    else:
        field.extend(codes)
    return proto


def sparse_proto(name: str, dims: Sequence[int], values: Sequence[Any], indices: Sequence[Any], rank: int) -> SparseTensorProto:
    """A SparseTensorProto; ``indices`` are linear for rank 1, coordinate tuples for rank 2."""
    sparse = SparseTensorProto(dims=list(dims))
    sparse.values.CopyFrom(typed_proto(name, [len(values)], values))
    index_dims = [len(indices)] if rank == 1 else [len(indices), len(dims)]
    flat = list(indices) if rank == 1 else [i for row in indices for i in row]
    sparse.indices.CopyFrom(TensorProto(data_type=TensorProto.INT64, dims=index_dims, int64_data=flat))
    return sparse


# The operators


def constant(name: str, dims: Sequence[int], codes: Sequence[Any]) -> np.ndarray:
    """Constant with ``value``: the tensor itself; a bool element is true or false, whatever its byte."""
    return array(name, dims, [min(code, 1) for code in codes] if name == "bool" else codes)


def constant_sparse(name: str, dims: Sequence[int], values: Sequence[Any], indices: Sequence[Any]) -> np.ndarray:
    """Constant with ``sparse_value``: the dense tensor, zero (or the empty string) where nothing is given."""
    cells: list[Any] = ["" if name == "string" else 0] * math.prod(dims)
    for value, index in zip(values, indices, strict=True):
        if isinstance(index, int):
            place = index
        else:
            place = 0
            for coordinate, dim in zip(index, dims, strict=True):
                place = place * dim + coordinate
        cells[place] = value
    return array(name, dims, cells)


def constant_value(attribute: str, value: Any) -> np.ndarray:
    """Constant with one of the ``value_*`` attributes: float32, int64 or strings; a scalar or one dimension."""
    kinds = {"float": np.float32, "int": np.int64, "string": np.object_}
    dtype = kinds[attribute.removeprefix("value_").removesuffix("s")]
    if not attribute.endswith("s"):
        return np.array(value, dtype)
    result = np.empty(len(value), dtype)
    result[:] = value
    return result


def constant_of_shape(shape: Sequence[int], name: str = "float", code: int = 0) -> np.ndarray:
    """ConstantOfShape: the one element of ``value`` everywhere; float32 zero without it."""
    return array(name, shape, [min(code, 1) if name == "bool" else code] * math.prod(shape))


def eye_like(shape: Sequence[int], name: str, k: int = 0) -> np.ndarray:
    """EyeLike: one where column minus row is ``k``, zero elsewhere."""
    rows, columns = shape
    one = TYPES[name].one
    return array(name, shape, [one if column - row == k else 0 for row in range(rows) for column in range(columns)])
