"""Code that needs a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numbaops


def run_python(code: str, **environment: str) -> str:
    """What the code prints in a new process; nothing may come on stderr."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "NUMBAOPS_"))}
    plain["PYTHONPATH"] = str(Path(numbaops.__file__).parents[1])
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**plain, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, ""), process.stderr
    return process.stdout.strip()
