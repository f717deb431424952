"""RNN, GRU and LSTM at every version.

First what a comparison on drawn inputs found wrong elsewhere, as small cases worked out by hand; then drawn cases beside slow loops.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import numbaops
from drawn import recurrent
from drawn.case import Case
from leaf_checks import NEWEST, assert_close, assert_node_cases, assert_pure, run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def floats(values: Any, dtype: Any = np.float32) -> Any:
    return np.array(values, np.float64).astype(dtype)


def sequence(*values: float, dtype: Any = np.float32) -> Any:
    """One sequence of single inputs, ``[steps, 1, 1]``."""
    return floats(values, dtype).reshape(-1, 1, 1)


def gates(*values: float, ways: int = 1, dtype: Any = np.float32) -> Any:
    """Weights of one hidden unit with one input, ``[ways, gates, 1]``."""
    return floats(values, dtype).reshape(ways, -1, 1)


def state(*values: float, dtype: Any = np.float32) -> Any:
    """A state of one hidden unit, ``[1, batch, 1]``."""
    return floats(values, dtype).reshape(1, -1, 1)


def lengths(*values: int) -> Any:
    return np.array(values, np.int32)


RELU = {"hidden_size": 1, "activations": ["Relu"]}
# with Affine gates (the identity), an LSTM and a GRU can be worked out in the head
LSTM = {"hidden_size": 1, "activations": ["Affine", "Affine", "Affine"]}
GRU = {"hidden_size": 1, "activations": ["Affine", "Affine"]}
ADD = [gates(1), gates(1)]  # h = f(x + h)
TWO = floats([[[1], [2]], [[3], [4]]])  # two steps of two sequences: 1, 3 and 2, 4
GRU_SUM = [gates(0, 1, 1), gates(0, 0, 1)]  # z = 0, r = x, candidate x + r h: h = x + x h
LSTM_SUM = [gates(1, 0, 0, 1), gates(0, 0, 0, 0)]  # i = x, o = f = 0, c = x


def bias(*values: float) -> Any:
    return floats([values])


# id, operator, opset, inputs, attributes, outputs without Y: [Y, Y_h, Y_c]
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], list[Any]]] = [
    ("Relu", "RNN", 7, [sequence(1, -3, 2), *ADD], RELU, [[1, 0, 2], [2]]),
    ("backwards", "RNN", 14, [sequence(1, 2, 3), *ADD], RELU | {"direction": "reverse"}, [[6, 5, 3], [6]]),
    ("lengths", "RNN", 7, [TWO, *ADD, None, lengths(1, 2)], RELU, [[1, 2, 0, 6], [1, 6]]),
    ("lengths, backwards", "RNN", 7, [TWO, *ADD, None, lengths(1, 2)], RELU | {"direction": "reverse"}, [[1, 6, 0, 4], [1, 6]]),
    ("length 0", "RNN", 14, [TWO, *ADD, None, lengths(0, 1), state(5, 5)], RELU, [[0, 7, 0, 0], [0, 7]]),
    ("no steps", "RNN", 14, [np.zeros((0, 1, 1), np.float32), *ADD, None, None, state(5)], RELU, [[], [0]]),
    ("both biases, first state", "RNN", 22, [sequence(1), *ADD, bias(10, 100), None, state(1000)], RELU, [[1111], [1111]]),
    (
        "clip before the activation",
        "RNN",
        7,
        [sequence(3, -9), *ADD],
        RELU | {"clip": 2.5, "activations": ["Affine"]},
        [[2.5, -2.5], [-2.5]],
    ),
    ("clip 0", "RNN", 7, [sequence(3), *ADD], RELU | {"clip": 0.0}, [[0], [0]]),
    ("output_sequence", "RNN", 1, [sequence(1, 2), *ADD], RELU | {"output_sequence": 0}, [[1, 3], [3]]),
    ("float16", "RNN", 7, [sequence(1, 2, dtype=np.float16), gates(1, dtype=np.float16), gates(1, dtype=np.float16)], RELU, [[1, 3], [3]]),
    (
        "bfloat16 rounds at the end alone",
        "RNN",
        22,
        [sequence(256, 1, 1, dtype=BFLOAT16), gates(1, dtype=BFLOAT16), gates(1, dtype=BFLOAT16)],
        RELU,
        [[256, 256, 258], [258]],
    ),
    ("names in lower case", "RNN", 7, [sequence(1, -3), *ADD], RELU | {"activations": ["relu"]}, [[1, 0], [0]]),
    (
        "each direction has activations",
        "RNN",
        7,
        [sequence(1, -3), gates(1, 1, ways=2), gates(1, 1, ways=2)],
        {"hidden_size": 1, "direction": "bidirectional", "activations": ["Relu", "Affine"]},
        [[1, -2, 0, -3], [0, -2]],
    ),
    (
        "alphas go to those that take one",
        "RNN",
        7,
        [sequence(-1), gates(1, 1, ways=2), gates(0, 0, ways=2)],
        {"hidden_size": 1, "direction": "bidirectional", "activations": ["Relu", "LeakyRelu"], "activation_alpha": [0.5]},
        [[0, -0.5], [0, -0.5]],
    ),
    # z keeps: h = (1 - z) candidate + z h
    ("update gate", "GRU", 7, [sequence(0.25), gates(1, 0, 0), gates(0, 0, 0), None, None, state(8)], GRU, [[2], [2]]),
    ("reset gate", "GRU", 7, [sequence(2, 3), *GRU_SUM], GRU, [[2, 9], [9]]),
    ("backwards", "GRU", 14, [sequence(2, 3), *GRU_SUM], GRU | {"direction": "reverse"}, [[8, 3], [8]]),
    # candidate x + r h + Rb against x + r (h + Rb), with Rb = 10
    ("reset before", "GRU", 3, [sequence(2), *GRU_SUM, bias(0, 0, 0, 0, 0, 10), None, state(1)], GRU, [[14], [14]]),
    (
        "linear before reset",
        "GRU",
        3,
        [sequence(2), *GRU_SUM, bias(0, 0, 0, 0, 0, 10), None, state(1)],
        GRU | {"linear_before_reset": 1},
        [[24], [24]],
    ),
    (
        "linear before reset without bias",
        "GRU",
        14,
        [sequence(2), *GRU_SUM, None, None, state(1)],
        GRU | {"linear_before_reset": 1},
        [[4], [4]],
    ),
    ("direction by its default", "GRU", 1, [sequence(2, 3), *GRU_SUM], GRU, [[2, 9], [9]]),
    ("clip", "GRU", 7, [sequence(2), *GRU_SUM, None, None, state(10)], GRU | {"clip": 1.0}, [[1], [1]]),
    ("lengths", "GRU", 14, [TWO, *GRU_SUM, None, lengths(2, 1)], GRU, [[1, 2, 6, 0], [6, 2]]),
    # c = f c + i g(x), h = o c
    ("cell", "LSTM", 7, [sequence(2, 3), gates(1, 1, 0, 1), gates(0, 0, 0, 0), bias(0, 0, 1, 0, 0, 0, 0, 0)], LSTM, [[8, 39], [39], [13]]),
    (
        "backwards",
        "LSTM",
        14,
        [sequence(2, 3), gates(1, 1, 0, 1), gates(0, 0, 0, 0), bias(0, 0, 1, 0, 0, 0, 0, 0)],
        LSTM | {"direction": "reverse"},
        [[26, 27], [26], [13]],
    ),
    ("first states", "LSTM", 7, [sequence(1), gates(1, 1, 1, 1), gates(1, 0, 0, 0), None, None, state(2), state(5)], LSTM, [[8], [8], [8]]),
    # i = 3 + 10 c, f = 0 + 100 c, then o = 0 + 1 new c
    (
        "peepholes are input, output, forget",
        "LSTM",
        7,
        [sequence(3), *LSTM_SUM, None, None, None, state(1), bias(10, 1, 100)],
        LSTM,
        [[139**2], [139**2], [139]],
    ),
    (
        "coupled gates",
        "LSTM",
        1,
        [sequence(3), *LSTM_SUM, bias(0, 1, 7, 0, 0, 0, 0, 0), None, None, state(2)],
        LSTM | {"input_forget": 1},
        [[5], [5], [5]],
    ),
    (
        "clip leaves the cell state",
        "LSTM",
        7,
        [sequence(3), *LSTM_SUM, bias(0, 1, 2, 0, 0, 0, 0, 0), None, None, state(8)],
        LSTM | {"clip": 2.0},
        [[20], [20], [20]],
    ),
    ("lengths", "LSTM", 14, [TWO, *LSTM_SUM, bias(0, 1, 1, 0, 0, 0, 0, 0), lengths(1, 2)], LSTM, [[1, 4, 0, 20], [1, 20], [1, 20]]),
    ("length 0", "LSTM", 7, [TWO, *LSTM_SUM, None, lengths(0, 0), state(5, 5), state(5, 5)], LSTM, [[0] * 4, [0, 0], [0, 0]]),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "outputs"),
    [case[1:] for case in CASES],
    ids=[f"{case[1]}-{case[2]}: {case[0]}" for case in CASES],
)
def test_case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], outputs: list[Any]) -> None:
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    steps, batch = inputs[0].shape[:2]
    shapes = [(steps, ways, batch, 1), (ways, batch, 1), (ways, batch, 1)]
    for got, want, shape in zip(run(op_type, opset, inputs, attributes, len(outputs)), outputs, shapes, strict=False):
        assert_close(got, np.reshape(want, shape), inputs[0].dtype)


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
def test_batch_first(op_type: str) -> None:
    """Layout 1 swaps the axes of X, the states and the outputs."""
    rng = np.random.default_rng(0)
    count, functions = recurrent.GATES[op_type], {"hidden_size": 5, "direction": "bidirectional"}
    x, w, r = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 3, 2), (2, 5 * count, 2), (2, 5 * count, 5)))
    states = [rng.normal(size=(2, 3, 5)).astype(np.float32) for _ in range(2 if op_type == "LSTM" else 1)]
    outputs = 1 + len(states)
    plain = run(op_type, 14, [x, w, r, None, lengths(4, 2, 3), *states], functions, outputs)
    swapped = [value.swapaxes(0, 1).copy() for value in (x, *states)]
    first = run(op_type, 14, [swapped[0], w, r, None, lengths(4, 2, 3), *swapped[1:]], functions | {"layout": 1}, outputs)
    np.testing.assert_array_equal(first[0], plain[0].transpose(2, 0, 1, 3))
    for got, want in zip(first[1:], plain[1:], strict=True):
        np.testing.assert_array_equal(got, want.swapaxes(0, 1))


# name, alpha, beta, of -2, of 0.5, of 3: one step of an RNN
ACTIVATIONS = [
    ("Relu", None, None, 0, 0.5, 3),
    ("Tanh", None, None, math.tanh(-2), math.tanh(0.5), math.tanh(3)),
    ("Sigmoid", None, None, 1 / (1 + math.e**2), 1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(-3))),
    ("Affine", None, None, -2, 0.5, 3),
    ("Affine", 2.0, 1.0, -3, 2, 7),
    ("LeakyRelu", None, None, -0.02, 0.5, 3),
    ("LeakyRelu", 0.5, None, -1, 0.5, 3),
    ("ThresholdedRelu", None, None, 0, 0, 3),
    ("ThresholdedRelu", 0.5, None, 0, 0.5, 3),
    ("ScaledTanh", 2.0, 0.5, 2 * math.tanh(-1), 2 * math.tanh(0.25), 2 * math.tanh(1.5)),
    ("HardSigmoid", None, None, 0.1, 0.6, 1),
    ("HardSigmoid", 0.5, 0.25, 0, 0.5, 1),
    ("Elu", None, None, math.exp(-2) - 1, 0.5, 3),
    ("Elu", 2.0, None, 2 * math.exp(-2) - 2, 0.5, 3),
    ("Softsign", None, None, -2 / 3, 1 / 3, 0.75),
    ("Softplus", None, None, math.log1p(math.exp(-2)), math.log1p(math.exp(0.5)), math.log1p(math.exp(3))),
]


@pytest.mark.parametrize(
    ("name", "alpha", "beta", "low", "middle", "high"), ACTIVATIONS, ids=[f"{row[0]} {row[1]} {row[2]}" for row in ACTIVATIONS]
)
def test_activation(name: str, alpha: float | None, beta: float | None, low: float, middle: float, high: float) -> None:
    attributes: dict[str, Any] = {"hidden_size": 1, "activations": [name]}
    attributes |= {key: [value] for key, value in (("activation_alpha", alpha), ("activation_beta", beta)) if value is not None}
    for version in (1, 7, 14, 22):
        y, _ = run("RNN", version, [sequence(-2, 0.5, 3), gates(1), gates(0)], attributes, 2)
        assert_close(y.ravel(), [low, middle, high], np.float32, 1e-6)


@pytest.mark.parametrize("name", ["Sigmoid", "Softplus", "Elu", "Tanh", "Softsign"])
def test_activation_far_out(name: str) -> None:
    y, _ = run("RNN", 14, [sequence(-1e4, 1e4), gates(1), gates(0)], {"hidden_size": 1, "activations": [name]}, 2)
    want = {"Sigmoid": [0, 1], "Softplus": [0, 1e4], "Elu": [-1, 1e4], "Tanh": [-1, 1], "Softsign": [-1, 1]}[name]
    assert_close(y.ravel(), want, np.float32, 1e-3)


# f(x) of the text, in float64
FORMULAS = {
    "Relu": lambda x, a, b: max(0.0, x),
    "Tanh": lambda x, a, b: math.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + math.exp(-x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: x if x >= 0 else a * x,
    "ThresholdedRelu": lambda x, a, b: x if x >= a else 0.0,
    "ScaledTanh": lambda x, a, b: a * math.tanh(b * x),
    "HardSigmoid": lambda x, a, b: min(max(a * x + b, 0.0), 1.0),
    "Elu": lambda x, a, b: x if x >= 0 else a * (math.exp(x) - 1),
    "Softsign": lambda x, a, b: x / (1 + abs(x)),
    "Softplus": lambda x, a, b: math.log(1 + math.exp(x)),
}
ALPHAS = {"Affine": 1.0, "LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2, "Elu": 1.0, "ScaledTanh": 1.0}
BETAS = {"Affine": 0.0, "HardSigmoid": 0.5, "ScaledTanh": 1.0}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def functions(case: Case, ways: int) -> list[list[Any]]:
    """The activations of each direction, on arrays; those of gates clip what comes in."""
    names = case.attributes.get("activations", DEFAULTS[case.op_type] * ways)
    alphas, betas = (iter(case.attributes.get(key, ())) for key in ("activation_alpha", "activation_beta"))
    made = []
    for number, name in enumerate(names):
        a = next(alphas, ALPHAS[name]) if name in ALPHAS else 0.0
        b = next(betas, BETAS[name]) if name in BETAS else 0.0
        clip = math.inf if number % len(DEFAULTS[case.op_type]) == 2 else case.attributes.get("clip", math.inf)
        formula = functools.partial(
            lambda x, name, a, b, clip: FORMULAS[name](min(max(x, -clip), clip), a, b), name=name, a=a, b=b, clip=clip
        )
        made.append(np.vectorize(formula, otypes=[np.float64]))
    size = len(made) // ways
    return [made[way * size : (way + 1) * size] for way in range(ways)]


def step(case: Case, x: Any, h: Any, c: Any, w: Any, r: Any, b: Any, p: Any, f: list[Any]) -> tuple[Any, Any]:
    """The equations of the text for one sequence and one step; ``b`` is [Wb, Rb], all by gate."""
    if case.op_type == "RNN":
        return f[0](w[0] @ x + r[0] @ h + b[0][0] + b[1][0]), c
    if case.op_type == "GRU":
        z, reset = (f[0](w[gate] @ x + r[gate] @ h + b[0][gate] + b[1][gate]) for gate in (0, 1))
        if case.attributes.get("linear_before_reset"):
            new = f[1](w[2] @ x + reset * (r[2] @ h + b[1][2]) + b[0][2])
        else:
            new = f[1](w[2] @ x + r[2] @ (reset * h) + b[1][2] + b[0][2])
        return (1 - z) * new + z * h, c
    inner = [w[gate] @ x + r[gate] @ h + b[0][gate] + b[1][gate] for gate in range(4)]
    i = f[0](inner[0] + p[0] * c)
    forget = 1 - i if case.attributes.get("input_forget") else f[0](inner[2] + p[2] * c)
    c = forget * c + i * f[1](inner[3])
    return f[0](inner[1] + p[1] * c) * f[2](c), c


def oracle(case: Case) -> list[Any]:
    """All outputs in float64, sequence by sequence."""
    given = [None if value is None else value.astype(np.float64) for value in case.inputs] + [None] * 8
    x, w, r, b, lens, h0, c0, p = given[:8]
    gate_count, hidden, ways = recurrent.GATES[case.op_type], case.attributes["hidden_size"], len(w)
    if case.attributes.get("layout"):
        x, h0, c0 = (None if value is None else value.swapaxes(0, 1) for value in (x, h0, c0))
    steps, batch = x.shape[:2]
    w, r = (value.reshape(ways, gate_count, hidden, -1) for value in (w, r))
    b = np.zeros((ways, 2, gate_count, hidden)) if b is None else b.reshape(ways, 2, gate_count, hidden)
    p = np.zeros((ways, 3, hidden)) if p is None else p.reshape(ways, 3, hidden)
    y, last_h, last_c = np.zeros((steps, ways, batch, hidden)), np.zeros((ways, batch, hidden)), np.zeros((ways, batch, hidden))
    activations = functions(case, ways)
    for way, place in itertools.product(range(ways), range(batch)):
        length = steps if lens is None else int(lens[place])
        backwards = way == 1 or case.attributes.get("direction") == "reverse"
        h, c = (np.zeros(hidden) if value is None else value[way, place] for value in (h0, c0))
        for time in reversed(range(length)) if backwards else range(length):
            h, c = step(case, x[time, place], h, c, w[way], r[way], b[way], p[way], activations[way])
            y[time, way, place] = h
        if length:
            last_h[way, place], last_c[way, place] = h, c
    if case.attributes.get("layout"):
        return [y.transpose(2, 0, 1, 3), last_h.swapaxes(0, 1), last_c.swapaxes(0, 1)]
    return [y, last_h, last_c]


DRAWN = [case for case in recurrent.draws(np.random.default_rng(7)) if case.opset <= NEWEST]


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
def test_beside_slow_loops(op_type: str) -> None:
    for case in DRAWN:
        if case.op_type == op_type:
            results = run(op_type, case.opset, case.inputs, case.attributes, case.outputs)
            for got, want in zip(results, oracle(case), strict=False):
                try:
                    assert_close(got, want, case.inputs[0].dtype, *((1e-6, 1e-6) if got.dtype == np.float64 else (case.rtol, case.atol)))
                except AssertionError as error:
                    raise AssertionError(f"{case}: {error}") from None


def test_outputs_may_be_omitted() -> None:
    inputs, attributes = [sequence(1, 2), *LSTM_SUM], LSTM
    y, h, c = run("LSTM", 14, inputs, attributes, 3)
    model = Case("LSTM", 14, inputs, attributes, 3).model()
    model.graph.node[0].output[:] = ["", "", "o2"]
    del model.graph.output[:2]
    (got,) = numbaops.ReferenceEvaluator(model).run(None, {f"i{number}": value for number, value in enumerate(inputs)})
    np.testing.assert_array_equal(got, c)
    assert y.shape == (2, 1, 1, 1) and h.shape == (1, 1, 1)


def test_inputs_stay_and_outputs_are_new() -> None:
    for case in DRAWN:
        assert_pure(case)


def test_onnx_node_cases(node_cases: list[Any]) -> None:
    assert assert_node_cases(node_cases, "RNN", "GRU", "LSTM") >= 12


# what is wrong, inputs after X, attributes, text of the error
ERRORS: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("direction", ADD, {"direction": "backward"}, "direction is 'backward'; allowed: forward, reverse, bidirectional"),
    ("weights for one direction", ADD, {"direction": "bidirectional"}, r"W has shape \[1, 1, 1\]; allowed: \[2, 1, 1\]"),
    ("hidden size", ADD, {"hidden_size": 2}, r"W has shape \[1, 1, 1\]; allowed: \[1, 2, 1\]"),
    ("bias", [*ADD, bias(1)], {}, r"B has shape \[1, 1\]; allowed: \[1, 2\]"),
    ("first state", [*ADD, None, None, state(1, 2)], {}, r"initial_h has shape \[1, 2, 1\]; allowed: \[1, 1, 1\]"),
    ("one length too many", [*ADD, None, lengths(1, 1)], {}, r"sequence_lens has shape \[2\]; allowed: \[1\]"),
    ("length beyond the steps", [*ADD, None, lengths(3)], {}, r"sequence_lens is \[3\]; allowed: 0 to 2"),
    ("negative length", [*ADD, None, lengths(-1)], {}, r"sequence_lens is \[-1\]; allowed: 0 to 2"),
    ("float lengths", [*ADD, None, floats([1])], {}, "sequence_lens has element type float32; allowed: int32"),
    ("activation", ADD, {"activations": ["Gelu"]}, "an activation is 'Gelu'; allowed: Relu, Tanh"),
    ("clip", ADD, {"clip": -1.0}, "clip is -1.0; allowed: 0 and more"),
    ("layout", ADD, {"layout": 2}, "layout is 2; allowed: 0, 1"),
    ("rank", [gates(1), gates(1)[0]], {}, r"R have the shapes \[2, 1, 1\] and \[1, 1\]; allowed: rank 3"),
    (
        "too few activations",
        [gates(1, 1, ways=2), gates(1, 1, ways=2)],
        {"direction": "bidirectional", "activations": ["Tanh"]},
        "1 for each direction",
    ),
]


@pytest.mark.parametrize(("inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS])
def test_error(inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(numbaops.NumbaopsError, match=text) as caught:
        run("RNN", 14, [sequence(1, 2), *inputs], attributes)
    assert caught.value.op_type == "RNN"
