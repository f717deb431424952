"""Products of matrices of 8-bit integers by the kernel of ``numbaops.kernels.integer_products``, where the processor can."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from numbaops.ops._products import SHARES
from numbaops.ops.base import Array
from numbaops.runtime import memory
from numbaops.runtime.threads import split, thread_count

BYTES_FROM = 1 << 15
"""Multiplications from which the kernel serves: fewer need no Numba."""

_INT32 = np.dtype(np.int32)
_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_HALF = 128


def bytes_multiplied(a: Array, b: Array, a_zero_point: Array | None, b_zero_point: Array | None) -> Array | None:
    """The product of matrices of 8-bit integers without their zero points, modulo 2**32; None where the kernel does not serve.

    Args:
        a: ``[..., M, K]``.
        b: ``[K, N]``.
        a_zero_point: one number, or one a row of a matrix.
        b_zero_point: one number, or one a column.
    """
    if a.dtype not in _BYTES or b.dtype not in _BYTES:
        return None
    if a.ndim < 2 or b.ndim != 2 or a.shape[-1] != len(b) or a.size * b.shape[1] < BYTES_FROM:
        return None
    (terms, width), rows = b.shape, math.prod(a.shape[:-1])
    a_zeros, b_zeros = _zeros_of(a_zero_point, rows, (rows, 1)), _zeros_of(b_zero_point, width, (1, width))
    if a_zeros is None or b_zeros is None or (a.ndim > 2 and a_zero_point is not None and a_zero_point.size > 1):
        return None
    from numbaops.kernels import integer_products

    if not integer_products.AVAILABLE:
        return None
    unsigned, flip = np.ascontiguousarray(a).view(np.uint8).reshape(rows, terms), 0
    if terms % 4:
        unsigned = np.pad(unsigned, ((0, 0), (0, -terms % 4)))
    if a.dtype == np.int8:
        unsigned, a_zeros = unsigned ^ np.uint8(_HALF), a_zeros + np.int32(_HALF)
    if b.dtype == np.uint8:
        flip, b_zeros = _HALF, b_zeros - np.int32(_HALF)
    result = memory.empty((*a.shape[:-1], width), _INT32, 4 * rows * width)[0]
    panels = -(-width // integer_products.BYTE_COLUMNS)
    most = 1 if thread_count() == 1 else -(-SHARES * thread_count() // panels)
    blocks = -(-rows // integer_products.BYTE_ROWS)
    rows_each = -(-blocks // min(most, blocks)) * integer_products.BYTE_ROWS
    fixed: Any = (unsigned.reshape(-1), np.ascontiguousarray(b).view(np.uint8).reshape(-1), np.uint8(flip), a_zeros, b_zeros)
    fixed += (result.reshape(-1), terms, unsigned.shape[1], width, rows_each)
    kernel: Any = integer_products.multiply_bytes
    work = rows_each * integer_products.BYTE_COLUMNS * terms // 2  # 64 multiplications take as long as 16 of float32
    split(lambda first, last: kernel(*fixed, first, last), panels * -(-rows // rows_each), work, shares=SHARES)
    return result


def _zeros_of(zero_point: Array | None, count: int, shape: tuple[int, int]) -> Array | None:
    """A zero point for each row or column; None if it is of another shape."""
    if zero_point is None:
        return np.zeros(count, np.int32)
    if zero_point.size == 1:
        return np.full(count, zero_point.reshape(-1)[0], np.int32)
    return zero_point.reshape(-1).astype(np.int32) if zero_point.shape in ((count,), shape) else None
