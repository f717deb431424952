"""NonMaxSuppression: by a kernel, and with NumPy for other types than float, and where there is no JIT.

https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops.base import Array
from numbaops.runtime.threads import split

_BLOCK = 256
"""Candidates that are compared with each other at once by NumPy."""

_WORK = 64
"""Bytes that a box counts for when threads share classes: ordering and comparing it takes as long as moving them."""


def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int,
) -> Array:
    """NonMaxSuppression.

    Args:
        boxes: (batches, boxes, 4).
        scores: (batches, classes, boxes).
        max_output_boxes_per_class: one element of rank 0 or 1; left out or negative, it is 0.
        iou_threshold: one element; 0 by default.
        score_threshold: one element; by default no box is removed for its score. Both witnesses also remove a box that scores just
            the threshold.
        center_point_box: 0 for two corners (y1, x1, y2, x2), 1 for (x, y, width, height) with a centre.

    Returns:
        (selected boxes, 3): batch, class and box, by batch, by class and by falling score; of equal scores the first box wins.
    """
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3 or scores.shape[::2] != boxes.shape[:2]:
        raise InvalidValueError(
            f"boxes have the shape {list(boxes.shape)} and scores {list(scores.shape)}; allowed: [batches, boxes, 4] and "
            "[batches, classes, boxes]"
        )
    if center_point_box not in (0, 1):
        raise InvalidValueError(f"center_point_box is {center_point_box}; allowed: 0 and 1", attribute="center_point_box")
    most = int(_single(max_output_boxes_per_class, "max_output_boxes_per_class", 0))
    overlap = _single(iou_threshold, "iou_threshold", 0.0)
    least = _single(score_threshold, "score_threshold", None)
    if boxes.dtype == scores.dtype == np.float32 and most > 0 and scores.size:
        found = _by_kernel(boxes, scores, min(most, boxes.shape[1]), float(overlap), least, bool(center_point_box))
        if found is not None:
            return found
    selected: list[Array] = [np.empty((0, 3), np.int64)]
    for batch in range(boxes.shape[0] if most > 0 else 0):
        low, high = _corners(boxes[batch], bool(center_point_box))
        for number, values in enumerate(scores[batch]):
            candidates = np.arange(values.size) if least is None else np.flatnonzero(values > least)
            candidates = candidates[np.argsort(-values[candidates], kind="stable")]
            kept = _suppressed(low, high, candidates, most, overlap)
            selected.append(np.array([[batch, number, box] for box in kept], np.int64).reshape(-1, 3))
    return np.concatenate(selected)


def _by_kernel(boxes: Array, scores: Array, most: int, overlap: float, least: Any, centred: bool) -> Array | None:
    """The selected boxes; None without the JIT."""
    from numbaops.kernels import ranking

    if not ranking.COMPILED:
        return None
    batches, classes, count = scores.shape
    kept, numbers = np.empty(batches * classes * most, np.int64), np.empty(batches * classes, np.int64)
    given = np.ascontiguousarray(boxes).reshape(-1), np.ascontiguousarray(scores).reshape(-1)
    fixed = (*given, count, classes, overlap, least is not None, float(least or 0.0), centred, most, kept, numbers)
    keep: Any = ranking.keep_boxes
    split(lambda first, last: keep(*fixed, first, last), numbers.size, _WORK * count)
    out = np.empty((int(numbers.sum()), 3), np.int64)
    ranking.list_boxes(kept, numbers, most, classes, out)
    return out


def _single(value: Array | None, what: str, default: Any) -> Any:
    if value is None or not value.size:
        return default
    if value.size > 1:
        raise InvalidValueError(f"{what} has {value.size} elements; allowed: 1")
    return value.reshape(-1)[0]


def _corners(boxes: Array, center_point_box: bool) -> tuple[Array, Array]:
    """The lower and upper ends of the boxes, (2, boxes) each."""
    first, second = np.ascontiguousarray(boxes.T).reshape(2, 2, -1)
    if center_point_box:
        return first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


def _suppressed(low: Array, high: Array, candidates: Array, most: int, overlap: Any) -> list[int]:
    """The boxes that are kept, out of candidates in order of preference."""
    kept: list[int] = []
    for start in range(0, candidates.size, _BLOCK):
        block = candidates[start : start + _BLOCK]
        if kept:
            block = block[~_overlapping(low, high, np.array(kept), block, overlap).any(axis=0)]
        compatible = ~_overlapping(low, high, block, block, overlap)
        np.fill_diagonal(compatible, False)
        left = np.ones(block.size, np.bool_)
        while left.any():
            best = int(left.argmax())
            kept.append(int(block[best]))
            if len(kept) == most:
                return kept
            left &= compatible[best]
    return kept


def _overlapping(low: Array, high: Array, first: Array, second: Array, overlap: Any) -> Array:
    """Whether each of the first boxes and each of the second ones share more of their union than ``overlap``."""
    # take, and not an index among slices, whose result has its dimensions in another order in memory: 40 times slower to compare
    low_1, high_1, low_2, high_2 = (np.take(ends, boxes, 1) for boxes in (first, second) for ends in (low, high))
    sides = np.minimum(high_1[:, :, None], high_2[:, None]) - np.maximum(low_1[:, :, None], low_2[:, None])
    width, height = np.maximum(sides, 0, out=sides)
    shared = width * height
    area_1, area_2 = (np.prod(high - low, axis=0) for low, high in ((low_1, high_1), (low_2, high_2)))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = shared / (area_1[:, None] + area_2 - shared)
    return np.asarray((shared > 0) & (ratio > overlap))
