"""Fourier transforms, windows, ranges and random numbers: what was found wrong elsewhere, and drawn cases beside loops."""

from __future__ import annotations

import cmath
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import numbaops
from drawn import signal
from drawn.case import Case
from leaf_checks import assert_node_cases, each_case, run
from numbaops.ops.signal import LEAVES

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NAN = math.nan
DETERMINISTIC = {leaf.op_type for leaf in LEAVES if not leaf.op_type.startswith(("Random", "Bernoulli", "Multinomial"))}


def floats(values: Any, dtype: Any = np.float32) -> Any:
    return np.array(values, np.float64).astype(dtype)


def numbers(*values: float, dtype: Any) -> list[Any]:
    return [np.array(value, np.float64 if dtype.kind not in "iu" else dtype).astype(dtype) for value in values]


INT16, INT64, FLOAT16, FLOAT32, FLOAT64 = map(np.dtype, (np.int16, np.int64, np.float16, np.float32, np.float64))
PAIRS = floats([[[1, 0], [0, 1], [-1, 0]]])  # one signal: 1, i, -1
REAL = floats([[[1], [2], [3], [4]]])

# id, operator, opset, inputs, attributes, output
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], Any]] = [
    ("default axis 1", "DFT", 17, [REAL], {"onesided": 1}, floats([[[10, 0], [-2, 2], [-2, 0]]])),
    ("default axis -2", "DFT", 20, [REAL], {"onesided": 1}, floats([[[10, 0], [-2, 2], [-2, 0]]])),
    ("axis 0", "DFT", 20, [REAL[0, :, None], None, np.array(0)], {}, floats([[[10, 0]], [[-2, 2]], [[-2, 0]], [[-2, -2]]])),
    ("cut", "DFT", 20, [REAL, np.array(2, np.int32)], {}, floats([[[3, 0], [-1, 0]]])),
    ("filled up", "DFT", 17, [PAIRS[:, :1], np.array(2)], {"axis": -2}, floats([[[1, 0], [1, 0]]])),
    ("one-sided back to real", "DFT", 20, [floats([[[10, 0], [-2, 2], [-2, 0]]])], {"inverse": 1, "onesided": 1}, REAL),
    ("one-sided back, odd", "DFT", 20, [floats([[[3, 0], [0, 0]]]), np.array(3)], {"inverse": 1, "onesided": 1}, floats([[[1], [1], [1]]])),
    ("half", "DFT", 20, [REAL.astype(FLOAT16)], {"onesided": 1}, floats([[[10, 0], [-2, 2], [-2, 0]]], FLOAT16)),
    ("bfloat16", "DFT", 17, [REAL.astype(BFLOAT16)], {"onesided": 1}, floats([[[10, 0], [-2, 2], [-2, 0]]], BFLOAT16)),
    ("of one, one-sided back: nothing", "DFT", 20, [floats([[[1, 0]]])], {"inverse": 1, "onesided": 1}, np.zeros((1, 0, 1), np.float32)),
    ("no signals", "DFT", 20, [np.zeros((0, 4, 1), np.float32)], {}, np.zeros((0, 4, 2), np.float32)),
    ("one-sided", "STFT", 17, [REAL, np.array(2), None, np.array(2)], {}, floats([[[[3, 0], [-1, 0]], [[7, 0], [-1, 0]]]])),
    ("window", "STFT", 17, [REAL, np.array(2), floats([1, 0])], {"onesided": 0}, floats([[[[1, 0], [1, 0]], [[3, 0], [3, 0]]]])),
    ("the whole signal", "STFT", 17, [REAL, np.array(1)], {}, floats([[[[10, 0], [-2, 2], [-2, 0]]]])),
    ("pairs", "STFT", 17, [PAIRS, np.array(1), None, np.array(2)], {"onesided": 0}, floats([[[[1, 1], [1, -1]], [[-1, 1], [1, 1]]]])),
    ("half", "STFT", 17, [REAL.astype(FLOAT16), np.array(2), floats([1, 1], FLOAT16)], {},
     floats([[[[3, 0], [-1, 0]], [[7, 0], [-1, 0]]]], FLOAT16)),
    ("symmetric", "HannWindow", 17, [np.array(3)], {"periodic": 0}, floats([0, 1, 0])),
    ("periodic, integers", "HannWindow", 17, [np.array(4)], {"output_datatype": 6}, np.array([0, 0, 1, 0], np.int32)),
    ("one point, symmetric: no period", "HannWindow", 17, [np.array(1)], {"periodic": 0}, floats([NAN])),
    ("bfloat16", "HammingWindow", 17, [np.array(2)], {"output_datatype": 16}, floats([4 / 46, 1], BFLOAT16)),
    ("no points", "BlackmanWindow", 17, [np.array(0)], {}, floats([])),
    ("edges beyond the spectrum", "MelWeightMatrix", 17, [*(np.array(value) for value in (1, 4, 8)), floats(0), floats(100)], {}, None),
    ("f32 start", "Range", 11, numbers(1, 4, 2, dtype=FLOAT32), {}, floats([1, 3])),
    ("backwards", "Range", 11, numbers(10, 4, -2, dtype=INT64), {}, np.array([10, 8, 6])),
    ("empty", "Range", 11, numbers(4, 4, 1, dtype=FLOAT32), {}, floats([])),
    ("the wrong way", "Range", 11, numbers(1, 4, -1, dtype=INT64), {}, np.array([], np.int64)),
    ("inputs of one element", "Range", 11, [floats([0]), floats([2]), floats([1])], {}, floats([0, 1])),
    ("exact quotient just above 3", "Range", 11, numbers(0, 0.3, 0.1, dtype=FLOAT32), {}, floats([0, 0.1, 0.2, 0.3])),
    ("at the type's end", "Range", 11, [*numbers(32000, 32767, 1000, dtype=INT16)], {}, np.array([32000], np.int16)),
    ("at int64's end", "Range", 11, numbers(2**63 - 3, 2**63 - 1, 2, dtype=INT64), {}, np.array([2**63 - 3])),
    ("half beyond its integers", "Range", 27, numbers(2046, 2052, 1, dtype=FLOAT16), {},
     floats([2046, 2047, 2048, 2048, 2050, 2052], FLOAT16)),
    ("bfloat16", "Range", 27, numbers(0, 1, 0.25, dtype=BFLOAT16), {}, floats([0, 0.25, 0.5, 0.75], BFLOAT16)),
]  # fmt: skip


@each_case(CASES)
def test_case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], want: Any) -> None:
    (got,) = run(op_type, opset, inputs, attributes)
    assert_values(got, weights(inputs, np.dtype(np.float32)) if want is None else want)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, BFLOAT16], ids=str)
@pytest.mark.parametrize(("start", "step"), [(0.0, -1.0), (0.0, 1.0), (0.0, -2.5), (-0.0, -1.0)], ids=str)
def test_zeros_of_a_range_have_the_sign_of_start_plus_i_delta(dtype: Any, start: float, step: float) -> None:
    (got,) = run("Range", 11 if dtype != BFLOAT16 else 27, numbers(start, 5 * step, step, dtype=dtype), {})
    assert np.signbit(got.astype(np.float64)).tolist() == [math.copysign(1, start + i * step) < 0 for i in range(5)]


def assert_values(got: Any, want: Any, what: Any = "", atol: float = 1e-6) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    if want.dtype.kind in "iu":
        assert got.tolist() == want.tolist(), what
        return
    rtol = {2: 2.0**-10 if want.dtype == np.float16 else 2.0**-7, 4: 1e-5}.get(want.dtype.itemsize, 1e-9)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, err_msg=str(what))


# id, operator, opset, inputs, attributes, what the error says
ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("the last axis", "DFT", 20, [REAL, None, np.array(-1)], {}, "but not the last"),
    ("the last axis", "DFT", 17, [REAL], {"axis": 2}, "but not the last"),
    ("triples", "DFT", 17, [np.zeros((1, 2, 3), np.float32)], {}, "1 or 2 in the last dimension"),
    ("length", "DFT", 20, [REAL, np.array(-1)], {}, "from 0 on"),
    ("frame longer than the signal", "STFT", 17, [REAL, np.array(1), None, np.array(5)], {}, "that of the signal, 4"),
    ("no step", "STFT", 17, [REAL, np.array(0), None, np.array(2)], {}, "from 1 on"),
    ("window of another length", "STFT", 17, [REAL, np.array(1), floats([1, 1, 1]), np.array(2)], {}, "allowed: [2]"),
    ("rank", "STFT", 17, [REAL[0], np.array(1)], {}, "rank 3"),
    ("negative size", "HannWindow", 17, [np.array(-1)], {}, "from 0 on"),
    ("no step", "Range", 11, numbers(0, 1, 0, dtype=FLOAT32), {}, "delta is 0"),
    ("endless", "Range", 11, numbers(0, math.inf, 1, dtype=FLOAT32), {}, "a finite number of steps"),
    ("no probability", "Bernoulli", 15, [floats([1.5])], {}, "probabilities"),
    ("no classes", "Multinomial", 7, [np.zeros((1, 0), np.float32)], {}, "with a class"),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(numbaops.InvalidValueError) as caught:
        run(op_type, opset, inputs, attributes)
    assert text in str(caught.value)
    assert caught.value.op_type == op_type


def transformed(line: list[complex], inverse: int = 0) -> list[complex]:
    size = len(line)
    turn = (2j if inverse else -2j) * math.pi / max(size, 1)
    y = [sum(value * cmath.exp(turn * k * n) for n, value in enumerate(line)) for k in range(size)]
    return [value / size for value in y] if inverse else y


def complex_lines(x: Any) -> Any:
    wide = x.astype(np.float64)
    return wide[..., 0] + 1j * (wide[..., 1] if x.shape[-1] == 2 else 0)


def in_pairs(y: Any, dtype: np.dtype[Any]) -> Any:
    return np.stack([y.real, y.imag], -1).astype(dtype)


def spectrum(case: Case) -> Any:
    x, length, *rest = [*case.inputs, None][:3]
    inverse, onesided = case.attributes["inverse"], case.attributes["onesided"]
    axis = case.attributes["axis"] if case.opset < 20 else -2 if rest[0] is None else rest[0].item()
    lines = np.moveaxis(complex_lines(x), axis % x.ndim, -1)
    size = length.item() if length is not None else 2 * (lines.shape[-1] - 1) if inverse and onesided else lines.shape[-1]
    used = size // 2 + 1 if inverse and onesided else size
    y = np.zeros((*lines.shape[:-1], size), complex)
    for place in np.ndindex(lines.shape[:-1]):
        line = [*lines[place], *[0] * used][:used]
        if inverse and onesided:  # the other half is conjugate; the first and, of an even number, the last are real
            line = [line[k] if k < used else line[size - k].conjugate() for k in range(size)]
            line = [value.real if k in (0, size / 2) else value for k, value in enumerate(line)]
        y[place] = transformed([complex(value) for value in line], inverse)
    if onesided and not inverse:
        y = y[..., : size // 2 + 1]
    y = np.moveaxis(y, -1, axis % x.ndim)
    return y.real[..., None].astype(x.dtype) if inverse and onesided else in_pairs(y, x.dtype)


def frames(case: Case) -> Any:
    x, step, window, length = case.inputs
    size, hop = (window.size if length is None else length.item()), step.item()
    weight = np.ones(size) if window is None else window.astype(np.float64)
    lines = complex_lines(x)
    y = [[transformed(list(line[at : at + size] * weight)) for at in range(0, line.size - size + 1, hop)] for line in lines]
    y = np.array(y)
    return in_pairs(y[..., : size // 2 + 1] if case.attributes["onesided"] else y, x.dtype)


WINDOWS = {"HannWindow": (0.5, 0.5, 0), "HammingWindow": (25 / 46, 21 / 46, 0), "BlackmanWindow": (0.42, 0.5, 0.08)}
TYPES = {1: FLOAT32, 10: FLOAT16, 11: FLOAT64}


def window(case: Case) -> Any:
    size, (a, b, c) = case.inputs[0].item(), WINDOWS[case.op_type]
    period = size if case.attributes["periodic"] else size - 1
    angles = [2 * math.pi * n / period if period else NAN for n in range(size)]
    return floats([a - b * math.cos(angle) + c * math.cos(2 * angle) for angle in angles], TYPES[case.attributes["output_datatype"]])


def weights(inputs: list[Any], dtype: np.dtype[Any]) -> Any:
    bands, length, rate, low, high = (each.item() for each in inputs)
    first, last = (2595 * math.log10(1 + edge / 700) for edge in (low, high))
    hertz = [700 * (10 ** ((first + number * (last - first) / (bands + 2)) / 2595) - 1) for number in range(bands + 2)]
    edges = [math.floor((length + 1) * each / rate + 1e-9) for each in hertz]
    y = np.zeros((length // 2 + 1, bands))
    for band in range(bands):
        left, peak, right = edges[band : band + 3]
        for at in range(len(y)):
            if at == peak:
                y[at, band] = 1
            elif left <= at < peak:
                y[at, band] = (at - left) / (peak - left)
            elif peak < at < right:
                y[at, band] = (right - at) / (right - peak)
    return y.astype(dtype)


def counted(case: Case) -> Any:
    dtype = case.inputs[0].dtype
    if dtype.kind in "iu":
        return np.array(range(*(each.item() for each in case.inputs)), dtype)
    # as many as the arithmetic of the type says, of 16 bits that of float32
    start, limit, delta = (np.float32(each) if dtype.itemsize == 2 else np.float64(each) for each in case.inputs)
    steps = max(math.ceil((limit - start) / delta), 0)
    return floats([float(Fraction(float(start)) + number * Fraction(float(delta))) for number in range(steps)], dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of infinities
def test_drawn_cases_beside_loops() -> None:
    seen = set()
    for case in signal.draws(np.random.default_rng(5)):
        seen.add(case.op_type)
        atol = 1e-5
        if case.op_type == "DFT":
            want = spectrum(case)
        elif case.op_type == "STFT":
            want = frames(case)
        elif case.op_type in WINDOWS:
            want = window(case)
        elif case.op_type == "Range":
            want = counted(case)
        else:
            want = weights(case.inputs, TYPES[case.attributes["output_datatype"]])
        if want.dtype.itemsize == 2:
            atol = 2e-2 if want.dtype == BFLOAT16 else 2e-3
        (got,) = run(case.op_type, case.opset, case.inputs, case.attributes)
        assert_values(got, want, case, atol)
    assert seen == DETERMINISTIC


def test_inputs_stay_and_outputs_are_new() -> None:
    leaves = {(leaf.op_type, version): leaf for leaf in LEAVES for version in leaf.since_versions}
    for case in signal.draws(np.random.default_rng(7)):
        leaf = leaves[case.op_type, case.since_version]
        copies = [None if each is None else each.copy() for each in case.inputs]
        result = leaf.function(*copies, **case.attributes)
        for before, after in zip(case.inputs, copies, strict=True):
            assert before is None or before.tobytes() == after.tobytes(), case
            assert after is None or leaf.aliases or not np.may_share_memory(result, after), case


@pytest.mark.parametrize("opset", [1, 22])
@pytest.mark.parametrize("op_type", ["RandomNormal", "RandomUniform"])
def test_random_shapes_and_types(op_type: str, opset: int) -> None:
    for shape in ([2, 3], [0, 2], [1]):
        for code, dtype in {1: FLOAT32, 10: FLOAT16, 11: FLOAT64}.items():
            (got,) = run(op_type, opset, [], {"shape": shape, "dtype": code, "seed": 3.0})
            assert (got.dtype, got.shape) == (dtype, tuple(shape))
    for shape in ((), (2, 0), (3,)):
        (got,) = run(f"{op_type}Like", opset, [np.zeros(shape, np.float64)])
        assert (got.dtype, got.shape) == (FLOAT64, shape)
        (got,) = run(f"{op_type}Like", opset, [np.zeros(shape, np.int32)], {"dtype": 10})
        assert (got.dtype, got.shape) == (FLOAT16, shape)


def test_random_numbers_follow_their_distribution() -> None:
    (normal,) = run("RandomNormal", 1, [], {"shape": [10000], "mean": 3.0, "scale": 2.0, "seed": 1.0})
    (uniform,) = run("RandomUniform", 1, [], {"shape": [10000], "low": -1.0, "high": 3.0, "seed": 1.0})
    assert abs(normal.mean() - 3) < 0.1 and abs(normal.std() - 2) < 0.1
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 0.1
    again = run("RandomNormal", 1, [], {"shape": [10000], "mean": 3.0, "scale": 2.0, "seed": 1.0})[0]
    assert again.tolist() == normal.tolist() and run("RandomNormal", 1, [], {"shape": [10000]})[0].tolist() != normal.tolist()


def test_random_numbers_like_those_of_integers_need_a_type() -> None:
    with pytest.raises(numbaops.InvalidTypeError, match="dtype is int32"):
        run("RandomNormalLike", 1, [np.zeros(1, np.int32)])


def test_bernoulli() -> None:
    chances = np.repeat(floats([0, 0.25, 1], BFLOAT16), 2000)
    (got,) = run("Bernoulli", 22, [chances], {"seed": 1.0, "dtype": 9})
    assert got.dtype == bool
    assert [part.mean() for part in np.split(got, 3)] == pytest.approx([0, 0.25, 1], abs=0.05)
    (got,) = run("Bernoulli", 15, [np.array(1, np.float16)])
    assert (got.dtype, got.shape, got.item()) == (FLOAT16, (), 1)


def test_multinomial() -> None:
    scores = np.log(floats([[1, 2, 5], [0.5, 0, 0.5]], np.float64) + 1e-300).astype(np.float32)
    for opset, attributes, dtype in ((7, {}, np.int32), (22, {"dtype": 7}, np.int64)):
        (got,) = run("Multinomial", opset, [scores], {"sample_size": 8000, "seed": 2.0} | attributes)
        assert (got.dtype, got.shape) == (dtype, (2, 8000))
        shares = [np.bincount(row, minlength=3) / 8000 for row in got]
        np.testing.assert_allclose(shares, [[0.125, 0.25, 0.625], [0.5, 0, 0.5]], atol=0.03)
    assert run("Multinomial", 7, [np.zeros((0, 2), np.float32)])[0].shape == (0, 1)


def test_onnx_node_cases(node_cases: list[Any]) -> None:
    alone = [case for case in node_cases if len(case.model.graph.node) == 1]
    assert assert_node_cases(alone, *DETERMINISTIC) > 15
