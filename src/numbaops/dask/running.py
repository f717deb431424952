"""Where chunks and batches are computed: in this process, in processes on this machine, or on a scheduler's workers."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import resource_tracker
from typing import Any

import dask
import dask.array as da
import dask.local
import dask.threaded
import distributed
import numpy as np
from dask.callbacks import Callback
from distributed.protocol.numpy import serialize_numpy_ndarray
from distributed.protocol.serialize import dask_serialize

from numbaops.errors import EvaluationError, InvalidValueError
from numbaops.interrupts import held, kept_from_children

Show = Callable[[int, int], None]

_LOCAL = {"threads": dask.threaded.get, "synchronous": dask.local.get_sync}  # by name, Dask warns of them beside a client


@dask_serialize.register(np.ndarray)  # type: ignore[untyped-decorator]
def _serialized(array: np.ndarray[Any, Any], context: Any = None) -> Any:
    """An array for another process. distributed sends types of kind "f" by name, which for float8e5m2 is the ``<f1`` of nobody."""
    if array.dtype.kind != "f" or array.dtype.type.__module__ == "numpy":
        return serialize_numpy_ndarray(array, context)
    header, frames = serialize_numpy_ndarray(array.view(f"V{array.dtype.itemsize}"), context)
    return {**header, "dtype": (1, pickle.dumps(array.dtype))}, frames


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
    stack = contextlib.ExitStack()
    try:
        with held():  # a cluster that is half there cannot be closed
            stack.enter_context(dask.config.set({"distributed.nanny.pre-spawn-environ": {**before, **threads}}))
            if os.name == "posix":
                resource_tracker.ensure_running()  # which lets Ctrl-C through again in the thread that starts it
            with kept_from_children():  # Ctrl-C is for this process, which ends them
                local = distributed.LocalCluster(
                    n_workers=int(workers),
                    threads_per_worker=1,
                    memory_limit=memory_limit,
                    dashboard_address="127.0.0.1:0",  # None is port 8787 of every address, with a warning if another cluster has it
                    silence_logs=logging.CRITICAL,  # what workers log of an error, compute raises
                )
            stack.enter_context(local)
            client = stack.enter_context(distributed.Client(local))
            client.register_plugin(_Worker())
        yield client
    finally:
        with held():
            stack.close()


class _Worker(distributed.WorkerPlugin):
    """Has a worker keep freed outputs for the next ones only up to an eighth of its memory, which Dask would else take for a leak; and
    leave Ctrl-C to the process that started it, where it was not kept from it before.
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
