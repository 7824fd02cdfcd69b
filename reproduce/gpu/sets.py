"""The sets of pictures that travel to a GPU, as the zips that they are, and who trains and who is measured.

The split of scans is that of `python -m reproduce`: measured are held-out scans, which tuned nothing. Patients of the
chest are split: some train, some say where the training is best, and slices of all others are measured, in a random
order, so that the first of them are a random part.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.splits import split_images

Array = np.ndarray


@dataclass(frozen=True)
class Set:
    """What is known of a set of images; sigma_0 is a deviation."""

    limits: tuple[float, float]
    sigma_max: float
    sigma_0: float
    size: int = 64
    channels: int = 1
    shape: dict[str, Any] = field(default_factory=dict)  # of the network, where it is not that of its name

    @property
    def image(self) -> tuple[int, ...]:
        """Shape of an image: colours come first."""
        return (self.size,) * 2 if self.channels == 1 else (self.channels, self.size, self.size)


TRAINING, VALIDATION = 50, 6  # patients of 90; the others are measured

SETS = {
    "ct64": Set((0.0, 1.0), 1.0, 0.4),
    "faces64": Set((-1.0, 1.0), 90.0, 1.0),
    "faces128": Set((-1.0, 1.0), 90.0, 1.0, 128, 3, {"multipliers": (1, 1, 2, 4, 4)}),
    "chest128": Set((0.0, 1.0), 1.0, 0.3, 128),
    "chest512": Set((0.0, 1.0), 1.0, 0.4, 512, 1, {"multipliers": (1, 1, 2, 4, 4), "patch": 2}),
    "faces16": Set((-1.0, 1.0), 90.0, 1.0, 16, 3, {"base": 8, "multipliers": (1, 2)}),  # to try a session with
    "chest16": Set((0.0, 1.0), 1.0, 0.4, 16, 1, {"base": 8, "multipliers": (1, 2)}),
}


# ---------------------------------------------------------------- images


def unpacked(path: Path, channels: int) -> tuple[Array, Array]:
    """Pictures of a zip in 8 bits, colours first, and the folder (patient) of each, or a number where there is one."""
    mode = "L" if channels == 1 else "RGB"  # WebP has no grey
    names, images = _read(path, mode)
    folders = [x.rsplit("/", 1)[0] for x in names]
    units = np.unique(folders, return_inverse=True)[1] if len(set(folders)) > 1 else np.arange(len(names))
    return (images if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))), units


def organs_of(path: Path) -> Array:
    """The labels of a zip of chests, in the order of its pictures: 0 none, 1 trachea, 2 heart, 3 lung."""
    return _read(path, "L", labels=True)[1]


def _read(path: Path, mode: str, labels: bool = False) -> tuple[list[str], Array]:
    from PIL import Image

    with zipfile.ZipFile(path) as zipped:
        names = [x for x in sorted(zipped.namelist()) if not x.endswith("/") and ("/labels/" in x) == labels]
        return names, np.stack([np.asarray(Image.open(io.BytesIO(zipped.read(x))).convert(mode)) for x in names])


@dataclass(frozen=True)
class Parts:
    """Numbers of the images that train, that choose the average, and whose bands are measured."""

    train: Array
    validation: Array
    measured: Array


def parts(scan: Array, count: int) -> Parts:
    """The split; `count` of the held-out images, at least 768 or all, are measured."""
    alone = len(np.unique(scan)) == len(scan)
    units = None if alone else scan
    usual = split_images(len(scan), held_out=max(768, count), tune=1000 if alone else 564, units=units)
    chosen = np.random.default_rng(4).permutation(usual["held_out"])[:count]
    return Parts(usual["train"], usual["tune"], np.sort(chosen))


def patient_parts(patients: Array) -> Parts:
    """The split of chests by patient; those that are measured in a random order."""
    everyone = np.random.default_rng(11).permutation(np.unique(patients))
    share = len(everyone) / 90
    cuts = np.split(everyone, [round(TRAINING * share), round((TRAINING + VALIDATION) * share)])
    first, second, others = (np.flatnonzero(np.isin(patients, who)) for who in cuts)
    return Parts(first, second, np.random.default_rng(12).permutation(others))
