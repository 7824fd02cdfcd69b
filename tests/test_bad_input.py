"""Bad input fails at the door: a ValueError (a TypeError for a wrong type) that names the value and the remedy.

Nothing that is given is ever changed. At the end, random garbage meets every public function.
"""

import inspect
import json
import os
import struct
import warnings
from fractions import Fraction

import dask.array as da
import numpy as np
import pytest
import torch
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as save_tensors

import pixelbounds as pb
from pixelbounds import confidence, families, groups, losses
from pixelbounds.calibration import calibration_from_bytes
from pixelbounds.losses import l01
from pixelbounds.pairs import Pairs
from pixelbounds.sealed import checksum
from worlds import heteroscedastic

N, SIZE = 60, 6
HERE = {"risk_level": 0.2}


def data(dtype=np.float64, n=N):
    """Truth and band, the same at every call."""
    return heteroscedastic(n, np.random.default_rng(0), size=SIZE, dtype=dtype)


def refuses(call, *words, error=ValueError, unchanged=()):
    """The call raises an error whose message holds all words, and leaves some arrays as they were."""
    before = [np.array(x, copy=True) for x in unchanged]
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    for x, kept in zip(unchanged, before, strict=True):
        np.testing.assert_array_equal(np.asarray(x), kept)


def refuses_to_calibrate(*words, truth=None, band=None, error=ValueError, **kwargs):
    """`calibrate` on good data, save what is given, raises such an error."""
    good_truth, good_band = data()
    truth, band = good_truth if truth is None else truth, good_band if band is None else band
    given_arrays = (truth, getattr(band, "lower", None), getattr(band, "upper", None))
    watched = [x for x in given_arrays if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    refuses(lambda: pb.calibrate(truth, band, **{**HERE, **kwargs}), *words, error=error, unchanged=watched)


METHODS = [("rcps", None), ("krcps", "loss"), ("frontier", "band"), ("frontier", "learned")]
every_method = pytest.mark.parametrize("method, groups", METHODS)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@every_method
def test_truth_that_is_not_finite_names_its_image(method, groups, value):
    """Whichever image it is: fitting images are named by their own number too."""
    for image in (0, 13, 37, 59):
        truth, band = data()
        truth[image, 2, 3] = truth[image, 4, 0] = value
        words = f"truth of image {image} has 2 values that are NaN or infinite"
        refuses_to_calibrate(words, "mend or drop", truth=truth, band=band, method=method, groups=groups)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_every_fitting_image_is_named_by_its_own_number(value):
    truth, band = data()
    fitting = np.array([2, 5, 11, 40])
    pairs = Pairs(truth, band, families.additive, (0.0, 1.0))
    truth[11, 0, 0] = value
    refuses(lambda: pairs.gather(fitting), "truth of image 11")


@pytest.mark.parametrize("name", ["lower", "upper", "centre"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bands_that_are_not_finite_name_their_image(name, value):
    arrays = {"lower": np.zeros((5, 3)), "centre": np.full((5, 3), 0.5), "upper": np.ones((5, 3))}
    arrays[name][3, 1] = value
    refuses(lambda: pb.Band(**arrays), f"band.{name} of image 3", "1 values", unchanged=arrays.values())
    tensors = {key: torch.from_numpy(x) for key, x in arrays.items()}  # read only when they are used
    refuses_to_calibrate(f"band.{name} of image 3", truth=np.full((5, 3), 0.5), band=pb.Band(**tensors), method="rcps")


def test_lower_above_upper_names_image_and_remedy():
    lower, upper = np.zeros((6, 4)), np.ones((6, 4))
    lower[4, :2] = 2
    words = ("image 4", "lower above upper at 2 pixels", "swap", "conffusion")
    refuses(lambda: pb.Band(lower, upper), *words, unchanged=(lower, upper))
    for wrap in (torch.from_numpy, da.from_array, zarr.array):
        band = pb.Band(wrap(lower), wrap(upper))
        refuses_to_calibrate(*words, truth=np.full((6, 4), 0.5), band=band, method="rcps", limits=(0, 2))


@pytest.mark.parametrize("wrap", [np.asarray, torch.from_numpy, da.from_array, zarr.array])
def test_features_that_are_not_finite_name_their_image(wrap):
    features = np.zeros((N, SIZE, SIZE))
    features[21, 0, 0] = np.nan
    refuses_to_calibrate("features of image 21", features=wrap(features))


@pytest.mark.parametrize("wrap", [torch.from_numpy, da.from_array, zarr.array])
def test_features_of_any_library_are_accepted(wrap):
    truth, band = data()
    features = np.random.default_rng(1).normal(size=truth.shape)
    expected = pb.calibrate(truth, band, features=features, k=4, **HERE)
    cal = pb.calibrate(truth, band, features=wrap(features), k=4, **HERE)
    np.testing.assert_array_equal(cal.widening, expected.widening)
    np.testing.assert_array_equal(
        cal.apply(band, features=wrap(features)).lower, expected.apply(band, features=features).lower
    )


@every_method
def test_limits_must_contain_the_truth_and_say_how_much_is_outside(method, groups):
    truth, band = data()
    truth[:, 0, 0] = 1.25
    how = {"method": method, "groups": groups}
    refuses_to_calibrate(
        "1.25", "outside the limits (0, 1)", "% of the values", "rescale", truth=truth, band=band, **how
    )
    every = np.full((N, 4), 7.0)
    refuses_to_calibrate("100.000% of the values", truth=every, band=pb.Band(every / 7 - 0.5, every / 7), **how)


def test_a_band_on_another_scale_than_the_limits():
    truth, band = data()
    refuses_to_calibrate("band of image", "far outside", "one scale", truth=truth, band=band.map(lambda x: x * 255))


# ---------------------------------------------------------------- shapes and types


def test_shapes_that_disagree():
    truth, _ = data()
    refuses(lambda: pb.Band(truth, truth[:5]), "upper", f"({5}, {SIZE}, {SIZE})", "must agree")
    refuses(lambda: pb.Band(truth, truth, truth[:, 0]), "centre", "must agree")
    refuses(lambda: pb.Interval(truth, truth[:5]), "must agree")
    refuses_to_calibrate("truth", f"({N}, {SIZE})", f"({N}, {SIZE}, {SIZE})", truth=truth[:, 0])
    refuses_to_calibrate("truth", "must agree", truth=truth[:-1])
    refuses_to_calibrate("features", "(3, 6, 6)", "(n, f, *pixels)", features=np.zeros((3, SIZE, SIZE)))
    refuses_to_calibrate("features[1]", "must agree", features=[np.zeros(truth.shape), np.zeros((3, SIZE, SIZE))])
    refuses(lambda: l01(truth[:3], pb.Interval(truth, truth)), "truth", "must agree")
    refuses(lambda: pb.Interval(truth, truth).contains(truth[:3]), "truth", "must agree")
    refuses(lambda: pb.conffusion(truth, truth[:3]), "must agree")
    refuses(lambda: pb.quantile_regression(truth, truth, truth[:3]), "must agree")


@pytest.mark.parametrize("shape", [(0,), (0, 4, 4), (3, 0), (3, 4, 0)])
def test_an_empty_calibration_set(shape):
    words = (str(shape), "at least one image of at least one pixel")
    refuses(lambda: pb.Band(np.zeros(shape), np.ones(shape)), *words)
    refuses_to_calibrate(*words, truth=np.zeros(shape))
    refuses(lambda: pb.calibrated_quantiles(np.zeros((*shape, 19)), 0.1, axis=-1), "at least one image")


@pytest.mark.parametrize(
    "images",
    [np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.int64), np.zeros((2, 3), bool), np.zeros((2, 3), complex),
     np.array([[None, 1.0]]), [["a"]], "text", [[1.0], [1.0, 2.0]], np.zeros((2, 3), np.longdouble), None, object()],
    ids=lambda x: getattr(getattr(x, "dtype", None), "name", type(x).__name__),
)  # fmt: skip
def test_images_that_are_not_floating_point(images):
    refuses(lambda: pb.Band(images, images), "Band" if images is None else "band.lower", error=TypeError)
    refuses_to_calibrate("truth", error=TypeError, truth=images if images is not None else object())


def test_a_band_must_be_a_band():
    truth, band = data()
    refuses_to_calibrate("ndarray", "pixelbounds.Band(lower, upper)", error=TypeError, band=band.lower)
    cal = pb.calibrate(truth, band, method="rcps", **HERE)
    refuses(lambda: cal.apply(band.lower), "ndarray", "pixelbounds.Band(lower, upper)", error=TypeError)
    refuses(lambda: band[3], "band[3:4]", error=TypeError)


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
    refuses_to_calibrate("risk_level", error=TypeError, risk_level=level)
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


@pytest.mark.parametrize("bound", sorted(confidence.BOUNDS))
def test_too_few_images_say_how_far_it_got_and_how_many_are_needed(bound):
    truth, band = data()
    least = pb.least_images(0.02, 0.1, confidence=bound)
    words = ["risk level of 0.02 cannot be certified", f"with {N - 30} certifying", bound, "More images"]
    if least > 30:
        words.append(f"at least {least} are needed")
        refuses_to_calibrate(*words, method="frontier", groups="band", n_opt=30, risk_level=0.02, confidence=bound)
    else:
        pb.calibrate(truth, band, groups="band", n_opt=30, risk_level=0.02, confidence=bound)


def test_one_image_cannot_fit_and_certify():
    truth, band = data()
    for method, by in METHODS[1:]:
        refuses_to_calibrate("1 image", "more images", truth=truth[:1], band=band[:1], method=method, groups=by)
    refuses_to_calibrate("1 certifying", "are needed", truth=truth[:1], band=band[:1], method="rcps")


def test_a_path_that_cannot_be_certified_says_how_far_it_got():
    """A multiplicative lower end never reaches a truth of 0: half of the pixels stay missed."""
    truth = np.zeros((N, 4))
    truth[:, :2] = 0.5
    band = pb.Band(np.full((N, 4), 0.3), np.full((N, 4), 0.4))
    words = ("cannot be certified", "0.5", "multiplicative", "additive", "More images")
    for method, by in (("rcps", None), ("frontier", "band")):
        refuses_to_calibrate(*words, truth=truth, band=band, method=method, groups=by, family="multiplicative")
    refuses_to_calibrate(
        "cannot be covered", "additive", truth=truth, band=band, method="krcps", family="multiplicative"
    )


@pytest.mark.parametrize("n_opt", [N, N + 5, 10**30])
def test_too_many_fitting_images(n_opt):
    for method, by in METHODS:
        refuses_to_calibrate(
            f"n_opt is {n_opt}", f"only {N} images", "lower n_opt", method=method, groups=by, n_opt=n_opt
        )


@pytest.mark.parametrize("name", ["n_opt", "d_opt", "k"])
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
    one = pb.calibrate(truth, band, method="krcps", d_opt=10**400, **HERE)
    other = pb.calibrate(truth, band, method="krcps", d_opt=SIZE * SIZE, **HERE)
    np.testing.assert_array_equal(one.widening, other.widening)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "kwargs, words",
    [
        ({"method": "fronteir"}, ("method is 'fronteir'", "did you mean 'frontier'", "rcps")),
        ({"method": "kcrps"}, ("did you mean 'krcps'",)),
        ({"confidence": "beting"}, ("confidence is 'beting'", "did you mean 'betting'", "hoeffding")),
        ({"confidence": "Hoefding"}, ("did you mean 'hoeffding'",)),
        ({"groups": "lerned"}, ("groups is 'lerned'", "did you mean 'learned'", "band")),
        ({"groups": "bands"}, ("did you mean 'band'",)),
        ({"family": "multiplicitive"}, ("did you mean 'multiplicative'",)),
        ({"method": "zzz"}, ("method is 'zzz'", "frontier, krcps, rcps")),
    ],
)
def test_unknown_names_show_the_nearest(kwargs, words):
    refuses_to_calibrate(*words, **kwargs)


@pytest.mark.parametrize("name", ["method", "family", "confidence", "groups", "loss"])
def test_names_of_a_wrong_type(name):
    refuses_to_calibrate(name, error=TypeError, **{name: 3.5})


# ---------------------------------------------------------------- options that do not fit


@pytest.mark.parametrize(
    "kwargs, words",
    [
        ({"method": "rcps", "groups": "band"}, ("rcps has one group", "leave")),
        ({"method": "rcps", "k": 3}, ("rcps has one group",)),
        ({"d_opt": 5}, ("d_opt", "krcps")),
        ({"direction": [1.0]}, ("direction", "krcps")),
        ({"method": "krcps", "groups": "band"}, ("'band'", "frontier")),
        ({"method": "krcps", "groups": "learned"}, ("'learned'", "frontier")),
        ({"method": "krcps", "groups": np.zeros((SIZE, SIZE), int), "k": 2}, ("k sets", "leave it out")),
        ({"groups": np.zeros((SIZE, SIZE))}, ("float64", "whole numbers")),
        ({"groups": np.zeros((SIZE, 3), int)}, ("(6, 3)", "(6, 6)")),
        ({"groups": np.zeros((N, SIZE, SIZE))}, ("float64", "whole numbers")),
        ({"groups": groups.Partition(np.zeros((3, 3), np.int32))}, ("(3, 3)", "(6, 6)")),
        ({"groups": groups.Segmentation(np.array([0, 1]))}, ("segmentation", "groups=")),
        ({"method": "krcps", "d_opt": 5, "groups": np.zeros((N, SIZE, SIZE), int)}, ("d_opt", "leave")),
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
    "gammas", [[], [1.0], [-0.1], [0.5, np.nan], [2], "half", None, [None], [[0.1, 0.2]], [0.5j], [10**400]]
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
        refuses_to_calibrate("loss rises", "nonincreasing", method=method, groups=by, loss=loss, confidence=confidence)


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


# ---------------------------------------------------------------- applying to what was not calibrated


def test_apply_refuses_a_band_of_another_shape():
    truth, band = data()
    for how in ({"method": "krcps"}, {"method": "krcps", "groups": np.zeros((SIZE, SIZE), int)}, {"groups": "loss"}):
        cal = pb.calibrate(truth, band, **how, **HERE)
        other = pb.Band(np.zeros((3, 5, 5)), np.ones((3, 5, 5)))
        refuses(lambda cal=cal, other=other: cal.apply(other), "(5, 5)", "(6, 6)", "'band' or 'learned'")


def test_apply_refuses_a_band_of_another_range():
    truth, band = data()
    cal = pb.calibrate(truth, band, method="rcps", **HERE)
    images = band.map(lambda x: np.concatenate([x[:2], 255 * x[2:3]]))
    refuses(lambda: cal.apply(images), "band of image 2", "limits (0, 1)", unchanged=(images.lower, images.upper))


def test_apply_refuses_a_band_of_another_family_or_source():
    truth, band = data()
    centred = pb.Band(band.lower, band.upper, (band.lower + band.upper) / 2)
    plain = pb.calibrate(truth, band, method="rcps", **HERE)
    scaled = pb.calibrate(truth, centred, method="rcps", **HERE)
    refuses(lambda: plain.apply(centred), "additive", "scaled")
    refuses(lambda: scaled.apply(band), "centre", "mean_and_std")
    made = pb.Band(band.lower, band.upper, source="calibrated quantiles, miscoverage 1/10")
    cal = pb.calibrate(truth, made, method="rcps", **HERE)
    other = pb.Band(band.lower, band.upper, source="calibrated quantiles, miscoverage 1/5")
    refuses(lambda: cal.apply(other), "1/10", "1/5", "calibrate again")


def test_apply_refuses_nan_and_names_the_image():
    truth, band = data()
    cal = pb.calibrate(truth, band, method="rcps", **HERE)
    lower = torch.from_numpy(band.lower.copy())
    lower[7, 0, 0] = float("nan")
    refuses(lambda: cal.apply(pb.Band(lower, torch.from_numpy(band.upper))), "band.lower of image 7")


def test_what_would_be_ignored_is_refused():
    truth, band = data()
    refuses_to_calibrate("features are for learned groups", method="rcps", features=np.zeros(truth.shape))
    refuses_to_calibrate("features are for learned groups", groups="band", features=np.zeros(truth.shape))
    cal = pb.calibrate(truth, band, groups="band", **HERE)
    refuses(
        lambda: cal.apply(band, features=np.zeros(truth.shape)), "features belong to learned groups", "leave them out"
    )
    refuses(lambda: cal.apply(band, groups=np.zeros(truth.shape, int)), "kind 'band'", "leave groups out")


def test_apply_needs_the_features_of_the_calibration():
    truth, band = data()
    features = np.random.default_rng(0).normal(size=(N, 2, SIZE, SIZE))
    cal = pb.calibrate(truth, band, features=features, k=4, **HERE)
    refuses(lambda: cal.apply(band), "learned with 2 feature images", "0 were given", "features=")
    refuses(lambda: cal.apply(band, features=features[:, :1]), "learned with 2", "1 were given")
    refuses(lambda: cal.apply(band, features=features[:5]), "features", "(5, 2, 6, 6)")
    features[9] = np.nan
    refuses(lambda: cal.apply(band, features=features), "features of image 9")


def test_segmentation_labels_unseen():
    truth, band = data()
    labels = np.zeros((N, SIZE, SIZE), int)
    labels[:, :, 3:] = 1
    cal = pb.calibrate(truth, band, groups=labels, **HERE)
    refuses(lambda: cal.apply(band), "segmentation", "groups=")
    refuses(lambda: cal.apply(band, groups=labels[:5]), "groups", "shape")
    refuses(lambda: cal.apply(band[:5], groups=labels), "groups", "shape")
    refuses(lambda: cal.apply(band, groups=labels[:, :2]), "groups", "shape")
    refuses(lambda: cal.apply(band, groups="brain"), "groups", error=(ValueError, TypeError))
    strange = labels.copy()
    strange[11, 2, 2] = 77
    refuses(lambda: cal.apply(band, groups=strange), "labels [77]", "[0, 1]", "merge", unchanged=[strange])


@pytest.mark.parametrize("method", ["krcps", "frontier"])
def test_a_label_that_only_certifying_images_have(method):
    """It has no group: an error, never a label out of range."""
    labels = np.zeros((N, SIZE, SIZE), int)
    truth, band = data()
    fitted = pb.calibrate(truth, band, method=method, groups=labels, n_opt=3, **HERE)
    assert fitted.record.fitting == 3
    refused = 0
    for image in range(0, N, 6):
        strange = labels.copy()
        strange[image] = 5
        try:
            cal = pb.calibrate(truth, band, method=method, groups=strange, n_opt=3, **HERE)
        except ValueError as error:
            assert "labels [5]" in str(error)  # noqa: PT017
            refused += 1
        else:
            assert cal.grouping.count == 2  # the image was among the fitting ones
    assert refused >= 7


# ---------------------------------------------------------------- calibration files


@pytest.fixture(scope="module")
def content():
    truth, band = data()
    return pb.calibrate(truth, band, method="krcps", **HERE).to_bytes()


def test_a_file_that_is_not_there(tmp_path):
    refuses(lambda: pb.load_calibration(tmp_path / "none.safetensors"), "no calibration file", "none.safetensors")
    refuses(lambda: pb.load_calibration(tmp_path), "no calibration file")
    refuses(lambda: pb.load_calibration("x" * 5000), "no calibration file")


@pytest.mark.parametrize(
    "foreign",
    [b"", b"\0", b"PK\x03\x04" + b"\0" * 60, b"{}", b"\x93NUMPY" + b"\0" * 80, b"\xff" * 100, b"\x80\x04K\x01.",
     struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2**63) + b"{}",
     save_tensors({"a": np.zeros(3)}), save_tensors({"a": np.zeros(3)}, {"pixelbounds": "x"}),
     save_tensors({"a": np.zeros(3)}, {"pixelbounds": "x {}"}), save_tensors({}, {"pixelbounds": "x [1]"})],
    ids=range(14),
)  # fmt: skip
def test_a_foreign_file(tmp_path, foreign):
    (tmp_path / "odd.safetensors").write_bytes(foreign)
    refuses(lambda: pb.load_calibration(tmp_path / "odd.safetensors"), "odd.safetensors")


def signed(text, tensors):
    """A file with a fitting checksum, as someone with bad intentions would write it."""
    written = json.dumps(text) if not isinstance(text, str) else text
    return save_tensors(tensors, {"pixelbounds": f"{checksum(written, tensors)} {written}"})


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '{"format": 1}', '{"format": 99}', "{", '"text"'])
def test_a_file_that_is_signed_and_says_nothing(text):
    for tensors in ({}, {"widening": np.zeros(3), "curve": np.zeros((0, 3))}):
        refuses(lambda tensors=tensors: calibration_from_bytes(signed(text, tensors), "odd"), "odd")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_file_with_parts_missing_or_of_another_type(content, data):
    size = struct.unpack("<Q", content[:8])[0]
    text = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["pixelbounds"].split(" ", 1)[1])
    tensors = {"widening": np.zeros(8), "curve": np.zeros((0, 3)), "groups.labels": np.zeros((SIZE, SIZE), np.int32)}
    where = data.draw(st.sampled_from([text, text["record"], text["groups"], tensors]))
    key = data.draw(st.sampled_from(sorted(where)))
    if where is tensors or data.draw(st.booleans()):
        del where[key]
    else:
        where[key] = data.draw(st.sampled_from([None, "odd", [], {}, 3.5, [[1]], True]))
    try:
        cal = calibration_from_bytes(signed(text, tensors), "odd")
    except ValueError as error:
        assert "odd" in str(error)  # noqa: PT017
    else:
        assert isinstance(cal, pb.Calibration)


def test_a_truncated_file(content):
    cuts = [*range(0, 300, 7), *range(300, len(content), 97), *range(len(content) - 20, len(content))]
    for cut in cuts:
        refuses(lambda cut=cut: calibration_from_bytes(content[:cut], "short"), "short", "Calibration.save")
    refuses(lambda: calibration_from_bytes(content + b"\0", "long"), "long")


def test_an_edited_file_is_refused_or_says_the_same(content):
    """Flip a byte anywhere: an error, or (white space of the header) exactly the same calibration."""
    rng = np.random.default_rng(0)
    places = {int(p) for p in np.linspace(0, len(content) - 1, 400)} | set(range(0, 120))
    refused = 0
    for place in sorted(places):
        edited = bytearray(content)
        edited[place] ^= int(rng.integers(1, 256))
        try:
            cal = calibration_from_bytes(bytes(edited), "edited")
        except ValueError as error:
            assert "edited" in str(error)  # noqa: PT017
            refused += 1
        else:
            assert cal.to_bytes() == content
    assert refused > 0.95 * len(places)


def test_an_edit_of_the_risk_level_is_noticed(content):
    assert content.count(b'\\"risk_level\\": 0.2') == 1
    edited = content.replace(b'\\"risk_level\\": 0.2', b'\\"risk_level\\": 0.1')
    refuses(lambda: calibration_from_bytes(edited, "edited"), "'edited' was changed", "checksum", "calibrate again")


def test_a_newer_format_says_so(content):
    size = struct.unpack("<Q", content[:8])[0]
    text = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["pixelbounds"].split(" ", 1)[1])
    refuses(lambda: calibration_from_bytes(signed({**text, "format": 2}, {}), "new"), "format 2", "update pixelbounds")


# ---------------------------------------------------------------- inputs are left alone


def test_nothing_given_is_changed():
    truth, band = data(np.float32)
    labels = np.zeros((SIZE, SIZE), np.int16)
    features, units, direction, gammas = np.ones((N, SIZE, SIZE)), np.arange(N), np.ones(1), np.array([0.4, 0.5])
    given_arrays = (truth, band.lower, band.upper, labels, features, units, direction, gammas)
    before = [x.copy() for x in given_arrays]
    cals = [
        pb.calibrate(
            truth, band, method="krcps", groups=labels, units=units, direction=direction, gammas=gammas, **HERE
        ),
        pb.calibrate(truth, band, features=features, units=units, **HERE),
        pb.calibrate(truth, band, groups="band", limits=(0.0, 1.0), **HERE),
    ]
    cals[0].apply(band)
    cals[1].apply(band, features=features)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    pb.calibrate(truth, band, groups="band", **HERE)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    for x, kept in zip(given_arrays, before, strict=True):
        np.testing.assert_array_equal(x, kept)


# ---------------------------------------------------------------- garbage at every public function

SMALL = heteroscedastic(20, np.random.default_rng(0), size=3, dtype=np.float64)
BAND = SMALL[1]
CENTRED = pb.Band(BAND.lower, BAND.upper, (BAND.lower + BAND.upper) / 2)
INTERVAL = pb.Interval(BAND.lower, BAND.upper)
PAIRS = Pairs(*SMALL, families.additive, (0.0, 1.0), np.zeros((20, 1, 3, 3)), np.zeros((20, 3, 3), int))
CAL = pb.calibrate(*SMALL, risk_level=0.5, method="rcps")
SAMPLES = np.random.default_rng(0).normal(size=(2, 24, 3))
IMAGES = np.arange(5)
LOSSES = np.full(20, 0.1)
BLOCK = PAIRS.read(0, 2)[1]


def _members(module):
    """Public functions that a module defines."""
    return {
        f"{module.__name__.split('.')[-1]}.{name}": x
        for name, x in vars(module).items()
        if inspect.isfunction(x) and not name.startswith("_") and x.__module__.startswith(module.__name__)
    }


PUBLIC = {
    **{name: getattr(pb, name) for name in pb.__all__ if callable(getattr(pb, name))},
    **_members(confidence), **_members(families), **_members(losses), **_members(groups),
}  # fmt: skip

GOOD = {
    "Band": {"lower": BAND.lower, "upper": BAND.upper, "centre": CENTRED.centre, "source": "test"},
    "Interval": {"lower": BAND.lower, "upper": BAND.upper},
    "Ragged": {"images": [BAND.lower[0], BAND.lower[1, :2]]},
    "Family": {"name": "own", "widen": families.additive.widen, "shortfall": families.additive.shortfall, "start": 0.0},
    "calibrate": {
        "truth": SMALL[0],
        "band": BAND,
        "risk_level": 0.5,
        "failure_prob": 0.1,
        "method": "krcps",
        "confidence": "betting",
        "groups": "loss",
        "features": None,
        "family": "additive",
        "loss": l01,
        "k": 2,
        "n_opt": 4,
        "d_opt": 4,
        "direction": None,
        "gammas": [0.5],
        "units": np.arange(20),
        "limits": (0.0, 1.0),
        "seed": 0,
    },
    "calibrate, rcps": {
        "truth": SMALL[0],
        "band": BAND,
        "risk_level": 0.5,
        "method": "rcps",
        "n_opt": 2,
        "limits": None,
    },
    "calibrate, frontier": {
        "truth": SMALL[0],
        "band": BAND,
        "risk_level": 0.5,
        "groups": "band",
        "k": 3,
        "n_opt": 4,
        "limits": (0, 1),
        "family": None,
    },
    "calibrated_quantiles": {"samples": SAMPLES, "miscoverage": 0.2, "axis": 1},
    "naive_quantiles": {"samples": SAMPLES, "miscoverage": 0.2, "axis": 1},
    "mean_and_std": {"samples": SAMPLES, "axis": 1, "floor": 0.01},
    "narrow": {"samples": SAMPLES, "axis": 1, "deviations": 0.8},
    "calibrated_ranks": {"m": 128, "miscoverage": 0.1},
    "least_samples": {"miscoverage": 0.1},
    "least_images": {"risk_level": 0.1, "failure_prob": 0.1, "confidence": "betting"},
    "conffusion": {"lower": BAND.lower, "upper": BAND.upper},
    "quantile_regression": {
        "lower": BAND.lower,
        "estimate": CENTRED.centre,
        "upper": BAND.upper,
        "form": "distance",
        "floor": 1e-6,
    },
    "evaluate": {
        "truth": SMALL[0],
        "interval": INTERVAL,
        "samples": SMALL[0][:, None],
        "sample_axis": 1,
        "groups": np.zeros((20, 3, 3), int),
        "units": np.arange(20),
        "draws": 100,
        "confidence_level": 0.95,
        "seed": 0,
    },
    "load_calibration": {"path": "nowhere.safetensors", "family": None},
    "Calibration.apply": {"self": CAL, "band": BAND, "features": None, "groups": None},
    "Calibration.save": {"self": CAL, "path": "cal.safetensors"},
    "Interval.contains": {"self": INTERVAL, "truth": SMALL[0]},
    "Band.rows": {"self": BAND, "start": 0, "stop": 3},
    **{f"confidence.{name}": {"losses": LOSSES, "failure_prob": 0.1} for name in confidence.BOUNDS},
    "confidence.check_losses": {"losses": LOSSES},
    "confidence.binomial_tail": {"k": 2, "n": 5, "p": 0.3},
    "confidence.relative_entropy": {"a": 0.2, "b": 0.3},
    "confidence.bound_named": {"confidence": "betting"},
    "confidence.sees_mean_only": {"bound": confidence.betting},
    "confidence.rejects": {"bound": confidence.betting, "losses": LOSSES, "failure_prob": 0.1, "level": 0.3},
    "confidence.rejects, mean": {"bound": confidence.hoeffding, "losses": LOSSES, "failure_prob": 0.1, "level": 0.3},
    "confidence.rejects_mean": {"bound": confidence.bentkus, "mean": 0.1, "n": 9, "failure_prob": 0.1, "level": 0.3},
    "confidence.least_images": {"risk_level": 0.1, "failure_prob": 0.1, "confidence": "bentkus"},
    "families.family_named": {"family": "additive", "band": BAND},
    "families.check_fits": {"family": families.additive, "band": BAND},
    "families.check_nested": {"family": families.additive, "truth": SMALL[0], "band": BAND, "scale": 1.0},
    "losses.l01": {"truth": SMALL[0], "interval": INTERVAL},
    "losses.l_gamma": {"truth": SMALL[0], "interval": INTERVAL, "gamma": 0.5},
    "groups.all_entries": {"block": BLOCK},
    "groups.by_loss": {"pairs": PAIRS, "images": IMAGES, "k": 4, "loss": "l01"},
    "groups.by_otsu": {"pairs": PAIRS, "images": IMAGES, "k": 4, "loss": "squared"},
    "groups.fit_band_groups": {"pairs": PAIRS, "images": IMAGES, "width": 4, "room": 2, "level": 2, "side": True},
    "groups.fit_learned_groups": {
        "pairs": PAIRS,
        "images": IMAGES,
        "rng": np.random.default_rng(0),
        "bins_per_side": 3,
        "quantile": 0.8,
        "trees": 2,
    },
    "groups.load_grouping": {"kind": "partition", "meta": {}, "arrays": {"labels": np.zeros((3, 3), np.int32)}},
    "groups.partition": {"labels": np.zeros((3, 3), int), "pixels": (3, 3)},
    "groups.segmentation": {"pairs": PAIRS, "images": IMAGES},
    **{
        f"families.{name}.widen": {"band": CENTRED if name == "scaled" else BAND, "widening": 1.5}
        for name in families.FAMILIES
    },
    **{
        f"families.{name}.shortfall": {"truth": SMALL[0], "band": CENTRED if name == "scaled" else BAND}
        for name in families.FAMILIES
    },
}
RESULTS = {
    "Calibration",
    "Evaluation",
    "NoGuarantee",
}  # made by functions, or raised; the methods of the first are above


def _function(case):
    name = case.split(",")[0]
    if name in PUBLIC:
        return PUBLIC[name]
    first, *rest = name.split(".")
    if first == "families":
        return getattr(families.FAMILIES[rest[0]], rest[1])
    return getattr(getattr(pb, first), rest[0])


def test_every_public_function_meets_garbage():
    assert set(PUBLIC) - RESULTS <= {case.split(",")[0] for case in GOOD}


def _nothing():
    return st.sampled_from([
        None, True, False, "", "abc", "0.1", "band", b"bytes", {}, {"a": 1}, set(), object(), len, lambda: 3, ..., type,
        slice(None), Fraction(1, 3), Fraction(10**400), 1j, "a\0b", "x" * 300, "no/such/folder/file",
    ])  # fmt: skip


def _numbers():
    special = [
        0,
        1,
        -1,
        2,
        3,
        -7,
        0.5,
        -0.5,
        1e-300,
        1e300,
        np.nan,
        np.inf,
        -np.inf,
        2**31,
        2**63,
        -(2**63),
        10**400,
        -(10**400),
    ]
    return st.sampled_from(
        [*special, np.float32(0.3), np.int8(-3), np.float64(np.nan), np.bool_(True), np.longdouble(0.1)]
    )


def _lists():
    return st.sampled_from(
        [
            [],
            [[]],
            [1, 2],
            [0.1, 0.2],
            [[1.0], [1.0, 2.0]],
            ["a", 1],
            [None],
            [np.nan],
            [1j],
            (0.0,),
            (0.0, 1.0),
            (1.0, 0.0),
            (None, None),
            ("a", "b"),
            [10**400],
            (0, 10**400),
            [True, False],
            [[0.1, 0.2]] * 20,
            [SMALL[0]],
            [SMALL[0], None],
        ]
    )


def _arrays():
    shape = (20, 3, 3)
    bad = SMALL[0].copy()
    bad[4, 1, 1] = np.nan
    endless = SMALL[0].copy()
    endless[7, 0, 0] = np.inf
    return st.sampled_from(
        [
            np.zeros(shape, complex),
            np.full(shape, None),
            np.full(shape, "a"),
            np.empty((0, 3, 3)),
            np.empty(0),
            np.empty((20, 0)),
            np.array(0.5),
            np.zeros(20),
            np.zeros((3, 3)),
            np.zeros((20, 3, 3, 3)),
            np.zeros((2, 20, 3, 3)),
            bad,
            endless,
            -np.ones(shape),
            np.full(shape, 1e300),
            np.zeros(shape, int),
            np.zeros(shape, bool),
            np.full(shape, 10**30),
            np.zeros(shape, np.uint16),
            np.zeros(shape, "datetime64[s]"),
            np.zeros(shape, [("a", float)]),
            SMALL[0].astype(">f8"),
            SMALL[0].astype(np.longdouble),
            SMALL[0].astype(np.float16),
            np.zeros((3, 3), int),
            np.full((3, 3), -5),
            np.arange(20),
            np.arange(20) - 30,
            np.array([100]),
            np.array([0.5, np.nan]),
            np.ma.masked_all(shape),
            SMALL[0][::-1],
            SMALL[0].T,
            torch.zeros(20, 3, 3, dtype=torch.complex64),
            torch.zeros(20, 3, 3, requires_grad=True),
            torch.zeros(20, 3, 3, dtype=int),
            torch.full((20, 3, 3), float("nan")),
            da.zeros(shape),
            da.full(shape, np.nan),
            zarr.array(bad),
            zarr.array(np.zeros(3)),
            BAND,
            CENTRED,
            INTERVAL,
            pb.Band(np.zeros((20, 2)), np.ones((20, 2))),
            families.additive,
            families.scaled,
            families.multiplicative,
            PAIRS,
            BLOCK,
            groups.Single(),
            groups.Partition(np.zeros((2, 2), np.int32)),
        ]
    )


GARBAGE = st.one_of(_nothing(), _numbers(), _lists(), _arrays())
EXAMPLES = {"calibrate": 120, "calibrate, rcps": 60, "calibrate, frontier": 60, "groups.fit_learned_groups": 25}
MORE = int(os.environ.get("PIXELBOUNDS_GARBAGE", "1"))  # times as many examples, and other ones every time


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder of its own: garbage may be a file name."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("garbage"))
    yield
    os.chdir(before)


@pytest.mark.parametrize("case", GOOD)
def test_good_input_is_accepted(case, elsewhere):
    """Else the test below would show nothing."""
    if case == "load_calibration":
        return
    _call(case, dict(GOOD[case]))


def _call(case, arguments):
    positional = [arguments.pop("self")] if "self" in arguments else []
    function = _function(case)
    if ".widen" in case or ".shortfall" in case:
        return function(*arguments.values())
    return function(*positional, **arguments)


@pytest.mark.parametrize("case", GOOD)
def test_garbage_raises_value_or_type_errors_and_nothing_else(case, elsewhere):
    @settings(
        max_examples=MORE * EXAMPLES.get(case, 40), deadline=None, derandomize=MORE == 1, database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @given(data=st.data())
    def drive(data):
        arguments = dict(GOOD[case])
        names = [name for name in arguments if name != "self"]
        for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
            arguments[name] = data.draw(GARBAGE, label=name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                _call(case, arguments)
            except (ValueError, TypeError) as error:
                assert str(error).strip()  # noqa: PT017

    drive()
