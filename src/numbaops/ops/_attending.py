"""Attention and RotaryEmbedding by the kernels of ``numbaops.kernels.attention`` and ``rotation``."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from numbaops.ops._precision import narrowed, widened
from numbaops.ops._products import LEAST_ROWS, SHARES, flat_memory
from numbaops.ops.base import Array
from numbaops.runtime import memory
from numbaops.runtime.threads import split, thread_count

ATTEND_FROM = 1 << 16
"""Multiplications of queries and keys from which the kernel serves: fewer take NumPy less time."""

ROTATE_FROM = 1 << 12
"""Elements from which the kernel rotates: fewer take NumPy less time."""

FAR = 1 << 60
"""More than any distance of keys; sums with a position stay within 64 bits."""

_FLOAT32 = np.dtype(np.float32)


class Sight(NamedTuple):
    """Which keys each query may attend to, without the mask.

    Attributes:
        offset: the position of the first query among the keys, ``[batch, 1, 1, 1]`` if each batch has its own.
        lengths: how many keys are no padding, of the same shape; None for all.
        is_causal: whether keys after the query's position are hidden.
        left: how many keys before the query's position are visible, -1 for all.
        right: how many after it.
    """

    offset: int | Array
    lengths: Array | None
    is_causal: bool
    left: int
    right: int

    def visible(self, queries: int, keys: int) -> Array | None:
        """For each query and key, whether it is visible; None for all."""
        key, position = np.arange(keys), np.arange(queries)[:, None] + self.offset
        limits = [] if self.lengths is None else [key < self.lengths]
        if self.is_causal:
            limits.append(key <= position)
        if self.left >= 0:
            limits.append(key >= position - self.left)
        if self.right >= 0:
            limits.append(key <= position + self.right)
        if not limits:
            return None
        visible = limits[0]
        for limit in limits[1:]:
            visible = visible & limit
        return visible


def attended(
    q: Array,
    k: Array,
    v: Array,
    factors: tuple[float, float],
    softcap: float,
    mask: Array | None,
    stretches: bool,
    sight: Sight,
    packed: bool,
) -> Array | None:
    """Attention's output, or None where the kernel does not serve.

    Args:
        q: ``[batch, heads, queries, size]``.
        k: ``[batch, shared, keys, size]``.
        v: ``[batch, shared, keys, size of values]``.
        factors: what to multiply queries and keys with.
        softcap: the limit of scores, or 0.
        mask: True for what is visible, or numbers to add.
        stretches: whether a mask for one key is one for all.
        sight: what else restricts the keys.
        packed: whether the result is ``[batch, queries, heads * size of values]``; else it is as Q.
    """
    batch, heads, queries, size = q.shape
    shared, keys, value_size = v.shape[1:]
    work = batch * heads * queries * keys * (size + value_size)
    if work < ATTEND_FROM or not size or heads // shared * queries < LEAST_ROWS:
        return None
    dtype, (q, k, v) = q.dtype, map(widened, (q, k, v))
    if any(each.dtype != np.float32 for each in (q, k, v)):
        return None
    from numbaops.kernels import attention, products

    bias = np.empty((1, 1, 1, 0), np.float32) if mask is None else _bias(mask, keys, stretches)
    fits = bias.ndim == 4 and all(own in (1, full) for own, full in zip(bias.shape, q.shape[:3], strict=False))
    if not products.AVAILABLE or not fits:
        return None
    shape = (batch, queries, heads, value_size) if packed else (batch, heads, queries, value_size)
    result = memory.empty(shape, _FLOAT32, 4 * math.prod(shape))[0]
    fixed: list[Any] = []
    for each in (q, k, v, bias, result.swapaxes(1, 2) if packed else result):
        flat, steps = flat_memory(each if each.shape[3] <= 1 or each.strides[3] == each.itemsize else np.ascontiguousarray(each))
        fixed += [flat, _integers(*[0 if count == 1 else step for count, step in zip(each.shape[:3], steps, strict=False)])]
    fixed += [_integers(shared, heads // shared, queries, keys, size, value_size), _of_batches(sight.offset, batch)]
    fixed.append(_of_batches(keys if sight.lengths is None else np.minimum(sight.lengths, keys), batch))
    ahead = [0] * sight.is_causal + [sight.right] * (sight.right >= 0)
    fixed += [sight.left if sight.left >= 0 else FAR, min(ahead, default=FAR), *factors, softcap]
    panels = -(-(heads // shared * queries) // products.COLUMNS)
    units = batch * shared * panels
    kernel: Any = attention.attend
    # keys and values are laid out anew for each share of a head
    multiple = panels if batch * shared >= SHARES * thread_count() else 1
    split(lambda first, last: kernel(*fixed, first, last), units, 2 * work // units, multiple, SHARES)
    y = narrowed(result, dtype)
    return y.reshape(batch, queries, heads * value_size) if packed else y


def rotated(x: Array, cos: Array, sin: Array, pairs: int, interleaved: bool) -> Array | None:
    """RotaryEmbedding's output, or None where the kernel does not serve.

    Args:
        x: ``[batch, heads, sequence, size]``.
        cos: ``[batch, 1, sequence, pairs]``, or what broadcasts to that.
        sin: the same.
        pairs: how many pairs are rotated.
        interleaved: whether pairs are neighbours.
    """
    batch, heads, sequence, size = x.shape
    if x.size < ROTATE_FROM or cos.ndim != 4 or sin.ndim != 4:
        return None
    dtype, (x, cos, sin) = x.dtype, map(widened, (x, cos, sin))
    if any(each.dtype != np.float32 for each in (x, cos, sin)):
        return None
    from numbaops.kernels import products, rotation

    if not products.AVAILABLE:
        return None
    result = memory.empty(x.shape, _FLOAT32, 4 * x.size)[0]
    axes = (0, 1, 2)
    if x.strides[1] < x.strides[2]:  # heads of an input of rank 3: the result lies as it does
        axes = (0, 2, 1)
        result = result.reshape(batch, sequence, heads, size).swapaxes(1, 2)
    fixed: list[Any] = []
    for each in (x, cos, sin, result):
        flat, steps = flat_memory(each if each.strides[3] == each.itemsize else np.ascontiguousarray(each))
        fixed += [flat, _integers(*[0 if each.shape[axis] == 1 else steps[axis] for axis in axes])]
    fixed += [_integers(x.shape[axes[1]], x.shape[axes[2]], pairs, size), interleaved]
    kernel: Any = rotation.rotate
    split(lambda first, last: kernel(*fixed, first, last), batch * heads * sequence, 8 * size, shares=SHARES)
    return narrowed(result, dtype)


@functools.lru_cache(maxsize=512)
def _integers(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def _of_batches(number: int | Array, batch: int) -> Array:
    return _integers(*[number] * batch) if isinstance(number, int) else number.astype(np.int64).reshape(-1)


def _bias(mask: Array, keys: int, stretches: bool) -> Array:
    """The mask as numbers to add for each of the keys, ``[..., keys]`` of rank 4; or something else, if it does not fit."""
    mask = np.atleast_1d(mask)
    numbers = np.where(mask, np.float32(0), np.float32(-math.inf)) if mask.dtype == np.bool_ else mask.astype(np.float32, copy=False)
    numbers = numbers.reshape((1,) * (4 - mask.ndim) + mask.shape)
    count = mask.shape[-1]
    if count == 1 and stretches:
        numbers = np.broadcast_to(numbers, (*numbers.shape[:-1], keys))
    elif count < keys:
        numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, keys - count)], constant_values=-math.inf)
    return np.ascontiguousarray(numbers) if numbers.shape[-1] == keys else mask[None, None, None, None]
