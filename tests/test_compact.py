"""``numbaops.compact``: the same bits, whatever is in a tensor and wherever it is, in fewer bytes, for ONNX and ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper

from numbaops import ELEMENT_TYPES, ReferenceEvaluator, compact, fold, from_array, to_array
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError
from numbaops.rewrite.compact import Compacted, model_bytes

try:
    import onnxruntime
except ImportError:  # one of the extras
    onnxruntime = None

TYPES = {row.name: row for row in ELEMENT_TYPES}
BITS = {name: row for name, row in TYPES.items() if name != "string"}
TYPES_BY_CODE = {row.code: row.name for row in ELEMENT_TYPES}
BY_IDENTITY = set(TYPES) - {"float8e8m0", "float4e2m1", "float6e2m3", "float6e3m2", "uint4", "int4", "uint2", "int2"}
IR = {9: 4, 11: 6, 13: 7, 19: 9, 21: 10, 25: 13}


def model_of(
    arrays: Mapping[str, Any],
    nodes: Iterable[NodeProto] = (),
    *,
    opset: int = 25,
    ir_version: int | None = None,
    outputs: Sequence[str] | None = None,
    inputs: Iterable[Any] = (),
    by_nodes: bool = True,
) -> ModelProto:
    """A model that has tensors as initializers, and gives them, or what ``outputs`` names."""
    tensors = [array if isinstance(array, TensorProto) else from_array(array) for array in arrays.values()]
    for name, tensor in zip(arrays, tensors, strict=True):
        tensor.name = name
    if outputs is None:
        # by nodes, which ONNX Runtime has for few types
        passed = [each for each in tensors if by_nodes and TYPES_BY_CODE[each.data_type] in BY_IDENTITY]
        nodes = [*nodes, *(helper.make_node("Identity", [each.name], [f"{each.name}_out"]) for each in passed)]
        names = {each.name: f"{each.name}_out" for each in passed}
        declared = [helper.make_tensor_value_info(names.get(each.name, each.name), each.data_type, each.dims) for each in tensors]
    else:
        declared = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), declared, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version or IR[opset])


def bits_of(value: Any) -> Any:
    array = np.asarray(value)
    content = array.tolist() if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return str(array.dtype), array.shape, content


def session(model: ModelProto, optimized: bool = True) -> Any:
    """What ONNX Runtime makes of a model, or None."""
    if onnxruntime is None:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # of many classes
        return None


def runtime_bits(values: Iterable[Any]) -> list[Any]:
    return [(each.element_type(), tuple(each.shape()), _bytes(each)) for each in values]


def _bytes(value: Any) -> Any:
    if value.element_type() == TensorProto.FLOAT4E2M1:  # of which it gives other bytes each time
        return b""
    try:
        array = value.numpy()
    except Exception:  # NumPy has no such type
        import ctypes

        if value.tensor_size_in_bytes() == 0:
            return b""
        return ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return array.tolist() if array.dtype == object else array.tobytes()


def checked(model: ModelProto, feeds: Mapping[str, Any] | None = None, runtime: bool = True, **options: Any) -> Compacted:
    """The compacted model, once it is known to be valid, the same, and not to become smaller still."""
    before = model.SerializeToString()
    compacted = compact(model, **options)
    assert model.SerializeToString() == before
    assert (compacted.bytes_before, compacted.bytes_after) == (model.ByteSize(), compacted.model.ByteSize())
    assert compacted.bytes_after <= compacted.bytes_before
    assert compact(compacted.model, **options).model.SerializeToString() == compacted.model.SerializeToString()
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        pass
    else:
        onnx.checker.check_model(compacted.model, full_check=True)
    feeds = dict(feeds or {})
    wanted, came = (ReferenceEvaluator(each, exact=True).run(None, feeds) for each in (model, compacted.model))
    assert list(map(bits_of, came)) == list(map(bits_of, wanted))
    for optimized in (True, False) if runtime else ():
        old = session(model, optimized)
        if old is not None:
            new = session(compacted.model, optimized)
            assert new is not None, "ONNX Runtime does not load it any more"
            given_values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(value)) for name, value in feeds.items()}
            results = [runtime_bits(each.run_with_ort_values(None, given_values)) for each in (old, new)]
            assert results[0] == results[1]
    return compacted


def outcomes(compacted: Compacted) -> dict[str, str]:
    return {change.tensor: change.outcome for change in compacted.changes}


def code(name: str, bits: int) -> np.ndarray:
    """The element of a type that has these bits."""
    row = TYPES[name]
    size = row.dtype.itemsize
    return np.frombuffer(bits.to_bytes(16, "little")[:size], row.dtype)[0] if row.kind != "bool" else np.bool_(bits & 1)


def patterns_of(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Tensors of a type, with what a compaction may see, or think that it sees, in them."""
    row, random = TYPES[name], np.random.default_rng(seed)
    width = 1 if row.kind == "bool" else row.bits
    sign, ones = 1 << (width - 1), (1 << width) - 1
    elements = [0, 1, sign, ones, ones ^ 1, ones >> 1, (ones >> 2) | 1, int(random.integers(1 << min(width, 62)))]
    found: dict[str, np.ndarray] = {}
    for number, element in enumerate(dict.fromkeys(elements)):
        value = code(name, element)
        found[f"uniform{number}"] = np.full((7, 43), value)
        nearly = np.full((7, 43), value)
        nearly[3, 5] = code(name, element ^ 1)
        found[f"nearly{number}"] = nearly
        diagonal = np.zeros((19, 23), row.dtype)
        np.fill_diagonal(diagonal, value)
        found[f"diagonal{number}"] = diagonal
        sparse = np.zeros((3, 5, 29), row.dtype)
        sparse.reshape(-1)[random.integers(0, sparse.size, 5)] = value
        found[f"sparse{number}"] = sparse
        negative = np.full((5, 61), code(name, sign))
        negative[2, 3:7] = value
        found[f"negative{number}"] = negative
    if row.kind != "complex" and row.name != "float8e8m0":
        whole = np.arange(128) if row.bits >= 8 else np.arange(128) % 4
        limit = 1 if row.kind == "bool" else 127
        for what, numbers in (("up", whole), ("down", whole[::-1]), ("almost", np.where(whole == 64, 7, whole)), ("steps", whole // 2 * 2)):
            with np.errstate(all="ignore"):
                found[what] = (numbers % (limit + 1)).astype(row.dtype)
    return found


@pytest.mark.parametrize(("opset", "by_nodes"), [(9, True), (19, True), (21, True), (25, True), (25, False)])
@pytest.mark.parametrize("name", BITS)
def test_every_type(name: str, opset: int, by_nodes: bool) -> None:
    compacted = checked(model_of(patterns_of(name), opset=opset, by_nodes=by_nodes), min_bytes=16)
    assert {change.tensor for change in compacted.changes} >= set(patterns_of(name)) - {"up", "down", "almost", "steps"}


# At opset 25: what uniform tensors, identities with float8's and float16's one or the integer one, few elements, and ramps become.
BECAME = {
    "float": ("ConstantOfShape", "EyeLike", "sparse_value", "Range"),
    "double": ("ConstantOfShape", "EyeLike", "sparse_value", "Range"),
    "float16": ("ConstantOfShape", "EyeLike + Cast", "sparse_value", "Range + Cast"),
    "bfloat16": ("ConstantOfShape", "EyeLike + Cast", "sparse_value", "Range + Cast"),
    "int8": ("ConstantOfShape", "EyeLike + Cast", "sparse_value", None),
    "int16": ("ConstantOfShape", "EyeLike + Cast", "sparse_value", "Range"),
    "int32": ("ConstantOfShape", "EyeLike", "sparse_value", "Range"),
    "int64": ("ConstantOfShape", "EyeLike", "sparse_value", "Range"),
    "uint8": ("ConstantOfShape", "EyeLike + Cast", "sparse_value", None),
    "uint16": ("ConstantOfShape", "EyeLike + Cast", "sparse_value", "Range + Cast"),
    "uint32": ("ConstantOfShape", "EyeLike + Cast", "sparse_value", "Range + Cast"),
    "uint64": ("ConstantOfShape", "EyeLike", "sparse_value", "Range + Cast"),
    "bool": ("ConstantOfShape", "EyeLike + Cast", "sparse_value", None),
    "float8e4m3fn": ("ConstantOfShape + Cast", "EyeLike + Cast", "sparse_value", None),
    "float8e4m3fnuz": ("ConstantOfShape + Cast", "EyeLike + Cast", "sparse_value", None),
    "float8e5m2": ("ConstantOfShape + Cast", "EyeLike + Cast", "sparse_value", None),
    "float8e5m2fnuz": ("ConstantOfShape + Cast", "EyeLike + Cast", "sparse_value", None),
    "float8e8m0": ("kept", None, "kept", None),
    "uint4": ("ConstantOfShape + Cast", "EyeLike + Cast", "kept", None),
    "int4": ("ConstantOfShape + Cast", "EyeLike + Cast", "kept", None),
    "uint2": ("kept", "kept", "kept", None),
    "int2": ("kept", "kept", "kept", None),
    "float4e2m1": ("kept", "kept", "kept", None),
    "complex64": ("Expand", None, "sparse_value", None),
    "complex128": ("Expand", None, "sparse_value", None),
    "string": ("Expand", None, None, None),
    "float6e2m3": ("kept", "kept", "kept", None),
    "float6e3m2": ("kept", "kept", "kept", None),
}


@pytest.mark.parametrize("name", BECAME)
def test_what_tensors_become(name: str) -> None:
    row = TYPES[name]
    one = np.array("text", object) if name == "string" else np.ones((), row.dtype)
    arrays = {"uniform": np.full((64, 64), one, row.dtype)}
    if BECAME[name][2]:
        arrays["few"] = np.zeros((64, 64), row.dtype)
        arrays["few"][3, [7, 9]] = one
    if BECAME[name][1]:
        arrays["identity"] = np.eye(64).astype(row.dtype)
    if BECAME[name][3]:
        arrays["ramp"] = np.arange(5, 133).astype(row.dtype)
    became = outcomes(checked(model_of(arrays)))
    expected = dict(zip(("uniform", "identity", "few", "ramp"), BECAME[name], strict=True))
    assert became == {key: value for key, value in expected.items() if key in arrays}


def test_table_covers_every_type() -> None:
    assert BECAME.keys() == TYPES.keys()


@pytest.mark.parametrize("name", ["float", "int64", "bool", "float16"])
def test_diagonals_at_every_offset(name: str) -> None:
    rows, columns = 13, 17
    dtype = TYPES[name].dtype
    arrays = {f"k{k}": np.eye(rows, columns, k).astype(dtype) for k in range(1 - rows, columns)}
    became = outcomes(checked(model_of(arrays), min_bytes=0))
    assert "kept" not in became.values()


FACTORS: dict[str, tuple[Any, str]] = {
    "two": (2.0, "EyeLike + Mul"),
    "subnormal": (1e-45, "EyeLike + Mul"),
    "minus two": (-2.0, "sparse_value"),  # -2 * 0 is -0.0
    "infinity": (np.inf, "sparse_value"),
    "NaN": (np.frombuffer(b"\x05\x00\xa0\x7f", np.float32)[0], "sparse_value"),  # signalling, with a payload
    "minus zero": (-0.0, "sparse_value"),
}


@pytest.mark.parametrize("factor", FACTORS)
def test_diagonals_of_one_value(factor: str) -> None:
    value, expected = FACTORS[factor]
    array = np.zeros((100, 100), np.float32)
    np.fill_diagonal(array, value)
    assert outcomes(checked(model_of({"w": array}))) == {"w": expected}


def test_diagonal_of_many_values() -> None:
    array = np.zeros((90, 100), np.float32)
    array[np.arange(90), np.arange(90) + 5] = np.random.default_rng(0).random(90, np.float32)
    assert outcomes(checked(model_of({"w": array}))) == {"w": "EyeLike + Mul"}
    counted = np.zeros((100, 100), np.int64)
    np.fill_diagonal(counted, np.arange(100) - 50)
    # the factors are a ramp themselves
    assert outcomes(checked(model_of({"w": counted}))) == {"w": "EyeLike + Mul", "w_values": "Range"}


RAMPS: dict[str, tuple[np.ndarray, str]] = {
    "up": (np.arange(-3, 500), "Range"),
    "down by 7": (np.arange(3000, -500, -7), "Range"),
    "to the largest int64": (np.arange(2**63 - 500, 2**63 - 1), "kept"),
    "to the largest int16": (np.arange(32000, 32768).astype(np.int16), "Range + Cast"),
    "down to the smallest int16": (np.arange(-32000, -32769, -1).astype(np.int16), "Range + Cast"),
    "all uint16": (np.arange(65536).astype(np.uint16), "Range + Cast"),
    "all int8": (np.arange(-128, 128).astype(np.int8), "Range + Cast"),
    "around": (np.arange(300).astype(np.uint8), "kept"),
    "beyond 2**53": (np.arange(2**53 - 300, 2**53 + 300), "kept"),
    "of rank 3": (np.arange(1000).reshape(1, 10, 100), "Range + Reshape"),
    "float": (np.arange(1000, dtype=np.float32), "Range"),
    "float by quarters": (np.arange(1000, dtype=np.float32) / 4 - 100, "Range"),
    "float by tenths": (np.arange(1000, dtype=np.float32) / 10, "kept"),  # whose sums are rounded
    "float with -0.0": (np.where(np.arange(-500, 500) == 0, -0.0, np.arange(-500, 500)).astype(np.float32), "kept"),
    "float beyond 2**24": (np.arange(2**24 - 100, 2**24 + 412, 2).astype(np.float32), "Range"),
    "float by too many bits": (np.arange(2**24 + 2, 2**24 + 1000, 2).astype(np.float32) * np.float32(3), "kept"),
    "double": (np.arange(0, 2**40, 2**30, dtype=np.float64), "Range"),
    "float16": (np.arange(-1000, 1000).astype(np.float16), "Range + Cast"),
    "bfloat16": (np.arange(256).astype(ml_dtypes.bfloat16), "Range + Cast"),
}


@pytest.mark.parametrize("ramp", RAMPS)
def test_ramps(ramp: str) -> None:
    array, expected = RAMPS[ramp]
    assert outcomes(checked(model_of({"w": array}), min_bytes=64)) == {"w": expected}


def test_mostly_another_value_is_kept() -> None:
    array = np.full((100, 100), np.float32(0.5))
    array[3, 4] = 0.25
    (change,) = checked(model_of({"w": array})).changes
    assert (change.outcome, change.saved) == ("kept", 0)
    assert change.note


@given(
    name=st.sampled_from(sorted(BITS)),
    fill=st.integers(0, 2**64 - 1),
    changes=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 2**64 - 1)), max_size=6),
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    opset=st.sampled_from(sorted(IR)),
)
def test_drawn_tensors(name: str, fill: int, changes: list[tuple[int, int]], shape: list[int], opset: int) -> None:
    row = TYPES[name]
    mask = (1 << min(row.bits, 64)) - 1 if row.kind != "bool" else 1
    array = np.full([20, *shape], code(name, fill & mask))
    for position, bits in changes:
        array.reshape(-1)[position % array.size] = code(name, bits & mask)
    checked(model_of({"w": array}, opset=opset), min_bytes=0)


# Equal tensors


def big(seed: int = 0, size: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).random(size, np.float32)


def body(text: str) -> onnx.GraphProto:
    return onnx.parser.parse_graph(text)


def add(left: str, right: str, out: str) -> NodeProto:
    return helper.make_node("Add", [left, right], [out])


X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [200])


def test_equal_tensors_become_one() -> None:
    constant = helper.make_node("Constant", [], ["c"], value=from_array(big()))
    nodes = [add("x", "a", "s"), constant, add("s", "b", "t"), add("t", "c", "y")]
    compacted = checked(model_of({"a": big(), "b": big(), "other": big(1)}, nodes, inputs=[X], outputs=["y"]), {"x": big(2)})
    assert outcomes(compacted) == {"a": "kept", "b": "shared", "c": "shared", "other": "kept"}
    assert [tensor.name for tensor in compacted.model.graph.initializer] == ["a", "other"]


def test_equal_constants_become_an_initializer() -> None:
    """Which all nodes may take, whatever their order, and which folding would make of them."""
    constants = [helper.make_node("Constant", [], [name], value=from_array(big())) for name in ("c1", "c2")]
    nodes = [constants[0], add("x", "c1", "s"), constants[1], add("s", "c2", "y")]
    for node in constants:
        node.doc_string = "where it is from"
    compacted = checked(model_of({}, nodes, inputs=[X], outputs=["y"]), {"x": big(2)})
    assert [node.op_type for node in compacted.model.graph.node] == ["Add", "Add"]
    assert [each.doc_string for each in compacted.model.graph.initializer] == ["where it is from"]
    assert fold(compacted.model).model == compacted.model


def test_the_same_values_of_another_kind_are_not_shared() -> None:
    zeros = {"a": np.zeros(100, np.float32), "b": np.full(100, -0.0, np.float32), "c": np.zeros((10, 10), np.float32)}
    assert "shared" not in outcomes(checked(model_of(zeros | {"d": np.zeros(100, np.int32)}))).values()


def test_equal_outputs_keep_their_names() -> None:
    compacted = checked(model_of({"a": big(), "b": big()}, by_nodes=False))
    assert [output.name for output in compacted.model.graph.output] == ["a", "b"]
    assert outcomes(compacted) == {"a": "kept", "b": "shared"}


def branches(then: onnx.GraphProto, otherwise: onnx.GraphProto) -> NodeProto:
    return helper.make_node("If", ["condition"], ["y"], name="choice", then_branch=then, else_branch=otherwise)


def branch(name: str, tensor: np.ndarray, op_type: str = "Add") -> onnx.GraphProto:
    declared = [helper.make_empty_tensor_value_info(f"{name}_out")]
    node = helper.make_node(op_type, ["x", name], [f"{name}_out"])
    return helper.make_graph([node], f"graph_{name}", [], declared, [from_array(tensor, name)])


CONDITION = helper.make_tensor_value_info("condition", TensorProto.BOOL, [])


@pytest.mark.parametrize("condition", [False, True])
def test_bodies_share_with_each_other(condition: bool) -> None:
    node = branches(branch("w", big()), branch("v", big(), "Mul"))
    model = model_of({}, [node], inputs=[X, CONDITION], outputs=["y"])
    compacted = checked(model, {"x": big(2), "condition": np.array(condition)})
    assert [change.outcome for change in compacted.changes] == ["shared", "kept"]
    assert [tensor.name for tensor in compacted.model.graph.initializer] in (["v"], ["w"])


@pytest.mark.parametrize("condition", [False, True])
def test_bodies_share_with_what_is_around(condition: bool) -> None:
    both = branches(branch("w", big()), branch("w", big(1), "Mul"))
    model = model_of({"outer": big(), "w1": big(1)}, [both], inputs=[X, CONDITION], outputs=["y", "outer"])
    compacted = checked(model, {"x": big(2), "condition": np.array(condition)})
    assert [change.where for change in compacted.changes if change.outcome == "shared"] == [
        "If choice, then_branch",
        "If choice, else_branch",
    ]


@pytest.mark.parametrize("condition", [False, True])
def test_outputs_of_bodies_that_are_tensors(condition: bool) -> None:
    graphs = []
    for name, tensor in (("t", big()), ("e", np.full(200, 3, np.float32))):
        declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [200])]
        graphs.append(helper.make_graph([], f"graph_{name}", [], declared, [from_array(tensor, name)]))
    model = model_of({"w": big()}, [branches(*graphs)], inputs=[CONDITION], outputs=["y", "w"])
    compacted = checked(model, {"condition": np.array(condition)})
    assert outcomes(compacted) == {"t": "shared", "e": "ConstantOfShape", "w": "kept"}


def test_bodies_of_loops_and_scans() -> None:
    loop = body("""
        step (int64 i, bool keep, float[200] sum) => (bool again, float[200] more)
        { one = Constant<value = float[200] {0.0}>() again = Identity(keep) part = Add(sum, one) more = Add(part, w) }
    """)
    loop.node[0].attribute[0].t.CopyFrom(from_array(np.ones(200, np.float32)))
    loop.initializer.append(from_array(np.arange(200, dtype=np.float32), "w"))
    scan = body(
        "rows (float[200] state, float[1] row) => (float[200] after, float[200] out) { after = Add(state, v) out = Mul(after, row) }"
    )
    scan.initializer.append(from_array(np.ones(200, np.float32), "v"))
    nodes = [
        helper.make_node("Loop", ["trips", "", "x"], ["y"], body=loop),
        helper.make_node("Scan", ["y", "rows"], ["z", "all"], body=scan, num_scan_inputs=1),
    ]
    arrays = {"trips": np.array(3), "rows": np.ones((4, 1), np.float32)}
    compacted = checked(model_of(arrays, nodes, inputs=[X], outputs=["y", "all"]), {"x": big(2)})
    assert outcomes(compacted) == {"one": "shared", "w": "Range", "v": "ConstantOfShape"}


def drawn_graph(draw: random.Random, depth: int, visible: list[str], prefix: str) -> onnx.GraphProto:
    """A graph with initializers, Constants and an If, of few tensors that are equal; names may come again in bodies beside each other."""
    pool = [big(), big(1), np.full(200, 3, np.float32), np.arange(200, dtype=np.float32)]
    nodes, initializers, mine = [], [], []
    for number in range(draw.randint(0, 3)):
        name = f"{prefix}_{number}" if draw.random() < 0.7 else f"again{draw.randint(0, 2)}"
        if name in visible or name in mine:
            continue
        tensor = from_array(draw.choice(pool), name)
        if draw.random() < 0.5:
            initializers.append(tensor)
        else:
            nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        mine.append(name)
    for number in range(draw.randint(0, 2)):
        nodes.append(add(draw.choice(visible + mine), draw.choice(visible + mine), f"{prefix}_sum{number}"))
        mine.append(f"{prefix}_sum{number}")
    if depth:
        bodies = {name: drawn_graph(draw, depth - 1, visible + mine, prefix + name[0]) for name in ("then_branch", "else_branch")}
        nodes.append(helper.make_node("If", ["condition"], [f"{prefix}_if"], name=prefix, **bodies))
        mine.append(f"{prefix}_if")
    if not mine or draw.random() < 0.3:
        nodes.append(add(draw.choice(visible + mine), "x", f"{prefix}_last"))
        mine.append(f"{prefix}_last")
    output = helper.make_tensor_value_info(draw.choice(mine), TensorProto.FLOAT, [200])
    return helper.make_graph(nodes, f"graph_{prefix}", [], [output], initializers)


@pytest.mark.parametrize("seed", range(10))
def test_drawn_nests(seed: int) -> None:
    draw = random.Random(seed)
    graph = drawn_graph(draw, 3, ["x"], "r")
    graph.input.extend([X, CONDITION])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for condition in (True, False):
        checked(model, {"x": big(2), "condition": np.array(condition)}, min_bytes=draw.choice([0, 64, 801]))


def test_functions() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "local": 1]>
        main (float[200] x) => (float[200] y) { y = local.shift(x) }
        <domain: "local", opset_import: ["": 21]>
        shift (x) => (y) { a = Constant<value = float[200] {0}>() b = Constant<value = float[200] {0}>() s = Add(x, a) y = Mul(s, b) }
    """)
    for position, array in enumerate((np.full(200, 2, np.float32), np.arange(200, dtype=np.float32))):
        model.functions[0].node[position].attribute[0].t.CopyFrom(from_array(array))
    compacted = checked(model, {"x": big()})
    assert [(change.where, change.outcome) for change in compacted.changes] == [
        ("function local.shift", "ConstantOfShape"),
        ("function local.shift", "Range"),
    ]
    assert not compacted.model.graph.initializer


# What stays


def test_defaults_of_inputs_are_left() -> None:
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [200])
    model = model_of({"w": np.ones(200, np.float32)}, [add("x", "w", "y")], inputs=[X, w], outputs=["y"])
    compacted = checked(model, {"x": big()})
    assert outcomes(compacted) == {"w": "kept"}
    (y,) = ReferenceEvaluator(compacted.model).run(None, {"x": big(), "w": big(1)})
    assert np.array_equal(y, big() + big(1))


def test_names_of_annotations_and_of_training_are_left() -> None:
    arrays = {name: np.ones(200, np.float32) for name in ("annotated", "scale", "trained", "free")}
    model = model_of(arrays)
    note = model.graph.quantization_annotation.add(tensor_name="annotated")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    model.training_info.add().update_binding.add(key="trained", value="new")
    became = outcomes(compact(model))
    assert became == {"annotated": "kept", "scale": "kept", "trained": "kept", "free": "ConstantOfShape"}


def test_initializers_of_old_models() -> None:
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [200])
    constant = helper.make_node("Constant", [], ["c"], value=from_array(np.full(200, 5, np.float32)))
    nodes = [constant, add("x", "w", "s"), add("s", "c", "y")]
    model = model_of({"w": np.ones(200, np.float32)}, nodes, inputs=[X, w], outputs=["y"], opset=9, ir_version=3)
    compacted = checked(model, {"x": big()})
    assert outcomes(compacted) == {"w": "ConstantOfShape", "c": "ConstantOfShape"}
    assert [value.name for value in compacted.model.graph.input] == ["x"]
    assert not compacted.model.graph.initializer


def test_documentation_goes_along() -> None:
    tensor = from_array(np.ones(200, np.float32))
    tensor.doc_string = "all ones"
    tensor.metadata_props.add(key="from", value="here")
    compacted = checked(model_of({"w": tensor}))
    node = compacted.model.graph.node[0]
    assert (node.output[0], node.doc_string, node.metadata_props[0].value) == ("w", "all ones", "here")
    other = from_array(big())
    other.doc_string = "documented"
    assert "shared" not in outcomes(checked(model_of({"a": other, "b": big()}))).values()


def test_min_bytes() -> None:
    model = model_of({"w": np.ones(200, np.float32), "s": np.ones(20, np.float32)})
    compacted = checked(model, min_bytes=801)
    assert (compacted.changes, compacted.small, compacted.bytes_after) == ((), 2, model.ByteSize())


def test_no_operators_no_change() -> None:
    model = model_of({"w": np.ones(200, np.float32)}, opset=9)
    model.opset_import[0].domain = "ai.onnx.ml"
    assert outcomes(compact(model)) == {"w": "kept"}


# Packing


@pytest.mark.parametrize("name", ["int4", "uint4", "float4e2m1", "int2", "uint2", "float6e2m3", "float6e3m2", "int8", "uint8", "float16"])
def test_typed_fields_are_packed(name: str) -> None:
    row = TYPES[name]
    codes = np.random.default_rng(0).integers(0, 1 << min(row.bits, 16), 301).astype(f"u{row.dtype.itemsize}")
    array = codes.view(row.dtype)
    tensor = TensorProto(data_type=row.code, dims=[301])
    raw = from_array(array).raw_data
    if row.bits in (2, 4):
        tensor.int32_data.extend(raw)
    else:
        tensor.int32_data.extend(array.tolist() if row.kind == "signed" else codes.tolist())
    assert bits_of(to_array(tensor)) == bits_of(array)
    compacted = checked(model_of({"w": tensor}), min_bytes=64)
    assert outcomes(compacted) == {"w": "packed"}
    assert compacted.model.graph.initializer[0].raw_data == raw


def test_small_integers_stay_in_their_field() -> None:
    numbers = np.random.default_rng(0).integers(0, 100, 300)
    tensor = TensorProto(data_type=TensorProto.INT64, dims=[300], int64_data=numbers.tolist())
    assert outcomes(checked(model_of({"w": tensor}))) == {"w": "kept"}


def test_lists_of_constants() -> None:
    nodes = [
        helper.make_node("Constant", [], ["a"], value_ints=list(range(100))),
        helper.make_node("Constant", [], ["b"], value_floats=[1.5] * 100),
        helper.make_node("Constant", [], ["c"], value_floats=[float("nan")] * 100),
        helper.make_node("Constant", [], ["d"], value_int=3),
    ]
    compacted = checked(model_of({}, nodes, outputs=["a", "b", "c", "d"]))
    assert outcomes(compacted) == {"a": "Range", "b": "ConstantOfShape"}


# Files


def external_model(folder: Path) -> Path:
    arrays = {"ones": np.ones(50_000, np.float32), "drawn": big(0, 50_000), "more": big(0, 50_000)}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [50_000])
    nodes = [add("x", "ones", "s"), add("s", "drawn", "t"), add("t", "more", "y")]
    model = model_of(arrays, nodes, inputs=[x], outputs=["y"], opset=21)
    model.graph.output[0].type.CopyFrom(x.type)
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="weights", size_threshold=1000)
    return folder / "model.onnx"


def test_external_data(tmp_path: Path) -> None:
    path = external_model(tmp_path)
    was = {file: file.read_bytes() for file in tmp_path.iterdir()}
    compacted = compact(path, check=1)
    assert outcomes(compacted) == {"drawn": "shared", "ones": "ConstantOfShape", "more": "kept"}
    written = compacted.save(tmp_path / "small.onnx")
    assert {file.name for file in written} == {"small.onnx", "small.onnx.data"}
    assert (tmp_path / "small.onnx.data").stat().st_size == 200_000
    assert compacted.bytes_before > 600_000 > 201_000 > compacted.bytes_after
    feeds = {"x": big(3, 50_000)}
    outputs = [ReferenceEvaluator(file).run(None, feeds)[0] for file in (path, tmp_path / "small.onnx")]
    assert bits_of(outputs[0]) == bits_of(outputs[1])
    assert {file: file.read_bytes() for file in was} == was
    onnx.checker.check_model(tmp_path / "small.onnx")
    with pytest.raises(InvalidValueError, match="give another name"):
        compacted.save(path)


def test_missing_external_data(tmp_path: Path) -> None:
    path = external_model(tmp_path)
    (tmp_path / "weights").unlink()
    with pytest.raises(InvalidValueError, match="external data cannot be read"):
        compact(path)
    with pytest.raises(EvaluationError, match="without a folder"):
        compact(onnx.load(path, load_external_data=False))


def test_model_bytes_of_models_with_many_fields() -> None:
    model = model_of(patterns_of("float"))
    model.doc_string = "text" * 100
    model.graph.initializer[0].doc_string = "more"
    assert model_bytes(model) == model.ByteSize()


# Names that bodies hide


def shadowing(text: str, arrays: Mapping[str, np.ndarray], constants: Iterable[str] = (), opset: int = 21) -> ModelProto:
    """A model whose tensors stand where the text has ``init``: initializers of the graph, or Constants before its nodes."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> graph {text}')
    for name, array in arrays.items():
        if name in constants:
            model.graph.node.insert(0, helper.make_node("Constant", [], [name], value=from_array(array)))
        else:
            model.graph.initializer.append(from_array(array, name))
    return model


FEEDS = {"x": big(5, 100), "c": np.array(True)}


@pytest.mark.parametrize("constants", ["", "a", "b", "ab"])
@pytest.mark.parametrize("given", ["", ", float[100] a"])
def test_equal_tensors_one_of_which_a_body_hides(constants: str, given: str) -> None:
    model = shadowing(
        f"""(float[100] x, bool c) => (float[100] r{given}) {{ n = Constant<value_int=3>()  u = Add(x, a)  v = Add(u, b)  r = Loop(n, c, v)<
        body = l (int64 i, bool cc, float[100] a) => (bool co, float[100] o) {{ co = Identity(cc)  o = Add(a, b) }}> }}""",
        {"a": big(size=100), "b": big(size=100)},
        constants,
    )
    assert "shared" in outcomes(checked(model, FEEDS)).values()


@pytest.mark.parametrize("condition", [False, True])
def test_outputs_of_branches_that_equal_another_constant(condition: bool) -> None:
    branches = [
        onnx.parser.parse_graph("t () => (float[100] a, float[100] q) { q = Add(b, x) }"),
        onnx.parser.parse_graph("e () => (float[100] a, float[100] q) { a = Neg(x)  q = Abs(x) }"),
    ]
    for name in "ba":
        branches[0].node.insert(0, helper.make_node("Constant", [], [name], value=from_array(big(size=100))))
    node = helper.make_node("If", ["c"], ["r", "s"], then_branch=branches[0], else_branch=branches[1])
    model = shadowing("(float[100] x, bool c) => (float[100] r, float[100] s) { }", {})
    model.graph.node.append(node)
    assert "shared" in outcomes(checked(model, {**FEEDS, "c": np.array(condition)})).values()


@pytest.mark.parametrize("pattern", ["uniform", "sparse", "ramp", "equal"])
@pytest.mark.parametrize("given", [False, True])
def test_initializers_of_a_body_that_hide_what_is_around(pattern: str, given: bool) -> None:
    sparse, ramp = np.zeros(100, np.float32), np.arange(100, dtype=np.float32)
    sparse[3] = 2
    array = {"uniform": ramp // 100, "sparse": sparse, "ramp": ramp, "equal": big(size=100)}[pattern]
    model = shadowing(
        f"""(float[100] x, bool c) => (float[100] r, float[100] s, float[100] p) {{ k = Neg(x)  p = Add(k, w)  r, s = If(c)<
        then_branch = t () => (float[100] o, float[100] {"k" if given else "l"}) {{ o = Add(k, x)  l = Identity(o) }},
        else_branch = e () => (float[100] u, float[100] v) {{ u = Neg(k)  v = Abs(k) }}> }}""",
        {"w": big(size=100)},
    )
    graph = next(each.g for each in model.graph.node[-1].attribute if each.name == "then_branch")
    graph.initializer.append(from_array(array, "k"))
    # ONNX Runtime takes the outer value before, and the right one after
    compacted = checked(model, FEEDS, runtime=False)
    kept = outcomes(compacted)["k"] == "kept"
    assert kept == (given and pattern == "sparse")  # outputs are not made of sparse ones
    onnx.checker.check_model(compacted.model, full_check=True)
    loaded = session(compacted.model)
    if onnxruntime is not None and not kept:
        assert list(map(bits_of, loaded.run(None, FEEDS))) == list(map(bits_of, ReferenceEvaluator(model, exact=True).run(None, FEEDS)))


def test_bodies_that_give_what_is_around() -> None:
    # which onnx.checker and ONNX Runtime refuse
    model = shadowing(
        """(float[100] x, bool c) => (float[100] r, float[100] s) { y = Add(a, x)  z = Add(y, b)  r, s = If(c)<
        then_branch = t () => (float[100] b, float[100] z) { },
        else_branch = e (float[100] b) => (float[100] z, float[100] q) { q = Neg(b) }> }""",
        {"a": big(size=100), "b": big(size=100)},
    )
    for condition in (False, True):
        assert outcomes(checked(model, {**FEEDS, "c": np.array(condition)}))["b"] == "shared"


def test_small_tensors_that_a_body_hides() -> None:
    model = shadowing(
        """(float[100] x, bool c) => (float[100] r, float[100] y) { y = Expand(x, s)  r = If(c)<
        then_branch = t () => (float[100] o) { o = Add(w, x) },
        else_branch = e () => (float[100] u) { u = Neg(x) }> }""",
        {},
    )
    model.graph.initializer.append(helper.make_tensor("s", TensorProto.INT64, [1], [100]))
    graph = next(each.g for each in model.graph.node[-1].attribute if each.name == "then_branch")
    graph.initializer.extend([from_array(np.ones(100, np.float32), "w"), from_array(np.array([7]), "s")])
    assert outcomes(checked(model, FEEDS))["w"] == "ConstantOfShape"


def test_bodies_of_nodes_that_have_the_same_name() -> None:
    model = shadowing("(float[100] x, bool c) => (float[100] r, float[100] s, float[100] y) { y = Add(z, x) }", {"z": big(1, 100)})
    for output, seed in (("r", 1), ("s", 2)):
        graphs = [branch(name, big(seed, 100)) for name in ("then", "else")]
        model.graph.node.append(helper.make_node("If", ["c"], [output], name="same", then_branch=graphs[0], else_branch=graphs[1]))
    checked(model, FEEDS)


def test_names_of_a_body_that_come_later_around_it() -> None:
    model = shadowing(
        """(float[100] x, bool c) => (float[100] r, float[100] m) { r = If(c)<
        then_branch = t () => (float[100] m) { m = Add(w, x) }, else_branch = e () => (float[100] u) { m = Neg(w)  u = Abs(m) }>
        m = Identity(w) }""",
        {"w": np.ones(100, np.float32)},
    )
    for condition in (False, True):
        compacted = checked(model, {**FEEDS, "c": np.array(condition)})
    names = [name for node in compacted.model.graph.node for each in node.attribute for inner in each.g.node for name in inner.output]
    assert "m" not in names


def test_constants_that_annotations_and_training_algorithms_name() -> None:
    nodes = [helper.make_node("Constant", [], [name], value=from_array(big(size=100))) for name in ("q", "s", "free", "other")]
    model = model_of(
        {"w": big(size=100), "v": big(size=100)}, [*nodes, helper.make_node("Sum", ["q", "s", "free", "other"], ["y"])], outputs=["y"]
    )
    model.graph.quantization_annotation.add(tensor_name="q").quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    model.training_info.add().algorithm.CopyFrom(helper.make_graph([helper.make_node("Sub", ["w", "v"], ["n"])], "algorithm", [], []))
    became = outcomes(compact(model))
    assert {name for name, outcome in became.items() if outcome == "kept"} >= {"q", "s", "w", "v"}
    assert "shared" in became.values()
    compacted = compact(model).model
    assert {each.name for each in compacted.graph.initializer} >= {"w", "v"}
    assert {name for node in compacted.graph.node for name in node.output} >= {"q", "s"}


def test_bodies_of_old_models_keep_their_inputs() -> None:
    model = shadowing(
        """(float[100] x, bool c) => (float[100] r) { n = Constant<value_int=3>()  r = Loop(n, c, x)<
        body = l (int64 i, bool cc, float[100] a) => (bool co, float[100] o) { co = Identity(cc)  o = Add(a, a) }> }""",
        {},
    )
    model.ir_version = 3
    model.graph.node[-1].attribute[0].g.initializer.append(from_array(np.ones(100, np.float32), "a"))
    checked(model, FEEDS)


# Bad input


def test_bad_arguments() -> None:
    model = model_of({"w": big()})
    for name, value in (("min_bytes", -1), ("min_bytes", 1.5), ("check", -1), ("check", True)):
        with pytest.raises(InvalidValueError, match=name):
            compact(model, **{name: value})
    with pytest.raises(InvalidTypeError):
        compact(3)
    with pytest.raises(InvalidValueError, match="no ONNX model"):
        compact(b"")
    with pytest.raises(FileNotFoundError):
        compact("there/is/none.onnx")


def test_damaged_tensors() -> None:
    model = model_of({"w": np.ones(200, np.float32)})
    model.graph.initializer[0].raw_data = bytes(3)
    with pytest.raises(InvalidValueError, match="tensor 'w'"):
        compact(model)
    model.graph.initializer[0].data_type = 99
    with pytest.raises(InvalidTypeError, match="99"):
        compact(model)


@pytest.mark.parametrize("name", ["light_shufflenet", "light_squeezenet"])
def test_light_models(name: str) -> None:

    path = Path(onnx.__file__).parent / f"backend/test/data/light/{name}.onnx"
    folded = fold(path, dense=True, max_growth=1 << 30, max_tensor=1 << 30).model
    assert folded.ByteSize() > 4 << 20
    compacted = compact(folded, check=int(name == "light_squeezenet"))
    assert compacted.bytes_after < folded.ByteSize() / 100
    assert compact(compacted.model).model.SerializeToString() == compacted.model.SerializeToString()


@pytest.mark.parametrize("name", ["light_inception_v2", "light_shufflenet"])
def test_folded_and_compacted_once_more_is_the_same(name: str) -> None:
    """Before IR version 4, which the light models are of, a shape that compacting makes is a Constant, and not one more input."""

    def once(model: Any) -> ModelProto:
        return compact(fold(model).model).model

    first = once(Path(onnx.__file__).parent / f"backend/test/data/light/{name}.onnx")
    assert once(first) == first


@pytest.mark.parametrize("opset", [13, 21])
def test_nodes_in_a_body_have_names_of_their_own(opset: int) -> None:
    """An initializer of a body may have an outer value's name, its nodes may not; a diagonal takes two of them."""
    then = body("then () => (float[64, 64] t) { t = MatMul(x, w) }")
    then.initializer.append(from_array(np.diag(np.arange(1, 65)).astype(np.float32), "w"))
    other = body("otherwise () => (float[64, 64] e) { e = Neg(x) }")
    nodes = [helper.make_node("Abs", ["x"], ["w"]), branches(then, other), helper.make_node("Add", ["y", "w"], ["z"])]
    square = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])
    model = model_of({}, nodes, opset=opset, inputs=[CONDITION, square], outputs=["z"])
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    assert outcomes(checked(model, {"condition": np.array(True), "x": x}))["w"] == "EyeLike + Mul"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=lambda each: np.dtype(each).name)
def test_ramps_from_zero_downwards_begin_with_a_positive_zero(dtype: Any) -> None:
    ramp = -np.arange(128, dtype=dtype)
    assert "Range" in outcomes(checked(model_of({"w": np.abs(ramp) * dtype(-1), "v": np.array(0, dtype) + ramp})))["v"]


def test_lists_of_integers_are_shared_as_they_take_the_fewest_bytes() -> None:
    numbers = np.random.default_rng(0).integers(0, 100, 500).tolist()
    nodes = [
        *(helper.make_node("Constant", [], [name], value_ints=numbers) for name in "ab"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    compacted = checked(model_of({}, nodes, opset=13, outputs=["y"]))
    assert outcomes(compacted)["b"] == "shared"
    assert compacted.bytes_after < compacted.bytes_before / 2


@pytest.mark.parametrize("length", [1, 100, 250])
@pytest.mark.parametrize("min_bytes", [0, 256])
def test_outputs_of_bodies_are_shared_where_that_saves_bytes(length: int, min_bytes: int) -> None:
    """A shared output needs an Identity, which has two names."""
    tensor = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    graphs = []
    for name in ("t" * length, "e" * length):
        declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64])]
        graphs.append(helper.make_graph([], name[0], [], declared, [from_array(tensor, name)]))
    model = model_of({}, [branches(*graphs)], inputs=[CONDITION], outputs=["y"])
    compacted = checked(model, {"condition": np.array(True)}, min_bytes=min_bytes)
    assert (compacted.bytes_after < compacted.bytes_before) == (length == 1)
    assert sum(change.saved for change in compacted.changes) == pytest.approx(compacted.bytes_before - compacted.bytes_after, abs=8)


@pytest.mark.parametrize("case", ["strings before opset 9", "complex numbers that nothing takes"])
def test_what_would_need_what_is_not_there_is_kept(case: str) -> None:
    """A Constant of strings or integers as an operand; an operator of complex numbers in ONNX Runtime."""
    if case.startswith("strings"):
        model = model_of({"w": np.full(100, "some text", object)}, opset=8, ir_version=3)  # without nodes that take it
        model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.STRING, [100]))
    else:
        model = model_of({"w": np.full(100, 1 + 2j, np.complex128)}, [helper.make_node("Neg", ["x"], ["y"])], inputs=[X], outputs=["y"])
    assert outcomes(checked(model, {} if case.startswith("strings") else {"x": big()}))["w"] == "kept"
