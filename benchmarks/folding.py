"""Folding beside onnxsim, OnnxSlim and onnxscript's optimizer: ``python -m benchmarks.folding [--models PATH ...] [--dim NAME=SIZE ...]``.

Of each that is installed: the smallest time of some rounds in which all take turns, what is left, and whether the folded model gives what
the unfolded one does, by an evaluator that gives each node's own result. Without ``--models``, DenseNet-121 and ResNet-50 of the onnx
wheel, whose weights ConstantOfShape makes: those stay so with ``numbaops``, and are stored with ``numbaops, dense`` as by the others.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from onnx import GraphProto, ModelProto

import numbaops

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
MODELS = [LIGHT / "light_densenet121.onnx", LIGHT / "light_resnet50.onnx"]
LARGE = {"max_growth": 1 << 30, "max_tensor": 1 << 28}

Tool = Callable[[ModelProto], ModelProto]

TOOLS: dict[str, tuple[str | None, Callable[[Any], Tool]]] = {
    "numbaops": (None, lambda _: lambda model: numbaops.fold(model).model),
    "numbaops, dense": (None, lambda _: lambda model: numbaops.fold(model, dense=True, **LARGE).model),
    "onnxsim": ("onnxsim", lambda module: lambda model: module.simplify(model)[0]),
    "onnxsim, folding only": ("onnxsim", lambda module: lambda model: module.simplify(model, perform_optimization=False)[0]),
    "OnnxSlim": ("onnxslim", lambda module: module.slim),
    "onnxscript": ("onnxscript.optimizer", lambda module: module.optimize),
}
"""By name, the package, and what makes the function of it."""


def installed() -> Iterator[tuple[str, Tool]]:
    for name, (package, make) in TOOLS.items():
        try:
            module = None if package is None else importlib.import_module(package)
        except ModuleNotFoundError:
            print(f"{name}: not installed")
            continue
        yield name, make(module)


def nodes_of(graph: GraphProto) -> int:
    """The number of nodes, also of those in bodies."""
    bodies = (body for node in graph.node for each in node.attribute for body in ([each.g] if each.HasField("g") else each.graphs))
    return len(graph.node) + sum(map(nodes_of, bodies))


def verdict(model: ModelProto, feeds: dict[str, Any], wanted: list[Any]) -> str:
    from numbaops.rewrite.comparison import same_bits

    try:
        found = numbaops.ReferenceEvaluator(model, exact=True).run(None, feeds)
    except Exception as error:  # whatever it is, that model does not run
        return f"fails: {' '.join(str(error).split())[:80]}"
    if same_bits(found, wanted):
        return "same to the bit"
    pairs = [(np.asarray(one, np.float64), np.asarray(other, np.float64)) for one, other in zip(found, wanted, strict=True)]
    if any(one.shape != other.shape for one, other in pairs):
        return "other shapes"
    return f"off by {max(float(np.abs(one - other).max() / np.abs(other).max()) for one, other in pairs):.1g}"


def measure(path: Path, tools: dict[str, Tool], rounds: int, dims: list[str]) -> None:
    from numbaops.rewrite import comparison, files  # here: asv imports this module too, beside packages of commits that have no such

    model = onnx.load(path)
    print(f"{path.name}: {nodes_of(model.graph)} nodes, {model.ByteSize()} bytes")
    (feeds,) = comparison.drawn(files.load(model), 1, dims)
    wanted = numbaops.ReferenceEvaluator(model, exact=True).run(None, feeds)
    times: dict[str, float] = {}
    results: dict[str, Any] = {}
    for round_ in range(rounds + 1):  # the first to warm up
        for name, tool in tools.items():
            copy = ModelProto()
            copy.CopyFrom(model)
            start = time.perf_counter()
            try:
                results[name] = tool(copy)
            except Exception as error:  # of others, which have no common base
                results[name] = f"fails: {' '.join(str(error).split())[:80]}"
                continue
            times[name] = min(time.perf_counter() - start, times.get(name, float("inf")) if round_ else float("inf"))
    for name, result in results.items():
        if isinstance(result, str):
            print(f"  {name:22} {result}")
            continue
        valid = ""
        try:
            onnx.checker.check_model(result)
        except onnx.checker.ValidationError:
            valid = ", which onnx.checker refuses"
        ratio = times["numbaops"] / times[name]
        left = f"{nodes_of(result.graph):5} nodes {result.ByteSize():10} bytes"
        print(f"  {name:22} {times[name] * 1e3:7.0f} ms (ratio {ratio:4.2f}) {left}, {verdict(result, feeds, wanted)}{valid}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, nargs="*", default=MODELS)
    parser.add_argument("--dim", action="append", default=[], help="NAME=SIZE of a symbolic dimension")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    tools = dict(installed())
    for path in arguments.models:
        measure(path, tools, arguments.rounds, arguments.dim)


if __name__ == "__main__":
    main()
