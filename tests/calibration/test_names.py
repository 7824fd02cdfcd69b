"""One name, one thing: promises that are called alike are about the same, at every door."""

from functools import partial

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.calibration.calibration_file import calibration_from_bytes

N = 60


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.2, 0.8, (N, 6, 6))
    truth = np.clip(centre + 0.05 * rng.standard_normal(centre.shape), 0, 1)
    return truth, pb.Band(centre - 0.06, centre + 0.06), centre > 0.5, centre < 0.4


calibrate = partial(pb.calibrate, failure_prob=0.2, method="rcps")
ragged = [np.ones((k, 2), bool) for k in (2, 3)]


def share_of_missed(missed, size):
    return missed / size


PAIRS = {
    "regions": (lambda a, b: [pb.share(0.3, a, name="heart"), pb.share(0.3, b, name="heart")], "different regions"),
    "as heard": (lambda a, b: [pb.share(0.3, a, name="Left lung"), pb.share(0.3, b, name="left  lung")], "called"),
    "a region and everything": (
        lambda a, b: [pb.share(0.3, a, name="x"), pb.tail(0.3, 0.5, name="x")],
        "region and al",
    ),
    "a region and a subgroup": (
        lambda a, b: [pb.share(0.3, a, name="x"), pb.share(0.3, np.arange(N) < 50, name="x")],
        "region and subgroup",
    ),
    "subgroups": (lambda a, b: [pb.share(0.3, np.arange(N) < k, name="women") for k in (50, 51)], "see image 50"),
    "weights and a mask": (lambda a, b: [pb.share(0.3, a, name="x"), pb.share(0.3, a * 0.5, name="x")], "weights"),
    "a name like ours": (lambda a, b: [pb.share(0.3, a, name="region 2"), pb.share(0.3, b)], "'region 2'"),
    "two losses": (
        lambda a, b: [pb.loss(0.3, lambda m, s: m / s, counts=True), pb.loss(0.3, lambda m, s: m > s / 2, counts=True)],
        "'your loss', but are different losses",
    ),
    "a region and a loss elsewhere": (
        lambda a, b: [pb.share(0.3, a, name="x"), pb.loss(0.3, share_of_missed, b, name="x", counts=True)],
        "different regions",
    ),
    "everything's name": (lambda a, b: [pb.share(0.3, a, name="All pixels")], "name of everything"),
}


@pytest.mark.parametrize("case", PAIRS)
def test_one_name_for_two_things_is_refused_wherever_promises_are_given(world, case):
    truth, band, one, other = world
    promises, why = PAIRS[case]
    promises = promises(one, other)
    interval = pb.Interval(band.lower, band.upper)
    doors = (
        lambda: calibrate(truth, band, promises=promises),
        lambda: pb.evaluate(truth, interval, promises=promises),
        lambda: pb.AnytimeCalibration(truth, band, promises=promises, failure_prob=0.2),
    )
    for door in doors:
        with pytest.raises(ValueError, match=r"give (each a name of its own|another)") as told:
            door()
        assert why in str(told.value)


def test_promises_about_one_region_share_its_name(world):
    truth, band, one, other = world
    asked = [
        pb.share(0.3, one, name="heart"),
        pb.tail(0.3, 0.5, one.copy(), name="Heart"),  # the same region, made twice
        pb.share(0.3, other, name="rim"),
        pb.share(0.3, one, name="again"),
        pb.loss(0.3, share_of_missed, one, name="heart", counts=True),
    ]
    made = calibrate(truth, band, promises=asked)
    heart, tail, rim, again, loss = made.promises
    assert heart.risk == again.risk == loss.risk != rim.risk
    assert tail.certifying == heart.certifying
    assert calibration_from_bytes(made.to_bytes()).guarantee == made.guarantee


def test_regions_of_many_sizes_are_compared(world):
    truth = [np.full(x.shape, 0.5) for x in ragged] * 20
    band = pb.Band([x - 0.1 for x in truth], [x + 0.1 for x in truth])
    one, other = ragged * 20, [*ragged * 19, ragged[0], ~ragged[1]]
    calibrate(truth, band, promises=[pb.share(0.3, one, name="x"), pb.tail(0.3, 0.5, list(one), name="x")])
    with pytest.raises(ValueError, match="see image 39"):
        calibrate(truth, band, promises=[pb.share(0.3, one, name="x"), pb.share(0.3, other, name="x")])
