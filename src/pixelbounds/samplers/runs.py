"""A sampling run: a resumable store of bands, one chunk and one mark per image.

Chunks carry a checksum, so damage to a finished image is noticed. Lower ends are stored rounded down and upper ends up,
to float16, so that a stored band holds whatever the band in memory held.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..bands import FLOOR, conffusion, quantile_regression
from ..execution.runner import current
from ..images.checks import check_choice
from ..images.ends import Band, outward
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import Source
from ..storage.chunks import FileRows, check_array, damaged
from ..storage.store import DONE, MARKS, Store, part_of, read_marks, resumable

_FORMAT = 1
_PAIRS = (("lower", "upper"), ("naive_lower", "naive_upper"))
_DRAWN = "score", "sampler"  # kinds of which samples are drawn
_KINDS = {  # bands, by what was drawn from
    "score": ("calibrated", "naive", "mean"),
    "sampler": ("calibrated", "naive", "mean"),  # a function of a user's own
    "regressor": ("regressor", "dropout"),
    "conffusion": ("conffusion",),
}
_MADE_OF = {  # arrays, by the band that is made of them
    "calibrated": ("lower", "upper"),
    "naive": ("naive_lower", "naive_upper"),
    "mean": ("mean", "deviation"),
    "regressor": ("lower", "estimate", "upper"),
    "dropout": ("dropout_mean", "dropout_deviation"),
    "conffusion": ("lower", "upper"),
}
# what may differ between the parts of a run
_FREE = ("version", "network_file", "device", "batch", "format", "pace", "patients")
_LEAST_MEMORY = 2**26  # bytes that a chunk may take, where less memory is allowed
_SMALL_BYTES = 2**28  # of an array that is read whole where something is worked out of it: ten times as fast
_BLOCK_BYTES = 2**20  # of a larger one, read at a time
_HALF = ("lower", "upper", "naive_lower", "naive_upper", "samples")


# ---------------------------------------------------------------- writing


@contextmanager
def run_under_way(
    path: Path,
    about: Mapping[str, Any],
    pixels: tuple[int, ...],
    ids: Array,
    names: Mapping[str, tuple[int, ...]],
    observed: tuple[tuple[int, ...], str] | None = None,
) -> Iterator[Store]:
    """A run that is written: `names` are its arrays and the axes that each has before its pixels; a block is an image.

    `observed` are shape and dtype of an observation, by default those of an image in float32.
    """
    n = len(ids)
    shape, dtype = observed or (pixels, "float32")
    arrays: dict[str, Any] = {"observation": ((n, *shape), dtype)}
    for name, before in names.items():
        arrays[name] = (n, *before, *pixels), "float16" if name in _HALF else "float32"
    attributes = {"pixelbounds": {**about, "format": _FORMAT}}
    with resumable(path, arrays, about=attributes, request=run_request(about), flat=True) as store:
        group = zarr.open_group(store.path, mode="r+")
        group.create_array("ids", data=np.asarray(ids, np.int64), chunks=(n,), overwrite=True)
        yield store


def run_request(about: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run's configuration must be the same for it to be resumed."""
    return {name: value for name, value in about.items() if name not in _FREE}


def write_image(store: Store, image: int, parts: Mapping[str, Array], number: int | None = None) -> None:
    """Write what is known of one image, by default of the number of its place, and mark it finished."""
    parts = dict(parts)
    for low, high in _PAIRS:
        if low in parts and store.array(low).dtype == np.float16:
            with np.errstate(over="ignore"):
                parts[low], parts[high] = outward(parts[low], parts[high], np.float16)
    for name, value in parts.items():
        if not np.isfinite(value).all():
            raise ValueError(
                f"{name} of image {image if number is None else number} is not finite, or beyond float16 (65504); "
                "rescale the images"
            )
    store.write(image, {name: value[None] for name, value in parts.items()}, np.array([DONE], np.uint8))


# ---------------------------------------------------------------- reading


class Run:
    """A sampling run that was opened: bands and images as zarr arrays, (n, *pixels)."""

    def __init__(self, path: Path, group: Any) -> None:
        self.path, self.group = path, group
        self.about: dict[str, Any] = dict(group.attrs["pixelbounds"])
        self.kinds = tuple(kind for kind in _KINDS[self.about["kind"]] if kind != "dropout" or "dropout_mean" in group)

    def __repr__(self) -> str:
        return f"Run {self.path}: {int(self.done.sum())} of {len(self)} images finished, bands {', '.join(self.kinds)}"

    def __len__(self) -> int:
        return int(self.group[MARKS].shape[0])

    def __getitem__(self, name: str) -> Any:
        names = sorted(self.group.array_keys())
        return self.group[check_choice(name, names, f"array of {self.path}")]

    @property
    def done(self) -> Array:
        """Which images are finished, (n,) bool; one whose mark cannot be read is not."""
        return read_marks(self.group[MARKS], 0, len(self)) != 0

    @property
    def ids(self) -> Array:
        """The number of each image, which seeds its draws, (n,)."""
        try:
            return np.asarray(self.group["ids"][:])
        except Exception as error:  # zarr raises what it likes
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ValueError(f"{self.path}/ids is damaged ({why}); draw the run again, or give another") from error

    @property
    def mean(self) -> Any:
        """Mean of the samples, or of the passes with dropout."""
        return self["dropout_mean" if self.about["kind"] == "regressor" else "mean"]

    def parts(self, kind: str | None = None) -> tuple[str, ...]:
        """Names of the arrays of which the band of a kind is made."""
        return _MADE_OF[self._kind(kind)]

    def band(self, kind: str | None = None, *, check: bool = True, there: Array | None = None) -> Band:
        """The band of a kind, by default the first of `kinds`; `check` reads it once and names a damaged image.

        An image for which `there` (n,) is False is never used: its band is NaN, or lies as it is.
        """
        kind = self._kind(kind)
        done = self.done
        if not done.all():
            raise ValueError(
                f"{self.path} has {int(done.sum())} of {len(self)} images; run the same `pixelbounds sample` again to "
                "draw the rest"
            )
        if check:
            self.check(_MADE_OF[kind])
        parts = [self[name] for name in _MADE_OF[kind]]
        if kind in ("calibrated", "naive"):
            return Band(parts[0], parts[1], source=self.source(kind))
        first, *rest = (_singles(part, there) for part in parts)
        if kind in ("regressor", "conffusion"):
            band = (quantile_regression if kind == "regressor" else conffusion)(first, *rest)
            return replace(band, source=self.source(kind))
        deviation = np.maximum(rest[0], np.float32(FLOOR))
        return Band(first - deviation, first + deviation, first, source=self.source(kind))

    def source(self, kind: str | None = None) -> Source:
        """How the band of a kind was made: by which network, at which noise level, of how many draws."""
        kind = self._kind(kind)
        named = {"regressor": "quantile regression, distance form", "conffusion": "quantile pair"}
        named |= dict.fromkeys(("mean", "dropout"), f"mean and deviation, floor {FLOOR:g}")
        stored = self.about.get
        drawn = stored("kind") in _DRAWN
        return Source(
            named.get(kind, f"{kind} quantiles"),
            samples=stored("samples" if drawn else "passes") if drawn or kind == "dropout" else None,
            miscoverage=stored("miscoverage") if kind in ("calibrated", "naive") else None,
            sampler=stored("sampler") if drawn else None,
            steps=stored("steps") if drawn else None,
            sigma_0=stored("sigma_0"),
            network=stored("network"),
        )

    @property
    def measure(self) -> Measure | None:
        """What the numbers stand for, where the observations said it."""
        stored = self.about.get("measure")
        return None if stored is None else Measure.from_state(stored)

    @property
    def patients(self) -> str | None:
        """A digest of whose observations these are (`patients_digest`), where these said it."""
        return self.about.get("patients")

    def _kind(self, kind: str | None) -> str:
        return self.kinds[0] if kind is None else check_choice(kind, self.kinds, "kind")

    def check(self, names: tuple[str, ...] | None = None) -> None:
        """Read every finished image; a damaged one is a ValueError that names it."""
        for image, name, why in self.damaged(names):
            raise ValueError(
                f"{name} of image {int(self.ids[image])} in {self.path} is damaged ({why}); draw it again with "
                "`pixelbounds sample ... --repair`"
            )

    def damaged(self, names: tuple[str, ...] | None = None) -> Iterator[tuple[int, str, str]]:
        """Position, array and reason of all that cannot be read in finished images."""
        done = self.done
        for name in names or tuple(x for x in self.group.array_keys() if x not in ("ids", MARKS)):
            for image, _, why in damaged(self.group[name], 0, len(self)):
                if done[image]:
                    yield image, name, why


def _singles(x: Any, there: Array | None) -> Any:
    """A zarr array (n, *pixels) in float32: of NumPy where it is small, else of Dask, read a few images at a time."""
    whole = there is None or bool(there.all())
    if whole and 4 * prod(x.shape) <= _SMALL_BYTES:
        return np.asarray(x[:], np.float32)
    import dask.array as da

    rows = max(1, _BLOCK_BYTES // (4 * prod(x.shape[1:])))
    return da.from_array(FileRows(x, None if whole else there), chunks=(rows, *x.shape[1:])).astype(np.float32)


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open the store that `pixelbounds sample` wrote."""
    path = Path(path)
    if not path.exists():
        if part_of(path).exists():
            raise FileNotFoundError(f"{path} is not finished; run the same `pixelbounds sample` again to draw the rest")
        raise FileNotFoundError(f"{path} does not exist; give the store that `pixelbounds sample ... --out` wrote")
    try:
        group = zarr.open_group(path, mode="r")
        about: Any = group.attrs.get("pixelbounds")
    except Exception as error:  # no store, or one whose metadata are damaged
        raise ValueError(f"{path} is no zarr store that can be read ({error}); give a run, or another --out") from error
    wrong = (
        _what_is_wrong(group, about) if isinstance(about, dict) else "is a zarr store, but no run of pixelbounds sample"
    )
    if wrong:
        raise ValueError(f"{path} {wrong}; draw it again, or give another --out")
    return Run(path, group)


def _what_is_wrong(group: Any, about: Mapping[str, Any]) -> str | None:
    """Why a store is no run that can be used: each has what its kind says, and as many images as marks."""
    if about.get("format") != _FORMAT:
        return f"has format {about.get('format')}, this version reads {_FORMAT}"
    kind, limits, level = (about.get(name) for name in ("kind", "limits", "miscoverage"))
    if not isinstance(kind, str) or kind not in _KINDS:
        return f"is a run of kind {kind!r}, which is none of {', '.join(_KINDS)}"
    pair = isinstance(limits, list) and len(limits) == 2 and all(isinstance(x, int | float) for x in limits)
    if not pair and not (kind == "sampler" and limits is None):
        return f"has limits {limits!r} instead of two numbers"
    if kind in _DRAWN and not (isinstance(level, float) and 0 < level < 1):
        return f"has miscoverage {level!r}, which is no share"
    arrays = dict(group.arrays())
    lacking = sorted({MARKS, "ids", "observation", *_MADE_OF[_KINDS[kind][0]]} - arrays.keys())
    if lacking:
        return f"lacks the array {lacking[0]}"
    for name in sorted(arrays):
        check_array(arrays[name], name, max(_LEAST_MEMORY, current().memory))
        if arrays[name].shape[:1] != arrays[MARKS].shape:
            return f"has {name} of shape {arrays[name].shape} for marks of {arrays[MARKS].shape}"
    return None
