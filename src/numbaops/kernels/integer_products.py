"""Products of matrices of 8-bit integers by the instruction that adds four products of bytes to a sum of 32 bits, modulo 2**32.

It takes unsigned bytes from one side and signed ones from the other: those that are not so are shifted by 128, as is their zero point.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from numbaops.kernels.vectors import LANES, data_of
from numbaops.runtime.jit import kernel

AVAILABLE = (
    not numba.config.DISABLE_JIT
    and numba.config.CPU_NAME != "generic"
    and LANES == 16
    and bool(llvmlite.binding.get_host_cpu_features().get("avx512vnni"))
)
"""Whether the processor has the instruction."""

BYTE_ROWS, BYTE_COLUMNS = 8, 48
"""Sums of a tile: they, a line and a factor fit into 32 registers of 16 numbers."""

_LINE = 4 * BYTE_COLUMNS
_VECTOR, _NUMBER = ir.VectorType(ir.IntType(32), 16), ir.IntType(64)
_BYTES, _INTS = "uint8[::1]", "int32[::1]"


def _make_tile(rows: int) -> Any:
    """The code of a tile of sums: what there is of ``rows`` rows of bytes and of a panel."""

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(typing_context: Any, a: Any, at: Any, starts: Any, panel: Any, groups: Any, out: Any) -> Any:
        """Write ``[rows, BYTE_COLUMNS]`` sums; rows begin at ``at`` and what ``starts`` says, and have ``groups`` times four bytes."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, first, table, lines, count, y = arguments
            kinds = ((a, x), (starts, table), (panel, lines), (out, y))
            x, table, lines, y = (data_of(context, builder, kind, each) for kind, each in kinds)
            name = "llvm.x86.avx512.vpdpbusd.512"
            add = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), name)
            zero = ir.Constant(_VECTOR, [0] * 16)
            sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(BYTE_COLUMNS // 16)] for _ in range(rows)]
            begins = [builder.gep(x, [builder.add(first, builder.load(builder.gep(table, [_NUMBER(row)])))]) for row in range(rows)]
            undefined = ir.Constant(_VECTOR, ir.Undefined)
            with cgutils.for_range(builder, count) as loop:
                line = builder.gep(lines, [builder.mul(loop.index, _NUMBER(_LINE))])
                places = [builder.gep(line, [_NUMBER(64 * each)]) for each in range(BYTE_COLUMNS // 16)]
                given = [builder.load(builder.bitcast(place, _VECTOR.as_pointer()), align=1) for place in places]
                for row in range(rows):
                    place = builder.gep(begins[row], [builder.mul(loop.index, _NUMBER(4))])
                    four = builder.load(builder.bitcast(place, ir.IntType(32).as_pointer()), align=1)
                    spread = builder.insert_element(undefined, four, ir.Constant(ir.IntType(32), 0))
                    spread = builder.shuffle_vector(spread, undefined, zero)
                    for total, each in zip(sums[row], given, strict=True):
                        builder.store(builder.call(add, [builder.load(total), spread, each]), total)
            for row in range(rows):
                for number, total in enumerate(sums[row]):
                    place = builder.gep(y, [_NUMBER(row * BYTE_COLUMNS + 16 * number)])
                    builder.store(builder.load(total), builder.bitcast(place, _VECTOR.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(a, types.intp, starts, panel, types.intp, out), generate

    return tile


@intrinsic  # type: ignore[untyped-decorator]
def _weave(typing_context: Any, out: Any, out_at: Any, b: Any, b_at: Any, step: Any, flip: Any) -> Any:
    """Write four bytes for each of 16 columns, from four rows that are ``step`` apart; of each the bits of ``flip`` are turned."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        y, y_at, given, given_at, apart, mask = arguments
        y, given = data_of(context, builder, out, y), data_of(context, builder, b, given)
        byte = ir.IntType(8)
        rows = []
        for row in range(4):
            place = builder.gep(given, [builder.add(given_at, builder.mul(apart, _NUMBER(row)))])
            rows.append(builder.load(builder.bitcast(place, ir.VectorType(byte, 16).as_pointer()), align=1))

        def paired(first: Any, second: Any) -> Any:
            order = [place // 2 + first.type.count * (place % 2) for place in range(2 * first.type.count)]
            return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))

        pairs = [builder.bitcast(paired(*rows[each : each + 2]), ir.VectorType(ir.IntType(16), 16)) for each in (0, 2)]
        woven = builder.bitcast(paired(*pairs), ir.VectorType(byte, 64))
        undefined = ir.Constant(ir.VectorType(byte, 64), ir.Undefined)
        spread = builder.insert_element(undefined, mask, ir.Constant(ir.IntType(32), 0))
        spread = builder.shuffle_vector(spread, undefined, ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64))
        place = builder.bitcast(builder.gep(y, [y_at]), woven.type.as_pointer())
        builder.store(builder.xor(woven, spread), place, align=1)
        return context.get_dummy_value()

    return types.void(out, types.intp, b, types.intp, types.intp, types.uint8), generate


_tile, _row = _make_tile(BYTE_ROWS), _make_tile(1)


@kernel(f"void({_BYTES}, int64, int64, int64, int64, uint8, {_BYTES})")
def _pack(b: Any, terms: int, width: int, column: int, length: int, flip: int, panel: Any) -> None:
    """Some columns of a matrix, four rows next to each other; zeros for the rows that the last four lack."""
    whole = terms - terms % 4
    for term in range(0, whole, 4):
        for lane in range(0, length - 15, 16):
            _weave(panel, term // 4 * _LINE + 4 * lane, b, term * width + column + lane, width, flip)
    for term in range(-(-terms // 4) * 4):
        for lane in range(length // 16 * 16 if term < whole else 0, length):
            byte = np.uint8(b[term * width + column + lane] ^ flip) if term < terms else np.uint8(0)
            panel[term // 4 * _LINE + 4 * lane + term % 4] = byte


@kernel(f"void({_BYTES}, {_BYTES}, uint8, {_INTS}, {_INTS}, {_INTS}, int64, int64, int64, int64, int64, int64)")
def multiply_bytes(
    a: Any, b: Any, flip: int, a_zero: Any, b_zero: Any, out: Any, terms: int, pitch: int, width: int, rows_each: int, first: int, last: int
) -> None:
    """The product of two matrices of bytes without their zero points; a unit is a panel of columns and some rows.

    Args:
        a: ``[rows, pitch]``, flat, unsigned; bytes behind the terms do not count.
        b: ``[terms, width]``, flat.
        flip: what to turn in each byte of ``b`` for it to be signed.
        a_zero: the zero point of each row.
        b_zero: the zero point of each column.
        out: ``[rows, width]``, flat.
        terms: products of a sum.
        pitch: elements from one row of ``a`` to the next, a multiple of 4.
        width: columns.
        rows_each: rows of a unit.
        first: the unit to begin with.
        last: the unit to end before.
    """
    rows, groups = a_zero.size, -(-terms // 4)
    parts = -(-rows // rows_each)
    panel, ones = np.zeros(groups * _LINE, np.uint8), np.ones(4 * groups, np.uint8)
    sums, columns = np.empty(BYTE_ROWS * BYTE_COLUMNS, np.int32), np.empty(BYTE_COLUMNS, np.int32)
    starts = np.zeros(BYTE_ROWS, np.int64)
    for unit in range(first, last):
        column, row_first = unit // parts * BYTE_COLUMNS, unit % parts * rows_each
        length = min(BYTE_COLUMNS, width - column)
        _pack(b, terms, width, column, length, flip, panel)
        starts[0] = 0
        _row(ones, 0, starts, panel, groups, columns)
        zeros = b_zero[column : column + length]
        some_zero = False
        for lane in range(length):
            some_zero |= zeros[lane] != 0
        for row in range(row_first, min(rows, row_first + rows_each), BYTE_ROWS):
            some = min(BYTE_ROWS, min(rows, row_first + rows_each) - row)
            for each in range(BYTE_ROWS):
                starts[each] = min(each, some - 1) * pitch
            _tile(a, row * pitch, starts, panel, groups, sums)
            for each in range(some):
                line = a[(row + each) * pitch : (row + each) * pitch + terms]
                total = np.int32(0)
                for term in range(terms if some_zero else 0):
                    total += np.int32(line[term])
                zero = a_zero[row + each]
                total = np.int32(total - terms * zero)
                target, given = out[(row + each) * width + column :], sums[each * BYTE_COLUMNS :]
                for lane in range(length):
                    target[lane] = np.int32(given[lane] - np.int32(zero * columns[lane]) - np.int32(zeros[lane] * total))
