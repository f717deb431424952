"""Reductions: the Reduce family, ArgMax and ArgMin (``onnx/defs/reduction``), and the running CumSum and CumProd.

16-bit floats are summed in float32 and rounded once. Of integers, sums and products wrap, and what is no integer is truncated.
Kernels reduce large arrays of float32 and the 16-bit types; NumPy serves for all else.

https://onnx.ai/onnx/operators/onnx__ReduceSum.html, onnx__ArgMax.html, onnx__CumSum.html
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._axes import integers, normalized_axes, normalized_axis, single_integer
from numbaops.ops._precision import narrowed, wide_dtype, widened
from numbaops.ops._rows import JIT_FROM, SOURCES, accumulated, folded, log_summed, placed
from numbaops.ops.base import Array
from numbaops.ops.elementwise import divide
from numbaops.ops.leaf import Leaf

_MOST_SHAPES = 64
"""Shapes of which a node keeps how it reduces them."""


class _Over(NamedTuple):
    """What of an array is reduced.

    Attributes:
        axes: from 0 on.
        keepdims: whether they are kept as 1.
        dtype: the type to compute in.
        number: how many elements become one,
        divisor: and what that divides floats by: of nothing, a mean is undefined. None for integers.
    """

    axes: tuple[int, ...]
    keepdims: bool
    dtype: np.dtype[Any]
    number: int
    divisor: Array | None


class _Kind(NamedTuple):
    """A reduction.

    Attributes:
        reduce: by NumPy.
        fold: by a kernel, over the axes, which are lost; None where NumPy is to serve;
        finish: and what becomes of that.
    """

    reduce: Callable[[Array, _Over], Array]
    fold: Callable[[Array, tuple[int, ...]], Array | None]
    finish: Callable[[Array, _Over], Array] = lambda total, over: total


class Reduction:
    """An operator of the Reduce family: all versions, whether axes are an attribute or an input.

    Args:
        kind: what is done.
        axes: the axes, if they are an attribute.
        keepdims: whether they are kept as 1.
        noop_with_empty_axes: whether no axes are no axes, and not all.
    """

    def __init__(self, kind: _Kind, *, axes: Sequence[int] | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> None:
        self._kind, self._axes = kind, () if axes is None else tuple(axes)
        self._keepdims, self._noop = keepdims, noop_with_empty_axes
        self._ways: dict[tuple[Any, ...], Callable[[Array], Array]] = {}

    def __call__(self, data: Array, axes: Array | None = None) -> Array:
        """The reduced array, of the type of ``data``."""
        given = self._axes if axes is None else tuple(integers(axes, "axes"))
        key = data.shape, data.dtype, given
        way = self._ways.get(key)
        if way is None:
            if len(self._ways) >= _MOST_SHAPES:
                self._ways.clear()
            self._ways[key] = way = self._way(*key)
        return way(data)

    def prepared(self, data: Any, axes: Any = None) -> Callable[..., Array] | None:
        """The same with axes that are known, ``...`` standing for what is not; None if that is no use."""
        if axes is ... or axes is None:
            return None
        known = Reduction(self._kind, axes=integers(axes, "axes"), keepdims=self._keepdims, noop_with_empty_axes=self._noop)
        return lambda data, axes: known(data)

    def _way(self, shape: tuple[int, ...], dtype: np.dtype[Any], given: tuple[int, ...]) -> Callable[[Array], Array]:
        """How arrays of some shape and type are reduced over the axes."""
        axes = normalized_axes(given, len(shape)) if given or self._noop else tuple(range(len(shape)))
        wide, count = wide_dtype(dtype), math.prod(shape[axis] for axis in axes)
        divisor = None if dtype.kind in "iu" else np.array(count or math.nan, wide)
        over = _Over(axes, bool(self._keepdims), wide, count, divisor)
        function, fold, finish = self._kind

        def by_numpy(data: Array) -> Array:
            y = function(data if dtype == wide else widened(data), over)
            return y if y.dtype == dtype else narrowed(y, dtype)

        if dtype not in SOURCES or math.prod(shape) < JIT_FROM:
            return by_numpy
        result = tuple(1 if axis in axes else size for axis, size in enumerate(shape) if over.keepdims or axis not in axes)

        def by_kernel(data: Array) -> Array:
            total = fold(data, axes)
            return by_numpy(data) if total is None else narrowed(finish(total, over), dtype).reshape(result)

        return by_kernel


def _fold(ufunc: Any) -> Callable[[Array, _Over], Array]:
    fold = ufunc.reduce

    def reduce(data: Array, over: _Over) -> Array:
        y: Array = fold(data, over.axes, over.dtype, None, over.keepdims)
        return y

    return reduce


_add: Any = np.add.reduce
_sum = _fold(np.add)


def _mean(data: Array, over: _Over) -> Array:
    axes, keepdims, dtype, count, divisor = over
    if divisor is not None:
        mean: Array = np.divide(_add(data, axes, dtype, None, keepdims), divisor)
        return mean
    if not count:
        return _sum(data, over)
    number = data.dtype.type(count)
    if count * max(int(data.max(initial=0)), -int(data.min(initial=0))) <= np.iinfo(data.dtype).max:
        return divide(_sum(data, over), number)
    # the sum may overflow: quotients and remainders add up apart
    quotients, remainders = (_sum(part, over._replace(keepdims=True)) for part in np.divmod(data, number))
    floor, rest = np.divmod(remainders, number)
    floor += quotients
    floor += (floor < 0) & (rest != 0)
    return floor if keepdims else floor.squeeze(axes)


def _extremum(ufunc: Any, of_nothing: Callable[[np.dtype[Any]], Any]) -> Callable[[Array, _Over], Array]:
    fold = ufunc.reduce

    def reduce(data: Array, over: _Over) -> Array:
        initial = () if data.size else (of_nothing(data.dtype),)
        y: Array = fold(data, over.axes, over.dtype, None, over.keepdims, *initial)
        return y

    return reduce


def _least(dtype: np.dtype[Any]) -> Any:
    return dtype.type(False) if dtype.kind == "b" else np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)


def _greatest(dtype: np.dtype[Any]) -> Any:
    return dtype.type(True) if dtype.kind == "b" else np.iinfo(dtype).max if dtype.kind in "iu" else dtype.type(np.inf)


def _l1(data: Array, over: _Over) -> Array:
    return _sum(np.abs(data), over)


def _l2(data: Array, over: _Over) -> Array:
    real = _real(data.dtype)
    y: Array = np.sqrt(_sum(np.square(data, dtype=real), over._replace(dtype=real)))
    return y


def _sum_of_squares(data: Array, over: _Over) -> Array:
    return _sum(np.square(data), over)


def _log_of_sum(data: Array, over: _Over) -> Array:
    return _log(_sum(data, over._replace(dtype=_real(data.dtype))))


def _log(total: Array) -> Array:
    with np.errstate(divide="ignore"):  # of 0
        y: Array = np.log(total)
        return y


def _log_of_sum_of_exponentials(data: Array, over: _Over) -> Array:
    data = data.astype(real := _real(data.dtype), copy=False)
    shift: Array = np.maximum.reduce(data, over.axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(shift), shift, shift.dtype.type(0))
    y = _log(_sum(np.exp(data - shift), over._replace(keepdims=True, dtype=real))) + shift
    return y if over.keepdims else y.squeeze(over.axes)


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of floats to compute in."""
    return np.dtype(np.float64) if dtype.kind in "iub" else dtype


def _arg(pick: Callable[..., Any], least: bool) -> Callable[..., Array]:
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
        found: Any = placed(widened(data), axis, least, bool(select_last_index))
        if found is not None:
            return np.expand_dims(found, axis) if keepdims else found
        if select_last_index:
            found = size - 1 - pick(np.flip(data, axis), axis, keepdims=bool(keepdims))
        else:
            found = pick(data, axis, keepdims=bool(keepdims))
        return narrowed(found, np.dtype(np.int64))

    return position


def _cumulative(ufunc: Any, operation: str) -> Callable[..., Array]:
    """The operator that accumulates by ``ufunc`` along an axis; exclusive: only what comes before each element."""

    def accumulate(x: Array, axis: Array, exclusive: int = 0, reverse: int = 0) -> Array:
        along = normalized_axis(single_integer(axis, "axis"), x.ndim)
        wide = widened(x)
        y = accumulated(wide, operation, along, bool(exclusive), bool(reverse))
        if y is None:
            y = np.empty(x.shape, wide.dtype)
            lead, step = (slice(None),) * along, -1 if reverse else 1
            source, target = (array[(*lead, slice(None, None, step))] for array in (wide, y))
            if exclusive:
                target[(*lead, slice(1))] = ufunc.identity
                source, target = source[(*lead, slice(-1))], target[(*lead, slice(1, None))]
            ufunc.accumulate(source, along, y.dtype, target)
        return narrowed(y, x.dtype)

    return accumulate


def _folding(operation: str) -> Callable[[Array, tuple[int, ...]], Array | None]:
    return functools.partial(folded, operation=operation)


_REDUCTIONS: tuple[tuple[str, _Kind, tuple[int, ...]], ...] = (
    ("ReduceL1", _Kind(_l1, _folding("absolute")), (1, 11, 13, 18)),
    ("ReduceL2", _Kind(_l2, _folding("square"), lambda total, over: np.sqrt(total)), (1, 11, 13, 18)),
    ("ReduceLogSum", _Kind(_log_of_sum, _folding("sum"), lambda total, over: _log(total)), (1, 11, 13, 18, 28)),
    ("ReduceLogSumExp", _Kind(_log_of_sum_of_exponentials, lambda data, axes: log_summed(widened(data), axes)), (1, 11, 13, 18, 28)),
    ("ReduceMax", _Kind(_extremum(np.maximum, _least), _folding("max")), (1, 11, 12, 13, 18, 20)),
    ("ReduceMean", _Kind(_mean, _folding("sum"), lambda total, over: total / over.number), (1, 11, 13, 18)),
    ("ReduceMin", _Kind(_extremum(np.minimum, _greatest), _folding("min")), (1, 11, 12, 13, 18, 20)),
    ("ReduceProd", _Kind(_fold(np.multiply), _folding("product")), (1, 11, 13, 18)),
    ("ReduceSum", _Kind(_sum, _folding("sum")), (1, 11, 13)),
    ("ReduceSumSquare", _Kind(_sum_of_squares, _folding("square")), (1, 11, 13, 18)),
)

LEAVES: tuple[Leaf, ...] = (
    *(Leaf(op_type, versions, functools.partial(Reduction, kind), bind=True) for op_type, kind, versions in _REDUCTIONS),
    Leaf("ArgMax", (1, 11, 12, 13), _arg(np.argmax, False)),
    Leaf("ArgMin", (1, 11, 12, 13), _arg(np.argmin, True)),
    Leaf("CumSum", (11, 14), _cumulative(np.add, "sum")),
    Leaf("CumProd", (26,), _cumulative(np.multiply, "product")),
)
