"""Draws of products of matrices and of Det."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from drawn.case import Case
from drawn.elementwise import a_shape, tensor, tolerance, types, values, versions

EQUATIONS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("ij,jk", ((2, 3), (3, 4))),
    ("bij, bjk -> bik", ((2, 3, 4), (2, 4, 5))),
    ("ii->i", ((3, 3),)),
    ("ii", ((3, 3),)),
    ("ij->ji", ((2, 3),)),
    ("ij->", ((2, 3),)),
    ("i,j", ((2,), (3,))),
    ("ba", ((2, 3),)),
    ("aB,Bc", ((2, 3), (3, 4))),
    ("...ij,...jk->...ik", ((2, 1, 2, 3), (4, 3, 2))),
    ("...ii->...i", ((2, 3, 3),)),
    ("...,...", ((2, 3), (2, 3))),
    ("i,ij,j->", ((2,), (2, 3), (3,))),
    ("ij,jk->ik", ((2, 0), (0, 4))),
    ("bhqd,bhkd->bhqk", ((1, 2, 3, 4), (1, 2, 5, 4))),
    (",i->i", ((), (3,))),
    ("iij->j", ((2, 2, 3),)),
)


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for opset in versions("Gemm"):
        for _ in range(50):
            yield gemm(rng, opset)
    for opset in versions("MatMul"):
        for _ in range(40):
            a, b = factors(rng)
            x = tensor(rng, "MatMul", opset, a)
            yield Case("MatMul", opset, [x, values(rng, x.dtype, b)], **loose(x))
    for _ in range(80):
        yield matmul_integer(rng)
    for opset in versions("QLinearMatMul"):
        for _ in range(60):
            yield qlinear_matmul(rng, opset)
    for opset in versions("Einsum"):
        for equation, shapes in EQUATIONS:
            for _ in range(4):
                x = tensor(rng, "Einsum", opset, shapes[0])
                rest = [values(rng, x.dtype, shape) for shape in shapes[1:]]
                yield Case("Einsum", opset, [x, *rest], {"equation": equation}, **loose(x))
    for opset in versions("Det"):
        for _ in range(30):
            size = int(rng.integers(0, 5))
            yield Case("Det", opset, [x := tensor(rng, "Det", opset, (*a_shape(rng, 0, 2), size, size))], **loose(x))


def loose(x: Any) -> dict[str, float]:
    """For sums of products that cancel."""
    limits = tolerance(x)
    return limits | {"atol": limits["atol"] * 10}


def factors(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes that numpy.matmul takes."""
    rows, inner, columns = (0 if rng.random() < 0.03 else int(size) for size in rng.integers(1, 6, 3))
    batch = a_shape(rng, 0, 2)
    first = tuple(1 if rng.random() < 0.3 else size for size in batch)
    second = batch[rng.integers(0, len(batch) + 1) :]
    if rng.random() < 0.1:
        return (inner,), (*second, inner, columns)
    if rng.random() < 0.1:
        return (*first, rows, inner), (inner,)
    return (*first, rows, inner), (*second, inner, columns)


def gemm(rng: np.random.Generator, opset: int) -> Case:
    rows, inner, columns = (0 if rng.random() < 0.03 else int(size) for size in rng.integers(1, 5, 3))
    attributes: dict[str, Any] = {name: int(rng.integers(2)) for name in ("transA", "transB")}
    a = tensor(rng, "Gemm", opset, (inner, rows) if attributes["transA"] else (rows, inner))
    b = values(rng, a.dtype, (columns, inner) if attributes["transB"] else (inner, columns))
    if rng.random() < 0.6:
        attributes |= {"alpha": float(rng.choice([0.5, 2.0, -1.0])), "beta": float(rng.choice([0.0, 0.5, -3.0]))}
    shapes = [(rows, columns), (columns,), (1,), (), (1, columns), (rows, 1)]
    shape = shapes[rng.integers(len(shapes))]
    if opset < 7:
        attributes["broadcast"] = int(shape != (rows, columns))
    c = None if opset >= 11 and rng.random() < 0.3 else values(rng, a.dtype, shape)
    return Case("Gemm", opset, [a, b, c], attributes, **loose(a))


def quantized(rng: np.random.Generator, op_type: str, opset: int, place: int, shape: tuple[int, ...]) -> Any:
    allowed = [dtype for dtype in types(op_type, opset, place) if dtype.kind in "iu"]
    dtype = allowed[rng.integers(len(allowed))]
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def matmul_integer(rng: np.random.Generator) -> Case:
    shape_a, shape_b = factors(rng)
    a, b = quantized(rng, "MatMulInteger", 10, 0, shape_a), quantized(rng, "MatMulInteger", 10, 1, shape_b)
    points: list[Any] = [None, None]
    if rng.random() < 0.7:
        by_row = a.ndim == 2 and rng.random() < 0.5
        points[0] = rng.integers(0, 9, shape_a[:1] if by_row else ()).astype(a.dtype)
    if rng.random() < 0.7:
        by_column = b.ndim == 2 and rng.random() < 0.5
        points[1] = rng.integers(0, 9, shape_b[1:] if by_column else ()).astype(b.dtype)
    return Case("MatMulInteger", 10, [a, b, *points])


def qlinear_matmul(rng: np.random.Generator, opset: int) -> Case:
    shape_a, shape_b = factors(rng)
    inputs: list[Any] = []
    for place, shape in ((0, shape_a), (3, shape_b)):
        x = quantized(rng, "QLinearMatMul", opset, place, shape)
        spread: tuple[int, ...] = ()
        if x.ndim == 2 and rng.random() < 0.4:
            spread = shape[:1] if place == 0 else shape[1:]
        scale = rng.choice([0.25, 0.5, 0.011, 0.02], spread)
        inputs += [x, np.asarray(scale, np.float32), np.asarray(rng.integers(0, 5, spread)).astype(x.dtype)]
    y = quantized(rng, "QLinearMatMul", opset, 7, ())
    scale = np.array(rng.choice([1.0, 4.0, 16.0, 0.7]), np.float32)
    return Case("QLinearMatMul", opset, [*inputs, scale, np.asarray(y)])
