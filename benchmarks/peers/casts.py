"""Cast, beside ``astype`` of ml_dtypes and NumPy, which neither saturate nor round once from 64 bits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common import Thunk
from .case import IR_VERSION, Array, Case, pack, unpack
from .evaluators import EVALUATORS

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 24
BELOW_A_BYTE = ("int4", "uint4", "int2", "uint2")


def expected(case: Case) -> Array | None:
    """The answer, by ``astype`` and, for integers below 8 bits, after rounding; None for float8e8m0, which rounds in another way."""
    if "float8e8m0" in (case.element_type, case.source):
        return None
    array = _array(case)
    if _rounds_to_integers(case):
        array = np.rint(array.astype(np.float64)).astype(np.int8)
    return array.astype(case.dtype)


def _kind(name: str) -> Any:
    from numbaops import element_type

    return element_type(name)


def _array(case: Case) -> Array:
    """Numbers that both types hold about as well; no overflow, which ml_dtypes does not saturate."""
    kind, numbers = _kind(case.source), np.resize(np.random.default_rng(0).standard_normal(1 << 16), case.shape)
    if kind.kind == "float":
        return numbers.astype(np.float32).astype(kind.dtype)
    return np.abs(numbers).astype(np.int8).astype(kind.dtype)


def _model(case: Case) -> tuple[ModelProto, dict[str, Array]]:
    from onnx import helper

    source = _kind(case.source)
    node = helper.make_node("Cast", ["x"], ["y"], to=case.kind.code)
    infos = (helper.make_tensor_value_info(name, kind.code, [None, None]) for name, kind in (("x", source), ("y", case.kind)))
    graph = helper.make_graph([node], "benchmark", [next(infos)], [next(infos)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return model, {"x": _array(case)}


def _numbaops(case: Case) -> Thunk:
    import numbaops

    x: Any = _array(case)
    if case.packed and _kind(case.source).packed:
        x = numbaops.PackedTensor(numbaops.pack(x), _kind(case.source), x.shape)
    return functools.partial(numbaops.cast, x, case.element_type, **{"packed": True} if case.packed and case.kind.packed else {})


def _numbaops_out(case: Case) -> Thunk:
    if case.packed and case.kind.packed:
        return functools.partial(_numbaops(case), out=np.empty(case.size * case.kind.bits // 8, np.uint8))
    return functools.partial(_numbaops(case), out=np.empty(case.shape, case.dtype))


def _evaluator(name: str, case: Case) -> Thunk:
    if name == "onnx_reference" and _rounds_to_integers(case):
        raise NotImplementedError("onnx.reference truncates")
    return EVALUATORS[name](*_model(case), case.threads)


def astype(case: Case) -> Thunk:
    """``astype`` as it is, of elements one a byte; it truncates where Cast rounds, from floats to integers below 8 bits.

    Raises:
        NotImplementedError: there is no such conversion; in ``setup`` asv takes it as a skip.
    """
    thunk = functools.partial(_array(case).astype, case.dtype)
    try:
        thunk()
    except TypeError as error:
        raise NotImplementedError(f"astype does not convert {case.source} to {case.element_type}") from error
    return thunk


def _rounds_to_integers(case: Case) -> bool:
    return case.element_type in BELOW_A_BYTE and _kind(case.source).kind == "float"


def _rounded(case: Case) -> Callable[[Array], Array]:
    """What gives the specified answer."""
    dtype = case.dtype
    if _rounds_to_integers(case):
        return lambda x: np.rint(x).astype(dtype)
    return lambda x: x.astype(dtype)


def _of_types(numpys_own: bool, case: Case) -> Thunk:
    if numpys_own != (_kind(case.source).dtype.isbuiltin == 1 and case.dtype.isbuiltin == 1):
        raise NotImplementedError(f"{case.source} and {case.element_type} are {'not ' * numpys_own}both NumPy's own types")
    astype(case)
    return functools.partial(_rounded(case), _array(case))


def _numpy_packing(case: Case) -> Thunk:
    """From or to packed bytes."""
    if not (case.kind.packed or _kind(case.source).packed):
        raise NotImplementedError(f"neither {case.source} nor {case.element_type} is packed")
    x, convert = _array(case), _rounded(case)
    if case.kind.packed:
        bits = case.kind.bits
        return lambda: pack(convert(x), bits)
    bits, shape, source = _kind(case.source).bits, x.shape, x.dtype
    packed = pack(x, bits)
    return lambda: convert(unpack(packed, bits).view(source).reshape(shape))


def _memcpy(case: Case) -> Thunk:
    """A copy of whichever side is larger."""
    x = _array(case)
    larger = x if x.itemsize >= case.dtype.itemsize else np.ones(case.shape, case.dtype)
    words = larger.view(f"u{larger.itemsize}")
    return functools.partial(np.copyto, np.ones_like(words), words)


PEERS: dict[str, dict[str, Callable[[Case], Thunk]]] = {
    "Cast": {
        "numbaops": _numbaops,
        "numbaops_out": _numbaops_out,
        **{name: functools.partial(_evaluator, name) for name in EVALUATORS},
        "numpy": functools.partial(_of_types, True),
        "ml_dtypes": functools.partial(_of_types, False),
        "numpy_packing": _numpy_packing,
        "memcpy": _memcpy,
    }
}
