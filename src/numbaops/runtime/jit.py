"""The only file that decorates functions for Numba: ``nogil`` kernels with a disk cache that is never fatal or stale.

Numba's own ``cache=True`` raises where no folder is writable, never hits for closures over jitted functions (their pickled
form holds an id of the process), and serves old code when a callee in another file changes. Here the key is the kernel's
name, its factory's key, the signature, the CPU and the compile options, in a folder named after the hash of the package's
whole source and the versions of Numba and llvmlite.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.misc.appdirs import user_cache_dir

log = logging.getLogger("numbaops")

_F = TypeVar("_F", bound=Callable[..., Any])
_REGISTRY: list[tuple[Any, tuple[str, ...]]] = []


def kernel(*signatures: str, key: tuple[Any, ...] = ()) -> Callable[[_F], _F]:
    """Decorate a kernel: compiled for each argument types on first use, cached on disk, run without the GIL.

    Args:
        signatures: the signatures that :func:`warm_up` compiles ahead.
        key: for a closure, the values of its factory's parameters; they must determine the code.
    """

    def decorate(function: _F) -> _F:
        dispatcher = numba.njit(nogil=True)(function)
        if not config.DISABLE_JIT:
            dispatcher._cache = _KernelCache(function, key)
        _REGISTRY.append((dispatcher, signatures))
        return dispatcher  # type: ignore[no-any-return]

    return decorate


def cache_directory() -> Path:
    """The folder of compiled kernels: ``NUMBAOPS_CACHE_DIR``, else ``numbaops`` in the user's cache folder."""
    chosen = os.environ.get("NUMBAOPS_CACHE_DIR")
    return Path(chosen) if chosen else Path(user_cache_dir("numbaops", appauthor=False))


def warm_up(progress: Callable[[int, int, str], None] | None = None) -> tuple[int, int]:
    """Compile every kernel for the signatures that numbaops itself uses.

    Args:
        progress: called before each one with the number done, the number in all, and the kernel's name; and once at the end.

    Returns:
        How many were compiled, and how many came from the disk cache.
    """
    from numbaops import kernels

    kernels.import_all()
    work = [(dispatcher, signature) for dispatcher, signatures in _REGISTRY for signature in signatures]
    if config.DISABLE_JIT:
        work = []
    hits = 0
    for done, (dispatcher, signature) in enumerate(work):
        if progress is not None:
            progress(done, len(work), dispatcher.__name__)
        before = sum(dispatcher.stats.cache_hits.values())
        dispatcher.compile(signature)
        hits += sum(dispatcher.stats.cache_hits.values()) - before
    if progress is not None:
        progress(len(work), len(work), "")
    return len(work) - hits, hits


@functools.cache
def _source_hash() -> str:
    """Hash of every source file of the package and of the compilers' versions (about 2 ms)."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


class _Locator:
    """What Numba's cache asks of a locator."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename
        self._path = str(cache_directory() / _source_hash())

    def get_cache_path(self) -> str:
        return self._path

    def ensure_cache_path(self) -> None:
        os.makedirs(self._path, exist_ok=True)


class _Implementation(CompileResultCacheImpl):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], name: str) -> None:  # the inherited one looks for a locator and may raise
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(function)
        self._filename_base = name


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
        self._cache_file = IndexDataCacheFile(cache_path=self._cache_path, filename_base=name, source_stamp=_source_hash())
        self.enable()

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return sig, codegen.magic_tuple(), (config.BOUNDSCHECK, config.OPT, config.DEBUGINFO_DEFAULT)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # damaged or unreadable files raise anything, e.g. UnpicklingError or EOFError
            self._give_up("read", error)
            try:
                os.unlink(self._cache_file._index_path)
            except OSError:
                pass
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            self._give_up("write", error)

    def _give_up(self, what: str, error: Exception) -> None:
        level = logging.DEBUG if _KernelCache._failed else logging.WARNING
        _KernelCache._failed = True
        log.log(level, "cannot %s the kernel cache in %s (%s); kernels are compiled anew", what, self._cache_path, error)
