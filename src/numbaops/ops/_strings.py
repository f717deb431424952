"""Operators on strings; arrays of them hold ``str`` objects.

https://onnx.ai/onnx/operators/onnx__StringNormalizer.html, onnx__StringConcat.html, onnx__StringSplit.html, onnx__RegexFullMatch.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.ops.base import Array

_CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def string_normalizer(
    case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str = "", stopwords: Sequence[str] = ()
) -> Callable[[Array], Array]:
    """StringNormalizer: the strings that are no stop words, in another case; one empty string if none is left.

    Python's rules for cases apply whatever the locale.
    """
    if case_change_action not in _CASES:
        raise InvalidValueError(
            f"case_change_action is {case_change_action!r}; allowed: {', '.join(_CASES)}", attribute="case_change_action"
        )
    change = _CASES[case_change_action]
    same: Callable[[str], str] = str if is_case_sensitive else str.lower
    stop = {same(word) for word in stopwords}

    def call(x: Array) -> Array:
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
            raise InvalidValueError(f"the input has the shape {list(x.shape)}; allowed: [C] and [1, C]")
        kept = [change(text) for text in _texts(x) if same(text) not in stop] or [""]
        return _strings(kept, (*x.shape[:-1], len(kept)))

    return call


def string_concat(x: Array, y: Array) -> Array:
    """StringConcat: the strings of ``x`` followed by those of ``y``, with broadcasting."""
    for each in (x, y):
        _check(each)
    try:
        return np.asarray(np.add(x.astype(object, copy=False), y.astype(object, copy=False)), object)
    except ValueError:
        raise InvalidValueError(f"the inputs have the shapes {list(x.shape)} and {list(y.shape)}; allowed: what broadcasts") from None


def string_split(delimiter: str = "", maxsplit: int = -1) -> Callable[[Array], tuple[Array, Array]]:
    """StringSplit: the parts of each string, filled up with empty strings in a new last dimension, and their number."""

    def call(x: Array) -> tuple[Array, Array]:
        parts = [text.split(delimiter or None, maxsplit) for text in _texts(x)]
        counts = np.array([len(each) for each in parts], np.int64)
        most = int(counts.max(initial=0))
        padded = [part for each in parts for part in (*each, *[""] * (most - len(each)))]
        return _strings(padded, (*x.shape, most)), counts.reshape(x.shape)

    return call


def regex_full_match(pattern: str = "") -> Callable[[Array], Array]:
    """RegexFullMatch: whether each string as a whole matches the pattern, which is in the syntax of RE2."""
    matchers: list[Callable[[str], Any]] = []

    def call(x: Array) -> Array:
        if not matchers:  # at the first call: onnx.reference loads models with a pattern that is none
            try:
                matchers.append(re.compile(_python_pattern(pattern)).fullmatch)
            except re.error as error:
                raise InvalidValueError(f"pattern is {pattern!r}: {error}", attribute="pattern") from None
        return np.array([matchers[0](text) is not None for text in _texts(x)], np.bool_).reshape(x.shape)

    return call


# Sets of ASCII characters by their names in patterns, as pairs of first and last.
_SETS = {
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "ascii": "\0\x7f",
    "blank": "\t\t  ",
    "cntrl": "\0\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\r  ",
    "upper": "AZ",
    "word": "09AZ__az",
    "xdigit": "09AFaf",
    "d": "09",
    "s": "\t\n\f\r  ",
    "w": "09AZ__az",
}
# What RE2's syntax (https://github.com/google/re2/wiki/Syntax) has and Python's has not, or not with the same meaning.
_TOKEN = re.compile(
    r"\\Q(?P<text>.*?)(?:\\E|\Z)|\\x\{(?P<code>[0-9A-Fa-f]+)\}|\[:(?P<no>\^?)(?P<set>[a-z]+):\]|\\(?P<letter>[dswDSW])"
    r"|\\.|\(\?<(?=\w)|\[\^?\]?|\]|[&~|]",
    re.DOTALL,
)

# Of which Python's \b knows more than ASCII, and \B no empty string.
_OTHERWISE = {r"\z": r"\Z", "(?<": "(?P<", r"\b": r"(?a:\b)", r"\B": r"(?!(?a:\b))"}


def _python_pattern(pattern: str) -> str:
    """The pattern in Python's syntax; what neither this nor Python knows is left to Python's error."""
    inside = False  # of brackets

    def translated(found: re.Match[str]) -> str:
        nonlocal inside
        token, letter = found.group(), found["letter"]
        if found["text"] is not None:
            return re.escape(found["text"])
        if found["code"]:
            return re.escape(chr(int(found["code"], 16)))
        if letter:
            ranges = _ranges(_SETS[letter.lower()], letter.isupper())
            return ranges if inside else f"[{ranges}]"
        if inside and found["set"] in _SETS:
            return _ranges(_SETS[found["set"]], bool(found["no"]))
        if not inside and token[0] == "[":
            inside = True
            return token
        if token == "]":
            inside = False
        elif inside and token[0] in "[&~|":
            return "".join("\\" + each for each in token)
        return token if inside else _OTHERWISE.get(token, token)

    return _TOKEN.sub(translated, pattern)


def _ranges(pairs: str, negated: bool) -> str:
    """The inside of brackets for a set of characters, or for all others."""
    bounds = [ord(each) for each in pairs]
    if negated:
        bounds = [-1, *bounds, 0x110000]
        bounds = [bound + (1 if place % 2 == 0 else -1) for place, bound in enumerate(bounds)]
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in zip(bounds[::2], bounds[1::2], strict=True) if first <= last)


def _check(x: Array) -> None:
    if x.dtype.kind not in "OSUT":
        raise InvalidTypeError(f"an input has element type {x.dtype}; allowed: string")


def _texts(x: Array) -> list[str]:
    _check(x)
    return x.reshape(-1).tolist()


def _strings(texts: list[str], shape: tuple[int, ...]) -> Array:
    out = np.empty(len(texts), object)
    out[:] = texts
    return out.reshape(shape)
