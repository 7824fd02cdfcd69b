"""The fast code equals the paper's literal loops, and applies exactly what it certified."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from flat import flat_calibrate
from literal import hoeffding_bentkus_ucb, hoeffding_ucb, l01_per_image, literal_krcps, literal_line, literal_rcps
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds import bounds
from pixelbounds.calibration.data import CalibrationData
from pixelbounds.calibration.groups.positions import Partition
from pixelbounds.calibration.paths import line
from pixelbounds.kernels.entry_scores import LOWER, UPPER

UCBS = {"hoeffding": hoeffding_ucb, "hoeffding_bentkus": hoeffding_bentkus_ucb}


def split(n, fit, seed):
    """Fitting images, ascending, and certifying images in their random order, as `calibrate` draws them."""
    shuffled = np.random.default_rng(seed).permutation(n)
    return np.sort(shuffled[:fit]), shuffled[fit:]


def quantised(truth, band, levels=255):
    """The same on a grid, as 8-bit images are: many ties, and many truths exactly on the end of their band."""
    lower, upper = np.floor(band.lower * levels) / levels, np.ceil(band.upper * levels) / levels
    return np.rint(truth * levels) / levels, pb.Band(lower, upper)


def world(kind, seed, n=80):
    """Truth and band in float64, of several characters."""
    rng = np.random.default_rng(seed)
    if kind == "images":
        return heteroscedastic(n, rng, size=8, dtype=np.float64)
    if kind == "8-bit":
        return quantised(*heteroscedastic(n, rng, size=8, dtype=np.float64))
    if kind == "one pixel":  # losses are 0 or 1, and n times their mean is whole
        truth = rng.uniform(0, 1, (n, 1))
        return truth, pb.Band(np.full((n, 1), 0.4), np.full((n, 1), 0.6))
    truth = np.clip(0.5 + 0.2 * rng.standard_normal((n, 4)) * rng.uniform(0.2, 2, (n, 1)), 0, 1)  # correlated pixels
    return truth, pb.Band(np.full((n, 4), 0.45), np.full((n, 4), 0.55))


WORLDS = ("images", "8-bit", "one pixel", "four pixels")


# ---------------------------------------------------------------- the literal bounds, first


@pytest.mark.parametrize("n", [16, 128, 640])
@pytest.mark.parametrize("name", UCBS)
def test_the_literal_bound_is_the_bound(name, n, rng):
    for total in [0, 1, n // 7, n // 3, n]:
        losses = rng.permutation(np.r_[np.ones(total), np.zeros(n - total)])
        assert getattr(bounds, name)(losses, 0.1) == pytest.approx(UCBS[name](n, 0.1, total / n), abs=1e-9)


# ---------------------------------------------------------------- Algorithm 2


def exact_rcps(truth, band, risk_level, failure_prob, ucb):
    """The least score at which the bound passes: the infimum that the steps approach."""
    need = np.maximum(np.maximum(band.lower - truth, truth - band.upper), 0)
    candidates = np.unique(need)
    fails, passes = -1, len(candidates) - 1  # sets are nested and the bound sees the mean only: bisection is right
    while passes - fails > 1:
        middle = (fails + passes) // 2
        good = ucb(len(truth), failure_prob, float(np.mean(need > candidates[middle]))) < risk_level
        fails, passes = (fails, middle) if good else (middle, passes)
    return candidates[passes]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", UCBS)
@pytest.mark.parametrize("kind", WORLDS)
def test_rcps_is_algorithm_2_to_one_step(kind, name, seed):
    truth, band = world(kind, seed)
    level, step = 0.25, 0.005
    cal = pb.calibrate(truth, band, risk_level=level, bound=name, seed=seed, method="rcps")
    literal = literal_rcps(
        truth, band.lower, band.upper, risk_level=level, failure_prob=0.1, step=step, ucb=UCBS[name]
    )  # fmt: skip
    assert cal.widening[0] > 0
    assert cal.widening[0] - 1e-9 <= literal <= cal.widening[0] + step + 1e-9


@pytest.mark.parametrize("kind", ["images", "one pixel", "four pixels"])
def test_between_knots_the_widening_is_an_order_statistic(kind):
    """No step size: the widening is the score of a pixel, and anything narrower fails."""
    for seed in range(5):
        truth, band = world(kind, seed, n=60)
        cal = pb.calibrate(truth, band, risk_level=0.25, bound="hoeffding_bentkus", seed=seed, method="rcps")
        w = cal.widening[0]
        assert w == pytest.approx(exact_rcps(truth, band, 0.25, 0.1, hoeffding_bentkus_ucb), rel=1e-12)

        def bound(w, truth=truth, band=band):
            losses = l01_per_image(truth, band.lower - w, band.upper + w)
            return hoeffding_bentkus_ucb(len(truth), 0.1, float(losses.mean()))

        assert bound(w * (1 + 1e-12)) < 0.25 <= bound(w * (1 - 1e-12))


def test_a_band_that_is_wide_enough_stays_as_it_is():
    truth, band = world("images", 0)
    wide = pb.Band(band.lower - 1, band.upper + 1)
    assert pb.calibrate(truth, wide, risk_level=0.2, bound="hoeffding", method="rcps").widening[0] == 0
    assert literal_rcps(truth, wide.lower, wide.upper, risk_level=0.2, failure_prob=0.1, step=0.1) == 0


# ---------------------------------------------------------------- Algorithm 1


@pytest.mark.parametrize("direction", [None, (1.0, 0.5, 2.0), (0.0, 1.0, 1.0)], ids=["ones", "uneven", "one fixed"])
@pytest.mark.parametrize("kind, name", [("images", "hoeffding_bentkus"), ("8-bit", "hoeffding")])
def test_krcps_is_algorithm_1_to_one_step(kind, name, direction):
    truth, band = world(kind, 5, n=120)
    labels = np.arange(64).reshape(8, 8) // 22
    level, step, fit, seed = 0.25, 0.005, 20, 3
    method = pb.KRCPS(groups=labels, n_fit=fit, direction=direction)
    cal = pb.calibrate(truth, band, risk_level=level, bound=name, seed=seed, method=method)
    images, certifying = split(len(truth), fit, seed)
    pairs = CalibrationData(truth, band)
    solution = line.solve_program(pairs, images, Partition(labels), level).widening
    literal = literal_line(
        truth[certifying], band.lower[certifying], band.upper[certifying], membership=labels, solution=solution,
        risk_level=level, failure_prob=0.1, step=step, direction=direction, ucb=UCBS[name],
    )  # fmt: skip
    eta = np.ones(3) if direction is None else np.array(direction)
    assert (cal.widening > 0).any()
    assert (cal.widening - 1e-9 <= literal).all()
    assert (literal <= cal.widening + step * eta + 1e-9).all()
    assert abs(cal.widening - solution).max() > step  # the line was really followed


def test_krcps_with_groups_clipped_to_zero_is_algorithm_1(rng):
    """Where the line leaves the orthant a group stays at 0 while others shrink on."""
    noise = np.array([0.02, 0.3])[np.arange(40) % 2] * rng.standard_normal((120, 40))
    truth = np.clip(0.5 + noise, 0, 1)
    band = pb.Band(np.full_like(truth, 0.42), np.full_like(truth, 0.58))
    labels = np.arange(40) % 2
    cal = pb.calibrate(
        truth, band, risk_level=0.25, bound="hoeffding_bentkus", seed=1, method=pb.KRCPS(groups=labels, n_fit=30)
    )
    images, certifying = split(120, 30, 1)
    solution = line.solve_program(CalibrationData(truth, band), images, Partition(labels), 0.25)
    literal = literal_line(
        truth[certifying], band.lower[certifying], band.upper[certifying], membership=labels,
        solution=solution.widening, risk_level=0.25, failure_prob=0.1, step=0.002,
    )  # fmt: skip
    assert cal.widening[0] == literal[0] == 0 < cal.widening[1]
    assert cal.widening[1] - 1e-9 <= literal[1] <= cal.widening[1] + 0.002 + 1e-9


def test_the_literal_pipeline_and_krcps_agree_on_length():
    """Whole against whole: (P_K) on a subsample by CVXPY against all pixels by ours; only d_opt parts them."""
    truth, band = heteroscedastic(120, np.random.default_rng(2), size=8, dtype=np.float64)
    labels, widening = literal_krcps(
        truth, band.lower, band.upper, risk_level=0.2, failure_prob=0.1, k=4, n_opt=30, d_opt=32,
        rng=np.random.default_rng(7), step=0.005, gammas=(0.4, 0.6),
    )  # fmt: skip
    cal = pb.calibrate(truth, band, risk_level=0.2, bound="hoeffding_bentkus", seed=7, method=pb.KRCPS(k=4, n_fit=30))
    inside = widening[labels]
    literal = np.clip(band.upper + inside, 0, 1) - np.clip(band.lower - inside, 0, 1)
    assert cal.apply(band).length.mean() == pytest.approx(literal.mean(), rel=0.1)
    assert cal.grouping.count == labels.max() + 1


# ---------------------------------------------------------------- units


@pytest.mark.parametrize("words", [
    {"method": "rcps", "bound": "hoeffding_bentkus"},
    {"method": "rcps", "bound": "betting"},
    {"method": "krcps", "bound": "hoeffding", "groups": "partition", "n_fit": 10},
])  # fmt: skip
def test_units_of_equal_size_are_larger_images(words):
    """Three slices of a patient are one image of three times the pixels: the loss of a unit is their average."""
    truth, band = world("images", 21, n=150)
    slices, units = np.zeros((8, 8), int), np.arange(150) // 3
    slices[:, 4:] = 1
    large = (50, 3 * 64)
    kinds = [slices, np.tile(slices.reshape(-1), 3)] if "groups" in words else [None, None]
    small, big = (words | ({} if kind is None else {"groups": kind}) for kind in kinds)
    by_unit = flat_calibrate(truth, band, risk_level=0.25, units=[f"p{u:03}" for u in units], seed=2, **small)
    by_image = flat_calibrate(
        truth.reshape(large), pb.Band(band.lower.reshape(large), band.upper.reshape(large)), risk_level=0.25, seed=2,
        **big,
    )  # fmt: skip
    np.testing.assert_allclose(by_unit.widening, by_image.widening, rtol=1e-12)
    assert by_unit.risk == pytest.approx(by_image.risk, abs=1e-12)
    assert by_unit.record.certifying == by_image.record.certifying


def test_units_of_unequal_size_are_averaged_before_the_bound():
    truth, band = world("images", 22, n=150)
    units = np.random.default_rng(0).permutation(np.repeat(np.arange(50), np.arange(50) % 5 + 1)[:150])
    words = {"risk_level": 0.25, "method": "rcps", "bound": "hoeffding_bentkus"}
    cal = flat_calibrate(truth, band, units=units, **words)
    literal = literal_rcps(
        truth, band.lower, band.upper, risk_level=0.25, failure_prob=0.1, step=0.002, units=units, largest=0.5
    )
    assert cal.widening[0] - 1e-9 <= literal <= cal.widening[0] + 0.002 + 1e-9
    assert cal.widening[0] > flat_calibrate(truth, band, **words).widening[0] + 0.002  # fewer units, wider intervals


# ---------------------------------------------------------------- apply keeps what was certified


def covered_by_shortfall(cal, truth, band):
    """Whether each pixel's score is at most the widening of its end's group, in float64: (n, *pixels)."""
    _, block = CalibrationData(truth, band, limits=cal.limits).read(0, len(truth))
    lower, upper = (x.reshape(-1) for x in block.clipped())
    entry = np.arange(truth.size)
    below, above = (
        cal.widening[cal.grouping.at(block, entry, np.full(len(entry), s, np.uint8))] for s in (LOWER, UPPER)
    )
    x = truth.reshape(-1).astype(np.float64)
    return ((lower - x <= below) & (x - upper <= above)).reshape(truth.shape)


APPLIED = {
    "rcps": {"method": "rcps", "bound": "hoeffding_bentkus"},
    "krcps": {"method": "krcps", "bound": "hoeffding_bentkus", "n_fit": 12},
    "frontier": {"groups": "band", "bound": "hoeffding_bentkus", "n_fit": 12},
    "frontier, betting": {"groups": "band", "n_fit": 12},
}


@pytest.mark.parametrize("dtypes", ["f2", "f4", "f8", "f8 f2", "f8 f4"], ids=lambda x: x.replace(" ", " band "))
@pytest.mark.parametrize("levels", [None, 255, 16], ids=["continuous", "8-bit", "4-bit"])
@pytest.mark.parametrize("name", APPLIED)
def test_what_was_certified_is_really_inside(name, levels, dtypes):
    of_truth, of_band = np.dtype(dtypes.split()[0]), np.dtype(dtypes.split()[-1])
    for seed in range(2):
        truth, band = heteroscedastic(60, np.random.default_rng(seed), size=6, dtype=np.float64)
        if levels:
            truth, band = quantised(truth, band, levels)
        truth, band = truth.astype(of_truth), band.map(lambda x: x.astype(of_band))
        cal = flat_calibrate(truth, band, risk_level=0.2, failure_prob=0.2, seed=seed, **APPLIED[name])
        interval = cal.apply(band)
        assert interval.lower.dtype == of_band
        inside = interval.contains(truth)
        assert inside[covered_by_shortfall(cal, truth, band)].all()
        _, certifying = split(60, cal.record.fitting, seed)
        applied = 1 - inside[certifying].mean()
        assert applied <= cal.risk + 1e-12  # rounding outward may only cover more
        assert cal.risk < cal.risk_level == 0.2
        if of_band == of_truth == np.float64 and levels is None:
            assert applied == pytest.approx(cal.risk, abs=1e-12)
        assert interval.lower.min() >= 0
        assert interval.upper.max() <= 1


@pytest.mark.parametrize("limits", [(0.0, 0.1), (0.1, 0.7), (-0.3, 0.3)])
def test_limits_that_no_float32_equals_lose_no_pixel(limits):
    """Bands partly beyond the limits, in single precision, where clipping must not round inward."""
    least, most = np.float32(limits[0]), np.float32(limits[1])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        span = most - least
        truth = np.clip(rng.uniform(least, most, (60, 20)).astype(np.float32), least, most)
        truth = np.where(truth > limits[1], np.nextafter(most, least), truth)
        truth = np.where(truth < limits[0], np.nextafter(least, most), truth).astype(np.float32)
        middle = rng.uniform(least - 0.3 * span, most + 0.3 * span, (60, 20))
        band = pb.Band((middle - 0.05 * span).astype(np.float32), (middle + 0.05 * span).astype(np.float32))
        cal = pb.calibrate(
            truth, band, risk_level=0.3, failure_prob=0.2, bound="hoeffding_bentkus", limits=limits, method="rcps"
        )
        inside = cal.apply(band).contains(truth)
        assert inside[covered_by_shortfall(cal, truth, band)].all()
        assert 1 - inside.mean() <= cal.risk + 1e-12


@pytest.mark.parametrize("family", ["scaled", "multiplicative"])
def test_other_families_keep_what_they_certified(family):
    for seed in range(5):
        truth, band = world("images", seed, n=60)
        if family == "scaled":
            band = pb.Band(band.lower - 1e-3, band.upper + 1e-3, (band.lower + band.upper) / 2)
        else:
            truth = np.maximum(truth, 0.05)
        words = {"risk_level": 0.25, "failure_prob": 0.2, "family": family, "bound": "hoeffding_bentkus"}
        for method in ("rcps", "krcps", "frontier"):
            more = {} if method == "rcps" else {"groups": np.arange(64).reshape(8, 8) // 32, "n_fit": 10}
            cal = flat_calibrate(truth, band, method=method, seed=seed, **words, **more)
            _, certifying = split(60, cal.record.fitting, seed)
            applied = 1 - cal.apply(band).contains(truth)[certifying].mean()
            assert applied == pytest.approx(cal.risk, abs=1e-12)
            assert cal.risk < 0.25


@pytest.mark.parametrize("method", [{"method": "rcps"}, {"groups": "band"}])
def test_truth_at_a_limit_that_float32_rounds_up_is_inside(method, rng):
    # float32(0.3) is above 0.3: such a pixel is within the limits, and an interval clipped to them still holds it
    truth = np.full((60, 40), 0.3, np.float32)
    truth[:, ::4] = rng.uniform(-0.3, 0.3, (60, 10))
    band = pb.Band(np.full_like(truth, 0.25), np.full_like(truth, 0.35))
    cal = flat_calibrate(truth, band, risk_level=0.15, limits=(-0.3, 0.3), **method)
    inside = cal.apply(band).contains(truth)
    assert inside[truth == np.float32(0.3)].all()
    assert cal.risk <= 0.15


# ---------------------------------------------------------------- entrywise coverage


def ranks(m, miscoverage):
    """The lemma's ranks, in rational arithmetic."""
    half = (m + 1) * Fraction(miscoverage) / 2
    return half.numerator // half.denominator, -(-(m + 1 - half).numerator // (m + 1 - half).denominator)


def exact_coverage(m, low, high, weights):
    """P(low-th <= X <= high-th of m draws) for X and the draws from the same weights on 0..v-1, as a rational."""
    total = sum(weights)
    coverage, below = Fraction(0), Fraction(0)
    for weight in weights:
        upto = below + Fraction(weight, total)  # P(draw < value) and P(draw <= value)
        too_low = sum(comb(m, i) * upto**i * (1 - upto) ** (m - i) for i in range(low))  # low-th above the value
        too_high = sum(comb(m, i) * below**i * (1 - below) ** (m - i) for i in range(high, m + 1))
        coverage += Fraction(weight, total) * (1 - too_low - too_high)
        below = upto
    return coverage


@pytest.mark.parametrize("m", [19, 20, 39, 128])
@pytest.mark.parametrize("weights", [None, (1, 1, 1, 1), (1, 2, 40), (1,)], ids=["continuous", "even", "skew", "one"])
def test_entrywise_coverage_is_the_exact_rational(m, weights):
    trials = 40_000
    rng = np.random.default_rng(m)
    low, high = ranks(m, Fraction(1, 10))
    lemma = Fraction(high - low, m + 1)
    if weights is None:
        draws = rng.standard_normal((1, m + 1, trials), np.float32)
        expected = lemma
    else:
        p = np.array(weights) / sum(weights)
        draws = rng.choice(len(p), p=p, size=(1, m + 1, trials)).astype(np.float32)
        expected = exact_coverage(m, low, high, weights)
        assert expected >= lemma  # ties only help
    assert lemma >= Fraction(9, 10)
    assert pb.calibrated_ranks(m, 0.1) == (low, high)
    band = pb.calibrated_quantiles(draws[:, :m], 0.1)
    inside = pb.Interval(band.lower, band.upper).contains(draws[:, m]).mean()
    margin = 4 * np.sqrt(float(expected * (1 - expected)) / trials)
    assert abs(inside - float(expected)) <= margin
    if weights is None and m == 19:  # the test can fail: interpolated quantiles fall short of the lemma
        naive = pb.naive_quantiles(draws[:, :m], 0.1)
        assert pb.Interval(naive.lower, naive.upper).contains(draws[:, m]).mean() < float(expected) - margin
