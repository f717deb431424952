"""Recycled memory: never handed out while anything can reach it, bounded, and free of page faults in steady state."""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import pytest

import numbaops
from numbaops import memory
from numbaops.errors import InvalidValueError
from numbaops.runtime.memory import SMALLEST, _blocks, _size_class, empty, limit
from processes import run_python

FLOAT = np.dtype(np.float32)
MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_waiting() -> Iterator[None]:
    memory.trim()
    yield
    memory.trim()


def new(nbytes: int = 8 * MIB) -> np.ndarray:
    return empty((nbytes // 4,), FLOAT, nbytes)[0]


def place(array: np.ndarray) -> int:
    return array.ctypes.data


# Recycling


def test_memory_of_a_dead_array_is_used_again() -> None:
    first = new()
    where = place(first)
    first[...] = 7
    del first
    second, resident, zero = empty((MIB,), np.dtype(np.float64), 8 * MIB)
    assert place(second) == where
    assert (resident, zero) == (True, False)
    assert (second.shape, second.dtype) == ((MIB,), np.float64)


def test_fresh_memory_is_zero_and_not_resident() -> None:
    array, resident, zero = empty((2 * MIB,), FLOAT, 8 * MIB)
    assert (resident, zero) == (False, True)
    assert not array.any()


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2 * MIB,), "float32"), ((1024, 1024), "complex64"), ((3, 1 << 20, 1), "float64"), ((1 << 23,), "bool")], ids=str
)
def test_array_is_like_any_other(shape: tuple[int, ...], dtype: str) -> None:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array = empty(shape, np.dtype(dtype), nbytes)[0]
    assert type(array) is np.ndarray
    assert (array.shape, array.dtype, array.nbytes) == (shape, np.dtype(dtype), nbytes)
    flags = array.flags
    assert flags.c_contiguous and flags.writeable and flags.aligned
    array[...] = 1
    assert array.sum() == array.size


def test_small_arrays_are_not_recycled() -> None:
    before = memory.stats()
    array, resident, zero = empty((SMALLEST - 1,), np.dtype(np.uint8), SMALLEST - 1)
    assert array.flags.owndata
    assert (resident, zero) == (False, False)
    assert memory.stats() == before


def test_arrays_that_live_at_once_have_memory_of_their_own() -> None:
    arrays = [new(size) for size in (4 * MIB, 8 * MIB, 4 * MIB, 9 * MIB, 8 * MIB)]
    for number, array in enumerate(arrays):
        array[...] = number
    for number, array in enumerate(arrays):
        assert (array == number).all()


# Ways to keep memory alive


class Holder:
    pass


class Subclass(np.ndarray):
    pass


class Interface:
    """An object of another library that keeps the array and shows its memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


@numba.njit
def view_of(array: Any) -> Any:
    return array[5:]


@numba.njit
def reshaped(array: Any) -> Any:
    return array.reshape((-1, 4))[::2]


@numba.njit
def in_a_tuple(array: Any) -> Any:
    return (array[:9], array[9:])


def out_of_band(array: np.ndarray) -> Any:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
    return data, buffers


def loaded_out_of_band(array: np.ndarray) -> Any:
    data, buffers = out_of_band(array)
    return pickle.loads(data, buffers=buffers)


def base_chain(array: np.ndarray) -> Any:
    base: Any = array
    while getattr(base, "base", None) is not None:
        base = base.base
    return base


def in_a_cycle(array: np.ndarray) -> Any:
    holder = Holder()
    holder.array, holder.itself = array, holder  # type: ignore[attr-defined]
    return holder


def in_an_object_array(array: np.ndarray) -> Any:
    box = np.empty(1, object)
    box[0] = array
    return box


KEEPERS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda array: array,
    "slice": lambda array: array[10:20],
    "empty slice": lambda array: array[:0],
    "view of a view": lambda array: array[::2].reshape(4, -1).T[1:],
    "other dtype": lambda array: array.view(np.uint8)[3:],
    "real part": lambda array: array.view(np.complex64).real,
    "subclass": lambda array: array.view(Subclass),
    "subclass of a subclass's slice": lambda array: array.view(Subclass)[3:].view(np.ndarray),
    "record array": lambda array: array.view(np.recarray),
    "base": lambda array: array.base,
    "end of the base chain": base_chain,
    "asarray of the end of the base chain": lambda array: np.asarray(base_chain(array)),
    "broadcast": lambda array: np.broadcast_to(array, (3, array.size)),
    "as_strided": lambda array: np.lib.stride_tricks.as_strided(array, (3,), (8,)),
    "sliding window": lambda array: np.lib.stride_tricks.sliding_window_view(array, 5),
    "split": lambda array: np.split(array, 2)[1],
    "diagonal": lambda array: array.reshape(1024, -1).diagonal(),
    "flat iterator": lambda array: array.flat,
    "nditer": lambda array: np.nditer(array),
    "masked array": lambda array: np.ma.masked_array(array, copy=False),
    "scalar-like": lambda array: array[3, ...],
    "object array": in_an_object_array,
    "memoryview": memoryview,
    "slice of a memoryview": lambda array: memoryview(array)[5:],
    "memoryview of a memoryview": lambda array: memoryview(memoryview(array)),
    "cast memoryview": lambda array: memoryview(array).cast("B"),
    "array's data": lambda array: array.data,
    "array of a memoryview": lambda array: np.asarray(memoryview(array)[7:]),
    "frombuffer": lambda array: np.frombuffer(array, np.uint8),
    "ndarray with a buffer": lambda array: np.ndarray((5,), np.uint8, array),
    "DLPack capsule": lambda array: array.__dlpack__(),
    "from_dlpack": np.from_dlpack,
    "ctypes attribute": lambda array: array.ctypes,
    "ctypes pointer": lambda array: array.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
    "ctypes array": lambda array: (ctypes.c_char * 100).from_buffer(array),
    "ctypes array of a slice": lambda array: (ctypes.c_char * 100).from_buffer(array[7:]),
    "array interface of another library": lambda array: np.asarray(Interface(array)),
    "pickle buffers": out_of_band,
    "array from pickle buffers": loaded_out_of_band,
    "PickleBuffer": pickle.PickleBuffer,
    "view from a compiled function": view_of,
    "reshaped in a compiled function": reshaped,
    "tuple from a compiled function": in_a_tuple,
    "generator": lambda array: (value for value in array),
    "bound method": lambda array: array.sum,
    "closure": lambda array: lambda: array,
    "cycle": in_a_cycle,
}


@pytest.mark.parametrize("keep", list(KEEPERS.values()), ids=list(KEEPERS))
def test_memory_that_can_be_reached_is_not_handed_out(keep: Callable[[np.ndarray], Any]) -> None:
    array = new(SMALLEST)
    array[:100] = np.arange(100)
    where, leased = place(array), memory.stats()["leased_bytes"]
    kept = keep(array)
    del array
    assert memory.stats()["leased_bytes"] == leased
    others = [new(SMALLEST) for _ in range(3)]
    for other in others:
        assert place(other) != where
        other[...] = -1
    del other, others
    memory.trim()
    assert (ctypes.c_float * 100).from_address(where)[:] == list(range(100))  # may be looked at: the block still lives
    del kept
    if keep is in_a_cycle:
        gc.collect()
    assert memory.stats()["leased_bytes"] == leased - SMALLEST
    assert place(new(SMALLEST)) == where


def test_copies_do_not_keep_memory() -> None:
    array = new()
    where = place(array)
    kept = [array.copy(), array.tobytes()[:9], array[3], array[[1, 2]], array + 1, pickle.dumps(array[:9])]
    del array
    assert place(new()) == where
    assert kept


def test_finalizer_that_brings_an_array_back() -> None:
    saved: list[np.ndarray] = []

    class Phoenix:
        def __init__(self, array: np.ndarray) -> None:
            self.array, self.itself = array, self

        def __del__(self) -> None:
            saved.append(self.array)

    phoenix = Phoenix(new())
    phoenix.array[...] = 5
    where = place(phoenix.array)
    del phoenix
    gc.collect()
    (array,) = saved
    other = new()
    other[...] = 6
    assert place(other) != where and place(array) == where
    assert (array == 5).all()
    del array
    saved.clear()
    assert place(new()) == where


def test_finalizer_that_brings_the_owner_back() -> None:
    """The object at the end of the base chain, in a dead cycle, is finalized once; afterwards it reaches nothing."""
    saved: list[Any] = []

    class Phoenix:
        def __init__(self, owner: Any) -> None:
            self.owner, self.itself = owner, self

        def __del__(self) -> None:
            saved.append(self.owner)

    array = new()
    phoenix = Phoenix(base_chain(array))
    where = place(array)
    del array, phoenix
    gc.collect()
    (owner,) = saved
    try:
        again = np.asarray(owner)
    except Exception:
        again = np.empty(0)
    reaches = again.dtype != object and again.size and place(again) == where
    if reaches:  # not finalized yet: then its memory must be its own
        assert place(new()) != where
    else:
        assert place(new()) == where


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_owner_cannot_be_copied(twin: Callable[[Any], Any]) -> None:
    array = new()
    with pytest.raises(TypeError, match="the owner of recycled memory cannot be copied; copy the array"):
        twin(base_chain(array))


def test_arrays_pickle_and_copy() -> None:
    array = new()
    array[...] = 3
    for twin in (pickle.loads(pickle.dumps(array, protocol=4)), pickle.loads(pickle.dumps(array)), copy.copy(array), copy.deepcopy(array)):
        assert not np.shares_memory(twin, array)
        assert (twin == 3).all()


# The limit


def test_the_oldest_blocks_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [5 * MIB, 6 * MIB, 7 * MIB, 8 * MIB]
    monkeypatch.setattr(memory, "limit", lambda: 15 * MIB)
    arrays = [new(size) for size in sizes]
    for number in range(4):
        arrays[number] = np.empty(0)
        assert memory.stats()["free_bytes"] <= 15 * MIB
    assert memory.stats()["free_bytes"] == 15 * MIB  # the last two
    reused = memory.stats()["reused"]
    kept = [new(8 * MIB), new(7 * MIB)]
    assert memory.stats()["reused"] == reused + 2
    assert memory.stats()["free_bytes"] == 0
    kept += [new(5 * MIB), new(6 * MIB)]
    assert memory.stats()["reused"] == reused + 2


def test_outputs_beyond_the_limit_are_not_recycled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "limit", lambda: 8 * MIB)
    made = memory.stats()["made"]
    assert new(8 * MIB).base is not None
    assert memory.stats()["made"] == made + 1
    assert new(8 * MIB + 4).flags.owndata
    assert memory.stats()["made"] == made + 1


SHOW = """
    import numpy as np
    from numbaops.runtime import memory
    memory.empty((8 << 20,), np.dtype(np.uint8), 8 << 20)
    print(memory.enabled(), memory.stats()["limit"], memory.stats()["made"])
"""


@pytest.mark.parametrize(
    ("limit", "want"),
    [("0", "False 0 0"), ("00", "False 0 0"), ("1000", "True 1000 0"), ("123456789", "True 123456789 1"), ("99999999999999", None)],
)
def test_limit_of_the_environment(limit: str, want: str | None) -> None:
    assert run_python(SHOW, NUMBAOPS_RECYCLE_LIMIT=limit) == (want or f"True {limit} 1")


@pytest.fixture
def fresh_limit() -> Iterator[None]:
    limit.cache_clear()
    yield
    limit.cache_clear()


@pytest.mark.usefixtures("fresh_limit")
@pytest.mark.parametrize("chosen", ["-1", "1G", "1.5", " ", "off", "٣"])
def test_bad_limit(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("NUMBAOPS_RECYCLE_LIMIT", chosen)
    with pytest.raises(InvalidValueError, match=r"NUMBAOPS_RECYCLE_LIMIT is .*; allowed: a number of bytes") as caught:
        numbaops.constant_of_shape((SMALLEST,), 1.5)
    assert caught.value.attribute == "NUMBAOPS_RECYCLE_LIMIT"


@pytest.mark.usefixtures("fresh_limit")
@pytest.mark.parametrize(("pages", "want"), [(1 << 20, 512 * MIB), (1 << 30, 1 << 30), (None, 1 << 30)], ids=["4 GiB", "4 TiB", "unknown"])
def test_default_limit(monkeypatch: pytest.MonkeyPatch, pages: int | None, want: int) -> None:
    def sysconf(name: str) -> int:
        if pages is None:
            raise ValueError("unrecognized configuration name")
        return {"SC_PHYS_PAGES": pages, "SC_PAGE_SIZE": 4096}[name]

    monkeypatch.delenv("NUMBAOPS_RECYCLE_LIMIT", raising=False)
    monkeypatch.setattr(os, "sysconf", sysconf)
    assert limit() == want


# trim, stats, enabled


def test_trim_gives_back_what_waits() -> None:
    kept, dead = new(8 * MIB), [new(8 * MIB) for _ in range(3)]
    assert memory.trim() == 0
    leased = memory.stats()["leased_bytes"]
    dead.clear()
    assert memory.trim() == 24 * MIB
    assert memory.trim() == 0
    kept[...] = 1
    after = memory.stats()
    assert (after["free_bytes"], after["leased_bytes"]) == (0, leased - 24 * MIB)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no count of resident pages")
def test_trimmed_memory_goes_back_to_the_system() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    array = new(96 * MIB)
    array[...] = 1
    assert resident() - before > 80 * MIB
    del array
    assert resident() - before > 80 * MIB
    memory.trim()
    assert resident() - before < 16 * MIB


def test_stats_add_up() -> None:
    start = memory.stats()
    assert set(start) == {"free_bytes", "leased_bytes", "reused", "made", "limit"}
    assert memory.enabled()
    arrays: list[np.ndarray] = []
    random = np.random.default_rng(1)
    for _ in range(300):
        if arrays and random.random() < 0.5:
            arrays.pop(int(random.integers(len(arrays))))
        else:
            arrays.append(new(int(random.integers(4, 12)) * MIB))
        now = memory.stats()
        assert now["leased_bytes"] - start["leased_bytes"] == sum(_size_class(array.nbytes) for array in arrays)
        assert 0 <= now["free_bytes"] <= now["limit"]
    taken = now["reused"] - start["reused"] + now["made"] - start["made"]
    arrays.clear()
    end = memory.stats()
    assert end["leased_bytes"] == start["leased_bytes"]
    assert end["reused"] + end["made"] - start["reused"] - start["made"] == taken


def test_size_classes_waste_at_most_an_eighth() -> None:
    random = np.random.default_rng(2)
    sizes = [int(size) for size in np.exp2(random.uniform(20, 45, 2000))] + [1 << bit for bit in range(20, 46)] + [(1 << 22) + 1]
    for size in sizes:
        classed = _size_class(size)
        assert size <= classed <= size + size // 8 + 4096
        assert classed % 4096 == 0
        assert _size_class(classed) == classed
    assert len({_size_class(size) for size in range(1 << 22, 1 << 23, 4096)}) <= 9


def test_slightly_different_sizes_share_a_block() -> None:
    first = new(8 * MIB - 40)
    where = place(first)
    del first
    second = new(8 * MIB - 80)
    assert place(second) == where


def test_memory_error_is_tried_again_after_a_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    from numbaops.runtime import memory as module

    make, failures = module._new_block, []

    def scarce(size: int) -> Any:
        if memory.stats()["free_bytes"]:
            failures.append(size)
            raise MemoryError
        return make(size)

    dead = new(8 * MIB)
    del dead
    monkeypatch.setattr(module, "_new_block", scarce)
    assert new(16 * MIB).nbytes == 16 * MIB
    assert failures == [16 * MIB]


def test_no_memory_at_all_is_a_memory_error() -> None:
    before = memory.stats()
    with pytest.raises(MemoryError):
        _blocks.take(1 << 60)
    assert memory.stats()["leased_bytes"] == before["leased_bytes"]


# Threads, finalizers, fork


def test_threads_never_share_memory() -> None:
    wrong: list[str] = []
    barrier = threading.Barrier(6)
    element_count = SMALLEST // 4

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        arrays: list[np.ndarray] = []
        barrier.wait()
        for round_ in range(150):
            array = new(SMALLEST + 4096 * int(random.integers(0, 3)))
            # One element a page tells whether another thread writes here; all of them would take too long.
            array[::1024] = number * 1000 + round_
            arrays.append(array)
            if len(arrays) > 3:
                checked = arrays.pop(int(random.integers(0, 3)))
                if len(set(checked[:element_count:1024].tolist())) != 1 or int(checked[0]) // 1000 != number:
                    wrong.append(f"thread {number}, round {round_}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    before = memory.stats()["leased_bytes"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert memory.stats()["leased_bytes"] == before


def test_arrays_may_die_in_another_thread() -> None:
    leased = memory.stats()["leased_bytes"]
    arrays = [new() for _ in range(4)]
    threads = [threading.Thread(target=arrays.pop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.stats()["leased_bytes"] == leased


def test_trim_while_another_thread_gives_a_block_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other thread is half-way: it has made the block known, but not yet under its size."""

    class Tickets(dict[int, Any]):
        def setdefault(self, *arguments: Any) -> Any:
            trimmed.append(memory.trim())
            return super().setdefault(*arguments)

    trimmed: list[int] = []
    monkeypatch.setattr(_blocks, "tickets", Tickets())
    array = new()
    del array
    assert trimmed == [8 * MIB]
    made = memory.stats()["made"]
    assert new().size == 2 * MIB
    assert memory.stats()["made"] == made + 1


def test_finalizers_and_gc_callbacks_may_allocate() -> None:
    """Arrays in cycles die, and others are made, at every moment of the allocator."""
    code = """
        import faulthandler, gc, threading
        import numpy as np
        from numbaops.runtime import memory
        faulthandler.dump_traceback_later(20, exit=True)  # a dead-lock

        def new(): return memory.empty((8 << 20,), np.dtype(np.uint8), 8 << 20)[0]

        class Node:
            def __init__(self):
                self.array, self.itself = new(), self

            def __del__(self):
                new()[0] = 1
                memory.stats()
                memory.trim()

        def callback(phase, info):
            new()[0] = 2

        def work():
            for _ in range(100):
                Node()
                memory.stats()

        gc.callbacks.append(callback)
        gc.set_threshold(1, 1, 1)
        other = threading.Thread(target=work)
        other.start()
        work()
        other.join()
        gc.callbacks.remove(callback)
        gc.set_threshold(700, 10, 10)
        gc.collect()
        memory.trim()
        stats = memory.stats()
        print(stats["leased_bytes"], stats["free_bytes"])
    """
    assert run_python(code) == "0 0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork() -> None:
    """A child keeps the arrays that live, each side has its own memory, and allocations in other threads do no harm."""
    code = """
        import os, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on warns of a fork among threads
        import numpy as np
        from numbaops.runtime import memory

        def new(): return memory.empty((8 << 20,), np.dtype(np.uint8), 8 << 20)[0]

        def busy():
            while not stop.is_set(): new()[0] = 9

        kept, dead = new(), new()
        kept[:], dead[:] = 1, 1
        del dead
        stop = threading.Event()
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads: thread.start()
        children = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                made = [new() for _ in range(3)]
                for number in range(3): made[number][:] = 2 + number
                right = (kept == 1).all() and all((made[number] == 2 + number).all() for number in range(3))
                kept[:] = 7
                right = right and len({array.ctypes.data for array in [kept, *made]}) == 4
                del made
                memory.trim()
                os._exit(0 if right and memory.stats()["free_bytes"] == 0 else 1)
            children.append(child)
        stop.set()
        for thread in threads: thread.join()
        statuses = [os.waitpid(child, 0)[1] for child in children]
        print(statuses == [0] * 10 and (kept == 1).all())
    """
    assert run_python(code) == "True"


# Page faults, and the end of the process


@pytest.mark.skipif(sys.platform == "win32", reason="no count of page faults")
@pytest.mark.parametrize("count", ["1", ""], ids=["one thread", "all threads"])
@pytest.mark.parametrize("mib", [4, 64])
def test_no_page_faults_in_steady_state(mib: int, count: str) -> None:
    code = f"""
        import resource
        import numpy as np
        import numbaops
        from numbaops import memory
        bound = numbaops.operator("ConstantOfShape", value=np.float32(1.5))
        shape = ({mib << 18},)
        for _ in range(3): bound(shape)
        made = memory.stats()["made"]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(50): bound(shape)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        print(memory.stats()["made"] - made, faults if faults > 30 else "few")
    """
    assert run_python(code, NUMBAOPS_NUM_THREADS=count) == "0 few"


def test_outputs_of_operators_are_recycled() -> None:
    for make in (
        lambda: numbaops.constant_of_shape((1 << 21,), 1.5),
        lambda: numbaops.constant_of_shape((1 << 21,)),
        lambda: numbaops.eye_like((1 << 11, 1 << 10)),
        lambda: numbaops.constant(np.ones(1 << 21, np.float32)),
    ):
        first = make()
        where, want = place(first), first.copy()
        first[...] = 9
        del first
        second = make()
        assert place(second) == where
        assert (second == want).all()
        del second


@pytest.mark.parametrize(
    "hold",
    [
        "",
        "import builtins; builtins.kept = array",
        "cycle = [array]; cycle.append(cycle)",
        "import sys; sys.kept = memoryview(array)",
        "threading.Thread(target=lambda kept: threading.Event().wait(), args=(array,), daemon=True).start()",
        "import atexit; atexit.register(lambda: new().sum())",
        "kept = array.ctypes.data_as(__import__('ctypes').c_void_p)",
    ],
    ids=["module", "builtins", "cycle", "memoryview in sys", "daemon thread", "made at exit", "ctypes pointer"],
)
def test_end_of_the_process_with_living_arrays(hold: str) -> None:
    code = f"""
        import threading
        import numpy as np
        from numbaops.runtime.memory import empty

        def new(): return empty((8 << 20,), np.dtype(np.uint8), 8 << 20)[0]

        class Final:
            def __init__(self): self.array = new()
            def __del__(self): self.array[0] = 1

        array, final = new(), Final()
        {hold}
        print("done")
    """
    assert run_python(code) == "done"


def test_output_whose_block_would_pass_the_limit_is_not_recycled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "limit", lambda: 5_000_000)
    assert memory.recycles(4_500_000)
    assert not memory.recycles(4_990_000)  # its block has 5 MiB


def test_impossible_size_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "limit", lambda: 1 << 70)
    with pytest.raises(MemoryError):
        memory.empty((2**63 - 1,), np.dtype(np.int8), 2**63 - 1)
