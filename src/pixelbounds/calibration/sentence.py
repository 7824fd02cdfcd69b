"""What is promised, as one plain sentence, and the words for what would void it.

The sentence says no more than what was certified: which mean (over images or units), of what (pixels, values, a loss),
for which images (readable ones, of the same source), and for which bands (made in the same way, where that is known).
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Protocol

from ..images.measure import Measure
from ..images.source import Source

VOIDS = "docs/what_voids_the_promise.md"
EARLIER = "format"  # by this setting a record knows that an earlier format kept less
_DIGITS = 6


class Promised(Protocol):
    """What a sentence needs to know of a calibration (`result.Calibration`)."""

    @property
    def record(self) -> Any:
        """How it was reached (`result.Record`)."""

    @property
    def confidence(self) -> str:
        """Name of the bound."""

    @property
    def loss(self) -> str:
        """Name of the loss."""

    @property
    def risk_level(self) -> float:
        """The level that was certified."""

    @property
    def failure_prob(self) -> float:
        """The probability with which it may fail."""

    @property
    def measure(self) -> Measure | None:
        """What the numbers stand for, where that is known."""


def level_in_words(share: float) -> str:
    """A level that is not exceeded, as it was asked for; what is cut off is rounded up, never down.

    >>> level_in_words(0.1), level_in_words(0.025), level_in_words(1 / 3), level_in_words(1e-9)
    ('10%', '2.5%', '33.3334%', '0.0000001%')
    """
    return _percent(Context(_DIGITS, ROUND_CEILING).create_decimal(repr(float(share))))


def confidence_in_words(failure_prob: float) -> str:
    """The probability of success, rounded down, so that it never says more than was asked.

    >>> confidence_in_words(0.1), confidence_in_words(1e-8), confidence_in_words(1 / 3)
    ('90%', '99.999999%', '66.6666%')
    """
    return _percent(1 - Context(_DIGITS, ROUND_CEILING).create_decimal(repr(float(failure_prob))))


def share_in_words(share: float, *, up: bool = False) -> str:
    """What was seen, to three digits, rounded down, or up.

    >>> share_in_words(0.04456), share_in_words(0.04456, up=True)
    ('4.45%', '4.46%')
    """
    return _percent(Context(3, ROUND_CEILING if up else ROUND_FLOOR).create_decimal(repr(float(share))))


def _percent(share: Decimal) -> str:
    text = f"{100 * share:f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def guarantee_of(calibration: Promised) -> str:
    """The sentence of a calibration."""
    record = calibration.record
    n = f"{record.certifying} {plural(record.unit_name) if record.units else 'images'}"
    what = f"{_what(calibration)}{_provided(calibration)}"
    if calibration.confidence == "conformal":
        future = plural(record.unit_name) if record.units and record.counting == "units" else "images"
        return (
            f"On average over future {future} and over calibration sets of {n}, {what}; this holds in expectation "
            "only, not with high probability for the calibration set at hand."
        )
    sure = confidence_in_words(calibration.failure_prob)
    return f"With probability at least {sure} over the draw of {n} for certification, on average {what}."


def _what(calibration: Promised) -> str:
    """What is at most the level: of whose pixels, and how they are averaged."""
    record = calibration.record
    whose = "a future image"
    if record.units and record.counting == "units":
        whose = f"a future {record.unit_name}, averaged over its images,"
    if calibration.loss == "l01":
        entries = "values (each channel of a pixel is one)" if in_channels(record.pixels) else "pixels"
        share = f"at most {level_in_words(calibration.risk_level)}"
        what = f"{share} of the {entries} of {whose} lie outside their intervals"
    else:
        named = "your loss" if calibration.loss in ("loss", "custom", "<lambda>") else f'the loss "{calibration.loss}"'
        what = f"{named} of {whose} is at most {calibration.risk_level:g}"
    if record.units and record.counting == "units":
        what += f" (each {record.unit_name} counts the same, however many images it has)"
    if record.units and record.counting == "images":
        most = record.most_images
        what += f" (each image counts the same, a {record.unit_name} of more than {most} images as one of {most})"
    return what


def _provided(calibration: Promised) -> str:
    """On which conditions."""
    record = calibration.record
    units = " and units" if record.units else ""
    words = f", provided future images{units} come from the same source as the calibration images{units}"
    if record.skipped:
        words += f" that could be read ({record.skipped} could not and were left out: nothing is promised for such)"
    source = record.source
    if source.known:
        unknown = "; of how many samples is not known here" if source.samples is None and _of_samples(source) else ""
        words += f" and their bands are made in the same way ({source}{unknown})"
    else:
        words += " and their bands are made in the same way (how is not known here, so it cannot be checked)"
    measure = calibration.measure
    if measure is not None and measure.low is not None:
        words += f"; values are those within the {measure}, and what lies beyond it counts as its edge"
    if measure is None and record.settings.get(EARLIER) == 1:
        words += "; what the numbers stand for (a window, a unit) was not kept, so it cannot be checked either"
    return words


def _of_samples(source: Source) -> bool:
    """Whether bands of this source are quantiles of samples."""
    return source.kind.endswith(" quantiles")


def in_channels(pixels: tuple[int, ...]) -> bool:
    """Whether an image of this shape may hold channels: three axes or more, the first or the last of 2 to 4.

    >>> in_channels((64, 64, 3)), in_channels((3, 64, 64)), in_channels((64, 64)), in_channels((90, 64, 64))
    (True, True, False, False)
    """
    return len(pixels) > 2 and (2 <= pixels[0] <= 4 or 2 <= pixels[-1] <= 4)


def plural(noun: str) -> str:
    """More than one.

    >>> plural("scan"), plural("body"), plural("series")
    ('scans', 'bodies', 'series')
    """
    if noun.endswith("s"):
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"


def second_try(failure_prob: float) -> str:
    """What another try on the same images costs, and what is valid; for messages that invite one."""
    return (
        "A second try on the same images (another seed, method or bound, or these and a few more) is a second lottery: "
        f"keeping whichever succeeds can fail with probability {min(1.0, 2 * failure_prob):.3g} instead of "
        f"{failure_prob:.3g}. Valid are fresh images, or a failure probability of {failure_prob / 2:.3g} for each of "
        f"two tries that were planned before the first ({VOIDS})"
    )
