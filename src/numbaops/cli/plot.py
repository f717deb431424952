"""Ratios of times as a plot of characters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

_COLOURS = ("cyan", "magenta", "yellow", "blue", "bright_red")
"""One for each name, and letters that say the same."""

_NARROWEST, _WIDEST = 10, 100


def print_ratios(console: Console, rows: Sequence[tuple[str, Mapping[str, float]]], letters: Mapping[str, str]) -> None:
    """Print a line for each row, on which letters stand at the places of its ratios, along one logarithmic axis.

    Args:
        console: where to.
        rows: label, and ratios by name.
        letters: by name, at most five.
    """
    ratios = [ratio for _, row in rows for ratio in row.values()]
    names = [name for name in letters if any(name in row for _, row in rows)]
    styles = {name: f"bold {colour}" for name, colour in zip(letters, _COLOURS, strict=False)}
    indent = max((len(label) for label, _ in rows), default=0) + 3
    width = min(console.width - indent - 1, _WIDEST)
    if not ratios or width < _NARROWEST:
        return
    low, high = math.log10(min(*ratios, 0.1)), math.log10(max(*ratios, 10))

    def line_of(text: Text | str) -> None:
        console.print(text, no_wrap=True, overflow="crop")

    def place(ratio: float) -> int:
        return round((math.log10(ratio) - low) / (high - low) * (width - 1))

    one = place(1)
    axis = [" "] * width
    for power in sorted(range(math.ceil(low), math.floor(high) + 1), key=abs):  # 1 before what it leaves room for
        text = f"{10.0**power:g}"
        start = min(max(0, place(10.0**power) - len(text) // 2), width - len(text))
        if not "".join(axis[max(0, start - 1) : start + len(text) + 1]).strip():
            axis[start : start + len(text)] = text
    line = "|" if console.options.ascii_only else "│"
    faster = "we are faster " if one > 14 else "faster "
    line_of(" " * indent + f"{faster:>{one}}{line} slower")
    for label, row in rows:
        marks = {one: (line, "dim")}
        for name, ratio in sorted(row.items(), key=lambda item: item[1]):
            position = place(ratio)
            while position in marks and marks[position][0] != line and position + 1 < width:
                position += 1
            marks[position] = letters[name], styles[name]
        shown = Text(f" {label}".ljust(indent))
        for position in range(max(marks) + 1):
            shown.append(*marks.get(position, (" ", "")))
        line_of(shown)
    line_of(" " * indent + "".join(axis).rstrip())
    legend = Text(" ")
    for name in names:
        legend.append(letters[name], styles[name]).append(f" {name}   ")
    console.print(legend)
