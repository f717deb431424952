"""``numbaops run`` in batches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

pytest.importorskip("cyclopts")
pytest.importorskip("distributed")

import numbaops.dask
from command_line import TERMINAL_VARIABLES, Command, Result, environment, one_line_error
from numbaops.cli import main
from numbaops.cli.files import read_npz
from processes import run_python


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TERMINAL_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process."""

    def run(*arguments: object) -> Result:
        status = main([str(each) for each in arguments])
        return Result(status, *capsys.readouterr())

    return run


X = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)


@pytest.fixture
def scaled(tmp_path: Path) -> Path:
    """The folder of the model ``low = bfloat16(x * scale)`` of N rows, and of its inputs."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 21]>
        graph (float[N, 3] x, float[3] scale, float power) => (bfloat16[N, 3] low, float[N, 3] y)
        { [scaling] product = Mul(x, scale)  y = Pow(product, power)  low = Cast<to = 16>(y) }
    """)
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "batch.npz", x=X, scale=np.array([1, 2, 3], np.float32), power=np.float32(2))
    return tmp_path


def expected() -> np.ndarray:
    squares: np.ndarray = (X * np.array([1, 2, 3], np.float32)) ** 2
    return squares


def check(path: Path) -> None:
    saved = read_npz(path)
    assert np.allclose(saved["y"], expected(), rtol=1e-6)
    assert saved["low"].dtype == ml_dtypes.bfloat16 and saved["low"].tobytes() == saved["y"].astype(ml_dtypes.bfloat16).tobytes()


def test_workers(command: Command, scaled: Path) -> None:
    arguments = ("run", scaled / "model.onnx", "--inputs", scaled / "batch.npz", "--save", scaled / "out.npz")
    result = command(*arguments, "--batch-axis", 0, "--workers", 2, "--batch-size", 3)
    assert (result.status, result.err) == (0, "")
    assert "20 rows in 7 batches on 2 workers, ran in " in result.out
    check(scaled / "out.npz")


def test_scheduler(command: Command, scaled: Path) -> None:
    with numbaops.dask.cluster(workers=1) as client:
        result = command(
            "run", scaled / "model.onnx", "--inputs", scaled / "batch.npz", "--save", scaled / "out.npz",
            "--scheduler", client.scheduler.address, "--json",
        )  # fmt: skip
    assert (result.status, result.err) == (0, "")
    batches = result.json["batches"]
    assert batches.pop("scheduler").startswith("tcp://")
    assert batches == {"axis": 0, "rows": 20, "count": 7, "shared": ["power", "scale"], "workers": 1}
    assert [one["shape"] for one in result.json["outputs"]] == [[20, 3], [20, 3]]
    check(scaled / "out.npz")


ERRORS = {
    "no model": (["--workers", 2], "need a MODEL"),
    "workers and scheduler": (["MODEL", "--workers", 2, "--scheduler", "tcp://x:1"], "--workers and --scheduler exclude each other"),
    "drawn": (["MODEL", "--batch-axis", 0], "input 'x' is missing: for batches, files give all inputs"),
    "profile": (["MODEL", "--workers", 2, "--profile"], "--profile is not for batches, which --workers asks for"),
    "dim": (["MODEL", "--batch-size", 2, "--dim", "N=3"], "--dim is not for batches, which --batch-size asks for"),
    "save": (["MODEL", "--inputs", "INPUTS", "--workers", 2, "--save", "INPUTS"], "the inputs are read from there"),
    "axis": (["MODEL", "--inputs", "INPUTS", "--batch-axis", 2], "no input has such a dimension"),
    "workers": (["MODEL", "--inputs", "INPUTS", "--workers", 0], "--workers"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str, command: Command, scaled: Path) -> None:
    arguments, text = ERRORS[case]
    files = {"MODEL": scaled / "model.onnx", "INPUTS": scaled / "batch.npz"}
    assert text in one_line_error(command("run", *(files.get(each, each) for each in arguments)))


def test_an_error_in_one_batch(command: Command, scaled: Path) -> None:
    """The one line has node and batch, and workers print nothing of their own."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 21]> graph (float[N, 3] x) => (float[N, 3] y)
        <int64[2] six = {6, 3}> { [six] y = Reshape(x, six) }
    """)
    onnx.save(model, scaled / "model.onnx")
    np.savez(scaled / "batch.npz", x=X)
    (scaled / "out.npz").write_bytes(b"what was there")
    text = one_line_error(
        command(
            "run", scaled / "model.onnx", "--inputs", scaled / "batch.npz", "--batch-size", 6, "--workers", 1, "--save", scaled / "out.npz"
        )
    )
    assert "Reshape-21 (node 'six'): batch 3 (rows 18 to 19 of axis 0)" in text
    assert (scaled / "out.npz").read_bytes() == b"what was there"
    assert sorted(path.name for path in scaled.iterdir()) == ["batch.npz", "model.onnx", "out.npz"]


def test_static_batch_size(command: Command, scaled: Path) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 21]> graph (float[8, 3] x) => (float[8, 3] y) { y = Relu(x) }')
    onnx.save(model, scaled / "model.onnx")
    np.savez(scaled / "batch.npz", x=X)
    run = ("run", scaled / "model.onnx", "--inputs", scaled / "batch.npz", "--batch-axis", 0)
    assert "the model takes exactly 8; possible: 8 in each, of 16 or 24 rows in all, not 20" in one_line_error(command(*run))


def test_without_the_extra(scaled: Path) -> None:
    code = f"""
        import sys
        sys.modules["dask"] = None
        from numbaops.cli import main
        sys.stderr = sys.stdout
        main(["run", {str(scaled / "model.onnx")!r}, "--workers", "2"])
    """
    hint = 'pip install "numbaops[dask]", or ".[dask]" in a checkout'
    assert run_python(code) == f'numbaops: error: numbaops.dask needs the extra "dask": {hint}'


# Ctrl-C goes to the workers as well, as in a terminal. A shell has it ignored in the background.
LAUNCH = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """The folder of a model that runs for minutes, and of its inputs."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 21]> graph (float[N] x) => (float[N] y) <int64 trips = {10000000}>
        { y = Loop(trips, , x) <body = body (int64 i, bool go, float[N] a) => (bool on, float[N] b) { on = Identity(go)  b = Sigmoid(a) }> }
    """)
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "batch.npz", x=np.ones(8, np.float32))
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="no Ctrl-C for a group of processes")
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.5, 0.7, 3.0], ids=lambda seconds: f"{seconds} s after the first process")
def test_interrupted(endless: Path, seconds: float) -> None:
    """While workers start and while they compute: one line, no file, no process."""
    command = ["-m", "numbaops", "run", "model.onnx", "--inputs", "batch.npz", "--workers", "2", "--save", "out.npz"]
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *command],
        cwd=endless, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while len(group(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (130, "", "numbaops: error: interrupted\n")
        assert sorted(path.name for path in endless.iterdir()) == ["batch.npz", "model.onnx"]
        deadline = time.monotonic() + 10
        while group(process.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert group(process.pid) == []
    finally:
        if group(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def group(leader: int) -> list[int]:
    """The processes of a group that are alive."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return found
