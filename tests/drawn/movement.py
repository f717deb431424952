"""Draws of operators that move elements: shapes, slices, joins, pads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from drawn.case import Case

TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(bfloat16)": ml_dtypes.bfloat16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
    "tensor(string)": object,
    "tensor(complex64)": np.complex64,
    "tensor(float8e4m3fn)": ml_dtypes.float8_e4m3fn,
    "tensor(int4)": ml_dtypes.int4,
}


def versions(op_type: str) -> list[int]:
    """The since versions of an operator."""
    return sorted(
        schema.since_version for schema in onnx.defs.get_all_schemas_with_history() if (schema.domain, schema.name) == ("", op_type)
    )


def types(op_type: str, version: int, position: int = 0) -> list[Any]:
    """The dtypes that an input of a version may have, of those that are drawn."""
    allowed = onnx.defs.get_schema(op_type, version).inputs[position].types
    return [dtype for name, dtype in TYPES.items() if name in allowed]


def tensor(rng: np.random.Generator, shape: Any, dtype: Any, low: int = -9, high: int = 10) -> Any:
    """Small whole numbers, or short strings."""
    numbers = rng.integers(0 if np.dtype(dtype).kind == "u" else low, high, size=shape)
    if dtype is object:
        texts = np.empty(numbers.size, object)
        texts[:] = ["" if number == 0 else f"s{number}" for number in numbers.reshape(-1)]
        return texts.reshape(numbers.shape)
    if dtype is np.bool_:
        return np.asarray(numbers % 2 == 0)
    with np.errstate(all="ignore"):
        return np.asarray(numbers).astype(dtype)


def dims(rng: np.random.Generator, low: int = 0, high: int = 4) -> list[int]:
    """A shape of rank ``low`` to ``high``; one in ten dimensions is 0, two are 1."""
    return [int(each) for each in rng.choice([0, 1, 1, 2, 2, 3, 3, 4, 5, 6], size=rng.integers(low, high + 1))]


def int64(values: Any) -> Any:
    return np.array(values, np.int64).reshape(-1)


def some_axes(rng: np.random.Generator, rank: int, negative: bool = True) -> list[int]:
    """Different axes in any order."""
    chosen = rng.permutation(rank)[: rng.integers(0, rank + 1)]
    return [int(each) - rank * int(negative and rng.integers(2)) for each in chosen]


def axis_of(rng: np.random.Generator, rank: int, negative: bool = True) -> int:
    return int(rng.integers(-rank if negative else 0, rank))


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for op_type, draw in DRAWS.items():
        for version in versions(op_type):
            for dtype in types(op_type, version):
                for _ in range(6 if dtype in (np.float32, object) else 2):
                    yield draw(rng, version, dtype)


def reshape(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng)
    attributes: dict[str, Any] = {"allowzero": 1} if version >= 14 and rng.integers(2) else {}
    wanted = [int(each) for each in rng.permutation(shape)]
    if 0 in shape and not attributes:
        wanted = list(shape)  # a 0 stands for what is there
    elif 0 not in shape:
        if wanted and rng.integers(2):
            wanted[rng.integers(len(wanted))] = -1
        if not attributes and rng.integers(3) == 0:
            wanted = [0 if each == other and rng.integers(2) else each for each, other in zip(wanted, shape, strict=True)]
    if 0 not in wanted and rng.integers(3) == 0:
        wanted.insert(int(rng.integers(len(wanted) + 1)), 1)
    x = tensor(rng, shape, dtype)
    return (
        Case("Reshape", version, [x], {"shape": wanted or [1]})
        if version == 1
        else Case("Reshape", version, [x, int64(wanted)], attributes)
    )


def flatten(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng)
    axis = int(rng.integers(-len(shape) if version >= 11 else 0, len(shape) + 1))
    return Case("Flatten", version, [tensor(rng, shape, dtype)], {"axis": axis} if not shape or rng.integers(4) else {})


def squeeze(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng)
    ones = [axis - len(shape) * int(version >= 11 and rng.integers(2)) for axis, size in enumerate(shape) if size == 1]
    ones = [int(each) for each in rng.permutation(ones)[: rng.integers(len(ones) + 1)]]
    x = tensor(rng, shape, dtype)
    if not ones:
        return Case("Squeeze", version, [x])
    return Case("Squeeze", version, [x], {"axes": ones}) if version < 13 else Case("Squeeze", version, [x, int64(ones)])


def unsqueeze(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 0, 3)
    more = int(rng.integers(1, 4))
    rank = len(shape) + more
    axes = [int(each) - rank * int(version >= 11 and rng.integers(2)) for each in rng.permutation(rank)[:more]]
    x = tensor(rng, shape, dtype)
    return Case("Unsqueeze", version, [x], {"axes": axes}) if version < 13 else Case("Unsqueeze", version, [x, int64(axes)])


def transpose(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng)
    perm = [int(each) for each in rng.permutation(len(shape))]
    return Case("Transpose", version, [tensor(rng, shape, dtype)], {"perm": perm} if perm and rng.integers(3) else {})


def concat(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 2 if version == 1 else 1)
    axis = axis_of(rng, len(shape), version >= 11)
    attributes = {"axis": axis}
    if version == 1 and rng.integers(2):
        axis, attributes = 1, {}
    inputs = []
    for _ in range(rng.integers(1, 5)):
        one = list(shape)
        one[axis] = int(rng.integers(0, 4))
        inputs.append(tensor(rng, one, dtype))
    return Case("Concat", version, inputs, attributes)


def split(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    outputs = int(rng.integers(1, 5))
    lengths = [int(each) for each in rng.integers(0, 4, size=outputs)]
    shape = dims(rng, 1)
    axis = axis_of(rng, len(shape), version >= 11)
    attributes: dict[str, Any] = {"axis": axis}
    inputs: list[Any] = []
    if rng.integers(2):
        shape[axis] = sum(lengths)
        if version == 1 and rng.integers(2):
            inputs = [np.array(lengths, dtype)]
        elif version < 13:
            attributes["split"] = lengths
        else:
            inputs = [int64(lengths)]
    elif version >= 18:
        shape[axis] = int(rng.integers(0, 9))
        attributes["num_outputs"] = outputs
    else:
        shape[axis] = outputs * lengths[0]
    if axis == 0 and rng.integers(2):
        del attributes["axis"]
    return Case("Split", version, [tensor(rng, shape, dtype), *inputs], attributes, outputs=outputs)


def slice_(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 1)
    axes = some_axes(rng, len(shape), version >= 10)
    if not axes or rng.integers(3) == 0:
        axes = list(range(rng.integers(1, len(shape) + 1)))
    bounds = [-(2**63), -(2**31), *range(-9, 10), 2**31 - 1, 2**63 - 1]
    starts, ends = ([int(rng.choice(bounds)) for _ in axes] for _ in range(2))
    x = tensor(rng, shape, dtype)
    no_axes = axes == list(range(len(axes))) and bool(rng.integers(2))
    if version == 1:
        return Case("Slice", 1, [x], {"starts": starts, "ends": ends} | ({} if no_axes else {"axes": axes}))
    steps = int64([int(rng.choice([-3, -2, -1, 1, 1, 2, 3, 2**40, -(2**40)])) for _ in axes]) if rng.integers(3) else None
    if steps is not None:
        # backward up to INT_MAX is nothing, and everything to ONNX Runtime, which keeps to an older reading
        ends = [min(end, 9) if step < 0 else end for end, step in zip(ends, steps, strict=True)]
    inputs = [int64(starts), int64(ends), None if no_axes else int64(axes), steps]
    if rng.integers(2):
        limit = np.iinfo(np.int32)
        inputs = [each if each is None else each.clip(limit.min, limit.max).astype(np.int32) for each in inputs]
    while inputs[-1] is None:
        inputs.pop()
    return Case("Slice", version, [x, *inputs])


def pad(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 1 if version < 11 else 0)
    axes = list(range(len(shape)))
    given = version >= 18 and bool(rng.integers(2))
    if given:
        axes = some_axes(rng, len(shape))
    modes = ["constant", "constant", "edge", "reflect"] + ["wrap"] * (version >= 19)
    mode = str(rng.choice(modes))
    pads = [[], []]
    for axis in axes:
        size = shape[axis]
        most = {"constant": 3, "edge": 3 if size else 0, "reflect": max(size - 1, 0), "wrap": size}[mode]
        least = -min(2, size // 2) if version > 1 and rng.integers(3) == 0 else 0
        for end in pads:
            end.append(int(rng.integers(least, most + 1)))
    flat = pads[0] + pads[1]
    attributes: dict[str, Any] = {"mode": mode} if mode != "constant" or rng.integers(2) else {}
    x = tensor(rng, shape, dtype)
    if version < 11:
        if rng.integers(2):
            attributes["value"] = 1.5
        return Case("Pad", version, [x], {"paddings" if version == 1 else "pads": flat or [0, 0], **attributes})
    value = tensor(rng, (), dtype) if rng.integers(2) else None
    inputs = [x, int64(flat), value, (int64(axes).astype(np.int32) if rng.integers(2) else int64(axes)) if given else None]
    while inputs[-1] is None:
        inputs.pop()
    return Case("Pad", version, inputs, attributes)


def tile(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 1 if version == 1 else 0)
    x = tensor(rng, shape, dtype)
    if version == 1:
        return Case("Tile", 1, [x, np.array(rng.integers(0, 4), dtype), np.array(rng.integers(len(shape)), dtype)])
    return Case("Tile", version, [x, int64(rng.integers(0, 4, size=len(shape)))])


def expand(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng)
    wanted = [int(rng.integers(0, 5)) if size == 1 else int(rng.choice([1, size])) for size in shape]
    wanted = [*dims(rng, 0, 2), *wanted] if rng.integers(2) else wanted[int(rng.integers(len(wanted) + 1)) :]
    return Case("Expand", version, [tensor(rng, shape, dtype), int64(wanted)])


def plain(op_type: str) -> Callable[[np.random.Generator, int, Any], Case]:
    return lambda rng, version, dtype: Case(op_type, version, [tensor(rng, dims(rng), dtype)])


def shape_(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    names = [name for name in ("start", "end") if rng.integers(3)] if version >= 15 else []
    return Case("Shape", version, [tensor(rng, dims(rng), dtype)], {name: int(rng.integers(-6, 7)) for name in names})


def depth_to_space(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    block = int(rng.integers(1, 4))
    shape = [int(each) for each in rng.integers(0 if rng.integers(4) == 0 else 1, 4, size=4)]
    shape[1] *= block**2
    mode = {"mode": str(rng.choice(["DCR", "CRD"]))} if version >= 11 and rng.integers(4) else {}
    return Case("DepthToSpace", version, [tensor(rng, shape, dtype)], {"blocksize": block, **mode})


def space_to_depth(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    block = int(rng.integers(1, 4))
    shape = [int(each) for each in rng.integers(0 if rng.integers(4) == 0 else 1, 4, size=4)]
    shape[2:] = [each * block for each in shape[2:]]
    mode = {"mode": str(rng.choice(["DCR", "CRD"]))} if version >= 28 and rng.integers(4) else {}
    return Case("SpaceToDepth", version, [tensor(rng, shape, dtype)], {"blocksize": block, **mode})


def trilu(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    k = [np.array(rng.choice([-(2**62), *range(-6, 7), 2**62]), np.int64)] if rng.integers(4) else []
    return Case("Trilu", version, [tensor(rng, dims(rng, 2), dtype), *k], {"upper": int(rng.integers(2))} if rng.integers(4) else {})


def center_crop_pad(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 1)
    axes = some_axes(rng, len(shape)) if rng.integers(2) else None
    if not axes:
        axes = None
    wanted = rng.integers(0, 9, size=len(axes or shape))
    return Case(
        "CenterCropPad",
        version,
        [tensor(rng, shape, dtype), wanted.astype(rng.choice([np.int32, np.int64]))],
        {} if axes is None else {"axes": axes},
    )


def reverse_sequence(rng: np.random.Generator, version: int, dtype: Any) -> Case:
    shape = dims(rng, 2)
    batch_axis = int(rng.integers(2))
    lengths = int64(rng.integers(0, shape[1 - batch_axis] + 1, size=shape[batch_axis]))
    attributes = {"batch_axis": batch_axis, "time_axis": 1 - batch_axis} if batch_axis == 0 or rng.integers(2) else {}
    return Case("ReverseSequence", version, [tensor(rng, shape, dtype), lengths], attributes)


DRAWS: dict[str, Callable[[np.random.Generator, int, Any], Case]] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Pad": pad,
    "Tile": tile,
    "Expand": expand,
    "Shape": shape_,
    "Identity": plain("Identity"),
    "Size": plain("Size"),
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "Trilu": trilu,
    "CenterCropPad": center_crop_pad,
    "ReverseSequence": reverse_sequence,
}
