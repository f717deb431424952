"""Bad models: one clear error each, at load or at the first run; no crash, no endless search, no read outside the model's folder."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from numbaops.errors import AllocationError, EvaluationError, InvalidTypeError, InvalidValueError, NumbaopsError, UnsupportedError
from numbaops.reference import InvalidModelError, ReferenceEvaluator

pytestmark = pytest.mark.usefixtures("stage")

X = np.array([1, -2], np.float32)


def model(text: str, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "f" : 1]>\n{text}')


def function(body: str, name: str = "F", imports: str = '"" : 17, "f" : 1') -> str:
    return f'<domain: "f", opset_import: [{imports}]>\n{name} (a) => (b) {{ {body} }}\n'


IF = "If (c) <then_branch = t () => (r) { %s }, else_branch = e () => (s) { %s }>"


class Bad:
    """A model, the error that it gives, and what its text says."""

    def __init__(self, text: str, kind: type[Exception], message: str, opset: int = 17, **feeds: Any) -> None:
        self.text, self.kind, self.message, self.opset, self.feeds = text, kind, message, opset, feeds


BAD = {
    # graphs
    "cycle": Bad(
        "g (x) => (y) { a = Add(x, b)  b = Neg(a)  y = Neg(b) }",
        EvaluationError,
        r"Add-14 \(node 'a'\): (takes 'b', which only the later node 'b'|.*find input 'b')",
    ),
    "cycle-of-one": Bad(
        "g (x) => (y) { y = Add(x, y) }", EvaluationError, r"Add-14 \(node 'y'\): (takes 'y', which only itself|.*find input 'y')"
    ),
    "out-of-order": Bad(
        "g (x) => (y) { y = Neg(a)  a = Neg(x) }", EvaluationError, "takes 'a', which only the later node 'a' computes|find input 'a'"
    ),
    "cycle-in-a-body": Bad(
        f"g (x) => (y) {{ c = Constant <value = bool {{1}}> ()  y = {IF % ('r = Neg(q)  q = Neg(r)', 's = Neg(x)')} }}",
        EvaluationError,
        "takes 'q', which only the later node 'q'|find input 'q'",
    ),
    "name-computed-twice": Bad(
        "g (x) => (y) { y = Neg(x)  y = Abs(x) }", EvaluationError, r"Abs-13 \(node 'y'\): computes 'y', as the node 'y' does"
    ),
    "name-computed-twice-by-one-node": Bad(
        "g (x) => (y) { y, y = Split <axis = 0> (x) }", EvaluationError, "computes 'y', as the node 'y' does", 12
    ),
    "input-computed": Bad("g (x) => (x) { x = Neg(x) }", EvaluationError, "computes 'x', as an input or initializer does"),
    "initializer-computed": Bad(
        "g (x) => (k) <float k = {1}> { k = Neg(x) }", EvaluationError, "computes 'k', as an input or initializer does"
    ),
    "name-computed-twice-in-a-body": Bad(
        f"g (x) => (y) {{ c = Constant <value = bool {{1}}> ()  y = {IF % ('r = Neg(x)  r = Abs(x)', 's = Neg(x)')} }}",
        EvaluationError,
        r"Abs-13 \(node 'r'\): computes 'r'",
    ),
    "input-that-nobody-computes": Bad("g (x) => (y) { y = Add(x, w) }", EvaluationError, r"Add-14 \(node 'y'\): Unable to find input 'w'"),
    # operators
    "unknown-operator": Bad(
        "g (x) => (y) { y = Nothing(x) }", UnsupportedError, r"Nothing \(node 'y'\): nobody implements this operator of domain ''"
    ),
    "unknown-operator-in-a-body": Bad(
        f"g (x) => (y) {{ c = Constant <value = bool {{0}}> ()  y = {IF % ('r = Nothing(x)', 's = Neg(x)')} }}",
        UnsupportedError,
        r"Nothing \(node 'r'\)",
    ),
    "unknown-domain": Bad("g (x) => (y) { y = q.Neg(x) }", EvaluationError, r"Domain 'q' .*'Neg'.* is not specified"),
    "unknown-function": Bad(
        "g (x) => (y) { y = f.Neg(x) }", UnsupportedError, r"Neg \(node 'y'\): nobody implements this operator of domain 'f'"
    ),
    "operator-of-a-later-opset": Bad(
        "g (x) => (y) { y = Gelu(x) }", UnsupportedError, r"Gelu \(node 'y'\): the operator does not exist at opset 12", 12
    ),
    "operator-of-a-later-opset-that-onnx.reference-runs": Bad(
        "g (x) => (y) { y = Celu(x) }", UnsupportedError, r"Celu \(node 'y'\): the operator does not exist at opset 11", 11
    ),
    "own-operator-of-a-later-opset": Bad("g (x) => (y) { y = EyeLike(x) }", UnsupportedError, "EyeLike.*opset 8", 8),
    "unknown-attribute": Bad(
        "g (x) => (y) { y = Neg <zz = 1> (x) }", InvalidValueError, r"Neg-13 \(node 'y'\): there is no attribute 'zz'"
    ),
    "missing-attribute": Bad(
        "g (x) => (y) { y = Concat (x) }", InvalidValueError, r"Concat-13 \(node 'y'\): the attribute 'axis' is missing"
    ),
    "float-for-an-int": Bad("g (x) => (y) { y = Concat <axis = 1.5> (x) }", TypeError, r"Concat-13 \(node 'y'\)"),
    "int-for-ints": Bad("g (x) => (y) { y = Transpose <perm = 1> (x) }", TypeError, r"Transpose \(node 'y'\): unable to load the node"),
    "too-few-inputs": Bad("g (x) => (y) { y = Add (x) }", InvalidValueError, r"Add-14 \(node 'y'\): the node has 1 inputs; allowed: 2"),
    "too-many-inputs": Bad("g (x) => (y) { y = Neg (x, x) }", InvalidValueError, r"Neg-13 \(node 'y'\): the node has 2 inputs; allowed: 1"),
    "too-many-outputs": Bad(
        "g (x) => (y) { y, z = Neg (x) }", InvalidValueError, r"Neg-13 \(node 'y'\): the node has 2 outputs; allowed: 1"
    ),
    "absent-input": Bad("g (x) => (y) { y = Add (x, ) }", InvalidValueError, "the node has 1 inputs; allowed: 2"),
    "element-type-that-there-is-not": Bad("g (x) => (y) { y = Cast <to = 99> (x) }", InvalidTypeError, r"Cast-13 \(node 'y'\).*number 99"),
    "strings-and-floats": Bad(
        "g (x, s) => (y) { y = Add (x, s) }", TypeError, r"Add-14 \(node 'y'\).*float32\[2\], object\[1\]", s=np.array(["a"], object)
    ),
    "absent-value": Bad("g (x, s) => (y) { y = Add (x, s) }", NumbaopsError, r"Add-14 \(node 'y'\).*float32\[2\], absent", s=None),
    # functions
    "recursion": Bad("g (x) => (y) { y = f.F(x) }\n" + function("b = f.F(a)"), InvalidValueError, r"must not call itself: f\.F -> f\.F"),
    "recursion-of-two": Bad(
        "g (x) => (y) { y = f.F(x) }\n" + function("b = f.G(a)") + function("b = f.F(a)", "G"), InvalidValueError, r"f\.F -> f\.G -> f\.F"
    ),
    "recursion-in-a-body": Bad(
        "g (x) => (y) { y = f.F(x) }\n" + function(f"c = Constant <value = bool {{0}}> ()  b = {IF % ('r = f.F(a)', 's = Neg(a)')}"),
        InvalidValueError,
        "must not call itself",
    ),
    "recursion-that-nobody-calls": Bad("g (x) => (y) { y = Neg(x) }\n" + function("b = f.F(a)"), InvalidValueError, "must not call itself"),
    "function-that-computes-no-output": Bad(
        "g (x) => (y) { y = f.F(x) }\n" + function("c = Neg(a)"), EvaluationError, "Unable to find output name 'b'"
    ),
    "function-that-sees-outer-names": Bad(
        "g (x) => (y) { y = f.F(x) }\n" + function("b = Add(a, x)"), EvaluationError, r"Add-14 \(node 'b'\).*input 'x'"
    ),
    "function-without-an-import": Bad(
        "g (x) => (y) { y = f.F(x) }\n" + function("b = Neg(a)", imports='"f" : 1'), EvaluationError, "Domain '' .*'Neg'"
    ),
    "call-with-too-many-inputs": Bad(
        "g (x) => (y) { y = f.F(x, x) }\n" + function("b = Neg(a)"), InvalidValueError, r"F \(node 'y'\): the call has 2 inputs"
    ),
    "call-with-too-many-outputs": Bad(
        "g (x) => (y) { y, z = f.F(x) }\n" + function("b = Neg(a)"), InvalidValueError, r"F \(node 'y'\): the call has 2 outputs"
    ),
    # shapes
    "negative-fill": Bad(
        "g () => (y) <int64[1] s = {-1}> { y = ConstantOfShape(s) }",
        InvalidValueError,
        r"ConstantOfShape-9 \(node 'y'\).*must not be negative",
    ),
    "negative-expand": Bad("g (x) => (y) <int64[1] s = {-3}> { y = Expand(x, s) }", InvalidValueError, r"Expand-13 \(node 'y'\).*\[-3\]"),
    "negative-tile": Bad("g (x) => (y) <int64[1] s = {-1}> { y = Tile(x, s) }", InvalidValueError, r"Tile-13 \(node 'y'\).*\[-1\]"),
    "negative-reshape": Bad(
        "g (x) => (y) <int64[1] s = {-2}> { y = Reshape(x, s) }", InvalidValueError, r"Reshape-14 \(node 'y'\).*\[-2\]"
    ),
    "negative-random": Bad("g () => (y) { y = RandomNormal <shape = [-1]> () }", ValueError, r"RandomNormal-1 \(node 'y'\).*negative"),
    "negative-depth": Bad(
        "g () => (y) <int64 d = {-4}, int64[1] i = {1}, float[2] v = {0, 1}> { y = OneHot(i, d, v) }", InvalidValueError, "OneHot-11.*-4"
    ),
    "negative-scale": Bad("g (x) => (y) <float[1] s = {-1}> { y = Resize(x, , s) }", InvalidValueError, r"Resize-13 \(node 'y'\).*-1"),
    "negative-split": Bad(
        "g (x) => (y) <int64[2] s = {-1, 3}> { y, z = Split(x, s) }", InvalidValueError, r"Split-13 \(node 'y'\).*\[-1, 3\]"
    ),
    "pad-of-more-than-all": Bad(
        "g (x) => (y) <int64[2] s = {0, -5}> { y = Pad(x, s) }", InvalidValueError, r"Pad-13 \(node 'y'\).*\[0, -5\]"
    ),
    "step-of-0": Bad(
        "g (x) => (y) <int64[1] a = {0}, int64[1] b = {1}> { y = Slice(x, a, b, a, a) }", InvalidValueError, r"Slice-13 \(node 'y'\).*\[0\]"
    ),
    "delta-of-0": Bad("g () => (y) <int64 a = {0}, int64 b = {1}> { y = Range(a, b, a) }", InvalidValueError, r"Range-11 \(node 'y'\).*0"),
    "k-of-more-than-all": Bad("g (x) => (y) <int64[1] k = {9}> { y, i = TopK(x, k) }", InvalidValueError, r"TopK-11 \(node 'y'\).*9"),
}


def feeds_of(bad: Bad, made: ModelProto) -> dict[str, Any]:
    return {each.name: bad.feeds.get(each.name, X) for each in made.graph.input}


@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
@pytest.mark.parametrize("name", BAD)
def test_one_clear_error(name: str, slow: bool) -> None:
    bad = BAD[name]
    made = model(bad.text, bad.opset)
    with pytest.raises(bad.kind, match=bad.message) as caught:
        ReferenceEvaluator(made).run(None, feeds_of(bad, made), intermediate=slow)
    assert isinstance(caught.value, NumbaopsError)
    with pytest.raises(NumbaopsError):
        ReferenceEvaluator(made, strict=True).run(None, feeds_of(bad, made), intermediate=slow)


def test_an_output_that_nobody_computes() -> None:
    evaluator = ReferenceEvaluator(model("g (x) => (z) { y = Neg(x) }"))
    with pytest.raises(EvaluationError, match=r"Unable to find output name 'z' in \['x', 'y'\]"):
        evaluator.run(None, {"x": X})


# --- huge outputs ---------------------------------------------------------------------------------------------------------

OVERCOMMITS = Path("/proc/sys/vm/overcommit_memory")
LARGE = 1 << 40
"""Elements that no machine has memory for."""
LARGER = 1 << 46
"""Elements for which there are not even addresses."""

HUGE: dict[str, str] = {
    "ConstantOfShape": "g () => (y) <int64[1] s = {%d}> { y = ConstantOfShape(s) }",
    "ConstantOfShape-inside": "g () => (y) <int64[1] s = {%d}> { a = ConstantOfShape(s)  y = Neg(a) }",
    "Expand": "g () => (y) <int64[1] s = {%d}, float[1] k = {1}> { y = Expand(k, s) }",
    "Expand-inside": "g () => (y) <int64[1] s = {%d}, float[1] k = {1}> { a = Expand(k, s)  y = Neg(a) }",
    "Tile": "g () => (y) <int64[1] s = {%d}, float[1] k = {1}> { y = Tile(k, s) }",
    "Pad": "g () => (y) <int64[2] s = {0, %d}, float[1] k = {1}> { y = Pad(k, s) }",
    "OneHot": "g () => (y) <int64 s = {%d}, int64[1] i = {1}, float[2] k = {0, 1}> { y = OneHot(i, s, k) }",
    "Range": "g () => (y) <int64 a = {0}, int64 b = {%d}, int64 d = {1}> { y = Range(a, b, d) }",
    "Resize": "g () => (y) <int64[1] s = {%d}, float[1] k = {1}> { y = Resize(k, , , s) }",
    "RandomUniform": "g () => (y) { y = RandomUniform <shape = [%d]> () }",
    "MaxUnpool": "g () => (y) <float[1,1,1] k = {1}, int64[1,1,1] i = {0}, int64[3] s = {1, 1, %d}> "
    "{ y = MaxUnpool <kernel_shape = [1]> (k, i, s) }",
    "ConvTranspose": "g () => (y) <float[1,1,1] k = {1}> { y = ConvTranspose <output_padding = [%d]> (k, k) }",
    "BlackmanWindow": "g () => (y) <int64 s = {%d}> { y = BlackmanWindow(s) }",
}
DIRECT = [name for name in HUGE if not name.endswith("-inside")]


@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
@pytest.mark.parametrize("elements", [LARGE, LARGER], ids=["no-memory", "no-addresses"])
@pytest.mark.parametrize("name", HUGE)
def test_outputs_that_no_memory_holds(name: str, elements: int, slow: bool) -> None:
    """An error that says so, and no attempt that would get the process killed."""
    if elements == LARGE and OVERCOMMITS.exists() and OVERCOMMITS.read_text().strip() == "1":
        pytest.skip("this machine promises memory that it does not have")
    with pytest.raises((MemoryError, ValueError)) as caught:
        ReferenceEvaluator(model(HUGE[name] % elements)).run(None, {}, intermediate=slow)
    assert isinstance(caught.value, NumbaopsError)
    assert name.partition("-")[0] in str(caught.value) or "Neg" in str(caught.value) or "output of float" in str(caught.value)


@pytest.mark.parametrize("name", DIRECT)
def test_sizes_that_overflow(name: str) -> None:
    with pytest.raises((MemoryError, ValueError)) as caught:
        ReferenceEvaluator(model(HUGE[name] % (1 << 62))).run(None, {})
    assert isinstance(caught.value, NumbaopsError)


def test_a_view_of_one_element_that_is_an_output() -> None:
    fed = np.broadcast_to(np.float32(1), (1 << 23, 1 << 23))
    with pytest.raises(AllocationError, match=r"no memory for an output of float32\[8388608, 8388608\]"):
        ReferenceEvaluator(model("g (x) => (y) { y = Identity(x) }")).run(None, {"x": fed})
    assert ReferenceEvaluator(model("g (x) => (y) { a = Identity(x)  y = Shape(a) }")).run(None, {"x": fed})[0].tolist() == [
        1 << 23,
        1 << 23,
    ]


# --- feeds ----------------------------------------------------------------------------------------------------------------

ADD = "g (float[2] x, float[2] w) => (y) { y = Add(x, w) }"


@pytest.mark.parametrize(
    ("feeds", "kind", "message"),
    [
        pytest.param({"x": X}, EvaluationError, "Unable to find input 'w'.*Inputs: 'x', 'w'", id="missing"),
        pytest.param({}, EvaluationError, "Unable to find input 'x'", id="nothing"),
        pytest.param({"x": X, "w": X, "q": X}, EvaluationError, "'q' is fed, but the graph has no such value", id="unknown"),
        pytest.param(None, InvalidTypeError, "feed_inputs is a NoneType", id="none"),
        pytest.param([X, X], InvalidTypeError, "feed_inputs is a list", id="list"),
    ],
)
def test_feeds(feeds: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        ReferenceEvaluator(model(ADD)).run(None, feeds)


@pytest.mark.parametrize(
    ("w", "kind", "message"),
    [
        pytest.param(X.astype(np.float64), InvalidTypeError, "input 'w' has the element type double; declared: float", id="type"),
        pytest.param(X[:1], InvalidValueError, r"input 'w' has the shape \[1\]; declared: \[2\]", id="shape"),
        pytest.param(X[None], InvalidValueError, r"input 'w' has the shape \[1, 2\]; declared: \[2\]", id="rank"),
        pytest.param("text", InvalidTypeError, "input 'w' is a str; declared: a tensor", id="no-array"),
        pytest.param(None, InvalidTypeError, "input 'w' is a NoneType; declared: a tensor", id="absent"),
    ],
)
def test_strict_feeds(w: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        ReferenceEvaluator(model(ADD), strict=True).run(None, {"x": X, "w": w})


def test_names_of_feeds_that_are_no_strings() -> None:
    with pytest.raises(EvaluationError, match=r"Unable to find input 'x'.*fed: \['3', 'q'\]"):
        ReferenceEvaluator(model(ADD)).run(None, {3: X, "q": X})


def test_masked_feeds() -> None:
    with pytest.raises(InvalidTypeError, match="input 'w' is a masked array"):
        ReferenceEvaluator(model(ADD)).run(None, {"x": X, "w": np.ma.masked_array(X, [True, False])})


def test_text_files_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match="the file object gives str; allowed: a file opened for bytes"):
        ReferenceEvaluator(io.StringIO("text"))


def test_negative_dimensions_are_unknown_ones() -> None:
    made = model("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    for value in (made.graph.input[0], made.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    assert ReferenceEvaluator(made, strict=True).run(None, {"x": X})[0].tolist() == [-1, 2]


@pytest.mark.parametrize("strict", [False, True])
def test_a_sequence_may_be_a_tuple(strict: bool) -> None:
    made = model("g (seq(float[2]) x) => (float[2] y) { i = Constant <value_int = 1> ()  y = SequenceAt(x, i) }")
    for _ in range(4):
        assert ReferenceEvaluator(made, strict=strict).run(None, {"x": (X, -X)})[0].tolist() == [-1, 2]


def test_attributes_that_are_somebody_elses() -> None:
    """onnx.checker lets nodes have those whose names begin with two underscores."""
    made = model("g (float[2] x) => (float[2] y) { a = Relu(x)  s = Shape(a)  c = ConstantOfShape(s)  y = Add(a, c) }")
    for node in made.graph.node:
        node.attribute.append(helper.make_attribute("__mark", 1))
    assert ReferenceEvaluator(made, strict=True).run(None, {"x": X})[0].tolist() == [1, 0]


def test_absent_inputs_at_the_end() -> None:
    made = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    made.graph.node[0].input.append("")
    for _ in range(2):
        assert ReferenceEvaluator(made).run(None, {"x": X})[0].tolist() == [1, 0]


def test_strict_types_of_values_inside() -> None:
    text = "g (float[2] x) => (y) { d = Cast <to = 11> (x)  y = Add(x, d) }"
    with pytest.raises(InvalidTypeError, match=r"Add-14 \(node 'y'\).*double.*float"):
        ReferenceEvaluator(model(text), strict=True).run(None, {"x": X})
    text = "g (float[2] x) => (y) { d = Cast <to = 9> (x)  y = Neg(d) }"
    with pytest.raises(InvalidTypeError, match=r"Neg-13 \(node 'y'\).*bool; this version allows"):
        ReferenceEvaluator(model(text), strict=True).run(None, {"x": X})


def test_declared_shapes_may_lie() -> None:
    """What is declared for values inside is not what runs."""
    text = "g (float[2] x) => (float[7] y) <float[3,3] a> { a = Neg(x)  y = Abs(a) }"
    assert ReferenceEvaluator(model(text)).run(None, {"x": X})[0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("float[7] y", r"output 'y' has the shape \[2\]; declared: \[7\]"),
        ("float[n, 2] y", r"output 'y' has the shape \[2\]; declared: \[n, 2\]"),
        ("int64[2] y", "output 'y' has the element type float; declared: int64"),
        ("seq(float[2]) y", "output 'y' is a ndarray; declared: a sequence"),
    ],
)
def test_strict_outputs(declared: str, message: str) -> None:
    made = model(f"g (float[2] x) => ({declared}) {{ a = Neg(x)  y = Abs(a) }}")
    evaluator = ReferenceEvaluator(made, strict=True)
    for options in ({}, {"intermediate": True}):
        with pytest.raises(NumbaopsError, match=message):
            evaluator.run(None, {"x": X}, **options)
    assert evaluator.run(["a"], {"x": X})[0].tolist() == [-1, 2]


def test_strict_asks_the_checker(tmp_path: Path) -> None:
    """Of what nothing else looks at; the bodies, the functions and the data beside the model count."""
    made = model("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    made.graph.name = ""
    assert ReferenceEvaluator(made).run(None, {"x": X})[0].tolist() == [-1, 2]
    with pytest.raises(InvalidValueError, match=r"strict: the model is not valid ONNX: .*name"):
        ReferenceEvaluator(made, strict=True)
    with pytest.raises(InvalidValueError, match=r"strict: the graph is not valid ONNX: .*name"):
        ReferenceEvaluator(made.graph, {"": 17}, strict=True)
    assert ReferenceEvaluator(save_external(tmp_path), strict=True).run(None, {})[0].tolist() == [-1, -2]


# --- tensors that lie -----------------------------------------------------------------------------------------------------


def with_initializer(tensor: TensorProto) -> ModelProto:
    made = model("g () => (y) { y = Neg(k) }")
    made.graph.initializer.append(tensor)
    return made


def tensor(dims: list[int], raw: bytes = b"", kind: int = TensorProto.FLOAT, **fields: Any) -> TensorProto:
    made = TensorProto(name="k", data_type=kind, dims=dims, **fields)
    if raw:
        made.raw_data = raw
    return made


LYING = {
    "too-few-bytes": tensor([3], bytes(8)),
    "too-many-bytes": tensor([1], bytes(8)),
    "too-few-floats": tensor([3], float_data=[1, 2]),
    "no-data": tensor([3]),
    "negative-dim": tensor([-3], bytes(12)),
    "two-negative-dims": tensor([-1, -3], bytes(12)),
    "dims-that-overflow": tensor([1 << 62, 4], bytes(4)),
    "dims-that-wrap-to-what-is-there": tensor([1 << 32, 1 << 32], bytes(4)),
    "huge-dims": tensor([LARGE], bytes(4)),
    "huge-dims-of-nothing": tensor([LARGE]),
    "no-type": tensor([1], bytes(4), 0),
    "unknown-type": tensor([1], bytes(4), 99),
    "other-field": tensor([1], int64_data=[1]),
    "two-fields": tensor([1], bytes(4), float_data=[1]),
    "segment": tensor([1], bytes(4), segment=TensorProto.Segment(begin=0, end=1)),
}


@pytest.mark.parametrize("name", LYING)
def test_tensors_that_lie(name: str) -> None:
    with pytest.raises(NumbaopsError, match="initializer 'k'") as caught:
        ReferenceEvaluator(with_initializer(LYING[name]))
    assert isinstance(caught.value, (ValueError, TypeError, NotImplementedError))


def test_names_that_initializers_share() -> None:
    made = with_initializer(numpy_helper.from_array(X, "k"))
    made.graph.initializer.append(numpy_helper.from_array(2 * X, "k"))
    # onnx.reference and ONNX Runtime take the last one, and exporters have written such models
    assert ReferenceEvaluator(made).run(None, {})[0].tolist() == [-2, 4]


# --- external data --------------------------------------------------------------------------------------------------------


def save_external(folder: Path, size: int = 8, **where: Any) -> Path:
    """A model with one initializer of two floats in another file; ``size`` bytes are there."""
    folder.mkdir(exist_ok=True)
    (folder / "data.bin").write_bytes(np.arange(1, 9, dtype=np.float32).tobytes()[:size])
    made = with_initializer(tensor([2], data_location=TensorProto.EXTERNAL))
    for key, value in {"location": "data.bin", **where}.items():
        made.graph.initializer[0].external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


WAYS: dict[str, Callable[[Path], Any]] = {
    "str": str,
    "path": lambda path: path,
    "file": lambda path: open(path, "rb"),  # noqa: SIM115
}


def evaluate(source: Any) -> Any:
    try:
        return ReferenceEvaluator(source).run(None, {})[0]
    finally:
        if hasattr(source, "close"):
            source.close()


@pytest.mark.parametrize("way", WAYS)
def test_external_data_are_read(way: str, tmp_path: Path) -> None:
    assert evaluate(WAYS[way](save_external(tmp_path))).tolist() == [-1, -2]
    assert evaluate(WAYS[way](save_external(tmp_path, 32, offset=8, length=8))).tolist() == [-3, -4]


EXTERNAL = {
    "cut-short": {"size": 4},
    "empty": {"size": 0},
    "missing": {"location": "other.bin"},
    "offset-beyond-the-end": {"offset": 100},
    "negative-offset": {"offset": -4},
    "length-beyond-the-end": {"length": 100},
    "negative-length": {"length": -8},
    "length-of-something-else": {"size": 32, "length": 12},
    "no-number": {"offset": "x"},
    "parent-folder": {"location": "../secret.bin"},
    "parent-of-a-folder-inside": {"location": "inside/../../secret.bin"},
    "absolute": {"location": "{absolute}"},
    "symlink": {"location": "link.bin"},
    "symlinked-folder": {"location": "linked/secret.bin"},
    "the-folder": {"location": "."},
    "no-location": {"location": ""},
}


ONNX_VERSION = tuple(int(part) for part in onnx.__version__.split(".")[:2])
NEWER_CHECKS = {"negative-offset", "length-beyond-the-end", "symlink", "symlinked-folder"}
"""What onnx, whose checks are the ones that count, refuses in 1.23 and did not in 1.18."""


@pytest.mark.parametrize("mapped_from", [1, 1000])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", EXTERNAL)
def test_external_data_that_are_not_there_or_elsewhere(
    name: str, way: str, mapped_from: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numbaops.engine.external.MAPPED_FROM", mapped_from)
    if name in NEWER_CHECKS and ONNX_VERSION < (1, 23):
        pytest.skip("the installed onnx may not check this")
    (tmp_path / "secret.bin").write_bytes(np.full(2, 42, np.float32).tobytes())
    folder = tmp_path / "model"
    where = {
        key: str(value).format(absolute=tmp_path / "secret.bin") if key == "location" else value for key, value in EXTERNAL[name].items()
    }
    path = save_external(folder, **where)
    (folder / "inside").mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "linked").symlink_to(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx warns of keys that it does not know
        with pytest.raises((InvalidValueError, FileNotFoundError), match=r"external data cannot be read|initializer 'k'|\.bin") as caught:
            evaluate(WAYS[way](path))
    assert name == "missing" or isinstance(caught.value, NumbaopsError)


def test_external_data_of_a_model_without_a_folder(tmp_path: Path) -> None:
    path = save_external(tmp_path)
    made = onnx.load(path, load_external_data=False)
    for source in (made, path.read_bytes(), io.BytesIO(path.read_bytes())):
        with pytest.raises(NumbaopsError, match=r"'k'"):
            ReferenceEvaluator(source).run(None, {})


# --- files ----------------------------------------------------------------------------------------------------------------

SMALL = """g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> {
    a = Add(x, k)
    c = Constant <value = bool {1}> ()
    y = If (c) <then_branch = t () => (float[2] r) { r = Neg(a) }, else_branch = e () => (float[2] s) { s = f.F(a) }>
}
""" + function("b = Neg(a)")


def test_every_prefix_of_a_model() -> None:
    """Cut short anywhere, a model is refused, or what is left of it is run or refused; nothing else happens."""
    content = model(SMALL).SerializeToString()
    refused = 0
    for size in range(len(content)):
        try:
            ReferenceEvaluator(content[:size]).run(None, {"x": X})
        except NumbaopsError as error:
            refused += isinstance(error, InvalidModelError)
    assert refused > len(content) // 2


def test_bytes_that_are_wrong() -> None:
    """One wrong byte may give another model, which runs or is refused."""
    content = bytearray(model(SMALL).SerializeToString())
    rng = np.random.default_rng(3)
    strange = set()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for _ in range(1500):
            place = int(rng.integers(len(content)))
            kept, content[place] = content[place], int(rng.integers(256))
            try:
                ReferenceEvaluator(bytes(content)).run(None, {"x": X})
            except NumbaopsError:
                pass
            except Exception as error:
                strange.add(f"{type(error).__name__}: {error}")
            content[place] = kept
    assert strange == set()


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"not a model", b"<html></html>", bytes(1000), b"\x08\x08"],
    ids=["empty", "nul", "text", "html", "zeros", "ir-version-only"],
)
def test_files_that_are_no_models(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for source in (content, io.BytesIO(content), path, str(path)):
        with pytest.raises(InvalidModelError, match="ONNX model"):
            ReferenceEvaluator(source)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ReferenceEvaluator(tmp_path / "none.onnx")
    with pytest.raises(OSError):
        ReferenceEvaluator(tmp_path)


@pytest.mark.parametrize("source", [None, 1, [b"x"], {}, np.zeros(3)], ids=["none", "int", "list", "dict", "array"])
def test_what_is_no_model_at_all(source: Any) -> None:
    with pytest.raises(InvalidTypeError, match="Unexpected type"):
        ReferenceEvaluator(source)


def test_a_model_without_nodes() -> None:
    assert ReferenceEvaluator(model("g (x) => (x) { }")).run(None, {"x": X})[0].tolist() == X.tolist()
    assert ReferenceEvaluator(model("g () => () { }")).run(None, {}) == []
    empty = ModelProto(ir_version=8)
    empty.opset_import.add(domain="", version=17)
    assert ReferenceEvaluator(empty).run(None, {}) == []


TEXTS = [".onnxtxt", ".onnxtext", ".textproto", ".prototxt", ".pbtxt", ".json", ".onnxjson", ".onnx", ".pb"]


@pytest.mark.filterwarnings("ignore:The onnxtxt format is experimental")
@pytest.mark.parametrize("extension", TEXTS)
def test_formats_that_onnx_loads(extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{extension}"
    onnx.save(model(SMALL), os.fspath(path))
    for source in (path, str(path)):
        assert ReferenceEvaluator(source).run(None, {"x": X})[0].tolist() == [-2, 0]


@pytest.mark.filterwarnings("ignore:The onnxtxt format is experimental")
@pytest.mark.parametrize("extension", TEXTS)
def test_texts_that_are_no_models(extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{extension}"
    path.write_text("<ir_version: 8, opset_import: [")
    with pytest.raises(InvalidModelError, match="is not an ONNX model"):
        ReferenceEvaluator(path)


@pytest.mark.parametrize("imports", [[], [("q", 1)]], ids=["none", "others"])
def test_imports_that_are_missing(imports: list[tuple[str, int]]) -> None:
    made = model("g (x) => (y) { y = Neg(x) }")
    del made.opset_import[:]
    made.opset_import.extend(helper.make_opsetid(*each) for each in imports)
    with pytest.raises(EvaluationError, match="Domain ''"):
        ReferenceEvaluator(made)
