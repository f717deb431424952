"""Reductions at every version: what a comparison on drawn inputs found wrong elsewhere, and drawn cases beside loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import numbaops
from drawn import reduction
from drawn.case import Case
from leaf_checks import assert_node_cases, each_case, run
from numbaops.ops.reduction import LEAVES

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # infinities and invalid operations, as NumPy has them

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NAN, INF = math.nan, math.inf
ALL = {"keepdims": 0}


def floats(*values: float, dtype: Any = np.float32) -> Any:
    return np.array(values, np.float64).astype(dtype)


def ints(*values: int, dtype: Any = np.int32) -> Any:
    return np.array(values, dtype)


def axes(*values: int) -> Any:
    return np.array(values, np.int64)


def nothing(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


TABLE = np.array([[1, 2], [3, 4]], np.float32)

# id, operator, opset, inputs, attributes, output (of the first input's type unless it is an array)
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], Any]] = [
    ("axes by attribute", "ReduceSum", 1, [TABLE], {"axes": [-1]}, [[3], [7]]),
    ("axes by input", "ReduceSum", 13, [TABLE, axes(0)], ALL, [4, 6]),
    ("no axes", "ReduceSum", 13, [TABLE, None], {}, [[10]]),
    ("empty axes", "ReduceSum", 13, [TABLE, axes()], ALL, 10),
    ("axes of rank 0", "ReduceSum", 13, [TABLE, np.array(1)], ALL, [3, 7]),
    ("a scalar", "ReduceSum", 11, [floats(3).reshape(())], {}, 3),
    ("no axes, and nothing done", "ReduceSum", 13, [TABLE, None], {"noop_with_empty_axes": 1}, TABLE),
    ("nothing reduced, but absolute", "ReduceL1", 18, [floats(-1, 2)], {"noop_with_empty_axes": 1}, [1, 2]),
    ("nothing reduced, but squared", "ReduceSumSquare", 18, [floats(-1, 2), axes()], {"noop_with_empty_axes": 1}, [1, 4]),
    ("nothing reduced, but the logarithm", "ReduceLogSum", 18, [floats(1, math.e)], {"noop_with_empty_axes": 1}, [0, 1]),
    ("nothing reduced, but the root of the square", "ReduceL2", 18, [floats(-3)], {"noop_with_empty_axes": 1}, [3]),
    ("integers wrap", "ReduceSum", 1, [ints(2**31 - 1, 1)], {}, [-(2**31)]),
    ("type of integers", "ReduceSumSquare", 13, [ints(3, 4)], {}, [25]),
    ("type of unsigned integers", "ReduceSumSquare", 1, [ints(3, 4, dtype=np.uint32)], ALL, 25),
    ("type of integers", "ReduceL1", 11, [ints(-3, 4, dtype=np.int64)], ALL, 7),
    ("squares beyond the type", "ReduceL2", 13, [ints(30000, 40000)], ALL, 50000),
    ("integers are truncated", "ReduceL2", 1, [ints(1, 1, dtype=np.uint32)], ALL, 1),
    ("integers are truncated", "ReduceLogSum", 13, [ints(5, 50)], ALL, 4),
    ("integers are truncated", "ReduceLogSumExp", 11, [ints(5, 6, dtype=np.int64)], ALL, 6),
    ("a sum beyond the type", "ReduceMean", 13, [ints(2**31 - 1, 2**31 - 3)], ALL, 2**31 - 2),
    ("a sum beyond int64", "ReduceMean", 18, [ints(-(2**63), -(2**63) + 3, dtype=np.int64)], ALL, -(2**63) + 2),
    ("a sum beyond uint64", "ReduceMean", 1, [ints(2**64 - 1, 2**64 - 4, dtype=np.uint64)], {}, [2**64 - 3]),
    ("truncates to 0", "ReduceMean", 11, [ints(-3, 0)], ALL, -1),
    ("half adds up in float32", "ReduceMean", 13, [np.full(4096, 100, np.float16)], ALL, 100),
    ("half rounds once", "ReduceSum", 13, [floats(2048, 1, 1, 1, dtype=np.float16)], ALL, 2052),
    ("bfloat16", "ReduceSum", 13, [floats(256, 0.75, 0.75, 0.75, dtype=BFLOAT16), axes(0)], ALL, 258),
    ("bfloat16", "ReduceLogSumExp", 18, [floats(0, 0, dtype=BFLOAT16)], ALL, math.log(2)),
    ("half, squares beyond it", "ReduceL2", 13, [floats(300, 400, dtype=np.float16)], ALL, 500),
    ("minus infinities", "ReduceLogSumExp", 18, [floats(-INF, -INF)], {}, [-INF]),
    ("infinity", "ReduceLogSumExp", 1, [floats(INF, -INF)], ALL, INF),
    ("far from 0", "ReduceLogSumExp", 13, [floats(-1000, -1000)], ALL, -1000 + math.log(2)),
    ("no elements", "ReduceLogSumExp", 18, [nothing(2, 0), axes(1)], ALL, [-INF, -INF]),
    ("no elements", "ReduceLogSum", 18, [nothing(2, 0), axes(1)], {}, [[-INF], [-INF]]),
    ("no elements", "ReduceMax", 13, [nothing(2, 0)], {"axes": [1]}, [[-INF], [-INF]]),
    ("no elements of integers", "ReduceMin", 12, [nothing(0, dtype=np.int8)], ALL, 127),
    ("no elements of bool", "ReduceMin", 20, [nothing(0, 1, dtype=bool), axes(0)], ALL, [True]),
    ("no elements of bfloat16", "ReduceMax", 13, [nothing(0, dtype=BFLOAT16)], ALL, -INF),
    ("no rows", "ReduceMax", 18, [nothing(0, 3), axes(1)], ALL, np.zeros(0, np.float32)),
    ("no elements", "ReduceProd", 13, [nothing(0)], ALL, 1),
    ("no elements", "ReduceMean", 18, [nothing(0)], ALL, NAN),
    ("bool", "ReduceMax", 20, [np.array([[False, True], [False, False]]), axes(1)], ALL, [True, False]),
    ("first of equals", "ArgMax", 11, [floats(1, 5, 5)], {}, np.array([1])),
    ("last of equals", "ArgMin", 12, [ints(1, 2, 1)], {"select_last_index": 1, "keepdims": 0}, np.array(2)),
    ("bfloat16", "ArgMax", 13, [floats(1, 3, 3, dtype=BFLOAT16)], {"select_last_index": 1}, np.array([2])),
    ("no columns, no rows", "ArgMax", 13, [nothing(0, 0)], {"axis": 1}, np.zeros((0, 1), np.int64)),
    ("exclusive, from the end", "CumSum", 11, [floats(1, 2, 3), np.array(0)], {"exclusive": 1, "reverse": 1}, [5, 3, 0]),
    ("axis of one element", "CumSum", 14, [TABLE, np.array([-1], np.int32)], {}, [[1, 3], [3, 7]]),
    ("half rounds each sum once", "CumSum", 14, [floats(2048, 1, 1, dtype=np.float16), np.array(0)], {}, [2048, 2048, 2050]),
    ("no elements", "CumSum", 14, [nothing(0), np.array(0)], {"exclusive": 1}, np.zeros(0, np.float32)),
    ("exclusive", "CumProd", 26, [ints(2, 3, 4), np.array(0)], {"exclusive": 1}, [1, 2, 6]),
]


@each_case(CASES)
def test_case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], want: Any) -> None:
    (got,) = run(op_type, opset, inputs, attributes)
    dtype = want.dtype if isinstance(want, np.ndarray) else inputs[0].dtype
    assert_values(got, np.array(want, dtype if dtype.kind in "biu" else np.float64), dtype)


def assert_values(got: Any, want: Any, dtype: np.dtype[Any], atol: float = 1e-6, what: Any = "") -> None:
    assert (got.dtype, got.shape) == (dtype, want.shape), what
    if dtype.kind in "biu":
        assert got.tolist() == want.tolist(), what
        return
    rtol = {2: 2.0**-10 if dtype == np.float16 else 2.0**-7, 4: 1e-5}.get(dtype.itemsize, 1e-9)
    wide, right = got.astype(np.float64), want.astype(dtype).astype(np.float64)
    np.testing.assert_allclose(wide, right, rtol=rtol, atol=atol, err_msg=str(what))


def test_axes_attribute_without_elements() -> None:
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    node.attribute.append(helper.make_attribute("axes", [], attr_type=onnx.AttributeProto.INTS))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    assert numbaops.ReferenceEvaluator(model).run(None, {"x": TABLE})[0].tolist() == 10


# id, operator, opset, inputs, attributes, what the error says
ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("axis beyond the rank", "ReduceSum", 1, [TABLE], {"axes": [2]}, "-2 to 1"),
    ("axis twice", "ReduceMax", 18, [TABLE, axes(0, -2)], {}, "every axis once"),
    ("axis of a scalar", "ReduceMin", 13, [floats(1).reshape(())], {"axes": [0]}, "none for a tensor of rank 0"),
    ("no elements", "ArgMin", 13, [nothing(2, 0)], {"axis": 1}, "elements along axis 1"),
    ("axis beyond the rank", "ArgMax", 1, [TABLE], {"axis": 2}, "-2 to 1"),
    ("a scalar", "CumSum", 14, [floats(1).reshape(()), np.array(0)], {}, "none for a tensor of rank 0"),
    ("several axes", "CumSum", 14, [TABLE, np.array([0, 1])], {}, "one element"),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(numbaops.InvalidValueError) as caught:
        run(op_type, opset, inputs, attributes)
    assert text in str(caught.value)
    assert caught.value.op_type == op_type


def _log_sum_exp(values: list[Any]) -> float:
    top = max(values, default=-INF)
    if math.isinf(top):
        return float(top)
    return float(top) + math.log(math.fsum(math.exp(value - top) for value in values))


def _log(value: Any) -> float:
    return math.log(value) if value > 0 else -INF if value == 0 else NAN


# Of a list of Fractions; what is no number is tested above.
REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "ReduceL1": lambda values: sum(map(abs, values)),
    "ReduceL2": lambda values: math.sqrt(sum(value * value for value in values)),
    "ReduceLogSum": lambda values: _log(sum(values)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": max,
    "ReduceMean": lambda values: Fraction(sum(values), len(values)),
    "ReduceMin": min,
    "ReduceProd": math.prod,
    "ReduceSum": sum,
    "ReduceSumSquare": lambda values: sum(value * value for value in values),
}


def in_type(value: Any, dtype: np.dtype[Any]) -> Any:
    """As a number of a type: truncated and wrapped, or float64; None where an integer is none or a float is beyond its range."""
    if dtype.kind not in "iu":
        return float(value)
    if isinstance(value, float):
        limits = np.iinfo(dtype)
        return int(value) if math.isfinite(value) and limits.min <= value <= limits.max else None
    low = np.iinfo(dtype).min
    return (math.trunc(value) - low) % 2 ** (8 * dtype.itemsize) + low


def reduced(case: Case) -> Any:
    """The output as nested loops have it, or None if the text leaves it open."""
    x, attributes = case.inputs[0], case.attributes
    given = attributes.get("axes") or (case.inputs[1].tolist() if len(case.inputs) > 1 and case.inputs[1] is not None else [])
    chosen = {axis % x.ndim for axis in given} if given or attributes.get("noop_with_empty_axes") else set(range(x.ndim))
    groups: dict[tuple[int, ...], list[Any]] = {}
    kept = tuple(1 if axis in chosen else size for axis, size in enumerate(x.shape))
    for place in np.ndindex(kept):
        groups[place] = []
    for place in np.ndindex(x.shape):
        groups[tuple(0 if axis in chosen else index for axis, index in enumerate(place))].append(Fraction(x[place].item()))
    y = np.empty(kept, object)
    for place, values in groups.items():
        y[place] = in_type(REDUCTIONS[case.op_type](values), x.dtype)
        if y[place] is None:
            return None
    return y if attributes["keepdims"] else y.reshape([size for axis, size in enumerate(kept) if axis not in chosen])


def test_drawn_reductions_beside_loops() -> None:
    seen = set()
    for case in reduction.draws(np.random.default_rng(5)):
        x = case.inputs[0]
        if case.op_type not in REDUCTIONS or not x.size or not np.isfinite(x.astype(np.float64)).all():
            continue
        seen.add(case.op_type)
        want = reduced(case)
        if want is not None:
            (got,) = run(case.op_type, case.opset, case.inputs, case.attributes)
            if x.dtype.kind in "iu" and case.op_type in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
                # a float near an integer may be truncated to either side; of 64 bits not all digits are there
                assert (got.dtype, got.shape) == (x.dtype, want.shape)
                assert all(abs(int(p) - int(q)) <= 1 + abs(int(q)) * 1e-15 for p, q in zip(got.ravel(), want.ravel(), strict=True)), case
                continue
            size = max(1.0, float(abs(x.astype(np.float64)).max())) ** (2 if case.op_type == "ReduceSumSquare" else 1)
            atol = 1e-6 * size if case.op_type != "ReduceProd" else 0
            assert_values(got, want.astype(x.dtype if x.dtype.kind in "iu" else np.float64), x.dtype, atol, case)
    assert seen == set(REDUCTIONS)


def test_drawn_positions_and_running_sums_beside_loops() -> None:
    for case in reduction.draws(np.random.default_rng(6)):
        x, attributes = case.inputs[0], case.attributes
        if case.op_type in REDUCTIONS or not x.size or not np.isfinite(x.astype(np.float64)).all():
            continue
        position = case.op_type.startswith("Arg")
        axis = (attributes["axis"] if position else case.inputs[1].item()) % x.ndim
        lines = np.moveaxis(x, axis, -1)
        want = np.empty(lines.shape[:-1] if position else lines.shape, object)
        for place in np.ndindex(lines.shape[:-1]):
            values = [Fraction(value.item()) for value in lines[place]]
            if position:
                best = max(values) if case.op_type == "ArgMax" else min(values)
                places = [index for index, value in enumerate(values) if value == best]
                want[place] = places[-1 if attributes.get("select_last_index") else 0]
                continue
            order = range(len(values))[:: -1 if attributes["reverse"] else 1]
            total = Fraction(case.op_type == "CumProd")
            for index in order:
                after = total + values[index] if case.op_type == "CumSum" else total * values[index]
                want[(*place, index)] = in_type(total if attributes["exclusive"] else after, x.dtype)
                total = after
        (got,) = run(case.op_type, case.opset, case.inputs, attributes)
        if position:
            assert (got.dtype, got.ndim) == (np.int64, x.ndim if attributes["keepdims"] else x.ndim - 1)
            right = np.expand_dims(want, axis) if attributes["keepdims"] else want
            assert got.tolist() == right.tolist(), case
        else:
            right = np.moveaxis(want, -1, axis).astype(x.dtype if x.dtype.kind in "iu" else np.float64)
            size = max(1.0, float(abs(x.astype(np.float64)).max()))
            assert_values(got, right, x.dtype, 1e-6 * size if case.op_type == "CumSum" else 0, case)


def test_inputs_stay_and_outputs_are_new() -> None:
    leaves = {(leaf.op_type, version): leaf for leaf in LEAVES for version in leaf.since_versions}
    for case in reduction.draws(np.random.default_rng(7)):
        leaf = leaves[case.op_type, case.since_version]
        copies = [None if each is None else each.copy() for each in case.inputs]
        if leaf.op_type.startswith("Arg") and not case.inputs[0].size:
            continue
        result = leaf.function(**case.attributes)(*copies) if leaf.bind else leaf.function(*copies, **case.attributes)
        for before, after in zip(case.inputs, copies, strict=True):
            assert before is None or before.tobytes() == after.tobytes(), case
            assert after is None or leaf.aliases or not np.may_share_memory(result, after), case


def test_onnx_node_cases(node_cases: list[Any]) -> None:
    alone = [case for case in node_cases if len(case.model.graph.node) == 1]
    assert assert_node_cases(alone, *{leaf.op_type for leaf in LEAVES}) > 100
