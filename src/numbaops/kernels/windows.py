"""Kernels over windows that slide along up to three axes: their largest elements, sums or means, and where the largest ones are.

A window is combined along the depth and then along the lines, both from contiguous vectors, into a row that has the identity on either
side; and then along that row. So no window needs a test for the border. Rows go in blocks that stay in the L1 cache, for a load from
what was stored just before waits for the store. Vectors reach beyond the end of a row, into what the next row overwrites. All that is
emitted by hand: LLVM makes of loops a test for overlaps in each row, and its rest, which is most of a short row, it does element by
element; that took three to four times as long, and as long to compile. What depends on the geometry alone is in a :class:`Layout`,
made in Python, for the same reason.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.types.containers import UniTuple
from numba.extending import intrinsic

from numbaops.runtime.jit import kernel

Kernel = Callable[..., None]
Emit = Callable[[Any, Any, Any], Any]

LINE = 64
"""Bytes of a vector, and of a cache line."""

BLOCK = 1 << 14
"""Bytes of rows that wait to be combined along themselves."""

RUN = 1024
"""Elements that are added up before their sum is added to the others', with compensation."""

COMPILED = not numba.config.DISABLE_JIT
"""Whether kernels are machine code."""

VECTORS = COMPILED and not numba.config.BOUNDSCHECK
"""Whether there are vectors; otherwise plain loops do the same, in Python or with bounds checks."""

_INT32 = ir.IntType(32)


def lanes_of(dtype: str) -> int:
    """Elements of a vector."""
    return LINE // np.dtype(dtype).itemsize


def identity(operation: str, dtype: str) -> Any:
    """What changes nothing: zero for ``"sum"``, the lowest value for ``"max"``."""
    kind = np.dtype(dtype)
    if operation == "sum":
        return kind.type(0)
    return kind.type(-math.inf) if kind.kind == "f" else kind.type(np.iinfo(kind).min)


# Where windows lie


@dataclass(frozen=True, slots=True)
class Extent:
    """Windows along one axis: cell ``k`` of window ``o`` lies at ``o * stride + k * dilation - begin``, which may be outside."""

    size: int
    count: int
    cells: int
    stride: int
    dilation: int
    begin: int

    def reached(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """For each window the place of the first of its cells that lies on an element, and how many do."""
        starts = np.arange(self.count, dtype=np.int64) * self.stride - self.begin
        outside = np.maximum(0, -(starts // self.dilation))
        last = np.minimum(self.cells, (self.size - 1 - starts) // self.dilation + 1)
        return starts + outside * self.dilation, np.maximum(0, last - outside)

    def met(self) -> npt.NDArray[Any]:
        """For each cell the windows, from one to before another, where it lies on an element; int64 [2, cells]."""
        starts = np.arange(self.cells, dtype=np.int64) * self.dilation - self.begin
        first = np.maximum(0, -(starts // self.stride))
        return np.stack((first, np.maximum(first, np.minimum(self.count, (self.size - 1 - starts) // self.stride + 1))))


FIRST, LAYERS, LINES, ALIKE, PLACE = range(5)
"""Rows of a layout's table."""


class Layout(NamedTuple):
    """What a kernel has to know of a geometry.

    Attributes:
        table: int64 [5, rows of windows in an image]: the first element that a window meets in its first column, how many layers and
            lines it meets, how many rows from this one on meet as many at the next places, and what the first element's place counts.
        met: int64 [2, cells along a row]: the windows for which each cell lies on an element.
        numbers: the others.
        windows: how many there are in a row.
        scratch: elements of the memory that a call of the kernel needs for itself.
        fold_bytes: how many bytes a core copies, from and to its caches, in the time that a row of windows takes.
        place_bytes: the same where places are looked for.
    """

    table: npt.NDArray[Any]
    met: npt.NDArray[Any]
    numbers: tuple[int, ...]
    windows: int
    scratch: int
    fold_bytes: int
    place_bytes: int


def window_layout(extents: Sequence[Extent], dtype: str, *, column_major: bool = False) -> Layout:
    """The layout of windows that have a count above zero along each axis.

    Args:
        extents: of depth, height and width.
        dtype: of the elements.
        column_major: whether places count along the first axis first.
    """
    deep, high, wide = extents
    lanes = lanes_of(dtype)
    weights = (1, deep.size, deep.size * high.size) if column_major else (high.size * wide.size, wide.size, 1)
    table = np.empty((5, deep.count, high.count), np.int64)
    (first_layer, table[LAYERS].T[:]), (first_line, table[LINES]) = deep.reached(), high.reached()
    table[FIRST] = (first_layer[:, None] * high.size + first_line) * wide.size
    table[PLACE] = first_layer[:, None] * weights[0] + first_line * weights[1]
    # How far it is to the next row that differs from the one before it.
    differs = np.flatnonzero((np.diff(table[LINES, 0]) != 0) | (np.diff(first_line) != high.stride)) + 1
    rows = np.arange(high.count)
    table[ALIKE] = np.append(differs, high.count)[np.searchsorted(differs, rows, "right")] - rows
    table[ALIKE][table[LAYERS] != 1] = 1

    beyond = (wide.cells - 1) * wide.dilation
    pads = max(0, (wide.count - 1) * wide.stride + beyond + 1 - wide.begin - wide.size)
    lead, vectors, out_vectors = (-(-number // lanes) * lanes for number in (wide.begin, wide.size, wide.count))
    pitch = max(lead + max(vectors, wide.size + pads), lead - wide.begin + out_vectors * wide.stride + beyond)
    pitch = -(-pitch // lanes) * lanes
    block = max(1, BLOCK // (pitch * np.dtype(dtype).itemsize))
    overrun = -(-(out_vectors - wide.count) // wide.count)
    tall = vectors * high.cells if deep.cells > 1 else 0
    below, behind, stride = high.dilation * wide.size, deep.dilation * high.size * wide.size, high.stride * wide.size
    image, along = deep.size * high.size * wide.size, (wide.size, wide.count, wide.stride, wide.cells, wide.dilation, wide.begin)
    places = (deep.dilation * weights[0], high.dilation * weights[1], weights[2])
    numbers = (image, *along, below, behind, stride, *places, lead, pitch, pads, block, overrun)
    loads = vectors // lanes * high.cells * deep.cells, out_vectors // lanes * wide.cells * min(wide.stride, 2)
    fold_bytes, place_bytes = LINE // 2 * (sum(loads) + 4), 3 * LINE * (loads[1] * high.cells * deep.cells + 4)
    return Layout(table.reshape(5, -1), wide.met(), numbers, wide.count, block * pitch + tall + lanes, fold_bytes, place_bytes)


# Instructions


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


def _make_vector_strip(operation: str, dtype: str, divides: bool) -> Any:
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


def _make_vector_run(operation: str, dtype: str) -> Any:
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


def _make_vector_place_row(dtype: str) -> Any:
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


def _source(dtype: str) -> str:
    """The type of an input: read-only, since constants of a model are."""
    return f"Array({dtype}, 1, 'C', True, aligned=True)"


def _make_pick(operation: str, dtype: str) -> Callable[[Any, Any], Any]:
    """``pick(so_far, value)``: the two combined; the first of equal elements stays, and NaN wins."""
    add = operation == "sum"

    @kernel(f"{dtype}({dtype}, {dtype})", key=(operation, dtype))
    def pick(best: Any, value: Any) -> Any:
        if add:
            return best + value
        return best if best >= value or best != best else value

    return pick


def _make_plain_strip(operation: str, dtype: str, divides: bool) -> Kernel:
    """Combines cells of each of some rows.

    Returns:
        ``strip(out, x, widths, heights, numbers)``, the numbers being ``to, out_pitch, at, x_pitch, rows, count, step, cells, apart,
        number, exact``. For each row ``r`` and column ``c``, ``out[to + r * out_pitch + c]`` is what ``cells`` (1 or more) elements of
        ``x`` give, from ``at + r * x_pitch + c * step`` on and ``apart``; if it ``divides``, divided by ``widths[c]`` and the
        ``heights``, from ``number`` on in a circle. Unless ``exact`` or the step is above 2, as many columns are written as make whole
        vectors, row after row, ``count`` of which are right.
    """
    lanes, zero, pick = lanes_of(dtype), np.dtype(dtype).type(0), _make_pick(operation, dtype)
    kinds = (f"void({dtype}[::1], {x}, {dtype}[::1], {dtype}[::1], UniTuple(int64, 11))" for x in (_source(dtype), f"{dtype}[::1]"))

    @kernel(*kinds, key=(operation, dtype, divides))
    def strip(out: Any, x: Any, widths: Any, heights: Any, numbers: Any) -> None:
        to, out_pitch, at, x_pitch, rows, count, step, cells, apart, number, exact = numbers
        columns = count if exact or step > 2 else -(-count // lanes) * lanes
        for row in range(rows):
            height = heights[(number + row) % heights.size]
            for column in range(columns):
                place = at + row * x_pitch + column * step
                total = x[place]
                for _ in range(1, cells):
                    place += apart
                    total = pick(total, x[place])
                if divides:
                    total = np.divide(total + zero, widths[column] * height)  # / raises where the divisor is zero
                out[to + row * out_pitch + column] = total

    return strip


def _make_plain_run(operation: str, dtype: str) -> Callable[[Any, int, int], Any]:
    """``run(x, first, count)``: that many elements combined."""
    pick, neutral = _make_pick(operation, dtype), identity(operation, dtype)

    @kernel(f"{dtype}({_source(dtype)}, int64, int64)", key=(operation, dtype))
    def run(x: Any, first: int, count: int) -> Any:
        total = neutral
        for i in range(first, first + count):
            total = pick(total, x[i])
        return total

    return run


def _make_plain_place_row(dtype: str) -> Kernel:
    """Finds the largest elements of one row of windows.

    Returns:
        ``place_row(x, out, places, met, numbers)``, the numbers being ``to, windows, first, layers, behind, lines, below, cells, apart,
        step, image, counted, deep, down, along, exact``. Window ``w`` has its first cell at ``first + w * step``, and as many cells
        ``apart`` as there are, in so many ``lines`` and ``layers``, which are ``below`` and ``behind``; of those in a line it has the
        ones that ``met`` says. The first cell of the first window counts ``counted``, the next element of the line ``along`` more, of
        the next line ``down``, of the next layer ``deep``; ``image`` is added. Unless ``exact`` or the step is above 2, what
        follows the row is overwritten as well, up to whole vectors.
    """
    neutral = identity("max", dtype)

    @kernel(f"void({_source(dtype)}, {dtype}[::1], int64[::1], int64[:, ::1], UniTuple(int64, 16))", key=(dtype,))
    def place_row(x: Any, out: Any, places: Any, met: Any, numbers: Any) -> None:
        to, windows, first, layers, behind, lines, below, cells, apart, step, image, counted, deep, down, along, _ = numbers
        for window in range(windows):
            best, found = neutral, -1
            for layer in range(layers):
                for line in range(lines):
                    for cell in range(cells):
                        if met[0, cell] <= window < met[1, cell]:
                            at = window * step + cell * apart
                            value = x[first + layer * behind + line * below + at]
                            if (not value <= best and best == best) or found < 0:  # not <=, for NaN wins
                                best, found = value, counted + layer * deep + line * down + at * along
            out[to + window] = best
            places[to + window] = image + found if found >= 0 else -1

    return place_row


_make_place_row = _make_vector_place_row if VECTORS else _make_plain_place_row
_make_strip = _make_vector_strip if VECTORS else _make_plain_strip
_make_run = _make_vector_run if VECTORS else _make_plain_run


# Kernels


_NUMBERS = "int64[:, ::1], UniTuple(int64, 18), int64, int64"


def make_fold_windows(operation: str, dtype: str) -> Kernel:
    """The windows of images of up to three axes.

    Args:
        operation: ``"max"``, where NaN wins; or ``"sum"``, of which each is divided.
        dtype: of elements and results: float32 or float64; for ``"max"`` an integer type as well.

    Returns:
        ``fold_windows(x, out, scratch, widths, heights, table, numbers, start, stop)``: ``x`` and ``out`` hold whole images, flat; the
        rows of windows from ``start`` to ``stop``, counted through all images, are computed. ``table`` and ``numbers`` are those of
        a :class:`Layout`, ``scratch`` has the size it says, anything in it. A window without elements gives the identity.
        ``widths``, a whole number of vectors at least as long as a row, and ``heights``, one for each row of an image, are
        divisors; ``"max"`` takes any arrays.
    """
    itemsize, lanes, neutral = np.dtype(dtype).itemsize, lanes_of(dtype), identity(operation, dtype)
    down = _make_strip(operation, dtype, False)
    across = _make_strip(operation, dtype, True) if operation == "sum" else down
    line = f"{dtype}[::1]"

    @kernel(f"void({_source(dtype)}, {line}, {line}, {line}, {line}, {_NUMBERS})", key=(operation, dtype))
    def fold_windows(x: Any, out: Any, scratch: Any, widths: Any, heights: Any, table: Any, numbers: Any, start: int, stop: int) -> None:
        image, width, windows, step, cells, apart, begin, below, behind, stride, _, _, _, lead, pitch, pads, block, overrun = numbers
        rows = scratch[-scratch.ctypes.data % LINE // itemsize :]  # so that stores lie within a line
        tall, wide = block * pitch, -(-width // lanes) * lanes
        for row in range(block):  # vectors write the rest, which may be more than the caches hold
            for i in range(row * pitch, row * pitch + lead):
                rows[i] = neutral
            for i in range(row * pitch + lead + width, (row + 1) * pitch):
                rows[i] = neutral
        for i in range(tall, rows.size):
            rows[i] = neutral
        for number in range(start, stop, block):
            count = min(block, stop - number)
            base, within = number // table.shape[1] * image, number % table.shape[1]
            divisor, done = within, 0
            while done < count:
                at, first = lead + done * pitch, base + table[FIRST, within]
                layers, lines, together = table[LAYERS, within], table[LINES, within], min(table[ALIKE, within], count - done)
                end = first + (layers - 1) * behind + (lines - 1) * below + wide  # of what vectors read
                if end + (together - 1) * stride > x.size:
                    together = 1
                exact = int(end > x.size)
                if layers == 0 or lines == 0:
                    together = 1
                    for column in range(width):
                        rows[at + column] = neutral
                elif layers == 1:
                    down(rows, x, rows, rows, (at, pitch, first, stride, together, width, 1, lines, below, 0, exact))
                else:
                    down(rows, x, rows, rows, (tall, wide, first, below, lines, width, 1, layers, behind, 0, exact))
                    down(rows, rows, rows, rows, (at, 0, tall, 0, 1, width, 1, lines, wide, 0, 0))
                for row in range(together):
                    for pad in range(pads):  # a vector may have written there
                        rows[at + row * pitch + width + pad] = neutral
                done += together
                within += together
                if within == table.shape[1]:
                    base, within = base + image, 0
            safe = min(count, max(0, stop - overrun - number))
            to, at = number * windows, lead - begin
            across(out, rows, widths, heights, (to, windows, at, pitch, safe, windows, step, cells, apart, divisor, 0))
            to, at, divisor = to + safe * windows, at + safe * pitch, (divisor + safe) % table.shape[1]
            across(out, rows, widths, heights, (to, windows, at, pitch, count - safe, windows, step, cells, apart, divisor, 1))

    return fold_windows


def make_reduce_runs(operation: str, dtype: str) -> Kernel:
    """One result for each run of elements.

    Args:
        operation: ``"max"``, where NaN wins; or ``"sum"``, which is divided.
        dtype: of elements and results: float32 or float64; for ``"max"`` an integer type as well.

    Returns:
        ``reduce_runs(x, out, size, divisor, start, stop)``: ``out[i]`` from ``start`` to ``stop`` is what the ``size`` (1 or more)
        elements of ``x`` from ``i * size`` on give. Sums are as exact as pairwise ones at least.
    """
    run, zero, add = _make_run(operation, dtype), np.dtype(dtype).type(0), operation == "sum"

    @kernel(f"void({_source(dtype)}, {dtype}[::1], int64, {dtype}, int64, int64)", key=(operation, dtype))
    def reduce_runs(x: Any, out: Any, size: int, divisor: Any, start: int, stop: int) -> None:
        for i in range(start, stop):
            if not add:
                out[i] = run(x, i * size, size)
            else:
                total, lost = zero, zero
                for at in range(0, size, RUN):
                    part = run(x, i * size + at, min(RUN, size - at))
                    new = total + part
                    change = new - total
                    lost += (total - (new - change)) + (part - change)
                    total = new
                # What was lost is no number where the sum is infinite.
                out[i] = np.divide(total + lost if lost == lost else total, divisor)

    return reduce_runs


def make_place_largest(dtype: str) -> Kernel:
    """The largest elements of windows, and where they are.

    Returns:
        ``place_largest(x, out, places, table, met, numbers, start, stop)``: as ``fold_windows`` with ``"max"``; ``places`` takes where
        the first of the largest elements of each window is, NaN being the largest, as the layout counts; -1 for a window without
        elements. An image has less than 2**31 elements.
    """
    place_row, lanes = _make_place_row(dtype), lanes_of(dtype)

    @kernel(f"void({_source(dtype)}, {dtype}[::1], int64[::1], int64[:, ::1], {_NUMBERS})", key=(dtype,))
    def place_largest(x: Any, out: Any, places: Any, table: Any, met: Any, numbers: Any, start: int, stop: int) -> None:
        image, _, windows, step, cells, apart, begin, below, behind, _, deep, down, along, _, _, _, _, overrun = numbers
        for number in range(start, stop):
            base, within = number // table.shape[1] * image, number % table.shape[1]
            layers, lines = table[LAYERS, within], table[LINES, within]
            first, counted = base + table[FIRST, within] - begin, table[PLACE, within] - begin * along
            end = first + (layers - 1) * behind + (lines - 1) * below + (cells - 1) * apart + -(-windows // lanes) * lanes * step
            exact = int(first < 0 or end > x.size or number >= stop - overrun)
            numbers_of_row = (number * windows, windows, first, layers, behind, lines, below, cells, apart, step, base)
            place_row(x, out, places, met, (*numbers_of_row, counted, deep, down, along, exact))

    return place_largest


fold_windows = functools.cache(make_fold_windows)
reduce_runs = functools.cache(make_reduce_runs)
place_largest = functools.cache(make_place_largest)

# What is compiled ahead.
for _operation in ("max", "sum"):
    fold_windows(_operation, "float32")
    reduce_runs(_operation, "float32")
place_largest("float32")
