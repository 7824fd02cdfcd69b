"""One rule of dtypes, shapes and channels at every door; each refusal says what to give instead."""

import numpy as np
import pytest
from PIL import Image
from refusals import refuses

import pixelbounds as pb
from pixelbounds.images.library import channel_axis, channels_first
from pixelbounds.report import Example

N = 60


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.2, 0.8, (N, 8, 8))
    truth = np.clip(centre + 0.05 * rng.standard_normal(centre.shape), 0, 1)
    return truth, pb.Band(centre - 0.06, centre + 0.06)


def in_colour(x, channels=3):
    return np.repeat(x[..., None], channels, axis=-1)


def test_8_bit_truth_is_one_thing_as_an_array_and_as_a_list(world):
    truth, band = world
    eight = (255 * truth).round().astype(np.uint8)
    made = [pb.calibrate(x, band, risk_level=0.2).to_bytes() for x in (eight, list(eight), (eight / 255).astype("f4"))]
    assert made[0] == made[1] == made[2]
    interval = pb.calibrate(eight, band, risk_level=0.2).apply(band)
    assert pb.evaluate(eight, interval).risk == pb.evaluate(list(eight), interval).risk


def test_pictures_of_pillow_are_8_bit_images(world):
    truth, band = world
    pictures = [Image.fromarray((255 * x).round().astype(np.uint8)) for x in truth]
    cal = pb.calibrate(pictures, band, risk_level=0.2)
    assert cal.to_bytes() == pb.calibrate((255 * truth).round().astype(np.uint8), band, risk_level=0.2).to_bytes()
    assert pb.evaluate(pictures, cal.apply(band)).risk < 0.2


def test_truth_on_another_scale_is_no_broken_promise(world):
    truth, band = world
    cal = pb.calibrate(truth, band, risk_level=0.2)
    interval, wide = cal.apply(band), pb.Interval(255 * band.lower, 255 * band.upper)
    new = 1 - truth  # other images, on which the promise may be broken, but which are on the scale
    refuses(lambda: pb.evaluate(255 * new, interval, calibration=cal), "truth of image 0", "one scale", "limits")
    refuses(lambda: pb.evaluate(255 * new, interval), "truth of image 0", "one scale")
    refuses(lambda: pb.evaluate(255 * new, interval, limits=(0, 1)), "truth of image 0", "far outside")
    refuses(lambda: pb.evaluate((255 * new).astype(np.uint8), wide), "interval of image 0", "limits=")
    assert pb.evaluate((255 * new).astype(np.uint8), wide, limits=(0, 255)).risk > 0.2
    assert pb.evaluate(new, interval, calibration=cal).risk > 0.2


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int64])
def test_whole_numbers_without_a_scale_are_asked_for_limits(world, dtype):
    truth, band = world
    for call in (
        lambda: pb.calibrate((1000 * truth).astype(dtype), band, risk_level=0.2),
        lambda: pb.evaluate((1000 * truth).astype(dtype), pb.Interval(band.lower, band.upper)),
        lambda: pb.Band(*2 * [(1000 * truth).astype(dtype)]),
    ):
        with pytest.raises(TypeError, match=r"astype\('float32'\), and limits=\(least, most\)") as said:
            call()
        assert "255" not in str(said.value)


def test_another_grid_is_another_kind_of_image(world):
    truth, band = world
    cal = pb.calibrate(truth, band, risk_level=0.2, method="rcps")
    refuses(lambda: cal.apply(band.map(lambda x: x[:, :4, :4])), "(4, 4)", "(8, 8)", "lists of images")
    refuses(lambda: cal.apply(band.map(lambda x: [x[0], x[1, :4]])), "(4, 8)", "(8, 8)")
    refuses(lambda: cal.apply(band.map(lambda x: x[0])), "band[None]")
    refuses(lambda: pb.evaluate(truth[0], cal.apply(band[:1])), "truth[None]")
    part = pb.Interval(band.lower[:, :4], band.upper[:, :4])
    refuses(lambda: pb.evaluate(truth[:, :4], part, calibration=cal), "an image of this interval has shape (4, 8)")


def test_a_calibration_of_many_sizes_takes_others_with_as_many_channels(world):
    truth, band = world

    def cut(x, k=3):
        return [in_colour(image, k)[: 5 + i % 3] for i, image in enumerate(x)]

    cal = pb.calibrate(cut(truth), pb.Band(cut(band.lower), cut(band.upper)), risk_level=0.2, method="rcps")
    assert len(cal.apply(pb.Band(in_colour(band.lower), in_colour(band.upper)))) == N
    refuses(lambda: cal.apply(pb.Band(cut(band.lower, 4), cut(band.upper, 4))), "(None, None, 3)")
    refuses(lambda: cal.apply(band), "another number of axes")


def test_a_mask_of_0_and_255_is_a_mask(world):
    truth, band = world
    mask = truth > 0.5
    made = [
        pb.calibrate(truth, band, promises=[pb.share(0.3, within=x, name="bright")]).to_bytes()
        for x in (mask, mask.astype(np.uint8), (255 * mask).astype(np.uint8))
    ]
    assert made[0] == made[1] == made[2]
    np.testing.assert_array_equal(pb.regions.dilate((255 * mask).astype(np.uint8), 1), pb.regions.dilate(mask, 1))


def test_swapped_arguments_say_the_order(world):
    truth, band = world
    refuses(lambda: pb.calibrate(band, truth, risk_level=0.1), "the truth comes first", error=TypeError)
    refuses(lambda: pb.evaluate(pb.Interval(band.lower, band.upper), truth), "the truth first", error=TypeError)
    refuses(lambda: pb.evaluate(band, pb.Interval(band.lower, band.upper)), "the truth first", error=TypeError)


@pytest.mark.parametrize(
    "pixels, axis", [((8, 8, 3), 2), ((3, 8, 8), 0), ((8, 8), None), ((4, 4, 3), 2), ((9, 8, 7), None)]
)
def test_channels_are_found_in_one_way(pixels, axis):
    assert channel_axis(pixels) == axis
    shown = channels_first(np.zeros(pixels))
    assert shown.shape == ((3, *pixels[:2]) if axis == 2 else pixels)


def test_channels_last_are_drawn_as_colour(world):
    truth, band = world
    interval = pb.Interval(in_colour(band.lower), in_colour(band.upper))
    axes = pb.plot.intervals(interval, truth=in_colour(truth))
    assert axes[0].images[0].get_array().shape == (8, 8, 3)
    example = Example(
        "x", interval.lower[0], interval.upper[0], truth=in_colour(truth)[0], regions={"r": in_colour(truth)[0] > 0.5}
    )
    assert example.pixels == (3, 8, 8)
    assert example.regions["r"].shape == (3, 8, 8)
