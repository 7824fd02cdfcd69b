"""Set and score are a dual pair: nested in widening, and `score <= w` exactly when covered."""

import numpy as np
import pytest
from flat import flat_calibrate
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.calibration.families import FAMILIES, Family, check_nested

every_family = pytest.mark.parametrize("name", sorted(FAMILIES))
many = settings(max_examples=50, deadline=None, derandomize=True)
some = settings(max_examples=30, deadline=None, derandomize=True)
SIZE = 5


def band_of(name, lower, upper, centre=None):
    """A band that the family can widen, from any three arrays."""
    lower, centre, upper = np.sort(np.stack([lower, (lower + upper) / 2 if centre is None else centre, upper]), axis=0)
    if name == "multiplicative":
        lower, upper = np.abs(lower), np.abs(lower) + (upper - lower)
    if name == "scaled":
        return pb.Band(lower[None], upper[None], centre[None])
    return pb.Band(lower[None], upper[None])


def vectors(elements):
    return arrays(np.float64, SIZE, elements=elements)


numbers = st.floats(-100, 100) | st.floats(-1e-3, 1e-3) | st.sampled_from([0.0, 1.0, 0.5, -1.0, 255.0])
widenings = st.floats(0, 50) | st.sampled_from([0.0, 1e-9, 0.5, 1.0])
eighths = st.integers(-16, 16).map(lambda i: i / 8)


def covered(family, truth, band, widening):
    lower, upper = family.widen(band, widening)
    return (truth >= lower) & (truth <= upper)


# ---------------------------------------------------------------- the contract, for every member


@every_family
@many
@given(low=vectors(numbers), high=vectors(numbers), mid=vectors(numbers), steps=st.tuples(widenings, widenings))
def test_sets_are_nested_in_widening_and_hold_the_narrowest(name, low, high, mid, steps):
    family, band = FAMILIES[name], band_of(name, low, high, mid)
    small, large = (family.start + step for step in sorted(steps))
    inner, outer = family.widen(band, small), family.widen(band, large)
    assert (inner[0] <= inner[1]).all()
    assert (outer[0] <= inner[0]).all()
    assert (outer[1] >= inner[1]).all()


@every_family
@many
@given(low=vectors(numbers), high=vectors(numbers), mid=vectors(numbers), truth=vectors(numbers), step=widenings)
def test_a_shortfall_of_at_most_the_widening_means_covered(name, low, high, mid, truth, step):
    family, band, truth = FAMILIES[name], band_of(name, low, high, mid), truth[None]
    need = family.score(truth, band)
    assert not np.isnan(need).any()
    w = family.start + step
    assert (covered(family, truth, band, w) | (need > w)).all()
    at_need = np.where(np.isfinite(need), np.maximum(need, family.start), family.start)
    assert (covered(family, truth, band, at_need) | ~np.isfinite(need)).all()


@every_family
@many
@given(low=vectors(numbers), high=vectors(numbers), mid=vectors(numbers), truth=vectors(numbers))
def test_a_widening_slightly_below_the_shortfall_does_not_cover(name, low, high, mid, truth):
    family, band, truth = FAMILIES[name], band_of(name, low, high, mid), truth[None]
    need = family.score(truth, band)
    slope = 1.0
    if name == "scaled":  # rounding of the ends, measured in units of the slope
        slope = np.maximum(np.minimum(band.centre - band.lower, band.upper - band.centre), 1e-300)
    size = 1 + np.maximum(np.abs(truth), np.maximum(np.abs(band.lower), np.abs(band.upper)))
    with np.errstate(invalid="ignore"):  # a score of inf is not tried
        below = need - 1e-9 * np.abs(need) - 1e-12 * size / slope
    if name == "multiplicative":
        below = need * (1 - 1e-9)
    tried = np.isfinite(need) & (below >= family.start) & (np.abs(truth) > 1e-290)  # below that, digits are lost
    assert not covered(family, truth, band, np.where(tried, below, family.start))[tried].any()


@every_family
@many
@given(low=vectors(eighths), width=vectors(st.sampled_from([0.25, 0.5, 1.0, 2.0])), truth=vectors(eighths))
def test_on_an_exact_grid_shortfall_is_the_least_covering_widening(name, low, width, truth):
    """Band and truth on a grid of eighths, widenings on the grid of the exact answers: an equivalence, end to end."""
    family = FAMILIES[name]
    truth = truth[None]
    if name == "multiplicative":
        low, truth = 2.0 ** np.round(2 * low), 2.0 ** np.round(3 * truth)  # powers of two: quotients are exact
        band, ladder = pb.Band(low[None], low[None] * 2), 2.0 ** np.arange(0, 12)
    elif name == "scaled":
        low = low[None]
        band, ladder = pb.Band(low, low + 2 * width, low + width), np.arange(0, 161) / 16
    else:
        band, ladder = pb.Band(low[None], (low + width)[None]), np.arange(0, 65) / 8
    need = family.score(truth, band)
    for w in ladder:
        np.testing.assert_array_equal(need <= w, covered(family, truth, band, w))


@every_family
@some
@given(low=vectors(numbers), high=vectors(numbers), truth=vectors(numbers))
def test_float32_bands_keep_the_dual_pair(name, low, high, truth):
    family = FAMILIES[name]
    band = band_of(name, low.astype(np.float32), high.astype(np.float32))
    truth = truth.astype(np.float32)[None]
    need = family.score(truth, band)
    at = np.where(np.isfinite(need), np.maximum(need, family.start), family.start)
    assert (covered(family, truth, band, at) | ~np.isfinite(need)).all()
    kept = [x.copy() for x in (band.lower, band.upper, truth)]
    family.widen(band, 0.3 + family.start)
    for x, before in zip((band.lower, band.upper, truth), kept, strict=True):
        np.testing.assert_array_equal(x, before)


def test_closed_forms():
    band = pb.Band(np.array([[0.2, 0.4]]), np.array([[0.4, 0.8]]), np.array([[0.3, 0.5]]))
    plain = pb.Band(band.lower, band.upper)
    lower, upper = FAMILIES["additive"].widen(plain, 0.1)
    np.testing.assert_allclose([lower[0], upper[0]], [[0.1, 0.3], [0.5, 0.9]])
    lower, upper = FAMILIES["scaled"].widen(band, 2.0)
    np.testing.assert_allclose([lower[0], upper[0]], [[0.1, 0.3], [0.5, 1.1]])
    lower, upper = FAMILIES["multiplicative"].widen(plain, 2.0)
    np.testing.assert_allclose([lower[0], upper[0]], [[0.1, 0.2], [0.8, 1.6]])
    truth = np.array([[0.1, 1.0]])
    np.testing.assert_allclose(FAMILIES["additive"].score(truth, plain), [[0.1, 0.2]])
    np.testing.assert_allclose(FAMILIES["scaled"].score(truth, band), [[2.0, 5 / 3]])
    np.testing.assert_allclose(FAMILIES["multiplicative"].score(truth, plain), [[2.0, 1.25]])


@every_family
def test_a_band_of_width_zero(name):
    """A degenerate pixel is covered where the truth is on it, and where the family can move it, else never."""
    point = np.full((1, 3), 0.5)
    band = pb.Band(point, point, point if name == "scaled" else None)
    truth = np.array([[0.5, 0.4, 0.6]])
    need = FAMILIES[name].score(truth, band)
    assert need[0, 0] <= FAMILIES[name].start
    assert (need[0, 1:] > FAMILIES[name].start).all()
    assert np.isinf(need[0, 1:]).all() == (name == "scaled")


def test_a_negative_zero_is_a_zero():
    """A centre of -0.0 on a lower end of 0.0 must not turn "never covered" into "covered already"."""
    band = pb.Band(np.zeros((1, 1)), np.ones((1, 1)), np.full((1, 1), -0.0))
    assert FAMILIES["scaled"].score(np.full((1, 1), -1.0), band).item() == np.inf


# ---------------------------------------------------------------- a user's own family


def _skewed_widen(band, w):
    return band.lower - w * np.sqrt(0.01 + band.width), band.upper + 2 * w * np.sqrt(0.01 + band.width)


def _skewed_shortfall(truth, band):
    scale = np.sqrt(0.01 + np.asarray(band.width, np.float64))
    return np.maximum((band.lower - truth) / scale, (truth - band.upper) / (2 * scale))


SKEWED = Family("skewed", _skewed_widen, _skewed_shortfall)


@pytest.mark.parametrize("method, groups", [("rcps", None), ("krcps", "loss"), ("frontier", "band")])
def test_a_users_own_family_goes_end_to_end(tmp_path, rng, method, groups):
    truth, band = heteroscedastic(120, rng, size=8, dtype=np.float64)
    cal = flat_calibrate(truth, band, risk_level=0.15, method=method, groups=groups, family=SKEWED)
    assert cal.risk < cal.risk_level == 0.15
    interval = cal.apply(band)
    fresh, new = heteroscedastic(200, rng, size=8, dtype=np.float64)
    assert pb.losses.l01(fresh, cal.apply(new)).mean() < 0.15
    cal.save(tmp_path / "own.safetensors")
    with pytest.raises(ValueError, match=r"own family 'skewed'.*family="):
        pb.load_calibration(tmp_path / "own.safetensors")
    with pytest.raises(ValueError, match="'skewed', not 'additive'"):
        pb.load_calibration(tmp_path / "own.safetensors", family=FAMILIES["additive"])
    again = pb.load_calibration(tmp_path / "own.safetensors", family=SKEWED).apply(band)
    np.testing.assert_array_equal(again.lower, interval.lower)
    np.testing.assert_array_equal(again.upper, interval.upper)


def arxiv_conffusion():
    """[w q_lo, w q_hi], as printed on arXiv: the lower end rises with w."""

    def score(truth, band):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(truth > band.upper, truth / band.upper, 1.0)

    return Family("conffusion arXiv", lambda band, w: (w * band.lower, w * band.upper), score, start=1.0)


@pytest.mark.parametrize(
    "family, words",
    [
        (Family("half", FAMILIES["additive"].widen, lambda x, b: FAMILIES["additive"].score(x, b) / 2), "disagree"),
        (Family("flat", FAMILIES["additive"].widen, lambda x, b: np.zeros(3)), "shape"),
        (Family("shrinking", lambda b, w: (b.lower + w, b.upper - w), lambda x, b: np.zeros(x.shape)), "not nested"),
        (Family("nan", FAMILIES["additive"].widen, lambda x, b: np.full(x.shape, np.nan)), "NaN"),
        (Family("additive", FAMILIES["additive"].widen, FAMILIES["additive"].score), "name that is taken"),
    ],
)
def test_a_family_that_is_no_dual_pair_is_refused(rng, family, words):
    truth, band = heteroscedastic(60, rng, size=8)
    with pytest.raises(ValueError, match=words):
        flat_calibrate(truth, band, risk_level=0.2, method="rcps", family=family)


def test_a_family_whose_shortfall_is_nan_on_a_certifying_image_only_is_refused(rng):
    """NaN compares false with everything, so it must never be taken for covered."""
    truth, band = heteroscedastic(60, rng, size=8, dtype=np.float64)
    truth[:, 0, 0] = 0.01 * np.arange(60)

    def score(x, b):
        need = FAMILIES["additive"].score(x, b)
        return np.where((x[:, :1, :1] > 0.2) & (need > 0), np.nan, need)

    family = Family("sometimes", FAMILIES["additive"].widen, score)
    with pytest.raises(ValueError, match="NaN"):
        flat_calibrate(truth, band, risk_level=0.5, method="rcps", family=family)


@some
@given(low=vectors(st.floats(0.1, 1)), width=vectors(st.floats(0.01, 1)), truth=vectors(st.floats(0, 2)))
def test_check_nested_accepts_every_member_and_refuses_arxiv(low, width, truth):
    truth = truth[None]
    for name, family in FAMILIES.items():
        check_nested(family, truth, band_of(name, low, low + width), 1.0)
    assume((truth > low + width).any())
    with pytest.raises(ValueError, match="not nested"):
        check_nested(arxiv_conffusion(), truth, pb.Band(low[None], (low + width)[None]), 1.0)


# ---------------------------------------------------------------- bands that the families widen


def test_mc_dropout_has_a_floor_of_a_hundredth():
    samples = np.full((2, 5, 3), 0.5)
    samples[0, :, 0] += np.array([-0.2, -0.1, 0, 0.1, 0.2])
    band = pb.mean_and_std(samples)
    deviation = np.std(samples[0, :, 0], ddof=1)
    np.testing.assert_allclose(band.upper[0], [0.5 + deviation, 0.51, 0.51])
    np.testing.assert_allclose(band.lower[1], 0.49)
    np.testing.assert_allclose(FAMILIES["scaled"].score(np.full((2, 3), 0.54), band)[1], 4.0)
    wide = pb.mean_and_std(samples, floor=0.1)
    np.testing.assert_allclose(wide.upper[1], 0.6)
    for floor in (0, -0.1):
        with pytest.raises(ValueError, match="floor is"):
            pb.mean_and_std(samples, floor=floor)


def test_crossed_quantiles_are_sorted_and_counted():
    lower, upper = np.array([[0.1, 0.9, 0.3], [0.8, 0.2, 0.2]]), np.array([[0.2, 0.4, 0.3], [0.1, 0.3, 0.6]])
    kept = lower.copy(), upper.copy()
    with pytest.warns(UserWarning, match="2 of 6 pairs of quantiles were crossed"):
        band = pb.conffusion(lower, upper)
    np.testing.assert_array_equal(band.lower, np.minimum(*kept))
    np.testing.assert_array_equal(band.upper, np.maximum(*kept))
    np.testing.assert_array_equal(lower, kept[0])
    np.testing.assert_array_equal(upper, kept[1])
