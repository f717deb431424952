"""The one table of what is compared: operation x implementation -> a function that sets up and returns the call to time.

Every call makes its result anew, allocation included, except that of ``numbaops_out`` and ``memcpy``, and Constant in
``onnx_reference``, which hands out the same array each time. :func:`build` checks each one's answer against plain NumPy before anything
is timed: bit by bit, but for floats that come of sums, which may differ by a small part of the largest one.

=================== =====================================================================================================
implementation      what is called
=================== =====================================================================================================
numbaops            an operator bound once (``numbaops.operator``), or the function of that name
numbaops_out        the same, with ``out=``
numbaops_evaluator  ``numbaops.ReferenceEvaluator.run`` on a model of one node, or of a small graph
onnx_reference      ``onnx.reference.ReferenceEvaluator.run`` on the same model
onnxruntime         ``InferenceSession.run`` on the same model; threads that do not spin
onnx_numpy_helper   ``onnx.numpy_helper``
ml_dtypes           ``astype`` from or to one of its types
numpy               what one would write: ``np.full``, ``np.eye``, slices and shifts for packing, a formula
numpy_view          the fastest NumPy: bits written through an unsigned view, ``np.zeros`` for zeros
numpy_packing       ``astype``, and the shifts of packing
memcpy              a copy of the larger side of a conversion: what the memory allows
=================== =====================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..common import Thunk, relative_error, set_threads
from . import casts, graphs, operators, packing, quantization
from .case import Array, Case
from .evaluators import settle

__all__ = ["PEERS", "Case", "build", "check", "expected"]

PEERS: dict[str, dict[str, Callable[[Case], Thunk]]] = {}
EXPECTED: dict[str, Callable[[Case], Array | None]] = {}
for _module in (operators, packing, casts, quantization, graphs):
    PEERS.update(_module.PEERS)  # type: ignore[attr-defined]
    EXPECTED.update(dict.fromkeys(_module.PEERS, _module.expected))  # type: ignore[attr-defined]

TOLERANCES = {"Softmax": 1e-6, "ReduceMean": 1e-5, "MatMul": 1e-5, "Conv": 1e-5, "DequantizeLinear": 1e-6}
"""The largest error, as a part of the largest value, of operations that may be computed in several ways."""
NO_ANSWER = ("memcpy",)
OURS = ("numbaops", "numbaops_out", "numbaops_evaluator")
OTHER_TYPES = ("onnxruntime", "onnx_reference", "onnx_numpy_helper")
"""Who may give other types: older onnx has dtypes of its own for what ml_dtypes has now."""


def build(case: Case, implementation: str) -> Thunk:
    """The call to time, warmed up and with its answer checked.

    Raises:
        NotImplementedError: the implementation cannot do it; in ``setup`` asv takes it as a skip.
        AssertionError: the answer is wrong.
    """
    if implementation not in PEERS[case.operation]:
        raise NotImplementedError(f"{implementation} has no {case.operation}")
    set_threads(case.threads)
    try:
        thunk = PEERS[case.operation][implementation](case)
        thunk()  # the second call gets recycled memory, and with it another kernel
        if implementation == "numbaops_evaluator":
            settle(thunk)
        answer, wanted = thunk(), expected(case)
    except NotImplementedError:
        raise
    except Exception as error:
        if implementation in OURS:
            raise
        raise NotImplementedError(f"{implementation} fails: {type(error).__name__}: {error}") from error
    if wanted is not None and implementation not in NO_ANSWER:
        if implementation == "numpy_packing" and case.kind.packed:
            answer = packing.unpack(answer, case.kind.bits).view(case.dtype).reshape(case.shape)
        answer = _as_array(thunk.answer() if hasattr(thunk, "answer") else answer, wanted)
        if implementation in OTHER_TYPES and getattr(answer, "dtype", wanted.dtype) != wanted.dtype:
            raise NotImplementedError(f"{implementation} gives {wanted.dtype} as {answer.dtype}")
        check(answer, wanted, TOLERANCES.get(case.operation, 0.0))
    return thunk


def _as_array(answer: Any, wanted: Array) -> Any:
    """ONNX Runtime gives float8 as ``uint8``, in a list."""
    only = answer[0] if isinstance(answer, list) else answer
    is_code = isinstance(only, np.ndarray) and only.dtype == np.uint8 and wanted.dtype.name.startswith("float8")
    return only.view(wanted.dtype) if is_code else only


def expected(case: Case) -> Array | None:
    """The answer, by plain NumPy; None where that rounds in another way."""
    return EXPECTED[case.operation](case)


def check(result: Any, wanted: Array, tolerance: float = 0.0) -> None:
    """Refuse a result that differs from ``wanted`` in dtype, shape or any bit.

    Of a ``TensorProto`` its ``raw_data`` counts, and of a packed tensor its elements.

    Args:
        result: an array or the like.
        wanted: the answer.
        tolerance: of the largest value in ``wanted``; 0 for equal bits.
    """
    if hasattr(result, "raw_data"):
        result = np.frombuffer(result.raw_data, np.uint8)
    if hasattr(result, "unpack"):
        result = result.unpack()
    if (result.dtype, result.shape) != (wanted.dtype, wanted.shape):
        raise AssertionError(f"{result.dtype} {result.shape} came instead of {wanted.dtype} {wanted.shape}")
    if not np.array_equal(_bits(result), _bits(wanted)) and (not tolerance or relative_error(result, wanted) > tolerance):
        raise AssertionError(f"a wrong value in {wanted.dtype} {wanted.shape}")


def _bits(array: Array) -> Array:
    from numbaops import element_type

    words = np.ascontiguousarray(array).reshape(-1).view(f"u{min(array.dtype.itemsize, 8)}")
    kind = element_type(array.dtype)
    return words & np.uint8((1 << kind.bits) - 1) if kind.packed else words
