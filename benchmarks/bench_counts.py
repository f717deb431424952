"""Counts over the history of the project; ``tests/test_counts.py`` holds them to exact figures."""

from __future__ import annotations

from . import counts
from .common import Thunk
from .peers import Case, build

SMALL = (4, 4)
LARGE = (2048, 4096)  # 32 MiB of float


class Modules:
    params = (["package", "operator", "evaluator"],)
    param_names = ("what",)
    unit = "modules"

    def track_modules_loaded(self, what: str) -> int:
        return len(counts.modules_loaded(what))


class Kernels:
    params = (["small work", "fill of 4 MiB", "identity of 4 MiB", "float to float8", "packing", "blocked int4", "SqueezeNet"],)
    param_names = ("script",)
    unit = "specialisations"
    timeout = 300

    def track_compiled(self, script: str) -> int:
        return counts.kernels_compiled(script)[0]

    def track_compiled_again(self, script: str) -> int:
        return counts.kernels_compiled(script)[1]


class Allocations:
    params = (["numbaops", "numbaops_out", "numbaops_evaluator", "onnx_reference"], ["Constant", "ConstantOfShape", "EyeLike"])
    param_names = ("implementation", "operator")

    run: Thunk

    def setup(self, implementation: str, operator: str) -> None:
        self.run = build(Case(operator, SMALL), implementation)

    def track_blocks_kept(self, implementation: str, operator: str) -> int:
        return counts.blocks_kept(self.run)

    track_blocks_kept.unit = "blocks / 1000 calls"  # type: ignore[attr-defined]

    def track_blocks_of_a_result(self, implementation: str, operator: str) -> int:
        return counts.blocks_of_a_result(self.run)

    track_blocks_of_a_result.unit = "blocks"  # type: ignore[attr-defined]

    def track_bytes_of_a_call(self, implementation: str, operator: str) -> int:
        return counts.bytes_of_a_call(self.run)

    track_bytes_of_a_call.unit = "bytes"  # type: ignore[attr-defined]


class Faults:
    """Minor page faults of a large result that is made and dropped again and again."""

    params = (["numbaops", "numbaops_evaluator", "numpy"], ["ConstantOfShape", "EyeLike"])
    param_names = ("implementation", "operator")
    unit = "minor page faults / call"

    def track_faults(self, implementation: str, operator: str) -> float:
        return counts.faults_of_a_call(build(Case(operator, LARGE), implementation))


class PlanSteps:
    """Nodes that run, of those that a network has."""

    params = (
        [
            "light_bvlc_alexnet",
            "light_densenet121",
            "light_inception_v1",
            "light_inception_v2",
            "light_resnet50",
            "light_shufflenet",
            "light_squeezenet",
            "light_vgg19",
            "light_zfnet512",
        ],
    )
    param_names = ("model",)
    unit = "steps"

    def track_steps(self, model: str) -> int:
        return counts.plan_steps(model)["runs"]
