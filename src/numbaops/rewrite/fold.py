"""Constants of a model computed ahead, and what they leave without use taken out of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto

from numbaops.errors import InvalidValueError
from numbaops.rewrite import files
from numbaops.rewrite.comparison import check_same
from numbaops.rewrite.facts import Fact
from numbaops.rewrite.folding import Folder
from numbaops.rewrite.names import bodies

__all__ = ["MAX_GROWTH", "MAX_TENSOR", "Fact", "Folded", "fold"]

MAX_GROWTH = 1 << 26
"""Bytes that a model may grow by, by default."""

MAX_TENSOR = 1 << 24
"""Bytes that a computed tensor may take, by default."""


@dataclass(frozen=True, slots=True)
class Folded(files.Rewritten):
    """A folded model, and what became of its nodes.

    Attributes:
        facts: what was folded, inlined, removed, renamed, and what was left and why.
        nodes: the number of nodes before and after, with those in bodies and functions.
    """

    facts: list[Fact]
    nodes: tuple[int, int]


def fold(
    model: Any,
    *,
    max_growth: int = MAX_GROWTH,
    max_tensor: int = MAX_TENSOR,
    dense: bool = False,
    check: int = 0,
    dims: Iterable[str] = (),
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
) -> Folded:
    """Compute what depends on no graph input, and store it in the place of the nodes that compute it.

    An ``If`` with a constant condition gives way to its branch. What nobody takes goes: nodes, initializers, functions. Bodies and
    functions are folded inside. Names of graph inputs and outputs, opsets and metadata stay; results are the same to the bit.

    An initializer that is a graph input as well is the default of that input, which a run may override, and is no constant. Only before
    IR version 4, where every initializer had to be an input, it is one. The shape of a graph input is constant as far as all its
    dimensions are declared as numbers.

    Args:
        model: a ModelProto, which is left as it is; or a model file as a path, as bytes or as a file object.
        max_growth: bytes that the model may grow by.
        max_tensor: bytes that a computed tensor may take.
        dense: also store what is larger than the nodes that make it.
        check: run the model before and after on so many drawn inputs, and compare the outputs to the bit.
        dims: ``"NAME=SIZE"`` of symbolic dimensions of drawn inputs; of others it is 1.
        seed: of drawn inputs.
        folder: where external data are; by default beside the file.

    Raises:
        InvalidModelError: it is no ONNX model.
        InvalidValueError: a limit is negative.
        EvaluationError: ``check`` found a difference, or the model fails on drawn inputs.
    """
    for name, value in (("max_growth", max_growth), ("max_tensor", max_tensor), ("check", check)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 0:
            raise InvalidValueError(f"{name} is {value!r}; allowed: an integer from 0 on", attribute=name)
    loaded = files.load(model, folder)
    before = replace(loaded, model=files.copied(loaded.model)) if check else loaded
    count = _count(loaded.model)
    folding = Folder(loaded, int(max_growth), int(max_tensor), dense)
    folding.run()
    if check:
        check_same(before, loaded, int(check), dims, seed)
    return Folded(loaded.model, loaded, folding.facts, (count, _count(loaded.model)))


def _count(model: ModelProto) -> int:
    return sum(1 + sum(map(_count_body, bodies(node))) for owner in (model.graph, *model.functions) for node in owner.node)


def _count_body(graph: GraphProto) -> int:
    return sum(1 + sum(map(_count_body, bodies(node))) for node in graph.node)
