"""The performance record, and what is made of it: README, ``docs/performance.md`` and the pictures are of the record that is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.report import drawing, measuring, text

PROJECT = Path(__file__).resolve().parents[1]
DOCS = PROJECT / "docs"
AGAIN = "run `python -m benchmarks.report draw`"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return json.loads((DOCS / "performance.json").read_text("utf-8"))  # type: ignore[no-any-return]


def test_readme_is_of_the_record(record: dict[str, Any]) -> None:
    readme = (PROJECT / "README.md").read_text("utf-8")
    assert text.into_readme(readme, text.readme(record)) == readme, AGAIN


def test_page_is_of_the_record(record: dict[str, Any]) -> None:
    assert (DOCS / "performance.md").read_text("utf-8") == text.page(record), AGAIN


@pytest.mark.parametrize("name", ["performance.svg", "performance.png"])
def test_pictures_are_of_the_record(record: dict[str, Any], name: str) -> None:
    assert f"numbaops performance record {drawing.digest(record)}".encode() in (DOCS / name).read_bytes(), AGAIN


def test_record_is_whole(record: dict[str, Any]) -> None:
    assert list(record["groups"]) == list(measuring.GROUPS)
    assert {row["what"] for row in record["groups"]["operators"]["rows"]} == {title for title, *_ in measuring.OPERATIONS}
    assert all(len(text.readme_cells(record, line)) == 4 for line in text.LINES)
    assert {"light_resnet50", "light_vgg19"} <= {row["what"] for row in record["groups"]["models"]["rows"]}


def times(seconds: float) -> dict[str, float]:
    return {"median": seconds, "least": seconds, "low": seconds * 0.9, "high": seconds * 1.1, "rounds": 5}


def test_losses_are_shown() -> None:
    small = {"numbaops": times(4e-6), "numbaops_evaluator": times(3e-6), "numpy": times(1e-6)}
    large = {"numbaops": times(1e-6), "numpy": times(3e-6), "onnxruntime": times(0.95e-6)}
    rows = [{"what": "Add", "size": size, "times": found, "missing": {}} for size, found in ((16, small), (4096, large))]
    record = {"environment": measuring.environment(), "groups": {"operators": {"threads": 1, "seconds": 1, "rows": rows}}}
    assert text.lost(record) == [(pytest.approx(3), "Add, 16 elements", "numpy")]
    assert "| Add, 16 elements | NumPy | 3.00 |" in text.page(record)


def test_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="once each"):
        text.into_readme("# A package\n", "part")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.54321e-6, "0.543 us"), (10.25e-6, "10.2 us"), (999.6e-6, "1000 us"), (1e-3, "1 ms"), (0.2164, "216 ms"), (1.5, "1.5 s")],
)
def test_amounts_have_three_digits(seconds: float, shown: str) -> None:
    assert text.amount(seconds) == shown


def test_of_several_passes_the_one_counts_in_which_the_fastest_rival_took_least() -> None:
    def row(what: str, ours: float, rival: float, other: float) -> Any:
        times = {"numbaops": {"least": ours}, "onnxruntime": {"least": rival}, "numpy": {"least": other}}
        return {"what": what, "case": "", "times": times}

    quiet, busy, alone = row("Conv", 3, 5, 9), row("Conv", 1, 6, 7), {"what": "Loop", "times": {"numbaops": {"least": 1}}}
    for order in ([busy, quiet], [quiet, busy]):
        passes = iter(order)
        assert list(measuring._quietest(lambda passes=passes: iter([next(passes), alone]), 2)) == [quiet, alone]


@pytest.mark.slow
def test_measuring_and_drawing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("onnxruntime")
    from benchmarks.report.__main__ import main

    main(["--quick", "--groups", "graphs", "conversions", "--out", str(tmp_path)])
    record = json.loads((tmp_path / "performance.json").read_text("utf-8"))
    assert [len(record["groups"][name]["rows"]) for name in ("graphs", "conversions")] == [3, 8]
    assert (tmp_path / "performance.md").read_text("utf-8") == text.page(record)
    assert drawing.digest(record).encode() in (tmp_path / "performance.png").read_bytes()
