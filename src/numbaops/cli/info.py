"""``numbaops ops``, ``numbaops info`` and ``numbaops warmup``."""

from __future__ import annotations

import importlib.metadata
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

import numbaops
from numbaops.cli import report
from numbaops.dtypes import ElementType
from numbaops.errors import EvaluationError, InvalidValueError
from numbaops.interrupts import held
from numbaops.opset import NEWEST_OPSET, OperatorVersion, operators

_PACKAGES = ("numbaops", "numpy", "numba", "llvmlite", "onnx", "ml_dtypes", "onnxruntime")
# Processor features that decide how wide and how fast the kernels are.
_VECTOR_FEATURES = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512bf16", "neon", "sve")


def package_version(name: str) -> str | None:
    """The version of an installed package, or None."""
    if name == "numbaops":  # also where it runs without being installed
        return numbaops.__version__
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def show_operators(*, as_json: bool) -> None:
    """Print the operator table."""
    if as_json:
        report.print_json([_facts(version) for _, versions in operators() for version in versions])
        return
    rows = []
    for name, versions in operators():
        previous = None
        for version in versions:
            types, attributes = _changes(version, previous)
            rows.append((name if previous is None else "", str(version.since_version), Text(types), attributes))
            previous = version
    report.print_table(("operator", "since", "element types", "attributes"), rows, numbers=("since",))
    report.print_line(f'"+": added to the version before. Opset N, up to {NEWEST_OPSET}, uses the last version since N or earlier.')


def _facts(version: OperatorVersion) -> dict[str, Any]:
    return {
        "domain": report.domain_name(version.domain),
        "operator": version.op_type,
        "since_version": version.since_version,
        "inputs": {name: _names(types) for name, types in version.inputs.items()},
        "optional_inputs": sorted(version.optional),
        "outputs": {name: _names(types) for name, types in version.outputs.items()},
        "attributes": {
            name: {"type": one.kind, "required": one.required, "default": one.default} for name, one in version.attributes.items()
        },
    }


def _names(types: frozenset[ElementType]) -> list[str]:
    return [row.name for row in sorted(types, key=lambda row: row.code)]


def _changes(version: OperatorVersion, previous: OperatorVersion | None) -> tuple[str, str]:
    """The cells for types and attributes: all of them, or what came new."""
    lines = []
    for what in ("input", "output"):
        values: Mapping[str, frozenset[ElementType]] = getattr(version, f"{what}s")
        before = getattr(previous, f"{what}s", {})
        for name, types in values.items():
            label = what if len(values) == 1 else f"{what} {name}"
            if (added := _added(_names(types), _names(before.get(name, frozenset())))) is not None:
                lines.append(f"{label}: {added}")
    return "\n".join(lines), _added(list(version.attributes), list(previous.attributes) if previous else []) or ""


def _added(now: list[str], before: list[str]) -> str | None:
    """What ``now`` has more than ``before``, or all of it if something went; None if they are the same."""
    if now == before:
        return None
    if not before or not set(before) <= set(now):
        return ", ".join(now)
    return "+ " + ", ".join(name for name in now if name not in before)


def show_info(*, as_json: bool) -> None:
    """Print what numbaops runs on."""
    facts = gather()
    if as_json:
        report.print_json(facts)
        return
    cpu, cache, memory = facts["cpu"], facts["cache"], facts["memory"]
    features = [name for name in _VECTOR_FEATURES if name in cpu["features"]]
    rows = [
        *((name, version or "not installed") for name, version in facts["versions"].items()),
        ("processor", f"{cpu['name']}, {cpu['architecture']}"),
        ("vector features", ", ".join(features) or "none"),
        ("threads", str(facts["threads"])),
        ("kernels", "compiled" if facts["jit"] else "not compiled: NUMBA_DISABLE_JIT is set"),
        ("cache folder", cache["folder"] + ("" if cache["writable"] else " (not writable)")),
        ("memory recycling", f"on, up to {memory['limit'] / 2**20:.0f} MiB" if memory["recycling"] else "off"),
    ]
    report.print_table(("", ""), rows, headings=False)


def gather() -> dict[str, Any]:
    """The facts of ``numbaops info``."""
    with held():
        from numba.core.registry import cpu_target

    from numbaops.runtime import memory
    from numbaops.runtime.jit import cache_directory
    from numbaops.runtime.threads import thread_count

    # What code is really compiled for, NUMBA_CPU_NAME and NUMBA_CPU_FEATURES included.
    _, cpu_name, features = cpu_target.target_context.codegen().magic_tuple()
    folder = cache_directory()
    return {
        "versions": {"python": platform.python_version(), **{name: package_version(name) for name in _PACKAGES}},
        "cpu": {
            "name": cpu_name,
            "architecture": platform.machine(),
            "features": [name[1:] for name in features.split(",") if name.startswith("+")],
        },
        "threads": thread_count(),
        "jit": _compiles(),
        "cache": {"folder": str(folder), "writable": can_write(folder)},
        "memory": {"recycling": memory.enabled(), **memory.stats()},
    }


def _compiles() -> bool:
    from numba.core import config

    return not vars(config)["DISABLE_JIT"]


def can_write(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the nearest one above it that exists; tried, since root may all and can not."""
    existing = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    try:
        with tempfile.TemporaryFile(dir=existing):
            return True
    except OSError:
        return False


_RUNS = 10
"""Runs after which a plan has the variant that it keeps for the shapes of its inputs."""


def warm_up(model: Path | None, *, dims: Sequence[str], as_json: bool) -> None:
    """Compile every kernel, or those that a model needs, and say what was done."""
    from numbaops.runtime import jit

    if model is None and dims:
        raise InvalidValueError("--dim needs a MODEL")
    folder = jit.cache_directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EvaluationError(_unwritable(folder, error.strerror or str(error))) from error
    if not can_write(folder):
        raise EvaluationError(_unwritable(folder, "no file can be made there"))
    started = time.perf_counter()
    if model is None:
        compiled, cached = _compile_all()
        known = f", {cached} were cached already"
    else:
        compiled, cached, known = _compile_for(model, dims), None, ""
    took = time.perf_counter() - started
    if as_json:
        facts = {"compiled": compiled, "cached": cached, "folder": str(folder), "seconds": took}
        report.print_json({name: value for name, value in facts.items() if value is not None})
    elif not _compiles():
        report.print_line("nothing to compile: NUMBA_DISABLE_JIT is set")
    else:
        report.print_line(f"compiled {report.count(compiled, 'kernel')}{known}, in {report.seconds(took)}; cache folder: {folder}")


def _compile_all() -> tuple[int, int]:
    from numbaops import casting, quantization
    from numbaops.runtime import jit

    casting.prepare()
    quantization.prepare()
    with report.steps("compiling") as show:
        return jit.warm_up(show)


def _compile_for(path: Path, dims: Sequence[str]) -> int:
    """Run a model until it has compiled what it needs."""
    from numbaops.runtime import jit

    with held():
        from numbaops.cli.inputs import collect, declared_inputs
        from numbaops.reference import ReferenceEvaluator

    with report.progress(1 + _RUNS) as step, report.compilations(step):
        step("loading")
        evaluator = ReferenceEvaluator(path)
        feeds, _ = collect(declared_inputs(evaluator.proto_), source=None, files=(), sizes=dims, seed=0)
        before = jit.compiled()
        for number in range(1, _RUNS + 1):
            step(f"run {number} of {_RUNS}")
            evaluator.run(None, dict(feeds))
        jit.Later.wait()
        return jit.compiled() - before


def _unwritable(folder: Path, why: str) -> str:
    return f"the cache folder {folder} cannot be written ({why}); choose another with --cache-dir or NUMBAOPS_CACHE_DIR"
