"""Arrays by name at a path: .npy (mapped), .zarr (read where they are used), .npz (read when they are asked for).

Nothing is ever unpickled. `Arrays` is the only opener. `open_arrays` is for images, of which it wants one set;
`arrays_at` is for bands and intervals, which have several, and there a chunk that a store lacks is an error, never
silently a fill value. What a store of ours says of itself is an attribute.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from ..images.checks import Limits
from ..images.library import Array, library_of
from ..images.measure import Measure
from ..images.ragged import read_ragged
from ..images.source import Source
from ..storage.chunks import GuardedStore, first_missing, guarded
from ..storage.files import check_regular, strict_json
from ..storage.store import MARKS, SEEN
from .scans import (
    USUAL,
    FormatError,
    Images,
    Window,
    check_allowed,
    check_declared,
    check_window,
    checked_member,
    format_errors,
    slice_name,
)

FilePath = str | os.PathLike[str]
ARRAY_SUFFIXES = (".npy", ".npz", ".zarr")
SHAPES = "lower and upper of shape (n, *pixels), or samples of shape (n, m, *pixels)"
SOURCE = "source"  # how a band was made, as JSON, beside its ends
ABOUT = "about"  # what intervals in an .npz say of themselves, as JSON
_PER_IMAGE = ("names", "units")  # one entry per image, beside the images themselves


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How files are read; None takes what the files say, or the usual. `workflows.request.ReadOptions` says more."""

    key: str | None = None
    truth_key: str | None = None
    kind: str | None = None
    miscoverage: float | tuple[float, ...] | None = None  # several: candidates, of which `calibrate` chooses one
    window: Window | None = None
    raw: bool = False
    limits: Limits | None = None
    units: str | None = None
    skip_bad: bool = False
    fill_missing: bool = False

    def __post_init__(self) -> None:
        if self.raw and self.window is not None:
            raise ValueError(f"--window {_in_words(self.window)} maps values and --raw leaves them; give one of them")
        check_window(self.window)

    @property
    def mapping(self) -> Window | str | None:
        """The window through which NIfTI and DICOM values are seen, the usual one by default; None where they stay."""
        return None if self.raw else self.window or USUAL

    @property
    def measure(self) -> Measure | None:
        """What values of NIfTI and DICOM files stand for, where an option says so."""
        return Measure.of_window(self.window, "") if self.raw or self.window else None

    def as_in(self, whose: str, measure: Measure | None, limits: Limits | None) -> Reading:
        """The same through the window, and within the limits, of a calibration or run, where it knows these.

        Other options are refused: numbers would stand for something else than they did there.
        """
        seen = self
        if measure is not None:
            if self.measure is not None and not self.measure.same_as(measure):
                asked, has = _option(self.measure), f"{_option(measure)} ({measure})"
                raise ValueError(f"{asked} is asked for, but {whose} has {has}: leave it out")
            seen = replace(seen, window=measure.window, raw=measure.window is None)
        if limits is not None:
            if self.limits is not None and tuple(self.limits) != tuple(limits):
                asked, has = _in_words(self.limits), _in_words(limits)
                raise ValueError(f"--limits {asked} is asked for, but {whose} has the limits {has}: leave it out")
            seen = replace(seen, limits=limits)
        return seen


def _in_words(pair: tuple[float, float]) -> str:
    return f"{pair[0]:g} {pair[1]:g}"


def _option(measure: Measure) -> str:
    return "--raw" if measure.window is None else f"--window {_in_words(measure.window)}"


# ---------------------------------------------------------------- the opener


class Arrays(Mapping[str, Any]):
    """The arrays of a file by name; a single one has the name ''. Whatever NumPy and zarr raise is a FormatError."""

    def __init__(self, path: FilePath) -> None:
        self.path = Path(path)
        self.attributes: dict[str, Any] = {}
        self._node: Any = None
        with self._errors():
            self._names = self._opened()

    def _opened(self) -> list[str]:
        if is_store(self.path) or self.path.suffix == ".zarr":
            self._node = zarr.open(GuardedStore(LocalStore(self.path, read_only=True), fill=True), mode="r")
            self.attributes = dict(self._node.attrs)
            return sorted(self._node.array_keys()) if hasattr(self._node, "array_keys") else [""]
        if self.path.suffix != ".npz":
            with self.path.open("rb") as file:
                _held(file, str(self.path), self.path.stat().st_size)
            self._node = np.load(self.path, mmap_mode="r", allow_pickle=False)
            return [""]
        with zipfile.ZipFile(self.path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        if len(set(names)) < len(names):
            raise FormatError(f"{self.path} holds an array twice under one name; write it again")
        return names

    def _errors(self) -> AbstractContextManager[None]:
        kind = f"cannot be read as {self.path.suffix}" if self.path.is_file() else "is no whole zarr store"
        return format_errors(f"{self.path} {kind}", "write it again, or use another copy")

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        with self._errors():
            if self._node is not None:
                x = self._node[name] if name else self._node
                return check_declared(x, f"{self.path}/{name}".rstrip("/")) if library_of(x) == "zarr" else x
            with zipfile.ZipFile(self.path) as archive:
                member = checked_member(archive, f"{name}.npy", self.path)
                with archive.open(member) as file:
                    check_allowed(_held(file, f"{name} in {self.path}", member.file_size), f"{self.path} unpacks")
            with np.load(self.path, allow_pickle=False) as arrays:
                return arrays[f"{name}.npy"]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _held(file: Any, name: str, size: int) -> int:
    """How many bytes of so many an .npy file holds behind its header: numbers, and all that it declares."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    held = size - int(file.tell())
    if dtype.hasobject:
        raise FormatError(f"{name} holds Python objects, and nothing is ever unpickled; save it as numbers")
    if prod(shape) * dtype.itemsize > held:
        raise FormatError(f"{name} was cut short: it declares {dtype} {shape} and holds {held} bytes; write it again")
    return held


def is_store(path: Path) -> bool:
    """Whether a folder is a zarr store, or called so."""
    return path.is_dir() and (path.suffix == ".zarr" or any((path / x).is_file() for x in ("zarr.json", ".zgroup")))


def is_ragged(path: FilePath) -> bool:
    """Whether a path is a store of images of different sizes: a zarr group of groups of values and shapes."""
    if not any((Path(path) / name).is_file() for name in ("zarr.json", ".zgroup")):
        return False
    try:
        root = zarr.open(GuardedStore(LocalStore(path, read_only=True), fill=True), mode="r")
    except Exception:  # a damaged store, of which its reader will tell
        return False
    return isinstance(root, zarr.Group) and any({"values", "shapes"} <= set(x.array_keys()) for _, x in root.groups())


def existing(path: FilePath, what: str) -> Path:
    """A path that is there and finished; else `what` should be given."""
    path = Path(path)
    check_regular(path)
    if path.name.endswith(".part"):
        raise ValueError(f"{path} was not finished; run the command that wrote it again")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist{near(path)}; give {what}")
    return path


def near(path: Path) -> str:
    """What lies beside a missing path and is called nearly so, as a question."""
    others = [x.name for x in path.absolute().parent.iterdir()] if path.absolute().parent.is_dir() else []
    close = get_close_matches(path.name, others, n=1, cutoff=0.8)
    return f" (did you mean {path.parent / close[0]}?)" if close else ""


# ---------------------------------------------------------------- one set of images


def open_arrays(path: Path, key: str | None = None, *, spectra: bool = False) -> Images:
    """Images (n, *pixels) of an .npy, .npz or .zarr file; `names` and `units` (n,) beside them are taken along.

    Complex numbers are refused unless `spectra` are welcome.
    """
    arrays = Arrays(path)
    pixels = arrays["" if list(arrays) == [""] else _chosen(arrays, key)]
    if pixels.ndim < 2 or 0 in pixels.shape:
        shape = tuple(pixels.shape)
        raise FormatError(f"{path} holds an array of shape {shape}; images must be (n, *pixels), e.g. (n, h, w)")
    check_dtype(pixels, path, ("complex64", "complex128") if spectra else ())
    n = int(pixels.shape[0])
    beside = {part: arrays[part] for part in _PER_IMAGE if part in arrays} | _kept(about_of(arrays))
    extra = {part: np.asarray(guarded(x, fill=True)[:]) for part, x in beside.items() if x.shape == (n,)}
    labels = tuple(str(x) for x in extra.get("names", range(n)))
    return Images(guarded(pixels, fill=True), labels, extra.get("units"))


def _chosen(arrays: Arrays, key: str | None) -> str:
    names = [name for name in arrays if arrays.path.suffix == ".npz" or arrays[name].ndim > 1]
    images = [name for name in names if name not in (*_PER_IMAGE, SOURCE, ABOUT)]
    if key is None and len(images) == 1:
        return images[0]
    if key not in names:
        instead = f", not {key!r}" if key else ""
        raise FormatError(f"{arrays.path} holds the arrays {', '.join(images)}; name one of them as key{instead}")
    return key


def check_dtype(x: Any, path: FilePath, more: tuple[str, ...] = ()) -> Any:
    """Images of a kind of number that has a scale."""
    if str(x.dtype) not in ("bool", "uint8", "float16", "float32", "float64", *more):
        whole = ", and give the limits of their scale (--limits LOW HIGH)" if x.dtype.kind in "iu" else ""
        raise FormatError(f"{path} holds {x.dtype}; save the images as float32{whole}")
    return x


def _kept(about: Mapping[str, Any]) -> dict[str, Array]:
    """Names and units that our own stores keep as attributes."""
    if "scans" in about:  # a cache: name and number of slices of each scan
        scans = [(str(name), int(count)) for name, count, *_ in about["scans"]]
        labels = [slice_name(name, k) for name, count in scans for k in range(count)]
        return {"names": np.array(labels), "units": np.repeat([x[0] for x in scans], [x[1] for x in scans])}
    return {name: np.array(about[name]) for name in _PER_IMAGE if about.get(name)}


# ---------------------------------------------------------------- several arrays, none with holes


def parts_at(path: Path, reading: Reading, key: str | None = None) -> dict[str, Any]:
    """Arrays (n, *pixels) by name, or sets of images of different sizes, among which a `key` must be."""
    return sets_at(path, reading, key) if is_ragged(path) else arrays_at(path, reading)


def arrays_at(path: Path, reading: Reading = Reading()) -> dict[str, Any]:
    """The arrays of a file by name, without marks; a single one has the name ''."""
    if path.suffix not in (".npy", ".npz") and not is_store(path):
        raise ValueError(f"{path} is of no known kind; give an .npy, .npz or .zarr file, or a folder, with {SHAPES}")
    arrays = {name: x for name, x in Arrays(path).items() if name not in (MARKS, SEEN)}
    return {name: checked(x, f"{path}/{name}".rstrip("/"), reading) for name, x in arrays.items()}


def checked(x: Any, name: str, reading: Reading) -> Any:
    """A zarr array whose missing chunks are errors, or, where that is asked for, hold the fill value."""
    if library_of(x) != "zarr":
        return x
    missing = 0 if reading.skip_bad else x.nchunks - x.nchunks_initialized
    if missing and not reading.fill_missing:
        raise ValueError(
            f"{name} was not finished: {missing} of {x.nchunks} chunks are not there, first {first_missing(x)}; write "
            "it again, leave its images out with --skip-bad, or fill them with --fill-missing"
        )
    if missing:
        warnings.warn(f"{name}: {missing} of {x.nchunks} chunks are not there and read as {x.fill_value}", stacklevel=2)
    return guarded(x, fill=bool(missing))


def check_not_half(arrays: Mapping[str, Any], path: Path) -> None:
    """One end of a band, or a set of marks, is never taken for samples."""
    held = sorted({"lower", "upper", "centre", "length"} & arrays.keys())
    if held and not {"lower", "upper"} <= arrays.keys():
        lacking = " and ".join(name for name in ("lower", "upper") if name not in arrays)
        raise ValueError(
            f"{path} holds {' and '.join(held)}, but no {lacking}: half a band; write it again, or, of samples, say "
            f"--key {held[0]}"
        )


def only(arrays: Mapping[str, Any], path: Path, names: tuple[str, ...]) -> Any:
    """The array of one of some names, or the only one."""
    for name in names:
        if name in arrays:
            return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise ValueError(f"{path} holds the arrays {', '.join(arrays)}; it needs {SHAPES} (name them with --key)")


def sets_at(path: FilePath, reading: Reading, key: str | None = None) -> dict[str, Any]:
    """The sets of images of different sizes in a store; a `key` must be among them."""
    if reading.skip_bad:
        raise ValueError(f"{path} holds images of different sizes, of which none can be skipped; leave --skip-bad out")
    with format_errors(f"{path} is no whole set of images", "write it again"):
        sets = dict(read_ragged(path, lambda x: guarded(check_declared(x, f"{path}/{x.path}"))))
    if key is not None and key not in sets:
        raise ValueError(f"{path} holds the sets {', '.join(sets)}, and no {key!r}; name one of them")
    return sets


# ---------------------------------------------------------------- what a store says of itself


def about_of(store: Arrays) -> dict[str, Any]:
    """What a store of ours says of itself; of any other nothing."""
    about = store.attributes.get("pixelbounds")
    return about if isinstance(about, dict) else {}


def stated_by(path: FilePath) -> dict[str, Any]:
    """The same of whatever lies at a path."""
    path = Path(path)
    if is_store(path):
        return about_of(Arrays(path))
    if path.suffix != ".npz" or not zipfile.is_zipfile(path):
        return {}
    try:
        about = _entry(path, ABOUT)
    except ValueError:
        return {}
    return about if isinstance(about, dict) and about.get("kind") == "interval" else {}


def source_of(path: Path) -> Source:
    """How a band was made, where its file says so: the attribute `source` of a store, the entry `source` of an .npz."""
    try:
        stated = Arrays(path).attributes.get(SOURCE) if is_store(path) else _entry(path, SOURCE)
    except FormatError:
        raise
    except ValueError as error:
        raise ValueError(f"{path}: {SOURCE!r} is not in JSON; write json.dumps(source.state())") from error
    return Source() if stated is None else Source.from_state(stated)


def _entry(path: Path, name: str) -> Any:
    """What the JSON text of that name in an .npz says; None where there is none."""
    return strict_json(str(arrays[name])) if path.suffix == ".npz" and name in (arrays := Arrays(path)) else None
