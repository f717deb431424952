"""Plans: how arrays of any size are brought from one element type to another."""

from __future__ import annotations

import functools
import math

import numpy as np

from numbaops.casting import small, steps
from numbaops.casting.steps import BFLOAT16, BOOL, FLOAT, FLOAT16, QUIET, SCALE, STRING, WORDS, Array, Step, builtin
from numbaops.convert import Bytes, PackedTensor, as_strings, check_out, pack, packed
from numbaops.dtypes import ElementType
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.runtime import memory
from numbaops.runtime.threads import split
from numbaops.text import doubles_in, number_in, rounded_to_odd, texts_of, whole_part

JIT_FROM = 1 << 10
"""Elements below which NumPy serves, so that a small array does not load Numba."""

NUMPY_BELOW = 1 << 19
"""The same where the large conversion is NumPy's as well, but in several threads and into recycled memory."""

# ml_dtypes has vector code for these two, NumPy for all that is its own but float16.
_VECTORISED = {(FLOAT, BFLOAT16): 1 << 13, (BFLOAT16, FLOAT): 1 << 21}


@functools.lru_cache(maxsize=1024)
def plan_of(source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> Plan:
    """The plan of a conversion.

    Raises:
        InvalidTypeError: one type is complex and the other has no conversion to it.
    """
    if source is not target and "complex" in (source.kind, target.kind):
        text = f"there is no conversion from {source} to {target}; complex numbers convert to themselves only"
        raise InvalidTypeError(text, attribute="to")
    return Plan(source, target, saturate, round_mode)


class Plan:
    """One conversion."""

    def __init__(self, source: ElementType, target: ElementType, saturate: bool, round_mode: str) -> None:
        self.source = source
        self.target = target
        # What has no effect must not make another kernel.
        self.saturate = saturate or target.bits != 8 or target.kind != "float"
        self.round_mode = round_mode if target is SCALE else "up"
        self.text = STRING in (source, target)
        # Each code of the source is looked up: all but the conversions at which NumPy is as fast.
        self.by_table = (
            not self.text and source.bits <= 8 and (source is not target or source.packed) and not (builtin(source) and builtin(target))
        )

    @functools.cached_property
    def same_codes(self) -> bytes:
        """Those codes of a source that is looked up of which ``astype`` gives the same."""
        return small.same_codes(self.source, self.target, self.table)

    @functools.cached_property
    def delegates(self) -> bool:
        """Whether ``astype`` gives the same, bit for bit and without a warning."""
        if self.by_table:
            return len(self.same_codes) == 256
        return not self.text and small.delegates(self.source, self.target, self.saturate)

    @property
    def quiet(self) -> bool:
        """Whether ``astype`` would warn of signalling NaNs."""
        return self.source.kind == "float" and self.source.bits >= 16 and self.source is not self.target

    @functools.cached_property
    def step(self) -> Step:
        """The conversion of a large array."""
        if self.by_table and not steps.decodes(self.source, self.target):
            return steps.integers(self.source, self.target) or self.look_up
        return steps.step_of(self.source, self.target, self.saturate, self.round_mode)

    @functools.cached_property
    def small(self) -> small.Small:
        """The conversion of a small array."""
        if self.delegates:
            dtype = self.target.dtype
            if self.quiet:
                return lambda x: QUIET.copy().run(x.astype, dtype, "C")
            return lambda x: x.astype(dtype, "C")
        if self.by_table:
            return small.looked_up(self.table, self.target, self.same_codes)
        if self.source.kind != "float" and self.target in (BFLOAT16, SCALE):
            by_float32 = plan_of(FLOAT, self.target, self.saturate, self.round_mode).small
            return small.by_float32(self.source, by_float32, self.by_step)
        return small.conversion(self.source, self.target, self.saturate) or self.by_step

    def by_step(self, x: Array) -> Array:
        """The same by a kernel."""
        if not (x.flags.aligned and x.dtype.isnative):
            x = x.astype(self.source.dtype)
        out = np.empty(x.shape, self.target.dtype)
        self.step(x.ravel(), out.ravel())
        return out

    @functools.cached_property
    def small_below(self) -> int:
        """Elements below which an array is small."""
        pair = (self.source, self.target)
        if self.delegates and (self.source is self.target or all(builtin(kind) and kind is not FLOAT16 for kind in pair)):
            return NUMPY_BELOW
        return _VECTORISED.get(pair, JIT_FROM)

    @functools.cached_property
    def table(self) -> Array:
        """The result for each code of a source of at most 8 bits, as unsigned words; its first part serves packed codes."""
        source, target = self.source, self.target
        codes = np.arange(256, dtype=np.uint8)
        if source is BOOL:
            values = (codes != 0).astype(np.float32)
        else:
            # float32 holds them all
            values = (codes & ((1 << source.bits) - 1)).view(source.dtype).astype(np.float32)
        if target.kind in ("signed", "unsigned"):
            whole = round if source.kind == "float" and target.bits < 8 else int
            numbers = (whole(number) if math.isfinite(number) else 0 for number in values.tolist())
            result = small.low_bits(numbers, target)
        else:
            result = plan_of(FLOAT, target, self.saturate, self.round_mode).small(values)
        return result.view(WORDS[result.itemsize])

    def array(self, x: Array, out: Array | None) -> Array:
        """The result as an array."""
        if self.text:
            strings = self.strings(x.reshape(-1)).reshape(x.shape)
            return strings if out is None else self.copied(strings, x, out)
        if x.size < self.small_below:
            return self.small(x) if out is None else self.copied(self.small(x), x, out)
        result, flat = self.result(x.shape, x, out)
        x, step = self.flat(x), self.step
        split(lambda start, stop: step(x[start:stop], flat[start:stop]), x.size, max(x.itemsize, flat.itemsize), 64)
        return result

    def flat(self, x: Array) -> Array:
        """``x`` as a 1-D array in the machine's byte order."""
        if x.dtype != self.source.dtype or not x.flags.c_contiguous or not x.flags.aligned:
            x = np.array(x, self.source.dtype, order="C", subok=False)
        return x.reshape(-1)

    def copied(self, result: Array, x: Array, out: Array) -> Array:
        self.result(x.shape, x, out)[1][...] = result.reshape(-1)
        return out

    def result(self, shape: tuple[int, ...], x: Array, out: Array | None) -> tuple[Array, Array]:
        """The array to return, and the same one flat to write to; ``x`` is what it is made of."""
        dtype = self.target.dtype
        if out is None:
            new = memory.empty(shape, dtype, math.prod(shape) * dtype.itemsize)[0]
            return new, new.reshape(-1)
        plain = check_out(out, dtype, shape)
        if not np.may_share_memory(plain, x):
            return out, plain.reshape(-1)
        raise InvalidValueError("out shares memory with x; allowed: memory of its own", attribute="out")

    def look_up(self, x: Array, out: Array) -> None:
        """The step of codes that are looked up."""
        from numbaops.kernels import floats

        floats.look_up(self.table.dtype.name)(x.view(np.uint8), self.table, out.view(self.table.dtype))

    def strings(self, x: Array) -> Array:
        """Conversions from and to text; ``x`` is flat."""
        if self.source is not STRING:
            return as_strings(texts_of(x, self.source), "x")
        texts = as_strings(x.tolist(), "x")
        if self.target is STRING:
            return texts
        if self.target.kind == "float":
            near = doubles_in(texts)
            return (
                near
                if self.target is steps.DOUBLE
                else plan_of(steps.DOUBLE, self.target, self.saturate, self.round_mode).array(rounded_to_odd(near, texts), None)
            )
        numbers = [number_in(text, position) for position, text in enumerate(texts)]
        if self.target is BOOL:
            return np.array([number != 0 for number in numbers], bool)
        return small.low_bits(map(whole_part, numbers), self.target)

    def pack(self, x: Array, out: Array | None) -> PackedTensor:
        """The result packed."""
        source, target = self.source, self.target
        if target is STRING:
            raise InvalidTypeError("strings have no packed form; allowed: any other element type", attribute="to")
        if not target.packed or x.size < JIT_FROM or source.bits <= 8 or source.kind != "float":
            return self.packed_copy(self.array(x, None), out)
        flat = self.flat(x)
        words = flat if source is steps.DOUBLE else flat.view(WORDS[flat.itemsize])
        data = self.packed_out(x.size, x, out)
        bits = target.bits
        kernel = steps.encode_packed(source, target, self.saturate, self.round_mode)
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
        source, target = self.source, self.target
        decodes, bits = steps.decodes(source, target), source.bits
        if x.size < JIT_FROM or self.text or not (decodes or bits in (2, 4)):
            return self.array(x.unpack(), out)
        result, flat = self.result(x.shape, x.data, out)
        data, words = x.data, flat.view(WORDS[flat.itemsize])
        kernel = steps.decode_packed(source, target) if decodes else self.look_up_packed
        split(lambda start, stop: kernel(data[start * bits // 8 : -(-stop * bits // 8)], words[start:stop]), x.size, words.itemsize, 64)
        return result

    def look_up_packed(self, data: Array, words: Array) -> None:
        """The step of packed codes that are looked up."""
        from numbaops.kernels import floats

        floats.look_up_packed(self.source.bits, self.table.dtype.name)(data, self.table, words)

    def repack(self, x: PackedTensor, out: Array | None) -> PackedTensor:
        """The result, packed, from packed elements."""
        return self.pack(x.unpack(), out)
