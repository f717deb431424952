"""Packing and unpacking of elements below 8 bits, on arrays, and ``TensorProto`` from and to arrays of every type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..common import Thunk
from .case import Array, Case, pack, pattern, unpack


def expected(case: Case) -> Array:
    return _payload(case) if case.operation in ("from_array", "pack") else _elements(case)


def _elements(case: Case) -> Array:
    """Every code of a type of at most 8 bits, and words of all kinds else."""
    if case.kind.packed:
        return pattern(case)
    codes = np.random.default_rng(0).integers(0, 256, case.size * case.dtype.itemsize, np.uint8)
    return codes.view(case.dtype).reshape(case.shape)


def _payload(case: Case) -> Array:
    """The bytes of ``raw_data``."""
    elements = _elements(case)
    return pack(elements, case.kind.bits) if case.kind.packed else elements.reshape(-1).view(np.uint8)


def _proto(case: Case) -> Any:
    import onnx

    return onnx.TensorProto(data_type=case.kind.code, dims=case.shape, raw_data=_payload(case).tobytes())


def _from_array(module: str, case: Case) -> Thunk:
    import importlib

    return functools.partial(importlib.import_module(module).from_array, _elements(case))


def _to_array(module: str, case: Case) -> Thunk:
    import importlib

    return functools.partial(importlib.import_module(module).to_array, _proto(case))


def _numbaops_pack(case: Case) -> Thunk:
    from numbaops.convert import pack as packed_bytes

    return functools.partial(packed_bytes, _elements(case))


def _numbaops_unpack(case: Case) -> Thunk:
    from numbaops.convert import unpack as unpacked

    return functools.partial(unpacked, _payload(case), case.kind, case.shape)


def _numbaops_unpack_out(case: Case) -> Thunk:
    return functools.partial(_numbaops_unpack(case), out=np.empty(case.shape, case.dtype))


def _numpy_pack(case: Case) -> Thunk:
    return functools.partial(pack, _elements(case), case.kind.bits)


def _numpy_unpack(case: Case) -> Thunk:
    bits, payload, shape, dtype = case.kind.bits, _payload(case), case.shape, case.dtype
    return lambda: unpack(payload, bits).reshape(shape).view(dtype)


PEERS: dict[str, dict[str, Callable[[Case], Thunk]]] = {
    "from_array": {
        "numbaops": functools.partial(_from_array, "numbaops"),
        "onnx_numpy_helper": functools.partial(_from_array, "onnx.numpy_helper"),
    },
    "to_array": {
        "numbaops": functools.partial(_to_array, "numbaops"),
        "onnx_numpy_helper": functools.partial(_to_array, "onnx.numpy_helper"),
    },
    "pack": {"numbaops": _numbaops_pack, "numpy": _numpy_pack},
    "unpack": {"numbaops": _numbaops_unpack, "numbaops_out": _numbaops_unpack_out, "numpy": _numpy_unpack},
}
