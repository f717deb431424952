"""A short wait for a number in memory, awake and without the GIL: a thread that sleeps takes 25 us to wake up."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from numbaops.kernels.filling import X86
from numbaops.kernels.vectors import data_of
from numbaops.runtime.jit import kernel


@intrinsic  # type: ignore[untyped-decorator]
def _look(typing_context: Any, number: Any) -> Any:
    """The first element, as another thread has left it by now; before that the processor is told that this is a wait."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if X86:
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), ir.FunctionType(ir.VoidType(), [])), [])
        return builder.load_atomic(data_of(context, builder, number, arguments[0]), "monotonic", 8)

    return types.int64(number), generate


if numba.config.DISABLE_JIT:

    def wait_until(number: Any, least: int, rounds: int, later: int) -> bool:
        """Whether a number is at least ``least``: without the JIT, waiting would keep others from the GIL."""
        return bool(number[0] >= least)

else:

    @kernel("boolean(int64[::1], int64, int64, int64)")
    def wait_until(number: Any, least: int, rounds: int, later: int) -> bool:
        """Wait until a number is at least ``least``; a round takes 26 ns on Zen 4.

        Args:
            number: ``[1]``, written to by another thread.
            least: what to wait for.
            rounds: the most of them.
            later: how many more to wait then.

        Returns:
            Whether it came.
        """
        for _ in range(rounds):
            if _look(number) >= least:
                for _ in range(later):
                    _look(number)
                return True
        return False
