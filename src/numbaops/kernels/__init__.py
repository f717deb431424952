"""Kernels: ``@njit`` functions over arrays and integers that know nothing of ONNX.

They can be called from Python and from your own ``@njit`` functions::

    from numbaops.kernels import fill, write_diagonal

Names are looked up on first use, so that importing this package does not load Numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numbaops.kernels.activations import make_map, relu_codes
    from numbaops.kernels.attention import attend
    from numbaops.kernels.bits import make_pack, make_unpack
    from numbaops.kernels.chains import larger, make_chain, smaller
    from numbaops.kernels.decoders import make_decode, make_decode_packed, make_decoder, make_integer_decoder, make_scale_decoder
    from numbaops.kernels.diagonal import make_write_packed_diagonal, write_diagonal, write_diagonal_pairs
    from numbaops.kernels.elements import make_combine_rows, make_gather, make_scatter, make_scatter_combined, make_triangle
    from numbaops.kernels.few_windows import convolve_few
    from numbaops.kernels.filling import fill, fill_pairs, make_fill_packed, stream, stream_pairs
    from numbaops.kernels.floats import (
        make_encode,
        make_encoder,
        make_integer_encoder,
        make_look_up,
        make_look_up_packed,
        make_packed,
        make_scale_encoder,
        make_staged,
        make_truncate,
        narrow_float64,
        widen_bfloat16,
        widen_float16,
    )
    from numbaops.kernels.functions import (
        erf,
        exp,
        exp_of_negative,
        expm1_of_negative,
        log1p_of_fraction,
        normal_distribution,
        sigmoid,
        softplus,
        tanh,
    )
    from numbaops.kernels.integer_products import multiply_bytes
    from numbaops.kernels.matrices import multiply, multiply_columns, multiply_integers, multiply_rows, pack_panel, pack_rows
    from numbaops.kernels.planes import convolve_planes, finish, scale_planes
    from numbaops.kernels.products import convolve, panel_channels
    from numbaops.kernels.quantization import (
        extremes,
        int32_minus,
        keep_float32,
        make_dequantize,
        make_dequantize_encoded,
        make_float_minus,
        make_integer_minus,
        make_packing,
        make_quantize_float,
        make_quantize_integer,
        make_rows,
        make_runs,
        make_unpacking,
        make_widened,
        round_bfloat16,
        round_float16,
    )
    from numbaops.kernels.ranking import keep_boxes, list_boxes, make_top
    from numbaops.kernels.recurrent import lay_out_columns, recur
    from numbaops.kernels.resampling import make_blend, make_pick
    from numbaops.kernels.rotation import rotate
    from numbaops.kernels.rows import (
        make_accumulate,
        make_fold_columns,
        make_fold_rows,
        make_normalize_runs,
        make_scale_runs,
        place_columns,
    )
    from numbaops.kernels.sampling import align_regions, sample_grid
    from numbaops.kernels.softmax import copy_and_find_largest, log_softmax_row, softmax_row
    from numbaops.kernels.waiting import wait_until
    from numbaops.kernels.window_geometry import Extent, window_layout
    from numbaops.kernels.windows import make_fold_windows, make_place_largest, make_reduce_runs

_MODULES = {
    "elements": ("make_combine_rows", "make_gather", "make_scatter", "make_scatter_combined", "make_triangle"),
    "few_windows": ("convolve_few",),
    "filling": ("fill", "fill_pairs", "stream", "stream_pairs", "make_fill_packed"),
    "chains": ("larger", "make_chain", "smaller"),
    "diagonal": ("write_diagonal", "write_diagonal_pairs", "make_write_packed_diagonal"),
    "activations": ("make_map", "relu_codes"),
    "attention": ("attend",),
    "bits": ("make_pack", "make_unpack"),
    "decoders": ("make_decode", "make_decode_packed", "make_decoder", "make_integer_decoder", "make_scale_decoder"),
    "floats": (
        "make_encode",
        "make_encoder",
        "make_integer_encoder",
        "make_look_up",
        "make_look_up_packed",
        "make_packed",
        "make_scale_encoder",
        "make_staged",
        "make_truncate",
        "narrow_float64",
        "widen_bfloat16",
        "widen_float16",
    ),
    "functions": (
        "erf",
        "exp",
        "exp_of_negative",
        "expm1_of_negative",
        "log1p_of_fraction",
        "normal_distribution",
        "sigmoid",
        "softplus",
        "tanh",
    ),
    "integer_products": ("multiply_bytes",),
    "matrices": ("multiply", "multiply_columns", "multiply_integers", "multiply_rows", "pack_panel", "pack_rows"),
    "planes": ("convolve_planes", "finish", "scale_planes"),
    "products": ("convolve", "panel_channels"),
    "quantization": (
        "extremes",
        "int32_minus",
        "keep_float32",
        "make_dequantize",
        "make_dequantize_encoded",
        "make_float_minus",
        "make_integer_minus",
        "make_packing",
        "make_quantize_float",
        "make_quantize_integer",
        "make_rows",
        "make_runs",
        "make_unpacking",
        "make_widened",
        "round_bfloat16",
        "round_float16",
    ),
    "softmax": ("copy_and_find_largest", "log_softmax_row", "softmax_row"),
    "recurrent": ("lay_out_columns", "recur"),
    "ranking": ("keep_boxes", "list_boxes", "make_top"),
    "rows": ("make_accumulate", "make_fold_columns", "make_fold_rows", "make_normalize_runs", "make_scale_runs", "place_columns"),
    "resampling": ("make_blend", "make_pick"),
    "sampling": ("align_regions", "sample_grid"),
    "rotation": ("rotate",),
    "waiting": ("wait_until",),
    "window_geometry": ("Extent", "window_layout"),
    "windows": ("make_fold_windows", "make_place_largest", "make_reduce_runs"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Extent",
    "align_regions",
    "attend",
    "convolve",
    "convolve_few",
    "convolve_planes",
    "copy_and_find_largest",
    "erf",
    "exp",
    "exp_of_negative",
    "expm1_of_negative",
    "extremes",
    "fill",
    "fill_pairs",
    "finish",
    "int32_minus",
    "keep_boxes",
    "keep_float32",
    "larger",
    "lay_out_columns",
    "list_boxes",
    "log1p_of_fraction",
    "log_softmax_row",
    "make_accumulate",
    "make_blend",
    "make_chain",
    "make_combine_rows",
    "make_decode",
    "make_decode_packed",
    "make_decoder",
    "make_dequantize",
    "make_dequantize_encoded",
    "make_encode",
    "make_encoder",
    "make_fill_packed",
    "make_float_minus",
    "make_fold_columns",
    "make_fold_rows",
    "make_fold_windows",
    "make_gather",
    "make_integer_decoder",
    "make_integer_encoder",
    "make_integer_minus",
    "make_look_up",
    "make_look_up_packed",
    "make_map",
    "make_normalize_runs",
    "make_pack",
    "make_packed",
    "make_packing",
    "make_pick",
    "make_place_largest",
    "make_quantize_float",
    "make_quantize_integer",
    "make_reduce_runs",
    "make_rows",
    "make_runs",
    "make_scale_decoder",
    "make_scale_encoder",
    "make_scale_runs",
    "make_scatter",
    "make_scatter_combined",
    "make_staged",
    "make_top",
    "make_triangle",
    "make_truncate",
    "make_unpack",
    "make_unpacking",
    "make_widened",
    "make_write_packed_diagonal",
    "multiply",
    "multiply_bytes",
    "multiply_columns",
    "multiply_integers",
    "multiply_rows",
    "narrow_float64",
    "normal_distribution",
    "pack_panel",
    "pack_rows",
    "panel_channels",
    "place_columns",
    "recur",
    "relu_codes",
    "rotate",
    "round_bfloat16",
    "round_float16",
    "sample_grid",
    "scale_planes",
    "sigmoid",
    "smaller",
    "softmax_row",
    "softplus",
    "stream",
    "stream_pairs",
    "tanh",
    "wait_until",
    "widen_bfloat16",
    "widen_float16",
    "window_layout",
    "write_diagonal",
    "write_diagonal_pairs",
]


def import_all() -> None:
    """Import every kernel module, e.g. to compile them all."""
    for module in _MODULES:
        importlib.import_module(f"{__name__}.{module}")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        import_all()  # 3 ms; a process that forks later finds nothing half imported by another thread
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
