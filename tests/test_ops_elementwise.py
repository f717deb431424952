"""Element-wise operators at every version: what a comparison on drawn inputs found wrong elsewhere, and drawn cases beside loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, parser

import numbaops
from drawn import elementwise
from drawn.case import Case
from leaf_checks import assert_node_cases, each_case, run
from numbaops.ops.elementwise import LEAVES

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # infinities and invalid operations, as NumPy has them

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NAN, INF = math.nan, math.inf
FLOAT16_MAX, FLOAT32_MAX, FLOAT64_MAX = 65504.0, float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)


def floats(*values: float, dtype: Any = np.float32) -> Any:
    return np.array(values, np.float64).astype(dtype)


def ints(*values: int, dtype: Any = np.int32) -> Any:
    return np.array(values, dtype)


def count(*shape: int, dtype: Any = np.float32) -> Any:
    return np.arange(math.prod(shape)).reshape(shape).astype(dtype)


# id, operator, opset, inputs, attributes, output (of the first input's type unless it is an array)
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], Any]] = [
    ("second aligned at axis 0", "Add", 6, [count(2, 2), floats(10, 20)], {"broadcast": 1, "axis": 0}, [[10, 11], [22, 23]]),
    ("second aligned at the end", "Add", 6, [count(2, 2), floats(10, 20)], {"broadcast": 1}, [[10, 21], [12, 23]]),
    ("second aligned at a negative axis", "Sub", 1, [count(2, 2), floats(1, 2)], {"broadcast": 1, "axis": -2}, [[-1, 0], [0, 1]]),
    (
        "second in the middle",
        "Mul",
        6,
        [np.ones((2, 2, 2), np.float32), floats(1, 2)],
        {"broadcast": 1, "axis": 1},
        [[[1, 1], [2, 2]]] * 2,
    ),
    ("second of size 1 at one of the axes", "Add", 6, [count(2, 3), count(2, 1)], {"broadcast": 1, "axis": 0}, [[0, 1, 2], [4, 5, 6]]),
    ("second of one element and more dimensions", "Add", 6, [floats(1, 2), count(1, 1) + 5], {"broadcast": 1}, [6, 7]),
    ("consumed_inputs", "Add", 1, [floats(1, 2), floats(3, 4)], {"consumed_inputs": [0, 1]}, [4, 6]),
    ("integers at opset 6", "Div", 6, [ints(-7, 7), ints(2)], {"broadcast": 1}, [-3, 3]),
    ("base aligned", "Pow", 1, [count(2, 2) + 1, floats(1, 2)], {"broadcast": 1, "axis": 0}, [[1, 2], [9, 16]]),
    (
        "aligned, gives bool",
        "Greater",
        1,
        [count(2, 2, 1), floats(0, 3)],
        {"broadcast": 1, "axis": 0},
        np.array([[[False], [True]], [[False], [False]]]),
    ),
    ("aligned logic", "Or", 1, [np.zeros((2, 1), bool), np.array([True, False])], {"broadcast": 1, "axis": 0}, [[True], [False]]),
    ("strings", "Equal", 19, [np.array(["a", "b\0"], object), np.array(["a", "b"], object)], {}, np.array([True, False])),
    ("truncates", "Div", 14, [ints(-7, 7, -7, 7), ints(2, 2, -2, -2)], {}, [-3, 3, 3, -3]),
    ("truncates at the limits", "Div", 14, [ints(-128, 127, -127, dtype=np.int8), ints(100, -100, -127, dtype=np.int8)], {}, [-1, -1, 1]),
    ("unsigned", "Div", 14, [ints(255, 7, dtype=np.uint8), ints(2, 200, dtype=np.uint8)], {}, [127, 0]),
    ("sign of the divisor", "Mod", 10, [ints(-4, 7, 5, -4), ints(2, -3, 8, 3)], {}, [0, -2, 5, 2]),
    ("sign of the dividend", "Mod", 13, [floats(-4.3, 7.2, 5), floats(2.1, -3.4, 8)], {"fmod": 1}, [-0.1, 0.4, 5]),
    ("floats with the divisor's sign", "Mod", 28, [floats(-4, 7, -1, 5), floats(3, -3, INF, INF)], {}, [2, -2, INF, 5]),
    ("integers to negative powers", "Pow", 15, [ints(2, 1, -1, -1, -2), ints(-1, -5, -3, -2, -1)], {}, [0, 1, -1, 1, 0]),
    ("integers beyond 2**53", "Pow", 15, [ints(3, dtype=np.int64), ints(39, dtype=np.int64)], {}, [3**39]),
    ("integer powers wrap", "Pow", 15, [ints(3), ints(21)], {}, [3**21 - 3 * 2**32 + 2**32]),
    ("unsigned exponents of 64 bits", "Pow", 15, [ints(3, -3), ints(7, 7, dtype=np.uint64)], {}, [2187, -2187]),
    ("an integer to a fraction is truncated", "Pow", 12, [ints(4, 10), floats(0.5, 0.5)], {}, [2, 3]),
    ("a float to an integer", "Pow", 12, [floats(2, 0.5), ints(3, -2, dtype=np.int64)], {}, [8, 4]),
    ("bfloat16 to an integer", "Pow", 15, [floats(3, dtype=BFLOAT16), ints(2, dtype=np.int64)], {}, [9]),
    ("an integer to bfloat16", "Pow", 15, [ints(3), floats(2, dtype=BFLOAT16)], {}, [9]),
    ("left, by all bits", "BitShift", 11, [ints(1, 255, dtype=np.uint8), ints(7, 8, dtype=np.uint8)], {"direction": "LEFT"}, [128, 0]),
    ("right, of negatives", "BitShift", 28, [ints(-8, -1, 5), ints(1, 40, -1)], {"direction": "RIGHT"}, [-4, -1, 0]),
    ("left, past the sign", "BitShift", 28, [ints(64, -1, dtype=np.int8), ints(1, 7, dtype=np.int8)], {"direction": "LEFT"}, [-128, -128]),
    ("first is stretched", "Mean", 8, [floats(4), floats(0, 2)], {}, [2, 3]),
    ("one input", "Mean", 6, [floats(4, 5)], {}, [4, 5]),
    ("rounds once", "Sum", 8, [floats(2048, dtype=np.float16), *[floats(1, dtype=np.float16)] * 3], {}, [2052]),
    ("bfloat16 rounds once", "Sum", 13, [floats(256, dtype=BFLOAT16), *[floats(0.75, dtype=BFLOAT16)] * 3], {}, [258]),
    ("half overflows only at the end", "Mean", 13, [floats(6e4, dtype=np.float16)] * 3, {}, [6e4]),
    ("keeps -0", "Sum", 13, [floats(-0.0)], {}, [-0.0]),
    ("NaN counts", "Max", 13, [floats(1, NAN), floats(NAN, 2), floats(3, 3)], {}, [NAN, NAN]),
    ("version 1 with its attribute", "Max", 1, [floats(1, 4), floats(2, 3)], {"consumed_inputs": [0, 0]}, [2, 4]),
    ("no attribute: the type's limits", "Clip", 1, [floats(-INF, 5, INF)], {}, [-FLOAT32_MAX, 5, FLOAT32_MAX]),
    ("version 1", "Clip", 1, [floats(-2, 0.5, 9)], {"min": 0.0, "max": 6.0, "consumed_inputs": [0]}, [0, 0.5, 6]),
    ("other side open in double", "Clip", 6, [floats(-1, 1e300, dtype=np.float64)], {"min": 0.0}, [0, 1e300]),
    ("other side open in half", "Clip", 6, [floats(-1, INF, dtype=np.float16)], {"min": 0.0}, [0, FLOAT16_MAX]),
    ("limit beyond half", "Clip", 6, [floats(-1, 5, dtype=np.float16)], {"max": 1e6}, [-1, 5]),
    ("one side", "Clip", 11, [floats(-1, INF, NAN), floats(0).reshape(())], {}, [0, FLOAT32_MAX, NAN]),
    ("one side of integers", "Clip", 12, [ints(-5, 100, dtype=np.int8), None, ints(7, dtype=np.int8).reshape(())], {}, [-5, 7]),
    ("limits of shape [1], input a scalar", "Clip", 13, [floats(5).reshape(()), floats(0), floats(3)], {}, 3),
    ("min above max", "Clip", 13, [floats(-1, 9), floats(4).reshape(()), floats(2).reshape(())], {}, [2, 2]),
    ("bfloat16", "Clip", 13, [floats(-1, INF, dtype=BFLOAT16), floats(0, dtype=BFLOAT16)], {}, [0, float(ml_dtypes.finfo(BFLOAT16).max)]),
    ("defaults of version 1", "Selu", 1, [floats(-1, 1)], {}, [1.6732 * 1.0507 * math.expm1(-1), 1.0507]),
    ("in double", "Erf", 9, [floats(0.3, -1.7, 1e-20, dtype=np.float64)], {}, [math.erf(0.3), math.erf(-1.7), math.erf(1e-20)]),
    ("integers", "Erf", 9, [ints(-9, 0, 1, 9)], {}, [-1, 0, 0, 1]),
    ("of a scalar", "Softsign", 1, [floats(0.5).reshape(())], {}, 1 / 3),
    ("far below 0", "Sigmoid", 13, [floats(-INF, -90, 0, INF)], {}, [0, 0, 0.5, 1]),
    ("half, far above 0", "Softplus", 1, [floats(-20, 20, 100, dtype=np.float16)], {}, [math.exp(-20), 20, 100]),
    ("negative alpha", "Celu", 12, [floats(-2, 2)], {"alpha": -1.0}, [1 - math.exp(2), 2]),
    ("half", "Celu", 28, [floats(-1, 1, dtype=np.float16)], {"alpha": 2.0}, [2 * math.expm1(-0.5), 1]),
    ("fraction of an integer", "Shrink", 9, [ints(-3, 1, 3)], {"bias": 1.5, "lambd": 1.5}, [-1, 0, 1]),
    ("integers beyond 2**53", "Shrink", 9, [ints(2**60 + 1, dtype=np.int64)], {"bias": 1.0}, [2**60]),
    ("unsigned wraps", "Shrink", 9, [ints(0, 2, dtype=np.uint8)], {"bias": 5.0, "lambd": 1.5}, [0, 253]),
    ("one slope a channel", "PRelu", 6, [-np.ones((1, 2, 2), np.float32), floats(2, 3)], {}, [[[-2, -2], [-3, -3]]]),
    ("one slope, input a scalar", "PRelu", 1, [floats(-1).reshape(()), floats(2)], {"consumed_inputs": [0, 0]}, -2),
    ("one slope an element of the last axis", "PRelu", 7, [-np.ones((1, 2, 2), np.float32), floats(2, 3)], {}, [[[-2, -3], [-2, -3]]]),
    ("integers", "PRelu", 9, [ints(-4, 4), ints(3)], {}, [-12, 4]),
    ("neither sign", "IsInf", 10, [floats(INF, -INF, 0)], {"detect_negative": 0, "detect_positive": 0}, np.zeros(3, bool)),
    (
        "float8",
        "IsInf",
        20,
        [floats(INF, -INF, 0, dtype=ml_dtypes.float8_e5m2)],
        {"detect_positive": 0},
        np.array([False, True, False]),
    ),
    ("float8", "IsNaN", 20, [floats(1, NAN, dtype=ml_dtypes.float8_e4m3fnuz)], {}, np.array([False, True])),
    ("halves to even", "Round", 11, [floats(0.5, 1.5, -2.5, 2.4)], {}, [0, 2, -2, 2]),
    ("bfloat16", "Relu", 14, [floats(-1, 2, dtype=BFLOAT16)], {}, [0, 2]),
    ("infinite, alpha 0", "LeakyRelu", 6, [floats(INF, -3)], {"alpha": 0.0}, [INF, 0]),
    ("alpha above 1", "LeakyRelu", 16, [floats(2, -3)], {"alpha": 4.0}, [2, -12]),
    ("least infinity", "ThresholdedRelu", 10, [floats(-INF, 1, 2)], {}, [0, 0, 2]),
    ("alpha", "SwiGLU", 28, [floats(1, -1), floats(2, 4)], {"alpha": 2.0}, [2 / (1 + math.exp(-2)), -4 / (1 + math.exp(2))]),
    (
        "strings of three shapes",
        "Where",
        9,
        [np.array([[True], [False]]), np.array(["a", "bc\0"], object), np.array("d", object)],
        {},
        np.array([["a", "bc\0"], ["d", "d"]], object),
    ),
]


@each_case(CASES)
def test_case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], want: Any) -> None:
    (got,) = run(op_type, opset, inputs, attributes)
    dtype = want.dtype if isinstance(want, np.ndarray) else next(each for each in inputs if each is not None).dtype
    assert_values(got, np.array(want, dtype if dtype.kind in "biuO" else np.float64), dtype)


def assert_values(got: Any, want: Any, dtype: np.dtype[Any], what: Any = "") -> None:
    """The type, the shape and the values: exact, or for floats as near as one rounding and the sign of a zero."""
    assert (got.dtype, got.shape) == (dtype, want.shape), what
    if dtype.kind in "biuO":
        assert got.tolist() == want.tolist(), what
        return
    rtol = {2: 2.0**-10 if dtype == np.float16 else 2.0**-7, 4: 1e-5}.get(dtype.itemsize, 1e-9)
    wide, right = got.astype(np.float64), want.astype(dtype).astype(np.float64)
    np.testing.assert_allclose(wide, right, rtol=rtol, atol=1e-6 if dtype.itemsize < 8 else 1e-12, err_msg=str(what))


def test_signs_of_zeros_in_mod() -> None:
    (got,) = run("Mod", 28, [floats(0, -0.0, 6, -6), floats(-3, 3, -3, 3)])
    assert got.tolist() == [0, 0, 0, 0] and np.signbit(got).tolist() == [True, False, True, False]


# id, operator, opset, inputs, attributes, what the error says
ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("other shape without broadcast", "Add", 6, [count(2, 2), floats(1, 2)], {}, "broadcast=1"),
    ("no part of the first's shape", "Mul", 1, [count(2, 3), floats(1, 2)], {"broadcast": 1}, "sizes that the first has at the end"),
    ("not at that axis", "Equal", 1, [ints(1, 2), ints(1, 2, 3)], {"broadcast": 1, "axis": 0}, "at axis 0"),
    ("direction", "BitShift", 11, [ints(1, dtype=np.uint8)] * 2, {"direction": "UP"}, "allowed: LEFT, RIGHT"),
    ("approximation", "Gelu", 20, [floats(1)], {"approximate": "erf"}, "allowed: none, tanh"),
    ("slope larger than the input", "PRelu", 7, [floats(1), count(2, 1)], {}, "allowed: what broadcasts to [1]"),
    ("alpha 0", "Celu", 12, [floats(1)], {"alpha": 0.0}, "any other number"),
    ("limits that are no scalars", "Clip", 13, [floats(1), floats(1, 2)], {}, "allowed: scalars"),
    ("shapes that differ", "SwiGLU", 28, [floats(1), floats(1, 2)], {}, "identical shapes"),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip("the installed onnx is older")
    with pytest.raises(numbaops.InvalidValueError) as caught:
        run(op_type, opset, inputs, attributes)
    assert text in str(caught.value)
    assert caught.value.op_type == op_type


def test_types_of_a_quotient_agree() -> None:
    with pytest.raises(numbaops.InvalidTypeError, match="float32 and float64"):
        run("Div", 14, [floats(1), floats(1, dtype=np.float64)])


def test_erf_of_many_elements() -> None:
    for dtype, rtol in ((np.float32, 3e-7), (np.float64, 4e-16)):
        x = np.concatenate([np.linspace(-7, 7, 70001), 10.0 ** np.linspace(-30, 0, 301), [INF, -INF]]).astype(dtype)
        want = np.array([math.erf(value) for value in x.tolist()])
        (got,) = run("Erf", 13, [x])
        np.testing.assert_allclose(got, want, rtol=rtol)
        np.testing.assert_array_equal(run("Erf", 13, [np.full(1000, NAN, dtype)])[0], NAN)


def single(value: float) -> float:
    """As a number is in an attribute."""
    return float(np.float32(value))


DEFAULTS: dict[tuple[str, int], dict[str, float]] = {
    **{("HardSigmoid", version): {"alpha": single(0.2)} for version in (1, 6, 22)},
    **{("LeakyRelu", version): {"alpha": single(0.01)} for version in (1, 6, 16)},
    ("Selu", 1): {"alpha": single(1.6732), "gamma": single(1.0507)},
    **{("Selu", version): {"alpha": single(1.67326319), "gamma": single(1.05070102)} for version in (6, 22)},
}


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))


def _shift(x: int, y: int, direction: str) -> int:
    places = y if 0 <= y < 64 else 64
    return x << places if direction == "LEFT" else x >> places


def _shrink(x: Any, bias: float = 0.0, lambd: float = 0.5) -> Any:
    by = int(bias) if isinstance(x, int) and bias == int(bias) else bias
    return x + by if x < -lambd else x - by if x > lambd else 0


def _whole_power(x: int, y: int) -> int:
    return pow(x, y, 2**64) if y >= 0 else {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


# One element at a time, in float64 or Python's integers; infinities and NaN as NumPy has them.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Add": lambda a, b: a + b,
    "And": lambda a, b: a and b,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitShift": _shift,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseNot": lambda x: ~x,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
    "Ceil": np.ceil,
    "Celu": lambda x, alpha=1.0: np.maximum(0, x) + np.minimum(0, alpha * np.expm1(x / alpha)),
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Div": lambda a, b: a / b if isinstance(a, np.floating) else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "Elu": lambda x, alpha=1.0: alpha * np.expm1(x) if x < 0 else x,
    "Equal": lambda a, b: a == b,
    "Erf": lambda x: math.erf(x),
    "Exp": np.exp,
    "Floor": np.floor,
    "Gelu": lambda x, approximate="none": (
        0.5 * x * (1 + (math.erf(x / math.sqrt(2)) if approximate == "none" else np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    ),
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "HardSigmoid": lambda x, alpha, beta=0.5: np.maximum(0, np.minimum(1, alpha * x + beta)),
    "HardSwish": lambda x: x * np.maximum(0, np.minimum(1, x / 6 + 0.5)),
    "IsInf": lambda x, detect_negative, detect_positive: bool((x == INF and detect_positive) or (x == -INF and detect_negative)),
    "IsNaN": lambda x: x != x,
    "LeakyRelu": lambda x, alpha: alpha * x if x < 0 else x,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Log": np.log,
    "Max": lambda *values: NAN if any(value != value for value in values) else max(values),
    "Mean": lambda *values: sum(values) / len(values),
    "Min": lambda *values: NAN if any(value != value for value in values) else min(values),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Mod": lambda a, b, fmod=0: np.fmod(a, b) if fmod else a % b,
    "Mul": lambda a, b: a * b,
    "Neg": lambda x: -x,
    "Not": lambda x: not x,
    "Or": lambda a, b: a or b,
    "PRelu": lambda x, slope: slope * x if x < 0 else x,
    "Pow": lambda x, y: _whole_power(x, y) if isinstance(x, int) and isinstance(y, int) else np.float64(x) ** np.float64(y),
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Selu": lambda x, alpha, gamma: gamma * (alpha * np.expm1(x) if x <= 0 else x),
    "Shrink": _shrink,
    "Sigmoid": _sigmoid,
    "Sign": lambda x: x if x != x else int(x > 0) - int(x < 0),
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + abs(x)),
    "Sqrt": np.sqrt,
    "Sub": lambda a, b: a - b,
    "Sum": lambda *values: sum(values[1:], values[0]),
    "SwiGLU": lambda a, b, alpha=1.0: a * _sigmoid(alpha * a) * b,
    "Swish": lambda x, alpha=1.0: x * _sigmoid(alpha * x),
    "Tan": np.tan,
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x, alpha=1.0: x if x > alpha else 0.0,
    "Where": lambda condition, x, y: x if condition else y,
    "Xor": lambda a, b: a != b,
}
TRUTHS = {"And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"}


def scalar(value: Any) -> Any:
    """A Python integer, bool or string, or a float64."""
    item = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    return item if isinstance(item, (bool, int, str, complex)) else np.float64(item)


def expected(case: Case) -> tuple[Any, np.dtype[Any]]:
    attributes = {name: value for name, value in case.attributes.items() if name not in ("broadcast", "axis", "consumed_inputs")}
    attributes = DEFAULTS.get((case.op_type, case.since_version), {}) | attributes
    function, dtype = FUNCTIONS[case.op_type], np.dtype(bool) if case.op_type in TRUTHS else case.inputs[case.op_type == "Where"].dtype
    inputs = [as_wide_as_the_first(case, each) for each in case.inputs]
    shape = np.broadcast_shapes(*(each.shape for each in inputs))
    inputs = [np.broadcast_to(each, shape) for each in inputs]
    y = np.empty(shape, object)
    for place in np.ndindex(shape):
        y[place] = function(*(scalar(each[place]) for each in inputs), **attributes)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if any(isinstance(value, float) and not limits.min <= value <= limits.max for value in y.ravel()):
            return None, dtype  # of which the text says nothing
        bits = dtype.itemsize * 8
        wrapped = [int(value) % 2**bits for value in y.ravel()]
        return np.array(wrapped, np.uint64).astype(f"u{dtype.itemsize}").view(dtype).reshape(shape), dtype
    return (y if dtype.kind == "O" else y.astype(dtype if dtype.kind in "bc" else np.float64)), dtype


def as_wide_as_the_first(case: Case, x: Any) -> Any:
    """With ones for the dimensions that a second input lacks at its end, where the version lines up its beginning."""
    first = case.inputs[0]
    if case.op_type == "PRelu" and case.opset < 7 and x is not first:
        return x.reshape(()) if x.size == 1 else x.reshape(-1, *(1,) * (first.ndim - 2))
    if "broadcast" not in case.attributes or x is first:
        return x
    if x.size == 1:
        return x.reshape(())
    axis = case.attributes.get("axis", first.ndim - x.ndim)
    return x.reshape(x.shape + (1,) * (first.ndim - axis - x.ndim))


def test_drawn_cases_beside_loops() -> None:
    seen = set()
    for case in elementwise.draws(np.random.default_rng(5)):
        if case.op_type == "Clip":
            continue
        seen.add(case.op_type)
        want, dtype = expected(case)
        if want is not None:
            (got,) = run(case.op_type, case.opset, case.inputs, case.attributes)
            assert_values(got, want, dtype, case)
    assert seen == {leaf.op_type for leaf in LEAVES if onnx.defs.has(leaf.op_type)} - {"Clip"}


def test_drawn_limits() -> None:
    for case in elementwise.draws(np.random.default_rng(6)):
        if case.op_type != "Clip":
            continue
        x = case.inputs[0]
        low, high = case.inputs[1:] if case.opset >= 11 else (case.attributes.get("min"), case.attributes.get("max"))
        if x.dtype.kind not in "iu":
            most = float(ml_dtypes.finfo(x.dtype).max)
            low, high = -most if low is None else float(low), most if high is None else float(high)
        want = [value if value != value else value if low is None or value >= low else low for value in map(scalar, x.ravel())]
        want = [value if value != value or high is None or value <= high else high for value in want]
        (got,) = run("Clip", case.opset, case.inputs, case.attributes)
        assert_values(got, np.array([scalar(value) for value in want], x.dtype).reshape(x.shape), x.dtype, case)


def test_inputs_stay_and_outputs_are_new() -> None:
    leaves = {(leaf.op_type, version): leaf for leaf in LEAVES for version in leaf.since_versions}
    for case in elementwise.draws(np.random.default_rng(7)):
        leaf = leaves[case.op_type, case.since_version]
        schema = onnx.defs.get_schema(case.op_type, case.opset)
        attributes = {
            name: helper.get_attribute_value(each.default_value) for name, each in schema.attributes.items() if each.default_value.type
        } | case.attributes
        attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
        copies = [None if each is None else each.copy() for each in case.inputs]
        result = leaf.function(**attributes)(*copies) if leaf.bind else leaf.function(*copies, **attributes)
        for before, after in zip(case.inputs, copies, strict=True):
            assert before is None or before.tobytes() == after.tobytes(), case
            assert after is None or leaf.aliases or not np.may_share_memory(result, after), case


def test_onnx_node_cases(node_cases: list[Any]) -> None:
    alone = [case for case in node_cases if len(case.model.graph.node) == 1]
    assert assert_node_cases(alone, *{leaf.op_type for leaf in LEAVES}) > 250


@pytest.mark.parametrize(
    "node",
    [
        "Max(x, z)",
        "Min(x, z)",
        "Sum(x, z)",
        "Mean(x, z)",
        "Where(m, x, z)",
        "PRelu(x, z)",
        "Add(x, z)",
        "Div(x, z)",
        "Mod <fmod = 1> (x, z)",
    ],
)
def test_inputs_of_several_types(node: str) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (bool[1] m, float[1] x, double[1] z) => (y) {{ y = {node} }}'
    evaluator = numbaops.ReferenceEvaluator(parser.parse_model(text))
    with pytest.raises(numbaops.InvalidTypeError, match="float32 and float64"):
        evaluator.run(None, {"m": np.ones(1, bool), "x": np.ones(1, np.float32), "z": np.ones(1)})
