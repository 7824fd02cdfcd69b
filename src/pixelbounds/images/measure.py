"""What the numbers of an image stand for.

A CT slice in Hounsfield units becomes numbers between 0 and 1 through a window. A calibration of numbers made through
one window says nothing about numbers made through another, so the measure is part of what a calibration is.

Values seen through a window were clipped to it. An end at its edge is open: the value may lie anywhere beyond, however
short the interval looks (bone at "240 HU or more" is not known to a hair).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isclose, isfinite
from typing import Any

import numpy as np

from .checks import check_number
from .library import Array

OPEN_BELOW, OPEN_ABOVE = 1, 2  # of a map of open ends; 0 where both are closed, 3 where neither is
SLACK = 2.0**-22  # of the window: more than float32 images lose when they are windowed and inverted


@dataclass(frozen=True)
class Measure:
    """The values `low` and `high` that 0 and 1 stand for, in `unit`; without them values are as their files hold them.

    What lies beyond low and high was clipped, so a promise is about values within them. `clipped` is the share of the
    values of some images that lay beyond, where they were counted; it is no part of what numbers stand for.

    >>> Measure.of_window((400, 40))
    window of -160 to 240 HU
    >>> Measure()
    values as stored
    """

    low: float | None = None
    high: float | None = None
    unit: str = ""
    clipped: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.clipped is not None and not (isinstance(self.clipped, float) and 0 <= self.clipped <= 1):
            raise ValueError(f"clipped is {self.clipped!r}; it must be a share between 0 and 1")
        if not isinstance(self.unit, str) or len(self.unit) > 40 or not (self.unit == "" or self.unit.isprintable()):
            raise ValueError(f"unit is {self.unit!r}; give a short name, such as 'HU'")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"a measure has low {self.low!r} and high {self.high!r}; give both, or neither")
        if self.low is None or self.high is None:
            return
        for name in ("low", "high"):
            object.__setattr__(self, name, check_number(getattr(self, name), f"{name} of a measure"))
        if not self.low < self.high or not isfinite(self.high - self.low):
            raise ValueError(f"a measure has low {self.low:g} and high {self.high:g}; low must be below high")

    def __repr__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.low is None:
            return f"values as stored{unit and ', in' + unit}"
        return f"window of {self.low:g} to {self.high:g}{unit}"

    @property
    def beyond(self) -> str:
        """What counts as the edge of the window, with the share of it where it is known and above 1%."""
        share = "" if self.clipped is None or self.clipped <= 0.01 else f" ({self.clipped:.1%} of the true values)"
        return f"what lies beyond it{share} counts as its edge"

    @classmethod
    def of_window(cls, window: tuple[float, float] | None, unit: str = "HU", clipped: float | None = None) -> Measure:
        """The measure of a window (width, level); None leaves values as they are stored."""
        if window is None:
            return cls(unit=unit)
        width, level = window
        return cls(level - width / 2, level + width / 2, unit, clipped)

    @property
    def window(self) -> tuple[float, float] | None:
        """Width and level, None where values are as stored."""
        if self.low is None or self.high is None:
            return None
        return self.high - self.low, (self.low + self.high) / 2

    def same_as(self, other: Measure) -> bool:
        """Whether numbers of both stand for the same; a unit that one of them does not name may be the other's.

        >>> Measure.of_window((400, 40)).same_as(Measure.of_window((2000, 0)))
        False
        """
        if len({self.unit, other.unit} - {""}) > 1:
            return False
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return self.low is other.low
        hair = 1e-6 * (self.high - self.low)  # some files hold single precision
        return isclose(self.low, other.low, abs_tol=hair) and isclose(self.high, other.high, abs_tol=hair)

    def state(self) -> dict[str, Any]:
        """What a file holds."""
        known = {} if self.clipped is None else {"clipped": self.clipped}
        return {"low": self.low, "high": self.high, "unit": self.unit, **known}

    @classmethod
    def from_state(cls, state: Any) -> Measure:
        """The measure that a file holds."""
        if not isinstance(state, dict) or state.keys() - {"clipped"} != {"low", "high", "unit"}:
            raise ValueError(f"a measure is {state!r}; it must hold low, high and unit")
        return cls(**state)


def length_in_words(length: float, measure: Measure | None) -> str:
    """A length between 0 and 1, and what it stands for where that is known.

    >>> length_in_words(0.1, Measure.of_window((400, 40)))
    '0.1000 (40 HU)'
    """
    if measure is None or measure.window is None:
        return f"{length:.4f}{f' {measure.unit}' if measure is not None and measure.unit else ''}"
    return f"{length:.4f} ({length * measure.window[0]:.4g} {measure.unit or 'in the unit of the files'})"


def open_ends(lower: Array, upper: Array) -> Array:
    """Which ends of intervals between 0 and 1 lie at the edge of the window: 0, OPEN_BELOW, OPEN_ABOVE or both, uint8.

    >>> open_ends(np.array([0.0, 0.2, 0.9, 0.0]), np.array([0.1, 0.3, 1.0, 1.0])).tolist()
    [1, 0, 2, 3]
    """
    return (OPEN_BELOW * (lower <= SLACK) + OPEN_ABOVE * (upper >= 1 - SLACK)).astype(np.uint8)
