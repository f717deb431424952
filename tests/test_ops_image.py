"""GridSample, AffineGrid, NonMaxSuppression and ImageDecoder: cases worked out by hand, and slow loops that follow the texts."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import numbaops
from drawn import image
from leaf_checks import assert_node_cases, assert_pure, run

NAN = math.nan
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def floats(values: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, np.float64).astype(dtype)


def line(*values: Any, dtype: Any = np.float32) -> np.ndarray:
    """One channel of one image of one dimension."""
    return np.array(values, dtype).reshape(1, 1, -1)


def places(*values: float, dtype: Any = np.float32) -> np.ndarray:
    """Where to look at it."""
    return np.array(values, dtype).reshape(1, -1, 1)


CORNERS = {"align_corners": 1}
NEAREST = {"mode": "nearest"}
FOUR = line(0, 10, 20, 30)
# as coordinates: -1, 0, 0.5, 1.5, 3, 3.5, 4
WITHOUT_CORNERS = places(-1.25, -0.75, -0.5, 0, 0.75, 1, 1.25)
SQUARE = floats([[[[0, 1], [2, 3]]]])

# id, opset, x, grid, attributes, right answer
GRID_SAMPLE: list[tuple[str, int, np.ndarray, np.ndarray, dict[str, Any], Any]] = [
    ("linear", 20, FOUR, WITHOUT_CORNERS, {}, line(0, 0, 5, 15, 30, 15, 0)),
    ("border", 20, FOUR, WITHOUT_CORNERS, {"padding_mode": "border"}, line(0, 0, 5, 15, 30, 30, 30)),
    ("reflection", 22, FOUR, places(-1.75, 1.25, 4), {"padding_mode": "reflection"}, line(10, 30, 15)),
    ("reflection at corners", 22, FOUR, places(-5 / 3, 5 / 3, 3), {**CORNERS, "padding_mode": "reflection"}, line(10, 20, 0)),
    ("corners", 20, FOUR, places(-1, -2 / 3, 0, 1), CORNERS, line(0, 5, 15, 30)),
    ("halves to even", 20, FOUR, places(-1, -0.5, 0, 0.5, 1), NEAREST, line(0, 0, 20, 20, 0)),
    ("nearest, border", 20, FOUR, places(-9, 9), {**NEAREST, "padding_mode": "border"}, line(0, 30)),
    ("nearest, reflection", 20, FOUR, places(-1.75, 1.75), {**NEAREST, "padding_mode": "reflection"}, line(10, 20)),
    ("NaN is -1", 20, line(7, 8), places(NAN), CORNERS, line(7)),
    ("far out", 20, line(7, 8), places(math.inf, -math.inf, 1e30), {"padding_mode": "border"}, line(8, 7, 8)),
    ("far out is zero", 20, line(7, 8), places(math.inf, -math.inf, 1e30), {}, line(0, 0, 0)),
    ("one element", 20, line(7), places(-1, 0, 3), {**CORNERS, "padding_mode": "reflection"}, line(7, 7, 7)),
    ("x comes first", 16, SQUARE, floats([[[[1, -1], [-1, 1]]]]), CORNERS, [[[[1, 2]]]]),
    ("bilinear", 16, SQUARE, floats([[[[0, 0], [0.5, -1]]]]), CORNERS, [[[[1.5, 0.75]]]]),
    (
        "channels and images",
        16,
        floats([[[[1]], [[2]]], [[[3]], [[4]]]]),
        np.zeros((2, 1, 1, 2), np.float32),
        {},
        [[[[1]], [[2]]], [[[3]], [[4]]]],
    ),
    # between elements Keys' weights at 0.5 are -0.09375, 0.59375, 0.59375, -0.09375
    (
        "bicubic",
        16,
        np.broadcast_to(floats([0, 0, 32, 0]), (1, 1, 4, 4)),
        np.zeros((1, 1, 1, 2), np.float32),
        {"mode": "bicubic"},
        [[[[19]]]],
    ),
    ("cubic, zeros outside", 20, line(32, 32), places(0), {"mode": "cubic"}, line(38)),
    ("cubic, border", 20, line(32, 0), places(0), {"mode": "cubic", "padding_mode": "border"}, line(16)),
    # coordinate 1.75, beyond the border: the elements are moved to it, not the place; element 0 weighs -0.03515625
    ("cubic beyond the border", 20, line(0, 64), places(1.25), {"mode": "cubic", "padding_mode": "border"}, line(66.25)),
    ("int32 is cut off", 20, line(0, 7, dtype=np.int32), places(0, 0.25), {}, line(3, 5, dtype=np.int32)),
    ("negative int8 is cut off", 20, line(0, -7, dtype=np.int8), places(0), {}, line(-3, dtype=np.int8)),
    ("uint8 keeps its limits", 20, line(255, 255, dtype=np.uint8), places(0), {"mode": "cubic"}, line(255, dtype=np.uint8)),
    ("bool", 20, line(True, True, dtype=bool), places(0, 1), {}, line(True, False, dtype=bool)),
    ("strings", 20, line("a", "b", dtype=object), places(-0.5, 0.5, 3), NEAREST, line("a", "b", "", dtype=object)),
    ("complex", 20, line(2j, 4, dtype=np.complex64), places(0), {}, line(2 + 1j, dtype=np.complex64)),
    ("double", 20, line(0, 1, dtype=np.float64), places(0.2, dtype=np.float64), {}, line(0.7, dtype=np.float64)),
    ("float16 grid", 16, SQUARE.astype(np.float16), np.zeros((1, 1, 1, 2), np.float16), {}, floats([[[[1.5]]]], np.float16)),
    ("bfloat16", 22, SQUARE.astype(BFLOAT16), np.zeros((1, 1, 1, 2), BFLOAT16), {}, floats([[[[1.5]]]], BFLOAT16)),
    ("no places", 20, FOUR, np.zeros((1, 0, 1), np.float32), {}, np.zeros((1, 1, 0), np.float32)),
    ("no elements", 20, np.zeros((1, 2, 0), np.float32), places(0), {}, np.zeros((1, 2, 1), np.float32)),
    ("no images", 16, np.zeros((0, 2, 3, 3), np.float32), np.zeros((0, 4, 5, 2), np.float32), {}, np.zeros((0, 2, 4, 5), np.float32)),
]


@pytest.mark.parametrize(
    ("opset", "x", "grid", "attributes", "right"), [case[1:] for case in GRID_SAMPLE], ids=[f"{case[1]}: {case[0]}" for case in GRID_SAMPLE]
)
def test_grid_sample(opset: int, x: np.ndarray, grid: np.ndarray, attributes: dict[str, Any], right: Any) -> None:
    (got,) = run("GridSample", opset, [np.ascontiguousarray(x), grid], attributes)
    want = right if isinstance(right, np.ndarray) else floats(right)
    assert got.dtype == x.dtype == want.dtype
    assert got.shape == want.shape
    if got.dtype.kind in "Oibu":
        assert got.tolist() == want.tolist()
    else:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=1e-5, atol=1e-5)


# What the text and PyTorch's documentation say, element by element.


def keys(distance: float) -> float:
    a, d = -0.75, abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def reflected(x: float, low: float, high: float) -> float:
    while not low <= x <= high:
        x = 2 * low - x if x < low else 2 * high - x
    return x


def sampled(image: np.ndarray, place: list[float], mode: str, padding: str, corners: bool) -> float:
    taps = []
    for length, at in zip(image.shape, reversed(place), strict=True):
        x = (at + 1) / 2 * (length - 1) if corners else ((at + 1) * length - 1) / 2
        low, high = (0.0, length - 1.0) if corners else (-0.5, length - 0.5)
        if padding == "reflection":
            x = reflected(x, low, high) if high > low else low
        first = math.floor(x)
        near = {
            "nearest": {round(x): 1.0},
            "linear": {first: first + 1 - x, first + 1: x - first},
            "cubic": {index: keys(index - x) for index in range(first - 1, first + 3)},
        }[mode]
        here = []
        for index, weight in near.items():
            where: int | None = index
            if padding == "border":
                where = min(max(index, 0), length - 1)
            elif padding == "reflection":
                where = int(reflected(index, low, high)) if high > low else 0
            elif not 0 <= index < length:
                where = None
            here.append((where, weight))
        taps.append(here)
    total = 0.0
    for combination in itertools.product(*taps):
        if all(where is not None for where, _ in combination):
            total += math.prod(weight for _, weight in combination) * float(image[tuple(where for where, _ in combination)])
    return total


@pytest.mark.parametrize("corners", [0, 1], ids=["edges", "corners"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_grid_sample_as_the_text_says(rank: int, mode: str, padding: str, corners: int) -> None:
    rng = np.random.default_rng(rank)
    x = rng.integers(-9, 10, (2, 1, *(4, 3, 2)[:rank])).astype(np.float32)
    grid = rng.uniform(-2.5, 2.5, (2, *(3, 2, 1)[:rank], rank)).astype(np.float32)
    (got,) = run("GridSample", 20, [x, grid], {"mode": mode, "padding_mode": padding, "align_corners": corners})
    want = np.zeros(got.shape)
    for place in np.ndindex(2, *grid.shape[1:-1]):
        where = [float(value) for value in grid[place]]
        want[place[0], 0, *place[1:]] = sampled(x[place[0], 0], where, mode, padding, bool(corners))
    assert got.shape == (2, 1, *grid.shape[1:-1])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    if rank == 2:
        named = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
        (older,) = run("GridSample", 16, [x, grid], {"mode": named, "padding_mode": padding, "align_corners": corners})
        np.testing.assert_array_equal(older, got)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("corners", [0, 1], ids=["edges", "corners"])
@pytest.mark.parametrize("lengths", [(3, 4), (2, 3, 4), (1, 5), (0, 2), (1, 1, 1)], ids=str)
def test_affine_grid(lengths: tuple[int, ...], corners: int, kind: Any) -> None:
    rank = len(lengths)
    theta = np.random.default_rng(rank).integers(-4, 5, (2, rank, rank + 1)).astype(kind)
    (got,) = run("AffineGrid", 20, [theta, np.array([2, 3, *lengths])], {"align_corners": corners})
    want = np.zeros((2, *lengths, rank))
    for place in np.ndindex(2, *lengths):
        position = []
        for index, length in zip(place[1:], lengths, strict=True):
            if corners:
                position.append(-1 + 2 * index / (length - 1) if length > 1 else -1.0)
            else:
                position.append((2 * index + 1) / length - 1)
        homogeneous = [*reversed(position), 1.0]
        want[place] = [sum(float(a) * b for a, b in zip(row, homogeneous, strict=True)) for row in theta[place[0]]]
    assert got.dtype == kind
    tolerance = {2: 2.0**-7, 4: 1e-6, 8: 1e-12}[got.dtype.itemsize]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)


# NonMaxSuppression. Boxes [y1, x1, y2, x2]: 1 lies on 0 for 9 / 11 of their union, 2 is far away.
BOXES = floats([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [5, 5, 6, 6]]])
SCORES = floats([[[0.9, 0.8, 0.7]]])


def one(value: float, rank: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.full([1] * rank, value, dtype)


def most(count: int, rank: int = 0) -> np.ndarray:
    return one(count, rank, np.int64)


# id, inputs, attributes, selected boxes
SUPPRESSION: list[tuple[str, list[Any], dict[str, Any], list[list[int]]]] = [
    ("overlapping", [BOXES, SCORES, most(3), one(0.5)], {}, [[0, 0, 0], [0, 0, 2]]),
    ("tensors of rank 1", [BOXES, SCORES, most(3, 1), one(0.5, 1), one(0.75, 1)], {}, [[0, 0, 0]]),
    ("a threshold just met", [BOXES, SCORES, most(3), one(0.99), floats(0.8)], {}, [[0, 0, 0]]),
    ("little overlap allowed", [BOXES, SCORES, most(3)], {}, [[0, 0, 0], [0, 0, 2]]),
    (
        "overlap of just the threshold",
        [floats([[[0, 0, 1, 1], [0, 0, 1, 2]]]), floats([[[1, 2]]]), most(3), one(0.5)],
        {},
        [[0, 0, 1], [0, 0, 0]],
    ),
    ("none by default", [BOXES, SCORES], {}, []),
    ("none", [BOXES, SCORES, most(0), one(0.5)], {}, []),
    ("less than none", [BOXES, SCORES, most(-1), one(0.5)], {}, []),
    ("one each", [BOXES, SCORES, most(1), one(0.5)], {}, [[0, 0, 0]]),
    ("no threshold, negative scores", [BOXES, -SCORES, most(3), one(0.5)], {}, [[0, 0, 2], [0, 0, 1]]),
    ("a left out overlap", [BOXES, SCORES, most(3), None, one(0.75)], {}, [[0, 0, 0]]),
    ("equal scores", [BOXES[:, [2, 0, 1]], np.zeros((1, 1, 3), np.float32), most(3), one(0.5)], {}, [[0, 0, 0], [0, 0, 1]]),
    ("flipped corners", [BOXES[:, :, [2, 3, 0, 1]], SCORES, most(3), one(0.5)], {}, [[0, 0, 0], [0, 0, 2]]),
    (
        "centres",
        [floats([[[0.5, 0.5, 1, 1], [0.6, 0.5, 1, 1], [0.5, 1.4, 1, 1]]]), SCORES, most(3), one(0.5)],
        {"center_point_box": 1},
        [[0, 0, 0], [0, 0, 2]],
    ),
    ("no area", [np.zeros((1, 2, 4), np.float32), floats([[[1, 2]]]), most(3)], {}, [[0, 0, 1], [0, 0, 0]]),
    (
        "batches and classes",
        [np.concatenate([BOXES, BOXES[:, ::-1]]), floats([[[1, 2, 3], [3, 2, 1]], [[0, 0, 9], [9, 0, 0]]]), most(2), one(0.5), one(0.5)],
        {},
        [[0, 0, 2], [0, 0, 1], [0, 1, 0], [0, 1, 2], [1, 0, 2], [1, 1, 0]],
    ),
    ("no boxes", [np.zeros((1, 0, 4), np.float32), np.zeros((1, 2, 0), np.float32), most(2)], {}, []),
    ("no classes", [BOXES, np.zeros((1, 0, 3), np.float32), most(2)], {}, []),
]


@pytest.mark.parametrize("opset", [10, 11])
@pytest.mark.parametrize(("inputs", "attributes", "right"), [case[1:] for case in SUPPRESSION], ids=[case[0] for case in SUPPRESSION])
def test_non_max_suppression(opset: int, inputs: list[Any], attributes: dict[str, Any], right: list[list[int]]) -> None:
    (got,) = run("NonMaxSuppression", opset, inputs, attributes)
    assert got.dtype == np.int64
    assert got.shape == (len(right), 3)
    assert got.tolist() == right


@pytest.mark.parametrize("limit", [40, 1000])
def test_non_max_suppression_of_many_boxes(limit: int) -> None:
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 4, (900, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.1, 1, (900, 2))], axis=1).astype(np.float32)
    scores = np.round(rng.uniform(0, 1, 900), 2).astype(np.float32)

    def overlap(a: np.ndarray, b: np.ndarray) -> np.floating[Any]:
        height, width = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
        if height <= 0 or width <= 0:
            return np.float32(0)
        shared = height * width
        return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)

    kept: list[int] = []
    for box in sorted(range(900), key=lambda box: -scores[box]):
        if scores[box] > np.float32(0.1) and len(kept) < limit and all(overlap(boxes[box], boxes[other]) <= 0.25 for other in kept):
            kept.append(box)
    (got,) = run("NonMaxSuppression", 11, [boxes[None], scores[None, None], most(limit), one(0.25), one(0.1)])
    assert got[:, 2].tolist() == kept
    assert len(kept) == min(limit, len(kept)) > 30


ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("an unknown mode", "GridSample", 20, [FOUR, places(0)], {"mode": "area"}, "mode is 'area'"),
    ("an unknown padding", "GridSample", 20, [FOUR, places(0)], {"padding_mode": "wrap"}, "zeros, border, reflection"),
    ("coordinates of another rank", "GridSample", 16, [SQUARE, np.zeros((1, 2, 2, 3), np.float32)], {}, "[1, 2, 2, 3]"),
    ("other images", "GridSample", 16, [SQUARE, np.zeros((2, 2, 2, 2), np.float32)], {}, "[2, 2, 2, 2]"),
    ("weighed strings", "GridSample", 20, [line("a", dtype=object), places(0)], {}, "element type string"),
    ("no border", "GridSample", 20, [np.zeros((1, 1, 0), np.float32), places(0)], {"padding_mode": "border"}, "no border"),
    ("a matrix of another rank", "AffineGrid", 20, [np.zeros((1, 2, 3), np.float32), np.array([1, 1, 2, 2, 2])], {}, "[1, 2, 3]"),
    ("another number", "AffineGrid", 20, [np.zeros((1, 2, 3), np.float32), np.array([2, 1, 2, 2])], {}, "1 first"),
    ("a negative size", "AffineGrid", 20, [np.zeros((1, 2, 3), np.float32), np.array([1, 1, -2, 2])], {}, "no negative size"),
    ("boxes of 5", "NonMaxSuppression", 11, [np.zeros((1, 3, 5), np.float32), SCORES], {}, "[1, 3, 5]"),
    ("scores of other boxes", "NonMaxSuppression", 11, [BOXES, SCORES[..., :2]], {}, "[1, 1, 2]"),
    ("two thresholds", "NonMaxSuppression", 11, [BOXES, SCORES, most(1), floats([0.5, 0.5])], {}, "iou_threshold has 2 elements"),
    ("another format", "NonMaxSuppression", 11, [BOXES, SCORES, most(1)], {"center_point_box": 2}, "center_point_box is 2"),
    ("another pixel format", "ImageDecoder", 20, [np.zeros(1, np.uint8)], {"pixel_format": "HSV"}, "RGB, BGR, Grayscale"),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises((numbaops.InvalidValueError, numbaops.InvalidTypeError)) as caught:
        run(op_type, opset, inputs, attributes)
    assert text in str(caught.value)
    assert caught.value.op_type == op_type


# ImageDecoder. A stand-in for Pillow, which the tests do not need: its images are two pixels, or none.


class Picture:
    def __init__(self, mode: str) -> None:
        self.mode = mode

    def convert(self, mode: str) -> np.ndarray:
        assert mode in ("RGB", "L")
        return np.array([[[1, 2, 3], [4, 5, 6]]] if mode == "RGB" else [[7, 8]], np.uint8)


@pytest.fixture
def pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(file: Any) -> Picture:
        if file.read() != b"\1\2":
            raise OSError("cannot identify image file")
        return Picture("P")

    package, module = ModuleType("PIL"), ModuleType("PIL.Image")
    module.open = opened  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "PIL", package)
    monkeypatch.setitem(sys.modules, "PIL.Image", module)


@pytest.mark.usefixtures("pillow")
@pytest.mark.parametrize(
    ("attributes", "right"),
    [
        ({}, [[[1, 2, 3], [4, 5, 6]]]),
        ({"pixel_format": "BGR"}, [[[3, 2, 1], [6, 5, 4]]]),
        ({"pixel_format": "Grayscale"}, [[[7], [8]]]),
    ],
    ids=["RGB", "BGR", "Grayscale"],
)
def test_image_decoder_converts_what_the_file_holds(attributes: dict[str, Any], right: list[Any]) -> None:
    (got,) = run("ImageDecoder", 20, [np.array([1, 2], np.uint8)], attributes)
    assert got.dtype == np.uint8
    assert got.tolist() == right


@pytest.mark.usefixtures("pillow")
def test_image_decoder_of_no_image() -> None:
    (got,) = run("ImageDecoder", 20, [np.array([1, 2, 3], np.uint8)])
    assert got.dtype == np.uint8
    assert got.shape == (0, 0, 0)


def test_image_decoder_needs_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(numbaops.UnsupportedError, match="Pillow"):
        run("ImageDecoder", 20, [np.array([1], np.uint8)])


def test_inputs_stay() -> None:
    draw: Callable[..., Any] = image.draws
    for case in draw(np.random.default_rng(1)):
        assert_pure(case)


def test_onnx_node_cases(node_cases: list[Any]) -> None:
    assert assert_node_cases(node_cases, "GridSample", "AffineGrid", "NonMaxSuppression") > 25
