"""The gate: which benchmarks it compares, what it takes from asv's tables, and its configuration."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import benchmarks
import pytest
from benchmarks import gate

PROJECT = Path(__file__).resolve().parents[1]


def benchmark_names() -> Iterator[str]:
    """Every timed benchmark with its parameters, as asv writes it."""
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name.startswith("bench_"):
            for name, kind in inspect.getmembers(importlib.import_module(f"benchmarks.{module.name}"), inspect.isclass):
                if kind.__module__ == f"benchmarks.{module.name}":
                    params = getattr(kind, "params", ())
                    for method in (method for method in dir(kind) if method.startswith("time_")):
                        for values in itertools.product(*params):
                            given = f"({', '.join(map(repr, values))})" if params else ""
                            yield f"{module.name}.{name}.{method}{given}"


def test_each_pattern_of_the_gate_finds_benchmarks() -> None:
    names = list(benchmark_names())
    found = {pattern: sum(re.search(pattern, name) is not None for name in names) for pattern in gate.GATED}
    assert all(found.values()), found
    assert 40 <= sum(found.values()) <= 60  # enough to see, few enough for ten minutes


TABLE = """
| Change   | Before [1bf17de2] <main>   | After [40adf6ec] <slow>   |   Ratio | Benchmark (Parameter)                            |
|----------|----------------------------|---------------------------|---------|--------------------------------------------------|
| +        | 26.7±0.1μs                 | 52.7±0.2μs                |    1.97 | bench_ops.EyeLike.time_new('float', 4096)        |
| +        | 255±5μs                    | 510±5μs                   |    2    | bench_dispatch.Resolve.time_resolve              |
| -        | 255±5μs                    | 110±5μs                   |    0.43 | bench_dispatch.Bind.time_bind(None)              |

SOME BENCHMARKS HAVE CHANGED SIGNIFICANTLY.
PERFORMANCE DECREASED.
"""


def test_what_asv_finds_slower() -> None:
    assert gate.slower(TABLE) == ["bench_ops.EyeLike.time_new('float', 4096)", "bench_dispatch.Resolve.time_resolve"]
    assert gate.slower("BENCHMARKS NOT SIGNIFICANTLY CHANGED.\n") == []


def test_configuration_has_one_environment(tmp_path: Path) -> None:
    settings = json.loads(gate.configuration("3.11", tmp_path).read_text("utf-8"))
    assert settings["pythons"] == ["3.11"]
    assert {len(versions) for versions in settings["matrix"]["req"].values()} == {1}
    assert Path(settings["benchmark_dir"]) == PROJECT / "benchmarks"


@pytest.mark.parametrize(
    ("runs", "code", "benches"),
    [
        ([(0, [])], 0, [gate.GATED]),
        ([(1, ["a.b(1)"]), (0, [])], 0, [gate.GATED, [r"^a\.b\(1\)$"]]),
        ([(1, ["a.b(1)"]), (1, ["a.b(1)"])], 1, [gate.GATED, [r"^a\.b\(1\)$"]]),
        ([(2, [])], 2, [gate.GATED]),
        ([(1, [])], 1, [gate.GATED]),
    ],
    ids=["nothing", "once only", "twice", "asv fails", "no suite"],
)
def test_only_what_is_slower_twice_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    runs: list[tuple[int, list[str]]],
    code: int,
    benches: list[list[str]],
) -> None:
    asked: list[list[str]] = []

    def compare(config: Path, base: str, head: str, names: list[str], rounds: int, factor: float) -> tuple[int, list[str]]:
        assert (base, head, factor) == ("one", "two", 1.3)
        asked.append(names)
        return runs[len(asked) - 1]

    monkeypatch.setattr(gate, "compare", compare)
    monkeypatch.setattr(gate.subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(sys, "argv", ["gate", "one", "two"])
    assert gate.main() == code
    assert asked == benches
    last = {0: "slower: nothing", 1: "slower: a.b(1)"} if code < 2 and runs[0] != (1, []) else {code: f"asv failed with exit code {code}"}
    assert capsys.readouterr().out.splitlines()[-1] == last[code]
