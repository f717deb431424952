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
from numbaops.ops._products import SHARES
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
