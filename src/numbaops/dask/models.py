"""Models over many batches, as lazy arrays."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed

from numbaops.batches import Batch, Model, check_sizes, declared_inputs, default_rows, dims_of, fixed_size, named_arrays, outputs_of
from numbaops.errors import InvalidTypeError, InvalidValueError

_BATCH = "numbaops-batch"


def map_model(
    model: Any,
    inputs: Mapping[str, Any],
    batch_axis: int = 0,
    *,
    shared: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    batch_size: int | None = None,
) -> dict[str, da.Array]:
    """The outputs of a model for many batches, as lazy arrays.

    Nothing runs yet: :func:`compute` does, and so does whatever takes Dask's arrays (``.compute()``, ``dask.array.to_zarr``, ...). Each
    chunk of the inputs is one batch and one task. A process loads the model once, with its first batch.

    Args:
        model: a path, which every worker must see; or the bytes of a file, a ``ModelProto`` or a
            :class:`~numbaops.ReferenceEvaluator`, which are sent to each worker once.
        inputs: the inputs by name that are split into batches: arrays of Dask, whose chunks along the batch axis are the batches,
            or of NumPy.
        batch_axis: the dimension along which there are batches, of inputs and outputs.
        shared: inputs by name that each batch gets whole.
        outputs: the outputs that are wanted; by default all.
        batch_size: rows of a batch, for inputs of NumPy; by default the size that the model fixes, or the batches of the inputs of Dask,
            or at most an eighth of the rows and 8 MiB.

    Returns:
        The outputs by name, in the order of the model or of ``outputs``; a size that the model does not tell is NaN until it is computed.

    Raises:
        InvalidValueError: inputs that the model lacks or needs, batches of a size that it does not take, an output without batch axis.
        NumbaopsError: when computed, what the model raises; the text names batch and node.
    """
    if not isinstance(inputs, Mapping) or not inputs:
        raise InvalidTypeError("inputs must be a dictionary of arrays by input name, with at least one", attribute="inputs")
    source, proto = Model.of(model)
    declared, whole = declared_inputs(proto), named_arrays(shared, "shared")
    _check_names(declared, {value.name for value in proto.graph.input}, inputs, whole)
    whole = copy.deepcopy(whole)  # as Dask does with arrays, which may change before it runs
    axis = _checked_axis(inputs, batch_axis)
    fixed = {name: fixed_size(declared.get(name), axis) for name in inputs}
    arrays = _chunked(inputs, fixed, axis, batch_size)
    check_sizes({name: array.chunks[axis] for name, array in arrays.items()}, fixed, axis)
    wanted = outputs_of(proto, outputs, axis, inputs)

    sent = delayed(source, name=f"numbaops-model-{dask.base.tokenize(source.key)}", traverse=False)
    constants = delayed(whole, traverse=False) if whole else {}
    blocks = {name: array.to_delayed().reshape(-1) for name, array in arrays.items()}
    parts: dict[str, list[da.Array]] = {output.name: [] for output in wanted}
    chunks = [(name, array, array.chunks, array.dtype) for name, array in arrays.items()]
    # whatever a batch's values depend on: tasks of one key are one task
    token = dask.base.tokenize(source.key, axis, chunks, whole, [output.name for output in wanted])
    run, stop = delayed(_run, pure=False, nout=len(wanted)), 0
    for number, rows in enumerate(next(iter(arrays.values())).chunks[axis]):
        start, stop = stop, stop + rows
        symbols = _symbols(declared, arrays, whole, axis, rows)
        batch = Batch(number, start, stop, axis, tuple((output, output.shape(symbols)) for output in wanted))
        feeds = {name: block[number] for name, block in blocks.items()}
        values = run(batch, sent, feeds, constants, dask_key_name=f"{_BATCH}-{token}-{number}")
        for position, (output, shape) in enumerate(batch.outputs):
            meta = np.empty((0,) * len(shape), output.element_type.dtype)
            parts[output.name].append(da.from_delayed(values[position], shape, meta=meta))
    return {name: da.concatenate(pieces, axis, allow_unknown_chunksizes=True) for name, pieces in parts.items()}


def _run(batch: Batch, model: Model, feeds: Mapping[str, Any], shared: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    return batch.run(model, {**feeds, **shared})


def _check_names(needed: Mapping[str, Any], allowed: set[str], inputs: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
    given = [*inputs, *shared]
    names = ", ".join(map(repr, needed)) or "none"
    for name in given:
        if name not in allowed:
            raise InvalidValueError(f"the model has no input {name!r}; its inputs: {names}")
        if given.count(name) > 1:
            raise InvalidValueError(f"input {name!r} is given both in inputs and in shared")
    for name in needed:
        if name not in given:
            raise InvalidValueError(f"input {name!r} is missing; the model's inputs: {names}")


def _checked_axis(inputs: Mapping[str, Any], axis: Any) -> int:
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or axis < 0:
        raise InvalidValueError(f"batch_axis is {axis!r}; allowed: an integer from 0 on", attribute="batch_axis")
    for name, value in inputs.items():
        if not isinstance(value, (da.Array, np.ndarray)):
            raise InvalidTypeError(f"input {name!r} is a {type(value).__name__}; allowed: an array of Dask or NumPy")
        what = f"input {name!r} has the shape {value.shape}"
        if value.ndim <= axis:
            raise InvalidValueError(f"{what}, and no axis {axis}; what is the same for every batch goes into shared=")
        if not value.shape[axis] > 0:  # NaN neither
            raise InvalidValueError(f"{what}; allowed: a known number of rows along axis {axis}, from 1 on")
        split = [other for other, parts in enumerate(getattr(value, "chunks", ())) if other != axis and len(parts) > 1]
        if split:
            whole = ", ".join(f"{other}: -1" for other in split)
            raise InvalidValueError(f"{what}, and several chunks along other axes than {axis}; rechunk({{{whole}}}) makes whole rows")
    return int(axis)


def _chunked(inputs: Mapping[str, Any], fixed: Mapping[str, int | None], axis: int, batch_size: int | None) -> dict[str, da.Array]:
    """The inputs as arrays of Dask, where those of NumPy get the batches of the others."""
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1):
        raise InvalidValueError(f"batch_size is {batch_size!r}; allowed: an integer from 1 on", attribute="batch_size")
    plain = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
    chunks: Any = batch_size or next((size for size in fixed.values() if size), None)
    if chunks is None:
        chunks = next((value.chunks[axis] for value in inputs.values() if isinstance(value, da.Array)), None)
    if chunks is None:
        chunks = default_rows(plain.values(), axis)
    found: dict[str, da.Array] = {}
    for name, value in inputs.items():
        if name in plain:
            # chunks of another number of rows than this has: said by check_sizes
            rows = -1 if isinstance(chunks, tuple) and sum(chunks) != value.shape[axis] else chunks
            value = da.from_array(value, chunks=tuple(rows if other == axis else -1 for other in range(value.ndim)))
        found[name] = value
    return found


def _symbols(declared: Mapping[str, Any], arrays: Mapping[str, da.Array], whole: Mapping[str, Any], axis: int, rows: int) -> dict[str, int]:
    """Sizes of named dimensions in a batch of so many rows."""
    found: dict[str, int] = {}
    for name, value in (*arrays.items(), *whole.items()):
        dims = dims_of(declared[name].type) if name in declared else None
        for other, (dim, size) in enumerate(zip(dims or (), np.shape(value), strict=False)):
            if isinstance(dim, str):
                found.setdefault(dim, rows if other == axis and name in arrays else size)
    return {name: size for name, size in found.items() if size == size}
