"""What the tests of movement, indexing and sequences do alike: exact answers, element by element."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import numbaops
from drawn.case import Case
from numbaops.engine.nodes import LeafOperator
from numbaops.ops.leaves import LEAVES

NEWEST = onnx.defs.onnx_opset_version()


def run(case: Case) -> list[Any]:
    """The outputs of the case's model."""
    return numbaops.ReferenceEvaluator(case.model()).run(None, case.feeds)


def check(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], wanted: list[Any]) -> None:
    """Run one node and compare."""
    if opset > NEWEST:
        pytest.skip(f"the installed onnx has no opset {opset}")
    assert_same(run(Case(op_type, opset, inputs, attributes, len(wanted))), wanted)


def assert_same(got: Any, want: Any) -> None:
    """Lists of equal length, or arrays of the same type, shape and elements, where NaN equals NaN."""
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other)
        return
    if want is None:
        assert got is None
        return
    assert type(got) is np.ndarray
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype == object:
        assert [type(each) for each in got.reshape(-1)] == [str] * got.size
    same = (got == want) | ((got != got) & (want != want))
    assert same.all(), f"{got.tolist()}, not {want.tolist()}"


def strings(*texts: Any) -> Any:
    """A vector of strings; nested lists make more dimensions."""
    return np.array(texts, object)


def floats(*values: Any) -> Any:
    return np.array(values, np.float32)


def integers(*values: Any) -> Any:
    return np.array(values, np.int64)


def at(place: Iterable[int], axis: int, index: int) -> tuple[int, ...]:
    """A place with another index along one axis."""
    changed = list(place)
    changed[axis] = int(index)
    return tuple(changed)


def drawn_cases(draws: Iterator[Case], op_type: str, most: int = 400) -> Iterator[Case]:
    """The first cases of one operator."""
    return itertools.islice((case for case in draws if case.op_type == op_type), most)


def assert_pure(cases: Iterable[Case]) -> None:
    """Implementations are ours, leave their inputs as they are, and share memory with them only where they say so."""
    for case in cases:
        (node,) = numbaops.ReferenceEvaluator(case.model()).rt_nodes_
        assert isinstance(node, LeafOperator)
        given = [_copied(value) for value in case.inputs]
        results = node.run(*given)
        for before, after in zip(case.inputs, given, strict=True):
            assert _bits(before) == _bits(after), case
        shared = any(np.may_share_memory(one, other) for one in _arrays(results) for other in _arrays(given))
        assert LEAVES[case.domain, case.op_type, case.since_version].aliases or not shared, case


def _copied(value: Any) -> Any:
    return [each.copy() for each in value] if isinstance(value, list) else None if value is None else value.copy()


def _arrays(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [array for value in values for array in _arrays(value)]
    return [] if values is None else [values]


def _bits(value: Any) -> Any:
    return [(each.shape, each.tolist() if each.dtype == object else each.tobytes()) for each in _arrays(value)]


def assert_node_cases(node_cases: list[Any], operators: set[str]) -> None:
    """ONNX's own cases of single nodes, which must be right for each of the operators that has some."""
    for case in node_cases:
        if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in operators:
            evaluator = numbaops.ReferenceEvaluator(case.model)
            for inputs, outputs in case.data_sets:
                results = evaluator.run(None, dict(zip(evaluator.input_names, map(_as_array, inputs), strict=True)))
                for got, want in zip(results, map(_as_array, outputs), strict=True):
                    if case.rtol and isinstance(want, np.ndarray) and want.dtype.kind == "f":
                        assert got.dtype == want.dtype, case.name
                        np.testing.assert_allclose(got, want, rtol=case.rtol, atol=case.atol, err_msg=case.name)
                    else:
                        assert_same(got, want)


def _as_array(value: Any) -> Any:
    """Tensors of the newer types are protos there, and some scalars are no arrays."""
    if isinstance(value, (list, type(None))):
        return value
    if isinstance(value, onnx.TensorProto):
        return numbaops.to_array(value)
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array
