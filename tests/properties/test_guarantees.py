"""The promise, tested by simulation: the true risk exceeds epsilon in at most a share delta of worlds.

In certification worlds losses are coins whose chances along the path are known, so that how often a procedure fails is
a binomial probability, of right ones and of wrong ones, and thousands of worlds take seconds. In whole worlds a
calibration set is drawn and calibrated on, and `worlds` says the true risk of the result, in closed form.

The number of worlds that fail is at most Binomial(worlds, delta) in law; a check refuses a count that such a variable
reaches with probability below FALSE_ALARM. There are fewer than 100 checks below, so a correct package fails any of
them with probability under 100 * 1e-5 = 0.1%, at every size of the simulation. (Seeds are fixed: the die is cast once,
not at every run.) Worlds are pooled over what shares a failure probability, and each check names a wrong procedure and
computes how likely it would be refused: 50% in `make test`, 95% in `make guarantees` (`trials.check_failures`), where
PIXELBOUNDS_WORLDS is 1,000.
"""

from functools import cache
from math import ceil
from types import SimpleNamespace

import numpy as np
import pytest
from flat import flat_calibrate
from scipy.stats import beta, binom, norm
from trials import DOUBLED, FALSE_ALARM, LARGE, WORLDS, check_failures, consistent, generator, power
from worlds import KINDS, BoundedWorld, world_of

import pixelbounds as pb
from pixelbounds.calibration.bounds import BOUNDS as ALL_BOUNDS
from pixelbounds.calibration.certify import fixed_sequence_test
from pixelbounds.calibration.target import RiskTest

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
MEAN = "the plain mean", 0.45  # it passes a risk just above the level about every second time


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


def failures(risks, risk=RISK):
    """Worlds whose true risk exceeds the level."""
    return int((risks > risk).sum())


# ---------------------------------------------------------------- certification alone: coins, and exact probabilities

CHANCES = np.array([0.5, 0.35, 0.21, 0.08, 0.02, 0.0])  # of a loss of 1 at each point: the third is just too risky
COINS = 60
PROMISES, LOOKED_AT = 8, 8  # promises of disjoint groups; images that are left out for their losses


@cache
def clopper_pearson(bad, n, failure_prob):
    return float(beta.isf(failure_prob, bad + 1, n - bad)) if bad < n else 1.0


def exact_binomial(losses, failure_prob):
    """The exact bound of Clopper and Pearson: it errs nearly as often as it may."""
    return clopper_pearson(int(losses.sum()), len(losses), failure_prob)


def plain_mean(losses, failure_prob):
    return float(losses.mean())


def passes(bound, delta, losses):
    """Whether fixed-sequence testing ends at a point that is too risky: scores of images (n,), uniform."""
    test = RiskTest(SimpleNamespace(level=RISK), None, bound, delta)
    return CHANCES[fixed_sequence_test(test, lambda point: (losses < CHANCES[point]).astype(float), 6)] > RISK


def most_that_passes(bound, delta, n):
    """The most losses of 1 among n with which the level passes, for a bound of their number."""
    return max(k for k in range(n + 1) if bound(np.arange(n) < k, delta) < RISK)


def procedures():
    """Name -> how it certifies uniform scores (n,), and the probability that it ends too far."""
    n, chance = COINS, CHANCES[2]

    def rate(bound, delta=DELTA):
        return binom.cdf(most_that_passes(bound, delta, n), n, chance)

    def apart(scores):
        return any(passes(exact_binomial, DELTA, part) for part in scores.reshape(PROMISES, -1))

    def looks(scores):
        return passes(exact_binomial, DELTA, np.sort(scores)[LOOKED_AT:])

    each = binom.cdf(most_that_passes(exact_binomial, DELTA, n), n, chance)
    left = most_that_passes(exact_binomial, DELTA, n - LOOKED_AT) + LOOKED_AT
    return {
        "the exact bound": (lambda x: passes(exact_binomial, DELTA, x), rate(exact_binomial), n),
        **{
            name: (lambda x, bound=ALL_BOUNDS[name]: passes(bound, DELTA, x), rate(ALL_BOUNDS[name]), n)
            for name in ("hoeffding", "bentkus", "hoeffding_bentkus", "empirical_bernstein")
        },
        "delta doubled": (lambda x: passes(exact_binomial, 2 * DELTA, x), rate(exact_binomial, 2 * DELTA), n),
        "the plain mean": (lambda x: passes(plain_mean, DELTA, x), rate(plain_mean), n),
        "a point of its own for each promise": (apart, 1 - (1 - each) ** PROMISES, PROMISES * n),
        "a split that looks": (looks, binom.cdf(left, n, chance), n),
    }


@pytest.mark.parametrize("name", procedures())
def test_certification_fails_as_often_as_is_computed(name, record_property):
    certify, rate, n = procedures()[name]
    worlds = 20 * WORLDS
    rng = generator("coins", name, seed=0)
    count = sum(certify(rng.random(n)) for _ in range(worlds))
    assert consistent(count, worlds, rate)
    assert consistent(worlds - count, worlds, 1 - rate)
    if rate > DELTA:  # a wrong procedure
        assert power(worlds, DELTA, rate) >= (0.95 if LARGE else 0.5), power(worlds, DELTA, rate)
        assert not consistent(count, worlds, DELTA, alarm=FALSE_ALARM if LARGE else 1e-3)
    else:
        check_failures(count, worlds, DELTA, DOUBLED, record_property)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_is_as_rarely_wrong_as_asked_whatever_losses_are_like(name, record_property):
    """Coins, rare catastrophes and shares, all with a mean just above the level, at a single point."""
    worlds, mean = 20 * WORLDS, 1.001 * RISK
    rng = generator("one point", seed=0)
    drawn = [
        (rng.random((worlds, COINS)) < mean).astype(float),
        np.where(rng.random((worlds, COINS)) < mean / 2, 1.0, mean / 2 / (1 - mean / 2)),
        rng.beta(2, 2 / mean - 2, (worlds, COINS)),
    ]
    test = RiskTest(SimpleNamespace(level=RISK), None, ALL_BOUNDS[name], DELTA)
    count = sum(test.passes(losses) for kind in drawn for losses in kind)
    check_failures(count, 3 * worlds, DELTA, DOUBLED, record_property)


def test_a_floor_in_bentkus_is_caught(record_property):
    """A bad image loses 31 of its 32 pixels: k of them lose 31 k / 32 < k, which the floor takes for k - 1."""
    n, chance, risk, worlds = 16, 25 / 128, 0.189, 100 * WORLDS  # just below 25 / 128 * 31 / 32
    bad = generator("floor", seed=0).binomial(n, chance, worlds)

    def certified(k):
        return pb.bounds.bentkus(np.where(np.arange(n) < k, 31 / 32, 0.0), DELTA) < risk

    count = sum(map(certified, bad.tolist()))
    right, floor = max(k for k in range(n) if certified(k)), next(k for k in range(n) if not certified(k))
    check_failures(count, worlds, DELTA, ("the floor", binom.cdf(floor, n, chance)), record_property)
    assert right == floor - 1 == 0


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


@pytest.mark.parametrize("method", METHODS)
def test_risk_is_controlled_in_1_minus_delta_of_worlds(method, record_property):
    """Pooled over bounds, families and kinds of worlds; with many worlds also by each of them."""
    share = ceil(WORLDS / len(KINDS) / (5 if LARGE else 1))  # of each family WORLDS, of each bound 0.6 of that
    counts = {
        (bound, family, kind): failures(true_risks(world_of(kind, family), share, method=method, bound=bound))
        for bound in BOUNDS
        for family in FAMILIES
        for kind in KINDS
    }
    check_failures(sum(counts.values()), share * len(counts), DELTA, DOUBLED, record_property)
    for column in range(3 if LARGE else 0):
        for value in {key[column] for key in counts}:
            some = [count for key, count in counts.items() if key[column] == value]
            check_failures(sum(some), share * len(some), DELTA, DOUBLED)


def test_risk_is_controlled_where_images_are_few_and_groups_are_left_to_us(record_property):
    share, count, sizes = ceil(WORLDS / len(KINDS)), 0, (24, 45, 80)
    for images in sizes:
        for kind in KINDS:
            world = world_of(kind, pixels=(8, 8))
            for seed in range(share):
                rng = generator("few", kind, images, seed=seed)
                drawn = world.draw(rng, images)
                cal = pb.calibrate(
                    drawn.truth, drawn.band, risk_level=RISK, failure_prob=DELTA, limits=world.limits, seed=rng
                )
                # by width, so that canonical images tell the risk
                assert len(cal.widening) == (1 if images == 24 else 4)
                count += world.risk(cal) > RISK
    check_failures(count, share * len(KINDS) * len(sizes), DELTA, MEAN, record_property)


def test_risk_is_controlled_with_learned_groups(record_property):
    # groups depend on the neighbourhood of a pixel, so there is no canonical image: the exact chance of a miss given
    # the band is averaged over fresh bands instead, which leaves an error of about 0.001 in the risk
    def risk(kind, seed):
        world, rng = world_of(kind, pixels=(8, 8)), generator("learned", kind, seed=seed)
        drawn = world.draw(rng, IMAGES)
        method = pb.Frontier(groups="learned", n_fit=16)
        cal = pb.calibrate(
            drawn.truth, drawn.band, risk_level=RISK, failure_prob=DELTA, limits=None, seed=rng, method=method
        )
        fresh = world.draw(rng, 100)
        centre = (fresh.band.lower + fresh.band.upper) / 2
        return world.missed(cal.apply(fresh.band), fresh.types, centre).mean()

    worlds = max(15, WORLDS // 20)
    risks = np.array([risk(kind, seed) for kind in ("scale", "skewed") for seed in range(worlds)])
    check_failures(failures(risks), 2 * worlds, DELTA, MEAN, record_property)


POSITION_WEIGHT = np.linspace(0, 2, 16)


def weighted_share(truth, interval):
    """Share of missed pixels, those on the right counting most."""
    return (~interval.contains(truth) * POSITION_WEIGHT).mean(axis=1)


def distance_outside(truth, interval):
    """Mean distance of the truth from its interval."""
    return (np.maximum(interval.lower - truth, 0) + np.maximum(truth - interval.upper, 0)).mean(axis=1)


@pytest.mark.parametrize("method", METHODS)
def test_the_risk_of_a_users_own_loss_is_controlled(method, record_property):
    world, worlds, count = world_of("bounded"), max(8, WORLDS // 5), 0
    for bound in ("hoeffding_bentkus", "betting"):
        for loss, level, cost in (
            (weighted_share, RISK, lambda interval, types: world.missed(interval, types) * POSITION_WEIGHT),
            (distance_outside, 0.1, world.excess),
        ):
            risks = true_risks(world, worlds, cost=cost, method=method, bound=bound, risk=level, loss=loss)
            count += failures(risks, level)
    check_failures(count, 4 * worlds, DELTA, MEAN, record_property)


@pytest.mark.parametrize("method", METHODS)
def test_conformal_controls_the_expected_risk(method):
    risks = true_risks(world_of("bounded"), max(60, WORLDS), method=method, bound="conformal")
    error = risks.std(ddof=1) / np.sqrt(len(risks))
    assert risks.mean() <= RISK + norm.isf(FALSE_ALARM) * error


def test_conformal_promises_nothing_for_the_calibration_set_at_hand():
    assert not consistent(failures(true_risks(world_of("bounded"), 100, bound="conformal")), 100, DELTA)


# ---------------------------------------------------------------- slices of one patient

PATIENTS = {"images": 60, "slices": 6}
SCANS = BoundedWorld(correlation=0.98)  # slices of a patient share nearly all that decides their losses


@pytest.mark.parametrize("method", METHODS)
def test_risk_is_controlled_over_units(method, record_property):
    worlds = max(15, WORLDS // 4)
    count = sum(
        failures(true_risks(SCANS, worlds, method=method, bound=bound, **PATIENTS))
        for bound in ("hoeffding_bentkus", "betting")
    )
    check_failures(count, 2 * worlds, DELTA, MEAN, record_property)


@pytest.mark.parametrize(
    "method, worlds, wrong",
    [
        *((method, 60, {"bound": plain_mean}) for method in METHODS),
        ("rcps", 80, {"bound": "betting", "units": False, "images": 30, "slices": 12}),
    ],
    ids=[*METHODS, "slices taken for independent images"],
)
def test_what_is_wrong_is_caught_in_whole_worlds(method, worlds, wrong):
    world = SCANS if "units" in wrong else world_of("bounded")
    count = failures(true_risks(world, worlds, method=method, **wrong))
    assert not consistent(count, worlds, DELTA)


# ---------------------------------------------------------------- what calibration keeps


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


@pytest.mark.parametrize("of", ["images", "units"])
def test_sizes_of_certifying_images_steer_nothing(of):
    """What certifies has other sizes (units: numbers of images); what fits is the same, and so is how many that is."""
    rng = np.random.default_rng(0)
    order = np.random.default_rng(1).permutation(200)
    counts = []
    for side in (3, 30):
        sides = np.where(np.isin(np.arange(200), order[:50]), 2, side)
        if of == "images":
            truth, units = [rng.random((k, k)) for k in sides], None
        else:
            units = np.arange(1000, 1200).repeat(sides)  # names in the order of their numbers
            truth = rng.random((len(units), 6, 6))
        band = pb.Band([x - 0.1 for x in truth], [x + 0.1 for x in truth])
        data = pb.CalibrationData(truth, band, units, limits=None)
        fitting, _ = pb.split(data, pb.Target([pb.share(0.1)]), pb.Frontier(), np.random.default_rng(1))
        counts.append((fitting.units, len(fitting.images)))
    assert counts[0] == counts[1] > (0, 0)


def unlike(rng, n):
    """Images of one size that are never missed, and a few large and a few small ones that need a widening each."""
    kind = rng.choice(3, n, p=[1 - 2 * UNLIKE, UNLIKE, UNLIKE])
    shape, half, away = ((2, 5), (2, 9), (2, 2)), (0.01, 0.1, 0.01), (0.0, 0.3, 0.1)
    truth = [0.5 + (half[k] + away[k] if k else 0) - 1e-6 * rng.random(shape[k]) for k in kind]
    ends = [[np.full(shape[k], 0.5 + sign * half[k]) for k in kind] for sign in (-1, 1)]
    return truth, pb.Band(*ends)


UNLIKE = 0.1205  # chance of each of the two, where at most 0.12 are promised
PROBE = pb.Band([np.full((2, 9), 0.4), np.full((2, 2), 0.49)], [np.full((2, 9), 0.6), np.full((2, 2), 0.51)])


@pytest.mark.skipif(not LARGE, reason="needs many worlds: make guarantees")
def test_the_split_of_unlike_images_keeps_the_promise(record_property):
    """A split that looked at all sizes chose the path by how many large images certify: 13.8% failures."""
    worlds, count = max(1000, WORLDS), 0
    for seed in range(worlds):
        rng = generator("unlike", seed=seed)
        upper = pb.calibrate(*unlike(rng, 200), risk_level=0.12, failure_prob=DELTA, seed=rng).apply(PROBE).upper
        count += UNLIKE * ((upper[0].max() < 0.9 - 2e-6) + (upper[1].max() < 0.61 - 2e-6)) > 0.12
    check_failures(count, worlds, DELTA, DOUBLED, record_property)
