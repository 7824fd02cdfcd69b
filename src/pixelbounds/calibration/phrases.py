"""Short words about promises, for rows of tables and maps: they say no more than the sentence (`sentence.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .sentence import (
    Promised,
    article,
    entries_in_words,
    level_in_words,
    loss_in_words,
    more_than,
    plural,
    share_in_words,
)


def trust_in_words(calibration: Promised, share: float) -> str:
    """What is promised about a mask of pixels with short intervals, which is this share of the pixels: little.

    All misses may lie in the mask. Where a share of all pixels is promised, at most level / share of a mask of this
    size is missed on average; nothing better follows. Where units count the same, or images differ in size, not even
    that does: a large one may miss more than the mean.
    """
    entries = entries_in_words(calibration.record.pixels).partition(" ")[0]
    words = f"This says that intervals are short, not that they hold the truth: {entries} outside may gather here"
    of_all = [p.at_most for p in calibration.promises if (p.kind, p.place, p.cap) == ("share", "all", 1)]
    even = bool(calibration.record.pixels) and not calibration.record.units
    if of_all and even and calibration.bound != "conformal":
        level = min(of_all)
        most = "all" if share <= level else f"up to {share_in_words(level / share, up=True)}"
        words += (
            f". What is promised ({level_in_words(level)} of all {entries}, on average) leaves room for {most} of these"
        )
    return f"{words}. Images with a known truth tell how many are: evaluate with a promise within the mask"


NOT_WIDENED = (
    "No interval is longer than its band: the bands alone keep what is promised, and a calibration never narrows. "
    "Bands that begin narrower (a larger miscoverage, pb.narrow) may give shorter intervals: choose them on "
    "other images"
)


def early_wins_in_words(promises: Sequence[Any]) -> str:
    """Why promises (`promises.CertifiedPromise`) stand of which more was seen than their level.

    >>> from .promises import CertifiedPromise
    >>> made = CertifiedPromise("share", "heart", "region", 0.05, 0.0, 1.0, "units", 0.0, 0.0512, 90)
    >>> early_wins_in_words([made]).partition("): ")[0]
    'More was seen than the level (heart: 5.12% where 5% is promised'
    """
    named = "; ".join(f"{promise_in_words(p)}: {_seen_in_words(p)} is promised" for p in promises)
    return (
        f"More was seen than the level ({named}): bets against a risk above the level had won enough before the last "
        "images lost, and what was once enough counts. The promise stands with the probability that it states "
        "(docs/guarantee.md, Seen above the level)"
    )


def _seen_in_words(promise: Any) -> str:
    if promise.kind == "loss":
        return f"{promise.risk:.3g} where {promise.at_most:g}"
    return f"{share_in_words(promise.risk, up=True)} where {level_in_words(promise.at_most)}"


def counted_in_short(promise: Any, pixels: tuple[int, ...], noun: str) -> str:
    """What is counted for a promise (`promises.CertifiedPromise`), for a row of a table that names it.

    >>> from .promises import CertifiedPromise
    >>> made = CertifiedPromise("tail", "heart", "region", 0.05, 0.1, 1.0, "units", 0.0, 0.01, 90)
    >>> counted_in_short(made, (64, 64), "image")
    'images that miss more than 10% of its pixels'
    """
    entries = entries_in_words(pixels).partition(" ")[0]
    whose = {"region": f"its {entries}", "weights": "its weights"}.get(promise.place, f"the {entries}")
    if promise.kind == "loss":
        whose = "the loss"
    if promise.kind == "tail":
        images = "images" if noun == "image" or promise.weighting != "units" else f"images of {article(noun)} {noun}"
        return f"{images} that miss {more_than(promise.above)} of {whose}"
    words = whose if promise.kind == "loss" else f"{whose} outside"
    if promise.weighting == "pixels":
        return f"{words}, pooled over images"
    words += f", mean over {plural(noun) if promise.weighting == 'units' else 'images'}"
    if promise.place in ("region", "weights"):
        words += " that have it"
    if promise.place == "subgroup":
        words += " in it"
    return words if promise.cap == 1 else f"{words}, an image counting for at most {share_in_words(promise.cap)}"


def promise_in_words(promise: Any) -> str:
    """What a promise is about, in a few words, for a row of a table: its name, and what else it says than a share."""
    words = loss_in_words(promise.name) if promise.kind == "loss" else str(promise.name)
    if promise.kind == "tail":
        words = f"images that miss {more_than(promise.above)}, {words}"
    if promise.cap < 1:
        words += f", cap {level_in_words(promise.cap)}"
    return words if promise.weighting == "units" else f"{words}, by {promise.weighting}"
