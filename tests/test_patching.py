"""``load_op``, and our operators behind ``onnx.reference.ops.load_op`` for packages that fold constants with it."""

from __future__ import annotations

import importlib
import threading
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.reference
import onnx.reference.ops
import pytest
from onnx import ModelProto, TensorProto, numpy_helper, parser

import numbaops
from numbaops import load_op, patch_onnx, unpatch_onnx
from numbaops.errors import InvalidValueError, UnsupportedError

THEIRS = onnx.reference.ops.load_op
X = np.array([[1, 2], [3, 4]], np.float32)
Z = np.zeros((2, 2, 2), np.float32)


def model(text: str, opset: int) -> ModelProto:
    return parser.parse_model(f'<ir_version: 7, opset_import: ["" : {opset}, "f" : 1]>\n{text}')


def f(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def i(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


# --- load_op --------------------------------------------------------------------------------------------------------------

EVALS: dict[str, tuple[tuple[str, str, int | None], tuple[Any, ...], dict[str, Any], Any]] = {
    "Add": (("", "Add", 14), (X, X), {}, 2 * X),
    "Add-by-the-alias-of-the-domain": (("ai.onnx", "Add", 14), (X, X), {}, 2 * X),
    "Add-6-with-broadcast": (("", "Add", 6), (X, f(1, 2)), {"broadcast": 1, "axis": 0}, X + f([1], [2])),
    "Softmax-11-flattens": (("", "Softmax", 11), (Z,), {}, np.full((2, 2, 2), 0.25, np.float32)),
    "Softmax-13-does-not": (("", "Softmax", 13), (Z,), {}, np.full((2, 2, 2), 0.5, np.float32)),
    "an-opset-between-two-versions": (("", "Softmax", 12), (Z,), {}, np.full((2, 2, 2), 0.25, np.float32)),
    "the-newest": (("", "Softmax", None), (Z,), {}, np.full((2, 2, 2), 0.5, np.float32)),
    "TopK": (("", "TopK", 11), (X, i(1)), {"axis": 0}, (f([3, 4]), i([1, 1]))),
    "Split-into-as-many-as-wanted": (("", "Split", 18), (X,), {"num_outputs": 2, "n_outputs": 2, "axis": 1}, (f([1], [3]), f([2], [4]))),
    "Split-2": (("", "Split", 2), (X,), {"split": [1, 1], "n_outputs": 2}, (f([1, 2]), f([3, 4]))),
    "absent-input": (("", "Clip", 13), (X, None, np.float32(2)), {}, f([1, 2], [2, 2])),
    "trailing-input-left-out": (("", "Clip", 13), (X, np.float32(2)), {}, f([2, 2], [3, 4])),
    "attribute-that-is-none": (("", "LeakyRelu", 16), (-X,), {"alpha": None}, f([-0.01, -0.02], [-0.03, -0.04])),
    "tensor-attribute": (("", "ConstantOfShape", 9), (i(2),), {"value": numpy_helper.from_array(i(7))}, i(7, 7)),
    "string-attribute": (("", "Pad", 11), (f(1, 2), i(1, 0)), {"mode": "reflect"}, f(2, 1, 2)),
    "no-inputs": (("", "Constant", 13), (), {"value_ints": [1, 2]}, i(1, 2)),
    "Cast": (("", "Cast", 13), (X,), {"to": TensorProto.INT64}, X.astype(np.int64)),
    "optional-output": (("", "Dropout", 13), (X,), {"n_outputs": 2}, (X, np.ones((2, 2), bool))),
    "output-that-is-not-asked-for": (("", "Dropout", 13), (X,), {}, X),
    "sequence": (("", "SequenceConstruct", 11), (X, X), {}, [X, X]),
    "other-domain": (("ai.onnx.ml", "Scaler", 1), (X,), {"offset": [1.0], "scale": [2.0]}, 2 * X - 2),
    "DequantizeLinear-10": (("", "DequantizeLinear", 10), (np.array([3], np.uint8), np.float32(0.5), np.uint8(1)), {}, f(1)),
}  # fmt: skip


def assert_same(got: Any, wanted: Any) -> None:
    if isinstance(wanted, (tuple, list)):
        assert type(got) is type(wanted)
        for mine, theirs in zip(got, wanted, strict=True):
            assert_same(mine, theirs)
        return
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", EVALS)
def test_eval(name: str) -> None:
    operator, inputs, options, wanted = EVALS[name]
    inputs = tuple(np.asarray(each) if isinstance(each, np.generic) else each for each in inputs)
    for _ in range(2):
        assert_same(load_op(*operator).eval(*inputs, **options), wanted)


def test_what_is_loaded_is_a_class_of_nodes() -> None:
    loaded = load_op("", "Softmax", 12)
    assert issubclass(loaded, onnx.reference.op_run.OpRun)
    assert (loaded.__name__, loaded.op_domain, loaded.infer_name()) == ("Softmax_11", "", ("Softmax", 11))
    assert load_op("ai.onnx", "Softmax", 12) is loaded
    made = loaded.make_node(axis=0)
    assert (made.op_type, list(made.input), list(made.output)) == ("Softmax", ["x0"], ["y0"])
    node = loaded.create(axis=2)
    assert isinstance(node, onnx.reference.op_run.OpRun)
    assert_same(node.run(Z), (np.full((2, 2, 2), 0.5, np.float32),))


def test_every_operator_version_can_be_loaded() -> None:
    """Save those that nobody implements."""
    missing = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        try:
            assert hasattr(load_op(schema.domain, schema.name, schema.since_version), "eval")
        except UnsupportedError:
            missing.add(schema.name)
    assert missing <= {"Gradient"}


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (("", "Nothing", 13), "Nothing: nobody implements this operator of domain '' at opset 13"),
        (("", "Nothing", None), r"nobody implements this operator of domain ''$"),
        (("q", "Nothing", 1), "nobody implements this operator of domain 'q' at opset 1"),
        (("ai.onnx.ml", "Nothing", 1), "nobody implements this operator of domain 'ai.onnx.ml' at opset 1"),
        (("", "Gelu", 12), "Gelu: nobody implements this operator of domain '' at opset 12"),
        (("", "EyeLike", 8), "EyeLike: does not exist at opset 8"),
    ],
)
def test_what_cannot_be_loaded(operator: tuple[str, str, int | None], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        load_op(*operator)


def test_errors_of_eval() -> None:
    with pytest.raises(InvalidValueError, match=r"Cast-13.*the attribute 'to' is missing"):
        load_op("", "Cast", 13).eval(X)
    with pytest.raises(InvalidValueError, match=r"Concat-13.*there is no attribute 'axes'"):
        load_op("", "Concat", 13).eval(X, axis=0, axes=0)
    with pytest.raises(InvalidValueError, match=r"Add-14.*the node has 1 inputs; allowed: 2"):
        load_op("", "Add", 14).eval(X)


# --- patch_onnx -------------------------------------------------------------------------------------------------------------

SOFTMAX = "g (float[2,2,2] x) => (float[2,2,2] y) { y = Softmax(x) }"


def theirs(made: ModelProto, **feeds: Any) -> Any:
    return onnx.reference.ReferenceEvaluator(made).run(None, feeds)[0]


@pytest.fixture(autouse=True)
def _unpatched() -> Any:
    assert onnx.reference.ops.load_op is THEIRS
    yield
    assert onnx.reference.ops.load_op is THEIRS


def test_patched_within_a_block() -> None:
    made = model(SOFTMAX, 11)
    assert theirs(made, x=Z)[0, 0, 0] == 0.5  # which is wrong
    with patch_onnx():
        assert theirs(made, x=Z)[0, 0, 0] == 0.25
        evaluator = onnx.reference.ReferenceEvaluator(made)
    assert theirs(made, x=Z)[0, 0, 0] == 0.5
    assert evaluator.run(None, {"x": Z})[0][0, 0, 0] == 0.25


def test_patches_are_counted() -> None:
    with patch_onnx():
        with patch_onnx():
            patch_onnx()
            unpatch_onnx()
        assert onnx.reference.ops.load_op is not THEIRS
    assert onnx.reference.ops.load_op is THEIRS
    unpatch_onnx()
    assert onnx.reference.ops.load_op is THEIRS
    patch_onnx()
    assert onnx.reference.ops.load_op is not THEIRS
    unpatch_onnx()


def test_a_block_that_fails_is_undone() -> None:
    with pytest.raises(RuntimeError, match="oh no"), patch_onnx():
        raise RuntimeError("oh no")


def test_threads_patch_at_the_same_time() -> None:
    made = model(SOFTMAX, 11)
    barrier = threading.Barrier(6)
    results: list[float] = []

    def work() -> None:
        barrier.wait()
        for _ in range(20):
            with patch_onnx():
                results.append(float(theirs(made, x=Z)[0, 0, 0]))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results == [0.25] * 120


REFERS = """g (float[2,2] x) => (y, z) { y = f.F <k = 0> (x)  z = f.F <k = 1> (x) }
<domain: "f", opset_import: ["" : 13]> F <k> (a) => (b) { b = Softmax <axis: int = @k> (a) }"""

NESTED = """g (float[2,2] x) => (y) {
    c = Constant <value = bool {1}> ()
    w = Neg(x)
    y = If (c) <then_branch = t () => (q) { q = Add(w, x) }, else_branch = e () => (r) { r = Neg(w) }>
}"""


def test_patched_functions_with_attributes() -> None:
    """Which the evaluator of onnx does not run by itself."""
    with patch_onnx():
        y, z = onnx.reference.ReferenceEvaluator(model(REFERS, 13)).run(None, {"x": np.zeros((2, 2), np.float32) + f([0], [1])})
    low, high = 1 / (1 + np.e), np.e / (1 + np.e)
    assert_same(y, f([low, low], [high, high]))
    assert_same(z, np.full((2, 2), 0.5, np.float32))


def test_patched_bodies() -> None:
    with patch_onnx():
        assert_same(theirs(model(NESTED, 13), x=X), np.zeros((2, 2), np.float32))


def test_our_evaluator_does_not_mind() -> None:
    with patch_onnx():
        for text, opset in ((SOFTMAX, 11), (NESTED, 13), ("g (x) => (y) { y = Celu <alpha = 2.0> (x) }", 12)):
            made = model(text, opset)
            x = Z if opset == 11 else X
            assert_same(
                numbaops.ReferenceEvaluator(made).run(None, {"x": x})[0],
                np.asarray(numbaops.ReferenceEvaluator(made).run(None, {"x": x})[0]),
            )


def test_what_we_lack_comes_from_onnx() -> None:
    with patch_onnx():
        assert onnx.reference.ops.load_op("", "If", 13) is THEIRS("", "If", 13)
        assert onnx.reference.ops.load_op("", "EyeLike", 8) is THEIRS("", "EyeLike", 8)
        with pytest.raises(NotImplementedError):
            onnx.reference.ops.load_op("", "Nothing", 13)


# --- packages that fold constants --------------------------------------------------------------------------------------------

FOLDS = """g (float[2,2,2] x) => (float[2,2,2] y) <float[2,2,2] k = {1, 2, 3, 4, 5, 6, 7, 8}> {
    p = Softmax(k)
    q = Abs(p)
    r = Transpose <perm = [0, 2, 1]> (q)
    y = Add(x, r)
}"""
EXPONENTS = np.exp(np.arange(1, 9, dtype=np.float64)).reshape(2, 2, 2)
FOLDED = (EXPONENTS / EXPONENTS.sum((1, 2), keepdims=True)).transpose(0, 2, 1).astype(np.float32)


def package(name: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            pytest.skip(f"{name} is not installed ({error})")


@pytest.mark.filterwarnings("ignore")
def test_onnxscript_folds_right() -> None:
    optimizer = package("onnxscript.optimizer")
    plain = optimizer.optimize(model(FOLDS, 11))
    with patch_onnx():
        patched = optimizer.optimize(model(FOLDS, 11))
    for folded, right in ((plain, False), (patched, True)):
        assert [each.op_type for each in folded.graph.node] == ["Add"]
        (y,) = numbaops.ReferenceEvaluator(folded).run(None, {"x": Z})
        assert np.allclose(y, FOLDED, rtol=1e-6) == right


@pytest.mark.filterwarnings("ignore")
def test_onnxsim_folds_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the evaluator of onnx, which it falls back to where ONNX Runtime is not installed."""
    onnxsim, backend = package("onnxsim"), package("onnxsim.backend")
    monkeypatch.setattr(backend, "_HAS_ONNXRUNTIME", False)
    plain, _ = onnxsim.simplify(model(FOLDS, 11))
    with patch_onnx():
        patched, _ = onnxsim.simplify(model(FOLDS, 11))
    for folded, right in ((plain, False), (patched, True)):
        assert [each.op_type for each in folded.graph.node] == ["Add"]
        (y,) = numbaops.ReferenceEvaluator(folded).run(None, {"x": Z})
        assert np.allclose(y, FOLDED, rtol=1e-6) == right


@pytest.mark.parametrize(("op_type", "inputs"), [("Add", 2), ("Neg", 1), ("ReduceSum", 1), ("Less", 2), ("MatMul", 2)])
def test_results_of_rank_0_are_arrays(op_type: str, inputs: int) -> None:
    x = np.ones(3 if op_type in ("MatMul", "ReduceSum") else (), np.float32)
    attributes = {"keepdims": 0} if op_type == "ReduceSum" else {}
    assert type(numbaops.load_op("", op_type, 13).eval(*[x] * inputs, **attributes)) is np.ndarray


@pytest.mark.parametrize("version", ["9", 0, -1, 1.5, True], ids=repr)
def test_versions_are_integers_from_1_on(version: Any) -> None:
    with pytest.raises(ValueError, match="version is"):
        numbaops.load_op("", "Softmax", version)


def test_a_context_may_be_entered_again() -> None:
    theirs = onnx.reference.ops.load_op
    context = patch_onnx()
    for _ in range(2):
        with context:
            assert onnx.reference.ops.load_op is not theirs
        assert onnx.reference.ops.load_op is theirs


def test_tensor_attributes_may_be_arrays() -> None:
    assert numbaops.load_op("", "Constant", 13).eval(value=np.ones(2)).tolist() == [1, 1]
    assert numbaops.load_op("", "ConstantOfShape", 9).eval(np.array([2]), value=np.array([3], np.int8)).tolist() == [3, 3]
