"""Evaluations add up, do not depend on how images are cut, and their intervals hold what they say."""

import json
import pickle

import dask.array as da
import numpy as np
import pytest
import zarr

import pixelbounds as pb
from pixelbounds.evaluation import held_out
from pixelbounds.evaluation import strata as passes
from pixelbounds.evaluation.evaluation import Evaluation
from pixelbounds.evaluation.held_out import evaluate
from pixelbounds.images.regions import edge_strength


def example(rng, n=24, pixels=(12, 10), dtype=np.float32):
    """Everything evaluate takes: truth, interval, samples, labels of both ends, units."""
    shape = (n, *pixels)
    truth = rng.uniform(size=shape).astype(dtype)
    centre = truth + rng.normal(0, 0.1, shape)
    half = rng.uniform(0.02, 0.3, shape)
    interval = pb.Interval((centre - half).astype(dtype), (centre + half).astype(dtype))
    samples = (centre[:, None] + rng.normal(0, 0.15, (n, 6, *pixels))).astype(dtype)
    return truth, interval, {"samples": samples, "groups": rng.integers(-1, 3, (2, *shape)), "units": np.arange(n) // 5}


def text(ev):
    return json.dumps(ev.to_dict(), allow_nan=False)


# ---------------------------------------------------------------- closed forms


def test_two_images_by_hand():
    truth = np.array([[0.1, 0.5, 0.9, 0.5], [0.5, 0.5, 0.5, 0.5]])
    lower, upper = np.full((2, 4), 0.25), np.array([[0.75] * 4, [0.375] * 4])
    lower[1, 0], upper[1, 0] = 0.5, 0.5  # a point that holds the truth
    ev = evaluate(truth, pb.Interval(lower, upper), groups=np.array([7, 7, -3, -3]))
    assert ev.by_image.tolist() == [0.5, 0.75]
    assert ev.risk == 0.625
    assert isinstance(ev.risk, float)
    assert isinstance(ev.mean_length, float)
    assert ev.length_by_image.tolist() == [0.5, 0.09375]
    assert ev.mean_length == 0.296875
    assert ev.median_length == 0.125  # the 4th of 8: 0, 3 of 1/8, 4 of 1/2
    assert ev.by_group.label.tolist() == [-3, 7]
    assert ev.by_group.share.tolist() == [0.5, 0.5]
    assert ev.by_group.risk.tolist() == [0.75, 0.5]
    assert ev.by_group.mean_length.tolist() == [0.3125, 0.28125]
    assert ev.worst().tolist() == [1, 0]
    assert ev.worst(1).tolist() == [1]
    assert len(ev.by_edge) == 1  # four values are channels: no edges between them


def test_losses_are_those_of_l01_and_the_median_is_exact(rng):
    truth, interval, _ = example(rng, n=7)
    ev = evaluate(truth, interval)
    assert np.array_equal(ev.by_image, pb.losses.l01(truth, interval))
    assert ev.median_length == np.quantile(interval.length, 0.5, method="inverted_cdf")
    assert ev.mean_length == pytest.approx(interval.length.mean(dtype=np.float64), rel=1e-6)


def test_every_unit_weighs_the_same():
    truth = np.zeros((4, 5))
    upper = np.ones((4, 5))
    lower = np.array([[0.5] * 5, [0.0] * 5, [0.0] * 5, [0.0] * 5])  # image 0 is missed
    ev = evaluate(truth, pb.Interval(lower, upper), units=["b", "a", "a", "a"])
    assert ev.units.tolist() == ["b", "a"]
    assert ev.by_unit.tolist() == [1.0, 0.0]
    assert ev.unit_of.tolist() == [0, 1, 1, 1]
    assert (ev.risk, ev.mean_length) == (0.5, 0.75)
    assert (ev.image_risk, ev.max_images, ev.image_risk_interval) == (0.25, 0, (0.0, 1.0))
    plain = evaluate(truth, pb.Interval(lower, upper))
    assert (plain.risk, plain.image_risk, plain.unit_name) == (0.25, 0.25, None)
    assert plain.risk_interval == plain.image_risk_interval
    assert ev.size_stratified.risk.tolist() == [1.0, 0.0]
    assert ev.size_stratified.share.tolist() == [0.5, 0.5]


# ---------------------------------------------------------------- strata


@pytest.mark.parametrize("units", [None, np.arange(24) % 7])
def test_strata_add_up_to_the_whole(rng, units):
    truth, interval, more = example(rng)
    ev = evaluate(truth, interval, groups=more["groups"][0], units=units)
    for strata in (ev.size_stratified, ev.by_edge, ev.by_group):
        assert strata.share.sum() == pytest.approx(1)
        assert strata.share @ strata.pooled == pytest.approx(ev.risk)
        assert strata.share @ strata.mean_length == pytest.approx(ev.mean_length)
        assert (strata.low <= strata.risk).all()
        assert (strata.risk <= strata.high).all()
        assert (strata.units == len(ev.units)).all()
    sizes = ev.size_stratified
    assert np.allclose(sizes.share, 0.2, atol=0.03)
    assert (np.diff(sizes.edges) > 0).all()
    assert sizes.edges[0] <= interval.length.min() <= interval.length.max() <= sizes.edges[-1]
    assert ((sizes.edges[:-1] <= sizes.mean_length) & (sizes.mean_length <= sizes.edges[1:])).all()


def test_risk_of_a_length_stratum_is_that_of_its_pixels(rng):
    truth, interval, _ = example(rng)
    sizes = evaluate(truth, interval).size_stratified
    missed, length = ~interval.contains(truth), interval.length
    for i in range(len(sizes)):
        here = (length >= sizes.edges[i]) & (length < sizes.edges[i + 1])
        assert sizes.share[i] == pytest.approx(here.mean())
        assert sizes.pooled[i] == pytest.approx(missed[here].mean())
        own = [m[h].mean() for m, h in zip(missed, here, strict=True) if h.any()]
        assert sizes.risk[i] == pytest.approx(np.mean(own))
        assert sizes.units[i] == len(own)


def test_colours_have_no_edges_between_them():
    image = np.broadcast_to(np.array([0.0, 0.5, 1.0])[:, None, None], (2, 3, 8, 8))
    assert not edge_strength(image).any()
    ramp = np.broadcast_to(np.arange(8.0) * 3, (2, 3, 8, 8))
    assert (edge_strength(ramp) == 3).all()
    assert np.allclose(edge_strength(ramp + 4 * np.arange(8.0)[:, None]), 5)


# ---------------------------------------------------------------- how images are cut and stored


@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_chunked_equals_whole_bit_for_bit(rng, monkeypatch, rows):
    truth, interval, more = example(rng)
    whole = text(evaluate(truth, interval, **more))
    monkeypatch.setattr(held_out, "block_of", lambda size, n: rows)
    monkeypatch.setattr(passes, "_ENTRIES", 300 * rows)
    assert text(evaluate(truth, interval, **more)) == whole


def test_all_libraries_agree_bit_for_bit(rng, tmp_path):
    torch = pytest.importorskip("torch")
    truth, interval, more = example(rng)
    whole = text(evaluate(truth, interval, **more))

    def in_zarr(x):
        name = str(tmp_path / str(len(list(tmp_path.iterdir()))))
        store = zarr.create_array(name, shape=x.shape, chunks=tuple(-(-size // 2) for size in x.shape), dtype=x.dtype)
        store[...] = x
        return store

    for kind in (torch.from_numpy, in_zarr, lambda x: da.from_array(x, chunks=7)):
        parts = {name: more[name] if name == "units" else kind(more[name]) for name in more}
        assert text(evaluate(kind(truth), pb.Interval(kind(interval.lower), kind(interval.upper)), **parts)) == whole


@pytest.mark.parametrize("pixels", [(), (7,), (3, 6, 6), (5, 6, 7)])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_any_pixel_shape_and_dtype(rng, pixels, dtype):
    truth, interval, more = example(rng, n=6, pixels=pixels, dtype=dtype)
    before = truth.copy()
    ev = evaluate(truth, interval, **more)
    assert ev.risk == pytest.approx(evaluate(truth, interval, samples=more["samples"], units=more["units"]).risk)
    assert ev.pixels == pixels
    assert np.array_equal(truth, before)


# ---------------------------------------------------------------- intervals


def test_no_miss_is_not_taken_for_no_risk():
    truth = np.full((15, 4, 4), 0.5)
    ev = evaluate(truth, pb.Interval(truth - 0.1, truth + 0.1))
    assert ev.risk_interval[0] == 0
    assert 0.18 < ev.risk_interval[1] < 0.25  # of losses that are 0 or 1, 1 - 0.025 ** (1 / 15) is the least
    assert "[0.00%, 0.00%]" not in str(ev)


def test_mean_length_has_an_interval_where_lengths_have_a_limit(rng):
    truth, interval, _ = example(rng)
    bare = evaluate(truth, interval)
    assert np.isnan(bare.mean_length_interval).all()
    assert bare.to_dict()["mean_length_interval"] == [None, None]
    low, high = evaluate(truth, interval, limits=(-1, 3)).mean_length_interval
    assert 0 < low < bare.mean_length < high < 4
    with pytest.raises(ValueError, match=r"limits are 0\.1 apart"):
        evaluate(truth, interval, limits=(0.4, 0.5))


def test_the_same_seed_gives_the_same_bits_and_a_higher_level_wider_intervals(rng):
    truth, interval, more = example(rng)
    del more["units"]
    first, again, other = (evaluate(truth, interval, **more, seed=seed) for seed in (1, 1, 2))
    assert text(first) == text(again)
    assert first.risk_interval != other.risk_interval
    assert text(first) == text(evaluate(truth, interval, **more, seed=np.random.default_rng(1)))
    wide = evaluate(truth, interval, **more, seed=1, confidence_level=0.99)
    assert wide.risk_interval[0] < first.risk_interval[0] < first.risk < first.risk_interval[1] < wide.risk_interval[1]


# ---------------------------------------------------------------- samples


def test_fresh_samples_fall_inside_calibrated_quantiles_as_often_as_promised(rng):
    mean = rng.normal(size=(200, 1, 8, 8))
    draws = mean + rng.normal(size=(200, 29, 8, 8))
    band = pb.calibrated_quantiles(draws[:, :19], 0.1)
    ev = evaluate(mean[:, 0], pb.Interval(band.lower, band.upper), samples=draws[:, 19:])
    sampled = ev.coverage
    assert sampled.share == pytest.approx(0.9, abs=0.005)  # exactly 18 / 20 in expectation
    assert sampled.interval[0] < 0.9 < sampled.interval[1]
    assert sampled.samples == 10
    assert sampled.inside.sum() == pytest.approx(1)
    assert sampled.inside @ np.arange(11) / 10 == pytest.approx(sampled.share)


def test_pixels_that_hold_few_samples_are_counted():
    samples = np.zeros((1, 4, 3))
    samples[0, :, 0], samples[0, :3, 1] = 9, 9  # none, one and all of the four samples are inside
    ev = evaluate(np.zeros((1, 3)), pb.Interval(-np.ones((1, 3)), np.ones((1, 3))), samples=samples)
    assert np.allclose(ev.coverage.inside, [1 / 3, 1 / 3, 0, 0, 1 / 3])
    assert ev.coverage.below_half == pytest.approx(2 / 3)
    assert "66.67% of the pixels hold fewer than half of 4" in str(ev)


# ---------------------------------------------------------------- what a person and a machine read


def test_text_and_json(rng):
    truth, interval, more = example(rng)
    ev = evaluate(truth, interval, **more)
    shown = str(ev)
    assert len(shown.splitlines()) < 24
    assert max(map(len, shown.splitlines())) <= 100
    for words in ("24 images", "5 units", "pixels outside", "mean length", "worst images", "samples inside", "group"):
        assert words in shown
    back = json.loads(text(ev))
    assert back["risk"] == ev.risk
    assert back["by_group"]["label"] == [-1, 0, 1, 2]
    assert back["size_stratified"]["edges"] == ev.size_stratified.edges.tolist()
    assert str(ev.by_edge) == ev.by_edge.table()
    assert text(pickle.loads(pickle.dumps(ev))) == text(ev)
    assert isinstance(ev, Evaluation)


# ---------------------------------------------------------------- bad input


def spoiled(x, value, image=2):
    x = x.copy()
    x[image, 0, 0] = value
    return x


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda a: a | {"truth": a["truth"][:-1]}, "they must agree"),
        (lambda a: a | {"truth": spoiled(a["truth"], np.nan)}, "truth of image 2 has 1 values that are NaN"),
        (lambda a: a | {"lower": spoiled(a["lower"], -np.inf)}, "interval.lower of image 2"),
        (lambda a: a | {"lower": spoiled(a["lower"], 9.0)}, "interval of image 2 has lower above upper at 1 pixels"),
        (
            lambda a: a | {"lower": spoiled(a["lower"] + 0.0, -1.5e308), "upper": spoiled(a["upper"], 1.5e308)},
            "rescale",
        ),
        (lambda a: a | {"groups": np.zeros((3, 3), int)}, "groups have shape"),
        (lambda a: a | {"groups": np.zeros((12, 10))}, "whole numbers"),
        (lambda a: a | {"groups": np.arange(24 * 120).reshape(24, 12, 10)}, "2880 different labels"),
        (lambda a: a | {"samples": a["truth"]}, "samples have shape"),
        (lambda a: a | {"samples": np.zeros((24, 5, 12, 10)), "sample_axis": 9}, "sample_axis=9"),
        (lambda a: a | {"samples": np.full((24, 5, 12, 10), np.nan)}, "samples of image 0"),
        (lambda a: a | {"limits": (1, 0)}, "limits"),
    ],
)
def test_bad_input_is_named(rng, change, words):
    truth, interval, _ = example(rng, dtype=np.float64)
    given = change({"truth": truth, "lower": interval.lower, "upper": interval.upper})
    with pytest.raises((ValueError, TypeError), match=words):
        evaluate(given.pop("truth"), pb.Interval(given.pop("lower"), given.pop("upper")), **given)


def test_a_unit_with_few_pixels_of_a_stratum_says_nothing_of_it():
    """One image has one bad pixel of group 1, the others a hundred good ones: the share missed is not 1 in 20."""
    groups = np.ones((20, 10, 10), int)
    groups[0] = 0
    groups[0, 0, 0] = 1
    truth = np.full(groups.shape, 0.4)
    truth[0, 0, 0] = 0.9
    by_group = evaluate(truth, pb.Interval(truth * 0 + 0.3, truth * 0 + 0.5), groups=groups).by_group
    assert (by_group.risk[1], by_group.units[1]) == (0, 19)
    assert by_group.pooled[1] == pytest.approx(1 / 1901)
    assert "0.05%" in str(by_group)
