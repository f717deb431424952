"""What the record holds, and measuring it: each group in a process of its own, with a fixed number of threads for all libraries."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..common import PAUSE, Thunk, available_cpus, cpu_name, in_turn, page_faults, set_threads, square, summary
from ..peers import PEERS, Case, build
from ..peers.graphs import GRAPHS

Record = dict[str, Any]
Row = dict[str, Any]

SIZES = (16, 256, 4096, 65536, 1 << 20, 1 << 24)
IMAGES = (64, 1024, 16384, 65536)
FACTORS = (16, 256, 4096, 65536, 1 << 20)
_SHARED = ("numbaops", "numbaops_evaluator", "onnx_reference", "onnxruntime", "numpy")
_NODES = ("numbaops_evaluator", "onnx_reference", "onnxruntime", "numpy")

OPERATIONS: list[tuple[str, Case, tuple[int, ...], tuple[str, ...]]] = [
    ("Constant", Case("Constant", (0, 0)), SIZES, _SHARED),
    ("ConstantOfShape", Case("ConstantOfShape", (0, 0), value=1.5), SIZES, (*_SHARED, "numpy_view")),
    ("EyeLike", Case("EyeLike", (0, 0)), SIZES, (*_SHARED, "numpy_view")),
    ("float to float8e4m3fn", Case("Cast", (0, 0), "float8e4m3fn"), SIZES, (*_SHARED, "ml_dtypes")),
    ("float8e4m3fn to float", Case("Cast", (0, 0), "float", source="float8e4m3fn"), SIZES, (*_SHARED, "ml_dtypes")),
    ("TensorProto of int4 to array", Case("to_array", (0, 0), "int4"), SIZES, ("numbaops", "onnx_numpy_helper")),
    ("array of int4 to TensorProto", Case("from_array", (0, 0), "int4"), SIZES, ("numbaops", "onnx_numpy_helper")),
    ("QuantizeLinear, int8", Case("QuantizeLinear", (0, 0), "int8"), SIZES, _SHARED),
    ("QuantizeLinear, int4 in blocks", Case("QuantizeLinear", (0, 0), "int4", granularity="block 32"), SIZES[2:], _SHARED),
    ("DequantizeLinear, int8", Case("DequantizeLinear", (0, 0), "int8"), SIZES, _SHARED),
    ("Add", Case("Add", (0, 0)), SIZES, _NODES),
    ("Softmax", Case("Softmax", (0, 0)), SIZES, _NODES),
    ("ReduceMean", Case("ReduceMean", (0, 0)), SIZES, _NODES),
    ("MatMul, square matrices", Case("MatMul", (0, 0)), FACTORS, _NODES),
    ("Conv 3 x 3, 16 channels", Case("Conv", (0, 0)), IMAGES, _NODES),
    ("MaxPool 2 x 2, 16 channels", Case("MaxPool", (0, 0)), IMAGES, _NODES),
]
"""A panel each: its title, what is computed but for the shape, sizes of the matrix or image in elements, and who takes part."""

CONVERSIONS = [
    ("float", "float8e4m3fn", False),
    ("float8e4m3fn", "float", False),
    ("float", "bfloat16", False),
    ("bfloat16", "float", False),
    ("float", "float4e2m1", True),
    ("float4e2m1", "float", True),
    ("float", "int4", True),
    ("int4", "float", True),
]
"""Source, target, and whether the narrow side is packed."""
LARGE = (8192, 4096)


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seconds: for each call, over all rounds.
        rounds: at least that many times of a call.
        sizes: how many of the sizes.
        conversion: elements of a conversion.
        model_seconds: for each side of a model.
        models: how many models, and single operators; None for all.
        pause: seconds before each turn of those that use several threads.
        passes: over networks and single operators, see :func:`_quietest`.
    """

    seconds: float = 0.25
    rounds: int = 7
    sizes: int = 6
    conversion: int = 1 << 24
    model_seconds: float = 1.5
    models: int | None = None
    pause: float = PAUSE
    passes: int = 2


LEAST_PAUSE = 0.001
FULL = Effort()
QUICK = Effort(seconds=0.01, rounds=3, sizes=2, conversion=1 << 16, model_seconds=0.05, models=2, pause=LEAST_PAUSE, passes=1)


def _side_by_side(case: Case, implementations: tuple[str, ...], effort: Effort) -> Row:
    """Times of those that can do it, and why the others cannot."""
    thunks, missing = dict[str, Thunk](), dict[str, str]()
    for name in implementations:
        if name in PEERS[case.operation]:
            try:
                thunks[name] = build(case, name)
            except NotImplementedError as error:
                missing[name] = str(error)[:100]
    pause = effort.pause if case.threads > 1 else LEAST_PAUSE
    times = in_turn(list(thunks.values()), effort.seconds, effort.rounds, sample=effort.seconds / effort.rounds / 5, pause=pause)
    return {"times": {name: summary(found) for name, found in zip(thunks, times, strict=True)}, "missing": missing}


def _operators(effort: Effort, options: argparse.Namespace) -> Iterator[Row]:
    for title, case, sizes, implementations in OPERATIONS:
        for size in sizes[: effort.sizes]:
            yield {"what": title, "size": size, **_side_by_side(replace(case, shape=square(size)), implementations, effort)}


def _conversions(effort: Effort, options: argparse.Namespace) -> Iterator[Row]:
    from numbaops import element_type

    for source, target, packed in CONVERSIONS:
        case = Case("Cast", square(effort.conversion), target, source=source, packed=packed)
        bits = [kind.bits if packed else 8 * kind.dtype.itemsize for kind in map(element_type, (source, target))]
        loose = [8 * element_type(name).dtype.itemsize for name in (source, target)]
        row = _side_by_side(case, ("numbaops", "ml_dtypes", "numpy_packing", "memcpy"), effort)
        moved = {"numbaops": sum(bits), "ml_dtypes": sum(loose), "numpy_packing": sum(bits), "memcpy": 2 * max(loose)}
        sizes = {name: moved[name] * case.size // 8 for name in row["times"]}
        yield {"what": f"{source} to {target}", "packed": packed, "size": case.size, "bytes": sizes, **row}


def _graphs(effort: Effort, options: argparse.Namespace) -> Iterator[Row]:
    for name in GRAPHS:
        yield {"what": name, **_side_by_side(Case(name, (4, 4)), ("numbaops_evaluator", "onnx_reference", "onnxruntime"), effort)}


def _large(effort: Effort, options: argparse.Namespace) -> Iterator[Row]:
    implementations = ("numbaops", "onnx_reference", "onnxruntime", "numpy")
    for operation in ("ConstantOfShape", "EyeLike"):
        case = Case(operation, LARGE, value=1.5, threads=min(2, available_cpus()))
        row = _side_by_side(case, implementations, effort)
        faults = {name: page_faults(build(case, name), 3 if effort is QUICK else 20) for name in ("numbaops", "numpy")}
        yield {"what": operation, "size": case.size, "faults": faults, **row}


def _quietest(rows: Callable[[], Iterator[Row]], passes: int) -> Iterator[Row]:
    """Of several passes over some cases, minutes apart, for each case the one in which the fastest rival took least.

    On virtual machines there are minutes in which threads take twice as long to see what the other has written; all sides have them.
    """
    found: dict[tuple[str, str], Row] = {}
    for _ in range(passes):
        for row in rows():
            key = row["what"], row.get("case", "")
            if key not in found or _rivals_least(row) < _rivals_least(found[key]):
                found[key] = row
    yield from found.values()


def _rivals_least(row: Row) -> float:
    return min((times["least"] for name, times in row["times"].items() if not name.startswith("numbaops")), default=0.0)


def _models(effort: Effort, options: argparse.Namespace) -> Iterator[Row]:
    from .. import models

    chosen = argparse.Namespace(**{name.replace("-", "_"): False for name in models.OPTIONS}, seconds=effort.model_seconds)
    light = sorted(models.LIGHT.glob("*.onnx"))
    paths = [*light, *models.files_of(options.models)][: effort.models]

    def rows(folder: Path) -> Iterator[Row]:
        for path in paths:
            row = models.measure(path, chosen, folder)
            times = {name: row[f"{side}_times"] for name, side in (("numbaops_evaluator", "ours"), ("onnxruntime", "onnxruntime"))}
            yield {
                "what": row["model"],
                "light": path in light,
                "error": row["error"],
                "load": row["load_s"],
                "times": times,
                "missing": {},
            }

    with tempfile.TemporaryDirectory() as folder:
        yield from _quietest(lambda: rows(Path(folder)), effort.passes)


def _nodes(effort: Effort, options: argparse.Namespace) -> Iterator[Row]:
    from .. import node_cases

    names = {"ours": "numbaops_evaluator", "reference": "onnx_reference", "runtime": "onnxruntime"}

    def rows() -> Iterator[Row]:
        for case in itertools.islice(node_cases.realistic([]), effort.models):
            node_cases.measure(case, effort.seconds / 2, effort.pause)
            times = {names[side]: summary(found) for side, found in case.times.items()}
            missing = {names[side]: reason for side, reason in case.reasons.items() if side in names}
            yield {"what": case.operator, "case": case.name, "times": times, "missing": missing}

    yield from _quietest(rows, effort.passes)


GROUPS: dict[str, tuple[int, Callable[[Effort, argparse.Namespace], Iterator[Row]]]] = {
    "operators": (1, _operators),
    "conversions": (1, _conversions),
    "graphs": (1, _graphs),
    "large": (2, _large),
    "nodes": (2, _nodes),
    "models": (2, _models),
}
"""Threads of all libraries, and what measures."""


def measure_here(name: str, effort: Effort, options: argparse.Namespace) -> list[Row]:
    """The rows of a group, measured in this process."""
    warnings.simplefilter("ignore")
    set_threads(min(GROUPS[name][0], available_cpus()))
    rows = []
    for row in GROUPS[name][1](effort, options):
        shown = "  ".join(f"{side} {times['median'] * 1e6:.4g}" for side, times in row["times"].items())
        print(f"{name:12} {row['what']:32} {row.get('size', row.get('case', '')):>10}  us: {shown}", file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def measure(names: list[str], options: argparse.Namespace, before: Record | None) -> Record:
    """A new record; of groups that are not measured the rows of the one before."""
    record: Record = {"environment": environment(), "groups": dict((before or {}).get("groups", {}))}
    if before is not None and set(names) != set(GROUPS) and _versions(before) != _versions(record):
        raise SystemExit("the record is of other versions or another machine: measure all groups")
    for name in names:
        threads, _ = GROUPS[name]
        settings = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        command = [sys.executable, "-m", "benchmarks.report", "measure", "--here", name, *(["--quick"] if options.quick else [])]
        command += ["--models", *map(str, options.models)] if options.models else []
        start = time.perf_counter()
        done = subprocess.run(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, check=True)
        record["groups"][name] = {"threads": threads, "seconds": round(time.perf_counter() - start), "rows": json.loads(done.stdout)}
    return record


def environment() -> dict[str, str]:
    """The machine and the versions."""
    import numbaops

    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": cpu_name(),
        "cores": str(available_cpus()),
        "system": platform.system(),
        "python": platform.python_version(),
        "numbaops": numbaops.__version__,
        **{name: _version(name) for name in ("numpy", "numba", "onnx", "ml_dtypes", "onnxruntime")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _versions(record: Record) -> dict[str, str]:
    return {name: value for name, value in record["environment"].items() if name != "date"}


def ratio(row: Row, ours: str, rival: str, of: str = "median") -> float | None:
    """Median (or ``least``) of ours / that of a rival; None where one of them has none."""
    times = row["times"]
    return times[ours][of] / times[rival][of] if ours in times and rival in times else None


def spread(row: Row, name: str) -> float:
    """Half the distance of the quartiles, as a part of the median."""
    times = row["times"][name]
    return (times["high"] - times["low"]) / 2 / times["median"]


def spreads(record: Record) -> list[float]:
    """All spreads in order: what a figure is good for."""
    rows = [row for group in record["groups"].values() for row in group["rows"]]
    return sorted(spread(row, name) for row in rows for name in row["times"])
