"""Inputs that ask for more than there is: empty operands, windows without end, places at infinity, types that do not match."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

import numbaops
from numbaops import ReferenceEvaluator, load_op

F = np.float32


def run(op_type: str, opset: int, *inputs: Any, **attributes: Any) -> Any:
    node = onnx.helper.make_node(op_type, [f"i{place}" for place in range(len(inputs))], ["o"], **attributes)
    values = [onnx.helper.make_tensor_value_info(name, 1, None) for name in node.input]
    graph = onnx.helper.make_graph([node], "g", values, [onnx.helper.make_tensor_value_info("o", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)
    return ReferenceEvaluator(model).run(None, dict(zip(node.input, inputs, strict=True)))[0]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "PRelu"])
def test_operands_without_elements(op_type: str, dtype: Any) -> None:
    """Dimensions of 1 and 0 give 0, also where the other operand is large."""
    large, none = np.ones((1, 4096), dtype), np.ones((0, 1), dtype)
    if op_type == "PRelu":  # whose slope stretches, not its input
        with pytest.raises(numbaops.InvalidValueError):
            run(op_type, 16, large, none)
        return
    assert run(op_type, 14, large, none).shape == run(op_type, 14, none, large).shape == (0, 4096)
    with pytest.raises(ValueError, match="4096"):
        run(op_type, 14, large, np.ones(0, dtype))


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul"])
def test_operands_that_lose_their_elements_later(op_type: str) -> None:
    text = f"g (float16[n,1] x, bool[n] c, float16[1,m] a) => (y) {{ b = Compress <axis = 0> (x, c)  y = {op_type}(b, a) }}"
    evaluator = ReferenceEvaluator(parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + text))
    feeds = {"x": np.ones((40, 1), np.float16), "a": np.ones((1, 4096), np.float16)}
    for _ in range(12):
        assert evaluator.run(None, {**feeds, "c": np.ones(40, bool)})[0].shape == (40, 4096)
    assert evaluator.run(None, {**feeds, "c": np.zeros(40, bool)})[0].shape == (0, 4096)


def test_past_keys_and_values_of_different_lengths() -> None:
    attend = load_op("", "Attention", 23).eval
    new, key, value = np.ones((1, 1, 64, 64), F), np.ones((1, 1, 3, 64), F), np.ones((1, 1, 400, 64), F)
    with pytest.raises(numbaops.InvalidValueError, match=r"\[1, 1, 3, 64\] and \[1, 1, 400, 64\]; allowed: one past_sequence_length"):
        attend(new, new, new, None, key, value)


@pytest.mark.parametrize("queries", [2, 16, 64])
@pytest.mark.parametrize("size", [64, 1 << 31, 1 << 61, (1 << 63) - 1])
@pytest.mark.parametrize("side", ["left_window_size", "right_window_size"])
def test_windows_wider_than_the_sequence_restrict_nothing(side: str, size: int, queries: int) -> None:
    if onnx.defs.onnx_opset_version() < 25:
        pytest.skip("this onnx has no windows of Attention")
    x = np.random.default_rng(0).standard_normal((1, 1, 64, 64)).astype(F)
    attend = load_op("", "Attention", 25).eval
    given, wanted = attend(x[:, :, :queries], x, x, **{side: size}), attend(x[:, :, :queries], x, x)
    np.testing.assert_array_equal(given[0] if isinstance(given, tuple) else given, wanted[0] if isinstance(wanted, tuple) else wanted)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("place", [np.inf, -np.inf, 3e38, np.nan], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_at_infinity(dtype: Any, place: float, corners: int, mode: str) -> None:
    x, grid = np.full((1, 1, 1), 7, dtype), np.full((1, 1, 1), place, dtype)
    sampled = load_op("", "GridSample", 20).eval(x, grid, mode=mode, padding_mode="border", align_corners=corners)
    np.testing.assert_allclose(sampled, 7)


BYTES, SIGNED = np.ones((2, 2), np.uint8), np.ones((2, 2), np.int8)
FLOATS, DOUBLES = np.ones((2, 2), F), np.ones((2, 2))


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("MatMulInteger", (BYTES, BYTES, np.int8(1)), {}),
        ("MatMulInteger", (BYTES, SIGNED, np.uint8(1), np.uint8(1)), {}),
        ("ConvInteger", (BYTES.reshape(1, 1, 2, 2), BYTES.reshape(1, 1, 2, 2), np.int8(1)), {}),
        ("MatMul", (FLOATS, DOUBLES), {}),
        ("Gemm", (DOUBLES, FLOATS), {}),
        ("Concat", (FLOATS, DOUBLES), {"axis": 0}),
        ("ScatterElements", (FLOATS, np.zeros((1, 1), np.int64), DOUBLES[:1, :1]), {}),
        ("ScatterND", (FLOATS, np.zeros((1, 1), np.int64), DOUBLES[:1]), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_inputs_of_several_types(op_type: str, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> None:
    with pytest.raises(numbaops.InvalidTypeError, match=r"the element types are .* allowed: equal ones"):
        run(op_type, 18, *map(np.asarray, inputs), **attributes)


def test_indices_that_are_none() -> None:
    with pytest.raises(numbaops.InvalidTypeError, match="indices has the element type bool; allowed: int32, int64"):
        run("Gather", 13, FLOATS, np.ones(2, bool))
    with pytest.raises(numbaops.InvalidValueError, match="allowed: none, for the dimension has no elements"):
        run("Gather", 13, FLOATS[:0], np.zeros(1, np.int64))


@pytest.mark.parametrize("ratio", [1 << 40, 1 << 62], ids=str)
def test_more_samples_than_there_is_memory_for(ratio: int) -> None:
    x, rois = np.ones((1, 1, 8, 8), F), np.array([[0, 0, 4, 4]], F)
    with pytest.raises(numbaops.InvalidValueError, match=r"sampling_ratio is .* samples along an axis"):
        run("RoiAlign", 16, x, rois, np.zeros(1, np.int64), sampling_ratio=ratio, output_height=4, output_width=4)


def test_regions_larger_than_any_number() -> None:
    x, rois = np.ones((1, 1, 8, 8), F), np.array([[-3e38, 0, 3e38, 4]], F)
    with pytest.raises(numbaops.InvalidValueError, match="allowed: finite sizes"):
        run("RoiAlign", 16, x, rois, np.zeros(1, np.int64))


def test_caches_of_different_shapes() -> None:
    if onnx.defs.onnx_opset_version() < 23:
        pytest.skip("this onnx has no RotaryEmbedding")
    rotate = load_op("", "RotaryEmbedding", 23).eval
    with pytest.raises(numbaops.InvalidValueError, match="cos_cache and sin_cache have the shapes"):
        rotate(np.ones((2, 1, 33, 16), F), np.ones((2, 33, 8), F), np.ones((2, 1, 8), F))


@pytest.mark.parametrize("op_type", ["Exp", "Tanh", "Sigmoid", "Relu"])
def test_functions_of_numpy_load_with_every_numpy(op_type: str) -> None:
    """Before 2.1, they have no signature to look at."""
    assert run(op_type, 13, np.zeros(3, F)).shape == (3,)


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
def test_known_factors_of_another_type(op_type: str) -> None:
    """They are widened once, and still of their own type."""
    node = onnx.helper.make_node(op_type, ["x", "w"], ["o"])
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [2, 2])],
        [onnx.helper.make_tensor_value_info("o", 1, None)],
        [numbaops.from_array(np.ones((2, 2), np.float16), "w")],
    )
    evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=9))
    for _ in range(8):
        with pytest.raises(numbaops.InvalidTypeError, match="float32 and float16"):
            evaluator.run(None, {"x": FLOATS})
        assert evaluator.run(None, {"x": FLOATS.astype(np.float16)})[0].dtype == np.float16
