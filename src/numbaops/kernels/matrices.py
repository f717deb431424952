"""Products of matrices that lie anywhere, also transposed: laid out for tiles of sums; and of the few rows that would leave a tile empty.

A unit packs its rows of the first matrix once for every ``TERMS`` terms, and each panel of ``COLUMNS`` columns of the second before use: of
128 rows and 48 columns that is 3 % of the time of the sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from numbaops.kernels.products import FEW_BLOCKS, TERMS, tile
from numbaops.kernels.vectors import COLUMNS, LANES, PITCH, ROWS, copy_line, data_of, line_at
from numbaops.runtime.jit import kernel

_FLOATS, _INTS, _TABLE = "float32[::1]", "int64[::1]", "int64[:, ::1]"

WIDTH = 4096
"""Sums of a row that are in the making at once: with what they take in, they stay in the first cache."""


@kernel(f"void({_FLOATS}, {_FLOATS}, int64, int64, {_FLOATS}, int64, int64)", reordered=True)
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
    columns = out.size // count
    whole = first + (last - first) // 4 * 4
    for column in range(first, whole, 4):  # four at a time read a row of ``x`` once
        one, two, three, four = (
            matrix[column * terms : (column + 1) * terms],
            matrix[(column + 1) * terms : (column + 2) * terms],
            matrix[(column + 2) * terms : (column + 3) * terms],
            matrix[(column + 3) * terms : (column + 4) * terms],
        )
        for row in range(count):
            given, target = x[row * terms : (row + 1) * terms], row * columns + column
            a = b = c = d = np.float32(0)
            for term in range(terms):
                a += given[term] * one[term]
                b += given[term] * two[term]
                c += given[term] * three[term]
                d += given[term] * four[term]
            out[target], out[target + 1], out[target + 2], out[target + 3] = a, b, c, d
    for column in range(whole, last):
        line = matrix[column * terms : (column + 1) * terms]
        for row in range(count):
            given, total = x[row * terms : (row + 1) * terms], np.float32(0)
            for term in range(terms):
                total += given[term] * line[term]
            out[row * columns + column] = total


@kernel(f"void({_FLOATS}, {_FLOATS}, int64, int64, int64, {_FLOATS}, int64, int64, int64)")
def multiply_columns(x: Any, matrix: Any, count: int, terms: int, columns: int, out: Any, each: int, first: int, last: int) -> None:
    """Products of ``count`` rows of ``terms`` numbers with the columns of a matrix; a unit is ``each`` of the terms.

    Args:
        x: ``[count, terms]``, flat.
        matrix: ``[terms, columns]``, flat: it is read from end to end, whole rows at a time.
        count: rows of ``x``.
        terms: numbers of a row.
        columns: columns of the matrix.
        out: ``[units, count, columns]``, flat: the products are the sums over the units.
        each: terms of a unit.
        first: the unit to begin with.
        last: the unit to end before.
    """
    for unit in range(first, last):
        begin = unit * each
        end = min(terms, begin + each)
        whole = begin + (end - begin) // 4 * 4
        for start in range(0, columns, WIDTH):
            length = min(WIDTH, columns - start)
            for row in range(count):
                target = (unit * count + row) * columns + start
                out[target : target + length] = np.float32(0)
            # Slices, for of elements at sums of indices the compiler makes no vectors: that would take 8 times as long.
            for term in range(begin, whole, 4):  # four terms for each time that a sum is read and written
                at = term * columns + start
                one, two = matrix[at : at + length], matrix[at + columns : at + columns + length]
                three, four = matrix[at + 2 * columns : at + 2 * columns + length], matrix[at + 3 * columns : at + 3 * columns + length]
                for row in range(count):
                    target, place = (unit * count + row) * columns + start, row * terms + term
                    sums = out[target : target + length]
                    a, b, c, d = x[place], x[place + 1], x[place + 2], x[place + 3]
                    for column in range(length):
                        sums[column] += (a * one[column] + b * two[column]) + (c * three[column] + d * four[column])
            for term in range(whole, end):
                line = matrix[term * columns + start : term * columns + start + length]
                for row in range(count):
                    target, factor = (unit * count + row) * columns + start, x[row * terms + term]
                    sums = out[target : target + length]
                    for column in range(length):
                        sums[column] += factor * line[column]


@kernel(*(f"void({kind}[::1], {kind}[::1], int64, int64, int64, {kind}[::1], int64, int64)" for kind in ("int32", "int64")))
def multiply_integers(a: Any, b: Any, count: int, terms: int, columns: int, out: Any, first: int, last: int) -> None:
    """Products of stacks of matrices of integers, modulo 2 to the power of their bits.

    Args:
        a: ``[stack, count, terms]``, flat.
        b: ``[stack, terms, columns]``, flat.
        count: rows of a result.
        terms: numbers of a sum.
        columns: columns of a result.
        out: ``[stack, count, columns]``, flat.
        first: the row to begin with, of all in the stack.
        last: the row to end before.
    """
    out[first * columns : last * columns] = 0
    for begin in range(first - first % count, last, count):
        matrix, rows = begin // count * terms * columns, range(max(first, begin), min(last, begin + count))
        for start in range(0, columns, WIDTH // 4):
            length = min(WIDTH // 4, columns - start)
            for some in range(0, terms, TERMS // 8):  # these lines stay in the second cache for all rows
                end = min(terms, some + TERMS // 8)
                for row in rows:
                    sums = out[row * columns + start : row * columns + start + length]
                    for term in range(some, end - 3, 4):
                        at, place = matrix + term * columns + start, row * terms + term
                        one, two = b[at : at + length], b[at + columns : at + columns + length]
                        three, four = b[at + 2 * columns : at + 2 * columns + length], b[at + 3 * columns : at + 3 * columns + length]
                        for column in range(length):
                            sums[column] += (
                                a[place] * one[column]
                                + a[place + 1] * two[column]
                                + a[place + 2] * three[column]
                                + a[place + 3] * four[column]
                            )
                    for term in range(end - (end - some) % 4, end):
                        at = matrix + term * columns + start
                        line, factor = b[at : at + length], a[row * terms + term]
                        for column in range(length):
                            sums[column] += factor * line[column]


def _make_turn(rows: int) -> Any:
    """The code that writes ``LANES`` columns of ``rows`` lines, one after another: each step zips the two halves."""

    @intrinsic  # type: ignore[untyped-decorator]
    def turn(typing_context: Any, out: Any, out_at: Any, step: Any, x: Any, x_at: Any, starts: Any) -> Any:
        """Lines begin at ``x_at`` and what ``starts`` says for each; vectors of the result are ``step`` apart."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            y, y_at, apart, given, given_at, table = arguments
            y, given, table = (data_of(context, builder, kind, each) for kind, each in ((out, y), (x, given), (starts, table)))
            number = ir.IntType(64)
            lines = []
            for row in range(rows):
                start = builder.load(builder.gep(table, [number(row)]))
                lines.append(builder.load(line_at(builder, given, builder.add(given_at, start)), align=4))
            order = [lane // 2 + LANES * (lane % 2) for lane in range(2 * LANES)]
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), half) for half in (order[:LANES], order[LANES:])]
            for _ in range(rows.bit_length() - 1):
                pairs = zip(lines[: rows // 2], lines[rows // 2 :], strict=True)
                lines = [builder.shuffle_vector(*pair, mask) for pair in pairs for mask in masks]
            for place, line in enumerate(lines):
                at = builder.add(y_at, builder.mul(apart, number(place)))
                builder.store(line, line_at(builder, y, at), align=4)
            return context.get_dummy_value()

        return types.void(out, types.intp, types.intp, x, types.intp, starts), generate

    return turn


turn_rows, turn_lines = _make_turn(ROWS), _make_turn(LANES)


@kernel(f"void({_FLOATS}, int64, int64, int64, int64, int64, {_FLOATS}, int64, {_INTS})")
def pack_rows(x: Any, at: int, row_step: int, term_step: int, count: int, terms: int, out: Any, target: int, starts: Any) -> None:
    """Rows of a matrix as ``[blocks, terms, ROWS]``; what the last block lacks is like the last row.

    Args:
        x: where the matrix lies.
        at: its first element.
        row_step: elements from one row to the next.
        term_step: elements from one column to the next.
        count: rows.
        terms: columns.
        out: where to write.
        target: the first element to write.
        starts: room for ``ROWS`` numbers.
    """
    whole = terms - terms % LANES if term_step == 1 else 0
    for row in range(0, count, ROWS):
        full = row_step == 1 and row + ROWS <= count
        for each in range(ROWS):
            starts[each] = min(row + each, count - 1) * row_step
        if full:
            for term in range(terms):
                line, given = out[target + term * ROWS :], x[at + row + term * term_step :]
                for each in range(ROWS):
                    line[each] = given[each]
        else:
            for term in range(0, whole, LANES):
                turn_rows(out, target + term * ROWS, LANES, x, at + term, starts)
            for term in range(whole, terms):
                for each in range(ROWS):
                    out[target + term * ROWS + each] = x[at + starts[each] + term * term_step]
        target += terms * ROWS


@kernel(f"void({_FLOATS}, int64, int64, int64, int64, int64, {_FLOATS}, {_INTS})")
def pack_panel(x: Any, at: int, term_step: int, column_step: int, length: int, terms: int, panel: Any, starts: Any) -> None:
    """Up to ``COLUMNS`` columns of a matrix, a line of the panel for each row.

    Args:
        x: where the matrix lies.
        at: its first element.
        term_step: elements from one row to the next.
        column_step: elements from one column to the next.
        length: columns; behind them, lines hold what nobody needs.
        terms: rows.
        panel: where to write.
        starts: room for ``LANES`` numbers.
    """
    done = 0
    if column_step == 1:  # whole vectors, but where the last would reach beyond the end of memory
        room = x.size - at + length // -LANES * LANES
        done = 0 if room < 0 else min(terms, room // max(1, term_step) + 1)
        if length > COLUMNS - LANES:
            for term in range(done):
                for lane in range(0, COLUMNS, LANES):
                    copy_line(panel, term * PITCH + lane, x, at + term * term_step + lane)
        else:
            for term in range(done):
                for lane in range(0, length, LANES):
                    copy_line(panel, term * PITCH + lane, x, at + term * term_step + lane)
    elif term_step == 1:
        done = terms - terms % LANES
        for column in range(0, length, LANES):
            for each in range(LANES):
                starts[each] = min(column + each, length - 1) * column_step
            for term in range(0, done, LANES):
                turn_lines(panel, term * PITCH + column, PITCH, x, at + term, starts)
    for term in range(done, terms):
        for column in range(length):
            panel[term * PITCH + column] = x[at + term * term_step + column * column_step]


@kernel(
    f"void({_FLOATS}, int64, int64, {_FLOATS}, int64, int64, {_FLOATS}, int64, {_TABLE}, int64, int64, int64, int64, int64, int64, int64)"
)
def multiply(
    a: Any,
    a_row: int,
    a_term: int,
    b: Any,
    b_term: int,
    b_column: int,
    out: Any,
    out_row: int,
    places: Any,
    count: int,
    terms: int,
    width: int,
    rows_each: int,
    columns_each: int,
    first: int,
    last: int,
) -> None:
    """Products of matrices ``[count, terms]`` and ``[terms, width]``, wherever they lie; a unit is some rows and columns of one of them.

    Args:
        a: where the first matrices lie.
        a_row: elements from one row of theirs to the next.
        a_term: elements from one column to the next.
        b: where the second matrices lie.
        b_term: elements from one row of theirs to the next.
        b_column: elements from one column to the next.
        out: where the results go.
        out_row: elements from one row of a result to the next.
        places: for each product, where the matrices and the result begin.
        count: rows of a result.
        terms: numbers of a sum.
        width: columns of a result.
        rows_each: rows of a unit, a multiple of ``ROWS``.
        columns_each: columns of a unit, a multiple of ``COLUMNS``.
        first: the unit to begin with.
        last: the unit to end before.
    """
    row_parts, column_parts = -(-count // rows_each), -(-width // columns_each)
    each = min(TERMS, max(1, terms))
    weights = np.empty(min(rows_each, count + ROWS) * each, np.float32)
    panel = np.empty(each * PITCH + 2 * LANES, np.float32)
    panel = panel[-(panel.ctypes.data // 4) % 16 :]
    scratch = np.zeros(ROWS * COLUMNS, np.float32)
    starts = np.empty(max(LANES, ROWS), np.int64)
    lines = np.arange(each) * b_term
    bias, nothing = np.zeros(ROWS, np.float32), np.empty(0, np.float32)
    limit = math.inf
    for unit in range(first, last):
        column_first = unit % column_parts * columns_each
        column_last = min(width, column_first + columns_each)
        row_first = unit // column_parts % row_parts * rows_each
        rows_here = min(rows_each, count - row_first)
        matrix = unit // (column_parts * row_parts)
        in_place = b_column == 1 and rows_here <= FEW_BLOCKS * ROWS
        for term in range(0, max(1, terms), each):  # sums of so many terms are added up: that halves their error
            some, more = min(each, terms - term), term > 0
            source = places[matrix, 0] + row_first * a_row + term * a_term
            pack_rows(a, source, a_row, a_term, rows_here, some, weights, 0, starts)
            for column in range(column_first, column_last, COLUMNS):
                length = min(COLUMNS, column_last - column)
                begin, kind = places[matrix, 1] + term * b_term + column * b_column, -(-length // LANES)
                if in_place and length == COLUMNS:
                    kind = 4
                else:
                    pack_panel(b, begin, b_term, b_column, length, some, panel, starts)
                    begin = 0
                for block in range(0, rows_here, ROWS):
                    rows = min(ROWS, rows_here - block)
                    at = places[matrix, 2] + (row_first + block) * out_row + column
                    whole = rows == ROWS and length % LANES == 0
                    if more and not whole:
                        for row in range(rows):
                            for lane in range(length):
                                scratch[row * COLUMNS + lane] = out[at + row * out_row + lane]
                    if whole:
                        target, target_at, stride = out, at, out_row
                    else:
                        target, target_at, stride = scratch, 0, COLUMNS
                    given = b if kind == 4 else panel
                    tile(
                        kind,
                        weights,
                        block * some,
                        given,
                        begin,
                        lines,
                        some,
                        bias,
                        0,
                        target,
                        target_at,
                        stride,
                        False,
                        more,
                        target if more else nothing,
                        -limit,
                        limit,
                    )
                    if not whole:
                        for row in range(rows):
                            for lane in range(length):
                                out[at + row * out_row + lane] = scratch[row * COLUMNS + lane]
