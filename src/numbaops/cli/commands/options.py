"""What options of several commands have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token

from numbaops.errors import InvalidValueError

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Several = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


def _from(least: int) -> Parameter:
    """An option that takes a whole number; cyclopts would round what is none."""

    def convert(_: Any, tokens: Sequence[Token]) -> int:
        (token,) = tokens
        if not (token.value.isascii() and token.value.isdigit() and int(token.value) >= least):
            raise InvalidValueError(f"{token.keyword} {token.value}: allowed: a whole number from {least} on")
        return int(token.value)

    return Parameter(converter=convert)


FromZero = Annotated[int, _from(0)]
FromOne = Annotated[int, _from(1)]
