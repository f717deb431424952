"""Ratios of times as a plot of characters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

_STYLES = ("cyan", "magenta", "yellow", "blue", "bright_red")
"""Colours; letters say the same."""

_WIDEST = 100


def print_ratios(console: Console, rows: Sequence[tuple[str, Mapping[str, float]]], letters: Mapping[str, str]) -> None:
    """Print a line for each row, on which letters stand at the places of its ratios, along one logarithmic axis.

    Args:
        console: where to.
        rows: label, and ratios by name.
        letters: by name.
    """
    ratios = [ratio for _, row in rows for ratio in row.values()]
    names = [name for name in letters if any(name in row for _, row in rows)]
    if not ratios:
        return
    indent = max(len(label) for label, _ in rows) + 3
    width = min(console.width - indent - 1, _WIDEST)
    low, high = math.log10(min(*ratios, 0.1)), math.log10(max(*ratios, 10))

    def place(ratio: float) -> int:
        return round((math.log10(ratio) - low) / (high - low) * (width - 1))

    one = place(1)
    axis = [" "] * width
    for power in range(math.ceil(low), math.floor(high) + 1):
        text = f"{10.0**power:g}"
        start = min(max(0, place(10.0**power) - len(text) // 2), width - len(text))
        axis[start : start + len(text)] = text
    line = "|" if console.options.ascii_only else "│"
    faster = "we are faster"
    heading = " " * max(0, one - len(faster) - 1) + faster + f" {line} " + "slower"
    console.print(Text(" " * indent + heading, no_wrap=True, overflow="crop"))
    for label, row in rows:
        marks = {one: (line, "dim")}
        for name, ratio in sorted(row.items(), key=lambda item: item[1]):
            position = place(ratio)
            while position in marks and marks[position][0] != line and position + 1 < width:
                position += 1
            marks[position] = letters[name], f"bold {_STYLES[list(letters).index(name) % len(_STYLES)]}"
        shown = Text(f" {label}".ljust(indent), no_wrap=True, overflow="crop")
        for position in range(max(marks) + 1):
            shown.append(*marks.get(position, (" ", "")))
        console.print(shown)
    console.print(Text(" " * indent + "".join(axis).rstrip(), no_wrap=True, overflow="crop"))
    legend = Text(" ")
    for name in names:
        legend.append(letters[name], f"bold {_STYLES[list(letters).index(name) % len(_STYLES)]}").append(f" {name}   ")
    console.print(legend)
