"""``numbaops compact``: what it prints and writes, and that nothing is left when it cannot."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("cyclopts")

from command_line import TERMINAL_VARIABLES, Command, Result, environment, one_line_error, save_model, value_info
from numbaops import ReferenceEvaluator, from_array
from numbaops.cli import main


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    for name in TERMINAL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Result:
        status = main([str(each) for each in arguments])
        return Result(status, *capsys.readouterr())

    return run


ARRAYS = {
    "ones": np.ones((300, 2), np.float32),
    "again": np.ones((300, 2), np.float32),
    "drawn": np.random.default_rng(0).random((300, 2), np.float32),
    "small": np.ones((1, 2), np.float32),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    names = ["x", *ARRAYS]
    nodes = [
        helper.make_node("Add", [left, right], [f"sum_{right}"])
        for left, right in zip(["x", *map("sum_{}".format, names[1:])], names[1:], strict=False)
    ]
    shape = (300, 2)
    initializers = [from_array(array, name) for name, array in ARRAYS.items()]
    return save_model(tmp_path / "model.onnx", nodes, [value_info("x", shape=shape)], [value_info("sum_small", shape=shape)], initializers)


def test_table_and_file(command: Command, model: Path) -> None:
    was, target = model.read_bytes(), model.with_name("small.onnx")
    result = command("compact", model, target, "--check", 2)
    assert (result.status, result.err) == (0, "")
    for text in (
        "ConstantOfShape",
        "shared with 'ones'",
        "its elements follow no pattern",
        "1 tensor below --min-bytes",
        "in 2 runs",
        str(target),
    ):
        assert text in result.out, result.out
    assert model.read_bytes() == was
    assert sorted(file.name for file in model.parent.iterdir()) == ["model.onnx", "small.onnx"]
    x = np.random.default_rng(1).random((300, 2), np.float32)
    outputs = [ReferenceEvaluator(path).run(None, {"x": x})[0].tobytes() for path in (model, target)]
    assert outputs[0] == outputs[1]
    again = command("compact", target, model.with_name("again.onnx"))
    assert again.status == 0
    assert model.with_name("again.onnx").read_bytes() == target.read_bytes()


def test_json_and_dry_run(command: Command, model: Path) -> None:
    result = command("compact", model, "--dry-run", "--json", "--min-bytes", 0)
    facts: dict[str, Any] = result.json
    assert (facts["files"], facts["checked"]) == ([], 0)
    assert facts["bytes"]["before"] == model.stat().st_size
    assert facts["bytes"]["after"] < facts["bytes"]["before"] / 1.9
    assert {one["tensor"]: one["outcome"] for one in facts["tensors"]} == {
        "again": "shared",
        "ones": "ConstantOfShape",
        "drawn": "kept",
        "small": "kept",
    }
    assert all(one["saved"] == one["bytes"]["before"] - one["bytes"]["after"] for one in facts["tensors"])
    assert list(model.parent.iterdir()) == [model]
    target = model.with_name("o.onnx")
    facts = command("compact", model, target, "--json", "--check", 1).json
    assert (facts["files"], facts["checked"], facts["bytes"]["after"]) == ([str(target)], 1, target.stat().st_size)


def test_symbolic_dimensions_of_checks(command: Command, tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    path = save_model(tmp_path / "m.onnx", nodes, [value_info("x")], [value_info("y")], [from_array(np.ones((400, 2), np.float32), "w")])
    assert command("compact", path, tmp_path / "o.onnx", "--check", 1, "--dim", "N=400").status == 0
    text = one_line_error(command("compact", path, tmp_path / "p.onnx", "--check", 1, "--dim", "N=3"))
    assert "check" in text
    assert not (tmp_path / "p.onnx").exists()


def test_a_model_that_fails_its_check_is_not_written(command: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numbaops.rewrite import recipes

    monkeypatch.setattr(recipes, "smallest", lambda array: from_array(array + 1))
    text = one_line_error(command("compact", model, model.with_name("o.onnx"), "--check", 1))
    assert "differs in run 1" in text
    assert list(model.parent.iterdir()) == [model]


@pytest.mark.parametrize("what", ["input", "link", "folder", "nowhere", "nothing"])
def test_bad_targets(command: Command, model: Path, what: str) -> None:
    folder, was = model.parent, model.read_bytes()
    targets = {"input": [model], "link": [folder / "link"], "folder": [folder], "nowhere": [folder / "no" / "o.onnx"], "nothing": []}
    if what == "link":
        (folder / "link").symlink_to(model)
    one_line_error(command("compact", model, *targets[what]))
    assert model.read_bytes() == was
    assert {file.name for file in folder.iterdir()} <= {"model.onnx", "link"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder(command: Command, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    assert "no file can be written" in one_line_error(command("compact", model, folder / "o.onnx"))


def test_full_disk(command: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    from numbaops.rewrite import files

    monkeypatch.setattr(files, "_to_disk", full)
    assert "No space left" in one_line_error(command("compact", model, model.with_name("o.onnx")))
    assert list(model.parent.iterdir()) == [model]


def test_bad_input(command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no model", "utf-8")
    assert "not an ONNX model" in one_line_error(command("compact", tmp_path / "text.onnx", tmp_path / "o.onnx"))
    assert "No such file" in one_line_error(command("compact", tmp_path / "none.onnx", tmp_path / "o.onnx"))
    assert "--check N" in one_line_error(command("compact", model, tmp_path / "o.onnx", "--dim", "N=3"))
    assert "--seed is for the inputs that --check draws" in one_line_error(command("compact", model, tmp_path / "o.onnx", "--seed", 3))
    assert "min" in one_line_error(command("compact", model, tmp_path / "o.onnx", "--min-bytes", "-1"))
    onnx.save(helper.make_model(helper.make_graph([], "empty", [], [])), tmp_path / "empty.onnx")
    assert "nothing written" in command("compact", tmp_path / "empty.onnx", "--dry-run").out


SAVING = """
import signal, sys, time
import numbaops.rewrite.files as files
from numbaops.cli import main

def waiting(written):
    print("written", flush=True)
    time.sleep(60)

name = sys.argv.pop(1)
signal.signal(getattr(signal, name), signal.SIG_DFL)  # nohup, and some runners, have it ignored
files._put = waiting
sys.exit(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="no such signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_nothing_is_left_by_a_signal_while_saving(name: str, tmp_path: Path) -> None:
    weight = from_array(np.arange(2, dtype=np.float32), "w")
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    save_model(path, [helper.make_node("Add", ["x", "w"], ["y"])], [value_info("x")], [value_info("y")], [weight])
    onnx.save(onnx.load(path), path, save_as_external_data=True, size_threshold=0, location="weights")
    before = sorted(tmp_path.iterdir())
    arguments = [sys.executable, "-c", SAVING, name, "compact", str(path), str(out)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "written\n", process.stderr.read()
        assert len(list(tmp_path.iterdir())) > len(before)
        process.send_signal(getattr(signal, name))
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, name)
    assert errors == f"numbaops: error: ended by {name}\n"
    assert sorted(tmp_path.iterdir()) == before
