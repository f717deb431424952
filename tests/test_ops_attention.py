"""Attention and RotaryEmbedding: small cases worked out by hand, then drawn cases beside slow loops."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import numbaops
from drawn import attention
from drawn.case import Case
from leaf_checks import NEWEST, assert_close, assert_node_cases, assert_pure, run
from numbaops.ops import _attending
from numbaops.runtime import threads

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INF, NAN = math.inf, math.nan
LOG = math.log


def heads(values: Any, dtype: Any = np.float32) -> Any:
    """One head of one batch: ``[sequence, size]``, or ``[sequence]`` for size 1."""
    array = np.array(values, np.float64).astype(dtype)
    return array.reshape(1, 1, len(array), array.shape[1] if array.ndim > 1 else 1)


def floats(values: Any, dtype: Any = np.float32) -> Any:
    return np.array(values, np.float64).astype(dtype)


def query(count: int) -> Any:
    return heads([0] * count)


# Queries of zeros see all visible keys alike: Y is the mean of their values.
V = heads([1, 2, 4, 8])
FOUR = [query(4), heads([0] * 4), V]
TWO_MORE = [query(2), heads([0, 0]), heads([4, 8])]
PAST = [heads([0, 0]), heads([1, 2])]  # before TWO_MORE
# A query of 1 and keys log 1, log 2, log 5 at scale 1: weights 1, 2, 5 of 8
WEIGHTED = [heads([1]), heads([LOG(1), LOG(2), LOG(5)]), heads([8, 16, 80])]
SCORES = [0, LOG(2), LOG(5)]
ONE = {"scale": 1.0}
TWO_HEADS = [np.zeros((1, 4, 1, 1), np.float32), np.zeros((1, 2, 1, 1), np.float32), floats([[[[1]], [[2]]]])]

# id, opset, inputs, attributes, outputs of which None is not looked at
CASES: list[tuple[str, int, list[Any], dict[str, Any], list[Any]]] = [
    ("all keys", 23, WEIGHTED, ONE, [heads([55])]),
    ("scale of the head size", 23, [heads([[1, 0, 0, 0]]), heads([[2 * LOG(3), 0, 0, 0], [0] * 4]), heads([4, 8])], {}, [heads([5])]),
    ("a negative scale", 23, [WEIGHTED[0], -WEIGHTED[1], WEIGHTED[2]], {"scale": -1.0}, [heads([55])]),
    ("causal", 23, FOUR, {"is_causal": 1}, [heads([1, 1.5, 7 / 3, 3.75])]),
    ("causal, fewer queries than keys", 23, [query(2), *FOUR[1:]], {"is_causal": 1}, [heads([1, 1.5])]),
    ("causal after the past", 23, [*TWO_MORE, None, *PAST], {"is_causal": 1}, [heads([7 / 3, 3.75]), heads([0] * 4), V]),
    ("causal after the past, one query", 23, [query(1), *TWO_MORE[1:], None, *PAST], {"is_causal": 1}, [heads([7 / 3])]),
    ("bool mask", 23, [*FOUR, np.array([True, False, True, False])], {}, [heads([2.5] * 4)]),
    ("bool mask and causal", 23, [*FOUR, np.array([False, True, True, True])], {"is_causal": 1}, [heads([0, 2, 3, 14 / 3])]),
    ("bool mask by query", 23, [*FOUR, np.eye(4, dtype=bool)], {}, [V]),
    ("one key for all", 23, [query(2), *FOUR[1:], np.array([[True], [False]])], {}, [heads([3.75, 0])]),
    ("one key, the others padded", 24, [query(2), *FOUR[1:], np.array([[True], [False]])], {}, [heads([1, 0])]),
    ("a mask for fewer keys", 24, [query(1), *FOUR[1:], floats([0, 0])], {}, [heads([1.5])]),
    ("a bool mask for fewer keys", 25, [query(1), *FOUR[1:], np.array([False, True])], {}, [heads([2])]),
    ("float mask", 23, [query(1), *FOUR[1:], floats([0, LOG(2), -INF, -INF])], {}, [heads([5 / 3])]),
    ("integers are added", 23, [query(1), *FOUR[1:], np.array([1, 1, 1, 1], np.int32)], {}, [heads([3.75])]),
    (
        "no key left",
        23,
        [query(1), *FOUR[1:], floats([-INF] * 4)],
        {"qk_matmul_output_mode": 3},
        [heads([0]), None, None, heads([[0] * 4])],
    ),
    ("a hidden key of infinite score", 23, [heads([1]), heads([0, INF]), heads([1, 2]), np.array([True, False])], {}, [heads([1])]),
    ("no keys", 23, [query(2), np.zeros((1, 1, 0, 1), np.float32), np.zeros((1, 1, 0, 1), np.float32)], {}, [heads([0, 0])]),
    ("no queries", 23, [query(0), *FOUR[1:]], {}, [np.zeros((1, 1, 0, 1))]),
    ("external cache", 24, [query(1), *FOUR[1:], None, None, None, np.array([3])], {}, [heads([7 / 3])]),
    ("external cache, causal", 24, [query(2), *FOUR[1:], None, None, None, np.array([3])], {"is_causal": 1}, [heads([1.5, 7 / 3])]),
    ("more queries than keys in the cache", 24, [query(2), *FOUR[1:], None, None, None, np.array([1])], {"is_causal": 1}, [heads([0, 1])]),
    ("window to the left", 25, FOUR, {"left_window_size": 1}, [heads([3.75, 3.75, 14 / 3, 6])]),
    ("window to the right", 25, FOUR, {"right_window_size": 0}, [heads([1, 1.5, 7 / 3, 3.75])]),
    ("window and causal", 25, FOUR, {"left_window_size": 0, "right_window_size": 2, "is_causal": 1}, [V]),
    ("window after the past", 25, [*TWO_MORE, None, *PAST], {"left_window_size": 1, "right_window_size": 0}, [heads([3, 6])]),
    (
        "window in an external cache",
        25,
        [query(1), *FOUR[1:], None, None, None, np.array([3])],
        {"left_window_size": 1},
        [heads([3])],
    ),
    ("groups of queries", 23, TWO_HEADS, {}, [floats([[[[1]], [[1]], [[2]], [[2]]]])]),
    (
        "heads side by side",
        23,
        [np.zeros((1, 1, 4), np.float32), np.zeros((1, 1, 2), np.float32), floats([[[1, 2]]])],
        {"q_num_heads": 4, "kv_num_heads": 2},
        [floats([[[1, 1, 2, 2]]]), np.zeros((1, 2, 1, 1)), floats([[[[1]], [[2]]]])],
    ),
    ("scores", 23, WEIGHTED, ONE, [heads([55]), None, None, heads([SCORES])]),
    ("scores before softcap", 23, [*WEIGHTED], ONE | {"softcap": 1.0}, [None, None, None, heads([SCORES])]),
    (
        "scores after softcap",
        23,
        WEIGHTED,
        ONE | {"softcap": 2.0, "qk_matmul_output_mode": 1},
        [None, None, None, heads([[2 * math.tanh(s / 2) for s in SCORES]])],
    ),
    (
        "scores and mask",
        23,
        [*WEIGHTED, np.array([True, True, False])],
        ONE | {"qk_matmul_output_mode": 2},
        [heads([40 / 3]), None, None, heads([[0, LOG(2), -INF]])],
    ),
    ("weights", 23, WEIGHTED, ONE | {"qk_matmul_output_mode": 3}, [None, None, None, heads([[0.125, 0.25, 0.625]])]),
    ("softcap leaves the mask", 23, [query(1), *FOUR[1:], floats([0, -INF, -INF, 0])], {"softcap": 0.5}, [heads([4.5])]),
    # 1 / 3 in bfloat16 is 0.333984375
    (
        "weights in bfloat16",
        25,
        [query(1), heads([0] * 3), heads([1, 1, 1])],
        {"softmax_precision": TensorProto.BFLOAT16, "qk_matmul_output_mode": 3},
        [heads([1.001953125]), None, None, heads([[0.333984375] * 3])],
    ),
    (
        "float16 beyond its range inside",
        23,
        [heads([[200, 200]], np.float16), heads([[200, 200], [0, 0]], np.float16), heads([1, 9], np.float16)],
        ONE,
        [heads([1])],
    ),
    ("bfloat16 sums", 23, [heads([0], BFLOAT16), heads([0] * 1024, BFLOAT16), heads([1] * 1024, BFLOAT16)], {}, [heads([1])]),
]


@pytest.mark.parametrize(
    ("opset", "inputs", "attributes", "outputs"), [case[1:] for case in CASES], ids=[f"{case[1]}: {case[0]}" for case in CASES]
)
def test_attention(opset: int, inputs: list[Any], attributes: dict[str, Any], outputs: list[Any]) -> None:
    results = run("Attention", opset, inputs, attributes, len(outputs))
    for got, want in zip(results, outputs, strict=True):
        if want is not None:
            assert_close(got, want, inputs[0].dtype, 1e-6, 1e-6)


def test_values_of_another_type() -> None:
    y, key, value, scores = run("Attention", 23, [heads([0], np.float16), heads([0, 0], np.float16), heads([1, 2], np.float64)], {}, 4)
    assert (y.dtype, key.dtype, value.dtype, scores.dtype) == (np.float16, np.float16, np.float64, np.float16)
    assert y.item() == 1.5


def visible(case: Case, batch: int, head: int, query_index: int, key: int, queries: int) -> tuple[bool, float]:
    """Whether a query sees a key, and what the mask adds to its score."""
    mask, past_key, _, lengths = [*case.inputs[3:], None, None, None, None][:4]
    offset = past_key.shape[2] if past_key is not None else int(lengths[batch]) - queries if lengths is not None else 0
    position, added = query_index + offset, 0.0
    seen = lengths is None or key < lengths[batch]
    if case.attributes.get("is_causal"):
        seen &= key <= position
    if (left := case.attributes.get("left_window_size", -1)) >= 0:
        seen &= key >= position - left
    if (right := case.attributes.get("right_window_size", -1)) >= 0:
        seen &= key <= position + right
    if mask is not None:
        full = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        place = (batch, head, query_index, key)
        value = full[tuple(0 if size == 1 else at for at, size in zip(place, full.shape, strict=True))]
        seen, added = (seen and bool(value), 0.0) if mask.dtype == bool else (seen and value != -INF, float(value))
    return bool(seen), added


def oracle(case: Case) -> list[Any]:
    """Y and the scores of the mode in float64, query by query."""
    q, k, v = (each.astype(np.float64) for each in case.inputs[:3])
    given = case.attributes
    if packed := q.ndim == 3:
        counts = (given["q_num_heads"], given["kv_num_heads"], given["kv_num_heads"])
        q, k, v = (each.reshape(*each.shape[:2], n, each.shape[2] // n).swapaxes(1, 2) for each, n in zip((q, k, v), counts, strict=True))
    past = [None if each is None else each.astype(np.float64) for each in [*case.inputs[4:6], None, None][:2]]
    if past[0] is not None:
        k, v = (np.concatenate(pair, axis=2) for pair in zip(past, (k, v), strict=True))
    y, stage = np.zeros((*q.shape[:3], v.shape[3])), np.zeros((*q.shape[:3], k.shape[2]))
    scale, cap, mode = given.get("scale", q.shape[3] ** -0.5), given.get("softcap", 0.0), given.get("qk_matmul_output_mode", 0)
    for batch, head, query_index in np.ndindex(q.shape[:3]):
        shared = head // (q.shape[1] // k.shape[1])
        raw = [float(q[batch, head, query_index] @ key) * scale for key in k[batch, shared]]
        capped = [cap * math.tanh(score / cap) if cap else score for score in raw]
        seen = [visible(case, batch, head, query_index, key, q.shape[2]) for key in range(len(raw))]
        masked = [score + added if sees else -INF for score, (sees, added) in zip(capped, seen, strict=True)]
        top = max(masked)
        exps = [math.exp(score - top) if top > -INF else 0.0 for score in masked]
        weights = [each / (math.fsum(exps) or 1) for each in exps]
        stage[batch, head, query_index] = (raw, capped, masked, weights)[mode]
        y[batch, head, query_index] = np.array(weights) @ v[batch, shared]
    return [y.swapaxes(1, 2).reshape(len(y), q.shape[2], q.shape[1] * v.shape[3]) if packed else y, stage]


def rotated(case: Case) -> Any:
    """RotaryEmbedding as multiplication of complex numbers, element by element."""
    x, cos, sin = (each.astype(np.float64) for each in case.inputs[:3])
    packed = x.ndim == 3
    if packed:
        x = x.reshape(*x.shape[:2], case.attributes["num_heads"], -1).swapaxes(1, 2)
    y, half = x.copy(), cos.shape[-1]
    for batch, head, place, pair in np.ndindex(*x.shape[:3], half):
        row = (
            (cos[batch, place], sin[batch, place])
            if len(case.inputs) == 3
            else (cos[case.inputs[3][batch, place]], sin[case.inputs[3][batch, place]])
        )
        first, second = (2 * pair, 2 * pair + 1) if case.attributes.get("interleaved") else (pair, half + pair)
        number = complex(x[batch, head, place, first], x[batch, head, place, second]) * complex(row[0][pair], row[1][pair])
        y[batch, head, place, first], y[batch, head, place, second] = number.real, number.imag
    return y.swapaxes(1, 2).reshape(case.inputs[0].shape) if packed else y


DRAWN = [case for case in attention.draws(np.random.default_rng(7)) if case.opset <= NEWEST]


def test_attention_beside_slow_loops() -> None:
    seen = 0
    for case in DRAWN:
        if case.op_type != "Attention" or case.attributes.get("softmax_precision") in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
            continue
        seen += 1
        results = run("Attention", case.opset, case.inputs, case.attributes, case.outputs)
        for got, want in zip([results[0], *results[3:]], oracle(case), strict=False):
            try:
                assert_close(got, want, case.inputs[0].dtype, case.rtol, case.atol)
            except AssertionError as error:
                raise AssertionError(f"{case}: {error}") from None
    assert seen > 100


def test_rotary_embedding_beside_slow_loops() -> None:
    for case in DRAWN:
        if case.op_type == "RotaryEmbedding":
            (got,) = run("RotaryEmbedding", case.opset, case.inputs, case.attributes)
            assert_close(got, rotated(case), case.inputs[0].dtype, case.rtol, case.atol)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels serve whatever the size."""
    for name in ("ATTEND_FROM", "ROTATE_FROM", "LEAST_ROWS"):
        monkeypatch.setattr(_attending, name, 1)


@pytest.mark.usefixtures("kernels")
def test_kernels_beside_slow_loops() -> None:
    test_attention_beside_slow_loops()
    test_rotary_embedding_beside_slow_loops()


def normal(*shape: int) -> Any:
    return np.random.default_rng(math.prod(shape)).normal(size=shape).astype(np.float32)


# id, opset, heads, heads of keys, queries, keys, sizes of keys and values, attributes, how the mask is made, keys of the past
LARGE: list[tuple[str, int, int, int, int, int, int, int, dict[str, Any], Any, int]] = [
    ("more than a panel", 23, 1, 1, 60, 70, 20, 33, {}, None, 0),
    ("causal", 23, 2, 1, 60, 60, 16, 16, {"is_causal": 1, "softcap": 2.0}, None, 0),
    ("causal after the past, in groups", 23, 3, 1, 20, 9, 17, 8, {"is_causal": 1}, None, 40),
    ("mask by query", 24, 1, 1, 50, 40, 3, 5, {}, lambda: normal(50, 40), 0),
    ("mask by key", 23, 2, 1, 5, 49, 8, 8, {}, lambda: normal(1, 49) > 0, 0),
    ("mask by head", 23, 2, 2, 17, 16, 8, 8, {}, lambda: normal(2, 1, 1), 0),
    ("windows", 25, 1, 1, 100, 100, 4, 4, {"left_window_size": 5, "right_window_size": 9}, None, 0),
    ("many keys", 23, 1, 1, 2, 1100, 4, 9, {}, None, 0),
    ("rank 3", 23, 2, 1, 30, 20, 16, 16, {"q_num_heads": 2, "kv_num_heads": 1}, None, 0),
]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("case", LARGE, ids=[case[0] for case in LARGE])
@pytest.mark.parametrize("count", [1, 3])
def test_panels_of_queries(case: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: count)
    monkeypatch.setattr(threads, "MINIMUM_SHARE", 1)
    _, opset, heads_of_q, shared, queries, keys, size, value_size, attributes, mask, past = case
    inputs = [normal(2, heads_of_q, queries, size), normal(2, shared, keys, size), normal(2, shared, keys, value_size)]
    if "q_num_heads" in attributes:
        inputs = [each.swapaxes(1, 2).reshape(2, each.shape[2], -1) for each in inputs]
    inputs += [mask and mask(), *([normal(2, shared, past, size), normal(2, shared, past, value_size)] if past else [])]
    drawn = Case("Attention", opset, inputs, attributes)
    (got,) = run("Attention", opset, inputs, attributes)
    assert_close(got, oracle(drawn)[0], np.float32, 1e-5, 1e-6)


@pytest.mark.usefixtures("kernels")
def test_weights_of_zero_make_nan_of_infinite_values() -> None:
    v = np.ones((1, 1, 100, 1), np.float32)
    v[0, 0, 99] = INF
    (got,) = run("Attention", 23, [query(100), query(100), v], {"is_causal": 1})
    assert np.isnan(got[0, 0, :99]).all()
    assert got[0, 0, 99] == INF


@pytest.mark.usefixtures("kernels")
def test_scores_that_are_nan() -> None:
    q = np.zeros((1, 1, 60, 1), np.float32)
    q[0, 0, 50] = NAN
    (got,) = run("Attention", 23, [q, *FOUR[1:]])
    assert np.isnan(got).ravel().tolist() == [row == 50 for row in range(60)]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotation_of_long_heads(interleaved: int, rank: int) -> None:
    x = normal(2, 3, 50, 70) if rank == 4 else normal(2, 50, 210)
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": 66, "num_heads": 3}
    inputs = [x, normal(9, 33), normal(9, 33), np.random.default_rng(0).integers(0, 9, (2, 50))]
    (got,) = run("RotaryEmbedding", 23, inputs, attributes)
    assert_close(got, rotated(Case("RotaryEmbedding", 23, inputs, attributes)), np.float32, 1e-6, 1e-6)


def test_inputs_stay() -> None:
    for case in DRAWN:
        assert_pure(case)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the operators that onnx.reference runs
@pytest.mark.skipif(NEWEST < 28, reason="cases of an onnx whose Attention is wrong for groups of queries and a past")
def test_onnx_node_cases(node_cases: list[Any]) -> None:
    assert assert_node_cases(node_cases, "Attention", "RotaryEmbedding") > 100


SQUARE = [query(2)] * 3
# what is wrong, operator, opset, inputs, attributes, text of the error
ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("ranks", "Attention", 23, [query(2), query(2)[0], query(2)], {}, "ranks 4, 3 and 4; allowed: 3 for all, or 4"),
    ("heads not given", "Attention", 23, [query(2)[0]] * 3, {}, "Q has shape .* and None heads"),
    ("heads that do not divide", "Attention", 23, [query(2)[0]] * 3, {"q_num_heads": 2, "kv_num_heads": 1}, "Q has shape .* and 2 heads"),
    ("head sizes", "Attention", 23, [heads([[1, 2]]), query(2), query(2)], {}, "one head size of Q and K"),
    (
        "numbers of heads",
        "Attention",
        23,
        [np.zeros((1, 3, 1, 1), np.float32), *TWO_HEADS[1:]],
        {},
        "a number of heads of K and V that divides",
    ),
    (
        "mask",
        "Attention",
        23,
        [*SQUARE, floats([0, 0, 0])],
        {},
        r"attn_mask has shape \[3\]; allowed: one that broadcasts to \[1, 1, 2, 2\]",
    ),
    ("half a past", "Attention", 24, [*SQUARE, None, query(1)], {}, "past_key and past_value must be provided together"),
    ("past of another head size", "Attention", 23, [*SQUARE, None, heads([[1, 2]]), query(1)], {}, "past_key has shape"),
    ("two caches", "Attention", 24, [*SQUARE, None, query(1), query(1), np.array([1])], {}, "cannot be combined"),
    ("lengths", "Attention", 25, [*SQUARE, None, None, None, np.array([1, 1])], {}, r"nonpad_kv_seqlen has shape \[2\]; allowed: \[1\]"),
    ("window", "Attention", 25, SQUARE, {"left_window_size": -2}, "left_window_size must be -1 or nonnegative, got -2"),
    ("heads of rank 4", "Attention", 25, SQUARE, {"q_num_heads": 1, "kv_num_heads": 1}, "must not be specified for 4D"),
    ("mode", "Attention", 23, SQUARE, {"qk_matmul_output_mode": 4}, "qk_matmul_output_mode is 4; allowed: 0, 1, 2, 3"),
    ("precision", "Attention", 23, SQUARE, {"softmax_precision": 7}, "softmax_precision is 7; allowed: 1"),
    ("rank", "RotaryEmbedding", 23, [floats([[1, 2]])] * 3, {}, "allowed: rank 3 or 4"),
    ("odd", "RotaryEmbedding", 23, [query(1)] * 3, {}, "an even number"),
    (
        "cache",
        "RotaryEmbedding",
        23,
        [heads([[1, 2]]), floats([[[1, 2]]]), floats([[[1, 2]]])],
        {},
        r"cos_cache gives the shape \[1, 1, 2\]; allowed: \[1, 1, 1\]",
    ),
    (
        "position",
        "RotaryEmbedding",
        23,
        [heads([[1, 2]]), floats([[1]]), floats([[1]]), np.array([[-1]])],
        {},
        "position_ids go from -1 to -1; allowed: 0 to 0",
    ),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(numbaops.NumbaopsError, match=text) as caught:
        run(op_type, opset, inputs, attributes)
    assert caught.value.op_type == op_type
