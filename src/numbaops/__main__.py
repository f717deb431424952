"""``python -m numbaops``: the ``numbaops`` command."""

from __future__ import annotations

import sys

from numbaops.cli import main

if __name__ == "__main__":
    sys.exit(main())
