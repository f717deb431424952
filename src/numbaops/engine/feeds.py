"""What may be fed to a graph, and what it declares of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TypeProto

from numbaops.dtypes import element_type, of_dtype
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError


def names_in(nodes: Iterable[NodeProto]) -> set[str]:
    """Every value name that nodes take or give, also in bodies inside them."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input, node.output)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                names |= names_in(attribute.g.node)
    return names


def check_names(feeds: Mapping[str, Any], inputs: Iterable[str], initializers: Iterable[str], known: Callable[[str], bool]) -> None:
    """Check that every input is fed, and nothing that is no input.

    Args:
        feeds: what is fed.
        inputs: the graph's inputs; those with an initializer need no feed.
        initializers: names of all initializers.
        known: tells whether the graph has another value of that name; a feed of these does no harm.

    Raises:
        EvaluationError: an input is missing, or a name is wrong.
    """
    names, initialized = [name for name in inputs if name], set(initializers)
    listed = ", ".join(map(repr, names)) or "none"
    for name in names:
        if name not in feeds and name not in initialized:
            raise EvaluationError(f"Unable to find input {name!r}: it is not fed. Inputs: {listed}; fed: {sorted(map(str, feeds))}")
    for name in feeds:
        if not name:
            raise EvaluationError(f"a value is fed without a name: '' stands for an absent input. Inputs: {listed}")
        if name in names:
            continue
        if name in initialized:
            raise EvaluationError(f"{name!r} is an initializer and not an input: it is a constant, and cannot be fed. Inputs: {listed}")
        if not known(name):
            raise EvaluationError(f"{name!r} is fed, but the graph has no such value. Inputs: {listed}")


def check_declared(what: str, value: Any, declared: TypeProto) -> None:
    """Check a value against its declared type; ``what`` it is begins an error.

    Raises:
        InvalidTypeError: it is not a value of that type, or its elements are not.
        InvalidValueError: its rank or a declared dimension differs.
    """
    kind = declared.WhichOneof("value")
    if kind == "optional_type":
        if value is not None:
            check_declared(what, value, declared.optional_type.elem_type)
    elif kind == "sequence_type":
        if not isinstance(value, list):
            raise InvalidTypeError(f"{what} is a {type(value).__name__}; declared: a sequence, given as a list")
        for each in value:
            check_declared(what, each, declared.sequence_type.elem_type)
    elif kind == "tensor_type":
        _check_tensor(what, value, declared.tensor_type)


def _check_tensor(what: str, value: Any, declared: TypeProto.Tensor) -> None:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise InvalidTypeError(f"{what} is a {type(value).__name__}; declared: a tensor, given as a NumPy array")
    if declared.elem_type:
        wanted, came = element_type(declared.elem_type), of_dtype(value.dtype)
        if came != wanted:
            raise InvalidTypeError(f"{what} has the element type {came}; declared: {wanted}")
    if not declared.HasField("shape"):
        return
    # a negative dimension is an unknown one, which some exporters write
    dims = [
        dim.dim_value if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0 else dim.dim_param or "?"
        for dim in declared.shape.dim
    ]
    fits = len(dims) == value.ndim and all(isinstance(dim, str) or dim == size for dim, size in zip(dims, value.shape, strict=True))
    if not fits:
        raise InvalidValueError(f"{what} has the shape {list(value.shape)}; declared: [{', '.join(map(str, dims))}]")
