"""Small valid graphs, drawn: nodes of common operators over values of known type and shape, with bodies and functions.

Magnitudes stay small (factors and weights are drawn constants below 1), so that no overflow hides a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, helper, numpy_helper

from drawn.case import IR_VERSION_OF_OPSET, value_info

FLOATS = ("float32", "float32", "float32", "float64", "float16")
TYPES = (*FLOATS, "int64", "int64", "int32", "bool")


@dataclass(frozen=True)
class Value:
    """A name in a graph, with the element type and shape that a run will give it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def like(self) -> Any:
        """An array of its type and shape."""
        return np.zeros(self.shape, self.dtype)


@dataclass
class Scope:
    """A graph, body or function in the making.

    Attributes:
        rng: what draws.
        opset: of the default domain.
        outer: the scope around a body, whose values it sees.
        constants_as_nodes: functions have no initializers.
        depth: how many more levels of bodies and calls there may be.
    """

    rng: np.random.Generator
    opset: int
    outer: Scope | None = None
    constants_as_nodes: bool = False
    depth: int = 2
    values: list[Value] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    names: list[int] = field(default_factory=lambda: [0])

    # Drawing

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))

    def array(self, dtype: str, shape: Iterable[int], largest: float = 4.0) -> Any:
        """Floats are multiples of 1/8, the same in all types."""
        kind, size = np.dtype(dtype).kind, tuple(shape)
        if kind == "b":
            return np.asarray(self.rng.random(size) < 0.5)
        if kind == "f":
            return np.asarray(np.round(self.rng.uniform(-largest, largest, size) * 8) / 8).astype(dtype)
        return self.rng.integers(-int(largest), int(largest) + 1, size).astype(dtype)

    def visible(self) -> list[Value]:
        return [*(self.outer.visible() if self.outer is not None else ()), *self.values]

    def pick(self, kinds: str = "fib", least_rank: int = 0) -> Value:
        """A value of one of the kinds (as ``np.dtype.kind`` has them), a new constant if there is none; the newest ones most often."""
        found = [each for each in self.visible() if np.dtype(each.dtype).kind in kinds and len(each.shape) >= least_rank]
        if not found:
            dtype = self.choose([each for each in TYPES if np.dtype(each).kind in kinds])
            return self.constant(self.array(dtype, [self.integer(1, 3) for _ in range(least_rank)]))
        return found[max(self.integer(0, len(found) - 1), self.integer(0, len(found) - 1))]

    def partner(self, value: Value) -> Value:
        """Another value of its type that it can be broadcast with."""
        fitting = [each for each in self.visible() if each.dtype == value.dtype and broadcast(each.shape, value.shape) is not None]
        if not fitting or self.chance(0.3):
            start = self.integer(0, len(value.shape))
            return self.constant(self.array(value.dtype, [size if self.chance(0.7) else 1 for size in value.shape[start:]]))
        found: Value = self.choose(fitting)
        return found

    def axis(self, value: Value) -> int:
        rank = len(value.shape)
        return self.integer(-rank, rank - 1)

    # Building

    def fresh(self) -> str:
        self.names[0] += 1
        return f"v{self.names[0]}"

    def constant(self, array: Any) -> Value:
        value = Value(self.fresh(), str(array.dtype), array.shape)
        tensor = numpy_helper.from_array(array, value.name)
        if self.constants_as_nodes or self.chance(0.3):
            self.nodes.append(helper.make_node("Constant", [], [value.name], value=tensor))
        else:
            self.initializers.append(tensor)
        self.values.append(value)
        return value

    def node(
        self, op_type: str, inputs: Sequence[Value | None], *outputs: tuple[str, Sequence[int]], domain: str = "", **attributes: Any
    ) -> list[Value]:
        """Append a node; ``outputs`` are types and shapes, and attributes that are None are left out."""
        made = [Value(self.fresh(), dtype, tuple(map(int, shape))) for dtype, shape in outputs]
        given = {name: value for name, value in attributes.items() if value is not None}
        names = ["" if each is None else each.name for each in inputs]
        self.nodes.append(helper.make_node(op_type, names, [each.name for each in made], domain=domain, **given))
        self.values += made
        return made

    def body(self) -> Scope:
        return Scope(
            self.rng,
            self.opset,
            self,
            self.constants_as_nodes,
            self.depth - 1,
            functions=self.functions,
            attributes=self.attributes,
            names=self.names,
        )

    def graph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.GraphProto:
        infos = [[value_info(each.name, each.like) for each in values] for values in (inputs, outputs)]
        return helper.make_graph(self.nodes, "drawn", *infos, initializer=self.initializers)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


# Operators: each function appends a node, or the nodes that belong together.

Draw = Callable[[Scope], Any]


def unary(*op_types: str, kinds: str = "f") -> Draw:
    def draw(scope: Scope) -> None:
        x = scope.pick(kinds)
        scope.node(scope.choose(op_types), [x], (x.dtype, x.shape))

    return draw


def binary(*op_types: str, kinds: str = "fi", result: str | None = None) -> Draw:
    def draw(scope: Scope) -> None:
        x = scope.pick(kinds)
        y = scope.partner(x)
        shape = broadcast(x.shape, y.shape)
        assert shape is not None
        scope.node(scope.choose(op_types), [x, y] if scope.chance(0.5) else [y, x], (result or x.dtype, shape))

    return draw


def extreme(scope: Scope) -> None:
    binary("Max", "Min", kinds="f" if scope.opset < 12 else "fi")(scope)


def scaled(scope: Scope) -> None:
    x = scope.pick("f")
    factor = scope.constant(scope.array(x.dtype, x.shape[-1:], 1.0))
    scope.node("Mul", [x, factor], (x.dtype, x.shape))


def parametrized(scope: Scope) -> None:
    x = scope.pick("f")
    node_type = scope.choose(["LeakyRelu", "Elu", "ThresholdedRelu", "HardSigmoid"])
    scope.node(node_type, [x], (x.dtype, x.shape), alpha=scope.choose([None, 0.25, 0.5]))
    if "alpha" in scope.attributes and scope.chance(0.7):
        refer(scope.nodes[-1], "alpha", "alpha", AttributeProto.FLOAT)


def refer(node: NodeProto, name: str, referred: str, kind: int) -> None:
    """Let an attribute of a node be that of the function."""
    kept = [each for each in node.attribute if each.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.add(name=name, ref_attr_name=referred, type=kind)


def softmax(scope: Scope) -> None:
    x = scope.pick("f", 1)
    # before version 13 the default is 1, which a vector does not have
    axis = scope.axis(x) if len(x.shape) == 1 else scope.choose([None, scope.axis(x)])
    scope.node(scope.choose(["Softmax", "LogSoftmax"]), [x], (x.dtype, x.shape), axis=axis)
    if "axis" in scope.attributes and scope.chance(0.7):
        refer(scope.nodes[-1], "axis", "axis", AttributeProto.INT)


def cast(scope: Scope) -> None:
    x = scope.pick("fib")
    dtype = scope.choose([each for each in TYPES if not (np.dtype(x.dtype).kind == "f" and np.dtype(each).kind == "i")])
    scope.node("Cast", [x], (dtype, x.shape), to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def where(scope: Scope) -> None:
    x = scope.pick("fib")
    y, condition = scope.partner(x), scope.constant(scope.array("bool", x.shape))
    shape = broadcast(x.shape, y.shape, condition.shape)
    assert shape is not None
    scope.node("Where", [condition, x, y], (x.dtype, shape))


def clip(scope: Scope) -> None:
    x = scope.pick("f" if scope.opset < 12 else "fi")
    low, high = (scope.constant(np.array(limit, x.dtype)) if scope.chance(0.7) else None for limit in (-1, 2))
    scope.node("Clip", [x, low, high] if high is not None else [x, low] if low is not None else [x], (x.dtype, x.shape))


def reshape(scope: Scope) -> None:
    x = scope.pick()
    size = int(np.prod(x.shape))
    if not size:  # a 0 in the new shape would mean the old dimension
        return
    shape = scope.choose([(size,), (1, size), (*x.shape, 1), x.shape[::-1], (*x.shape[1:], *x.shape[:1])])
    written = [
        0 if place < len(x.shape) and x.shape[place] == wanted and scope.chance(0.3) else wanted for place, wanted in enumerate(shape)
    ]
    if written and scope.chance(0.4):
        written[scope.integer(0, len(written) - 1)] = -1
    scope.node("Reshape", [x, scope.constant(np.array(written, np.int64))], (x.dtype, shape))


def transpose(scope: Scope) -> None:
    x = scope.pick()
    order = [int(each) for each in scope.rng.permutation(len(x.shape))] if x.shape and scope.chance(0.7) else None
    scope.node("Transpose", [x], (x.dtype, x.shape[::-1] if order is None else [x.shape[each] for each in order]), perm=order)


def flatten(scope: Scope) -> None:
    x = scope.pick(least_rank=1)
    axis = scope.axis(x)
    scope.node("Flatten", [x], (x.dtype, (np.prod(x.shape[:axis], dtype=int), np.prod(x.shape[axis:], dtype=int))), axis=axis)


def with_axes(
    scope: Scope, op_type: str, x: Value, axes: list[int] | None, first: int, output: tuple[str, Sequence[int]], **attributes: Any
) -> None:
    """A node whose axes are an attribute before version ``first`` and an input from then on."""
    if scope.opset < first:
        scope.node(op_type, [x], output, axes=axes, **attributes)
    else:
        scope.node(op_type, [x] if axes is None else [x, scope.constant(np.array(axes, np.int64))], output, **attributes)


def unsqueeze(scope: Scope) -> None:
    x = scope.pick()
    place = scope.integer(0, len(x.shape))
    axis = place - len(x.shape) - 1 if scope.chance(0.5) else place
    with_axes(scope, "Unsqueeze", x, [axis], 13, (x.dtype, (*x.shape[:place], 1, *x.shape[place:])))


def squeeze(scope: Scope) -> None:
    x = scope.pick()
    ones = [place for place, size in enumerate(x.shape) if size == 1]
    removed = ones if not ones or scope.chance(0.5) else [scope.choose(ones)]
    axes = None if removed == ones and (not ones or scope.chance(0.5)) else removed
    with_axes(scope, "Squeeze", x, axes, 13, (x.dtype, [size for place, size in enumerate(x.shape) if place not in removed]))


def slice_(scope: Scope) -> None:
    x = scope.pick(least_rank=1)
    axis, step = scope.axis(x), scope.choose([1, 1, 2, -1, -2])
    start, stop = scope.integer(-4, 4), scope.integer(-5, 5)
    place = [slice(None)] * len(x.shape)
    place[axis] = slice(start, stop, step)
    # a stop before the first element, going back, is not the same number in Python; so is a start in front of it
    if step < 0:
        start, stop = -1, -1 - len(range(x.shape[axis])) if scope.chance(0.5) else 0
        place[axis] = slice(None, None if stop < 0 else 0, step)
    parts = [scope.constant(np.array([number], np.int64)) for number in (start, stop, axis, step)]
    scope.node("Slice", [x, *parts], (x.dtype, x.like[tuple(place)].shape))


def split(scope: Scope) -> None:
    x = scope.pick(least_rank=1)
    axis = scope.axis(x)
    size = x.shape[axis]
    first = scope.integer(0, size)
    shapes = [[part if place == axis % len(x.shape) else each for place, each in enumerate(x.shape)] for part in (first, size - first)]
    sizes = [first, size - first]
    if scope.opset < 13:
        scope.node("Split", [x], *[(x.dtype, shape) for shape in shapes], axis=axis, split=sizes)
    else:
        scope.node("Split", [x, scope.constant(np.array(sizes, np.int64))], *[(x.dtype, shape) for shape in shapes], axis=axis)


def concat(scope: Scope) -> None:
    x = scope.pick(least_rank=1)
    axis = scope.axis(x)
    same = [each for each in scope.visible() if each.dtype == x.dtype and each.shape == x.shape]
    parts = [x, *[scope.choose(same) for _ in range(scope.integer(0, 2))]]
    shape = list(x.shape)
    shape[axis] *= len(parts)
    scope.node("Concat", parts, (x.dtype, shape), axis=axis)


def expand(scope: Scope) -> None:
    x = scope.pick()
    wanted = (*[2] * scope.integer(0, 1), *[3 if size == 1 and scope.chance(0.7) else scope.choose([1, size]) for size in x.shape])
    shape = broadcast(wanted, x.shape)
    assert shape is not None
    scope.node("Expand", [x, scope.constant(np.array(wanted, np.int64))], (x.dtype, shape))


def tile(scope: Scope) -> None:
    x = scope.pick("fi", 1)
    repeats = [scope.integer(1, 2) for _ in x.shape]
    scope.node("Tile", [x, scope.constant(np.array(repeats, np.int64))], (x.dtype, np.multiply(repeats, x.shape)))


def gather(scope: Scope) -> None:
    x = scope.pick(least_rank=1)
    axis = scope.axis(x)
    size = x.shape[axis]
    if not size:
        return
    indices = scope.constant(scope.rng.integers(-size, size, scope.choose([(), (2,), (1, 2)])))
    place = axis % len(x.shape)
    scope.node("Gather", [x, indices], (x.dtype, (*x.shape[:place], *indices.shape, *x.shape[place + 1 :])), axis=axis)


def pad(scope: Scope) -> None:
    x = scope.pick("fi", 1)
    pads = [scope.integer(0, 1) for _ in range(2 * len(x.shape))]
    shape = np.add(x.shape, np.add(pads[: len(x.shape)], pads[len(x.shape) :]))
    value = [scope.constant(scope.array(x.dtype, ()))] if scope.chance(0.5) else []
    scope.node("Pad", [x, scope.constant(np.array(pads, np.int64)), *value], (x.dtype, shape))


def shape_of(scope: Scope) -> None:
    x = scope.pick()
    (shape,) = scope.node("Shape", [x], ("int64", (len(x.shape),)))
    if scope.chance(0.5):
        fill = scope.array(scope.choose(TYPES), (1,))
        scope.node("ConstantOfShape", [shape], (str(fill.dtype), x.shape), value=numpy_helper.from_array(fill))


def size_of(scope: Scope) -> None:
    scope.node("Size", [scope.pick()], ("int64", ()))


def reduce(scope: Scope) -> None:
    x = scope.pick("f", 1)
    op_type = scope.choose(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"])
    axes = sorted({scope.axis(x) % len(x.shape) for _ in range(scope.integer(1, 2))}) if scope.chance(0.8) else None
    gone = range(len(x.shape)) if axes is None else axes
    keep = scope.integer(0, 1)
    if any(x.shape[place] == 0 for place in gone):
        return
    shape = [1 if place in gone else size for place, size in enumerate(x.shape) if keep or place not in gone]
    with_axes(scope, op_type, x, axes, 13 if op_type == "ReduceSum" else 18, (x.dtype, shape), keepdims=keep)


def arg_max(scope: Scope) -> None:
    x = scope.pick("f", 1)
    axis = scope.axis(x)
    if not x.shape[axis]:
        return
    shape = [1 if place == axis % len(x.shape) else size for place, size in enumerate(x.shape)]
    last = scope.choose([None, 1]) if scope.opset >= 12 else None
    scope.node(scope.choose(["ArgMax", "ArgMin"]), [x], ("int64", shape), axis=axis, select_last_index=last)


def cum_sum(scope: Scope) -> None:
    x = scope.pick("f", 1)
    if x.dtype == "float16":
        return
    axis = scope.constant(np.array(scope.axis(x), np.int64))
    scope.node("CumSum", [x, axis], (x.dtype, x.shape), exclusive=scope.choose([None, 1]), reverse=scope.choose([None, 1]))


def mat_mul(scope: Scope) -> None:
    x = scope.pick("f", 1)
    columns = scope.integer(1, 3)
    weights = scope.constant(scope.array(x.dtype, (x.shape[-1], columns), 0.5))
    if len(x.shape) == 2 and scope.chance(0.5):
        bias = [scope.constant(scope.array(x.dtype, (columns,)))] if scope.chance(0.5) else []
        scope.node("Gemm", [x, weights, *bias], (x.dtype, (x.shape[0], columns)), alpha=scope.choose([None, 0.5]))
    else:
        scope.node("MatMul", [x, weights], (x.dtype, (*x.shape[:-1], columns)))


def top_k(scope: Scope) -> None:
    x = scope.pick("f", 1)
    axis = scope.axis(x)
    if not x.shape[axis]:
        return
    k = scope.integer(1, x.shape[axis])
    shape = [k if place == axis % len(x.shape) else size for place, size in enumerate(x.shape)]
    scope.node("TopK", [x, scope.constant(np.array([k], np.int64))], (x.dtype, shape), ("int64", shape), axis=axis)


def dropout(scope: Scope) -> None:
    x = scope.pick("f")
    mask = [("bool", x.shape)] if scope.opset >= 12 else []  # which ONNX Runtime leaves all false before
    scope.node("Dropout", [x], (x.dtype, x.shape), *mask)


def sequence(scope: Scope) -> None:
    x = scope.pick("fi")
    same = [each for each in scope.visible() if each.dtype == x.dtype and len(each.shape) == len(x.shape)]
    items = [x, scope.choose(same)]
    made = scope.fresh()
    scope.nodes.append(helper.make_node("SequenceConstruct", [each.name for each in items], [made]))
    chosen = scope.integer(-2, 1)
    result = Value(scope.fresh(), x.dtype, items[chosen].shape)
    scope.nodes.append(helper.make_node("SequenceAt", [made, scope.constant(np.array(chosen, np.int64)).name], [result.name]))
    scope.values.append(result)


# Bodies and functions


def finished(scope: Scope, dtype: str, shape: tuple[int, ...]) -> Value:
    """A value that a node of this very scope computes, of a given type and shape."""
    fitting = [each for each in scope.visible() if (each.dtype, each.shape) == (dtype, shape)]
    value = scope.choose(fitting) if fitting else scope.constant(scope.array(dtype, shape))
    return scope.node("Identity", [value], (dtype, shape))[0]


def if_(scope: Scope) -> None:
    conditions = [each for each in scope.visible() if each.dtype == "bool" and each.shape in ((), (1,))]
    condition = scope.choose(conditions) if conditions else scope.constant(np.array(scope.chance(0.5)))
    then_body, else_body = scope.body(), scope.body()
    draw_nodes(then_body, scope.integer(1, 4))
    draw_nodes(else_body, scope.integer(0, 3))
    chosen = [then_body.choose(then_body.visible()) for _ in range(scope.integer(1, 2))]
    kinds = [(each.dtype, each.shape) for each in chosen]
    branches = [body.graph([], [finished(body, *kind) for kind in kinds]) for body in (then_body, else_body)]
    scope.node("If", [condition], *kinds, then_branch=branches[0], else_branch=branches[1])


def loop(scope: Scope) -> None:
    trips = scope.integer(0, 3)
    states = [scope.pick("fi") for _ in range(scope.integer(1, 2))]
    body = scope.body()
    number, going = Value(scope.fresh(), "int64", ()), Value(scope.fresh(), "bool", ())
    inner = [Value(scope.fresh(), each.dtype, each.shape) for each in states]
    body.values += [number, *inner]
    (goes_on,) = body.node("Identity", [going], ("bool", ()))
    body.values.remove(goes_on)
    draw_nodes(body, scope.integer(1, 4))
    scans = [body.node("Identity", [each], (each.dtype, each.shape))[0] for each in [body.pick() for _ in range(scope.integer(0, 2))]]
    outputs = [goes_on, *[finished(body, each.dtype, each.shape) for each in inner], *scans]
    limit = scope.constant(np.array(trips, np.int64))
    condition = scope.constant(np.array(True)) if scope.chance(0.5) else None
    results = [*[(each.dtype, each.shape) for each in states], *[(each.dtype, (trips, *each.shape)) for each in scans]]
    scope.node("Loop", [limit, condition, *states], *results, body=body.graph([number, going, *inner], outputs))


def scan(scope: Scope) -> None:
    x = scope.pick("fi", 1)
    axis = scope.axis(x)
    place = axis % len(x.shape)
    length = x.shape[place]
    state = scope.pick("fi")
    body = scope.body()
    inner = Value(scope.fresh(), state.dtype, state.shape)
    item = Value(scope.fresh(), x.dtype, (*x.shape[:place], *x.shape[place + 1 :]))
    body.values += [inner, item]
    draw_nodes(body, scope.integer(1, 4))
    chosen = body.pick()
    last = finished(body, state.dtype, state.shape)
    (row,) = body.node("Identity", [chosen], (chosen.dtype, chosen.shape))
    output_place = scope.integer(0, len(row.shape))
    stacked = [*row.shape[:output_place], length, *row.shape[output_place:]]
    attributes = {
        "scan_input_axes": [axis],
        "scan_output_axes": [output_place - len(stacked) if scope.chance(0.5) else output_place],
        "scan_input_directions": scope.choose([None, [1]]),
        "scan_output_directions": scope.choose([None, [1]]),
    }
    graph = body.graph([inner, item], [last, row])
    scope.node("Scan", [state, x], (state.dtype, state.shape), (row.dtype, stacked), num_scan_inputs=1, body=graph, **attributes)


def call(scope: Scope) -> None:
    """A new function, and one or two calls of it."""
    arguments = [scope.pick() for _ in range(scope.integer(1, 2))]
    inner = [Value(scope.fresh(), each.dtype, each.shape) for each in arguments]
    attributes = {"alpha": 0.125, "axis": -1}
    body = Scope(
        scope.rng,
        scope.opset,
        None,
        True,
        scope.depth - 1,
        list(inner),
        functions=scope.functions,
        attributes=attributes,
        names=scope.names,
    )
    draw_nodes(body, scope.integer(1, 4))
    computed = [each for each in body.values if each not in inner] or [finished(body, inner[0].dtype, inner[0].shape)]
    results = [body.choose(computed) for _ in range(scope.integer(1, 2))]
    results = list(dict.fromkeys(results))
    required = [name for name in attributes if scope.chance(0.5)]
    defaults = [helper.make_attribute(name, value) for name, value in attributes.items() if name not in required]
    name = f"F{len(scope.functions)}"
    imports = [helper.make_opsetid("", scope.opset), helper.make_opsetid("f", 1)]
    names = [[each.name for each in values] for values in (inner, results)]
    scope.functions.append(helper.make_function("f", name, *names, body.nodes, imports, required, defaults))
    kinds = [(each.dtype, each.shape) for each in results]
    for _ in range(scope.integer(1, 2)):
        given = {each: value for each, value in {"alpha": 0.75, "axis": -1}.items() if each in required or scope.chance(0.3)}
        scope.node(name, arguments, *kinds, domain="f", **given)


OPERATORS: tuple[Draw, ...] = (
    unary("Abs", "Neg", kinds="fi"),
    unary("Relu", "Sigmoid", "Tanh", "Softplus", "Erf", "Floor", "Sin", "Cos"),
    unary("Identity", kinds="fib"),
    unary("Not", kinds="b"),
    binary("Add", "Sub"),
    binary("Add", "Sub"),
    binary("And", "Or", "Xor", kinds="b"),
    binary("Greater", "Less", "Equal", result="bool"),
    *(
        extreme,
        scaled,
        parametrized,
        softmax,
        cast,
        where,
        clip,
        reshape,
        transpose,
        flatten,
        unsqueeze,
        squeeze,
        slice_,
        split,
        concat,
        expand,
    ),
    *(tile, gather, pad, shape_of, size_of, reduce, arg_max, cum_sum, mat_mul, top_k, dropout, sequence),
)
NESTED: tuple[Draw, ...] = (if_, loop, scan, call)
MOST_ELEMENTS = 2000


def draw_nodes(scope: Scope, count: int) -> None:
    for _ in range(count):
        nested = scope.depth > 0 and scope.chance(0.15)
        scope.choose(NESTED if nested else OPERATORS)(scope)
        scope.values = [each for each in scope.values if np.prod(each.shape) <= MOST_ELEMENTS]


def draw(rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model and what to feed it."""
    scope = Scope(rng, int(rng.integers(11, 22)))
    feeds = {}
    for _ in range(scope.integer(1, 3)):
        array = scope.array(scope.choose(TYPES), [scope.integer(1, 3) for _ in range(scope.integer(0, 3))])
        value = Value(scope.fresh(), str(array.dtype), array.shape)
        feeds[value.name] = array
        scope.values.append(value)
    inputs = list(scope.values)
    draw_nodes(scope, scope.integer(5, 15))
    taken = {name for node in scope.nodes for name in node.input}
    made = {name for node in scope.nodes for name in node.output}
    computed = [each for each in scope.values if each.name in made]
    wanted = (
        [each for each in computed if each.name not in taken or scope.chance(0.15)]
        or computed
        or [finished(scope, inputs[0].dtype, inputs[0].shape)]
    )
    imports = [helper.make_opsetid("", scope.opset), helper.make_opsetid("f", 1)]
    ir_version = max(8, *(ir for opset, ir in IR_VERSION_OF_OPSET if opset <= scope.opset))
    if any(each.attribute_proto for each in scope.functions):
        ir_version = max(9, ir_version)
    return helper.make_model(scope.graph(inputs, wanted), opset_imports=imports, functions=scope.functions, ir_version=ir_version), feeds
