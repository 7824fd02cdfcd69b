"""A trust mask with a promise: of the pixels that it holds, at most a share `at_most` is wrong, on average.

A pixel is wrong where the truth is farther than a tolerance from the estimate, or outside its interval. The loss of an
image is the share of wrong pixels among those that its mask holds, and 0 where the mask is empty. Groups of pixels that
the band tells apart are ordered on the fitting images, the safest first, and the mask grows by one rank of them at each
step. This loss need not rise as the mask grows, and need not: the order is fixed before any image certifies, every mask
is tested with its own loss, and the first that fails ends the test (fixed-sequence testing, Learn then Test). The test
begins at the mask that is best on the fitting images.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import numpy as np

from ..images.checks import (
    Limits,
    NoGuarantee,
    check_choice,
    check_limits,
    check_number,
    check_open_unit,
    check_same_shape,
)
from ..images.ends import Band, one_band
from ..images.foreign import check_same_axes
from ..images.library import Array, as_array, like, to_numpy
from ..images.source import Source
from ..storage.files import check_new_file, read_file, replace_file, seal, unseal
from ..storage.version import VERSION
from .block import Block, read_block
from .bounds import BOUNDS
from .certify import fixed_sequence_test
from .data import ROWS, CalibrationData, FittingImages, statistic
from .families import Family
from .groups.band_features import BandGroups, fit_band_groups
from .groups.contract import unpacked
from .methods import Frontier, split
from .promises import share
from .target import Target, risk_test_of
from .words import confidence_in_words, level_in_words, plural, share_in_words

_RANKS = 200  # masks that are tested
_PIXELS = 50  # of the fitting images, in a group, to tell how often they are wrong
_FORMAT = 2


@dataclass(frozen=True, eq=False)
class TrustMask:
    """Which groups of pixels are trusted, and what is promised of them.

    tolerance    largest error of a pixel that is not wrong; None: its interval must hold the truth
    risk         share of wrong pixels in the masks of the certifying images
    trusted      share of an image in its mask, on average over the certifying images
    empty        share of the certifying images whose mask is empty
    certifying   how many images (or units, each called `unit_name`) certified
    pixels       shape of an image
    """

    grouping: BandGroups
    in_mask: Array
    limits: Limits
    tolerance: float | None
    at_most: float
    failure_prob: float
    bound: str
    risk: float
    trusted: float
    empty: float
    certifying: int
    unit_name: str
    pixels: tuple[int, ...]
    source: Source

    def __repr__(self) -> str:
        return f"TrustMask: {self.guarantee}"

    @property
    def guarantee(self) -> str:
        """What is promised, as plain sentences."""
        wrong = "outside their intervals" if self.tolerance is None else f"farther than {self.tolerance:g} from it"
        units = plural(self.unit_name)
        each = "" if self.unit_name == "image" else " (each averaged over its images)"
        return (
            f"With probability at least {confidence_in_words(self.failure_prob)} over the calibration set, at most "
            f"{level_in_words(self.at_most)} of the pixels that the mask of an estimate holds are {wrong}, on average "
            f"over future {units}{each}, provided {units} are independent of each other, future ones come from the "
            "same source, and their estimates and bands are made in the same way. A mask that is empty counts as "
            f"without error. Masks held {share_in_words(self.trusted)} of the pixels of the {self.certifying} "
            f"certifying {units}, and {share_in_words(self.empty)} of the masks were empty."
        )

    def apply(self, band: Band) -> Any:
        """Pixels of new images to be trusted: Band (n, *pixels) -> bool (n, *pixels)."""
        band = one_band(band)
        self.source.check(band.source)
        check_same_axes(self.pixels, None, band)
        masks = [self._mask(read_block(band, i, i + 1, self.limits)) for i in range(len(band))]
        return like(np.concatenate(masks), band.lower)

    def _mask(self, block: Block) -> Array:
        self.grouping.check(block)
        return self.in_mask[self.grouping.every(block)[0]].reshape(block.band.shape)

    def losses(self, truth: Any, estimate: Any, band: Band) -> Array:
        """Share of wrong pixels in the mask of each image, 0 where it is empty: (n,)."""
        mask, band = to_numpy(self.apply(band)), band.map(to_numpy)
        truth, estimate = to_numpy(as_array(truth, "truth")), to_numpy(as_array(estimate, "estimate"))
        check_same_shape(band=mask, truth=truth, estimate=estimate)
        wrong = _wrong(truth, estimate, band, self.tolerance) & mask
        return np.asarray(wrong.reshape(len(mask), -1).sum(axis=1) / np.maximum(mask.reshape(len(mask), -1).sum(1), 1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, aside first and then in place."""
        groups, tensors = self.grouping.packed("groups.")
        text = {name: x for name, x in vars(self).items() if name not in ("grouping", "in_mask", "source")}
        text |= {"format": _FORMAT, "package": "pixelbounds trust", "version": VERSION, "guarantee": self.guarantee}
        text |= {"limits": [x if isfinite(x) else None for x in self.limits]}
        text |= {"groups": groups, "source": self.source.state()}
        tensors |= {"in_mask": self.in_mask.astype(np.uint8)}
        replace_file(check_new_file(path, "trust mask"), seal(text, tensors))


def trust(
    estimate: Any, band: Band, truth: Any, *, tolerance: float | None, at_most: float, failure_prob: float = 0.1,
    bound: Any = "betting", units: Any = None, limits: Any = (0.0, 1.0), seed: Any = 0,
) -> TrustMask:  # fmt: skip
    """The largest mask of which, on average over images, at most `at_most` is wrong.

    estimate      the images that are shown, (n, *pixels)
    band          their band, which says where they are uncertain
    truth         the true images
    tolerance     largest error of a pixel that is not wrong, in the images' unit; None: a pixel is wrong where the band
                  (an interval calibrated on other images, say) misses the truth
    at_most       largest mean share of wrong pixels among those in the mask; an empty mask has none
    failure_prob, units, limits, seed    as in `calibrate`; so is the name of a bound, which must hold with this
                  probability: not "conformal", which needs losses that fall

    >>> rng = np.random.default_rng(0)
    >>> deviation = np.where(rng.random((300, 8, 8)) < 0.5, 0.02, 0.2)
    >>> estimate = rng.uniform(0.3, 0.7, (300, 8, 8))
    >>> truth = np.clip(estimate + deviation * rng.standard_normal(estimate.shape), 0, 1)
    >>> mask = trust(estimate, Band(estimate - deviation, estimate + deviation), truth, tolerance=0.1, at_most=0.1)
    >>> 0.4 < mask.trusted < 0.8 and mask.risk < 0.1
    True
    """
    if tolerance is not None and check_number(tolerance, "tolerance") <= 0:
        raise ValueError(f"tolerance is {tolerance:g}; give an error above 0, or None for pixels outside their band")
    band = one_band(band)
    if not band.pixels:
        raise ValueError("a trust mask is for images of one size; bring these to one size")
    estimate = as_array(estimate, "estimate")
    check_same_shape(band=band.lower, estimate=estimate)
    data = CalibrationData(truth, band, units, features=estimate, limits=limits)
    if data.units is not None and data.units.weighting != "units":
        raise ValueError(f"units have weighting={data.units.weighting!r}; here each counts alike: leave weighting out")
    bound = check_choice(bound, sorted(BOUNDS.keys() - {"conformal"}), "bound")
    target = Target([share(check_open_unit(at_most, "at_most"))], failure_prob, bound)
    fitting, certifying = split(data, target, Frontier(groups="band"), seed)
    pixels = int(fitting.data.sizes.sum())
    bins = {"width": min(24, max(2, pixels // _PIXELS)), "level": min(8, max(1, pixels // (24 * _PIXELS)))}
    grouping = fit_band_groups(fitting.data, fitting.images, **bins, room=1, side=False)
    rank = _ranks(fitting, grouping, tolerance)
    wrong, held = certifying.data.aggregate(trusted_pixels, grouping=grouping, rank=rank, tolerance=tolerance)
    losses = wrong / np.maximum(held, 1)
    test = risk_test_of(
        certifying.risks[0], data.sizes[:, None], certifying.images, data.unit_of, certifying.order, target.bound,
        target.failure_prob,
    )  # fmt: skip
    last = losses.shape[1] - 1
    try:
        point = fixed_sequence_test(test, lambda i: test.losses(losses[:, last - i]), last + 1, monotone=False)
    except NoGuarantee as error:
        raise NoGuarantee(
            f"no mask can be trusted: even the safest pixels are wrong more often than {at_most:g}, or "
            f"{len(certifying.order)} are too few to show it. Give more images, a larger tolerance or a higher at_most"
        ) from error
    kept = last - point
    of_certifying = certifying.images
    return TrustMask(
        grouping, rank <= kept, data.limits, tolerance, at_most, target.failure_prob, target.bound_name,
        test.risk_of(test.losses(losses[:, kept])), float((held[:, kept] / data.sizes)[of_certifying].mean()),
        float((held[:, kept] == 0)[of_certifying].mean()), len(certifying.order),
        "image" if data.units is None else data.units.name, band.pixels, data.source,
    )  # fmt: skip


def load_trust(path: str | os.PathLike[str]) -> TrustMask:
    """The trust mask of a file."""
    again = "make it again with pixelbounds.trust"
    text, tensors = unseal(read_file(path, "trust mask"), str(path), what="trust mask", remedy=again, again=again)
    if text.get("package") != "pixelbounds trust" or text["format"] != _FORMAT:
        raise ValueError(f"{path} is no trust mask of this version; {again}")
    grouping = unpacked(text["groups"], tensors, "groups.")
    in_mask = tensors["in_mask"] > 0
    if not isinstance(grouping, BandGroups) or in_mask.shape != (grouping.count,):
        raise ValueError(f"{path} has groups that do not fit its mask; {again}")
    names = {field.name for field in fields(TrustMask)} - {"grouping", "in_mask", "source"}
    text |= {"limits": check_limits(text["limits"]), "pixels": tuple(text["pixels"])}
    source = Source.from_state(text["source"])
    return TrustMask(grouping, in_mask, source=source, **{name: text[name] for name in names})


def _wrong(truth: Array, estimate: Array, band: Band, tolerance: float | None) -> Array:
    if tolerance is None:
        return (truth < band.lower) | (truth > band.upper)
    return ~(np.abs(truth.astype(np.float64) - estimate) <= tolerance)  # an estimate that is NaN is wrong


@statistic(ROWS, ROWS)
def trusted_pixels(
    truth: Array, block: Block, family: Family, grouping: BandGroups, rank: Array, tolerance: float | None
) -> tuple[Array, ...]:
    """Of each image, wrong pixels and pixels in its mask of each rank: (n, ranks) each."""
    grouping.check(block)
    ranks, count = rank[grouping.every(block)[0]], int(rank.max()) + 1
    cell = ranks + np.repeat(np.arange(len(block)) * count, block.image_size)
    assert block.features is not None
    estimate = block.features[:, -1]
    wrong = _wrong(truth, estimate, block.band, tolerance).reshape(-1)
    counts = (np.bincount(x, minlength=len(block) * count).reshape(-1, count) for x in (cell[wrong], cell))
    return tuple(x.cumsum(axis=1) for x in counts)


def _ranks(fitting: FittingImages, grouping: BandGroups, tolerance: float | None) -> Array:
    """The rank of each group from 0, the safest: by its share of wrong pixels on the fitting images, (groups,).

    All ranks up to the mask with the least loss on these images, with one more wrong pixel, are one: the test begins
    there.
    """
    each = np.arange(grouping.count)
    counts = fitting.data.aggregate(trusted_pixels, fitting.images, grouping=grouping, rank=each, tolerance=tolerance)
    wrong, held = (np.diff(x, axis=1, prepend=0) for x in counts)
    order = np.argsort((wrong.sum(axis=0) + 1) / (held.sum(axis=0) + 2), kind="stable")
    wrong, held = (x[:, order].cumsum(axis=1) for x in (wrong, held))
    pixels = held.sum(axis=0)
    first = int(np.argmin((wrong / np.maximum(held, 1)).mean(axis=0) + 1 / np.maximum(pixels, 1)))
    step = np.ceil(np.maximum(pixels - pixels[first], 0) / pixels[-1] * _RANKS)
    rank = np.empty(grouping.count, np.int64)
    rank[order] = np.unique(step, return_inverse=True)[1]
    return rank
