"""Products of stacks of matrices by the kernels of ``numbaops.kernels.matrices``, where these serve."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from numbaops.ops.base import Array
from numbaops.runtime import memory
from numbaops.runtime.threads import split, thread_count

_FLOAT32 = np.dtype(np.float32)
_KINDS = tuple(map(np.dtype, (np.float32, np.int32, np.int64, np.uint32, np.uint64)))

SHARES = 8
"""Shares of work for each thread: a unit takes up to 0.1 ms, and the last panel of a plane less."""

MATRIX_FROM = 1 << 18
"""Multiplications from which the kernel multiplies matrices: fewer take BLAS less time."""

LEAST_ROWS = 4
"""Rows of the first matrix from which the kernel serves: with fewer, most of a tile would be for nothing."""

UNIT = 1 << 17
"""Elements of a matrix that a unit takes in, of a product of few rows: adding up what units give takes little of its time."""

READ = 2
"""Bytes that each byte of a matrix counts, of which products of few rows read two in the time of one that is copied."""

ROWS_EACH = 256
"""Rows of a unit of work: the first matrix's 512 KB stay in the second cache, and gathering a panel takes 2 % of the sums' time."""

COLUMNS_EACH = 768
"""Columns of a unit, about: of 256 rows and 512 terms they take 2 ms."""


class _Memory:
    """The memory that an array reaches into, from its first element on, as a flat array for kernels; none writes to an input."""

    def __init__(self, x: Array) -> None:
        size = 1 + sum((count - 1) * step for count, step in zip(x.shape, x.strides, strict=True)) // x.itemsize if x.size else 0
        address = x.__array_interface__["data"][0]
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": x.dtype.str, "data": (address, False)}
        self._owner = x


def flat_memory(x: Array) -> tuple[Array, tuple[int, ...]]:
    """A flat array of all that lies between the first element and the last, and the strides in elements; of a copy if it lies oddly."""
    flags, each = x.flags, x.itemsize
    if flags.carray:
        return x.reshape(-1), tuple([step // each for step in x.strides])
    if not flags.aligned or any(step < 0 or step % each for step in x.strides):
        x = np.ascontiguousarray(x)
    return np.asarray(_Memory(x)), tuple([step // each for step in x.strides])


def multiplied(a: Array, b: Array) -> Array | None:
    """The product of stacks of matrices, ``[..., M, K]`` and ``[..., K, N]``, of float32 or integers; None where NumPy's serves.

    A BLAS of several threads would take their cores from other kernels: it lets them wait in a loop for what comes next. And for
    integers there is none.
    """
    if a.dtype != b.dtype or a.dtype not in _KINDS or a.ndim < 2 or b.ndim < 2 or b.shape[-2] != a.shape[-1]:
        return None
    stack = a.shape[:-2]
    if stack != b.shape[:-2]:
        try:
            stack = np.broadcast_shapes(stack, b.shape[:-2])
        except ValueError:
            return None
    (count, terms), width = a.shape[-2:], b.shape[-1]
    if math.prod(stack) * count * terms * width < MATRIX_FROM:
        return None
    one = math.prod(b.shape[:-2]) == 1
    if a.dtype != _FLOAT32:
        return _integers(a, b, stack, one)
    if (math.prod(stack) * count if one else count) < LEAST_ROWS:
        return _few_rows(a, b)
    from numbaops.kernels import products

    if not products.AVAILABLE:
        return None
    result = memory.empty((*stack, count, width), _FLOAT32, 4 * math.prod(stack) * count * width)[0]
    if one and a.ndim > 2:  # one matrix for all rows
        rows, second = np.ascontiguousarray(a).reshape(-1, terms), b.reshape(b.shape[-2:])
        multiply_into(rows, second, result.reshape(-1, width))
    else:
        first = a if a.shape[:-2] == stack else np.broadcast_to(a, (*stack, count, terms))
        multiply_into(first, b if b.shape[:-2] == stack else np.broadcast_to(b, (*stack, terms, width)), result)
    return result


class _Shares(NamedTuple):
    """Where the matrices of a product of stacks begin, rows and columns of a unit of work, and how many there are."""

    places: Array
    rows: int
    columns: int
    units: int


@functools.lru_cache(maxsize=64)
def _shares_of(shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...], threads: int) -> _Shares:
    from numbaops.kernels import products

    *stack, count, width = shape
    places = np.zeros((*stack, 3), np.int64)
    for axis, size in enumerate(stack):
        steps = np.array([stride[axis] for stride in strides])
        places += (np.arange(size)[:, None] * steps).reshape(size, *(1,) * (len(stack) - 1 - axis), 3)
    row_parts = -(-count // ROWS_EACH)
    rows = -(-count // (row_parts * products.ROWS)) * products.ROWS
    most = -(-4 * threads // (math.prod(stack) * row_parts)) if threads > 1 else 1
    column_parts = max(1, width // COLUMNS_EACH, min(width // products.COLUMNS, most))
    columns = -(-width // (column_parts * products.COLUMNS)) * products.COLUMNS
    return _Shares(places.reshape(-1, 3), rows, columns, math.prod(stack) * -(-count // rows) * -(-width // columns))


def multiply_into(a: Array, b: Array, out: Array) -> None:
    """Products of stacks of matrices by the kernel.

    Args:
        a: ``[..., M, K]``, float32, of any strides.
        b: ``[..., K, N]``.
        out: ``[..., M, N]``, written to; rows whose elements are next to each other.
    """
    from numbaops.kernels import matrices

    if not out.size:
        return
    (first, first_steps), (second, second_steps), (result, result_steps) = map(flat_memory, (a, b, out))
    places, rows, columns, units = _shares_of(out.shape, (first_steps, second_steps, result_steps), thread_count())
    fixed: Any = (first, *first_steps[-2:], second, *second_steps[-2:], result, result_steps[-2], places)
    fixed += (out.shape[-2], a.shape[-1], out.shape[-1], rows, columns)
    kernel: Any = matrices.multiply
    split(lambda first, last: kernel(*fixed, first, last), units, 2 * rows * columns * a.shape[-1], shares=SHARES)


def product(a: Array, b: Array) -> Array:
    """``numpy.matmul``, by the kernel where that serves."""
    y = multiplied(a, b)
    return np.matmul(a, b) if y is None else y


def _few_rows(a: Array, b: Array) -> Array | None:
    """The product of a matrix of few rows, or a stack of such, and one matrix."""
    from numbaops.kernels import matrices, products

    count, terms = math.prod(a.shape[:-1]), a.shape[-1]
    if b.ndim > 2 or count >= LEAST_ROWS or not products.AVAILABLE:
        return None
    rows, columns = np.ascontiguousarray(a).reshape(-1), b.shape[1]
    if b.flags.f_contiguous and not b.flags.c_contiguous:
        result = np.empty((count, columns), np.float32)
        fixed: Any = (rows, b.T.reshape(-1), count, terms, result.reshape(-1))
        kernel: Any = matrices.multiply_rows
        split(lambda first, last: kernel(*fixed, first, last), columns, READ * 4 * terms, products.LANES)
    else:
        each = max(32, UNIT // columns // 4 * 4)
        parts = np.empty((-(-terms // each), count, columns), np.float32)
        fixed = (rows, np.ascontiguousarray(b).reshape(-1), count, terms, columns, parts.reshape(-1), each)
        kernel = matrices.multiply_columns
        split(lambda first, last: kernel(*fixed, first, last), len(parts), READ * 4 * each * columns, shares=SHARES)
        result = parts[0] if len(parts) == 1 else parts.sum(axis=0)
    return result.reshape(*a.shape[:-1], columns)


def _integers(a: Array, b: Array, stack: tuple[int, ...], one: bool) -> Array | None:
    """The product of stacks of matrices of integers of 32 or 64 bits; signed or not, it has the same bits."""
    from numbaops.kernels import matrices, products

    if not products.AVAILABLE:
        return None
    (count, terms), width = a.shape[-2:], b.shape[-1]
    rows = math.prod(stack) * count
    result = memory.empty((*stack, count, width), a.dtype, rows * width * a.itemsize)[0]
    factors = np.broadcast_to(a, (*stack, count, terms)), b if one else np.broadcast_to(b, (*stack, terms, width))
    signed = f"i{a.itemsize}"
    first, second = (np.ascontiguousarray(x).reshape(-1).view(signed) for x in factors)
    fixed: Any = (first, second, rows if one else count, terms, width, result.reshape(-1).view(signed))
    kernel: Any = matrices.multiply_integers
    split(lambda start, stop: kernel(*fixed, start, stop), rows, terms * width * a.itemsize // 4, shares=SHARES)
    return result


EXACT = 1 << 24
"""Up to here, float32 holds every integer: sums that stay below are exact in any order."""


def limit_of(x: Array, zero_point: Array | None) -> int:
    """The largest distance from the zero point that elements of the type of ``x`` can have."""
    low, high = (int(limit) for limit in (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max))
    points = [0] if zero_point is None or not zero_point.size else [int(zero_point.min()), int(zero_point.max())]
    return max(max(abs(low - point), abs(high - point)) for point in points)


def integers_multiplied(a: Array, b: Array, limit: int) -> Array | None:
    """The product of stacks of matrices of integers, given as float32, modulo 2**32; None where the kernel does not serve."""
    each = EXACT // max(1, limit)
    total: Array | None = None
    for start in range(0, a.shape[-1], each):
        found = multiplied(a[..., start : start + each], b[..., start : start + each, :] if b.ndim > 1 else b)
        if found is None:
            return None
        found = found.astype(np.int32)
        total = found if total is None else np.add(total, found, out=total)
    return total
