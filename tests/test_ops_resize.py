"""Resize and Upsample: small cases worked out by hand, then all modes beside a slow loop that follows the text."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import numbaops
from drawn import resize
from drawn.case import Case
from leaf_checks import assert_node_cases, assert_pure, run

INF = math.inf
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def row(*values: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def up_to(count: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(count).astype(dtype)


def scales(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def sizes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


IMAGE = np.array([[[[1, 2], [3, 4]]]], np.float32)
TWICE = [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]
# asymmetric: coordinates 0, 0.5, 1, 1.5, of which the last is the border's element
TWICE_LINEAR = [[1, 1.5, 2, 2], [2, 2.5, 3, 3], [3, 3.5, 4, 4], [3, 3.5, 4, 4]]
FLOOR = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}
LINEAR = {"mode": "linear"}

# id, operator, opset, inputs, attributes, right answer
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], Any]] = [
    ("nearest", "Upsample", 1, [IMAGE], {"height_scale": 2.0, "width_scale": 2.0}, [[TWICE]]),
    ("bilinear", "Upsample", 1, [IMAGE], {"height_scale": 2.0, "width_scale": 2.0, "mode": "bilinear"}, [[TWICE_LINEAR]]),
    ("one scale", "Upsample", 1, [IMAGE], {"height_scale": 1.0, "width_scale": 2.5}, [[[[1, 1, 1, 2, 2], [3, 3, 3, 4, 4]]]]),
    ("nearest", "Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 2.0]}, [[TWICE]]),
    ("linear", "Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}, [[TWICE_LINEAR]]),
    ("channels", "Upsample", 7, [IMAGE], {"scales": [1.0, 2.0, 1.0, 1.0]}, [[[[1, 2], [3, 4]], [[1, 2], [3, 4]]]]),
    ("nearest", "Upsample", 9, [IMAGE, scales(1, 1, 2, 2)], {}, [[TWICE]]),
    ("linear", "Upsample", 9, [IMAGE, scales(1, 1, 2, 2)], LINEAR, [[TWICE_LINEAR]]),
    ("rank 1", "Upsample", 9, [row(1, 2, 3), scales(1.5)], {}, [1, 1, 2, 3]),
    ("whole scales change nothing", "Upsample", 9, [row(1, 2, 3), scales(1.2)], LINEAR, [1, 2, 3]),
    ("nearest", "Resize", 10, [IMAGE, scales(1, 1, 2, 2)], {}, [[TWICE]]),
    ("linear", "Resize", 10, [IMAGE, scales(1, 1, 2, 2)], LINEAR, [[TWICE_LINEAR]]),
    # of onnx 1.5: 1 / 0.6 is element 2 where an axis shrinks
    ("nearest, shrinking", "Resize", 10, [np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32), scales(0.6, 0.6)], {}, [[1, 3]]),
    ("linear, shrinking", "Resize", 10, [np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32), scales(0.6, 0.6)], LINEAR, [[1, 8 / 3]]),
    ("ties of sizes", "Resize", 13, [up_to(20), None, None, sizes(6)], {"nearest_mode": "round_prefer_ceil"}, [1, 5, 8, 11, 15, 18]),
    ("ties of sizes, down", "Resize", 13, [up_to(20), None, None, sizes(6)], {}, [1, 4, 8, 11, 14, 18]),
    ("a third is a third", "Resize", 13, [up_to(9), None, scales(1 / 3)], FLOOR, [0, 3, 6]),
    ("a float scale", "Resize", 13, [up_to(10), None, scales(1.2)], FLOOR, [0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]),
    ("a size below 7", "Resize", 13, [up_to(10), None, scales(0.7)], FLOOR, [0, 1, 2, 4, 5, 7]),
    ("ceil", "Resize", 11, [up_to(4), row(), scales(0.5)], {"nearest_mode": "ceil"}, [1, 3]),
    ("for nn", "Resize", 11, [up_to(4), row(), scales(0.5)], {**FLOOR, "coordinate_transformation_mode": "tf_half_pixel_for_nn"}, [1, 3]),
    ("empty scales", "Resize", 11, [up_to(2), row(), row(), sizes(4)], {}, [0, 0, 1, 1]),
    ("empty sizes", "Resize", 13, [up_to(2), None, scales(2), sizes()], {}, [0, 0, 1, 1]),
    (
        "length 1 of pytorch",
        "Resize",
        13,
        [up_to(4), None, scales(0.25)],
        {**LINEAR, "coordinate_transformation_mode": "pytorch_half_pixel"},
        [0],
    ),
    (
        "length 1 of pytorch, cubic",
        "Resize",
        13,
        [row(8, 0, 0, 0), None, None, sizes(1)],
        {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"},
        [8],
    ),
    ("corners", "Resize", 13, [up_to(5), None, scales(0.7)], {**LINEAR, "coordinate_transformation_mode": "align_corners"}, [0, 2, 4]),
    (
        "corners of a fractional length",
        "Resize",
        19,
        [up_to(5), None, scales(0.7)],
        {**LINEAR, "coordinate_transformation_mode": "align_corners"},
        [0, 1.6, 3.2],
    ),
    (
        "a symmetric half pixel",
        "Resize",
        19,
        [up_to(4), None, scales(1.1)],  # as it is: 4.4 becomes 4
        {**LINEAR, "coordinate_transformation_mode": "half_pixel_symmetric"},
        [0, 1, 2, 3],
    ),
    (
        "a symmetric half pixel, offset 0.2",
        "Resize",
        19,
        [row(0, 10, 20, 30), None, scales(0.625)],  # 2.5 becomes 2: 0.4 + 0.8 - 0.5 and 0.4 + 2.4 - 0.5
        {**LINEAR, "coordinate_transformation_mode": "half_pixel_symmetric"},
        [7, 23],
    ),
    ("a crop", "Resize", 13, [up_to(5), row(0.25, 0.75), None, sizes(3)], {**LINEAR, **CROP}, [1, 2, 3]),
    ("a crop of length 1", "Resize", 13, [up_to(5), row(0.25, 0.5), None, sizes(1)], {**LINEAR, **CROP}, [1.5]),
    ("a crop, same length", "Resize", 13, [up_to(3), row(0, 0.5), None, sizes(3)], {**LINEAR, **CROP}, [0, 0.5, 1]),
    (
        "a crop beyond",
        "Resize",
        11,
        [up_to(5), row(-0.5, 1.5, dtype=np.float64), row(), sizes(3)],
        {**LINEAR, **CROP, "extrapolation_value": 9.0},
        [9, 2, 9],
    ),
    (
        "a crop beyond, nearest",
        "Resize",
        13,
        [up_to(5, np.int32), row(0, 1.5, dtype=np.float16), None, sizes(4)],
        {**CROP, "extrapolation_value": -1.0},
        row(0, 2, 4, -1, dtype=np.int32),
    ),
    (
        "a crop of one axis",
        "Resize",
        18,
        [IMAGE, row(0, 0.5), None, sizes(2)],
        {**LINEAR, **CROP, "axes": [-2]},
        [[[[1, 2], [2, 3]]]],
    ),
    ("axes in any order", "Resize", 18, [up_to(4).reshape(2, 2), None, scales(2, 1)], {"axes": [1, 0]}, [[0, 0, 1, 1], [2, 2, 3, 3]]),
    ("negative axes", "Resize", 18, [up_to(4).reshape(2, 2), None, None, sizes(1)], {**LINEAR, "axes": [-1]}, [[0.5], [2.5]]),
    (
        "not larger",
        "Resize",
        18,
        [up_to(8).reshape(2, 4), None, None, sizes(6, 6)],  # scale 1.5
        {**FLOOR, "keep_aspect_ratio_policy": "not_larger"},
        [[0, 0, 1, 2, 2, 3], [0, 0, 1, 2, 2, 3], [4, 4, 5, 6, 6, 7]],
    ),
    (
        "not smaller, half up, negative axes",
        "Resize",
        18,
        [up_to(6).reshape(2, 3), None, None, sizes(3, 1)],  # scale 1.5: 3 and 4.5
        {**FLOOR, "keep_aspect_ratio_policy": "not_smaller", "axes": [-2, -1]},
        [[0, 0, 1, 2, 2], [0, 0, 1, 2, 2], [3, 3, 4, 5, 5]],
    ),
    ("antialias", "Resize", 18, [up_to(4), None, scales(0.5)], {**LINEAR, "antialias": 1}, [0.625, 2.375]),
    ("antialias within", "Resize", 18, [up_to(4), None, scales(0.5)], {**LINEAR, "antialias": 1, "exclude_outside": 1}, [5 / 7, 16 / 7]),
    ("antialias, growing", "Resize", 18, [row(0, 4), None, scales(2)], {**LINEAR, "antialias": 1}, [0, 1, 3, 4]),
    ("infinity stays", "Resize", 19, [row(INF, 0, 0), None, None, sizes(6)], LINEAR, [INF, INF, INF, 0, 0, 0]),
    # coordinates -0.25 and 0.25: halves to even
    ("uint8 rounds", "Resize", 13, [row(0, 2, 8, dtype=np.uint8), None, None, sizes(6)], LINEAR, row(0, 0, 2, 4, 6, 8, dtype=np.uint8)),
    ("bool", "Resize", 13, [row(True, False, dtype=bool), None, None, sizes(4)], LINEAR, row(True, True, False, False, dtype=bool)),
    ("complex", "Resize", 13, [row(0, 4j, dtype=np.complex64), None, None, sizes(4)], LINEAR, row(0, 1j, 3j, 4j, dtype=np.complex64)),
    ("string", "Resize", 13, [row("a", "", dtype=object), None, None, sizes(4)], {}, row("a", "a", "", "", dtype=object)),
    ("string", "Upsample", 7, [row("a", "b\0", dtype=object)], {"scales": [2.0]}, row("a", "a", "b\0", "b\0", dtype=object)),
    ("int64", "Resize", 13, [row(2**62 + 1, dtype=np.int64), None, None, sizes(2)], {}, row(2**62 + 1, 2**62 + 1, dtype=np.int64)),
    ("int64 as it is", "Resize", 13, [row(2**62 + 1, dtype=np.int64), None, scales(1)], LINEAR, row(2**62 + 1, dtype=np.int64)),
    ("double", "Resize", 13, [row(0, 1, dtype=np.float64), None, None, sizes(3)], LINEAR, row(0, 0.5, 1, dtype=np.float64)),
    ("float16", "Resize", 11, [row(0, 1, dtype=np.float16), row(), scales(1.5)], LINEAR, row(0, 0.5, 1, dtype=np.float16)),
    ("bfloat16", "Resize", 13, [row(0, 1, dtype=BFLOAT16), None, None, sizes(3)], LINEAR, row(0, 0.5, 1, dtype=BFLOAT16)),
    ("no elements", "Resize", 13, [np.zeros((2, 0), np.float32), None, scales(2, 3)], LINEAR, np.zeros((4, 0), np.float32)),
    ("to no elements", "Resize", 13, [IMAGE, None, None, sizes(1, 1, 0, 3)], {"mode": "cubic"}, np.zeros((1, 1, 0, 3), np.float32)),
    ("to no elements", "Resize", 10, [IMAGE, scales(1, 1, 0.25, 1)], LINEAR, np.zeros((1, 1, 0, 2), np.float32)),
    ("rank 0", "Resize", 13, [np.array(7, np.float32), None, None, sizes()], LINEAR, np.array(7, np.float32)),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "right"),
    [case[1:] for case in CASES],
    ids=[f"{case[1]}-{case[2]}: {case[0]}" for case in CASES],
)
def test_case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], right: Any) -> None:
    (got,) = run(op_type, opset, inputs, attributes)
    want = right if isinstance(right, np.ndarray) else np.array(right, np.float32)
    assert got.dtype == inputs[0].dtype == want.dtype
    assert got.shape == want.shape
    if got.dtype.kind in "Oibu":
        assert got.tolist() == want.tolist()
    else:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=1e-6, atol=1e-7)


# What the text says, element by element.


def coordinate(mode: str, x: int, scale: Fraction, length: int, resized: int, start: float, end: float) -> float:
    last = length - 1
    if mode == "align_corners":
        return float(Fraction(x * last, resized - 1)) if resized > 1 else 0.0
    if mode == "asymmetric":
        return float(x / scale)
    if mode == "tf_half_pixel_for_nn":
        return float((x + Fraction(1, 2)) / scale)
    if mode == "tf_crop_and_resize":
        return start * last + x * (end - start) * last / (resized - 1) if resized > 1 else 0.5 * (start + end) * last
    if mode == "pytorch_half_pixel" and resized <= 1:
        return 0.0
    half = float((x + Fraction(1, 2)) / scale - Fraction(1, 2))
    if mode == "half_pixel_symmetric":
        return float(Fraction(length, 2) * (1 - resized / (length * scale))) + half
    return half


def neighbours(
    mode: str, nearest: str, x: float, length: int, scale: Fraction, a: float, antialias: bool, within: bool
) -> dict[int, float]:
    """The elements that count at a coordinate, and their weights."""
    if mode == "nearest":
        rounded = {
            "round_prefer_floor": math.ceil(x - 0.5),
            "round_prefer_ceil": math.floor(x + 0.5),
            "floor": math.floor(x),
            "ceil": math.ceil(x),
        }[nearest]
        return {min(max(rounded, 0), length - 1): 1.0}
    stretch = min(float(scale), 1.0) if antialias else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / stretch)
    weights: dict[int, float] = {}
    for index in range(math.floor(x) - reach, math.floor(x) + reach + 2):
        distance = abs(index - x) * stretch
        if mode == "linear":
            weight = max(0.0, 1 - distance)
        elif distance <= 1:
            weight = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        else:
            weight = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a if distance < 2 else 0.0
        if within and not 0 <= index < length:
            continue
        place = min(max(index, 0), length - 1)
        weights[place] = weights.get(place, 0.0) + weight
    total = sum(weights.values())
    return {place: weight / total for place, weight in weights.items()} if antialias or within else weights


def oracle(
    x: np.ndarray, target: list[int], ratio: list[Fraction], region: list[tuple[float, float]], options: dict[str, Any]
) -> np.ndarray:
    mode = options["mode"]
    tables = []
    for axis, length in enumerate(x.shape):
        table = []
        for place in range(target[axis]):
            at = coordinate(options["transform"], place, ratio[axis], length, target[axis], *region[axis])
            outside = options["transform"] == "tf_crop_and_resize" and not 0 <= at <= length - 1
            near = neighbours(mode, options["nearest_mode"], at, length, ratio[axis], options["a"], options["antialias"], options["within"])
            table.append(None if outside else near)
        tables.append(table)
    y = np.zeros(target)
    for place in np.ndindex(*target):
        chosen = [tables[axis][index] for axis, index in enumerate(place)]
        if any(each is None for each in chosen):
            y[place] = 5.0
            continue
        y[place] = sum(
            math.prod(weight for _, weight in combination) * float(x[tuple(index for index, _ in combination)])
            for combination in itertools.product(*(each.items() for each in chosen if each is not None))
        )
    return y


TRANSFORMS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
MODES = [
    {"mode": "nearest", "nearest_mode": "round_prefer_floor"},
    {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    {"mode": "nearest", "nearest_mode": "floor"},
    {"mode": "nearest", "nearest_mode": "ceil"},
    {"mode": "linear"},
    {"mode": "cubic"},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic", "antialias": 1, "exclude_outside": 1},
]


@pytest.mark.parametrize("transform", [*TRANSFORMS, "half_pixel_symmetric", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: " ".join(map(str, mode.values())))
def test_as_the_text_says(mode: dict[str, Any], transform: str) -> None:
    opset = {"half_pixel_symmetric": 19, "tf_half_pixel_for_nn": 11}.get(transform, 18 if "antialias" in mode else 13)
    if opset == 11 and "antialias" in mode:
        return
    x = np.random.default_rng(3).integers(-9, 10, (4, 5)).astype(np.float32)
    attributes = {**mode, "coordinate_transformation_mode": transform, "extrapolation_value": 5.0}
    roi = np.array([0.1, -0.2, 0.8, 0.9], np.float32)
    region = [(float(roi[0]), float(roi[2])), (float(roi[1]), float(roi[3]))] if transform == "tf_crop_and_resize" else [(0.0, 1.0)] * 2
    options = {
        "mode": mode["mode"],
        "transform": transform,
        "nearest_mode": mode.get("nearest_mode", ""),
        "a": mode.get("cubic_coeff_a", -0.75),
        "antialias": bool(mode.get("antialias")),
        "within": bool(mode.get("exclude_outside")),
    }
    for target in ([2, 3], [7, 11], [3, 9], [1, 1]):
        ratio = [Fraction(size, length) for size, length in zip(target, x.shape, strict=True)]
        (got,) = run("Resize", opset, [x, roi, row() if opset == 11 else None, sizes(*target)], attributes)
        np.testing.assert_allclose(got, oracle(x, target, ratio, region, options), rtol=1e-5, atol=1e-5, err_msg=str(target))
    # an axis of scale 1 stays, also where its coordinates would not
    for factors in ([0.5, 2.0], [1.5, 0.75], [1.25, 1.2 if transform == "tf_half_pixel_for_nn" else 1.0]):
        ratio = [Fraction(factor).limit_denominator(100) for factor in factors]
        target = [math.floor(length * factor) for length, factor in zip(x.shape, ratio, strict=True)]
        (got,) = run("Resize", opset, [x, roi, scales(*factors)], attributes)
        np.testing.assert_allclose(got, oracle(x, target, ratio, region, options), rtol=1e-5, atol=1e-5, err_msg=str(factors))


def test_integers_stay_within_their_limits() -> None:
    x = row(-128, -128, 127, 127, dtype=np.int8)
    options = {"mode": "cubic", "transform": "half_pixel", "nearest_mode": "", "a": -0.75, "antialias": False, "within": False}
    exact = oracle(x, [8], [Fraction(2)], [(0.0, 1.0)], options)
    assert exact.min() < -129
    assert exact.max() > 128
    (got,) = run("Resize", 13, [x, None, scales(2)], {"mode": "cubic"})
    assert got.dtype == np.int8
    assert got.tolist() == np.clip(np.rint(exact), -128, 127).tolist()
    (got,) = run("Resize", 13, [row(0, 0, 2**63 - 1, 2**63 - 1, dtype=np.int64), None, scales(2)], {"mode": "cubic"})
    assert got.min() < 0 < 2**63 - 2**10 <= got.max()


ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("no sizes", "Resize", 13, [IMAGE], {}, "neither scales nor sizes"),
    ("both", "Resize", 13, [row(1), None, scales(2), sizes(2)], {}, "scales and sizes given"),
    ("too few scales", "Resize", 13, [IMAGE, None, scales(2)], {}, "scales has 1 elements for 4 axes"),
    ("too few sizes", "Resize", 18, [IMAGE, None, None, sizes(2)], {"axes": [2, 3]}, "sizes has 1 elements for 2 axes"),
    ("a negative size", "Resize", 13, [row(1), None, None, sizes(-2)], {}, "no negative size"),
    ("scale 0", "Resize", 13, [row(1), None, scales(0)], {}, "above 0"),
    ("scale NaN", "Resize", 10, [row(1), scales(math.nan)], {}, "finite"),
    ("shrinking", "Upsample", 9, [row(1, 2), scales(0.5)], {}, "1.0 or more"),
    ("rank 3", "Upsample", 1, [IMAGE[0]], {"height_scale": 2.0, "width_scale": 2.0}, "rank 3"),
    ("an axis too far", "Resize", 18, [row(1), None, scales(2)], {"axes": [1]}, "axes are [1]"),
    ("an axis twice", "Resize", 18, [IMAGE, None, scales(2, 2)], {"axes": [1, -3]}, "every axis once"),
    ("no region", "Resize", 13, [row(1), None, scales(2)], CROP, "roi is missing"),
    ("a short region", "Resize", 13, [row(1), row(0), scales(2)], CROP, "roi is of 1 elements"),
    ("an unknown mode", "Resize", 13, [row(1), None, scales(2)], {"mode": "area"}, "nearest, linear, cubic"),
    ("cubic of old", "Resize", 10, [row(1), scales(2)], {"mode": "cubic"}, "mode is 'cubic'"),
    ("an unknown transform", "Resize", 13, [row(1), None, scales(2)], {"coordinate_transformation_mode": "half"}, "half_pixel"),
    ("an unknown rounding", "Resize", 13, [row(1), None, scales(2)], {"nearest_mode": "even"}, "round_prefer_floor"),
    (
        "an unknown policy",
        "Resize",
        18,
        [row(1), None, None, sizes(2)],
        {"keep_aspect_ratio_policy": "crop"},
        "stretch, not_larger, not_smaller",
    ),
    ("antialias of nearest", "Resize", 18, [row(1), None, scales(2)], {"antialias": 1}, "antialias is set for mode 'nearest'"),
    ("out of nothing", "Resize", 13, [row(), None, None, sizes(2)], {}, "is 0 and should become 2"),
    ("linear strings", "Resize", 13, [row("a", dtype=object), None, scales(2)], LINEAR, "element type string"),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises((numbaops.InvalidValueError, numbaops.InvalidTypeError)) as caught:
        run(op_type, opset, inputs, attributes)
    assert text in str(caught.value)
    assert caught.value.op_type == op_type


def test_inputs_stay() -> None:
    for case in resize.draws(np.random.default_rng(1)):
        assert_pure(case)


def test_onnx_node_cases(node_cases: list[Any]) -> None:
    assert assert_node_cases(node_cases, "Resize", "Upsample") > 30
    assert Case("Upsample", 9, []).since_version == 9
