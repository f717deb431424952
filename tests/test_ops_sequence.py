"""Operators on sequences, optional values and strings, at every version: cases worked out by hand, then drawn ones beside loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import numbaops
from drawn import sequence
from drawn.case import Case
from moving_checks import NEWEST, assert_node_cases, assert_pure, assert_same, at, check, drawn_cases, floats, integers, run, strings
from numbaops.errors import NumbaopsError

ONE, TWO = floats(1), floats([2, 3])
A, B = strings("a"), strings("b", "c")
MINUS_ONE = np.array(-1)


def flags(*values: Any) -> Any:
    return np.array(values, np.bool_)


# id, operator, opset, inputs, attributes, outputs
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], list[Any]]] = [
    ("of strings", "SequenceConstruct", 11, [A, B], {}, [[A, B]]),
    ("empty", "SequenceEmpty", 11, [], {}, [[]]),
    ("empty of strings", "SequenceEmpty", 11, [], {"dtype": 8}, [[]]),
    ("length of nothing", "SequenceLength", 11, [[]], {}, [np.array(0)]),
    ("negative position", "SequenceAt", 11, [[ONE, TWO], MINUS_ONE], {}, [TWO]),
    ("position of shape [1]", "SequenceAt", 11, [[ONE, TWO], np.array([1], np.int32)], {}, [TWO]),
    ("strings", "SequenceAt", 11, [[A, B], np.array(0)], {}, [A]),
    ("at the end", "SequenceInsert", 11, [[ONE], TWO], {}, [[ONE, TWO]]),
    ("past the last", "SequenceInsert", 11, [[ONE], TWO, np.array(1)], {}, [[ONE, TWO]]),
    ("before the last", "SequenceInsert", 11, [[ONE], TWO, MINUS_ONE], {}, [[TWO, ONE]]),
    ("into nothing", "SequenceInsert", 11, [[], TWO, np.array(0)], {}, [[TWO]]),
    ("the last", "SequenceErase", 11, [[ONE, TWO]], {}, [[ONE]]),
    ("the first", "SequenceErase", 11, [[ONE, TWO], np.array(-2)], {}, [[TWO]]),
    ("of length 1", "SplitToSequence", 11, [floats(1, 2)], {}, [[floats(1), floats(2)]]),
    ("without the dimension", "SplitToSequence", 11, [floats([1, 2])], {"axis": -1, "keepdims": 0}, [[floats(1), floats(2)]]),
    ("to scalars", "SplitToSequence", 11, [strings("a", "b")], {"keepdims": 0}, [[np.array("a", object), np.array("b", object)]]),
    ("keepdims without effect", "SplitToSequence", 11, [floats(1, 2), np.array(1)], {"keepdims": 0}, [[floats(1), floats(2)]]),
    ("a shorter last one", "SplitToSequence", 24, [floats(1, 2, 3), np.array(2, np.int32)], {}, [[floats(1, 2), floats(3)]]),
    ("lengths", "SplitToSequence", 11, [floats(1, 2, 3), integers(0, 2, 1)], {}, [[floats(), floats(1, 2), floats(3)]]),
    ("nothing", "SplitToSequence", 11, [floats(), np.array(2)], {}, [[]]),
    ("on a new axis", "ConcatFromSequence", 11, [[ONE, ONE]], {"axis": -2, "new_axis": 1}, [floats([1], [1])]),
    ("on the last new axis", "ConcatFromSequence", 11, [[ONE, ONE]], {"axis": 1, "new_axis": 1}, [floats([1, 1])]),
    ("scalars on a new axis", "ConcatFromSequence", 11, [[np.array(1.0)]], {"axis": 0, "new_axis": 1}, [np.array([1.0])]),
    ("strings", "ConcatFromSequence", 11, [[A, B]], {"axis": 0}, [strings("a", "b", "c")]),
    ("a tensor", "Optional", 15, [ONE], {}, [ONE]),
    ("a sequence", "Optional", 15, [[ONE, TWO]], {}, [[ONE, TWO]]),
    ("nothing", "Optional", 15, [], {"type": helper.make_tensor_type_proto(TensorProto.FLOAT, None)}, [None]),
    ("a tensor", "OptionalGetElement", 18, [ONE], {}, [ONE]),
    ("a sequence", "OptionalGetElement", 18, [[ONE]], {}, [[ONE]]),
    ("a tensor", "OptionalHasElement", 18, [ONE], {}, [np.array(True)]),
    ("an empty sequence", "OptionalHasElement", 18, [[]], {}, [np.array(True)]),
    ("no input", "OptionalHasElement", 18, [None], {}, [np.array(False)]),
    ("whole elements go", "StringNormalizer", 10, [strings("a", "a b", "b")], {"stopwords": ["a"]}, [strings("a b", "b")]),
    ("whatever their case", "StringNormalizer", 10, [strings("a", "A", "b")], {"stopwords": ["A"]}, [strings("b")]),
    ("in this case only", "StringNormalizer", 10, [strings("a", "A")], {"stopwords": ["A"], "is_case_sensitive": 1}, [strings("a")]),
    ("accents stay", "StringNormalizer", 10, [strings("é", "Ü")], {"case_change_action": "UPPER"}, [strings("É", "Ü")]),
    ("empty strings stay", "StringNormalizer", 10, [strings("", "A")], {"case_change_action": "LOWER"}, [strings("", "a")]),
    ("all gone", "StringNormalizer", 10, [strings(["a", "a"])], {"stopwords": ["a"]}, [strings([""])]),
    ("as it is", "StringNormalizer", 10, [strings("a", "B")], {}, [strings("a", "B")]),
    ("broadcast", "StringConcat", 20, [strings(["a"], ["b"]), strings("x", "y")], {}, [strings(["ax", "ay"], ["bx", "by"])]),
    ("scalars", "StringConcat", 20, [np.array("a", object), np.array("b", object)], {}, [np.array("ab", object)]),
    ("a trailing NUL", "StringConcat", 20, [strings("a\0"), strings("b\0")], {}, [strings("a\0b\0")]),
    ("nothing", "StringSplit", 20, [strings("a,b", "")], {"delimiter": ","}, [strings(["a", "b"], ["", ""]), integers(2, 1)]),
    ("between delimiters", "StringSplit", 20, [strings(",,a")], {"delimiter": ","}, [strings(["", "", "a"]), integers(3)]),
    ("white space", "StringSplit", 20, [strings(" a \t\nb ")], {}, [strings(["a", "b"]), integers(2)]),
    ("empty delimiter", "StringSplit", 20, [strings("a  b", " ")], {"delimiter": ""}, [strings(["a", "b"], ["", ""]), integers(2, 0)]),
    ("at most", "StringSplit", 20, [strings("a b  c")], {"maxsplit": 1}, [strings(["a", "b  c"]), integers(2)]),
    ("a trailing NUL", "StringSplit", 20, [strings("a\0,b\0")], {"delimiter": ","}, [strings(["a\0", "b\0"]), integers(2)]),
    ("scalar", "StringSplit", 20, [np.array("a b", object)], {}, [strings("a", "b"), np.array(2)]),
    ("no strings", "StringSplit", 20, [np.empty((0, 2), object)], {}, [np.empty((0, 2, 0), object), np.empty((0, 2), np.int64)]),
    ("only white space", "StringSplit", 20, [strings(" ")], {}, [np.empty((1, 0), object), integers(0)]),
    ("scalar", "RegexFullMatch", 20, [np.array("ab", object)], {"pattern": "a."}, [np.array(True)]),
    ("nothing", "RegexFullMatch", 20, [np.empty((0, 2), object)], {"pattern": "a"}, [np.empty((0, 2), np.bool_)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "outputs"),
    [pytest.param(*case, id=f"{case[0]}-{case[1]}: {name}") for name, *case in CASES],
)
def test_worked_out_by_hand(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], outputs: list[Any]) -> None:
    check(op_type, opset, inputs, attributes, outputs)


# What RE2 means and Python does not, or otherwise: pattern, strings that match, strings that do not
PATTERNS: list[tuple[str, list[str], list[str]]] = [
    (r"a|ab", ["a", "ab"], ["b", "abb", ""]),
    (r"a$", ["a"], ["a\n"]),
    (r"a\z", ["a"], ["a\n"]),
    (r"\d+", ["12"], ["٣", "1a"]),
    (r"\D", ["٣", "a"], ["1"]),
    (r"\w", ["a", "_"], ["é"]),
    (r"[\W]", ["é", "-"], ["a"]),
    (r"[^\W]", ["a"], ["é", "-"]),
    (r"\s", [" ", "\f"], ["\v", "\u00a0"]),
    (r"[\S,]", ["\v", ","], [" "]),
    (r".\b.", ["a-", "aé"], ["ab", "éé"]),
    (r"\B", [""], ["a"]),
    (r"(?i)É", ["é"], ["e"]),
    (r"[[:alpha:]]+", ["aZ"], ["a1", "é"]),
    (r"[[:^digit:]x]", ["x", "é"], ["1"]),
    (r"[]a]", ["]", "a"], ["b"]),
    (r"[^]a]", ["b"], ["]", "a"]),
    (r"[[&&|~~]+", ["[&&|~~"], ["a"]),
    (r"\x{1F600}|\x41", ["\U0001f600", "A"], ["B"]),
    (r"\Qa.*\E.", ["a.*b"], ["abcd"]),
    (r"\Qa.", ["a."], ["ab"]),
    (r"(?<first>a)(?P<second>b)", ["ab"], ["a"]),
    (r"(?s).", ["\n"], [""]),
    (r"\[:alpha:\]", ["[:alpha:]"], ["a"]),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "matching", "others"), PATTERNS, ids=[row[0] for row in PATTERNS])
def test_patterns_are_those_of_re2(pattern: str, matching: list[str], others: list[str]) -> None:
    check(
        "RegexFullMatch", 20, [strings(*matching, *others)], {"pattern": pattern}, [flags(*[True] * len(matching), *[False] * len(others))]
    )


@pytest.mark.parametrize("opset", [15, 18, 28])
@pytest.mark.parametrize("given", [None, ONE, [ONE, TWO], []], ids=["nothing", "tensor", "sequence", "empty sequence"])
def test_optional_values_within_a_model(opset: int, given: Any) -> None:
    if opset > NEWEST:
        pytest.skip(f"the installed onnx has no opset {opset}")
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    if isinstance(given, list):
        kind = helper.make_sequence_type_proto(kind)
    nodes = [
        helper.make_node("Optional", ["x"], ["o"]) if given is not None else helper.make_node("Optional", [], ["o"], type=kind),
        helper.make_node("Identity", ["o"], ["same"]) if opset >= 16 else helper.make_node("Optional", ["o"], ["same"]),
        helper.make_node("OptionalHasElement", ["same"], ["has"]),
    ]
    if given is not None:
        nodes.append(helper.make_node("OptionalGetElement", ["same"], ["got"]))
    inputs = [helper.make_value_info("x", kind)] if given is not None else []
    outputs = [helper.make_tensor_value_info("has", TensorProto.BOOL, [])]
    if given is not None:
        outputs.append(helper.make_value_info("got", kind))
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", opset)])
    got = numbaops.ReferenceEvaluator(model).run(None, {} if given is None else {"x": given})
    assert_same(got, [np.array(given is not None)] + ([] if given is None else [given]))


def test_sequences_are_not_changed() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["s"]),
        helper.make_node("SequenceInsert", ["s", "x"], ["longer"]),
        helper.make_node("SequenceErase", ["s"], ["shorter"]),
        helper.make_node("Identity", ["s"], ["same"]),
    ]
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    names = ["s", "longer", "shorter", "same"]
    outputs = [helper.make_value_info(name, helper.make_sequence_type_proto(kind)) for name in names]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [helper.make_value_info("x", kind)], outputs), opset_imports=[helper.make_opsetid("", 14)]
    )
    assert_same(numbaops.ReferenceEvaluator(model).run(None, {"x": ONE}), [[ONE], [ONE, ONE], [], [ONE]])


# Drawn cases beside loops


def split_up(data: Any, axis: int, lengths: list[int], keep: bool) -> list[Any]:
    found, start = [], 0
    for length in lengths:
        shape = list(data.shape)
        shape[axis] = length
        part = np.empty(shape, data.dtype)
        for place in np.ndindex(part.shape):
            part[place] = data[at(place, axis, place[axis] + start)]
        if not keep:
            del shape[axis]
        found.append(part.reshape(shape))
        start += length
    return found


def oracle_of(case: Case) -> list[Any]:
    data, *rest = case.inputs
    if case.op_type == "SplitToSequence":
        axis = case.attributes.get("axis", 0) % data.ndim
        size = data.shape[axis]
        if rest and rest[0].ndim:
            lengths = rest[0].tolist()
        else:
            step = int(rest[0]) if rest else 1
            lengths = [step] * (size // step) + [size % step] * (size % step > 0)
        return [split_up(data, axis, lengths, bool(rest) or bool(case.attributes.get("keepdims", 1)))]
    if case.op_type == "SequenceInsert":
        copy = list(data)
        copy.insert(int(rest[1]) if len(rest) > 1 else len(copy), rest[0])
        return [copy]
    assert case.op_type == "ConcatFromSequence"
    axis = case.attributes["axis"]
    parts = data
    if case.attributes.get("new_axis"):
        axis %= data[0].ndim + 1
        parts = [each.reshape([*each.shape[:axis], 1, *each.shape[axis:]]) for each in data]
    axis %= parts[0].ndim
    lines = [part[(slice(None),) * axis + (index, ...)] for part in parts for index in range(part.shape[axis])]
    shape = [*parts[0].shape[:axis], len(lines), *parts[0].shape[axis + 1 :]]
    out = np.empty(shape, data[0].dtype)
    for index, line in enumerate(lines):
        out[(slice(None),) * axis + (index,)] = line
    return [out]


@pytest.mark.parametrize("op_type", ["SplitToSequence", "SequenceInsert", "ConcatFromSequence"])
def test_drawn_beside_loops(op_type: str) -> None:
    for case in drawn_cases(sequence.draws(np.random.default_rng(7)), op_type, 150):
        assert_same(run(case), oracle_of(case))


@pytest.mark.parametrize("op_type", sequence.DRAWS)
def test_inputs_are_kept_and_aliases_declared(op_type: str) -> None:
    assert_pure(drawn_cases(sequence.draws(np.random.default_rng(8)), op_type, 60))


def test_node_cases(node_cases: list[Any]) -> None:
    assert_node_cases(node_cases, set(sequence.DRAWS))


ERRORS: list[tuple[str, int, list[Any], dict[str, Any], str]] = [
    ("SequenceAt", 11, [[ONE], np.array(1)], {}, "position is 1 in a sequence of 1; allowed: -1 to 0"),
    ("SequenceAt", 11, [[ONE], np.array([0, 0])], {}, "position has the shape"),
    ("SequenceInsert", 11, [[ONE], ONE, np.array(2)], {}, "allowed: -1 to 1"),
    ("SequenceErase", 11, [[]], {}, "position is -1 in a sequence of 0"),
    ("SplitToSequence", 11, [ONE, np.array(0)], {}, "split is 0; allowed: from 1 on"),
    ("SplitToSequence", 11, [ONE, integers(2)], {}, "whose sum is 1"),
    ("ConcatFromSequence", 11, [[ONE, TWO]], {"axis": 0}, r"axis is 0 for elements of shape \[1\], \[1, 2\]"),
    ("ConcatFromSequence", 11, [[]], {"axis": 0}, "at least one"),
    ("StringNormalizer", 10, [strings(["a"], ["b"])], {}, r"\[C\] and \[1, C\]"),
    ("StringNormalizer", 10, [A], {"case_change_action": "TITLE"}, "NONE, LOWER, UPPER"),
    ("StringNormalizer", 10, [ONE], {}, "float32; allowed: string"),
    ("StringConcat", 20, [A, ONE], {}, "float32; allowed: string"),
    ("StringConcat", 20, [B, strings("a", "b", "c")], {}, "what broadcasts"),
    ("StringSplit", 20, [ONE], {}, "float32; allowed: string"),
    ("RegexFullMatch", 20, [A], {"pattern": "("}, r"pattern is '\('"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "opset", "inputs", "attributes", "text"), ERRORS, ids=[f"{row[0]}-{row[4]}" for row in ERRORS])
def test_errors(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(NumbaopsError, match=text) as caught:
        run(Case(op_type, opset, inputs, attributes, outputs=2 if op_type == "StringSplit" else 1))
    assert caught.value.op_type == op_type


def test_no_element_to_get() -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    nodes = [helper.make_node("Optional", [], ["o"], type=kind), helper.make_node("OptionalGetElement", ["o"], ["y"])]
    graph = helper.make_graph(nodes, "g", [], [helper.make_value_info("y", kind)])
    with pytest.raises(NumbaopsError, match=r"OptionalGetElement-18.*has no element"):
        numbaops.ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])).run(None, {})
