"""Pools at every version: what a comparison on drawn inputs found wrong elsewhere, as small cases, and drawn cases beside slow loops."""

from __future__ import annotations

import inspect
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import numbaops
import window_oracle
from drawn import pooling
from drawn.case import Case, difference
from leaf_checks import assert_node_cases
from numbaops.kernels import windows as window_kernels
from numbaops.ops import pooling as pools
from numbaops.ops.leaves import LEAVES

NAN, INF = math.nan, math.inf
OPERATORS = (
    "MaxPool",
    "AveragePool",
    "LpPool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GlobalLpPool",
    "MaxUnpool",
    "MaxRoiPool",
    "RoiAlign",
)


@pytest.fixture(params=["NumPy", "kernels"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has NumPy serve, or the kernels, however small an array is, and also where they are not compiled."""
    monkeypatch.setattr(window_kernels, "COMPILED", True)
    monkeypatch.setattr(pools, "JIT_FROM", 1 if request.param == "kernels" else 1 << 60)


def run(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], outputs: int = 1) -> list[Any]:
    case = Case(op_type, opset, inputs, attributes, outputs)
    return numbaops.ReferenceEvaluator(case.model()).run(None, case.feeds)


def row(*values: float, dtype: Any = np.float32) -> Any:
    """One image of one channel with one spatial axis."""
    return np.array([[values]], dtype)


def count(*shape: int, dtype: Any = np.float32) -> Any:
    return np.arange(math.prod(shape)).reshape(shape).astype(dtype)


# id, operator, opset, inputs, attributes, outputs
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], list[Any]]] = [
    (
        "indices count through all channels and images",
        "MaxPool",
        8,
        [count(2, 2, 4)],
        {"kernel_shape": [2], "strides": [2]},
        [[[[1, 3], [5, 7]], [[9, 11], [13, 15]]], [[[1, 3], [5, 7]], [[9, 11], [13, 15]]]],
    ),
    (
        "indices, column-major, without strides",
        "MaxPool",
        8,
        [count(1, 2, 2, 3)],
        {"kernel_shape": [2, 2], "storage_order": 1},
        [[[[[4, 5]], [[10, 11]]]], [[[[3, 5]], [[9, 11]]]]],
    ),
    (
        "indices, column-major, three axes",
        "MaxPool",
        12,
        [count(1, 1, 2, 3, 2)],
        {"kernel_shape": [2, 3, 2], "storage_order": 1},
        [[[[[[11]]]]], [[[[[11]]]]]],
    ),
    (
        "indices of equal elements: the first in row-major order, also column-major",
        "MaxPool",
        12,
        [np.array([[[[0, 7], [7, 7]]]], np.float32)],
        {"kernel_shape": [2, 2], "storage_order": 1},
        [[[[[7]]]], [[[[2]]]]],
    ),
    (
        "indices of -inf beside a pad",
        "MaxPool",
        12,
        [row(-INF, -INF, 1)],
        {"kernel_shape": [2], "pads": [1, 0]},
        [[[[-INF, -INF, 1]]], [[[0, 0, 2]]]],
    ),
    (
        "a window without elements",
        "MaxPool",
        12,
        [row(5, 6)],
        {"kernel_shape": [2], "dilations": [3], "pads": [1, 1]},
        [[[[-INF]]], [[[-1]]]],
    ),
    (
        "a window without elements",
        "MaxPool",
        12,
        [row(5, 6, dtype=np.int8)],
        {"kernel_shape": [2], "dilations": [3], "pads": [1, 1]},
        [[[[-128]]]],
    ),
    ("NaN is the maximum", "MaxPool", 12, [row(1, NAN, 2, 3)], {"kernel_shape": [2]}, [[[[NAN, NAN, 3]]], [[[1, 1, 3]]]]),
    (
        "pads never win over negatives",
        "MaxPool",
        12,
        [row(-5, -7, dtype=np.int8)],
        {"kernel_shape": [2], "pads": [1, 1]},
        [[[[-5, -5, -7]]]],
    ),
    ("uint8", "MaxPool", 12, [row(0, 200, 255, dtype=np.uint8)], {"kernel_shape": [2]}, [[[[200, 255]]]]),
    ("SAME_UPPER", "MaxPool", 1, [row(3, 1, 2, 0)], {"kernel_shape": [2], "auto_pad": "SAME_UPPER"}, [[[[3, 2, 2, 0]]]]),
    ("SAME_LOWER", "MaxPool", 1, [row(3, 1, 2, 0)], {"kernel_shape": [2], "auto_pad": "SAME_LOWER"}, [[[[3, 3, 2, 2]]]]),
    ("VALID with a stride", "MaxPool", 7, [row(3, 1, 2, 0, 9)], {"kernel_shape": [2], "strides": [2], "auto_pad": "VALID"}, [[[[3, 2]]]]),
    (
        "SAME_LOWER with a stride that does not divide",
        "MaxPool",
        12,
        [count(1, 1, 9)],
        {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_LOWER"},
        [[[[1, 3, 5, 7, 8]]]],
    ),
    (  # ONNX Runtime takes the kernel without its dilation
        "SAME_UPPER with dilations",
        "MaxPool",
        12,
        [row(5, 0, 1, 0, 2)],
        {"kernel_shape": [2], "dilations": [2], "auto_pad": "SAME_UPPER"},
        [[[[0, 5, 0, 2, 0]]]],
    ),
    (  # ONNX Runtime has negative pads here
        "SAME_UPPER with a stride beyond the kernel",
        "MaxPool",
        12,
        [count(1, 1, 9)],
        {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_UPPER"},
        [[[[0, 3, 6]]]],
    ),
    (
        "dilations and ceil_mode",
        "MaxPool",
        10,
        [count(1, 1, 6)],
        {"kernel_shape": [2], "dilations": [2], "strides": [3], "ceil_mode": 1},
        [[[[2, 5]]]],
    ),
    (
        "ceil_mode: a window that starts in the pad is ignored",
        "MaxPool",
        10,
        [row(4, 3, 2, 1)],
        {"kernel_shape": [1], "strides": [2], "pads": [0, 1], "ceil_mode": 1},
        [[[[4, 2]]]],
    ),
    (
        "ceil_mode: a kernel wider than the input",
        "MaxPool",
        12,
        [row(4, 9)],
        {"kernel_shape": [3], "strides": [2], "ceil_mode": 1},
        [[[[9]]]],
    ),
    ("pads do not count", "AveragePool", 1, [row(2, 4, 6)], {"kernel_shape": [3], "pads": [1, 1]}, [[[[3, 4, 5]]]]),
    ("pads count", "AveragePool", 7, [row(3, 6, 9)], {"kernel_shape": [3], "pads": [1, 1], "count_include_pad": 1}, [[[[3, 6, 5]]]]),
    (
        "pads count, what ceil_mode adds does not",
        "AveragePool",
        10,
        [row(2, 4, 6, 8)],
        {"kernel_shape": [3], "strides": [2], "pads": [1, 0], "count_include_pad": 1, "ceil_mode": 1},
        [[[[2, 6]]]],
    ),
    (
        "ceil_mode: a partial window",
        "AveragePool",
        10,
        [row(2, 4, 6, 8)],
        {"kernel_shape": [3], "strides": [2], "ceil_mode": 1},
        [[[[4, 7]]]],
    ),
    (
        "pads and ceil_mode: a partial window has one pad",
        "AveragePool",
        19,
        [row(2, 4, 6, 8)],
        {"kernel_shape": [3], "strides": [3], "pads": [0, 1], "count_include_pad": 1, "ceil_mode": 1},
        [[[[4, 4]]]],
    ),
    (
        "SAME_UPPER with ceil_mode",
        "AveragePool",
        11,
        [row(2, 4, 6)],
        {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_UPPER", "ceil_mode": 1},
        [[[[3, 6]]]],
    ),
    (  # the text of version 11 alone has floor(3 / 2) windows here, against its own attribute's text
        "SAME_UPPER without ceil_mode",
        "AveragePool",
        11,
        [row(2, 4, 6)],
        {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_UPPER"},
        [[[[3, 6]]]],
    ),
    (
        "SAME_LOWER counts its pads",
        "AveragePool",
        22,
        [row(2, 4, 6)],
        {"kernel_shape": [2], "auto_pad": "SAME_LOWER", "count_include_pad": 1},
        [[[[1, 3, 5]]]],
    ),
    (
        "SAME_UPPER with dilations, pads counted",
        "AveragePool",
        19,
        [row(2, 4, 6)],
        {"kernel_shape": [2], "dilations": [2], "auto_pad": "SAME_UPPER", "count_include_pad": 1},
        [[[[2, 4, 2]]]],
    ),
    ("NaN is no pad", "AveragePool", 7, [row(NAN, 2, 4)], {"kernel_shape": [2]}, [[[[NAN, 3]]]]),
    ("the sum may exceed float16", "AveragePool", 7, [row(60000, 60000, dtype=np.float16)], {"kernel_shape": [2]}, [[[[60000]]]]),
    ("p is a float, 1 by choice", "LpPool", 1, [row(3, -4)], {"kernel_shape": [2], "p": 1.0}, [[[[7]]]]),
    ("p is 2 by default", "LpPool", 1, [row(3, -4)], {"kernel_shape": [2]}, [[[[5]]]]),
    ("p is no integer", "LpPool", 1, [row(4, -9)], {"kernel_shape": [2], "p": 0.5}, [[[[25]]]]),
    ("odd p of negatives", "LpPool", 2, [row(-3, -4, -5)], {"kernel_shape": [3], "p": 3}, [[[[6]]]]),
    ("pads at the edge", "LpPool", 11, [row(3, -4)], {"kernel_shape": [2], "pads": [1, 1]}, [[[[3, 5, 4]]]]),
    (
        "ceil_mode: a partial window is no mean",
        "LpPool",
        18,
        [row(1, 1, 1, 1, 1, 1, 1, 1, 1)],
        {"kernel_shape": [3], "strides": [3], "pads": [1, 1], "ceil_mode": 1, "p": 1},
        [[[[2, 3, 3, 1]]]],
    ),
    ("dilations", "LpPool", 18, [row(3, 9, 4)], {"kernel_shape": [2], "dilations": [2]}, [[[[5]]]]),
    ("one spatial axis", "GlobalMaxPool", 1, [count(1, 2, 3)], {}, [[[[2], [5]]]]),
    ("three spatial axes", "GlobalMaxPool", 1, [count(1, 2, 1, 2, 2)], {}, [[[[[[3]]], [[[7]]]]]]),
    ("no spatial axis", "GlobalMaxPool", 1, [count(1, 2)], {}, [[[0, 1]]]),
    ("no element", "GlobalMaxPool", 1, [count(1, 2, 0)], {}, [[[[-INF], [-INF]]]]),
    ("one spatial axis", "GlobalAveragePool", 1, [count(1, 2, 3)], {}, [[[[1], [4]]]]),
    ("the sum may exceed float16", "GlobalAveragePool", 1, [row(60000, 60000, dtype=np.float16)], {}, [[[[60000]]]]),
    ("no element", "GlobalAveragePool", 1, [count(1, 1, 0)], {}, [[[[NAN]]]]),
    ("p is a float", "GlobalLpPool", 1, [row(3, -4)], {"p": 1.0}, [[[[7]]]]),
    ("p is 2 by default", "GlobalLpPool", 2, [np.array([[[[3], [-4]], [[6], [8]]]], np.float32)], {}, [[[[[5]], [[10]]]]]),
    ("odd p of negatives", "GlobalLpPool", 22, [row(-3, -4, -5)], {"p": 3}, [[[[6]]]]),
    (
        "indices count through all channels",
        "MaxUnpool",
        9,
        [np.array([[[1], [2]]], np.float32), np.array([[[1], [2]]])],
        {"kernel_shape": [2]},
        [[[[0, 1], [2, 0]]]],
    ),
    (
        "pads make the output smaller",
        "MaxUnpool",
        11,
        [row(5, 6), np.array([[[0, 1]]])],
        {"kernel_shape": [2], "strides": [2], "pads": [1, 1]},
        [[[[5, 6]]]],
    ),
    (  # ONNX Runtime counts in the larger output, against ONNX's own case
        "output_shape is larger: zeros at the end",
        "MaxUnpool",
        11,
        [row(5, 6), np.array([[[1, 3]]]), np.array([1, 1, 5])],
        {"kernel_shape": [2], "strides": [2]},
        [[[[0, 5, 0, 6, 0]]]],
    ),
    (
        "output_shape instead of pads",
        "MaxUnpool",
        11,
        [np.array([[[5, 6], [7, 8]]], np.float32), np.array([[[0, 2], [3, 5]]]), np.array([1, 2, 3])],
        {"kernel_shape": [2], "strides": [2], "pads": [1, 1]},
        [[[[5, 0, 6], [7, 0, 8]]]],
    ),
    (
        "both corners belong to the region",
        "MaxRoiPool",
        1,
        [count(1, 1, 4, 4), np.array([[0, 0, 0, 2, 2]], np.float32)],
        {"pooled_shape": [1, 1]},
        [[[[[10]]]]],
    ),
    (
        "bins overlap where they do not divide",
        "MaxRoiPool",
        1,
        [count(1, 1, 1, 3), np.array([[0, 0, 0, 2, 0]], np.float32)],
        {"pooled_shape": [1, 2]},
        [[[[[1, 2]]]]],
    ),
    (
        "corners are scaled and rounded, halves up",
        "MaxRoiPool",
        1,
        [count(1, 1, 1, 6), np.array([[0, 3, 0, 7, 0]], np.float32)],
        {"pooled_shape": [1, 2], "spatial_scale": 0.5},
        [[[[[3, 4]]]]],
    ),
    (
        "a region outside gives zeros, one partly outside what it has",
        "MaxRoiPool",
        22,
        [count(2, 1, 1, 2) - 9, np.array([[1, 5, 0, 7, 0], [1, -1, 0, 1, 0]], np.float32)],
        {"pooled_shape": [1, 1]},
        [[[[[0]]], [[[-6]]]]],
    ),
    (
        "version 10 has no half pixel",
        "RoiAlign",
        10,
        [count(1, 1, 1, 4), np.array([[0, 0, 2, 1]], np.float32), np.array([0])],
        {"output_width": 2, "sampling_ratio": 1},
        [[[[[0.5, 1.5]]]]],
    ),
    (
        "version 16 has the half pixel by default",
        "RoiAlign",
        16,
        [count(1, 1, 1, 4), np.array([[1, 0.5, 3, 1.5]], np.float32), np.array([0])],
        {"output_width": 2, "sampling_ratio": 1},
        [[[[[1, 2]]]]],
    ),
    (
        "version 10: a region is at least one element wide",
        "RoiAlign",
        10,
        [count(1, 1, 1, 4), np.array([[1, 0, 1, 0]], np.float32), np.array([0])],
        {"sampling_ratio": 1},
        [[[[[1.5]]]]],
    ),
    (
        "as many samples as elements, outside zeros",
        "RoiAlign",
        16,
        [np.full((1, 1, 1, 2), 8, np.float32), np.array([[0, 0, 4, 1]], np.float32), np.array([0])],
        {"coordinate_transformation_mode": "output_half_pixel"},
        [[[[[4]]]]],  # samples at 0.5, 1.5, 2.5 and 3.5 of two elements
    ),
    (
        "an empty region has no sample",
        "RoiAlign",
        16,
        [np.ones((1, 1, 2, 2), np.float32), np.array([[1, 1, 1, 1]], np.float32), np.array([0])],
        {},
        [[[[[0]]]]],
    ),
    (
        "max takes weighted corners, not samples",
        "RoiAlign",
        16,
        [row(4, 8)[None], np.array([[0, 0, 1.5, 1]], np.float32), np.array([0])],
        {"mode": "max", "sampling_ratio": 1, "coordinate_transformation_mode": "output_half_pixel"},
        [[[[[6]]]]],  # one sample at 0.75: 4 * 0.25 and 8 * 0.75
    ),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "wanted"),
    [case[1:] for case in CASES],
    ids=[f"{case[1]} {case[2]}: {case[0]}" for case in CASES],
)
@pytest.mark.usefixtures("way")
def test_case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], wanted: list[Any]) -> None:
    got = run(op_type, opset, inputs, attributes, len(wanted))
    for mine, right, dtype in zip(got, wanted, (inputs[0].dtype, np.int64), strict=False):
        assert mine.dtype == dtype
        assert mine.shape == np.shape(right)
        np.testing.assert_allclose(mine, np.array(right, mine.dtype), rtol=1e-6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool", "MaxRoiPool", "RoiAlign"])
def test_drawn_case_beside_loops(op_type: str) -> None:
    seen = 0
    for case in pooling.draws(np.random.default_rng(7)):
        if case.op_type != op_type:
            continue
        if op_type == "MaxRoiPool":
            wanted = [window_oracle.max_roi_pool(*case.inputs, case.attributes)]
        elif op_type == "RoiAlign":
            half_pixel = case.opset >= 16 and case.attributes.get("coordinate_transformation_mode") != "output_half_pixel"
            wanted = [window_oracle.roi_align(*case.inputs, case.attributes, half_pixel).astype(case.inputs[0].dtype)]
        else:
            wanted = window_oracle.pool(op_type, case.inputs[0], case.attributes)[: case.outputs]
        got = run(op_type, case.opset, case.inputs, case.attributes, case.outputs)
        assert difference(got, wanted, case) is None, case
        seen += 1
    assert seen >= 45


@pytest.mark.parametrize(
    ("axes", "kernel", "pads"),
    [((2,), (3,), None), ((0, 3), (1, 2), None), ((3, 0), (2, 1), [1, 1, 1, 1])],
    ids=["channels", "rows", "columns"],
)
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_zero_dimension(op_type: str, axes: tuple[int, ...], kernel: tuple[int, ...], pads: list[int] | None) -> None:
    x = np.zeros((1, 0, 4) if axes == (2,) else (2, 1, *axes), np.float32)
    attributes: dict[str, Any] = {"kernel_shape": list(kernel)} | ({} if pads is None else {"pads": pads})
    (got,) = run(op_type, 22, [x], attributes)
    padded = [size + 2 * (pads is not None) for size in x.shape[2:]]
    assert got.shape == (*x.shape[:2], *(max(0, size - cells + 1) for size, cells in zip(padded, kernel, strict=True)))
    assert got.dtype == np.float32


@pytest.mark.usefixtures("way")
def test_bfloat16_is_rounded_once() -> None:
    x = row(256, 1, 1, 1, dtype=ml_dtypes.bfloat16)  # whose sum in bfloat16 is 256
    for got in (*run("AveragePool", 22, [x], {"kernel_shape": [4]}), *run("GlobalAveragePool", 22, [x], {})):
        assert got.dtype == ml_dtypes.bfloat16
        assert float(got[0, 0, 0]) == 65  # 259 / 4 = 64.75 lies between 64.5 and 65


# id, operator, opset, inputs, attributes, a part of the message
ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("two kernel sizes for one axis", "MaxPool", 12, [row(1, 2)], {"kernel_shape": [1, 1]}, "kernel_shape is [1, 1]"),
    ("a stride of 0", "MaxPool", 12, [row(1, 2)], {"kernel_shape": [1], "strides": [0]}, "strides is [0]"),
    ("a negative pad", "MaxPool", 12, [row(1, 2)], {"kernel_shape": [1], "pads": [-1, 0]}, "pads is [-1, 0]"),
    ("an unknown auto_pad", "LpPool", 18, [row(1, 2)], {"kernel_shape": [1], "auto_pad": "SAME"}, "auto_pad is 'SAME'"),
    ("a kernel beyond the input", "AveragePool", 22, [row(1, 2)], {"kernel_shape": [4], "pads": [1, 0]}, "spans 4"),
    ("no spatial axis", "AveragePool", 22, [count(2, 2)], {"kernel_shape": [1]}, "[2, 2]"),
    ("LpPool-1 without kernel_shape", "LpPool", 1, [row(1, 2)], {}, "kernel_shape is missing"),
    ("p of 0", "LpPool", 18, [row(1, 2)], {"kernel_shape": [1], "p": 0}, "p is 0"),
    ("rank 1", "GlobalMaxPool", 22, [count(2)], {}, "[2]"),
    ("an index outside", "MaxUnpool", 11, [row(1), np.array([[[2]]])], {"kernel_shape": [2]}, "indices from 2 to 2"),
    ("indices of another shape", "MaxUnpool", 11, [row(1), np.array([[0]])], {"kernel_shape": [2]}, "[1, 1]"),
    (
        "output_shape of other channels",
        "MaxUnpool",
        11,
        [row(1), np.array([[[0]]]), np.array([1, 2, 2])],
        {"kernel_shape": [2]},
        "[1, 2, 2]",
    ),
    (
        "an image that is not there",
        "MaxRoiPool",
        22,
        [count(1, 1, 1, 1), np.array([[1, 0, 0, 0, 0]], np.float32)],
        {"pooled_shape": [1, 1]},
        "1 to 1",
    ),
    ("four columns", "MaxRoiPool", 22, [count(1, 1, 1, 1), np.zeros((1, 4), np.float32)], {"pooled_shape": [1, 1]}, "[1, 4]"),
    ("an image that is not there", "RoiAlign", 22, [count(1, 1, 1, 1), np.zeros((1, 4), np.float32), np.array([-1])], {}, "-1 to -1"),
    ("an unknown mode", "RoiAlign", 22, [count(1, 1, 1, 1), np.zeros((1, 4), np.float32), np.array([0])], {"mode": "min"}, "mode is 'min'"),
    ("a NaN", "RoiAlign", 22, [count(1, 1, 1, 1), np.full((1, 4), NAN, np.float32), np.array([0])], {}, "NaN"),
    ("two images for one region", "RoiAlign", 22, [count(1, 1, 1, 1), np.zeros((1, 4), np.float32), np.array([0, 0])], {}, "[2]"),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(numbaops.InvalidValueError) as caught:
        run(op_type, opset, inputs, attributes)
    assert text in str(caught.value)
    assert caught.value.op_type == op_type


@pytest.mark.usefixtures("way")
def test_inputs_stay_and_outputs_are_new() -> None:
    for _, op_type, opset, inputs, attributes, wanted in CASES:
        version = Case(op_type, opset, inputs, attributes).since_version
        leaf = LEAVES["", op_type, version]
        given = dict(attributes)
        if op_type in ("LpPool", "GlobalLpPool"):
            given.setdefault("p", 2)
        if op_type == "RoiAlign":
            given = {"mode": "avg", "output_height": 1, "output_width": 1, "sampling_ratio": 0, "spatial_scale": 1.0} | given
        if "outputs" in inspect.signature(leaf.function).parameters:
            given["outputs"] = len(wanted)
        copies = [value.copy() for value in inputs]
        results = leaf.function(*copies, **given)
        for before, after in zip(inputs, copies, strict=True):
            assert before.tobytes() == after.tobytes(), (op_type, opset)
        assert not leaf.aliases
        for result in results if isinstance(results, tuple) else (results,):
            assert not any(np.may_share_memory(result, value) for value in copies), (op_type, opset)


def test_onnx_node_cases(node_cases: list[Any]) -> None:
    assert assert_node_cases(node_cases, *OPERATORS) > 40
