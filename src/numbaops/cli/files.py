"""Tensors from and to files: ``.npy``, ``.npz`` and ``.pb``.

NumPy's formats know nothing of the ml_dtypes: a ``bfloat16`` array written by ``np.save`` comes back as ``|V2``. Here such an
array is written as unsigned integers under ``NAME@bfloat16``, and read back from that, or from ``|V2`` where the model says
what it is.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from onnx import numpy_helper

from numbaops.dtypes import BY_CODE, BY_NAME, ElementType, of_dtype
from numbaops.errors import EvaluationError, InvalidTypeError, InvalidValueError
from numbaops.targets import beside, check_target


def read_input(path: Path, declared: onnx.TypeProto) -> Any:
    """The value in a ``.npy`` or ``.pb`` file.

    Args:
        path: the file.
        declared: the type that the model declares for it, which says how to read a ``.pb`` file.
    """
    if path.suffix == ".npy":
        with _reading(path, "a .npy file"), path.open("rb") as file:
            value = np.load(file, allow_pickle=False)
            if not isinstance(value, np.ndarray):
                raise TypeError("it is a .npz file")
        return as_declared(value, declared)
    if path.suffix == ".pb":
        return read_proto(path, declared)[1]
    raise InvalidValueError(f"{path}: an input is a .npy or a .pb file")


def read_proto(path: Path, declared: onnx.TypeProto) -> tuple[str, Any]:
    """The name and value in a ``.pb`` file, as ONNX test data sets have them."""
    from numbaops.tensors import to_array

    with _reading(path, "a tensor"):
        content = path.read_bytes()
        kind = declared.WhichOneof("value")
        if kind == "sequence_type":
            sequence = onnx.SequenceProto.FromString(content)
            return sequence.name, numpy_helper.to_list(sequence)
        if kind == "optional_type":
            optional = onnx.OptionalProto.FromString(content)
            return optional.name, numpy_helper.to_optional(optional)
        tensor = onnx.TensorProto.FromString(content)
        if tensor.data_type == onnx.TensorProto.UNDEFINED:
            raise ValueError("it has no element type")
        return tensor.name, to_array(tensor, base_dir=path.parent)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a ``.npz`` file by name; ``NAME@TYPE`` becomes an array of that type under ``NAME``."""
    arrays = {}
    with _reading(path, "a .npz file"), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise TypeError("it is a .npy file")
        for key in archive.files:
            name, _, suffix = key.rpartition("@")
            row = BY_NAME.get(suffix)
            array = archive[key]
            if row is not None and _foreign(row) and array.dtype == _bits_dtype(row):
                arrays[name] = array.view(row.dtype)
            else:
                arrays[key] = array
    return arrays


def as_declared(array: np.ndarray, declared: onnx.TypeProto) -> np.ndarray:
    """``array`` as an ONNX tensor: strings as objects, native byte order, and ``|V2`` as the declared type of that size."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind in "UT":
        return array.astype(object)
    if array.dtype.kind == "V" and array.dtype.names is None:
        row = BY_CODE.get(declared.tensor_type.elem_type)
        if row is None or not _foreign(row) or row.dtype.itemsize != array.dtype.itemsize:
            raise InvalidTypeError(f"an array of NumPy dtype {array.dtype} is of no known element type")
        return array.view(row.dtype)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)


def check_npz_target(path: Path) -> Path:
    """The file that :func:`write_npz` will replace, or an error if that cannot work."""
    target = check_target(path)
    if path.suffix != ".npz":  # least of all the model
        raise InvalidValueError(f"{path}: outputs are saved in a file that ends in .npz")
    return target


def write_npz(path: Path, values: Mapping[str, Any]) -> list[str]:
    """Write values to a ``.npz`` file, all or nothing; returns the names in the file.

    Args:
        path: from :func:`check_npz_target`.
        values: arrays, and lists of arrays; None is left out.
    """
    arrays = dict(entry for name, value in values.items() for entry in _entries(name, value))
    temporary = beside(path)
    try:
        with zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
            for name, array in arrays.items():
                # np.savez refuses outputs named "file" and pickles objects
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _write_array(member, array)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return list(arrays)


def _write_array(member: IO[bytes], array: np.ndarray) -> None:
    np.lib.format.write_array(member, array, allow_pickle=False)


def _entries(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    if value is None:
        return
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _entries(f"{name}[{index}]", item)
        return
    if not isinstance(value, (np.ndarray, np.generic)):
        raise EvaluationError(f"output {name!r} is a {type(value).__name__}, which a .npz file cannot hold")
    array = np.asarray(value)
    row = of_dtype(array.dtype)
    if row.kind == "string":
        strings = np.array([text.decode() if isinstance(text, bytes) else str(text) for text in array.flat], dtype=np.str_)
        if any(str(text).endswith("\0") for text in array.flat):
            raise EvaluationError(f"output {name!r} has a string that ends with a NUL, which a .npz file cannot hold")
        yield name, strings.reshape(array.shape)
    elif _foreign(row):
        yield f"{name}@{row.name}", array.view(_bits_dtype(row))
    else:
        yield name, array


def _foreign(row: ElementType) -> bool:
    """Whether NumPy's file format has no name for the type."""
    return row.dtype.type.__module__ != "numpy"


def _bits_dtype(row: ElementType) -> np.dtype[Any]:
    return np.dtype(f"u{row.dtype.itemsize}")


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Turn what readers raise on damaged files into one kind of error that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # missing, a folder, not permitted: says so itself
            raise
        raise InvalidValueError(f"{path}: not {what}, or cut short: {error}") from error
    except MemoryError:
        raise
    except Exception as error:
        if "pickle" in str(error):  # which NumPy takes all that it does not know for, and says how to trust it
            raise InvalidValueError(f"{path}: not {what}, or it holds Python objects, which are not read") from error
        raise InvalidValueError(f"{path}: not {what}, or cut short: {error}") from error
