"""Folded models: what is in them, what is left and why, and that they give the same to the bit."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, parser

import numbaops
from drawn.graphs import draw
from numbaops import ELEMENT_TYPES, ReferenceEvaluator
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError
from numbaops.rewrite import evaluation
from numbaops.rewrite.comparison import same_bits
from numbaops.rewrite.fold import Folded
from numbaops.rewrite.folding import GROWN
from numbaops.rewrite.names import bodies

F = np.float32


def parsed(text: str, imports: str = '"" : 21', ir_version: int = 10, **initializers: Any) -> ModelProto:
    model = parser.parse_model(f"<ir_version: {ir_version}, opset_import: [{imports}]> g {text}")
    model.graph.initializer.extend(numbaops.from_array(np.asarray(value), name) for name, value in initializers.items())
    return model


def operators(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def reasons(folded: Folded) -> dict[str, str]:
    """By operator, why it was left."""
    return {fact.op_type: fact.reason for fact in folded.facts if fact.what == "left"}


def run(model: ModelProto, **feeds: Any) -> list[Any]:
    return ReferenceEvaluator(model, exact=True).run(None, feeds)


def checked(model: ModelProto, feeds: dict[str, Any] | None = None, *, valid: bool = True, **options: Any) -> Folded:
    """Folds a model; it is left as it is, the result is valid, gives the same to the bit, and has nothing more to fold."""
    before = model.SerializeToString(deterministic=True)
    folded = numbaops.fold(model, **options)
    assert model.SerializeToString(deterministic=True) == before
    if valid:
        onnx.checker.check_model(folded.model)
    again = numbaops.fold(folded.model, **options)
    assert again.model == folded.model
    assert {fact.what for fact in again.facts} <= {"left"}
    if feeds is not None:
        assert same_bits(run(model, **feeds), run(folded.model, **feeds))
    return folded


X = np.arange(6, dtype=F).reshape(2, 3)


def test_what_depends_on_no_input_is_stored_and_what_led_there_goes() -> None:
    model = parsed(
        """(float[2, 3] x) => (float[2, 3] y) {
            two = Constant <value_float = 2.0> ()
            root = Sqrt(two)
            sum = Add(root, w)
            unused = Neg(sum)
            y = Mul(x, sum)
        }""",
        w=np.ones(3, F),
        nobody=np.ones(5, F),
    )
    folded = checked(model, {"x": X})
    assert operators(folded.model) == ["Mul"]
    assert [each.name for each in folded.model.graph.initializer] == ["sum"]
    assert folded.nodes == (5, 1)
    assert Counter(fact.what for fact in folded.facts) == {"folded": 1, "removed": 5}


def test_names_of_inputs_and_outputs_stay() -> None:
    model = parsed(
        """(float[2, 3] x, float[1] unused) => (float[2, 3] same, float[2, 3] x, float[3] known, float[3] again, float[3] w) {
            same = Identity(x)
            known = Neg(w)
            again = Identity(known)
        }""",
        w=np.arange(3, dtype=F),
    )
    folded = checked(model, {"x": X, "unused": np.zeros(1, F)})
    for values in ("input", "output"):
        assert list(getattr(folded.model.graph, values)) == list(getattr(model.graph, values))
    assert Counter(operators(folded.model)) == {"Identity": 2, "Constant": 1}


def test_metadata_and_opsets_stay() -> None:
    model = parsed("(float[2] x) => (float[2] y) { a = Neg(w)  y = Add(x, a) }", '"" : 17, "else.where" : 3', w=np.ones(2, F))
    model.producer_name, model.doc_string, model.graph.doc_string = "me", "of the model", "of the graph"
    model.metadata_props.add(key="who", value="me")
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2]))
    folded = checked(model)
    for name in ("ir_version", "opset_import", "producer_name", "doc_string", "metadata_props"):
        assert getattr(folded.model, name) == getattr(model, name)
    assert folded.model.graph.doc_string == "of the graph"


@pytest.mark.parametrize("kind", ELEMENT_TYPES, ids=str)
def test_every_element_type(kind: Any) -> None:
    values = np.arange(15).reshape(3, 5)
    if kind.kind == "string":
        array = np.array([f"text {value}" for value in values.flat], object).reshape(3, 5)
    else:
        array = (
            values.astype(np.uint8).astype(kind.dtype) if kind.bits >= 8 else (values % (1 << kind.bits)).astype(np.uint8).view(kind.dtype)
        )
    tensor = numbaops.from_array(array, "w")
    nodes = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("If", ["c"], ["y"])]
    for name in ("then_branch", "else_branch"):
        inner = [helper.make_node("Identity", ["t"], [f"{name}_out"])]
        body = helper.make_graph(inner, name, [], [helper.make_tensor_value_info(f"{name}_out", kind.code, None)])
        nodes[1].attribute.append(helper.make_attribute(name, body))
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", kind.code, [5, 3])], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    folded = checked(model, {"c": np.array(True)}, valid=False)
    (found,) = folded.model.graph.initializer
    assert found.data_type == kind.code
    if kind.bits:
        assert len(found.raw_data) == kind.packed_size(15)


def test_sparse_initializers_are_constants_too() -> None:
    model = parsed("(float[4] x) => (float[4] y) { a = Neg(s)  y = Add(x, a) }")
    sparse = helper.make_sparse_tensor(numbaops.from_array(np.array([3], F), "s"), numbaops.from_array(np.array([2])), [4])
    model.graph.sparse_initializer.append(sparse)
    folded = checked(model, {"x": np.ones(4, F)})
    assert operators(folded.model) == ["Add"]
    assert not folded.model.graph.sparse_initializer


# ------------------------------------------------------------------------------------------------- what makes much of little

SYMBOLIC = {
    "ConstantOfShape": "a = ConstantOfShape <value = float[1] {2.0}> (shape)",
    "Expand": "a = Expand(one, shape)",
    "Tile": "b = Reshape(one, eleven)  a = Tile(b, shape)",
    "EyeLike": "b = ConstantOfShape(shape)  a = EyeLike(b)",
    "Range": "c = Range(start, stop, step)  b = Cast <to = 1> (c)  a = Reshape(b, shape)",
}


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("size", [2, 100])
def test_stays_where_it_is_smaller(name: str, size: int) -> None:
    model = parsed(
        f"(float[1, 1] x) => (float[n, n] y) {{ {SYMBOLIC[name]}  y = Add(x, a) }}",
        shape=np.array([size, size]),
        one=np.ones(1, F),
        eleven=np.array([1, 1]),
        start=np.array(0),
        stop=np.array(size * size),
        step=np.array(1),
    )
    feeds = {"x": np.ones((1, 1), F)}
    folded = checked(model, feeds)
    small = size == 2
    assert (name in operators(folded.model)) != small
    assert small or (reasons(folded)[name] == "smaller as it is" and folded.model.ByteSize() <= model.ByteSize())
    assert operators(checked(model, feeds, dense=True).model) == ["Add"]


def test_what_follows_from_it_is_known_all_the_same() -> None:
    model = parsed(
        """(float[2] x) => (float[2] y) {
            a = ConstantOfShape(shape)
            b = Neg(a)
            s = Shape(b)
            f = Cast <to = 1> (s)
            y = Add(x, f)
        }""",
        shape=np.array([1000, 1000]),
    )
    assert operators(checked(model, {"x": np.ones(2, F)}).model) == ["Add"]


def test_weights_that_are_stored_in_fewer_bits_stay_so() -> None:
    model = parsed(
        "(float[1, 64] x) => (float[1, 64] y) { w = DequantizeLinear(q, s)  y = MatMul(x, w) }",
        q=np.ones((64, 64), np.int8),
        s=np.array(0.5, F),
    )
    assert reasons(checked(model, {"x": np.ones((1, 64), F)})) == {"DequantizeLinear": "smaller as it is"}


# ------------------------------------------------------------------------------------------------------------------- limits

PRODUCTS = "(float[1] x) => (float[n] y) { a = Concat <axis = 0> (w, w)  b = Neg(w)  c = Concat <axis = 0> (a, b, w)  y = Mul(x, c) }"


@pytest.mark.parametrize("limit", ["max_tensor", "max_growth"])
@pytest.mark.parametrize("value", [0, 399, 800, 1300, 5000])
def test_limits(limit: str, value: int) -> None:
    model = parsed(PRODUCTS, w=np.arange(100, dtype=F))
    folded = checked(model, {"x": np.ones(1, F)}, **{limit: value})
    assert folded.model.ByteSize() <= model.ByteSize() + (value if limit == "max_growth" else 5000) + 100
    assert ("Concat" in operators(folded.model)) == (value < (1600 if limit == "max_tensor" else 1100))
    left = {fact.reason for fact in folded.facts if fact.what == "left"}
    assert left <= {limit}
    kept = [entry.key for entry in folded.model.metadata_props]
    assert kept == ([GROWN] if limit == "max_growth" and left else [])


@pytest.mark.parametrize("version", [3, 8])
@pytest.mark.parametrize("limit", [0, 1000, 20000])
def test_names_and_declarations_count_as_growth(version: int, limit: int) -> None:
    """Of many small values they take more than the elements."""
    names = [f"value_{number}" for number in range(300)]
    nodes = " ".join(f"{name} = Sub(c, d) " for name in names)
    model = parsed(
        f"(int64[2] x) => (int64[n] y) {{ {nodes} y = Concat<axis = 0>({', '.join(names)}, x) }}", c=np.array([2, 0]), d=np.array([1, 1])
    )
    model.ir_version = version
    if version == 3:
        model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.INT64, [2]) for name in "cd")
    folded = checked(model, {"x": np.array([1, 2])}, max_growth=limit)
    assert folded.model.ByteSize() <= model.ByteSize() + limit + 60  # and the note of it
    assert {fact.reason for fact in folded.facts if fact.what == "left"} <= {"max_growth"}
    assert any(fact.what == "folded" for fact in folded.facts) == (limit > 0)


def test_a_larger_limit_later_goes_on_from_there() -> None:
    model = parsed(PRODUCTS, w=np.arange(100, dtype=F))
    small = numbaops.fold(model, max_growth=300)
    assert "Concat" in operators(small.model)
    assert operators(numbaops.fold(small.model, max_growth=3000).model) == ["Mul"]


def test_what_would_be_huge_is_not_even_computed() -> None:
    model = parsed(
        """(float[1] x) => (float[n] y) {
            a = Tile(w, big)
            b = Pad(w, wide)
            c = Range(zero, far, one)
            d = Concat <axis = 0> (a, b, c)
            y = Mul(x, d)
        }""",
        w=np.ones(1, F),
        big=np.array([1 << 50]),
        wide=np.array([0, 1 << 50]),
        zero=np.array(0, F),
        far=np.array(1e15, F),
        one=np.array(1, F),
    )
    folded = checked(model)
    assert set(reasons(folded).values()) == {"max_tensor"}


@pytest.mark.parametrize("options", [{"max_growth": -1}, {"max_tensor": 1.5}, {"check": True}], ids=str)
def test_wrong_limits(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="allowed: an integer from 0 on"):
        numbaops.fold(parsed("(float[1] x) => (float[1] y) { y = Neg(x) }"), **options)


def test_only_models() -> None:
    with pytest.raises(InvalidTypeError):
        numbaops.fold(3)


# ------------------------------------------------------------------------------------------------------------ what is left, and why


def test_random_and_unknown_nodes_stay() -> None:
    model = parsed(
        """(float[2] x) => (float[2] y) {
            r = RandomNormal <shape = [2]> ()
            u = my.Unknown(w)
            unused = my.Effect(x)
            also = RandomUniform <shape = [2]> ()
            sum = Add(r, u)
            y = Add(x, sum)
        }""",
        '"" : 21, "my" : 1',
        w=np.ones(2, F),
    )
    folded = checked(model)
    assert operators(folded.model) == ["RandomNormal", "Unknown", "Effect", "Add", "Add"]
    assert reasons(folded) == {"RandomNormal": "random", "my.Unknown": "unknown operator", "my.Effect": "side effect"}


def test_what_fails_stays_for_the_run_to_say() -> None:
    model = parsed("(float[2] x) => (float[2] y) { a = Reshape(w, s)  y = Add(x, a) }", w=np.ones(2, F), s=np.array([3]))
    folded = checked(model)
    assert reasons(folded) == {"Reshape": "fails"}
    with pytest.raises(ValueError, match="as many elements"):
        run(folded.model, x=np.ones(2, F))


def test_sequences_are_known_but_not_stored() -> None:
    model = parsed(
        """(int64 i) => (float[2] y, float[2] z) {
            s = SequenceConstruct(w, w)
            y = SequenceAt(s, i)
            z = SequenceAt(s, one)
        }""",
        w=np.ones(2, F),
        one=np.array(1),
    )
    folded = checked(model, {"i": np.array(0)})
    assert sorted(operators(folded.model)) == ["Constant", "SequenceAt", "SequenceConstruct"]
    assert reasons(folded) == {"SequenceConstruct": "no tensor"}


LOOP = """(float[1] x) => (float[1] y) {
    sum = Loop (M, go, w) <body = b (int64 i, bool c, float[1] s) => (bool d, float[1] t) { d = Identity(c)  t = Add(s, s) }>
    y = Add(x, sum)
}"""


@pytest.mark.parametrize(("trips", "reason"), [(5, None), (evaluation.MOST_TRIPS + 1, "loop")])
def test_loops_run_ahead_if_they_are_short(trips: int, reason: str | None) -> None:
    folded = checked(parsed(LOOP, M=np.array(trips), go=np.array(True), w=np.ones(1, F)))
    assert reasons(folded).get("Loop") == reason
    assert ("Loop" in operators(folded.model)) == (reason is not None)


def test_a_default_is_no_constant_but_an_initializer_of_old_is() -> None:
    text = "(float[2] x, float[2] w) => (float[2] y) { a = Neg(w)  y = Add(x, a) }"
    feeds = {"x": np.ones(2, F)}
    new = checked(parsed(text, w=np.ones(2, F)), feeds)
    assert operators(new.model) == ["Neg", "Add"]
    assert same_bits(run(new.model, x=feeds["x"], w=np.full(2, 5, F)), [np.full(2, -4, F)])
    old = checked(parsed(text, '"" : 8', 3, w=np.ones(2, F)), feeds)
    assert operators(old.model) == ["Add"]
    assert [value.name for value in old.model.graph.input] == ["x", "a"]


def test_declared_shapes_of_inputs() -> None:
    model = parsed(
        """(float[2, 3] x, float[n, 3] z) => (float y, float v) {
            s = Shape(x)
            n = Size(x)
            t = Shape(z)
            f = Cast <to = 1> (s)
            g = Cast <to = 1> (n)
            h = Cast <to = 1> (t)
            a = ReduceSum <keepdims = 0> (f)
            y = Add(a, g)
            v = ReduceSum <keepdims = 0> (h)
        }"""
    )
    folded = checked(model, {"x": X, "z": X})
    assert operators(folded.model) == ["Constant", "Shape", "Cast", "ReduceSum"] or operators(folded.model)[:3] == [
        "Shape",
        "Cast",
        "Constant",
    ]


# ------------------------------------------------------------------------------------------------------ bodies and functions

INLINED = """(float[2] x, bool c) => (float[2] y, float[2] z, float[2] q) {
    cond = Constant <value_int = 1> ()
    yes = Cast <to = 9> (cond)
    p = Neg(x)
    y, z = If (yes) <
        then_branch = t () => (float[2] a, float[2] p) { h = Add(p, w)  a = Mul(h, h) },
        else_branch = e () => (float[2] a2, float[2] a3) { h = my.Unknown(p)  a2 = Neg(h)  a3 = Neg(h) }
    >
    m = Abs(y)
    q = If (c) <
        then_branch = t2 () => (float[2] o) { h = Add(m, w)  o = Add(h, z) },
        else_branch = e2 () => (float[2] o2) { h = Sub(m, w)  o2 = Add(h, z) }
    >
}"""


def test_an_if_with_a_known_condition_gives_way_to_its_branch() -> None:
    model = parsed(INLINED, '"" : 21, "my" : 1', w=np.ones(2, F))
    folded = numbaops.fold(model)
    onnx.checker.check_model(folded.model)
    assert numbaops.fold(folded.model).model == folded.model
    assert operators(folded.model) == ["Neg", "Add", "Mul", "Identity", "Abs", "If"]
    names = [name for node in folded.model.graph.node for name in node.output]
    assert "h" not in names
    x = np.array([1, 2], F)
    known = parsed(INLINED.replace("my.Unknown", "Abs"), w=np.ones(2, F))
    for c in (True, False):
        assert same_bits(run(known, x=x, c=np.array(c)), run(folded.model, x=x, c=np.array(c)))


def test_an_inlined_branch_brings_its_initializers() -> None:
    for ir_version, opset in ((10, 21), (3, 8)):
        model = parsed("(float[2] x) => (float[2] y) { }", f'"" : {opset}', ir_version)
        inner = helper.make_graph(
            [helper.make_node("Add", ["x", "k"], ["o"])],
            "b",
            [],
            [helper.make_tensor_value_info("o", 1, [2])],
            [numbaops.from_array(np.array([1, 2], F), "k")],
        )
        model.graph.node.append(helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner))
        model.graph.initializer.append(numbaops.from_array(np.array(True), "yes"))
        if ir_version == 3:
            model.graph.input.append(helper.make_tensor_value_info("yes", TensorProto.BOOL, []))
        folded = numbaops.fold(model)
        onnx.checker.check_model(folded.model)
        assert operators(folded.model) == ["Add"]
        assert same_bits(run(folded.model, x=np.ones(2, F)), [np.array([2, 3], F)])


def test_bodies_are_folded_inside() -> None:
    model = parsed(
        """(float[2] x, int64 M) => (float[2] y) {
            k = Neg(w)
            y = Loop (M, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
                two = Constant <value_float = 2.0> ()
                r = Sqrt(two)
                f = Mul(k, r)
                d = Identity(c)
                t = Add(s, f)
            }>
        }""",
        w=np.arange(2, dtype=F),
    )
    folded = checked(model, {"x": np.ones(2, F), "M": np.array(3)})
    assert operators(folded.model) == ["Loop"]
    body = next(attribute.g for attribute in folded.model.graph.node[0].attribute)
    assert [node.op_type for node in body.node] == ["Identity", "Add"]
    assert [tensor.name for tensor in body.initializer] == ["f"]
    assert not folded.model.graph.initializer


FUNCTIONS = """(float[2] x) => (float[2] y) {
    k = f.Twice(w)
    s = f.Scaled <by = 3.0> (x)
    y = Add(s, k)
}
<domain: "f", opset_import: ["" : 21]>
Twice (u) => (v) { v = Add(u, u) }
<domain: "f", opset_import: ["" : 21]>
Scaled <by: float> (u) => (v) {
    by = Constant <value_float: float = @by> ()
    two = Constant <value_float = 2.0> ()
    r = Sqrt(two)
    n = Neg(r)
    a = Mul(u, by)
    v = Mul(a, n)
}"""


def test_functions_are_folded_inside_and_go_when_nothing_calls_them() -> None:
    model = parsed(FUNCTIONS, '"" : 21, "f" : 1', w=np.ones(2, F))
    folded = checked(model, {"x": np.ones(2, F)})
    assert operators(folded.model) == ["Scaled", "Add"]
    (function,) = folded.model.functions
    assert function.name == "Scaled"
    assert Counter(node.op_type for node in function.node) == {"Constant": 2, "Mul": 2}


def test_what_trains_is_no_constant() -> None:
    model = parsed(
        "(float[2] x) => (float[2] y) { a = Neg(w)  b = Neg(v)  c = Add(a, b)  y = Add(x, c) }", w=np.ones(2, F), v=np.ones(2, F)
    )
    training = model.training_info.add()
    training.algorithm.name = "a"
    training.algorithm.node.append(helper.make_node("Sub", ["w", "y"], ["new"]))
    training.algorithm.output.append(helper.make_tensor_value_info("new", 1, [2]))
    training.update_binding.add(key="w", value="new")
    folded = numbaops.fold(model)
    assert operators(folded.model) == ["Neg", "Add", "Add"]
    assert [tensor.name for tensor in folded.model.graph.initializer] == ["w", "b"]


# ------------------------------------------------------------------------------------------------------------------- checking


def test_check_finds_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parsed("(float[n] x) => (float[n] y) { a = Neg(w)  y = Add(x, a) }", w=np.ones(1, F))
    assert operators(numbaops.fold(model, check=3, dims=["n=4"]).model) == ["Add"]
    random = parsed("(float[n] x) => (float[n] y) { a = RandomNormalLike(x)  y = Add(x, a) }")
    with pytest.raises(EvaluationError, match="check: output 'y' differs in run 1 of 2"):
        numbaops.fold(random, check=2)
    wrong = parsed("(float[2] x) => (float[2] y) { a = Reshape(x, s)  y = Add(x, a) }", s=np.array([3]))
    with pytest.raises(EvaluationError, match="before it was rewritten, fails on drawn inputs"):
        numbaops.fold(wrong, check=1)


SAME = [
    (np.zeros(2), np.zeros(2), True),
    (np.zeros(2), -np.zeros(2), False),
    (np.array(np.nan), np.array(np.nan), True),
    (np.array(np.nan), np.array(-np.nan), False),
    (np.zeros(2, F), np.zeros(2), False),
    (np.zeros(2), np.zeros((1, 2)), False),
    (np.array(["a"], object), np.array(["a"], object), True),
    (np.array(["a"], object), np.array(["b"], object), False),
    ([np.zeros(1)], [np.zeros(1)], True),
    ([np.zeros(1)], [], False),
    (None, None, True),
    (None, np.zeros(1), False),
    ({"a": 1.0}, {"a": 1.0}, True),
    ({"a": 1.0}, {"b": 1.0}, False),
]


@pytest.mark.parametrize(("one", "other", "same"), SAME, ids=str)
def test_same_bits(one: Any, other: Any, same: bool) -> None:
    assert same_bits(one, other) == same


# ------------------------------------------------------------------------------------------------------------- many models


def some_inputs_known(rng: np.random.Generator, model: ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """Makes constants of some inputs; returns the others."""
    left = {}
    for name, value in feeds.items():
        if rng.random() < 0.5:
            left[name] = value
            continue
        model.graph.initializer.append(numbaops.from_array(value, name))
        position = next(index for index, each in enumerate(model.graph.input) if each.name == name)
        del model.graph.input[position]
    return left


def check_drawn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, feeds = draw(rng)
    feeds = some_inputs_known(rng, model, feeds)
    try:
        run(model, **feeds)
    except Exception:  # an index that is a constant now may be wrong
        return
    limits = [{"max_growth": int(rng.integers(0, 200))}, {"max_tensor": int(rng.integers(0, 60))}]
    for options in ({}, {"dense": True}, *limits):
        checked(model, feeds, **options)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(40))
def test_drawn_graphs(seed: int) -> None:
    check_drawn(seed)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_many_drawn_graphs() -> None:
    for seed in range(1000, 2000):
        check_drawn(seed)


def as_value(value: Any) -> Any:
    if value is None or isinstance(value, list):
        return value
    return numbaops.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def check_case(case: Any, known: bool) -> None:
    """A case of ONNX's suite, with its inputs given or known."""
    model = ModelProto()
    model.CopyFrom(case.model)
    given = [as_value(value) for value in case.data_sets[0][0]]
    feeds = dict(zip([value.name for value in model.graph.input], given, strict=True))
    if known:
        if not all(isinstance(value, np.ndarray) for value in given):
            return
        model.graph.initializer.extend(numbaops.from_array(value, name) for name, value in feeds.items())
        del model.graph.input[:]
        model.ir_version = max(4, model.ir_version)
        feeds = {}
    for dense in (False, True):
        checked(model, None if "bernoulli" in case.name else feeds, valid=False, dense=dense)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("known", [False, True], ids=["fed", "known"])
def test_some_cases_of_onnx(node_cases: list[Any], known: bool) -> None:
    for case in node_cases[::60]:
        check_case(case, known)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("known", [False, True], ids=["fed", "known"])
def test_every_case_of_onnx(node_cases: list[Any], known: bool) -> None:
    wrong = {}
    for case in node_cases:
        try:
            check_case(case, known)
        except Exception as error:  # all are tried, then those that failed are named
            wrong[case.name] = f"{type(error).__name__}: {error}"[:200]
    assert wrong == {}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
def test_every_model_of_onnx() -> None:
    """Those that are stored in files, on the inputs that are stored beside them, and networks with light weights."""
    from onnx.backend.test.loader import load_model_tests

    from numbaops.cli.inputs import collect, declared_inputs

    kinds = ("simple", "pytorch-converted", "pytorch-operator")
    folders = [Path(case.model_dir) for kind in kinds for case in load_model_tests(kind=kind) if case.model_dir]
    assert len(folders) > 100
    for folder in folders:
        model = onnx.load(folder / "model.onnx")
        if any(node.op_type == "Gradient" for node in model.graph.node):  # which nobody implements
            continue
        feeds, _ = collect(declared_inputs(model), source=folder / "test_data_set_0", files=(), sizes=(), seed=0)
        checked(model, feeds, valid=False)
    for path in (Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"):
        numbaops.fold(path, check=1)


def loops(outer: str, start: str, body: str) -> ModelProto:
    """A model with ``outer`` and then a Loop of three trips with the states ``start``."""
    return parsed(f"(float[3] x, bool c) => (float[3] r) {{ n = Constant<value_int=3>() {outer} r = Loop(n, c, {start})<body = {body}> }}")


CAPTURES = {
    "an Identity": loops(
        "y = Identity(x) z = Neg(x)", "z", "b (int64 i, bool cc, float[3] x) => (bool co, float[3] xo) { co = Identity(cc) xo = Add(x, y) }"
    ),
    "an Identity, two bodies deep": loops(
        "y = Identity(x) z = Neg(x)",
        "z",
        "b (int64 i, bool cc, float[3] s) => (bool co, float[3] o) { co = Identity(cc) t = Abs(s) o = If(cc)"
        "<then_branch = t () => (float[3] p) { x = Neg(t) p = Add(x, y) }, else_branch = e () => (float[3] q) { q = Neg(y) }> }",
    ),
    "an output of an If": parsed(
        """(float[3] x, bool c) => (float[3] q) {
            t = Constant<value = bool {1}>() n = Constant<value_int=2>()
            r, s = If(t)<
                then_branch = a () => (float[3] p, float[3] o) { o = Neg(x) p = Loop(n, c, x)<
                    body = b (int64 i, bool cc, float[3] s) => (bool co, float[3] z) { co = Identity(cc) z = Add(s, o) }> },
                else_branch = e () => (float[3] u, float[3] v) { u = Identity(x) v = Neg(x) }>
            q = Add(r, s) }"""
    ),
    "an output of an If, nodes inside": parsed(
        """(float[3] x, bool c) => (float[3] q) {
            t = Constant<value = bool {1}>()
            r, s = If(t)<
                then_branch = a () => (float[3] p, float[3] o) { o = Neg(x) p = If(c)<
                    then_branch = f () => (float[3] z) { s = Neg(x) z = Add(s, o) }, else_branch = g () => (float[3] y) { y = Abs(o) }> },
                else_branch = e () => (float[3] u, float[3] v) { u = Identity(x) v = Neg(x) }>
            q = Add(r, s) }"""
    ),
    "a later constant": parsed(
        """(float[3] x, bool c) => (float[3] r) {
            u = If(c)<then_branch = t () => (float[3] o) { k = Neg(x) o = Abs(k) }, else_branch = e () => (float[3] p) { p = Neg(x) }>
            w = Constant<value_floats = [1., 2., 4.]>() k = Neg(w) r = Add(u, k) }"""
    ),
    "a later constant output": parsed(
        """(float[3] x, bool c) => (float[3] u, float[3] k) {
            u = If(c)<then_branch = t () => (float[3] o) { k = Neg(x) o = Abs(k) }, else_branch = e () => (float[3] p) { p = Neg(x) }>
            w = Constant<value_floats = [1., 2., 4.]>() k = Identity(w) }"""
    ),
}


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("what", CAPTURES)
def test_a_name_that_comes_into_a_body_is_no_other_value_there(what: str, c: bool) -> None:
    model = CAPTURES[what]
    folded = checked(model, {"x": np.array([1, -2, 3], F), "c": np.array(c)})
    outside = {name for node in folded.model.graph.node for name in node.output} | {x.name for x in folded.model.graph.initializer}

    def inside(nodes: Any) -> list[str]:
        return [name for node in nodes for body in bodies(node) for one in body.node for name in (*one.output, *inside([one]))]

    assert not outside.intersection(inside(folded.model.graph.node))


def test_values_that_what_trains_takes_keep_their_names() -> None:
    model = parsed("(float[3] x, float[3] w) => (float[3] r) { y = Add(x, w) i = Identity(y) r = Neg(i) }")
    model.graph.initializer.append(numbaops.from_array(np.ones(3, F), "w"))
    algorithm = parser.parse_graph("a () => (float[3] nw) { nw = Sub(w, i) }")
    model.training_info.add(algorithm=algorithm).update_binding.add(key="w", value="nw")
    folded = checked(model, {"x": np.ones(3, F)}, valid=False)
    assert operators(folded.model) == ["Add", "Identity", "Neg"]


def annotated(text: str, of: str, **names: str) -> ModelProto:
    model = parsed(text, s0=np.array(2, F), z0=np.array(3, np.uint8))
    note = model.graph.quantization_annotation.add(tensor_name=of)
    for key, value in names.items():
        note.quant_parameter_tensor_names.add(key=key, value=value)
    return model


@pytest.mark.parametrize(
    ("text", "of", "scale", "kept"),
    [
        ("(float[3] x) => (float[3] r) { i = Identity(x) r = Neg(i) }", "i", "s0", {"s0", "z0"}),
        ("(float[3] x) => (float[3] r) { i = Abs(x) r = Neg(i) s = Neg(s0) }", "i", "s", {"s", "z0"}),
        ("(float[3] x) => (float[3] r) { i = Abs(x) r = Neg(x) s = Neg(s0) }", "i", "s", set()),
    ],
)
def test_quantization_annotations(text: str, of: str, scale: str, kept: set[str]) -> None:
    folded = checked(annotated(text, of, SCALE_TENSOR=scale, ZERO_POINT_TENSOR="z0"), {"x": np.ones(3, F)})
    assert [one.tensor_name for one in folded.model.graph.quantization_annotation] == ([of] if kept else [])
    assert {one.name for one in folded.model.graph.initializer} == kept


@pytest.mark.parametrize("value", ["\u00b2", "9" * 5000, "-1", "", "\u0663"], ids=["power", "long", "negative", "empty", "arabic"])
def test_what_is_no_growth(value: str) -> None:
    model = parsed("(float[3] x) => (float[3] r) { s = Neg(k) r = Add(x, s) }", k=np.ones(3, F))
    model.metadata_props.add(key=GROWN, value=value)
    assert operators(checked(model).model) == ["Add"]


@pytest.mark.parametrize("what", ["f", "floats"])
def test_a_nan_keeps_its_payload(what: str) -> None:
    model = parsed("(float[1] x) => (float[1] r) { r = Add(x, k) }")
    payload = b"\x0a\x01\x6b\x22\x08Constant"
    nan = b"\x01\x00\x80\x7f"
    one, list_of_one = b"\x0a\x0bvalue_float\x15" + nan + b"\xa0\x01\x01", b"\x0a\x0cvalue_floats\x3a\x04" + nan + b"\xa0\x01\x06"
    attribute = one if what == "f" else list_of_one
    node = onnx.NodeProto.FromString(b"\x12" + payload[1:3] + payload[3:] + b"\x2a" + bytes([len(attribute)]) + attribute)
    model.graph.node.insert(0, node)
    assert nan in model.SerializeToString()
    assert nan in checked(model).model.SerializeToString()


LARGE = {
    "Add": "g = Add(col, row)",
    "Add of generators": "s = Constant<value_ints = [20000, 1]>() z = Constant<value_ints = [1, 20000]>() "
    "e = ConstantOfShape(s) f = ConstantOfShape(z) g = Add(e, f)",
    "MatMul": "g = MatMul(col, row)",
    "Gather": "o = Constant<value_ints = [1]>() s = Squeeze(col, o) i = Cast<to = 7>(s) e = Constant<value_int = 0>() "
    "j = Mul(i, e) g = Gather(row2, j)",
    "Einsum": 'o = Constant<value_ints = [1]>() s = Squeeze(col, o) g = Einsum<equation = "i,j->ij">(s, s)',
    "function": "g = my.outer(col, row)",
    "If": "t = Constant<value = bool {1}>() u = Not(t) g = my.branch(u, col, row)",
    "Loop": """n = Constant<value_int = 28>() t = Constant<value = bool {1}>() g = Loop(n, t, row)<body = b
        (int64 i, bool c, float[a, d] s) => (bool co, float[e, f] o) { co = Identity(c) o = Concat<axis = 0>(s, s) }>""",
    "Loop, stacked": """n = Constant<value_int = 4000>() t = Constant<value = bool {1}>() q = Loop(n, t)<body = b
        (int64 i, bool c) => (bool co, float[e, f] o) { co = Identity(c) o = Neg(row2) }> g = Identity(q)""",
}


@pytest.mark.parametrize("what", LARGE)
def test_what_small_values_would_make_large_is_not_computed(what: str) -> None:
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21, "my": 1]>
        g (float[1] x) => (float y) {{ {LARGE[what]} m = ReduceMax<keepdims = 0>(g) y = Mul(x, m) }}
        <domain: "my", opset_import: ["": 21]> outer (a, b) => (c) {{ d = Add(a, b) c = ReduceMax(d) }}
        <domain: "my", opset_import: ["": 21]> branch (u, a, b) => (c) {{
            c = If(u)<then_branch = t () => (float[m, n] p) {{ p = Neg(a) }},
                else_branch = e () => (float[m, n] q) {{ q = Add(a, b) }}> }}"""
    )
    ramp = np.arange(20000, dtype=F)
    for name, value in {"col": ramp[:, None], "row": ramp[None], "row2": ramp[None]}.items():
        model.graph.initializer.append(numbaops.from_array(value, name))
    tracemalloc.start()
    folded = numbaops.fold(model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 29
    assert "max_tensor" in reasons(folded).values()
