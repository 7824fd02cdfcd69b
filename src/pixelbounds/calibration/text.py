"""A calibration in words: ONE description, of which the sentence, tables, terminal, notebook, card and page are made.

The sentence says no more than what was certified: which mean (over images or units), of what (pixels, values, a loss),
for which images (readable ones, of the same source), and for which bands (made in the same way, where that is known).
Levels are rounded up and probabilities of success down, so that no rounding promises more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..images.checks import VALIDITY_DOC
from ..images.notebook import facts_html, rows_html
from ..images.source import NAMELESS_VALUES
from .bounds import BOUNDS, few_units
from .promises import YOUR_LOSS
from .words import (
    article,
    cap_in_words,
    confidence_in_words,
    entries_in_words,
    level_in_words,
    number_in_words,
    plural,
    share_in_words,
)

ANYTIME = "anytime"  # the bound of an anytime calibration
SHIFT = "shift"  # setting of a record: the images were weighed, for another source
GIVEN = "groups given"  # setting of a record: nobody can tell on which images the given groups were fitted
NOT_WIDENED = (
    "No interval is longer than its band: the bands alone keep what is promised, and a calibration never narrows. "
    "Bands that begin narrower (a larger miscoverage, pb.narrow) may give shorter intervals: choose them on "
    "other images"
)
_NAMELESS = ("loss", "custom", "function", "<lambda>")  # names of functions that say nothing


# ---------------------------------------------------------------- the description


def independent_in_words(record: Any) -> str:
    """What is independent of each other, in the plural."""
    return plural(record.unit_name) if record.units else "images"


@dataclass(frozen=True)
class PromiseWords:
    """One certified promise in words.

    clause     in the sentence
    name       in a row of a table: its name, and what else it says than a share
    counted    what is counted, for a row that has the bare name
    level, seen, certified_by    at most, at calibration, and the number of images or units
    """

    clause: str
    name: str
    counted: str
    level: str
    seen: str
    certified_by: str


@dataclass(frozen=True)
class Description:
    """A calibration in words: the sentence in three parts, each promise, a note, and facts by name.

    note       why it stands although more than a level was seen, why intervals are as long as bands, or what more units
               or a cap would give where units are few; else empty
    facts      how it was made, as plain values for JSON and, by `fact_in_words`, for people; None where not known
    """

    opening: str
    clauses: tuple[str, ...]
    conditions: str
    promises: tuple[PromiseWords, ...]
    note: str
    facts: Mapping[str, Any]

    @property
    def guarantee(self) -> str:
        """The sentence."""
        return " ".join((self.opening, *self.clauses, self.conditions))

    @property
    def table(self) -> tuple[tuple[str, ...], ...]:
        """The promises as rows below a head."""
        rows = ((p.name, p.level, p.seen, p.certified_by) for p in self.promises)
        return (("promise", "at most", "seen at calibration", "certified by"), *rows)

    def rows(self, *names: str) -> dict[str, str]:
        """Facts of these names, by default all, in words; what is not known is left out."""
        return {
            name.replace("_", " "): fact_in_words(self.facts[name])
            for name in names or self.facts
            if self.facts[name] is not None
        }

    def to_html(self) -> str:
        """For a notebook."""
        note = {"note": self.note} if self.note else {}
        facts = {"guarantee": self.guarantee, **note, **self.rows("method", "bound", "groups", "images", "bands")}
        head, *rows = self.table
        return facts_html("Calibration", facts, rows_html(head, rows))


def description_of(calibration: Any) -> Description:
    """The description of a calibration (`calibration.Calibration`)."""
    record, several = calibration.record, len(calibration.promises) > 1
    promises = tuple(_promise(promise, record) for promise in calibration.promises)
    clauses = tuple(f"({i}) {p.clause};" if several else f"{p.clause}," for i, p in enumerate(promises, 1))
    conditions = _conditions(calibration)
    if calibration.bound == "conformal":
        conditions += "; this holds in expectation only, not with high probability for the calibration set at hand"
    return Description(
        _opening(calibration, several), clauses, f"{conditions}.", promises, _note(calibration), _facts(calibration)
    )


def fact_in_words(value: Any) -> str:
    """A plain value as people read it.

    >>> fact_in_words({"a": [0.0, 1.0]}), fact_in_words(12000)
    ('a 0, 1', '12000')
    """
    if isinstance(value, dict):
        return ", ".join(f"{name} {fact_in_words(x)}" for name, x in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(fact_in_words(x) for x in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _facts(calibration: Any) -> dict[str, Any]:
    record, groups = calibration.record, calibration.grouping
    return {
        "method": calibration.method,
        "bound": calibration.bound,
        "groups": f"{groups.count} of kind {groups.kind}",
        "family": calibration.family.name,
        "failure_probability": calibration.failure_prob,
        "images": record.images,
        "image_shape": list(record.pixels) or "different sizes",
        "independent": f"each {record.unit_name}" if record.units else "each image",
        "fitted_on": f"{record.fitting} images",
        "certified_by": f"{record.certifying} {independent_in_words(record)}",
        "left_out": f"{record.skipped} images that could not be read" if record.skipped else None,
        "limits": [float(x) for x in calibration.limits],
        "measure": None if calibration.measure is None else str(calibration.measure),
        "bands": str(record.source) if record.source.known else "not known how they were made",
        "settings": dict(record.settings) or None,
        "seed": record.seed,
        "made_by": f"pixelbounds {record.version}",
        "images_digest": record.digest,
    }


# ---------------------------------------------------------------- the sentence


def _opening(calibration: Any, several: bool) -> str:
    record = calibration.record
    independent = independent_in_words(record)
    n = f"{record.certifying} {independent}"
    if calibration.bound == "conformal":
        return f"On average over calibration sets of {n},{' each of these holds:' if several else ''}"
    odds = f"With probability at least {confidence_in_words(calibration.failure_prob)} over the draw of"
    if calibration.bound == ANYTIME:
        odds += (
            f" {independent} for certification as they arrive, at this look after {n} and jointly at every other look"
        )
    else:
        odds += f" {n} for certification"
    return f"{odds},{' all of these hold jointly:' if several else ''}"


def _promise(promise: Any, record: Any) -> PromiseWords:
    noun = record.unit_name if record.units else "image"
    is_loss = promise.kind == "loss"
    return PromiseWords(
        clause=_clause(promise, record),
        name=promise_in_words(promise),
        counted=counted_in_short(promise, record.pixels, noun),
        level=number_in_words(promise.at_most) if is_loss else level_in_words(promise.at_most),
        seen=f"{promise.risk:.4g}" if is_loss else f"{promise.risk:.2%}",
        certified_by=f"{promise.certifying} {independent_in_words(record)}",
    )


def _clause(promise: Any, record: Any) -> str:
    """One promise: what is at most its level, of whose pixels, how they are averaged, and how many certified it."""
    by_unit = bool(record.units) and promise.weighting == "units"
    noun = record.unit_name if record.units else "image"
    name, level, entries = f'"{promise.name}"', level_in_words(promise.at_most), entries_in_words(record.pixels)
    of_what = {"region": f"the {entries} of {name}", "weights": f"the weights of {name}"}.get(promise.place)
    which = {"all": "", "subgroup": f" in {name}"}.get(promise.place, f" that {'have' if by_unit else 'has'} {name}")
    if promise.kind == "loss":
        which = {"all": "", "subgroup": " in its subgroup"}.get(promise.place, " with its region")
        whose = f"a future {noun}, averaged over its images{which}," if by_unit else f"a future image{which}"
        words = f"{loss_in_words(promise.name)} of {whose} is on average at most {number_in_words(promise.at_most)}"
    elif promise.kind == "tail":
        missed = f"miss {more_than(promise.above)} of {of_what or f'their {entries}'}"
        if by_unit:
            words = f"on average at most {level} of the images of a future {noun}{which} {missed}"
        else:
            words = f"at most {level} of future images{which.replace(' has ', ' have ')} {missed}"
    elif promise.weighting == "pixels":
        subgroup = which if promise.place == "subgroup" else ""
        words = f"at most {level} of {of_what or f'the {entries}'} of all future images{subgroup}, pooled, lie outside "
        words += "their intervals"
    elif record.pixels == (1,) and of_what is None:  # one value is inside or outside: the share is one of images
        whose = f"the images{which} of a future {noun}" if by_unit else f"future images{which}"
        words = f"on average at most {level} of {whose} have their value outside its interval"
    else:
        whose = f"a future {noun}, averaged over its images{which}," if by_unit else f"a future image{which}"
        words = f"on average at most {level} of {of_what or f'the {entries}'} of {whose} lie outside their intervals"
    return words + _terms(promise, record, noun, by_unit)


def _terms(promise: Any, record: Any, noun: str, by_unit: bool) -> str:
    terms = []
    if promise.cap < 1:
        cap = cap_in_words(promise.cap)
        one, other = ("loses", "one of") if promise.kind == "loss" else ("misses", "one that misses")
        terms.append(f"an image that {one} more than {cap} counts as {other} {cap}")
    if by_unit:
        terms.append(f"each {noun} counts the same, however many images it has")
    if promise.most:
        such = f"{'' if promise.place == 'all' else 'such '}{promise.weighting}"
        one = f"{article(noun)} {noun} of more than {promise.most:.12g} {such}"
        alike = promise.weighting == "images"
        terms.append(f"each image counts the same, {one}" if alike else f"{one} counts")
        terms[-1] += f" as one of {promise.most:.12g}"
    if promise.certifying < record.certifying:
        terms.append(f"certified by {promise.certifying} of them")
    return f" ({', '.join(terms)})" if terms else ""


def _conditions(calibration: Any) -> str:
    record, source, measure = calibration.record, calibration.record.source, calibration.measure
    independent = independent_in_words(record)
    units = f" and {independent}" if record.units else ""
    words = f"provided {independent} are independent of each other, future images{units} come from "
    words += _whence(record, units)
    if record.skipped:
        words += f" that could be read ({record.skipped} could not and were left out: nothing is promised for such)"
    if source.known:
        sampled = source.kind.endswith(" quantiles")
        unknown = "; of how many samples is not known here" if sampled and source.samples is None else ""
        unknown += "; values of which function is not known here" if source.kind.startswith(NAMELESS_VALUES) else ""
        words += f" and their bands are made in the same way ({source}{unknown})"
    else:
        words += " and their bands are made in the same way (how is not known here, so it cannot be checked)"
    if calibration.labelled:
        words += ", and so are the labels that come with them, be they right or wrong"
    if record.settings.get(GIVEN):
        words += ", and the groups that were given owe nothing to the images that certified, "
        words += "which cannot be checked here"
    if calibration.bound not in (*BOUNDS, ANYTIME):
        bound = calibration.bound
        named = "your bound" if bound in _NAMELESS else f'your bound "{bound}"'
        words += f", and {named} is a valid one, which cannot be checked here"
    if measure is not None and measure.low is not None:
        words += f"; values are those within the {measure}, and {measure.beyond}"
    if source.kind.startswith("segmentation"):
        words += (
            "; of an organ, outside its interval means outside the outer mask, of a background inside the inner mask"
        )
    return words


def _whence(record: Any, units: str) -> str:
    shift = record.settings.get(SHIFT)
    if shift is None:
        return f"the same source as the calibration images{units}"
    one = record.unit_name if record.units else "image"
    return (
        f"the shifted source for which the weights that were given are the likelihood ratios, exactly and at most "
        f"{shift['max_weight']:.12g} (each {one} counts for its weight / {shift['max_weight']:.12g}, so the "
        f"{record.certifying} that certify count for {shift['effective']:.1f})"
    )


# ---------------------------------------------------------------- words for rows


def promise_in_words(promise: Any) -> str:
    """A promise in a few words, for a row of a table: its name, and what else it says than a share."""
    words = loss_in_words(promise.name) if promise.kind == "loss" else str(promise.name)
    if promise.kind == "tail":
        words = f"images that miss {more_than(promise.above)}, {words}"
    if promise.cap < 1:
        words += f", cap {level_in_words(promise.cap)}"
    return words if promise.weighting == "units" else f"{words}, by {promise.weighting}"


def counted_in_short(promise: Any, pixels: tuple[int, ...], noun: str) -> str:
    """What is counted for a promise (`promises.CertifiedPromise`), for a row of a table that names it.

    >>> from .promises import CertifiedPromise
    >>> made = CertifiedPromise("tail", "heart", "region", 0.05, 0.1, 1.0, "units", 0.0, 0.01, 90)
    >>> counted_in_short(made, (64, 64), "image")
    'images that miss more than 10% of its pixels'
    """
    entries = entries_in_words(pixels).partition(" ")[0]
    whose = {"region": f"its {entries}", "weights": "its weights"}.get(promise.place, f"the {entries}")
    if promise.kind == "tail":
        images = "images" if noun == "image" or promise.weighting != "units" else f"images of {article(noun)} {noun}"
        return f"{images} that miss {more_than(promise.above)} of {whose}"
    words = "the loss" if promise.kind == "loss" else f"{whose} outside"
    if promise.weighting == "pixels":
        return f"{words}, pooled over images"
    words += f", mean over {plural(noun) if promise.weighting == 'units' else 'images'}"
    words += {"all": "", "subgroup": " in it"}.get(promise.place, " that have it")
    return words if promise.cap == 1 else f"{words}, an image counting for at most {share_in_words(promise.cap)}"


def more_than(share: float) -> str:
    """More than a share of some things: any of them, where it is 0."""
    return f"more than {level_in_words(share)}" if share else "any"


def loss_in_words(name: str) -> str:
    """A user's loss by its name."""
    return YOUR_LOSS if name in (YOUR_LOSS, *_NAMELESS) else f'the loss "{name}"'


# ---------------------------------------------------------------- notes and advice


def _note(calibration: Any) -> str:
    above = [promise for promise in calibration.promises if promise.risk > promise.at_most]
    if above:
        return _early_wins(above)
    begins_at_band = calibration.family.name in ("additive", "multiplicative")  # others may begin narrower than bands
    if begins_at_band and np.all(calibration.widening <= calibration.family.start):
        return NOT_WIDENED
    bound, noun = BOUNDS.get(calibration.bound, calibration.bound), independent_in_words(calibration.record)
    few = (
        few_units(p, p.certifying, calibration.failure_prob, bound, noun) for p in calibration.promises if not p.most
    )
    return " ".join(next(filter(None, few), ()))


def _early_wins(promises: Sequence[Any]) -> str:
    """Why promises stand of which more was seen than their level."""

    def seen(p: Any) -> str:
        if p.kind == "loss":
            return f"{p.risk:.3g} where {p.at_most:g}"
        return f"{share_in_words(p.risk, up=True)} where {level_in_words(p.at_most)}"

    named = "; ".join(f"{promise_in_words(p)}: {seen(p)} is promised" for p in promises)
    return (
        f"More was seen than the level ({named}): bets against a risk above the level had won enough before the last "
        "images lost, and evidence that was once enough stays enough. The promise stands with the probability that it "
        "states (docs/guarantee.md, Seen above the level)"
    )


def second_try(failure_prob: float) -> str:
    """What another try on the same images costs, and what is valid; for messages that invite one."""
    return (
        "A second try on the same images (another seed, method or bound) has its own chance to fail: whichever is kept "
        f"fails with probability {min(1.0, 2 * failure_prob):.3g} instead of {failure_prob:.3g}. Valid are fresh "
        f"images, or {failure_prob / 2:.3g} for each of two tries planned before, or an anytime calibration "
        f"({VALIDITY_DOC})."
    )
