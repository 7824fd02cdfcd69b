"""The default grouping is chosen on the fitting images, and is the shorter one on others."""

import numpy as np
import pytest
from flat import flat_calibrate
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.calibration import choice
from pixelbounds.calibration.bounds import greatest_loss
from pixelbounds.calibration.calibration_file import calibration_from_bytes
from pixelbounds.calibration.data import FittingImages
from pixelbounds.demo.synthetic import synthetic_pairs

TARGET = pb.Target([pb.share(0.1)])


def kind(truth, band):
    return pb.calibrate(truth, band, risk_level=0.1).grouping.kind


def test_neighbourhoods_that_matter_are_learned_and_others_are_not():
    truth, band, _ = synthetic_pairs(240, 32, seed=1)  # a crude sampler that errs beside edges
    assert kind(truth, band) == "learned"
    truth, band = heteroscedastic(240, np.random.default_rng(0), size=24)  # the band's own features say it all
    assert kind(truth, band) == "band"


def test_the_choice_looks_at_the_fitting_images_only(rng):
    truth, band = heteroscedastic(80, rng, size=12)
    chosen = pb.calibrate(truth, band, risk_level=0.2, seed=3, method=pb.Frontier(n_fit=20))
    fitting = np.isin(np.arange(80), np.random.default_rng(3).permutation(80)[:20])
    other = np.where(fitting[:, None, None], truth, np.clip(truth + 0.02, 0, 1))  # other certifying images
    again = pb.calibrate(other, band, risk_level=0.2, seed=3, method=pb.Frontier(n_fit=20))
    assert again.grouping.state()[0] == chosen.grouping.state()[0]
    for name, x in chosen.grouping.state()[1].items():
        np.testing.assert_array_equal(again.grouping.state()[1][name], x)


def fitting_images(data, **changes):
    """All images as fitting images, for the paper's target of 10%."""
    data, risks = data.with_promises(TARGET)
    return FittingImages(data, np.arange(len(data)), risks, changes.get("certifying", 1000))


@pytest.mark.parametrize("units", [50, 60, 68])
def test_units_hardly_enough_to_certify_all_certify(rng, units):
    """Below 1.5 times the least (46 at 5%), frontier is rcps: a scan certifies more than it teaches."""
    truth, band = heteroscedastic(units, rng, size=8)
    ours, plain = (
        flat_calibrate(truth, band, method=method, risk_level=0.05, seed=3) for method in ("frontier", "rcps")
    )
    assert ours.record.fitting == 0
    np.testing.assert_array_equal(ours.widening, plain.widening)


@pytest.mark.parametrize("n, few", [(200, True), (400, False)])
def test_few_images_choose_at_the_risk_that_they_can_certify(n, few, rng, monkeypatch):
    seen = []
    length_of = choice._length_of
    monkeypatch.setattr(choice, "_length_of", lambda *how: seen.append(how[-1]) or length_of(*how))
    truth, band = heteroscedastic(n, rng, size=12)
    made = pb.calibrate(truth, band, risk_level=0.05)
    level = greatest_loss(n - made.record.fitting, 0.05) if few else 0.05
    assert seen == [level] * (6 if few else 2)  # three candidates on both halves, or two on one


def test_where_groups_matter_few_images_tell(rng):
    truth, band = heteroscedastic(400, rng, size=16)
    found, plain = (flat_calibrate(truth[:100], band[:100], risk_level=0.05, method=m) for m in ("frontier", "rcps"))
    assert found.apply(band[100:]).length.mean() < 0.97 * plain.apply(band[100:]).length.mean()


def test_halves_of_the_choice_never_cut_a_unit(rng):
    truth, band = heteroscedastic(24, rng, size=8)
    unit_of = np.arange(24) // 4
    fitting = fitting_images(pb.CalibrationData(truth, band, unit_of))
    for taught, others in choice._halves(fitting, choice.half_of(fitting, rng)):
        assert len(taught.images) == 12
        assert set(taught.unit_of).isdisjoint(others.unit_of)


def test_groups_of_which_nobody_knows_the_images_are_told():
    """Without digests, as in files that must not tell of images, the images that certify may have shaped them."""
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.3, 0.7, (80, 6, 6))
    truth, band = centre + 0.05 * rng.standard_normal(centre.shape), pb.Band(centre - 0.05, centre + 0.05)
    made = pb.calibrate(truth[:40], band[:40], risk_level=0.2, method=pb.Frontier(groups="band"))
    told = "the groups that were given owe nothing to the images that certified"
    forgot = made.without_hashes().grouping
    for groups, unknown in ((made.grouping, False), (forgot, True), (np.arange(36).reshape(6, 6) // 18, True)):
        found = pb.calibrate(truth[40:], band[40:], risk_level=0.2, method=pb.Frontier(groups=groups, n_fit=10))
        assert (told in found.guarantee) == unknown
        assert calibration_from_bytes(found.to_bytes()).guarantee == found.guarantee
    assert told not in made.guarantee
