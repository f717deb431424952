"""The command line as a whole: which commands there are, their examples, exit statuses, and errors of use."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from json import dumps
from typing import Annotated, Literal, get_args

from cyclopts import App, CycloptsError, Group, Parameter, UnknownCommandError

import numbaops
from numbaops.cli.commands import installation, models, rewriting
from numbaops.cli.commands.options import Flag
from numbaops.errors import InvalidValueError, UnsupportedError

Shell = Literal["bash", "zsh", "fish"]


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


_COMMANDS: dict[Callable[..., int | None], tuple[str, ...]] = {
    models.run: (
        "numbaops run",
        "numbaops run model.onnx --input x=x.npy --save out.npz",
        "numbaops run model.onnx --dim N=8 --repeat 10 --profile",
        "numbaops run model.onnx --compare onnxruntime --json",
        "numbaops run model.onnx --inputs test_data_set_0",
        "numbaops run model.onnx --inputs batch.npz --batch-axis 0 --workers 2 --save out.npz",
    ),
    installation.ops: (
        "numbaops ops",
        "numbaops ops --json",
    ),
    installation.info: (
        "numbaops info",
        "NUMBAOPS_NUM_THREADS=1 numbaops info --json",
    ),
    installation.warmup: (
        "numbaops warmup",
        "numbaops warmup model.onnx --dim N=8",
        "numbaops warmup --cache-dir /srv/kernels --json",
    ),
    models.check: (
        "numbaops check model.onnx",
        "numbaops check model.onnx --dim batch=8 --dim length=128",
        "numbaops check model.onnx --json",
    ),
    rewriting.compact: (
        "numbaops compact model.onnx small.onnx --check 2",
        "numbaops compact model.onnx --dry-run",
        "numbaops compact model.onnx small.onnx --min-bytes 4096 --json",
    ),
    models.bench: (
        "numbaops bench",
        "numbaops bench --filter conversions --filter MatMul --seconds 10",
        "numbaops bench model.onnx --dim N=8 --beside onnxruntime",
        "numbaops bench --json > here.json",
    ),
    rewriting.fold: (
        "numbaops fold model.onnx folded.onnx",
        "numbaops fold model.onnx folded.onnx --check 3 --dim batch=2",
        "numbaops fold model.onnx folded.onnx --max-growth 1000000 --json",
    ),
    completion: (
        "numbaops completion --install",
        "numbaops completion bash > /etc/bash_completion.d/numbaops",
    ),
}
"""In the order of the help, with examples."""

for _command, _lines in _COMMANDS.items():
    app.command(_command, help_epilogue=_examples(*_lines))
