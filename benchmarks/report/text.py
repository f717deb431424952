"""The record as text: ``performance.md`` and the README's part. What is the same for one record: nothing is measured here."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from ..common import geometric_mean
from .measuring import Record, Row, ratio, spread, spreads

NAMES = {
    "numbaops": "numbaops",
    "numbaops_evaluator": "numbaops, evaluator",
    "onnx_reference": "onnx.reference",
    "onnxruntime": "ONNX Runtime",
    "numpy": "NumPy",
    "numpy_view": "NumPy, unsigned view",
    "numpy_packing": "ml_dtypes and shifts",
    "ml_dtypes": "ml_dtypes",
    "onnx_numpy_helper": "onnx.numpy_helper",
    "memcpy": "memcpy",
}
"""What readers see of an implementation."""
OURS = ("numbaops", "numbaops_evaluator")
SIDES = ("numbaops_evaluator", "onnxruntime")
"""Of a network."""

BEGIN = "<!-- speed: written by `python -m benchmarks.report`, from docs/performance.json -->"
END = "<!-- end of speed -->"

MODELS = {
    "light_bvlc_alexnet": "AlexNet",
    "light_densenet121": "DenseNet-121",
    "light_inception_v1": "Inception v1",
    "light_inception_v2": "Inception v2",
    "light_resnet50": "ResNet-50",
    "light_shufflenet": "ShuffleNet",
    "light_squeezenet": "SqueezeNet",
    "light_vgg19": "VGG-19",
    "light_zfnet512": "ZFNet-512",
    "ch_PP-OCRv4_det_infer": "PP-OCR v4 detection",
    "ch_PP-OCRv4_rec_infer": "PP-OCR v4 recognition",
    "ch_ppocr_mobile_v2.0_cls_infer": "PP-OCR v2 direction",
}
VARIANTS = "Silero VAD"
"""A network with several files, which share one line in the README."""


@dataclass(frozen=True)
class Line:
    """One line of the README's table: what readers see, where its row is, and who is compared."""

    what: str
    group: str
    row: str
    size: int | None
    ours: str
    rival: str
    rival_name: str


_OURS, _MODEL = OURS
LINES = [
    Line("ConstantOfShape (4, 4), bound operator", "operators", "ConstantOfShape", 16, _OURS, "numpy", "`np.full`"),
    Line("EyeLike (4, 4), bound operator", "operators", "EyeLike", 16, _OURS, "numpy", "`np.eye`"),
    Line("one-node model ConstantOfShape (4, 4)", "operators", "ConstantOfShape", 16, _MODEL, "onnx_reference", "`onnx.reference`"),
    Line("the same", "operators", "ConstantOfShape", 16, _MODEL, "onnxruntime", "ONNX Runtime"),
    Line("eight small nodes on shapes that stay the same", "graphs", "8-node shape subgraph", None, _MODEL, "onnxruntime", "ONNX Runtime"),
    Line("1000 Adds of (4, 4), one after the other", "graphs", "1000 Adds", None, _MODEL, "onnxruntime", "ONNX Runtime"),
    Line("Loop of 1000 trips over 5 small nodes", "graphs", "Loop of 1000 x 5 nodes", None, _MODEL, "onnxruntime", "ONNX Runtime"),
    Line("the same", "graphs", "Loop of 1000 x 5 nodes", None, _MODEL, "onnx_reference", "`onnx.reference`"),
    Line("float32 to float8e4m3fn, 16 Mi elements", "conversions", "float to float8e4m3fn", None, _OURS, "ml_dtypes", "`astype`"),
    Line("float8e4m3fn to float32", "conversions", "float8e4m3fn to float", None, _OURS, "ml_dtypes", "`astype`"),
    Line("float32 to packed float4e2m1", "conversions", "float to float4e2m1", None, _OURS, "ml_dtypes", "`astype`, not packed"),
    Line(
        "QuantizeLinear to int4 in blocks of 32, 16 Mi elements",
        "operators",
        "QuantizeLinear, int4 in blocks",
        1 << 24,
        _OURS,
        "onnxruntime",
        "ONNX Runtime",
    ),
    Line("QuantizeLinear to int8, one scale", "operators", "QuantizeLinear, int8", 1 << 24, _OURS, "onnxruntime", "ONNX Runtime"),
    Line(
        "16 Mi int4 into a `TensorProto`",
        "operators",
        "array of int4 to TensorProto",
        1 << 24,
        _OURS,
        "onnx_numpy_helper",
        "`numpy_helper`",
    ),
    Line("and back", "operators", "TensorProto of int4 to array", 1 << 24, _OURS, "onnx_numpy_helper", "`numpy_helper`"),
    Line("ConstantOfShape, 128 MiB of 1.5, again and again", "large", "ConstantOfShape", None, _OURS, "numpy", "`np.full`"),
    Line("EyeLike, 8192 x 4096 float, again and again", "large", "EyeLike", None, _OURS, "numpy", "`np.eye`"),
]


def amount(seconds: float) -> str:
    """Three digits with a unit: ``0.54 us``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{_digits(seconds / scale)} {unit}"
    return f"{_digits(seconds / 1e-6)} us"


def _digits(value: float) -> str:
    """Three of them, without an exponent."""
    return f"{float(f'{value:.3g}'):g}"


def count(size: int) -> str:
    """``4096`` as ``4 Ki``."""
    for unit, scale in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size >= scale:
            return f"{size // scale} {unit}"
    return str(size)


def table(titles: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def place(record: Record) -> str:
    """Machine, versions and date in one sentence."""
    known = record["environment"]
    versions = ", ".join(f"{name} {known[name]}" for name in ("numpy", "numba", "onnx", "ml_dtypes", "onnxruntime"))
    return f"{known['cores']} cores of {known['cpu']}, {known['system']}, Python {known['python']}, {versions}, {known['date']}"


def model_name(row: Row) -> str:
    return MODELS.get(row["what"], row["what"].replace("_", " ").replace("silero vad", VARIANTS))


def title_of(row: Row) -> str:
    """What a row is about, in a list of all."""
    if "case" in row:
        return f"{row['what']} `{row['case']}`"
    if "light" in row:
        return model_name(row)
    return f"{row['what']}, {count(row['size'])} elements" if "size" in row else str(row["what"])


def rows_of(record: Record) -> Iterator[tuple[str, Row]]:
    for name, group in record["groups"].items():
        yield from ((name, row) for row in group["rows"])


def lost(record: Record, factor: float = 1.1) -> list[tuple[float, str, str]]:
    """Where a rival takes less time than the fastest of ours: factor, what, and the rival; the largest first."""
    found = []
    for _, row in rows_of(record):
        mine = [name for name in OURS if name in row["times"]]
        for rival in row["times"]:
            ratios = [value for name in mine if (value := ratio(row, name, rival)) is not None]
            if rival not in (*OURS, "memcpy") and ratios and min(ratios) > factor:
                found.append((min(ratios), title_of(row), rival))
    return sorted(found, reverse=True)


# --- README


def readme(record: Record) -> str:
    """The part of the README between the markers, with them."""
    found = spreads(record)
    text = (
        f"Medians of interleaved rounds on {place(record)}; a ratio below 1 says how much less time numbaops takes. "
        f"Half of the figures vary by less than {found[len(found) // 2]:.0%} between their quartiles, nine of ten by less than "
        f"{found[len(found) * 9 // 10]:.0%}. "
        "Operators use one thread on all sides, large results and networks two; networks and the operators in them were measured in two "
        "passes, of which the one counts in which the fastest rival took least. "
        "[docs/performance.md](docs/performance.md) has the sizes in between, and all operators."
    )
    lines = [
        BEGIN,
        "",
        *wrapped(text),
        "",
        "![Time against size of sixteen operations, conversions in GB/s, and networks](docs/performance.png)",
        "",
        *table(["what", "numbaops", "rival", "ratio"], [cells for line in LINES if (cells := readme_cells(record, line))]),
        "",
    ]
    if faults := [row for group, row in rows_of(record) if group == "large"]:
        ours = " and ".join(f"{row['faults']['numbaops']:.0f}" for row in faults)
        theirs = " and ".join(f"{row['faults']['numpy']:.0f}" for row in faults)
        lines += [f"Page faults a run in the two large rows: {ours} for numbaops (memory is recycled), {theirs} for NumPy.", ""]
    if models := [row for group, row in rows_of(record) if group == "models"]:
        lines += ["Whole networks, two threads on both sides, float32; the last column is of the smallest times:", ""]
        lines += [*table(["model", "numbaops", "ONNX Runtime", "ratio", "at best"], _networks(models)), ""]
    slower = [entry for entry in lost(record, 2.0) if entry[2] == "onnxruntime" and "`" in entry[1]]
    if slower:
        worst = ", ".join(f"{name} ({factor:.0f})" for name, factor in _worst(slower)[:12])
        text = f"Operators at sizes of real networks that take more than twice ONNX Runtime's time, by their worst case: {worst}."
        lines += [*wrapped(text), ""]
    return "\n".join([*lines, END])


def _networks(rows: list[Row]) -> list[list[str]]:
    """A line for each, but one for all variants of a network."""
    variants = [row for row in rows if model_name(row).startswith(VARIANTS)]
    cells = [
        [model_name(row), *_pair(row, *SIDES), f"{ratio(row, *SIDES, 'least') or math.nan:.2f}"] for row in rows if row not in variants
    ]
    if variants:
        times = [sorted(row["times"][name]["median"] for row in variants) for name in SIDES]
        ratios = [sorted(ratio(row, *SIDES, of) or math.nan for row in variants) for of in ("median", "least")]
        ends = [
            *((amount(found[0]), amount(found[-1])) for found in times),
            *((f"{found[0]:.2f}", f"{found[-1]:.2f}") for found in ratios),
        ]
        cells.append([f"{VARIANTS}, {len(variants)} variants", *(f"{low} to {high}" for low, high in ends)])
    return cells


def wrapped(text: str) -> list[str]:
    """A paragraph as lines."""
    return textwrap.wrap(text, 130, break_long_words=False, break_on_hyphens=False)


def _worst(entries: list[tuple[float, str, str]]) -> list[tuple[str, float]]:
    """The largest factor of each operator."""
    found: dict[str, float] = {}
    for factor, title, _ in entries:
        found.setdefault(title.partition(" ")[0], factor)
    return list(found.items())


def readme_cells(record: Record, line: Line) -> list[str]:
    """The cells of a line of the README's table; none if it was not measured."""
    for group, row in rows_of(record):
        if (group, row["what"]) == (line.group, line.row) and line.size in (None, row.get("size")) and ratio(row, line.ours, line.rival):
            ours, theirs, quotient = _pair(row, line.ours, line.rival)
            return [line.what, ours, f"{line.rival_name} {theirs}", quotient]
    return []


def _pair(row: Row, ours: str, rival: str) -> list[str]:
    quotient = ratio(row, ours, rival)
    return [*(amount(row["times"][name]["median"]) for name in (ours, rival)), "-" if quotient is None else f"{quotient:.2f}"]


def into_readme(text: str, part: str) -> str:
    """The README with its part between the markers replaced.

    Raises:
        ValueError: it has not both markers, once each.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"the README should hold the lines {BEGIN} and {END} once each")
    return before + part + after


# --- docs/performance.md


def page(record: Record) -> str:
    """``performance.md``."""
    lines = [
        "# Performance",
        "",
        "<!-- written by `python -m benchmarks.report`, from performance.json -->",
        "",
        *wrapped(f"Measured on {place(record)}, with numbaops {record['environment']['numbaops']}."),
        "",
        "All implementations of a row are called in turn, in rounds whose order alternates, so that all see the same machine. A cell",
        "is the median of those times, and half the distance between their quartiles as a part of it. Every answer is checked before it is",
        "timed, and every call makes its result anew. **Bold** is the fastest of a row. ONNX Runtime's threads spin for networks only.",
        "`python -m benchmarks.report` measures and writes all of this; `python -m benchmarks.acceptance` has ratios of many more cases.",
        "",
        "![Time against size of sixteen operations, conversions in GB/s, and networks](performance.svg)",
        "",
    ]
    sections = {
        "operators": (
            "Operators by size",
            "One thread; the size of the result, of a factor of MatMul, of one of 16 channels of Conv and MaxPool.",
        ),
        "conversions": (
            "Conversions",
            "One thread. GB/s read and written, packed elements as they are packed; *memcpy* copies the larger side. It may be slower: it "
            "writes more, and memory that is written is read first, unless stores go past the caches.",
        ),
        "graphs": ("Small graphs", "One thread: what the evaluators cost themselves."),
        "large": ("Large results, made again and again", "Two threads for numbaops and ONNX Runtime; 8192 x 4096 float."),
        "models": ("Networks", "Two threads on both sides; the error is the largest one relative to the largest value."),
        "nodes": (
            "Operators as in real networks",
            "Two threads, models of one node; `1x64` is a float32 shape, `f2:` float16, `*` an initializer.",
        ),
    }
    for name, (title, text) in sections.items():
        if name in record["groups"]:
            rows = record["groups"][name]["rows"]
            lines += [f"## {title}", "", text, "", *_SECTIONS.get(name, _plain)(rows), ""]
    lines += ["## Where numbaops is slower", "", "Every case above that takes more than 1.1 times a rival's time, the worst first.", ""]
    cells = [[what, NAMES[rival], f"{factor:.2f}"] for factor, what, rival in lost(record)]
    return "\n".join([*lines, *table(["what", "rival", "times as long"], cells)]) + "\n"


def _times(row: Row, names: list[str]) -> list[str]:
    times = row["times"]
    fastest = min((name for name in names if name in times and name != "memcpy"), key=lambda name: times[name]["median"], default="")
    cells = []
    for name in names:
        text = f"{amount(times[name]['median'])} ± {spread(row, name):.0%}" if name in times else "-"
        cells.append(f"**{text}**" if name == fastest else text)
    return cells


def _present(rows: list[Row]) -> list[str]:
    return [name for name in NAMES if any(name in row["times"] for row in rows)]


def _by_size(rows: list[Row]) -> list[str]:
    lines = []
    for what in dict.fromkeys(row["what"] for row in rows):
        chosen = [row for row in rows if row["what"] == what]
        names = _present(chosen)
        lines += [
            f"### {what}",
            "",
            *table(["elements", *map(NAMES.get, names)], [[count(row["size"]), *_times(row, names)] for row in chosen]),
            "",
        ]
    return lines[:-1]


def _conversions(rows: list[Row]) -> list[str]:
    names = _present(rows)
    cells = [
        [f"{row['what']}{', packed' * row['packed']}", *(rate(row, name) if name in row["times"] else "-" for name in names)]
        for row in rows
    ]
    return table(["conversion", *(NAMES[name] for name in names)], cells)


def rate(row: Row, name: str) -> str:
    """GB/s of a conversion."""
    return f"{_digits(gigabytes(row, name))} ± {spread(row, name):.0%}"


def gigabytes(row: Row, name: str) -> float:
    return float(row["bytes"][name] / row["times"][name]["median"] / 1e9)


def _models(rows: list[Row]) -> list[str]:
    ratios = [ratio(row, *SIDES) or 0.0 for row in rows]
    cells = [
        [model_name(row), *_times(row, list(SIDES)), f"{quotient:.2f}", amount(row["load"]), f"{row['error']:.0e}"]
        for row, quotient in zip(rows, ratios, strict=True)
    ]
    return [
        *table(["model", "numbaops", "ONNX Runtime", "ratio", "loading by numbaops", "error"], cells),
        "",
        f"Geometric mean of the ratios: {geometric_mean(ratios):.2f}.",
    ]


def _plain(rows: list[Row]) -> list[str]:
    names = _present(rows)
    return table(["what", *(NAMES[name] for name in names)], [[title_of(row), *_times(row, names)] for row in rows])


def _large(rows: list[Row]) -> list[str]:
    faults = ", ".join(f"{row['what']} {row['faults']['numbaops']:.0f} and {row['faults']['numpy']:.0f}" for row in rows)
    return [*_plain(rows), "", f"Page faults a run, numbaops and NumPy: {faults}."]


_SECTIONS = {"operators": _by_size, "conversions": _conversions, "models": _models, "large": _large}
