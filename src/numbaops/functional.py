"""The operators as plain functions, and bound once for loops."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from numbaops.errors import InvalidTypeError
from numbaops.ops.base import Array, BoundOperator
from numbaops.opset import OperatorVersion, resolve

if TYPE_CHECKING:
    from numbaops.convert import PackedTensor


def operator(op_type: str, opset: int | None = None, domain: str = "", **attributes: Any) -> BoundOperator:
    """An operator with its attributes checked and bound once, to be called many times.

    >>> zeros = operator("ConstantOfShape", 25, value=0)
    >>> zeros
    <ConstantOfShape-25, value=0: (int64[rank]) -> int64>
    >>> zeros((2, 3))
    array([[0, 0, 0],
           [0, 0, 0]])

    Args:
        op_type: the operator's name, one of those that ``numbaops ops`` lists.
        opset: the opset version; None is the newest.
        domain: ``""`` or ``"ai.onnx"``.
        attributes: the operator's attributes; None is an absent one.

    Returns:
        A callable that takes the operator's inputs and ``out=``, can be pickled and shared by threads.

    Raises:
        NumbaopsError: no such operator or version, or a wrong attribute (see :mod:`numbaops.errors`).
    """
    return resolve(op_type, opset, domain).bind(attributes)


@functools.cache
def _plain(version: OperatorVersion) -> BoundOperator:
    return version.bind({})


def constant(
    value: Any = None,
    *,
    sparse_value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
    opset: int | None = None,
    out: Array | None = None,
    packed: bool = False,
) -> Any:
    """ONNX Constant: a tensor from exactly one of its attributes.

    >>> constant(value_ints=[1, 2])
    array([1, 2])

    Args:
        value: an array, a NumPy or ml_dtypes scalar, a ``TensorProto``, or a Python scalar (int is int64, float is float32).
        sparse_value: a ``SparseTensorProto`` or a tuple ``(values, indices, shape)``; the result is dense. Since opset 11.
        value_float: a number; the result is float32 of rank 0. This and the following since opset 12.
        value_floats: a list of numbers; float32 of rank 1.
        value_int: an integer; int64 of rank 0.
        value_ints: a list of integers; int64 of rank 1.
        value_string: ``str`` or UTF-8 ``bytes``; an object array of rank 0.
        value_strings: a list of them; an object array of rank 1.
        opset: the opset version; None is the newest.
        out: a C-contiguous array of the result's dtype and shape to write into.
        packed: give a :class:`~numbaops.PackedTensor` (the bytes of ``raw_data``) instead of an array.

    Returns:
        A new, writable array, or ``out``, or a ``PackedTensor``.

    Raises:
        InvalidValueError: none or several attributes, one that the version lacks, or a value out of range.
        InvalidTypeError: a wrong Python type, or an element type that the version lacks.

    Source: https://onnx.ai/onnx/operators/onnx__Constant.html
    """
    attributes = {
        "value": value,
        "sparse_value": sparse_value,
        "value_float": value_float,
        "value_floats": value_floats,
        "value_int": value_int,
        "value_ints": value_ints,
        "value_string": value_string,
        "value_strings": value_strings,
    }
    return operator("Constant", opset, **attributes)(out=out, packed=packed)


def constant_of_shape(
    shape: Any, value: Any = None, *, opset: int | None = None, out: Array | None = None, packed: bool = False
) -> Array | PackedTensor:
    """ONNX ConstantOfShape: a tensor with one value everywhere.

    >>> constant_of_shape((2, 2), 7)
    array([[7, 7],
           [7, 7]])

    Args:
        shape: a tuple, a list or a 1-D int64 array of non-negative integers; ``[]`` gives rank 0.
        value: a Python scalar (int is int64, float is float32), a NumPy or ml_dtypes scalar, an array with one element, or a
            ``TensorProto``; float32 zero by default.
        opset: the opset version; None is the newest.
        out: a C-contiguous array of the result's dtype and shape to write into.
        packed: give a :class:`~numbaops.PackedTensor` (the bytes of ``raw_data``) instead of an array.

    Returns:
        A new array of ``shape`` with the value's dtype, or ``out``, or a ``PackedTensor``.

    Raises:
        InvalidValueError: a negative or overflowing shape, a shape of another rank than 1, a value without exactly one element.
        InvalidTypeError: a shape that is not int64, or an element type that the version lacks.
        AllocationError: the memory cannot be had.

    Source: https://onnx.ai/onnx/operators/onnx__ConstantOfShape.html
    """
    bound = _plain(resolve("ConstantOfShape", opset)) if value is None else operator("ConstantOfShape", opset, value=value)
    result: Array | PackedTensor = bound(shape, out=out, packed=packed)
    return result


def eye_like(x: Any, dtype: Any = None, k: int = 0, *, opset: int | None = None, out: Array | None = None) -> Array:
    """ONNX EyeLike: a matrix with ones on a diagonal.

    >>> eye_like((2, 3), "int32", k=1)
    array([[0, 1, 0],
           [0, 0, 1]], dtype=int32)

    Args:
        x: an array of rank 2, of which only shape and dtype count; or a shape, a tuple or list of two integers.
        dtype: element type of the result: an ONNX name, a ``TensorProto`` number or a dtype; by default that of ``x``, and
            float32 for a shape.
        k: the diagonal: ``[i, i + k]`` is one; positive is above the main diagonal. Beyond the matrix all is zero.
        opset: the opset version; None is the newest.
        out: a C-contiguous array of the result's dtype and shape to write into.

    Returns:
        A new array, or ``out``.

    Raises:
        InvalidValueError: ``x`` is not of rank 2, or ``out`` does not fit.
        InvalidTypeError: an element type that the version lacks, or ``k`` is not an integer.
        AllocationError: the memory cannot be had.

    Source: https://onnx.ai/onnx/operators/onnx__EyeLike.html
    """
    plain = dtype is None and type(k) is int and k == 0
    bound = _plain(resolve("EyeLike", opset)) if plain else operator("EyeLike", opset, dtype=dtype, k=k)
    result: Array = bound(x, out=out)
    return result


@functools.lru_cache(maxsize=1024, typed=True)
def _quantizer(op_type: str, opset: int | None, *attributes: tuple[str, Any]) -> BoundOperator:
    return resolve(op_type, opset).bind(dict(attributes))


def _bound(op_type: str, opset: int | None, **attributes: tuple[Any, Any]) -> BoundOperator:
    """The operator with those attributes whose value is not the default; given as (value, default), for old versions lack some."""
    given = tuple((name, value) for name, (value, default) in attributes.items() if value is not default)
    try:
        return _quantizer(op_type, opset, *given)
    except TypeError as error:
        if isinstance(error, InvalidTypeError):
            raise
    return resolve(op_type, opset).bind(dict(given))  # something cannot be hashed


def quantize_linear(
    x: Any,
    y_scale: Any,
    y_zero_point: Any = None,
    *,
    axis: int = 1,
    saturate: bool = True,
    block_size: int = 0,
    output_dtype: Any = None,
    precision: Any = None,
    opset: int | None = None,
    out: Array | None = None,
    packed: bool = False,
) -> Array | PackedTensor:
    """ONNX QuantizeLinear: ``saturate(round(x / y_scale) + y_zero_point)``, ties to even.

    >>> import numpy as np
    >>> quantize_linear(np.array([-1.0, 0.3, 0.5], np.float32), np.float32(0.1), np.int8(0))
    array([-10,   3,   5], dtype=int8)

    Args:
        x: an array of float32, float16, bfloat16 or int32.
        y_scale: what to divide by. One element is for all of ``x``; a 1-D array as long as the dimension ``axis`` has one for
            each index of it; an array of the rank of ``x``, shorter along ``axis``, has one for each block of ``block_size``.
        y_zero_point: what to add, of the shape of ``y_scale`` and the result's type; zero by default.
        axis: the dimension that scales belong to; negative counts from the last.
        saturate: for float8 results, whether values beyond the range become the largest finite value; otherwise infinity or NaN.
        block_size: elements of a block; 0 if scales are not for blocks. Since opset 21.
        output_dtype: the result's element type if there is no zero point; uint8 by default. Since opset 21.
        precision: the element type in which to divide; by default that of ``y_scale``. Since opset 23.
        opset: the opset version; None is the newest.
        out: a C-contiguous array of the result's dtype and shape to write into; of the result's bytes when ``packed``.
        packed: give a :class:`~numbaops.PackedTensor` (the bytes of ``raw_data``) instead of an array.

    Returns:
        A new array of the shape of ``x``, or ``out``, or a ``PackedTensor``.

    Raises:
        InvalidValueError: shapes, axis and block size that do not fit, or an attribute that the version lacks.
        InvalidTypeError: an element type that the version lacks, or a zero point of another type than ``output_dtype``.

    Source: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
    """
    bound = _bound(
        "QuantizeLinear",
        opset,
        axis=(axis, 1),
        saturate=(saturate, True),
        block_size=(block_size, 0),
        output_dtype=(output_dtype, None),
        precision=(precision, None),
    )
    result: Array | PackedTensor = bound(x, y_scale, y_zero_point, out=out, packed=packed)
    return result


def dequantize_linear(
    x: Any,
    x_scale: Any,
    x_zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: Any = None,
    opset: int | None = None,
    out: Array | None = None,
) -> Array:
    """ONNX DequantizeLinear: ``(x - x_zero_point) * x_scale``.

    >>> import numpy as np
    >>> dequantize_linear(np.array([-10, 3, 5], np.int8), np.float32(0.5))
    array([-5. ,  1.5,  2.5], dtype=float32)

    Args:
        x: an array of a quantised type (integers of 2 to 16 bits, float8, float4, float6) or int32, or a
            :class:`~numbaops.PackedTensor`.
        x_scale: what to multiply by; its shape is as in :func:`quantize_linear`.
        x_zero_point: what to subtract first, of the shape of ``x_scale`` and the type of ``x``; zero by default.
        axis: the dimension that scales belong to; negative counts from the last.
        block_size: elements of a block; 0 if scales are not for blocks. Since opset 21.
        output_dtype: the result's element type: float32, float16 or bfloat16; by default that of ``x_scale``. Since opset 23.
        opset: the opset version; None is the newest.
        out: a C-contiguous array of the result's dtype and shape to write into.

    Returns:
        A new array of the shape of ``x``, or ``out``. Differences are exact, products float32, and rounded once to the type.

    Raises:
        InvalidValueError: shapes, axis and block size that do not fit, or an attribute that the version lacks.
        InvalidTypeError: an element type that the version lacks, or a zero point of another type than ``x``.

    Source: https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html
    """
    bound = _bound("DequantizeLinear", opset, axis=(axis, 1), block_size=(block_size, 0), output_dtype=(output_dtype, None))
    result: Array = bound(x, x_scale, x_zero_point, out=out)
    return result
