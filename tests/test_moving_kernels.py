"""Kernels that move, choose or sample elements, beside NumPy and slow loops.

The file passes compiled, with ``NUMBA_DISABLE_JIT=1`` (kernels then run as Python, on few elements) and with ``NUMBA_BOUNDSCHECK=1``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numba import config

from numbaops.errors import InvalidValueError
from numbaops.kernels import elements, ranking, resampling
from numbaops.ops import _elements, _resampling, _sorting, indexing, movement
from numbaops.ops._padding import Pad
from numbaops.ops._rearranging import trilu
from numbaops.ops._shapes import Reshape, Squeeze, Unsqueeze
from numbaops.ops.resize import Resize, upsample

COMPILED = not config.DISABLE_JIT
needs_jit = pytest.mark.skipif(not COMPILED, reason="NumPy serves without the JIT")

SHAPES: list[Any] = [((), 7, 5, ()), ((3,), 6, 9, ()), ((2, 3), 5, 4, (2,)), ((), 4, 3, (2, 3))]
"""Dimensions before an axis, its size, the number of indices along it, dimensions after it."""


def shape_id(shape: Any) -> str:
    return "-".join("x".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in shape) or "none"


def drawn(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(seed).integers(-100, 100, shape).astype(dtype)


def along(before: tuple[int, ...], size: int, count: int, after: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any]:
    """Data, indices of which some are negative, and updates."""
    indices = np.random.default_rng(1).integers(-size, size, (*before, count, *after))
    return drawn(2, (*before, size, *after), dtype), indices, drawn(3, indices.shape, dtype)


@pytest.mark.parametrize("word", elements.WORDS)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_gather_and_scatter(shape: Any, word: str) -> None:
    data, indices, updates = along(*shape, word)  # type: ignore[call-arg]
    axis, inner, outer = len(shape[0]), math.prod(shape[3]), math.prod(shape[0])
    out, wrong = np.zeros_like(updates), np.zeros(1, np.int64)
    places = indices.reshape(-1)
    elements.gather[word](data.reshape(-1), shape[1], inner, places, shape[2], out.reshape(-1), wrong, 0, outer)
    np.testing.assert_array_equal(out, np.take_along_axis(data, indices, axis))
    new, want = data.copy(), data.copy()
    elements.scatter[word](new.reshape(-1), shape[1], inner, places, shape[2], updates.reshape(-1), wrong, 0, outer)
    for place in np.ndindex(*indices.shape):
        want[(*place[:axis], indices[place], *place[axis + 1 :])] = updates[place]
    np.testing.assert_array_equal(new, want)
    assert wrong[0] == 0


@pytest.mark.parametrize("operation", elements.OPERATIONS)
@pytest.mark.parametrize("dtype", elements.NUMBERS)
def test_scatter_combined(dtype: str, operation: str) -> None:
    data, indices, updates = along((2, 3), 5, 4, (2,), dtype)
    if dtype.startswith("f"):
        updates[0, 0, 0, 0] = data[1, 0, 3, 1] = math.nan
    function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[operation]
    number = elements.OPERATIONS.index(operation)
    new, want, wrong = data.copy(), data.copy(), np.zeros(1, np.int64)
    fixed = (indices.reshape(-1), 4, updates.reshape(-1), number, wrong)
    elements.scatter_combined[dtype](new.reshape(-1), 5, 2, *fixed, 0, 6)
    for place in np.ndindex(*indices.shape):
        target = (*place[:2], indices[place], place[3])
        want[target] = function(want[target], updates[place])
    np.testing.assert_array_equal(new, want)
    rows, lines = np.array([1, 0, 1]), drawn(4, (3, 10), dtype)
    new, want = data.copy().reshape(-1, 10), data.copy().reshape(-1, 10)
    elements.combine_rows[dtype](new.reshape(-1), rows, 10, lines.reshape(-1), number)
    function.at(want, rows, lines)
    np.testing.assert_array_equal(new, want)


@pytest.mark.parametrize("index", [5, -6, 1 << 62, -(1 << 63)])
def test_indices_out_of_range_are_not_used(index: int) -> None:
    data, indices, updates = along((3,), 5, 4, (), "uint32")
    indices[1, 2] = index
    out, wrong = np.zeros_like(updates), np.zeros(1, np.int64)
    elements.gather["uint32"](data.reshape(-1), 5, 1, indices.reshape(-1), 4, out.reshape(-1), wrong, 0, 3)
    assert wrong[0] == 1
    wrong[0], new = 0, data.copy()
    elements.scatter["uint32"](new.reshape(-1), 5, 1, indices.reshape(-1), 4, updates.reshape(-1), wrong, 0, 3)
    assert wrong[0] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, ml_dtypes.bfloat16, np.complex64, np.complex128, object])
def test_operators_of_many_elements(dtype: Any) -> None:
    data, indices, updates = along((40,), 50, 60, (), np.int64)
    data, updates = data.astype(dtype), updates.astype(dtype)
    want = np.take_along_axis(data, indices, 1)
    np.testing.assert_array_equal(indexing.gather_elements(1)(data, indices), want)
    np.testing.assert_array_equal(indexing.gather_elements(1)(data, indices.astype(np.int32)), want)
    np.testing.assert_array_equal(indexing.gather_elements(0)(data.T, indices.T), want.T)
    want = data.copy()
    for place in np.ndindex(*indices.shape):
        want[place[0], indices[place]] = updates[place]
    np.testing.assert_array_equal(indexing.scatter_elements(1)(data, indices, updates), want)
    for k in (-45, -3, 0, 2, 60):
        for upper in (0, 1):
            zero = "" if dtype is object else 0
            mask = np.tri(40, 50, k - 1 if upper else k, dtype=bool)
            want = np.where(mask, zero if upper else data, data if upper else zero)
            got = trilu(upper)(np.stack([data] * 3), np.array(k))
            np.testing.assert_array_equal(got, np.stack([want] * 3).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("reduction", elements.OPERATIONS)
def test_reductions_of_many_elements(reduction: str, dtype: Any) -> None:
    data, indices, updates = along((40,), 50, 60, (), np.int64)
    data, updates = (data % 3).astype(dtype), (updates % 3).astype(dtype)
    function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    want = data.astype(np.float32 if dtype is np.float16 else dtype)
    with np.errstate(all="ignore"):
        function.at(want, (np.arange(40)[:, None], indices), updates.astype(want.dtype))
        np.testing.assert_array_equal(indexing.scatter_elements(1, reduction)(data, indices, updates), want.astype(dtype))
        want = data.astype(want.dtype)
        function.at(want, (indices[:, 0] % 40,), updates[:, :50].astype(want.dtype))
        got = indexing.scatter_nd(reduction)(data, indices[:, :1] % 40 - 40, updates[:, :50])
        np.testing.assert_array_equal(got, want.astype(dtype))


@pytest.mark.parametrize("index", [50, -51])
def test_an_index_out_of_range_among_many(index: int) -> None:
    data, indices, updates = along((40,), 50, 60, (), np.float32)
    indices[3, 4] = index
    before = data.copy()
    for call in (indexing.gather_elements(1), indexing.scatter_elements(1), indexing.scatter_elements(1, "add")):
        with pytest.raises(InvalidValueError, match=rf"indices holds \[{index}\]; allowed: -50 to 49"):
            call(data, indices, updates) if call.__qualname__.startswith("scatter") else call(data, indices)
    for reduction in ("none", "max"):
        with pytest.raises(InvalidValueError, match=r"outside of the shape \[40\]"):
            indexing.scatter_nd(reduction)(data, np.full((40, 1), index), updates[:, :50])
    np.testing.assert_array_equal(data, before)


@needs_jit
def test_gather_of_many_rows() -> None:
    data = np.random.default_rng(0).normal(size=(300, 64)).astype(np.float32)
    indices = np.random.default_rng(1).integers(-300, 300, (150, 150))
    np.testing.assert_array_equal(indexing.gather(0)(data, indices), data[indices])
    indices[7, 7] = 300
    with pytest.raises(InvalidValueError, match=r"indices holds \[300\]"):
        indexing.gather(0)(data, indices)


# Ranking

SPECIAL = [0.0, -0.0, math.inf, -math.inf, 1e-45, -1e-45, 1.0, 1.0, -2.5]


def ranked(row: np.ndarray, largest: bool) -> list[int]:
    """All places in order; NaN is larger than all numbers."""
    keys = [(math.isnan(value), 0 if math.isnan(value) else value) for value in row.tolist()]
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=largest)  # which leaves equal ones in order either way


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("kind", ["few values", "special", "nan", "rising", "falling", "int64"])
def test_top(kind: str, largest: bool) -> None:
    rng, size = np.random.default_rng(5), 150
    rows = {
        "few values": rng.integers(0, 9, (4, size)).astype(np.float32),
        "special": rng.choice(SPECIAL, (4, size)).astype(np.float32),
        "nan": rng.choice([*SPECIAL, math.nan, -math.nan], (4, size)).astype(np.float32),
        "rising": np.arange(4.0 * size, dtype=np.float32).reshape(4, size),
        "falling": -np.arange(4.0 * size, dtype=np.float32).reshape(4, size),
        "int64": rng.choice([-(1 << 63), (1 << 63) - 1, 0, -1, 1 << 53, (1 << 53) + 1], (4, size)),
    }[kind]
    for k in (1, 2, 7, 64, size):
        indices = np.zeros((4, k), np.int64)
        ranking.top[rows.dtype.name](rows.reshape(-1), size, k, largest, indices.reshape(-1), 0, 4)
        for row, found in zip(rows, indices, strict=True):
            assert found.tolist() == ranked(row, largest)[:k], k


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i4", "u4", "i8", "u8", "bfloat16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_top_k_of_many(axis: int, dtype: str) -> None:
    x = np.random.default_rng(6).integers(0, 50, (60, 70)).astype(np.dtype(dtype))
    for largest in (0, 1):
        values, indices = _sorting.top_k(axis, largest)(x, np.array([4]))
        lines = x.T if axis == 0 else x
        want = np.array([ranked(line.astype(np.float64), bool(largest))[:4] for line in lines])
        np.testing.assert_array_equal(indices, want.T if axis == 0 else want)
        np.testing.assert_array_equal(values, np.take_along_axis(x, indices, axis))


@pytest.mark.parametrize("limits", [(3, 0.5, None), (40, 0.2, 0.3), (1, 0.0, -1.0), (40, 0.0, 2.0)], ids=str)
@pytest.mark.parametrize("centred", [False, True], ids=["corners", "centres"])
def test_kept_boxes(centred: bool, limits: Any) -> None:
    most, overlap, least = limits[0], float(np.float32(limits[1])), limits[2]
    rng = np.random.default_rng(7)
    boxes = rng.integers(0, 9, (2, 40, 4)).astype(np.float32)
    boxes[0, :3, 0], boxes[1, 5] = math.nan, math.inf
    scores = rng.integers(0, 9, (2, 3, 40)).astype(np.float32) / 8
    scores[0, 0, ::7] = math.nan
    kept, numbers = np.zeros(6 * most, np.int64), np.zeros(6, np.int64)
    fixed = (40, 3, overlap, least is not None, least or 0.0, centred, most, kept, numbers)
    with np.errstate(all="ignore"):
        ranking.keep_boxes(boxes.reshape(-1), scores.reshape(-1), *fixed, 0, 6)
    for unit in range(6):
        want = wanted_boxes(boxes[unit // 3], scores[unit // 3, unit % 3], most, overlap, least, centred)
        assert kept[unit * most : unit * most + numbers[unit]].tolist() == want, unit
    listed = np.zeros((int(numbers.sum()), 3), np.int64)
    ranking.list_boxes(kept, numbers, most, 3, listed)
    assert listed.tolist() == [[unit // 3, unit % 3, box] for unit in range(6) for box in kept[unit * most :][: numbers[unit]]]


def wanted_boxes(boxes: Any, scores: Any, most: int, overlap: float, least: float | None, centred: bool) -> list[int]:
    candidates = [box for box in range(len(boxes)) if least is None or scores[box] > least]
    candidates.sort(key=lambda box: math.inf if math.isnan(scores[box]) else -scores[box])
    kept: list[int] = []
    with np.errstate(all="ignore"):
        for box in candidates:
            if len(kept) < most and not any(shares(boxes[box], boxes[other], overlap, centred) for other in kept):
                kept.append(box)
    return kept


def shares(first: Any, second: Any, overlap: float, centred: bool) -> bool:
    ends = []
    for box in (first, second):
        low, high = (box[:2] - box[2:] / 2, box[:2] + box[2:] / 2) if centred else (np.minimum(*pair(box)), np.maximum(*pair(box)))
        ends.append((low, high))
    (low_1, high_1), (low_2, high_2) = ends
    sides = np.minimum(high_1, high_2) - np.maximum(low_1, low_2)
    if not (sides > 0).all():
        return False
    common = np.prod(sides)
    return bool(common / (np.prod(high_1 - low_1) + np.prod(high_2 - low_2) - common) > np.float32(overlap))


def pair(box: Any) -> tuple[Any, Any]:
    return box[:2], box[2:]


# Resampling

ATTRIBUTES: dict[str, Any] = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor", "cubic_coeff_a": -0.75}
REST: dict[str, Any] = {"exclude_outside": 0, "extrapolation_value": 0.0}


@pytest.mark.parametrize("word", resampling.pick)
@pytest.mark.parametrize("columns", [None, [0, 0, 1, 1, 2, 2, 3, 3], [3, 0, 2]], ids=["all columns", "twice", "three columns"])
@pytest.mark.parametrize("rows", [None, [0, 0, 1, 2, 2], [2]], ids=["all rows", "five rows", "one row"])
def test_pick(rows: Any, columns: Any, word: str) -> None:
    x = drawn(8, (2, 3, 4), word)
    want = x if rows is None else x[:, rows]
    want = want if columns is None else want[:, :, columns]
    out = np.zeros(want.shape, word)
    tables = [np.empty((0, 0), np.int64) if table is None else np.array([table]) for table in (rows, columns)]
    resampling.pick[word](x.reshape(-1), 3, 4, *tables, out.reshape(-1), 0, 2 * want.shape[1])
    np.testing.assert_array_equal(out, want)


RESIZED: list[tuple[str, tuple[int, ...], list[float]]] = [
    ("up", (2, 3, 20, 30), [1, 1, 2, 2]),
    ("down", (1, 3, 60, 50), [1, 1, 0.4, 0.7]),
    ("one up, one down", (1, 3, 60, 50), [1, 1, 0.4, 1.7]),
    ("height", (1, 3, 40, 50), [1, 1, 1.3, 1]),
    ("width", (2, 5, 600), [1, 1, 1.5]),
    ("channels last", (1, 30, 40, 3), [1, 2, 1.5, 1]),
    ("three axes", (1, 2, 10, 12, 14), [1, 1, 2, 1.5, 0.7]),
    ("all axes", (6, 10, 12, 14), [2, 0.5, 1.5, 0.7]),
]


@needs_jit
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.uint8, np.float64, np.int16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic", "antialias"])
@pytest.mark.parametrize(("shape", "scales"), [row[1:] for row in RESIZED], ids=[row[0] for row in RESIZED])
def test_resize_by_kernel(monkeypatch: pytest.MonkeyPatch, shape: Any, scales: Any, mode: str, dtype: Any) -> None:
    """The kernels give what NumPy gives, but for a rounding."""
    x = np.random.default_rng(9).uniform(0, 255, shape).astype(dtype)
    attributes: dict[str, Any] = {**ATTRIBUTES, **REST, "mode": "linear" if mode == "antialias" else mode, "antialias": mode == "antialias"}
    factors = np.array(scales, np.float32)
    got = Resize(**attributes)(x, None, factors)
    monkeypatch.setattr(_resampling, "KERNEL_FROM", 1 << 60)
    want = Resize(**attributes)(x, None, factors)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if mode == "nearest" or dtype in (np.float64, np.int16):
        np.testing.assert_array_equal(got, want)
    elif dtype is np.uint8:
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
        assert (got != want).mean() < 1e-3
    else:
        step = {np.float32: 2.0**-22, np.float16: 2.0**-10}.get(dtype, 2.0**-7)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=step, atol=255 * 2.0**-22)


@needs_jit
def test_resize_keeps_nan_and_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(10).normal(size=(1, 2, 40, 40)).astype(np.float32)
    x[0, 0, 3, 3:5], x[0, 1, 20] = math.nan, math.inf
    call, scales = upsample(mode="linear"), np.array([1, 1, 2, 2], np.float32)
    with np.errstate(invalid="ignore"):
        got = call(x, scales)
        monkeypatch.setattr(_resampling, "KERNEL_FROM", 1 << 60)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(call(x, scales)))


def test_resize_of_one_shape_and_other_scales() -> None:
    """What is kept for a shape does not serve other scales."""
    x, call = np.arange(6, dtype=np.float32).reshape(2, 3), Resize(**ATTRIBUTES, **REST, mode="nearest")
    for scales in ([2, 2], [1, 3], [2, 2]):
        assert call(x, None, np.array(scales, np.float32)).shape == (2 * scales[0], 3 * scales[1])
    assert call(x, None, None, np.array([2, 2])).shape == (2, 2)


# What is known beforehand

INT = np.int64
X = np.arange(24).reshape(2, 3, 4)
PREPARED: list[tuple[str, Any, list[Any]]] = [
    ("slice", movement.Slice(), [[0], [2], [-1]]),
    ("slice from behind", movement.Slice(), [[-3, 0], [1 << 62, 1], [2, 1], [2, 1]]),
    ("slice without axes", movement.Slice(), [[1, 1], [5, 2]]),
    ("slice of nothing", movement.Slice(), [[], []]),
    ("unsqueeze", Unsqueeze(), [[0]]),
    ("unsqueeze at the end", Unsqueeze(), [[-1]]),
    ("unsqueeze twice", Unsqueeze(), [[3, 0]]),
    ("reshape", Reshape(), [[6, -1]]),
    ("pad", Pad(), [[1, 0, 0, 0, 0, 2]]),
    ("reflect", Pad("reflect"), [[1, 2, 0, 0, 2, 3]]),
    ("reflect more than there is", Pad("reflect"), [[5, 2, 0, 0, 9, 3]]),
    ("edge", Pad("edge"), [[1, 2, 0, 0, 9, 3]]),
    ("wrap", Pad("wrap"), [[1, 2, 0, 0, 2, 9]]),
    ("crop and pad", Pad("reflect"), [[0, -1, 2, 0, 1, -1]]),
]


@pytest.mark.parametrize(("function", "inputs"), [row[1:] for row in PREPARED], ids=[row[0] for row in PREPARED])
def test_prepared(function: Callable[..., Any], inputs: list[Any]) -> None:
    known = [np.array(values, INT) for values in inputs]
    call = function.prepared(..., *known)  # type: ignore[attr-defined]
    for data in (X, X[:, ::-1], X.astype(np.float32)):
        np.testing.assert_array_equal(call(data, *known), function(data, *known))
        assert call(data, *known).dtype == data.dtype


WRONG: list[tuple[str, Any, list[Any], str]] = [
    ("an axis too many", movement.Slice(), [[0], [2], [3]], "axes are"),
    ("an axis too many, new", Unsqueeze(), [[4]], "axis is 4"),
    ("not of size 1", Squeeze(), [[1]], "axes are"),
    ("other elements", Reshape(), [[5, 5]], "shape is"),
    ("pads missing", Pad(), [[1, 2]], "pads are"),
]


@pytest.mark.parametrize(("function", "inputs", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_prepared_errors(function: Callable[..., Any], inputs: list[Any], message: str) -> None:
    known = [np.array(values, INT) for values in inputs]
    call = function.prepared(..., *known)  # type: ignore[attr-defined]
    for each in (function, call):
        with pytest.raises(InvalidValueError, match=message):
            each(X, *known)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (movement.Slice(), [..., [2]]),
        (movement.Slice(), [[0], [2], ...]),
        (movement.Slice(), [[2], [0], [0], [-1]]),
        (movement.Slice(), [[0, 1], [2]]),
        (movement.Slice(), [[0], [2], []]),
        (Reshape(), [[0, -1]]),
        (Squeeze(), []),
        (Unsqueeze(), [...]),
        (Pad(), [...]),
    ],
    ids=lambda value: type(value).__name__ if callable(value) else str(value),
)
def test_nothing_is_prepared(function: Callable[..., Any], inputs: list[Any]) -> None:
    known = [each if each is ... else np.array(each, INT) for each in inputs]
    assert function.prepared(..., *known) is None  # type: ignore[attr-defined]


def test_kernels_from() -> None:
    """Few elements are NumPy's."""
    data, indices, updates = along((3,), 5, 4, (), np.float32)
    assert _elements.gathered(data, indices, 1) is None
    assert not _elements.scattered(data, indices, updates, 1, None)
    assert _elements.triangle(data, 0, True) is None
