"""What a file of this package is: its kind, what it promises or holds, how it was made, and its checksum.

Everything is read by the reader that would use it, so a file that is described here is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..calibration.calibration import Calibration, calibration_from_bytes
from ..calibration.sentence import plural
from ..federated.messages import message_of
from ..formats.arrays import ABOUT, ARRAY_SUFFIXES, SOURCE, Reading, is_store, parts_at, told
from ..formats.maps import MAP_PARTS
from ..formats.opener import kind_of_file, open_images
from ..formats.runs import open_run
from ..images.library import differ_in_size
from ..images.source import Source
from ..monitoring.anytime import AnytimeCalibration
from ..monitoring.anytime_file import ANYTIME_FILE
from ..monitoring.sealed import monitor_from_bytes
from .roles import role_of, sealed_kind


@dataclass(frozen=True)
class About:
    """A file: its kind, what it is in one sentence, and what it says of itself by name."""

    kind: str
    sentence: str
    facts: dict[str, Any]


def about_file(path: str | os.PathLike[str]) -> About:
    """Describe a calibration, a growing one, a monitor, a network, a training state, a run, or a message of a site;
    of arrays and images what they hold, and of intervals what is guaranteed.
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"{place} does not exist; give a file or a run that pixelbounds wrote, or images")
    if place.is_dir() or place.suffix in ARRAY_SUFFIXES or kind_of_file(place):
        return _about_data(place)
    data = place.read_bytes()
    name = str(place)
    kind = sealed_kind(data, name)
    readers = {"calibration": _about_calibration, "message": _about_message}
    readers |= {"monitor": _about_monitor, ANYTIME_FILE: _about_growing}
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
    who = plural(record.unit_name) if record.units else "images"
    return {
        "note": found.note or None,
        "method": f"{found.method}, {found.bound}, {found.grouping.count} groups of kind {found.grouping.kind}",
        "family": found.family.name,
        "promises": [
            {"name": p.name, "kind": p.kind, "at_most": p.at_most, "seen": p.risk, "certifying": p.certifying}
            for p in found.promises
        ],
        "failure_prob": found.failure_prob,
        "images": f"{record.images}: {record.fitting} images fitted, {record.certifying} {who} certified",
        "image_shape": list(record.pixels),
        "limits": [float(x) for x in found.limits],
        "measure": None if found.measure is None else str(found.measure),
        "bands": _source_text(record.source),
        "seed": record.seed,
        "made_by": f"pixelbounds {record.version}",
        "images_digest": record.digest,
    }


def _about_growing(data: bytes, name: str) -> About:
    found = AnytimeCalibration.from_bytes(data, name)
    now = found.certified
    facts = {
        "images": found.images,
        "looks": len(found.looks),
        "least": found.least,
        "failure_prob": found.failure_prob,
        "limits": [float(x) for x in found.limits],
        "measure": None if found.measure is None else str(found.measure),
    }
    made = {} if now is None else calibration_facts(now)
    kept = ("promises", "method", "family", "image_shape", "bands", "seed", "made_by")
    return About(ANYTIME_FILE, repr(found), facts | {name: made[name] for name in kept if name in made})


def _about_monitor(data: bytes, name: str) -> About:
    found = monitor_from_bytes(data, name)
    facts = {
        "watches": found.calibration.guarantee,
        "images": found.images,
        "looked": found.looked,
        "false_alarm": found.false_alarm,
    }
    of = calibration_facts(found.calibration)
    facts |= {name: of[name] for name in ("promises", "measure", "bands", "made_by")}
    facts["calibration_sha256"] = hashlib.sha256(found.calibration.to_bytes()).hexdigest()
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
    what = f"A {meta['kind']} network of {weights:,} weights"
    if "members" in meta:
        facts |= {"members": meta["members"], "symmetries": meta["symmetries"]}
        what = f"An ensemble of {meta['members']} score networks, {weights:,} weights together"
    return About("network", f"{what}; `sample` draws with it.", facts)


def _about_run(path: Path) -> About:
    run = open_run(path)
    done = int(run.done.sum())
    more = "" if done == len(run) else "; the same `sample` goes on with it"
    sentence = f"A run of sample: {done} of {len(run)} images finished{more}."
    facts = {"bands": {kind: _source_text(run.source(kind)) for kind in run.kinds}, **run.about}
    facts["measure"] = None if run.measure is None else str(run.measure)
    said = json.dumps(run.about, sort_keys=True, default=str).encode()
    facts["sha256"] = f"{hashlib.sha256(said).hexdigest()} of what the run says of itself; its chunks have checksums"
    return About("run", sentence, facts)


def _about_data(path: Path) -> About:
    """Arrays, maps or images: a run, intervals, bands, or images with their units."""
    about = told(path)
    role = role_of(path)
    if about and role != "intervals" and about.get("kind") != "bands":
        return _about_run(path)
    if path.suffix in ARRAY_SUFFIXES or is_store(path):
        facts: dict[str, Any] = {"arrays": {name or "the array": _shape(x) for name, x in _arrays(path).items()}}
    else:
        facts = _about_images(path)
    if role == "intervals":
        known = {
            "limits": about.get("limits"),
            "calibration": about.get("calibration"),
            "made_by": about.get("version"),
        }
        sentence = about.get("guarantee") or "Intervals that are calibrated already, as maps."
        return About("intervals", str(sentence), known | facts)
    if role == "bands":
        return About(
            "bands", "Bands, lower and upper: `calibrate` takes them with their truth, `apply` new ones.", facts
        )
    said = "Images: a truth is (n, *pixels), samples of each image are (n, m, *pixels)."
    return About("images", said, facts)


def _arrays(path: Path) -> dict[str, Any]:
    return {name: x for name, x in parts_at(path, Reading()).items() if name not in (ABOUT, SOURCE)}


def _shape(x: Any) -> str:
    if differ_in_size(x):
        return f"{len(x.shapes)} of different sizes, the first {' x '.join(map(str, x.shapes[0]))}"
    return f"{x.dtype} of shape {tuple(x.shape)}"


def _about_images(path: Path) -> dict[str, Any]:
    """What a file or folder of images holds, part by part where it holds lower and upper."""
    parts = sorted(x for x in path.iterdir() if x.name in MAP_PARTS) if path.is_dir() else []
    found = {x.name: open_images(x, window=None) for x in parts} or {"images": open_images(path, window=None)}
    first = next(iter(found.values()))
    whose = None if first.units is None else f"{len(set(map(str, first.units)))}, each a {first.unit_name or 'unit'}"
    measure = None if first.measure is None else str(first.measure)
    return {name: repr(images) for name, images in found.items()} | {"units": whose, "measure": measure}


def _source_text(source: Source) -> str:
    return str(source) if source.known else "not known how they were made"
