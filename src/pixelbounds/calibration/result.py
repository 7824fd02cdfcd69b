"""What a user keeps of a calibration: the widening of each group, how to find the groups, and what is promised.

The file is safetensors with one JSON string: no code runs when it is read, and a checksum tells an edited one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from math import isfinite, log, log1p
from typing import Any

import numpy as np

from ..images.checks import (
    Limits,
    check_choice,
    check_count,
    check_limits,
    check_line,
    check_number,
    check_open_unit,
    check_unit_name,
    is_name,
)
from ..images.ends import Band, Interval, check_features, check_labels, one_band
from ..images.foreign import AXES, check_same_axes
from ..images.library import Array, alike, block_of, in_threads, like, places_for, sizes_of
from ..images.measure import Measure
from ..images.notebook import facts_html, rows_html
from ..images.source import Source
from ..storage.files import check_new_file, replace_file, seal
from .block import read_block
from .confidence import BOUNDS
from .families import FAMILIES, Family, check_fits
from .groups.contract import Grouping, on_images
from .groups.labelled import NO_LABELS, LabelledGroups
from .groups.positions import Partition
from .phrases import NOT_WIDENED, early_wins_in_words, promise_in_words
from .procedures import METHODS
from .promises import CertifiedPromise, check_certified, sole_promise
from .reference import NO_REFERENCE, Reference, p_values, statistics_of_images
from .sentence import ANYTIME, SHIFT, VALIDITY_DOC, check_shift, guarantee_of

FORMAT = 2
WEIGHTINGS = ("units", "images")
NO_HASHES = np.empty(0, np.uint64)
_OURS = (*BOUNDS, ANYTIME)  # bounds whose reach is known
_ROUNDED = 1e-9  # how far sums in another order may lie apart


@dataclass(frozen=True, eq=False)
class Record:
    """How a calibration was reached: counts, source of the bands, seed, data and version, for the file and the report.

    images, fitting, certifying    how many images there were and fitted, how many images (or units) certified
    units          0 where images are independent, else how many units certified, each called `unit_name`
    counting       "units" where each unit counts the same, "images" where each image does, in units of at most
                   `max_images`
    skipped        images that could not be read and were left out
    prints         one digest per image, (n,), by which a calibration image is known again; 0 for an image of one value;
                   empty where images stayed at their sites
    """

    images: int
    fitting: int
    certifying: int
    units: int
    pixels: tuple[int, ...]
    source: Source
    seed: str
    digest: str
    version: str
    unit_name: str = "unit"
    weighting: str = "units"
    max_images: int = 0
    skipped: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    image_hashes: Array = field(default_factory=lambda: NO_HASHES)

    def __post_init__(self) -> None:
        for name in ("images", "fitting", "certifying", "units", "max_images", "skipped"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
                raise ValueError(f"{name} of a calibration is {value!r}; it must be a whole number of at least 0")
        left = self.images - self.fitting
        alone = self.units == 0 and 1 <= self.certifying == left  # without units all images that do not fit certify
        if not alone and not 1 <= self.units == self.certifying <= left:
            raise ValueError(
                f"a calibration of {self.images} images, of which {self.fitting} fit, cannot have {self.certifying} "
                f"certifying images and {self.units} units"
            )
        if not isinstance(self.pixels, tuple) or not all(
            isinstance(x, int) and not isinstance(x, bool) and x > 0 for x in self.pixels
        ):
            raise ValueError(f"pixels of a calibration are {self.pixels!r}; they must be sizes of at least 1")
        for name in ("seed", "digest", "version"):
            check_line(getattr(self, name), f"{name} of a calibration")
        if not isinstance(self.source, Source) or not isinstance(self.settings, dict):
            raise ValueError("a record needs a Source and settings by name")
        if SHIFT in self.settings:
            check_shift(self.settings[SHIFT])
        axes = self.settings.get(AXES, [])
        if not isinstance(axes, list) or not all(isinstance(name, str) for name in axes):
            raise ValueError(f"axes of a calibration are {axes!r}; they must be names")
        check_unit_name(self.unit_name)
        check_choice(self.weighting, WEIGHTINGS, "weighting")
        if (self.weighting == "images") != bool(self.units and self.max_images):
            raise ValueError("weighting='images' needs units and the most images that a unit counts for, no other does")
        if not isinstance(self.image_hashes, np.ndarray):
            raise TypeError(
                f"prints are a {type(self.image_hashes).__name__}; they must be an array, one number per image"
            )
        if self.image_hashes.dtype != np.uint64 or self.image_hashes.shape not in ((0,), (self.images,)):
            raise ValueError(f"prints have shape {self.image_hashes.shape}; there must be one per image, or none")

    def state(self) -> dict[str, Any]:
        """What a file holds beside the prints."""
        return {name: x for name, x in vars(self).items() if name != "image_hashes"} | {"source": self.source.state()}


@dataclass(frozen=True, eq=False)
class Calibration:
    """Widening of each group, certified at `risk_level` with failure probability `failure_prob`.

    The level is all that is certified. `risk` is the mean loss that was seen on the certifying images. `curve` holds
    mean widening, mean loss and confidence bound along the path, (points, 3), with the certified point at row `chosen`:
    each bound is valid for a point chosen beforehand, not for one that the data chose. `measure` says what the numbers
    stand for, where that is known. Where `promises` say more than one level for all pixels, they are kept in
    `certified`; `risk_level`, `risk` and `curve` are then those of the first, and the `loss` is "promises".
    `reference` says what bands of certifying images are like, for `conformal_p_values` and `pixelbounds.Monitor`.
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
    curve: Array
    chosen: int
    record: Record
    measure: Measure | None = None
    certified: tuple[CertifiedPromise, ...] = ()
    reference: Reference = NO_REFERENCE

    def __post_init__(self) -> None:
        kinds = {"family": Family, "grouping": Grouping, "widening": np.ndarray, "curve": np.ndarray, "record": Record}
        kinds["reference"] = Reference
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} is a {type(getattr(self, name)).__name__}; it must be a {kind.__name__}")
        if not isinstance(self.measure, Measure | None):
            raise TypeError(f"measure is {self.measure!r}; give a pixelbounds.Measure, or None")
        check_choice(self.method, METHODS, "method")
        for name in ("confidence", "loss"):
            if not is_name(getattr(self, name)):
                raise ValueError(f"{name} of a calibration is {getattr(self, name)!r}; it must be a name")
        if FAMILIES.get(self.family.name, self.family) is not self.family:
            raise ValueError(f"the family is called {self.family.name!r}, a name that is taken; give it another")
        check_open_unit(self.risk_level, "risk_level")
        check_open_unit(self.failure_prob, "failure_prob")
        check_limits(self.limits)
        count = self.grouping.count
        if self.widening.dtype != np.float64 or self.widening.shape != (count,):
            raise ValueError(
                f"widening is {self.widening.dtype} {self.widening.shape}; it must hold {count} float64, one per group"
            )
        if not (np.isfinite(self.widening) & (self.widening >= self.family.start)).all():
            raise ValueError(f"a widening is below {self.family.start:g} or not finite, so intervals could be crossed")
        if not 0 <= check_number(self.risk, "risk") <= 1:
            raise ValueError(f"risk is {self.risk:g}; it must lie between 0 and 1")
        if self.curve.dtype != np.float64 or self.curve.ndim != 2 or self.curve.shape[1] != 3:
            raise ValueError(f"curve is {self.curve.dtype} {self.curve.shape}; it must be float64 of shape (points, 3)")
        if not np.isfinite(self.curve).all():
            raise ValueError("curve holds values that are not finite")
        check_count(self.chosen, "chosen", least=0, most=max(0, len(self.curve) - 1))
        self.reference.check(count)
        self._check_groups()
        self._check_curve()
        self._check_level()
        if self.certified or self.loss == "promises":
            check_certified(self)
            for promise in self.certified:
                self._check_reach(promise.at_most / promise.cap, promise.certifying)

    def _check_groups(self) -> None:
        """The groups are such as the method makes, on the grid of the images."""
        kind, fitting, pixels = self.grouping.kind, self.record.fitting, self.record.pixels
        if self.method == "rcps" and kind != "single":
            raise ValueError(f"rcps has one group, but these are of kind {kind!r}")
        if self.method == "krcps" and self.grouping.sided:
            raise ValueError(f"krcps widens both ends of a pixel alike, but groups of kind {kind!r} treat them apart")
        if not fitting and (kind != "single" or self.method == "krcps"):
            raise ValueError(f"no image fits, so there can be no {self.method} with groups of kind {kind!r}")
        grid = self.inner.labels.shape if isinstance(self.inner, Partition) else pixels
        if grid != pixels:
            raise ValueError(f"groups of kind {kind!r} on a grid of {grid} cannot belong to images of {pixels}")

    def _check_curve(self) -> None:
        """Along the path intervals widen and the mean loss falls; the certified point lies where `chosen` says."""
        if not len(self.curve):
            if self.loss == "l01":
                raise ValueError("curve is empty, but a calibration of pixels has one")
            return
        widening, risk = self.curve[:, 0], self.curve[:, 1]
        if not (np.diff(widening) >= -_ROUNDED * widening[1:]).all() or not (np.diff(risk) <= _ROUNDED).all():
            raise ValueError("curve is not that of a path: its widening must not fall and its loss must not rise")
        if risk.min() < 0 or risk.max() > 1 + _ROUNDED or widening[0] < self.family.start:
            raise ValueError("curve holds losses outside [0, 1], or a widening that is too small")
        own, at = float(self.widening.mean()), float(widening[self.chosen])
        before = float(widening[max(0, self.chosen - 1)])
        if not before - _ROUNDED * before <= own <= at + _ROUNDED * at:
            raise ValueError(f"the mean widening is {own:g}, but row {self.chosen} of the curve says {at:g}")

    def _check_level(self) -> None:
        """No bound of ours certifies less than so many images can tell, or (but for early bets) than was seen."""
        if self.confidence not in _OURS:
            return
        seen = max(self.risk, float(self.curve[self.chosen, 1]) if len(self.curve) else 0.0)
        if seen > self.risk_level and self.confidence not in ("betting", ANYTIME):
            raise ValueError(f"a mean loss of {seen:g} was seen, above the level {self.risk_level:g}")
        if not self.certified:
            self._check_reach(self.risk_level, self.record.certifying)

    def _check_reach(self, level: float, n: int) -> None:
        """No bound certifies less than n images can tell."""
        sure = self.confidence in _OURS and self.confidence != "conformal"
        if sure and n * log1p(-level) > log(self.failure_prob) + _ROUNDED:
            raise ValueError(
                f"{n} images cannot certify a level of {level:g} with failure probability "
                f"{self.failure_prob:g}, whatever was seen"
            )

    def __repr__(self) -> str:
        return f"Calibration({self.method}, {self.confidence}, {self.grouping.count} groups): {self.guarantee}"

    def _repr_html_(self) -> str:
        how = f"{self.method}, {self.confidence}, {self.grouping.count} groups of kind {self.grouping.kind}"
        note = {"note": self.note} if self.note else {}
        facts = {
            "guarantee": self.guarantee,
            **note,
            "method": how,
            "images": self.record.images,
            "bands": self.record.source,
        }
        head = ("promise", "kind", "at most", "seen", "certified by")
        rows = [
            (promise_in_words(p), p.kind, f"{p.at_most:.2%}", f"{p.risk:.2%}", f"{p.certifying:,}")
            for p in self.promises
        ]
        return facts_html("Calibration", facts, rows_html(head, rows))

    @property
    def promises(self) -> tuple[CertifiedPromise, ...]:
        """What is promised, each with its level, the risk that was seen and how many images (units) certified it."""
        return self.certified or (sole_promise(self),)

    @property
    def guarantee(self) -> str:
        """What is promised, as one plain sentence."""
        return guarantee_of(self)

    @property
    def note(self) -> str:
        """Why it stands although more than a level was seen, or why intervals are as long as bands; else empty."""
        above = [promise for promise in self.promises if promise.risk > promise.at_most]
        if above:
            return early_wins_in_words(above)
        begins_at_band = self.family.name in ("additive", "multiplicative")  # others may begin narrower than bands
        return NOT_WIDENED if begins_at_band and np.all(self.widening <= self.family.start) else ""

    def apply(self, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True) -> Interval:
        """Intervals for new observations, clipped to the limits and rounded outward: Band (n, *pixels) -> Interval.

        `features` and `labels` as in `calibrate`, for these images; labels that no fitting image had widen as all
        labels together do.
        Images of different sizes, a list of bands or a Band of lists, give an Interval of `Ragged`. Blocks of images
        run in `threads`, or one after the other for a caller that has threads of its own.
        """
        band, features, labels = self._check_known(band, features, labels)
        dtype = np.dtype(str(band.lower.dtype).removeprefix("torch.").replace("bfloat16", "float32"))
        lower = places_for(band.lower, dtype)
        upper = places_for(band.lower, dtype)

        def work(start: int, stop: int) -> None:
            for run in alike(band.lower, range(start, stop)):
                a, b = run[0], run[-1] + 1
                block = read_block(band, a, b, self.limits, features, labels)
                if isinstance(lower, np.ndarray):
                    block.widen_into((lower[a:b], upper[a:b]), self.family, self.grouping, self.widening)
                else:
                    ends = np.empty((2, *block.band.shape), dtype)
                    block.widen_into((ends[0], ends[1]), self.family, self.grouping, self.widening)
                    lower[a:b], upper[a:b] = ends

        if threads:
            for _ in in_threads(work, len(band), block_of(int(sizes_of(band.lower).mean()), len(band))):
                pass
        else:
            work(0, len(band))
        return Interval(like(lower, band.lower), like(upper, band.upper), band.axes, self.measure)

    def statistics(self, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True) -> Array:
        """What each image's band is like, as the `reference` has it of certifying images: Band -> (n, 5) float32."""
        band, features, labels = self._check_known(band, features, labels)
        known = band, features, labels, self.limits
        return statistics_of_images(self.reference, known, self.family, self.grouping, threads=threads)

    def conformal_p_values(
        self, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True
    ) -> Array:
        """How usual each image's band is among those of the certifying images: a p-value each, Band -> (n,).

        Of images from the same source at most a share p has a p-value of at most p; 1 / (n + 1) is that of an image
        farther out than all n of the reference. Units count once: it holds for an image drawn from a new unit. It says
        nothing about risk.
        """
        rows = self.statistics(band, features=features, labels=labels, threads=threads)
        return p_values(self.reference.of_images, rows)

    def _check_known(self, band: Any, features: Any, labels: Any) -> tuple[Band, Any, Any]:
        """A band and what else is known of its images, as the groups need it."""
        band = self._check(band)
        features = check_features(features, band)
        labels = check_labels(labels, band)
        if features is not None and self.inner.kind != "learned":
            raise ValueError(
                f"features belong to learned groups, and these are of kind {self.inner.kind!r}: leave them out"
            )
        if labels is not None and not self.labelled:
            raise ValueError("this calibration was made without labels: leave labels out, or calibrate with them")
        if labels is None and self.labelled:
            raise ValueError(NO_LABELS)
        return band, features, labels

    @property
    def labelled(self) -> bool:
        """Whether it uses labels of the images it is applied to."""
        return isinstance(self.grouping, LabelledGroups)

    @property
    def your_bound(self) -> bool:
        """Whether the bound is a user's own, of which nothing is known."""
        return self.confidence not in _OURS

    @property
    def inner(self) -> Grouping:
        """Its groups, or those within its labels."""
        return self.grouping.inner if isinstance(self.grouping, LabelledGroups) else self.grouping

    def _check(self, band: Any) -> Band:
        band = one_band(band)
        check_fits(self.family, band)
        check_same_axes(self.record.pixels, self.record.settings.get(AXES), band)
        differences = self.record.source.differences(band.source)
        if differences:
            raise ValueError(
                f"this band was made in another way than those of the calibration ({'; '.join(differences)}), and the "
                "guarantee does not hold for it: calibrate again with bands made in this way, or say how this one was "
                f"made, pixelbounds.Band(lower, upper, source=...); see {VALIDITY_DOC}"
            )
        return band

    def without_hashes(self) -> Calibration:
        """The calibration without what it keeps of single images, digests and reference, for who must not tell of them.

        Nobody can tell then whether an image that it is judged by is one of those that calibrated, or is like them.
        """
        record = replace(self.record, image_hashes=NO_HASHES)
        return replace(self, record=record, grouping=on_images(self.grouping, NO_HASHES), reference=NO_REFERENCE)

    # ------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration file, aside first and then in place."""
        target = check_new_file(path, "calibration")
        data = self.to_bytes()
        replace_file(target, data)

    def to_bytes(self) -> bytes:
        """The content of the calibration file; equal calibrations give equal bytes."""
        self.__post_init__()  # arrays may have been changed since
        meta, arrays = self.grouping.state()
        tensors = {f"groups.{name}": x for name, x in arrays.items()}
        tensors |= {"widening": self.widening, "curve": self.curve, "image_hashes": self.record.image_hashes}
        tensors |= {"fitted_on": self.grouping.fitted_on} | self.reference.tensors()
        text = {
            "format": FORMAT, "package": "pixelbounds", "guarantee": self.guarantee,
            "method": self.method, "confidence": self.confidence, "family": self.family.name, "loss": self.loss,
            "risk_level": self.risk_level, "failure_prob": self.failure_prob,
            "limits": [x if isfinite(x) else None for x in self.limits],
            "measure": None if self.measure is None else self.measure.state(),
            "risk": self.risk, "chosen": self.chosen,
            "groups": {"kind": self.grouping.kind, **meta}, "record": self.record.state(),
        }  # fmt: skip
        if self.certified:
            text["promises"] = [promise.state() for promise in self.certified]
        return seal(text, tensors)
