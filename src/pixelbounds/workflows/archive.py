"""New series of an archive, each once: fetched, sampled, widened, counted by a monitor, and sent back as maps.

A folder remembers what was done. Every step leaves its result there whole or not at all, or changes nothing when it is
repeated: an interrupted run resumes, a monitor counts a batch once, maps have the same identifiers again, and what the
archive has is not sent. So a call that is killed at any moment loses nothing and sends nothing twice: call again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..calibration.calibration_file import load_calibration
from ..execution.runner import running
from ..formats.arrays import FilePath, Reading
from ..formats.dicom import dicom_files
from ..formats.dicomweb import SeriesAddress, fetch_series, search_series
from ..formats.scans import needed
from ..monitoring import Status, load_monitor
from ..storage.files import exclusive, replace_file, strict_json
from .agreement import reading_for
from .apply import apply_files, bands_for
from .monitor import held_state
from .request import ApplyOptions, Resources, SampleOptions
from .sample import sample_files

STATE = "monitor.safetensors"
_LEDGER = "series.json"  # of each series: instances; `waiting`, `done` or why it was refused; digest of the settings
_WAITING, _DONE = "waiting", "done"


@dataclass(frozen=True)
class ArchiveLook:
    """Series that were done now, those that wait for the next look, those that were refused and why; the monitor."""

    done: tuple[str, ...]
    waiting: tuple[str, ...]
    refused: Mapping[str, str]
    sent: int
    status: Status


def look_at_archive(
    calibration: FilePath, network: str, archive: str, work: FilePath, options: SampleOptions = SampleOptions(), *,
    match: Mapping[str, str], maps: ApplyOptions = ApplyOptions(), resources: Resources = Resources(),
) -> ArchiveLook:  # fmt: skip
    """Do the series that match and had as many instances at the last look, so that they have arrived."""
    maps = replace(maps, send=maps.send or archive)
    ledger, under_way = Path(work) / _LEDGER, Path(work) / "series"
    under_way.mkdir(parents=True, exist_ok=True)
    done, waiting, refused, sent = [], [], {}, 0
    asked = repr((Path(calibration).read_bytes(), network, options, maps))
    settings = hashlib.sha256(asked.encode()).hexdigest()[:16]  # with others a refused series is tried again
    with exclusive(under_way):
        with held_state(ledger.with_name(STATE), calibration, None):  # one of another calibration is refused now
            pass
        known: dict[str, list[Any]] = strict_json(ledger.read_bytes()) if ledger.exists() else {}
        for address, count in search_series(archive, match).items():
            uid = address.series
            before = known.get(uid, [0, _WAITING, settings])
            instances, state, tried = before
            if instances != count:
                waiting.append(uid)
                state = _WAITING
            elif state == _WAITING or (state != _DONE and tried != settings):
                try:
                    place = under_way / uid / f"{count} {settings}"
                    sent += _do(calibration, network, address, count, place, options, maps, resources)
                    state = _DONE
                    done.append(uid)
                except OSError:  # of the archive, or of this machine: no fault of the series
                    raise
                except ValueError as error:
                    state = refused[uid] = str(error)
            known[uid] = [count, state, settings]
            if known[uid] != before:
                replace_file(ledger, json.dumps(known, indent=1).encode())
            if state != _WAITING:
                shutil.rmtree(under_way / uid, ignore_errors=True)
        status = load_monitor(ledger.with_name(STATE)).status()
    return ArchiveLook(tuple(done), tuple(waiting), refused, sent, status)


def _do(
    calibration: FilePath, network: str, address: SeriesAddress, count: int, place: Path, options: SampleOptions,
    maps: ApplyOptions, resources: Resources,
) -> int:  # fmt: skip
    """Do one series in a folder of its own; how many objects were sent."""
    place.mkdir(parents=True, exist_ok=True)
    images, run, out = place / "images", place / "run.zarr", place / "maps"
    if not images.is_dir():
        fetch_series(address, images)
    seen = reading_for(load_calibration(calibration), Reading())
    seed = int.from_bytes(hashlib.sha256(address.series.encode()).digest()[:4])  # draws of each series are its own
    sample_files(network, images, run, replace(options, seed=seed), window=seen.mapping)
    done = apply_files(calibration, run, out, replace(maps, like=images), replace=True, resources=resources)
    patient = needed("pydicom").dcmread(dicom_files(images)[0], stop_before_pixels=True).get("PatientID")
    state = place.parents[2] / STATE
    with held_state(state, calibration, None) as monitor, running(**vars(resources)) as execution:
        band, _ = bands_for(monitor.calibration, run, Reading(), execution).whole(execution, None)
        units = [str(patient or address.series)] * len(band) if monitor.calibration.record.units else None
        monitor.check_drift(band, units=units, batch=f"{address.series} {count}", when=time.time())
    return done.sent or 0
