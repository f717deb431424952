"""RNN, GRU and LSTM by the kernel: beside the equations in float64, in all parts into which the work can fall, and at every edge."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import numbaops
from drawn.case import Case
from leaf_checks import NEWEST, assert_close
from numbaops.kernels import recurrent as kernels
from numbaops.ops import _recurring, recurrent
from numbaops.ops._recurring import LaidOut
from test_ops_recurrent import CASES, DRAWN, oracle

jit = pytest.mark.skipif(not kernels.AVAILABLE, reason="kernels need the JIT")

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OPERATORS = [("RNN", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("LSTM", {})]
IDS = ["RNN", "GRU", "GRU linear", "LSTM"]


def drawn(op_type: str, attributes: dict[str, Any], steps: int, batch: int, inputs: int, hidden: int, dtype: Any = np.float32) -> Case:
    """A case with all inputs but sequence_lens; weights are small enough that states do not amplify errors."""
    rng = np.random.default_rng(steps * 1000 + batch * 100 + inputs * 10 + hidden)
    ways, gates = 2 if attributes.get("direction") == "bidirectional" else 1, GATES[op_type]
    shapes = [(steps, batch, inputs), (ways, gates * hidden, inputs), (ways, gates * hidden, hidden), (ways, 2 * gates * hidden)]
    x, w, r, b = (rng.normal(0, 1, shape) * scale for shape, scale in zip(shapes, (1, 0.5, 1 / (hidden + 1), 0.5), strict=True))
    states = [rng.normal(size=(ways, batch, hidden)) for _ in range(2 if op_type == "LSTM" else 1)]
    given = [None if value is None else value.astype(dtype) for value in (x, w, r, b, None, *states)]
    return Case(op_type, 14 if dtype != ml_dtypes.bfloat16 else 22, given, {"hidden_size": hidden} | attributes, 1 + len(states))


def evaluator(case: Case, constant: bool) -> numbaops.ReferenceEvaluator:
    """With W, R, B and P as constants, or as inputs."""
    model = case.model()
    if constant:
        names = {f"i{position}": value for position, value in enumerate(case.inputs) if position in (1, 2, 3, 7) and value is not None}
        kept = [each for each in model.graph.input if each.name not in names]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.graph.initializer.extend(_tensor(value, name) for name, value in names.items())
    return numbaops.ReferenceEvaluator(model)


def _tensor(value: Any, name: str) -> onnx.TensorProto:
    if value.dtype != ml_dtypes.bfloat16:
        return numpy_helper.from_array(value, name)
    return onnx.helper.make_tensor(name, onnx.TensorProto.BFLOAT16, value.shape, value.tobytes(), raw=True)


def results(case: Case, constant: bool) -> list[Any]:
    names = evaluator(case, constant).input_names
    return evaluator(case, constant).run(None, {name: value for name, value in case.feeds.items() if name in names})


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel serves for all sizes."""
    monkeypatch.setattr(recurrent, "_KERNEL_FROM", 1)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The runs of the kernel."""
    runs: list[Any] = []
    call = LaidOut.__call__

    def count(self: LaidOut, *arguments: Any) -> Any:
        runs.append(arguments)
        return call(self, *arguments)

    monkeypatch.setattr(LaidOut, "__call__", count)
    return runs


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("constant", [False, True], ids=["inputs", "constants"])
def test_cases_worked_out_by_hand(constant: bool, counted: list[Any]) -> None:
    for name, op_type, opset, inputs, attributes, outputs in CASES:
        if opset > NEWEST:
            continue
        ways = 2 if attributes.get("direction") == "bidirectional" else 1
        steps, batch = inputs[0].shape[:2]
        shapes = [(steps, ways, batch, 1), (ways, batch, 1), (ways, batch, 1)]
        got = results(Case(op_type, opset, inputs, attributes, len(outputs)), constant)
        for one, want, shape in zip(got, outputs, shapes, strict=False):
            np.testing.assert_array_equal(one.astype(np.float64), np.reshape(np.asarray(want, np.float64), shape), name)
    assert len(counted) >= 30 or not kernels.AVAILABLE


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("constant", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("op_type", list(GATES))
def test_drawn(op_type: str, constant: bool, counted: list[Any]) -> None:
    for case in DRAWN:
        if case.op_type == op_type and case.opset >= 7:
            for got, want in zip(results(case, constant), oracle(case), strict=False):
                assert_close(got, want, case.inputs[0].dtype, *((1e-6, 1e-6) if got.dtype == np.float64 else (case.rtol, case.atol)))
    assert len(counted) > 10 or not kernels.AVAILABLE


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def expected(case: Case) -> list[Any]:
    """The equations of the text in float64, for all sequences at once and the activations by default."""
    x, w, r, b, _, *states = [None if value is None else value.astype(np.float64) for value in case.inputs]
    hidden, gates, (steps, batch) = r.shape[2], GATES[case.op_type], x.shape[:2]
    y, lasts = np.zeros((steps, len(w), batch, hidden)), [np.zeros_like(state) for state in states]
    for way in range(len(w)):
        weights, recurrence = w[way].reshape(gates, hidden, -1), r[way].reshape(gates, hidden, hidden)
        bias, other = b[way].reshape(2, gates, 1, hidden)
        h, c = states[0][way], states[-1][way]
        backwards = way == 1 or case.attributes.get("direction") == "reverse"
        for time in reversed(range(steps)) if backwards else range(steps):
            given = [x[time] @ each.T + some for each, some in zip(weights, bias, strict=True)]
            state = [h @ each.T + some for each, some in zip(recurrence, other, strict=True)]
            if case.op_type == "RNN":
                h = np.tanh(given[0] + state[0])
            elif case.op_type == "GRU":
                update, reset = sigmoid(given[0] + state[0]), sigmoid(given[1] + state[1])
                linear = case.attributes.get("linear_before_reset")
                new = np.tanh(given[2] + (reset * state[2] if linear else (reset * h) @ recurrence[2].T + other[2]))
                h = (1 - update) * new + update * h
            else:
                enter, leave, keep = (sigmoid(given[gate] + state[gate]) for gate in range(3))
                c = keep * c + enter * np.tanh(given[3] + state[3])
                h = leave * np.tanh(c)
            y[time, way] = h
        for last, state in zip(lasts, (h, c), strict=False):
            last[way] = state
    return [y, *lasts]


# steps, batch, inputs, hidden: one row of a tile to many, columns that fill panels and others, more rows than are made ahead
SHAPES = [
    (1, 1, 128, 128),
    (1, 1, 7, 33),
    (5, 1, 3, 16),
    (70, 1, 9, 17),
    (9, 2, 20, 64),
    (3, 3, 33, 21),
    (4, 4, 64, 8),
    (2, 5, 1, 70),
    (3, 7, 16, 31),
    (67, 8, 5, 4),
    (2, 64, 12, 13),
    (2, 65, 3, 20),
    (4, 2, 0, 20),
]
SMALL = SHAPES if kernels.AVAILABLE else [shape for shape in SHAPES if math.prod(shape) < 5000]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op_type", "attributes"), OPERATORS, ids=IDS)
def test_shapes(op_type: str, attributes: dict[str, Any], direction: str) -> None:
    for shape in SMALL:
        case = drawn(op_type, attributes | {"direction": direction}, *shape)
        got = results(case, True)
        for one, again, want in zip(got, results(case, False), expected(case), strict=True):
            assert_close(one, want, np.float32, 2e-5, 3e-6)
            np.testing.assert_array_equal(again, one)


@jit
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("op_type", "attributes"), OPERATORS, ids=IDS)
def test_the_same_however_it_is_split(op_type: str, attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in (1, 3, 8, 9):
        case = drawn(op_type, attributes | {"direction": "bidirectional"}, 5, batch, 10, 24)
        whole = results(case, True)

        for part in (1, 2, 3):

            def split(work: Any, size: int, *_: Any, part: int = part, batch: int = batch, **options: Any) -> None:
                assert size == (2 if batch == 1 else 2 * -(-batch // 2))
                for start in reversed(range(0, size, part)):
                    work(start, min(size, start + part))

            with monkeypatch.context() as patch:
                patch.setattr(_recurring, "split", split)
                for got, want in zip(results(case, True), whole, strict=True):
                    np.testing.assert_array_equal(got, want)


@jit
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("op_type", "attributes"), OPERATORS, ids=IDS)
def test_sequences_do_not_know_of_each_other(op_type: str, attributes: dict[str, Any]) -> None:
    case = drawn(op_type, attributes, 6, 7, 10, 24)
    whole = results(case, True)
    for one in range(7):
        inputs = [
            value if value is None or position in (1, 2, 3) else value[:, one : one + 1] for position, value in enumerate(case.inputs)
        ]
        alone = results(Case(op_type, case.opset, inputs, case.attributes, case.outputs), True)
        for got, want in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(got, want[..., one : one + 1, :])


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("op_type", "attributes"), OPERATORS, ids=IDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_sequence_that_is_not_finite(op_type: str, attributes: dict[str, Any], value: float) -> None:
    case = drawn(op_type, attributes, 3, 5, 4, 20)
    usual = results(case, True)
    case.inputs[0][1, 2, 3] = value
    for got, before in zip(results(case, True), usual, strict=True):
        others = np.arange(5) != 2
        np.testing.assert_array_equal(got[..., others, :], before[..., others, :])
        assert np.isnan(got[..., 2, :]).any() == np.isnan(value)
    if np.isnan(value):
        assert np.isnan(results(case, True)[0][1:, :, 2]).all()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("linear", [0, 1])
def test_infinite_state(linear: int) -> None:
    """Open gates keep a state, infinite or not: what pads a panel must not be multiplied into another's columns."""
    case = drawn("GRU", {"activations": ["HardSigmoid", "Relu"], "linear_before_reset": linear}, 1, 1, 2, 3)
    r, h = case.inputs[2], case.inputs[5]
    r[:] = 0
    r[0, :6, 0], r[0, 6:, 0] = 1, -1
    h[0, 0] = [np.inf, 1, 2]
    for constant in (False, True):
        np.testing.assert_array_equal(results(case, constant)[0][0, 0, 0], [np.inf, 1, 2])


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize(("op_type", "attributes"), OPERATORS, ids=IDS)
def test_halves_are_rounded_once(op_type: str, attributes: dict[str, Any], dtype: Any) -> None:
    if dtype == ml_dtypes.bfloat16 and NEWEST < 22:
        pytest.skip("this onnx has no such type here")
    case = drawn(op_type, attributes, 4, 3, 5, 18, dtype)
    wide = Case(op_type, 14, [None if value is None else value.astype(np.float32) for value in case.inputs], case.attributes, case.outputs)
    for constant in (False, True):
        for got, want in zip(results(case, constant), results(wide, constant), strict=True):
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, want.astype(dtype))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("constant", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize(("op_type", "attributes"), OPERATORS, ids=IDS)
def test_inputs_stay_and_may_lie_anywhere(op_type: str, attributes: dict[str, Any], constant: bool) -> None:
    case = drawn(op_type, attributes, 4, 3, 5, 18)
    usual = results(case, constant)
    before = [None if value is None else value.copy() for value in case.inputs]
    for value in case.inputs:
        if value is not None:
            value.flags.writeable = False
    turned = [None if value is None else np.asfortranarray(value) for value in before]
    again = Case(op_type, 14, turned, case.attributes, case.outputs)
    for got, other, want in zip(results(case, constant), results(again, constant), usual, strict=True):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(other, want)
        assert got.flags.writeable
        assert not any(np.may_share_memory(got, value) for value in case.inputs if value is not None)
    for value, old in itertools.chain(zip(case.inputs, before, strict=True), zip(turned, before, strict=True)):
        assert value is None or value.tobytes() == old.tobytes()


def test_sizes_and_types_that_change(counted: list[Any]) -> None:
    """One evaluator with known weights takes any steps and batch, few of them too, and states of float64, which NumPy serves."""
    sizes = [(1, 1), (6, 3), (0, 2), (2, 0), (1, 1), (80, 1)]
    full = drawn("LSTM", {}, 80, 3, 6, 20)
    made = evaluator(full, True)
    for steps, batch in sizes:
        x, states = full.inputs[0][:steps, :batch], [state[:, :batch] for state in full.inputs[5:]]
        case = Case("LSTM", 14, [x, *full.inputs[1:5], *states], full.attributes, 3)
        y, h, c = made.run(None, {"i0": x, "i5": states[0], "i6": states[1]})
        if steps:
            for got, want in zip((y, h, c), expected(case), strict=True):
                assert_close(got, want, np.float32, 2e-5, 3e-6)
        else:
            assert y.shape == (0, 1, batch, 20) and not h.any() and not c.any()
    runs = len(counted)
    assert runs > 3 or not kernels.AVAILABLE
    wide = [value.astype(np.float64) for value in (full.inputs[0], *full.inputs[5:])]
    got = made.run(None, dict(zip(("i0", "i5", "i6"), wide, strict=True)))
    assert len(counted) == runs
    for one, want in zip(got, expected(full), strict=True):
        assert_close(one, want, np.float64, 1e-6, 1e-6)


@pytest.mark.parametrize("constant", [False, True], ids=["inputs", "constants"])
def test_errors_of_shapes(constant: bool) -> None:
    case = drawn("LSTM", {}, 2, 1, 40, 32)
    made = evaluator(case, constant)
    names = made.input_names
    feeds = {name: value for name, value in case.feeds.items() if name in names}
    made.run(None, feeds)
    for name, value, text in [
        ("i0", np.zeros((2, 1, 3), np.float32), r"W has shape \[1, 128, 40\]; allowed: \[1, 128, 3\]"),
        ("i0", np.zeros((2, 1), np.float32), "allowed: rank 3"),
        ("i5", np.zeros((1, 2, 32), np.float32), r"initial_h has shape \[1, 2, 32\]; allowed: \[1, 1, 32\]"),
        ("i6", np.zeros((1, 32), np.float32), r"initial_c has shape \[1, 32\]; allowed: \[1, 1, 32\]"),
    ]:
        with pytest.raises(numbaops.NumbaopsError, match=text):
            made.run(None, feeds | {name: value})


def test_small_layers_need_no_kernel(counted: list[Any]) -> None:
    results(drawn("LSTM", {}, 1, 1, 2, 3), True)
    assert not counted


def test_activations_that_the_kernel_lacks(counted: list[Any]) -> None:
    case = drawn("RNN", {"activations": ["Softsign"]}, 20, 4, 20, 20)
    results(case, True)
    assert not counted
    results(drawn("RNN", {"activations": ["Relu"]}, 20, 4, 20, 20), True)
    assert len(counted) == 1 or not kernels.AVAILABLE


@jit
@pytest.mark.parametrize("count", [1, 15, 16, 63, 64, 65, 130])
def test_lay_out_columns(count: int) -> None:
    for terms in (0, 1, 15, 16, 17, 40):
        w = np.arange(3 + count * terms, dtype=np.float32)
        panels = -(-count // kernels.WIDTH)
        out = np.full(5 + panels * kernels.WIDTH * terms, -1, np.float32)
        kernels.lay_out_columns(w, 3, count, terms, out, 5)
        got = out[5:].reshape(panels, terms, kernels.WIDTH).transpose(0, 2, 1).reshape(panels * kernels.WIDTH, terms)
        np.testing.assert_array_equal(got[:count], w[3:].reshape(count, terms))
        np.testing.assert_array_equal(got[count:], np.broadcast_to(got[count - 1], got[count:].shape))
        assert (out[:5] == -1).all()
