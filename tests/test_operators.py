"""Constant, ConstantOfShape and EyeLike: every version, element type, attribute form and kind of shape, bit for bit.

Each case runs through ``numbaops.operator`` and through the plain function; the right answer comes from ``oracle.py``.
"""

from __future__ import annotations

import ast
import copy
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

import numbaops
import oracle
from numbaops.dtypes import BY_NAME

# Codes worth copying, by type: signalling and quiet NaNs with payloads, -0, infinities, subnormals, limits.
# fmt: off
CODES: dict[str, tuple[Any, ...]] = {
    "float":          (0x7F812345, 0xFFC00001, 0x80000000, 0x00000001, 0x3FC00000),
    "uint8":          (0x00, 0xFF, 0x80, 0x5A, 0x01),
    "int8":           (0x80, 0x00, 0xFF, 0x7F, 0x5A),
    "uint16":         (0xFF00, 0x00FF, 0x0000, 0x8001, 0x0102),
    "int16":          (0x8000, 0xFFFE, 0x0000, 0x00FF, 0x0102),
    "int32":          (0x80000000, 0xFFFFFFFE, 0x00000000, 0x000000FF, 0x01020304),
    "int64":          (0x8000000000000000, 0xFFFFFFFFFFFFFFFE, 0, 0x00000000FFFFFFFF, 0x0102030405060708),
    "string":         ("", "a\0", "\0", "zwölf ₁₂", "x" * 40),
    "bool":           (1, 0, 1, 1, 0),
    "float16":        (0x7C01, 0xFE05, 0x8000, 0x0001, 0x3E00),
    "double":         (0x7FF0000000000001, 0xFFF8000000000123, 0x8000000000000000, 0x0000000000000001, 0x3FF8000000000000),
    "uint32":         (0xFFFFFFFF, 0x80000000, 0x00000000, 0x000000FF, 0x01020304),
    "uint64":         (0xFFFFFFFFFFFFFFFF, 0x8000000000000000, 0, 0x00000000FFFFFFFF, 0x0102030405060708),
    "complex64":      (0x7F800000_80000000, 0x80000000_00000000, 0x7FC00001_7F812345, 0xC0000000_3F800000, 0x00000000_00000001),
    "complex128":     (0x7FF0000000000000_8000000000000000, 0x8000000000000000_0000000000000000, 0x7FF8000000000001_7FF0000000000001,
                       0xC000000000000000_3FF0000000000000, 0x0000000000000000_0000000000000001),
    "bfloat16":       (0x7F81, 0xFFC1, 0x8000, 0x0001, 0x3FC0),
    "float8e4m3fn":   (0xFF, 0x7F, 0x80, 0x01, 0x7E),
    "float8e4m3fnuz": (0x80, 0x7F, 0x00, 0x01, 0xFF),
    "float8e5m2":     (0x7D, 0xFE, 0x80, 0x01, 0x7C),
    "float8e5m2fnuz": (0x80, 0x7F, 0x00, 0x01, 0xFF),
    "uint4":          (0xF, 0x0, 0x8, 0x5, 0x1),
    "int4":           (0x8, 0xF, 0x0, 0x7, 0x3),
    "float4e2m1":     (0x8, 0xF, 0x0, 0x7, 0x1),
    "float8e8m0":     (0xFF, 0x00, 0xFE, 0x7F, 0x01),
    "uint2":          (0x3, 0x0, 0x2, 0x1, 0x3),
    "int2":           (0x2, 0x3, 0x0, 0x1, 0x2),
}
# fmt: on
SHAPES = [
    (),
    (0,),
    (1,),
    (7,),
    (33,),
    (2, 3),
    (3, 5),
    (0, 3),
    (3, 0),
    (2, 0, 4),
    (1, 1, 1),
    (2, 3, 5),
    (2, 1, 3, 3),
    (1, 2, 3, 1, 3),
]
MATRICES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 5), (5, 1), (2, 3), (4, 4), (7, 5), (5, 9), (90, 47)]
OFFSETS = [0, 1, -1, 2, -3, 4, -4, 9, -9]
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def shape_id(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def version_cases(op: str, table: dict[int, tuple[str, ...]], shapes: list[Any]) -> list[Any]:
    return [
        pytest.param(version, name, shape, id=f"{op}-{name}-{shape_id(shape)}-opset{version}")
        for version, names in table.items()
        for name in names
        for shape in shapes
    ]


def newest(table: dict[int, tuple[str, ...]]) -> list[str]:
    return list(table[max(table)])


def repeated(codes: Sequence[Any], count: int) -> list[Any]:
    return [codes[i % len(codes)] for i in range(count)]


def is_nan_proof(name: str, code: Any) -> bool:
    """Whether the typed fields of the Python protobuf can carry the code: float_data goes through a C double, which quiets NaNs."""
    if name not in ("float", "complex64"):
        return True
    parts = (code & 0xFFFFFFFF, code >> 32)
    return all(part & 0x7FFFFFFF <= 0x7F800000 or part & 0x00400000 for part in parts)


# ConstantOfShape


def value_forms(name: str, code: int) -> Iterator[Any]:
    """One element as everything that the value may be, apart from Python scalars."""
    for dims in ((1,), (), (1, 1)):
        yield oracle.raw_proto(name, dims, [code])
        if is_nan_proof(name, code):
            yield oracle.typed_proto(name, dims, [code])
        yield oracle.array(name, dims, [code])
    yield oracle.array(name, (1,), [code])[0]


@pytest.mark.parametrize(("version", "name", "shape"), version_cases("cos", oracle.CONSTANT_OF_SHAPE_TYPES, SHAPES))
def test_constant_of_shape(version: int, name: str, shape: tuple[int, ...]) -> None:
    for code in CODES[name]:
        want = oracle.constant_of_shape(shape, name, code)
        for value in value_forms(name, code):
            bound = numbaops.operator("ConstantOfShape", version, value=value)
            oracle.assert_same(bound(np.array(shape, np.int64)), want)
            oracle.assert_same(numbaops.constant_of_shape(shape, value, opset=version), want)


@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
@pytest.mark.parametrize("version", oracle.CONSTANT_OF_SHAPE_TYPES)
def test_constant_of_shape_without_value_is_float32_zero(version: int, shape: tuple[int, ...]) -> None:
    want = oracle.constant_of_shape(shape)
    oracle.assert_same(numbaops.operator("ConstantOfShape", version)(np.array(shape, np.int64)), want)
    for form in (shape, list(shape), np.array(shape, np.int64), tuple(np.int64(dim) for dim in shape)):
        oracle.assert_same(numbaops.constant_of_shape(form, opset=version), want)
        oracle.assert_same(numbaops.constant_of_shape(form), want)
        oracle.assert_same(numbaops.constant_of_shape(shape=form, value=None, opset=version), want)


@pytest.mark.parametrize(
    ("value", "name", "code"),
    [
        (0, "int64", 0),
        (7, "int64", 7),
        (-1, "int64", 0xFFFFFFFFFFFFFFFF),
        (INT64_MIN, "int64", 1 << 63),
        (INT64_MAX, "int64", INT64_MAX),
        (True, "bool", 1),
        (False, "bool", 0),
        (0.0, "float", 0),
        (-0.0, "float", 0x80000000),
        (1.5, "float", 0x3FC00000),
        (0.1, "float", 0x3DCCCCCD),
        (math.inf, "float", 0x7F800000),
        (-math.inf, "float", 0xFF800000),
        (np.float64(0.1), "double", 0x3FB999999999999A),
        (np.float16(1.5), "float16", 0x3E00),
        (np.bool_(True), "bool", 1),
        (np.uint8(200), "uint8", 200),
        (np.longlong(-2), "int64", 0xFFFFFFFFFFFFFFFE),
        (ml_dtypes.bfloat16(-2.0), "bfloat16", 0xC000),
        (ml_dtypes.float8_e5m2(0.25), "float8e5m2", 0x34),
        (ml_dtypes.int4(-3), "int4", 0xD),
        (ml_dtypes.uint2(2), "uint2", 0x2),
        (np.array([1.5], ">f4"), "float", 0x3FC00000),
        (np.array([5, 6, 7], np.int16)[1:2], "int16", 6),
    ],
    ids=lambda value: f"{type(value).__name__}-{value}" if not isinstance(value, str) else value,
)
def test_constant_of_shape_value_decides_the_type(value: Any, name: str, code: int) -> None:
    want = oracle.constant_of_shape((2, 3), name, code)
    oracle.assert_same(numbaops.constant_of_shape((2, 3), value), want)
    oracle.assert_same(numbaops.operator("ConstantOfShape", value=value)(np.array([2, 3])), want)


def test_constant_of_shape_of_a_python_nan_is_a_float32_nan() -> None:
    result = numbaops.constant_of_shape((3,), math.nan)
    assert result.dtype == np.float32
    assert np.isnan(result).all()


def test_constant_of_shape_of_bool_byte_two_is_true() -> None:
    value = TensorProto(data_type=TensorProto.BOOL, dims=[1], raw_data=b"\x02")
    oracle.assert_same(numbaops.constant_of_shape((3,), value), np.ones(3, np.bool_))
    oracle.assert_same(numbaops.constant_of_shape((3,), np.array([2], np.uint8).view(np.bool_)), np.ones(3, np.bool_))


@pytest.mark.parametrize("name", newest(oracle.CONSTANT_OF_SHAPE_TYPES))
def test_constant_of_shape_into_out(name: str) -> None:
    for shape in SHAPES:
        for code in CODES[name]:
            want = oracle.constant_of_shape(shape, name, code)
            value = oracle.array(name, (1,), [code])
            garbage = oracle.array(name, shape, repeated(CODES[name], math.prod(shape)))
            out = garbage.copy()
            assert numbaops.constant_of_shape(shape, value, out=out) is out
            oracle.assert_same(out, want)
            out = garbage.copy()
            assert numbaops.operator("ConstantOfShape", value=value)(np.array(shape, np.int64), out=out) is out
            oracle.assert_same(out, want)


@pytest.mark.parametrize("name", newest(oracle.CONSTANT_OF_SHAPE_TYPES))
def test_constant_of_shape_of_middle_size(name: str) -> None:
    """Beyond the smallest ways to fill, and below the kernels."""
    for count in (4096, 4097, 33_333):
        for code in CODES[name][:3]:
            value = oracle.array(name, (1,), [code])
            want = oracle.array(name, (count,), [code] * count)
            oracle.assert_same(numbaops.constant_of_shape((count,), value), want)
            out = oracle.array(name, (count,), [CODES[name][4]] * count)
            oracle.assert_same(numbaops.constant_of_shape((count,), value, out=out), want)


@pytest.mark.parametrize("name", ["uint8", "float16", "float", "double", "int4", "float8e5m2"])
def test_constant_of_shape_writes_only_into_out(name: str) -> None:
    for start in range(9):
        for count in (0, 1, 2, 15, 64, 129):
            around = oracle.array(name, (150,), repeated(CODES[name], 150))
            before = oracle.codes_of(around, name)
            out = around[start : start + count]
            numbaops.constant_of_shape((count,), oracle.array(name, (1,), [CODES[name][3]]), out=out)
            want = before[:start] + [CODES[name][3]] * count + before[start + count :]
            assert oracle.codes_of(around, name) == want


@pytest.mark.parametrize("shape", [*SHAPES, (1023,), (5, 13)], ids=shape_id)
@pytest.mark.parametrize("name", ["int4", "uint4", "float4e2m1", "int2", "uint2"])
def test_constant_of_shape_packed(name: str, shape: tuple[int, ...]) -> None:
    for code in CODES[name]:
        packed = numbaops.constant_of_shape(shape, oracle.array(name, (1,), [code]), packed=True)
        assert isinstance(packed, numbaops.PackedTensor)
        count = math.prod(shape)
        assert packed.data.dtype == np.uint8 and packed.data.ndim == 1
        assert packed.data.tobytes() == oracle.pack([code] * count, oracle.TYPES[name].bits)
        assert packed.data.flags.writeable
        assert packed.element_type is BY_NAME[name]
        assert (packed.shape, packed.size, packed.nbytes) == (shape, count, len(packed.data))
        oracle.assert_same(packed.unpack(), oracle.constant_of_shape(shape, name, code))
        proto = packed.to_proto("weights")
        assert (proto.name, proto.data_type, tuple(proto.dims)) == ("weights", oracle.TYPES[name].code, shape)
        assert proto.raw_data == packed.data.tobytes()
        if oracle.onnx_has(name):
            oracle.assert_same(numpy_helper.to_array(proto).copy(), oracle.constant_of_shape(shape, name, code))


@pytest.mark.parametrize("name", [name for name in newest(oracle.CONSTANT_OF_SHAPE_TYPES) if oracle.TYPES[name].bits >= 8])
def test_constant_of_shape_packed_of_a_type_of_whole_bytes(name: str) -> None:
    code = CODES[name][0]
    packed = numbaops.constant_of_shape((3, 5), oracle.array(name, (1,), [code]), packed=True)
    assert (packed.element_type, packed.shape) == (BY_NAME[name], (3, 5))
    assert packed.data.tobytes() == oracle.pack([code] * 15, oracle.TYPES[name].bits)
    oracle.assert_same(packed.unpack(), oracle.constant_of_shape((3, 5), name, code))


# EyeLike


@pytest.mark.parametrize(("version", "name", "shape"), version_cases("eye", oracle.EYE_LIKE_TYPES, MATRICES))
def test_eye_like(version: int, name: str, shape: tuple[int, int]) -> None:
    x = oracle.array(name, shape, repeated(CODES[name], math.prod(shape)))
    other = np.ones(shape, np.int16)
    for k in OFFSETS:
        want = oracle.eye_like(shape, name, k)
        row = oracle.TYPES[name]
        oracle.assert_same(numbaops.operator("EyeLike", version, k=k)(x), want)
        oracle.assert_same(numbaops.eye_like(x, k=k, opset=version), want)
        oracle.assert_same(numbaops.operator("EyeLike", version, k=k, dtype=row.code)(other), want)
        oracle.assert_same(numbaops.eye_like(other, row.code, k, opset=version), want)
        oracle.assert_same(numbaops.eye_like(shape, row.code, k, opset=version), want)


@pytest.mark.parametrize("name", newest(oracle.EYE_LIKE_TYPES))
def test_eye_like_default_offset_and_every_input_type(name: str) -> None:
    row = oracle.TYPES[name]
    want = oracle.eye_like((3, 4), name)
    for input_name in newest(oracle.EYE_LIKE_TYPES):
        x = oracle.array(input_name, (3, 4), repeated(CODES[input_name], 12))
        before = x.tobytes()
        oracle.assert_same(numbaops.operator("EyeLike", dtype=row.code)(x), want)
        oracle.assert_same(numbaops.eye_like(x, dtype=row.code), want)
        assert x.tobytes() == before


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (TensorProto.FLOAT16, "float16"),
        ("float16", "float16"),
        (np.float16, "float16"),
        (np.dtype("float16"), "float16"),
        ("DOUBLE", "double"),
        ("tensor(int8)", "int8"),
        ("float32", "float"),
        (ml_dtypes.bfloat16, "bfloat16"),
        ("bfloat16", "bfloat16"),
        (np.int32(TensorProto.BOOL), "bool"),
        (BY_NAME["uint16"], "uint16"),
        (None, "int32"),
    ],
    ids=str,
)
def test_eye_like_dtype_by_code_name_and_dtype(dtype: Any, name: str) -> None:
    x = np.zeros((2, 3), np.int32)
    oracle.assert_same(numbaops.eye_like(x, dtype), oracle.eye_like((2, 3), name))


@pytest.mark.parametrize("shape", [(2, 3), [2, 3], (np.int64(2), 3)], ids=repr)
def test_eye_like_of_a_shape_is_float32(shape: Any) -> None:
    oracle.assert_same(numbaops.eye_like(shape), oracle.eye_like((2, 3), "float"))
    oracle.assert_same(numbaops.eye_like(shape, k=-1), oracle.eye_like((2, 3), "float", -1))


@pytest.mark.parametrize(
    "k", [INT64_MIN, INT64_MIN + 1, -(2**32), -(2**31), -4, 6, 2**31, 2**32, 2**32 + 1, INT64_MAX - 1, INT64_MAX], ids=str
)
@pytest.mark.parametrize("name", ["float", "bool", "int64"])
def test_eye_like_with_the_diagonal_beyond_the_matrix(name: str, k: int) -> None:
    x = oracle.array(name, (4, 6), repeated(CODES[name], 24))
    want = oracle.array(name, (4, 6), [0] * 24)
    for offset in (k, np.int64(k)):
        oracle.assert_same(numbaops.operator("EyeLike", k=offset)(x), want)
        oracle.assert_same(numbaops.eye_like(x, k=offset), want)
        out = x.copy()
        oracle.assert_same(numbaops.eye_like(x, k=offset, out=out), want)


@pytest.mark.parametrize("k", [-(2**63), -3, 3, 2**63 - 1], ids=str)
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)], ids=shape_id)
def test_eye_like_of_an_empty_matrix(shape: tuple[int, int], k: int) -> None:
    oracle.assert_same(numbaops.eye_like(np.empty(shape, np.int8), k=k), np.empty(shape, np.int8))


@pytest.mark.parametrize(
    "x",
    [
        np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
        np.arange(48, dtype=np.int16).reshape(6, 8)[::2, ::2],
        np.arange(12, dtype=np.int16).reshape(3, 4)[::-1, ::-1],
        np.broadcast_to(np.int16(7), (3, 4)),
        np.arange(12, dtype=">i2").reshape(3, 4),
    ],
    ids=["fortran", "strided", "reversed", "broadcast", "big-endian"],
)
def test_eye_like_takes_only_the_shape_from_the_input(x: np.ndarray) -> None:
    want = oracle.eye_like((3, 4), "int16", 1)
    oracle.assert_same(numbaops.eye_like(x, k=1), want)
    oracle.assert_same(numbaops.operator("EyeLike", k=1)(x), want)


@pytest.mark.parametrize("name", newest(oracle.EYE_LIKE_TYPES))
def test_eye_like_into_out(name: str) -> None:
    for shape in MATRICES:
        for k in OFFSETS:
            out = oracle.array(name, shape, repeated(CODES[name], math.prod(shape)))
            assert numbaops.eye_like(np.zeros(shape, np.uint8), name, k, out=out) is out
            oracle.assert_same(out, oracle.eye_like(shape, name, k))
            out = oracle.array(name, shape, repeated(CODES[name], math.prod(shape)))
            assert numbaops.operator("EyeLike", k=k)(out, out=out) is out  # the input's values do not count, so it may be the output
            oracle.assert_same(out, oracle.eye_like(shape, name, k))


# Constant


@pytest.mark.parametrize(("version", "name", "shape"), version_cases("constant", oracle.CONSTANT_TYPES, SHAPES))
def test_constant_value(version: int, name: str, shape: tuple[int, ...]) -> None:
    codes = repeated(CODES[name], math.prod(shape))
    want = oracle.constant(name, shape, codes)
    forms: list[Any] = [want.copy()]
    if name != "string":
        forms.append(oracle.raw_proto(name, shape, codes))
    if all(is_nan_proof(name, code) for code in codes):
        forms.append(oracle.typed_proto(name, shape, codes))
    else:
        tame = [code for code in CODES[name] if is_nan_proof(name, code)]
        oracle.assert_same(
            numbaops.constant(value=oracle.typed_proto(name, shape, repeated(tame, len(codes))), opset=version),
            oracle.constant(name, shape, repeated(tame, len(codes))),
        )
    for value in forms:
        oracle.assert_same(numbaops.operator("Constant", version, value=value)(), want)
        oracle.assert_same(numbaops.constant(value=value, opset=version), want)


@pytest.mark.parametrize("name", ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0", "int8", "uint8"])
def test_constant_keeps_all_256_codes(name: str) -> None:
    want = oracle.array(name, (256,), range(256))
    for value in (oracle.raw_proto(name, (256,), range(256)), oracle.typed_proto(name, (256,), range(256)), want.copy()):
        oracle.assert_same(numbaops.constant(value=value), want)


@pytest.mark.parametrize("name", ["int4", "uint4", "float4e2m1", "int2", "uint2"])
@pytest.mark.parametrize("count", [*range(10), 255, 256, 257, 1001])
def test_constant_unpacks_every_count(name: str, count: int) -> None:
    codes = [(i * 7 + i // 16) % (1 << oracle.TYPES[name].bits) for i in range(count)]
    want = oracle.array(name, (count,), codes)
    oracle.assert_same(numbaops.constant(value=oracle.raw_proto(name, (count,), codes)), want)
    oracle.assert_same(numbaops.constant(value=oracle.typed_proto(name, (count,), codes)), want)


@pytest.mark.parametrize("name", ["int4", "float4e2m1", "uint2"])
def test_constant_of_an_array_with_dirty_high_bits_has_clean_ones(name: str) -> None:
    codes = repeated(CODES[name], 9)
    dirty = (oracle.array(name, (9,), codes).view(np.uint8) | np.uint8(0xFF << oracle.TYPES[name].bits & 0xFF)).view(
        oracle.TYPES[name].dtype
    )
    oracle.assert_same(numbaops.constant(value=dirty), oracle.array(name, (9,), codes))
    one = dirty[1:2]
    oracle.assert_same(numbaops.constant_of_shape((3,), one), oracle.constant_of_shape((3,), name, codes[1]))
    packed = numbaops.constant_of_shape((3,), one, packed=True)
    assert packed.data.tobytes() == oracle.pack([codes[1]] * 3, oracle.TYPES[name].bits)


@pytest.mark.parametrize("name", [name for name in newest(oracle.CONSTANT_TYPES) if name != "string"])
def test_constant_packed(name: str) -> None:
    for shape in SHAPES:
        codes = repeated(CODES[name], math.prod(shape))
        want = oracle.constant(name, shape, codes)
        bound = numbaops.operator("Constant", value=oracle.raw_proto(name, shape, codes))
        for packed in (bound(packed=True), numbaops.constant(value=want, packed=True)):
            assert (packed.element_type, packed.shape) == (BY_NAME[name], shape)
            assert packed.data.tobytes() == oracle.pack(codes, oracle.TYPES[name].bits)
            oracle.assert_same(packed.unpack(), want)
            packed.data[:] = 0  # the caller's own
        oracle.assert_same(bound(), want)


@pytest.mark.parametrize("name", newest(oracle.CONSTANT_TYPES))
def test_constant_into_out(name: str) -> None:
    for shape in SHAPES:
        codes = repeated(CODES[name], math.prod(shape))
        want = oracle.constant(name, shape, codes)
        out = oracle.array(name, shape, codes[::-1])
        assert numbaops.operator("Constant", value=want)(out=out) is out
        oracle.assert_same(out, want)


def test_constant_of_bool_byte_two_is_true() -> None:
    value = TensorProto(data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x02\x00\xff")
    oracle.assert_same(numbaops.constant(value=value), np.array([True, False, True]))
    oracle.assert_same(numbaops.constant(value=np.array([2, 0, 255], np.uint8).view(np.bool_)), np.array([True, False, True]))


VALUES = [
    ("value_float", 1.5),
    ("value_float", -0.0),
    ("value_float", 0.1),
    ("value_float", math.inf),
    ("value_floats", [1.5, -0.0, 0.1]),
    ("value_floats", []),
    ("value_floats", [0.1]),
    ("value_int", 0),
    ("value_int", INT64_MIN),
    ("value_int", INT64_MAX),
    ("value_ints", [1, -2, INT64_MAX]),
    ("value_ints", []),
    ("value_ints", [5]),
    ("value_string", "one"),
    ("value_string", ""),
    ("value_string", "trailing\0"),
    ("value_string", "\0"),
    ("value_strings", ["a\0", "", "zwölf"]),
    ("value_strings", []),
    ("value_strings", ["x"]),
]


@pytest.mark.parametrize("version", [version for version in oracle.CONSTANT_TYPES if version >= 12])
@pytest.mark.parametrize(("attribute", "value"), [pytest.param(*case, id=f"{case[0]}-{case[1]!r}") for case in VALUES])
def test_constant_value_attributes(attribute: str, value: Any, version: int) -> None:
    want = oracle.constant_value(attribute, value)
    oracle.assert_same(numbaops.operator("Constant", version, **{attribute: value})(), want)
    oracle.assert_same(numbaops.constant(**{attribute: value}, opset=version), want)
    if attribute.endswith("s"):
        oracle.assert_same(numbaops.constant(**{attribute: tuple(value)}), want)
    if attribute in ("value_floats", "value_ints"):
        oracle.assert_same(numbaops.constant(**{attribute: want}), want)


def test_constant_strings_may_come_as_bytes() -> None:
    oracle.assert_same(numbaops.constant(value_string=b"a\0"), oracle.constant_value("value_string", "a\0"))
    oracle.assert_same(numbaops.constant(value_strings=[b"a\0", b"\xc3\xb6"]), oracle.constant_value("value_strings", ["a\0", "ö"]))


def test_constant_of_numpy_string_arrays() -> None:
    want = oracle.array("string", (2,), ["ab", "ö"])
    for value in (np.array(["ab", "ö"]), np.array(["ab", "ö"], object), np.array(["ab", "ö"], np.dtypes.StringDType())):
        oracle.assert_same(numbaops.constant(value=value), want)


@pytest.mark.parametrize(
    ("value", "name", "code"),
    [
        (7, "int64", 7),
        (True, "bool", 1),
        (-0.0, "float", 0x80000000),
        ("a\0", "string", "a\0"),
        (b"a", "string", "a"),
        (np.float16(1.5), "float16", 0x3E00),
        (ml_dtypes.int4(-3), "int4", 0xD),
        (np.complex64(2j), "complex64", 0x40000000_00000000),
    ],
    ids=repr,
)
def test_constant_of_a_scalar_is_of_rank_zero(value: Any, name: str, code: Any) -> None:
    oracle.assert_same(numbaops.constant(value=value), oracle.constant(name, (), [code]))
    oracle.assert_same(numbaops.constant(value), oracle.constant(name, (), [code]))


def test_none_is_an_absent_attribute() -> None:
    oracle.assert_same(numbaops.operator("Constant", value=None, value_int=3, value_floats=None)(), np.array(3))
    oracle.assert_same(numbaops.operator("ConstantOfShape", value=None)(np.array([2])), np.zeros(2, np.float32))
    oracle.assert_same(numbaops.operator("EyeLike", dtype=None, k=None)(np.ones((1, 2), np.int8)), np.array([[1, 0]], np.int8))


def test_constant_float_is_a_python_float_rounded_once() -> None:
    oracle.assert_same(numbaops.constant(value_float=1 + 2**-24), np.array(1, np.float32))
    oracle.assert_same(numbaops.constant(value_float=1 + 2**-24 + 2**-50), np.array(1 + 2**-23, np.float32))
    oracle.assert_same(numbaops.constant(value_float=np.float32(0.1)), np.array(0.1, np.float32))


@pytest.mark.parametrize("version", [11, 12, 13, 19, 21, 23, 24, 25])
def test_constant_sparse_value_of_every_type(version: int) -> None:
    for name in oracle.CONSTANT_TYPES[version]:
        values = [code for code in CODES[name][:4] if is_nan_proof(name, code)][:2]
        for dims, linear, coordinates in (
            ((7,), [1, 6], [(1,), (6,)]),
            ((2, 3), [1, 3], [(0, 1), (1, 0)]),
            ((2, 1, 5), [0, 9], [(0, 0, 0), (1, 0, 4)]),
        ):
            want = oracle.constant_sparse(name, dims, values, linear)
            oracle.assert_same(want, oracle.constant_sparse(name, dims, values, coordinates))
            arrays = oracle.array(name, (len(values),), values), np.array(coordinates), dims
            for sparse in (
                oracle.sparse_proto(name, dims, values, linear, 1),
                oracle.sparse_proto(name, dims, values, coordinates, 2),
                arrays,
            ):
                oracle.assert_same(numbaops.operator("Constant", version, sparse_value=sparse)(), want)
                oracle.assert_same(numbaops.constant(sparse_value=sparse, opset=version), want)


def sparse_without_entries(dims: Sequence[int], index_dims: Sequence[int], data_type: int = TensorProto.FLOAT) -> SparseTensorProto:
    sparse = SparseTensorProto(dims=list(dims))
    sparse.values.CopyFrom(TensorProto(data_type=data_type, dims=[0]))
    sparse.indices.CopyFrom(TensorProto(data_type=TensorProto.INT64, dims=list(index_dims)))
    return sparse


@pytest.mark.parametrize(
    ("dims", "index_dims"),
    [
        ((3,), [0]),
        ((3,), [0, 1]),
        ((2, 3), [0]),
        ((2, 3), [0, 2]),
        ((0, 3), [0]),
        ((0, 3), [0, 2]),
        ((2, 0, 1), [0, 3]),
        ((), [0]),
        ((), [0, 0]),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["float", "int4", "string", "complex128"])
def test_constant_sparse_value_without_entries(name: str, dims: tuple[int, ...], index_dims: list[int]) -> None:
    sparse = sparse_without_entries(dims, index_dims, oracle.TYPES[name].code)
    oracle.assert_same(numbaops.constant(sparse_value=sparse), oracle.constant_sparse(name, dims, [], []))


@pytest.mark.parametrize("name", ["float", "bool", "string"])
def test_constant_sparse_value_of_rank_zero(name: str) -> None:
    value = [CODES[name][4] if name != "bool" else 1]
    for sparse in (oracle.sparse_proto(name, (), value, [0], 1), oracle.sparse_proto(name, (), value, [()], 2)):
        oracle.assert_same(numbaops.constant(sparse_value=sparse), oracle.constant(name, (), value))


def test_constant_sparse_value_with_every_cell_given() -> None:
    values = list(range(1, 7))
    sparse = oracle.sparse_proto("int32", (2, 3), values, range(6), 1)
    oracle.assert_same(numbaops.constant(sparse_value=sparse), np.arange(1, 7, dtype=np.int32).reshape(2, 3))


def test_constant_sparse_value_with_raw_data_of_packed_values() -> None:
    sparse = oracle.sparse_proto("int4", (9,), [1, 2, 3], [0, 4, 8], 1)
    sparse.values.CopyFrom(oracle.raw_proto("int4", (3,), [0xF, 0x8, 0x7]))
    sparse.indices.CopyFrom(TensorProto(data_type=TensorProto.INT64, dims=[3], raw_data=np.array([0, 4, 8], "<i8").tobytes()))
    oracle.assert_same(numbaops.constant(sparse_value=sparse), oracle.constant_sparse("int4", (9,), [0xF, 0x8, 0x7], [0, 4, 8]))


# Results belong to the caller

OPERATORS: list[Any] = [
    pytest.param("Constant", {"value": np.arange(6, dtype=np.float32)}, (), id="constant-value"),
    pytest.param("Constant", {"value_ints": [1, 2, 3]}, (), id="constant-ints"),
    pytest.param("Constant", {"value_string": "a"}, (), id="constant-string"),
    pytest.param("Constant", {"value": helper.make_tensor("t", TensorProto.INT4, [3], [1, -2, 3])}, (), id="constant-int4"),
    pytest.param("Constant", {"sparse_value": oracle.sparse_proto("double", (2, 3), [5], [4], 1)}, (), id="constant-sparse"),
    pytest.param("ConstantOfShape", {}, (np.array([3, 5]),), id="cos-default"),
    pytest.param("ConstantOfShape", {"value": np.array([7], np.int16)}, (np.array([3, 5]),), id="cos-int16"),
    pytest.param("ConstantOfShape", {"value": np.array([1], np.int64)}, (np.array([], np.int64),), id="cos-scalar"),
    pytest.param("ConstantOfShape", {"value": np.array([2], ml_dtypes.bfloat16)}, (np.array([300, 40]),), id="cos-12000"),
    pytest.param("Constant", {"value": np.arange(1 << 18, dtype=np.float32)}, (), id="constant-1mib"),
    pytest.param("ConstantOfShape", {"value": np.array([-7])}, (np.array([1 << 17]),), id="cos-1mib"),
    pytest.param("EyeLike", {"k": 1}, (np.zeros((512, 513), np.float32),), id="eye-1mib"),
    pytest.param("EyeLike", {"k": 1}, (np.zeros((4, 4), np.float32),), id="eye-float"),
    pytest.param("EyeLike", {"k": 99}, (np.zeros((4, 4), np.float32),), id="eye-zero"),
    pytest.param("EyeLike", {"dtype": TensorProto.BFLOAT16}, (np.zeros((70, 90), np.int8),), id="eye-bfloat16"),
]


@pytest.mark.parametrize(("op_type", "attributes", "inputs"), OPERATORS)
def test_results_are_fresh_and_writable_each_time(op_type: str, attributes: dict[str, Any], inputs: tuple[Any, ...]) -> None:
    bound = numbaops.operator(op_type, **attributes)
    first = bound(*inputs)
    want = first.copy()
    kept = []
    for _ in range(5):
        result = bound(*inputs)
        oracle.assert_same(result, want)
        assert not any(
            np.shares_memory(result, other) for other in (first, *kept, *inputs, *attributes.values()) if isinstance(other, np.ndarray)
        )
        result[...] = np.ones(result.shape, result.dtype) if result.dtype != object else "changed"
        kept.append(result)
    oracle.assert_same(first, want)


def test_results_of_the_functions_are_fresh_each_time() -> None:
    value = np.arange(4, dtype=np.int32)
    calls: list[Callable[[], np.ndarray]] = [
        lambda: numbaops.constant(value=value),
        lambda: numbaops.constant(value_floats=[1.0, 2.0]),
        lambda: numbaops.constant_of_shape((2, 2)),
        lambda: numbaops.constant_of_shape((2, 2), 3),
        lambda: numbaops.eye_like((2, 2)),
    ]
    for call in calls:
        first, second = call(), call()
        want = first.copy()
        assert not np.shares_memory(first, second)
        first[...] = 99
        oracle.assert_same(second, want)
        oracle.assert_same(call(), want)
    assert value.tolist() == [0, 1, 2, 3]


def test_bound_attributes_do_not_follow_the_callers_objects() -> None:
    value = np.arange(3, dtype=np.float64)
    one = np.array([5], np.int8)
    floats = [1.0, 2.0]
    proto = helper.make_tensor("t", TensorProto.INT64, [1], [7])
    bound = [
        numbaops.operator("Constant", value=value),
        numbaops.operator("ConstantOfShape", value=one),
        numbaops.operator("Constant", value_floats=floats),
        numbaops.operator("ConstantOfShape", value=proto),
    ]
    value[:] = 9
    one[:] = 9
    floats.append(9.0)
    proto.int64_data[0] = 9
    shape = np.array([2])
    for constant, filled, listed, from_proto in (bound, [pickle.loads(pickle.dumps(item)) for item in bound], copy.deepcopy(bound)):
        oracle.assert_same(constant(), np.arange(3, dtype=np.float64))
        oracle.assert_same(filled(shape), np.array([5, 5], np.int8))
        oracle.assert_same(listed(), np.array([1, 2], np.float32))
        oracle.assert_same(from_proto(shape), np.array([7, 7], np.int64))


@pytest.mark.parametrize(("op_type", "attributes", "inputs"), OPERATORS)
def test_bound_attributes_cannot_be_written_to(op_type: str, attributes: dict[str, Any], inputs: tuple[Any, ...]) -> None:
    bound = numbaops.operator(op_type, **attributes)
    want = bound(*inputs)
    for value in bound.attributes.values():
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = want.reshape(-1)[0]
        elif isinstance(value, list):
            value.clear()
    oracle.assert_same(bound(*inputs), want)


def test_the_shape_input_may_change_between_calls() -> None:
    bound = numbaops.operator("ConstantOfShape", value=np.array([3], np.uint8))
    shape = np.array([2, 2])
    for dims in ((2, 2), (0, 4), (5, 1), (2, 2)):
        shape[:] = dims
        oracle.assert_same(bound(shape), np.full(dims, 3, np.uint8))
    strided = np.array([2, 9, 3, 9])[::2]
    oracle.assert_same(bound(strided), np.full((2, 3), 3, np.uint8))
    oracle.assert_same(bound(np.array([2, 3], ">i8")), np.full((2, 3), 3, np.uint8))


# Bound operators as objects


@pytest.mark.parametrize(("op_type", "attributes", "inputs"), OPERATORS)
def test_bound_operators_pickle_and_copy(op_type: str, attributes: dict[str, Any], inputs: tuple[Any, ...]) -> None:
    bound = numbaops.operator(op_type, **attributes)
    want = bound(*inputs)
    for twin in (pickle.loads(pickle.dumps(bound)), copy.copy(bound), copy.deepcopy(bound)):
        oracle.assert_same(twin(*inputs), want)
        assert repr(twin) == repr(bound)


def test_pickles_keep_the_version_and_the_bits() -> None:
    value = oracle.array("float", (1,), [0x7F812345])
    bound = pickle.loads(pickle.dumps(numbaops.operator("ConstantOfShape", 9, value=value)))
    assert "ConstantOfShape-9" in repr(bound)
    oracle.assert_same(bound(np.array([3])), oracle.constant_of_shape((3,), "float", 0x7F812345))


@pytest.mark.parametrize(
    ("op_type", "opset", "attributes", "words"),
    [
        ("Constant", 10, {"value": np.zeros(2, np.int64)}, ["Constant-9", "int64"]),
        ("Constant", None, {"value_float": 1.0}, ["Constant-25", "float"]),
        ("Constant", 13, {"value_strings": ["a"]}, ["Constant-13", "string"]),
        ("ConstantOfShape", 19, {}, ["ConstantOfShape-9", "float", "int64"]),
        ("ConstantOfShape", 23, {"value": np.zeros(1, ml_dtypes.float4_e2m1fn)}, ["ConstantOfShape-23", "float4e2m1"]),
        ("EyeLike", 22, {"dtype": TensorProto.BFLOAT16, "k": -7}, ["EyeLike-22", "bfloat16", "-7"]),
        ("EyeLike", 9, {}, ["EyeLike-9"]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_repr_shows_version_and_types(op_type: str, opset: int | None, attributes: dict[str, Any], words: list[str]) -> None:
    text = repr(numbaops.operator(op_type, opset, **attributes))
    assert [word for word in words if word not in text] == []
    assert len(text) < 500


@pytest.mark.parametrize("domain", ["", "ai.onnx"], ids=["default", "ai.onnx"])
def test_operator_takes_both_names_of_the_domain(domain: str) -> None:
    oracle.assert_same(numbaops.operator("ConstantOfShape", 21, domain)(np.array([2])), np.zeros(2, np.float32))
    oracle.assert_same(numbaops.operator("EyeLike", domain=domain, k=1)(np.zeros((2, 2))), np.array([[0.0, 1.0], [0.0, 0.0]]))


# Without checks of the element type, as the evaluator binds: what onnx.reference runs, runs

UNCHECKED: list[Any] = [
    pytest.param("Constant", 1, {"value": np.array([1, -2])}, (), np.array([1, -2]), id="constant-int64-opset1"),
    pytest.param(
        "ConstantOfShape",
        9,
        {"value": np.array([2], ml_dtypes.bfloat16)},
        (np.array([2]),),
        np.array([2, 2], ml_dtypes.bfloat16),
        id="cos-bfloat16-opset9",
    ),
    pytest.param("ConstantOfShape", 9, {}, (np.array([2, 1], np.int32),), np.zeros((2, 1), np.float32), id="cos-int32-shape-opset9"),
    pytest.param("ConstantOfShape", 21, {"value": np.array([2j])}, (np.array([2]),), np.array([2j, 2j]), id="cos-complex128-opset21"),
    pytest.param(
        "EyeLike", 9, {}, (np.zeros((1, 2), ml_dtypes.bfloat16),), np.array([[1, 0]], ml_dtypes.bfloat16), id="eye-bfloat16-opset9"
    ),
    pytest.param(
        "EyeLike", 22, {"dtype": TensorProto.COMPLEX64, "k": 1}, (np.zeros((1, 2)),), np.array([[0, 1]], np.complex64), id="eye-complex64"
    ),
    pytest.param("EyeLike", 22, {"k": 1}, (np.zeros((1, 2), np.complex128),), np.array([[0, 1]], np.complex128), id="eye-complex128"),
    pytest.param(
        "EyeLike",
        22,
        {"dtype": TensorProto.FLOAT8E4M3FN},
        (np.zeros((2, 1)),),
        np.array([[1], [0]], ml_dtypes.float8_e4m3fn),
        id="eye-float8e4m3fn",
    ),
]


@pytest.mark.parametrize(("op_type", "opset", "attributes", "inputs", "want"), UNCHECKED)
def test_bound_without_type_checks(op_type: str, opset: int, attributes: dict[str, Any], inputs: tuple[Any, ...], want: np.ndarray) -> None:
    row = numbaops.resolve(op_type, opset)
    bound = row.bind(attributes, check_types=False)
    for twin in (bound, pickle.loads(pickle.dumps(bound)), copy.deepcopy(bound)):
        oracle.assert_same(twin(*inputs), want)
    with pytest.raises(numbaops.InvalidTypeError):
        row.bind(attributes)(*inputs)


# Threads


@pytest.mark.parametrize(("op_type", "attributes", "inputs"), OPERATORS)
def test_one_operator_in_eight_threads(op_type: str, attributes: dict[str, Any], inputs: tuple[Any, ...]) -> None:
    bound = numbaops.operator(op_type, **attributes)
    want = bound(*inputs)

    def work(_: int) -> list[np.ndarray]:
        results = []
        for _ in range(20):
            result = bound(*inputs)
            results.append(result.copy())
            result[...] = result.reshape(-1)[:1].copy().reshape(()) if result.size else result
        return results

    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(work, range(8)):
            for result in results:
                oracle.assert_same(result, want)


# Large outputs: beyond the size from which work is split over threads, and beyond the one from which stores stream

needs_jit = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="millions of elements in interpreted kernels take minutes")


def bits_view(values: np.ndarray) -> np.ndarray:
    """Elements as unsigned integers; complex128 as pairs."""
    return values.reshape(-1).view(f"u{min(values.itemsize, 8)}")


@needs_jit
@pytest.mark.parametrize("tail", [0, 1, 3, 61], ids=lambda tail: f"tail{tail}")
@pytest.mark.parametrize("name", ["bool", "float8e5m2", "bfloat16", "float", "double", "int4"])
def test_large_constant_of_shape(name: str, tail: int) -> None:
    row = oracle.TYPES[name]
    count = (5 << 20) // np.dtype(row.dtype).itemsize + tail
    code = CODES[name][0]
    value = oracle.array(name, (1,), [code])
    for _ in range(2):  # the second one may get recycled memory
        result = numbaops.constant_of_shape((count,), value)
        assert (result.shape, result.dtype) == ((count,), np.dtype(row.dtype))
        assert (bits_view(result) == code).all()
        result[...] = oracle.array(name, (1,), [CODES[name][1]])
        del result
    zeros = numbaops.constant_of_shape((count,), oracle.array(name, (1,), [0]))
    assert not bits_view(zeros).any()


@needs_jit
@pytest.mark.parametrize("start", [0, 1, 5], ids=lambda start: f"start{start}")
@pytest.mark.parametrize("name", ["uint8", "float16", "float", "double"])
def test_large_fill_into_part_of_an_array(name: str, start: int) -> None:
    row = oracle.TYPES[name]
    count = (4 << 20) // np.dtype(row.dtype).itemsize + 13
    around = np.zeros(start + count + 7, row.dtype)
    code = CODES[name][1] or 1
    numbaops.constant_of_shape((count,), oracle.array(name, (1,), [code]), out=around[start : start + count])
    bits = bits_view(around)
    assert (bits[start : start + count] == code).all()
    assert not bits[:start].any() and not bits[start + count :].any()


@needs_jit
@pytest.mark.parametrize("name", ["int2", "uint4"])
def test_large_packed_constant_of_shape(name: str) -> None:
    bits = oracle.TYPES[name].bits
    per_byte = 8 // bits
    code = CODES[name][0]
    packed = numbaops.constant_of_shape((3 << 20, per_byte), oracle.array(name, (1,), [code]), packed=True)
    assert packed.data.shape == (3 << 20,)
    assert (packed.data == oracle.pack([code] * per_byte, bits)[0]).all()
    odd = numbaops.constant_of_shape(((3 << 20) * per_byte + 1,), oracle.array(name, (1,), [code]), packed=True)
    assert odd.data.shape == ((3 << 20) + 1,)
    assert (odd.data[:-1] == packed.data[0]).all() and odd.data[-1] == code


@needs_jit
def test_fill_of_more_than_64_mib() -> None:
    count = (66 << 20) // 4 + 3
    around = np.zeros(count + 10, np.float32)
    out = around[3 : 3 + count]
    assert numbaops.constant_of_shape((count,), np.float32(-0.0), out=out) is out
    bits = bits_view(around)
    assert (bits[3 : 3 + count] == 0x80000000).all()
    assert not bits[:3].any() and not bits[3 + count :].any()
    del out
    for code in (0x7F812345, 0x80000000):  # again and again: recycled memory
        result = numbaops.constant_of_shape((count,), oracle.array("float", (1,), [code]))
        assert (bits_view(result) == code).all()
        del result


@needs_jit
@pytest.mark.parametrize(
    ("name", "shape", "k"),
    [
        ("float", (1100, 1300), 0),
        ("float", (1100, 1300), 1299),
        ("float", (1100, 1300), -1099),
        ("double", (1, 700_001), 700_000),
        ("int8", (3_000_001, 1), -3_000_000),
        ("bool", (1733, 1999), -17),
        ("bfloat16", (1733, 1999), 1000),
        ("float", (4200, 4201), 3),
    ],
    ids=lambda value: shape_id(value) if isinstance(value, tuple) else str(value),
)
def test_large_eye_like(name: str, shape: tuple[int, int], k: int) -> None:
    rows = np.arange(max(0, -k), min(shape[0], shape[1] - k))
    for out in (None, np.full(shape, 1, oracle.TYPES[name].dtype)):
        for _ in range(2):
            result = numbaops.eye_like(shape, name, k, out=out)
            assert (result.shape, result.dtype) == (shape, np.dtype(oracle.TYPES[name].dtype))
            bits = bits_view(result).reshape(shape)
            assert (bits[rows, rows + k] == oracle.TYPES[name].one).all()
            assert np.count_nonzero(bits) == len(rows)
            result[...] = 1


@needs_jit
@pytest.mark.parametrize("start", [0, 1, 3], ids=lambda start: f"start{start}")
def test_fill_of_more_than_64_mib_of_128_bit_elements(start: int) -> None:
    count = (65 << 20) // 16 + 1
    around = np.zeros(2 * count + start + 5)  # NumPy aligns complex128 to 8 bytes, so that a cache line may begin within an element
    out = around[start : start + 2 * count].view(np.complex128)
    value = oracle.array("complex128", (1,), [0x7FF8000000000001_8000000000000000])
    numbaops.resolve("ConstantOfShape", 25).bind({"value": value}, check_types=False)(np.array([count]), out=out)
    assert (bits_view(out).reshape(-1, 2) == [0x8000000000000000, 0x7FF8000000000001]).all()
    assert not around[:start].any() and not around[start + 2 * count :].any()


@needs_jit
@pytest.mark.parametrize("tail", [0, 1, 3], ids=lambda tail: f"tail{tail}")
def test_large_outputs_of_128_bit_elements(tail: int) -> None:
    """The operators have no such type, but the evaluator runs what onnx.reference runs."""
    value = oracle.array("complex128", (1,), [0x7FF8000000000001_8000000000000000])
    bound = numbaops.resolve("ConstantOfShape", 25).bind({"value": value}, check_types=False)
    count = (5 << 20) // 16 + tail
    for out in (None, np.ones(count, np.complex128)):
        pairs = bits_view(bound(np.array([count]), out=out)).reshape(-1, 2)
        assert len(pairs) == count
        assert (pairs == [0x8000000000000000, 0x7FF8000000000001]).all()
    rows, columns = 400 + tail, 700
    eye = numbaops.resolve("EyeLike", 22).bind({"k": 299 + tail}, check_types=False)
    for out in (None, np.ones((rows, columns), np.complex128)):
        result = eye(np.empty((rows, columns), np.complex128), out=out)
        assert np.array_equal(result, np.eye(rows, columns, 299 + tail, np.complex128))


# Drawn cases


@given(data=st.data())
def test_drawn_constant_of_shape(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(list(oracle.CONSTANT_OF_SHAPE_TYPES)))
    name = data.draw(st.sampled_from(oracle.CONSTANT_OF_SHAPE_TYPES[version]))
    shape = data.draw(st.lists(st.integers(0, 9), max_size=5))
    code = data.draw(st.integers(0, (1 << oracle.TYPES[name].bits) - 1))
    want = oracle.constant_of_shape(shape, name, code)
    value = oracle.raw_proto(name, (1,), [code])
    oracle.assert_same(numbaops.constant_of_shape(shape, value, opset=version), want)
    oracle.assert_same(numbaops.operator("ConstantOfShape", version, value=value)(np.array(shape, np.int64)), want)
    if oracle.TYPES[name].bits < 8:
        packed = numbaops.constant_of_shape(shape, value, opset=version, packed=True)
        assert packed.data.tobytes() == oracle.pack([code] * want.size, oracle.TYPES[name].bits)


@given(data=st.data())
def test_drawn_eye_like(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(list(oracle.EYE_LIKE_TYPES)))
    name = data.draw(st.sampled_from(oracle.EYE_LIKE_TYPES[version]))
    shape = data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20)))
    k = data.draw(st.one_of(st.integers(-22, 22), st.integers(INT64_MIN, INT64_MAX)))
    want = oracle.eye_like(shape, name, k)
    x = np.empty(shape, oracle.TYPES[name].dtype)
    oracle.assert_same(numbaops.eye_like(x, k=k, opset=version), want)
    oracle.assert_same(numbaops.operator("EyeLike", version, k=k, dtype=oracle.TYPES[name].code)(np.empty(shape, np.bool_)), want)


@given(data=st.data())
def test_drawn_constant(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(list(oracle.CONSTANT_TYPES)))
    name = data.draw(st.sampled_from([name for name in oracle.CONSTANT_TYPES[version] if name != "string"]))
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
    code = st.integers(0, (1 << oracle.TYPES[name].bits) - 1)
    codes = data.draw(st.lists(code, min_size=math.prod(shape), max_size=math.prod(shape)))
    want = oracle.constant(name, shape, codes)
    oracle.assert_same(numbaops.constant(value=oracle.raw_proto(name, shape, codes), opset=version), want)
    oracle.assert_same(numbaops.operator("Constant", version, value=want)(), want)


@given(data=st.data())
def test_drawn_constant_sparse_value(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from([version for version in oracle.CONSTANT_TYPES if version >= 11]))
    name = data.draw(st.sampled_from(oracle.CONSTANT_TYPES[version]))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    places = sorted(data.draw(st.sets(st.integers(0, math.prod(shape) - 1))))
    tame = [code for code in CODES[name] if is_nan_proof(name, code)]
    values = data.draw(st.lists(st.sampled_from(tame), min_size=len(places), max_size=len(places)))
    want = oracle.constant_sparse(name, shape, values, places)
    coordinates = [tuple(int(i) for i in np.unravel_index(place, shape)) for place in places]
    for sparse in (oracle.sparse_proto(name, shape, values, places, 1), oracle.sparse_proto(name, shape, values, coordinates, 2)):
        oracle.assert_same(numbaops.constant(sparse_value=sparse, opset=version), want)


@given(text=st.lists(st.text(max_size=5), max_size=5))
def test_drawn_strings(text: list[str]) -> None:
    encoded = [item.encode() for item in text]
    want = oracle.array("string", (len(text),), text)
    oracle.assert_same(numbaops.constant(value_strings=text), want)
    oracle.assert_same(numbaops.constant(value=TensorProto(data_type=TensorProto.STRING, dims=[len(text)], string_data=encoded)), want)


# The oracle itself


def test_oracle_imports_nothing_of_the_package() -> None:
    assert "numbaops" not in {module.split(".")[0] for module in imported_modules(oracle.__file__)}


def imported_modules(path: str) -> set[str]:
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize(
    ("codes", "bits", "payload"),
    [
        ([], 4, ""),
        ([0xA], 4, "0a"),
        ([0xF, 0x1, 0x8], 4, "1f08"),
        ([3, 1, 2, 0, 3], 2, "2703"),
        ([1, 0, 0, 0x20], 6, "010080"),
        ([0x3F, 0x01], 6, "7f00"),
        ([0x1234, 0x5678], 16, "34127856"),
    ],
    ids=str,
)
def test_oracle_packs_as_worked_out_by_hand(codes: list[int], bits: int, payload: str) -> None:
    assert oracle.pack(codes, bits).hex() == payload
    assert oracle.unpack(bytes.fromhex(payload), bits, len(codes)) == codes


@pytest.mark.parametrize("name", [name for name in oracle.TYPES if name != "string"])
def test_oracle_one_is_one(name: str) -> None:
    row = oracle.TYPES[name]
    assert oracle.codes_of(np.array([1], row.dtype), name) == [row.one]
    if not oracle.onnx_has(name):
        pytest.skip(f"this onnx has no element type {name} yet, or another dtype for it")
    if name not in ("float6e2m3", "float6e3m2", "complex64", "complex128"):  # older onnx cannot read these from typed fields
        assert numpy_helper.to_array(oracle.typed_proto(name, (1,), [row.one])).astype(complex) == 1
    assert numpy_helper.to_array(oracle.raw_proto(name, (1,), [row.one])).astype(complex) == 1
