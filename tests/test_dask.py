"""Chunked arrays and models over many batches: in this process, in worker processes, and on a scheduler at an address."""

from __future__ import annotations

import functools
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da
import distributed

import numbaops
import numbaops.dask
from numbaops import batches
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError
from processes import run_python

TYPES = [row for row in numbaops.ELEMENT_TYPES if row.kind != "string"]


def allowed(operation: Callable[[Any], Any], rows: list[numbaops.ElementType] = TYPES) -> list[Any]:
    """The element types that an operator of numbaops takes, as parameters."""

    def takes(row: numbaops.ElementType) -> bool:
        try:
            operation(row)
        except InvalidTypeError:
            return False
        return True

    return [pytest.param(row, id=row.name) for row in rows if takes(row)]


def same(found: Any, expected: np.ndarray) -> bool:
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
    with numbaops.dask.cluster(workers=2) as client:
        yield client


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> graph {text}')


LAYER = model("""
    (float[N, 3] x) => (float[N, 3] y, float[N] total) <int64[1] axes = {1}>
    { y = Relu(x)  total = ReduceSum<keepdims = 0>(x, axes) }
""")
X = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)


# The names


def test_it_is_dask_that_is_imported() -> None:
    assert dask.__name__ == "dask" and da.__name__ == "dask.array"
    assert numbaops.dask.arrays.da is da
    assert "numbaops" not in str(dask.__file__)


def test_loaded_on_first_use() -> None:
    code = "import sys, numbaops; print('dask' in sys.modules); numbaops.dask.cast; print('dask' in sys.modules)"
    assert run_python(code).split() == ["False", "True"]


@pytest.mark.parametrize("missing", ["dask", "distributed"])
def test_without_the_extra(missing: str) -> None:
    code = f"""
        import sys
        sys.modules[{missing!r}] = None
        try:
            import numbaops.dask
        except ModuleNotFoundError as error:
            print(error)
    """
    assert run_python(code) == 'numbaops.dask needs the extra "dask": pip install "numbaops[dask]", or ".[dask]" in a checkout'


# Arrays


@pytest.mark.parametrize("row", allowed(lambda row: numbaops.constant_of_shape((1,), np.ones((), row.dtype))))
def test_constant_of_shape(row: numbaops.ElementType, client: distributed.Client) -> None:
    value = np.ones((), row.dtype)
    lazy = numbaops.dask.constant_of_shape((5, 4), value, chunks=(2, 3))
    expected = numbaops.constant_of_shape((5, 4), value)
    assert lazy.dtype == row.dtype and lazy.chunks == ((2, 2, 1), (3, 1))
    assert same(numbaops.dask.compute(lazy, scheduler="threads"), expected)
    assert same(client.compute(lazy).result(), expected)


@pytest.mark.parametrize("k", [-7, -2, 0, 1, 6, 2**63 - 1, -(2**63)])
def test_eye_like_diagonals(k: int) -> None:
    for chunks in (1, 2, (3, 4), -1):
        lazy = numbaops.dask.eye_like((5, 7), "int32", k=k, chunks=chunks)
        assert same(numbaops.dask.compute(lazy, scheduler="synchronous"), np.eye(5, 7, max(-7, min(k, 7)), np.int32))


@pytest.mark.parametrize("row", allowed(lambda row: numbaops.eye_like((1, 1), row.dtype)))
def test_eye_like(row: numbaops.ElementType, client: distributed.Client) -> None:
    x = da.zeros((5, 4), dtype=row.dtype, chunks=(2, 3))
    lazy = numbaops.dask.eye_like(x, k=1)
    assert lazy.chunks == x.chunks
    assert same(client.compute(lazy).result(), np.eye(5, 4, 1).astype(row.dtype))


def test_eye_like_of_a_numpy_array() -> None:
    lazy = numbaops.dask.eye_like(np.zeros((3, 2), np.float16))
    assert same(numbaops.dask.compute(lazy, scheduler="synchronous"), np.eye(3, 2, dtype=np.float16))


@pytest.mark.parametrize("row", allowed(lambda row: numbaops.cast(np.zeros(1, np.float32), row.name)))
def test_cast(row: numbaops.ElementType, client: distributed.Client) -> None:
    x = np.linspace(0, 3, 10, dtype=np.float32).reshape(5, 2)
    lazy = numbaops.dask.cast(da.from_array(x, chunks=2), row.name)
    assert lazy.dtype == row.dtype
    assert same(client.compute(lazy).result(), numbaops.cast(x, row.name))


@pytest.mark.parametrize("value", ["12", 12, 12.0, ml_dtypes.int4(3)], ids=str)
@pytest.mark.parametrize("dtype", [None, object], ids=["as-it-is", "object"])
def test_cast_without_dimensions(value: Any, dtype: Any) -> None:
    x = np.array(value, dtype) if isinstance(value, str) else np.array(value)
    assert same(numbaops.dask.cast(x, "int32").compute(scheduler="synchronous"), numbaops.cast(x, "int32"))


def test_cast_with_options() -> None:
    x = np.array([1e6, -1e6], np.float32)
    lazy = numbaops.dask.cast(x, "float8e4m3fn", saturate=False)
    assert same(numbaops.dask.compute(lazy, scheduler="synchronous"), numbaops.cast(x, "float8e4m3fn", saturate=False))


def test_ranks_from_0_on() -> None:
    for shape in ((), (0,), (3, 0), (2, 1, 2)):
        assert same(numbaops.dask.compute(numbaops.dask.constant_of_shape(shape, 7), scheduler="synchronous"), np.full(shape, 7))


UNKNOWN = da.ones((3, 3), chunks=2)[da.ones(3, chunks=2) > 0]
ARRAY_ERRORS = {
    "value of two elements": (lambda: numbaops.dask.constant_of_shape((2,), np.ones(2)), InvalidValueError, "value"),
    "type of EyeLike": (lambda: numbaops.dask.eye_like((2, 2), "float8e5m2"), InvalidTypeError, "EyeLike"),
    "rank of EyeLike": (lambda: numbaops.dask.eye_like((2, 2, 2)), InvalidValueError, "rank"),
    "shape of a float": (lambda: numbaops.dask.constant_of_shape((2.5,)), InvalidTypeError, "shape is 2.5; allowed: an integer"),
    "no shape": (lambda: numbaops.dask.constant_of_shape(5), InvalidTypeError, "shape is 5; allowed: .* list of integers"),
    "negative size": (lambda: numbaops.dask.constant_of_shape((2, -1)), InvalidValueError, "must not be negative"),
    "negative size of EyeLike": (lambda: numbaops.dask.eye_like((2, -1)), InvalidValueError, "must not be negative"),
    "unknown shape": (lambda: numbaops.dask.constant_of_shape(UNKNOWN.shape), InvalidValueError, r"\(nan, 3\); .*compute_chunk_sizes"),
    "unknown shape of EyeLike": (lambda: numbaops.dask.eye_like(UNKNOWN), InvalidValueError, r"\(nan, 3\); .*compute_chunk_sizes"),
    "type of Cast": (lambda: numbaops.dask.cast(da.zeros(2, dtype=complex), "float"), InvalidTypeError, "complex"),
}


@pytest.mark.parametrize("case", ARRAY_ERRORS)
def test_arrays_refused_at_once(case: str) -> None:
    make, error, text = ARRAY_ERRORS[case]
    with pytest.raises(error, match=text):
        make()


def test_no_chunk_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    constant, cast = numbaops.constant_of_shape, numbaops.cast
    monkeypatch.setattr(numbaops, "constant_of_shape", lambda *given, **more: made.append("constant") or constant(*given, **more))
    monkeypatch.setattr(numbaops, "cast", lambda *given, **more: made.append("cast") or cast(*given, **more))
    lazy = numbaops.dask.constant_of_shape((64, 8), numbaops.cast(np.float32(0.5), "float8e4m3fn"), chunks=(4, 4))
    total = numbaops.dask.cast(lazy, "float").sum()
    made.clear()
    assert numbaops.dask.compute(total, scheduler="threads") == 256
    assert (made.count("constant"), made.count("cast")) == (32, 32)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak memory of a process alone")
def test_memory_of_a_sum() -> None:
    """1 GiB of float8 in chunks of 8 MiB; what counts is that it does not grow with their number."""
    code = """
        from pathlib import Path
        import ml_dtypes, numpy as np
        import numbaops
        x = numbaops.dask.constant_of_shape((1 << 14, 1 << 16), ml_dtypes.float8_e4m3fn(0.5), chunks=(128, 1 << 16))
        print(float(numbaops.dask.cast(x, "float32").sum(dtype="float64").compute(scheduler="threads")))
        # not getrusage, which begins with what the process had that started this one
        print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
    """
    total, kibibytes = run_python(code).split()
    assert float(total) == 2.0**29
    assert int(kibibytes) < 500_000


# Models


def check_layer(results: dict[str, np.ndarray]) -> None:
    assert list(results) == ["y", "total"]
    assert same(results["y"], np.maximum(X, 0)) and same(results["total"], X.sum(1))


@pytest.mark.parametrize("scheduler", ["threads", "synchronous", "client", "address"])
def test_map_model(scheduler: str, client: distributed.Client, tmp_path: Path) -> None:
    onnx.save(LAYER, tmp_path / "layer.onnx")
    where: Any = {"client": client, "address": client.scheduler.address}.get(scheduler, scheduler)
    for source in (LAYER, tmp_path / "layer.onnx", LAYER.SerializeToString(), numbaops.ReferenceEvaluator(LAYER)):
        lazy = numbaops.dask.map_model(source, {"x": da.from_array(X, chunks=(6, 3))})
        assert lazy["y"].chunks == ((6, 6, 6, 2), (3,)) and lazy["total"].chunks == ((6, 6, 6, 2),)
        check_layer(numbaops.dask.compute(lazy, scheduler=where))


def test_client_of_the_with_block_is_used(client: distributed.Client) -> None:
    seen: list[tuple[int, int]] = []
    lazy = numbaops.dask.map_model(LAYER, {"x": X})
    before = len(client.get_versions()["workers"])
    check_layer(numbaops.dask.compute(lazy, progress=lambda *counts: seen.append(counts)))
    assert before == 2
    assert [done for done, _ in seen] == list(range(len(seen))) and seen[-1] == (14, 14)  # 7 batches of at most an eighth, 2 outputs


def test_an_embedded_cluster() -> None:
    """Without a client, and with workers: processes of its own, gone afterwards."""
    code = """
        import numpy as np, onnx.parser, numbaops, multiprocessing
        if __name__ == "__main__":
            layer = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Neg(x) }')
            y = numbaops.dask.compute(numbaops.dask.map_model(layer, {"x": np.arange(8, dtype=np.float32)}), workers=1, progress=False)["y"]
            print(y.tolist(), multiprocessing.active_children())
    """
    assert run_python(code) == f"{[-float(number) for number in range(8)]} []"


def test_lazy_arrays_go_on() -> None:
    lazy = numbaops.dask.map_model(LAYER, {"x": da.from_array(X, chunks=(5, 3))})
    assert numbaops.dask.compute(lazy["y"].sum() + lazy["total"].mean(), scheduler="threads") == pytest.approx(
        np.maximum(X, 0).sum() + X.sum(1).mean(), 1e-5
    )


SCALED = model("""
    (float[N, 3] x, float[N, 3] p, float[3] w) => (float[N, 3] y, float[N, 3] z) { s = Mul(x, w)  y = Sub(s, p)  z = Add(s, p) }
""")
FIRST, SECOND = (da.from_array(X[rows], chunks=(2, 3)) for rows in (slice(0, 4), slice(4, 8)))


def scaled(x: Any = FIRST, p: Any = SECOND, w: Any = X[8], **options: Any) -> da.Array:
    inputs = {"x": x, "p": p} if options.pop("in_order", True) else {"p": p, "x": x}
    return next(iter(numbaops.dask.map_model(SCALED, inputs, shared={"w": w}, **options).values()))


OTHERS: dict[str, Callable[[], tuple[da.Array, np.ndarray]]] = {
    "shared": lambda: (scaled(w=X[9]), X[:4] * X[9] - X[4:8]),
    "outputs": lambda: (scaled(outputs=["z"]), X[:4] * X[8] + X[4:8]),
    "order of outputs": lambda: (scaled(outputs=["z", "y"]), X[:4] * X[8] + X[4:8]),
    "names": lambda: (scaled(SECOND, FIRST), X[4:8] * X[8] - X[:4]),
    "names in another order": lambda: (scaled(SECOND, FIRST, in_order=False), X[4:8] * X[8] - X[:4]),
    "chunks": lambda: (scaled(FIRST.rechunk((3, 3)), SECOND.rechunk((3, 3))), X[:4] * X[8] - X[4:8]),
    "what is shared": lambda: (
        numbaops.dask.map_model(SCALED, {"x": FIRST}, shared={"p": X[4:6], "w": X[8]})["y"],
        X[:4] * X[8] - X[[4, 5, 4, 5]],
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_gives_other_values_is_another_task(case: str) -> None:
    other, expected = OTHERS[case]()
    both = numbaops.dask.compute({"first": scaled(), "other": other}, scheduler="synchronous")
    assert np.allclose(both["first"], X[:4] * X[8] - X[4:8]) and np.allclose(both["other"], expected)
    difference = (other - scaled()).compute(scheduler="synchronous")
    assert np.allclose(difference, expected - (X[:4] * X[8] - X[4:8]), atol=1e-6)


def batch_keys(array: da.Array) -> set[str]:
    return {key for key in array.__dask_graph__() if str(key).startswith("numbaops-batch")}


def test_the_same_is_the_same_task() -> None:
    assert len(batch_keys(scaled())) == 2 and batch_keys(scaled()) == batch_keys(scaled())


def test_batches_along_another_axis_are_other_tasks() -> None:
    square = model("(float[N, M] x) => (float[N, M] y) { y = Softmax(x) }")
    first, other = (batch_keys(numbaops.dask.map_model(square, {"x": da.from_array(X[:3])}, axis)["y"]) for axis in (0, 1))
    assert first and other and not first & other


def test_what_is_shared_may_change_later() -> None:
    w = X[8].copy()
    first = scaled(w=w)
    w[:] = 0
    assert np.allclose((scaled(w=w) - first).compute(scheduler="synchronous"), -X[:4] * X[8], atol=1e-6)


def weighted(folder: Path) -> Path:
    """A file of a model whose weights 1, 2 and 3 are in a file beside it."""
    proto = model("(float[N, 3] x) => (float[N, 3] y) { y = Mul(x, w) }")
    proto.graph.initializer.append(numbaops.from_array(np.float32([1, 2, 3]), "w"))
    onnx.save(proto, folder / "layer.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    return folder / "layer.onnx"


@pytest.mark.parametrize("how", ["in place", "replaced", "as old as before"])
def test_external_data_that_are_written_again(how: str, tmp_path: Path) -> None:
    path, data = weighted(tmp_path), tmp_path / "weights"
    first = numbaops.dask.map_model(path, {"x": X})["y"]
    assert np.allclose(numbaops.dask.compute(first, scheduler="synchronous"), X * np.float32([1, 2, 3]))
    times = data.stat()
    new = tmp_path / "new" if how == "replaced" else data
    new.write_bytes(np.float32([7, 8, 9]).tobytes())
    new.replace(data)
    if how == "as old as before":
        os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = numbaops.dask.map_model(path, {"x": X})["y"]
    assert first.name != second.name
    assert np.allclose(numbaops.dask.compute(second, scheduler="synchronous"), X * np.float32([7, 8, 9]))


def test_external_data_that_are_missing(tmp_path: Path) -> None:
    path = weighted(tmp_path)
    (tmp_path / "weights").unlink()
    lazy = numbaops.dask.map_model(path, {"x": X})
    with pytest.raises(InvalidValueError, match=r"batch \d .*weights"):
        numbaops.dask.compute(lazy, scheduler="synchronous")


def test_each_batch_runs_once_and_models_are_loaded_once(client: distributed.Client) -> None:
    def count(*, start: bool) -> Any:
        if start:
            batches.counts = {"runs": 0, "loads": 0}  # type: ignore[attr-defined]
            batches._evaluators.clear()
            for kind, name in ((batches.Batch, "run"), (batches.ReferenceEvaluator, "__init__")):
                setattr(kind, f"plain_{name}", getattr(kind, name))

            def run(self, *given):
                batches.counts["runs"] += 1
                return self.plain_run(*given)

            def init(self, *given, **more):
                batches.counts["loads"] += 1
                self.plain___init__(*given, **more)

            batches.Batch.run, batches.ReferenceEvaluator.__init__ = run, init
            return None
        batches.Batch.run = batches.Batch.plain_run
        batches.ReferenceEvaluator.__init__ = batches.ReferenceEvaluator.plain___init__
        return batches.counts

    client.run(count, start=True)
    try:
        check_layer(numbaops.dask.compute(numbaops.dask.map_model(LAYER, {"x": X}, batch_size=1), scheduler=client))
    finally:
        counts = client.run(count, start=False).values()
    assert sum(each["runs"] for each in counts) == 20
    assert [each["loads"] for each in counts] == [1, 1]


def test_evaluators_that_are_kept_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_evaluators", {})
    models = [batches.Model.of(model(f"(float[N] x) => (float[N] y{number}) {{ y{number} = Neg(x) }}"))[0] for number in range(4)]
    first = models[0].evaluator()
    assert models[0].evaluator() is first
    for each in models:
        each.evaluator()
    assert list(batches._evaluators) == [each.key for each in models[-batches.MOST_EVALUATORS :]]


def test_workers_have_one_thread(client: distributed.Client) -> None:
    from numbaops.runtime.threads import thread_count

    assert set(client.run(thread_count).values()) == {1}
    assert set(client.run(os.getenv, "OMP_NUM_THREADS").values()) == {"1"}
    assert set(client.nthreads().values()) == {1}


def test_memory_of_a_worker_is_bounded() -> None:
    with numbaops.dask.cluster(workers=1, memory_limit="400 MB") as client:
        assert [stats["limit"] for stats in client.run(numbaops.memory.stats).values()] == [50_000_000]


SLOW = model("""
    (float[N, 64] x) => (float[N, 64] y) <int64 trips = {300}>
    { y = Loop(trips, , x) <body = body (int64 i, bool go, float[N, 64] a) => (bool on, float[N, 64] b)
        { on = Identity(go)  b = Sigmoid(a) }> }
""")


def test_a_killed_worker_costs_a_retry(client: distributed.Client) -> None:
    x = np.random.default_rng(1).standard_normal((12_000, 64)).astype(np.float32)
    before = client.run(os.getpid)
    killed: list[int] = []

    def kill(done: int, total: int) -> None:
        if done == 3 and not killed:
            killed.append(min(before.values()))
            os.kill(killed[0], signal.SIGKILL)

    lazy = numbaops.dask.map_model(SLOW, {"x": x}, batch_size=1000)
    result = numbaops.dask.compute(lazy, scheduler=client, progress=kill)["y"]
    expected = x
    for _ in range(300):
        expected = 1 / (1 + np.exp(-expected))
    assert killed
    assert np.allclose(result, expected, rtol=1e-4, atol=1e-6)
    client.wait_for_workers(2, timeout=30)
    assert killed[0] not in client.run(os.getpid).values()


RESHAPE = model("(float[N, 3] x, int64[K] shape) => (float[N, 3] y) { [to_square] y = Reshape(x, shape) }")


@pytest.mark.parametrize("scheduler", ["threads", "client"])
def test_an_error_names_batch_and_node(scheduler: str, client: distributed.Client) -> None:
    """Of batches of 6, 6, 6 and 2 rows, only those of 6 can become (-1, 9)."""
    lazy = numbaops.dask.map_model(RESHAPE, {"x": da.from_array(X, chunks=(6, 3))}, shared={"shape": np.array([6, 3])})
    with pytest.raises(
        InvalidValueError, match=r"Reshape-21 \(node 'to_square'\): batch 3 \(rows 18 to 19 of axis 0\): .*\[2, 3\]"
    ) as caught:
        numbaops.dask.compute(lazy, scheduler=client if scheduler == "client" else scheduler)
    assert (caught.value.node_name, caught.value.op_type) == ("to_square", "Reshape")


def test_an_output_that_is_not_as_declared() -> None:
    lying = model("(float[N, 3] x) => (float[N] y) { y = Relu(x) }")
    with pytest.raises(
        EvaluationError, match=r"batch \d \(rows \d+ to \d+ of axis 0\): output 'y' has the shape \[5, 3\]; declared, for this batch: \[5\]"
    ):
        numbaops.dask.compute(numbaops.dask.map_model(lying, {"x": X}, batch_size=5), scheduler="synchronous")


def test_a_model_that_is_gone(tmp_path: Path) -> None:
    onnx.save(LAYER, tmp_path / "layer.onnx")
    lazy = numbaops.dask.map_model(tmp_path / "layer.onnx", {"x": X})
    (tmp_path / "layer.onnx").unlink()
    with pytest.raises(EvaluationError, match=r"batch \d .*layer\.onnx"):
        numbaops.dask.compute(lazy, scheduler="synchronous")


FIXED = model("(float[4, 3] x) => (float[4, 3] y) { y = Relu(x) }")
TWO = model("(float[N, 3] x, float[N, 3] w) => (float[N, 3] y) { y = Add(x, w) }")


def chunked(*rows: int) -> da.Array:
    return da.zeros((sum(rows), 3), dtype=np.float32, chunks=(rows, 3))


SIZES = {
    "wrong chunks": (
        FIXED,
        {"x": chunked(3, 3, 2)},
        r"batches of 3, 2 rows along axis 0.*exactly 4; possible: 4 in each, e\.g\. by batch_size=4, or for Dask rechunk\(\{0: 4\}\)",
    ),
    "no rows in the model": (
        model("(float[0, 2] x) => (float[0, 2] y) { y = Relu(x) }"),
        {"x": np.zeros((4, 2), np.float32)},
        r"the model takes exactly 0; no batches can be made for it$",
    ),
    "wrong total": (FIXED, {"x": chunked(4, 4, 2)}, r"exactly 4; possible: 4 in each, of 8 or 12 rows in all, not 10"),
    "too few rows": (FIXED, {"x": chunked(3)}, r"possible: 4 in each, of 4 rows in all, not 3"),
    "wrong total of NumPy": (FIXED, {"x": np.zeros((10, 3), np.float32)}, r"of 8 or 12 rows in all, not 10"),
    "two inputs": (
        TWO,
        {"x": chunked(4, 4), "w": chunked(2, 6)},
        r"'x' and 'w' come in batches of 4 and 2, 6 rows along axis 0; possible: the same for both",
    ),
    "two inputs, the same sizes elsewhere": (
        TWO,
        {"x": chunked(4, 4, 2, 4), "w": chunked(4, 4, 4, 2)},
        r"have 2 and 4 rows in batch 2 along",
    ),
    "two inputs, fewer batches": (
        TWO,
        {"x": chunked(1, 2, 3, 4, 5, 6, 1), "w": chunked(1, 2, 3, 4, 5, 7)},
        r"have 6 and 7 rows in batch 5",
    ),
    "two inputs, one of NumPy": (TWO, {"x": chunked(4, 4), "w": np.zeros((7, 3), np.float32)}, r"have 8 and 7 rows along axis 0"),
    "two inputs of NumPy": (
        TWO,
        {"x": np.zeros((11, 3), np.float32), "w": np.zeros((4, 3), np.float32)},
        r"have 11 and 4 rows along axis 0",
    ),
    "columns in chunks": (TWO, {"x": da.zeros((4, 3), chunks=(2, 1)), "w": X}, r"rechunk\(\{1: -1\}\)"),
    "no rows": (LAYER, {"x": X[:0]}, r"the shape \(0, 3\); allowed: a known number of rows"),
    "no such axis": (LAYER, {"x": np.array(1.0, np.float32)}, r"the shape \(\), and no axis 0; .*shared="),
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes_that_are_refused(case: str) -> None:
    proto, inputs, text = SIZES[case]
    with pytest.raises(InvalidValueError, match=text):
        numbaops.dask.map_model(proto, inputs)


def test_sizes_that_fit() -> None:
    for x in (chunked(4, 4), np.zeros((8, 3), np.float32)):
        assert numbaops.dask.map_model(FIXED, {"x": x})["y"].chunks == ((4, 4), (3,))
    lazy = numbaops.dask.map_model(TWO, {"x": da.from_array(X, chunks=(6, 3)), "w": X})
    assert same(numbaops.dask.compute(lazy["y"], scheduler="synchronous"), X + X)
    assert numbaops.dask.map_model(TWO, {"x": X}, shared={"w": X[:1]}, batch_size=8)["y"].chunks[0] == (8, 8, 4)


def test_other_axes_and_unknown_sizes() -> None:
    """Batches along axis 1, of an output whose other size is nowhere known."""
    proto = model(
        "(float[3, N] x) => (int64[2, N] at) <float zero = {0}> { is = Greater(x, zero)  at = NonZero(is) }".replace(
            "[2, N] at", "[2, K] at"
        )
    )
    x = np.array([[1, -1, 1, 1], [1, 1, -1, 1], [-1, -1, -1, 1]], np.float32)
    lazy = numbaops.dask.map_model(proto, {"x": x}, batch_axis=1, batch_size=2)["at"]
    assert np.isnan(lazy.shape[1])
    assert numbaops.dask.compute(lazy, scheduler="synchronous").tolist() == [[0, 1, 1, 0, 0, 1, 2], [0, 0, 1, 0, 1, 1, 1]]


def test_an_output_of_undeclared_rank_is_inferred() -> None:
    proto = model("(float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert numbaops.dask.map_model(proto, {"x": X}, batch_size=10)["y"].chunks == ((10, 10), (3,))


SUM = model("(float[N, 3] x) => (float y, float[N, 3] z) { y = ReduceSum<keepdims = 0>(x)  z = Relu(x) }")
MEAN = model("(float[N, 3] x) => (float[1, 3] y, float[N, 3] z) <int64[1] rows = {0}> { y = ReduceMean(x, rows)  z = Relu(x) }")
TURNED = model("(float[N, M] x) => (float[M, N] y) { y = Transpose(x) }")
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no model": (functools.partial(numbaops.dask.map_model, 7, {"x": X}), InvalidTypeError, "model is a int"),
    "no inputs": (functools.partial(numbaops.dask.map_model, LAYER, {}), InvalidTypeError, "inputs must be a dictionary"),
    "an array for inputs": (functools.partial(numbaops.dask.map_model, LAYER, X), InvalidTypeError, "inputs must be a dictionary"),
    "no array": (functools.partial(numbaops.dask.map_model, LAYER, {"x": [1]}), InvalidTypeError, "'x' is a list"),
    "other name": (functools.partial(numbaops.dask.map_model, LAYER, {"w": X}), InvalidValueError, "no input 'w'; its inputs: 'x'"),
    "input missing": (functools.partial(numbaops.dask.map_model, TWO, {"x": X}), InvalidValueError, "input 'w' is missing"),
    "given twice": (
        functools.partial(numbaops.dask.map_model, LAYER, {"x": X}, shared={"x": X}),
        InvalidValueError,
        "both in inputs and in shared",
    ),
    "output": (functools.partial(numbaops.dask.map_model, LAYER, {"x": X}, outputs=["w"]), InvalidValueError, "no output 'w'"),
    "a string for outputs": (
        functools.partial(numbaops.dask.map_model, LAYER, {"x": X}, outputs="y"),
        InvalidTypeError,
        "outputs is 'y'; allowed: a list of names",
    ),
    "an array for shared": (functools.partial(numbaops.dask.map_model, TWO, {"x": X}, shared=X), InvalidTypeError, "shared is a ndarray"),
    "output without rows": (functools.partial(numbaops.dask.map_model, SUM, {"x": X}), InvalidValueError, "'y' has rank 0, and no axis 0"),
    "output of a fixed size": (
        functools.partial(numbaops.dask.map_model, MEAN, {"x": X}),
        InvalidValueError,
        "'y' has 1 along axis 0 however many rows a batch has",
    ),
    "output with the size of another axis": (
        functools.partial(numbaops.dask.map_model, TURNED, {"x": X}, 1),
        InvalidValueError,
        "'y' has N along axis 1 however many",
    ),
    "axis": (functools.partial(numbaops.dask.map_model, LAYER, {"x": X}, -1), InvalidValueError, "batch_axis is -1"),
    "batch size": (functools.partial(numbaops.dask.map_model, LAYER, {"x": X}, batch_size=0), InvalidValueError, "batch_size is 0"),
    "threads and workers": (
        functools.partial(numbaops.dask.compute, {}, scheduler="threads", workers=2),
        InvalidValueError,
        "workers is for processes",
    ),
    "scheduler and workers": (
        functools.partial(numbaops.dask.compute, {}, scheduler="tcp://x", workers=2),
        InvalidValueError,
        "exclude each other",
    ),
    "no workers": (functools.partial(numbaops.dask.compute, {}, workers=0), InvalidValueError, "workers is 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        call()


def test_large_arrays_of_numpy(client: distributed.Client) -> None:
    """Dask warns of them, and warnings are errors here."""
    x = np.ones((4 << 20, 1), np.float32)
    proto = model("(float[N, 1] x) => (float[N, 1] y) { y = Neg(x) }")
    assert same(numbaops.dask.compute(numbaops.dask.map_model(proto, {"x": x})["y"], scheduler=client), -x)


def test_outputs_can_be_chosen() -> None:
    assert list(numbaops.dask.map_model(MEAN, {"x": X}, outputs=["z"])) == ["z"]
    assert list(numbaops.dask.map_model(SUM, {"x": X}, outputs=["z"])) == ["z"]
    twice = numbaops.dask.map_model(LAYER, {"x": X}, outputs=["total", "y", "y"])
    assert list(twice) == ["total", "y"] and twice["y"].shape == X.shape


def test_no_scheduler_there() -> None:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300ms"}),
        pytest.raises(EvaluationError, match=r"no scheduler answers at 'tcp://127\.0\.0\.1:1'"),
    ):
        numbaops.dask.compute({}, scheduler="tcp://127.0.0.1:1")


def test_progress_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    numbaops.dask.compute(numbaops.dask.constant_of_shape((4,), 1, chunks=1), scheduler="synchronous", progress=True)
    assert re.search(r"\r(\d+)/\1\n$", capsys.readouterr().err)
    numbaops.dask.compute(numbaops.dask.constant_of_shape((4,), 1, chunks=1), scheduler="synchronous")
    assert capsys.readouterr().err == ""  # no terminal
