"""Compare drawn graphs with ONNX Runtime and onnx.reference: ``python -m drawn.fuzz --seconds N --seed S`` from the tests' folder.

The evaluator is also compared with itself: run again, looked on at, without constant folding, and strict. Of a graph that differs, the
first value that does is printed with the nodes that it depends on.

About one graph in 3000 differs for no fault of either side: where the last bit decides a comparison, ArgMax or TopK of values that are
equal on paper, or where ONNX Runtime computes float16 in float32.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.printer
from onnx.reference import ReferenceEvaluator as Reference

import numbaops
from drawn.case import Case, difference
from drawn.graphs import draw
from drawn.witness import OnnxRuntime

TOLERANCES = Case("", 0, [], rtol=1e-4, atol=1e-5)
COARSE = Case("", 0, [], rtol=1e-2, atol=1e-2)
"""Where float16 comes in, which ONNX Runtime computes in float32, rounding later: a comparison of nearly equal values may tip."""


def tolerances(model: onnx.ModelProto) -> Case:
    return COARSE if onnx.TensorProto.FLOAT16 in element_types(model) else TOLERANCES


def element_types(model: onnx.ModelProto) -> set[int]:
    attributes = [each for node in all_nodes(model) for each in node.attribute]
    graphs = [model.graph, *(each.g for each in attributes if each.HasField("g"))]
    tensors = [*(each for graph in graphs for each in graph.initializer), *(each.t for each in attributes if each.HasField("t"))]
    casts = {each.i for each in attributes if each.name == "to"}
    return casts | {each.data_type for each in tensors} | {each.type.tensor_type.elem_type for each in model.graph.input}


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of the graph, of bodies, and of functions that are called."""
    todo, functions = list(model.graph.node), {each.name: each for each in model.functions}
    while todo:
        node = todo.pop()
        yield node
        todo += [inner for each in node.attribute if each.HasField("g") for inner in each.g.node]
        if node.domain == "f" and node.op_type in functions:
            todo += functions.pop(node.op_type).node


def attempt(evaluator: Any, model: onnx.ModelProto, feeds: dict[str, Any], **options: Any) -> tuple[list[Any] | None, str | None]:
    try:
        return evaluator(model, **options).run(None, feeds), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"[:500]


def contradiction(model: onnx.ModelProto, feeds: dict[str, Any]) -> str | None:
    try:
        return inconsistent(model, feeds)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def inconsistent(model: onnx.ModelProto, feeds: dict[str, Any]) -> str | None:
    """Where the evaluator contradicts itself, or gives away what is not the caller's; None if it does neither."""
    evaluator = numbaops.ReferenceEvaluator(model)
    before = {name: value.copy() for name, value in feeds.items()}
    first = evaluator.run(None, feeds)
    names = [each.name for each in model.graph.output]
    watched = evaluator.run(None, feeds, intermediate=True)
    exact = Case("", 0, [], rtol=0)
    others = {
        "second run": evaluator.run(None, feeds),
        "slow path": [watched[name] for name in names],
        "without folding": numbaops.ReferenceEvaluator(model, fold_budget=0).run(None, feeds),
        "strict": numbaops.ReferenceEvaluator(model, strict=True).run(None, feeds),
    }
    for what, results in others.items():
        if (text := difference(results, first, exact)) is not None:
            return f"{what}: {text}"
    for name, value in feeds.items():
        if value.tobytes() != before[name].tobytes():
            return f"input {name!r} was modified"
    kept = [*feeds.values(), *others["second run"]]
    for position, result in enumerate(first):
        if not result.flags.writeable:
            return f"output {names[position]!r} is read-only"
        if any(np.shares_memory(result, other) for other in (*first[:position], *kept)):
            return f"output {names[position]!r} shares memory"
    return None


def examined(model: onnx.ModelProto, feeds: dict[str, Any], runtime: OnnxRuntime) -> tuple[str, str | None]:
    """A verdict, and what is wrong if it is bad."""
    ours, failure = attempt(numbaops.ReferenceEvaluator, model, feeds)
    verdict, theirs = runtime.run(model.SerializeToString(), feeds)
    if verdict != "ok":
        answer, _ = attempt(Reference, model, feeds)
        if ours is None:
            return "refused by all" if answer is None else "failed", failure
        if answer is None:
            return "unique to ours", None
        text = difference(ours, answer, tolerances(model))
        return ("same as onnx.reference", None) if text is None else (ONLY_REFERENCE, f"{text}; {theirs}")
    if ours is None:
        return "failed", failure
    text = difference(ours, theirs, tolerances(model))
    return ("same", None) if text is None else ("different", text)


ONLY_REFERENCE = "differs from onnx.reference, which is wrong in many places"
GOOD = {"same", "same as onnx.reference", "unique to ours", "refused by all"}


def pruned(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model that computes one value only."""
    small = onnx.ModelProto()
    small.CopyFrom(model)
    del small.graph.output[:]
    small.graph.output.append(onnx.ValueInfoProto(name=name))
    wanted, dropped = {name}, []
    for position, node in reversed(list(enumerate(small.graph.node))):
        if wanted.isdisjoint(node.output):
            dropped.append(position)
            continue
        alone = onnx.ModelProto(graph=onnx.GraphProto(node=[node]))
        wanted.update(name for inner in all_nodes(alone) for name in inner.input)
    for position in dropped:
        del small.graph.node[position]
    called = {node.op_type for node in all_nodes(small)}
    for fields, names in ((small.graph.initializer, wanted), (small.graph.input, wanted), (small.functions, called)):
        kept = [each for each in fields if each.name in names]
        del fields[:]
        fields.extend(kept)
    return small


def smallest(model: onnx.ModelProto, feeds: dict[str, Any], verdict: str, runtime: OnnxRuntime) -> tuple[onnx.ModelProto, str | None]:
    """Of the models that compute one value of this one, the first for which the verdict holds; the whole one if there is none."""
    for name in itertools.chain.from_iterable(node.output for node in model.graph.node):
        small = pruned(model, name)
        fed = {each.name: feeds[each.name] for each in small.graph.input}
        again, text = examined(small, fed, runtime)
        if again == verdict:
            return small, text
    return model, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph; the next ones count up")
    parser.add_argument("--reference", action="store_true", help="also print where only onnx.reference has another answer")
    parser.add_argument("--limit", type=int, default=20, help="differences to print")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    runtime = OnnxRuntime()
    counts: collections.Counter[str] = collections.Counter()
    started = time.monotonic()
    for seed in itertools.count(options.seed):
        if time.monotonic() - started > options.seconds or counts["printed"] >= options.limit:
            break
        model, feeds = draw(np.random.default_rng(seed))
        verdict, text = examined(model, feeds, runtime)
        counts[verdict] += 1
        if verdict in GOOD and verdict != "refused by all" and (text := contradiction(model, feeds)) is not None:
            counts["inconsistent"] += 1
            report(seed, "inconsistent", text, model, feeds, counts)
        elif verdict not in GOOD and (options.reference or verdict != ONLY_REFERENCE):
            small, why = smallest(model, feeds, verdict, runtime)
            report(seed, verdict, why or text, small, feeds, counts)
    runtime.close()
    print(", ".join(f"{count} {what}" for what, count in counts.most_common()))


def report(
    seed: int, verdict: str, text: str | None, model: onnx.ModelProto, feeds: dict[str, Any], counts: collections.Counter[str]
) -> None:
    counts["printed"] += 1
    print(f"--- seed {seed}: {verdict}: {text}")
    print(onnx.printer.to_text(model))
    for each in model.graph.input:
        print(f"{each.name} = {feeds[each.name]!r}")


if __name__ == "__main__":
    main()
