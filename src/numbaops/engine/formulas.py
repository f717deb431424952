"""Element-wise operators as formulas of float32, for the kernels that :mod:`numbaops.kernels.chains` generates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from numbaops.engine.steps import Step
from numbaops.ops.elementwise import clip_limits

_FLOAT32 = np.dtype(np.float32)


def _number(value: Any) -> str:
    """A float32 as an expression."""
    return f"np.float32({str(float(np.float32(value))).replace('inf', 'np.inf').replace('nan', 'np.nan')})"


_ZERO, _HALF, _ONE = map(_number, (0, 0.5, 1))

_FORMULAS: dict[str, str] = {
    "Abs": "size_of({0})",
    "Add": "{0} + {1}",
    "Div": "quotient({0}, {1})",
    "Erf": "erf({0})",
    "Exp": "exp({0})",
    "HardSwish": f"{{0}} * larger({_ZERO}, smaller({_ONE}, {{0}} * {_number(1 / 6)} + {_HALF}))",
    "Mul": "{0} * {1}",
    "Neg": "-{0}",
    "Reciprocal": f"quotient({_ONE}, {{0}})",
    "Relu": f"larger({{0}}, {_ZERO})",
    "Sigmoid": "sigmoid({0})",
    "Softplus": "softplus({0})",
    "Sqrt": "np.sqrt({0})",
    "Sub": "{0} - {1}",
    "Tanh": "tanh({0})",
    "Where": "chosen({0}, {1}, {2})",
}
_FOLDED = {"Max": "larger({0}, {1})", "Min": "smaller({0}, {1})", "Sum": "{0} + {1}"}


def _hard_sigmoid(node: Mapping[str, Any]) -> str:
    return f"larger({_ZERO}, smaller({_ONE}, {_number(node['alpha'])} * {{0}} + {_number(node['beta'])}))"


def _leaky_relu(node: Mapping[str, Any]) -> str:
    alpha = _number(node["alpha"])
    if 0 < node["alpha"] <= 1:
        return f"larger({{0}}, {alpha} * {{0}})"
    return f"larger({{0}}, {_ZERO}) + {alpha} * smaller({{0}}, {_ZERO})"


def _gelu(node: Mapping[str, Any]) -> str | None:
    return "{0} * normal_distribution({0})" if node["approximate"] == "none" else None


_OF_ATTRIBUTES: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _leaky_relu,
}


def formula_of(step: Step, dtypes: list[np.dtype[Any]], constants: Mapping[str, Any]) -> str | None:
    """The formula of an element-wise step with ``{0}``, ``{1}``, ... for its inputs; None if it has none.

    Args:
        step: the step.
        dtypes: the types of its inputs.
        constants: values that never change.
    """
    op_type, count = step.op_type, len(step.inputs)
    conditions = 1 if op_type == "Where" else 0
    if any(dtype != (np.bool_ if place < conditions else _FLOAT32) for place, dtype in enumerate(dtypes)):
        return None
    if op_type in _FORMULAS:
        return _FORMULAS[op_type]
    if op_type in _OF_ATTRIBUTES:
        return _OF_ATTRIBUTES[op_type](vars(step.node))
    if op_type in _FOLDED:
        text = "{0}"
        for place in range(1, count):
            text = _FOLDED[op_type].format(text, f"{{{place}}}")
        return text if count > 1 else None
    known = [constants.get(name) for name in step.inputs[1:]]
    if op_type == "Pow" and known[0] is not None and known[0].size == 1 and known[0].reshape(()) == 2:
        return "{0} * {0}"
    if op_type == "Clip" and all(value is not None for value in known):
        node = vars(step.node)
        low, high = (node["min"], node["max"]) if step.since_version == 6 else (*known, None, None)[:2]
        limits = clip_limits(low, high, _FLOAT32)
        return limits and f"smaller(larger({{0}}, {_number(limits[0])}), {_number(limits[1])})"
    return None
