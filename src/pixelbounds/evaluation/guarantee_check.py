"""Whether images agree with what a calibration claims, and where the two cannot be compared.

A claim is about one mean: over units, each counting the same, or over images. It is compared with the same mean of the
evaluation, by an interval that is valid for it, and seen broken only where the low end lies above the level. A claim of
several promises is compared with what each of them comes to, where the evaluation was asked about the same ones.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ..calibration.calibration import Calibration
from ..calibration.promises import CertifiedPromise
from ..calibration.words import plural
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

    def state(self) -> dict[str, Any]:
        """Plain values, for the file of intervals."""
        return asdict(self)

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

    @property
    def first(self) -> CertifiedPromise:
        """The first promise."""
        return self.promises[0]

    @property
    def of_all_pixels(self) -> bool:
        """Whether it is one share of all pixels, which every evaluation counts."""
        first = self.first
        return len(self.promises) == 1 and (first.kind, first.place, first.cap) == ("share", "all", 1)

    @property
    def of_units(self) -> bool:
        """Whether it is about the mean over units, each counting the same."""
        return self.unit_name is not None and self.first.weighting == "units"


def stored_guarantee_of(calibration: Calibration) -> StoredGuarantee:
    """What a calibration certified."""
    record = calibration.record
    return StoredGuarantee(
        promises=calibration.promises,
        unit_name=record.unit_name if record.units else None,
        max_images=record.max_images,
        expected=calibration.bound == "conformal",
        digest=record.digest,
        image_hashes=bool(record.image_hashes.any()),
    )


@dataclass(frozen=True)
class GuaranteeCheck:
    """The mean that a claim is about, with its interval and the level; all None where they cannot be compared.

    `of_units` says which mean it is, of units or of images; `apart` whether none of the images calibrated, as far as
    digests tell; `notes` what cannot be compared or was not checked, and what to do about it. Where `promises` were
    made, each is compared with its own level.
    """

    risk: float | None
    interval: tuple[float, float] | None
    level: float | None
    apart: bool
    notes: tuple[str, ...]
    of_units: bool = False
    promises: tuple[SeenPromise, ...] = ()  # that were compared, where the claim is of promises

    @property
    def broken(self) -> bool:
        """Whether the claim is seen broken: even the low end of the interval lies above the level, or a promise's."""
        if self.promises:
            return any(promise.broken for promise in self.promises)
        return self.level is not None and self.interval is not None and self.interval[0] > self.level

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.promises:
            above = [promise for promise in self.promises if promise.risk > promise.at_most]
            if not above:
                return "within the level of every promise"
            named = ", ".join(promise.name for promise in (x for x in above if x.broken or not self.broken))
            return f"above the level of {named}" + ("" if self.broken else ", which chance may explain")
        if self.risk is None or self.level is None:
            return "not compared with the level"
        if self.risk <= self.level:
            return "within the level"
        return "above the level" if self.broken else "above the level, which chance may explain"


def judge(evaluation: Evaluation, against: Calibration | StoredGuarantee) -> GuaranteeCheck:
    """Compare an evaluation with what a calibration claims.

    >>> import numpy as np, pixelbounds as pb
    >>> truth = np.random.default_rng(0).uniform(size=(160, 8, 8))
    >>> band = pb.Band(np.full_like(truth, 0.1), np.full_like(truth, 0.9))
    >>> cal = pb.calibrate(truth[:100], band[:100], risk_level=0.1)
    >>> judge(pb.evaluate(truth[100:], cal.apply(band[100:]), calibration=cal), cal).verdict
    'within the level'
    """
    stored = stored_guarantee_of(against) if isinstance(against, Calibration) else against
    reasons = _incomparable(evaluation, stored)
    notes = (*reasons, *_cautions(evaluation, stored))
    apart = _apart(evaluation, stored)
    if reasons:
        return GuaranteeCheck(None, None, None, apart, notes)
    if not stored.of_all_pixels:
        return GuaranteeCheck(None, None, None, apart, notes, promises=evaluation.promises)
    level = stored.first.at_most
    if stored.of_units:
        return GuaranteeCheck(evaluation.risk, evaluation.risk_interval, level, apart, notes, of_units=True)
    return GuaranteeCheck(evaluation.image_risk, evaluation.image_risk_interval, level, apart, notes)


def _apart(evaluation: Evaluation, stored: StoredGuarantee) -> bool:
    return evaluation.apart_from is not None and evaluation.apart_from == stored.digest


def _incomparable(evaluation: Evaluation, stored: StoredGuarantee) -> list[str]:
    """Why the claim is about something else than what was evaluated."""
    reasons = [] if stored.of_all_pixels else _other_promises(evaluation, stored)
    if stored.expected:
        reasons.append(
            "The guarantee holds on average over calibration sets, so one set cannot be seen to break it: the share "
            "outside was not compared with the level."
        )
    if stored.unit_name is not None and evaluation.unit_name is None:
        reasons.append(
            f"The calibration is by {plural(stored.unit_name)}, and here each image counts for itself, as if images "
            f"were independent: the two were not compared. Give the {stored.unit_name} of each image (--units)."
        )
    names = {stored.unit_name, evaluation.unit_name} - {None, "unit"}
    if len(names) > 1:
        reasons.append(
            f"The calibration is by {plural(str(stored.unit_name))}, and here {plural(str(evaluation.unit_name))} are "
            f"counted: the two were not compared. Give the {stored.unit_name} of each image (--units, --unit-name)."
        )
    sizes = evaluation.unit_sizes.max()
    if stored.max_images and stored.max_images != evaluation.max_images and sizes > stored.max_images:
        reasons.append(
            f"In the calibration a {stored.unit_name} of more than {stored.max_images} images counts as one of "
            f"{stored.max_images}, and here not: evaluate with the calibration to compare them."
        )
    return reasons


def _other_promises(evaluation: Evaluation, stored: StoredGuarantee) -> list[str]:
    """Why promises that were certified are not those that were evaluated."""
    if not evaluation.promises:
        return [
            "The guarantee is of several promises, or of one about less than all pixels, and here the share of all "
            f"{evaluation.entries} outside is counted: evaluate(promises=...), or --promise, compares each of them."
        ]
    asked = [(promise.kind, promise.at_most, promise.above, promise.cap) for promise in evaluation.promises]
    if asked != [(promise.kind, promise.at_most, promise.above, promise.cap) for promise in stored.promises]:
        said = f"certified {len(stored.promises)} promises" if stored.promises else "is not known here"
        return [
            f"The calibration {said}, and those compared here are others: evaluate with the calibration, and the same "
            "promises in the same order."
        ]
    if evaluation.apart_from is None and any(promise.most for promise in stored.promises):
        return ["How much a unit counts for at most is known to the calibration alone: evaluate with it to compare."]
    return []


def _cautions(evaluation: Evaluation, stored: StoredGuarantee) -> list[str]:
    """What else a reader must know."""
    notes = []
    if stored.unit_name is None and evaluation.unit_name is not None:
        units = f"{len(evaluation.units)} {plural(evaluation.unit_name)}"
        notes.append(
            f"The calibration took images as independent, and here they are of {units}. If images of one "
            f"{evaluation.unit_name} are alike, the guarantee does not hold: calibrate with units. Its level is "
            "compared with the mean over images."
        )
    if not _apart(evaluation, stored):
        why = (
            "evaluate the bands with the calibration (--calibration), which knows its images"
            if stored.image_hashes
            else ("the calibration keeps no digests of its images, see to it that none did")
        )
        notes.append(f"Whether some of these images calibrated was not checked: {why}.")
    return notes
