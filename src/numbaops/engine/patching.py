"""Operators of numbaops where other packages ask ``onnx.reference`` for one."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
import onnx.defs
import onnx.helper
import onnx.reference.ops
from onnx.reference import op_run

from numbaops.engine.functions import attribute_from_value, references, substitute
from numbaops.engine.load import canonical_domain
from numbaops.engine.nodes import Node, own_implementation
from numbaops.errors import InvalidValueError, UnsupportedError
from numbaops.tensors import from_array, to_array

_theirs: Callable[..., Any] = onnx.reference.ops.load_op
_LOADERS = {
    "": "onnx.reference.ops",
    "ai.onnx.ml": "onnx.reference.ops.aionnxml",
    "ai.onnx.preview": "onnx.reference.ops.aionnx_preview",
    "ai.onnx.preview.training": "onnx.reference.ops.aionnx_preview_training",
}
"""Where onnx.reference has the operators of a domain."""
_depth = 0
_lock = threading.Lock()


class LoadedOperator(op_run.OpRun):
    """What :func:`load_op` returns: a class to make nodes of, as ``onnx.reference.ops.load_op`` returns one, with ``eval``."""

    op_type_: ClassVar[str]
    since_version: ClassVar[int]
    make: ClassVar[Callable[..., Node]]

    def __new__(cls, onnx_node: Any, run_params: dict[str, Any], schema: Any = None) -> Any:
        """The node's implementation, an ``OpRun`` too; an instance, of a class derived from this one with a ``_run`` of its own."""
        if cls._run is not LoadedOperator._run:
            return super().__new__(cls)
        return _Linked(onnx_node, run_params, cls.make) if references([onnx_node]) else cls.make(onnx_node, run_params)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError  # never reached: there are no instances

    @classmethod
    def infer_name(cls) -> tuple[str, int]:
        """The operator and its since version."""
        return cls.op_type_, cls.since_version

    @classmethod
    def make_node(cls, n_inputs: int | None = None, n_outputs: int | None = None, **kwargs: Any) -> onnx.NodeProto:
        """A node of this operator version, with values named ``x0`` on and ``y0`` on."""
        schema = onnx.defs.get_schema(cls.op_type_, cls.since_version, cls.op_domain)
        inputs = [f"x{position}" for position in range(schema.min_input if n_inputs is None else n_inputs)]
        outputs = [f"y{position}" for position in range(schema.min_output if n_outputs is None else n_outputs)]
        tensors = {name for name, each in schema.attributes.items() if each.type == onnx.defs.OpSchema.AttrType.TENSOR}
        given = {
            name: from_array(value) if name in tensors and isinstance(value, np.ndarray) else value
            for name, value in kwargs.items()
            if value is not None
        }
        return onnx.helper.make_node(cls.op_type_, inputs, outputs, domain=cls.op_domain, **given)

    @classmethod
    def create(cls, n_inputs: int | None = None, n_outputs: int | None = None, verbose: int = 0, **kwargs: Any) -> Any:
        """The implementation of such a node."""
        run_params = {"verbose": verbose, "log": lambda *_: None, "new_ops": None, "opsets": {cls.op_domain: cls.since_version}}
        return cls.make(cls.make_node(n_inputs, n_outputs, **kwargs), run_params)

    @classmethod
    def eval(cls, *args: Any, n_outputs: int | None = None, verbose: int = 0, **kwargs: Any) -> Any:
        """The output, or a tuple of several, for inputs and attributes.

        Args:
            args: the inputs; None is an absent one.
            n_outputs: how many outputs to compute; as few as the operator allows by default.
            verbose: nothing; ``onnx.reference`` has it.
            kwargs: the attributes; a tensor may be an array.
        """
        results = cls.create(len(args), n_outputs, verbose, **kwargs).evaluate(*args)
        return results[0] if len(results) == 1 else results


class _Linked(Node):
    """A node of a function that onnx's own evaluator runs, with attributes that refer to the function's: each run brings them."""

    def __init__(self, node: onnx.NodeProto, run_params: dict[str, Any], make: Callable[..., Node]) -> None:
        super().__init__(node, run_params)
        self.has_linked_attribute = True
        self._make = make
        self._kinds = references([node])

    def run(self, *args: Any, linked_attributes: Any = None, context: Any = None, bindings: Any = None) -> tuple[Any, ...]:
        given = {
            name: attribute_from_value(name, value, self._kinds[name])
            for name, value in (linked_attributes or {}).items()
            if name in self._kinds and value is not None
        }
        node = onnx.NodeProto()
        node.CopyFrom(self.onnx_node)
        substitute([node], given)
        return self._make(node, self.run_params).run(*args)


def load_op(domain: str, op_type: str, version: int | None = None) -> Any:
    """A class that implements an operator version: the one of numbaops, or else that of ``onnx.reference``.

    >>> import numpy as np
    >>> load_op("", "Softmax", 11).eval(np.zeros((1, 2, 2), np.float32))
    array([[[0.25, 0.25],
            [0.25, 0.25]]], dtype=float32)

    Args:
        domain: ``""`` or ``"ai.onnx"`` for ONNX's own, or another one.
        op_type: the operator.
        version: the opset version of the domain; the newest by default.

    Returns:
        A class with ``eval(*inputs, n_outputs=None, **attributes)``, as ``onnx.reference.ops.load_op`` returns one.

    Raises:
        UnsupportedError: nobody implements the operator, or it does not exist at that version.
        InvalidValueError: the version is no integer from 1 on.
    """
    if version is not None and (not isinstance(version, (int, np.integer)) or isinstance(version, bool) or version < 1):
        raise InvalidValueError(f"version is {version!r}; allowed: an integer from 1 on, or None", op_type=op_type, attribute="version")
    found = _own(canonical_domain(domain), op_type, version)
    if found is not None:
        return found
    loader = _LOADERS.get(canonical_domain(domain))
    try:
        if loader is not None:
            return importlib.import_module(loader).load_op(canonical_domain(domain), op_type, version)
    except (NotImplementedError, AssertionError):  # an assertion tells of an operator that onnx has as a function
        pass
    opset = "" if version is None else f" at opset {version}"
    raise UnsupportedError(f"nobody implements this operator of domain {domain!r}{opset}", op_type=op_type)


@functools.lru_cache(maxsize=1024)
def _own(domain: str, op_type: str, version: int | None) -> type[LoadedOperator] | None:
    if version is None:
        try:
            version = onnx.defs.get_schema(op_type, domain=domain).since_version
        except onnx.defs.SchemaError:
            return None
    make = own_implementation(domain, op_type, version, check_types=False, read_external=to_array)
    if make is None:
        return None
    since_version = onnx.defs.get_schema(op_type, version, domain).since_version
    fields = {"__module__": __name__, "op_domain": domain, "op_type_": op_type, "since_version": since_version, "make": staticmethod(make)}
    fields["op_schema"] = onnx.defs.get_schema(op_type, version, domain)
    return type(f"{op_type}_{since_version}", (LoadedOperator,), fields)


def _load_op(domain: str, op_type: str, version: int | None = None, *args: Any, **options: Any) -> Any:
    """In the place of ``onnx.reference.ops.load_op``."""
    if not args and not any(options.get(name) for name in ("custom", "node", "input_types", "expand")):
        try:
            found = _own(canonical_domain(domain), op_type, version)
        except UnsupportedError:  # onnx.reference has it at any version
            found = None
        if found is not None:
            return found
    return _theirs(domain, op_type, version, *args, **options)


def patch_onnx() -> AbstractContextManager[None]:
    """Put the operators of numbaops behind ``onnx.reference.ops.load_op``, for packages that fold constants with it.

    Calls may be nested; as many of :func:`unpatch_onnx` undo them. Also a context manager::

        with numbaops.patch_onnx():
            model = onnxscript.optimizer.optimize(model)
    """
    global _depth
    with _lock:
        _depth += 1
        onnx.reference.ops.load_op = _load_op
    return _Patched()


def unpatch_onnx() -> None:
    """Undo one :func:`patch_onnx`; without one, nothing."""
    global _depth
    with _lock:
        _depth = max(0, _depth - 1)
        if _depth == 0:
            onnx.reference.ops.load_op = _theirs


class _Patched:
    """What :func:`patch_onnx` returns: a ``with`` block ends what began when it was made, or when it is entered again."""

    def __init__(self) -> None:
        self._pending = True

    def __enter__(self) -> None:
        if not self._pending:
            patch_onnx()
        self._pending = False

    def __exit__(self, *error: object) -> None:
        unpatch_onnx()
