"""The same model elsewhere, and how far two results are apart."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference

from numbaops.cli.report import type_name
from numbaops.dtypes import BY_CODE, BY_NAME, of_dtype
from numbaops.errors import EvaluationError, UnsupportedError
from numbaops.interrupts import held

Run = Callable[[Mapping[str, Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far an output is from the one it is compared with.

    Attributes:
        absolute: the largest absolute error, or None where there is no such thing.
        relative: the largest error relative to the other's elements, those that are zero left out.
        matches: whether every element is within the tolerance.
        note: what else differs, or "".
    """

    absolute: float | None
    relative: float | None
    matches: bool
    note: str = ""


def difference(ours: Any, theirs: Any, rtol: float = 1e-3, atol: float = 1e-7) -> Difference:
    """Compare two outputs; the tolerance is that of ONNX's own tests for whole models."""
    if (form := _form(ours)) != _form(theirs):
        return Difference(None, None, False, f"{form} against {_form(theirs)}")
    if isinstance(ours, (list, tuple)):
        parts = [difference(one, other, rtol, atol) for one, other in zip(ours, theirs, strict=True)]
        return Difference(
            max((part.absolute for part in parts if part.absolute is not None), default=None),
            max((part.relative for part in parts if part.relative is not None), default=None),
            all(part.matches for part in parts),
            next((part.note for part in parts if part.note), ""),
        )
    if not isinstance(ours, (np.ndarray, np.generic)) or of_dtype(ours.dtype).kind == "string":
        unequal = int(np.sum(np.asarray(ours != theirs)))
        return Difference(None, None, not unequal, f"{unequal} of {np.size(ours)} differ" if unequal else "equal")
    row = of_dtype(ours.dtype)
    if row.format is not None and row.format.mantissa_bits < 10:  # a bfloat16 and narrower: two units in the last place
        rtol = max(rtol, 2.0 ** (1 - row.format.mantissa_bits))
    with np.errstate(all="ignore"):  # infinities and NaNs are compared, not warned about
        errors, sizes = _errors(_wide(ours), _wide(theirs))
        relative = np.where(np.isinf(errors), math.inf, errors / sizes)[sizes != 0]
        matches = bool(np.all((errors == 0) | (np.isfinite(errors) & (errors <= atol + rtol * sizes))))
    return Difference(_largest(errors), _largest(relative), matches)


def _form(value: Any) -> str:
    return f"{type_name(value)} {value.shape if isinstance(value, np.ndarray) else np.size(value)}"


def _largest(values: np.ndarray) -> float:
    return float(np.nanmax(values, initial=0.0))


def _wide(array: Any) -> np.ndarray:
    kind = of_dtype(array.dtype).kind
    dtype: Any = {"signed": np.int64, "unsigned": np.uint64, "bool": np.uint64, "complex": np.complex128}.get(kind, np.float64)
    return np.asarray(array).astype(dtype)


def _errors(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute errors, and the absolute values they are relative to; a NaN or infinity on one side only is infinitely far off."""
    if ours.dtype.kind in "iu":
        # Wraps around, and is right all the same: 64-bit integers differ by less than 2**64.
        errors = (np.maximum(ours, theirs) - np.minimum(ours, theirs)).view(np.uint64).astype(np.float64)
        return errors, np.abs(theirs.astype(np.float64))
    errors = np.abs(ours - theirs)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    return np.where(same, 0.0, np.where(np.isnan(errors), math.inf, errors)), np.abs(theirs)


def load_peer(name: str, model: onnx.ModelProto, path: Path, *, asked: str, threads: int | None = None) -> Run:
    """The model, ready to run in ``"reference"`` or ``"onnxruntime"``.

    Args:
        name: which of them.
        model: the model.
        path: its file.
        asked: how an error begins, e.g. ``--compare reference``.
        threads: for ONNX Runtime, which else chooses.

    Raises:
        UnsupportedError: it is not installed, or does not take a type that goes in.
        EvaluationError: it cannot load the model; also when it is run, if it cannot do that.
    """
    try:
        run = _load_reference(path) if name == "reference" else _load_onnxruntime(model, path, threads)
    except UnsupportedError as error:
        raise UnsupportedError(f"{asked}: {error}") from error
    except Exception as error:
        raise EvaluationError(f"{asked}: it cannot load the model: {error}") from error

    def checked(feeds: Mapping[str, Any]) -> list[Any]:
        try:
            return run(feeds)
        except UnsupportedError as error:
            raise UnsupportedError(f"{asked}: {error}") from error
        except Exception as error:
            raise EvaluationError(f"{asked}: it cannot run the model: {type(error).__name__}: {error}") from error

    return checked


def _load_reference(path: Path) -> Run:
    evaluator = onnx.reference.ReferenceEvaluator(onnx.load(path))  # from the file, as the others: so that times to load compare
    return lambda feeds: list(evaluator.run(None, dict(feeds)))


def onnxruntime_session(source: Path | bytes, threads: int | None = None) -> Any:
    """An ONNX Runtime session on the CPU.

    Args:
        source: a model's file, or its content.
        threads: for its operators; None leaves that to it.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        with held():
            import onnxruntime
    except ModuleNotFoundError as error:
        raise UnsupportedError("ONNX Runtime is not installed: pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are raised as well; its warnings are about the model's age
    if threads is not None:
        options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(source if isinstance(source, bytes) else str(source), options, providers=["CPUExecutionProvider"])


def _load_onnxruntime(model: onnx.ModelProto, path: Path, threads: int | None) -> Run:
    session = onnxruntime_session(path, threads)
    import onnxruntime

    types = {value.name: BY_CODE.get(value.type.tensor_type.elem_type) for value in (*model.graph.input, *model.graph.output)}
    names = [value.name for value in model.graph.output]
    as_values = any(types[name] is BY_NAME["bfloat16"] for name in names)  # which it cannot turn into arrays itself

    def feed(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or (row := of_dtype(value.dtype)).kind == "string":
            return value
        if row.packed:
            raise UnsupportedError(f"it takes no input of type {row} from NumPy")
        if row.dtype.type.__module__ != "numpy":
            bits = np.ascontiguousarray(value).view(f"u{value.itemsize}")
            return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, row.code)
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value)) if as_values else value

    def fetch(name: str, value: Any) -> Any:
        row = types[name]
        if as_values:
            if row is BY_NAME["bfloat16"]:
                shape = tuple(value.shape())
                content = ctypes.string_at(value.data_ptr(), math.prod(shape) * row.dtype.itemsize)
                return np.frombuffer(content, row.dtype).reshape(shape)
            value = value.numpy()
        if row is not None and isinstance(value, np.ndarray) and value.dtype.kind == "u" and value.dtype != row.dtype:
            return value.view(row.dtype)  # float8 comes out as uint8
        return value

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        values = {name: feed(value) for name, value in feeds.items()}
        results = session.run_with_ort_values(names, values) if as_values else session.run(names, values)
        return [fetch(name, value) for name, value in zip(names, results, strict=True)]

    return run
