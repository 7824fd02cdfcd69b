"""Bad levels, counts, names, options and losses fail at the door, and the error names the value and the remedy."""

from fractions import Fraction

import numpy as np
import pytest
from flat import flat_calibrate
from refusals import HERE, METHODS, SIZE, N, data, refuses, refuses_to_calibrate

import pixelbounds as pb
from pixelbounds import bounds, groups, losses
from pixelbounds.calibration.losses import l01

LABELLED = groups.LabelledGroups(np.array([0]), groups.Single(), np.array([[0], [1]], np.int32))

# ---------------------------------------------------------------- levels and counts


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, np.nan, np.inf, 10**400])
def test_levels_outside_the_open_unit_interval(level):
    shown = "inf" if level == 10**400 else repr(level)
    refuses_to_calibrate("risk_level", shown, risk_level=level)
    refuses_to_calibrate("failure_prob", shown, failure_prob=level)
    refuses(lambda: pb.calibrated_quantiles(np.zeros((1, 40, 2)), level), "miscoverage", shown)
    refuses(lambda: pb.least_samples(level), "miscoverage", shown)
    refuses(lambda: pb.least_images(level), "risk_level", shown)
    refuses(lambda: pb.least_images(0.1, level), "failure_prob", shown)


@pytest.mark.parametrize("level", ["0.1", None, True, [0.1], 0.1j])
def test_levels_that_are_no_numbers(level):
    refuses_to_calibrate("risk_level", error=ValueError if level is None else TypeError, risk_level=level)
    refuses_to_calibrate("failure_prob", error=TypeError, failure_prob=level)
    refuses(lambda: pb.least_samples(level), "miscoverage", error=TypeError)


def test_a_rational_level_outside_the_unit_interval():
    for level in (Fraction(0), Fraction(3, 2), Fraction(10**400)):
        refuses(lambda level=level: pb.least_samples(level), "miscoverage", "strictly between 0 and 1")


@pytest.mark.parametrize("miscoverage, m", [(0.1, 18), (0.05, 38), (0.01, 198), (0.5, 2)])
def test_too_few_samples_name_the_least(miscoverage, m):
    samples = np.zeros((2, m, 3))
    words = (f"{m} samples", f"at least {m + 1}", "miscoverage")
    refuses(lambda: pb.calibrated_quantiles(samples, miscoverage), *words, unchanged=[samples])
    pb.calibrated_quantiles(np.zeros((2, m + 1, 3)), miscoverage)


@pytest.mark.parametrize("bound", sorted(bounds.BOUNDS))
def test_too_few_images_say_how_far_it_got_and_how_many_are_needed(bound):
    truth, band = data()
    least = pb.least_images(0.02, 0.1, bound=bound)
    words = [
        "risk level of 0.02 cannot be certified",
        f"with {N - 30} certifying",
        bound,
        "With fresh images, more of them",
    ]
    if least > 30:
        words.append(f"at least {least} must certify")
        refuses_to_calibrate(*words, method="frontier", groups="band", n_fit=30, risk_level=0.02, bound=bound)
    else:
        pb.calibrate(truth, band, risk_level=0.02, bound=bound, method=pb.Frontier(groups="band", n_fit=30))


def test_one_image_cannot_fit_and_certify():
    truth, band = data()
    for method, by in METHODS[1:]:
        refuses_to_calibrate("1 image", "more images", truth=truth[:1], band=band[:1], method=method, groups=by)
    refuses_to_calibrate("1 certifying", "must certify", truth=truth[:1], band=band[:1], method="rcps")


def test_a_path_that_cannot_be_certified_says_how_far_it_got():
    """A multiplicative lower end never reaches a truth of 0: half of the pixels stay missed."""
    truth = np.zeros((N, 4))
    truth[:, :2] = 0.5
    band = pb.Band(np.full((N, 4), 0.3), np.full((N, 4), 0.4))
    words = ("cannot be certified", "0.5", "multiplicative", "additive", "With fresh images, more of them")
    for method, by in (("rcps", None), ("frontier", "band")):
        refuses_to_calibrate(*words, truth=truth, band=band, method=method, groups=by, family="multiplicative")
    refuses_to_calibrate(
        "cannot be covered", "additive", truth=truth, band=band, method="krcps", family="multiplicative"
    )


@pytest.mark.parametrize("n_fit", [N, N + 5, 10**30])
def test_too_many_fitting_images(n_fit):
    for method, by in METHODS:
        refuses_to_calibrate(
            f"n_fit is {n_fit}", f"only {N} images", "lower n_fit", method=method, groups=by, n_fit=n_fit
        )


@pytest.mark.parametrize("name", ["n_fit", "d_opt", "k"])
def test_counts_are_whole_and_positive(name):
    for value in (0, -1):
        refuses_to_calibrate(name, str(value), "at least", method="krcps", **{name: value})
    for value in (1.5, "3", True, [2]):
        refuses_to_calibrate(name, "whole number", error=TypeError, method="krcps", **{name: value})


@pytest.mark.parametrize("method, by", METHODS[1:])
@pytest.mark.parametrize("k", [2**40, 10**30])
def test_more_groups_than_there_could_be(method, by, k):
    refuses_to_calibrate("k is", str(k), "at most", method=method, groups=by, k=k)


def test_d_opt_of_any_size_takes_all_pixels():
    truth, band = data()
    one = flat_calibrate(truth, band, method="krcps", d_opt=10**400, **HERE)
    other = flat_calibrate(truth, band, method="krcps", d_opt=SIZE * SIZE, **HERE)
    np.testing.assert_array_equal(one.widening, other.widening)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "kwargs, words",
    [
        ({"method": "fronteir"}, ("method is 'fronteir'", "did you mean 'frontier'", "rcps")),
        ({"method": "kcrps"}, ("did you mean 'krcps'",)),
        ({"bound": "beting"}, ("bound is 'beting'", "did you mean 'betting'", "hoeffding")),
        ({"bound": "Hoefding"}, ("did you mean 'hoeffding'",)),
        ({"groups": "lerned"}, ("groups is 'lerned'", "did you mean 'learned'", "band")),
        ({"groups": "bands"}, ("did you mean 'band'",)),
        ({"family": "multiplicitive"}, ("did you mean 'multiplicative'",)),
        ({"method": "zzz"}, ("method is 'zzz'", "frontier, krcps, rcps")),
    ],
)
def test_unknown_names_show_the_nearest(kwargs, words):
    refuses_to_calibrate(*words, **kwargs)


@pytest.mark.parametrize("name", ["method", "family", "bound", "groups", "loss"])
def test_names_of_a_wrong_type(name):
    refuses_to_calibrate(name, error=TypeError, **{name: 3.5})


# ---------------------------------------------------------------- options that do not fit


@pytest.mark.parametrize(
    "kwargs, words",
    [
        ({"method": "rcps", "groups": "band"}, ("rcps has no setting 'groups'", "leave")),
        ({"method": "rcps", "k": 3}, ("rcps has no setting",)),
        ({"d_opt": 5}, ("d_opt", "frontier has no setting")),
        ({"direction": [1.0]}, ("direction", "frontier has no setting")),
        ({"method": "krcps", "groups": "band"}, ("'band'", "frontier")),
        ({"method": "krcps", "groups": "learned"}, ("'learned'", "frontier")),
        ({"method": "krcps", "groups": np.zeros((SIZE, SIZE), int), "k": 2}, ("k sets", "leave it out")),
        ({"groups": np.zeros((SIZE, SIZE))}, ("float64", "whole numbers")),
        ({"groups": np.zeros((SIZE, 3), int)}, ("(6, 3)", "(6, 6)")),
        ({"groups": np.zeros((N, SIZE, SIZE), int)}, ("labels=",)),
        ({"groups": groups.Partition(np.zeros((3, 3), np.int32))}, ("(3, 3)", "(6, 6)")),
        ({"groups": LABELLED}, ("uses labels", "labels=")),
        ({"labels": np.zeros((N, SIZE, SIZE), int), "method": "rcps"}, ("rcps has one group",)),
        ({"labels": np.zeros((SIZE, SIZE), int)}, ("labels", "shape")),
        ({"method": "krcps", "d_opt": 5, "labels": np.zeros((N, SIZE, SIZE), int)}, ("d_opt", "leave")),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_together(kwargs, words):
    refuses_to_calibrate(*words, **kwargs)


@pytest.mark.parametrize(
    "direction", [[1.0, -1.0], [0.0, 0.0], [1.0], [1.0, np.nan], [1.0, np.inf], [[1.0, 1.0]], "up", [None, 1], [1j, 1j]]
)
def test_bad_directions(direction):
    partition = np.arange(SIZE * SIZE).reshape(SIZE, SIZE) % 2
    refuses_to_calibrate(
        "direction",
        "2 finite values",
        method="krcps",
        groups=partition,
        direction=direction,
        error=(ValueError, TypeError),
    )


@pytest.mark.parametrize(
    "gammas", [[], [1.0], [-0.1], [0.5, np.nan], [2], "half", [None], [[0.1, 0.2]], [0.5j], [10**400]]
)
def test_bad_gammas(gammas):
    refuses_to_calibrate("gammas", "[0, 1)", method="krcps", gammas=gammas, error=(ValueError, TypeError))


@pytest.mark.parametrize("gamma", [-0.1, 1.0, np.nan, "x", None])
def test_bad_gamma_of_the_surrogate(gamma):
    interval = pb.Interval(np.zeros((1, 2)), np.ones((1, 2)))
    refuses(lambda: losses.l_gamma(np.zeros((1, 2)), interval, gamma), "gamma", error=(ValueError, TypeError))


@pytest.mark.parametrize(
    "units", [np.zeros(N - 1), np.zeros((N, 2)), "patient", 3, [], np.full(N, np.nan), [None] * N, [[1], [1, 2]]]
)
def test_bad_units(units):
    refuses_to_calibrate("units", "patient", method="rcps", units=units, error=(ValueError, TypeError))


def test_units_that_are_blank_are_missing_and_blanks_around_names_make_no_other_unit():
    names = [f"P{i // 2}" for i in range(N)]
    refuses_to_calibrate("units of 2 images are missing", units=["", " ", *names[2:]])
    truth, band = data()
    padded = [name + " " * (i % 2) for i, name in enumerate(names)]
    how = {"risk_level": 0.3, "method": "rcps"}
    assert flat_calibrate(truth, band, units=padded, **how).record.units == N // 2


@pytest.mark.parametrize("name", ["image", "Images", "future image", "pixel", "values"])
def test_a_unit_is_not_called_what_it_consists_of(name):
    """The sentence would promise a future image, where a mean over images is certified."""
    refuses_to_calibrate("would promise more", units=[f"P{i // 2}" for i in range(N)], unit_name=name)


@pytest.mark.parametrize("shape", [(6, 6, 3), (36,), (2, 3, 6)])
def test_images_of_another_number_of_axes_are_another_kind(shape):
    truth, band = data()
    cal = pb.calibrate(truth, band, risk_level=0.3, method=pb.Frontier(groups="band"))
    other = pb.Band(np.zeros((1, *shape)), np.ones((1, *shape)))
    refuses(lambda: cal.apply(other), "another number of axes", str(shape))


def test_a_single_unit_cannot_fit_and_certify():
    refuses_to_calibrate("1 image (unit)", "more images", units=np.zeros(N, int), groups="band")


@pytest.mark.parametrize("limits", [(1.0, 0.0), (0.5, 0.5), (np.nan, 1.0), (0.0, np.nan)])
def test_limits_out_of_order(limits):
    refuses_to_calibrate("limits", "first must be below the second", limits=limits)


@pytest.mark.parametrize("limits", [0.5, (1.0,), (0.0, 0.5, 1.0), "01x", ("a", "b"), (None, 1.0), (0, 10**400)])
def test_limits_that_are_no_pair(limits):
    refuses_to_calibrate("limits", "(0.0, 1.0)", error=TypeError, limits=limits)


@pytest.mark.parametrize("seed, error", [(-1, ValueError), (1.5, TypeError), ("a", TypeError), (None, TypeError)])
def test_bad_seeds(seed, error):
    refuses_to_calibrate("seed", error=error, seed=seed)


# ---------------------------------------------------------------- losses of the user


def test_a_loss_outside_the_unit_interval_names_its_image():
    def loss(truth, interval):
        return l01(truth, interval) + 3 * (truth[:, 0, 0] == 0.123)

    truth, band = data()
    truth[47, 0, 0] = 0.123
    refuses_to_calibrate("loss of image 47", "[0, 1]", "np.minimum", truth=truth, band=band, method="rcps", loss=loss)
    nan = lambda truth, interval: np.full(len(truth), np.nan)  # noqa: E731
    refuses_to_calibrate("nan", "[0, 1]", method="rcps", loss=nan)


@pytest.mark.parametrize("method, by", [("rcps", None), ("krcps", "loss"), ("frontier", "band")])
@pytest.mark.parametrize("confidence", ["betting", "hoeffding_bentkus"])
def test_a_loss_that_rises_is_refused(method, by, confidence):
    def covered(truth, interval):
        return 1 - l01(truth, interval)

    def length(truth, interval):
        return 0.1 * (interval.upper - interval.lower).mean(axis=(1, 2))

    for loss in (covered, length):
        refuses_to_calibrate("rises where", "nonincreasing", method=method, groups=by, loss=loss, bound=confidence)


def test_a_loss_of_the_wrong_shape():
    refuses_to_calibrate("shape", "one per image", method="rcps", loss=lambda truth, interval: np.zeros(truth.shape))
    refuses_to_calibrate("shape", "one per image", method="rcps", loss=lambda truth, interval: 0.1)


def test_losses_refuse_nan():
    interval = pb.Interval(np.zeros((2, 2)), np.ones((2, 2)))
    truth = np.array([[0.5, 0.5], [0.5, np.nan]])
    refuses(lambda: l01(truth, interval), "truth of image 1", "NaN")
    crossed = pb.Interval(np.zeros((2, 2)), np.full((2, 2), np.nan))
    refuses(lambda: l01(np.zeros((2, 2)), crossed), "interval", "NaN")
    refuses(lambda: losses.l_gamma(truth, interval, 0.5), "truth of image 1")
    refuses(lambda: l01(truth, (0, 1)), "pixelbounds.Interval", error=TypeError)
