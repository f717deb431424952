"""What the commands print: tables, JSON, progress."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from numbaops.dtypes import of_dtype
from numbaops.errors import InvalidTypeError

_CHUNK = 1 << 20


def print_json(content: Any) -> None:
    """Write ``content`` to stdout; numbers that JSON lacks become the strings "nan", "inf" and "-inf"."""
    print(json.dumps(_plain(content), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def print_line(text: str) -> None:
    """Write one paragraph to stdout, broken between words at the console's width."""
    _console().print(Text(text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = (), headings: bool = True) -> None:
    """Write a table to stdout.

    Args:
        columns: the headings.
        rows: the cells; text that does not fit goes on in the next line, none is cut off.
        numbers: headings of the columns that are set flush right and never broken.
        headings: whether to show them.
    """
    table = Table(box=box.SIMPLE_HEAD if headings else None, show_header=headings, pad_edge=headings)
    for heading in columns:
        right = heading in numbers
        table.add_column(heading, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # as Text: a "[...]" in a name is no markup
    _console().print(table)


def _console() -> Console:
    return Console(highlight=False)


@contextmanager
def steps(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on stderr, gone when the work is done, and none at all when stderr is no terminal.

    Args:
        what: what is done to each item.

    Yields:
        A function to call with the number done, the number in all, and the item's name.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(), refresh_per_second=5) as bar:
        task = bar.add_task(what, total=None)

        def show(done: int, total: int, name: str) -> None:
            bar.update(task, description=f"{what} {name}".strip(), completed=done, total=total)

        yield show


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Like :func:`steps`, for ``total`` steps that are named as they begin.

    Yields:
        A function to call with the name of the step.
    """
    done = -1
    with steps("") as show:

        def step(name: str) -> None:
            nonlocal done
            done += 1
            show(done, total, name)

        yield step


def type_name(value: Any) -> str:
    """The ONNX name of a value's type, as in ``tensor(...)``, ``seq(...)`` and ``map(...)``."""
    if value is None:
        return "none"
    if isinstance(value, (list, tuple)):
        return f"seq({type_name(value[0]) if len(value) else ''})"
    if isinstance(value, dict):
        key, item = next(iter(value.items()), ("", ""))
        return f"map({type_name(key)}, {type_name(item)})"
    if not isinstance(value, (np.ndarray, np.generic, str, int, float)):
        return type(value).__name__
    dtype = np.asarray(value).dtype
    try:
        return of_dtype(dtype).name
    except InvalidTypeError:
        return str(dtype)


def statistics(value: Any) -> dict[str, Any]:
    """``min``, ``mean`` and ``max`` of a real-valued array; None where there is no such thing."""
    nothing = {"min": None, "mean": None, "max": None}
    if not isinstance(value, (np.ndarray, np.generic)) or value.size == 0:
        return nothing
    try:
        kind = of_dtype(value.dtype).kind
    except InvalidTypeError:
        return nothing
    if kind in ("string", "complex"):
        return nothing
    flat = np.asarray(value).reshape(-1)
    whole: Any = {"signed": np.int64, "unsigned": np.uint64, "bool": np.uint64}.get(kind, np.float64)
    least, total, most = math.inf, 0.0, -math.inf
    with np.errstate(all="ignore"):  # infinities and NaNs are reported, not warned about
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK].astype(whole)
            total += float(part.sum(dtype=np.float64))
            low, high = part.min().item(), part.max().item()  # a NaN anywhere gives NaN, and stays
            least = low if math.isnan(low) or low < least else least
            most = high if math.isnan(high) or high > most else most
    return {"min": least, "mean": total / flat.size, "max": most}


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table cell."""
    if value is None:
        return "-"
    if isinstance(value, int) and abs(value) < 10**9:
        return str(value)
    return f"{value:.{digits}g}"


def seconds(value: float) -> str:
    """A duration with a unit that suits it."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if value < limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"


def count(number_of: int, what: str) -> str:
    """A number of things, e.g. ``1 node`` and ``2 nodes``."""
    return f"{number_of} {what}{'' if number_of == 1 else 's'}"
