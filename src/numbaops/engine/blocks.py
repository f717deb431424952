"""Chains of element-wise nodes over large arrays, run block by block: what lies between two nodes stays in the cache."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbaops.engine.values import mixed
from numbaops.runtime import memory
from numbaops.runtime.threads import split

Array = np.ndarray[Any, Any]
Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""Dtype and shape."""

BLOCK = 1 << 18
"""Bytes of a block: a few of them fit into the second cache, and NumPy takes longer for it than Python to ask for it."""

LONE = 1 << 21
"""The same of a chain of one node, between which and the next nothing lies: it is a share for a thread."""


@dataclass(frozen=True)
class Link:
    """One node of a chain.

    Attributes:
        function: what it calls.
        ufunc: whether that is NumPy's own.
        formula: the same as an expression, see :mod:`.formulas`; None if there is none.
        inputs: names of its inputs.
        output: the name of its output.
    """

    function: Callable[..., Any]
    ufunc: bool
    formula: str | None
    inputs: tuple[str, ...]
    output: str


class Blocks:
    """A chain ready to run.

    Args:
        links: the nodes in order.
        inputs: names of what the chain takes.
        kinds: the dtype and shape of each input.
        shape: of every result.
        dtype: of the last result.
    """

    def __init__(
        self,
        links: Sequence[Link],
        inputs: Sequence[str],
        kinds: Sequence[Kind],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._kinds, self._shape, self._dtype = list(kinds), shape, dtype
        slots = {name: number for number, name in enumerate(inputs)}
        self._program: list[tuple[Callable[..., Any], bool, list[int], list[int]]] = []
        count = len(inputs)
        for link in links:
            arguments = [slots[name] for name in link.inputs]
            # of the slots of a chain, each result is for the next node alone
            self._program.append((link.function, link.ufunc, arguments, [slot for slot in set(arguments) if slot >= len(inputs)]))
            slots[link.output] = count
            count += 1

    def __call__(self, *values: Array) -> Array:
        if any((value.dtype, value.shape) != kind for value, kind in zip(values, self._kinds, strict=True)):
            return self._run(list(values))  # a shape depends on values
        if not all(value.flags.c_contiguous for value in values):
            return self._run(list(values))  # NumPy's results keep the layout, and sums over them their order
        out = memory.empty(self._shape, self._dtype, math.prod(self._shape) * self._dtype.itemsize)[0]
        given = list(values)
        shape = self._shape
        if all(value.size == 1 or (value.shape == shape and value.flags.c_contiguous) for value in given):
            shape = (math.prod(shape),)
            given = [value.reshape(-1) for value in given]
        rank = len(shape)
        given = [value.reshape((1,) * (rank - value.ndim) + value.shape) for value in given]
        target = out.reshape(shape)
        block = BLOCK if len(self._program) > 1 else LONE
        most = block // max(value.itemsize for value in (*given, out))
        axis = next(axis for axis in range(rank) if math.prod(shape[axis + 1 :]) <= most)
        rows = max(1, most // math.prod(shape[axis + 1 :]))
        chunks = -(-shape[axis] // rows)
        rows = -(-shape[axis] // chunks)  # all of about one size: a few elements may take another way through a function

        def work(first: int, last: int) -> None:
            for number in range(first, last):
                lead, chunk = divmod(number, chunks)
                outer = np.unravel_index(lead, shape[:axis]) if axis else ()
                place = (*(slice(at, at + 1) for at in outer), slice(chunk * rows, min(chunk * rows + rows, shape[axis])))
                parts = [
                    value[tuple(part if size > 1 else slice(None) for part, size in zip(place, value.shape, strict=False))]
                    for value in given
                ]
                self._run(parts, target[place])

        context = contextvars.copy_context()  # NumPy's error state is the caller's in every thread

        def share(first: int, last: int) -> None:
            context.copy().run(work, first, last)

        split(share, math.prod(shape[:axis]) * chunks, 8 * rows * math.prod(shape[axis + 1 :]) * len(self._program))
        return out

    def _run(self, values: list[Any], out: Array | None = None) -> Array:
        last = len(self._program) - 1
        result: Any = None
        for number, (function, ufunc, arguments, dying) in enumerate(self._program):
            taken = [values[slot] for slot in arguments]
            for slot in dying:
                values[slot] = None
            if ufunc and number == last and out is not None:
                return function(*taken, out=out)  # type: ignore[no-any-return]
            result = mixed(function, *taken) if ufunc and len(taken) == 2 else function(*taken)  # type: ignore[arg-type]
            values.append(result)
            del taken
        if out is None:
            return np.asarray(result)
        out[...] = result
        return out
