"""The main figures of numbaops as ratios, measured in one process run: ``python -m benchmarks.acceptance [GROUP ...] [--json FILE]``.

Each row times numbaops and a rival in interleaved rounds and divides the smallest time of the one by the smallest of the other,
so that a ratio below 1 says how much less time numbaops takes. Rows with a target say whether it is met; the others are there for
information. Page faults are counted, not timed. Answers are checked before anything is timed.

Each group takes one to four minutes and up to 1 GiB of memory, and wants an otherwise idle machine: ``--json`` also stores the
median ratio over the rounds, which is far from the ratio of the minima when the machine was not.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from . import bench_cast, bench_convert, bench_engine, bench_quantization
from .common import Comparison, Thunk, available_cpus, compare, cpu_name, interleave, page_faults, set_threads, writable
from .peers import Case, build, check

SMALL = (4, 4)
LARGE = (8192, 4096)  # 128 MiB of float
FILLED = (16384, 4096)  # 256 MiB of float
PACKED = (2048, 2048)  # 4 Mi elements


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        what: what numbaops does.
        rival: what it is compared with.
        target: the largest ratio that is good enough; None for a row that is there for information.
        measure: does its own set-up and measures.
        unit: ``"s"``, or ``"faults"``: then ours, not the ratio, is held against the target.
    """

    what: str
    rival: str
    target: float | None
    measure: Callable[[], Comparison]
    unit: str = "s"


@dataclass(frozen=True)
class Result:
    """What came out for one row; ``comparison`` is None when it was skipped, for the reason in ``skipped``."""

    row: Row
    comparison: Comparison | None
    skipped: str = ""

    @property
    def met(self) -> bool | None:
        if self.comparison is None or self.row.target is None:
            return None
        reached = self.comparison.ratio if self.row.unit == "s" else self.comparison.ours
        return reached <= self.row.target


def _peers(case: Case, rival: str, ours: str = "numbaops") -> Comparison:
    return compare(build(case, ours), build(case, rival))


def _shape_as_tuple() -> Comparison:
    import numbaops

    ours = functools.partial(numbaops.operator("ConstantOfShape"), SMALL)
    rival = functools.partial(np.full, SMALL, np.float32(0), np.float32)
    check(ours(), rival())
    return compare(ours, rival)


def _changing_shapes(op_type: str) -> Comparison:
    """Shapes that differ from call to call, so that nothing kept for a shape helps."""
    import numbaops

    bound = numbaops.operator(op_type)
    ours: list[Thunk] = []
    rival: list[Thunk] = []
    for shape in [(1 + i // 40, 1 + i % 40) for i in range(1000)]:
        if op_type == "EyeLike":
            ours.append(functools.partial(bound, np.zeros(shape, np.float32)))
            rival.append(functools.partial(np.eye, *shape, 0, np.float32))
        else:
            ours.append(functools.partial(bound, shape))
            rival.append(functools.partial(np.full, shape, np.float32(0), np.float32))
        check(ours[-1](), rival[-1]())
    both = compare(functools.partial(_call_all, ours), functools.partial(_call_all, rival))
    return replace(both, ours=both.ours / len(ours), rival=both.rival / len(rival))


def _call_all(thunks: list[Thunk]) -> None:
    for thunk in thunks:
        thunk()


def _fill(threads: int) -> Comparison:
    import numbaops

    set_threads(threads)
    out = np.zeros(FILLED, np.float32)
    bound = numbaops.operator("ConstantOfShape", value=np.float32(1.5))
    ours = functools.partial(bound, np.array(FILLED), out=out)
    ours()
    check(out, np.full(FILLED, 1.5, np.float32))
    return compare(ours, functools.partial(out.fill, 1.5))


def _faults(op_type: str) -> Comparison:
    case = Case(op_type, LARGE, value=1.5)
    ours, rival = page_faults(build(case, "numbaops")), page_faults(build(case, "numpy"))
    return Comparison(ours, rival, ours / rival if rival else float("nan"), 1)


def _seconds_in_fresh_interpreter(statement: str) -> float:
    code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def _import(statement: str) -> Comparison:
    rival = "import numpy, ml_dtypes"
    for warm in (statement, rival):  # bytecode and disk cache
        _seconds_in_fresh_interpreter(warm)
    return interleave(
        functools.partial(_seconds_in_fresh_interpreter, statement), functools.partial(_seconds_in_fresh_interpreter, rival), seconds=3.0
    )


def _rows() -> list[Row]:
    small_fill, small_eye = Case("ConstantOfShape", SMALL, value=0), Case("EyeLike", SMALL)
    small_constant = Case("Constant", SMALL)
    large = Case("ConstantOfShape", LARGE, value=1.5, threads=2)
    large_eye = Case("EyeLike", LARGE, threads=2)
    packing = [Case(operation, PACKED, "int4", threads=2) for operation in ("from_array", "to_array", "pack", "unpack")]
    as_bytes = {"from_array": "packing", "to_array": "unpacking", "pack": "packing, arrays only", "unpack": "unpacking, arrays only"}

    def peers(what: str, case: Case, rival: str, name: str, target: float | None, ours: str = "numbaops") -> Row:
        return Row(what, name, target, functools.partial(_peers, case, rival, ours))

    return [
        Row("operator ConstantOfShape (4, 4), tuple", "np.full", 0.65, _shape_as_tuple),
        peers("operator ConstantOfShape (4, 4), int64 array", small_fill, "numpy", "np.full", 0.65),
        Row("operator ConstantOfShape, shape changes", "np.full", None, functools.partial(_changing_shapes, "ConstantOfShape")),
        peers("operator EyeLike (4, 4)", small_eye, "numpy", "np.eye", 0.5),
        Row("operator EyeLike, shape changes", "np.eye", None, functools.partial(_changing_shapes, "EyeLike")),
        *(
            peers(f"one-node model {case.operation} (4, 4)", case, "onnx_reference", "onnx.reference", 0.3, "numbaops_evaluator")
            for case in (small_constant, small_fill, small_eye)
        ),
        *(
            peers(f"one-node model {case.operation} (4, 4)", case, "onnxruntime", "ONNX Runtime", None, "numbaops_evaluator")
            for case in (small_constant, small_fill, small_eye)
        ),
        Row("fill 256 MiB float into out=, 1 thread", "ndarray.fill", 1 / 2.0, functools.partial(_fill, 1)),
        Row("fill 256 MiB float into out=, 2 threads", "ndarray.fill", 1 / 3.5, functools.partial(_fill, 2)),
        peers("ConstantOfShape 128 MiB float, 2 threads", large, "numpy", "np.full", 1 / 6.0),
        peers("ConstantOfShape 128 MiB float, 2 threads", large, "onnxruntime", "ONNX Runtime, 2 threads", 1 / 3.5),
        peers("EyeLike 8192 x 4096 float, 2 threads", large_eye, "numpy", "np.eye", 1 / 2.5),
        *(
            peers(f"{as_bytes[case.operation]} 4 Mi int4, 2 threads", case, "onnx_numpy_helper", f"numpy_helper.{case.operation}", 1 / 4.0)
            for case in packing[:2]
        ),
        *(peers(f"{as_bytes[case.operation]} 4 Mi int4, 2 threads", case, "numpy", "NumPy shifts", None) for case in packing[2:]),
        Row("page faults a run, ConstantOfShape 128 MiB", "np.full", 1.0, functools.partial(_faults, "ConstantOfShape"), "faults"),
        Row("page faults a run, EyeLike 8192 x 4096", "np.eye", 1.0, functools.partial(_faults, "EyeLike"), "faults"),
        Row("import numbaops", "import numpy, ml_dtypes", 1.3, functools.partial(_import, "import numbaops")),
        Row("from numbaops import operator", "import numpy, ml_dtypes", None, functools.partial(_import, "from numbaops import operator")),
    ]


GROUPS: dict[str, Callable[[], Iterable[Row]]] = {
    "operators": _rows,
    "tensors": lambda: (Row(*row) for row in bench_convert.rows()),
    "casts": lambda: (Row(*row) for row in bench_cast.rows()),
    "quantization": lambda: (Row(*row) for row in bench_quantization.comparisons()),
    "engine": lambda: (Row(*row) for row in bench_engine.rows()),
}


def _measure(row: Row) -> Result:
    try:
        return Result(row, row.measure())
    except NotImplementedError as error:
        return Result(row, None, str(error))


def _amount(value: float, unit: str) -> str:
    if unit == "faults":
        return f"{value:.1f}"
    for name, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value / 1e-9:.0f} ns"


def _line(result: Result) -> str:
    row, both = result.row, result.comparison
    if both is None:
        return f"{row.what:58} {row.rival:24} skipped: {result.skipped}"
    target = "" if row.target is None else f"<= {row.target:.3f}" if row.unit == "s" else f"<= {row.target:.0f} faults"
    met = {None: "", True: "met", False: "NOT MET"}[result.met]
    ours, rival = _amount(both.ours, row.unit), _amount(both.rival, row.unit)
    return f"{row.what:58} {row.rival:24} {ours:>9} {rival:>9} {both.ratio:7.3f} {target:>11}  {met}".rstrip()


def _environment() -> dict[str, Any]:
    versions = {}
    for name in ("numpy", "numba", "onnx", "ml_dtypes", "onnxruntime"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    import numbaops

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "cpus": available_cpus(),
        "python": platform.python_version(),
        "numbaops": numbaops.__version__,
        **versions,
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure all rows and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.acceptance", description="The main figures of numbaops as ratios.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"only these of {', '.join(GROUPS)}")
    parser.add_argument("--json", type=writable, metavar="FILE", help="also write the table to FILE")
    options = parser.parse_args(arguments)

    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")

    environment = _environment()
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    print("ratio: ours / rival, of the smallest times over interleaved rounds\n")
    print(f"{'what':58} {'rival':24} {'ours':>9} {'rival':>9} {'ratio':>7} {'target':>11}")
    threads = os.environ.get("NUMBAOPS_NUM_THREADS")
    results = []
    try:
        for row in itertools.chain.from_iterable(GROUPS[group]() for group in options.groups or GROUPS):
            results.append(_measure(row))
            print(_line(results[-1]), flush=True)
    finally:
        os.environ.pop("NUMBAOPS_NUM_THREADS", None)
        if threads is not None:
            os.environ["NUMBAOPS_NUM_THREADS"] = threads
    missed = sum(result.met is False for result in results)
    print(f"\n{sum(result.met is True for result in results)} targets met, {missed} missed, {_skipped(results)} rows skipped")

    if options.json is not None:
        options.json.write_text(json.dumps({"environment": environment, "rows": [_as_json(result) for result in results]}, indent=1) + "\n")


def _skipped(results: list[Result]) -> int:
    return sum(result.comparison is None for result in results)


def _as_json(result: Result) -> dict[str, Any]:
    row, both = result.row, result.comparison
    described = {"what": row.what, "rival": row.rival, "unit": row.unit, "target": row.target, "met": result.met}
    if both is None:
        return {**described, "skipped": result.skipped}
    measured = asdict(both)
    return {**described, "ours": measured.pop("ours"), "rival_value": measured.pop("rival"), "ratio": both.ratio, **measured}


if __name__ == "__main__":
    main()
