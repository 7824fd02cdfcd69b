"""What a user keeps of a calibration: the widening of each group, how to find the groups, and what is promised.

The file is safetensors with one JSON string: no code runs when it is read, and a checksum tells an edited one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..images.checks import Limits, check_same_shape
from ..images.ends import Band, Interval, check_features, one_band
from ..images.library import Array, alike, block_of, in_threads, library_of, like, places_for, sizes_of
from ..storage.files import replace_file, seal, unseal
from .families import FAMILIES, Family, check_fits
from .groups.contract import Grouping, load_grouping
from .pairs import read_block

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Record:
    """How a calibration was reached: counts, seed, data and version, for the file and the report."""

    images: int
    fitting: int
    certifying: int
    units: int
    pixels: tuple[int, ...]
    source: str
    seed: str
    digest: str
    version: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Widening of each group, certified at `risk_level` with failure probability `failure_prob`.

    `risk` is the mean loss on the certifying images and `bound` its confidence bound, below the risk level. `curve`
    holds mean widening, risk and bound along the path, (points, 3), with the certified point at row `chosen`.
    """

    method: str
    confidence: str
    family: Family
    loss: str
    risk_level: float
    failure_prob: float
    limits: Limits
    grouping: Grouping
    widening: Array
    risk: float
    bound: float
    curve: Array
    chosen: int
    record: Record

    def __repr__(self) -> str:
        return f"Calibration({self.method}, {self.confidence}, {self.grouping.count} groups): {self.guarantee}"

    @property
    def guarantee(self) -> str:
        """What is promised, as one plain sentence."""
        what = (
            f"at most {level_in_words(self.risk_level)} of the pixels of a future image lie outside their intervals"
            if self.loss == "l01"
            else f"the loss {self.loss} of a future image is at most {self.risk_level:g}"
        )
        n = f"{self.record.certifying} {'units' if self.record.units else 'images'}"
        given = "provided future images come from the same source as the calibration images"
        if self.confidence == "conformal":
            return (
                f"On average over future images and over calibration sets of {n}, {what}, {given}; this holds in "
                "expectation only, not with high probability for the calibration set at hand."
            )
        return (
            f"With probability at least {level_in_words(1 - self.failure_prob)} over the draw of {n} for "
            f"certification, on average {what}, {given}."
        )

    def apply(self, band: Band, *, features: Any = None, groups: Any = None, threads: bool = True) -> Interval:
        """Intervals for new observations, clipped to the limits and rounded outward: Band (n, *pixels) -> Interval.

        `features` as in `calibrate`; `groups` is the segmentation of these images where the calibration uses one.
        Images of different sizes, a list of bands or a Band of lists, give an Interval of `Ragged`. Blocks of images
        run in `threads`, or one after the other for a caller that has threads of its own.
        """
        band = self._check(band)
        features = check_features(features, band)
        if features is not None and self.grouping.kind != "learned":
            raise ValueError(
                f"features belong to learned groups, and these are of kind {self.grouping.kind!r}: leave them out"
            )
        if groups is not None and self.grouping.kind != "segmentation":
            raise ValueError(f"the groups of this calibration are of kind {self.grouping.kind!r}; leave groups out")
        if groups is not None:
            if not library_of(groups):
                raise TypeError(f"groups is a {type(groups).__name__}; give an array, one label per image and pixel")
            check_same_shape(band=band.lower, groups=groups)
        dtype = np.dtype(str(band.lower.dtype).removeprefix("torch.").replace("bfloat16", "float32"))
        lower = places_for(band.lower, dtype)
        upper = places_for(band.lower, dtype)

        def work(start: int, stop: int) -> None:
            for run in alike(band.lower, range(start, stop)):
                a, b = run[0], run[-1] + 1
                block = read_block(band, a, b, self.limits, features, groups)
                ends = (lower[a:b], upper[a:b]) if isinstance(lower, np.ndarray) else (np.empty(block.band.shape, dtype), np.empty(block.band.shape, dtype))
                block.widen_into(ends, self.family, self.grouping, self.widening)
                if not isinstance(lower, np.ndarray):
                    lower[a:b], upper[a:b] = ends

        if threads:
            for _ in in_threads(work, len(band), block_of(int(sizes_of(band.lower).mean()), len(band))):
                pass
        else:
            work(0, len(band))
        return Interval(like(lower, band.lower), like(upper, band.upper))

    def _check(self, band: Any) -> Band:
        band = one_band(band)
        check_fits(self.family, band)
        made, given = self.record.source, band.source
        if made and given and made != given:
            raise ValueError(
                f"this band was made by {given!r}, but the calibration is for {made!r}; its guarantee does not hold "
                "for another kind of band: calibrate again with this one"
            )
        return band

    # ------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration file, aside first and then in place."""
        target = FilePath(path)
        try:
            folder, taken = target.parent.is_dir(), target.is_dir()
        except OSError as error:
            raise ValueError(f"no file can have the name {str(target)!r} ({error.strerror}); give another") from error
        if not folder:
            raise ValueError(f"there is no folder {str(target.parent)!r} to save the calibration in; make it first")
        if taken:
            raise ValueError(f"{str(target)!r} is a folder; give the name of a file, such as 'ct.safetensors'")
        data = self.to_bytes()
        replace_file(target, data)

    def to_bytes(self) -> bytes:
        """The content of the calibration file; equal calibrations give equal bytes."""
        meta, arrays = self.grouping.state()
        tensors = {f"groups.{name}": x for name, x in arrays.items()}
        tensors |= {"widening": self.widening, "curve": self.curve}
        text = {
            "format": _FORMAT, "package": "pixelbounds", "guarantee": self.guarantee,
            "method": self.method, "confidence": self.confidence, "family": self.family.name, "loss": self.loss,
            "risk_level": self.risk_level, "failure_prob": self.failure_prob,
            "limits": [x if isfinite(x) else None for x in self.limits],
            "risk": self.risk, "bound": self.bound, "chosen": self.chosen,
            "groups": {"kind": self.grouping.kind, **meta}, "record": vars(self.record),
        }  # fmt: skip
        return seal(text, tensors)


def level_in_words(share: float) -> str:
    """A level as it was asked for.

    >>> level_in_words(0.1), level_in_words(0.025)
    ('10%', '2.5%')
    """
    return f"{100 * share:.6g}%"


def load_calibration(path: str | os.PathLike[str], *, family: Family | None = None) -> Calibration:
    """Read a calibration file; a user's own family must be given again, for a file holds no code."""
    path = FilePath(path)
    try:
        found = path.is_file()
    except OSError:  # a name that no file can have
        found = False
    if not found:
        raise ValueError(f"there is no calibration file at {str(path)!r}")
    return calibration_from_bytes(path.read_bytes(), str(path), family)


def calibration_from_bytes(data: bytes, name: str = "file", family: Family | None = None) -> Calibration:
    """The calibration that the content of a file holds."""
    remedy = "write it again with Calibration.save"
    text, tensors = unseal(data, name, what="calibration file", remedy=remedy, again="calibrate again")
    if text["format"] != _FORMAT:
        raise ValueError(f"{name!r} has format {text['format']}, this version reads {_FORMAT}; update pixelbounds")
    try:
        return _calibration_of(text, tensors, name, family)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if name in str(error):
            raise
        raise ValueError(f"{name!r} lacks a part or has a wrong one ({error!r}); calibrate again") from error


def _calibration_of(text: dict[str, Any], tensors: dict[str, Array], name: str, family: Family | None) -> Calibration:
    if family is None and text["family"] not in FAMILIES:
        raise ValueError(
            f"{name!r} uses your own family {text['family']!r}; pass it: load_calibration(path, family=...)"
        )
    if family is not None and family.name != text["family"]:
        raise ValueError(f"{name!r} was calibrated with family {text['family']!r}, not {family.name!r}")
    groups = dict(text["groups"])
    arrays = {key.removeprefix("groups."): x for key, x in tensors.items() if key.startswith("groups.")}
    record = Record(**{**text["record"], "pixels": tuple(text["record"]["pixels"])})
    low, high = text["limits"]
    return Calibration(
        text["method"], text["confidence"], family or FAMILIES[text["family"]], text["loss"], text["risk_level"],
        text["failure_prob"], (-np.inf if low is None else low, np.inf if high is None else high),
        load_grouping(groups.pop("kind"), groups, arrays), tensors["widening"], text["risk"], text["bound"],
        tensors["curve"], text["chosen"], record,
    )  # fmt: skip
