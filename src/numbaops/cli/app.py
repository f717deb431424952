"""The commands, their options and their help."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from cyclopts import App, CycloptsError, Group, Parameter, Token, UnknownCommandError

import numbaops
from numbaops.errors import InvalidValueError, UnsupportedError
from numbaops.interrupts import held

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Several = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
Shell = Literal["bash", "zsh", "fish"]
Peer = Literal["numpy", "ml_dtypes", "onnx.numpy_helper", "onnx.reference", "onnxruntime"]


def _from(least: int) -> Parameter:
    """An option that takes a whole number; cyclopts would round what is none."""

    def convert(_: Any, tokens: Sequence[Token]) -> int:
        (token,) = tokens
        if not (token.value.isascii() and token.value.isdigit() and int(token.value) >= least):
            raise InvalidValueError(f"{token.keyword} {token.value}: allowed: a whole number from {least} on")
        return int(token.value)

    return Parameter(converter=convert)


FromZero = Annotated[int, _from(0)]
FromOne = Annotated[int, _from(1)]


def _examples(*lines: str, heading: str = "Examples") -> str:
    """Markdown of lines that stay lines."""
    return f"**{heading}**\n\n" + "\\\n".join(lines)


def _version() -> str:
    return f"numbaops {numbaops.__version__}"


app = App(
    name="numbaops",
    help="Evaluate ONNX models with NumPy arrays and Numba kernels. numbaops COMMAND --help has the options and examples.",
    help_epilogue="\n\n".join(
        (
            _examples(
                "numbaops run model.onnx --dim N=8",
                "numbaops check model.onnx",
                "numbaops bench",
            ),
            _examples(
                "0: it is done.",
                "1: an error, in one line on stderr: wrong use, a file that is missing or no model, a failed evaluation, an output that "
                "does not match the stored one; or the reader of the output has left.",
                "3: numbaops check found something that is not fine.",
                "130: interrupted by Ctrl-C.",
                heading="Exit status",
            ),
            "Output has colours on a terminal only, and none if NO_COLOR is set; COLUMNS, from 10 on, sets its width.",
        )
    ),
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
    except UnknownCommandError as error:
        text = str(error).strip().partition(" Available commands:")[0].rstrip(".")  # of which it lists eight
        commands = ", ".join(name for name in app if not name.startswith("-"))
        raise InvalidValueError(f"{text}; commands: {commands} (see numbaops --help)") from None
    except CycloptsError as error:
        if isinstance(error.__cause__, InvalidValueError):  # of ours, who say it all
            raise error.__cause__ from None
        command = " ".join(("numbaops", *(error.command_chain or ())))
        raise InvalidValueError(f"{str(error).strip().removesuffix('.')} (see {command} --help)") from None
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


@app.command(
    help_epilogue=_examples(
        "numbaops run",
        "numbaops run model.onnx --input x=x.npy --save out.npz",
        "numbaops run model.onnx --dim N=8 --repeat 10 --profile",
        "numbaops run model.onnx --compare onnxruntime --json",
        "numbaops run model.onnx --inputs test_data_set_0",
        "numbaops run model.onnx --inputs batch.npz --batch-axis 0 --workers 2 --save out.npz",
    )
)
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


@app.command(help_epilogue=_examples("numbaops ops", "numbaops ops --json"))
def ops(*, json: Flag = False) -> None:
    """List the operators: versions, element types, attributes.

    Args:
        json: Print JSON instead of a table.
    """
    with held():
        from numbaops.cli.info import show_operators

    show_operators(as_json=json)


@app.command(help_epilogue=_examples("numbaops info", "NUMBAOPS_NUM_THREADS=1 numbaops info --json"))
def info(*, json: Flag = False) -> None:
    """Show versions, processor, threads, cache folder and memory settings.

    Args:
        json: Print JSON instead of a table.
    """
    with held():
        from numbaops.cli.info import show_info

    show_info(as_json=json)


@app.command(
    help_epilogue=_examples("numbaops warmup", "numbaops warmup model.onnx --dim N=8", "numbaops warmup --cache-dir /srv/kernels --json")
)
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
    with held():
        from numbaops.cli.info import warm_up

    warm_up(model, dims=dim, as_json=json)


@app.command(
    help_epilogue=_examples(
        "numbaops check model.onnx",
        "numbaops check model.onnx --dim batch=8 --dim length=128",
        "numbaops check model.onnx --json",
    )
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


@app.command(
    help_epilogue=_examples(
        "numbaops compact model.onnx small.onnx --check 2",
        "numbaops compact model.onnx --dry-run",
        "numbaops compact model.onnx small.onnx --min-bytes 4096 --json",
    )
)
def compact(
    model: Path,
    target: Path | None = None,
    /,
    *,
    min_bytes: FromZero = 256,
    dry_run: Flag = False,
    check: FromZero | None = None,
    dim: Several = (),
    seed: FromZero | None = None,
    json: Flag = False,
) -> None:
    """Write a model with the same tensors, to the bit, in fewer bytes.

    Tensors of one value become ConstantOfShape, diagonals EyeLike, ramps Range, those that are mostly zero a Constant with sparse_value,
    and equal ones become one. A table shows which became what, and which were kept and why. What onnx.checker or ONNX Runtime would not
    have is not done.

    MODEL stays as it is, and no half-written file is left. External data that remain go to TARGET.data.

    Args:
        model: An ONNX model; its external data is looked for beside it.
        target: The file to write. Not needed with --dry-run.
        min_bytes: Leave tensors whose elements take fewer bytes.
        dry_run: Write nothing.
        check: Run both models so many times on drawn inputs, and write nothing if an output differs in a bit.
        dim: NAME=SIZE, the size of a symbolic dimension of drawn inputs; else it is 1. May be given several times.
        seed: Seed of the drawn inputs. [default: 0]
        json: Print JSON, with all tensors, instead of tables.
    """
    with held():
        from numbaops.cli.compact import compact_model

    _check_draws(check, dim, seed)
    compact_model(model, target, min_bytes=min_bytes, dry_run=dry_run, check=check or 0, dims=dim, seed=seed or 0, as_json=json)


@app.command(
    help_epilogue=_examples(
        "numbaops bench",
        "numbaops bench --filter conversions --filter MatMul --seconds 10",
        "numbaops bench model.onnx --dim N=8 --beside onnxruntime",
        "numbaops bench --json > here.json",
    )
)
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


@app.command(
    help_epilogue=_examples(
        "numbaops fold model.onnx folded.onnx",
        "numbaops fold model.onnx folded.onnx --check 3 --dim batch=2",
        "numbaops fold model.onnx folded.onnx --max-growth 1000000 --json",
    )
)
def fold(
    model: Path,
    output: Path,
    /,
    *,
    max_growth: FromZero | None = None,
    max_tensor: FromZero | None = None,
    dense: Flag = False,
    check: FromZero | None = None,
    dim: Several = (),
    seed: FromZero | None = None,
    json: Flag = False,
) -> None:
    """Compute what depends on no input of MODEL ahead, and write the model without the nodes that compute it to OUTPUT.

    An If with a constant condition gives way to its branch; nodes, initializers and functions that nobody needs go; bodies and functions
    are folded inside. Names of inputs and outputs, opsets and metadata stay, and results are the same to the bit. What makes much of
    little (ConstantOfShape, EyeLike, Expand, Tile, Range, DequantizeLinear) stays where it is smaller than what it makes.

    Shows what was folded, and what was left and why. MODEL is left as it is, and OUTPUT is written whole or not at all; what MODEL has in
    other files goes into OUTPUT.data.

    Args:
        model: An ONNX model; its external data is looked for beside it.
        output: The file to write.
        max_growth: Bytes that the model may grow by. [default: 67108864]
        max_tensor: Bytes that a computed tensor may take. [default: 16777216]
        dense: Also store what is larger than the nodes that make it.
        check: Run both models on so many drawn inputs, and write nothing unless all outputs are the same to the bit.
        dim: NAME=SIZE, the size of a symbolic dimension of drawn inputs; else it is 1. May be given several times.
        seed: Seed of the drawn inputs. [default: 0]
        json: Print JSON instead of a table, with the name of every node.
    """
    with held():
        from numbaops.cli.fold import fold_model

    _check_draws(check, dim, seed)
    fold_model(
        model,
        output,
        max_growth=max_growth,
        max_tensor=max_tensor,
        dense=dense,
        check=check or 0,
        dims=dim,
        seed=seed or 0,
        as_json=json,
    )


def _check_draws(check: int | None, dim: Sequence[str], seed: int | None) -> None:
    """Refuse what is for drawn inputs if there are none."""
    for option, given in (("--dim", dim), ("--seed", seed)):
        if not check and given not in (None, ()):
            raise InvalidValueError(f"{option} is for the inputs that --check draws; give --check N")


@app.command(help_epilogue=_examples("numbaops completion --install", "numbaops completion bash > /etc/bash_completion.d/numbaops"))
def completion(shell: Shell | None = None, /, *, install: Flag = False, json: Flag = False) -> None:
    """Print the script with which a shell completes numbaops' commands and options, or install it.

    Args:
        shell: The shell. [default: the one that this runs in]
        install: Write the script where the shell looks for it, and for bash and zsh a line into .bashrc or .zshrc that loads it.
        json: Print JSON: the script, or the file it was written to.
    """
    if shell is None:
        shell = _shell()
    if install:
        facts = {"shell": shell, "file": str(app.install_completion(shell=shell))}
        text = f"installed in {facts['file']}; it works in a new shell"
    else:
        facts = {"shell": shell, "script": app.generate_completion(shell=shell)}
        text = facts["script"]
    print(dumps(facts, indent=2) if json else text)


def _shell() -> Shell:
    from cyclopts.completion.detect import detect_shell

    try:
        found = detect_shell()
    except Exception:  # a class of its own that moves about
        found = None
    for name in get_args(Shell):
        if name == found:
            return name  # type: ignore[no-any-return]
    raise UnsupportedError(f"which shell this is cannot be told; allowed: {', '.join(get_args(Shell))}")
