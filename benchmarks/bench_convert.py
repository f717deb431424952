"""Packing and unpacking of elements below 8 bits, on arrays, and ``TensorProto`` from and to arrays of the narrow types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .common import Comparison, Thunk, compare, square
from .peers import Case, build


class Packing:
    params = (["pack", "unpack"], ["int4", "int2"], [8, 4096, 4194304])
    param_names = ("operation", "element_type", "size")

    run: Thunk

    def setup(self, operation: str, element_type: str, size: int) -> None:
        self.run = build(Case(operation, square(size), element_type), "numbaops")

    def time_packing(self, operation: str, element_type: str, size: int) -> None:
        self.run()


class PackingPeers:
    """The rival on arrays: shifts in NumPy."""

    params = (["pack", "unpack"], ["int4", "int2"])
    param_names = ("operation", "element_type")

    run: Thunk

    def setup(self, operation: str, element_type: str) -> None:
        self.run = build(Case(operation, square(4194304), element_type), "numpy")

    def time_packing(self, operation: str, element_type: str) -> None:
        self.run()


class PackingStrided:
    """Packing of arrays that are not contiguous."""

    params = (["every other column", "transposed"], ["int4", "int2"])
    param_names = ("layout", "element_type")

    run: Thunk

    def setup(self, layout: str, element_type: str) -> None:
        import numbaops

        array = np.zeros((2048, 4096), numbaops.element_type(element_type).dtype)
        self.run = functools.partial(numbaops.pack, array.T if layout == "transposed" else array[:, ::2])
        self.run()

    def time_pack(self, layout: str, element_type: str) -> None:
        self.run()


class Tensors:
    """``from_array`` and ``to_array`` beside those of ``onnx.numpy_helper``, which returns read-only arrays."""

    params = (
        ["numbaops", "onnx_numpy_helper"],
        ["from_array", "to_array"],
        ["bfloat16", "float8e4m3fn", "float8e8m0", "float4e2m1", "int4", "int2"],
        [8, 4096, 16777216],
    )
    param_names = ("implementation", "operation", "element_type", "size")

    run: Thunk

    def setup(self, implementation: str, operation: str, element_type: str, size: int) -> None:
        self.run = build(Case(operation, square(size), element_type), implementation)

    def time_tensors(self, implementation: str, operation: str, element_type: str, size: int) -> None:
        self.run()


def rows() -> list[tuple[str, str, float | None, Callable[[], Comparison]]]:
    """What is compared, with what, the largest ratio that is good enough, and the measurement; 2 threads."""
    large, small = 1 << 24, 1 << 12
    whole = [
        (f"{operation} {size >> 20 or size >> 10} {'M' if size >> 20 else 'K'}i {element_type}", operation, element_type, size, 1.1)
        for element_type in ("bfloat16", "float8e4m3fn")
        for operation in ("to_array", "from_array")
        for size in (small, large)
    ]
    packed = [
        (f"{operation} 16 Mi {element_type}", operation, element_type, large, 1 / 4.0)
        for element_type in ("int4", "float4e2m1", "int2")
        for operation in ("to_array", "from_array")
    ]
    return [
        *(
            (what, f"numpy_helper.{operation}", target, functools.partial(_tensors, operation, element_type, size))
            for what, operation, element_type, size, target in whole + packed
        ),
        *(
            (
                f"{operation} 16 Mi {element_type}",
                f"numpy_helper.{rival}",
                1 / 4.0,
                functools.partial(_packing, operation, rival, element_type),
            )
            for element_type in ("int4", "int2")
            for operation, rival in (("pack", "from_array"), ("unpack", "to_array"))
        ),
    ]


def _tensors(operation: str, element_type: str, size: int) -> Comparison:
    case = Case(operation, square(size), element_type, threads=2)
    return compare(build(case, "numbaops"), build(case, "onnx_numpy_helper"))


def _packing(operation: str, rival: str, element_type: str) -> Comparison:
    case = Case(operation, square(1 << 24), element_type, threads=2)
    return compare(build(case, "numbaops"), build(replace(case, operation=rival), "onnx_numpy_helper"))
