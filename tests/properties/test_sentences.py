"""What stands around the theorem: a sentence says no more than was certified, and what would void it is refused.

Worlds are small and their true risk is known in closed form, so that thousands can be drawn (`make guarantees`). Beside
each promise stands what would break it, which the same count must tell.
"""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from refusals import refuses
from scipy.stats import norm
from trials import LARGE, WORLDS, check_failures, consistent, generator

import pixelbounds as pb
from pixelbounds.calibration.calibration import calibration_from_bytes
from pixelbounds.calibration.sample_size import plan
from pixelbounds.images import library
from pixelbounds.workflows.calibrate import calibrate_files
from pixelbounds.workflows.request import Request

DELTA = 0.1


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(library, "_THREADS", 1)


# ---------------------------------------------------------------- 1: a unit is not an image

LONG, SHORT = 20, 2  # images of a hard and of an easy unit


def scans(rng, units):
    """Half of the units are long and hard, half short and easy; images of a unit share a factor."""
    sizes = np.where(rng.random(units) < 0.5, LONG, SHORT)
    unit = np.repeat(np.arange(units), sizes)
    deviation = np.repeat(np.where(sizes == LONG, 0.06, 0.02), sizes)[:, None]
    factor = np.repeat(rng.standard_normal(units), sizes)[:, None]
    centre = rng.uniform(0.4, 0.6, (len(unit), 9))
    truth = centre + deviation * (0.3 * factor + np.sqrt(0.91) * rng.standard_normal(centre.shape))
    return np.clip(truth, 0, 1), pb.Band(centre - 0.03, centre + 0.03), unit


def risks_of(cal):
    """The true risk of a unit, averaged over its images, and that of an image."""
    hard, easy = (2 * norm.sf((0.03 + cal.widening[0]) / deviation) for deviation in (0.06, 0.02))
    return (hard + easy) / 2, (LONG * hard + SHORT * easy) / (LONG + SHORT)


def by_unit(count, **weighting):
    found = []
    for seed in range(count):
        rng = generator("units", seed=seed)
        truth, band, unit = scans(rng, 60)
        units = pb.Units(unit, "scan", **weighting)
        try:
            cal = pb.calibrate(truth, band, risk_level=0.1, method="rcps", units=units, seed=rng)
        except pb.NoGuarantee:  # where nearly all scans are short, nothing is certified and nothing promised
            continue
        found.append(risks_of(cal))
    return np.array(found).T > 0.1, cal


@pytest.mark.guarantees
def test_a_promise_by_units_is_about_units_and_one_by_images_about_images(record_property):
    count = WORLDS
    (units, images), cal = by_unit(count)
    wrong = "a sentence about images where units count", images.mean()
    check_failures(int(units.sum()), count, DELTA, wrong, record_property)
    assert "of the values of a future scan, averaged over its images, lie outside" in cal.guarantee
    assert "each scan counts the same, however many images it has" in cal.guarantee
    assert "60 scans" in cal.guarantee
    (_, images), cal = by_unit(count, weighting="images", max_images=LONG)
    check_failures(int(images.sum()), count, DELTA, wrong, record_property)
    assert "of a future image lie outside" in cal.guarantee
    assert "each image counts the same, a scan of more than 20 images as one of 20" in cal.guarantee


# ---------------------------------------------------------------- 2: only the level is certified


def steps(rng, n):
    """A truth that six widenings would reach, a share of 0.02 each: the risk is a step function of the widening."""
    far = np.linspace(0.05, 0.45, 6)
    truth = 0.5 + np.concatenate([[0.0], far])[rng.choice(7, n, p=[0.88, *[0.02] * 6])]
    truth = np.stack([truth, truth], axis=1)  # two values: of one there is an exact test, which has no early wins
    return truth, pb.Band(np.full((n, 2), 0.49), np.full((n, 2), 0.505)), far


@pytest.mark.guarantees
@pytest.mark.skipif(not LARGE, reason="needs many worlds: make guarantees")
def test_the_bound_at_the_point_that_the_data_chose_is_no_confidence_bound(record_property):
    broken = above = 0
    count = max(1500, WORLDS)
    for seed in range(count):
        rng = generator("steps", seed=seed)
        truth, band, far = steps(rng, 120)
        cal = pb.calibrate(truth, band, risk_level=0.1, method="rcps", seed=rng)
        risk = 0.02 * (far > 0.005 + cal.widening[0] + 1e-9).sum()
        broken += risk > 0.1 + 1e-9
        above += risk > cal.curve[cal.chosen, 2]
    assert not consistent(above, count, DELTA)  # why no calibration prints it
    check_failures(broken, count, DELTA, ("the bound at the chosen point", above / count), record_property)


# ---------------------------------------------------------------- 3: a second try


def uncoverable(rng, n, share):
    """A share of the images has a truth of 0, which the multiplicative family never reaches: a lottery."""
    centre = rng.uniform(0.2, 0.8, (n, 1))
    truth = np.where(rng.random((n, 1)) < share, 0.0, centre)
    return truth, pb.Band(centre - 0.1, centre + 0.1)


def certified(truth, band, failure_prob=DELTA, **how):
    try:
        pb.calibrate(
            truth, band.with_family("multiplicative"), risk_level=0.1, failure_prob=failure_prob, **how, method="rcps"
        )
    except pb.NoGuarantee:
        return False
    return True


def test_no_guarantee_says_what_a_second_try_costs_and_what_is_valid():
    truth, band = uncoverable(np.random.default_rng(0), 20, 0.0)
    refuses(
        lambda: pb.calibrate(truth, band, risk_level=0.1, method="rcps"),
        "its own chance", "probability 0.2 instead of 0.1", "fresh images", "0.05 for each of two tries",
        "what_voids_the_promise.md", "Give at least 23 images that certify",
    )  # fmt: skip


def test_replacing_a_calibration_of_the_same_images_says_what_a_second_try_costs(tmp_path, recwarn):
    truth, band = sampled(np.random.default_rng(0), 60, 19)
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


# ---------------------------------------------------------------- 4: another m


def sampled(rng, n, m):
    """Rare values that few samples meet: the more samples, the narrower the band of the same miscoverage."""
    centre = rng.uniform(0.2, 0.5, (n, 16))
    samples = centre[:, None] + 0.02 * rng.standard_normal((n, m, 16)) + 0.3 * (rng.random((n, m, 16)) < 0.04)
    truth = centre + 0.01 * rng.standard_normal(centre.shape) + 0.3 * (rng.random(centre.shape) < 0.15)
    return np.clip(truth, 0, 1), pb.calibrated_quantiles(np.clip(samples, 0, 1), 0.1)


@pytest.mark.guarantees
def test_bands_of_another_number_of_samples_are_refused_because_they_break_the_promise(record_property):
    count = WORLDS if LARGE else 10
    rng = generator("samples", seed=0)
    (few_truth, few), (many_truth, many) = sampled(rng, 400, 19), sampled(rng, 400, 399)
    kept = broken = 0
    for _ in range(count):
        truth, band = sampled(rng, 100, 19)
        cal = pb.calibrate(truth, band, risk_level=0.1, method="rcps", seed=rng)
        refuses(lambda cal=cal: cal.apply(many), "samples: 19 at calibration, 399 here", "calibrate again")
        kept += pb.losses.l01(few_truth, cal.apply(few)).mean() > 0.1
        claimed = replace(many, source=few.source)  # what an unchecked `apply` did
        broken += pb.losses.l01(many_truth, cal.apply(claimed)).mean() > 0.1
    check_failures(kept, count, DELTA, ("bands of another number of samples", broken / count), record_property)


def test_what_a_calibration_knows_of_its_bands_must_be_matched_and_what_it_does_not_is_said():
    rng = np.random.default_rng(0)
    truth, band = sampled(rng, 60, 19)
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


# ---------------------------------------------------------------- 5: groups that saw what certifies


def marked(rng, n):
    """Images whose band width tells them apart; a fifth of them is missed."""
    centre = rng.uniform(0.2, 0.8, (n, 36))
    bad = rng.random((n, 1)) < 0.2
    truth = centre + 0.02 * rng.standard_normal(centre.shape) + bad * np.where(centre > 0.5, -0.15, 0.15)
    half = 0.05 + 0.01 * rng.random((n, 1))
    return np.clip(truth, 0, 1).reshape(n, 6, 6), pb.Band(
        (centre - half).reshape(n, 6, 6), (centre + half).reshape(n, 6, 6)
    )


def test_groups_fitted_on_images_that_certify_are_refused():
    rng = np.random.default_rng(0)
    truth, band = marked(rng, 80)
    for groups in ("band", "learned"):
        cal = pb.calibrate(truth, band, risk_level=0.2, method=pb.Frontier(groups=groups, n_fit=36))
        assert len(cal.grouping.fitted_on) == 36
        grouping = calibration_from_bytes(cal.to_bytes()).grouping  # a file remembers, too
        how = {"risk_level": 0.2, "method": pb.Frontier(groups=grouping, n_fit=10), "seed": 1}
        refuses(lambda how=how: pb.calibrate(truth, band, **how), "the groups were fitted on", "would certify", "voids")
        fresh = pb.calibrate(*marked(rng, 80), **how)
        assert fresh.grouping.count == grouping.count


@pytest.mark.guarantees
@pytest.mark.skipif(not LARGE, reason="needs many worlds: make guarantees")
def test_why_groups_that_saw_what_certifies_are_refused(record_property):
    many, many_band = marked(generator("groups", seed=0), 1000)
    broken = kept = 0
    count = max(400, WORLDS)
    for seed in range(count):
        rng = generator("groups", seed=seed + 1)
        truth, band = marked(rng, 60)
        first = pb.calibrate(truth, band, risk_level=0.1, seed=rng, method=pb.Frontier(groups="learned", n_fit=36))
        grouping = first.without_hashes().grouping
        second = pb.calibrate(truth, band, risk_level=0.1, seed=rng, method=pb.Frontier(groups=grouping, n_fit=10))
        kept += pb.losses.l01(many, first.apply(many_band)).mean() > 0.1
        broken += pb.losses.l01(many, second.apply(many_band)).mean() > 0.1
    check_failures(kept, count, DELTA, ("groups that saw what certifies", broken / count), record_property)


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


# ---------------------------------------------------------------- 11: words


# ---------------------------------------------------------------- 13: the planner


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
