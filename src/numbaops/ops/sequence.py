"""Operators on sequences, optional values and strings (of the families ``sequence``, ``optional`` and ``text`` of ``onnx/defs``).

A sequence is a list, which nobody changes once it is made. An optional value is the value itself, or None.

https://onnx.ai/onnx/operators/onnx__SequenceConstruct.html and the other operators in ``LEAVES``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.ops._axes import integers, normalized_axis, single_integer
from numbaops.ops._strings import regex_full_match, string_concat, string_normalizer, string_split
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf
from numbaops.ops.movement import part_ends, parts

_Sequence = list[Any]


def sequence_construct(*inputs: Array) -> _Sequence:
    """SequenceConstruct: the inputs as a sequence."""
    return list(inputs)


def sequence_empty(dtype: int = 1) -> Callable[[], _Sequence]:
    """SequenceEmpty: a sequence of nothing, whatever the type of its elements."""
    return list


def sequence_length(sequence: _Sequence) -> Array:
    """SequenceLength: the number of elements."""
    return np.array(len(_checked(sequence)), np.int64)


def sequence_at(sequence: _Sequence, position: Array) -> Array:
    """SequenceAt: the element at a position, which may count from the back."""
    return sequence[_position(sequence, position, 0)]  # type: ignore[no-any-return]


def sequence_insert(sequence: _Sequence, tensor: Array, position: Array | None = None) -> _Sequence:
    """SequenceInsert: with another element before the one at ``position``, or at the end."""
    place = len(_checked(sequence)) if position is None else _position(sequence, position, 1)
    return [*sequence[:place], tensor, *sequence[place:]]


def sequence_erase(sequence: _Sequence, position: Array | None = None) -> _Sequence:
    """SequenceErase: without the element at ``position``, or without the last one."""
    place = _position(sequence, np.array(-1) if position is None else position, 0)
    return [*sequence[:place], *sequence[place + 1 :]]


def _checked(sequence: Any) -> _Sequence:
    if not isinstance(sequence, (list, tuple)):
        raise InvalidTypeError(f"the input is a {type(sequence).__name__}; allowed: a sequence")
    return sequence  # type: ignore[return-value]


def _position(sequence: _Sequence, position: Array, beyond: int) -> int:
    """The position as a number from 0 on; up to ``beyond`` past the last element."""
    length = len(_checked(sequence))
    given = single_integer(position, "position")
    if not -length <= given < length + beyond:
        raise InvalidValueError(
            f"position is {given} in a sequence of {length}; allowed: {-length} to {length - 1 + beyond}", attribute="position"
        )
    return given + length if given < 0 else given


def split_to_sequence(axis: int = 0, keepdims: int = 1) -> Callable[..., _Sequence]:
    """SplitToSequence: parts along ``axis`` of the given lengths, of one length, or slices (which may lose the dimension)."""

    def call(data: Array, split: Array | None = None) -> _Sequence:
        place = normalized_axis(axis, data.ndim)
        size = data.shape[place]
        if split is None and not keepdims:
            return list(np.moveaxis(data, place, 0)) if data.ndim > 1 else [data[index, ...] for index in range(size)]
        if split is None or split.ndim == 0:
            step = 1 if split is None else single_integer(split, "split")
            if step < 1:
                raise InvalidValueError(f"split is {step}; allowed: from 1 on", attribute="split")
            return parts(data, place, [min(start + step, size) for start in range(0, size, step)])
        return parts(data, place, part_ends(integers(split, "split"), size))

    return call


def concat_from_sequence(axis: int, new_axis: int = 0) -> Callable[..., Array]:
    """ConcatFromSequence: the elements one after the other along ``axis``, which may be a new one."""
    join: Callable[..., Array] = np.stack if new_axis else np.concatenate

    def call(sequence: _Sequence) -> Array:
        try:
            return join(_checked(sequence), axis)
        except ValueError:
            shapes = ", ".join(str(list(each.shape)) for each in sequence)
            raise InvalidValueError(
                f"axis is {axis} for elements of shape {shapes or 'none'}; allowed: at least one, of equal shapes"
                + ("" if new_axis else " but for the dimension axis"),
                attribute="axis",
            ) from None

    return call


def optional(type: Any = None) -> Callable[..., Any]:
    """Optional: the input, or nothing."""
    return lambda value=None: value


def optional_get_element(value: Any) -> Any:
    """OptionalGetElement: what an optional value holds."""
    if value is None:
        raise InvalidValueError("the optional input has no element")
    return value


def optional_has_element(value: Any = None) -> Array:
    """OptionalHasElement: whether there is a value."""
    return np.array(value is not None)


LEAVES: tuple[Leaf, ...] = (
    Leaf("SequenceConstruct", (11,), sequence_construct, aliases=True),
    Leaf("SequenceEmpty", (11,), sequence_empty, bind=True),
    Leaf("SequenceLength", (11,), sequence_length),
    Leaf("SequenceAt", (11,), sequence_at, aliases=True),
    Leaf("SequenceInsert", (11,), sequence_insert, aliases=True),
    Leaf("SequenceErase", (11,), sequence_erase, aliases=True),
    Leaf("SplitToSequence", (11, 24), split_to_sequence, aliases=True, bind=True),
    Leaf("ConcatFromSequence", (11,), concat_from_sequence, bind=True),
    Leaf("Optional", (15, 28), optional, aliases=True, bind=True),
    Leaf("OptionalGetElement", (15, 18, 28), optional_get_element, aliases=True),
    Leaf("OptionalHasElement", (15, 18, 28), optional_has_element),
    Leaf("StringNormalizer", (10,), string_normalizer, bind=True),
    Leaf("StringConcat", (20,), string_concat),
    Leaf("StringSplit", (20,), string_split, bind=True),
    Leaf("RegexFullMatch", (20,), regex_full_match, bind=True),
)
