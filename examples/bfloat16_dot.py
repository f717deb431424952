"""A bfloat16 dot product of your own in ``@njit``, beside NumPy with ml_dtypes.

Run: python bfloat16_dot.py [elements]
"""

import sys
import time
from collections.abc import Callable

import ml_dtypes
import numba
import numpy as np

from numbaops import register_numba_types

register_numba_types()


def dot(x: np.ndarray, y: np.ndarray) -> np.float32:
    total = np.float32(0)
    for i in range(x.size):
        total += np.float32(x[i]) * np.float32(y[i])
    return total


strict = numba.njit(dot)
# Sums in any order, which is what lets the loop use vector instructions.
reordered = numba.njit(fastmath={"reassoc", "contract"})(dot)


def best_time(function: Callable[..., object], *arguments: np.ndarray) -> float:
    """Seconds of the fastest of many calls; the first one compiles and does not count."""
    function(*arguments)
    times = []
    for _ in range(30):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    generator = np.random.default_rng(0)
    x, y = (generator.standard_normal(count).astype(ml_dtypes.bfloat16) for _ in range(2))
    exact = np.dot(x.astype(np.float64), y.astype(np.float64))
    numpy_time = best_time(np.dot, x, y)
    print(f"{count} elements, exact {exact:.4f}")
    for name, function in (("np.dot", np.dot), ("@njit", strict), ("@njit, reordered", reordered)):
        taken = numpy_time if function is np.dot else best_time(function, x, y)
        print(f"{name:17} {float(function(x, y)):12.4f} {taken * 1e6:9.1f} us, {numpy_time / taken:5.2f} x np.dot")


if __name__ == "__main__":
    main()
