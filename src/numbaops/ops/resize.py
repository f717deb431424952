"""Resize and Upsample (of the family ``onnx/defs/tensor``).

https://onnx.ai/onnx/operators/onnx__Resize.html, onnx__Upsample.html

All modes treat the axes one after another. What an axis does to an output position is a coordinate in the input, then either one
index or several indices with weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbaops.errors import InvalidTypeError, InvalidValueError
from numbaops.ops._axes import integers, normalized_axes
from numbaops.ops._resampling import Array, Plan, Plans, Table, as_output, cubic_weights, resampled
from numbaops.ops.leaf import Leaf


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is resized.

    Attributes:
        axis: its number.
        length: its length in the input.
        resized: its length in the output.
        numerator: of the scale. The scale stays a quotient, so that sizes give coordinates without a rounding: a tie between two
            elements stays one.
        denominator: of the scale.
        start: of the region of interest, in lengths of the input.
        end: of the region of interest.
    """

    axis: int
    length: int
    resized: int
    numerator: float
    denominator: float
    start: float = 0.0
    end: float = 1.0

    @property
    def scale(self) -> float:
        return self.numerator / self.denominator

    @property
    def width(self) -> float:
        """The output's length before it was made an integer."""
        return self.length * self.numerator / self.denominator

    def unscaled(self, position: Array) -> Array:
        """A position in the output, divided by the scale.

        A scale of its own is a float, and a third of it is meant as a third: the quotient is rounded to float, as ONNX Runtime has
        it, so that position 1 is element 3 and not just below it.
        """
        quotient = position * self.denominator / self.numerator
        return quotient if self.denominator != 1 else quotient.astype(np.float32).astype(np.float64)


def _half_pixel(x: Array, axis: _Axis) -> Array:
    return axis.unscaled(x + 0.5) - 0.5


def _half_pixel_symmetric(x: Array, axis: _Axis) -> Array:
    offset = axis.length / 2 * (1 - axis.resized / axis.width)
    # the sum is often whole but for its last bits
    return (offset + (x + 0.5) / axis.scale - 0.5).astype(np.float32).astype(np.float64)


def _pytorch_half_pixel(x: Array, axis: _Axis) -> Array:
    return _half_pixel(x, axis) if axis.resized > 1 else np.zeros_like(x)


def _align_corners(x: Array, axis: _Axis) -> Array:
    return x * (axis.length - 1) / (axis.resized - 1) if axis.resized > 1 else np.zeros_like(x)


def _align_fractional_corners(x: Array, axis: _Axis) -> Array:
    return x * (axis.length - 1) / (axis.width - 1) if axis.resized > 1 else np.zeros_like(x)


def _tf_crop_and_resize(x: Array, axis: _Axis) -> Array:
    last = axis.length - 1
    if axis.resized > 1:
        return axis.start * last + x * (axis.end - axis.start) * last / (axis.resized - 1)
    return np.full_like(x, 0.5 * (axis.start + axis.end) * last)


_COORDINATES: Mapping[str, Callable[[Array, _Axis], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda x, axis: axis.unscaled(x),
    "tf_half_pixel_for_nn": lambda x, axis: axis.unscaled(x + 0.5),
    "tf_crop_and_resize": _tf_crop_and_resize,
}

_NEAREST: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


class Resize:
    """Resize of opset 11 to 18.

    Args:
        mode: ``nearest``, ``linear`` or ``cubic``.
        coordinate_transformation_mode: what an output position means in the input.
        nearest_mode: how ``nearest`` rounds.
        cubic_coeff_a: Keys' ``a``.
        exclude_outside: whether samples outside the input weigh nothing; else the border's element stands for them.
        extrapolation_value: stands where ``tf_crop_and_resize`` leaves the input.
        antialias: whether ``linear`` and ``cubic`` widen their filters when an axis shrinks.
        axes: all by default.
        keep_aspect_ratio_policy: ``stretch``, ``not_larger`` or ``not_smaller``.
        fractional_corners: whether ``align_corners`` takes the output's length as it was before it became an integer.
    """

    def __init__(
        self,
        *,
        mode: str,
        coordinate_transformation_mode: str,
        nearest_mode: str,
        cubic_coeff_a: float,
        exclude_outside: int,
        extrapolation_value: float,
        antialias: int = 0,
        axes: Sequence[int] | None = None,
        keep_aspect_ratio_policy: str = "stretch",
        fractional_corners: bool = False,
    ) -> None:
        self._mode, self._transformation, self._nearest_mode = mode, coordinate_transformation_mode, nearest_mode
        self._a, self._antialias, self._exclude_outside = cubic_coeff_a, bool(antialias), bool(exclude_outside)
        self._value, self._axes, self._policy, self._fractional = extrapolation_value, axes, keep_aspect_ratio_policy, fractional_corners
        self._plans = Plans(self._plan)

    def __call__(self, x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None) -> Array:
        """The output.

        Args:
            x: any rank; any type with mode ``nearest``, else any but string.
            roi: starts, then ends, of each axis in ``axes``.
            scales: of each axis in ``axes``; empty counts as left out.
            sizes: the output's, of each axis in ``axes``; empty counts as left out.

        Returns:
            An array of x's type. Integers are rounded, halves to even, as onnx.reference has it; the text is silent.
        """
        plan = self._plans.of(x.shape, roi, scales, sizes)
        y = resampled(x, plan.tables, self._mode)
        return _extrapolated(y, plan.outside, self._value, self._mode) if plan.outside else y

    def _plan(self, shape: tuple[int, ...], roi: Array | None, scales: Array | None, sizes: Array | None) -> Plan:
        mode = self._mode
        _check_choice("mode", mode, ("nearest", "linear", "cubic"))
        _check_choice("coordinate_transformation_mode", self._transformation, tuple(_COORDINATES))
        _check_choice("nearest_mode", self._nearest_mode, tuple(_NEAREST))
        if self._antialias and mode == "nearest":
            raise InvalidValueError("antialias is set for mode 'nearest'; allowed: modes 'linear' and 'cubic'", attribute="antialias")
        numbers = range(len(shape)) if self._axes is None else normalized_axes(self._axes, len(shape))
        crop = self._transformation == "tf_crop_and_resize"
        regions = _regions(roi, len(numbers)) if crop else [(0.0, 1.0)] * len(numbers)
        axes = _with_regions(_planned(shape, numbers, scales, sizes, self._policy), regions)
        transform = _COORDINATES[self._transformation]
        if self._fractional and transform is _align_corners:
            transform = _align_fractional_corners
        coordinates = {each.axis: transform(np.arange(each.resized, dtype=np.float64), each) for each in axes}
        if mode == "nearest":
            tables = [_nearest(each, _NEAREST[self._nearest_mode](coordinates[each.axis])) for each in axes]
        else:
            shared = mode, self._a, self._antialias, self._exclude_outside
            tables = [_samples(coordinates[each.axis], each, *shared) for each in axes]
        outside = {each.axis: _outside(coordinates[each.axis], each) for each in axes} if crop else {}
        return Plan(tuple(tables), outside if any(mask.any() for mask in outside.values()) else {})


resize_19 = functools.partial(Resize, fractional_corners=True)
"""Resize of opset 19, which brought the fractional length; onnx's node cases have it for ``align_corners`` too."""


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}", attribute=name)


def _planned(shape: tuple[int, ...], axes: Sequence[int], scales: Array | None, sizes: Array | None, policy: str) -> list[_Axis]:
    given = [name for name, value in (("scales", scales), ("sizes", sizes)) if value is not None and value.size]
    if len(given) != 1 and not (axes and shape):
        return []
    if len(given) != 1:
        raise InvalidValueError(f"{' and '.join(given) or 'neither scales nor sizes'} given; allowed: one of them", attribute="scales")
    if given == ["scales"]:
        return _scaled(shape, axes, scales)
    lengths = integers(sizes, "sizes")
    _check_count("sizes", len(lengths), len(axes))
    if min(lengths) < 0:
        raise InvalidValueError(f"sizes is {lengths}; allowed: no negative size", attribute="sizes")
    if policy == "stretch":
        return [_sized(axis, shape[axis], size, size, shape[axis]) for axis, size in zip(axes, lengths, strict=True)]
    _check_choice("keep_aspect_ratio_policy", policy, ("stretch", "not_larger", "not_smaller"))
    if not all(shape[axis] for axis in axes):
        raise InvalidValueError(f"the input has the shape {list(shape)}; an aspect ratio needs dimensions above 0", attribute="sizes")
    choose = min if policy == "not_larger" else max
    size, length = choose(zip(lengths, (shape[axis] for axis in axes), strict=True), key=lambda pair: pair[0] / pair[1])
    # rounded to the nearest, halves up
    return [_sized(axis, shape[axis], (2 * size * shape[axis] + length) // (2 * length), size, length) for axis in axes]


def _scaled(shape: tuple[int, ...], axes: Sequence[int], scales: Any, least: float = 0.0) -> list[_Axis]:
    # the text multiplies by the region's length too, which neither onnx's shape inference nor an implementation does
    factors = [float(scale) for scale in np.asarray(scales).reshape(-1)]
    _check_count("scales", len(factors), len(axes))
    if not all(factor > 0 and factor >= least and np.isfinite(factor) for factor in factors):
        raise InvalidValueError(f"scales is {factors}; allowed: finite, {f'{least} or more' if least else 'above 0'}", attribute="scales")
    return [_sized(axis, shape[axis], int(shape[axis] * factor), factor, 1) for axis, factor in zip(axes, factors, strict=True)]


def _sized(axis: int, length: int, resized: int, numerator: float, denominator: float) -> _Axis:
    if resized and not length:
        raise InvalidValueError(f"dimension {axis} of the input is 0 and should become {resized}; allowed: 0", attribute="sizes")
    return _Axis(axis, length, resized, numerator, denominator)


def _check_count(name: str, count: int, wanted: int) -> None:
    if count != wanted:
        raise InvalidValueError(f"{name} has {count} elements for {wanted} axes; allowed: one an axis", attribute=name)


def _regions(roi: Array | None, axes: int) -> list[tuple[float, float]]:
    if roi is None or roi.size != 2 * axes:
        came = "missing" if roi is None else f"of {roi.size} elements"
        raise InvalidValueError(f"roi is {came}; tf_crop_and_resize needs {2 * axes}: starts, then ends", attribute="roi")
    bounds = roi.astype(np.float64).reshape(2, axes)
    return [(float(start), float(end)) for start, end in bounds.T]


def _with_regions(plan: list[_Axis], regions: list[tuple[float, float]]) -> list[_Axis]:
    """The axes that are really resized, the shrinking ones first: the others then have less to do.

    An axis of scale 1 stays as it is. Scales that leave every length as it is, as 1.2 does to a length of 4, leave the elements too.
    """
    if all(each.resized == each.length for each in plan) and not any(region != (0.0, 1.0) for region in regions):
        return []
    found = [
        _Axis(each.axis, each.length, each.resized, each.numerator, each.denominator, *region)
        for each, region in zip(plan, regions, strict=False)
        if each.resized != each.length or each.numerator != each.denominator or region != (0.0, 1.0)
    ]
    return sorted(found, key=lambda each: each.resized / max(each.length, 1))


def _nearest(axis: _Axis, index: Array) -> Table:
    return Table(axis.axis, _within(axis, index)[None])


def _within(axis: _Axis, index: Array) -> Array:
    return np.clip(index, 0, max(axis.length - 1, 0)).astype(np.int64)


def _samples(x: Array, axis: _Axis, mode: str, a: float, antialias: bool, exclude_outside: bool) -> Table:
    """The elements around each coordinate and their weights.

    Without a stretch these are the textbook 2 and 4 neighbours.
    """
    stretch = min(axis.scale, 1.0) if antialias else 1.0
    reach = (1.0 if mode == "linear" else 2.0) / stretch
    index = np.floor(x - reach)[:, None] + np.arange(1, 1 + int(np.ceil(2 * reach)))
    distance = np.abs(index - x[:, None]) * stretch
    weights = np.maximum(1 - distance, 0.0) if mode == "linear" else cubic_weights(distance, a)
    if exclude_outside:
        weights = np.where((index < 0) | (index >= axis.length), 0.0, weights)
    if exclude_outside or antialias:
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return Table(axis.axis, np.ascontiguousarray(_within(axis, index).T), np.ascontiguousarray(weights.T))


def _outside(x: Array, axis: _Axis) -> Array:
    return (x < 0) | (x > axis.length - 1)


def _extrapolated(y: Array, outside: Mapping[int, Array], value: float, mode: str) -> Array:
    """With the value at what lies outside of the input along any axis."""
    if y.dtype.kind in "OUS":
        raise InvalidTypeError("extrapolation_value is no string, and roi leaves the input", attribute="extrapolation_value")
    filler: Any = value
    if mode != "nearest" and y.dtype.kind in "iub":  # as weighted sums are
        filler = as_output(np.asarray(np.rint(value) if y.dtype.kind in "iu" else value), y.dtype)
    for axis, mask in outside.items():
        y[(slice(None),) * axis + (mask,)] = filler
    return y


class _Asymmetric:
    """Coordinates that are those of the input times the scales; ``nearest`` rounds down, or up along an axis that shrinks.

    Args:
        mode: ``nearest`` or ``linear``.
        least: the least scale that is allowed.
    """

    def __init__(self, mode: str, least: float = 0.0) -> None:
        self._mode, self._least = mode, least
        self._plans = Plans(self._plan)

    def __call__(self, x: Array, scales: Array) -> Array:
        """The output."""
        return resampled(x, self._plans.of(x.shape, scales).tables, self._mode)

    def _plan(self, shape: tuple[int, ...], scales: Array) -> Plan:
        scaled = _scaled(shape, range(len(shape)), scales, self._least)
        _check_choice("mode", self._mode, ("nearest", "linear", "bilinear", "trilinear"))
        axes = _with_regions(scaled, [(0.0, 1.0)] * len(scaled))
        coordinates = [each.unscaled(np.arange(each.resized, dtype=np.float64)) for each in axes]
        if self._mode == "nearest":
            tables = [_nearest(each, (np.ceil if each.scale < 1 else np.floor)(c)) for each, c in zip(axes, coordinates, strict=True)]
        else:
            tables = [_samples(c, each, "linear", 0.0, False, False) for each, c in zip(axes, coordinates, strict=True)]
        return Plan(tuple(tables), {})


def resize_10(*, mode: str) -> Callable[[Array, Array], Array]:
    """Resize of opset 10: asymmetric; ``nearest`` rounds down, or up along an axis that shrinks, as the node cases of its time have it."""
    return _Asymmetric(mode)


def upsample(*, mode: str) -> Callable[[Array, Array], Array]:
    """Upsample of opset 9 and 10: asymmetric; ``nearest`` rounds down."""
    return _Asymmetric(mode, least=1.0)


def upsample_7(*, scales: Sequence[float], mode: str) -> Callable[[Array], Array]:
    """Upsample of opset 7: the scales are an attribute."""
    call, factors = upsample(mode=mode), np.array(scales)
    return lambda x: call(x, factors)


def upsample_1(*, height_scale: float, width_scale: float, mode: str) -> Callable[[Array], Array]:
    """Upsample of opset 1: height and width of a 4-D tensor."""
    resized = upsample_7(scales=(1.0, 1.0, height_scale, width_scale), mode=mode)

    def call(x: Array) -> Array:
        if x.ndim != 4:
            raise InvalidValueError(f"the input has rank {x.ndim}; allowed: 4")
        return resized(x)

    return call


LEAVES: tuple[Leaf, ...] = (
    Leaf("Resize", (11, 13, 18), Resize, aliases=True, bind=True),
    Leaf("Resize", (19,), resize_19, aliases=True, bind=True),
    Leaf("Resize", (10,), resize_10, aliases=True, bind=True),
    Leaf("Upsample", (9, 10), upsample, aliases=True, bind=True),
    Leaf("Upsample", (7,), upsample_7, aliases=True, bind=True),
    Leaf("Upsample", (1,), upsample_1, aliases=True, bind=True),
)
