"""Tree ensembles of ai.onnx.ml.

https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html, onnx_aionnxml_TreeEnsembleClassifier.html,
onnx_aionnxml_TreeEnsembleRegressor.html

All samples go down all trees at once, a level at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbaops.errors import InvalidValueError
from numbaops.ops._scores import (
    TRANSFORM_NAMES,
    Array,
    as_labels,
    check_transform,
    chosen_labels,
    doubles,
    mirrored,
    samples,
    transformed,
)
from numbaops.ops.leaf import Leaf

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
"""In the order in which TreeEnsemble numbers them."""

_MEMBER, _LEAF = _MODES.index("BRANCH_MEMBER"), _MODES.index("LEAF")

_COMPARISONS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""In the order in which TreeEnsemble numbers them."""

_BLOCK = 1 << 20
"""Votes that are gathered at once."""


@dataclass(frozen=True, slots=True)
class _Forest:
    """Nodes of several trees, leaves among them, and what the leaves vote.

    Attributes:
        modes: a number of ``_MODES`` for each node.
        features: the input's column that a node looks at.
        values: what it compares it with.
        branches: for each node the next one where the comparison is false, and where it is true.
        missing: whether NaN counts as true.
        members: for nodes of mode BRANCH_MEMBER, what they look for.
        roots: the first node of each tree.
        votes: (nodes, targets), the sum, or the smallest or largest, of what a leaf votes.
        voted: (nodes, targets), whether it votes at all.
        aggregate: a name of ``_AGGREGATES``.
        columns: how many columns the input needs.
    """

    modes: Array
    features: Array
    values: Array
    branches: Array
    missing: Array
    members: Mapping[int, Array]
    roots: Array
    votes: Array
    voted: Array
    aggregate: str
    columns: int

    def scores(self, x: Array) -> Array:
        """(samples, targets) in double; a target that no tree votes for has 0."""
        x = samples(x)
        if x.shape[1] < self.columns:
            raise InvalidValueError(f"the input has {x.shape[1]} features; allowed: {self.columns} or more, as the trees look at them")
        # double holds float16, float and int32, and compares them as they are
        x = doubles(x)
        total = np.zeros((x.shape[0], self.votes.shape[1]))
        rows = max(_BLOCK // max(self.roots.size * self.votes.shape[1], 1), 1)
        for start in range(0, x.shape[0], rows):
            leaves = self._leaves(x[start : start + rows])
            total[start : start + rows] = self._aggregated(self.votes[leaves], self.voted[leaves])
        return total

    def _aggregated(self, votes: Array, voted: Array) -> Array:
        if self.aggregate in ("SUM", "AVERAGE"):
            total = votes.sum(axis=1)
            return np.asarray(total if self.aggregate == "SUM" else total / self.roots.size)
        least = self.aggregate == "MIN"
        best = np.where(voted, votes, np.inf if least else -np.inf)
        return np.where(voted.any(axis=1), best.min(axis=1) if least else best.max(axis=1), 0.0)

    def _leaves(self, x: Array) -> Array:
        """The leaf that each sample reaches in each tree: (samples, trees)."""
        nodes = np.tile(self.roots, (x.shape[0], 1)).reshape(-1)
        open_ones = np.flatnonzero(self.modes[nodes] != _LEAF)
        for _ in range(self.modes.size):
            if not open_ones.size:
                return nodes.reshape(x.shape[0], -1)
            here = nodes[open_ones]
            taken = self._taken(x[open_ones // self.roots.size, self.features[here]], here)
            nodes[open_ones] = self.branches[here, taken.astype(np.intp)]
            open_ones = open_ones[self.modes[nodes[open_ones]] != _LEAF]
        if open_ones.size:
            raise InvalidValueError("a node is reached again below itself; allowed: trees")
        return nodes.reshape(x.shape[0], -1)

    def _taken(self, values: Array, nodes: Array) -> Array:
        """Which samples take the branch for true."""
        modes = self.modes[nodes]
        taken = np.zeros(values.shape, np.bool_)
        for mode in np.flatnonzero(np.bincount(modes)):
            chosen = modes == mode
            if mode == _MEMBER:
                for node in np.unique(nodes[chosen]):
                    here = nodes == node
                    taken[here] = np.isin(values[here], self.members[int(node)])
            else:
                taken[chosen] = _COMPARISONS[mode](values[chosen], self.values[nodes[chosen]])
        # NaN differs from all values, but that decides nothing
        return np.where(np.isnan(values), self.missing[nodes], taken)


def _positions(treeids: Sequence[int], nodeids: Sequence[int], places: Mapping[tuple[int, int], int], what: str) -> Array:
    try:
        return np.array([places[pair] for pair in zip(treeids, nodeids, strict=True)], np.intp)
    except KeyError as error:
        raise InvalidValueError(f"{what} has node {error.args[0][1]} of tree {error.args[0][0]}; allowed: a node of that tree") from None


def _given(attributes: Mapping[str, Any], name: str) -> Array:
    """An attribute that may be floats or a tensor of doubles, or absent."""
    tensor = attributes.get(f"{name}_as_tensor")
    return doubles(attributes.get(name, []) if tensor is None else tensor).reshape(-1)


def _lengths(what: str, **columns: Any) -> None:
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidValueError(f"the {what} attributes have the lengths {sizes}; allowed: one length", attribute=next(iter(sizes)))


def _mode_number(name: str) -> int:
    if name not in _MODES or name == "BRANCH_MEMBER":
        allowed = ", ".join(_MODES[:_MEMBER])
        raise InvalidValueError(f"nodes_modes has {name!r}; allowed: {allowed}, LEAF", attribute="nodes_modes")
    return _MODES.index(name)


def _forest(attributes: Mapping[str, Any], votes: str, targets: int, aggregate: str) -> _Forest:
    """The forest of versions 1 to 5 of the classifier and the regressor.

    Args:
        attributes: those of the node.
        votes: ``class`` or ``target``, with which the names of the attributes for votes start.
        targets: their number.
        aggregate: a name of ``_AGGREGATES``.
    """
    nodes = {name: list(attributes.get(f"nodes_{name}") or []) for name in _NODE_LISTS}
    voting = {name: list(attributes.get(f"{votes}_{name}") or []) for name in ("treeids", "nodeids", "ids")}
    values, weights = _given(attributes, "nodes_values"), _given(attributes, f"{votes}_weights")
    treeids, nodeids = nodes["treeids"], nodes["nodeids"]
    missing = nodes["missing_value_tracks_true"] or [0] * len(nodeids)
    _lengths("nodes_", **nodes | {"values": values, "missing_value_tracks_true": missing})
    _lengths(f"{votes}_", **voting, weights=weights)
    if not nodeids:
        raise InvalidValueError("there are no nodes; allowed: one tree or more", attribute="nodes_nodeids")
    places = {pair: place for place, pair in reversed(list(enumerate(zip(treeids, nodeids, strict=True))))}
    modes = np.array([_mode_number(name) for name in nodes["modes"]], np.int8)
    leaf = modes == _LEAF
    # leaves name no next node, and what stands there means nothing
    inner = [place for place in range(len(nodeids)) if not leaf[place]]
    branches = np.zeros((len(nodeids), 2), np.intp)
    for side, name in enumerate(("falsenodeids", "truenodeids")):
        branches[inner, side] = _positions([treeids[p] for p in inner], [nodes[name][p] for p in inner], places, f"nodes_{name}")
    below = np.zeros(len(nodeids), np.bool_)
    below[branches[inner].reshape(-1)] = True
    roots: dict[int, int] = {}
    for place in np.flatnonzero(~below):
        roots.setdefault(treeids[place], int(place))
    if len(roots) < len(set(treeids)):
        raise InvalidValueError("a tree has no node that is below none; allowed: trees", attribute="nodes_nodeids")
    ids = np.array(voting["ids"], np.intp)
    _check_range(f"{votes}_ids", ids, targets)
    voters = _positions(voting["treeids"], voting["nodeids"], places, f"{votes}_nodeids")
    features = np.where(leaf, 0, np.array(nodes["featureids"], np.intp))
    _check_range("nodes_featureids", features, np.iinfo(np.int32).max)
    table, voted = _votes(aggregate, (len(nodeids), targets), voters, ids, weights)
    return _Forest(
        modes,
        features,
        values,
        branches,
        np.array(missing, np.bool_),
        {},
        np.array(list(roots.values()), np.intp),
        table,
        voted,
        aggregate,
        int(features.max(initial=-1)) + 1,
    )


def _votes(aggregate: str, shape: tuple[int, int], nodes: Array, targets: Array, weights: Array) -> tuple[Array, Array]:
    voted = np.zeros(shape, np.bool_)
    voted[nodes, targets] = True
    if aggregate in ("SUM", "AVERAGE"):
        table = np.zeros(shape)
        np.add.at(table, (nodes, targets), weights)
    else:
        table = np.full(shape, np.inf if aggregate == "MIN" else -np.inf)
        (np.minimum if aggregate == "MIN" else np.maximum).at(table, (nodes, targets), weights)
    return table, voted


def _base(attributes: Mapping[str, Any], targets: int) -> Array:
    values = _given(attributes, "base_values")
    if not values.size:
        return np.zeros(targets)
    if values.size not in (1, targets):
        raise InvalidValueError(f"base_values has {values.size} elements; allowed: 1 and {targets}", attribute="base_values")
    return values


_NODE_LISTS = ("treeids", "nodeids", "modes", "featureids", "truenodeids", "falsenodeids", "missing_value_tracks_true")


def tree_ensemble_regressor(**attributes: Any) -> Callable[[Array], Array]:
    """TreeEnsembleRegressor: takes the attributes, and returns a function from samples to (samples, targets)."""
    targets = int(attributes.get("n_targets") or 1)
    aggregate = attributes["aggregate_function"]
    _check_aggregate(aggregate)
    post_transform = attributes["post_transform"]
    check_transform(post_transform)
    forest = _forest(attributes, "target", targets, aggregate)
    base = _base(attributes, targets)

    def run(x: Array) -> Array:
        scores = forest.scores(x)
        return transformed(scores + base, post_transform).astype(np.float32)

    return run


def _check_aggregate(name: str) -> None:
    if name not in _AGGREGATES:
        raise InvalidValueError(f"aggregate_function is {name!r}; allowed: {', '.join(_AGGREGATES)}", attribute="aggregate_function")


def tree_ensemble_classifier(**attributes: Any) -> Callable[[Array], tuple[Array, Array]]:
    """TreeEnsembleClassifier: takes the attributes, and returns a function from samples to labels and (samples, classes).

    Votes for one of two classes only make a binary classifier, which the text leaves open: the second class wins above 0.5 if all
    weights are positive (they are probabilities), else above 0. If all votes are for class 0, they stand for the second class, and
    the first one's score is the complement. So does ONNX Runtime, and converters count on it.
    """
    labels = chosen_labels(attributes.get("classlabels_int64s"), attributes.get("classlabels_strings"))
    post_transform = attributes["post_transform"]
    check_transform(post_transform)
    classes = max(len(labels), 1)
    forest = _forest(attributes, "class", classes, "SUM")
    base = _base(attributes, classes)
    voted_for = set(attributes.get("class_ids") or [])
    binary = classes == 2 and len(voted_for) == 1
    positive = bool((_given(attributes, "class_weights") >= 0).all())

    def run(x: Array) -> tuple[Array, Array]:
        scores = forest.scores(x)
        scores = scores + base
        if classes == 1:
            # both witnesses tell label 1 from 0
            only = labels[0] if labels else 1
            found = as_labels((scores[:, 0] > 0).astype(np.intp), ["", only] if isinstance(only, str) else [0, only])
            return found, transformed(scores, post_transform).astype(np.float32)
        if not binary:
            return as_labels(scores.argmax(axis=1), labels), transformed(scores, post_transform).astype(np.float32)
        score = scores[:, list(voted_for)]
        if 0 in voted_for:
            scores = mirrored(score)
            if post_transform == "PROBIT" or (positive and post_transform == "NONE"):
                scores[:, 0] += 1
        second = (score[:, 0] > (0.5 if positive else 0.0)).astype(np.intp)
        return as_labels(second, labels), transformed(scores, post_transform).astype(np.float32)

    return run


def tree_ensemble(
    *,
    tree_roots: Sequence[int],
    nodes_modes: Array,
    nodes_featureids: Sequence[int],
    nodes_splits: Array,
    nodes_truenodeids: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_trueleafs: Sequence[int],
    nodes_falseleafs: Sequence[int],
    leaf_targetids: Sequence[int],
    leaf_weights: Array,
    n_targets: int = 1,
    aggregate_function: int,
    post_transform: int,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_hitrates: Array | None = None,
    membership_values: Array | None = None,
) -> Callable[[Array], Array]:
    """TreeEnsemble: takes the attributes, and returns a function from samples to (samples, targets) of the input's type.

    The sets of BRANCH_MEMBER nodes stand in the order in which the nodes do.
    """
    for name, number, names in (
        ("aggregate_function", aggregate_function, _AGGREGATES),
        ("post_transform", post_transform, TRANSFORM_NAMES),
    ):
        if not 0 <= number < len(names):
            raise InvalidValueError(f"{name} is {number}; allowed: 0 to {len(names) - 1}", attribute=name)
    inner, leaves = len(nodes_featureids), len(leaf_targetids)
    modes = nodes_modes.reshape(-1).astype(np.int8)
    missing = nodes_missing_value_tracks_true or [0] * inner
    _lengths(
        "nodes_",
        nodes_featureids=nodes_featureids,
        nodes_modes=modes,
        nodes_splits=nodes_splits.reshape(-1),
        nodes_truenodeids=nodes_truenodeids,
        nodes_falsenodeids=nodes_falsenodeids,
        nodes_trueleafs=nodes_trueleafs,
        nodes_falseleafs=nodes_falseleafs,
        nodes_missing_value_tracks_true=missing,
    )
    _lengths("leaf_", leaf_targetids=leaf_targetids, leaf_weights=leaf_weights.reshape(-1))
    _check_range("nodes_modes", modes, _MEMBER + 1)
    _check_range("tree_roots", np.array(tree_roots), inner)
    features, targets = np.array(nodes_featureids, np.intp), np.array(leaf_targetids, np.intp)
    _check_range("nodes_featureids", features, np.iinfo(np.int32).max)
    _check_range("leaf_targetids", targets, n_targets)
    # leaves come after all nodes
    branches = np.zeros((inner + leaves, 2), np.intp)
    for side, (ids, leafs, name) in enumerate(
        ((nodes_falsenodeids, nodes_falseleafs, "nodes_falsenodeids"), (nodes_truenodeids, nodes_trueleafs, "nodes_truenodeids"))
    ):
        numbers, ends = np.array(ids, np.intp), np.array(leafs, np.bool_)
        _check_range(name, numbers[ends], leaves)
        _check_range(name, numbers[~ends], inner)
        branches[:inner, side] = np.where(ends, numbers + inner, numbers)
    aggregate = _AGGREGATES[aggregate_function]
    votes, voted = _votes(
        aggregate, (inner + leaves, n_targets), np.arange(inner, inner + leaves), targets, doubles(leaf_weights).reshape(-1)
    )
    forest = _Forest(
        np.append(modes, np.full(leaves, _LEAF, np.int8)),
        np.append(features, np.zeros(leaves, np.intp)),
        np.append(doubles(nodes_splits).reshape(-1), np.zeros(leaves)),
        branches,
        np.append(np.array(missing, np.bool_), np.zeros(leaves, np.bool_)),
        _members(modes, membership_values),
        np.array(tree_roots, np.intp),
        votes,
        voted,
        aggregate,
        int(features.max(initial=-1)) + 1,
    )

    def run(x: Array) -> Array:
        scores = forest.scores(x)
        return transformed(scores, TRANSFORM_NAMES[post_transform]).astype(x.dtype)

    return run


def _check_range(name: str, numbers: Array, end: int) -> None:
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < end):
        raise InvalidValueError(f"{name} has {int(numbers.min())} to {int(numbers.max())}; allowed: 0 to {end - 1}", attribute=name)


def _members(modes: Array, values: Array | None) -> dict[int, Array]:
    """What the nodes of mode BRANCH_MEMBER look for, by node."""
    nodes = np.flatnonzero(modes == _MEMBER)
    flat = doubles([] if values is None else values).reshape(-1)
    ends = np.flatnonzero(np.isnan(flat))
    if ends.size != nodes.size:
        raise InvalidValueError(
            f"membership_values has {ends.size} sets, each ended by NaN; allowed: {nodes.size}, one for each node of mode 6",
            attribute="membership_values",
        )
    starts = [0, *(int(end) + 1 for end in ends[:-1])]
    return {int(node): flat[start:end] for node, start, end in zip(nodes, starts, ends, strict=False)}


LEAVES: tuple[Leaf, ...] = (
    Leaf("TreeEnsembleClassifier", (1, 3, 5), tree_ensemble_classifier, bind=True, domain="ai.onnx.ml"),
    Leaf("TreeEnsembleRegressor", (1, 3, 5), tree_ensemble_regressor, bind=True, domain="ai.onnx.ml"),
    Leaf("TreeEnsemble", (5,), tree_ensemble, bind=True, domain="ai.onnx.ml"),
)
