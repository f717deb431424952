"""RNN, GRU and LSTM over all steps: products of inputs for some steps at a time, then step by step those of the states, and the gates."""

from __future__ import annotations

from typing import Any

import numpy as np

from numbaops.kernels import functions
from numbaops.kernels.matrices import turn_lines
from numbaops.kernels.recurrent_vectors import AVAILABLE, MOST, WIDTH, sums_1, sums_2, sums_most
from numbaops.kernels.vectors import LANES
from numbaops.runtime.jit import kernel

__all__ = ["AFFINE", "AVAILABLE", "HARD_SIGMOID", "RELU", "SIGMOID", "TANH", "WIDTH", "lay_out_columns", "recur"]

SIGMOID, TANH, RELU, HARD_SIGMOID, AFFINE = range(5)
"""Activations that the kernels have."""

AHEAD = 64
"""Rows of inputs of which the products are made at once: their sums stay in the second cache, and weights are read once for all."""

TERMS = 128
"""Terms of a sum that is made by itself, as the error of sums grows with their length."""

_FLOATS, _INTS, _FACTORS, _STATES = "float32[::1]", "int64[::1]", "float32[:, ::1]", "float32[:, :, ::1]"
_ZERO, _ONE = np.float32(0), np.float32(1)
_NO_CLIP: Any = np.float32(np.inf)


@kernel(f"void({_FLOATS}, int64, int64, int64, {_FLOATS}, int64)")
def lay_out_columns(w: Any, at: int, count: int, terms: int, out: Any, target: int) -> None:
    """The transpose of a matrix as panels ``[terms, WIDTH]``; columns that the last one lacks are like the last.

    Args:
        w: where the matrix lies, ``[count, terms]``.
        at: its first element.
        count: its rows, columns of the panels.
        terms: its columns.
        out: where to write.
        target: the first element to write.
    """
    starts = np.empty(LANES, np.int64)
    whole = terms - terms % LANES
    for row in range(0, -(-count // WIDTH) * WIDTH, LANES):
        for lane in range(LANES):
            starts[lane] = at + min(row + lane, count - 1) * terms
        place = target + row // WIDTH * WIDTH * terms + row % WIDTH
        for term in range(0, whole, LANES):
            turn_lines(out, place + term * WIDTH, WIDTH, w, term, starts)
        for term in range(whole, terms):
            for lane in range(LANES):
                out[place + term * WIDTH + lane] = w[starts[lane] + term]


@kernel(f"void({_FLOATS}, int64, int64, int64, {_FLOATS}, int64, {_FLOATS}, int64)")
def _add_products(x: Any, apart: int, rows: int, terms: int, panels: Any, columns: int, out: Any, stride: int) -> None:
    """Add the products of ``rows`` rows, which are ``apart``, and panels of ``columns`` columns to rows that are ``stride`` apart."""
    whole, even = rows - rows % MOST, rows - rows % 2
    for column in range(0, columns, WIDTH):
        for term in range(0, terms, TERMS):
            panel, some = column * terms + term * WIDTH, min(TERMS, terms - term)
            for row in range(0, whole, MOST):
                sums_most(x, row * apart + term, apart, panels, panel, some, out, column + row * stride, stride)
            for row in range(whole, even, 2):
                sums_2(x, row * apart + term, apart, panels, panel, some, out, column + row * stride, stride)
            for row in range(even, rows):
                sums_1(x, row * apart + term, apart, panels, panel, some, out, column + row * stride, stride)


@kernel(f"void({_FLOATS}, {_FLOATS})")
def _copy(source: Any, target: Any) -> None:
    """Copy what the source has. The assignment of a slice would take three times as long to compile."""
    for place in range(source.size):
        target[place] = source[place]


@kernel(f"void({_FLOATS})")
def _clear(x: Any) -> None:
    for place in range(x.size):
        x[place] = _ZERO


@kernel(f"void(int64, {_FLOATS}, float32, {_FLOATS})")
def _activate(kind: int, factors: Any, clip: float, x: Any) -> None:
    """Replace numbers, no larger than ``clip``, by the value of an activation for them."""
    if clip < np.inf:
        for place in range(x.size):
            value = clip if x[place] > clip else x[place]
            x[place] = -clip if value < -clip else value
    if kind == SIGMOID:
        for place in range(x.size):
            x[place] = functions.sigmoid(x[place])
    elif kind == TANH:
        for place in range(x.size):
            x[place] = functions.tanh(x[place])
    elif kind == RELU:
        for place in range(x.size):
            x[place] = _ZERO if x[place] < _ZERO else x[place]
    else:
        for place in range(x.size):
            x[place] = np.float32(factors[0] * x[place]) + factors[1]
        if kind == HARD_SIGMOID:
            for place in range(x.size):
                value = _ONE if x[place] > _ONE else x[place]
                x[place] = _ZERO if value < _ZERO else value


@kernel(f"void({_INTS}, {_FACTORS}, float32, {_FLOATS}, {_FLOATS}, {_FLOATS}, {_FLOATS}, boolean, boolean)")
def _lstm(kinds: Any, factors: Any, clip: float, sums: Any, h: Any, c: Any, peepholes: Any, peeps: bool, coupled: bool) -> None:
    """One step of one sequence.

    Args:
        kinds: see ``recur``, for one direction.
        factors: likewise.
        clip: likewise.
        sums: what enters the gates: input, output, forget and cell.
        h: the state.
        c: the state of the cells.
        peepholes: input, output and forget.
        peeps: whether there are peepholes.
        coupled: see ``recur``.
    """
    # slices, because LLVM makes no vectors of places that might be negative and count from the end
    hidden = h.size
    enter, leave, keep = sums[:hidden], sums[hidden : 2 * hidden], sums[2 * hidden : 3 * hidden]
    new = sums[3 * hidden : 4 * hidden]
    if peeps:
        for unit in range(hidden):
            enter[unit] += peepholes[unit] * c[unit]
            keep[unit] += peepholes[2 * hidden + unit] * c[unit]
        _activate(kinds[0], factors[0], clip, enter)
        _activate(kinds[0], factors[0], clip, keep)
    else:
        _activate(kinds[0], factors[0], clip, sums[: 3 * hidden])
    _activate(kinds[1], factors[1], clip, new)
    if coupled:
        for unit in range(hidden):
            keep[unit] = _ONE - enter[unit]
    for unit in range(hidden):
        c[unit] = np.float32(keep[unit] * c[unit]) + np.float32(enter[unit] * new[unit])
    if peeps:
        for unit in range(hidden):
            leave[unit] += peepholes[hidden + unit] * c[unit]
        _activate(kinds[0], factors[0], clip, leave)
    _copy(c, new)
    _activate(kinds[2], factors[2], _NO_CLIP, new)
    for unit in range(hidden):
        h[unit] = leave[unit] * new[unit]


@kernel(f"void(int64, {_FLOATS}, float32, {_FLOATS}, int64, int64, {_FLOATS}, int64, {_FLOATS}, {_FLOATS}, {_FLOATS}, boolean)")
def _reset(
    kind: int,
    factors: Any,
    clip: float,
    sums: Any,
    total: int,
    main: int,
    h: Any,
    rows: int,
    panels: Any,
    bias: Any,
    products: Any,
    linear: bool,
) -> None:
    """The gates of a GRU for some sequences, and what enters their candidates.

    Args:
        kind: the activation of the gates.
        factors: its alpha and beta.
        clip: see ``recur``.
        sums: for each sequence what enters the update gate, the reset gate and, in a panel of its own, the candidate without the state.
        total: from one sequence to the next.
        main: from the update gate to the candidate.
        h: the states.
        rows: how many sequences there are.
        panels: the weights of states and candidates.
        bias: what is added to their product and reset with it, if that is what is reset.
        products: room.
        linear: see ``recur``.
    """
    hidden = h.size // rows
    extra = total - main
    for row in range(rows):
        gates, given = sums[row * total : row * total + 2 * hidden], h[row * hidden : (row + 1) * hidden]
        _activate(kind, factors, clip, gates)
        if linear:
            _copy(bias[:extra], products[row * extra :])
        else:
            reset, product = gates[hidden:], products[row * hidden : (row + 1) * hidden]
            for unit in range(hidden):
                product[unit] = reset[unit] * given[unit]
    if linear:
        _add_products(h, hidden, rows, hidden, panels, extra, products, extra)
        for row in range(rows):
            at = row * total
            reset, new = sums[at + hidden : at + 2 * hidden], sums[at + main : at + main + hidden]
            product = products[row * extra : (row + 1) * extra]
            for unit in range(hidden):
                new[unit] += reset[unit] * product[unit]
    else:
        _add_products(products, hidden, rows, hidden, panels, extra, sums[main:], total)


@kernel(f"void({_INTS}, {_FACTORS}, float32, {_FLOATS}, {_FLOATS}, {_FLOATS})")
def _gru(kinds: Any, factors: Any, clip: float, update: Any, new: Any, h: Any) -> None:
    """What is left of one step of one sequence when its update gate and what enters the candidate are known."""
    _activate(kinds[1], factors[1], clip, new)
    for unit in range(h.size):
        h[unit] = np.float32(np.float32(_ONE - update[unit]) * new[unit]) + np.float32(update[unit] * h[unit])


@kernel(
    f"void({_STATES}, float32[:, ::1], int64[:, ::1], {_STATES}, float64, {_INTS}, {_STATES}, {_STATES}, "
    "float32[:, :, :, ::1], int64, boolean, boolean, boolean, boolean, int64, int64, int64)"
)
def recur(
    x: Any,
    weights: Any,
    kinds: Any,
    factors: Any,
    clip: float,
    lengths: Any,
    h: Any,
    c: Any,
    y: Any,
    gates: int,
    backwards: bool,
    linear: bool,
    peeps: bool,
    coupled: bool,
    each: int,
    first: int,
    last: int,
) -> None:
    """All steps of some sequences in one or two directions; the second runs backwards.

    Args:
        x: the inputs, ``[steps, batch, inputs]``.
        weights: for each direction the panels of W and R, the biases of all gates, and then the bias of a GRU's candidate that is reset,
            or the peepholes of an LSTM: input, output, forget. Of a GRU, the candidate's columns begin with a panel of their own.
        kinds: for each direction, its three activations.
        factors: for each of them, alpha and beta.
        clip: the bound of what enters the gates; infinite for none.
        lengths: how many steps each sequence has; empty for all.
        h: the output states, ``[directions, batch, hidden]``: the first, then the last.
        c: likewise the cell states of an LSTM; of other cells, anything.
        y: the outputs, ``[steps, directions, batch, hidden]``.
        gates: 1 for RNN, 3 for GRU, 4 for LSTM.
        backwards: whether the first direction runs backwards.
        linear: whether a GRU resets the product of its candidate, not the state.
        peeps: whether there are peepholes.
        coupled: whether an LSTM forgets what it does not take in.
        each: sequences of a unit.
        first: the unit to begin with, counted through all directions.
        last: the unit to end before.
    """
    steps, batch, inputs = x.shape
    ways, hidden = h.shape[0], h.shape[2]
    parts = -(-batch // each)
    xs, ys, hs, cs = x.reshape(x.size), y.reshape(y.size), h.reshape(h.size), c.reshape(c.size)
    joined = 2 * hidden if gates == 3 else gates * hidden  # columns whose products with the state are made first
    main = -(-joined // WIDTH) * WIDTH
    extra = -(-hidden // WIDTH) * WIDTH if gates == 3 else 0
    total = main + extra
    biases = (inputs + hidden) * total
    after = biases + total
    limit: Any = np.float32(clip)
    unit = first
    while unit < last:
        way = unit // parts
        begin, stop = unit % parts, min(parts, last - way * parts)
        unit = way * parts + stop
        begin *= each
        rows = min(stop * each, batch) - begin
        w, k, f = weights[way], kinds[way], factors[way]
        reverse = backwards or way == 1
        ahead = max(1, min(steps, AHEAD // rows))
        sums = np.empty(ahead * rows * total, np.float32)
        products = np.empty(rows * (extra + hidden) if gates == 3 else 0, np.float32)
        state = (way * batch + begin) * hidden
        bias, recurrent, candidates, rest = w[biases:after], w[inputs * total :], w[inputs * total + hidden * main :], w[after:]
        for done in range(0, steps, ahead):
            some = min(ahead, steps - done)
            start = steps - done - some if reverse else done
            for row in range(some * rows):
                _copy(bias, sums[row * total :])
            if rows == batch:
                _add_products(xs[start * batch * inputs :], inputs, some * rows, inputs, w, total, sums, total)
            else:
                for number in range(some):
                    place = ((start + number) * batch + begin) * inputs
                    _add_products(xs[place:], inputs, rows, inputs, w, total, sums[number * rows * total :], total)
            for number in range(some):
                number = some - 1 - number if reverse else number
                time, at = start + number, number * rows * total
                _add_products(hs[state:], hidden, rows, hidden, recurrent, main, sums[at:], total)
                if gates == 3:
                    states = hs[state : state + rows * hidden]
                    _reset(k[0], f[0], limit, sums[at:], total, main, states, rows, candidates, rest, products, linear)
                for row in range(rows):
                    cell, target = state + row * hidden, ((time * ways + way) * batch + begin + row) * hidden
                    if lengths.size > 0 and time >= lengths[begin + row]:
                        _clear(ys[target : target + hidden])
                        continue
                    own, place = hs[cell : cell + hidden], at + row * total
                    here = sums[place : place + total]
                    if gates == 4:
                        _lstm(k, f, limit, here, own, cs[cell : cell + hidden], rest, peeps, coupled)
                    elif gates == 3:
                        _gru(k, f, limit, here[:hidden], here[main : main + hidden], own)
                    else:
                        _activate(k[0], f[0], limit, here[:hidden])
                        _copy(here[:hidden], own)
                    _copy(own, ys[target:])
        for row in range(rows):
            if lengths.size > 0 and lengths[begin + row] <= 0:
                _clear(hs[state + row * hidden : state + (row + 1) * hidden])
                if gates == 4:
                    _clear(cs[state + row * hidden : state + (row + 1) * hidden])
