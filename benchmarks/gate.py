"""Compares two commits and fails when the later one is slower: ``python -m benchmarks.gate BASE HEAD [--factor 1.3]``.

``asv continuous`` measures the gated benchmarks in rounds that alternate between the commits. What it finds to be slower is measured once
more, in more rounds, and counts only if it is found again: a busy machine slows something down in most runs, but hardly the same thing
twice. The exit code is asv's own, of the last comparison.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]

GATED = [
    r"^bench_dispatch\.(Resolve|Call|NewShape)\.",
    r"^bench_dispatch\.Function\.time_call\('constant_of_shape_value'\)",
    r"^bench_ops\.ConstantOfShape\.time_new\('float', (4096|1048576), [01]\)",
    r"^bench_ops\.ConstantOfShape\.time_new\('float', 16777216, 1\)",
    r"^bench_ops\.EyeLike\.time_new\('float', (4096|1048576)\)",
    r"^bench_cast\.Cast\.time_cast\('float', '(float8e4m3fn|float4e2m1)', (8|1048576)\)",
    r"^bench_cast\.CastBack\.time_cast\('(float8e4m3fn|bfloat16)', 'float', (8|1048576)\)",
    r"^bench_convert\.Packing\.time_packing\('(pack|unpack)', 'int4', 4096\)",
    r"^bench_quantization\.Quantization\.time_quantization\('\w+', 'int(8|4)', '(tensor|block 32)', 1048576\)",
    r"^bench_pooling\.Pools\.time_pool\('(MaxPool|AveragePool)', '480x28x28 k3'\)",
    r"^bench_engine\.Graphs\.time_run\('numbaops_evaluator'",
    r"^bench_engine\.Load\.time_load$",
    r"^bench_engine\.LightModels\.time_run\('light_(resnet50|squeezenet)'\)",
]
"""Patterns of the benchmarks whose times are compared: steady and quick ones, for each part of the package (1 s each a round)."""

ROUNDS, AGAIN = 3, 6
SLOWER = re.compile(r"^\|\s*\+\s*\|.*\|\s*[\d.]+\s*\|\s*(?P<name>\w[^|]*?)(?:\s\[[^|]*\])?\s*\|$", re.MULTILINE)
"""A line of asv's table about a benchmark that takes longer."""


def configuration(python: str, folder: Path) -> Path:
    """``asv.conf.json`` for one Python and the newest packages, in a folder."""
    settings = json.loads((PROJECT / "asv.conf.json").read_text("utf-8"))
    settings["pythons"] = [python]
    settings["matrix"] = {"req": {name: versions[:1] for name, versions in settings["matrix"]["req"].items()}}
    for name in ("repo", "benchmark_dir", "env_dir", "results_dir", "html_dir"):
        settings[name] = str(PROJECT / settings[name])
    path = folder / "asv.conf.json"
    path.write_text(json.dumps(settings), "utf-8")
    return path


def compare(config: Path, base: str, head: str, benchmarks: list[str], rounds: int, factor: float) -> tuple[int, list[str]]:
    """Exit code of ``asv continuous``, and the benchmarks that take more than ``factor`` times as long in ``head``."""
    command = [sys.executable, "-m", "asv", "continuous", "--config", str(config), "--factor", str(factor), "--split", "--show-stderr"]
    command += ["--interleave-rounds", "-a", f"rounds={rounds}", *(part for name in benchmarks for part in ("--bench", name)), base, head]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    return process.wait(), slower("".join(lines))


def slower(output: str) -> list[str]:
    """The benchmarks, with their parameters, that asv's table marks as slower."""
    return [found["name"] for found in SLOWER.finditer(output)]


def main(arguments: list[str] | None = None) -> int:
    """Compare; 0 if nothing is slower."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description="Fails when a commit is slower than another one.")
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("head", help="the commit that may be slower")
    parser.add_argument("--factor", type=float, default=1.3, help="slower is what takes more than so many times as long (%(default)s)")
    parser.add_argument("--bench", action="append", metavar="REGEX", help="instead of the gated benchmarks")
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}", help="version, by default this one")
    options = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as folder:
        config = configuration(options.python, Path(folder))
        subprocess.run([sys.executable, "-m", "asv", "machine", "--yes", "--config", str(config)], check=True, stdout=subprocess.DEVNULL)
        code, found = compare(config, options.base, options.head, options.bench or GATED, ROUNDS, options.factor)
        if code == 1 and found:
            print(f"\nOnce more, in {AGAIN} rounds: {len(found)} that took longer\n", flush=True)
            again = [f"^{re.escape(name)}$" for name in found]
            code, found = compare(config, options.base, options.head, again, AGAIN, options.factor)
    failed = code != bool(found)  # 1 is slower, or the suite could not be loaded
    print(f"\nasv failed with exit code {code}" if failed else f"\nslower: {', '.join(found) or 'nothing'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
