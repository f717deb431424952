"""A model's run by each of the evaluators: with a model, what to feed and a number of threads, the call to time."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..common import Thunk, runtime_session, set_threads

if TYPE_CHECKING:
    from onnx import ModelProto

Feeds = dict[str, Any]


def _numbaops(model: ModelProto, feeds: Feeds, threads: int) -> Thunk:
    import numbaops

    set_threads(threads)
    return functools.partial(numbaops.ReferenceEvaluator(model).run, None, feeds)


def _onnx_reference(model: ModelProto, feeds: Feeds, threads: int) -> Thunk:
    from onnx.reference import ReferenceEvaluator

    return functools.partial(ReferenceEvaluator(model).run, None, feeds)


def _onnxruntime(model: ModelProto, feeds: Feeds, threads: int) -> Thunk:
    try:
        # Its idle threads would otherwise take a CPU away from whatever is timed next.
        session = runtime_session(model.SerializeToString(), threads, spinning=False)
    except NotImplementedError:
        raise
    except Exception as error:  # its exceptions have no common base
        raise NotImplementedError(f"ONNX Runtime refuses the model: {str(error)[:120]}") from error
    thunk = functools.partial(session.run, None, feeds)
    try:
        thunk()
    except Exception as error:
        raise NotImplementedError(f"ONNX Runtime does not run the model: {str(error)[:120]}") from error
    return thunk


WARM_UP = 12  # calls, after which plans are specialised


def settle(run: Thunk) -> None:
    """Bring a run of ours into its steady state: made for the shapes that it gets, with the kernels that are compiled behind."""
    for _ in range(WARM_UP):
        run()
    if jit := sys.modules.get("numbaops.runtime.jit"):
        jit.Later.wait()
        run()


EVALUATORS: dict[str, Callable[[ModelProto, Feeds, int], Thunk]] = {
    "numbaops_evaluator": _numbaops,
    "onnx_reference": _onnx_reference,
    "onnxruntime": _onnxruntime,
}
