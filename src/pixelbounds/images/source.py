"""How a band was made, field by field.

A promise is about bands made in one way: ends that are quantiles of 399 samples instead of 19 are another band, and a
calibration of the one says nothing about the other. So what a calibration knows of its bands must be matched by every
band it is applied to; what it does not know cannot be checked, and its sentence says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from .checks import VALIDITY_DOC, check_count, check_line, check_number, check_open_unit

UNKNOWN = "unknown"
NAMELESS_VALUES = "values, "  # how the kind begins where values are those of a function without a name
_SHARE = re.compile(r"\d{1,60}/0{0,20}[1-9]\d{0,40}|\d{0,18}\.?\d{1,40}(e-?\d{1,3})?")
_NAMES = {"sigma_0": "noise level", "network": "network with digest"}


@dataclass(frozen=True)
class Source:
    """How a band was made: its kind, and where known, of how many samples, which quantiles and which sampler.

    >>> Source("calibrated quantiles", samples=19, miscoverage=Fraction(1, 10))
    calibrated quantiles, samples 19, miscoverage 1/10
    >>> Source()
    unknown
    """

    kind: str = UNKNOWN
    samples: int | None = None
    miscoverage: Fraction | None = None
    sampler: str | None = None
    steps: int | None = None
    sigma_0: float | None = None
    network: str | None = None

    def __post_init__(self) -> None:
        for name in ("kind", "sampler", "network"):
            value = getattr(self, name)
            if value is not None or name == "kind":
                check_line(value, f"{name} of a source")
        for name in ("samples", "steps"):
            if getattr(self, name) is not None:
                count = check_count(getattr(self, name), f"{name} of a source", most=2**53)
                object.__setattr__(self, name, count)
        if self.miscoverage is not None:
            object.__setattr__(self, "miscoverage", exact_share(self.miscoverage, "miscoverage of a source", text=True))
        if self.sigma_0 is not None:
            object.__setattr__(self, "sigma_0", check_number(self.sigma_0, "sigma_0 of a source"))
            if self.sigma_0 < 0:
                raise ValueError(f"sigma_0 of a source is {self.sigma_0:g}; it must be at least 0")

    def __repr__(self) -> str:
        words = [f"{_NAMES.get(name, name)} {value}" for name, value in self.known.items() if name != "kind"]
        return ", ".join([self.kind, *words])

    @property
    def known(self) -> dict[str, Any]:
        """The fields that have a value, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: x for name, x in values.items() if x is not None and (name != "kind" or x != UNKNOWN)}

    def differences(self, other: Source) -> list[str]:
        """What this source knows and another does not match, in words; empty where the other may pass for it.

        >>> Source("calibrated quantiles", samples=19).differences(Source("calibrated quantiles", samples=399))
        ['samples: 19 at calibration, 399 here']
        """
        theirs = other.known
        return [
            f"{_NAMES.get(name, name)}: {mine} at calibration, {theirs.get(name, UNKNOWN)} here"
            for name, mine in self.known.items()
            if theirs.get(name) != mine
        ]

    def check(self, other: Source) -> None:
        """Refuse a band that was made in another way than this one, which calibrated."""
        differences = self.differences(other)
        if differences:
            raise ValueError(
                f"this band was made in another way than those of the calibration ({'; '.join(differences)}), and the "
                "guarantee does not hold for it: calibrate again with bands made in this way, or say how this one was "
                f"made, pixelbounds.Band(lower, upper, source=...); see {VALIDITY_DOC}"
            )

    def state(self) -> dict[str, Any]:
        """What a file holds: JSON values, a fraction as text."""
        return {name: str(x) if isinstance(x, Fraction) else x for name, x in self.known.items()}

    @classmethod
    def from_state(cls, state: Any) -> Source:
        """The source that a file holds."""
        names = {field.name for field in fields(cls)}
        if not isinstance(state, dict) or not state.keys() <= names:
            raise ValueError(f"a source is {state!r}; it must hold some of {', '.join(sorted(names))}")
        return cls(**state)


NOT_KNOWN = Source()


def source_from(value: Any) -> Source:
    """A `Source` as it is, or one whose kind is a string of the user's."""
    if isinstance(value, str):
        return Source(value or UNKNOWN)
    if not isinstance(value, Source):
        raise TypeError(f"source is {value!r}; give a pixelbounds.Source or a string that says how the band was made")
    return value


def exact_share(value: Any, name: str, *, text: bool = False) -> Fraction:
    """A share strictly between 0 and 1, as the rational number that its digits say: 0.1 is 1/10."""
    if text and isinstance(value, str):
        if not _SHARE.fullmatch(value):  # as text it may be long: 1e999999999 would never end
            raise ValueError(f"{name} is {value[:80]!r}; it must be a fraction, such as 1/10")
        value = Fraction(value)
    if not isinstance(value, Fraction):
        return Fraction(repr(check_open_unit(value, name)))
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}; it must lie strictly between 0 and 1, for example 0.1")
    return value
