"""Segmentations and trust masks: what they are, and that what they promise holds in simulated worlds."""

import numpy as np
import pytest
from trials import WORLDS, check_failures, generator

import pixelbounds as pb

DELTA = 0.1
NAMES = ("large", "rare")


def organs(rng, n, pixels=40):
    """True masks (n, 2, pixels) and probabilities: an organ of some pixels, and one of one pixel that few images have.

    Images differ in how good the network is, so that losses within an image depend on each other.
    """
    logit = np.stack([np.linspace(-4, 4, pixels), np.full(pixels, -6.0)]) + np.zeros((n, 1, 1))
    logit[rng.random(n) < 0.3, 1, pixels // 2] = 1.0
    shift = rng.normal(0, 1.5, (n, 2, 1))
    truth = rng.random(logit.shape) < 1 / (1 + np.exp(-(logit + shift)))
    truth[:, 1] &= logit[:, 1] > 0
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


@pytest.mark.guarantees
@pytest.mark.parametrize("method", ["rcps", pb.Frontier(groups="band")], ids=["rcps", "frontier"])
def test_missed_and_false_pixels_of_rare_organs_are_bounded_jointly(method, record_property):
    """Four promises hold together; calibrated one by one, each at its own point, one of them breaks too often."""
    worlds, failures = max(60, WORLDS // 2), 0
    new, p_new = organs(np.random.default_rng(3), 4_000)
    levels = np.array([0.2, 0.25, 0.12, 0.02])
    for seed in range(worlds):
        truth, p = organs(generator("organs", seed=seed), 150)
        band, band_new = pb.segmentation_band(p), pb.segmentation_band(p_new)
        asked = [
            *pb.segmentation_promises(truth, missed=0.2, names=NAMES)[:1],
            *pb.segmentation_promises(truth, missed=0.25, names=NAMES)[1:],
            *pb.segmentation_promises(truth, missed=None, false=0.12, names=NAMES)[:1],
            *pb.segmentation_promises(truth, missed=None, false=0.02, names=NAMES)[1:],
        ]
        joint = pb.calibrate(truth, band, promises=asked, failure_prob=DELTA, method=method, seed=seed)
        failures += (shares(new, joint.apply(band_new)) > levels).any()
    check_failures(failures, worlds, DELTA, ("the plain mean", 0.45), record_property)


def blurred(rng, n, pixels=60):
    """Truth, estimate and band: the width tells errors roughly, and images differ in how much it does."""
    deviation = np.tile(np.linspace(0.01, 0.3, pixels), (n, 1))
    estimate = rng.uniform(0.3, 0.7, (n, pixels))
    scale = deviation * (0.2 + 3 * deviation) * np.exp(rng.normal(0, 0.6, (n, 1)))
    return (
        estimate + scale * rng.standard_normal((n, pixels)),
        estimate,
        pb.Band(estimate - deviation, estimate + deviation),
    )


@pytest.mark.guarantees
@pytest.mark.parametrize("tolerance", [0.1, None])
def test_of_the_trusted_pixels_few_are_wrong(tolerance, record_property):
    """The mean share of wrong pixels in masks is at most what is asked in all but a share delta of worlds."""
    worlds, at_most, failures, trusted = max(60, WORLDS // 4), 0.1, 0, []
    fresh = blurred(np.random.default_rng(4), 2_000)
    for seed in range(worlds):
        truth, estimate, band = blurred(generator("blurred", seed=seed), 100)
        asked = {"tolerance": tolerance, "at_most": at_most, "failure_prob": DELTA, "limits": None, "seed": seed}
        try:
            mask = pb.trust(estimate, band, truth, **asked)
        except pb.NoGuarantee:
            continue
        failures += mask.losses(fresh[0], fresh[1], fresh[2]).mean() > at_most
        trusted.append(mask.apply(fresh[2]).mean())
    assert len(trusted) > 0.8 * worlds
    assert 0.1 < np.mean(trusted) < 1
    check_failures(failures, worlds, DELTA, ("the plain mean", 0.45), record_property)


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
        pb.trust(estimate, band, truth, tolerance=0.0, at_most=0.05, limits=None)
    known = pb.trust(estimate, pb.Band(*band.arrays, source="a"), truth, tolerance=0.1, at_most=0.2, limits=None)
    with pytest.raises(ValueError, match="made in another way"):
        known.apply(pb.Band(*band.arrays, source="b"))
