"""RotaryEmbedding: pairs of elements of each head, rotated by the angle of their position."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbaops.runtime.jit import kernel

_FLOATS, _INTS = "float32[::1]", "int64[::1]"


@kernel(f"void({_FLOATS}, {_INTS}, {_FLOATS}, {_INTS}, {_FLOATS}, {_INTS}, {_FLOATS}, {_INTS}, {_INTS}, boolean, int64, int64)")
def rotate(
    x: Any,
    x_steps: Any,
    cos: Any,
    cos_steps: Any,
    sin: Any,
    sin_steps: Any,
    out: Any,
    out_steps: Any,
    sizes: Any,
    interleaved: bool,
    first: int,
    last: int,
) -> None:
    """The heads from ``first`` to ``last``, counted through batches, and heads and the sequence in the order of memory.

    Arrays lie anywhere, with elements of a head next to each other; their steps are those of the three dimensions in that order.

    Args:
        x: the heads.
        x_steps: their steps.
        cos: cosines.
        cos_steps: their steps.
        sin: sines.
        sin_steps: their steps.
        out: the result.
        out_steps: its steps.
        sizes: the second and third of the dimensions, pairs that are rotated, elements of a head.
        interleaved: whether pairs are neighbours; else an element of the first half goes with one of the second.
        first: the head to begin with.
        last: the head to end before.
    """
    middle, inner, half, size = sizes
    places = np.empty(4, np.int64)
    for number in range(first, last):
        last_place, place, batch = number % inner, number // inner % middle, number // (inner * middle)
        for each, steps in enumerate((x_steps, cos_steps, sin_steps, out_steps)):
            places[each] = batch * steps[0] + place * steps[1] + last_place * steps[2]
        line, target = x[places[0] : places[0] + size], out[places[3] : places[3] + size]
        cosines, sines = cos[places[1] : places[1] + half], sin[places[2] : places[2] + half]
        if interleaved:
            for pair in range(half):
                real, imaginary = line[2 * pair], line[2 * pair + 1]
                target[2 * pair] = cosines[pair] * real - sines[pair] * imaginary
                target[2 * pair + 1] = sines[pair] * real + cosines[pair] * imaginary
        else:
            second, target_second = line[half:], target[half:]
            for pair in range(half):
                real, imaginary = line[pair], second[pair]
                target[pair] = cosines[pair] * real - sines[pair] * imaginary
                target_second[pair] = sines[pair] * real + cosines[pair] * imaginary
        rest, target_rest = line[2 * half :], target[2 * half :]
        for element in range(size - 2 * half):
            target_rest[element] = rest[element]
