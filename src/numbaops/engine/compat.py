"""What differs between the versions of onnx that the evaluator runs with."""

from __future__ import annotations

from typing import Any

import onnx

from numbaops.errors import UnsupportedError


def symbol_bindings() -> Any:
    """What collects the values of symbolic dimensions while shapes are checked, which onnx can do since 1.23."""
    try:
        from onnx.reference.shape_annotation_checker import SymbolBindings
    except ModuleNotFoundError:
        raise UnsupportedError(f"check_shape_annotations needs onnx 1.23 or newer; installed: {onnx.__version__}") from None
    return SymbolBindings()
