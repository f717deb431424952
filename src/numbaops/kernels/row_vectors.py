"""Vectors for runs of elements, emitted by hand: what is made of a run, and normalized runs; see :mod:`.rows`."""

from __future__ import annotations

import math
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

AVAILABLE = not numba.config.DISABLE_JIT
"""Whether there are vectors; without the JIT, these kernels do not run."""

WIDTH = 64
"""Sums of a run that are in the making at once: four vectors of the largest kind."""

IDENTITIES = {"sum": 0.0, "square": 0.0, "absolute": 0.0, "product": 1.0, "max": -math.inf, "min": math.inf}
"""What can be made of elements, and what it is of none."""

_SHORT = 16
"""Lanes of the vectors for what is left."""

_FLOAT, _DOUBLE, _INT, _INDEX = ir.FloatType(), ir.DoubleType(), ir.IntType(64), ir.IntType(32)


def _lanes(builder: Any, first: Any, second: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(_INDEX, len(lanes)), lanes))


def _at(builder: Any, data: Any, index: Any, lanes: int) -> Any:
    place = builder.gep(data, [index])
    return place if lanes == 1 else builder.bitcast(place, ir.VectorType(_FLOAT, lanes).as_pointer())


def _kind(element: Any, lanes: int) -> Any:
    return element if lanes == 1 else ir.VectorType(element, lanes)


def _splat(builder: Any, number: Any, lanes: int) -> Any:
    if lanes == 1:
        return number
    nothing = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    return _lanes(builder, builder.insert_element(nothing, number, _INDEX(0)), nothing, [0] * lanes)


def _constant(element: Any, number: float, lanes: int) -> Any:
    return ir.Constant(element, number) if lanes == 1 else ir.Constant(ir.VectorType(element, lanes), [number] * lanes)


def _data(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _combine(builder: Any, operation: str, total: Any, value: Any) -> Any:
    if operation == "product":
        return builder.fmul(total, value)
    if operation not in ("max", "min"):
        return builder.fadd(total, value)
    beyond = builder.fcmp_ordered(">" if operation == "max" else "<", value, total)
    best = builder.select(beyond, value, total)  # one instruction of x86, which loses NaN
    return builder.select(builder.fcmp_unordered("uno", value, total), builder.fadd(value, total), best)


def _runs(builder: Any, count: Any, width: int) -> list[tuple[int, Any, Any]]:
    """How to go over ``count`` elements: lanes, where vectors of so many begin, and how many of these there are."""
    found, done = [], _INT(0)
    for lanes in (width, _SHORT, 1):
        number = builder.sdiv(builder.sub(count, done), _INT(lanes))
        found.append((lanes, done, number))
        done = builder.add(done, builder.mul(number, _INT(lanes)))
    return found


def make_fold(operation: str) -> Any:
    """The code that makes one number of a run."""
    element = _DOUBLE if operation == "product" else _FLOAT
    width = WIDTH // 2 if operation == "product" else WIDTH

    @intrinsic  # type: ignore[untyped-decorator]
    def fold(typing_context: Any, x: Any, at: Any, count: Any, centre: Any) -> Any:
        """Of ``count`` elements of ``x``, or the squares of what they are away from the ``centre``."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array, start, number, middle = arguments
            data = _data(context, builder, x, array, start)

            def term(index: Any, lanes: int) -> Any:
                value = builder.load(_at(builder, data, index, lanes), align=4)
                if operation == "square":
                    value = builder.fsub(value, _splat(builder, middle, lanes))
                    return builder.fmul(value, value)
                if operation == "absolute":
                    name = f"llvm.fabs.v{lanes}f32" if lanes > 1 else "llvm.fabs.f32"
                    kind = ir.FunctionType(value.type, [value.type])
                    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [value])
                return builder.fpext(value, _kind(_DOUBLE, lanes)) if operation == "product" else value

            total = _constant(element, IDENTITIES[operation], width)
            for lanes, first, vectors in _runs(builder, number, width):
                size = width if lanes == width else total.type.count
                while size > lanes:  # one half with the other
                    size //= 2
                    low, high = (_lanes(builder, total, total, list(range(begin, begin + size))) for begin in (0, size))
                    total = _combine(builder, operation, low, high)
                if lanes == 1:
                    total = builder.extract_element(total, _INDEX(0))
                memory = cgutils.alloca_once_value(builder, total)
                with cgutils.for_range(builder, vectors) as loop:
                    index = builder.add(first, builder.mul(loop.index, _INT(lanes)))
                    builder.store(_combine(builder, operation, builder.load(memory), term(index, lanes)), memory)
                total = builder.load(memory)
            return total if element is _DOUBLE else builder.fpext(total, _DOUBLE)

        return types.float64(x, types.intp, types.intp, types.float32), generate

    return fold


def _make_write(spread: bool) -> Any:
    """The code that writes a normalized run.

    Args:
        spread: whether there is one factor and summand for all elements.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def write(
        typing_context: Any, x: Any, at: Any, out: Any, to: Any, count: Any, mean: Any, inverse: Any, scale: Any, shift: Any, place: Any
    ) -> Any:
        """``((x - mean) * inverse) * scale + shift`` of ``count`` elements; ``out`` may be ``x``."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given, start, result, target, number, middle, factor, scales, shifts, begin = arguments
            source, out_data = _data(context, builder, x, given, start), _data(context, builder, out, result, target)
            parameters = [_data(context, builder, kind, each, begin) for kind, each in ((scale, scales), (shift, shifts))]
            same = [builder.load(each) for each in parameters] if spread else []
            for lanes, first, vectors in _runs(builder, number, WIDTH):
                with cgutils.for_range(builder, vectors) as loop:
                    index = builder.add(first, builder.mul(loop.index, _INT(lanes)))
                    value = builder.load(_at(builder, source, index, lanes), align=4)
                    value = builder.fsub(value, _splat(builder, middle, lanes))
                    value = builder.fmul(value, _splat(builder, factor, lanes))
                    if spread:
                        by, more = (_splat(builder, each, lanes) for each in same)
                    else:
                        by, more = (builder.load(_at(builder, each, index, lanes), align=4) for each in parameters)
                    value = builder.fadd(builder.fmul(value, by), more)
                    builder.store(value, _at(builder, out_data, index, lanes), align=4)
            return context.get_dummy_value()

        number = types.float32
        kinds = (x, types.intp, out, types.intp, types.intp, number, number, scale, shift, types.intp)
        return types.void(*kinds), generate

    return write


write_with_one, write_with_each = _make_write(True), _make_write(False)
