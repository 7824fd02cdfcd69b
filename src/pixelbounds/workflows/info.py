"""What a file of this package is: its kind, what it promises or holds, how it was made, and its checksum.

Everything is read by the reader that would use it, so a file that is described here is whole.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..calibration.reader import calibration_from_bytes
from ..calibration.result import Calibration
from ..calibration.sentence import plural
from ..federated.messages import message_of
from ..formats.runs import open_run
from ..images.source import Source
from ..monitoring.grown import GrowingCalibration
from ..monitoring.grown_file import GROWING
from ..monitoring.sealed import monitor_from_bytes
from .roles import sealed_kind


@dataclass(frozen=True)
class About:
    """A file: its kind, what it is in one sentence, and what it says of itself by name."""

    kind: str
    sentence: str
    facts: dict[str, Any]


def about_file(path: str | os.PathLike[str]) -> About:
    """Describe a calibration, a growing one, a monitor, a network, a training state, a run, or a message of a site."""
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"{place} does not exist; give a file or a run that pixelbounds wrote")
    if place.is_dir():
        return _about_run(place)
    data = place.read_bytes()
    name = str(place)
    kind = sealed_kind(data, name)
    readers = {"calibration": _about_calibration, "message": _about_message}
    readers |= {"monitor": _about_monitor, GROWING: _about_growing}
    found = readers.get(kind)
    about = _about_network(place, kind) if found is None else found(data, name)
    facts = {**about.facts, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return About(about.kind, about.sentence, facts)


def _about_calibration(data: bytes, name: str) -> About:
    found = calibration_from_bytes(data, name, family=None)
    return About("calibration", found.guarantee, calibration_facts(found))


def calibration_facts(found: Calibration) -> dict[str, Any]:
    """How a calibration was made, by name."""
    record = found.record
    units = f" of {record.units} certifying {plural(record.unit_name)}" if record.units else ""
    return {
        "note": found.note or None,
        "method": f"{found.method}, {found.confidence}, {found.grouping.count} groups of kind {found.grouping.kind}",
        "family": found.family.name,
        "promises": [
            {"name": p.name, "kind": p.kind, "at_most": p.at_most, "seen": p.risk, "certifying": p.certifying}
            for p in found.promises
        ],
        "failure_prob": found.failure_prob,
        "images": f"{record.images}{units}: {record.fitting} fitted, {record.certifying} certified",
        "image_shape": list(record.pixels),
        "limits": [float(x) for x in found.limits],
        "measure": None if found.measure is None else str(found.measure),
        "bands": _source_text(record.source),
        "seed": record.seed,
        "made_by": f"pixelbounds {record.version}",
        "images_digest": record.digest,
    }


def _about_growing(data: bytes, name: str) -> About:
    found = GrowingCalibration.from_bytes(data, name)
    now = found.certified
    facts = {
        "images": found.images,
        "looks": len(found.looks),
        "least": found.least,
        "failure_prob": found.failure_prob,
    }
    return About(
        GROWING, repr(found), facts | ({} if now is None else {"promises": calibration_facts(now)["promises"]})
    )


def _about_monitor(data: bytes, name: str) -> About:
    found = monitor_from_bytes(data, name)
    facts = {
        "watches": found.calibration.guarantee,
        "images": found.images,
        "looked": found.looked,
        "false_alarm": found.false_alarm,
    }
    return About("monitor", str(found.status()), facts)


def _about_message(data: bytes, name: str) -> About:
    found = message_of(data, name)
    said = {key: x for key, x in found.text.items() if isinstance(x, str | int | float | bool)}
    tables = {key: list(x.shape) for key, x in found.tables.items()}
    return About(found.kind, f"{found!r}", {**said, "tables": tables, "authenticated": bool(found.mac)})


def _about_network(path: Path, kind: str) -> About:
    from ..diffusion.checkpoint import load_network, read

    if kind != "diffusion network":
        tensors, meta = read(path, kind)
        numbers = {key: x for key, x in meta.items() if isinstance(x, str | int | float | bool)}
        return About(kind, f"A {kind} of {len(tensors)} tensors; `train` goes on from it.", numbers)
    network, sde, meta = load_network(path)
    weights = sum(x.numel() for x in network.parameters())
    facts = {"kind": meta["kind"], "weights": weights, "sde": vars(sde), "config": meta["config"], **meta["extra"]}
    return About("network", f"A {meta['kind']} network of {weights:,} weights; `sample` draws with it.", facts)


def _about_run(path: Path) -> About:
    run = open_run(path)
    done = int(run.done.sum())
    more = "" if done == len(run) else "; the same `sample` goes on with it"
    sentence = f"A run of sample: {done} of {len(run)} images finished{more}."
    facts = {"bands": {kind: _source_text(run.source(kind)) for kind in run.kinds}, **run.about}
    facts["measure"] = None if run.measure is None else str(run.measure)
    return About("run", sentence, facts)


def _source_text(source: Source) -> str:
    return str(source) if source.known else "not known how they were made"
