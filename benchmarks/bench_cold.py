"""Fresh interpreters: imports, and the first large call, which loads Numba, without and with a cache of compiled kernels."""

from __future__ import annotations

FIRST_CALL = "numbaops.constant_of_shape((1024, 1024), 1.5)"

EMPTY_CACHE = """
import os, tempfile
folder = tempfile.TemporaryDirectory()
os.environ["NUMBAOPS_CACHE_DIR"] = folder.name
"""

PRIMED_CACHE = f"""
{EMPTY_CACHE}
import subprocess, sys
subprocess.run([sys.executable, "-c", "import numbaops; {FIRST_CALL}"], check=True)
"""

IMPORT = "import numbaops"


class Cold:
    rounds = 1
    repeat = (3, 10, 5.0)

    def timeraw_import_numbaops(self) -> str:
        return IMPORT

    def timeraw_import_operator(self) -> str:
        return "from numbaops import operator"

    def timeraw_import_numpy_ml_dtypes(self) -> str:
        return "import numpy, ml_dtypes"

    def timeraw_first_call_empty_cache(self) -> tuple[str, str]:
        return FIRST_CALL, EMPTY_CACHE + IMPORT

    def timeraw_first_call_primed_cache(self) -> tuple[str, str]:
        return FIRST_CALL, PRIMED_CACHE + IMPORT
