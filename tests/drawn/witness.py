"""ONNX Runtime in a child process, which it may take down with it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import oracle

# Types that NumPy lacks travel as bits: their dtypes have no buffer, and ONNX Runtime takes them by number only.
TIMEOUT = 60.0


class OnnxRuntime:
    """Runs models in a child process; one that crashes is replaced."""

    def __init__(self) -> None:
        self._child: Any = None
        self._pipe: Connection | None = None

    def run(self, model: bytes, feeds: dict[str, Any]) -> tuple[str, Any]:
        """``("ok", outputs)``, ``("refused", text)`` or ``("crashed", text)``."""
        if self._child is None or not self._child.is_alive():
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            self._child = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._child.start()
            theirs.close()
            self._pipe = ours
        assert self._pipe is not None
        try:
            self._pipe.send((model, feeds))
            if not self._pipe.poll(TIMEOUT):
                self._child.kill()
                return "crashed", f"no answer in {TIMEOUT:.0f} s"
            answer: tuple[str, Any] = self._pipe.recv()
        except (EOFError, OSError):
            self._child.join()
            return "crashed", f"exit code {self._child.exitcode}"
        return answer

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.join()
            self._child = None


def _serve(pipe: Connection) -> None:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    while True:
        try:
            model, feeds = pipe.recv()
        except EOFError:
            return
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            outputs = _run(session, feeds)
        except Exception as error:
            pipe.send(("refused", f"{type(error).__name__}: {error}"[:300]))
        else:
            pipe.send(("ok", outputs))


def _run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime
    from onnx import helper

    if not any(
        (isinstance(value, np.ndarray) and value.dtype.kind == "V") or str(getattr(value, "dtype", "")) == "bfloat16"
        for value in feeds.values()
    ):
        return session.run(None, feeds)  # type: ignore[no-any-return]
    values = {}
    for name, value in feeds.items():
        if value.dtype.isbuiltin == 1:
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(value)
        else:
            words = np.array(value, order="C").view(np.uint16 if value.dtype.itemsize == 2 else np.uint8)
            number = helper.np_dtype_to_tensor_dtype(value.dtype)
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(words, number)
    return [_array(value) for value in session.run_with_ort_values(None, values)]


def _array(value: Any) -> Any:
    """An output as an array; of types that NumPy lacks ONNX Runtime gives only the address."""
    kind = oracle.TYPES.get(value.data_type().removeprefix("tensor(").removesuffix(")"))
    if kind is None or np.dtype(kind.dtype).isbuiltin == 1:
        return value.numpy()
    size = int(np.prod(value.shape())) * np.dtype(kind.dtype).itemsize
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(content), kind.dtype).reshape(value.shape())
