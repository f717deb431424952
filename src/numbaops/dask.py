"""Chunked arrays and models over many batches, on the engine of Dask; needs the extra ``dask``.

Arrays are those of :mod:`dask.array`, lazy and of every element type. Functions that run in workers are of this package, so that each
worker needs numbaops, and no code of the caller.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import numbaops
from numbaops.batches import Batch, Model, check_sizes, declared_inputs, default_rows, dims_of, fixed_size, named_arrays, outputs_of
from numbaops.convert import array_nbytes
from numbaops.dtypes import element_type, of_dtype
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError
from numbaops.ops.base import as_integer

try:
    import dask
    import dask.array as da
    import dask.local
    import dask.threaded
    import distributed
    from dask.callbacks import Callback
    from dask.delayed import delayed
    from distributed.protocol.numpy import serialize_numpy_ndarray
    from distributed.protocol.serialize import dask_serialize
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("dask", "distributed"):
        raise
    text = 'numbaops.dask needs the extra "dask": pip install "numbaops[dask]", or ".[dask]" in a checkout'
    raise ModuleNotFoundError(text, name=missing) from None

__all__ = ["cast", "cluster", "compute", "constant_of_shape", "eye_like", "map_model"]

Show = Callable[[int, int], None]

_BATCH = "numbaops-batch"
_LOCAL = {"threads": dask.threaded.get, "synchronous": dask.local.get_sync}  # by name, Dask warns of them beside a client


@dask_serialize.register(np.ndarray)  # type: ignore[untyped-decorator]
def _serialized(array: np.ndarray[Any, Any], context: Any = None) -> Any:
    """An array for another process. distributed sends types of kind "f" by name, which for float8e5m2 is the ``<f1`` of nobody."""
    if array.dtype.kind != "f" or array.dtype.type.__module__ == "numpy":
        return serialize_numpy_ndarray(array, context)
    header, frames = serialize_numpy_ndarray(array.view(f"V{array.dtype.itemsize}"), context)
    return {**header, "dtype": (1, pickle.dumps(array.dtype))}, frames


# Arrays


def constant_of_shape(shape: Any, value: Any = None, chunks: Any = "auto", *, opset: int | None = None) -> da.Array:
    """:func:`numbaops.constant_of_shape` in chunks.

    Args:
        shape: a tuple or list of integers.
        value: as for :func:`numbaops.constant_of_shape`, and as there it gives the element type.
        chunks: whatever ``dask.array`` takes for chunks; by default of the size that Dask is configured for, 128 MiB.
        opset: the opset version; None is the newest.

    Raises:
        NumbaopsError: what :func:`numbaops.constant_of_shape` raises for ``value`` and ``shape``, at once.
    """
    sizes = _sizes(shape, "shape")
    one: Any = numbaops.constant_of_shape((1,), value, opset=opset)
    empty = one[:0].reshape((0,) * len(sizes)) if sizes else one.reshape(())
    return _generated(_constant_block, sizes, chunks, empty, value=one, opset=opset)


def eye_like(x: Any, dtype: Any = None, k: int = 0, chunks: Any = None, *, opset: int | None = None) -> da.Array:
    """:func:`numbaops.eye_like` in chunks.

    Args:
        x: an array of rank 2, of Dask or NumPy, of which only shape, dtype and chunks count; or a shape.
        dtype: element type of the result; by default that of ``x``, and float32 for a shape.
        k: the diagonal: ``[i, i + k]`` is one.
        chunks: whatever ``dask.array`` takes for chunks; by default those of ``x``, else of the size that Dask is configured for.
        opset: the opset version; None is the newest.

    Raises:
        NumbaopsError: what :func:`numbaops.eye_like` raises, at once.
    """
    if chunks is None:
        chunks = x.chunks if isinstance(x, da.Array) else "auto"
    is_array = isinstance(x, (da.Array, np.ndarray))
    sizes = _sizes(x.shape if is_array else x, "x")
    like = np.empty((0,) * len(sizes), x.dtype) if is_array else (0,) * len(sizes)
    empty = numbaops.eye_like(like, dtype, k, opset=opset)
    return _generated(_eye_block, sizes, chunks, empty, element=of_dtype(empty.dtype).name, k=k, opset=opset)


def cast(x: Any, to: Any, *, saturate: bool = True, round_mode: str = "up") -> da.Array:
    """:func:`numbaops.cast` of each chunk.

    Args:
        x: an array of Dask or NumPy.
        to: the element type to convert to.
        saturate: as for :func:`numbaops.cast`.
        round_mode: as for :func:`numbaops.cast`.

    Raises:
        NumbaopsError: what :func:`numbaops.cast` raises for these types, at once.
    """
    array = da.asanyarray(x)
    options: Any = {"to": element_type(to).name, "saturate": saturate, "round_mode": round_mode}
    empty: Any = numbaops.cast(np.empty((0,) * array.ndim, array.dtype), **options)
    result: da.Array = da.map_blocks(_cast_block, array, **options, dtype=empty.dtype, meta=empty)
    return result


def _sizes(shape: Any, what: str) -> tuple[int, ...]:
    """A shape of integers from 0 on; ``what`` begins the message of an error."""
    if isinstance(shape, np.ndarray) and shape.ndim == 1 and shape.dtype.kind in "iu":
        shape = shape.tolist()
    if not isinstance(shape, (tuple, list)):
        raise InvalidTypeError(f"{what} is {shape!r}; allowed: an array, or a tuple or list of integers", attribute=what)
    if any(isinstance(size, float) and size != size for size in shape):  # what Dask does not know
        text = f"{what} has the shape {tuple(shape)}; allowed: known sizes, which compute_chunk_sizes() of an array of Dask finds out"
        raise InvalidValueError(text, attribute=what)
    sizes = tuple(as_integer(size, what) for size in shape)
    array_nbytes(sizes, 1, what)
    return sizes


def _generated(block: Callable[..., Any], shape: tuple[int, ...], chunks: Any, empty: np.ndarray[Any, Any], **options: Any) -> da.Array:
    """An array of which ``block`` makes each chunk from nothing."""
    parts = da.core.normalize_chunks(chunks, shape, dtype=empty.dtype)
    name = f"{block.__name__.strip('_')}-{dask.base.tokenize(parts, empty, options)}"
    result: da.Array = da.map_blocks(block, chunks=parts, dtype=empty.dtype, meta=empty, name=name, **options)
    return result


def _constant_block(*, value: Any, opset: int | None, block_info: Any) -> Any:
    return numbaops.constant_of_shape(block_info[None]["chunk-shape"], value, opset=opset)


def _eye_block(*, element: str, k: int, opset: int | None, block_info: Any) -> Any:
    (top, _), (left, _) = block_info[None]["array-location"]
    return numbaops.eye_like(block_info[None]["chunk-shape"], element, int(k) + top - left, opset=opset)


def _cast_block(x: Any, **options: Any) -> Any:
    return numbaops.cast(x, **options)


# Models


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
    wanted = outputs_of(proto, outputs, axis)

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


# Where it runs


@contextlib.contextmanager
def cluster(scheduler: Any = None, workers: int | None = None, memory_limit: Any = "auto") -> Iterator[distributed.Client]:
    """A client of worker processes, which are there until the ``with`` block ends.

    Several processes on this machine get one thread each, for tasks and, unless ``NUMBAOPS_NUM_THREADS`` is set, for kernels. A program
    that starts them needs ``if __name__ == "__main__":``.

    Args:
        scheduler: None for processes on this machine; else the address of a scheduler, or a client.
        workers: how many processes; by default one for each CPU that this process may use.
        memory_limit: bytes of a process, from which Dask spills to disk, pauses and at last restarts it; by default a fair share of the
            machine's memory.

    Raises:
        EvaluationError: no scheduler answers.
        InvalidValueError: ``workers`` for a scheduler that has its own, or fewer than one.
    """
    if scheduler is not None:
        if workers is not None:
            raise InvalidValueError("workers and scheduler exclude each other: a scheduler has its own workers", attribute="workers")
        if isinstance(scheduler, distributed.Client):
            yield scheduler
            return
        try:
            client = distributed.Client(scheduler)
        except (OSError, ValueError, TypeError) as error:
            raise EvaluationError(f"no scheduler answers at {scheduler!r}: {error}") from error
        with client:
            yield client
        return
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    elif isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1:
        raise InvalidValueError(f"workers is {workers!r}; allowed: an integer from 1 on", attribute="workers")
    threads = {} if workers == 1 else {"NUMBAOPS_NUM_THREADS": os.environ.get("NUMBAOPS_NUM_THREADS") or "1"}
    before = dask.config.get("distributed.nanny.pre-spawn-environ", {})  # for BLAS, Dask itself sets one thread
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": {**before, **threads}}),
        distributed.LocalCluster(
            n_workers=int(workers),
            threads_per_worker=1,
            memory_limit=memory_limit,
            dashboard_address="127.0.0.1:0",  # None is port 8787 of every address, with a warning if another cluster has it
            silence_logs=logging.CRITICAL,  # what workers log of an error, compute raises
        ) as local,
        distributed.Client(local) as client,
    ):
        client.register_plugin(_Worker())
        yield client


class _Worker(distributed.WorkerPlugin):
    """Has a worker leave Ctrl-C, which a terminal sends to all, to the process that started it and ends it; and keep freed outputs for
    the next ones only up to an eighth of its memory, which Dask would else take for a leak.
    """

    def setup(self, worker: distributed.Worker) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        most = worker.memory_manager.memory_limit
        if most is not None:  # read when the first output is made
            os.environ.setdefault("NUMBAOPS_RECYCLE_LIMIT", str(min(1 << 30, most // 8)))


def compute(arrays: Any, *, scheduler: Any = None, workers: int | None = None, progress: bool | Show | None = None) -> Any:
    """Lazy arrays as arrays of NumPy, put together in order as their chunks come.

    A chunk that is done leaves its worker at once. A worker that dies costs the tasks that it had, which others, or its successor, run
    again; a task that has seen four workers die is an error.

    Args:
        arrays: an array of Dask, or a dictionary of them as :func:`map_model` gives.
        scheduler: None for worker processes on this machine, or those of the client in whose ``with`` block this is called; the address of
            a scheduler; a client; ``"threads"``, or ``"synchronous"``, for this process alone.
        workers: how many processes on this machine; by default one for each CPU that this process may use.
        progress: whether to show on stderr how many chunks are done, by default if it is a terminal; or a function that takes their
            number and the number of all.

    Returns:
        An array, or a dictionary of them.

    Raises:
        NumbaopsError: what a task raises.
        EvaluationError: no scheduler answers, or a task has seen too many workers die.
    """
    if isinstance(arrays, da.Array):
        return compute({"": arrays}, scheduler=scheduler, workers=workers, progress=progress)[""]
    shown = _bar if progress is True or (progress is None and sys.stderr is not None and sys.stderr.isatty()) else progress or _nothing
    if isinstance(scheduler, str) and scheduler in _LOCAL:
        if workers is not None:
            raise InvalidValueError(f"workers is for processes, not for the scheduler {scheduler!r}", attribute="workers")
        with _Progress(shown):
            return dict(zip(arrays, dask.base.compute(*arrays.values(), scheduler=_LOCAL[scheduler]), strict=True))
    if scheduler is None and workers is None:
        with contextlib.suppress(ValueError):  # there is none
            scheduler = distributed.default_client()
    with cluster(scheduler, workers) as client:
        return _gathered(client, arrays, shown)


def _gathered(client: distributed.Client, arrays: Mapping[str, da.Array], show: Show) -> dict[str, np.ndarray[Any, Any]]:
    with warnings.catch_warnings():
        # Inputs of NumPy are part of the graph, which lets workers that die have them again; Dask would rather have files.
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        running = dict(zip(arrays, client.persist(list(arrays.values())), strict=True))
    places = {key: (name, key[1:]) for name, array in running.items() for key in dask.core.flatten(array.__dask_keys__())}
    futures = [future for array in running.values() for future in distributed.futures_of(array)]
    blocks = {name: np.empty(array.numblocks, object) for name, array in running.items()}
    show(0, len(futures))
    try:
        for done, future in enumerate(distributed.as_completed(futures), 1):
            name, place = places[future.key]
            blocks[name][place] = future.result()
            future.release()
            show(done, len(futures))
    except distributed.scheduler.KilledWorker as error:
        raise EvaluationError(f"a task was given up, for workers died while they ran it: {error}") from error
    finally:
        for future in futures:  # after an error, the scheduler need not go on
            future.release()
    return {name: _joined(blocks.pop(name)) for name in arrays}


def _joined(blocks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Chunks put together, first along the last axis."""
    for axis in reversed(range(blocks.ndim)):
        rows = blocks.reshape(-1, blocks.shape[-1])
        whole = np.empty(len(rows), object)
        for position, row in enumerate(rows):
            whole[position] = row[0] if len(row) == 1 else np.concatenate(list(row), axis)
        blocks = whole.reshape(blocks.shape[:-1])
    result: np.ndarray[Any, Any] = blocks[()]
    return result


class _Progress(Callback):
    """Shows how many tasks of a scheduler in this process are done."""

    def __init__(self, show: Show) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._show = show

    def _start_state(self, dsk: Any, state: Any) -> None:
        self._done, self._total = 0, sum(len(state[kind]) for kind in ("ready", "waiting"))
        self._show(0, self._total)

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        self._done += 1
        self._show(self._done, self._total)


def _nothing(done: int, total: int) -> None:
    pass


def _bar(done: int, total: int) -> None:
    sys.stderr.write(f"\r{done}/{total}" + "\n" * (done == total))
    sys.stderr.flush()
