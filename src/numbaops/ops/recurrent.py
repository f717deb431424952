"""RNN, GRU and LSTM.

https://onnx.ai/onnx/operators/onnx__RNN.html, onnx__GRU.html, onnx__LSTM.html

The products of all inputs with the weights are one matrix product ahead of the loop over time; a step multiplies the state alone.
Versions before 7 write the recurrent product without a transposition; it is that of version 7, whose text only corrects it.

Where the texts are silent, as in ONNX Runtime: after the end of a sequence the output is zero, and all is zero for a sequence of
length 0; ``clip`` bounds what enters the gates, not the cell state of an LSTM on its way out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.ops._activations import Activation, named_activations
from numbaops.ops._direct import product
from numbaops.ops._precision import working_dtype
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf

_DIRECTIONS = {"forward": (False,), "foward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Whether each direction runs backwards; "foward" is the default of GRU-1."""

States = tuple[Array, ...]
Step = Callable[..., States]
"""Called with one time step's products of inputs and weights, and the states; gives the new states, the output first."""

Cell = Callable[[Array, Array, Array, "Array | None", Sequence[Activation]], tuple[Array, Step]]
"""Called with the recurrent weights, the biases of inputs and of recurrence, the peepholes and the activations of one direction.

Gives the bias to add to the products of the inputs, and the step.
"""


def _rnn_cell(r: Array, w_bias: Array, r_bias: Array, p: Array | None, activations: Sequence[Activation]) -> tuple[Array, Step]:
    (f,) = activations
    weights = r.T

    def step(x: Array, h: Array) -> States:
        return (f(x + h @ weights),)

    return w_bias + r_bias, step


def _gru_cell(
    r: Array, w_bias: Array, r_bias: Array, p: Array | None, activations: Sequence[Activation], *, linear_before_reset: bool
) -> tuple[Array, Step]:
    f, g = activations
    size = r.shape[1]
    gates, candidate = r[: 2 * size].T, r[2 * size :].T
    bias, reset_bias = w_bias + r_bias, r_bias[2 * size :]
    if linear_before_reset:
        bias[2 * size :] = w_bias[2 * size :]

    def step(x: Array, h: Array) -> States:
        both = f(x[:, : 2 * size] + h @ gates)
        update, reset = both[:, :size], both[:, size:]
        recurrent = reset * (h @ candidate + reset_bias) if linear_before_reset else (reset * h) @ candidate
        return ((1 - update) * g(x[:, 2 * size :] + recurrent) + update * h,)

    return bias, step


def _lstm_cell(
    r: Array, w_bias: Array, r_bias: Array, p: Array | None, activations: Sequence[Activation], *, input_forget: bool
) -> tuple[Array, Step]:
    f, g, last = activations
    size = r.shape[1]
    weights = r.T
    p_input, p_output, p_forget = (0, 0, 0) if p is None else p.reshape(3, size)

    def step(x: Array, h: Array, c: Array) -> States:
        gates = x + h @ weights
        if p is None:
            gates[:, : 3 * size] = f(gates[:, : 3 * size])
            enter, leave, keep = gates[:, :size], gates[:, size : 2 * size], gates[:, 2 * size : 3 * size]
        else:
            enter, keep = f(gates[:, :size] + p_input * c), f(gates[:, 2 * size : 3 * size] + p_forget * c)
        if input_forget:
            keep = 1 - enter
        c = keep * c + enter * g(gates[:, 3 * size :])
        if p is not None:
            leave = f(gates[:, size : 2 * size] + p_output * c)
        return leave * last(c), c

    return w_bias + r_bias, step


def _clipped(activation: Activation, clip: float | None) -> Activation:
    return activation if clip is None else lambda x: activation(np.clip(x, -clip, clip))


def _check_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidValueError(f"{name} has shape {list(array.shape)}; allowed: {list(shape)}")


def _checked_lengths(lengths: Array | None, steps: int, batch: int) -> Array | None:
    """How many steps each sequence of the batch has; None if it is all of them."""
    if lengths is None:
        if steps:
            return None
        lengths = np.full(batch, steps)
    if lengths.dtype.kind not in "iu":
        raise InvalidTypeError(f"sequence_lens has element type {lengths.dtype}; allowed: int32")
    _check_shape("sequence_lens", lengths, (batch,))
    if batch and not 0 <= lengths.min() <= lengths.max() <= steps:
        raise InvalidValueError(f"sequence_lens is {lengths.tolist()}; allowed: 0 to {steps}")
    return None if steps and (lengths == steps).all() else lengths


def _unroll(step: Step, x: Array, states: States, lengths: Array | None, backwards: bool, y: Array) -> States:
    """Run over time, writing the outputs to ``y``.

    Args:
        step: the cell.
        x: products of inputs and weights, ``[steps, batch, gates * hidden]``.
        states: the initial states, ``[batch, hidden]`` each.
        lengths: how many steps each sequence has, None for all.
        backwards: begin with the last step of each sequence.
        y: ``[steps, batch, hidden]``.

    Returns:
        The states after the last step.
    """
    times = range(len(x))
    longer = None if lengths is None else lengths[:, None]
    for time in reversed(times) if backwards else times:
        new = step(x[time], *states)
        if longer is None:
            states, y[time] = new, new[0]
        else:
            running = longer > time
            states = tuple(np.where(running, after, before) for after, before in zip(new, states, strict=True))
            y[time] = np.where(running, new[0], 0)
    return states if longer is None else tuple(np.where(longer > 0, state, 0) for state in states)


@np.errstate(all="ignore")
def _layer(
    cell: Cell,
    gates: int,
    defaults: tuple[str, ...],
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    sequence_lens: Array | None,
    initial: Sequence[Array | None],
    p: Array | None = None,
    *,
    direction: str,
    activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    clip: float | None = None,
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
) -> tuple[Array, ...]:
    """Run a cell in one or both directions.

    Args:
        cell: makes the step of a direction.
        gates: how many gates it has.
        defaults: the activations of one direction.
        x: ``[steps, batch, inputs]``; ``[batch, steps, inputs]`` with ``layout`` 1.
        w: ``[directions, gates * hidden, inputs]``.
        r: ``[directions, gates * hidden, hidden]``.
        b: ``[directions, 2 * gates * hidden]``, or None for zeros.
        sequence_lens: ``[batch]``, or None for all steps.
        initial: the states, ``[directions, batch, hidden]``, or None for zeros; ``[batch, directions, hidden]`` with ``layout`` 1.
        p: peepholes, ``[directions, 3 * hidden]``, or None.
        direction: forward, reverse or bidirectional.
        activations: for each direction as many as in ``defaults``.
        activation_alpha: for those activations that have one, in order.
        activation_beta: likewise.
        clip: the bound of what enters the gates.
        hidden_size: what the shape of ``r`` says as well.
        layout: see the shapes.
        output_sequence: said before version 7 whether Y is wanted; a node that names it gets it.

    Returns:
        Y, ``[steps, directions, batch, hidden]`` (``[batch, steps, directions, hidden]`` with ``layout`` 1), and the last states.
    """
    if direction not in _DIRECTIONS:
        raise InvalidValueError(f"direction is {direction!r}; allowed: forward, reverse, bidirectional", attribute="direction")
    if layout not in (0, 1):
        raise InvalidValueError(f"layout is {layout}; allowed: 0, 1", attribute="layout")
    if clip is not None and not clip >= 0:
        raise InvalidValueError(f"clip is {clip}; allowed: 0 and more", attribute="clip")
    if x.ndim != 3 or r.ndim != 3:
        raise InvalidValueError(f"X and R have the shapes {list(x.shape)} and {list(r.shape)}; allowed: rank 3")
    if layout:
        x, initial = x.swapaxes(0, 1), [None if state is None else state.swapaxes(0, 1) for state in initial]
    backwards = _DIRECTIONS[direction]
    directions, (steps, batch, inputs), hidden = len(backwards), x.shape, r.shape[2] if hidden_size is None else hidden_size
    dtype = working_dtype(x, w, r, b, p, *initial)

    def part(name: str, array: Array | None, *shape: int) -> Array:
        if array is None:
            return np.zeros(shape, dtype)
        _check_shape(name, array, shape)
        return array.astype(dtype, copy=False)

    w = part("W", w, directions, gates * hidden, inputs)
    r = part("R", r, directions, gates * hidden, hidden)
    b = part("B", b, directions, 2 * gates * hidden).reshape(directions, 2, gates * hidden)
    p = None if p is None else part("P", p, directions, 3 * hidden)
    first = [part(name, state, directions, batch, hidden) for name, state in zip(("initial_h", "initial_c"), initial, strict=False)]
    lengths = _checked_lengths(sequence_lens, steps, batch)
    functions = _functions(activations or defaults * directions, len(defaults), directions, activation_alpha, activation_beta, clip)

    flat = x.astype(dtype, copy=False).reshape(steps * batch, inputs)
    y = np.empty((steps, directions, batch, hidden), dtype)
    last = []
    for way in range(directions):
        bias, step = cell(r[way], b[way, 0], b[way, 1], None if p is None else p[way], functions[way])
        products = product(flat, w[way].T)
        products += bias
        states = tuple(state[way] for state in first)
        last.append(_unroll(step, products.reshape(steps, batch, gates * hidden), states, lengths, backwards[way], y[:, way]))
    axis = 1 if layout else 0
    one = directions == 1 and steps > 0  # which np.stack takes 5 us for; without a step, the states are the inputs
    finals = [np.expand_dims(states[0], axis) if one else np.stack(states, axis) for states in zip(*last, strict=True)]
    return tuple(each.astype(x.dtype, copy=False) for each in (y.transpose(2, 0, 1, 3) if layout else y, *finals))


def _functions(
    names: Sequence[str], count: int, directions: int, alphas: Sequence[float], betas: Sequence[float], clip: float | None
) -> list[list[Activation]]:
    """The activations of each direction; the third, with which an LSTM's cell state goes out, is not clipped."""
    if len(names) < count * directions:  # the default of RNN has one too many for a single direction
        raise InvalidValueError(f"activations are {list(names)}; allowed: {count} for each direction", attribute="activations")
    named = named_activations(names[: count * directions], alphas, betas)
    bounded = [function if number % count == 2 else _clipped(function, clip) for number, function in enumerate(named)]
    return [bounded[start : start + count] for start in range(0, len(bounded), count)]


def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    **attributes: Any,
) -> tuple[Array, ...]:
    """RNN, all versions: Y and Y_h."""
    return _layer(_rnn_cell, 1, ("Tanh",), x, w, r, b, sequence_lens, [initial_h], **attributes)


def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    linear_before_reset: int = 0,
    **attributes: Any,
) -> tuple[Array, ...]:
    """GRU, all versions: Y and Y_h."""
    cell = functools.partial(_gru_cell, linear_before_reset=bool(linear_before_reset))
    return _layer(cell, 3, ("Sigmoid", "Tanh"), x, w, r, b, sequence_lens, [initial_h], **attributes)


def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    p: Array | None = None,
    *,
    input_forget: int = 0,
    **attributes: Any,
) -> tuple[Array, ...]:
    """LSTM, all versions: Y, Y_h and Y_c."""
    cell = functools.partial(_lstm_cell, input_forget=bool(input_forget))
    return _layer(cell, 4, ("Sigmoid", "Tanh", "Tanh"), x, w, r, b, sequence_lens, [initial_h, initial_c], p, **attributes)


LEAVES: tuple[Leaf, ...] = (
    Leaf("RNN", (1, 7, 14, 22), rnn),
    Leaf("GRU", (1, 3, 7, 14, 22), gru),
    Leaf("LSTM", (1, 7, 14, 22), lstm),
)
