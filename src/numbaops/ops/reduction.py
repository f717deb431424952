"""Reductions: the Reduce family, ArgMax and ArgMin (``onnx/defs/reduction``), and the running CumSum and CumProd.

16-bit floats are summed in float32 and rounded once. Of integers, sums and products wrap, and what is no integer is truncated.

https://onnx.ai/onnx/operators/onnx__ReduceSum.html, onnx__ArgMax.html, onnx__CumSum.html
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._axes import integers, normalized_axes, normalized_axis, single_integer
from numbaops.ops._precision import narrowed, wide_dtype, widened
from numbaops.ops.base import Array
from numbaops.ops.elementwise import divide
from numbaops.ops.leaf import Leaf

Axes = tuple[int, ...]


def _reduction(function: Callable[[Array, Axes, bool], Array]) -> Callable[..., Array]:
    """The operator that reduces by ``function``: all versions, whether axes are an attribute or an input."""

    def reduce(data: Array, axes: Sequence[int] | Array | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        given = () if axes is None else integers(axes, "axes")
        chosen = normalized_axes(given, data.ndim) if given or noop_with_empty_axes else tuple(range(data.ndim))
        return narrowed(function(data, chosen, bool(keepdims)), data.dtype)

    return reduce


def _fold(ufunc: Any) -> Callable[[Array, Axes, bool], Array]:
    def reduce(data: Array, axes: Axes, keepdims: bool) -> Array:
        y: Array = ufunc.reduce(data, axes, wide_dtype(data.dtype), keepdims=keepdims)
        return y

    return reduce


_sum = _fold(np.add)


def _mean(data: Array, axes: Axes, keepdims: bool) -> Array:
    count = math.prod(data.shape[axis] for axis in axes)
    if data.dtype.kind not in "iu":
        return _sum(data, axes, keepdims) / (count or math.nan)  # of nothing it is undefined
    if not count:
        return _sum(data, axes, keepdims)
    number = data.dtype.type(count)
    if count * max(int(data.max(initial=0)), -int(data.min(initial=0))) <= np.iinfo(data.dtype).max:
        return divide(_sum(data, axes, keepdims), number)
    # the sum may overflow: quotients and remainders add up apart
    quotients, remainders = (_sum(part, axes, True) for part in np.divmod(data, number))
    floor, rest = np.divmod(remainders, number)
    floor += quotients
    floor += (floor < 0) & (rest != 0)
    return floor if keepdims else floor.squeeze(axes)


def _extremum(ufunc: Any, of_nothing: Callable[[np.dtype[Any]], Any]) -> Callable[[Array, Axes, bool], Array]:
    def reduce(data: Array, axes: Axes, keepdims: bool) -> Array:
        initial = {} if data.size else {"initial": of_nothing(data.dtype)}
        y: Array = ufunc.reduce(data, axes, keepdims=keepdims, **initial)
        return y

    return reduce


def _least(dtype: np.dtype[Any]) -> Any:
    return dtype.type(False) if dtype.kind == "b" else np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)


def _greatest(dtype: np.dtype[Any]) -> Any:
    return dtype.type(True) if dtype.kind == "b" else np.iinfo(dtype).max if dtype.kind in "iu" else dtype.type(np.inf)


def _l1(data: Array, axes: Axes, keepdims: bool) -> Array:
    return _sum(np.abs(data), axes, keepdims)


def _l2(data: Array, axes: Axes, keepdims: bool) -> Array:
    y: Array = np.sqrt(_sum(np.square(data, dtype=_real(data.dtype)), axes, keepdims))
    return y


def _sum_of_squares(data: Array, axes: Axes, keepdims: bool) -> Array:
    return _sum(np.square(data, dtype=wide_dtype(data.dtype)), axes, keepdims)


def _log_of_sum(data: Array, axes: Axes, keepdims: bool) -> Array:
    with np.errstate(divide="ignore"):  # the logarithm of 0
        y: Array = np.log(np.sum(data, axes, _real(data.dtype), keepdims=keepdims))
        return y


def _log_of_sum_of_exponentials(data: Array, axes: Axes, keepdims: bool) -> Array:
    data = data.astype(_real(data.dtype), copy=False)
    shift: Array = np.maximum.reduce(data, axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(shift), shift, shift.dtype.type(0))
    with np.errstate(divide="ignore"):
        y: Array = np.log(_sum(np.exp(data - shift), axes, True)) + shift
    return y if keepdims else y.squeeze(axes)


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of floats to compute in, of at least 32 bits."""
    return np.dtype(np.float64) if dtype.kind in "iub" else wide_dtype(dtype)


def _arg(pick: Callable[..., Any]) -> Callable[..., Array]:
    def position(data: Array, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
        axis = normalized_axis(axis, data.ndim)
        size = data.shape[axis]
        if not size:
            shape = data.shape[:axis] + (1,) * bool(keepdims) + data.shape[axis + 1 :]
            if math.prod(shape):
                raise InvalidValueError(
                    f"the input has the shape {list(data.shape)}; allowed: elements along axis {axis}", attribute="axis"
                )
            return np.zeros(shape, np.int64)
        if select_last_index:
            found = size - 1 - pick(np.flip(data, axis), axis, keepdims=bool(keepdims))
        else:
            found = pick(data, axis, keepdims=bool(keepdims))
        return narrowed(found, np.dtype(np.int64))

    return position


def _cumulative(ufunc: Any) -> Callable[..., Array]:
    """The operator that accumulates by ``ufunc`` along an axis; exclusive: only what comes before each element."""

    def accumulate(x: Array, axis: Array, exclusive: int = 0, reverse: int = 0) -> Array:
        along = normalized_axis(single_integer(axis, "axis"), x.ndim)
        y = np.empty(x.shape, wide_dtype(x.dtype))
        source, target = (np.moveaxis(array, along, 0) for array in (widened(x), y))
        if reverse:
            source, target = source[::-1], target[::-1]
        if exclusive:
            target[:1] = ufunc.identity
            source, target = source[:-1], target[1:]
        ufunc.accumulate(source, 0, y.dtype, target)
        return narrowed(y, x.dtype)

    return accumulate


_REDUCTIONS: tuple[tuple[str, Callable[[Array, Axes, bool], Array], tuple[int, ...]], ...] = (
    ("ReduceL1", _l1, (1, 11, 13, 18)),
    ("ReduceL2", _l2, (1, 11, 13, 18)),
    ("ReduceLogSum", _log_of_sum, (1, 11, 13, 18, 28)),
    ("ReduceLogSumExp", _log_of_sum_of_exponentials, (1, 11, 13, 18, 28)),
    ("ReduceMax", _extremum(np.maximum, _least), (1, 11, 12, 13, 18, 20)),
    ("ReduceMean", _mean, (1, 11, 13, 18)),
    ("ReduceMin", _extremum(np.minimum, _greatest), (1, 11, 12, 13, 18, 20)),
    ("ReduceProd", _fold(np.multiply), (1, 11, 13, 18)),
    ("ReduceSum", _sum, (1, 11, 13)),
    ("ReduceSumSquare", _sum_of_squares, (1, 11, 13, 18)),
)

LEAVES: tuple[Leaf, ...] = (
    *(Leaf(op_type, versions, _reduction(function)) for op_type, function, versions in _REDUCTIONS),
    Leaf("ArgMax", (1, 11, 12, 13), _arg(np.argmax)),
    Leaf("ArgMin", (1, 11, 12, 13), _arg(np.argmin)),
    Leaf("CumSum", (11, 14), _cumulative(np.add)),
    Leaf("CumProd", (26,), _cumulative(np.multiply)),
)
