"""What operators share that sample a tensor between its elements: Resize, Upsample and GridSample."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from numbaops.dtypes import of_dtype
from numbaops.errors import InvalidTypeError
from numbaops.ops._precision import narrowed, widened
from numbaops.runtime import memory
from numbaops.runtime.threads import split

Array = npt.NDArray[Any]


def weighted_type(dtype: np.dtype[Any], mode: str) -> np.dtype[Any]:
    """The type in which weighted sums of elements are computed: float for the narrow floats, double for integers.

    Raises:
        InvalidTypeError: strings cannot be weighed.
    """
    if dtype.kind in "OUS":
        raise InvalidTypeError(f"the input has element type string; allowed in mode {mode!r}: numbers and bool", attribute="mode")
    if dtype.kind == "c" or dtype == np.float64:
        return dtype
    return np.dtype(np.float64 if dtype.kind in "iub" else np.float32)


def as_output(values: Array, dtype: np.dtype[Any]) -> Array:
    """Weighted sums as elements of the output: beyond an integer's range its limits, fractions cut off, bool by rounding."""
    if dtype.kind == "b":
        return np.asarray(values > 0.5)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        # the largest double below the limit: the limits of 64 bits are none themselves
        values = np.clip(values, float(limits.min), np.nextafter(limits.max + 1.0, 0.0))
    return values.astype(dtype, copy=False)


def cubic_weights(distance: Array, a: float) -> Array:
    """Keys' cubic convolution, equation (4) of https://ieeexplore.ieee.org/document/1163711, by the distance from a sample."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def type_name(array: Array) -> str:
    """For error messages."""
    return str(of_dtype(array.dtype))


_MOST_PLANS = 64

KERNEL_FROM = 1 << 12
"""Elements from which kernels serve: fewer need no Numba."""

_WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_ALL = np.empty((0, 0), np.int64)


class Table(NamedTuple):
    """What becomes of one axis.

    Attributes:
        axis: its number.
        places: which of its elements each element of the output is made of, ``[samples, length]``.
        weights: of these, float64; None if there is one sample, which is taken as it is.
    """

    axis: int
    places: Array
    weights: Array | None = None


class Plan(NamedTuple):
    """What becomes of an input of one shape.

    Attributes:
        tables: of the axes that change, the shrinking ones first: the others then have less to do.
        outside: by axis, which positions lie outside of the input.
    """

    tables: tuple[Table, ...]
    outside: Mapping[int, Array]


class Plans:
    """Plans by the shape of an input and the bytes of those that say what becomes of it; the last ones are kept.

    Args:
        make: what makes a plan of the shape and these inputs.
    """

    def __init__(self, make: Callable[..., Plan]) -> None:
        self._make = make
        self._kept: dict[tuple[Any, ...], Plan] = {}

    def of(self, shape: tuple[int, ...], *given: Array | None) -> Plan:
        """The plan."""
        key = (shape, *[each if each is None else (each.dtype, each.shape, each.tobytes()) for each in given])
        plan = self._kept.get(key)
        if plan is None:
            if len(self._kept) >= _MOST_PLANS:
                self._kept.clear()
            plan = self._kept[key] = self._make(shape, *given)
        return plan


def resampled(x: Array, tables: Sequence[Table], mode: str) -> Array:
    """The input with its axes treated one after another; the input itself if there is none."""
    if not tables:
        return x
    if tables[0].weights is None:
        word = None if x.dtype == object else _WORDS.get(x.itemsize)
        if word is not None and _serves(x, tables):
            return _by_kernel(x.view(word), tables, word).view(x.dtype)
        for axis, places, _ in tables:
            x = np.take(x, places[0], axis)
        return x
    kind = weighted_type(x.dtype, mode)
    if (kind == np.float32 or (x.dtype == np.uint8 and len(_passes(x.ndim, tables)) == 1)) and _serves(x, tables):
        wide = x if x.dtype == np.uint8 else widened(x).astype(np.float32, copy=False)
        return narrowed(_by_kernel(wide, tables, wide.dtype.name), x.dtype)
    y = x.astype(kind, copy=False)
    for table in tables:
        y = _weighted(y, table)
    return as_output(np.rint(y) if x.dtype.kind in "iu" else y, x.dtype)


def _serves(x: Array, tables: Sequence[Table]) -> bool:
    size = x.size * math.prod(table.places.shape[1] / x.shape[table.axis] for table in tables) if x.size else 0
    if max(size, x.size) < KERNEL_FROM or not size:
        return False
    from numbaops.kernels import resampling

    return resampling.COMPILED


def _passes(rank: int, tables: Sequence[Table]) -> list[tuple[Table, ...]]:
    """The tables that a kernel treats at once: the last two axes, or one alone."""
    last = sorted((table for table in tables if table.axis >= rank - 2), key=lambda table: table.axis)
    if len(last) < 2:
        return [(table,) for table in tables]
    return [*[(table,) for table in tables if table.axis < rank - 2], tuple(last)]


def _by_kernel(x: Array, tables: Sequence[Table], dtype: str) -> Array:
    from numbaops.kernels import resampling

    for together in _passes(x.ndim, tables):
        shape = list(x.shape)
        for table in together:
            shape[table.axis] = table.places.shape[1]
        axis = together[0].axis
        if len(together) == 2:
            height, width = x.shape[-2:]
            rows, columns = together
        elif axis == x.ndim - 1:
            height, width = 1, x.shape[-1]
            rows, columns = None, together[0]
        else:
            height, width = x.shape[axis], math.prod(x.shape[axis + 1 :])
            rows, columns = together[0], None
        out = memory.empty(tuple(shape), x.dtype, x.itemsize * math.prod(shape))[0]
        given: list[Any] = [np.ascontiguousarray(x).reshape(-1), height, width]
        weighted = together[0].weights is not None
        for each in (rows, columns):
            given.append(_ALL if each is None else each.places)
            if weighted:
                kind = np.float64 if dtype == "uint8" else np.float32
                given.append(np.empty((0, 0), kind) if each is None or each.weights is None else each.weights.astype(kind, copy=False))
        given.append(out.reshape(-1))
        kernel: Any = resampling.blend[dtype] if weighted else resampling.pick[dtype]
        units = x.size // (height * width) * (height if rows is None else rows.places.shape[1])
        samples = sum(table.places.shape[0] for table in together) if weighted else 1
        work = 16 * samples * max(width, out.size // units)
        split(lambda first, last, call=kernel, fixed=tuple(given): call(*fixed, first, last), units, work)  # type: ignore[misc]
        x = out
    return x


def _weighted(x: Array, table: Table) -> Array:
    """The weighted sums along an axis, one sample of all outputs at a time."""
    axis, places, factors = table
    assert factors is not None
    weights = factors.astype(x.real.dtype, copy=False)
    along = (-1,) + (1,) * (x.ndim - 1 - axis)
    total: Array | None = None
    for numbers, line in zip(places, weights, strict=True):
        part = np.take(x, numbers, axis)
        part *= line.reshape(along)
        if total is None:
            total = part
        else:
            total += part
    return x if total is None else total
