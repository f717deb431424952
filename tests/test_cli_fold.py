"""``numbaops fold``: the table, the JSON, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("cyclopts")

from command_line import TERMINAL_VARIABLES, Command, Result, one_line_error, save_model, value_info
from numbaops.cli import main


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    for name in TERMINAL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object) -> Result:
        status = main([str(each) for each in arguments])
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def made(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("Neg", ["w"], ["n"]),
        helper.make_node("ConstantOfShape", ["s"], ["big"]),
        helper.make_node("Add", ["x", "n"], ["a"], name="adds"),
        helper.make_node("Add", ["a", "big"], ["y"]),
        helper.make_node("Neg", ["x"], ["unused"]),
    ]
    weights = [numpy_helper.from_array(np.ones(2, np.float32), "w"), numpy_helper.from_array(np.array([100, 2]), "s")]
    return save_model(tmp_path / "model.onnx", nodes, [value_info("x")], [value_info("y")], weights)


@pytest.fixture
def random(tmp_path: Path) -> Path:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["y"])]
    return save_model(tmp_path / "random.onnx", nodes, [value_info("x")], [value_info("y")])


def test_table(command: Command, made: Path, tmp_path: Path) -> None:
    result = command("fold", made, tmp_path / "new.onnx", "--check", 2, "--dim", "N=100")
    assert (result.status, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "left smaller as it is ConstantOfShape 1 800 bytes big" in lines
    assert "folded Neg 1 8 bytes" in lines
    assert "removed Neg 1 -" in lines
    assert any(line.startswith("model.onnx: 5 to 3 nodes") and line.endswith("the same outputs to the bit in 2 runs") for line in lines)
    assert [node.op_type for node in onnx.load(tmp_path / "new.onnx").graph.node] == ["ConstantOfShape", "Add", "Add"]


def test_json(command: Command, made: Path, tmp_path: Path) -> None:
    facts = command("fold", made, tmp_path / "new.onnx", "--dense", "--json").json
    assert facts["nodes"] == {"before": 5, "after": 2}
    assert facts["files"] == [str(tmp_path / "new.onnx")]
    assert facts["bytes"] == {"before": made.stat().st_size, "after": (tmp_path / "new.onnx").stat().st_size}
    (one,) = [fact for fact in facts["facts"] if fact["op_type"] == "ConstantOfShape"]
    assert one == {"what": "folded", "reason": "", "op_type": "ConstantOfShape", "name": "big", "place": "", "bytes": 800, "detail": ""}


def test_nothing_to_fold(command: Command, random: Path, tmp_path: Path) -> None:
    (line,) = command("fold", random, tmp_path / "new.onnx").out.splitlines()
    assert line.startswith("random.onnx: 1 to 1 node")


@pytest.mark.parametrize("limit", ["--max-growth", "--max-tensor"])
def test_limits(command: Command, made: Path, tmp_path: Path, limit: str) -> None:
    facts = command("fold", made, tmp_path / "new.onnx", "--dense", limit, 100, "--json").json["facts"]
    assert [fact["reason"] for fact in facts if fact["what"] == "left"] == [limit[2:].replace("-", "_")]


def test_a_failing_check_writes_nothing(command: Command, random: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    text = one_line_error(command("fold", random, tmp_path / "new.onnx", "--check", 1))
    assert text == "check: output 'y' differs in run 1 of 1"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_refusals(command: Command, made: Path, tmp_path: Path) -> None:
    assert "stays as it is" in one_line_error(command("fold", made, made))
    assert "there is no folder" in one_line_error(command("fold", made, tmp_path / "no" / "x.onnx"))
    assert "is not an ONNX model" in one_line_error(command("fold", __file__, tmp_path / "x.onnx"))
    assert "none.onnx" in one_line_error(command("fold", tmp_path / "none.onnx", tmp_path / "x.onnx"))
    assert "--dim is for the inputs that --check draws" in one_line_error(command("fold", made, tmp_path / "x.onnx", "--dim", "N=2"))
    assert "--seed is for the inputs that --check draws" in one_line_error(command("fold", made, tmp_path / "x.onnx", "--seed", 3))
    assert "no input has a dimension 'M'" in one_line_error(command("fold", made, tmp_path / "x.onnx", "--check", 1, "--dim", "M=2"))
    assert one_line_error(command("fold", made, tmp_path / "x.onnx", "--max-growth", -1))
    assert not (tmp_path / "x.onnx").exists()
