"""A model over a dataset of Ray. Nothing of Ray is imported here; ``pip install "ray[data]"`` brings it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numbaops.batches import Model, check_sizes, declared_inputs, fixed_size
from numbaops.errors import InvalidValueError

__all__ = ["Predictor"]


class Predictor:
    """What ``Dataset.map_batches`` calls: columns by the names of a model's inputs in, its outputs out.

    Each actor makes one, and loads the model once::

        dataset.map_batches(numbaops.ray.Predictor, fn_constructor_args=("model.onnx",), batch_size=64, concurrency=2)

    Args:
        model: a path, which every actor must see; or the bytes of a file, a ``ModelProto`` or a :class:`~numbaops.ReferenceEvaluator`.
        outputs: the outputs that are wanted; by default all.
        keep: columns that are handed on beside them, e.g. a key.
        shared: inputs by name that each batch gets whole.

    Raises:
        NumbaopsError: there is no such model, or it has no such output.
    """

    def __init__(
        self, model: Any, *, outputs: Sequence[str] | None = None, keep: Sequence[str] = (), shared: Mapping[str, Any] | None = None
    ) -> None:
        source, proto = Model.of(model)
        self._shared = dict(shared or {})
        self._declared = declared_inputs(proto)
        self._inputs = [value.name for value in proto.graph.input if value.name not in self._shared]
        having = [value.name for value in proto.graph.output]
        self._outputs = list(having if outputs is None else outputs)
        for name in self._outputs:
            if name not in having:
                raise InvalidValueError(f"the model has no output {name!r}; its outputs: {', '.join(map(repr, having))}")
        self._keep = tuple(keep)
        self._evaluator = source.evaluator()

    def __call__(self, batch: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs of one batch.

        Args:
            batch: columns as arrays of NumPy, whose first dimension is the rows.

        Raises:
            InvalidValueError: a column is missing, or the batch has not the size that the model fixes.
            NumbaopsError: what the model raises.
        """
        for name in (*self._declared, *self._keep):
            if name not in batch and name not in self._shared:
                raise InvalidValueError(f"the batch has no column {name!r}; its columns: {', '.join(map(repr, batch))}")
        feeds = {name: batch[name] for name in self._inputs if name in batch}
        fixed = {name: fixed_size(self._declared.get(name), 0) for name in feeds}
        if feeds:
            check_sizes({name: (len(value),) for name, value in feeds.items()}, fixed, 0)
        results = self._evaluator.run(self._outputs, {**feeds, **self._shared})
        return {**{name: batch[name] for name in self._keep}, **dict(zip(self._outputs, results, strict=True))}
