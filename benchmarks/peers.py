"""The one table of what is compared: operation x implementation -> a function that sets up and returns the call to time.

Every call makes its result anew, allocation included, except that of ``numbaops_out``, and Constant in ``onnx_reference``, which
hands out the same array each time. :func:`build` checks each one's answer, bit by bit, against plain NumPy before anything is timed.

=================== =====================================================================================================
implementation      what is called
=================== =====================================================================================================
numbaops            an operator bound once (``numbaops.operator``), or the function of that name
numbaops_out        the same, with ``out=``
numbaops_evaluator  ``numbaops.ReferenceEvaluator.run`` on a model of one node
onnx_reference      ``onnx.reference.ReferenceEvaluator.run`` on the same model
onnxruntime         ``InferenceSession.run`` on the same model
onnx_numpy_helper   ``onnx.numpy_helper``
numpy               what one would write: ``np.full``, ``np.eye``, slices and shifts for packing
numpy_view          the fastest NumPy: bits written through an unsigned view, ``np.zeros`` for zeros
=================== =====================================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .common import Thunk, set_threads

if TYPE_CHECKING:
    from onnx import ModelProto

    from numbaops import ElementType

Array = npt.NDArray[Any]

OPSET = 22
IR_VERSION = 10


@dataclass(frozen=True)
class Case:
    """What is computed.

    Attributes:
        operation: a key of :data:`PEERS`.
        shape: of the result; of the unpacked array for packing. Packing takes a multiple of 8 elements.
        element_type: its ONNX name.
        value: of ConstantOfShape.
        threads: for numbaops and ONNX Runtime.
    """

    operation: str
    shape: tuple[int, int]
    element_type: str = "float"
    value: float = 1.0
    threads: int = 1

    @property
    def kind(self) -> ElementType:
        from numbaops import element_type

        return element_type(self.element_type)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.kind.dtype


def build(case: Case, implementation: str) -> Thunk:
    """The call to time, warmed up and with its answer checked.

    Raises:
        NotImplementedError: the implementation cannot do it; in ``setup`` asv takes it as a skip.
        AssertionError: the answer is wrong.
    """
    if implementation not in PEERS[case.operation]:
        raise NotImplementedError(f"{implementation} has no {case.operation}")
    set_threads(case.threads)
    thunk = PEERS[case.operation][implementation](case)
    thunk()  # the second call gets recycled memory, and with it another kernel
    check(thunk(), expected(case))
    return thunk


def check(result: Any, wanted: Array) -> None:
    """Refuse a result that differs from ``wanted`` in dtype, shape or any bit; of a ``TensorProto`` its ``raw_data`` counts."""
    if isinstance(result, list):
        (result,) = result
    if hasattr(result, "raw_data"):
        result = np.frombuffer(result.raw_data, np.uint8)
    if (result.dtype, result.shape) != (wanted.dtype, wanted.shape):
        raise AssertionError(f"{result.dtype} {result.shape} came instead of {wanted.dtype} {wanted.shape}")
    if not np.array_equal(_bits(result), _bits(wanted)):
        raise AssertionError(f"a wrong value in {wanted.dtype} {wanted.shape}")


def expected(case: Case) -> Array:
    """The answer, by plain NumPy."""
    if case.operation == "ConstantOfShape":
        return np.full(case.shape, case.value, case.dtype)
    if case.operation == "EyeLike":
        return np.eye(*case.shape, dtype=case.dtype)
    if case.operation in ("from_array", "pack"):
        return _packed(case)
    return _pattern(case)


def _bits(array: Array) -> Array:
    from numbaops import element_type

    words = array.reshape(-1).view(f"u{min(array.dtype.itemsize, 8)}")
    kind = element_type(array.dtype)
    return words & np.uint8((1 << kind.bits) - 1) if kind.packed else words


def _pattern(case: Case) -> Array:
    """Elements that differ: every code of a packed type, else small numbers."""
    if case.kind.packed:
        return np.resize(np.arange(1 << case.kind.bits, dtype=np.uint8), case.shape).view(case.dtype)
    return np.resize(np.arange(7).astype(case.dtype), case.shape)


def _packed(case: Case) -> Array:
    each = 8 // case.kind.bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(case.kind.bits)
    return np.bitwise_or.reduce(_pattern(case).view(np.uint8).reshape(-1, each) << shifts, axis=1)


# --- operators


def _attributes(case: Case) -> dict[str, Array]:
    if case.operation == "Constant":
        return {"value": _pattern(case)}
    if case.operation == "ConstantOfShape":
        return {"value": np.full(1, case.value, case.dtype)}
    return {}


def _inputs(case: Case) -> list[Array]:
    if case.operation == "ConstantOfShape":
        return [np.array(case.shape, np.int64)]
    if case.operation == "EyeLike":
        return [np.zeros(case.shape, case.dtype)]
    return []


def _feeds(case: Case) -> dict[str, Array]:
    return {f"input{i}": array for i, array in enumerate(_inputs(case))}


def _model(case: Case) -> ModelProto:
    """One node; the shape is an input of the graph, since a constant one would let a runtime compute the result at load."""
    import onnx
    from onnx import helper

    feeds = _feeds(case)
    attributes = {name: onnx.numpy_helper.from_array(array) for name, array in _attributes(case).items()}
    node = helper.make_node(case.operation, list(feeds), ["output"], **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in feeds.items()
    ]
    output = helper.make_tensor_value_info("output", case.kind.code, [None, None])
    graph = helper.make_graph([node], "benchmark", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _numbaops(case: Case) -> Thunk:
    import numbaops

    return functools.partial(numbaops.operator(case.operation, OPSET, **_attributes(case)), *_inputs(case))


def _numbaops_out(case: Case) -> Thunk:
    return functools.partial(_numbaops(case), out=np.empty(case.shape, case.dtype))


def _numbaops_evaluator(case: Case) -> Thunk:
    import numbaops

    return functools.partial(numbaops.ReferenceEvaluator(_model(case)).run, None, _feeds(case))


def _onnx_reference(case: Case) -> Thunk:
    from onnx.reference import ReferenceEvaluator

    return functools.partial(ReferenceEvaluator(_model(case)).run, None, _feeds(case))


def _onnxruntime(case: Case) -> Thunk:
    try:
        import onnxruntime
    except ImportError as error:
        raise NotImplementedError("ONNX Runtime is not installed") from error

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case.threads
    options.log_severity_level = 4
    # Its idle threads would otherwise take a CPU away from whatever is timed next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(_model(case).SerializeToString(), options, providers=["CPUExecutionProvider"])
        thunk = functools.partial(session.run, None, _feeds(case))
        dtype = thunk()[0].dtype
    except Exception as error:  # its exceptions have no common base
        raise NotImplementedError(f"ONNX Runtime refuses {case.operation} of {case.element_type}") from error
    if dtype != case.dtype:
        raise NotImplementedError(f"ONNX Runtime gives {case.element_type} as {dtype}")
    return thunk


def _numpy_constant(case: Case) -> Thunk:
    return _pattern(case).copy


def _numpy_full(case: Case) -> Thunk:
    return functools.partial(np.full, case.shape, case.dtype.type(case.value), case.dtype)


def _numpy_eye(case: Case) -> Thunk:
    rows, columns = case.shape
    return functools.partial(np.eye, rows, columns, 0, case.dtype)


def _as_word(value: float, dtype: np.dtype[Any]) -> Array:
    """``value`` as an unsigned integer of the same width."""
    if dtype.itemsize > 8:
        raise NotImplementedError(f"NumPy has no unsigned integer of {dtype.itemsize} bytes")
    return np.full(1, value, dtype).view(f"u{dtype.itemsize}")[0]  # type: ignore[no-any-return]


def _numpy_view_full(case: Case) -> Thunk:
    shape, dtype, word = case.shape, case.dtype, _as_word(case.value, case.dtype)
    if not word:
        return functools.partial(np.zeros, shape, dtype)

    def full() -> Array:
        out = np.empty(shape, dtype)
        out.view(word.dtype).fill(word)
        return out

    return full


def _numpy_view_eye(case: Case) -> Thunk:
    shape, dtype, word = case.shape, case.dtype, _as_word(1, case.dtype)
    columns = shape[1]

    def eye() -> Array:
        out = np.zeros(shape, dtype)
        out.view(word.dtype).reshape(-1)[: columns * columns : columns + 1] = word
        return out

    return eye


# --- packing


def _proto(case: Case) -> Any:
    import onnx

    return onnx.TensorProto(data_type=case.kind.code, dims=case.shape, raw_data=_packed(case).tobytes())


def _numbaops_from_array(case: Case) -> Thunk:
    import numbaops

    return functools.partial(numbaops.from_array, _pattern(case))


def _numbaops_to_array(case: Case) -> Thunk:
    import numbaops

    return functools.partial(numbaops.to_array, _proto(case))


def _helper_from_array(case: Case) -> Thunk:
    import onnx.numpy_helper

    return functools.partial(onnx.numpy_helper.from_array, _pattern(case))


def _helper_to_array(case: Case) -> Thunk:
    import onnx.numpy_helper

    return functools.partial(onnx.numpy_helper.to_array, _proto(case))


def _numbaops_pack(case: Case) -> Thunk:
    from numbaops.convert import pack

    return functools.partial(pack, _pattern(case))


def _numbaops_unpack(case: Case) -> Thunk:
    from numbaops.convert import unpack

    return functools.partial(unpack, _packed(case), case.kind, case.shape)


def _numbaops_unpack_out(case: Case) -> Thunk:
    return functools.partial(_numbaops_unpack(case), out=np.empty(case.shape, case.dtype))


def _numpy_pack(case: Case) -> Thunk:
    bits, codes = case.kind.bits, _pattern(case).reshape(-1).view(np.uint8)
    each, mask = 8 // bits, np.uint8((1 << bits) - 1)

    def pack() -> Array:
        out = codes[::each] & mask
        for lane in range(1, each):
            out |= (codes[lane::each] & mask) << np.uint8(lane * bits)
        return out

    return pack


def _numpy_unpack(case: Case) -> Thunk:
    bits, packed, shape, dtype = case.kind.bits, _packed(case), case.shape, case.dtype
    each, mask = 8 // bits, np.uint8((1 << bits) - 1)

    def unpack() -> Array:
        out = np.empty(packed.size * each, np.uint8)
        for lane in range(each):
            out[lane::each] = packed >> np.uint8(lane * bits) & mask
        return out.reshape(shape).view(dtype)

    return unpack


_MODELS: dict[str, Callable[[Case], Thunk]] = {
    "numbaops": _numbaops,
    "numbaops_out": _numbaops_out,
    "numbaops_evaluator": _numbaops_evaluator,
    "onnx_reference": _onnx_reference,
    "onnxruntime": _onnxruntime,
}

PEERS: dict[str, dict[str, Callable[[Case], Thunk]]] = {
    "Constant": {**_MODELS, "numpy": _numpy_constant},
    "ConstantOfShape": {**_MODELS, "numpy": _numpy_full, "numpy_view": _numpy_view_full},
    "EyeLike": {**_MODELS, "numpy": _numpy_eye, "numpy_view": _numpy_view_eye},
    "from_array": {"numbaops": _numbaops_from_array, "onnx_numpy_helper": _helper_from_array},
    "to_array": {"numbaops": _numbaops_to_array, "onnx_numpy_helper": _helper_to_array},
    "pack": {"numbaops": _numbaops_pack, "numpy": _numpy_pack},
    "unpack": {"numbaops": _numbaops_unpack, "numbaops_out": _numbaops_unpack_out, "numpy": _numpy_unpack},
}
