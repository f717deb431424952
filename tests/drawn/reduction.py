"""Draws of the Reduce family, ArgMax, ArgMin, CumSum and CumProd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from drawn.case import Case
from drawn.elementwise import a_shape, tensor, tolerance, versions

REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for name in REDUCTIONS:
        for opset in versions(f"Reduce{name}"):
            for _ in range(40):
                yield reduction(rng, f"Reduce{name}", opset)
    for op_type in ("ArgMax", "ArgMin"):
        for opset in versions(op_type):
            for _ in range(30):
                x = tensor(rng, op_type, opset, a_shape(rng, 1))
                x = np.where(np.isnan(x), x.dtype.type(0), x) if x.dtype.kind not in "iu" else x
                attributes = {"axis": int(rng.integers(-x.ndim, x.ndim)), "keepdims": int(rng.integers(2))}
                if opset >= 12:
                    attributes["select_last_index"] = int(rng.integers(2))
                yield Case(op_type, opset, [np.asarray(x)], attributes)
    for op_type in ("CumSum", "CumProd"):
        for opset in versions(op_type):
            for _ in range(40):
                x = tensor(rng, op_type, opset, a_shape(rng, 1))
                axis = np.array(rng.integers(-x.ndim, x.ndim), rng.choice([np.int32, np.int64]))
                attributes = {name: int(rng.integers(2)) for name in ("exclusive", "reverse")}
                yield Case(op_type, opset, [x, axis], attributes, **tolerance(x))


def reduction(rng: np.random.Generator, op_type: str, opset: int) -> Case:
    x = tensor(rng, op_type, opset)
    schema = onnx.defs.get_schema(op_type, opset)
    attributes: dict[str, Any] = {"keepdims": int(rng.integers(2))}
    axes = [int(axis) - (x.ndim if rng.random() < 0.3 else 0) for axis in rng.permutation(x.ndim)[: rng.integers(0, x.ndim + 1)]]
    limits = tolerance(x)
    if op_type == "ReduceProd" and x.dtype.kind not in "iu":
        limits["atol"] *= 10
    if "axes" in schema.attributes:
        return Case(op_type, opset, [x], attributes | ({"axes": axes} if axes else {}), **limits)
    attributes["noop_with_empty_axes"] = int(rng.integers(2))
    return Case(op_type, opset, [x, np.array(axes, np.int64) if axes or rng.random() < 0.5 else None], attributes, **limits)
