"""Bad input to the functions and bound operators: class, fields, text, and nothing done before the error."""

from __future__ import annotations

import functools
import itertools
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, helper

import numbaops
import oracle
from numbaops.errors import (
    AllocationError,
    EvaluationError,
    InvalidTypeError,
    InvalidValueError,
    NumbaopsError,
    UnsupportedError,
)

BUILT_IN = {
    InvalidValueError: ValueError,
    InvalidTypeError: TypeError,
    UnsupportedError: NotImplementedError,
    EvaluationError: RuntimeError,
    AllocationError: MemoryError,
}
EYE_INPUT = np.zeros((2, 3), np.float32)
SHAPE = np.array([2, 3])


def assert_error(
    call: Callable[[], Any],
    kind: type[NumbaopsError] | tuple[type[NumbaopsError], ...],
    op_type: str,
    since_version: int | None,
    attribute: str | None,
    *words: str,
) -> NumbaopsError:
    """The call raises our class and the built-in one, with these fields and these words in its text."""
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert isinstance(error, BUILT_IN[type(error)])
    assert (error.op_type, error.since_version, error.attribute) == (op_type, since_version, attribute)
    text = str(error)
    assert text.startswith(f"{op_type}-{since_version}: " if since_version else f"{op_type}: ")
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} not in {text!r}"
    return error


def both(op_type: str, opset: int | None, attributes: dict[str, Any]) -> Iterator[Callable[[], Any]]:
    """Binding the operator, and calling the plain function, with these attributes."""
    functions: dict[str, Callable[..., Any]] = {
        "Constant": numbaops.constant,
        "ConstantOfShape": lambda **kwargs: numbaops.constant_of_shape((2, 3), **kwargs),
        "EyeLike": lambda **kwargs: numbaops.eye_like(EYE_INPUT, **kwargs),
    }
    yield lambda: numbaops.operator(op_type, opset, **attributes)
    yield lambda: functions[op_type](**attributes, opset=opset)


# The classes


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.__name__)
def test_classes_derive_from_ours_and_the_built_in(kind: type[NumbaopsError]) -> None:
    assert issubclass(kind, NumbaopsError) and issubclass(kind, BUILT_IN[kind])
    error = kind("is wrong", op_type="EyeLike", since_version=9, node_name="n1", attribute="k")
    assert (error.op_type, error.since_version, error.node_name, error.attribute) == ("EyeLike", 9, "n1", "k")
    assert str(error) == "EyeLike-9 (node 'n1'): is wrong"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "is wrong"),
        ({"op_type": "Constant"}, "Constant: is wrong"),
        ({"op_type": "Constant", "since_version": 13}, "Constant-13: is wrong"),
        ({"op_type": "Constant", "node_name": "n"}, "Constant (node 'n'): is wrong"),
        ({"node_name": "n"}, " (node 'n'): is wrong"),
        ({"since_version": 13}, "is wrong"),
    ],
    ids=str,
)
def test_text_names_what_is_known(fields: dict[str, Any], text: str) -> None:
    assert str(InvalidValueError("is wrong", **fields)) == text


def test_errors_pickle() -> None:
    with pytest.raises(InvalidValueError) as caught:
        numbaops.constant_of_shape((-1,))
    twin = pickle.loads(pickle.dumps(caught.value))
    assert type(twin) is InvalidValueError
    assert str(twin) == str(caught.value)
    assert twin.__dict__ == caught.value.__dict__


# Constant: attributes


@pytest.mark.parametrize("version", oracle.CONSTANT_TYPES)
def test_constant_without_a_value(version: int) -> None:
    for call in both("Constant", version, {}):
        assert_error(call, InvalidValueError, "Constant", version, "value" if version < 11 else None, "value")


def test_constant_without_a_value_lists_what_is_allowed() -> None:
    for call in both("Constant", None, {}):
        assert_error(call, InvalidValueError, "Constant", 25, None, "sparse_value", "value_float", "value_ints", "value_strings")


CONSTANT_VALUES: dict[str, Any] = {
    "value": np.zeros(1, np.float32),
    "sparse_value": oracle.sparse_proto("float", (3,), [1], [0], 1),
    "value_float": 1.0,
    "value_floats": [1.0],
    "value_int": 1,
    "value_ints": [1],
    "value_string": "a",
    "value_strings": ["a"],
}
ATTRIBUTES_SINCE = {1: {"value"}, 9: {"value"}, 11: {"value", "sparse_value"}, 12: set(CONSTANT_VALUES)}


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(*pair, id="+".join(pair)) for pair in itertools.combinations(CONSTANT_VALUES, 2)]
)
def test_constant_with_two_values(first: str, second: str) -> None:
    for call in both("Constant", 13, {first: CONSTANT_VALUES[first], second: CONSTANT_VALUES[second]}):
        assert_error(call, InvalidValueError, "Constant", 13, None, first, second, "one")


@pytest.mark.parametrize(
    ("attribute", "opset", "since"),
    [
        pytest.param(attribute, opset, since, id=f"{attribute}-opset{opset}")
        for opset, since in ((1, 1), (8, 1), (9, 9), (10, 9), (11, 11))
        for attribute in CONSTANT_VALUES
        if attribute not in ATTRIBUTES_SINCE[since]
    ],
)
def test_constant_attribute_that_the_version_lacks(attribute: str, opset: int, since: int) -> None:
    for call in both("Constant", opset, {attribute: CONSTANT_VALUES[attribute]}):
        assert_error(call, InvalidValueError, "Constant", since, attribute, attribute, *ATTRIBUTES_SINCE[since])


@pytest.mark.parametrize(
    ("op_type", "attribute", "version", "allowed"),
    [
        ("Constant", "values", 25, ["value", "sparse_value"]),
        ("Constant", "dtype", 25, ["value", "sparse_value"]),
        ("ConstantOfShape", "dtype", 25, ["value"]),
        ("ConstantOfShape", "k", 25, ["value"]),
        ("EyeLike", "value", 22, ["dtype", "k"]),
        ("EyeLike", "K", 22, ["dtype", "k"]),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_operator_with_an_unknown_attribute(op_type: str, attribute: str, version: int, allowed: list[str]) -> None:
    valid = {"value": np.zeros(1, np.float32)} if op_type == "Constant" else {}
    assert_error(
        lambda: numbaops.operator(op_type, **valid, **{attribute: 1}),
        InvalidValueError,
        op_type,
        version,
        attribute,
        repr(attribute),
        *allowed,
    )


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("value_float", "1"),
        ("value_float", [1.0]),
        ("value_float", 1j),
        ("value_floats", 1.0),
        ("value_floats", ["a"]),
        ("value_floats", "12"),
        ("value_floats", [[1.0]]),
        ("value_floats", [None]),
        ("value_int", 1.0),
        ("value_int", "1"),
        ("value_int", [1]),
        ("value_ints", 1),
        ("value_ints", [1.0]),
        ("value_ints", ["1"]),
        ("value_ints", [[1]]),
        ("value_string", 1),
        ("value_string", ["a"]),
        ("value_strings", "abc"),
        ("value_strings", b"abc"),
        ("value_strings", [1]),
        ("value_strings", 1),
        ("sparse_value", np.zeros(3, np.float32)),
        ("sparse_value", [1, 2]),
        ("sparse_value", TensorProto(data_type=1, dims=[1], float_data=[1.0])),
        ("value", object()),
        ("value", {"a": 1}),
        ("value", [1.0]),
        ("value", SparseTensorProto(dims=[3])),
    ],
    ids=lambda value: f"{value!r:.20}" if not isinstance(value, (TensorProto, SparseTensorProto)) else type(value).__name__,
)
def test_constant_with_a_value_of_the_wrong_kind(attribute: str, value: Any) -> None:
    for call in both("Constant", 13, {attribute: value}):
        assert_error(call, InvalidTypeError, "Constant", 13, attribute, attribute)


@pytest.mark.parametrize("dtype", ["M8[s]", "V3", "m8[ns]"])
def test_constant_of_a_dtype_that_onnx_lacks(dtype: str) -> None:
    for call in both("Constant", 13, {"value": np.zeros(2, dtype)}):
        assert_error(call, InvalidTypeError, "Constant", 13, "value", str(np.dtype(dtype)), "allow", "float", "uint2")


@pytest.mark.parametrize("value", [1e39, -1e300, 10**400], ids=["1e39", "-1e300", "10^400"])
def test_number_beyond_float32(value: Any) -> None:
    for attributes in ({"value_float": value}, {"value_floats": [1.0, value]}):
        for call in both("Constant", 13, attributes):
            assert_error(call, InvalidValueError, "Constant", 13, next(iter(attributes)), "float32")
    if isinstance(value, float):
        for op_type, since in (("Constant", 25), ("ConstantOfShape", 25)):
            for call in both(op_type, None, {"value": value}):
                assert_error(call, InvalidValueError, op_type, since, "value", str(value), "float32")


@pytest.mark.parametrize(
    "attributes",
    [
        {"value_string": b"\xff"},
        {"value_strings": [b"a", b"\xff"]},
        {"value": np.array([b"\xff"], object)},
        {"value": TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"])},
    ],
    ids=["value_string", "value_strings", "array", "proto"],
)
def test_bytes_that_are_no_utf8(attributes: dict[str, Any]) -> None:
    for call in both("Constant", 13, attributes):
        assert_error(call, InvalidValueError, "Constant", 13, next(iter(attributes)), "UTF-8")


def test_array_of_objects_that_are_no_strings() -> None:
    for call in both("Constant", 13, {"value": np.array(["a", 1], object)}):
        assert_error(call, InvalidTypeError, "Constant", 13, "value", "int", "str")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**70], ids=str)
def test_constant_int_beyond_int64(value: int) -> None:
    for attributes in ({"value_int": value}, {"value_ints": [1, value]}):
        for call in both("Constant", 13, attributes):
            assert_error(call, InvalidValueError, "Constant", 13, next(iter(attributes)), str(value), str(2**63 - 1))


# Element types


def lacking(table: dict[int, tuple[str, ...]]) -> list[Any]:
    return [
        pytest.param(version, name, id=f"{name}-opset{version}")
        for version, names in table.items()
        for name in oracle.TYPES
        if name not in names
    ]


def one_element(name: str, dims: tuple[int, ...] = (1,)) -> np.ndarray:
    return oracle.array(name, dims, ["a" if name == "string" else oracle.TYPES[name].one])


@pytest.mark.parametrize(("version", "name"), lacking(oracle.CONSTANT_TYPES))
def test_constant_of_a_type_that_the_version_lacks(version: int, name: str) -> None:
    forms = [one_element(name), oracle.typed_proto(name, (1,), oracle.codes_of(one_element(name), name))]
    for value in forms:
        for call in both("Constant", version, {"value": value}):
            assert_error(call, InvalidTypeError, "Constant", version, "value", name, "allow", *oracle.CONSTANT_TYPES[version])
    if version >= 11:
        sparse = oracle.sparse_proto(name, (3,), oracle.codes_of(one_element(name), name), [1], 1)
        for call in both("Constant", version, {"sparse_value": sparse}):
            assert_error(call, InvalidTypeError, "Constant", version, "sparse_value", name, "allow")


@pytest.mark.parametrize(("version", "name"), lacking(oracle.CONSTANT_OF_SHAPE_TYPES))
def test_constant_of_shape_of_a_type_that_the_version_lacks(version: int, name: str) -> None:
    for value in (one_element(name), one_element(name, ()), oracle.typed_proto(name, (1,), oracle.codes_of(one_element(name), name))):
        for call in both("ConstantOfShape", version, {"value": value}):
            assert_error(
                call, InvalidTypeError, "ConstantOfShape", version, "value", name, "allow", *oracle.CONSTANT_OF_SHAPE_TYPES[version]
            )


@pytest.mark.parametrize(("version", "name"), lacking(oracle.EYE_LIKE_TYPES))
def test_eye_like_of_a_type_that_the_version_lacks(version: int, name: str) -> None:
    row = oracle.TYPES[name]
    for call in both("EyeLike", version, {"dtype": row.code}):
        assert_error(call, InvalidTypeError, "EyeLike", version, "dtype", name, "allow", *oracle.EYE_LIKE_TYPES[version])
    x = np.empty((2, 3), row.dtype)
    for attributes in ({}, {"dtype": TensorProto.FLOAT}):  # the input's type must be allowed as well
        assert_error(
            lambda attributes=attributes: numbaops.operator("EyeLike", version, **attributes)(x),
            InvalidTypeError,
            "EyeLike",
            version,
            "x",
            name,
            "allow",
        )
        with pytest.raises(InvalidTypeError, match=f"EyeLike-{version}: .*{name}"):
            numbaops.eye_like(x, **attributes, opset=version)


@pytest.mark.parametrize("dtype", [0, 29, 99, -1, 2**70, "half", "", "M8[s]", np.dtype("V2")], ids=repr)
def test_eye_like_dtype_that_is_no_element_type(dtype: Any) -> None:
    for call in both("EyeLike", 22, {"dtype": dtype}):
        assert_error(call, InvalidTypeError, "EyeLike", 22, "dtype", "allow" if not isinstance(dtype, int) else str(dtype))


@pytest.mark.parametrize("dtype", [1.0, True, [1], np.array([1, 2])], ids=repr)
def test_eye_like_dtype_of_the_wrong_kind(dtype: Any) -> None:
    for call in both("EyeLike", 22, {"dtype": dtype}):
        assert_error(call, InvalidTypeError, "EyeLike", 22, "dtype")


@pytest.mark.parametrize(
    "k", [1.5, 1.0, 0.0, "1", [1], True, False, np.False_, np.array([1, 2]), np.array(0.0), 1j, np.float64(2)], ids=repr
)
def test_eye_like_k_of_the_wrong_type(k: Any) -> None:
    for call in both("EyeLike", 22, {"k": k}):
        assert_error(call, InvalidTypeError, "EyeLike", 22, "k", repr(k), "int")


@pytest.mark.parametrize("k", [2**63, -(2**63) - 1, 2**100], ids=str)
def test_eye_like_k_beyond_int64(k: int) -> None:
    for call in both("EyeLike", 22, {"k": k}):
        assert_error(call, InvalidValueError, "EyeLike", 22, "k", str(k), str(2**63 - 1))


# Opsets


@pytest.mark.parametrize(
    ("op_type", "opset", "first"), [("ConstantOfShape", 8, 9), ("ConstantOfShape", 1, 9), ("EyeLike", 8, 9), ("EyeLike", 1, 9)], ids=str
)
def test_opset_before_the_first_version(op_type: str, opset: int, first: int) -> None:
    for call in both(op_type, opset, {}):
        assert_error(call, UnsupportedError, op_type, None, "opset", f"opset {opset}", f"since opset {first}")


@pytest.mark.parametrize("op_type", ["Constant", "ConstantOfShape", "EyeLike"])
@pytest.mark.parametrize(
    ("opset", "kind"),
    [(0, InvalidValueError), (-1, InvalidValueError), (True, InvalidTypeError), (1.5, InvalidTypeError), ("13", InvalidTypeError)],
    ids=str,
)
def test_opset_that_is_none(op_type: str, opset: Any, kind: type[NumbaopsError]) -> None:
    attributes = {"value_int": 1} if op_type == "Constant" else {}
    for call in both(op_type, opset, attributes):
        assert_error(call, kind, op_type, None, "opset", repr(opset), "allow")


def test_operator_of_an_unknown_name_or_domain() -> None:
    with pytest.raises(UnsupportedError, match=r"'Relu'.*Constant, ConstantOfShape, EyeLike"):
        numbaops.operator("Relu")
    with pytest.raises(UnsupportedError, match=r"'ai\.onnx\.ml'"):
        numbaops.operator("Constant", 13, "ai.onnx.ml", value_int=1)


# ConstantOfShape: the shape


def shape_calls(shape: Any) -> Iterator[Callable[[], Any]]:
    yield lambda: numbaops.constant_of_shape(shape)
    yield lambda: numbaops.constant_of_shape(shape, np.int8(1), opset=21)
    yield lambda: numbaops.constant_of_shape(shape, out=np.zeros(3, np.float32))
    yield lambda: numbaops.constant_of_shape(shape, ml_dtypes.int4(1), packed=True)


@pytest.mark.parametrize("shape", [(-1,), (2, -3), (0, -1), (-1, -1), (-(2**63),), (-1, 2**40)], ids=str)
def test_negative_dimension(shape: tuple[int, ...]) -> None:
    negative = str(next(dim for dim in shape if dim < 0))
    for form in (shape, list(shape), np.array(shape, np.int64)):
        for call in shape_calls(form):
            with pytest.raises(InvalidValueError, match=rf"^ConstantOfShape-\d+: .*{negative}.*negative"):
                call()
    for bound in (numbaops.operator("ConstantOfShape"), numbaops.operator("ConstantOfShape", value=np.zeros(1, ml_dtypes.int2))):
        call = lambda bound=bound: bound(np.array(shape, np.int64))  # noqa: E731
        assert_error(call, InvalidValueError, "ConstantOfShape", 25, "shape", negative, "negative")


@pytest.mark.parametrize(
    "shape",
    [(2**62,), (2**31, 2**31), (2**32, 2**32), (2**33, 2**31), (2**63 - 1,), (2**21,) * 3, (2**63 - 1, 2**63 - 1), (3, 2**61)],
    ids=lambda shape: shape_id(shape),
)
def test_shape_that_overflows(shape: tuple[int, ...]) -> None:
    for form in (shape, list(shape), np.array(shape, np.int64)):
        with pytest.raises(InvalidValueError, match=r"^ConstantOfShape-25: "):
            numbaops.constant_of_shape(form)
    assert_error(
        lambda: numbaops.operator("ConstantOfShape")(np.array(shape, np.int64)),
        InvalidValueError,
        "ConstantOfShape",
        25,
        "shape",
        str(shape[0]),
    )


def shape_id(shape: tuple[int, ...]) -> str:
    return "x".join(f"2^{dim.bit_length() - 1}" if dim & (dim - 1) == 0 else str(dim) for dim in shape)


@pytest.mark.parametrize("shape", [(2**62, 0), (0, 2**63 - 1), (2**40, 2**40, 0)], ids=str)
def test_zero_dimension_beside_large_ones_is_an_empty_array_or_an_error(shape: tuple[int, ...]) -> None:
    """NumPy refuses some of these shapes although they hold nothing; what it can make, we make."""
    try:
        want = np.zeros(shape, np.float32)
    except ValueError:
        with pytest.raises(InvalidValueError, match=r"^ConstantOfShape-25: "):
            numbaops.constant_of_shape(shape)
    else:
        assert numbaops.constant_of_shape(shape).shape == want.shape


@pytest.mark.parametrize("dim", [2**63, 2**64 + 1, 2**100, -(2**63) - 1], ids=str)
def test_dimension_beyond_int64(dim: int) -> None:
    for form in ((dim,), [2, dim]):
        with pytest.raises(InvalidValueError, match=rf"^ConstantOfShape-25: .*{dim}"):
            numbaops.constant_of_shape(form)


@pytest.mark.parametrize(
    "shape",
    [
        (2.0,),
        [2, 3.5],
        ("2",),
        [None],
        (True,),
        (np.True_, 2),
        [[2, 3]],
        ((),),
        "23",
        b"23",
        {2: 3},
        {2, 3},
        5,
        2.0,
        None,
        np.array([2, 3], np.int32),
        np.array([2, 3], np.uint64),
        np.array([2, 3], np.uint8),
        np.array([2.0, 3.0]),
        np.array([True]),
        np.array(["2"]),
        np.array([2, 3], object),
        np.empty(0, np.float64),
        (np.float64(2),),
    ],
    ids=lambda shape: f"{type(shape).__name__}-{getattr(shape, 'dtype', '')}{shape}",
)
def test_shape_that_is_not_int64(shape: Any) -> None:
    for call in shape_calls(shape):
        with pytest.raises(InvalidTypeError, match=r"(?s)^ConstantOfShape-\d+: .*allowed: .*int") as caught:
            call()
        assert caught.value.op_type == "ConstantOfShape"
    if isinstance(shape, np.ndarray):
        bound = numbaops.operator("ConstantOfShape")
        assert_error(lambda: bound(shape), InvalidTypeError, "ConstantOfShape", 25, "shape", "int64", str(shape.dtype))


def test_shape_that_is_a_generator_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"^ConstantOfShape-25: .*generator"):
        numbaops.constant_of_shape(dim for dim in (2, 3))


@pytest.mark.parametrize(
    "shape", [np.array([[2, 3]]), np.array(3), np.zeros((0, 2), np.int64), np.zeros((1, 1, 1), np.int64)], ids=lambda s: f"{s.shape}"
)
def test_shape_that_is_not_one_dimensional(shape: np.ndarray) -> None:
    for call in shape_calls(shape):
        with pytest.raises(InvalidValueError, match=r"^ConstantOfShape-\d+: .*rank 1"):
            call()
    bound = numbaops.operator("ConstantOfShape")
    assert_error(lambda: bound(shape), InvalidValueError, "ConstantOfShape", 25, "shape", str(shape.ndim), "rank 1")


def test_shape_of_more_dimensions_than_numpy_has() -> None:
    for form in ((1,) * 65, np.ones(65, np.int64)):
        with pytest.raises(InvalidValueError, match=r"^ConstantOfShape-25: .*64 dimensions"):
            numbaops.constant_of_shape(form)
    assert numbaops.constant_of_shape((1,) * 64).shape == (1,) * 64


@pytest.mark.parametrize("inputs", [(), (SHAPE, SHAPE)], ids=["none", "two"])
def test_wrong_number_of_inputs(inputs: tuple[Any, ...]) -> None:
    for bound in (numbaops.operator("ConstantOfShape"), numbaops.operator("EyeLike")):
        with pytest.raises(TypeError):
            bound(*inputs)
    with pytest.raises(TypeError):
        numbaops.operator("Constant", value_int=1)(SHAPE)


# ConstantOfShape: the value


@pytest.mark.parametrize("dims", [(0,), (2,), (1, 2), (2, 0), (3, 1, 1)], ids=str)
@pytest.mark.parametrize("name", ["float", "int4", "bool"])
def test_value_without_exactly_one_element(name: str, dims: tuple[int, ...]) -> None:
    count = int(np.prod(dims))
    codes = [oracle.TYPES[name].one] * count
    for value in (oracle.array(name, dims, codes), oracle.raw_proto(name, dims, codes), oracle.typed_proto(name, dims, codes)):
        for call in both("ConstantOfShape", 21, {"value": value}):
            assert_error(call, InvalidValueError, "ConstantOfShape", 21, "value", str(count), "exactly one")


@pytest.mark.parametrize(
    "value",
    ["a", b"a", object(), {}, np.array("a"), 1j, np.complex64(1), np.zeros(1, "M8[s]")],
    ids=lambda v: f"{type(v).__name__}-{v!r:.12}",
)
def test_value_of_a_type_that_no_version_has(value: Any) -> None:
    for call in both("ConstantOfShape", None, {"value": value}):
        assert_error(call, InvalidTypeError, "ConstantOfShape", 25, "value", "allow")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64], ids=str)
def test_python_int_value_beyond_int64(value: int) -> None:
    for call in both("ConstantOfShape", None, {"value": value}):
        assert_error(call, InvalidValueError, "ConstantOfShape", 25, "value", str(value), "int64")


def test_packed_string() -> None:
    bound = numbaops.operator("Constant", value_string="a")
    assert_error(lambda: bound(packed=True), InvalidTypeError, "Constant", 25, "packed", "string")


def test_packed_and_out_exclude_each_other() -> None:
    out = np.zeros((2, 3), ml_dtypes.int4)
    with pytest.raises(
        (InvalidTypeError, InvalidValueError), match=r"^ConstantOfShape-25: .*packed.*out|^ConstantOfShape-25: .*out.*packed"
    ):
        numbaops.constant_of_shape((2, 3), ml_dtypes.int4(1), packed=True, out=out)
    assert not out.view(np.uint8).any()
    with pytest.raises((InvalidTypeError, InvalidValueError), match=r"^Constant-25: .*out.*packed"):
        numbaops.constant(value=np.ones((2, 3), ml_dtypes.int4), packed=True, out=out)
    assert not out.view(np.uint8).any()


# EyeLike: the input


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((), np.float32),
        np.zeros(3, np.float32),
        np.zeros(0, np.float32),
        np.zeros((1, 2, 3), np.float32),
        np.zeros((2, 2, 2, 2), np.int64),
    ],
    ids=lambda x: f"rank{x.ndim}-{x.size}",
)
def test_eye_like_of_another_rank(x: np.ndarray) -> None:
    for opset, since in ((9, 9), (21, 9), (22, 22), (None, 22)):
        call = lambda opset=opset: numbaops.operator("EyeLike", opset)(x)  # noqa: E731
        assert_error(call, InvalidValueError, "EyeLike", since, "x", f"rank {x.ndim}", "rank 2")
        with pytest.raises(InvalidValueError, match=rf"^EyeLike-{since}: .*{x.ndim}"):
            numbaops.eye_like(x, opset=opset)


@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 3), [1], [1, 2, 3, 4]], ids=repr)
def test_eye_like_of_a_shape_of_another_rank(shape: Any) -> None:
    with pytest.raises(InvalidValueError, match=rf"^EyeLike-22: .*{len(shape)}"):
        numbaops.eye_like(shape)


@pytest.mark.parametrize("shape", [(-1, 2), (2, -1), (2**62, 2), (2**32, 2**32), (2, 2**63)], ids=str)
def test_eye_like_of_a_negative_or_overflowing_shape(shape: tuple[int, int]) -> None:
    with pytest.raises(InvalidValueError, match=r"^EyeLike-22: .*"):
        numbaops.eye_like(shape)


@pytest.mark.parametrize(
    "x", [None, 5, "ab", (2.0, 3), (2, "3"), [[1, 2], [3, 4]], (True, 2), {2, 3}, object()], ids=lambda x: f"{type(x).__name__}-{x!r:.14}"
)
def test_eye_like_of_what_is_neither_array_nor_shape(x: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"^EyeLike-22: "):
        numbaops.eye_like(x)


# out


def fortran(dtype: Any) -> np.ndarray:
    return np.full((2, 3), 7, dtype, order="F")


def unaligned(dtype: Any) -> np.ndarray:
    size = 6 * np.dtype(dtype).itemsize
    return np.full(size + 1, 7, np.uint8)[1:].view(dtype).reshape(2, 3)


def read_only(dtype: Any) -> np.ndarray:
    out = np.full((2, 3), 7, dtype)
    out.flags.writeable = False
    return out


OUTS = [
    pytest.param(np.full((2, 3), 7, np.float64), InvalidTypeError, ["float64", "float32"], id="float64"),
    pytest.param(np.full((2, 3), 7, np.int32), InvalidTypeError, ["int32", "float32"], id="int32"),
    pytest.param(np.full((2, 3), 7, ">f4"), InvalidTypeError, ["f4", "float32"], id="big-endian"),
    pytest.param(np.full((2, 3), "x", object), InvalidTypeError, ["object", "float32"], id="object"),
    pytest.param(np.full((3, 2), 7, np.float32), InvalidValueError, ["(3, 2)", "(2, 3)"], id="3x2"),
    pytest.param(np.full(6, 7, np.float32), InvalidValueError, ["(6,)", "(2, 3)"], id="6"),
    pytest.param(np.full((1, 2, 3), 7, np.float32), InvalidValueError, ["(1, 2, 3)", "(2, 3)"], id="1x2x3"),
    pytest.param(np.full((2, 4), 7, np.float32), InvalidValueError, ["(2, 4)", "(2, 3)"], id="2x4"),
    pytest.param(fortran(np.float32), InvalidValueError, ["contiguous"], id="fortran"),
    pytest.param(np.full((4, 3), 7, np.float32)[::2], InvalidValueError, ["contiguous"], id="strided"),
    pytest.param(np.full((2, 3), 7, np.float32)[::-1], InvalidValueError, ["contiguous"], id="reversed"),
    pytest.param(unaligned(np.float32), InvalidValueError, ["aligned"], id="unaligned"),
    pytest.param(read_only(np.float32), InvalidValueError, ["read-only"], id="read-only"),
    pytest.param(np.broadcast_to(np.float32(7), (2, 3)), InvalidValueError, [], id="broadcast"),
    pytest.param([[7.0] * 3] * 2, InvalidTypeError, ["list", "array"], id="list"),
    pytest.param(bytearray(24), InvalidTypeError, ["bytearray", "array"], id="bytearray"),
    pytest.param(np.float32(7), InvalidTypeError, ["float32", "array"], id="scalar"),
]


@pytest.mark.parametrize(("out", "kind", "words"), OUTS)
@pytest.mark.parametrize(
    ("op_type", "since", "call"),
    [
        ("ConstantOfShape", 25, lambda out: numbaops.operator("ConstantOfShape", value=np.float32(1))(SHAPE, out=out)),
        ("ConstantOfShape", 25, lambda out: numbaops.constant_of_shape((2, 3), np.float32(1), out=out)),
        ("ConstantOfShape", 9, lambda out: numbaops.constant_of_shape((2, 3), opset=19, out=out)),
        ("EyeLike", 22, lambda out: numbaops.operator("EyeLike")(EYE_INPUT, out=out)),
        ("EyeLike", 22, lambda out: numbaops.eye_like((2, 3), out=out)),
        ("EyeLike", 9, lambda out: numbaops.eye_like(np.zeros((2, 3), np.int8), np.float32, opset=9, out=out)),
        ("Constant", 25, lambda out: numbaops.operator("Constant", value=np.ones((2, 3), np.float32))(out=out)),
    ],
    ids=["cos-operator", "cos", "cos-opset19", "eye-operator", "eye", "eye-opset9", "constant-operator"],
)
def test_out_that_does_not_fit_is_left_alone(
    op_type: str, since: int, call: Callable[[Any], Any], out: Any, kind: type[NumbaopsError], words: list[str]
) -> None:
    before = bytes(out) if isinstance(out, bytearray) else np.array(out).tolist()
    assert_error(lambda: call(out), kind, op_type, since, "out", *words)
    assert (bytes(out) if isinstance(out, bytearray) else np.array(out).tolist()) == before


@pytest.mark.parametrize("dtype", [np.uint16, np.float64, np.complex64], ids=lambda dtype: dtype.__name__)
def test_unaligned_out_of_other_widths(dtype: Any) -> None:
    out = unaligned(dtype)
    before = out.tobytes()
    value = np.ones((2, 3), dtype)
    assert_error(lambda: numbaops.operator("Constant", value=value)(out=out), InvalidValueError, "Constant", 25, "out", "aligned")
    assert out.tobytes() == before


def test_bad_arguments_leave_out_alone() -> None:
    out = np.full((2, 3), 7, np.float32)
    calls: list[Callable[[], Any]] = [
        lambda: numbaops.constant_of_shape((2, -3), out=out),
        lambda: numbaops.constant_of_shape((2, 3), np.zeros(2, np.float32), out=out),
        lambda: numbaops.constant_of_shape((2, 3), opset=8, out=out),
        lambda: numbaops.eye_like(np.zeros((2, 3), ml_dtypes.int4), np.float32, out=out),
        lambda: numbaops.eye_like((2, 3), k=1.5, out=out),
        lambda: numbaops.eye_like((2, 3), dtype=99, out=out),
    ]
    for call in calls:
        with pytest.raises(NumbaopsError):
            call()
    assert (out == 7).all()


# Sparse values and payloads


def sparse(values: Any, indices: Any, dims: list[int], data_type: int = TensorProto.INT64) -> SparseTensorProto:
    """A sparse tensor whose parts are taken as they come."""
    proto = SparseTensorProto(dims=dims)
    proto.values.CopyFrom(values if isinstance(values, TensorProto) else helper.make_tensor("v", TensorProto.FLOAT, [len(values)], values))
    shape = np.shape(indices)
    proto.indices.CopyFrom(helper.make_tensor("i", data_type, shape, np.ravel(indices).tolist()))
    return proto


@pytest.mark.parametrize(
    ("proto", "kind", "words"),
    [
        pytest.param(sparse([1.0], [6], [2, 3]), InvalidValueError, ["6", "[2, 3]"], id="linear-beyond"),
        pytest.param(sparse([1.0], [-1], [2, 3]), InvalidValueError, ["-1"], id="linear-negative"),
        pytest.param(sparse([1.0], [2**62], [2, 3]), InvalidValueError, [str(2**62)], id="linear-huge"),
        pytest.param(sparse([1.0], [[0, 3]], [2, 3]), InvalidValueError, ["[0, 3]", "[2, 3]"], id="column-beyond"),
        pytest.param(sparse([1.0], [[2, 0]], [2, 3]), InvalidValueError, ["[2, 0]", "[2, 3]"], id="row-beyond"),
        pytest.param(sparse([1.0], [[1, -1]], [2, 3]), InvalidValueError, ["[1, -1]"], id="column-negative"),
        pytest.param(sparse([1.0], [0], [0, 3]), InvalidValueError, ["[0, 3]"], id="linear-in-nothing"),
        pytest.param(sparse([1.0, 2.0], [3, 1], [2, 3]), InvalidValueError, ["ascend"], id="linear-unsorted"),
        pytest.param(sparse([1.0, 2.0], [[1, 0], [0, 2]], [2, 3]), InvalidValueError, ["ascend"], id="rows-unsorted"),
        pytest.param(sparse([1.0, 2.0], [[0, 2], [0, 1]], [2, 3]), InvalidValueError, ["ascend"], id="columns-unsorted"),
        pytest.param(sparse([1.0, 2.0], [1, 1], [2, 3]), InvalidValueError, ["1"], id="linear-doubled"),
        pytest.param(sparse([1.0, 2.0, 3.0], [0, 4, 4], [2, 3]), InvalidValueError, ["4"], id="linear-doubled-last"),
        pytest.param(sparse([1.0, 2.0], [[0, 1], [0, 1]], [2, 3]), InvalidValueError, ["[0, 1]"], id="coordinates-doubled"),
        pytest.param(sparse([1.0, 2.0], [1], [2, 3]), InvalidValueError, ["[1]", "2"], id="too-few-indices"),
        pytest.param(sparse([1.0], [1, 2], [2, 3]), InvalidValueError, ["[2]", "1"], id="too-many-indices"),
        pytest.param(sparse([1.0], [[0, 1, 2]], [2, 3]), InvalidValueError, ["[1, 3]"], id="coordinates-of-rank-3"),
        pytest.param(sparse([1.0], [[1]], [2, 3]), InvalidValueError, ["[1, 1]"], id="coordinates-of-rank-1"),
        pytest.param(sparse([1.0], [[[0, 1]]], [2, 3]), InvalidValueError, ["[1, 1, 2]"], id="indices-3-d"),
        pytest.param(sparse([1.0], 1, [2, 3]), InvalidValueError, ["[]"], id="indices-0-d"),
        pytest.param(sparse([1.0], [1], [2, 3], TensorProto.INT32), InvalidTypeError, ["int32", "int64"], id="indices-int32"),
        pytest.param(sparse([1.0], [1.0], [2, 3], TensorProto.FLOAT), InvalidTypeError, ["float", "int64"], id="indices-float"),
        pytest.param(sparse([1.0], [1], [2, -3]), InvalidValueError, ["-3"], id="negative-dim"),
        pytest.param(sparse([1.0], [1], [2**32, 2**32]), InvalidValueError, [str(2**32)], id="overflowing-dims"),
        pytest.param(
            sparse(helper.make_tensor("v", TensorProto.FLOAT, [1, 1], [1.0]), [1], [2, 3]), InvalidValueError, ["[1, 1]"], id="values-2-d"
        ),
        pytest.param(sparse(TensorProto(data_type=0, dims=[1]), [1], [2, 3]), InvalidTypeError, ["undefined"], id="values-undefined"),
        pytest.param(
            sparse(TensorProto(data_type=1, dims=[2], float_data=[1.0]), [1, 2], [2, 3]), InvalidValueError, ["1", "2"], id="values-short"
        ),
    ],
)
def test_sparse_value_that_breaks_the_rules(proto: SparseTensorProto, kind: type[NumbaopsError], words: list[str]) -> None:
    for opset, since in ((11, 11), (None, 25)):
        for call in both("Constant", opset, {"sparse_value": proto}):
            assert_error(call, kind, "Constant", since, "sparse_value", *words)


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        pytest.param(([1.0], np.array([0]), (2,)), InvalidTypeError, id="values-list"),
        pytest.param((np.ones(1), [0], (2,)), InvalidTypeError, id="indices-list"),
        pytest.param((np.ones(1), np.array([0]), 2), InvalidTypeError, id="shape-int"),
        pytest.param((np.ones(1), np.array([0]), "2"), InvalidTypeError, id="shape-str"),
        pytest.param((np.ones(1), np.array([0]), (2.5,)), InvalidTypeError, id="shape-float"),
        pytest.param((np.ones(1), np.array([0]), (None,)), InvalidTypeError, id="shape-none"),
        pytest.param((np.ones(1), np.array([0], np.int32), (2,)), InvalidTypeError, id="indices-int32"),
        pytest.param((np.ones(1), np.array([2]), (2,)), InvalidValueError, id="beyond"),
        pytest.param((np.ones(1, "V2"), np.array([0]), (2,)), InvalidTypeError, id="values-void"),
        pytest.param((np.ones(1), np.array([0])), InvalidTypeError, id="two-parts"),
    ],
)
def test_sparse_value_as_arrays_that_break_the_rules(parts: Any, kind: type[NumbaopsError]) -> None:
    for call in both("Constant", 13, {"sparse_value": parts}):
        assert_error(call, kind, "Constant", 13, "sparse_value")


def raw(data_type: int, dims: list[int], size: int) -> TensorProto:
    return TensorProto(data_type=data_type, dims=dims, raw_data=bytes(size))


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        pytest.param(raw(TensorProto.FLOAT, [3], 11), ["11", "12"], id="float-short"),
        pytest.param(raw(TensorProto.FLOAT, [3], 16), ["16", "12"], id="float-long"),
        pytest.param(raw(TensorProto.FLOAT, [], 8), ["8", "4"], id="float-scalar-long"),
        pytest.param(raw(TensorProto.FLOAT, [0], 4), ["4", "0"], id="float-of-nothing"),
        pytest.param(raw(TensorProto.COMPLEX128, [1], 8), ["8", "16"], id="complex128-half"),
        pytest.param(raw(TensorProto.INT4, [3], 1), ["1", "2"], id="int4-short"),
        pytest.param(raw(TensorProto.INT4, [3], 3), ["3", "2"], id="int4-byte-each"),
        pytest.param(raw(oracle.TYPES["uint2"].code, [5], 1), ["1", "2"], id="uint2-short"),
        pytest.param(TensorProto(data_type=TensorProto.FLOAT, dims=[3], float_data=[1.0, 2.0]), ["2", "3"], id="float-data-short"),
        pytest.param(TensorProto(data_type=TensorProto.FLOAT, dims=[1], float_data=[1.0, 2.0]), ["2", "1"], id="float-data-long"),
        pytest.param(TensorProto(data_type=TensorProto.COMPLEX64, dims=[2], float_data=[1.0, 2.0]), ["2", "4"], id="complex-data-short"),
        pytest.param(TensorProto(data_type=TensorProto.INT8, dims=[2], int32_data=[1, 2, 3]), ["3", "2"], id="int8-data-long"),
        pytest.param(TensorProto(data_type=TensorProto.INT4, dims=[5], int32_data=[1, 2]), ["2", "3"], id="int4-data-short"),
        pytest.param(TensorProto(data_type=TensorProto.STRING, dims=[2], string_data=[b"a"]), ["1", "2"], id="strings-short"),
        pytest.param(TensorProto(data_type=TensorProto.FLOAT, dims=[2]), ["2"], id="no-payload"),
        pytest.param(raw(TensorProto.FLOAT, [-1], 4), ["-1"], id="negative-dim"),
        pytest.param(raw(TensorProto.FLOAT, [2**40, 2**40], 4), [str(2**40)], id="overflowing-dims"),
    ],
)
def test_payload_of_the_wrong_length(proto: TensorProto, words: list[str]) -> None:
    for call in both("Constant", None, {"value": proto}):
        assert_error(call, InvalidValueError, "Constant", 25, "value", *words)
    if proto.data_type in (TensorProto.FLOAT, TensorProto.INT4, oracle.TYPES["uint2"].code, TensorProto.INT8):
        for call in both("ConstantOfShape", None, {"value": proto}):
            assert_error(call, InvalidValueError, "ConstantOfShape", 25, "value")


@pytest.mark.parametrize("data_type", [0, 29, 99], ids=lambda code: f"type{code}")
def test_tensor_of_an_unknown_element_type(data_type: int) -> None:
    proto = TensorProto(dims=[1], raw_data=bytes(4))
    proto.data_type = data_type
    for op_type, since in (("Constant", 25), ("ConstantOfShape", 25)):
        for call in both(op_type, None, {"value": proto}):
            assert_error(call, InvalidTypeError, op_type, since, "value", "undefined" if data_type == 0 else str(data_type))


# Memory


@pytest.mark.parametrize("shape", [(2**45,), (2**22, 2**23), (3, 2**20, 2**24)], ids=shape_id)
def test_output_that_does_not_fit_into_memory(shape: tuple[int, ...]) -> None:
    """128 TiB is a legal size, beyond any address space that a process has left."""
    calls: list[Callable[[], Any]] = [
        lambda: numbaops.constant_of_shape(shape),
        lambda: numbaops.constant_of_shape(shape, 1.5),
        lambda: numbaops.operator("ConstantOfShape", value=np.float32(1))(np.array(shape)),
    ]
    for call in calls:
        error = assert_error(call, AllocationError, "ConstantOfShape", 25, None)
        assert re.search(r"\d", str(error)) and str(shape[-1]) in str(error)


def test_matrix_that_does_not_fit_into_memory() -> None:
    for call in (
        lambda: numbaops.eye_like((2**23, 2**22)),
        lambda: numbaops.operator("EyeLike", dtype=1)(np.broadcast_to(np.int8(0), (2**23, 2**22))),
    ):
        assert_error(call, AllocationError, "EyeLike", 22, None, str(2**23))
    assert_error(lambda: numbaops.constant_of_shape((2**48,), ml_dtypes.int4(1), packed=True), AllocationError, "ConstantOfShape", 25, None)


def test_sparse_value_that_does_not_fit_into_memory() -> None:
    proto = sparse([1.0], [5], [2**45])
    for call in both("Constant", None, {"sparse_value": proto}):
        assert_error(call, AllocationError, "Constant", 25, "sparse_value", str(2**45))


def test_errors_come_before_memory_is_taken() -> None:
    """A wrong element type or attribute beside a shape that could never be had is reported as such."""
    huge = (2**45,)
    with pytest.raises(InvalidTypeError, match="complex64"):
        numbaops.constant_of_shape(huge, np.complex64(1))
    with pytest.raises(InvalidValueError, match="element"):
        numbaops.constant_of_shape(huge, np.zeros(2))
    with pytest.raises(InvalidTypeError):
        numbaops.eye_like((2**23, 2**22), k="1")
    with pytest.raises(InvalidValueError, match="out"):
        numbaops.constant_of_shape(huge, out=np.zeros(3, np.float32))


# Array subclasses, whose indexing may mean something else


@pytest.mark.parametrize(
    "out", [np.full((2, 3), 7, np.float32).view(np.recarray), np.ma.array(np.full((2, 3), 7, np.float32))], ids=["recarray", "masked"]
)
def test_out_of_an_array_subclass_is_left_alone(out: np.ndarray) -> None:
    for op_type, inputs in (("EyeLike", [EYE_INPUT]), ("ConstantOfShape", [SHAPE])):
        bound = numbaops.operator(op_type)
        version = bound.version.since_version
        call = functools.partial(bound, *inputs, out=out)
        assert_error(call, InvalidTypeError, op_type, version, "out", type(out).__name__)
    assert (np.asarray(out) == 7).all()


def test_out_in_a_memory_map(tmp_path: Path) -> None:
    out = np.memmap(tmp_path / "out", np.float32, "w+", shape=(2, 3))
    assert numbaops.eye_like(EYE_INPUT, out=out) is out
    assert np.asarray(out).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.array([2, 3], mask=[False, True])
    assert_error(lambda: numbaops.constant_of_shape(masked), InvalidTypeError, "ConstantOfShape", 25, "shape")
    assert_error(lambda: numbaops.constant(masked), InvalidTypeError, "Constant", 25, "value", "masked")


@pytest.mark.parametrize(("op_type", "domain"), [(["EyeLike"], ""), ("EyeLike", None), (None, "")], ids=["list", "no-domain", "none"])
def test_names_that_are_no_strings(op_type: Any, domain: Any) -> None:
    with pytest.raises(InvalidTypeError, match="two str"):
        numbaops.operator(op_type, None, domain)


def test_opset_of_another_type_is_refused_also_after_its_equal_was_used() -> None:
    numbaops.constant_of_shape((2,), opset=25)
    for opset in (25.0, []):
        with pytest.raises(InvalidTypeError, match="opset is"):
            numbaops.constant_of_shape((2,), opset=opset)


def test_eye_like_of_a_type_without_zero() -> None:
    with pytest.raises(InvalidTypeError, match="no zero"):
        numbaops.resolve("EyeLike").bind({"dtype": "float8e8m0"}, check_types=False)
