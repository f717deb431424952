"""Compare the evaluator with ONNX Runtime and onnx.reference on drawn inputs and print where they differ."""

from __future__ import annotations

import argparse
import collections
import importlib
import pkgutil
import warnings
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator as Reference

import drawn
import numbaops
from drawn.case import Case, difference
from drawn.witness import OnnxRuntime

HELPERS = {"case", "witness", "graphs", "fuzz", "__main__"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", help="only these; all by default")
    parser.add_argument("--family", help="only this module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1, help="how often to draw")
    parser.add_argument("--reference", action="store_true", help="also say what onnx.reference answers")
    parser.add_argument("--limit", type=int, default=3, help="differences to print an operator version")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    runtime = OnnxRuntime()
    tally: dict[tuple[str, int], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name in sorted(module.name for module in pkgutil.iter_modules(drawn.__path__)):
        if name in HELPERS or (options.family and name != options.family):
            continue
        family = importlib.import_module(f"drawn.{name}")
        for turn in range(options.rounds):
            for case in family.draws(np.random.default_rng(options.seed + turn)):
                if not options.operators or case.op_type in options.operators:
                    compare(case, runtime, tally[case.op_type, case.since_version], options)
    runtime.close()
    for (op_type, version), counts in sorted(tally.items()):
        print(f"{op_type}-{version}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))


def compare(case: Case, runtime: OnnxRuntime, counts: collections.Counter[str], options: Any) -> None:
    """Count, and print, what became of one case."""
    model = case.model()
    verdict, theirs = runtime.run(model.SerializeToString(), case.feeds)
    ours, failure = attempt(numbaops.ReferenceEvaluator, case)
    if verdict != "ok" and ours is None:
        counts["refused by both"] += 1
        return
    text = failure if ours is None else difference(ours, theirs, case) if verdict == "ok" else f"{verdict}: {theirs}"
    what = "same" if text is None else "unique to ours" if verdict != "ok" else "failed" if ours is None else "different"
    counts[what] += 1
    if text is None or counts[what] > options.limit:
        return
    print(f"{what}: {case}\n    {text}")
    if options.reference:
        answer, failure = attempt(Reference, case)
        against = answer if answer is None or verdict != "ok" else difference(answer, theirs, case)
        print(f"    onnx.reference: {failure or against or 'as ONNX Runtime'}")


def attempt(evaluator: Any, case: Case) -> tuple[list[Any] | None, str | None]:
    try:
        return evaluator(case.model()).run(None, case.feeds), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"[:300]


if __name__ == "__main__":
    main()
