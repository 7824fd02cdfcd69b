"""Statistics of new bands among those of the calibration, each with a purse of its own (`urn`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..calibration.reference import STATISTICS, Reference
from ..images.library import Array
from ..storage.digests import row_digests
from .purse import Purse
from .status import WatchedStatistic, worth_of
from .urn import BETS, Urn, log_rank_factors, recent_chance

RECENT = 40  # images (units) whose places are kept
EACH_ROUND = np.ones(BETS, np.int64)


@dataclass(frozen=True, eq=False)
class Gauge:
    """One statistic: its urn and purse, the places of the last few (m,), the sum of all values, whether it changed."""

    name: str
    urn: Urn
    purse: Purse
    places: Array
    total: float = 0.0
    changed: bool = False

    def then(self, value: float, digest: np.uint64, failure_prob: float) -> Gauge:
        """After another image (unit)."""
        arrival = self.urn.arrival(value, digest)
        purse = self.purse.play(log_rank_factors(arrival.low, arrival.high))
        return replace(
            self,
            urn=self.urn.with_one_in(arrival.cell),
            purse=purse,
            places=np.append(self.places, arrival.place)[-RECENT:],
            total=self.total + value,
            changed=self.changed or bool(purse.log_worth >= np.log(1 / failure_prob)),
        )

    @property
    def status(self) -> WatchedStatistic:
        """What is to be said of it."""
        chance, up = recent_chance(self.places) if len(self.places) else (1.0, True)
        return WatchedStatistic(self.name, worth_of(self.purse.log_worth), len(self.places), chance, up, self.changed)


def gauges_of(reference: Reference) -> tuple[Gauge, ...]:
    """The gauges of a reference, before anything was seen; none where there is no reference."""
    if not len(reference):
        return ()
    columns = reference.of_units.T.astype(np.float64)
    seed = int(row_digests(reference.of_units[None])[0])
    return tuple(
        Gauge(name, Urn.of(column, seed), Purse.new(EACH_ROUND), np.empty(0))
        for name, column in zip(STATISTICS, columns, strict=True)
    )


def looked(gauges: Sequence[Gauge], rows: Array, digests: Array, failure_prob: float) -> tuple[Gauge, ...]:
    """The gauges after further images (units), with statistics (u, 5), in order; they share the failure probability."""
    now = list(gauges)
    for row, digest in zip(rows.astype(np.float64), digests, strict=True):
        now = [gauge.then(float(value), digest, failure_prob / len(now)) for gauge, value in zip(now, row, strict=True)]
    return tuple(now)
