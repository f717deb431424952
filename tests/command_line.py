"""What the tests of the ``numbaops`` command share."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import numbaops

TERMINAL_VARIABLES = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Result]


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that finds the package."""
    path = os.pathsep.join([str(Path(numbaops.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "TERM": "xterm", **more}


def process(*arguments: object, code: str | None = None, **streams: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command, or some Python code, in a process of its own."""
    start = ["-m", "numbaops"] if code is None else ["-c", code]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    command = [sys.executable, *start, *map(str, arguments)]
    return subprocess.run(command, text=True, env=environment(), timeout=120, check=False, **streams)


def one_line_error(result: Result, status: int = 1) -> str:
    """The text of an error, checked to be one line and no traceback."""
    assert result.status == status
    match = re.fullmatch(r"numbaops: error: (.+)\n", result.err)
    assert match is not None, result.err
    return match[1]


def value_info(name: str, element_type: int = TensorProto.FLOAT, shape: Sequence[Any] | None = ("N", 2)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, shape)


def save_model(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: Sequence[TensorProto] = (),
) -> Path:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def save_tensor(path: Path, array: np.ndarray, name: str = "") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(numpy_helper.from_array(array, name).SerializeToString())
