"""The operators of numbaops by element type and size.

Zero is a case of its own: fresh zero pages are only promised by the system until they are touched, which ``time_touched`` does.
"""

from __future__ import annotations

import numpy as np

from .common import SIZES, Thunk, square, touch
from .peers import Case, build


class ConstantOfShape:
    params = (["float8e4m3fn", "bfloat16", "float", "double"], SIZES, [0, 1])
    param_names = ("element_type", "size", "value")

    run: Thunk

    def setup(self, element_type: str, size: int, value: int) -> None:
        self.run = build(Case("ConstantOfShape", square(size), element_type, value), "numbaops")

    def time_new(self, element_type: str, size: int, value: int) -> None:
        self.run()


class ConstantOfShapeTouched:
    params = (["float"], [1048576, 16777216], [0, 1])
    param_names = ("element_type", "size", "value")

    run: Thunk

    def setup(self, element_type: str, size: int, value: int) -> None:
        self.run = build(Case("ConstantOfShape", square(size), element_type, value), "numbaops")

    def time_touched(self, element_type: str, size: int, value: int) -> None:
        touch(self.run())


class ConstantOfShapeOut:
    params = (["float8e4m3fn", "float", "double"], SIZES)
    param_names = ("element_type", "size")

    run: Thunk

    def setup(self, element_type: str, size: int) -> None:
        self.run = build(Case("ConstantOfShape", square(size), element_type), "numbaops_out")

    def time_out(self, element_type: str, size: int) -> None:
        self.run()


class EyeLike:
    params = (["int8", "bfloat16", "float", "double"], SIZES)
    param_names = ("element_type", "size")

    run: Thunk

    def setup(self, element_type: str, size: int) -> None:
        self.run = build(Case("EyeLike", square(size), element_type), "numbaops")

    def time_new(self, element_type: str, size: int) -> None:
        self.run()


class EyeLikeTouched:
    params = (["float"], [1048576, 16777216])
    param_names = ("element_type", "size")

    run: Thunk

    def setup(self, element_type: str, size: int) -> None:
        self.run = build(Case("EyeLike", square(size), element_type), "numbaops")

    def time_touched(self, element_type: str, size: int) -> None:
        touch(self.run())


class EyeLikeOut:
    params = (["float", "double"], SIZES)
    param_names = ("element_type", "size")

    run: Thunk

    def setup(self, element_type: str, size: int) -> None:
        self.run = build(Case("EyeLike", square(size), element_type), "numbaops_out")

    def time_out(self, element_type: str, size: int) -> None:
        self.run()


class Constant:
    params = (["float", "double"], SIZES)
    param_names = ("element_type", "size")

    run: Thunk

    def setup(self, element_type: str, size: int) -> None:
        self.run = build(Case("Constant", square(size), element_type), "numbaops")

    def time_new(self, element_type: str, size: int) -> None:
        self.run()


class FirstUse:
    """Large results that are all kept, so that no memory is recycled: the cost of fresh pages is in it."""

    params = (["ConstantOfShape", "EyeLike"],)
    param_names = ("operator",)
    number = 1
    repeat = 5
    warmup_time = 0

    run: Thunk
    kept: list[np.ndarray]

    def setup(self, operator: str) -> None:
        import numbaops

        self.run = build(Case(operator, square(16777216)), "numbaops")
        numbaops.memory.trim()
        self.kept = []

    def time_new(self, operator: str) -> None:
        self.kept.append(self.run())

    def teardown(self, operator: str) -> None:
        self.kept.clear()


class Threads:
    """128 MiB, by the number of threads that numbaops may use."""

    params = (["ConstantOfShape", "EyeLike"], [1, 2])
    param_names = ("operator", "threads")

    run: Thunk

    def setup(self, operator: str, threads: int) -> None:
        self.run = build(Case(operator, square(16777216), "double", threads=threads), "numbaops")

    def time_new(self, operator: str, threads: int) -> None:
        self.run()
