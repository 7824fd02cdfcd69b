"""What a monitor reports: an alarm or none, what was seen of every promise, and how recent bands differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..calibration.words import level_in_words, plural, share_in_words
from ..evaluation.evaluation import share_ends

_RECENT = 0.05  # p-value below which recent bands are described
_RARE = 1e-4  # smaller p-values are not distinguished
_QUIET = (
    "No alarm: {} images with truth and {} without give no sufficient evidence that a promise is broken or that the "
    "source has changed. That all is well is not shown by this."
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
    "groups": ("pixels {fall} into groups less as usual", "pixels {fall} into groups more as usual", "sizes of groups"),
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
        'bands of the last 40 images are wider than at calibration, as on 1.99% of days when nothing has changed'
        """
        some = f"of the last {self.recent} {plural(noun)}" if self.recent > 1 else f"of the last {noun}"
        if self.changed and self.p_value >= _RECENT:  # it changed earlier, or keeps to the middle
            return f"{_WORDS[self.name][2]} have varied otherwise than at calibration, though not in the mean {some}"
        words = _WORDS[self.name][0 if self.up else 1].format(are=f"{some} are", fall=f"{some} fall")
        rare = self.p_value < _RARE
        share = f"fewer than {share_in_words(_RARE)}" if rare else share_in_words(self.p_value, up=True)
        return f"{words} than at calibration, as on {share} of days when nothing has changed"


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
