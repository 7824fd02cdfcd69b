"""The promise, tested by simulation: the true risk exceeds epsilon in at most a share delta of worlds.

Each world draws a calibration set, calibrates, and asks `worlds` for the true risk of the result, in closed form. The
number of worlds that fail is at most Binomial(worlds, delta) in law; a check refuses a count that such a variable
reaches with probability below FALSE_ALARM. There are fewer than 500 checks below, so a correct package fails any of
them with probability under 500 * 1e-5 = 0.5%, at every size of the simulation. (Seeds are fixed: the die is cast once,
not at every run.) That the checks can fail at all is shown by wrong variants, which the same check must refuse.

`make test` runs few worlds, `make guarantees` sets PIXELBOUNDS_WORLDS=1000. There each combination of method, bound and
family meets twice that number of worlds, 400 of each of the five kinds; here it meets that number, and the families of
a method and bound are counted together too.
"""

from functools import lru_cache
from math import ceil, e, floor

import numpy as np
import pytest
from flat import flat_calibrate
from scipy.optimize import brentq
from scipy.stats import binom, norm
from trials import FALSE_ALARM, WORLDS, consistent, generator
from worlds import KINDS, BoundedWorld, world_of

import pixelbounds as pb
from pixelbounds.images import library

pytestmark = pytest.mark.guarantees

RISK, DELTA = 0.2, 0.1
IMAGES = 80  # enough for every bound to certify the risk level: Hoeffding needs a margin of 0.14 on krcps' 60

METHODS = {
    "rcps": {},
    "krcps": {"k": 4, "gammas": (0.5,)},  # one gamma: (P_K) only shapes the path, and the guarantee must not need it
    "frontier": {"groups": "band"},
}
BOUNDS = ("hoeffding", "bentkus", "hoeffding_bentkus", "empirical_bernstein", "betting")
FAMILIES = ("additive", "scaled", "multiplicative")
LARGE = WORLDS >= 200


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Images are few: worlds run beside each other (pytest -n), not images. Results do not depend on it."""
    monkeypatch.setattr(library, "_THREADS", 1)


# ---------------------------------------------------------------- the harness


def calibrate(world, rng, *, method="rcps", images=IMAGES, slices=1, units=True, risk=RISK, **settings):
    """Draw a calibration set of a world and calibrate on it; slices of one unit are declared as such, or not."""
    drawn = world.draw(rng, images, slices=slices)
    unit_of = np.arange(images).repeat(slices) if units and slices > 1 else None
    return flat_calibrate(
        drawn.truth, drawn.band, risk_level=risk, failure_prob=DELTA, method=method, family=world.family,
        limits=world.limits, units=unit_of, seed=rng, **METHODS[method], **settings,
    )  # fmt: skip


def true_risks(world, count, *, cost=None, **settings):
    """True risk of the calibration in each of some worlds: (count,)."""
    rngs = (generator(world, *settings.values(), seed=seed) for seed in range(count))
    return np.array([world.risk(calibrate(world, rng, **settings), cost) for rng in rngs])


def holds(risks, risk=RISK):
    """Whether the worlds whose true risk exceeds the level are as few as promised."""
    return consistent(int((risks > risk).sum()), len(risks), DELTA)


# ---------------------------------------------------------------- the worlds themselves


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_true_risk_of_a_world_is_what_its_images_show(kind, family):
    world = world_of(kind, family)
    rng = generator("closed form", kind, family, seed=0)
    cal = calibrate(world, rng, bound="hoeffding_bentkus", method="frontier")
    fresh = world.draw(rng, 4000)
    losses = pb.losses.l01(fresh.truth, cal.apply(fresh.band))
    error = losses.std() / np.sqrt(len(losses)) + 1e-6
    assert abs(losses.mean() - world.risk(cal)) < norm.isf(FALSE_ALARM / 2) * error


def test_the_check_accepts_delta_and_refuses_more():
    assert consistent(100, 1000, 0.1)
    assert not consistent(150, 1000, 0.1)


# ---------------------------------------------------------------- risk is controlled


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("method", METHODS)
def test_risk_is_controlled_in_1_minus_delta_of_worlds(method, bound, record_property):
    share = ceil((2 if LARGE else 1) * WORLDS / len(KINDS))
    failures = {
        family: {
            kind: int((true_risks(world_of(kind, family), share, method=method, bound=bound) > RISK).sum())
            for kind in KINDS
        }
        for family in FAMILIES
    }
    record_property("failures", failures)
    totals = {family: sum(counts.values()) for family, counts in failures.items()}
    assert consistent(sum(totals.values()), share * len(KINDS) * len(FAMILIES), DELTA), failures
    for family, counts in failures.items():
        assert consistent(totals[family], share * len(KINDS), DELTA), (family, counts)
        for kind, count in counts.items():
            assert consistent(count, share, DELTA), (family, kind)


@pytest.mark.parametrize("images", [24, 45, 80])
def test_risk_is_controlled_where_images_are_few_and_groups_are_left_to_us(images, record_property):
    share, failures = ceil((2 if LARGE else 1) * WORLDS / len(KINDS)), {}
    for kind in KINDS:
        world = world_of(kind, pixels=(8, 8))
        risks = []
        for seed in range(share):
            rng = generator("few", kind, images, seed=seed)
            drawn = world.draw(rng, images)
            cal = pb.calibrate(
                drawn.truth, drawn.band, risk_level=RISK, failure_prob=DELTA, limits=world.limits, seed=rng
            )
            assert len(cal.widening) == (1 if images == 24 else 4)  # by width, so that canonical images tell the risk
            risks.append(world.risk(cal))
        failures[kind] = int((np.array(risks) > RISK).sum())
        assert consistent(failures[kind], share, DELTA), kind
    record_property("failures", failures)
    assert consistent(sum(failures.values()), share * len(KINDS), DELTA), failures


@pytest.mark.parametrize("kind", ["scale", "skewed"])
def test_risk_is_controlled_with_learned_groups(kind, record_property):
    # groups depend on the neighbourhood of a pixel, so there is no canonical image: the exact chance of a miss given
    # the band is averaged over fresh bands instead, which leaves an error of about 0.001 in the risk
    world = world_of(kind, pixels=(8, 8))

    def risk(seed):
        rng = generator("learned", kind, seed=seed)
        drawn = world.draw(rng, IMAGES)
        cal = pb.calibrate(
            drawn.truth,
            drawn.band,
            risk_level=RISK,
            failure_prob=DELTA,
            limits=None,
            seed=rng,
            method=pb.Frontier(groups="learned", n_fit=16),
        )
        fresh = world.draw(rng, 100)
        centre = (fresh.band.lower + fresh.band.upper) / 2
        return world.missed(cal.apply(fresh.band), fresh.types, centre).mean()

    risks = np.array([risk(seed) for seed in range(max(4, WORLDS // 10))])
    record_property("failures", f"{(risks > RISK).sum()} of {len(risks)}")
    assert holds(risks)


POSITION_WEIGHT = np.linspace(0, 2, 16)


def weighted_share(truth, interval):
    """Share of missed pixels, those on the right counting most."""
    return (~interval.contains(truth) * POSITION_WEIGHT).mean(axis=1)


def distance_outside(truth, interval):
    """Mean distance of the truth from its interval."""
    return (np.maximum(interval.lower - truth, 0) + np.maximum(truth - interval.upper, 0)).mean(axis=1)


@pytest.mark.parametrize("bound", ["hoeffding_bentkus", "betting"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", [weighted_share, distance_outside])
def test_the_risk_of_a_users_own_loss_is_controlled(loss, method, bound, record_property):
    world = world_of("bounded")
    if loss is weighted_share:
        risk, cost = RISK, lambda interval, types: world.missed(interval, types) * POSITION_WEIGHT
    else:
        risk, cost = 0.1, world.excess
    count = max(4, WORLDS // 5)
    risks = true_risks(world, count, cost=cost, method=method, bound=bound, risk=risk, loss=loss)
    record_property("failures", f"{(risks > risk).sum()} of {count}, mean risk {risks.mean():.4f}")
    assert holds(risks, risk)


@pytest.mark.parametrize("method", METHODS)
def test_conformal_controls_the_expected_risk(method, record_property):
    risks = true_risks(world_of("bounded"), max(60, WORLDS), method=method, bound="conformal")
    error = risks.std(ddof=1) / np.sqrt(len(risks))
    record_property("mean risk", f"{risks.mean():.4f} +- {error:.4f}, above the level in {(risks > RISK).mean():.3f}")
    assert risks.mean() <= RISK + norm.isf(FALSE_ALARM) * error


def test_conformal_promises_nothing_for_the_calibration_set_at_hand():
    assert not holds(true_risks(world_of("bounded"), 100, bound="conformal"))


# ---------------------------------------------------------------- slices of one patient

PATIENTS = {"images": 60, "slices": 6}
SCANS = BoundedWorld(correlation=0.98)  # slices of a patient share nearly all that decides their losses


@pytest.mark.parametrize("bound", ["hoeffding_bentkus", "betting"])
@pytest.mark.parametrize("method", METHODS)
def test_risk_is_controlled_over_units(method, bound, record_property):
    risks = true_risks(SCANS, max(10, WORLDS // 2), method=method, bound=bound, **PATIENTS)
    record_property("failures", f"{(risks > RISK).sum()} of {len(risks)}")
    assert holds(risks)


def test_slices_taken_for_independent_images_are_caught(record_property):
    risks = true_risks(SCANS, 150, bound="betting", units=False, **PATIENTS)
    record_property("failures", f"{(risks > RISK).sum()} of {len(risks)}")
    assert not holds(risks)


# ---------------------------------------------------------------- wrong bounds are caught


def plain_mean(losses, failure_prob):
    return float(losses.mean())


@pytest.mark.parametrize("method", METHODS)
def test_the_plain_mean_is_caught(method, record_property):
    risks = true_risks(world_of("bounded"), 60, method=method, bound=plain_mean)
    record_property("failures", f"{(risks > RISK).sum()} of {len(risks)}")
    assert not holds(risks)


@lru_cache
def inverted_tail(k, n, failure_prob):
    """The risk r at which e P(Bin(n, r) <= k) = delta."""
    return 1.0 if k >= n else brentq(lambda r: e * binom.cdf(k, n, r) - failure_prob, 0, 1, xtol=1e-12)


def bentkus_with_floor(losses, failure_prob):
    return inverted_tail(floor(losses.sum()), len(losses), failure_prob)


@pytest.mark.parametrize("bound, valid", [(bentkus_with_floor, False), (pb.bounds.bentkus, True)])
def test_bentkus_with_floor_is_caught_at_16_images(bound, valid, record_property):
    # A bad image loses 31 of its 32 pixels, so k bad images lose 31 k / 32 < k, which the floor takes for k - 1. Here
    # 0 losses certify epsilon and 1 does not: the floor fails if at most one image is bad, the ceiling if none is, each
    # with its probability where the true risk passes epsilon: at widening 1/2, where 25 of 128 images are bad.
    world = BoundedWorld(correlation=1.0, spared=True, lower=(0.0,) * 3, upper=(39 / 128,) * 3, pixels=(32,))
    risk = 0.189  # 25/128 * 31/32 = 0.1892
    count = 2500 if LARGE else 300 if valid else 1200  # what is wrong takes more worlds to tell
    risks = true_risks(world, count, bound=bound, images=16, risk=risk)
    rate, expected = (risks > risk).mean(), binom.cdf(0 if valid else 1, 16, 25 / 128)  # 0.031 or 0.151
    record_property("failures", f"{(risks > risk).sum()} of {len(risks)}, expected {expected:.4f}")
    assert abs(rate - expected) < norm.isf(FALSE_ALARM / 2) * np.sqrt(expected * (1 - expected) / len(risks))
    assert holds(risks, risk) == valid


# ---------------------------------------------------------------- entrywise coverage


def missed_draws(band_of, rng, *, m=19, trials=20_000):
    """How many of some pixels miss a further draw of their sampler, which is uniform."""
    band = band_of(rng.random((1, m, trials)), 0.1)
    fresh = rng.random((1, trials))
    return int(((fresh < band.lower) | (fresh > band.upper)).sum())


def interpolated(samples, miscoverage):
    ends = np.quantile(samples, [miscoverage / 2, 1 - miscoverage / 2], axis=1)
    return pb.Band(*ends)


@pytest.mark.parametrize(
    "band_of, valid", [(pb.calibrated_quantiles, True), (pb.naive_quantiles, False), (interpolated, False)]
)
def test_interpolated_quantiles_of_19_samples_are_caught(band_of, valid, rng, record_property):
    # order statistics 1 and 19 hold 18 of 20 equally likely places; interpolation keeps 0.81 of the uniform law
    failures = missed_draws(band_of, rng)
    record_property("failures", f"{failures} of 20000")
    assert consistent(failures, 20_000, 0.1) == valid


@pytest.mark.parametrize("family", ["additive", "multiplicative"])
@pytest.mark.parametrize("method", METHODS)
def test_calibration_keeps_the_coverage_of_fresh_samples(method, family, rng):
    def band_of(images):
        return pb.calibrated_quantiles(rng.random((images, 19, 16)), 0.1)

    truth = rng.beta(0.4, 0.4, (IMAGES, 16))  # the sampler is wrong about the truth
    cal = flat_calibrate(truth, band_of(IMAGES), risk_level=RISK, method=method, family=family, **METHODS[method])
    band = band_of(1000)
    interval = cal.apply(band)
    assert (interval.lower <= band.lower).all()
    assert (interval.upper >= band.upper).all()
    fresh = rng.random(band.shape)
    assert consistent(int((~interval.contains(fresh)).sum()), fresh.size, 0.1)
