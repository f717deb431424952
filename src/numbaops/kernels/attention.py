"""Attention of a panel of queries at a time: its scores stay in the second cache from the first product to the second.

Scores lie with a line for each key and a place in it for each query, so that softmax is made by vectors of queries, and what it writes
is the panel of the second product. Keys that none of the queries may attend to are left out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from numbaops.kernels.functions import chosen, exp, quotient, tanh
from numbaops.kernels.matrices import pack_rows, turn_lines
from numbaops.kernels.products import TERMS, tile
from numbaops.kernels.vectors import COLUMNS, LANES, PITCH, ROWS
from numbaops.runtime.jit import kernel

_FLOATS, _INTS = "float32[::1]", "int64[::1]"

_SIZE, _INFINITE = np.int32(0x7FFFFFFF), np.int32(0x7F800000)

_SUMMED = 128
"""Keys of which the weights are summed up before they go to the whole sum: that way the error is about that of sums by pairs."""


@kernel(f"void({_FLOATS}, float32)")
def _scale(x: Any, factor: float) -> None:
    for place in range(x.size):
        x[place] *= factor


@kernel(f"boolean({_FLOATS})")
def _is_finite(x: Any) -> Any:
    """Whether no number is infinite or NaN."""
    largest = np.int32(0)
    for place in range(x.size):
        largest = max(largest, np.int32(np.float32(x[place]).view(np.int32) & _SIZE))
    return largest < _INFINITE


@kernel(f"void({_FLOATS}, int64, {_INTS}, int64, int64, float32, {_FLOATS})")
def _gather(q: Any, at: int, starts: Any, length: int, size: int, factor: float, panel: Any) -> None:
    """Queries as a panel, a line for each of their elements, times a factor; what is behind the last is like it."""
    whole = size - size % LANES
    for first in range(0, length, LANES):
        for element in range(0, whole, LANES):
            turn_lines(panel, element * PITCH + first, PITCH, q, at + element, starts[first : first + LANES])
        for element in range(whole, size):
            for lane in range(first, first + LANES):
                panel[element * PITCH + lane] = q[at + starts[lane] + element]
    _scale(panel[: size * PITCH], factor)


@kernel(f"void({_FLOATS}, float32)")
def _cap(scores: Any, softcap: float) -> None:
    for place in range(scores.size):
        scores[place] = softcap * tanh(quotient(scores[place], softcap))


@kernel(f"void({_FLOATS}, {_INTS}, int64, int64, int64, {_FLOATS}, {_FLOATS})")
def _add_mask(mask: Any, starts: Any, length: int, first: int, last: int, scores: Any, square: Any) -> None:
    """Add the mask of each query; where it is -Inf so is the sum, whatever the score was."""
    hidden = np.float32(-np.inf)
    for key in range(first, last, LANES):
        keys = min(LANES, last - key)
        for lane in range(0, length, LANES):
            if keys == LANES:
                turn_lines(square, 0, LANES, mask, key, starts[lane : lane + LANES])
            else:
                for each in range(keys):
                    for column in range(LANES):
                        square[each * LANES + column] = mask[starts[lane + column] + key + each]
            for each in range(keys):
                line, added = scores[(key + each) * PITCH + lane :], square[each * LANES :]
                for column in range(LANES):
                    line[column] = chosen(added[column] == hidden, hidden, line[column] + added[column])


@kernel(f"void({_FLOATS}, int64, int64, {_FLOATS}, {_FLOATS}, {_FLOATS})")
def _weigh(scores: Any, first: int, last: int, top: Any, part: Any, total: Any) -> None:
    """Scores become weights, of which the sums are in ``total``; zero for a query that sees no key, with 1 for the sum."""
    none = np.float32(-np.inf)
    for column in range(COLUMNS):
        top[column], total[column] = none, np.float32(0)
    for key in range(first, last):
        line = scores[key * PITCH : key * PITCH + COLUMNS]
        for column in range(COLUMNS):
            top[column] = line[column] if line[column] > top[column] else top[column]
    for column in range(COLUMNS):
        top[column] = np.float32(0) if top[column] == none else top[column]
    for begin in range(first, last, _SUMMED):
        for column in range(COLUMNS):
            part[column] = np.float32(0)
        for key in range(begin, min(begin + _SUMMED, last)):
            line = scores[key * PITCH : key * PITCH + COLUMNS]
            for column in range(COLUMNS):
                line[column] = exp(line[column] - top[column])
            for column in range(COLUMNS):
                part[column] += line[column]
        for column in range(COLUMNS):
            total[column] += part[column]
    for column in range(COLUMNS):
        total[column] = np.float32(1) if total[column] == 0 else total[column]


@kernel(
    f"void({_FLOATS}, {_INTS}, {_FLOATS}, {_INTS}, {_FLOATS}, {_INTS}, {_FLOATS}, {_INTS}, {_FLOATS}, {_INTS}, {_INTS}, {_INTS}, {_INTS}, "
    "int64, int64, float32, float32, float32, int64, int64)"
)
def attend(
    q: Any,
    q_steps: Any,
    k: Any,
    k_steps: Any,
    v: Any,
    v_steps: Any,
    mask: Any,
    mask_steps: Any,
    out: Any,
    out_steps: Any,
    sizes: Any,
    offsets: Any,
    lengths: Any,
    behind: int,
    ahead: int,
    query_factor: float,
    key_factor: float,
    softcap: float,
    first: int,
    last: int,
) -> None:
    """The units from ``first`` to ``last`` of attention; a unit is a panel of the queries that share one head of keys and values.

    Arrays lie anywhere, with elements of a head next to each other; their steps are those of batches, heads and the sequence.

    Args:
        q: queries.
        q_steps: their steps.
        k: keys.
        k_steps: their steps.
        v: values.
        v_steps: their steps.
        mask: what is added to scores, with keys next to each other; or empty.
        mask_steps: its steps, those of the sequence of queries.
        out: the result.
        out_steps: its steps.
        sizes: heads of keys, heads of queries for each, queries, keys, elements of a key, elements of a value.
        offsets: for each batch, the position of the first query among the keys.
        lengths: for each batch, how many keys count.
        behind: how many keys before its position a query sees.
        ahead: how many after it.
        query_factor: what queries are multiplied with.
        key_factor: what keys are multiplied with.
        softcap: the limit of scores, or 0.
        first: the unit to begin with.
        last: the unit to end before.
    """
    shared, group, queries, keys, size, value_size = sizes
    rows = group * queries
    panels = -(-rows // COLUMNS)
    value_blocks, key_blocks = -(-value_size // ROWS), -(-keys // ROWS)
    laid_keys = np.empty(key_blocks * ROWS * size, np.float32)
    laid_values = np.empty(value_blocks * ROWS * keys, np.float32)
    panel = np.zeros(size * PITCH + 2 * LANES, np.float32)
    panel = panel[-(panel.ctypes.data // 4) % 16 :]
    scores = np.empty(key_blocks * ROWS * PITCH + 2 * LANES, np.float32)
    scores = scores[-(scores.ctypes.data // 4) % 16 :]
    result = np.zeros(value_blocks * ROWS * PITCH, np.float32)
    square = np.empty(LANES * LANES, np.float32)
    top, part, total = np.empty(COLUMNS, np.float32), np.empty(COLUMNS, np.float32), np.empty(COLUMNS, np.float32)
    starts, masks, targets = np.zeros(COLUMNS, np.int64), np.zeros(COLUMNS, np.int64), np.zeros(COLUMNS, np.int64)
    lows, highs = np.zeros(COLUMNS, np.int64), np.zeros(COLUMNS, np.int64)
    lines = np.zeros(1, np.int64)
    bias, nothing = np.zeros(ROWS, np.float32), np.empty(0, np.float32)
    limit = math.inf
    laid, finite = -1, True
    for unit in range(first, last):
        number = unit // panels
        batch, head = number // shared, number % shared
        if laid != number:
            laid = number
            pack_rows(k, batch * k_steps[0] + head * k_steps[1], k_steps[2], 1, keys, size, laid_keys, 0, starts)
            _scale(laid_keys, key_factor)
            pack_rows(v, batch * v_steps[0] + head * v_steps[1], 1, v_steps[2], value_size, keys, laid_values, 0, starts)
            finite = _is_finite(laid_values)
        begin = unit % panels * COLUMNS
        length = min(COLUMNS, rows - begin)
        low, high = keys, 0
        for column in range(COLUMNS):
            row = begin + min(column, length - 1)
            query, each = row % queries, head * group + row // queries
            starts[column] = batch * q_steps[0] + each * q_steps[1] + query * q_steps[2]
            masks[column] = batch * mask_steps[0] + each * mask_steps[1] + query * mask_steps[2]
            targets[column] = batch * out_steps[0] + each * out_steps[1] + query * out_steps[2]
            position = query + offsets[batch]
            highs[column] = max(0, min(lengths[batch], position + ahead + 1))
            lows[column] = min(max(0, position - behind), highs[column])
            if lows[column] < highs[column]:
                low, high = min(low, lows[column]), max(high, highs[column])
        if not finite:  # weights of zero make NaN of what is infinite
            low, high = 0, keys
        low = min(low, high) // ROWS * ROWS
        kind = -(-length // LANES)
        _gather(q, 0, starts, length, size, query_factor, panel)
        for key in range(low, high, ROWS):
            tile(
                kind,
                laid_keys,
                key * size,
                panel,
                0,
                lines,
                size,
                bias,
                0,
                scores,
                key * PITCH,
                PITCH,
                False,
                False,
                nothing,
                -limit,
                limit,
            )
        if softcap != 0:
            _cap(scores[low * PITCH : high * PITCH], softcap)
        if mask.size:
            _add_mask(mask, masks, length, low, high, scores, square)
        for column in range(length):
            for key in range(low, min(lows[column], high)):
                scores[key * PITCH + column] = -limit
            for key in range(max(low, highs[column]), high):
                scores[key * PITCH + column] = -limit
        _weigh(scores, low, high, top, part, total)
        for block in range(value_blocks):
            if low == high:
                result[block * ROWS * PITCH : (block + 1) * ROWS * PITCH] = 0
        for key in range(low, high, TERMS):
            some = min(TERMS, high - key)
            for block in range(value_blocks):
                tile(
                    kind,
                    laid_values,
                    (block * keys + key) * ROWS,
                    scores,
                    key * PITCH,
                    lines,
                    some,
                    bias,
                    0,
                    result,
                    block * ROWS * PITCH,
                    PITCH,
                    False,
                    key > low,
                    result if key > low else nothing,
                    -limit,
                    limit,
                )
        for column in range(length):
            line = out[targets[column] : targets[column] + value_size]
            for element in range(value_size):
                line[element] = quotient(result[element * PITCH + column], total[column])
