"""The record as a picture: time against size, a panel for each operation; conversions in GB/s; networks as bars."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

from .measuring import Record, Row, ratio
from .text import NAMES, SIDES, amount, count, gigabytes, model_name, place

# The palette of Okabe and Ito, which colour-blind readers can tell apart; each has a marker of its own as well.
STYLES: dict[str, tuple[str, str]] = {
    "numbaops": ("#0072B2", "o"),
    "numbaops_evaluator": ("#56B4E9", "s"),
    "onnx_reference": ("#E69F00", "^"),
    "onnxruntime": ("#D55E00", "D"),
    "numpy": ("#009E73", "v"),
    "numpy_view": ("#808080", "x"),
    "numpy_packing": ("#F0E442", "P"),
    "ml_dtypes": ("#CC79A7", "*"),
    "onnx_numpy_helper": ("#000000", "P"),
    "memcpy": ("#B0B0B0", "|"),
}
COLUMNS = 4


def digest(record: Record) -> str:
    """What a picture of this record is marked with."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def draw(record: Record, folder: Path) -> None:
    """Write ``performance.svg`` and ``performance.png``."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10, "svg.fonttype": "path", "svg.hashsalt": "numbaops"}):
        figure = _figure(record, plt)
        marked = f"numbaops performance record {digest(record)}"
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Title": marked, "Date": None})
        lines = (line.rstrip() for line in svg.getvalue().splitlines())
        (folder / "performance.svg").write_text("\n".join(lines) + "\n", "utf-8")
        figure.savefig(folder / "performance.png", dpi=100, metadata={"Title": marked, "Software": None})
        plt.close(figure)


def _figure(record: Record, plt: Any) -> Any:
    groups = {name: group["rows"] for name, group in record["groups"].items()}
    operators = groups.get("operators", [])
    titles = list(dict.fromkeys(row["what"] for row in operators))
    deep = max(1, -(-len(titles) // COLUMNS))
    bars = max(len(groups.get("models", [])), 3 * len(groups.get("conversions", [])) // 2) * 0.34 + 1.2
    heights = [2.6] * deep + [bars]
    figure = plt.figure(figsize=(15, sum(heights) + 1.6), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=[sum(heights[:-1]) + 0.8, bars])

    axes = upper.subplots(deep, COLUMNS, squeeze=False)
    for axis, title in zip(axes.flat, titles, strict=False):
        _lines(axis, title, [row for row in operators if row["what"] == title])
    for axis in list(axes.flat)[len(titles) :]:
        axis.axis("off")
    for row in axes:
        row[0].set_ylabel("time")
    for axis in axes[-1]:
        axis.set_xlabel("elements of the result, a factor, or a channel")
    shown = {name: line for axis in axes.flat for line, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    if names := [NAMES[name] for name in STYLES if NAMES[name] in shown]:
        upper.legend([shown[name] for name in names], names, loc="outside upper center", ncols=len(names), frameon=False)

    left, right = lower.subplots(1, 2)
    for axis, name, draw_rows in ((left, "conversions", _conversions), (right, "models", _models)):
        if name in groups:
            draw_rows(axis, groups[name])
        else:
            axis.axis("off")
    figure.suptitle(f"numbaops {record['environment']['numbaops']}: medians on {place(record)}", fontsize=10)
    return figure


def _lines(axis: Any, title: str, rows: list[Row]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    for name, (colour, marker) in STYLES.items():
        points = [(row["size"], row["times"][name]) for row in rows if name in row["times"]]
        if points:
            sizes, times = zip(*points, strict=True)
            ours = name.startswith("numbaops")
            axis.plot(
                sizes,
                [found["median"] for found in times],
                color=colour,
                marker=marker,
                markersize=6 if marker == "*" else 4.5,
                linewidth=2 if ours else 1.2,
                zorder=3 if ours else 2,
                label=NAMES[name],
            )
            axis.fill_between(
                sizes, [found["low"] for found in times], [found["high"] for found in times], color=colour, alpha=0.2, linewidth=0
            )
    axis.set(xscale="log", yscale="log", title=title)
    sizes = sorted({row["size"] for row in rows})
    axis.set_xticks(sizes, [count(size) for size in sizes])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_locator(LogLocator(base=10, numticks=12))
    axis.yaxis.set_major_formatter(FuncFormatter(_seconds))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.grid(alpha=0.3)


def _seconds(value: float, _: int) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale * 0.999:
            return f"{value / scale:.0f} {unit}"
    return f"{value / 1e-9:.0f} ns"


def _bars(axis: Any, labels: list[str], values: dict[str, list[float | None]], beside: bool = True) -> None:
    """Groups of horizontal bars, the first group above, with their values ``beside`` them."""
    height = 0.8 / max(len(values), 1)
    for offset, (name, lengths) in enumerate(values.items()):
        places = [position + (offset - (len(values) - 1) / 2) * height for position in range(len(labels))]
        drawn = [(place, length) for place, length in zip(places, lengths, strict=True) if length]
        hatch = {"onnxruntime": "///", "ml_dtypes": "...", "numpy_packing": "xxx"}.get(name)
        bars = axis.barh(*zip(*drawn, strict=True), height=height, color=STYLES[name][0], label=NAMES[name], hatch=hatch, edgecolor="white")
        if beside:
            axis.bar_label(bars, [f"{length:.3g}" for _, length in drawn], padding=2, fontsize=7)
    axis.set_yticks(range(len(labels)), labels)
    axis.invert_yaxis()
    axis.margins(x=0.1, y=0.02)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)


def _conversions(axis: Any, rows: list[Row]) -> None:
    names = [name for name in ("numbaops", "ml_dtypes", "numpy_packing", "memcpy") if any(name in row["times"] for row in rows)]
    values = {name: [gigabytes(row, name) if name in row["times"] else None for row in rows] for name in names}
    labels = [f"{row['what']}{', packed' * row['packed']}" for row in rows]
    _bars(axis, labels, values)
    axis.set(title="Conversions of 16 Mi elements, one thread (longer is better)", xlabel="GB/s read and written")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=4, frameon=False)


def _models(axis: Any, rows: list[Row]) -> None:
    """Ratios, for bars mean nothing on a logarithmic axis, and networks take from 0.1 ms to 200 ms."""
    ours, theirs = SIDES
    compared = {model_name(row): (row, found) for row in rows if (found := ratio(row, *SIDES))}
    _bars(axis, list(compared), {ours: [found for _, found in compared.values()]}, beside=False)
    axis.set_xlim(right=1.4 * axis.get_xlim()[1])
    for position, (row, found) in enumerate(compared.values()):
        one, other = (amount(row["times"][name]["median"]) for name in SIDES)
        text = f"{found:.2f} = {one} / {other}"
        axis.text(0.99, position, text, va="center", ha="right", fontsize=7, transform=axis.get_yaxis_transform())
    axis.axvline(1, color=STYLES[theirs][0], linewidth=2, label=NAMES[theirs])
    axis.set(title="Networks, two threads (shorter is better)", xlabel=f"time / that of {NAMES[theirs]}")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=2, frameon=False)
