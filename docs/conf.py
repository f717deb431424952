"""Settings of the documentation: ``python -m sphinx -W -b html docs docs/_build/html`` builds it, without the net.

Pages are Markdown. Tables of types and operators are made of the package itself while the site is built, see :mod:`tables`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"  # kernels are then plain functions, with signatures and docstrings
sys.path.insert(0, str(Path(__file__).parent))

import tables
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import numbaops

project = "numbaops"
author = "the numbaops contributors"
version = release = numbaops.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"numbaops {release}"
html_copy_source = False
html_show_sourcelink = False


class Generated(SphinxDirective):
    """A table of :mod:`tables`, by its name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        return self.parse_text_to_nodes(tables.TABLES[self.arguments[0]](), allow_section_headings=True)


def setup(app: Any) -> None:
    app.add_directive("generated", Generated)
