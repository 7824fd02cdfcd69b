"""Whether images agree with what a calibration claims, and where the two cannot be compared.

Each promise is compared with what the same promise comes to: the same loss, region, level, and way to count. One share
of all pixels is compared with the mean over units, each counting the same, or over images, that every evaluation has. A
promise is seen broken only where the low end of an interval that is valid for it lies above its level.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ..calibration.calibration import Calibration
from ..calibration.promises import CertifiedPromise, of_all_pixels, promise_key
from ..calibration.words import number_of, plural
from ..images.checks import check_count, check_unit_name
from .evaluation import Evaluation, SeenPromise


@dataclass(frozen=True)
class StoredGuarantee:
    """What a calibration certified, for a file of intervals.

    `unit_name` is None where images were taken as independent; `expected` where it holds on average over calibration
    sets (conformal). `digest` is that of the calibration images, and `image_hashes` says whether each of them is
    recognised.
    """

    promises: tuple[CertifiedPromise, ...]
    unit_name: str | None
    max_images: int
    expected: bool
    digest: str
    image_hashes: bool

    @classmethod
    def of(cls, calibration: Calibration) -> StoredGuarantee:
        """What a calibration certified."""
        record = calibration.record
        return cls(
            calibration.promises, record.unit_name if record.units else None, record.max_images,
            calibration.bound == "conformal", record.digest, bool(record.image_hashes.any()),
        )  # fmt: skip

    @classmethod
    def from_state(cls, state: Any) -> StoredGuarantee | None:
        """What a file of intervals says was certified; None where it does not say."""
        if not isinstance(state, dict) or state.keys() != {field.name for field in fields(cls)}:
            return None
        promises = tuple(CertifiedPromise.from_state(promise) for promise in state["promises"])
        stored = cls(**{**state, "promises": promises})
        if not promises:
            raise ValueError("the intervals claim no promise; apply the calibration again")
        check_count(stored.max_images, "max_images", least=0)
        if stored.unit_name is not None:
            check_unit_name(stored.unit_name)
        return stored


@dataclass(frozen=True)
class GuaranteeCheck:
    """What the promises of a claim come to, each with its interval and level; none where they cannot be compared.

    `apart` says whether none of the images calibrated, as far as digests tell; `notes` what cannot be compared or was
    not checked, and what to do about it; `one_mean` whether the claim is one share of all pixels, and `of_units`
    whether that was compared in the mean over units.
    """

    promises: tuple[SeenPromise, ...]
    apart: bool
    notes: tuple[str, ...]
    one_mean: bool = False
    of_units: bool = False

    @property
    def level(self) -> float | None:
        """The level of one share of all pixels, where that was compared."""
        return self.promises[0].at_most if self.promises and self.one_mean else None

    @property
    def broken(self) -> bool:
        """Whether a promise is seen broken: even the low end that holds for all of them lies above its level."""
        return any(promise.broken for promise in self.promises)

    @property
    def verdict(self) -> str:
        """In a few words."""
        if not self.promises:
            return "not compared with the level"
        above = [promise for promise in self.promises if promise.risk > promise.at_most]
        chance = "" if self.broken else ", which chance may explain"
        if self.one_mean:
            return f"above the level{chance}" if above else "within the level"
        named = ", ".join(promise.name for promise in above if promise.broken or not self.broken)
        return f"above the level of {named}{chance}" if above else "within the level of every promise"


def judge(evaluation: Evaluation, against: Calibration | StoredGuarantee) -> GuaranteeCheck:
    """Compare an evaluation with what a calibration claims.

    >>> import numpy as np, pixelbounds as pb
    >>> truth = np.random.default_rng(0).uniform(size=(160, 8, 8))
    >>> band = pb.Band(np.full_like(truth, 0.1), np.full_like(truth, 0.9))
    >>> cal = pb.calibrate(truth[:100], band[:100], risk_level=0.1)
    >>> judge(pb.evaluate(truth[100:], cal.apply(band[100:]), calibration=cal), cal).verdict
    'within the level'
    """
    stored = StoredGuarantee.of(against) if isinstance(against, Calibration) else against
    reasons = _incomparable(evaluation, stored)
    apart = evaluation.apart_from is not None and evaluation.apart_from == stored.digest
    notes = (*reasons, *_cautions(evaluation, stored, apart=apart))
    if reasons:
        return GuaranteeCheck((), apart, notes)
    if not of_all_pixels(stored.promises):
        return GuaranteeCheck(evaluation.promises, apart, notes)
    first = stored.promises[0]
    of_units = stored.unit_name is not None and first.weighting == "units"
    risk, ends = evaluation.risk, evaluation.risk_interval
    if not of_units:
        risk, ends = evaluation.image_risk, evaluation.image_risk_interval
        if evaluation.unit_name is not None and evaluation.max_images != stored.max_images:
            ends = (0.0, 1.0)  # how large units may be is not known
    seen = SeenPromise.of(first, risk, ends, len(evaluation.by_unit), ends, first.most)
    return GuaranteeCheck((seen,), apart, notes, one_mean=True, of_units=of_units)


def _incomparable(evaluation: Evaluation, stored: StoredGuarantee) -> list[str]:
    reasons, noun, here, several = [], stored.unit_name, evaluation.unit_name, not of_all_pixels(stored.promises)
    claimed, seen = ([(promise_key(x), x.most) for x in one.promises] for one in (stored, evaluation))
    if several and not evaluation.promises:
        reasons.append(
            "The calibration certified other promises than one share of all pixels, and none was evaluated here: give "
            "them again (--promise, evaluate(promises=...)), with the regions of these images."
        )
    elif several and seen != claimed:
        names = ", ".join(repr(promise.name) for promise in stored.promises)
        reasons.append(
            f"Certified was {names}, and those compared here are others: evaluate with the calibration, and the same "
            "promises in the same order, alike in name, place, level and what counts."
        )
    if stored.expected:
        reasons.append(
            "The guarantee holds on average over calibration sets, so one set cannot be seen to break it: the share "
            "outside was not compared with the level."
        )
    if noun is not None and here is None:
        reasons.append(
            f"The calibration is by {plural(noun)}, and here each image counts for itself, as if images were "
            f"independent: the two were not compared. Give the {noun} of each image (--units)."
        )
    elif len({noun, here} - {None, "unit"}) > 1:
        reasons.append(
            f"The calibration is by {plural(str(noun))}, and here {plural(str(here))} are counted: the two were not "
            f"compared. Give the {noun} of each image (--units, --unit-name)."
        )
    if stored.max_images and stored.max_images != evaluation.max_images:
        reasons.append(
            f"In the calibration a {noun} of more than {stored.max_images} images counts as one of "
            f"{stored.max_images}, and here not: evaluate with the calibration to compare them."
        )
    return reasons


def _cautions(evaluation: Evaluation, stored: StoredGuarantee, *, apart: bool) -> list[str]:
    notes = []
    if stored.unit_name is None and evaluation.unit_name is not None:
        units = number_of(len(evaluation.units), evaluation.unit_name)
        notes.append(
            f"The calibration took images as independent, and here they are of {units}. If images of one "
            f"{evaluation.unit_name} are alike, the guarantee does not hold: calibrate with units. Its level is "
            "compared with the mean over images."
        )
    if not apart:
        why = (
            "evaluate the bands with the calibration (--calibration), which knows its images"
            if stored.image_hashes
            else "the calibration keeps no digests of its images, see to it that none did"
        )
        notes.append(f"Whether some of these images calibrated was not checked: {why}.")
    return notes
