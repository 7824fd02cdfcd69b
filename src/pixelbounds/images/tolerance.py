"""Which intervals are short enough, and which ends lie beyond a window, so that their interval has no length.

Values seen through a window were clipped to it. An end at its edge is open: the value may lie anywhere beyond, so such
an interval is within no tolerance, however short it looks (bone at "240 HU or more" is not known to a hair).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .checks import check_number
from .library import Array
from .measure import Measure

OPEN_BELOW, OPEN_ABOVE = 1, 2  # of a map of open ends; 0 where both are closed, 3 where neither is
SLACK = 2.0**-22  # of the window: more than float32 images lose when they are windowed and inverted


def open_ends(lower: Array, upper: Array) -> Array:
    """Which ends of intervals between 0 and 1 lie at the edge of the window: 0, OPEN_BELOW, OPEN_ABOVE or both, uint8.

    >>> open_ends(np.array([0.0, 0.2, 0.9, 0.0]), np.array([0.1, 0.3, 1.0, 1.0])).tolist()
    [1, 0, 2, 3]
    """
    return (OPEN_BELOW * (lower <= SLACK) + OPEN_ABOVE * (upper >= 1 - SLACK)).astype(np.uint8)


@dataclass(frozen=True)
class Tolerance:
    """The greatest length that is short enough, in the unit of a measure, where there is one.

    >>> Tolerance(20, Measure.of_window((400, 40)))
    at most 20 HU long, both ends within the window of -160 to 240 HU
    """

    length: float
    measure: Measure | None = None

    def __post_init__(self) -> None:
        if check_number(self.length, "tolerance") < 0:
            raise ValueError(
                f"tolerance is {self.length!r}; give the greatest length that is short enough, such as 0.1"
            )
        if not isinstance(self.measure, Measure | None):
            raise TypeError(f"measure is {self.measure!r}; give Calibration.measure, a pixelbounds.Measure, or None")
        object.__setattr__(self, "length", float(self.length))

    def __repr__(self) -> str:
        measure = self.measure
        unit = f" {measure.unit}" if measure is not None and measure.unit else ""
        within = "" if measure is None or measure.window is None else f", both ends within the {measure}"
        return f"at most {self.length:g}{unit} long{within}"

    def holds(self, lower: Array, upper: Array) -> Array:
        """Which intervals are short enough, and open at neither end: bool, of the ends' shape; False for NaN."""
        length = upper.astype(np.float64) - lower
        if self.measure is None or self.measure.low is None or self.measure.high is None:
            return np.asarray(length <= self.length)
        short = (self.measure.high - self.measure.low) * length <= self.length
        return np.asarray(short & (open_ends(lower, upper) == 0))

    def state(self) -> dict[str, Any]:
        """What a file holds."""
        return {"length": self.length, "unit": "" if self.measure is None else self.measure.unit}
