"""Draws of Fourier transforms, windows and ranges; random numbers agree only in type and shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from drawn.case import Case
from drawn.elementwise import a_shape, tensor, tolerance, types, values, versions


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for opset in versions("DFT"):
        for _ in range(60):
            yield dft(rng, opset)
    for _ in range(60):
        yield stft(rng)
    for op_type in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        for _ in range(20):
            size = np.array(rng.integers(0, 12), rng.choice([np.int32, np.int64]))
            attributes = {"periodic": int(rng.integers(2)), "output_datatype": int(rng.choice([1, 10, 11]))}
            yield Case(op_type, 17, [size], attributes, rtol=2e-3, atol=2e-3)
    for _ in range(30):
        edges = sorted(float(edge) for edge in rng.choice([0.0, 20.0, 133.0, 1000.0, 2000.0, 3999.0], 2, replace=False))
        numbers = [int(rng.integers(1, 9)), int(rng.integers(4, 40)), int(rng.choice([8000, 16000]))]
        inputs = [np.array(number) for number in numbers] + [np.array(edge, np.float32) for edge in edges]
        yield Case("MelWeightMatrix", 17, inputs, {"output_datatype": int(rng.choice([1, 11]))})
    for opset in versions("Range"):
        for _ in range(60):
            yield number_range(rng, opset)


def dft(rng: np.random.Generator, opset: int) -> Case:
    inverse, onesided = int(rng.integers(2)), int(rng.integers(2))
    pairs = 2 if inverse or (not onesided and rng.random() < 0.5) else 1
    x = tensor(rng, "DFT", opset, (*a_shape(rng, 1 if opset > 17 else 2, 3, zero=0), pairs))
    x = values(np.random.default_rng(3), x.dtype, x.shape) if not np.isfinite(x.astype(np.float64)).all() else x
    axis = int(rng.integers(0 if opset > 17 else 1, x.ndim - 1))
    axis -= x.ndim if rng.random() < 0.4 else 0
    length = np.array(rng.integers(1, 8), rng.choice([np.int32, np.int64])) if rng.random() < 0.5 else None
    attributes = {"inverse": inverse, "onesided": onesided}
    limits = {name: limit * 10 for name, limit in tolerance(x).items()}
    if opset < 20:
        return Case("DFT", opset, [x, length], attributes | {"axis": axis}, **limits)
    return Case("DFT", opset, [x, length, np.array(axis) if rng.random() < 0.7 else None], attributes, **limits)


def stft(rng: np.random.Generator) -> Case:
    samples, onesided = int(rng.integers(4, 20)), int(rng.integers(2))
    allowed = types("STFT", 17)
    dtype = allowed[rng.integers(len(allowed))]
    signal = rng.normal(size=(int(rng.integers(1, 3)), samples, 1 if onesided else int(rng.integers(1, 3)))).astype(dtype)
    length = int(rng.integers(2, samples + 1))
    step, window, frame = np.array(rng.integers(1, 5)), rng.random(length).astype(dtype), np.array(length)
    chosen: list[Any] = [[window, frame], [window, None], [None, frame]][rng.integers(3)]
    limits = {name: limit * 10 for name, limit in tolerance(signal).items()}
    return Case("STFT", 17, [signal, step, *chosen], {"onesided": onesided}, **limits)


def number_range(rng: np.random.Generator, opset: int) -> Case:
    allowed = types("Range", opset)
    dtype = allowed[rng.integers(len(allowed))]
    numbers = rng.integers(-20, 20, 3) if dtype.kind in "iu" else rng.integers(-80, 80, 3) / rng.choice([1, 4, 3, 10])
    numbers[2] = numbers[2] or 1
    inputs = [np.array(number).astype(dtype) for number in numbers]
    return Case("Range", opset, inputs, **tolerance(inputs[0]))
