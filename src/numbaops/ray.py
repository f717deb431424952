"""A model over a dataset of Ray. Nothing of Ray is imported here; ``pip install "ray[data]"`` brings it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numbaops.batches import Model, check_sizes, declared_inputs, distinct_names, fixed_size, named_arrays
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
        InvalidValueError: a column of ``keep`` has the name of an output, or ``shared`` one that no input has.
        NumbaopsError: there is no such model, or it has no such output.
    """

    def __init__(
        self, model: Any, *, outputs: Sequence[str] | None = None, keep: Sequence[str] = (), shared: Mapping[str, Any] | None = None
    ) -> None:
        source, proto = Model.of(model)
        self._shared = named_arrays(shared, "shared")
        self._declared = declared_inputs(proto)
        names = [value.name for value in proto.graph.input]
        for name in self._shared:
            if name not in names:
                raise InvalidValueError(f"the model has no input {name!r}; its inputs: {', '.join(map(repr, names)) or 'none'}")
        self._inputs = [name for name in names if name not in self._shared]
        having = [value.name for value in proto.graph.output]
        self._outputs = having if outputs is None else distinct_names(outputs, "outputs")
        for name in self._outputs:
            if name not in having:
                raise InvalidValueError(f"the model has no output {name!r}; its outputs: {', '.join(map(repr, having))}")
        self._keep = distinct_names(keep, "keep")
        for name in self._keep:
            if name in self._outputs:
                others = "another name for the column, or other outputs"
                raise InvalidValueError(f"keep has {name!r}, which is an output of the model too; possible: {others}", attribute="keep")
        self._evaluator = source.evaluator()

    def __call__(self, batch: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs of one batch.

        Args:
            batch: columns as arrays of NumPy, whose first dimension is the rows.

        Raises:
            InvalidValueError: a column is missing or has no rows to it, or the batch has not the size that the model fixes.
            NumbaopsError: what the model raises.
        """
        for name in (*(name for name in self._declared if name not in self._shared), *self._keep):
            if name not in batch:
                raise InvalidValueError(f"the batch has no column {name!r}; its columns: {', '.join(map(repr, batch))}")
        kept, feeds = {name: batch[name] for name in self._keep}, {name: batch[name] for name in self._inputs if name in batch}
        for name, column in {**kept, **feeds}.items():
            if not np.ndim(column):
                raise InvalidValueError(
                    f"column {name!r} is a single value; possible: one for each row, and what is the same for every batch in shared="
                )
        fixed = {name: fixed_size(self._declared.get(name), 0) for name in feeds}
        if feeds:
            check_sizes({name: np.shape(value)[:1] for name, value in feeds.items()}, fixed, 0)
        results = self._evaluator.run(self._outputs, {**feeds, **self._shared})
        return {**kept, **dict(zip(self._outputs, results, strict=True))}
