"""Numbers of images: the same whatever holds the samples, calibrated like any image, in a sentence about values."""

import dask.array as da
import numpy as np
import pytest
import zarr
from trials import generator

import pixelbounds as pb


def measured(image, mask):
    return image[mask].mean(), image.sum()


def world(n, rng, m=9, pixels=(5, 4)):
    """Truth, samples whose errors do not average away, and masks."""
    truth = rng.uniform(size=(n, *pixels))
    samples = truth[:, None] + rng.normal(0, 0.1, (n, m, 1, 1)) + rng.normal(0, 0.1, (n, 1, 1, 1))
    return truth, samples, rng.random(truth.shape) < 0.6


def test_a_band_of_numbers_is_that_of_the_function_of_every_sample(tmp_path):
    truth, samples, masks = world(6, generator("functional", seed=0))
    values = np.array([[measured(x, mask) for x in some] for some, mask in zip(samples, masks, strict=True)])
    wanted = pb.calibrated_quantiles(values, 0.2)
    store = zarr.create_array(tmp_path / "samples.zarr", data=samples, chunks=(2, *samples.shape[1:]))
    held = {
        1: [samples, store, da.from_array(samples, chunks=(2, 3, 5, 4))],
        0: [samples.swapaxes(0, 1)],
        2: [np.moveaxis(samples, 1, 2)],
        -1: [np.moveaxis(samples, 1, -1)],
    }
    for axis, arrays in held.items():
        for x in arrays:
            band = pb.functional_band(x, measured, 0.2, axis=axis, known=[masks])
            assert np.array_equal(band.lower, wanted.lower)
            assert np.array_equal(band.upper, wanted.upper)
    assert str(band.source) == "measured, calibrated quantiles, samples 9, miscoverage 1/5"
    assert pb.functional_band(samples, lambda x: x.max(), 0.2).source.kind == "values, calibrated quantiles"
    found = pb.functional_values(truth, measured, known=[masks])
    assert np.array_equal(found, [measured(x, mask) for x, mask in zip(truth, masks, strict=True)])
    torch = pytest.importorskip("torch")
    band = pb.functional_band(torch.from_numpy(samples), lambda x: x.amax(), 0.2)  # the function gets tensors
    assert np.array_equal(band.upper, pb.functional_band(samples, np.max, 0.2).upper)


def test_the_sentence_says_where_the_function_has_no_name():
    """A calibration of one nameless function would take the band of another."""
    rng = generator("functional", seed=3)
    truth = rng.uniform(size=(40, 4, 4))
    samples = truth[:, None] + rng.normal(0, 0.1, (40, 9, 4, 4))
    how = {"risk_level": 0.4, "limits": None}
    for function, name, known in (
        (np.mean, None, True),
        (lambda x: x.mean(), None, False),
        (lambda x: 0, "zero", True),
    ):
        band = pb.functional_band(samples, function, 0.2, name=name)
        cal = pb.calibrate(pb.functional_values(truth, function), band, **how)
        assert ("which function is not known" in cal.guarantee) != known
    other = pb.functional_band(samples, np.max, 0.2)
    with pytest.raises(
        ValueError, match="kind: zero, calibrated quantiles at calibration, max, calibrated quantiles here"
    ):
        cal.apply(other)


def test_what_is_no_number_is_refused():
    _, samples, masks = world(3, generator("functional", seed=2))
    with pytest.raises(ValueError, match="image 1"):
        pb.functional_values(np.zeros((2, 3)), lambda x, fine: x.mean() if fine else np.nan, known=[[True, False]])
    for function, words in ((lambda x: x, "must give a number"), (lambda x: "much", "must give a number")):
        with pytest.raises(TypeError, match=words):
            pb.functional_band(samples, function, 0.2)
    with pytest.raises(ValueError, match="as many for every image"):
        pb.functional_values(np.zeros((2, 3)), lambda x, k: np.zeros(k), known=[[1, 2]])
    with pytest.raises(ValueError, match=r"known\[0\] holds 3 images, but there are 2"):
        pb.functional_values(np.zeros((2, 3)), lambda x, mask: 0.0, known=[masks])
    with pytest.raises(pb.NoGuarantee, match="draw at least 39"):
        pb.functional_band(samples, np.mean, 0.05)


def test_numbers_are_promised_jointly_and_the_sentence_speaks_of_values():
    truth, samples, masks = world(150, generator("functional", seed=3))
    band = pb.functional_band(samples, measured, 0.2, known=[masks])
    value = pb.functional_values(truth, measured, known=[masks])
    first = np.broadcast_to(np.arange(2) == 0, (100, 2))
    promises = [pb.share(0.2, within=first, name="mean"), pb.tail(0.3, above=0)]
    cal = pb.calibrate(value[:100], band[:100], promises=promises, limits=None, method=pb.Frontier(groups=np.arange(2)))
    assert 'at most 20% of the values of "mean" of a future image' in cal.guarantee
    assert "at most 30% of future images miss any of their values;" in cal.guarantee
    assert "pixel" not in cal.guarantee
    missed = ~cal.apply(band[100:]).contains(value[100:])
    assert missed.any(axis=1).mean() < 0.4
    one = pb.calibrate(value[:100, :1], band[:100].map(lambda x: x[:, :1]), risk_level=0.2, method="rcps", limits=None)
    assert "on average at most 20% of future images have their value outside its interval, provided" in one.guarantee
    ev = pb.evaluate(value[100:, :1], one.apply(band[100:].map(lambda x: x[:, :1])), calibration=one)
    assert "values outside" in str(ev)
    units = pb.Units(np.arange(150) // 3, name="patient")
    one = band.map(lambda x: x[:, :1])
    patients = pb.calibrate(value[:, :1], one, risk_level=0.3, limits=None, method="rcps", units=units)
    assert "at most 30% of the images of a future patient have their value outside its interval" in patients.guarantee


def test_few_values_are_not_cut_into_groups_that_cost_more_than_they_save():
    """Learned groups of so few are much longer than one group; the default must not be."""
    lengths = {"default": [], "one group": [], "learned": []}
    ways = {"default": {}, "one group": {"method": "rcps"}, "learned": {"method": pb.Frontier(groups="learned")}}
    for count, values in ((110, 1), (300, 1), (110, 4), (240, 16)):
        rng = generator("few values", seed=count + values)
        middle = rng.uniform(size=(count + 200, values))
        width = 0.05 * np.exp(0.6 * rng.standard_normal(middle.shape))
        truth = middle + width * rng.standard_normal(middle.shape)
        band = pb.Band(middle - 0.8 * width, middle + 0.8 * width)
        for name, how in ways.items():
            cal = pb.calibrate(truth[:count], band[:count], risk_level=0.1, limits=None, **how)
            lengths[name].append(float(cal.apply(band[count:]).length.mean()))
    assert np.all(np.array(lengths["default"]) <= 1.05 * np.array(lengths["one group"]))
    assert np.mean(lengths["learned"]) > 1.15 * np.mean(lengths["default"])
