"""Benchmarks of numbaops: an asv suite, and ``python -m benchmarks.acceptance`` for the main figures as ratios.

Under asv every library gets one thread, unless a benchmark asks numbaops for more, and kernels are cached by commit.
"""

from __future__ import annotations

import os

if os.environ.get("ASV"):
    # Before anything loads NumPy or Numba: both read these once. numbaops reads its own at each large call.
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMBAOPS_NUM_THREADS"):
        os.environ[_name] = "1"
    # asv installs one commit after another into the same environment: a kernel of another commit must not be timed. Without
    # ASV_COMMIT (``--python=same``) there is one commit.
    if "ASV_COMMIT" in os.environ and "ASV_ENV_DIR" in os.environ:
        os.environ["NUMBAOPS_CACHE_DIR"] = os.path.join(os.environ["ASV_ENV_DIR"], "numbaops-cache", os.environ["ASV_COMMIT"])
