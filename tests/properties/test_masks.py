"""A masked value is one that nobody knows: at no door may it count as what lies beneath the mask, nor NaN as a number.

Every door that takes numbers of images is tried with a masked array, a list of them, a lazy one, and NaN; a mask under
which nothing lies, as readers of netCDF give it, passes.
"""

import dask.array as da
import numpy as np
import pytest
from flat import flat_calibrate

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.calibration.losses import l01
from pixelbounds.images.ragged import write_ragged
from pixelbounds.problems import denoise

N, SHAPE = 30, (4, 4)
RNG = np.random.default_rng(0)
CENTRE = RNG.uniform(0.3, 0.7, (N, *SHAPE))
TRUTH = np.clip(CENTRE + 0.05 * RNG.standard_normal(CENTRE.shape), 0, 1)
BAND = pb.Band(CENTRE - 0.05, CENTRE + 0.05)
LABELS = (CENTRE > 0.5).astype(int)
REGION = CENTRE > 0.5
WEIGHTS = np.ones(N)
UNITS = np.arange(N) // 2
EASY = {"risk_level": 0.5, "method": "rcps"}
CAL = flat_calibrate(TRUTH, BAND, **EASY)
OF_REGION = pb.calibrate(TRUTH, BAND, promises=[pb.share(0.5, within=REGION, name="bright")], method="rcps")
LEARNED, BANDED = pb.Frontier("learned", k=2), pb.Frontier("band", k=2)
LABELLED = pb.calibrate(TRUTH, BAND, risk_level=0.5, labels=LABELS, method=pb.Frontier(groups="band", k=2))
OTHER = np.clip(TRUTH + 0.001, 0, 1)
INTERVAL = CAL.apply(BAND)
DRAWN = np.repeat(CENTRE[:, None], 19, axis=1)


def masked_loss(values):
    """A user's loss of these values, whatever the intervals are."""
    return lambda truth, interval: values[: len(truth)]


def begun(regions):
    return federated.announce(TRUTH, BAND, site="north", regions={"bright": regions})


DOORS = {
    "truth": (TRUTH, lambda x: flat_calibrate(x, BAND, **EASY)),
    "8-bit truth": ((255 * TRUTH).astype(np.uint8), lambda x: flat_calibrate(x, BAND, **EASY)),
    "lower": (CENTRE, lambda x: pb.Band(x, CENTRE + 1)),
    "centre": (CENTRE, lambda x: pb.Band(CENTRE - 0.1, CENTRE + 0.1, x)),
    "interval": (CENTRE, lambda x: pb.Interval(x, CENTRE + 1)),
    "contains": (TRUTH, lambda x: CAL.apply(BAND).contains(x)),
    "features": (CENTRE, lambda x: pb.calibrate(TRUTH, BAND, risk_level=0.5, features=x, method=LEARNED)),
    "labels": (LABELS, lambda x: pb.calibrate(TRUTH, BAND, risk_level=0.5, labels=x, method=BANDED)),
    "labels of apply": (LABELS, lambda x: LABELLED.apply(BAND, labels=x)),
    "units": (UNITS, lambda x: flat_calibrate(TRUTH, BAND, units=x, **EASY)),
    "within, a mask": (REGION, lambda x: pb.calibrate(TRUTH, BAND, promises=[pb.share(0.5, x)], method="rcps")),
    "within, weights": (CENTRE, lambda x: pb.calibrate(TRUTH, BAND, promises=[pb.share(0.5, x)], method="rcps")),
    "within, a subgroup": (
        np.ones(N, bool), lambda x: pb.calibrate(TRUTH, BAND, promises=[pb.share(0.5, x)], method="rcps"),
    ),
    "groups": (LABELS[0], lambda x: pb.calibrate(TRUTH, BAND, risk_level=0.5, method=pb.Frontier(groups=x))),
    "a loss": (WEIGHTS * 0.1, lambda x: flat_calibrate(TRUTH, BAND, loss=masked_loss(x), **EASY)),
    "a loss among promises": (
        WEIGHTS * 0.1, lambda x: pb.calibrate(TRUTH, BAND, promises=[pb.loss(0.5, masked_loss(x))], method="rcps"),
    ),
    "a loss of counts": (
        WEIGHTS * 0.1,
        lambda x: pb.calibrate(
            TRUTH, BAND, promises=[pb.loss(0.5, lambda missed, size: x[: len(size)], counts=True)], method="rcps"
        ),
    ),
    "losses of a bound": (WEIGHTS * 0.1, lambda x: pb.bounds.betting(x, 0.1)),
    "likelihood ratios": (WEIGHTS, lambda x: pb.recalibrate(TRUTH, BAND, weights=x, max_weight=1.0, **EASY)),
    "judged truth": (OTHER, lambda x: pb.evaluate(x, CAL.apply(BAND))),
    "judged units": (UNITS, lambda x: pb.evaluate(OTHER, CAL.apply(BAND), units=x)),
    "judged groups": (LABELS, lambda x: pb.evaluate(OTHER, CAL.apply(BAND), groups=x)),
    "judged region": (REGION, lambda x: pb.evaluate(OTHER, CAL.apply(BAND), promises=[pb.share(0.5, x)])),
    "watched truth": (OTHER, lambda x: pb.Monitor(CAL).update(x, BAND)),
    "watched region": (REGION, lambda x: pb.Monitor(OF_REGION).update(OTHER, BAND, within={"bright": x})),
    "first of a growing one": (TRUTH, lambda x: pb.AnytimeCalibration(x, BAND, **EASY)),
    "added to a growing one": (OTHER, lambda x: pb.AnytimeCalibration(TRUTH, BAND, **EASY).add(x, BAND)),
    "region of a site": (REGION, begun),
    "samples": (DRAWN, lambda x: pb.calibrated_quantiles(x, 0.1)),
    "mean of samples": (DRAWN, lambda x: pb.mean_and_std(x)),
    "numbers of images": (TRUTH, lambda x: pb.functional_values(x, np.mean)),
    "edges": (TRUTH, lambda x: pb.regions.edges(x, top=0.1)),
    "body": (TRUTH, lambda x: pb.regions.body(x)),
    "label": (LABELS, lambda x: pb.regions.label(x, 1)),
    "truth of a loss": (TRUTH, lambda x: l01(x, INTERVAL)),
    "truth of a picture": (TRUTH, lambda x: pb.plot.misses(x, INTERVAL)),
    "fresh samples": (DRAWN, lambda x: pb.evaluate(OTHER, INTERVAL, samples=x)),
    "samples of a sampler": (DRAWN, lambda x: pb.bands_from(lambda y, m, seed: x[0][:m], TRUTH, samples=19)),
    "observations": (TRUTH, lambda x: pb.bands_from(lambda y, m, seed: np.stack([y] * m), x, samples=19)),
    "problem": (TRUTH, lambda x: denoise(0.1)(x, 0)),
    "dilated": (REGION, lambda x: pb.regions.dilate(x, 1)),
}  # fmt: skip


NOT_LAZY = {  # no Dask array goes there
    "a loss", "a loss among promises", "a loss of counts", "losses of a bound", "samples of a sampler", "problem",
}  # fmt: skip
NAN_LATER = {"contains", "interval", "problem"}  # seen where they are judged
FIRST = {"truth of a picture", "samples of a sampler"}  # only the first image is looked at


@pytest.mark.parametrize("door", DOORS)
def test_a_masked_value_or_nan_is_refused(door):
    """Masked, in a list of images, lazily, and NaN; a mask under which nothing lies passes."""
    values, enter = DOORS[door]
    enter(values)
    enter(np.ma.array(values, mask=False))
    hidden = np.ma.masked_array(values, mask=np.zeros(values.shape, bool))
    hidden.mask[(0,) * values.ndim] = True
    with pytest.raises(TypeError, match="masked"):
        enter(hidden)
    if values.shape[1:] == SHAPE and door != "features":
        with pytest.raises(TypeError, match="masked"):
            enter([np.ma.masked_array(image, mask=image == image.flat[0]) for image in values])
    if door not in NOT_LAZY:
        with pytest.raises((TypeError, ValueError), match="masked"):
            enter(da.from_array(hidden, chunks=2))
    if values.dtype.kind == "f" and door not in NAN_LATER | FIRST:
        with pytest.raises(ValueError, match=r"NaN|nan|finite"):
            enter(np.where(np.arange(values.size).reshape(values.shape) == values.size - 1, np.nan, values))


def test_masks_of_images_of_different_sizes(tmp_path):
    images = [np.zeros((2, 3)), np.ma.masked_array(np.ones((4, 4)), mask=np.eye(4) * np.arange(4) == 3)]
    for enter in (pb.Ragged, lambda x: pb.Band(x, x), lambda x: write_ragged(tmp_path / "x.zarr", {"truth": x})):
        with pytest.raises(TypeError, match=r"\[1\] has 1 masked values"):
            enter(images)


def test_what_a_function_masks_is_not_a_number():
    with pytest.raises(TypeError, match="function gives for image 0 has 1 masked"):
        pb.functional_values(TRUTH, lambda image: np.ma.masked_all(4).mean())


@pytest.mark.parametrize("most", [1e300, np.inf])
def test_weights_whose_sum_leaves_the_numbers_are_refused(most):
    """Half of the weight would be missed, and be counted as nothing."""
    weights = np.where(np.arange(16).reshape(SHAPE) < 2, most, 0.0) * np.ones((N, 1, 1))
    for enter in (DOORS["within, weights"][1], DOORS["judged region"][1]):
        with pytest.raises(ValueError, match=r"above 1e\+100|infinite"):
            enter(weights)


def test_a_loss_that_is_watched_is_checked_as_at_calibration():
    cal = flat_calibrate(TRUTH, BAND, loss=lambda truth, interval: l01(truth, interval), **EASY)
    for wrong in (np.nan, -0.5, 1.5):
        with pytest.raises(ValueError, match="losses must lie"):
            pb.Monitor(cal, loss=lambda truth, interval, x=wrong: np.full(len(truth), x)).update(OTHER, BAND)
