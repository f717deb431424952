"""Packing and unpacking of sub-byte element types, on arrays."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from numbaops.dtypes import ElementType, of_dtype
from numbaops.dtypes import element_type as _element_type
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.runtime import memory
from numbaops.runtime.threads import split

if TYPE_CHECKING:
    from onnx import TensorProto

Bytes = npt.NDArray[np.uint8]
_BYTE = np.dtype(np.uint8)

JIT_FROM = 1 << 12
"""Elements below which a few NumPy calls serve, so that a small tensor does not load Numba; where it is loaded, kernels are faster."""

_kernels: Any = None
"""The module of the kernels, once it is loaded."""

MAX_RANK = 64
"""NumPy's."""


class PackedTensor:
    """A tensor as ``TensorProto.raw_data`` holds it: sub-byte elements share bytes, first element in the low bits.

    Attributes:
        data: the bytes, a 1-D uint8 array.
        element_type: the element type; any key of :func:`~numbaops.element_type` is accepted.
        shape: the shape of the tensor that the bytes stand for.

    Raises:
        InvalidTypeError: the bytes are no such array, or the type is string.
        InvalidValueError: there are more or fewer bytes than the elements take.
    """

    __slots__ = ("data", "element_type", "shape")

    def __init__(self, data: Bytes, element_type: Any, shape: Sequence[int]) -> None:
        self.data = data
        self.element_type = _element_type(element_type)
        self.shape = _integers(shape)
        packed_size(data, self.element_type, self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.data.nbytes

    def unpack(self, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """The tensor as an array of ``element_type.dtype``; sub-byte elements take a byte each, its high bits zero."""
        return unpack(self.data, self.element_type, self.shape, out=out)

    def to_proto(self, name: str | None = None) -> TensorProto:
        """The tensor as a ``TensorProto`` with these bytes as its ``raw_data``."""
        from numbaops.tensors import packed_to_proto

        return packed_to_proto(self, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("an array of packed elements is always a new one")
        array = self.unpack()
        return array if dtype is None else array.astype(dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackedTensor):
            return NotImplemented
        if (self.element_type, self.shape) != (other.element_type, other.shape):
            return False
        used = self.size * self.element_type.bits % 8  # bits of the last byte; the others stand for nothing
        if not used:
            return np.array_equal(self.data, other.data)
        last = int(self.data[-1]) ^ int(other.data[-1])
        return np.array_equal(self.data[:-1], other.data[:-1]) and not last & ((1 << used) - 1)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PackedTensor({self.element_type}, shape={self.shape}, {self.nbytes} bytes)"


def packed(array: npt.NDArray[Any]) -> PackedTensor:
    """A copy of ``array`` as the bytes of its ``raw_data``: packed below 8 bits, else little-endian."""
    kind = of_dtype(array.dtype)
    if kind.packed:
        return PackedTensor(pack(array), kind, array.shape)
    if kind.kind == "string":
        raise InvalidTypeError("strings have no packed form; allowed: any other element type")
    plain = np.array(array, kind.dtype.newbyteorder("<") if kind.dtype.itemsize > 1 else kind.dtype, order="C")
    return PackedTensor(plain.reshape(-1).view(np.uint8), kind, array.shape)


def pack(array: npt.NDArray[Any] | np.generic, *, out: Bytes | None = None) -> Bytes:
    """The elements of an array of a 2-, 4- or 6-bit type as the bytes of ``TensorProto.raw_data``, first element in the low bits.

    Args:
        array: any shape and layout, elements in C order; the unused high bits of its bytes are ignored.
        out: a contiguous 1-D uint8 array of that many bytes to write into.

    Returns:
        A new 1-D uint8 array, or ``out``, of ``ceil(array.size * bits / 8)`` bytes; the unused high bits of the last one are zero.

    Raises:
        InvalidTypeError: ``array`` is no array, its elements take a byte or more, or ``out`` is no uint8 array.
        InvalidValueError: ``out`` does not fit.
    """
    refuse_mask(array, "array")
    if not isinstance(array, (np.ndarray, np.generic)):
        raise InvalidTypeError(f"expected a NumPy array or scalar, got {type(array).__name__}")
    kind = of_dtype(array.dtype)
    if not kind.packed:
        raise InvalidTypeError(f"elements of {kind} take {kind.bits} bits; only types below 8 bits are packed")
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    nbytes = kind.packed_size(codes.size)
    if out is None:
        out = memory.empty((nbytes,), _BYTE, nbytes)[0]
        pack_codes(codes, kind.bits, out)
    else:
        plain = check_out(out, _BYTE, (nbytes,))
        pack_codes(codes.copy() if np.may_share_memory(plain, codes) else codes, kind.bits, plain)
    return out


def unpack(data: Bytes, element_type: Any, shape: Sequence[int], *, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """The array that the bytes of a ``TensorProto.raw_data`` stand for; the reverse of :func:`pack`.

    A :class:`PackedTensor` knows its type and shape: it has a method ``unpack`` of its own.

    Args:
        data: a 1-D uint8 array, e.g. ``np.frombuffer(proto.raw_data, np.uint8)``.
        element_type: the element type, any but string; whatever :func:`~numbaops.element_type` takes.
        shape: the array's shape.
        out: a C-contiguous array of that dtype and shape to write into.

    Returns:
        A new array, or ``out``; elements below 8 bits take a byte each, its high bits zero.

    Raises:
        InvalidTypeError: ``data`` is no such array, ``shape`` is no sequence of integers, the element type is unknown or string, or
            ``out`` has another dtype.
        InvalidValueError: ``data`` is too short or too long, no array can have that shape, or ``out`` does not fit.
    """
    kind, shape = _element_type(element_type), _integers(shape)
    if type(data) is np.ndarray and data.ndim == 1:
        data = np.ascontiguousarray(data)
    size = packed_size(data, kind, shape)
    if out is None:
        out = plain = memory.empty(shape, kind.dtype, size * kind.dtype.itemsize)[0]
    else:
        plain = check_out(out, kind.dtype, shape)
        if np.may_share_memory(plain, data):
            data = data.copy()
    codes = plain.reshape(-1).view(np.uint8)
    if kind.packed:
        unpack_codes(data, kind.bits, codes)
    elif kind.kind == "bool":
        np.not_equal(data, 0, out=plain.reshape(-1))
    else:
        codes[...] = data
        if sys.byteorder == "big":
            plain.byteswap(inplace=True)
    return out


def pack_codes(codes: Bytes, bits: int, out: Bytes) -> None:
    """Pack the low bits of the elements of a contiguous 1-D array into ``out``, which has just the bytes that they take."""
    if codes.size < JIT_FROM:
        if _kernels is None:
            each = np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little")
            out[...] = np.packbits(each.reshape(-1), bitorder="little")
        else:
            _kernels.pack[bits](codes, out)
        return
    kernel, elements, whole_bytes = _kernel("pack", bits)

    def work(start: int, stop: int) -> None:
        kernel(codes[start * elements : stop * elements], out[start * whole_bytes : stop * whole_bytes])

    split(work, -(-codes.size // elements), elements, 64)


def unpack_codes(data: Bytes, bits: int, out: Bytes) -> None:
    """Write to each byte of ``out`` one element of ``data``, a contiguous 1-D array of just the bytes that so many take."""
    if out.size < JIT_FROM:
        if _kernels is None:
            each = np.zeros((out.size, 8), np.uint8)
            each[:, :bits] = np.unpackbits(data, count=out.size * bits, bitorder="little").reshape(out.size, bits)
            out[...] = np.packbits(each.reshape(-1), bitorder="little")
        else:
            _kernels.unpack[bits](data, out)
        return
    kernel, elements, whole_bytes = _kernel("unpack", bits)

    def work(start: int, stop: int) -> None:
        kernel(data[start * whole_bytes : stop * whole_bytes], out[start * elements : stop * elements])

    split(work, -(-out.size // elements), elements, 64)


def _kernel(name: str, bits: int) -> tuple[Any, int, int]:
    """A kernel, with the smallest number of elements that fill whole bytes, and of these bytes."""
    global _kernels
    from numbaops.kernels import bits as kernels

    _kernels = kernels
    return getattr(kernels, name)[bits], *kernels.group(bits)


def _integers(shape: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape))
    except TypeError as error:
        raise InvalidTypeError(f"the shape is {shape!r}; allowed: a sequence of integers") from error


def packed_size(data: Any, element_type: ElementType, shape: tuple[int, ...]) -> int:
    """The number of elements of ``shape``, once ``data`` are known to be the bytes of exactly so many."""
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
        came = f"{data.dtype} array of rank {data.ndim}" if isinstance(data, np.ndarray) else type(data).__name__
        raise InvalidTypeError(f"packed data came as {came}; allowed: a contiguous 1-D uint8 array")
    if element_type.kind == "string":
        raise InvalidTypeError("strings have no packed form; allowed: any other element type")
    size = array_nbytes(shape, element_type.dtype.itemsize, "the shape") // element_type.dtype.itemsize
    wanted = element_type.packed_size(size)
    if data.nbytes != wanted:
        raise InvalidValueError(f"{data.nbytes} bytes came for {size} elements of {element_type}; they take {wanted}")
    return size


def refuse_mask(value: Any, what: str) -> None:
    """Refuse a masked array, whose mask would be lost; ``what`` it is begins the message."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidTypeError(f"{what} is a masked array; allowed: an array without a mask")


def array_nbytes(shape: tuple[int, ...], itemsize: int, what: str) -> int:
    """Bytes of an array of ``shape``; ``what`` begins the message of an error.

    Raises:
        InvalidValueError: no array can have that shape.
    """
    nbytes = itemsize
    for dimension in shape:
        if dimension <= 0:
            break
        nbytes *= dimension
    else:
        if nbytes <= sys.maxsize and len(shape) <= MAX_RANK:
            return nbytes
    if min(shape, default=0) < 0:
        raise InvalidValueError(f"{what} is {list(shape)}; dimensions must not be negative")
    # A zero dimension excuses no other: NumPy's rule.
    if math.prod((dimension or 1 for dimension in shape), start=itemsize) > sys.maxsize or len(shape) > MAX_RANK:
        raise InvalidValueError(f"{what} is {list(shape)}; allowed: at most {MAX_RANK} dimensions and {sys.maxsize} bytes in all")
    return 0


def as_strings(values: Iterable[Any], what: str) -> npt.NDArray[np.object_]:
    """A 1-D object array of ``str`` from ``str`` and UTF-8 ``bytes``; ``what`` begins the message of an error."""
    texts: list[str] = []
    for position, value in enumerate(values):
        if not isinstance(value, (str, bytes)):
            raise InvalidTypeError(f"{what} has a {type(value).__name__} at position {position}; allowed: str and UTF-8 bytes")
        try:
            text = value.decode() if isinstance(value, bytes) else str.__str__(value)  # np.str_ drops a trailing NUL
            text.encode()  # a lone surrogate is no UTF-8
        except UnicodeError as error:
            raise InvalidValueError(f"{what} is not UTF-8 at position {position}: {error}") from error
        texts.append(text)
    out = np.empty(len(texts), object)
    out[:] = texts
    return out


def check_out(out: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """``out`` as a plain array, once results are known to fit into it as they are."""
    if type(out) is not np.ndarray and type(out) is not np.memmap:  # others change what indexing means, e.g. np.matrix
        raise InvalidTypeError(f"out is a {type(out).__name__}; allowed: numpy.ndarray and numpy.memmap", attribute="out")
    if out.dtype != dtype:
        raise InvalidTypeError(f"out has dtype {out.dtype}; the result has {dtype}", attribute="out")
    if out.shape != shape:
        raise InvalidValueError(f"out has shape {out.shape}; the result has {shape}", attribute="out")
    if not out.flags.c_contiguous or not out.flags.aligned:
        raise InvalidValueError("out is not C-contiguous or not aligned; allowed: a C-contiguous, aligned array", attribute="out")
    if not out.flags.writeable:
        raise InvalidValueError("out is read-only", attribute="out")
    return out if type(out) is np.ndarray else out.view(np.ndarray)
