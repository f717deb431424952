"""The disk cache of compiled kernels, seen from processes of their own: it hits, it is never stale and never fatal."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import numbaops
from numbaops.runtime import jit

PACKAGE = Path(numbaops.__file__).parent

USE = """
import json, logging, sys
import numpy as np
from numbaops.kernels import bits, diagonal, filling
from numbaops.runtime import jit

def fill(word="uint8"):
    out = np.zeros(100, word)
    filling.fill(out, np.dtype(word).type(7))
    assert (out == 7).all()

def pack(width):
    codes = np.arange(12, dtype=np.uint8) & 3
    packed, again = np.zeros(12 * width // 8, np.uint8), np.zeros(12, np.uint8)
    bits.pack[width](codes, packed)
    bits.unpack[width](packed, again)
    assert again.tolist() == codes.tolist()
    assert packed[0] == {2: 0b11100100, 4: 0x10, 6: 0b01000000}[width]

def fill_packed(width):
    out = np.zeros(3, np.uint8)
    filling.fill_packed[width](out, 16 // width + 1, np.uint8(1))
    assert out.tolist() == {2: [0x55, 0x55, 0x01], 4: [0x11, 0x11, 0x01]}[width]

def write_diagonal():
    out = np.zeros((3, 4), np.uint16)
    diagonal.write_diagonal(out, 1, np.uint16(9))
    assert out.tolist() == [[0, 9, 0, 0], [0, 0, 9, 0], [0, 0, 0, 9]]

def counts():
    \"""[hits, misses] of each kernel that was used.\"""
    found = {}
    for dispatcher, _ in jit._REGISTRY:
        name = dispatcher._cache._impl.filename_base.partition(".")[0]
        stats, before = dispatcher.stats, found.get(name, [0, 0])
        found[name] = [before[0] + sum(stats.cache_hits.values()), before[1] + sum(stats.cache_misses.values())]
    return {name: each for name, each in found.items() if any(each)}
"""


def environment(**more: str | os.PathLike[str]) -> dict[str, str]:
    """The environment of a process that finds this numbaops, or the one on ``PYTHONPATH`` in ``more``, and nothing of the settings here."""
    settings = ("NUMBA_", "NUMBAOPS_", "XDG_CACHE_HOME")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    return {**plain, "PYTHONPATH": str(PACKAGE.parent), **{name: os.fspath(value) for name, value in more.items()}}


def start(code: str, *arguments: str | os.PathLike[str], **more: str | os.PathLike[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", USE + textwrap.dedent(code), *arguments],
        env=environment(**more),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> tuple[Any, str]:
    """What a process printed, read as JSON, and what it wrote to stderr."""
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return json.loads(out), errors


def run(code: str, **more: str | os.PathLike[str]) -> Any:
    """What the code prints in a new process, read as JSON; nothing may come on stderr."""
    result, errors = finish(start(code, **more))
    assert errors == ""
    return result


def files(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


FEW = """
from numbaops import kernels
kernels.import_all()
modules = [dispatcher.__module__ for dispatcher, _ in jit._REGISTRY]
few = ("bits", "diagonal", "filling", "functions", "planes", "waiting")
jit._REGISTRY[:] = [row for row in jit._REGISTRY if row[0].__module__.rpartition(".")[2] in few]
"""


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A cache folder that ``warm_up`` filled with a few of the kernels, for all of them take a minute; and what it said."""
    folder = tmp_path_factory.mktemp("warm")
    code = """
        calls = []
        result = jit.warm_up(lambda done, total, name: calls.append((done, total, name)))
        print(json.dumps({"result": result, "calls": calls, "again": jit.warm_up(), "modules": modules}))
    """
    return folder, run(FEW + textwrap.dedent(code), NUMBAOPS_CACHE_DIR=folder)


@pytest.fixture
def full(tmp_path: Path, warm: tuple[Path, Any]) -> Path:
    """A copy of the warm folder, to be spoilt."""
    return shutil.copytree(warm[0], tmp_path / "full")


# Hits


def test_second_process_compiles_nothing(tmp_path: Path) -> None:
    code = """
        for word in ("uint8", "uint64", "float32"): fill(word)
        for width in (2, 4): pack(width)
        fill_packed(4)
        again = bits.make_pack(4)
        again(np.arange(4, dtype=np.uint8), np.zeros(2, np.uint8))
        print(json.dumps(counts()))
    """
    names = ("bits-pack-2", "bits-pack-4", "bits-unpack-2", "bits-unpack-4", "filling-fill", "filling-fill_packed-4")
    compiled = run(code, NUMBAOPS_CACHE_DIR=tmp_path)
    assert tuple(sorted(compiled)) == names
    # A packed fill calls fill with a value that it computed as int64; a factory called again finds what it stored before.
    assert compiled == {**{name: [0, 1] for name in names}, "bits-pack-4": [1, 1], "filling-fill": [0, 4]}
    stored = {path: path.read_bytes() for path in files(tmp_path)}
    assert {path.name.partition(".")[0] for path in stored} == set(names)
    found = run(code, NUMBAOPS_CACHE_DIR=tmp_path)
    assert all(misses == 0 for _, misses in found.values())
    assert {name: hits for name, (hits, _) in found.items()} == {
        **dict.fromkeys(names, 1),
        "bits-pack-4": 2,
        "filling-fill": 3,
    }  # no fill for the packed one
    assert {path: path.read_bytes() for path in files(tmp_path)} == stored


def test_a_users_own_cached_function_may_call_kernels(tmp_path: Path, full: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        textwrap.dedent("""
        import numba, numpy
        from numbaops.kernels import fill, make_pack
        pack = make_pack(4)

        @numba.njit(cache=True)
        def work(codes):
            out = numpy.empty(2, numpy.uint8)
            fill(out, numpy.uint8(0))
            pack(codes, out)
            return out
        """)
    )
    code = f"""
        sys.path.insert(0, {str(tmp_path)!r})
        import theirs
        print(json.dumps(theirs.work(np.arange(4, dtype=np.uint8)).tolist()))
    """
    for _ in range(2):
        assert run(code, NUMBAOPS_CACHE_DIR=full, NUMBA_CACHE_DIR=tmp_path / "theirs") == [0x10, 0x32]


# Never stale


def copy_of_the_package(folder: Path) -> Path:
    shutil.copytree(PACKAGE, folder / "numbaops", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "numbaops"


def test_change_in_any_file_of_the_package_misses(tmp_path: Path, full: Path) -> None:
    package = copy_of_the_package(tmp_path)
    code = "fill()\nimport numbaops\nprint(json.dumps([numbaops.__file__, counts()]))"

    def hits_and_misses() -> list[int]:
        path, found = run(code, NUMBAOPS_CACHE_DIR=full, PYTHONPATH=tmp_path)
        assert Path(path) == package / "__init__.py"
        return found["filling-fill"]  # type: ignore[no-any-return]

    assert hits_and_misses() == [1, 0]  # the same source in another place
    other = package / "kernels" / "bits.py"
    other.write_text(other.read_text() + "\n# changed\n")
    assert hits_and_misses() == [0, 1]
    assert hits_and_misses() == [1, 0]
    (package / "ops" / "new.py").write_text("")
    assert hits_and_misses() == [0, 1]


def test_changed_callee_is_compiled_anew(tmp_path: Path, full: Path) -> None:
    callee = copy_of_the_package(tmp_path) / "kernels" / "filling.py"
    source = callee.read_text()
    assert source.count("    out[...] = value\n") == 1
    callee.write_text(source.replace("    out[...] = value\n", "    out[...] = value + 1\n"))
    code = """
        out = np.zeros(3, np.uint8)
        filling.fill_packed[4](out, 6, np.uint8(1))
        print(json.dumps(out.tolist()))
    """
    assert run(code, NUMBAOPS_CACHE_DIR=full, PYTHONPATH=tmp_path) == [0x12, 0x12, 0x12]


def test_bounds_checked_code_is_kept_apart(full: Path) -> None:
    """Three elements of four bits written to one byte are an error only with bounds checks."""
    code = """
        try:
            filling.fill_packed[4](np.zeros(SIZE, np.uint8), 3, np.uint8(1))
            print(json.dumps(counts()["filling-fill_packed-4"]))
        except IndexError:
            print(json.dumps(["IndexError", *counts()["filling-fill_packed-4"]]))
    """
    for want in ([0, 1], [1, 0]):
        assert run(code.replace("SIZE", "1"), NUMBAOPS_CACHE_DIR=full, NUMBA_BOUNDSCHECK="1") == ["IndexError", *want]
    assert run(code.replace("SIZE", "2"), NUMBAOPS_CACHE_DIR=full) == [1, 0]


def test_code_for_another_processor_is_kept_apart(full: Path) -> None:
    code = "fill()\nprint(json.dumps(counts()))"
    for want in ([0, 1], [1, 0]):
        assert run(code, NUMBAOPS_CACHE_DIR=full, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == {"filling-fill": want}
    assert run(code, NUMBAOPS_CACHE_DIR=full) == {"filling-fill": [1, 0]}


# Never fatal

WORK = "fill()\nfill_packed(4)\nprint(json.dumps(counts()))"
COMPILED = {"filling-fill": [0, 2], "filling-fill_packed-4": [0, 1]}
FOUND = {"filling-fill": [1, 0], "filling-fill_packed-4": [1, 0]}


def assert_one_line(errors: str, *words: str) -> None:
    assert len(errors.splitlines()) == 1, errors
    assert all(word in errors for word in ("kernel cache", *words)), errors


def under_a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("in the way")
    return tmp_path / "file" / "folder"


def file_in_the_place(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("in the way")
    return tmp_path / "file"


def file_one_level_below(tmp_path: Path) -> Path:
    (tmp_path / jit._source_hash()).write_text("in the way")
    return tmp_path


def folders_in_the_place_of_files(tmp_path: Path) -> Path:
    run(WORK, NUMBAOPS_CACHE_DIR=tmp_path)
    for path in files(tmp_path):
        path.unlink()
        path.mkdir()
    return tmp_path


def read_only_file_system(tmp_path: Path) -> Path:
    return Path("/proc/nowhere")


@pytest.mark.parametrize(
    "place",
    [
        under_a_file,
        file_in_the_place,
        file_one_level_below,
        folders_in_the_place_of_files,
        pytest.param(read_only_file_system, marks=pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")),
    ],
    ids=lambda place: place.__name__,
)
def test_unusable_folder(tmp_path: Path, place: Any) -> None:
    folder = place(tmp_path)
    found, errors = finish(start(WORK, NUMBAOPS_CACHE_DIR=folder))
    assert found == COMPILED
    assert_one_line(errors, str(folder))


def test_unusable_home(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    home = tmp_path / "file"
    found, errors = finish(start(WORK, HOME=home, LOCALAPPDATA=home, USERPROFILE=home))
    assert found == COMPILED
    assert_one_line(errors)


@pytest.mark.skipif(sys.platform == "win32", reason="no resource limits")
def test_full_device(tmp_path: Path) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES))\n" + WORK
    for nbytes in (0, 1500):  # at once, and in the middle of a file
        found, errors = finish(start(limited.replace("BYTES", str(nbytes)), NUMBAOPS_CACHE_DIR=tmp_path))
        assert found == COMPILED
        assert_one_line(errors)
        assert not files(tmp_path, "*tmp*")
    assert run(WORK, NUMBAOPS_CACHE_DIR=tmp_path) == COMPILED  # there is room again, and nothing half-written was found


def empty(data: bytes) -> bytes:
    return b""


def one_byte(data: bytes) -> bytes:
    return data[:1]


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def all_but_one(data: bytes) -> bytes:
    return data[:-1]


def garbage(data: bytes) -> bytes:
    return bytes((i * 73 + 41) % 256 for i in range(len(data)))


def zeros(data: bytes) -> bytes:
    return bytes(len(data))


def another_pickle(data: bytes) -> bytes:
    return pickle.dumps({"other": "things"})


def text(data: bytes) -> bytes:
    return b"version https://git-lfs.github.com/spec/v1\n"


def test_damaged_files(full: Path) -> None:
    """Each kernel's files are damaged in another way; all are compiled anew, and the next process finds them."""
    code = """
        for width in (2, 4, 6): pack(width)
        fill_packed(2)
        write_diagonal()
        print(json.dumps(counts()))
    """
    damages = (empty, one_byte, half, all_but_one, garbage, zeros, another_pickle, text)
    names = [f"bits-{what}-{width}" for what in ("pack", "unpack") for width in (2, 4, 6)]
    names += ["filling-fill_packed-2", "diagonal-write_diagonal"]
    for name, damage in zip(names, damages, strict=True):
        for path in files(full, f"{name}.*"):
            path.write_bytes(damage(path.read_bytes()))
    found, errors = finish(start(code, NUMBAOPS_CACHE_DIR=full))
    assert {name: found[name][1] for name in names} == dict.fromkeys(names, 1)
    assert_one_line(errors)
    found = run(code, NUMBAOPS_CACHE_DIR=full)
    assert all(misses == 0 for _, misses in found.values()), found


def test_files_removed_meanwhile(full: Path) -> None:
    code = """
        import shutil
        fill()
        shutil.rmtree(jit.cache_directory())
        fill("uint16")
        for path in jit.cache_directory().rglob("*.nbc"): path.unlink()
        fill("uint32")
        print(json.dumps(counts()))
    """
    assert run(code, NUMBAOPS_CACHE_DIR=full) == {"filling-fill": [1, 2]}
    assert run(WORK, NUMBAOPS_CACHE_DIR=full) == COMPILED


def test_an_interrupt_waits_for_the_kernel(tmp_path: Path) -> None:
    """Else it would end the generators by which Numba reads its registries, and nothing could be compiled in the process any more."""
    code = """
        import signal
        from numba.core.typing.context import BaseContext

        def interrupted(context, refresh=BaseContext.refresh):
            BaseContext.refresh = refresh
            signal.raise_signal(signal.SIGINT)
            refresh(context)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        BaseContext.refresh = interrupted
        try:
            fill()
        except KeyboardInterrupt:
            print(json.dumps([counts(), len(filling.fill.signatures)]))
    """
    assert run(code, NUMBAOPS_CACHE_DIR=tmp_path) == [{"filling-fill": [0, 1]}, 1]


# Several at once


def test_two_processes_compile_at_once(tmp_path: Path) -> None:
    processes = [start(WORK, NUMBAOPS_CACHE_DIR=tmp_path) for _ in range(2)]
    for process in processes:
        assert finish(process)[1] == ""
    assert run(WORK, NUMBAOPS_CACHE_DIR=tmp_path) == FOUND


def test_two_processes_store_other_signatures_at_once(tmp_path: Path) -> None:
    """The worst order: both look before either stores, and what the first began, it ends after the second.

    Whatever a later process finds then, it must not be the code of another signature.
    """
    code = """
        import os, time
        from pathlib import Path
        word, me, other, last = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] == "last"
        replace, done = os.replace, []

        def slow(*arguments):
            if not done:
                me.touch()
                for _ in range(500):
                    if other.exists(): break
                    time.sleep(0.01)
            time.sleep(0.4 if last and len(done) == 1 else 0.1 if not last and not done else 0)
            done.append(arguments)
            replace(*arguments)

        os.replace = slow
        fill(word)
        print(0)
    """
    one, two, cache = tmp_path / "one", tmp_path / "two", tmp_path / "cache"
    processes = [
        start(code, "uint8", one, two, "last", NUMBAOPS_CACHE_DIR=cache),
        start(code, "uint16", two, one, "first", NUMBAOPS_CACHE_DIR=cache),
    ]
    for process in processes:
        assert finish(process) == (0, "")
    assert run("for word in ('uint8', 'uint16'): fill(word)\nprint(0)", NUMBAOPS_CACHE_DIR=cache) == 0


def test_threads_compile_at_once(tmp_path: Path) -> None:
    code = """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        barrier = threading.Barrier(6)
        def work(number):
            barrier.wait()
            fill()
            fill_packed(4)
        with ThreadPoolExecutor(6) as pool: list(pool.map(work, range(6)))
        print(json.dumps(counts()))
    """
    assert run(code, NUMBAOPS_CACHE_DIR=tmp_path) == COMPILED


# Where it is


@pytest.mark.parametrize("chosen", ["somewhere", "/a/b c/ü"])
def test_folder_of_the_environment(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("NUMBAOPS_CACHE_DIR", chosen)
    assert jit.cache_directory() == Path(chosen)


@pytest.mark.skipif(sys.platform != "linux", reason="the user's cache folder is elsewhere")
@pytest.mark.parametrize("unset", [None, ""], ids=["not set", "empty"])
def test_default_folder(monkeypatch: pytest.MonkeyPatch, unset: str | None) -> None:
    def forget(name: str) -> None:
        if unset is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, unset)

    forget("NUMBAOPS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
    assert jit.cache_directory() == Path("/some/cache/numbaops")
    forget("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/some/home")
    assert jit.cache_directory() == Path("/some/home/.cache/numbaops")


def test_numbas_own_folder_and_the_package_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "numba").mkdir()
    code = """
        import os
        from numba import config
        fill()
        print(json.dumps([os.environ["NUMBA_CACHE_DIR"], config.CACHE_DIR]))
    """
    found = run(code, NUMBAOPS_CACHE_DIR=tmp_path / "ours", NUMBA_CACHE_DIR=tmp_path / "numba")
    assert found == [str(tmp_path / "numba")] * 2
    assert not list((tmp_path / "numba").iterdir())
    assert files(tmp_path / "ours")
    assert not files(PACKAGE, "*.nb[ic]*")


def test_loading_kernels_touches_no_cache(tmp_path: Path) -> None:
    run("import numbaops.kernels\nnumbaops.kernels.import_all()\nprint(0)", NUMBAOPS_CACHE_DIR=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


# Warm-up


def test_warm_up_compiles_all_signatures_and_tells(warm: tuple[Path, Any]) -> None:
    folder, said = warm
    total = len(said["calls"]) - 1
    compiled, cached = said["result"]
    assert compiled + cached == total
    assert cached < total // 2  # some are parts of others, and compiled with them
    assert said["calls"][-1] == [total, total, ""]
    assert [(done, all_) for done, all_, _ in said["calls"]] == [(number, total) for number in range(total + 1)]
    assert {name for _, _, name in said["calls"][:-1]} >= {"fill", "stream", "write_diagonal", "pack", "unpack", "fill_packed"}
    folder_of_kernels = Path(numbaops.__file__).with_name("kernels")
    names = {path.stem for path in folder_of_kernels.glob("*.py") if '\n@kernel(f"' in (text := path.read_text()) or '\n@kernel("' in text}
    assert set(said["modules"]) >= {f"numbaops.kernels.{name}" for name in names}
    assert len(files(folder)) >= total


def test_warm_up_again_in_the_same_process_compiles_nothing(warm: tuple[Path, Any]) -> None:
    compiled, _ = warm[1]["again"]
    assert compiled == 0


def test_warm_up_in_a_second_process_finds_all(warm: tuple[Path, Any]) -> None:
    folder, said = warm
    assert run(FEW + "print(json.dumps(jit.warm_up()))", NUMBAOPS_CACHE_DIR=folder) == [0, sum(said["result"])]


def test_warm_up_without_the_jit_has_nothing_to_do(tmp_path: Path) -> None:
    code = """
        calls = []
        print(json.dumps([jit.warm_up(lambda *call: calls.append(call)), calls]))
    """
    assert run(code, NUMBAOPS_CACHE_DIR=tmp_path / "cache", NUMBA_DISABLE_JIT="1") == [[0, 0], [[0, 0, ""]]]
    assert not (tmp_path / "cache").exists()


def test_warm_up_in_an_unusable_folder_still_compiles(tmp_path: Path) -> None:
    code = """
        import numbaops.kernels
        numbaops.kernels.import_all()
        jit._REGISTRY[:] = [row for row in jit._REGISTRY if row[0].__name__ == "fill_pairs"]
        print(json.dumps(jit.warm_up()))
    """
    (result, errors) = finish(start(code, NUMBAOPS_CACHE_DIR=under_a_file(tmp_path)))
    assert result == [2, 0]
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("stream_from", ["0", "999999999999"], ids=["streaming", "plain"])
def test_after_warm_up_nothing_is_left_to_compile(warm: tuple[Path, Any], stream_from: str) -> None:
    """All that the package itself does with kernels: fills and diagonals of each width, fresh and into ``out``, and packing."""
    code = """
        import ml_dtypes
        import numbaops
        from numbaops import convert, dense
        for dtype in map(np.dtype, ("bool", ml_dtypes.bfloat16, "float32", "complex64", "complex128")):
            count = (9 << 20) // dtype.itemsize
            element = dense.Element(np.frombuffer(bytes([1] * dtype.itemsize), dtype).reshape(()))
            for _ in range(2):
                dense.filled((count,), element, count * dtype.itemsize)
                dense.diagonal(count // 1000, 1000, -3, element)
            out = np.empty(count // 1000 * 1000 + 1, dtype)[1:]
            dense.fill(out, element)
            dense.diagonal(count // 1000, 1000, 5, element, out.reshape(-1, 1000))
        for dtype in (ml_dtypes.int2, ml_dtypes.uint4, ml_dtypes.float6_e2m3fn):
            codes = np.zeros((3001, 1001), np.uint8).view(dtype)
            for _ in range(2):
                tensor = convert.packed(codes)
                tensor.unpack()
                tensor.data.flags.writeable = codes.flags.writeable = False
                tensor.unpack()
        for packed in (False, True):
            numbaops.constant_of_shape((40_000_001,), np.ones(1, ml_dtypes.int4), packed=packed)
        numbaops.eye_like((3000, 3000), "float64")
        print(json.dumps(counts()))
    """
    found = run(code, NUMBAOPS_CACHE_DIR=warm[0], NUMBAOPS_STREAM_FROM=stream_from)
    assert found
    assert {name: misses for name, (_, misses) in found.items() if misses} == {}
