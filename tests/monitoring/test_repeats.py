"""Images repeat honestly (slices of air, counts of a few lesions): all of them count, and only calls are recognised.

Teeth: code that left out images by their content raised alarms in 7 and 9 of the 9 worlds of the first test where the
promise is kept, and broke the promise of the last one in 27 of 30 worlds.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from refusals import refuses
from trials import LARGE, WORLDS, check_failures

import pixelbounds as pb
from pixelbounds.monitoring.state_file import monitor_bytes

AIR = 0.4


def slices(n, rng):
    """Truth and band of n images, of which two in five are identical slices of air."""
    centre = rng.uniform(0.3, 0.7, (n, 6, 6))
    truth = np.clip(
        centre + 0.05 * np.exp(0.3 * rng.standard_normal((n, 1, 1))) * rng.standard_normal(centre.shape), 0, 1
    )
    lower, upper = centre - 0.03, centre + 0.03
    air = rng.random(n) < AIR
    for x in (truth, lower, upper):
        x[air] = 0
    return truth, pb.Band(lower, upper)


@pytest.fixture(scope="module")
def cal():
    """A calibration of slices."""
    return pb.calibrate(*slices(200, np.random.default_rng(0)), risk_level=0.1, method=pb.Frontier(groups="band"))


@pytest.mark.guarantees
def test_repeats_raise_no_false_alarm(record_property):
    worlds, alarms = WORLDS if LARGE else 12, np.zeros(2, int)
    for seed in range(worlds):
        rng = np.random.default_rng([0, seed])
        cal = pb.calibrate(*slices(200, rng), risk_level=0.1, method=pb.Frontier(groups="band"), seed=seed)
        held_out, new = slices(1000, rng), slices(300, rng)
        if (~cal.apply(held_out[1]).contains(held_out[0])).mean() > 0.1:
            continue  # an alarm would be right
        monitor = pb.Monitor(cal, false_alarm=0.05)
        alarms[0] += monitor.update(*new).broken
        alarms[1] += monitor.check_drift(new[1]).changed
    for count, rate in zip(alarms.tolist(), (7 / 9, 1.0), strict=True):
        check_failures(count, worlds, 0.05, ("images left out by their content", rate), record_property)


def test_a_stuck_model_is_noticed_without_truth(cal):
    monitor = pb.Monitor(cal)
    stuck = pb.Band(np.full((100, 6, 6), 0.1), np.full((100, 6, 6), 0.9))
    status = monitor.check_drift(stuck)
    assert status.changed
    assert status.drift_images == 100
    centred = pb.Band(np.full((400, 6, 6), 0.2), np.full((400, 6, 6), 0.26))  # as wide as ever, and always alike
    words = pb.Monitor(cal).check_drift(centred).sentence
    assert all(float(share) < 5 for share in re.findall(r"which happens on (?:fewer than )?([0-9.]+)% of days", words))


def test_a_call_counts_once_and_a_batch_under_its_name(cal):
    truth, band = slices(40, np.random.default_rng(1))
    monitor = pb.Monitor(cal)
    monitor.update(truth[:20], band[:20])
    refuses(lambda: monitor.update(truth[:20], band[:20]), "first 20 of these images", "batch=")
    refuses(lambda: monitor.update(truth, band), "first 20 of these images")  # a folder that grew
    assert monitor.update(truth[:20], band[:20], batch="monday").images == 40  # these are new, the user says
    assert monitor.update(truth[:20], band[:20], batch="monday").repeated == 20
    refuses(lambda: monitor.update(truth[20:], band[20:], batch="monday"), "counted with other images")
    refuses(lambda: monitor.update(truth[20:], band[20:], batch=""), "1 to 200 characters")
    air = np.zeros((3, 6, 6))
    for _ in range(3):
        monitor.update(air, pb.Band(air, air))  # images that are all alike may come again
    assert monitor.status().images == 49
    before = monitor_bytes(monitor)
    refuses(lambda: monitor.update(truth[:20], band[:20]), "batch=")
    assert monitor_bytes(monitor) == before


def lesions(n, rng):
    """Two counts of each image: three in ten have no lesion on either side, and the network says 5 more, and misses."""
    common = rng.random(n) < 0.3
    truth = np.where(common[:, None], (0.0, 1.0), rng.integers(1000, 10**6, (n, 2)))
    centre = truth + np.where(common[:, None], 5, 0)
    return truth, pb.Band(centre - 0.5, centre + 0.5)


@pytest.mark.filterwarnings("ignore:.*truth of another")
def test_evaluations_and_groups_take_repeats_as_they_are():
    """Leaving known truths out, as was advised, an evaluation saw nothing missed where three in ten are."""
    rng = np.random.default_rng(0)
    cal = pb.calibrate(*lesions(200, rng), risk_level=0.5, method="rcps", limits=None)
    cal = replace(cal, widening=0 * cal.widening)
    truth, band = lesions(200, rng)
    with pytest.warns(UserWarning, match=r"of 200 images have the truth of one that calibrated, .* stay in"):
        ev = pb.evaluate(truth, cal.apply(band), calibration=cal)
    assert 0.2 < ev.risk < 0.4
    assert ev.apart_from is None
    seen = lesions(200, np.random.default_rng(0))
    refuses(lambda: pb.evaluate(seen[0], cal.apply(seen[1]), calibration=cal), "200 of 200 images calibrated")
    how = {"weights": np.ones(200), "max_weight": 1.1, "limits": None, "method": pb.Frontier(groups="band", n_fit=30)}
    assert pb.recalibrate(truth, band, risk_level=0.5, **how).record.fitting == 30  # draws are some of these 30


@pytest.mark.guarantees
def test_honest_repeats_stay_in_a_calibration(record_property):
    """The advice was to leave them out: following it broke the promise in 90 of 120 worlds, ignoring it in none."""
    worlds, broken = WORLDS if LARGE else 10, 0
    for seed in range(worlds):
        rng = np.random.default_rng([4, seed])
        with pytest.warns(UserWarning, match="truth of another one, .* give them one unit.*Other repeats stay in"):
            cal = pb.calibrate(*lesions(80, rng), risk_level=0.1, method="rcps", limits=None)
        truth, band = lesions(2000, rng)
        broken += (~cal.apply(band).contains(truth)).mean() > 0.1
    check_failures(broken, worlds, 0.1, ("repeats left out of it", 90 / 120), record_property)


@pytest.mark.guarantees
def test_an_anytime_calibration_counts_repeated_truths(record_property):
    worlds, broken = WORLDS if LARGE else 10, 0

    for seed in range(worlds):
        rng = np.random.default_rng([3, seed])
        anytime = pb.AnytimeCalibration(*lesions(1, rng), risk_level=0.1, method="rcps", limits=None)
        assert sum(anytime.add(*lesions(1, rng)) for _ in range(80)) == 80
        if anytime.certified is not None:
            truth, band = lesions(2000, rng)
            broken += (~anytime.certified.apply(band).contains(truth)).mean() > 0.1
    check_failures(broken, worlds, 0.1, ("truths left out by their content", 27 / 30), record_property)
