"""What a monitor says: an alarm or none, what was seen of every promise, and what bands are like lately."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import exp, isfinite
from typing import Any

from ..calibration.words import level_in_words, plural
from ..evaluation.evaluation import share_ends
from .sentences import broken_in_words, changed_in_words, false_alarms_in_words, quiet_in_words, recently_in_words

_LATELY = 0.05  # chance below which it is told what bands are like lately
_MOST_WORTH = 1e300
_WORDS = {  # what a statistic is like where it lies up, and where it lies down
    "width": ("bands {are} wider", "bands {are} narrower"),
    "length": ("intervals {are} longer", "intervals {are} shorter"),
    "level": ("bands {are} higher", "bands {are} lower"),
    "limits": ("more ends {are} at the limits", "fewer ends {are} at the limits"),
    "groups": ("pixels {fall} into groups less as usual", "pixels {fall} into groups more as usual"),
}


def worth_of(log_worth: float) -> float:
    """What a purse is worth, as far as a number can say it."""
    return exp(log_worth) if log_worth < 690 else _MOST_WORTH


@dataclass(frozen=True)
class WatchedPromise:
    """What was seen of a promise: mean loss with an interval that holds at all times, units, worth of its purse.

    The interval holds the mean of what was to be expected of all units so far with probability 95%, by itself; `broken`
    where it is named as broken, jointly over all promises. The risk is None before the first unit.
    """

    name: str
    kind: str
    above: float
    at_most: float
    risk: float | None
    interval: tuple[float, float]
    units: int
    e_value: float
    broken: bool

    @property
    def words(self) -> str:
        """In a few words."""
        tail = f", images that miss more than {level_in_words(self.above)}" if self.kind == "tail" else ""
        promised = f"at most {level_in_words(self.at_most)} promised"
        if self.risk is None:
            return f'"{self.name}"{tail}: nothing seen yet, {promised}'
        low, high = share_ends(*self.interval)
        return f'"{self.name}"{tail}: {self.risk:.2%} seen ({low} to {high}), {promised}'


@dataclass(frozen=True)
class WatchedStatistic:
    """What a statistic of bands is like among those of the calibration.

    `chance` is how often the last `recent` images (units) would lie so far `up`, or down, while nothing has changed:
    valid for one look, not for the least of many. `changed` where its purse, worth `e_value`, has shown a change.
    """

    name: str
    e_value: float
    recent: int
    chance: float
    up: bool
    changed: bool

    def words(self, noun: str) -> str:
        """In a few words."""
        return recently_in_words(_WORDS[self.name][0 if self.up else 1], self.recent, noun, self.chance)


@dataclass(frozen=True)
class Status:
    """What a monitor has to say; `str` of it is one or a few sentences.

    broken       whether the truth of some images has ever shown that a promise is broken
    changed      whether bands have ever shown that the source has changed; that is not about risk
    images, looked    images that were counted with their truth, and without
    repeated     images of the last call that were counted before and were left out
    late         images of the last call that were left out because their unit was counted before, with other images
    log_worth    log of the mean worth of the promises' purses now, for `pooled`
    calibration  the digest of the calibration file, by which sites know that they watch the same
    """

    false_alarm: float
    broken: bool
    changed: bool
    images: int
    looked: int
    repeated: int
    unit_name: str | None
    promises: tuple[WatchedPromise, ...]
    statistics: tuple[WatchedStatistic, ...]
    notes: tuple[str, ...] = ()
    log_worth: float = 0.0
    calibration: str = ""
    late: int = 0

    @property
    def alarm(self) -> bool:
        """Whether there was ever an alarm."""
        return self.broken or self.changed

    @property
    def named(self) -> tuple[WatchedPromise, ...]:
        """Promises named as broken; all where only their mean shows it."""
        found = tuple(promise for promise in self.promises if promise.broken)
        return found or (self.promises if self.broken else ())

    @property
    def lately(self) -> tuple[str, ...]:
        """What bands are like lately, where that is rare at one look."""
        noun = self.unit_name or "image"
        return tuple(x.words(noun) for x in self.statistics if x.recent and (x.changed or x.chance < _LATELY))

    @property
    def sentence(self) -> str:
        """The alarm, or that there is none, in strict words."""
        said = []
        if self.broken:
            one_of = (
                "" if any(x.broken for x in self.promises) or len(self.promises) == 1 else "one of these at least: "
            )
            said.append(broken_in_words(one_of + "; ".join(x.words for x in self.named)))
        if self.changed:
            noun = self.unit_name or "image"
            found = "; ".join(x.words(noun) if x.recent else x.name for x in self.statistics if x.changed)
            said.append(changed_in_words(found))
        if not said:
            seen = f"{self.images} images with truth and {self.looked} without"
            said.append(quiet_in_words(seen))
        return " ".join([*said, false_alarms_in_words(self.false_alarm)])

    def __str__(self) -> str:
        lines = [self.sentence, *(x.words for x in self.promises)]
        if self.lately and not self.changed:
            lines += [
                *self.lately,
                f"({len(self.statistics)} things are looked at, each by itself; this is not a risk)",
            ]
        return "\n".join([*lines, *self.notes])

    @property
    def counted_in(self) -> str:
        """What is independent, in the plural."""
        return plural(self.unit_name or "image")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = asdict(self)
        for promise in found["promises"]:
            promise["risk"] = promise["risk"] if promise["risk"] is None or isfinite(promise["risk"]) else None
        return {"alarm": self.alarm, "sentence": self.sentence, **found, "lately": list(self.lately)}
