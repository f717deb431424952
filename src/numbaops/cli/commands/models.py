"""Commands that run a model, or say what would run it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from numbaops.cli.commands.options import Flag, FromOne, FromZero, Several
from numbaops.errors import InvalidValueError
from numbaops.interrupts import held

Peer = Literal["numpy", "ml_dtypes", "onnx.numpy_helper", "onnx.reference", "onnxruntime"]


def run(
    model: Path | None = None,
    /,
    *,
    input: Several = (),
    inputs: Path | None = None,
    dim: Several = (),
    seed: FromZero | None = None,
    save: Path | None = None,
    repeat: FromOne | None = None,
    profile: Flag = False,
    compare: Literal["reference", "onnxruntime"] | None = None,
    batch_axis: FromZero | None = None,
    batch_size: FromOne | None = None,
    workers: FromOne | None = None,
    scheduler: str | None = None,
    json: Flag = False,
) -> None:
    """Evaluate a model and show its outputs.

    Without MODEL, run the ResNet-50 that the onnx package carries for its own tests, on the input of that test, and check the
    output that is stored beside it.

    Inputs that no file gives are drawn: standard normal floats, integers from 0 to 9, booleans, short strings.

    With --batch-axis, --batch-size, --workers or --scheduler, files give all inputs, which worker processes take in batches; the outputs
    come in the order of the rows. This needs the extra "dask".

    Args:
        model: An ONNX model; its external data is looked for beside it.
        input: NAME=FILE, an input from a .npy file or a .pb file (a TensorProto); its number from 0 on may stand for NAME, and a
            FILE alone is the next input. May be given several times, and goes before --inputs.
        inputs: Inputs from a .npz file, by name (or by position: arr_0, arr_1, ...), or from a folder of input_0.pb, input_1.pb, ...
            as ONNX test data has them; output_0.pb, ... in that folder are checked against the outputs.
        dim: NAME=SIZE, the size of a symbolic dimension of drawn inputs; else it is 1. May be given several times.
        seed: Seed of the drawn inputs. [default: 0]
        save: Write the outputs to this .npz file. An element type that NumPy lacks is stored as unsigned integers
            under NAME@TYPE, e.g. Y@bfloat16, for array.view(ml_dtypes.bfloat16); --inputs reads such files. A sequence
            is stored as NAME[0], NAME[1], ...
        repeat: Run so many times, once it is warm if more than one, and report the shortest time. [default: 1; 3 with --compare]
        profile: Run once more, node by node, and show the time by operator type.
        compare: Run the model here too; show the largest errors relative to its outputs, and both times.
        batch_axis: The dimension of inputs and outputs along which there are batches. Inputs that lack it, and those of a fixed
            size where that of others is open, go whole to each batch. [default: 0]
        batch_size: Rows of a batch. [default: what the model fixes, else an eighth of the rows, of at most 8 MiB]
        workers: How many processes on this machine. [default: one for each CPU]
        scheduler: The address of a Dask scheduler, e.g. tcp://10.0.0.1:8786, whose workers have numbaops. The model is sent to them,
            unless it has external data: they look for those where MODEL is.
        json: Print JSON instead of tables.
    """
    batches = {"--batch-axis": batch_axis, "--batch-size": batch_size, "--workers": workers, "--scheduler": scheduler}
    if used := next((option for option, given in batches.items() if given is not None), None):
        for option, given in (("--dim", dim), ("--seed", seed), ("--repeat", repeat), ("--profile", profile), ("--compare", compare)):
            if given not in (None, (), False):
                raise InvalidValueError(f"{option} is not for batches, which {used} asks for")
        with held():
            from numbaops.cli.batches import run_in_batches

        run_in_batches(
            model,
            input_files=input,
            inputs=inputs,
            save=save,
            axis=batch_axis or 0,
            size=batch_size,
            workers=workers,
            scheduler=scheduler,
            as_json=json,
        )
        return
    with held():
        from numbaops.cli.run import run_model

    run_model(
        model,
        input_files=input,
        inputs=inputs,
        dims=dim,
        seed=seed,
        save=save,
        repeat=repeat,
        profile=profile,
        compare=compare,
        as_json=json,
    )


def check(model: Path, /, *, dim: Several = (), json: Flag = False) -> int:
    """Show what a model needs, and who would run each of its operators, without running it.

    Its operators by version, with the names of nodes that onnx.reference would run or nobody; inputs and outputs; whether its external
    data are there; what onnx.checker says of it; the memory of its weights, and, as far as shapes are known, of the values between its
    nodes if each is freed after its last use. Weights are not read, so that a model may be of any size.

    The exit status is 3 if an operator is unsupported, external data are missing or onnx.checker refuses the model.

    Args:
        model: An ONNX model; its external data is looked for beside it.
        dim: NAME=SIZE, the size of a symbolic dimension of the inputs; without it, sizes that depend on it are unknown. May be given
            several times.
        json: Print JSON, with the names of all nodes, instead of tables.
    """
    with held():
        from numbaops.cli.check import check_model

    return check_model(model, dims=dim, as_json=json)


def bench(
    model: Path | None = None,
    /,
    *,
    filter: Several = (),
    beside: Annotated[tuple[Peer, ...], Parameter(negative="", show_default=False)] = (),
    seconds: float | None = None,
    input: Several = (),
    inputs: Path | None = None,
    dim: Several = (),
    seed: FromZero | None = None,
    list: Flag = False,
    json: Flag = False,
) -> None:
    """Measure numbaops beside NumPy, ml_dtypes, onnx.reference and, where it is installed, ONNX Runtime.

    Operators, conversions, small models and parts of networks, among them those where others are faster; or MODEL, beside
    onnx.reference and ONNX Runtime. All take turns in one process; medians are shown. What gives another answer than ours is named.
    The first time takes longer, for kernels are compiled.

    Args:
        model: An ONNX model. Inputs that no file gives are drawn, as by numbaops run.
        filter: Only cases with this in their name or group. May be given several times.
        beside: Only beside this one. May be given several times.
        seconds: Seconds of measuring in all; what is set up takes some more. [default: 45; 10 for a MODEL]
        input: NAME=FILE, an input of MODEL as for numbaops run.
        inputs: Inputs of MODEL from a .npz file or a folder, as for numbaops run.
        dim: NAME=SIZE, the size of a symbolic dimension of drawn inputs; else it is 1. May be given several times.
        seed: Seed of the drawn inputs. [default: 0]
        list: List the cases, and measure none.
        json: Print JSON instead of a table and a plot.
    """
    with held():
        from numbaops.cli.bench import bench as measure_and_print

    measure_and_print(
        model,
        filters=filter,
        beside=beside,
        seconds=seconds,
        input_files=input,
        inputs=inputs,
        dims=dim,
        seed=seed,
        list_only=list,
        as_json=json,
    )
