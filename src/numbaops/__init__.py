"""ONNX operators and models evaluated with NumPy arrays and Numba kernels.

Names are loaded on first use: importing the package loads neither Numba nor onnx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from numbaops.casting import cast
    from numbaops.convert import PackedTensor
    from numbaops.dtypes import ELEMENT_TYPES, ElementType, FloatFormat, element_type
    from numbaops.errors import (
        AllocationError,
        EvaluationError,
        InvalidTypeError,
        InvalidValueError,
        NumbaopsError,
        UnsupportedError,
    )
    from numbaops.functional import constant, constant_of_shape, eye_like, operator
    from numbaops.numba_types import register_numba_types
    from numbaops.opset import resolve
    from numbaops.reference import InvalidModelError, ReferenceEvaluator
    from numbaops.runtime import memory
    from numbaops.tensors import from_array, to_array

_HOME = {
    "PackedTensor": "convert",
    "ELEMENT_TYPES": "dtypes",
    "ElementType": "dtypes",
    "FloatFormat": "dtypes",
    "element_type": "dtypes",
    "AllocationError": "errors",
    "EvaluationError": "errors",
    "InvalidTypeError": "errors",
    "InvalidValueError": "errors",
    "NumbaopsError": "errors",
    "UnsupportedError": "errors",
    "cast": "casting",
    "constant": "functional",
    "constant_of_shape": "functional",
    "eye_like": "functional",
    "operator": "functional",
    "register_numba_types": "numba_types",
    "resolve": "opset",
    "InvalidModelError": "reference",
    "ReferenceEvaluator": "reference",
    "memory": "runtime",
    "from_array": "tensors",
    "to_array": "tensors",
}

__all__ = [
    "ELEMENT_TYPES",
    "AllocationError",
    "ElementType",
    "EvaluationError",
    "FloatFormat",
    "InvalidModelError",
    "InvalidTypeError",
    "InvalidValueError",
    "NumbaopsError",
    "PackedTensor",
    "ReferenceEvaluator",
    "UnsupportedError",
    "cast",
    "constant",
    "constant_of_shape",
    "element_type",
    "eye_like",
    "from_array",
    "memory",
    "operator",
    "register_numba_types",
    "resolve",
    "to_array",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME[name]}")
    if name == "memory":
        module = importlib.import_module("numbaops.runtime.memory")
        globals()[name] = module
        return module
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
