"""The commands, their options and their help."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.validators import Number

from numbaops.errors import InvalidValueError

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Several = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


def _version() -> str:
    from numbaops.cli.info import package_version

    return f"numbaops {package_version('numbaops')}"


app = App(
    name="numbaops",
    help="Evaluate ONNX models with NumPy arrays and Numba kernels.\n\nAn error is one line on stderr and exit status 1.",
    version=_version,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.meta.suppress_keyboard_interrupt = False
app.meta.group_parameters = Group("Options for every command", sort_key=1)


def launch(arguments: Sequence[str]) -> int:
    """Parse the command line and run its command; returns the exit status."""
    return _parse(app.meta, arguments)


def _parse(parser: App, arguments: Sequence[str]) -> int:
    try:
        status = parser(list(arguments), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise InvalidValueError(f"{str(error).strip().rstrip('.')}; see numbaops --help") from None
    return int(status or 0)


@app.meta.default
def _launch(*tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)], debug: Flag = False) -> int:
    """Take what every command has, then run the command.

    Args:
        tokens: The rest of the command line.
        debug: Show the traceback of an error.
    """
    try:
        return _parse(app, tokens)
    except Exception:
        if debug:
            traceback.print_exc()
        raise


@app.command
def run(
    model: Path | None = None,
    /,
    *,
    input: Several = (),
    inputs: Path | None = None,
    dim: Several = (),
    seed: int | None = None,
    save: Path | None = None,
    repeat: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    profile: Flag = False,
    compare: Literal["reference", "onnxruntime"] | None = None,
    json: Flag = False,
) -> None:
    """Evaluate a model and show its outputs.

    Without MODEL, run the ResNet-50 that the onnx package carries for its own tests, on the input of that test, and check the
    output that is stored beside it.

    Inputs that no file gives are drawn: standard normal floats, integers from 0 to 9, booleans, short strings.

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
        repeat: Run so many times, and report the shortest time. [default: 1; 3 with --compare]
        profile: Run once more, and show the time by operator type.
        compare: Run the model here too; show the largest errors relative to its outputs, and both times.
        json: Print JSON instead of tables.
    """
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


@app.command
def ops(*, json: Flag = False) -> None:
    """List the operators: versions, element types, attributes.

    Args:
        json: Print JSON instead of a table.
    """
    from numbaops.cli.info import show_operators

    show_operators(as_json=json)


@app.command
def info(*, json: Flag = False) -> None:
    """Show versions, processor, threads, cache folder and memory settings.

    Args:
        json: Print JSON instead of a table.
    """
    from numbaops.cli.info import show_info

    show_info(as_json=json)


@app.command
def warmup(model: Path | None = None, /, *, dim: Several = (), cache_dir: Path | None = None, json: Flag = False) -> None:
    """Compile kernels ahead of time and keep them in the cache folder: those that MODEL needs, or all.

    Args:
        model: An ONNX model, which is run a few times on drawn inputs. Without it, every kernel is compiled.
        dim: NAME=SIZE, the size of a symbolic dimension of drawn inputs; else it is 1. May be given several times.
        cache_dir: The cache folder; a program that is to use it needs NUMBAOPS_CACHE_DIR set to it.
            [default: NUMBAOPS_CACHE_DIR, else a folder in the user's cache]
        json: Print JSON instead of a sentence.
    """
    if cache_dir is not None:  # numbaops.runtime.jit reads it when it is first loaded
        os.environ["NUMBAOPS_CACHE_DIR"] = str(cache_dir.absolute())
    from numbaops.cli.info import warm_up

    warm_up(model, dims=dim, as_json=json)
