"""What is promised: a risk, where it is counted, and its level (epsilon of Definition 2.2).

share    the mean over images of the share of missed pixels, of all pixels or within a region
tail     the share of images that miss more than a given share of their pixels
loss     the mean over images of a loss of your own, of their intervals, or of what they miss of a region
cap      an image counts for at most so much: losses in [0, cap] need cap times the slack of losses in [0, 1]

A region is needed on the calibration images only: it enters the loss, not the path. Images without it do not count.
A `Promise` is what a user asks for; a `RiskTarget` is the same as it is counted on some images; a `CertifiedPromise` is
what a calibration keeps of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from ..images.checks import check_choice, check_count, check_number, check_open_unit, is_name
from ..images.ends import Interval
from ..images.foreign import as_plain_array
from ..images.library import Array, rows_of
from ..images.regions import place_of
from .bounds import check_losses

PROMISE_KINDS = ("share", "tail", "loss")
ALL_PIXELS = "all pixels"
YOUR_LOSS = "your loss"  # that has no name of its own
WAYS_TO_WEIGH = ("units", "images", "pixels")
PLACES = ("all", "region", "weights", "subgroup")  # where a promise is counted
_MOST = 64  # promises of one calibration
_NAMELESS = ("loss", "custom", "function", "<lambda>", "l01")  # names of functions that say nothing of a user's


@dataclass(frozen=True, eq=False)
class Promise:
    """What must hold, made by `share`, `tail` or `loss`."""

    kind: str
    at_most: float
    above: float | None = None
    within: Any = None
    cap: float | None = None
    name: str | None = None
    weighting: str | None = None
    function: Any = None  # of a loss
    counts: bool = False  # whether it takes counts, not images

    def __post_init__(self) -> None:
        check_open_unit(self.at_most, "at_most")
        if self.name is not None:
            check_name(self.name)
        if self.cap is not None and not self.at_most < check_number(self.cap, "cap") <= 1:
            raise ValueError(
                f"cap is {self.cap!r}; an image may count for more than at_most ({self.at_most:g}) and for 1 at most"
            )
        if self.above is not None and not 0 <= check_number(self.above, "above") < 1:
            raise ValueError(f"above is {self.above!r}; give a share of an image's pixels of at least 0 and below 1")
        if self.weighting is not None:
            check_choice(self.weighting, WAYS_TO_WEIGH, "weighting")
        if self.weighting == "pixels" and self.cap is not None:
            raise ValueError("cap bounds what an image counts for, and with weighting='pixels' pixels count: leave one")
        if (self.kind == "loss") != callable(self.function):
            raise ValueError("a loss of your own is a function, which no file keeps; give it again: pb.loss")
        if self.kind == "loss" and self.weighting == "pixels":
            raise ValueError("a loss is one number for each image, so pixels cannot be counted; leave weighting out")


def share(
    at_most: float, within: Any = None, cap: float | None = None, name: str | None = None, weighting: str | None = None,
) -> Promise:  # fmt: skip
    """At most this share of pixels is missed: the mean over future images of the share within a region.

    at_most     level of the promise
    within      a mask (n, *pixels) of the calibration images, or weights of at least 0, or a list where images differ
                in size; (n,) of bool for a subgroup of whole images; None for all pixels
    cap         an image counts for at most this share; with few patients that allows much shorter intervals
    name        of the region, for the sentence
    weighting   "units": each unit counts the same, averaged over its images with the region; "images": each image does;
                "pixels": the region's pixels of all images are pooled; by default as `calibrate` counts

    >>> share(0.1, within=np.ones((3, 8, 8), bool), name="heart").at_most
    0.1
    """
    return Promise("share", at_most, None, within, cap, name, weighting)


def tail(at_most: float, above: float, within: Any = None, name: str | None = None) -> Promise:
    """At most this share of images is bad: the share of future images that miss more than `above` of their pixels.

    >>> tail(0.05, above=0.1).above
    0.1
    """
    if above is None:
        raise TypeError("above is None; give the share of missed pixels above which an image is bad, such as 0.1")
    return Promise("tail", at_most, above, within, None, name)


def loss(
    at_most: float, function: Any, within: Any = None, cap: float | None = None, name: str | None = None,
    weighting: str | None = None, *, counts: bool = False,
) -> Promise:  # fmt: skip
    """A loss of your own is at most this in the mean over future images.

    function    (truth, Interval) -> losses (n,) in [0, 1] that do not rise where intervals widen; evaluated on images
                at few places along the path. With `counts` it is (missed, size) -> (n,): what an image misses of its
                region, and the region's size; such a loss is as fast as `share`
    within      as in `share` with `counts`; else (n,) of bool, a subgroup of whole images
    cap, weighting    as in `share`, but that pixels are not pooled
    name        of the loss, for the sentence; by default that of the function

    >>> from pixelbounds.calibration.losses import any_channel
    >>> loss(0.1, any_channel()).name
    'pixels missed in any channel'
    >>> loss(0.05, lambda missed, size: (missed / size) ** 2, counts=True, name="squared share").counts
    True
    """
    if not callable(function):
        raise TypeError(f"function is {function!r}; give a function (truth, interval) -> losses (n,)")
    own = getattr(function, "__name__", "")
    name = name or (own if is_name(own) and own not in _NAMELESS else YOUR_LOSS)
    return Promise("loss", at_most, None, within, cap, name, weighting, function, bool(counts))


def check_name(name: Any) -> str:
    """A few printable words."""
    if not isinstance(name, str) or not 0 < len(name.strip()) <= 80 or not name.isprintable() or '"' in name:
        raise ValueError(f"the name of a promise is {name!r}; give a few words of at most 80 characters, such as heart")
    return name


def check_promises(promises: Any) -> list[Promise]:
    """A list of promises, at least one."""
    if isinstance(promises, Promise):
        promises = [promises]
    if not isinstance(promises, list | tuple) or not promises or len(promises) > _MOST:
        raise ValueError(
            f"promises is {type(promises).__name__}; give a list of 1 to {_MOST}, such as [pb.share(0.05)]"
        )
    strange = [i for i, promise in enumerate(promises, 1) if not isinstance(promise, Promise)]
    if strange:
        raise TypeError(f"promise {strange[0]} is not made with pb.share, pb.tail or pb.loss: make it so")
    return list(promises)


# ---------------------------------------------------------------- as they are counted


@dataclass(frozen=True, eq=False)
class Terms:
    """What a promise says of a `place` (`PLACES`), once all is settled: `above` 0 for a share, `cap` 1 for none."""

    kind: str
    name: str
    place: str
    at_most: float
    above: float
    cap: float
    weighting: str

    @property
    def level(self) -> float:
        """What the mean loss must not exceed, losses being shares of the cap."""
        return self.at_most / self.cap


@dataclass(frozen=True, eq=False)
class RiskTarget(Terms):
    """A promise as it is counted: in which region (0: all pixels, r: the r-th), of which images (n,), and how."""

    region: int
    subgroup: Array
    max_images: int = 0  # for which a unit counts; 0: not given
    function: Any = None
    counts_only: bool = True  # what is missed of the region says all; else the function sees the images

    def losses(self, missed: Array, size: Array) -> Array:
        """Loss of each image from what it misses of its region and the region's size: (..., n), (n,) -> (..., n)."""
        if not self.counts_only:
            raise TypeError(f"the loss {self.name!r} sees images, and here are counts alone; give one with counts=True")
        if self.function is not None:
            return self.capped(_counted(self.function, missed, size))
        part = np.minimum(missed / np.where(size > 0, size, 1), 1.0)
        if self.kind == "tail":
            return (part > self.above).astype(np.float64)
        return self.capped(part)

    def losses_of(self, truth: Array, interval: Interval, first: int) -> Array:
        """Loss of each image of a block from its interval, for a function that sees images: -> (n,)."""
        return self.capped(_own_losses(self.function, len(truth), first, truth, interval))

    def capped(self, losses: Array) -> Array:
        """Losses as shares of the cap."""
        return losses if self.cap == 1 else np.minimum(losses, self.cap) / self.cap

    def certified(self, most: float, risk: float, certifying: int) -> CertifiedPromise:
        """What a calibration keeps of it."""
        return CertifiedPromise(*promise_key(self), most, risk, certifying)  # type: ignore[call-arg]

    def counts(self, sizes: Array) -> Array:
        """Which images count, from the sizes of all regions: (n, R) -> bool (n,)."""
        return (sizes[:, self.region] > 0) & self.subgroup

    def take(self, images: Array) -> RiskTarget:
        """The target for some of the images."""
        return replace(self, subgroup=self.subgroup[images])

    @property
    def words(self) -> str:
        """For messages."""
        if self.kind == "share" and self.place == "all" and self.cap == 1:
            return f"a risk level of {self.at_most:g}"
        more = f" above {self.above:g}" if self.kind == "tail" else ""
        return f"the promise {self.kind} {self.at_most:g}{more} of {self.name!r}"


def _counted(function: Any, missed: Array, size: Array) -> Array:
    """Losses that a user's function makes of counts, a path point at a time; 0 of images without the region."""
    has = size > 0
    rows = missed.reshape(-1, missed.shape[-1])
    out = np.zeros(rows.shape)
    for row, counted in zip(out, rows, strict=True):
        row[has] = _own_losses(function, int(has.sum()), 0, counted[has].astype(np.float64), size[has])
    return out.reshape(missed.shape)


def _own_losses(function: Any, n: int, first: int, *given: Any) -> Array:
    value = np.asarray(as_plain_array(function(*given), "losses"))
    if value.shape != (n,):
        raise ValueError(f"the loss returned shape {value.shape} for {n} images; it must be one per image")
    return check_losses(value, first)


Regions = tuple[tuple[str, Any], ...]  # name and mask or weights (n, *pixels) of each distinct region


def risk_targets_of(
    promises: Sequence[Promise], band: Any, weighting: str, units: bool, max_images: int = 0
) -> tuple[tuple[RiskTarget, ...], Regions]:
    """Promises as they are counted on images of a band's shape (n, *pixels), and the distinct regions that they name.

    `weighting` is that of promises which say none; without `units` each image is its own, and the two are one.
    """
    n = int(band.shape[0])
    regions: list[tuple[str, Any]] = []
    seen: dict[int, int] = {}  # numbers of regions by the arrays that hold them
    called: dict[str, tuple[int, RiskTarget, Any]] = {}  # the first promise of each name, and its mask or weights
    targets = []
    for i, promise in enumerate(promises, 1):
        within, place, number = promise.within, "all", 0
        values: Any = None
        name = promise.name or (ALL_PIXELS if within is None else f"region {i}")
        spoken = " ".join(name.split()).casefold()  # as a reader hears it: case and blanks do not tell two apart
        if within is not None:
            if spoken == ALL_PIXELS:
                raise ValueError(
                    f"promise {i} is about a part and called {name!r}, which is the name of everything; give another: "
                    "name='body'"
                )
            place, values = place_of(within, band, f"within of promise {i}", name)
            if place != "subgroup" and promise.function is not None and not promise.counts:
                raise ValueError(
                    f"{name!r} is a loss that sees whole images, so within must be one bool per image, ({n},); count "
                    "what is missed of a region in the loss itself, or give pb.loss(..., counts=True)"
                )
        if place in ("region", "weights"):
            number = called[spoken][1].region if spoken in called else seen.setdefault(id(within), len(regions) + 1)
            if number > len(regions):
                regions.append((f"within of {name!r}", values))
        subgroup = values if place == "subgroup" else np.ones(n, bool)
        named = replace(promise, name=name)
        target = risk_target_of(named, place, number, subgroup, weighting, units, max_images)
        _check_alike(called.setdefault(spoken, (i, target, values)), (i, target, values), name)
        targets.append(target)
    return tuple(targets), tuple(regions)


def _check_alike(one: tuple[int, RiskTarget, Any], other: tuple[int, RiskTarget, Any], name: str) -> None:
    """Promises that are called alike are about the same, or the sentence would say two things of one."""
    (i, a, values), (j, b, others), why = one, other, ""
    if a.kind == b.kind == "loss" and (a.function, a.counts_only) != (b.function, b.counts_only):
        why = "are different losses"
    elif a.place != b.place:
        why = f"are about different things ({a.place} and {b.place})"
    elif values is not others and (image := _difference(values, others)) is not None:
        why = f"are about different regions (see image {image})"
    if why:
        raise ValueError(
            f"promises {i} and {j} are both called {name!r}, but {why}; give each a name of its own (name=)"
        )


def _difference(one: Any, other: Any) -> int | None:
    """The first image in which two regions of the same images differ; None where they are the same."""
    rows = ((i, rows_of(one, i, i + 1), rows_of(other, i, i + 1)) for i in range(int(one.shape[0])))
    return next((i for i, a, b in rows if not np.array_equal(a, b)), None)


def risk_target_of(
    promise: Promise, place: str, region: int, subgroup: Array, weighting: str, units: bool, max_images: int = 0
) -> RiskTarget:
    """A promise with a name as it is counted, in a region by its number."""
    way = promise.weighting or weighting
    way = "units" if way == "images" and not units else way
    return RiskTarget(
        promise.kind, str(promise.name), place, promise.at_most, promise.above or 0.0, promise.cap or 1.0, way, region,
        subgroup, max_images, promise.function, promise.function is None or promise.counts,
    )  # fmt: skip


# ---------------------------------------------------------------- what a calibration keeps


@dataclass(frozen=True)
class CertifiedPromise(Terms):
    """A promise that was certified, jointly with the others of its calibration.

    most           where images or pixels are counted in units: for how many a unit counts at most; else 0
    risk           what was seen on the images that certified
    certifying     images (or units) with the region that certified it
    """

    most: float
    risk: float
    certifying: int

    def __post_init__(self) -> None:
        check_choice(self.kind, PROMISE_KINDS, "kind of a promise")
        check_name(self.name)
        check_choice(self.place, PLACES, "place of a promise")
        check_choice(self.weighting, WAYS_TO_WEIGH, "weighting of a promise")
        check_open_unit(self.at_most, "at_most")
        for name in ("above", "cap", "most", "risk"):
            check_number(getattr(self, name), name)
        check_count(self.certifying, "certifying")

    def asked(self, within: Any = None, function: Any = None) -> Promise:
        """The promise as a user asks for it, with the region of other images, and the loss, where it has one."""
        above = self.above if self.kind == "tail" else None
        cap = self.cap if self.cap < 1 else None
        return Promise(self.kind, self.at_most, above, within, cap, self.name, self.weighting, function)

    def state(self) -> dict[str, Any]:
        """Plain values, for the file."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Any) -> CertifiedPromise:
        """What a file says of a promise, checked."""
        if not isinstance(state, dict) or state.keys() != {field.name for field in fields(cls)}:
            raise ValueError(f"{state!r} is no promise")
        return cls(**state)


def promise_key(promise: Any) -> tuple[Any, ...]:
    """All that a promise is, certified or seen on other images: two with the same key are the same promise."""
    return tuple(getattr(promise, field.name) for field in fields(Terms))


def of_all_pixels(promises: Sequence[CertifiedPromise]) -> bool:
    """Whether this is one share of all pixels, not pooled: a mean over images or units, which every evaluation has."""
    first = promises[0]
    alone = len(promises) == 1 and (first.kind, first.place, first.cap) == ("share", "all", 1)
    return alone and first.weighting != "pixels"


def check_same_places(promises: Sequence[CertifiedPromise], targets: Sequence[RiskTarget]) -> None:
    """Regions of further images are of the kind that those of the calibration were."""
    for promise, target in zip(promises, targets, strict=True):
        if target.place != promise.place:
            raise ValueError(
                f"within of {promise.name!r} is of kind {target.place!r}, and at first it was {promise.place!r}: give "
                "a mask where a mask was given, weights where weights were, one bool per image for a subgroup"
            )
