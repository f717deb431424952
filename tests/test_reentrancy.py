"""Large outputs made from where Python may run code at any moment: finalizers, signal handlers, children of a busy process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

PRELUDE = "import gc, os, signal, threading, time\nimport numpy as np\nimport numbaops\n"


def run(program: str, seconds: float = 120, **environment: str) -> str:
    """What a program prints; it must end by itself, with nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(program)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_a_finalizer_that_makes_large_outputs() -> None:
    program = """
        made = 0
        class Cycle:
            def __init__(self):
                self.me = self
            def __del__(self):
                global made
                made += 1
                assert (numbaops.constant_of_shape((3 << 20,), 2.0) == 2).all()
        ones = numbaops.operator("ConstantOfShape", value=1.0)
        ones((3 << 20,))
        gc.set_threshold(20, 2, 2)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            Cycle()
            assert (ones((3 << 20,)) == 1).all()
            keep = [[] for _ in range(7)]
        gc.set_threshold(700, 10, 10)
        print(made > 3)
    """
    assert run(program, NUMBAOPS_NUM_THREADS="2") == "True"


@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="needs interval timers")
def test_a_signal_handler_that_makes_large_outputs() -> None:
    program = """
        made = 0
        def handler(*_):
            global made
            made += 1
            numbaops.memory.stats()
            numbaops.constant_of_shape((3 << 20,), 2.0)
            signal.setitimer(signal.ITIMER_REAL, 0.005)
        ones = numbaops.operator("ConstantOfShape", value=1.0)
        ones((3 << 20,))
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            assert (ones((3 << 20,)) == 1).all()
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        print(made > 10)
    """
    assert run(program, NUMBAOPS_NUM_THREADS="2") == "True"


@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="needs interval timers")
def test_an_exception_from_a_signal_handler_leaves_when_nobody_writes_any_more() -> None:
    program = """
        from numbaops.runtime import threads
        class Expired(Exception):
            pass
        def handler(*_):
            raise Expired
        signal.signal(signal.SIGALRM, handler)
        main, ended = threading.get_ident(), []
        def work(start, stop):
            time.sleep(0.05 if threading.get_ident() == main else 0.4)
            ended.append((start, time.monotonic()))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            threads.split(work, 8 << 20, 1, 1)
        except Expired:
            left = time.monotonic()
            time.sleep(0.6)
            print(all(at <= left for _, at in ended))
    """
    assert run(program, NUMBAOPS_NUM_THREADS="2") == "True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_another_thread_compiles(tmp_path: object) -> None:
    program = """
        import warnings
        from numbaops import kernels
        kernels.fill  # Numba is loaded; nothing is compiled yet
        thread = threading.Thread(target=lambda: [kernels.fill(np.zeros(9, dtype), 1) for dtype in ("f4", "f8", "i4", "i8", "u2")])
        thread.start()
        time.sleep(0.1)
        warnings.simplefilter("ignore")  # Python warns of any fork beside threads
        child = os.fork()
        if not child:
            signal.alarm(60)
            os._exit(0 if (numbaops.constant_of_shape((1 << 20,), 3) == 3).all() else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        thread.join()
    """
    assert run(program, NUMBAOPS_CACHE_DIR=str(tmp_path)) == "0"
