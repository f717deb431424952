"""What holds for the package as a whole: what an import loads, who imports whom, public names, documentation, versions."""

from __future__ import annotations

import ast
import doctest
import graphlib
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import numbaops
from numbaops import kernels

PACKAGE = Path(numbaops.__file__).parent
PROJECT = Path(__file__).resolve().parents[1]
SOURCES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """``engine.plan`` for ``engine/plan.py``; packages by their own name, the root as ``__init__``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path): path for path in SOURCES}


def project_file(name: str) -> str:
    path = PROJECT / name
    if not path.exists():
        pytest.skip(f"no {name} beside these tests")
    return path.read_text("utf-8")


# What an import loads


def loaded_after(code: str) -> list[str]:
    """The compilers and frameworks that a new process has loaded after the code."""
    report = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{textwrap.dedent(code)}\n{report}"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    heavy = {"numpy", "ml_dtypes", "numba", "llvmlite", "onnx", "google", "onnxruntime", "scipy", "rich", "cyclopts", "typer"}
    return [name for name in process.stdout.split() if name in heavy]


LOADED: dict[str, tuple[str, list[str]]] = {
    "package": ("import numbaops", []),
    "names and errors": ("import numbaops; numbaops.InvalidValueError, numbaops.__version__, dir(numbaops)", []),
    "subpackages": ("import numbaops.kernels, numbaops.engine, numbaops.cli", []),
    "element types": ("import numbaops; numbaops.ELEMENT_TYPES", ["ml_dtypes", "numpy"]),
    "memory": ("import numbaops; numbaops.memory.trim()", ["numpy"]),
    "functions": ("from numbaops import operator, resolve, PackedTensor, constant, constant_of_shape, eye_like", ["ml_dtypes", "numpy"]),
    "small work": (
        """
        import ml_dtypes, numbaops
        assert numbaops.constant_of_shape((2, 3), 1.5).sum() == 9
        assert numbaops.constant_of_shape((100, 100)).sum() == 0
        assert numbaops.operator("ConstantOfShape", value=7)((100, 100)).sum() == 70000
        assert numbaops.eye_like((30, 30), "bfloat16").sum() == 30
        assert numbaops.constant(value_ints=[1, 2]).sum() == 3
        tensor = numbaops.constant_of_shape((5, 7), ml_dtypes.int4(3), packed=True)
        assert tensor.unpack().astype(int).sum() == 105
        """,
        ["ml_dtypes", "numpy"],
    ),
}


@pytest.mark.parametrize(("code", "loaded"), list(LOADED.values()), ids=list(LOADED))
def test_import_loads_no_more_than_it_needs(code: str, loaded: list[str]) -> None:
    assert loaded_after(code) == loaded


@pytest.mark.parametrize("name", ["to_array", "ReferenceEvaluator"])
def test_onnx_is_loaded_without_numba(name: str) -> None:
    loaded = loaded_after(f"from numbaops import {name}")
    assert "onnx" in loaded and "numba" not in loaded


# Who imports whom


class Rule(NamedTuple):
    """Modules of the package that a module may load when it is imported, those that it may load later, and other packages."""

    at_import: str = ""
    later: str = ""
    others: str = ""


BELOW = "errors dtypes runtime kernels convert dense tensors ops opset functional casting quantization text"
RULES = {
    "__init__": Rule(),
    "__main__": Rule("cli"),
    "errors": Rule(),
    "interrupts": Rule(),
    "dtypes": Rule("errors", others="numpy ml_dtypes"),
    "runtime": Rule(),
    "runtime.settings": Rule("errors"),
    "runtime.jit": Rule("errors interrupts", "kernels", others="numba llvmlite"),
    "runtime.threads": Rule("errors runtime.settings", "kernels", others="numpy"),
    "runtime.memory": Rule("errors runtime.settings", others="numpy"),
    "kernels": Rule("runtime kernels", others="numpy numba llvmlite"),
    "convert": Rule("errors dtypes runtime", "kernels tensors", others="numpy ml_dtypes"),
    "dense": Rule("errors runtime", "kernels", others="numpy"),
    "text": Rule("errors dtypes", others="numpy"),
    "casting": Rule("errors dtypes runtime convert text casting", "kernels", others="numpy"),
    "quantization": Rule("errors dtypes runtime convert casting quantization", "kernels", others="numpy ml_dtypes"),
    "numba_types": Rule("__init__ errors dtypes numba_types", "numba_types", others="numpy numba llvmlite"),
    "tensors": Rule("errors dtypes convert", others="numpy ml_dtypes onnx"),
    "ops": Rule("errors dtypes runtime convert dense casting quantization ops", "kernels tensors", others="numpy ml_dtypes"),
    "opset": Rule("errors dtypes ops", others="numpy"),
    "functional": Rule("errors dtypes ops opset convert", others="numpy"),
    "engine": Rule(f"{BELOW} engine", BELOW, others="numpy onnx google"),
    "reference": Rule(f"{BELOW} engine", BELOW, others="numpy onnx"),
    "drawing": Rule("errors dtypes", others="numpy onnx"),
    "targets": Rule("errors"),
    "rewrite": Rule(f"{BELOW} engine reference drawing targets rewrite", BELOW, others="numpy onnx google"),
    "batches": Rule("errors dtypes engine reference rewrite", others="numpy onnx"),
    "dask": Rule("__init__ errors interrupts dtypes convert ops batches dask", others="numpy dask distributed"),
    "ray": Rule("errors batches", others="numpy"),
    "cli": Rule(
        f"{BELOW} interrupts engine reference batches drawing targets rewrite cli __init__",
        "dask",
        others="numpy onnx rich cyclopts numba onnxruntime",
    ),
}


class Import(NamedTuple):
    module: str  # within the package, or another one's name
    ours: bool
    later: bool


def imports_of(tree: ast.Module) -> Iterator[Import]:
    """The imports of a module, but for the standard library, and those for type checkers only."""

    def of(node: ast.AST, later: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names = [str(node.module)]
            if node.module == "numbaops" or str(node.module).startswith("numbaops."):  # submodules, or names in the module
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name.removeprefix("numbaops.") in MODULES else str(node.module) for name in full]
        for name in names:
            top, _, rest = name.partition(".")
            if top == "numbaops":
                yield Import(rest or "__init__", True, later)
            elif top not in sys.stdlib_module_names:
                yield Import(top, False, later)
        for child in ast.iter_child_nodes(node):
            yield from of(child, later or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))

    yield from of(tree, later=False)


def allows(allowed: str, module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed.split())


def rule_of(module: str) -> Rule:
    return RULES[max((name for name in RULES if allows(name, module)), key=len)]


@pytest.mark.parametrize("module", list(MODULES))
def test_imports_keep_to_the_layers(module: str) -> None:
    rule = rule_of(module)
    for found in imports_of(ast.parse(MODULES[module].read_text("utf-8"))):
        allowed = rule.others if not found.ours else f"{rule.at_import} {rule.later}" if found.later else rule.at_import
        assert allows(allowed, found.module), f"{module} may not import {found.module} {'later' if found.later else 'at import'}"


def test_rules_have_no_circle() -> None:
    layers: dict[str, set[str]] = {}
    for module, rule in RULES.items():
        layers.setdefault(module.partition(".")[0], set()).update(name.partition(".")[0] for name in rule.at_import.split())
    assert list(graphlib.TopologicalSorter({layer: below - {layer} for layer, below in layers.items()}).static_order())


def test_search_for_imports() -> None:
    code = """
    import os, numpy as np
    from typing import TYPE_CHECKING
    from numbaops import kernels, __version__
    from numbaops.runtime import memory
    from numbaops.runtime.jit import kernel
    if TYPE_CHECKING:
        import onnx
    try:
        import numba.core
    except ImportError:
        pass
    def f():
        from numbaops.kernels import bits
        import onnx.defs
        if True:
            from numbaops.tensors import to_array
    class C:
        import ml_dtypes
    """
    assert list(imports_of(ast.parse(textwrap.dedent(code)))) == [
        Import("numpy", False, False),
        Import("kernels", True, False),
        Import("__init__", True, False),
        Import("runtime.memory", True, False),
        Import("runtime.jit", True, False),
        Import("numba", False, False),
        Import("kernels.bits", True, True),
        Import("onnx", False, True),
        Import("tensors", True, True),
        Import("ml_dtypes", False, False),
    ]


@pytest.mark.parametrize("module", [module for module in MODULES if not module.startswith("cli")])
def test_nothing_is_printed(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.stdout.write")]
    # The evaluator's `verbose` prints by contract: onnx.reference does.
    assert all("verbose" in ast.unparse(enclosing(tree, call)) for call in calls)


def enclosing(tree: ast.Module, inner: ast.AST) -> ast.AST:
    """The innermost function around a node, or the module."""
    around: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(child is inner for child in ast.walk(node)):
            around = node
    return around


# Public names


def test_all_is_the_lazy_table() -> None:
    assert sorted(numbaops.__all__) == sorted(numbaops._HOME)
    assert len(set(numbaops.__all__)) == len(numbaops.__all__)


@pytest.mark.parametrize("name", numbaops.__all__)
def test_public_name(name: str) -> None:
    home = importlib.import_module(f"numbaops.{numbaops._HOME[name]}")
    value = getattr(numbaops, name)
    assert value is (importlib.import_module(f"numbaops.runtime.{name}") if isinstance(value, ModuleType) else getattr(home, name))
    assert name in dir(numbaops)
    assert getattr(numbaops, name) is value


@pytest.mark.parametrize("module", ["__init__", "kernels"])
def test_type_checkers_see_the_same_names(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    seen = [
        (alias.asname or alias.name, str(node.module))
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    package = numbaops if module == "__init__" else kernels
    homes = numbaops._HOME if module == "__init__" else {name: f"kernels.{home}" for name, home in kernels._HOME.items()}
    assert sorted(seen) == sorted((name, f"numbaops.{homes[name]}") for name in package.__all__)


def test_names_are_loaded_by_star() -> None:
    names: dict[str, Any] = {}
    exec("from numbaops import *", names)
    assert {name for name in names if not name.startswith("__")} == set(numbaops.__all__)


@pytest.mark.parametrize("package", [numbaops, kernels], ids=["numbaops", "numbaops.kernels"])
def test_unknown_attribute(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018
    assert not hasattr(package, "__path_to_nowhere__")
    with pytest.raises(ImportError):
        exec(f"from {package.__name__} import nonsense")


def test_kernels_are_the_lazy_table() -> None:
    assert sorted(kernels.__all__) == sorted(kernels._HOME)
    for name in kernels.__all__:
        home = importlib.import_module(f"numbaops.kernels.{kernels._HOME[name]}")
        assert getattr(kernels, name) is getattr(home, name)
    helpers = {"__init__", "recurrent_vectors", "row_vectors", "vectors", "window_vectors"}  # which hold no kernels
    assert {path.stem for path in (PACKAGE / "kernels").glob("*.py")} - helpers == set(kernels._MODULES)


# Documentation


def documented() -> Iterator[Any]:
    for name in numbaops.__all__:
        value = getattr(numbaops, name)
        if not isinstance(value, tuple):
            yield pytest.param(value, id=name)
    for name in ("trim", "stats", "enabled"):
        yield pytest.param(getattr(numbaops.memory, name), id=f"memory.{name}")
    for name in kernels.__all__:
        yield pytest.param(getattr(kernels, name), id=f"kernels.{name}")


@pytest.mark.parametrize("value", list(documented()))
def test_public_names_have_docstrings(value: Any) -> None:
    text = inspect.getdoc(value)
    assert text and text.split("\n\n")[0].endswith((".", ":")), text
    if inspect.isclass(value):
        assert value.__doc__ and value.__doc__ is not value.__mro__[1].__doc__
        for name, member in vars(value).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert inspect.getdoc(getattr(value, name)), f"{value.__name__}.{name}"


@pytest.mark.parametrize(
    "value", [pytest.param(getattr(numbaops, name), id=name) for name in numbaops.__all__ if inspect.isfunction(getattr(numbaops, name))]
)
def test_docstrings_name_every_argument(value: Any) -> None:
    text = inspect.getdoc(value) or ""
    if "Args:" not in text:
        assert len(inspect.signature(value).parameters) <= 1
        return
    for name in inspect.signature(value).parameters:
        assert re.search(rf"^ +{name}: ", text, re.MULTILINE), f"{value.__name__} does not say what {name} is"


WITH_EXAMPLES = [module for module, path in MODULES.items() if ">>> " in path.read_text("utf-8")]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"numbaops.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_there_are_examples() -> None:
    assert "functional" in WITH_EXAMPLES


def test_first_example_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"^```python\n(.*?)^```$", project_file("README.md"), re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["batch"].shape == (999, 64)
    assert names["mask"].astype(int).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert capsys.readouterr().out.startswith("PackedTensor(int4, shape=(3, 5), 8 bytes) [255 255 255")


def test_readme_lists_the_settings() -> None:
    used = {name for path in SOURCES for name in re.findall(r"NUMBAOPS_[A-Z_]+", path.read_text("utf-8"))}
    assert used
    assert set(re.findall(r"NUMBAOPS_[A-Z_]+", project_file("README.md"))) == used


# Files and versions


def test_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+([.-]?(dev|a|b|rc)\d+)?", numbaops.__version__)
    project = tomllib.loads(project_file("pyproject.toml"))
    assert "version" not in project["project"] and "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/numbaops/__init__.py"  # so there is one version only
    newest = re.search(r"^## (\S+)", project_file("CHANGELOG.md"), re.MULTILINE)
    assert newest and newest[1] == numbaops.__version__


def test_python_versions_agree() -> None:
    project = tomllib.loads(project_file("pyproject.toml"))
    oldest = project["project"]["requires-python"].removeprefix(">=")
    listed = [line.rpartition(" ")[2] for line in project["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert listed[0] == oldest == project["tool"]["mypy"]["python_version"]
    assert f"Python {oldest}" in project_file("README.md")


def test_oldest_versions_are_the_lower_bounds() -> None:
    project = tomllib.loads(project_file("pyproject.toml"))
    bounds = dict(line.split(">=") for line in project["project"]["dependencies"])
    tested = dict(line.split("==") for line in project_file(".ci/oldest.txt").split())
    assert {name: f"{bound}.0" for name, bound in bounds.items()} == tested


def test_extras_agree() -> None:
    extras = tomllib.loads(project_file("pyproject.toml"))["project"]["optional-dependencies"]
    assert set(extras) == {"cli", "dask", "test", "bench", "docs", "dev"}
    used = {
        found.module
        for module, path in MODULES.items()
        if module.startswith("cli")
        for found in imports_of(ast.parse(path.read_text("utf-8")))
        if not found.ours
    }
    names = {re.split(r"[\[>=]", line)[0] for line in extras["cli"]}
    assert names == used & {"rich", "cyclopts", "typer", "click"}
