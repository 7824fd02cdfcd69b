"""What every reader returns and every writer takes: images, their names, their units, and the space they lie in.

An image is one entry of the first axis. Medical volumes are cut into slices, and a `Scan` remembers which slices belong
together, where they lie in the patient and how their values became numbers in [0, 1], so that an interval of the same
shape can be put back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from ..execution.runner import current
from ..images.checks import check_number
from ..images.foreign import optional_module
from ..images.library import Array
from ..images.measure import Measure
from ..storage.chunks import check_array
from ..storage.files import size_in_words

Window = tuple[float, float]  # width and level (centre), in Hounsfield units or whatever the file measures
ABDOMEN: Window = (400.0, 40.0)
USUAL = "usual"  # the abdominal window for CT in Hounsfield units; for other values none is usual
_USUAL_REACH = (-(2.0**15), 2.0**15 - 1)  # of files that can hold any number; hardly a scanner measures beyond
_LEAST = 2**26  # bytes that a file may unpack to, where less memory is allowed


@dataclass(frozen=True, eq=False)
class Scan:
    """Slices start..stop of `Images`, and where they lie.

    `affine` (4, 4) takes (slice, row, column, 1) to millimetres towards Right, Anterior, Superior. `header` is what the
    file's library needs to write the same kind of file: a nibabel header, or one pydicom dataset per slice.
    """

    name: str
    start: int
    stop: int
    affine: Array
    kind: str
    header: Any
    plane: tuple[int, int]  # height and width of a slice in the file
    inverted: bool = False  # 1 - x was taken after windowing, as MONOCHROME1 asks
    reach: tuple[float, float] | None = None  # the least and greatest value that the file can hold, where it has such

    def beyond(self, window: Window) -> tuple[float, float]:
        """Values that stand for open ends, below and above a window: the least and greatest that the file can hold."""
        width, level = window
        least = level - width / 2
        most = level + width / 2
        if self.reach is None:
            return min(_USUAL_REACH[0], least - width), max(_USUAL_REACH[1], most + width)
        return min(self.reach[0], least), max(self.reach[1], most)


@dataclass(frozen=True, eq=False)
class Geometry:
    """What a writer needs to put an array of the same shape back: scans, and the window that made values [0, 1].

    `unit` is what the files measure in, where they say it; `clipped` the share of values that the window clipped.
    """

    scans: tuple[Scan, ...]
    window: Window | None
    unit: str = ""
    clipped: float | None = None

    @property
    def measure(self) -> Measure:
        """What the numbers stand for."""
        return Measure.of_window(self.window, self.unit, self.clipped)

    @property
    def spacing(self) -> tuple[float, float]:
        """The least and the greatest distance of neighbouring pixels of a slice, in millimetres."""
        steps = np.linalg.norm([scan.affine[:3, 1:3] for scan in self.scans], axis=1)
        return round(float(steps.min()), 4), round(float(steps.max()), 4)


@dataclass(frozen=True, eq=False)
class Images:
    """Images (n, *pixels) as a NumPy, mapped or zarr array; uint8 stays uint8 and spans the limits, else floating.

    >>> Images(np.zeros((2, 4, 4), np.float32), ("a.png", "b.png"))
    2 images of shape (4, 4), float32
    """

    pixels: Any
    names: tuple[str, ...]
    units: Array | None = None
    geometry: Geometry | None = None
    unit_name: str | None = None  # what a unit is, where the files tell it

    def __post_init__(self) -> None:
        for name in ("names", "units"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self):
                raise ValueError(f"{len(given)} {name} for {len(self)} images; give one per image")

    def __repr__(self) -> str:
        units = "" if self.units is None else f", {len(np.unique(self.units))} units"
        return f"{len(self)} images of shape {tuple(self.pixels.shape[1:])}, {self.pixels.dtype}{units}"

    def __len__(self) -> int:
        return int(self.pixels.shape[0])

    @property
    def measure(self) -> Measure | None:
        """What the numbers stand for, where the files say it."""
        return None if self.geometry is None else self.geometry.measure


def patients_digest(images: Images, chosen: range | None = None) -> str | None:
    """Tells whether other images are of the same patients in the same order; None where files name no patients.

    Four hexadecimal digits: enough to notice others but for one time in 65,536, too few to find out who they are.
    """
    if images.units is None or images.unit_name != "patient":
        return None
    some = images.units if chosen is None else images.units[chosen.start : chosen.stop]
    return hashlib.sha256("\n".join(map(str, some)).encode()).hexdigest()[:4]


def check_patients(what: str, images: Images, patients: str | None, other: str = "the bands") -> None:
    """Images are of the patients that a digest stands for, in their order, as far as both are known."""
    digest = patients_digest(images)
    if digest is not None and patients is not None and digest != patients:
        said = f"{what} and {other} are not of the same patients, by their PatientIDs"
        raise FormatError(f"{said}; give both of the same slices, or say who is who with --units FILE")


class FormatError(ValueError):
    """An error about a file whose message is complete: it names the file and the remedy."""


@contextmanager
def format_errors(what: str, remedy: str) -> Iterator[None]:
    """Whatever a library raises about a file becomes a FormatError: they raise what they like."""
    try:
        yield
    except (FormatError, MemoryError, ImportError):
        raise
    except Exception as error:
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise FormatError(f"{what} ({said}); {remedy}") from error


def check_allowed(size: int, what: str) -> None:
    """Refuse what would take more bytes than are allowed; `what` begins the sentence."""
    most = max(_LEAST, current().memory)
    if size > most:
        raise FormatError(
            f"{what} to {size_in_words(size)}, more than the memory allowed, {size_in_words(most)}; allow more with "
            "--memory (in Python: pixelbounds.execution.running), or leave it out"
        )


def checked_member(archive: ZipFile, name: str, path: Path) -> ZipInfo:
    """A member of a zip that is stored or deflated, so that no more is unpacked than it declares."""
    member = archive.getinfo(name)
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise FormatError(f"{path}: {name} is packed so that its size is not known; zip it again, deflated")
    return member


def check_declared(x: Any, name: str) -> Any:
    """A zarr array whose codecs are allowed and whose chunks, and list of chunks, may be held in memory."""
    try:
        return check_array(x, name, max(_LEAST, current().memory))
    except ValueError as error:
        raise FormatError(str(error)) from error


needed = partial(optional_module, remedy="pip install 'pixelbounds[medical]'")


def slice_name(scan: str, number: int) -> str:
    """The name of a slice, counted from 0 as the images are."""
    return f"{scan}[{number}]"


def first_folders(names: Sequence[str]) -> list[str]:
    """The first folder of each file below those that all share, or the file's own name."""
    parts = [PurePosixPath(name).parts for name in names]
    shared = 0
    while all(len(x) > shared + 1 and x[shared] == parts[0][shared] for x in parts):
        shared += 1
    return [x[shared] for x in parts]


def folder_units(names: Sequence[str]) -> Array | None:
    """The unit of each file: its first folder below those that all share, or itself; None where that tells nothing.

    >>> folder_units(["ct/scan1/a.png", "ct/scan1/b.png", "ct/scan2/a.png"]).tolist()
    ['scan1', 'scan1', 'scan2']
    """
    units = np.array(first_folders(names))
    return units if 1 < len(np.unique(units)) < len(units) else None


def usual_window(path: Path, window: Window | str | None, unit: str, kind: str) -> Window | None:
    """A window that was given; the usual one is for Hounsfield units only."""
    if isinstance(window, str) and unit != "HU":
        raise FormatError(
            f"{path} is {kind}, which does not say which values matter: give their --window WIDTH LEVEL "
            "(window=(width, level)), such as 400 40 for an abdominal CT, or --raw (window=None) for values as stored"
        )
    return ABDOMEN if isinstance(window, str) else window


def check_window(window: Any) -> Window | None:
    """Width and level of a window; None leaves values as they are."""
    if window is None:
        return None
    try:
        width, level = window
    except (TypeError, ValueError):
        raise TypeError(f"window is {window!r}; give (width, level), for example (400, 40), or None") from None
    width = check_number(width, "window width")
    level = check_number(level, "window level")
    if width <= 0:
        raise ValueError(f"window width is {width:g}; it must be positive, for example 400")
    return width, level


def windowed(values: Array, window: Window | None, inverted: bool = False, *, clip: bool = True) -> Array:
    """Values as float32 images: the window's least value becomes 0, its greatest 1, what lies beyond is clipped."""
    if window is None:
        return values.astype(np.float32)
    width, level = window
    x = (np.asarray(values, np.float64) - (level - width / 2)) / width
    x = (np.clip(x, 0, 1) if clip else x).astype(np.float32)
    return 1 - x if inverted else x
