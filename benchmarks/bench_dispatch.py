"""What a call costs beside its work: 1000 calls on 4 x 4 matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .common import Thunk
from .peers import Case, build

CALLS = 1000


class Resolve:
    def setup(self) -> None:
        import numbaops

        self.resolve: Callable[..., Any] = numbaops.resolve
        assert self.resolve("ConstantOfShape", 22).since_version == 21

    def time_resolve(self) -> None:
        resolve = self.resolve
        for _ in range(CALLS):
            resolve("ConstantOfShape", 22)


class Bind:
    params = ([None, 1.5],)
    param_names = ("value",)

    def setup(self, value: float | None) -> None:
        import numbaops

        self.operator: Callable[..., Any] = numbaops.operator
        assert self.operator("ConstantOfShape", 22, value=value)((2,))[1] == (value or 0)

    def time_bind(self, value: float | None) -> None:
        operator = self.operator
        for _ in range(CALLS):
            operator("ConstantOfShape", 22, value=value)


class Call:
    """The same shape each time; ``numbaops`` is a bound operator."""

    params = (["numbaops", "numbaops_out", "numbaops_evaluator"], ["Constant", "ConstantOfShape", "EyeLike"])
    param_names = ("implementation", "operator")

    run: Thunk

    def setup(self, implementation: str, operator: str) -> None:
        self.run = build(Case(operator, (4, 4)), implementation)

    def time_call(self, implementation: str, operator: str) -> None:
        run = self.run
        for _ in range(CALLS):
            run()


class NewShape:
    """Shapes that differ from call to call: nothing that was kept for a shape helps."""

    params = (["ConstantOfShape", "EyeLike"],)
    param_names = ("operator",)

    def setup(self, operator: str) -> None:
        import numbaops

        self.bound = numbaops.operator(operator, 22)
        shapes = [(1 + i // 40, 1 + i % 40) for i in range(CALLS)]
        self.inputs = [np.array(s) if operator == "ConstantOfShape" else np.empty(s, np.float32) for s in shapes]
        for shape, x in zip(shapes, self.inputs, strict=True):
            wanted = np.zeros(shape, np.float32) if operator == "ConstantOfShape" else np.eye(*shape, dtype=np.float32)
            assert np.array_equal(self.bound(x), wanted)

    def time_call(self, operator: str) -> None:
        bound = self.bound
        for x in self.inputs:
            bound(x)


class Function:
    """The plain functions, which look the operator up at each call."""

    params = (["constant", "constant_of_shape", "constant_of_shape_value", "eye_like"],)
    param_names = ("function",)

    def setup(self, function: str) -> None:
        import numbaops

        calls: dict[str, tuple[Thunk, Any]] = {
            "constant": (lambda: numbaops.constant(value_float=1.5), np.float32(1.5)),
            "constant_of_shape": (lambda: numbaops.constant_of_shape((4, 4)), np.zeros((4, 4), np.float32)),
            "constant_of_shape_value": (lambda: numbaops.constant_of_shape((4, 4), 1.5), np.full((4, 4), 1.5, np.float32)),
            "eye_like": (lambda: numbaops.eye_like((4, 4)), np.eye(4, dtype=np.float32)),
        }
        self.run, wanted = calls[function]
        assert np.array_equal(self.run(), wanted)

    def time_call(self, function: str) -> None:
        run = self.run
        for _ in range(CALLS):
            run()
