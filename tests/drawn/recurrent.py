"""Draws of RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from drawn.case import Case
from drawn.normalization import types

VERSIONS = {"RNN": (1, 7, 14, 22), "GRU": (1, 3, 7, 14, 22), "LSTM": (1, 7, 14, 22)}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
PLAIN = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")
NEEDS_ALPHA = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
NEEDS_BETA = {"Affine", "ScaledTanh", "HardSigmoid"}
ACTIVATIONS = (*PLAIN, *sorted(NEEDS_ALPHA))


def draws(rng: np.random.Generator) -> Iterator[Case]:
    """Cases over all versions."""
    for op_type, versions in VERSIONS.items():
        for version in versions:
            for dtype in types(op_type, version):
                for _ in range(25 if dtype == np.float32 else 6):
                    case = draw(rng, op_type, version, dtype)
                    yield case
                    if version < 7:
                        plain = {name: value for name, value in case.attributes.items() if name != "output_sequence"}
                        yield Case(op_type, 7, case.inputs, plain, case.outputs, rtol=case.rtol, atol=case.atol)


def draw(rng: np.random.Generator, op_type: str, version: int, dtype: np.dtype[Any]) -> Case:
    steps, batch, inputs, hidden = (int(size) for size in rng.integers(1, 5, 4))
    if rng.random() < 0.05:
        batch = 0
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    ways = 2 if direction == "bidirectional" else 1
    gates, count = GATES[op_type], FUNCTIONS[op_type] * ways
    attributes: dict[str, Any] = {"hidden_size": hidden}
    if direction != "forward" or rng.random() < 0.3 or (op_type, version) == ("GRU", 1):
        attributes["direction"] = direction
    layout = int(version >= 14 and rng.random() < 0.3)
    if layout:
        attributes["layout"] = 1
    if rng.random() < 0.3:
        attributes["clip"] = float(rng.choice([0.3, 1.0, 5.0]))
    if rng.random() < 0.4:
        names = [str(name) for name in rng.choice(ACTIVATIONS, count)]
        attributes["activations"] = names
        if rng.random() < 0.6 or {"Affine", "ScaledTanh"} & set(names):
            for attribute, takers in (("activation_alpha", NEEDS_ALPHA), ("activation_beta", NEEDS_BETA)):
                if takers & set(names):
                    attributes[attribute] = [float(rng.random() / 2) for name in names if name in takers]
    if version < 7 and rng.random() < 0.5:
        attributes["output_sequence"] = 1
    if op_type == "GRU" and version >= 3 and rng.random() < 0.5:
        attributes["linear_before_reset"] = 1
    if op_type == "LSTM" and rng.random() < 0.3:
        attributes["input_forget"] = 1

    def normal(*shape: int) -> Any:
        return np.asarray(rng.normal(0, 0.7, shape)).astype(dtype)

    state = (batch, ways, hidden) if layout else (ways, batch, hidden)
    given: list[Any] = [normal(batch, steps, inputs) if layout else normal(steps, batch, inputs)]
    given += [normal(ways, gates * hidden, inputs), normal(ways, gates * hidden, hidden)]
    given += [
        normal(ways, 2 * gates * hidden) if rng.random() < 0.6 else None,
        rng.integers(0 if rng.random() < 0.2 else 1, steps + 1, batch).astype(np.int32) if rng.random() < 0.4 else None,
        normal(*state) if rng.random() < 0.5 else None,
    ]
    if op_type == "LSTM":
        given += [normal(*state) if rng.random() < 0.5 else None, normal(ways, 3 * hidden) if rng.random() < 0.4 else None]
    while given[-1] is None:
        given.pop()
    unit = float(ml_dtypes.finfo(dtype).eps)
    tolerance = {"rtol": max(1e-4, 1.01 * unit), "atol": max(1e-5, unit / 4)}
    return Case(op_type, version, given, attributes, 3 if op_type == "LSTM" else 2, **tolerance)
