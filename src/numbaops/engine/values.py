"""Who owns the arrays that pass through a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numbaops.convert import check_out
from numbaops.dense import copied
from numbaops.errors import AllocationError, EvaluationError, InvalidTypeError, InvalidValueError, NumbaopsError


def shared(value: Any) -> Any:
    """The value as everybody may see it: arrays read-only, the caller's own array left as it is."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.setflags(write=False)
        return view
    if isinstance(value, (list, tuple)):
        return [shared(each) for each in value]
    return value


def copy_of(value: Any) -> Any:
    """A copy that the caller may write to.

    Raises:
        AllocationError: there is not enough memory; what repeats one element takes none of its own before.
    """
    if isinstance(value, (list, tuple)):
        return [copy_of(each) for each in value]
    if not isinstance(value, np.ndarray):
        return value
    try:
        return copied(value)
    except MemoryError as error:
        raise AllocationError(f"no memory for an output of {described(value)}") from error


def handed_over(values: list[Any]) -> list[Any]:
    """The values as the caller's own: arrays writable, and none sharing memory with another or with the evaluator.

    All that the evaluator shares, and all that was fed, is read-only inside a run, and so is every view of it.
    """
    if len(values) == 1 and type(values[0]) is np.ndarray and values[0].flags.writeable:
        return values
    given_away: dict[int, list[np.ndarray[Any, Any]]] = {}
    return [_own(value, given_away) for value in values]


def _own(value: Any, given_away: dict[int, list[np.ndarray[Any, Any]]]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_own(each, given_away) for each in value]
    if not isinstance(value, np.ndarray):
        return value
    if not value.flags.writeable:
        return copy_of(value)
    owner: Any = value
    while (base := getattr(owner, "base", None)) is not None:
        owner = base
    relatives = given_away.setdefault(id(owner), [])
    if any(np.may_share_memory(value, other) for other in relatives):
        return copy_of(value)
    relatives.append(value)
    return value


def as_value(result: Any) -> Any:
    """What an implementation returned as a value of a graph: NumPy scalars become arrays of rank 0."""
    return np.asarray(result) if isinstance(result, np.generic) else result


def several(results: Any, count: int) -> list[Any]:
    """What an implementation returned as exactly ``count`` values; those that it does not give are None."""
    values = [as_value(each) for each in results[:count]] if type(results) is tuple else [as_value(results)]
    return values if len(values) == count else values + [None] * (count - len(values))


def mixed(function: np.ufunc, *inputs: Any) -> Any:
    """What a NumPy function gives for inputs that may differ in type, which no operator allows that is just such a function.

    Raises:
        InvalidTypeError: they differ.
    """
    kinds = [np.asarray(value).dtype for value in inputs]
    if any(kind != kinds[0] for kind in kinds):
        raise InvalidTypeError(f"the inputs have the element types {' and '.join(map(str, kinds))}; allowed: the same type")
    return function(*inputs)


def nbytes_held(value: Any) -> int:
    """Bytes of memory behind a value; an array that repeats elements by strides of zero holds each once."""
    if isinstance(value, (list, tuple)):
        return sum(map(nbytes_held, value))
    if not isinstance(value, np.ndarray):
        return 0
    count = 1
    for size, stride in zip(value.shape, value.strides, strict=True):
        count *= size if stride else min(size, 1)
    return count * value.itemsize


def find_outputs(names: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
    """The values of the given names.

    Raises:
        EvaluationError: there is no such value.
    """
    try:
        return [values[name] for name in names]
    except KeyError as missing:
        raise unknown_output(missing.args[0], values) from None


def unknown_output(name: str, known: Any) -> EvaluationError:
    """The error for an output that no graph of these values has."""
    return EvaluationError(f"Unable to find output name {name!r} in {sorted((each for each in known if each), key=str)}")


def described(value: Any) -> str:
    """The type and shape of a value, for error messages."""
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(described, value[:3]))}{', ...' if len(value) > 3 else ''}]"
    return "absent" if value is None else type(value).__name__


def written(results: Sequence[Any], buffers: Sequence[Any] | Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The results, with those that have a buffer written into it; nothing is written unless all fit.

    Args:
        results: the values.
        buffers: arrays, or None for a value that has none: in order, or by name.
        names: names of the values.

    Raises:
        NumbaopsError: a buffer does not fit, or is for no value.
    """
    if isinstance(buffers, Mapping):
        unknown = sorted(set(buffers) - set(names))
        if unknown:
            raise InvalidValueError(
                f"outputs has a buffer for {unknown[0]!r}; the wanted values are {', '.join(names)}", attribute="outputs"
            )
        buffers = [buffers.get(name) for name in names]
    elif not isinstance(buffers, (list, tuple)):
        came = type(buffers).__name__
        raise InvalidTypeError(f"outputs is a {came}; allowed: a list of arrays, or a dictionary of them by name", attribute="outputs")
    if len(buffers) != len(names):
        raise InvalidValueError(
            f"outputs has {len(buffers)} buffers for {len(names)} values; allowed: one each, or None", attribute="outputs"
        )
    targets = []
    for name, value, buffer in zip(names, results, buffers, strict=True):
        if buffer is None:
            continue
        if not isinstance(value, np.ndarray):
            raise InvalidTypeError(f"the output {name!r} is no tensor; allowed for it: None", attribute="outputs")
        try:
            targets.append((check_out(buffer, value.dtype, value.shape), value))
        except NumbaopsError as error:
            error.args = (f"the buffer of output {name!r}: {error.args[0]}",)
            error.attribute = "outputs"
            raise
    for position, (target, _) in enumerate(targets):
        if any(np.may_share_memory(target, other) for other, _ in targets[:position]):
            raise InvalidValueError("two buffers of outputs share memory; allowed: memory of its own for each", attribute="outputs")
    for target, value in targets:
        np.copyto(target, value)
    return [value if buffer is None else buffer for value, buffer in zip(results, buffers, strict=True)]
