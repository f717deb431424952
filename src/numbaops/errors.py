"""Exceptions of numbaops.

Each class also derives from the built-in that a NumPy or onnx user would catch, and keeps what it knows in fields, so
that a program can react without reading the text. The text names the operator version and the node when they are known.
"""

from __future__ import annotations


class NumbaopsError(Exception):
    """Base class of every error that numbaops raises on purpose.

    Attributes:
        op_type: the ONNX operator, e.g. ``"EyeLike"``, or None.
        since_version: the operator version that applied, or None.
        node_name: the node of the model, or None outside a model.
        attribute: the attribute or argument at fault, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        op_type: str | None = None,
        since_version: int | None = None,
        node_name: str | None = None,
        attribute: str | None = None,
    ) -> None:
        super().__init__(message)
        self.op_type = op_type
        self.since_version = since_version
        self.node_name = node_name
        self.attribute = attribute

    def __str__(self) -> str:
        where = self.op_type or ""
        if where and self.since_version is not None:
            where += f"-{self.since_version}"
        if self.node_name:
            where += f" (node {self.node_name!r})"
        return f"{where}: {self.args[0]}" if where else str(self.args[0])


class InvalidValueError(NumbaopsError, ValueError):
    """An argument, attribute or payload has a value that the operator or format does not allow."""


class InvalidTypeError(NumbaopsError, TypeError):
    """An argument or attribute has a Python type or element type that is not allowed."""


class UnsupportedError(NumbaopsError, NotImplementedError):
    """An operator, operator version or element type that does not exist there."""


class EvaluationError(NumbaopsError, RuntimeError):
    """A model could not be run."""


class AllocationError(NumbaopsError, MemoryError):
    """The memory for an output could not be had."""
