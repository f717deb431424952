"""Packing and unpacking of arrays, and ``PackedTensor``, against the oracle's packing of plain integers."""

from __future__ import annotations

import copy
import importlib
import math
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import oracle
from numbaops import PackedTensor, convert, memory, pack, unpack
from numbaops.convert import packed
from numbaops.dtypes import BY_NAME
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.runtime import threads
from processes import run_python

NEVER = 1 << 62
SUB_BYTE = [name for name, row in oracle.TYPES.items() if 0 < row.bits < 8]
NUMERIC = [name for name, row in oracle.TYPES.items() if row.bits]
WHOLE_BYTES = [name for name in NUMERIC if name not in SUB_BYTE]
SHAPES = [(), (0,), (1,), (3, 0), (3,), (5,), (2, 3), (3, 5, 7), (1, 1, 1, 1, 11)]

sub_byte = pytest.mark.parametrize("name", SUB_BYTE)


@pytest.fixture(params=["numpy", "kernel at hand", "kernel", "kernel on threads"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small arrays through each way to pack."""
    convert._kernel("pack", 4)
    if request.param == "numpy":
        monkeypatch.setattr(convert, "_kernels", None)
    monkeypatch.setattr(convert, "JIT_FROM", NEVER if request.param in ("numpy", "kernel at hand") else 0)
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 128 if request.param == "kernel on threads" else NEVER)
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    return str(request.param)


def some_codes(name: str, count: int, seed: int = 0) -> list[int]:
    """Codes that have every bit set somewhere; for bool only those that mean something."""
    bits = 1 if name == "bool" else oracle.TYPES[name].bits
    random = np.random.default_rng(seed)
    return [int.from_bytes(random.bytes(16), "little") % (1 << bits) for _ in range(count)]


def values(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return oracle.array(name, shape, some_codes(name, math.prod(shape), seed))


def as_bytes(payload: bytes) -> np.ndarray:
    return np.frombuffer(payload, np.uint8)


# Pack


@sub_byte
def test_pack(path: str, name: str) -> None:
    for shape in SHAPES:
        array = values(name, shape)
        result = pack(array)
        assert (result.dtype, result.ndim) == (np.uint8, 1)
        assert result.tobytes() == oracle.pack(oracle.codes_of(array, name), oracle.TYPES[name].bits)


@sub_byte
def test_pack_of_every_size(path: str, name: str) -> None:
    for count in (*range(41), 255, 256, 257, 1000, 1021):
        array = values(name, (count,), count)
        assert pack(array).tobytes() == oracle.pack(oracle.codes_of(array, name), oracle.TYPES[name].bits)


@sub_byte
def test_pack_ignores_the_high_bits(path: str, name: str) -> None:
    row = oracle.TYPES[name]
    for roll in range(4):
        dirty = np.roll(np.arange(256, dtype=np.uint8), roll)[:255]
        assert pack(dirty.view(row.dtype)).tobytes() == oracle.pack(dirty.tolist(), row.bits)


@sub_byte
@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, ::2],
        lambda a: a[::-1],
        lambda a: a.T,
        lambda a: a[1:, 1],
        np.asfortranarray,
        lambda a: np.broadcast_to(a[:1], (5, 9)),
    ],
    ids=["every other column", "reversed rows", "transposed", "column", "Fortran order", "broadcast"],
)
def test_pack_of_any_layout(path: str, name: str, view: Callable[[np.ndarray], np.ndarray]) -> None:
    array = view(values(name, (7, 9)))
    assert not array.flags.c_contiguous
    assert pack(array).tobytes() == oracle.pack(oracle.codes_of(array, name), oracle.TYPES[name].bits)


@sub_byte
def test_pack_of_read_only_arrays(path: str, name: str) -> None:
    array = values(name, (13,))
    array.flags.writeable = False
    assert pack(array).tobytes() == oracle.pack(oracle.codes_of(array, name), oracle.TYPES[name].bits)


@sub_byte
def test_pack_gives_new_writable_memory(path: str, name: str) -> None:
    array = values(name, (24,))
    before = array.tobytes()
    result = pack(array)
    result[...] = 0xFF
    assert array.tobytes() == before


@sub_byte
def test_pack_into_out(path: str, name: str) -> None:
    for shape in SHAPES:
        array = values(name, shape)
        want = oracle.pack(oracle.codes_of(array, name), oracle.TYPES[name].bits)
        around = np.full(len(want) + 7, 0xA5, np.uint8)
        out = around[3 : 3 + len(want)]
        assert pack(array, out=out) is out
        assert around.tobytes() == b"\xa5" * 3 + want + b"\xa5" * 4


@sub_byte
@pytest.mark.parametrize("first", [0, 1, 10], ids="bytes from {}".format)
def test_pack_into_the_memory_of_the_array(path: str, name: str, first: int) -> None:
    array = values(name, (40,))
    want = oracle.pack(oracle.codes_of(array, name), oracle.TYPES[name].bits)
    out = array.view(np.uint8)[first : first + len(want)]
    assert pack(array, out=out) is out
    assert out.tobytes() == want


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        pytest.param(lambda: [0] * 3, InvalidTypeError, "out is a list", id="list"),
        pytest.param(lambda: bytearray(3), InvalidTypeError, "out is a bytearray", id="bytearray"),
        pytest.param(lambda: np.zeros(3, np.int8), InvalidTypeError, "out has dtype int8; the result has uint8", id="int8"),
        pytest.param(lambda: np.zeros(3, ml_dtypes.int4), InvalidTypeError, "out has dtype int4", id="int4"),
        pytest.param(lambda: np.zeros(2, np.uint8), InvalidValueError, r"out has shape \(2,\); the result has \(3,\)", id="too short"),
        pytest.param(lambda: np.zeros(4, np.uint8), InvalidValueError, r"out has shape \(4,\)", id="too long"),
        pytest.param(lambda: np.zeros((1, 3), np.uint8), InvalidValueError, r"out has shape \(1, 3\)", id="rank 2"),
        pytest.param(lambda: np.zeros(6, np.uint8)[::2], InvalidValueError, "not C-contiguous", id="strided"),
        pytest.param(lambda: read_only(np.uint8)[0], InvalidValueError, "read-only", id="read-only"),
    ],
)
def test_out_of_pack_that_does_not_fit(path: str, make: Callable[[], Any], kind: type[Exception], text: str) -> None:
    out = make()
    with pytest.raises(kind, match=text) as caught:
        pack(np.full((5,), 15, np.uint8).view(ml_dtypes.uint4), out=out)
    assert caught.value.attribute == "out"  # type: ignore[attr-defined]
    assert not np.asarray(out).view(np.uint8).any()


@sub_byte
def test_pack_of_scalars(path: str, name: str) -> None:
    array = oracle.array(name, (1,), [1])
    for one in (array[0], array[0:1].reshape(())):
        assert pack(one).tolist() == [1]


@pytest.mark.parametrize(
    "value", [[1, 2], b"ab", None, 3, packed(np.zeros(2, ml_dtypes.int4))], ids=["list", "bytes", "None", "int", "PackedTensor"]
)
def test_pack_refuses_what_is_no_array(value: Any) -> None:
    with pytest.raises(InvalidTypeError, match=f"^expected a NumPy array or scalar, got {type(value).__name__}$"):
        pack(value)


@pytest.mark.parametrize("name", WHOLE_BYTES)
def test_pack_refuses_whole_bytes(name: str) -> None:
    with pytest.raises(InvalidTypeError, match=rf"elements of {name} take \d+ bits; only types below 8 bits are packed"):
        pack(np.zeros(3, oracle.TYPES[name].dtype))


@pytest.mark.parametrize("dtype", ["datetime64[s]", "V3", "longdouble"])
def test_pack_refuses_what_onnx_lacks(dtype: str) -> None:
    with pytest.raises(InvalidTypeError, match="is no ONNX element type"):
        pack(np.zeros(3, dtype))


# Unpack


@sub_byte
def test_unpack(path: str, name: str) -> None:
    for shape in SHAPES:
        want = values(name, shape)
        data = as_bytes(oracle.pack(oracle.codes_of(want, name), oracle.TYPES[name].bits))
        oracle.assert_same(unpack(data, BY_NAME[name], shape), want)


@sub_byte
def test_unpack_of_every_size_ignores_unused_bits(path: str, name: str) -> None:
    bits = oracle.TYPES[name].bits
    for count in (*range(41), 255, 256, 257, 1000, 1021):
        data = np.random.default_rng(count).integers(0, 256, (count * bits + 7) // 8, np.uint8)
        want = oracle.array(name, (count,), oracle.unpack(data.tobytes(), bits, count))
        oracle.assert_same(unpack(data, BY_NAME[name], (count,)), want)


@sub_byte
def test_unpack_of_every_byte(path: str, name: str) -> None:
    bits = oracle.TYPES[name].bits
    for roll in range(3):
        data = np.roll(np.arange(256, dtype=np.uint8), roll)
        count = 256 * 8 // bits
        oracle.assert_same(unpack(data, BY_NAME[name], (count,)), oracle.array(name, (count,), oracle.unpack(data.tobytes(), bits, count)))


KEYS: dict[str, Any] = {
    "name": "int4",
    "tensor type": "tensor(int4)",
    "number": 22,
    "scalar type": ml_dtypes.int4,
    "dtype": np.dtype(ml_dtypes.int4),
    "element type": BY_NAME["int4"],
}
DIMENSIONS: dict[str, Any] = {
    "tuple": (2, 3),
    "list": [2, 3],
    "array": np.array([2, 3]),
    "numpy integers": (np.uint8(2), np.int64(3)),
    "iterator": iter([2, 3]),
}


@pytest.mark.parametrize("key", KEYS)
def test_unpack_by_every_key(key: str) -> None:
    result = unpack(np.array([0x10, 0x32, 0x54], np.uint8), KEYS[key], (2, 3))
    assert (result.dtype, result.tolist()) == (ml_dtypes.int4, [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("dimensions", DIMENSIONS)
def test_unpack_to_every_form_of_shape(dimensions: str) -> None:
    result = unpack(np.array([0x10, 0x32, 0x54], np.uint8), "uint4", DIMENSIONS[dimensions])
    assert result.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("key", ["int5", "V3", 99, None, np.datetime64], ids=str)
def test_unpack_to_no_element_type(key: Any) -> None:
    with pytest.raises(InvalidTypeError, match="ONNX element type"):
        unpack(np.zeros(1, np.uint8), key, (2,))


@sub_byte
@pytest.mark.parametrize("view", [lambda a: a[::3], lambda a: a[::-1]], ids=["every third byte", "reversed bytes"])
def test_unpack_of_strided_bytes(path: str, name: str, view: Callable[[np.ndarray], np.ndarray]) -> None:
    bits = oracle.TYPES[name].bits
    data = view(np.random.default_rng(0).integers(0, 256, 27, np.uint8))
    count = data.size * 8 // bits
    want = oracle.array(name, (count,), oracle.unpack(data.tobytes(), bits, count))
    oracle.assert_same(unpack(data, name, (count,)), want)


@sub_byte
def test_unpack_gives_new_writable_memory(path: str, name: str) -> None:
    data = np.arange(60, dtype=np.uint8)
    before = data.tobytes()
    result = unpack(data, name, (480 // oracle.TYPES[name].bits,))
    result.view(np.uint8)[...] = 0
    assert data.tobytes() == before


@sub_byte
def test_large_results_are_recycled(path: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("numbaops.runtime.memory"), "SMALLEST", 1)
    array = values(name, (5, 40))
    for _ in range(3):
        before = memory.stats()["made"] + memory.stats()["reused"]
        data = pack(array)
        again = unpack(data, name, (5, 40))
        assert memory.stats()["made"] + memory.stats()["reused"] == before + 2
        assert data.tobytes() == oracle.pack(oracle.codes_of(array, name), oracle.TYPES[name].bits)
        oracle.assert_same(again.copy(), array)
        del data, again


def test_small_arrays_do_not_load_numba() -> None:
    code = """
        import sys
        import numpy as np
        import numbaops
        data = np.full(100, 0x21, np.uint8)
        assert (numbaops.pack(numbaops.unpack(data, "int4", (2, 100))) == data).all()
        print("numba" in sys.modules)
        large = np.full(2048, 0x21, np.uint8)
        assert (numbaops.pack(numbaops.unpack(large, "int4", (4096,))) == large).all()
        print("numba" in sys.modules)
    """
    assert run_python(code).split() == ["False", "True"]


@pytest.mark.parametrize("name", NUMERIC)
def test_unpack_into_out(path: str, name: str) -> None:
    for shape in SHAPES:
        want = values(name, shape)
        data = as_bytes(oracle.pack(oracle.codes_of(want, name), oracle.TYPES[name].bits))
        around = values(name, (want.size + 7,), seed=1)
        guard = oracle.codes_of(around, name)
        out = around[3 : 3 + want.size].reshape(shape)
        assert unpack(data, BY_NAME[name], shape, out=out) is out
        oracle.assert_same(out.copy(), want)
        assert oracle.codes_of(around, name) == guard[:3] + oracle.codes_of(want, name) + guard[3 + want.size :]


@pytest.mark.parametrize("name", WHOLE_BYTES)
def test_unpack_of_whole_bytes_copies(name: str) -> None:
    want = values(name, (3, 5))
    data = as_bytes(want.tobytes()).copy()
    result = unpack(data, BY_NAME[name], (3, 5))
    data[...] = 0
    oracle.assert_same(result, want)


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("more", [-1, 1])
def test_bytes_of_the_wrong_number(path: str, name: str, more: int) -> None:
    size = (9 * oracle.TYPES[name].bits + 7) // 8
    out = np.zeros((3, 3), oracle.TYPES[name].dtype)
    for call in (
        lambda data: unpack(data, BY_NAME[name], (3, 3), out=out),
        lambda data: PackedTensor(data, BY_NAME[name], (3, 3)),
    ):
        with pytest.raises(InvalidValueError, match=rf"^{size + more} bytes came for 9 elements of {name}; they take {size}$"):
            call(np.full(size + more, 0xFF, np.uint8))
    assert not out.view(np.uint8).any()


def read_only(dtype: Any) -> np.ndarray:
    array = np.zeros((2, 3), dtype)
    array.flags.writeable = False
    return array


OUTS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "list": (lambda dtype: [0] * 6, InvalidTypeError, "out is a list"),
    "other dtype": (lambda dtype: np.zeros((2, 3), np.float16), InvalidTypeError, "out has dtype float16"),
    "other shape": (lambda dtype: np.zeros((3, 2), dtype), InvalidValueError, r"out has shape \(3, 2\)"),
    "other rank": (lambda dtype: np.zeros(6, dtype), InvalidValueError, r"out has shape \(6,\)"),
    "Fortran order": (lambda dtype: np.zeros((3, 2), dtype).T, InvalidValueError, "not C-contiguous"),
    "read-only": (read_only, InvalidValueError, "read-only"),
}


@pytest.mark.parametrize("name", ["int4", "float6e3m2", "uint8", "float"])
@pytest.mark.parametrize(("make", "kind", "text"), list(OUTS.values()), ids=list(OUTS))
def test_out_that_does_not_fit(path: str, name: str, make: Callable[[Any], Any], kind: type[Exception], text: str) -> None:
    out = make(oracle.TYPES[name].dtype)
    before = np.asarray(out).copy()
    data = np.full((6 * oracle.TYPES[name].bits + 7) // 8, 0xFF, np.uint8)
    with pytest.raises(kind, match=text) as caught:
        PackedTensor(data, BY_NAME[name], (2, 3)).unpack(out)
    assert caught.value.attribute == "out"  # type: ignore[attr-defined]
    assert np.asarray(out).tobytes() == before.tobytes()


# Sizes around the one from which kernels run


@sub_byte
@pytest.mark.parametrize("more", [-1, 0, 1, 2, 3], ids=lambda more: f"threshold{more:+d}")
def test_pack_and_unpack_around_the_threshold(name: str, more: int) -> None:
    count = convert.JIT_FROM + more
    array = values(name, (count,))
    payload = oracle.pack(oracle.codes_of(array, name), oracle.TYPES[name].bits)
    assert pack(array).tobytes() == payload
    oracle.assert_same(unpack(as_bytes(payload), BY_NAME[name], (count,)), array)


# PackedTensor


@pytest.mark.parametrize("name", NUMERIC)
def test_packed_and_back(path: str, name: str) -> None:
    for shape in SHAPES:
        array = values(name, shape)
        tensor = packed(array)
        assert (tensor.element_type, tensor.shape, tensor.size) == (BY_NAME[name], shape, array.size)
        assert tensor.data.tobytes() == oracle.pack(oracle.codes_of(array, name), oracle.TYPES[name].bits)
        assert (tensor.data.dtype, tensor.data.ndim, tensor.nbytes) == (np.uint8, 1, tensor.data.size)
        oracle.assert_same(tensor.unpack(), array)


@pytest.mark.parametrize("name", ["uint16", "int32", "float", "double", "complex64", "complex128", "float16"])
def test_packed_of_big_endian_arrays(name: str) -> None:
    array = values(name, (2, 3))
    swapped = array.astype(array.dtype.newbyteorder(">"))
    assert swapped.tobytes() != array.tobytes()
    assert packed(swapped) == packed(array)
    oracle.assert_same(packed(swapped).unpack(), array)


@pytest.mark.parametrize("name", ["int4", "bfloat16", "float", "complex128"])
@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::-1, ::2]], ids=["transposed", "strided"])
def test_packed_of_any_layout(name: str, view: Callable[[np.ndarray], np.ndarray]) -> None:
    array = view(values(name, (4, 6)))
    oracle.assert_same(packed(array).unpack(), np.ascontiguousarray(array))


@pytest.mark.parametrize("name", ["int4", "uint8", "float"])
def test_packed_copies(name: str) -> None:
    array = values(name, (8,))
    tensor = packed(array)
    before = tensor.data.tobytes()
    array.view(np.uint8)[...] ^= 1
    assert tensor.data.tobytes() == before


def test_repr() -> None:
    assert repr(packed(np.zeros((3, 5), ml_dtypes.int4))) == "PackedTensor(int4, shape=(3, 5), 8 bytes)"
    assert repr(packed(np.zeros((), np.float32))) == "PackedTensor(float, shape=(), 4 bytes)"


def test_equality() -> None:
    codes = np.array([1, 2, 3, 1], np.uint8)
    one = packed(codes.view(ml_dtypes.uint4))
    assert one == packed(codes.view(ml_dtypes.uint4))
    assert one != packed(codes[::-1].copy().view(ml_dtypes.uint4))  # other bytes
    assert one != PackedTensor(one.data, BY_NAME["int4"], (4,))  # other element type
    assert one != PackedTensor(one.data, BY_NAME["uint4"], (2, 2))  # other shape
    assert one != PackedTensor(one.data, BY_NAME["uint4"], (3,))
    assert one != one.data.tobytes()
    assert (one == "text") is False


def test_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(packed(np.zeros(2, ml_dtypes.int4)))


@pytest.mark.parametrize("twin", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_copies(twin: Callable[[PackedTensor], PackedTensor]) -> None:
    tensor = packed(values("float6e2m3", (3, 5)))
    again = twin(tensor)
    assert again == tensor and again is not tensor
    assert again.element_type is tensor.element_type


@pytest.mark.parametrize("name", NUMERIC)
def test_to_proto_and_back(name: str) -> None:
    if not oracle.onnx_has(name):
        pytest.skip(f"this onnx has no element type {name} yet, or another dtype for it")
    array = values(name, (3, 5))
    tensor = packed(array)
    assert tensor.to_proto().name == ""
    proto = tensor.to_proto("weight")
    assert (proto.name, proto.data_type, list(proto.dims)) == ("weight", oracle.TYPES[name].code, [3, 5])
    assert proto.raw_data == tensor.data.tobytes()


def test_sizes_are_exact_integers() -> None:
    with pytest.raises(InvalidValueError, match=f"^0 bytes came for {1 << 60} elements of int2; they take {1 << 58}$"):
        PackedTensor(np.zeros(0, np.uint8), BY_NAME["int2"], (1 << 20, 1 << 20, 1 << 20))
    with pytest.raises(InvalidValueError, match="the shape is"):
        PackedTensor(np.zeros(0, np.uint8), BY_NAME["int2"], (1 << 40, 1 << 40))


@pytest.mark.parametrize(("nbytes", "shape"), [(2, (-1, -4)), (0, (0, -1))], ids=["two of them", "beside zero"])
def test_a_negative_dimension_is_an_error(nbytes: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValueError, match="negative"):
        PackedTensor(np.zeros(nbytes, np.uint8), BY_NAME["int4"], shape)


@pytest.mark.parametrize(
    "data",
    [np.zeros((2, 1), np.uint8), np.zeros(1, np.uint16), np.zeros(2, np.int8), np.zeros(2, ml_dtypes.int4), b"\0\0", [0, 0]],
    ids=["rank 2", "uint16", "int8", "int4", "bytes", "list"],
)
def test_data_that_are_no_bytes_are_an_error(data: Any) -> None:
    for call in (PackedTensor, unpack):
        with pytest.raises(InvalidTypeError, match="allowed: a contiguous 1-D uint8 array"):
            call(data, BY_NAME["int4"], (4,))


def test_packed_tensors_do_not_hold_strided_bytes() -> None:
    with pytest.raises(InvalidTypeError, match="allowed: a contiguous 1-D uint8 array"):
        PackedTensor(np.zeros(4, np.uint8)[::2], "int4", (4,))


def test_strings_have_no_bytes() -> None:
    with pytest.raises(InvalidTypeError, match="string"):
        packed(np.array(["a", "b"], object))
    with pytest.raises(InvalidTypeError, match="string"):
        unpack(np.zeros(0, np.uint8), "string", (3,))
    with pytest.raises(InvalidTypeError, match="string"):
        PackedTensor(np.zeros(0, np.uint8), BY_NAME["string"], (3,))


@pytest.mark.parametrize("shape", [(np.int64(2**62), np.int64(4)), np.array([65536, 65536, 65536, 65536])], ids=["scalars", "array"])
def test_shapes_of_numpy_integers_do_not_wrap(shape: Any) -> None:
    for call in (PackedTensor, unpack):
        with pytest.raises(InvalidValueError, match="bytes in all"):
            call(np.zeros(0, np.uint8), "int4", shape)


@pytest.mark.parametrize("shape", [(2.0, 3), 6, None, "23"])
def test_shapes_that_are_no_integers(shape: Any) -> None:
    for call in (PackedTensor, unpack):
        with pytest.raises(InvalidTypeError, match="a sequence of integers"):
            call(np.zeros(3, np.uint8), "int4", shape)


def test_out_may_overlap_the_packed_bytes() -> None:
    both = np.random.default_rng(0).integers(0, 256, 20000).astype(np.uint8)
    packed = PackedTensor(both[:10000], "int4", (20000,))
    wanted = packed.unpack()
    assert (packed.unpack(out=both.view(wanted.dtype)).view(np.uint8) == wanted.view(np.uint8)).all()


def test_packed_tensors_become_arrays_and_compare_by_elements() -> None:
    one, other = (PackedTensor(np.array([255, last], np.uint8), "int4", (3,)) for last in (255, 15))
    assert one == other
    assert one != PackedTensor(np.array([255, 14], np.uint8), "int4", (3,))
    assert np.asarray(one).tolist() == [-1, -1, -1]
    assert np.asarray(one, np.float32).dtype == np.float32
