"""What the commands print: tables, JSON, progress."""

from __future__ import annotations

import json
import logging
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

from numbaops.cli import printable
from numbaops.dtypes import of_dtype
from numbaops.errors import InvalidTypeError

_CHUNK = 1 << 20

_NARROWEST = 12
"""Characters that a column of text has at least, unless its cells are shorter, or there is no table."""


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
    console().print(Text(printable(text)))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, numbers: Sequence[str] = (), headings: bool = True
) -> None:
    """Write a table to stdout, or, where the console is too narrow for one, a block of lines for each row; nothing if there are no rows.

    Args:
        columns: the headings.
        rows: the cells; what does not fit goes on in the next line, none is cut off. Line breaks are those of a Text.
        numbers: headings of the columns that are set flush right and never broken.
        headings: whether to show them.
    """
    # as Text: a "[...]" in a name is no markup
    cells = [[cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row] for row in rows]
    if not cells:
        return
    table = Table(box=box.SIMPLE_HEAD if headings else None, show_header=headings, pad_edge=headings)
    needed = 1
    for heading, column in zip(columns, zip(*cells, strict=True), strict=True):
        right = heading in numbers
        table.add_column(heading, justify="right" if right else "left", no_wrap=right, overflow="fold")
        longest = max(line.cell_len for cell in (Text(heading), *column) for line in cell.split(allow_blank=True))
        needed += 3 + (longest if right else min(longest, _NARROWEST))  # 3: what is around a cell
    if needed > console().width:
        _print_blocks(columns, cells)
        return
    for row in cells:
        table.add_row(*row)
    console().print(table)


def _print_blocks(columns: Sequence[str], rows: Iterable[Sequence[Text]]) -> None:
    """A line for each cell that is not empty, under a blank line if the first one is not: else the row goes on with the one before."""
    out = console()
    for row in rows:
        if row[0]:
            out.print()
        for heading, cell in zip(columns, row, strict=True):
            if cell:
                out.print(Text.assemble((f"{heading}: " if heading else "", "bold"), cell))
    out.print()


def console() -> Console:
    """Where tables and lines go."""
    return Console(highlight=False)


@contextmanager
def steps(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on stderr, gone when the work is done, and none at all when stderr is no terminal.

    Args:
        what: what is done to each item.

    Yields:
        A function to call with the number done, the number in all, and the item's name.
    """
    if not sys.stderr.isatty():  # rich 13.8 prints a line for a bar that is disabled
        yield lambda done, total, name: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn())
    stderr = Console(stderr=True)
    stderr.width -= 2  # for the ^C of a terminal, which would else break the line, and leave one of the two there
    with Progress(*columns, console=stderr, transient=True, refresh_per_second=5) as bar:
        task = bar.add_task(what, total=None, count="")

        def show(done: int, total: int, name: str) -> None:
            description = printable(f"{what} {name}".strip())
            bar.update(task, description=description, completed=done, total=total, count=f"{done}/{total}")

        yield show


class Step:
    """What :func:`progress` yields: call it with the name of each step as it begins."""

    def __init__(self, total: int, show: Callable[[int, int, str], None]) -> None:
        self._total, self._show = total, show
        self._done, self._name = -1, ""

    def __call__(self, name: str) -> None:
        self._done, self._name = self._done + 1, name
        self._show(self._done, self._total, name)

    def note(self, text: str) -> None:
        """Show what happens within the step."""
        self._show(max(0, self._done), self._total, f"{self._name}: {text}")


@contextmanager
def progress(total: int) -> Iterator[Step]:
    """Like :func:`steps`, for ``total`` steps that are named as they begin."""
    with steps("") as show:
        yield Step(total, show)


class _Notes(logging.Handler):
    def __init__(self, step: Step) -> None:
        super().__init__(logging.INFO)
        self._step = step

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno <= logging.INFO:  # warnings become lines, see numbaops.cli
            self._step.note(record.getMessage())


@contextmanager
def compilations(step: Step) -> Iterator[None]:
    """Show in a progress bar which kernels are compiled meanwhile."""
    logger, notes = logging.getLogger("numbaops"), _Notes(step)
    level = logger.level
    logger.addHandler(notes)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(notes)
        logger.setLevel(level)


def domain_name(domain: str) -> str:
    """The name of a domain of operators in JSON, where ``""`` is no good one."""
    return domain or "ai.onnx"


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


def size(number_of_bytes: int) -> str:
    """A number of bytes with a unit that suits it."""
    if number_of_bytes < 1 << 10:
        return count(number_of_bytes, "byte")
    for limit, unit in ((1 << 20, "KiB"), (1 << 30, "MiB")):
        if number_of_bytes < limit:
            return f"{number_of_bytes / (limit >> 10):.4g} {unit}"
    return f"{number_of_bytes / (1 << 30):.4g} GiB"


def count(number_of: int, what: str, several: str | None = None) -> str:
    """A number of things, e.g. ``1 node`` and ``2 nodes``."""
    return f"{number_of} {what if number_of == 1 else several or what + 's'}"
