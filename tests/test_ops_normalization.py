"""Normalizations, the Softmax family and Dropout at every version.

First what a comparison on drawn inputs found wrong elsewhere, as small cases worked out by hand; then drawn cases beside slow loops.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import numbaops
from drawn import normalization
from drawn.case import Case
from leaf_checks import NEWEST, assert_close, assert_node_cases, assert_pure, run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16, FLOAT32, FLOAT64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
THIRD = 1 / 3


def floats(values: Any, dtype: Any = np.float32) -> Any:
    return np.array(values, np.float64).astype(dtype)


def per_channel(scale: Any = 1, bias: Any = 0, mean: Any = 1, var: Any = 3, shape: Any = 2, types: Any = (FLOAT32,) * 4) -> list[Any]:
    """The parameters of BatchNormalization."""
    return [np.full(shape, value).astype(dtype) for value, dtype in zip((scale, bias, mean, var), types, strict=True)]


# 4 samples of mean 1 and variance 3 to standardize with epsilon 1 (to -0.5 ... 2.5); the batch has means 2, 4 and variances 4
BATCH = floats([[0, 2], [4, 6]])
INFERRED = [[-0.5, 0.5], [1.5, 2.5]]
TRAINED = [[-2 * THIRD] * 2, [2 * THIRD] * 2]  # with epsilon 5
AFTER_TRAINING = ([1.5, 2.5], [3.5, 3.5], [2, 4], [4, 4])  # with momentum 0.5
TRAINING = {"epsilon": 5.0, "momentum": 0.5}
CONSUMED = {"consumed_inputs": [0, 0, 0, 1, 1]}
IMAGE = floats([[[0, 2], [4, 6]]])  # one image, two channels of two elements

# id, operator, opset, inputs, attributes, outputs (values; the type is the first input's unless it is given)
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], list[Any]]] = [
    ("infers", "BatchNormalization", 9, [BATCH, *per_channel()], {"epsilon": 1.0}, [INFERRED]),
    ("infers, whatever the momentum", "BatchNormalization", 9, [BATCH, *per_channel()], {"epsilon": 1.0, "momentum": 0.1}, [INFERRED]),
    ("infers, scaled", "BatchNormalization", 15, [BATCH, *per_channel(2, 1)], {"epsilon": 1.0}, [[[0, 2], [4, 6]]]),
    ("infers, float64", "BatchNormalization", 9, [BATCH.astype(float), *per_channel(types=(FLOAT64,) * 4)], {"epsilon": 1.0}, [INFERRED]),
    ("infers with is_test", "BatchNormalization", 6, [BATCH, *per_channel()], {"epsilon": 1.0, "is_test": 1}, [INFERRED]),
    (
        "infers with is_test, an image",
        "BatchNormalization",
        1,
        [IMAGE[..., None], *per_channel(bias=[0, 1])],
        {"epsilon": 1.0, "is_test": 1} | CONSUMED,
        [[[[[-0.5], [0.5]], [[2.5], [3.5]]]]],
    ),
    ("infers at opset 7", "BatchNormalization", 7, [BATCH, *per_channel()], {"epsilon": 1.0}, [INFERRED]),
    (
        "statistics per activation",
        "BatchNormalization",
        7,
        [IMAGE, *(floats(each) for each in ([[1, 1], [1, 2]], [[0, 0], [1, 0]], [[0, 0], [4, 5]], [[3, 8], [3, 3]]))],
        {"epsilon": 1.0, "spatial": 0},
        [[[[0, 2 * THIRD], [1, 1]]]],
    ),
    ("one dimension is one channel", "BatchNormalization", 9, [BATCH[0], *per_channel(shape=1)], {"epsilon": 1.0}, [INFERRED[0]]),
    (
        "one channel for each of no images",
        "BatchNormalization",
        9,
        [np.zeros((0, 2, 3), np.float32), *per_channel()],
        {},
        [np.zeros((0, 2, 3))],
    ),
    ("trains without is_test", "BatchNormalization", 6, [BATCH, *per_channel()], TRAINING, [TRAINED, *AFTER_TRAINING]),
    ("trains without is_test, one output", "BatchNormalization", 6, [BATCH, *per_channel()], TRAINING, [TRAINED]),
    ("trains with five outputs", "BatchNormalization", 7, [BATCH, *per_channel()], TRAINING, [TRAINED, *AFTER_TRAINING]),
    ("trains with five outputs", "BatchNormalization", 9, [BATCH, *per_channel()], TRAINING, [TRAINED, *AFTER_TRAINING]),
    ("trains", "BatchNormalization", 14, [BATCH, *per_channel()], TRAINING | {"training_mode": 1}, [TRAINED, *AFTER_TRAINING[:2]]),
    (
        "trains per activation",
        "BatchNormalization",
        7,
        [floats([[[1, 0]], [[5, 0]]]), *per_channel(shape=(1, 2))],
        TRAINING | {"spatial": 0},
        [[[[-2 * THIRD, 0]], [[2 * THIRD, 0]]], [[2, 0.5]], [[3.5, 1.5]], [[3, 0]], [[4, 0]]],
    ),
    (
        "statistics of another type",
        "BatchNormalization",
        15,
        [BATCH.astype(np.float16), *per_channel(types=(BFLOAT16, BFLOAT16, FLOAT32, FLOAT32))],
        TRAINING | {"training_mode": 1},
        [TRAINED, floats([1.5, 2.5]), floats([3.5, 3.5])],
    ),
    (
        "statistics beyond float16",
        "BatchNormalization",
        9,
        [floats([[-300, 0]], FLOAT16), *per_channel(1, 0, 300, 40000, types=(FLOAT16,) * 4)],
        {"epsilon": 0.0},
        [[[-3, -1.5]]],
    ),
    (
        "variance beyond float16",
        "InstanceNormalization",
        6,
        [floats([[[0, 1000]]], FLOAT16), floats([1], FLOAT16), floats([0], FLOAT16)],
        {},
        [[[[-1, 1]]]],
    ),
    (
        "bfloat16",
        "InstanceNormalization",
        22,
        [floats([[[1, 3]]], BFLOAT16), floats([2], BFLOAT16), floats([1], BFLOAT16)],
        {"epsilon": 0.0},
        [[[[-1, 3]]]],
    ),
    (
        "with consumed_inputs",
        "InstanceNormalization",
        1,
        [IMAGE[..., None], floats([1, 1]), floats([0, 1])],
        {"epsilon": 0.0, "consumed_inputs": [0]},
        [[[[[-1], [1]], [[0], [2]]]]],
    ),
    ("a far mean", "InstanceNormalization", 6, [floats([[[10000, 10002]]]), floats([1]), floats([0])], {"epsilon": 0.0}, [[[[-1, 1]]]]),
    (
        "a scale for each group",
        "GroupNormalization",
        18,
        [floats([[[0], [2], [3], [7]]]), floats([1, 2]), floats([0, 1])],
        {"num_groups": 2, "epsilon": 0.0},
        [[[[-1], [1], [-1], [3]]]],
    ),
    (
        "a scale for each channel",
        "GroupNormalization",
        21,
        [floats([[[0], [2], [3], [7]]]), floats([1, 2, 3, 4]), floats([0, 1, 0, 1])],
        {"num_groups": 2, "epsilon": 0.0},
        [[[[-1], [3], [-3], [5]]]],
    ),
    (
        "a far mean",
        "GroupNormalization",
        18,
        [floats([[[10000, 10002]]]), floats([1]), floats([0])],
        {"num_groups": 1, "epsilon": 0.0},
        [[[[-1, 1]]]],
    ),
    (
        "variance beyond float16",
        "GroupNormalization",
        18,
        [floats([[[0, 1000]]], FLOAT16), floats([1], FLOAT16), floats([0], FLOAT16)],
        {"num_groups": 1},
        [[[[-1, 1]]]],
    ),
    (
        "float64 stays whatever stash_type",
        "GroupNormalization",
        21,
        [floats([[[1e9, 1e9 + 2]]], FLOAT64), floats([1], FLOAT64), floats([0], FLOAT64)],
        {"num_groups": 1, "epsilon": 0.0},
        [[[[-1, 1]]]],
    ),
    ("all outputs", "LayerNormalization", 17, [floats([[0, 4]]), floats([1, 3])], {"epsilon": 5.0}, [[[-2 * THIRD, 2]], [[2]], [[THIRD]]]),
    ("bias", "LayerNormalization", 17, [floats([[0, 4]]), floats([1, 3]), floats([1, 0])], {"epsilon": 5.0}, [[[THIRD, 2]]]),
    (
        "statistics of float16 are float",
        "LayerNormalization",
        17,
        [floats([[0, 1000]], FLOAT16), floats([1, 0.5], FLOAT16)],
        {},
        [[[-1, 0.5]], floats([[500]]), floats([[0.002]])],
    ),
    (
        "statistics of bfloat16 are float",
        "LayerNormalization",
        17,
        [floats([[1, 2]], BFLOAT16), floats([1, 1], BFLOAT16)],
        {"epsilon": 0.0},
        [[[-1, 1]], floats([[1.5]]), floats([[2]])],
    ),
    (
        "statistics in bfloat16",
        "LayerNormalization",
        17,
        [floats([[256, 257.5]]), floats([1, 1])],  # 257.5 becomes 258
        {"epsilon": 0.0, "stash_type": 16},
        [[[-1, 1]], floats([[257]], BFLOAT16), floats([[1]], BFLOAT16)],
    ),
    (
        "float64, statistics are float",
        "LayerNormalization",
        17,
        [floats([[1e9, 1e9 + 2]], FLOAT64), floats([1, 1], FLOAT64)],
        {"epsilon": 0.0},
        [[[-1, 1]], floats([[1e9]]), floats([[1]])],
    ),
    (
        "first axis, scale broadcasts",
        "LayerNormalization",
        17,
        [floats([[0], [4]]), floats([3])],
        {"axis": 0, "epsilon": 5.0},
        [[[-2], [2]], [[2]], [[THIRD]]],
    ),
    (
        "the type of the scale",
        "RMSNormalization",
        23,
        [floats([[3, 4]], FLOAT16), floats([5, 5])],
        {"epsilon": 12.5},
        [floats([[3.00048828125, 3.9990234375]])],
    ),
    (
        "rounded to the type of X",
        "RMSNormalization",
        23,
        [floats([[1, 1]], BFLOAT16), floats([1, 1])],
        {"epsilon": 8.0},
        [floats([[0.333984375] * 2])],
    ),
    ("squares beyond float16", "RMSNormalization", 23, [floats([[1000, -1000]], FLOAT16), floats([1, 1], FLOAT16)], {}, [[[1, -1]]]),
    ("in bfloat16", "RMSNormalization", 23, [floats([[257]]), floats([1])], {"epsilon": 0.0, "stash_type": 16}, [[[1]]]),
    ("p 1 of negatives", "LpNormalization", 1, [floats([[-1, 3]])], {"p": 1}, [[[-0.25, 0.75]]]),
    ("p 1 of negatives, bfloat16", "LpNormalization", 22, [floats([[-1, 3]], BFLOAT16)], {"p": 1}, [[[-0.25, 0.75]]]),
    ("zeros", "LpNormalization", 22, [floats([[0, 3], [0, 4]])], {"axis": 0}, [[[0, 0.6], [0, 0.8]]]),
    ("squares beyond float16", "LpNormalization", 1, [floats([[300, 400]], FLOAT16)], {}, [[[0.6, 0.8]]]),
    ("no elements", "LpNormalization", 1, [np.zeros((2, 0), np.float32)], {}, [np.zeros((2, 0))]),
    ("equal elements", "MeanVarianceNormalization", 9, [floats([[[[5, 5]]]])], {}, [[[[[0, 0]]]]]),
    ("a far mean", "MeanVarianceNormalization", 13, [floats([[[[10000, 10002]]]])], {}, [[[[[-1, 1]]]]]),
    ("float16, negative axes", "MeanVarianceNormalization", 13, [floats([[0, 1000]], FLOAT16)], {"axes": [-1]}, [[[-1, 1]]]),
    ("float64", "MeanVarianceNormalization", 9, [floats([[0, 2]], FLOAT64)], {"axes": [1]}, [[[-1, 1]]]),
    # square sums 5, 14, 13; alpha / size is 1
    (
        "one image, more channels",
        "LRN",
        1,
        [floats([[1, 2, 3]]).reshape(1, 3, 1, 1)],
        {"size": 3, "alpha": 3.0, "beta": 1.0},
        [floats([[1 / 6, 2 / 15, 3 / 14]]).reshape(1, 3, 1, 1)],
    ),
    ("rank 2", "LRN", 13, [floats([[1, 2, 3]])], {"size": 3, "alpha": 3.0, "beta": 1.0}, [[[1 / 6, 2 / 15, 3 / 14]]]),
    # one channel more after than before: 5, 13, 9
    ("an even size", "LRN", 13, [floats([[[1], [2], [3]]])], {"size": 2, "alpha": 2.0, "beta": 1.0}, [[[[1 / 6], [2 / 14], [3 / 10]]]]),
    ("size beyond the channels", "LRN", 13, [floats([[1, 2]])], {"size": 9, "alpha": 9.0, "beta": 1.0, "bias": 5.0}, [[[0.1, 0.2]]]),
    ("squares beyond float16", "LRN", 13, [floats([[300]], FLOAT16)], {"size": 1, "alpha": 1.0, "beta": 0.5, "bias": 0.0}, [[[1]]]),
    ("all dimensions after the first", "Softmax", 1, [np.zeros((2, 2, 2), np.float32)], {}, [np.full((2, 2, 2), 0.25)]),
    ("all dimensions", "Softmax", 11, [np.zeros((2, 2), np.float32)], {"axis": -2}, [np.full((2, 2), 0.25)]),
    ("columns of one element", "Softmax", 1, [np.zeros(3, np.float32)], {}, [[1, 1, 1]]),
    ("no rows", "Softmax", 11, [np.zeros((0, 2), np.float32)], {}, [np.zeros((0, 2))]),
    ("no columns", "Softmax", 13, [np.zeros((2, 0), np.float32)], {}, [np.zeros((2, 0))]),
    ("a scalar", "Softmax", 13, [np.array(7, np.float32)], {}, [1]),
    ("large and infinite", "Softmax", 13, [floats([[1e30, 1e30, -math.inf]])], {}, [[[0.5, 0.5, 0]]]),
    ("sum beyond the precision of bfloat16", "Softmax", 13, [np.zeros((1, 1024), BFLOAT16)], {}, [np.full((1, 1024), 2.0**-10)]),
    ("all dimensions after the first", "LogSoftmax", 1, [np.zeros((1, 2, 2), np.float32)], {}, [np.full((1, 2, 2), -math.log(4))]),
    ("far apart", "LogSoftmax", 13, [floats([[0, 200]])], {}, [[[-200, 0]]]),
    ("far apart, float16", "LogSoftmax", 13, [floats([[0, 40]], FLOAT16)], {"axis": 1}, [[[-40, 0]]]),
    ("axis 0", "LogSoftmax", 13, [np.zeros((2, 1), np.float32)], {"axis": 0}, [np.full((2, 1), -math.log(2))]),
    ("the first of equal ones of a row", "Hardmax", 1, [floats([[[1, 3], [3, 0]]])], {}, [[[[0, 1], [0, 0]]]]),
    ("all dimensions", "Hardmax", 11, [floats([[1, 3], [3, 0]])], {"axis": 0}, [[[0, 1], [0, 0]]]),
    ("along the last axis", "Hardmax", 13, [floats([[1, 3], [3, 0]])], {}, [[[0, 1], [1, 0]]]),
    ("bfloat16", "Hardmax", 13, [floats([[1, 3], [4, 0]], BFLOAT16)], {"axis": 0}, [[[0, 1], [1, 0]]]),
    ("no columns", "Hardmax", 13, [np.zeros((2, 0), np.float32)], {}, [np.zeros((2, 0))]),
    ("is_test", "Dropout", 1, [BATCH], {"is_test": 1, "consumed_inputs": [0]}, [BATCH, np.ones((2, 2), np.float32)]),
    ("is_test", "Dropout", 6, [BATCH], {"is_test": 1}, [BATCH]),
    ("nothing dropped", "Dropout", 6, [BATCH], {"ratio": 0.0}, [BATCH, np.ones((2, 2), np.float32)]),
    ("a mask of the type of the data", "Dropout", 7, [BATCH], {"ratio": 0.3}, [BATCH, np.ones((2, 2), np.float32)]),
    ("a bool mask", "Dropout", 10, [BATCH], {}, [BATCH, np.ones((2, 2), bool)]),
    ("no ratio", "Dropout", 13, [BATCH, None, np.array(False)], {}, [BATCH, np.ones((2, 2), bool)]),
    ("ratio 0", "Dropout", 22, [BATCH.astype(BFLOAT16), np.array(0, BFLOAT16), np.array(True)], {}, [BATCH, np.ones((2, 2), bool)]),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "outputs"),
    [case[1:] for case in CASES],
    ids=[f"{case[1]}-{case[2]}: {case[0]}" for case in CASES],
)
def test_case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], outputs: list[Any]) -> None:
    results = run(op_type, opset, inputs, attributes, len(outputs))
    for number, (got, want) in enumerate(zip(results, outputs, strict=True)):
        typed = number > 0 or op_type == "RMSNormalization"
        assert_close(got, want, want.dtype if typed and isinstance(want, np.ndarray) else inputs[0].dtype)


def parts(x: Any, axes: Any) -> Iterator[Any]:
    """Indices of the parts of ``x`` that differ only in those axes."""
    return itertools.product(*[[slice(None)] if axis in axes else range(size) for axis, size in enumerate(x.shape)])


def attribute(case: Case, name: str, default: Any = None) -> Any:
    """An attribute as the model holds it: floats are float32 there."""
    value = case.attributes.get(name, default)
    return float(np.float32(value)) if isinstance(value, float) else value


def standardized(x: Any, axes: Any, epsilon: float) -> Any:
    result = np.empty(x.shape)
    for place in parts(x, axes):
        values = x[place].astype(np.float64)
        mean = math.fsum(values.flat) / max(values.size, 1)
        variance = math.fsum((values - mean).ravel() ** 2) / max(values.size, 1)
        result[place] = (values - mean) / (math.sqrt(variance + epsilon) or 1)
    return result


def along_channels(parameter: Any, x: Any) -> Any:
    parameter = parameter.astype(np.float64)
    return parameter.reshape(-1, *(1,) * (x.ndim - 2)) if parameter.ndim == 1 else parameter


def batch_normalization(case: Case) -> Any:
    x, epsilon = case.inputs[0], attribute(case, "epsilon")
    scale, bias, mean, var = (along_channels(each, x) for each in case.inputs[1:])
    if case.outputs > 1:
        axes = {axis for axis in range(x.ndim) if axis != 1} if attribute(case, "spatial", 1) else {0}
        return standardized(x, axes, epsilon) * scale + bias
    return (x.astype(np.float64) - mean) / np.sqrt(var + epsilon) * scale + bias


def instance_normalization(case: Case) -> Any:
    x = case.inputs[0]
    scale, bias = (along_channels(each, x) for each in case.inputs[1:])
    return standardized(x, range(2, x.ndim), attribute(case, "epsilon", 1e-5)) * scale + bias


def group_normalization(case: Case) -> Any:
    x, groups = case.inputs[0], attribute(case, "num_groups")
    grouped = x.reshape(len(x), groups, x.shape[1] // groups, *x.shape[2:])
    y = standardized(grouped, range(2, grouped.ndim), attribute(case, "epsilon", 1e-5)).reshape(x.shape)
    times = x.shape[1] // groups if case.since_version == 18 else 1
    scale, bias = (along_channels(np.repeat(each, times), x) for each in case.inputs[1:])
    return y * scale + bias


def layer_normalization(case: Case) -> Any:
    x = case.inputs[0]
    y = standardized(x, range(attribute(case, "axis", -1) % x.ndim, x.ndim), attribute(case, "epsilon", 1e-5))
    scale, *bias = (each.astype(np.float64) for each in case.inputs[1:])
    return y * scale + sum(bias)


def rms_normalization(case: Case) -> Any:
    x = case.inputs[0].astype(np.float64)
    y = np.empty(x.shape)
    for place in parts(x, range(attribute(case, "axis", -1) % x.ndim, x.ndim)):
        y[place] = x[place] / math.sqrt(math.fsum(x[place].ravel() ** 2) / max(x[place].size, 1) + attribute(case, "epsilon", 1e-5))
    return y * case.inputs[1].astype(np.float64)


def lp_normalization(case: Case) -> Any:
    x, p = case.inputs[0].astype(np.float64), attribute(case, "p", 2)
    y = np.empty(x.shape)
    for place in parts(x, {attribute(case, "axis", -1) % x.ndim}):
        y[place] = x[place] / (math.fsum(abs(x[place]) ** p) ** (1 / p) or 1)
    return y


def mean_variance_normalization(case: Case) -> Any:
    return standardized(case.inputs[0], attribute(case, "axes", (0, 2, 3)), 0.0)


def lrn(case: Case) -> Any:
    x = case.inputs[0].astype(np.float64)
    size, alpha, beta, bias = (attribute(case, *each) for each in (("size", 0), ("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    y = np.empty(x.shape)
    for place in np.ndindex(x.shape):
        first, last = place[1] - math.floor((size - 1) / 2), place[1] + math.ceil((size - 1) / 2)
        square = sum(x[place[0], c, *place[2:]] ** 2 for c in range(max(first, 0), min(last, x.shape[1] - 1) + 1))
        y[place] = x[place] / (bias + alpha / size * square) ** beta
    return y


def softmax_family(case: Case) -> Any:
    x = case.inputs[0].astype(np.float64)
    axis = attribute(case, "axis", 1 if case.since_version < 13 else -1) % x.ndim
    y = np.zeros(x.shape)
    for place in parts(x, range(axis, x.ndim) if case.since_version < 13 else {axis}):
        values = x[place]
        if not values.size:
            continue
        if case.op_type == "Hardmax":
            y[place].flat[list(values.flat).index(max(values.flat))] = 1
            continue
        shifted = values - max(values.flat)
        total = math.fsum(math.exp(value) for value in shifted.flat)
        y[place] = shifted - math.log(total) if case.op_type == "LogSoftmax" else np.exp(shifted) / total
    return y


ORACLES = {
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "LRN": lrn,
    "Softmax": softmax_family,
    "LogSoftmax": softmax_family,
    "Hardmax": softmax_family,
}
DRAWN = [case for case in normalization.draws(np.random.default_rng(7)) if case.opset <= NEWEST]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the slow loops, where there is nothing to take a mean of
@pytest.mark.parametrize("op_type", ORACLES)
def test_beside_slow_loops(op_type: str) -> None:
    cases = [case for case in DRAWN if case.op_type == op_type and not np.isneginf(case.inputs[0].astype(np.float32)).all()]
    assert len(cases) >= 36
    for case in cases:
        want = ORACLES[op_type](case)
        if not np.isfinite(want.astype(np.float64)).all() and op_type != "LogSoftmax":
            continue
        got = run(op_type, case.opset, case.inputs, case.attributes, case.outputs)[0]
        # float64: MeanVarianceNormalization has an epsilon of 1e-9; float32: differences of near values keep fewer digits
        rtol, atol = (1e-8, 1e-8) if got.dtype == FLOAT64 else (1e-4, 1e-4) if got.dtype == FLOAT32 else (2 * case.rtol, case.atol)
        try:
            assert_close(got, want, case.inputs[0].dtype, rtol, atol)
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from None


@pytest.mark.parametrize("op_type", normalization.VERSIONS)
def test_inputs_stay_and_only_dropout_hands_them_on(op_type: str) -> None:
    for case in DRAWN:
        if case.op_type == op_type:
            assert_pure(case)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the operators that onnx.reference runs
def test_onnx_node_cases(node_cases: list[Any]) -> None:
    assert assert_node_cases(node_cases, *normalization.VERSIONS) > 100


@pytest.mark.parametrize("opset", [1, 6, 12, 13, 22])
def test_dropout_in_training(opset: int) -> None:
    x = np.ones((40, 50), np.float32)
    inputs, attributes = ([x], {"ratio": 0.75}) if opset < 12 else ([x, np.array(0.75), np.array(True)], {"seed": 5})
    y, kept = run("Dropout", opset, inputs, attributes, 2)
    assert y.dtype == np.float32 and kept.dtype == (np.float32 if opset < 12 else np.bool_)
    assert 0.15 < kept.mean() < 0.35
    np.testing.assert_array_equal(y, kept * np.float32(4))


def test_dropout_draws_by_its_seed() -> None:
    x = np.ones((3, 4), FLOAT16)
    kept = np.random.RandomState(9).uniform(0, 1.0, x.shape) >= 0.5  # as onnx.reference draws
    for inputs in ([x, None, np.array(True)], [x, np.array(0.5, FLOAT64), np.array(True)], [x, np.array(0.5, BFLOAT16), np.array([True])]):
        y, mask = run("Dropout", 22, inputs, {"seed": 9}, 2)
        np.testing.assert_array_equal(mask, kept)
        assert_close(y, 2 * kept, FLOAT16)
    assert run("Dropout", 13, [np.array(3, np.float32), None, np.array(True)], {"seed": -1})[0] in (0, 6)


# what is wrong, operator, opset, inputs, attributes, text of the error
ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("scale of another size", "BatchNormalization", 9, [BATCH, *per_channel(shape=3)], {}, r"scale has shape \[3\].*allowed: \[2\]"),
    ("rank 0", "BatchNormalization", 15, [np.array(1, np.float32), *per_channel()], {}, "X has rank 0"),
    ("no channels", "InstanceNormalization", 6, [BATCH[0], *per_channel()[:2]], {}, r"shape \[2\]; allowed: \[N, C"),
    ("groups", "GroupNormalization", 21, [IMAGE, *per_channel()[:2]], {"num_groups": 3}, "num_groups is 3; allowed: a divisor of the 2"),
    ("scale that does not broadcast", "LayerNormalization", 17, [BATCH, floats([1, 2, 3])], {}, r"Scale has shape \[3\].*\[2, 2\]"),
    ("scale of a higher rank", "RMSNormalization", 23, [BATCH[0], BATCH], {}, r"scale has shape \[2, 2\].*\[2\]"),
    ("stash type", "LayerNormalization", 17, [BATCH, BATCH[0]], {"stash_type": 7}, r"stash_type is 7; allowed: 1 \(float\)"),
    ("p", "LpNormalization", 22, [BATCH], {"p": 3}, "p is 3; allowed: 1, 2"),
    ("axis", "LpNormalization", 1, [BATCH], {"axis": 2}, "axis is 2; allowed: -2 to 1"),
    ("axes", "MeanVarianceNormalization", 13, [BATCH], {}, r"axes are \[0, 2, 3\]; allowed: -2 to 1"),
    ("size", "LRN", 13, [BATCH], {"size": 0}, "size is 0; allowed: 1"),
    ("the rank as axis", "Softmax", 13, [BATCH], {"axis": 2}, "axis is 2; allowed: -2 to 1"),
    ("axis before version 13", "Hardmax", 11, [BATCH], {"axis": 3}, "axis is 3; allowed: -2 to 1"),
    ("ratio", "Dropout", 13, [BATCH, np.array(1.0), np.array(True)], {}, "ratio is 1.0; allowed: 0 <= ratio < 1"),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(numbaops.NumbaopsError, match=text) as caught:
        run(op_type, opset, inputs, attributes)
    assert caught.value.op_type == op_type
