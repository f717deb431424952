"""The ``numbaops`` command: most of it in this process, what a process alone can show through ``python -m numbaops``."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numba import config
from onnx import TensorProto, helper, numpy_helper, parser

pytest.importorskip("cyclopts")

import numbaops
from command_line import TERMINAL_VARIABLES, Command, Result, environment, one_line_error, process, save_model, save_tensor, value_info
from numbaops.cli import main
from numbaops.cli import run as run_module
from numbaops.cli.compare import difference, load_peer
from numbaops.cli.report import number, seconds, statistics, steps
from numbaops.dtypes import BY_NAME, ELEMENT_TYPES
from numbaops.runtime import jit
from processes import run_python

COMMANDS = ("bench", "check", "completion", "info", "ops", "run", "warmup")
INFINITY, NAN = float("inf"), float("nan")


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


@pytest.fixture
def subtract(tmp_path: Path) -> Path:
    """The model ``difference = first - second``, both float (N, 2)."""
    return save_model(
        tmp_path / "subtract.onnx",
        [helper.make_node("Sub", ["first", "second"], ["difference"])],
        [value_info("first"), value_info("second")],
        [value_info("difference")],
    )


def identity(path: Path, element_type: int, shape: Sequence[Any] | None = ("N", 2)) -> Path:
    """The model ``y = x``."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return save_model(path, [node], [value_info("x", element_type, shape)], [value_info("y", element_type, shape)])


FIRST = np.array([[1, 2], [3, 4]], np.float32)
SECOND = np.array([[0.5, 0.5], [0.5, 5]], np.float32)
STATISTICS = {"min": -1.0, "mean": 0.875, "max": 2.5}


# ---------------------------------------------------------------------------------------------------- the command as a whole


HEAVY = "import sys; from numbaops.cli import main; main(['{}']); print([m for m in ('numpy', 'numba', 'onnx') if m in sys.modules])"


def test_help_lists_the_commands_and_loads_no_library_that_takes_time() -> None:
    result = process(code=HEAVY.format("--help"))
    assert [
        name
        for name in ("run", "ops", "info", "warmup", "check", "bench", "completion", "--version", "--debug", "130")
        if name not in result.stdout
    ] == []
    assert result.stdout.splitlines()[-1] == "[]"


LOST = """
import ctypes, signal, sys, time
import numbaops.cli, numbaops.cli.app
signal.signal(signal.{0}, signal.default_int_handler if "{0}" == "SIGINT" else signal.SIG_DFL)  # where the tests run without them
@ctypes.CFUNCTYPE(None)
def called_by_c():
    signal.raise_signal(signal.{0})
    [number for number in range(1000)]
def launch(arguments):
    called_by_c()
    time.sleep(60)
    print("nothing came")
numbaops.cli.app.launch = launch
sys.exit(numbaops.cli.main())
"""


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize(("name", "text"), [("SIGINT", "interrupted"), ("SIGTERM", "ended by SIGTERM"), ("SIGHUP", "ended by SIGHUP")])
def test_a_signal_within_a_callback_of_c_is_not_lost(name: str, text: str) -> None:
    """LLVM calls such, and what they raise goes nowhere."""
    result = process(code=LOST.format(name))
    assert (result.stdout, result.stderr) == ("", f"numbaops: error: {text}\n")
    assert result.returncode == (130 if name == "SIGINT" else 128 + getattr(signal, name))


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_without_the_extra_one_line_says_what_to_install(missing: str) -> None:
    result = process(code=f"import sys; sys.modules[{missing!r}] = None; from numbaops.cli import main; sys.exit(main([]))")
    assert (result.returncode, result.stdout) == (1, "")
    install = 'pip install "numbaops[cli]", or ".[cli]" in a checkout'
    assert result.stderr == f'numbaops: error: the numbaops command needs its "cli" extra: {install}\n'


def test_version_loads_no_library_that_takes_time() -> None:
    assert process(code=HEAVY.format("--version")).stdout.splitlines() == [f"numbaops {numbaops.__version__}", "[]"]


@pytest.mark.parametrize("arguments", [(), *((name, "--help") for name in COMMANDS)], ids=" ".join)
def test_help_has_examples_and_fits_80_columns(command: Command, arguments: tuple[str, ...]) -> None:
    result = command(*arguments)
    assert result.status == 0
    assert max(map(len, result.out.splitlines())) <= 80
    _, found, examples = result.out.partition("\nExamples")
    name = " ".join(arguments[:1])
    assert found
    assert re.search(rf"^(\w+=1 )?numbaops {name}", examples, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_json(command: Command, name: str) -> None:
    assert "--json" in command(name, "--help").out


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("ops",)], ids=" ".join)
def test_no_color(command: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    colours = re.compile(r"\x1b\[[\d;]*(3[0-7]|4[0-7]|9[0-7])[\d;]*m")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert colours.findall(command(*arguments).out) == []


WHOLE = [
    ("run", "--seed", 0),
    ("run", "--repeat", 1),
    ("run", "--batch-axis", 0),
    ("run", "--batch-size", 1),
    ("run", "--workers", 1),
    ("compact a b", "--min-bytes", 0),
    ("compact a b", "--check", 0),
    ("compact a b --check 1", "--seed", 0),
    ("bench a", "--seed", 0),
    ("fold a b", "--max-growth", 0),
    ("fold a b", "--max-tensor", 0),
    ("fold a b", "--check", 0),
    ("fold a b --check 1", "--seed", 0),
]
"""Options that take whole numbers, and from which on."""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("fly",),
            'Unknown command "fly"; commands: run, ops, info, warmup, check, compact, bench, fold, completion (see numbaops --help)',
        ),
        (("run", "--fly"), "Unknown option: --fly (see numbaops run --help)"),
        (("run", "a.onnx", "b.onnx"), "b.onnx"),
        (("run", "--repeat", "0"), "--repeat"),
        (("run", "--repeat", "many"), "--repeat"),
        (("run", "--compare", "rocks"), "--compare"),
        (("run", "--input"), "--input"),
        (("run", "--input", "x.npy"), "--input needs a MODEL"),
        (("run", "--inputs", "x.npz"), "--inputs needs a MODEL"),
        (("run", "--dim", "N=2"), "--dim needs a MODEL"),
        (("run", "--seed", "1"), "--seed needs a MODEL"),
        *(
            ((*command.split(), option, value), f"{option} {value}: allowed: a whole number from {least} on")
            for command, option, least in WHOLE
            for value in ("1.5", "1e3", "-1", "x")
        ),
        (("run", "nowhere.onnx"), "nowhere.onnx: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_of_use(command: Command, arguments: tuple[str, ...], text: str) -> None:
    assert text in re.sub('"(--[^"]+)"', r"\1", one_line_error(command(*arguments)))  # as older cyclopts have options


@pytest.mark.parametrize("arguments", [("--debug", "run", "nowhere.onnx"), ("run", "nowhere.onnx", "--debug")], ids=["before", "after"])
def test_debug_shows_the_traceback_and_then_the_line(command: Command, arguments: tuple[str, ...]) -> None:
    result = command(*arguments)
    assert result.status == 1
    assert result.err.startswith("Traceback")
    assert result.err.endswith("\nnumbaops: error: nowhere.onnx: No such file or directory\n")


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError("Unable to allocate 7 TiB"), 1, "not enough memory: Unable to allocate 7 TiB"),
        (MemoryError(), 1, "not enough memory: MemoryError"),
        (RuntimeError("first line\n  second line"), 1, "RuntimeError: first line second line"),
        (caused(TypeError("wrong"), caused(RuntimeError("hidden"), ValueError("why"))), 1, "TypeError: wrong (ValueError: why)"),
        (KeyError("x"), 1, "KeyError: 'x'"),
        (OSError(28, "No space left on device"), 1, "OSError: [Errno 28] No space left on device"),
    ],
    ids=["interrupt", "memory", "memory-without-text", "two-lines", "cause", "key", "no-file-name"],
)
def test_any_error_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, text: str) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(run_module, "run_model", fail)
    assert one_line_error(command("run", "x.onnx"), status) == text


def test_warnings_and_log_records_are_lines(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def complain(*_: Any, **__: Any) -> None:
        warnings.simplefilter("always")
        warnings.warn("this is\nodd", stacklevel=1)
        logging.getLogger("numbaops").warning("cannot write %s", "there")

    monkeypatch.setattr(run_module, "run_model", complain)
    assert command("run", "x.onnx") == Result(0, "", "numbaops: warning: this is odd\nnumbaops: warning: cannot write there\n")


@pytest.mark.parametrize("columns", ["0", "00", "1", "-1", "1.5", "²", ""])
@pytest.mark.parametrize("arguments", [("--help",), ("ops",)], ids=" ".join)
def test_columns_that_are_no_usable_number_count_as_not_set(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], columns: str
) -> None:
    plain = command(*arguments)
    monkeypatch.setenv("COLUMNS", columns)
    assert plain.status == 0
    assert command(*arguments) == plain


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes streams")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("run", "{model}", "--json"), 0),
        (("warmup", "{model}", "--json"), 0),
        (("bench", "{model}", "--seconds", "0.01", "--json"), 0),
        (("run", "{model}", "--seed", "-1"), 1),
        (("run", "{model}", "--seed", "-1", "--debug"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_closed_stderr(subtract: Path, arguments: tuple[str, ...], status: int) -> None:
    """Errors and tracebacks go nowhere then, least of all to stdout."""
    code = "import os, sys; os.close(2); os.execv(sys.executable, [sys.executable, '-m', 'numbaops', *sys.argv[1:]])"
    done = process(*(each.format(model=subtract) for each in arguments), code=code)
    assert done.returncode == status
    assert not done.stdout if status else json.loads(done.stdout)


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes streams")
def test_a_closed_stdout() -> None:
    code = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'numbaops', 'ops'])"
    done = process(code=code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="needs a pipe that can be closed early")
@pytest.mark.parametrize("arguments", [("ops",), ("ops", "--json"), ("bench", "--list"), ("completion", "bash"), ("--help",)], ids=" ".join)
def test_a_reader_that_leaves_early_is_no_error(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = process(*arguments, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


PRESSED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == at:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
at, module, *sys.argv[1:] = sys.argv[1:]
sys.meta_path.insert(0, Finder())
from numbaops.cli import main
status = main()
print(at in sys.modules, module in sys.modules)
sys.exit(status)
"""

LOADING = {
    ("--version",): ("cyclopts.core", "numbaops.cli.app"),
    ("run", "{model}"): ("onnx.onnx_cpp2py_export", "numbaops.cli.run"),
    ("run", "{model}", "--workers", "1"): ("onnx.onnx_cpp2py_export", "numbaops.cli.batches"),
    ("run", "{model}", "--batch-size", "1", "--workers", "1"): ("distributed", "numbaops.dask"),
    ("run", "{model}", "--compare", "onnxruntime"): ("onnxruntime.capi.onnxruntime_pybind11_state", "onnxruntime"),
    ("ops",): ("numpy._core._multiarray_umath", "numbaops.cli.info"),
    ("info",): ("llvmlite.binding", "numba.core.registry"),
    ("warmup", "{model}"): ("onnx.onnx_cpp2py_export", "numbaops.reference"),
    ("check", "{model}"): ("onnx.onnx_cpp2py_export", "numbaops.cli.check"),
    ("check", "{model}", "--json"): ("onnx.reference.ops._op_list", "numbaops.cli.check"),
    ("compact", "{model}", "--dry-run"): ("onnx.onnx_cpp2py_export", "numbaops.cli.compact"),
    ("bench", "{model}"): ("onnx.onnx_cpp2py_export", "numbaops.cli.bench"),
    ("fold", "{model}", "{model}.folded"): ("onnx.onnx_cpp2py_export", "numbaops.cli.fold"),
    ("fold", "{model}", "{model}.folded", "--json"): ("onnx.reference.ops._op_list", "numbaops.cli.fold"),
}
"""What a command imports when Ctrl-C comes, and what it has imported when that takes effect."""


@pytest.mark.skipif(os.name != "posix", reason="no such signal")
@pytest.mark.parametrize("arguments", LOADING, ids=" ".join)
def test_ctrl_c_waits_for_imports(subtract: Path, arguments: tuple[str, ...]) -> None:
    """A native module that is interrupted may end the process, and a lock of Python's imports lose the interrupt."""
    for name in LOADING[arguments]:
        if find_spec(name.partition(".")[0]) is None:
            pytest.skip(f"needs {name}")
    done = process(*LOADING[arguments], *(each.format(model=subtract) for each in arguments), code=PRESSED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "True True\n", "numbaops: error: interrupted\n")


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="there is nothing to cache")
def test_a_warning_while_kernels_are_compiled_is_one_line(tmp_path: Path) -> None:
    weights = ", ".join(["0.5"] * 576)
    text = f"g (float[1,8,32,32] x) => (y) <float[8,8,3,3] w = {{{weights}}}> {{ y = Conv(x, w) }}"
    onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'), tmp_path / "m.onnx")
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "numbaops", "run", tmp_path / "m.onnx"],
        env=environment(NUMBAOPS_CACHE_DIR=str(tmp_path / "file" / "cache")), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert re.fullmatch("numbaops: warning: cannot (read|write) the kernel cache .+\n", done.stderr)


# ------------------------------------------------------------------------------------------------------------- run: main job


def test_the_main_job() -> None:
    result = process("run")
    assert (result.returncode, result.stderr) == (0, "")
    assert "light_resnet50.onnx of onnx " in result.stdout
    assert "415 nodes: 239 ConstantOfShape" in result.stdout
    assert "\noutput matches the stored one (largest error " in result.stdout


@pytest.mark.parametrize(
    ("stored", "status", "text"),
    [
        ([[0, 1 / 3], [2 / 3, 1]], 0, "output matches the stored one (largest error 0)"),
        ([[0, 1 / 3], [2 / 3, 1.0001]], 0, "output matches the stored one (largest error 0.0001)"),
        ([[0, 1 / 3], [2 / 3, 1.5]], 1, "output 'y' does not match the stored one: largest error 0.5, relative 0.333"),
        ([[0, NAN], [2 / 3, 1]], 1, "output 'y' does not match the stored one: largest error inf, relative inf"),
        ([0, 1 / 3, 2 / 3, 1], 1, "output 'y' does not match the stored one: float (2, 2) against float (4,)"),
    ],
    ids=["equal", "close", "wrong", "nan", "shape"],
)
def test_the_stored_output_is_checked(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stored: list[Any], status: int, text: str
) -> None:
    scale = numpy_helper.from_array(np.array(4 / 3, np.float32), "scale")
    node = helper.make_node("Mul", ["x", "scale"], ["y"])
    model = save_model(tmp_path / "carried.onnx", [node], [value_info("x", shape=[2, 2])], [value_info("y", shape=[2, 2])], [scale])
    save_tensor(tmp_path / "carried_output_0.pb", np.array(stored, np.float32))
    monkeypatch.setattr(run_module, "_carried_model", lambda: model)
    result = command("run")
    assert text in (one_line_error(result) if status else result.out)
    assert command("run", "--json").json["check"]["matches"] is (status == 0)


def test_an_onnx_without_the_model(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "_CARRIED_MODEL", Path("nowhere.onnx"))
    assert "does not carry nowhere.onnx; give a MODEL" in one_line_error(command("run"))


# --------------------------------------------------------------------------------------------------------------- run: inputs


def given_as(form: str, folder: Path) -> list[str]:
    """The options that feed FIRST and SECOND to the model, in some form."""
    np.save(folder / "first.npy", FIRST)
    np.save(folder / "second=.npy", SECOND)
    save_tensor(folder / "first.pb", FIRST)
    np.savez(folder / "named.npz", second=SECOND, first=FIRST)
    np.savez(folder / "numbered.npz", FIRST, SECOND)
    save_tensor(folder / "plain" / "input_0.pb", FIRST)
    save_tensor(folder / "plain" / "input_1.pb", SECOND)
    save_tensor(folder / "names" / "input_0.pb", SECOND, "second")
    save_tensor(folder / "names" / "input_1.pb", FIRST, "first")
    forms = {
        "npy-by-name": ["--input", f"second={folder}/second=.npy", "--input", f"first={folder}/first.npy"],
        "pb-by-name": ["--input", f"first={folder}/first.pb", "--input", f"second={folder}/second=.npy"],
        "by-number": ["--input", f"1={folder}/second=.npy", "--input", f"0={folder}/first.npy"],
        "in-order": ["--input", f"{folder}/first.npy", "--input", f"second={folder}/second=.npy"],
        "npz-by-name": ["--inputs", f"{folder}/named.npz"],
        "npz-by-number": ["--inputs", f"{folder}/numbered.npz"],
        "folder": ["--inputs", f"{folder}/plain"],
        "folder-with-names": ["--inputs", f"{folder}/names"],
        "input-before-inputs": ["--inputs", f"{folder}/numbered.npz", "--input", f"first={folder}/first.npy"],
    }
    return forms[form]


@pytest.mark.parametrize(
    "form",
    [
        "npy-by-name",
        "pb-by-name",
        "by-number",
        "in-order",
        "npz-by-name",
        "npz-by-number",
        "folder",
        "folder-with-names",
        "input-before-inputs",
    ],
)
def test_inputs_from_files(command: Command, tmp_path: Path, subtract: Path, form: str) -> None:
    facts = command("run", subtract, "--json", *given_as(form, tmp_path)).json
    assert facts["outputs"] == [{"name": "difference", "type": "float", "shape": [2, 2], **STATISTICS}]
    assert {one["source"] for one in facts["inputs"]}.isdisjoint({"drawn"})


def test_stored_outputs_of_a_folder_are_checked(command: Command, tmp_path: Path, subtract: Path) -> None:
    options = given_as("folder", tmp_path)
    save_tensor(tmp_path / "plain" / "output_0.pb", FIRST - SECOND)
    assert "output matches the stored one (largest error 0)" in command("run", subtract, *options).out
    save_tensor(tmp_path / "plain" / "output_0.pb", FIRST)
    result = command("run", subtract, *options)
    assert one_line_error(result) == "output 'difference' does not match the stored one: largest error 5, relative 1.25"
    assert "ran in" in result.out


def test_what_is_not_given_is_drawn(command: Command, tmp_path: Path, subtract: Path) -> None:
    def outputs(*options: object) -> Any:
        return command("run", subtract, "--json", *options).json["outputs"]

    np.save(tmp_path / "first.npy", FIRST)
    assert outputs() == outputs("--seed", 0)
    assert outputs() != outputs("--seed", 1)
    assert outputs()[0]["shape"] == [1, 2]
    assert outputs("--dim", "N=5")[0]["shape"] == [5, 2]
    assert outputs("--dim", "N=0")[0] == {"name": "difference", "type": "float", "shape": [0, 2], "min": None, "mean": None, "max": None}
    # the other input follows the size of the one that is given
    assert outputs("--input", f"first={tmp_path}/first.npy")[0]["shape"] == [2, 2]


DRAWN_TYPES = [row.name for row in ELEMENT_TYPES if not row.name.startswith("float6")]


@pytest.mark.parametrize("name", DRAWN_TYPES)
def test_every_type_is_drawn_saved_and_read_again(command: Command, tmp_path: Path, name: str) -> None:
    row = BY_NAME[name]
    model = identity(tmp_path / "model.onnx", row.code)
    saved, again = tmp_path / "saved.npz", tmp_path / "again.npz"
    result = command("run", model, "--dim", "N=9", "--save", saved, "--json")
    assert (result.status, result.err) == (0, "")
    output = result.json["outputs"][0]
    assert (output["type"], output["shape"]) == (name, [9, 2])
    if row.kind in ("signed", "unsigned", "bool"):
        assert output["min"] >= 0
        assert 1 <= output["max"] <= 9
    with np.load(saved) as arrays:
        (key,) = arrays.files
        assert key == ("y" if row.dtype.type.__module__ == "numpy" else f"y@{name}")
        assert arrays[key].shape == (9, 2)
        assert arrays[key].dtype.kind == {"string": "U", "bool": "b"}.get(name, arrays[key].dtype.kind)
        np.savez(tmp_path / "feed.npz", **{key.replace("y", "x", 1): arrays[key]})
    command("run", model, "--inputs", tmp_path / "feed.npz", "--save", again)
    with np.load(saved) as one, np.load(again) as other:
        np.testing.assert_array_equal(one[key], other[key])


def test_arrays_that_numpy_saved_without_their_type(command: Command, tmp_path: Path) -> None:
    model = identity(tmp_path / "model.onnx", TensorProto.BFLOAT16)
    np.save(tmp_path / "x.npy", np.array([[1, 2]], ml_dtypes.bfloat16))
    assert np.load(tmp_path / "x.npy").dtype.kind == "V"
    output = command("run", model, "--input", tmp_path / "x.npy", "--json").json["outputs"][0]
    assert (output["type"], output["max"]) == ("bfloat16", 2.0)


def test_sequences_are_drawn_read_and_saved(command: Command, tmp_path: Path) -> None:
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, [3])
    x, y = (helper.make_value_info(name, helper.make_sequence_type_proto(inner)) for name in "xy")
    model = save_model(tmp_path / "model.onnx", [helper.make_node("Identity", ["x"], ["y"])], [x], [y])
    sequence = numpy_helper.from_list([np.ones(3, np.float32), np.zeros(3, np.float32)], "x")
    (tmp_path / "x.pb").write_bytes(sequence.SerializeToString())
    assert "seq(float)   2 items" in command("run", model).out
    assert command("run", model, "--input", tmp_path / "x.pb", "--save", tmp_path / "y.npz").status == 0
    with np.load(tmp_path / "y.npz") as arrays:
        assert {name: arrays[name].tolist() for name in arrays.files} == {"y[0]": [1, 1, 1], "y[1]": [0, 0, 0]}


def test_inputs_with_a_default_are_left_alone(command: Command, tmp_path: Path) -> None:
    one = numpy_helper.from_array(np.ones((1, 2), np.float32), "default")
    node = helper.make_node("Sub", ["x", "default"], ["y"])
    model = save_model(tmp_path / "model.onnx", [node], [value_info("default"), value_info("x")], [value_info("y")], [one])
    np.save(tmp_path / "two.npy", np.full((1, 2), 2, np.float32))
    facts = command("run", model, "--json", "--input", tmp_path / "two.npy").json
    assert [each["name"] for each in facts["inputs"]] == ["x"]
    assert facts["outputs"][0]["max"] == 1
    facts = command("run", model, "--json", "--input", tmp_path / "two.npy", "--input", f"default={tmp_path}/two.npy").json
    assert facts["outputs"][0]["max"] == 0


@pytest.fixture
def bad_files(tmp_path: Path) -> Path:
    """A folder of files that are not what they should be."""
    np.save(tmp_path / "good.npy", FIRST)
    np.savez(tmp_path / "good.npz", first=FIRST)
    np.savez(tmp_path / "many.npz", FIRST, FIRST, FIRST)
    np.savez(tmp_path / "misnamed.npz", third=FIRST)
    np.save(tmp_path / "double.npy", FIRST.astype(np.float64))
    np.save(tmp_path / "rank.npy", FIRST[0])
    np.save(tmp_path / "shape.npy", FIRST[:, :1])
    np.save(tmp_path / "objects.npy", np.array([{}, None]), allow_pickle=True)
    np.save(tmp_path / "fields.npy", np.zeros(2, "V3"))
    save_tensor(tmp_path / "good.pb", FIRST)
    for suffix in ("npy", "npz", "pb"):
        content = (tmp_path / f"good.{suffix}").read_bytes()
        (tmp_path / f"cut.{suffix}").write_bytes(content[: len(content) - 6])
        (tmp_path / f"empty.{suffix}").write_bytes(b"")
    (tmp_path / "npz.npy").write_bytes((tmp_path / "good.npz").read_bytes())
    (tmp_path / "npy.npz").write_bytes((tmp_path / "good.npy").read_bytes())
    np.savez(tmp_path / "objects.npz", first=np.array([{}, None]))
    for name in ("text.txt", "text.npy", "text.npz"):
        (tmp_path / name).write_text("1 2 3")
    (tmp_path / "folder").mkdir()
    save_tensor(tmp_path / "three" / "input_7.pb", FIRST)
    return tmp_path


INPUTS = "'first': float (N, 2), 'second': float (N, 2)"


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--input", "third=good.npy", f"the model has no input 'third'; its inputs: {INPUTS}"),
        ("--input", "2=good.npy", f"the model has no input number 2; its inputs: {INPUTS}"),
        ("--input", "first=nowhere.npy", "nowhere.npy: No such file or directory"),
        ("--input", "first=folder", "an input is a .npy or a .pb file"),
        ("--input", "first=text.txt", "text.txt: an input is a .npy or a .pb file"),
        ("--input", "first=cut.npy", "cut.npy: not a .npy file, or cut short"),
        ("--input", "first=empty.npy", "empty.npy: not a .npy file, or cut short"),
        ("--input", "first=npz.npy", "npz.npy: not a .npy file, or cut short: it is a .npz file"),
        ("--input", "first=objects.npy", "objects.npy: not a .npy file, or it holds Python objects, which are not read"),
        ("--input", "first=text.npy", "text.npy: not a .npy file, or it holds Python objects, which are not read"),
        ("--input", "first=fields.npy", "an array of NumPy dtype |V3 is of no known element type"),
        ("--input", "first=cut.pb", "cut.pb: not a tensor, or cut short"),
        ("--input", "first=empty.pb", "empty.pb: not a tensor, or cut short: it has no element type"),
        ("--input", "first=double.npy", "input 'first' has the element type double; declared: float"),
        ("--input", "first=rank.npy", "input 'first' has the shape [2]; declared: [N, 2]"),
        ("--input", "first=shape.npy", "input 'first' has the shape [2, 1]; declared: [N, 2]"),
        ("--inputs", "nowhere.npz", "nowhere.npz: No such file or directory"),
        ("--inputs", "cut.npz", "cut.npz: not a .npz file, or cut short"),
        ("--inputs", "empty.npz", "empty.npz: not a .npz file, or cut short"),
        ("--inputs", "objects.npz", "objects.npz: not a .npz file, or it holds Python objects, which are not read"),
        ("--inputs", "text.npz", "text.npz: not a .npz file, or it holds Python objects, which are not read"),
        ("--inputs", "npy.npz", "npy.npz: not a .npz file, or cut short: it is a .npy file"),
        ("--inputs", "misnamed.npz", f"misnamed.npz: the model has no input 'third'; its inputs: {INPUTS}"),
        ("--inputs", "many.npz", f"many.npz: arr_2: the model has no input number 2; its inputs: {INPUTS}"),
        ("--inputs", "folder", "folder: the folder has no input_0.pb"),
        ("--inputs", "three", f"input_7.pb: the model has no input number 7; its inputs: {INPUTS}"),
        ("--dim", "M=2", "--dim M=2: no input has a dimension 'M'; symbolic dimensions: N"),
        ("--dim", "N=-2", "--dim N=-2: it takes NAME=SIZE, the size a whole number"),
        ("--dim", "N", "--dim N: it takes NAME=SIZE, the size a whole number"),
        ("--dim", "N=2 N=3", "--dim N=3: the size of 'N' is given twice"),
        ("--input", "first=good.npy 0=good.pb", "--input 0=good.pb: input 'first' is given twice"),
        ("--dim", "N=9000000000000", "not enough memory: "),
    ],
    ids=lambda value: value if value.startswith("-") or "=" in value[:9] else "",
)
def test_bad_inputs(
    command: Command, monkeypatch: pytest.MonkeyPatch, bad_files: Path, subtract: Path, option: str, value: str, text: str
) -> None:
    monkeypatch.chdir(bad_files)
    result = command("run", subtract, *(part for one in value.split() for part in (option, one)))
    assert text in one_line_error(result)
    assert result.out == ""


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (value_info("x", shape=None), "input 'x' has no declared rank, so it cannot be drawn; give it with --input"),
        (helper.make_value_info("x", onnx.TypeProto()), "input 'x' is of a type that cannot be drawn (none declared)"),
    ],
    ids=["rank", "type"],
)
def test_inputs_that_cannot_be_drawn(command: Command, tmp_path: Path, declared: onnx.ValueInfoProto, text: str) -> None:
    model = save_model(tmp_path / "model.onnx", [helper.make_node("Identity", ["x"], ["y"])], [declared], [value_info("y", shape=None)])
    assert text in one_line_error(command("run", model))


def test_an_error_tells_what_was_drawn(command: Command, tmp_path: Path) -> None:
    inputs = [value_info("x", shape=[1, 3]), value_info("i", TensorProto.INT64, [50])]
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    model = save_model(tmp_path / "model.onnx", nodes, inputs, [value_info("y", shape=None)])
    assert "(drawn: x, i; --input NAME=FILE gives" in one_line_error(command("run", model))
    np.savez(tmp_path / "feed.npz", x=np.ones((1, 3), np.float32), i=np.ones(50, np.int64))
    assert "drawn" not in one_line_error(command("run", model, "--inputs", tmp_path / "feed.npz"))


@pytest.mark.parametrize("kind", ["empty", "cut", "text", "folder"])
def test_bad_models(command: Command, tmp_path: Path, subtract: Path, kind: str) -> None:
    content = {"empty": b"", "cut": subtract.read_bytes()[:40], "text": b"no model at all\n"}
    bad = tmp_path / "bad.onnx"
    bad.mkdir() if kind == "folder" else bad.write_bytes(content[kind])
    text = one_line_error(command("run", bad))
    assert "bad.onnx" in text


def test_a_model_that_cannot_run(command: Command, tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "x"], ["y"], name="product")
    model = save_model(tmp_path / "model.onnx", [node], [value_info("x", shape=[2, 3])], [value_info("y", shape=None)])
    assert "the shapes are [2, 3] and [2, 3]" in one_line_error(command("run", model))


# --------------------------------------------------------------------------------------------------------------- run: output


def test_the_tables(command: Command, tmp_path: Path, subtract: Path) -> None:
    result = command("run", subtract, *given_as("npz-by-name", tmp_path), "--profile", "--compare", "reference", "--repeat", 2)
    assert (result.status, result.err) == (0, "")
    squeezed = [" ".join(line.split()) for line in result.out.splitlines()]
    for line in (
        "subtract.onnx (opset 21), 1 node: 1 Sub",
        "input first: float (2, 2), named.npz",
        "output type shape min mean max",
        "difference float (2, 2) -1 0.875 2.5",
        "operator calls total ms share",
        "node by node, as without fusion and chains",
        "largest against reference absolute error relative error",
        "difference 0 0",
        "load run time ratio",
    ):
        assert line in squeezed
    assert re.search(r"^loaded in .+, ran in .+ \(the shortest of 2\)$", result.out, re.MULTILINE)
    assert re.search(r"^Sub 1 \d+\.\d{3} 100\.0%$", "\n".join(squeezed), re.MULTILINE)


def test_long_names_are_folded_and_not_taken_for_markup(command: Command, tmp_path: Path) -> None:
    name = "[bold]" + "very/long/name/" * 12
    node = helper.make_node("Identity", [name], ["y"])
    shape = [1] * 12
    model = save_model(tmp_path / "model.onnx", [node], [value_info(name, shape=shape)], [value_info("y", shape=shape)])
    result = command("run", model, "--compare", "reference", "--profile", "--save", tmp_path / "saved.npz")
    assert "[bold]" in result.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_control_characters_of_names_are_shown_escaped(command: Command, tmp_path: Path) -> None:
    name = "a\x1b[31mb\nc\x9bd\u202e"
    model = save_model(tmp_path / "model.onnx", [helper.make_node("Neg", ["x"], [name])], [value_info("x")], [value_info(name)])
    for arguments in (("run", model), ("check", model)):
        out = command(*arguments).out
        assert r"a\x1b[31mb\nc\x9bd\u202e" in out
        assert not set(name) & set("\x1b\x9b\u202e") & set(out)
    assert command("run", model, "--json").json["outputs"][0]["name"] == name
    assert "\x1b" not in one_line_error(command("run", tmp_path / "no\x1b[31m.onnx"))


def test_letters_that_stdout_has_not(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model.onnx", [helper.make_node("Neg", ["x"], ["größe"])], [value_info("x")], [value_info("größe")])
    code = f"import sys; from numbaops.cli import main; sys.exit(main(['run', {str(model)!r}]))"
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment(PYTHONIOENCODING="ascii"), capture_output=True, timeout=120, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert rb"gr\xf6\xdfe" in result.stdout


def test_a_time_with_compilation_says_so(command: Command, monkeypatch: pytest.MonkeyPatch, subtract: Path) -> None:
    counts = iter((3, 5, 5, 6, 6, 6))
    monkeypatch.setattr(jit, "compiled", lambda: next(counts))
    assert re.search(
        r"ran in \S+ \w+; 2 kernels were compiled in it, later runs are faster$", " ".join(command("run", subtract).out.split())
    )
    assert command("run", subtract, "--json").json["compiled"] == 1
    assert "compiled" not in command("run", subtract).out


@pytest.mark.parametrize(("options", "runs"), [([], 1), (["--repeat", 2], 1 + 11 + 2), (["--compare", "reference"], 1 + 11 + 3)])
def test_runs_that_are_compared_are_warm(
    command: Command, monkeypatch: pytest.MonkeyPatch, subtract: Path, options: list[object], runs: int
) -> None:
    count = 0
    once = run_module._run_once

    def counted(*arguments: Any) -> list[Any]:
        nonlocal count
        count += 1
        return once(*arguments)

    monkeypatch.setattr(run_module, "_run_once", counted)
    monkeypatch.setattr(run_module, "_SETTLING_SECONDS", 60.0)
    assert command("run", subtract, *options).status == 0
    assert count == runs


def test_profile_counts_the_nodes_inside_others(command: Command, tmp_path: Path) -> None:
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"])], "t", [], [value_info("b")])
    other = helper.make_graph([helper.make_node("Relu", ["x"], ["c"])], "e", [], [value_info("c")])
    node = helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other)
    yes = numpy_helper.from_array(np.array(True), "yes")
    model = save_model(tmp_path / "model.onnx", [node], [value_info("x")], [value_info("y")], [yes])
    facts = command("run", model, "--profile", "--json").json
    assert facts["nodes"] == {"Neg": 2, "If": 1, "Relu": 1}
    assert {one["operator"]: one["calls"] for one in facts["profile"]} == {"If": 1, "Neg": 2}
    assert [one["seconds"] for one in facts["profile"]] == sorted((one["seconds"] for one in facts["profile"]), reverse=True)
    assert sum(one["share"] for one in facts["profile"]) == pytest.approx(1)


@pytest.mark.parametrize("name", ["run", "fold", "compact"])
def test_external_data_that_are_missing(command: Command, tmp_path: Path, name: str) -> None:
    weight = numpy_helper.from_array(np.ones((1, 2), np.float32), "w")
    model = save_model(tmp_path / "m.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], [value_info("x")], [value_info("y")], [weight])
    onnx.save(onnx.load(model), model, save_as_external_data=True, size_threshold=0, location="weights")
    assert command("run", model, "--compare", "reference").status == 0
    (tmp_path / "weights").unlink()
    text = one_line_error(command(name, model, *([] if name == "run" else [tmp_path / "out.onnx"])))
    assert text.endswith(f"tensor 'w': external data cannot be read: there is no such file: {tmp_path / 'weights'}")


def test_the_reference_reads_the_file_too(subtract: Path) -> None:
    """Or its time to load would be for less work than ours."""
    (answer,) = load_peer("reference", onnx.ModelProto(), subtract, asked="")({"first": FIRST, "second": SECOND})
    assert answer.tolist() == (FIRST - SECOND).tolist()


@pytest.mark.parametrize("peer", ["reference", "onnxruntime"])
def test_compare(command: Command, subtract: Path, peer: str) -> None:
    if peer == "onnxruntime":
        pytest.importorskip("onnxruntime")
    facts = command("run", subtract, "--compare", peer, "--json").json
    compared = facts["compare"]
    assert facts["runs"] == 3
    assert compared["with"] == peer
    assert compared["outputs"][0]["largest_absolute_error"] == 0
    assert compared["time_ratio"] == pytest.approx(facts["run_seconds"] / compared["run_seconds"])


@pytest.mark.parametrize("name", ["bfloat16", "float8e4m3fn", "float16", "string", "bool"])
def test_onnxruntime_takes_and_gives_types_that_numpy_lacks(command: Command, tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnxruntime")
    model = identity(tmp_path / "model.onnx", BY_NAME[name].code)
    facts = command("run", model, "--compare", "onnxruntime", "--repeat", 1, "--json").json
    assert [one["matches"] for one in facts["compare"]["outputs"]] == [True]


def test_a_peer_that_cannot_run_the_model(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = identity(tmp_path / "model.onnx", TensorProto.COMPLEX64)
    assert one_line_error(command("run", model, "--compare", "onnxruntime")).startswith("--compare onnxruntime: it cannot load the model: ")
    model = identity(tmp_path / "model.onnx", TensorProto.INT4)
    assert "--compare onnxruntime: it " in one_line_error(command("run", model, "--compare", "onnxruntime"))


def test_compare_without_onnxruntime(command: Command, monkeypatch: pytest.MonkeyPatch, subtract: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    text = one_line_error(command("run", subtract, "--compare", "onnxruntime"))
    assert text == "--compare onnxruntime: ONNX Runtime is not installed: pip install onnxruntime"


def test_save_names_and_order(command: Command, tmp_path: Path) -> None:
    names = ["file", "a/b", "arr_0"]
    nodes = [helper.make_node("Identity", ["x"], [name]) for name in names]
    model = save_model(tmp_path / "model.onnx", nodes, [value_info("x")], [value_info(name) for name in names])
    target = tmp_path / "saved.npz"
    target.write_bytes(b"something older")
    assert "file, a/b, arr_0" in command("run", model, "--save", target).out
    with np.load(target) as arrays:
        assert arrays.files == names
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "saved.npz"]


def test_save_follows_a_link(command: Command, tmp_path: Path, subtract: Path) -> None:
    (tmp_path / "link.npz").symlink_to(tmp_path / "real.npz")
    assert command("run", subtract, "--save", tmp_path / "link.npz").status == 0
    assert (tmp_path / "link.npz").is_symlink()
    assert (tmp_path / "real.npz").is_file()


def test_the_inputs_are_not_overwritten(command: Command, tmp_path: Path, subtract: Path) -> None:
    np.savez(tmp_path / "both.npz", first=np.ones((2, 3), np.float32), second=np.ones((2, 3), np.float32))
    before = (tmp_path / "both.npz").read_bytes()
    result = command("run", subtract, "--inputs", tmp_path / "both.npz", "--save", tmp_path / "both.npz")
    assert "the inputs are read from there" in one_line_error(result)
    assert (tmp_path / "both.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "text"),
    [(["--seed", "-1"], "--seed -1: allowed"), (["--dim", f"N={2**63}"], f"--dim N={2**63}: it takes")],
    ids=["seed", "dim"],
)
def test_numbers_out_of_range_name_their_option(command: Command, subtract: Path, options: list[str], text: str) -> None:
    assert text in one_line_error(command("run", subtract, *options))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("nowhere/saved.npz", "there is no folder"),
        (".", "not a regular file"),
        ("/dev/null", "/dev/null: not a regular file"),
        ("/proc/saved.npz", "/proc/saved.npz: no file can be written there"),
        ("subtract.onnx", "ends in .npz"),
        ("saved.npy", "ends in .npz"),
        ("protected.npz", "protected.npz: the file is write-protected"),
    ],
    ids=["folder", "a-folder", "device", "not-writable", "the-model", "other-ending", "protected"],
)
def test_where_nothing_can_be_saved_nothing_runs(command: Command, tmp_path: Path, subtract: Path, target: str, text: str) -> None:
    if target.startswith("/") and not Path(target).parent.exists():
        pytest.skip(f"needs {Path(target).parent}")
    (tmp_path / "protected.npz").touch(mode=0o444)
    result = command("run", subtract, "--save", tmp_path / target)
    assert text in one_line_error(result)
    assert result.out == ""


def test_a_save_that_fails_leaves_nothing(command: Command, tmp_path: Path) -> None:
    model = identity(tmp_path / "model.onnx", TensorProto.STRING)
    np.savez(tmp_path / "feed.npz", x=np.array([["a", "b"]]))
    target = tmp_path / "saved.npz"
    target.write_bytes(b"something older")

    save_tensor(tmp_path / "nul.pb", np.array([["a", "b\0"]], object))
    result = command("run", model, "--input", tmp_path / "nul.pb", "--save", target)
    assert one_line_error(result) == "output 'y' has a string that ends with a NUL, which a .npz file cannot hold"
    assert target.read_bytes() == b"something older"
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_no_progress_bar_without_a_terminal(subtract: Path) -> None:
    assert process("run", subtract).stderr == ""


def test_no_count_before_the_number_of_all_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with steps("chunks") as show:
        pass
    assert "chunks" in terminal.getvalue() and "None" not in terminal.getvalue()
    with steps("chunks") as show:
        show(1, 3, "")
    assert "1/3" in terminal.getvalue()


def test_progress_bar_on_a_terminal(subtract: Path) -> None:
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    done = process("run", subtract, "--repeat", 2, stderr=follower)
    os.close(follower)
    shown = os.read(leader, 100_000).decode()
    os.close(leader)
    assert done.returncode == 0
    assert "run 2 of 2" in shown
    assert "run 2 of 2" not in done.stdout


# ------------------------------------------------------------------------------------------------------- ops, info, warmup


def test_ops_table_is_whole_at_80_columns(command: Command) -> None:
    result = command("ops")
    assert result.status == 0
    assert max(map(len, result.out.splitlines())) <= 80
    words = set(re.findall(r"\w+", result.out))
    types = {row.name for row in ELEMENT_TYPES if not row.name.startswith("float6")}
    assert types <= words
    assert {"Constant", "ConstantOfShape", "EyeLike", "sparse_value", "value_strings", "dtype", "k"} <= words


def test_ops_json(command: Command) -> None:
    facts = command("ops", "--json").json
    assert [(one["operator"], one["since_version"]) for one in facts if one["operator"] == "EyeLike"] == [("EyeLike", 9), ("EyeLike", 22)]
    newest = next(one for one in facts if (one["operator"], one["since_version"]) == ("EyeLike", 22))
    assert "bfloat16" in newest["inputs"]["input"]
    assert "bfloat16" in newest["outputs"]["output"]
    assert newest["attributes"]["k"] == {"type": "INT", "required": False, "default": 0}
    assert newest["optional_inputs"] == []
    assert {one["domain"] for one in facts} == {"ai.onnx"}
    assert [one["optional_inputs"] for one in facts if one["operator"] == "QuantizeLinear"] == [["y_zero_point"]] * 8


def test_info(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBAOPS_CACHE_DIR", str(tmp_path / "new" / "cache"))
    monkeypatch.setenv("NUMBAOPS_NUM_THREADS", "1")
    table = command("info")
    assert max(map(len, table.out.splitlines())) <= 80
    facts = command("info", "--json").json
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["threads"] == 1
    assert facts["cache"] == {"folder": str(tmp_path / "new" / "cache"), "writable": True}
    assert isinstance(facts["memory"]["recycling"], bool)
    assert isinstance(facts["cpu"]["features"], list)
    for name in (*facts["versions"], "processor", "threads", "cache folder", "memory recycling"):
        assert re.search(rf"^{name}\b", table.out, re.MULTILINE)
    assert not (tmp_path / "new").exists()


def test_info_says_that_the_cache_cannot_be_written(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBAOPS_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert "(not writable)" in " ".join(command("info").out.split())
    assert command("info", "--json").json["cache"]["writable"] is False


@pytest.fixture
def four_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm-up that compiles one kernel and finds three in the cache."""

    def warm_up(progress: Callable[[int, int, str], None]) -> tuple[int, int]:
        for done in range(4):
            progress(done, 4, "fill")
        progress(4, 4, "")
        return 1, 3

    monkeypatch.setattr(jit, "warm_up", warm_up)


@pytest.mark.usefixtures("four_kernels")
def test_warmup(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBAOPS_CACHE_DIR", "replaced")  # and put back at the end
    facts = command("warmup", "--cache-dir", tmp_path / "kernels", "--json").json
    assert (facts["compiled"], facts["cached"], facts["folder"]) == (1, 3, str(tmp_path / "kernels"))
    result = command("warmup", "--cache-dir", tmp_path / "kernels")
    assert " ".join(result.out.split()).startswith("compiled 1 kernel, 3 were cached already, in ")
    assert (tmp_path / "kernels").is_dir()


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="there is nothing to compile")
def test_warmup_for_a_model(tmp_path: Path) -> None:
    """In processes of their own: the second one finds what the first one compiled."""
    weights = ", ".join(["0.5"] * 576)
    text = f"g (float[N,8,32,32] x) => (y) <float[8,8,3,3] w = {{{weights}}}> {{ a = Conv(x, w)  y = Relu(a) }}"
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    onnx.save(made, tmp_path / "m.onnx")
    code = f"from numbaops.cli import main; main(['warmup', {str(tmp_path / 'm.onnx')!r}, '--dim', 'N=2', '--json'])"
    found = [json.loads(run_python(code, NUMBAOPS_CACHE_DIR=str(tmp_path / "kernels"))) for _ in range(2)]
    assert [facts["compiled"] > 0 for facts in found] == [True, False]
    assert "cached" not in found[0]


def test_warmup_with_sizes_and_no_model(command: Command) -> None:
    assert one_line_error(command("warmup", "--dim", "N=2")) == "--dim needs a MODEL"


@pytest.mark.usefixtures("four_kernels")
def test_warmup_without_a_cache_folder_is_an_error(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBAOPS_CACHE_DIR", "replaced")
    (tmp_path / "file").touch()
    text = one_line_error(command("warmup", "--cache-dir", tmp_path / "file" / "kernels"))
    assert text.startswith(f"the cache folder {tmp_path}/file/kernels cannot be written")


# ---------------------------------------------------------------------------------------------------------------- arithmetic


float32, int64, uint8, uint64, complex64 = (
    partial(np.array, dtype=dtype) for dtype in (np.float32, np.int64, np.uint8, np.uint64, np.complex64)
)


@pytest.mark.parametrize(
    ("ours", "theirs", "absolute", "relative", "matches"),
    [
        (float32([1, 2]), float32([1, 4]), 2, 0.5, False),
        (float32([1, 2]), float32([0, 2]), 1, 0, False),
        (float32([NAN, INFINITY, -INFINITY]), float32([NAN, INFINITY, -INFINITY]), 0, 0, True),
        (float32([NAN]), float32([1]), INFINITY, INFINITY, False),
        (float32([INFINITY]), float32([-INFINITY]), INFINITY, INFINITY, False),
        (float32([1]), float32([INFINITY]), INFINITY, INFINITY, False),
        (int64([2**62 + 1, -(2**63)]), int64([2**62, -(2**63)]), 1, 2.0**-62, True),
        (int64([2**63 - 1]), int64([-(2**63)]), 2.0**64, 2.0, False),
        (uint8([0, 255]), uint8([255, 0]), 255, 1, False),
        (np.array([True, False]), np.array([True, True]), 1, 1, False),
        (complex64([3 + 4j]), complex64([0]), 5, 0, False),
        (np.array([1, 2], ml_dtypes.int4), np.array([1, -2], ml_dtypes.int4), 4, 2, False),
        (np.array([1.5], ml_dtypes.float8_e5m2), np.array([1], ml_dtypes.float8_e5m2), 0.5, 0.5, True),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0, 0, True),
        ([float32([1]), float32([2])], [float32([1]), float32([4])], 2, 0.5, False),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), None, None, False),
    ],
    ids=[
        "float",
        "zero",
        "same-specials",
        "nan",
        "infinities",
        "one-infinity",
        "int64",
        "int64-limits",
        "uint8",
        "bool",
        "complex",
        "int4",
        "float8",
        "empty",
        "sequence",
        "string",
    ],
)
def test_difference(ours: Any, theirs: Any, absolute: float | None, relative: float | None, matches: bool) -> None:
    found = difference(ours, theirs)
    assert (found.absolute, found.relative) == (absolute, relative)
    assert found.matches is matches
    assert difference(ours, ours).matches


@pytest.mark.parametrize(
    ("array", "least", "mean", "most"),
    [
        (float32([1, 2, 6]), 1, 3, 6),
        (float32([1, NAN]), NAN, NAN, NAN),
        (float32([-INFINITY, 1]), -INFINITY, -INFINITY, 1),
        (uint64([2**64 - 1]), 2**64 - 1, 2.0**64, 2**64 - 1),
        (np.array([True, False]), 0, 0.5, 1),
        (np.array([-8, 7], ml_dtypes.int4), -8, -0.5, 7),
        (np.float32(2), 2, 2, 2),
        (np.zeros(0), None, None, None),
        (complex64([1]), None, None, None),
        (np.array(["a"], object), None, None, None),
    ],
    ids=["float", "nan", "infinity", "uint64", "bool", "int4", "scalar", "empty", "complex", "string"],
)
def test_statistics(array: Any, least: Any, mean: Any, most: Any) -> None:
    np.testing.assert_equal(statistics(array), {"min": least, "mean": mean, "max": most})


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (12, "12"), (10**12, "1e+12"), (0.5, "0.5"), (1 / 3, "0.3333"), (NAN, "nan"), (-INFINITY, "-inf")]
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(2.5e-6, "2.5 us"), (0.0123, "12.3 ms"), (1.234, "1.23 s"), (321.4, "321 s")])
def test_seconds(value: float, text: str) -> None:
    assert seconds(value) == text
