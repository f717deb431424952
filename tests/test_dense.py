"""Fills and diagonals on every path: NumPy, view, kernel and streaming kernel, on one thread and split, at small sizes.

The thresholds between the paths are moved, so that a few hundred bytes go through code that is meant for megabytes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import oracle
from numbaops import dense, kernels
from numbaops.errors import InvalidValueError
from numbaops.runtime import memory, threads

NEVER = 1 << 62

# Bit patterns that arithmetic would not keep: zero, one, minus zero, a signalling NaN with a payload, all ones.
CODES: dict[str, tuple[int, ...]] = {
    name: (0, row.one, 1 << (row.bits - 1), (1 << row.bits) - 1, 0xFF8123456789ABCDEF80123456789ABC & ((1 << row.bits) - 1))
    for name, row in oracle.TYPES.items()
    if row.bits and name != "bool"
} | {
    "bool": (0, 1),
    "float": (0, 0x3F800000, 0x80000000, 0x7F812345, 0xFFFFFFFF),
    "double": (0, 0x3FF0000000000000, 0x8000000000000000, 0x7FF0000123456789, 0xFFF8000000000001),
    "float16": (0, 0x3C00, 0x8000, 0x7C01, 0xFE00),
    "complex128": (0, 0x3FF0000000000000, 0x8000000000000000 << 64, 0x7FF0000123456789_FFF8000000000001, 1 << 64),
}
NAMES = pytest.mark.parametrize("name", list(CODES))
SIZED = pytest.mark.parametrize("name", ["float8e5m2", "bfloat16", "float", "double", "complex128"])  # one of each item size


class Path(NamedTuple):
    """Thresholds that force one way to write, and the kernels that it must use for elements of up to 64 and of 128 bits."""

    copy_below: int
    jit_from: int
    stream_from: int
    split: bool
    fill: str | None
    fill_pairs: str | None


PATHS = {
    "assignment": Path(NEVER, NEVER, NEVER, False, None, None),
    "view": Path(-1, NEVER, NEVER, False, None, None),
    "kernel": Path(-1, 0, NEVER, False, "fill", "fill_pairs"),
    "kernel on threads": Path(-1, 0, NEVER, True, "fill", "fill_pairs"),
    "streaming": Path(-1, 0, 0, False, "stream", "stream_pairs"),
    "streaming on threads": Path(-1, 0, 0, True, "stream", "stream_pairs"),
}


class Seen:
    """What was called: kernels by name, and the ranges that work was split into."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.kernels: list[str] = []
        self.ranges: list[list[tuple[int, int]]] = []
        for name in ("fill", "fill_pairs", "stream", "stream_pairs", "write_diagonal", "write_diagonal_pairs"):
            monkeypatch.setattr(kernels, name, self._noting(name))
        monkeypatch.setattr(dense, "split", self._split)

    def _noting(self, name: str) -> Any:
        kernel = getattr(kernels, name)

        def call(*arguments: Any) -> None:
            self.kernels.append(name)
            kernel(*arguments)

        return call

    def _split(self, work: Any, *rest: int) -> None:
        self.ranges.append([])

        def noting(start: int, stop: int) -> None:
            self.ranges[-1].append((start, stop))
            work(start, stop)

        threads.split(noting, *rest)


@pytest.fixture(params=list(PATHS))
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Seen:
    path = PATHS[request.param]
    monkeypatch.setattr(dense, "COPY_BELOW", path.copy_below)
    monkeypatch.setattr(dense, "JIT_FROM", path.jit_from)
    monkeypatch.setattr(dense, "stream_from", lambda: path.stream_from)
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 64 if path.split else NEVER)
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    return Seen(path, monkeypatch)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Recycling of outputs from one byte on."""
    memory.trim()
    monkeypatch.setattr(memory, "SMALLEST", 1)
    monkeypatch.setattr(memory, "limit", lambda: 1 << 20)
    yield
    memory.trim()


def element(name: str, code: int) -> dense.Element:
    return dense.Element(oracle.array(name, (), [code]))


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def nbytes(name: str, *shape: int) -> int:
    return math.prod(shape) * np.dtype(oracle.TYPES[name].dtype).itemsize


# Fill


@NAMES
def test_fill(seen: Seen, name: str) -> None:
    for shape in ((), (0,), (1,), (3, 0, 2), (7,), (5, 13), (2, 3, 5, 7), (1001,)):
        for code in CODES[name]:
            out = oracle.array(name, shape, [CODES[name][1]] * math.prod(shape))
            dense.fill(out, element(name, code))
            oracle.assert_same(out, oracle.array(name, shape, [code] * out.size))


@SIZED
def test_fill_leaves_what_lies_around(seen: Seen, name: str) -> None:
    code, guard = CODES[name][3], CODES[name][1]
    for start in range(6):
        for count in (0, 1, 2, 31, 300):
            around = oracle.array(name, (start + count + 5,), [guard] * (start + count + 5))
            dense.fill(around[start : start + count], element(name, code))
            assert oracle.codes_of(around, name) == [guard] * start + [code] * count + [guard] * 5


@pytest.mark.parametrize("name", ["uint8", "float8e5m2", "uint16", "bfloat16", "float", "double", "complex64", "complex128"])
def test_fill_takes_the_path_of_its_size(seen: Seen, name: str) -> None:
    out = oracle.array(name, (1000,), [CODES[name][1]] * 1000)
    dense.fill(out, element(name, CODES[name][1]))
    wanted = seen.path.fill_pairs if name.startswith("complex") else seen.path.fill
    assert set(seen.kernels) == ({wanted} if wanted else set())
    assert len(seen.ranges) == (1 if wanted else 0)
    if wanted:
        assert len(seen.ranges[0]) > 2 if seen.path.split else seen.ranges[0] == [(0, out.nbytes // out.dtype.alignment)]
        words = 64 // out.dtype.alignment
        assert all(start % words == 0 for start, _ in seen.ranges[0])  # whole cache lines, and whole pairs


@SIZED
def test_fill_of_fresh_pages_does_not_stream(seen: Seen, name: str) -> None:
    out = oracle.array(name, (100,), [0] * 100)
    dense.fill(out, element(name, CODES[name][3]), resident=False)
    assert "stream" not in seen.kernels and "stream_pairs" not in seen.kernels
    oracle.assert_same(out, oracle.array(name, (100,), [CODES[name][3]] * 100))


@pytest.mark.parametrize(
    ("name", "size", "kernel"),
    [
        ("float", dense.COPY_BELOW, None),
        ("float", dense.JIT_FROM - 4, None),
        ("float", dense.JIT_FROM, "fill"),
        ("bfloat16", dense.COPY_BELOW, None),
        ("bfloat16", dense.COPY_BELOW + 2, None),
        ("bfloat16", dense.JIT_FROM - 2, None),
        ("bfloat16", dense.JIT_FROM, "fill"),
        ("complex128", dense.JIT_FROM, "fill_pairs"),
    ],
)
def test_fill_at_the_real_thresholds(monkeypatch: pytest.MonkeyPatch, name: str, size: int, kernel: str | None) -> None:
    called = []
    for each in ("fill", "fill_pairs", "stream", "stream_pairs"):
        monkeypatch.setattr(kernels, each, lambda *_, each=each: called.append(each))
    monkeypatch.setattr(dense, "stream_from", lambda: NEVER)
    out = np.zeros(size // np.dtype(oracle.TYPES[name].dtype).itemsize, oracle.TYPES[name].dtype)
    dense.fill(out, element(name, CODES[name][3]))
    assert set(called) == ({kernel} if kernel else set())
    assert kernel or (out.view(np.uint8) == np.frombuffer(oracle.array(name, (1,), [CODES[name][3]]).tobytes() * out.size, np.uint8)).all()


# New arrays: fresh, recycled, and where recycling is off


@NAMES
def test_filled(seen: Seen, name: str) -> None:
    for shape in ((), (0, 3), (1,), (4, 5), (3, 7, 11)):
        for code in CODES[name]:
            count = math.prod(shape)
            oracle.assert_same(dense.filled(shape, element(name, code), nbytes(name, *shape)), oracle.array(name, shape, [code] * count))


@pytest.mark.usefixtures("small_blocks")
@SIZED
def test_filled_fresh_and_recycled(seen: Seen, name: str) -> None:
    shape, dirty = (40, 33), element(name, CODES[name][3])
    first = dense.filled(shape, dirty, nbytes(name, *shape))
    place = address(first)
    oracle.assert_same(first, oracle.array(name, shape, [CODES[name][3]] * 1320))
    for code in CODES[name]:
        first.view(np.uint8)[...] = 0xAA
        del first
        first = dense.filled(shape, element(name, code), nbytes(name, *shape))
        assert address(first) == place
        oracle.assert_same(first, oracle.array(name, shape, [code] * 1320))


@pytest.mark.usefixtures("small_blocks")
@SIZED
@pytest.mark.parametrize("seen", ["streaming", "streaming on threads"], indirect=True)
def test_only_recycled_memory_is_streamed_to(seen: Seen, name: str) -> None:
    one = element(name, CODES[name][3])
    first = dense.filled((500,), one, nbytes(name, 500))
    assert set(seen.kernels) == {"fill_pairs" if name == "complex128" else "fill"}
    del first
    seen.kernels.clear()
    again = dense.filled((500,), one, nbytes(name, 500))
    assert again.size == 500
    assert set(seen.kernels) == {"stream_pairs" if name == "complex128" else "stream"}


@pytest.mark.usefixtures("small_blocks")
@SIZED
def test_zeros_on_fresh_memory_are_not_written(seen: Seen, name: str) -> None:
    zeros = dense.filled((500,), element(name, 0), nbytes(name, 500))
    assert not zeros.view(np.uint8).any()
    assert not seen.kernels
    del zeros


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no count of resident pages")
@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["not recycled", "recycled"])
def test_large_zeros_take_no_memory(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    memory.trim()
    monkeypatch.setattr(memory, "limit", lambda: limit)
    before = resident()
    zeros = dense.filled((96 << 20,), element("uint8", 0), 96 << 20)
    assert resident() - before < 16 << 20
    del zeros
    memory.trim()


@SIZED
def test_filled_without_recycling(seen: Seen, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "limit", lambda: 0)
    monkeypatch.setattr(memory, "SMALLEST", 1)
    for code in CODES[name]:
        made = memory.stats()["made"]
        oracle.assert_same(dense.filled((77,), element(name, code), nbytes(name, 77)), oracle.array(name, (77,), [code] * 77))
        assert memory.stats()["made"] == made


def test_arrays_made_at_once_do_not_share_memory(small_blocks: None) -> None:
    arrays = [dense.filled((100,), element("float", 0x3F800000), 400) for _ in range(20)]
    arrays += [dense.diagonal(10, 10, 0, element("float", 0x3F800000)) for _ in range(20)]
    assert len({address(array) for array in arrays}) == 40
    for number, array in enumerate(arrays):
        array[...] = number
    assert [set(array.reshape(-1).tolist()) for array in arrays] == [{float(number)} for number in range(40)]


# Diagonals

SHAPES = [(0, 0), (0, 4), (4, 0), (1, 1), (1, 9), (9, 1), (4, 4), (5, 8), (8, 5)]


def diagonal_codes(rows: int, columns: int, k: int, code: int) -> list[int]:
    return [code if j - i == k else 0 for i in range(rows) for j in range(columns)]


@SIZED
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_diagonal(seen: Seen, name: str, shape: tuple[int, int]) -> None:
    code = CODES[name][3]
    for k in (*range(-10, 11), -(2**63), 2**63 - 1):
        want = oracle.array(name, shape, diagonal_codes(*shape, k, code))
        oracle.assert_same(dense.diagonal(*shape, k, element(name, code)), want)
        out = oracle.array(name, shape, [CODES[name][1]] * want.size)
        assert dense.diagonal(*shape, k, element(name, code), out) is out
        oracle.assert_same(out, want)


@pytest.mark.usefixtures("small_blocks")
@SIZED
@pytest.mark.parametrize("k", [-33, -5, 0, 7, 40])
def test_diagonal_fresh_and_recycled(seen: Seen, name: str, k: int) -> None:
    code, (rows, columns) = CODES[name][4], (33, 40)
    want = oracle.array(name, (rows, columns), diagonal_codes(rows, columns, k, code))
    first = dense.diagonal(rows, columns, k, element(name, code))
    place = address(first)
    oracle.assert_same(first, want)
    first.view(np.uint8)[...] = 0xAA
    del first
    again = dense.diagonal(rows, columns, k, element(name, code))
    assert address(again) == place
    oracle.assert_same(again, want)


@SIZED
def test_diagonal_into_out_leaves_what_lies_around(seen: Seen, name: str) -> None:
    code, guard = CODES[name][3], CODES[name][1]
    for shape, k in (((5, 7), 2), ((7, 5), -3), ((3, 3), 9), ((40, 1), 0)):
        size = shape[0] * shape[1]
        around = oracle.array(name, (3 + size + 5,), [guard] * (size + 8))
        dense.diagonal(*shape, k, element(name, code), around[3 : 3 + size].reshape(shape))
        assert oracle.codes_of(around, name) == [guard] * 3 + diagonal_codes(*shape, k, code) + [guard] * 5


@SIZED
def test_diagonal_takes_the_path_of_its_size(seen: Seen, name: str) -> None:
    out = oracle.array(name, (60, 50), [CODES[name][1]] * 3000)
    dense.diagonal(60, 50, 3, element(name, CODES[name][3]), out)
    if seen.path.fill is None:
        assert not seen.kernels
        return
    clear = seen.path.fill
    write = "write_diagonal_pairs" if name == "complex128" else "write_diagonal"
    assert set(seen.kernels) == {clear, write}
    assert len(seen.ranges[0]) > 2 if seen.path.split else seen.ranges == [[(0, 60)]]


@NAMES
def test_one(name: str) -> None:
    one = dense.one(np.dtype(oracle.TYPES[name].dtype))
    assert oracle.codes_of(one.array, name) == [oracle.TYPES[name].one]
    assert dense.one(np.dtype(oracle.TYPES[name].dtype)) is one


# Elements


@NAMES
def test_element_is_its_bits(name: str) -> None:
    for code in CODES[name]:
        one = element(name, code)
        size = one.array.itemsize
        word = size // 2 if name.startswith("complex") else size  # arrays are aligned to a part of a complex number only
        assert one.wide == (word < size)
        assert one.word == np.dtype(f"uint{8 * word}")
        assert (int(one.low), int(one.high)) == (code % 2 ** (8 * word), code >> 8 * word if one.wide else code)
        assert one.zero == (code == 0)
        assert one.builtin == (oracle.TYPES[name].dtype.__module__ == "numpy")


# The size from which stores stream


@pytest.fixture
def fresh_stream_from() -> Iterator[None]:
    dense.stream_from.cache_clear()
    yield
    dense.stream_from.cache_clear()


@pytest.mark.usefixtures("fresh_stream_from")
@pytest.mark.parametrize(
    ("cache", "want"),  # bytes and MiB; 0 and -1 are a system's words for "unknown"
    [(0, 64), (-1, 64), (None, 64), (1 << 20, 4), (2 << 20, 4), (3 << 20, 6), (16 << 20, 32), (32 << 20, 64), (300 << 20, 64)],
    ids=str,
)
def test_streaming_starts_at_twice_the_cache(monkeypatch: pytest.MonkeyPatch, cache: int | None, want: int) -> None:
    def sysconf(name: str) -> int:
        if cache is None:
            raise ValueError("unrecognized configuration name")
        return cache

    monkeypatch.delenv("NUMBAOPS_STREAM_FROM", raising=False)
    monkeypatch.setattr(os, "sysconf", sysconf)
    assert dense.stream_from() == want << 20


@pytest.mark.usefixtures("fresh_stream_from")
@pytest.mark.parametrize(("text", "want"), [("0", 0), ("123", 123), ("99999999999999", 99999999999999)])
def test_streaming_starts_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, text: str, want: int) -> None:
    monkeypatch.setenv("NUMBAOPS_STREAM_FROM", text)
    assert dense.stream_from() == want


@pytest.mark.usefixtures("fresh_stream_from")
@pytest.mark.parametrize("text", ["-1", "64M", "1.5", " ", "٣", "1_000"])
def test_a_bad_start_of_streaming_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("NUMBAOPS_STREAM_FROM", text)
    with pytest.raises(InvalidValueError, match=r"NUMBAOPS_STREAM_FROM is .*; allowed: a number of bytes") as caught:
        dense.stream_from()
    assert caught.value.attribute == "NUMBAOPS_STREAM_FROM"


# Arrays that are aligned to their elements, but not to eight bytes


@pytest.mark.parametrize("shift", [0, 4, 8, 12])
def test_complex64_at_every_alignment(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    monkeypatch.setattr(dense, "JIT_FROM", 0)
    monkeypatch.setattr(dense, "COPY_BELOW", -1)
    monkeypatch.setattr(dense, "stream_from", lambda: 0)
    around = np.zeros(8 * 1000 + 128, np.uint8)
    start = -around.ctypes.data % 64 + shift
    out = around[start : start + 8000].view(np.complex64)
    dense.fill(out, element("complex64", 0x3F80000040000000))
    assert (out.view(np.uint64) == 0x3F80000040000000).all()
    assert not around[:start].any()
    assert not around[start + 8000 :].any()
    matrix = out.reshape(20, 50)
    dense.diagonal(20, 50, 3, dense.one(np.dtype(np.complex64)), matrix)
    assert (matrix == np.eye(20, 50, 3, np.complex64)).all()
