"""Fourier transforms, windows and sequences of numbers (families ``onnx/defs/math`` and ``generator``).

https://onnx.ai/onnx/operators/onnx__DFT.html, onnx__STFT.html, onnx__HannWindow.html, onnx__MelWeightMatrix.html, onnx__Range.html
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numbaops.dtypes import element_type
from numbaops.errors import InvalidValueError
from numbaops.ops import _random
from numbaops.ops._axes import axis_range, single_integer
from numbaops.ops._precision import HALVES, narrowed, widened
from numbaops.ops.base import Array
from numbaops.ops.leaf import Leaf


def dft(x: Array, dft_length: Array | None = None, axis: Array | int | None = None, inverse: int = 0, onesided: int = 0) -> Array:
    """DFT: the discrete Fourier transform along an axis, of real numbers or of pairs, which are the last dimension."""
    place = -2 if axis is None else single_integer(axis, "axis")
    if x.ndim < 2 or not -x.ndim <= place < x.ndim - 1 or place == -1:
        raise InvalidValueError(f"axis is {place}; allowed: {axis_range(x.ndim)}, but not the last", attribute="axis")
    signal = _signal(widened(x))
    place += x.ndim if place < 0 else 0
    if dft_length is not None:
        length = single_integer(dft_length, "dft_length")
    else:
        length = 2 * (x.shape[place] - 1) if inverse and onesided else x.shape[place]
    if length < 0:
        raise InvalidValueError(f"dft_length is {length}; allowed: from 0 on", attribute="dft_length")
    if length == 0:
        return np.zeros((*x.shape[:place], 0, *x.shape[place + 1 : -1], 1 if inverse and onesided else 2), x.dtype)
    if inverse and onesided:
        return narrowed(np.fft.irfft(signal, length, place)[..., None], x.dtype)
    return _pairs(np.fft.ifft(signal, length, place) if inverse else _transform(signal, length, place, onesided), x.dtype)


def dft_by_attribute(x: Array, dft_length: Array | None = None, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Array:
    """DFT before 20: the axis is an attribute."""
    return dft(x, dft_length, axis, inverse, onesided)


def stft(signal: Array, frame_step: Array, window: Array | None = None, frame_length: Array | None = None, onesided: int = 1) -> Array:
    """STFT: the transforms of overlapping pieces of a signal, each multiplied by a window."""
    if signal.ndim != 3:
        raise InvalidValueError(f"signal has the shape {list(signal.shape)}; allowed: rank 3", attribute="signal")
    step = single_integer(frame_step, "frame_step")
    samples = signal.shape[1]
    default = samples if window is None else window.size
    length = default if frame_length is None else single_integer(frame_length, "frame_length")
    if window is not None and window.shape != (length,):
        raise InvalidValueError(f"window has the shape {list(window.shape)}; allowed: [{length}]", attribute="window")
    if step < 1 or not 1 <= length <= samples:
        raise InvalidValueError(
            f"frame_step is {step} and the frame's length {length}; allowed: from 1 on, the length up to that of the signal, {samples}"
        )
    frames = np.lib.stride_tricks.sliding_window_view(_signal(widened(signal)), length, 1)[:, ::step]
    if window is not None:
        frames = frames * widened(window)
    return _pairs(_transform(frames, length, 2, onesided), signal.dtype)


def _signal(x: Array) -> Array:
    """Real or complex numbers, of the pairs or single numbers of the last dimension."""
    if x.shape[-1] == 1:
        return x[..., 0]
    if x.shape[-1] != 2:
        raise InvalidValueError(f"the input has the shape {list(x.shape)}; allowed: 1 or 2 in the last dimension")
    kind = np.complex128 if x.dtype == np.float64 else np.complex64
    return np.ascontiguousarray(x).view(kind)[..., 0]


def _transform(signal: Array, length: int, axis: int, onesided: int) -> Array:
    if onesided and signal.dtype.kind != "c":
        return np.fft.rfft(signal, length, axis)
    y = np.fft.fft(signal, length, axis)
    return y[(slice(None),) * axis + (slice(length // 2 + 1),)] if onesided else y


def _pairs(numbers: Array, dtype: np.dtype[Any]) -> Array:
    numbers = np.ascontiguousarray(numbers)
    return narrowed(numbers.view(numbers.real.dtype).reshape(*numbers.shape, 2), dtype)


def _window(*terms: float) -> Callable[..., Array]:
    """The operator for a sum of cosines, of 0, 1, 2 ... periods in the window, with alternating signs."""

    def window(size: Array, output_datatype: int = 1, periodic: int = 1) -> Array:
        count = single_integer(size, "size")
        if count < 0:
            raise InvalidValueError(f"size is {count}; allowed: from 0 on", attribute="size")
        period = count if periodic else count - 1
        with np.errstate(all="ignore"):  # one point is no period, and gives NaN
            angle = np.arange(count) * (2 * math.pi / np.float64(period))
            y: Array = sum((-1) ** number * term * np.cos(number * angle) for number, term in enumerate(terms))
            return y.astype(element_type(output_datatype).dtype)

    return window


def mel_weight_matrix(
    num_mel_bins: Array,
    dft_length: Array,
    sample_rate: Array,
    lower_edge_hertz: Array,
    upper_edge_hertz: Array,
    output_datatype: int = 1,
) -> Array:
    """MelWeightMatrix: triangles over the bins of a one-sided transform, evenly spaced on the mel scale."""
    bands, length = single_integer(num_mel_bins, "num_mel_bins"), single_integer(dft_length, "dft_length")
    lowest, highest = (2595 * np.log1p(float(edge.item()) / 700) / math.log(10) for edge in (lower_edge_hertz, upper_edge_hertz))
    mels = lowest + np.arange(bands + 2) * ((highest - lowest) / (bands + 2))
    hertz = 700 * np.expm1(mels / 2595 * math.log(10))
    hertz[0] = lower_edge_hertz.item()  # exactly, for it may be a bin's
    edges = (length + 1) * hertz // single_integer(sample_rate, "sample_rate")
    left, peak, right = edges[:-2], edges[1:-1], edges[2:]
    position = np.arange(length // 2 + 1)[:, None]
    # a side without width counts nothing but at the peak
    rising = (position - left) / np.maximum(peak - left, 1)
    falling = (right - position) / np.maximum(right - peak, 1)
    y: Array = np.where(position < peak, np.maximum(rising, 0), np.maximum(falling, 0))
    y[position == peak] = 1
    return y.astype(element_type(output_datatype).dtype)


def number_range(start: Array, limit: Array, delta: Array, stash_type: int = 1) -> Array:
    """Range: start + i * delta for all i from 0 on that stay before limit.

    16-bit floats are computed in the type ``stash_type``, float64 otherwise, and rounded once.
    """
    first, last, step = (number.item() for number in (start, limit, delta))
    if not step:
        raise InvalidValueError("delta is 0; allowed: any other number", attribute="delta")
    if isinstance(step, int):
        return narrowed(_integer_range(range(first, last, step)), start.dtype)
    wide = np.float32 if start.dtype in HALVES and stash_type == 1 else np.float64
    first, step = wide(first), wide(step)
    number = (wide(last) - first) / step
    if not math.isfinite(number):
        raise InvalidValueError(f"start, limit and delta are {first}, {last} and {step}; allowed: a finite number of steps")
    y = narrowed(np.arange(max(math.ceil(number), 0), dtype=np.float64), np.dtype(wide))
    if step != 1:
        y *= step
    if first or step < 0:  # 0 times what is negative is -0.0, and 0 + that is 0
        y += first
    return narrowed(y, start.dtype)


def _integer_range(numbers: range) -> Array:
    end = numbers.start + len(numbers) * numbers.step
    if -1 << 63 <= end < 1 << 63:
        return np.arange(numbers.start, end, numbers.step, dtype=np.int64)
    # arange would compute the number after the last
    y: Array = np.arange(len(numbers)) * numbers.step + numbers.start
    return y


LEAVES: tuple[Leaf, ...] = (
    Leaf("BlackmanWindow", (17,), _window(0.42, 0.5, 0.08)),
    Leaf("DFT", (17,), dft_by_attribute),
    Leaf("DFT", (20,), dft),
    Leaf("HammingWindow", (17,), _window(25 / 46, 21 / 46)),
    Leaf("HannWindow", (17,), _window(0.5, 0.5)),
    Leaf("MelWeightMatrix", (17,), mel_weight_matrix),
    Leaf("Range", (11, 27), number_range),
    Leaf("STFT", (17,), stft),
    *_random.LEAVES,
)
