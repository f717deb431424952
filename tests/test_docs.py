"""The documentation: its examples and commands run, its tables are right, its reference is whole, and the site builds."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnx.defs
import onnx.parser
import pytest

import numbaops
from numbaops import kernels
from numbaops.opset import OPERATOR_VERSIONS

PROJECT = Path(__file__).resolve().parents[1]
DOCS = PROJECT / "docs"
PAGES = [path for path in (PROJECT / "README.md", *sorted(DOCS.glob("*.md"))) if path.exists()]
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="no documentation beside these tests")


# Examples


class Block(NamedTuple):
    line: int
    language: str
    text: str
    needs: str  # a package


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, also those in lists."""
    pattern = r"^(?:<!-- needs (\w+) -->\n)?( *)```(\w+)\n(.*?)^\2```$"
    return [
        Block(text.count("\n", 0, match.start(4)), match[3], textwrap.dedent(match[4]), match[1] or "")
        for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL)
    ]


def installed(package: str) -> bool:
    return not package or importlib.util.find_spec(package) is not None


def scripts(page: Path) -> Iterator[tuple[str, str]]:
    """What to run, and from which line it comes: a program by itself, what stands between two programs as one script."""
    shared = ""
    programs = []
    for block in blocks(page.read_text("utf-8")):
        if block.language != "python" or not installed(block.needs):
            continue
        if "__main__" in block.text:
            programs.append((f"line{block.line}", block.text))
        else:  # at the line where it stands, for tracebacks
            shared += "\n" * (block.line - shared.count("\n")) + block.text
    if shared:
        yield "page", shared
    yield from programs


def run_in(folder: Path, *arguments: str, **variables: str) -> str:
    """What Python prints with these arguments in a folder that has a model and an input; nothing may come on stderr."""
    if not (folder / "model.onnx").exists():
        onnx.save(SMALL, folder / "model.onnx")
        np.save(folder / "x.npy", np.ones((2, 3), np.float32))
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "NUMBAOPS_"))}
    process = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**plain, "PYTHONPATH": str(Path(numbaops.__file__).parents[1]), **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if process.returncode or process.stderr:
        pytest.fail(f"exit status {process.returncode}\n{process.stdout}\n{process.stderr}", pytrace=False)
    return process.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if list(scripts(page))], ids=lambda page: page.stem)
def test_examples_of(page: Path, tmp_path: Path) -> None:
    for name, code in scripts(page):
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
        run_in(tmp_path, f"{name}.py")


SMALL = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 21]>
    small (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }
""")


def commands() -> dict[str, str]:
    """The commands of all pages, and a page that has each."""
    found: dict[str, str] = {}
    for page in PAGES:
        for block in blocks(page.read_text("utf-8")):
            lines = block.text.splitlines() if block.language == "sh" else []
            found.update({line.partition("#")[0].strip(): page.stem for line in lines if line.startswith("numbaops ")})
    return found


LONG = ("numbaops warmup", "numbaops bench", "numbaops bench MODEL --beside onnxruntime")  # every kernel; a minute each


@pytest.mark.parametrize("command", [pytest.param(one, marks=[pytest.mark.long] * (one in LONG)) for one in commands()])
def test_command(command: str, tmp_path: Path) -> None:
    pytest.importorskip("cyclopts")
    if "onnxruntime" in command and not installed("onnxruntime"):
        pytest.skip("needs onnxruntime")
    # What is installed goes to a home of its own, for a shell that need not be the one around the tests.
    home = {"HOME": str(tmp_path), "SHELL": "/bin/bash"} if "--install" in command else {}
    assert run_in(tmp_path, "-m", "numbaops", *command.replace("MODEL", "model.onnx").split()[1:], **home)


def test_blocks_are_found() -> None:
    text = "```python\na\n```\n- b\n\n  ```sh\n  c\n    d\n  ```\n<!-- needs e -->\n```python\nf\n```\n```\ng\n```\n"
    assert blocks(text) == [(1, "python", "a\n", ""), (6, "sh", "c\n  d\n", ""), (11, "python", "f\n", "e")]


# Tables


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("documentation_tables", DOCS / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(table: str) -> list[list[str]]:
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert all(len(row) == len(head) for row in rows)
    return rows


# What the sources say: largest, smallest normal, smallest; codes of NaN and of infinity; a zero with a sign.
FORMATS = {
    "bfloat16": [
        "16",
        "1/8/7",
        "127",
        "1.99219 x 2^127",
        "2^-126",
        "2^-133",
        "0x7f81 to 0x7fff, 0xff81 to 0xffff",
        "0x7f80, 0xff80",
        "yes",
    ],
    "float8e4m3fn": ["8", "1/4/3", "7", "448", "2^-6", "2^-9", "0x7f, 0xff", "none", "yes"],
    "float8e4m3fnuz": ["8", "1/4/3", "8", "240", "2^-7", "2^-10", "0x80", "none", "no"],
    "float8e5m2": ["8", "1/5/2", "15", "57344", "2^-14", "2^-16", "0x7d to 0x7f, 0xfd to 0xff", "0x7c, 0xfc", "yes"],
    "float8e5m2fnuz": ["8", "1/5/2", "16", "57344", "2^-15", "2^-17", "0x80", "none", "no"],
    "float4e2m1": ["4", "1/2/1", "1", "6", "1", "0.5", "none", "none", "yes"],
    "float8e8m0": ["8", "0/8/0", "127", "2^127", "2^-127", "2^-127", "0xff", "none", "no zero at all"],
    "float6e2m3": ["6", "1/2/3", "1", "7.5", "1", "0.125", "none", "none", "yes"],
    "float6e3m2": ["6", "1/3/2", "3", "28", "0.25", "0.0625", "none", "none", "yes"],
}


def test_formats(tables: ModuleType) -> None:
    rows = rows_of(tables.float_formats())
    assert {row[0]: row[2:-1] for row in rows} == FORMATS
    for row in tables.low_bit_types():
        if row.format is None:
            continue
        info = ml_dtypes.finfo(row.dtype)
        finite = tables.values_of(row)
        finite = finite[np.isfinite(finite) & (finite > 0)]
        assert (float(info.max), float(info.smallest_subnormal)) == (finite.max(), finite.min())
        assert (info.nexp, info.nmant) == (row.format.exponent_bits, row.format.mantissa_bits)
        largest = row.format.exponent_bits, row.format.bias
        assert float(info.smallest_normal) == 2.0 ** (1 - largest[1] if row.format.zero else -largest[1])


def test_integers(tables: ModuleType) -> None:
    found = {row[0]: [int(cell) for cell in row[2:]] for row in rows_of(tables.integer_types())}
    assert found == {"uint4": [4, 0, 15, 2], "int4": [4, -8, 7, 2], "uint2": [2, 0, 3, 4], "int2": [2, -2, 1, 4]}


def test_element_types(tables: ModuleType) -> None:
    rows = rows_of(tables.element_types())
    assert [row[1] for row in rows] == [row.name for row in numbaops.ELEMENT_TYPES]


def test_every_operator_is_listed(tables: ModuleType) -> None:
    listed: dict[str, int] = {}
    for domain in tables.DOMAINS:
        for name, versions in tables.schemas(domain):
            listed[f"{domain}.{name}"] = len(versions)
            assert len(versions) == len({schema.since_version for schema in versions})
        assert len(rows_of(tables.model_table(domain))) == sum(count for name, count in listed.items() if name.rpartition(".")[0] == domain)
    every = {f"{schema.domain}.{schema.name}" for schema in onnx.defs.get_all_schemas() if schema.domain in tables.DOMAINS}
    assert every <= set(listed)


def test_who_runs_what(tables: ModuleType) -> None:
    """Against the evaluator itself, and against what the page and the README say of Gradient."""
    nobody = set()
    for domain in tables.DOMAINS:
        for name, versions in tables.schemas(domain):
            nobody |= {name for schema in versions if tables.implementer(schema) == "nobody" and onnx.defs.has(name, domain)}
    assert nobody == {"Gradient"}
    evaluator = numbaops.ReferenceEvaluator(SMALL)
    assert "[numbaops]" in evaluator.explain() and tables.implementer(onnx.defs.get_schema("Relu", 21)) == "numbaops"


def test_functions(tables: ModuleType) -> None:
    rows = rows_of(tables.function_table())
    assert {row[0] for row in rows} - {""} == {row.op_type for row in OPERATOR_VERSIONS}
    assert len(rows) == len(OPERATOR_VERSIONS)
    assert ["", "25", "output: + uint2, int2", "`value`"] in rows  # ConstantOfShape


# Reference


def test_every_public_name_is_in_the_reference(tables: ModuleType) -> None:
    text = (DOCS / "api.md").read_text("utf-8")
    listed = set(re.findall(r"^\.\. (?:auto\w+|py:data|module|py:module):: (?:numbaops\.)?(\S+)", text, re.MULTILINE))
    assert set(numbaops.__all__) <= listed
    assert {f"memory.{name}" for name in ("trim", "stats", "enabled")} <= listed
    of_kernels = set(re.findall(r"^\.\. auto(?:function|class):: (\S+)", tables.kernel_reference(), re.MULTILINE))
    assert of_kernels == set(kernels.__all__)


def test_settings_are_explained() -> None:
    text = (DOCS / "embedding.md").read_text("utf-8")
    assert {"NUMBAOPS_CACHE_DIR", "NUMBAOPS_NUM_THREADS", "NUMBAOPS_RECYCLE_LIMIT"} <= set(re.findall(r"NUMBAOPS_[A-Z_]+", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]*)(?:#[\w-]*)?\)", page.read_text("utf-8")):
        assert not target or (page.parent / target).exists(), target


def test_modules_named_by_the_architecture_exist() -> None:
    package = Path(numbaops.__file__).parent
    text = (DOCS / "architecture.md").read_text("utf-8")
    cells = [line.split(" | ")[position] for line in text.splitlines() for position in (0, 1) if re.match(r"\| (\d+ \| )?`", line)]
    names = {name for cell in cells for name in re.findall(r"`([\w/]+(?:\.py|/))`", cell)}
    assert len(names) > 20
    assert [name for name in names if not (package / name).exists() and not list(package.glob(f"*/{name}"))] == []


# The site


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-d",
        str(tmp_path / "trees"),
        str(DOCS),
        str(tmp_path / "html"),
    ]
    path = {"PYTHONPATH": str(Path(numbaops.__file__).parents[1])}
    process = subprocess.run(command, env={**os.environ, **path}, capture_output=True, text=True, timeout=600, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    page = (tmp_path / "html" / "api.html").read_text("utf-8")
    assert [name for name in numbaops.__all__ if f'id="numbaops.{name}"' not in page and name != "memory"] == []
    page = (tmp_path / "html" / "kernels.html").read_text("utf-8")
    assert [name for name in kernels.__all__ if f'id="numbaops.kernels.{name}"' not in page] == []
    loaded = [
        (path.name, source)
        for path in (tmp_path / "html").glob("*.html")
        for source in re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', path.read_text("utf-8"))
    ]
    assert loaded == []  # it can be read without the net
