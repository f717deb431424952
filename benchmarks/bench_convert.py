"""Packing and unpacking of elements below 8 bits: on arrays, and from and to ``TensorProto``."""

from __future__ import annotations

from .common import Thunk, square
from .peers import Case, build


class Packing:
    params = (["pack", "unpack", "from_array", "to_array"], ["int4", "int2"], [8, 4096, 4194304])
    param_names = ("operation", "element_type", "size")

    run: Thunk

    def setup(self, operation: str, element_type: str, size: int) -> None:
        self.run = build(Case(operation, square(size), element_type), "numbaops")

    def time_packing(self, operation: str, element_type: str, size: int) -> None:
        self.run()


class PackingPeers:
    """The rivals: NumPy on arrays, ``onnx.numpy_helper`` with ``TensorProto``."""

    params = (["pack", "unpack", "from_array", "to_array"], ["int4", "int2"])
    param_names = ("operation", "element_type")

    run: Thunk

    def setup(self, operation: str, element_type: str) -> None:
        implementation = "numpy" if operation in ("pack", "unpack") else "onnx_numpy_helper"
        self.run = build(Case(operation, square(4194304), element_type), implementation)

    def time_packing(self, operation: str, element_type: str) -> None:
        self.run()
