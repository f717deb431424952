"""What the benchmarks share: sizes, threads, page touching, page-fault counts, and timing of two things side by side."""

from __future__ import annotations

import gc
import mmap
import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Thunk = Callable[[], Any]

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
