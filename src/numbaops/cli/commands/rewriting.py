"""Commands that write a model anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from numbaops.cli.commands.options import Flag, FromZero, Several
from numbaops.errors import InvalidValueError
from numbaops.interrupts import held


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


def _check_draws(check: int | None, dim: Sequence[str], seed: int | None) -> None:
    """Refuse what is for drawn inputs if there are none."""
    for option, given in (("--dim", dim), ("--seed", seed)):
        if not check and given not in (None, ()):
            raise InvalidValueError(f"{option} is for the inputs that --check draws; give --check N")
