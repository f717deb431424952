"""Every public kernel against plain Python, called from Python and from a user's own ``@njit`` function.

The file passes compiled, with ``NUMBA_DISABLE_JIT=1`` and with ``NUMBA_BOUNDSCHECK=1``.
"""

from __future__ import annotations

import ast
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import config

import numbaops
import oracle
from numbaops import kernels
from numbaops.kernels import bits as bits_module
from numbaops.kernels import filling
from numbaops.runtime import jit

COMPILED = not config.DISABLE_JIT
GUARD = 0xA5
LINE = 64
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

WORDS = {"uint8": 0xFE, "uint16": 0xFEDC, "uint32": 0xFEDCBA98, "uint64": 0xFEDCBA9876543210}
COUNTS = (0, 1, 2, 3, 7, 8, 63, 64, 65, 200)


@functools.cache
def from_njit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A user's own compiled function that calls the kernel it closes over."""

    @numba.njit
    def call(*arguments: Any) -> None:
        kernel(*arguments)

    return call  # type: ignore[no-any-return]


def from_python(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return kernel


@functools.cache
def made(factory: Callable[[int], Callable[..., Any]], bits: int) -> Callable[..., Any]:
    return factory(bits)


callers = pytest.mark.parametrize("caller", [from_python, from_njit], ids=lambda caller: caller.__name__)
words = pytest.mark.parametrize("word", list(WORDS))


def guarded(size: int, offset: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Guard bytes, and ``size`` of them as a view that begins ``offset`` bytes behind the start of a cache line."""
    around = np.full(size + offset + 3 * LINE, GUARD, np.uint8)
    start = LINE + offset + -around.ctypes.data % LINE
    return around, around[start : start + size]


def assert_only(around: np.ndarray, inside: np.ndarray, want: bytes) -> None:
    """``inside`` holds ``want``, and all bytes around it are as they were."""
    before = inside.ctypes.data - around.ctypes.data
    after = around.size - before - len(want)
    assert around.tobytes() == bytes([GUARD]) * before + want + bytes([GUARD]) * after


# Fill


@callers
@words
@pytest.mark.parametrize("count", COUNTS)
def test_fill(caller: Any, word: str, count: int) -> None:
    dtype, value = np.dtype(word), WORDS[word]
    around, inside = guarded(count * dtype.itemsize)
    caller(kernels.fill)(inside.view(dtype), dtype.type(value))
    assert_only(around, inside, value.to_bytes(dtype.itemsize, "little") * count)


@callers
@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", 1.5), ("float64", -0.1), ("int64", -3), ("complex64", 1 - 2j), ("bool", True)],
    ids=["float32", "float64", "int64", "complex64", "bool"],
)
def test_fill_of_other_types_takes_values(caller: Any, dtype: str, value: Any) -> None:
    out = np.zeros(67, dtype)
    caller(kernels.fill)(out, value)
    assert out.tolist() == [np.dtype(dtype).type(value).item()] * 67


@callers
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 0, 3), (2, 3, 4), (2, 1, 2, 3, 2)], ids=str)
def test_fill_of_any_rank(caller: Any, shape: tuple[int, ...]) -> None:
    out = np.zeros(shape, np.float32)
    caller(kernels.fill)(out, 2.5)
    assert out.shape == shape and (out == 2.5).all()


@callers
@pytest.mark.parametrize(
    "view",
    [lambda a: a[:, ::2], lambda a: a[::-1], lambda a: a.T, lambda a: a[1:3, 2:5], lambda a: a[:, 3], lambda a: a[2:2]],
    ids=["every other column", "reversed rows", "transposed", "block", "column", "empty"],
)
def test_fill_of_any_layout_leaves_the_rest(caller: Any, view: Callable[[np.ndarray], np.ndarray]) -> None:
    values = np.arange(30, dtype=np.uint16).reshape(5, 6)
    mask = np.zeros((5, 6), bool)
    view(mask)[...] = True
    caller(kernels.fill)(view(values), np.uint16(999))
    assert values.reshape(-1).tolist() == [999 if inside else i for i, inside in enumerate(mask.reshape(-1).tolist())]


@callers
@pytest.mark.parametrize("count", [0, 1, 2, 33])
def test_fill_pairs(caller: Any, count: int) -> None:
    low, high = 0x8000000000000001, 0xFEDCBA9876543210
    around, inside = guarded(16 * count, 8)
    caller(kernels.fill_pairs)(inside.view(np.uint64), np.uint64(low), np.uint64(high))
    assert_only(around, inside, (low.to_bytes(8, "little") + high.to_bytes(8, "little")) * count)


# Streaming stores: every start within a cache line, and every size that has head, lines and tail in all proportions


def counts(caller: Any) -> range:
    return range(0, 201, 1 if caller is from_python else 11)  # the code inside a user's function is the same


@callers
@words
def test_stream_at_every_offset_and_size(caller: Any, word: str) -> None:
    dtype, value = np.dtype(word), WORDS[word]
    stream = caller(kernels.stream)
    one = value.to_bytes(dtype.itemsize, "little")
    for offset in range(0, LINE + 1, dtype.itemsize):
        for count in counts(caller):
            around, inside = guarded(count * dtype.itemsize, offset)
            stream(inside.view(dtype), dtype.type(value))
            assert_only(around, inside, one * count)


@callers
@words
def test_stream_pairs_at_every_offset_and_size(caller: Any, word: str) -> None:
    dtype, low = np.dtype(word), WORDS[word]
    high = low >> 3
    stream_pairs = caller(kernels.stream_pairs)
    two = low.to_bytes(dtype.itemsize, "little") + high.to_bytes(dtype.itemsize, "little")
    for offset in range(0, LINE + 1, dtype.itemsize):
        for count in counts(caller):
            around, inside = guarded(count * dtype.itemsize, offset)
            stream_pairs(inside.view(dtype), dtype.type(low), dtype.type(high))
            assert_only(around, inside, (two * count)[: inside.size])


@pytest.mark.skipif(not filling.STREAMS, reason="no streaming stores here")
@words
def test_stream_is_made_of_non_temporal_stores(word: str) -> None:
    dtype = np.dtype(word)
    call = from_njit(kernels.stream)  # compiled here: code from the disk cache cannot be looked at
    call(np.zeros(100, dtype), dtype.type(1))
    code = call.inspect_asm()  # type: ignore[attr-defined]
    assert code and all("movnt" in text and "sfence" in text for text in code.values())


# Diagonals

MATRICES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 4), (4, 1), (3, 3), (3, 5), (5, 3)]
OFFSETS = [*range(-6, 7), INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX]


@callers
@words
@pytest.mark.parametrize("shape", MATRICES, ids=str)
def test_write_diagonal(caller: Any, word: str, shape: tuple[int, int]) -> None:
    dtype, value = np.dtype(word), WORDS[word]
    rows, columns = shape
    for k in OFFSETS:
        out = np.arange(1, rows * columns + 1, dtype=dtype).reshape(shape)
        caller(kernels.write_diagonal)(out, k, dtype.type(value))
        want = [value if j - i == k else i * columns + j + 1 for i in range(rows) for j in range(columns)]
        assert out.reshape(-1).tolist() == want, k


@callers
@pytest.mark.parametrize(
    "view",
    [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[::-1, 1:4], lambda a: np.asfortranarray(a)],
    ids=["transposed", "every other column", "reversed rows", "Fortran order"],
)
@pytest.mark.parametrize("k", [-3, -1, 0, 2])
def test_write_diagonal_of_any_layout(caller: Any, view: Callable[[np.ndarray], np.ndarray], k: int) -> None:
    whole = np.arange(30, dtype=np.float64).reshape(5, 6)
    out = view(whole)
    before = out.tolist()
    caller(kernels.write_diagonal)(out, k, -0.5)
    assert out.tolist() == [[-0.5 if j - i == k else cell for j, cell in enumerate(row)] for i, row in enumerate(before)]
    changed = max(0, min(out.shape[0], out.shape[1] - k) - max(0, -k))
    assert np.count_nonzero(out == -0.5) == changed
    if np.shares_memory(out, whole):
        assert np.count_nonzero(whole != np.arange(30).reshape(5, 6)) == changed


@callers
@pytest.mark.parametrize("shape", MATRICES, ids=str)
def test_write_diagonal_pairs(caller: Any, shape: tuple[int, int]) -> None:
    rows, columns = shape
    low, high = 0x8000000000000001, 0xFEDCBA9876543210
    for k in OFFSETS:
        out = np.full((rows, 2 * columns), 7, np.uint64)
        caller(kernels.write_diagonal_pairs)(out, k, np.uint64(low), np.uint64(high))
        want = [word for i in range(rows) for j in range(columns) for word in ((low, high) if j - i == k else (7, 7))]
        assert out.reshape(-1).tolist() == want, k


@callers
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("shape", [*MATRICES, (7, 9), (9, 7)], ids=str)
def test_write_packed_diagonal(caller: Any, bits: int, shape: tuple[int, int]) -> None:
    rows, columns = shape
    write = caller(made(kernels.make_write_packed_diagonal, bits))
    random = np.random.default_rng(rows * 100 + columns)
    for k in (*range(-10, 11), INT64_MIN, INT64_MAX):
        before = random.integers(0, 256, (rows * columns * bits + 7) // 8 + 2, np.uint8)  # the last two lie beyond the matrix
        code = int(random.integers(0, 256))
        out = before.copy()
        write(out, rows, columns, k, np.uint8(code))
        want = oracle.unpack(before.tobytes(), bits, before.size * 8 // bits)
        for i in range(rows):
            if 0 <= i + k < columns:
                want[i * columns + i + k] = code & ((1 << bits) - 1)
        assert out.tobytes() == oracle.pack(want, bits), (k, code)


# Packed fill


@callers
@pytest.mark.parametrize("bits", [2, 4])
def test_fill_packed(caller: Any, bits: int) -> None:
    fill_packed = caller(made(kernels.make_fill_packed, bits))
    for code in (*range(1 << bits), 0xFF, 0xFE, 0x81):  # the high bits of a code do not count
        for count in range(41):
            around, inside = guarded((count * bits + 7) // 8)
            fill_packed(inside, count, np.uint8(code))
            assert_only(around, inside, oracle.pack([code] * count, bits))


# Pack and unpack

PACKED = pytest.mark.parametrize("bits", [2, 4, 6])


@callers
@PACKED
def test_pack_of_every_byte_at_every_place(caller: Any, bits: int) -> None:
    """All 256 bytes at each of the places of a group; the bits above the element do not count."""
    pack = caller(made(kernels.make_pack, bits))
    for roll in range(bits_module.group(bits)[0]):
        codes = np.roll(np.arange(256, dtype=np.uint8), roll)
        around, inside = guarded(256 * bits // 8)
        pack(codes, inside)
        assert_only(around, inside, oracle.pack(codes.tolist(), bits))


@callers
@PACKED
def test_pack_of_every_size(caller: Any, bits: int) -> None:
    pack = caller(made(kernels.make_pack, bits))
    for count in range(41):
        codes = (np.arange(count) * 37 + 11).astype(np.uint8) | 0xC0  # ones in the bits that do not count
        around, inside = guarded((count * bits + 7) // 8)
        pack(codes, inside)
        assert_only(around, inside, oracle.pack(codes.tolist(), bits))


@callers
@PACKED
def test_unpack_of_every_byte_at_every_place(caller: Any, bits: int) -> None:
    unpack = caller(made(kernels.make_unpack, bits))
    elements, whole_bytes = bits_module.group(bits)
    for place in range(whole_bytes):
        for neighbour in (0x00, 0xFF):
            packed = np.full((256, whole_bytes), neighbour, np.uint8)
            packed[:, place] = range(256)
            around, inside = guarded(256 * elements)
            unpack(packed.reshape(-1), inside)
            assert_only(around, inside, bytes(oracle.unpack(packed.tobytes(), bits, 256 * elements)))


@callers
@PACKED
def test_unpack_of_every_size(caller: Any, bits: int) -> None:
    unpack = caller(made(kernels.make_unpack, bits))
    for count in range(41):
        packed = (np.arange((count * bits + 7) // 8) * 151 + 83).astype(np.uint8)
        packed[-1:] |= 0xC0  # the last byte's unused bits do not count
        around, inside = guarded(count)
        unpack(packed, inside)
        assert_only(around, inside, bytes(oracle.unpack(packed.tobytes(), bits, count)))


@callers
@PACKED
def test_pack_and_unpack_take_read_only_input(caller: Any, bits: int) -> None:
    codes = np.arange(13, dtype=np.uint8) & ((1 << bits) - 1)
    packed, again = np.zeros((13 * bits + 7) // 8, np.uint8), np.full(13, GUARD, np.uint8)
    codes.flags.writeable = False
    caller(made(kernels.make_pack, bits))(codes, packed)
    packed.flags.writeable = False
    caller(made(kernels.make_unpack, bits))(packed, again)
    assert again.tolist() == codes.tolist()


# In a user's own function, and from several threads


def test_kernels_inside_one_function() -> None:
    write_packed_diagonal = made(kernels.make_write_packed_diagonal, 4)
    unpack = made(kernels.make_unpack, 4)

    @numba.njit
    def work(rows: int, columns: int) -> Any:
        packed = np.zeros((rows * columns + 1) // 2, np.uint8)
        write_packed_diagonal(packed, rows, columns, 1, 9)
        codes = np.empty(rows * columns, np.uint8)
        unpack(packed, codes)
        scaled = np.empty((rows, columns), np.float32)
        kernels.fill(scaled, 0.5)
        kernels.write_diagonal(scaled, 0, 3.0)
        return codes.reshape(rows, columns) + scaled

    assert work(3, 5).tolist() == [[3.0, 9.5, 0.5, 0.5, 0.5], [0.5, 3.0, 9.5, 0.5, 0.5], [0.5, 0.5, 3.0, 9.5, 0.5]]


def test_kernels_from_three_threads_at_once() -> None:
    pack, unpack = made(kernels.make_pack, 6), made(kernels.make_unpack, 6)
    start = threading.Barrier(3)
    wrong: list[str] = []

    def work(number: int) -> None:
        codes = ((np.arange(101) + number) & 63).astype(np.uint8)
        packed, again = np.empty((101 * 6 + 7) // 8, np.uint8), np.empty(101, np.uint8)
        out, matrix = np.empty(257, np.uint16), np.zeros((5, 7), np.uint32)
        start.wait()
        for _ in range(30):
            pack(codes, packed)
            unpack(packed, again)
            kernels.stream(out, np.uint16(number))
            kernels.write_diagonal(matrix, number, np.uint32(number + 1))
            if again.tolist() != codes.tolist() or out.tolist() != [number] * 257 or matrix[0, number] != number + 1:
                wrong.append(f"thread {number}")
            again[:], out[:], matrix[:] = 0, 0, 0

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# How kernels are made


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
def test_kernels_release_the_gil_and_start_no_threads_of_numba() -> None:
    kernels.import_all()
    for dispatcher, _ in jit._REGISTRY:
        assert dispatcher.targetoptions.get("nogil"), dispatcher
        assert not dispatcher.targetoptions.get("parallel"), dispatcher


def test_every_kernel_says_what_to_compile_ahead() -> None:
    kernels.import_all()
    without = {dispatcher.__name__ for dispatcher, signatures in jit._REGISTRY if not signatures}
    # These are parts of other kernels, which compile them for what they have.
    parts = {"quantize_integer", "quantize_float", "integer_minus", "float_minus", "dequantize", "dequantize_encoded"}
    parts |= {"term", "_total", "_normalize", "combine", "narrow", "chain"}
    assert without <= parts


def decorators_of(tree: ast.AST) -> set[str]:
    """Names by which a module reaches a compiling decorator of Numba."""
    banned = {"njit", "jit", "generated_jit", "vectorize", "guvectorize", "stencil", "cfunc", "jit_module", "jitclass"}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "numba":
            found |= {alias.name for alias in node.names} & (banned | {"*"})
        elif isinstance(node, ast.Attribute) and node.attr in banned:
            found.add(node.attr)
    return found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import numba\n@numba.njit\ndef f(): ...", {"njit"}),
        ("from numba import njit as fast", {"njit"}),
        ("import numba as nb\nf = nb.core.decorators.jit(nogil=True)(g)", {"jit"}),
        ("from numba import *", {"*"}),
        ("from numba.extending import intrinsic, overload", set()),
        ("from numbaops.runtime import jit", set()),
    ],
    ids=["attribute", "other name", "inner module", "star", "not a decorator", "our own module"],
)
def test_search_for_decorators(code: str, found: set[str]) -> None:
    assert decorators_of(ast.parse(code)) == found


def test_only_the_runtime_decorates() -> None:
    root = Path(numbaops.__file__).parent
    found = {path.relative_to(root).as_posix(): decorators_of(ast.parse(path.read_text("utf-8"))) for path in sorted(root.rglob("*.py"))}
    assert {path for path, names in found.items() if names} == {"runtime/jit.py"}


def test_stream_to_words_that_are_not_aligned() -> None:
    around = np.zeros(1000, np.uint8)
    start = -around.ctypes.data % 64 + 3
    out = around[start : start + 800].view(np.uint64)
    kernels.stream(out, np.uint64(0x0102030405060708))
    kernels.stream_pairs(out[1:], np.uint64(1), np.uint64(2))
    assert out.tolist() == [0x0102030405060708] + [1, 2] * 49 + [1]
    assert not around[:start].any()
    assert not around[start + 800 :].any()
