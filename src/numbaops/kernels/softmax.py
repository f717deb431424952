"""Softmax and LogSoftmax along rows, and along columns of matrices, of float32.

The sum is one of float32 over at most ``BLOCK`` terms, in as many parts as vectors have lanes, and of float64 over these sums. A NaN
makes all of its row NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from numbaops.kernels.functions import chosen, exp_of_negative
from numbaops.kernels.quantization import keep_float32, round_bfloat16, round_float16
from numbaops.runtime.jit import kernel

AVAILABLE = not numba.config.DISABLE_JIT
"""Whether the functions are there; without the JIT, they do not run."""

Rounding = Callable[[Any], Any]

BLOCK = 256
"""Terms of a sum of float32, and columns that are worked on at once."""

SHORT = 32
"""Numbers below which rows are turned into columns: a row by itself takes 0.1 us, and most of a vector would be for nothing."""

TERMS = 32
"""Rows of a matrix whose sum is one of float32."""

_FLOATS = "float32[::1]"
_LEAST, _SIZE, _SIGN = np.int32(-0x80000000), np.int32(0x7FFFFFFF), np.int32(31)
_ZERO, _LOWEST = np.float32(0), np.float32(-np.inf)


@intrinsic  # type: ignore[untyped-decorator]
def added(typing_context: Any, a: Any, b: Any) -> Any:
    """``a + b`` of a sum whose order LLVM may choose: then it makes vectors of it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments, flags=("reassoc",))

    return types.float32(types.float32, types.float32), generate


@kernel("int32(int32)")
def _ordered(bits: Any) -> Any:
    """Bits of float32 as integers in the same order, and back; NaN is beyond infinity."""
    return np.int32(bits ^ np.int32(np.int32(bits >> _SIGN) & _SIZE))


@kernel(f"float32({_FLOATS}, {_FLOATS})")
def copy_and_find_largest(x: Any, out: Any) -> Any:
    """Copy numbers and return the largest; of those with NaN a NaN, or the largest of the others. ``out`` may be ``x``."""
    bits, copied = x.view(np.int32), out.view(np.int32)
    largest = _LEAST
    for i in range(copied.size):
        word = bits[i]
        copied[i] = word
        key = _ordered(word)
        largest = key if key > largest else largest
    return np.int32(_ordered(largest)).view(np.float32)


def _make_softmax_row(rounded: Rounding, name: str) -> Any:
    # what lies between two steps is rounded
    @kernel(f"void({_FLOATS}, float32)", key=(name,))
    def softmax_row(row: Any, largest: Any) -> None:
        """Softmax of a row whose largest number is known, in place."""
        total = 0.0
        for start in range(0, row.size, BLOCK):
            part = row[start : start + BLOCK]
            block = _ZERO
            for i in range(part.size):
                power = rounded(exp_of_negative(rounded(np.float32(part[i] - largest))))
                part[i] = power
                block = added(block, power)
            total += np.float64(block)
        factor = np.float32(1.0 / np.float64(rounded(np.float32(total))) if total > 0.0 else np.nan)
        for i in range(row.size):
            row[i] = np.float32(row[i] * factor)

    return softmax_row


softmax_row = _make_softmax_row(keep_float32, "keep")


@kernel(f"void({_FLOATS}, float32)")
def log_softmax_row(row: Any, largest: Any) -> None:
    """LogSoftmax of a row whose largest number is known, in place."""
    total = 0.0
    for start in range(0, row.size, BLOCK):
        part = row[start : start + BLOCK]
        block = _ZERO
        for i in range(part.size):
            shifted = np.float32(part[i] - largest)
            part[i] = shifted
            block = added(block, exp_of_negative(shifted))
        total += np.float64(block)
    logarithm = np.float32(np.log(total))
    for i in range(row.size):
        row[i] = np.float32(row[i] - logarithm)


def _make_columns(rounded: Rounding, logarithmic: bool, name: str) -> Any:
    """Softmax or LogSoftmax along the columns of matrices; what lies between two steps is ``rounded``.

    Returns:
        ``columns(x, count, width, out, first, last)``: for the blocks of columns from ``first`` to ``last``, counted through all
        matrices of ``count`` rows of ``width``.
    """

    @kernel(f"void({_FLOATS}, int64, int64, {_FLOATS}, int64, int64)", key=(name,))
    def columns(x: Any, count: int, width: int, out: Any, first: int, last: int) -> None:
        blocks = -(-width // BLOCK)
        largest, sums, totals = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float64)
        for number in range(first, last):
            column = number % blocks * BLOCK
            begin, size = number // blocks * count * width + column, min(BLOCK, width - column)
            end = begin + count * width
            most, block, total = largest[:size], sums[:size], totals[:size]
            most[:], block[:], total[:] = _LOWEST, _ZERO, 0.0
            for start in range(begin, end, width):
                line = x[start : start + size]
                for i in range(size):
                    most[i] = chosen(most[i] >= line[i], most[i], line[i])
            for start in range(begin, end, width):
                line, target = x[start : start + size], out[start : start + size]
                for i in range(size):
                    shifted = rounded(np.float32(line[i] - most[i]))
                    power = rounded(exp_of_negative(shifted))
                    target[i] = shifted if logarithmic else power
                    block[i] += power
                if (start - begin) // width % TERMS == TERMS - 1:
                    for i in range(size):
                        total[i] += np.float64(block[i])
                    block[:] = _ZERO
            for i in range(size):
                whole = total[i] + np.float64(block[i])
                if logarithmic:
                    block[i] = np.float32(np.log(whole))
                else:
                    block[i] = np.float32(1.0 / np.float64(rounded(np.float32(whole))) if whole > 0.0 else np.nan)
            for start in range(begin, end, width):
                target = out[start : start + size]
                for i in range(size):
                    target[i] = np.float32(target[i] - block[i]) if logarithmic else np.float32(target[i] * block[i])

    return columns


def _make_rows(function: Any, columns: Any, name: str) -> Any:
    """A function along rows.

    Args:
        function: for one row whose largest number is known, in place.
        columns: the same along columns.
        name: determines both.

    Returns:
        ``rows(x, count, out, first, last)``: for the rows from ``first`` to ``last`` of ``count`` numbers each; ``out`` is like ``x``.
    """

    @kernel(f"void({_FLOATS}, int64, {_FLOATS}, int64, int64)", key=(name,))
    def rows(x: Any, count: int, out: Any, first: int, last: int) -> None:
        if count >= SHORT:
            for start in range(first * count, last * count, count):
                row = out[start : start + count]
                function(row, copy_and_find_largest(x[start : start + count], row))
            return
        lines, results = np.empty(count * BLOCK, np.float32), np.empty(count * BLOCK, np.float32)
        for begin in range(first, last, BLOCK):
            size = min(BLOCK, last - begin)
            given, target = x[begin * count : (begin + size) * count], out[begin * count : (begin + size) * count]
            for term in range(count):
                line = lines[term * size : term * size + size]
                for row in range(size):
                    line[row] = given[row * count + term]
            columns(lines[: size * count], count, size, results[: size * count], 0, 1)
            for term in range(count):
                line = results[term * size : term * size + size]
                for row in range(size):
                    target[row * count + term] = line[row]

    return rows


_ROUNDINGS = {"float32": keep_float32, "float16": round_float16, "bfloat16": round_bfloat16}

softmax_columns = {name: _make_columns(rounded, False, name) for name, rounded in _ROUNDINGS.items()}
"""By the type to which each step is rounded."""
softmax_rows = {name: _make_rows(_make_softmax_row(rounded, name), softmax_columns[name], name) for name, rounded in _ROUNDINGS.items()}
log_softmax_columns = _make_columns(keep_float32, True, "log")
log_softmax_rows = _make_rows(log_softmax_row, log_softmax_columns, "log")
