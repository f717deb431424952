"""Kernels for chains of element-wise formulas, generated: each number is read once, and what lies between two formulas is a register."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np

from numbaops.kernels import functions
from numbaops.runtime.jit import kernel

_OPERANDS = {"f": "float32[::1]", "b": "boolean[::1]"}

_SOURCE = """\
def chain({operands}, out, strides, middle, inner, segments, step, first, last):
    for unit in range(first, last):
        row = unit // segments
        begin = unit % segments * step
        count = min(step, inner - begin)
        outer = row // middle
        within = row % middle
        result = out[row * inner + begin : row * inner + begin + count]
{places}
        for i in range(count):
{elements}
{steps}
            result[i] = t{last}
"""


@kernel("float32(float32, float32)")
def larger(a: Any, b: Any) -> Any:
    """The larger number; NaN if one is NaN."""
    return functions.chosen(a >= b, a, functions.chosen(a != a, a, b))


@kernel("float32(float32, float32)")
def smaller(a: Any, b: Any) -> Any:
    """The smaller number; NaN if one is NaN."""
    return functions.chosen(a <= b, a, functions.chosen(a != a, a, b))


@functools.lru_cache(maxsize=256)
def make_chain(formulas: tuple[str, ...], kinds: str, held: tuple[bool, ...]) -> tuple[Any, str]:
    """The kernel of a chain, and the signature to compile it for.

    It is called with the operands, flat, ``out``, flat, ``strides`` of ``[operands, 2]``, the elements of the middle and the inner
    dimension, the segments of an inner dimension and their elements, and the units from which and before which to work: a unit is a
    segment. Operand ``i`` begins, for outer index ``o`` and middle index ``m``, at ``o * strides[i, 0] + m * strides[i, 1]``.

    Args:
        formulas: Python expressions of float32; ``x0``, ``x1``, ... are elements of the operands, ``t0``, ``t1``, ... the results of
            the formulas before. The last one is the result.
        kinds: for each operand ``f`` for float32 or ``b`` for booleans.
        held: for each operand whether it has one element for the whole inner dimension.
    """
    places, elements = [], []
    for number, hold in enumerate(held):
        start = f"outer * strides[{number}, 0] + within * strides[{number}, 1]"
        if hold:
            places.append(f"x{number} = given{number}[{start}]")
        else:
            places.append(f"line{number} = given{number}[{start} + begin : {start} + begin + count]")
            elements.append(f"x{number} = line{number}[i]")
    steps = [f"t{number} = np.float32({formula})" for number, formula in enumerate(formulas)]
    source = _SOURCE.format(
        operands=", ".join(f"given{number}" for number in range(len(held))),
        places="\n".join(8 * " " + line for line in places),
        elements="\n".join(12 * " " + line for line in elements),
        steps="\n".join(12 * " " + line for line in steps),
        last=len(formulas) - 1,
    )
    digest = hashlib.sha256(f"{source}{kinds}".encode()).hexdigest()[:16]
    known = {**vars(functions), "np": np, "larger": larger, "smaller": smaller, "__name__": __name__}
    exec(compile(source, f"<chain {digest}>", "exec"), known)
    signature = f"void({', '.join(_OPERANDS[kind] for kind in kinds)}, float32[::1], int64[:, ::1], {', '.join(['int64'] * 6)})"
    return kernel(key=(digest,))(known["chain"]), signature
