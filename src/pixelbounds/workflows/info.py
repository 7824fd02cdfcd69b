"""What a file of this package is: its kind, what it promises or holds, how it was made, and its checksum.

Everything is read by the reader that would use it, so a file that is described here is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..calibration.calibration import Calibration
from ..calibration.calibration_file import calibration_from_bytes
from ..calibration.text import description_of
from ..formats.arrays import ABOUT, ARRAY_SUFFIXES, SOURCE, FilePath, Reading, is_store, parts_at, stated_by
from ..formats.maps import MAP_PARTS, written_scans
from ..formats.opener import kind_of_file, open_images
from ..images.library import differ_in_size
from ..monitoring.anytime import AnytimeCalibration
from ..monitoring.state_file import ANYTIME_STATE, monitor_from_bytes
from ..samplers.runs import open_run
from .roles import role_of, sealed_kind


@dataclass(frozen=True)
class About:
    """A file: its kind, what it is in one sentence, what it says of itself by name, and the calibration in it."""

    kind: str
    sentence: str
    facts: dict[str, Any]
    certified: Calibration | None = None


def about_file(path: FilePath) -> About:
    """Describe a calibration, an anytime one, a monitor, a network, a training state, a run, or a message of a site;
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
    readers |= {"monitor": _about_monitor, ANYTIME_STATE: _about_anytime}
    about = readers[kind](data, name) if kind in readers else _about_network(place, kind)
    return replace(about, facts={**about.facts, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})


def _about_calibration(data: bytes, name: str) -> About:
    calibration = calibration_from_bytes(data, name, family=None)
    words = description_of(calibration)
    facts = {"note": words.note or None, **_facts_of(calibration, *words.facts)}
    return About("calibration", words.guarantee, facts, calibration)


def _facts_of(calibration: Calibration, *names: str) -> dict[str, Any]:
    promises = [
        {"name": p.name, "kind": p.kind, "at_most": p.at_most, "seen": p.risk, "certifying": p.certifying}
        for p in calibration.promises
    ]
    facts = description_of(calibration).facts
    return {"promises": promises, **{name: facts[name] for name in names}}


def _about_anytime(data: bytes, name: str) -> About:
    anytime = AnytimeCalibration.from_bytes(data, name)
    start, certified = anytime.start, anytime.certified
    facts = {
        "images": anytime.images, "checks": len(anytime.checks), "min_images": anytime.min_images,
        "failure_probability": start.failure_prob, "limits": [float(x) for x in start.limits],
        "measure": None if start.measure is None else str(start.measure),
    }  # fmt: skip
    names = "method", "groups", "family", "image_shape", "bands", "seed", "made_by"
    facts |= {} if certified is None else _facts_of(certified, *names)
    return About(ANYTIME_STATE, repr(anytime), facts, certified)


def _about_monitor(data: bytes, name: str) -> About:
    monitor = monitor_from_bytes(data, name)
    calibration = monitor.calibration
    facts = {
        "calibration": calibration.guarantee, "images": monitor.with_truth.images,
        "drift_images": monitor.without_truth.images, "false_alarm": monitor.false_alarm,
        **_facts_of(calibration, "measure", "bands", "made_by"),
        "calibration_sha256": hashlib.sha256(calibration.to_bytes()).hexdigest(),
    }  # fmt: skip
    return About("monitor", str(monitor.status()), facts, calibration)


def _about_message(data: bytes, name: str) -> About:
    from ..federated.messages import message_of

    message = message_of(data, name)
    tables = {key: list(x.shape) for key, x in message.tables.items()}
    facts = {**_plain_values(message.text), "tables": tables}
    return About(message.kind, f"{message!r}", facts)


def _plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: x for key, x in values.items() if isinstance(x, str | int | float | bool)}


def _about_network(path: Path, kind: str) -> About:
    from ..diffusion.checkpoint import load_network, read

    if kind != "diffusion network":
        tensors, meta = read(path, kind)
        return About(kind, f"A {kind} of {len(tensors)} tensors; `train` resumes from it.", _plain_values(meta))
    network, sde, meta = load_network(path)
    weights = sum(x.numel() for x in network.parameters())
    facts = {"kind": meta["kind"], "weights": weights, "sde": vars(sde), "config": meta["config"], **meta["extra"]}
    what = f"A {meta['kind']} network of {weights:,} weights"
    if "members" in meta:
        facts["members"] = meta["members"]
        what = f"An ensemble of {meta['members']} score networks, {weights:,} weights together"
    return About("network", f"{what}; `sample` draws with it.", facts)


def _about_run(path: Path) -> About:
    run = open_run(path)
    done = int(run.done.sum())
    more = "" if done == len(run) else "; the same `sample` resumes it"
    digest = hashlib.sha256(json.dumps(run.about, sort_keys=True, default=str).encode()).hexdigest()
    facts = {
        "bands": {kind: str(run.source(kind)) for kind in run.kinds},
        **run.about,
        "measure": None if run.measure is None else str(run.measure),
        "sha256": f"{digest} of what the run says of itself; its chunks have checksums",
    }
    return About("run", f"A run of sample: {done} of {len(run)} images finished{more}.", facts)


def _about_data(path: Path) -> About:
    about, role = stated_by(path), role_of(path)
    if about and role != "intervals" and about.get("kind") != "bands":
        return _about_run(path)
    if path.suffix in ARRAY_SUFFIXES or is_store(path):
        arrays = {name: x for name, x in parts_at(path, Reading()).items() if name not in (ABOUT, SOURCE)}
        facts: dict[str, Any] = {"arrays": {name or "the array": _shape(x) for name, x in arrays.items()}}
    else:
        facts = _about_images(path)
    if role == "intervals":
        origin = {name: about.get(name) for name in ("limits", "calibration")} | {"made_by": about.get("version")}
        sentence = about.get("guarantee") or "Intervals that are calibrated already, as maps."
        return About("intervals", str(sentence), origin | facts)
    if role == "bands":
        sentence = "Bands, lower and upper: `calibrate` takes them with their truth, `apply` new ones."
        return About("bands", sentence, facts)
    return About("images", "Images: a truth is (n, *pixels), samples of each image are (n, m, *pixels).", facts)


def _shape(x: Any) -> str:
    if differ_in_size(x):
        return f"{len(x.shapes)} of different sizes, the first {' x '.join(map(str, x.shapes[0]))}"
    return f"{x.dtype} of shape {tuple(x.shape)}"


def _about_images(path: Path) -> dict[str, Any]:
    parts = [part for part in MAP_PARTS if written_scans(path, part)]
    images = {part or "images": open_images(path, window=None, part=part) for part in parts or (None,)}
    first = next(iter(images.values()))
    units = None if first.units is None else f"{len(set(map(str, first.units)))}, each a {first.unit_name or 'unit'}"
    measure = None if first.measure is None else str(first.measure)
    return {name: repr(x) for name, x in images.items()} | {"units": units, "measure": measure}
