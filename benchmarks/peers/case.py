"""What is computed, and arrays that several operations need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from numbaops import ElementType

Array = npt.NDArray[Any]

IR_VERSION = 10


@dataclass(frozen=True)
class Case:
    """What is computed.

    Attributes:
        operation: a key of :data:`~benchmarks.peers.PEERS`.
        shape: of the unpacked result; of the planes of an image for Conv and MaxPool; of the first factor for MatMul.
        element_type: ONNX name of the result's type; of the quantized type.
        value: of ConstantOfShape.
        threads: for numbaops and ONNX Runtime.
        source: ONNX name of the type that Cast converts from.
        granularity: of a quantization's scales, a key of :data:`~benchmarks.peers.quantization.GRANULARITIES`.
        packed: whether numbaops takes and gives packed elements in Cast and quantization.
    """

    operation: str
    shape: tuple[int, int]
    element_type: str = "float"
    value: float = 1.0
    threads: int = 1
    source: str = "float"
    granularity: str = "tensor"
    packed: bool = False

    @property
    def kind(self) -> ElementType:
        from numbaops import element_type

        return element_type(self.element_type)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.kind.dtype

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]


def pattern(case: Case) -> Array:
    """Elements that differ: every code of a packed type, else small numbers."""
    if case.kind.packed:
        return np.resize(np.arange(1 << case.kind.bits, dtype=np.uint8), case.shape).view(case.dtype)
    return np.resize(np.arange(7).astype(case.dtype), case.shape)


def normal(shape: tuple[int, ...], seed: int = 0) -> Array:
    """Normal numbers as float32; the first 65,536 of them again and again."""
    return np.resize(np.random.default_rng(seed).standard_normal(1 << 16).astype(np.float32), shape)


def pack(codes: Array, bits: int) -> Array:
    """Elements, one a byte, as the bytes of ``TensorProto.raw_data``, with the shifts that one would write in NumPy."""
    flat, each, mask = codes.reshape(-1).view(np.uint8), 8 // bits, np.uint8((1 << bits) - 1)
    out = flat[::each] & mask
    for lane in range(1, each):
        out |= (flat[lane::each] & mask) << np.uint8(lane * bits)
    return out


def unpack(packed: Array, bits: int) -> Array:
    """The reverse of :func:`pack`: one element a byte, as ``uint8``."""
    each, mask = 8 // bits, np.uint8((1 << bits) - 1)
    out = np.empty(packed.size * each, np.uint8)
    for lane in range(each):
        out[lane::each] = packed >> np.uint8(lane * bits) & mask
    return out
