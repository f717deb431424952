"""Worker processes beside one, and the memory of a sum over more than fits: ``python -m benchmarks.scale [sum | workers]``.

Prints for each round the throughput of two worker processes over that of one, in turns on one machine, with the load of the machine;
and seconds, peak memory and computed chunks of the sum over a chunked constant of 20 GB of float8.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import time
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser

import numbaops

ROUNDS = 8
BATCHES = 24
MODEL = """
    <ir_version: 9, opset_import: ["": 21]>
    graph (float[N, 256] x) => (float[N, 256] y) <int64 trips = {200}>
    { y = Loop(trips, , x) <body = body (int64 i, bool go, float[N, 256] a) => (bool on, float[N, 256] b)
        { on = Identity(go)  c = Tanh(a)  b = Sin(c) }> }
"""


def burn(_: int) -> int:
    """About 0.1 s of Python."""
    return sum(number * number for number in range(1_000_000))


def workers() -> None:
    """Clusters of one and of two processes of one thread, on the same batches in turns; beside them, plain pools on plain loops, which
    show what the machine gives to a second process just then.
    """
    from numbaops import dask  # here: asv imports this module too, in environments without it

    model = onnx.parser.parse_model(MODEL)
    x = np.random.default_rng(0).standard_normal((BATCHES * 512, 256)).astype(np.float32)
    os.environ.setdefault("NUMBAOPS_NUM_THREADS", "1")
    spawn = multiprocessing.get_context("spawn")
    with (
        dask.cluster(workers=1) as one,
        dask.cluster(workers=2) as two,
        spawn.Pool(1) as single,
        spawn.Pool(2) as double,
    ):

        def batches(client: Any) -> float:
            lazy = dask.map_model(model, {"x": x}, batch_size=512)
            started = time.perf_counter()
            dask.compute(lazy, scheduler=client, progress=False)
            return time.perf_counter() - started

        def loops(pool: Any) -> float:
            started = time.perf_counter()
            pool.map(burn, range(12), 1)
            return time.perf_counter() - started

        cases = ((batches, (one, two)), (loops, (single, double)))
        best: list[list[float]] = []
        for number in range(ROUNDS + 1):
            taken = [[measure(each) for each in pair] for measure, pair in cases]
            if number == 0:
                continue  # the first is slower
            best = [[min(pair) for pair in zip(*pairs, strict=True)] for pairs in zip(best or taken, taken, strict=True)]
            ratios = [first / second for first, second in taken]
            times = ", ".join(f"{seconds:.2f} s" for seconds in taken[0])
            print(f"1 and 2 workers: {times}, ratio {ratios[0]:.2f}; plain {ratios[1]:.2f}; load {os.getloadavg()[0]:.1f}", flush=True)
        print("of the shortest: ratio {:.2f}; plain {:.2f}".format(*(first / second for first, second in best)))


def total() -> None:
    """The sum over 20 GB in chunks of 16 MB, on the threads of this process."""
    from numbaops import dask

    made = {"constant_of_shape": 0, "cast": 0}
    for name in made:
        plain = getattr(numbaops, name)

        def counted(*given: object, name: str = name, plain: object = plain, **more: object) -> object:
            made[name] += 1
            return plain(*given, **more)

        setattr(numbaops, name, counted)
    x = dask.constant_of_shape((20_000, 1_000_000), ml_dtypes.float8_e4m3fn(0.5), chunks=(16, 1_000_000))
    y = dask.cast(x, "float").sum(dtype=np.float64)
    made.update(dict.fromkeys(made, 0))
    started = time.perf_counter()
    result = float(y.compute(scheduler="threads"))
    taken = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"{x.nbytes / 1e9:.0f} GB, {x.npartitions} chunks, computed {made}: sum {result:.6g} in {taken:.1f} s, peak {peak:.0f} MB")


MEASURES = {"sum": total, "workers": workers}


def main(arguments: list[str] | None = None) -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="Worker processes beside one, and a sum of 20 GB")
    parser.add_argument("measures", nargs="*", metavar="NAME", help=f"only these of {', '.join(MEASURES)}")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.measures if name not in MEASURES]:
        parser.error(f"there is no {', '.join(unknown)}; allowed: {', '.join(MEASURES)}")
    for name in options.measures or MEASURES:
        MEASURES[name]()


if __name__ == "__main__":
    main()
