"""Operators of transformer blocks: Attention and RotaryEmbedding.

https://onnx.ai/onnx/operators/onnx__Attention.html, onnx__RotaryEmbedding.html
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._attending import FAR, Sight, attended
from numbaops.ops._attending import rotated as by_kernel
from numbaops.ops._precision import check_same_type, rounded, stage_dtype, working_dtype
from numbaops.ops._products import product
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf

_quiet = np.errstate(all="ignore")
_FLOAT = 1


def _split_heads(name: str, x: Array, heads: int | None) -> Array:
    """``[batch, sequence, heads * size]`` as ``[batch, heads, sequence, size]``."""
    if not heads or heads < 0 or x.shape[2] % heads:
        raise InvalidValueError(f"{name} has shape {list(x.shape)} and {heads} heads; allowed: a last dimension that the heads divide")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _check_inputs(q: Array, k: Array, v: Array) -> None:
    """Of one type for Q and K, of ranks 4 and the sizes that belong together."""
    check_same_type(q, k)
    fit = k.shape[:3] == v.shape[:3] and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
    if not fit or (q.shape[1] % k.shape[1] if k.shape[1] else q.shape[1]):
        shapes = ", ".join(str(list(each.shape)) for each in (q, k, v))
        raise InvalidValueError(
            f"Q, K and V have the shapes {shapes} (batch, heads, sequence, head size); allowed: one batch size, one head size of Q and K, "
            f"one sequence of K and V, and a number of heads of K and V that divides that of Q"
        )


def _hide(scores: Array, mask: Array | None, visible: Array | None, stretches: bool) -> None:
    """Add the mask; the scores of keys that a query may not attend to become -Inf, whatever they were.

    Args:
        scores: ``[batch, heads, queries, keys]``, written to.
        mask: True for what is visible, or numbers to add.
        visible: what else restricts the keys.
        stretches: whether a mask for one key is one for all; else it hides the other keys, as every mask for too few keys does.
    """
    if mask is not None:
        mask = np.atleast_1d(mask)
        covered = scores
        if (size := mask.shape[-1]) < scores.shape[-1] and not (stretches and size == 1):
            covered = scores[..., :size]
            scores[..., size:] = -math.inf
        shape = list(mask.shape)
        if mask.ndim > 4 or any(own not in (1, full) for own, full in zip(shape[::-1], covered.shape[::-1], strict=False)):
            raise InvalidValueError(f"attn_mask has shape {shape}; allowed: one that broadcasts to {list(scores.shape)}")
        hidden = ~mask if mask.dtype == np.bool_ else mask == -math.inf
        if mask.dtype != np.bool_:
            covered += mask.astype(scores.dtype, copy=False)
        np.copyto(covered, -math.inf, where=hidden)
    if visible is not None:
        np.copyto(scores, -math.inf, where=~visible)


def _softmax(scores: Array) -> None:
    """Softmax over the keys, in place; zero for a query without any."""
    top = scores.max(-1, keepdims=True, initial=-math.inf)
    top[top == -math.inf] = 0
    scores -= top
    np.exp(scores, out=scores)
    total = np.add.reduce(scores, -1, keepdims=True)
    total[total == 0] = 1
    scores /= total


@_quiet
def _attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    nonpad_kv_seqlen: Array | None,
    *,
    outputs: int,
    is_causal: int,
    softcap: float,
    qk_matmul_output_mode: int,
    scale: float | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    softmax_precision: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
    stretches: bool = False,
) -> tuple[Array, ...]:
    """Softmax(Q K^T) V with all that the versions know.

    Queries of a group share one head of K and V: they are taken for more queries of that head, so that no head is repeated.

    Returns:
        Y, the keys and values of the whole sequence, and if four ``outputs`` are asked for the scores at the stage of the mode.
    """
    if not q.ndim == k.ndim == v.ndim or q.ndim not in (3, 4):
        raise InvalidValueError(f"Q, K and V have the ranks {q.ndim}, {k.ndim} and {v.ndim}; allowed: 3 for all, or 4")
    if qk_matmul_output_mode not in (0, 1, 2, 3):
        raise InvalidValueError(f"qk_matmul_output_mode is {qk_matmul_output_mode}; allowed: 0, 1, 2, 3", attribute="qk_matmul_output_mode")
    if (past_key is None) != (past_value is None):
        raise InvalidValueError("past_key and past_value must be provided together")
    if nonpad_kv_seqlen is not None and past_key is not None:
        raise InvalidValueError("nonpad_kv_seqlen cannot be combined with past_key and past_value")
    packed = q.ndim == 3
    if packed:
        q, k, v = (_split_heads(*each) for each in (("Q", q, q_num_heads), ("K", k, kv_num_heads), ("V", v, kv_num_heads)))
    _check_inputs(q, k, v)
    batch, _, queries, _ = q.shape
    offset: int | Array = 0
    lengths = None
    if past_key is not None and past_value is not None:
        k, v = _appended("past_key", past_key, k), _appended("past_value", past_value, v)
        offset = past_key.shape[2]
        if past_value.shape[2] != offset:
            shapes = f"{list(past_key.shape)} and {list(past_value.shape)}"
            raise InvalidValueError(f"past_key and past_value have the shapes {shapes}; allowed: one past_sequence_length")
    elif nonpad_kv_seqlen is not None:
        if nonpad_kv_seqlen.shape != (batch,):
            raise InvalidValueError(f"nonpad_kv_seqlen has shape {list(nonpad_kv_seqlen.shape)}; allowed: [{batch}]")
        lengths = nonpad_kv_seqlen.reshape(batch, 1, 1, 1)
        offset = lengths - queries
    sight = Sight(offset, lengths, bool(is_causal), min(left_window_size, FAR), min(right_window_size, FAR))
    factors = _factors(q.shape[3], scale)
    if outputs < 4 and softmax_precision in (None, _FLOAT):
        y = attended(q, k, v, factors, softcap, mask, stretches, sight, packed)
        if y is not None:
            return y, k, v
    stages: list[Array] = []

    def reached(mode: int) -> None:
        if outputs > 3 and mode == qk_matmul_output_mode:
            stages.append(scores.astype(q.dtype))

    scores = _scores(q, k, factors)
    reached(0)
    if softcap:
        scores /= scores.dtype.type(softcap)
        np.tanh(scores, out=scores)
        scores *= scores.dtype.type(softcap)
    reached(1)
    _hide(scores, mask, sight.visible(queries, scores.shape[3]), stretches)
    reached(2)
    if softmax_precision is None:
        _softmax(scores)
    else:
        precision = stage_dtype(softmax_precision, "softmax_precision")
        scores = rounded(scores.astype(np.result_type(scores, precision if precision.itemsize > 2 else scores)), precision)
        _softmax(scores)
        scores = rounded(scores, precision)
    reached(3)
    y = product(_by_shared_head(scores, v.shape[1]), v.astype(working_dtype(q, v), copy=False)).reshape(*q.shape[:3], v.shape[3])
    if packed:
        y = y.transpose(0, 2, 1, 3).reshape(batch, queries, y.shape[1] * y.shape[3])
    return y.astype(q.dtype, copy=False), k, v, *stages


def _by_shared_head(x: Array, shared: int) -> Array:
    """``[batch, heads, queries, size]`` with the queries of all heads that share one of K and V in a row."""
    batch, heads, queries, size = x.shape
    return x.reshape(batch, shared, heads // shared * queries if shared else 0, size)


def _factors(size: int, scale: float | None) -> tuple[float, float]:
    """What queries and keys are multiplied with, each the square root of the scale."""
    factor = 1 / math.sqrt(size or 1) if scale is None else scale
    root = math.sqrt(abs(factor))
    return math.copysign(root, factor), root


def _scores(q: Array, k: Array, factors: tuple[float, float]) -> Array:
    """The products of all queries and keys, each scaled, in the type to compute in."""
    dtype = working_dtype(q, k)
    left = _by_shared_head(q.astype(dtype, copy=False) * dtype.type(factors[0]), k.shape[1])
    right = k.astype(dtype, copy=False) * dtype.type(factors[1])
    return product(left, right.swapaxes(2, 3)).reshape(*q.shape[:3], k.shape[2])


def _appended(name: str, past: Array, new: Array) -> Array:
    if past.ndim != 4 or past.shape[:2] != new.shape[:2] or past.shape[3] != new.shape[3]:
        allowed = [*new.shape[:2], "past_sequence_length", new.shape[3]]
        raise InvalidValueError(f"{name} has shape {list(past.shape)}; allowed: {allowed}")
    return np.concatenate((past, new), axis=2)


def attention_23(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    *,
    outputs: int,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Attention 23: a mask for one key broadcasts to all."""
    return _attention(q, k, v, attn_mask, past_key, past_value, None, outputs=outputs, stretches=True, **attributes)


def attention_24(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    outputs: int,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Attention 24: the cache may also be kept outside, and a mask may cover the first keys only."""
    return _attention(q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen, outputs=outputs, **attributes)


def attention_25(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    outputs: int,
    left_window_size: int,
    right_window_size: int,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Attention 25: windows, and stricter about the numbers of heads."""
    for name, size in (("left_window_size", left_window_size), ("right_window_size", right_window_size)):
        if size < -1:
            raise InvalidValueError(f"{name} must be -1 or nonnegative, got {size}", attribute=name)
    if q.ndim == 4 and ("q_num_heads" in attributes or "kv_num_heads" in attributes):
        raise InvalidValueError("q_num_heads and kv_num_heads must not be specified for 4D inputs", attribute="q_num_heads")
    attributes |= {"left_window_size": left_window_size, "right_window_size": right_window_size}
    return _attention(q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen, outputs=outputs, **attributes)


@_quiet
def rotary_embedding(
    x: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int,
    rotary_embedding_dim: int,
    num_heads: int | None = None,
) -> Array:
    """RotaryEmbedding: pairs of elements of each head, rotated by the angle of their position.

    Args:
        x: ``[batch, heads, sequence, size]``, or ``[batch, sequence, heads * size]``.
        cos_cache: ``[positions, rotated / 2]`` with ``position_ids``, else ``[batch, sequence, rotated / 2]``.
        sin_cache: of the same shape.
        position_ids: ``[batch, sequence]``.
        interleaved: whether pairs are neighbours; else an element of the first half goes with one of the second.
        rotary_embedding_dim: how many elements of each head are rotated, 0 for all.
        num_heads: the number of heads of an input of rank 3.
    """
    if x.ndim not in (3, 4):
        raise InvalidValueError(f"X has shape {list(x.shape)}; allowed: rank 3 or 4")
    heads = _split_heads("X", x, num_heads) if x.ndim == 3 else x
    size = heads.shape[3]
    rotated = rotary_embedding_dim or size
    if not 0 <= rotated <= size or rotated % 2:
        raise InvalidValueError(
            f"rotary_embedding_dim is {rotary_embedding_dim} for heads of {size} elements; allowed: an even number of them, or 0",
            attribute="rotary_embedding_dim",
        )
    if cos_cache.shape != sin_cache.shape:
        shapes = f"{list(cos_cache.shape)} and {list(sin_cache.shape)}"
        raise InvalidValueError(f"cos_cache and sin_cache have the shapes {shapes}; allowed: equal ones")
    dtype = working_dtype(x, cos_cache, sin_cache)
    angles = (heads.shape[0], heads.shape[2], rotated // 2)
    cos, sin = (
        _at_positions(name, cache, position_ids, angles).astype(dtype, copy=False)[:, None]
        for name, cache in (("cos_cache", cos_cache), ("sin_cache", sin_cache))
    )
    y = _rotated(heads, cos, sin, rotated // 2, bool(interleaved))
    return y if x.ndim == 4 else y.transpose(0, 2, 1, 3).reshape(x.shape)


def _rotated(heads: Array, cos: Array, sin: Array, pairs: int, interleaved: bool) -> Array:
    y = by_kernel(heads, cos, sin, pairs, interleaved)
    if y is not None:
        return y
    y = heads.copy()
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(pairs), slice(pairs, 2 * pairs))
    real, imaginary = (heads[..., part].astype(cos.dtype, copy=False) for part in (first, second))
    y[..., first] = cos * real - sin * imaginary
    y[..., second] = sin * real + cos * imaginary
    return y


def _at_positions(name: str, cache: Array, position_ids: Array | None, shape: tuple[int, ...]) -> Array:
    """The part of a cache for each element of the sequences, ``[batch, sequence, rotated / 2]``."""
    if position_ids is not None:
        if position_ids.size and not 0 <= position_ids.min() <= position_ids.max() < len(cache):
            raise InvalidValueError(
                f"position_ids go from {position_ids.min()} to {position_ids.max()}; allowed: 0 to {len(cache) - 1}, the rows of {name}"
            )
        cache = cache[position_ids]
    if cache.shape[-1:] != shape[-1:] or cache.ndim > 3 or any(own not in (1, full) for own, full in zip(cache.shape, shape, strict=False)):
        raise InvalidValueError(f"{name} gives the shape {list(cache.shape)}; allowed: {list(shape)}")
    return cache


LEAVES: tuple[Leaf, ...] = (
    Leaf("Attention", (23,), attention_23, aliases=True),
    Leaf("Attention", (24,), attention_24, aliases=True),
    Leaf("Attention", (25,), attention_25, aliases=True),
    Leaf("RotaryEmbedding", (23,), rotary_embedding),
)
