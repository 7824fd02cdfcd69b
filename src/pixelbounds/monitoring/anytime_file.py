"""An anytime calibration as a state file: what it is about, its path and its evidence, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calibration.calibration import Calibration, calibration_from_bytes
from ..calibration.families import Family
from ..calibration.paths.path import Path
from ..calibration.provenance import STATISTICS
from ..images.checks import check_count
from ..images.library import Array
from ..kernels.bets import HORIZONS, PathEProcess
from .counted_batches import Batches
from .evidence import Evidence
from .state_file import ANYTIME_STATE, flags, read_state, state_bytes, tensor

_AT_POINTS = ("total", "squares", "max_wealth")
State = tuple[Calibration, Path, Array, Evidence, bool]


def anytime_bytes(start: Calibration, path: Path, shares: Array, evidence: Evidence, *, by_unit: bool) -> bytes:
    """A state as a file; equal ones give equal bytes."""
    e_processes = evidence.e_processes
    tensors = {name: np.stack([getattr(x, name) for x in e_processes]) for name in ("wealth", *_AT_POINTS)}
    tensors |= {
        "start": np.frombuffer(start.to_bytes(), np.uint8), "points": path.points, "shares": shares,
        "counts": np.array([x.count for x in e_processes], np.int64), "weights": evidence.weights,
        "image_hashes": evidence.image_hashes, "units": evidence.units, "digest": evidence.digest,
        "checks": evidence.checks, "of_units": evidence.of_units, "of_images": evidence.of_images,
        "batches": evidence.batches.digests,
    }  # fmt: skip
    text = {
        "by_unit": [by_unit], "usual": path.usual, "fitting": evidence.fitting, "certifying": evidence.certifying,
    }  # fmt: skip
    return state_bytes(ANYTIME_STATE, text, tensors)


def anytime_from_bytes(data: bytes, name: str = "file", family: Family | None = None) -> State:
    """The state that a file holds."""

    def build(text: dict[str, Any], tensors: dict[str, Array]) -> State:
        start = calibration_from_bytes(tensor(tensors, "start", np.uint8, None).tobytes(), name, family)
        groups = start.grouping.count
        points = tensor(tensors, "points", np.float64, groups, None)
        usual = check_count(text["usual"], "usual", least=0, most=points.shape[1] - 1)
        shares = tensor(tensors, "shares", np.float64, groups)
        evidence = _evidence_of(text, tensors, start, points.shape[1])
        return start, Path(points, start.grouping, usual), shares, evidence, flags(text["by_unit"], 1)[0]

    return read_state(data, name, ANYTIME_STATE, build)


def _evidence_of(text: dict[str, Any], tensors: dict[str, Array], start: Calibration, points: int) -> Evidence:
    count = len(start.promises)
    wealth = tensor(tensors, "wealth", np.float64, count, HORIZONS, points)
    at_points = {name: tensor(tensors, name, np.float64, count, points) for name in _AT_POINTS}
    counts = tensor(tensors, "counts", np.int64, count).tolist()
    e_processes = tuple(
        PathEProcess(
            promise.level, start.failure_prob, counts[j], wealth[j], binary=promise.kind == "tail",
            **{name: x[j] for name, x in at_points.items()},
        )
        for j, promise in enumerate(start.promises)
    )  # fmt: skip
    hashes = tensor(tensors, "image_hashes", np.uint64, None)
    described = [tensor(tensors, name, np.float32, None, len(STATISTICS)) for name in ("of_units", "of_images")]
    fitting, certifying = (
        check_count(text[name], name, least=0, most=len(hashes)) for name in ("fitting", "certifying")
    )
    return Evidence(
        e_processes, tensor(tensors, "weights", np.float64, count), fitting, certifying, hashes,
        tensor(tensors, "units", np.uint64, None), tensor(tensors, "digest", np.int64, 8),
        tensor(tensors, "checks", np.int64, None, 3), described[0], described[1],
        Batches(tensor(tensors, "batches", np.uint64, None, 2)),
    )  # fmt: skip
