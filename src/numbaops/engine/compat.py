"""What differs between the versions of onnx that the evaluator runs with."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import onnx
from onnx.reference.op_run import OpRun

from numbaops.errors import UnsupportedError


def optimized_operators() -> Sequence[type[OpRun]]:
    """The operators that onnx older than 1.23 puts before its plain ones if ``optimized``."""
    try:
        return importlib.import_module("onnx.reference.ops_optimized").optimized_operators  # type: ignore[no-any-return]
    except ModuleNotFoundError:
        return ()


def symbol_bindings() -> Any:
    """What collects the values of symbolic dimensions while shapes are checked, which onnx can do since 1.23."""
    try:
        from onnx.reference.shape_annotation_checker import SymbolBindings
    except ModuleNotFoundError:
        raise UnsupportedError(f"check_shape_annotations needs onnx 1.23 or newer; installed: {onnx.__version__}") from None
    return SymbolBindings()
