"""What becomes of the nodes of a model that is folded."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import NodeProto

from numbaops.engine.load import canonical_domain
from numbaops.engine.signature import node_label
from numbaops.rewrite.known import Known
from numbaops.rewrite.places import Place


@dataclass(frozen=True, slots=True)
class Fact:
    """What became of a node, or of an initializer.

    Attributes:
        what: ``"folded"`` (its outputs are stored), ``"inlined"`` (an ``If`` in whose place is a branch), ``"removed"`` (nobody took its
            outputs), ``"renamed"`` (an ``Identity``, whose takers take its input) or ``"left"`` (it depends on no graph input, and stays).
        reason: why it was left: ``"smaller as it is"``, ``"max_tensor"``, ``"max_growth"``, ``"random"``, ``"side effect"``,
            ``"unknown operator"``, ``"loop"``, ``"no tensor"`` (a sequence), ``"no Constant"`` (which is needed there, and does not exist
            for that type at the opset), ``"attribute of the function"``, ``"fails"`` or ``"memory"``; else "".
        op_type: the operator, with its domain if it is not ONNX's own; ``"initializer"`` for an initializer.
        name: of the node, or of the first value that it computes.
        place: where it is: "" for the graph, else the function or the nodes around the body.
        bytes: of what was stored, or would have been.
        detail: what there is to say beside.
    """

    what: str
    reason: str
    op_type: str
    name: str
    place: str
    bytes: int = 0
    detail: str = ""


@dataclass(slots=True)
class Entry:
    """A node on its way: with its outputs if they are known, or why they are not."""

    node: NodeProto
    takes: set[str]
    known: list[Known] | None = None
    left: Fact | None = None


def fact_of(what: str, node: NodeProto, place: Place, *, reason: str = "", detail: str = "", size: int = 0) -> Fact:
    """The fact of a node in a place."""
    op_type = ".".join(filter(None, (canonical_domain(node.domain), node.op_type)))
    return Fact(what, reason, op_type, node_label(node), place.label, size, detail)
