"""Operators that move elements of any type about: shapes, slices, joins, repeats (of the family ``onnx/defs/tensor``).

What only depends on attributes is prepared once, and results are views where NumPy can give one: these are the operators of the small
subgraphs that compute shapes, where a call costs more than its work.

https://onnx.ai/onnx/operators/onnx__Reshape.html and the other operators in ``LEAVES``
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._axes import axis_range, integers, normalized_axis
from numbaops.ops._padding import Pad, center_crop_pad, pad_by_attributes
from numbaops.ops._precision import check_same_type
from numbaops.ops._rearranging import depth_to_space, reverse_sequence, space_to_depth, trilu
from numbaops.ops._shapes import (
    ALL,
    Reshape,
    Squeeze,
    Unsqueeze,
    by_rank,
    flatten,
    known_integers,
    reshape_to_attribute,
    squeeze_by_attribute,
    unsqueeze_by_attribute,
)
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf

_Function = Callable[..., Any]

EXPAND_COPIES_BELOW = 1 << 14
"""Elements up to which Expand writes its result out: 0.4 us for a small one, where ``np.broadcast_to`` takes 2.4 us."""


def transpose(perm: Sequence[int] = ()) -> _Function:
    """Transpose: the dimensions in the order ``perm``, reversed by default."""
    order = tuple(perm) or None

    def call(data: Array) -> Array:
        try:
            return data.transpose(order)
        except ValueError:
            raise InvalidValueError(
                f"perm is {list(perm)} for an input of shape {list(data.shape)}; allowed: every axis once", attribute="perm"
            ) from None

    return call


def concat(axis: int = 1) -> _Function:
    """Concat: the inputs one after the other along ``axis``, which is 1 by default in version 1 and required later."""

    def call(*inputs: Array) -> Array:
        check_same_type(*inputs)
        try:
            return np.concatenate(inputs, axis)
        except ValueError:
            rank = max(each.ndim for each in inputs)
            if not -rank <= axis < rank:
                raise InvalidValueError(
                    f"axis {axis} is out of range for input rank {rank}; allowed: {-rank} to {rank - 1}", attribute="axis"
                ) from None
            shapes = ", ".join(str(list(each.shape)) for each in inputs)
            raise InvalidValueError(
                f"axis is {axis} for inputs of shape {shapes}; allowed: equal shapes but for the dimension axis", attribute="axis"
            ) from None

    return call


def split(outputs: int, axis: int = 0, num_outputs: int | None = None) -> _Function:
    """Split: parts along ``axis``, of given lengths, or else equal; since 18 the last one may be smaller."""

    if num_outputs is not None and num_outputs < 1:
        raise InvalidValueError(f"num_outputs is {num_outputs}; allowed: from 1 on", attribute="num_outputs")

    def call(data: Array, split: Array | None = None) -> tuple[Array, ...]:
        if num_outputs is not None and split is not None:
            raise InvalidValueError(
                "the input split and the attribute num_outputs are given; allowed: one of them", attribute="num_outputs"
            )
        return _parts(data, split, axis, num_outputs or outputs, outputs, True)

    return call


def split_evenly(outputs: int, axis: int = 0) -> _Function:
    """Split before 18, whose parts without given lengths must be equal; the lengths are an input."""
    return lambda data, split=None: _parts(data, split, axis, outputs, outputs, False)


def split_by_attribute(outputs: int, axis: int = 0, split: Sequence[int] | None = None) -> _Function:
    """Split before 13, whose lengths are an attribute; in version 1 they may also be an input, of the data's type."""

    def call(data: Array, lengths: Array | None = None) -> tuple[Array, ...]:
        given = split or None if lengths is None else lengths.astype(np.int64)
        return _parts(data, given, axis, outputs, outputs, False)

    return call


def _parts(data: Array, lengths: Any, axis: int, count: int, outputs: int, uneven: bool) -> tuple[Array, ...]:
    position = normalized_axis(axis, data.ndim)
    size = data.shape[position]
    if lengths is None:
        step = -(-size // count)
        if size % count and not uneven:
            raise InvalidValueError(f"dimension {position} is {size}, which {count} equal parts cannot share; give the lengths")
        ends = [min(step * number, size) for number in range(1, count + 1)]
    else:
        ends = part_ends(integers(lengths, "split"), size)
    if len(ends) < outputs:
        raise InvalidValueError(f"there are {len(ends)} parts for {outputs} outputs", attribute="split")
    return tuple(parts(data, position, ends))


def part_ends(lengths: list[int], size: int) -> list[int]:
    """Where parts of the given lengths end in a dimension of that size, of which nothing may be left."""
    if min(lengths, default=0) < 0 or sum(lengths) != size:
        raise InvalidValueError(f"split is {lengths}; allowed: lengths from 0 on whose sum is {size}", attribute="split")
    return list(itertools.accumulate(lengths))


def parts(data: Array, axis: int, ends: Sequence[int]) -> list[Array]:
    """Views of the parts of ``data`` along ``axis`` that end there, each beginning where the one before ends."""
    before = (ALL,) * axis
    return [data[(*before, slice(start, end))] for start, end in zip((0, *ends), ends, strict=False)]


class Slice:
    """Slice: a view of every step-th element from start to end along the given axes, or along the first ones."""

    def __call__(self, data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
        """The output."""
        first = integers(starts, "starts")
        return _sliced(
            data,
            first,
            integers(ends, "ends"),
            range(len(first)) if axes is None else integers(axes, "axes"),
            None if steps is None else integers(steps, "steps"),
        )

    def prepared(self, data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> _Function | None:
        """The same for known bounds. Where a step goes backward they depend on the shape, and nothing is prepared."""
        given = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
        known = {name: known_integers(values, name) for name, values in given.items() if values is not None}
        first, last = known.get("starts"), known.get("ends")
        if first is None or last is None or None in known.values():
            return None
        along, by = known.get("axes", range(len(first))), known.get("steps")
        if along is None or not len(first) == len(last) == len(along) == len(along if by is None else by) or min(by or (1,)) < 1:
            return None
        return by_rank(lambda rank: _part_index((0,) * rank, first, last, along, by))


def slice_by_attributes(starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] = ()) -> _Function:
    """Slice-1, whose bounds are attributes; empty axes count as absent."""
    along = axes or range(len(starts))
    return by_rank(lambda rank: _part_index((0,) * rank, starts, ends, along, None))


def _sliced(data: Array, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int] | None) -> Array:
    return data[_part_index(data.shape, starts, ends, axes, steps)]  # type: ignore[no-any-return]


def _part_index(
    shape: tuple[int, ...], starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int] | None
) -> tuple[Any, ...]:
    """What to index an array of that shape with; lengths count only where a step goes backward."""
    if not len(starts) == len(ends) == len(axes) == len(axes if steps is None else steps):
        given = f"starts {list(starts)}, ends {list(ends)}, axes {list(axes)}, steps {steps}"
        raise InvalidValueError(f"{given} are given; allowed: as many of each")
    if steps is not None and 0 in steps:
        raise InvalidValueError(f"steps are {steps}; allowed: any but 0", attribute="steps")
    index: list[Any] = [ALL] * len(shape)
    try:
        for number, axis in enumerate(axes):
            start, step = starts[number], None if steps is None else steps[number]
            if step is not None and step < 0:
                # going backward, ONNX begins at the first element where NumPy finds none
                start = max(start, -shape[axis])
            index[axis] = slice(start, ends[number], step)
    except IndexError:
        raise InvalidValueError(f"axes are {list(axes)}; allowed: {axis_range(len(shape))}", attribute="axes") from None
    return (*index, ...)


def expand(data: Array, shape: Array) -> Array:
    """Expand: broadcast with ``shape``; a view whose elements repeat when the result is large."""
    wanted = integers(shape, "shape")
    dims = [*data.shape[: max(data.ndim - len(wanted), 0)], *wanted]
    for axis, size in enumerate(data.shape, len(dims) - data.ndim):
        if dims[axis] == 1:
            dims[axis] = size
    try:
        if math.prod(dims) > EXPAND_COPIES_BELOW:
            return np.broadcast_to(data, dims)
        out = np.empty(dims, data.dtype)
        out[...] = data
        return out
    except ValueError:
        raise InvalidValueError(
            f"shape is {wanted}, which does not broadcast with the input's shape {list(data.shape)}", attribute="shape"
        ) from None


def tile(data: Array, repeats: Array) -> Array:
    """Tile: the input repeated along each dimension."""
    counts = integers(repeats, "repeats")
    if len(counts) != data.ndim or min(counts, default=0) < 0:
        raise InvalidValueError(f"repeats are {counts}; allowed: {data.ndim} numbers from 0 on, one a dimension", attribute="repeats")
    # each dimension becomes two, (repeat, size); one assignment then fills the result
    out = np.empty([number for pair in zip(counts, data.shape, strict=True) for number in pair], data.dtype)
    out[...] = data.reshape([number for size in data.shape for number in (1, size)])
    return out.reshape([count * size for count, size in zip(counts, data.shape, strict=True)])


def tile_along(data: Array, tiles: Array, axis: Array) -> Array:
    """Tile-1: repeated along one axis; number and axis are tensors of the data's type."""
    counts = np.ones(data.ndim, np.int64)
    counts[normalized_axis(_whole_number(axis, "axis"), data.ndim)] = _whole_number(tiles, "tiles")
    return tile(data, counts)


def _whole_number(value: Array, what: str) -> int:
    """The whole number in a tensor of one float."""
    if value.size != 1 or not float(value.reshape(-1)[0]).is_integer():
        raise InvalidValueError(f"{what} is {value.tolist()}; allowed: one whole number", attribute=what)
    return int(value.reshape(-1)[0])


def identity(value: Any) -> Any:
    """Identity, of tensors, sequences and optional values."""
    return value


def shape_(start: int = 0, end: int | None = None) -> _Function:
    """Shape: the dimensions from ``start`` to ``end``."""
    if start == 0 and end is None:
        return lambda data: np.array(data.shape, np.int64)
    return lambda data: np.array(data.shape[start:end], np.int64)


def size(data: Array) -> Array:
    """Size: the number of elements."""
    return np.array(data.size, np.int64)


_OF_TENSORS = (21, 23, 24, 25)  # the opsets that added element types to what moves any tensor

LEAVES: tuple[Leaf, ...] = (
    Leaf("Reshape", (1,), reshape_to_attribute, aliases=True, bind=True),
    Leaf("Reshape", (5, 13, 14, 19, *_OF_TENSORS), Reshape, aliases=True, bind=True),
    Leaf("Flatten", (1, 9, 11, 13, *_OF_TENSORS), flatten, aliases=True, bind=True),
    Leaf("Squeeze", (1, 11), squeeze_by_attribute, aliases=True, bind=True),
    Leaf("Squeeze", (13, *_OF_TENSORS), Squeeze, aliases=True, bind=True),
    Leaf("Unsqueeze", (1, 11), unsqueeze_by_attribute, aliases=True, bind=True),
    Leaf("Unsqueeze", (13, *_OF_TENSORS), Unsqueeze, aliases=True, bind=True),
    Leaf("Transpose", (1, 13, *_OF_TENSORS), transpose, aliases=True, bind=True),
    Leaf("Concat", (1, 4, 11, 13), concat, bind=True),
    Leaf("Split", (1, 2, 11), split_by_attribute, aliases=True, bind=True),
    Leaf("Split", (13,), split_evenly, aliases=True, bind=True),
    Leaf("Split", (18,), split, aliases=True, bind=True),
    Leaf("Slice", (1,), slice_by_attributes, aliases=True, bind=True),
    Leaf("Slice", (10, 11, 13), Slice, aliases=True, bind=True),
    Leaf("Pad", (1, 2), pad_by_attributes, aliases=True, bind=True),
    Leaf("Pad", (11, 13, 18, 19, *_OF_TENSORS), Pad, aliases=True, bind=True),
    Leaf("Tile", (1,), tile_along),
    Leaf("Tile", (6, 13), tile),
    Leaf("Expand", (8, 13), expand, aliases=True),
    Leaf("Identity", (1, 13, 14, 16, 19, *_OF_TENSORS), identity, aliases=True),
    Leaf("Shape", (1, 13, 15, 19, *_OF_TENSORS), shape_, bind=True),
    Leaf("Size", (1, 13, 19, *_OF_TENSORS), size),
    Leaf("DepthToSpace", (1, 11, 13, 28), depth_to_space, aliases=True, bind=True),
    Leaf("SpaceToDepth", (1, 13, 28), space_to_depth, aliases=True, bind=True),
    Leaf("Trilu", (14,), trilu, bind=True),
    Leaf("CenterCropPad", (18,), center_crop_pad, aliases=True, bind=True),
    Leaf("ReverseSequence", (10, 28), reverse_sequence, bind=True),
)
