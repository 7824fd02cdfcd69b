"""The history of a monitor: one row for each call, thinned to every other where there are too many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..images.library import Array
from .drift import DriftMartingale
from .promise_monitors import PromiseMonitor

MAX_ROWS = 512
FIRST = 3  # columns before those of promises: time, images with truth, images without
PER_PROMISE = 5  # sum of losses times weights, sum of weights, low and high end of the risk, log e-value
PER_STATISTIC = 3  # images (units), sum of values, log e-value
LEVEL = 0.95  # of intervals


def history_row(
    promises: Sequence[PromiseMonitor], drift: Sequence[DriftMartingale], when: float, images: int, drift_images: int
) -> Array:
    """The state now as one row."""
    row = [when, float(images), float(drift_images)]
    for monitor in promises:
        cap = monitor.promise.cap
        low, high = monitor.risk.ends(LEVEL)
        row += [cap * monitor.risk.top.total, monitor.risk.bottom.total, cap * low, cap * high]
        row.append(monitor.e_process.log_e_value)
    for martingale in drift:
        row += [float(martingale.e_process.rounds), martingale.total, martingale.e_process.log_e_value]
    return np.array(row)


def add_row(history: Array, row: Array) -> Array:
    """The history with another row; a full one loses every other of its rows."""
    if len(history) >= MAX_ROWS:
        history = history[1::2]
    return np.concatenate([history, row[None]])


def promise_columns(history: Array, number: int) -> Array:
    """Sum of losses, sum of weights, low, high, log e-value of a promise at each row: (5, rows)."""
    first = FIRST + PER_PROMISE * number
    return history[:, first : first + PER_PROMISE].T


def statistic_columns(history: Array, promises: int, number: int) -> Array:
    """Images (units), sum of values, log e-value of a statistic at each row: (3, rows)."""
    first = FIRST + PER_PROMISE * promises + PER_STATISTIC * number
    return history[:, first : first + PER_STATISTIC].T
