"""What stands around the theorem: a sentence says no more than was certified, and what would void it is refused.

The misuses are those of `benchmarks/voids.py`, whose worlds have a known risk: beside each promise stands what would
break it, which the same count must tell.
"""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from refusals import refuses
from trials import LARGE, WORLDS, check_failures

import pixelbounds as pb
from benchmarks import voids
from pixelbounds.calibration.calibration_file import calibration_from_bytes
from pixelbounds.calibration.sample_size import plan
from pixelbounds.workflows.calibrate import calibrate_files
from pixelbounds.workflows.request import Request

DELTA = 0.1


# ---------------------------------------------------------------- misuses of docs/what_voids_the_promise.md


@pytest.mark.guarantees
@pytest.mark.parametrize("misuse, kept, broken, worlds", [
    (voids.units, "promise by units, judged by units", "promise by units, judged by images", WORLDS),
    (voids.units, "promise by images, judged by images", "promise by units, judged by images", WORLDS),
    (voids.numbers_of_samples, "bands of 19 samples calibrated, of 19 applied",
     "bands of 19 samples calibrated, of 399 applied", WORLDS if LARGE else 10),
    (voids.bound_at_the_point, "the level", "the bound at the point that the data chose", LARGE * max(1500, WORLDS)),
    (voids.groups, "groups fitted on the fitting images", "groups fitted on images that now certify",
     LARGE * max(400, WORLDS)),
])  # fmt: skip
def test_a_misuse_breaks_what_is_kept_without_it(misuse, kept, broken, worlds, record_property):
    if not worlds:
        pytest.skip("needs many worlds: make guarantees")
    counted = [misuse(np.random.default_rng([7, seed])) for seed in range(worlds)]  # as in the table of the page
    wrong = broken, sum(one[broken] for one in counted) / worlds
    check_failures(sum(one[kept] for one in counted), worlds, DELTA, wrong, record_property)


def test_a_sentence_by_units_is_about_units_and_one_by_images_about_images(rng):
    centre, unit = rng.uniform(0.4, 0.6, (600, 9)), np.arange(600) // 10
    truth, band = centre + 0.02 * rng.standard_normal(centre.shape), pb.Band(centre - 0.03, centre + 0.03)

    def sentence(**weighting):
        units = pb.Units(unit, "scan", **weighting)
        return pb.calibrate(truth, band, risk_level=0.1, method="rcps", units=units).guarantee

    assert "of the values of a future scan, averaged over its images, lie outside" in sentence()
    assert "each scan counts the same, however many images it has" in sentence()
    assert "60 scans" in sentence()
    by_images = sentence(weighting="images", max_images=20)
    assert "of a future image lie outside" in by_images
    assert "each image counts the same, a scan of more than 20 images as one of 20" in by_images


def test_a_unit_may_be_what_images_are_cut_from_and_no_part_of_one():
    truth, band = voids.sampled(np.random.default_rng(0), 60, 19)
    units = pb.Units(np.arange(60), "source image")
    said = pb.calibrate(truth, band, risk_level=0.3, method="rcps", units=units).guarantee
    assert "of a future source image, averaged over its images" in said
    refuses(lambda: pb.Units(np.arange(60), "image"), "'image'", "would promise more than is certified")


# ---------------------------------------------------------------- a second try


def test_no_guarantee_says_what_a_second_try_costs_and_what_is_valid():
    truth, band = voids.sampled(np.random.default_rng(0), 20, 19)
    said = refuses(
        lambda: pb.calibrate(truth, band, risk_level=0.1, method="rcps", units=pb.Units(np.arange(20), "photograph")),
        "its own chance", "probability 0.2 instead of 0.1", "fresh images", "0.05 for each of two tries",
        "what_voids_the_promise.md", "20 photographs",
    )  # fmt: skip
    assert said.startswith("Give at least 23 photographs that certify")  # the remedy first
    assert len(said.split()) <= 110


def test_replacing_a_calibration_of_the_same_images_says_what_a_second_try_costs(tmp_path, recwarn):
    truth, band = voids.sampled(np.random.default_rng(0), 60, 19)
    np.save(tmp_path / "truth.npy", truth)
    np.savez(tmp_path / "band.npz", lower=band.lower, upper=band.upper)
    files = tmp_path / "truth.npy", tmp_path / "band.npz", tmp_path / "cal.safetensors"

    def notes(**how):
        recwarn.clear()
        calibrate_files(*files, Request(risk_level=0.2, method="rcps", **how), replace=True)
        return " ".join(str(one.message) for one in recwarn)

    assert "its own chance" not in notes()
    assert "its own chance" not in notes()  # the very same once more
    assert "another calibration of 60 of these images" in (said := notes(seed=1))
    assert "probability 0.2 instead of 0.1" in said


# ---------------------------------------------------------------- bands that were made in another way


def test_bands_of_another_number_of_samples_are_refused(rng):
    cal = pb.calibrate(*voids.sampled(rng, 100, 19), risk_level=0.1, method="rcps", seed=rng)
    many = voids.sampled(rng, 10, 399)[1]
    refuses(lambda: cal.apply(many), "samples: 19 at calibration, 399 here", "calibrate again")


def test_what_a_calibration_knows_of_its_bands_must_be_matched_and_what_it_does_not_is_said():
    rng = np.random.default_rng(0)
    truth, band = voids.sampled(rng, 60, 19)
    drawn = pb.Source("calibrated quantiles", samples=19, miscoverage=0.1, sampler="heun", steps=12, sigma_0=0.3)
    cal = pb.calibrate(truth, replace(band, source=drawn), risk_level=0.2, method="rcps")
    assert "calibrated quantiles, samples 19, miscoverage 1/10, sampler heun, steps 12" in cal.guarantee
    for change, words in {
        "steps": (8, "steps: 12 at calibration, 8 here"),
        "sigma_0": (0.4, "noise level: 0.3 at calibration, 0.4 here"),
        "miscoverage": (0.2, "miscoverage: 1/10 at calibration, 1/5 here"),
        "sampler": ("euler", "sampler: heun at calibration, euler here"),
    }.items():
        value, said = words
        other = replace(band, source=replace(drawn, **{change: value}))
        refuses(partial(cal.apply, other), said)
    refuses(lambda: cal.apply(pb.Band(band.lower, band.upper)), "unknown here", "source=")
    bare = pb.calibrate(truth, pb.Band(band.lower, band.upper), risk_level=0.2, method="rcps")
    assert "how is not known here, so it cannot be checked" in bare.guarantee
    bare.apply(band)
    again = calibration_from_bytes(cal.to_bytes())
    assert again.record.source == drawn


# ---------------------------------------------------------------- groups that saw what certifies


def test_groups_fitted_on_images_that_certify_are_refused():
    rng = np.random.default_rng(0)
    truth, band = voids.marked(rng, 80)
    for groups in ("band", "learned"):
        cal = pb.calibrate(truth, band, risk_level=0.2, method=pb.Frontier(groups=groups, n_fit=36))
        assert len(cal.grouping.fitted_on) == 36
        grouping = calibration_from_bytes(cal.to_bytes()).grouping  # a file remembers, too
        how = {"risk_level": 0.2, "method": pb.Frontier(groups=grouping, n_fit=10), "seed": 1}
        refuses(lambda how=how: pb.calibrate(truth, band, **how), "the groups were fitted on", "would certify", "voids")
        fresh = pb.calibrate(*voids.marked(rng, 80), **how)
        assert fresh.grouping.count == grouping.count


def test_images_of_one_truth_are_told_and_are_no_reused_groups():
    rng = np.random.default_rng(0)
    once = rng.uniform(0.3, 0.7, (60, 6, 6))
    truth = np.concatenate([once, once])  # two noisy views of each
    seen = truth + 0.05 * rng.standard_normal(truth.shape)
    band = pb.Band(seen - 0.05, seen + 0.05)
    with pytest.warns(UserWarning, match="60 of 120 images have the truth of another one.*units="):
        pb.calibrate(truth, band, risk_level=0.2, method=pb.Frontier(groups="band"))
    with pytest.warns(UserWarning, match="60 of 120 images .*of another unit"):  # a patient who has two names
        pb.calibrate(truth, band, risk_level=0.2, method=pb.Frontier(groups="band"), units=np.arange(120))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pb.calibrate(truth, band, risk_level=0.2, method=pb.Frontier(groups="band"), units=np.arange(120) % 60)


# ---------------------------------------------------------------- the planner


@pytest.mark.parametrize("bound", ["betting", "hoeffding_bentkus", "empirical_bernstein"])
@pytest.mark.parametrize("method, groups", [
    (pb.RCPS(), False), (pb.KRCPS(), False), (pb.KRCPS(k=2), True), (pb.Frontier(), False),
    (pb.Frontier(groups="band"), True), (pb.Frontier(k=4), True),
])  # fmt: skip
def test_the_planner_and_calibrate_agree_on_the_least_images(method, groups, bound):
    for level, failure_prob in ((0.1, 0.1), (0.2, 0.2)):
        needs = plan(level, failure_prob, method=method.name, groups=groups, images=(200,))
        least = {row.bound: row.images for row in needs.bounds}[bound]
        for n in (least - 1, least):
            centre = np.random.default_rng(0).uniform(0.3, 0.7, (n, 3, 3))
            band = pb.Band(centre - 0.1, centre + 0.1)
            how = {"risk_level": level, "failure_prob": failure_prob, "bound": bound, "method": method}
            try:
                pb.calibrate(centre, band, **how)
                accepted = True
            except pb.NoGuarantee:
                accepted = False
            assert accepted == (n == least), (level, n, least)
