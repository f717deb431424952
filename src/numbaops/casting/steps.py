"""What each conversion of large arrays does: the kernel, or the kernels in turn."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from numbaops.dtypes import BY_NAME, ElementType

Array = npt.NDArray[Any]
Step = Callable[[Array, Array], None]
"""Converts a 1-D array into another one; called for parts of a large array, from several threads at once."""

BLOCK = 1 << 14
"""Elements of one part where what lies between two steps shall stay in the L2 cache."""

BOOL, STRING, SCALE = (BY_NAME[name] for name in ("bool", "string", "float8e8m0"))
FLOAT, DOUBLE, FLOAT16, BFLOAT16 = (BY_NAME[name] for name in ("float", "double", "float16", "bfloat16"))
WORDS: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def _context(**settings: Any) -> contextvars.Context:
    context = contextvars.Context()
    context.run(np.seterr, **settings)
    return context


# NumPy keeps its error state in a context variable: ``QUIET.copy().run(...)`` takes 0.1 us, entering np.errstate 1.1.
QUIET = _context(all="ignore")
"""Where NumPy does not warn."""
STRICT = _context(all="ignore", invalid="raise")
"""The same, but for a FloatingPointError where a result is invalid."""


def builtin(kind: ElementType) -> bool:
    """Whether the dtype is one of NumPy's own."""
    return kind.dtype.isbuiltin == 1


def decodes(source: ElementType, target: ElementType) -> bool:
    """Whether codes become floats by arithmetic; the others are looked up in a table."""
    return source.bits <= 8 and not builtin(source) and target in (FLOAT, DOUBLE, BFLOAT16)


def step_of(source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> Step:
    """The conversion of a source that is not looked up in a table."""
    if source is target:
        return _copy
    if decodes(source, target):
        kernel, word = _decode(source, target), WORDS[target.dtype.itemsize]
        return lambda x, out: kernel(x.view(np.uint8), out.view(word))
    if source.kind == "float":
        if target is FLOAT and source.bits == 16:
            return _widen
        if target.bits == 16 and target.kind == "float":  # NumPy needs ten times as long for float16
            return _encode_step(source, target, saturate, round_mode)
        if source is not BFLOAT16:
            if target is BOOL or (target.kind == "float" and builtin(target)):
                return _copy
            if target.bits >= 8 and target.kind != "float":
                return _truncate(source, target) if source.bits > 16 else _then(_widen, FLOAT.dtype, _truncate(FLOAT, target))
        elif builtin(target):
            return _then(_widen, FLOAT.dtype, step_of(FLOAT, target, saturate, round_mode))
        return _encode_step(source, target, saturate, round_mode)
    if builtin(target):
        return _copy
    if target.kind != "float":
        return functools.partial(_low_bits, (1 << target.bits) - 1)
    if source.bits == 64:
        return _then(_narrow, DOUBLE.dtype, step_of(DOUBLE, target, saturate, round_mode))
    exact = DOUBLE if source.bits > 16 else FLOAT
    return _then(_copy, exact.dtype, step_of(exact, target, saturate, round_mode))


def _copy(x: Array, out: Array) -> None:
    QUIET.copy().run(np.copyto, out, x, "unsafe")


def _low_bits(mask: int, x: Array, out: Array) -> None:
    codes = out.view(np.uint8)
    np.copyto(codes, x, casting="unsafe")
    np.bitwise_and(codes, mask, out=codes)


def integers(source: ElementType, target: ElementType) -> Step | None:
    """The conversion between integers of which one has less than 8 bits, in a sixth of the time that a table takes; None for others."""
    if source.kind not in ("signed", "unsigned") or target.kind not in ("signed", "unsigned") or not (source.packed or target.packed):
        return None
    if source.packed and (target.bits > 8 or (source.kind == "signed" and target.bits > source.bits)):
        from numbaops.kernels import decoders

        word = WORDS[target.dtype.itemsize]
        kernel = decoders.extend(source.bits, source.kind == "signed", word.name, target.bits)
        return lambda x, out: kernel(x.view(np.uint8), out.view(word))
    mask = (1 << min(source.bits, target.bits)) - 1
    return lambda x, out: _low_bits(mask, x.view(np.uint8), out)


def _widen(x: Array, out: Array) -> None:
    from numbaops.kernels import floats

    kernel = floats.widen_float16 if x.dtype == FLOAT16.dtype else floats.widen_bfloat16
    kernel(x.view(np.uint16), out.view(np.uint32))


def _narrow(x: Array, out: Array) -> None:
    from numbaops.kernels import floats

    floats.narrow_integer[x.dtype.name](x, out)


def _truncate(source: ElementType, target: ElementType) -> Step:
    from numbaops.kernels import floats

    words = WORDS[target.dtype.itemsize]
    kernel = floats.truncate(source.dtype.name, words.name)
    return lambda x, out: kernel(x, out.view(words))


def _encode_step(source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> Step:
    kernel = _encode(source, target, saturate, round_mode)
    codes = WORDS[target.dtype.itemsize]
    if source is DOUBLE:  # the kernel compiled does not warn of overflow, but without the JIT it does
        return lambda x, out: QUIET.copy().run(kernel, x, out.view(codes))
    given = WORDS[source.dtype.itemsize]
    return lambda x, out: kernel(x.view(given), out.view(codes))


def _then(first: Step, between: np.dtype[Any], second: Step) -> Step:
    """Two steps in turn, over blocks."""

    def step(x: Array, out: Array) -> None:
        block = np.empty(min(BLOCK, x.size), between)
        for start in range(0, x.size, BLOCK):
            part = x[start : start + BLOCK]
            first(part, block[: part.size])
            second(block[: part.size], out[start : start + BLOCK])

    return step


@functools.cache
def _encode(source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> Step:
    """The kernel from a float type of at least 16 bits to the codes of a narrower type."""
    from numbaops.kernels import floats

    if source is DOUBLE and target.kind != "float":
        return floats.make_round_float64(target.bits)
    name = (target.name, saturate, round_mode)
    codes = WORDS[target.dtype.itemsize].name
    if target is SCALE:
        encoder = floats.make_scale_encoder(round_mode, saturate)
    elif target.format is None:
        encoder = floats.make_integer_encoder(target.bits)
    else:
        half = source is FLOAT16 and target is not BFLOAT16
        encoder = floats.make_encoder(target.format, saturate and target.bits <= 8, half)
        if half:
            return floats.make_encode(encoder, name, codes, "float16")
    if source in (FLOAT, BFLOAT16):
        return floats.make_encode(encoder, name, codes, source.dtype.name)
    widen, given = (floats.narrow_float64, "float64") if source is DOUBLE else (floats.widen_float16, "uint16")
    return floats.make_staged(widen, _encode(FLOAT, target, saturate, round_mode), (*name, source.name), given, "uint32", codes)


@functools.cache
def encode_packed(source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> Step:
    """The kernel from a float type of at least 16 bits, given as unsigned words or float64, to packed codes."""
    from numbaops.kernels import floats

    given = "float64" if source is DOUBLE else WORDS[source.dtype.itemsize].name
    return floats.make_packed(_encode(source, target, saturate, round_mode), target.bits, (target.name, source.name), given)


@functools.cache
def _decode(source: ElementType, target: ElementType) -> Step:
    """The kernel from codes of at most 8 bits to float32, float64 or bfloat16, as unsigned words."""
    from numbaops.kernels import decoders

    if source is SCALE:
        decoder = decoders.make_scale_decoder()
    elif source.format is not None:
        decoder = decoders.make_decoder(source.format)
    else:
        decoder = decoders.make_integer_decoder(source.bits, source.kind == "signed")
    return decoders.make_decode(decoder, (source.name,), WORDS[target.dtype.itemsize].name)


@functools.cache
def decode_packed(source: ElementType, target: ElementType) -> Step:
    """The same from packed codes."""
    from numbaops.kernels import decoders

    return decoders.make_decode_packed(_decode(source, target), source.bits, (source.name,), WORDS[target.dtype.itemsize].name)


def prepare() -> None:
    """Make the kernels of common conversions, which :func:`~numbaops.runtime.jit.warm_up` then compiles."""
    from numbaops.kernels import floats

    for kind in BY_NAME.values():
        if kind is not FLOAT and (kind.bits in (2, 4, 6) or (kind.kind == "float" and kind.bits in (8, 16))):
            _encode(FLOAT, kind, True, "up")
            if kind.packed:
                encode_packed(FLOAT, kind, True, "up")
                decode_packed(kind, FLOAT)
            elif kind.bits == 8:
                for wide in (FLOAT, BFLOAT16):
                    _decode(kind, wide)
                for wide in (FLOAT16, BFLOAT16, DOUBLE):
                    _encode(wide, kind, True, "up")
    for word in WORDS.values():
        floats.look_up(word.name)
        for source in ("float32", "float64"):
            floats.truncate(source, word.name)
