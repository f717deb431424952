"""Vectors of float32 for kernels that Numba's own loops would not make: tiles of sums, dot products, whole lines.

They are code for the processor at hand: as many lanes as its vectors have, and tiles of as many vectors as it has registers for.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


def _shape_of_tile() -> tuple[int, int, int]:
    """Lanes of a vector, rows and vectors of a tile, such that a tile, one line and one weight fit into the vector registers."""
    if numba.config.CPU_NAME == "generic":
        return 4, 4, 2
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, 8, 3
    if features.get("avx2") and features.get("fma"):
        return 8, 4, 3
    return (4, 8, 3) if features.get("neon") else (4, 4, 2)


LANES, ROWS, VECTORS = _shape_of_tile()
COLUMNS = LANES * VECTORS
PITCH = COLUMNS + LANES
"""Elements from one line of a panel to the next: lines are written in whole vectors."""


UNROLLED = 8
"""Sums of a dot product that are in the making at once."""


AVAILABLE = not numba.config.DISABLE_JIT
"""Whether there are vectors; without the JIT, these kernels do not run."""

_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INT = ir.IntType(64)


def _splat(builder: Any, number: Any, lanes: int = LANES) -> Any:
    undefined = ir.Constant(ir.VectorType(ir.FloatType(), lanes), ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))


def line_at(builder: Any, base: Any, offset: Any) -> Any:
    return builder.bitcast(builder.gep(base, [offset]), _VECTOR.as_pointer())


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _make_tile(rows: int, vectors: int, pitch: int | None) -> Any:
    """The code of a tile.

    Args:
        rows: rows of the tile; weights come in this order: the rows of the first term, those of the second, ...
        vectors: vectors of each row.
        pitch: elements from one line of a panel to the next; None for lines that lie where a table says.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(
        typing_context: Any,
        weights: Any,
        weights_at: Any,
        lines: Any,
        lines_at: Any,
        offsets: Any,
        terms: Any,
        step: Any,
        bias: Any,
        bias_at: Any,
        out: Any,
        out_at: Any,
        stride: Any,
        out_step: Any,
        more: Any,
        done: Any,
        residual: Any,
        low: Any,
        high: Any,
    ) -> Any:
        """Sums of products, written to ``out``; if ``more``, added to what is there, else to the bias.

        Vectors of a line are ``step`` apart, rows of ``out`` are ``stride`` apart, and vectors of a row ``out_step``. If ``done``, the
        residual is added, which lies as ``out`` does and may be empty, and limits are kept; NaN stays.
        """
        kinds = (weights, types.intp, lines, types.intp, offsets, types.intp, types.intp, bias, *(types.intp, out), *(types.intp,) * 3)
        arrays = (weights, lines, offsets, bias, out)
        rest = (types.boolean, types.boolean, residual, types.float32, types.float32)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            w, w_at, x, x_at, table, count, between, b, b_at, y, y_at, apart, out_between, goes_on, ends, added, least, most = arguments
            w, x, table, b, y = (data_of(context, builder, kind, each) for kind, each in zip(arrays, (w, x, table, b, y), strict=True))
            added_array = context.make_array(residual)(context, builder, added)
            adds = builder.icmp_signed(">", added_array.nitems, _INT(0))
            w, x, b, y, r = (builder.gep(base, [at]) for base, at in ((w, w_at), (x, x_at), (b, b_at), (y, y_at), (added_array.data, y_at)))
            name = f"llvm.fma.v{LANES}f32"
            multiply_add = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), name)
            sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in range(vectors)] for _ in range(rows)]
            places = [
                [builder.add(builder.mul(apart, _INT(row)), builder.mul(out_between, _INT(vector))) for vector in range(vectors)]
                for row in range(rows)
            ]
            with builder.if_else(goes_on) as (then, otherwise):
                with then:
                    for row in range(rows):
                        for vector in range(vectors):
                            builder.store(builder.load(line_at(builder, y, places[row][vector]), align=4), sums[row][vector])
                with otherwise:
                    for row in range(rows):
                        start = _splat(builder, builder.load(builder.gep(b, [_INT(row)])))
                        for vector in range(vectors):
                            builder.store(start, sums[row][vector])
            with cgutils.for_range(builder, count) as loop:
                at = builder.load(builder.gep(table, [loop.index])) if pitch is None else builder.mul(loop.index, _INT(pitch))
                line = builder.gep(x, [at])
                weight = builder.gep(w, [builder.mul(loop.index, _INT(rows))])
                given = [builder.load(line_at(builder, line, builder.mul(between, _INT(vector))), align=4) for vector in range(vectors)]
                for row in range(rows):
                    factor = _splat(builder, builder.load(builder.gep(weight, [_INT(row)])))
                    for vector in range(vectors):
                        total = builder.call(multiply_add, [factor, given[vector], builder.load(sums[row][vector])])
                        builder.store(total, sums[row][vector])
            every = [(sums[row][vector], places[row][vector]) for row in range(rows) for vector in range(vectors)]
            with builder.if_then(ends):
                with builder.if_then(adds):
                    for total, place in every:
                        builder.store(builder.fadd(builder.load(total), builder.load(line_at(builder, r, place), align=4)), total)
                limits = (("<", _splat(builder, least)), (">", _splat(builder, most)))
                for total, _ in every:
                    for beyond, limit in limits:
                        number = builder.load(total)
                        builder.store(builder.select(builder.fcmp_ordered(beyond, number, limit), limit, number), total)
            for total, place in every:
                builder.store(builder.load(total), line_at(builder, y, place), align=4)
            return context.get_dummy_value()

        return types.void(*kinds, *rest), generate

    return tile


def _make_dots(lanes: int) -> Any:
    """The code of sums of products of ``lanes`` numbers at a time, in ``UNROLLED`` sums: one after the other would wait for each other.

    Args:
        lanes: numbers of a vector; the second factor is one number for all of them.
    """
    vector = ir.VectorType(ir.FloatType(), lanes)

    @intrinsic  # type: ignore[untyped-decorator]
    def dots(typing_context: Any, first: Any, first_at: Any, second: Any, second_at: Any, apart: Any, count: Any, out: Any) -> Any:
        """Add to ``out[:lanes]`` the products of ``count`` vectors of ``first`` and as many numbers of ``second``, which are ``apart``."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, a_at, b, b_at, between, number, y = arguments
            a, b, y = (data_of(context, builder, kind, each) for kind, each in ((first, a), (second, b), (out, y)))
            a, b = builder.gep(a, [a_at]), builder.gep(b, [b_at])
            name = f"llvm.fma.v{lanes}f32"
            multiply_add = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
            sums = [cgutils.alloca_once(builder, vector) for _ in range(UNROLLED)]

            def at(base: Any, offset: Any) -> Any:
                return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())

            def add(total: Any, index: Any) -> None:
                left = builder.load(at(a, builder.mul(index, _INT(lanes))), align=4)
                right = _splat(builder, builder.load(builder.gep(b, [builder.mul(index, between)])), lanes)
                builder.store(builder.call(multiply_add, [left, right, builder.load(total)]), total)

            builder.store(builder.load(at(y, _INT(0)), align=4), sums[0])
            for total in sums[1:]:
                builder.store(ir.Constant(vector, [0.0] * lanes), total)
            groups = builder.sdiv(number, _INT(UNROLLED))
            with cgutils.for_range(builder, groups) as loop:
                start = builder.mul(loop.index, _INT(UNROLLED))
                for each, total in enumerate(sums):
                    add(total, builder.add(start, _INT(each)))
            done = builder.mul(groups, _INT(UNROLLED))
            with cgutils.for_range(builder, builder.sub(number, done)) as loop:
                add(sums[0], builder.add(done, loop.index))
            whole = builder.load(sums[0])
            for total in sums[1:]:
                whole = builder.fadd(whole, builder.load(total))
            builder.store(whole, at(y, _INT(0)), align=4)
            return context.get_dummy_value()

        return types.void(first, types.intp, second, types.intp, types.intp, types.intp, out), generate

    return dots


def _copies(every: int) -> Any:
    """The code that copies up to ``LANES`` numbers, the first of each ``every``; it may read up to ``every * LANES``.

    The rest of the vector stays as it is.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def copy_part(typing_context: Any, out: Any, out_at: Any, x: Any, x_at: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            y, y_at, given, given_at, number = arguments
            source, target = data_of(context, builder, x, given), line_at(builder, data_of(context, builder, out, y), y_at)
            line = _read(builder, source, given_at, every)
            wide = builder.trunc(number, ir.IntType(32))
            counts = ir.Constant(ir.VectorType(ir.IntType(32), LANES), ir.Undefined)
            counts = builder.insert_element(counts, wide, ir.Constant(ir.IntType(32), 0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            counts = builder.shuffle_vector(counts, counts, zeros)
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
            within = builder.icmp_signed("<", lanes, counts)
            builder.store(builder.select(within, line, builder.load(target, align=4)), target, align=4)
            return context.get_dummy_value()

        return types.void(out, types.intp, x, types.intp, types.intp), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def copy_line(typing_context: Any, out: Any, out_at: Any, x: Any, x_at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            y, y_at, given, given_at = arguments
            line = _read(builder, data_of(context, builder, x, given), given_at, every)
            builder.store(line, line_at(builder, data_of(context, builder, out, y), y_at), align=4)
            return context.get_dummy_value()

        return types.void(out, types.intp, x, types.intp), generate

    return copy_line, copy_part


def _read(builder: Any, source: Any, at: Any, every: int) -> Any:
    """``LANES`` numbers, the first of each ``every``."""
    lines = [builder.load(line_at(builder, source, builder.add(at, _INT(number * LANES))), align=4) for number in range(every)]
    if every == 1:
        return lines[0]
    return builder.shuffle_vector(*lines, ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(0, 2 * LANES, 2))))


@intrinsic  # type: ignore[untyped-decorator]
def clear_line(typing_context: Any, out: Any, out_at: Any) -> Any:
    """Write ``LANES`` zeros."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        y, y_at = arguments
        builder.store(ir.Constant(_VECTOR, [0.0] * LANES), line_at(builder, data_of(context, builder, out, y), y_at), align=4)
        return context.get_dummy_value()

    return types.void(out, types.intp), generate


copy_line, copy_part = _copies(1)
copy_even, copy_even_part = _copies(2)
tile_1, tile_2, tile_3 = (_make_tile(ROWS, vectors, PITCH) for vectors in (1, 2, 3))
dots_of_rows = _make_dots(ROWS)
unpacked = _make_tile(ROWS, VECTORS, None)
row_1, row_2, row_3, row_4 = (_make_tile(1, vectors, None) for vectors in (1, 2, 3, 4))
channels_one, channels_few, channels_rows = (_make_tile(rows, VECTORS, COLUMNS) for rows in (1, min(ROWS, 4), ROWS))
