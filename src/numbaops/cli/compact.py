"""``numbaops compact``: a model with the same tensors in fewer bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numbaops.cli import report
from numbaops.errors import InvalidValueError
from numbaops.rewrite import files
from numbaops.rewrite.compact import Compacted, TensorChange, compact

_TENSORS_SHOWN = 40
_NAMES_SHOWN = 3


def compact_model(
    path: Path, target: Path | None, *, min_bytes: int, dry_run: bool, check: int, dims: Sequence[str], seed: int, as_json: bool
) -> None:
    """Compact a model file, and print what became of its tensors."""
    if target is None and not dry_run:
        raise InvalidValueError("there is no file to write to; give one, or --dry-run")
    if target is not None:
        files.check_target(target, files.load(path))
    compacted = compact(path, min_bytes=min_bytes, check=check, dims=dims, seed=seed)
    written = [] if target is None or dry_run else compacted.save(target)
    facts = {
        "model": path.name,
        "files": [str(file) for file in written],
        "bytes": {"before": compacted.bytes_before, "after": compacted.bytes_after},
        "checked": check,
        "below_min_bytes": compacted.small,
        "tensors": [_tensor(one) for one in compacted.changes],
    }
    if as_json:
        report.print_json(facts)
    else:
        _print(facts, compacted)


def _tensor(one: TensorChange) -> dict[str, Any]:
    facts = dataclasses.asdict(one)
    return facts | {"bytes": {"before": facts.pop("bytes_before"), "after": facts.pop("bytes_after")}, "saved": one.saved}


def _print(facts: dict[str, Any], compacted: Compacted) -> None:
    changed = sorted((one for one in compacted.changes if one.outcome != "kept"), key=lambda one: -one.saved)
    if changed:
        nested = any(one.where for one in changed)  # else nothing would be said of each
        rows = [
            (one.tensor, *([one.where] if nested else []), _type(one), f"{one.outcome} {one.note}".strip(), report.size(one.saved))
            for one in changed
        ]
        columns = ("tensor", *(["in"] if nested else []), "type", "became", "saved")
        report.print_table(columns, rows[:_TENSORS_SHOWN], numbers=("saved",))
        if len(rows) > _TENSORS_SHOWN:
            report.print_line(f"and {len(rows) - _TENSORS_SHOWN} more, which --json lists")
        groups = [(name, [one for one in changed if one.outcome == name]) for name in dict.fromkeys(one.outcome for one in changed)]
        totals = [(name, str(len(group)), report.size(sum(one.saved for one in group))) for name, group in groups]
        report.print_table(("became", "tensors", "saved"), totals, numbers=("tensors", "saved"))
    kept = sorted((one for one in compacted.changes if one.outcome == "kept"), key=lambda one: -one.bytes_before)
    reasons = dict.fromkeys(one.note for one in kept)
    if kept:
        groups = [(reason, [one for one in kept if one.note == reason]) for reason in reasons]
        lines = [(reason, str(len(group)), report.size(sum(one.bytes_before for one in group)), _names(group)) for reason, group in groups]
        report.print_table(("kept, for", "tensors", "bytes", "names"), lines, numbers=("tensors", "bytes"))
    if compacted.small:
        report.print_line(f"{report.count(compacted.small, 'tensor')} below --min-bytes left as they are")
    if facts["checked"]:
        report.print_line(f"the same to the bit in {report.count(facts['checked'], 'run')} on drawn inputs")
    before, after = compacted.bytes_before, compacted.bytes_after
    line = f"{facts['model']}: {report.size(before)} -> {report.size(after)} ({after / max(1, before):.2%})"
    report.print_line(line + (f", written to {', '.join(facts['files'])}" if facts["files"] else ", nothing written"))


def _type(one: TensorChange) -> str:
    return f"{one.element_type} ({', '.join(map(str, one.shape))}{',' if len(one.shape) == 1 else ''})"


def _names(group: Iterable[TensorChange]) -> str:
    names = [one.tensor for one in group]
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
