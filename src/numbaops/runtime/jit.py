"""The only file that decorates functions for Numba: ``nogil`` kernels with a disk cache that is never fatal or stale.

Numba's own ``cache=True`` raises where no folder is writable, never hits for closures over jitted functions (their pickled
form holds an id of the process), and serves old code when a callee in another file changes. Here the key is the kernel's
name, its factory's key, the signature, the CPU and the compile options, in a folder named after the hash of the package's
whole source and the versions of Numba and llvmlite.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.misc.appdirs import user_cache_dir

from numbaops.interrupts import held

log = logging.getLogger("numbaops")

_F = TypeVar("_F", bound=Callable[..., Any])
_REGISTRY: list[tuple[Any, tuple[str, ...]]] = []


def kernel(*signatures: str, key: tuple[Any, ...] = (), reordered: bool = False) -> Callable[[_F], _F]:
    """Decorate a kernel: compiled for each argument types on first use, cached on disk, run without the GIL.

    Args:
        signatures: the signatures that :func:`warm_up` compiles ahead.
        key: for a closure, the values of its factory's parameters; they must determine the code.
        reordered: whether sums may be made in another order and with fused multiplications, so that the compiler makes them vectors.
    """
    flags = {"reassoc", "contract"} if reordered else set()

    def decorate(function: _F) -> _F:
        # Numba names machine code by this name, a count of what the process has compiled, and the signature. Of two closures of one
        # factory, one compiled here and one from the cache of another process, a caller could otherwise get the wrong one.
        function.__qualname__ += "".join(f"-{part}" for part in key)
        dispatcher = numba.njit(nogil=True, fastmath=flags)(function)
        if not config.DISABLE_JIT:
            dispatcher._cache = _KernelCache(function, key)
            dispatcher.compile = _uninterrupted(dispatcher.compile)
        _REGISTRY.append((dispatcher, signatures))
        return dispatcher  # type: ignore[no-any-return]

    return decorate


def _uninterrupted(work: Callable[..., Any]) -> Callable[..., Any]:
    """``work``, for whose end Ctrl-C waits: Numba reads its registries by generators, and one that is interrupted is at its end for
    the rest of the process, which could compile nothing more.
    """

    def work_on(*arguments: Any) -> Any:
        with held():
            return work(*arguments)

    return work_on


def cache_directory() -> Path:
    """The folder of compiled kernels: ``NUMBAOPS_CACHE_DIR``, else ``numbaops`` in the user's cache folder."""
    if chosen := os.environ.get("NUMBAOPS_CACHE_DIR"):
        return Path(os.path.expanduser(chosen))
    # XDG says to ignore an empty or relative XDG_CACHE_HOME
    for folder in (user_cache_dir("numbaops", appauthor=False), os.path.expanduser("~/.cache/numbaops")):
        if os.path.isabs(folder):
            return Path(folder)
    return Path(os.devnull, "numbaops")  # there is no home: nowhere to keep kernels


def warm_up(progress: Callable[[int, int, str], None] | None = None) -> tuple[int, int]:
    """Compile every kernel for the signatures that numbaops itself uses.

    Args:
        progress: called before each one with the number done, the number in all, and the kernel's name; and once at the end.

    Returns:
        How many were compiled, and how many were there already, in this process or on disk.
    """
    from numbaops import kernels

    kernels.import_all()
    work = [(dispatcher, signature) for dispatcher, signatures in _REGISTRY for signature in signatures]
    if config.DISABLE_JIT:
        work = []
    compiled = 0
    for done, (dispatcher, signature) in enumerate(work):
        if progress is not None:
            progress(done, len(work), dispatcher.__name__)
        before = sum(dispatcher.stats.cache_misses.values())
        dispatcher.compile(signature)
        compiled += sum(dispatcher.stats.cache_misses.values()) - before
    if progress is not None:
        progress(len(work), len(work), "")
    return compiled, len(work) - compiled


class Later:
    """A kernel that a thread compiles, or loads from the disk, while its caller goes on.

    Args:
        dispatcher: the kernel.
        signature: what to compile it for.

    Attributes:
        ready: whether it is there.
    """

    _jobs: queue.SimpleQueue[Later | None] = queue.SimpleQueue()
    _thread: threading.Thread | None = None
    _starting = threading.Lock()

    def __init__(self, dispatcher: Any, signature: str) -> None:
        self._dispatcher, self._signature = dispatcher, signature
        self.ready = bool(dispatcher.signatures)
        if not self.ready:
            self._jobs.put(self)
            self._start()

    @classmethod
    def _start(cls) -> None:
        with cls._starting:
            if cls._thread is None:
                cls._thread = threading.Thread(target=cls._work, name="numbaops-compiler", daemon=True)
                try:
                    cls._thread.start()
                except RuntimeError:  # no more threads to be had, or the interpreter is ending: it is never ready
                    cls._thread = None

    @classmethod
    def _work(cls) -> None:
        while (job := cls._jobs.get()) is not None:
            try:
                job._dispatcher.compile(job._signature)
                job.ready = True
            except Exception as error:  # of LLVM: the caller goes on as before
                log.warning("cannot compile %s (%s)", job._dispatcher.__name__, error)

    @classmethod
    def wait(cls) -> None:
        """Wait until everything that was asked for is there."""
        thread = cls._thread
        if thread is not None:
            cls._jobs.put(None)
            thread.join()
            cls._thread = None

    @classmethod
    def _end(cls) -> None:
        """Drop what waits, and wait for what is being compiled: the end of the process would take the compiler's memory from it."""
        with contextlib.suppress(queue.Empty):
            while True:
                cls._jobs.get_nowait()
        cls.wait()

    @classmethod
    def _forget(cls) -> None:
        """In a forked child there is no such thread; what it had still to do is never ready."""
        cls._jobs, cls._thread, cls._starting = queue.SimpleQueue(), None, threading.Lock()


atexit.register(Later._end)


def compiled() -> int:
    """How many kernels this process has compiled: those that it did not find on disk."""
    return sum(sum(dispatcher.stats.cache_misses.values()) for dispatcher, _ in _REGISTRY if hasattr(dispatcher, "stats"))


@functools.cache
def _source_hash() -> str:
    """Hash of every source file of the package and of the compilers' versions (about 2 ms)."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


if hasattr(os, "register_at_fork"):
    # A child forked while another thread compiles would wait for ever for Numba's lock: fork between compilations instead.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )
    os.register_at_fork(after_in_child=Later._forget)


class _Locator:
    """What Numba's cache asks of a locator."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename
        self.path = cache_directory() / _source_hash()

    def get_cache_path(self) -> str:
        return str(self.path)

    def ensure_cache_path(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)


class _Implementation(CompileResultCacheImpl):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], name: str) -> None:  # the inherited one looks for a locator and may raise
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(function)
        self._filename_base = name


class _Files:
    """One file for each key. Numba's own index gives two processes that compile at once one file name for different code."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    def path(self, key: tuple[Any, ...]) -> Path:
        return self._folder / f"{self._name}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"

    def load(self, key: tuple[Any, ...]) -> Any:
        try:
            content = self.path(key).read_bytes()
        except FileNotFoundError:
            return None
        stored, data = pickle.loads(content)
        return data if stored == repr(key) else None

    def save(self, key: tuple[Any, ...], data: Any) -> None:
        path = self.path(key)
        beside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            beside.write_bytes(dumps((repr(key), data)))
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def flush(self) -> None:
        for path in self._folder.glob(f"{self._name}.*.nbc"):
            path.unlink(missing_ok=True)


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's function cache under our key, on which no error is fatal."""

    _failed = False

    def __init__(self, function: Callable[..., Any], key: tuple[Any, ...]) -> None:
        self._name = repr(function)
        self._py_func = function
        parts = [function.__module__.rpartition(".")[2], function.__name__, *map(str, key)]
        name = "-".join(parts) + f".py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        self._impl = _Implementation(function, name)
        self._cache_path = self._impl.locator.get_cache_path()
        self._cache_file = _Files(self._impl.locator.path, name)
        self.enable()

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        # Ahead of time a signature is a string, at a call a tuple of types: one key for both.
        arguments, _ = normalize_signature(sig)
        return tuple(map(str, arguments)), codegen.magic_tuple(), (config.BOUNDSCHECK, config.OPT, config.DEBUGINFO_DEFAULT)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:  # damaged or unreadable files raise anything, e.g. UnpicklingError or EOFError
            self._give_up("read", error)
        if found is None:
            log.info("compiling %s", self._py_func.__name__)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            self._give_up("write", error)

    def _give_up(self, what: str, error: Exception) -> None:
        level = logging.DEBUG if _KernelCache._failed else logging.WARNING
        _KernelCache._failed = True
        log.log(level, "cannot %s the kernel cache in %s (%s); kernels are compiled anew", what, self._cache_path, error)
