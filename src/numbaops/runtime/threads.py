"""Large work split over a small shared pool of threads.

Measured on 2 cores: handing a share to this pool costs 14 us, to ``ThreadPoolExecutor`` 45-72 us. Numba's own threading
layers abort when two threads call a parallel kernel at once, so kernels are plain and the split happens here.

To wake up takes a thread 25 to 40 us on a virtual machine. Who waits for helpers therefore stays awake for a while, and so does a
helper after its work: of operators that follow each other it then takes its share at once, also of those that are not worth waking it.
Both wait in a kernel, without the GIL, once Numba is loaded; before that they sleep.
"""

from __future__ import annotations

import collections
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.runtime.settings import thread_setting

MINIMUM_SHARE = 1 << 22
"""Bytes below which a share costs more to hand over than it saves: 14 us, and 40 where the other core is busy."""

AWAKE_SHARE = 1 << 19
"""The same where a helper is awake: it begins 6 us later."""

ROUNDS = 8000
"""Rounds of :func:`~numbaops.kernels.waiting.wait_until` that threads stay awake: 0.2 ms on Zen 4."""

LATER = 200
"""Rounds between the news of work and asking for the GIL: by then the caller has given it away for its own share, and nobody sleeps."""


def thread_count() -> int:
    """Threads that large work may use: the CPUs this process may run on, or fewer by ``NUMBAOPS_NUM_THREADS``.

    Raises:
        InvalidValueError: ``NUMBAOPS_NUM_THREADS`` is not an integer from 1 on.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus, thread_setting("NUMBAOPS_NUM_THREADS", lambda: cpus))


class _Job:
    """Shares of one piece of work; whoever is free takes the next.

    There is no lock here or in the pool that a finalizer or a signal handler, which may run anywhere and make large outputs
    too, could find held by its own thread: only operations of deques and queues that cannot be interrupted.
    """

    __slots__ = ("done", "error", "every", "finished", "home", "joined", "left", "shares", "wake", "work")

    def __init__(self, work: Callable[[int, int], object], shares: list[tuple[int, int]]) -> None:
        self.work = work
        self.every, self.shares = shares, collections.deque(shares)
        self.finished: collections.deque[tuple[int, int]] = collections.deque()
        self.home: queue.SimpleQueue[_Job] | None = None  # where helpers find it; in a forked child nobody looks there
        self.joined: collections.deque[None] = collections.deque()  # one item for each helper that came,
        self.left: collections.deque[None] = collections.deque()  # and for each that went
        self.done = np.zeros(1, np.int64)  # how many went
        self.wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.error: BaseException | None = None

    def run(self) -> None:
        while True:
            try:
                start, stop = self.shares.popleft()
            except IndexError:
                return
            self.work(start, stop)
            self.finished.append((start, stop))

    def help(self) -> None:
        """What a pool thread does; it never raises."""
        self.joined.append(None)
        try:
            self.run()
        except BaseException as error:
            self.error = error
            self.shares.clear()
        finally:
            self.left.append(None)
            self.done[0] = len(self.left)
            self.wake.put(None)

    def wait(self) -> None:
        """Wait for the helpers that may have taken a share; those that come now find none. In a forked child there are none."""
        self.shares.clear()
        # Read in this order, equal numbers say that all who had come by now have gone, also those who came too late for a share.
        while len(self.left) < len(self.joined) and self.home is _pool.jobs:
            if not _stay_awake(self.done, len(self.joined), LATER):
                self.wake.get()

    def make_up(self) -> None:
        """Work on the shares that helpers had taken when a signal handler or finalizer forked: here, in the child, they are lost."""
        for share in set(self.every) - set(self.finished):
            self.work(*share)


class _Pool:
    """Daemon threads that wait for jobs; made on first use, made anew in a forked child."""

    def __init__(self) -> None:
        self.active: set[_Job] = set()
        self.reset()

    def reset(self) -> None:
        waiting, self.active = self.active, set()
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        for job in waiting:  # for whose helpers this thread perhaps waits, while it runs what has forked
            job.wake.put(None)
        self.growing = threading.Lock()
        self.size = 0
        self.offers = np.zeros(1, np.int64)  # how many there were; two at once may count as one, which a helper notices later
        self.awake: set[int] = set()  # identifiers of the threads that would take a share at once

    def offer(self, job: _Job, helpers: int) -> None:
        job.home = self.jobs
        if _wait is None:
            _find_wait()
        if self.size < helpers and self.growing.acquire(blocking=False):  # else somebody sees to it, this thread perhaps
            try:
                while self.size < helpers:
                    threading.Thread(target=self._serve, args=(self.jobs, self.offers), name=f"numbaops-{self.size}", daemon=True).start()
                    self.size += 1
            except RuntimeError:  # no more threads to be had, or the interpreter is ending: the caller does it all
                pass
            finally:
                self.growing.release()
        for _ in range(min(helpers, self.size)):
            job.home.put(job)
        self.offers[0] += 1

    def _serve(self, jobs: queue.SimpleQueue[_Job], offers: Any) -> None:
        me = threading.get_ident()
        while True:
            seen = int(offers[0])
            if jobs.empty():
                self.awake.add(me)
                _stay_awake(offers, seen + 1, LATER)
                self.awake.discard(me)
            jobs.get().help()


_wait: Callable[[Any, int, int, int], bool] | None = None
"""The kernel of short waits, once Numba is loaded: for this alone that would take 0.4 s."""


def _stay_awake(number: Any, least: int, later: int = 0) -> bool:
    """Wait for a short time until a number is at least ``least``; whether it came."""
    return _wait is not None and _wait(number, least, ROUNDS, later)


def _find_wait() -> None:
    global _wait
    if "numbaops.runtime.jit" in sys.modules:
        try:
            from numbaops.kernels import waiting
        except ImportError:  # this is a signal handler or finalizer, and its thread is just importing that
            return
        found = getattr(waiting, "wait_until", None)  # or just this
        if found is not None:
            found(np.ones(1, np.int64), 1, 1, 0)  # compiled here, not by a helper
            _wait = found


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)


def split(work: Callable[[int, int], object], size: int, bytes_each: int = 1, multiple: int = 1, shares: int = 4) -> None:
    """Call ``work(start, stop)`` over ranges that cover ``range(size)``, on this thread and on others when it is worth it.

    Args:
        work: called with disjoint ranges, from several threads at once; it should release the GIL.
        size: number of items.
        bytes_each: bytes that one item moves; decides whether splitting pays.
        multiple: ranges start at multiples of this, e.g. the items of a cache line.
        shares: shares for each thread, at most; they even out a thread that the system took away from us, and work that is not even.
    """
    total = size * bytes_each
    least, late = MINIMUM_SHARE, MINIMUM_SHARE // 2
    if _pool.awake:
        least = late = min(AWAKE_SHARE, MINIMUM_SHARE)
    threads = thread_count() if total >= 2 * least else 1
    if threads == 1:
        work(0, size)
        return
    count = min(shares * threads, max(2, total // MINIMUM_SHARE))
    if threads < count < 2 * threads:  # with one share more than threads, all but one would wait for it
        count = threads
    # the first share, the caller's, is larger by what the others come later
    head = -(-size * late // (total * multiple)) * multiple
    step = max(1, -(-(size - head) // (count * multiple)) * multiple)
    starts = [0, *range(head + step, size, step)]
    if len(starts) == 1:
        work(0, size)
        return
    job = _Job(work, list(zip(starts, [*starts[1:], size], strict=True)))
    _pool.active.add(job)
    failure: BaseException | None = None
    try:
        _pool.offer(job, min(threads, len(starts)) - 1)
        job.run()
    except BaseException as error:
        failure = error
    try:
        failure = _see_out(job, failure)
    except BaseException as error:  # before it began
        failure = failure or error
        try:
            failure = _see_out(job, failure)
        except BaseException:
            failure = _see_out(job, failure)
    _pool.active.discard(job)
    if failure is None and job.home is not _pool.jobs:
        job.make_up()
    failure = failure or job.error
    del job.work, work  # the job may stay in the queue for a while, what it worked on must not
    if failure is not None:
        try:
            raise failure
        finally:
            del failure, job  # no cycle of traceback and frame that would keep outputs alive


def _see_out(job: _Job, failure: BaseException | None) -> BaseException | None:
    """Leave only when no helper writes any more, however often a signal handler raises, e.g. KeyboardInterrupt; returns the first error.

    Python looks for signals whenever a function begins or a loop goes back, and an error just there, between ``except`` and the next
    ``try``, would leave. There is no loop, and it takes four such errors one after the other, each within a microsecond of the last.
    """
    try:
        job.wait()
        return failure
    except BaseException as error:
        failure = failure or error
        try:
            return _see_out(job, failure)
        except BaseException:
            try:
                return _see_out(job, failure)
            except BaseException:
                try:
                    return _see_out(job, failure)
                except BaseException:
                    return _see_out(job, failure)
