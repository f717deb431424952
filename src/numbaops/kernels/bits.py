"""Kernels that pack elements of 2, 4 or 6 bits, first element in the low bits, and unpack them to one a byte."""

from __future__ import annotations

from collections.abc import Callable
from math import lcm
from typing import Any

from numbaops.runtime.jit import kernel

Kernel = Callable[[Any, Any], None]

# Packed bytes of a file and codes of a stored array are often read-only, which is another type to Numba.
_SIGNATURES = tuple(f"void(Array(uint8, 1, 'C', {readonly}, aligned=True), uint8[::1])" for readonly in (False, True))


def group(bits: int) -> tuple[int, int]:
    """The smallest number of elements that fill whole bytes, and that number of bytes: 4 and 3 for 6 bits."""
    return lcm(bits, 8) // bits, lcm(bits, 8) // 8


def make_pack(bits: int) -> Kernel:
    """The packing of elements of ``bits`` (2, 4 or 6) each.

    Returns:
        ``pack(codes, out)``: packs the low bits of each element of the uint8 array ``codes`` into the uint8 array ``out``; unused
        high bits of the last byte become zero.
    """
    elements, whole_bytes = group(bits)
    mask = (1 << bits) - 1

    @kernel(*_SIGNATURES, key=(bits,))
    def pack(codes: Any, out: Any) -> None:
        groups = codes.size // elements
        for i in range(groups):
            word = 0
            for lane in range(elements):
                word |= int(codes[i * elements + lane] & mask) << lane * bits
            for byte in range(whole_bytes):
                out[i * whole_bytes + byte] = word >> 8 * byte & 0xFF
        word = 0
        for lane in range(codes.size - groups * elements):
            word |= int(codes[groups * elements + lane] & mask) << lane * bits
        for byte in range(out.size - groups * whole_bytes):
            out[groups * whole_bytes + byte] = word >> 8 * byte & 0xFF

    return pack


def make_unpack(bits: int) -> Kernel:
    """The reverse of packing.

    Returns:
        ``unpack(packed, out)``: writes each element of the uint8 array ``packed`` to a byte of the uint8 array ``out``, its high
        bits zero.
    """
    elements, whole_bytes = group(bits)
    mask = (1 << bits) - 1

    @kernel(*_SIGNATURES, key=(bits,))
    def unpack(packed: Any, out: Any) -> None:
        groups = out.size // elements
        for i in range(groups):
            word = 0
            for byte in range(whole_bytes):
                word |= int(packed[i * whole_bytes + byte]) << 8 * byte
            for lane in range(elements):
                out[i * elements + lane] = word >> lane * bits & mask
        word = 0
        for byte in range(packed.size - groups * whole_bytes):
            word |= int(packed[groups * whole_bytes + byte]) << 8 * byte
        for lane in range(out.size - groups * elements):
            out[groups * elements + lane] = word >> lane * bits & mask

    return unpack


pack = {bits: make_pack(bits) for bits in (2, 4, 6)}
unpack = {bits: make_unpack(bits) for bits in (2, 4, 6)}
