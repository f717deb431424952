"""What can be said of a tensor in fewer bytes than its elements take: one value, a ramp, a diagonal, few elements that are not zero.

Bits are compared, never values: -0.0 is no zero, and a NaN equals one of its own payload only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numbaops.dtypes import of_dtype

Array = NDArray[Any]

_CHUNK = 1 << 18
"""Elements that are compared at a time, so that what differs early is known early."""

_SAMPLES = 1 << 10
"""Elements, from everywhere in a tensor, that tell whether it is worth looking for all that are not zero."""

_EXACT_BITS = {2: 24, 4: 24, 8: 53}
"""Bits of the integers that a float type of so many bytes has without gaps; ramps of 16-bit floats are made as float."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every element is ``value``, an array of rank 0."""

    value: Array


@dataclass(frozen=True, slots=True)
class Ramp:
    """The flattened tensor is ``start``, ``start + step`` and so on, each exactly."""

    start: int | float
    step: int | float
    count: int


@dataclass(frozen=True, slots=True)
class Diagonal:
    """``values`` at ``[i, i + k]``, zero bits elsewhere."""

    k: int
    values: Array


@dataclass(frozen=True, slots=True)
class Sparse:
    """``values`` at ``positions`` of the flattened tensor, zero bits elsewhere."""

    positions: NDArray[np.int64]
    values: Array


Pattern = Uniform | Ramp | Diagonal | Sparse


def words(array: Array) -> Array:
    """The elements of a C-contiguous array as unsigned integers: one each, or for complex128 two."""
    flat = array.reshape(-1)
    if flat.dtype.itemsize == 16:
        return flat.view(np.uint64).reshape(-1, 2)
    return flat.view(f"u{flat.dtype.itemsize}")


def patterns(array: Array) -> Iterator[Pattern]:
    """What is found in a tensor, the shortest to say first; strings are uniform or nothing."""
    if array.size < 2:
        return
    if array.dtype == object:
        flat = array.reshape(-1)
        if (flat == flat[0]).all():
            yield Uniform(flat[:1].reshape(()))
        return
    bits = words(array)
    if _same(bits):
        yield Uniform(array.reshape(-1)[:1].reshape(()).copy())
        return
    ramp = _ramp(array.reshape(-1), bits)
    if ramp is not None:
        yield ramp
    if mostly_zero(bits):
        positions = np.flatnonzero(bits.any(axis=1) if bits.ndim == 2 else bits)
        values = array.reshape(-1)[positions]
        if array.ndim == 2:
            offsets = np.unique(positions % array.shape[1] - positions // array.shape[1])
            if offsets.size == 1:
                yield Diagonal(int(offsets[0]), np.diagonal(array, int(offsets[0])).copy())
        yield Sparse(positions, values)


def _same(bits: Array) -> bool:
    if not np.array_equal(bits[0], bits[-1]):
        return False
    return all((bits[start : start + _CHUNK] == bits[0]).all() for start in range(0, len(bits), _CHUNK))


def mostly_zero(bits: Array) -> bool:
    """Whether most of some elements from everywhere in a tensor are zero bits."""
    some = bits[:: max(1, len(bits) // _SAMPLES)]
    return 2 * int(np.count_nonzero(some.any(axis=1) if some.ndim == 2 else some)) < len(some)


def _ramp(flat: Array, bits: Array) -> Ramp | None:
    row = of_dtype(flat.dtype)
    if flat.size < 3 or row.bits < 8:
        return None
    if row.kind in ("signed", "unsigned"):
        return _integer_ramp(flat, bits)
    if row.kind == "float" and row.bits >= 16:
        return _float_ramp(flat, bits)
    return None


def _integer_ramp(flat: Array, bits: Array) -> Ramp | None:
    start, second, last = int(flat[0]), int(flat[1]), int(flat[-1])
    step = second - start
    if step == 0 or start + (flat.size - 1) * step != last:
        return None
    # The differences are taken modulo the type's range; as the first and the last element are right, they are right in between.
    difference = bits.dtype.type(step % (1 << 8 * bits.itemsize))
    for at in range(0, flat.size - 1, _CHUNK):
        part = bits[at : at + _CHUNK + 1]
        if not (part[1:] - part[:-1] == difference).all():
            return None
    return Ramp(start, step, flat.size)


def _float_ramp(flat: Array, bits: Array) -> Ramp | None:
    start, second, last = float(flat[0]), float(flat[1]), float(flat[-1])
    step = second - start
    if not (math.isfinite(start) and math.isfinite(step) and math.isfinite(last)) or not step:
        return None
    if not start and math.copysign(1, start) < 0:  # it would stay -0.0, or not, depending on the implementation
        return None
    if start + (flat.size - 1) * step != last or not _exact(start, step, flat.size, _EXACT_BITS[flat.dtype.itemsize]):
        return None
    for at in range(0, flat.size, _CHUNK):
        part = bits[at : at + _CHUNK]
        expected = (start + np.arange(at, at + part.size) * step).astype(flat.dtype)
        if not np.array_equal(words(expected), part):
            return None
    return Ramp(start, step, flat.size)


def _exact(start: float, step: float, count: int, bits: int) -> bool:
    """Whether start, steps, products and sums are integers of so many bits times a power of two.

    They have no roundings then, so that it does not matter whether Range multiplies or adds up, as its implementations do.
    """
    first, each = Fraction(start), Fraction(step)
    denominator = max(first.denominator, each.denominator)
    a, b = int(first * denominator), int(each * denominator)
    unit = (a | b) & -(a | b)
    return max(abs(a), abs(b) * count, abs(a + b * count)) // unit <= 1 << bits
