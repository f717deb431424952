"""Timing things beside each other."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numbaops.runtime.jit import Later

Thunk = Callable[[], Any]

_SAMPLE = 2e-3
"""Least seconds of a time that is taken: of what is shorter, so many calls are timed together."""

_TURN = 2e-2
"""Seconds of a turn: short, so that a busy moment of the machine meets all; long against the pause."""

_PAUSE = 5e-3
"""Seconds before a turn, for the threads of the one before may still spin."""


_WARM_RUNS = 10
"""Runs after which a plan has the variant that it keeps for the shapes of its inputs."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds a call.

    Attributes:
        median: of the times.
        fastest: of the times.
        samples: how many there are.
    """

    median: float
    fastest: float
    samples: int

    @property
    def noisy(self) -> bool:
        """Whether something else took much of the time: most calls took over twice as long as the fastest."""
        return self.median > 2 * self.fastest


def settle(thunk: Thunk, seconds: float) -> None:
    """Call a thunk until it is as fast as it gets, and no further after ``seconds``: plans make variants as shapes come again."""
    end = time.perf_counter() + seconds
    for _ in range(_WARM_RUNS):
        thunk()
        if time.perf_counter() > end:
            break
    Later.wait()
    thunk()


def in_turns(thunks: Mapping[str, Thunk], seconds: float) -> dict[str, Timing]:
    """Time thunks that have run before; they take turns for about ``seconds`` in all, each for its share, and at least one call."""
    times: dict[str, list[float]] = {name: [] for name in thunks}
    left = dict.fromkeys(thunks, seconds / max(1, len(thunks)))
    calls = dict.fromkeys(thunks, 1)
    order = list(thunks)
    enabled = gc.isenabled()
    gc.disable()
    try:
        while waiting := [name for name in order if left[name] > 0 or not times[name]]:
            for name in waiting:
                time.sleep(min(_PAUSE, seconds / 10))
                left[name] -= _turn(thunks[name], calls, name, times[name])
            order.reverse()
    finally:
        if enabled:
            gc.enable()
    return {name: Timing(statistics.median(each), min(each), len(each)) for name, each in times.items()}


def _turn(thunk: Thunk, calls: dict[str, int], name: str, times: list[float]) -> float:
    """Take times for a turn; gives its seconds."""
    begin = time.perf_counter()
    while True:
        repeats = range(calls[name])
        start = time.perf_counter()
        for _ in repeats:
            thunk()
        end = time.perf_counter()
        if end - start < _SAMPLE and not times:
            calls[name] *= 2
            continue
        times.append((end - start) / calls[name])
        if end - begin >= _TURN:
            return end - begin
