"""Conversion between element types, as the text of ONNX's Cast has it.

What the text leaves open, here: a float becomes an integer of at least 8 bits by truncation, of which the low bits are kept as when
an integer becomes a narrower one; infinities and NaN become 0. To 4 and 2 bits it rounds to even first. In formats without
NaN, +NaN becomes minus zero and -NaN zero. From float64, 64-bit integers and strings there is one rounding, the target's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from numbaops.convert import Bytes, PackedTensor, as_strings, check_out, pack, packed
from numbaops.dtypes import BY_NAME, ElementType, of_dtype
from numbaops.dtypes import element_type as _element_type
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.runtime import memory
from numbaops.runtime.threads import split
from numbaops.text import number_in, rounded_to_odd, texts_of, whole_part

Array = npt.NDArray[Any]
Step = Callable[[Array, Array], None]
"""Converts a 1-D array into another one; called for parts of a large array, from several threads at once."""

JIT_FROM = 1 << 10
"""Elements below which ``astype`` serves where it gives the same, so that a small array does not load Numba."""

BLOCK = 1 << 14
"""Elements of one part where what lies between two steps shall stay in the L2 cache."""

ROUND_MODES = ("up", "down", "nearest")

_BOOL, _STRING, _FLOAT, _BFLOAT16, _SCALE = (BY_NAME[name] for name in ("bool", "string", "float", "bfloat16", "float8e8m0"))
_WORDS: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def cast(
    x: npt.ArrayLike | PackedTensor,
    to: Any,
    *,
    saturate: bool = True,
    round_mode: str = "up",
    out: Array | None = None,
    packed: bool = False,
) -> Array | PackedTensor:
    """``x`` with its elements converted to another type, as ONNX's Cast does.

    Args:
        x: an array of any layout and byte order, a NumPy scalar, or packed elements.
        to: the element type to convert to; whatever :func:`~numbaops.element_type` takes.
        saturate: whether values beyond a float8 type's range become its largest finite value; otherwise its infinity, or NaN.
        round_mode: how float8e8m0 rounds: ``"up"``, ``"down"`` or ``"nearest"``, which rounds ties up.
        out: a C-contiguous array of the result's dtype and shape to write into; of the result's bytes when ``packed``.
        packed: whether to return the bytes of ``raw_data``; types below 8 bits then share bytes.

    Returns:
        A new array, or ``out``; a :class:`PackedTensor` when ``packed``.

    Raises:
        InvalidTypeError: an argument is of the wrong kind, or one type is complex or string and the other has no conversion to it.
        InvalidValueError: a text is no number, ``round_mode`` is unknown, or ``out`` does not fit.
    """
    if out is None and saturate is True and type(x) is np.ndarray and x.size < JIT_FROM and round_mode == "up" and not packed:
        try:
            dtype = _delegated.get((x.dtype, to))
        except TypeError:  # ``to`` cannot be hashed
            dtype = None
        if dtype is not None:
            return x.astype(dtype, "C")
    if isinstance(x, PackedTensor):
        plan = _plan(x.element_type.dtype, to, saturate, round_mode)
        return plan.repack(x, out) if packed else plan.unpack(x, out)
    if not isinstance(x, (np.ndarray, np.generic)):
        raise InvalidTypeError(f"x is a {type(x).__name__}; allowed: numpy.ndarray, NumPy scalars and PackedTensor", attribute="x")
    array = np.asarray(x)
    plan = _plan(array.dtype, to, saturate, round_mode)
    if plan.delegates and isinstance(to, (str, ElementType, np.dtype, type)) and len(_delegated) < 1024:  # not 1, which equals True
        _delegated[array.dtype, to] = plan.target.dtype
    return plan.pack(array, out) if packed else plan.array(array, out)


_delegated: dict[tuple[np.dtype[Any], Any], np.dtype[Any]] = {}
"""Dtypes of results of small arrays, by the arguments: half a microsecond less than the whole way."""


def _plan(dtype: np.dtype[Any], to: Any, saturate: bool, round_mode: str) -> _Plan:
    try:
        return _cached_plan(dtype, to, saturate, round_mode)
    except TypeError as error:
        if isinstance(error, InvalidTypeError):
            raise
    return _cached_plan(dtype, _element_type(to), _checked(saturate), _checked_mode(round_mode))  # something cannot be hashed


def _checked(saturate: Any) -> bool:
    if not isinstance(saturate, (bool, np.bool_)):
        raise InvalidTypeError(f"saturate is {saturate!r}; allowed: True and False", attribute="saturate")
    return bool(saturate)


def _checked_mode(round_mode: Any) -> str:
    if not isinstance(round_mode, str):
        raise InvalidTypeError(f"round_mode is {round_mode!r}; allowed: {', '.join(ROUND_MODES)}", attribute="round_mode")
    if round_mode not in ROUND_MODES:
        raise InvalidValueError(f"round_mode is {round_mode!r}; allowed: {', '.join(ROUND_MODES)}", attribute="round_mode")
    return round_mode


@functools.lru_cache(maxsize=1024, typed=True)
def _cached_plan(dtype: np.dtype[Any], to: Any, saturate: bool, round_mode: str) -> _Plan:
    target, saturate, round_mode = _element_type(to), _checked(saturate), _checked_mode(round_mode)
    source = of_dtype(dtype)
    if source is not target and "complex" in (source.kind, target.kind):
        text = f"there is no conversion from {source} to {target}; complex numbers convert to themselves only"
        raise InvalidTypeError(text, attribute="to")
    # What has no effect must not make another plan, table or kernel.
    return _Plan(source, target, saturate or not _overflows(target), round_mode if target is _SCALE else "up")


def _overflows(target: ElementType) -> bool:
    return target.bits == 8 and target.kind == "float"


def _builtin(kind: ElementType) -> bool:
    return kind.dtype.isbuiltin == 1


class _Plan:
    """One conversion: how arrays of any size are brought from one element type to another."""

    def __init__(self, source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> None:
        self.source = source
        self.target = target
        self.saturate = saturate
        self.round_mode = round_mode
        self.delegates = _delegates(source, target, saturate)
        self.copies = _builtin(source) and target.dtype == np.float16  # as astype, but for a warning of overflow
        self.text = _STRING in (source, target)
        self.truncates = source.kind == "float" and source.bits > 8 and target.bits >= 8 and target.kind in ("signed", "unsigned")

    @functools.cached_property
    def step(self) -> Step:
        return self.look_up if self.by_table else _step(self.source, self.target, self.saturate, self.round_mode)

    @functools.cached_property
    def table(self) -> Array:
        """The result for each code of a source of at most 8 bits, as unsigned words; its first part serves packed codes."""
        source = self.source
        codes = np.arange(256, dtype=np.uint8)
        if source is _BOOL:
            values = (codes != 0).astype(np.float32)
        else:
            # float32 holds them all
            values = (codes & ((1 << source.bits) - 1)).view(source.dtype).astype(np.float32)
        if source.kind in ("signed", "unsigned") and self.target.kind in ("signed", "unsigned"):
            values = values.astype(np.int64)
        result = _plan(values.dtype, self.target, self.saturate, self.round_mode).array(values, None)
        return result.view(_WORDS[result.itemsize])

    def array(self, x: Array, out: Array | None) -> Array:
        """The result as an array."""
        result, flat = self.result(x.shape, x, out)
        if self.text:
            flat[...] = self.strings(x.reshape(-1))
            return result
        x = self.flat(x)
        if x.size < JIT_FROM:
            if self.delegates or self.copies:
                _copy(x, flat)
            elif not (self.truncates and _few_integers(x, flat)):
                self.step(x, flat)
            return result
        step = self.step
        split(lambda start, stop: step(x[start:stop], flat[start:stop]), x.size, max(x.itemsize, flat.itemsize), 64)
        return result

    def flat(self, x: Array) -> Array:
        """``x`` as a 1-D array in the machine's byte order."""
        if x.dtype != self.source.dtype or not x.flags.c_contiguous or not x.flags.aligned:
            x = np.array(x, self.source.dtype, order="C", subok=False)
        return x.reshape(-1)

    def result(self, shape: tuple[int, ...], x: Array, out: Array | None) -> tuple[Array, Array]:
        """The array to return, and the same one flat to write to; ``x`` is what it is made of."""
        dtype = self.target.dtype
        if out is not None:
            plain = check_out(out, dtype, shape)
            if not np.may_share_memory(plain, x):
                return out, plain.reshape(-1)
            raise InvalidValueError("out shares memory with x; allowed: memory of its own", attribute="out")
        size = math.prod(shape)
        new = np.empty(shape, dtype) if size < JIT_FROM or dtype.kind == "O" else memory.empty(shape, dtype, size * dtype.itemsize)[0]
        return new, new.reshape(-1)

    @property
    def by_table(self) -> bool:
        """Whether each code of the source is looked up: all but the conversions at which NumPy is as fast."""
        if self.source.bits > 8 or (self.source is self.target and self.source.bits == 8):
            return False
        return not (_builtin(self.source) and _builtin(self.target))

    def look_up(self, x: Array, out: Array) -> None:
        codes, words = x.view(np.uint8), out.view(self.table.dtype)
        if x.size < JIT_FROM:
            self.table.take(codes, out=words, mode="wrap")  # without a mode it makes a copy first
            return
        from numbaops.kernels import floats

        floats.look_up(self.table.dtype.name)(codes, self.table, words)

    def strings(self, x: Array) -> Array:
        """Conversions from and to text; ``x`` is flat."""
        if self.source is not _STRING:
            return as_strings(texts_of(x, self.source), "x")
        texts = as_strings(x.tolist(), "x")
        if self.target is _STRING:
            return texts
        numbers = [number_in(text, position) for position, text in enumerate(texts)]
        if self.target.kind == "bool":
            return np.array([number != 0 for number in numbers], bool)
        if self.target.kind != "float":
            low = (1 << self.target.bits) - 1
            codes = [whole_part(number) & low for number in numbers]
            return np.array(codes, _WORDS[self.target.dtype.itemsize]).view(self.target.dtype)
        if self.target.dtype == np.float64:
            return np.array([float(number) for number in numbers], np.float64)
        odd = np.array([rounded_to_odd(number) for number in numbers], np.float64)
        return _plan(odd.dtype, self.target, self.saturate, self.round_mode).array(odd, None)

    def pack(self, x: Array, out: Array | None) -> PackedTensor:
        """The result packed."""
        source, target = self.source, self.target
        if target.kind == "string":
            raise InvalidTypeError("strings have no packed form; allowed: any other element type", attribute="to")
        if not target.packed or x.size < JIT_FROM or source.bits <= 8 or source.kind != "float":
            return self.packed_copy(self.array(x, None), out)
        flat = self.flat(x)
        words = flat if source.dtype == np.float64 else flat.view(_WORDS[flat.itemsize])
        data = self.packed_out(x.size, x, out)
        bits = target.bits
        kernel = _encode_packed(source, target, self.saturate, self.round_mode)
        split(lambda start, stop: kernel(words[start:stop], data[start * bits // 8 : -(-stop * bits // 8)]), x.size, flat.itemsize, 64)
        return PackedTensor(data if out is None else out, target, x.shape)

    def packed_out(self, count: int, x: Array, out: Array | None) -> Bytes:
        nbytes = self.target.packed_size(count)
        if out is None:
            return memory.empty((nbytes,), np.dtype(np.uint8), nbytes)[0]
        plain = check_out(out, np.dtype(np.uint8), (nbytes,))
        if np.may_share_memory(plain, x):
            raise InvalidValueError("out shares memory with x; allowed: memory of its own", attribute="out")
        return plain

    def packed_copy(self, array: Array, out: Array | None) -> PackedTensor:
        result = PackedTensor(pack(array), self.target, array.shape) if self.target.packed else packed(array)
        if out is None:
            return result
        self.packed_out(array.size, array, out)[...] = result.data
        return PackedTensor(out, self.target, array.shape)

    def unpack(self, x: PackedTensor, out: Array | None) -> Array:
        """The result, an array, from packed elements."""
        source = self.source
        if x.size < JIT_FROM or source.bits not in (2, 4) or self.target is _STRING:
            return self.array(x.unpack(), out)
        result, flat = self.result(x.shape, x.data, out)
        data, table, per_byte = x.data, self.table, 8 // source.bits
        words = flat.view(table.dtype)
        from numbaops.kernels import floats

        kernel = floats.look_up_packed(source.bits, table.dtype.name)
        split(
            lambda start, stop: kernel(data[start // per_byte : -(-stop // per_byte)], table, words[start:stop]),
            x.size,
            max(1, words.itemsize),
            64,
        )
        return result

    def repack(self, x: PackedTensor, out: Array | None) -> PackedTensor:
        """The result, packed, from packed elements."""
        return self.pack(x.unpack(), out)


def _delegates(source: ElementType, target: ElementType, saturate: bool) -> bool:
    """Whether ``astype`` gives the same, bit for bit and without a warning."""
    if _STRING in (source, target):
        return False
    if source.kind == "complex":
        return True
    if source is _BOOL:  # NumPy takes any byte but 0 for 1, ml_dtypes for what it is
        return _builtin(target)
    if source.kind == "float":
        if target.kind != "float" or target is _SCALE or source.bits == 64:
            return source is target or (target is _BOOL and _builtin(source))
        if target.bits >= 32 or source is target:
            return source.bits >= 8 or source is not target
        # NumPy warns of overflow to float16; ml_dtypes never saturates its float8 types.
        return source.bits >= 16 and not _builtin(target) and not (saturate and target.bits == 8)
    if target.kind in ("signed", "unsigned"):
        return target.bits >= 8
    return target is _BOOL if not (_builtin(target) and target.bits >= 32) else True


def _few_integers(x: Array, out: Array) -> bool:
    """Truncate floats by way of int64, unless one is beyond; returns whether it was done."""
    try:
        with np.errstate(invalid="raise"):
            out[...] = x.astype(np.float32 if x.dtype.isbuiltin != 1 else x.dtype, copy=False).astype(np.int64)
    except FloatingPointError:
        return False
    return True


# Steps of large arrays


def _step(source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> Step:
    """The conversion of a source that is not looked up in a table."""
    if source is target:
        return _copy
    if source.kind == "float":
        if target is _FLOAT and source.bits == 16:
            return _widen
        if target.bits == 16 and target.kind == "float":  # NumPy needs ten times as long for float16
            return _encode_step(source, target, saturate, round_mode)
        if source is not _BFLOAT16:
            if target is _BOOL or (target.kind == "float" and _builtin(target)):
                return _copy
            if target.bits >= 8 and target.kind != "float":
                return _truncate(source, target) if source.bits > 16 else _then(_widen, _FLOAT.dtype, _truncate(_FLOAT, target))
        elif _builtin(target):
            return _then(_widen, _FLOAT.dtype, _step(_FLOAT, target, saturate, round_mode))
        return _encode_step(source, target, saturate, round_mode)
    if _builtin(target):
        return _copy
    if target.kind != "float":
        return functools.partial(_low_bits, (1 << target.bits) - 1)
    if source.bits == 64:
        return _then(_narrow, np.dtype(np.float64), _step(BY_NAME["double"], target, saturate, round_mode))
    exact = BY_NAME["double"] if source.bits > 16 else _FLOAT
    return _then(_copy, exact.dtype, _step(exact, target, saturate, round_mode))


def _copy(x: Array, out: Array) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(out, x, casting="unsafe")


def _low_bits(mask: int, x: Array, out: Array) -> None:
    codes = out.view(np.uint8)
    np.copyto(codes, x, casting="unsafe")
    np.bitwise_and(codes, mask, out=codes)


def _widen(x: Array, out: Array) -> None:
    from numbaops.kernels import floats

    kernel = floats.widen_float16 if x.dtype == np.float16 else floats.widen_bfloat16
    kernel(x.view(np.uint16), out.view(np.uint32))


def _narrow(x: Array, out: Array) -> None:
    from numbaops.kernels import floats

    floats.narrow_integer[x.dtype.name](x, out)


def _truncate(source: ElementType, target: ElementType) -> Step:
    from numbaops.kernels import floats

    words = _WORDS[target.dtype.itemsize]
    kernel = floats.truncate(source.dtype.name, words.name)
    return lambda x, out: kernel(x, out.view(words))


def _encode_step(source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> Step:
    kernel = _encode(source, target, saturate, round_mode)
    given = source.dtype if source.bits == 64 else _WORDS[source.dtype.itemsize]
    codes = _WORDS[target.dtype.itemsize]

    def step(x: Array, out: Array) -> None:
        kernel(x.view(given), out.view(codes))

    def quiet(x: Array, out: Array) -> None:
        with np.errstate(over="ignore"):  # the kernel compiled does not warn, but without the JIT it does
            step(x, out)

    return quiet if source.bits == 64 else step


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
def _encode(source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> Callable[[Array, Array], None]:
    """The kernel from a float type of at least 16 bits to the codes of a narrower type."""
    from numbaops.kernels import floats

    if source.bits == 64 and target.kind != "float":
        return floats.make_round_float64(target.bits)
    name = (target.name, saturate, round_mode)
    codes = _WORDS[target.dtype.itemsize].name
    if source is not _FLOAT:
        widen = {"float16": floats.widen_float16, "bfloat16": floats.widen_bfloat16, "double": floats.narrow_float64}[source.name]
        given = "float64" if source.bits == 64 else "uint16"
        return floats.make_staged(widen, _encode(_FLOAT, target, saturate, round_mode), (*name, source.name), given, "uint32", codes)
    if target is _SCALE:
        encoder = floats.make_scale_encoder(round_mode, saturate)
    elif target.format is not None:
        encoder = floats.make_encoder(target.format, saturate and target.bits <= 8)
    else:
        encoder = floats.make_integer_encoder(target.bits)
    return floats.make_encode(encoder, name, codes)


@functools.cache
def _encode_packed(source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> Callable[[Array, Array], None]:
    """The same to packed codes."""
    from numbaops.kernels import floats

    given = "float64" if source.bits == 64 else _WORDS[source.dtype.itemsize].name
    return floats.make_packed(_encode(source, target, saturate, round_mode), target.bits, (target.name, source.name), given)


def prepare() -> None:
    """Make the kernels of common conversions, which :func:`~numbaops.runtime.jit.warm_up` then compiles."""
    from numbaops.kernels import floats

    for target in BY_NAME.values():
        if target is not _FLOAT and (target.bits in (2, 4, 6) or (target.kind == "float" and target.bits in (8, 16))):
            _encode(_FLOAT, target, True, "up")
            if target.packed:
                _encode_packed(_FLOAT, target, True, "up")
        if _overflows(target):
            for source in ("float16", "bfloat16", "double"):
                _encode(BY_NAME[source], target, True, "up")
    for word in _WORDS.values():
        floats.look_up(word.name)
        for source in ("float32", "float64"):
            floats.truncate(source, word.name)
    for bits in (2, 4):
        floats.look_up_packed(bits, "uint32")
