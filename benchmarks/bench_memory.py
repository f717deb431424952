"""Memory of a large result that is made, used and dropped again and again (128 MiB)."""

from __future__ import annotations

from .common import Thunk, page_faults
from .peers import PEERS, Case, build

LARGE = (8192, 4096)


class PageFaults:
    """Minor page faults of one run in steady state; recycled memory has next to none."""

    params = (["numbaops", "numpy"], ["Constant", "ConstantOfShape", "EyeLike"])
    param_names = ("implementation", "operator")
    unit = "minor page faults / run"

    run: Thunk

    def setup(self, implementation: str, operator: str) -> None:
        self.run = build(Case(operator, LARGE), implementation)

    def track_minor_page_faults(self, implementation: str, operator: str) -> float:
        return page_faults(self.run)


class PeakMemory:
    """Without the check of the answer, which needs more memory than the run."""

    params = (["numbaops", "numpy"], ["ConstantOfShape", "EyeLike"])
    param_names = ("implementation", "operator")

    def peakmem_runs(self, implementation: str, operator: str) -> None:
        run = PEERS[operator][implementation](Case(operator, LARGE))
        for _ in range(10):
            run()
