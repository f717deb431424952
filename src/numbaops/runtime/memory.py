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
import functools
import itertools
import mmap
import os
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from numbaops.runtime.settings import byte_setting

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


@functools.cache
def limit() -> int:
    """Bytes that may wait to be used again.

    Raises:
        InvalidValueError: ``NUMBAOPS_RECYCLE_LIMIT`` is not a number of bytes.
    """
    return byte_setting("NUMBAOPS_RECYCLE_LIMIT", _default_limit)


class _Blocks:
    """Free blocks by size, bounded in bytes.

    Finalizers and signal handlers take and give blocks too, wherever the thread is just then: there is no lock that they could
    find held, only operations of dicts and deques that cannot be interrupted.
    """

    def __init__(self) -> None:
        self.free: dict[int, Block] = {}  # by ticket, oldest first
        self.tickets: dict[int, collections.deque[int]] = {}  # by size; some may be of blocks dropped meanwhile
        self.leased: dict[int, int] = {}  # id of a block -> its bytes
        self.new_ticket = itertools.count()
        self.reused_blocks, self.made_blocks = itertools.count(1), itertools.count(1)
        self.reused = self.made = 0

    def give(self, block: Block) -> None:
        self.leased.pop(id(block), None)
        ticket = next(self.new_ticket)
        self.free[ticket] = block
        self.tickets.setdefault(block.nbytes, collections.deque()).append(ticket)
        excess = self.free_bytes() - limit()
        for oldest in list(self.free) if excess > 0 else ():
            excess -= self.drop(oldest)
            if excess <= 0:
                break

    def drop(self, ticket: int) -> int:
        """Give a block back to the system; returns its bytes."""
        block = self.free.pop(ticket, None)
        if block is None:
            return 0
        try:
            self.tickets[block.nbytes].remove(ticket)
        except (KeyError, ValueError):  # not there yet, or taken meanwhile: whoever takes it finds no block
            pass
        return block.nbytes

    def take(self, nbytes: int) -> tuple[Block, bool]:
        """A block of at least ``nbytes``, and whether it was used before (else it is fresh, and zero)."""
        size = _size_class(nbytes)
        tickets = self.tickets.get(size, ())
        while tickets:
            try:
                block = self.free.pop(tickets.pop(), None)  # the one used last is the likeliest to be in cache
            except IndexError:
                break
            if block is not None:
                self.leased[id(block)] = size
                self.reused = next(self.reused_blocks)
                return block, True
        try:
            block = _new_block(size)
        except MemoryError:
            self.trim()
            block = _new_block(size)
        self.leased[id(block)] = size
        self.made = next(self.made_blocks)
        return block, False

    def free_bytes(self) -> int:
        return sum(block.nbytes for block in list(self.free.values()))

    def trim(self) -> int:
        return sum(self.drop(ticket) for ticket in list(self.free))


def _new_block(size: int) -> Block:
    """Zero memory of which no page is touched yet, in huge pages where the system has them (at 16 MiB 280 instead of 410 us a fill)."""
    try:
        # The default is shared: a forked child would write into its parent's arrays.
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        mapping = mmap.mmap(-1, size, **private)
    except (OSError, OverflowError) as error:
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
    return nbytes >= SMALLEST and _size_class(nbytes) <= limit()


def enabled() -> bool:
    """Whether large outputs are recycled."""
    return limit() > 0


def trim() -> int:
    """Give the memory that waits to be used again back to the system; returns the number of bytes."""
    return _blocks.trim()


def stats() -> dict[str, int]:
    """Counts since the process began: ``free_bytes`` waiting, ``leased_bytes`` in living arrays, blocks ``reused`` and ``made``,
    and the ``limit`` in bytes."""
    return {
        "free_bytes": _blocks.free_bytes(),
        "leased_bytes": sum(list(_blocks.leased.values())),
        "reused": _blocks.reused,
        "made": _blocks.made,
        "limit": limit(),
    }
