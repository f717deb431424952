"""Settings for the whole test run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

# A first example may compile a kernel, so time limits say nothing; the same examples in every run make failures repeat.
hypothesis.settings.register_profile("numbaops", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("numbaops")


@pytest.fixture(scope="session")
def node_cases() -> list[Any]:
    """Every node case of the installed onnx: all at once, for onnx keeps what it is first asked for (4 s)."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx computes infinities on purpose
        return collect_testcases(None)  # type: ignore[no-any-return]


@pytest.fixture(params=["first runs", "as a function", "for shapes known"])
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Has plans run step by step, as they usually begin; or as functions from the first run on; or made for the shapes of that run."""
    from numbaops.engine import plan

    if request.param != "first runs":
        monkeypatch.setattr(plan, "FIRST_RUNS", 0)
    if request.param == "for shapes known":
        monkeypatch.setattr(plan, "HOT", 1)
    return str(request.param)


THREADS = os.environ.get("NUMBAOPS_NUM_THREADS")


@pytest.fixture(autouse=True)
def threads_as_at_first() -> Iterator[None]:
    """Benchmarks set the number of threads for the whole process, also in fixtures of a module."""
    yield
    if THREADS is None:
        os.environ.pop("NUMBAOPS_NUM_THREADS", None)
    else:
        os.environ["NUMBAOPS_NUM_THREADS"] = THREADS
