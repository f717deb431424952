"""Kernels that write one value along a diagonal and leave the rest as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numbaops.runtime.jit import kernel

_WORDS = ("uint8", "uint16", "uint32", "uint64")


@kernel(*(f"void({word}[:, ::1], int64, {word})" for word in _WORDS))
def write_diagonal(out: Any, k: int, value: Any) -> None:
    """Write ``value`` to every ``out[i, i + k]`` that exists; ``out`` is 2-D of any layout, ``k`` any integer."""
    rows, columns = out.shape
    if -rows < k < columns:
        for i in range(max(0, -k), min(rows, columns - k)):
            out[i, i + k] = value


@kernel(*(f"void({word}[:, ::1], int64, {word}, {word})" for word in ("uint32", "uint64")))
def write_diagonal_pairs(out: Any, k: int, low: int, high: int) -> None:
    """``write_diagonal`` for elements of two words, each a pair in a row of ``out``."""
    rows, columns = out.shape[0], out.shape[1] // 2
    if -rows < k < columns:
        for i in range(max(0, -k), min(rows, columns - k)):
            out[i, 2 * (i + k)] = low
            out[i, 2 * (i + k) + 1] = high


def make_write_packed_diagonal(bits: int) -> Callable[[Any, int, int, int, int], None]:
    """The diagonal of a packed matrix with elements of ``bits`` (2 or 4) each.

    Returns:
        ``write_packed_diagonal(out, rows, columns, k, code)``: writes ``code`` to each element ``[i, i + k]`` of the matrix
        that the uint8 array ``out`` holds row after row without gaps, first element in the low bits.
    """
    per_byte = 8 // bits
    mask = (1 << bits) - 1

    @kernel("void(uint8[::1], int64, int64, int64, uint8)", key=(bits,))
    def write_packed_diagonal(out: Any, rows: int, columns: int, k: int, code: int) -> None:
        if -rows < k < columns:
            for i in range(max(0, -k), min(rows, columns - k)):
                position = i * columns + i + k
                shift = position % per_byte * bits
                out[position // per_byte] = (out[position // per_byte] & (0xFF ^ mask << shift)) | (code & mask) << shift

    return write_packed_diagonal


write_packed_diagonal = {bits: make_write_packed_diagonal(bits) for bits in (2, 4)}
