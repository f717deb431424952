"""``numbaops fold``: what depends on no input, computed ahead."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx.reference.ops._op_list  # noqa: F401 - see numbaops.cli.inputs

from numbaops.cli import report
from numbaops.rewrite import files
from numbaops.rewrite.fold import MAX_GROWTH, MAX_TENSOR, Fact, fold

_NAMES_SHOWN = 3


def fold_model(
    model: Path,
    output: Path,
    *,
    max_growth: int | None,
    max_tensor: int | None,
    dense: bool,
    check: int,
    dims: Sequence[str],
    seed: int,
    as_json: bool,
) -> None:
    """Fold a model and write what came out; the arguments are the command's options."""
    loaded = files.load(model)
    files.check_target(output, loaded)
    folded = fold(
        loaded,
        max_growth=MAX_GROWTH if max_growth is None else max_growth,
        max_tensor=MAX_TENSOR if max_tensor is None else max_tensor,
        dense=dense,
        check=check,
        dims=dims,
        seed=seed,
    )
    written = folded.save(output)
    before = sum(path.stat().st_size for path in loaded.files)
    facts = {
        "model": model.name,
        "files": [str(path) for path in written],
        "nodes": {"before": folded.nodes[0], "after": folded.nodes[1]},
        "bytes": {"before": before, "after": sum(path.stat().st_size for path in written)},
        "checked": check,
        "facts": [asdict(fact) for fact in folded.facts],
    }
    if as_json:
        report.print_json(facts)
    else:
        _print(facts, folded.facts)


def _print(facts: Mapping[str, Any], found: Iterable[Fact]) -> None:
    groups: dict[tuple[str, str, str], list[Fact]] = collections.defaultdict(list)
    for fact in found:
        groups[fact.what, fact.reason, fact.op_type].append(fact)
    order = ["left", "folded", "inlined", "renamed", "removed"]
    rows = sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1], -len(item[1]), item[0][2]))
    report.print_table(
        ("what", "why", "operator", "count", "bytes", "which"),
        ((what, reason, op_type, str(len(some)), _bytes(some), _which(some)) for (what, reason, op_type), some in rows),
        numbers=("count", "bytes"),
    )
    nodes, size, names = facts["nodes"], facts["bytes"], [Path(file).name for file in facts["files"]]
    checked = f"; the same outputs to the bit in {report.count(facts['checked'], 'run')}" if facts["checked"] else ""
    report.print_line(
        f"{facts['model']}: {nodes['before']} to {report.count(nodes['after'], 'node')}, "
        f"{report.size(size['before'])} to {report.size(size['after'])} in {' and '.join(names)}{checked}"
    )


def _bytes(some: Sequence[Fact]) -> str:
    total = sum(fact.bytes for fact in some)
    return report.size(total) if total else "-"


def _which(some: Sequence[Fact]) -> str:
    if some[0].what != "left":
        return ""
    names = [" in ".join(filter(None, (fact.name, fact.place))) + (f": {fact.detail}" if fact.detail else "") for fact in some]
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
