"""Ctrl-C, and what else a program unwinds for, at a moment that suits.

This module loads nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))  # Windows has no SIGHUP


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals that have a handler in Python wait until the block is done; one that comes again does not."""
    came: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if came.count(number) > 1:
            handlers[number](number, frame)

    here = threading.current_thread() is threading.main_thread()  # where handlers are set, and run
    handlers = {number: handler for number in SIGNALS if here and callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


@contextlib.contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes that are started meanwhile, also those that threads made meanwhile start at any time, never see Ctrl-C.

    A terminal sends it to all of them. Windows has no such thing.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
