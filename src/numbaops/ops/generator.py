"""Operators that make tensors: Constant, ConstantOfShape, EyeLike (as ``onnx/defs/generator`` names the family).

https://onnx.ai/onnx/operators/onnx__Constant.html, onnx__ConstantOfShape.html, onnx__EyeLike.html
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray

from numbaops import dense
from numbaops.convert import PackedTensor, array_nbytes, as_strings, check_out, pack, packed
from numbaops.dtypes import ElementType, element_type, of_dtype
from numbaops.errors import InvalidTypeError, InvalidValueError, NumbaopsError
from numbaops.ops.base import MEMO_BYTES, Array, BoundOperator, Memo, as_float, as_integer, as_tensor

_INT64 = np.dtype(np.int64)


def _all_int(shape: tuple[Any, ...]) -> bool:
    """Whether all items are of the type int: True and 1.0 equal 1, but only 1 is a dimension."""
    for item in shape:  # noqa: SIM110 - all() takes three times as long for two items
        if type(item) is not int:
            return False
    return True


def _number(value: Any, attribute: str) -> float:
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise InvalidTypeError(f"{attribute} is {value!r}; allowed: a number")
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"{attribute} is {value!r}; allowed: a number") from error
    except OverflowError as error:
        raise InvalidValueError(f"{attribute} is {value!r}, beyond the range of float32") from error
    return as_float(number, attribute)


def _items(values: Any, attribute: str) -> list[Any]:
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values.tolist()  # type: ignore[no-any-return]
    if not isinstance(values, (list, tuple)) and not hasattr(values, "MergeFrom"):  # protobuf's repeated fields
        raise InvalidTypeError(f"{attribute} is {values!r}; allowed: a list")
    return list(values)


def _sparse(value: Any, attribute: str) -> Array:
    from numbaops.tensors import dense_from_sparse, to_array

    if hasattr(value, "values") and hasattr(value, "indices") and hasattr(value, "dims"):
        return to_array(value)
    if isinstance(value, tuple) and len(value) == 3:
        values, indices, shape = value
        if isinstance(values, ndarray) and isinstance(indices, ndarray) and isinstance(shape, (tuple, list)):
            return dense_from_sparse(values, indices, [as_integer(dimension, "the shape") for dimension in shape])
    came = f"({', '.join(type(part).__name__ for part in value)})" if isinstance(value, tuple) else type(value).__name__
    raise InvalidTypeError(
        f"{attribute} is a {came}; allowed: a SparseTensorProto, or a tuple (values, indices, shape) of two arrays and a tuple"
    )


class Constant(BoundOperator):
    """Constant: the same tensor each time, as a new array.

    Exactly one of the attributes of its version: ``value``, ``sparse_value`` (made dense), ``value_float``, ``value_floats``,
    ``value_int``, ``value_ints``, ``value_string``, ``value_strings``.
    """

    __slots__ = ("result",)

    _FROM: ClassVar[dict[str, Callable[[Any, str], Array]]] = {
        "value": as_tensor,
        "sparse_value": _sparse,
        "value_float": lambda value, name: np.array(_number(value, name), np.float32),
        "value_floats": lambda value, name: np.array([_number(item, name) for item in _items(value, name)], np.float32),
        "value_int": lambda value, name: np.array(as_integer(value, name), np.int64),
        "value_ints": lambda value, name: np.array([as_integer(item, name) for item in _items(value, name)], np.int64),
        "value_string": lambda value, name: as_strings([value], name).reshape(()),
        "value_strings": lambda value, name: as_strings(_items(value, name), name),
    }

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        if len(given) != 1:
            came = " and ".join(given) or "none"
            raise self.error(InvalidValueError, f"exactly one attribute of {', '.join(self.version.attributes)} is allowed; {came} came")
        ((name, value),) = given.items()
        result = self.check(name, self._FROM[name], value, name)
        self.check_element_type(of_dtype(result.dtype), self.version.outputs["output"], name)
        result.flags.writeable = False
        self.result = result
        if name in ("value", "sparse_value"):
            return {name: result}
        return {name: _items(value, name) if result.ndim else value}

    def __call__(self, *, out: Array | None = None, packed: bool = False) -> Any:
        """The tensor.

        Args:
            out: a C-contiguous array of the result's dtype and shape to write into.
            packed: give a :class:`~numbaops.PackedTensor` instead of an array.
        """
        result = self.result
        if packed:
            return self._packed(out)
        if out is not None:
            np.copyto(self.check("out", check_out, out, result.dtype, result.shape), result)
            return out
        try:
            return dense.copied(result)
        except MemoryError as error:
            raise self.no_memory(result.shape, of_dtype(result.dtype)) from error

    def _packed(self, out: Array | None) -> PackedTensor:
        if out is not None:
            raise self.error(InvalidValueError, "out and packed=True exclude each other", "out")
        if self.result.dtype == object:
            raise self.error(InvalidTypeError, "packed=True came for element type string, which has no raw_data", "packed")
        return packed(self.result)

    @property
    def output_type(self) -> str:
        return f"{of_dtype(self.result.dtype)}{list(self.result.shape)}"

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (version, attributes) = super().__reduce__()
        if "sparse_value" in attributes:  # bound as sparse, kept as dense
            return _rebuild_dense, (version, self.result, self.check_types)
        return rebuild, (version, attributes)


def _rebuild_dense(version: Any, result: Array, check_types: bool) -> Constant:
    bound = version.bind({"value": result}, check_types=check_types)
    bound.attributes = {"sparse_value": bound.result}
    return bound  # type: ignore[no-any-return]


class ConstantOfShape(BoundOperator):
    """ConstantOfShape: a tensor of a given shape with one value everywhere, float32 zero by default."""

    __slots__ = ("element", "kind", "memo", "recall")

    inputs = "int64[rank]"

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        array = self.check("value", as_tensor, given.get("value", 0.0), "value")
        if array.size != 1:
            raise self.error(InvalidValueError, f"value has {array.size} elements (shape {array.shape}); allowed: exactly one", "value")
        self.kind = of_dtype(array.dtype)
        self.check_element_type(self.kind, self.version.outputs["output"], "value")
        if self.kind.kind == "string":
            raise self.error(InvalidTypeError, "value has element type string; allowed: any type but string", "value")
        self.element = dense.Element(array.reshape(()))
        self.element.array.flags.writeable = False
        self.memo = Memo()
        self.recall = self.memo.get
        return {"value": self.element.array}

    def __call__(self, shape: Any, *, out: Array | None = None, packed: bool = False) -> Any:
        """The tensor.

        Args:
            shape: a 1-D int64 array, tuple or list of non-negative integers; ``[]`` gives a tensor of rank 0.
            out: a C-contiguous array of the result's dtype and shape to write into.
            packed: give a :class:`~numbaops.PackedTensor` instead of an array.
        """
        if out is None and not packed:
            if type(shape) is ndarray:
                if shape.dtype is _INT64 and shape.ndim == 1 and (copy := self.recall(shape.tobytes())) is not None:
                    return copy()
            elif type(shape) is tuple and _all_int(shape) and (copy := self.recall(shape)) is not None:
                return copy()
        element = self.element
        dimensions: tuple[int, ...] = ()
        try:
            dimensions = self._dimensions(shape)
            nbytes = array_nbytes(dimensions, element.array.dtype.itemsize, "shape")
            if packed:
                return self._packed(dimensions, out)
            if out is not None:
                dense.fill(check_out(out, element.array.dtype, dimensions), element)
                return out
            result = dense.filled(dimensions, element, nbytes)
        except NumbaopsError as error:
            raise self.located(error, "shape") from error.__cause__
        except MemoryError as error:
            raise self.no_memory(dimensions, self.kind) from error
        if nbytes <= MEMO_BYTES:
            self.memo.keep(shape.tobytes() if type(shape) is ndarray and shape.dtype is _INT64 else dimensions, result)
        return result

    def view(self, shape: Any) -> Array:
        """The tensor as a read-only view of one element, whatever its shape."""
        return np.broadcast_to(self.element.array, self._dimensions(shape))

    def _dimensions(self, shape: Any) -> tuple[int, ...]:
        if isinstance(shape, ndarray) and not isinstance(shape, np.ma.MaskedArray):
            integers = shape.dtype.kind == "i" and shape.dtype.itemsize == 8 if self.check_types else shape.dtype.kind in "iu"
            if shape.ndim != 1 or not integers:
                raise self.error(
                    InvalidTypeError if shape.ndim == 1 else InvalidValueError,
                    f"shape came as {shape.dtype} of rank {shape.ndim}; allowed: int64 of rank 1",
                    "shape",
                )
            dimensions = tuple(shape.tolist())
        elif type(shape) is tuple and _all_int(shape):
            dimensions = shape
        elif isinstance(shape, (tuple, list)):
            dimensions = tuple(as_integer(dimension, "shape") for dimension in shape)
        else:
            raise self.error(InvalidTypeError, f"shape is {shape!r}; allowed: a tuple, a list or a 1-D int64 array", "shape")
        return dimensions

    def _packed(self, dimensions: tuple[int, ...], out: Array | None) -> PackedTensor:
        if out is not None:
            raise self.error(InvalidValueError, "out and packed=True exclude each other", "out")
        kind = self.kind
        size = math.prod(dimensions)
        nbytes = kind.packed_size(size)
        if not kind.packed:
            return packed(dense.filled(dimensions, self.element, nbytes))
        full = 8 // kind.bits
        byte = dense.Element(pack(np.repeat(self.element.array.reshape(1), full)).reshape(()))
        data = dense.filled((nbytes,), byte, nbytes)
        if size % full:
            data[-1] &= np.uint8((1 << size % full * kind.bits) - 1)
        return PackedTensor(data, kind, dimensions)

    @property
    def output_type(self) -> str:
        return str(self.kind)


class EyeLike(BoundOperator):
    """EyeLike: a matrix shaped like the input with ones on the ``k``-th diagonal and zeros elsewhere."""

    __slots__ = ("hot", "k", "kind", "known")

    inputs = "[rows, columns]"

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        self.k = self.check("k", as_integer, given.get("k", 0), "k")
        self.kind: ElementType | None = None
        # By the input's dtype: the result's type and small results. The dtype used last needs no look-up (its hash takes 90 ns).
        self.known: dict[np.dtype[Any], tuple[ElementType, Memo]] = {}
        self.hot: tuple[np.dtype[Any] | None, Callable[[Any], Callable[[], Array] | None]] = (None, Memo().get)
        if "dtype" not in given:
            return {"k": self.k}
        self.kind = self.check("dtype", element_type, given["dtype"])
        self.check_element_type(self.kind, self.version.outputs["output"], "dtype")
        self._check_numeric(self.kind, "dtype")
        return {"dtype": self.kind.name, "k": self.k}

    def __call__(self, x: Any, *, out: Array | None = None) -> Array:
        """The matrix.

        Args:
            x: an array of rank 2, of which only shape and dtype count; or a shape, a tuple or list of two integers, which
                stands for a float input.
            out: a C-contiguous array of the result's dtype and shape to write into.
        """
        if out is None and type(x) is ndarray:
            dtype, recall = self.hot
            if x.dtype is dtype and (copy := recall(x.shape)) is not None:
                return copy()
        memo: Memo | None = None
        into: Array | None = None
        try:
            if isinstance(x, ndarray):
                kind, memo = self.known.get(x.dtype) or self._learn(x.dtype)
                shape: tuple[int, ...] = x.shape
            else:
                kind, shape = self._from_shape(x)
            if len(shape) != 2:
                raise InvalidValueError(f"x has rank {len(shape)} (shape {list(shape)}); allowed: rank 2")
            nbytes = array_nbytes(shape, kind.dtype.itemsize, "x")
            if out is not None:
                into = check_out(out, kind.dtype, shape)
        except NumbaopsError as error:
            raise self.located(error, "x") from error.__cause__
        try:
            result = dense.diagonal(*shape, self.k, dense.one(kind.dtype), into)
        except MemoryError as error:
            raise self.no_memory(shape, kind) from error
        if out is not None:
            return out
        if memo is not None and nbytes <= MEMO_BYTES:
            memo.keep(shape, result)
            self.hot = x.dtype, memo.get
        return result

    def _learn(self, dtype: np.dtype[Any]) -> tuple[ElementType, Memo]:
        """The result's type for a new dtype of the input, checked, and room for its small results."""
        given = of_dtype(dtype)
        self.check_element_type(given, self.version.inputs["input"], "x")
        self._check_numeric(self.kind or given, "x")
        return self.known.setdefault(dtype, (self.kind or given, Memo()))

    def _from_shape(self, x: Any) -> tuple[ElementType, tuple[int, ...]]:
        if not isinstance(x, (tuple, list)):
            raise InvalidTypeError(f"x is {x!r}; allowed: an array of rank 2, or a shape of two integers")
        return self.kind or element_type("float"), tuple(as_integer(dimension, "x") for dimension in x)

    def _check_numeric(self, kind: ElementType, what: str) -> None:
        if kind.kind == "string":
            raise self.error(InvalidTypeError, f"{what} has element type string; allowed: a numeric type", what)
        if kind.format is not None and not kind.format.zero:
            raise self.error(
                InvalidTypeError, f"{what} has element type {kind}, which has no zero; allowed: a type with zero and one", what
            )

    @property
    def output_type(self) -> str:
        return f"{self.kind or 'type of x'}[rows, columns]"
