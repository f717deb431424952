"""Large work split over threads: every item once, errors and interrupts reach the caller, nothing runs on behind its back."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import numbaops
from numbaops.errors import InvalidValueError
from numbaops.kernels import waiting
from numbaops.runtime import threads
from numbaops.runtime.threads import split, thread_count
from processes import run_python

LARGE = 1 << 30  # a size that is split, whatever the smallest share is
HELPERS = 3  # threads that the tests use beside the caller


POOL = threads._Pool()


@pytest.fixture(params=[False, True], ids=["asleep", "awake"])
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[threads._Pool]:
    """The pool of this file, for work on four threads, whatever the machine has; it must come out of each test as it went in.

    Its threads sleep when there is nothing to do, or stay awake for a while before.
    """
    if request.param:
        waiting.wait_until(np.ones(1, np.int64), 1, 1, 0)
    monkeypatch.setattr(threads, "_wait", waiting.wait_until if request.param else lambda *arguments: False)
    monkeypatch.setattr(threads, "_pool", POOL)
    monkeypatch.setattr(threads, "thread_count", lambda: HELPERS + 1)
    yield POOL
    monkeypatch.undo()
    done = threading.Barrier(POOL.size + 1)
    POOL.offer(threads._Job(lambda start, stop: done.wait(10), [(0, 0)] * POOL.size), POOL.size)
    done.wait(10)  # each of its threads was there, so none is stuck or lost
    assert POOL.size <= HELPERS


@pytest.fixture
def new_pool(monkeypatch: pytest.MonkeyPatch) -> threads._Pool:
    """A pool that has no threads yet."""
    new = threads._Pool()
    monkeypatch.setattr(threads, "_pool", new)
    monkeypatch.setattr(threads, "thread_count", lambda: HELPERS + 1)
    return new


def ranges_of(size: int, bytes_each: int = 1, multiple: int = 1) -> list[tuple[int, int]]:
    """The ranges that work is called with, in order."""
    ranges: list[tuple[int, int]] = []
    split(lambda start, stop: ranges.append((start, stop)), size, bytes_each, multiple)
    return sorted(ranges)


# How many threads


@pytest.mark.parametrize(
    ("cpus", "chosen", "want"), [(4, None, 4), (4, "", 4), (4, "3", 3), (4, "4", 4), (4, "99", 4), (1, "2", 1), (4, "01", 1)]
)
def test_thread_count(monkeypatch: pytest.MonkeyPatch, cpus: int, chosen: str | None, want: int) -> None:
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cpus)))
    else:
        monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    if chosen is None:
        monkeypatch.delenv("NUMBAOPS_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("NUMBAOPS_NUM_THREADS", chosen)
    assert thread_count() == want


@pytest.mark.parametrize(("cpus", "want"), [(3, 3), (None, 1)])
def test_thread_count_where_there_is_no_affinity(monkeypatch: pytest.MonkeyPatch, cpus: int | None, want: int) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    monkeypatch.delenv("NUMBAOPS_NUM_THREADS", raising=False)
    assert thread_count() == want


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
def test_thread_count_follows_the_affinity() -> None:
    code = """
        import os
        cpu = min(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpu})
        from numbaops.runtime.threads import thread_count
        print(thread_count())
    """
    assert run_python(code) == "1"


@pytest.mark.parametrize("chosen", ["0", "-1", "two", "1.5", " ", " 2", "٣", "²", "1_0", "0x2"])
def test_bad_thread_count(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("NUMBAOPS_NUM_THREADS", chosen)
    with pytest.raises(InvalidValueError, match=r"NUMBAOPS_NUM_THREADS is .*; allowed: an integer from 1 on") as caught:
        thread_count()
    assert caught.value.attribute == "NUMBAOPS_NUM_THREADS"
    with pytest.raises(InvalidValueError):
        numbaops.constant_of_shape((64 << 20,), 1.5)
    assert numbaops.constant_of_shape((3,), 1.5).tolist() == [1.5] * 3  # small work does not ask


# How work is split


@pytest.mark.usefixtures("pool")
@given(
    size=st.integers(0, 5000) | st.integers(0, 1 << 40),
    bytes_each=st.integers(1, 1 << 20),
    multiple=st.sampled_from([1, 2, 3, 8, 64, 1000]),
    smallest=st.sampled_from([1, 7, 64, 4096, 1 << 21]),
    count=st.integers(1, 9),
    awake=st.sampled_from([frozenset(), frozenset({1})]),
)
def test_ranges_cover_everything_once(size: int, bytes_each: int, multiple: int, smallest: int, count: int, awake: frozenset[int]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(threads, "MINIMUM_SHARE", smallest)
        monkeypatch.setattr(threads, "thread_count", lambda: count)
        monkeypatch.setattr(threads._pool, "offer", lambda job, helpers: None)  # the caller does it all
        monkeypatch.setattr(threads._pool, "awake", awake)
        ranges = ranges_of(size, bytes_each, multiple)
    assert ranges[0][0] == 0 and ranges[-1][1] == size
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(ranges))
    assert all(start < stop for start, stop in ranges) or ranges == [(0, 0)]
    assert all(start % multiple == 0 for start, _ in ranges)
    assert len(ranges) <= 4 * count
    if size * bytes_each < 2 * (min(smallest, threads.AWAKE_SHARE) if awake else smallest) or count == 1:
        assert len(ranges) == 1
    assert all(stop - start <= ranges[0][1] for start, stop in ranges)


@pytest.mark.parametrize(("awake", "late"), [(False, threads.MINIMUM_SHARE // 2), (True, threads.AWAKE_SHARE)], ids=["asleep", "awake"])
def test_the_first_share_is_larger_by_what_others_come_later(new_pool: threads._Pool, awake: bool, late: int) -> None:
    new_pool.awake.update({1} if awake else ())
    (_, first), (start, stop), *rest = ranges_of(LARGE)
    assert first - (stop - start) == late
    assert len(rest) == 4 * (HELPERS + 1) - 2


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("multiple", [1, 64])
def test_every_item_is_worked_on_once(monkeypatch: pytest.MonkeyPatch, multiple: int) -> None:
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 16)
    for size in (*range(140), 999, 1000, 1001, 4096):
        done = bytearray(size)

        def work(start: int, stop: int, done: bytearray = done) -> None:
            for item in range(start, stop):
                done[item] += 1

        split(work, size, multiple=multiple)
        assert done == b"\1" * size


def test_small_work_stays_on_the_caller(new_pool: threads._Pool) -> None:
    def work(start: int, stop: int) -> None:
        assert (start, stop) == (0, 2 * threads.MINIMUM_SHARE - 1)
        assert threading.current_thread() is caller

    caller = threading.current_thread()
    split(work, 2 * threads.MINIMUM_SHARE - 1)
    assert new_pool.size == 0


def test_work_that_is_not_worth_waking_anybody_goes_to_those_awake(new_pool: threads._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 2 * threads.AWAKE_SHARE
    assert ranges_of(size) == [(0, size)]
    new_pool.awake.add(1)
    assert len(ranges_of(size)) == 2
    assert ranges_of(size - 1) == [(0, size - 1)]
    assert len(ranges_of(LARGE)) == 4 * (HELPERS + 1)


def test_helpers_are_awake_for_a_while(new_pool: threads._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def wait(number: np.ndarray, least: int, rounds: int, later: int) -> bool:
        if number is new_pool.offers:
            looking.set()
            go_on.wait(10)
        return bool(number[0] >= least)

    monkeypatch.setattr(threads, "_wait", wait)
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    split(lambda start, stop: None, LARGE)
    assert looking.wait(10)
    for _ in range(1000):
        if len(new_pool.awake) == 1:
            break
        time.sleep(0.01)
    assert len(new_pool.awake) == 1
    before = int(new_pool.offers[0])
    assert len(ranges_of(2 * threads.AWAKE_SHARE)) == 2
    assert int(new_pool.offers[0]) == before + 1
    monkeypatch.setattr(threads, "_wait", lambda *arguments: False)
    go_on.set()
    for _ in range(1000):
        if not new_pool.awake and new_pool.jobs.empty():
            break
        time.sleep(0.01)
    assert not new_pool.awake


def test_a_wait() -> None:
    number = np.zeros(1, np.int64)
    assert waiting.wait_until(number, 0, 1, 0)
    assert waiting.wait_until(number, -1, 1, 5)
    assert not waiting.wait_until(number, 1, 10, 5)


@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="without the JIT nobody stays awake")
def test_a_wait_ends_when_another_thread_writes() -> None:
    number, begun = np.zeros(1, np.int64), threading.Event()
    answers: list[bool] = []
    waiting.wait_until(number, 0, 1, 0)

    def wait() -> None:
        begun.set()
        answers.append(waiting.wait_until(number, 3, 1 << 40, 10))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    begun.wait(10)
    time.sleep(0.05)
    number[0] = 2
    time.sleep(0.05)
    assert not answers
    number[0] = 3
    thread.join(10)
    assert answers == [True]


@pytest.mark.parametrize("loaded", [False, True], ids=["without Numba", "with Numba"])
def test_waits_are_for_programs_that_have_loaded_numba(loaded: bool) -> None:
    code = f"""
        import sys
        from numbaops.runtime import threads
        if {loaded}:
            import numbaops.kernels.filling
        threads.thread_count = lambda: 3
        threads.split(lambda start, stop: None, 1 << 30)
        print("numba" in sys.modules, threads._wait is not None)
    """
    assert run_python(code) == f"{loaded} {loaded}"


def test_one_thread_works_alone(new_pool: threads._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 1)
    assert ranges_of(LARGE) == [(0, LARGE)]
    assert new_pool.size == 0


@pytest.mark.usefixtures("pool")
def test_all_threads_take_part() -> None:
    together = threading.Barrier(HELPERS + 1)
    seen: set[int] = set()

    def work(start: int, stop: int) -> None:
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            together.wait(10)  # only all of them together get past this

    split(work, LARGE)
    assert len(seen) == HELPERS + 1


def test_work_goes_on_without_the_threads_that_cannot_start(new_pool: threads._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    ranges = ranges_of(LARGE)
    assert (ranges[0][0], ranges[-1][1], len(ranges)) == (0, LARGE, 4 * (HELPERS + 1))
    assert new_pool.size == 0


def test_threads_are_made_once_and_do_not_keep_a_process_alive(pool: threads._Pool) -> None:
    for _ in range(300):
        split(lambda start, stop: None, LARGE)
    assert pool.size == HELPERS
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("numbaops-")]
    assert mine and all(thread.daemon for thread in mine)


def test_nothing_starts_before_the_first_large_work() -> None:
    code = """
        import threading
        import numpy as np
        import numbaops
        from numbaops import kernels
        kernels.fill(np.zeros(10), 1.0)
        numbaops.constant_of_shape((1000, 10), 1.5)
        before = threading.active_count()
        numbaops.constant_of_shape((20 << 20,), 1.5)
        print(before, threading.active_count())
    """
    cpus = thread_count()
    assert run_python(code) == f"1 {cpus}"
    assert run_python(code, NUMBAOPS_NUM_THREADS="1") == "1 1"


def test_finished_work_is_let_go(pool: threads._Pool) -> None:
    """Whatever the work refers to, e.g. its output, dies with the last reference of the caller, even if a helper was late."""

    class Work:
        def __call__(self, start: int, stop: int) -> None:
            pass

    hold = threading.Event()
    blocker = threads._Job(lambda start, stop: hold.wait(10), [(0, 0)] * HELPERS)
    pool.offer(blocker, HELPERS)
    try:
        work = Work()
        gone = weakref.ref(work)
        split(work, LARGE)
        del work
        assert gone() is None
    finally:
        hold.set()


# Errors


class Boom(Exception):
    pass


def raising(on_caller: bool, kind: type[BaseException]) -> tuple[Callable[[int, int], None], list[int]]:
    """Work that fails in its second share on the caller or on another thread, and the starts of the shares that ran to the end."""
    caller, finished = threading.get_ident(), []
    failed, other = threading.Event(), threading.Event()

    def work(start: int, stop: int) -> None:
        mine = threading.get_ident() == caller
        if mine != on_caller:
            other.set()
            failed.wait(10)  # the other side is busy while this one fails
        elif not failed.is_set():
            assert other.wait(10)
            failed.set()
            raise kind("in a share")
        finished.append(start)

    return work, finished


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("kind", [Boom, MemoryError, SystemExit, KeyboardInterrupt], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("on_caller", [True, False], ids=["on the caller", "on a helper"])
def test_error_in_a_share_reaches_the_caller(on_caller: bool, kind: type[BaseException]) -> None:
    for _ in range(20):
        work, finished = raising(on_caller, kind)
        with pytest.raises(kind, match="in a share"):
            split(work, LARGE)
        count = len(finished)
        assert count <= HELPERS + 1  # the rest was given up
        time.sleep(0.001)
        assert len(finished) == count  # nothing runs on
    ranges = ranges_of(LARGE)
    assert (ranges[0][0], ranges[-1][1]) == (0, LARGE)


@pytest.mark.usefixtures("pool")
def test_errors_in_all_shares_give_one() -> None:
    together = threading.Barrier(HELPERS + 1)

    def work(start: int, stop: int) -> None:
        together.wait(10)
        raise Boom(start)

    with pytest.raises(Boom):
        split(work, LARGE)
    assert ranges_of(LARGE)[-1][1] == LARGE


def test_error_in_work_that_is_not_split() -> None:
    with pytest.raises(ZeroDivisionError):
        split(lambda start, stop: 1 // start, 10)


# Interrupts


def test_interrupt_while_work_is_handed_out(pool: threads._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes just after the helpers got the job: they must have left before the caller does."""
    offer, running, ended = pool.offer, threading.Event(), []

    def interrupted(job: threads._Job, helpers: int) -> None:
        offer(job, helpers)
        assert running.wait(10)
        raise KeyboardInterrupt

    def work(start: int, stop: int) -> None:
        running.set()
        time.sleep(0.05)
        ended.append(start)

    monkeypatch.setattr(pool, "offer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        split(work, LARGE)
    count = len(ended)
    time.sleep(0.15)
    assert len(ended) == count


@pytest.mark.usefixtures("pool")
def test_interrupts_while_waiting_for_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is interrupted, the caller leaves only when the helpers have left."""
    caller, writing, times = threading.get_ident(), threading.Event(), []
    wait, ended = threads._Job.wait, []

    def interrupted(job: threads._Job) -> None:
        times.append(1)
        if len(times) <= 3:
            raise KeyboardInterrupt
        wait(job)

    def work(start: int, stop: int) -> None:
        if threading.get_ident() == caller:
            assert writing.wait(10)
        else:
            writing.set()
            time.sleep(0.1)
            ended.append(start)

    monkeypatch.setattr(threads._Job, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        split(work, LARGE)
    count = len(ended)
    assert count >= 1
    time.sleep(0.15)
    assert len(ended) == count


@pytest.mark.skipif(sys.platform == "win32", reason="no such timers there")
def test_bursts_of_signals_in_the_middle_of_work() -> None:
    """Errors of handlers 0.1 ms apart: the caller leaves with one of them, but only when nobody writes any more."""
    code = f"""
        import random, signal, threading, time
        from numbaops.runtime import threads
        threads.thread_count = lambda: {HELPERS + 1}
        left = [0]

        def interrupt(number, frame):
            while frame is not None and frame.f_code is not threads.split.__code__:
                frame = frame.f_back
            if frame is not None and left[0] > 0:
                left[0] -= 1
                raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        writing = set()

        def work(start, stop):
            if threading.current_thread() is threading.main_thread():
                time.sleep(0.0005)
            else:
                writing.add(start)
                time.sleep(0.002)
                writing.discard(start)

        interrupted = late = 0
        for number in range(300):
            left[0] = 2 + number % 5
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 3e-3), 1e-4)
                threads.split(work, 1 << 30)
                left[0] = 0
            except KeyboardInterrupt:
                late += bool(writing)
                left[0] = 0
                interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            time.sleep(0.003)
            writing.clear()
        print(interrupted > 20, late)
    """
    assert run_python(code) == "True 0"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_ctrl_c_in_the_middle_of_work() -> None:
    """A real SIGINT again and again, at all moments: no thread writes afterwards, and the pool goes on working."""
    code = f"""
        import os, signal, threading, time
        import numpy as np
        from numbaops import dense
        from numbaops.runtime import threads
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
        threads.thread_count = lambda: {HELPERS + 1}
        out = np.zeros(24 << 20, np.uint8)
        one, two = (dense.Element(np.array(value, np.uint8)) for value in (1, 2))
        dense.fill(out, one)
        started = time.perf_counter()
        dense.fill(out, one)
        took = time.perf_counter() - started
        interrupted = 0
        for number in range(60):
            timer = threading.Timer(took * (number % 20) / 10, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                for _ in range(50): dense.fill(out, two)
                timer.join()
            except KeyboardInterrupt:
                interrupted += 1
                out[:] = 0
                time.sleep(0.002)
                assert not out.any(), "a thread still writes"
            timer.join()
        assert interrupted > 30, interrupted
        dense.fill(out, one)
        assert (out == 1).all()
        print(threading.active_count() <= {HELPERS + 2})
    """
    assert run_python(code) == "True"


# Several callers


@pytest.mark.usefixtures("pool")
def test_eight_threads_split_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 64)
    barrier, wrong = threading.Barrier(8), []

    def caller(number: int) -> None:
        barrier.wait(10)
        for round_ in range(60):
            size = 1000 + 10 * number + round_
            done = bytearray(size)

            def work(start: int, stop: int, done: bytearray = done, size: int = size) -> None:
                if number == 7 and start == 0:
                    raise Boom
                done[start:stop] = bytes(value + number + 1 for value in done[start:stop])

            try:
                split(work, size)
                if number == 7:
                    wrong.append("an error was lost")
            except Boom:
                if number != 7:
                    wrong.append(f"caller {number} got the error of another")
                continue
            if done != bytes([number + 1]) * size:
                wrong.append(f"caller {number}, round {round_}")

    callers = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(60)
    assert not wrong


@pytest.mark.usefixtures("pool")
def test_work_may_split_its_own_work() -> None:
    total, lock = [0], threading.Lock()

    def inner(start: int, stop: int) -> None:
        with lock:
            total[0] += stop - start

    split(lambda start, stop: split(inner, LARGE), LARGE)
    assert total[0] == LARGE * 4 * (HELPERS + 1)


def test_many_jobs_leave_nothing_behind(pool: threads._Pool) -> None:
    for _ in range(2000):
        split(lambda start, stop: None, LARGE)
    assert pool.size == HELPERS
    for _ in range(500):
        if pool.jobs.empty():
            break
        time.sleep(0.01)
    assert pool.jobs.empty()
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is threads._Job]


# Fork


def test_shares_of_helpers_that_a_fork_has_lost_are_made_up(new_pool: threads._Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the child of a fork just after a helper took the last share."""

    def lose_one(job: threads._Job, helpers: int) -> None:
        job.home = new_pool.jobs
        job.joined.append(None)
        job.shares.pop()
        new_pool.reset()

    monkeypatch.setattr(new_pool, "offer", lose_one)
    ranges = ranges_of(LARGE)
    assert (ranges[0][0], ranges[-1][1], len(ranges)) == (0, LARGE, 4 * (HELPERS + 1))
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(ranges))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_by_a_signal_handler_in_the_middle_of_work() -> None:
    """The child goes on with the work, without the helpers that its parent has; or leaves."""
    code = f"""
        import os, random, signal, sys, time, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        import numpy as np
        from numbaops import dense
        from numbaops.runtime import threads
        threads.thread_count = lambda: {HELPERS + 1}
        out = np.zeros(64 << 20, np.uint8)
        dense.fill(out, dense.Element(np.array(1, np.uint8)))
        children = []

        def fork(number, frame):
            child = os.fork()
            if child == 0:
                children.clear()
                children.append(0)
                signal.setitimer(signal.ITIMER_REAL, 0)
                if leaves: sys.exit(7)
            else:
                children.append(child)

        signal.signal(signal.SIGALRM, fork)
        for number in range(40):
            leaves = number % 2
            value = 0
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 4e-3))
            deadline = time.perf_counter() + 10
            while len(children) == number and time.perf_counter() < deadline:
                value = value % 250 + 1  # another one each time: a share that is left out shows
                dense.fill(out, dense.Element(np.array(value, np.uint8)))
                if children == [0]: os._exit(0 if (out == value).all() else 1)
        codes = []
        for number, child in enumerate(children):
            deadline = time.perf_counter() + 20
            done, status = os.waitpid(child, os.WNOHANG)
            while not done and time.perf_counter() < deadline:
                time.sleep(0.01)
                done, status = os.waitpid(child, os.WNOHANG)
            if not done: os.kill(child, signal.SIGKILL)
            codes.append(os.waitstatus_to_exitcode(status) if done else "hangs")
        print(sorted(set(codes[::2])), sorted(set(codes[1::2])))
    """
    assert run_python(code) == "[0] [7]"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_works() -> None:
    code = """
        import os, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on warns of a fork among threads
        import numpy as np
        from numbaops import dense
        from numbaops.runtime import threads
        threads.thread_count = lambda: 3
        out = np.zeros(24 << 20, np.uint8)
        dense.fill(out, dense.Element(np.array(1, np.uint8)))
        stop = threading.Event()

        def busy():
            mine = np.zeros(8 << 20, np.uint8)
            while not stop.is_set():
                dense.fill(mine, dense.Element(np.array(7, np.uint8)))

        other = threading.Thread(target=busy)
        other.start()
        children = []
        for _ in range(10):  # while another thread works, and thus the pool is in any state
            child = os.fork()
            if child == 0:
                assert threads._pool.size == 0
                dense.fill(out, dense.Element(np.array(2, np.uint8)))
                os._exit(0 if (out == 2).all() and threads._pool.size == 2 else 1)
            children.append(child)
        stop.set()
        other.join()
        statuses = [os.waitpid(child, 0)[1] for child in children]
        dense.fill(out, dense.Element(np.array(3, np.uint8)))
        print(statuses == [0] * 10 and (out == 3).all())
    """
    assert run_python(code) == "True"


def test_process_ends_while_work_runs() -> None:
    code = """
        import threading, time
        import numpy as np
        from numbaops import dense
        from numbaops.runtime import threads
        threads.thread_count = lambda: 3
        out = np.zeros(64 << 20, np.uint8)
        element = dense.Element(np.array(1, np.uint8))
        dense.fill(out, element)
        def work():
            while True: dense.fill(out, element)
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.1)
        print("done")
    """
    assert run_python(code) == "done"
