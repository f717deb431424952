"""Model files: loaded without the data beside them, of which what is asked for is mapped; and saved whole or not at all.

A protobuf message holds less than 2 GiB. Larger models have tensors in other files, see
https://onnx.ai/onnx/repo-docs/ExternalData.html; those stay there when a model is loaded, and go into one file beside the new model when
it is saved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import onnx
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, EncodeError, Message  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto
from onnx.checker import ValidationError
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor, uses_external_data
from onnx.parser import ParseError

from numbaops import targets
from numbaops.engine.external import ExternalData
from numbaops.engine.load import InvalidModelError, Source, check_size, opened
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.tensors import located, to_array, unreadable

LARGEST_MESSAGE = (1 << 31) - (1 << 20)
"""Bytes up to which a model is one file; protobuf refuses more than 2 GiB."""

EXTERNAL_FROM = 1 << 16
"""Bytes from which initializers go into the other file, where there is one."""

_ALIGNMENT = 1 << 12
"""Of large tensors in a file, so that they can be mapped."""

_CHUNK = 1 << 23


@dataclass(frozen=True)
class LoadedModel:
    """A model, and where the data are that it does not hold itself.

    Attributes:
        model: a proto that nobody else has; tensors that are stored in other files are references.
        external: reads those.
        path: the model's file, or None; absolute, as the other paths are, for the current folder may be another one later.
        folder: where other files are looked for, or None.
        data: the files that hold data of the model as it is when this is made.
    """

    model: ModelProto
    external: ExternalData
    path: Path | None = None
    folder: Path | None = None
    data: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.folder is not None and not self.data:
            object.__setattr__(self, "data", data_files(self.model, self.folder))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it was loaded from, with those of its external data."""
        return self.data if self.path is None else (self.path, *self.data)

    @property
    def source(self) -> Source:
        """What an evaluator takes."""
        return Source(self.model, self.external)

    def array(self, tensor: TensorProto) -> NDArray[Any]:
        """The elements of a tensor of the model, mapped if they are in another file."""
        return self.external.read(tensor) if uses_external_data(tensor) else to_array(tensor)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A model made from another one.

    Attributes:
        model: the model. Tensors that are in other files are references to these; :meth:`save` copies them.
        source: the model that it was made from.
    """

    model: ModelProto
    source: LoadedModel

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the model to a file, all or nothing; external data go into ``PATH.data``.

        Returns:
            The files that were written.

        Raises:
            InvalidValueError: ``path`` is a file of the model that this was made from, or nothing can be written there.
            OSError: it cannot be written, e.g. for want of room; nothing is left of it then.
        """
        return save(self.model, path, self.source)


def load(source: Any, folder: str | os.PathLike[str] | None = None) -> LoadedModel:
    """A model to rewrite.

    Args:
        source: a ModelProto, which is copied; or a model file as a path, as bytes or as a file object; or what this returned, as it is.
        folder: where external data are; by default beside a file that has a path.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidModelError: it is no ONNX model.
        InvalidTypeError: ``source`` is nothing of this kind.
    """
    if isinstance(source, LoadedModel):
        return source
    name, path = _file_name(source), None
    if name is not None:
        check_size(name)
        try:
            model = onnx.load(source, load_external_data=False)
        except (DecodeError, json_format.ParseError, text_format.ParseError, ParseError, UnicodeDecodeError) as error:
            raise InvalidModelError(f"the file {name!r} is not an ONNX model, or is cut short ({error})") from error
        if not model.HasField("graph"):
            raise InvalidModelError(f"the file {name!r} holds no ONNX model: there is no graph in it")
        path = Path(name).absolute()
        folder = folder or path.parent
    elif isinstance(source, ModelProto):
        model = copied(source)
    else:
        found = opened(source).proto
        if not isinstance(found, ModelProto):
            raise InvalidTypeError(f"expected a model, got a {type(found).__name__}")
        model = found
    where = None if folder is None else Path(folder).absolute()
    return LoadedModel(model, ExternalData(None if where is None else str(where)), path, where)


def _file_name(source: Any) -> str | None:
    """Of a path, or of a file object that reads a file with one."""
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    name = getattr(source, "name", None) if hasattr(source, "read") else None
    return name if isinstance(name, str) and os.path.isfile(name) else None  # that of a file in an archive is no path


def copied(model: ModelProto, emptied: Callable[[TensorProto], bool] = lambda tensor: False) -> ModelProto:
    """A copy of a model, which may be larger than a message.

    Args:
        model: the model.
        emptied: says of which initializers the copy has only name, type and shape.
    """
    copy = ModelProto()
    _fill(copy, model, but="graph")
    copy.graph.SetInParent()
    _fill(copy.graph, model.graph, but="initializer")
    for tensor in model.graph.initializer:
        if emptied(tensor):
            copy.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, doc_string=tensor.doc_string)
        else:
            copy.graph.initializer.append(tensor)
    return copy


def _fill(empty: Any, message: Any, but: str) -> None:
    """Give an empty message all fields of another but for one; those too that the installed onnx does not know."""
    for field, value in message.ListFields():
        if field.name == but:
            continue
        if isinstance(value, Message):
            getattr(empty, field.name).CopyFrom(value)
        elif isinstance(value, (str, bytes, int, float)):
            setattr(empty, field.name, value)
        else:
            getattr(empty, field.name).extend(value)
    empty.MergeFromString(_encoded(UnknownFieldSet(message)))


def _encoded(fields: Iterable[Any]) -> bytes:
    """Unknown fields as they are in a file: https://protobuf.dev/programming-guides/encoding/."""
    parts = []
    for field in fields:
        tag, data = field.field_number << 3 | field.wire_type, field.data
        parts.append(_varint(tag))
        if field.wire_type == 0:
            parts.append(_varint(data))
        elif field.wire_type == 2:
            parts += [_varint(len(data)), data]
        elif field.wire_type == 3:  # a group, which ends with a tag of its own
            parts += [_encoded(data), _varint(tag + 1)]
        else:
            parts.append(data.to_bytes(8 if field.wire_type == 1 else 4, "little"))
    return b"".join(parts)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor of a graph: initializers, parts of sparse ones, and those in attributes, also of bodies."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from tensors_in(graph.node)


def tensors_in(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    """Every tensor in the attributes of nodes, also in bodies."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for sparse in [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else attribute.sparse_tensors:
                yield from (sparse.values, sparse.indices)
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from tensors_of(body)


def tensors_of_model(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model: of its graph, its functions, and what trains it."""
    yield from tensors_of(model.graph)
    for function in model.functions:
        yield from tensors_in(function.node)
    for training in model.training_info:
        yield from tensors_of(training.initialization)
        yield from tensors_of(training.algorithm)


def data_path(path: Path) -> Path:
    """The file beside a model that holds its external data."""
    return path.with_name(f"{path.name}.data")


def check_target(path: str | os.PathLike[str], loaded: LoadedModel) -> Path:
    """The file that :func:`save` will write, or an error if that cannot work: better before long work than after it.

    Args:
        path: where the model is to be saved; of a symbolic link, what it points to is replaced.
        loaded: the model that it is made from, none of whose files it may replace.

    Raises:
        InvalidValueError: it is a file of the model that it is made from, no regular file, write-protected, or in a folder where nothing
            can be written; or the file beside it is such, and the model has external data.
    """
    target = targets.check_target(path)
    if loaded.data:
        targets.check_target(data_path(target))
    for ours in (target, data_path(target)):
        for theirs in loaded.files:
            if os.path.realpath(theirs) == str(ours) or (theirs.exists() and ours.exists() and os.path.samefile(theirs, ours)):
                what = "the model that is read" if theirs == loaded.path else "external data of the model that is read"
                raise InvalidValueError(f"{path}: {ours.name} is {what}, which stays as it is; give another name")
    return target


def data_files(model: ModelProto, folder: Path) -> tuple[Path, ...]:
    """The files in which a model's external data are."""
    names: dict[Path, None] = {}
    for tensor in filter(uses_external_data, tensors_of_model(model)):
        names.update((folder / entry.value, None) for entry in tensor.external_data if entry.key == "location")
    return tuple(names)


def save(model: ModelProto, path: str | os.PathLike[str], loaded: LoadedModel) -> list[Path]:
    """Write a model to a file, and what is not to be in it to a file beside it: all or nothing.

    Tensors that are stored in other files are copied into ``PATH.data``. If the model that it was made from has such, or the model would be
    larger than a message may be, large initializers go there too. Both files are written under other names, and take the places of
    earlier ones only when they are complete. If there is nothing for ``PATH.data``, an earlier one stays: it may be another model's.

    Args:
        model: the model, which is left as it is.
        path: where to.
        loaded: the model that it was made from, whose external data it may refer to.

    Returns:
        The files that were written.

    Raises:
        InvalidValueError: see :func:`check_target`; or external data cannot be read.
        OSError: the files cannot be written, e.g. for want of room; there is nothing of them then.
    """
    target = check_target(path, loaded)
    tensors = list(tensors_of_model(model))
    external = any(map(uses_external_data, tensors))
    moving = external or bool(loaded.data) or sum(map(_inline_bytes, tensors)) > LARGEST_MESSAGE
    written, data = {target: targets.beside(target)}, data_path(target)
    if external or (moving and any(map(_moves, model.graph.initializer))):
        targets.check_target(data)
        written[data] = targets.beside(data)
    try:
        if data in written:
            copy = copied(model, _moves)
            with open(written[data], "wb") as file:
                _write_data(model, copy, file, data.name, loaded)
                _to_disk(file)
            model = copy
        try:
            content = model.SerializeToString()
        except (EncodeError, ValueError) as error:
            raise InvalidValueError(f"{path}: what is not in initializers is too large for a model file: {error}") from error
        with open(written[target], "wb") as file:
            file.write(content)
            _to_disk(file)
        _put(written)
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)
    return list(written)


def _to_disk(file: IO[bytes]) -> None:
    """Wait until it is on the disk: some systems only then find that there is no room."""
    file.flush()
    os.fsync(file.fileno())


def _inline_bytes(tensor: TensorProto) -> int:
    """Bytes of a tensor in the message, without making a copy of them if they are many."""
    return 0 if uses_external_data(tensor) else len(tensor.raw_data) if tensor.HasField("raw_data") else tensor.ByteSize()


def _moves(tensor: TensorProto) -> bool:
    """Whether an initializer goes into the other file, if there is to be one."""
    return tensor.HasField("raw_data") and _inline_bytes(tensor) >= EXTERNAL_FROM


def _write_data(model: ModelProto, copy: ModelProto, file: IO[bytes], name: str, loaded: LoadedModel) -> None:
    """Write the elements that are not in the model's copy, and write into that where they are."""
    places: dict[tuple[str, int, int], int] = {}
    with ExitStack() as files:
        others: dict[Path, IO[bytes]] = {}
        for tensor in filter(uses_external_data, tensors_of_model(copy)):
            path, start, length = _place(tensor, loaded)
            key = str(path), start, length
            if key not in places:
                if path not in others:
                    others[path] = files.enter_context(open(path, "rb"))
                places[key] = _start(file, length)
                _copy(others[path], start, length, file, tensor.name)
            _refer(tensor, name, places[key], length)
    for whole, tensor in zip(model.graph.initializer, copy.graph.initializer, strict=True):
        if _moves(whole):
            tensor.Clear()
            _fill(tensor, whole, but="raw_data")
            length = _inline_bytes(whole)
            offset = _start(file, length)
            file.write(whole.raw_data)
            _refer(tensor, name, offset, length)


def _place(tensor: TensorProto, loaded: LoadedModel) -> tuple[Path, int, int]:
    """The file that holds a tensor, and where in it."""
    if loaded.folder is None:
        raise InvalidValueError(f"tensor {tensor.name!r} is stored in another file, and the model came without a folder to look in")
    try:
        where = ExternalDataInfo(located(tensor))
        # onnx decides which files may be read; it does so before it reads this one byte
        probe = TensorProto(name=tensor.name, data_location=TensorProto.EXTERNAL)
        start = where.offset or 0
        for key, value in (
            ("location", where.location),
            ("offset", start),
            ("length", min(1, 1 if where.length is None else where.length)),
        ):
            probe.external_data.add(key=key, value=str(value))
        load_external_data_for_tensor(probe, str(loaded.folder))
        path = loaded.folder / where.location
        return path, start, path.stat().st_size - start if where.length is None else where.length
    except (ValidationError, ValueError, OSError) as error:
        raise unreadable(f"tensor {tensor.name!r}", tensor, str(loaded.folder), error) from error


def _start(file: IO[bytes], length: int) -> int:
    """Where a tensor of that many bytes begins."""
    if length >= EXTERNAL_FROM:
        file.write(bytes(-file.tell() % _ALIGNMENT))
    return file.tell()


def _copy(source: IO[bytes], start: int, length: int, target: IO[bytes], name: str) -> None:
    source.seek(start)
    while length:
        chunk = source.read(min(length, _CHUNK))
        if not chunk:
            raise InvalidValueError(f"tensor {name!r}: external data cannot be read: the file ends {length} bytes too early")
        target.write(chunk)
        length -= len(chunk)


def _refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    del tensor.external_data[:]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def _put(written: dict[Path, Path]) -> None:
    """Let the new files take the places of the old ones: the data first, which come back if the model's file cannot follow.

    A signal may come between any two lines; so what was done is not noted, but seen by which files are there.
    """
    (model, new_model), *beside = written.items()
    if not beside:
        os.replace(new_model, model)
        return
    ((data, new_data),) = beside
    old, there = new_data.with_suffix(".old"), os.path.lexists(data)
    old.unlink(missing_ok=True)
    try:
        if there:
            _keep(data, old)
        os.replace(new_data, data)
        os.replace(new_model, model)
    except BaseException:
        if new_model.exists():  # else both are in their places
            if os.path.lexists(old):
                os.replace(old, data)
            elif not there and not new_data.exists():
                data.unlink(missing_ok=True)
        old.unlink(missing_ok=True)  # to rename one of two links to a file to the other does nothing
        raise
    old.unlink(missing_ok=True)


def _keep(path: Path, old: Path) -> None:
    """Give a file a second name; where the file system has no links, another one."""
    try:
        os.link(path, old, follow_symlinks=False)
    except (OSError, NotImplementedError):
        os.replace(path, old)
