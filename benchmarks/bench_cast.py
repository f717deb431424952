"""Conversions between element types, beside ``astype`` of ml_dtypes and NumPy, which neither saturate nor round once from 64 bits.

:func:`rows` has the same as ratios for the table of :mod:`.acceptance`.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import timeit
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .common import Comparison, Thunk, compare, interleave, set_threads
from .peers import check

Array = npt.NDArray[Any]

LARGE = 1 << 24
FLOAT8 = ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"]


@dataclass(frozen=True)
class Conversion:
    """What is converted.

    Attributes:
        source: an element type.
        target: an element type.
        size: number of elements.
        packed: whether elements below 8 bits share bytes, on whichever side has such a type.
    """

    source: str
    target: str
    size: int = LARGE
    packed: bool = False

    def array(self) -> Array:
        """Numbers that both types hold about as well; no overflow, which ml_dtypes does not saturate."""
        from numbaops import element_type

        kind, numbers = element_type(self.source), np.resize(np.random.default_rng(0).standard_normal(1 << 16), self.size)
        if kind.kind == "float":
            return numbers.astype(np.float32).astype(kind.dtype)
        return np.abs(numbers).astype(np.int8).astype(kind.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        from numbaops import element_type

        return element_type(self.target).dtype

    def ours(self, threads: int = 1) -> Thunk:
        """The call of numbaops, warmed up and, where both round alike, with its answer checked."""
        import numbaops

        set_threads(threads)
        x: Any = self.array()
        source, target = numbaops.element_type(self.source), numbaops.element_type(self.target)
        if self.packed and source.packed:
            x = numbaops.PackedTensor(numbaops.pack(x), source, x.shape)
        thunk = functools.partial(numbaops.cast, x, self.target, **{"packed": True} if self.packed and target.packed else {})
        for _ in range(2):  # the second call gets recycled memory
            result = thunk()
        rounds_otherwise = source.kind == "float" and target.packed and target.kind != "float"
        if not rounds_otherwise and "float8e8m0" not in (self.source, self.target):
            check(result.unpack() if isinstance(result, numbaops.PackedTensor) else result, self.astype()())
        return thunk

    def astype(self) -> Thunk:
        """``astype`` of the same elements, one a byte.

        Raises:
            NotImplementedError: there is no such conversion; in ``setup`` asv takes it as a skip.
        """
        thunk = functools.partial(self.array().astype, self.dtype)
        try:
            thunk()
        except TypeError as error:
            raise NotImplementedError(f"astype does not convert {self.source} to {self.target}") from error
        return thunk

    def astype_and_packing(self) -> Thunk:
        """The same from or to packed bytes, by the shifts that one would write in NumPy; 4-bit types."""
        x, dtype = self.array(), self.dtype
        if dtype.itemsize == 1:
            return lambda: _pack(x.astype(dtype).view(np.uint8))
        packed, source = _pack(x.view(np.uint8)), x.dtype
        return lambda: _unpack(packed).view(source).astype(dtype)

    def copyto(self) -> Thunk:
        """``np.copyto`` of whichever side is larger."""
        x = self.array()
        larger = x if x.itemsize >= self.dtype.itemsize else np.ones(self.size, self.dtype)
        words = larger.view(f"u{larger.itemsize}")
        return functools.partial(np.copyto, np.ones_like(words), words)


def _pack(codes: Array) -> Array:
    out = codes[::2] & np.uint8(15)
    out |= codes[1::2] << np.uint8(4)
    return out


def _unpack(packed: Array) -> Array:
    out = np.empty(packed.size * 2, np.uint8)
    out[::2] = packed & np.uint8(15)
    out[1::2] = packed >> np.uint8(4)
    return out


# --- for acceptance


def rows() -> Iterable[tuple[str, str, float | None, Callable[[], Comparison]]]:
    """What is converted, the rival, the largest ratio that is good enough (or None), and what measures."""
    narrow = [*FLOAT8, "float4e2m1"]

    def beside(conversion: Conversion, rival: str, target: float | None, threads: int = 1) -> tuple[str, str, float | None, Any]:
        packed = " packed" if conversion.packed else ""
        what = f"{conversion.source} -> {conversion.target}{packed}, {threads} thread{'s' * (threads > 1)}"
        return what, rival, target, functools.partial(_beside, conversion, rival, threads)

    for name, back in itertools.product(narrow, (False, True)):
        pair = (name, "float") if back else ("float", name)
        conversion = Conversion(*pair, packed=name == "float4e2m1")
        yield beside(conversion, "astype", 0.1)
        yield beside(conversion, "copyto", 1.0, threads=2)
    for back in (False, True):
        conversion = Conversion(*(("int4", "float") if back else ("float", "int4")), packed=True)
        yield beside(conversion, "astype", None if back else 1 / 3)
        yield beside(conversion, "astype and packing", None if back else 0.1)
        yield beside(conversion, "copyto", 1.0, threads=2)
    for source, target in [("float16", 1 / 20), ("bfloat16", 1 / 20), ("double", 1 / 7)]:
        for name in ("float8e4m3fn", "float8e5m2fnuz"):
            yield beside(Conversion(source, name), "astype", target)
            yield beside(Conversion(source, name), "copyto", 1.0, threads=2)
    for source, target in [("float", "bfloat16"), ("bfloat16", "float")]:
        for size in (8, 512, 4096, 65536, 1 << 20, LARGE):
            what, *rest = beside(Conversion(source, target, size), "astype", 1.0, threads=2)
            yield f"{what}, {size} elements", *rest
    yield "8 elements, median of all pairs", "astype", 1.7, functools.partial(_smallest, statistics.median)
    yield "8 elements, worst of all pairs", "astype", 1.7, functools.partial(_smallest, max)


def _beside(conversion: Conversion, rival: str, threads: int) -> Comparison:
    rivals = {"astype": conversion.astype, "astype and packing": conversion.astype_and_packing, "copyto": conversion.copyto}
    return compare(conversion.ours(threads), rivals[rival](), 2.0 if conversion.size == LARGE else 0.5)


def _smallest(choose: Callable[[Iterable[float]], float]) -> Comparison:
    """The chosen one of the ratios of all pairs of numeric types, as seconds of ours beside one second."""
    chosen = choose(both.ratio for both in smallest().values())
    return Comparison(chosen, 1.0, chosen, 1)


@functools.cache
def smallest() -> dict[tuple[str, str], Comparison]:
    """8 elements, for each pair of numeric types that ``astype`` converts."""
    from numbaops import ELEMENT_TYPES

    names = [kind.name for kind in ELEMENT_TYPES if kind.kind not in ("complex", "string")]
    result = {}
    for source, target in itertools.product(names, names):
        conversion = Conversion(source, target, 8)
        try:
            ours, rival = conversion.ours(), conversion.astype()
        except NotImplementedError:
            continue
        result[source, target] = interleave(_timer(ours), _timer(rival), 0.0, least_rounds=40)
    return result


def _timer(thunk: Thunk) -> Callable[[], float]:
    return lambda: timeit.timeit(thunk, number=100) / 100


# --- for asv


class Cast:
    params = (
        ["float", "float16", "bfloat16", "double"],
        [*FLOAT8, "float6e2m3", "float4e2m1", "bfloat16", "int4", "int8"],
        [8, 4096, 1048576, 16777216],
    )
    param_names = ("source", "target", "size")

    run: Thunk

    def setup(self, source: str, target: str, size: int) -> None:
        self.run = Conversion(source, target, size).ours()

    def time_cast(self, source: str, target: str, size: int) -> None:
        self.run()


class CastBack:
    params = (
        [*FLOAT8, "float6e2m3", "float4e2m1", "bfloat16", "int4", "int8"],
        ["float", "bfloat16", "double", "int32"],
        [8, 4096, 1048576, 16777216],
    )
    param_names = ("source", "target", "size")

    run: Thunk

    def setup(self, source: str, target: str, size: int) -> None:
        self.run = Conversion(source, target, size).ours()

    def time_cast(self, source: str, target: str, size: int) -> None:
        self.run()


class CastPacked:
    params = ([("float", "int4"), ("float", "float4e2m1"), ("int4", "float"), ("float4e2m1", "float")], [1, 2])
    param_names = ("pair", "threads")

    run: Thunk

    def setup(self, pair: tuple[str, str], threads: int) -> None:
        self.run = Conversion(*pair, packed=True).ours(threads)

    def time_cast(self, pair: tuple[str, str], threads: int) -> None:
        self.run()


class CastPeers:
    """The rivals: ``astype`` on arrays of one element a byte."""

    params = (["float", "float16", "bfloat16", "double"], [*FLOAT8, "float4e2m1", "bfloat16", "int4"], [8, 1048576])
    param_names = ("source", "target", "size")

    run: Thunk

    def setup(self, source: str, target: str, size: int) -> None:
        self.run = Conversion(source, target, size).astype()

    def time_astype(self, source: str, target: str, size: int) -> None:
        self.run()
