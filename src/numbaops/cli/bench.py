"""``numbaops bench``: how fast it is here, beside others."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from numbaops.cli import printable, report
from numbaops.cli.cases import CASES, OURS, PEERS, Case, Thunk, Ways
from numbaops.cli.compare import difference, load_peer
from numbaops.cli.info import gather
from numbaops.cli.inputs import collect, declared_inputs
from numbaops.cli.plot import print_ratios
from numbaops.cli.report import Step
from numbaops.cli.timing import Timing, in_turns, settle
from numbaops.errors import EvaluationError, InvalidValueError
from numbaops.reference import ReferenceEvaluator
from numbaops.runtime.threads import thread_count

SECONDS = 45.0
"""Measured by default; with what is set up, about a minute."""
SECONDS_FOR_A_MODEL = 10.0

_WARM_SECONDS = 2.0

_MODEL = "model"
"""The group of what the user gives."""

_NOISY = "~"
"""After a ratio that noise may have made."""

_INSTALLED = {"numpy": "numpy", "ml_dtypes": "ml_dtypes", "onnx.reference": "onnx", "onnxruntime": "onnxruntime"}


@dataclass(slots=True)
class Result:
    """What was measured of a case.

    Attributes:
        group: of the case.
        case: its name.
        timings: by the name of who did it.
        left_out: why others did not, by name.
        differing: the names of those whose answer is not ours.
    """

    group: str
    case: str
    timings: dict[str, Timing] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)

    @property
    def ratios(self) -> dict[str, float]:
        """Our median time divided by that of others, by name."""
        ours = self.timings.get(OURS)
        return {} if ours is None else {name: ours.median / one.median for name, one in self.timings.items() if name != OURS}


def bench(
    model: Path | None,
    *,
    filters: Sequence[str],
    beside: Sequence[str],
    seconds: float | None,
    input_files: Sequence[str],
    inputs: Path | None,
    dims: Sequence[str],
    seed: int | None,
    list_only: bool,
    as_json: bool,
) -> None:
    """Measure the cases, or a model, and print what came out; the arguments are the command's options."""
    if seconds is not None and not (0 < seconds < math.inf):
        raise InvalidValueError(f"--seconds {seconds:g}: allowed: a number above 0")
    if model is None:
        for option, given in (("--input", input_files), ("--inputs", inputs), ("--dim", dims), ("--seed", seed)):
            if given not in (None, ()):
                raise InvalidValueError(f"{option} needs a MODEL")
        cases = _named(filters)
    else:
        for option, wanted in (("--filter", filters), ("--list", list_only)):
            if wanted:
                raise InvalidValueError(f"{option} is for the cases, not for a MODEL")
        cases = [_case_of_model(model, input_files, inputs, dims, seed or 0)]
    cases = _done_by(cases, beside)
    if list_only:
        _print_list(cases, as_json)
        return
    share = (seconds or (SECONDS if model is None else SECONDS_FOR_A_MODEL)) / len(cases)
    busy = _busy()
    with report.progress(len(cases)) as step, report.compilations(step):
        results = []
        for case in cases:
            step(case.name)
            results.append(measure(case, share, beside, step))
    if model is not None and OURS in results[0].left_out:
        raise EvaluationError(results[0].left_out[OURS])
    facts = {**_machine(), "busy": busy, "cases": [_facts(one) for one in results]}
    if as_json:
        report.print_json(facts)
    else:
        _print(facts, results)


def _named(filters: Sequence[str]) -> list[Case]:
    """The cases with one of ``filters`` in their name or group."""
    names = [f"{case.group}: {case.name}".lower() for case in CASES]
    for text in filters:
        if not any(text.lower() in name for name in names):
            groups = ", ".join(dict.fromkeys(case.group for case in CASES))
            raise InvalidValueError(
                f"--filter {text}: no case has that in its name or group; the groups: {groups}; numbaops bench --list has the names"
            )
    return [case for case, name in zip(CASES, names, strict=True) if not filters or any(text.lower() in name for text in filters)]


def _done_by(cases: Sequence[Case], beside: Sequence[str]) -> list[Case]:
    """The cases that one of ``beside`` does, or all if it is empty."""
    done = [case for case in cases if not beside or set(beside) & set(case.peers)]
    if not done:
        allowed = ", ".join(name for name in PEERS if any(name in case.peers for case in cases))
        raise InvalidValueError(f"--beside {', '.join(beside)}: that does none of it; allowed here: {allowed}")
    return done


def _case_of_model(path: Path, files: Sequence[str], inputs: Path | None, dims: Sequence[str], seed: int) -> Case:
    def ways() -> Ways:
        return {
            OURS: lambda: functools.partial(evaluator.run, None, feeds),
            "onnx.reference": lambda: functools.partial(load_peer("reference", model, path, asked="onnx.reference"), feeds),
            "onnxruntime": lambda: functools.partial(
                load_peer("onnxruntime", model, path, asked="onnxruntime", threads=thread_count()), feeds
            ),
        }

    evaluator = ReferenceEvaluator(path)
    model: onnx.ModelProto = evaluator.proto_
    feeds, _ = collect(declared_inputs(model), source=inputs, files=files, sizes=dims, seed=seed)
    return Case(_MODEL, path.name, ("onnx.reference", "onnxruntime"), ways)


# ------------------------------------------------------------------------------------------------------------------ measuring


def measure(case: Case, seconds: float, beside: Sequence[str] = (), step: Step | None = None) -> Result:
    """Time the ways of a case, once each is warm, and see whether its answer is ours.

    Args:
        case: the case.
        seconds: of measuring in all.
        beside: whom to time beside us; all if it is empty.
        step: where to show who is being set up.
    """
    result = Result(case.group, case.name)
    thunks: dict[str, Thunk] = {}
    slow: dict[str, Timing] = {}
    ways = {name: way for name, way in case.ways().items() if name == OURS or not beside or name in beside}
    share = seconds / len(ways)
    answer: Any = None
    for name, way in ways.items():
        if step is not None and name != OURS:
            step.note(name)
        try:
            thunk = way()
            start = time.perf_counter()
            given = thunk()
            took = time.perf_counter() - start
        except Exception as error:  # others have no common base, and of ours the rest is worth showing
            result.left_out[name] = " ".join(str(error).split()).removeprefix(f"{name}: ") or type(error).__name__
            continue
        if name == OURS:
            answer = given
            settle(thunk, _WARM_SECONDS)
        elif answer is not None and not _same(answer, given):
            result.differing.append(name)
        if name != OURS and took > share:  # a second call would take longer than all are to take
            slow[name] = Timing(took, took, 1)
        else:
            thunks[name] = thunk
    result.timings = {**in_turns(thunks, share * len(thunks)), **slow}
    result.timings = {name: result.timings[name] for name in ways if name in result.timings}
    return result


def _same(ours: Any, theirs: Any) -> bool:
    ours, theirs = _plain(ours), _plain(theirs)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return difference(ours, theirs, rtol=1e-2, atol=1e-3).matches


def _plain(answer: Any) -> Any:
    if isinstance(answer, onnx.TensorProto):
        return np.frombuffer(answer.raw_data, np.uint8)
    if isinstance(answer, list) and len(answer) == 1:
        return answer[0]
    return answer


# ------------------------------------------------------------------------------------------------------------------- printing


def _busy() -> float | None:
    """The number of processes that want to run, if they are more than there are CPUs."""
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
    return load if load > (os.cpu_count() or 1) else None


def _machine() -> dict[str, Any]:
    facts = gather()
    return {"versions": facts["versions"], "processor": facts["cpu"]["name"], "threads": facts["threads"]}


def _facts(one: Result) -> dict[str, Any]:
    return {
        "group": one.group,
        "case": one.case,
        "seconds": {name: asdict(timing) for name, timing in one.timings.items()},
        "ratios": one.ratios,
        "left_out": one.left_out,
        "differing": one.differing,
    }


def _print_list(cases: Sequence[Case], as_json: bool) -> None:
    if as_json:
        report.print_json([{"group": case.group, "case": case.name} for case in cases])
    else:
        report.print_table(("group", "case"), [(case.group, case.name) for case in cases])


def _print(facts: Mapping[str, Any], results: Sequence[Result]) -> None:
    versions = facts["versions"]
    others = ", ".join(f"{name} {versions[package]}" for name, package in _INSTALLED.items() if versions[package])
    report.print_line(
        f"numbaops {versions['numbaops']} beside {others}; {facts['processor']}, {report.count(facts['threads'], 'thread')}; "
        "medians of calls that take turns"
    )
    numbers = ("numbaops", "time", "ratio")
    report.print_table(("case", "numbaops", "beside", "time", "ratio"), _rows(results), numbers=numbers)
    if len(results) > 1:
        print_ratios(report.console(), [(printable(one.case), one.ratios) for one in results if one.ratios], PEERS)
    report.print_line(_summary(results))
    if any(timing.noisy for one in results for timing in one.timings.values()):
        report.print_line(f"{_NOISY}: of one of the two, half of the calls took over twice as long as the fastest")
    for one in results:
        for name, timing in one.timings.items():
            if timing.samples == 1:
                report.print_line(f"{one.case}: {name} was called once only, which took longer than its share of --seconds")
    for name, reason in _left_out(results):
        report.print_line(f"left out: {name}: {reason}")
    for one in results:
        for name in one.differing:
            how_much = "; numbaops run --compare tells by how much" if one.group == _MODEL else ""
            report.print_line(f"{one.case}: the answer of {name} differs from ours{how_much}")
    if facts["busy"] is not None:
        report.print_line(f"the machine was busy (load {facts['busy']:.1f}): times may be far off, ratios somewhat")


def _rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in results:
        ours = report.seconds(one.timings[OURS].median) if OURS in one.timings else "-"
        first = (one.case, ours)
        for name, timing in one.timings.items():
            if name != OURS:
                ratio = report.number(one.ratios[name], 3) if OURS in one.timings else "-"
                ratio += _NOISY if timing.noisy or (OURS in one.timings and one.timings[OURS].noisy) else ""
                rows.append((*first, name, report.seconds(timing.median), ratio))
                first = ("", "")
        if first[0]:
            rows.append((*first, "", "", ""))
    return rows


def _summary(results: Sequence[Result]) -> str:
    """How often we are faster than whom, and by how much on average."""
    parts = []
    for name in PEERS if len(results) > 1 else ():
        ratios = [one.ratios[name] for one in results if name in one.ratios]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            parts.append(f"{name} in {sum(ratio < 1 for ratio in ratios)} of {len(ratios)} (on average {mean:.2g})")
    return "ratio: our time / theirs" + (f". We are faster than {', '.join(parts)}" if parts else "")


def _left_out(results: Sequence[Result]) -> list[tuple[str, str]]:
    """Who was left out of what, and why; with one line for a reason that comes again."""
    where: dict[tuple[str, str], list[str]] = {}
    for one in results:
        for name, reason in one.left_out.items():
            where.setdefault((name, reason), []).append(one.case)
    return [(f"{name} ({', '.join(cases)})" if len(cases) < 4 else name, reason) for (name, reason), cases in where.items()]
