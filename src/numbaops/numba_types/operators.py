"""Operators and built-in functions on scalars of the types, and a plain error for what there is only for NumPy's types."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.core.errors import TypingError
from numba.core.types.misc import VarArg
from numba.core.typing import npydecl
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, overload, register_model

from numbaops.numba_types.model import LOW, LowArray, LowFloat, common_type

_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod)
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_IN_PLACE = {getattr(operator, f"i{function.__name__}"): function for function in _ARITHMETIC}
_BINARY = (*_ARITHMETIC, operator.pow, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
_OPERATORS = (
    *(*_BINARY, *_COMPARISONS, operator.neg, operator.pos, operator.invert),
    *(getattr(operator, f"i{function.__name__.rstrip('_')}") for function in _BINARY),
)


def _is_number(kind: Any) -> bool:
    return isinstance(kind, (types.Number, types.Boolean))


def _concerned(*kinds: Any) -> bool:
    """Whether all are numbers and one of them is of ours."""
    return all(map(_is_number, kinds)) and any(isinstance(kind, LOW) for kind in kinds)


def _computes_in(kind: Any) -> Any:
    if isinstance(kind, LOW):
        return types.float32 if isinstance(kind, LowFloat) else types.int32
    return kind


@intrinsic  # type: ignore[untyped-decorator]
def _divide(context: Any, left: Any, right: Any) -> Any:
    """Division by IEEE 754, as in ml_dtypes; Numba's own raises ZeroDivisionError."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(*arguments)

    return types.float32(types.float32, types.float32), generate


def _make_arithmetic(function: Callable[[Any, Any], Any], compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def typed(left: Any, right: Any) -> Any:
        if not _concerned(left, right):
            return None
        result = common_type(left, right)
        if result is None:
            return None
        if compute is operator.truediv and isinstance(result, LowFloat):
            inside, calculate = types.float32, _divide
        else:
            inside, calculate = _computes_in(result), compute
        if compute is operator.truediv and isinstance(result, types.Integer):
            return lambda left, right: calculate(inside(left), inside(right))  # floats, as from all of Numba's integers
        return lambda left, right: result(calculate(inside(result(left)), inside(result(right))))

    return typed


def _make_comparison(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def typed(left: Any, right: Any) -> Any:
        if not _concerned(left, right):
            return None
        result = common_type(left, right)
        inside = types.float32 if result is None else _computes_in(result)  # exact for two of ours
        return lambda left, right: compare(inside(left), inside(right))

    return typed


def _make_extreme(compare: Callable[[Any, Any], Any], builtin: Callable[..., Any]) -> Callable[..., Any]:
    def typed(*values: Any) -> Any:
        if len(values) < 2 or not _concerned(*values):
            return None
        if len(values) > 2:
            return lambda *values: builtin(builtin(values[0], values[1]), *values[2:])
        result = common_type(*values)
        if result is None:
            return None

        def extreme(*values: Any) -> Any:
            left, right = result(values[0]), result(values[1])
            return right if compare(right, left) else left

        return extreme

    return typed


def _make_unary(compute: Callable[[Any], Any]) -> Callable[..., Any]:
    def typed(value: Any) -> Any:
        if not isinstance(value, LOW):
            return None
        result, inside = value, _computes_in(value)
        return lambda value: result(compute(inside(value)))

    return typed


def _make_conversion(target: Any) -> Callable[..., Any]:
    def typed(value: Any) -> Any:
        return (lambda value: target(value)) if isinstance(value, LOW) else None

    return typed


# Everything else: without the following, NumPy's rules ask for a dtype by our type's letter and die of a TypeError.


class _Nothing(types.Opaque):
    """The type of a result that there is not; no array, lest Numba rewrite the expression before it asks for code."""


def _refuse(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    operation = signature.return_type.name
    raise TypingError(
        f"there is {operation}; loop over elements, and convert those to float32 where a function or a common type is missing"
    )


def _make_refusal(function: Any) -> Any:
    class Refusal(AbstractTemplate):  # type: ignore[misc]
        """Types the call, so that no other template is tried, and refuses when code is made for it."""

        key = function
        metadata = {"target": "cpu"}  # noqa: RUF012

        def generic(self, arguments: Any, keywords: Any) -> Any:
            if keywords or not any(isinstance(kind, (*LOW, LowArray)) for kind in arguments):
                return None
            return signature(_Nothing(f"no {function.__name__} of ({', '.join(map(str, arguments))})"), *arguments)

        def get_impl_key(self, signature: Any) -> Any:
            return _refuse

    return Refusal


def register() -> None:
    """Tell Numba of the operators."""
    for function in _ARITHMETIC:
        overload(function, target="cpu", strict=False, prefer_literal=True)(_make_arithmetic(function, function))
    for function, compute in _IN_PLACE.items():
        overload(function, target="cpu", strict=False, prefer_literal=True)(_make_arithmetic(function, compute))
    for function in _COMPARISONS:
        overload(function, target="cpu", strict=False, prefer_literal=True)(_make_comparison(function))
    unaries: tuple[Any, ...] = (operator.neg, operator.pos, abs)
    for unary in unaries:
        overload(unary, target="cpu", strict=False)(_make_unary(unary))
    extremes: tuple[Any, ...] = ((min, operator.lt), (max, operator.gt))
    for extreme, compare in extremes:
        overload(extreme, target="cpu", strict=False)(_make_extreme(compare, extreme))
    conversions: tuple[Any, ...] = ((float, types.float64), (int, types.int64))
    for builtin, target in conversions:
        overload(builtin, target="cpu", strict=False)(_make_conversion(target))
    register_model(_Nothing)(models.OpaqueModel)
    lower_builtin(_refuse, VarArg(types.Any))(_refuse)
    for function in {*_OPERATORS, min, max, *npydecl.supported_ufuncs}:
        infer_global(function, types.Function(_make_refusal(function)))
