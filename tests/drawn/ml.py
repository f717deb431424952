"""Draws of the operators of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import numpy_helper

from drawn.case import Case

DOMAIN = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NUMBERS = ("float32", "float32", "float64", "int64", "int32")
WORDS = ("", "a", "b", "c", "dd")


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for _ in range(40):
        yield from simple(rng)
        yield label_encoder(rng)
        yield linear(rng)
        yield linear_regressor(rng)
        yield svm_classifier(rng)
        yield svm_regressor(rng)
        yield tree_classifier(rng)
        yield tree_classifier(rng)
        yield tree_regressor(rng)
        yield tree_ensemble(rng)


def case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], outputs: int = 1, tolerance: float = 1e-4) -> Case:
    return Case(op_type, opset, inputs, attributes, outputs, domain=DOMAIN, rtol=tolerance, atol=tolerance)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], kind: str | None = None) -> np.ndarray:
    return (rng.normal(size=shape) * 3).astype(kind or str(rng.choice(NUMBERS)))


def words(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.array(rng.choice(WORDS, shape), object).reshape(shape)


def floats(rng: np.random.Generator, count: int) -> list[float]:
    return [float(np.float32(value)) for value in rng.normal(size=count)]


def labels(rng: np.random.Generator, count: int, ints: str, strings: str) -> dict[str, Any]:
    if rng.integers(2):
        return {ints: [int(value) for value in rng.permutation(10)[:count]]}
    return {strings: [f"c{value}" for value in rng.permutation(10)[:count]]}


def simple(rng: np.random.Generator) -> Iterator[Case]:
    rows, columns = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    x = numbers(rng, (rows, columns))
    yield case("Binarizer", 1, [x], {"threshold": float(rng.choice([0.0, 0.5, 1.0]))})
    yield case("Normalizer", 1, [x if rng.integers(4) else x[0]], {"norm": str(rng.choice(["MAX", "L1", "L2"]))})
    size = 1 if rng.integers(2) else columns
    yield case("Scaler", 1, [x], {"scale": floats(rng, size), "offset": floats(rng, size)})
    indices = rng.integers(0, columns, (1, int(rng.integers(1, 4))))
    data = words(rng, (rows, columns)) if rng.integers(4) == 0 else x
    yield case("ArrayFeatureExtractor", 1, [data if rng.integers(3) else data[0], indices[0] if rng.integers(2) else indices], {})
    parts = [numbers(rng, (rows, int(rng.integers(1, 4))), x.dtype.name) for _ in range(int(rng.integers(1, 4)))]
    yield case("FeatureVectorizer", 1, parts, {"inputdimensions": [part.shape[1] for part in parts]})
    holes = x.copy()
    holes[rng.integers(0, 2, x.shape) == 1] = 0
    if x.dtype.kind == "i":
        yield case("Imputer", 1, [holes], {"imputed_value_int64s": [7] * size, "replaced_value_int64": 0})
    else:
        missing = float(rng.choice([0.0, np.nan]))
        holes[holes == 0] = missing
        yield case("Imputer", 1, [holes], {"imputed_value_floats": floats(rng, size), "replaced_value_float": missing})
    shape = tuple(int(length) for length in rng.integers(1, 4, int(rng.integers(0, 4))))
    zeros = int(rng.integers(2))
    if rng.integers(2):
        yield case("OneHotEncoder", 1, [words(rng, shape)], {"cats_strings": ["a", "b", "dd"], "zeros": zeros})
    else:
        yield case("OneHotEncoder", 1, [numbers(rng, shape)], {"cats_int64s": [0, 2, 1, -1], "zeros": zeros})
    mapping = {"cats_int64s": [3, 1, 2], "cats_strings": ["a", "c", "b"], "default_int64": -7, "default_string": "none"}
    yield case("CategoryMapper", 1, [words(rng, shape) if rng.integers(2) else rng.integers(0, 5, shape)], mapping)


def label_encoder(rng: np.random.Generator) -> Case:
    shape = tuple(int(length) for length in rng.integers(1, 4, int(rng.integers(0, 3))))
    opset = int(rng.choice([1, 2, 3, 4]))
    if opset == 1:
        x = words(rng, shape) if rng.integers(2) else rng.integers(-1, 5, shape)
        return case("LabelEncoder", 1, [x], {"classes_strings": ["a", "dd", "c"]})
    attributes: dict[str, Any] = {}
    source, target = str(rng.choice(["strings", "int64s", "floats"])), str(rng.choice(["strings", "int64s", "floats"]))
    values: dict[str, list[Any]] = {"strings": ["x", "y", "", "z"], "int64s": [5, -6, 0, 7], "floats": [0.5, float("nan"), 2.0, -1.0]}
    keys: dict[str, list[Any]] = {"strings": ["a", "c", "", "dd"], "int64s": [1, 2, 0, -3], "floats": [0.0, 1.5, float("nan"), -2.0]}
    x = {"strings": words(rng, shape), "int64s": rng.integers(-3, 4, shape), "floats": numbers(rng, shape, "float32")}[source]
    if source == "floats":
        x = np.where(rng.integers(0, 2, shape) == 1, rng.choice(np.array(keys["floats"]), shape), x).astype(np.float32).reshape(shape)
    attributes = {f"keys_{source}": keys[source], f"values_{target}": values[target]}
    if opset == 4 and rng.integers(2):
        kind = str(rng.choice(["float64", "int32", "int16", "float32", "int64"]))
        attributes = {
            "keys_tensor": numpy_helper.from_array(np.array([1, 2, 0, -3], kind)),
            "values_tensor": numpy_helper.from_array(np.array([4, 5, 6, 7], kind)),
            "default_tensor": numpy_helper.from_array(np.array([-9], kind)),
        }
        return case("LabelEncoder", 4, [rng.integers(-3, 4, shape).astype(kind)], attributes)
    return case("LabelEncoder", opset, [x], attributes)


def linear(rng: np.random.Generator) -> Case:
    rows, columns, scores = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
    count = int(rng.choice([1, 2])) if scores == 1 else scores
    attributes = {
        "coefficients": floats(rng, scores * columns),
        "intercepts": floats(rng, scores),
        "post_transform": str(rng.choice(TRANSFORMS)),
        "multi_class": int(rng.integers(2)),
        **labels(rng, count, "classlabels_ints", "classlabels_strings"),
    }
    return case("LinearClassifier", 1, [numbers(rng, (rows, columns))], attributes, 2)


def linear_regressor(rng: np.random.Generator) -> Case:
    rows, columns, targets = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    attributes: dict[str, Any] = {
        "coefficients": floats(rng, targets * columns),
        "post_transform": str(rng.choice(TRANSFORMS)),
        "targets": targets,
    }
    if rng.integers(2):
        attributes["intercepts"] = floats(rng, targets)
    return case("LinearRegressor", 1, [numbers(rng, (rows, columns))], attributes)


def kernel(rng: np.random.Generator) -> dict[str, Any]:
    return {"kernel_type": str(rng.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])), "kernel_params": [0.25, 0.5, 2.0]}


def svm_classifier(rng: np.random.Generator) -> Case:
    rows, columns, classes = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(2, 5))
    pairs = classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "post_transform": str(rng.choice(TRANSFORMS)),
        **labels(rng, classes, "classlabels_ints", "classlabels_strings"),
    }
    if rng.integers(3):
        each = [int(count) for count in rng.integers(1, 4, classes)]
        attributes |= kernel(rng)
        attributes |= {
            "vectors_per_class": each,
            "support_vectors": floats(rng, sum(each) * columns),
            "coefficients": floats(rng, sum(each) * (classes - 1)),
            "rho": floats(rng, pairs),
        }
        if rng.integers(2):
            attributes |= {"prob_a": [-abs(value) for value in floats(rng, pairs)], "prob_b": floats(rng, pairs)}
    else:
        attributes |= {"coefficients": floats(rng, classes * columns), "rho": floats(rng, 1)}
    if rng.integers(3) == 0:
        attributes["coefficients"] = [abs(value) for value in attributes["coefficients"]]
    return case("SVMClassifier", 1, [numbers(rng, (rows, columns))], attributes, 2, tolerance=1e-3)


def svm_regressor(rng: np.random.Generator) -> Case:
    rows, columns, supports = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(0, 4))
    attributes: dict[str, Any] = {
        "post_transform": str(rng.choice(TRANSFORMS)),
        "one_class": int(rng.integers(2)),
        "rho": floats(rng, 1),
        "n_supports": supports,
        "coefficients": floats(rng, supports or columns),
    }
    if supports:
        attributes |= kernel(rng) | {"support_vectors": floats(rng, supports * columns)}
    return case("SVMRegressor", 1, [numbers(rng, (rows, columns))], attributes)


class Trees:
    """Random trees in the form of version 1, and their votes."""

    def __init__(self, rng: np.random.Generator, columns: int, targets: list[int], positive: bool) -> None:
        self.rng, self.columns = rng, columns
        self.nodes: list[tuple[int, int, str, int, float, int, int, int]] = []
        self.votes: list[tuple[int, int, int, float]] = []
        mixed = bool(rng.integers(2))
        for tree in range(int(rng.integers(1, 4))):
            self.count = 0
            self.grow(tree, int(rng.integers(0, 4)), mixed)
            for treeid, nodeid, mode, *_ in self.nodes:
                if treeid == tree and mode == "LEAF":
                    wanted = targets if rng.integers(2) else [int(rng.choice(targets))]
                    weights = [abs(value) if positive else value for value in floats(rng, len(wanted))]
                    self.votes += [(tree, nodeid, target, weight / 3) for target, weight in zip(wanted, weights, strict=True)]

    def grow(self, tree: int, depth: int, mixed: bool) -> int:
        number = self.count
        self.count += 1
        place = len(self.nodes)
        if depth == 0:
            self.nodes.append((tree, number, "LEAF", 0, 0.0, 0, 0, 0))
            return number
        self.nodes.append((tree, number, "", 0, 0.0, 0, 0, 0))
        low = self.grow(tree, depth - 1 - int(self.rng.integers(depth)), mixed)
        high = self.grow(tree, depth - 1, mixed)
        mode = str(self.rng.choice(["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"])) if mixed else "LEQ"
        value = float(self.rng.integers(-3, 4))
        feature = int(self.rng.integers(self.columns))
        self.nodes[place] = (tree, number, f"BRANCH_{mode}", feature, value, low, high, int(self.rng.integers(2)))
        return number

    def attributes(self, votes: str, double: bool) -> dict[str, Any]:
        names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
        found: dict[str, Any] = {f"nodes_{name}": list(column) for name, column in zip(names, zip(*self.nodes, strict=True), strict=True)}
        for name, column in zip(("treeids", "nodeids", "ids", "weights"), zip(*self.votes, strict=True), strict=True):
            found[f"{votes}_{name}"] = list(column)
        if double:
            for name in ("nodes_values", f"{votes}_weights"):
                found[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(found.pop(name), np.float64))
        return found


def samples(rng: np.random.Generator, columns: int, kind: str) -> np.ndarray:
    x = np.round(numbers(rng, (int(rng.integers(1, 6)), columns), "float64"))
    if kind.startswith("f"):
        x[rng.integers(0, 5, x.shape) == 0] = np.nan
    return x.astype(kind)


def tree_classifier(rng: np.random.Generator) -> Case:
    opset, columns, classes = int(rng.choice([1, 3, 5])), int(rng.integers(1, 4)), int(rng.choice([1, 2, 2, 3, 4]))
    kind = str(rng.choice(NUMBERS))
    double = opset >= 3 and kind == "float64" and bool(rng.integers(2))
    ids = list(range(classes)) if rng.integers(2) else [int(rng.integers(classes))]
    trees = Trees(rng, columns, ids, bool(rng.integers(2)))
    attributes = trees.attributes("class", double) | labels(rng, classes, "classlabels_int64s", "classlabels_strings")
    attributes["post_transform"] = str(rng.choice(TRANSFORMS))
    if rng.integers(3) == 0:
        base = floats(rng, classes)
        attributes |= {"base_values_as_tensor": numpy_helper.from_array(np.array(base))} if double else {"base_values": base}
    return case("TreeEnsembleClassifier", opset, [samples(rng, columns, kind)], attributes, 2)


def tree_regressor(rng: np.random.Generator) -> Case:
    opset, columns, targets = int(rng.choice([1, 3, 5])), int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
    kind = str(rng.choice(["float32", "float32", "float64", "int64", "int32"]))
    double = opset >= 3 and kind == "float64" and bool(rng.integers(2))
    trees = Trees(rng, columns, list(range(targets)), bool(rng.integers(2)))
    attributes = trees.attributes("target", double) | {"n_targets": targets}
    attributes["post_transform"] = str(rng.choice(TRANSFORMS)) if rng.integers(2) else "NONE"
    attributes["aggregate_function"] = str(rng.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
    if rng.integers(3) == 0:
        base = floats(rng, targets)
        attributes |= {"base_values_as_tensor": numpy_helper.from_array(np.array(base))} if double else {"base_values": base}
    return case("TreeEnsembleRegressor", opset, [samples(rng, columns, kind)], attributes)


def tree_ensemble(rng: np.random.Generator) -> Case:
    columns, targets = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3]))
    kind = str(rng.choice(["float32", "float64", "float16"]))
    nodes: list[list[Any]] = []
    leaves: list[tuple[int, float]] = []
    members: dict[int, list[float]] = {}

    def leaf() -> int:
        leaves.append((int(rng.integers(targets)), float(rng.normal())))
        return len(leaves) - 1

    def grow(depth: int) -> int:
        place = len(nodes)
        mode = int(rng.integers(7)) if rng.integers(2) else 0
        if mode == 6:
            members[place] = [float(value) for value in rng.integers(-3, 4, int(rng.integers(1, 4)))]
        nodes.append([mode, int(rng.integers(columns)), float(rng.integers(-3, 4)), int(rng.integers(2)), 0, 0, 0, 0])
        for side in (0, 1):
            ends = depth == 0 or rng.integers(3) == 0
            nodes[place][4 + side], nodes[place][6 + side] = int(ends), leaf() if ends else grow(depth - 1)
        return place

    roots = [grow(int(rng.integers(0, 3))) for _ in range(int(rng.integers(1, 4)))]
    modes, features, splits, tracks, true_leaf, false_leaf, true_id, false_id = (list(column) for column in zip(*nodes, strict=True))
    attributes: dict[str, Any] = {
        "tree_roots": roots,
        "nodes_modes": numpy_helper.from_array(np.array(modes, np.uint8)),
        "nodes_featureids": features,
        "nodes_splits": numpy_helper.from_array(np.array(splits, kind)),
        "nodes_truenodeids": true_id,
        "nodes_falsenodeids": false_id,
        "nodes_trueleafs": true_leaf,
        "nodes_falseleafs": false_leaf,
        "leaf_targetids": [target for target, _ in leaves],
        "leaf_weights": numpy_helper.from_array(np.array([weight for _, weight in leaves], kind)),
        "n_targets": targets,
        "aggregate_function": int(rng.integers(4)),
        "post_transform": int(rng.integers(5)) if rng.integers(3) == 0 else 0,
    }
    if rng.integers(2):
        attributes["nodes_missing_value_tracks_true"] = tracks
    if members:
        flat = [value for place in sorted(members) for value in [*members[place], float("nan")]]
        attributes["membership_values"] = numpy_helper.from_array(np.array(flat, kind))
    return case("TreeEnsemble", 5, [samples(rng, columns, kind)], attributes, tolerance=1e-2 if kind == "float16" else 1e-4)
