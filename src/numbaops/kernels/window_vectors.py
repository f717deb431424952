"""Vectors for windows, emitted by hand: strips of rows, runs, and rows of places; see :mod:`.windows`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.types.containers import UniTuple
from numba.extending import intrinsic

from numbaops.kernels.window_geometry import identity, lanes_of

Kernel = Callable[..., None]
Emit = Callable[[Any, Any, Any], Any]

_INT32 = ir.IntType(32)


def _emit_sum(builder: Any, total: Any, value: Any) -> Any:
    return builder.fadd(total, value)


def _emit_larger_float(builder: Any, best: Any, value: Any) -> Any:
    larger = builder.select(builder.fcmp_ordered(">", value, best), value, best)  # one instruction of x86, which loses NaN
    return builder.select(builder.fcmp_unordered("uno", value, best), builder.fadd(value, best), larger)


def _emit_larger_signed(builder: Any, best: Any, value: Any) -> Any:
    return builder.select(builder.icmp_signed(">", value, best), value, best)


def _emit_larger_unsigned(builder: Any, best: Any, value: Any) -> Any:
    return builder.select(builder.icmp_unsigned(">", value, best), value, best)


def _emitter(operation: str, dtype: str) -> Emit:
    """Emits ``combine(so_far, value)`` of vectors or scalars; the first of equal elements stays, and NaN wins."""
    if operation == "sum":
        return _emit_sum
    return {"f": _emit_larger_float, "i": _emit_larger_signed, "u": _emit_larger_unsigned}[np.dtype(dtype).kind]


def _shuffle(builder: Any, first: Any, second: Any, lanes: Any) -> Any:
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(_INT32, len(lanes)), [_INT32(lane) for lane in lanes]))


class _Vectors:
    """Loads and stores of vectors of unaligned elements."""

    def __init__(self, builder: Any, word: Any, lanes: int, align: int) -> None:
        self.builder = builder
        self.type = ir.VectorType(word, lanes)
        self.align = align

    def pointer(self, data: Any, index: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(data, [index]), self.type.as_pointer())

    def load(self, data: Any, index: Any) -> Any:
        return self.builder.load(self.pointer(data, index), align=self.align)

    def store(self, vector: Any, data: Any, index: Any) -> None:
        self.builder.store(vector, self.pointer(data, index), align=self.align)


def _emit_switch(builder: Any, name: str, values: list[Any], step: Any, exact: Any, define: Callable[[Any, int], None]) -> None:
    """Calls one of three functions, for a step of 1, a step of 2, and any; each is there once, however often it is called."""
    step = builder.select(cgutils.is_true(builder, exact), exact.type(0), step)
    end, others = builder.append_basic_block(), builder.append_basic_block()
    switch = builder.switch(step, others)
    for known in (1, 2, 0):
        block = builder.append_basic_block() if known else others
        if known:
            switch.add_case(step.type(known), block)
        builder.position_at_end(block)
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        function = cgutils.get_or_insert_function(builder.module, kind, f"{name}_{known}")
        if function.is_declaration:
            function.linkage = "internal"
            function.attributes.add("noinline")
            define(function, known)
        builder.call(function, values)
        builder.branch(end)
    builder.position_at_end(end)


def _emit_chain(builder: Any, cell: Callable[[Any], Any], combine: Emit, first: Any, cells: Any, apart: Any, known: int) -> Any:
    """All ``cells`` from ``first`` on combined; their number may be ``known``, and is not 0."""
    total = cell(first)
    for number in range(1, known):
        total = combine(builder, total, cell(builder.add(first, builder.mul(apart, apart.type(number)))))
    if not known:
        memory = cgutils.alloca_once_value(builder, total)
        with cgutils.for_range(builder, cells, start=cells.type(1)) as loop:
            place = builder.add(first, builder.mul(apart, loop.index))
            builder.store(combine(builder, builder.load(memory), cell(place)), memory)
        total = builder.load(memory)
    return total


def _define_strip(function: Any, step: int, operation: str, dtype: str, divides: bool) -> None:
    """The body of a strip of whole vectors for a ``step`` of 1 or 2; of single elements and any step for 0."""
    lanes = lanes_of(dtype) if step else 1
    combine = _emitter(operation, dtype)
    builder = ir.IRBuilder(function.append_basic_block())
    out, x, widths, heights, size, to, out_pitch, at, x_pitch, rows, count, any_step, cells, apart, number = function.args
    memory = _Vectors(builder, out.type.pointee, lanes, np.dtype(dtype).itemsize)
    width = to.type(lanes)
    vectors = builder.udiv(builder.add(count, to.type(lanes - 1)), width)
    next_height = cgutils.alloca_once_value(builder, number)

    def cell(index: Any) -> Any:
        vector = memory.load(x, index)
        if step < 2:
            return vector
        return _shuffle(builder, vector, memory.load(x, builder.add(index, width)), range(0, 2 * lanes, 2))

    def height() -> Any:
        now = builder.load(next_height)
        after = builder.add(now, to.type(1))
        builder.store(builder.select(builder.icmp_signed("<", after, size), after, to.type(0)), next_height)
        scalar = builder.load(builder.gep(heights, [now]))
        vector = builder.insert_element(ir.Constant(memory.type, ir.Undefined), scalar, _INT32(0))
        return _shuffle(builder, vector, vector, [0] * lanes)

    def divided(total: Any, column: Any, divisor: Any) -> Any:
        total = builder.fadd(total, ir.Constant(memory.type, [0.0] * lanes))  # a sum that begins with zero is never -0.0
        return builder.fdiv(total, builder.fmul(memory.load(widths, column), divisor))

    def all_rows(known: int) -> None:
        with cgutils.for_range(builder, rows) as row:
            divisor = height() if divides else None
            target = builder.add(to, builder.mul(row.index, out_pitch))
            source = builder.add(at, builder.mul(row.index, x_pitch))
            with cgutils.for_range(builder, vectors) as vector:
                column = builder.mul(vector.index, width)
                first = builder.add(source, builder.mul(column, to.type(step) if step else any_step))
                total = _emit_chain(builder, cell, combine, first, cells, apart, known)
                memory.store(divided(total, column, divisor) if divides else total, out, builder.add(target, column))

    for known in (3, 2) if step else ():
        with builder.if_then(builder.icmp_signed("==", cells, to.type(known))):
            all_rows(known)
            builder.ret_void()
    all_rows(0)
    builder.ret_void()


def make_vector_strip(operation: str, dtype: str, divides: bool) -> Any:
    """What ``_make_plain_strip`` makes, as instructions."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [context.make_array(kind)(context, builder, array) for kind, array in zip(signature.args[:4], arguments[:4], strict=True)]
        *numbers, exact = cgutils.unpack_tuple(builder, arguments[4], 11)
        values = [*(array.data for array in arrays), arrays[3].nitems, *numbers]
        name = f"numbaops_strip_{operation}_{dtype}_{divides}"
        define = functools.partial(_define_strip, operation=operation, dtype=dtype, divides=divides)
        _emit_switch(builder, name, values, numbers[6], exact, define)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def strip(typing_context: Any, out: Any, x: Any, widths: Any, heights: Any, numbers: Any) -> Any:
        return types.void(out, x, widths, heights, UniTuple(types.int64, 11)), generate

    return strip


def make_vector_run(operation: str, dtype: str) -> Any:
    """What ``_make_plain_run`` makes, as instructions: four vectors at a time, then two, one, and single elements."""
    lanes = lanes_of(dtype)
    combine = _emitter(operation, dtype)
    neutral = identity(operation, dtype).item()

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, first, count = arguments
        data = context.make_array(signature.args[0])(context, builder, array).data
        word, align = data.type.pointee, np.dtype(dtype).itemsize
        size = 4 * lanes
        total = cgutils.alloca_once_value(builder, ir.Constant(ir.VectorType(word, size), [neutral] * size))
        whole = builder.sdiv(count, first.type(size))
        with cgutils.for_range(builder, whole) as loop:
            place = builder.add(first, builder.mul(loop.index, first.type(size)))
            builder.store(combine(builder, builder.load(total), _Vectors(builder, word, size, align).load(data, place)), total)
        done = cgutils.alloca_once_value(builder, builder.mul(whole, first.type(size)))
        vector = builder.load(total)
        while size > 1:
            size //= 2
            vector = combine(builder, *(_shuffle(builder, vector, vector, range(start, start + size)) for start in (0, size)))
            if size >= lanes:
                total = cgutils.alloca_once_value(builder, vector)
                with builder.if_then(builder.icmp_signed(">=", builder.sub(count, builder.load(done)), first.type(size))):
                    more = _Vectors(builder, word, size, align).load(data, builder.add(first, builder.load(done)))
                    builder.store(combine(builder, vector, more), total)
                    builder.store(builder.add(builder.load(done), first.type(size)), done)
                vector = builder.load(total)
        rest = cgutils.alloca_once_value(builder, ir.Constant(word, neutral))
        with cgutils.for_range(builder, count, start=builder.load(done)) as loop:
            value = builder.load(builder.gep(data, [builder.add(first, loop.index)]))
            builder.store(combine(builder, builder.load(rest), value), rest)
        return combine(builder, builder.extract_element(vector, _INT32(0)), builder.load(rest))

    @intrinsic  # type: ignore[untyped-decorator]
    def run(typing_context: Any, x: Any, first: Any, count: Any) -> Any:
        return x.dtype(x, types.int64, types.int64), generate

    return run


def _define_place_row(function: Any, step: int, dtype: str) -> None:
    """The body of a row of places of whole vectors for a ``step`` of 1 or 2; of single elements and any step for 0."""
    lanes, kind = lanes_of(dtype) if step else 1, np.dtype(dtype).kind
    builder = ir.IRBuilder(function.append_basic_block())
    x, out, places, met = function.args[:4]
    to, windows, first, layers, behind, lines, below, cells, apart, any_step, image, counted, deep, down, along = function.args[4:]
    memory = _Vectors(builder, x.type.pointee, lanes, np.dtype(dtype).itemsize)
    far = _Vectors(builder, to.type, lanes, to.type.width // 8)
    narrow = ir.VectorType(_INT32, lanes)

    def spread(scalar: Any) -> Any:
        scalar = builder.trunc(scalar, _INT32) if scalar.type != _INT32 else scalar
        vector = builder.insert_element(ir.Constant(narrow, ir.Undefined), scalar, _INT32(0))
        return _shuffle(builder, vector, vector, [0] * lanes)

    def larger(value: Any, best: Any) -> Any:
        if kind == "f":
            return builder.and_(builder.fcmp_unordered(">", value, best), builder.fcmp_ordered("ord", best, best))
        return (builder.icmp_signed if kind == "i" else builder.icmp_unsigned)(">", value, best)

    def load(index: Any) -> Any:
        vector = memory.load(x, index)
        if step < 2:
            return vector
        return _shuffle(builder, vector, memory.load(x, builder.add(index, to.type(lanes))), range(0, 2 * lanes, 2))

    steps = to.type(step) if step else any_step
    ahead = builder.mul(spread(builder.mul(steps, along)), ir.Constant(narrow, list(range(lanes))))
    best = cgutils.alloca_once(builder, memory.type)
    found = cgutils.alloca_once(builder, narrow)

    def one_cell(column: Any, cell: Any, line_first: Any, line_counted: Any) -> None:
        window = builder.add(spread(column), ir.Constant(narrow, list(range(lanes))))
        bounds = [spread(builder.load(builder.gep(met, [builder.add(cell, offset)]))) for offset in (to.type(0), cells)]
        inside = builder.and_(builder.icmp_signed(">=", window, bounds[0]), builder.icmp_signed("<", window, bounds[1]))
        at = builder.add(builder.mul(column, steps), builder.mul(cell, apart))

        def keep() -> None:
            value, old, old_place = load(builder.add(line_first, at)), builder.load(best), builder.load(found)
            unknown = builder.icmp_signed("<", old_place, ir.Constant(narrow, [0] * lanes))
            wins = builder.and_(inside, builder.or_(larger(value, old), unknown))
            place = builder.add(spread(builder.add(line_counted, builder.mul(at, along))), ahead)
            builder.store(builder.select(wins, value, old), best)
            builder.store(builder.select(wins, place, old_place), found)

        if step:
            keep()
        else:
            with builder.if_then(builder.extract_element(inside, _INT32(0))):
                keep()

    neutral = identity("max", dtype).item()
    vectors = builder.udiv(builder.add(windows, to.type(lanes - 1)), to.type(lanes))
    with cgutils.for_range(builder, vectors) as vector:
        column = builder.mul(vector.index, to.type(lanes))
        builder.store(ir.Constant(memory.type, [neutral] * lanes), best)
        builder.store(ir.Constant(narrow, [-1] * lanes), found)
        with cgutils.for_range(builder, layers) as layer, cgutils.for_range(builder, lines) as line:
            line_first = builder.add(builder.add(first, builder.mul(layer.index, behind)), builder.mul(line.index, below))
            line_counted = builder.add(builder.add(counted, builder.mul(layer.index, deep)), builder.mul(line.index, down))
            with cgutils.for_range(builder, cells) as cell:
                one_cell(column, cell.index, line_first, line_counted)
        place = builder.load(found)
        wide = builder.sext(place, far.type)
        vector_image = builder.insert_element(ir.Constant(far.type, ir.Undefined), image, _INT32(0))
        moved = builder.add(wide, _shuffle(builder, vector_image, vector_image, [0] * lanes))
        known = builder.icmp_signed(">=", place, ir.Constant(narrow, [0] * lanes))
        target = builder.add(to, column)
        memory.store(builder.load(best), out, target)
        far.store(builder.select(known, moved, wide), places, target)
    builder.ret_void()


def make_vector_place_row(dtype: str) -> Any:
    """What ``_make_plain_place_row`` makes, as instructions."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, array).data for kind, array in zip(signature.args[:4], arguments[:4], strict=True)
        ]
        *numbers, exact = cgutils.unpack_tuple(builder, arguments[4], 16)
        define = functools.partial(_define_place_row, dtype=dtype)
        _emit_switch(builder, f"numbaops_place_{dtype}", [*arrays, *numbers], numbers[9], exact, define)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def place_row(typing_context: Any, x: Any, out: Any, places: Any, met: Any, numbers: Any) -> Any:
        return types.void(x, out, places, met, UniTuple(types.int64, 16)), generate

    return place_row


# The same as loops
