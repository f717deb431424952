"""The table of element types: its facts against onnx, ml_dtypes and a decoder made from each float row."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import oracle
from numbaops import dtypes
from numbaops.dtypes import BY_CODE, BY_DTYPE, BY_NAME, ELEMENT_TYPES, ElementType, element_type, of_dtype
from numbaops.errors import InvalidTypeError

ROWS = [pytest.param(row, id=row.name) for row in ELEMENT_TYPES]
FLOATS = [pytest.param(row, id=row.name) for row in ELEMENT_TYPES if row.format is not None]
SMALL_FLOATS = [pytest.param(row, id=row.name) for row in ELEMENT_TYPES if row.format is not None and row.bits <= 16]


def test_table_has_the_28_types_once_each() -> None:
    assert [row.code for row in ELEMENT_TYPES] == list(range(1, 29))
    assert [row.name for row in ELEMENT_TYPES] == list(oracle.TYPES)
    assert len(BY_CODE) == len(BY_NAME) == len(BY_DTYPE) == 28


@pytest.mark.parametrize("row", ROWS)
def test_row_agrees_with_the_oracle(row: ElementType) -> None:
    want = oracle.TYPES[row.name]
    assert (row.name, row.code, row.bits, row.dtype) == (want.name, want.code, want.bits, np.dtype(want.dtype))


@pytest.mark.parametrize("row", ROWS)
def test_row_agrees_with_onnx(row: ElementType) -> None:
    if not oracle.onnx_has(row.name):
        pytest.skip(f"this onnx has no element type {row.name} yet, or another dtype for it")
    assert TensorProto.DataType.Name(row.code) == row.name.upper()
    assert helper.tensor_dtype_to_np_dtype(row.code) == row.dtype
    if row.name != "string":
        assert helper.np_dtype_to_tensor_dtype(row.dtype) == row.code


def test_onnx_has_no_type_that_the_table_lacks() -> None:
    new = [f"{TensorProto.DataType.Name(code)} = {code}" for code in TensorProto.DataType.values() if code not in BY_CODE and code != 0]
    assert not new, f"the installed onnx has element types without a row in ELEMENT_TYPES: {new}"


@pytest.mark.parametrize("row", ROWS)
def test_widths_and_kinds_follow_the_dtype(row: ElementType) -> None:
    if row.name == "string":
        assert (row.bits, row.packed, row.kind, row.format) == (0, False, "string", None)
        return
    assert row.dtype.itemsize * 8 == max(row.bits, 8)
    assert row.packed == (row.bits < 8)
    assert (row.kind == "float") == (row.format is not None)
    if row.kind in ("signed", "unsigned"):
        info = ml_dtypes.iinfo(row.dtype)
        assert info.bits == row.bits
        assert (info.min < 0) == (row.kind == "signed")
    assert (row.kind == "bool") == (row.dtype == np.bool_)
    assert (row.kind == "complex") == (row.dtype.kind == "c")


@pytest.mark.parametrize(
    ("name", "count", "size"),
    [
        ("int2", 0, 0),
        ("int2", 1, 1),
        ("int2", 4, 1),
        ("int2", 5, 2),
        ("int4", 1, 1),
        ("int4", 2, 1),
        ("int4", 3, 2),
        ("float6e2m3", 1, 1),
        ("float6e2m3", 3, 3),
        ("float6e2m3", 4, 3),
        ("float6e2m3", 5, 4),
        ("int8", 3, 3),
        ("complex128", 3, 48),
        ("int4", 2**70, 2**69),
    ],
    ids=lambda value: str(value),
)
def test_packed_size(name: str, count: int, size: int) -> None:
    assert BY_NAME[name].packed_size(count) == size


# Float formats


def decode(row: ElementType, code: int) -> Fraction | str:
    """The exact value of a code, or ``"nan"``, ``"inf"``, ``"-inf"``, ``"-0"``; from the fields of the format row alone."""
    layout = row.format
    assert layout is not None
    mantissa = code & ((1 << layout.mantissa_bits) - 1)
    exponent = (code >> layout.mantissa_bits) & ((1 << layout.exponent_bits) - 1)
    negative = bool(code >> (layout.mantissa_bits + layout.exponent_bits))
    magnitude = code & ((1 << (layout.mantissa_bits + layout.exponent_bits)) - 1)
    top = exponent == (1 << layout.exponent_bits) - 1
    if layout.nan == "ieee" and top and mantissa:
        return "nan"
    if layout.nan == "all_ones" and magnitude == (1 << (layout.mantissa_bits + layout.exponent_bits)) - 1:
        return "nan"
    if layout.nan == "negative_zero" and negative and magnitude == 0:
        return "nan"
    if layout.infinities and top and mantissa == 0:
        return "-inf" if negative else "inf"
    if exponent == 0 and layout.zero:  # subnormal
        value = Fraction(mantissa) * Fraction(2) ** (1 - layout.bias - layout.mantissa_bits)
    else:
        value = (Fraction(mantissa) / 2**layout.mantissa_bits + 1) * Fraction(2) ** (exponent - layout.bias)
    if value == 0 and negative:
        assert layout.negative_zero, "a code for a negative zero in a format that has none"
        return "-0"
    return -value if negative else value


def exact(value: float) -> Fraction | str:
    if np.isnan(value):
        return "nan"
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    return "-0" if value == 0 and np.signbit(value) else Fraction(value)


@pytest.mark.parametrize("row", FLOATS)
def test_format_fields_fill_the_width(row: ElementType) -> None:
    assert row.format is not None
    assert row.format.exponent_bits + row.format.mantissa_bits + row.format.signed == row.bits
    assert row.format.source.startswith("https://")


@pytest.mark.parametrize("row", SMALL_FLOATS)
def test_format_decodes_every_code_as_the_dtype_does(row: ElementType) -> None:
    codes = np.arange(1 << row.bits, dtype=f"u{row.dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = codes.view(row.dtype).astype(np.float64)
    wrong = {hex(code): (decode(row, code), value) for code, value in enumerate(values.tolist()) if decode(row, code) != exact(value)}
    assert not wrong


@pytest.mark.parametrize("name", ["float", "double"])
def test_format_decodes_edges_of_the_wide_types(name: str) -> None:
    row = BY_NAME[name]
    assert row.format is not None
    one, sign = 1 << row.format.mantissa_bits, 1 << (row.bits - 1)
    infinity = ((1 << row.format.exponent_bits) - 1) * one
    edges = [0, 1, one - 1, one, one + 1, row.format.bias * one, infinity - 1, infinity, infinity + 1, infinity + one - 1]
    codes = np.array([code + high for high in (0, sign) for code in edges], f"u{row.dtype.itemsize}")
    assert [decode(row, int(code)) for code in codes] == [exact(float(value)) for value in codes.view(row.dtype)]


@pytest.mark.parametrize("row", FLOATS)
def test_format_limits_are_those_of_finfo(row: ElementType) -> None:
    info = ml_dtypes.finfo(row.dtype)
    layout = row.format
    assert layout is not None
    unsigned_dtype = f"u{row.dtype.itemsize}"

    def code(value: object) -> int:
        return int(np.array(value, row.dtype).view(unsigned_dtype))

    assert (info.nmant, info.iexp) == (layout.mantissa_bits, layout.exponent_bits)
    assert decode(row, code(info.max)) == exact(float(info.max))
    assert decode(row, code(info.smallest_normal)) == exact(float(info.smallest_normal))
    assert decode(row, code(info.smallest_subnormal)) == exact(float(info.smallest_subnormal))
    after_largest = decode(row, code(info.max) + 1)
    assert after_largest in ("inf", "nan", "-0"), "a finite value above finfo.max"
    assert decode(row, oracle.TYPES[row.name].one) == 1


# Look-ups


@pytest.mark.parametrize("row", ROWS)
def test_look_up_by_every_key(row: ElementType) -> None:
    assert BY_CODE[row.code] is BY_NAME[row.name] is BY_DTYPE[row.dtype] is row
    keys = [
        row,
        row.name,
        row.name.upper(),
        f"tensor({row.name})",
        f" Tensor({row.name}) ",
        row.code,
        np.int64(row.code),
        np.uint8(row.code),
    ]
    keys += [row.dtype, row.dtype.type]
    for key in keys:
        assert element_type(key) is row, key
    if row.name != "string":
        assert element_type(row.dtype.name) is row
        assert element_type(row.dtype.name.upper()) is row


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (float, "double"),
        (int, "int64"),
        (bool, "bool"),
        (complex, "complex128"),
        (str, "string"),
        (object, "string"),
        ("float32", "float"),
        ("float64", "double"),
        ("float8_e8m0fnu", "float8e8m0"),
        (np.dtype("<U5"), "string"),
        (np.dtype("S3"), "string"),
        (np.dtypes.StringDType(), "string"),
        (np.dtype(">f4"), "float"),
        (np.dtype(">i8"), "int64"),
        (np.dtype(np.longlong), "int64"),
        (np.dtype(np.ulonglong), "uint64"),
        (TensorProto.BFLOAT16, "bfloat16"),
    ],
    ids=str,
)
def test_look_up_by_other_spellings(key: object, name: str) -> None:
    assert element_type(key) is BY_NAME[name]


@pytest.mark.parametrize(
    "key",
    [0, -1, 29, 99, 2**70, np.int64(0), True, False, None, "", "floats", "tensor()", "undefined", "float33", 1.0, [], (), object()],
    ids=lambda key: "object" if type(key) is object else repr(key),
)
def test_look_up_of_what_is_no_element_type(key: object) -> None:
    with pytest.raises(InvalidTypeError) as caught:
        element_type(key)
    assert isinstance(caught.value, TypeError)
    if type(key) is not object:
        assert str(key) in str(caught.value)


@pytest.mark.parametrize(
    "dtype",
    [np.dtype("V4"), np.dtype("M8[s]"), np.dtype("m8[ns]"), np.dtype([("a", np.int8)]), np.dtype(ml_dtypes.float8_e3m4)],
    ids=str,
)
def test_dtype_that_onnx_lacks(dtype: np.dtype) -> None:
    for look_up in (of_dtype, element_type):
        with pytest.raises(InvalidTypeError, match="allowed: float, uint8"):
            look_up(dtype)


def test_error_lists_what_is_allowed() -> None:
    with pytest.raises(InvalidTypeError, match=r"99.*1 to 28"):
        element_type(99)
    with pytest.raises(InvalidTypeError, match=r"'half'.*float16"):
        element_type("half")


@pytest.mark.parametrize("row", ROWS)
def test_rows_are_singletons_through_pickle_and_copy(row: ElementType) -> None:
    assert pickle.loads(pickle.dumps(row)) is row
    assert copy.copy(row) is row
    assert copy.deepcopy(row) is row
    assert str(row) == f"{row}" == row.name


def test_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        dtypes.BY_NAME["float"] = BY_NAME["double"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        BY_NAME["float"].bits = 16  # type: ignore[misc]
