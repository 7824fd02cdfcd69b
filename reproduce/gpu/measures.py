"""What is measured of bands and estimates in units of [0, 1], and how their ends are kept."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def psnr(estimate: Array, truth: Array) -> float:
    """Peak signal-to-noise ratio of estimates clipped to [0, 1], in dB, mean over images."""
    error = ((np.clip(estimate.astype(np.float32), 0, 1) - truth) ** 2).reshape(len(truth), -1).mean(1)
    return float((-10 * np.log10(error)).mean())


def before_control(truth: Array, lower: Array, upper: Array) -> dict[str, float]:
    """Miss rate and mean length of a band clipped to [0, 1], before any risk control."""
    low, high = (np.clip(end.astype(np.float32), 0, 1) for end in (lower, upper))
    missed = (truth < low) | (truth > high)
    return {"miss_rate": float(missed.mean()), "mean_length": float(np.maximum(high - low, 0).mean())}


def covered(drawn: Array, lower: Array, upper: Array) -> Array:
    """The fraction of every image's pixels that a draw has within the band."""
    return ((drawn >= lower) & (drawn <= upper)).reshape(len(drawn), -1).mean(axis=1)


def surely_covered(drawn: Array, lower: Array, upper: Array) -> Array:
    """The same of float16, counting what was covered wherever its ends (`outward`) and draws were rounded from."""
    low, high = np.nextafter(lower, np.float16(np.inf)), np.nextafter(upper, np.float16(-np.inf))
    return ((drawn > low) & (drawn < high)).reshape(len(drawn), -1).mean(axis=1)


def outward(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Ends in float16, lower rounded down and upper rounded up."""
    low, high = lower.astype(np.float16), upper.astype(np.float16)
    low = np.where(low.astype(np.float32) > lower, np.nextafter(low, np.float16(-np.inf)), low)
    return low, np.where(high.astype(np.float32) < upper, np.nextafter(high, np.float16(np.inf)), high)
