"""``numbaops bench``: that every case gives one answer wherever it is done, what is shown of it, and what it refuses."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from numba import config
from rich.console import Console

pytest.importorskip("cyclopts")

from onnx import parser, save

from command_line import TERMINAL_VARIABLES, Command, Result, one_line_error
from numbaops.cli import bench, main
from numbaops.cli.cases import CASES, OURS, PEERS, Case, Ways
from numbaops.cli.commands import models
from numbaops.cli.plot import print_ratios
from numbaops.cli.timing import Timing, in_turns

OTHERWISE = {"onnx.numpy_helper"} if onnx.__version__ < "1.19" else set()
"""Who has no int4 of ml_dtypes, but one of its own."""

INSTANT = 1e-3
"""Seconds of measuring: a turn of each."""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    for name in TERMINAL_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Result:
        status = main([str(each) for each in arguments])
        return Result(status, *capsys.readouterr())

    return run


# ---------------------------------------------------------------------------------------------------------------------- cases


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="the large ones take minutes")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_give_one_answer(case: Case) -> None:
    result = bench.measure(case, INSTANT)
    assert set(result.differing) <= OTHERWISE
    assert set(result.left_out) <= {"onnxruntime", *OTHERWISE}  # which is not always there, and older ones know fewer types
    assert set(result.timings) | set(result.left_out) == {OURS, *case.peers}


def test_names_are_short_and_differ() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert max(len(case.name) for case in CASES) <= 22  # or the table does not fit 80 columns
    assert {name for case in CASES for name in case.peers} == set(PEERS)
    assert get_args(models.Peer) == tuple(PEERS)


# ------------------------------------------------------------------------------------------------------------------ measuring


def of_ways(ways: dict[str, Callable[[], Any]]) -> Case:
    def made() -> Ways:
        return {name: lambda call=call: call for name, call in ways.items()}  # type: ignore[misc]

    return Case("group", "name", tuple(name for name in ways if name != OURS), made)


def fail() -> None:
    raise ValueError("it does\nnot like this")


def test_another_answer_and_a_failure_are_told() -> None:
    result = bench.measure(
        of_ways({OURS: lambda: np.ones(2), "numpy": lambda: np.ones(2), "ml_dtypes": lambda: np.zeros(2), "onnxruntime": fail}), INSTANT
    )
    assert list(result.timings) == [OURS, "numpy", "ml_dtypes"]
    assert result.differing == ["ml_dtypes"]
    assert result.left_out == {"onnxruntime": "it does not like this"}
    assert set(result.ratios) == {"numpy", "ml_dtypes"}


def test_only_beside_some() -> None:
    case = of_ways({OURS: int, "numpy": int, "onnxruntime": fail})
    assert set(bench.measure(case, INSTANT, ("numpy",)).timings) == {OURS, "numpy"}


def test_ours_may_fail_too() -> None:
    result = bench.measure(of_ways({OURS: fail, "numpy": int}), INSTANT)
    assert (result.ratios, list(result.timings)) == ({}, ["numpy"])


def test_what_is_slow_is_called_once() -> None:
    calls: list[float] = []

    def slow() -> None:
        calls.append(0)
        time.sleep(0.05)

    result = bench.measure(of_ways({OURS: int, "numpy": slow}), 0.02)
    assert (len(calls), result.timings["numpy"].samples) == (1, 1)
    assert result.timings["numpy"].median >= 0.05
    assert result.timings[OURS].samples > 1


def test_turns_are_shared_fairly() -> None:
    order: list[str] = []

    def noting(name: str) -> Callable[[], None]:
        def call() -> None:
            order.append(name)
            time.sleep(0.003)

        return call

    times = in_turns({name: noting(name) for name in "ab"}, 0.2)
    changes = [name for name, _ in itertools.groupby(order)]
    assert len(changes) >= 4
    assert set(times) == {"a", "b"}
    assert all(0.003 <= each.fastest <= each.median and each.samples > 1 for each in times.values())


def test_short_calls_are_timed_together() -> None:
    count = itertools.count()
    (timing,) = in_turns({"a": lambda: next(count)}, 0.05).values()
    assert next(count) > 100 * timing.samples


# -------------------------------------------------------------------------------------------------------------------- command


@pytest.fixture
def three_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (
        Case("first", "one", ("numpy",), of_ways({OURS: int, "numpy": int}).ways),
        Case("first", "two", ("numpy", "onnxruntime"), of_ways({OURS: int, "numpy": lambda: 1, "onnxruntime": fail}).ways),
        Case("second", "three", ("onnxruntime",), of_ways({OURS: int, "onnxruntime": fail}).ways),
    )
    monkeypatch.setattr(bench, "CASES", cases)


@pytest.mark.usefixtures("three_cases")
def test_json(command: Command) -> None:
    facts = command("bench", "--seconds", INSTANT, "--json").json
    assert facts["versions"]["numpy"] == np.__version__
    assert [one["case"] for one in facts["cases"]] == ["one", "two", "three"]
    one, two, three = facts["cases"]
    assert set(one["seconds"]) == {OURS, "numpy"}
    assert set(one["seconds"]["numpy"]) == {"median", "fastest", "samples"}
    assert one["ratios"]["numpy"] == pytest.approx(one["seconds"][OURS]["median"] / one["seconds"]["numpy"]["median"])
    assert (two["differing"], three["left_out"]) == (["numpy"], {"onnxruntime": "it does not like this"})


@pytest.mark.usefixtures("three_cases")
def test_the_table_and_the_plot(command: Command) -> None:
    shown = command("bench", "--seconds", INSTANT)
    assert (shown.status, shown.err) == (0, "")
    assert max(map(len, shown.out.splitlines())) <= 80
    words = " ".join(shown.out.split())
    for text in (
        "case numbaops beside time ratio",
        "we are faster │ slower",
        "n numpy",
        "ratio: our time / theirs. We are faster than numpy in",
        "left out: onnxruntime (two, three): it does not like this",
        "two: the answer of numpy differs from ours",
    ):
        assert text in words, text


@pytest.mark.usefixtures("three_cases")
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ((), ["one", "two", "three"]),
        (("--filter", "T"), ["one", "two", "three"]),  # by the group, and whatever the case
        (("--filter", "TW"), ["two"]),
        (("--filter", "one", "--filter", "second"), ["one", "three"]),
        (("--beside", "numpy"), ["one", "two"]),
        (("--beside", "numpy", "--beside", "onnxruntime", "--filter", "th"), ["three"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_which_cases(command: Command, options: tuple[str, ...], names: list[str]) -> None:
    assert [one["case"] for one in command("bench", "--list", "--json", *options).json] == names
    shown = command("bench", "--list", *options).out
    assert [name for name in ("one", "two", "three") if name in shown] == names


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    path = tmp_path / "relu.onnx"
    save(parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }'), path)
    return path


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--seconds", "0"), "--seconds 0: allowed: a number above 0"),
        (("--seconds", "nan"), "--seconds nan: allowed: a number above 0"),
        (("--seconds", "inf"), "--seconds inf: allowed: a number above 0"),
        (("--seconds", "long"), "--seconds"),
        (("--filter", "nothing"), "--filter nothing: no case has that in its name or group; the groups: operators, conversions, "),
        (("--filter", "operators", "--beside", "onnxruntime"), "--beside onnxruntime: that does none of it; allowed here: numpy"),
        (("--beside", "rocks"), "Choose from"),
        (("--dim", "N=2"), "--dim needs a MODEL"),
        (("--seed", "2"), "--seed needs a MODEL"),
        (("--input", "x.npy"), "--input needs a MODEL"),
        (("--inputs", "x.npz"), "--inputs needs a MODEL"),
        (("nowhere.onnx",), "nowhere.onnx: No such file or directory"),
        (("{model}", "--filter", "x"), "--filter is for the cases, not for a MODEL"),
        (("{model}", "--list"), "--list is for the cases, not for a MODEL"),
        (("{model}", "--seed", "-1"), "--seed -1: allowed"),
        (("{model}", "--dim", "M=1"), "--dim M=1: no input has a dimension 'M'; symbolic dimensions: N"),
        (("{model}", "--beside", "numpy"), "--beside numpy: that does none of it; allowed here: onnx.reference, onnxruntime"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_of_use(command: Command, relu: Path, options: tuple[str, ...], text: str) -> None:
    assert text in one_line_error(command("bench", *(each.format(model=relu) for each in options)))


def test_a_model(command: Command, relu: Path) -> None:
    facts = command("bench", relu, "--dim", "N=3", "--seconds", INSTANT, "--json").json
    (one,) = facts["cases"]
    assert (one["case"], one["differing"]) == ("relu.onnx", [])
    assert set(one["seconds"]) | set(one["left_out"]) == {OURS, "onnx.reference", "onnxruntime"}
    assert "relu.onnx" in command("bench", relu, "--seconds", INSTANT).out


def test_a_model_that_only_others_run(command: Command, relu: Path, tmp_path: Path) -> None:
    text = "(float[4] x, int64[1] s) => (float[n] y) { y = Reshape(x, s) }"
    save(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}'), tmp_path / "reshape.onnx")
    np.save(tmp_path / "s.npy", np.array([3]))
    text = one_line_error(command("bench", tmp_path / "reshape.onnx", "--input", f"s={tmp_path / 's.npy'}", "--seconds", INSTANT))
    assert "Reshape-21" in text


def test_without_onnxruntime(command: Command, monkeypatch: pytest.MonkeyPatch, relu: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = command("bench", relu, "--seconds", INSTANT)
    assert (result.status, result.err) == (0, "")
    assert "left out: onnxruntime (relu.onnx): ONNX Runtime is not installed: pip install onnxruntime" in " ".join(result.out.split())


def test_a_busy_machine_is_told(command: Command, monkeypatch: pytest.MonkeyPatch, relu: Path) -> None:
    monkeypatch.setattr(bench.os, "getloadavg", lambda: (1234.5, 0.0, 0.0), raising=False)
    assert "the machine was busy (load 1234.5)" in command("bench", relu, "--seconds", INSTANT).out


# ----------------------------------------------------------------------------------------------------------------------- plot


def drawn(rows: list[tuple[str, dict[str, float]]], width: int = 60, encoding: str = "utf-8") -> list[str]:
    console = Console(width=width, file=(file := _Text(encoding)), highlight=False)
    print_ratios(console, rows, {"a": "A", "b": "B"})
    return "".join(file.written).splitlines()


class _Text:
    """A file of some encoding."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self.written: list[str] = []

    def write(self, text: str) -> int:
        self.written.append(text)
        return len(text)

    def flush(self) -> None:
        pass


def test_letters_stand_where_the_axis_says() -> None:
    lines = drawn([("x", {"a": 0.1, "b": 10}), ("long", {"a": 1}), ("y", {"a": 0.01, "b": 100})])
    assert lines[1].index("A") == lines[4].index(" 0.1 ") + 2
    assert lines[1].index("B") == lines[4].index(" 10 ") + 2
    one = lines[1].index("│")
    assert lines[2].index("A") == one == lines[0].index("│") == lines[4].index(" 1 ") + 1
    assert lines[5] == " A a   B b   "


def test_letters_at_one_place_stand_side_by_side() -> None:
    assert "AB" in drawn([("x", {"a": 0.1, "b": 0.1})])[1]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_console(width: int) -> None:
    lines = drawn([(name, {"a": ratio, "b": 1 / ratio}) for name, ratio in (("x" * 20, 1e-4), ("y", math.pi))], width)
    assert max(map(len, lines)) <= width
    assert len(lines) == 5


def test_a_console_without_box_characters() -> None:
    assert all(line.isascii() for line in drawn([("x", {"a": 0.5})], encoding="ascii"))


def test_nothing_to_draw() -> None:
    assert drawn([("x", {})]) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio"),
    [(Timing(2, 1, 9), Timing(4, 2, 9), "0.5"), (Timing(2, 0.9, 9), Timing(4, 2, 9), "0.5~"), (Timing(2, 1, 9), Timing(4, 1, 9), "0.5~")],
    ids=["quiet", "ours", "theirs"],
)
def test_what_noise_may_have_made_is_marked(ours: Timing, theirs: Timing, ratio: str) -> None:
    assert [row[-1] for row in bench._rows([bench.Result("g", "c", {OURS: ours, "numpy": theirs})])] == [ratio]


def test_ratio_is_ours_divided_by_theirs() -> None:
    result = bench.Result("g", "c", {OURS: Timing(2, 1, 3), "numpy": Timing(4, 1, 3)})
    assert result.ratios == {"numpy": 0.5}
