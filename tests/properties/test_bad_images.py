"""Bad images and bands fail at the door, and the error names the image."""

import dask.array as da
import numpy as np
import pytest
import torch
import zarr
from flat import flat_calibrate
from refusals import HERE, SIZE, N, data, every_method, refuses, refuses_to_calibrate

import pixelbounds as pb
from pixelbounds.calibration.data import LocalData
from pixelbounds.calibration.losses import l01

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
    pairs = LocalData(truth, band)
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
    expected = flat_calibrate(truth, band, features=features, k=4, **HERE)
    cal = flat_calibrate(truth, band, features=wrap(features), k=4, **HERE)
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
    if getattr(images, "dtype", None) != np.uint8:  # of which a truth may be
        refuses_to_calibrate("truth", error=TypeError, truth=images if images is not None else object())


def test_a_band_must_be_a_band():
    truth, band = data()
    refuses_to_calibrate("ndarray", "pixelbounds.Band(lower, upper)", error=TypeError, band=band.lower)
    cal = flat_calibrate(truth, band, method="rcps", **HERE)
    refuses(lambda: cal.apply(band.lower), "ndarray", "pixelbounds.Band(lower, upper)", error=TypeError)
    refuses(lambda: band[3], "band[3:4]", error=TypeError)
