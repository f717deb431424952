"""Recycled memory for large outputs.

Page faults dominate a fresh large array: 128 MiB of ``np.full`` takes 34 ms on fresh pages and 15 ms on resident ones. A large
output is therefore carved from a block that goes back to a bounded free list when the last object that can reach it dies.

The block is released by :class:`_Lease`, the object at the very bottom of the array's ``base`` chain. NumPy shortens base
chains between arrays but never past an object that is no array, so views, memoryviews, ``.base``, DLPack capsules and
buffers of other libraries all keep the lease alive. ``NUMBAOPS_RECYCLE_LIMIT`` bounds the bytes that wait to be used
again; 0 turns recycling off.
"""

from __future__ import annotations

import collections
import mmap
import os
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from numbaops.errors import InvalidValueError

SMALLEST = 1 << 22
"""Outputs below this many bytes come from ``np.empty``: the C library recycles those itself without page faults, for less than
the 4 us that a lease costs."""

Block = npt.NDArray[np.uint8]


def _default_limit() -> int:
    """1 GiB, or an eighth of a smaller machine's memory."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 30
    return min(1 << 30, memory // 8)


def _limit() -> int:
    chosen = os.environ.get("NUMBAOPS_RECYCLE_LIMIT")
    if not chosen:
        return _default_limit()
    if not chosen.isascii() or not chosen.isdigit():
        raise InvalidValueError(
            f"NUMBAOPS_RECYCLE_LIMIT is {chosen!r}; allowed: a number of bytes, 0 for no recycling", attribute="NUMBAOPS_RECYCLE_LIMIT"
        )
    return int(chosen)


class _Blocks:
    """Free blocks by size, oldest first, bounded in bytes; safe for threads and for finalizers that run anywhere."""

    def __init__(self) -> None:
        self.limit = _limit()
        self.given: collections.deque[Block] = collections.deque()  # appended to without the lock, by finalizers
        self.leased_bytes = 0
        self.reused = 0
        self.made = 0
        self.after_fork()

    def after_fork(self) -> None:
        # Another thread may have held the lock, half-way through a change of the free list.
        self.lock = threading.Lock()
        self.free: collections.OrderedDict[int, Block] = collections.OrderedDict()  # id -> block, oldest first
        self.free_bytes = 0

    def give(self, block: Block) -> None:
        # A finalizer may run while this very thread holds the lock: it must never wait for it. Whoever holds the lock sorts
        # the block in, now or at the next use.
        self.given.append(block)
        if self.lock.acquire(blocking=False):
            try:
                self._sort_in()
            finally:
                self.lock.release()

    def _sort_in(self) -> None:
        while self.given:
            block = self.given.popleft()
            self.leased_bytes -= block.nbytes
            self.free[id(block)] = block
            self.free_bytes += block.nbytes
        while self.free_bytes > self.limit:
            self.free_bytes -= self.free.popitem(last=False)[1].nbytes

    def take(self, nbytes: int) -> tuple[Block, bool]:
        """A block of at least ``nbytes``, and whether it was used before (else it is fresh, and zero)."""
        size = _size_class(nbytes)
        with self.lock:
            self._sort_in()
            for key in reversed(self.free):  # the one used last is the likeliest to be in cache
                if self.free[key].nbytes == size:
                    block = self.free.pop(key)
                    self.free_bytes -= size
                    self.leased_bytes += size
                    self.reused += 1
                    return block, True
        try:
            block = _new_block(size)
        except MemoryError:
            self.trim()
            block = _new_block(size)
        with self.lock:
            self.leased_bytes += size
            self.made += 1
        return block, False

    def trim(self) -> int:
        with self.lock:
            self._sort_in()
            released, self.free_bytes = self.free_bytes, 0
            self.free.clear()
        return released


def _new_block(size: int) -> Block:
    """Zero memory of which no page is touched yet, in huge pages where the system has them (at 16 MiB 280 instead of 410 us a fill)."""
    try:
        # The default is shared: a forked child would write into its parent's arrays.
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        mapping = mmap.mmap(-1, size, **private)
    except OSError as error:
        raise MemoryError(f"cannot map {size} bytes") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without them
            pass
    return np.frombuffer(mapping, np.uint8)


def _size_class(nbytes: int) -> int:
    """``nbytes`` rounded up by at most an eighth, so that slightly different sizes share blocks."""
    step = 1 << max(12, nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


_blocks = _Blocks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_blocks.after_fork)


class _Lease:
    """Keeps one block out of the free list for as long as anything can reach its memory."""

    __slots__ = ("__array_interface__", "_block")

    def __init__(self, block: Block, nbytes: int) -> None:
        address = block.__array_interface__["data"][0]
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False)}
        self._block = block

    def __del__(self, give: Callable[[Block], None] = _blocks.give) -> None:  # bound here: globals may be gone at exit
        # A finalizer elsewhere in a dead cycle may bring this object back; it must not reach the memory then.
        block = self._block
        del self.__array_interface__, self._block
        give(block)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("the owner of recycled memory cannot be copied; copy the array")


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> tuple[npt.NDArray[Any], bool, bool]:
    """A new C-contiguous array, recycled when it is large.

    Args:
        shape: its shape.
        dtype: its dtype; not object.
        nbytes: its size in bytes.

    Returns:
        The array; whether its pages are known to be resident; whether it is known to be all zero bytes.

    Raises:
        MemoryError: the memory cannot be had.
    """
    if not recycles(nbytes):
        return np.empty(shape, dtype), False, False
    block, used = _blocks.take(nbytes)
    return np.ndarray(shape, dtype, np.asarray(_Lease(block, nbytes))), used, not used


def recycles(nbytes: int) -> bool:
    """Whether an output of that size is recycled."""
    return SMALLEST <= nbytes <= _blocks.limit


def enabled() -> bool:
    """Whether large outputs are recycled."""
    return _blocks.limit > 0


def trim() -> int:
    """Give the memory that waits to be used again back to the system; returns the number of bytes."""
    return _blocks.trim()


def stats() -> dict[str, int]:
    """Counts since the process began: ``free_bytes`` waiting, ``leased_bytes`` in living arrays, blocks ``reused`` and ``made``,
    and the ``limit`` in bytes."""
    with _blocks.lock:
        _blocks._sort_in()
        names = ("free_bytes", "leased_bytes", "reused", "made", "limit")
        return {name: getattr(_blocks, name) for name in names}
