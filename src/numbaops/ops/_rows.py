"""Reductions and normalizations by the kernels of ``numbaops.kernels.rows``: what of an array is a run, and who does which."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from numbaops.dtypes import BY_NAME
from numbaops.ops.base import Array
from numbaops.runtime import memory
from numbaops.runtime.threads import split

if TYPE_CHECKING:
    from types import ModuleType

SOURCES = {np.dtype(np.float32): "float32", np.dtype(np.float16): "float16", np.dtype(ml_dtypes.bfloat16): "bfloat16"}
"""The types that kernels take, with their names there."""

FOLD_FROM = 1 << 15
"""Elements below which NumPy reduces: it takes 9 us for the sum of so many, and does not load Numba."""

JIT_FROM = 1 << 12
"""Elements below which NumPy does all else."""

LEAST_COLUMNS = 16
"""Columns below which NumPy reduces them: there is no vector of them."""

LEAST_ROWS = 8
"""Rows below which NumPy reduces columns: there is little to be added up."""

PART = 1 << 16
"""Elements of a run that one thread adds up."""

PART_ROWS = 1 << 9
"""Rows of which one thread adds up columns."""

UFUNCS = {
    "sum": np.add,
    "square": np.add,
    "absolute": np.add,
    "product": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""How results of parts become one."""


def kernels_for(x: Array, types: Container[Any]) -> ModuleType | None:
    """The module of the kernels if they serve for this array, and for these types; else None."""
    if x.size < JIT_FROM or x.dtype not in types or not x.flags.c_contiguous or not x.flags.aligned:
        return None
    from numbaops.kernels import rows

    return rows if rows.AVAILABLE else None


def flat(x: Array) -> Array:
    """The elements in order as kernels take them: 16-bit types as their bits; read-only, since constants of a model are."""
    view = (x if x.dtype == np.float32 else x.view(np.uint16)).reshape(-1)
    view.setflags(write=False)
    return view


@functools.cache
def encoder(source: str) -> Any:
    """The code of a 16-bit type for the bits of a float32; None for float32."""
    from numbaops.kernels.floats import make_encoder

    return None if source == "float32" else make_encoder(BY_NAME[source].format, False)  # type: ignore[arg-type]


# Reductions


class _Reach(NamedTuple):
    """What of an array is reduced.

    Attributes:
        rows: matrices have as many rows.
        columns: and as many columns; of 1, the rows are runs of elements.
        part: rows that are reduced at once.
        shape: of what the kernel gives.
        axes: which of these are reduced then.
        kept: the shape without the axes.
    """

    rows: int
    columns: int
    part: int
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    kept: tuple[int, ...]


@functools.lru_cache(maxsize=512)
def _reach(shape: tuple[int, ...], axes: tuple[int, ...]) -> _Reach | None:
    """What is reduced over the axes; None where NumPy is to serve."""
    reduced = [axis in axes or size == 1 for axis, size in enumerate(shape)]  # to be reduced over 1 is to be kept
    behind = len(shape)
    while behind and not reduced[behind - 1]:
        behind -= 1
    first = behind
    while first and reduced[first - 1]:
        first -= 1
    rows, columns = math.prod(shape[first:behind]), math.prod(shape[behind:])
    if rows < 2 or not columns or (columns > 1 and (columns < LEAST_COLUMNS or rows < LEAST_ROWS)):
        return None
    part = PART if columns == 1 else PART_ROWS
    found = (*shape[:first], -(-rows // part), *shape[behind:])
    rest = (*(axis for axis in range(first) if axis in axes), first)
    return _Reach(rows, columns, part, found, rest, tuple(size for axis, size in enumerate(shape) if axis not in axes))


def folded(x: Array, axes: tuple[int, ...], operation: str) -> Array | None:
    """An array reduced over some axes, which it loses; float64. None where NumPy is to serve.

    Args:
        x: any array.
        axes: from 0 on, in any order.
        operation: one of ``UFUNCS``; ``"square"`` and ``"absolute"`` add up the elements' squares and absolute values.
    """
    if x.size < FOLD_FROM:
        return None
    kernels = kernels_for(x, SOURCES)
    reach = _reach(x.shape, axes) if kernels is not None else None
    if kernels is None or reach is None:
        return None
    total = np.empty(reach.shape)
    given, out, source = flat(x), total.reshape(-1), SOURCES[x.dtype]
    rows, columns, part = reach.rows, reach.columns, reach.part
    if columns == 1:
        kernel: Any = kernels.fold_rows(operation, source)
        fixed: tuple[Any, ...] = (given, out, rows, part)
    else:
        kernel, fixed = kernels.fold_columns(operation, source), (given, out, rows, part, columns)
    count = total.size // columns
    split(lambda first, last: kernel(*fixed, first, last), count, 4 * x.size // count)
    if total.size > math.prod(reach.kept):
        with np.errstate(all="ignore"):
            total = UFUNCS[operation].reduce(total, reach.axes)
    return total.reshape(reach.kept)


def log_summed(x: Array, axes: tuple[int, ...]) -> Array | None:
    """The logarithms of sums of exponentials over some axes, which are lost; float64. None where NumPy is to serve."""
    first = x.ndim - len(axes)
    kernels, size = kernels_for(x, SOURCES), math.prod(x.shape[first:])
    if kernels is None or x.dtype != np.float32 or size < 2 or sorted(axes) != list(range(first, x.ndim)):
        return None
    total = np.empty(x.shape[:first])
    given, out = flat(x), total.reshape(-1)
    split(lambda first, last: kernels.log_sums(given, out, size, first, last), total.size, 8 * size)
    return total


def placed(x: Array, axis: int, least: bool, from_last: bool) -> Array | None:
    """Where along an axis, which is lost, the largest elements are, or the least; None where NumPy is to serve.

    Args:
        x: any array.
        axis: from 0 on.
        least: whether the least ones are looked for.
        from_last: whether the last of equal ones counts, not the first.
    """
    kernels, rows, columns = kernels_for(x, SOURCES), x.shape[axis], math.prod(x.shape[axis + 1 :])
    if kernels is None or x.dtype != np.float32 or columns < LEAST_COLUMNS:
        return None
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    y = memory.empty(shape, np.dtype(np.int64), 8 * math.prod(shape))[0]
    fixed: Any = (flat(x), y.reshape(-1), rows, columns, least, from_last)
    tiles = x.size // (rows * columns) * -(-columns // kernels.TILE)
    split(lambda first, last: kernels.place_columns(*fixed, first, last), tiles, 4 * x.size // tiles)
    return y


ACCUMULATED = {np.dtype(name): name for name in ("float32", "float64", "int32", "int64", "uint32", "uint64")}
"""The types of running totals that kernels take, with their names there."""


def accumulated(x: Array, operation: str, axis: int, exclusive: bool, reverse: bool) -> Array | None:
    """Running ``"sum"`` or ``"product"`` along an axis; None where NumPy is to serve."""
    kernels = kernels_for(x, ACCUMULATED)
    if kernels is None:
        return None
    y = memory.empty(x.shape, x.dtype, x.nbytes)[0]
    kernel = kernels.accumulate(operation, ACCUMULATED[x.dtype])
    source, rows, columns = x.reshape(-1), x.shape[axis], math.prod(x.shape[axis + 1 :])
    source.setflags(write=False)
    fixed = (source, y.reshape(-1), rows, columns, exclusive, reverse)
    tiles = x.size // (rows * columns) * -(-columns // kernels.TILE)
    split(lambda first, last: kernel(*fixed, first, last), tiles, 2 * x.nbytes // tiles)
    return y


# Normalizations


class Runs(NamedTuple):
    """Runs that are normalized, each by itself.

    Attributes:
        number: how many.
        step: elements from one to the next.
        pieces: pieces of each.
        apart: elements from one piece to the next.
        length: elements of a piece.
        channel: numbers of factors from one run to the next,
        channel_step: and from one piece to the next.
    """

    number: int
    step: int
    pieces: int
    apart: int
    length: int
    channel: int = 0
    channel_step: int = 0


def normalized(
    x: Array,
    runs: Runs,
    scale: Array | None,
    shift: Array | None,
    epsilon: float,
    *,
    beyond: float = 0,
    centred: bool = True,
    each: bool = False,
) -> tuple[Array, Array, Array] | None:
    """``(x - mean) / (sqrt(variance + epsilon) + beyond) * scale + shift``, the means and the variances; None where NumPy is to serve.

    Args:
        x: any array.
        runs: of which there are means and variances.
        scale: factors; None for 1.
        shift: summands, as many; None for 0.
        epsilon: added to variances.
        beyond: added to their roots.
        centred: whether a mean is taken away; else it is taken for 0.
        each: whether every element of a piece has a factor and a summand of its own.
    """
    kernels = kernels_for(x, SOURCES)
    if kernels is None or runs.length < LEAST_COLUMNS:
        return None
    y = memory.empty(x.shape, x.dtype, x.nbytes)[0]
    count = runs.length if each else 1 if scale is None else scale.size
    factors, summands = _parameter(scale, 1, count), _parameter(shift, -0.0, count)  # what is added to -0.0 stays
    means, variances = np.empty(runs.number, np.float32), np.empty(runs.number, np.float32)
    source = SOURCES[x.dtype]
    kernel: Callable[..., None] = kernels.normalize_runs(source, encoder(source))
    fixed = (flat(x), _words(y), factors, summands, means, variances, tuple(runs[1:]), centred, each, float(epsilon), float(beyond))
    split(lambda first, last: kernel(*fixed, first, last), runs.number, 12 * runs.pieces * runs.length)
    return y, means, variances


def scaled(x: Array, mean: Array, scale: Array, shift: Array) -> Array | None:
    """``(x - mean) * scale + shift`` of ``[N, C, ...]`` with numbers for each channel; None where NumPy is to serve."""
    kernels, length = kernels_for(x, SOURCES), math.prod(x.shape[2:])
    if kernels is None or length < LEAST_COLUMNS:
        return None
    y = memory.empty(x.shape, x.dtype, x.nbytes)[0]
    source = SOURCES[x.dtype]
    kernel: Callable[..., None] = kernels.scale_runs(source, encoder(source))
    fixed = (flat(x), _words(y), *(_parameter(each, 0, scale.size) for each in (mean, scale, shift)), length)
    split(lambda first, last: kernel(*fixed, first, last), x.size // length, 8 * length)
    return y


def _words(y: Array) -> Array:
    return (y if y.dtype == np.float32 else y.view(np.uint16)).reshape(-1)


def _parameter(given: Array | None, otherwise: float, count: int) -> Array:
    """Factors or summands as kernels take them."""
    if given is None:
        return flat(np.full(count, otherwise, np.float32))
    return flat(np.ascontiguousarray(given.astype(np.float32, copy=False)))
