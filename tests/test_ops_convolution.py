"""Convolutions at every version: what a comparison on drawn inputs found wrong elsewhere, and drawn cases beside slow loops."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import numbaops
import window_oracle
from drawn import convolution
from drawn.case import Case, difference
from leaf_checks import assert_node_cases
from numbaops.ops.leaves import LEAVES

OPERATORS = ("Conv", "ConvInteger", "QLinearConv", "ConvTranspose", "Col2Im", "DeformConv", "CausalConvWithState")


def run(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], outputs: int = 1) -> list[Any]:
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip(f"the installed onnx has no opset {opset}")
    case = Case(op_type, opset, inputs, attributes, outputs)
    return numbaops.ReferenceEvaluator(case.model()).run(None, case.feeds)


def row(*values: float, dtype: Any = np.float32) -> Any:
    """One image of one channel with one spatial axis, or one kernel like that."""
    return np.array([[values]], dtype)


def number(value: float, dtype: Any) -> Any:
    return np.array(value, dtype)


def count(*shape: int, dtype: Any = np.float32) -> Any:
    return np.arange(math.prod(shape)).reshape(shape).astype(dtype)


def ones(*shape: int, dtype: Any = np.float32) -> Any:
    return np.ones(shape, dtype)


U8, I8 = np.uint8, np.int8
UNIT = number(1, np.float32)

# id, operator, opset, inputs, attributes, outputs
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], list[Any]]] = [
    ("one spatial axis, asymmetric pads", "Conv", 1, [row(1, 2, 3), row(1, 10)], {"pads": [0, 1]}, [[[[21, 32, 3]]]]),
    ("SAME_UPPER with dilations", "Conv", 1, [row(1, 2, 3), row(1, 10)], {"dilations": [2], "auto_pad": "SAME_UPPER"}, [[[[20, 31, 2]]]]),
    ("SAME_LOWER", "Conv", 7, [row(1, 2, 3), row(1, 10)], {"auto_pad": "SAME_LOWER"}, [[[[10, 21, 32]]]]),
    ("VALID with a stride", "Conv", 11, [row(1, 2, 3, 4), row(1, 10)], {"strides": [2], "auto_pad": "VALID"}, [[[[21, 43]]]]),
    (
        "groups of two features",
        "Conv",
        11,
        [np.array([[[1], [2]]], np.float32), np.array([[[1]], [[10]], [[100]], [[1000]]], np.float32), np.array([1, 2, 3, 4], np.float32)],
        {"group": 2},
        [[[[2], [12], [203], [2004]]]],
    ),
    (
        "the sum may exceed float16",
        "Conv",
        11,
        [row(300, 300, -300, dtype=np.float16), row(300, 300, 300, dtype=np.float16)],
        {},
        [[[[np.inf]]]],
    ),
    (
        "a part of the sum may exceed float16",
        "Conv",
        11,
        [row(300, 300, -300, dtype=np.float16), row(200, 200, 200, dtype=np.float16)],
        {},
        [[[[60000]]]],
    ),
    (
        "bfloat16 is rounded once",
        "Conv",
        22,
        [row(256, 1, 1, dtype=ml_dtypes.bfloat16), ones(1, 1, 3, dtype=ml_dtypes.bfloat16)],
        {},
        [[[[258]]]],
    ),
    ("no channels", "Conv", 11, [ones(1, 0, 2), ones(1, 0, 1), np.array([3], np.float32)], {}, [[[[3, 3]]]]),
    ("no images", "Conv", 11, [ones(0, 1, 2), ones(1, 1, 1)], {}, [np.zeros((0, 1, 2))]),
    ("no elements", "Conv", 11, [ones(1, 1, 0), ones(2, 1, 1), ones(2)], {}, [np.zeros((1, 2, 0))]),
    ("no elements but pads", "Conv", 11, [ones(1, 1, 0), ones(1, 1, 2)], {"pads": [1, 1]}, [[[[0]]]]),
    (
        "pads are the zero point",
        "ConvInteger",
        10,
        [row(5, 7, dtype=U8), row(1, 1, dtype=U8), number(5, U8)],
        {"pads": [1, 0]},
        [[[[0, 2]]]],
    ),
    (
        "a zero point of w for each feature, one spatial axis",
        "ConvInteger",
        10,
        [row(2, 3, dtype=I8), np.array([[[4]], [[5]]], I8), None, np.array([3, -5], I8)],
        {},
        [[[[2, 3], [20, 30]]]],
    ),
    (
        "a zero point of w for each feature, three spatial axes",
        "ConvInteger",
        10,
        [ones(1, 1, 1, 1, 2, dtype=U8), np.array([4, 5], I8).reshape(2, 1, 1, 1, 1), None, np.array([3, -5], I8)],
        {},
        [[[[[[1, 1]]], [[[10, 10]]]]]],
    ),
    (
        "the sum keeps the low 32 bits",
        "ConvInteger",
        10,
        [np.full((1, 1, 33026), 255, U8), np.full((1, 1, 33026), 255, U8)],
        {},
        [[[[33026 * 255 * 255 - 2**32]]]],
    ),
    (
        "ties to even before the zero point",
        "QLinearConv",
        10,
        [row(1, 3, 5, dtype=U8), UNIT, number(0, U8), row(1, dtype=U8), number(0.5, np.float32), number(0, U8), UNIT, number(1, U8)],
        {},
        [[[[1, 3, 3]]]],
    ),
    (
        "saturates to the output's type, not the input's",
        "QLinearConv",
        10,
        [row(100, 200, dtype=U8), UNIT, number(150, U8), row(4, dtype=I8), UNIT, number(0, I8), UNIT, number(10, I8)],
        {},
        [np.array([[[-128, 127]]], I8)],
    ),
    (
        "a scale and a zero point for each feature, a bias",
        "QLinearConv",
        10,
        [
            row(10, dtype=U8),
            UNIT,
            number(0, U8),
            np.array([[[2]], [[4]]], I8),
            np.array([1, 0.5], np.float32),
            np.array([1, 0], I8),
            number(2, np.float32),
            number(0, U8),
            np.array([4, -12], np.int32),
        ],
        {},
        [[[[7], [7]]]],
    ),
    ("overlaps are added up", "ConvTranspose", 1, [row(1, 2), row(1, 10)], {}, [[[[1, 12, 20]]]]),
    ("output_padding", "ConvTranspose", 1, [row(1, 2), row(1, 10)], {"strides": [3], "output_padding": [2]}, [[[[1, 10, 0, 2, 20, 0, 0]]]]),
    ("pads and dilations", "ConvTranspose", 11, [row(1, 2), row(1, 10)], {"dilations": [2], "pads": [1, 0]}, [[[[2, 10, 20]]]]),
    (
        "groups of two features, a bias",
        "ConvTranspose",
        11,
        [np.array([[[1], [2]]], np.float32), np.array([[[1], [10]], [[100], [1000]]], np.float32), np.array([1, 2, 3, 4], np.float32)],
        {"group": 2},
        [[[[2], [12], [203], [2004]]]],
    ),
    ("SAME_UPPER crops at the end", "ConvTranspose", 11, [row(1, 2), row(1, 10)], {"auto_pad": "SAME_UPPER"}, [[[[1, 12]]]]),
    ("SAME_LOWER crops at the begin", "ConvTranspose", 11, [row(1, 2), row(1, 10)], {"auto_pad": "SAME_LOWER"}, [[[[12, 20]]]]),
    (  # ONNX Runtime's output is shorter
        "SAME_UPPER with a stride beyond the kernel",
        "ConvTranspose",
        11,
        [row(1, 2), row(5)],
        {"strides": [3], "auto_pad": "SAME_UPPER"},
        [[[[5, 0, 0, 10, 0, 0]]]],
    ),
    ("output_shape crops, the odd one at the begin", "ConvTranspose", 11, [row(1, 2), row(1, 10)], {"output_shape": [2]}, [[[[12, 20]]]]),
    ("output_shape in version 1", "ConvTranspose", 1, [row(1, 2), row(1, 10)], {"output_shape": [2]}, [[[[12, 20]]]]),
    (
        "output_shape crops, the odd one at the end",
        "ConvTranspose",
        11,
        [row(1, 2), row(1, 10)],
        {"output_shape": [2], "auto_pad": "SAME_UPPER", "pads": [9, 9]},
        [[[[1, 12]]]],
    ),
    ("no elements", "ConvTranspose", 11, [ones(1, 1, 0), ones(1, 2, 3), ones(2)], {}, [np.ones((1, 2, 2))]),
    ("output_shape beyond the reach", "ConvTranspose", 11, [row(1, 2), row(1, 10)], {"output_shape": [5]}, [[[[1, 12, 20, 0, 0]]]]),
    (
        "the sum may exceed float16",
        "ConvTranspose",
        11,
        [row(300, -300, dtype=np.float16), row(1, 300, dtype=np.float16)],
        {},
        [[[[300, 89700, -90000]]]],
    ),
    (
        "three axes, dilations, strides",
        "Col2Im",
        18,
        [np.arange(1, 9, dtype=np.float32).reshape(1, 4, 2), np.array([3, 1, 3]), np.array([2, 1, 2])],
        {"dilations": [2, 1, 1]},
        [[[[[[1, 5, 4]], [[0, 0, 0]], [[5, 13, 8]]]]]],
    ),
    (
        "strings",
        "Col2Im",
        18,
        [np.array([[["a"], ["b"]]], object), np.array([1, 3]), np.array([1, 2])],
        {"strides": [1, 2]},
        [[[[["a", "b", ""]]]]],
    ),
    ("bool: any", "Col2Im", 18, [np.array([[[1, 0], [1, 0]]], bool), np.array([1, 3]), np.array([1, 2])], {}, [[[[[True, True, False]]]]]),
    ("uint8 wraps", "Col2Im", 18, [np.full((1, 2, 2), 200, U8), np.array([1, 3]), np.array([1, 2])], {}, [[[[[200, 144, 200]]]]]),
    (
        "one spatial axis, half an element aside",
        "DeformConv",
        19,
        [row(2, 4, 8), row(1, 10), np.array([[[0.5, 0], [0, 0.5]]], np.float32)],
        {},
        [[[[43, 44]]]],
    ),
    (
        "samples beyond the edge have zero corners",
        "DeformConv",
        19,
        [np.array([[[[4]]]], np.float32), ones(1, 1, 1, 1), np.array([-0.5, 0.25], np.float32).reshape(1, 2, 1, 1)],
        {},
        [[[[[1.5]]]]],
    ),
    (
        "a mask without a bias, two offset groups",
        "DeformConv",
        22,
        [
            np.array([[[1, 2], [3, 5]]], np.float32),
            np.array([[[1], [10]]], np.float32),
            np.array([[[1, 0], [0, -1]]], np.float32),
            None,
            np.array([[[1, 1], [1, 0.5]]], np.float32),
        ],
        {"offset_group": 2},
        [[[[32, 17]]]],
    ),
    (
        "without a state zeros come before",
        "CausalConvWithState",
        27,
        [row(1, 2), row(1, 10, 100)],
        {},
        [[[[100, 210]]], [[[1, 2]]]],
    ),
    (
        "a short input leaves some of the state",
        "CausalConvWithState",
        27,
        [row(3), row(1, 10, 100), np.array([1000], np.float32), row(1, 2)],
        {},
        [[[[1321]]], [[[2, 3]]]],
    ),
    (
        "silu is rounded once, and far below zero it is zero",
        "CausalConvWithState",
        27,
        [row(-1000, 0, 2048, dtype=np.float16), row(1, dtype=np.float16)],
        {"activation": "silu"},
        [[[[0, 0, 2048]]], np.zeros((1, 1, 0))],
    ),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "wanted"),
    [case[1:] for case in CASES],
    ids=[f"{case[1]} {case[2]}: {case[0]}" for case in CASES],
)
def test_case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], wanted: list[Any]) -> None:
    got = run(op_type, opset, inputs, attributes, len(wanted))
    dtype = {"ConvInteger": np.dtype(np.int32), "QLinearConv": inputs[-1 if len(inputs) < 9 else 7].dtype}.get(op_type, inputs[0].dtype)
    for mine, right in zip(got, wanted, strict=True):
        assert mine.dtype == dtype
        assert mine.shape == np.shape(right)
        with np.errstate(over="ignore"):
            right = np.array(right).astype(dtype)
        if dtype.kind == "O":
            assert mine.tolist() == right.tolist()
        else:
            np.testing.assert_allclose(mine, right, rtol=1e-6)


def wanted_of(case: Case) -> Any:
    """The answer of slow loops, for the operators that they know."""
    attributes, inputs = case.attributes, [*case.inputs, None, None, None]
    if case.op_type == "Conv":
        return window_oracle.conv(*inputs[:3], attributes)
    if case.op_type == "ConvTranspose":
        return window_oracle.conv_transpose(*inputs[:3], attributes)
    if case.op_type == "Col2Im":
        return window_oracle.col2im(*inputs[:3], attributes)
    if case.op_type == "DeformConv":
        return window_oracle.deform_conv(*inputs[:5], attributes)
    x, x_zero, w, w_zero = (inputs[place] for place in ((0, 2, 1, 3) if case.op_type == "ConvInteger" else (0, 2, 3, 5)))
    x = x.astype(np.int64) - (0 if x_zero is None else int(x_zero))
    w = w.astype(np.int64) - (0 if w_zero is None else w_zero.astype(np.int64).reshape(-1, *(1,) * (w.ndim - 1)))
    if case.op_type == "ConvInteger":
        return window_oracle.conv(x, w, None, attributes).astype(np.int32)
    total = window_oracle.conv(x, w, inputs[8], attributes)
    scales = float(inputs[1]) * inputs[4].astype(np.float64) / float(inputs[6])
    limits = np.iinfo(inputs[7].dtype)
    rounded = np.rint(total * scales.reshape(-1, *(1,) * (total.ndim - 2))) + int(inputs[7])
    return np.clip(rounded, limits.min, limits.max).astype(inputs[7].dtype)


@pytest.mark.parametrize("op_type", OPERATORS[:-1])
def test_drawn_case_beside_loops(op_type: str) -> None:
    seen = 0
    for case in convolution.draws(np.random.default_rng(11)):
        if case.op_type == op_type:
            got = run(op_type, case.opset, case.inputs, case.attributes)
            wanted = wanted_of(case).astype(got[0].dtype)
            assert got[0].dtype == (case.inputs[0].dtype if "Integer" not in op_type and "Linear" not in op_type else wanted.dtype)
            assert difference(got, [wanted], case) is None, case
            seen += 1
    assert seen >= 60


def test_large_batch_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from numbaops.ops import _convolving as module

    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(5, 2, 6)).astype(np.float32), rng.normal(size=(4, 1, 3)).astype(np.float32)
    (whole,) = run("Conv", 11, [x, w], {"group": 2})
    monkeypatch.setattr(module, "COLUMN_BYTES", 2 * 4 * 3 * 4 * 2)  # two images
    (parts,) = run("Conv", 11, [x, w], {"group": 2})
    np.testing.assert_allclose(whole, parts, rtol=1e-6)
    np.testing.assert_allclose(whole, window_oracle.conv(x, w, None, {"group": 2}), rtol=1e-5, atol=1e-6)


# id, operator, opset, inputs, attributes, a part of the message
ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("channels that do not fit", "Conv", 11, [ones(1, 3, 2), ones(2, 2, 1)], {}, "the input has 3 channels, W has shape [2, 2, 1]"),
    ("features that groups do not divide", "Conv", 11, [ones(1, 2, 2), ones(3, 1, 1)], {"group": 2}, "group is 2"),
    ("no spatial axis", "Conv", 11, [ones(1, 3), ones(2, 3)], {}, "[1, 3]"),
    ("W of another rank", "Conv", 11, [ones(1, 3, 2), ones(2, 3, 1, 1)], {}, "[2, 3, 1, 1]"),
    ("kernel_shape is not that of W", "Conv", 11, [ones(1, 1, 2), ones(1, 1, 1)], {"kernel_shape": [2]}, "kernel_shape is [2]"),
    ("a bias for other features", "Conv", 11, [ones(1, 1, 2), ones(1, 1, 1), ones(2)], {}, "B has shape [2]; allowed: [1]"),
    ("a kernel beyond the input", "Conv", 11, [ones(1, 1, 2), ones(1, 1, 3)], {}, "spans 3"),
    (
        "a zero point for other features",
        "ConvInteger",
        10,
        [ones(1, 1, 2, dtype=U8), ones(1, 1, 1, dtype=U8), None, ones(2, dtype=U8)],
        {},
        "w_zero_point elements must match",
    ),
    (
        "zero points of x",
        "ConvInteger",
        10,
        [ones(1, 1, 2, dtype=U8), ones(1, 1, 1, dtype=U8), ones(2, dtype=U8)],
        {},
        "x_zero_point must be a scalar",
    ),
    ("channels that do not fit", "ConvTranspose", 11, [ones(1, 3, 2), ones(2, 2, 1)], {}, "allowed: W of [C, M / group, ...]"),
    ("output_shape of two axes", "ConvTranspose", 11, [ones(1, 1, 2), ones(1, 1, 1)], {"output_shape": [1, 2]}, "output_shape is [1, 2]"),
    ("pads that take all", "ConvTranspose", 11, [ones(1, 1, 2), ones(1, 1, 1)], {"pads": [2, 1]}, "pads of 2 and 1"),
    ("a negative output_padding", "ConvTranspose", 11, [ones(1, 1, 2), ones(1, 1, 1)], {"output_padding": [-1]}, "output_padding is [-1]"),
    ("an unknown auto_pad", "ConvTranspose", 11, [ones(1, 1, 2), ones(1, 1, 1)], {"auto_pad": "UPPER"}, "auto_pad is 'UPPER'"),
    ("blocks that do not fit", "Col2Im", 18, [ones(1, 2, 3), np.array([1, 3]), np.array([1, 2])], {}, "allowed: [N, C * 2, 2]"),
    (
        "channels that offset groups do not divide",
        "DeformConv",
        19,
        [ones(1, 3, 1), ones(1, 3, 1), ones(1, 2, 1)],
        {"offset_group": 2},
        "offset_group is 2",
    ),
    (
        "offsets of another shape",
        "DeformConv",
        19,
        [ones(1, 1, 1), ones(1, 1, 1), ones(1, 1, 2)],
        {},
        "offset has shape [1, 1, 2]; allowed: [1, 1, 1]",
    ),
    ("an unknown activation", "CausalConvWithState", 27, [ones(1, 1, 1), ones(1, 1, 1)], {"activation": "relu"}, "activation is 'relu'"),
    ("a state of another length", "CausalConvWithState", 27, [ones(1, 1, 1), ones(1, 1, 2), None, ones(1, 1, 2)], {}, "allowed: [1, 1, 1]"),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(numbaops.InvalidValueError) as caught:
        run(op_type, opset, inputs, attributes, 2 if op_type == "CausalConvWithState" else 1)
    assert text in str(caught.value)
    assert caught.value.op_type == op_type


def test_inputs_stay_and_outputs_are_new() -> None:
    for _, op_type, opset, inputs, attributes, _ in CASES:
        if opset > onnx.defs.onnx_opset_version():
            continue
        leaf = LEAVES["", op_type, Case(op_type, opset, inputs, attributes).since_version]
        copies = [None if value is None else value.copy() for value in inputs]
        defaults: dict[str, Any] = {"activation": "none"} if op_type == "CausalConvWithState" else {}
        results = leaf.function(**attributes)(*copies) if leaf.bind else leaf.function(*copies, **(defaults | attributes))
        given = [(before, after) for before, after in zip(inputs, copies, strict=True) if after is not None]
        assert all(before.tobytes() == after.tobytes() for before, after in given if before.dtype != object), (op_type, opset)
        assert not leaf.aliases
        for result in results if isinstance(results, tuple) else (results,):
            assert not any(np.may_share_memory(result, value) for _, value in given), (op_type, opset)


def test_onnx_node_cases(node_cases: list[Any]) -> None:
    assert assert_node_cases(node_cases, *OPERATORS) > 20


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 27, reason="an onnx without CausalConvWithState")
def test_causal_convolution_rounds_its_sums_before_the_activation() -> None:
    random = np.random.default_rng(0)
    x, w, bias = (random.standard_normal(shape).astype(np.float16) for shape in ((2, 4, 8), (4, 1, 3), (4,)))
    got = run("CausalConvWithState", 27, [x, w, bias], {"activation": "silu"}, 2)[0]
    padded = np.concatenate((np.zeros((2, 4, 2)), x.astype(np.float64)), 2)
    sums = np.stack([(padded[:, :, place : place + 3] * w[:, 0]).sum(2) for place in range(8)], 2) + bias.astype(np.float64)[:, None]
    rounded = sums.astype(np.float32).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(got, (rounded / (1 + np.exp(-rounded))).astype(np.float16))
