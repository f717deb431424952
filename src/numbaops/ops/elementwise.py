"""Element-wise operators of several tensors: arithmetic, comparison, logic, bits (families ``onnx/defs/math`` and ``logical``).

Those of one tensor are in ``_unary``. An operator that is one ufunc for all its types is that ufunc.

https://onnx.ai/onnx/operators/, https://onnx.ai/onnx/repo-docs/Broadcasting.html
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops import _unary
from numbaops.ops._legacy import with_consumed_inputs, with_limited_broadcast
from numbaops.ops._maps import by_blocks, rounding_once
from numbaops.ops._precision import HALVES, check_same_type, narrowed, widened
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf

_FLOAT32_MAX = float(np.finfo(np.float32).max)


def divide(a: Array, b: Array) -> Array:
    """Div: the quotient; of integers it is truncated."""
    check_same_type(a, b)
    quotient: Array
    if a.dtype.kind == "i":
        quotient = np.floor_divide(a - np.fmod(a, b), b)
    else:
        quotient = np.floor_divide(a, b) if a.dtype.kind == "u" else _divide(a, b)
    return quotient


_divide = rounding_once(np.divide)


def mod(fmod: int = 0) -> Callable[[Array, Array], Array]:
    """Mod: the remainder, of the sign of the divisor, or with ``fmod`` that of the dividend."""
    return np.fmod if fmod else np.mod


def power(x: Array, y: Array) -> Array:
    """Pow: in the type of the base, whatever that of the exponent; an integer result is truncated, and wraps."""
    if x.dtype.kind not in "iu":
        return narrowed(np.power(widened(x), widened(y)), x.dtype)
    if y.dtype.kind not in "iu":
        return np.power(x, widened(y)).astype(x.dtype)
    if y.dtype == np.uint64:  # with which int64 has no type in common
        return np.power(x.astype(np.int64).view(np.uint64), y).astype(x.dtype)
    negative = y < 0
    if not negative.any():
        return narrowed(np.power(x, y), x.dtype)
    # of an integer other than 1 and -1 nothing is left; 0 has no such power
    left = np.where(np.abs(x) == 1, np.where(y % 2, x, 1), 0)
    return narrowed(np.where(negative, left, np.power(x, np.maximum(y, 0))), x.dtype)


def bit_shift(direction: str) -> Callable[[Array, Array], Array]:
    """BitShift: by as many bits as the second tensor says; if those are negative or all, what is left is the sign."""
    if direction not in _SHIFTS:
        raise InvalidValueError(f"direction is {direction!r}; allowed: {', '.join(_SHIFTS)}", attribute="direction")
    return _SHIFTS[direction]


# NumPy defines shifts by more than the width, and by negative numbers, as the operator does.
_SHIFTS: dict[str, Callable[[Array, Array], Array]] = {"LEFT": np.left_shift, "RIGHT": np.right_shift}


def _folded(ufunc: np.ufunc) -> Callable[..., Array]:
    halves = functools.partial(by_blocks, ufunc)

    def fold(*data: Array) -> Array:
        check_same_type(*data)
        return functools.reduce(halves if data[0].dtype in HALVES else ufunc, data) if len(data) > 1 else data[0].copy()

    return fold


def total(*data: Array) -> Array:
    """Sum: of any number of tensors."""
    check_same_type(*data)
    return _total(*data)


@rounding_once
def _total(*data: Array) -> Array:
    return functools.reduce(np.add, data) if len(data) > 1 else data[0].copy()


def mean(*data: Array) -> Array:
    """Mean: of any number of tensors."""
    check_same_type(*data)
    return _mean(*data)


@rounding_once
def _mean(*data: Array) -> Array:
    y: Array = _total(*data) / len(data)
    return y


def where(condition: Array, x: Array, y: Array) -> Array:
    """Where: an element of ``x`` where the condition holds, else one of ``y``."""
    check_same_type(x, y)
    return np.where(condition, x, y)


def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """Clip: at least ``low``, then at most ``high``; a missing one is the least or the greatest finite number of the type."""
    least, greatest = _limits(x.dtype)
    low, high = _bound(low, least, x.dtype), _bound(high, greatest, x.dtype)
    y = x.copy() if low is None and high is None else _clipped(x, low, high)
    if y.shape != x.shape:
        raise InvalidValueError(f"the limits broadcast the input of shape {list(x.shape)} to {list(y.shape)}; allowed: scalars")
    return y


def _clipped(x: Array, low: Any, high: Any) -> Array:
    if x.dtype in HALVES and np.ndim(low) == np.ndim(high) == 0:
        least, most = np.float32(low), np.float32(high)
        return by_blocks(lambda part: np.clip(part, least, most), x)
    return narrowed(np.clip(x, low, high), x.dtype)


def _bound(given: Array | None, limit: Any, dtype: np.dtype[Any]) -> Any:
    if given is None:
        return limit
    return narrowed(given.reshape(()) if given.size == 1 else given, dtype)


@functools.cache
def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The least and the greatest finite number of a type of floats; integers need none."""
    if dtype.kind in "iu":
        return None, None
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return limits.min, limits.max


def clip_to_attributes(
    min: float = -np.inf,
    max: float = np.inf,
    consumed_inputs: Sequence[int] = (),
) -> Callable[[Array], Array]:
    """Clip before 11. The defaults that version 6 states, the limits of float32, stand for those of any type."""
    return lambda x: _clipped(x, *_bounds(x.dtype, min, max))


def clip_limits(low: Any, high: Any, dtype: np.dtype[Any] | None) -> tuple[float, float] | None:
    """The limits of a Clip, given as numbers, arrays of one, or None; None if they are neither, or NaN.

    Args:
        low: the lower limit.
        high: the upper limit.
        dtype: of the input, a type of floats; where it is not known, both limits have to be given.
    """
    limits = []
    for given, position in ((low, 0), (high, 1)):
        if given is None and dtype is not None:
            limits.append(float(_limits(dtype)[position]))
            continue
        if given is None or np.size(given) != 1 or np.isnan(np.asarray(given).astype(np.float64)).any():
            return None
        limits.append(float(np.asarray(given).reshape(-1)[0]))
    return limits[0], limits[1]


@functools.cache
def _bounds(dtype: np.dtype[Any], low: float, high: float) -> tuple[Any, Any]:
    least, greatest = _limits(dtype)
    if least is None:
        return low, high
    return (
        least if low <= -_FLOAT32_MAX or low < least else dtype.type(low),
        greatest if high >= _FLOAT32_MAX or high > greatest else dtype.type(high),
    )


# The versions before 7 stretch the second tensor only by attribute.
_BINARY: tuple[tuple[str, Callable[..., Array], tuple[int, ...], tuple[int, ...]], ...] = (
    ("Add", np.add, (7, 13, 14), (1, 6)),
    ("And", np.logical_and, (7,), (1,)),
    ("BitwiseAnd", np.bitwise_and, (18,), ()),
    ("BitwiseOr", np.bitwise_or, (18,), ()),
    ("BitwiseXor", np.bitwise_xor, (18,), ()),
    ("Div", divide, (7, 13, 14), (1, 6)),
    ("Equal", np.equal, (7, 11, 13, 19), (1,)),
    ("Greater", np.greater, (7, 9, 13), (1,)),
    ("GreaterOrEqual", np.greater_equal, (12, 16), ()),
    ("Less", np.less, (7, 9, 13), (1,)),
    ("LessOrEqual", np.less_equal, (12, 16), ()),
    ("Mul", np.multiply, (7, 13, 14), (1, 6)),
    ("Or", np.logical_or, (7,), (1,)),
    ("Pow", power, (7, 12, 13, 15), (1,)),
    ("Sub", np.subtract, (7, 13, 14), (1, 6)),
    ("Xor", np.logical_xor, (7,), (1,)),
)
_VARIADIC: tuple[tuple[str, Callable[..., Array], tuple[int, ...]], ...] = (
    ("Max", _folded(np.maximum), (6, 8, 12, 13)),
    ("Mean", mean, (6, 8, 13)),
    ("Min", _folded(np.minimum), (6, 8, 12, 13)),
    ("Sum", total, (6, 8, 13)),
)

LEAVES: tuple[Leaf, ...] = (
    *(Leaf(op_type, versions, function, elementwise=True) for op_type, function, versions, _ in _BINARY),
    *(Leaf(op_type, old, with_limited_broadcast(function), bind=True) for op_type, function, _, old in _BINARY if old),
    *(Leaf(op_type, versions, function, elementwise=True) for op_type, function, versions in _VARIADIC),
    *(Leaf(op_type, (1,), with_consumed_inputs(function), bind=True) for op_type, function, _ in _VARIADIC),
    Leaf("Mod", (10, 13, 28), mod, bind=True, elementwise=True),
    Leaf("BitShift", (11, 28), bit_shift, bind=True, elementwise=True),
    Leaf("Clip", (1, 6), clip_to_attributes, bind=True, elementwise=True),
    Leaf("Clip", (11, 12, 13), clip, elementwise=True),
    Leaf("Where", (9, 16), where, elementwise=True),
    *_unary.LEAVES,
)
