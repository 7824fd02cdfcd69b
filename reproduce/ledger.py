"""Finished draws on disk: one JSON per draw and group of rows, written aside and renamed, never computed twice.

They lie in a folder named after the configuration, the digest of the material and the digest of the source that
computes them, so that draws of another configuration, of other arrays or of other code are never mixed up; nothing is
deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import pixelbounds
from pixelbounds.storage.files import replace_file
from pixelbounds.storage.version import VERSION

from .draws import DrawRecord, compute, schedule
from .experiment import Experiment
from .material import Material, load_material

_MEMORY = 2**32  # bytes of arrays that all worker processes may hold together
PartKey = tuple[int, str]  # draw, group
COMPUTING = ("draws", "experiment", "fits", "material", "rows")
ROOMS = ("calibration", "images", "kernels", "storage")
PACKAGES = ("numpy", "scipy", "numba", "lightgbm")
PartsDone = Callable[[int, int, str], None]  # called with finished parts, their total and what is next
Teller = Callable[[str], None]  # called with a line for the user


class Ledger:
    """The folder of the finished draws of one experiment on one material."""

    def __init__(self, experiment: Experiment, material: Material, out: Path) -> None:
        self.experiment = experiment
        self.material = material
        self.folder = out / f"draws-{experiment.fingerprint(material.digest, source_digest())}"

    def path(self, draw: int, group: str) -> Path:
        """Where a part is kept."""
        return self.folder / f"{draw:03d}-{group}.json"

    def read(self, draw: int, group: str) -> dict[str, Any] | None:
        """A finished part, or None; a file that is no whole JSON counts as unfinished."""
        try:
            part = json.loads(self.path(draw, group).read_text())
        except (OSError, ValueError):
            return None
        return part if isinstance(part, dict) and "records" in part else None

    def write(self, draw: int, group: str, part: dict[str, Any]) -> None:
        """Keep a finished part."""
        replace_file(self.path(draw, group), (json.dumps(part, indent=1) + "\n").encode())

    def complete(
        self,
        *,
        fresh: bool = False,
        workers: int | None = 1,
        tell: Teller = lambda line: None,
        progress: PartsDone = lambda done, total, next_: None,
    ) -> list[dict[str, Any]]:
        """Compute what is missing, and return all parts in order; `fresh` computes everything anew."""
        self._open(tell)
        wanted = schedule(self.experiment, self.material)
        made = provenance()
        parts = {key: None if fresh else self.read(*key) for key in wanted}
        kept = [part for part in parts.values() if part is not None]
        if kept:
            tell(f"{len(kept)} of {len(wanted)} parts are finished; going on")
        done = len(kept)
        progress(done, len(wanted), "draws")
        for (draw, group), records in self._computed([key for key in wanted if parts[key] is None], workers):
            part = {"draw": draw, "group": group, "made": made, "records": records}
            self.write(draw, group, part)
            parts[draw, group] = part
            done += 1
            progress(done, len(wanted), f"draw {draw + 1}, {group}")
        return [part for part in parts.values() if part is not None]

    def _computed(self, todo: list[PartKey], workers: int | None) -> Iterator[tuple[PartKey, list[DrawRecord]]]:
        """Records of the parts as they are finished: here, or by processes that load the material themselves."""
        source = self.material.source
        if workers is None:  # every process holds the arrays
            size = sum(x.nbytes for x in self.material.arrays.values())
            workers = max(1, min(cores(), _MEMORY // max(size, 1)))
        if workers == 1 or source is None or len(todo) < 2:
            yield from ((key, compute(self.experiment, self.material, *key)) for key in todo)
            return
        with ProcessPoolExecutor(
            workers, get_context("spawn"), initializer=_load, initargs=(self.experiment, source, self.material.digest)
        ) as pool:
            running = {pool.submit(_compute, *key): key for key in todo}
            try:
                for future in as_completed(running):
                    yield running[future], future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _open(self, tell: Teller) -> None:
        others = [x for x in self.folder.parent.glob("draws-*") if x != self.folder]
        if others and not self.folder.exists():
            tell(f"{len(others)} other configurations, materials or versions have draws in {self.folder.parent}, kept")
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {"plan": self.experiment.identity(), "material": self.material.digest}
        replace_file(self.folder / "about.json", (json.dumps(about, indent=1) + "\n").encode())


_loaded: list[tuple[Experiment, Material]] = []  # of a worker process


def _load(experiment: Experiment, source: str, digest: str) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    material = load_material(source)
    if material.digest != digest:
        raise ValueError(f"the arrays in {source} changed while they were in use; run the same command again")
    _loaded[:] = [(experiment, material)]


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _compute(draw: int, group: str) -> list[DrawRecord]:
    return compute(*_loaded[0], draw, group)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def source_digest() -> str:
    """Of all that a draw's numbers come from: modules of ours, and the versions of packages that compute."""
    versions = json.dumps(_versions()).encode()
    return hashlib.sha256(b"".join([versions, *(path.read_bytes() for path in sources())])).hexdigest()


def sources() -> list[Path]:
    """The files that compute a draw: ours, and the rooms of the package that a calibration goes through."""
    package, here = Path(pixelbounds.__file__).parent, Path(__file__).parent
    files = [here / f"{name}.py" for name in COMPUTING] + [package / "bands.py"]
    return sorted([*files, *(file for room in ROOMS for file in (package / room).rglob("*.py"))])


def provenance() -> dict[str, Any]:
    """Commit ("+" where the source was changed since) and versions of what computes."""
    git = ["git", "-C", str(Path(__file__).parent)]

    def said(*words: str) -> str:
        try:
            return subprocess.run([*git, *words], capture_output=True, text=True, timeout=20).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return ""

    tracked = said("ls-files", Path(__file__).name)  # else this is a repository around an installed package
    commit = said("rev-parse", "--short", "HEAD") if tracked else os.environ.get("PIXELBOUNDS_COMMIT", "unknown")
    changed = said("status", "--porcelain", "--untracked-files=no", "..") if tracked else ""
    versions = {"pixelbounds": VERSION, "python": platform.python_version(), **_versions()}
    return {"commit": commit + ("+" if changed else ""), "versions": versions}


def _versions() -> dict[str, str]:
    """Of the packages that compute."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
