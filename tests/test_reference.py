"""The evaluator as its callers see it: what it takes, what it gives, and what it refuses."""

from __future__ import annotations

import contextlib
import copy
import io
import pathlib
import pickle
import subprocess
import sys
import threading
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.base
import onnx.backend.test
import onnx.reference
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper
from onnx.model_container import ModelContainer, make_large_model, make_large_tensor_proto
from onnx.reference.op_run import OpRun

from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError, UnsupportedError
from numbaops.reference import InvalidModelError, ReferenceEvaluator

FLOAT, INT32, INT64, INT8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.INT8
ONNX_VERSION = tuple(int(part) for part in onnx.__version__.split(".")[:2])
X = np.array([1, -2], np.float32)


def info(name: str, kind: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def graph(nodes: list[onnx.NodeProto], inputs: str = "", outputs: str = "y", **more: Any) -> onnx.GraphProto:
    return helper.make_graph(nodes, "g", [info(name) for name in inputs.split()], [info(name) for name in outputs.split()], **more)


def model(nodes: list[onnx.NodeProto], inputs: Any = "", outputs: str = "y", opset: int = 21, **more: Any) -> onnx.ModelProto:
    """A model; ``inputs`` and ``outputs`` are names, or ``inputs`` a list of value infos."""
    made = graph(nodes, inputs if isinstance(inputs, str) else "", outputs, **more)
    if not isinstance(inputs, str):
        made.input.extend(inputs)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def evaluate(proto: Any, feeds: dict[str, Any] | None = None, **options: Any) -> Any:
    (result,) = ReferenceEvaluator(proto, **options).run(None, feeds or {})
    return result


NEG = model([node("Neg", "x", "y")], "x")
FILL = model([node("ConstantOfShape", "s", "y")], [info("s", INT64, [1])])


def assert_same(got: Any, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


# --- what it takes ------------------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[pathlib.Path], Any]] = {
    "model": lambda path: NEG,
    "str": str,
    "path": lambda path: path,
    "bytes": pathlib.Path.read_bytes,
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "memoryview": lambda path: memoryview(path.read_bytes()),
    "file": lambda path: path.open("rb"),
    "bytes_io": lambda path: io.BytesIO(path.read_bytes()),
}


@pytest.mark.parametrize("form", FORMS)
def test_model_forms(form: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(NEG, path)
    source = FORMS[form](path)
    with source if isinstance(source, io.IOBase) else contextlib.nullcontext():
        evaluator = ReferenceEvaluator(source)
    assert_same(evaluator.run(None, {"x": X})[0], -X)


def test_graph_function_and_node_protos() -> None:
    nodes = [node("Neg", "x", "y")]
    assert_same(evaluate(graph(nodes, "x"), {"x": X}, opsets={"": 21}), -X)
    assert_same(evaluate(nodes[0], {"x": X}), -X)
    function = helper.make_function("f", "F", ["x"], ["y"], nodes, [helper.make_opsetid("", 21)])
    assert_same(ReferenceEvaluator(function).run(None, {"x": X}, attributes={})[0], -X)
    with pytest.raises(TypeError, match="attributes"):
        ReferenceEvaluator(function).run(None, {"x": X})


def test_functions_for_a_graph() -> None:
    function = helper.make_function("f", "F", ["a"], ["b"], [node("Neg", "a", "b")], [helper.make_opsetid("", 21)])
    calling = graph([node("F", "x", "y", domain="f")], "x")
    for given in (function, ReferenceEvaluator(function), onnx.reference.ReferenceEvaluator(function)):
        assert_same(evaluate(calling, {"x": X}, opsets={"": 21, "f": 1}, functions=[given]), -X)


@pytest.mark.parametrize(
    ("proto", "options", "error"),
    [
        pytest.param(NEG, {"opsets": {"": 21}}, ValueError, id="opsets-for-a-model"),
        pytest.param(NEG, {"functions": []}, ValueError, id="functions-for-a-model"),
        pytest.param(NEG.graph, {}, TypeError, id="graph-without-opsets"),
        pytest.param(NEG.graph, {"opsets": {"": 21}, "functions": [1]}, TypeError, id="function-of-wrong-type"),
        pytest.param(None, {}, TypeError, id="none"),
        pytest.param(3, {}, TypeError, id="number"),
        pytest.param(NEG, {"new_ops": [int]}, AttributeError, id="new-op-without-domain"),
        pytest.param(NEG, {"new_ops": [type("Neg", (), {"op_domain": ""})]}, TypeError, id="new-op-no-oprun"),
        pytest.param(model([node("Neg", "x", "y", domain="zz")], "x"), {}, RuntimeError, id="domain-not-imported"),
        pytest.param(model([node("Nothing", "x", "y")], "x"), {}, NotImplementedError, id="no-such-operator"),
    ],
)
def test_constructor_refuses(proto: Any, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ReferenceEvaluator(proto, **options)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(NEG.SerializeToString()[:-5], id="truncated"),
        pytest.param(b"\x89PNG\r\n not a model", id="not-onnx"),
        pytest.param(helper.make_opsetid("", 3).SerializeToString(), id="other-proto"),
    ],
)
def test_bad_file_is_named(content: bytes, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidModelError, match=r"bad\.onnx") as caught:
        ReferenceEvaluator(path)
    assert isinstance(caught.value, DecodeError)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(InvalidModelError):
        ReferenceEvaluator(content)


def test_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.onnx"):
        ReferenceEvaluator(tmp_path / "nothing.onnx")


def test_external_data_beside_the_model(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.arange(300, dtype=np.float32)
    made = model(
        [node("Constant", "", "c", value=numpy_helper.from_array(weights)), node("Sub", "w c", "y")],
        initializer=[numpy_helper.from_array(weights * 3, "w")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="data.bin", size_threshold=0, convert_attribute=True)
    monkeypatch.chdir(path.root)
    for source in (path, str(path)):
        assert_same(evaluate(source), weights * 2)
    with path.open("rb") as file:
        assert_same(evaluate(file), weights * 2)


def test_model_container() -> None:
    container = make_large_model(
        graph([node("Neg", "w", "y")], initializer=[make_large_tensor_proto("#w", "w", FLOAT, (2,))]),
        {"#w": X},
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    assert isinstance(container, ModelContainer)
    evaluator = ReferenceEvaluator(container)
    assert_same(evaluator.run(None, {})[0], -X)
    assert X.flags.writeable


@pytest.mark.parametrize(
    ("imports", "wanted"),
    [
        pytest.param([("ai.onnx", 12)], 12, id="alias"),
        pytest.param([("", 8), ("ai.onnx", 12)], 12, id="alias-higher"),
        pytest.param([("", 12), ("", 8)], 12, id="twice"),
    ],
)
def test_highest_import_of_the_default_domain_counts(imports: list[tuple[str, int]], wanted: int) -> None:
    made = model([node("ConstantOfShape", "s", "a"), helper.make_node("Neg", ["a"], ["y"], domain="ai.onnx")], [info("s", INT64)])
    del made.opset_import[:]
    made.opset_import.extend(helper.make_opsetid(*each) for each in imports)
    evaluator = ReferenceEvaluator(made)
    assert evaluator.opsets[""] == wanted
    assert_same(evaluator.run(None, {"s": np.array([2])})[0], np.zeros(2, np.float32))


@pytest.mark.parametrize(("ir_version", "runs"), [(2, True), (3, False)])
def test_imports_may_be_missing_before_ir_3(ir_version: int, runs: bool) -> None:
    made = model([node("Identity", "x", "y")], "x")
    made.ir_version = ir_version
    del made.opset_import[:]
    if runs:
        assert_same(evaluate(made, {"x": X}), X)
    else:
        with pytest.raises(EvaluationError, match="not specified"):
            ReferenceEvaluator(made)


# --- the interface of onnx's evaluator ----------------------------------------------------------------------------------


def test_is_an_onnx_evaluator() -> None:
    made = model([node("Add", "x w", "y")], "x", initializer=[numpy_helper.from_array(X, "w")])
    evaluator = ReferenceEvaluator(made)
    theirs = onnx.reference.ReferenceEvaluator(made)
    assert isinstance(evaluator, onnx.reference.ReferenceEvaluator)
    assert str(evaluator) == str(theirs) == "ReferenceEvaluator(x) -> y"
    for name in ("input_names", "output_names", "input_types", "output_types", "opsets", "has_linked_attribute", "verbose"):
        assert getattr(evaluator, name) == getattr(theirs, name), name
    for name in ("attributes_", "functions_", "inits_", "container_"):
        assert getattr(evaluator, name) == getattr(theirs, name), name
    assert evaluator.all_types_.items() >= theirs.all_types_.items()
    assert evaluator.proto_ is made
    assert evaluator.onnx_graph_ == made.graph
    assert list(evaluator.rt_inits_) == ["w"]
    (loaded,) = evaluator.rt_nodes_
    assert (loaded.op_type, list(loaded.input), list(loaded.output)) == ("Add", ["x", "w"], ["y"])
    assert evaluator.get_result_types("x").tensor_type.elem_type == FLOAT


def test_own_operator_has_the_interface_of_oprun() -> None:
    (loaded,) = ReferenceEvaluator(model([node("EyeLike", "x", "y", k=1)], "x")).rt_nodes_
    assert isinstance(loaded, OpRun)
    assert (loaded.op_type, list(loaded.input), list(loaded.output), loaded.k) == ("EyeLike", ["x"], ["y"], 1)
    assert not loaded.need_context()
    assert not loaded.has_linked_attribute
    assert_same(loaded.run(np.zeros((1, 2), np.int8))[0], np.array([[0, 1]], np.int8))


def test_optimized_and_check_shape_annotations_are_accepted() -> None:
    assert_same(evaluate(NEG, {"x": X}, optimized=False, check_shape_annotations=False), -X)


@pytest.mark.skipif(ONNX_VERSION < (1, 23), reason="onnx checks shapes since 1.23")
def test_shape_annotations_are_checked() -> None:
    made = helper.make_model(
        helper.make_graph([node("Neg", "x", "y")], "g", [info("x", FLOAT, ["n"])], [info("y", FLOAT, [3])]),
        opset_imports=[helper.make_opsetid("", 21)],
    )
    assert evaluate(made, {"x": X}).shape == (2,)
    with pytest.raises(RuntimeError, match="declared dimension value 3"):
        evaluate(made, {"x": X}, check_shape_annotations=True)
    with pytest.raises(RuntimeError, match="declared dimension value 3"):
        ReferenceEvaluator(made).run(None, {"x": X}, check_shape_annotations=True)


@pytest.mark.skipif(ONNX_VERSION >= (1, 23), reason="onnx checks shapes since 1.23")
def test_shape_annotations_need_a_newer_onnx() -> None:
    with pytest.raises(UnsupportedError, match=r"1\.23"):
        ReferenceEvaluator(NEG, check_shape_annotations=True)


@pytest.mark.parametrize("verbose", range(12))
def test_verbose_prints_what_onnx_prints(verbose: int, capsys: pytest.CaptureFixture[str]) -> None:
    made = model([node("Add", "x w", "a"), node("Neg", "a", "y")], "x", initializer=[numpy_helper.from_array(X, "w")])
    ReferenceEvaluator(made, verbose=verbose).run(None, {"x": X})
    ours = capsys.readouterr().out
    onnx.reference.ReferenceEvaluator(made, verbose=verbose).run(None, {"x": X})
    assert ours == capsys.readouterr().out.replace("(1 input)", "(1 inputs)")  # as onnx has it for unary operators only
    assert bool(ours) == (verbose > 1)


def test_verbose_shows_own_operators(capsys: pytest.CaptureFixture[str]) -> None:
    ReferenceEvaluator(FILL, verbose=11).run(None, {"s": np.array([2])})
    assert capsys.readouterr().out.splitlines() == [
        " +I s: int64:(1,):[2]",
        "ConstantOfShape(s) -> y",
        "-- begin ConstantOfShape.run(1 inputs)",
        "-- done ConstantOfShape.run -> 1 outputs",
        " + y: float32:(2,):[0.0, 0.0]",
    ]


def test_verbose_takes_every_element_type(capsys: pytest.CaptureFixture[str]) -> None:
    tensor = helper.make_tensor("v", TensorProto.INT4, [2], [1, 2])
    evaluate(model([node("Constant", "", "y", value=tensor)]), verbose=3)
    assert "int4:(2,)" in capsys.readouterr().out


def test_intermediate_values() -> None:
    made = model([node("Neg", "x", "a"), node("Abs", "a", "y")], "x", initializer=[numpy_helper.from_array(X, "w")])
    feeds = {"x": X}
    values = ReferenceEvaluator(made).run(None, feeds, intermediate=True)
    assert list(values) == ["", "w", "x", "a", "y"]
    assert values[""] is None
    assert values["x"] is X
    assert_same(values["a"], -X)


def test_output_names() -> None:
    made = model([node("Neg", "x", "a"), node("Abs", "a", "y")], "x", initializer=[numpy_helper.from_array(X, "w")])
    evaluator = ReferenceEvaluator(made)
    a, x, w = evaluator.run(["a", "x", "w"], {"x": X})
    assert_same(a, -X)
    assert_same(x, X)
    assert_same(w, X)
    assert evaluator.run([], {"x": X}) == []
    with pytest.raises(EvaluationError, match="Unable to find output name 'q'") as caught:
        evaluator.run(["q"], {"x": X})
    assert "opset_import" not in str(caught.value)


# --- feeds --------------------------------------------------------------------------------------------------------------

ADD = model([node("Add", "left right", "y")], "left right", initializer=[numpy_helper.from_array(X, "constant")])


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        pytest.param({"left": X}, "'right': it is not fed. Inputs: 'left', 'right'", id="missing"),
        pytest.param({}, "'left'", id="none"),
        pytest.param({"left": X, "right": X, "rigth": X}, "'rigth' is fed, .* Inputs: 'left', 'right'", id="misnamed"),
        pytest.param({"left": X, "right": X, "constant": X}, "'constant' is an initializer .* Inputs: 'left', 'right'", id="initializer"),
    ],
)
def test_wrong_names_are_refused(feeds: dict[str, Any], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        ReferenceEvaluator(ADD).run(None, feeds)


@pytest.mark.parametrize("feeds", [None, [X, X], X], ids=["none", "list", "array"])
def test_feeds_must_be_a_mapping(feeds: Any) -> None:
    with pytest.raises(InvalidTypeError, match="feed_inputs"):
        ReferenceEvaluator(ADD).run(None, feeds)


def test_initializer_that_is_an_input_may_be_overridden() -> None:
    made = model([node("Add", "x w", "y")], "x w", initializer=[numpy_helper.from_array(X, "w")])
    for strict in (False, True):
        evaluator = ReferenceEvaluator(made, strict=strict)
        assert_same(evaluator.run(None, {"x": X})[0], X + X)
        assert_same(evaluator.run(None, {"x": X, "w": X * 4})[0], X * 5)


def test_feed_of_a_computed_value_is_computed_anyway() -> None:
    made = model([node("Neg", "x", "a"), node("Abs", "a", "y")], "x")
    values = ReferenceEvaluator(made).run(None, {"x": X, "a": X * 9}, intermediate=True)
    assert_same(values["a"], -X)


SHAPED = [info("x", FLOAT, [2, "n"])]


@pytest.mark.parametrize(
    ("x", "error"),
    [
        pytest.param(np.ones((2, 3), np.float64), InvalidTypeError, id="element-type"),
        pytest.param(np.ones((2,), np.float32), InvalidValueError, id="rank"),
        pytest.param(np.ones((3, 3), np.float32), InvalidValueError, id="dim"),
    ],
)
def test_strict_checks_feeds(x: Any, error: type[Exception]) -> None:
    made = model([node("Neg", "x", "y")], SHAPED)
    assert_same(evaluate(made, {"x": x}), -x)
    with pytest.raises(error, match="'x'"):
        evaluate(made, {"x": x}, strict=True)
    fitting = np.ones((2, 5), np.float32)
    assert_same(evaluate(made, {"x": fitting}, strict=True), -fitting)


def test_strict_checks_sequences_and_optionals() -> None:
    tensor = helper.make_tensor_type_proto(FLOAT, [2])
    sequence = helper.make_sequence_type_proto(tensor)
    optional = helper.make_optional_type_proto(tensor)
    made = model(
        [node("SequenceAt", "s i", "a"), node("OptionalHasElement", "o", "h"), node("Where", "h a a", "y")],
        [helper.make_value_info("s", sequence), info("i", INT64, []), helper.make_value_info("o", optional)],
    )
    evaluator = ReferenceEvaluator(made, strict=True)
    feeds = {"s": [X, X * 2], "i": np.array(1), "o": None}
    assert_same(evaluator.run(None, feeds)[0], X * 2)
    for name, wrong in (("s", X), ("s", [X, X.astype(np.float64)]), ("o", X.astype(np.float16)), ("i", 1)):
        with pytest.raises(InvalidTypeError, match=f"'{name}'"):
            evaluator.run(None, feeds | {name: wrong})


def test_strict_checks_the_types_of_own_operators() -> None:
    made = model([node("ConstantOfShape", "s", "y")], [info("s", INT32, [1])])
    shape = {"s": np.array([2], np.int32)}
    assert_same(evaluate(made, shape), np.zeros(2, np.float32))
    with pytest.raises(InvalidTypeError, match="ConstantOfShape"):
        evaluate(made, shape, strict=True)


# --- outputs belong to the caller ---------------------------------------------------------------------------------------

ONES = numpy_helper.from_array(np.ones(4, np.float32), "w")
OUTPUTS = {
    "constant": model([node("Constant", "", "y", value=ONES)]),
    "view-of-constant": model([node("Constant", "", "c", value=ONES), node("Identity", "c", "y")]),
    "initializer": model([], initializer=[helper.make_tensor("y", FLOAT, [4], [1, 1, 1, 1])]),
    "view-of-initializer": model([node("Identity", "w", "y")], initializer=[ONES]),
    "sequence": model([node("SequenceConstruct", "w", "y")], initializer=[ONES]),
}


@pytest.mark.parametrize("case", OUTPUTS)
@pytest.mark.parametrize("intermediate", [False, True], ids=["outputs", "intermediate"])
def test_changing_an_output_changes_no_later_run(case: str, intermediate: bool) -> None:
    evaluator = ReferenceEvaluator(OUTPUTS[case])
    for _ in range(2):
        results = evaluator.run(None, {}, intermediate=intermediate)
        y = results["y" if intermediate else 0]
        y = y[0] if case == "sequence" else y
        assert_same(y, np.ones(4, np.float32))
        if intermediate and case == "initializer":
            assert not y.flags.writeable
        else:
            y[:] = 7


@pytest.mark.parametrize("op_type", ["Identity", "Flatten", "Transpose"])
def test_outputs_share_no_memory_with_inputs(op_type: str) -> None:
    x = np.zeros((2, 3), np.float32)
    y = evaluate(model([node(op_type, "x", "y")], "x"), {"x": x})
    assert y.flags.writeable
    assert not np.may_share_memory(x, y)
    assert x.flags.writeable


def test_outputs_share_no_memory_with_each_other() -> None:
    nodes = [node("Neg", "x", "a"), node("Identity", "a", "b"), node("Transpose", "a", "c"), node("Shape", "a", "d")]
    results = ReferenceEvaluator(model(nodes, "x", "c a b x a d")).run(None, {"x": np.ones((2, 2), np.float32)})
    for position, one in enumerate(results):
        one[...] = position
    assert [one.flat[0] for one in results] == list(range(6))


def test_inputs_are_not_modified_by_operators_that_work_in_place() -> None:
    class InPlace(OpRun):
        op_domain = "custom"

        def _run(self, x: Any) -> Any:
            x += 1
            return (x,)

    made = model([node("InPlace", "x", "y", domain="custom")], "x")
    made.opset_import.append(helper.make_opsetid("custom", 1))
    x = np.zeros(2, np.float32)
    assert_same(evaluate(made, {"x": x}, new_ops=[InPlace]), np.ones(2, np.float32))
    assert_same(x, np.zeros(2, np.float32))


# --- initializers -------------------------------------------------------------------------------------------------------


def test_string_initializer_keeps_a_trailing_nul() -> None:
    made = model(
        [node("Identity", "w", "y")], initializer=[TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"a\0"])]
    )
    assert evaluate(made).tolist() == ["a\0"]


def test_sparse_initializer_is_dense() -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5, 7], np.float32), "w"), numpy_helper.from_array(np.array([1, 3]), ""), [2, 2]
    )
    assert_same(evaluate(model([node("Neg", "w", "y")], sparse_initializer=[sparse])), -np.array([[0, 5], [0, 7]], np.float32))


def test_initializer_of_wrong_length_is_named() -> None:
    wrong = TensorProto(name="weights", data_type=FLOAT, dims=[2], raw_data=b"\0" * 7)
    with pytest.raises(InvalidValueError, match="initializer 'weights'"):
        ReferenceEvaluator(model([node("Neg", "weights", "y")], initializer=[wrong]))


# --- processes, threads, copies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))], ids=["copy", "deepcopy", "pickle"]
)
def test_copies_run(how: Callable[[Any], Any]) -> None:
    made = model([node("Constant", "", "c", value_float=2.0), node("Mul", "x c", "y")], "x")
    evaluator = how(ReferenceEvaluator(made, verbose=2, strict=True))
    assert type(evaluator) is ReferenceEvaluator
    assert (evaluator.verbose, evaluator.strict) == (2, True)
    evaluator.verbose = 0
    assert_same(evaluator.run(None, {"x": X})[0], X * 2)
    body = how(ReferenceEvaluator(made.graph, opsets={"": 21}))
    assert_same(body.run(None, {"x": X})[0], X * 2)


def test_many_threads_share_one_evaluator() -> None:
    made = model([node("ConstantOfShape", "s", "a"), node("Shape", "a", "b"), node("Add", "b s", "y")], [info("s", INT64, [1])])
    evaluator = ReferenceEvaluator(made)
    found: dict[int, set[int]] = {}

    def work(size: int) -> None:
        found[size] = {int(evaluator.run(None, {"s": np.array([size])})[0][0]) for _ in range(200)}

    threads = [threading.Thread(target=work, args=[size]) for size in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {size: {2 * size} for size in range(1, 9)}


def run_python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_works_after_fork(tmp_path: pathlib.Path) -> None:
    code = """
import multiprocessing, sys, numpy, numbaops.reference
evaluator = numbaops.reference.ReferenceEvaluator(sys.argv[1])
def total(size):
    return float(evaluator.run(None, {"s": numpy.array([size])})[0].sum() + size)
assert total(2_000_000) == 2_000_000
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(total, [3, 1_000_000]))
"""
    onnx.save(FILL, tmp_path / "model.onnx")
    assert run_python(code, str(tmp_path / "model.onnx")).strip() == "[3.0, 1000000.0]"


def test_small_outputs_need_no_numba(tmp_path: pathlib.Path) -> None:
    code = """
import sys, numpy, numbaops.reference
evaluator = numbaops.reference.ReferenceEvaluator(sys.argv[1])
evaluator.run(None, {"s": numpy.array([3])})
print("numba" in sys.modules)
"""
    onnx.save(FILL, tmp_path / "model.onnx")
    assert run_python(code, str(tmp_path / "model.onnx")).strip() == "False"


# --- nothing that onnx.reference runs is lost ---------------------------------------------------------------------------


def run_backend_suite(evaluator: type[onnx.reference.ReferenceEvaluator], include: list[str]) -> set[str]:
    """The names of the tests of ONNX's own backend suite that fail; all tests if ``include`` is empty."""

    class Prepared(onnx.backend.base.BackendRep):
        def __init__(self, loaded: Any) -> None:
            self.loaded = loaded

        def run(self, inputs: Any, **_: Any) -> Any:
            return self.loaded.run(None, dict(zip(self.loaded.input_names, inputs, strict=False)))

    class Backend(onnx.backend.base.Backend):
        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"

        @classmethod
        def prepare(cls, proto: Any, device: str = "CPU", **_: Any) -> Prepared:
            return Prepared(evaluator(proto))

    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = onnx.backend.test.BackendTest(Backend, __name__)
        for name in include:
            runner.include(f"^{name}$")
        for name, case in runner.test_cases.items():
            if "Real" not in name:  # these load models from the network, or are the light models
                unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun - len(result.skipped) >= (len(include) or 1500)
    return {test.id().rpartition(".")[2] for test, _ in result.failures + result.errors}


@pytest.mark.slow
def test_backend_suite_fails_nowhere_but_where_onnx_fails() -> None:
    ours = run_backend_suite(ReferenceEvaluator, [])
    theirs = run_backend_suite(onnx.reference.ReferenceEvaluator, sorted(ours))
    # what Bernoulli draws is as it should be in either only by chance, so that theirs may pass where ours does not
    drawn = {name for name in ours if name.startswith("test_bernoulli")}
    assert ours - theirs - drawn == set()


@pytest.mark.slow
def test_light_resnet50_gives_the_stored_output() -> None:
    folder = pathlib.Path(onnx.backend.test.__file__).parent / "data" / "light"
    wanted = numpy_helper.to_array(onnx.load_tensor(folder / "light_resnet50_output_0.pb"))
    x = (np.arange(3 * 224 * 224) / (3 * 224 * 224)).astype(np.float32).reshape(1, 3, 224, 224)
    np.testing.assert_allclose(evaluate(folder / "light_resnet50.onnx", {"gpu_0/data_0": x}), wanted, rtol=1e-3, atol=1e-7)


# Arrays that code of others keeps


class Keeps(onnx.reference.op_run.OpRun):
    op_domain = "test"
    kept = np.ones(2, np.float32)

    def _run(self) -> tuple[np.ndarray]:
        return (self.kept,)


def test_outputs_that_a_new_operator_keeps_are_copied() -> None:
    made = model([node("Keeps", "", "y", domain="test")])
    made.opset_import.append(helper.make_opsetid("test", 1))
    evaluator = ReferenceEvaluator(made, new_ops=[Keeps])
    evaluator.run(None, {})[0][:] = 99
    assert evaluator.run(None, {})[0].tolist() == [1, 1]


def test_outputs_that_an_evaluator_of_onnx_keeps_are_copied() -> None:
    function = helper.make_function(
        "f", "F", [], ["y"], [node("Constant", "", "y", value_floats=[1.0, 2.0])], [helper.make_opsetid("", 21)]
    )
    theirs = onnx.reference.ReferenceEvaluator(function)
    call = graph([node("F", "", "y", domain="f")])
    evaluator = ReferenceEvaluator(call, opsets={"": 21, "f": 1}, functions=[theirs])
    evaluator.run(None, {})[0][:] = 99
    assert evaluator.run(None, {})[0].tolist() == [1, 2]


def test_items_of_a_sequence_that_is_fed_as_a_tuple_are_copied() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, None)
    made = model([node("Constant", "", "zero", value_int=0), node("SequenceAt", "s zero", "y")], [sequence])
    fed = np.ones(2, np.float32)
    output = evaluate(made, {"s": (fed,)})
    assert not np.shares_memory(output, fed)
    assert output.flags.writeable


def test_a_value_without_a_name_cannot_be_fed() -> None:
    made = model([helper.make_node("Clip", ["x", "", "top"], ["y"])], "x top")
    with pytest.raises(EvaluationError, match="without a name"):
        evaluate(made, {"x": np.zeros(2, np.float32), "top": np.float32(1), "": np.float32(0.5)})


@pytest.mark.parametrize("op_type", ["EyeLike", "ConstantOfShape"])
def test_a_list_is_no_tensor(op_type: str) -> None:
    with pytest.raises(InvalidTypeError, match="is a list; declared: a tensor"):
        evaluate(model([node(op_type, "x", "y")], "x"), {"x": [2, 3]})


class Noting(ReferenceEvaluator):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.before = ["before"]
        super().__init__(*arguments, **options)
        self.after = ["after"]


def test_pickles_hold_what_a_subclass_adds() -> None:
    made = pickle.loads(pickle.dumps(Noting(model([node("Neg", "x", "y")]))))
    assert (made.before, made.after) == (["before"], ["after"])


# External data


def external(values: np.ndarray, path: Path) -> onnx.TensorProto:
    path.write_bytes(values.tobytes())
    tensor = onnx.TensorProto(name="values", data_type=helper.np_dtype_to_tensor_dtype(values.dtype), dims=values.shape)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=path.name)
    return tensor


def test_sparse_tensors_with_values_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = external(np.array([5, 7], np.float32), tmp_path / "values.bin")
    indices = onnx.numpy_helper.from_array(np.array([0, 2]))
    sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=[3])
    made = model([node("Constant", "", "c", sparse_value=sparse), node("Add", "c values", "y")], sparse_initializer=[sparse])
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    monkeypatch.chdir("/")
    assert evaluate(tmp_path / "m.onnx").tolist() == [10, 0, 14]
    with (tmp_path / "m.onnx").open("rb") as file:
        assert evaluate(file).tolist() == [10, 0, 14]


def test_external_data_of_a_model_without_a_folder(tmp_path: Path) -> None:
    made = model([node("Identity", "values", "y")], initializer=[external(np.ones(2, np.float32), tmp_path / "values.bin")])
    with pytest.raises(EvaluationError, match=r"'values' is stored in another file.*give the model's path, or load it with onnx.load"):
        evaluate(made.SerializeToString())


def test_bodies_for_attributes_are_not_kept_for_ever() -> None:
    constant = helper.make_node("Constant", [], ["y"])
    constant.attribute.add(name="value_int", ref_attr_name="value", type=onnx.AttributeProto.INT)
    function = helper.make_function("f", "F", [], ["y"], [constant], [helper.make_opsetid("", 21)], attributes=["value"])
    evaluator = ReferenceEvaluator(function)
    assert [int(evaluator.run(None, {}, attributes={"value": value})[0]) for value in range(200)] == list(range(200))
    assert len(evaluator._specialised) <= 64
