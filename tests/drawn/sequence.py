"""Draws of operators on sequences, optional values and strings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from drawn.case import Case
from drawn.movement import axis_of, dims, tensor, types, versions


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for op_type, draw in DRAWS.items():
        for version in versions(op_type):
            for dtype in ELEMENTS if op_type in OF_SEQUENCES else [object] * 30 if op_type in OF_STRINGS else types(op_type, version):
                for _ in range(8 if dtype in (np.float32, object) else 3):
                    yield draw(rng, version, dtype)


ELEMENTS = [np.float32, np.float64, np.int64, np.uint8, np.bool_, object]
OF_SEQUENCES = {"SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", "ConcatFromSequence"}
OF_STRINGS = {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"}


def sequence(rng: np.random.Generator, dtype: Any, least: int = 0) -> list[Any]:
    return [tensor(rng, dims(rng, 0, 3), dtype) for _ in range(rng.integers(least, 5))]


def position(rng: np.random.Generator, low: int, high: int) -> Any:
    return np.array(rng.integers(low, high), rng.choice([np.int32, np.int64]))


def sequence_construct(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    return Case("SequenceConstruct", version, sequence(rng, dtype, 1))


def sequence_at(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    given = sequence(rng, dtype, 1)
    return Case("SequenceAt", version, [given, position(rng, -len(given), len(given))])


def sequence_insert(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    given = sequence(rng, dtype, 1)
    place = [position(rng, -len(given), len(given) + 1)] if rng.integers(3) else []
    return Case("SequenceInsert", version, [given, tensor(rng, dims(rng), dtype), *place])


def sequence_erase(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    given = sequence(rng, dtype, 1)
    return Case("SequenceErase", version, [given, position(rng, -len(given), len(given))] if rng.integers(3) else [given])


def sequence_length(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    return Case("SequenceLength", version, [sequence(rng, dtype, 1)])


def split_to_sequence(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 1)
    axis = axis_of(rng, len(shape))
    attributes = {} if axis == 0 and rng.integers(2) else {"axis": axis}
    kind = rng.choice([np.int32, np.int64])
    inputs: list[Any] = []
    if rng.integers(3) == 0:
        attributes["keepdims"] = int(rng.integers(2))
    elif rng.integers(2):
        inputs = [np.array(rng.integers(1, 5), kind)]
    else:
        lengths = rng.integers(0, 4, size=rng.integers(1, 4))
        shape[axis] = int(lengths.sum())
        inputs = [lengths.astype(kind)]
    return Case("SplitToSequence", version, [tensor(rng, shape, dtype), *inputs], attributes)


def concat_from_sequence(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    new_axis = int(rng.integers(2))
    shape = dims(rng, 1 - new_axis, 3)
    axis = axis_of(rng, len(shape) + new_axis)
    given = []
    for _ in range(rng.integers(1, 4)):
        if not new_axis:
            shape[axis] = int(rng.integers(0, 4))
        given.append(tensor(rng, shape, dtype))
    return Case(
        "ConcatFromSequence", version, [given], {"axis": axis, "new_axis": new_axis} if rng.integers(2) or new_axis else {"axis": axis}
    )


def optional(op_type: str) -> Callable[[np.random.Generator, int, Any], Case]:
    return lambda rng, version, dtype: Case(op_type, version, [tensor(rng, dims(rng), dtype)])


ALPHABET = ["a", "B", "c", "é", "Ü", "1", " ", "  ", ",", ",,", "ab", "\t", "\n", "_", "٣"]


def texts(rng: np.random.Generator, shape: Any, alphabet: Any = ALPHABET) -> Any:
    found = np.empty(int(np.prod(shape)), object)
    found[:] = ["".join(rng.choice(alphabet, size=rng.integers(0, 5))) for _ in range(found.size)]
    return found.reshape(shape)


def string_normalizer(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    x = texts(rng, [1] * int(rng.integers(2)) + [int(rng.integers(0, 5))], ["a", "A", "b", "B", "É", "é", " "])
    attributes: dict[str, Any] = {"locale": "C.UTF-8"}
    if rng.integers(3):
        attributes["case_change_action"] = str(rng.choice(["NONE", "LOWER", "UPPER"]))
    if rng.integers(3):
        attributes["is_case_sensitive"] = int(rng.integers(2))
    if rng.integers(3) and x.size:
        attributes["stopwords"] = [str(each) for each in rng.choice([*x.reshape(-1), "A", "b"], size=2)]
    return Case("StringNormalizer", version, [x], attributes)


def string_concat(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 0, 3)
    return Case("StringConcat", version, [texts(rng, shape), texts(rng, [1 if rng.integers(3) == 0 else size for size in shape])])


def string_split(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    attributes: dict[str, Any] = {"delimiter": str(rng.choice(["", ",", " ", "ab", "a"]))} if rng.integers(3) else {}
    if rng.integers(2):
        attributes["maxsplit"] = int(rng.integers(1, 4))
    return Case("StringSplit", version, [texts(rng, dims(rng, 1, 3))], attributes, outputs=2)


PATTERNS = [
    r"", r".+", r"(?s).+", r"^a.*$", r"a.*", r"[ab]*", r"(a|B)*\z", r"(?i)AB?.*", r"(?i)É", r"(?P<x>a)?.*", r"(?<x>a)?b*",
    r"\w+", r"\W+", r"[\W]*", r"[^\W]*", r"[^\w]*", r"\d*", r"[\d,]*", r"\D*", r"\s+", r"[\S]*", r".*\b.*", r".*\B.*",
    r"[[:alpha:]]+", r"[^[:space:]]*", r"[[:^punct:]_]*", r"[]a]*", r"[^]a]*", r"[[a]*", r"\x{e9}|a", r"\Qa,\E.*", r"[&&a]*",
]  # fmt: skip


def regex_full_match(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    return Case("RegexFullMatch", version, [texts(rng, dims(rng, 0, 3))], {"pattern": str(rng.choice(PATTERNS))})


DRAWS: dict[str, Callable[[np.random.Generator, int, Any], Case]] = {
    "SequenceConstruct": sequence_construct,
    "SequenceAt": sequence_at,
    "SequenceInsert": sequence_insert,
    "SequenceErase": sequence_erase,
    "SequenceLength": sequence_length,
    "SplitToSequence": split_to_sequence,
    "ConcatFromSequence": concat_from_sequence,
    "Optional": optional("Optional"),
    "OptionalGetElement": optional("OptionalGetElement"),
    "OptionalHasElement": optional("OptionalHasElement"),
    "StringNormalizer": string_normalizer,
    "StringConcat": string_concat,
    "StringSplit": string_split,
    "RegexFullMatch": regex_full_match,
}
