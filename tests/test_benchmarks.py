"""The table of what the benchmarks compare: each call gives the right answer, for small sizes."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import pkgutil
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import benchmarks
import numpy as np
import pytest
from benchmarks.peers import PEERS, Case, build

PROJECT = Path(__file__).parents[1]
SQUARE = (8, 64)
CASES: dict[str, list[Case]] = {
    "Constant": [Case("Constant", SQUARE), Case("Constant", SQUARE, "float8e4m3fn")],
    "ConstantOfShape": [Case("ConstantOfShape", SQUARE, kind, value) for kind in ("float", "double", "float8e4m3fn") for value in (0, 1)],
    "EyeLike": [Case("EyeLike", SQUARE, kind) for kind in ("float", "int8", "bfloat16")],
    **{name: [Case(name, SQUARE, kind) for kind in ("int4", "int2")] for name in ("pack", "unpack")},
    **{name: [Case(name, SQUARE, kind) for kind in ("bfloat16", "float8e4m3fn", "int4")] for name in ("from_array", "to_array")},
    "Cast": [
        Case("Cast", SQUARE, target, source=source, packed=packed)
        for source, target, packed in (
            ("float", "float8e4m3fn", False),
            ("float8e4m3fn", "float", False),
            ("float", "float8e8m0", False),
            ("float", "float16", False),
            ("bfloat16", "float", False),
            ("float", "int4", False),
            ("float", "int4", True),
            ("int4", "float", True),
            ("float", "float4e2m1", True),
        )
    ],
    **{
        name: [
            Case(name, SQUARE, kind, granularity=granularity, packed=packed)
            for kind, granularity, packed in (
                ("int8", "tensor", False),
                ("uint8", "axis 0", False),
                ("int8", "axis 1", False),
                ("int4", "block 32", False),
                ("int4", "block 32", True),
                ("float8e4m3fn", "tensor", False),
            )
        ]
        for name in ("QuantizeLinear", "DequantizeLinear")
    },
    **{name: [Case(name, (16, 32))] for name in ("Add", "Softmax", "ReduceMean", "MatMul", "Conv", "MaxPool")},
    **{name: [Case(name, (4, 4))] for name in ("8-node shape subgraph", "1000 Adds", "Loop of 1000 x 5 nodes")},
}
"""Of each operation of the table."""


def combinations() -> Iterator[tuple[str, Case]]:
    for operation, implementations in PEERS.items():
        for case in CASES[operation]:
            yield from ((implementation, case) for implementation in implementations)


def name_of(value: object) -> str:
    if isinstance(value, Case):
        special = value.granularity if "Quantize" in value.operation else value.source if value.operation == "Cast" else f"{value.value:g}"
        return f"{value.operation}-{value.element_type}-{special}{'-packed' * value.packed}"
    return str(value)


@pytest.mark.parametrize(("implementation", "case"), list(combinations()), ids=name_of)
def test_each_call_of_the_table_gives_the_right_answer(implementation: str, case: Case) -> None:
    try:
        build(case, implementation)
    except NotImplementedError as error:
        assert not implementation.startswith("numbaops")
        pytest.skip(str(error))


def test_a_wrong_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("ConstantOfShape", (4, 4))
    for wrong in (np.zeros((4, 4), np.float32), np.ones((4, 5), np.float32), np.ones((4, 4), np.float64)):
        monkeypatch.setitem(PEERS["ConstantOfShape"], "numpy", lambda case, wrong=wrong: lambda: wrong)
        with pytest.raises(AssertionError):
            build(case, "numpy")


# Every benchmark of the asv suite


def test_modules_load_in_an_environment_of_asv() -> None:
    """It imports all of them there, with nothing but the packages that its configuration lists and what those need."""
    listed = json.loads((PROJECT / "asv.conf.json").read_text("utf-8"))["matrix"]["req"]
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {re.match(r"\w+", requirement)[0] for each in extras.values() for requirement in each}  # type: ignore[index]
    code = f"""
        import importlib, pkgutil, sys
        sys.modules.update(dict.fromkeys({sorted({*names, "distributed"} - {*listed, "numbaops"})}))
        import benchmarks
        for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=PROJECT, check=True)


TOOLS = [
    path.stem.replace("__main__", "report")
    for path in sorted([*Path(*benchmarks.__path__).glob("*.py"), Path(*benchmarks.__path__, "report", "__main__.py")])
    if "__main__" in path.read_text("utf-8")
]


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_have_help(tool: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{tool}", "--help"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:6], done.stderr) == (0, "usage:", "")


@pytest.mark.parametrize("tool", ["acceptance", "models", "node_cases"])
def test_a_file_that_cannot_be_written_is_an_error_before_measuring(tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        importlib.import_module(f"benchmarks.{tool}").main(["--json", str(tmp_path / "nowhere" / "figures.json")])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--seconds", "-1"], "--seconds: invalid positive value: '-1'"),
        (["--seconds", "inf"], "'inf'"),
        (["--seconds", "nan"], "'nan'"),
        (["--filter", "nosuchmodel"], "no model has 'nosuchmodel' in its name"),
        (["--fetch", f"{__file__}/x"], "Not a directory"),
    ],
    ids=["negative", "infinite", "no number", "no such model", "no folder"],
)
def test_wrong_arguments_are_errors_before_measuring(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        importlib.import_module("benchmarks.models").main(arguments)
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == "" and text in printed.err.splitlines()[-1]


def test_a_folder_without_models_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no \*\.onnx in"):
        importlib.import_module("benchmarks.models").main(["--models", str(tmp_path)])


SUITE = [
    pytest.param(kind, method, id=f"{module.name.removeprefix('bench_')}.{name}.{method}")
    for module in pkgutil.iter_modules(benchmarks.__path__)
    if module.name.startswith("bench_")
    for name, kind in inspect.getmembers(importlib.import_module(f"benchmarks.{module.name}"), inspect.isclass)
    if kind.__module__ == f"benchmarks.{module.name}"
    for method in dir(kind)
    if method.startswith(("time_", "timeraw_", "track_", "peakmem_"))
]
SAMPLE = 4


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), SUITE)
def test_each_benchmark_runs(kind: type[Any], method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with some of its parameters; what asv would skip may be left out, but not all of it."""
    monkeypatch.setenv("NUMBAOPS_NUM_THREADS", "1")  # the benchmarks set it: put back afterwards
    every = list(itertools.product(*getattr(kind, "params", ())))
    small = [values for values in every if 16777216 not in values] or every
    done = 0
    for values in small[:: -(-len(small) // SAMPLE)]:
        benchmark = kind()
        try:
            getattr(benchmark, "setup", lambda *_: None)(*values)
            result = getattr(benchmark, method)(*values)
        except NotImplementedError:
            continue
        finally:
            getattr(benchmark, "teardown", lambda *_: None)(*values)
        assert method.startswith(("time_", "peakmem_")) or result is not None
        done += 1
    assert done
