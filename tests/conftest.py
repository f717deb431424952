"""Settings for the whole test run."""

from __future__ import annotations

import hypothesis

# A first example may compile a kernel, so time limits say nothing; the same examples in every run make failures repeat.
hypothesis.settings.register_profile("numbaops", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("numbaops")
