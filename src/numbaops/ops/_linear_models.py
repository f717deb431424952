"""Linear models and support vector machines of ai.onnx.ml.

https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html, onnx_aionnxml_LinearRegressor.html,
onnx_aionnxml_SVMClassifier.html, onnx_aionnxml_SVMRegressor.html

The texts leave much open; there the answers are those of onnx.reference and ONNX Runtime, and of the former where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._scores import Array, as_labels, chosen_labels, computed, doubles, matrix, mirrored, samples, transformed
from numbaops.ops.leaf import Leaf


def linear_classifier(
    x: Array,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    post_transform: str,
    multi_class: int,
) -> tuple[Array, Array]:
    """LinearClassifier: labels and scores (samples, classes).

    One row of coefficients for two labels scores the second of them, and the first the opposite. For one label it tells the label
    from none, which is 0 or the empty string. ``multi_class`` changes nothing, in any implementation.
    """
    x = samples(x)
    labels = chosen_labels(classlabels_ints, classlabels_strings)
    scores = _linear_scores(x, coefficients, intercepts)
    if scores.shape[1] == 1 and len(labels) == 2:
        scores = mirrored(scores)
    weighed = transformed(scores, post_transform)
    if scores.shape[1] == 1:
        positive = (weighed[:, 0] >= (0.0 if post_transform == "NONE" else 0.5)).astype(np.intp)
        given = labels[0] if labels else 1
        return as_labels(positive, ["", given] if isinstance(given, str) else [0, given]), weighed.astype(np.float32)
    return as_labels(scores.argmax(axis=1), labels or list(range(scores.shape[1]))), weighed.astype(np.float32)


def linear_regressor(
    x: Array, *, coefficients: Sequence[float] = (), intercepts: Sequence[float] = (), targets: int, post_transform: str
) -> Array:
    """LinearRegressor: (samples, targets)."""
    x = samples(x)
    if len(coefficients) != targets * x.shape[1]:
        raise InvalidValueError(
            f"coefficients has {len(coefficients)} elements; allowed: {targets * x.shape[1]}, {targets} targets by {x.shape[1]} features",
            attribute="coefficients",
        )
    return transformed(_linear_scores(x, coefficients, intercepts), post_transform).astype(np.float32)


def _linear_scores(x: Array, coefficients: Sequence[float], intercepts: Sequence[float]) -> Array:
    if not x.shape[1] or len(coefficients) % x.shape[1]:
        raise InvalidValueError(
            f"coefficients has {len(coefficients)} elements; allowed: a multiple of the {x.shape[1]} features", attribute="coefficients"
        )
    scores = computed(x) @ np.array(coefficients, np.float32).reshape(-1, x.shape[1]).T
    if not intercepts:
        return scores
    if len(intercepts) != scores.shape[1]:
        raise InvalidValueError(f"intercepts has {len(intercepts)} elements; allowed: {scores.shape[1]}", attribute="intercepts")
    return np.asarray(scores + np.array(intercepts, np.float32))


_BLOCK = 1 << 22
"""Differences that are held at once."""


def _squared_distances(x: Array, vectors: Array) -> Array:
    rows = max(_BLOCK // max(vectors.size, 1), 1)
    blocks = [((x[start : start + rows, None, :] - vectors) ** 2).sum(axis=2) for start in range(0, x.shape[0], rows)]
    return np.concatenate(blocks) if blocks else np.empty((0, vectors.shape[0]), x.dtype)


_KERNELS: Mapping[str, Callable[[Array, Array, float, float, float], Array]] = {
    "LINEAR": lambda x, vectors, gamma, offset, degree: x @ vectors.T,
    "POLY": lambda x, vectors, gamma, offset, degree: (gamma * (x @ vectors.T) + offset) ** degree,
    "RBF": lambda x, vectors, gamma, offset, degree: np.exp(-gamma * _squared_distances(x, vectors)),
    "SIGMOID": lambda x, vectors, gamma, offset, degree: np.tanh(gamma * (x @ vectors.T) + offset),
}


def _kernel(x: Array, vectors: Array, kernel_type: str, kernel_params: Sequence[float]) -> Array:
    """How close samples and support vectors are: (samples, vectors)."""
    if kernel_type not in _KERNELS:
        raise InvalidValueError(f"kernel_type is {kernel_type!r}; allowed: {', '.join(_KERNELS)}", attribute="kernel_type")
    if len(kernel_params) not in (0, 3):
        raise InvalidValueError(f"kernel_params has {len(kernel_params)} elements; allowed: 3", attribute="kernel_params")
    if vectors.shape[1] != x.shape[1]:
        raise InvalidValueError(f"the input has {x.shape[1]} features; allowed: {vectors.shape[1]}, as the coefficients have them")
    gamma, offset, degree = kernel_params or (0.0, 0.0, 0.0)
    return _KERNELS[kernel_type](computed(x), vectors, gamma, offset, degree)


def svm_regressor(
    x: Array,
    *,
    coefficients: Sequence[float] = (),
    rho: Sequence[float] = (),
    n_supports: int,
    support_vectors: Sequence[float] = (),
    kernel_type: str,
    kernel_params: Sequence[float] = (),
    one_class: int,
    post_transform: str,
) -> Array:
    """SVMRegressor: (samples, 1); without support vectors the coefficients are those of a linear model. One class gives 1
    and -1, which are no scores to transform."""
    x = samples(x)
    if not rho:
        raise InvalidValueError("rho is empty; allowed: one element", attribute="rho")
    if n_supports > 0:
        closeness = _kernel(x, matrix(support_vectors, n_supports, "support_vectors"), kernel_type, kernel_params)
        if len(coefficients) != n_supports:
            raise InvalidValueError(f"coefficients has {len(coefficients)} elements; allowed: {n_supports}", attribute="coefficients")
        score = closeness @ doubles(coefficients)[:, None] + rho[0]
    else:
        score = _kernel(x, matrix(coefficients, 1, "coefficients"), "LINEAR", ()) + rho[0]
    if one_class:
        return np.where(score > 0, 1.0, -1.0).astype(np.float32)
    return transformed(score, post_transform).astype(np.float32)


def svm_classifier(
    x: Array,
    *,
    coefficients: Sequence[float] = (),
    rho: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
    support_vectors: Sequence[float] = (),
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    kernel_type: str,
    kernel_params: Sequence[float] = (),
    post_transform: str,
) -> tuple[Array, Array]:
    """SVMClassifier: labels, and scores (samples, classes).

    With support vectors every pair of classes is a decision, and the class with most of them wins. The scores are then those of the
    decisions, (samples, pairs), two for two classes, or with ``prob_a`` the probabilities of the classes. Without support vectors each
    class has a linear score.
    """
    x = samples(x)
    labels = chosen_labels(classlabels_ints, classlabels_strings)
    classes = max(len(labels), 1)
    supports = sum(vectors_per_class)
    if not rho:
        raise InvalidValueError("rho is empty; allowed: one element, or one for every pair of classes", attribute="rho")
    if not supports:
        scores = _kernel(x, matrix(coefficients, classes, "coefficients"), "LINEAR", ()) + rho[0]
        return _svm_labels(scores.argmax(axis=1), labels), transformed(scores, post_transform).astype(np.float32)
    if len(vectors_per_class) != classes or classes < 2:
        raise InvalidValueError(
            f"vectors_per_class has {len(vectors_per_class)} elements for {classes} classes; allowed: one each of 2 or more classes",
            attribute="vectors_per_class",
        )
    pairs = classes * (classes - 1) // 2
    for name, values, needed in (("rho", rho, pairs), ("prob_a", prob_a, pairs if prob_a else 0), ("prob_b", prob_b, len(prob_a))):
        if len(values) < needed:
            raise InvalidValueError(f"{name} has {len(values)} elements; allowed: one for each of {pairs} pairs", attribute=name)
    closeness = _kernel(x, matrix(support_vectors, supports, "support_vectors"), kernel_type, kernel_params)
    decisions = _decisions(closeness, matrix(coefficients, classes - 1, "coefficients"), vectors_per_class, rho)
    votes = np.zeros((x.shape[0], classes), np.int64)
    first, second = np.triu_indices(classes, 1)
    for pair in range(pairs):
        wins = decisions[:, pair] > 0
        votes[:, first[pair]] += wins
        votes[:, second[pair]] += ~wins
    if prob_a:
        scores = _probabilities(decisions, classes, doubles(prob_a), doubles(prob_b))
    else:
        scores = mirrored(decisions) if classes == 2 else decisions
    return _svm_labels(votes.argmax(axis=1), labels), transformed(scores, post_transform).astype(np.float32)


def _svm_labels(classes: Array, labels: list[int] | list[str]) -> Array:
    return as_labels(classes, labels) if labels else classes.astype(np.int64)


def _decisions(closeness: Array, coefficients: Array, vectors_per_class: Sequence[int], rho: Sequence[float]) -> Array:
    """The decision of every pair of classes, (samples, pairs): positive for the first class.

    A class's support vectors have a coefficient for each of the other classes: row c holds those against class c for the classes
    before it, and against class c + 1 for the others.
    """
    ends = np.cumsum(vectors_per_class)
    parts = [slice(int(end) - count, int(end)) for end, count in zip(ends, vectors_per_class, strict=True)]
    found = [
        closeness[:, parts[first]] @ coefficients[second - 1, parts[first]]
        + closeness[:, parts[second]] @ coefficients[first, parts[second]]
        for first in range(len(parts))
        for second in range(first + 1, len(parts))
    ]
    return np.stack(found, axis=1) + doubles(rho)[: len(found)]


def _probabilities(decisions: Array, classes: int, slope: Array, offset: Array) -> Array:
    """Probabilities of the classes out of those of their pairs: https://www.csie.ntu.edu.tw/~cjlin/papers/svmprob/svmprob.pdf."""
    pairs = decisions.shape[1]
    logits = decisions * slope[:pairs] + offset[:pairs]
    first, second = np.triu_indices(classes, 1)
    wins = np.zeros((decisions.shape[0], classes, classes))
    wins[:, first, second] = np.clip(1 - transformed(logits, "LOGISTIC"), 1e-7, 1 - 1e-7)
    wins[:, second, first] = 1 - wins[:, first, second]
    # the matrix Q of the paper's second method, one for each sample
    quadratic = -np.swapaxes(wins, 1, 2) * wins
    diagonal = np.arange(classes)
    quadratic[:, diagonal, diagonal] = (wins**2).sum(axis=1)
    chances = np.full((decisions.shape[0], classes), 1 / classes)
    running = np.ones(decisions.shape[0], np.bool_)
    for _ in range(max(100, classes)):
        gradient = np.einsum("nij,nj->ni", quadratic, chances)
        value = (chances * gradient).sum(axis=1)
        running &= np.abs(gradient - value[:, None]).max(axis=1) >= 0.005 / classes
        if not running.any():
            break
        for each in range(classes):
            own = quadratic[:, each, each]
            step = np.where(running, (value - gradient[:, each]) / own, 0.0)
            chances[:, each] += step
            value = (value + step * (step * own + 2 * gradient[:, each])) / (1 + step) ** 2
            gradient = (gradient + step[:, None] * quadratic[:, each]) / (1 + step[:, None])
            chances /= 1 + step[:, None]
    return chances


LEAVES: tuple[Leaf, ...] = (
    Leaf("LinearClassifier", (1,), linear_classifier, domain="ai.onnx.ml"),
    Leaf("LinearRegressor", (1,), linear_regressor, domain="ai.onnx.ml"),
    Leaf("SVMClassifier", (1,), svm_classifier, domain="ai.onnx.ml"),
    Leaf("SVMRegressor", (1,), svm_regressor, domain="ai.onnx.ml"),
)
