"""ONNX's own node cases: Constant, ConstantOfShape and EyeLike alone, and every case whose model holds an operator of the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import numbaops
import oracle
from numbaops.opset import operators

OPERATORS = tuple(name for name, _ in operators())
GENERATORS = ("Constant", "ConstantOfShape", "EyeLike")
CASES = [
    "test_constant",
    "test_constantofshape_float_ones",
    "test_constantofshape_int_shape_zero",
    "test_constantofshape_int_zeros",
    "test_eyelike_populate_off_main_diagonal",
    "test_eyelike_with_dtype",
    "test_eyelike_without_dtype",
]

# Not the operators' fault: onnx.reference, which runs the nodes that numbaops has no own form of, wraps an optional sequence twice.
KNOWN_WRONG = {"test_if_opt"}
# onnx before 1.19 keeps the bits of these types in arrays of other types.
LATER_TYPES = () if oracle.onnx_has("float4e2m1") else ("BFLOAT16", "FLOAT4E2M1", "INT4")
RANDOM = "test_bernoulli"  # cases of drawn numbers, of which onnx itself compares only the type


@pytest.fixture(scope="module")
def cases(node_cases: list[Any]) -> dict[str, Any]:
    """Every node case of the installed onnx whose model holds one of the operators, by name."""
    return {case.name: case for case in node_cases if any(node.op_type in OPERATORS for node in nodes(case.model.graph))}


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from nodes(inner)


def opset_of(model: onnx.ModelProto) -> int:
    return next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def test_list_of_cases_is_whole(cases: dict[str, Any]) -> None:
    alone = [name for name, case in cases.items() if [node.op_type in GENERATORS for node in case.model.graph.node] == [True]]
    assert sorted(alone) == CASES, "onnx has other cases than CASES lists"


@pytest.mark.parametrize("name", CASES)
def test_case_through_the_bound_operator(cases: dict[str, Any], name: str) -> None:
    model = cases[name].model
    (node,) = model.graph.node
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    bound = numbaops.operator(node.op_type, opset_of(model), node.domain, **attributes)
    assert cases[name].data_sets
    for inputs, (want,) in cases[name].data_sets:
        oracle.assert_same(bound(*inputs), np.asarray(want))


@pytest.mark.parametrize("name", CASES)
def test_case_through_the_evaluator(cases: dict[str, Any], name: str) -> None:
    model = cases[name].model
    evaluator = numbaops.ReferenceEvaluator(model)
    for inputs, (want,) in cases[name].data_sets:
        feeds = dict(zip([value.name for value in model.graph.input], inputs, strict=True))
        (got,) = evaluator.run(None, feeds)
        oracle.assert_same(got, np.asarray(want))


def as_array(value: Any) -> Any:
    """A value of a case as an array; tensors of the newer types are protos there."""
    if isinstance(value, (list, type(None))):
        return value
    return numbaops.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def swapped(value: Any) -> Any:
    """The same numbers in the other byte order, where NumPy has one."""
    if isinstance(value, list):
        return [swapped(each) for each in value]
    builtin = isinstance(value, np.ndarray) and value.dtype.isbuiltin == 1 and value.dtype != object
    return value.astype(value.dtype.newbyteorder()) if builtin else value


def assert_close(got: Any, want: Any, case: Any) -> None:
    """An output as the case has it, within its tolerance; sequences item by item, an empty optional is None."""
    if isinstance(want, list):
        assert isinstance(got, list)
        for got_item, want_item in zip(got, want, strict=True):
            assert_close(got_item, want_item, case)
    elif want is None:
        assert got is None
    else:
        assert got.dtype == want.dtype
        if want.dtype == object:
            assert got.tolist() == want.tolist()
            return
        rtol = max(case.rtol, 2**-6) if want.dtype.name == "bfloat16" else case.rtol  # as onnx's own runner has it
        if want.dtype.isbuiltin != 1:
            got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=case.atol)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")  # of the operators that onnx.reference runs
@pytest.mark.usefixtures("stage")
def test_every_case_that_holds_one_of_the_operators(cases: dict[str, Any]) -> None:
    assert len(cases) > 100
    wrong = {}
    for name, case in cases.items():
        if name.startswith(RANDOM) or any(each in name for each in LATER_TYPES):
            continue
        try:
            evaluator = numbaops.ReferenceEvaluator(case.model)
            for inputs, outputs in case.data_sets:
                feeds = dict(zip([value.name for value in case.model.graph.input], map(as_array, inputs), strict=True))
                for given in (feeds, feeds, {name: swapped(value) for name, value in feeds.items()}):  # the second time by another way
                    for got, want in zip(evaluator.run(None, given), outputs, strict=True):
                        assert_close(got, as_array(want), case)
        except Exception as error:  # every case is tried, then all that failed are named
            wrong[name] = f"{type(error).__name__}: {error}"[:200]
    assert {name: text for name, text in wrong.items() if name not in KNOWN_WRONG} == {}
