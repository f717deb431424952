"""Element-wise functions of one tensor: mathematics, tests and activations (families ``onnx/defs/math`` and ``onnx/defs/nn``).

The formulas are those of https://onnx.ai/onnx/operators/. They are written so that they neither overflow nor lose digits
where the result does not; a NaN gives NaN. Where they treat both signs apart they add a part for each, of which one is 0:
``numpy.where`` takes ten times as long on mixed signs, whose branches nobody predicts. For large tensors of float32, and of 16-bit
floats, kernels serve: ``_maps``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from numbaops.casting.steps import QUIET
from numbaops.errors import InvalidValueError
from numbaops.ops._erf import erf
from numbaops.ops._legacy import with_consumed_inputs
from numbaops.ops._maps import mapped_ufunc, mapping, relu_of_halves, rounding_once
from numbaops.ops._precision import check_same_type, narrowed, widened
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf


@mapping("error_function")
def error_function(x: Array) -> Array:
    """Erf; of integers, which version 9 allows, the integer part."""
    return erf(x if x.dtype.kind == "f" else x.astype(np.float64))


def is_inf(detect_negative: int = 1, detect_positive: int = 1) -> Callable[[Array], Array]:
    """IsInf: whether an element is an infinity of one of the signs asked for."""
    if detect_negative and detect_positive:
        return np.isinf
    if detect_negative:
        return np.isneginf
    return np.isposinf if detect_positive else _nowhere


def _nowhere(x: Array) -> Array:
    return np.zeros(x.shape, np.bool_)


@mapping("relu", halves=relu_of_halves)
def relu(x: Array) -> Array:
    """Relu: max(x, 0)."""
    y: Array = np.maximum(x, x.dtype.type(0))
    return y


@mapping("leaky_relu", lambda alpha=0.01: (alpha, 0.0))
def leaky_relu(x: Array, alpha: float = 0.01) -> Array:
    """LeakyRelu: x, and alpha * x below 0."""
    y: Array = np.maximum(x, alpha * x) if 0 < alpha <= 1 else np.maximum(x, 0) + alpha * np.minimum(x, 0)
    return y


@mapping("elu", lambda alpha=1.0: (alpha, 1.0))
def elu(x: Array, alpha: float = 1.0) -> Array:
    """Elu: x, and alpha * (exp(x) - 1) below 0."""
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0))


@mapping("elu", lambda alpha, gamma: (alpha, gamma))
def selu(x: Array, alpha: float, gamma: float) -> Array:
    """Selu: gamma * x, and gamma * alpha * (exp(x) - 1) up to 0."""
    return gamma * np.maximum(x, 0) + gamma * alpha * np.expm1(np.minimum(x, 0))


@mapping("celu", lambda alpha=1.0: (alpha, 0.0) if alpha > 0 else None)
def celu(x: Array, alpha: float = 1.0) -> Array:
    """Celu: max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    if alpha == 0:
        raise InvalidValueError("alpha is 0; allowed: any other number", attribute="alpha")
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha)


def gelu(approximate: str = "none") -> Callable[[Array], Array]:
    """Gelu: x times the normal distribution function of x, or an approximation of that by tanh."""
    if approximate not in _GELU:
        raise InvalidValueError(f"approximate is {approximate!r}; allowed: {', '.join(_GELU)}", attribute="approximate")
    return _GELU[approximate]


@mapping("gelu")
def _gelu(x: Array) -> Array:
    y: Array = 0.5 * x * (1 + erf(x * math.sqrt(0.5)))
    return y


@mapping("gelu_by_tanh")
def _gelu_by_tanh(x: Array) -> Array:
    with np.errstate(over="ignore"):
        y: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return y


_GELU = {"none": _gelu, "tanh": _gelu_by_tanh}


@mapping("hard_sigmoid", lambda alpha=0.2, beta=0.5: (alpha, beta))
def hard_sigmoid(x: Array, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """HardSigmoid: alpha * x + beta, between 0 and 1."""
    return np.maximum(0, np.minimum(1, alpha * x + beta))


@mapping("hard_swish", lambda: (1 / 6, 0.5))
def hard_swish(x: Array) -> Array:
    """HardSwish: x * HardSigmoid(x) with alpha 1/6 and beta 1/2."""
    return x * np.maximum(0, np.minimum(1, x * (1 / 6) + 0.5))


def _sigmoid(x: Array) -> Array:
    y: Array = QUIET.copy().run(_logistic, x)  # where exp overflows, the result is 0
    return y


def _logistic(x: Array) -> Array:
    y: Array = np.reciprocal(1 + np.exp(-x))
    return y


sigmoid = mapping("logistic")(_sigmoid)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


softplus = mapping("softplus")(_softplus)
exponential = mapped_ufunc(np.exp, "exponential")
tanh = mapped_ufunc(np.tanh, "tanh")


@mapping("mish")
def mish(x: Array) -> Array:
    """Mish: x * tanh(Softplus(x))."""
    return x * np.tanh(_softplus(x))


@mapping("swish", lambda alpha=1.0: (alpha, 0.0))
def swish(x: Array, alpha: float = 1.0) -> Array:
    """Swish: x * Sigmoid(alpha * x)."""
    return x * _sigmoid(alpha * x)


def swiglu(a: Array, b: Array, alpha: float = 1.0) -> Array:
    """SwiGLU: Swish(a) * b, for two tensors of one shape."""
    if a.shape != b.shape:
        raise InvalidValueError(f"the shapes are {list(a.shape)} and {list(b.shape)}; allowed: identical shapes")
    if a.dtype != b.dtype:
        raise InvalidValueError(f"the element types are {a.dtype} and {b.dtype}; allowed: identical dtypes")
    return _swiglu(a, b, alpha=alpha)


@rounding_once
def _swiglu(a: Array, b: Array, alpha: float) -> Array:
    y: Array = a * _sigmoid(alpha * a) * b
    return y


@mapping("softsign")
def softsign(x: Array) -> Array:
    """Softsign: x / (1 + |x|)."""
    y: Array = x / (1 + np.abs(x))
    return y


def thresholded_relu(x: Array, alpha: float = 1.0) -> Array:
    """ThresholdedRelu: x above alpha, else 0."""
    return np.where(widened(x) > alpha, x, x.dtype.type(0))


@rounding_once
def shrink(x: Array, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """Shrink: x nearer to 0 by bias if it is further from 0 than lambd, else 0; of integers, the integer part."""
    if x.dtype.kind in "iu":
        whole = np.int64 if float(bias).is_integer() else np.float64  # which would round integers beyond 2**53
        lower, upper = (x.astype(whole) + whole(bias), x.astype(whole) - whole(bias))
        return narrowed(np.where(x < -lambd, lower, np.where(x > lambd, upper, whole(0))).astype(np.int64), x.dtype)
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, x.dtype.type(0)))


def prelu(x: Array, slope: Array) -> Array:
    """PRelu: x, and slope * x below 0; slope is stretched to the shape of x."""
    check_same_type(x, slope)
    y = _prelu(x, slope)
    if y.shape != x.shape:
        raise InvalidValueError(f"slope has the shape {list(slope.shape)}; allowed: what broadcasts to {list(x.shape)}", attribute="slope")
    return y


def prelu_by_channel(x: Array, slope: Array) -> Array:
    """PRelu before 7: one slope, or one a channel, which is the second dimension."""
    if slope.ndim == 1 and slope.size != 1 and x.ndim > 2 and slope.size == x.shape[1]:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    elif slope.size == 1:
        slope = slope.reshape(())
    return prelu(x, slope)


@rounding_once
def _prelu(x: Array, slope: Array) -> Array:
    return np.where(x < 0, slope * x, x)


# Version 1 of these also has the attribute consumed_inputs, which the tables of versions leave out.
_PLAIN: tuple[tuple[str, Callable[..., Array], tuple[int, ...]], ...] = (
    ("Abs", np.absolute, (6, 13)),
    ("Acos", np.arccos, (7, 22)),
    ("Acosh", np.arccosh, (9, 22)),
    ("Asin", np.arcsin, (7, 22)),
    ("Asinh", np.arcsinh, (9, 22)),
    ("Atan", np.arctan, (7, 22)),
    ("Atanh", np.arctanh, (9, 22)),
    ("BitwiseNot", np.invert, (18,)),
    ("Ceil", np.ceil, (6, 13)),
    ("Celu", celu, (12, 28)),
    ("Cos", np.cos, (7, 22)),
    ("Cosh", np.cosh, (9, 22)),
    ("Elu", elu, (6, 22)),
    ("Erf", error_function, (9, 13)),
    ("Exp", exponential, (6, 13)),
    ("Floor", np.floor, (6, 13)),
    ("HardSigmoid", hard_sigmoid, (6, 22)),
    ("HardSwish", hard_swish, (14, 22)),
    ("IsNaN", np.isnan, (9, 13, 20)),
    ("LeakyRelu", leaky_relu, (6, 16)),
    ("Log", np.log, (6, 13)),
    ("Mish", mish, (18, 22)),
    ("Neg", np.negative, (6, 13)),
    ("Not", np.logical_not, (1,)),
    ("PRelu", prelu, (7, 9, 16)),
    ("PRelu", prelu_by_channel, (6,)),
    ("Reciprocal", np.reciprocal, (6, 13)),
    ("Relu", relu, (6, 13, 14)),
    ("Round", np.rint, (11, 22)),
    ("Selu", selu, (6, 22)),
    ("Shrink", shrink, (9,)),
    ("Sigmoid", sigmoid, (6, 13)),
    ("Sign", np.sign, (9, 13)),
    ("Sin", np.sin, (7, 22)),
    ("Sinh", np.sinh, (9, 22)),
    ("Softplus", softplus, (1, 22)),
    ("Softsign", softsign, (1, 22)),
    ("Sqrt", np.sqrt, (6, 13)),
    ("SwiGLU", swiglu, (28,)),
    ("Swish", swish, (24,)),
    ("Tan", np.tan, (7, 22)),
    ("Tanh", tanh, (6, 13)),
    ("ThresholdedRelu", thresholded_relu, (10, 22)),
)

# PRelu 6 has a slope for each channel, SwiGLU halves an axis.
_OF_AXES = ("PRelu", "SwiGLU")

LEAVES: tuple[Leaf, ...] = (
    *(Leaf(op_type, versions, function, elementwise=op_type not in _OF_AXES) for op_type, function, versions in _PLAIN),
    # the same at version 1, and with version 6's meaning
    *(Leaf(op_type, (1,), with_consumed_inputs(function), bind=True) for op_type, function, versions in _PLAIN if versions[0] == 6),
    Leaf("IsInf", (10, 20), is_inf, bind=True, elementwise=True),
    Leaf("Gelu", (20,), gelu, bind=True, elementwise=True),
)
