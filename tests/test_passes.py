"""What plans do to their steps, each beside a plan that leaves it out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, parser

import numbaops
from numbaops import ReferenceEvaluator
from numbaops.engine import chains
from numbaops.engine.passes import PASSES
from numbaops.engine.plan import Plan
from numbaops.runtime import jit

RUNS = 10
RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((1, 3, 24, 24)).astype(np.float32)

TEXT = """g (float[1,3,a,b] x) => (y, z, n)
    {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        d = BatchNormalization(c, s, o, m, v)
        r = Relu(d)
        two = Constant <value_float = 2.0> ()
        root = Sqrt(two)
        h = Mul(x, root)
        i = Mul(x, root)
        k = Neg(h)
        l = Neg(i)
        sum = Add(k, l)
        z = Abs(sum)
        shape = Shape(x)
        long = Cast <to = 1> (shape)
        n = Sqrt(long)
        t = Sub(r, two)
        y = Transpose(t)
    }"""


def model() -> ModelProto:
    made = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + TEXT)
    drawn = {"w": RANDOM.standard_normal((4, 3, 3, 3)), "v": np.array([1, 2, 4, 0.5])}
    drawn.update((name, RANDOM.standard_normal(4)) for name in "som")
    made.graph.initializer.extend(numbaops.from_array(value.astype(np.float32), name) for name, value in drawn.items())
    return made


MODEL = model()


def plan_of(evaluator: ReferenceEvaluator) -> Plan:
    return evaluator._plan(tuple(evaluator.output_names_), ())


DONE = {
    "fold": lambda plan: len(plan.folded),
    "share": lambda plan: sum(step.op_type in ("Mul", "Neg") for step in map(plan.steps.__getitem__, plan.live)) == 2,
    "fuse": lambda plan: len(plan.fused),
    "chain": lambda plan: plan.elementwise,
    "shapes": lambda plan: len(plan.of_shapes),
    "in_place": lambda plan: len(plan.candidates),
}


def test_every_pass_does_something() -> None:
    assert tuple(DONE) == PASSES
    assert all(done(plan_of(ReferenceEvaluator(MODEL))) for done in DONE.values())


@pytest.mark.parametrize("left_out", PASSES)
def test_a_pass_that_is_left_out_changes_nothing_but_roundings(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "SMALLEST", 1)
    whole, without = ReferenceEvaluator(MODEL), ReferenceEvaluator(MODEL, without=[left_out])
    for name, done in DONE.items():
        assert bool(done(plan_of(without))) == (name != left_out)
    for number in range(RUNS + 3):
        for got, wanted in zip(without.run(None, {"x": X}), whole.run(None, {"x": X}), strict=True):
            np.testing.assert_allclose(got, wanted, 1e-5 if left_out == "fuse" else 0, 1e-5 if left_out == "fuse" else 0)
        if number == RUNS:
            jit.Later.wait()


def test_without_any_the_plan_is_the_graph() -> None:
    evaluator = ReferenceEvaluator(MODEL, without=PASSES)
    assert len(plan_of(evaluator).live) == len(MODEL.graph.node)
    assert not plan_of(evaluator).special
    for got, wanted in zip(evaluator.run(None, {"x": X}), ReferenceEvaluator(MODEL, exact=True).run(None, {"x": X}), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_copies_and_pickles_leave_out_the_same() -> None:
    evaluator = ReferenceEvaluator(MODEL, without="share")
    for other in (copy.deepcopy(evaluator), pickle.loads(pickle.dumps(evaluator))):
        assert "share" not in plan_of(other).passes
        assert "fuse" in plan_of(other).passes


def test_bodies_leave_out_the_same() -> None:
    text = """g (bool go, float[a] x) => (y) { y = If (go) <
        then_branch = t () => (u) { a = Neg(x)  b = Neg(x)  u = Add(a, b) }, else_branch = e () => (v) { v = Neg(x) }> }"""
    made = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    for without, count in ((), 2), (("share",), 3):
        evaluator = ReferenceEvaluator(made, without=without)
        np.testing.assert_array_equal(evaluator.run(None, {"go": np.array(True), "x": X[0, 0, 0]})[0], -2 * X[0, 0, 0])
        assert len(evaluator.rt_nodes_[0].then_branch.body_plan.live) == count


@pytest.mark.parametrize("names", ["loops", ["fuse", "loops"]], ids=str)
def test_unknown_passes(names: Any) -> None:
    with pytest.raises(numbaops.InvalidValueError, match="without has 'loops'; allowed: fold, share, fuse, chain, shapes, in_place"):
        ReferenceEvaluator(MODEL, without=names)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a = Neg(x)  b = Neg(x)  y = Add(a, b)", 2),
        ("a = Neg(x)  b = Neg(x)  c = Abs(a)  d = Abs(b)  y = Add(c, d)", 3),
        ("a = Neg(x)  i = Identity(x)  b = Neg(i)  y = Add(a, b)", 2),
        ("a = LeakyRelu <alpha = 0.5> (x)  b = LeakyRelu <alpha = 0.25> (x)  y = Add(a, b)", 3),
        ("a = LeakyRelu <alpha = 0.5> (x)  b = LeakyRelu <alpha = 0.5> (x)  y = Add(a, b)", 2),
        ("a, m = Dropout(x)  b = Dropout(x)  y = Add(a, b)", 3),
        ("a, i = TopK <axis = 0> (x, two)  b, j = TopK <axis = 0> (x, two)  k = Mul(i, j)  e = Cast <to = 1> (k)  y = Sum(a, b, e)", 4),
        ("a = LayerNormalization(x, s)  b, m, i = LayerNormalization(x, s)  y = Sum(a, b, m, i)", 3),
        (
            "k = Constant <value_float = 0.5> ()  t = Cast <to = 9> (k)  a = Dropout(x, k, t)  b = Dropout(x, k, t)  y = Sub(a, b)",
            3,
        ),
        ("a = RandomNormalLike(x)  b = RandomNormalLike(x)  y = Sub(a, b)", 3),
        ("a = Bernoulli(p)  b = Bernoulli(p)  y = Sub(a, b)", 3),
    ],
)
def test_equal_nodes(text: str, left: int) -> None:
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]>\ng (float[a] x, float[a] p, float[a] s) => (y) <int64[1] two = {{2}}> {{ {text} }}'
    )
    evaluator = ReferenceEvaluator(made)
    plan = plan_of(evaluator)
    assert len(plan.live) == left
    assert evaluator.explain().count("the same as an earlier step") == len(plan.shared)


def test_outputs_of_equal_nodes_share_no_memory() -> None:
    made = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\ng (float[a] x) => (y, z) { y = Neg(x)  z = Neg(x) }')
    evaluator = ReferenceEvaluator(made)
    for _ in range(RUNS):
        y, z = evaluator.run(None, {"x": X[0, 0, 0]})
        y += 1
        np.testing.assert_array_equal(z, -X[0, 0, 0])
    assert evaluator.run(["z"], {"x": X[0, 0, 0]})[0].flags.writeable


def test_a_node_of_the_callers_is_run_each_time() -> None:
    from onnx.reference.op_run import OpRun

    calls = []

    class Neg(OpRun):
        def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
            calls.append(1)
            return (-x,)

    made = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\ng (float[a] x) => (y) { a = Neg(x)  b = Neg(x)  y = Add(a, b) }')
    ReferenceEvaluator(made, new_ops=[Neg]).run(None, {"x": X[0, 0, 0]})
    assert len(calls) == 2
