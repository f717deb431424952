"""Functions of each element over large arrays: by kernels for float32, and for float16 and bfloat16 block by block in float32.

The blocks stay in the cache. A kernel gives an element the same bits wherever it is, alone or in a block.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numbaops.casting.steps import BFLOAT16, FLOAT, FLOAT16, Step, step_of
from numbaops.ops._precision import HALVES, narrowed, widened
from numbaops.ops.base import Array
from numbaops.runtime import memory
from numbaops.runtime.threads import AWAKE_SHARE, split

_FLOAT32 = np.dtype(np.float32)

KERNEL_FROM = 1 << 9
"""Elements from which kernels serve: fewer need no Numba."""

BLOCKS_FROM = 1 << 11
"""Elements from which blocks serve for 16-bit floats: for fewer, NumPy's conversions take less time than to ask for others."""

BLOCK = 1 << 16
"""Elements of 16 bits that are converted at once."""

_BYTES = 16
"""Bytes that could be copied, to and fro, while a kernel, or one conversion, computes an element."""

_ALONE = 2 * AWAKE_SHARE // _BYTES
"""Elements from which a kernel may be split over threads."""

Parameters = Callable[..., tuple[float, float] | None]


def mapping(
    name: str, parameters: Parameters = lambda: (0.0, 0.0), halves: Callable[..., Array] | None = None
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """For a function of one tensor of floats: the kernel of that name serves for large ones of float32, and 16-bit floats are rounded once.

    Args:
        name: the kernel's, in ``numbaops.kernels.activations``.
        parameters: the kernel's two parameters, of the attributes; None where it does not serve.
        halves: what serves for 16-bit floats, if not the function by blocks.
    """

    def decorate(function: Callable[..., Array]) -> Callable[..., Array]:
        @functools.wraps(function)
        def call(x: Array, **attributes: Any) -> Array:
            if x.dtype == _FLOAT32:
                given = parameters(**attributes) if x.size >= KERNEL_FROM else None
                kernel = None if given is None else _kernel(name)
                return function(x, **attributes) if kernel is None or given is None else _mapped(kernel, x, *given)
            if x.dtype in HALVES:
                return by_blocks(functools.partial(call, **attributes), x) if halves is None else halves(x, **attributes)
            return narrowed(function(x, **attributes), x.dtype)

        return call

    return decorate


def rounding_once(function: Callable[..., Array]) -> Callable[..., Array]:
    """For a function of each element whose result has the type of its first input: it gets 16-bit floats as float32."""

    @functools.wraps(function)
    def call(x: Array, *others: Array, **attributes: Any) -> Array:
        if x.dtype in HALVES:
            return by_blocks(functools.partial(function, **attributes), x, *others)
        return narrowed(function(x, *others, **attributes), x.dtype)

    return call


def mapped_ufunc(ufunc: np.ufunc, name: str) -> Callable[[Array], Array]:
    """The same for a NumPy function, which serves for float16 where NumPy has vector code for that: AVX-512 takes half of our time."""

    def of_halves(x: Array) -> Array:
        return ufunc(x) if x.dtype == np.float16 and _has_vectors(ufunc) else by_blocks(call, x)

    call = mapping(name, halves=of_halves)(ufunc)
    del call.__dict__["__wrapped__"]  # before NumPy 2.1 its functions have no signature
    return call


@functools.cache
def _has_vectors(ufunc: np.ufunc) -> bool:
    from numpy.lib import introspect

    found = introspect.opt_func_info(func_name=f"^{ufunc.__name__}$", signature="float16")
    return any("baseline" not in kind["current"] for kinds in found.values() for kind in kinds.values())


@functools.cache
def _kernel(name: str) -> Any:
    """The kernel, or None without the JIT."""
    from numbaops.kernels import activations

    return getattr(activations, name) if activations.AVAILABLE else None


def _mapped(kernel: Any, x: Array, alpha: float, beta: float) -> Array:
    flat = x.ravel()
    if x.size < _ALONE:
        out = np.empty(x.size, _FLOAT32)
        kernel(flat, alpha, beta, out)
        return out.reshape(x.shape)
    result = memory.empty(x.shape, _FLOAT32, 4 * x.size)[0]
    out = result.reshape(-1)
    split(lambda first, last: kernel(flat[first:last], alpha, beta, out[first:last]), x.size, _BYTES, 16)
    return result


def relu_of_halves(x: Array) -> Array:
    """Relu of 16-bit floats, of which only the sign counts."""
    kernel = _kernel("relu_codes") if x.size >= KERNEL_FROM else None
    if kernel is None:
        return np.maximum(x, x.dtype.type(0))  # type: ignore[no-any-return]
    result = memory.empty(x.shape, x.dtype, 2 * x.size)[0]
    infinity = 0xFC00 if x.dtype == np.float16 else 0xFF80
    flat, out = np.ascontiguousarray(x).reshape(-1).view(np.uint16), result.reshape(-1).view(np.uint16)
    split(lambda first, last: kernel(flat[first:last], infinity, out[first:last]), x.size, 4, 32)
    return result


def by_blocks(function: Callable[..., Array], *arrays: Array) -> Array:
    """What a function of each element gives for 16-bit floats of one type, computed in float32 and rounded once.

    Args:
        function: takes arrays of float32 and returns one; called from several threads.
        arrays: its inputs; they are stretched as NumPy does it.
    """
    dtype = arrays[0].dtype
    if not _in_blocks(arrays, dtype):
        return narrowed(function(*map(widened, arrays)), dtype)
    large = max(arrays, key=np.size)
    result = memory.empty(large.shape, dtype, dtype.itemsize * large.size)[0]
    given = [widened(x).reshape(-1) if x.size == 1 else np.ascontiguousarray(x).reshape(-1) for x in arrays]
    widen, narrow, out = *_steps(dtype), result.reshape(-1)

    def work(first: int, last: int) -> None:
        wide = [x if x.size == 1 else np.empty(min(BLOCK, last - first), _FLOAT32) for x in given]
        for start in range(first, last, BLOCK):
            stop = min(start + BLOCK, last)
            for x, block in zip(given, wide, strict=True):
                if x is not block:
                    widen(x[start:stop], block[: stop - start])
            narrow(function(*(block[: stop - start] for block in wide)), out[start:stop])

    context = contextvars.copy_context()  # NumPy's error state is the caller's in every thread
    split(lambda first, last: context.copy().run(work, first, last), out.size, _BYTES * (1 + len(arrays)) // 2, BLOCK)
    return result


_SAME_ROUNDED = frozenset((np.add, np.subtract, np.multiply, np.sqrt, np.reciprocal, np.ceil, np.floor, np.rint))


def of_halves(ufunc: np.ufunc, dtype: np.dtype[Any], size: int) -> Callable[..., Array] | None:
    """What gives the same as a NumPy function for arrays of a 16-bit float type in less time; None if nothing does."""
    if dtype not in HALVES or size < BLOCKS_FROM or ufunc not in _SAME_ROUNDED:
        return None
    return functools.partial(by_blocks, ufunc)


def _in_blocks(arrays: Sequence[Array], dtype: np.dtype[Any]) -> bool:
    """Whether arrays are large, and each is as large as the largest, or one number."""
    large = max(arrays, key=np.size)
    if large.size < BLOCKS_FROM or any(x.dtype != dtype or (x.shape != large.shape and x.size != 1) or x.ndim > large.ndim for x in arrays):
        return False
    return _kernel("relu_codes") is not None


@functools.cache
def _steps(dtype: np.dtype[Any]) -> tuple[Step, Step]:
    """The conversions of a 16-bit type to float32 and back."""
    narrow = FLOAT16 if dtype == FLOAT16.dtype else BFLOAT16
    return step_of(narrow, FLOAT, True, "up"), step_of(FLOAT, narrow, True, "up")
