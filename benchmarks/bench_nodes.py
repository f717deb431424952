"""Operators at the sizes of real networks, as models of one node; ``python -m benchmarks.node_cases`` shows them beside the rivals."""

from __future__ import annotations

import functools

from .common import Thunk, set_threads
from .node_cases import NAMED, one_node
from .peers.evaluators import settle


class Nodes:
    params = (list(NAMED),)
    param_names = ("case",)
    timeout = 300

    run: Thunk

    def setup(self, case: str) -> None:
        import numbaops

        set_threads(1)
        made = one_node(*NAMED[case])
        self.run = functools.partial(numbaops.ReferenceEvaluator(made.model).run, None, made.feeds)
        settle(self.run)

    def time_run(self, case: str) -> None:
        self.run()
