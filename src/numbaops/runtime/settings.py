"""Settings from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable

from numbaops.errors import InvalidValueError


def byte_setting(name: str, default: Callable[[], int]) -> int:
    """A number of bytes from the environment variable ``name``, or the default.

    Raises:
        InvalidValueError: it is set to something else.
    """
    return _number(name, default, 0, "a number of bytes")


def thread_setting(name: str, default: Callable[[], int]) -> int:
    """A number of threads from the environment variable ``name``, or the default.

    Raises:
        InvalidValueError: it is set to something else.
    """
    return _number(name, default, 1, "an integer from 1 on")


def _number(name: str, default: Callable[[], int], least: int, allowed: str) -> int:
    chosen = os.environ.get(name)
    if not chosen:
        return default()
    if not (chosen.isascii() and chosen.isdigit() and int(chosen) >= least):
        raise InvalidValueError(f"the environment variable {name} is {chosen!r}; allowed: {allowed}", attribute=name)
    return int(chosen)
