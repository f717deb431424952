"""Large work split over a small shared pool of threads.

Measured on 2 cores: handing a share to this pool costs 14 us, to ``ThreadPoolExecutor`` 45-72 us. Numba's own threading
layers abort when two threads call a parallel kernel at once, so kernels are plain and the split happens here.
"""

from __future__ import annotations

import collections
import os
import queue
import threading
from collections.abc import Callable

from numbaops.errors import InvalidValueError

MINIMUM_SHARE = 1 << 21
"""Bytes below which a share costs more to hand over (14 to 25 us) than it saves."""


def thread_count() -> int:
    """Threads that large work may use: the CPUs this process may run on, or fewer by ``NUMBAOPS_NUM_THREADS``.

    Raises:
        InvalidValueError: ``NUMBAOPS_NUM_THREADS`` is not an integer from 1 on.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    chosen = os.environ.get("NUMBAOPS_NUM_THREADS")
    if not chosen:
        return cpus
    if not chosen.isascii() or not chosen.isdigit() or int(chosen) < 1:
        raise InvalidValueError(f"NUMBAOPS_NUM_THREADS is {chosen!r}; allowed: an integer from 1 on", attribute="NUMBAOPS_NUM_THREADS")
    return min(cpus, int(chosen))


class _Job:
    """Shares of one piece of work; whoever is free takes the next."""

    __slots__ = ("active", "closed", "error", "finished", "lock", "shares", "work")

    def __init__(self, work: Callable[[int, int], object], shares: list[tuple[int, int]]) -> None:
        self.work = work
        self.shares = collections.deque(shares)
        self.lock = threading.Lock()
        self.finished = threading.Lock()  # held while helpers that joined have not left
        self.finished.acquire()
        self.active = 0
        self.closed = False
        self.error: BaseException | None = None

    def run(self) -> None:
        while True:
            try:
                start, stop = self.shares.popleft()
            except IndexError:
                return
            self.work(start, stop)

    def help(self) -> None:
        """What a pool thread does; it never raises."""
        with self.lock:
            if self.closed:
                return
            self.active += 1
        try:
            self.run()
        except BaseException as error:
            self.error = error
            self.shares.clear()
        finally:
            with self.lock:
                self.active -= 1
                if self.closed and self.active == 0:
                    self.finished.release()

    def wait(self) -> None:
        """Let nobody join any more and wait for those who did."""
        with self.lock:
            if not self.closed:
                self.closed = True
                if self.active == 0:
                    return
            elif self.active == 0:
                return
        self.finished.acquire()


class _Pool:
    """Daemon threads that wait for jobs; made on first use, made anew in a forked child."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.size = 0

    def offer(self, job: _Job, helpers: int) -> None:
        with self.lock:
            while self.size < helpers:
                try:
                    threading.Thread(target=self._serve, args=(self.jobs,), name=f"numbaops-{self.size}", daemon=True).start()
                except RuntimeError:  # no more threads to be had, or the interpreter is ending: the caller does it all
                    break
                self.size += 1
            helpers = min(helpers, self.size)
        for _ in range(helpers):
            self.jobs.put(job)

    @staticmethod
    def _serve(jobs: queue.SimpleQueue[_Job]) -> None:
        while True:
            jobs.get().help()


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)


def split(work: Callable[[int, int], object], size: int, bytes_each: int = 1, multiple: int = 1) -> None:
    """Call ``work(start, stop)`` over ranges that cover ``range(size)``, on this thread and on others when it is worth it.

    Args:
        work: called with disjoint ranges, from several threads at once; it should release the GIL.
        size: number of items.
        bytes_each: bytes that one item moves; decides whether splitting pays.
        multiple: ranges start at multiples of this, e.g. the items of a cache line.
    """
    threads = thread_count() if size * bytes_each >= 2 * MINIMUM_SHARE else 1
    if threads == 1:
        work(0, size)
        return
    # Four shares a thread even out a thread that the system took away from us.
    count = min(4 * threads, size * bytes_each // MINIMUM_SHARE)
    step = -(-size // (count * multiple)) * multiple
    job = _Job(work, [(start, min(start + step, size)) for start in range(0, size, step)])
    _pool.offer(job, threads - 1)
    interrupt: KeyboardInterrupt | None = None
    try:
        job.run()
    finally:
        job.shares.clear()
        while True:
            try:
                job.wait()
                break
            except KeyboardInterrupt as error:  # helpers still write: leave only when they have left
                interrupt = error
    if interrupt is not None:
        raise interrupt
    if job.error is not None:
        raise job.error
