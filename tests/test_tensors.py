"""Tensors to arrays and back: literal bytes, every type through raw and typed fields, external data, sparse tensors, bad payloads."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import SparseTensorProto, TensorProto, numpy_helper

import oracle
from numbaops import tensors
from numbaops.convert import PackedTensor
from numbaops.dtypes import BY_NAME, ELEMENT_TYPES
from numbaops.errors import AllocationError, InvalidTypeError, InvalidValueError, UnsupportedError
from numbaops.tensors import dense_from_sparse, from_array, to_array
from processes import run_python

NAMES = [row.name for row in ELEMENT_TYPES]
NUMERIC = [name for name in NAMES if name != "string"]
SHAPES = [(), (0, 3), (3,), (2, 3), (1, 1, 2, 2, 2)]


def codes_for(name: str, count: int) -> list[Any]:
    """Codes that differ from each other and use every bit; a bool is 0 or 1."""
    if name == "string":
        return ["", "a\0", "ß€𝄞", "\0", "plain", " "][:count] + ["x"] * max(0, count - 6)
    if name == "bool":
        return [position % 2 for position in range(count)]
    bits = oracle.TYPES[name].bits
    return [(0x9E3779B97F4A7C15F39CC0605CEDC834 * (position + 1) >> 3) & ((1 << bits) - 1) for position in range(count)]


def tensor(name: str, dims: list[int], **fields: Any) -> TensorProto:
    return TensorProto(name="w", data_type=oracle.TYPES[name].code, dims=dims, **fields)


# Literal bytes

# fmt: off
LITERALS = [
    # type          dims    raw_data (hex)                       elements
    ("float",       [2],    "0000803f 000000c0",                 [1.0, -2.0]),
    ("double",      [],     "000000000000f0bf",                  -1.0),
    ("int16",       [2],    "0180 ff7f",                         [-32767, 32767]),
    ("uint32",      [1],    "010000ff",                          [0xFF000001]),
    ("int64",       [1],    "feffffffffffffff",                  [-2]),
    ("bool",        [4],    "00 01 02 ff",                       [False, True, True, True]),
    ("float16",     [2],    "003c 00fc",                         [1.0, -math.inf]),
    ("bfloat16",    [2],    "803f 80ff",                         [1.0, -math.inf]),
    ("complex64",   [1],    "0000803f 00000040",                 [1 + 2j]),
    ("complex128",  [1],    "000000000000f03f 0000000000000040", [1 + 2j]),
    ("float8e4m3fn", [3],   "38 7e fe",                          [1.0, 448.0, -448.0]),
    ("float8e8m0",  [2],    "7f 80",                             [1.0, 2.0]),
    ("int4",        [3],    "81 0f",                             [1, -8, -1]),
    ("uint4",       [2, 2], "10 32",                             [[0, 1], [2, 3]]),
    ("float4e2m1",  [2],    "f2",                                [1.0, -6.0]),
    ("int2",        [5],    "e4 02",                             [0, 1, -2, -1, -2]),
    ("uint2",       [4],    "1b",                                [3, 2, 1, 0]),
    # codes 8, 0x1f, 0x20, 0x28: 001000 | 011111 | 100000 | 101000, the first in the low bits of a 24-bit number
    ("float6e2m3",  [4],    "c8 07 a2",                          [1.0, 7.5, -0.0, -1.0]),
    ("float6e3m2",  [1],    "0c",                                [1.0]),
]
# fmt: on


@pytest.mark.parametrize(("name", "dims", "payload", "elements"), [pytest.param(*case, id=case[0]) for case in LITERALS])
def test_literal_raw_data(name: str, dims: list[int], payload: str, elements: Any) -> None:
    got = to_array(tensor(name, dims, raw_data=bytes.fromhex(payload)))
    wanted = np.array(elements)
    assert got.dtype == BY_NAME[name].dtype
    assert got.shape == tuple(dims)
    # by value, in a type that all of these convert to exactly
    np.testing.assert_array_equal(got.astype(np.complex128), wanted.astype(np.complex128))
    if name != "bool":
        assert from_array(got).raw_data == bytes.fromhex(payload)


# fmt: off
TYPED_LITERALS = [
    # type          dims    field          entries                elements
    ("float",       [2],    "float_data",  [1.5, -0.0],           [1.5, -0.0]),
    ("complex64",   [2],    "float_data",  [1, 2, 3, 4],          [1 + 2j, 3 + 4j]),
    ("complex128",  [1],    "double_data", [1, 2],                [1 + 2j]),
    ("double",      [],     "double_data", [0.1],                 0.1),
    ("int32",       [2],    "int32_data",  [-2**31, 2**31 - 1],   [-2**31, 2**31 - 1]),
    ("int8",        [2],    "int32_data",  [-128, 127],           [-128, 127]),
    ("uint8",       [2],    "int32_data",  [0, 255],              [0, 255]),
    ("uint16",      [1],    "int32_data",  [65535],               [65535]),
    ("int64",       [1],    "int64_data",  [-2**63],              [-2**63]),
    ("uint64",      [1],    "uint64_data", [2**64 - 1],           [2**64 - 1]),
    ("uint32",      [1],    "uint64_data", [2**32 - 1],           [2**32 - 1]),
    ("bool",        [4],    "int32_data",  [0, 1, 256, -1],       [False, True, True, True]),
    ("float16",     [2],    "int32_data",  [0x3C00, 0xC000],      [1.0, -2.0]),
    ("bfloat16",    [1],    "int32_data",  [0x3F80],              [1.0]),
    ("float8e5m2",  [1],    "int32_data",  [0xBC],                [-1.0]),
    ("int4",        [3],    "int32_data",  [0x81, 0x0F],          [1, -8, -1]),
    ("float4e2m1",  [2],    "int32_data",  [0xF2],                [1.0, -6.0]),
    ("uint2",       [5],    "int32_data",  [0x1B, 0xFD],          [3, 2, 1, 0, 1]),
    ("float6e2m3",  [3],    "int32_data",  [8, 0x1F, 0x28],       [1.0, 7.5, -1.0]),
    # the same bit patterns, written as signed integers
    ("float16",     [1],    "int32_data",  [-16384],              [-2.0]),
    ("int4",        [2],    "int32_data",  [-127],                [1, -8]),
]
# fmt: on


@pytest.mark.parametrize(
    ("name", "dims", "field", "entries", "elements"), [pytest.param(*case, id=f"{case[0]}-{case[3][0]}") for case in TYPED_LITERALS]
)
def test_literal_typed_field(name: str, dims: list[int], field: str, entries: list[Any], elements: Any) -> None:
    got = to_array(tensor(name, dims, **{field: entries}))
    assert got.dtype == BY_NAME[name].dtype
    assert got.shape == tuple(dims)
    if BY_NAME[name].kind in ("float", "complex"):
        np.testing.assert_array_equal(got.astype(np.complex128), np.array(elements, np.complex128))
    else:
        assert got.tolist() == elements


# Every type through every form


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_type_through_typed_fields(name: str, shape: tuple[int, ...]) -> None:
    codes = codes_for(name, math.prod(shape))
    oracle.assert_same(to_array(oracle.typed_proto(name, shape, codes)), oracle.array(name, shape, codes))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NUMERIC)
def test_every_type_through_raw_data_and_back(name: str, shape: tuple[int, ...]) -> None:
    codes = codes_for(name, math.prod(shape))
    proto = oracle.raw_proto(name, shape, codes)
    array = to_array(proto)
    oracle.assert_same(array, oracle.array(name, shape, codes))
    assert from_array(array, "t") == proto


@pytest.mark.parametrize("name", [name for name in NUMERIC if oracle.TYPES[name].bits <= 16 and name != "bool"])
def test_every_code_of_a_narrow_type(name: str) -> None:
    bits = oracle.TYPES[name].bits
    codes = list(range(1 << bits))
    wanted = oracle.array(name, [len(codes)], codes)
    oracle.assert_same(to_array(oracle.raw_proto(name, [len(codes)], codes)), wanted)
    oracle.assert_same(to_array(oracle.typed_proto(name, [len(codes)], codes)), wanted)
    assert from_array(wanted).raw_data == oracle.pack(codes, bits)


@pytest.mark.parametrize("name", [row.name for row in ELEMENT_TYPES if row.packed])
def test_large_packed_tensors(name: str) -> None:
    codes = codes_for(name, 5001)
    proto = oracle.raw_proto(name, [3, 1667], codes)
    array = to_array(proto)
    oracle.assert_same(array, oracle.array(name, [3, 1667], codes))
    assert from_array(array, "t") == proto


def test_every_byte_of_a_bool() -> None:
    got = to_array(tensor("bool", [256], raw_data=bytes(range(256))))
    oracle.assert_same(got, oracle.array("bool", [256], [0] + [1] * 255))
    doubtful = np.frombuffer(bytes([0, 2, 255]), np.bool_)
    assert from_array(doubtful).raw_data == bytes([0, 1, 1])


@pytest.mark.parametrize("name", NUMERIC)
def test_onnx_reads_what_from_array_writes(name: str) -> None:
    if oracle.TYPES[name].code not in TensorProto.DataType.values():
        pytest.skip(f"this onnx does not know {name}")
    array = oracle.array(name, [3, 3], codes_for(name, 9))
    other = numpy_helper.to_array(from_array(array))
    assert oracle.codes_of(np.asarray(other), name) == oracle.codes_of(array, name)


@given(name=st.sampled_from(NUMERIC), shape=st.lists(st.integers(0, 4), max_size=4), data=st.data())
def test_bit_patterns_survive_any_form(name: str, shape: list[int], data: st.DataObject) -> None:
    top = 1 if name == "bool" else (1 << oracle.TYPES[name].bits) - 1
    count = math.prod(shape)
    codes = data.draw(st.lists(st.integers(0, top), min_size=count, max_size=count))
    proto = oracle.raw_proto(name, shape, codes)
    array = to_array(proto)
    oracle.assert_same(array, oracle.array(name, shape, codes))
    assert from_array(array, "t") == proto


SIGNALLING = {  # type: (field number and wire type, a signalling NaN and a -0.0)
    "float": (b"\x22", bytes.fromhex("010080ff 00000080")),
    "complex64": (b"\x22", bytes.fromhex("010080ff 00000080 3412a07f 0100807f")),
    "double": (b"\x52", bytes.fromhex("010000000000f07f 0000000000000080")),
    "complex128": (b"\x52", bytes.fromhex("010000000000f0ff 0000000000000080 0100000000 00f07f 0000000000000080")),
}


@pytest.mark.parametrize("name", SIGNALLING)
def test_signalling_nans_survive_typed_fields(name: str) -> None:
    tag, payload = SIGNALLING[name]
    proto = tensor(name, [2])
    proto.MergeFromString(tag + bytes([len(payload)]) + payload)
    proto.MergeFromString(b"\xfa\x3f\x02hi")  # a field of a later onnx changes nothing
    assert to_array(proto).tobytes() == payload
    assert from_array(to_array(proto)).raw_data == payload


@pytest.mark.parametrize("name", ["float", "bfloat16", "complex64", "int8"])
def test_big_endian_hosts_swap(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = oracle.raw_proto(name, [3], codes_for(name, 3))
    swapped = to_array(proto).byteswap()
    monkeypatch.setattr(sys, "byteorder", "big")
    assert to_array(proto).tobytes() == swapped.tobytes()
    assert from_array(swapped, "t") == proto


# What comes back


@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_the_callers_own(name: str) -> None:
    codes = codes_for(name, 6)
    protos = [oracle.typed_proto(name, [6], codes)]
    if name != "string":
        protos.append(oracle.raw_proto(name, [6], codes))
    for proto in protos:
        before = proto.SerializeToString()
        array = to_array(proto)
        array[...] = array[1]
        assert proto.SerializeToString() == before
        oracle.assert_same(to_array(proto), oracle.array(name, [6], codes))


@pytest.mark.parametrize("ours", [True, False], ids=["new bytes", "bytes of the message"])
@pytest.mark.parametrize("more", [-1, 0, 1], ids="threshold{:+d}".format)
@pytest.mark.parametrize("name", ["uint8", "bool", "bfloat16", "float8e4m3fn", "float", "complex128", "int4", "float6e2m3"])
def test_large_arrays_are_the_callers_own(name: str, more: int, ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "BYTES_ARE_OURS", ours and tensors.BYTES_ARE_OURS)
    bits = oracle.TYPES[name].bits
    shape = (tensors.OWNED_FROM * 8 // bits + more, 1)
    proto = oracle.raw_proto(name, shape, codes_for(name, shape[0]))
    before = proto.SerializeToString()
    array = to_array(proto)
    assert array.flags.writeable and array.flags.c_contiguous and array.flags.aligned
    oracle.assert_same(array, oracle.array(name, shape, codes_for(name, shape[0])))
    again = to_array(proto)
    array.view(np.uint8)[...] = 1
    assert proto.SerializeToString() == before
    del proto
    oracle.assert_same(again, oracle.array(name, shape, codes_for(name, shape[0])))


def test_arrays_are_the_callers_own_under_protobuf_in_python() -> None:
    code = """
        import numpy as np
        from google.protobuf.internal import api_implementation
        from onnx import TensorProto
        import numbaops
        payload = np.arange(1 << 16, dtype=np.uint16).tobytes()
        proto = TensorProto(data_type=TensorProto.BFLOAT16, dims=[1 << 16], raw_data=payload)
        numbaops.to_array(proto).view(np.uint16)[...] = 7
        assert proto.raw_data == payload == np.arange(1 << 16, dtype=np.uint16).tobytes()
        print(api_implementation.Type())
    """
    assert run_python(code, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python") == "python"


def test_high_bits_of_packed_arrays_are_dropped() -> None:
    dirty = np.array([0xF1, 0x28, 0xFF], np.uint8)
    assert from_array(dirty.view(ml_dtypes.int4)).raw_data == bytes([0x81, 0x0F])
    assert from_array(dirty.view(ml_dtypes.uint2)).raw_data == bytes([0b11_00_01])
    # spare bits of the last byte may hold anything
    assert to_array(tensor("int4", [3], raw_data=bytes([0x81, 0xAF]))).tobytes() == bytes([1, 8, 15])


# from_array

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda grid: grid,
    "fortran": np.asfortranarray,
    "transposed": lambda grid: grid.T,
    "strided": lambda grid: grid[::2, 1::3],
    "reversed": lambda grid: grid[:, ::-1],
    "broadcast": lambda grid: np.broadcast_to(grid[1], (2, 6)),
    "0-d": lambda grid: grid[1:2, 2:3].reshape(()),
    "empty": lambda grid: grid[:0],
    "unaligned": lambda grid: np.frombuffer(b" " + grid.tobytes(), np.uint8)[1:].view(grid.dtype),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["float", "bool", "complex128", "bfloat16", "int4", "uint2", "float6e3m2"])
def test_from_array_takes_every_layout(layout: str, name: str) -> None:
    array = LAYOUTS[layout](oracle.array(name, [4, 6], codes_for(name, 24)))
    array.flags.writeable = False
    assert from_array(array, "t") == oracle.raw_proto(name, array.shape, oracle.codes_of(array, name))


@pytest.mark.parametrize("name", [row.name for row in ELEMENT_TYPES if row.bits > 8 and row.name != "bfloat16"])
def test_from_array_takes_both_byte_orders(name: str) -> None:
    array = oracle.array(name, [2, 3], codes_for(name, 6))
    proto = from_array(array)
    for order in "<>":
        swapped = array.astype(array.dtype.newbyteorder(order))
        assert from_array(swapped) == proto
        assert from_array(swapped[:, 1:]) == from_array(array[:, 1:])


def test_name_is_set_only_when_given() -> None:
    assert not from_array(np.zeros(2)).HasField("name")
    assert from_array(np.zeros(2), "w").name == "w"


def test_numpy_scalars_are_tensors_of_rank_0() -> None:
    assert from_array(np.float32(1)) == TensorProto(data_type=1, raw_data=bytes.fromhex("0000803f"))
    assert from_array(ml_dtypes.int4(-1)) == TensorProto(data_type=22, raw_data=b"\x0f")
    assert from_array(np.str_("a\0")) == TensorProto(data_type=8, string_data=[b"a\0"])


@pytest.mark.parametrize("name", ["int4", "uint2", "float6e2m3"])
def test_packed_tensors_keep_their_bytes(name: str) -> None:
    codes = codes_for(name, 5)
    payload = oracle.pack(codes, oracle.TYPES[name].bits)
    packed = PackedTensor(np.frombuffer(payload, np.uint8), BY_NAME[name], (5, 1))
    proto = from_array(packed, "w")
    assert proto == tensor(name, [5, 1], raw_data=payload)
    assert packed.to_proto("w") == proto
    oracle.assert_same(to_array(proto), oracle.array(name, [5, 1], codes))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param([1, 2], "NumPy array or scalar.*list", id="list"),
        pytest.param(None, "NoneType", id="none"),
        pytest.param(np.zeros(2, "M8[s]"), "datetime64", id="datetime"),
        pytest.param(np.zeros(2, np.longdouble), "longdouble|float128|float96", id="longdouble"),
        pytest.param(np.array(["a", 1], object), "int at position 1", id="object of int"),
        pytest.param(np.array([None], object), "NoneType at position 0", id="object of None"),
    ],
)
def test_from_array_refuses(value: Any, message: str) -> None:
    with pytest.raises(InvalidTypeError, match=message):
        from_array(value)


# Strings

TEXTS = ["", "a\0", "\0\0", "ß€𝄞", "two words"]


def test_strings_survive_to_the_last_nul() -> None:
    array = np.empty((1, 5), object)
    array[0, :] = TEXTS
    proto = from_array(array)
    assert list(proto.string_data) == [text.encode() for text in TEXTS]
    assert not proto.HasField("raw_data")
    oracle.assert_same(to_array(proto), array)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.array([["ab", "ß"], ["", "d"]]), id="U"),
        pytest.param(np.array([["ab", "ß"], ["", "d"]], np.dtypes.StringDType()), id="StringDType"),
        pytest.param(np.array([[b"ab", "ß".encode()], [b"", b"d"]]), id="S"),
        pytest.param(np.array([[b"ab", "ß"], ["", b"d"]], object), id="mixed objects"),
        pytest.param(np.array([["ab", ""], ["ß", "d"]]).T, id="transposed"),
    ],
)
def test_string_arrays_of_every_kind(array: Any) -> None:
    proto = from_array(array)
    assert list(proto.string_data) == [b"ab", b"\xc3\x9f", b"", b"d"]
    assert list(proto.dims) == [2, 2]


def test_a_string_of_rank_0() -> None:
    got = to_array(tensor("string", [], string_data=[b"x"]))
    assert (got.shape, got.dtype, got[()]) == ((), np.dtype(object), "x")


def test_strings_that_are_not_utf8() -> None:
    with pytest.raises(InvalidValueError, match="tensor 'w': string_data is not UTF-8 at position 1"):
        to_array(tensor("string", [2], string_data=[b"good", b"\xff"]))


# Bad payloads

# fmt: off
BAD = {
    # dims and fields of a tensor -> what the message says
    "raw too short": ("float", [2, 3], {"raw_data": bytes(23)}, "'w': raw_data has 23 bytes; float of shape .2, 3. needs 24"),
    "raw too long": ("float", [2], {"raw_data": bytes(12)}, "raw_data has 12 bytes; .* needs 8"),
    "raw too short, rank 0": ("int8", [], {"raw_data": b""}, "raw_data has 0 bytes; .* needs 1"),
    "raw beyond a zero dim": ("int8", [0, 4], {"raw_data": b"a"}, "raw_data has 1 bytes; .* needs 0"),
    "4 bits too short": ("int4", [3], {"raw_data": b"a"}, "1 bytes; int4 .* needs 2"),
    "4 bits, one byte an element": ("int4", [3], {"raw_data": b"abc"}, "3 bytes; int4 .* needs 2"),
    "2 bits too long": ("uint2", [4], {"raw_data": b"ab"}, "2 bytes; uint2 .* needs 1"),
    "6 bits, whole groups": ("float6e3m2", [5], {"raw_data": bytes(6)}, "6 bytes; float6e3m2 .* needs 4"),
    "no payload": ("float", [2], {}, "float_data has 0 entries; .* needs 2"),
    "typed too short": ("float", [3], {"float_data": [1, 2]}, "float_data has 2 entries; .* needs 3"),
    "typed too long": ("int64", [], {"int64_data": [1, 2]}, "int64_data has 2 entries; .* needs 1"),
    "half a complex": ("complex64", [1], {"float_data": [1]}, "float_data has 1 entries; .* needs 2"),
    "4-bit entries not shared": ("uint4", [2], {"int32_data": [1, 2]}, "2 entries; uint4 .* needs 1"),
    "6-bit entries shared": ("float6e2m3", [4], {"int32_data": [1, 2, 3]}, "3 entries; float6e2m3 .* needs 4"),
    "strings too few": ("string", [2], {"string_data": [b"a"]}, "string_data has 1 entries; .* needs 2"),
    "three payloads": ("float", [1], {"raw_data": b"", "int32_data": [1], "string_data": [b"a"]}, "has .* and .* and .*; only one"),
    "wrong field": ("float", [1], {"int64_data": [1]}, "in int64_data; those of float belong in float_data"),
    "wrong field for bits": ("float16", [1], {"float_data": [1]}, "in float_data; those of float16 belong in int32_data"),
    "uint32 in int32_data": ("uint32", [1], {"int32_data": [1]}, "those of uint32 belong in uint64_data"),
    "two payloads": ("float", [1], {"raw_data": bytes(4), "float_data": [1]}, "float_data and raw_data; only one"),
    "two fields": ("float", [1], {"float_data": [1], "int32_data": [1]}, "float_data and int32_data; only one"),
    "raw strings": ("string", [1], {"raw_data": b"a"}, "in raw_data; those of string belong in string_data$"),
    "uint8 too large": ("uint8", [2], {"int32_data": [1, 300]}, "int32_data has 300 at position 1; uint8 allows 0 to 255"),
    "uint8 negative": ("uint8", [1], {"int32_data": [-1]}, "has -1 at position 0"),
    "int8 too large": ("int8", [1], {"int32_data": [128]}, "int8 allows -128 to 127"),
    "float16 code too large": ("float16", [1], {"int32_data": [65536]}, "float16 allows -32768 to 65535"),
    "float6 code too large": ("float6e2m3", [1], {"int32_data": [64]}, "float6e2m3 allows 0 to 63"),
    "float6 code negative": ("float6e2m3", [1], {"int32_data": [-1]}, "float6e2m3 allows 0 to 63"),
    "4-bit pair too large": ("int4", [1], {"int32_data": [256]}, "has 256 at position 0"),
    "uint32 too large": ("uint32", [1], {"uint64_data": [2**32]}, "uint32 allows 0 to 4294967295"),
    "negative dim": ("float", [2, -1], {}, "shape is .2, -1.; dimensions must not be negative"),
    "two negative dims": ("float", [-2, -2], {"raw_data": bytes(16)}, "must not be negative"),
    "overflow": ("int8", [2**62, 2], {}, "bytes in all"),
    "overflow past 64 bits": ("int8", [2**32, 2**32], {}, "bytes in all"),
    "overflow by width": ("complex128", [2**60], {}, "bytes in all"),
    "overflow beside a zero": ("float", [0, 2**62, 2**62], {}, "bytes in all"),
    "rank": ("float", [1] * 65, {"raw_data": bytes(4)}, "at most 64 dimensions"),
}
# fmt: on


@pytest.mark.parametrize("case", BAD)
def test_bad_payload(case: str) -> None:
    name, dims, fields, message = BAD[case]
    with pytest.raises(InvalidValueError, match=message) as caught:
        to_array(tensor(name, dims, **fields))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", NUMERIC)
def test_payload_one_byte_off(name: str) -> None:
    codes = codes_for(name, 7)
    good = oracle.raw_proto(name, [7], codes).raw_data
    for payload in (good[:-1], good + b"\0", b""):
        with pytest.raises(InvalidValueError, match=f"raw_data has {len(payload)} bytes; .* needs {len(good)}"):
            to_array(tensor(name, [7], raw_data=payload))


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        pytest.param(TensorProto(dims=[1], raw_data=b"a"), "tensor: data_type is undefined", id="undefined"),
        pytest.param(TensorProto(name="w", data_type=99), "tensor 'w': data_type is the unknown number 99", id="unknown"),
        pytest.param(TensorProto(data_type=-1), "unknown number -1", id="negative"),
        pytest.param(SparseTensorProto(dims=[1]), "undefined", id="sparse without values"),
        pytest.param(onnx.AttributeProto(), "AttributeProto", id="another proto"),
        pytest.param(np.zeros(2), "ndarray", id="array"),
        pytest.param(b"bytes", "bytes", id="bytes"),
    ],
)
def test_no_tensor_or_no_type(proto: Any, message: str) -> None:
    with pytest.raises(InvalidTypeError, match=message):
        to_array(proto)


def test_segments_are_refused() -> None:
    proto = tensor("float", [1], raw_data=bytes(4))
    proto.segment.begin = 0
    with pytest.raises(UnsupportedError, match="segments"):
        to_array(proto)


# External data


def external(name: str, dims: list[int], **entries: Any) -> TensorProto:
    proto = tensor(name, dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


@pytest.mark.parametrize("name", NUMERIC)
def test_external_data_of_every_type(name: str, tmp_path: Path) -> None:
    codes = codes_for(name, 5)
    payload = oracle.pack(codes, oracle.TYPES[name].bits)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "weights").write_bytes(b"before" + payload + b"after")
    proto = external(name, [5], location="sub/weights", offset=6, length=len(payload))
    before = proto.SerializeToString()
    oracle.assert_same(to_array(proto, tmp_path), oracle.array(name, [5], codes))
    oracle.assert_same(to_array(proto, str(tmp_path)), oracle.array(name, [5], codes))
    assert proto.SerializeToString() == before


def test_external_data_without_a_folder_are_in_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights").write_bytes(bytes.fromhex("0000803f"))
    monkeypatch.chdir(tmp_path)
    assert to_array(external("float", [1], location="weights")).tolist() == [1.0]


def test_external_data_supersede_raw_data(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"\2")
    proto = external("int8", [1], location="weights")
    proto.raw_data = b"\1"
    assert to_array(proto, tmp_path).tolist() == [2]
    proto.int32_data.append(1)
    with pytest.raises(InvalidValueError, match="int32_data and external data; only one"):
        to_array(proto, tmp_path)


# fmt: off
EXTERNAL_BAD = {
    "missing": ({"location": "nowhere"}, "nowhere"),
    "no location": ({}, "empty"),
    "escaping": ({"location": "../secret"}, "outside"),
    "absolute": ({"location": "/etc/hostname"}, "absolute"),
    "a folder": ({"location": "sub"}, "regular file"),
    "truncated": ({"location": "short", "length": 8}, "."),
    "truncated, with an offset": ({"location": "weights", "offset": 4, "length": 8}, "."),
    "offset beyond the end": ({"location": "weights", "offset": 100}, "."),
    "too short for the shape": ({"location": "weights", "length": 4}, "external data has 4 bytes; float of shape .2. needs 8"),
    "too long for the shape": ({"location": "long", "length": 12}, "external data has 12 bytes; float of shape .2. needs 8"),
    "negative offset": ({"location": "weights", "offset": -1}, "."),
    "negative length": ({"location": "weights", "length": -8}, "."),
    "no number": ({"location": "weights", "offset": "x"}, "."),
}
# fmt: on


@pytest.mark.parametrize("case", EXTERNAL_BAD)
def test_bad_external_data(case: str, tmp_path: Path) -> None:
    entries, message = EXTERNAL_BAD[case]
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for path, size in ((folder / "weights", 8), (folder / "short", 7), (folder / "long", 12), (tmp_path / "secret", 8)):
        path.write_bytes(bytes(size))
    with pytest.raises(InvalidValueError, match="tensor 'w': external data") as caught:
        to_array(external("float", [2], **entries), folder)
    caught.match(message)


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_symbolic_links_out_of_the_folder_are_left_to_onnx(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(8))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").symlink_to(tmp_path / "secret")
    proto = external("float", [2], location="weights")
    try:
        onnx.external_data_helper.load_external_data_for_tensor(external("float", [2], location="weights"), str(folder))
    except onnx.checker.ValidationError:
        with pytest.raises(InvalidValueError, match="symbolic link"):
            to_array(proto, folder)
    else:
        pytest.skip("this onnx follows symbolic links")


def test_strings_are_never_external(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="in external data; those of string belong in string_data"):
        to_array(external("string", [1], location="weights"), tmp_path)


# Sparse tensors

# fmt: off
SPARSE = {
    # dims, values, indices -> dense
    "linear": ([5], [7, 9], [1, 4], [0, 7, 0, 0, 9]),
    "linear, rank 2": ([2, 3], [7, 9], [0, 5], [[7, 0, 0], [0, 0, 9]]),
    "coordinates": ([2, 3], [7, 8, 9], [[0, 2], [1, 0], [1, 2]], [[0, 0, 7], [8, 0, 9]]),
    "coordinates, rank 1": ([4], [7, 9], [[0], [3]], [7, 0, 0, 9]),
    "coordinates, rank 3": ([2, 1, 2], [7], [[1, 0, 1]], [[[0, 0]], [[0, 7]]]),
    "full": ([2, 2], [1, 2, 3, 4], [0, 1, 2, 3], [[1, 2], [3, 4]]),
    "no value": ([2, 2], [], [], [[0, 0], [0, 0]]),
    "no value, coordinates": ([2], [], np.zeros((0, 1), np.int64), [0, 0]),
    "zero dim": ([0, 3], [], np.zeros((0, 2), np.int64), np.zeros((0, 3))),
    "rank 0": ([], [7], [0], 7),
    "rank 0, coordinates": ([], [7], np.zeros((1, 0), np.int64), 7),
    "rank 0, no value": ([], [], [], 0),
}
# fmt: on


@pytest.mark.parametrize("case", SPARSE)
def test_sparse_forms(case: str) -> None:
    dims, values, indices, dense = SPARSE[case]
    got = dense_from_sparse(np.array(values, np.int32), np.array(indices, np.int64), dims)
    oracle.assert_same(got, np.array(dense, np.int32))
    proto = SparseTensorProto(
        values=from_array(np.array(values, np.int32), "v"), indices=from_array(np.array(indices, np.int64)), dims=dims
    )
    oracle.assert_same(to_array(proto), np.array(dense, np.int32))


@pytest.mark.parametrize("indices", [[1, 5], [(0, 1), (1, 2)]], ids=["linear", "coordinates"])
@pytest.mark.parametrize("name", NAMES)
def test_sparse_moves_the_bits_of_every_type(name: str, indices: list[Any]) -> None:
    codes = codes_for(name, 3)[1:]
    rank = 1 if isinstance(indices[0], int) else 2
    blank = "" if name == "string" else 0
    wanted = oracle.array(name, [2, 3], [blank, codes[0], blank, blank, blank, codes[1]])
    oracle.assert_same(to_array(oracle.sparse_proto(name, [2, 3], codes, indices, rank)), wanted)
    if name != "string":
        values = oracle.array(name, [2], codes)
        oracle.assert_same(dense_from_sparse(values, np.array(indices), (2, 3)), wanted)


def test_sparse_keeps_nan_payloads_and_negative_zeros() -> None:
    values = np.array([0xFF800001, 0x80000000, 0x7FC12345], np.uint32).view(np.float32)
    got = dense_from_sparse(values, np.array([0, 2, 3]), [4])
    assert got.view(np.uint32).tolist() == [0xFF800001, 0, 0x80000000, 0x7FC12345]


def test_sparse_values_of_other_layouts() -> None:
    wanted = np.array([0, 7, 9], np.float32)
    swapped = np.array([7, 9], ">f4")
    oracle.assert_same(dense_from_sparse(swapped, np.array([1, 2], ">i8"), [3]), wanted)
    oracle.assert_same(dense_from_sparse(wanted[::-2][::-1], np.array([[0, 9], [2, 9]])[:, 0], [3]), np.array([0, 0, 9], np.float32))
    oracle.assert_same(
        dense_from_sparse(np.array([0xF1, 0xFF], np.uint8).view(ml_dtypes.int4), np.array([0, 2]), [3]),
        oracle.array("int4", [3], [1, 0, 15]),
    )


@pytest.mark.parametrize(
    "values",
    [
        np.array(["a", "ß"]),
        np.array([np.str_("a"), "ß"], object),
        np.array(["a", "ß"], np.dtypes.StringDType()),
        np.array([b"a", "ß".encode()]),
    ],
    ids=["U", "object", "StringDType", "S"],
)
def test_sparse_strings(values: Any) -> None:
    got = dense_from_sparse(values, np.array([0, 2]), [3])
    oracle.assert_same(got, np.array(["a", "", "ß"], object))


def test_sparse_indices_may_be_left_out_without_values() -> None:
    proto = SparseTensorProto(values=tensor("float", [0]), dims=[2])
    assert to_array(proto).tolist() == [0.0, 0.0]


def test_sparse_with_external_values_and_indices(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes.fromhex("0000803f 00000040") + np.array([0, 3], "<i8").tobytes())
    proto = SparseTensorProto(
        values=external("float", [2], location="data", offset=0, length=8),
        indices=external("int64", [2], location="data", offset=8, length=16),
        dims=[2, 2],
    )
    assert to_array(proto, tmp_path).tolist() == [[1.0, 0.0], [0.0, 2.0]]


# fmt: off
SPARSE_BAD = {
    # dims, values, indices -> what the message says
    "beyond the end": ([4], [1, 2], [0, 4], "index 4 at position 1 is outside the shape .4.; allowed: 0 to 3"),
    "negative": ([4], [1, 2], [-1, 2], "index -1 at position 0 is outside"),
    "beyond by coordinate": ([2, 3], [1, 2], [[0, 1], [1, 3]], "index .1, 3. at position 1 is outside the shape .2, 3."),
    # linear index 3 would be in range
    "wrapping coordinate": ([2, 3], [1], [[0, 3]], "index .0, 3. at position 0 is outside"),
    "negative coordinate": ([2, 3], [1], [[1, -1]], "index .1, -1. at position 0 is outside"),
    "in a zero dim": ([0, 3], [1], [0], "index 0 at position 0 is outside the shape .0, 3."),
    "unsorted": ([4], [1, 2, 3], [0, 3, 1], "index 1 at position 2 comes after 3; the indices must ascend"),
    "doubled": ([4], [1, 2], [2, 2], "index 2 at position 1 comes after 2; .* without duplicates"),
    "unsorted rows": ([2, 3], [1, 2], [[1, 0], [0, 2]], "index .0, 2. at position 1 comes after .1, 0."),
    "unsorted columns": ([2, 3], [1, 2], [[1, 2], [1, 1]], "index .1, 1. at position 1 comes after .1, 2."),
    "doubled coordinates": ([2, 3], [1, 2], [[1, 2], [1, 2]], "comes after"),
    "doubled at rank 0": ([], [1, 2], np.zeros((2, 0), np.int64), "comes after"),
    "too few indices": ([4], [1, 2], [0], "indices have the shape .1.; 2 values .* rank 1 need .2. or .2, 1."),
    "too many indices": ([4], [1], [0, 1], "need .1. or .1, 1."),
    "wrong rank": ([2, 3], [1], [[1, 2, 0]], "shape .1, 3.; 1 values of a tensor of rank 2 need .1. or .1, 2."),
    "indices of rank 3": ([4], [1], [[[0]]], "shape .1, 1, 1."),
    "indices of rank 0": ([4], [1], 0, "shape ..; 1 values"),
    "values of rank 2": ([4], [[1]], [0], "values must have the shape .NNZ., not .1, 1."),
    "negative dim": ([-4], [1], [0], "must not be negative"),
    "overflow": ([2**40, 2**40], [1], [0], "bytes in all"),
    "int64 limits": ([4], [1, 2], [-2**63, 2**63 - 1], "index -9223372036854775808 at position 0"),
}
# fmt: on


@pytest.mark.parametrize("case", SPARSE_BAD)
def test_bad_sparse(case: str) -> None:
    dims, values, indices, message = SPARSE_BAD[case]
    with pytest.raises(InvalidValueError, match=message):
        dense_from_sparse(np.array(values, np.float32), np.array(indices, np.int64), dims)


def test_bad_sparse_is_found_before_anything_is_allocated() -> None:
    with pytest.raises(InvalidValueError, match="outside"):
        dense_from_sparse(np.ones(1, np.float32), np.array([-1]), [2**60])


def test_sparse_without_memory() -> None:
    with pytest.raises(AllocationError, match=r"no memory for a dense tensor of float of shape .1152921504606846976."):
        dense_from_sparse(np.ones(1, np.float32), np.array([1]), [2**60])


def test_sparse_types() -> None:
    with pytest.raises(InvalidTypeError, match="int64, not int32"):
        dense_from_sparse(np.ones(1, np.float32), np.array([0], np.int32), [1])
    with pytest.raises(InvalidTypeError, match="datetime64"):
        dense_from_sparse(np.zeros(1, "M8[s]"), np.array([0]), [1])
    with pytest.raises(InvalidTypeError, match=r"int at position 0"):
        dense_from_sparse(np.array([1], object), np.array([0]), [1])


@given(dims=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_sparse_linear_and_coordinates_agree(dims: list[int], data: st.DataObject) -> None:
    places = sorted(data.draw(st.sets(st.integers(0, math.prod(dims) - 1))))
    dense = np.zeros(math.prod(dims), np.uint16)
    for place in places:
        dense[place] = place + 1
    values = np.array([place + 1 for place in places], np.uint16)
    dense = dense.reshape(dims)
    oracle.assert_same(dense_from_sparse(values, np.array(places, np.int64), dims), dense)
    oracle.assert_same(dense_from_sparse(values, np.argwhere(dense), dims), dense)
