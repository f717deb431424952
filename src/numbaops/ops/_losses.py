"""Losses of classifiers.

https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html, onnx__SoftmaxCrossEntropyLoss.html
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.casting.steps import QUIET
from numbaops.errors import InvalidValueError
from numbaops.ops._precision import narrowed, widened
from numbaops.ops._softmax import log_softmax_13
from numbaops.ops.base import Array

_REDUCTIONS = ("mean", "sum", "none")


def negative_log_likelihood_loss(reduction: str = "mean", ignore_index: int | None = None) -> Callable[..., Array]:
    """NegativeLogLikelihoodLoss: minus the weighted log-probability of each target class, or the sum or mean of these."""
    _check_reduction(reduction)

    def call(scores: Array, target: Array, weight: Array | None = None) -> Array:
        return narrowed(QUIET.copy().run(_loss, widened(scores), target, weight, reduction, ignore_index), scores.dtype)

    return call


def softmax_cross_entropy_loss(outputs: int, reduction: str = "mean", ignore_index: int | None = None) -> Callable[..., Any]:
    """SoftmaxCrossEntropyLoss: the same of the logarithm of the scores' softmax, which is the second output."""
    _check_reduction(reduction)

    def call(scores: Array, labels: Array, weights: Array | None = None) -> Any:
        if scores.ndim < 2:
            raise InvalidValueError(f"scores has the shape {list(scores.shape)}; allowed: rank 2 and more")
        log_prob = log_softmax_13(widened(scores), axis=1)
        loss = narrowed(QUIET.copy().run(_loss, log_prob, labels, weights, reduction, ignore_index), scores.dtype)
        return loss if outputs == 1 else (loss, narrowed(log_prob, scores.dtype))

    return call


def _check_reduction(reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        raise InvalidValueError(f"reduction is {reduction!r}; allowed: {', '.join(_REDUCTIONS)}", attribute="reduction")


def _loss(log_prob: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int | None) -> Array:
    if log_prob.ndim < 2 or target.shape != (log_prob.shape[0], *log_prob.shape[2:]):
        raise InvalidValueError(
            f"the classes have the shape {list(target.shape)} for scores of shape {list(log_prob.shape)}; allowed: that of the scores "
            "without the second dimension"
        )
    classes = log_prob.shape[1]
    if weight is not None and weight.shape != (classes,):
        raise InvalidValueError(f"weights have the shape {list(weight.shape)}; allowed: [{classes}]")
    counted = None if ignore_index is None else target != ignore_index
    wrong = target.astype(np.int64, copy=False).view(np.uint64) >= classes  # or negative
    if counted is not None:
        wrong &= counted
    if np.count_nonzero(wrong):
        also = "" if ignore_index is None else f", or ignore_index, {ignore_index}"
        raise InvalidValueError(f"there is the class {target[wrong][0]}; allowed: 0 to {classes - 1}{also}")
    if classes == 0:  # then nothing counts
        return _reduced(np.zeros(target.shape, log_prob.dtype), 0, reduction)
    chosen = target if counted is None else np.where(counted, target, 0)
    loss = np.negative(_picked(log_prob, chosen))
    share: Array | int = target.size
    if weight is not None:
        share = weight.astype(log_prob.dtype, copy=False)[chosen]
        loss = loss * share
    if counted is not None:
        loss = np.where(counted, loss, log_prob.dtype.type(0))  # an ignored score counts nothing, also where it is infinite
        share = np.where(counted, share, 0) if weight is not None else int(np.count_nonzero(counted))
    return _reduced(loss, share, reduction)


def _picked(log_prob: Array, chosen: Array) -> Array:
    """The number of the chosen class, the second dimension."""
    count = len(chosen)
    if chosen.ndim == 1:
        return log_prob[np.arange(count), chosen]
    rest = math.prod(chosen.shape[1:])
    lines = log_prob.reshape(count, log_prob.shape[1], rest)
    return lines[np.arange(count)[:, None], chosen.reshape(count, rest), np.arange(rest)].reshape(chosen.shape)


def _reduced(loss: Array, share: Array | int, reduction: str) -> Array:
    """The losses, their sum, or their mean, of which each has its share."""
    if reduction == "none":
        return loss
    total = np.add.reduce(loss, None)
    if reduction == "sum":
        return np.asarray(total)
    return np.asarray(total / loss.dtype.type(share if isinstance(share, int) else np.add.reduce(share, None)))
