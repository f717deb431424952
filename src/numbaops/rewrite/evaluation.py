"""Single nodes computed by the engine, as far as that is allowed: within a number of bytes, and neither random nor unknown."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx.defs
import onnx.shape_inference
from onnx import FunctionProto, ModelProto, NodeProto, TypeProto, helper

from numbaops.dtypes import BY_CODE, of_dtype
from numbaops.engine.calls import DeferredFunction
from numbaops.engine.control_flow import ControlFlow, Loop
from numbaops.engine.external import ExternalData
from numbaops.engine.functions import references
from numbaops.engine.load import Source, canonical_domain, imports_of
from numbaops.engine.signature import RANDOM, signature_of
from numbaops.engine.steps import Step
from numbaops.engine.values import as_value, several, shared
from numbaops.errors import InvalidTypeError, UnsupportedError
from numbaops.reference import ReferenceEvaluator
from numbaops.rewrite.names import bodies, nodes_in
from numbaops.tensors import from_array

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""

MOST_TRIPS = 1 << 12
"""Trips of a Loop up to which it is run ahead."""

_LOOPS = frozenset(("Loop", "Scan", "SequenceMap"))

_ESTIMATED_FROM = 1 << 20
"""Bytes of inputs from which the size of an output is looked at before it is computed: that takes as long as a small node."""

_GROWING = frozenset(
    (
        "AffineGrid",
        "BlackmanWindow",
        "CenterCropPad",
        "Col2Im",
        "ConstantOfShape",
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "DeformConv",
        "DFT",
        "EyeLike",
        "Expand",
        "HammingWindow",
        "HannWindow",
        "ImageDecoder",
        "MaxUnpool",
        "MelWeightMatrix",
        "OneHot",
        "Pad",
        "QLinearConv",
        "Range",
        "Resize",
        "STFT",
        "Tile",
        "Upsample",
    )
)
"""Operators whose output may be larger than one element for each way to take one of each input."""

_TRAFFIC = 16
"""How many times the bytes that one value may take all values may that a body or function computes on the way."""

_SHAPE_ELEMENTS = 1 << 6
"""Elements of inputs up to which the estimate is told their values, which may be a shape."""


class LeftError(Exception):
    """A node that depends on no graph input, and is left as it is.

    Args:
        reason: why, in a word or two.
        detail: what there is to say beside.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def key_of(called: FunctionProto | NodeProto) -> Key:
    """Domain, name and overload of a function, or of the one that a node may call."""
    name = called.name if isinstance(called, FunctionProto) else called.op_type
    return canonical_domain(called.domain), name, called.overload


@dataclass(slots=True)
class _Budget:
    """What the values that a body or function computes may take.

    Attributes:
        each: bytes of one of them.
        left: bytes of all that are still to come.
    """

    each: int
    left: int

    def count(self, values: Sequence[Any]) -> None:
        """Take values into account."""
        sizes = [logical_bytes(value) for value in values]
        self.left -= sum(sizes)
        if self.left < 0 or max(sizes, default=0) > self.each:
            raise LeftError("max_tensor", f"{max(sizes)} bytes, of many" if self.left < 0 else f"{max(sizes)} bytes")


_budget: ContextVar[_Budget | None] = ContextVar("_budget", default=None)


class _Careful(ReferenceEvaluator):
    """An evaluator whose bodies and functions look at the size of a value before they compute it."""

    @functools.cached_property
    def steps(self) -> list[Step]:
        return [step if isinstance(step.node, ControlFlow) else self._guarded(step) for step in super().steps]

    def body(self, often: bool = True, known: Mapping[str, Any] = MappingProxyType({})) -> Callable[..., Sequence[Any]]:
        """As it is, but what it gives counts, as a Loop may keep it for each trip."""
        body = super().body(often, known)

        def counted(*values: Any) -> Sequence[Any]:
            found = body(*values)
            budget = _budget.get()
            if budget is not None:
                budget.count(found)
            return found

        return counted

    def _guarded(self, step: Step) -> Step:
        function, node, opsets = step.fast.function, step.node.onnx_node, self.opsets_

        def guarded(*values: Any) -> Any:
            budget = _budget.get()
            if budget is not None:
                _check_size(_estimated(node, values, opsets), budget.each)
            found = function(*values)
            if budget is not None:
                budget.count(several(found, len(step.outputs)))
            return found

        fast = replace(step.fast, function=guarded, ufunc=None, elementwise=False, compound=False, lazy=None, prepared=None)
        return replace(step, fast=fast)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise LeftError("max_tensor", f"{size} bytes")


class Scope:
    """Nodes that are under the same opset imports.

    Args:
        proto: what has the imports.
        functions: those of the model.
        external: reads tensors that are in other files.
    """

    def __init__(self, proto: ModelProto | FunctionProto, functions: Mapping[Key, FunctionProto], external: ExternalData) -> None:
        self.opsets = imports_of(proto, None)
        self.functions = functions
        self._external = external
        self._evaluators: dict[frozenset[Key], _Careful] = {}

    def _evaluator(self, called: frozenset[Key]) -> _Careful:
        """An evaluator without nodes that knows the called functions; of the others it may be unable to load some."""
        if called not in self._evaluators:
            graph = helper.make_graph([], "none", [], [])
            imports = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
            model = helper.make_model(graph, opset_imports=imports, functions=[self.functions[key] for key in sorted(called)])
            self._evaluators[called] = _Careful(Source(model, self._external), exact=True)
        return self._evaluators[called]

    def inside(self, node: NodeProto) -> Iterator[tuple[NodeProto, Mapping[str, int]]]:
        """A node, those of its bodies, and those of functions that these call, each with its opsets."""
        seen: set[Key] = set()
        todo = [(node, self.opsets)]
        while todo:
            outer, opsets = todo.pop()
            for one in nodes_in([outer]):
                yield one, opsets
                if self.is_call(one) and (key := key_of(one)) not in seen:
                    seen.add(key)
                    function = self.functions[key]
                    imports = imports_of(function, None)
                    todo.extend((each, imports) for each in function.node)

    def is_call(self, node: NodeProto) -> bool:
        """Whether a node calls a function of the model; one that is named like an operator of ONNX does not replace it."""
        return bool(self.functions) and key_of(node) in self.functions and not onnx.defs.has(node.op_type, canonical_domain(node.domain))

    def unknown(self, node: NodeProto) -> str:
        """The first operator in a node that nobody knows, or "". It may do more than compute its outputs."""
        return self._unknown(self.inside(node))

    def _unknown(self, inside: Iterable[tuple[NodeProto, Mapping[str, int]]]) -> str:
        for one, opsets in inside:
            domain = canonical_domain(one.domain)
            if not self.is_call(one) and signature_of(domain, str(one.op_type), opsets.get(domain)) is None:
                return ".".join(filter(None, (domain, str(one.op_type))))
        return ""

    def compute(
        self, node: NodeProto, inputs: Sequence[Callable[[], Any]], outer: Mapping[str, Callable[[], Any]], limit: int
    ) -> list[Any]:
        """The outputs of a node.

        Args:
            node: the node.
            inputs: what gives its inputs.
            outer: what gives the values that its bodies take.
            limit: bytes that the outputs may take.

        Raises:
            LeftError: the node must not run ahead, or cannot.
        """
        inside = list(self.inside(node))
        if unknown := self._unknown(inside):
            raise LeftError("unknown operator", unknown)
        if any(one.op_type in RANDOM and canonical_domain(one.domain) == "" for one, _ in inside):
            raise LeftError("random")
        if references([node]):
            raise LeftError("attribute of the function")
        called = frozenset(key_of(one) for one, _ in inside if self.is_call(one))
        try:
            step = self._evaluator(called).step_of(node)
        except UnsupportedError as error:
            raise LeftError("unknown operator", str(error.args[0])) from error
        except Exception as error:  # of operators, which have no common base; a run says so as well
            raise LeftError("fails", _text(error)) from error
        self._check_pure(step)
        try:
            values = [get() for get in inputs][: len(step.inputs)]
            if isinstance(step.node, Loop):
                _check_trips(values)
            if not step.fast.lazy:
                _check_size(_estimated(node, values, self.opsets), limit)
            values += [outer[name]() for name in step.captured]
            with np.errstate(all="ignore"), _limited(_Budget(limit, limit * _TRAFFIC)):
                found = step.fast.lazy(*values) if step.fast.lazy else step.fast.function(*values)
            return [shared(as_value(value)) for value in several(found, len(step.outputs))]
        except LeftError:
            raise
        except MemoryError as error:
            raise LeftError("memory", _text(error)) from error
        except Exception as error:
            if (left := _left_inside(error)) is not None:
                raise left from error
            raise LeftError("fails", _text(error)) from error

    def _check_pure(self, step: Step) -> None:
        node = step.node
        pure = step.fast.pure or isinstance(node, DeferredFunction)
        if isinstance(node, ControlFlow):  # which a plan leaves because they may take long
            pure = all(graph.pure for graph in node.graphs.values())
        if pure:
            return
        if any(one.op_type in _LOOPS for one, _ in self.inside(node.onnx_node)):
            raise LeftError("loop", "inside of it")
        raise LeftError("random")


@contextmanager
def _limited(budget: _Budget) -> Iterator[None]:
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def _left_inside(error: BaseException | None) -> LeftError | None:
    """What a body or function was left for."""
    while error is not None and not isinstance(error, LeftError):
        error = error.__cause__ or error.__context__
    return error


def _check_trips(values: Sequence[Any]) -> None:
    trips = values[0] if values else None
    if trips is None or np.size(trips) != 1 or int(np.reshape(trips, ())) > MOST_TRIPS:
        raise LeftError("loop", "without a number of trips" if trips is None else f"of more than {MOST_TRIPS} trips")


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def logical_bytes(value: Any) -> int:
    """Bytes of a value as an array of its own."""
    return math.prod(value.shape) * value.itemsize if isinstance(value, np.ndarray) else sum(map(logical_bytes, value or ()))


def _estimated(node: NodeProto, values: Sequence[Any], opsets: Mapping[str, int]) -> int:
    """Bytes of the outputs, as shape inference has them; 0 where they are surely few, or nothing is known."""
    domain = canonical_domain(node.domain)
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if (domain, node.op_type) == ("", "Range"):
        start, limit, delta = (float(np.reshape(value, ())) for value in values)
        return int(max(0, (limit - start) / delta)) * arrays[0].itemsize if delta else 0
    if (domain != "" or node.op_type not in _GROWING) and _at_most(values) < _ESTIMATED_FROM:
        return 0
    signature = signature_of(domain, node.op_type, opsets.get(domain))
    if signature is None or any(bodies(node)):
        return 0
    given = {name: value for name, value in zip(node.input, values, strict=False) if name and isinstance(value, np.ndarray)}
    try:
        types = {name: helper.make_tensor_type_proto(of_dtype(value.dtype).code, value.shape) for name, value in given.items()}
        known = {name: from_array(value, name) for name, value in given.items() if value.size <= _SHAPE_ELEMENTS}
        imports = [helper.make_opsetid(name, version) for name, version in opsets.items()]
        inferred = onnx.shape_inference.infer_node_outputs(signature.schema, node, types, known, opset_imports=imports)
    except Exception:  # of onnx, which has no common base
        inferred = {}
    sizes = [_type_bytes(each) for each in inferred.values()]
    return sum(sizes) if sizes and all(sizes) else max(sum(sizes), _stretched(arrays))


def _at_most(values: Sequence[Any]) -> int:
    """Bytes of an output that has an element for each way to take one of each input."""
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    elements = math.prod(max(1, value.size) for value in arrays)
    return max(elements * max((value.itemsize for value in arrays), default=1), sum(map(logical_bytes, values)))


def _stretched(arrays: Sequence[Any]) -> int:
    """Bytes of an output that is as large as its inputs stretched as NumPy does it; 0 if they cannot be."""
    try:
        shape = np.broadcast_shapes(*(value.shape for value in arrays))
    except ValueError:
        return 0
    return math.prod(shape) * max((value.itemsize for value in arrays), default=1)


def _type_bytes(declared: TypeProto) -> int:
    row = BY_CODE.get(declared.tensor_type.elem_type)
    if row is None or not declared.tensor_type.HasField("shape"):
        return 0
    return int(math.prod(max(0, dim.dim_value) for dim in declared.tensor_type.shape.dim)) * row.dtype.itemsize


def stored_bytes(value: Any) -> int | None:
    """Bytes of a value as an initializer, packed below 8 bits; None if it is no tensor."""
    if not isinstance(value, np.ndarray):
        return None
    try:
        row = of_dtype(value.dtype)
    except InvalidTypeError:
        return None
    if row.kind == "string":
        return sum(len(str(text).encode()) + 2 for text in value.flat)
    return row.packed_size(math.prod(value.shape))


@functools.lru_cache(maxsize=256)
def constant_codes(opset: int) -> frozenset[int]:
    """The element types that a Constant of an opset may have."""
    signature = signature_of("", "Constant", opset)
    if signature is None:
        return frozenset()
    (types,) = [set(one.allowed_type_strs) for one in signature.schema.type_constraints]
    return frozenset(code for code, row in BY_CODE.items() if f"tensor({row.name})" in types)
