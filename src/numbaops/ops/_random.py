"""Random numbers: RandomNormal, RandomUniform, Bernoulli, Multinomial (``onnx/defs/generator``).

With a seed they draw from ``numpy.random.RandomState`` as onnx.reference does, so that both give the same numbers.

https://onnx.ai/onnx/operators/onnx__RandomNormal.html, onnx__RandomUniform.html, onnx__Bernoulli.html, onnx__Multinomial.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.dtypes import element_type, of_dtype
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.ops._precision import narrowed
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf


def _generator(seed: float | None) -> np.random.RandomState:
    return np.random.RandomState(None if seed is None or np.isnan(seed) else int(seed))


def random_normal(shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None) -> Array:
    """RandomNormal: normally distributed numbers."""
    return _floats(_generator(seed).standard_normal(tuple(shape)) * scale + mean, dtype)


def random_uniform(shape: Sequence[int], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None) -> Array:
    """RandomUniform: numbers from ``low`` on, below ``high``."""
    return _floats(_generator(seed).random_sample(tuple(shape)) * (high - low) + low, dtype)


def random_normal_like(x: Array, dtype: int | None = None, **attributes: Any) -> Array:
    """RandomNormalLike: RandomNormal of the shape, and unless another is given the type, of the input."""
    return random_normal(x.shape, _code_like(x) if dtype is None else dtype, **attributes)


def random_uniform_like(x: Array, dtype: int | None = None, **attributes: Any) -> Array:
    """RandomUniformLike: RandomUniform of the shape, and unless another is given the type, of the input."""
    return random_uniform(x.shape, _code_like(x) if dtype is None else dtype, **attributes)


def bernoulli(x: Array, dtype: int | None = None, seed: float | None = None) -> Array:
    """Bernoulli: 1 with the probability that the input gives, else 0."""
    chance = x.astype(np.float64)
    if not ((chance >= 0) & (chance <= 1)).all():
        raise InvalidValueError("the input has elements outside [0, 1]; allowed: probabilities")
    drawn = np.asarray(_generator(seed).binomial(1, chance))
    return drawn.astype(x.dtype if dtype is None else element_type(dtype).dtype)


def multinomial(x: Array, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Array:
    """Multinomial: in each row, numbers of classes, drawn by the logarithms of their chances, which need not sum up to 1."""
    if x.ndim != 2 or not x.shape[1]:
        raise InvalidValueError(f"the input has the shape {list(x.shape)}; allowed: [batch_size, class_size] with a class")
    rows, classes = x.shape
    wide = x.astype(np.float64)
    sums = np.exp(wide - wide.max(1, keepdims=True)).cumsum(1)
    # one search for all rows: row i has its sums from i to i + 1
    sums = sums / sums[:, -1:] + np.arange(rows)[:, None]
    wanted = _generator(seed).random_sample((rows, sample_size)) + np.arange(rows)[:, None]
    found: Array = np.searchsorted(sums.reshape(-1), wanted, "right") - np.arange(rows)[:, None] * classes
    return narrowed(np.minimum(found, classes - 1), element_type(dtype).dtype)


def _floats(numbers: Any, dtype: int) -> Array:
    kind = element_type(dtype)
    if kind.kind != "float":
        raise InvalidTypeError(f"dtype is {kind}; allowed: float16, bfloat16, float, double", attribute="dtype")
    return np.asarray(numbers).astype(kind.dtype)


def _code_like(x: Array) -> int:
    return of_dtype(x.dtype).code


LEAVES: tuple[Leaf, ...] = (
    Leaf("Bernoulli", (15, 22), bernoulli),
    Leaf("Multinomial", (7, 22), multinomial),
    Leaf("RandomNormal", (1, 22), random_normal),
    Leaf("RandomNormalLike", (1, 22), random_normal_like),
    Leaf("RandomUniform", (1, 22), random_uniform),
    Leaf("RandomUniformLike", (1, 22), random_uniform_like),
)
