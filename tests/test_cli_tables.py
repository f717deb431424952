"""Tables of the command at every width: nothing is cut off, and a number is never broken where it has room."""

from __future__ import annotations

import collections
import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("cyclopts")

from rich.text import Text

from command_line import TERMINAL_VARIABLES, save_model, value_info
from numbaops import from_array
from numbaops.cli import main, printable, report

LONG = "a/rather/long/name/of/a/node"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that every command has something to say of."""
    nodes = [
        helper.make_node("Neg", ["w"], ["n"]),
        helper.make_node("ConstantOfShape", ["s"], [f"{LONG}/big"]),
        helper.make_node("Add", ["x", "n"], ["a"], name="adds"),
        helper.make_node("Add", ["a", f"{LONG}/big"], [LONG]),
        helper.make_node("Add", [LONG, "ones"], [f"{LONG}/output"]),
    ]
    weights = {"w": np.ones(2, np.float32), "s": np.array([100, 2]), "ones": np.ones((100, 2), np.float32)}
    weights["drawn"] = np.random.default_rng(0).random((100, 2), np.float32)
    nodes.append(helper.make_node("Mul", [f"{LONG}/output", "drawn"], ["y"]))
    infos = [value_info("x", shape=(100, 2))], [value_info(f"{LONG}/output", shape=(100, 2)), value_info("y", shape=(100, 2))]
    path = tmp_path_factory.mktemp("models") / "model.onnx"
    return save_model(path, nodes, *infos, [from_array(array, name) for name, array in weights.items()])


COMMANDS = {
    "run": (("run", "{model}"), 1),
    "run --profile --compare": (("run", "{model}", "--profile", "--compare", "reference", "--repeat", "1"), 4),
    "ops": (("ops",), 1),
    "info": (("info",), 1),
    "check": (("check", "{model}"), 2),
    "compact": (("compact", "{model}", "--dry-run"), 3),
    "fold": (("fold", "{model}", "{model}.folded"), 1),
    "bench": (("bench", "--filter", "ConstantOfShape 4x4", "--filter", "eight", "--seconds", "0.01"), 1),
    "bench --list": (("bench", "--list"), 1),
}
"""Arguments, and how many tables there are."""


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_value_is_lost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: Path, name: str, width: int) -> None:
    whole = report.print_table
    printed = 0

    def checked(columns: Any, rows: Any, *, numbers: Any = (), headings: bool = True) -> None:
        nonlocal printed
        printed += 1
        cells = [[str(cell) if isinstance(cell, Text) else printable(cell) for cell in row] for row in rows]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            whole(columns, cells, numbers=numbers, headings=headings)
        text = out.getvalue()
        wanted = collections.Counter("".join("".join(row) for row in ([columns] if headings else []) + cells))
        lost = wanted - collections.Counter(text)
        assert not [character for character in lost if not character.isspace()], text
        lines = text.splitlines()
        for number in (cell for row in cells for heading, cell in zip(columns, row, strict=True) if heading in numbers):
            assert any(number in line for line in lines)
        sys.stdout.write(text)

    monkeypatch.setattr(report, "print_table", checked)
    for variable in TERMINAL_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    arguments, tables = COMMANDS[name]
    assert main([each.format(model=model) for each in arguments]) == 0
    assert printed == tables
    assert max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_a_column_of_text_has_a_sensible_width(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    report.print_table(("name", "nodes", "runs in"), [("x" * 30, "12", "numbaops"), ("y", "3", "")], numbers=("nodes",))
    first = capsys.readouterr().out.splitlines()[3]
    assert re.fullmatch(r"  x{12,} +12   numbaops +", first)


def test_blocks_where_there_is_no_room_for_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    rows = [("one", "1.25 ms", "numpy"), ("", "12.5 ms", ""), ("[two]", "1 s", "")]
    report.print_table(("case", "time", "beside"), rows, numbers=("time",))
    lines = ["", "case: one", "time: 1.25 ms", "beside: numpy", "time: 12.5 ms", "", "case: [two]", "time: 1 s", "", ""]
    assert capsys.readouterr().out.split("\n") == lines


def test_no_rows_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    report.print_table(("case", "time"), [])
    assert capsys.readouterr().out == ""
