"""Each operator in every implementation; see ``peers.py`` for what is called."""

from __future__ import annotations

from .common import SIZES, Thunk, compare, square
from .peers import Case, build


class Peers:
    """Seconds; all with one thread."""

    params = (
        ["numbaops", "numbaops_out", "numbaops_evaluator", "onnx_reference", "onnxruntime", "numpy", "numpy_view"],
        ["Constant", "ConstantOfShape", "EyeLike"],
        SIZES,
    )
    param_names = ("implementation", "operator", "size")

    run: Thunk

    def setup(self, implementation: str, operator: str, size: int) -> None:
        self.run = build(Case(operator, square(size)), implementation)

    def time_float(self, implementation: str, operator: str, size: int) -> None:
        self.run()


class PeersFloat8:
    """An element type that NumPy knows only through ml_dtypes."""

    params = (["numbaops", "numbaops_evaluator", "onnx_reference", "numpy", "numpy_view"], ["Constant", "ConstantOfShape"], [8, 1048576])
    param_names = ("implementation", "operator", "size")

    run: Thunk

    def setup(self, implementation: str, operator: str, size: int) -> None:
        self.run = build(Case(operator, square(size), "float8e4m3fn"), implementation)

    def time_float8e4m3fn(self, implementation: str, operator: str, size: int) -> None:
        self.run()


class Ratio:
    """Time of a bound operator of numbaops / time of a peer, measured in turn: it survives a change of machine."""

    params = (["onnx_reference", "onnxruntime", "numpy", "numpy_view"], ["ConstantOfShape", "EyeLike"], [8, 16777216])
    param_names = ("peer", "operator", "size")
    unit = "ours / peer"

    ours: Thunk
    peer: Thunk

    def setup(self, peer: str, operator: str, size: int) -> None:
        case = Case(operator, square(size))
        self.ours, self.peer = build(case, "numbaops"), build(case, peer)

    def track_ratio(self, peer: str, operator: str, size: int) -> float:
        return compare(self.ours, self.peer, seconds=0.5).ratio
