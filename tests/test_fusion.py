"""Chains that one step runs, beside the same nodes run one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

import numbaops
from numbaops import ReferenceEvaluator
from numbaops.engine.fusion import _Fused
from numbaops.kernels import products

RANDOM = np.random.default_rng(7)
COUNT, CHANNELS, SIZE = 12, 6, 20
X = RANDOM.standard_normal((2, CHANNELS, SIZE, SIZE)).astype(np.float32)
R = RANDOM.standard_normal((2, COUNT, SIZE, SIZE)).astype(np.float32)


def constant(*shape: int, low: float = -1.0) -> np.ndarray:
    return RANDOM.uniform(low, 1, shape).astype(np.float32)


CONSTANTS = {
    "w": constant(COUNT, CHANNELS, 3, 3),
    "g": constant(COUNT, CHANNELS // 2, 3, 3),
    "b": constant(COUNT),
    **{name: constant(COUNT, low=0.1) for name in ("scale", "shift", "mean", "var")},
    "factor": constant(COUNT, 1, 1),
    "summand": constant(1, COUNT, 1, 1),
    "number": constant(1),
    "plane": constant(SIZE, SIZE),
    "low": np.float32(0.2).reshape(()),
    "high": np.float32(0.7).reshape(1),
}

LINKS = {
    "bn": ("BatchNormalization", ["scale", "shift", "mean", "var"], {"epsilon": 0.01}),
    "mul": ("Mul", ["factor"], {}),
    "add": ("Add", ["summand"], {}),
    "scalar": ("Mul", ["number"], {}),
    "plane": ("Add", ["plane"], {}),
    "residual": ("Add", ["r"], {}),
    "sum": ("Sum", ["r"], {}),
    "relu": ("Relu", [], {}),
    "clip": ("Clip", ["low", "high"], {}),
    "floor": ("Clip", ["low"], {}),
    "ceiling": ("Clip", ["", "high"], {}),
}
GOES_IN = set(LINKS) - {"plane"}


def model(links: list[str], bias: bool = True, kind: int = 1, opset: int = 15, weights: str = "w", outputs: str = "") -> ModelProto:
    group = 2 if weights == "g" else 1
    nodes = [helper.make_node("Conv", ["x", weights, *["b"] * bias], ["v0"], pads=[1] * 4, group=group)]
    for number, link in enumerate(links):
        op_type, others, attributes = LINKS[link]
        nodes.append(helper.make_node(op_type, [f"v{number}", *others], [f"v{number + 1}"], **attributes))
    dtype = numbaops.element_type(kind).dtype
    names = {name for node in nodes for name in node.input} & set(CONSTANTS)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, None) for name in "xr"],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs.split() or [f"v{len(links)}"]],
        initializer=[numbaops.from_array(CONSTANTS[name].astype(dtype), name) for name in sorted(names)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def fused(evaluator: ReferenceEvaluator) -> int:
    """How many nodes went into a later one."""
    return len(evaluator._plan(tuple(evaluator.output_names_), ()).fused)


def both(made: ModelProto, x: np.ndarray, r: np.ndarray, **options: Any) -> tuple[Any, Any, int]:
    evaluator = ReferenceEvaluator(made, **options)
    one_by_one = evaluator.run(None, {"x": x, "r": r}, intermediate=True)
    results = [evaluator.run(None, {"x": x, "r": r})[0] for _ in range(10)]
    for again in results[1:]:
        np.testing.assert_array_equal(again, results[0])
    return results[0], one_by_one[evaluator.output_names_[0]], fused(evaluator)


CHAINS = [[first] for first in LINKS] + [list(pair) for pair in itertools.product(LINKS, repeat=2)]
CHAINS += [["bn", "mul", "add", "relu"], ["bn", "residual", "relu"], ["add", "bn", "sum", "clip", "relu"], ["residual", "bn", "relu"]]


@pytest.mark.parametrize("weights", ["w", "g"])
@pytest.mark.parametrize("links", CHAINS, ids="-".join)
def test_every_chain(links: list[str], weights: str) -> None:
    got, wanted, count = both(model(links, weights=weights), X, R)
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
    first = next((number for number, link in enumerate(links) if link not in GOES_IN), len(links))
    assert (count > 0) == (first > 0)


@pytest.mark.parametrize("links", [["relu"], ["residual", "clip"], ["bn", "relu"], ["mul", "residual"]], ids="-".join)
def test_exact_gives_what_the_nodes_give(links: list[str]) -> None:
    got, wanted, count = both(model(links), X, R, exact=True)
    np.testing.assert_array_equal(got, wanted)
    assert (count > 0) == (links[0] in ("relu", "residual"))


@pytest.mark.parametrize("links", [["bn", "residual", "relu"], ["relu"], ["mul"]], ids="-".join)
def test_other_types_and_shapes_go_one_by_one(links: list[str]) -> None:
    for x, r in (
        (X.astype(np.float64), R.astype(np.float64)),
        (X, R[:1]),
        (X, R[:, :1]),
        (X[:, :, :2, :2], R[:, :, :2, :2]),
        (X[:0], R[:0]),
    ):
        made = model(links)
        try:
            wanted = ReferenceEvaluator(made).run(None, {"x": x, "r": r}, intermediate=True)[f"v{len(links)}"]
        except numbaops.NumbaopsError as error:
            with pytest.raises(type(error)):
                ReferenceEvaluator(made).run(None, {"x": x, "r": r})
            continue
        evaluator = ReferenceEvaluator(made)
        for _ in range(3):
            (got,) = evaluator.run(None, {"x": x, "r": r})
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", [10, 16], ids=["float16", "bfloat16"])
def test_halves_are_rounded_once(kind: int) -> None:
    dtype = numbaops.element_type(kind).dtype
    made = model(["bn", "residual", "relu"], kind=kind, opset=22)
    got, wanted, count = both(made, X.astype(dtype), R.astype(dtype))
    assert count == 3
    assert both(made, X.astype(dtype), R.astype(dtype), exact=True)[2] == 0
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float32), wanted.astype(np.float32), rtol=2**-6, atol=0.05)


def test_values_that_others_take_stay() -> None:
    for outputs, count in (("v3", 3), ("v3 v1", 1), ("v3 v2", 2), ("v3 v0", 0)):
        evaluator = ReferenceEvaluator(model(["bn", "residual", "relu"], outputs=outputs))
        wanted = evaluator.run(None, {"x": X, "r": R}, intermediate=True)
        for name, got in zip(outputs.split(), evaluator.run(None, {"x": X, "r": R}), strict=True):
            np.testing.assert_allclose(got, wanted[name], rtol=2e-5, atol=2e-5)
        # what comes after a value that is wanted may still go in elsewhere; the convolution takes in what is before it
        assert fused(evaluator) <= count


def test_a_value_added_to_itself() -> None:
    made = model(["residual"])
    made.graph.node[1].input[1] = "v0"
    got, wanted, _ = both(made, X, R)
    np.testing.assert_array_equal(got, wanted)


def test_statistics_that_train_stay() -> None:
    made = model(["bn", "relu"])
    made.graph.node[1].attribute.append(helper.make_attribute("training_mode", 1))
    made.graph.node[1].output.extend(["m", "s"])
    got, wanted, count = both(made, X, R)
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
    assert count == 0


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 14])
def test_versions(opset: int) -> None:
    made = model(["bn", "relu"], opset=opset)
    if opset < 7:
        made.graph.node[1].attribute.append(helper.make_attribute("is_test", 1))
    if opset < 6:
        del made.graph.node[1].attribute[:]
        made.graph.node[1].attribute.extend([helper.make_attribute("is_test", 1), helper.make_attribute("consumed_inputs", [0] * 5)])
    got, wanted, count = both(made, X, R)
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)
    assert count == 2


def test_limits_that_are_attributes() -> None:
    made = model(["relu"], opset=6)
    made.graph.node[1].op_type = "Clip"
    made.graph.node[1].attribute.append(helper.make_attribute("max", 0.5))
    got, wanted, count = both(made, X, R)
    np.testing.assert_array_equal(got, wanted)
    assert count == 1


def test_errors_name_the_convolution() -> None:
    evaluator = ReferenceEvaluator(model(["bn", "relu"]))
    for _ in range(3):
        with pytest.raises(numbaops.NumbaopsError, match=r"Conv-11 .*channels"):
            evaluator.run(None, {"x": X[:, :5], "r": R})


@pytest.mark.skipif(not products.AVAILABLE, reason="without the JIT nothing is fused at run time")
def test_the_kernel_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = ReferenceEvaluator(model(["bn", "residual", "relu"]))
    evaluator.run(None, {"x": X, "r": R})
    (step,) = (step for step in evaluator._plan(("v3",), ()).steps if isinstance(step.fast.function, _Fused))
    assert step.inputs == ("x", "r")
    assert step.fast.function._kernel(X, R) is not None
    text = evaluator.explain()
    assert text.count("goes into a later step") == 3


SCALED = """g (%s[2,12,N,N] x) => (y) <float[12] s = {%s}, float[12,1,1] m = {%s}, float[1,12,1,1] a = {%s}, float[12] v = {%s}>
    { n = BatchNormalization(x, s, s, s, v)  p = Mul(m, n)  q = Add(p, a)  y = Relu(q) }"""


def scaled(kind: str = "float") -> ModelProto:
    numbers = ", ".join(str(number) for number in np.linspace(0.5, 2, 12))
    return parser.parse_model('<ir_version: 8, opset_import: ["" : 15]>' + SCALED % (kind, numbers, numbers, numbers, numbers))


@pytest.mark.parametrize("size", [2, 50])
def test_channels_are_scaled_without_a_convolution(size: int) -> None:
    x = RANDOM.standard_normal((2, 12, size, size)).astype(np.float32)
    x[0, 0, 0, 0] = np.nan
    evaluator = ReferenceEvaluator(scaled())
    wanted = evaluator.run(None, {"x": x}, intermediate=True)["y"]
    for _ in range(10):
        np.testing.assert_allclose(evaluator.run(None, {"x": x})[0], wanted, rtol=1e-5, atol=1e-5)
    assert fused(evaluator) == 3
    assert fused(ReferenceEvaluator(scaled(), exact=True)) == 0


def test_scaled_channels_of_other_inputs_go_one_by_one() -> None:
    evaluator = ReferenceEvaluator(scaled())
    for x in (RANDOM.standard_normal((1, 12, 300, 300)).astype(np.float32), RANDOM.standard_normal((12, 12, 300)).astype(np.float32)):
        wanted = evaluator.run(None, {"x": x}, intermediate=True)["y"]
        for _ in range(10):
            (got,) = evaluator.run(None, {"x": x})
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_models_of_older_tools_have_weights_of_nodes() -> None:
    """Weights that a node computes from constants are folded before."""
    made = model(["relu"])
    weights = numpy_helper.from_array(CONSTANTS["w"], "value")
    del made.graph.initializer[:]
    made.graph.initializer.append(numpy_helper.from_array(CONSTANTS["b"], "b"))
    made.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=weights))
    got, wanted, count = both(made, X, R)
    np.testing.assert_array_equal(got, wanted)
    assert count == 1


CHANGING = [
    "c = Conv(x, w)  n = Neg(c)  y = Relu(n)",
    "n = BatchNormalization(x, s, s, s, s)  r = Relu(n)  h = Shape(x)  z = ConstantOfShape(h)  y = Add(r, z)",
    "c = Conv(x, w)  n = BatchNormalization(c, s, s, s, s)  h = Shape(x)  z = ConstantOfShape(h)  d = Add(z, x)  y = Add(n, d)",
    "n = BatchNormalization(x, s, s, s, s)  c = Conv(n, w)  r = Relu(c)  h = Shape(x)  z = ConstantOfShape(h)  q = Add(z, r)  y = Relu(q)",
]


@pytest.mark.parametrize("text", CHANGING)
def test_variants_for_shapes_keep_the_chains(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are plans of plans: what stands for several nodes already is taken as it is."""
    monkeypatch.setattr("numbaops.engine.chains.LARGE", 1)
    numbers = ", ".join(str(number) for number in np.linspace(0.5, 2, 12))
    weights = ", ".join(str(number) for number in np.linspace(-1, 1, 144))
    constants = f"<float[12] s = {{{numbers}}}, float[12,12,1,1] w = {{{weights}}}>"
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 15]> g (float[N,12,M,M] x) => (y) {constants} {{ {text} }}')
    evaluator = ReferenceEvaluator(made)
    for size in (20, 24):
        x = RANDOM.standard_normal((2, 12, size, size)).astype(np.float32)
        wanted = evaluator.run(None, {"x": x}, intermediate=True)["y"]
        for _ in range(10):
            np.testing.assert_allclose(evaluator.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-4)


def one_conv(links: str, constants: str, kind: str = "float", opset: int = 15) -> ModelProto:
    weights = ", ".join(["1"] * 16)
    text = f"g ({kind}[1,4,40,40] x) => (y) <{kind}[4,4,1,1] w = {{{weights}}}, {constants}> {{ c = Conv(x, w)  {links} }}"
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')


def assert_as_one_by_one(made: ModelProto, x: np.ndarray, **options: Any) -> None:
    evaluator = ReferenceEvaluator(made, **options)
    wanted = evaluator.run(None, {"x": x}, intermediate=True)["y"]
    for _ in range(10):
        (got,) = evaluator.run(None, {"x": x})
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=1e-5)


@pytest.mark.parametrize("links", [("1e30", "1e10"), ("1e-30", "1e-12"), ("1e-38", "1e-20")], ids=" ".join)
def test_scales_that_leave_the_range_of_the_weights(links: tuple[str, str]) -> None:
    """The values between are finite and exact, so what goes into weights must be, too."""
    x = np.full((1, 4, 40, 40), 1e-10 if links[0] == "1e30" else 1e30, np.float32)
    made = one_conv("a = Mul(c, k)  y = Mul(a, m)", "float[4,1,1] k = {0, 0, 0, 0}, float[4,1,1] m = {0, 0, 0, 0}")
    for name, number in zip("km", links, strict=True):  # onnx 1.18 does not read such numbers
        (tensor,) = (each for each in made.graph.initializer if each.name == name)
        tensor.CopyFrom(numpy_helper.from_array(np.full((4, 1, 1), float(number), np.float32), name))
    assert_as_one_by_one(made, x)


@pytest.mark.parametrize("limits", ["nan, one", "one, nan", "nan", "nan, nan"])
@pytest.mark.parametrize("exact", [False, True])
def test_limits_that_are_none(limits: str, exact: bool) -> None:
    made = one_conv(f"y = Clip(c, {limits})", "float one = {1}, float nan = {0}")
    for tensor in made.graph.initializer:
        if tensor.name == "nan":
            tensor.CopyFrom(numpy_helper.from_array(np.array(np.nan, np.float32), "nan"))
    assert_as_one_by_one(made, RANDOM.standard_normal((1, 4, 40, 40)).astype(np.float32), exact=exact)


@pytest.mark.parametrize("links", ["y = Clip(c)", "y = Clip(c, zero)", "y = Clip(c, , zero)", "y = Relu(c)"])
@pytest.mark.parametrize("exact", [False, True])
def test_halves_that_overflow(links: str, exact: bool) -> None:
    """Missing limits are those of the type; and nothing warns."""
    made = one_conv(links, "float16 zero = {0}", "float16")
    assert_as_one_by_one(made, np.full((1, 4, 40, 40), 60000, np.float16), exact=exact)


@pytest.mark.parametrize("kind", ["double", "float16", "int32"])
@pytest.mark.parametrize("op_type", ["Add", "Mul"])
def test_constants_of_another_type_are_refused(op_type: str, kind: str) -> None:
    made = one_conv(f"y = {op_type}(c, k)", f"{kind}[4,1,1] k = {{1, 2, 3, 4}}")
    evaluator = ReferenceEvaluator(made)
    for _ in range(3):
        with pytest.raises(numbaops.InvalidTypeError, match="the same type"):
            evaluator.run(None, {"x": np.ones((1, 4, 40, 40), np.float32)})


def test_large_halves_scaled_do_not_warn() -> None:
    values = "float16[4] s = {10000, 1, 1, 1}, float16[4] b = {0, 0, 0, 0}, float16[4] v = {1, 1, 1, 1}"
    text = f"g (float16[1,4,100,100] x) => (y) <{values}> {{ y = BatchNormalization(x, s, b, b, v) }}"
    evaluator = ReferenceEvaluator(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 15]> {text}'))
    (y,) = evaluator.run(None, {"x": np.full((1, 4, 100, 100), 10000, np.float16)})
    assert np.isinf(y[0, 0]).all()
    assert np.isfinite(y[0, 1]).all()
