"""Windows that slide over the spatial axes of ``[N, C, D1, ..., Dn]``: where they lie, and how to walk them without a loop over them.

Pooling, convolution and their reverses share the arithmetic. A loop runs over the cells of a kernel at most; each step of it takes that
cell of all windows at once, as a strided slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops.base import Array

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True, slots=True)
class Axis:
    """The windows along one axis: ``count`` windows of ``kernel`` cells over ``size`` elements.

    Cell ``k`` of window ``o`` lies at ``o * stride + k * dilation - begin``, which may be outside of the elements.
    """

    size: int
    kernel: int
    count: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0

    @property
    def plain(self) -> bool:
        """Whether the windows are the elements themselves."""
        return self.kernel == self.stride == 1 and not self.begin and self.count == self.size

    def cells(self) -> Iterator[tuple[int, slice, slice]]:
        """For each cell of the kernel that meets an element: its number, the windows where it does, and these elements."""
        for cell in range(self.kernel):
            start = cell * self.dilation - self.begin
            first = max(0, -(start // self.stride))
            last = min(self.count, (self.size - 1 - start) // self.stride + 1)
            if first < last:
                begin = first * self.stride + start
                yield cell, slice(first, last), slice(begin, begin + (last - first - 1) * self.stride + 1, self.stride)

    def cells_within(self, *, padded: bool) -> Array:
        """How many cells of each window lie on elements, or ``padded``, on elements and pads; never beyond the pads."""
        low, high = (-self.begin, self.size + self.end) if padded else (0, self.size)
        starts = np.arange(self.count, dtype=np.int64) * self.stride - self.begin
        first = np.clip(-((starts - low) // self.dilation), 0, self.kernel)
        last = np.clip((high - 1 - starts) // self.dilation + 1, 0, self.kernel)
        counts: Array = np.maximum(last - first, 0)
        return counts


def windows(
    size: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> tuple[Axis, ...]:
    """The windows along each spatial axis, as the attributes of the pools and of Conv have them.

    Of a ``ceil_mode`` that gives a last window in the end's pad nothing is left: it is ignored. The pads of ``SAME_UPPER`` and
    ``SAME_LOWER`` take the dilated kernel, and are never negative.

    Raises:
        InvalidValueError: a length or a value that is not allowed.
    """
    rank = len(size)
    positive("kernel_shape", kernel, rank)
    strides = positive("strides", strides, rank)
    dilations = positive("dilations", dilations, rank)
    begins, ends = both_pads(pads, rank)
    if auto_pad not in AUTO_PADS:
        raise InvalidValueError(f"auto_pad is {auto_pad!r}; allowed: {', '.join(AUTO_PADS)}", attribute="auto_pad")
    axes = []
    for length, cells, stride, dilation, begin, end in zip(size, kernel, strides, dilations, begins, ends, strict=True):
        extent = (cells - 1) * dilation + 1
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-length // stride)
            begin, end = halves(max(0, (count - 1) * stride + extent - length), upper=auto_pad == "SAME_UPPER")
        else:
            if auto_pad == "VALID":
                begin = end = 0
            room = length + begin + end - extent
            count = (-(-room // stride) if ceil_mode else room // stride) + 1
            if ceil_mode and (count - 1) * stride >= length + begin:
                count -= 1
            if count < 1 and length:
                raise InvalidValueError(
                    f"the kernel spans {extent} elements of an axis that has {length} and pads of {begin} and {end}; allowed: at most all",
                    attribute="kernel_shape",
                )
        axes.append(Axis(length, cells, max(0, count), stride, dilation, begin, end))
    return tuple(axes)


def halves(total: int, *, upper: bool) -> tuple[int, int]:
    """``total`` pads as begin and end; the odd one is at the end if ``upper``."""
    small = total // 2
    return (small, total - small) if upper else (total - small, small)


def positive(name: str, values: Sequence[int] | None, rank: int) -> Sequence[int]:
    """An attribute with a positive number for each spatial axis; ones if it is absent."""
    if values is None:
        return (1,) * rank
    if len(values) != rank or min(values, default=1) < 1:
        raise InvalidValueError(f"{name} is {list(values)}; allowed: a number above 0 for each of {rank} spatial axes", attribute=name)
    return values


def both_pads(pads: Sequence[int] | None, rank: int) -> tuple[Sequence[int], Sequence[int]]:
    """The attribute ``pads`` as begins and ends; zeros if it is absent."""
    if pads is None:
        return (0,) * rank, (0,) * rank
    if len(pads) != 2 * rank or min(pads, default=0) < 0:
        text = f"pads is {list(pads)}; allowed: {2 * rank} numbers from 0 on, the begins of {rank} spatial axes, then the ends"
        raise InvalidValueError(text, attribute="pads")
    return pads[:rank], pads[rank:]


def fold_windows(x: Array, axes: Sequence[Axis], combine: Callable[..., Any], start: Any) -> Array:
    """``[N, C, D1, ...]`` combined over each window to ``[N, C, O1, ...]``; a window without elements gives ``start``.

    The axes go one after the other, so that a kernel of k x k costs 2k steps; the first axes first, for their slices are contiguous.

    Args:
        x: the elements.
        axes: the windows along each spatial axis.
        combine: a ufunc that is associative and commutative, of which ``start`` is the identity.
        start: the identity.
    """
    result = x
    for position, axis in enumerate(axes, 2):
        if axis.plain:
            continue
        source = result
        result = np.full((*source.shape[:position], axis.count, *source.shape[position + 1 :]), start, source.dtype)
        lead = (slice(None),) * position
        for _, where, elements in axis.cells():
            part = result[(*lead, where)]
            combine(part, source[(*lead, elements)], out=part)
    return result.copy() if result is x else result


def columns(x: Array, axes: Sequence[Axis]) -> Array:
    """All windows of ``[N, C, D1, ...]`` as ``[N, C, k1, ..., kn, O1, ..., On]``, pads being 0; a view where there are no pads."""
    if all(axis.plain for axis in axes):
        return x.reshape(*x.shape[:2], *(1,) * len(axes), *x.shape[2:])
    if 0 in [axis.count for axis in axes]:
        return np.empty((*x.shape[:2], *(axis.kernel for axis in axes), *(axis.count for axis in axes)), x.dtype)
    if any(axis.begin or axis.end for axis in axes):
        padded = np.zeros((*x.shape[:2], *(axis.begin + axis.size + axis.end for axis in axes)), x.dtype)
        inside: Any = (..., *(slice(axis.begin, axis.begin + axis.size) for axis in axes))
        padded[inside] = x
        x = padded
    extents = [(axis.kernel - 1) * axis.dilation + 1 for axis in axes]
    spatial = tuple(range(2, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, extents, spatial)
    steps = [slice(None, None, axis.stride) for axis in axes] + [slice(None, None, axis.dilation) for axis in axes]
    rank = len(axes)
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    return view[(slice(None), slice(None), *steps)].transpose(order)


def add_columns(parts: Array, axes: Sequence[Axis]) -> Array:
    """The reverse of :func:`columns`: ``[N, C, k1, ..., kn, O1, ..., On]`` added up to ``[N, C, D1, ..., Dn]``.

    The last axes go first, so that a kernel of k x k costs 2k steps.
    """
    for left in range(len(axes), 0, -1):
        # [N, C, k1, ..., kj, O1, ..., Oj, Dj+1, ...], j being what is left: fold kj and Oj to Dj
        axis, source, kernel_at, count_at = axes[left - 1], parts, 1 + left, 1 + 2 * left
        shape = (*source.shape[:kernel_at], *source.shape[kernel_at + 1 : count_at], axis.size, *source.shape[count_at + 1 :])
        parts = np.full(shape, "", object) if source.dtype == object else np.zeros(shape, source.dtype)
        lead: Any = (slice(None),) * kernel_at
        between: Any = (slice(None),) * (count_at - kernel_at - 1)
        for cell, where, elements in axis.cells():
            part = parts[(*lead, *between, elements)]
            np.add(part, source[(*lead, cell, *between, where)], out=part)
    return parts


def spatial_shape(x: Array) -> tuple[int, ...]:
    """The spatial dimensions of an input ``[N, C, D1, ..., Dn]``.

    Raises:
        InvalidValueError: there are none.
    """
    if x.ndim < 3:
        raise InvalidValueError(f"the input has shape {list(x.shape)}; allowed: [N, C, D1, ...], of rank 3 or more")
    return x.shape[2:]


def size_of(axes: Sequence[Axis]) -> int:
    """How many windows there are."""
    return math.prod(axis.count for axis in axes)
