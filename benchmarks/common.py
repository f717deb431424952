"""What the benchmarks share: sizes, threads, page touching, page-fault counts, errors, and timing of things side by side."""

from __future__ import annotations

import gc
import math
import mmap
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Thunk = Callable[[], Any]

PAUSE = 0.1
"""Seconds before another's turn: the threads of OpenBLAS keep their CPUs for more than 50 ms after a product, in case another follows,
and what runs then takes 1.5 times as long.
"""

SIZES = [8, 4096, 1048576, 16777216]
"""Elements; the last is 128 MiB of 64-bit ones."""


def square(size: int) -> tuple[int, int]:
    """A shape of two nearly equal dimensions with ``size`` elements, a power of two."""
    rows = 1 << (size.bit_length() - 1) // 2
    return rows, size // rows


def set_threads(count: int) -> None:
    """Let numbaops use ``count`` threads from the next call on.

    Raises:
        NotImplementedError: this process may not run on that many CPUs; in ``setup`` asv takes it as a skip.
    """
    if count > available_cpus():
        raise NotImplementedError(f"{count} threads on {available_cpus()} CPUs")
    os.environ["NUMBAOPS_NUM_THREADS"] = str(count)


def available_cpus() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def writable(text: str) -> Path:
    """A file of the command line that can be written: an error of it before measuring, not after.

    Raises:
        OSError: it cannot.
    """
    path = Path(text)
    path.open("a").close()
    return path


def positive(text: str) -> float:
    """A finite number above 0 of the command line.

    Raises:
        ValueError: it is none.
    """
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(text)
    return number


def touch(array: npt.NDArray[Any]) -> None:
    """Write one byte in every page, which makes the system provide pages that were only promised, as for ``np.zeros``."""
    array.reshape(-1).view(np.uint8)[:: mmap.PAGESIZE] = 0


def page_faults(thunk: Thunk, runs: int = 20) -> float:
    """Minor page faults of one call, averaged over ``runs`` calls after a few that bring it into its steady state."""
    for _ in range(3):
        thunk()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(runs):
        thunk()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / runs


def peak_memory() -> int:
    """The most resident memory that this process has had, in bytes.

    On Linux from its status: ``ru_maxrss`` of a new process starts with that of the one that made it.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def memory_alone(prepare: str, run: str) -> int:
    """Bytes that the statements ``run`` take at most, beyond what ``prepare`` has left, in a fresh process."""
    code = f"{prepare}\nfrom benchmarks.common import peak_memory\nbefore = peak_memory()\n{run}\nprint(peak_memory() - before)"
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


@dataclass(frozen=True)
class Comparison:
    """Two things measured in turn.

    Attributes:
        ours: the smallest measurement of ours, e.g. seconds a call.
        rival: the smallest measurement of the rival.
        median_ratio: median over the rounds of ours / rival; far from ``ratio`` on a noisy machine.
        rounds: number of rounds.
    """

    ours: float
    rival: float
    median_ratio: float
    rounds: int

    @property
    def ratio(self) -> float:
        """Ours / rival, the ratio of the minima: noise only ever adds time."""
        return self.ours / self.rival


def interleave(ours: Callable[[], float], rival: Callable[[], float], seconds: float, least_rounds: int = 7) -> Comparison:
    """Measure both in turn for about ``seconds``, so that both see the same machine; who comes first alternates."""
    measured: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(measured) < least_rounds or time.perf_counter() < end:
        if len(measured) % 2:
            second = rival()
            first = ours()
        else:
            first = ours()
            second = rival()
        measured.append((first, second))
    ratios = [first / second for first, second in measured]
    return Comparison(min(m[0] for m in measured), min(m[1] for m in measured), statistics.median(ratios), len(measured))


def compare(ours: Thunk, rival: Thunk, seconds: float = 2.0) -> Comparison:
    """Seconds a call of two thunks, in interleaved rounds without garbage collection."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return interleave(_timer(ours), _timer(rival), seconds)
    finally:
        if enabled:
            gc.enable()


def _timer(thunk: Thunk, sample: float = 0.005) -> Callable[[], float]:
    """Seconds a call of ``thunk``, over as many calls as take ``sample`` seconds."""

    def seconds(calls: int) -> float:
        repeats = range(calls)
        start = time.perf_counter()
        for _ in repeats:
            thunk()
        return time.perf_counter() - start

    calls = 1
    while seconds(calls) < sample:
        calls *= 2
    return lambda: seconds(calls) / calls


def in_turn(thunks: Sequence[Thunk], seconds: float, rounds: int = 5, sample: float = 0.0, pause: float = PAUSE) -> list[list[float]]:
    """Times of several thunks, which take turns: in each round every one is called for its share of ``seconds``, at least once.

    Before each turn comes a pause, for the threads of the one before may still spin; the order is reversed in every other round.

    Args:
        thunks: what to call.
        seconds: for each of them, over all rounds.
        rounds: at least 1.
        sample: least seconds of one time, which is then the average over several calls.
        pause: seconds.

    Returns:
        For each thunk seconds a call, several in each round.
    """
    timers = [_timer(thunk, sample) for thunk in thunks]
    times: list[list[float]] = [[] for _ in thunks]
    order = list(range(len(thunks)))
    for _ in range(rounds):
        for position in order:
            time.sleep(pause)
            end = time.perf_counter() + seconds / rounds
            times[position].append(timers[position]())
            while time.perf_counter() < end:
                times[position].append(timers[position]())
        order.reverse()
    return times


def summary(times: Sequence[float]) -> dict[str, float]:
    """Median, least, the quartiles and the number of times, to 4 digits."""
    quartiles = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [times[0]] * 3
    figures = {"median": statistics.median(times), "least": min(times), "low": quartiles[0], "high": quartiles[2]}
    return {**{name: float(f"{value:.4g}") for name, value in figures.items()}, "rounds": len(times)}


def cpu_name() -> str:
    """The name that the system gives the CPU."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def runtime_session(model: str | bytes, threads: int, optimized: bool = True, spinning: bool = True) -> Any:
    """An ONNX Runtime session on CPU with default options but for the number of threads.

    Args:
        model: path, or a serialized model.
        threads: for its operators.
        optimized: whether graphs may be rewritten.
        spinning: whether its idle threads may keep their CPUs busy for a while.

    Raises:
        NotImplementedError: onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise NotImplementedError("onnxruntime is not installed") from error
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def relative_error(got: Any, want: Any) -> float:
    """The largest absolute error as a part of the largest magnitude in ``want``; infinity if types, shapes or non-finite values differ.

    Lists are compared item by item; text and what is no array are equal or not.
    """
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return math.inf
        return max(map(relative_error, got, want), default=0.0)
    mine, theirs = np.asarray(got), np.asarray(want)
    if mine.dtype.kind in "OU" or theirs.dtype.kind in "OU":
        return 0.0 if mine.tolist() == theirs.tolist() else math.inf
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return math.inf
    wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
    mine, theirs = mine.astype(wide), theirs.astype(wide)
    finite = np.isfinite(theirs)
    if not np.array_equal(finite, np.isfinite(mine)) or not np.array_equal(mine[~finite], theirs[~finite], equal_nan=True):
        return math.inf
    error = float(np.abs(mine[finite] - theirs[finite]).max(initial=0))
    return error / (float(np.abs(theirs[finite]).max(initial=0)) or 1.0)


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive values; not a number if there are none."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan
