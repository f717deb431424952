"""The inputs of a model: from files, and drawn where no file gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from numbaops.cli.files import as_declared, read_input, read_npz, read_proto
from numbaops.dtypes import BY_CODE, ElementType
from numbaops.engine.feeds import check_declared
from numbaops.errors import InvalidTypeError, InvalidValueError

_LARGEST_DRAWN_INTEGER = 9


@dataclass(frozen=True, slots=True)
class Declared:
    """A graph input or output as the model declares it; an input is required if no initializer has its name."""

    name: str
    type: onnx.TypeProto
    required: bool = True


def declared_inputs(model: onnx.ModelProto) -> list[Declared]:
    """The inputs of a model, those that a run needs first."""
    constants = {tensor.name for tensor in model.graph.initializer} | {tensor.values.name for tensor in model.graph.sparse_initializer}
    inputs = [Declared(value.name, value.type, value.name not in constants) for value in model.graph.input]
    return sorted(inputs, key=lambda one: not one.required)


def declared_outputs(model: onnx.ModelProto) -> list[Declared]:
    """The outputs of a model."""
    return [Declared(value.name, value.type) for value in model.graph.output]


def collect(
    inputs: Sequence[Declared], *, source: Path | None, files: Iterable[str], sizes: Iterable[str], seed: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values to feed.

    Args:
        inputs: what the model declares.
        source: a ``.npz`` file or a folder of ``input_0.pb``, ..., or None.
        files: ``NAME=FILE`` each, or ``NUMBER=FILE``, or ``FILE``.
        sizes: ``NAME=SIZE`` of symbolic dimensions.
        seed: of the inputs that are drawn.

    Returns:
        The values by name, and where each came from: a file's name, or ``"drawn"``.
    """
    feeds: dict[str, Any] = {}
    origin: dict[str, str] = {}
    if source is not None:
        given = _from_folder(source, inputs, "input") if source.is_dir() else _from_npz(source, inputs)
        feeds.update(given)
        origin.update(dict.fromkeys(given, source.name))
    for position, text in enumerate(files):
        declared, path = _split_option(text, inputs, position)
        feeds[declared.name] = read_input(path, declared.type)
        origin[declared.name] = path.name
    for declared in inputs:
        if declared.name in feeds:
            check_declared(f"input {declared.name!r}", feeds[declared.name], declared.type)
    known = dimensions(inputs, feeds, sizes)
    for position, declared in enumerate(inputs):
        if declared.required and declared.name not in feeds:
            # A stream for each input: giving one of them by file leaves the others as they were.
            feeds[declared.name] = draw(declared.type, known, np.random.default_rng([seed, position]), declared.name)
            origin[declared.name] = "drawn"
    return feeds, origin


def stored_outputs(folder: Path, outputs: Sequence[Declared]) -> dict[str, Any]:
    """The values of ``output_0.pb``, ... in a folder of an ONNX test data set, by name; empty if there are none."""
    return _from_folder(folder, outputs, "output")


def draw(declared: onnx.TypeProto, dimensions: Mapping[str, int], random: np.random.Generator, name: str) -> Any:
    """A value of a declared type; unknown dimensions are 1."""
    kind = declared.WhichOneof("value")
    if kind == "sequence_type":
        return [draw(declared.sequence_type.elem_type, dimensions, random, name) for _ in range(2)]
    if kind == "optional_type":
        return draw(declared.optional_type.elem_type, dimensions, random, name)
    row = BY_CODE.get(declared.tensor_type.elem_type)
    if kind != "tensor_type" or row is None:
        raise InvalidTypeError(f"input {name!r} is of a type that cannot be drawn ({kind or 'none declared'}); give it with --input")
    if not declared.tensor_type.HasField("shape"):
        raise InvalidValueError(f"input {name!r} has no declared rank, so it cannot be drawn; give it with --input")
    sizes = ((_known_size(dim), dim.dim_param) for dim in declared.tensor_type.shape.dim)
    shape = tuple(dimensions.get(symbol, 1) if known is None else known for known, symbol in sizes)
    return _draw_array(row, shape, random)


def _draw_array(row: ElementType, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if row.kind == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    if row.kind == "string":
        words = np.array([f"text {number}" for number in range(_LARGEST_DRAWN_INTEGER + 1)], object)
        return words[random.integers(0, words.size, shape)].reshape(shape)
    if row.kind in ("signed", "unsigned"):
        largest = min(_LARGEST_DRAWN_INTEGER, (1 << row.bits - (row.kind == "signed")) - 1)
        return random.integers(0, largest + 1, shape).astype(row.dtype)
    if row.kind == "complex":
        return np.asarray(random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(row.dtype)
    values = np.asarray(random.standard_normal(shape, np.float64 if row.bits == 64 else np.float32))
    if row.format is not None and not row.format.signed:
        values = np.abs(values)
    return values.astype(row.dtype)


def _known_size(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    # Some exporters write -1 for "unknown".
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def dimensions(inputs: Sequence[Declared], feeds: Mapping[str, Any], sizes: Iterable[str]) -> dict[str, int]:
    """Sizes of the symbolic dimensions of inputs.

    Args:
        inputs: what the model declares.
        feeds: the inputs that are given, whose sizes count.
        sizes: ``NAME=SIZE`` each, which come before.
    """
    symbols = {dim.dim_param for one in inputs for dim in one.type.tensor_type.shape.dim if dim.dim_param}
    found: dict[str, int] = {}
    for text in sizes:
        name, _, size = text.rpartition("=")
        if not (size.isascii() and size.isdigit() and int(size) < 1 << 63):
            raise InvalidValueError(f"--dim {text}: it takes NAME=SIZE, the size a whole number below 2**63")
        if name not in symbols:
            raise InvalidValueError(f"--dim {text}: no input has a dimension {name!r}; symbolic dimensions: {_list(sorted(symbols))}")
        found[name] = int(size)
    for one in inputs:
        if isinstance(value := feeds.get(one.name), np.ndarray):
            for dim, size in zip(one.type.tensor_type.shape.dim, value.shape, strict=False):
                if dim.dim_param:
                    found.setdefault(dim.dim_param, size)
    return found


def _split_option(text: str, inputs: Sequence[Declared], position: int) -> tuple[Declared, Path]:
    """The input and the file of one ``--input``; names may hold a ``=``, and a number may be a name."""
    splits = [(text[: match.start()], text[match.end() :]) for match in re.finditer("=", text)]
    for name, path in splits:
        if (declared := _named(name, inputs)) is not None:
            return declared, Path(path)
    if not splits:
        return _at(position, inputs, f"--input {text}"), Path(text)
    name, path = splits[0]
    if name.isascii() and name.isdigit():
        return _at(int(name), inputs, f"--input {text}"), Path(path)
    raise InvalidValueError(f"the model has no input {name!r}; its inputs: {_list_inputs(inputs)}")


def _from_npz(path: Path, inputs: Sequence[Declared]) -> dict[str, Any]:
    feeds = {}
    for key, array in read_npz(path).items():
        declared = _named(key, inputs)
        if declared is None and (match := re.fullmatch(r"arr_(\d+)", key)):  # what np.savez calls arrays without a name
            declared = _at(int(match[1]), inputs, f"{path.name}: {key}")
        if declared is None:
            raise InvalidValueError(f"{path}: the model has no input {key!r}; its inputs: {_list_inputs(inputs)}")
        feeds[declared.name] = as_declared(array, declared.type)
    return feeds


def _from_folder(folder: Path, declared: Sequence[Declared], what: str) -> dict[str, Any]:
    """``input_0.pb`` and so on: by the name in the file if the model has it, else by position."""
    values = {}
    found = {int(match[1]): path for path in folder.iterdir() if (match := re.fullmatch(rf"{what}_(\d+)\.pb", path.name))}
    if not found and what == "input" and any(one.required for one in declared):
        raise InvalidValueError(f"{folder}: the folder has no input_0.pb")
    for position, path in sorted(found.items()):
        one = _at(position, declared, str(path), what)
        name, value = read_proto(path, one.type)
        values[name if _named(name, declared) is not None else one.name] = value
    return values


def _named(name: str, declared: Sequence[Declared]) -> Declared | None:
    return next((one for one in declared if one.name == name), None)


def _at(position: int, declared: Sequence[Declared], where: str, what: str = "input") -> Declared:
    if position >= len(declared):
        raise InvalidValueError(f"{where}: the model has no {what} number {position}; its {what}s: {_list_inputs(declared)}")
    return declared[position]


def type_text(declared: onnx.TypeProto) -> str:
    """A declared type for people, e.g. ``float``, without the shape."""
    kind = declared.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({type_text(declared.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({type_text(declared.optional_type.elem_type)})"
    if kind != "tensor_type":
        return (kind or "no type").removesuffix("_type").replace("_", " ")
    row = BY_CODE.get(declared.tensor_type.elem_type)
    return row.name if row is not None else "any type"


def shape_text(declared: onnx.TypeProto) -> str:
    """A declared shape for people, e.g. ``(N, 3, 224, 224)``; "" of what is no tensor."""
    if declared.WhichOneof("value") != "tensor_type":
        return ""
    tensor = declared.tensor_type
    if not tensor.HasField("shape"):
        return "of any shape"
    sizes = [dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?") for dim in tensor.shape.dim]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _list_inputs(declared: Sequence[Declared]) -> str:
    """The inputs that a run needs; the weights of an old model, which are inputs as well, would bury them."""
    needed = [one for one in declared if one.required] or list(declared)
    more = len(declared) - len(needed)
    return _list(f"{one.name!r}: {type_text(one.type)} {shape_text(one.type)}".rstrip() for one in needed) + (
        f" (and {more} with a default)" if more else ""
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
