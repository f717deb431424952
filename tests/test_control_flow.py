"""If, Loop, Scan and SequenceMap: literal models with answers worked out by hand, on the fast path and on the one that looks on."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from onnx import GraphProto, ModelProto, parser

from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError
from numbaops.reference import ReferenceEvaluator
from numbaops.tensors import from_array

pytestmark = pytest.mark.usefixtures("stage")


def model(text: str, opset: int = 17) -> ModelProto:
    """The model of a graph, and functions of domain ``f``, in ONNX's textual syntax; an output named ``_`` is one that nobody wants."""
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "f" : 1]>\n{text}')
    forget_outputs(made.graph)
    return made


def forget_outputs(graph: GraphProto) -> None:
    for node in graph.node:
        for position, name in enumerate(node.output):
            if name == "_":
                node.output[position] = ""
        for attribute in node.attribute:
            if attribute.HasField("g"):
                forget_outputs(attribute.g)


def f(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def i(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def scalar(value: Any) -> np.ndarray:
    return np.array(value, np.float32 if isinstance(value, float) else None)


class Case(NamedTuple):
    """A graph, what is fed, and what comes out."""

    name: str
    text: str
    feeds: dict[str, Any]
    wanted: list[Any]
    opset: int = 17


YES, NO, X = np.array(True), np.array(False), f(1, -2)

CHOICE = """g (float[2] x, bool c) => (y) {
    y = If (c) <then_branch = t () => (float[2] a) { a = Add(x, x) }, else_branch = e () => (float[2] b) { b = Neg(x) }>
}"""

NESTED_IF = """g (float[2] x, bool c, bool d) => (y) {
    w = Add(x, x)
    y = If (c) <
        then_branch = t () => (float[2] a) {
            v = Add(w, x)
            a = If (d) <
                then_branch = tt () => (float[2] aa) { k = Add(v, w)  aa = Add(k, x) },
                else_branch = te () => (float[2] v) { }
            >
        },
        else_branch = e () => (float[2] w) { }
    >
}"""

OUTER_VALUES = """g (float[2] x, bool c) => (y, z) <float[2] k = {7, 8}> {
    y, z = If (c) <then_branch = t () => (float[2] x, float[2] k) { }, else_branch = e () => (float[2] k, float[2] x) { }>
}"""

SHAPES = """g (float[2] x, bool c) => (y) {
    y = If (c) <then_branch = t () => (float[4] a) { a = Concat <axis = 0> (x, x) }, else_branch = e () => (float[2] x) { }>
}"""

SEQUENCES = """g (float[2] x, bool c) => (y) {
    y = If (c) <
        then_branch = t () => (seq(float[2]) a) { w = Neg(x)  a = SequenceConstruct(x, w) },
        else_branch = e () => (seq(float[2]) b) { b = SequenceEmpty() }
    >
}"""

OPTIONALS = """g (float[2] x, bool c) => (y, h) {
    y = If (c) <
        then_branch = t () => (optional(float[2]) a) { a = Optional(x) },
        else_branch = e () => (optional(float[2]) b) { b = Optional <type = float[2]> () }
    >
    h = OptionalHasElement(y)
}"""

HIDDEN = """g (float[2] x, bool c) => (y) {
    y = If (c) <
        then_branch = t () => (float[2] a) <float[2] x = {10, 20}> { a = Neg(x) },
        else_branch = e () => (float[2] b) { b = Neg(x) }
    >
}"""

UNWANTED = """g (float[2] x, bool c) => (y) {
    _, y = If (c) <
        then_branch = t () => (float[2] a, float[2] b) { a = Add(x, x)  b = Neg(x) },
        else_branch = e () => (float[2] x, float[2] x) { }
    >
}"""

DECLARED = """g (float[2] x, bool c) => (y) {
    w = Add(x, x)
    y = If (c) <then_branch = t (float[2] x) => (float[2] a) { a = Sub(x, w) }, else_branch = e () => (float[2] w) { }>
}"""

IFS = [
    Case("then", CHOICE, {"x": X, "c": YES}, [f(2, -4)]),
    Case("else", CHOICE, {"x": X, "c": NO}, [f(-1, 2)]),
    Case("cond-of-shape-1", CHOICE, {"x": X, "c": np.array([True])}, [f(2, -4)]),
    Case("cond-of-shape-1-1", CHOICE, {"x": X, "c": np.array([[False]])}, [f(-1, 2)]),
    Case("opset-1", CHOICE.replace("Add", "Mul").replace("Mul(x, x)", "Abs(x)"), {"x": X, "c": YES}, [f(1, 2)], 6),
    Case("nested-then-then", NESTED_IF, {"x": X, "c": YES, "d": YES}, [f(6, -12)]),
    Case("nested-then-else", NESTED_IF, {"x": X, "c": YES, "d": NO}, [f(3, -6)]),
    Case("nested-else", NESTED_IF, {"x": X, "c": NO, "d": YES}, [f(2, -4)]),
    Case("outer-values-then", OUTER_VALUES, {"x": X, "c": YES}, [X, f(7, 8)]),
    Case("outer-values-else", OUTER_VALUES, {"x": X, "c": NO}, [f(7, 8), X]),
    Case("longer", SHAPES, {"x": X, "c": YES}, [f(1, -2, 1, -2)]),
    Case("shorter", SHAPES, {"x": X, "c": NO}, [X]),
    Case("sequence", SEQUENCES, {"x": X, "c": YES}, [[X, f(-1, 2)]]),
    Case("empty-sequence", SEQUENCES, {"x": X, "c": NO}, [[]]),
    Case("optional", OPTIONALS, {"x": X, "c": YES}, [X, YES]),
    Case("empty-optional", OPTIONALS, {"x": X, "c": NO}, [None, NO]),
    Case("initializer-of-a-branch-hides-the-outer-value", HIDDEN, {"x": X, "c": YES}, [f(-10, -20)]),
    Case("the-other-branch-sees-the-outer-value", HIDDEN, {"x": X, "c": NO}, [f(-1, 2)]),
    Case("unwanted-output-then", UNWANTED, {"x": X, "c": YES}, [f(-1, 2)]),
    Case("unwanted-output-else", UNWANTED, {"x": X, "c": NO}, [X]),
    Case("branch-that-declares-what-it-captures", DECLARED, {"x": X, "c": YES}, [f(-1, 2)]),
]

# doubles a state in each trip; as scan outputs the number of the trip, and the state before it
DOUBLES = """g (float[2] x, int64 M, bool c) => (y, n, s) {
    y, n, s = Loop (%s, x) <body = b (int64 i, bool go, float[2] a) => (bool on, float[2] a2, int64 n, float[2] s) {
        on = Identity(go)  a2 = Add(a, a)  n = Identity(i)  s = Identity(a)
    }>
}"""

# as long as the number of the trip is below 2
WHILE = """g (float[2] x, int64 M, bool c) => (y, s) {
    y, s = Loop (%s, x) <body = b (int64 i, bool go, float[2] a) => (bool on, float[2] a2, float s) {
        k = Constant <value_int = 2> ()  on = Less(i, k)  a2 = Add(a, a)  s = ReduceSum <keepdims = 0> (a2)
    }>
}"""

NOTHING = """g (int64 M) => (s) {
    s = Loop (M, ) <body = b (int64 i, bool go) => (bool go, %s s) { s = %s }>
}"""

GROWS = """g (float[n] x, int64 M) => (y, s) {
    y, s = Loop (M, , x) <body = b (int64 i, bool go, float[n] a) => (bool go, float[m] a2, int64 s) {
        a2 = Concat <axis = 0> (a, x)  s = Size(a)
    }>
}"""

SWAPS = """g (float x, float y, int64 M) => (p, q, s) {
    p, q, s = Loop (M, , x, y) <body = b (int64 i, bool go, float a, float b) => (bool go, float b, float t, float t) {
        t = Add(a, b)
    }>
}"""

SEQUENCE_STATE = """g (float[2] x, int64 M) => (y, last) {
    empty = SequenceEmpty()
    y, _, last = Loop (M, , empty, x) <
        body = b (int64 i, bool go, seq(float[2]) a, float[2] v) => (bool go, seq(float[2]) a2, float[2] v2, float[2] v) {
            a2 = SequenceInsert(a, v)  v2 = Add(v, v)
        }>
}"""

OPTIONAL_STATE = """g (optional(float[2]) o, float[2] x, int64 M) => (y) {
    y = Loop (M, , o) <body = b (int64 i, bool go, optional(float[2]) a) => (bool go, optional(float[2]) a2) {
        h = OptionalHasElement(a)
        r = If (h) <
            then_branch = t () => (float[2] d) { e = OptionalGetElement(a)  d = Add(e, e) },
            else_branch = e () => (float[2] x) { }
        >
        a2 = Optional(r)
    }>
}"""

HIDES = """g (float[2] x, int64 M) => (y) {
    y = Loop (M, , x) <body = b (int64 i, bool go, float[2] a) => (bool go, float[2] a2) <float[2] x = {10, 20}> {
        a2 = Add(a, x)
    }>
}"""

TWO_LEVELS = """g (float[2] x, int64 M, int64 N) => (y, z) <float[2] k = {100, 200}> {
    w = Neg(x)
    y, z = Loop (M, , x) <body = outer (int64 i, bool go, float[2] a) => (bool go, float[2] a2, float[3,2] z) {
        v = Add(a, a)
        a2, z = Loop (N, , a) <body = inner (int64 j, bool gone, float[2] b) => (bool gone, float[2] b2, float[2] r) {
            b1 = Add(b, w)
            b2 = Add(b1, k)
            r = Sub(v, x)
        }>
    }>
}"""

IF_IN_LOOP = """g (int64 M) => (s) <int64 two = {2}> {
    s = Loop (M, ) <body = b (int64 i, bool go) => (bool go, int64 s) {
        odd = Mod(i, two)
        c = Cast <to = 9> (odd)
        s = If (c) <
            then_branch = t () => (int64 p) { p = Mul(i, i) },
            else_branch = e () => (int64 i) { }
        >
    }>
}"""

SHAPE_1 = """g (int64[1] M, bool[1] c) => (n, s) {
    n, s = Loop (M, c, M) <body = b (int64[1] i, bool[1] go, int64[1] a) => (bool[1] go, int64[1] a2, int64[1] i2) {
        a2 = Add(a, i)  i2 = Identity(i)
    }>
}"""

LOOP_UNWANTED = """g (float[2] x, int64 M) => (s) {
    _, _, s = Loop (M, , x, x) <
        body = b (int64 i, bool go, float[2] a, float[2] b) => (bool go, float[2] c, float[2] b, float[2] c, float[2] a) {
        c = Add(a, b)
    }>
}"""

SAME_TWICE = """g (float[2] x, int64 M) => (p, q, x2) {
    p, q = Loop (M, , x) <body = b (int64 i, bool go, float[2] a) => (bool go, float[2] a, float[2] a) { }>
    x2 = Add(x, p)
}"""

LOOP_FEEDS = {"x": X, "M": np.array(3), "c": YES}
NO_TRIP = {**LOOP_FEEDS, "M": np.array(0)}
THREE = [f(8, -16), i(0, 1, 2), np.stack([X, f(2, -4), f(4, -8)])]
NONE_AT_ALL = [X, i(), np.zeros((0, 2), np.float32)]
STOPS = [f(8, -16), f(-2, -4, -8)]

LOOPS = [
    Case("limit", DOUBLES % "M, ", LOOP_FEEDS, THREE),
    Case("limit-and-condition", DOUBLES % "M, c", LOOP_FEEDS, THREE),
    Case("limit-of-shape-1", DOUBLES % "M, c", {**LOOP_FEEDS, "M": i(3), "c": np.array([True])}, THREE),
    *[Case(f"limit-opset-{opset}", DOUBLES % "M, ", LOOP_FEEDS, THREE, opset) for opset in (7, 11, 13, 16, 19, 21)],
    Case("no-trip", DOUBLES % "M, ", NO_TRIP, NONE_AT_ALL),
    Case("fewer-trips-than-none", DOUBLES % "M, c", {**LOOP_FEEDS, "M": np.array(-1)}, NONE_AT_ALL),
    Case("condition-false-at-first", DOUBLES % "M, c", {**LOOP_FEEDS, "c": NO}, NONE_AT_ALL),
    Case("condition-false-at-first-and-no-limit", DOUBLES % ", c", {**LOOP_FEEDS, "c": NO}, NONE_AT_ALL),
    Case("condition-only", WHILE % ", c", LOOP_FEEDS, STOPS),
    Case("condition-before-limit", WHILE % "M, c", {**LOOP_FEEDS, "M": np.array(9)}, STOPS),
    Case("limit-before-condition", WHILE % "M, c", {**LOOP_FEEDS, "M": np.array(2)}, [f(4, -8), f(-2, -4)]),
    Case("neither", WHILE % ", ", LOOP_FEEDS, STOPS),
    Case("condition-of-body-only", WHILE % "M, ", {**LOOP_FEEDS, "M": np.array(9)}, STOPS),
    Case(
        "no-trip-unknown-dims",
        NOTHING % ("float[n,3]", "Constant <value = float[1,3] {1, 2, 3}> ()"),
        NO_TRIP,
        [np.zeros((0, 0, 3), np.float32)],
    ),
    Case("no-trip-scalars", NOTHING % ("int64", "Identity(i)"), NO_TRIP, [i()]),
    Case("no-trip-bool", NOTHING % ("bool", "Identity(go)"), NO_TRIP, [np.zeros(0, bool)]),
    Case("no-trip-unknown-shape", NOTHING % ("float16[]", "Cast <to = 10> (i)"), NO_TRIP, [np.zeros(0, np.float16)]),
    Case("no-trip-undeclared-type", NOTHING % ("", "Cast <to = 1> (i)"), NO_TRIP, [np.zeros(0, np.float32)]),
    Case(
        "no-trip-bfloat16",
        NOTHING % ("bfloat16[2]", "Constant <value = bfloat16[2] {1, 2}> ()"),
        NO_TRIP,
        [np.zeros((0, 2), ml_dtypes.bfloat16)],
    ),
    Case("no-trip-strings", NOTHING % ("string[2]", 'Constant <value = string[2] {"a", "b"}> ()'), NO_TRIP, [np.zeros((0, 2), object)]),
    Case("strings", NOTHING % ("string", 'Constant <value_string = "a"> ()'), {"M": np.array(2)}, [np.array(["a", "a"], object)]),
    Case("matrices", NOTHING % ("int64[1,2]", "Constant <value = int64[1,2] {1, 2}> ()"), {"M": np.array(2)}, [i([[1, 2]], [[1, 2]])]),
    Case("state-that-grows", GROWS, LOOP_FEEDS, [f(1, -2, 1, -2, 1, -2, 1, -2), i(2, 4, 6)]),
    Case("state-that-could-grow", GROWS, NO_TRIP, [X, i()]),
    # 1, 2 -> 2, 3 -> 3, 5 -> 5, 8
    Case("states-change-places", SWAPS, {"x": scalar(1.0), "y": scalar(2.0), "M": np.array(3)}, [scalar(5.0), scalar(8.0), f(3, 5, 8)]),
    Case("sequence-state", SEQUENCE_STATE, LOOP_FEEDS, [[X, f(2, -4), f(4, -8)], np.stack([X, f(2, -4), f(4, -8)])]),
    Case("sequence-state-without-a-trip", SEQUENCE_STATE, NO_TRIP, [[], np.zeros((0, 2), np.float32)]),
    Case("absent-optional-state", OPTIONAL_STATE, {**LOOP_FEEDS, "o": None}, [f(4, -8)]),
    Case("optional-state", OPTIONAL_STATE, {**LOOP_FEEDS, "o": f(1, 1)}, [f(8, 8)]),
    Case("absent-optional-state-without-a-trip", OPTIONAL_STATE, {**NO_TRIP, "o": None}, [None]),
    Case("initializer-of-the-body-hides-the-outer-value", HIDES, LOOP_FEEDS, [f(31, 58)]),
    # w = (-1, 2), so an inner trip adds (99, 202); the outer state is (1, -2) and then (1 + 3 * 99, -2 + 3 * 202)
    Case(
        "inner-body-captures-from-both-levels",
        TWO_LEVELS,
        {"x": X, "M": np.array(2), "N": np.array(3)},
        [f(595, 1210), np.stack([np.tile(f(1, -2), (3, 1)), np.tile(f(595, 1210), (3, 1))])],
    ),
    Case("if-in-loop", IF_IN_LOOP, {"M": np.array(5)}, [i(0, 1, 2, 9, 4)]),
    Case("everything-of-shape-1", SHAPE_1, {"M": i(3), "c": np.array([True])}, [i(6), i([0], [1], [2])]),
    # (a, b): (1, -2), then (a + b, b) = (2, -4) ...: scan outputs are a + b, and a before
    Case("unwanted-outputs", LOOP_UNWANTED, {"x": X, "M": np.array(2)}, [np.stack([f(2, -4), f(3, -6)])]),
    Case("state-that-stays", SAME_TWICE, {"x": X, "M": np.array(2)}, [X, np.stack([X, X]), f(2, -4)]),
]

# running sums, and twice each element
SCAN = """g (%s s0, %s x) => (s, y, z) {
    s, y, z = Scan <num_scan_inputs = 1 %s, body = b (%s a, %s v) => (%s a2, %s o, %s p) {
        a2 = Add(a, v)  o = Identity(a2)  p = Add(v, v)
    }> (%s s0, x)
}"""


def scan(attributes: str = "", state: str = "float", item: str = "float", values: str = "float[3]", leading: str = "") -> str:
    more = f", {attributes}" if attributes else ""
    return SCAN % (state, values, more, state, item, state, state, item, leading)


BATCH = """g (%s float[2] s0, float[2,3] x) => (s, y, z) {
    s, y, z = Scan <num_scan_inputs = 1 %s, body = b (float a, float v) => (float a2, float o, float p) {
        a2 = Add(a, v)  o = Identity(a2)  p = Add(v, v)
    }> (%s, s0, x)
}"""

TWO_INPUTS = """g (float[2,3] x, float[3,2] w) => (d, e) {
    d, e = Scan <num_scan_inputs = 2, %s body = b (float[2] p, float[2] q) => (float[2] d, float[2] e) {
        d = Sub(p, q)  e = Identity(p)
    }> (x, w)
}"""

SCAN_CAPTURES = """g (float s0, float[3] x) => (s) <float k = {100}> {
    w = Neg(k)
    s = Scan <num_scan_inputs = 1, body = b (float a, float v) => (float a2) { t = Mul(v, k)  u = Add(t, w)  a2 = Add(a, u) }> (s0, x)
}"""

PAIRS = f([1, 2, 3], [4, 5, 6])
W = f([1, 1], [2, 2], [3, 3])
S0, ONE_TO_THREE = scalar(1.0), f(1, 2, 3)
BATCH_FEEDS = {"s0": f(0, 10), "x": PAIRS}
DIFFERENCES = f([0, 3], [0, 3], [0, 3])
COLUMNS = f([1, 4], [2, 5], [3, 6])

SCANS = [
    *[
        Case(f"forward-opset-{opset}", scan(), {"s0": S0, "x": ONE_TO_THREE}, [scalar(7.0), f(2, 4, 7), f(2, 4, 6)], opset)
        for opset in (9, 11, 16, 19, 21)
    ],
    Case("backward", scan("scan_input_directions = [1]"), {"s0": S0, "x": ONE_TO_THREE}, [scalar(7.0), f(4, 6, 7), f(6, 4, 2)]),
    Case(
        "outputs-backward",
        scan("scan_output_directions = [1, 0]"),
        {"s0": S0, "x": ONE_TO_THREE},
        [scalar(7.0), f(7, 4, 2), f(2, 4, 6)],
    ),
    Case(
        "rows-of-axis-1",
        scan("scan_input_axes = [1], scan_output_axes = [1, 0]", "float[2]", "float[2]", "float[2,3]"),
        {"s0": f(0, 0), "x": PAIRS},
        [f(6, 15), f([1, 3, 6], [4, 9, 15]), f([2, 8], [4, 10], [6, 12])],
    ),
    Case(
        "negative-axes-and-both-backward",
        scan(
            "scan_input_axes = [-1], scan_output_axes = [-1, -2], scan_input_directions = [1], scan_output_directions = [1, 1]",
            "float[2]",
            "float[2]",
            "float[2,3]",
        ),
        {"s0": f(0, 0), "x": PAIRS},
        [f(6, 15), f([6, 5, 3], [15, 11, 6]), f([2, 8], [4, 10], [6, 12])],
    ),
    Case("no-element", scan(), {"s0": S0, "x": f()}, [S0, f(), f()]),
    Case(
        "no-row-of-axis-1",
        scan("scan_input_axes = [1], scan_output_axes = [1, 0]", "float[2]", "float[2]", "float[2,n]"),
        {"s0": f(0, 0), "x": np.zeros((2, 0), np.float32)},
        [f(0, 0), np.zeros((2, 0), np.float32), np.zeros((0, 2), np.float32)],
    ),
    Case("two-inputs", TWO_INPUTS % "scan_input_axes = [1, 0],", {"x": PAIRS, "w": W}, [DIFFERENCES, COLUMNS]),
    Case(
        "two-inputs-in-two-directions",
        TWO_INPUTS % "scan_input_axes = [1, 0], scan_input_directions = [1, 0],",
        {"x": PAIRS, "w": W},
        [f([2, 5], [0, 3], [-2, 1]), f([3, 6], [2, 5], [1, 4])],
    ),
    # 100 (1 + 2 + 3) - 3 * 100
    Case("captures", SCAN_CAPTURES, {"s0": S0, "x": ONE_TO_THREE}, [scalar(301.0)]),
    Case("batch", BATCH % ("", "", ""), BATCH_FEEDS, [f(6, 25), f([1, 3, 6], [14, 19, 25]), f([2, 4, 6], [8, 10, 12])], 8),
    Case(
        "batch-with-lengths",
        BATCH % ("int64[2] L,", "", "L"),
        {**BATCH_FEEDS, "L": i(2, 3)},
        [f(3, 25), f([1, 3, 0], [14, 19, 25]), f([2, 4, 0], [8, 10, 12])],
        8,
    ),
    Case(
        "batch-with-a-length-of-0",
        BATCH % ("int64[2] L,", "", "L"),
        {**BATCH_FEEDS, "L": i(0, 1)},
        [f(0, 14), f([0, 0, 0], [14, 0, 0]), f([0, 0, 0], [8, 0, 0])],
        8,
    ),
    # from the end of each item's own length
    Case(
        "batch-backward-with-lengths",
        BATCH % ("int64[2] L,", ", directions = [1]", "L"),
        {**BATCH_FEEDS, "L": i(2, 3)},
        [f(3, 25), f([2, 3, 0], [16, 21, 25]), f([4, 2, 0], [12, 10, 8])],
        8,
    ),
    Case(
        "batch-of-none",
        BATCH % ("", "", ""),
        {"s0": f(), "x": np.zeros((0, 3), np.float32)},
        [f(), np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)],
        8,
    ),
]

MAP = """g (seq(float[n]) s, float[1] k, seq(float[1]) t) => (y, z) <float[1] w = {100}> {
    y, z = SequenceMap (s, k, t) <body = b (float[n] a, float[1] p, float[1] q) => (float[n] y, int64 z) {
        m = Mul(a, p)  n = Add(m, q)  y = Add(n, w)  z = Size(a)
    }>
}"""

MAPS = [
    Case(
        "tensor-and-sequence",
        MAP,
        {"s": [f(1, 2), f(3)], "k": f(10), "t": [f(1), f(2)]},
        [[f(111, 121), f(132)], [np.array(2), np.array(1)]],
    ),
    Case("empty", MAP, {"s": [], "k": f(10), "t": []}, [[], []]),
]

ADDS_K = """g (float[2] x, bool c, int64 M) => (y, z) {
    y = f.F <k = 3> (x, c, M)
    z = f.F (x, c, M)
}
<domain: "f", opset_import: ["" : 17]>
F <k: int = 5> (x, c, M) => (y) {
    v = Neg(x)
    y = If (c) <
        then_branch = t () => (float[2] r) {
            r = Loop (M, , x) <body = b (int64 i, bool go, float[2] a) => (bool go, float[2] a2) {
                n = Constant <value_int: int = @k> ()
                n2 = Cast <to = 1> (n)
                a2 = Add(a, n2)
            }>
        },
        else_branch = e () => (float[2] r2) { n = Constant <value_int: int = @k> ()  n2 = Cast <to = 1> (n)  r2 = Mul(v, n2) }
    >
}"""

OWN_NAMES = """g (float[2] x, bool c) => (y) {
    hidden = Neg(x)
    y = f.F (hidden, c)
}
<domain: "f", opset_import: ["" : 17]>
F (a, c) => (y) {
    x = Add(a, a)
    y = If (c) <then_branch = t () => (float[2] r) { r = Add(x, a) }, else_branch = e () => (float[2] x) { }>
}"""

FUNCTIONS = [
    Case("loop-with-a-given-attribute", ADDS_K, {"x": X, "c": YES, "M": np.array(2)}, [f(7, 4), f(11, 8)]),
    Case("branch-with-a-given-attribute", ADDS_K, {"x": X, "c": NO, "M": np.array(2)}, [f(-3, 6), f(-5, 10)]),
    Case("branch-captures-from-the-function", OWN_NAMES, {"x": X, "c": YES}, [f(-3, 6)]),
    Case("branch-returns-a-value-of-the-function", OWN_NAMES, {"x": X, "c": NO}, [f(-2, 4)]),
]

ALL = [("if", IFS), ("loop", LOOPS), ("scan", SCANS), ("map", MAPS), ("function", FUNCTIONS)]
CASES = [pytest.param(case, id=f"{kind}-{case.name}") for kind, cases in ALL for case in cases]


def assert_same(got: Any, wanted: Any) -> None:
    if wanted is None or isinstance(wanted, list):
        assert type(got) is type(wanted)
        for mine, theirs in zip(got or [], wanted or [], strict=True):
            assert_same(mine, theirs)
        return
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


def feeds_of(case: Case, made: ModelProto) -> dict[str, Any]:
    return {each.name: case.feeds[each.name] for each in made.graph.input}


@pytest.mark.parametrize("case", CASES)
def test_fast_path(case: Case) -> None:
    made = model(case.text, case.opset)
    evaluator = ReferenceEvaluator(made)
    for _ in range(2):  # the second run may be a specialised one
        assert_same(evaluator.run(None, feeds_of(case, made)), case.wanted)


@pytest.mark.parametrize("case", CASES)
def test_slow_path(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    made = model(case.text, case.opset)
    feeds = feeds_of(case, made)
    values = ReferenceEvaluator(made).run(None, feeds, intermediate=True)
    assert_same([values[each.name] for each in made.graph.output], case.wanted)
    assert_same(ReferenceEvaluator(made, verbose=10).run(None, feeds), case.wanted)
    assert made.graph.node[0].op_type in capsys.readouterr().out
    assert_same(ReferenceEvaluator(made, profile=True, fold_budget=0).run(None, feeds), case.wanted)


@pytest.mark.parametrize("case", CASES)
def test_all_inputs_constant(case: Case) -> None:
    """What depends on constants only is computed at load; here that is everything."""
    made = model(case.text, case.opset)
    arrays = {name: value for name, value in feeds_of(case, made).items() if isinstance(value, np.ndarray)}
    for name, value in arrays.items():
        made.graph.initializer.append(from_array(value, name))
    left = [each for each in made.graph.input if each.name not in arrays]
    del made.graph.input[:]
    made.graph.input.extend(left)
    evaluator = ReferenceEvaluator(made)
    for _ in range(2):
        results = evaluator.run(None, {each.name: case.feeds[each.name] for each in left})
        assert_same(results, case.wanted)
        for each in results:
            if isinstance(each, np.ndarray) and each.dtype.kind == "f":
                each[...] = 99  # the caller's own


@pytest.mark.parametrize("case", CASES)
def test_results_are_the_callers(case: Case) -> None:
    made = model(case.text, case.opset)
    evaluator = ReferenceEvaluator(made)
    feeds = feeds_of(case, made)
    fed = list(arrays_in(list(feeds.values())))
    before = [each.copy() for each in fed]
    results = list(arrays_in(evaluator.run(None, feeds)))
    for position, result in enumerate(results):
        assert result.flags.writeable
        assert not any(np.shares_memory(result, other) for other in (*fed, *results[:position]))
        result[...] = result.dtype.type(1) if result.dtype != object else "z"
    for each, was in zip(fed, before, strict=True):
        np.testing.assert_array_equal(each, was)
    assert_same(evaluator.run(None, feeds), case.wanted)


def arrays_in(values: Any) -> Any:
    for each in values:
        if isinstance(each, list):
            yield from arrays_in(each)
        elif isinstance(each, np.ndarray):
            yield each


BAD = [
    Case("cond-of-two-elements", CHOICE, {"x": X, "c": np.array([True, False])}, [r"If-16 \(node 'y'\).*cond has 2 elements"]),
    Case("cond-of-no-element", CHOICE, {"x": X, "c": np.zeros(0, bool)}, ["cond has 0 elements"]),
    Case("M-of-two-elements", DOUBLES % "M, ", {**LOOP_FEEDS, "M": i(1, 2)}, ["Loop-16.*M has 2 elements"]),
    Case(
        "condition-of-two-elements",
        "g (int64 M) => (s) { s = Loop(M, ) <body = b (int64 i, bool go) => (bool two, int64 s) "
        "{ two = Constant <value = bool[2] {1, 1}> ()  s = Identity(i) }> }",
        {"M": np.array(3)},
        ["the condition that body computes has 2 elements"],
    ),
    Case(
        "scan-outputs-of-different-shapes",
        GROWS.replace("s = Size(a)", "s = Shape(a)  n = Neg(a2)").replace("int64 s)", "float[p] n)"),
        LOOP_FEEDS,
        [r"scan output 'n' must be tensors of one type and shape.* float32\[4\], float32\[6\]"],
    ),
    Case(
        "scan-outputs-that-are-sequences",
        SEQUENCE_STATE.replace("float[2] v2, float[2] v)", "float[2] v2, seq(float[2]) a)"),
        LOOP_FEEDS,
        ["scan output 'a' must be tensors"],
    ),
    Case("scan-inputs-of-different-lengths", TWO_INPUTS % "", {"x": PAIRS, "w": W}, [r"lengths \[2, 3\]"]),
    Case(
        "axis-out-of-range",
        TWO_INPUTS % "scan_input_axes = [2, 0],",
        {"x": PAIRS, "w": W},
        ["scan_input_axes has 2; allowed at rank 2: -2 to 1"],
    ),
    Case(
        "output-axis-out-of-range",
        TWO_INPUTS % "scan_input_axes = [1, 0], scan_output_axes = [0, -3],",
        {"x": PAIRS, "w": W},
        ["scan_output_axes has -3; allowed at rank 2: -2 to 1"],
    ),
    Case("length-beyond-the-end", BATCH % ("int64[2] L,", "", "L"), {**BATCH_FEEDS, "L": i(2, 4)}, [r"sequence_lens is \[2, 4\]"], 8),
    Case("lengths-of-another-batch", BATCH % ("int64[2] L,", "", "L"), {**BATCH_FEEDS, "L": i(2)}, [r"sequence_lens is \[2\]"], 8),
    Case("sequences-of-different-lengths", MAP, {"s": [f(1)], "k": f(1), "t": []}, ["input 2 has 0 items and input_sequence 1"]),
]


@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in BAD])
def test_errors_at_run(case: Case, slow: bool) -> None:
    made = model(case.text, case.opset)
    evaluator = ReferenceEvaluator(made)
    with pytest.raises(InvalidValueError, match=case.wanted[0]):
        evaluator.run(None, feeds_of(case, made), intermediate=slow)


@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
def test_a_map_needs_a_sequence(slow: bool) -> None:
    made = model(MAP.replace("seq(float[n]) s", "float[n] s"))
    with pytest.raises(InvalidTypeError, match="input_sequence is a ndarray; allowed: a sequence"):
        ReferenceEvaluator(made).run(None, {"s": f(1), "k": f(1), "t": []}, intermediate=slow)


BAD_AT_LOAD = {
    "no-branch": (CHOICE.replace("else_branch", "other_branch"), 17, "If-16 .*'else_branch' is missing"),
    "no-cond": (CHOICE.replace("If (c)", "If ()"), 17, "has 0 inputs; allowed: 1"),
    "if-with-too-many-outputs": (CHOICE.replace("y = If", "y, z = If"), 17, "has 2 outputs; then_branch gives 1"),
    "loop-with-too-many-outputs": (DOUBLES.replace("y, n, s = Loop", "y, n, s, z = Loop") % "M, ", 17, "has 4 outputs; body gives 3"),
    "loop-with-too-many-states": (DOUBLES % "M, , x", 17, "body has 3 inputs; with 2 states it must have 4"),
    "loop-without-a-condition": (NOTHING.replace("(bool go, %s s)", "()") % "Identity(i)", 17, "body has 0 outputs"),
    "scan-without-a-count": (SCAN_CAPTURES.replace("num_scan_inputs = 1, ", ""), 17, "num_scan_inputs is None"),
    "scan-of-too-many": (SCAN_CAPTURES.replace("num_scan_inputs = 1", "num_scan_inputs = 3"), 17, "num_scan_inputs is 3; allowed: 1 to 2"),
    "scan-axes": (TWO_INPUTS % "scan_input_axes = [1],", 17, "scan_input_axes has 1 items; allowed: 2"),
    "scan-directions": (TWO_INPUTS % "scan_input_directions = [0, 2],", 17, r"scan_input_directions is \[0, 2\]; allowed: 0"),
    "scan-body": (SCAN_CAPTURES.replace("(float a, float v)", "(float a, float v, float w)"), 17, "body has 3 inputs"),
    "scan-outputs": (SCAN_CAPTURES.replace("s = Scan", "s, t = Scan"), 17, "has 2 outputs; body gives 1"),
    "map-outputs": (MAP.replace("y, z = SequenceMap", "y, z, w2 = SequenceMap"), 17, "has 3 outputs; body gives 2"),
}


@pytest.mark.parametrize("name", BAD_AT_LOAD)
def test_errors_at_load(name: str) -> None:
    text, opset, message = BAD_AT_LOAD[name]
    with pytest.raises(InvalidValueError, match=message):
        ReferenceEvaluator(model(text, opset))


def test_a_branch_that_is_not_taken_may_be_wrong() -> None:
    """Its operators are run for the first time when it is taken."""
    made = model(CHOICE.replace("Neg(x)", "Reshape(x, x)"))
    evaluator = ReferenceEvaluator(made)
    assert_same(evaluator.run(None, {"x": X, "c": YES}), [f(2, -4)])
    with pytest.raises(Exception, match=r"Reshape-14 \(node 'b'\)"):
        evaluator.run(None, {"x": X, "c": NO})


def test_a_body_that_takes_what_nobody_computes() -> None:
    evaluator = ReferenceEvaluator(model(CHOICE.replace("Neg(x)", "Neg(w)")))
    with pytest.raises(EvaluationError, match="Unable to find input 'w'"):
        evaluator.run(None, {"x": X, "c": NO})


def test_the_first_run_may_be_in_many_threads() -> None:
    made = model(NESTED_IF)
    feeds = {"x": X, "c": YES, "d": YES}
    for _ in range(20):
        evaluator = ReferenceEvaluator(made)
        barrier = threading.Barrier(8)
        results: list[Any] = []

        def work(evaluator: ReferenceEvaluator = evaluator, barrier: threading.Barrier = barrier, results: list[Any] = results) -> None:
            barrier.wait()
            results.append(evaluator.run(None, feeds)[0])

        threads = [threading.Thread(target=work) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(results) == 8
        for result in results:
            assert_same(result, f(6, -12))


KNOWN = {
    "If": "c = Cast <to = 9> (t)  y = If (c) <then_branch = t () => (r) { a = Mul(w, w)  r = Add(a, x) }, "
    "else_branch = e () => (s) { s = Sub(x, w) }>",
    "Loop": "n = Constant <value_int = 3> ()  y = Loop (n, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] r) "
    "{ d = Identity(c)  a = Mul(w, w)  r = Add(s, a) }>",
    "Scan": "y, z = Scan <num_scan_inputs = 1, body = b (float[] s, float e) => (float[] r, float q) "
    "{ a = ReduceSum <keepdims = 0> (w)  r = Add(s, a)  q = Mul(e, a) }> (k, x)",
}


@pytest.mark.parametrize("kind", KNOWN)
def test_constants_around_bodies_are_constants_in_them(kind: str) -> None:
    """They are folded there; what the caller feeds in their place is not."""
    text = f"g (float[2] x, float t, float[2] w) => (y) <float[2] w = {{2, 3}}, float k = {{0}}> {{ {KNOWN[kind]} }}"
    made = model(text, 18)
    evaluator = ReferenceEvaluator(made)
    x, t = np.array([1, -2], np.float32), np.float32(1)
    wanted = evaluator.run(None, {"x": x, "t": t}, intermediate=True)["y"]
    other = np.array([5, 7], np.float32)
    wanted_for_other = evaluator.run(None, {"x": x, "t": t, "w": other}, intermediate=True)["y"]
    for _ in range(10):
        np.testing.assert_array_equal(evaluator.run(None, {"x": x, "t": t})[0], wanted)
        np.testing.assert_array_equal(evaluator.run(None, {"x": x, "t": t, "w": other})[0], wanted_for_other)
    assert not np.array_equal(wanted, wanted_for_other)


def test_subclasses_see_the_runs_of_bodies_with_constants() -> None:
    runs = []

    class Noting(ReferenceEvaluator):
        def run(self, *arguments: Any, **options: Any) -> Any:
            runs.append(self.output_names_)
            return super().run(*arguments, **options)

    text = f"g (float[2] x, float t) => (y) <float[2] w = {{2, 3}}> {{ {KNOWN['If']} }}"
    evaluator = Noting(model(text, 18))
    for _ in range(4):
        assert evaluator.run(None, {"x": np.zeros(2, np.float32), "t": np.float32(0)})[0].tolist() == [-2, -3]
    assert runs.count(["s"]) == 4
