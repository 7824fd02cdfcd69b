"""Sites that each have a monitor of one calibration: what all of them together show, from their summaries.

Given the calibration, sites see different images (patients), so their e-processes are independent. Then the mean of
their e-values is an e-process, and so is the product: the first grows where one site has changed, the second where all
have a little. The common e-value is (mean + product) / 2, and it ever reaches 1 / alpha with probability at most alpha
if every promise is kept everywhere, whenever sites report and however often it is checked. A patient seen at two sites
breaks that. It is a test of its own beside those of the sites: each has its own probability of a false alarm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..calibration.words import level_in_words
from ..images.checks import check_count, check_number, check_open_unit
from ..kernels.bets import e_value_of, mean_log_e_value

_MAX_SITES = 10_000


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
            raise ValueError(
                f"{name!r} is not the summary of a monitor; give what `pixelbounds monitor status --json` prints"
            )
        check_count(x["images"], f"images of {name!r}", least=0, most=2**53)
        check_number(x["log_e_value"], f"log_e_value of {name!r}")
    if len({x["calibration"] for x in summaries.values()}) > 1:
        raise ValueError("these sites monitor different calibrations, which cannot be pooled; give those of one")
    logs = np.array([x["log_e_value"] for x in summaries.values()], np.float64)
    total = float(np.logaddexp(mean_log_e_value(logs), logs.sum()) - np.log(2))
    sites = tuple((name, x["images"], e_value_of(x["log_e_value"]), x["alarm"]) for name, x in summaries.items())
    alarm = bool(total >= np.log(1 / false_alarm))
    return Pooled(alarm, e_value_of(total), false_alarm, sum(x["images"] for x in summaries.values()), sites)
