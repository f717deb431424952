"""The ``numbaops`` command.

This module loads nothing but the standard library, so that a missing ``cli`` extra and an early Ctrl-C end in one clear line
too. :mod:`numbaops.cli.app` puts the commands of :mod:`numbaops.cli.commands` together.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numbaops.errors import NumbaopsError
from numbaops.interrupts import SIGNALS, held

EXTRA_MISSING = 'the numbaops command needs its "cli" extra: pip install "numbaops[cli]", or ".[cli]" in a checkout'

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What moves the cursor, changes colours, breaks a line or turns the direction of writing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what follows the program's name; None takes them from ``sys.argv``.

    Returns:
        The exit status: 0, 1 after an error, 130 after Ctrl-C, 128 and its number after another signal, or a command's own.
    """

    def command() -> int:
        try:
            with held():  # Python loses an interrupt that meets it at some places of an import
                from numbaops.cli.app import launch

            return launch(sys.argv[1:] if arguments is None else arguments)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("cyclopts", "rich"):
                raise
            _say("error", EXTRA_MISSING)
            return 1

    _tidy()
    with _signals_raised() if arguments is None else contextlib.nullcontext():
        return _guard(command)


def _tidy() -> None:
    """Have a usable width and usable streams where the shell gives none."""
    if re.fullmatch("0*[1-9][0-9]+", os.environ.get("COLUMNS", "")) is None:  # with 1 or 2, help would take for ever
        os.environ.pop("COLUMNS", None)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell closed it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process


class _Ended(BaseException):
    """A signal that ends the program."""


@contextlib.contextmanager
def _signals_raised() -> Iterator[None]:
    """What would end the process at once unwinds it, so that temporary files and worker processes go too; a second one does end it.

    An interrupt that meets Python where nothing can be raised, as in a function that LLVM calls, comes again a moment later.
    """

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise _Ended(number)

    def not_raised(lost: Any) -> None:
        if not isinstance(lost.exc_value, (KeyboardInterrupt, _Ended)):
            before(lost)
            return
        number = signal.SIGINT
        if isinstance(lost.exc_value, _Ended):
            number = lost.exc_value.args[0]
            signal.signal(number, end)
        here = threading.get_ident()  # the main thread, for others get no signals
        kill: Any = functools.partial(signal.pthread_kill, here) if hasattr(signal, "pthread_kill") else signal.raise_signal  # on Windows
        again = threading.Timer(0.02, kill, (number,))
        again.daemon = True
        again.start()

    main = threading.current_thread() is threading.main_thread()
    ours = [number for number in SIGNALS if main and signal.getsignal(number) == signal.SIG_DFL]  # nohup has it ignored
    for number in ours:
        signal.signal(number, end)
    before, sys.unraisablehook = sys.unraisablehook, not_raised
    try:
        yield
    finally:
        sys.unraisablehook = before
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _guard(command: Callable[[], int]) -> int:
    """The exit status of ``command``; errors, warnings and log records become one line on stderr each."""
    logger, handler = logging.getLogger("numbaops"), _OneLineHandler(logging.WARNING)
    logger.addHandler(handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that the terminal's encoding lacks is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = command()
            sys.stdout.flush()  # here, so that a closed pipe is noticed where it can be handled
            return status
    except BrokenPipeError:
        # The reader has left, e.g. `| head`. The interpreter flushes stdout once more at exit: give it a place to write to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        _say("error", "interrupted")
        return 130
    except _Ended as ended:
        number: int = ended.args[0]
        _say("error", f"ended by {signal.Signals(number).name}")
        return 128 + number
    except Exception as error:
        _say("error", describe(error))
        return 1
    finally:
        logger.removeHandler(handler)


def describe(error: BaseException) -> str:
    """What an error says, with what was noted on its way, on one line."""
    if isinstance(error, (NumbaopsError, MemoryError)) or not str(error):
        text = str(error) or type(error).__name__
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    else:
        text = f"{type(error).__name__}: {error}"
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if cause is not error:  # onnx hides what went wrong in an operator behind "Issues with types"
            text += f" ({describe(cause)})"
    if isinstance(error, MemoryError):
        text = f"not enough memory: {text}"
    return " ".join(" ".join((text, *getattr(error, "__notes__", ()))).split())


def printable(text: str) -> str:
    """``text`` with control characters as ``\\x1b`` and the like: names come from models, which anyone may have made."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _say(what: str, text: str) -> None:
    print(f"numbaops: {what}: {printable(text)}", file=sys.stderr, flush=True)


def _show_warning(message: Warning | str, *_where: Any, **_more: Any) -> None:
    _say("warning", " ".join(str(message).split()))


class _OneLineHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _say(record.levelname.lower(), " ".join(record.getMessage().split()))
