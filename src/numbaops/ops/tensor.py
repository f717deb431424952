"""Operators that convert between element types: Cast, CastLike, BitCast (of the family ``onnx/defs/tensor``).

https://onnx.ai/onnx/operators/onnx__Cast.html, onnx__CastLike.html, onnx__BitCast.html
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numbaops.casting import ROUND_MODES, cast
from numbaops.convert import PackedTensor, check_out
from numbaops.dtypes import ElementType, element_type, of_dtype
from numbaops.errors import InvalidTypeError, InvalidValueError, NumbaopsError
from numbaops.ops.base import Array, BoundOperator, as_flag, as_text


class _Casting(BoundOperator):
    """What Cast and CastLike share."""

    __slots__ = ("known", "round_mode", "saturate")

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        self.saturate = self.check("saturate", as_flag, given.get("saturate", True), "saturate")
        self.round_mode = self.check("round_mode", as_text, given.get("round_mode", "up"), "round_mode")
        if self.round_mode not in ROUND_MODES:
            raise self.error(InvalidValueError, f"round_mode is {self.round_mode!r}; allowed: {', '.join(ROUND_MODES)}", "round_mode")
        self.known: set[np.dtype[Any]] = set()  # dtypes of inputs that were checked
        effective = {"saturate": int(self.saturate), "round_mode": self.round_mode}
        return {name: value for name, value in effective.items() if name in self.version.attributes}

    def convert(self, x: Any, to: ElementType, out: Array | None, packed: bool) -> Array | PackedTensor:
        try:
            if isinstance(x, PackedTensor):
                self.check_element_type(x.element_type, self.version.inputs["input"], "input")
            elif isinstance(x, (np.ndarray, np.generic)) and x.dtype not in self.known:
                self.learn(x.dtype)
            return cast(x, to, saturate=self.saturate, round_mode=self.round_mode, out=out, packed=packed)
        except NumbaopsError as error:
            if error.attribute == "x":  # as cast calls it
                error.attribute = "input"
            raise self.located(error, "input") from error.__cause__

    def learn(self, dtype: np.dtype[Any]) -> None:
        """Check an input's dtype that has not come before."""
        self.check_element_type(of_dtype(dtype), self.version.inputs["input"], "input")
        if dtype.kind not in "SUT":  # of which there are any number
            self.known.add(dtype)


class Cast(_Casting):
    """Cast: the input's elements converted to the type ``to``."""

    __slots__ = ("to",)

    inputs = "input"

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        to = given["to"]
        self.to = self.check("to", element_type, to.decode("utf-8", "replace") if isinstance(to, bytes) else to)
        self.check_element_type(self.to, self.version.outputs["output"], "to")
        return {"to": self.to.name, **super().bind(given)}

    def __call__(self, x: Any, *, out: Array | None = None, packed: bool = False) -> Array | PackedTensor:
        """The converted elements, of the shape of ``x``.

        Args:
            x: an array, a NumPy scalar or a :class:`~numbaops.PackedTensor`.
            out: a C-contiguous array of the result's dtype and shape to write into; of the result's bytes when ``packed``.
            packed: give a :class:`~numbaops.PackedTensor` instead of an array.
        """
        return self.convert(x, self.to, out, packed)

    @property
    def output_type(self) -> str:
        return str(self.to)


class CastLike(_Casting):
    """CastLike: the input's elements converted to the element type of another tensor."""

    __slots__ = ()

    inputs = "input, target_type"

    def __call__(self, x: Any, target: Any, *, out: Array | None = None, packed: bool = False) -> Array | PackedTensor:
        """The converted elements, of the shape of ``x``.

        Args:
            x: an array, a NumPy scalar or a :class:`~numbaops.PackedTensor`.
            target: an array or a PackedTensor, of which only the element type counts.
            out: a C-contiguous array of the result's dtype and shape to write into; of the result's bytes when ``packed``.
            packed: give a :class:`~numbaops.PackedTensor` instead of an array.
        """
        if isinstance(target, PackedTensor):
            kind = target.element_type
        elif isinstance(target, (np.ndarray, np.generic)):
            kind = self.check("target_type", of_dtype, target.dtype)
        else:
            raise self.error(InvalidTypeError, f"target_type is a {type(target).__name__}; allowed: an array", "target_type")
        self.check_element_type(kind, self.version.inputs["target_type"], "target_type")
        return self.convert(x, kind, out, packed)

    @property
    def output_type(self) -> str:
        return "type of target_type"


class BitCast(BoundOperator):
    """BitCast: the input's bits taken for elements of another type of the same width."""

    __slots__ = ("to",)

    inputs = "input"

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        self.to = self.check("to", element_type, given["to"])
        self.check_element_type(self.to, self.version.outputs["output"], "to")
        if self.to.kind == "string":
            raise self.error(InvalidTypeError, "to is string, which has no bits; allowed: any other element type", "to")
        return {"to": self.to.name}

    def __call__(self, x: Any, *, out: Array | None = None) -> Array:
        """A new array, or ``out``, of the shape of ``x``.

        Args:
            x: an array or a NumPy scalar.
            out: a C-contiguous array of the result's dtype and shape to write into.
        """
        if not isinstance(x, (np.ndarray, np.generic)):
            raise self.error(InvalidTypeError, f"input is a {type(x).__name__}; allowed: an array", "input")
        kind = self.check("input", of_dtype, x.dtype)
        self.check_element_type(kind, self.version.inputs["input"], "input")
        if kind.bits != self.to.bits:
            came = f"{kind.bits} bits" if kind.bits else "no fixed width"
            raise self.error(InvalidTypeError, f"to is {self.to} of {self.to.bits} bits, but elements of {kind} have {came}", "to")
        if out is None:
            # A copy, C-contiguous and in native byte order, whatever the layout of x.
            result = np.array(x, kind.dtype, order="C", subok=False).view(self.to.dtype)
        else:
            plain = self.check("out", check_out, out, self.to.dtype, x.shape)
            np.copyto(plain.view(kind.dtype), x)
            result = out
        if kind.packed:
            codes = result.view(np.uint8)
            np.bitwise_and(codes, np.uint8((1 << kind.bits) - 1), out=codes)
        return result

    @property
    def output_type(self) -> str:
        return str(self.to)
