"""numbaops in other people's loops: what docs/embedding.md promises beyond its examples."""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

from processes import run_python

CALLS = 100_000
MOST = 50
"""Blocks of Python's memory, and page faults, that so many calls may add; measured: 3 and 0."""

LAYER = """
import os, sys
import numpy as np
import onnx.parser
import numbaops
from numbaops.runtime import jit

model = onnx.parser.parse_model('''
    <ir_version: 9, opset_import: ["": 21]>
    layer (float[N, 8] x) => (float[N, 4] y)
    { weight = ConstantOfShape<value = float[1] {0.5}>(shape)  product = MatMul(x, weight)  y = Relu(product) }
'''.replace("{ weight", "<int64[2] shape = {8, 4}> { weight"))
"""

LOOPS = {
    "operator with out": """
        bound, shape, out = numbaops.operator("ConstantOfShape", value=1.5), (64, 64), np.empty((64, 64), np.float32)
        def call(): bound(shape, out=out)
    """,
    "quantization with out": """
        bound, x, scale = numbaops.operator("QuantizeLinear", output_dtype="int8"), np.ones((2, 8), np.float32), np.float32(0.1)
        out = np.empty((2, 8), np.int8)
        def call(): bound(x, scale, out=out)
    """,
    "operator": """
        bound, shape = numbaops.operator("ConstantOfShape", value=1.5), (64, 64)
        def call(): bound(shape)
    """,
    "evaluator with outputs": """
        evaluator, feeds, outputs = numbaops.ReferenceEvaluator(model), {"x": np.ones((2, 8), np.float32)}, [np.empty((2, 4), np.float32)]
        def call(): evaluator.run(None, feeds, outputs=outputs)
    """,
    "evaluator": """
        evaluator, feeds = numbaops.ReferenceEvaluator(model), {"x": np.ones((2, 8), np.float32)}
        def call(): evaluator.run(None, feeds)
    """,
}

STEADY = """
import resource, tracemalloc

def grown(calls, count):
    loop = range(calls)
    before = count()
    for _ in loop: call()
    return count() - before

def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def both(calls):
    blocks = sys.getallocatedblocks()
    return grown(calls, faults), sys.getallocatedblocks() - blocks

both(2000)
jit.Later.wait()
both(2000)
print(*both(CALLS))
tracemalloc.start()
grown(2000, sys.getallocatedblocks)
print(grown(5000, lambda: tracemalloc.get_traced_memory()[0]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no count of page faults")
@pytest.mark.parametrize("loop", LOOPS)
def test_steady_state(loop: str) -> None:
    code = LAYER + "\n".join(line.removeprefix("        ") for line in LOOPS[loop].splitlines()) + STEADY.replace("CALLS", str(CALLS))
    faults, blocks, traced = map(int, run_python(code).split())
    assert blocks < MOST
    assert faults < MOST
    assert traced < 1024  # bytes


def test_fewer_are_allowed_than_calls_would_leak() -> None:
    """A loop that keeps a thousandth of its results is found out."""
    leak = "kept, count = [], [0]\ndef call():\n    count[0] += 1\n    if not count[0] % 1000: kept.append(np.empty(3))\n"
    _, blocks, _ = map(int, run_python(LAYER + leak + STEADY.replace("CALLS", str(CALLS))).split())
    assert blocks >= MOST


# The image: compiled ahead, read-only

WINDOWS = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 21]>
    windows (float[N, 8, 64, 64] x) => (float[N, 8, 32, 32] y) { y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }
""")


def generic() -> dict[str, str]:
    """The variables of the page's image that choose a processor, if they fit this one."""
    page = Path(__file__).resolve().parents[1] / "docs" / "embedding.md"
    if not page.exists() or platform.machine() not in ("x86_64", "AMD64"):
        return {}
    line = re.search(r"NUMBA_CPU_NAME=(\S+) NUMBA_CPU_FEATURES=(\S+)", page.read_text("utf-8"))
    assert line is not None
    return {"NUMBA_CPU_NAME": line[1], "NUMBA_CPU_FEATURES": line[2]}


@pytest.mark.parametrize("processor", ["this one", pytest.param("a generic one", marks=pytest.mark.slow)])
def test_read_only_cache(processor: str, tmp_path: Path) -> None:
    pytest.importorskip("cyclopts")
    environment = generic() if processor == "a generic one" else {}
    if processor == "a generic one" and not environment:
        pytest.skip("the page's processor is another kind than this one")
    onnx.save(WINDOWS, tmp_path / "model.onnx")
    folder = tmp_path / "kernels"
    warmup = f"from numbaops.cli import main; main(['warmup', 'model.onnx', '--dim', 'N=2', '--cache-dir', {str(folder)!r}, '--json'])"
    there = f"import os; os.chdir({str(tmp_path)!r})\n"
    assert json.loads(run_python(there + warmup, **environment))["compiled"] >= 1

    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    serve = """
import numpy as np, numbaops
from numbaops.runtime import jit
evaluator = numbaops.ReferenceEvaluator("model.onnx")
for _ in range(12):
    (y,) = evaluator.run(None, {"x": np.ones((2, 8, 64, 64), np.float32)})
jit.Later.wait()
assert y.shape == (2, 8, 32, 32) and (y == 1).all()
print(jit.compiled())
"""
    for path in (*files, folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert run_python(there + serve, NUMBAOPS_CACHE_DIR=str(folder), **environment) == "0"
        # root may write all the same
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == files
        assert int(run_python(there + serve, NUMBAOPS_CACHE_DIR=str(tmp_path / "empty"), **environment)) >= 1  # so 0 says something
    finally:
        for path in (folder, *files):
            path.chmod(0o755)


def test_threads_and_memory_are_limited() -> None:
    code = """
import threading
import numbaops
for _ in range(3):
    big = numbaops.constant_of_shape((4096, 4096), 1.5)   # 64 MiB
    del big
stats = numbaops.memory.stats()
print(threading.active_count(), stats["free_bytes"], stats["limit"])
"""
    assert run_python(code, NUMBAOPS_NUM_THREADS="1", NUMBAOPS_RECYCLE_LIMIT=str(1 << 24)).split() == ["1", "0", str(1 << 24)]
