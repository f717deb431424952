"""Linear quantization: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear (as ``onnx/defs/quantization`` names the family).

https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html, onnx__DequantizeLinear.html, onnx__DynamicQuantizeLinear.html
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from numbaops.convert import PackedTensor, refuse_mask
from numbaops.dtypes import BY_NAME, ElementType, element_type, of_dtype
from numbaops.errors import InvalidTypeError, InvalidValueError, NumbaopsError
from numbaops.ops.base import Array, BoundOperator, as_flag, as_integer
from numbaops.quantization import PRECISIONS, QUANTIZED, SCALES, SOURCES, Dequantizer, Quantizer, dynamic_quantize

_FLOAT, _DOUBLE, _INT32, _SCALE, _UINT8 = (BY_NAME[name] for name in ("float", "double", "int32", "float8e8m0", "uint8"))

ONE_TYPE = (19, 21)
"""Versions in which QuantizeLinear's x and scale have one type."""

FREE_SCALES = 23
"""From this version on QuantizeLinear's scale has a type of its own, which is also that of the division."""


class _Linear(BoundOperator):
    """What the two directions share."""

    __slots__ = ("axis", "block_size", "known")

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        self.axis = self.check("axis", as_integer, given.get("axis", 1), "axis")
        self.block_size = self.check("block_size", as_integer, given.get("block_size", 0), "block_size")
        if self.block_size < 0:
            raise self.error(InvalidValueError, f"block_size is {self.block_size}; allowed: an integer from 1 on, or 0", "block_size")
        self.known: dict[Any, Any] = {}  # what does the work, by the dtypes of inputs, which are then known to be allowed
        effective = {"axis": self.axis, "block_size": self.block_size}
        return {name: value for name, value in effective.items() if name in self.version.attributes}

    def kind_attribute(self, given: dict[str, Any], name: str, supported: frozenset[ElementType]) -> ElementType | None:
        """An attribute that is an element type; 0 is none."""
        value = given.get(name, 0)
        if type(value) is not bool and isinstance(value, (int, np.integer)) and value == 0:
            return None
        kind = self.check(name, element_type, value)
        self.supported(kind, supported, name)
        return kind

    def supported(self, kind: ElementType, supported: frozenset[ElementType], what: str) -> None:
        """Refuse an element type that no version has."""
        if kind not in supported:
            names = ", ".join(sorted(map(str, supported)))
            raise self.error(InvalidTypeError, f"{what} has element type {kind}; allowed: {names}", what)

    def element(self, dtype: Any, allowed: str, supported: frozenset[ElementType], what: str) -> ElementType:
        """The element type of an input: one of the version's types, or of any version's where types are not checked."""
        kind = self.check(what, of_dtype, dtype)
        self.check_element_type(kind, self.version.inputs[allowed], what)
        self.supported(kind, supported, what)
        return kind

    def array(self, value: Any, what: str) -> Array:
        """An input as a plain array."""
        if isinstance(value, PackedTensor):
            return value.unpack()
        self.check(what, refuse_mask, value, what)
        if isinstance(value, (ndarray, np.generic)):
            return np.asarray(value)
        raise self.error(InvalidTypeError, f"{what} is a {type(value).__name__}; allowed: an array", what)

    def check_scalar(self, scale: Array, what: str) -> None:
        """Refuse more than one scale in versions that have no axis."""
        if scale.size != 1 and self.check_types and "axis" not in self.version.attributes:
            raise self.error(InvalidValueError, f"{what} has shape {list(scale.shape)}; allowed in this version: a scalar", what)


class QuantizeLinear(_Linear):
    """QuantizeLinear: ``saturate(round(x / y_scale) + y_zero_point)``, with one scale, one for each index of an axis, or for each block."""

    __slots__ = ("kind", "precision", "saturate")

    inputs = "x, y_scale, y_zero_point"

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        checked = super().bind(given)
        self.saturate = self.check("saturate", as_flag, given.get("saturate", True), "saturate")
        self.kind = self.kind_attribute(given, "output_dtype", QUANTIZED)
        if self.kind is not None:
            self.check_element_type(self.kind, self.version.outputs["y"], "output_dtype")
        self.precision = self.kind_attribute(given, "precision", PRECISIONS)
        effective = {"saturate": int(self.saturate), "output_dtype": _code(self.kind), "precision": _code(self.precision)}
        return checked | {name: value for name, value in effective.items() if name in self.version.attributes}

    def __call__(
        self, x: Any, y_scale: Any, y_zero_point: Any = None, *, out: Array | None = None, packed: bool = False
    ) -> Array | PackedTensor:
        """The quantized tensor, of the shape of ``x``.

        Args:
            x: an array of float32, float16, bfloat16 or int32.
            y_scale: a scalar; an array of one dimension, that of the axis; or one of the rank of ``x`` with a scale for each block.
            y_zero_point: an array of the result's type and the scale's shape; None is zero.
            out: a C-contiguous array of the result's dtype and shape to write into; of the result's bytes when ``packed``.
            packed: give a :class:`~numbaops.PackedTensor` instead of an array.
        """
        if type(x) is not ndarray:
            x = self.array(x, "x")
        if type(y_scale) is not ndarray:
            y_scale = self.array(y_scale, "y_scale")
        if y_zero_point is not None and type(y_zero_point) is not ndarray:
            y_zero_point = self.array(y_zero_point, "y_zero_point")
        if x.dtype.kind in "iu" and x.itemsize != 4 and not self.check_types:  # no version has them; onnx.reference takes any number
            x = x.astype(np.float64)
        dtypes = x.dtype, y_scale.dtype, None if y_zero_point is None else y_zero_point.dtype
        quantizer: Quantizer = self.known.get(dtypes) or self._learn(*dtypes)
        if y_scale.ndim:
            self.check_scalar(y_scale, "y_scale")
        try:
            return quantizer(x, y_scale, y_zero_point, self.axis, self.block_size, out, packed)
        except NumbaopsError as error:
            raise self.located(error, "x") from error.__cause__
        except MemoryError as error:
            raise self.no_memory(x.shape, quantizer.target) from error

    def _learn(self, x: np.dtype[Any], scale: np.dtype[Any], zero: np.dtype[Any] | None) -> Quantizer:
        """What quantizes inputs of new dtypes, checked."""
        source = self.element(x, "x", SOURCES, "x")
        given = self.element(scale, "y_scale", SCALES, "y_scale")
        target = self.kind or _UINT8
        if zero is not None:
            target = self.element(zero, "y_zero_point", QUANTIZED, "y_zero_point")
            if self.kind not in (None, target):
                text = f"output_dtype is {self.kind}, and y_zero_point has element type {target}; they must be the same"
                raise self.error(InvalidTypeError, text, "output_dtype")
        if self.check_types and self.version.since_version in ONE_TYPE and given is not source:
            raise self.error(InvalidTypeError, f"y_scale has element type {given}; allowed in this version: that of x, {source}", "y_scale")
        own = self.version.since_version >= FREE_SCALES
        quantizer = Quantizer(source, self.precision or _division(source, given, own), target, self.saturate)
        self.known[x, scale, zero] = quantizer
        return quantizer

    @property
    def output_type(self) -> str:
        return f"{self.kind or 'type of y_zero_point, or uint8'}"


def _division(source: ElementType, scale: ElementType, own: bool) -> ElementType:
    """The type of the division without ``precision``."""
    if _DOUBLE in (source, scale) or (own and scale is _INT32):
        return _DOUBLE
    return scale if own and scale is not _SCALE else _FLOAT


def _code(kind: ElementType | None) -> str | int:
    return kind.name if kind else 0


class DequantizeLinear(_Linear):
    """DequantizeLinear: ``(x - x_zero_point) * x_scale``, with one scale, one for each index of an axis, or for each block."""

    __slots__ = ("kind",)

    inputs = "x, x_scale, x_zero_point"

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        checked = super().bind(given)
        self.kind = self.kind_attribute(given, "output_dtype", PRECISIONS)
        if self.kind is not None:
            self.check_element_type(self.kind, self.version.outputs["y"], "output_dtype")
        return checked | ({"output_dtype": _code(self.kind)} if "output_dtype" in self.version.attributes else {})

    def __call__(self, x: Any, x_scale: Any, x_zero_point: Any = None, *, out: Array | None = None) -> Array:
        """The tensor, of the shape of ``x``.

        Args:
            x: an array of a quantized type or int32, or a :class:`~numbaops.PackedTensor`.
            x_scale: as for QuantizeLinear.
            x_zero_point: an array of the type of ``x`` and the scale's shape, or a PackedTensor; None is zero.
            out: a C-contiguous array of the result's dtype and shape to write into.
        """
        if type(x) is ndarray:
            dtype = x.dtype
        elif isinstance(x, PackedTensor):
            dtype = x.element_type.dtype
        else:
            x = self.array(x, "x")
            dtype = x.dtype
        if type(x_scale) is not ndarray:
            x_scale = self.array(x_scale, "x_scale")
        if x_zero_point is not None and type(x_zero_point) is not ndarray:
            x_zero_point = self.array(x_zero_point, "x_zero_point")
        dtypes = dtype, x_scale.dtype, None if x_zero_point is None else x_zero_point.dtype
        dequantizer: Dequantizer = self.known.get(dtypes) or self._learn(*dtypes)
        if x_scale.ndim:
            self.check_scalar(x_scale, "x_scale")
        try:
            return dequantizer(x, x_scale, x_zero_point, self.axis, self.block_size, out)
        except NumbaopsError as error:
            raise self.located(error, "x") from error.__cause__
        except MemoryError as error:
            raise self.no_memory(x.shape, dequantizer.target) from error

    def _learn(self, x: np.dtype[Any], scale: np.dtype[Any], zero: np.dtype[Any] | None) -> Dequantizer:
        """What dequantizes inputs of new dtypes, checked."""
        source = self.element(x, "x", QUANTIZED | {_INT32}, "x")
        given = self.element(scale, "x_scale", SCALES - {_INT32}, "x_scale")
        if zero is not None and (kind := self.check("x_zero_point", of_dtype, zero)) is not source:
            text = f"x_zero_point has element type {kind}; allowed: that of x, {source}"
            raise self.error(InvalidTypeError, text, "x_zero_point")
        if self.kind is None and given is _SCALE:
            text = "output_dtype is missing; with an x_scale of float8e8m0 it says what the result is"
            raise self.error(InvalidValueError, text, "output_dtype")
        dequantizer = Dequantizer(source, given, self.kind or given)
        self.known[x, scale, zero] = dequantizer
        return dequantizer

    @property
    def output_type(self) -> str:
        return str(self.kind or "type of x_scale")


class DynamicQuantizeLinear(BoundOperator):
    """DynamicQuantizeLinear: uint8 with a scale and a zero point that cover the range of the tensor and zero."""

    __slots__ = ()

    inputs = "x"

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        return {}

    def __call__(self, x: Any) -> tuple[Array, Array, Array]:
        """The quantized tensor, the scale and the zero point; the latter two of rank 0.

        Args:
            x: an array of float32. NaN counts for no range and becomes 0; without any element but zero the scale is 1.
        """
        if not isinstance(x, (ndarray, np.generic)):
            raise self.error(InvalidTypeError, f"x is a {type(x).__name__}; allowed: an array", "x")
        source = self.check("x", of_dtype, x.dtype)
        self.check_element_type(source, self.version.inputs["x"], "x")
        if source not in PRECISIONS:
            raise self.error(InvalidTypeError, f"x has element type {source}; allowed: {', '.join(sorted(map(str, PRECISIONS)))}", "x")
        try:
            return dynamic_quantize(np.asarray(x), source)
        except MemoryError as error:
            raise self.no_memory(x.shape, _UINT8) from error

    @property
    def output_type(self) -> str:
        return "uint8, float, uint8"
