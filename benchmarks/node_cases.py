"""Single operators beside onnx.reference and ONNX Runtime: ``python -m benchmarks.node_cases [OP ...] [--suite | --realistic]``.

``--suite`` times every node case of ONNX's own suite, which are small, ``--realistic`` the table below, whose sizes are those of real
networks; both without either. Models are loaded and run often enough beforehand that plans are specialised. Two threads on all sides.
The list is sorted by ours / onnx.reference, the worst first; where that one hands out a view, as for Transpose and Slice, we copy.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx.reference
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import numbaops

from .common import PAUSE, Thunk, available_cpus, geometric_mean, in_turn, relative_error, runtime_session, set_threads, writable

THREADS = min(2, available_cpus())
WARM_UP = 12  # calls, after which plans are specialised
TOLERANCE = 0.02  # of the largest value: float16, and quantized values that differ by one
SIDES: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "ours": numbaops.ReferenceEvaluator,
    "reference": onnx.reference.ReferenceEvaluator,
    "runtime": lambda model: runtime_session(model.SerializeToString(), THREADS),
}

REALISTIC: list[tuple[str, int, dict[str, Any], list[str]]] = [
    ("Conv", 22, {"strides": [2, 2], "pads": [3, 3, 3, 3]}, ["1x3x224x224 64x3x7x7* 64*"]),
    ("Conv", 22, {"pads": [1, 1, 1, 1]}, ["1x64x56x56 64x64x3x3* 64*", "1x512x7x7 512x512x3x3*", "f2:1x64x56x56 f2:64x64x3x3*"]),
    ("Conv", 22, {}, ["1x256x56x56 64x256x1x1* 64*", "bfloat16:1x256x56x56 bfloat16:64x256x1x1*"]),
    ("Conv", 22, {"pads": [1, 1, 1, 1], "group": 96}, ["1x96x112x112 96x1x3x3* 96*"]),
    ("Conv", 22, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}, ["1x256x28x28 256x256x3x3*"]),
    ("Conv", 22, {"pads": [1, 1]}, ["1x80x3000 512x80x3* 512*"]),
    ("Conv", 22, {"pads": [1] * 6}, ["1x16x16x56x56 16x16x3x3x3*"]),
    ("ConvTranspose", 22, {"strides": [2, 2], "pads": [1, 1, 1, 1]}, ["1x128x28x28 128x64x4x4* 64*"]),
    ("ConvTranspose", 22, {"strides": [8], "pads": [4, 4]}, ["1x256x800 256x128x16*"]),
    ("ConvInteger", 10, {"pads": [1, 1, 1, 1]}, ["u1:1x64x56x56 i1:64x64x3x3* u1=128:*"]),
    ("QLinearConv", 10, {"pads": [1, 1, 1, 1]}, ["u1:1x64x56x56 0.02 u1=128:* i1:64x64x3x3* 0.01 i1=0:* 0.5 u1=128:*"]),
    ("MaxPool", 22, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, ["1x64x112x112"]),
    ("MaxPool LpPool", 22, {"kernel_shape": [2, 2], "strides": [2, 2]}, ["1x64x112x112"]),
    ("AveragePool", 22, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, ["1x192x28x28"]),
    ("GlobalAveragePool GlobalMaxPool", 22, {}, ["8x2048x7x7"]),
    ("BatchNormalization", 15, {}, ["1x256x56x56 256* 256* 256* +256*"]),
    ("LRN", 13, {"size": 5}, ["1x96x55x55"]),
    ("InstanceNormalization", 22, {}, ["1x128x128x128 128* 128*"]),
    ("GroupNormalization", 21, {"num_groups": 32}, ["1x320x64x64 320* 320*"]),
    ("LayerNormalization", 17, {}, ["8x512x768 768* 768*", "f2:8x512x768 f2:768* f2:768*"]),
    ("RMSNormalization", 23, {}, ["8x512x768 768*"]),
    ("Gemm", 13, {"transB": 1}, ["64x1024 4096x1024* 4096*", "64x1024 4096x1024 4096*", "1x2048 1000x2048* 1000*"]),
    (
        "MatMul",
        13,
        {},
        [
            "8x128x768 768x3072*",
            "8x12x128x64 8x12x64x128",
            "8x1x128x64 1x12x64x128",
            "f2:512x768 f2:768x768*",
            "i4<100:512x512 i4<100:512x512*",
            "1x1x768 768x3072*",
            "1x1x768 768x50257*",
            "f2:1x1x768 f2:768x3072*",
            "1x12x1x64 1x12x64x512",
        ],
    ),
    ("MatMulInteger", 10, {}, ["u1:512x768 i1:768x768* u1=128:*", "u1:1x768 i1:768x3072* u1=128:*"]),
    ("QLinearMatMul", 21, {}, ["u1:512x768 0.02 u1=128:* i1:768x768* 0.01 i1=0:* 0.5 u1=128:*"]),
    ("Einsum", 12, {"equation": "bihd,bjhd->bhij"}, ["8x128x12x64 8x128x12x64"]),
    ("Einsum", 12, {"equation": "bhij,bjhd->bihd"}, ["8x12x128x128 8x128x12x64"]),
    ("Attention", 23, {}, ["1x12x512x64 1x12x512x64 1x12x512x64"]),
    ("Attention", 23, {"is_causal": 1}, ["1x12x512x64 1x12x512x64 1x12x512x64"]),
    ("Attention", 23, {"q_num_heads": 12, "kv_num_heads": 12}, ["2x256x768 2x256x768 2x256x768"]),
    ("Attention", 23, {"is_causal": 1}, ["1x32x256x128 1x8x256x128 1x8x256x128"]),
    ("RotaryEmbedding", 23, {}, ["1x32x512x128 1x512x64 1x512x64"]),
    ("RotaryEmbedding", 23, {"interleaved": 1}, ["1x32x512x128 1x512x64 1x512x64"]),
    ("LSTM", 22, {"hidden_size": 256}, ["128x8x256 1x1024x256* 1x1024x256* 1x2048*"]),
    ("LSTM", 22, {"hidden_size": 128}, ["1x1x128 1x512x128* 1x512x128* 1x1024*"]),
    ("GRU", 22, {"hidden_size": 256, "linear_before_reset": 1}, ["128x8x256 1x768x256* 1x768x256* 1x1536*"]),
    ("RNN", 22, {"hidden_size": 256}, ["128x8x256 1x256x256* 1x256x256* 1x512*"]),
    ("Softmax LogSoftmax Hardmax", 13, {}, ["8x12x128x128", "128x32000"]),
    ("Softmax", 13, {}, ["200000x2", "20000x10"]),
    ("Softmax", 13, {"axis": 1}, ["1x21x256x256"]),
    ("Relu LeakyRelu Elu Selu Sigmoid HardSigmoid HardSwish Tanh Gelu Mish Softplus Erf Exp Neg Round Sin", 22, {}, ["1x64x112x112"]),
    ("Relu Sigmoid Exp", 22, {}, ["f2:1x64x112x112", "bfloat16:1x64x112x112"]),
    ("Gelu", 20, {"approximate": "tanh"}, ["1x64x112x112"]),
    ("Sqrt Log Reciprocal", 22, {}, ["+1x64x112x112"]),
    ("Add Sub Mul Div Max Less", 22, {}, ["1x64x112x112 1x64x112x112"]),
    ("Add Mul", 22, {}, ["f2:1x64x112x112 f2:1x64x112x112", "8x512x768 768*", "1x64x112x112 1x64x1x1*"]),
    ("Add Equal", 22, {}, ["i8<9:1000000 i8<9:1000000"]),
    ("Clip", 13, {}, ["1x64x112x112 0.0 6.0"]),
    ("Where", 16, {}, ["b1:8x1x128x128 8x12x128x128 -10000.0"]),
    ("Resize", 19, {"mode": "nearest"}, ["1x128x40x40 - [1.0,1.0,2.0,2.0]"]),
    ("Resize", 19, {"mode": "linear"}, ["1x64x64x64 - [1.0,1.0,2.0,2.0]", "1x3x480x640 - [1.0,1.0,0.5,0.5]"]),
    ("Resize", 19, {"mode": "cubic"}, ["1x3x128x128 - [1.0,1.0,2.0,2.0]"]),
    ("GridSample", 20, {}, ["1x4x64x64 1x64x64x2"]),
    ("RoiAlign", 16, {"output_height": 7, "output_width": 7}, ["1x256x50x50 +100x4 i8=0:100"]),
    ("Upsample", 9, {"mode": "nearest"}, ["1x128x40x40 [1.0,1.0,2.0,2.0]"]),
    ("Gather", 13, {}, ["32000x768* i8<32000:8x512"]),
    ("GatherElements", 13, {"axis": 1}, ["512x4096 i8<4096:512x1024"]),
    ("GatherND", 13, {}, ["8x128x768 i8<8:4096x2"]),
    ("ScatterElements", 18, {"axis": 1, "reduction": "add"}, ["512x4096 i8<4096:512x1024 512x1024"]),
    ("ScatterND", 18, {}, ["4096x768 i8<4096:512x1 512x768"]),
    ("TopK", 11, {}, ["512x4096 [5]", "1x1000000 [100]"]),
    ("TopK", 11, {}, ["1x8400 [300]"]),
    ("TopK", 11, {"axis": 1}, ["1x8400x80 [10]"]),
    ("NonMaxSuppression", 11, {}, ["+1x1000x4 +1x4x1000 [100] [0.5] [0.7]"]),
    ("NonMaxSuppression", 11, {}, ["+1x5000x4 +1x80x5000 [100] [0.5] [0.6]"]),
    ("ReduceMean ReduceMax ReduceL1 ReduceL2 ReduceLogSumExp ReduceProd ReduceSumSquare", 18, {}, ["8x512x768 [-1]"]),
    ("ReduceSum", 13, {}, ["8x512x768 [1]", "8x256x28x28 [2,3]"]),
    ("ReduceMean", 18, {}, ["f2:8x512x768 [-1]", "8x256x28x28 [0,2,3]", "8x512x768 [0,1,2]"]),
    ("ArgMax", 13, {"axis": 1}, ["128x32000", "1x21x256x256"]),
    ("CumSum", 14, {}, ["512x4096 i4=1:*"]),
    ("Pad", 21, {}, ["1x64x112x112 [0,0,1,1,0,0,1,1]"]),
    ("Pad", 21, {"mode": "reflect"}, ["1x64x112x112 [0,0,3,3,0,0,3,3]"]),
    ("Slice", 13, {}, ["1x3x640x640 [0,0] [640,640] [2,3] [2,2]", "8x512x768 [0] [256] [2]"]),
    ("Concat", 13, {"axis": 1}, ["1x64x80x80 1x64x80x80 1x128x80x80"]),
    ("Transpose", 21, {"perm": [0, 2, 3, 1]}, ["8x64x56x56"]),
    ("Transpose", 21, {"perm": [0, 2, 1, 3]}, ["8x128x12x64"]),
    ("Expand", 13, {}, ["8x1x1x128 [8,12,128,128]"]),
    ("Tile", 13, {}, ["1x128x768 [8,1,1]"]),
    ("Range", 11, {}, ["i8=0: i8=1000000: i8=1:"]),
    ("OneHot", 11, {}, ["i8<1000:512 i8=1000:* [0.0,1.0]"]),
    ("Trilu", 14, {"upper": 0}, ["8x512x512"]),
    *(("Cast", 21, {"to": to}, ["1000000"]) for to in (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64)),
    ("Cast", 21, {"to": TensorProto.FLOAT}, ["f2:1000000", "u1:1000000", "i8:1000000"]),
    ("QuantizeLinear", 21, {"axis": 0}, ["1x64x112x112 0.02 u1=128:*", "768x3072 +768* i1=0:768*"]),
    ("DequantizeLinear", 21, {"axis": 0}, ["u1:1x64x112x112 0.02 u1=128:*", "i1:768x3072 +768* i1=0:768*"]),
    ("DynamicQuantizeLinear", 11, {}, ["8x128x768"]),
]
"""Operators, opset, attributes, and inputs of one or several cases, see :func:`value_of`."""


@dataclass
class Case:
    """A model with what it is fed, and then what came out: the least seconds a call and all times by side, and why a side has none."""

    operator: str
    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def ratio(self, side: str) -> float:
        """Ours / that side; 0 where one does not run."""
        return self.seconds["ours"] / self.seconds[side] if {"ours", side} <= self.seconds.keys() else 0.0


def value_of(text: str, rng: np.random.Generator) -> tuple[Any, bool]:
    """A drawn input and whether it is an initializer.

    ``1x64`` is a shape of normal float32 values, ``+64`` of positive ones, ``f2:64`` of NumPy's type ``f2``, ``i8<9:64`` of integers
    below 9, ``u1=128:`` a scalar of that value. A ``*`` at the end makes an initializer; so are ``0.5`` and lists.
    """
    if "." in text or text.startswith("["):
        return np.array(json.loads(text), np.float32 if "." in text else np.int64), True
    ((sign, name, relation, number, sizes, fixed),) = re.findall(r"^(\+?)(?:([a-z]+\d*)(?:([<=])(\d+))?:)?([\dx]*)(\*?)$", text)
    dtype, shape = np.dtype(name or "f4"), [int(size) for size in sizes.split("x") if size]
    if relation == "=":
        value = np.full(shape, int(number))
    elif dtype.kind in "iub":
        value = rng.integers(0, int(number or 2), shape) if number or name == "b1" else rng.integers(-128, 128, shape)
    else:
        value = rng.uniform(0.1, 1, shape) if sign else rng.normal(0, 0.05 if fixed else 1, shape)
    return value.astype(dtype), bool(fixed)


NAMED: dict[str, tuple[str, int, dict[str, Any], str]] = {
    " ".join([op_type, inputs, *(f"{name}={value}" for name, value in attributes.items())]): (op_type, opset, attributes, inputs)
    for op_types, opset, attributes, cases in REALISTIC
    for op_type, inputs in itertools.product(op_types.split(), cases)
}
"""The cases one by one."""


def realistic(operators: list[str]) -> Iterator[Case]:
    """The cases of the table, of all operators or of some."""
    for op_type, opset, attributes, inputs in NAMED.values():
        if not operators or op_type in operators:
            yield one_node(op_type, opset, attributes, inputs)


def one_node(op_type: str, opset: int, attributes: dict[str, Any], inputs: str) -> Case:
    """A case of the table."""
    rng, names = np.random.default_rng(0), ["" if text == "-" else f"i{place}" for place, text in enumerate(inputs.split())]
    values = {name: value_of(text, rng) for name, text in zip(names, inputs.split(), strict=True) if name}
    fed = {name: value for name, (value, fixed) in values.items() if not fixed}
    outputs = [f"o{place}" for place in range(onnx.defs.get_schema(op_type, opset).min_output or 1)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, outputs, **attributes)],
        "case",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in fed.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, (value, fixed) in values.items() if fixed],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11 if opset > 22 else 10)
    return Case(op_type, " ".join([inputs, *(f"{name}={value}" for name, value in attributes.items())]), model, fed)


def suite(operators: list[str]) -> Iterator[Case]:
    """ONNX's own node cases, of all operators or of some, each with its first set of inputs."""
    for case in collect_testcases(None):
        assert case.model is not None and case.data_sets is not None
        nodes = case.model.graph.node
        if not operators or {node.op_type for node in nodes} & set(operators):
            inputs = [numbaops.to_array(value) if isinstance(value, onnx.TensorProto) else value for value in case.data_sets[0][0]]
            arrays = [value if value is None or isinstance(value, list) else np.asarray(value) for value in inputs]
            fed = dict(zip([value.name for value in case.model.graph.input], arrays, strict=True))
            yield Case(nodes[0].op_type if len(nodes) == 1 else f"{len(nodes)} nodes", case.name.removeprefix("test_"), case.model, fed)


def measure(case: Case, seconds: float, pause: float) -> None:
    """Fill in what came out: the smallest of several times of each side that can run the case.

    Args:
        case: what to measure.
        seconds: for each side.
        pause: seconds before a side's turn.
    """
    thunks, answers = dict[str, Thunk](), dict[str, Any]()
    for side, load in SIDES.items():
        times: list[float] = []
        try:
            run = functools.partial(load(case.model).run, None, case.feeds)
            while len(times) < (2 if side == "ours" else 1) or (len(times) < WARM_UP and sum(times[1:]) < 2):  # the first may compile
                start = time.perf_counter()
                answers[side] = run()
                times.append(time.perf_counter() - start)
        except Exception as error:
            case.reasons[side] = f"{type(error).__name__}: {error}"[:160]
            continue
        case.seconds[side], case.times[side] = min(times), times
        if min(times) < 0.5:
            thunks[side] = run
    for side, times in zip(thunks, in_turn(list(thunks.values()), seconds, rounds=3, sample=2e-4, pause=pause), strict=True):
        case.seconds[side], case.times[side] = min(times), times
    for side in ("reference", "runtime"):
        if {"ours", side} <= answers.keys() and (distance := relative_error(answers["ours"], answers[side])) > TOLERANCE:
            case.reasons[f"answer of {side}"] = f"differs by {distance:.1e} of its largest value"


def main(arguments: list[str] | None = None) -> None:
    """Measure the cases and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node_cases", description="Operators beside onnx.reference and ONNX Runtime")
    parser.add_argument("operators", nargs="*", metavar="OP", help="only these operators")
    parser.add_argument("--suite", action="store_true", help="only ONNX's own cases")
    parser.add_argument("--realistic", action="store_true", help="only the table of cases as in real networks")
    parser.add_argument("--slower-only", action="store_true", help="show only cases that take longer than onnx.reference")
    parser.add_argument("--verbose", action="store_true", help="say why a side has no time, and where answers differ")
    parser.add_argument("--json", type=writable, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    set_threads(THREADS)

    cases = []
    # ONNX's own cases are too small for several threads
    for source, seconds, pause, other in ((realistic, 0.4, PAUSE, options.suite), (suite, 0.03, 0.003, options.realistic)):
        for case in source(options.operators) if not other else ():
            measure(case, seconds, pause)
            cases.append(case)
    cases.sort(key=lambda case: -case.ratio("reference"))
    print(f"{'operator':26} {'case':66}{'ours us':>12}{'reference us':>12}{'ORT us':>12}{'/ref':>10}{'/ORT':>10}")
    for case in cases:
        if not options.slower_only or case.ratio("reference") > 1:
            cells = [f"{case.seconds[side] * 1e6:12.1f}" if side in case.seconds else f"{'-':>12}" for side in SIDES]
            cells += [f"{case.ratio(side) or '-':>10.3}" for side in ("reference", "runtime")]
            cells += [f"\n    {side}: {reason}" for side, reason in case.reasons.items() if options.verbose]
            print(f"{case.operator:26} {case.name:66.66}{''.join(cells)}")
    for side, name in (("reference", "onnx.reference"), ("runtime", "ONNX Runtime")):
        if ratios := [case.ratio(side) for case in cases if case.ratio(side)]:
            slower = f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} slower"
            print(f"ours / {name}: geometric mean {geometric_mean(ratios):.3f}, {slower}")
    if options.json is not None:
        rows = [{"operator": c.operator, "case": c.name, "seconds": c.seconds, "reasons": c.reasons} for c in cases]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
