"""``numbaops run``."""

from __future__ import annotations

import collections
import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from numbaops.cli import report
from numbaops.cli.compare import Difference, difference, load_peer
from numbaops.cli.files import check_npz_target, read_proto, write_npz
from numbaops.cli.inputs import collect, declared_inputs, declared_outputs, stored_outputs
from numbaops.cli.profiling import OperatorTime, profile_run
from numbaops.cli.timing import settle
from numbaops.errors import EvaluationError, InvalidValueError, UnsupportedError
from numbaops.reference import ReferenceEvaluator
from numbaops.runtime import jit

_CARRIED_MODEL = Path("backend", "test", "data", "light", "light_resnet50.onnx")
_RUNS_TO_COMPARE = 3
_SETTLING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """What to feed a model, and the outputs that it should give as far as they are known."""

    title: str
    feeds: Mapping[str, Any]
    origin: Mapping[str, str]
    expected: Mapping[str, Any]


def run_model(
    path: Path | None,
    *,
    input_files: Sequence[str],
    inputs: Path | None,
    dims: Sequence[str],
    seed: int | None,
    save: Path | None,
    repeat: int | None,
    profile: bool,
    compare: str | None,
    as_json: bool,
) -> None:
    """Evaluate a model and print the results; the arguments are the command's options."""
    if path is None:
        for option, given in (("--input", input_files), ("--inputs", inputs), ("--dim", dims), ("--seed", seed)):
            if given not in (None, ()):
                raise InvalidValueError(f"{option} needs a MODEL; without one, the input is that of onnx's own test")
    target = None if save is None else check_npz_target(save)
    if target is not None and inputs is not None and target == inputs.resolve():
        raise InvalidValueError(f"--save {save}: the inputs are read from there")
    runs = repeat or (_RUNS_TO_COMPARE if compare else 1)
    settles = runs > 1 or compare is not None
    with report.progress(1 + (settles + runs) * (2 if compare else 1) + bool(profile)) as step, report.compilations(step):
        step("loading")
        file = _carried_model() if path is None else path
        evaluator, load_seconds = _timed(lambda: ReferenceEvaluator(file))
        model: onnx.ModelProto = evaluator.proto_
        if path is None:
            job = _carried_job(file, model)
        else:
            feeds, origin = collect(declared_inputs(model), source=inputs, files=input_files, sizes=dims, seed=seed or 0)
            expected = stored_outputs(inputs, declared_outputs(model)) if inputs is not None and inputs.is_dir() else {}
            job = Job(path.name, feeds, origin, expected)
        peer, peer_load_seconds = _timed(lambda: load_peer(compare, model, file, asked=f"--compare {compare}")) if compare else (None, 0.0)
        best = peer_best = float("inf")
        results: list[Any] = []
        theirs: list[Any] = []
        ours = functools.partial(_run_once, evaluator, job)
        if settles:
            step("first runs")
            results = ours()
            settle(ours, _SETTLING_SECONDS)
            if peer is not None:
                step(f"first runs, {compare}")
                theirs = peer(job.feeds)
                settle(functools.partial(peer, job.feeds), _SETTLING_SECONDS)
        before = jit.compiled()
        for number in range(1, runs + 1):  # in turns, so that a busy moment of the machine meets both
            step(f"run {number} of {runs}")
            answer, taken = _timed(ours)
            results = results or answer
            best = min(best, taken)
            if peer is not None:
                step(f"run {number} of {runs}, {compare}")
                _, taken = _timed(functools.partial(peer, job.feeds))
                peer_best = min(peer_best, taken)
        compiled = jit.compiled() - before
        times: list[OperatorTime] = []
        if profile:
            step("profiling")
            times = profile_run(model, job.feeds)
    outputs = dict(zip(evaluator.output_names, results, strict=True))
    saved = None if target is None else write_npz(target, outputs)

    facts: dict[str, Any] = {
        **model_facts(job.title, model),
        "inputs": [{"name": name, **type_and_shape(value), "source": job.origin[name]} for name, value in job.feeds.items()],
        "outputs": [{"name": name, **type_and_shape(value), **report.statistics(value)} for name, value in outputs.items()],
        "load_seconds": load_seconds,
        "run_seconds": best,
        "runs": runs,
        "compiled": compiled,
    }
    checked = {name: difference(outputs[name], value) for name, value in job.expected.items()}
    if checked:
        facts["check"] = {"matches": all(one.matches for one in checked.values()), "outputs": _differences(checked)}
    if compare:
        apart = {name: difference(ours, other) for (name, ours), other in zip(outputs.items(), theirs, strict=True)}
        facts["compare"] = {
            "with": compare,
            "outputs": _differences(apart),
            "load_seconds": peer_load_seconds,
            "run_seconds": peer_best,
            "time_ratio": best / peer_best,
        }
    if profile:
        facts["profile"] = [{"operator": one.op_type, "calls": one.calls, "seconds": one.seconds, "share": one.share} for one in times]
    if save is not None:
        facts["saved"] = {"file": str(save), "names": saved}
    if as_json:
        report.print_json(facts)
    else:
        print_facts(facts)
    _raise_if_wrong(checked)


def _carried_model() -> Path:
    path = Path(onnx.__file__).parent / _CARRIED_MODEL
    if not path.is_file():
        raise UnsupportedError(f"onnx {onnx.__version__} does not carry {path.name}; give a MODEL")
    return path


def _carried_job(path: Path, model: onnx.ModelProto) -> Job:
    """ResNet-50 as onnx's test runner runs it: the input rises evenly from 0 to 1, the output is stored beside the model."""
    feeds = {}
    for declared in declared_inputs(model):
        if declared.required:
            shape = [dim.dim_value for dim in declared.type.tensor_type.shape.dim]
            size = math.prod(shape)
            feeds[declared.name] = (np.arange(size).reshape(shape) / size).astype(np.float32)
    expected = {
        declared.name: read_proto(path.with_name(f"{path.stem}_output_{position}.pb"), declared.type)[1]
        for position, declared in enumerate(declared_outputs(model))
    }
    return Job(f"{path.name} of onnx {onnx.__version__}", feeds, dict.fromkeys(feeds, "as in onnx's own test"), expected)


def _run_once(evaluator: ReferenceEvaluator, job: Job) -> list[Any]:
    try:
        results: list[Any] = evaluator.run(None, dict(job.feeds))
    except Exception as error:
        if drawn := [name for name, origin in job.origin.items() if origin == "drawn"]:  # which need not suit the model, as indices do not
            error.add_note(f"(drawn: {', '.join(drawn)}; --input NAME=FILE gives other values, --dim NAME=SIZE other sizes)")
        raise
    return results


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def model_facts(title: str, model: onnx.ModelProto) -> dict[str, Any]:
    """What a model is called, its opsets by domain, and how many nodes it has of each operator."""
    return {
        "model": title,
        "opsets": {report.domain_name(one.domain): one.version for one in model.opset_import},
        "nodes": dict(collections.Counter(node.op_type for node in _nodes(model.graph)).most_common()),
    }


def type_and_shape(value: Any) -> dict[str, Any]:
    """The element type and the shape of an input or output."""
    facts: dict[str, Any] = {"type": report.type_name(value), "shape": list(value.shape) if isinstance(value, np.ndarray) else None}
    return facts | {"items": len(value)} if isinstance(value, (list, tuple, dict)) else facts


def _shape_text(facts: Mapping[str, Any]) -> str:
    if "items" in facts:
        return f"{facts['items']} items"
    return "-" if facts["shape"] is None else str(tuple(facts["shape"]))


def _differences(found: Mapping[str, Difference]) -> list[dict[str, Any]]:
    return [
        {"name": name, "largest_absolute_error": one.absolute, "largest_relative_error": one.relative}
        | {"matches": one.matches, "note": one.note}
        for name, one in found.items()
    ]


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print what is known of a run, for people."""
    nodes = facts["nodes"]
    opsets = ", ".join(f"{domain} {version}".removeprefix("ai.onnx ") for domain, version in facts["opsets"].items())
    counts = ", ".join(f"{count} {name}" for name, count in nodes.items())
    report.print_line(f"{facts['model']} (opset {opsets}), {report.count(sum(nodes.values()), 'node')}: {counts or 'none'}")
    for one in facts["inputs"]:
        report.print_line(f"input {one['name']}: {one['type']} {_shape_text(one)}, {one['source']}")
    statistics = ("min", "mean", "max")
    report.print_table(
        ("output", "type", "shape", *statistics),
        ((one["name"], one["type"], _shape_text(one), *(report.number(one[key]) for key in statistics)) for one in facts["outputs"]),
        numbers=statistics,
    )
    ran = f"ran in {report.seconds(facts['run_seconds'])}"
    if "batches" in facts:
        batches = facts["batches"]
        what = f"{report.count(batches['rows'], 'row')} in {report.count(batches['count'], 'batch', 'batches')}"
        report.print_line(f"{what} on {report.count(batches['workers'], 'worker')}, {ran}")
    else:
        best = f" (the shortest of {facts['runs']})" if facts["runs"] > 1 else ""
        report.print_line(f"loaded in {report.seconds(facts['load_seconds'])}, {ran}{best}{_compiled_text(facts['compiled'])}")
    if "profile" in facts:
        _print_profile(facts["profile"])
    if "compare" in facts:
        _print_comparison(facts)
    if "saved" in facts:
        report.print_line(f"saved in {facts['saved']['file']}: {', '.join(facts['saved']['names']) or 'nothing'}")
    if "check" in facts and facts["check"]["matches"]:
        outputs = facts["check"]["outputs"]
        largest = max((one["largest_absolute_error"] for one in outputs if one["largest_absolute_error"] is not None), default=0.0)
        what = "output matches the stored one" if len(outputs) == 1 else f"all {len(outputs)} outputs match the stored ones"
        report.print_line(f"{what} (largest error {report.number(largest, 3)})")


def _compiled_text(compiled: int) -> str:
    if not compiled:
        return ""
    return f"; {report.count(compiled, 'kernel was', 'kernels were')} compiled in it, later runs are faster"


def _print_profile(profile: Sequence[Mapping[str, Any]]) -> None:
    numbers = ("calls", "total ms", "share")
    total = sum(one["seconds"] for one in profile)
    rows = [(one["operator"], str(one["calls"]), f"{one['seconds'] * 1e3:.3f}", f"{one['share']:.1%}") for one in profile]
    rows.append(("all", str(sum(one["calls"] for one in profile)), f"{total * 1e3:.3f}", ""))
    report.print_table(("operator", *numbers), rows, numbers=numbers)
    report.print_line("node by node, as without fusion and chains")


def _print_comparison(facts: Mapping[str, Any]) -> None:
    compare = facts["compare"]
    numbers = ("absolute error", "relative error")
    report.print_table(
        (f"largest against {compare['with']}", *numbers, ""),
        (
            (one["name"], report.number(one["largest_absolute_error"], 3), report.number(one["largest_relative_error"], 3), one["note"])
            for one in compare["outputs"]
        ),
        numbers=numbers,
    )
    both = (("numbaops", facts, compare["time_ratio"]), (compare["with"], compare, 1.0))
    report.print_table(
        ("", "load", "run", "time ratio"),
        ((name, report.seconds(one["load_seconds"]), report.seconds(one["run_seconds"]), f"{ratio:.3g}") for name, one, ratio in both),
        numbers=("load", "run", "time ratio"),
    )


def _raise_if_wrong(checked: Mapping[str, Difference]) -> None:
    for name, one in checked.items():
        if not one.matches:
            what = one.note or f"largest error {report.number(one.absolute, 3)}, relative {report.number(one.relative, 3)}"
            raise EvaluationError(f"output {name!r} does not match the stored one: {what}")
