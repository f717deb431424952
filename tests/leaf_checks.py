"""What the tests of several operator families do alike."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import numbaops
from drawn.case import Case
from numbaops.ops.leaves import LEAVES

NEWEST = onnx.defs.onnx_opset_version()


def run(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any] | None = None, outputs: int = 1) -> list[Any]:
    """The outputs of a model of one node; the test is skipped if this onnx has no such opset."""
    if opset > NEWEST:
        pytest.skip(f"this onnx ends at opset {NEWEST}")
    case = Case(op_type, opset, inputs, attributes or {}, outputs)
    return numbaops.ReferenceEvaluator(case.model()).run(None, case.feeds)


def each_case(cases: list[Any]) -> Any:
    """Runs a test for each of ``(name, operator, opset, inputs, attributes, want)``."""
    names = ("op_type", "opset", "inputs", "attributes", "want")
    return pytest.mark.parametrize(names, [case[1:] for case in cases], ids=[f"{case[1]}-{case[2]}: {case[0]}" for case in cases])


def assert_close(got: Any, want: Any, dtype: Any, rtol: float = 1e-6, atol: float = 1e-7) -> None:
    """An array of exactly that type and of the shape and values of ``want``, within a tolerance or one unit of a half type."""
    assert got.dtype == dtype
    want = np.asarray(want, np.float64)
    assert got.shape == want.shape
    if got.dtype.itemsize == 2:
        rtol = max(rtol, 2.0**-10 if got.dtype == np.float16 else 2.0**-7)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=rtol, atol=atol)


def assert_pure(case: Case) -> None:
    """The implementation leaves its inputs as they are, and shares memory with them only where it says so."""
    schema = onnx.defs.get_schema(case.op_type, case.opset, case.domain)
    leaf = LEAVES[case.domain, case.op_type, schema.since_version]
    attributes = {
        name: helper.get_attribute_value(each.default_value) for name, each in schema.attributes.items() if each.default_value.type
    }
    for attribute in case.model().graph.node[0].attribute:
        attributes[attribute.name] = helper.get_attribute_value(attribute)
    attributes = {name: _text(value) for name, value in attributes.items()}
    if "outputs" in inspect.signature(leaf.function).parameters:
        attributes["outputs"] = case.outputs
    inputs = [None if value is None else value.copy() for value in case.inputs]
    results = leaf.function(**attributes)(*inputs) if leaf.bind else leaf.function(*inputs, **attributes)
    for before, after in zip(case.inputs, inputs, strict=True):
        assert before is None or before.tobytes() == after.tobytes(), case
    for result in results if isinstance(results, tuple) else (results,):
        shares = any(np.may_share_memory(result, value) for value in inputs if value is not None)
        assert leaf.aliases or not shares, case


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_text(each) for each in value] if isinstance(value, Iterable) and not isinstance(value, (str, np.ndarray)) else value


def assert_node_cases(node_cases: list[Any], *operators: str) -> int:
    """ONNX's own node cases that hold one of the operators, in the tolerance of ONNX's runner; gives their number."""
    seen = 0
    for case in node_cases:
        if any(node.op_type in operators for node in case.model.graph.node):
            seen += 1
            evaluator = numbaops.ReferenceEvaluator(case.model)
            for inputs, outputs in case.data_sets:
                results = evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=False)))
                for got, want in zip(results, outputs, strict=True):
                    assert got.dtype == want.dtype, case.name
                    rtol = max(case.rtol, 2**-6) if want.dtype.name == "bfloat16" else case.rtol
                    wide = (got.astype(np.float64), want.astype(np.float64))
                    np.testing.assert_allclose(*wide, rtol=rtol, atol=case.atol, err_msg=case.name)
    return seen
