"""Fresh interpreters: imports, and first calls without and with a cache of compiled kernels.

asv puts the texts between three double quotes of a program, so that backslashes have to be doubled.
"""

from __future__ import annotations

IMPORT = "import ml_dtypes, numpy as np, numbaops"

EMPTY_CACHE = f"""
import os, tempfile
folder = tempfile.TemporaryDirectory()
os.environ['NUMBAOPS_CACHE_DIR'] = folder.name
{IMPORT}
"""

CONVOLUTION = """
import onnx.parser
from numbaops import ReferenceEvaluator
text = '<ir_version: 10, opset_import: ["" : 21]> g (float[1,16,32,32] x, float[16,16,3,3] w) => (float[1,16,30,30] y) {y = Conv(x, w)}'
model = onnx.parser.parse_model(text)
fed = {'x': np.ones((1, 16, 32, 32), np.float32), 'w': np.ones((16, 16, 3, 3), np.float32)}
"""

FIRST_CALLS: dict[str, tuple[str, str]] = {
    "fill": ("numbaops.constant_of_shape((1024, 1024), 1.5)", ""),
    "cast": ("numbaops.cast(x, 'float8e4m3fn')", "x = np.ones(1 << 20, np.float32)"),
    "quantize": (
        "numbaops.quantize_linear(x, s, axis=1, block_size=32, output_dtype='int4')",
        "x, s = np.ones((64, 128), np.float32), np.ones((64, 4), np.float32)",
    ),
    "convolution": ("ReferenceEvaluator(model).run(None, fed)", CONVOLUTION),
}
"""What is called, and what comes before."""


class Import:
    rounds = 1
    repeat = (3, 10, 5.0)

    def timeraw_numbaops(self) -> str:
        return "import numbaops"

    def timeraw_operator(self) -> str:
        return "from numbaops import operator"

    def timeraw_evaluator(self) -> str:
        return "from numbaops import ReferenceEvaluator"

    def timeraw_numpy_ml_dtypes(self) -> str:
        """What the operators need."""
        return "import numpy, ml_dtypes"

    def timeraw_onnx_reference(self) -> str:
        """What the evaluator needs."""
        return "import onnx.reference"


class FirstCall:
    """The first call loads Numba, and compiles kernels or finds them in the cache on disk."""

    params = (["fill", "cast", "quantize", "convolution"],)
    param_names = ("call",)
    rounds = 1
    repeat = (2, 5, 5.0)
    timeout = 300

    def timeraw_empty_cache(self, call: str) -> tuple[str, str]:
        statement, before = FIRST_CALLS[call]
        return statement, EMPTY_CACHE + before

    def timeraw_primed_cache(self, call: str) -> tuple[str, str]:
        statement, before = FIRST_CALLS[call]
        other = "\n".join((IMPORT, before, statement))
        prime = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {other!r}], check=True)"
        return statement, "\n".join((EMPTY_CACHE, prime, before)).replace("\\", "\\\\")
