"""``numbaops check``: what would become of a model, without running it or reading its weights."""

from __future__ import annotations

import collections
import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, TypeProto, helper
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor, uses_external_data
from onnx.reference import op_run

from numbaops.cli import report
from numbaops.cli.estimate import Estimate, estimate, function_key, nodes_in, recursion, weight_tensors
from numbaops.cli.inputs import Declared, declared_inputs, declared_outputs, dimensions, shape_text, type_text
from numbaops.dtypes import BY_CODE
from numbaops.engine.load import InvalidModelError, canonical_domain, canonical_node, check_size, imports_of
from numbaops.engine.signature import node_label, signature_of
from numbaops.engine.validity import check_valid
from numbaops.errors import InvalidValueError, UnsupportedError
from numbaops.reference import ReferenceEvaluator

NOT_ALL_FINE = 3
"""Exit status if something keeps the model from running, or ``onnx.checker`` refuses it."""

_NAMES_SHOWN = 3

_WHERE = {
    "nobody": "unsupported",
    "onnx.reference": "onnx.reference",
    "function": "function, see its nodes",
    "numbaops": "numbaops",
}
"""Where nodes run, those that ask for attention first, and the table's words for it."""


@dataclass(slots=True)
class Operator:
    """The nodes of an operator version.

    Attributes:
        domain: of the operator; ``""`` is ONNX's own.
        operator: its name.
        since_version: the version, or None if the installed onnx knows no such operator.
        where: a key of ``_WHERE``; ``"function"`` is one of the model or of ONNX's own definition.
        reason: why it cannot run, or "".
        nodes: the names of the nodes, or of the first value that each computes.
    """

    domain: str
    operator: str
    since_version: int | None
    where: str
    reason: str
    nodes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ExternalFile:
    """A file that holds tensors of a model: how many and how large they are, and what is wrong with it, or ""."""

    file: str
    tensors: int = 0
    bytes: int = 0
    problem: str = ""


def check_model(path: Path, *, dims: Sequence[str], as_json: bool) -> int:
    """Print what is known of a model; the exit status is 0 if it runs and is valid, else :data:`NOT_ALL_FINE`."""
    model = _load(path)
    inputs, outputs = declared_inputs(model), declared_outputs(model)
    sizes = dimensions(inputs, {}, dims)
    found = operators(model)
    files = external_files(weight_tensors(model), path.absolute().parent)
    refusal = checker_refusal(model)
    memory = estimate(model, sizes)

    problems = [f"{report.count(len(one.nodes), 'node')} of {_title(one)}: {one.reason}" for one in found if one.where == "nobody"]
    problems += [f"{one.file}: {one.problem}" for one in files if one.problem]
    problems += [text] if (text := recursion(model)) else []
    problems += too_new(model)
    problems += ["onnx.checker refuses it"] if refusal else []
    facts = {
        "model": path.name,
        "file_bytes": path.stat().st_size,
        "ir_version": model.ir_version,
        "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
        "opsets": {report.domain_name(one.domain): one.version for one in model.opset_import},
        "inputs": [_declared(one) for one in inputs],
        "outputs": [{name: value for name, value in _declared(one).items() if name != "required"} for one in outputs],
        "operators": [{**dataclasses.asdict(one), "domain": report.domain_name(one.domain), "count": len(one.nodes)} for one in found],
        "external_data": [dataclasses.asdict(one) for one in files],
        "checker": {"valid": not refusal, "message": refusal},
        "memory": dataclasses.asdict(memory),
        "fine": not problems,
        "problems": problems,
    }
    if as_json:
        report.print_json(facts)
    else:
        _print(facts, inputs, outputs, found, files, memory)
    return NOT_ALL_FINE if problems else 0


def _load(path: Path) -> ModelProto:
    check_size(path)
    try:
        model = onnx.load(path, load_external_data=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of protobuf, or of the parser that the file's name asks for
        raise InvalidModelError(f"the file {str(path)!r} is not an ONNX model, or is cut short ({error})") from error
    if not model.HasField("graph"):
        raise InvalidModelError(f"the file {str(path)!r} holds no ONNX model: there is no graph in it")
    return model


# ------------------------------------------------------------------------------------------------------------------ operators


def operators(model: ModelProto) -> list[Operator]:
    """Every operator version of a model, of its bodies and functions, those that cannot run first."""
    functions = {function_key(each): each for each in model.functions}
    found: dict[tuple[Any, ...], Operator] = {}
    for body in (model.graph, *model.functions):
        scope = _Scope(body if isinstance(body, FunctionProto) else model, functions)
        for node in nodes_in(body.node):
            place = scope.place(node)
            key = dataclasses.astuple(place)[:4]
            found.setdefault(key, place).nodes.append(node_label(node))
    order = list(_WHERE)
    return sorted(found.values(), key=lambda one: (order.index(one.where), -len(one.nodes), one.operator))


class _Scope:
    """Nodes that are under the same opset imports.

    An evaluator without nodes is asked what it would run them with: so this cannot differ from what loading the model does, and
    needs neither weights nor a node that can be loaded.
    """

    def __init__(self, proto: ModelProto | FunctionProto, functions: Mapping[tuple[str, str, str], FunctionProto]) -> None:
        self._opsets = imports_of(proto, None)
        self._functions = functions
        empty = helper.make_graph([], "empty", [], [])
        imports = [helper.make_opsetid(domain, version) for domain, version in self._opsets.items()]
        self._evaluator = ReferenceEvaluator(helper.make_model(empty, opset_imports=imports))
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}

    def place(self, node: NodeProto) -> Operator:
        """The operator of a node, and where it would run."""
        if not isinstance(node.op_type, str):  # protobuf leaves what is no UTF-8 as bytes
            return Operator(str(node.domain), repr(node.op_type), None, "nobody", "the operator's name is no UTF-8")
        domain = canonical_domain(node.domain)
        key = domain, node.op_type, node.overload
        if key not in self._known:
            self._known[key] = self._look_up(canonical_node(node), *key)
        signature = signature_of(domain, node.op_type, self._opsets.get(domain))
        return Operator(domain, node.op_type, None if signature is None else signature.since_version, *self._known[key])

    def _look_up(self, node: NodeProto, domain: str, op_type: str, overload: str) -> tuple[str, str]:
        if domain in self._opsets and not onnx.defs.has(op_type, domain):
            if (domain, op_type, overload) in self._functions:
                return "function", ""
            if any((domain, op_type) == each[:2] for each in self._functions):
                return "nobody", f"the model's function of that name has no overload {overload!r}"
        try:
            made = self._evaluator._load_impl(node)
        except op_run.RuntimeContextError:  # ONNX defines it by other operators, depending on the types of its inputs
            return "function", ""
        except UnsupportedError as error:
            return "nobody", str(error.args[0])
        except Exception as error:  # what onnx.reference raises has no common base
            return "nobody", " ".join(str(error).split())
        home = getattr(made, "func", made)
        if not isinstance(home, type):
            return "function", ""
        return ("onnx.reference" if home.__module__.startswith("onnx.") else "numbaops"), ""


# -------------------------------------------------------------------------------------------------------- external data, checker


def external_files(tensors: Iterable[TensorProto], folder: Path) -> list[ExternalFile]:
    """The files that tensors are stored in, and what is wrong with each."""
    files: dict[str, ExternalFile] = {}
    for tensor in filter(uses_external_data, tensors):
        try:
            where = ExternalDataInfo(tensor)
        except (ValueError, TypeError) as error:
            files.setdefault(tensor.name, ExternalFile("", 1, 0, f"tensor {tensor.name!r} does not say where it is: {error}"))
            continue
        one = files.setdefault(where.location, ExternalFile(where.location))
        row = BY_CODE.get(tensor.data_type)
        needed = math.ceil(math.prod(tensor.dims) * row.bits / 8) if row is not None else 0
        one.tensors += 1
        one.bytes += needed
        if not one.problem:
            one.problem = _problem(folder, where, tensor.name, needed)
    return list(files.values())


def _problem(folder: Path, where: ExternalDataInfo, name: str, needed: int) -> str:
    path, offset = folder / where.location, where.offset or 0
    if not where.location or not path.exists():
        return "there is no such file" if where.location else f"tensor {name!r} does not name its file"
    if where.length and where.length != needed:  # 0 is for none
        return f"tensor {name!r} takes {needed} bytes, and the model gives it {where.length}"
    there = os.stat(path).st_size
    if offset < 0 or offset + needed > there:
        return f"tensor {name!r} would end at byte {offset + needed}, and the file has {there}"
    if needed:
        # onnx decides which files may be read; it does so before it reads this one byte
        probe = TensorProto(name=name, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", where.location), ("offset", offset), ("length", 1)):
            probe.external_data.add(key=key, value=str(value))
        try:
            load_external_data_for_tensor(probe, str(folder))
        except (onnx.checker.ValidationError, ValueError, OSError) as error:
            return " ".join(str(error).split())
    return ""


def too_new(model: ModelProto) -> list[str]:
    """What a model imports that the installed onnx does not know yet."""
    newest = {"": onnx.defs.onnx_opset_version()}
    return [
        f"opset {version} is newer than onnx {onnx.__version__} knows, whose newest is {newest[domain]}"
        for domain, version in imports_of(model, None).items()
        if domain in newest and version > newest[domain]
    ]


def checker_refusal(model: ModelProto) -> str:
    """What ``onnx.checker`` has against a model, or ""."""
    try:
        check_valid(model, imports_of(model, None))
    except InvalidValueError as error:
        # what follows repeats the node, with all that it holds
        return str(error.args[0]).removeprefix("strict: the model is not valid ONNX: ").partition(" ==> Context")[0]
    return ""


# ------------------------------------------------------------------------------------------------------------------- printing


def _declared(one: Declared) -> dict[str, Any]:
    tensor = one.type.tensor_type
    known = one.type.WhichOneof("value") == "tensor_type" and tensor.HasField("shape")
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim] if known else None
    return {"name": one.name, "type": type_text(one.type), "shape": shape, "required": one.required}


def _title(one: Operator) -> str:
    name = one.operator if one.since_version is None else f"{one.operator}-{one.since_version}"
    return f"{one.domain}.{name}" if one.domain else name


def _where_text(one: Operator) -> str:
    text = _WHERE[one.where] + (f": {one.reason}" if one.reason else "")
    if one.where in ("numbaops", "function"):
        return text
    more = len(one.nodes) - _NAMES_SHOWN
    return f"{text}; nodes: {', '.join(one.nodes[:_NAMES_SHOWN])}" + (f" and {more} more" if more > 0 else "")


def _print(
    facts: Mapping[str, Any],
    inputs: Sequence[Declared],
    outputs: Sequence[Declared],
    found: Sequence[Operator],
    files: Sequence[ExternalFile],
    memory: Estimate,
) -> None:
    opsets = ", ".join(f"{domain} {version}".removeprefix("ai.onnx ") for domain, version in facts["opsets"].items()) or "none"
    producer = f", by {facts['producer']}" if facts["producer"] else ""
    size = report.size(facts["file_bytes"])
    report.print_line(f"{facts['model']}: {size}, IR version {facts['ir_version']}, opset {opsets}{producer}")
    needed = [one for one in inputs if one.required]
    rows = [(what, one.name, *_type_cells(one.type)) for what, many in (("input", needed), ("output", outputs)) for one in many]
    report.print_table(("", "name", "type", "shape"), rows)
    if more := len(inputs) - len(needed):
        report.print_line(f"and {report.count(more, 'input')} with a default")
    report.print_table(
        ("operator", "since", "nodes", "runs in"),
        (
            (
                f"{one.domain}.{one.operator}" if one.domain else one.operator,
                str(one.since_version or "-"),
                str(len(one.nodes)),
                _where_text(one),
            )
            for one in found
        ),
        numbers=("since", "nodes"),
    )
    for one in files:
        what = f"{report.count(one.tensors, 'tensor')}, {report.size(one.bytes)}"
        report.print_line(f"external data {one.file}: {what}, {one.problem or 'found'}")
    refusal = facts["checker"]["message"]
    report.print_line(f"onnx.checker: {'refused: ' + refusal if refusal else 'valid'}")
    outside = f", {report.size(memory.external_bytes)} of it in other files" if memory.external_bytes else ""
    report.print_line(f"weights: {report.size(memory.weight_bytes)}{outside}")
    report.print_line(f"values between nodes: {_values_text(memory)}")
    if facts["problems"]:
        report.print_line("not all fine: " + "; ".join(facts["problems"]))
    else:
        counted = collections.Counter({where: sum(len(one.nodes) for one in found if one.where == where) for where in _WHERE})
        fallen = counted["onnx.reference"]
        total = report.count(counted.total(), "node")
        report.print_line(f"all fine: {total}" + (f", {fallen} of them by onnx.reference" if fallen else ", none by onnx.reference"))


def _type_cells(declared: TypeProto) -> tuple[str, str]:
    return type_text(declared), shape_text(declared)


def _values_text(memory: Estimate) -> str:
    """What is known of the memory that values take at once."""
    if memory.failure:
        return f"unknown, for shape inference fails: {memory.failure}"
    if not memory.unknown_values:
        return f"about {report.size(memory.peak_bytes)} at once" + (f", at {memory.peak_node}" if memory.peak_node else "")
    least = f"at least {report.size(memory.peak_bytes)} at once; " if memory.known_values else ""
    text = f"{least}{memory.unknown_values} of {memory.known_values + memory.unknown_values} are of unknown size"
    return text + (f", give {' '.join(f'--dim {name}=SIZE' for name in memory.symbols)}" if memory.symbols else "")
