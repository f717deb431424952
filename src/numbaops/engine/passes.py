"""What a plan does to its steps before they run, each of which may be left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from numbaops.errors import InvalidValueError

PASSES = ("fold", "share", "fuse", "chain", "shapes", "in_place")
"""By name:

- ``fold``: what depends on constants only is computed once;
- ``share``: of equal nodes with the same inputs, one runs;
- ``fuse``: what follows a convolution (scales, shifts, a summand, limits) goes into it;
- ``chain``: element-wise nodes one after the other run as one kernel, or block by block;
- ``shapes``: for inputs of shapes that come again, what depends on shapes only is constant;
- ``in_place``: results are written into inputs that nobody needs any more.
"""


@dataclass(frozen=True)
class Passes:
    """The passes of a plan.

    Args:
        without: those that are left out.
        exact: leave out what changes results by a rounding: chains, and scales in weights.

    Raises:
        InvalidValueError: there is no such pass.
    """

    without: frozenset[str] = field(default=frozenset())
    exact: bool = False

    @classmethod
    def of(cls, without: Iterable[str], exact: bool) -> Passes:
        names = (without,) if isinstance(without, str) else tuple(without)
        if unknown := [name for name in names if name not in PASSES]:
            raise InvalidValueError(f"without has {unknown[0]!r}; allowed: {', '.join(PASSES)}", attribute="without")
        return cls(frozenset(names) | ({"chain"} if exact else frozenset()), exact)

    def __contains__(self, name: str) -> bool:
        return name not in self.without
