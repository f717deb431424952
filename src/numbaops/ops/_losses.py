"""Losses of classifiers.

https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html, onnx__SoftmaxCrossEntropyLoss.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._precision import narrowed, widened
from numbaops.ops.base import Array

_REDUCTIONS = ("mean", "sum", "none")


def negative_log_likelihood_loss(reduction: str = "mean", ignore_index: int | None = None) -> Callable[..., Array]:
    """NegativeLogLikelihoodLoss: minus the weighted log-probability of each target class, or the sum or mean of these."""
    _check_reduction(reduction)

    def call(scores: Array, target: Array, weight: Array | None = None) -> Array:
        with np.errstate(all="ignore"):
            return narrowed(_loss(widened(scores), target, weight, reduction, ignore_index), scores.dtype)

    return call


def softmax_cross_entropy_loss(outputs: int, reduction: str = "mean", ignore_index: int | None = None) -> Callable[..., Any]:
    """SoftmaxCrossEntropyLoss: the same of the logarithm of the scores' softmax, which is the second output."""
    _check_reduction(reduction)

    def call(scores: Array, labels: Array, weights: Array | None = None) -> Any:
        if scores.ndim < 2:
            raise InvalidValueError(f"scores has the shape {list(scores.shape)}; allowed: rank 2 and more")
        wide = widened(scores)
        with np.errstate(all="ignore"):
            shifted = wide - wide.max(1, keepdims=True, initial=-np.inf)
            log_prob = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
            loss = narrowed(_loss(log_prob, labels, weights, reduction, ignore_index), scores.dtype)
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
    counted = np.ones(target.shape, np.bool_) if ignore_index is None else target != ignore_index
    wrong = counted & ((target < 0) | (target >= classes))
    if wrong.any():
        also = "" if ignore_index is None else f", or ignore_index, {ignore_index}"
        raise InvalidValueError(f"there is the class {target[wrong][0]}; allowed: 0 to {classes - 1}{also}")
    if classes == 0:  # then nothing counts
        return _reduced(np.zeros(target.shape, log_prob.dtype), np.zeros(target.shape, log_prob.dtype), reduction)
    chosen = np.where(counted, target, 0)
    share = counted.astype(log_prob.dtype)
    if weight is not None:
        share *= weight.astype(log_prob.dtype)[chosen]
    picked = np.take_along_axis(log_prob, np.expand_dims(chosen, 1), 1).squeeze(1)
    # an ignored score counts nothing, also where it is infinite
    return _reduced(np.where(counted, -picked * share, log_prob.dtype.type(0)), share, reduction)


def _reduced(loss: Array, share: Array, reduction: str) -> Array:
    if reduction == "none":
        return loss
    total = np.asarray(loss.sum(dtype=loss.dtype))
    return total if reduction == "sum" else np.asarray(total / share.sum(dtype=loss.dtype))
