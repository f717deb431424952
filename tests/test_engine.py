"""The mechanism of the evaluator: own operators in every place, functions, bodies, versions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx.reference
import pytest
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference.op_run import OpRun, OpRunExpand

from numbaops.engine import nodes
from numbaops.engine.calls import OpFunction
from numbaops.engine.functions import attribute_from_value
from numbaops.engine.nodes import OwnOperator
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError, NumbaopsError, UnsupportedError
from numbaops.opset import NEWEST_OPSET, OPERATOR_VERSIONS
from numbaops.reference import ReferenceEvaluator

pytestmark = pytest.mark.usefixtures("stage")

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
SHIFTED = np.array([[0, 1, 0], [0, 0, 1]], np.float32)
DIAGONAL = np.array([[1, 0, 0], [0, 1, 0]], np.float32)


def info(name: str, kind: int = FLOAT, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op_type: str, inputs: str, outputs: str, domain: str = "", refs: str = "", overload: str = "", **attributes: Any) -> NodeProto:
    """A node; an input ``-`` is omitted; ``refs`` are attributes that refer to the function's, as in ``"k=shift:INT"``."""
    made = helper.make_node(op_type, ["" if each == "-" else each for each in inputs.split()], outputs.split(), domain=domain, **attributes)
    made.overload = overload
    for reference in refs.split():
        name, rest = reference.split("=")
        referred, kind = rest.split(":")
        made.attribute.add(name=name, ref_attr_name=referred, type=AttributeProto.AttributeType.Value(kind))
    return made


def graph(nodes: list[NodeProto], inputs: list[Any], outputs: list[Any], **more: Any) -> Any:
    return helper.make_graph(nodes, "g", inputs, outputs, **more)


def model(
    nodes: list[NodeProto], inputs: list[Any], outputs: str = "y", functions: list[FunctionProto] | None = None, opset: int = 21
) -> ModelProto:
    made = graph(nodes, inputs, [info(name) for name in outputs.split()])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_model(made, opset_imports=imports, functions=functions or [], ir_version=10)


def function(
    name: str, nodes: list[NodeProto], inputs: str, outputs: str = "y", attributes: str = "", opset: int = 21, **defaults: Any
) -> FunctionProto:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    default_protos = [helper.make_attribute(key, value) for key, value in defaults.items()]
    return helper.make_function("f", name, inputs.split(), outputs.split(), nodes, imports, attributes.split(), default_protos)


def run(proto: Any, feeds: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    evaluator = ReferenceEvaluator(proto, **options)
    evaluator.run(None, feeds or {})
    return list(evaluator.run(None, feeds or {}))  # by another way, perhaps


def assert_same(got: Any, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


# --- own operators everywhere -------------------------------------------------------------------------------------------

EYE = [node("EyeLike", "x", "y", k=1)]
BODY_OUTPUTS = [info("y")]


def in_if() -> ModelProto:
    other = graph([node("Neg", "x", "y")], [], BODY_OUTPUTS)
    return model(
        [
            node("Constant", "", "c", value=helper.make_tensor("", BOOL, [], [True])),
            node("If", "c", "y", then_branch=graph(EYE, [], BODY_OUTPUTS), else_branch=other),
        ],
        [info("x")],
    )


def in_loop() -> ModelProto:
    body = graph(
        [node("Identity", "go", "go_on"), node("EyeLike", "old", "y", k=1)],
        [info("i", INT64, []), info("go", BOOL, []), info("old")],
        [info("go_on", BOOL, []), *BODY_OUTPUTS],
    )
    return model(
        [
            node("Constant", "", "trips", value_int=2),
            node("Constant", "", "go", value=helper.make_tensor("", BOOL, [], [True])),
            node("Loop", "trips go x", "y", body=body),
        ],
        [info("x")],
    )


def in_scan() -> ModelProto:
    body = graph([node("EyeLike", "old", "y", k=1), node("Identity", "row", "same")], [info("old"), info("row")], [info("y"), info("same")])
    return model([node("Scan", "x x", "y z", body=body, num_scan_inputs=1)], [info("x")])


def in_function() -> ModelProto:
    return model([node("F", "x", "y", domain="f")], [info("x")], functions=[function("F", EYE, "x")])


def in_if_in_function() -> ModelProto:
    made = in_if()
    return model([node("F", "x", "y", domain="f")], [info("x")], functions=[function("F", list(made.graph.node), "x")])


PLACES = [in_if, in_loop, in_scan, in_function, in_if_in_function]


def own_operators(evaluator: Any) -> list[str]:
    """The own operators in an evaluator, and in all that is inside."""
    found: list[str] = []
    for loaded in evaluator.rt_nodes_:
        if isinstance(loaded, OwnOperator):
            found.append(loaded.op_type)
        if isinstance(loaded, OpFunction):
            found += own_operators(loaded.impl_)
        for inner in vars(loaded).values():
            if isinstance(inner, onnx.reference.ReferenceEvaluator) and not isinstance(loaded, OpFunction):
                found += own_operators(inner)
    return found


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_own_operators_in_every_place(place: Any) -> None:
    made = place()
    assert "EyeLike" in own_operators(ReferenceEvaluator(made))
    assert_same(run(made, {"x": X})[0], SHIFTED)
    assert_same(run(made, {"x": X}, strict=True)[0], SHIFTED)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_errors_in_every_place_are_ours_and_name_the_node(place: Any) -> None:
    made = place()
    with pytest.raises(InvalidValueError, match=r"EyeLike-9.*node 'y'.*rank 1"):
        run(made, {"x": X[0]})


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_strict_reaches_every_place(place: Any) -> None:
    made = place()
    feed = {"x": np.zeros((1, 2), np.complex64)}
    for proto in (made.graph.input[0],):
        proto.type.tensor_type.elem_type = TensorProto.COMPLEX64
    assert_same(run(made, feed)[0], np.array([[0, 1]], np.complex64))
    with pytest.raises(InvalidTypeError, match="EyeLike"):
        run(made, feed, strict=True)


def test_subclasses_reach_every_place() -> None:
    class Counting(ReferenceEvaluator):
        runs = 0

        def __init__(self, proto: Any, opsets: Any = None, functions: Any = None, verbose: int = 0, new_ops: Any = None) -> None:
            super().__init__(proto, opsets, functions, verbose, new_ops)

        def run(self, *args: Any, **kwargs: Any) -> Any:
            type(self).runs += 1
            return super().run(*args, **kwargs)

    for place, runs in zip(PLACES, (2, 3, 3, 2, 3), strict=True):
        Counting.runs = 0
        assert_same(Counting(place()).run(None, {"x": X})[0], SHIFTED)
        assert Counting.runs == runs, place.__name__


# --- versions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op_type", "opset"), [("ConstantOfShape", 8), ("EyeLike", 8)])
def test_operator_before_its_first_version(op_type: str, opset: int) -> None:
    with pytest.raises(UnsupportedError, match=rf"{op_type}.*opset {opset}.*9"):
        ReferenceEvaluator(model([node(op_type, "x", "y")], [info("x")], opset=opset))


def test_attribute_that_the_version_lacks() -> None:
    with pytest.raises(InvalidValueError, match=r"Constant-11 \(node 'y'\).*value_int"):
        ReferenceEvaluator(model([node("Constant", "", "y", value_int=1)], [], opset=11))


def test_tensor_in_place_of_a_list_is_refused_by_strict_only() -> None:
    made = model([node("Constant", "", "y", value_floats=numpy_helper.from_array(np.array([1.5], np.float32)))], [])
    assert_same(run(made)[0], np.array([1.5], np.float32))
    with pytest.raises(InvalidTypeError, match="'value_floats' is given as TENSOR; allowed: FLOATS"):
        run(made, strict=True)


def test_attribute_of_wrong_kind() -> None:
    made = node("Constant", "", "y")
    made.attribute.add(name="value_int", type=AttributeProto.FLOAT, f=1.0)
    with pytest.raises(InvalidTypeError, match="'value_int' is given as FLOAT; allowed: INT"):
        ReferenceEvaluator(model([made], []))


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [("x x", "y"), ("", "y"), ("x", "y z"), ("-", "y")],
    ids=["two-inputs", "no-input", "two-outputs", "omitted-input"],
)
def test_wrong_number_of_inputs_or_outputs(inputs: str, outputs: str) -> None:
    with pytest.raises(InvalidValueError, match=r"EyeLike-9.*allowed: 1"):
        ReferenceEvaluator(model([node("EyeLike", inputs, outputs)], [info("x")]))


def test_opset_newer_than_the_table_with_unchanged_operators() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(run(model(EYE, [info("x")], opset=NEWEST_OPSET + 5), {"x": X})[0], SHIFTED)


def test_opset_newer_than_the_table_with_a_changed_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    # as if the table had been written at opset 9
    old = {name: [row for row in OPERATOR_VERSIONS if row.op_type == name and row.since_version <= 9] for name in ("EyeLike", "Constant")}
    monkeypatch.setattr(nodes, "NEWEST_OPSET", 9)
    monkeypatch.setattr(nodes, "operators", lambda: iter(old.items()))
    nodes._warn_of_newer_version.cache_clear()
    made = model([node("Constant", "", "c", value_floats=[1.0, 2.0]), node("EyeLike", "x", "y")], [info("x")], "y c")
    with pytest.warns(UserWarning, match="Constant-21"):
        evaluator = ReferenceEvaluator(made)
    # once is enough
    ReferenceEvaluator(made)
    assert own_operators(evaluator) == ["EyeLike"]
    for _ in range(2):
        y, c = evaluator.run(None, {"x": X})
        assert_same(y, DIAGONAL)
        assert_same(c, np.array([1, 2], np.float32))
        c[:] = 7
    nodes._warn_of_newer_version.cache_clear()


def test_new_ops_come_first() -> None:
    class EyeLike(OpRun):
        op_domain = ""

        def _run(self, x: Any, **_: Any) -> Any:
            return (-x,)

    for place in (lambda: model(EYE, [info("x")]), *PLACES):
        assert_same(ReferenceEvaluator(place(), new_ops=[EyeLike]).run(["y"], {"x": X})[0], X if place in (in_loop, in_scan) else -X)


def test_expanded_operators_run_by_their_function() -> None:
    class Celu(OpRunExpand):
        op_domain = ""

    made = model([node("Celu", "x", "y", alpha=2.0), node("Celu", "x", "z")], [info("x")], "y z")
    for got, wanted in zip(run(made, {"x": -X}, new_ops=[Celu]), run(made, {"x": -X}), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


# --- functions ----------------------------------------------------------------------------------------------------------

TENSOR = numpy_helper.from_array(np.array([7], np.int8))
SPARSE = helper.make_sparse_tensor(numpy_helper.from_array(np.array([5], np.float32)), numpy_helper.from_array(np.array([1])), [3])
GIVEN = {
    "value": (TENSOR, np.array([7], np.int8), np.array([7], np.int8)),
    "sparse_value": (SPARSE, np.array([0, 5, 0], np.float32), SPARSE),
    "value_float": (0.1, np.float32(0.1), np.float32(0.1)),
    "value_floats": ([1.0, 2.0], np.array([1, 2], np.float32), np.array([1, 2], np.float32)),
    "value_int": (1 << 62, np.int64(1 << 62), np.int64(1 << 62)),
    "value_ints": ([3, 4], np.array([3, 4]), [3, 4]),
    "value_string": ("ab\0", np.array("ab\0", object), "ab\0"),
    "value_strings": (["ab\0", "é"], np.array(["ab\0", "é"], object), ["ab\0", "é"]),
}
KINDS = {"value": "TENSOR", "sparse_value": "SPARSE_TENSOR"}


@pytest.mark.parametrize("name", GIVEN)
def test_every_attribute_of_constant_may_be_given_by_a_call(name: str) -> None:
    kind = KINDS.get(name, name.removeprefix("value_").upper())
    given, wanted, python_value = GIVEN[name]
    made = function("F", [node("Constant", "", "y", refs=f"{name}=v:{kind}")], "", attributes="v")
    assert_same(run(model([node("F", "", "y", domain="f", v=given)], [], functions=[made]))[0], wanted)
    assert_same(ReferenceEvaluator(made).run(None, {}, attributes={"v": python_value})[0], wanted)


@pytest.mark.parametrize("name", ["value_floats", "value_ints", "value_strings"])
def test_empty_lists_keep_their_kind(name: str) -> None:
    kind = name.removeprefix("value_").upper()
    call = node("F", "", "y", domain="f")
    call.attribute.add(name="v", type=AttributeProto.AttributeType.Value(kind))
    made = function("F", [node("Constant", "", "y", refs=f"{name}=v:{kind}")], "", attributes="v")
    wanted = np.empty(0, {"FLOATS": np.float32, "INTS": np.int64, "STRINGS": object}[kind])
    assert_same(run(model([call], [], functions=[made]))[0], wanted)
    assert_same(ReferenceEvaluator(made).run(None, {}, attributes={"v": []})[0], wanted)


EYE_REFS = node("EyeLike", "x", "y", refs="k=k:INT dtype=dt:INT")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({}, DIAGONAL, id="none"),
        pytest.param({"k": 1}, SHIFTED, id="k"),
        pytest.param({"dt": INT64}, DIAGONAL.astype(np.int64), id="dtype"),
        pytest.param({"k": 1, "dt": INT64}, SHIFTED.astype(np.int64), id="both"),
    ],
)
def test_attribute_that_a_call_leaves_out_is_absent(given: dict[str, int], wanted: Any) -> None:
    made = function("F", [EYE_REFS], "x", attributes="k dt")
    assert_same(run(model([node("F", "x", "y", domain="f", **given)], [info("x")], functions=[made]), {"x": X})[0], wanted)
    assert_same(ReferenceEvaluator(made).run(None, {"x": X}, attributes=given)[0], wanted)


def test_one_function_called_with_different_attributes() -> None:
    made = function("F", [EYE_REFS], "x", attributes="k dt")
    calls = [node("F", "x", "a", domain="f", k=1), node("F", "x", "b", domain="f"), node("F", "x", "c", domain="f", k=1)]
    a, b, c = run(model(calls, [info("x")], "a b c", functions=[made]), {"x": X})
    assert_same(a, SHIFTED)
    assert_same(b, DIAGONAL)
    assert_same(c, SHIFTED)


def test_default_of_a_function_attribute() -> None:
    made = function("F", [EYE_REFS], "x", attributes="dt", k=1)
    calls = [node("F", "x", "a", domain="f"), node("F", "x", "b", domain="f", k=0)]
    a, b = run(model(calls, [info("x")], "a b", functions=[made]), {"x": X})
    assert_same(a, SHIFTED)
    assert_same(b, DIAGONAL)
    assert_same(ReferenceEvaluator(made).run(None, {"x": X}, attributes={})[0], SHIFTED)


def test_references_work_for_operators_of_onnx_and_in_bodies() -> None:
    inner = node("EyeLike", "x", "e", refs="k=k:INT")
    branch = graph([inner, node("Mul", "e x", "m"), node("LeakyRelu", "m", "r", refs="alpha=a:FLOAT")], [], [info("r")])
    other = graph([node("Neg", "x", "r")], [], [info("r")])
    made = function("F", [node("If", "c", "y", then_branch=branch, else_branch=other)], "c x", attributes="k a")
    calling = model([node("F", "c x", "y", domain="f", k=1, a=0.5)], [info("c", BOOL, []), info("x")], functions=[made])
    assert_same(run(calling, {"c": np.array(True), "x": -X})[0], SHIFTED * X * np.float32(-0.5))
    assert_same(run(calling, {"c": np.array(False), "x": X})[0], -X)


def test_references_pass_through_nested_functions_in_any_order() -> None:
    outer = function("Outer", [node("Inner", "x", "y", domain="f", refs="k=shift:INT")], "x", attributes="shift")
    inner = function("Inner", [EYE_REFS], "x", attributes="k dt")
    for functions in ([outer, inner], [inner, outer]):
        assert_same(run(model([node("Outer", "x", "y", domain="f", shift=1)], [info("x")], functions=functions), {"x": X})[0], SHIFTED)


@pytest.mark.parametrize("opset", [11, 21])
def test_reference_on_constant_by_version(opset: int) -> None:
    made = function("F", [node("Constant", "", "y", refs="value=v:TENSOR")], "", attributes="v", opset=opset)
    assert_same(run(model([node("F", "", "y", domain="f", v=TENSOR)], [], functions=[made], opset=opset))[0], np.array([7], np.int8))


def test_overloads_are_different_functions() -> None:
    functions = [function("F", [node("Constant", "", "y", value_int=value)], "") for value in (1, 2)]
    functions[0].overload, functions[1].overload = "a", "b"
    calls = [node("F", "", "p", domain="f", overload="b"), node("F", "", "q", domain="f", overload="a")]
    p, q = run(model(calls, [], "p q", functions=functions))
    assert (int(p), int(q)) == (2, 1)
    with pytest.raises(UnsupportedError, match="no overload ''"):
        ReferenceEvaluator(model([node("F", "", "y", domain="f")], [], functions=functions))


def test_trailing_inputs_of_a_call_may_be_left_out() -> None:
    made = function("F", [node("Clip", "x low high", "y")], "x low high")
    inputs = [info("x"), info("b", FLOAT, [])]
    for call, wanted in (("x", X), ("x b", np.maximum(X, 3)), ("x - b", np.minimum(X, 3))):
        assert_same(run(model([node("F", call, "y", domain="f")], inputs, functions=[made]), {"x": X, "b": np.float32(3)})[0], wanted)
    with pytest.raises(InvalidValueError, match="4 inputs; the function has 3"):
        ReferenceEvaluator(model([node("F", "x b b b", "y", domain="f")], inputs, functions=[made]))


def test_function_that_calls_itself() -> None:
    one = function("One", [node("Two", "x", "y", domain="f")], "x")
    two = function("Two", [node("One", "x", "y", domain="f")], "x")
    with pytest.raises(InvalidValueError, match=r"f\.One -> f\.Two -> f\.One"):
        ReferenceEvaluator(model([node("One", "x", "y", domain="f")], [info("x")], functions=[one, two]))


def test_function_with_the_name_of_an_operator() -> None:
    softmax = function("Softmax", [node("Neg", "x", "y")], "x")
    assert_same(run(model([node("Softmax", "x", "y", domain="f")], [info("x")], functions=[softmax]), {"x": X})[0], -X)
    standard = function("EyeLike", [node("Neg", "x", "y")], "x")
    standard.domain = ""
    assert_same(run(model([node("EyeLike", "x", "y")], [info("x")], functions=[standard]), {"x": X})[0], DIAGONAL)


def test_attribute_of_a_function_of_wrong_kind() -> None:
    made = function("F", [EYE_REFS], "x", attributes="k dt")
    with pytest.raises(InvalidTypeError, match="'k' is given as FLOAT; allowed: INT"):
        ReferenceEvaluator(model([node("F", "x", "y", domain="f", k=1.5)], [info("x")], functions=[made]))
    with pytest.raises(InvalidTypeError, match=r"'k' is .*wants INT"):
        ReferenceEvaluator(made).run(None, {"x": X}, attributes={"k": "one"})


def test_attribute_from_evaluator() -> None:
    body = graph([node("Neg", "x", "y")], [], [info("y")])
    made = attribute_from_value("body", ReferenceEvaluator(body, opsets={"": 21}), AttributeProto.GRAPH)
    assert (made.type, made.g) == (AttributeProto.GRAPH, body)


def test_outputs_of_a_function_evaluator_belong_to_the_caller() -> None:
    made = function("F", [node("Constant", "", "y", refs="value=v:TENSOR")], "", attributes="v")
    evaluator = ReferenceEvaluator(made)
    for _ in range(2):
        (y,) = evaluator.run(None, {}, attributes={"v": TENSOR})
        assert_same(y, np.array([7], np.int8))
        y[:] = 0


# --- scopes and values --------------------------------------------------------------------------------------------------


def test_initializer_of_a_body_hides_an_outer_value() -> None:
    branch = graph([node("Add", "x w", "y")], [], BODY_OUTPUTS, initializer=[numpy_helper.from_array(np.float32(10), "w")])
    made = model([node("Neg", "x", "w"), node("If", "c", "y", then_branch=branch, else_branch=branch)], [info("x"), info("c", BOOL, [])])
    assert_same(run(made, {"x": X, "c": np.array(True)})[0], X + 10)


def test_omitted_output_is_not_an_omitted_input() -> None:
    dropout = helper.make_node("Dropout", ["x"], ["d", ""])
    made = model([dropout, helper.make_node("Clip", ["d", "", "high"], ["y"])], [info("x"), info("high", FLOAT, [])])
    assert_same(run(made, {"x": X, "high": np.float32(3)})[0], np.minimum(X, 3))


def test_nodes_out_of_order() -> None:
    with pytest.raises(EvaluationError, match=r"Neg-13 \(node 'y'\): takes 'a', which only the later node 'a' computes"):
        run(model([node("Neg", "a", "y"), node("EyeLike", "x", "a")], [info("x")]), {"x": X})


def test_output_that_nothing_computes() -> None:
    with pytest.raises(EvaluationError, match="Unable to find output name 'y'"):
        run(model([node("Neg", "x", "a")], [info("x")]), {"x": X})


def test_body_evaluated_alone_takes_outer_values_as_feeds() -> None:
    evaluator = ReferenceEvaluator(in_if().graph.node[1].attribute[1].g, opsets={"": 21})
    assert_same(evaluator.run(None, {"x": X})[0], SHIFTED)
    with pytest.raises(EvaluationError, match="'other'"):
        evaluator.run(None, {"x": X, "other": X})


def test_errors_know_where() -> None:
    with pytest.raises(NumbaopsError) as caught:
        run(model(EYE, [info("x")]), {"x": X[0]})
    assert (caught.value.op_type, caught.value.since_version, caught.value.node_name) == ("EyeLike", 9, "y")


def test_errors_call_a_node_by_its_name() -> None:
    named = node("EyeLike", "x", "y")
    named.name = "diagonal"
    with pytest.raises(InvalidValueError, match="node 'diagonal'"):
        run(model([named], [info("x")]), {"x": X[0]})


def test_nodes_with_equal_attributes_share_what_is_made_of_them() -> None:
    value = numpy_helper.from_array(np.arange(3, dtype=np.float32))
    equal = [node("Constant", "", name, value=value) for name in "ab"]
    other = node("Constant", "", "c", value=numpy_helper.from_array(np.arange(3, dtype=np.float64)))
    split = [node("Split", "x", outputs, axis=1) for outputs in ("d e", "f g h", "i j")]
    made = model([*equal, other, *split], [info("x")], outputs="a b c e h i", opset=11)
    evaluator = ReferenceEvaluator(made)
    bound = [each.bound for each in evaluator.rt_nodes_[:3]]
    assert bound[0] is bound[1]
    assert bound[1] is not bound[2]
    x = np.arange(6, dtype=np.float32).reshape(1, 6)
    for _ in range(2):
        a, b, c, e, h, i = evaluator.run(None, {"x": x})
        for got, wanted in ((a, np.arange(3.0)), (b, np.arange(3.0)), (e, x[:, 3:]), (h, x[:, 4:]), (i, x[:, :3])):
            assert_same(got, wanted.astype(np.float32))
            got.fill(9)
        assert_same(c, np.arange(3.0))


def test_nodes_with_many_attributes_are_not_compared() -> None:
    value = numpy_helper.from_array(np.zeros(1000, np.float32))
    first, second = ReferenceEvaluator(model([node("Constant", "", name, value=value) for name in "yz"], [])).rt_nodes_
    assert first.bound is not second.bound


# --- operators that onnx defines as functions ---------------------------------------------------------------------------


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("known", [True, False], ids=["known-type", "type-seen-at-run-time"])
def test_function_that_depends_on_input_types(known: bool, approximate: str) -> None:
    made = model([node("Neg", "x", "a"), node("Gelu", "a", "y", approximate=approximate)], [info("x")])
    if known:
        made.graph.value_info.append(info("a"))
    wanted = np.array([0.8413447, -0.15865526] if approximate == "none" else [0.841192, -0.158808], np.float32)
    for _ in range(2):
        np.testing.assert_allclose(run(made, {"x": np.array([-1, 1], np.float32)})[0], wanted, rtol=1e-5)


def test_defaults_of_an_operator_that_is_a_function() -> None:
    class ThresholdedRelu(OpRunExpand):
        op_domain = ""

    made = model([node("ThresholdedRelu", "x", "y"), node("ThresholdedRelu", "x", "z", alpha=2.5)], [info("x")], "y z")
    y, z = run(made, {"x": X}, new_ops=[ThresholdedRelu])
    assert_same(y, np.where(X > 1, X, 0).astype(np.float32))
    assert_same(z, np.where(X > 2.5, X, 0).astype(np.float32))


def test_node_whose_function_needs_types_that_only_a_run_shows() -> None:
    class Gelu(OpRunExpand):
        op_domain = ""

    for dtype in (np.float32, np.float64):
        (y,) = ReferenceEvaluator(node("Gelu", "x", "y"), new_ops=[Gelu]).run(None, {"x": np.array([-1, 1], dtype)})
        assert y.dtype == dtype
        np.testing.assert_allclose(y, [-0.15865526, 0.8413447], rtol=1e-5)
