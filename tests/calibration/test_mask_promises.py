"""Segmentations and trust masks: what they are, and that what they promise holds in simulated worlds."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from trials import WORLDS, check_failures, generator

import pixelbounds as pb
from pixelbounds.calibration import masks as masks_module
from pixelbounds.calibration import trust as trust_module

DELTA = 0.1
NAMES = ("large", "rare")


def organs(rng, n, pixels=40):
    """True masks (n, 2, pixels) and probabilities: an organ of some pixels, and one of one pixel that few images have.

    Images differ in how good the network is, so that losses within an image depend on each other.
    """
    logit = np.stack([np.linspace(-4, 4, pixels), np.full(pixels, -6.0)]) + np.zeros((n, 1, 1))
    logit[rng.random(n) < 0.3, 1, pixels // 2] = 1.0
    logit += rng.normal(0, 0.5, logit.shape)
    shift = rng.normal(0, 1.5, (n, 2, 1))
    truth = rng.random(logit.shape) < 1 / (1 + np.exp(-(logit + shift)))
    truth[:, 1] &= logit[:, 1] > -2
    return truth.astype(np.float32), (1 / (1 + np.exp(-logit))).astype(np.float32)


def shares(truth, interval):
    """Mean missed share of each organ over images that have it, and false share of each background."""
    rows = []
    for region, wrong in ((truth > 0, ~interval.outer), (truth == 0, interval.inner)):
        sizes = region.sum(axis=2)
        share = (region & wrong).sum(axis=2) / np.maximum(sizes, 1)
        rows += [share[sizes[:, c] > 0, c].mean() for c in range(2)]
    return np.array(rows)


def test_an_inner_mask_lies_within_the_outer_one_and_both_about_the_prediction():
    truth, p = organs(np.random.default_rng(0), 200)
    promises = pb.segmentation_promises(truth, missed=0.15, false=0.1, names=NAMES)
    cal = pb.calibrate(truth, pb.segmentation_band(p), promises=promises)
    interval = cal.apply(pb.segmentation_band(p))
    assert (interval.inner <= (p >= 0.5)).all()
    assert ((p >= 0.5) <= interval.outer).all()
    assert (shares(truth, interval) <= [0.15, 0.15, 0.1, 0.1]).all()
    inner, outer = pb.volumes(interval, voxel=0.5)
    assert (inner <= outer).all()
    assert outer.max() <= 40
    with pytest.raises(ValueError, match="made in another way"):
        cal.apply(pb.margin_band(p >= 0.5))


def test_a_mask_is_bool_or_zeros_and_ones_but_no_picture_of_8_bits():
    truth, p = organs(np.random.default_rng(1), 80)
    ways = [pb.calibrate(x, pb.segmentation_band(p), risk_level=0.2) for x in (truth, truth > 0)]
    assert ways[0].to_bytes() == ways[1].to_bytes()
    with pytest.raises(ValueError, match="no value but 0 and 1"):
        pb.calibrate(truth.astype(np.uint8), pb.segmentation_band(p), risk_level=0.2)
    with pytest.raises(ValueError, match="logits=True"):
        pb.segmentation_band(4 * p)
    logits = np.log(p) - np.log1p(-p)
    assert np.allclose(pb.segmentation_band(logits, logits=True).width, pb.segmentation_band(p).width, atol=1e-6)


def test_a_margin_dilates_and_erodes():
    disc = np.hypot(*(np.mgrid[:41, :41] - 20)) <= 12
    band = pb.margin_band(np.stack([disc, np.zeros_like(disc), np.ones_like(disc)]), spacing=(1, 1))
    reach = 2 * np.hypot(41, 41)
    lower, upper = pb.families.additive.widen(band, 0.5 + 3.4 / reach)
    outer, inner = upper[0] >= 1, lower[0] > 0
    radius = np.hypot(*(np.mgrid[:41, :41] - 20))
    assert outer[radius <= 14.5].all()
    assert not outer[radius > 16.5].any()
    assert inner[radius <= 7.5].all()
    assert not inner[radius > 10.5].any()
    assert not (upper[1] >= 1).any()
    assert (lower[2] > 0).all()


def test_a_volume_lies_between_those_of_the_masks():
    truth, p = organs(np.random.default_rng(2), 400)
    truth, p = truth[:, 0], p[:, 0]
    cal = pb.calibrate(
        truth[:200], pb.segmentation_band(p[:200]), promises=[pb.loss(0.2, pb.volume_outside, name="volume")]
    )
    assert pb.volume_outside(truth[200:], cal.apply(pb.segmentation_band(p[200:]))).mean() < 0.25


def mean(losses, failure_prob):
    """In the place of a bound."""
    return float(losses.mean())


def one_path(truth, band, bound, seed):
    promises = pb.segmentation_promises(truth, missed=0.25, false=0.1, names=NAMES)
    return pb.calibrate(truth, band, promises=promises, failure_prob=DELTA, bound=bound, seed=seed, method="rcps")


def thresholds(truth, band, bound, seed):
    asked = {"missed": 0.25, "false": 0.1, "names": NAMES, "failure_prob": DELTA, "bound": bound, "seed": seed}
    return pb.calibrate_masks(truth, band, **asked)


WAYS = {
    "one path": (one_path, pb.segmentation_band),
    "thresholds": (thresholds, pb.segmentation_band),
    "margins": (thresholds, lambda p: pb.margin_band(p >= 0.5, spacing=(1,))),
}


@pytest.mark.guarantees
@pytest.mark.filterwarnings("ignore:.*have the truth of another")
@pytest.mark.parametrize("way", WAYS)
def test_missed_and_false_pixels_of_rare_organs_are_bounded_jointly(way, record_property):
    """Four promises hold together, whichever way thresholds, or margins, are found."""
    calibrate, band_of = WAYS[way]
    worlds, failures = max(30, WORLDS // 5), {"betting": 0, mean: 0}
    new, p_new = organs(np.random.default_rng(3), 4_000)
    band_new = band_of(p_new)
    for seed in range(worlds):
        truth, p = organs(generator("organs", seed=seed), 150)
        for bound in failures:
            interval = calibrate(truth, band_of(p), bound, seed).apply(band_new)
            failures[bound] += (shares(new, interval) > [0.25, 0.25, 0.1, 0.1]).any()
    check_failures(failures["betting"], worlds, DELTA, ("the plain mean", failures[mean] / worlds), record_property)


def points(rng, n, classes=16):
    """Organs of one voxel, which about half of the masks lack, and probabilities that say nothing of them."""
    p = rng.uniform(0.02, 0.98, (n, classes, 3)) * [0.3, 1, 0.3]
    truth = np.zeros(p.shape)
    truth[:, :, 1] = rng.random((n, classes)) < 0.5
    return truth, p


@pytest.mark.guarantees
@pytest.mark.filterwarnings("ignore:.*have the truth of another")
def test_thresholds_of_single_voxels_hold_jointly_and_each_chosen_alone_do_not(monkeypatch, record_property):
    """Sixteen thresholds, each certified with probability delta by itself, break a promise in most worlds."""
    worlds, narrowest = max(15, WORLDS // 5), masks_module._narrowest
    ways = {"jointly": narrowest, "alone": lambda table, test: narrowest(table, replace(test, failure_prob=DELTA))}
    failures = dict.fromkeys(ways, 0)
    names = tuple(f"organ {c}" for c in range(16))
    new, p_new = points(np.random.default_rng(9), 20_000)
    there = new[:, :, 1] > 0
    for seed in range(worlds):
        truth, p = points(generator("points", seed=seed), 110)
        for name, way in ways.items():
            monkeypatch.setattr(masks_module, "_narrowest", way)
            cal = pb.calibrate_masks(truth, pb.segmentation_band(p), missed=0.2, above=0.5, names=names, seed=seed)
            lost = there & ~cal.apply(pb.segmentation_band(p_new)).outer[:, :, 1]
            failures[name] += (lost.sum(axis=0) > 0.2 * there.sum(axis=0)).any()
    wrong = "thresholds chosen one by one", failures["alone"] / worlds
    check_failures(failures["jointly"], worlds, DELTA, wrong, record_property)


def test_a_promise_that_holds_for_the_networks_own_mask_leaves_its_part_to_the_others():
    truth, p = organs(np.random.default_rng(6), 300)
    truth, p = truth[:, :1], p[:, :1]
    asked = {"missed": 0.1, "names": ("large",), "failure_prob": 0.05}
    alone, both = (pb.calibrate_masks(truth, pb.segmentation_band(p), **asked, false=x) for x in (None, 0.9))
    assert np.array_equal(alone.widening, both.widening)
    stricter = pb.calibrate_masks(truth, pb.segmentation_band(p), **asked, false=0.02)
    assert stricter.widening[1] > alone.widening[1]  # upper ends, which share with lower ones
    assert both.widening[0] == 0 < stricter.widening[0]


def blurred(rng, n, pixels=300):
    """Truth, estimate and band: the width tells errors roughly, images differ in how much it does, and a fifth of them
    are blurred everywhere.
    """
    deviation = np.tile(np.linspace(0.01, 0.3, pixels), (n, 1))
    deviation[rng.random(n) < 0.2] = 0.3
    estimate = rng.uniform(0.3, 0.7, (n, pixels))
    scale = deviation * (0.2 + 3 * deviation) * np.exp(rng.normal(0, 0.6, (n, 1)))
    truth = estimate + scale * rng.standard_normal((n, pixels))
    return truth, estimate, pb.Band(estimate - deviation, estimate + deviation)


@pytest.mark.guarantees
@pytest.mark.parametrize("tolerance", [0.1, None])
def test_of_the_trusted_pixels_few_are_wrong(tolerance, monkeypatch, record_property):
    """The mean share of wrong pixels in masks, some of them empty, is at most what is asked in 1 - delta of worlds."""
    tested = trust_module.fixed_sequence_test

    def believed(test, losses, ranks, **_):
        """The largest mask of which few enough were wrong."""
        means = [float(losses(i).mean()) for i in range(ranks)]
        return next(i for i in [*np.flatnonzero(np.array(means) <= at_most), ranks - 1])

    worlds, at_most, trusted = max(30, WORLDS // 5), 0.1, []
    ways = {"bound": tested, "mean": believed}
    failures = dict.fromkeys(ways, 0)
    fresh = blurred(np.random.default_rng(4), 1_000)
    for seed in range(worlds):
        truth, estimate, band = blurred(generator("blurred", seed=seed), 100)
        asked = {"tolerance": tolerance, "at_most": at_most, "failure_prob": DELTA, "limits": None, "seed": seed}
        for name, way in ways.items():
            monkeypatch.setattr(trust_module, "fixed_sequence_test", way)
            try:
                mask = pb.trust(estimate, band, truth, **asked)
            except pb.NoGuarantee:
                continue
            failures[name] += mask.losses(*fresh).mean() > at_most
            trusted += [mask.apply(fresh[2])] if name == "bound" else []
    assert len(trusted) > 0.8 * worlds
    assert 0.1 < np.mean(trusted) < 1
    assert 0.1 < np.mean([~mask.any(axis=1) for mask in trusted]) < 0.3
    check_failures(failures["bound"], worlds, DELTA, ("the plain mean", failures["mean"] / worlds), record_property)


def overconfident(rng, n, pixels=60):
    """True masks and probabilities: where the network is surest it is wrong more often, more so in some images."""
    p = rng.uniform(0.5, 1, (n, pixels))
    wrong = np.where(p > 0.9, 0.25, 0.04) * rng.uniform(0.5, 1.5, (n, 1))
    return (rng.random(p.shape) > wrong).astype(float), p


@pytest.mark.guarantees
@pytest.mark.filterwarnings("ignore:.*have the truth of another")
def test_false_voxels_are_counted_in_the_mask_that_is_shown(record_property):
    """A trust mask of a segmentation holds what it says; a promise within the network's mask, read as one about the
    inner mask, which moves, does not.
    """
    worlds, level, failures, misread, shown = max(15, WORLDS // 5), 0.1, 0, 0, 0
    new, p_new = overconfident(np.random.default_rng(7), 4_000)
    band_new = pb.segmentation_band(p_new)
    for seed in range(worlds):
        truth, p = overconfident(generator("overconfident", seed=seed), 100)
        band, predicted = pb.segmentation_band(p), (p >= 0.5).astype(float)
        with suppress(pb.NoGuarantee):
            mask = pb.trust(predicted, band, truth, tolerance=0.5, at_most=level, seed=seed)
            failures += mask.losses(new, np.ones_like(new), band_new).mean() > level
            shown += mask.trusted > 0.3
        promise = pb.share(0.07, within=predicted > 0, name="predicted")
        inner = pb.calibrate(truth, band, promises=[promise], method="rcps", seed=seed).apply(band_new).inner
        misread += ((inner & (new == 0)).sum(axis=1) / np.maximum(inner.sum(axis=1), 1)).mean() > level
    assert shown > 0.8 * worlds
    wrong = "false voxels counted in a mask that moves", misread / worlds
    check_failures(failures, worlds, DELTA, wrong, record_property)


def test_a_trust_mask_holds_what_certifies_and_an_empty_one_loses_nothing():
    """Of three widths the widest is wrong too often; one image in five has no other, so its mask is empty."""
    rng = np.random.default_rng(6)
    deviation = np.repeat([0.02, 0.1, 0.3], 10) * np.ones((120, 1))
    deviation[rng.random(120) < 0.2] = 0.3
    estimate = rng.uniform(0.3, 0.7, deviation.shape)
    wrong = rng.random(deviation.shape) < np.select([deviation < 0.1, deviation < 0.3], [0, 0.06], 0.6)
    band = pb.Band(estimate - deviation, estimate + deviation)
    truth = estimate - np.where(wrong, 0.2, 0.05)
    mask = pb.trust(estimate, band, truth, tolerance=0.1, at_most=0.1, limits=None)
    held = deviation < 0.2
    np.testing.assert_array_equal(mask.apply(band), held)
    losses = (wrong & held).sum(axis=1) / np.maximum(held.sum(axis=1), 1)
    np.testing.assert_allclose(mask.losses(truth, estimate, band), losses)
    data = pb.CalibrationData(truth, band, features=estimate, limits=None)
    certify = pb.split(data, pb.Target([pb.share(0.1)]), pb.Frontier(groups="band")).certifying.images
    assert (mask.risk, mask.empty) == pytest.approx((losses[certify].mean(), (~held.any(axis=1))[certify].mean()))
    assert (mask.trusted, mask.certifying) == pytest.approx((held[certify].mean(), certify.sum()))


def test_a_trust_mask_comes_back_from_its_file(tmp_path):
    truth, estimate, band = blurred(np.random.default_rng(5), 150)
    units = np.repeat(np.arange(75), 2)
    mask = pb.trust(
        estimate, band, truth, tolerance=0.1, at_most=0.2, limits=None, units=pb.Units(units, name="patient")
    )
    mask.save(tmp_path / "trust.safetensors")
    again = pb.load_trust(tmp_path / "trust.safetensors")
    assert again.guarantee == mask.guarantee
    assert "over future patients (each averaged over its images), provided patients are independent" in mask.guarantee
    for bound in ("conformal", lambda losses, failure_prob: losses.mean()):
        with pytest.raises((TypeError, ValueError), match="bound"):  # the sentence would be false
            pb.trust(estimate, band, truth, tolerance=0.1, at_most=0.2, limits=None, bound=bound)
    counted = pb.Units(units, name="patient", weighting="images")
    with pytest.raises(ValueError, match="here each counts alike"):  # patients of one image may then be wrong
        pb.trust(estimate, band, truth, tolerance=0.1, at_most=0.2, limits=None, units=counted)
    assert (again.apply(band) == mask.apply(band)).all()
    with pytest.raises(pb.NoGuarantee, match="no mask can be trusted"):
        pb.trust(estimate, band, truth, tolerance=1e-6, at_most=0.05, limits=None)
    known = pb.trust(estimate, pb.Band(*band.arrays, source="a"), truth, tolerance=0.1, at_most=0.2, limits=None)
    with pytest.raises(ValueError, match="made in another way"):
        known.apply(pb.Band(*band.arrays, source="b"))
