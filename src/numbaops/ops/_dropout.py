"""Dropout, which keeps everything but in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._precision import working_dtype
from numbaops.ops.base import Array


def _dropped(x: Array, ratio: float, seed: int | None) -> tuple[Array, Array]:
    """Elements drawn as onnx.reference draws them, so that a seed means the same, and which ones were kept."""
    if not 0 <= ratio < 1:
        raise InvalidValueError(f"ratio is {ratio}; allowed: 0 <= ratio < 1", attribute="ratio")
    kept = np.asarray(np.random.RandomState(None if seed is None else seed % 2**32).uniform(0, 1, x.shape) >= ratio)
    wide = x.astype(dtype := working_dtype(x))
    wide *= dtype.type(1 / (1 - ratio))
    wide[~kept] = 0
    return wide.astype(x.dtype, copy=False), kept


def _all_kept(x: Array, outputs: int, dtype: Any) -> tuple[Array, ...]:
    return (x, np.ones(x.shape, dtype)) if outputs > 1 else (x,)


def dropout_1(x: Array, *, ratio: float, is_test: int, outputs: int, consumed_inputs: Sequence[int] = ()) -> tuple[Array, ...]:
    """Dropout 1 and 6, random unless ``is_test``; the mask has the type of the data.

    https://onnx.ai/onnx/operators/onnx__Dropout.html
    """
    if is_test:
        return _all_kept(x, outputs, x.dtype)
    y, kept = _dropped(x, ratio, None)
    return y, kept.astype(x.dtype)


def dropout_7(x: Array, *, ratio: float, outputs: int) -> tuple[Array, ...]:
    """Dropout 7, which only infers; the mask has the type of the data."""
    return _all_kept(x, outputs, x.dtype)


def dropout_10(x: Array, *, ratio: float, outputs: int) -> tuple[Array, ...]:
    """Dropout 10, which only infers."""
    return _all_kept(x, outputs, bool)


def dropout_12(
    x: Array, ratio: Array | None = None, training_mode: Array | None = None, *, outputs: int, seed: int | None = None
) -> tuple[Array, ...]:
    """Dropout 12 and later, random if ``training_mode`` is true."""
    if training_mode is None or not training_mode.item() or (ratio is not None and ratio.item() == 0):
        return _all_kept(x, outputs, bool)
    return _dropped(x, 0.5 if ratio is None else float(ratio.item()), seed)
