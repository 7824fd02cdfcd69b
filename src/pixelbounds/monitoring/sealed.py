"""A monitor as a sealed file, which holds its calibration too, and back: everything that a file says is checked."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.calibration import calibration_from_bytes
from ..calibration.families import Family
from ..calibration.losses import Loss
from ..images.checks import check_count
from ..images.library import Array
from ..storage.files import check_new_file, replace_file, seal, unseal
from .conformal_ranks import BETS
from .drift_martingales import RECENT, DriftMartingale
from .history import MOST_CALLS
from .running_mean import RunningRatio
from .seen import MOST
from .watch import Monitor

_STATE = 1
_TEXT = {"format", "what", "false_alarm", "broken", "images", "looked", "named", "changed", "rounds"}


def monitor_bytes(monitor: Monitor) -> bytes:
    """The content of a monitor's file; equal monitors give equal bytes."""
    gauges = monitor.gauges
    text = {
        "format": _STATE, "what": "monitor", "false_alarm": monitor.false_alarm, "broken": monitor.broken,
        "images": monitor.images, "looked": monitor.looked, "named": [x.broken for x in monitor.accounts],
        "changed": [x.changed for x in gauges], "rounds": gauges[0].e_process.rounds if gauges else 0,
    }  # fmt: skip
    tensors: dict[str, Array] = {
        "calibration": np.frombuffer(monitor.calibration.to_bytes(), np.uint8),
        "seen": monitor.seen,
        "seen_bands": monitor.seen_bands,
        "history": monitor.history,
        "at_work": np.stack([x.e_process.at_work for x in monitor.accounts]),
        "risk": np.stack([x.risk.state for x in monitor.accounts]),
    }
    if gauges:
        tensors |= {
            "gauges": np.stack([x.e_process.at_work for x in gauges]),
            "counts": np.stack([x.urn.counts for x in gauges]),
            "places": np.stack([x.places for x in gauges]),
            "totals": np.array([x.total for x in gauges]),
        }
    return seal(text, tensors)


def save_monitor(monitor: Monitor, path: str | os.PathLike[str]) -> None:
    """Write a monitor's file, aside first and then in place."""
    if not isinstance(monitor, Monitor):
        raise TypeError(f"monitor is a {type(monitor).__name__}; give a pixelbounds.Monitor")
    target = check_new_file(path, "monitor")
    replace_file(target, monitor_bytes(monitor))


def load_monitor(path: str | os.PathLike[str], *, loss: Loss | None = None, family: Family | None = None) -> Monitor:
    """Read what `save_monitor` wrote; a user's own loss and family must be given again, for a file holds no code."""
    if not Path(path).is_file():
        raise ValueError(f"there is no monitor at {str(path)!r}; make one of a calibration")
    return monitor_from_bytes(Path(path).read_bytes(), str(path), loss=loss, family=family)


def monitor_from_bytes(
    data: bytes, name: str = "file", *, loss: Loss | None = None, family: Family | None = None
) -> Monitor:
    """The monitor that the content of a file holds."""
    again = "begin a new one with the calibration file"
    text, tensors = unseal(data, name, what="monitor", remedy=again, again=again)
    if text.get("what") != "monitor" or text["format"] != _STATE:
        raise ValueError(f"{name!r} is no monitor of a format that this version reads; {again}")
    try:
        return _monitor_of(text, tensors, name, loss, family)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        why = f"{error!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{name!r} holds no monitor that could be: {why}; {again}") from error


def _monitor_of(text: dict[str, Any], tensors: dict[str, Array], name: str, loss: Any, family: Any) -> Monitor:
    if text.keys() != _TEXT:
        raise ValueError(f"it says {', '.join(sorted(text))}")
    held = tensors["calibration"]
    if held.dtype != np.uint8 or held.ndim != 1:
        raise ValueError("its calibration is no file")
    monitor = Monitor(calibration_from_bytes(held.tobytes(), name, family), text["false_alarm"], loss=loss)
    promises, gauges = len(monitor.accounts), len(monitor.gauges)
    monitor.broken = _yes_or_no(text["broken"])
    monitor.images = check_count(text["images"], "images", least=0, most=2**53)
    monitor.looked = check_count(text["looked"], "looked", least=0, most=2**53)
    at_work = _money(tensors["at_work"], monitor.accounts[0].e_process.at_work.shape, promises)
    risks = _shaped(tensors["risk"], (promises, 6), np.float64)
    named = [_yes_or_no(x) for x in _list_of(text["named"], promises)]
    accounts = []
    for account, money, sums, broken in zip(monitor.accounts, at_work, risks, named, strict=True):
        risk = RunningRatio.from_state(sums)
        e_process = replace(account.e_process, at_work=money, rounds=risk.top.rounds)
        accounts.append(replace(account, e_process=e_process, risk=risk, broken=broken))
    monitor.accounts = tuple(accounts)
    if gauges:
        monitor.gauges = _gauges_of(monitor.gauges, text, tensors)
    for seen in ("seen", "seen_bands"):
        digests = tensors[seen]
        if digests.dtype != np.uint64 or digests.ndim != 1 or len(digests) > MOST:
            raise ValueError(f"{seen} are {digests.dtype} {digests.shape}; they must be at most {MOST} digests")
        setattr(monitor, seen, digests)
    rows = tensors["history"]
    shape = (min(len(rows), MOST_CALLS), monitor.history.shape[1])
    monitor.history = _shaped(rows, shape, np.float64)
    return monitor


def _gauges_of(
    fresh: tuple[DriftMartingale, ...], text: dict[str, Any], tensors: dict[str, Array]
) -> tuple[DriftMartingale, ...]:
    """The gauges of a file, from those of its calibration."""
    rounds = check_count(text["rounds"], "rounds", least=0, most=2**53)
    at_work = _money(tensors["gauges"], (BETS,), len(fresh))
    counts = tensors["counts"]
    cells = (len(fresh), len(fresh[0].urn.values) + 1)
    if counts.dtype != np.int64 or counts.shape != cells or counts.min() < 0 or counts.max() > rounds:
        raise ValueError(f"counts are {counts.dtype} {counts.shape}; they must be at least 0 and of shape {cells}")
    if (counts.sum(axis=1) != rounds).any():
        raise ValueError(f"counts do not sum to {rounds}")
    places = _shaped(tensors["places"], (len(fresh), min(rounds, RECENT)), np.float64)
    if places.size and not 0 < places.min() <= places.max() < 1:
        raise ValueError("places must lie between 0 and 1")
    totals = _shaped(tensors["totals"], (len(fresh),), np.float64)
    found = []
    for i, gauge in enumerate(fresh):
        e_process = replace(gauge.e_process, at_work=at_work[i], rounds=rounds)
        changed = _yes_or_no(_list_of(text["changed"], len(fresh))[i])
        urn = replace(gauge.urn, counts=counts[i])
        found.append(
            replace(gauge, urn=urn, e_process=e_process, places=places[i], total=float(totals[i]), changed=changed)
        )
    return tuple(found)


def _money(x: Array, bets: tuple[int, ...], e_processes: int) -> Array:
    """Logs of what is at work: below infinity, minus infinity for nothing."""
    if x.dtype != np.float64 or x.shape != (e_processes, *bets) or np.isnan(x).any() or (x == np.inf).any():
        raise ValueError(f"purses are {x.dtype} {x.shape}; they must be {e_processes} of {bets[0]} bets")
    return x


def _shaped(x: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    if x.dtype != dtype or x.shape != shape or not np.isfinite(x).all():
        raise ValueError(f"an array is {x.dtype} {x.shape}; it must be finite and of shape {shape}")
    return x


def _list_of(value: Any, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"{value!r} is no list of {count}")
    return value


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value
