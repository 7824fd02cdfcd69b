"""Split images to a `Calibration`: groups and path from those that fit, how far to go from those that certify.

Images may lie elsewhere (`federated`): all is asked of an `Archive`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..images.checks import (
    is_name,
)
from ..images.library import (
    Array,
)
from ..storage.version import VERSION
from .arrivals import Path, tabulated, tabulated_regions
from .certify import Losses, Task, certify_l01, certify_loss, curve_of
from .confidence import BOUNDS, ConfidenceBound
from .given_images import tell_doubles
from .groups.contract import Grouping
from .joint_walk import Jury, certify_jointly
from .losses import Loss, l01
from .pairs import Archive
from .prints import digest_of, known_again, prints
from .promises import Aim, CertifiedPromise
from .result import Calibration, Record
from .sentence import VOIDS
from .split import Split

FitPath = Callable[[Any, Array], tuple[Grouping, Path]]  # images, the numbers of those that fit -> groups and path
_USER_KNOTS = 256  # knots at which a user's loss may be evaluated


def calibrate_archive(
    pairs: Archive,
    split: Split,
    fit_path: FitPath,
    bound: ConfidenceBound,
    *,
    risk_level: float,
    failure_prob: float,
    method: str,
    loss: Loss = l01,
    units: str | None,
    seed: str,
    most_images: int = 0,
    aims: Sequence[Aim] = (),
) -> Calibration:
    """Fit groups and path on the fitting images, certify on the others; images may lie elsewhere.

    `units` is what a unit is called, None where images are independent. With `aims`, promises that say more than the
    risk level, all of them are certified together.
    """
    images = np.flatnonzero(split.fitting)
    fit = pairs.take(images) if len(images) else pairs  # read once; there are few
    grouping, path = fit_path(fit, np.arange(len(images)))
    task = Task(pairs, ~split.fitting, split.unit_of, split.order, bound, risk_level, failure_prob, most_images)
    kept: tuple[CertifiedPromise, ...] = ()
    if aims:
        jury = Jury(~split.fitting, split.unit_of, split.order, bound, failure_prob)
        with tabulated_regions(pairs, grouping, path) as (table, sizes, total, own):
            knot, kept, curve, chosen = certify_jointly(aims, pairs, path, table, sizes, jury)
        widening, risk, risk_level = path.at(knot), kept[0].risk, kept[0].at_most
    elif loss is l01:
        with tabulated(pairs, grouping, path) as (table, total, own):
            certificate = certify_l01(task, grouping, path, table)
            curve, chosen = curve_of(Losses(task, table, len(path)), path, certificate.knot)
    else:
        total, own = pairs.ask(prints)
        every = np.unique(np.linspace(0, len(path) - 1, min(_USER_KNOTS, len(path))).round().astype(int))
        path = Path(np.ascontiguousarray(path.knots[:, every]))
        certificate = certify_loss(task, grouping, path, loss)
        curve, chosen = np.empty((0, 3)), 0
    if not aims:
        widening, risk = path.at(certificate.knot, certificate.part), task.risk_of(certificate.losses)
    _check_not_certifying(grouping, own, ~split.fitting)
    if units is None:
        tell_doubles(own)
    return Calibration(
        method, name_of(bound, BOUNDS), pairs.family, "promises" if aims else name_of(loss, {"l01": l01}), risk_level,
        failure_prob, pairs.limits, grouping, widening, risk, curve, chosen,
        Record(
            images=len(pairs), fitting=len(images), certifying=task.size, units=0 if units is None else task.size,
            pixels=pairs.pixels, source=pairs.source, seed=seed, digest=digest_of(total), version=VERSION,
            unit_name=units or "unit", counting="images" if most_images else "units", most_images=most_images,
            prints=own,
        ),
        certified=kept,
    )  # fmt: skip


def name_of(function: Any, ours: Mapping[str, Any]) -> str:
    """The name of a bound or loss; "custom" for one of the user's without a name, or with that of one of ours."""
    name = getattr(function, "__name__", "custom")
    return name if is_name(name) and ours.get(name, function) is function else "custom"


def _check_not_certifying(grouping: Grouping, prints: Array, certifying: Array) -> None:
    """Groups that were shaped by images which now certify make the certificate worthless."""
    if not len(prints) or not len(grouping.fitted_on):
        return
    if np.array_equal(np.sort(grouping.fitted_on), np.sort(prints[~certifying])):
        return  # they were fitted here and now, on the fitting images; doubles of these are told elsewhere
    again = np.flatnonzero(known_again(prints, grouping.fitted_on) & certifying)
    if len(again):
        raise ValueError(
            f"the groups were fitted on {len(again)} of the images that would certify now (image {again[0]} is the "
            "first), and a promise made so fails far more often than asked: give other images, or let calibrate fit "
            f"groups on the fitting images ({VOIDS})"
        )
