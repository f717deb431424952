"""Chunked arrays and models over many batches, on the engine of Dask; needs the extra ``dask``.

Arrays are those of :mod:`dask.array`, lazy and of every element type. Functions that run in workers are of this package, so that each
worker needs numbaops, and no code of the caller.
"""

from __future__ import annotations

try:
    from numbaops.dask.arrays import cast, constant_of_shape, eye_like
    from numbaops.dask.models import map_model
    from numbaops.dask.running import cluster, compute
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("dask", "distributed"):
        raise
    text = 'numbaops.dask needs the extra "dask": pip install "numbaops[dask]", or ".[dask]" in a checkout'
    raise ModuleNotFoundError(text, name=missing) from None

__all__ = ["cast", "cluster", "compute", "constant_of_shape", "eye_like", "map_model"]
