"""What every operator shares: attributes bound once, errors that name the operator version, ``repr`` and pickling."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from numbaops.convert import as_strings, refuse_mask
from numbaops.dtypes import BY_NAME, ElementType, of_dtype
from numbaops.errors import AllocationError, InvalidTypeError, InvalidValueError, NumbaopsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numbaops.opset import OperatorVersion

Array = npt.NDArray[Any]
_T = TypeVar("_T")

MEMO_BYTES = 1 << 10
"""Results up to this size are kept and copied (150 ns) instead of made anew (1 us with all checks)."""

MEMO_ENTRIES = 256
"""Results that one operator keeps."""


INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_FLOAT32_LIMIT = float(2**128 - 2**103)
"""The smallest double that rounds to an infinite float32."""


class BoundOperator:
    """An operator version with its attributes checked and bound; call it with arrays.

    Attributes:
        version: the row of the operator table.
        attributes: the attributes it was bound with, as checked.
        check_types: whether element types that the version lacks are refused.
    """

    __slots__ = ("attributes", "check_types", "version")

    inputs: ClassVar[str] = ""
    """How ``repr`` shows the inputs."""

    def __init__(self, version: OperatorVersion, attributes: Mapping[str, Any], *, check_types: bool = True) -> None:
        self.version = version
        self.check_types = check_types
        given = {name: value for name, value in attributes.items() if value is not None}
        allowed = version.attributes
        for name in given:
            if name not in allowed:
                names = ", ".join(allowed)
                raise self.error(InvalidValueError, f"there is no attribute {name!r} in this version; it has {names}", name)
        for name, attribute in allowed.items():
            if attribute.required and name not in given:
                raise self.error(InvalidValueError, f"the attribute {name!r} is missing; this version requires it", name)
        self.attributes = self.bind(given)

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        """Check the attributes and keep what calls need; returns them in their checked form."""
        raise NotImplementedError

    if TYPE_CHECKING:
        __call__: Callable[..., Any]
        """Evaluate the operator: positional inputs, and ``out=``, a C-contiguous array to write the result into."""

    def error(self, kind: type[NumbaopsError], message: str, attribute: str | None = None) -> NumbaopsError:
        """An error of ``kind`` that names this operator version."""
        return kind(message, op_type=self.version.op_type, since_version=self.version.since_version, attribute=attribute)

    def check(self, attribute: str, function: Callable[..., _T], *arguments: Any) -> _T:
        """``function(*arguments)`` of a layer that knows no operators; its errors name this operator version and ``attribute``."""
        try:
            return function(*arguments)
        except NumbaopsError as error:
            raise self.located(error, attribute) from error.__cause__

    def located(self, error: NumbaopsError, attribute: str) -> NumbaopsError:
        """``error`` with this operator version filled in, and the attribute if it names none."""
        error.op_type, error.since_version = self.version.op_type, self.version.since_version
        error.attribute = error.attribute or attribute
        return error

    def check_element_type(self, kind: ElementType, allowed: frozenset[ElementType], what: str) -> None:
        """Refuse an element type that this version lacks, unless types are not checked."""
        if self.check_types and kind not in allowed:
            raise self.error(
                InvalidTypeError, f"{what} has element type {kind}; this version allows {', '.join(sorted(map(str, allowed)))}", what
            )

    def no_memory(self, shape: tuple[int, ...], kind: ElementType) -> NumbaopsError:
        """The error for an output whose memory cannot be had."""
        return self.error(AllocationError, f"no memory for shape {list(shape)} of {kind}")

    @property
    def output_type(self) -> str:
        """How ``repr`` shows the output's type."""
        raise NotImplementedError

    def __repr__(self) -> str:
        attributes = "".join(f", {name}={_short(value)}" for name, value in self.attributes.items())
        return f"<{self.version.op_type}-{self.version.since_version}{attributes}: ({self.inputs}) -> {self.output_type}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), check_types=self.check_types), (self.version, self.attributes)


class Memo(dict[Any, "Callable[[], Array]"]):
    """The ``copy`` methods of small results, by what determines them; the bound method saves 30 ns a call."""

    __slots__ = ()

    def keep(self, key: Any, result: Array) -> None:
        """Remember ``result``, of at most ``MEMO_BYTES``."""
        if len(self) >= MEMO_ENTRIES:
            self.clear()
        self[key] = result.copy().copy


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size != 1:
        return f"{of_dtype(value.dtype)}{list(value.shape)}"
    if isinstance(value, np.ndarray):
        return str(value.reshape(-1)[0])
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def as_tensor(value: Any, attribute: str) -> Array:
    """The tensor that an attribute of kind TENSOR stands for, as an array.

    Args:
        value: an array, a NumPy or ml_dtypes scalar, a ``TensorProto``, or a Python ``bool`` (bool), ``int`` (int64), ``float``
            (float) or ``str`` (string).
        attribute: its name, for errors.

    Returns:
        A new C-contiguous array in native byte order: bool bytes are 0 or 1, unused bits of sub-byte elements are zero, strings
        are ``str`` objects.
    """
    refuse_mask(value, attribute)
    if isinstance(value, (np.ndarray, np.generic)):
        return _canonical(np.asarray(value), attribute)
    if isinstance(value, bool):
        return np.array(value)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise InvalidValueError(f"{attribute} is {value}, beyond int64; give a NumPy scalar for another type")
        return np.array(value, np.int64)
    if isinstance(value, float):
        return np.array(as_float(value, attribute), np.float32)
    if isinstance(value, (str, bytes)):
        return as_strings([value], attribute).reshape(())
    if hasattr(value, "data_type") and hasattr(value, "dims"):
        from numbaops.tensors import to_array

        return to_array(value)
    raise InvalidTypeError(
        f"{attribute} is a {type(value).__name__}; allowed: an array, a NumPy scalar, a TensorProto, or a bool, int, float or str"
    )


def as_float(value: float, attribute: str) -> float:
    """A number as an attribute of kind FLOAT; an error beyond the range of float32."""
    if _FLOAT32_LIMIT <= abs(value) < math.inf:
        raise InvalidValueError(f"{attribute} is {value}, beyond the range of float32")
    return value


def as_integer(value: Any, attribute: str) -> int:
    """A number as an attribute of kind INT."""
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise InvalidTypeError(f"{attribute} is {value!r}; allowed: an integer")
    if not INT64_MIN <= number <= INT64_MAX:
        raise InvalidValueError(f"{attribute} is {number}; allowed: {INT64_MIN} to {INT64_MAX}")
    return number


def as_flag(value: Any, attribute: str) -> bool:
    """An attribute of kind INT of which only zero and not zero count."""
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return bool(value)
    raise InvalidTypeError(f"{attribute} is {value!r}; allowed: 0 and 1")


def as_text(value: Any, attribute: str) -> str:
    """An attribute of kind STRING; protobuf has it as UTF-8 bytes."""
    if isinstance(value, (str, bytes)):
        return str(as_strings([value], attribute)[0])
    raise InvalidTypeError(f"{attribute} is {value!r}; allowed: a str")


def _canonical(array: Array, attribute: str) -> Array:
    kind = of_dtype(array.dtype)
    if kind.kind == "string":
        return as_strings(array.reshape(-1).tolist(), attribute).reshape(array.shape)
    plain = np.array(array, kind.dtype, order="C")
    codes = plain.reshape(-1).view(np.uint8)
    if kind is BY_NAME["bool"]:
        np.not_equal(codes, 0, out=codes, casting="unsafe")
    elif kind.packed:
        codes &= (1 << kind.bits) - 1
    return plain
