"""The inputs of a model: from files, and drawn where no file gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference.ops._op_list  # which the first model that is loaded needs: here, where Ctrl-C waits, and nothing is timed

from numbaops.cli.files import as_declared, read_input, read_npz, read_proto
from numbaops.drawing import Declared, declared_inputs, declared_outputs, dimensions, draw, listed
from numbaops.dtypes import BY_CODE
from numbaops.engine.feeds import check_declared
from numbaops.errors import InvalidValueError

__all__ = ["Declared", "collect", "declared_inputs", "declared_outputs", "dimensions", "shape_text", "stored_outputs", "type_text"]


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
    named: set[str] = set()
    for position, text in enumerate(files):
        declared, path = _split_option(text, inputs, position)
        if declared.name in named:
            raise InvalidValueError(f"--input {text}: input {declared.name!r} is given twice")
        named.add(declared.name)
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
    return listed(f"{one.name!r}: {type_text(one.type)} {shape_text(one.type)}".rstrip() for one in needed) + (
        f" (and {more} with a default)" if more else ""
    )
