"""If, Loop, Scan and SequenceMap, as their texts have them.

https://onnx.ai/onnx/operators/onnx__If.html, onnx__Loop.html, onnx__Scan.html, onnx__SequenceMap.html
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import onnx.helper
from onnx import AttributeProto, GraphProto, NodeProto, TypeProto

from numbaops.dtypes import BY_CODE
from numbaops.engine.nodes import Node
from numbaops.engine.signature import node_label
from numbaops.engine.steps import Fast
from numbaops.engine.values import described
from numbaops.errors import InvalidTypeError, InvalidValueError

Body = Callable[..., Sequence[Any]]
"""Takes the captured values, then the body's inputs in order; gives its outputs in order."""


class Graph(Protocol):
    """What a body is to the node that runs it: an evaluator."""

    input_names_: list[str]
    output_names_: list[str]
    input_types_: list[TypeProto] | None
    output_types_: list[TypeProto] | None
    captured: tuple[str, ...]
    pure: bool
    foreign: bool
    given: bool

    def body(self, often: bool = True, known: Mapping[str, Any] = ...) -> Body: ...

    def uses(self, name: str) -> bool: ...

    @property
    def run(self) -> Callable[..., Any]: ...


class ControlFlow(Node):
    """A node with bodies.

    Args:
        node: the node, without references to function attributes.
        run_params: what onnx's evaluator hands to every ``OpRun``.
        build: makes the evaluator of a body.
        since_version: of the operator.
    """

    kind: ClassVar[str] = "control flow"
    often: ClassVar[bool] = True
    """Whether a body runs many times in a run."""
    foldable: ClassVar[bool] = False
    """Whether it may run ahead, once for all: a Loop may take any time."""
    bodies: ClassVar[tuple[str, ...]]
    """Names of the attributes that are bodies."""

    def __init__(self, node: NodeProto, run_params: dict[str, Any], *, build: Callable[[GraphProto], Any], since_version: int) -> None:
        super().__init__(node, run_params)
        self.since_version = since_version
        self.has_subgraph = True
        self.graphs: dict[str, Graph] = {}
        for attribute in node.attribute:
            value: Any
            if attribute.type == AttributeProto.GRAPH:
                value = self.graphs[attribute.name] = build(attribute.g)
            else:
                value = onnx.helper.get_attribute_value(attribute)
            setattr(self, attribute.name, value)
        self.attributes_names_ = {each.name for each in node.attribute}
        for name in self.bodies:
            if name not in self.graphs:
                raise self.error(InvalidValueError, f"the attribute {name!r} is missing; this version requires it")
        self.captured = tuple(dict.fromkeys(name for graph in self.graphs.values() for name in self.outer(graph)))
        self.prepare()

    def prepare(self) -> None:
        """Check the attributes once."""

    def outer(self, graph: Graph) -> Sequence[str]:
        """Names of the values around the node that a body takes, in the order in which it takes them before its other inputs."""
        return graph.captured

    def compute(self, inputs: Sequence[Any], body: Callable[[int], Body]) -> tuple[Any, ...]:
        """The outputs; ``body`` gives the body of that position in ``bodies``."""
        raise NotImplementedError

    def error(self, kind: type[Any], message: str) -> Exception:
        """An error of ``kind`` that names this node."""
        found: Exception = kind(message, op_type=self.op_type, since_version=self.since_version, node_name=node_label(self.onnx_node))
        return found

    def check_outputs(self, name: str, given: int) -> None:
        """Check that the node has no more outputs than a body gives it."""
        if len(self.onnx_node.output) > given:
            raise self.error(InvalidValueError, f"the node has {len(self.onnx_node.output)} outputs; {name} gives {given}")

    def need_context(self) -> bool:
        return True

    def run(self, *args: Any, linked_attributes: Any = None, context: Any = None, bindings: Any = None) -> tuple[Any, ...]:
        """As ``OpRun.run``: bodies run by the names of their values, so that somebody can look on."""
        self.run_params["log"]("-- begin %s.run(%d inputs)", self.op_type, len(args))
        options = {} if bindings is None else {"check_shape_annotations": True, "_bindings": bindings}
        results = self.compute(args, lambda position: self._watched(self.graphs[self.bodies[position]], context or {}, options))
        self.run_params["log"]("-- done %s.run -> %d outputs", self.op_type, len(results))
        return results

    @staticmethod
    def _watched(graph: Graph, context: Mapping[str, Any], options: Mapping[str, Any]) -> Body:
        def body(*values: Any) -> Sequence[Any]:
            feeds = {**context, **dict(zip(graph.input_names_, values, strict=False))}
            results: Sequence[Any] = graph.run(None, feeds, {}, **options)
            return results

        return body

    def fast(self) -> Fast:
        graphs = [self.graphs[name] for name in self.bodies]
        count = len(self.onnx_node.input)
        places = [[self.captured.index(name) for name in self.outer(graph)] for graph in graphs]

        def function(*values: Any) -> tuple[Any, ...]:
            captured = values[count:]

            def body(position: int) -> Body:  # a branch that is never taken is never prepared
                return functools.partial(graphs[position].body(self.often), *[captured[place] for place in places[position]])

            return self.compute(values[:count], body)

        def prepared(*known: Any) -> Callable[..., tuple[Any, ...]] | None:
            constants = {name: value for name, value in zip(self.captured, known[count:], strict=True) if value is not ...}
            return self._with_constants(constants) if constants else None

        return Fast(
            function,
            prepared=prepared,
            pure=self.foldable and all(graph.pure for graph in graphs),
            foreign=any(graph.foreign for graph in graphs),
            given=any(graph.given for graph in graphs),
        )

    def _with_constants(self, constants: Mapping[str, Any]) -> Callable[..., tuple[Any, ...]]:
        """What a plan calls if it knows values that bodies take: they are constants of the bodies' plans too."""
        graphs = [self.graphs[name] for name in self.bodies]
        count = len(self.onnx_node.input)
        names = [self.outer(graph) for graph in graphs]
        places = [[self.captured.index(name) for name in some if name not in constants] for some in names]
        made: dict[int, Body] = {}

        def function(*values: Any) -> tuple[Any, ...]:
            captured = values[count:]

            def body(position: int) -> Body:
                if position not in made:
                    known = {name: constants[name] for name in names[position] if name in constants}
                    made[position] = graphs[position].body(self.often, known)
                return functools.partial(made[position], *[captured[place] for place in places[position]])

            return self.compute(values[:count], body)

        return function


def _check_axis(attribute: str, axis: int, value: Any) -> None:
    if not -value.ndim <= axis < value.ndim:
        raise InvalidValueError(f"{attribute} has {axis}; allowed at rank {value.ndim}: {-value.ndim} to {value.ndim - 1}")


def _scalar(value: Any, what: str) -> Any:
    """The one element of a tensor that should be a scalar."""
    if getattr(value, "size", None) != 1:
        raise InvalidValueError(f"{what} has {getattr(value, 'size', 'no')} elements; allowed: exactly one")
    return value.item()


def _empty_stack(graph: Graph, position: int, shape: Sequence[int] = ()) -> Any:
    """What stacking the outputs of no run at all gives: the declared type, with 0 for every unknown dimension."""
    declared = graph.output_types_[position].tensor_type if graph.output_types_ is not None else TypeProto.Tensor()
    kind = BY_CODE.get(declared.elem_type, BY_CODE[1])
    return _zeros((*shape, *[dim.dim_value for dim in declared.shape.dim]), kind.dtype)


def _stacked(items: Sequence[Any], what: str) -> Any:
    kinds = {(item.dtype, item.shape) if isinstance(item, np.ndarray) else None for item in items}
    if len(kinds) != 1 or None in kinds:
        different = ", ".join(sorted(set(map(described, items))))
        raise InvalidValueError(f"{what} must be tensors of one type and shape in all iterations; they are {different}")
    return np.stack(items)


def _zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """An array of zeros, or of empty strings."""
    return np.full(shape, "", dtype) if dtype.kind == "O" else np.zeros(shape, dtype)


class If(ControlFlow):
    """If: one of two bodies without inputs."""

    often, foldable = False, True
    bodies = ("then_branch", "else_branch")

    def prepare(self) -> None:
        if len(self.onnx_node.input) != 1:
            raise self.error(InvalidValueError, f"the node has {len(self.onnx_node.input)} inputs; allowed: 1 (cond)")
        for name in self.bodies:
            self.check_outputs(name, len(self.graphs[name].output_names_))

    def outer(self, graph: Graph) -> Sequence[str]:
        # The text allows no inputs; some tools declare the outer values that a branch uses as such, and onnx.reference runs them.
        return (*graph.captured, *graph.input_names_)

    def compute(self, inputs: Sequence[Any], body: Callable[[int], Body]) -> tuple[Any, ...]:
        chosen = 0 if _scalar(inputs[0], "cond") else 1
        return tuple(body(chosen)())


class Loop(ControlFlow):
    """Loop: a body as long as a condition holds, at most a number of times; states pass on, other outputs are stacked."""

    bodies = ("body",)

    def prepare(self) -> None:
        self.graph = self.graphs["body"]
        self.states = max(0, len(self.onnx_node.input) - 2)
        if len(self.graph.input_names_) != self.states + 2:
            raise self.error(
                InvalidValueError,
                f"body has {len(self.graph.input_names_)} inputs; with {self.states} states it must have {self.states + 2}: "
                "iteration number, condition, states",
            )
        self.scans = len(self.graph.output_names_) - 1 - self.states
        if self.scans < 0:
            raise self.error(
                InvalidValueError,
                f"body has {len(self.graph.output_names_)} outputs; with {self.states} states it must have at least {self.states + 1}",
            )
        self.check_outputs("body", self.states + self.scans)
        types = self.graph.input_types_ or []
        # Bodies exported by some tools declare these two with shape [1].
        self.shapes = [(1,) if len(each.tensor_type.shape.dim) == 1 else () for each in types[:2]]
        self.counted = self.graph.uses(self.graph.input_names_[0])

    def compute(self, inputs: Sequence[Any], body: Callable[[int], Body]) -> tuple[Any, ...]:
        limit, condition, *first = (*inputs, None, None)[: max(2, len(inputs))]
        states: Sequence[Any] = first
        trips = None if limit is None else _scalar(limit, "M")
        going = True if condition is None else bool(_scalar(condition, "cond"))
        step = body(0)
        count, counted = self.states, self.counted
        collected: list[list[Any]] = [[] for _ in range(self.scans)]
        index, flag = np.zeros(self.shapes[0], np.int64), np.full(self.shapes[1], True)
        number = 0
        while going and (trips is None or number < trips):
            if counted:
                index = np.array(number, np.int64, ndmin=index.ndim)
            results = step(index, flag, *states)
            if results[0] is not flag:
                flag = results[0]
                if flag is None:
                    raise InvalidTypeError("the condition that body computes is absent; allowed: a bool tensor")
                # Where cond is absent the text says that this one is ignored. onnxscript writes `break` so, and ONNX Runtime stops.
                going = bool(flag) if flag.ndim == 0 else bool(_scalar(flag, "the condition that body computes"))
            states = results[1 : 1 + count]
            if collected:
                for items, result in zip(collected, results[1 + count :], strict=True):
                    items.append(result)
            number += 1
        names = self.graph.output_names_[1 + count :]
        stacks = [
            _stacked(items, f"scan output {name!r}") if number else _empty_stack(self.graph, 1 + count + position, (0,))
            for position, (items, name) in enumerate(zip(collected, names, strict=True))
        ]
        return (*states, *stacks)


class Scan(ControlFlow):
    """Scan since opset 9: a body for each slice of some inputs, whose outputs are stacked."""

    bodies = ("body",)

    def prepare(self) -> None:
        self._count(len(self.onnx_node.input))
        self.axes = self._per_item("scan_input_axes", self.count)
        self.backwards = self._per_item("scan_input_directions", self.count)
        self.output_axes = self._per_item("scan_output_axes", self.scans)
        self.output_backwards = self._per_item("scan_output_directions", self.scans)

    def _count(self, given: int) -> None:
        """Find out how many of the ``given`` inputs and the body's outputs are states."""
        self.graph = self.graphs["body"]
        count = getattr(self, "num_scan_inputs", None)
        if count is None or not 1 <= count <= given:
            raise self.error(InvalidValueError, f"num_scan_inputs is {count}; allowed: 1 to {given}, the number of states and scan inputs")
        self.count = count
        self.states = given - count
        self.scans = len(self.graph.output_names_) - self.states
        if len(self.graph.input_names_) != given or self.scans < 0:
            raise self.error(
                InvalidValueError,
                f"body has {len(self.graph.input_names_)} inputs and {len(self.graph.output_names_)} outputs; "
                f"with {self.states} states and {count} scan inputs it must have {given} and at least {self.states}",
            )
        self.check_outputs("body", len(self.graph.output_names_))

    def _per_item(self, name: str, count: int) -> list[int]:
        given = list(getattr(self, name, None) or [0] * count)
        if len(given) != count:
            raise self.error(InvalidValueError, f"{name} has {len(given)} items; allowed: {count}")
        if name.endswith("directions") and not {0, 1}.issuperset(given):
            raise self.error(InvalidValueError, f"{name} is {given}; allowed: 0 (forward) and 1 (backward)")
        return given

    def compute(self, inputs: Sequence[Any], body: Callable[[int], Body]) -> tuple[Any, ...]:
        sequences = []
        for value, axis, backwards in zip(inputs[self.states :], self.axes, self.backwards, strict=True):
            _check_axis("scan_input_axes", axis, value)
            ahead = np.moveaxis(value, axis, 0)
            sequences.append(ahead[::-1] if backwards else ahead)
        states, stacks = self.scan(body(0), list(inputs[: self.states]), sequences)
        for position, (axis, backwards) in enumerate(zip(self.output_axes, self.output_backwards, strict=True)):
            stack = stacks[position][::-1] if backwards else stacks[position]
            _check_axis("scan_output_axes", axis, stack)
            stacks[position] = np.ascontiguousarray(np.moveaxis(stack, 0, axis))
        return (*states, *stacks)

    def scan(self, body: Body, states: list[Any], sequences: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The last states, and the stacked outputs."""
        lengths = {len(each) for each in sequences}
        if len(lengths) != 1:
            raise InvalidValueError(f"scan inputs have the lengths {list(map(len, sequences))} along their scan axes; they must be equal")
        collected: list[list[Any]] = [[] for _ in range(self.scans)]
        for slices in zip(*sequences, strict=True):
            results = body(*states, *map(np.asarray, slices))
            states = list(results[: self.states])
            for items, result in zip(collected, results[self.states :], strict=True):
                items.append(result)
        names = self.graph.output_names_[self.states :]
        stacks = [
            _stacked(items, f"scan output {name!r}") if items else _empty_stack(self.graph, self.states + position, (0,))
            for position, (items, name) in enumerate(zip(collected, names, strict=True))
        ]
        return states, stacks


class BatchedScan(Scan):
    """Scan of opset 8: the first axis of every input is the batch, the second of scan inputs is scanned, each item to its own length."""

    def prepare(self) -> None:
        self._count(len(self.onnx_node.input) - 1)
        self.backwards = self._per_item("directions", self.count)

    def compute(self, inputs: Sequence[Any], body: Callable[[int], Body]) -> tuple[Any, ...]:
        step = body(0)
        lengths, values = inputs[0], inputs[1:]
        scanned = values[self.states :]
        batch, longest = scanned[0].shape[:2]
        steps = [longest] * batch if lengths is None else [int(length) for length in lengths]
        if len(steps) != batch or not all(0 <= length <= longest for length in steps):
            raise InvalidValueError(f"sequence_lens is {steps}; allowed: {batch} lengths from 0 to {longest}")
        if not steps:
            stacks = [_empty_stack(self.graph, self.states + position, (0, longest)) for position in range(self.scans)]
            return (*values[: self.states], *stacks)
        states_of: list[list[Any]] = []
        stacks_of: list[list[Any]] = []
        for item, length in enumerate(steps):
            sequences = [
                value[item, :length][::-1] if backwards else value[item, :length]
                for value, backwards in zip(scanned, self.backwards, strict=True)
            ]
            states, found = self.scan(step, [np.asarray(value[item]) for value in values[: self.states]], sequences)
            states_of.append(states)
            stacks_of.append([self._padded(stack, longest) for stack in found])
        columns = [*zip(*states_of, strict=True), *zip(*stacks_of, strict=True)]
        return tuple(_stacked(column, "an output") for column in columns)

    @staticmethod
    def _padded(stack: Any, length: int) -> Any:
        padded = _zeros((length, *stack.shape[1:]), stack.dtype)
        padded[: len(stack)] = stack
        return padded


class SequenceMap(ControlFlow):
    """SequenceMap: a body for each item of a sequence, with further sequences item by item and tensors as they are."""

    bodies = ("body",)

    def prepare(self) -> None:
        self.graph = self.graphs["body"]
        self.check_outputs("body", len(self.graph.output_names_))

    def compute(self, inputs: Sequence[Any], body: Callable[[int], Body]) -> tuple[Any, ...]:
        step = body(0)
        if not isinstance(inputs[0], (list, tuple)):
            raise InvalidTypeError(f"input_sequence is a {type(inputs[0]).__name__}; allowed: a sequence")
        size = len(inputs[0])
        for position, value in enumerate(inputs):
            if isinstance(value, (list, tuple)) and len(value) != size:
                raise InvalidValueError(f"input {position} has {len(value)} items and input_sequence {size}; they must be equal")
        collected: list[list[Any]] = [[] for _ in self.graph.output_names_]
        for item in range(size):
            results = step(*[value[item] if isinstance(value, (list, tuple)) else value for value in inputs])
            for items, result in zip(collected, results, strict=True):
                items.append(result)
        return tuple(collected)


_CLASSES: dict[str, tuple[tuple[int, type[ControlFlow]], ...]] = {
    "If": ((1, If),),
    "Loop": ((1, Loop),),
    "Scan": ((8, BatchedScan), (9, Scan)),
    "SequenceMap": ((17, SequenceMap),),
}


def control_flow(op_type: str, since_version: int) -> type[ControlFlow] | None:
    """The class for a version of an operator of the default domain that has bodies, or None."""
    found = [each for first, each in _CLASSES.get(op_type, ()) if first <= since_version]
    return found[-1] if found else None
