"""The one format of state files: a monitor or an anytime calibration as text and arrays, sealed with a checksum.

Whoever can write such a file can make it say anything; what is checked here is that it is whole and well-formed, so
that nothing in it indexes memory unchecked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..calibration.calibration import Calibration, calibration_from_bytes
from ..calibration.families import Family
from ..calibration.losses import Loss
from ..calibration.paths.path import Path
from ..calibration.provenance import STATISTICS
from ..images.checks import check_count
from ..images.library import Array
from ..kernels.bets import HORIZONS, PathEProcess, RunningMean, RunningRatio
from ..storage.files import check_new_file, read_file, replace_file, seal, unseal
from .arrivals import Counted
from .evidence import Evidence
from .monitor import Monitor

_FORMAT = 2
ANYTIME_STATE, MONITOR = "anytime calibration", "monitor"
_AGAIN = {
    ANYTIME_STATE: "begin again, with the images that fitted",
    MONITOR: "begin a new one with the calibration file",
}
_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
_LARGEST = 2**53
_AT_POINTS = ("total", "squares", "max_wealth")
_OF_BANDS = ("of_units", "of_images")
_AS_THEY_ARE = ("shares", "weights", "image_hashes", "digest", "checks", *_OF_BANDS)
_GROW = {"history": 0, "recent": 1, "units": 0, "batches": 0}  # the axis of which the length is free

State = TypeVar("State")
Arrays = dict[str, Array]


def _read_state(data: bytes, name: str, kind: str, build: Callable[[dict[str, Any], Arrays], State]) -> State:
    """What `build` makes of the text and the arrays of a state file; errors name the file and the remedy."""
    again = _AGAIN[kind]
    text, tensors = unseal(data, name, what=kind, remedy=again, again=again)
    if text.get("kind") != kind or text["format"] != _FORMAT:
        raise ValueError(f"{name!r} is not a {kind} of format {_FORMAT}; update pixelbounds, or {again}")
    try:
        return build(text, tensors)
    except _ERRORS as error:
        why = f"{error!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{name!r} is not a valid {kind}: {why}; {again}") from error


def _tensor(tensors: Mapping[str, Array], name: str, dtype: Any, *shape: int | None) -> Array:
    """An array of a file of this type and shape; None stands for any length."""
    x = tensors[name]
    fits = x.ndim == len(shape) and all(want in (None, size) for want, size in zip(shape, x.shape, strict=True))
    if x.dtype != dtype or not fits or (x.dtype.kind == "f" and np.isnan(x).any()):
        raise ValueError(f"{name} is {x.dtype} {x.shape}; it must be {np.dtype(dtype)} {shape} without NaN")
    return x


def _sealed_calibration(calibration: Calibration) -> Array:
    return np.frombuffer(calibration.to_bytes(), np.uint8)


def _calibration(tensors: Arrays, name: str, family: Family | None) -> Calibration:
    return calibration_from_bytes(_tensor(tensors, "calibration", np.uint8, None).tobytes(), name, family)


# ---------------------------------------------------------------- monitors


def _arrays(monitor: Monitor) -> Arrays:
    """All that a monitor has counted, as arrays."""
    promises, drift = monitor.promises, monitor.drift
    e_processes = [x.e_process for x in promises] + [x.e_process for x in drift[:1]]
    arrays: Arrays = {
        "history": monitor.history,
        "promises": np.stack([x.e_process.log_stakes for x in promises]),
        "risk": np.array([[part.total, part.squares] for x in promises for part in (x.risk.top, x.risk.bottom)]),
        "rounds": np.array([x.rounds for x in e_processes], np.int64),
        "flags": np.array([monitor.broken, *(x.broken for x in promises), *(x.changed for x in drift)]),
    }
    if drift:
        arrays |= {
            "drift": np.stack([x.e_process.log_stakes for x in drift]),
            "counts": np.stack([x.ranks.counts for x in drift]),
            "recent": np.stack([x.recent for x in drift]),
            "totals": np.array([x.total for x in drift]),
        }
    for name, counted in (("with_truth", monitor.with_truth), ("without_truth", monitor.without_truth)):
        arrays |= {f"{name}.{key}": np.asarray(value) for key, value in vars(counted).items()}
    return arrays


def monitor_bytes(monitor: Monitor) -> bytes:
    """The content of a monitor's file; equal monitors give equal bytes."""
    text = {"format": _FORMAT, "kind": MONITOR, "false_alarm": monitor.false_alarm}
    return seal(text, {"calibration": _sealed_calibration(monitor.calibration), **_arrays(monitor)})


def save_monitor(monitor: Monitor, path: str | os.PathLike[str]) -> None:
    """Write a monitor's file, aside first and then in place."""
    if not isinstance(monitor, Monitor):
        raise TypeError(f"monitor is a {type(monitor).__name__}; give a pixelbounds.Monitor")
    target = check_new_file(path, "monitor")
    replace_file(target, monitor_bytes(monitor))


def load_monitor(path: str | os.PathLike[str], *, loss: Loss | None = None, family: Family | None = None) -> Monitor:
    """Read what `save_monitor` wrote; a user's own loss and family must be given again, for a file holds no code."""
    return monitor_from_bytes(read_file(path, "monitor"), str(path), loss=loss, family=family)


def monitor_from_bytes(
    data: bytes, name: str = "file", *, loss: Loss | None = None, family: Family | None = None
) -> Monitor:
    """The monitor that the content of a file holds."""

    def build(text: dict[str, Any], tensors: Arrays) -> Monitor:
        monitor = Monitor(_calibration(tensors, name, family), text["false_alarm"], loss=loss)
        arrays = {key: _like(tensors, key, x) for key, x in _arrays(monitor).items()}
        _restore(monitor, arrays)
        return monitor

    return _read_state(data, name, MONITOR, build)


def _like(tensors: Arrays, name: str, new: Array) -> Array:
    """An array of a file as that of a new monitor is; whole numbers are counts."""
    free = _GROW.get(name.rpartition(".")[2], -1)
    x = _tensor(tensors, name, new.dtype, *(None if axis == free else size for axis, size in enumerate(new.shape)))
    if x.dtype == np.int64 and not ((x >= 0) & (x <= _LARGEST)).all():
        raise ValueError(f"{name} must lie in 0..2**53")
    return x


def _restore(monitor: Monitor, arrays: Arrays) -> None:
    """Give a new monitor what another one has counted."""
    count, flags, rounds = len(monitor.promises), arrays["flags"].tolist(), arrays["rounds"].tolist()
    sums = arrays["risk"].reshape(count, 2, 2).tolist()
    monitor.history, monitor.broken = arrays["history"], flags[0]
    monitor.promises = tuple(
        replace(
            one, broken=flags[1 + j], risk=RunningRatio(*(RunningMean(rounds[j], *part) for part in sums[j])),
            e_process=replace(one.e_process, log_stakes=arrays["promises"][j], rounds=rounds[j]),
        )
        for j, one in enumerate(monitor.promises)
    )  # fmt: skip
    monitor.drift = tuple(
        replace(
            one, ranks=replace(one.ranks, counts=arrays["counts"][i]), recent=arrays["recent"][i],
            e_process=replace(one.e_process, log_stakes=arrays["drift"][i], rounds=rounds[count]),
            total=float(arrays["totals"][i]), changed=flags[1 + count + i],
        )
        for i, one in enumerate(monitor.drift)
    )  # fmt: skip
    monitor.with_truth, monitor.without_truth = (
        Counted(int(arrays[f"{name}.images"]), arrays[f"{name}.units"], arrays[f"{name}.batches"])
        for name in ("with_truth", "without_truth")
    )


# ---------------------------------------------------------------- anytime calibrations


def anytime_bytes(evidence: Evidence) -> bytes:
    """The evidence of an anytime calibration as a file; equal ones give equal bytes."""
    e_processes, counted, path = evidence.e_processes, evidence.counted, evidence.path
    tensors = {name: np.stack([getattr(x, name) for x in e_processes]) for name in ("wealth", *_AT_POINTS)}
    tensors |= {name: getattr(evidence, name) for name in _AS_THEY_ARE}
    tensors |= {
        "calibration": _sealed_calibration(evidence.start), "points": path.points,
        "counts": np.array([x.count for x in e_processes], np.int64),
        "units": counted.units, "batches": counted.batches, "by_unit": np.array(evidence.by_unit),
    }  # fmt: skip
    numbers = {"usual": path.usual, "certifying": evidence.certifying, "images": counted.images}
    return seal({"format": _FORMAT, "kind": ANYTIME_STATE, **numbers}, tensors)


def evidence_from_bytes(data: bytes, name: str = "file", family: Family | None = None) -> Evidence:
    """The evidence that a file holds."""

    def build(text: dict[str, Any], tensors: Arrays) -> Evidence:
        start = _calibration(tensors, name, family)
        groups, count = start.grouping.count, len(start.promises)
        points = _tensor(tensors, "points", np.float64, groups, None)
        steps = points.shape[1]
        usual = check_count(text["usual"], "usual", least=0, most=steps - 1)
        wealth = _tensor(tensors, "wealth", np.float64, count, HORIZONS, steps)
        total, squares, greatest = (_tensor(tensors, key, np.float64, count, steps) for key in _AT_POINTS)
        counts = _tensor(tensors, "counts", np.int64, count).tolist()
        e_processes = tuple(
            PathEProcess(
                promise.level, start.failure_prob, counts[j], wealth[j], total[j], squares[j], greatest[j],
                promise.kind == "tail",
            )
            for j, promise in enumerate(start.promises)
        )  # fmt: skip
        hashes = _tensor(tensors, "image_hashes", np.uint64, None)
        images, certifying = (check_count(text[x], x, least=0, most=len(hashes)) for x in ("images", "certifying"))
        units, batches = _tensor(tensors, "units", np.uint64, None), _tensor(tensors, "batches", np.uint64, None, 2)
        of_units, of_images = (_tensor(tensors, x, np.float32, None, len(STATISTICS)) for x in _OF_BANDS)
        return Evidence(
            start, Path(points, start.grouping, usual), _tensor(tensors, "shares", np.float64, groups),
            bool(_tensor(tensors, "by_unit", bool)), e_processes, _tensor(tensors, "weights", np.float64, count),
            Counted(images, units, batches), certifying, hashes, _tensor(tensors, "digest", np.int64, 8),
            _tensor(tensors, "checks", np.int64, None, 3), of_units, of_images,
        )  # fmt: skip

    return _read_state(data, name, ANYTIME_STATE, build)
