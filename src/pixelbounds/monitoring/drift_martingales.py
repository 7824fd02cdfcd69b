"""Statistics of new bands among those of the calibration, each with a purse of its own (`urn`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..calibration.band_statistics import STATISTICS, BandStatistics
from ..images.library import Array
from ..storage.digests import row_digests
from .conformal_ranks import BETS, ConformalRanks, log_rank_factors, recent_chance
from .e_process import EProcess
from .status import WatchedStatistic, worth_of

RECENT = 40  # images (units) whose places are kept
EACH_ROUND = np.ones(BETS, np.int64)


@dataclass(frozen=True, eq=False)
class DriftMartingale:
    """One statistic: its urn and purse, the places of the last few (m,), the sum of all values, whether it changed."""

    name: str
    urn: ConformalRanks
    e_process: EProcess
    places: Array
    total: float = 0.0
    changed: bool = False

    def then(self, value: float, digest: np.uint64, failure_prob: float) -> DriftMartingale:
        """After another image (unit)."""
        arrival = self.urn.arrival(value, digest)
        e_process = self.e_process.play(log_rank_factors(arrival.low, arrival.high))
        return replace(
            self,
            urn=self.urn.with_one_in(arrival.cell),
            e_process=e_process,
            places=np.append(self.places, arrival.place)[-RECENT:],
            total=self.total + value,
            changed=self.changed or bool(e_process.log_worth >= np.log(1 / failure_prob)),
        )

    @property
    def status(self) -> WatchedStatistic:
        """What is to be said of it."""
        chance, up = recent_chance(self.places) if len(self.places) else (1.0, True)
        return WatchedStatistic(
            self.name, worth_of(self.e_process.log_worth), len(self.places), chance, up, self.changed
        )


def gauges_of(reference: BandStatistics) -> tuple[DriftMartingale, ...]:
    """The gauges of a reference, before anything was seen; none where there is no reference."""
    if not len(reference):
        return ()
    columns = reference.of_units.T.astype(np.float64)
    seed = int(row_digests(reference.of_units[None])[0])
    return tuple(
        DriftMartingale(name, ConformalRanks.of(column, seed), EProcess.new(EACH_ROUND), np.empty(0))
        for name, column in zip(STATISTICS, columns, strict=True)
    )


def looked(
    gauges: Sequence[DriftMartingale], rows: Array, digests: Array, failure_prob: float
) -> tuple[DriftMartingale, ...]:
    """The gauges after further images (units), with statistics (u, 5), in order; they share the failure probability."""
    now = list(gauges)
    for row, digest in zip(rows.astype(np.float64), digests, strict=True):
        now = [gauge.then(float(value), digest, failure_prob / len(now)) for gauge, value in zip(now, row, strict=True)]
    return tuple(now)
