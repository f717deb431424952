"""What is counted, not timed: the same on every machine, so that tests hold it to exact figures (``tests/test_counts.py``)."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter

from .common import Thunk, page_faults

IMPORTS = {
    "package": "import numbaops",
    "operator": "from numbaops import operator",
    "evaluator": "from numbaops import ReferenceEvaluator",
}

SCRIPTS = {
    "small work": "numbaops.constant_of_shape((4, 4), 1.5); numbaops.eye_like((4, 4)); numbaops.cast(np.ones(8), 'float16')",
    "fill of 4 MiB": "numbaops.constant_of_shape((1024, 1024), 1.5)",
    "identity of 4 MiB": "numbaops.eye_like((1024, 1024))",
    "float to float8": "numbaops.cast(np.ones(1 << 20, np.float32), 'float8e4m3fn')",
    "packing": "numbaops.pack(np.ones(1 << 20, ml_dtypes.int4))",
    "blocked int4": """
x, scale = np.ones((64, 128), np.float32), np.ones((64, 4), np.float32)
numbaops.quantize_linear(x, scale, axis=1, block_size=32, output_dtype="int4", packed=True)
""",
    "SqueezeNet": """
import onnx
from benchmarks.models import LIGHT, feeds_of
model = onnx.load(LIGHT / "light_squeezenet.onnx")
evaluator = numbaops.ReferenceEvaluator(model)
for _ in range(12):
    evaluator.run(None, feeds_of(model, ""))
""",
}
"""What a user's program may do, by name."""

_COUNT_KERNELS = "from numbaops.runtime import jit; jit.Later.wait(); print(jit.compiled())"


def in_fresh_process(code: str, **settings: str) -> str:
    """What the code prints, in a process of its own without Numba's settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment.update(settings, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def modules_loaded(what: str) -> list[str]:
    """Modules that an import loads beyond those of an interpreter that has loaded NumPy, ml_dtypes and onnx if the import needs them.

    Args:
        what: a key of :data:`IMPORTS`.
    """
    before = {"package": "", "operator": "import numpy, numpy.typing, ml_dtypes", "evaluator": "import onnx.reference, ml_dtypes"}[what]
    code = f"import sys\n{before}\nbefore = set(sys.modules)\n{IMPORTS[what]}\nprint(*sorted(set(sys.modules) - before))"
    return in_fresh_process(code).split()


def kernels_compiled(script: str) -> tuple[int, int]:
    """How many specialisations the script compiles with an empty cache of kernels, and how many when it runs again.

    Args:
        script: a key of :data:`SCRIPTS`.
    """
    code = f"import ml_dtypes, numpy as np, numbaops\n{SCRIPTS[script]}\n{_COUNT_KERNELS}"
    with tempfile.TemporaryDirectory() as folder:
        first, again = (int(in_fresh_process(code, NUMBAOPS_CACHE_DIR=folder)) for _ in range(2))
    return first, again


def blocks_kept(thunk: Thunk, calls: int = 1000) -> int:
    """Blocks of memory that Python's allocator has more after so many calls than after the same number before."""
    before = 0
    for _ in range(3):  # the first ones fill free lists
        before = sys.getallocatedblocks()
        for _ in itertools.repeat(None, calls):
            thunk()
        gc.collect()
    return sys.getallocatedblocks() - before


def blocks_of_a_result(thunk: Thunk, calls: int = 1000) -> int:
    """Blocks of memory that one result holds, of Python's allocator."""
    kept = [thunk() for _ in range(calls)]
    kept[:] = [None] * calls
    gc.collect()
    before = sys.getallocatedblocks()
    for position in range(calls):
        kept[position] = thunk()
    return round((sys.getallocatedblocks() - before) / calls)


def bytes_of_a_call(thunk: Thunk) -> int:
    """The most memory that a call holds at any moment, its result included, in its steady state; counted by tracemalloc."""
    for _ in range(20):
        thunk()
    tracemalloc.start()
    try:
        peaks = []
        for _ in range(5):
            result = thunk()
            del result
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            result = thunk()
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
            del result
        return min(peaks)
    finally:
        tracemalloc.stop()


def faults_of_a_call(thunk: Thunk) -> float:
    """Page faults a call in its steady state; the fewest of some attempts, for other threads of the process have some."""
    return min(page_faults(thunk) for _ in range(3))


def plan_steps(model: str) -> Counter[str]:
    """How many nodes of a light model run, and how many do not for which reason.

    Args:
        model: file name without its ending.
    """
    import onnx

    import numbaops

    from .models import LIGHT, feeds_of

    proto = onnx.load(LIGHT / f"{model}.onnx")
    evaluator = numbaops.ReferenceEvaluator(proto)
    evaluator.run(None, feeds_of(proto, model))
    reasons = ("folded", "the same as an earlier step", "goes into a later step", "renamed", "unused")
    lines = evaluator.explain().splitlines()
    return Counter(next((reason for reason in reasons if line.partition("]; ")[2] == reason), "runs") for line in lines)
