"""Functions of float32 for the loops of other kernels: no branches, so that LLVM makes vectors of them.

The value depends on the argument alone, whether LLVM takes it with others as a vector or by itself. Exponentials are those of a
remainder in the middle of a power of two; all else comes from them and polynomials, fitted such that the largest relative error on
their range is least. Errors in units of the last place, over a sample of all float32: exp 1, expm1 and sigmoid 2, tanh and erf 3.

Constants are float32 and integers int32, and each step is truncated: anything wider would halve the lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from numbaops.runtime.jit import kernel

_ONE_ARGUMENT = "float32(float32)"

_ZERO, _HALF, _ONE, _TWO, _THREE = map(np.float32, (0, 0.5, 1, 2, 3))

_SIGN, _SIZE, _UPPER = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0xFFFFF000)
_BIAS, _MANTISSA, _SHIFT = np.int32(127), np.int32(23), np.int32(1)

_PER_LOG2 = np.float32(1.44269504)
_LOG2, _LOG2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
"""The first has 9 bits: its products with the exponents of float32 are exact."""
_ROUNDING, _ROUNDING_BITS = np.float32(12582912), np.int32(0x4B400000)
"""Added to a number, it leaves the integer next to it in the lowest bits."""

_LEAST, _MOST = np.float32(-104), np.float32(89)
"""Beyond these, exp rounds to 0 and to infinity."""
_LEAST_OF_EXPM1 = np.float32(-20)
"""Below, expm1 rounds to -1."""
_MOST_OF_ERFC, _MOST_OF_NORMAL = np.float32(11), np.float32(15.5)
"""Above the first, erfc rounds to 0; above the second, so does the normal distribution of the negative."""
_ROOT_OF_HALF, _HALF_OF_ROOT_OF_HALF = np.float32(0.70710678), np.float32(0.35355339)

# (exp(r) - 1 - r) / r**2 for |r| up to log(2) / 2; 3.4e-9 of exp(r)
_E0, _E1, _E2, _E3, _E4 = map(np.float32, (0.50000001, 0.166665129, 0.0416661873, 0.00836959841, 0.00139517172))
# (artanh(w) / w - 1) / w**2 of w**2 up to 1/9; 4.6e-9 of artanh(w) / w
_L0, _L1, _L2, _L3 = map(np.float32, (0.333332066, 0.200108496, 0.139995697, 0.140122328))
# erf(t) / t of t**2 up to 1; 1.3e-9
_N0, _N1, _N2, _N3 = map(np.float32, (1.12837917, -0.376126258, 0.112835851, -0.0268538119))
_N4, _N5, _N6 = map(np.float32, (0.00518832756, -0.000801019251, 7.85385766e-05))
# (t + 3) * exp(t**2) * erfc(t) of (t - 3) / (t + 3) for t from 0 to 11; 3.1e-9
_F0, _F1, _F2, _F3, _F4 = map(np.float32, (1.07400691, -0.883394497, 0.59022824, -0.31046571, 0.119529978))
_F5, _F6, _F7, _F8, _F9 = map(np.float32, (-0.026841597, -0.00123147627, 0.0030819481, -0.000474026661, -0.000320511561))


@intrinsic  # type: ignore[untyped-decorator]
def multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once where the processor does that in one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.FloatType()
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number] * 3), "llvm.fmuladd.f32")
        return builder.call(function, arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def chosen(typing_context: Any, condition: Any, a: Any, b: Any) -> Any:
    """``a if condition else b``, of which LLVM makes no branch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return types.float32(types.boolean, types.float32, types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def quotient(typing_context: Any, a: Any, b: Any) -> Any:
    """``a / b`` without the exception that Python has for 0, which no vector could raise."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(*arguments)

    return types.float32(types.float32, types.float32), generate


@kernel(_ONE_ARGUMENT)
def size_of(x: Any) -> Any:
    """The absolute value."""
    return np.uint32(np.float32(x).view(np.uint32) & _SIZE).view(np.float32)


@kernel("float32(float32, float32)")
def with_sign(size: Any, x: Any) -> Any:
    """A number that is not negative, with the sign of another."""
    return np.uint32(np.float32(size).view(np.uint32) | np.uint32(np.float32(x).view(np.uint32) & _SIGN)).view(np.float32)


@kernel("float32(int32)")
def _power_of_two(exponent: Any) -> Any:
    return np.int32(np.int32(exponent + _BIAS) << _MANTISSA).view(np.float32)


@kernel(_ONE_ARGUMENT)
def _rounded_log2(x: Any) -> Any:
    """The exponent of the power of two next to ``exp(x)``, in the lowest bits of the result."""
    return multiply_add(x, _PER_LOG2, _ROUNDING)


@kernel("float32(float32, float32)")
def _remainder_expm1(x: Any, near: Any) -> Any:
    """``exp(r) - 1``, where ``r`` is what the power of two leaves of ``x``."""
    whole = np.float32(near - _ROUNDING)
    r = multiply_add(whole, -_LOG2_REST, multiply_add(whole, -_LOG2, x))
    y = multiply_add(multiply_add(multiply_add(multiply_add(_E4, r, _E3), r, _E2), r, _E1), r, _E0)
    return multiply_add(np.float32(y * r), r, r)


@kernel(_ONE_ARGUMENT)
def exp(x: Any) -> Any:
    """The exponential function."""
    small = x < _LEAST
    inside = chosen(small, _ZERO, x)  # an underflow would take a hundred times as long
    inside = chosen(inside > _MOST, _MOST, inside)
    near = _rounded_log2(inside)
    exponent = np.int32(np.float32(near).view(np.int32) - _ROUNDING_BITS)
    half = np.int32(exponent >> _SHIFT)  # a power of two that float32 lacks, e.g. of a subnormal result, is two that it has
    y = np.float32(np.float32(_remainder_expm1(inside, near) + _ONE) * _power_of_two(half))
    y = np.float32(y * _power_of_two(np.int32(exponent - half)))
    return chosen(small, _ZERO, y)


@kernel(_ONE_ARGUMENT)
def expm1_of_negative(x: Any) -> Any:
    """``exp(x) - 1`` for numbers up to 0."""
    inside = chosen(x < _LEAST_OF_EXPM1, _LEAST_OF_EXPM1, x)
    near = _rounded_log2(inside)
    power = _power_of_two(np.int32(np.float32(near).view(np.int32) - _ROUNDING_BITS))
    return multiply_add(power, _remainder_expm1(inside, near), np.float32(power - _ONE))


@kernel(_ONE_ARGUMENT)
def log1p_of_fraction(x: Any) -> Any:
    """``log(1 + x)`` for numbers from 0 to 1."""
    w = quotient(x, np.float32(x + _TWO))
    square = np.float32(w * w)
    y = multiply_add(multiply_add(multiply_add(_L3, square, _L2), square, _L1), square, _L0)
    return np.float32(_TWO * multiply_add(np.float32(y * square), w, w))


@kernel(_ONE_ARGUMENT)
def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    y = expm1_of_negative(np.float32(-_TWO * size_of(x)))
    return with_sign(quotient(-y, np.float32(_TWO + y)), x)


@kernel(_ONE_ARGUMENT)
def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``."""
    y = exp(-size_of(x))
    return quotient(chosen(x < _ZERO, y, _ONE), np.float32(_ONE + y))


@kernel(_ONE_ARGUMENT)
def _scaled_erf(square: Any) -> Any:
    """``erf(t) / t`` of ``t**2`` up to 1."""
    y = multiply_add(multiply_add(multiply_add(_N6, square, _N5), square, _N4), square, _N3)
    return multiply_add(multiply_add(multiply_add(y, square, _N2), square, _N1), square, _N0)


@kernel(_ONE_ARGUMENT)
def _scaled_erfc(t: Any) -> Any:
    """``exp(t**2) * (1 - erf(t))`` for numbers from 0 to 11."""
    w = quotient(_ONE, np.float32(t + _THREE))
    u = np.float32(np.float32(t - _THREE) * w)
    y = multiply_add(multiply_add(multiply_add(multiply_add(_F9, u, _F8), u, _F7), u, _F6), u, _F5)
    y = multiply_add(multiply_add(multiply_add(multiply_add(multiply_add(y, u, _F4), u, _F3), u, _F2), u, _F1), u, _F0)
    return np.float32(y * w)


@kernel(_ONE_ARGUMENT)
def erf(x: Any) -> Any:
    """The error function."""
    size = size_of(x)
    t = chosen(size > _MOST_OF_ERFC, _MOST_OF_ERFC, size)
    square = np.float32(t * t)
    near = np.float32(t * _scaled_erf(square))
    far = np.float32(_ONE - np.float32(exp(-square) * _scaled_erfc(t)))
    return with_sign(chosen(size < _ONE, near, far), x)


@kernel(_ONE_ARGUMENT)
def normal_distribution(x: Any) -> Any:
    """``(1 + erf(x / sqrt(2))) / 2``, with all its digits also far below 0."""
    size = size_of(x)
    size = chosen(size > _MOST_OF_NORMAL, _MOST_OF_NORMAL, size)
    square = np.float32(size * size)
    upper = np.uint32(np.float32(size).view(np.uint32) & _UPPER).view(np.float32)
    lower = np.float32(size - upper)
    # what rounding the square took away, of which exp would make much
    lost = np.float32(np.float32(upper * upper) - square)
    lost = np.float32(np.float32(lost + np.float32(np.float32(_TWO * upper) * lower)) + np.float32(lower * lower))
    density = np.float32(exp(np.float32(-_HALF * square)) * np.float32(_ONE - np.float32(_HALF * lost)))
    below = np.float32(np.float32(_HALF * density) * _scaled_erfc(np.float32(size * _ROOT_OF_HALF)))
    far = chosen(x < _ZERO, below, np.float32(_ONE - below))
    near = multiply_add(np.float32(x * _HALF_OF_ROOT_OF_HALF), _scaled_erf(np.float32(_HALF * square)), _HALF)
    return chosen(size < _ONE, near, far)


@kernel(_ONE_ARGUMENT)
def softplus(x: Any) -> Any:
    """``log(1 + exp(x))``."""
    return np.float32(chosen(x > _ZERO, x, _ZERO) + log1p_of_fraction(exp(-size_of(x))))
