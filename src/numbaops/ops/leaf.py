"""A row of the tables in this folder that say which operator versions have an implementation in NumPy and Numba here.

Constant, Cast and their like, which are also offered as functions, have rows of their own in ``numbaops.opset``; the facts of all other
operators (types, attributes, defaults) are those of the installed ``onnx.defs``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Leaf:
    """One implementation, and the operator versions that it serves.

    Attributes:
        op_type: the operator.
        since_versions: its since versions, as in ``onnx.defs``.
        function: called with the inputs in order, None for one that is left out, and the attributes by name, with the schema's
            defaults filled in: int, float, str, lists of these, arrays. It returns the output, or a tuple of several. A
            parameter ``outputs`` gets the number of outputs that the node asks for.
        aliases: whether an output may share memory with an input.
        bind: whether ``function`` takes the attributes alone and returns what is called with the inputs.
        elementwise: whether each element of the output depends on those at its place alone; inputs are stretched as NumPy does it.
        domain: the operator's domain; ``""`` is ONNX's own.
    """

    op_type: str
    since_versions: tuple[int, ...]
    function: Callable[..., Any]
    aliases: bool = False
    bind: bool = False
    elementwise: bool = False
    domain: str = ""
