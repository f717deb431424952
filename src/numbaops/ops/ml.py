"""Operators of ai.onnx.ml: maps, labels and features. Models and trees, and the optimizers of the training domain, have files of their own.

https://onnx.ai/onnx/operators/index.html, domain ai.onnx.ml
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.ops import _linear_models, _training, _trees
from numbaops.ops._scores import Array, computed
from numbaops.ops.leaf import Leaf

_DOMAIN = "ai.onnx.ml"


def _looked_up(x: Array, keys: Array, values: Array, default: Any) -> Array:
    """The value of each element's key; of equal keys the last one counts, and NaN equals NaN."""
    if len(keys) != len(values):
        raise InvalidValueError(f"there are {len(keys)} keys for {len(values)} values; allowed: one each")
    if (x.dtype.kind in "OUS") != (keys.dtype.kind in "OUS"):
        kinds = ["strings" if array.dtype.kind in "OUS" else "numbers" for array in (x, keys)]
        raise InvalidTypeError(f"the input holds {kinds[0]}, and the keys are {kinds[1]}; allowed: one kind")
    found = np.full(x.size, default, values.dtype)
    if x.dtype.kind in "OUS":
        places = {key: place for place, key in enumerate(keys.tolist())}
        index = np.array([places.get(word, -1) for word in x.reshape(-1).tolist()], np.intp)
        known = index >= 0
    else:
        order = np.argsort(keys, kind="stable")
        flat = x.reshape(-1)
        index = np.searchsorted(keys[order], flat, side="right") - 1
        nearest = keys[order[index]] if keys.size else np.zeros(flat.shape)
        known = (index >= 0) & ((nearest == flat) | ((nearest != nearest) & (flat != flat)))
        index = order[index] if keys.size else index
    found[known] = values[index[known]]
    return found.reshape(x.shape)


def _words(values: Sequence[str]) -> Array:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def label_encoder_1(x: Array, *, classes_strings: Sequence[str] = (), default_int64: int, default_string: str) -> Array:
    """LabelEncoder of version 1: strings to their places in a list, or places to strings."""
    classes, places = _words(classes_strings), np.arange(len(classes_strings), dtype=np.int64)
    if x.dtype.kind in "OUS":
        return _looked_up(x, classes, places, default_int64)
    return _looked_up(x, places, classes, default_string)


def label_encoder(x: Array, **attributes: Any) -> Array:
    """LabelEncoder of versions 2 and 4: elements to the values of their keys.

    Args:
        x: any shape, of the keys' type.
        attributes: one of ``keys_floats``, ``keys_int64s``, ``keys_strings`` and ``keys_tensor``, one of ``values_...``, and the default
            of the values' kind.
    """
    keys, _ = _typed("keys", attributes)
    values, kind = _typed("values", attributes)
    default = attributes.get(f"default_{kind.removesuffix('s')}")
    if kind == "tensor":
        plain: Any = "_Unused" if values.dtype.kind == "O" else -1 if values.dtype.kind in "iu" else -0.0
        default = plain if default is None else default.reshape(-1)[0]
    return _looked_up(x, keys, values, default)


def _typed(what: str, attributes: Mapping[str, Any]) -> tuple[Array, str]:
    """The one attribute of ``what`` that is given, and its kind."""
    given = [kind for kind in ("floats", "int64s", "strings", "tensor") if attributes.get(f"{what}_{kind}") is not None]
    if len(given) != 1:
        raise InvalidValueError(
            f"there are {len(given)} attributes for {what}: {', '.join(f'{what}_{kind}' for kind in given) or 'none'}; allowed: one",
            attribute=f"{what}_tensor",
        )
    values = attributes[f"{what}_{given[0]}"]
    if given[0] == "strings":
        return _words(values), given[0]
    types = {"floats": np.float32, "int64s": np.int64, "tensor": None}
    return np.asarray(values, types[given[0]]).reshape(-1), given[0]


def category_mapper(
    x: Array, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), default_int64: int, default_string: str
) -> Array:
    """CategoryMapper: strings to integers and back."""
    numbers, words = np.array(cats_int64s, np.int64), _words(cats_strings)
    if x.dtype.kind in "OUS":
        return _looked_up(x, words, numbers, default_int64)
    return _looked_up(x, numbers, words, default_string)


def one_hot_encoder(x: Array, *, cats_int64s: Sequence[int] | None = None, cats_strings: Sequence[str] | None = None, zeros: int) -> Array:
    """OneHotEncoder: one more dimension than x, of the categories' number. Floats are cut off to integers."""
    strings = x.dtype.kind in "OUS"
    categories = _words(cats_strings or []) if strings else np.array(cats_int64s or [], np.int64)
    if not categories.size:
        needed = "cats_strings" if strings else "cats_int64s"
        raise InvalidValueError(f"{needed} is empty; allowed: the categories of an input of {x.dtype}", attribute=needed)
    plain = x if strings or x.dtype.kind in "iu" else np.trunc(x)
    place = _looked_up(plain, categories, np.arange(categories.size), -1)
    if not zeros and (place < 0).any():
        unknown = x.reshape(-1)[(place < 0).reshape(-1)][0]
        raise InvalidValueError(f"{unknown!r} is no category; allowed, as zeros is 0: {categories.tolist()}", attribute="zeros")
    return np.equal(place[..., None], np.arange(categories.size)).astype(np.float32)


def binarizer(x: Array, *, threshold: float) -> Array:
    """Binarizer: 1 above the threshold, else 0, of x's type."""
    return np.asarray(x > threshold).astype(x.dtype)


def scaler(x: Array, *, offset: Sequence[float] | None = None, scale: Sequence[float] | None = None) -> Array:
    """Scaler: (x - offset) * scale, in float; both are one number, or one for each feature."""
    for name, values in (("offset", offset), ("scale", scale)):
        if values is not None and len(values) not in (1, x.shape[-1] if x.ndim else 1):
            features = x.shape[-1] if x.ndim else 1
            raise InvalidValueError(f"{name} has {len(values)} elements; allowed: 1 and {features}, one a feature", attribute=name)
    y = computed(x)
    if offset is not None:
        y = y - np.array(offset, np.float32)
    if scale is not None:
        y = y * np.array(scale, np.float32)
    return y.astype(np.float32).reshape(x.shape)


def normalizer(x: Array, *, norm: str) -> Array:
    """Normalizer: rows divided by their norm, in float; a row of norm 0 stays. The text's maximum is one with its sign."""
    y = computed(x)
    if norm == "MAX":
        divisor = y.max(axis=-1, keepdims=True, initial=-np.inf)
    elif norm == "L1":
        divisor = np.abs(y).sum(axis=-1, keepdims=True)
    elif norm == "L2":
        divisor = np.sqrt(np.square(y).sum(axis=-1, keepdims=True))
    else:
        raise InvalidValueError(f"norm is {norm!r}; allowed: MAX, L1, L2", attribute="norm")
    return np.asarray(y / np.where(divisor == 0, 1, divisor)).astype(np.float32, copy=False)


def imputer(
    x: Array,
    *,
    imputed_value_floats: Sequence[float] | None = None,
    imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float,
    replaced_value_int64: int,
) -> Array:
    """Imputer: x with one value replaced, by one for all or by one for each feature."""
    whole = x.dtype.kind in "iu"
    name, values = ("imputed_value_int64s", imputed_value_int64s) if whole else ("imputed_value_floats", imputed_value_floats)
    features = x.shape[-1] if x.ndim else 1
    if not values or len(values) not in (1, features):
        raise InvalidValueError(
            f"{name} has {len(values or ())} elements; allowed for an input of {x.dtype}: 1 and {features}, one a feature", attribute=name
        )
    replaced: Any = replaced_value_int64 if whole else replaced_value_float
    holes = np.isnan(x) if replaced != replaced else x == replaced
    return np.where(holes, np.array(values).astype(x.dtype), x).reshape(x.shape)


def feature_vectorizer(*inputs: Array, inputdimensions: Sequence[int] | None = None) -> Array:
    """FeatureVectorizer: the features of all inputs side by side, in float; each is cut, or filled with zeros, to its length."""
    rows = [each.reshape(1, -1) if each.ndim == 1 else each for each in inputs]
    lengths = [each.shape[-1] for each in rows] if inputdimensions is None else list(inputdimensions)
    if len(lengths) != len(rows) or any(each.ndim != 2 or each.shape[0] != rows[0].shape[0] for each in rows):
        shapes = [list(each.shape) for each in inputs]
        raise InvalidValueError(f"the inputs have the shapes {shapes}, and {len(lengths)} lengths; allowed: [N, C] each, and one length")
    y = np.zeros((rows[0].shape[0], sum(lengths)), np.float32)
    start = 0
    for each, length in zip(rows, lengths, strict=True):
        kept = min(length, each.shape[1])
        y[:, start : start + kept] = each[:, :kept]
        start += length
    return y


def zip_map(
    x: Array, *, classlabels_int64s: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None
) -> list[dict[Any, float]]:
    """ZipMap: for each row of (N, C), or for (C,), a dict from the labels to the values."""
    labels = list(classlabels_strings or classlabels_int64s or [])
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.ndim != 2 or rows.shape[1] != len(labels):
        raise InvalidValueError(f"the input has the shape {list(x.shape)}; allowed: [N, {len(labels)}], one column a label")
    return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]


def dict_vectorizer(x: Any, *, int64_vocabulary: Sequence[int] | None = None, string_vocabulary: Sequence[str] | None = None) -> Array:
    """DictVectorizer: the values of a dict in the order of the vocabulary, (length,), zeros or empty strings where it has none.

    A list of dicts, which onnx.reference takes too, gives a row each.
    """
    vocabulary = list(string_vocabulary or int64_vocabulary or [])
    maps = [x] if isinstance(x, Mapping) else list(x)
    for each in maps:
        if unknown := set(each) - set(vocabulary):
            raise InvalidValueError(f"the input has the key {unknown.pop()!r}; allowed: {vocabulary}")
    values = [value for each in maps for value in each.values()]
    strings = any(isinstance(value, str) for value in values)
    # a Python float stands for an element of a map of float, as in ONNX Runtime
    kind = object if strings else np.result_type(*(np.float32(0) if type(value) is float else value for value in values or [0.0]))
    found = np.array([[each.get(key, "" if strings else 0) for key in vocabulary] for each in maps], kind)
    found = found.reshape(len(maps), len(vocabulary))
    return found[0] if isinstance(x, Mapping) else found


def _number(text: Any) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValueError(f"the input has the value {text!r}; allowed with cast_to {'TO_FLOAT'!r} and 'TO_INT64': numbers") from None


def cast_map(x: Mapping[int, Any], *, cast_to: str, map_form: str, max_map: int) -> Array:
    """CastMap: the values of a dict by rising key, as (1, length).

    Args:
        x: from integers to floats or strings.
        cast_to: TO_FLOAT, TO_STRING or TO_INT64; floats become integers by cutting off, and strings as C++ has it, with six decimals.
        map_form: DENSE for the values alone, SPARSE for ``max_map`` places of which the keys say which are taken.
        max_map: the length in the form SPARSE.
    """
    types: dict[str, Any] = {"TO_FLOAT": np.float32, "TO_STRING": object, "TO_INT64": np.int64}
    if cast_to not in types:
        raise InvalidValueError(f"cast_to is {cast_to!r}; allowed: {', '.join(types)}", attribute="cast_to")
    if map_form not in ("DENSE", "SPARSE"):
        raise InvalidValueError(f"map_form is {map_form!r}; allowed: DENSE, SPARSE", attribute="map_form")
    keys = sorted(x)
    if map_form == "SPARSE" and keys and not 0 <= keys[0] <= keys[-1] < max_map:
        raise InvalidValueError(f"the input has keys from {keys[0]} to {keys[-1]}; allowed: 0 to {max_map - 1}", attribute="max_map")
    values: list[Any] = [x[key] for key in keys]
    if cast_to == "TO_STRING":
        values = [value if isinstance(value, str) else f"{float(value):.6f}" for value in values]
    elif cast_to == "TO_FLOAT":
        values = [_number(value) for value in values]
    else:
        values = [int(_number(value)) for value in values]
    y = np.full((1, len(keys) if map_form == "DENSE" else max_map), "" if cast_to == "TO_STRING" else 0, types[cast_to])
    y[0, keys if map_form == "SPARSE" else slice(None)] = values
    return y


LEAVES: tuple[Leaf, ...] = (
    Leaf("LabelEncoder", (1,), label_encoder_1, domain=_DOMAIN),
    Leaf("LabelEncoder", (2, 4), label_encoder, domain=_DOMAIN),
    Leaf("CategoryMapper", (1,), category_mapper, domain=_DOMAIN),
    Leaf("OneHotEncoder", (1,), one_hot_encoder, domain=_DOMAIN),
    Leaf("Binarizer", (1,), binarizer, domain=_DOMAIN),
    Leaf("Scaler", (1,), scaler, domain=_DOMAIN),
    Leaf("Normalizer", (1,), normalizer, domain=_DOMAIN),
    Leaf("Imputer", (1,), imputer, domain=_DOMAIN),
    Leaf("FeatureVectorizer", (1,), feature_vectorizer, domain=_DOMAIN),
    Leaf("ZipMap", (1,), zip_map, domain=_DOMAIN),
    Leaf("DictVectorizer", (1,), dict_vectorizer, domain=_DOMAIN),
    Leaf("CastMap", (1,), cast_map, domain=_DOMAIN),
    *_linear_models.LEAVES,
    *_trees.LEAVES,
    *_training.LEAVES,
)
