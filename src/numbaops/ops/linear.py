"""Products of matrices: Gemm, MatMul, MatMulInteger, QLinearMatMul, Einsum, and Det (families ``onnx/defs/math``, ``quantization``).

https://onnx.ai/onnx/operators/onnx__Gemm.html, onnx__MatMul.html, onnx__MatMulInteger.html, onnx__QLinearMatMul.html,
onnx__Einsum.html, onnx__Det.html
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.casting import cast
from numbaops.errors import InvalidValueError
from numbaops.ops._byte_products import bytes_multiplied
from numbaops.ops._einsum import contracted
from numbaops.ops._precision import HALVES, check_same_type, narrowed, wide_dtype, widened
from numbaops.ops._products import integers_multiplied, limit_of, multiplied
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf

_FLOAT32, _INT32 = np.dtype(np.float32), np.dtype(np.int32)
_FEW = 1 << 12
"""Elements of the one matrix times those of the other up to which int32 takes less time than floats and BLAS."""


def matmul(a: Array, b: Array) -> Array:
    """MatMul: as ``numpy.matmul``, stacks of matrices broadcast, vectors as a row before and a column behind."""
    check_same_type(a, b)
    return narrowed(_product(widened(a), widened(b)), a.dtype)


class MatMul:
    """MatMul, with a second factor that may be known."""

    def __call__(self, a: Array, b: Array) -> Array:
        """The product."""
        return matmul(a, b)

    def prepared(self, a: Any, b: Any) -> Callable[..., Array] | None:
        """The same where B is known, ``...`` standing for what is not: widened once, and laid out if it repeats its elements in memory."""
        known = _known(b)
        if known is None:
            return None

        def call(a: Array, _: Any = None) -> Array:
            check_same_type(a, b)
            return narrowed(_product(widened(a), known), a.dtype)

        return call


def _known(b: Any) -> Array | None:
    """A second factor that is known, as it serves in every run; None if it does as it is."""
    if b is ... or (0 not in b.strides and b.dtype not in HALVES):
        return None
    return widened(np.ascontiguousarray(b))


def _product(a: Array, b: Array) -> Array:
    y = multiplied(a, b)
    if y is not None:
        return y
    try:
        y = np.matmul(a, b)
    except ValueError:
        raise InvalidValueError(
            f"the shapes are {list(a.shape)} and {list(b.shape)}; allowed: at least vectors, as many columns in the first as rows in "
            "the second, and sizes before that broadcast"
        ) from None
    return y  # type: ignore[no-any-return]


def gemm(a: Array, b: Array, c: Array | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Array:
    """Gemm: alpha * A * B + beta * C, of matrices of which each may come transposed; C may be less than a matrix."""
    if a.ndim != 2 or b.ndim != 2:
        raise InvalidValueError(f"A and B have the shapes {list(a.shape)} and {list(b.shape)}; allowed: rank 2")
    check_same_type(a, b)
    return _gemm(a, b, c, alpha, beta, transA, transB)


def _gemm(a: Array, b: Array, c: Array | None, alpha: float, beta: float, transA: int, transB: int) -> Array:
    wide = wide_dtype(a.dtype)
    if a.dtype.kind in "iu" and not (float(alpha).is_integer() and float(beta).is_integer()):
        wide = np.dtype(np.float64)  # truncated at the end
    y = _scaled(_product(narrowed(a.T if transA else a, wide), narrowed(b.T if transB else b, wide)), alpha)
    if c is not None and beta:  # with 0, C counts nothing even where it is infinite, as in BLAS
        try:
            y += _scaled(c.astype(y.dtype), beta)
        except ValueError:
            raise InvalidValueError(f"C has the shape {list(c.shape)}; allowed: what broadcasts to {list(y.shape)}") from None
    return narrowed(y, a.dtype)


class Gemm:
    """Gemm: alpha * A * B + beta * C."""

    def __init__(self, **attributes: Any) -> None:
        self._attributes = attributes

    def __call__(self, a: Array, b: Array, c: Array | None = None) -> Array:
        """The output."""
        return gemm(a, b, c, **self._attributes)

    def prepared(self, a: Any, b: Any, c: Any = None) -> Callable[..., Array] | None:
        """The same where B is known, ``...`` standing for what is not: widened once, and laid out if it repeats its elements in memory."""
        known = _known(b)
        if known is None or known.ndim != 2:
            return None
        given = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **self._attributes}

        def call(a: Array, _: Any = None, c: Array | None = None) -> Array:
            if a.ndim != 2:
                return self(a, b, c)  # which says what is wrong
            check_same_type(a, b)
            return _gemm(a, known, c, **given)

        return call


def _scaled(x: Array, factor: float) -> Array:
    if factor == 1:
        return x
    return x * (factor if x.dtype.kind == "f" else np.array(int(factor)).astype(x.dtype))


def gemm_with_broadcast(broadcast: int = 0, **attributes: Any) -> Any:
    """Gemm before 7: C has the shape of the result unless ``broadcast`` is set."""

    def call(a: Array, b: Array, c: Array) -> Array:
        y = gemm(a, b, c, **attributes)
        if not broadcast and c.shape != y.shape:
            raise InvalidValueError(f"C has the shape {list(c.shape)}; allowed: {list(y.shape)}, or broadcast=1", attribute="broadcast")
        return y

    return call


def matmul_integer(a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
    """MatMulInteger: the product of 8-bit integers without their zero points, modulo 2**32.

    A zero point is one number, or one a row of ``a`` or column of ``b``.
    """
    return _product_of_integers(a, b, a_zero_point, b_zero_point)


def _product_of_integers(a: Array, b: Array, a_zero_point: Array | None, b_zero_point: Array | None) -> Array:
    for x, zero_point in ((a, a_zero_point), (b, b_zero_point)):
        if zero_point is not None:
            check_same_type(x, zero_point)
    if a.itemsize == b.itemsize == 1 and a.size * b.size < _FEW:
        return _product(_without(a, a_zero_point, 1, _INT32), _without(b, b_zero_point, 0, _INT32))
    y = bytes_multiplied(a, b, a_zero_point, b_zero_point)
    if y is not None:
        return y
    wide_a, wide_b = _without(a, a_zero_point, 1), _without(b, b_zero_point, 0)
    y = integers_multiplied(wide_a, wide_b, limit_of(a, a_zero_point) * limit_of(b, b_zero_point))
    if y is None:  # float64 holds the sums, and BLAS takes it
        y = _product(wide_a.astype(np.float64), wide_b.astype(np.float64)).astype(np.int64).astype(np.int32)
    return y


def _without(x: Array, zero_point: Array | None, rows: int, dtype: np.dtype[Any] = _FLOAT32) -> Array:
    """The distances from the zero point, in a type that holds them all."""
    wide = x.astype(dtype)
    return wide if zero_point is None else wide - _spread(zero_point, x, rows).astype(dtype)


def _spread(parameter: Array, x: Array, rows: int) -> Array:
    """A scale or zero point as it broadcasts to the matrices: a vector holds one number a row of the first factor."""
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter[:, None] if rows and parameter.ndim == 1 and x.ndim > 1 else parameter


def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    """QLinearMatMul: the product of two quantized tensors, quantized.

    Scales and zero points are one number, or one a row of ``a`` and of the result, or column of ``b``. The scales multiply in
    float32, the quotient is rounded to even before the zero point is added, and the sum saturates.
    """
    if all(each.dtype.kind in "iu" for each in (a, b)):
        product = _product_of_integers(a, b, a_zero_point, b_zero_point).astype(np.float32)
    else:  # floats of 8 bits
        wide_a, wide_b = (
            _without(each, point, rows).astype(np.float64) for each, point, rows in ((a, a_zero_point, 1), (b, b_zero_point, 0))
        )
        product = _product(wide_a, wide_b).astype(np.float32)
    factor = _spread(widened(a_scale), a, 1) * _spread(widened(b_scale), b, 0) / _spread(widened(y_scale), a, 1)
    if b.ndim == 1 and factor.ndim > 1:  # as matmul drops the dimensions that it adds to vectors
        factor = factor[..., 0]
    if a.ndim == 1 and factor.ndim > 1:
        factor = factor[..., 0, :]
    y = product * factor
    zero_point = _spread(y_zero_point, a, 1)
    if y_zero_point.dtype.kind not in "iu":
        return np.asarray(cast(y + zero_point.astype(np.float32), y_zero_point.dtype))
    least, most = _limits(y_zero_point.dtype)
    saturated: Array = np.minimum(np.maximum(np.rint(y) + zero_point, least), most)
    return saturated.astype(y_zero_point.dtype)


@functools.cache
def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def einsum(*operands: Array, equation: str) -> Array:
    """Einsum: the sum of products over the indices that the equation's result lacks."""
    wide = [widened(operand) for operand in operands]
    y = contracted(equation, *wide) if len(wide) == 2 else None
    try:
        if y is None:
            y = np.einsum(equation, *wide, optimize=len(operands) > 1)
    except ValueError as error:
        shapes = ", ".join(str(list(operand.shape)) for operand in operands)
        raise InvalidValueError(
            f"the equation {equation!r} does not fit operands of shape {shapes}: {error}", attribute="equation"
        ) from error
    return narrowed(y, operands[0].dtype)


def det(x: Array) -> Array:
    """Det: the determinants of square matrices, which are the last two dimensions."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise InvalidValueError(f"the input has the shape {list(x.shape)}; allowed: two equal sizes at the end")
    return narrowed(np.linalg.det(widened(x)), x.dtype)


LEAVES: tuple[Leaf, ...] = (
    Leaf("Det", (11, 22), det),
    Leaf("Einsum", (12, 28), einsum, aliases=True),
    Leaf("Gemm", (1, 6), gemm_with_broadcast, bind=True),
    Leaf("Gemm", (7, 9, 11, 13), Gemm, bind=True),
    Leaf("MatMul", (1, 9, 13), MatMul, bind=True),
    Leaf("MatMulInteger", (10,), matmul_integer),
    Leaf("QLinearMatMul", (10, 21), qlinear_matmul),
)
