"""Joint promises, tested by simulation: all of them hold together with probability 1 - delta, without correction.

An image has eight pixels of known hardness, and its unit one number of luck: a pixel is missed where luck times
hardness exceeds the widening. So a world is a table of losses, no image is made, and the true risk of a promise at each
point of the path is a finite sum; thousands of worlds take seconds. One test shows that the tables are those which
`loss_table` counts on images. Each check computes how likely a wrong procedure would be refused (`trials`).
"""

from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from types import SimpleNamespace

import numpy as np
import pytest
from trials import DOUBLED, LARGE, check_failures, generator

import pixelbounds as pb
from pixelbounds.calibration.block import Single
from pixelbounds.calibration.certify import LossTable
from pixelbounds.calibration.data import CertifyingImages
from pixelbounds.calibration.promises import RiskTarget

pytestmark = pytest.mark.guarantees

DELTA, PIXELS, LUCKS = 0.1, 8, 200
CHANCE = np.array([0.45, 0.35, 0.2])  # of the kinds of image


def some(*pixels):
    return np.isin(np.arange(PIXELS), pixels).astype(float)


NONE, EVERY = np.zeros(PIXELS), np.ones(PIXELS)
HARDNESS = np.stack([0.5 * EVERY, np.where(some(0, 1, 2, 3), 0.7, 0.5), np.where(some(5, 6), 1.0, 0.6)])
REGIONS = {  # weights of the pixels in each kind of image
    "all": np.stack([EVERY, EVERY, EVERY]),
    "organ": np.stack([NONE, some(0, 1, 2, 3), some(5)]),
    "overlap": np.stack([some(2, 3, 4, 5), some(3, 4), NONE]),
    "rare": np.stack([NONE, NONE, some(6, 7)]),
    "weights": np.tile(np.linspace(0, 1, PIXELS), (3, 1)),
}
WEIGHTS = np.stack(list(REGIONS.values()), axis=1)  # (kinds, regions, pixels)


def asked(where, at_most, above=0.0, cap=1.0, kind="share", group=False):
    """A promise as it is counted; of a subgroup where `group`: images of the last two kinds."""
    return RiskTarget(kind, where, "region", at_most, above, cap, "units", list(REGIONS).index(where), group)


ASKED = {
    1: [asked("organ", 0.25)],
    3: [asked("all", 0.2), asked("organ", 0.25), asked("all", 0.25, 0.5, kind="tail")],
    8: [
        asked("all", 0.2), asked("organ", 0.25), asked("overlap", 0.2), asked("rare", 0.4), asked("weights", 0.25),
        asked("all", 0.3, 0.6, kind="tail"), asked("all", 0.15, cap=0.5), asked("all", 0.3, group=True),
    ],
}  # fmt: skip


def missed(kind_of, luck, points):
    """What images miss of each region at each point, (n, regions, points)."""
    lost = (luck[:, None] * HARDNESS[kind_of])[:, :, None] > points
    return np.einsum("nrp,npt->nrt", WEIGHTS[kind_of], lost)


ATOMS = np.repeat(np.arange(3), LUCKS), np.tile((np.arange(LUCKS) + 0.5) / LUCKS, 3)


def true_risk(one, points, weighting="units", most=np.inf):
    """The risk of a promise at each point, (points,)."""
    kind, _ = ATOMS
    size = WEIGHTS[kind, one.region].sum(axis=1)
    chance = CHANCE[kind] * (size > 0) * ((kind > 0) | (not one.subgroup))
    counted = chance * (np.minimum(size, most) if weighting == "pixels" else 1)
    losses = one.losses(missed(*ATOMS, points)[:, one.region].T, size)
    return one.cap * losses @ counted / counted.sum()


GRID = np.linspace(0, 1, 201)


@cache
def edges(count, weighting):
    """A path on which each promise is broken by a little at some point, and kept by a little at the next."""
    found = [int(np.argmax(true_risk(one, GRID, weighting) <= one.at_most)) for one in ASKED[count]]
    return np.unique(GRID[[0, 200, *found, *(at - 1 for at in found)]])


@dataclass(frozen=True)
class Ways:
    """How promises are certified."""

    promises: int = 8
    bound: str = "betting"
    weighting: str = "units"
    n: int = 150  # images, or units
    per_unit: int = 1

    def world(self, rng):
        """Path, targets and sizes of regions, misses, units and who fits: what a table of losses holds."""
        promises = ASKED[self.promises]
        points = edges(self.promises, self.weighting)
        kind_of = rng.choice(3, self.n * self.per_unit, p=CHANCE)
        luck = (rng.integers(LUCKS, size=self.n).repeat(self.per_unit) + 0.5) / LUCKS
        risks = tuple(
            replace(one, weighting=self.weighting, subgroup=(kind_of > 0) | (not one.subgroup)) for one in promises
        )
        return points, risks, WEIGHTS[kind_of].sum(axis=2), missed(kind_of, luck, points)

    def broken(self, rng, choose=None):
        """Whether a promise is broken where all are certified, or where `choose` says so of the table."""
        points, risks, sizes, table = self.world(rng)
        rows = np.ascontiguousarray(table.reshape(len(table), -1).T)
        unit_of = np.arange(self.n).repeat(self.per_unit)
        fitting = 15 if self.weighting != "units" else 0
        data = SimpleNamespace(unit_of=unit_of, nouns="images", at_hand=False)
        images = CertifyingImages(data, unit_of >= fitting, rng.permutation(np.arange(fitting, self.n)), risks, None)
        path = pb.Path(points[None], Single())
        target = SimpleNamespace(bound=getattr(pb.bounds, self.bound), failure_prob=DELTA, of_all_pixels=False)
        try:
            found = (choose or pb.certify)(LossTable(images, path, rows, sizes, None, None, None), target)
        except pb.NoGuarantee:  # nothing is promised
            return False
        risk = [
            true_risk(one, points[[found.point]], self.weighting, kept.most or np.inf)[0]
            for one, kept in zip(ASKED[self.promises], found.promises, strict=True)
        ]
        return any(r > one.at_most + 1e-9 for r, one in zip(risk, ASKED[self.promises], strict=True))


WAYS = [Ways(count, bound) for count in ASKED for bound in ("betting", "hoeffding_bentkus")]
WAYS += [Ways(8, bound, weighting, 90, 2) for bound in ("betting", "bentkus") for weighting in ("units", "images")]
WAYS += [Ways(3, bound, "pixels") for bound in ("betting", "hoeffding_bentkus")]


def failures(ways, count, choose=None):
    return sum(ways.broken(generator(ways, seed=seed), choose) for seed in range(count))


def test_the_tables_are_those_that_are_counted_on_images():
    rng = np.random.default_rng(0)
    kind_of, luck = rng.choice(3, 40, p=CHANCE), rng.random(40)
    truth = 0.5 + 0.4 * luck[:, None] * HARDNESS[kind_of]
    data = pb.CalibrationData(truth, pb.Band(np.full(truth.shape, 0.25), np.full(truth.shape, 0.5)))
    names = [name for name in REGIONS if name != "all"]
    promises = [pb.share(0.5), *(pb.share(0.5, within=REGIONS[name][kind_of], name=name) for name in names)]
    data, risks = data.with_promises(pb.Target(promises))
    certifying = pb.split_at(data, risks, np.arange(0), np.arange(40)).certifying
    points = np.linspace(0, 0.4, 9) + 1e-9
    table = pb.loss_table(certifying, pb.Path(points[None], Single()))
    wanted = missed(kind_of, luck, points / 0.4).reshape(40, -1)
    np.testing.assert_allclose(table.missed.T, wanted, atol=1e-9)


def test_all_promises_hold_together_without_correction(record_property):
    share = 1000 if LARGE else ceil(240 / len(WAYS))
    counts = [failures(ways, share) for ways in WAYS]
    check_failures(sum(counts), share * len(WAYS), DELTA, DOUBLED, record_property)
    for count in counts if LARGE else ():
        check_failures(count, share, DELTA, DOUBLED)


def last_alone(table, target):
    """The last promise decides where to stop, and the others are told of that point."""
    images = replace(table.images, risks=table.images.risks[-1:])
    point = pb.certify(replace(table, images=images), target)
    return replace(point, promises=(SimpleNamespace(most=0),) * len(table.images.risks))


def perfect(table, target):
    """Images without the region count as perfect."""
    return pb.certify(replace(table, sizes=np.maximum(table.sizes, 1e-9)), target)


def own_mean(table, target):
    """The plain mean in the place of a bound."""
    return pb.certify(table, SimpleNamespace(**{**vars(target), "bound": lambda losses, prob: losses.mean()}))


@pytest.mark.parametrize("wrong, promises", [(last_alone, 3), (perfect, 1), (own_mean, 8)])
def test_what_is_wrong_breaks_them(wrong, promises, record_property):
    """How often, and so how surely the check above sees it."""
    worlds, ways = 1000 if LARGE else 60, Ways(promises)
    broken = failures(ways, worlds, wrong)
    name = wrong.__doc__.rstrip(".")
    check_failures(failures(ways, worlds), worlds, DELTA, (name, broken / worlds), record_property)


def test_a_cap_lets_few_units_certify_more():
    """58 units at 5%: a cap of 0.25 leaves room for about four times the risk."""
    rng = generator("cap", seed=0)
    centre = rng.uniform(0.4, 0.6, (58, 20, 20))
    truth = centre + 0.03 * rng.standard_normal(centre.shape)
    band = pb.Band(centre - 0.03, centre + 0.03)
    plain, capped = (
        pb.calibrate(truth, band, promises=[pb.share(0.05, cap=cap, name="all")], method="rcps") for cap in (None, 0.25)
    )
    assert plain.risk < 0.015 < 0.03 < capped.risk < 0.05
    assert capped.widening[0] < 0.8 * plain.widening[0]
