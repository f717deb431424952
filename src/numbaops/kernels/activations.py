"""Activations and their like over arrays of float32: one loop for all, of the functions in ``numbaops.kernels.functions``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from numbaops.kernels.functions import chosen, erf, exp, expm1_of_negative, multiply_add, normal_distribution, quotient, sigmoid, size_of
from numbaops.kernels.functions import softplus as softplus_of
from numbaops.kernels.functions import tanh as tanh_of
from numbaops.runtime.jit import kernel

AVAILABLE = not numba.config.DISABLE_JIT
"""Whether the functions are there; without the JIT, they do not run."""

Map = Callable[[Any, float, float, Any], None]

_FUNCTION = "float32(float32, float32, float32)"  # of an element and two parameters, which most ignore
_ZERO, _ONE, _TWO = map(np.float32, (0, 1, 2))
_TANH_LINEAR, _TANH_CUBIC = np.float32(1.59576912), np.float32(0.0713548163)
"""Twice ``sqrt(2 / pi)``, and that times 0.044715."""


def make_map(function: Callable[[Any, Any, Any], Any]) -> Map:
    """A function of an element and two parameters, over an array.

    Args:
        function: of float32; each has a name of its own.

    Returns:
        ``map_all(x, alpha, beta, out)``.
    """

    @kernel("void(float32[::1], float64, float64, float32[::1])", key=(function.__name__,))
    def map_all(x: Any, alpha: float, beta: float, out: Any) -> None:
        a, b = np.float32(alpha), np.float32(beta)
        for i in range(out.size):
            out[i] = function(x[i], a, b)

    return map_all


@kernel(_FUNCTION)
def _celu(x: Any, alpha: Any, beta: Any) -> Any:
    """Celu, for a positive alpha."""
    below = np.float32(alpha * expm1_of_negative(quotient(x, alpha)))
    return chosen(x > _ZERO, x, below)


@kernel(_FUNCTION)
def _elu(x: Any, alpha: Any, beta: Any) -> Any:
    """``beta`` times Elu."""
    below = np.float32(alpha * expm1_of_negative(x))
    return np.float32(beta * chosen(x > _ZERO, x, below))


@kernel(_FUNCTION)
def _erf(x: Any, alpha: Any, beta: Any) -> Any:
    return erf(x)


@kernel(_FUNCTION)
def _exponential(x: Any, alpha: Any, beta: Any) -> Any:
    return exp(x)


@kernel(_FUNCTION)
def _gelu(x: Any, alpha: Any, beta: Any) -> Any:
    return np.float32(x * normal_distribution(x))


@kernel(_FUNCTION)
def _gelu_by_tanh(x: Any, alpha: Any, beta: Any) -> Any:
    # (1 + tanh(u)) / 2 is the sigmoid of 2 * u
    twice = np.float32(x * multiply_add(np.float32(x * x), _TANH_CUBIC, _TANH_LINEAR))
    return np.float32(x * sigmoid(twice))


@kernel(_FUNCTION)
def _hard_sigmoid(x: Any, alpha: Any, beta: Any) -> Any:
    y = np.float32(np.float32(alpha * x) + beta)
    y = chosen(y > _ONE, _ONE, y)
    return chosen(y < _ZERO, _ZERO, y)


@kernel(_FUNCTION)
def _hard_swish(x: Any, alpha: Any, beta: Any) -> Any:
    return np.float32(x * _hard_sigmoid(x, alpha, beta))


@kernel(_FUNCTION)
def _leaky_relu(x: Any, alpha: Any, beta: Any) -> Any:
    return chosen(x < _ZERO, np.float32(alpha * x), x)


@kernel(_FUNCTION)
def _mish(x: Any, alpha: Any, beta: Any) -> Any:
    # tanh(log(1 + e)) is e * (e + 2) / (e * (e + 2) + 2); for a large e both sides are divided by its square
    e = exp(-size_of(x))
    below = np.float32(e * np.float32(e + _TWO))
    above = np.float32(_ONE + np.float32(_TWO * e))
    dividend = chosen(x < _ZERO, below, above)
    rest = np.float32(_TWO * chosen(x < _ZERO, _ONE, np.float32(e * e)))
    return np.float32(x * quotient(dividend, np.float32(dividend + rest)))


@kernel(_FUNCTION)
def _relu(x: Any, alpha: Any, beta: Any) -> Any:
    return chosen(x < _ZERO, _ZERO, x)


@kernel(_FUNCTION)
def _sigmoid(x: Any, alpha: Any, beta: Any) -> Any:
    return sigmoid(x)


@kernel(_FUNCTION)
def _softplus(x: Any, alpha: Any, beta: Any) -> Any:
    return softplus_of(x)


@kernel(_FUNCTION)
def _softsign(x: Any, alpha: Any, beta: Any) -> Any:
    return quotient(x, np.float32(_ONE + size_of(x)))


@kernel(_FUNCTION)
def _swish(x: Any, alpha: Any, beta: Any) -> Any:
    return np.float32(x * sigmoid(np.float32(alpha * x)))


@kernel(_FUNCTION)
def _tanh(x: Any, alpha: Any, beta: Any) -> Any:
    return tanh_of(x)


celu, elu, error_function, exponential, gelu, gelu_by_tanh = map(make_map, (_celu, _elu, _erf, _exponential, _gelu, _gelu_by_tanh))
hard_sigmoid, hard_swish, leaky_relu, logistic, mish = map(make_map, (_hard_sigmoid, _hard_swish, _leaky_relu, _sigmoid, _mish))
relu, softplus, softsign, swish, tanh = map(make_map, (_relu, _softplus, _softsign, _swish, _tanh))


@kernel("void(uint16[::1], int64, uint16[::1])")
def relu_codes(x: Any, infinity: int, out: Any) -> None:
    """Relu of 16-bit floats, given as their bits; ``infinity`` has those of minus infinity, beyond which there is NaN."""
    sign, last = np.uint16(0x8000), np.uint16(infinity)
    for i in range(out.size):
        code = x[i]
        out[i] = np.uint16(0) if (code >= sign) & (code <= last) else code
