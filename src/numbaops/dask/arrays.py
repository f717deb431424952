"""Constants, diagonals and casts in chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np

import numbaops
from numbaops.convert import array_nbytes
from numbaops.dtypes import element_type, of_dtype
from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.ops.base import as_integer


def constant_of_shape(shape: Any, value: Any = None, chunks: Any = "auto", *, opset: int | None = None) -> da.Array:
    """:func:`numbaops.constant_of_shape` in chunks.

    Args:
        shape: a tuple or list of integers.
        value: as for :func:`numbaops.constant_of_shape`, and as there it gives the element type.
        chunks: whatever ``dask.array`` takes for chunks; by default of the size that Dask is configured for, 128 MiB.
        opset: the opset version; None is the newest.

    Raises:
        NumbaopsError: what :func:`numbaops.constant_of_shape` raises for ``value`` and ``shape``, at once.
    """
    sizes = _sizes(shape, "shape")
    one: Any = numbaops.constant_of_shape((1,), value, opset=opset)
    empty = one[:0].reshape((0,) * len(sizes)) if sizes else one.reshape(())
    return _generated(_constant_block, sizes, chunks, empty, value=one, opset=opset)


def eye_like(x: Any, dtype: Any = None, k: int = 0, chunks: Any = None, *, opset: int | None = None) -> da.Array:
    """:func:`numbaops.eye_like` in chunks.

    Args:
        x: an array of rank 2, of Dask or NumPy, of which only shape, dtype and chunks count; or a shape.
        dtype: element type of the result; by default that of ``x``, and float32 for a shape.
        k: the diagonal: ``[i, i + k]`` is one.
        chunks: whatever ``dask.array`` takes for chunks; by default those of ``x``, else of the size that Dask is configured for.
        opset: the opset version; None is the newest.

    Raises:
        NumbaopsError: what :func:`numbaops.eye_like` raises, at once.
    """
    if chunks is None:
        chunks = x.chunks if isinstance(x, da.Array) else "auto"
    is_array = isinstance(x, (da.Array, np.ndarray))
    sizes = _sizes(x.shape if is_array else x, "x")
    like = np.empty((0,) * len(sizes), x.dtype) if is_array else (0,) * len(sizes)
    empty = numbaops.eye_like(like, dtype, k, opset=opset)
    return _generated(_eye_block, sizes, chunks, empty, element=of_dtype(empty.dtype).name, k=k, opset=opset)


def cast(x: Any, to: Any, *, saturate: bool = True, round_mode: str = "up") -> da.Array:
    """:func:`numbaops.cast` of each chunk.

    Args:
        x: an array of Dask or NumPy.
        to: the element type to convert to.
        saturate: as for :func:`numbaops.cast`.
        round_mode: as for :func:`numbaops.cast`.

    Raises:
        NumbaopsError: what :func:`numbaops.cast` raises for these types, at once.
    """
    array = da.asanyarray(x)
    options: Any = {"to": element_type(to).name, "saturate": saturate, "round_mode": round_mode}
    nothing = np.full((0,) * array.ndim, "0" if array.dtype.kind in "OUT" else 0, array.dtype)  # without dimensions, one element
    empty: Any = numbaops.cast(nothing, **options)
    result: da.Array = da.map_blocks(_cast_block, array, **options, dtype=empty.dtype, meta=empty)
    return result


def _sizes(shape: Any, what: str) -> tuple[int, ...]:
    """A shape of integers from 0 on; ``what`` begins the message of an error."""
    if isinstance(shape, np.ndarray) and shape.ndim == 1 and shape.dtype.kind in "iu":
        shape = shape.tolist()
    if not isinstance(shape, (tuple, list)):
        raise InvalidTypeError(f"{what} is {shape!r}; allowed: an array, or a tuple or list of integers", attribute=what)
    if any(isinstance(size, float) and size != size for size in shape):  # what Dask does not know
        text = f"{what} has the shape {tuple(shape)}; allowed: known sizes, which compute_chunk_sizes() of an array of Dask finds out"
        raise InvalidValueError(text, attribute=what)
    sizes = tuple(as_integer(size, what) for size in shape)
    array_nbytes(sizes, 1, what)
    return sizes


def _generated(block: Callable[..., Any], shape: tuple[int, ...], chunks: Any, empty: np.ndarray[Any, Any], **options: Any) -> da.Array:
    """An array of which ``block`` makes each chunk from nothing."""
    parts = da.core.normalize_chunks(chunks, shape, dtype=empty.dtype)
    name = f"{block.__name__.strip('_')}-{dask.base.tokenize(parts, empty, options)}"
    result: da.Array = da.map_blocks(block, chunks=parts, dtype=empty.dtype, meta=empty, name=name, **options)
    return result


def _constant_block(*, value: Any, opset: int | None, block_info: Any) -> Any:
    return numbaops.constant_of_shape(block_info[None]["chunk-shape"], value, opset=opset)


def _eye_block(*, element: str, k: int, opset: int | None, block_info: Any) -> Any:
    (top, _), (left, _) = block_info[None]["array-location"]
    rows, columns = block_info[None]["chunk-shape"]
    diagonal = max(-rows, min(int(k) + top - left, columns))  # beyond the chunk it may be too large for an int64
    return numbaops.eye_like((rows, columns), element, diagonal, opset=opset)


def _cast_block(x: Any, **options: Any) -> Any:
    return numbaops.cast(x, **options)
