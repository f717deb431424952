"""The activation functions that RNN, GRU and LSTM name in their attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops.base import Array

Activation = Callable[[Array], Array]


class Named(NamedTuple):
    """An activation, and what it was made of: its name in lower case, alpha and beta, None where it has no such parameter."""

    function: Activation
    name: str
    alpha: float | None
    beta: float | None


class _Row(NamedTuple):
    """A function of x, alpha and beta, and the defaults of alpha and beta; None where the function has no such parameter."""

    function: Callable[[Array, Any, Any], Array]
    alpha: float | None = None
    beta: float | None = None


def _sigmoid(x: Array, alpha: Any, beta: Any) -> Array:
    y = np.negative(x)
    np.exp(y, out=y)
    y += 1
    return np.reciprocal(y, out=y)


# The defaults are those of the operators of the same name: of Affine, too, which was experimental. ScaledTanh was, and had none.
_ROWS = {
    "Relu": _Row(lambda x, alpha, beta: np.maximum(x, 0)),
    "Tanh": _Row(lambda x, alpha, beta: np.tanh(x)),
    "Sigmoid": _Row(_sigmoid),
    "Affine": _Row(lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "LeakyRelu": _Row(lambda x, alpha, beta: np.where(x >= 0, x, alpha * x), 0.01),
    "ThresholdedRelu": _Row(lambda x, alpha, beta: np.where(x >= alpha, x, 0), 1.0),
    "ScaledTanh": _Row(lambda x, alpha, beta: alpha * np.tanh(beta * x), 1.0, 1.0),
    "HardSigmoid": _Row(lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), 0.2, 0.5),
    "Elu": _Row(lambda x, alpha, beta: np.where(x >= 0, x, alpha * np.expm1(x)), 1.0),
    "Softsign": _Row(lambda x, alpha, beta: x / (1 + np.abs(x))),
    "Softplus": _Row(lambda x, alpha, beta: np.logaddexp(x, 0)),
}
_BY_LOWER_CASE = {name.lower(): row for name, row in _ROWS.items()}


def named_activations(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Named]:
    """The functions of that name, in any case; those that have an alpha or a beta take the next value, or their default.

    Raises:
        InvalidValueError: there is no such function.
    """
    rest_of_alphas, rest_of_betas = iter(alphas), iter(betas)
    return [_bound(name, rest_of_alphas, rest_of_betas) for name in names]


def _bound(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Named:
    row = _BY_LOWER_CASE.get(name.lower())
    if row is None:
        raise InvalidValueError(f"an activation is {name!r}; allowed: {', '.join(_ROWS)}", attribute="activations")
    function = row.function
    alpha = None if row.alpha is None else next(alphas, row.alpha)
    beta = None if row.beta is None else next(betas, row.beta)
    return Named(lambda x: function(x, alpha, beta), name.lower(), alpha, beta)
