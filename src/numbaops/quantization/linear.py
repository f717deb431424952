"""Quantization and dequantization of arrays, small ones by NumPy and large ones by kernels, with the same results to the bit."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from numbaops.casting import cast
from numbaops.convert import PackedTensor, check_out, pack, packed
from numbaops.dtypes import BY_NAME, ElementType
from numbaops.errors import InvalidValueError
from numbaops.quantization.grid import ONE_SCALE, SINGLE, Grid, Shape, check_zero_point, grid
from numbaops.quantization.walks import UNDIVIDED, WORDS, dequantize_kernel, ends, flat_view, quantize_kernel, walk_over
from numbaops.runtime import memory
from numbaops.runtime.threads import split

if TYPE_CHECKING:
    from numbaops.kernels.quantization import Walk

Array = npt.NDArray[Any]

JIT_FROM = 1 << 10
"""Elements below which NumPy serves, so that a small array does not load Numba."""

_FLOAT, _DOUBLE, _INT32 = (BY_NAME[name] for name in ("float", "double", "int32"))
_FLOATS = frozenset(BY_NAME[name] for name in ("float", "float16", "bfloat16", "double"))
_FLOAT8 = "float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz"
_NARROW = "int8 uint8 int16 uint16 int4 uint4 int2 uint2 float4e2m1 float6e2m3 float6e3m2"
QUANTIZED = frozenset(BY_NAME[name] for name in f"{_NARROW} {_FLOAT8}".split())
"""Element types that are quantized to."""
SOURCES = _FLOATS | {_INT32}
"""Element types that are quantized."""
PRECISIONS = _FLOATS
"""Element types that a division is carried out in, and that are dequantized to."""
SCALES = _FLOATS | {_INT32, BY_NAME["float8e8m0"]}

_FLOAT32 = np.dtype(np.float32)
_NO_ZERO = np.full(1, -0.0, np.float32)


# What both directions share


def _destination(shape: Shape, dtype: np.dtype[Any], count: int, out: Array | None, *inputs: Array | None) -> tuple[Array, Array]:
    """The array of ``count`` elements to return, and the same one to write to."""
    if out is None:
        new = memory.empty(shape, dtype, count * dtype.itemsize)[0] if count > UNDIVIDED else np.empty(shape, dtype)
        return new, new
    plain = check_out(out, dtype, shape)
    if any(given is not None and np.may_share_memory(plain, given) for given in inputs):
        raise InvalidValueError("out shares memory with an input; allowed: memory of its own", attribute="out")
    return out, plain


def _as(values: Array, kind: ElementType) -> Array:
    """``values`` in another type, exactly or rounded once; the same array if it is in it."""
    dtype = values.dtype
    if dtype == kind.dtype:
        return values
    if dtype.kind in "iu" and dtype.itemsize < 4 and kind is _FLOAT:
        return values.astype(kind.dtype)
    result = cast(values, kind)
    assert isinstance(result, np.ndarray)
    return result


# Quantization


class Quantizer:
    """The quantization from one element type to another.

    Args:
        source: the type of ``x``; one of :data:`SOURCES`.
        precision: the type in which the division is carried out; one of :data:`PRECISIONS`.
        target: the type of the result; one of :data:`QUANTIZED`.
        saturate: whether values beyond a float8 type's range become its largest finite value; otherwise its infinity, or NaN.
    """

    def __init__(self, source: ElementType, precision: ElementType, target: ElementType, saturate: bool = True) -> None:
        self.source, self.precision, self.target = source, precision, target
        self.saturate = saturate or target.bits < 8 or target.kind != "float"
        self.sums = _DOUBLE if precision is _DOUBLE else _FLOAT
        self.compiled = _DOUBLE not in (source, precision) and (source is not _INT32 or precision is _FLOAT)
        self.low, self.high = map(self.sums.dtype.type, ends(target) if target.kind != "float" else (-math.inf, math.inf))
        self.low_bits = np.uint8(0xFF >> max(8 - target.bits, 0))
        self.kernels: dict[tuple[bool, int], Walk] = {}

    def __call__(
        self,
        x: Array,
        scale: Array,
        zero: Array | None = None,
        axis: int = 1,
        block_size: int = 0,
        out: Array | None = None,
        packed: bool = False,
    ) -> Array | PackedTensor:
        """The quantized tensor.

        Args:
            x: an array of the source type.
            scale: an array of one of :data:`SCALES`; its shape says what it holds for, see :func:`grid`.
            zero: an array of the target type, shaped like the scale; None is zero.
            axis: of the scales.
            block_size: neighbours along the axis that share a scale; 0 where scales are of one dimension.
            out: a C-contiguous array of the result's dtype and shape to write into; of the result's bytes when ``packed``.
            packed: whether to return the bytes of ``raw_data``; types below 8 bits then share bytes.

        Returns:
            A new array, or ``out``; a :class:`PackedTensor` when ``packed``.

        Raises:
            InvalidValueError: shapes, axis and block size do not fit, or ``out`` does not.
            InvalidTypeError: ``out`` is of another type.
        """
        where = ONE_SCALE if scale.shape in SINGLE else grid(x.shape, scale.shape, axis, block_size, "y_scale")
        if zero is not None and zero.shape != scale.shape:
            check_zero_point(zero.shape, scale.shape, "y_zero_point")
        if packed:
            return self._packed(x, scale, zero, where, out)
        result, plain = _destination(x.shape, self.target.dtype, x.size, out, x, scale, zero)
        if self.compiled and x.size >= JIT_FROM:
            self._large(x, scale, zero, where, plain.reshape(-1).view(WORDS[plain.itemsize]), 8)
        else:
            self._small(x, scale, zero, where, plain)
        return result

    def _small(self, x: Array, scale: Array, zero: Array | None, where: Grid, out: Array) -> None:
        """The same by NumPy."""
        with np.errstate(all="ignore"):
            cube = where.cube(_as(x, self.precision))
            quotients = np.divide(cube, where.spread(_as(scale, self.precision)), np.empty(cube.shape, cube.dtype))
            near = quotients if self.precision is self.sums else _as(quotients, self.sums)
            zeros = None if zero is None else where.spread(_as(zero, self.sums))
            if self.target.kind == "float":
                if zeros is not None:
                    np.add(near, zeros, near, where=zeros != 0)
                cast(near.reshape(x.shape), self.target, saturate=self.saturate, out=out)
                return
            np.rint(near, near)
            if zeros is not None:
                near += zeros  # inexact only where it is out of range
            np.fmax(near, self.low, out=near)
            np.fmin(near, self.high, out=near)
            if self.target.packed:
                codes = near.astype(np.int8).view(np.uint8)
                np.bitwise_and(codes.reshape(x.shape), self.low_bits, out=out.view(np.uint8))
            else:
                np.copyto(where.cube(out), near, casting="unsafe")

    def _large(self, x: Array, scale: Array, zero: Array | None, where: Grid, out: Array, bits: int) -> None:
        """The same by kernels; ``out`` is flat, and packed if ``bits`` is not 8."""
        scales = where.flat(_as(_as(scale, self.precision), _FLOAT))
        if zero is None:
            zeros = _NO_ZERO if scales.size == 1 else np.full(scales.size, _NO_ZERO)
        else:
            zeros = where.flat(_as(zero, _FLOAT))
            if self.target.kind == "float":  # adding -0.0 changes nothing, adding 0.0 changes -0.0
                zeros = np.where(zeros == 0, _NO_ZERO, zeros)
        kernel = self.kernels.get((where.by_rows, bits))
        if kernel is None:
            kernel = quantize_kernel(self.source, self.precision, self.target, self.saturate, where.by_rows, bits != 8)
            self.kernels[where.by_rows, bits] = kernel
        flat = flat_view(x, self.source.dtype)
        flat = flat.view(np.uint16) if flat.itemsize == 2 else flat
        walk_over(kernel, flat, flat_view(scales, _FLOAT32), flat_view(zeros, _FLOAT32), out, where.numbers, (8, bits))

    def _packed(self, x: Array, scale: Array, zero: Array | None, where: Grid, out: Array | None) -> PackedTensor:
        target = self.target
        size = target.packed_size(x.size)
        result, plain = _destination((size,), np.dtype(np.uint8), size, out, x, scale, zero)
        if target.packed and self.compiled and x.size >= JIT_FROM:
            self._large(x, scale, zero, where, plain, target.bits)
        else:
            array = np.empty(x.shape, target.dtype)
            if self.compiled and x.size >= JIT_FROM:
                self._large(x, scale, zero, where, array.reshape(-1).view(WORDS[array.itemsize]), 8)
            else:
                self._small(x, scale, zero, where, array)
            plain[...] = pack(array) if target.packed else packed(array).data
        return PackedTensor(result, target, x.shape)


# Dequantization


class Dequantizer:
    """The reverse, from one element type to another.

    Args:
        source: the type of ``x``; one of :data:`QUANTIZED`, or int32.
        scale: the type of the scale; one of :data:`SCALES`, but not int32.
        target: the type of the result; one of :data:`PRECISIONS`.
    """

    def __init__(self, source: ElementType, scale: ElementType, target: ElementType) -> None:
        self.source, self.target = source, target
        self.products = _DOUBLE if _DOUBLE in (scale, target) else _FLOAT
        self.differences = np.dtype(np.int64 if source is _INT32 else np.int32)
        self.zeros = np.dtype(np.float32 if source.kind == "float" else np.int32)
        self.kernels: dict[tuple[bool, bool], Walk] = {}

    def __call__(
        self,
        x: Array | PackedTensor,
        scale: Array,
        zero: Array | None = None,
        axis: int = 1,
        block_size: int = 0,
        out: Array | None = None,
    ) -> Array:
        """The tensor.

        Args:
            x: an array of the source type, or packed elements.
            scale: an array; its shape says what it holds for, see :func:`grid`.
            zero: an array of the source type, shaped like the scale; None is zero.
            axis: of the scales.
            block_size: neighbours along the axis that share a scale; 0 where scales are of one dimension.
            out: a C-contiguous array of the result's dtype and shape to write into.

        Returns:
            A new array, or ``out``.

        Raises:
            InvalidValueError: shapes, axis and block size do not fit, or ``out`` does not.
            InvalidTypeError: ``out`` is of another type.
        """
        where = ONE_SCALE if scale.shape in SINGLE else grid(x.shape, scale.shape, axis, block_size, "x_scale")
        if zero is not None and zero.shape != scale.shape:
            check_zero_point(zero.shape, scale.shape, "x_zero_point")
        data = x.data if isinstance(x, PackedTensor) else x
        result, plain = _destination(x.shape, self.target.dtype, x.size, out, data, scale, zero)
        if self.products is _FLOAT and x.size >= JIT_FROM:
            self._large(x, scale, zero, where, plain.reshape(-1))
        else:
            self._small(x.unpack() if isinstance(x, PackedTensor) else x, scale, zero, where, plain)
        return result

    def _small(self, x: Array, scale: Array, zero: Array | None, where: Grid, out: Array) -> None:
        """The same by NumPy."""
        with np.errstate(all="ignore"):
            if self.source.kind == "float":
                values = where.cube(_as(x, self.products))
                if zero is not None:
                    values = values - (where.spread(_as(zero, self.products)) + 0.0)  # zeros without sign
            else:
                values = where.cube(x).astype(self.differences)
                if zero is not None:
                    values -= where.spread(zero).astype(self.differences)
            scales = where.spread(_as(scale, self.products))
            if self.target is self.products:
                np.multiply(values, scales, where.cube(out), dtype=out.dtype, casting="unsafe")
            else:
                products = np.multiply(values, scales, dtype=self.products.dtype, casting="unsafe")
                cast(np.reshape(products, out.shape), self.target, out=out)

    def _large(self, x: Array | PackedTensor, scale: Array, zero: Array | None, where: Grid, out: Array) -> None:
        """The same by kernels; ``out`` is flat."""
        source = self.source
        unpacking = source.packed and isinstance(x, PackedTensor)
        if isinstance(x, PackedTensor):
            x = x.data if unpacking else x.unpack()
        scales = where.flat(_as(scale, _FLOAT))
        zeros = np.zeros(scales.size, self.zeros) if zero is None else where.flat(_zeros(zero, self.zeros))
        kernel = self.kernels.get((where.by_rows, unpacking))
        if kernel is None:
            kernel = self.kernels[where.by_rows, unpacking] = dequantize_kernel(source, self.target, where.by_rows, unpacking)
        flat = flat_view(x, x.dtype if unpacking else source.dtype)
        flat = flat if source is _INT32 else flat.view(WORDS[flat.itemsize])
        words = out if self.target is _FLOAT else out.view(np.uint16)
        bits = source.bits if unpacking else 8, 8
        walk_over(kernel, flat, flat_view(scales, _FLOAT32), flat_view(zeros, self.zeros), words, where.numbers, bits)


def _zeros(zero: Array, kind: np.dtype[Any]) -> Array:
    return _as(zero, _FLOAT) + np.float32(0) if kind == _FLOAT32 else zero.astype(kind)  # zeros without sign


# Dynamic quantization


def dynamic_quantize(x: Array, source: ElementType) -> tuple[Array, Array, Array]:
    """``x`` in uint8, its scale and its zero point, such that its range and zero are covered.

    The range is that of all elements but NaN; if there is none but zero, the scale is 1, as ONNX Runtime has it (the text divides
    zero by zero). Scale and zero point are worked out in float32; the scale has the type of ``x``.
    """
    values = _as(x, _FLOAT)
    low, high = _extremes(values)
    with np.errstate(all="ignore"):
        scale = np.float32(1) if high == low else (high - low) / np.float32(255)
        shift = np.float32(0) - low / scale
        zero = np.rint(np.minimum(np.fmax(shift, np.float32(0)), np.float32(255))).astype(np.uint8)
        precision = _DOUBLE if source is _DOUBLE else _FLOAT
        y = _quantizer(source, precision, BY_NAME["uint8"])(x, np.asarray(scale), np.asarray(zero))
        assert isinstance(y, np.ndarray)
        return y, np.asarray(scale).astype(source.dtype), np.asarray(zero)


_quantizer = functools.cache(Quantizer)


def _extremes(x: Array) -> tuple[np.float32, np.float32]:
    """The smallest and the largest of float32 numbers and zero, NaN left out."""
    none = np.float32(0)
    if x.size < JIT_FROM:
        return np.fmin.reduce(x, None, initial=none), np.fmax.reduce(x, None, initial=none)
    from numbaops.kernels import quantization

    flat = flat_view(x, _FLOAT32)
    found: list[Array] = []

    def work(start: int, stop: int) -> None:
        both = np.zeros((2, quantization.LANES), np.float32)
        quantization.extremes(flat[start:stop], both[0], both[1])
        found.append(both)

    split(work, flat.size, flat.itemsize, quantization.LANES)
    return min(both[0].min() for both in found), max(both[1].max() for both in found)
