"""Convolutions by the kernels of ``numbaops.kernels.products``: how windows lie in memory, and how weights are laid out for them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from numbaops.ops._precision import narrowed, widened
from numbaops.ops._windows import Axis
from numbaops.ops.base import Array
from numbaops.runtime import memory
from numbaops.runtime.threads import split, thread_count

_FEW = 2
"""Output channels of one input channel up to which the input is walked along, not gathered."""

DIRECT_FROM = 1 << 12
"""Multiplications from which the kernel serves: fewer need no Numba."""

FEW_WINDOWS = 4
"""Windows of an image up to which the sums of many channels are made at once, not those of many windows."""

SHARES = 8
"""Shares of work for each thread: a unit takes up to 0.1 ms, and the last panel of a plane less."""

_NOTHING = np.empty(0, np.float32)
_FLOAT32 = np.dtype(np.float32)
_MOST_LAUNCHES = 64


def direct(x: Array, w: Array, axes: Sequence[Axis]) -> bool:
    """Whether the kernel serves for these inputs."""
    if x.dtype != _FLOAT32 or len(x) * w.size * math.prod(axis.count for axis in axes) < DIRECT_FROM:
        return False
    from numbaops.kernels import products

    return bool(products.AVAILABLE)


@dataclass(frozen=True, eq=False)
class Places:
    """Where the elements of windows lie in a plane.

    Attributes:
        sources: for each row of the kernel, where the elements of each row of windows begin; -1 for pads.
        cells: for each cell in a row of the kernel: where in a row of elements that of the first window lies, the first window that has
            one there, and the window behind the last such.
        width: windows in a row.
        stride: elements from a window to the next.
    """

    sources: Array
    cells: Array
    width: int
    stride: int


@functools.lru_cache(maxsize=512)
def places_of(axes: tuple[Axis, ...]) -> Places:
    """The places for windows along the spatial axes."""
    *outer, last = axes
    if all(axis.plain for axis in axes):  # each element is a window: one row of them
        size = math.prod(axis.size for axis in axes)
        return Places(np.zeros((1, 1), np.int64), np.array([[0, 0, size]]), size, 1)
    sources = []
    for taps in itertools.product(*(range(axis.kernel) for axis in outer)):
        for window in itertools.product(*(range(axis.count) for axis in outer)):
            row = 0
            for axis, cell, number in zip(outer, taps, window, strict=True):
                element = number * axis.stride + cell * axis.dilation - axis.begin
                row = row * axis.size + element if row >= 0 and 0 <= element < axis.size else -1
            sources.append(row * last.size if row >= 0 else -1)
    cells = np.zeros((last.kernel, 3), np.int64)
    cells[:, 0] = np.arange(last.kernel) * last.dilation - last.begin
    for cell, windows, _ in last.cells():
        cells[cell, 1:] = windows.start, windows.stop
    count = math.prod(axis.kernel for axis in outer)
    return Places(np.array(sources, np.int64).reshape(count, -1), cells, last.count, last.stride)


@dataclass(frozen=True, eq=False)
class Padded:
    """A plane with pads, and with the phases of strides apart.

    Attributes:
        rows: for each row, which row of the plane it is; -1 for a row of pads.
        phases: where in a stride each phase that the kernel sees begins.
        cells: elements of each phase of a row.
        taps: where each cell of the kernel lies, from the begin of its window.
        starts: where each row of windows begins.
    """

    rows: Array
    phases: Array
    cells: int
    taps: Array
    starts: Array


@functools.lru_cache(maxsize=512)
def padded_of(axes: tuple[Axis, ...]) -> Padded:
    """The padded plane for windows along the spatial axes."""
    offsets = [[cell * axis.dilation for cell in range(axis.kernel)] for axis in axes]
    phases = [sorted({offset % axis.stride for offset in some}) for axis, some in zip(axes, offsets, strict=True)]
    extents = [max(some) // axis.stride + axis.count for axis, some in zip(axes, offsets, strict=True)]
    radices = [len(phase) * extent for phase, extent in zip(phases, extents, strict=True)]
    outer = axes[:-1]

    def index(numbers: Sequence[int]) -> int:
        return functools.reduce(lambda total, pair: total * pair[1] + pair[0], zip(numbers, radices, strict=False), 0)

    rows = []
    for place in itertools.product(*(range(radix) for radix in radices[:-1])):
        row = 0
        for at, axis, phase, extent in zip(place, outer, phases, extents, strict=False):
            element = at % extent * axis.stride + phase[at // extent] - axis.begin
            row = row * axis.size + element if row >= 0 and 0 <= element < axis.size else -1
        rows.append(row)
    taps = []
    for cell in itertools.product(*offsets):
        numbers = [
            phase.index(offset % axis.stride) * extent + offset // axis.stride
            for offset, axis, phase, extent in zip(cell, axes, phases, extents, strict=True)
        ]
        taps.append(index(numbers))
    starts = [index((*place, 0)) for place in itertools.product(*(range(axis.count) for axis in outer))]
    tables = (np.array(numbers, np.int64) for numbers in (rows, phases[-1], taps, starts))
    row_table, phase_table, tap_table, start_table = tables
    return Padded(row_table, phase_table, extents[-1], tap_table, start_table)


def few_windows(axes: Sequence[Axis]) -> bool:
    """Whether an image has so few windows that a vector of them would be mostly empty."""
    return math.prod(axis.count for axis in axes) <= FEW_WINDOWS


def _table(places: Places, windows: int) -> Array:
    """Where in a plane the elements of each window lie, ``[windows, taps]``; -1 for pads."""
    row, column = np.divmod(np.arange(windows), places.width)
    shift, begin, end = places.cells.T
    inside = (places.sources[:, row, np.newaxis] >= 0) & (begin <= column[:, np.newaxis]) & (column[:, np.newaxis] < end)
    found = places.sources[:, row, np.newaxis] + column[:, np.newaxis] * places.stride + shift
    return np.ascontiguousarray(np.where(inside, found, -1).transpose(1, 0, 2)).reshape(windows, -1)


def blocks_of_unit(blocks: int, panels: int) -> int:
    """Blocks of rows in a unit of work, such that there are units enough for all threads to end at about the same time.

    Each unit gathers its panel anew, so that there must not be too many.
    """
    threads = thread_count()
    chunks = 1 if threads == 1 else -(-4 * threads // panels)
    return -(-blocks // min(chunks, blocks))


PLANES_FROM = 1 << 15
"""Elements from which the kernel scales planes: fewer take NumPy less time, and need no Numba."""


def representable(numbers: Array) -> bool:
    """Whether float32 holds numbers of float64 with all its digits: none is beyond its range, or so small that digits are lost."""
    limits = np.finfo(np.float32)
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    return bool(((sizes >= limits.tiny) & (sizes <= limits.max)).all())


class ScaledPlanes:
    """Factors and summands for channels, and limits, known beforehand.

    Args:
        scale: a factor for each channel.
        shift: a summand for each channel.
        low: smaller results become this.
        high: larger results become this.
        rank: dimensions that an input must have; None for any.
        dtype: the type that an input must have; None for any.
    """

    def __init__(self, scale: Array, shift: Array, low: float, high: float, rank: int | None, dtype: np.dtype[Any] | None) -> None:
        self._dtype = dtype
        self._usable = representable(scale) and representable(shift)
        with np.errstate(all="ignore"):
            self._scale, self._shift = scale.astype(np.float32), shift.astype(np.float32)
        self._low, self._high, self._rank = low, high, rank

    def __call__(self, x: Array) -> Array | None:
        """The result for ``[N, C, ...]`` of float32 or a 16-bit type; None if it is small, or of another type or shape."""
        wide = widened(x)
        if not self._usable or (self._dtype is not None and x.dtype != self._dtype):
            return None
        fits = x.ndim >= 2 and x.shape[1] == len(self._scale) and self._rank in (None, x.ndim)
        if not fits or wide.dtype != np.float32 or x.size < PLANES_FROM:
            return None
        from numbaops.kernels import planes, products

        if not products.AVAILABLE:
            return None
        result = memory.empty(x.shape, wide.dtype, 4 * x.size)[0]
        count = math.prod(x.shape[:2])
        plane = x.size // count
        kernel: Any = planes.scale_planes
        fixed: Any = (np.ascontiguousarray(wide).reshape(-1), self._scale, self._shift, self._low, self._high, plane, result.reshape(-1))
        split(lambda first, last: kernel(*fixed, first, last), count, 16 * plane)
        return narrowed(result, x.dtype)


class _Launch(NamedTuple):
    """How a kernel is called for inputs of one shape: with ``x, *before, out, *between, residual, low, high, *after, first, last``."""

    axes: tuple[Axis, ...]
    shape: tuple[int, ...]
    nbytes: int
    kernel: Any
    before: tuple[Any, ...]
    between: tuple[Any, ...]
    after: tuple[Any, ...]
    units: int
    work: int


class Convolution:
    """A convolution of float32 with known weights, laid out once.

    Args:
        w: ``[M, C / group, k1, ...]``, float32.
        bias: ``[M]``, float32, or None.
        group: groups of channels.
        few: whether the weights are laid out for few windows, see :func:`few_windows`.
    """

    def __init__(self, w: Array, bias: Array | None, group: int, few: bool) -> None:
        self.group = group
        self.count, self.channels = w.shape[:2]
        self.taps = math.prod(w.shape[2:])
        self.per_group = self.count // group
        given = np.zeros(self.count, np.float32) if bias is None else bias
        self._launches: dict[tuple[int, ...], _Launch] = {}
        self._planes = self.channels == 1 and self.per_group <= _FEW
        self._few = few
        if self._planes:
            self.weights, self.bias = np.ascontiguousarray(w).reshape(-1), np.ascontiguousarray(given)
        else:
            self._lay_out(w.reshape(self.count, self.channels, self.taps), given)

    def _lay_out(self, w: Array, bias: Array) -> None:
        from numbaops.kernels import products

        rows, per_group, group = products.COLUMNS if self._few else products.ROWS, self.per_group, self.group
        self.blocks = -(-per_group // rows)
        each = products.panel_channels(self.taps, self.channels)
        if self.taps > 1 and not self._few:
            parts = [w[:, start : start + each].transpose(0, 2, 1).reshape(self.count, -1) for start in range(0, self.channels, each)]
            w = np.concatenate(parts, 1)
        packed = np.zeros((group, self.blocks * rows, self.channels * self.taps), np.float32)
        packed[:, :per_group] = w.reshape(group, per_group, -1)
        self.weights = np.ascontiguousarray(packed.reshape(group, self.blocks, rows, -1).transpose(0, 1, 3, 2)).reshape(-1)
        biases = np.zeros((group, self.blocks * rows), np.float32)
        biases[:, :per_group] = bias.reshape(group, per_group)
        self.bias = biases.reshape(-1)

    def __call__(
        self, x: Array, axes: tuple[Axis, ...], residual: Array | None = None, low: float = -math.inf, high: float = math.inf
    ) -> Array:
        """The windows of ``x``, ``[N, C, D1, ...]`` of float32, times the weights, plus the bias and the residual, within limits."""
        launch = self._launches.get(x.shape)
        if launch is None or launch.axes is not axes:
            if len(self._launches) >= _MOST_LAUNCHES:
                self._launches.clear()
            self._launches[x.shape] = launch = self._launch(x.shape, axes)
        result = memory.empty(launch.shape, _FLOAT32, launch.nbytes)[0]
        added = _NOTHING if residual is None else np.ascontiguousarray(residual).reshape(-1)
        flat = (x if x.flags.c_contiguous else np.ascontiguousarray(x)).reshape(-1)
        kernel = launch.kernel
        fixed = (flat, *launch.before, result.reshape(-1), *launch.between, added, low, high, *launch.after)
        split(lambda first, stop: kernel(*fixed, first, stop), launch.units, launch.work, shares=SHARES)
        return result

    def _launch(self, given: tuple[int, ...], axes: tuple[Axis, ...]) -> _Launch:
        from numbaops.kernels import few_windows, planes, products

        counts = tuple(axis.count for axis in axes)
        windows, plane = math.prod(counts), math.prod(given[2:])
        shape = (given[0], self.count, *counts)
        nbytes = 4 * math.prod(shape)
        # a multiplication and an addition take about as long as two bytes of a copy
        if self._planes:
            padded, last = padded_of(axes), axes[-1]
            rows: tuple[Any, ...] = (padded.rows, last.size, last.begin, last.stride, padded.phases, padded.cells, padded.taps)
            before = (plane, *rows, padded.starts, last.count, self.weights, self.bias)
            after: tuple[Any, ...] = (self.count, self.per_group)
            return _Launch(axes, shape, nbytes, planes.convolve_planes, before, (), after, given[0] * self.count, 4 * windows * self.taps)
        places = places_of(axes)
        if self._few:
            table, number = _table(places, windows), given[0] * windows
            before = (plane, self.group, table, self.channels, self.weights, self.bias)
            units = -(-number // products.ROWS) * self.group * self.blocks
            work = 4 * products.COLUMNS * self.channels * self.taps
            return _Launch(axes, shape, nbytes, few_windows.convolve_few, before, (self.per_group, number), (), units, work)
        panels = given[0] * self.group * -(-windows // products.COLUMNS)
        each = blocks_of_unit(self.blocks, panels)
        rows = (places.sources, places.width, places.stride, places.cells)
        before = (plane, self.group, *rows, self.channels, self.weights, self.bias)
        work = 2 * products.ROWS * each * products.COLUMNS * self.channels * self.taps
        units = panels * -(-self.blocks // each)
        return _Launch(axes, shape, nbytes, products.convolve, before, (self.per_group, windows), (each,), units, work)


MATRIX_FROM = 1 << 18
"""Multiplications from which the kernel multiplies matrices: fewer take BLAS less time."""

LEAST_ROWS = 4
"""Rows of the first matrix from which the kernel serves: with fewer, most of a tile would be for nothing."""


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
    """The product of stacks of matrices of float32, ``[..., M, K]`` and ``[..., K, N]``; None where BLAS serves.

    A BLAS of several threads would take their cores from other kernels: it lets them wait in a loop for what comes next.
    """
    if a.dtype != np.float32 or b.dtype != np.float32 or a.ndim < 2 or b.ndim < 2 or b.shape[-2] != a.shape[-1]:
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
    result = np.empty((*a.shape[:-1], b.shape[1]), np.float32)
    by_rows = b.flags.f_contiguous and not b.flags.c_contiguous
    matrix = (b.T if by_rows else np.ascontiguousarray(b)).reshape(-1)
    fixed: Any = (np.ascontiguousarray(a).reshape(-1), matrix, count, terms, result.reshape(-1))
    kernel: Any = matrices.multiply_rows if by_rows else matrices.multiply_columns
    split(lambda first, last: kernel(*fixed, first, last), b.shape[1], 4 * terms, products.LANES)
    return result


EXACT = 1 << 24
"""Up to here, float32 holds every integer: sums that stay below are exact in any order."""


def limit_of(x: Array, zero_point: Array | None) -> int:
    """The largest distance from the zero point that elements of the type of ``x`` can have."""
    low, high = (int(limit) for limit in (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max))
    points = [0] if zero_point is None or not zero_point.size else [int(zero_point.min()), int(zero_point.max())]
    return max(max(abs(low - point), abs(high - point)) for point in points)


def integers_convolved(x: Array, w: Array, axes: tuple[Axis, ...], group: int, limit: int) -> Array | None:
    """The convolution of integers, given as float32, modulo 2**32; None where the kernel does not serve.

    Args:
        x: ``[N, C, D1, ...]``.
        w: ``[M, C / group, k1, ...]``.
        axes: the windows.
        group: groups of channels.
        limit: what the product of an element of ``x`` and one of ``w`` does not exceed.
    """
    each = EXACT // max(1, limit) // max(1, math.prod(w.shape[2:]))  # channels of which sums are exact
    if not each or not direct(x, w, axes):
        return None
    channels = w.shape[1]
    total: Array | None = None
    grouped = x.reshape(len(x), group, channels, *x.shape[2:])
    for start in range(0, channels, each):
        part = x if each >= channels else grouped[:, :, start : start + each].reshape(len(x), -1, *x.shape[2:])
        found = Convolution(w[:, start : start + each], None, group, few_windows(axes))(part, axes).astype(np.int32)
        total = found if total is None else np.add(total, found, out=total)
    return total


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
