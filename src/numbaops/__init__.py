"""ONNX operators and models evaluated with NumPy arrays and Numba kernels.

Names are loaded on first use: importing the package loads neither Numba nor onnx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from numbaops.casting import cast
    from numbaops.convert import PackedTensor, pack, unpack
    from numbaops.dtypes import ELEMENT_TYPES, ElementType, FloatFormat, element_type
    from numbaops.engine.patching import load_op, patch_onnx, unpatch_onnx
    from numbaops.errors import (
        AllocationError,
        EvaluationError,
        InvalidTypeError,
        InvalidValueError,
        NumbaopsError,
        UnsupportedError,
    )
    from numbaops.functional import constant, constant_of_shape, dequantize_linear, eye_like, operator, quantize_linear
    from numbaops.numba_types import register_numba_types
    from numbaops.opset import resolve
    from numbaops.reference import InvalidModelError, ReferenceEvaluator
    from numbaops.rewrite.compact import compact
    from numbaops.rewrite.fold import fold
    from numbaops.runtime import memory
    from numbaops.tensors import from_array, to_array

_HOME = {
    "PackedTensor": "convert",
    "pack": "convert",
    "unpack": "convert",
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
    "dequantize_linear": "functional",
    "eye_like": "functional",
    "operator": "functional",
    "quantize_linear": "functional",
    "load_op": "engine.patching",
    "patch_onnx": "engine.patching",
    "unpatch_onnx": "engine.patching",
    "register_numba_types": "numba_types",
    "fold": "rewrite.fold",
    "resolve": "opset",
    "InvalidModelError": "reference",
    "ReferenceEvaluator": "reference",
    "compact": "rewrite.compact",
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
    "compact",
    "constant",
    "constant_of_shape",
    "dequantize_linear",
    "element_type",
    "eye_like",
    "fold",
    "from_array",
    "load_op",
    "memory",
    "operator",
    "pack",
    "patch_onnx",
    "quantize_linear",
    "register_numba_types",
    "resolve",
    "to_array",
    "unpack",
    "unpatch_onnx",
]


_SUBMODULES = ("dask", "ray")  # of extras, not in __all__


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
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
