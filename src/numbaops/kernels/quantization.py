"""Kernels of linear quantization: one element at a time by small functions, and walks that bring each element its scale.

There are two walks. ``runs`` serves scales that hold for some neighbours: of the whole tensor, of a channel, of a block of the last
axis. ``rows`` serves scales that lie side by side as the elements do: of the last axis, of blocks of another one. Both take any part
of the flat tensor, so that threads may cut it anywhere. Indices are unsigned: Numba lets signed ones count from the end, and the
test for that keeps LLVM from vectorizing. A trip count known ahead, for blocks of 32, gained 2 %: there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from numbaops.kernels.bits import group, pack, unpack
from numbaops.kernels.floats import BLOCK, INFINITY, MAGNITUDE, SIGN
from numbaops.runtime.jit import kernel

Each = Callable[[Any, Any, Any], Any]
Walk = Callable[[Any, Any, Any, Any, int, int, int, int, int], None]

WHOLE = np.float32(1.5 * 2**23)
"""Added to a float32 below 2**22, it leaves the nearest integer, ties to even, in the low bits."""

COMPILED = not numba.config.DISABLE_JIT
"""Whether kernels are machine code, which never warns, as NumPy does of what divisions give."""

index = np.uint64

LONG = 2048
"""Elements of a row whose scales and zero points fill the L1 cache. Of longer rows with the same scales a piece of ``LINES`` rows each
comes before the next piece: 3.7 instead of 5.8 ms for 16 M elements in rows of 4096. With more rows, the processor no longer
foresees what is read next."""

LINES, PIECE = index(6), index(64)


def _signature(source: str, zeros: str, out: str) -> str:
    """Of a walk. What is only read comes as read-only arrays, since constants of a model are: one kernel serves all."""
    given = ", ".join(f"Array({dtype}, 1, 'C', True, aligned=True)" for dtype in (source, "float32", zeros))
    return f"void({given}, {out}[::1], int64, int64, int64, int64, int64)"


# One element


@kernel("float32(float32)")
def keep_float32(value: Any) -> Any:
    """The value itself."""
    return value


@kernel("float32(float32)")
def round_bfloat16(value: Any) -> Any:
    """The float32 that is the nearest bfloat16, ties to even."""
    bits = np.float32(value).view(np.uint32)
    size = np.uint32(bits & MAGNITUDE)
    carried = np.uint32(np.uint32(size + np.uint32(0x7FFF)) + np.uint32(np.uint32(size >> np.uint32(16)) & np.uint32(1)))
    near = np.uint32(np.uint32(carried & np.uint32(0x7FFF0000)) | np.uint32(bits & SIGN))
    return value if size > INFINITY else np.uint32(near).view(np.float32)


@kernel("float32(float32)")
def round_float16(value: Any) -> Any:
    """The float32 that is the nearest float16, ties to even, or infinite."""
    limit, least = np.float32(65536.0), np.float32(2.0**-14)
    bits = np.float32(value).view(np.uint32)
    size = np.uint32(bits & MAGNITUDE).view(np.float32)
    size = size if size < limit else limit
    top = size if size > least else least
    # Adding 2**13 times the power of two below leaves only float16's bits: the FPU rounds, subnormals included.
    power = np.uint32(np.uint32(np.float32(top).view(np.uint32) & INFINITY) + np.uint32(13 << 23)).view(np.float32)
    rounded = np.float32(np.float32(size + power) - power)
    near = np.float32(rounded).view(np.uint32) if rounded < limit else INFINITY
    near = np.uint32(near | np.uint32(bits & SIGN))
    return value if np.uint32(bits & MAGNITUDE) > INFINITY else np.uint32(near).view(np.float32)


NARROW = {"float": keep_float32, "float16": round_float16, "bfloat16": round_bfloat16}


def make_quantize_integer(low: int, high: int, bits: int, narrow: Callable[[Any], Any], name: tuple[Any, ...]) -> Each:
    """The quantization of a number to an integer of at most 16 bits.

    Args:
        low: the smallest integer.
        high: the largest one.
        bits: its width.
        narrow: rounds to the precision of the division; one of ``NARROW``.
        name: values that determine all that.

    Returns:
        ``quantize(value, scale, zero)``: the code, as uint32; the two latter are float32. NaN gives the lowest integer.
    """
    lowest, highest, mask = np.float32(low), np.float32(high), np.int32((1 << bits) - 1)

    @kernel(key=name)
    def quantize_integer(value: Any, scale: Any, zero: Any) -> Any:
        quotient = narrow(np.divide(narrow(np.float32(value)), scale))  # np.divide, unlike /, has no exception for zero
        least, most = np.float32(lowest - zero), np.float32(highest - zero)
        near = quotient if quotient > least else least
        near = near if near < most else most
        return np.uint32(np.int32(np.int32(np.float32(near + WHOLE).view(np.int32)) + np.int32(zero)) & mask)

    return quantize_integer


def make_quantize_float(encode: Callable[[Any], Any], narrow: Callable[[Any], Any], name: tuple[Any, ...]) -> Each:
    """The same to a narrow float.

    Args:
        encode: from the bits of float32 to codes, as ``floats.make_encoder`` makes it.
        narrow: rounds to the precision of the division.
        name: values that determine both.

    Returns:
        ``quantize(value, scale, zero)``; a ``zero`` of -0.0 changes nothing.
    """

    @kernel(key=name)
    def quantize_float(value: Any, scale: Any, zero: Any) -> Any:
        quotient = narrow(np.divide(narrow(np.float32(value)), scale))
        return encode(np.float32(quotient + zero).view(np.uint32))

    return quantize_float


def make_integer_minus(bits: int, signed: bool) -> Callable[[Any, Any], Any]:
    """The difference of an integer, given as a word of which the low ``bits`` (at most 16) count, and an int32."""
    mask, sign = np.int32((1 << bits) - 1), np.int32(1 << bits - 1 if signed else 0)

    @kernel(key=(bits, signed))
    def integer_minus(code: Any, zero: Any) -> Any:
        value = np.int32(np.int32(np.int32(code) & mask) ^ sign)
        return np.float32(np.int32(np.int32(value - sign) - zero))

    return integer_minus


@kernel("float32(int32, int32)")
def int32_minus(value: Any, zero: Any) -> Any:
    """The difference of two int32, rounded once to float32."""
    return np.float32(np.int64(value) - np.int64(zero))


def make_float_minus(decode: Callable[[Any], Any], name: tuple[Any, ...]) -> Callable[[Any, Any], Any]:
    """The difference of a narrow float, given by a code that ``decode`` takes, and a float32."""

    @kernel(key=name)
    def float_minus(code: Any, zero: Any) -> Any:
        return np.float32(np.uint32(decode(np.uint32(code))).view(np.float32) - zero)

    return float_minus


def make_dequantize(minus: Callable[[Any, Any], Any], name: tuple[Any, ...]) -> Each:
    """The reverse of quantization, to float32.

    Args:
        minus: what a factory above made.
        name: values that determine it.

    Returns:
        ``dequantize(code, scale, zero)``; the scale is float32.
    """

    @kernel(key=name)
    def dequantize(code: Any, scale: Any, zero: Any) -> Any:
        return np.float32(minus(code, zero) * scale)

    return dequantize


def make_dequantize_encoded(minus: Callable[[Any, Any], Any], encode: Callable[[Any], Any], name: tuple[Any, ...]) -> Each:
    """The same to a narrower float: the product, a float32, is rounded by ``encode``."""

    @kernel(key=name)
    def dequantize_encoded(code: Any, scale: Any, zero: Any) -> Any:
        return encode(np.float32(minus(code, zero) * scale).view(np.uint32))

    return dequantize_encoded


# Walks


def make_runs(each: Each, name: tuple[Any, ...], source: str, zeros: str, target: str) -> Walk:
    """``each`` over elements of which neighbours share a scale.

    Args:
        each: a function of a value, its scale and its zero point.
        name: values that determine it.
        source: the dtype of ``x``.
        zeros: the dtype of zero points.
        target: the dtype of ``out``.

    Returns:
        ``runs(x, scales, zeros, out, start, row, run, per_row, step)``: ``x`` and ``out`` hold the elements from ``start`` on of a tensor
        that consists of rows of ``row`` elements, each of which consists of ``per_row`` runs of ``run`` elements, the last may
        be shorter; run ``k`` of row ``r`` uses scale ``r * step + k``.
    """

    @kernel(_signature(source, zeros, target), key=name)
    def runs(x: Any, scales: Any, zeros: Any, out: Any, start: int, row: int, run: int, per_row: int, step: int) -> None:
        size = index(out.size)
        number = start // row
        within = start - number * row
        k = within // run
        stop = index(min(k * run + run, row) - within)
        position = index(0)
        while position < size:
            stop = min(stop, size)
            at = index(number * step + k)
            scale, zero = scales[at], zeros[at]
            for i in range(position, stop):
                out[i] = each(x[i], scale, zero)
            k += 1
            if k == per_row:
                k = 0
                number += 1
            position = stop
            stop = position + index(min(run, row - k * run))

    return runs


def make_rows(each: Each, name: tuple[Any, ...], source: str, zeros: str, target: str) -> Walk:
    """``each`` over rows of elements that have a scale each.

    Args:
        each: a function of a value, its scale and its zero point.
        name: values that determine it.
        source: the dtype of ``x``.
        zeros: the dtype of zero points.
        target: the dtype of ``out``.

    Returns:
        ``rows(x, scales, zeros, out, start, row, depth, block, blocks)``: ``x`` and ``out`` hold the elements from ``start`` on of a tensor
        that consists of rows of ``row`` elements; row ``d`` of each ``depth`` ones uses row ``d // block`` of the ``blocks`` rows
        of scales that belong to these.
    """

    @kernel(_signature(source, zeros, target), key=name)
    def rows(x: Any, scales: Any, zeros: Any, out: Any, start: int, row: int, depth: int, block: int, blocks: int) -> None:
        size = index(out.size)
        number = start // row
        within = start - number * row
        position = index(0)
        while position < size:
            outer = number // depth
            above = number - outer * depth
            at = index((outer * blocks + above // block) * row + within)
            count = min(index(row - within), size - position)
            lines, piece = index(1), count
            if count > LONG and count == index(row):
                alike = min(block - above % block, depth - above)
                lines, piece = min(index(alike), (size - position) // count, LINES), PIECE
            for left in range(index(0), count, piece):
                width = min(piece, count - left)
                for line in range(lines):
                    first = position + line * count + left
                    for i in range(width):
                        out[first + i] = each(x[first + i], scales[at + left + i], zeros[at + left + i])
            position += lines * count
            number += int(lines)
            within = 0

    return rows


# Stages, over blocks that stay in the L1 cache


def make_widened(widen: Callable[[Any, Any], None], walk: Walk, name: tuple[Any, ...], target: str) -> Walk:
    """A walk over float32 numbers that ``widen`` makes, as their bits, of 16-bit words."""

    @kernel(_signature("uint16", "float32", target), key=name)
    def widened(x: Any, scales: Any, zeros: Any, out: Any, start: int, row: int, second: int, third: int, fourth: int) -> None:
        block = np.empty(BLOCK, np.uint32)
        for first in range(0, x.size, BLOCK):
            stop = min(first + BLOCK, x.size)
            widen(x[first:stop], block[: stop - first])
            values = block[: stop - first].view(np.float32)
            walk(values, scales, zeros, out[first:stop], start + first, row, second, third, fourth)

    return widened


def make_packing(walk: Walk, bits: int, name: tuple[Any, ...], source: str) -> Walk:
    """A walk over ``source`` of which the codes are packed, ``bits`` (2, 4 or 6) each, into the bytes of ``out``."""
    combine = pack[bits]
    elements, whole_bytes = group(bits)
    bytes_each = BLOCK // elements * whole_bytes

    @kernel(_signature(source, "float32", "uint8"), key=name)
    def packing(x: Any, scales: Any, zeros: Any, out: Any, start: int, row: int, second: int, third: int, fourth: int) -> None:
        block = np.empty(BLOCK, np.uint8)
        place = 0
        for first in range(0, x.size, BLOCK):
            stop = min(first + BLOCK, x.size)
            codes = block[: stop - first]
            walk(x[first:stop], scales, zeros, codes, start + first, row, second, third, fourth)
            combine(codes, out[place : min(place + bytes_each, out.size)])
            place += bytes_each

    return packing


def make_unpacking(walk: Walk, bits: int, name: tuple[Any, ...], zeros: str, target: str) -> Walk:
    """A walk to ``target`` over codes of ``bits`` (2, 4 or 6) each that the bytes of ``x`` hold."""
    separate = unpack[bits]
    elements, whole_bytes = group(bits)
    bytes_each = BLOCK // elements * whole_bytes

    @kernel(_signature("uint8", zeros, target), key=name)
    def unpacking(x: Any, scales: Any, zeros: Any, out: Any, start: int, row: int, second: int, third: int, fourth: int) -> None:
        block = np.empty(BLOCK, np.uint8)
        place = 0
        for first in range(0, out.size, BLOCK):
            stop = min(first + BLOCK, out.size)
            codes = block[: stop - first]
            separate(x[place : min(place + bytes_each, x.size)], codes)
            walk(codes, scales, zeros, out[first:stop], start + first, row, second, third, fourth)
            place += bytes_each

    return unpacking


# The range of a tensor

LANES = 64


@kernel(*(f"void(Array(float32, 1, 'C', {fixed}, aligned=True), float32[::1], float32[::1])" for fixed in (False, True)))
def extremes(x: Any, low: Any, high: Any) -> None:
    """Bring the smallest and the largest of ``x``, NaN left out, into ``low`` and ``high``, ``LANES`` independent ones each.

    A single minimum would be scalar: LLVM may not change the order of comparisons that NaN takes part in.
    """
    whole = x.size // LANES
    for i in range(whole):
        part = x[i * LANES : i * LANES + LANES]
        for lane in range(LANES):
            value = part[lane]
            low[lane] = value if value < low[lane] else low[lane]
            high[lane] = value if value > high[lane] else high[lane]
    for lane in range(x.size - whole * LANES):
        value = x[whole * LANES + lane]
        low[lane] = value if value < low[lane] else low[lane]
        high[lane] = value if value > high[lane] else high[lane]
