"""The optimizers of ai.onnx.preview.training.

https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adam.html, onnx_aionnxpreviewtraining_Adagrad.html,
onnx_aionnxpreviewtraining_Momentum.html

Their inputs are the learning rate, the update count, and then groups of tensors: all that are optimized, all gradients, and so on. The
outputs are the optimized tensors and the groups after the gradients, each in its own type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._scores import Array
from numbaops.ops.leaf import Leaf


def _updated(tensors: tuple[Array, ...], groups: int, update: Callable[..., tuple[Array, ...]]) -> tuple[Array, ...]:
    """What ``update`` makes of each optimized tensor, its gradient and the rest of its state."""
    count, rest = divmod(len(tensors), groups)
    if rest or not count:
        raise InvalidValueError(f"there are {len(tensors)} tensors; allowed: {groups} for each that is optimized")
    results = [update(*tensors[place::count]) for place in range(count)]
    kept = [tensors[place::count][:1] + tensors[place::count][2:] for place in range(count)]
    return tuple(
        np.asarray(results[place][group]).astype(kept[place][group].dtype) for group in range(groups - 1) for place in range(count)
    )


def adam(
    rate: Array,
    count: Array,
    *tensors: Array,
    alpha: float,
    beta: float,
    epsilon: float,
    norm_coefficient: float,
    norm_coefficient_post: float,
) -> tuple[Array, ...]:
    """Adam: optimized tensors, gradients, averages of gradients, averages of squared gradients."""
    updates, step = int(count.reshape(())), float(rate.reshape(()))
    if updates > 0:
        step *= (1 - beta**updates) ** 0.5 / (1 - alpha**updates)

    def update(x: Array, gradient: Array, average: Array, squares: Array) -> tuple[Any, ...]:
        regularized = norm_coefficient * x + gradient
        average = alpha * average + (1 - alpha) * regularized
        squares = beta * squares + (1 - beta) * regularized * regularized
        return (1 - norm_coefficient_post) * (x - step * average / (np.sqrt(squares) + epsilon)), average, squares

    return _updated(tensors, 4, update)


def adagrad(rate: Array, count: Array, *tensors: Array, decay_factor: float, epsilon: float, norm_coefficient: float) -> tuple[Array, ...]:
    """Adagrad: optimized tensors, gradients, sums of squared gradients."""
    step = float(rate.reshape(())) / (1 + int(count.reshape(())) * decay_factor)

    def update(x: Array, gradient: Array, squares: Array) -> tuple[Any, ...]:
        regularized = norm_coefficient * x + gradient
        squares = squares + regularized * regularized
        return x - step * regularized / (np.sqrt(squares) + epsilon), squares

    return _updated(tensors, 3, update)


def momentum(
    rate: Array, count: Array, *tensors: Array, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> tuple[Array, ...]:
    """Momentum: optimized tensors, gradients, momenta."""
    if mode not in ("standard", "nesterov"):
        raise InvalidValueError(f"mode is {mode!r}; allowed: standard, nesterov", attribute="mode")
    step = float(rate.reshape(()))
    scale = beta if int(count.reshape(())) > 0 else 1.0

    def update(x: Array, gradient: Array, velocity: Array) -> tuple[Any, ...]:
        regularized = norm_coefficient * x + gradient
        velocity = alpha * velocity + scale * regularized
        return x - step * (velocity if mode == "standard" else regularized + alpha * velocity), velocity

    return _updated(tensors, 3, update)


LEAVES: tuple[Leaf, ...] = (
    Leaf("Adam", (1,), adam, domain="ai.onnx.preview.training"),
    Leaf("Adagrad", (1,), adagrad, domain="ai.onnx.preview.training"),
    Leaf("Momentum", (1,), momentum, domain="ai.onnx.preview.training"),
)
