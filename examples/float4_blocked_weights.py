"""Weights as float4e2m1 with a float8e8m0 scale for each block of 32, as in the MX formats, beside NumPy with ml_dtypes.

Run: python float4_blocked_weights.py [rows] [columns]
"""

# %% Weights whose rows differ in size
import sys
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np

import numbaops

BLOCK = 32
rows, columns = (int(argument) for argument in (*sys.argv[1:3], "4096", "4096")[:2])
generator = np.random.default_rng(0)
weights = generator.standard_normal((rows, columns), np.float32) * generator.lognormal(size=(rows, 1)).astype(np.float32)

# %% One scale for each block: a power of two, large enough that the largest weight of the block stays within float4's 6
largest = np.abs(weights).reshape(rows, -1, BLOCK).max(axis=2)
scales = numbaops.cast(largest / np.float32(6), "float8e8m0", round_mode="up")


# %% With numbaops: one pass over the weights, two elements a byte
def quantize() -> numbaops.PackedTensor:
    return numbaops.quantize_linear(weights, scales, axis=1, block_size=BLOCK, output_dtype="float4e2m1", packed=True)


def dequantize(tensor: numbaops.PackedTensor) -> np.ndarray:
    return numbaops.dequantize_linear(tensor, scales, axis=1, block_size=BLOCK, output_dtype="float")


packed = quantize()
restored = dequantize(packed)


# %% With NumPy and ml_dtypes
def numpy_quantize() -> np.ndarray:
    quotients = weights / np.repeat(scales.astype(np.float32), BLOCK, axis=1)
    codes = quotients.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    return codes[:, ::2] | codes[:, 1::2] << 4


def numpy_dequantize(pairs: np.ndarray) -> np.ndarray:
    codes = np.empty((rows, columns), np.uint8)
    codes[:, ::2] = pairs & 15
    codes[:, 1::2] = pairs >> 4
    return codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32) * np.repeat(scales.astype(np.float32), BLOCK, axis=1)


pairs = numpy_quantize()
same = np.array_equal(packed.data, pairs.reshape(-1)) and np.array_equal(restored, numpy_dequantize(pairs))

# %% Error and bytes
error = np.sqrt(np.mean((restored - weights) ** 2) / np.mean(weights**2))
print(f"{rows} x {columns} weights in blocks of {BLOCK}: relative error {error:.4f}, {'as' if same else 'NOT as'} NumPy has it")
print(f"{weights.nbytes} bytes of float32, {packed.nbytes} of float4 and {scales.nbytes} of scales: {packed!r}")


# %% Time
def best_time(function: Callable[[], object]) -> float:
    """Seconds of the fastest of a few calls."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


for name, ours, rival in (
    ("quantize", quantize, numpy_quantize),
    ("dequantize", lambda: dequantize(packed), lambda: numpy_dequantize(pairs)),
):
    taken, numpy_taken = best_time(ours), best_time(rival)
    print(f"{name:10} {taken * 1e3:8.2f} ms, {numpy_taken / taken:5.1f} x NumPy with ml_dtypes")

# %% Into a model: the bytes go into an initializer as they are
print(numbaops.from_array(packed, "weights").dims)
