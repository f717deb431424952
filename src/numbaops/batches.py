"""A model over batches: what goes into each, what comes out, and one evaluator for each process that runs some."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from numbaops.dtypes import BY_CODE, ElementType, of_dtype
from numbaops.engine.load import opened
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError, NumbaopsError
from numbaops.reference import ReferenceEvaluator
from numbaops.rewrite.files import data_files

Array = np.ndarray[Any, np.dtype[Any]]

MOST_EVALUATORS = 2
"""Evaluators that a process keeps: one is the rule, a second for who runs two models in turns."""

BATCH_BYTES = 1 << 23
"""Bytes of a batch's largest input where nobody says how many rows it has."""

FEWEST_BATCHES = 8
"""So many where nobody says it, for a few workers and a progress that moves."""

_evaluators: dict[str, ReferenceEvaluator] = {}  # by key, the one used last at the end
_loading = threading.Lock()


@dataclass(frozen=True)
class Model:
    """A model on its way to other processes.

    Attributes:
        key: what a process knows its evaluator by.
        source: a path that every process sees, or the bytes of a file, or an evaluator, which is pickled.
    """

    key: str
    source: str | bytes | ReferenceEvaluator

    @classmethod
    def of(cls, model: Any) -> tuple[Model, onnx.ModelProto]:
        """``model``, and its proto, in which external data are not loaded.

        Raises:
            InvalidTypeError: it is no path, no bytes, no ModelProto and no evaluator of one.
            InvalidModelError: it holds no ONNX model.
        """
        if isinstance(model, ReferenceEvaluator) and isinstance(model.proto_, onnx.ModelProto):
            return cls(uuid.uuid4().hex, model), model.proto_
        if isinstance(model, (str, os.PathLike)):
            path = os.path.abspath(os.fsdecode(model))
            proto = opened(path).proto
            return cls(" ".join([path, *_states(path, proto)]), path), proto
        if isinstance(model, (bytes, bytearray, memoryview, onnx.ModelProto)):
            content = model.SerializeToString() if isinstance(model, onnx.ModelProto) else bytes(model)
            return cls(sha256(content).hexdigest(), content), opened(content).proto
        raise InvalidTypeError(f"model is a {type(model).__name__}; allowed: a path, bytes, a ModelProto or a ReferenceEvaluator of one")

    def evaluator(self) -> ReferenceEvaluator:
        """This process's evaluator, which is made once, also if many threads ask for it at a time."""
        with _loading:
            found = _evaluators.pop(self.key, None)
            if found is None:
                found = self.source if isinstance(self.source, ReferenceEvaluator) else ReferenceEvaluator(self.source)
            _evaluators[self.key] = found
            while len(_evaluators) > MOST_EVALUATORS:
                del _evaluators[next(iter(_evaluators))]
            return found


def _states(path: str, proto: onnx.ModelProto) -> Iterable[str]:
    """What tells of each file of a model, also of those beside it, that it was written again."""
    for file in (Path(path), *data_files(proto, Path(path).parent)):
        try:
            stat = os.stat(file)
        except (OSError, ValueError):  # the second for a NUL; to load the model says what is wrong
            yield "none"
        else:
            yield f"{stat.st_mtime_ns}.{stat.st_ctime_ns}.{stat.st_size}"


@dataclass(frozen=True)
class Output:
    """A model's output as far as it is known before it is computed: a dimension is a size, the name of one, or None."""

    name: str
    element_type: ElementType
    dims: tuple[int | str | None, ...]

    def shape(self, symbols: Mapping[str, int]) -> tuple[float, ...]:
        """Its shape in a batch in which dimensions have these sizes; NaN for what is unknown."""
        known = (symbols.get(dim) if isinstance(dim, str) else dim for dim in self.dims)
        return tuple(float("nan") if size is None else size for size in known)

    def check(self, value: Any, shape: Sequence[float]) -> None:
        """Refuse what is not as the model declares it.

        Raises:
            EvaluationError: another element type or shape.
        """
        if not isinstance(value, np.ndarray) or of_dtype(value.dtype) != self.element_type:
            came = of_dtype(value.dtype) if isinstance(value, np.ndarray) else type(value).__name__
            raise EvaluationError(f"output {self.name!r} is {came}; declared: {self.element_type}")
        if len(shape) != value.ndim or any(size != wanted for size, wanted in zip(value.shape, shape, strict=True) if wanted == wanted):
            wanted_text = ", ".join("?" if size != size else str(int(size)) for size in shape)
            raise EvaluationError(f"output {self.name!r} has the shape {list(value.shape)}; declared, for this batch: [{wanted_text}]")


@dataclass(frozen=True)
class Batch:
    """One batch: its place among the rows, and the outputs that it gives with their shapes."""

    number: int
    start: int
    stop: int
    axis: int
    outputs: tuple[tuple[Output, tuple[float, ...]], ...]

    def __str__(self) -> str:
        return f"batch {self.number} (rows {self.start} to {self.stop - 1} of axis {self.axis})"

    def run(self, model: Model, feeds: Mapping[str, Any]) -> list[Array]:
        """The outputs for these inputs.

        Raises:
            NumbaopsError: what the model raises; the text begins with the node, where there is one, and names the batch.
        """
        try:
            values: list[Array] = model.evaluator().run([output.name for output, _ in self.outputs], feeds)
            for (output, shape), value in zip(self.outputs, values, strict=True):
                output.check(value, shape)
        except NumbaopsError as error:
            error.args = (f"{self}: {error.args[0]}", *error.args[1:])
            raise
        except Exception as error:
            raise EvaluationError(f"{self}: {type(error).__name__}: {error}") from error
        return values


def declared_inputs(proto: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """The inputs by name that a run needs."""
    constants = {tensor.name for tensor in proto.graph.initializer} | {tensor.values.name for tensor in proto.graph.sparse_initializer}
    return {value.name: value for value in proto.graph.input if value.name not in constants}


def dims_of(declared: onnx.TypeProto) -> tuple[int | str | None, ...] | None:
    """The declared dimensions: a size, a name, or None; None for all if the rank is not declared."""
    tensor = declared.tensor_type
    if not tensor.HasField("shape"):
        return None
    # a negative dimension is an unknown one, which some exporters write
    return tuple(
        int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None for dim in tensor.shape.dim
    )


def fixed_size(declared: onnx.ValueInfoProto | None, axis: int) -> int | None:
    """The size that a model fixes for a dimension of an input."""
    dims = dims_of(declared.type) if declared is not None else None
    size = dims[axis] if dims is not None and axis < len(dims) else None
    return size if isinstance(size, int) else None


def distinct_names(names: Any, what: str) -> list[str]:
    """Names that a caller gives, each once.

    Raises:
        InvalidTypeError: no list of names; a string is one of letters.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InvalidTypeError(f"{what} is {names!r}; allowed: a list of names", attribute=what)
    return list(dict.fromkeys(names))


def named_arrays(given: Any, what: str) -> dict[str, Any]:
    """Inputs by name that a caller gives, or None for none.

    Raises:
        InvalidTypeError: no dictionary.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InvalidTypeError(f"{what} is a {type(given).__name__}; allowed: a dictionary of arrays by input name", attribute=what)
    return dict(given or {})


def default_rows(arrays: Iterable[Array], axis: int) -> int:
    """Rows of a batch, where neither the model nor the caller says it."""
    rows = []
    for array in arrays:
        total = array.shape[axis]
        whole = min(-(-total // FEWEST_BATCHES), BATCH_BYTES * total // max(1, array.nbytes))
        rows.append(max(1, whole))
    return int(min(rows))


def check_sizes(sizes: Mapping[str, Sequence[int]], fixed: Mapping[str, int | None], axis: int) -> None:
    """Refuse chunks of which batches cannot be made.

    Args:
        sizes: of the chunks of each input along the axis.
        fixed: the size that the model fixes for each, or None.
        axis: the batch axis.

    Raises:
        InvalidValueError: the error says which sizes are possible.
    """
    for name, chunks in sizes.items():
        size, total = fixed[name], sum(chunks)
        if size is None or all(chunk == size for chunk in chunks):
            continue
        text = f"input {name!r} comes in batches of {_sizes(chunks)} rows along axis {axis}, but the model takes exactly {size}; "
        if not size:
            raise InvalidValueError(f"{text}no batches can be made for it")
        if total and total % size == 0:
            raise InvalidValueError(f"{text}possible: {size} in each, e.g. by batch_size={size}, or for Dask rechunk({{{axis}: {size}}})")
        below = total - total % size
        totals = " or ".join(str(number) for number in (below, below + size) if number)
        raise InvalidValueError(f"{text}possible: {size} in each, of {totals} rows in all, not {total}")
    first, *others = sizes
    for name in others:
        if tuple(sizes[name]) != tuple(sizes[first]):
            raise InvalidValueError(
                f"inputs {first!r} and {name!r} {_difference(sizes[first], sizes[name])} along axis {axis}; possible: the same for both; "
                "what is the same for every batch goes into shared="
            )


def _difference(one: Sequence[int], other: Sequence[int]) -> str:
    if sum(one) != sum(other):
        return f"have {sum(one)} and {sum(other)} rows"
    if _sizes(one) != _sizes(other):
        return f"come in batches of {_sizes(one)} and {_sizes(other)} rows"
    number = next(number for number, (rows, others) in enumerate(zip(one, other, strict=False)) if rows != others)
    return f"have {one[number]} and {other[number]} rows in batch {number}"


def _sizes(chunks: Sequence[int]) -> str:
    """A few of the different sizes, in order."""
    different = list(dict.fromkeys(chunks))
    return ", ".join(map(str, different[:5])) + (", ..." if len(different) > 5 else "")


def outputs_of(proto: onnx.ModelProto, names: Sequence[str] | None, axis: int, batched: Iterable[str]) -> list[Output]:
    """The outputs that batches give.

    Args:
        proto: the model.
        names: those wanted; None for all of the graph's.
        axis: the batch axis, which each must have.
        batched: the names of the inputs that are split along it.

    Raises:
        InvalidTypeError: ``names`` is no list of names.
        InvalidValueError: there is no such output, it is no tensor, or has no batch axis.
    """
    given = {value.name: dims_of(value.type) or () for value in proto.graph.input}
    rows = {given[name][axis] for name in batched if axis < len(given.get(name, ()))}
    others = {dim for dims in given.values() for dim in dims} - rows
    declared = {value.name: value for value in proto.graph.output}
    wanted = list(declared) if names is None else distinct_names(names, "outputs")
    if any(name in declared and dims_of(declared[name].type) is None for name in wanted):
        declared = {value.name: value for value in _inferred(proto).graph.output}
    found = []
    for name in wanted:
        if name not in declared:
            raise InvalidValueError(f"the model has no output {name!r}; its outputs: {', '.join(map(repr, declared))}")
        row, dims = BY_CODE.get(declared[name].type.tensor_type.elem_type), dims_of(declared[name].type)
        if row is None or dims is None:
            raise InvalidValueError(f"output {name!r} is declared without element type or rank; choose others with outputs=")
        if len(dims) <= axis:
            raise InvalidValueError(
                f"output {name!r} has rank {len(dims)}, and no axis {axis} to join batches along; choose others with outputs="
            )
        size = dims[axis]
        if (isinstance(size, str) and size in others) or (isinstance(size, int) and rows and all(isinstance(each, str) for each in rows)):
            raise InvalidValueError(
                f"output {name!r} has {size} along axis {axis} however many rows a batch has, so that batches cannot be joined; "
                "choose others with outputs="
            )
        found.append(Output(name, row, dims))
    return found


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(proto)
    except (onnx.shape_inference.InferenceError, ValueError):  # the second for what is larger than 2 GiB
        return proto
