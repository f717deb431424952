"""From what a caller has (a path, bytes, a file object, a proto) to an ONNX proto."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import onnx
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto
from onnx.model_container import ModelContainer
from onnx.parser import ParseError

from numbaops.engine.external import ExternalData
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.opset import DEFAULT_DOMAIN_ALIASES

Proto = ModelProto | GraphProto | FunctionProto | NodeProto


class InvalidModelError(InvalidValueError, DecodeError):  # type: ignore[misc]
    """A file or its bytes hold no ONNX model. It is also protobuf's ``DecodeError``, which onnx raises there."""


class Source(NamedTuple):
    """A proto, and where the data are that it does not hold itself. An evaluator takes it as it takes a proto."""

    proto: Proto
    external: ExternalData


LARGEST_FILE = (1 << 31) - 1
"""Bytes of a protobuf message."""


def check_size(path: str | os.PathLike[str]) -> None:
    """Refuse a file that is larger than a model can be, before it is read.

    Raises:
        InvalidModelError: it is.
    """
    if os.path.isfile(path) and (there := os.stat(path).st_size) > LARGEST_FILE:
        raise InvalidModelError(
            f"the file {os.fsdecode(path)!r} is not an ONNX model: it has {there} bytes, and protobuf's limit is 2 GiB ({LARGEST_FILE} "
            "bytes); larger models have their weights in other files"
        )


def opened(source: Any) -> Source:
    """What ``source`` is, holds or names.

    Of a file that has a path, the external data beside it belong to it.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidModelError: the content is empty, cut short or not ONNX.
        InvalidTypeError: ``source`` is nothing of this kind.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, Proto):
        return Source(source, ExternalData(None))
    if isinstance(source, ModelContainer):
        return Source(source.model_proto, ExternalData(None))
    if isinstance(source, (str, os.PathLike)):
        check_size(source)
        return _parse(source, f"the file {os.fspath(source)!r}", os.fsdecode(source))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(io.BytesIO(source), f"a model of {len(source)} bytes", None)
    if hasattr(source, "read"):
        name = getattr(source, "name", None)
        # a nameless temporary file has a descriptor for its name, which onnx.load would take for a path
        if isinstance(name, str):
            return _parse(source, f"the file {name!r}", name)
        content = source.read()
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise InvalidTypeError(f"the file object gives {type(content).__name__}; allowed: a file opened for bytes")
        return _parse(io.BytesIO(content), "the file object" if name is None else f"the file {name!r}", None)
    raise InvalidTypeError(
        f"Unexpected type {type(source)} for proto; allowed: a ModelProto, GraphProto, FunctionProto, NodeProto or ModelContainer, "
        "or a model file as a path, bytes or a file object"
    )


def _parse(file: Any, what: str, path: str | None) -> Source:
    try:
        model = onnx.load(file, load_external_data=False)
    except (DecodeError, json_format.ParseError, text_format.ParseError, ParseError, UnicodeDecodeError) as error:
        raise InvalidModelError(f"{what} is not an ONNX model, or is cut short ({error})") from error
    # protobuf takes no bytes at all, and many other bytes, for a message with all fields missing
    if not model.HasField("graph"):
        raise InvalidModelError(f"{what} holds no ONNX model: there is no graph in it")
    if path is None:
        return Source(model, ExternalData(None))
    external = ExternalData(os.path.dirname(os.path.abspath(path)))
    for body in (model.graph, *model.functions):
        external.load_attributes(body.node)
    return Source(model, external)


def canonical_domain(domain: str) -> str:
    """``""`` for every name of ONNX's own domain."""
    return "" if domain in DEFAULT_DOMAIN_ALIASES else domain


def canonical_node(node: NodeProto) -> NodeProto:
    """The node with the canonical name of its domain, so that only one name has to be looked for later."""
    if node.domain == canonical_domain(node.domain):
        return node
    renamed = NodeProto()
    renamed.CopyFrom(node)
    renamed.domain = canonical_domain(node.domain)
    return renamed


def opset_versions(imports: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Opset version by domain. Of several imports of one domain, under whatever name, the highest counts."""
    highest: dict[str, int] = {}
    written: set[str] = set()
    for domain, version in imports:
        written.add(domain)
        name = canonical_domain(domain)
        highest[name] = max(version, highest.get(name, version))
    return highest | {domain: highest[canonical_domain(domain)] for domain in written}


def imports_of(proto: Proto, opsets: dict[str, int] | None) -> dict[str, int]:
    """Opset version by domain for a proto, by the rules of its kind.

    Raises:
        ValueError: ``opsets`` given for a proto that has its own.
        TypeError: ``opsets`` missing for one that has none.
    """
    if isinstance(proto, GraphProto):
        if not isinstance(opsets, dict):
            raise TypeError("opsets must be a dictionary if proto is GraphProto.")
        return opset_versions(opsets.items())
    if isinstance(proto, NodeProto):
        domain = canonical_domain(proto.domain)
        return opset_versions([(proto.domain, onnx.defs.onnx_opset_version() if domain == "" else 1)])
    if opsets is not None:
        raise ValueError(f"opsets must be None if proto is {type(proto).__name__}.")
    imports = opset_versions((entry.domain, entry.version) for entry in proto.opset_import)
    # models older than IR 3 had no imports: https://onnx.ai/onnx/repo-docs/Versioning.html
    if not imports and isinstance(proto, ModelProto) and proto.ir_version < 3:
        return {"": 1}
    return imports
