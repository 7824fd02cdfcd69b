"""What an interval costs when it misses: truth, interval -> one loss per image (Sections 2.3, 3.2).

A loss must be entrywise nonincreasing, so that widening an interval never raises it, and lie in [0, 1] for the
confidence bounds. `l01` is the share of pixels outside. `l_gamma` is the paper's convex upper bound of it, used to fit
K-RCPS; it is not bounded by 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..images.checks import check_number, check_same_shape, check_values
from ..images.ends import Interval
from ..images.library import Array, as_array, channel_axis, to_numpy

Loss = Callable[[Array, Interval], Array]  # truth (n, *pixels), interval -> losses (n,)


def _parts(truth: Any, interval: Interval) -> tuple[Array, Array, Array]:
    if not isinstance(interval, Interval):
        raise TypeError(f"interval is a {type(interval).__name__}; give a pixelbounds.Interval(lower, upper)")
    truth = as_array(truth, "truth")
    check_same_shape(interval=interval.lower, truth=truth)
    x, lower, upper = to_numpy(truth), to_numpy(interval.lower), to_numpy(interval.upper)
    check_values("truth", np.ascontiguousarray(x), 0)
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise ValueError("interval has ends that are NaN; mend or drop those images")
    return x, lower, upper


def l01(truth: Any, interval: Interval) -> Array:
    """Share of pixels outside the interval, per image: (n, *pixels) -> (n,).

    >>> l01(np.array([[0.2, 0.9]]), Interval(np.zeros((1, 2)), np.full((1, 2), 0.5)))
    array([0.5])
    """
    x, lower, upper = _parts(truth, interval)
    missed = (x < lower) | (x > upper)
    return missed.reshape(len(missed), -1).mean(axis=1)


@dataclass(frozen=True)
class AnyChannel:
    """The share of pixels of which any channel lies outside; `axis` of (n, *pixels) holds the channels, None: found."""

    axis: int | None = None
    __name__ = "pixels missed in any channel"

    def __call__(self, truth: Any, interval: Interval) -> Array:
        """Losses of n images, (n,)."""
        x, lower, upper = _parts(truth, interval)
        missed = np.asarray(((x < lower) | (x > upper)).any(axis=self.of(x.shape)))
        return missed.reshape(len(missed), -1).mean(axis=1)

    def of(self, shape: tuple[int, ...]) -> int:
        """The axis of images of this shape, (n, *pixels), that holds channels."""
        found = channel_axis(shape[1:])
        if self.axis is None and found is not None:
            return found + 1
        if self.axis is None or not -len(shape) < self.axis < len(shape):
            raise ValueError(f"axis is {self.axis}, but images have shape {shape}; give the axis of the channels")
        axis = self.axis % len(shape)
        if found is not None and axis != found + 1:
            raise ValueError(f"axis {axis} of {shape} holds no channels, axis {found + 1} does: give any_channel()")
        return axis


def any_channel(axis: int | None = None) -> AnyChannel:
    """The loss for images with channels: the share of pixels of which any channel lies outside.

    It is certified as fast as a share. The axis of (n, *pixels) that holds channels is found where it is of 2 to 4.

    >>> interval = Interval(np.zeros((1, 2, 3)), np.full((1, 2, 3), 0.5))
    >>> any_channel(-1)(np.array([[[0.1, 0.1, 0.9], [0.2, 0.3, 0.4]]]), interval)
    array([0.5])
    """
    if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int) or axis == 0):
        raise ValueError(f"axis is {axis!r}; give the axis of (n, *pixels) that holds the channels, such as -1 or 1")
    return AnyChannel(axis)


def l_gamma(truth: Any, interval: Interval, gamma: float) -> Array:
    """Convex surrogate of `l01`, 0 within the inner share gamma of the interval, 1 at its ends: (n, *pixels) -> (n,).

    >>> l_gamma(np.array([[0.5, 1.0]]), Interval(np.zeros((1, 2)), np.ones((1, 2))), 0.5)
    array([0.5])
    """
    if not 0 <= check_number(gamma, "gamma") < 1:
        raise ValueError(f"gamma is {gamma}; it must lie in [0, 1)")
    x, lower, upper = (part.astype(np.float64) for part in _parts(truth, interval))
    q = gamma / (1 - gamma)
    distance = np.abs(x - (lower + upper) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(distance > 0, 2 * distance / (upper - lower), 0.0)
    return np.maximum((1 + q) * ratio - q, 0).reshape(len(x), -1).mean(axis=1)
