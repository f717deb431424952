"""Operators that rearrange the elements of images, matrices and batches of sequences.

https://onnx.ai/onnx/operators/onnx__DepthToSpace.html, onnx__SpaceToDepth.html, onnx__Trilu.html, onnx__ReverseSequence.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._axes import single_integer
from numbaops.ops._elements import triangle
from numbaops.ops.base import Array

# Where each of the six dimensions (batch, ...) goes; the block's two dimensions come first in DCR, the depth in CRD.
_DEPTH_TO_SPACE = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}
_SPACE_TO_DEPTH = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}


def depth_to_space(blocksize: int, mode: str = "DCR") -> Callable[..., Array]:
    """DepthToSpace: blocks of the depth dimension moved to height and width."""
    order = _order(_DEPTH_TO_SPACE, mode, blocksize)

    def call(data: Array) -> Array:
        batch, depth, height, width = _image_shape(data)
        rest = depth // blocksize**2
        if rest * blocksize**2 != depth:
            raise InvalidValueError(f"the depth is {depth}; allowed: multiples of {blocksize**2}, the square of blocksize")
        block = (blocksize, blocksize)
        split_up = (batch, *block, rest, height, width) if mode == "DCR" else (batch, rest, *block, height, width)
        return data.reshape(split_up).transpose(order).reshape(batch, rest, height * blocksize, width * blocksize)

    return call


def space_to_depth(blocksize: int, mode: str = "DCR") -> Callable[..., Array]:
    """SpaceToDepth: blocks of height and width moved to the depth dimension."""
    order = _order(_SPACE_TO_DEPTH, mode, blocksize)

    def call(data: Array) -> Array:
        batch, depth, height, width = _image_shape(data)
        rows, columns = height // blocksize, width // blocksize
        if (rows * blocksize, columns * blocksize) != (height, width):
            raise InvalidValueError(f"height and width are {height} and {width}; allowed: multiples of blocksize, {blocksize}")
        split_up = data.reshape(batch, depth, rows, blocksize, columns, blocksize)
        return split_up.transpose(order).reshape(batch, depth * blocksize**2, rows, columns)

    return call


def _order(orders: Mapping[str, tuple[int, ...]], mode: str, blocksize: int) -> tuple[int, ...]:
    if blocksize < 1:
        raise InvalidValueError(f"blocksize is {blocksize}; allowed: from 1 on", attribute="blocksize")
    if mode not in orders:
        raise InvalidValueError(f"mode is {mode!r}; allowed: {', '.join(orders)}", attribute="mode")
    return orders[mode]


def _image_shape(data: Array) -> tuple[int, ...]:
    if data.ndim != 4:
        raise InvalidValueError(f"the input has the shape {list(data.shape)}; allowed: rank 4 (batch, depth, height, width)")
    return data.shape


def trilu(upper: int = 1) -> Callable[..., Array]:
    """Trilu: the upper or lower triangle of each matrix, zeros elsewhere."""

    def call(data: Array, k: Array | None = None) -> Array:
        if data.ndim < 2:
            raise InvalidValueError(f"the input has the shape {list(data.shape)}; allowed: rank 2 and more")
        rows, columns = data.shape[-2:]
        offset = 0 if k is None else max(-rows - 1, min(single_integer(k, "k"), columns + 1))
        found = triangle(data, offset, bool(upper))
        if found is not None:
            return found
        # the mask is of what lies strictly below the diagonal, or on and below it
        mask = np.tri(rows, columns, offset - 1 if upper else offset, np.bool_)
        zero = np.array("", object) if data.dtype == object else np.zeros((), data.dtype)
        return np.where(mask, zero, data) if upper else np.where(mask, data, zero)

    return call


def reverse_sequence(batch_axis: int = 1, time_axis: int = 0) -> Callable[..., Array]:
    """ReverseSequence: the first elements of each sequence of a batch in reverse order."""
    if {batch_axis, time_axis} != {0, 1}:
        raise InvalidValueError(f"batch_axis is {batch_axis} and time_axis {time_axis}; allowed: 0 and 1, in either order")

    def call(data: Array, sequence_lens: Array) -> Array:
        if data.ndim < 2:
            raise InvalidValueError(f"the input has the shape {list(data.shape)}; allowed: rank 2 and more")
        batch, steps = data.shape[batch_axis], data.shape[time_axis]
        lengths = sequence_lens.astype(np.int64)
        if lengths.shape != (batch,) or (batch and not (lengths.min() >= 0 and lengths.max() <= steps)):
            raise InvalidValueError(
                f"sequence_lens is {sequence_lens.tolist()}; allowed: {batch} numbers from 0 to {steps}", attribute="sequence_lens"
            )
        time = np.arange(steps)
        sources = np.where(time < lengths[:, None], lengths[:, None] - 1 - time, time)
        rows = np.arange(batch)
        return data[rows[:, None], sources] if batch_axis == 0 else data[sources.T.copy(), rows]

    return call
