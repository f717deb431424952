"""ONNX tensors to NumPy arrays and back, for every element type.

Bits are moved, never values: NaN payloads, signalling NaNs and -0.0 arrive as they were stored.
"""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import SparseTensorProto, TensorProto
from onnx.checker import ValidationError
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor

from numbaops.convert import PackedTensor, array_nbytes, as_strings, pack, refuse_mask, unpack
from numbaops.dtypes import BY_CODE, ElementType, of_dtype
from numbaops.errors import AllocationError, InvalidTypeError, InvalidValueError, UnsupportedError

# The field that holds the elements of a type when raw_data does not; int32_data for all others.
_FIELD_OF = {
    "float": "float_data",
    "complex64": "float_data",
    "double": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}
_FIELD_DTYPE: dict[str, np.dtype[Any]] = {
    "float_data": np.dtype(np.float32),
    "double_data": np.dtype(np.float64),
    "int32_data": np.dtype(np.int32),
    "int64_data": np.dtype(np.int64),
    "uint64_data": np.dtype(np.uint64),
}
_BYTE = np.dtype(np.uint8)
_TYPED = frozenset([*_FIELD_DTYPE, "string_data"])
_DESCRIPTORS = dict(TensorProto.DESCRIPTOR.fields_by_name)  # protobuf makes anew those that nobody keeps
_SEGMENT, _RAW_DATA, _LOCATION = (_DESCRIPTORS[name] for name in ("segment", "raw_data", "data_location"))
_PAYLOADS = frozenset([_RAW_DATA, *(_DESCRIPTORS[name] for name in _TYPED)])

_probe = TensorProto(raw_data=bytes(2))
BYTES_ARE_OURS = _probe.raw_data is not _probe.raw_data
"""Whether reading ``raw_data`` makes new bytes, as protobuf's C implementation does; its Python one gives those of the message."""

OWNED_FROM = 1 << 13
"""Bytes of ``raw_data`` from which an array takes them over; to copy fewer is as fast."""


def to_array(proto: TensorProto | SparseTensorProto, base_dir: str | os.PathLike[str] | None = None) -> NDArray[Any]:
    """The elements of an ONNX tensor as a fresh, writable, C-contiguous array; a sparse tensor becomes a dense one.

    Types of 2, 4 and 6 bits take one byte an element, with the unused high bits zero. Strings become an object array of
    ``str``. Any nonzero byte of a bool is True.

    Args:
        proto: the tensor; it is left as it is.
        base_dir: the folder of the model file, where external data are looked for; the current folder if None.

    Raises:
        InvalidTypeError: ``proto`` is no tensor, or its element type is undefined or unknown.
        InvalidValueError: the payload does not fit the type and shape, is missing, doubled, not UTF-8 or in the wrong field;
            the shape is negative or too large; external data cannot be read; or sparse indices break the rules of
            :func:`dense_from_sparse`.
        UnsupportedError: the tensor is a segment of a larger one.
    """
    if isinstance(proto, TensorProto):
        return _from_tensor(proto, "" if base_dir is None else os.fsdecode(base_dir))
    if isinstance(proto, SparseTensorProto):
        values = to_array(proto.values, base_dir)
        # without any value, the indices may be left out
        has_indices = values.size or proto.HasField("indices")
        indices = to_array(proto.indices, base_dir) if has_indices else np.empty(0, np.int64)
        return dense_from_sparse(values, indices, proto.dims)
    raise InvalidTypeError(f"expected a TensorProto or SparseTensorProto, got {type(proto).__name__}")


def from_array(array: NDArray[Any] | np.generic | PackedTensor, name: str | None = None) -> TensorProto:
    """An array as an ONNX tensor: little-endian ``raw_data``, or ``string_data`` for strings.

    Args:
        array: an array or NumPy scalar of any ONNX element type, in any layout or byte order; strings as ``str``, UTF-8
            ``bytes`` or objects of these; or a :class:`PackedTensor`.
        name: the tensor's name; left unset if None.

    Raises:
        InvalidTypeError: ``array`` is neither, or ONNX has no such element type.
    """
    if isinstance(array, PackedTensor):
        return packed_to_proto(array, name)
    if isinstance(array, (str, bytes)):  # np.str_ and np.bytes_, whose arrays would drop a trailing NUL
        array = np.array(array, object)
    refuse_mask(array, "array")
    if not isinstance(array, (np.ndarray, np.generic)):
        raise InvalidTypeError(f"expected a NumPy array or scalar or a PackedTensor, got {type(array).__name__}")
    array = np.asarray(array)
    row = of_dtype(array.dtype)
    tensor = TensorProto(name=name, data_type=row.code, dims=array.shape)
    if row.kind == "string":
        tensor.string_data.extend(text.encode() for text in as_strings(array.reshape(-1).tolist(), "the array"))
    else:
        tensor.raw_data = _little_endian(array, row)
    return tensor


def packed_to_proto(packed: PackedTensor, name: str | None = None) -> TensorProto:
    """A packed tensor as an ONNX tensor of the same bytes; the name is left unset if None."""
    return TensorProto(name=name, data_type=packed.element_type.code, dims=packed.shape, raw_data=packed.data.tobytes())


def dense_from_sparse(values: NDArray[Any], indices: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """The dense array of a sparse tensor: zero bits (or ``""``) wherever ``indices`` names no element.

    Args:
        values: the stored elements, of shape [NNZ] and any element type.
        indices: int64, either [NNZ] positions in the flattened array or [NNZ, rank] coordinates; in range, ascending
            (lexicographically) and without duplicates.
        shape: the dense shape.

    Raises:
        InvalidTypeError: ``values`` has no ONNX element type, or ``indices`` is not int64.
        InvalidValueError: a shape does not fit, or an index breaks the rules; nothing has been allocated then.
    """
    row = of_dtype(values.dtype)
    dims = tuple(map(operator.index, shape))
    count = array_nbytes(dims, row.dtype.itemsize, "the shape of the sparse tensor") // row.dtype.itemsize
    if of_dtype(indices.dtype).name != "int64":
        raise InvalidTypeError(f"sparse indices must be int64, not {indices.dtype}")
    if values.ndim != 1:
        raise InvalidValueError(f"sparse values must have the shape [NNZ], not {list(values.shape)}")
    if indices.shape not in ((values.size,), (values.size, len(dims))):
        raise InvalidValueError(
            f"sparse indices have the shape {list(indices.shape)}; "
            f"{values.size} values of a tensor of rank {len(dims)} need [{values.size}] or [{values.size}, {len(dims)}]"
        )
    limits = np.array(count if indices.ndim == 1 else dims, np.int64)
    outside = (indices < 0) | (indices >= limits)
    if outside.any():
        position = int(outside.argmax() if indices.ndim == 1 else outside.any(axis=1).argmax())
        allowed = f"; allowed: 0 to {count - 1}" if indices.ndim == 1 and count else ""
        raise InvalidValueError(
            f"sparse index {indices[position].tolist()} at position {position} is outside the shape {list(dims)}{allowed}"
        )
    linear = indices
    if indices.ndim == 2:
        # in range, the order of the coordinates is the order of the linear indices
        linear = np.zeros(len(indices), np.int64)
        for axis, dim in enumerate(dims):
            linear = linear * dim + indices[:, axis]
    unsorted = linear[1:] <= linear[:-1]
    if unsorted.any():
        position = int(unsorted.argmax()) + 1
        raise InvalidValueError(
            f"sparse index {indices[position].tolist()} at position {position} comes after {indices[position - 1].tolist()}; "
            "the indices must ascend, without duplicates"
        )
    if row.kind == "string":
        values = as_strings(values.tolist(), "sparse values")
    elif row.kind == "bool":
        values = values.view(np.uint8) != 0
    elif row.packed:
        values = (values.view(np.uint8) & np.uint8((1 << row.bits) - 1)).view(row.dtype)
    try:
        dense: NDArray[Any] = np.full(dims, "", object) if row.kind == "string" else np.zeros(dims, row.dtype)
    except MemoryError as error:
        raise AllocationError(f"no memory for a dense tensor of {row} of shape {list(dims)}") from error
    dense.reshape(-1)[linear] = values
    return dense


_FEW = 16
"""Entries of a field of floats up to which it takes less time to read them one by one."""


def _from_tensor(proto: TensorProto, base_dir: str) -> NDArray[Any]:
    fields = dict(proto.ListFields())  # 0.6 us; to ask for each field that may hold elements takes 1.0
    label = f"tensor {proto.name!r}" if proto.name else "tensor"
    row = BY_CODE.get(proto.data_type)
    if row is None:
        what = "undefined" if proto.data_type == TensorProto.UNDEFINED else f"the unknown number {proto.data_type}"
        raise InvalidTypeError(f"{label}: data_type is {what}; known: 1 to {max(BY_CODE)}")
    if _SEGMENT in fields:
        raise UnsupportedError(f"{label}: is stored in segments; only whole tensors are supported")
    shape = tuple(proto.dims[:])  # 0.4 us less than the tuple of the field itself
    itemsize = row.dtype.itemsize
    count = array_nbytes(shape, itemsize, f"{label}: the shape") // itemsize
    field = _FIELD_OF.get(row.name, "int32_data")

    sources = [descriptor.name for descriptor in fields if descriptor in _PAYLOADS]
    external = _LOCATION in fields and fields[_LOCATION] == TensorProto.EXTERNAL
    if external:
        # which supersede raw_data, as in onnx
        sources = [*(name for name in sources if name != "raw_data"), "external data"]
    if len(sources) > 1:
        raise InvalidValueError(f"{label}: has {' and '.join(sources)}; only one may be set")
    source = sources[0] if sources else field
    if source != field and (source in _TYPED or row.kind == "string"):
        allowed = field if row.kind == "string" else f"{field} or raw_data"
        raise InvalidValueError(f"{label}: has its elements in {source}; those of {row} belong in {allowed}")
    if source != field:
        raw = external_bytes(proto, base_dir) if external else fields[_RAW_DATA]
        needed = row.packed_size(count)
        if len(raw) != needed:
            raise InvalidValueError(f"{label}: {source} has {len(raw)} bytes; {row} of shape {list(shape)} needs {needed}")
        return _from_raw(raw, row, shape)

    given = len(getattr(proto, field))
    needed = _field_entries(row, count)
    if given != needed:
        raise InvalidValueError(f"{label}: {field} has {given} entries; {row} of shape {list(shape)} needs {needed}")
    if row.kind == "string":
        return as_strings(proto.string_data, f"{label}: string_data").reshape(shape)
    if not count:
        return np.empty(shape, row.dtype)
    if field in ("float_data", "double_data"):
        return _float_entries(proto, field).view(row.dtype).reshape(shape)
    return _from_integers(np.array(getattr(proto, field), _FIELD_DTYPE[field]), row, shape, f"{label}: {field}")


def _field_entries(row: ElementType, count: int) -> int:
    """Entries that ``count`` elements take in their typed field."""
    if row.kind == "complex":
        return 2 * count
    # 4- and 2-bit elements share an entry as they share a byte; each 6-bit element has an entry of its own
    return row.packed_size(count) if row.bits in (2, 4) else count


def located(proto: TensorProto) -> TensorProto:
    """A tensor that says only where the elements of another are.

    ONNX lets a model leave out the length, and ONNX Runtime takes 0 for that too: it is what the type and shape need.

    Raises:
        ValueError: an offset or length is no such number.
    """
    reference = TensorProto(name=proto.name, data_location=TensorProto.EXTERNAL, external_data=proto.external_data)
    row = BY_CODE.get(proto.data_type)
    if row is not None and row.bits and not ExternalDataInfo(reference).length:
        reference.external_data.add(key="length", value=str(row.packed_size(math.prod(proto.dims))))
    return reference


def external_bytes(proto: TensorProto, base_dir: str) -> bytes:
    """What a file has of a tensor.

    Raises:
        InvalidValueError: it cannot be read.
    """
    try:
        # onnx stores what it reads in the tensor that it is given, so it gets another one
        reference = located(proto)
        length = ExternalDataInfo(reference).length
        load_external_data_for_tensor(reference, base_dir)
    except (ValidationError, ValueError, OSError) as error:
        label = f"tensor {proto.name!r}" if proto.name else "tensor"
        raise unreadable(label, proto, base_dir, error) from error
    return reference.raw_data[:length]  # older onnx takes the length 0 for none


def unreadable(label: str, tensor: TensorProto, folder: str, error: Exception) -> InvalidValueError:
    """What to raise where onnx cannot read the external data of a tensor: of a missing file, it says that it is no regular one."""
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    path = os.path.join(folder, location)
    missing = f"there is no such file: {path}" if location and not os.path.exists(path) else ""
    return InvalidValueError(f"{label}: external data cannot be read: {missing or error}")


def _from_raw(raw: bytes, row: ElementType, shape: tuple[int, ...]) -> NDArray[Any]:
    if row.bits < 8:
        return unpack(_own(raw, _BYTE, (len(raw),)), row, shape)
    array = _own(raw, row.dtype, shape)
    if row.kind == "bool":
        np.not_equal(array.view(np.uint8), 0, out=array)
    return array.byteswap(inplace=True) if sys.byteorder == "big" else array


def _own(raw: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The bytes of a message as a writable array."""
    if len(raw) < OWNED_FROM or not BYTES_ARE_OURS:
        return np.ndarray(shape, dtype, bytearray(raw))
    # Nobody else has these bytes, so they need not be copied a second time, which would double the time: the array takes them
    # over, as NumPy has arrays do when they are unpickled.
    array: NDArray[Any] = np.ndarray(0, dtype)
    array.__setstate__((1, shape, dtype, False, raw))  # type: ignore[arg-type]  # the stub asks for a numpy.bool
    return array


def _float_entries(proto: TensorProto, field: str) -> NDArray[Any]:
    dtype = _FIELD_DTYPE[field]
    try:
        return np.frombuffer(getattr(proto, field), dtype).copy()
    except TypeError:
        entries = getattr(proto, field)
        if len(entries) <= _FEW:
            values = np.array(entries, dtype)
            if not np.isnan(values).any():
                return values
        # Before protobuf 7 a field is no buffer, and its items are Python floats, which quieten signalling NaNs. Encoded
        # alone, a packed field ends in its values, little-endian.
        alone = TensorProto()
        alone.CopyFrom(proto)
        alone.DiscardUnknownFields()
        for descriptor, _ in alone.ListFields():
            if descriptor.name != field:
                alone.ClearField(descriptor.name)
        encoded = alone.SerializeToString()
        size = len(getattr(proto, field)) * dtype.itemsize
        return np.frombuffer(encoded, dtype.newbyteorder("<"), offset=len(encoded) - size).astype(dtype)


def _from_integers(entries: NDArray[Any], row: ElementType, shape: tuple[int, ...], label: str) -> NDArray[Any]:
    if row.kind == "bool":
        return np.asarray(entries.reshape(shape) != 0)
    if entries.dtype == row.dtype:
        return entries.reshape(shape)
    shared = row.bits in (2, 4)  # an entry is a byte of several elements
    bits = 8 if shared else row.bits
    low, high = 0, (1 << bits) - 1
    if row.kind == "signed" and not shared:
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    elif shared or (row.kind == "float" and bits >= 8):
        low = -(1 << (bits - 1))  # a bit pattern that its producer took for a signed integer
    misfits = (entries < low) | (entries > high)
    if misfits.any():
        position = int(misfits.argmax())
        raise InvalidValueError(f"{label} has {entries[position]} at position {position}; {row} allows {low} to {high}")
    codes = entries.astype(f"u{row.dtype.itemsize}")
    if shared:
        return unpack(codes, row, shape)
    return codes.view(row.dtype).reshape(shape)


def _little_endian(array: NDArray[Any], row: ElementType) -> bytes:
    """The elements of ``array`` as in ``raw_data``."""
    if row.packed:
        return pack(array).tobytes()
    if row.kind == "bool":
        array = array.view(np.uint8) != 0  # a bool array viewing other bytes may hold a 2
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.byteswap()
    return array.tobytes()
