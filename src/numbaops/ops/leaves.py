"""All implementations of this folder, by operator version."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from numbaops.ops.leaf import Leaf

_FAMILIES = (
    "attention convolution elementwise image indexing linear ml movement normalization pooling recurrent reduction resize sequence signal"
)

LEAVES: Mapping[tuple[str, str, int], Leaf] = MappingProxyType(
    {
        (leaf.domain, leaf.op_type, version): leaf
        for family in _FAMILIES.split()
        for leaf in importlib.import_module(f"numbaops.ops.{family}").LEAVES
        for version in leaf.since_versions
    }
)
"""By domain, operator and since version."""
