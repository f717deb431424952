"""The command on a terminal: what an emulator of one shows of it, 80 columns wide and wider."""

from __future__ import annotations

import functools
import itertools
import os
import re
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from onnx import parser, save

pytest.importorskip("cyclopts")
pytest.importorskip("pyte")
pytest.importorskip("termios", reason="needs a terminal as POSIX has them")

import fcntl
import pty
import termios

import pyte

from command_line import TERMINAL_VARIABLES, environment

LINES = 24
COLOUR = re.compile(r"\x1b\[[\d;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])[\d;]*m")


@dataclass(frozen=True)
class Shown:
    """What a command left on a terminal.

    Attributes:
        status: its exit status.
        lines: all that was shown and not erased, what has scrolled away too.
        sent: the characters that came.
    """

    status: int
    lines: list[str]
    sent: str


# No code of ours between fork and exec, which Python 3.12 warns of beside threads: the process itself makes it its terminal.
LAUNCH = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell has it ignored in the background
os.execv(sys.executable, [sys.executable, "-m", "numbaops", *sys.argv[1:]])
"""


def on_terminal(arguments: tuple[str, ...], columns: int, *, interrupt_at: str | None = None, **variables: str) -> Shown:
    """Run the command on a terminal; press Ctrl-C once something is shown."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    plain = {name: value for name, value in environment(TERM="xterm-256color").items() if name not in TERMINAL_VARIABLES}
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**plain, **variables},
    )
    os.close(theirs)
    screen = pyte.HistoryScreen(columns, LINES, history=10_000, ratio=1.0)
    stream, sent, end = pyte.ByteStream(screen), b"", time.monotonic() + 120
    try:
        while time.monotonic() < end:
            if not select.select([terminal], [], [], 1.0)[0]:
                continue
            try:
                content = os.read(terminal, 1 << 16)
            except OSError:  # Linux's way to say that the other side is gone
                content = b""
            if not content:
                break
            sent += content
            stream.feed(content)
            if interrupt_at is not None and interrupt_at in sent.decode(errors="replace"):
                os.write(terminal, b"\x03")
                interrupt_at = None
        else:
            process.kill()
        status = process.wait()
    finally:
        os.close(terminal)
    scrolled = ["".join(row[column].data for column in range(columns)) for row in screen.history.top]
    lines = [line.rstrip() for line in (*scrolled, *screen.display)]
    while lines and not lines[-1]:
        lines.pop()
    return Shown(status, lines, sent.decode())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "a_model_with_a_rather_long_name.onnx"
    text = "(float[batch, 3, length] an_input_with_a_name_that_is_rather_long) => (float[batch, 3, length] y) {"
    text += "a = Relu(an_input_with_a_name_that_is_rather_long) y = my.Magic(a) }"
    save(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "my" : 1]> g {text}'), path)
    return str(path)


COMMANDS = {
    ("--help",): 0,
    ("bench", "--help"): 0,
    ("check", "--help"): 0,
    ("run", "--help"): 0,
    ("info",): 0,
    ("ops",): 0,
    ("check", "{model}"): 3,
    ("bench", "--list"): 0,
    ("bench", "--filter", "4x4", "--filter", "eight", "--seconds", "0.1"): 0,
}


@functools.cache
def shown(arguments: tuple[str, ...], columns: int, **variables: str) -> Shown:
    return on_terminal(arguments, columns, **variables)


def whole(lines: list[str], columns: int) -> None:
    """Check that boxes are closed, and that table lines have what their headings say."""
    for line in lines:
        if line.startswith(("│", "╭", "╰")):
            assert len(line) == columns
            assert line[-1] in "│╮╯"
    for above, rule in itertools.pairwise(lines):
        if rule.strip() and not rule.strip("─ "):
            assert len(rule) <= columns
            assert len(rule.strip()) >= len(above.strip()), "a heading is wider than its rule"


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [*((each, 80) for each in COMMANDS), (("--help",), 200), (("check", "{model}"), 200), (("bench", "--list"), 200)],
    ids=lambda each: " ".join(each).replace("{model}", "MODEL") if isinstance(each, tuple) else str(each),
)
def test_nothing_is_broken(model: str, arguments: tuple[str, ...], columns: int) -> None:
    result = shown(tuple(each.format(model=model) for each in arguments), columns)
    assert result.status == COMMANDS[arguments], result.lines
    printed = [re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line) for line in result.sent.split("\r\n")]
    # a longer line would go on in the next one, which an emulator does not tell from two lines
    assert max(len(line.rpartition("\r")[2]) for line in printed) <= columns
    whole(result.lines, columns)


def test_check_tells_it_all_at_80_columns(model: str) -> None:
    words = " ".join(" ".join(shown(("check", model), 80).lines).split())
    assert "my.Magic - 1 unsupported: nobody implements this operator of domain 'my'; nodes: y" in words
    assert "Relu 14 1 numbaops" in words


def test_bench_shows_a_table_and_a_plot_and_no_progress_bar_that_is_left() -> None:
    result = shown(("bench", "--filter", "4x4", "--filter", "eight", "--seconds", "0.1"), 80)
    text = "\n".join(result.lines)
    assert re.search(r"^  Constant 4x4 +\S+ [um]s +numpy +\S+ [um]s +\S+$", text, re.MULTILINE)
    assert "we are faster │ slower" in text
    assert "━" not in text
    assert "━" in result.sent  # it was there


@pytest.mark.parametrize(
    "arguments", [("--help",), ("check", "{model}"), ("bench", "--filter", "EyeLike 4x4", "--seconds", "0.1")], ids=" ".join
)
def test_no_color(model: str, arguments: tuple[str, ...]) -> None:
    result = shown(tuple(each.format(model=model) for each in arguments), 80, NO_COLOR="1")
    assert result.lines
    assert COLOUR.search(result.sent) is None


def test_colours_without_it() -> None:
    assert COLOUR.search(shown(("bench", "--filter", "4x4", "--filter", "eight", "--seconds", "0.1"), 80).sent)


def test_ctrl_c_ends_bench_with_one_line(tmp_path: Path) -> None:
    result = on_terminal(("bench", "--filter", "float to float8", "--seconds", "60"), 80, interrupt_at="float to float8, 4 M")
    assert (result.status, result.lines) == (130, ["numbaops: error: interrupted"])
