"""Every file of ``examples`` runs, small, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import run_python

EXAMPLES = Path(__file__).parent.parent / "examples"
ARGUMENTS = {  # of the command line, and what the example must print
    "bfloat16_dot.py": (["1000"], ["1000 elements, exact ", "@njit, reordered"]),
    "float4_blocked_weights.py": (
        ["6", "96"],
        [
            "6 x 96 weights in blocks of 32",
            ", as NumPy has it",
            "2304 bytes of float32, 288 of float4 and 18 of scales",
            "dequantize",
            "[6, 96]",
        ],
    ),
}


def test_every_example_is_run() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_example(name: str) -> None:
    arguments, wanted = ARGUMENTS[name]
    path = str(EXAMPLES / name)
    printed = run_python(f"import runpy, sys; sys.argv = {[path, *arguments]!r}; runpy.run_path({path!r}, run_name='__main__')")
    for text in wanted:
        assert text in printed
