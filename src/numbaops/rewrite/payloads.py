"""The bytes that tensors take in a model, and the form in which they take the fewest."""

from __future__ import annotations

import math

from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import TensorProto
from onnx.external_data_helper import uses_external_data

from numbaops.dtypes import BY_CODE, BY_NAME
from numbaops.errors import InvalidTypeError
from numbaops.rewrite.patterns import Array
from numbaops.tensors import from_array

_INTEGERS = {BY_NAME["int64"].code: "int64_data", BY_NAME["int32"].code: "int32_data"}


def smallest(array: Array) -> TensorProto:
    """An array as a tensor of raw data, or of the integers themselves where these take fewer bytes."""
    raw = from_array(array)
    if raw.data_type not in _INTEGERS:
        return raw
    typed = TensorProto(data_type=raw.data_type, dims=raw.dims)
    getattr(typed, _INTEGERS[raw.data_type]).extend(array.reshape(-1).tolist())
    return typed if typed.ByteSize() < raw.ByteSize() else raw


def payload_bytes(tensor: TensorProto) -> int:
    """Bytes of a tensor's elements as ``raw_data``, or of its strings.

    Raises:
        InvalidTypeError: ONNX has no such element type.
    """
    row = BY_CODE.get(tensor.data_type)
    if row is None:
        raise InvalidTypeError(f"tensor {tensor.name!r}: data_type is {tensor.data_type}; known: 1 to {max(BY_CODE)}")
    return row.packed_size(math.prod(tensor.dims)) if row.bits else sum(map(len, tensor.string_data))


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes of an initializer in the model's file and, if its elements are in another, there; raw data are not copied for it."""
    if not tensor.HasField("raw_data") and not uses_external_data(tensor):
        return field_bytes(tensor)
    rest = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    if tensor.doc_string:
        rest.doc_string = tensor.doc_string
    rest.external_data.extend(tensor.external_data)
    rest.metadata_props.extend(tensor.metadata_props)
    payload = payload_bytes(tensor)
    if uses_external_data(tensor):
        return field_bytes(rest) + payload
    size: int = rest.ByteSize() + 1 + length_bytes(payload) + payload
    return 1 + length_bytes(size) + size


def field_bytes(message: Message) -> int:
    """Bytes of a message as a field of another: with its number and its length."""
    size: int = message.ByteSize()
    return 1 + length_bytes(size) + size


def length_bytes(size: int) -> int:
    """Bytes that the length of a message or of bytes takes."""
    return max(1, -(-size.bit_length() // 7))


def repacked(tensor: TensorProto, array: Array) -> TensorProto | None:
    """A tensor whose typed field takes more bytes than raw data would, with raw data; None for others."""
    if tensor.HasField("raw_data") or uses_external_data(tensor) or array.dtype == object:
        return None
    raw = from_array(array, tensor.name if tensor.HasField("name") else None)
    if tensor.HasField("doc_string"):
        raw.doc_string = tensor.doc_string
    raw.metadata_props.extend(tensor.metadata_props)
    return raw if raw.ByteSize() < tensor.ByteSize() else None
