"""The tables of the documentation, as Markdown, made anew whenever the site is built: of element types, operators and settings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator, Sequence

import ml_dtypes
import numpy as np
import onnx
import onnx.defs

from numbaops import kernels
from numbaops.dtypes import BFLOAT16, ELEMENT_TYPES, FNUZ, IEEE, OCP_FP8, OCP_MX, ElementType
from numbaops.engine.control_flow import control_flow
from numbaops.engine.nodes import own_implementation
from numbaops.opset import NEWEST_OPSET, operators
from numbaops.tensors import to_array

_SOURCES = {BFLOAT16: "bfloat16", FNUZ: "FNUZ", IEEE: "IEEE 754", OCP_FP8: "OCP FP8", OCP_MX: "OCP MX"}
DOMAINS = {"": "ONNX's own operators", "ai.onnx.ml": "ai.onnx.ml", "ai.onnx.preview.training": "ai.onnx.preview.training"}
_ORDER = {row.name: row.code for row in ELEMENT_TYPES}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# Element types


def low_bit_types() -> list[ElementType]:
    """The types that NumPy itself lacks."""
    return [row for row in ELEMENT_TYPES if row.dtype.type.__module__ == "ml_dtypes"]


def values_of(row: ElementType) -> np.ndarray:
    """The value of every code of a type, as float64."""
    if row.bits == 16:  # bfloat16, the upper half of float32
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.arange(1 << row.bits, dtype=np.uint8).view(row.dtype).astype(np.float64)


def number(value: float) -> str:
    """A number in full where that is short; tiny ones as powers of two."""
    if (value and abs(value) < 2**-4) or abs(value) > 2**20:
        mantissa, exponent = np.frexp(value)
        factor = f"{2 * mantissa:g} x " if mantissa != 0.5 else ""
        return f"{factor}2^{exponent - 1}"
    return f"{value:g}"


def spans(codes: Sequence[int], bits: int) -> str:
    """Codes in hexadecimal, as ranges."""
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    digits = -(-bits // 4)
    return ", ".join(f"0x{first:0{digits}x}" + (f" to 0x{last:0{digits}x}" if last > first else "") for first, last in found) or "none"


def float_formats() -> str:
    """The floating-point types: worked out from every code, beside what the table of the package says."""
    rows = []
    for row in low_bit_types():
        layout = row.format
        if layout is None:
            continue
        values = values_of(row)
        finite = values[np.isfinite(values)]
        positive = np.sort(finite[finite > 0])
        normal = float(ml_dtypes.finfo(row.dtype).smallest_normal)
        rows.append(
            [
                row.name,
                f"`{row.dtype.name}`",
                str(row.bits),
                f"{int(layout.signed)}/{layout.exponent_bits}/{layout.mantissa_bits}",
                str(layout.bias),
                number(float(positive[-1])),
                number(normal),
                number(float(positive[0])),
                spans(np.flatnonzero(np.isnan(values)).tolist(), row.bits),
                spans(np.flatnonzero(np.isinf(values)).tolist(), row.bits),
                ("yes" if layout.negative_zero else "no") if layout.zero else "no zero at all",
                f"[{_SOURCES[layout.source]}]({layout.source})",
            ]
        )
    head = (
        "ONNX type",
        "dtype",
        "bits",
        "S/E/M",
        "bias",
        "largest",
        "smallest normal",
        "smallest",
        "NaN codes",
        "infinity codes",
        "-0",
        "source",
    )
    return table(head, rows)


def integer_types() -> str:
    """The integer types below 8 bits."""
    rows = []
    for row in low_bit_types():
        if row.kind in ("signed", "unsigned"):
            info = ml_dtypes.iinfo(row.dtype)
            rows.append([row.name, f"`{row.dtype.name}`", str(row.bits), str(info.min), str(info.max), str(8 // row.bits)])
    return table(("ONNX type", "dtype", "bits", "least", "largest", "elements in a byte of `raw_data`"), rows)


def element_types() -> str:
    """Every element type of ONNX."""
    rows = [
        [str(row.code), row.name, f"`{row.dtype.name}`", str(row.bits) if row.bits else "any", "yes" if row.packed else ""]
        for row in ELEMENT_TYPES
    ]
    return table(("number", "ONNX type", "dtype of arrays", "bits", "packed in `raw_data`"), rows)


# Operators


def _names(types: Iterable[str]) -> list[str]:
    plain = (each[len("tensor(") : -1] if each.startswith("tensor(") else each for each in types)
    return sorted(plain, key=lambda name: (_ORDER.get(name, 1 << 10), name))


def _added(now: list[str], before: list[str] | None) -> str:
    """The types of a version: all, or what came new."""
    if before == now:
        return ""
    if before and set(before) < set(now):
        return "+ " + ", ".join(name for name in now if name not in before)
    return ", ".join(now)


def _changes(now: dict[str, list[str]], before: dict[str, list[str]]) -> str:
    """The types of every parameter of a version, as far as they are others than in the version before."""
    names: dict[str, list[str]] = {}
    for name, types in now.items():
        if change := _added(types, before.get(name)):
            names.setdefault(change, []).append(name)
    gone = [f"no {name}" for name in before if name not in now]
    return "; ".join([*(f"{', '.join(each)}: {change}" for change, each in names.items()), *gone]) or "as before"


def function_table() -> str:
    """What ``numbaops.operator`` offers: operators x versions x element types."""
    rows = []
    for name, versions in operators():
        before: dict[str, list[str]] = {}
        for version in versions:
            values = {**version.inputs, **version.outputs}
            now = {key: _names(map(str, types)) for key, types in values.items()}
            attributes = ", ".join(f"`{key}`" for key in version.attributes)
            rows.append(["" if before else name, str(version.since_version), _changes(now, before), attributes])
            before = now
    return table(("operator", "since opset", "element types", "attributes"), rows)


def implementer(schema: onnx.defs.OpSchema) -> str:
    """Who runs an operator version in a model: numbaops, the function that ONNX defines it by, onnx.reference, or nobody."""
    domain, name, since = schema.domain, schema.name, schema.since_version
    if domain == "" and control_flow(name, since) is not None:
        return "numbaops"
    if own_implementation(domain, name, since, check_types=False, read_external=to_array) is not None:
        return "numbaops"
    if schema.has_function or schema.has_context_dependent_function:
        return "its function"
    loader = {"": "ops", "ai.onnx.ml": "ops.aionnxml", "ai.onnx.preview.training": "ops.aionnx_preview_training"}[domain]
    try:
        importlib.import_module(f"onnx.reference.{loader}").load_op(domain, name, since)
    except (NotImplementedError, AssertionError):
        return "nobody"
    return "onnx.reference"


def schemas(domain: str) -> Iterator[tuple[str, list[onnx.defs.OpSchema]]]:
    """Every operator of a domain with its versions, oldest first."""
    by_name: dict[str, list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == domain:
            by_name.setdefault(schema.name, []).append(schema)
    for name in sorted(by_name):
        yield name, sorted(by_name[name], key=lambda schema: schema.since_version)


def model_table(domain: str) -> str:
    """What models may hold: operators x versions x element types, as the installed onnx defines them, and who runs them."""
    rows = []
    for name, versions in schemas(domain):
        before: dict[str, list[str]] = {}
        for schema in versions:
            now = {one.type_param_str: _names(one.allowed_type_strs) for one in schema.type_constraints}
            title = f"[{name}](https://onnx.ai/onnx/operators/onnx_{domain.replace('.', '')}_{name}.html)"
            note = " (deprecated)" if schema.deprecated else ""
            rows.append(
                [title if schema is versions[0] else "", f"{schema.since_version}{note}", implementer(schema), _changes(now, before)]
            )
            before = now
    return table(("operator", "since opset", "run by", "element types"), rows)


def model_tables() -> str:
    """The tables of all domains, with counts."""
    parts = [f"Made with onnx {onnx.__version__}; opsets up to {NEWEST_OPSET} of ONNX's own domain."]
    for domain, title in DOMAINS.items():
        found = [schema for _, versions in schemas(domain) for schema in versions]
        who: dict[str, int] = {}
        for schema in found:
            who[implementer(schema)] = who.get(implementer(schema), 0) + 1
        counts = ", ".join(f"{count} by {name}" for name, count in sorted(who.items(), key=lambda item: -item[1]))
        parts += [
            f"## {title}",
            f"{len({schema.name for schema in found})} operators in {len(found)} versions: {counts}.",
            model_table(domain),
        ]
    return "\n\n".join(parts)


# Kernels


def kernel_reference() -> str:
    """Directives for every kernel, by module."""
    parts = []
    for module in kernels._MODULES:
        home = importlib.import_module(f"numbaops.kernels.{module}")
        lines = [f".. automodule:: {home.__name__}", "   :no-index:", f".. currentmodule:: {kernels.__name__}"]
        names = [name for name in kernels.__all__ if kernels._HOME[name] == module]
        lines += [f".. auto{'class' if inspect.isclass(getattr(home, name)) else 'function'}:: {name}" for name in names]
        parts += [f"## {module}", "\n".join(["```{eval-rst}", *lines, "```"])]
    return "\n\n".join(parts)


TABLES = {
    "float-formats": float_formats,
    "integer-types": integer_types,
    "element-types": element_types,
    "functions": function_table,
    "models": model_tables,
    "kernels": kernel_reference,
}
"""By the name that pages call them."""
