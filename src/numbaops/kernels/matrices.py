"""Matrices laid out for tiles of sums, and products of the few rows for which a tile would be mostly empty."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbaops.kernels.vectors import LANES, ROWS, dots_of_lanes
from numbaops.runtime.jit import kernel

_FLOATS = "float32[::1]"


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
            dots_of_lanes(matrix, at, x, row * terms, LANES, vectors, sums)
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
