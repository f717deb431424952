"""The kernels for element types, and how they are run over arrays."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from numbaops.dtypes import BY_NAME, ElementType
from numbaops.runtime.threads import split

if TYPE_CHECKING:
    from numbaops.kernels.quantization import Each, Walk

Array = npt.NDArray[Any]

UNDIVIDED = 1 << 16
"""Elements up to which the threads are not asked."""

_FLOAT, _INT32 = BY_NAME["float"], BY_NAME["int32"]
WORDS: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16)}


def flat_view(values: Array, dtype: np.dtype[Any]) -> Array:
    """``values`` 1-D, aligned, in the machine's byte order, and read-only: kernels are compiled for such arrays alone."""
    flags = values.flags
    if not (values.dtype == dtype and flags.c_contiguous and flags.aligned):
        values = np.array(values, dtype, order="C", subok=False)
    view = values.reshape(-1)  # a new object, also of what is 1-D
    view.setflags(write=False)
    return view


def walk_over(walk: Walk, x: Array, scales: Array, zeros: Array, out: Array, numbers: tuple[int, ...], bits: tuple[int, int]) -> None:
    """Run a kernel over flat ``x`` and ``out``; ``bits`` are those of an element of each where bytes are packed, else 8."""
    of_x, of_out = bits
    count = out.size if of_out == 8 else x.size
    if count <= UNDIVIDED:
        walk(x, scales, zeros, out, 0, *numbers)
        return

    def work(start: int, stop: int) -> None:
        part = x[start * of_x // 8 : -(-stop * of_x // 8)]
        walk(part, scales, zeros, out[start * of_out // 8 : -(-stop * of_out // 8)], start, *numbers)

    split(work, count, x.itemsize + out.itemsize, 64)


def _quiet(walk: Walk) -> Walk:
    """A kernel that does not warn without the JIT either."""
    from numbaops.kernels.quantization import COMPILED

    return walk if COMPILED else np.errstate(all="ignore")(walk)


def ends(target: ElementType) -> tuple[float, float]:
    """The smallest and the largest integer of a type."""
    if target.kind == "signed":
        return -float(1 << target.bits - 1), float((1 << target.bits - 1) - 1)
    return 0.0, float((1 << target.bits) - 1)


@functools.cache
def quantize_kernel(source: ElementType, precision: ElementType, target: ElementType, saturate: bool, by_rows: bool, packing: bool) -> Walk:
    from numbaops.kernels import floats, quantization

    name: tuple[Any, ...] = (target.name, saturate, precision.name)
    narrow = quantization.NARROW[precision.name]
    if target.format is not None:
        encode = floats.make_encoder(target.format, saturate)
        each = quantization.make_quantize_float(encode, narrow, name)
    else:
        low, high = ends(target)
        each = quantization.make_quantize_integer(int(low), int(high), target.bits, narrow, name)
    given = source.dtype.name if source in (_FLOAT, _INT32) else "float32"
    code = WORDS[target.dtype.itemsize].name
    walk = _walk(each, by_rows, ("quantize", *name), given, "float32", code)
    name = ("quantize", *name, source.name, by_rows)
    if source.bits == 16:
        widen = floats.widen_float16 if source.name == "float16" else floats.widen_bfloat16
        walk, given = quantization.make_widened(widen, walk, name, code), "uint16"
    return _quiet(quantization.make_packing(walk, target.bits, name, given) if packing else walk)


def _walk(each: Each, by_rows: bool, name: tuple[Any, ...], source: str, zeros: str, target: str) -> Walk:
    from numbaops.kernels import quantization

    make = quantization.make_rows if by_rows else quantization.make_runs
    return make(each, (*name, source), source, zeros, target)


@functools.cache
def dequantize_kernel(source: ElementType, target: ElementType, by_rows: bool, unpacking: bool) -> Walk:
    from numbaops.kernels import decoders, floats, quantization

    name = (source.name, target.name)
    if source.format is not None:
        minus = quantization.make_float_minus(decoders.make_decoder(source.format), name)
    elif source is _INT32:
        minus = quantization.int32_minus
    else:
        minus = quantization.make_integer_minus(source.bits, source.kind == "signed")
    if target is _FLOAT:
        each = quantization.make_dequantize(minus, name)
    else:
        assert target.format is not None
        each = quantization.make_dequantize_encoded(minus, floats.make_encoder(target.format, False), name)
    given = "int32" if source is _INT32 else WORDS[source.dtype.itemsize].name
    zeros = "float32" if source.kind == "float" else "int32"
    result = "float32" if target is _FLOAT else "uint16"
    walk = _walk(each, by_rows, ("dequantize", *name), given, zeros, result)
    return _quiet(quantization.make_unpacking(walk, source.bits, (*name, by_rows), zeros, result) if unpacking else walk)


def prepare() -> None:
    """Make the kernels of common quantizations, which :func:`~numbaops.runtime.jit.warm_up` then compiles."""
    for name in ("int8", "uint8", "int4", "uint4", "float8e4m3fn", "float4e2m1"):
        kind = BY_NAME[name]
        for by_rows in (False, True):
            for packing in {False, kind.packed}:
                quantize_kernel(_FLOAT, _FLOAT, kind, True, by_rows, packing)
                dequantize_kernel(kind, _FLOAT, by_rows, packing)
