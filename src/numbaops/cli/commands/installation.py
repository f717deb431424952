"""Commands about what is installed: operators, settings, compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path

from numbaops.cli.commands.options import Flag, Several
from numbaops.interrupts import held


def ops(*, json: Flag = False) -> None:
    """List the operators: versions, element types, attributes.

    Args:
        json: Print JSON instead of a table.
    """
    with held():
        from numbaops.cli.info import show_operators

    show_operators(as_json=json)


def info(*, json: Flag = False) -> None:
    """Show versions, processor, threads, cache folder and memory settings.

    Args:
        json: Print JSON instead of a table.
    """
    with held():
        from numbaops.cli.info import show_info

    show_info(as_json=json)


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
