"""RNN, GRU and LSTM.

https://onnx.ai/onnx/operators/onnx__RNN.html, onnx__GRU.html, onnx__LSTM.html

The products of inputs with the weights are made ahead of the loop over time, which multiplies the state alone. A kernel runs layers of
float32 and of 16-bit types with the usual activations, known weights laid out once; NumPy the others, and those too small for it.
Versions before 7 write the recurrent product without a transposition; it is that of version 7, whose text only corrects it.

Where the texts are silent, as in ONNX Runtime: after the end of a sequence the output is zero, and all is zero for a sequence of
length 0; ``clip`` bounds what enters the gates, not the cell state of an LSTM on its way out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.ops._activations import Activation, Named, named_activations
from numbaops.ops._precision import narrowed, working_dtype
from numbaops.ops._products import product
from numbaops.ops._recurring import LaidOut, served
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf

_DIRECTIONS = {"forward": (False,), "foward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Whether each direction runs backwards; "foward" is the default of GRU-1."""

States = tuple[Array, ...]
Step = Callable[..., States]
"""Called with one time step's products of inputs and weights, and the states; gives the new states, the output first."""


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


_Weights = tuple[Array, Array, "Array | None", "Array | None"]


class Layer:
    """A cell run over time, in one or both directions.

    Args:
        direction: forward, reverse or bidirectional.
        activations: for each direction as many as in ``defaults``.
        activation_alpha: for those activations that have one, in order.
        activation_beta: likewise.
        clip: the bound of what enters the gates.
        hidden_size: what the shape of R says as well.
        layout: see the shapes of the call.
        output_sequence: said before version 7 whether Y is wanted; a node that names it gets it.
        linear_before_reset: whether a GRU resets the product of its candidate, not the state.
        input_forget: whether an LSTM forgets what it does not take in.
    """

    gates: ClassVar[int]
    defaults: ClassVar[tuple[str, ...]]
    """The activations of one direction."""
    states: ClassVar[int] = 1

    def __init__(
        self,
        *,
        direction: str,
        activations: Sequence[str] = (),
        activation_alpha: Sequence[float] = (),
        activation_beta: Sequence[float] = (),
        clip: float | None = None,
        hidden_size: int | None = None,
        layout: int = 0,
        output_sequence: int = 0,
        linear_before_reset: int = 0,
        input_forget: int = 0,
    ) -> None:
        self._direction, self._clip, self._hidden_size, self._layout = direction, clip, hidden_size, layout
        self._named = activations, activation_alpha, activation_beta
        self.linear, self.coupled = bool(linear_before_reset), bool(input_forget)

    def cell(self, r: Array, w_bias: Array, r_bias: Array, p: Array | None, activations: Sequence[Activation]) -> tuple[Array, Step]:
        """The bias to add to the products of the inputs, and the step, of one direction.

        Args:
            r: the recurrent weights.
            w_bias: the bias of the inputs.
            r_bias: that of recurrence.
            p: the peepholes, or None.
            activations: those of the direction.
        """
        raise NotImplementedError

    @functools.cached_property
    def backwards(self) -> tuple[bool, ...]:
        """Whether each direction runs backwards, once the attributes are known to be right."""
        direction, layout, clip = self._direction, self._layout, self._clip
        if direction not in _DIRECTIONS:
            raise InvalidValueError(f"direction is {direction!r}; allowed: forward, reverse, bidirectional", attribute="direction")
        if layout not in (0, 1):
            raise InvalidValueError(f"layout is {layout}; allowed: 0, 1", attribute="layout")
        if clip is not None and not clip >= 0:
            raise InvalidValueError(f"clip is {clip}; allowed: 0 and more", attribute="clip")
        return _DIRECTIONS[direction]

    @functools.cached_property
    def activations(self) -> list[list[Named]]:
        """The activations of each direction."""
        directions, count = len(self.backwards), len(self.defaults)
        names, alphas, betas = self._named
        names = names or self.defaults * directions
        if len(names) < count * directions:  # the default of RNN has one too many for a single direction
            raise InvalidValueError(f"activations are {list(names)}; allowed: {count} for each direction", attribute="activations")
        named = named_activations(names[: count * directions], alphas, betas)
        return [named[start : start + count] for start in range(0, len(named), count)]

    def __call__(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        p: Array | None = None,
    ) -> tuple[Array, ...]:
        """Y, and the last states.

        Args:
            x: ``[steps, batch, inputs]``; ``[batch, steps, inputs]`` with ``layout`` 1.
            w: ``[directions, gates * hidden, inputs]``.
            r: ``[directions, gates * hidden, hidden]``.
            b: ``[directions, 2 * gates * hidden]``, or None for zeros.
            sequence_lens: ``[batch]``, or None for all steps.
            initial_h: the first state, ``[directions, batch, hidden]`` (``[batch, directions, hidden]`` with ``layout`` 1), or None for
                zeros.
            initial_c: that of an LSTM's cells, likewise.
            p: an LSTM's peepholes, ``[directions, 3 * hidden]``, or None.

        Returns:
            Y, ``[steps, directions, batch, hidden]`` (``[batch, steps, directions, hidden]`` with ``layout`` 1), and the last states,
            shaped as the first.
        """
        initial = (initial_h, initial_c)[: self.states]
        dtype = working_dtype(x, w, r, b, p, *initial)
        weights = self.weights(dtype, x, w, r, b, p)
        if dtype == _FLOAT32 and self.direct(x, w, r):
            return self.run(self.lay_out(*weights), x, sequence_lens, initial)
        return self._by_steps(x, *weights, sequence_lens, initial)

    def prepared(
        self, x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None, initial_c: Any = None, p: Any = None
    ) -> Callable[..., tuple[Array, ...]] | None:
        """The same with the inputs that are known, ``...`` standing for others: what lays out weights once; None if that is no use."""
        unknown = any(each is ... for each in (w, r, b, p))
        return None if unknown or working_dtype(w, r, b, p) != _FLOAT32 else Prepared(self, w, r, b, p)

    def weights(self, dtype: np.dtype[Any], x: Array, w: Array, r: Array, b: Array | None, p: Array | None) -> _Weights:
        """W, R, B and P in a type to compute in, once their shapes are known to fit each other and X."""
        directions = len(self.backwards)
        if x.ndim != 3 or r.ndim != 3:
            raise InvalidValueError(f"X and R have the shapes {list(x.shape)} and {list(r.shape)}; allowed: rank 3")
        hidden = r.shape[2] if self._hidden_size is None else self._hidden_size
        shapes = ((self.gates * hidden, x.shape[2]), (self.gates * hidden, hidden), (2 * self.gates * hidden,), (3 * hidden,))
        for name, array, shape in zip("WRBP", (w, r, b, p), shapes, strict=True):
            if array is not None:
                _check_shape(name, array, (directions, *shape))
        bias, peepholes = (None if array is None else array.astype(dtype, copy=False) for array in (b, p))
        return w.astype(dtype, copy=False), r.astype(dtype, copy=False), bias, peepholes

    def direct(self, x: Array, w: Array, r: Array) -> bool:
        """Whether the kernel serves for these sizes and activations."""
        return x.shape[0] * x.shape[1] * (w.size + r.size) >= _KERNEL_FROM and served(self.activations)

    def lay_out(self, w: Array, r: Array, b: Array | None, p: Array | None) -> LaidOut:
        """The weights, of float32, as the kernel takes them."""
        reverse, linear, coupled = self.backwards[0], self.linear, self.coupled
        return LaidOut(w, r, b, p, self.activations, self._clip, reverse=reverse, linear=linear, coupled=coupled)

    def run(self, laid_out: LaidOut, x: Array, sequence_lens: Array | None, initial: Sequence[Array | None]) -> tuple[Array, ...]:
        """Y and the last states, by the kernel; X is known to fit."""
        given = x if x.dtype == _FLOAT32 else x.astype(np.float32)
        if self._layout:
            given = given.swapaxes(0, 1)
        steps, batch, _ = given.shape
        lengths = None if sequence_lens is None and steps else _checked_lengths(sequence_lens, steps, batch)
        states = self._first(initial, (laid_out.ways, batch, laid_out.hidden), _FLOAT32)
        y = laid_out(given, lengths, states)
        return (y, *states) if given is x else self._finished(x.dtype, y, states)

    def _first(self, initial: Sequence[Array | None], shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[Array]:
        """The first states, new arrays ``[directions, batch, hidden]``."""
        first: list[Array] = []
        for state in initial:
            if state is None:
                first.append(np.zeros(shape, dtype))
                continue
            if self._layout and state.ndim > 1:
                state = state.swapaxes(0, 1)
            if state.shape != shape:
                _check_shape(_STATES[len(first)], state, shape)
            first.append(state.copy() if state.dtype == dtype else state.astype(dtype, order="C"))
        return first

    def _finished(self, dtype: np.dtype[Any], y: Array, states: list[Array]) -> tuple[Array, ...]:
        """The outputs in the layout and type of X."""
        if self._layout:
            y, states = y.transpose(2, 0, 1, 3), [state.swapaxes(0, 1) for state in states]
        return tuple(narrowed(each, dtype) for each in (y, *states))

    @np.errstate(all="ignore")
    def _by_steps(
        self, x: Array, w: Array, r: Array, b: Array | None, p: Array | None, sequence_lens: Array | None, initial: Sequence[Array | None]
    ) -> tuple[Array, ...]:
        """Y and the last states, by NumPy."""
        given = x.swapaxes(0, 1) if self._layout else x
        directions, (steps, batch, inputs), hidden, dtype = len(w), given.shape, r.shape[2], w.dtype
        first = self._first(initial, (directions, batch, hidden), dtype)
        lengths = _checked_lengths(sequence_lens, steps, batch)
        activations = self.activations
        biases = np.zeros((directions, 2, self.gates * hidden), dtype) if b is None else b.reshape(directions, 2, self.gates * hidden)
        flat = given.astype(dtype, copy=False).reshape(steps * batch, inputs)
        y = np.empty((steps, directions, batch, hidden), dtype)
        for way, backwards in enumerate(self.backwards):
            # the third, with which an LSTM's cell state goes out, is not clipped
            functions = [_clipped(each.function, None if number == 2 else self._clip) for number, each in enumerate(activations[way])]
            bias, step = self.cell(r[way], biases[way, 0], biases[way, 1], None if p is None else p[way], functions)
            products = product(flat, w[way].T)
            products += bias
            states = tuple(state[way] for state in first)
            last = _unroll(step, products.reshape(steps, batch, self.gates * hidden), states, lengths, backwards, y[:, way])
            for state, final in zip(first, last, strict=True):
                state[way] = final
        return self._finished(x.dtype, y, first)


_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_STATES = ("initial_h", "initial_c")

_KERNEL_FROM = 1 << 10
"""Multiplications from which the kernel serves: fewer need no Numba."""


class Prepared:
    """A layer whose weights are laid out in its first run.

    Args:
        layer: the operator.
        w: its weights, float32 or narrower.
        r: the recurrent weights, likewise.
        b: the biases, likewise, or None.
        p: the peepholes, likewise, or None.
    """

    def __init__(self, layer: Layer, w: Array, r: Array, b: Array | None, p: Array | None) -> None:
        self._layer, self._w, self._r, self._b, self._p = layer, w, r, b, p
        self._laid_out: LaidOut | None = None

    def __call__(
        self,
        x: Array,
        w: Any = None,
        r: Any = None,
        b: Any = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        p: Any = None,
    ) -> tuple[Array, ...]:
        """The outputs; the weights are those that are known."""
        layer = self._layer
        laid_out = self._laid_out or self._lay_out(x)
        wide = x.dtype == _FLOAT64 or (initial_h is not None and initial_h.dtype == _FLOAT64)
        wide = wide or (initial_c is not None and initial_c.dtype == _FLOAT64)
        if laid_out is not None and not wide and x.ndim == 3 and x.shape[2] == laid_out.inputs:
            return layer.run(laid_out, x, sequence_lens, (initial_h, initial_c) if layer.states == 2 else (initial_h,))
        return layer(x, self._w, self._r, self._b, sequence_lens, initial_h, initial_c, self._p)

    def _lay_out(self, x: Array) -> LaidOut | None:
        if x.ndim == 3 and self._layer.direct(x, self._w, self._r):
            self._laid_out = self._layer.lay_out(*self._layer.weights(_FLOAT32, x, self._w, self._r, self._b, self._p))
        return self._laid_out


class RNN(Layer):
    """RNN, all versions: Y and Y_h."""

    gates, defaults = 1, ("Tanh",)

    def cell(self, r: Array, w_bias: Array, r_bias: Array, p: Array | None, activations: Sequence[Activation]) -> tuple[Array, Step]:
        (f,) = activations
        weights = r.T

        def step(x: Array, h: Array) -> States:
            return (f(x + h @ weights),)

        return w_bias + r_bias, step


class GRU(Layer):
    """GRU, all versions: Y and Y_h."""

    gates, defaults = 3, ("Sigmoid", "Tanh")

    def cell(self, r: Array, w_bias: Array, r_bias: Array, p: Array | None, activations: Sequence[Activation]) -> tuple[Array, Step]:
        f, g = activations
        size = r.shape[1]
        gates, candidate = r[: 2 * size].T, r[2 * size :].T
        bias, reset_bias = w_bias + r_bias, r_bias[2 * size :]
        if self.linear:
            bias[2 * size :] = w_bias[2 * size :]

        def step(x: Array, h: Array) -> States:
            both = f(x[:, : 2 * size] + h @ gates)
            update, reset = both[:, :size], both[:, size:]
            recurrent = reset * (h @ candidate + reset_bias) if self.linear else (reset * h) @ candidate
            return ((1 - update) * g(x[:, 2 * size :] + recurrent) + update * h,)

        return bias, step


class LSTM(Layer):
    """LSTM, all versions: Y, Y_h and Y_c."""

    gates, defaults, states = 4, ("Sigmoid", "Tanh", "Tanh"), 2

    def cell(self, r: Array, w_bias: Array, r_bias: Array, p: Array | None, activations: Sequence[Activation]) -> tuple[Array, Step]:
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
            if self.coupled:
                keep = 1 - enter
            c = keep * c + enter * g(gates[:, 3 * size :])
            if p is not None:
                leave = f(gates[:, size : 2 * size] + p_output * c)
            return leave * last(c), c

        return w_bias + r_bias, step


LEAVES: tuple[Leaf, ...] = (
    Leaf("RNN", (1, 7, 14, 22), RNN, bind=True),
    Leaf("GRU", (1, 3, 7, 14, 22), GRU, bind=True),
    Leaf("LSTM", (1, 7, 14, 22), LSTM, bind=True),
)
