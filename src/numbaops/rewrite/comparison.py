"""Two models run on the same drawn inputs, and their outputs compared to the bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from numbaops.drawing import declared_inputs, dimensions, draw
from numbaops.errors import EvaluationError
from numbaops.reference import ReferenceEvaluator
from numbaops.rewrite.files import LoadedModel


def same_bits(one: Any, other: Any) -> bool:
    """Whether two values are the same to the bit: types, shapes and elements; a NaN is as its bits are."""
    if isinstance(one, (list, tuple)):
        return isinstance(other, (list, tuple)) and len(one) == len(other) and all(map(same_bits, one, other))
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and list(one) == list(other) and all(same_bits(value, other[key]) for key, value in one.items())
    if not isinstance(one, (np.ndarray, np.generic)):
        return type(one) is type(other) and bool(one == other)
    if not isinstance(other, (np.ndarray, np.generic)) or one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind in "OUS":
        return one.tolist() == other.tolist()  # type: ignore[no-any-return]
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def drawn(model: LoadedModel, runs: int, sizes: Iterable[str] = (), seed: int = 0) -> Iterator[dict[str, Any]]:
    """The inputs that a model needs, drawn so many times.

    Args:
        model: the model.
        runs: how many times.
        sizes: ``NAME=SIZE`` of symbolic dimensions; of others it is 1.
        seed: of what is drawn.

    Raises:
        NumbaopsError: an input cannot be drawn.
    """
    inputs = declared_inputs(model.model)
    known = dimensions(inputs, {}, sizes)
    for run in range(runs):
        yield {
            one.name: draw(one.type, known, np.random.default_rng([seed, run, position]), one.name)
            for position, one in enumerate(inputs)
            if one.required
        }


def check_same(before: LoadedModel, after: LoadedModel, runs: int, sizes: Iterable[str] = (), seed: int = 0) -> None:
    """Run a model before and after it was rewritten, and compare the outputs to the bit.

    Args:
        before: the model as it was.
        after: what was made of it.
        runs: how many times, each with inputs of its own.
        sizes: ``NAME=SIZE`` of symbolic dimensions; of others it is 1.
        seed: of the inputs that are drawn.

    Raises:
        EvaluationError: an output differs, or one of the two models fails.
    """
    old, new = (ReferenceEvaluator(one.source, exact=True) for one in (before, after))
    for run, feeds in enumerate(drawn(before, runs, sizes, seed)):
        results = []
        for evaluator, what in ((old, "before it was rewritten"), (new, "rewritten")):
            try:
                results.append(evaluator.run(None, feeds))
            except Exception as error:  # of operators, which have no common base
                raise EvaluationError(f"check: the model, {what}, fails on drawn inputs: {' '.join(str(error).split())}") from error
        for name, one, other in zip(old.output_names, *results, strict=True):
            if not same_bits(one, other):
                raise EvaluationError(f"check: output {name!r} differs in run {run + 1} of {runs}")
