"""Operators that read and write by index, sort or compute losses, at every version.

Small cases worked out by hand, most of them of kinds that a comparison on drawn inputs found wrong elsewhere; then drawn cases beside
loops over elements that follow the texts.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import numbaops
import oracle
from drawn import indexing, movement
from drawn.case import Case
from leaf_checks import assert_close
from moving_checks import assert_node_cases, assert_pure, assert_same, at, check, drawn_cases, floats, integers, run, strings
from numbaops.errors import NumbaopsError
from numbaops.ops import _sorting

BFLOAT16 = ml_dtypes.bfloat16
NAN, INF = math.nan, math.inf


def floats16(*values: Any) -> Any:
    return np.array(values, np.float16)


def brains(*values: Any) -> Any:
    return np.array(values, np.float32).astype(BFLOAT16)


def bools(*values: Any) -> Any:
    return np.array(values, np.bool_)


def scalar(value: Any, dtype: Any = np.int64) -> Any:
    return np.array(value, dtype)


ROWS = floats([0, 1, 2], [3, 4, 5])
NO_ROWS = np.zeros((0, 3), np.float32)
WORDS = strings("b", "a", "b")
ADD, MUL, MIN, MAX = ({"reduction": name} for name in ("add", "mul", "min", "max"))
ON = floats(0, 1)
AROUND = {"mode": "circular", "axis": 1}
LAST_UNSORTED = {"axis": -1, "sorted": 0}

# id, operator, opset, inputs, attributes, outputs
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], list[Any]]] = [
    ("negative index", "Gather", 11, [ROWS, integers(-1)], {"axis": 1}, [floats([2], [5])]),
    ("index of rank 0", "Gather", 1, [ROWS, scalar(1)], {}, [floats(3, 4, 5)]),
    ("one string", "Gather", 13, [WORDS, scalar(-2)], {}, [np.array("a", object)]),
    ("strings", "Gather", 13, [WORDS, integers([1], [0])], {}, [strings(["a"], ["b"])]),
    ("no indices", "Gather", 13, [NO_ROWS, integers()], {}, [NO_ROWS]),
    ("fewer indices than rows", "GatherElements", 11, [ROWS, integers([1, 0])], {}, [floats([3, 1])]),
    ("more indices than rows", "GatherElements", 13, [ROWS, integers([0], [-1], [1])[:2]], {"axis": 1}, [floats([0], [5])]),
    ("40 rows", "GatherElements", 13, [np.arange(40.0), integers(39, 0)], {}, [np.array([39.0, 0.0])]),
    ("no rows", "GatherElements", 13, [NO_ROWS, np.zeros((0, 3), np.int64)], {}, [NO_ROWS]),
    ("strings", "GatherElements", 13, [WORDS, integers(1, 1)], {}, [strings("a", "a")]),
    ("one element", "GatherND", 11, [ROWS, integers(-1, 0)], {}, [scalar(3, np.float32)]),
    ("one string", "GatherND", 13, [WORDS, integers(1)], {}, [np.array("a", object)]),
    ("batches", "GatherND", 12, [ROWS, integers([2], [0])], {"batch_dims": 1}, [floats(2, 3)]),
    ("slices of batches", "GatherND", 13, [ROWS[None], integers([[1], [1]])], {"batch_dims": 1}, [ROWS[None][:, [1, 1]]]),
    ("no tuples", "GatherND", 13, [ROWS, np.zeros((0, 1), np.int64)], {}, [NO_ROWS]),
    ("along an axis", "Scatter", 9, [floats([1, 2, 3]), integers([2, 0]), floats([8, 9])], {"axis": 1}, [floats([9, 2, 8])]),
    ("deprecated, yet used", "Scatter", 11, [floats(1, 2), integers(-1), floats(8)], {}, [floats(1, 8)]),
    ("fewer updates than rows", "ScatterElements", 11, [ROWS, integers([1]), floats([9])], {}, [floats([0, 1, 2], [9, 4, 5])]),
    ("strings", "ScatterElements", 13, [WORDS, integers(0), strings("cd")], {}, [strings("cd", "a", "b")]),
    ("added twice", "ScatterElements", 16, [floats(1, 2), integers(1, -1), floats(3, 4)], ADD, [floats(1, 9)]),
    ("multiplied twice", "ScatterElements", 18, [floats(1, 2), integers(1, 1), floats(3, 4)], MUL, [floats(1, 24)]),
    ("smallest", "ScatterElements", 18, [floats(1, 2), integers(1, 1, 0), floats(3, -4, 5)], MIN, [floats(1, -4)]),
    ("largest", "ScatterElements", 18, [floats(1, 2), integers(1, 1, 0), floats(3, -4, 5)], MAX, [floats(5, 3)]),
    ("int8 wraps", "ScatterElements", 18, [scalar([127], np.int8), integers(0), scalar([1], np.int8)], ADD, [scalar([-128], np.int8)]),
    ("bool", "ScatterElements", 18, [bools(1, 0), integers(0, 1), bools(0, 1)], ADD, [bools(1, 1)]),
    ("float16 rounds once", "ScatterElements", 18, [floats16(2048), integers(0, 0), floats16(1, 1)], ADD, [floats16(2050)]),
    ("bfloat16 rounds once", "ScatterND", 16, [brains(256), integers([0], [0]), brains(1, 1)], ADD, [brains(258)]),
    ("a slice", "ScatterND", 11, [ROWS, integers(1), floats(7, 8, 9)], {}, [floats([0, 1, 2], [7, 8, 9])]),
    ("negative tuple", "ScatterND", 13, [ROWS, integers([-1, -3]), floats(9)], {}, [floats([0, 1, 2], [9, 4, 5])]),
    ("strings added", "ScatterND", 18, [WORDS, integers([0], [0]), strings("x", "y")], ADD, [strings("bxy", "a", "b")]),
    ("strings compared", "ScatterND", 18, [WORDS, integers([0], [0]), strings("x", "y")], MAX, [strings("y", "a", "b")]),
    ("slices added", "ScatterND", 16, [ROWS, integers([1], [1]), floats([1, 1, 1], [2, 2, 2])], ADD, [floats([0, 1, 2], [6, 7, 8])]),
    ("NaN is the smallest and the largest", "ScatterND", 18, [floats(1, 2), integers([0]), floats(NAN)], MIN, [floats(NAN, 2)]),
    ("linear from 0", "TensorScatter", 24, [np.zeros((1, 3, 1)), np.ones((1, 2, 1))], {}, [np.array([[[1.0], [1], [0]]])]),
    ("circular", "TensorScatter", 24, [floats([0, 0, 0]), floats([1, 2]), integers(5)], AROUND, [floats([2, 0, 1])]),
    ("by sample", "TensorScatter", 24, [floats([0, 0], [0, 0]), floats([1], [2]), integers(1, 0)], {"axis": -1}, [floats([0, 1], [2, 0])]),
    ("depth of shape [1]", "OneHot", 9, [integers(1, 5), integers(2), ON], {}, [floats([0, 1], [0, 0])]),
    ("negative is out of range before 11", "OneHot", 9, [integers(-1, 1), scalar(2), ON], {}, [floats([0, 0], [0, 1])]),
    ("negative counts from the back", "OneHot", 11, [integers(-1, -2, -3), scalar(2), ON], {}, [floats([0, 1], [1, 0], [0, 0])]),
    ("floats are cut", "OneHot", 11, [floats(-0.9, 1.9, NAN), scalar(2.9, np.float32), ON], {}, [floats([1, 0], [0, 1], [0, 0])]),
    ("uint64 beyond int64", "OneHot", 11, [scalar([2**64 - 1, 0], np.uint64), scalar(2), ON], {}, [floats([0, 0], [1, 0])]),
    ("first axis", "OneHot", 11, [integers(0, 1, 1), scalar(2), ON], {"axis": 0}, [floats([1, 0, 0], [0, 1, 1])]),
    ("middle axis", "OneHot", 11, [integers([0, 1]), scalar(2), ON], {"axis": -2}, [floats([[1, 0], [0, 1]])]),
    ("scalar", "OneHot", 11, [scalar(1), scalar(2), ON], {}, [floats(0, 1)]),
    ("strings", "OneHot", 11, [integers(1), scalar(2), strings("off", "on")], {}, [strings(["off", "on"])]),
    ("bool", "OneHot", 11, [integers(1), scalar(2), bools(1, 0)], {}, [bools([1, 0])]),
    ("a large off value", "OneHot", 9, [integers(1), scalar(2), floats(1e30, 1)], {}, [floats([1e30, 1])]),
    ("no classes", "OneHot", 11, [integers(0), scalar(0), ON], {}, [np.zeros((1, 0), np.float32)]),
    ("scalar", "NonZero", 9, [scalar(3.0, np.float32)], {}, [np.zeros((0, 1), np.int64)]),
    ("zero scalar", "NonZero", 13, [scalar(0.0, np.float32)], {}, [np.zeros((0, 0), np.int64)]),
    ("minus zero and NaN", "NonZero", 13, [floats([-0.0, NAN])], {}, [integers([0], [1])]),
    ("empty string", "NonZero", 9, [strings("", "a")], {}, [integers([1])]),
    ("bfloat16", "NonZero", 13, [brains(-0.0, 2)], {}, [integers([1])]),
    ("nothing", "NonZero", 9, [NO_ROWS], {}, [np.zeros((2, 0), np.int64)]),
    ("short condition", "Compress", 9, [ROWS, bools(0, 1)], {"axis": 1}, [floats([1], [4])]),
    ("flattened", "Compress", 11, [ROWS, bools(0, 1, 1)], {}, [floats(1, 2)]),
    ("long condition of no effect", "Compress", 11, [floats(1), bools(1, 0)], {}, [floats(1)]),
    ("by occurrence", "Unique", 11, [floats(2, 1, 2)], {"sorted": 0}, [floats(2, 1), integers(0, 1), integers(0, 1, 0), integers(2, 1)]),
    ("one output", "Unique", 11, [integers(2, 1, 2)], {"sorted": 0}, [integers(2, 1)]),
    ("strings", "Unique", 11, [WORDS], {}, [strings("a", "b"), integers(1, 0), integers(1, 0, 1), integers(1, 2)]),
    ("columns of strings", "Unique", 11, [strings(["b", "a", "b"])], {"axis": 1}, [strings(["a", "b"]), integers(1, 0)]),
    ("columns by occurrence", "Unique", 11, [floats([1, 0, 1], [2, 2, 2])], LAST_UNSORTED, [floats([1, 0], [2, 2]), integers(0, 1)]),
    ("all NaN are one", "Unique", 11, [floats(NAN, 1, NAN)], {}, [floats(1, NAN), integers(1, 0), integers(1, 0, 1), integers(1, 2)]),
    ("bfloat16 rows", "Unique", 28, [brains([2, 1], [1, 5], [2, 1])], {"axis": 0}, [brains([1, 5], [2, 1]), integers(1, 0)]),
    ("empty rows", "Unique", 11, [NO_ROWS.T], {"axis": 0}, [NO_ROWS.T[:1], integers(0), integers(0, 0, 0), integers(3)]),
    ("nothing", "Unique", 11, [NO_ROWS], {"axis": 0}, [NO_ROWS, integers(), integers(), integers()]),
    ("first of equal ones first", "TopK", 1, [floats([1, 3, 3, 2])], {"k": 3}, [floats([3, 3, 2]), integers([1, 2, 3])]),
    ("first axis", "TopK", 10, [floats([1, 5], [4, 2]), integers(1)], {"axis": 0}, [floats([4, 5]), integers([1, 0])]),
    ("smallest", "TopK", 11, [floats(2, 1, 1), integers(2)], {"largest": 0}, [floats(1, 1), integers(1, 2)]),
    ("unsigned", "TopK", 11, [scalar([0, 255, 1], np.uint8), integers(2)], {}, [scalar([255, 1], np.uint8), integers(1, 2)]),
    ("int64 beyond float64", "TopK", 11, [integers(2**62, 2**62 + 1), integers(1)], {}, [integers(2**62 + 1), integers(1)]),
    ("NaN is the largest", "TopK", 11, [floats(1, NAN, INF), integers(3)], {}, [floats(NAN, INF, 1), integers(1, 2, 0)]),
    ("bfloat16", "TopK", 24, [brains(-1, 3, 2), integers(2)], {}, [brains(3, 2), integers(1, 2)]),
    ("none", "TopK", 11, [ROWS, integers(0)], {"axis": 0}, [NO_ROWS, np.zeros((0, 3), np.int64)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "outputs"),
    [pytest.param(*case, id=f"{case[0]}-{case[1]}: {name}") for name, *case in CASES],
)
def test_worked_out_by_hand(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], outputs: list[Any]) -> None:
    check(op_type, opset, inputs, attributes, outputs)


# Scores of classes 0, 1, 2 whose softmax is 1/8, 2/8, 5/8
SCORES = np.log(np.array([[1, 2, 5], [5, 2, 1]], np.float64))
PROBABLE = SCORES - math.log(8)
LOG8, LOG4, LOG85 = math.log(8), math.log(4), math.log(8 / 5)
WEIGHTS = np.array([1.0, 2.0, 3.0])

# id, inputs, attributes, loss
LOSSES: list[tuple[str, list[Any], dict[str, Any], Any]] = [
    ("mean", [integers(0, 1)], {}, (LOG8 + LOG4) / 2),
    ("sum", [integers(0, 0)], {"reduction": "sum"}, LOG8 + LOG85),
    ("none", [integers(2, 1)], {"reduction": "none"}, [LOG85, LOG4]),
    ("weighted mean", [integers(0, 1), WEIGHTS], {}, (LOG8 + 2 * LOG4) / 3),
    ("weighted", [integers(0, 1), WEIGHTS], {"reduction": "none"}, [LOG8, 2 * LOG4]),
    ("ignored class beyond the others", [integers(255, 1)], {"ignore_index": 255}, LOG4),
    ("ignored class -1", [integers(-1, 1)], {"ignore_index": -1}, LOG4),
    ("ignored class within", [integers(0, 1), WEIGHTS], {"ignore_index": 0}, LOG4),
    ("ignored with weights", [integers(255, 1), WEIGHTS], {"ignore_index": 255, "reduction": "sum"}, 2 * LOG4),
    ("all ignored", [integers(7, 7)], {"ignore_index": 7}, NAN),
    ("all ignored, none", [integers(7, 7)], {"ignore_index": 7, "reduction": "none"}, [0, 0]),
]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, BFLOAT16], ids=["float16", "float", "double", "bfloat16"])
@pytest.mark.parametrize(("inputs", "attributes", "loss"), [pytest.param(*row, id=name) for name, *row in LOSSES])
def test_losses(inputs: list[Any], attributes: dict[str, Any], loss: Any, dtype: Any) -> None:
    classes, *weights = inputs
    weights = [each.astype(dtype) for each in weights]
    for kind in (np.int32, np.int64):
        rest = [classes.astype(kind), *weights]
        (got,) = run(Case("NegativeLogLikelihoodLoss", 22 if dtype == BFLOAT16 else 12, [PROBABLE.astype(dtype), *rest], attributes))
        assert_close(got, loss, dtype, rtol=1e-6)
        for shift in (0, 5):  # softmax does not mind
            case = Case("SoftmaxCrossEntropyLoss", 13, [(SCORES + shift).astype(dtype), *rest], attributes, outputs=2)
            got, log_prob = run(case)
            assert_close(got, loss, dtype, rtol=2**-5 if np.dtype(dtype).itemsize == 2 else 1e-5)
            assert_close(log_prob, PROBABLE, dtype, rtol=2**-5 if np.dtype(dtype).itemsize == 2 else 1e-5)


def test_loss_of_far_scores() -> None:
    scores = floats([0, 1000], [1000, 0])
    got, log_prob = run(Case("SoftmaxCrossEntropyLoss", 12, [scores, integers(0, 0)], {"reduction": "none"}, outputs=2))
    assert_same([got, log_prob], [floats(1000, 0), floats([-1000, 0], [0, -1000])])


def test_loss_does_not_count_what_is_ignored() -> None:
    x = floats([-INF, 0], [-2, -3])
    (got,) = run(Case("NegativeLogLikelihoodLoss", 13, [x, integers(0, 1)], {"ignore_index": 0, "reduction": "sum"}))
    assert_same(got, scalar(3, np.float32))


def test_loss_beyond_float16() -> None:
    x = floats16([-60000, 0], [-60000, 0])
    for op_type, opset in (("NegativeLogLikelihoodLoss", 12), ("SoftmaxCrossEntropyLoss", 12)):
        assert_same(run(Case(op_type, opset, [x, integers(0, 0)], {"reduction": "sum"})), [scalar(INF, np.float16)])


def test_loss_of_nothing() -> None:
    x = np.zeros((0, 3, 2), np.float32)
    assert_same(run(Case("NegativeLogLikelihoodLoss", 13, [x, np.zeros((0, 2), np.int64)], {"reduction": "sum"})), [scalar(0, np.float32)])
    assert_same(
        run(Case("SoftmaxCrossEntropyLoss", 13, [x, np.zeros((0, 2), np.int64)], {"reduction": "none"})), [np.zeros((0, 2), np.float32)]
    )


# Every element type of every version: which elements of a [2, 2] input come out where.
# operator, other inputs, attributes, output shape, positions in the input, or of the update: 10 and 11
MOVES: list[tuple[str, list[Any], dict[str, Any], list[int], list[int]]] = [
    ("Gather", [integers(1, 0)], {"axis": 1}, [2, 2], [1, 0, 3, 2]),
    ("Gather", [scalar(1)], {}, [2], [2, 3]),
    ("GatherElements", [integers([1, 0])], {}, [1, 2], [2, 1]),
    ("GatherND", [integers([1, 0], [0, 1])], {}, [2], [2, 1]),
    ("Scatter", [integers([1, 0]), None], {}, [2, 2], [0, 11, 10, 3]),
    ("ScatterElements", [integers([1, 0]), None], {}, [2, 2], [0, 11, 10, 3]),
    ("ScatterND", [integers([1]), None], {}, [2, 2], [0, 1, 10, 11]),
    ("TensorScatter", [None, integers(1, 1)], {"axis": 1}, [2, 2], [0, 10, 2, 11]),
    ("Compress", [np.array([False, True])], {"axis": 1}, [2, 1], [1, 3]),
]
CODES = {"string": ["a", "b\0", "ü", ""], "bool": [1, 0, 0, 1]}


@pytest.mark.parametrize("row", MOVES, ids=[f"{row[0]}-{row[3]}" for row in MOVES])
def test_every_type_of_every_version(row: Any) -> None:
    op_type, others, attributes, shape, positions = row
    seen = 0
    for version in movement.versions(op_type):
        schema = onnx.defs.get_schema(op_type, version)
        for name in oracle.TYPES:
            if f"tensor({name})" not in schema.inputs[0].types:
                continue
            seen += 1
            codes = CODES.get(name) or [0x7F81FF7EC3A5962D1B << number & (1 << oracle.TYPES[name].bits) - 1 for number in range(4)]
            x = oracle.array(name, [2, 2], codes)
            updates = oracle.array(name, [2, 1] if op_type == "TensorScatter" else [1, 2], [codes[3], codes[0]])
            (got,) = run(Case(op_type, version, [x, *(updates if each is None else each for each in others)], attributes))
            assert (got.dtype, list(got.shape)) == (x.dtype, shape), (version, name)
            known = dict(enumerate(codes)) | {10: codes[3], 11: codes[0]}
            assert oracle.codes_of(got, name) == [known[position] for position in positions], (version, name)
    assert seen >= 15 or not movement.versions(op_type)  # TensorScatter is of opset 24


# Drawn cases beside loops


def gathered(case: Case) -> Any:
    data, indices = case.inputs
    axis = case.attributes.get("axis", 0) % data.ndim
    if case.op_type == "Gather":
        out = np.empty([*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]], data.dtype)
        for place in np.ndindex(out.shape):
            middle = int(indices[place[axis : axis + indices.ndim]])
            out[place] = data[(*place[:axis], middle, *place[axis + indices.ndim :])]
    elif case.op_type == "GatherElements":
        out = np.empty(indices.shape, data.dtype)
        for place in np.ndindex(out.shape):
            out[place] = data[at(place, axis, indices[place])]
    else:
        batch = case.attributes.get("batch_dims", 0)
        out = np.empty([*indices.shape[:-1], *data.shape[batch + indices.shape[-1] :]], data.dtype)
        for place in np.ndindex(indices.shape[:-1]):
            out[(*place, ...)] = data[(*place[:batch], *map(int, indices[place]), ...)]
    return out


def combined(old: Any, new: Any, reduction: str) -> Any:
    if reduction == "add":
        return old or new if isinstance(old, bool) else old + new
    if reduction == "mul":
        return old and new if isinstance(old, bool) else old * new
    return new if reduction == "none" else {"min": min, "max": max}[reduction](old, new)


def scattered(case: Case) -> Any:
    data, indices, updates = case.inputs
    reduction = case.attributes.get("reduction", "none")
    values = {place: data[place] if data.dtype == object else data[place].item() for place in np.ndindex(data.shape)}
    if case.op_type == "ScatterND":
        outer = indices.ndim - 1
        pairs = []
        for place in np.ndindex(updates.shape):
            first = (int(index) % size for index, size in zip(indices[place[:outer]], data.shape, strict=False))
            pairs.append(((*first, *place[outer:]), place))
    else:
        axis = case.attributes.get("axis", 0)
        pairs = [(at(place, axis, indices[place] % data.shape[axis]), place) for place in np.ndindex(indices.shape)]
    for place, source in pairs:
        new = updates[source] if data.dtype == object else updates[source].item()
        values[place] = combined(values[place], new, reduction)
    out = np.empty(data.shape, object)
    for place, value in values.items():
        out[place] = value
    if data.dtype.kind in "iu":  # wraps
        bits = 8 * data.dtype.itemsize
        lowest = 0 if data.dtype.kind == "u" else -(1 << bits - 1)
        out = np.array([(int(each) - lowest) % (1 << bits) + lowest for each in out.reshape(-1)], object).reshape(data.shape)
    return out.astype(np.float64).astype(data.dtype) if data.dtype.kind in "fV" else out.astype(data.dtype)


def hot(case: Case) -> Any:
    indices, depth, values = case.inputs
    classes, axis = int(depth.reshape(-1)[0]), case.attributes.get("axis", -1) % (indices.ndim + 1)
    out = np.empty([*indices.shape[:axis], classes, *indices.shape[axis:]], values.dtype)
    for place in np.ndindex(out.shape):
        index = int(indices[(*place[:axis], *place[axis + 1 :])])
        out[place] = values[int(place[axis] == index or (case.opset >= 11 and place[axis] == index + classes))]
    return out


def top(case: Case) -> list[Any]:
    data, *rest = case.inputs
    k, axis = int(rest[0][0]) if rest else case.attributes["k"], case.attributes.get("axis", -1) % data.ndim
    shape = [*data.shape[:axis], k, *data.shape[axis + 1 :]]
    values, indices = np.empty(shape, data.dtype), np.empty(shape, np.int64)
    sign = -1 if case.attributes.get("largest", 1) else 1
    for place in np.ndindex(*data.shape[:axis], *data.shape[axis + 1 :]):
        line = (*place[:axis], slice(None), *place[axis:])
        order = sorted(range(data.shape[axis]), key=lambda index: (sign * data[line][index].item(), index))[:k]
        indices[line], values[line] = order, [data[line][index] for index in order]
    return [values, indices]


def comparable(key: tuple[Any, ...]) -> list[Any]:
    return [(each.real, each.imag) if isinstance(each, complex) else each for each in key]


def distinct(case: Case) -> list[Any]:
    (data,) = case.inputs
    axis = case.attributes.get("axis")
    count = data.size if axis is None else data.shape[axis]
    slices = data.reshape(-1) if axis is None else np.moveaxis(data, axis, 0)
    keys = [tuple(slices[index, ...].reshape(-1).tolist()) for index in range(count)]
    found = sorted(set(keys), key=comparable) if case.attributes.get("sorted", 1) else list(dict.fromkeys(keys))
    first = [keys.index(key) for key in found]
    values = data.reshape(-1)[first] if axis is None else data.take(np.array(first, np.int64), axis)
    numbers = [integers(*first), integers(*map(found.index, keys)), integers(*map(keys.count, found))]
    return [values, *numbers][: case.outputs]


def cached(case: Case) -> Any:
    cache, update, *starts = case.inputs
    out, axis = cache.copy(), case.attributes["axis"] % cache.ndim
    for place in np.ndindex(update.shape):
        step = place[axis] + (int(starts[0][place[0]]) if starts else 0)
        out[at(place, axis, step % cache.shape[axis] if case.attributes["mode"] == "circular" else step)] = update[place]
    return out


ORACLES = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), lambda case: [gathered(case)]),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), lambda case: [scattered(case)]),
    "OneHot": lambda case: [hot(case)],
    "TopK": top,
    "Unique": distinct,
    "TensorScatter": lambda case: [cached(case)],
}


@pytest.mark.parametrize("op_type", ORACLES)
def test_drawn_beside_loops(op_type: str) -> None:
    for case in drawn_cases(indexing.draws(np.random.default_rng(7)), op_type, 250):
        if case.inputs[0].dtype == object and case.attributes.get("reduction") == "mul":
            with pytest.raises(NumbaopsError, match="elements of object cannot be reduced by multiply"):
                run(case)
            continue
        assert_same(run(case), ORACLES[op_type](case))


@pytest.mark.parametrize("op_type", indexing.DRAWS)
def test_inputs_are_kept_and_aliases_declared(op_type: str) -> None:
    cases = drawn_cases(indexing.draws(np.random.default_rng(8)), op_type, 60)
    assert_pure(case for case in cases if not (case.inputs[0].dtype == object and case.attributes.get("reduction") == "mul"))


def test_node_cases(node_cases: list[Any]) -> None:
    assert_node_cases(node_cases, set(indexing.DRAWS))


ERRORS: list[tuple[str, int, list[Any], dict[str, Any], str]] = [
    ("Gather", 13, [ROWS, integers(0, 2)], {}, r"indices holds \[2\]; allowed: -2 to 1"),
    ("Gather", 13, [ROWS, scalar(-4)], {"axis": 1}, r"indices holds \[-4\]; allowed: -3 to 2"),
    ("Gather", 13, [ROWS, integers(0)], {"axis": 2}, "axis is 2; allowed: -2 to 1"),
    ("GatherElements", 13, [scalar(1), integers(0)], {}, "axis is 0; allowed: none for a tensor of rank 0"),
    ("GatherElements", 13, [ROWS, integers([2, 0])], {}, r"indices holds \[2\]"),
    ("GatherElements", 13, [ROWS, integers([0, 0, 0, 0])], {}, r"shape \[1, 4\]; allowed: not larger"),
    ("GatherElements", 13, [ROWS, integers(0)], {}, "not larger"),
    ("GatherND", 13, [ROWS, integers([2])], {}, r"outside of the shape \[2\]"),
    ("GatherND", 13, [ROWS, integers([0, 0, 0])], {}, "a last dimension of 1 to 2"),
    ("GatherND", 13, [ROWS, integers([0])], {"batch_dims": 1}, "batch_dims is 1"),
    ("ScatterElements", 18, [ROWS, integers([0]), floats([1, 2])], {}, r"updates has the shape \[1, 2\]"),
    ("ScatterElements", 18, [ROWS, integers([3]), floats([1])], {}, r"indices holds \[3\]"),
    ("ScatterElements", 18, [ROWS, integers([0]), floats([1])], {"reduction": "sum"}, "none, add, mul, max, min"),
    ("ScatterND", 18, [ROWS, integers([0]), floats([1])], {}, r"updates has the shape \[1, 1\]; allowed: \[1, 3\]"),
    ("TensorScatter", 24, [np.zeros((1, 3, 1)), np.ones((1, 2, 1)), integers(2)], {}, "what ends within 3"),
    ("TensorScatter", 24, [np.zeros((1, 3, 1)), np.ones((1, 2, 1)), integers(0)], {"axis": 0}, "axis is 0"),
    ("TensorScatter", 24, [np.zeros((1, 3, 1)), np.ones((1, 4, 1)), integers(0)], {}, "at most 3"),
    ("OneHot", 11, [integers(0), scalar(-1), ON], {}, "depth is -1"),
    ("OneHot", 11, [integers(0), integers(1, 2), ON], {}, "depth has the shape"),
    ("OneHot", 11, [integers(0), scalar(1), floats(1)], {}, "values has the shape"),
    ("OneHot", 11, [integers(0), scalar(1), ON], {"axis": 2}, "axis is 2; allowed: -2 to 1"),
    ("Compress", 11, [floats(1), bools(1, 1)], {}, r"condition has the shape \[2\]"),
    ("TopK", 11, [ROWS, integers(4)], {}, "K is 4; allowed: 0 to 3"),
    ("TopK", 11, [ROWS, integers(1, 1)], {}, "K has the shape"),
    ("NegativeLogLikelihoodLoss", 13, [ROWS, integers(0, 3)], {}, "the class 3; allowed: 0 to 2"),
    ("NegativeLogLikelihoodLoss", 13, [ROWS, integers(0, -1)], {"ignore_index": 7}, "the class -1; allowed: 0 to 2, or ignore_index, 7"),
    ("NegativeLogLikelihoodLoss", 13, [ROWS, integers(0)], {}, r"the classes have the shape \[1\]"),
    ("NegativeLogLikelihoodLoss", 13, [ROWS, integers(0, 0), floats(1)], {}, r"weights have the shape \[1\]"),
    ("SoftmaxCrossEntropyLoss", 13, [floats(1), integers(0)], {}, "rank 2 and more"),
    ("SoftmaxCrossEntropyLoss", 13, [ROWS, integers(0, 0)], {"reduction": "all"}, "mean, sum, none"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "opset", "inputs", "attributes", "text"), ERRORS, ids=[f"{row[0]}-{row[4]}" for row in ERRORS])
def test_errors(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip(f"the installed onnx has no opset {opset}")
    with pytest.raises(NumbaopsError, match=text) as caught:
        run(Case(op_type, opset, inputs, attributes, outputs=2 if op_type == "TopK" else 1))
    assert caught.value.op_type == op_type


@pytest.mark.parametrize("kind", ["float", "double", "int64", "uint8", "int8", "bfloat16", "bool"])
@pytest.mark.parametrize(("shape", "axis"), [((100,), 0), ((3, 200), 1), ((300, 4), 0), ((2, 100, 5), 1), ((0, 100), 1)], ids=str)
@pytest.mark.parametrize("largest", [0, 1])
def test_few_of_many_as_if_all_were_sorted(shape: tuple[int, ...], axis: int, kind: str, largest: int) -> None:
    """Elements that are equal to the last one that counts, too."""
    dtype = numbaops.element_type(kind).dtype
    x = np.random.default_rng(0).integers(0, 12, shape).astype(dtype)
    numbers = np.moveaxis(x.astype(np.float64), axis, -1)
    ranks = np.argsort(-numbers if largest else numbers, axis=-1, kind="stable")
    for k in (0, 1, 3, 12):
        wanted = np.moveaxis(ranks[..., :k], -1, axis)
        values, indices = _sorting.top_k(axis, largest)(x, np.array(k))
        np.testing.assert_array_equal(indices, wanted)
        np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, axis))


def test_few_of_many_with_nan() -> None:
    x = np.arange(100, dtype=np.float32)
    x[[3, 50]] = np.nan
    values, indices = _sorting.top_k(0, 1)(x, np.array(3))
    assert indices.tolist() == [3, 50, 99]
    assert np.isnan(values[:2]).all()
    assert _sorting.top_k(0, 0)(x, np.array(3))[1].tolist() == [0, 1, 2]
