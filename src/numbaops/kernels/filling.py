"""Kernels that write one value everywhere.

``fill`` is a plain loop that Numba compiles anew for each storage width. ``stream`` writes past the caches with 64-byte
non-temporal stores: on resident memory far beyond the caches it reaches two to three times the bandwidth, since no line is
read before it is written; on fresh pages it loses (3.7 against 5.7 GB/s), and data that is read again soon is better in cache.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from numbaops.runtime.jit import kernel

LINE = 64
"""Bytes of a cache line, and of one non-temporal store."""

X86 = platform.machine() in ("x86_64", "AMD64")

STREAMS = X86 and not numba.config.DISABLE_JIT
"""Whether ``stream`` has non-temporal stores; elsewhere it is the plain loop."""

_WORDS = ("uint8", "uint16", "uint32", "uint64")
_FILL = tuple(f"void({word}[::1], {word})" for word in _WORDS)
_FILL_PAIRS = tuple(f"void({word}[::1], {word}, {word})" for word in ("uint32", "uint64"))


@kernel(*_FILL)
def fill(out: Any, value: Any) -> None:
    """Write ``value`` to every element of ``out``, an array of any shape and layout."""
    out[...] = value


@kernel(*_FILL_PAIRS)
def fill_pairs(out: Any, low: int, high: int) -> None:
    """Write elements of two words: ``low`` and ``high`` in turn in ``out``, a 1-D array of words."""
    for i in range(0, out.size - 1, 2):
        out[i] = low
        out[i + 1] = high
    if out.size % 2:
        out[out.size - 1] = low


@intrinsic  # type: ignore[untyped-decorator]
def _store_line(typing_context: Any, array: Any, index: Any, first: Any, second: Any) -> Any:
    """Store 64 bytes at ``array[index]``, ``first`` and ``second`` in turn, past the caches; the address is a multiple of 64."""
    flat = isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C" and array.aligned
    if not flat or not isinstance(array.dtype, (types.Integer, types.Float)):
        raise TypingError(f"stream takes a 1-D C-contiguous, aligned array of integers or floats, not {array}; fill takes all")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, position, *words = arguments
        data = context.make_array(array)(context, builder, pointer).data
        word = context.get_data_type(array.dtype)
        lanes = LINE // context.get_abi_sizeof(word)
        vector = ir.VectorType(word, lanes)
        line = ir.Constant(vector, ir.Undefined)
        for lane in range(lanes):
            line = builder.insert_element(line, words[lane % 2], ir.Constant(ir.IntType(32), lane))
        address = builder.bitcast(builder.gep(data, [position]), vector.as_pointer())
        store = builder.store(line, address, align=LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype, array.dtype), generate


@intrinsic  # type: ignore[untyped-decorator]
def _store_fence(typing_context: Any) -> Any:
    """Order the non-temporal stores before whatever follows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.sfence"), [])
        return context.get_dummy_value()

    return types.void(), generate


if STREAMS:

    @kernel(*_FILL_PAIRS)
    def stream_pairs(out: Any, low: Any, high: Any) -> None:
        """``fill_pairs`` past the caches; ``out`` is contiguous and aligned to its element."""
        lanes = LINE // out.itemsize
        aligned = out.ctypes.data % out.itemsize == 0  # else no line begins at an element: the loops do it all
        head = min((-out.ctypes.data % LINE) // out.itemsize, out.size) if aligned else out.size
        tail = out.size - (out.size - head) % lanes
        for i in range(head):
            out[i] = high if i % 2 else low
        first = high if head % 2 else low
        second = low if head % 2 else high
        for i in range(head, tail, lanes):
            _store_line(out, i, first, second)
        _store_fence()
        for i in range(tail, out.size):
            out[i] = high if i % 2 else low

    @kernel(*_FILL)
    def stream(out: Any, value: Any) -> None:
        """``fill`` past the caches; ``out`` is 1-D, contiguous and aligned to its element."""
        stream_pairs(out, value, value)

else:
    stream, stream_pairs = fill, fill_pairs


def make_fill_packed(bits: int) -> Callable[[Any, int, int], None]:
    """The fill of packed elements of ``bits`` (2 or 4) each.

    Returns:
        ``fill_packed(out, count, code)``: writes ``count`` times ``code`` into the uint8 array ``out``, first element in the low
        bits; the unused high bits of the last byte become zero.
    """
    per_byte = 8 // bits
    mask = (1 << bits) - 1
    ones = 0xFF // mask  # a one in the lowest bit of each element

    @kernel("void(uint8[::1], int64, uint8)", key=(bits,))
    def fill_packed(out: Any, count: int, code: int) -> None:
        whole = count // per_byte
        fill(out[:whole], (code & mask) * ones)
        if count % per_byte:
            out[whole] = (code & mask) * ones & ((1 << count % per_byte * bits) - 1)

    return fill_packed


fill_packed = {bits: make_fill_packed(bits) for bits in (2, 4)}
