"""``numbaops run`` in batches, by worker processes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import uses_external_data

from numbaops.batches import Model, dims_of
from numbaops.cli import report
from numbaops.cli.files import check_npz_target, write_npz
from numbaops.cli.inputs import Declared, collect, declared_inputs
from numbaops.cli.run import model_facts, print_facts, type_and_shape
from numbaops.errors import InvalidValueError, UnsupportedError
from numbaops.interrupts import held


def run_in_batches(
    path: Path | None,
    *,
    input_files: Sequence[str],
    inputs: Path | None,
    save: Path | None,
    axis: int,
    size: int | None,
    workers: int | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Evaluate a model over batches and print the results; the arguments are the command's options."""
    if path is None:
        raise InvalidValueError("--batch-axis, --batch-size, --workers and --scheduler need a MODEL")
    if workers is not None and scheduler is not None:
        raise InvalidValueError("--workers and --scheduler exclude each other: a scheduler has its own workers")
    target = None if save is None else check_npz_target(save)
    if target is not None and inputs is not None and target == inputs.resolve():
        raise InvalidValueError(f"--save {save}: the inputs are read from there")
    try:
        with held():
            from numbaops import dask
    except ModuleNotFoundError as error:
        raise UnsupportedError(str(error)) from None

    with report.steps("chunks") as step:
        _, proto = Model.of(path)
        declared = declared_inputs(proto)
        split = _split(declared, axis)
        feeds, origin = collect(
            [_open(one, axis) if one.name in split else one for one in declared], source=inputs, files=input_files, sizes=(), seed=0
        )
        for name, where in origin.items():
            if where == "drawn":
                raise InvalidValueError(f"input {name!r} is missing: for batches, files give all inputs; see --inputs and --input")
        batched = {name: value for name, value in feeds.items() if name in split}
        if not batched:
            raise InvalidValueError(f"--batch-axis {axis}: no input has such a dimension")
        source = path if scheduler is None or _external(proto) else path.read_bytes()  # their workers may not see this file
        shared = {name: value for name, value in feeds.items() if name not in split}
        lazy = dask.map_model(source, batched, axis, shared=shared, batch_size=size)
        with dask.cluster(scheduler, workers) as client:
            count = len(client.nthreads())
            started = time.perf_counter()
            outputs = dask.compute(lazy, scheduler=client, progress=lambda done, total: step(done, total, ""))
            seconds = time.perf_counter() - started
    saved = None if target is None else write_npz(target, outputs)
    rows = next(iter(lazy.values())).chunks[axis] if lazy else ()
    sizes = next(iter(batched.values())).shape[axis]
    facts: dict[str, Any] = {
        **model_facts(path.name, proto),
        "inputs": [{"name": name, **type_and_shape(value), "source": origin[name]} for name, value in feeds.items()],
        "outputs": [{"name": name, **type_and_shape(value), **report.statistics(value)} for name, value in outputs.items()],
        "batches": {"axis": axis, "rows": sizes, "count": len(rows), "shared": sorted(shared), "workers": count, "scheduler": scheduler},
        "run_seconds": seconds,
    }
    if save is not None:
        facts["saved"] = {"file": str(save), "names": saved}
    if as_json:
        report.print_json(facts)
    else:
        print_facts(facts)


def _split(declared: Sequence[Declared], axis: int) -> set[str]:
    """The inputs that have a batch axis: where the model leaves its size open for some, those, else all of that rank."""
    dims = {one.name: dims_of(one.type) for one in declared if one.type.WhichOneof("value") == "tensor_type"}
    having = {name: sizes[axis] if sizes is not None else None for name, sizes in dims.items() if sizes is None or len(sizes) > axis}
    is_open = {name for name, size in having.items() if not isinstance(size, int)}
    return is_open or set(having)


def _open(one: Declared, axis: int) -> Declared:
    """A declared input of any number of rows."""
    changed = onnx.TypeProto()
    changed.CopyFrom(one.type)
    if changed.tensor_type.HasField("shape"):
        changed.tensor_type.shape.dim[axis].Clear()
    return Declared(one.name, changed, one.required)


def _external(proto: onnx.ModelProto) -> bool:
    return any(uses_external_data(tensor) for tensor in proto.graph.initializer)
