"""Values that depend on no graph input, read or computed when somebody asks for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, TypeProto

from numbaops.dtypes import BY_CODE, of_dtype
from numbaops.engine.nodes import sparse_parts
from numbaops.engine.values import shared
from numbaops.rewrite.files import LoadedModel
from numbaops.tensors import dense_from_sparse, from_array, to_array


class Known:
    """A value that depends on no graph input.

    Args:
        get: gives it.
        nbytes: that it takes in a model; None if it is no tensor.
        cost: bytes of the smallest way to have it in a model.
        made: it is smaller as the nodes that make it.
        stored: it, where it is stored already.
    """

    __slots__ = ("_get", "_value", "cost", "made", "nbytes", "stored")

    def __init__(
        self, get: Callable[[], Any], nbytes: int | None, cost: int, made: bool = False, stored: TensorProto | None = None
    ) -> None:
        self._get: Callable[[], Any] | None = get
        self._value: Any = None
        self.stored = stored
        self.nbytes, self.cost, self.made = nbytes, cost, made

    @classmethod
    def of_tensor(cls, tensor: TensorProto, loaded: LoadedModel) -> Known:
        """A tensor of the model."""
        row = BY_CODE.get(tensor.data_type)
        nbytes = tensor.ByteSize() if row is None or row.kind == "string" else row.packed_size(math.prod(tensor.dims))
        return cls(lambda: shared(loaded.array(tensor)), nbytes, nbytes, stored=tensor)

    def get(self) -> Any:
        """The value."""
        if self._get is not None:
            self._value, self._get = self._get(), None
        return self._value

    @property
    def code(self) -> int:
        """The number of its element type."""
        return self.stored.data_type if self.stored is not None else of_dtype(self.get().dtype).code

    def tensor(self, name: str) -> TensorProto:
        """It, as a tensor of that name."""
        if self.stored is None:
            return from_array(self.get(), name)
        copy = TensorProto()
        copy.CopyFrom(self.stored)
        copy.name = name
        return copy


def known_initializers(graph: GraphProto, without: Collection[str], loaded: LoadedModel) -> dict[str, Known]:
    """The initializers of a graph, but for those of some names."""
    found = {tensor.name: Known.of_tensor(tensor, loaded) for tensor in graph.initializer if tensor.name not in without}
    for sparse in graph.sparse_initializer:
        if sparse.values.name not in without:
            found[sparse.values.name] = Known(lambda sparse=sparse: _dense(sparse, loaded), None, sparse.ByteSize(), True)  # type: ignore[misc]
    return found


def _dense(sparse: Any, loaded: LoadedModel) -> Any:
    parts = sparse_parts(sparse, loaded.array)
    return shared(dense_from_sparse(*parts) if isinstance(parts, tuple) else to_array(parts))


def of_shape(declared: TypeProto) -> Known | None:
    """What stands for a graph input whose dimensions are all declared as numbers; None for others."""
    tensor = declared.tensor_type
    row = BY_CODE.get(tensor.elem_type)
    if declared.WhichOneof("value") != "tensor_type" or row is None or not tensor.HasField("shape"):
        return None
    sizes = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in tensor.shape.dim]
    if min(sizes, default=1) < 1:  # some exporters write 0 and -1 for what they do not know
        return None
    like = np.broadcast_to(np.zeros((), row.dtype), sizes)
    return Known(lambda: like, None, 0)
