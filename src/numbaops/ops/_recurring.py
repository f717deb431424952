"""RNN, GRU and LSTM by the kernel of ``numbaops.kernels.recurrent``: weights laid out for it, and how it is called."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from numbaops.ops._activations import Named
from numbaops.ops.base import Array
from numbaops.runtime import memory
from numbaops.runtime.threads import split

_FLOAT32 = np.dtype(np.float32)
_NO_LENGTHS = np.empty(0, np.int64)
_KINDS = {"sigmoid": 0, "tanh": 1, "relu": 2, "hardsigmoid": 3, "affine": 4}
"""The activations that the kernel has, by its numbers for them."""

_LINE = 64
"""Bytes of a cache line, at which vectors begin: one that lies in two takes twice as long."""


def served(activations: Sequence[Sequence[Named]]) -> bool:
    """Whether the kernel has all of these activations, and there are kernels."""
    if any(each.name not in _KINDS for some in activations for each in some):
        return False
    from numbaops.kernels import recurrent

    return recurrent.AVAILABLE


class LaidOut:
    """The weights of all directions, laid out once.

    Args:
        w: ``[directions, gates * hidden, inputs]``, float32.
        r: ``[directions, gates * hidden, hidden]``, float32.
        b: ``[directions, 2 * gates * hidden]``, float32, or None for zeros.
        p: peepholes, ``[directions, 3 * hidden]``, float32, or None.
        activations: those of each direction, all of them served.
        clip: the bound of what enters the gates, or None.
        reverse: whether the first direction runs backwards.
        linear: whether a GRU resets the product of its candidate, not the state.
        coupled: whether an LSTM forgets what it does not take in.
    """

    @np.errstate(all="ignore")
    def __init__(
        self,
        w: Array,
        r: Array,
        b: Array | None,
        p: Array | None,
        activations: Sequence[Sequence[Named]],
        clip: float | None,
        *,
        reverse: bool,
        linear: bool,
        coupled: bool,
    ) -> None:
        from numbaops.kernels import recurrent

        self.ways, columns, self.inputs = w.shape
        self.hidden = r.shape[2]
        self._kernel: Any = recurrent.recur
        gates = columns // self.hidden if self.hidden else 1
        width = recurrent.WIDTH
        parts = [2 * self.hidden, self.hidden] if gates == 3 else [columns]  # the products of a GRU's candidate wait for its gates
        padded = [-(-part // width) * width for part in parts]
        self._columns = total = sum(padded)
        biases = (self.inputs + self.hidden) * total
        after = biases + total
        size = after + (padded[-1] if gates == 3 else 0 if p is None else 3 * self.hidden)
        size += -size % (_LINE // 4)
        room = np.empty(self.ways * size + _LINE // 4, np.float32)
        start = -room.ctypes.data % _LINE // 4
        self._weights = room[start : start + self.ways * size].reshape(self.ways, size)
        bias = np.zeros((self.ways, 2, columns), np.float32) if b is None else b.reshape(self.ways, 2, columns)
        given = [(matrix if matrix.flags.carray else np.array(matrix, order="C")).reshape(-1) for matrix in (w, r)]
        lay_out: Any = recurrent.lay_out_columns
        for way, target in enumerate(self._weights):
            target[biases:] = 0
            at = 0
            for matrix, terms in zip(given, (self.inputs, self.hidden), strict=True):
                source = way * columns * terms
                for part, room_of_part in zip(parts, padded, strict=True):
                    lay_out(matrix, source, part, terms, target, at)
                    source += part * terms
                    at += room_of_part * terms
            joined = bias[way, 0] + bias[way, 1]
            if gates == 3:
                begin = 2 * self.hidden
                if linear:
                    joined[begin:] = bias[way, 0, begin:]
                    target[after : after + self.hidden] = bias[way, 1, begin:]
                target[biases + padded[0] : biases + padded[0] + self.hidden] = joined[begin:]
                joined = joined[:begin]
            target[biases : biases + len(joined)] = joined
            if p is not None:
                target[after : after + 3 * self.hidden] = p[way]
        # an RNN has one activation and a GRU two: what stands for the others is not read
        kinds, factors = np.zeros((self.ways, 3), np.int64), np.zeros((self.ways, 3, 2), np.float32)
        for way, some in enumerate(activations):
            for number, each in enumerate(some):
                kinds[way, number] = _KINDS[each.name]
                factors[way, number] = each.alpha or 0, each.beta or 0
        self._before = (self._weights, kinds, factors, math.inf if clip is None else clip)
        self._after = (gates, reverse, linear, p is not None, coupled)

    def __call__(self, x: Array, lengths: Array | None, states: Sequence[Array]) -> Array:
        """Run over time.

        Args:
            x: ``[steps, batch, inputs]``, float32.
            lengths: how many steps each sequence has, None for all.
            states: the first states, ``[directions, batch, hidden]`` of float32, which become the last.

        Returns:
            The outputs, ``[steps, directions, batch, hidden]``.
        """
        steps, batch, inputs = x.shape
        shape = (steps, self.ways, batch, self.hidden)
        y = memory.empty(shape, _FLOAT32, 4 * math.prod(shape))[0]
        given = x if x.flags.carray else np.array(x, order="C")  # one that is read-only would be another type for Numba
        ends = _NO_LENGTHS if lengths is None else np.array(lengths, np.int64)
        each = 2 if batch > 1 else 1  # a thread reads all weights at each step, for one sequence as for two
        kernel, units = self._kernel, self.ways * -(-batch // each)
        if units == 1:  # one step of one sequence takes 8 us, of which a closure and a look at the sizes would be a tenth
            kernel(given, *self._before, ends, states[0], states[-1], y, *self._after, each, 0, 1)
            return y
        fixed = (given, *self._before, ends, states[0], states[-1], y, *self._after, each)
        work = 2 * each * steps * self._columns * (inputs + self.hidden)
        split(lambda first, last: kernel(*fixed, first, last), units, work, shares=1)
        return y
