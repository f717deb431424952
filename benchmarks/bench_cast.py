"""Conversions between element types, beside ``astype`` of ml_dtypes and NumPy, which neither saturate nor round once from 64 bits.

:func:`rows` has the same as ratios for the table of :mod:`.acceptance`.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import timeit
from collections.abc import Callable, Iterable
from typing import Any

from .common import Comparison, Thunk, compare, interleave, square
from .peers import PEERS, Case, build, casts

LARGE = 1 << 24
FLOAT8 = ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"]


def conversion(source: str, target: str, size: int = LARGE, *, packed: bool = False, threads: int = 1) -> Case:
    """A case of Cast."""
    return Case("Cast", square(size), target, source=source, packed=packed, threads=threads)


# --- for acceptance


def rows() -> Iterable[tuple[str, str, float | None, Callable[[], Comparison]]]:
    """What is converted, the rival, the largest ratio that is good enough (or None), and what measures."""
    narrow = [*FLOAT8, "float4e2m1"]

    def beside(case: Case, rival: str, target: float | None) -> tuple[str, str, float | None, Any]:
        packed = " packed" if case.packed else ""
        what = f"{case.source} -> {case.element_type}{packed}, {case.threads} thread{'s' * (case.threads > 1)}"
        return what, rival, target, functools.partial(_beside, case, rival)

    for name, back in itertools.product(narrow, (False, True)):
        pair = (name, "float") if back else ("float", name)
        packed = name == "float4e2m1"
        yield beside(conversion(*pair, packed=packed), "astype", 0.1)
        yield beside(conversion(*pair, packed=packed, threads=2), "copyto", 1.0)
    for back in (False, True):
        pair = ("int4", "float") if back else ("float", "int4")
        yield beside(conversion(*pair, packed=True), "astype", None if back else 1 / 3)
        yield beside(conversion(*pair, packed=True), "astype and packing", None if back else 0.1)
        yield beside(conversion(*pair, packed=True, threads=2), "copyto", 1.0)
    for source, target in [("float16", 1 / 20), ("bfloat16", 1 / 20), ("double", 1 / 7)]:
        for name in ("float8e4m3fn", "float8e5m2fnuz"):
            yield beside(conversion(source, name), "astype", target)
            yield beside(conversion(source, name, threads=2), "copyto", 1.0)
    for source, target in [("float", "bfloat16"), ("bfloat16", "float")]:
        for size in (8, 512, 4096, 65536, 1 << 20, LARGE):
            what, *rest = beside(conversion(source, target, size, threads=2), "astype", 1.0)
            yield f"{what}, {size} elements", *rest
    yield "8 elements, median of all pairs", "astype", 1.7, functools.partial(_smallest, statistics.median)
    yield "8 elements, worst of all pairs", "astype", 1.7, functools.partial(_smallest, max)


def _beside(case: Case, rival: str) -> Comparison:
    rivals = {"astype": casts.astype, "astype and packing": PEERS["Cast"]["numpy_packing"], "copyto": PEERS["Cast"]["memcpy"]}
    return compare(build(case, "numbaops"), rivals[rival](case), 2.0 if case.size == LARGE else 0.5)


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
        case = conversion(source, target, 8)
        try:
            ours, rival = build(case, "numbaops"), casts.astype(case)
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
        [8, 1048576],
    )
    param_names = ("source", "target", "size")

    run: Thunk

    def setup(self, source: str, target: str, size: int) -> None:
        self.run = build(conversion(source, target, size), "numbaops")

    def time_cast(self, source: str, target: str, size: int) -> None:
        self.run()


class CastBack:
    params = (
        [*FLOAT8, "float6e2m3", "float4e2m1", "bfloat16", "int4", "int8"],
        ["float", "bfloat16", "double", "int32"],
        [8, 1048576],
    )
    param_names = ("source", "target", "size")

    run: Thunk

    def setup(self, source: str, target: str, size: int) -> None:
        self.run = build(conversion(source, target, size), "numbaops")

    def time_cast(self, source: str, target: str, size: int) -> None:
        self.run()


class CastLarge:
    params = ([("float", "float8e4m3fn"), ("float8e4m3fn", "float"), ("float", "bfloat16"), ("bfloat16", "float")],)
    param_names = ("pair",)

    run: Thunk

    def setup(self, pair: tuple[str, str]) -> None:
        self.run = build(conversion(*pair), "numbaops")

    def time_cast(self, pair: tuple[str, str]) -> None:
        self.run()


class CastPacked:
    params = ([("float", "int4"), ("float", "float4e2m1"), ("int4", "float"), ("float4e2m1", "float")], [1, 2])
    param_names = ("pair", "threads")

    run: Thunk

    def setup(self, pair: tuple[str, str], threads: int) -> None:
        self.run = build(conversion(*pair, packed=True, threads=threads), "numbaops")

    def time_cast(self, pair: tuple[str, str], threads: int) -> None:
        self.run()


class CastPeers:
    """The rivals: ``astype`` on arrays of one element a byte."""

    params = (["float", "float16", "bfloat16", "double"], [*FLOAT8, "float4e2m1", "bfloat16", "int4"], [8, 1048576])
    param_names = ("source", "target", "size")

    run: Thunk

    def setup(self, source: str, target: str, size: int) -> None:
        self.run = casts.astype(conversion(source, target, size))

    def time_astype(self, source: str, target: str, size: int) -> None:
        self.run()
