"""Operators that move elements about, at every version and of every element type.

Small cases worked out by hand, most of them of kinds that a comparison on drawn inputs found wrong elsewhere; then drawn cases beside
loops over elements that follow the texts.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import pytest

import oracle
from drawn import movement
from drawn.case import Case
from moving_checks import assert_node_cases, assert_pure, assert_same, check, drawn_cases, floats, integers, run, strings
from numbaops.errors import NumbaopsError


def counted(*shape: int) -> Any:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def empty(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


SCALAR = np.array(5, np.float32)
TORUS = floats([3, 2, 3, 2, 3], [1, 0, 1, 0, 1], [3, 2, 3, 2, 3])
DEPTHS = floats(0, 4, 1, 5, 2, 6, 3, 7).reshape(1, 8, 1, 1)
BATCH_FIRST = {"batch_axis": 0, "time_axis": 1}

# id, operator, opset, inputs, attributes, outputs
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], list[Any]]] = [
    ("0 and -1 in the attribute", "Reshape", 1, [counted(2, 3)], {"shape": [0, -1, 1]}, [counted(2, 3, 1)]),
    ("legacy attribute", "Reshape", 1, [counted(2)], {"shape": [2, 1], "consumed_inputs": [0]}, [counted(2, 1)]),
    ("0 copies", "Reshape", 5, [counted(2, 3), integers(0, 1, 3)], {}, [counted(2, 1, 3)]),
    ("0 copies a zero", "Reshape", 14, [empty(2, 0), integers(1, 0, 7)], {}, [empty(1, 0, 7)]),
    ("0 is a zero", "Reshape", 14, [empty(2, 0), integers(3, 0)], {"allowzero": 1}, [empty(3, 0)]),
    ("0 beyond the rank is a zero", "Reshape", 14, [empty(0), integers(4, 5, 0)], {"allowzero": 1}, [empty(4, 5, 0)]),
    ("to a scalar", "Reshape", 13, [counted(1, 1), integers()], {}, [np.array(0, np.float32)]),
    ("zero dimensions", "Flatten", 1, [empty(2, 0, 3)], {}, [empty(2, 0)]),
    ("zero dimensions before the axis", "Flatten", 11, [empty(0, 2)], {"axis": -1}, [empty(0, 2)]),
    ("axis of the rank", "Flatten", 9, [counted(2, 3)], {"axis": 2}, [counted(6, 1)]),
    ("axis minus the rank", "Flatten", 11, [counted(2, 3)], {"axis": -2}, [counted(1, 6)]),
    ("scalar", "Flatten", 13, [SCALAR], {"axis": 0}, [floats([5])]),
    ("axes in any order", "Squeeze", 11, [counted(1, 2, 1)], {"axes": [-1, 0]}, [counted(2)]),
    ("no axes", "Squeeze", 1, [counted(1, 2, 1)], {}, [counted(2)]),
    ("an empty list of axes squeezes nothing", "Squeeze", 13, [counted(1, 2), integers()], {}, [counted(1, 2)]),
    ("omitted axes", "Squeeze", 13, [counted(1, 2), None], {}, [counted(2)]),
    ("axes refer to the output", "Unsqueeze", 1, [counted(2, 3)], {"axes": [2, 0]}, [counted(1, 2, 1, 3)]),
    ("negative axes refer to the output", "Unsqueeze", 11, [counted(2, 3)], {"axes": [-1, 0, -3]}, [counted(1, 2, 1, 3, 1)]),
    ("scalar gets two", "Unsqueeze", 13, [SCALAR, integers(1, 0)], {}, [floats([5])]),
    ("default axis 1", "Concat", 1, [counted(2, 1), counted(2, 2)], {}, [floats([0, 0, 1], [1, 2, 3])]),
    ("zero dimension", "Concat", 11, [empty(0, 2), counted(1, 2)], {"axis": -2}, [counted(1, 2)]),
    ("lengths as attribute", "Split", 1, [counted(3)], {"split": [1, 2], "axis": 0}, [floats(0), floats(1, 2)]),
    ("lengths as floats", "Split", 1, [counted(3), floats(2, 1)], {}, [floats(0, 1), floats(2)]),
    ("lengths of zero", "Split", 11, [counted(2)], {"split": [0, 2, 0], "axis": -1}, [empty(0), counted(2), empty(0)]),
    ("equal parts", "Split", 2, [counted(4)], {}, [floats(0, 1), floats(2, 3)]),
    ("a smaller last part", "Split", 18, [counted(5)], {"num_outputs": 2}, [floats(0, 1, 2), floats(3, 4)]),
    ("nothing left for the last part", "Split", 18, [counted(3)], {"num_outputs": 3}, [floats(0), floats(1), floats(2)]),
    ("more parts than elements", "Split", 18, [counted(1)], {"num_outputs": 3}, [floats(0), empty(0), empty(0)]),
    ("bounds beyond the end", "Slice", 1, [counted(4)], {"starts": [-9], "ends": [2**31 - 1]}, [counted(4)]),
    ("negative axis", "Slice", 10, [counted(2, 2), integers(1), integers(9), integers(-1)], {}, [floats([1], [3])]),
    ("no axes but steps", "Slice", 10, [counted(2, 3), integers(1, 0), integers(2, 9), None, integers(1, 2)], {}, [floats([3, 5])]),
    ("backward to the beginning", "Slice", 11, [counted(3), integers(9), integers(-99), integers(0), integers(-1)], {}, [floats(2, 1, 0)]),
    ("backward from before it", "Slice", 13, [counted(3), integers(-9), integers(-9), integers(0), integers(-2)], {}, [floats(0)]),
    ("backward to the end", "Slice", 13, [counted(3), integers(1), integers(2**63 - 1), integers(0), integers(-1)], {}, [empty(0)]),
    ("backward in nothing", "Slice", 13, [empty(0), integers(-9), integers(-9), integers(0), integers(-2)], {}, [empty(0)]),
    ("nothing of a scalar", "Slice", 13, [SCALAR, integers(), integers()], {}, [SCALAR]),
    ("32-bit bounds", "Slice", 13, [counted(3), np.array([1], np.int32), np.array([3], np.int32)], {}, [floats(1, 2)]),
    ("paddings", "Pad", 1, [floats([1], [2])], {"paddings": [0, 1, 1, 0], "value": 9.0}, [floats([9, 1], [9, 2], [9, 9])]),
    ("negative pads", "Pad", 2, [counted(4)], {"pads": [-1, 2]}, [floats(1, 2, 3, 0, 0)]),
    ("crop is a view of the middle", "Pad", 11, [counted(2, 4), integers(0, -1, 0, -2)], {}, [floats([1], [5])]),
    ("more removed than there is", "Pad", 13, [counted(2), integers(-3, 3)], {}, [floats(0, 0)]),
    ("edge after a crop", "Pad", 11, [counted(4), integers(2, -2)], {"mode": "edge"}, [floats(0, 0, 0, 1)]),
    ("reflection of what is left", "Pad", 11, [counted(4), integers(-1, 2)], {"mode": "reflect"}, [floats(1, 2, 3, 2, 1)]),
    ("reflection back and forth", "Pad", 11, [counted(3), integers(5, 0)], {"mode": "reflect"}, [floats(1, 0, 1, 2, 1, 0, 1, 2)]),
    ("reflection of one element", "Pad", 11, [counted(1), integers(1, 2)], {"mode": "reflect"}, [empty(4)]),
    ("torus", "Pad", 19, [counted(2, 2), integers(1, 3, 0, 0)], {"mode": "wrap"}, [TORUS]),
    ("some axes", "Pad", 18, [floats([1, 2]), integers(1, 0), SCALAR, np.array([-1], np.int32)], {}, [floats([5, 1, 2])]),
    ("axes in another order", "Pad", 18, [floats([1]), integers(1, 0, 0, 2), None, integers(1, 0)], {}, [floats([0, 1], [0, 0], [0, 0])]),
    ("scalar", "Pad", 13, [SCALAR, integers()], {"mode": "edge"}, [SCALAR]),
    ("strings", "Pad", 13, [strings("a"), integers(1, 1)], {}, [strings("", "a", "")]),
    ("strings with a value", "Pad", 13, [strings("a"), integers(1, 0), np.array("bc", object)], {}, [strings("bc", "a")]),
    ("value of shape [1]", "Pad", 11, [counted(1), integers(1, 0), floats(7)], {}, [floats(7, 0)]),
    ("along an axis", "Tile", 1, [counted(1, 2), np.array(2, np.float32), np.array(1, np.float32)], {}, [floats([0, 1, 0, 1])]),
    ("no times", "Tile", 6, [counted(2, 2), integers(1, 0)], {}, [empty(2, 0)]),
    ("scalar", "Tile", 13, [SCALAR, integers()], {}, [SCALAR]),
    ("strings", "Tile", 13, [strings("a", "b"), integers(2)], {}, [strings("a", "b", "a", "b")]),
    ("shape of lower rank", "Expand", 8, [counted(2, 1), integers(3)], {}, [floats([0, 0, 0], [1, 1, 1])]),
    ("ones keep the input's dimension", "Expand", 13, [counted(2), integers(2, 1)], {}, [floats([0, 1], [0, 1])]),
    ("to nothing", "Expand", 13, [counted(1), integers(0)], {}, [empty(0)]),
    ("strings", "Expand", 13, [strings("a"), integers(2)], {}, [strings("a", "a")]),
    ("bool", "Expand", 13, [np.array(True), integers(2)], {}, [np.array([True, True])]),
    ("a large one", "Expand", 13, [counted(2), integers(9000, 2)], {}, [np.tile(counted(2), (9000, 1))]),
    ("end before the beginning", "Shape", 15, [counted(2, 3)], {"end": -5}, [integers()]),
    ("start before the beginning", "Shape", 15, [counted(2, 3)], {"start": -5, "end": 9}, [integers(2, 3)]),
    ("start after the end", "Shape", 25, [counted(2, 3)], {"start": 2, "end": 1}, [integers()]),
    ("scalar", "Shape", 1, [SCALAR], {}, [integers()]),
    ("scalar", "Size", 13, [SCALAR], {}, [np.array(1, np.int64)]),
    ("without a mode", "DepthToSpace", 1, [counted(1, 8, 1, 1)], {"blocksize": 2}, [floats([[[0, 2], [4, 6]], [[1, 3], [5, 7]]])]),
    ("column, row, depth", "DepthToSpace", 11, [counted(1, 8, 1, 1)], {"blocksize": 2, "mode": "CRD"}, [counted(1, 2, 2, 2)]),
    ("depth, column, row", "SpaceToDepth", 1, [counted(1, 2, 2, 2)], {"blocksize": 2}, [DEPTHS]),
    ("column, row, depth", "SpaceToDepth", 28, [counted(1, 2, 2, 2)], {"blocksize": 2, "mode": "CRD"}, [counted(1, 8, 1, 1)]),
    ("nothing in the batch", "SpaceToDepth", 13, [empty(0, 1, 2, 2)], {"blocksize": 2}, [empty(0, 4, 1, 1)]),
    ("k of the int64 limit", "Trilu", 14, [counted(2, 2), np.array(2**63 - 1)], {}, [empty(2, 2)]),
    ("k of the other limit", "Trilu", 14, [counted(2, 2), np.array(-(2**63))], {}, [counted(2, 2)]),
    ("lower with k of shape [1]", "Trilu", 14, [counted(2, 2), integers(-1)], {"upper": 0}, [floats([0, 0], [2, 0])]),
    ("strings", "Trilu", 14, [strings(["a", "b"], ["c", "d"])], {}, [strings(["a", "b"], ["", "d"])]),
    ("odd crop begins early, odd pad ends late", "CenterCropPad", 18, [counted(2, 4), integers(4, 1)], {}, [floats([0], [1], [5], [0])]),
    ("negative axis", "CenterCropPad", 18, [counted(1, 3), integers(2)], {"axes": [-1]}, [floats([0, 1])]),
    ("axes in another order", "CenterCropPad", 18, [counted(1, 2), integers(1, 2)], {"axes": [1, 0]}, [floats([0], [0])]),
    ("strings", "CenterCropPad", 18, [strings("a"), integers(2)], {}, [strings("a", "")]),
    ("lengths of 0 and 1", "ReverseSequence", 10, [counted(2, 3), integers(0, 1, 2)], {}, [floats([0, 1, 5], [3, 4, 2])]),
    ("more dimensions", "ReverseSequence", 10, [counted(1, 2, 2), integers(2)], BATCH_FIRST, [floats([[2, 3], [0, 1]])]),
    ("no batch", "ReverseSequence", 10, [empty(2, 0), integers()], {}, [empty(2, 0)]),
    ("scalar", "Transpose", 1, [SCALAR], {}, [SCALAR]),
    ("a sequence", "Identity", 14, [[counted(1), counted(2)]], {}, [[counted(1), counted(2)]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "outputs"),
    [pytest.param(*case, id=f"{case[0]}-{case[1]}: {name}") for name, *case in CASES],
)
def test_worked_out_by_hand(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], outputs: list[Any]) -> None:
    check(op_type, opset, inputs, attributes, outputs)


# Every element type of every version: which elements of a [2, 2] input, or [1, 4, 1, 1] where the operator wants an image, come out where.
# operator, first and last version, other inputs, attributes, output shape, positions in the input, None for a zero
MOVES: list[tuple[str, int, int, list[Any], dict[str, Any], list[int], list[int | None]]] = [
    ("Reshape", 1, 1, [], {"shape": [-1]}, [4], [0, 1, 2, 3]),
    ("Reshape", 5, 99, [integers(4, 1)], {}, [4, 1], [0, 1, 2, 3]),
    ("Flatten", 1, 99, [], {"axis": 0}, [1, 4], [0, 1, 2, 3]),
    ("Squeeze", 1, 99, [], {}, [2, 2], [0, 1, 2, 3]),
    ("Unsqueeze", 1, 11, [], {"axes": [1]}, [2, 1, 2], [0, 1, 2, 3]),
    ("Unsqueeze", 13, 99, [integers(1)], {}, [2, 1, 2], [0, 1, 2, 3]),
    ("Transpose", 1, 99, [], {}, [2, 2], [0, 2, 1, 3]),
    ("Concat", 1, 99, [], {"axis": 0}, [2, 2], [0, 1, 2, 3]),
    ("Split", 1, 11, [], {"axis": 1, "split": [2]}, [2, 2], [0, 1, 2, 3]),
    ("Split", 13, 99, [integers(2)], {"axis": 1}, [2, 2], [0, 1, 2, 3]),
    ("Slice", 1, 1, [], {"starts": [1], "ends": [2]}, [1, 2], [2, 3]),
    ("Slice", 10, 99, [integers(-1), integers(-9), integers(1), integers(-1)], {}, [2, 2], [1, 0, 3, 2]),
    ("Pad", 1, 1, [], {"paddings": [1, 0, 0, 0]}, [3, 2], [None, None, 0, 1, 2, 3]),
    ("Pad", 2, 2, [], {"pads": [1, 0, 0, -1]}, [3, 1], [None, 0, 2]),
    ("Pad", 11, 99, [integers(1, 0, 0, -1)], {}, [3, 1], [None, 0, 2]),
    ("Pad", 11, 99, [integers(1, 0, 0, 0)], {"mode": "reflect"}, [3, 2], [2, 3, 0, 1, 2, 3]),
    ("Pad", 11, 99, [integers(0, 0, 0, 1)], {"mode": "edge"}, [2, 3], [0, 1, 1, 2, 3, 3]),
    ("Tile", 6, 99, [integers(1, 2)], {}, [2, 4], [0, 1, 0, 1, 2, 3, 2, 3]),
    ("Expand", 8, 99, [integers(2, 1, 1)], {}, [2, 2, 2], [0, 1, 2, 3] * 2),
    ("Identity", 1, 99, [], {}, [2, 2], [0, 1, 2, 3]),
    ("DepthToSpace", 1, 99, [], {"blocksize": 2}, [1, 1, 2, 2], [0, 1, 2, 3]),
    ("SpaceToDepth", 1, 99, [], {"blocksize": 1}, [1, 4, 1, 1], [0, 1, 2, 3]),
    ("Trilu", 14, 99, [], {}, [2, 2], [0, 1, None, 3]),
    ("CenterCropPad", 18, 99, [integers(1, 3)], {}, [1, 3], [0, 1, None]),
    ("ReverseSequence", 10, 99, [integers(1, 2)], {}, [2, 2], [0, 3, 2, 1]),
]  # fmt: skip
CODES = {"string": ["a", "b\0", "ü", ""], "bool": [1, 0, 0, 1]}


@pytest.mark.parametrize("row", MOVES, ids=[f"{row[0]}-{row[1]}-{row[4].get('mode', '')}" for row in MOVES])
def test_every_type_of_every_version(row: Any) -> None:
    op_type, first, last, others, attributes, shape, positions = row
    seen = 0
    for version in movement.versions(op_type):
        if not first <= version <= last:
            continue
        schema = onnx.defs.get_schema(op_type, version)
        for name in oracle.TYPES:
            if f"tensor({name})" not in schema.inputs[0].types:
                continue
            seen += 1
            codes = CODES.get(name) or [0x7F81FF7EC3A5962D1B << number & (1 << oracle.TYPES[name].bits) - 1 for number in range(4)]
            zero = "" if name == "string" else 0
            x = oracle.array(name, [1, 4, 1, 1] if "Depth" in op_type else [2, 2], codes)
            (got,) = run(Case(op_type, version, [x, *others], attributes))
            assert (got.dtype, list(got.shape)) == (x.dtype, shape), (version, name)
            want = [zero if position is None else codes[position] for position in positions]
            assert oracle.codes_of(got, name) == want, (version, name)
    assert seen > 2


# Drawn cases beside loops


def unsqueezed(data: Any, axes: list[int]) -> Any:
    rank = data.ndim + len(axes)
    given = iter(data.shape)
    new = {axis % rank for axis in axes}
    return data.reshape([1 if axis in new else next(given) for axis in range(rank)])


def sliced(data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    chosen = [list(range(size)) for size in data.shape]
    axes = range(len(starts)) if axes is None else axes
    for number, axis in enumerate(axes):
        size, step = data.shape[axis], 1 if steps is None else int(steps[number])
        start, end = (int(each) + (size if each < 0 else 0) for each in (starts[number], ends[number]))
        low, high = (0, size) if step > 0 else (-1, size - 1)
        place, end = min(max(start, 0), high), min(max(end, low), high)
        chosen[axis] = [] if size == 0 else list(range(place, end, step))
    out = np.empty([len(each) for each in chosen], data.dtype)
    for place in np.ndindex(out.shape):
        out[place] = data[tuple(each[index] for each, index in zip(chosen, place, strict=True))]
    return out


def padded(data: Any, pads: Any, value: Any, axes: Any, mode: str) -> Any:
    axes = list(range(data.ndim)) if axes is None else [int(axis) % data.ndim for axis in axes]
    before, after = [0] * data.ndim, [0] * data.ndim
    for number, axis in enumerate(axes):
        before[axis], after[axis] = int(pads[number]), int(pads[number + len(axes)])
    out = np.empty([sum(each) for each in zip(data.shape, before, after, strict=True)], data.dtype)
    for place in np.ndindex(out.shape):
        source = []
        for axis, index in enumerate(place):
            first, last = max(-before[axis], 0), data.shape[axis] - 1 - max(-after[axis], 0)
            index -= before[axis]
            if mode == "edge":
                index = min(max(index, first), last)
            while mode != "constant" and not first <= index <= last:
                length = last - first + 1
                beyond = 2 * first - index if index < first else 2 * last - index
                index = index + (length if index < first else -length) if mode == "wrap" else beyond if length > 1 else first
            source.append(index)
        inside = all(max(-b, 0) <= i < n - max(-a, 0) for i, n, b, a in zip(source, data.shape, before, after, strict=True))
        out[place] = data[tuple(source)] if inside else value
    return out


def oracle_of(case: Case) -> list[Any]:
    data, *rest = case.inputs
    attributes = case.attributes
    if case.op_type == "Unsqueeze":
        return [unsqueezed(data, attributes["axes"] if case.opset < 13 else rest[0].tolist())]
    if case.op_type == "Slice":
        return [sliced(data, *rest) if rest else sliced(data, attributes["starts"], attributes["ends"], attributes.get("axes"))]
    if case.op_type == "Pad":
        rest += [None] * (3 - len(rest))
        pads = attributes.get("pads", attributes.get("paddings")) if case.opset < 11 else rest[0]
        value = (
            attributes.get("value", 0) if case.opset < 11 else rest[1].item() if rest[1] is not None else "" if data.dtype == object else 0
        )
        return [padded(data, pads, value, rest[2], attributes.get("mode", "constant"))]
    if case.op_type == "ReverseSequence":
        out = data.copy()
        batch = attributes.get("batch_axis", 1)
        for sample, length in enumerate(rest[0]):
            for step in range(length):
                to, source = ([0, 0], [0, 0])
                to[batch] = source[batch] = sample
                to[1 - batch], source[1 - batch] = step, length - 1 - step
                out[tuple(to)] = data[tuple(source)]
        return [out]
    if case.op_type == "Tile":
        repeats = rest[0] if case.opset > 1 else [int(rest[0]) if axis == int(rest[1]) else 1 for axis in range(data.ndim)]
        out = np.empty([size * int(times) for size, times in zip(data.shape, repeats, strict=True)], data.dtype)
        for place in np.ndindex(out.shape):
            out[place] = data[tuple(index % size for index, size in zip(place, data.shape, strict=True))]
        return [out]
    if case.op_type == "Split":
        axis, count = attributes.get("axis", 0), case.outputs
        lengths = attributes.get("split") or ([int(each) for each in rest[0]] if rest else None)
        size = data.shape[axis]
        if lengths is None:
            step = math.ceil(size / count)
            lengths = [max(min(step, size - step * number), 0) for number in range(count)]
        stops = list(itertools.accumulate(lengths))
        return [data.take(range(stop - length, stop), axis) for stop, length in zip(stops, lengths, strict=True)]
    assert case.op_type == "Expand"
    ones = np.ones([int(each) for each in rest[0]], np.int64)
    positions = np.arange(data.size).reshape(data.shape) * ones
    return [data.reshape(-1)[positions.reshape(-1)].reshape(positions.shape)]


@pytest.mark.parametrize("op_type", ["Unsqueeze", "Slice", "Pad", "ReverseSequence", "Tile", "Split", "Expand"])
def test_drawn_beside_loops(op_type: str) -> None:
    for case in drawn_cases(movement.draws(np.random.default_rng(7)), op_type, 300):
        got = run(case)
        if op_type == "Pad" and case.inputs[0].dtype.kind == "V":
            case.inputs[0] = case.inputs[0].astype(np.float32)  # exact, and quicker element by element
            got = [got[0].astype(np.float32)]
        assert_same(got, oracle_of(case))


@pytest.mark.parametrize("op_type", movement.DRAWS)
def test_inputs_are_kept_and_aliases_declared(op_type: str) -> None:
    assert_pure(drawn_cases(movement.draws(np.random.default_rng(8)), op_type, 60))


def test_node_cases(node_cases: list[Any]) -> None:
    assert_node_cases(node_cases, set(movement.DRAWS))


ERRORS: list[tuple[str, int, list[Any], dict[str, Any], str]] = [
    ("Reshape", 5, [counted(4), integers(3)], {}, r"shape is \[3\] for an input of shape \[4\]"),
    ("Reshape", 5, [counted(4), integers(-1, -1)], {}, "at most one -1"),
    ("Reshape", 5, [counted(4), integers(-2)], {}, "at most one -1"),
    ("Reshape", 5, [counted(4), integers(4, 0)], {}, "a 0 stands for a dimension of the input"),
    ("Reshape", 14, [empty(0), integers(0, -1)], {"allowzero": 1}, "at most one -1"),
    ("Reshape", 14, [counted(4), integers([4])], {}, r"shape has the shape \[1, 1\]; allowed: rank 1"),
    ("Reshape", 14, [counted(4), floats(4)], {}, "shape has element type float32"),
    ("Flatten", 13, [counted(2, 2)], {"axis": 3}, "axis is 3; allowed: -2 to 2"),
    ("Squeeze", 13, [counted(2, 1), integers(0)], {}, r"axes are \[0\] for an input of shape \[2, 1\]"),
    ("Squeeze", 11, [counted(2, 1)], {"axes": [2]}, r"axes are \[2\]"),
    ("Unsqueeze", 13, [counted(2), integers(2)], {}, "axis is 2; allowed: -2 to 1"),
    ("Unsqueeze", 13, [counted(2), integers(0, -3)], {}, "every axis once"),
    ("Transpose", 13, [counted(2, 1)], {"perm": [0]}, r"perm is \[0\] for an input of shape \[2, 1\]"),
    ("Transpose", 13, [counted(2, 1)], {"perm": [0, 0]}, "every axis once"),
    ("Concat", 13, [counted(2, 1), counted(3, 2)], {"axis": 0}, r"axis is 0 for inputs of shape \[2, 1\], \[3, 2\]"),
    ("Concat", 13, [SCALAR], {"axis": 0}, "axis 0 is out of range"),
    ("Concat", 13, [counted(1)], {}, "'axis' is missing"),
    ("Split", 13, [counted(3), integers(1, 1)], {}, "whose sum is 3"),
    ("Split", 13, [counted(3), integers(-1, 4)], {}, "lengths from 0 on"),
    ("Split", 13, [counted(3)], {}, "2 equal parts cannot share"),
    ("Split", 18, [counted(3), integers(1, 2)], {"num_outputs": 2}, "split and the attribute num_outputs are given"),
    ("Split", 18, [counted(3)], {"num_outputs": 0}, "num_outputs is 0"),
    ("Split", 18, [counted(3), integers(3)], {}, "1 parts for 2 outputs"),
    ("Slice", 13, [counted(3), integers(0), integers(1, 2)], {}, "as many of each"),
    ("Slice", 13, [counted(3), integers(0), integers(1), integers(1)], {}, r"axes are \[1\]; allowed: -1 to 0"),
    ("Slice", 13, [counted(3), integers(0), integers(1), integers(0), integers(0)], {}, r"steps are \[0\]"),
    ("Pad", 13, [counted(3), integers(1)], {}, "2 numbers"),
    ("Pad", 13, [counted(3), integers(-2, -2)], {}, "less than nothing"),
    ("Pad", 13, [counted(3), integers(1, 1)], {"mode": "mirror"}, "constant, reflect, edge, wrap"),
    ("Pad", 13, [empty(0), integers(1, 1)], {"mode": "edge"}, "nothing in dimension 0 to repeat"),
    ("Pad", 13, [counted(3), integers(1, 1), floats(1, 2)], {}, "constant_value has the shape"),
    ("Tile", 6, [counted(3), integers(1, 1)], {}, "1 numbers from 0 on"),
    ("Tile", 6, [counted(3), integers(-1)], {}, "1 numbers from 0 on"),
    ("Tile", 1, [counted(3), np.array(1.5, np.float32), np.array(0, np.float32)], {}, "tiles is 1.5; allowed: one whole number"),
    ("Expand", 8, [counted(3), integers(2)], {}, "does not broadcast"),
    ("Expand", 8, [counted(1), integers(-1)], {}, "does not broadcast"),
    ("DepthToSpace", 13, [counted(1, 3, 1, 1)], {"blocksize": 2}, "multiples of 4"),
    ("DepthToSpace", 13, [counted(4)], {"blocksize": 2}, "rank 4"),
    ("DepthToSpace", 13, [counted(1, 4, 1, 1)], {"blocksize": 0}, "blocksize is 0"),
    ("DepthToSpace", 13, [counted(1, 4, 1, 1)], {"blocksize": 2, "mode": "DRC"}, "DCR, CRD"),
    ("SpaceToDepth", 13, [counted(1, 1, 2, 3)], {"blocksize": 2}, "multiples of blocksize"),
    ("Trilu", 14, [counted(3)], {}, "rank 2"),
    ("CenterCropPad", 18, [counted(3), integers(1, 2)], {}, "1 numbers from 0 on"),
    ("ReverseSequence", 10, [counted(2, 1), integers(3)], {}, "1 numbers from 0 to 2"),
    ("ReverseSequence", 10, [counted(2, 1), integers(1)], {"batch_axis": 0}, "batch_axis is 0 and time_axis 0"),
    ("ReverseSequence", 10, [counted(2), integers(1)], {}, "rank 2"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "opset", "inputs", "attributes", "text"), ERRORS, ids=[f"{row[0]}-{row[4]}" for row in ERRORS])
def test_errors(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(NumbaopsError, match=text) as caught:
        run(Case(op_type, opset, inputs, attributes, outputs=2 if op_type == "Split" else 1))
    assert caught.value.op_type == op_type
