"""Files of rewritten models: whole or not at all, and never those that they were made from."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

import numbaops
from command_line import process
from numbaops import ReferenceEvaluator
from numbaops.errors import EvaluationError, InvalidValueError
from numbaops.reference import InvalidModelError
from numbaops.rewrite import files

F = np.float32
COUNT = 3 * files.EXTERNAL_FROM
NEWER = bytes([0xF8, 7, 0xAC, 2, 0xFA, 7, 3, *b"abc", 0xFD, 7, *b"four", 0xF9, 7, *b"eight of", 0xFB, 7, 8, 1, 0xFC, 7])
"""Fields that no onnx has yet, of every kind that protobuf has."""


def model(*names: str, count: int = COUNT) -> ModelProto:
    """Adds the negatives of some weights to its input."""
    nodes, last = [], "x"
    for name in names:
        nodes += [helper.make_node("Neg", [name], [f"-{name}"]), helper.make_node("Add", [last, f"-{name}"], [f"+{name}"])]
        last = f"+{name}"
    nodes.append(helper.make_node("Abs", [last], ["y"]))
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [count]) for name in ("x", "y")]
    weights = [numbaops.from_array(np.arange(count, dtype=F) + position, name) for position, name in enumerate(names)]
    graph = helper.make_graph(nodes, "g", shapes[:1], shapes[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A model whose weights are in another file."""
    path = tmp_path / "model.onnx"
    onnx.save(model("w", "v"), path, save_as_external_data=True, location="weights", size_threshold=0)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def outputs(path: Path) -> Any:
    (y,) = ReferenceEvaluator(path, exact=True).run(None, {"x": np.ones(COUNT, F)})
    return y


def test_external_data_stay_external(outside: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    want, before = outputs(outside), outside.read_bytes()
    folded = numbaops.fold(outside, max_growth=0)
    written = folded.save(tmp_path / "new" / "folded.onnx")
    assert [path.name for path in written] == ["folded.onnx", "folded.onnx.data"]
    assert written[0].stat().st_size < 2000
    assert outside.read_bytes() == before
    outside.unlink()
    (tmp_path / "weights").unlink()
    assert outputs(written[0]).tobytes() == want.tobytes()
    onnx.checker.check_model(written[0])


def test_what_is_not_folded_is_copied_as_it_is(outside: Path, tmp_path: Path) -> None:
    folded = numbaops.fold(outside, max_tensor=0)
    assert [fact.reason for fact in folded.facts if fact.what == "left"] == ["max_tensor", "max_tensor"]
    assert all(tensor.data_location == TensorProto.EXTERNAL for tensor in folded.model.graph.initializer)
    folded.save(tmp_path / "folded.onnx")
    loaded = onnx.load(tmp_path / "folded.onnx")
    for one, other in zip(model("w", "v").graph.initializer, loaded.graph.initializer, strict=True):
        assert numbaops.to_array(one).tobytes() == numbaops.to_array(other).tobytes()


def test_tensors_that_share_their_place_still_do(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model("w", "v"), path, save_as_external_data=True, location="weights", size_threshold=0)
    loaded = files.load(path)
    one, other = loaded.model.graph.initializer
    other.external_data[1].value = one.external_data[1].value
    other.external_data[2].value = one.external_data[2].value
    files.save(loaded.model, tmp_path / "new.onnx", loaded)
    assert (tmp_path / "new.onnx.data").stat().st_size == 4 * COUNT


def test_a_copy_is_the_same() -> None:
    made = model("w", "v", count=5)
    made.producer_name, made.model_version = "me", 3
    made.metadata_props.add(key="a", value="b")
    made.graph.doc_string = "text"
    made.graph.value_info.append(helper.make_tensor_value_info("-w", TensorProto.FLOAT, [5]))
    for message in (made, made.graph, made.graph.node[0], made.graph.initializer[0]):
        message.MergeFromString(NEWER)
    assert files.copied(made) == made
    assert files.copied(made).SerializeToString() == made.SerializeToString()
    assert files.load(made).model.SerializeToString() == made.SerializeToString()


@pytest.mark.parametrize("namesake", ["constant", "typed in a body", "raw in a body", "training"])
def test_names_mean_nothing_outside_their_graph(namesake: str, outside: Path, tmp_path: Path) -> None:
    made, small = onnx.load(outside, load_external_data=False), helper.make_tensor("big", TensorProto.FLOAT, [], [2.0])
    weights = np.arange(COUNT, dtype=F)
    made.graph.initializer.append(numbaops.from_array(weights, "big"))
    made.graph.node.append(helper.make_node("Neg", ["big"], ["z"]))
    made.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [COUNT]))
    if namesake == "constant":
        made.graph.node.append(helper.make_node("Constant", [], ["c"], value=small))
    elif namesake == "training":
        made.training_info.add().algorithm.initializer.append(small)
    else:
        inner = numbaops.from_array(-weights, "big") if namesake == "raw in a body" else small
        body = helper.make_graph([helper.make_node("Neg", ["big"], ["i"])], "b", [], [helper.make_empty_tensor_value_info("i")], [inner])
        made.graph.node.append(helper.make_node("If", ["t"], ["c"], then_branch=body, else_branch=body))
        made.graph.initializer.append(helper.make_tensor("t", TensorProto.BOOL, [], [True]))
    (tmp_path / "in.onnx").write_bytes(made.SerializeToString())
    loaded = files.load(tmp_path / "in.onnx")
    written = files.save(loaded.model, tmp_path / "new.onnx", loaded)
    onnx.checker.check_model(written[0])
    assert written[1].stat().st_size >= 3 * weights.nbytes
    for one, other in zip(*(files.tensors_of_model(onnx.load(path)) for path in (tmp_path / "in.onnx", written[0])), strict=True):
        assert numbaops.to_array(one).tobytes() == numbaops.to_array(other).tobytes(), one.name


def test_all_but_the_elements_of_what_moves_stays(outside: Path, tmp_path: Path) -> None:
    made = onnx.load(outside, load_external_data=False)
    big = numbaops.from_array(np.arange(COUNT, dtype=F), "big")
    big.doc_string = "text"
    big.metadata_props.add(key="a", value="b")
    big.MergeFromString(NEWER)
    made.graph.initializer.append(big)
    loaded = files.load(made, tmp_path)
    files.save(loaded.model, tmp_path / "new.onnx", loaded)
    saved = onnx.load(tmp_path / "new.onnx", load_external_data=False).graph.initializer[-1]
    assert saved.data_location == TensorProto.EXTERNAL
    saved.ClearField("data_location")
    saved.ClearField("external_data")
    big.ClearField("raw_data")
    assert saved == big


@pytest.mark.parametrize("length", [None, "0"], ids=["none", "0"])
def test_the_length_is_written_where_the_model_has_none(length: str | None, outside: Path, tmp_path: Path) -> None:
    made = onnx.load(outside, load_external_data=False)
    for tensor in made.graph.initializer:
        (entry,) = [each for each in tensor.external_data if each.key == "length"]
        tensor.external_data.remove(entry)
        if length is not None:
            tensor.external_data.add(key="length", value=length)
    loaded = files.load(made, tmp_path)
    written = files.save(loaded.model, tmp_path / "new.onnx", loaded)
    for tensor in onnx.load(written[0], load_external_data=False).graph.initializer:
        assert {entry.key: entry.value for entry in tensor.external_data}["length"] == str(4 * COUNT)
    assert outputs(written[0]).tobytes() == outputs(outside).tobytes()


def test_what_leaves_nothing_outside_has_no_data_file(tmp_path: Path) -> None:
    made = model("w")
    made.graph.initializer[0].CopyFrom(numbaops.from_array(np.ones(COUNT, F), "w"))
    onnx.save(made, tmp_path / "x.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "new.onnx.data").write_bytes(b"another model's")
    assert numbaops.compact(tmp_path / "x.onnx").save(tmp_path / "new.onnx") == [tmp_path / "new.onnx"]
    assert (tmp_path / "new.onnx.data").read_bytes() == b"another model's"
    assert outputs(tmp_path / "new.onnx").tobytes() == outputs(tmp_path / "x.onnx").tobytes()


@pytest.mark.parametrize("source", ["path", "file"])
def test_the_input_stays_though_the_current_folder_is_another(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model("w"), "x.onnx")
    (tmp_path / "other").mkdir()
    before = Path("x.onnx").read_bytes()
    with open("x.onnx", "rb") as file:
        folded = numbaops.fold("x.onnx" if source == "path" else file)
    for folder in (".", "other"):
        monkeypatch.chdir(folder)
        with pytest.raises(InvalidValueError, match="the model that is read"):
            folded.save(tmp_path / "x.onnx")
    assert (tmp_path / "x.onnx").read_bytes() == before


def test_the_name_of_a_file_in_an_archive_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("models.zip", "w") as archive:
        archive.writestr("x.onnx", model("w").SerializeToString())
        with archive.open("x.onnx") as file:
            numbaops.fold(file).save("x.onnx")
    onnx.checker.check_model("x.onnx")


@pytest.mark.parametrize("source", ["path", "file", "folder"])
def test_data_are_found_from_another_folder(source: str, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open(outside.name, "rb") as file:
        given = {"path": outside.name, "file": file, "folder": onnx.load(outside, load_external_data=False)}[source]
        folded = numbaops.fold(given, folder="." if source == "folder" else None, max_tensor=0)
    Path("other").mkdir()
    monkeypatch.chdir("other")
    folded.save("new.onnx")
    assert outputs(Path("new.onnx")).tobytes() == outputs(outside).tobytes()


@pytest.mark.parametrize("bad", ["same", "symbolic link", "hard link", "its data", "link to its data", "folder", "no folder", "device"])
def test_refused_outputs(outside: Path, tmp_path: Path, bad: str) -> None:
    os.symlink(outside, tmp_path / "symbolic link")
    os.link(outside, tmp_path / "hard link")
    os.symlink(tmp_path / "weights", tmp_path / "link to its data")
    names = {
        "same": outside,
        "its data": tmp_path / "weights",
        "folder": tmp_path,
        "no folder": tmp_path / "no" / "x",
        "device": "/dev/null",
    }
    target = names.get(bad, tmp_path / bad)
    before = contents(tmp_path)
    folded = numbaops.fold(outside)
    with pytest.raises(InvalidValueError, match=r"stays as it is|not a regular file|there is no folder"):
        folded.save(target)
    assert contents(tmp_path) == before


def test_data_that_would_replace_those_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    onnx.save(model("w"), path, save_as_external_data=True, location="b.onnx.data", size_threshold=0)
    assert files.load(path).files == (path, tmp_path / "b.onnx.data")
    before = contents(tmp_path)
    with pytest.raises(InvalidValueError, match=r"b\.onnx\.data is external data of the model that is read"):
        numbaops.fold(path).save(tmp_path / "b.onnx")
    assert contents(tmp_path) == before


def test_the_target_of_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real.onnx").write_bytes(b"old")
    os.symlink(tmp_path / "real.onnx", tmp_path / "link.onnx")
    numbaops.fold(model("w")).save(tmp_path / "link.onnx")
    assert (tmp_path / "link.onnx").is_symlink()
    onnx.checker.check_model(tmp_path / "real.onnx")


@pytest.mark.parametrize("name", ["x.onnx", "x.onnx.data"])
def test_what_is_write_protected_stays(outside: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"old")
    (tmp_path / name).chmod(0o444)
    before = contents(tmp_path)
    with pytest.raises(InvalidValueError, match="the file is write-protected"):
        numbaops.fold(outside).save(tmp_path / "x.onnx")
    assert contents(tmp_path) == before


def test_a_folder_in_the_place_of_the_data(outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.onnx.data").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InvalidValueError, match=r"x\.onnx\.data: not a regular file"):
        files.check_target(tmp_path / "x.onnx", files.load(outside))
    large = files.load(model("w"))  # which says only when it is saved whether there are data
    monkeypatch.setattr(files, "LARGEST_MESSAGE", 1000)
    with pytest.raises(InvalidValueError, match=r"x\.onnx\.data: not a regular file"):
        files.save(large.model, tmp_path / "x.onnx", large)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InvalidValueError, match="no file can be written there"):
            numbaops.fold(model("w")).save(tmp_path / "x.onnx")
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_where_no_file_can_be_made() -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("no /proc")
    with pytest.raises(InvalidValueError, match="no file can be written there"):
        numbaops.fold(model("w")).save("/proc/x.onnx")


FULL = """
import resource, signal, sys, numbaops
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folded = numbaops.fold(sys.argv[1], max_growth=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    folded.save(sys.argv[2])
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("external", [False, True], ids=["one file", "data beside"])
def test_a_full_disk_leaves_nothing(tmp_path: Path, external: bool) -> None:
    pytest.importorskip("resource")
    path, old = tmp_path / "model.onnx", tmp_path / "old.onnx"
    onnx.save(model("w"), path, save_as_external_data=external, location="weights", size_threshold=0)
    old.write_bytes(b"old")
    before = contents(tmp_path)
    result = process(path, old, code=FULL)
    assert result.stdout == "File too large\n", result.stderr
    assert contents(tmp_path) == before


def test_the_earlier_files_come_back_if_the_second_cannot_be_put(outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("new.onnx", "new.onnx.data"):
        (tmp_path / name).write_bytes(b"old")
    before = contents(tmp_path)
    replace = os.replace

    def failing(source: Any, target: Any) -> None:
        if Path(target).name == "new.onnx" and str(source).endswith(".tmp"):
            raise OSError(5, "no")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="no"):
        numbaops.fold(outside).save(tmp_path / "new.onnx")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("earlier", [(), ("new.onnx",), ("new.onnx.data",), ("new.onnx", "new.onnx.data")], ids=" ".join)
@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_signal_between_any_two_lines(
    earlier: tuple[str, ...], links: bool, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in earlier:
        (tmp_path / name).write_bytes(b"old")
    before, folded = contents(tmp_path), numbaops.fold(outside)
    replace, calls = os.replace, 0

    def no_links(*_: Any, **__: Any) -> None:
        raise OSError(1, "no links")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    renamed = 2 + (not links and "new.onnx.data" in earlier)
    for stop in range(1, renamed + 1):
        calls = 0

        def interrupted(source: Any, target: Any, stop: int = stop) -> None:
            nonlocal calls
            replace(source, target)
            calls += 1
            assert (tmp_path / "new.onnx").exists() == ("new.onnx" in earlier) or calls == renamed
            if calls == stop:
                raise KeyboardInterrupt

        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folded.save(tmp_path / "new.onnx")
        if stop < renamed:
            assert contents(tmp_path) == before
    monkeypatch.undo()
    for _ in range(2):
        assert contents(tmp_path).keys() == before.keys() | {"new.onnx", "new.onnx.data"}
        folded.save(tmp_path / "new.onnx")
    assert outputs(tmp_path / "new.onnx").tobytes() == outputs(outside).tobytes()


def test_data_that_are_cut_short(outside: Path, tmp_path: Path) -> None:
    folded = numbaops.fold(outside, max_tensor=0)
    os.truncate(tmp_path / "weights", 4 * COUNT + 10)
    before = contents(tmp_path)
    with pytest.raises(InvalidValueError, match="tensor 'v': external data cannot be read"):
        folded.save(tmp_path / "new.onnx")
    assert contents(tmp_path) == before


def test_a_proto_whose_data_are_elsewhere(outside: Path, tmp_path: Path) -> None:
    proto = onnx.load(outside, load_external_data=False)
    lost = numbaops.fold(proto)
    assert {fact.reason for fact in lost.facts if fact.what == "left"} == {"fails"}
    with pytest.raises(InvalidValueError, match="came without a folder"):
        lost.save(tmp_path / "new.onnx")
    folded = numbaops.fold(proto, folder=tmp_path)
    folded.save(tmp_path / "new.onnx")
    assert outputs(tmp_path / "new.onnx").tobytes() == outputs(outside).tobytes()


@pytest.mark.parametrize("source", [b"", b"no model"], ids=["empty", "garbage"])
def test_no_models(source: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(source)
    for each in (source, tmp_path / "x.onnx"):
        with pytest.raises(InvalidModelError):
            numbaops.fold(each)
    with pytest.raises(FileNotFoundError):
        numbaops.fold(tmp_path / "none.onnx")


@pytest.mark.parametrize("source", ["path", "bytes", "file", "proto"])
def test_every_kind_of_source(source: str, tmp_path: Path) -> None:
    made = model("w", count=3)
    path = tmp_path / "x.onnx"
    onnx.save(made, path)
    with path.open("rb") as file:
        given = {"path": str(path), "bytes": path.read_bytes(), "file": file, "proto": made}[source]
        assert [node.op_type for node in numbaops.fold(given).model.graph.node] == ["Add", "Abs"]


@pytest.mark.long
def test_a_model_of_more_than_2_gib(tmp_path: Path) -> None:
    count = (5 << 28) // 4  # of floats, in each of two weights
    made = model("w", "v", count=1)
    for position, tensor in enumerate(made.graph.initializer):
        tensor.ClearField("raw_data")
        tensor.dims[:] = [count]
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights"), ("offset", position * 4 * count), ("length", 4 * count)):
            tensor.external_data.add(key=key, value=str(value))
    made.graph.node.extend([helper.make_node("Shape", ["w"], ["s"]), helper.make_node("Cast", ["s"], ["z"], to=1)])
    made.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1]))
    onnx.save(made, tmp_path / "model.onnx")
    with open(tmp_path / "weights", "wb") as file:
        file.truncate(8 * count)  # zeros that take no room
    folded = numbaops.fold(tmp_path / "model.onnx")
    assert [node.op_type for node in folded.model.graph.node] == ["Neg", "Add", "Neg", "Add", "Abs", "Constant"]
    files_written = folded.save(tmp_path / "new.onnx")
    assert files_written[1].stat().st_size == 8 * count
    # and one that is larger than a message without data of its own beside it
    inside = ModelProto()
    inside.CopyFrom(model("w", "v", count=1))
    for tensor in inside.graph.initializer:
        tensor.dims[:] = [count]
        tensor.raw_data = bytes(4 * count)
    written = numbaops.fold(inside).save(tmp_path / "large.onnx")
    assert [path.name for path in written] == ["large.onnx", "large.onnx.data"]


def test_a_check_that_fails_writes_nothing(tmp_path: Path) -> None:
    made = model(count=3)
    made.graph.node[0].op_type = "RandomNormalLike"
    onnx.save(made, tmp_path / "x.onnx")
    before = contents(tmp_path)
    with pytest.raises(EvaluationError, match="differs in run 1"):
        numbaops.fold(tmp_path / "x.onnx", check=1)
    assert contents(tmp_path) == before
