"""Draws of Attention and RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from drawn.case import Case
from drawn.normalization import types

PRECISIONS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for version in (23, 24, 25):
        for dtype in types("Attention", version):
            for _ in range(120 if dtype == np.float32 else 30):
                yield attention(rng, version, dtype)
    for dtype in types("RotaryEmbedding", 23):
        for _ in range(60):
            yield rotary_embedding(rng, dtype)


def attention(rng: np.random.Generator, version: int, dtype: np.dtype[Any]) -> Case:
    batch, shared, group, queries, fresh, size, v_size = (int(each) for each in rng.integers(1, 4, 7))
    heads = shared * group
    if rng.random() < 0.05:
        queries = 0
    attributes: dict[str, Any] = {}
    if rng.random() < 0.5:
        attributes["is_causal"] = 1
    if rng.random() < 0.3:
        attributes["softcap"] = float(rng.choice([0.5, 2.0]))
    if rng.random() < 0.3:
        attributes["scale"] = float(rng.choice([0.25, 1.5]))
    if rng.random() < 0.15:
        attributes["softmax_precision"] = int(rng.choice(PRECISIONS))
    outputs = int(rng.choice([1, 3, 4]))
    if outputs == 4:
        attributes["qk_matmul_output_mode"] = int(rng.integers(4))
    if version >= 25 and rng.random() < 0.5:
        attributes |= {"left_window_size": int(rng.integers(-1, 3)), "right_window_size": int(rng.integers(-1, 3))}

    def normal(*shape: int) -> Any:
        return np.asarray(rng.normal(0, 1, shape)).astype(dtype)

    packed = bool(rng.random() < 0.4)
    external = version >= 24 and rng.random() < 0.4
    past = 0 if external or rng.random() < 0.5 else int(rng.integers(1, 4))
    if packed:
        attributes |= {"q_num_heads": heads, "kv_num_heads": shared}
        tensors = [normal(batch, queries, heads * size), normal(batch, fresh, shared * size), normal(batch, fresh, shared * v_size)]
    else:
        tensors = [normal(batch, heads, queries, size), normal(batch, shared, fresh, size), normal(batch, shared, fresh, v_size)]
    keys = past + fresh
    mask = None
    if rng.random() < 0.6:
        full = (batch, heads, queries, keys)[4 - int(rng.integers(2, 5)) :]
        sizes = [each if position >= len(full) - 2 or rng.random() < 0.7 else 1 for position, each in enumerate(full)]
        mask = normal(*sizes)
        if rng.random() < 0.3:
            mask[..., rng.integers(keys)] = -np.inf
        if rng.random() < 0.5:
            mask = rng.random(sizes) < 0.7
    given = [
        *tensors,
        mask,
        normal(batch, shared, past, size) if past else None,
        normal(batch, shared, past, v_size) if past else None,
        rng.integers(1, keys + 1, batch) if external else None,
    ]
    while given[-1] is None:
        given.pop()
    # scores and probabilities of the half types are rounded where each implementation likes
    unit = float(ml_dtypes.finfo(dtype).eps)
    coarse = attributes.get("softmax_precision") in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    atol = 0.02 if coarse else 3 * unit if dtype.itemsize == 2 else 1e-5
    return Case("Attention", version, given, attributes, outputs, rtol=max(1e-5, 3 * unit), atol=atol)


def rotary_embedding(rng: np.random.Generator, dtype: np.dtype[Any]) -> Case:
    batch, heads, length, half = (int(each) for each in rng.integers(1, 4, 4))
    size, rotated = 2 * half, 2 * int(rng.integers(1, half + 1))
    attributes: dict[str, Any] = {"interleaved": int(rng.integers(2))} if rng.random() < 0.7 else {}
    if rotated < size or rng.random() < 0.3:
        attributes["rotary_embedding_dim"] = rotated
    if rng.random() < 0.5:
        attributes["num_heads"] = heads
        x = rng.normal(size=(batch, length, heads * size))
    else:
        x = rng.normal(size=(batch, heads, length, size))
    with_ids = bool(rng.random() < 0.5)
    angles = rng.random((7, rotated // 2) if with_ids else (batch, length, rotated // 2)) * 6
    given = [each.astype(dtype) for each in (x, np.cos(angles), np.sin(angles))]
    if with_ids:
        given.append(rng.integers(0, 7, (batch, length)))
    unit = float(ml_dtypes.finfo(dtype).eps)
    return Case("RotaryEmbedding", 23, given, attributes, rtol=max(1e-5, 2 * unit), atol=max(1e-6, unit))
