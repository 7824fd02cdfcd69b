"""How things went: one row for each call, thinned to every other where there are too many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..images.library import Array
from .drift_martingales import DriftMartingale
from .promise_monitors import PromiseMonitor

MOST_CALLS = 512
FIRST = 3  # columns before those of promises: time, images with truth, images without
OF_A_PROMISE = 5  # sum of losses times weights, sum of weights, low and high end of the risk, log worth
OF_A_GAUGE = 3  # images (units), sum of values, log worth
_LEVEL = 0.95


def row_of(
    accounts: Sequence[PromiseMonitor], gauges: Sequence[DriftMartingale], when: float, images: int, looked: int
) -> Array:
    """What is remembered of now."""
    row = [when, float(images), float(looked)]
    for account in accounts:
        cap = account.promise.cap
        low, high = account.risk.ends(_LEVEL)
        row += [cap * account.risk.top.total, account.risk.bottom.total, cap * low, cap * high]
        row.append(account.e_process.log_worth)
    for gauge in gauges:
        row += [float(gauge.e_process.rounds), gauge.total, gauge.e_process.log_worth]
    return np.array(row)


def with_row(history: Array, row: Array) -> Array:
    """The history with another row; a full one loses every other of its rows."""
    if len(history) >= MOST_CALLS:
        history = history[1::2]
    return np.concatenate([history, row[None]])


def columns_of_promise(history: Array, number: int) -> Array:
    """Sum of losses, sum of weights, low, high, log worth of a promise at each row: (5, rows)."""
    first = FIRST + OF_A_PROMISE * number
    return history[:, first : first + OF_A_PROMISE].T


def columns_of_gauge(history: Array, promises: int, number: int) -> Array:
    """Images (units), sum of values, log worth of a gauge at each row: (3, rows)."""
    first = FIRST + OF_A_PROMISE * promises + OF_A_GAUGE * number
    return history[:, first : first + OF_A_GAUGE].T
