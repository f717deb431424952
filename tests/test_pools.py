"""An evaluator in pools of processes, by pickling alone; and the predictor for Ray, with Ray where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import numbaops.ray
from numbaops.errors import InvalidTypeError, InvalidValueError
from processes import run_python

MODEL = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 21]>
    graph (float[N, 3] x) => (float[N, 2] y, bfloat16[N, 3] low)
    <float[3, 2] weight = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, weight)  low = Cast<to = 16>(x) }
""")
X = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
BATCHES = [{"x": X[start : start + 3]} for start in range(0, 10, 3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model with its weights beside it, in a file of their own, and without."""
    onnx.save(MODEL, tmp_path / "model.onnx")
    external = onnx.ModelProto.FromString(MODEL.SerializeToString())
    onnx.save(external, tmp_path / "external.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    np.save(tmp_path / "x.npy", X)
    return tmp_path


PROGRAM = """
import os
import numpy as np
import numbaops
{imports}

if __name__ == "__main__":
    x = np.load("x.npy")
    batches = [{{"x": x[start : start + 3]}} for start in range(0, 10, 3)]
    for name in ("model.onnx", "external.onnx"):
        evaluator = numbaops.ReferenceEvaluator(name)
        expected = [evaluator.run(None, batch) for batch in batches]
        {map}
        for ours, theirs in zip(results, expected, strict=True):
            assert [(a.dtype, a.tobytes()) for a in ours] == [(b.dtype, b.tobytes()) for b in theirs]
    print("same")
"""
POOLS = {
    "multiprocessing, spawned": (
        "import functools, multiprocessing",
        "with multiprocessing.get_context('spawn').Pool(2) as pool: results = pool.map(functools.partial(evaluator.run, None), batches)",
    ),
    "concurrent.futures": (
        "import concurrent.futures, functools, multiprocessing",
        "with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context('spawn')) as pool: "
        "results = list(pool.map(functools.partial(evaluator.run, None), batches))",
    ),
    "joblib": (
        "import joblib",
        "results = joblib.Parallel(2)(joblib.delayed(evaluator.run)(None, batch) for batch in batches)",
    ),
}


@pytest.mark.parametrize("pool", POOLS)
def test_pools_by_pickling_alone(pool: str, folder: Path) -> None:
    if pool == "joblib":
        pytest.importorskip("joblib")
    imports, mapped = POOLS[pool]
    # a file, for spawned processes read the program again
    (folder / "program.py").write_text(PROGRAM.format(imports=imports, map=mapped), "utf-8")
    assert run_python(f"import os, runpy; os.chdir({str(folder)!r}); runpy.run_path('program.py', run_name='__main__')") == "same"


# Ray


def expected() -> list[np.ndarray]:
    evaluator = numbaops.ReferenceEvaluator(MODEL)
    outputs: list[np.ndarray] = evaluator.run(None, {"x": X})
    return outputs


@pytest.mark.parametrize("source", ["path", "bytes", "model", "evaluator"])
def test_predictor(source: str, folder: Path) -> None:
    given: Any = {
        "path": folder / "external.onnx",
        "bytes": MODEL.SerializeToString(),
        "model": MODEL,
        "evaluator": numbaops.ReferenceEvaluator(MODEL),
    }[source]
    predict = numbaops.ray.Predictor(given, keep=["key"])
    results = [predict({"x": X[rows], "key": np.arange(10)[rows], "rest": X[rows]}) for rows in (slice(0, 6), slice(6, 10))]
    assert list(results[0]) == ["key", "y", "low"]
    joined = {name: np.concatenate([each[name] for each in results]) for name in results[0]}
    y, low = expected()
    assert joined["key"].tolist() == list(range(10))
    assert np.allclose(joined["y"], y) and joined["low"].dtype == low.dtype and joined["low"].tobytes() == low.tobytes()


def test_predictor_with_a_shared_input() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 21]> graph (float[N, 3] x, float[3] scale) => (float[N, 3] y) { y = Mul(x, scale) }
    """)
    scale = np.array([1, 2, 3], np.float32)
    assert np.array_equal(numbaops.ray.Predictor(model, shared={"scale": scale})({"x": X})["y"], X * scale)


FIXED = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 21]> graph (float[4, 3] x) => (float[4, 3] y) { y = Relu(x) }
""")
REFUSED = {
    "column": (MODEL, {}, {"w": X}, "no column 'x'; its columns: 'w'"),
    "kept column": (MODEL, {"keep": ["key"]}, {"x": X}, "no column 'key'"),
    "kept column that is shared": (MODEL, {"keep": ["x"], "shared": {"x": X}}, {"key": X}, "no column 'x'; its columns: 'key'"),
    "no rows": (FIXED, {}, {"x": X[:0]}, "exactly 4; possible: 4 in each, of 4 rows in all, not 0"),
    "size": (FIXED, {}, {"x": X}, "exactly 4; possible: 4 in each, of 8 or 12 rows in all"),
    "single value": (MODEL, {}, {"x": np.array(1, np.float32)}, "column 'x' is a single value; possible: .* in shared="),
    "kept single value": (MODEL, {"keep": ["key"]}, {"x": X, "key": np.array(1)}, "column 'key' is a single value"),
    "output": (MODEL, {"outputs": ["z"]}, {"x": X}, "no output 'z'; its outputs: 'y', 'low'"),
}


NAMES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "kept column of an output's name": ({"keep": ["key", "y"]}, InvalidValueError, "keep has 'y', which is an output of the model too"),
    "a string for keep": ({"keep": "key"}, InvalidTypeError, "keep is 'key'; allowed: a list of names"),
    "a string for outputs": ({"outputs": "y"}, InvalidTypeError, "outputs is 'y'; allowed: a list of names"),
    "an array for shared": ({"shared": X}, InvalidTypeError, "shared is a ndarray; allowed: a dictionary"),
    "a shared input that the model has not": ({"shared": {"w": X}}, InvalidValueError, "the model has no input 'w'; its inputs: 'x'"),
}


@pytest.mark.parametrize("case", NAMES)
def test_predictor_refuses_names_at_once(case: str) -> None:
    options, error, text = NAMES[case]
    with pytest.raises(error, match=text):
        numbaops.ray.Predictor(MODEL, **options)


def test_predictor_keeps_a_column_of_the_name_of_an_output_that_is_not_wanted() -> None:
    result = numbaops.ray.Predictor(MODEL, outputs=["low"], keep=["y", "x", "y"])({"x": X, "y": np.arange(10)})
    assert list(result) == ["y", "x", "low"] and result["y"].tolist() == list(range(10)) and result["x"] is X


@pytest.mark.parametrize("case", REFUSED)
def test_predictor_refuses(case: str) -> None:
    model, options, batch, text = REFUSED[case]
    with pytest.raises(InvalidValueError, match=text):
        numbaops.ray.Predictor(model, **options)(batch)


def test_ray_is_not_imported() -> None:
    assert run_python("import sys, numbaops; numbaops.ray.Predictor; print('ray' in sys.modules)") == "False"


RAY = """
import numpy as np, ray, warnings
warnings.simplefilter("ignore")  # Ray's own, which are many
import numbaops
if __name__ == "__main__":
    x = np.load("x.npy")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        columns = [{"x": row, "key": key} for key, row in enumerate(x)]
        options = {"fn_constructor_kwargs": {"keep": ["key"]}, "batch_size": 4}
        options["fn_constructor_args"] = [FOLDER + "/model.onnx"]
        result = ray.data.from_items(columns).map_batches(numbaops.ray.Predictor, compute=ray.data.ActorPoolStrategy(size=1), **options)
        rows = sorted(result.take_all(), key=lambda row: row["key"])
    finally:
        ray.shutdown()
    y, low = numbaops.ReferenceEvaluator("model.onnx").run(None, {"x": x})
    assert np.allclose([row["y"] for row in rows], y)
    assert [[float(value) for value in row["low"]] for row in rows] == low.astype(float).tolist()  # Arrow has no bfloat16: objects
    print("same")
"""


@pytest.mark.slow
def test_ray(folder: Path) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("pyarrow")
    (folder / "program.py").write_text(RAY.replace("FOLDER", repr(str(folder))), "utf-8")
    path = {"PYTHONPATH": str(Path(numbaops.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env={**os.environ, **path}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["same"], done.stderr
