"""QuantizeLinear and DequantizeLinear.

Scale and zero point are initializers of the models; ours get them as arguments. ONNX Runtime takes and gives low-bit tensors bound to
its own memory, for it has no NumPy form of them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common import Thunk, runtime_session
from .case import IR_VERSION, Array, Case, unpack
from .evaluators import EVALUATORS

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 21
COLUMNS = 4096
BLOCK = 32
GRANULARITIES: dict[str, tuple[Callable[[int, int], tuple[int, ...]], dict[str, int]]] = {
    "tensor": (lambda rows, columns: (), {}),
    "axis 0": (lambda rows, columns: (rows,), {"axis": 0}),
    "axis 1": (lambda rows, columns: (columns,), {}),
    "block 32": (lambda rows, columns: (rows, columns // BLOCK), {"block_size": BLOCK}),
}
"""By name: the scale's shape, from the numbers of rows and columns, and attributes."""


def _inputs(case: Case) -> tuple[Array, Array, Array]:
    """Numbers over the whole range of the type and a little beyond; scales around 0.1; zero points that integers have."""
    random = np.random.default_rng(7)
    scale = random.uniform(0.09, 0.11, GRANULARITIES[case.granularity][0](*case.shape)).astype(np.float32)
    zero = np.full(scale.shape, 0 if case.kind.kind == "float" else 1).astype(case.dtype)
    if case.operation == "QuantizeLinear":
        reach = {4: 1.0, 8: 15.0}[case.kind.bits]
        return random.uniform(-reach, reach, case.shape).astype(np.float32), np.asarray(scale), np.asarray(zero)
    codes = random.integers(0, 120 if case.kind.bits == 8 else 16, case.shape, np.uint8)
    return codes.view(case.dtype), np.asarray(scale), np.asarray(zero)


def expected(case: Case) -> Array:
    return _numpy(case)()


def _numpy(case: Case) -> Thunk:
    """The specification's formula."""
    x, scale, zero = _inputs(case)
    spread = {"axis 0": lambda a: a[:, None], "block 32": lambda a: np.repeat(a, BLOCK, axis=1)}.get(case.granularity, lambda a: a)
    integers, dtype = case.kind.kind != "float", case.dtype
    scale, zero = spread(scale), spread(zero.astype(np.float32))
    if case.operation == "DequantizeLinear":
        return lambda: (x.astype(np.float32) - zero) * scale
    if not integers:
        return lambda: (x / scale).astype(dtype)
    low, high = -(1 << case.kind.bits - 1), (1 << case.kind.bits - 1) - 1
    if case.element_type.startswith("u"):
        low, high = 0, high - low
    return lambda: np.clip(np.rint(x / scale) + zero, low, high).astype(dtype)


def _numbaops(case: Case) -> Thunk:
    import numbaops
    from numbaops.convert import packed

    bound = numbaops.operator(case.operation, OPSET, **GRANULARITIES[case.granularity][1])
    x, scale, zero = _inputs(case)
    if case.packed and case.operation == "QuantizeLinear":
        return functools.partial(bound, x, scale, zero, packed=True)
    return functools.partial(bound, packed(x) if case.packed else x, scale, zero)


def _model(case: Case, *, constant: bool = False) -> tuple[ModelProto, Array]:
    """The model, and what to feed; with ``constant`` that is part of the model as well."""
    from onnx import helper

    from numbaops import element_type, from_array

    x, scale, zero = _inputs(case)
    kinds = (element_type(x.dtype), case.kind if case.operation == "QuantizeLinear" else element_type("float"))
    node = helper.make_node(case.operation, ["x", "scale", "zero"], ["y"], **GRANULARITIES[case.granularity][1])
    given, result = (helper.make_tensor_value_info(name, kind.code, list(x.shape)) for name, kind in zip(("x", "y"), kinds, strict=True))
    initializers = [from_array(scale, "scale"), from_array(zero, "zero")] + ([from_array(x, "x")] if constant else [])
    graph = helper.make_graph([node], "one_node", [] if constant else [given], [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION), x


def _evaluator(name: str, case: Case) -> Thunk:
    model, x = _model(case)
    return EVALUATORS[name](model, {"x": x}, case.threads)


class _Bound:
    """A session whose input and output stay in its own memory."""

    def __init__(self, session: Any, binding: Any, case: Case) -> None:
        self.binding, self.case = binding, case
        self.run = functools.partial(session.run_with_iobinding, binding)

    def __call__(self) -> None:
        self.run()

    def answer(self) -> Array:
        (value,) = self.binding.get_outputs()
        case = self.case
        if case.operation == "DequantizeLinear":
            return value.numpy()  # type: ignore[no-any-return]
        raw = np.frombuffer(ctypes.string_at(value.data_ptr(), case.size * case.kind.bits // 8), np.uint8)
        return (unpack(raw, case.kind.bits) if case.kind.packed else raw).view(case.dtype).reshape(case.shape)


def _onnxruntime(case: Case) -> Thunk:
    if case.element_type in ("int8", "uint8"):
        return _evaluator("onnxruntime", case)
    constant = case.kind.packed and case.operation == "DequantizeLinear"
    model, x = _model(case, constant=constant)
    try:
        # Not optimized, for a constant x must not be folded.
        session = runtime_session(model.SerializeToString(), case.threads, optimized=False, spinning=False)
        import onnxruntime

        binding = session.io_binding()
        if not constant and case.operation == "QuantizeLinear":
            binding.bind_cpu_input("x", x)
        elif not constant:
            binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint8), case.kind.code))
        binding.bind_output("y")
        thunk = _Bound(session, binding, case)
        thunk()
    except NotImplementedError:
        raise
    except Exception as error:  # its exceptions have no common base class
        raise NotImplementedError(f"ONNX Runtime has no such kernel: {str(error)[:120]}") from error
    return thunk


_ALL: dict[str, Callable[[Case], Thunk]] = {
    "numbaops": _numbaops,
    "numbaops_evaluator": functools.partial(_evaluator, "numbaops_evaluator"),
    "onnx_reference": functools.partial(_evaluator, "onnx_reference"),
    "onnxruntime": _onnxruntime,
    "numpy": _numpy,
}

PEERS = {"QuantizeLinear": _ALL, "DequantizeLinear": _ALL}
