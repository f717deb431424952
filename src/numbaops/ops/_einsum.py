"""Equations of Einsum that are products of stacks of matrices, by the kernel that multiplies these wherever they lie."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from numbaops.ops._products import LEAST_ROWS, MATRIX_FROM, multiply_into
from numbaops.ops.base import Array
from numbaops.runtime import memory

_FLOAT32 = np.dtype(np.float32)


class _Product(NamedTuple):
    """An equation as a product of stacks of matrices; indices are letters, those of an ellipsis are numbers as text.

    Attributes:
        first: the indices of the first factor.
        second: those of the second.
        result: those of the result.
        stack: indices of the result that stay.
        rows: neighbours in the result that only the first factor has.
        terms: indices that are summed over.
        columns: the last indices of the result, which only the second factor has.
        swapped: whether the first factor is the second operand.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    result: tuple[str, ...]
    stack: tuple[str, ...]
    rows: tuple[str, ...]
    terms: tuple[str, ...]
    columns: tuple[str, ...]
    swapped: bool


def _indices(term: str, rank: int) -> tuple[str, ...] | None:
    """The indices of an operand, one a dimension; None if they do not fit."""
    before, dots, behind = term.partition("...")
    covered = rank - len(before) - len(behind)
    if covered < 0 or (covered and not dots) or not (before + behind + "a").isalpha():
        return None
    names = (*before, *(str(place - covered) for place in range(covered)), *behind)
    return names if len(set(names)) == len(names) else None


def _run(names: Sequence[str], of: set[str]) -> tuple[str, ...]:
    """The last neighbours among the names that are of a set."""
    stop = max((place + 1 for place, name in enumerate(names) if name in of), default=0)
    start = stop
    while start and names[start - 1] in of:
        start -= 1
    return tuple(names[start:stop])


@functools.lru_cache(maxsize=256)
def _product_of(equation: str, ranks: tuple[int, int]) -> _Product | None:
    """The equation as a product of matrices; None if it is something else, or wrong."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != 2:
        return None
    first, second = (_indices(*each) for each in zip(terms, ranks, strict=True))
    if first is None or second is None:
        return None
    dots = sorted({name for name in (*first, *second) if name[0] == "-"}, key=int)
    if not arrow:
        output = "..." * bool(dots) + "".join(sorted(name for name in set(first) ^ set(second) if name[0] != "-"))
    result = _indices(output, len(output.replace("...", "")) + len(dots) * ("..." in output))
    if result is None or set(result) - {*first, *second} or set(dots) - set(result):
        return None
    swapped = bool(result) and result[-1] in first
    if swapped:
        first, second = second, first
    left, right, both = set(first) - set(second), set(second) - set(first), set(first) & set(second)
    rows, columns = _run(result, left), _run(result, right)
    summed = tuple(name for name in second if name in both - set(result))
    if not rows or not summed or columns[-1:] != result[-1:] or (left | right) - set(result):
        return None
    stack = tuple(name for name in result if name not in (*rows, *columns))
    return _Product(first, second, result, stack, rows, summed, columns, swapped)


def contracted(equation: str, a: Array, b: Array) -> Array | None:
    """Einsum of two operands of float32 by the kernel; None where that does not serve."""
    if a.dtype != np.float32 or b.dtype != np.float32:
        return None
    product = _product_of(equation, (a.ndim, b.ndim))
    if product is None:
        return None
    if product.swapped:
        a, b = b, a
    sizes = dict(zip(product.second, b.shape, strict=True))
    for name, size in zip(product.first, a.shape, strict=True):
        if sizes.setdefault(name, size) != size:
            if 1 not in (size, sizes[name]) or name in product.terms:
                return None
            sizes[name] = max(size, sizes[name])  # neither is 0, which goes with 1 too
    count, terms, width = (math.prod(sizes[name] for name in names) for names in (product.rows, product.terms, product.columns))
    shape = tuple(sizes[name] for name in product.result)
    if math.prod(shape) * terms < MATRIX_FROM or count < LEAST_ROWS:
        return None
    from numbaops.kernels import products

    if not products.AVAILABLE:
        return None
    result = memory.empty(shape, _FLOAT32, 4 * math.prod(shape))[0]
    stack = tuple(sizes[name] for name in product.stack)
    multiply_into(
        _matrices(a, product.first, product.stack, (product.rows, product.terms), (*stack, count, terms)),
        _matrices(b, product.second, product.stack, (product.terms, product.columns), (*stack, terms, width)),
        _matrices(result, product.result, product.stack, (product.rows, product.columns), (*stack, count, width)),
    )
    return result


def _matrices(
    x: Array, names: tuple[str, ...], stack: tuple[str, ...], matrix: tuple[tuple[str, ...], tuple[str, ...]], shape: tuple[int, ...]
) -> Array:
    """An operand as a stack of matrices: a view, unless the indices of one dimension lie apart."""
    own = tuple(name for name in stack if name in names)
    x = x.transpose([names.index(name) for name in (*own, *matrix[0], *matrix[1])])
    sizes = iter(x.shape)
    x = x.reshape([next(sizes) if name in own else 1 for name in stack] + list(shape[len(stack) :]))
    return np.broadcast_to(x, shape) if x.shape != shape else x
