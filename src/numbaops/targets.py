"""Files that are written whole or not at all: under another name in the same folder, which is then changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from numbaops.errors import InvalidValueError


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file that would be replaced, or an error if that cannot work: better before long work than after it.

    Args:
        path: where something is to be saved; of a symbolic link, what it points to is replaced.

    Raises:
        InvalidValueError: it is no regular file, write-protected, or in a folder where nothing can be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InvalidValueError(f"{path}: not a regular file")
    # to replace a file takes a right to the folder only, and root may write anything
    if target.exists() and not (os.access(target, os.W_OK) and target.stat().st_mode & stat.S_IWUSR):
        raise InvalidValueError(f"{target}: the file is write-protected, and stays as it is; give another name")
    if not target.parent.is_dir():
        raise InvalidValueError(f"{path}: there is no folder {target.parent}")
    try:
        beside(target).touch()
        beside(target).unlink()
    except OSError as error:
        raise InvalidValueError(f"{path}: no file can be written there: {error.strerror}") from error
    return target


def beside(path: Path) -> Path:
    """Where to write what is to become ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")
