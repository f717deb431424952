"""The Numba types, how their values are stored, how they enter and leave ``@njit`` functions, and their conversions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import NumbaNotImplementedError
from numba.core.imputils import lower_constant
from numba.core.typeconv import Conversion
from numba.core.types.misc import unliteral
from numba.extending import NativeValue, box, lower_builtin, lower_cast, models, register_model, typeof_impl, unbox
from numba.np import numpy_support

from numbaops import __version__
from numbaops.dtypes import ELEMENT_TYPES, ElementType, element_type
from numbaops.numba_types import conversion

ROWS: tuple[ElementType, ...] = tuple(row for row in ELEMENT_TYPES if row.dtype.type.__module__.startswith("ml_dtypes"))


class _Low:
    """What both kinds of types share; each is named as its dtype, which is how Numba finds the dtype of a type."""

    name: str
    version: str

    @property
    def key(self) -> tuple[str, str]:
        """What makes two types equal; with the version, so that no user's disk cache outlives the code it contains."""
        return self.name, self.version

    @property
    def row(self) -> ElementType:
        """The row of the element type."""
        return element_type(self.name)

    def cast_python_value(self, value: Any) -> Any:
        """``value`` as a scalar of the dtype."""
        return self.row.dtype.type(value)

    def unify(self, typingctx: Any, other: Any) -> Any:
        """The type of a variable that has both."""
        return common_type(self, other)

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:
        """Every number may be stored in an array of this type."""
        return Conversion.unsafe if isinstance(other, (types.Number, types.Boolean)) else None


class LowFloat(_Low, types.Float):
    """A float type of ml_dtypes."""

    def __init__(self, name: str) -> None:
        types.Number.__init__(self, name)  # Float's own reads the width from the name
        self.bitwidth = element_type(name).bits  # type: ignore[misc]
        self.version = __version__

    def can_convert_to(self, typingctx: Any, other: Any) -> Any:
        """Which conversions Numba may put in by itself, e.g. to float32 for ``math.sqrt``."""
        if other == types.float32:
            return Conversion.promote
        if other == types.float64 or isinstance(other, types.Complex):
            return Conversion.safe
        return Conversion.unsafe if isinstance(other, (types.Number, types.Boolean)) else None


class LowInteger(_Low, types.Integer):
    """An integer type of ml_dtypes."""

    def __init__(self, name: str) -> None:
        row = element_type(name)
        types.Integer.__init__(self, name, bitwidth=row.bits, signed=row.kind == "signed")
        self.version = __version__

    def can_convert_to(self, typingctx: Any, other: Any) -> Any:
        """Which conversions Numba may put in by itself."""
        if other == types.int64:
            return Conversion.promote
        if isinstance(other, (LowFloat, LowInteger)):
            return Conversion.unsafe
        if isinstance(other, types.Number):
            return Conversion.safe
        return Conversion.unsafe if isinstance(other, types.Boolean) else None


LOW = (LowFloat, LowInteger)
NUMBA_TYPES = {row.dtype: (LowFloat if row.kind == "float" else LowInteger)(row.dtype.name) for row in ROWS}


def common_type(first: Any, second: Any) -> Any:
    """The type of an operation on both: NumPy's, else the one that float32 (or int32) has with a NumPy type, else None.

    An integer literal takes the other operand's type, if that can hold it.
    """
    for one, other in ((first, second), (second, first)):
        literal = isinstance(one, types.IntegerLiteral) and isinstance(other, LOW)
        if literal and (isinstance(other, LowFloat) or other.minval <= one.literal_value <= other.maxval):
            return other
    first, second = unliteral(first), unliteral(second)
    if first == second or not all(isinstance(one, (types.Number, types.Boolean)) for one in (first, second)):
        return first if first == second else None
    try:
        dtypes = [numpy_support.as_dtype(one) for one in (first, second)]
        return numpy_support.from_dtype(np.promote_types(*dtypes))
    except TypeError:
        if isinstance(first, LOW) and isinstance(second, LOW):
            return None
    except NumbaNotImplementedError:
        return None
    low, other = (first, second) if isinstance(first, LOW) else (second, first)
    return numpy_support.from_dtype(np.promote_types(np.float32 if isinstance(low, LowFloat) else np.int32, numpy_support.as_dtype(other)))


class _Model(models.PrimitiveModel):  # type: ignore[misc]
    """The code, in one or two bytes; in registers its unused high bits are zero."""

    def __init__(self, manager: Any, kind: Any) -> None:
        self._row = kind.row
        super().__init__(manager, kind, conversion.storage(kind.row))

    def from_data(self, builder: Any, value: Any) -> Any:
        return conversion.mask_code(builder, self._row, value)


class _LowArrayMeta(type(types.Array)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, types.Array) and isinstance(instance.dtype, LOW)


class LowArray(types.Array, metaclass=_LowArrayMeta):
    """Never made: stands for array types of any layout with elements of ours where Numba looks for implementations."""


# Scalars from and to Python


def _scalar_from_code(row: ElementType, code: int) -> Any:
    return np.array(code, f"u{row.dtype.itemsize}").view(row.dtype)[()]


def _code_from_scalar(row: ElementType, value: Any) -> int:
    code = int(np.asarray(value, row.dtype).view(f"u{row.dtype.itemsize}"))
    return code & (1 << row.bits) - 1 if row.packed else code


def _call(api: Any, function: Callable[[ElementType, Any], Any], row: ElementType, argument: Any) -> Any:
    callee = api.unserialize(api.serialize_object(functools.partial(function, row)))
    result = api.call_function_objargs(callee, (argument,))
    api.decref(callee)
    return result


def _box(kind: Any, value: Any, context: Any) -> Any:
    code = context.pyapi.long_from_ulonglong(context.builder.zext(value, conversion.INT64))
    result = _call(context.pyapi, _scalar_from_code, kind.row, code)
    context.pyapi.decref(code)
    return result


def _unbox(kind: Any, value: Any, context: Any) -> Any:
    builder, api = context.builder, context.pyapi
    code = _call(api, _code_from_scalar, kind.row, value)
    slot = cgutils.alloca_once_value(builder, ir.Constant(conversion.storage(kind.row), 0))
    with builder.if_then(cgutils.is_not_null(builder, code), likely=True):
        builder.store(builder.trunc(api.long_as_ulonglong(code), conversion.storage(kind.row)), slot)
        api.decref(code)
    return NativeValue(builder.load(slot), is_error=api.c_api_error())


def _constant(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return ir.Constant(conversion.storage(kind.row), _code_from_scalar(kind.row, value))


def _constant_array(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    try:
        return context.make_constant_array(builder, kind, array)
    except ValueError:  # copied into the code through the buffer protocol, which these dtypes do not have
        return context.make_constant_array(builder, kind, array.view(f"u{array.itemsize}"))


# Conversions


def to_compute_type(builder: Any, kind: Any, code: Any) -> Any:
    """The float32 or int32 value of a code."""
    decode = conversion.decode_float if isinstance(kind, LowFloat) else conversion.decode_integer
    return decode(builder, kind.row, code)


def _compute_type(kind: Any) -> Any:
    return types.float32 if isinstance(kind, LowFloat) else types.int32


def _cast_from(context: Any, builder: Any, source: Any, target: Any, code: Any) -> Any:
    return context.cast(builder, to_compute_type(builder, source, code), _compute_type(source), target)


def _cast_to(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    source = unliteral(source)
    if isinstance(source, types.Float):
        if isinstance(target, LowFloat):
            return conversion.encode_float(builder, target.row, value)
        return conversion.encode_integer(builder, target.row, conversion.integer_from_float(builder, value))
    if isinstance(target, LowInteger):
        return conversion.encode_integer(builder, target.row, value)
    return conversion.encode_float(builder, target.row, conversion.float_from_integer(builder, value, source.signed))


def _cast_literal(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    constant = context.get_constant_generic(builder, source.literal_type, source.literal_value)
    return context.cast(builder, constant, source.literal_type, target)


def _cast_between(context: Any, builder: Any, source: Any, target: Any, code: Any) -> Any:
    if source == target:
        return code
    return _cast_to(context, builder, _compute_type(source), target, to_compute_type(builder, source, code))


def _truth(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    (kind,) = signature.args
    value = to_compute_type(builder, kind, arguments[0])
    if isinstance(kind, LowFloat):
        return builder.fcmp_unordered("!=", value, value.type(0.0))
    return builder.icmp_unsigned("!=", value, value.type(0))


def _register_typeof() -> None:
    for dtype, kind in NUMBA_TYPES.items():
        typeof_impl.register(dtype.type, lambda value, context, kind=kind: kind)
    general = typeof_impl.dispatch(np.ndarray)
    known: dict[tuple[Any, int, int], Any] = {}

    def typeof_array(array: Any, context: Any) -> Any:
        """Numba knows its own dtypes without this; for others it asks here at each call."""
        dtype = array.dtype
        if dtype not in NUMBA_TYPES or type(array) is not np.ndarray:
            return general(array, context)
        key = dtype, array.ndim, array.flags.num
        if key not in known:
            known[key] = general(array, context)
        return known[key]

    typeof_impl.register(np.ndarray, typeof_array)


def register() -> None:
    """Tell Numba of the types."""
    dtypes: Any = numpy_support.FROM_DTYPE
    dtypes.update(NUMBA_TYPES)
    for kind in LOW:
        register_model(kind)(_Model)
        box(kind)(_box)
        unbox(kind)(_unbox)
        lower_constant(kind)(_constant)
        lower_builtin(bool, kind)(_truth)
        for number in (types.Integer, types.Float, types.Complex):
            lower_cast(kind, number)(_cast_from)
        for number in (types.Integer, types.Float):
            lower_cast(number, kind)(_cast_to)
        for literal in (types.IntegerLiteral, types.BooleanLiteral):
            lower_cast(literal, kind)(_cast_literal)
        for other in LOW:
            lower_cast(kind, other)(_cast_between)
    lower_constant(LowArray)(_constant_array)
    _register_typeof()
