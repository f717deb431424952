"""Cast, CastLike and BitCast as operators: which versions take what, and in models. How values convert is in ``test_cast.py``."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import numbaops
import oracle
from numbaops.errors import InvalidTypeError, InvalidValueError, NumbaopsError

# The first opset at which Cast takes a type.
SINCE = dict.fromkeys(oracle.CONSTANT_OF_SHAPE_TYPES[9], 1) | {
    "string": 9,
    "bfloat16": 13,
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"), 19),
    **dict.fromkeys(("int4", "uint4"), 21),
    "float4e2m1": 23,
    "float8e8m0": 24,
    **dict.fromkeys(("int2", "uint2"), 25),
    **dict.fromkeys(("float6e2m3", "float6e3m2"), 28),
}
NEWEST_OF_ONNX = onnx.defs.onnx_opset_version()


def ones(name: str) -> np.ndarray:
    return oracle.array(name, [2], ["1.0", "1.0"] if name == "string" else [oracle.TYPES[name].one] * 2)


def model(op_type: str, opset: int, inputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    names = [f"i{n}" for n in range(inputs)]
    node = helper.make_node(op_type, names, ["y"], name="here", **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in [*names, "y"]]
    graph = helper.make_graph([node], "g", values[:-1], values[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize("opset", [1, 6, 9, 13, 19, 21, 23, 24, 25, 28])
def test_cast_takes_the_types_of_its_version(opset: int) -> None:
    for name, since in SINCE.items():
        if since <= opset:
            cast = numbaops.operator("Cast", opset, to=name)
            oracle.assert_same(cast(ones("float")), ones(name))
            oracle.assert_same(numbaops.operator("Cast", opset, to="float")(ones(name)), ones("float"))
        else:
            with pytest.raises(InvalidTypeError, match=rf"Cast-{opset}.*to has element type {name}"):
                numbaops.operator("Cast", opset, to=name)
            with pytest.raises(InvalidTypeError, match=rf"Cast-{opset}.*input has element type {name}"):
                numbaops.operator("Cast", opset, to="float")(ones(name))


@pytest.mark.parametrize("opset", [15, 19, 21, 23, 24, 25, 28])
def test_cast_like_takes_the_types_of_its_version(opset: int) -> None:
    cast_like = numbaops.operator("CastLike", opset)
    for name, since in SINCE.items():
        if since <= min(opset, 25):
            oracle.assert_same(cast_like(ones("float"), ones(name)), ones(name))
        else:
            with pytest.raises(InvalidTypeError, match=rf"target_type has element type {name}") as caught:
                cast_like(ones("float"), ones(name))
            assert (caught.value.op_type, caught.value.attribute) == ("CastLike", "target_type")


@pytest.mark.parametrize("to", ["FLOAT16", b"FLOAT16", "float16", 10, np.float16, "tensor(float16)"], ids=repr)
def test_forms_of_to(to: Any) -> None:
    for opset in (1, 13):
        assert repr(numbaops.operator("Cast", opset, to=to)).endswith("-> float16>")


def test_cast_1_in_a_model_names_its_type() -> None:
    (got,) = numbaops.ReferenceEvaluator(model("Cast", 1, to="INT32")).run(None, {"i0": np.array([1.9, -1.9], np.float32)})
    oracle.assert_same(got, np.array([1, -1], np.int32))


@pytest.mark.parametrize(
    ("opset", "attributes", "want"),
    [
        (19, {"saturate": 1}, [0x7E, 0xFE, 0x38]),
        (19, {"saturate": 0}, [0x7F, 0xFF, 0x38]),
        (25, {"saturate": 0}, [0x7F, 0xFF, 0x38]),
    ],
)
def test_saturate(opset: int, attributes: dict[str, int], want: list[int]) -> None:
    x = np.array([1000.0, -1000.0, 1.0], np.float32)
    expected = np.array(want, np.uint8).view(ml_dtypes.float8_e4m3fn)
    oracle.assert_same(numbaops.operator("Cast", opset, to="float8e4m3fn", **attributes)(x), expected)
    oracle.assert_same(numbaops.operator("CastLike", opset, **attributes)(x, expected), expected)
    if opset <= NEWEST_OF_ONNX:
        evaluator = numbaops.ReferenceEvaluator(model("CastLike", opset, 2, **attributes))
        oracle.assert_same(evaluator.run(None, {"i0": x, "i1": expected})[0], expected)


@pytest.mark.parametrize(("mode", "want"), [("up", 0x80), ("down", 0x7F), ("nearest", 0x80), (b"down", 0x7F)], ids=str)
def test_round_mode(mode: Any, want: int) -> None:
    x = np.array([1.5], np.float32)
    expected = np.array([want], np.uint8).view(ml_dtypes.float8_e8m0fnu)
    oracle.assert_same(numbaops.operator("Cast", 24, to="float8e8m0", round_mode=mode)(x), expected)
    oracle.assert_same(numbaops.operator("CastLike", 24, round_mode=mode)(x, expected), expected)


@pytest.mark.parametrize("name", [name for name in oracle.TYPES if name != "string"])
def test_bit_cast_keeps_every_bit(name: str) -> None:
    row = oracle.TYPES[name]
    peers = [other for other in oracle.TYPES.values() if other.bits == row.bits and other.name != "string"]
    codes = sorted({0, 1, row.one, (1 << row.bits) - 1, 1 << (row.bits - 1), 0x5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A % (1 << row.bits)})
    if name == "bool":
        codes = [0, 1]
    x = oracle.array(name, [len(codes), 1], codes)
    for peer in peers:
        if peer.name == "bool" and name != "bool":
            continue  # of its bytes only 0 and 1 are values
        strict = 6 not in (row.bits, peer.bits)
        bit_cast = numbaops.resolve("BitCast").bind({"to": peer.name}, check_types=strict)
        got = bit_cast(x)
        assert got.dtype == peer.dtype
        assert oracle.codes_of(got, peer.name) == codes
        assert not np.may_share_memory(got, x)
        out = np.zeros(x.shape, peer.dtype)
        assert bit_cast(x, out=out) is out
        oracle.assert_same(out, got)


def test_bit_cast_of_other_layouts() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    want = x.view(np.int32).T.copy()
    bit_cast = numbaops.operator("BitCast", to="int32")
    oracle.assert_same(bit_cast(x.T), want)
    oracle.assert_same(bit_cast(x.astype(">f4").T), want)
    oracle.assert_same(bit_cast(np.float32(1)), np.array(0x3F800000, np.int32))
    oracle.assert_same(bit_cast(np.zeros((0, 3), np.float32)), np.zeros((0, 3), np.int32))


def test_bit_cast_ignores_and_clears_high_bits() -> None:
    x = np.array([0xF3, 0x0C], np.uint8).view(ml_dtypes.uint4)
    oracle.assert_same(numbaops.operator("BitCast", to="int4")(x), np.array([3, 12], np.uint8).view(ml_dtypes.int4))


@pytest.mark.skipif(NEWEST_OF_ONNX < 26, reason="an onnx without BitCast")
def test_bit_cast_in_a_model() -> None:
    evaluator = numbaops.ReferenceEvaluator(model("BitCast", 26, to=TensorProto.UINT32))
    oracle.assert_same(evaluator.run(None, {"i0": np.array([-0.0], np.float32)})[0], np.array([0x80000000], np.uint32))


ERRORS = {
    "unknown type": (("Cast", 13), {"to": 99}, None, "to"),
    "undefined type": (("Cast", 13), {"to": 0}, None, "to"),
    "no to": (("Cast", 13), {}, None, "to"),
    "saturate too early": (("Cast", 13), {"to": 1, "saturate": 0}, None, "saturate"),
    "round_mode too early": (("CastLike", 23), {"round_mode": "up"}, None, "round_mode"),
    "saturate is text": (("Cast", 25), {"to": 1, "saturate": "yes"}, None, "saturate"),
    "unknown round_mode": (("Cast", 25), {"to": 1, "round_mode": "even"}, None, "round_mode"),
    "round_mode is a number": (("Cast", 25), {"to": 1, "round_mode": 1}, None, "round_mode"),
    "round_mode is no UTF-8": (("Cast", 25), {"to": 1, "round_mode": b"\xff"}, None, "round_mode"),
    "input is a list": (("Cast", 25), {"to": 1}, ([1.0],), "input"),
    "input is None": (("Cast", 25), {"to": 1}, (None,), "input"),
    "complex input": (("Cast", 25), {"to": 1}, (np.ones(2, np.complex64),), "input"),
    "target is a list": (("CastLike", 25), {}, (np.ones(2), [1.0]), "target_type"),
    "bad text": (("Cast", 25), {"to": 1}, (np.array(["x"], object),), None),
    "bit cast of another width": (("BitCast", 26), {"to": 1}, (np.ones(2, np.float64),), "to"),
    "bit cast to string": (("BitCast", 26), {"to": 8}, None, "to"),
    "bit cast of strings": (("BitCast", 26), {"to": 1}, (np.array(["x"], object),), "input"),
    "bit cast of a list": (("BitCast", 26), {"to": 1}, ([1.0],), "input"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_operator_and_attribute(case: str) -> None:
    (op_type, opset), attributes, inputs, attribute = ERRORS[case]

    def bind_and_call() -> None:
        bound = numbaops.operator(op_type, opset, **attributes)
        assert inputs is not None, "binding should have failed"
        bound(*inputs)

    with pytest.raises((InvalidTypeError, InvalidValueError)) as caught:
        bind_and_call()
    assert (caught.value.op_type, caught.value.since_version) == (op_type, numbaops.resolve(op_type, opset).since_version)
    if attribute is not None:
        assert caught.value.attribute == attribute


@pytest.mark.parametrize("op_type", ["Cast", "CastLike", "BitCast"])
def test_pickle_and_repr(op_type: str) -> None:
    attributes = {"Cast": {"to": 17, "saturate": 0}, "CastLike": {"round_mode": "down"}, "BitCast": {"to": 6}}[op_type]
    bound = numbaops.operator(op_type, **attributes)  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(bound))
    assert repr(again) == repr(bound)
    assert again.attributes == bound.attributes


def test_wrong_outputs_and_inputs_of_nodes() -> None:
    two_inputs = model("Cast", 13, 2, to=1)
    with pytest.raises(NumbaopsError, match=r"Cast-13.*inputs \['i0', 'i1'\]; allowed: 1 \(input\)"):
        numbaops.ReferenceEvaluator(two_inputs)


def test_packed_in_and_out() -> None:
    x = np.array([-8.0, 7.0, 1.5], np.float32)
    packed = numbaops.operator("Cast", 25, to="int4")(x, packed=True)
    assert packed == numbaops.PackedTensor(np.array([0x78, 0x02], np.uint8), "int4", (3,))
    oracle.assert_same(numbaops.operator("Cast", 25, to="float")(packed), np.array([-8, 7, 2], np.float32))
    oracle.assert_same(numbaops.operator("CastLike", 25)(packed, x), np.array([-8, 7, 2], np.float32))
    with pytest.raises(InvalidTypeError, match="Cast-19"):
        numbaops.operator("Cast", 19, to="float")(packed)
