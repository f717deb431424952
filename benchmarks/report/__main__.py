"""The command; see the package."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from . import drawing, measuring, text

PROJECT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> None:
    """Measure, draw, or both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description="The performance record, and what is made of it.")
    parser.add_argument("what", nargs="?", choices=["measure", "draw"], help="only this; by default both")
    parser.add_argument("--quick", action="store_true", help="a smoke: few and small cases, into a temporary folder unless --out is given")
    parser.add_argument(
        "--groups",
        nargs="+",
        choices=measuring.GROUPS,
        default=list(measuring.GROUPS),
        metavar="GROUP",
        help=f"measure only these: {', '.join(measuring.GROUPS)}",
    )
    parser.add_argument("--models", type=Path, nargs="+", default=[], metavar="PATH", help="further models, or folders of models")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="by default docs, and then the README is written too")
    parser.add_argument("--here", metavar="GROUP", choices=measuring.GROUPS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    if options.here:
        rows = measuring.measure_here(options.here, measuring.QUICK if options.quick else measuring.FULL, options)
        json.dump(rows, sys.stdout)
        return
    folder = options.out or (Path(tempfile.mkdtemp(prefix="performance-")) if options.quick else PROJECT / "docs")
    folder.mkdir(parents=True, exist_ok=True)  # before hours of measuring, not after
    path = folder / "performance.json"
    if options.what != "draw":
        before = json.loads(path.read_text("utf-8")) if path.exists() else None
        path.write_text(dumped(measuring.measure(options.groups, options, before)), "utf-8")
    if options.what != "measure":
        record = json.loads(path.read_text("utf-8"))
        (folder / "performance.md").write_text(text.page(record), "utf-8")
        drawing.draw(record, folder)
        if folder == PROJECT / "docs":
            readme = PROJECT / "README.md"
            readme.write_text(text.into_readme(readme.read_text("utf-8"), text.readme(record)), "utf-8")
    print(f"wrote to {folder}")


def dumped(record: measuring.Record) -> str:
    """The record with a row a line, so that differences can be read."""
    groups = {}
    for name, group in record["groups"].items():
        rows = ",\n".join("   " + json.dumps(row) for row in group["rows"])
        groups[name] = f'  "{name}": {{"threads": {group["threads"]}, "seconds": {group["seconds"]}, "rows": [\n{rows}\n  ]}}'
    return f'{{\n "environment": {json.dumps(record["environment"])},\n "groups": {{\n' + ",\n".join(groups.values()) + "\n }\n}\n"


if __name__ == "__main__":
    main()
