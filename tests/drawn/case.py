"""One drawn use of an operator, as a one-node model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import oracle

IR_VERSION_OF_OPSET = (
    (1, 3),
    (8, 3),
    (9, 4),
    (10, 5),
    (11, 6),
    (12, 7),
    (15, 8),
    (19, 9),
    (21, 10),
    (23, 11),
    (24, 12),
    (25, 13),
    (28, 14),
)


@dataclass
class Case:
    """An operator at an opset with inputs and attributes.

    Attributes:
        op_type: the operator.
        opset: the opset of its domain.
        inputs: arrays in order, None for one that is left out.
        attributes: by name, as ``onnx.helper.make_node`` takes them.
        outputs: how many outputs to ask for.
        domain: the operator's domain.
        rtol: relative tolerance for floats; 0 compares bits.
        atol: absolute tolerance for floats.
    """

    op_type: str
    opset: int
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    rtol: float = 1e-5
    atol: float = 1e-6

    @property
    def since_version(self) -> int:
        """Of the schema that the opset uses."""
        return int(onnx.defs.get_schema(self.op_type, self.opset, self.domain).since_version)

    @property
    def feeds(self) -> dict[str, Any]:
        """The inputs by the names that the model gives them."""
        return {f"i{position}": value for position, value in enumerate(self.inputs) if value is not None}

    def model(self) -> onnx.ModelProto:
        """The model of this one node; outputs have no declared type."""
        names = ["" if value is None else f"i{position}" for position, value in enumerate(self.inputs)]
        outputs = [f"o{position}" for position in range(self.outputs)]
        node = helper.make_node(self.op_type, names, outputs, domain=self.domain, **self.attributes)
        graph = helper.make_graph(
            [node],
            "drawn",
            [value_info(name, value) for name, value in zip(names, self.inputs, strict=True) if name],
            [onnx.ValueInfoProto(name=name) for name in outputs],
        )
        imports = [helper.make_opsetid(self.domain, self.opset)]
        ir_version = max(ir for opset, ir in IR_VERSION_OF_OPSET if opset <= (self.opset if not self.domain else 28))
        if self.domain:
            imports.append(helper.make_opsetid("", 21))
            ir_version = 10
        return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)

    def __str__(self) -> str:
        shown = ", ".join(
            "-" if value is None else f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else type(value).__name__
            for value in self.inputs
        )
        return f"{self.op_type}-{self.since_version}({shown}) {self.attributes}"


def value_info(name: str, value: Any) -> onnx.ValueInfoProto:
    """The declared type of a fed value."""
    if isinstance(value, list):
        return helper.make_tensor_sequence_value_info(name, code_of(value[0]) if value else TensorProto.FLOAT, None)
    return helper.make_tensor_value_info(name, code_of(value), list(value.shape))


def code_of(value: Any) -> int:
    return TensorProto.STRING if value.dtype.kind in "OU" else oracle.CODE_OF_DTYPE[value.dtype]


def difference(got: list[Any], want: list[Any], case: Case) -> str | None:
    """Where two lists of outputs differ, or None."""
    if len(got) != len(want):
        return f"{len(got)} outputs, not {len(want)}"
    for position, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        if isinstance(theirs, list):
            if not isinstance(mine, list):
                return f"output {position}: {type(mine).__name__}, not a list"
            if (text := difference(mine, theirs, case)) is not None:
                return f"output {position}: {text}"
            continue
        mine, theirs = np.asarray(mine), np.asarray(theirs)
        if mine.dtype != theirs.dtype and not (mine.dtype.kind in "OU" and theirs.dtype.kind in "OU"):
            return f"output {position}: type {mine.dtype}, not {theirs.dtype}"
        if mine.shape != theirs.shape:
            return f"output {position}: shape {mine.shape}, not {theirs.shape}"
        if theirs.dtype.kind in "OU":
            same = mine.astype(str) == theirs.astype(str)
        elif theirs.dtype.kind in "fcV" and case.rtol:
            wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
            same = np.isclose(mine.astype(wide), theirs.astype(wide), rtol=case.rtol, atol=case.atol, equal_nan=True)
        else:
            same = (mine == theirs) | ((mine != mine) & (theirs != theirs))
        if not same.all():
            place = tuple(int(index) for index in np.argwhere(~np.atleast_1d(same))[0])
            return (
                f"output {position}: {np.atleast_1d(mine)[place]!r} at {list(place)}, not {np.atleast_1d(theirs)[place]!r} "
                f"({int((~same).sum())} of {same.size} differ)"
            )
    return None
