"""Chains of nodes that become one step: a convolution, what scales and shifts its channels, a summand, and limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from numbaops.engine.nodes import LeafOperator
from numbaops.engine.steps import Fast, Step
from numbaops.engine.values import as_value, mixed
from numbaops.ops.convolution import Conv, ConvChain
from numbaops.ops.elementwise import clip_limits
from numbaops.ops.normalization import scale_and_shift

Array = np.ndarray[Any, Any]


def fuse(
    steps: list[Step], live: Sequence[int], outputs: Sequence[str], constants: Mapping[str, Any], *, exact: bool
) -> dict[int, tuple[Step, list[int]]]:
    """The chains among steps.

    Args:
        steps: all steps.
        live: the positions of those that run.
        outputs: names of the values that are wanted after them.
        constants: values that never change.
        exact: leave out what changes results by a rounding.

    Returns:
        For the last position of each chain, the step that takes its place, and the positions of the others.
    """
    takers = Counter(name for position in live for name in (*steps[position].inputs, *steps[position].captured))
    takers.update(outputs)
    next_of: dict[str, int] = {}
    for position in live:
        for name in steps[position].inputs:
            if takers[name] == 1:
                next_of[name] = position
    found: dict[int, tuple[Step, list[int]]] = {}
    taken: set[int] = set()
    for position in live:
        step = steps[position]
        if position in taken or not isinstance(step.fast.function, Conv):
            continue
        chain = _Chain(step, constants)
        if not chain.usable:
            continue
        positions = [position]
        while (after := next_of.get(steps[positions[-1]].outputs[0])) is not None and after not in taken:
            if not chain.take(steps[after], steps[positions[-1]].outputs[0], exact):
                break
            positions.append(after)
        if len(positions) > 1:
            taken.update(positions)
            found[positions[-1]] = chain.step([steps[each] for each in positions]), positions[:-1]
    return found


class _Chain:
    """A convolution, and what of the nodes after it goes into it."""

    def __init__(self, conv: Step, constants: Mapping[str, Any]) -> None:
        self._conv = conv
        self._constants = constants
        known = [constants.get(name) if name else None for name in conv.inputs[1:]]
        self.usable = all(not name or value is not None for name, value in zip(conv.inputs[1:], known, strict=True))
        self._w, self._bias = (*known, None)[:2] if self.usable else (None, None)
        self.usable = self.usable and self._w is not None and self._w.dtype.itemsize <= 4 and self._w.ndim > 2
        self._scale: Array | None = None
        self._shift: Array | None = None
        self._residual: str | None = None
        self._low, self._high = -math.inf, math.inf
        self._limited = False

    def take(self, step: Step, value: str, exact: bool) -> bool:
        """Whether the step that takes ``value`` goes into the convolution; if so, it is taken in."""
        if step.kind != "numbaops" or not isinstance(step.node, LeafOperator) or self._limited or len(step.outputs) != 1:
            return False
        if step.op_type in ("Relu", "Clip"):
            limits = self._limits(step)
            if limits is None or step.inputs[0] != value:
                return False
            self._low, self._high = limits
            self._limited = True
            return True
        if self._residual is not None:
            return False
        affine = None if exact else self._affine(step, value)
        if affine is not None:
            scale, shift = affine
            self._scale = scale if self._scale is None else self._scale * scale
            self._shift = shift if self._shift is None else self._shift * scale + shift
            return True
        if step.op_type in ("Add", "Sum") and len(step.inputs) == 2 and step.since_version not in (1, 6):
            (other,) = [name for name in step.inputs if name != value] or [""]
            rounds = self._w is not None and self._w.dtype != np.float32  # once, where the nodes round twice
            if other and other not in self._constants and not (exact and rounds):
                self._residual = other
                return True
        return False

    def _limits(self, step: Step) -> tuple[float, float] | None:
        if step.op_type == "Relu":
            return 0.0, math.inf
        given = [self._constants.get(name) if name else None for name in step.inputs[1:]]
        if any(name and value is None for name, value in zip(step.inputs[1:], given, strict=True)):
            return None
        node = vars(step.node)
        return clip_limits(*(node.get("min"), node.get("max")) if step.since_version in (1, 6) else (*given, None, None)[:2])

    def _affine(self, step: Step, value: str) -> tuple[Array, Array] | None:
        """The scale and the shift of each channel, as float64, if the step is just that."""
        assert self._w is not None
        count, rank = len(self._w), self._w.ndim
        others = [name for name in step.inputs if name != value]
        if step.inputs.count(value) != 1 or any(name not in self._constants for name in others):
            return None
        known: list[Array] = [self._constants[name] for name in others]
        if step.op_type == "BatchNormalization" and step.inputs[0] == value:
            return scale_and_shift(vars(step.node), step.since_version, known, count)
        if step.op_type in ("Add", "Mul") and len(known) == 1 and step.since_version not in (1, 6):
            (operand,) = known
            shape = (1,) * (rank - operand.ndim) + operand.shape
            if len(shape) != rank or shape[0] != 1 or shape[1] not in (1, count) or any(size != 1 for size in shape[2:]):
                return None
            numbers = np.broadcast_to(operand.astype(np.float64).reshape(-1), count)
            return (numbers, np.zeros(count)) if step.op_type == "Mul" else (np.ones(count), numbers)
        return None

    def step(self, steps: list[Step]) -> Step:
        """The step that takes the place of all."""
        conv = self._conv.fast.function
        assert isinstance(conv, Conv)
        assert self._w is not None
        inputs = (self._conv.inputs[0],) if self._residual is None else (self._conv.inputs[0], self._residual)
        kernel = ConvChain(conv, self._w, self._bias, self._scale, self._shift, self._low, self._high)
        fast = Fast(_Fused(kernel, steps, inputs, self._constants), single=True, arrays=True, aliases=False, pure=True)
        return replace(self._conv, inputs=inputs, outputs=steps[-1].outputs, fast=fast)


class _Fused:
    """A chain ready to run.

    Args:
        kernel: gives the result for the inputs, or None where it cannot.
        steps: the steps, for that case.
        inputs: names of the inputs.
        constants: values that never change.
    """

    def __init__(self, kernel: ConvChain, steps: Sequence[Step], inputs: Sequence[str], constants: Mapping[str, Any]) -> None:
        self._kernel, self._steps, self._inputs = kernel, steps, inputs
        names = {name for step in steps for name in step.inputs if name in constants}
        self._constants = {name: constants[name] for name in names}

    def __call__(self, *values: Any) -> Any:
        result = self._kernel(*values)
        if result is not None:
            return result
        known: dict[str, Any] = {"": None, **self._constants, **dict(zip(self._inputs, values, strict=True))}
        for step in self._steps:
            taken = [known[name] for name in step.inputs]
            function: Any = step.fast.function
            found = mixed(function, *taken) if step.fast.ufunc is not None and len(taken) == 2 else function(*taken)
            known[step.outputs[0]] = result = as_value(found[0] if type(found) is tuple else found)
        return result
