"""What classifiers and regressors of ai.onnx.ml share: scores of samples, their transforms, labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from numbaops.errors import InvalidTypeError, InvalidValueError

Array = npt.NDArray[Any]

Labels = list[int] | list[str]


def samples(x: Array) -> Array:
    """The input as (samples, features): a tensor of rank 1 is one sample.

    Raises:
        InvalidTypeError: it holds no numbers.
        InvalidValueError: its rank is neither 1 nor 2.
    """
    if x.ndim not in (1, 2):
        raise InvalidValueError(f"the input has the shape {list(x.shape)}; allowed: [samples, features] and [features]")
    if x.dtype.kind in "OUSbc":
        raise InvalidTypeError(f"the input has element type {x.dtype}; allowed: floats and integers")
    return x.reshape(1, -1) if x.ndim == 1 else x


def computed(x: Array) -> Array:
    """Samples in the type that models compute in: float for float and float16, else double."""
    return x.astype(np.promote_types(x.dtype, np.float32), copy=False)


def doubles(values: Any) -> Array:
    """Numbers as double, which holds float16, float and int32 as they are."""
    return np.asarray(values, dtype=np.float64)


def matrix(values: Sequence[float], rows: int, what: str) -> Array:
    """A flat attribute as a matrix of so many rows.

    Raises:
        InvalidValueError: the number of elements is no multiple of ``rows``.
    """
    if rows <= 0 or len(values) % rows:
        raise InvalidValueError(f"{what} has {len(values)} elements; allowed: a multiple of {rows}", attribute=what)
    return np.array(values, np.float32).reshape(rows, -1)


def chosen_labels(ints: Sequence[int] | None, strings: Sequence[str] | None) -> Labels:
    """The class labels, of which a node gives one kind."""
    return list(strings) if strings else list(ints or [])


def as_labels(classes: Array, labels: Labels) -> Array:
    """The labels of classes, given by number, as the output has them."""
    table = np.array(labels, object if labels and isinstance(labels[0], str) else np.int64)
    if classes.size and int(classes.max()) >= table.size:
        raise InvalidValueError(f"there are {table.size} class labels for {int(classes.max()) + 1} classes; allowed: one each")
    return table[classes]


def _logistic(scores: Array) -> Array:
    # of the absolute value, which cannot overflow
    decay = np.exp(-np.abs(scores))
    return np.where(scores < 0, decay, 1.0) / (1.0 + decay)


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _softmax_zero(scores: Array) -> Array:
    """Softmax of the scores that are not zero; the others stay it. A row of zeros becomes halves, as onnx.reference has it."""
    powers = np.where(np.abs(scores) > 1e-7, np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf)), 0.0)
    total = powers.sum(axis=1, keepdims=True)
    return np.where(total == 0, 0.5, powers / np.where(total == 0, 1.0, total))


def _probit(scores: Array) -> Array:
    """The quantile of the normal distribution, by Winitzki's approximation of the error function as in both witnesses; 0 at 0 and 1."""
    x = 2 * scores - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        log = np.log((1 - x) * (1 + x))
        half = 2 / (np.pi * 0.147) + 0.5 * log
        quantile = np.sqrt(2) * np.sign(x) * np.sqrt(np.sqrt(half * half - log / 0.147) - half)
    return np.where(np.abs(x) == 1, 0.0, quantile)


_TRANSFORMS: Mapping[str, Callable[[Array], Array]] = {
    "NONE": lambda scores: scores,
    "SOFTMAX": _softmax,
    "LOGISTIC": _logistic,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}

TRANSFORM_NAMES = tuple(_TRANSFORMS)
"""In the order in which TreeEnsemble numbers them."""


def check_transform(name: str) -> None:
    """Refuse a ``post_transform`` that there is not."""
    if name not in _TRANSFORMS:
        raise InvalidValueError(f"post_transform is {name!r}; allowed: {', '.join(_TRANSFORMS)}", attribute="post_transform")


def transformed(scores: Array, name: str) -> Array:
    """Scores (samples, classes or targets) after the ``post_transform``, in double."""
    check_transform(name)
    return _TRANSFORMS[name](scores)


def mirrored(score: Array) -> Array:
    """The scores of two classes where only the second has one: (samples, 1) becomes (samples, 2)."""
    return np.concatenate([-score, score], axis=1)
