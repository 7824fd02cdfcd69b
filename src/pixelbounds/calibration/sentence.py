"""What is promised, as one plain sentence, and the words for what would void it.

The sentence says no more than what was certified: which mean (over images or units), of what (pixels, values, a loss),
for which images (readable ones, of the same source), and for which bands (made in the same way, where that is known).
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Protocol

from ..images.checks import VALIDITY_DOC
from ..images.measure import Measure
from ..images.source import NAMELESS_VALUES, Source
from .names import YOUR_LOSS

EARLIER = "format"  # by this setting a record knows that an earlier format kept less
ANYTIME = "anytime"  # the bound of a calibration that grows, as a calibration names it
SHIFT = "shift"  # by this setting a record knows that its images were kept by weights, for another source
GIVEN = "groups given"  # by this setting a record knows that nobody can tell on which images its groups were fitted
_NAMELESS = ("loss", "custom", "<lambda>")  # names of functions that say nothing
_DIGITS = 6


class Promised(Protocol):
    """What a sentence needs to know of a calibration (`result.Calibration`)."""

    @property
    def record(self) -> Any:
        """How it was reached (`result.Record`)."""

    @property
    def bound(self) -> str:
        """Name of the bound."""

    @property
    def labelled(self) -> bool:
        """Whether it uses labels of the images it is applied to."""

    @property
    def your_bound(self) -> bool:
        """Whether the bound is a user's own."""

    @property
    def failure_prob(self) -> float:
        """The probability with which it may fail."""

    @property
    def measure(self) -> Measure | None:
        """What the numbers stand for, where that is known."""

    @property
    def promises(self) -> tuple[Any, ...]:
        """The promises (`promises.CertifiedPromise`)."""


def level_in_words(share: float) -> str:
    """A level that is not exceeded, as it was asked for; what is cut off is rounded up, never down.

    >>> level_in_words(0.1), level_in_words(0.025), level_in_words(1 / 3), level_in_words(1e-9)
    ('10%', '2.5%', '33.3334%', '0.0000001%')
    """
    return _percent(_up(share))


def confidence_in_words(failure_prob: float) -> str:
    """The probability of success, rounded down, so that it never says more than was asked.

    >>> confidence_in_words(0.1), confidence_in_words(1e-8), confidence_in_words(1 / 3)
    ('90%', '99.999999%', '66.6666%')
    """
    return _percent(1 - _up(failure_prob))


def share_in_words(share: float, *, up: bool = False) -> str:
    """What was seen, to three digits, rounded down, or up.

    >>> share_in_words(0.04456), share_in_words(0.04456, up=True)
    ('4.45%', '4.46%')
    """
    return _percent(Context(3, ROUND_CEILING if up else ROUND_FLOOR).create_decimal(repr(float(share))))


def _up(number: float) -> Decimal:
    """To a few digits, never downward."""
    return Context(_DIGITS, ROUND_CEILING).create_decimal(repr(float(number)))


def _percent(share: Decimal) -> str:
    return f"{_plain(100 * share)}%"


def _plain(number: Decimal) -> str:
    """Digits without an exponent and without zeros at the end."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def guarantee_of(calibration: Promised) -> str:
    """The sentence of a calibration."""
    opening, clauses, end = guarantee_parts(calibration)
    return " ".join((opening, *clauses, end))


def guarantee_parts(calibration: Promised) -> tuple[str, tuple[str, ...], str]:
    """The sentence as a page sets it: what comes before the promises, each of them, and what comes after."""
    record = calibration.record
    return _jointly(calibration, f"{record.certifying} {plural(record.unit_name) if record.units else 'images'}")


def _odds(calibration: Promised, n: str) -> str:
    """With which probability, over the draw of what."""
    sure = f"With probability at least {confidence_in_words(calibration.failure_prob)} over the draw of"
    if calibration.bound != ANYTIME:
        return f"{sure} {n} for certification"
    record = calibration.record
    who = plural(record.unit_name) if record.units else "images"
    return f"{sure} {who} for certification as they arrive, at this look after {n} and jointly at every other look"


def _jointly(calibration: Promised, n: str) -> tuple[str, tuple[str, ...], str]:
    """The sentence of several promises, or of one about less than all pixels: its beginning, promises, and end."""
    several = len(calibration.promises) > 1
    clauses = [_clause(promise, calibration.record) for promise in calibration.promises]
    if several:
        clauses = [f"({i}) {clause}" for i, clause in enumerate(clauses, 1)]
    mark = ";" if several else ","
    marked = tuple(f"{clause}{mark}" for clause in clauses)
    provided = _provided(calibration).removeprefix(", ")
    if calibration.bound == "conformal":
        each = " each of these holds:" if several else ""
        end = f"{provided}; this holds in expectation only, not with high probability for the calibration set at hand."
        return f"On average over calibration sets of {n},{each}", marked, end
    jointly = " all of these hold jointly:" if several else ""
    return f"{_odds(calibration, n)},{jointly}", marked, f"{provided}."


def _clause(promise: Any, record: Any) -> str:
    """One promise: what is at most its level, of whose pixels, how they are averaged, and how many certified it."""
    entries = entries_in_words(record.pixels)
    by_unit = bool(record.units) and promise.weighting == "units"
    noun = record.unit_name if record.units else "image"
    named = f'"{promise.name}"'
    that_have = ""
    if promise.place == "subgroup":
        that_have = f" in {named}"
        of_what = f"the {entries}"
    elif promise.place == "all":
        of_what = f"the {entries}"
    else:
        that_have = f" that {'have' if by_unit else 'has'} {named}"
        of_what = f"the {entries} of {named}" if promise.place == "region" else f"the weights of {named}"
    level = level_in_words(promise.at_most)
    if promise.kind == "loss":
        whose = f"a future {noun}, averaged over its images{_of_loss(promise)}," if by_unit else "a future image"
        words = f"{loss_in_words(promise.name)} of {whose}{'' if by_unit else _of_loss(promise)} is on average at most "
        words += _plain(_up(promise.at_most))
    elif promise.kind == "tail":
        own = of_what if promise.place in ("region", "weights") else f"their {entries}"
        missed = f"miss {more_than(promise.above)} of {own}"
        if by_unit:
            words = f"on average at most {level} of the images of a future {noun}{that_have} {missed}"
        else:
            words = f"at most {level} of future images{that_have.replace(' has ', ' have ')} {missed}"
    elif promise.weighting == "pixels":
        words = f"at most {level} of {of_what} of all future images{that_have if promise.place == 'subgroup' else ''}, "
        words += "pooled, lie outside their intervals"
    else:
        whose = f"a future {noun}, averaged over its images{that_have}," if by_unit else f"a future image{that_have}"
        words = f"on average at most {level} of {of_what} of {whose} lie outside their intervals"
        if record.pixels == (1,) and promise.place in ("all", "subgroup"):
            words = _one_value(level, noun if by_unit else None, that_have)
    return words + _terms(promise, record, noun, by_unit)


def _one_value(level: str, unit: str | None, where: str = "") -> str:
    """Of images that are one value each: the value is inside or outside, so the share is one of images."""
    images = f"future images{where}" if unit is None else f"the images{where} of a future {unit}"
    return f"on average at most {level} of {images} have their value outside its interval"


def more_than(share: float) -> str:
    """More than a share of some things: any of them, where it is 0."""
    return f"more than {level_in_words(share)}" if share else "any"


def loss_in_words(name: str) -> str:
    """A user's loss by its name."""
    return YOUR_LOSS if name == YOUR_LOSS else f'the loss "{name}"'


def _of_loss(promise: Any) -> str:
    """Which images a loss is about, where not all."""
    return {"all": "", "subgroup": " in its subgroup"}.get(promise.place, " with its region")


def _terms(promise: Any, record: Any, noun: str, by_unit: bool) -> str:
    """How much an image and a unit count for, and how many certified."""
    terms = []
    if promise.cap < 1:
        cap = _percent(Context(_DIGITS, ROUND_FLOOR).create_decimal(repr(float(promise.cap))))  # says less, never more
        more = f"an image that misses more than {cap} counting as one that misses {cap}"
        terms.append(
            more if promise.kind != "loss" else f"an image that loses more than {cap} counting as one of {cap}"
        )
    if by_unit:
        terms.append(f"each {noun} counting the same, however many images it has")
    if promise.most:
        what = "pixels" if promise.weighting == "pixels" else "images"
        one = f"{article(noun)} {noun}"
        terms.append(f"{one} of more than {promise.most:.12g} such {what} counting as one of {promise.most:.12g}")
    if promise.certifying < record.certifying:
        terms.append(f"certified by {promise.certifying} of them")
    return f" ({', '.join(terms)})" if terms else ""


def _provided(calibration: Promised) -> str:
    """On which conditions."""
    record = calibration.record
    independent = plural(record.unit_name) if record.units else "images"
    units = f" and {independent}" if record.units else ""
    words = f", provided {independent} are independent of each other, future images{units} come from "
    words += _whence(record, units)
    if record.skipped:
        words += f" that could be read ({record.skipped} could not and were left out: nothing is promised for such)"
    source = record.source
    if source.known:
        unknown = "; of how many samples is not known here" if source.samples is None and _of_samples(source) else ""
        unknown += "; values of which function is not known here" if source.kind.startswith(NAMELESS_VALUES) else ""
        words += f" and their bands are made in the same way ({source}{unknown})"
    else:
        words += " and their bands are made in the same way (how is not known here, so it cannot be checked)"
    if calibration.labelled:
        words += ", and so are the labels that come with them, be they right or wrong"
    if record.settings.get(GIVEN):
        words += (
            ", and the groups that were given owe nothing to the images that certified, which cannot be checked here"
        )
    if calibration.your_bound:
        named = "your bound" if calibration.bound in _NAMELESS else f'your bound "{calibration.bound}"'
        words += f", and {named} is a valid one, which cannot be checked here"
    measure = calibration.measure
    if measure is not None and measure.low is not None:
        words += f"; values are those within the {measure}, and what lies beyond it counts as its edge"
    if measure is None and record.settings.get(EARLIER) == 1:
        words += "; what the numbers stand for (a window, a unit) was not kept, so it cannot be checked either"
    return words


def _whence(record: Any, units: str) -> str:
    """From which source future images come."""
    shift = record.settings.get(SHIFT)
    if shift is None:
        return f"the same source as the calibration images{units}"
    one = record.unit_name if record.units else "image"
    return (
        f"the shifted source for which the weights that were given are the likelihood ratios, exactly and at most "
        f"{shift['most_weight']:.12g} (of {shift['offered']} calibration images {record.images} were kept, each {one} "
        f"with probability its weight / {shift['most_weight']:.12g}, which makes these draws of that source)"
    )


def _of_samples(source: Source) -> bool:
    """Whether bands of this source are quantiles of samples."""
    return source.kind.endswith(" quantiles")


def entries_in_words(pixels: tuple[int, ...]) -> str:
    """What is counted of an image of this shape; () where images differ in size, so that channels cannot be told."""
    if in_channels(pixels):
        return "values (each channel of a pixel is one)"
    if len(pixels) == 1:
        return "values"
    return "pixels" if len(pixels) == 2 else "values (each voxel, or channel of a pixel, is one)"


def in_channels(pixels: tuple[int, ...]) -> bool:
    """Whether an image of this shape may hold channels: three axes or more, the first or the last of 2 to 4.

    >>> in_channels((64, 64, 3)), in_channels((3, 64, 64)), in_channels((64, 64)), in_channels((90, 64, 64))
    (True, True, False, False)
    """
    return len(pixels) > 2 and (2 <= pixels[0] <= 4 or 2 <= pixels[-1] <= 4)


def article(noun: str) -> str:
    """The indefinite article.

    >>> article("image"), article("scan")
    ('an', 'a')
    """
    return "an" if noun[:1].lower() in "aeio" else "a"


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
        "two tries that were planned before the first; for images that keep coming there is an anytime calibration, "
        f"which may be looked at after every image (pixelbounds.AnytimeCalibration, pixelbounds anytime; {VALIDITY_DOC})"  # noqa: E501
    )
