"""QuantizeLinear and DequantizeLinear beside ``onnx.reference`` and ONNX Runtime, each with a model of one node.

Scale and zero point are initializers of the models; ours get them as arguments. ONNX Runtime takes and gives low-bit tensors bound to
its own memory, for it has no NumPy form of them, and does not spin between runs: its idle threads would slow down whoever comes next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .common import Comparison, Thunk, compare, set_threads
from .peers import check

if TYPE_CHECKING:
    from onnx import ModelProto

    from numbaops import ElementType

Array = npt.NDArray[Any]

OPSET = 21
IR_VERSION = 10
COLUMNS = 4096
BLOCK = 32
SIZES = [4096, 1 << 24]
TYPES = ["int8", "uint8", "int4", "float8e4m3fn"]
GRANULARITIES: dict[str, tuple[Callable[[int], tuple[int, ...]], dict[str, int]]] = {
    "tensor": (lambda rows: (), {}),
    "axis 0": (lambda rows: (rows,), {"axis": 0}),
    "axis 1": (lambda rows: (COLUMNS,), {}),
    "block 32": (lambda rows: (rows, COLUMNS // BLOCK), {"block_size": BLOCK}),
}
"""By name: the scale's shape, from the number of rows, and attributes."""


@dataclass(frozen=True)
class Case:
    """What is computed.

    Attributes:
        operation: ``"QuantizeLinear"``, from float32, or ``"DequantizeLinear"``, to float32.
        element_type: ONNX name of the quantized type.
        granularity: a key of :data:`GRANULARITIES`.
        size: number of elements, a multiple of ``COLUMNS``.
        threads: for numbaops and ONNX Runtime.
        packed: whether numbaops takes and gives packed elements.
    """

    operation: str
    element_type: str
    granularity: str
    size: int
    threads: int = 1
    packed: bool = False

    @property
    def kind(self) -> ElementType:
        from numbaops import element_type

        return element_type(self.element_type)

    @property
    def attributes(self) -> dict[str, int]:
        return GRANULARITIES[self.granularity][1]

    def inputs(self) -> tuple[Array, Array, Array]:
        """Numbers over the whole range of the type and a little beyond; scales around 0.1; zero points that integers have."""
        random = np.random.default_rng(7)
        rows, dtype = self.size // COLUMNS, self.kind.dtype
        scale = random.uniform(0.09, 0.11, GRANULARITIES[self.granularity][0](rows)).astype(np.float32)
        zero = np.full(scale.shape, 0 if self.kind.kind == "float" else 1).astype(dtype)
        if self.operation == "QuantizeLinear":
            reach = {4: 1.0, 8: 15.0}[self.kind.bits]
            return random.uniform(-reach, reach, (rows, COLUMNS)).astype(np.float32), np.asarray(scale), np.asarray(zero)
        codes = random.integers(0, 120 if self.kind.bits == 8 else 16, (rows, COLUMNS), np.uint8)
        return codes.view(dtype), np.asarray(scale), np.asarray(zero)


def build(case: Case, implementation: str) -> Thunk:
    """The call to time, warmed up.

    Raises:
        NotImplementedError: the implementation cannot do it; in ``setup`` asv takes it as a skip.
    """
    set_threads(case.threads)
    thunk = IMPLEMENTATIONS[implementation](case)
    thunk()
    return thunk


def _numbaops(case: Case) -> Thunk:
    import numbaops
    from numbaops.convert import packed

    bound = numbaops.operator(case.operation, OPSET, **case.attributes)
    x, scale, zero = case.inputs()
    if case.packed and case.operation == "QuantizeLinear":
        return functools.partial(bound, x, scale, zero, packed=True)
    return functools.partial(bound, packed(x) if case.packed else x, scale, zero)


def _model(case: Case, *, constant: bool = False) -> tuple[ModelProto, Array]:
    """The model, and what to feed; with ``constant`` that is part of the model as well."""
    from onnx import helper

    from numbaops import element_type, from_array

    x, scale, zero = case.inputs()
    kinds = (element_type(x.dtype), case.kind if case.operation == "QuantizeLinear" else element_type("float"))
    node = helper.make_node(case.operation, ["x", "scale", "zero"], ["y"], **case.attributes)
    given, result = (helper.make_tensor_value_info(name, kind.code, list(x.shape)) for name, kind in zip(("x", "y"), kinds, strict=True))
    initializers = [from_array(scale, "scale"), from_array(zero, "zero")] + ([from_array(x, "x")] if constant else [])
    graph = helper.make_graph([node], "one_node", [] if constant else [given], [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION), x


def _onnx_reference(case: Case) -> Thunk:
    from onnx.reference import ReferenceEvaluator

    model, x = _model(case)
    return functools.partial(ReferenceEvaluator(model).run, None, {"x": x})


def _onnxruntime(case: Case) -> Thunk:
    try:
        import onnxruntime
    except ImportError as error:
        raise NotImplementedError("onnxruntime is not installed") from error

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case.threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # a constant x must not be folded
    low_bit = case.element_type not in ("int8", "uint8")
    constant = low_bit and case.kind.packed and case.operation == "DequantizeLinear"
    model, x = _model(case, constant=constant)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        if not low_bit:
            thunk: Thunk = functools.partial(session.run, None, {"x": x})
        else:
            binding = session.io_binding()
            if not constant and case.operation == "QuantizeLinear":
                binding.bind_cpu_input("x", x)
            elif not constant:
                value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint8), case.kind.code)
                binding.bind_ortvalue_input("x", value)
            binding.bind_output("y")
            thunk = functools.partial(session.run_with_iobinding, binding)
        thunk()
    except Exception as error:  # its exceptions have no common base class
        raise NotImplementedError(f"ONNX Runtime has no such kernel: {str(error)[:120]}") from error
    return thunk


IMPLEMENTATIONS: dict[str, Callable[[Case], Thunk]] = {
    "numbaops": _numbaops,
    "onnx_reference": _onnx_reference,
    "onnxruntime": _onnxruntime,
}


def measure(case: Case, rival: str, seconds: float = 2.0) -> Comparison:
    """Seconds a call of ours and of a rival; an answer that can be had as an array is compared first."""
    other = build(case, rival)
    ours = build(case, "numbaops")
    answer = other()
    if answer is not None:
        check(build(replace(case, packed=False), "numbaops")(), answer[0])
    return compare(ours, other, seconds)


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
                        case = Case(operation, name, granularity, size, threads, packed)
                        amount = f"{size >> 20} Mi" if size >= 1 << 20 else f"{size >> 10} Ki"
                        what = (
                            f"{operation} {amount} {name}{' packed' if packed else ''}, {granularity}, {threads} thread{'s'[: threads - 1]}"
                        )
                        yield what, title, target, functools.partial(measure, case, rival)


class Quantization:
    params = (["QuantizeLinear", "DequantizeLinear"], TYPES, list(GRANULARITIES), SIZES)
    param_names = ("operation", "element_type", "granularity", "size")

    run: Thunk

    def setup(self, operation: str, element_type: str, granularity: str, size: int) -> None:
        self.run = build(Case(operation, element_type, granularity, size), "numbaops")

    def time_quantization(self, operation: str, element_type: str, granularity: str, size: int) -> None:
        self.run()


class QuantizationPeers:
    """The rivals on the larger size."""

    params = (["onnx_reference", "onnxruntime"], ["QuantizeLinear", "DequantizeLinear"], TYPES, list(GRANULARITIES))
    param_names = ("implementation", "operation", "element_type", "granularity")

    run: Thunk

    def setup(self, implementation: str, operation: str, element_type: str, granularity: str) -> None:
        self.run = build(Case(operation, element_type, granularity, SIZES[-1]), implementation)

    def time_quantization(self, implementation: str, operation: str, element_type: str, granularity: str) -> None:
        self.run()
