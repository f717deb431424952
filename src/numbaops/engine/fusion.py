"""Chains of nodes that become one step: a convolution, or none, what scales and shifts channels, a summand, and limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from numbaops.engine.nodes import LeafOperator
from numbaops.engine.steps import Fast, Step, sole_takers
from numbaops.engine.values import as_value, mixed
from numbaops.ops._direct import ScaledPlanes
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
    next_of = sole_takers(steps, live, outputs)
    found: dict[int, tuple[Step, list[int]]] = {}
    taken: set[int] = set()
    for position in live:
        step = steps[position]
        chain = None if position in taken else _head(step, constants, exact)
        if chain is None:
            continue
        positions = [position]
        while (after := next_of.get(steps[positions[-1]].outputs[0])) is not None and after not in taken:
            if not chain.take(steps[after], steps[positions[-1]].outputs[0], exact):
                break
            positions.append(after)
        if len(positions) > chain.least:
            taken.update(positions)
            found[positions[-1]] = chain.step([steps[each] for each in positions]), positions[:-1]
    return found


def _head(step: Step, constants: Mapping[str, Any], exact: bool) -> _Chain | None:
    """The chain that a step begins, if it is a convolution of known weights, or scales and shifts channels."""
    if step.fast.compound or any(name and name not in constants for name in step.inputs[1:]):
        return None
    known = [constants[name] if name else None for name in step.inputs[1:]]
    conv = step.fast.function
    if isinstance(conv, Conv):
        w, bias = (*known, None)[:2]
        if w is None or w.dtype.itemsize > 4 or w.ndim < 3:
            return None
        return _Chain(step, constants, len(w), w.ndim, w.dtype, lambda *after: ConvChain(conv, w, bias, *after))
    if exact or step.op_type != "BatchNormalization" or step.kind != "numbaops" or len(step.outputs) != 1:
        return None
    parameters: list[Array] = [value for value in known if value is not None]
    found = scale_and_shift(vars(step.node), step.since_version, parameters, parameters[0].size)
    if found is None:
        return None
    chain = _Chain(step, constants, parameters[0].size, None, None, None)
    chain.scale, chain.shift = found
    return chain


class _Chain:
    """What one step does in the place of several, as far as nodes are taken in.

    Args:
        head: the first step.
        constants: values that never change.
        count: channels of its output.
        rank: dimensions of its output, or None if only a run shows them.
        dtype: the type of the weights, or None if there are none.
        convolve: makes what runs of scale, shift and limits; None if there is no convolution.
    """

    def __init__(
        self,
        head: Step,
        constants: Mapping[str, Any],
        count: int,
        rank: int | None,
        dtype: np.dtype[Any] | None,
        convolve: Callable[..., ConvChain] | None,
    ) -> None:
        self._head, self._constants = head, constants
        self._count, self._rank, self._dtype, self._convolve = count, rank, dtype, convolve
        self.least = 0 if convolve is None else 1  # a convolution alone needs no chain
        self.scale: Array | None = None
        self.shift: Array | None = None
        self._residual: str | None = None
        self._low, self._high = -math.inf, math.inf
        self._limited = False

    def take(self, step: Step, value: str, exact: bool) -> bool:
        """Whether the step that takes ``value`` goes into the chain; if so, it is taken in."""
        if self._limited or step.fast.compound or len(step.outputs) != 1:
            return False
        if step.kind != "numbaops" or not isinstance(step.node, LeafOperator):
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
            self.scale = scale if self.scale is None else self.scale * scale
            self.shift = shift if self.shift is None else self.shift * scale + shift
            return True
        if self._convolve is not None and step.op_type in ("Add", "Sum") and len(step.inputs) == 2 and step.since_version not in (1, 6):
            (other,) = [name for name in step.inputs if name != value] or [""]
            rounds = self._dtype != np.float32  # once, where the nodes round twice
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
        low, high = (node.get("min"), node.get("max")) if step.since_version in (1, 6) else (*given, None, None)[:2]
        if self._dtype is not None and step.since_version in (1, 6) and self._dtype.itemsize < 4:
            return None  # its limits are of float32, and those of the type may be less
        return clip_limits(low, high, self._dtype)

    def _affine(self, step: Step, value: str) -> tuple[Array, Array] | None:
        """The scale and the shift of each channel, as float64, if the step is just that."""
        others = [name for name in step.inputs if name != value]
        if step.inputs.count(value) != 1 or any(name not in self._constants for name in others):
            return None
        known: list[Array] = [self._constants[name] for name in others]
        if step.op_type == "BatchNormalization" and step.inputs[0] == value:
            return scale_and_shift(vars(step.node), step.since_version, known, self._count)
        if step.op_type in ("Add", "Mul") and len(known) == 1 and step.since_version not in (1, 6):
            if known[0].dtype != (self._dtype or known[0].dtype):
                return None
            numbers = self._of_channels(known[0])
            if numbers is not None:
                return (numbers, np.zeros(self._count)) if step.op_type == "Mul" else (np.ones(self._count), numbers)
        return None

    def _of_channels(self, operand: Array) -> Array | None:
        """An operand as one number for each channel, if it stretches along all other axes."""
        if operand.size == 1 and operand.ndim <= (self._rank or 2):
            self._dtype = operand.dtype
            return np.full(self._count, operand.reshape(-1)[0], np.float64)
        shape = operand.shape[1:] if operand.shape[:1] == (1,) else operand.shape
        rank = len(shape) + 1
        if shape[:1] != (self._count,) or any(size != 1 for size in shape[1:]) or self._rank not in (None, rank):
            return None
        self._rank, self._dtype = rank, operand.dtype
        return operand.astype(np.float64).reshape(-1)

    def step(self, steps: list[Step]) -> Step:
        """The step that takes the place of all."""
        inputs = (self._head.inputs[0],) if self._residual is None else (self._head.inputs[0], self._residual)
        kernel: Callable[..., Array | None]
        if self._convolve is not None:
            kernel = self._convolve(self.scale, self.shift, self._low, self._high)
        else:
            assert self.scale is not None
            assert self.shift is not None
            kernel = ScaledPlanes(self.scale, self.shift, self._low, self._high, self._rank, self._dtype)
        fast = Fast(_Fused(kernel, steps, inputs, self._constants), single=True, arrays=True, aliases=False, pure=True, compound=True)
        return replace(self._head, inputs=inputs, outputs=steps[-1].outputs, fast=fast)


class _Fused:
    """A chain ready to run.

    Args:
        kernel: gives the result for the inputs, or None where it cannot.
        steps: the steps, for that case.
        inputs: names of the inputs.
        constants: values that never change.
    """

    def __init__(
        self, kernel: Callable[..., Array | None], steps: Sequence[Step], inputs: Sequence[str], constants: Mapping[str, Any]
    ) -> None:
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
