"""Convolutions and products of matrices: a tile of sums stays in vector registers while it takes in all its terms.

A tile is ``ROWS`` x ``COLUMNS`` sums: of ``ROWS`` output channels and of ``COLUMNS`` places next to each other. For each term it takes a
line of ``COLUMNS`` numbers from a panel, into which windows were gathered, and ``ROWS`` weights, which were laid out in that order. That
way the processor does nothing but multiply and add: 115 of 118 GFLOP/s that one core has.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from numbaops.runtime.jit import kernel


def _shape_of_tile() -> tuple[int, int, int]:
    """Lanes of a vector, rows and vectors of a tile, such that a tile, one line and one weight fit into the vector registers."""
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
TERMS = 512
"""Terms of one panel: with 98 KB it stays in the second cache, and the allocator does not ask the system for it."""

FEW_BLOCKS = 4
"""Blocks of rows up to which a panel takes longer to gather than what it saves."""

UNROLLED = 8
"""Sums of a dot product that are in the making at once."""

THIN = 2
"""Windows of a panel up to which its sums are made along the rows: a vector of windows would be empty but for those."""

AVAILABLE = not numba.config.DISABLE_JIT
"""Whether there are vectors; without the JIT, these kernels do not run."""

_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INT = ir.IntType(64)


def _splat(builder: Any, number: Any) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


def _line(builder: Any, base: Any, offset: Any) -> Any:
    return builder.bitcast(builder.gep(base, [offset]), _VECTOR.as_pointer())


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
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
            w, x, table, b, y = (_data(context, builder, kind, each) for kind, each in zip(arrays, (w, x, table, b, y), strict=True))
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
                            builder.store(builder.load(_line(builder, y, places[row][vector]), align=4), sums[row][vector])
                with otherwise:
                    for row in range(rows):
                        start = _splat(builder, builder.load(builder.gep(b, [_INT(row)])))
                        for vector in range(vectors):
                            builder.store(start, sums[row][vector])
            with cgutils.for_range(builder, count) as loop:
                at = builder.load(builder.gep(table, [loop.index])) if pitch is None else builder.mul(loop.index, _INT(pitch))
                line = builder.gep(x, [at])
                weight = builder.gep(w, [builder.mul(loop.index, _INT(rows))])
                given = [builder.load(_line(builder, line, builder.mul(between, _INT(vector))), align=4) for vector in range(vectors)]
                for row in range(rows):
                    factor = _splat(builder, builder.load(builder.gep(weight, [_INT(row)])))
                    for vector in range(vectors):
                        total = builder.call(multiply_add, [factor, given[vector], builder.load(sums[row][vector])])
                        builder.store(total, sums[row][vector])
            every = [(sums[row][vector], places[row][vector]) for row in range(rows) for vector in range(vectors)]
            with builder.if_then(ends):
                with builder.if_then(adds):
                    for total, place in every:
                        builder.store(builder.fadd(builder.load(total), builder.load(_line(builder, r, place), align=4)), total)
                limits = (("<", _splat(builder, least)), (">", _splat(builder, most)))
                for total, _ in every:
                    for beyond, limit in limits:
                        number = builder.load(total)
                        builder.store(builder.select(builder.fcmp_ordered(beyond, number, limit), limit, number), total)
            for total, place in every:
                builder.store(builder.load(total), _line(builder, y, place), align=4)
            return context.get_dummy_value()

        return types.void(*kinds, *rest), generate

    return tile


def _splat_to(builder: Any, number: Any, lanes: int) -> Any:
    undefined = ir.Constant(ir.VectorType(ir.FloatType(), lanes), ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))


def _make_dots(lanes: int, spread: bool) -> Any:
    """The code of sums of products of ``lanes`` numbers at a time, in ``UNROLLED`` sums: one after the other would wait for each other.

    Args:
        lanes: numbers of a vector.
        spread: whether the second factor is one number for all lanes.
    """
    vector = ir.VectorType(ir.FloatType(), lanes)

    @intrinsic  # type: ignore[untyped-decorator]
    def dots(typing_context: Any, first: Any, first_at: Any, second: Any, second_at: Any, apart: Any, count: Any, out: Any) -> Any:
        """Add to ``out[:lanes]`` the products of vectors, of which there are ``count`` in ``first``; those of ``second`` are ``apart``."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, a_at, b, b_at, between, number, y = arguments
            a, b, y = (_data(context, builder, kind, each) for kind, each in ((first, a), (second, b), (out, y)))
            a, b = builder.gep(a, [a_at]), builder.gep(b, [b_at])
            name = f"llvm.fma.v{lanes}f32"
            multiply_add = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
            sums = [cgutils.alloca_once(builder, vector) for _ in range(UNROLLED)]

            def at(base: Any, offset: Any) -> Any:
                return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())

            def add(total: Any, index: Any) -> None:
                left = builder.load(at(a, builder.mul(index, _INT(lanes))), align=4)
                place = builder.mul(index, between)
                right = _splat_to(builder, builder.load(builder.gep(b, [place])), lanes) if spread else builder.load(at(b, place), align=4)
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
    """The code that copies ``LANES`` numbers, of which the first of each ``every`` count; it may read up to ``every * LANES``."""

    @intrinsic  # type: ignore[untyped-decorator]
    def copy_line(typing_context: Any, out: Any, out_at: Any, x: Any, x_at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            y, y_at, given, given_at = arguments
            source = _data(context, builder, x, given)
            lines = [builder.load(_line(builder, source, builder.add(given_at, _INT(number * LANES))), align=4) for number in range(every)]
            line = lines[0]
            if every == 2:
                numbers = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(0, 2 * LANES, 2)))
                line = builder.shuffle_vector(*lines, numbers)
            builder.store(line, _line(builder, _data(context, builder, out, y), y_at), align=4)
            return context.get_dummy_value()

        return types.void(out, types.intp, x, types.intp), generate

    return copy_line


@intrinsic  # type: ignore[untyped-decorator]
def _clear_line(typing_context: Any, out: Any, out_at: Any) -> Any:
    """Write ``LANES`` zeros."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        y, y_at = arguments
        builder.store(ir.Constant(_VECTOR, [0.0] * LANES), _line(builder, _data(context, builder, out, y), y_at), align=4)
        return context.get_dummy_value()

    return types.void(out, types.intp), generate


_copy_line, _copy_even = _copies(1), _copies(2)
_tile_1, _tile_2, _tile_3 = (_make_tile(ROWS, vectors, PITCH) for vectors in (1, 2, 3))
_dots, _dots_of_rows = _make_dots(LANES, False), _make_dots(ROWS, True)
_unpacked_3 = _make_tile(ROWS, 3, None)
_rows_1, _rows_2, _rows_3, _rows_4 = (_make_tile(1, vectors, None) for vectors in (1, 2, 3, 4))

_FLOATS, _INTS, _TABLE = "float32[::1]", "int64[::1]", "int64[:, ::1]"


@kernel(f"int64(int64, int64, {_INTS}, int64, int64, int64, int64, int64, {_TABLE})")
def _parts(begin: int, length: int, sources: Any, width: int, stride: int, shift: int, low: int, high: int, parts: Any) -> int:
    """What one cell of the kernel sees of a panel's windows: for each part where it begins in a plane (-1: it is pads), and where it ends.

    Args:
        begin: the first window.
        length: windows of the panel.
        sources: where in a plane the elements of each row of windows lie; -1 for pads.
        width: windows in a row.
        stride: elements from a window to the next.
        shift: where in a row the element of the first window lies.
        low: the first window that has an element there.
        high: the window behind the last such.
        parts: where to write.
    """
    number, place = 0, 0
    while place < length:
        row = (begin + place) // width
        column = begin + place - row * width
        run = min(width - column, length - place)
        before, inside = run, run
        if sources[row] >= 0:
            before = min(max(low - column, 0), run)
            inside = min(max(high - column, before), run)
        if before:
            parts[number, 0], parts[number, 1] = -1, place + before
            number += 1
        if inside > before:
            parts[number, 0], parts[number, 1] = sources[row] + (column + before) * stride + shift, place + inside
            number += 1
        if run > inside:
            parts[number, 0], parts[number, 1] = -1, place + run
            number += 1
        place += run
    return number


@kernel(f"void({_FLOATS}, int64, int64, int64, int64, int64, int64, {_FLOATS}, int64)")
def _gather(x: Any, at: int, plane: int, channels: int, stride: int, start: int, length: int, panel: Any, place: int) -> None:
    """One part of the lines of some channels. Behind its end more is written, which the next part overwrites or nobody reads."""
    if start < 0:
        for channel in range(channels):
            for lane in range(0, length, LANES):
                _clear_line(panel, place + channel * PITCH + lane)
        return
    at += start
    end = at + (channels - 1) * plane + stride * (length + LANES)
    if stride == 1 and end <= x.size:
        if length <= LANES:
            for channel in range(channels):
                _copy_line(panel, place + channel * PITCH, x, at + channel * plane)
        elif length <= 2 * LANES:
            for channel in range(channels):
                _copy_line(panel, place + channel * PITCH, x, at + channel * plane)
                _copy_line(panel, place + channel * PITCH + LANES, x, at + channel * plane + LANES)
        else:
            for channel in range(channels):
                for lane in range(0, VECTORS * LANES, LANES):
                    _copy_line(panel, place + channel * PITCH + lane, x, at + channel * plane + lane)
    elif stride == 2 and end <= x.size:
        for channel in range(channels):
            for lane in range(0, length, LANES):
                _copy_even(panel, place + channel * PITCH + lane, x, at + channel * plane + 2 * lane)
    else:
        for channel in range(channels):
            for column in range(length):
                panel[place + channel * PITCH + column] = x[at + channel * plane + column * stride]


@kernel(f"void({_FLOATS}, int64, int64, {_FLOATS}, float32, float32)")
def _finish(out: Any, at: int, length: int, residual: Any, low: Any, high: Any) -> None:
    """What comes after the sums: another summand, if there is one, and limits; NaN stays."""
    if residual.size:
        for place in range(at, at + length):
            out[place] += residual[place]
    if low > -np.inf or high < np.inf:
        for place in range(at, at + length):
            number = out[place]
            number = low if number < low else number
            out[place] = high if number > high else number


@kernel("int64(int64, int64)")
def panel_channels(taps: int, channels: int) -> int:
    """Channels of which a panel holds the terms, if the kernel has ``taps`` cells."""
    return min(max(1, TERMS // max(1, taps)), channels)


@kernel(
    f"void(int64, {_FLOATS}, int64, {_FLOATS}, int64, {_INTS}, int64, {_FLOATS}, int64, {_FLOATS}, int64, int64, boolean, boolean, "
    f"{_FLOATS}, float32, float32)"
)
def _tile(
    kind: int,
    w: Any,
    w_at: int,
    x: Any,
    x_at: int,
    lines: Any,
    terms: int,
    bias: Any,
    bias_at: int,
    out: Any,
    at: int,
    stride: int,
    more: bool,
    done: bool,
    added: Any,
    low: float,
    high: float,
) -> None:
    """A tile of as many vectors of windows as ``kind`` says, from a panel; or, if it is 4, of whole lines that lie where ``lines`` say."""
    if kind == 3:
        _tile_3(w, w_at, x, x_at, lines, terms, LANES, bias, bias_at, out, at, stride, LANES, more, done, added, low, high)
    elif kind == 4:
        _unpacked_3(w, w_at, x, x_at, lines, terms, LANES, bias, bias_at, out, at, stride, LANES, more, done, added, low, high)
    elif kind == 2:
        _tile_2(w, w_at, x, x_at, lines, terms, LANES, bias, bias_at, out, at, stride, LANES, more, done, added, low, high)
    else:
        _tile_1(w, w_at, x, x_at, lines, terms, LANES, bias, bias_at, out, at, stride, LANES, more, done, added, low, high)


@kernel(
    f"void({_FLOATS}, int64, int64, {_TABLE}, int64, int64, {_TABLE}, int64, {_FLOATS}, {_FLOATS}, {_FLOATS}, int64, int64, "
    f"{_FLOATS}, float32, float32, int64, int64, int64)"
)
def convolve(
    x: Any,
    plane: int,
    groups: int,
    sources: Any,
    width: int,
    stride: int,
    cells: Any,
    channels: int,
    weights: Any,
    bias: Any,
    out: Any,
    count: int,
    windows: int,
    residual: Any,
    low: float,
    high: float,
    blocks_each: int,
    first: int,
    last: int,
) -> None:
    """The units from ``first`` to ``last`` of a convolution; a unit is one panel and ``blocks_each`` blocks of ``ROWS`` channels.

    Args:
        x: ``[images, groups * channels, plane]``, flat.
        plane: elements of a plane.
        groups: groups of channels.
        sources: for each row of the kernel, where in a plane the elements of each row of windows lie; -1 for pads.
        width: windows in a row.
        stride: elements from a window to the next.
        cells: for each cell in a row of the kernel: where in a row of elements that of the first window lies, the first window that has
            one there, and the window behind the last such.
        channels: planes that are summed up.
        weights: ``[groups, blocks, terms, ROWS]``, flat; the terms are those of :func:`panel_channels` channels, of the next ones, ...;
            within these those of the first cell of the kernel, of the next one, ...
        bias: ``[groups, blocks, ROWS]``, flat.
        out: ``[images, groups * count, windows]``, flat.
        count: output channels of a group.
        windows: windows of a plane.
        residual: what is added, of the layout of ``out``; or empty.
        low: smaller results become this.
        high: larger results become this.
        blocks_each: blocks of a unit.
        first: the unit to begin with.
        last: the unit to end before.
    """
    taps = sources.shape[0] * cells.shape[0]
    terms = channels * taps
    blocks = -(-count // ROWS)
    chunks = -(-blocks // blocks_each)
    panels = -(-windows // COLUMNS)
    each = panel_channels(taps, channels)
    panel = np.empty(max(1, each * taps) * PITCH + 2 * LANES, np.float32)
    panel = panel[-(panel.ctypes.data // 4) % 16 :]
    scratch = np.empty(ROWS * COLUMNS, np.float32)
    parts = np.empty((3 * COLUMNS, 2), np.int64)
    nothing = np.empty(0, np.float32)
    # Of few rows a panel is hardly worth the gathering: where windows are elements, lines lie in the planes as they are.
    unpacked = blocks_each <= FEW_BLOCKS and taps == 1 and stride == 1 and width == windows == plane and sources[0, 0] == 0
    lines = np.arange(max(1, each) if unpacked else 0) * plane
    for unit in range(first, last):
        block_first = unit % chunks * blocks_each
        block_last = min(blocks, block_first + blocks_each)
        begin = unit // chunks % panels * COLUMNS
        length = min(COLUMNS, windows - begin)
        planes = unit // (chunks * panels)
        group = planes % groups
        for channel in range(0, max(1, channels), max(1, each)):
            some = min(each, channels - channel)
            in_place = unpacked and length == COLUMNS
            line = 0
            for row in range(0 if in_place else sources.shape[0]):
                for cell in range(cells.shape[0]):
                    number = _parts(begin, length, sources[row], width, stride, cells[cell, 0], cells[cell, 1], cells[cell, 2], parts)
                    at = (planes * channels + channel) * plane
                    place = 0
                    for part in range(number):
                        _gather(x, at, plane, some, stride, parts[part, 0], parts[part, 1] - place, panel, line + place)
                        place = parts[part, 1]
                    line += some * PITCH
            more, done, terms_here = channel > 0, channel + each >= channels, some * taps
            for block in range(block_first, block_last):
                at = (planes * count + block * ROWS) * windows + begin
                rows = min(ROWS, count - block * ROWS)
                weight = ((group * blocks + block) * terms + channel * taps) * ROWS
                start = (group * blocks + block) * ROWS
                if in_place:
                    source, given, kind = x, (planes * channels + channel) * plane + begin, 4
                else:
                    source, given, kind = panel, 0, min(3, -(-length // LANES))
                if rows == ROWS and length == COLUMNS:
                    _tile(
                        kind,
                        weights,
                        weight,
                        source,
                        given,
                        lines,
                        terms_here,
                        bias,
                        start,
                        out,
                        at,
                        windows,
                        more,
                        done,
                        residual,
                        low,
                        high,
                    )
                elif length <= THIN:
                    for column in range(length):
                        for row in range(ROWS):
                            scratch[row] = out[at + row * windows + column] if more and row < rows else bias[start + row]
                        _dots_of_rows(weights, weight, panel, column, PITCH, terms_here, scratch)
                        for row in range(rows):
                            out[at + row * windows + column] = scratch[row]
                else:
                    if more:
                        for row in range(rows):
                            for column in range(length):
                                scratch[row * COLUMNS + column] = out[at + row * windows + column]
                    _tile(
                        kind,
                        weights,
                        weight,
                        source,
                        given,
                        lines,
                        terms_here,
                        bias,
                        start,
                        scratch,
                        0,
                        COLUMNS,
                        more,
                        False,
                        nothing,
                        low,
                        high,
                    )
                    for row in range(rows):
                        for column in range(length):
                            out[at + row * windows + column] = scratch[row * COLUMNS + column]
                if done and (rows < ROWS or length < COLUMNS):
                    for row in range(rows):
                        _finish(out, at + row * windows, length, residual, low, high)


@kernel(f"void({_FLOATS}, {_FLOATS}, int64, int64, {_FLOATS}, int64, int64)")
def multiply_rows(x: Any, matrix: Any, count: int, terms: int, out: Any, first: int, last: int) -> None:
    """Products of ``count`` rows of ``terms`` numbers with rows of a matrix, those from ``first`` to ``last``.

    Args:
        x: ``[count, terms]``, flat.
        matrix: ``[columns, terms]``, flat.
        count: rows of ``x``.
        terms: numbers of a row.
        out: ``[count, columns]``, flat.
        first: the row of the matrix to begin with.
        last: the row to end before.
    """
    sums = np.empty(LANES, np.float32)
    columns = out.size // count
    vectors = terms // LANES
    for column in range(first, last):
        at = column * terms
        for row in range(count):
            for lane in range(LANES):
                sums[lane] = np.float32(0)
            _dots(matrix, at, x, row * terms, LANES, vectors, sums)
            total = np.float32(0)
            for lane in range(LANES):
                total += sums[lane]
            for term in range(vectors * LANES, terms):
                total += x[row * terms + term] * matrix[at + term]
            out[row * columns + column] = total


@kernel(f"void({_FLOATS}, {_FLOATS}, int64, int64, {_FLOATS}, int64, int64)")
def multiply_columns(x: Any, matrix: Any, count: int, terms: int, out: Any, first: int, last: int) -> None:
    """Products of ``count`` rows of ``terms`` numbers with columns of a matrix, those from ``first`` to ``last``.

    Args:
        x: ``[count, terms]``, flat.
        matrix: ``[terms, columns]``, flat.
        count: rows of ``x``.
        terms: numbers of a row.
        out: ``[count, columns]``, flat.
        first: the column of the matrix to begin with.
        last: the column to end before.
    """
    columns = out.size // count
    for row in range(count):
        for column in range(row * columns + first, row * columns + last):
            out[column] = np.float32(0)
    whole = terms - terms % 4
    for term in range(0, whole, 4):  # four terms for each time that a sum is read and written
        for row in range(count):
            a, b, c, d = x[row * terms + term], x[row * terms + term + 1], x[row * terms + term + 2], x[row * terms + term + 3]
            at, target = term * columns, row * columns
            for column in range(first, last):
                one = a * matrix[at + column] + b * matrix[at + columns + column]
                two = c * matrix[at + 2 * columns + column] + d * matrix[at + 3 * columns + column]
                out[target + column] += one + two
    for term in range(whole, terms):
        for row in range(count):
            for column in range(first, last):
                out[row * columns + column] += x[row * terms + term] * matrix[term * columns + column]


@kernel(f"void({_FLOATS}, int64, int64, {_FLOATS}, int64, int64)")
def lay_out(x: Any, count: int, terms: int, out: Any, first: int, last: int) -> None:
    """Matrices ``[count, terms]`` as ``[blocks, terms, ROWS]`` each, with zeros for the rows that the last block lacks.

    Args:
        x: the matrices, flat.
        count: rows of a matrix.
        terms: columns of a matrix.
        out: the result, flat.
        first: the block to begin with, counted through all matrices.
        last: the block to end before.
    """
    blocks = -(-count // ROWS)
    for number in range(first, last):
        matrix, row = number // blocks, number % blocks * ROWS
        source, target = (matrix * count + row) * terms, number * terms * ROWS
        rows = min(ROWS, count - row)
        if rows == ROWS:
            for term in range(terms):
                for each in range(ROWS):
                    out[target + term * ROWS + each] = x[source + each * terms + term]
        else:
            for term in range(terms):
                for each in range(rows):
                    out[target + term * ROWS + each] = x[source + each * terms + term]
                for each in range(rows, ROWS):
                    out[target + term * ROWS + each] = np.float32(0)


@kernel(f"void({_FLOATS}, int64, {_INTS}, int64, int64, int64, {_INTS}, int64, {_FLOATS})")
def _pad(x: Any, at: int, rows: Any, width: int, begin: int, stride: int, phases: Any, cells: int, out: Any) -> None:
    """A plane with pads, and with the phases of strides apart: each cell of a kernel sees the elements of a row of windows in one line."""
    zero = np.float32(0)
    for row in range(rows.size):
        for phase in range(phases.size):
            place = (row * phases.size + phase) * cells
            start = phases[phase] - begin
            low, high = cells, cells
            if rows[row] >= 0:
                low = min(cells, max(0, -(start // stride)))
                high = max(low, min(cells, (width - 1 - start) // stride + 1))
            source = at + rows[row] * width + start
            for cell in range(low):
                out[place + cell] = zero
            cell = low
            if stride <= 2:
                # what is written behind the end is overwritten, or of no plane
                while cell < high and source + stride * (cell + LANES) <= x.size:
                    if stride == 1:
                        _copy_line(out, place + cell, x, source + cell)
                    else:
                        _copy_even(out, place + cell, x, source + 2 * cell)
                    cell += LANES
            while cell < high:
                out[place + cell] = x[source + cell * stride]
                cell += 1
            for cell in range(high, cells):
                out[place + cell] = zero


@kernel(f"void(int64, {_FLOATS}, int64, {_FLOATS}, int64, {_INTS}, int64, {_FLOATS}, int64, {_FLOATS}, int64, int64)")
def _lines(
    vectors: int, w: Any, w_at: int, x: Any, x_at: int, taps: Any, apart: int, bias: Any, bias_at: int, out: Any, at: int, out_apart: int
) -> None:
    """Vectors of windows of one plane: ``apart`` in ``x``, ``out_apart`` in ``out``."""
    count, no, none, zero = taps.size, False, out[:0], np.float32(0)
    if vectors == 4:
        _rows_4(w, w_at, x, x_at, taps, count, apart, bias, bias_at, out, at, 0, out_apart, no, no, none, zero, zero)
    elif vectors == 3:
        _rows_3(w, w_at, x, x_at, taps, count, apart, bias, bias_at, out, at, 0, out_apart, no, no, none, zero, zero)
    elif vectors == 2:
        _rows_2(w, w_at, x, x_at, taps, count, apart, bias, bias_at, out, at, 0, out_apart, no, no, none, zero, zero)
    else:
        _rows_1(w, w_at, x, x_at, taps, count, apart, bias, bias_at, out, at, 0, out_apart, no, no, none, zero, zero)


@kernel(
    f"void({_FLOATS}, int64, {_INTS}, int64, int64, int64, {_INTS}, int64, {_INTS}, {_INTS}, int64, {_FLOATS}, {_FLOATS}, {_FLOATS}, "
    f"{_FLOATS}, float32, float32, int64, int64, int64, int64)"
)
def convolve_planes(
    x: Any,
    plane: int,
    rows: Any,
    width: int,
    begin: int,
    stride: int,
    phases: Any,
    cells: int,
    taps: Any,
    starts: Any,
    windows: int,
    weights: Any,
    bias: Any,
    out: Any,
    residual: Any,
    low: float,
    high: float,
    channels: int,
    multiplier: int,
    first: int,
    last: int,
) -> None:
    """A convolution in which each output channel sees one plane.

    Args:
        x: planes, flat.
        plane: elements of a plane.
        rows: for each row of a padded plane, which row of the plane it is; -1 for a row of pads.
        width: elements of a row.
        begin: pads at the begin of a row.
        stride: elements from a window to the next.
        phases: where in a stride each phase that the kernel sees begins.
        cells: elements of each phase of a padded row.
        taps: where each cell of the kernel lies in a padded plane, from the begin of its window.
        starts: where in a padded plane each row of windows begins.
        windows: windows in a row.
        weights: ``[channels, taps]``, flat.
        bias: one number for each output channel.
        out: ``[images * channels, starts * windows]``, flat.
        residual: what is added, of the layout of ``out``; or empty.
        low: smaller results become this.
        high: larger results become this.
        channels: output channels.
        multiplier: output channels for each plane.
        first: the output plane to begin with.
        last: the output plane to end before.
    """
    padded = np.empty(rows.size * phases.size * cells + 6 * LANES, np.float32)
    padded[rows.size * phases.size * cells :] = np.float32(0)
    scratch = np.empty(LANES, np.float32)
    size = starts.size * windows
    limit = last * size  # behind it is what another thread writes
    held = -1
    for number in range(first, last):
        image, channel = number // channels, number % channels
        source = image * (channels // multiplier) + channel // multiplier
        if source != held:
            _pad(x, source * plane, rows, width, begin, stride, phases, cells, padded)
            held = source
        weight, target = channel * taps.size, number * size
        row = 0
        while row < starts.size:
            if windows <= LANES and starts.size >= 4:
                # four rows at once; where there are not four left, some are done again
                begin_row = min(row, starts.size - 4)
                at, place = starts[begin_row], target + begin_row * windows
                apart = starts[begin_row + 1] - at
                even = starts[begin_row + 2] - at == 2 * apart and starts[begin_row + 3] - at == 3 * apart
                if even and place + 3 * windows + LANES <= limit:
                    _lines(4, weights, weight, padded, at, taps, apart, bias, channel, out, place, windows)
                    row = begin_row + 4
                    continue
            at, place = starts[row], target + row * windows
            column = 0
            while column < windows:
                vectors = min(4, -(-(windows - column) // LANES))
                if place + column + vectors * LANES <= limit:
                    _lines(vectors, weights, weight, padded, at + column, taps, LANES, bias, channel, out, place + column, LANES)
                else:
                    vectors = 1
                    _lines(1, weights, weight, padded, at + column, taps, LANES, bias, channel, scratch, 0, LANES)
                    for lane in range(min(windows - column, LANES)):
                        out[place + column + lane] = scratch[lane]
                column += vectors * LANES
            row += 1
        _finish(out, target, size, residual, low, high)


@kernel(f"void({_FLOATS}, {_FLOATS}, {_FLOATS}, float32, float32, int64, {_FLOATS}, int64, int64)")
def scale_planes(x: Any, scale: Any, shift: Any, low: float, high: float, plane: int, out: Any, first: int, last: int) -> None:
    """Planes times the factor of their channel, plus its summand, within limits; NaN stays.

    Args:
        x: ``[images * channels, plane]``, flat.
        scale: a factor for each channel.
        shift: a summand for each channel.
        low: smaller results become this.
        high: larger results become this.
        plane: elements of a plane.
        out: like ``x``.
        first: the plane to begin with.
        last: the plane to end before.
    """
    for number in range(first, last):
        factor, summand = scale[number % scale.size], shift[number % scale.size]
        for place in range(number * plane, number * plane + plane):
            result = x[place] * factor + summand
            result = low if result < low else result
            out[place] = high if result > high else result
