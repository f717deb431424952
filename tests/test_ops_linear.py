"""Products of matrices at every version: what a comparison on drawn inputs found wrong elsewhere, and drawn cases beside loops."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import numbaops
from drawn import linear
from drawn.case import Case
from leaf_checks import assert_node_cases, each_case, run
from numbaops.kernels import products
from numbaops.ops import _byte_products, _einsum
from numbaops.ops.linear import LEAVES

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # infinities and invalid operations, as NumPy has them

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NAN, INF = math.nan, math.inf
# In these, onnx 1.18 stores results that do not saturate, against the text.
WRAPPED = {f"test_qlinearmatmul_{rank}D_int8_{scale}" for rank in (2, 3) for scale in ("float32", "float16")}


def array(values: Any, dtype: Any = np.float32) -> Any:
    return np.array(values, np.float64).astype(dtype)


def whole(values: Any, dtype: Any = np.int32) -> Any:
    return np.array(values, dtype)


def quantized(a: Any, b: Any, y: Any) -> list[Any]:
    """The inputs of QLinearMatMul, from three tensors, scales and zero points; the first of the last is the type of the output."""
    (a, a_scale, a_zero), (b, b_scale, b_zero), (dtype, y_scale, y_zero) = a, b, y
    return [
        *(a, array(a_scale), whole(a_zero, a.dtype)),
        *(b, array(b_scale), whole(b_zero, b.dtype)),
        *(array(y_scale), whole(y_zero, dtype)),
    ]


ROW, COLUMN, ONE = array([[1, 2]]), array([[3], [4]]), array([[1]])
BYTES = np.uint8

# id, operator, opset, inputs, attributes, output
CASES: list[tuple[str, str, int, list[Any], dict[str, Any], Any]] = [
    ("factors count without broadcast too", "Gemm", 6, [ROW, COLUMN, ONE], {"alpha": 2.0, "beta": 3.0}, array([[25]])),
    ("version 1", "Gemm", 1, [ROW, COLUMN, array([5])], {"broadcast": 1}, array([[16]])),
    ("both transposed", "Gemm", 7, [COLUMN, ROW, array(1).reshape(())], {"transA": 1, "transB": 1}, array([[12]])),
    ("half, one rounding", "Gemm", 6, [array([[2048, 1, 1]], np.float16), array([[1]] * 3, np.float16), ONE.astype(np.float16)], {},
     array([[2052]], np.float16)),
    ("integers beyond 2**53", "Gemm", 9, [whole([[2**60]], np.int64), whole([[2]], np.int64), whole([1], np.int64)], {},
     whole([[2**61 + 1]], np.int64)),
    ("integers wrap", "Gemm", 11, [whole([[2**31]], np.uint32), whole([[2]], np.uint32), whole([7], np.uint32)], {"beta": -1.0},
     whole([[2**32 - 7]], np.uint32)),
    ("fractions of integers are truncated at the end", "Gemm", 13, [whole([[3]]), whole([[5]]), whole([3])], {"alpha": 0.5, "beta": 0.5},
     whole([[9]])),
    ("C does not count with beta 0", "Gemm", 11, [ROW, COLUMN, array([NAN])], {"beta": 0.0}, array([[11]])),
    ("no C", "Gemm", 11, [ROW, COLUMN], {"alpha": -1.0}, array([[-11]])),
    ("nothing to add up", "Gemm", 13, [np.zeros((2, 0), np.float32), np.zeros((0, 1), np.float32), array([4])], {}, array([[4], [4]])),
    ("bfloat16", "Gemm", 13, [array([[256, 0.75, 0.75]], BFLOAT16), array([[1]] * 3, BFLOAT16), array([[0.5]], BFLOAT16)], {},
     array([[258]], BFLOAT16)),
    ("half, one rounding", "MatMul", 1, [array([2048, 1, 1], np.float16), array([1, 1, 1], np.float16)], {}, array(2050, np.float16)),
    ("bfloat16", "MatMul", 13, [array([[256, 0.75, 0.75]], BFLOAT16), array([[1]] * 3, BFLOAT16)], {}, array([[258]], BFLOAT16)),
    ("integers wrap", "MatMul", 9, [whole([[2**31 - 1]]), whole([[2]])], {}, whole([[-2]])),
    ("stacks broadcast", "MatMul", 9, [np.ones((2, 1, 1, 2), np.float32), np.ones((3, 2, 1), np.float32)], {},
     np.full((2, 3, 1, 1), 2, np.float32)),
    ("zero point a row", "MatMulInteger", 10, [np.ones((2, 3), BYTES), np.ones((3, 1), BYTES), whole([1, 2], BYTES)], {},
     whole([[0], [-3]])),
    ("zero point a column", "MatMulInteger", 10, [np.ones((1, 2), np.int8), np.ones((2, 2), BYTES), None, whole([1, 3], BYTES)], {},
     whole([[0, -4]])),
    ("zero points of a stack", "MatMulInteger", 10,
     [np.ones((2, 1, 1), BYTES), np.ones((2, 1, 1), BYTES), whole([[[1]], [[2]]], BYTES), whole([[[0]], [[3]]], BYTES)], {},
     whole([[[0]], [[2]]])),
    ("more than float32 holds", "MatMulInteger", 10, [np.full((1, 300), 255, BYTES), np.full((300, 1), 255, BYTES)], {},
     whole([[300 * 255 * 255]])),
    ("modulo 2**32", "MatMulInteger", 10, [np.full((1, 40000), 255, BYTES), np.full((40000, 1), 255, BYTES)], {},
     whole([[40000 * 255 * 255 - 2**32]])),
    # 1 / 2 is a tie, and rounds to 0 before the odd zero point comes
    ("rounds before it adds", "QLinearMatMul", 10,
     quantized((whole([[1]], BYTES), 1, 0), (whole([[1]], BYTES), 1, 0), (BYTES, 2, 1)), {}, whole([[1]], BYTES)),
    ("scale a row and a column", "QLinearMatMul", 10,
     quantized((whole([[4], [4]], BYTES), [1, 2], [0, 1]), (whole([[2, 2]], BYTES), [1, 4], [0, 1]), (np.int8, 2, -1)), {},
     whole([[3, 7], [5, 11]], np.int8)),
    ("saturates", "QLinearMatMul", 10,
     quantized((whole([[255]], BYTES), 1, 0), (whole([[100], ], np.int8), 1, 0), (np.int8, 1, 5)), {}, whole([[127]], np.int8)),
    ("scales of half", "QLinearMatMul", 21,
     [value.astype(np.float16) if value.dtype == np.float32 else value
      for value in quantized((whole([[6]], np.int8), 0.5, 0), (whole([[-4]], np.int8), 0.25, 0), (np.int8, 0.5, 2))], {},
     whole([[-4]], np.int8)),
    ("float8", "QLinearMatMul", 21,
     [array([[3]], ml_dtypes.float8_e4m3fn), array(0.5), array(0, ml_dtypes.float8_e4m3fn),
      array([[5]], ml_dtypes.float8_e4m3fn), array(1), array(0, ml_dtypes.float8_e4m3fn),
      array(0.01), array(0, ml_dtypes.float8_e4m3fn)], {}, array([[448]], ml_dtypes.float8_e4m3fn)),
    ("half, one rounding", "Einsum", 12, [array([2048, 1, 1], np.float16), array([1, 1, 1], np.float16)], {"equation": "i,i"},
     array(2050, np.float16)),
    ("bfloat16", "Einsum", 28, [array([256, 0.75, 0.75], BFLOAT16)], {"equation": "i->"}, array(258, BFLOAT16)),
    ("implicit result in the order of ASCII", "Einsum", 12, [array([[1, 2]]), array([[3], [4]])], {"equation": " bA , Ac "}, array([[11]])),
    ("integers wrap", "Einsum", 12, [whole([100, 100], np.int8)], {"equation": "i->"}, whole(-56, np.int8)),
    ("half", "Det", 11, [array([[1, 2], [3, 4]], np.float16)], {}, array(-2, np.float16)),
    ("bfloat16 stack", "Det", 22, [array([[[2, 0], [0, 3]]] * 2, BFLOAT16)], {}, array([6, 6], BFLOAT16)),
    ("no rows", "Det", 11, [np.zeros((2, 0, 0), np.float32)], {}, array([1, 1])),
]  # fmt: skip


@each_case(CASES)
def test_case(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], want: Any) -> None:
    (got,) = run(op_type, opset, inputs, attributes)
    assert_values(got, want, 1e-6)


def assert_values(got: Any, want: Any, atol: float, what: Any = "") -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    if want.dtype.kind in "iu":
        assert got.tolist() == want.tolist(), what
        return
    rtol = {2: 2.0**-10 if want.dtype == np.float16 else 2.0**-7, 4: 1e-5}.get(want.dtype.itemsize, 1e-9)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, err_msg=str(what))


# id, operator, opset, inputs, attributes, what the error says
ERRORS: list[tuple[str, str, int, list[Any], dict[str, Any], str]] = [
    ("C of another shape", "Gemm", 6, [ROW, COLUMN, array([1])], {}, "or broadcast=1"),
    ("C larger than the product", "Gemm", 7, [ROW, COLUMN, array([1, 2])], {}, "what broadcasts to [1, 1]"),
    ("a vector", "Gemm", 7, [array([1, 2]), COLUMN, ONE], {}, "rank 2"),
    ("sizes", "MatMul", 9, [ROW, ROW], {}, "[1, 2] and [1, 2]"),
    ("a scalar", "MatMul", 1, [array(1), array([1])], {}, "at least vectors"),
    ("equation", "Einsum", 12, [ROW], {"equation": "ijk->i"}, "operands of shape [1, 2]"),
    ("no square", "Det", 11, [ROW], {}, "two equal sizes"),
]


@pytest.mark.parametrize(
    ("op_type", "opset", "inputs", "attributes", "text"), [case[1:] for case in ERRORS], ids=[f"{case[1]}: {case[0]}" for case in ERRORS]
)
def test_error(op_type: str, opset: int, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(numbaops.InvalidValueError) as caught:
        run(op_type, opset, inputs, attributes)
    assert text in str(caught.value)
    assert caught.value.op_type == op_type


def exact(value: Any) -> Any:
    """A number without rounding, or a float that is none."""
    item = value.item()
    return Fraction(item) if math.isfinite(item) else item


def product(a: Any, b: Any) -> Any:
    """Of stacks of matrices of numbers, one product at a time; vectors are a row before and a column behind."""
    rows, columns = (a if a.ndim > 1 else a[None]), (b if b.ndim > 1 else b[:, None])
    batch = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    rows, columns = (np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (rows, columns))
    y = np.empty((*batch, rows.shape[-2], columns.shape[-1]), object)
    for place in np.ndindex(y.shape):
        *stack, row, column = place
        y[place] = sum(
            (exact_product(p, q) for p, q in zip(rows[(*stack, row)], columns[(*stack, slice(None), column)], strict=True)), Fraction()
        )
    return y.reshape(y.shape[:-2] + y.shape[-2:-1] * (a.ndim > 1) + y.shape[-1:] * (b.ndim > 1))


def exact_product(p: Any, q: Any) -> Any:
    return p * q if isinstance(p, Fraction) and isinstance(q, Fraction) else float(p) * float(q)


def exactly(x: Any) -> Any:
    y = np.empty(x.shape, object)
    for place in np.ndindex(x.shape):
        y[place] = exact(x[place])
    return y


def rounded(y: Any, dtype: np.dtype[Any]) -> Any:
    """In a type: truncated and wrapped, or as a float."""
    flat = np.asarray(y, object).ravel()
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        numbers = np.array([math.trunc(value) % 2**bits for value in flat], np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
    else:
        numbers = np.array([float(value) for value in flat], np.float64).astype(dtype)
    return numbers.reshape(np.shape(y))


def expected(case: Case) -> Any:
    inputs = [None if each is None else exactly(each) for each in case.inputs]
    a = inputs[0]
    if case.op_type == "MatMul":
        return rounded(product(*inputs), case.inputs[0].dtype)
    if case.op_type == "Gemm":
        attributes = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0} | case.attributes
        a, b = (each.T if attributes[name] else each for each, name in zip(inputs, ("transA", "transB"), strict=False))
        alpha, beta = Fraction(attributes["alpha"]), Fraction(attributes["beta"])
        y = product(a, b)
        for place in np.ndindex(y.shape):
            y[place] = exact_product(alpha, y[place])
            if inputs[2] is not None and beta:
                y[place] += exact_product(beta, np.broadcast_to(inputs[2], y.shape)[place])
        return rounded(y, case.inputs[0].dtype)
    if case.op_type == "MatMulInteger":
        b, a_zero, b_zero = inputs[1:]
        a = a if a_zero is None else a - (a_zero[:, None] if a_zero.ndim else a_zero)
        return rounded(product(a, b if b_zero is None else b - b_zero), np.dtype(np.int32))
    raise AssertionError(case.op_type)


def assert_quantized(got: Any, case: Case) -> None:
    """Every element is the exact quotient rounded, to either side of a near tie, with the zero point, saturated."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = map(exactly, case.inputs)
    a_scale, a_zero = (each[:, None] if each.ndim else each for each in (a_scale, a_zero))
    quotients = product((a - a_zero) * a_scale, (b - b_zero) * b_scale) / y_scale
    limits = np.iinfo(case.inputs[7].dtype)
    assert (got.dtype, got.shape) == (limits.dtype, np.shape(quotients)), case
    for number, quotient in zip(got.ravel().tolist(), np.asarray(quotients, object).ravel(), strict=True):
        reach = Fraction(1, 2) + abs(quotient) / 10**6
        nearest = [
            min(max(each + int(y_zero), limits.min), limits.max) for each in (math.ceil(quotient - reach), math.floor(quotient + reach))
        ]
        assert nearest[0] <= number <= nearest[1], case


def test_drawn_cases_beside_loops() -> None:
    seen = set()
    for case in linear.draws(np.random.default_rng(5)):
        if case.op_type in ("Einsum", "Det"):
            continue
        seen.add(case.op_type)
        (got,) = run(case.op_type, case.opset, case.inputs, case.attributes)
        if case.op_type == "QLinearMatMul":
            assert_quantized(got, case)
            continue
        want = expected(case)
        numbers = [abs(float(value)) for each in case.inputs if each is not None for value in each.ravel()]
        largest = max([1.0, *filter(math.isfinite, numbers)])
        fractions = want.dtype.kind in "iu" and any(case.attributes.get(name, 1) % 1 for name in ("alpha", "beta"))
        if not fractions or largest < 1000:  # a fraction beyond the type's range is undefined
            assert_values(got, want, 1e-6 * largest**2, case)
    assert seen == {leaf.op_type for leaf in LEAVES} - {"Einsum", "Det"}


def determinant(x: Any) -> Any:
    return sum(
        (
            math.prod((x[row, column] for row, column in enumerate(order)), start=sign(order))
            for order in itertools.permutations(range(len(x)))
        ),
        Fraction(),
    )


def sign(order: tuple[int, ...]) -> Fraction:
    return Fraction((-1) ** sum(p > q for p, q in itertools.combinations(order, 2)))


def test_drawn_determinants() -> None:
    for case in linear.draws(np.random.default_rng(6)):
        (x,) = case.inputs[:1]
        if case.op_type != "Det" or not np.isfinite(x.astype(np.float64)).all():
            continue
        want = np.empty(x.shape[:-2], object)
        for place in np.ndindex(want.shape):
            want[place] = determinant(exactly(x[place]))
        (got,) = run("Det", case.opset, [x])
        assert_values(got, rounded(want, x.dtype), 1e-4 * max(1, float(abs(x.astype(np.float64)).max(initial=0))) ** x.shape[-1], case)


def test_drawn_equations_beside_loops() -> None:
    for case in linear.draws(np.random.default_rng(7)):
        equation = case.attributes.get("equation", "...").replace(" ", "")
        if case.op_type != "Einsum" or "..." in equation or not all(np.isfinite(each.astype(np.float64)).all() for each in case.inputs):
            continue  # of infinities, the order of the products counts
        left, arrow, right = equation.partition("->")
        terms = left.split(",")
        letters = sorted(set("".join(terms)))
        right = right if arrow else "".join(letter for letter in letters if "".join(terms).count(letter) == 1)
        sizes = {letter: size for term, each in zip(terms, case.inputs, strict=True) for letter, size in zip(term, each.shape, strict=True)}
        want = np.full([sizes[letter] for letter in right], Fraction(), object)
        for place in np.ndindex(*(sizes[letter] for letter in letters)):
            at = dict(zip(letters, place, strict=True))
            part: Any = Fraction(1)
            for term, each in zip(terms, case.inputs, strict=True):
                part = exact_product(part, exact(each[tuple(at[letter] for letter in term)]))
            want[tuple(at[letter] for letter in right)] += part
        (got,) = run("Einsum", case.opset, case.inputs, case.attributes)
        assert_values(got, rounded(want, case.inputs[0].dtype), 1e-3, case)


# equation, shapes; sums of small integers are exact in float32
LARGE = [
    ("bihd,bjhd->bhij", (2, 20, 3, 7), (2, 19, 3, 7)),
    ("bhij,bjhd->bihd", (2, 3, 20, 19), (2, 19, 3, 50)),
    ("ij,kj->ik", (20, 6), (17, 6)),
    ("...ij,...jk->...ik", (2, 1, 9, 5), (3, 5, 6)),
    ("ij,jk->ki", (9, 5), (5, 60)),
    ("abc,cbd->ad", (9, 3, 4), (4, 3, 5)),
    ("abc,cd->abd", (2, 9, 4), (4, 5)),
    ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
    (" bA , Ac ", (8, 5), (5, 6)),
    ("hi...,...ij->j...h", (4, 3, 2), (2, 3, 6)),
]


@pytest.mark.parametrize(("equation", "first", "second"), LARGE, ids=[case[0] for case in LARGE])
def test_equations_that_are_products(
    equation: str, first: tuple[int, ...], second: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_einsum, "MATRIX_FROM", 0)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in (first, second))
    wanted = np.einsum(equation, a.astype(np.float64), b.astype(np.float64))
    for x, y in ((a, b), (a.T.copy().T, b.T.copy().T)):
        (got,) = run("Einsum", 12, [x, y], {"equation": equation})
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, wanted)
        assert not products.AVAILABLE or _einsum.contracted(equation, x, y) is not None


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("i,i->", (4,), (4,)),
        ("ij,j->i", (9, 4), (4,)),
        ("ii,ij->ij", (9, 9), (9, 4)),
        ("ij,ij->ij", (9, 9), (9, 9)),
        ("ijk,jl->il", (9, 4, 3), (4, 5)),
        ("i,j->ij", (9,), (9,)),
        ("bi,bj->ijb", (4, 9), (4, 9)),
        ("ij,jk->ik", (9, 1), (4, 9)),
    ],
)
def test_equations_that_are_left_to_numpy(
    equation: str, first: tuple[int, ...], second: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_einsum, "MATRIX_FROM", 0)
    a, b = np.ones(first, np.float32), np.ones(second, np.float32)
    assert _einsum.contracted(equation, a, b) is None
    (got,) = run("Einsum", 12, [a, b], {"equation": equation})
    np.testing.assert_array_equal(got, np.einsum(equation, a, b))


BYTE_SHAPES = [(1, 1, 1), (3, 5, 17), (9, 64, 48), (8, 7, 100), (20, 130, 97), (40, 8, 16)]


@pytest.mark.parametrize("least", [0, 1 << 60], ids=["bytes", "floats"])
@pytest.mark.parametrize("points", ["none", "one", "many"])
@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8), (np.int8, np.uint8)], ids=str)
def test_products_of_bytes(kinds: tuple[Any, Any], points: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_byte_products, "BYTES_FROM", least)
    rng = np.random.default_rng(0)

    def drawn(kind: Any, *shape: int) -> Any:
        return rng.choice([np.iinfo(kind).min, np.iinfo(kind).max, *range(100)], shape).astype(kind)

    for rows, terms, width in BYTE_SHAPES:
        a, b = drawn(kinds[0], rows, terms), drawn(kinds[1], terms, width)
        sizes = {"none": (), "one": ((), ()), "many": ((rows,), (width,))}[points]
        zeros = [drawn(kind, *size) for kind, size in zip(kinds, sizes, strict=False)]
        (got,) = run("MatMulInteger", 10, [a, b, *zeros])
        a_zero, b_zero = [each.astype(np.int64) for each in zeros] or (0, 0)
        spread = a_zero[:, None] if points == "many" else a_zero
        wanted = (a.astype(np.int64) - spread) @ (b.astype(np.int64) - b_zero)
        np.testing.assert_array_equal(got, wanted.astype(np.int32))


@pytest.mark.parametrize("least", [0, 1 << 60], ids=["bytes", "floats"])
def test_rows_of_a_stack_and_sums_beyond_32_bits(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_byte_products, "BYTES_FROM", least)
    a, b = np.full((2, 3, 40000), 255, np.uint8), np.full((40000, 2), 255, np.uint8)
    (got,) = run("MatMulInteger", 10, [a, b])
    assert got.dtype == np.int32
    assert got.tolist() == np.full((2, 3, 2), 40000 * 255 * 255 - 2**32).tolist()


def test_inputs_stay_and_outputs_are_new() -> None:
    leaves = {(leaf.op_type, version): leaf for leaf in LEAVES for version in leaf.since_versions}
    for case in linear.draws(np.random.default_rng(8)):
        leaf = leaves[case.op_type, case.since_version]
        copies = [None if each is None else each.copy() for each in case.inputs]
        result = leaf.function(**case.attributes)(*copies) if leaf.bind else leaf.function(*copies, **case.attributes)
        for before, after in zip(case.inputs, copies, strict=True):
            assert before is None or before.tobytes() == after.tobytes(), case
            assert after is None or leaf.aliases or not np.may_share_memory(result, after), case


def test_onnx_node_cases(node_cases: list[Any]) -> None:
    alone = [case for case in node_cases if len(case.model.graph.node) == 1 and case.name not in WRAPPED]
    assert assert_node_cases(alone, *{leaf.op_type for leaf in LEAVES}) > 20
