"""Sums of products for a few rows and a panel of columns at once.

A panel is ``[terms, WIDTH]`` of a matrix's columns, so that all lines lie one behind the other.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from numbaops.kernels.vectors import AVAILABLE, LANES, ROWS

__all__ = ["AVAILABLE", "MOST", "WIDTH", "sums_1", "sums_2", "sums_most"]

_VECTORS = 4
WIDTH = _VECTORS * LANES
"""Columns of a panel: one row's sums are enough not to wait for each other."""

MOST = ROWS // 2
"""Rows of the largest tile: its sums, a line and a factor fit into the registers."""

_INT = ir.IntType(64)


def _make_sums(rows: int) -> Any:
    """The code that adds the products of ``rows`` rows and a panel to sums in memory."""
    vector = ir.VectorType(ir.FloatType(), LANES)

    @intrinsic  # type: ignore[untyped-decorator]
    def sums(
        typing_context: Any, x: Any, x_at: Any, apart: Any, panels: Any, at: Any, terms: Any, out: Any, out_at: Any, stride: Any
    ) -> Any:
        """Rows of ``x`` are ``apart`` and have ``terms`` numbers; rows of ``out`` are ``stride`` apart."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given, given_at, between, weights, weights_at, count, result, result_at, result_step = arguments
            arrays = ((x, given, given_at), (panels, weights, weights_at), (out, result, result_at))
            a, b, y = (builder.gep(context.make_array(kind)(context, builder, array).data, [start]) for kind, array, start in arrays)
            multiply_add = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{LANES}f32")
            undefined = ir.Constant(vector, ir.Undefined)
            first_lane = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)

            def line(base: Any, offset: Any, number: int) -> Any:
                return builder.bitcast(builder.gep(base, [builder.add(offset, _INT(number * LANES))]), vector.as_pointer())

            starts = [builder.mul(between, _INT(row)) for row in range(rows)]
            targets = [builder.mul(result_step, _INT(row)) for row in range(rows)]
            totals = [[cgutils.alloca_once(builder, vector) for _ in range(_VECTORS)] for _ in range(rows)]
            for row in range(rows):
                for number in range(_VECTORS):
                    builder.store(ir.Constant(vector, [0.0] * LANES), totals[row][number])
            with cgutils.for_range(builder, count) as loop:
                place = builder.mul(loop.index, _INT(WIDTH))
                lines = [builder.load(line(b, place, number), align=4) for number in range(_VECTORS)]
                for row in range(rows):
                    factor = builder.load(builder.gep(a, [builder.add(starts[row], loop.index)]))
                    factors = builder.insert_element(undefined, factor, ir.Constant(ir.IntType(32), 0))
                    factors = builder.shuffle_vector(factors, undefined, first_lane)
                    for total, each in zip(totals[row], lines, strict=True):
                        builder.store(builder.call(multiply_add, [factors, each, builder.load(total)]), total)
            for row in range(rows):
                for number, total in enumerate(totals[row]):
                    target = line(y, targets[row], number)
                    builder.store(builder.fadd(builder.load(target, align=4), builder.load(total)), target, align=4)
            return context.get_dummy_value()

        return types.void(x, *(types.intp,) * 2, panels, *(types.intp,) * 2, out, *(types.intp,) * 2), generate

    return sums


sums_1, sums_2, sums_most = _make_sums(1), _make_sums(2), _make_sums(MOST)
