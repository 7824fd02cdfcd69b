"""A monitor as a state file, which holds its calibration too, and back."""

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
from ..kernels.bets import RunningMean, RunningRatio
from ..storage.files import check_new_file, replace_file
from .counted_batches import Batches
from .drift import BETS, DriftMartingale
from .monitor import Counted, Monitor
from .state_file import MONITOR, flags, read_state, state_bytes, tensor

_LARGEST = 2**53


def monitor_bytes(monitor: Monitor) -> bytes:
    """The content of a monitor's file; equal monitors give equal bytes."""
    promises, drift = monitor.promises, monitor.drift
    text = {
        "false_alarm": monitor.false_alarm, "broken": [monitor.broken, *(x.broken for x in promises)],
        "changed": [x.changed for x in drift], "rounds": drift[0].e_process.rounds if drift else 0,
    }  # fmt: skip
    tensors: dict[str, Array] = {
        "calibration": np.frombuffer(monitor.calibration.to_bytes(), np.uint8),
        "history": monitor.history,
        "promises": np.stack([x.e_process.log_stakes for x in promises]),
        "risk": np.array([[part.total, part.squares] for x in promises for part in (x.risk.top, x.risk.bottom)]),
        "units": np.array([x.e_process.rounds for x in promises], np.int64),
    }
    if drift:
        tensors |= {
            "drift": np.stack([x.e_process.log_stakes for x in drift]),
            "counts": np.stack([x.ranks.counts for x in drift]),
            "recent": np.stack([x.recent for x in drift]),
            "totals": np.array([x.total for x in drift]),
        }
    for name, counted in (("with_truth", monitor.with_truth), ("without_truth", monitor.without_truth)):
        text[f"{name}.images"] = counted.images
        tensors[f"{name}.units"] = np.array(list(counted.units), np.uint64)
        tensors[f"{name}.batches"] = counted.batches.digests
    return state_bytes(MONITOR, text, tensors)


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

    def build(text: dict[str, Any], tensors: dict[str, Array]) -> Monitor:
        content = tensor(tensors, "calibration", np.uint8, None).tobytes()
        monitor = Monitor(calibration_from_bytes(content, name, family), text["false_alarm"], loss=loss)
        _restore_promises(monitor, text, tensors)
        if monitor.drift:
            monitor.drift = _restored_drift(monitor.drift, text, tensors)
        monitor.with_truth = _counted("with_truth", text, tensors)
        monitor.without_truth = _counted("without_truth", text, tensors)
        monitor.history = tensor(tensors, "history", np.float64, None, monitor.history.shape[1])
        return monitor

    return read_state(data, name, MONITOR, build)


def _restore_promises(monitor: Monitor, text: dict[str, Any], tensors: dict[str, Array]) -> None:
    count, bets = len(monitor.promises), len(monitor.promises[0].e_process.pauses)
    stakes = tensor(tensors, "promises", np.float64, count, bets)
    sums = tensor(tensors, "risk", np.float64, 2 * count, 2).tolist()
    rounds = tensor(tensors, "units", np.int64, count).tolist()
    monitor.broken, *broken = flags(text["broken"], 1 + count)
    restored = []
    for j, one in enumerate(monitor.promises):
        n = check_count(rounds[j], "units", least=0, most=_LARGEST)
        e_process = replace(one.e_process, log_stakes=stakes[j], rounds=n)
        risk = RunningRatio(RunningMean(n, *sums[2 * j]), RunningMean(n, *sums[2 * j + 1]))
        restored.append(replace(one, e_process=e_process, risk=risk, broken=broken[j]))
    monitor.promises = tuple(restored)


def _restored_drift(
    new: tuple[DriftMartingale, ...], text: dict[str, Any], tensors: dict[str, Array]
) -> tuple[DriftMartingale, ...]:
    count = len(new)
    rounds = check_count(text["rounds"], "rounds", least=0, most=_LARGEST)
    changed = flags(text["changed"], count)
    stakes = tensor(tensors, "drift", np.float64, count, BETS)
    counts = tensor(tensors, "counts", np.int64, count, len(new[0].ranks.counts))
    recent = tensor(tensors, "recent", np.float64, count, None)
    totals = tensor(tensors, "totals", np.float64, count).tolist()
    if counts.min() < 0 or counts.max() > _LARGEST:
        raise ValueError("counts must lie in 0..2**53")
    return tuple(
        replace(
            one, ranks=replace(one.ranks, counts=counts[i]), total=totals[i], changed=changed[i], recent=recent[i],
            e_process=replace(one.e_process, log_stakes=stakes[i], rounds=rounds),
        )
        for i, one in enumerate(new)
    )  # fmt: skip


def _counted(name: str, text: dict[str, Any], tensors: dict[str, Array]) -> Counted:
    units = tensor(tensors, f"{name}.units", np.uint64, None).tolist()
    images = check_count(text[f"{name}.images"], "images", least=0, most=_LARGEST)
    return Counted(images, dict.fromkeys(units), Batches(tensor(tensors, f"{name}.batches", np.uint64, None, 2)))
