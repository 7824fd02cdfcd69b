"""The one format of state files: a monitor or an anytime calibration as text and arrays, sealed with a checksum.

A file holds the calibration and, by its place in the state, each number that was counted since; all else is made anew
from the calibration. Whoever can write such a file can make it say anything; what is checked here is that it is whole
and well-formed, so that nothing in it indexes memory unchecked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.calibration_file import calibration_from_bytes
from ..calibration.families import Family
from ..calibration.losses import Loss
from ..calibration.paths.path import Path
from ..images.checks import check_count
from ..images.library import Array
from ..storage.files import check_new_file, read_file, replace_file, seal, unseal
from .evidence import Evidence
from .monitor import Monitor

_FORMAT = 3
ANYTIME_STATE, MONITOR = "anytime calibration", "monitor"
_AGAIN = {
    ANYTIME_STATE: "begin again, with the images that fitted",
    MONITOR: "begin a new one with the calibration file",
}
_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
_LARGEST = 2**53
_GROW = "history", "recent", "units", "batches", "image_hashes", "checks", "of_units", "of_images"  # rows, any number
_MADE_ANEW = {  # names of what the calibration says
    "start", "path", "promise", "name", "values", "ties", "pauses", "level", "failure_prob", "binary",
}  # fmt: skip
_COUNTED = "promises", "drift", "broken", "with_truth", "without_truth", "history"  # of a monitor
Arrays = dict[str, Array]


@contextmanager
def _state_in(data: bytes, name: str, kind: str) -> Iterator[tuple[dict[str, Any], Arrays]]:
    """Text and arrays of a state file; errors of what is made of them name the file and the remedy."""
    again = _AGAIN[kind]
    text, tensors = unseal(data, name, what=kind, remedy=again, again=again)
    if text.get("kind") != kind or text["format"] != _FORMAT:
        raise ValueError(f"{name!r} is not a {kind} of format {_FORMAT}; update pixelbounds, or {again}")
    try:
        yield text, tensors
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


def _calibration(tensors: Arrays, name: str, family: Family | None) -> Calibration:
    return calibration_from_bytes(_tensor(tensors, "calibration", np.uint8, None).tobytes(), name, family)


# ---------------------------------------------------------------- a state as arrays


def _parts(state: Any) -> dict[str, Any] | None:
    """What a tuple, a dict or a dataclass consists of, by name, but for what is made anew; None of a number."""
    if isinstance(state, tuple):
        return {str(i): x for i, x in enumerate(state)}
    named = vars(state) if is_dataclass(state) else state
    return {name: x for name, x in named.items() if name not in _MADE_ANEW} if isinstance(named, dict) else None


def _arrays_of(state: Any, place: str) -> Arrays:
    """All that was counted, as arrays by their place in the state."""
    parts = _parts(state)
    if parts is None:
        return {place: np.asarray(state)}
    return {key: x for name, part in parts.items() for key, x in _arrays_of(part, f"{place}.{name}").items()}


def _restored(state: Any, tensors: Arrays, place: str) -> Any:
    """A new state with what a file says was counted; whole numbers, of which there is one, are counts."""
    parts = _parts(state)
    if parts is not None:
        made = {name: _restored(part, tensors, f"{place}.{name}") for name, part in parts.items()}
        if is_dataclass(state):
            return replace(state, **made)  # type: ignore[type-var]
        return made if isinstance(state, dict) else tuple(made.values())
    new, name = np.asarray(state), place.rpartition(".")[2]
    x = _tensor(tensors, place, new.dtype, *((None, *new.shape[1:]) if name in _GROW else new.shape))
    if x.dtype == np.int64 and (name == "counts" or not x.ndim) and not ((x >= 0) & (x <= _LARGEST)).all():
        raise ValueError(f"{place} must lie in 0..2**53")
    return x if isinstance(state, np.ndarray) else x.item()


def monitor_bytes(monitor: Monitor) -> bytes:
    """The content of a monitor's file; equal monitors give equal bytes."""
    text = {"format": _FORMAT, "kind": MONITOR, "false_alarm": monitor.false_alarm}
    made = {"calibration": np.frombuffer(monitor.calibration.to_bytes(), np.uint8)}
    return seal(text, made | _arrays_of(_counted(monitor), "monitor"))


def _counted(monitor: Monitor) -> dict[str, Any]:
    return {name: getattr(monitor, name) for name in _COUNTED}


def save_monitor(monitor: Monitor, path: str | os.PathLike[str]) -> None:
    """Write a monitor's file, aside first and then in place."""
    if not isinstance(monitor, Monitor):
        raise TypeError(f"monitor is a {type(monitor).__name__}; give a pixelbounds.Monitor")
    replace_file(check_new_file(path, "monitor"), monitor_bytes(monitor))


def load_monitor(path: str | os.PathLike[str], *, loss: Loss | None = None, family: Family | None = None) -> Monitor:
    """Read what `save_monitor` wrote; a user's own loss and family must be given again, for a file holds no code."""
    return monitor_from_bytes(read_file(path, "monitor"), str(path), loss=loss, family=family)


def monitor_from_bytes(
    data: bytes, name: str = "file", *, loss: Loss | None = None, family: Family | None = None
) -> Monitor:
    """The monitor that the content of a file holds."""
    with _state_in(data, name, MONITOR) as (text, tensors):
        monitor = Monitor(_calibration(tensors, name, family), text["false_alarm"], loss=loss)
        vars(monitor).update(_restored(_counted(monitor), tensors, "monitor"))
    return monitor


def anytime_bytes(evidence: Evidence) -> bytes:
    """The evidence of an anytime calibration as a file; equal ones give equal bytes."""
    text = {"format": _FORMAT, "kind": ANYTIME_STATE, "usual": evidence.path.usual}
    made = {"calibration": np.frombuffer(evidence.start.to_bytes(), np.uint8), "points": evidence.path.points}
    return seal(text, made | _arrays_of(evidence, "evidence"))


def evidence_from_bytes(data: bytes, name: str = "file", family: Family | None = None) -> Evidence:
    """The evidence that a file holds."""
    with _state_in(data, name, ANYTIME_STATE) as (text, tensors):
        start = _calibration(tensors, name, family)
        points = _tensor(tensors, "points", np.float64, start.grouping.count, None)
        usual = check_count(text["usual"], "usual", least=0, most=points.shape[1] - 1)
        shares, hashes = np.zeros(len(points)), np.empty(0, np.uint64)
        new = Evidence.new(start, Path(points, start.grouping, usual), shares, hashes, None, np.zeros(8, np.int64))
        evidence: Evidence = _restored(new, tensors, "evidence")
        check_count(evidence.counted.images, "images", least=0, most=len(evidence.image_hashes))
    return evidence
