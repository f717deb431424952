"""QuantizeLinear and DequantizeLinear beside ``onnx.reference`` and ONNX Runtime; see ``peers/quantization.py`` for what is called.

:func:`comparisons` has the same as ratios for the table of :mod:`.acceptance`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from .common import Comparison, Thunk, compare
from .peers import Case, build
from .peers.quantization import COLUMNS, GRANULARITIES

SIZES = [4096, 1 << 24]
TYPES = ["int8", "uint8", "int4", "float8e4m3fn"]


def case_of(operation: str, element_type: str, granularity: str, size: int, threads: int = 1, packed: bool = False) -> Case:
    """A case of so many elements, a multiple of ``COLUMNS``; float32 is the other type."""
    shape = (size // COLUMNS, COLUMNS)
    return Case(operation, shape, element_type, threads=threads, granularity=granularity, packed=packed)


def measure(case: Case, rival: str, seconds: float = 2.0) -> Comparison:
    """Seconds a call of ours and of a rival."""
    other = build(case, rival)
    return compare(build(case, "numbaops"), other, seconds)


def comparisons() -> Iterator[tuple[str, str, float | None, Callable[[], Comparison]]]:
    """What is measured, the rival, the largest ratio that is good enough, and the measurement: issue's rows of quantization."""
    targets = {"onnx_reference": ("onnx.reference", 1 / 10), "onnxruntime": ("ONNX Runtime", 1.0)}
    for operation in ("QuantizeLinear", "DequantizeLinear"):
        for name, granularity, packed in (
            ("int8", "tensor", False),
            ("uint8", "tensor", False),
            ("int8", "axis 0", False),
            ("int8", "axis 1", False),
            ("int4", "block 32", False),
            ("int4", "block 32", True),
            ("float8e4m3fn", "tensor", False),
        ):
            for size in SIZES:
                for rival, (title, target) in targets.items():
                    for threads in (1, 2) if rival == "onnxruntime" and size == SIZES[-1] else (1,):
                        case = case_of(operation, name, granularity, size, threads, packed)
                        amount = f"{size >> 20} Mi" if size >= 1 << 20 else f"{size >> 10} Ki"
                        what = (
                            f"{operation} {amount} {name}{' packed' if packed else ''}, {granularity}, {threads} thread{'s'[: threads - 1]}"
                        )
                        yield what, title, target, functools.partial(measure, case, rival)


class Quantization:
    params = (["QuantizeLinear", "DequantizeLinear"], TYPES, list(GRANULARITIES), [4096, 1048576])
    param_names = ("operation", "element_type", "granularity", "size")

    run: Thunk

    def setup(self, operation: str, element_type: str, granularity: str, size: int) -> None:
        self.run = build(case_of(operation, element_type, granularity, size), "numbaops")

    def time_quantization(self, operation: str, element_type: str, granularity: str, size: int) -> None:
        self.run()


class QuantizationLarge:
    params = (["QuantizeLinear", "DequantizeLinear"], [("int8", "tensor"), ("int4", "block 32"), ("float8e4m3fn", "tensor")])
    param_names = ("operation", "form")

    run: Thunk

    def setup(self, operation: str, form: tuple[str, str]) -> None:
        self.run = build(case_of(operation, *form, 16777216), "numbaops")

    def time_quantization(self, operation: str, form: tuple[str, str]) -> None:
        self.run()


class QuantizationPeers:
    """The rivals on the middle size."""

    params = (["onnx_reference", "onnxruntime", "numpy"], ["QuantizeLinear", "DequantizeLinear"], TYPES, list(GRANULARITIES))
    param_names = ("implementation", "operation", "element_type", "granularity")

    run: Thunk

    def setup(self, implementation: str, operation: str, element_type: str, granularity: str) -> None:
        self.run = build(case_of(operation, element_type, granularity, 1048576), implementation)

    def time_quantization(self, implementation: str, operation: str, element_type: str, granularity: str) -> None:
        self.run()
