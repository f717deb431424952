"""Data beside the model: large tensors stay in their file, others are read, and a pickle holds them all."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper

from numbaops import ELEMENT_TYPES, ReferenceEvaluator, to_array
from numbaops.engine import external
from numbaops.errors import EvaluationError, InvalidValueError

pytestmark = pytest.mark.usefixtures("stage")

TYPES = [kind for kind in ELEMENT_TYPES if kind.kind != "string"]
COUNT = 3 * external.MAPPED_FROM  # odd bytes of two-bit elements too


def tensor(kind: int, dims: list[int], **where: Any) -> TensorProto:
    made = TensorProto(name="w", data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "weights", **where}.items():
        made.external_data.add(key=key, value=str(value))
    return made


def model(initializer: TensorProto, *nodes: onnx.NodeProto) -> ModelProto:
    nodes = nodes or (helper.make_node("Identity", ["w"], ["y"]),)
    graph = helper.make_graph(nodes, "g", [], [helper.make_empty_tensor_value_info("y")], initializer=[initializer])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def saved(folder: Path, made: ModelProto, data: bytes) -> Path:
    (folder / "weights").write_bytes(data)
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    return folder / "model.onnx"


def floats(folder: Path, count: int = COUNT, *nodes: onnx.NodeProto) -> tuple[Path, np.ndarray]:
    values = np.arange(count, dtype=np.float32)
    return saved(folder, model(tensor(TensorProto.FLOAT, [count]), *nodes), values.tobytes()), values


@pytest.mark.parametrize("offset", [0, 64, 63])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_at_every_offset(kind: Any, offset: int, tmp_path: Path) -> None:
    nbytes = kind.packed_size(COUNT)
    data = np.random.default_rng(0).integers(0, 256, offset + nbytes + 5, np.uint8).tobytes()
    proto = tensor(kind.code, [COUNT // 3, 3], offset=offset, length=nbytes)
    evaluator = ReferenceEvaluator(saved(tmp_path, model(proto), data))
    aligned = offset % kind.dtype.alignment == 0
    assert bool(evaluator._external) == (kind.bits >= 8 and kind.name != "bool" and aligned)
    inside = TensorProto(data_type=kind.code, dims=proto.dims, raw_data=data[offset : offset + nbytes])
    (wanted,) = ReferenceEvaluator(model(inside, helper.make_node("Constant", [], ["y"], value=inside))).run(None, {})
    for _ in range(3):
        (got,) = evaluator.run(None, {})
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        assert got.tobytes() == wanted.tobytes()
        assert got.flags.writeable
        got.fill(0)


def test_small_tensors_are_read(tmp_path: Path) -> None:
    path, values = floats(tmp_path, 100)
    evaluator = ReferenceEvaluator(path)
    (tmp_path / "weights").unlink()
    assert not evaluator._external
    assert evaluator.run(None, {})[0].tobytes() == values.tobytes()


def test_what_runs_does_to_its_inputs_is_not_seen_in_the_file(tmp_path: Path) -> None:
    path, values = floats(tmp_path, COUNT, *(helper.make_node("Add", [x, x], [y]) for x, y in ("wa", "ab", "by")))
    before = (tmp_path / "weights").read_bytes()
    evaluator = ReferenceEvaluator(path)
    for _ in range(10):
        np.testing.assert_array_equal(evaluator.run(None, {})[0], values * 8)
    assert (tmp_path / "weights").read_bytes() == before


@pytest.mark.parametrize(
    "again", [lambda made: pickle.loads(pickle.dumps(made)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"]
)
@pytest.mark.parametrize("count", [7, COUNT])
def test_pickles_hold_the_data(again: Any, count: int, tmp_path: Path) -> None:
    path, values = floats(tmp_path, count)
    made = again(ReferenceEvaluator(path))
    (tmp_path / "weights").unlink()
    path.unlink()
    for each in (made, again(made)):
        assert each.run(None, {})[0].tobytes() == values.tobytes()


@pytest.mark.parametrize("grown", [False, True])
def test_a_file_written_to_later_is_an_error(grown: bool, tmp_path: Path) -> None:
    """To read behind its end would end the process."""
    path, values = floats(tmp_path)
    evaluator = ReferenceEvaluator(path)
    evaluator.run(None, {})
    weights = tmp_path / "weights"
    with weights.open("r+b") as file:
        file.truncate(values.nbytes // 2)
        if grown:
            file.truncate(values.nbytes)
    os.utime(weights, ns=(0, weights.stat().st_mtime_ns + 1))  # however coarse the system's clock is
    for use in (lambda: evaluator.run(None, {}), lambda: pickle.dumps(evaluator), lambda: copy.deepcopy(evaluator), evaluator.explain):
        with pytest.raises(EvaluationError, match=r"weights' was written to since the model was loaded; load it again"):
            use()


def test_a_file_that_another_takes_the_place_of(tmp_path: Path) -> None:
    path, values = floats(tmp_path)
    evaluator = ReferenceEvaluator(path)
    (tmp_path / "new").write_bytes(bytes(values.nbytes))
    (tmp_path / "new").replace(tmp_path / "weights")
    np.testing.assert_array_equal(evaluator.run(None, {})[0], values)


def test_many_files_take_few_descriptors(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(40)]
    data = np.ones(external.MAPPED_FROM // 4, np.float32)
    initializers = []
    for name in names:
        (tmp_path / name).write_bytes(data.tobytes())
        initializers.append(tensor(TensorProto.FLOAT, [data.size], location=name))
        initializers[-1].name = name
    made = model(initializers[0], helper.make_node("Sum", names, ["y"]))
    made.graph.initializer.extend(initializers[1:])
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    evaluator = ReferenceEvaluator(tmp_path / "model.onnx")
    assert len(evaluator._external._files) <= 16
    np.testing.assert_array_equal(evaluator.run(None, {})[0], data * 40)


@pytest.mark.parametrize("kind", [ELEMENT_TYPES[TensorProto.FLOAT - 1], ELEMENT_TYPES[TensorProto.INT4 - 1]], ids=str)
@pytest.mark.parametrize("count", [0, 7, COUNT], ids=["empty", "read", "mapped"])
@pytest.mark.parametrize("where", [{}, {"length": 0}], ids=["none", "0"])
def test_without_a_length_type_and_shape_say_it(where: dict[str, int], count: int, kind: Any, tmp_path: Path) -> None:
    nbytes = kind.packed_size(count)
    data = np.random.default_rng(0).integers(0, 256, 2 * nbytes + 5, np.uint8).tobytes()
    first, second = (tensor(kind.code, [count], offset=position * nbytes, **where) for position in range(2))
    nodes = [helper.make_node("Constant", [], ["c"], value=second), helper.make_node("Concat", ["w", "c"], ["y"], axis=0)]
    parts = [
        to_array(TensorProto(data_type=kind.code, dims=[count], raw_data=data[position * nbytes : (position + 1) * nbytes]))
        for position in range(2)
    ]
    (got,) = ReferenceEvaluator(saved(tmp_path, model(first, *nodes), data)).run(None, {})
    assert got.tobytes() == np.concatenate(parts).tobytes()
    assert to_array(first, tmp_path).tobytes() == parts[0].tobytes()


@pytest.mark.parametrize("length", [1, 4 * COUNT - 1, 4 * COUNT + 1])
def test_another_length(length: int, tmp_path: Path) -> None:
    proto = tensor(TensorProto.FLOAT, [COUNT], length=length)
    with pytest.raises(InvalidValueError, match=rf"external data has {length} bytes; float of shape .{COUNT}. needs {4 * COUNT}"):
        ReferenceEvaluator(saved(tmp_path, model(proto), bytes(8 * COUNT)))


@pytest.mark.parametrize("size", [0, 1, 4 * COUNT - 1])
def test_files_that_are_too_short(size: int, tmp_path: Path) -> None:
    path, _ = floats(tmp_path)
    (tmp_path / "weights").write_bytes(bytes(size))
    with pytest.raises(
        InvalidValueError, match=rf"external data has {size} bytes; float of shape .{COUNT}. needs {4 * COUNT}|cannot be read"
    ):
        ReferenceEvaluator(path)


def test_tensors_in_bodies_functions_and_attributes(tmp_path: Path) -> None:
    proto, values = tensor(TensorProto.FLOAT, [COUNT]), np.arange(COUNT, dtype=np.float32)
    output = helper.make_empty_tensor_value_info("o")
    body = helper.make_graph([helper.make_node("Neg", ["w"], ["o"])], "b", [], [output], initializer=[proto])
    constant = helper.make_node("Constant", [], ["c"], value=proto)
    branch = helper.make_node("If", ["t"], ["i"], then_branch=body, else_branch=body)
    sparse = helper.make_node("Constant", [], ["s"])
    indices = helper.make_tensor("i", TensorProto.INT64, [COUNT], np.arange(COUNT))
    sparse.attribute.add(name="sparse_value", type=AttributeProto.SPARSE_TENSOR).sparse_tensor.CopyFrom(
        onnx.SparseTensorProto(values=proto, indices=indices, dims=[COUNT])
    )
    inner = helper.make_function("f", "F", [], ["c"], [constant], [helper.make_opsetid("", 23)])
    nodes = [
        helper.make_node("Constant", [], ["t"], value=helper.make_tensor("t", TensorProto.BOOL, [], [1])),
        branch,
        constant,
        sparse,
        helper.make_node("F", [], ["f"], domain="f"),
        helper.make_node("Sum", ["w", "i", "c", "s", "f"], ["y"]),
    ]
    made = model(proto, *nodes)
    made.functions.append(inner)
    made.opset_import.append(helper.make_opsetid("f", 1))
    evaluator = ReferenceEvaluator(saved(tmp_path, made, values.tobytes()))
    (tmp_path / "weights").unlink()  # the system keeps what is mapped
    for each in (evaluator, pickle.loads(pickle.dumps(evaluator))):
        np.testing.assert_array_equal(each.run(None, {})[0], values * 3)


def test_operators_of_others_get_tensors_in_attributes(tmp_path: Path) -> None:
    class Shifted(onnx.reference.op_run.OpRun):
        op_domain = "f"

        def _run(self, x: np.ndarray, by: Any = None) -> tuple[np.ndarray]:
            return (x + by,)

    path, values = floats(tmp_path, COUNT, helper.make_node("Shifted", ["w"], ["y"], domain="f", by=tensor(TensorProto.FLOAT, [COUNT])))
    made = onnx.load(path, load_external_data=False)
    made.opset_import.append(helper.make_opsetid("f", 1))
    path.write_bytes(made.SerializeToString())
    np.testing.assert_array_equal(ReferenceEvaluator(path, new_ops=[Shifted]).run(None, {})[0], values * 2)
