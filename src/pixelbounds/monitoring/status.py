"""What a monitor reports: an alarm or none, what was seen of every promise, and how recent bands differ.

Summaries of sites that each have a monitor of one calibration may be pooled. Given the calibration, sites see different
images (patients), so their e-processes are independent. Then the mean of their e-values is an e-process, and so is the
product: the first grows where one site has changed, the second where all have a little. The common e-value is (mean +
product) / 2, and it ever reaches 1 / alpha with probability at most alpha if every promise is kept everywhere, whenever
sites report and however often it is checked. A patient seen at two sites breaks that. It is a test of its own beside
those of the sites: each has its own probability of a false alarm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..calibration.words import level_in_words, plural, share_in_words
from ..evaluation.evaluation import share_ends
from ..images.checks import check_count, check_number, check_open_unit
from ..kernels.bets import e_value_of, mean_log_e_value

_MAX_SITES = 10_000
_RECENT = 0.05  # p-value below which recent bands are described
_RARE = 1e-4  # smaller p-values are not distinguished
_QUIET = (
    "No alarm: {} images with truth and {} without give no sufficient evidence that a promise is broken or that the "
    "source has changed. This does not show that all is well."
)
_BROKEN = "ALARM, promises broken: {}. The source has changed, or the calibration was among the unlucky ones."
_CHANGED = (
    "ALARM, source changed: {}. New images are not exchangeable with those of the calibration, so nothing is promised "
    "for them; only truth can show whether intervals miss more than before."
)
_FALSE_ALARMS = (
    "While images (units) are independent, come from the calibration's source and every promise is kept, this monitor "
    "ever raises an alarm with probability at most {}, however long it runs and however often it is checked."
)
_WORDS = {  # what a statistic is like where it lies up, and where it lies down; its name
    "width": ("bands {are} wider", "bands {are} narrower", "widths of bands"),
    "length": ("intervals {are} longer", "intervals {are} shorter", "lengths of intervals"),
    "level": ("bands {are} higher", "bands {are} lower", "levels of bands"),
    "limits": ("more ends {are} at the limits", "fewer ends {are} at the limits", "numbers of ends at the limits"),
    "groups": ("shares of groups {are} less typical", "shares of groups {are} more typical", "shares of groups"),
}


@dataclass(frozen=True)
class PromiseStatus:
    """What was seen of a promise: mean loss with an interval that holds at all times, units, e-value.

    The interval covers the mean expected loss of all units so far with probability 95%, by itself; `broken` where the
    promise is named as broken, and `kept` where an interval that holds for all promises at all times lies within its
    level. The risk is None before the first unit.
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
    kept: bool

    @property
    def words(self) -> str:
        """In a few words."""
        tail = f", images that miss more than {level_in_words(self.above)}" if self.kind == "tail" else ""
        promised = f"at most {level_in_words(self.at_most)} promised"
        if self.risk is None:
            return f'"{self.name}"{tail}: nothing seen yet, {promised}'
        low, high = share_ends(*self.interval)
        kept = ", kept so far" if self.kept else ""
        return f'"{self.name}"{tail}: {self.risk:.2%} seen ({low} to {high}), {promised}{kept}'


@dataclass(frozen=True)
class StatisticStatus:
    """What a statistic of bands is like among those of the calibration.

    `p_value` is how often the last `recent` images (units) would lie so far `up`, or down, while nothing has changed:
    valid for one check, not for the smallest of many. `changed` where its e-process ever showed a change.
    """

    name: str
    e_value: float
    recent: int
    p_value: float
    up: bool
    changed: bool

    def words(self, noun: str) -> str:
        """In a few words: how often the last few new images would look so by chance.

        >>> StatisticStatus("width", 1.0, 40, 0.0199, True, False).words("image")
        'bands of the last 40 images are wider than at calibration, which happens on 1.99% of days without a change'
        """
        some = f"of the last {self.recent} {plural(noun)}" if self.recent > 1 else f"of the last {noun}"
        if self.changed and self.p_value >= _RECENT:  # it changed earlier, or keeps to the middle
            return f"{_WORDS[self.name][2]} have varied otherwise than at calibration, though not in the mean {some}"
        words = _WORDS[self.name][0 if self.up else 1].format(are=f"{some} are")
        rare = self.p_value < _RARE
        share = f"fewer than {share_in_words(_RARE)}" if rare else share_in_words(self.p_value, up=True)
        return f"{words} than at calibration, which happens on {share} of days without a change"


@dataclass(frozen=True)
class Status:
    """What a monitor reports; `str` of it is one or a few sentences.

    broken       whether the truth of some images has ever shown that a promise is broken
    changed      whether bands have ever shown that the source has changed; that is not about risk
    images, drift_images    images that were counted with their truth, and without
    repeated     images of the last call that were not counted, since their batch was counted before
    late         images of the last call that were not counted, since their unit was counted before
    log_e_value  log of the mean e-value of the promises now, for `pooled`
    calibration  the digest of the calibration file, by which sites know that they monitor the same
    """

    false_alarm: float
    broken: bool
    changed: bool
    images: int
    drift_images: int
    repeated: int
    unit_name: str | None
    promises: tuple[PromiseStatus, ...]
    statistics: tuple[StatisticStatus, ...]
    notes: tuple[str, ...] = ()
    log_e_value: float = 0.0
    calibration: str = ""
    late: int = 0

    @property
    def alarm(self) -> bool:
        """Whether there was ever an alarm."""
        return self.broken or self.changed

    @property
    def named(self) -> tuple[PromiseStatus, ...]:
        """Promises named as broken; all where only their mean shows it."""
        broken = tuple(promise for promise in self.promises if promise.broken)
        return broken or (self.promises if self.broken else ())

    @property
    def recent_changes(self) -> tuple[str, ...]:
        """How recent bands differ from those of the calibration, where that is rare at one check."""
        noun = self.unit_name or "image"
        return tuple(x.words(noun) for x in self.statistics if x.recent and (x.changed or x.p_value < _RECENT))

    @property
    def sentence(self) -> str:
        """The alarm, or that there is none, in strict words."""
        said, noun = [], self.unit_name or "image"
        if self.broken:
            sure = any(x.broken for x in self.promises) or len(self.promises) == 1
            words = "; ".join(x.words for x in self.named)
            said.append(_BROKEN.format(words if sure else f"one of these at least: {words}"))
        if self.changed:
            changes = "; ".join(x.words(noun) if x.recent else x.name for x in self.statistics if x.changed)
            said.append(_CHANGED.format(changes))
        if not said:
            said.append(_QUIET.format(self.images, self.drift_images))
        return " ".join([*said, _FALSE_ALARMS.format(level_in_words(self.false_alarm))])

    def __str__(self) -> str:
        lines = [self.sentence, *(x.words for x in self.promises)]
        if self.recent_changes and not self.changed:
            count = len(self.statistics)
            lines += [*self.recent_changes, f"({count} statistics are checked, each by itself; none is a risk)"]
        return "\n".join([*lines, *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        said = {"alarm": self.alarm, "sentence": self.sentence}
        return {**said, **asdict(self), "recent_changes": list(self.recent_changes)}


@dataclass(frozen=True)
class Pooled:
    """What sites show together: an alarm now or none, the common e-value, and those of the sites."""

    alarm: bool
    e_value: float
    false_alarm: float
    images: int
    sites: tuple[tuple[str, int, float, bool], ...]  # name, images with truth, e-value, alarm of its own

    @property
    def sentence(self) -> str:
        """What it says, and what that is worth."""
        start = "ALARM: together the sites show that a promise is broken" if self.alarm else "No alarm of all together"
        return (
            f"{start} (e-value {self.e_value:.3g}, where {1 / self.false_alarm:.3g} raises an alarm). While every "
            "promise is kept everywhere and sites see different patients, this view ever raises an alarm with "
            f"probability at most {level_in_words(self.false_alarm)}, whenever sites report and however often it is "
            "checked."
        )


def pooled(summaries: Mapping[str, Any], false_alarm: float = 0.01) -> Pooled:
    """The common result of sites, from `Status.to_dict()` of each, by name.

    >>> quiet = {"calibration": "ab", "images": 40, "log_e_value": 2.5, "alarm": False}
    >>> pooled({"north": quiet, "south": quiet, "west": quiet}, 0.01).alarm
    True
    """
    check_open_unit(false_alarm, "false_alarm")
    if not summaries or len(summaries) > _MAX_SITES:
        raise ValueError(f"there are {len(summaries)} summaries; give one of each site")
    kinds = {"calibration": str, "images": int, "log_e_value": float | int, "alarm": bool}
    for name, x in summaries.items():
        if not isinstance(x, dict) or not all(isinstance(x.get(key), kind) for key, kind in kinds.items()):
            raise ValueError(f"{name!r} is no summary of a monitor; give what `monitor status --json` prints")
        check_count(x["images"], f"images of {name!r}", least=0, most=2**53)
        check_number(x["log_e_value"], f"log_e_value of {name!r}")
    if len({x["calibration"] for x in summaries.values()}) > 1:
        raise ValueError("these sites monitor different calibrations, which cannot be pooled; give those of one")
    logs = np.array([x["log_e_value"] for x in summaries.values()], np.float64)
    total = float(np.logaddexp(mean_log_e_value(logs), logs.sum()) - np.log(2))
    sites = tuple((name, x["images"], e_value_of(x["log_e_value"]), x["alarm"]) for name, x in summaries.items())
    alarm = bool(total >= np.log(1 / false_alarm))
    return Pooled(alarm, e_value_of(total), false_alarm, sum(x["images"] for x in summaries.values()), sites)
