"""``numbaops check``: models that run, that nobody can run, that are larger than they can be read, and that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

pytest.importorskip("cyclopts")

from command_line import TERMINAL_VARIABLES, Command, Result, one_line_error, save_model, value_info
from numbaops.cli import main
from numbaops.cli.estimate import estimate
from numbaops.cli.report import size
from numbaops.reference import ReferenceEvaluator

FINE, NOT_FINE = 0, 3


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    for name in TERMINAL_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Result:
        status = main([str(each) for each in arguments])
        return Result(status, *capsys.readouterr())

    return run


def parsed(path: Path, text: str, imports: str = '"" : 21') -> Path:
    onnx.save(parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> g {text}"), path)
    return path


def by_operator(facts: dict[str, Any]) -> dict[str, tuple[int | None, str, list[str]]]:
    return {one["operator"]: (one["since_version"], one["where"], one["nodes"]) for one in facts["operators"]}


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """Operators of ours, of a function, and of nobody."""
    text = """(float[batch, 3, length] x) => (float[batch, 3, length] y) {
        a = Relu(x)
        b = my.Magic(a)
        c = my.Magic(b)
        y = f.Twice(c)
    }
    <domain: "f", opset_import: ["" : 17]>
    Twice (u) => (v) { v = Add(u, u) }"""
    return parsed(tmp_path / "strange.onnx", text, '"" : 21, "my" : 1, "f" : 1')


def test_operators_by_who_runs_them(command: Command, strange: Path) -> None:
    result = command("check", strange, "--json")
    assert result.status == NOT_FINE
    facts = result.json
    assert by_operator(facts) == {
        "Magic": (None, "nobody", ["b", "c"]),
        "Twice": (None, "function", ["y"]),
        "Relu": (14, "numbaops", ["a"]),
        "Add": (14, "numbaops", ["v"]),
    }
    assert facts["opsets"] == {"ai.onnx": 21, "my": 1, "f": 1}
    assert [one["domain"] for one in facts["operators"]] == ["my", "f", "ai.onnx", "ai.onnx"]
    assert facts["inputs"] == [{"name": "x", "type": "float", "shape": ["batch", 3, "length"], "required": True}]
    assert facts["outputs"] == [{"name": "y", "type": "float", "shape": ["batch", 3, "length"]}]
    assert facts["problems"] == ["2 nodes of my.Magic: nobody implements this operator of domain 'my'"]
    assert facts["fine"] is False


def test_the_table(command: Command, strange: Path) -> None:
    shown = command("check", strange)
    words = " ".join(shown.out.split())
    assert shown.status == NOT_FINE
    assert max(map(len, shown.out.splitlines())) <= 80
    for text in (
        "input x float (batch, 3, length)",
        "my.Magic - 2 unsupported: nobody implements this operator of domain 'my'; nodes: b, c",
        "f.Twice - 1 function, see its nodes",
        "onnx.checker: valid",
        "give --dim batch=SIZE --dim length=SIZE",
        "not all fine: 2 nodes of my.Magic",
    ):
        assert text in words.replace("  ", " "), text


def test_a_model_that_onnx_runs_in_part(command: Command, tmp_path: Path) -> None:
    text = (
        '(int32[1, 6] x) => (float[n] y) { y = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0, '
    )
    text += "ngram_counts = [0], ngram_indexes = [0, 1], pool_int64s = [2, 3]> (x) }"
    result = command("check", parsed(tmp_path / "model.onnx", text), "--json")
    assert by_operator(result.json) == {"TfIdfVectorizer": (9, "onnx.reference", ["y"])}
    assert (result.status, result.json["fine"]) == (FINE, True)
    assert "1 node, 1 of them by onnx.reference" in command("check", tmp_path / "model.onnx").out


def test_nodes_in_bodies_are_counted(command: Command, tmp_path: Path) -> None:
    text = """(bool c, float[4] x) => (float[4] y) {
        y = If(c) <then_branch = t () => (float[4] u) { u = Relu(x) }, else_branch = e () => (float[4] v) { v = my.Magic(x) }>
    }"""
    facts = command("check", parsed(tmp_path / "model.onnx", text, '"" : 21, "my" : 1'), "--json").json
    assert by_operator(facts) == {"Magic": (None, "nobody", ["v"]), "If": (21, "numbaops", ["y"]), "Relu": (14, "numbaops", ["u"])}


@pytest.mark.parametrize(
    ("node", "imports", "reason"),
    [
        ("EyeLike(x)", '"" : 8', "does not exist at opset 8; its versions are since opset 9, 22"),
        ("Nothing(x)", '"" : 21', "nobody implements this operator of domain ''"),
        ("other.Relu(x)", '"" : 21', "Domain 'other' (node type: 'Relu') is not specified. Known opsets: {'': 21}."),
    ],
    ids=["too-new", "unknown", "domain-not-imported"],
)
def test_why_an_operator_is_unsupported(command: Command, tmp_path: Path, node: str, imports: str, reason: str) -> None:
    path = parsed(tmp_path / "model.onnx", f"(float[4] x) => (float[4] y) {{ y = {node} }}", imports)
    result = command("check", path, "--json")
    assert result.status == NOT_FINE
    assert [(one["where"], one["reason"]) for one in result.json["operators"]] == [("nobody", reason)]
    with pytest.raises((NotImplementedError, RuntimeError)) as caught:  # what loading it says
        ReferenceEvaluator(path)
    assert reason in str(caught.value)


def test_a_function_that_calls_itself(command: Command, tmp_path: Path) -> None:
    text = """(float[4] x) => (float[4] y) { y = f.A(x) }
    <domain: "f", opset_import: ["f" : 1]> A (u) => (v) { v = f.B(u) }
    <domain: "f", opset_import: ["f" : 1]> B (u) => (v) { v = f.A(u) }"""
    result = command("check", parsed(tmp_path / "model.onnx", text, '"" : 21, "f" : 1'), "--json")
    assert result.status == NOT_FINE
    assert any(one.startswith("a function calls itself: ") for one in result.json["problems"])


def test_what_the_checker_says(command: Command, tmp_path: Path) -> None:
    path = parsed(tmp_path / "model.onnx", "(float[4] x) => (float[4] y) { y = Relu<slope = 2>(x) }")
    result = command("check", path, "--json")
    assert result.status == NOT_FINE
    assert result.json["checker"] == {"valid": False, "message": "Unrecognized attribute: slope for operator Relu"}
    assert result.json["problems"] == ["onnx.checker refuses it"]


# -------------------------------------------------------------------------------------------------------------- external data

GIB_4 = 1 << 32


def external(location: str | None = "weights.bin", offset: int = 0, length: int | None = GIB_4) -> TensorProto:
    """4 GiB of float in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 15, 1 << 15], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def large(folder: Path, tensor: TensorProto, there: int | None = GIB_4) -> Path:
    """The model ``y = x @ w``, and a file of ``there`` bytes that takes no room on the disk."""
    if there is not None:
        with (folder / "weights.bin").open("wb") as file:
            file.truncate(there)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    infos = [value_info(name, shape=["N", 1 << 15]) for name in "xy"]
    return save_model(folder / "large.onnx", nodes, [infos[0]], [infos[1]], [tensor])


def test_a_model_of_more_than_2_gib(command: Command, tmp_path: Path) -> None:
    result = command("check", large(tmp_path, external()), "--dim", "N=4", "--json")
    assert result.status == FINE
    assert result.json["external_data"] == [{"file": "weights.bin", "tensors": 1, "bytes": GIB_4, "problem": ""}]
    memory = result.json["memory"]
    assert (memory["weight_bytes"], memory["external_bytes"], memory["peak_bytes"]) == (GIB_4, GIB_4, 4 * 4 << 15)


@pytest.mark.parametrize(
    ("tensor", "there", "problem"),
    [
        (external(), None, "there is no such file"),
        (external(), GIB_4 - 1, f"tensor 'w' would end at byte {GIB_4}, and the file has {GIB_4 - 1}"),
        (external(offset=8), GIB_4, f"tensor 'w' would end at byte {GIB_4 + 8}, and the file has {GIB_4}"),
        (external(length=8), GIB_4, f"tensor 'w' takes {GIB_4} bytes, and the model gives it 8"),
        (external(length=None), 8, f"tensor 'w' would end at byte {GIB_4}, and the file has 8"),
    ],
    ids=["missing", "short", "offset", "length", "no-length"],
)
def test_external_data_that_is_not_there(command: Command, tmp_path: Path, tensor: TensorProto, there: int | None, problem: str) -> None:
    path = large(tmp_path, tensor, there)
    result = command("check", path, "--json")
    assert result.status == NOT_FINE
    assert [one["problem"] for one in result.json["external_data"]] == [problem]
    assert f"external data weights.bin: 1 tensor, 4 GiB, {problem}" in " ".join(command("check", path).out.split())


def test_external_data_outside_of_the_folder(command: Command, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(GIB_4)
    result = command("check", large(tmp_path / "inner", external("../weights.bin"), None), "--json")
    assert result.status == NOT_FINE
    assert "weights.bin" in result.json["external_data"][0]["problem"]


# ------------------------------------------------------------------------------------------------------------ what it cannot read


@pytest.mark.parametrize("content", [b"", b"nothing of ONNX", b"\x08\x0a"], ids=["empty", "text", "no-graph"])
def test_no_model(command: Command, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert f"the file {str(path)!r}" in one_line_error(command("check", path))


@pytest.mark.parametrize("name", ["check", "run", "fold"])
def test_a_file_that_is_too_large_is_not_read(command: Command, tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(5 << 30)
    more = [tmp_path / "out.onnx"] if name == "fold" else []
    assert "it has 5368709120 bytes, and protobuf's limit is 2 GiB" in one_line_error(command(name, path, *more))


def test_an_opset_that_onnx_does_not_know_yet(command: Command, tmp_path: Path) -> None:
    path = save_model(tmp_path / "model.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value_info("x")], [value_info("y")])
    model = onnx.load(path)
    model.opset_import[0].version = 99
    onnx.save(model, path)
    result = command("check", path)
    assert result.status == NOT_FINE
    newest = onnx.defs.onnx_opset_version()
    assert f"opset 99 is newer than onnx {onnx.__version__} knows, whose newest is {newest}" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nowhere.onnx",), "nowhere.onnx: No such file or directory"),
        ((), "MODEL"),
        (("{model}", "--dim", "N=2"), "--dim N=2: no input has a dimension 'N'; symbolic dimensions: batch, length"),
        (("{model}", "--dim", "batch"), "--dim batch: it takes NAME=SIZE"),
    ],
    ids=["file", "none", "dim", "size"],
)
def test_errors_of_use(command: Command, strange: Path, arguments: tuple[str, ...], text: str) -> None:
    assert text in one_line_error(command("check", *(each.format(model=strange) for each in arguments)))


# ------------------------------------------------------------------------------------------------------------------- estimate


def model_of(text: str, imports: str = '"" : 21') -> onnx.ModelProto:
    return parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> g {text}")


CHAIN = "(float[N, 256] x) => (float[N, 256] y) { a = Relu(x) b = Relu(a) c = Relu(b) y = Relu(c) }"
KEPT = "(float[256] x) => (float[256] y) { a = Relu(x) b = Relu(x) c = Add(a, b) y = Add(a, c) }"
BODY = """(bool c, float[256] x) => (float[256] y) {
    a = Relu(x)
    y = If(c) <then_branch = t () => (float[256] u) { d = Abs(a) e = Add(d, d) u = Add(d, e) },
               else_branch = e () => (float[256] v) { v = Identity(a) }>
}"""
FUNCTION = """(float[256] x) => (float[256] y) { y = f.Twice(x) }
<domain: "f", opset_import: ["" : 21]> Twice (u) => (v) { a = Relu(u) b = Add(a, a) v = Add(b, a) }"""


@pytest.mark.parametrize(
    ("text", "sizes", "kib", "unknown"),
    [
        (CHAIN, {"N": 1}, 2, 0),  # a value and the next one
        (CHAIN, {"N": 8}, 16, 0),
        (CHAIN, {}, 0, 4),
        (KEPT, {}, 3, 0),  # a, b and c
        (BODY, {}, 5, 0),  # a and y, and in the body d, e and u
        (FUNCTION, {}, 3, 0),  # a, b and v
        ("(int64[2] s) => (float[r, c] y) { y = ConstantOfShape(s) }", {}, 0, 1),
        ("(float[256] x) => (int4[256] y) { y = Cast<to = 22>(x) }", {}, 0.25, 0),  # a byte an element
    ],
    ids=["chain", "chain-of-8", "unknown", "kept", "body", "function", "shape-by-value", "int4"],
)
def test_values_at_once(text: str, sizes: dict[str, int], kib: float, unknown: int) -> None:
    found = estimate(model_of(text, '"" : 21, "f" : 1'), sizes)
    assert (found.peak_bytes, found.unknown_values, found.failure) == (int(kib * 1024), unknown, "")


def test_weights_are_counted_and_their_shapes_known() -> None:
    model = model_of("(float[4, 512] x) => (y) { y = MatMul(x, w) z = Constant<value = float[3] {1, 2, 3}>() }")
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((512, 256), np.float32), "w"))
    found = estimate(model, {})
    assert (found.weight_bytes, found.peak_bytes, found.unknown_values) == (512 * 256 * 4 + 12, 4 * 256 * 4, 0)
    assert found.peak_node == "MatMul y"


def test_a_reshape_to_stored_sizes_is_known() -> None:
    model = model_of("(float[4, 6] x) => (y) { y = Reshape(x, s) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array([8, 3]), "s"))
    assert estimate(model, {}).unknown_values == 0


@pytest.mark.parametrize(
    ("number_of_bytes", "text"),
    [(1, "1 byte"), (1000, "1000 bytes"), (1024, "1 KiB"), (1 << 20, "1 MiB"), (3 << 29, "1.5 GiB"), (1 << 40, "1024 GiB")],
)
def test_size(number_of_bytes: int, text: str) -> None:
    assert size(number_of_bytes) == text
