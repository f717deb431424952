"""Tensors whose elements are in files beside the model, see https://onnx.ai/onnx/repo-docs/ExternalData.html."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto
from onnx.checker import ValidationError
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor, uses_external_data

from numbaops.convert import array_nbytes
from numbaops.dtypes import BY_CODE
from numbaops.errors import EvaluationError
from numbaops.tensors import to_array, unreadable

MAPPED_FROM = 1 << 16
"""Bytes from which a tensor stays in its file, of which the system reads what is used; to read fewer takes less time."""

_MOST_FILES = 16
"""Files of a model that are mapped, each of which takes a descriptor; the tensors of others are read."""


class ExternalData:
    """The tensors that files beside a model hold; pickled, those that were read.

    Args:
        folder: where the model's file is; None for a model that did not come from a file.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._arrays: dict[bytes, NDArray[Any]] = {}
        self._files: dict[str, tuple[mmap.mmap, os.stat_result]] = {}

    def read(self, tensor: TensorProto) -> NDArray[Any]:
        """The elements of a tensor: an array for all who ask, read-only if it is large.

        Raises:
            EvaluationError: the model did not come from a file.
            InvalidValueError: see :func:`numbaops.to_array`.
        """
        key = tensor.SerializeToString()
        array = self._arrays.get(key)
        if array is None:
            if self._folder is None:
                raise EvaluationError(
                    f"tensor {tensor.name!r} is stored in another file, and the model came without a folder to look in; "
                    "give the model's path, or load it with onnx.load"
                )
            array = self._mapped(tensor, self._folder)
            self._arrays[key] = array = to_array(tensor, self._folder) if array is None else array
        return array

    def _mapped(self, tensor: TensorProto, folder: str) -> NDArray[Any] | None:
        """The elements where they are in the file; None if they have to be read, or what is wrong with them be said."""
        row = BY_CODE.get(tensor.data_type)
        if row is None or row.bits < 8 or row.kind in ("bool", "string") or sys.byteorder == "big" or min(tensor.dims, default=0) < 0:
            return None
        nbytes = array_nbytes(tensor.dims, row.dtype.itemsize, f"tensor {tensor.name!r}: the shape")
        others = [field.name for field, _ in tensor.ListFields() if field.name.endswith("_data") and field.name != "external_data"]
        if nbytes < MAPPED_FROM or tensor.HasField("segment") or others not in ([], ["raw_data"]):
            return None
        try:
            where = ExternalDataInfo(tensor)
            offset = where.offset or 0
            if offset % row.dtype.alignment:
                return None
            # onnx decides which files may be read; it does so before it reads this one byte
            probe = TensorProto(name=tensor.name, data_location=TensorProto.EXTERNAL)
            for key, value in (("location", where.location), ("offset", offset), ("length", 1)):
                probe.external_data.add(key=key, value=str(value))
            load_external_data_for_tensor(probe, folder)
            file = self._file(os.path.join(folder, where.location))
        except (ValidationError, ValueError, OSError):
            return None
        if file is None:
            return None
        end = offset + nbytes
        if offset < 0 or end > len(file) or end != (len(file) if where.length is None else offset + where.length):
            return None
        return np.frombuffer(file, row.dtype, nbytes // row.dtype.itemsize, offset).reshape(tuple(tensor.dims))

    def _file(self, path: str) -> mmap.mmap | None:
        if path not in self._files:
            if len(self._files) == _MOST_FILES:
                return None
            with open(path, "rb") as file:
                self._files[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), os.fstat(file.fileno())
        return self._files[path][0]

    def load_attributes(self, nodes: Iterable[NodeProto]) -> None:
        """Read the tensors in attributes, also of nodes in bodies, into the nodes: operators of others look for them there.

        Raises:
            InvalidValueError: they cannot be read.
        """
        for node in nodes:
            for attribute in node.attribute:
                sparse = (attribute.sparse_tensor, *attribute.sparse_tensors)
                tensors = (attribute.t, *attribute.tensors, *(part for each in sparse for part in (each.values, each.indices)))
                for tensor in filter(uses_external_data, tensors):
                    try:
                        load_external_data_for_tensor(tensor, self._folder or "")
                    except (ValidationError, ValueError, OSError) as error:
                        raise unreadable(f"tensor {tensor.name!r}", tensor, self._folder or "", error) from error
                    tensor.data_location = TensorProto.DEFAULT
                for graph in (attribute.g, *attribute.graphs):
                    self.load_attributes(graph.node)

    def check(self) -> None:
        """Check that no file was written to since: to read beyond its end would end the process.

        A file that was deleted, or that another one took the place of, is kept by the system.

        Raises:
            EvaluationError: one was.
        """
        for path, (_, was) in self._files.items():
            try:
                now = os.stat(path)
            except OSError:  # it has no name any more, and is kept all the same
                continue
            same_file = (now.st_dev, now.st_ino) == (was.st_dev, was.st_ino)
            if same_file and (now.st_size, now.st_mtime_ns) != (was.st_size, was.st_mtime_ns):
                raise EvaluationError(f"the file {path!r} was written to since the model was loaded; load it again")

    def __bool__(self) -> bool:
        """Whether files are mapped."""
        return bool(self._files)

    def __getstate__(self) -> dict[str, Any]:
        self.check()
        return {**self.__dict__, "_folder": None, "_files": {}}
