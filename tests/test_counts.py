"""Counts that are the same on every machine: what an import loads, kernels compiled, memory held, page faults, steps of plans.

A figure that grows is a loss of speed that no clock has to find; one that shrinks is to be written down here.
"""

from __future__ import annotations

import sys

import pytest
from benchmarks import counts
from benchmarks.peers import Case, build

from numbaops.runtime.threads import thread_count


def test_the_package_loads_itself_alone() -> None:
    loaded = counts.modules_loaded("package")
    assert [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names] == ["numbaops"]


@pytest.mark.parametrize(("what", "number"), {"package": 1, "operator": 25, "evaluator": 105}.items())
def test_modules_that_an_import_loads(what: str, number: int) -> None:
    ours = [name for name in counts.modules_loaded(what) if name.partition(".")[0] == "numbaops"]
    assert len(ours) == number, ours


COMPILED = {
    "small work": 0,
    "fill of 4 MiB": 1,
    "identity of 4 MiB": 0,
    "float to float8": 2,
    "packing": 1,
    "blocked int4": 5,
    "SqueezeNet": 19 + (thread_count() > 1),  # 10 of them for its Softmax, and one for threads to wait for each other
}


@pytest.mark.parametrize(
    "script", [pytest.param(name, marks=pytest.mark.slow) if number > 2 else name for name, number in COMPILED.items()]
)
def test_kernels_that_a_program_compiles(script: str) -> None:
    assert counts.kernels_compiled(script) == (COMPILED[script], 0)


SMALL = (4, 4)
ALLOCATIONS = {
    ("numbaops", "Constant"): (1, 216),
    ("numbaops", "ConstantOfShape"): (1, 216),
    ("numbaops", "EyeLike"): (1, 216),
    ("numbaops_out", "Constant"): (0, 176),
    ("numbaops_out", "ConstantOfShape"): (0, 352),
    ("numbaops_out", "EyeLike"): (0, 592),
    ("numbaops_evaluator", "Constant"): (3, 264),
    ("numbaops_evaluator", "ConstantOfShape"): (3, 264),
    ("numbaops_evaluator", "EyeLike"): (3, 264),
    ("numbaops_evaluator", "8-node shape subgraph"): (3, 264),
    ("numbaops_evaluator", "1000 Adds"): (3, 264),
}
"""Blocks that a result holds, of Python's allocator: an array is one, a list two more; and the most bytes during a call."""


@pytest.mark.parametrize(("implementation", "operation"), ALLOCATIONS)
def test_memory_of_a_call(implementation: str, operation: str) -> None:
    run = build(Case(operation, SMALL), implementation)
    blocks, most = ALLOCATIONS[implementation, operation]
    assert counts.blocks_kept(run) <= 0
    assert counts.blocks_of_a_result(run) == blocks
    assert counts.bytes_of_a_call(run) <= most


@pytest.mark.parametrize("implementation", ["numbaops", "numbaops_evaluator"])
@pytest.mark.parametrize("operation", ["ConstantOfShape", "EyeLike"])
def test_no_page_faults_in_large_results(implementation: str, operation: str) -> None:
    assert counts.faults_of_a_call(build(Case(operation, (2048, 4096)), implementation)) == 0


STEPS = {
    "light_bvlc_alexnet": (40, 19),
    "light_densenet121": (1746, 246),
    "light_inception_v1": (237, 86),
    "light_inception_v2": (916, 95),
    "light_resnet50": (415, 58),
    "light_shufflenet": (446, 111),
    "light_squeezenet": (105, 40),
    "light_vgg19": (82, 30),
    "light_zfnet512": (38, 17),
}
"""Nodes of a network, and those that run."""


@pytest.mark.parametrize("model", [pytest.param(name, marks=pytest.mark.slow) if "vgg" in name else name for name in STEPS])
def test_steps_of_a_plan(model: str) -> None:
    found = counts.plan_steps(model)
    assert (found.total(), found["runs"]) == STEPS[model], found
