"""Images that calibrated are refused, whatever they are stored as; a calibration knows limits and names."""

import numpy as np
import pytest
from flat import flat_calibrate

import pixelbounds as pb
from pixelbounds.evaluation.held_out import evaluate


def calibrated(rng, n=60, **settings):
    """Images and bands, of which the first 40 calibrated."""
    truth = rng.uniform(size=(n, 6, 6))
    band = pb.Band(np.full_like(truth, 0.1), np.full_like(truth, 0.9))
    return truth, band, flat_calibrate(truth[:40], band[:40], risk_level=0.2, **settings)


def test_images_that_calibrated_are_refused_however_they_are_stored(rng):
    truth, band, cal = calibrated(rng)
    apart = evaluate(truth[40:], cal.apply(band[40:]), calibration=cal)
    assert apart.apart_from == cal.record.digest
    for kind in (np.float32, np.float64):
        mixed = np.concatenate([truth[40:50], truth[7:9]]).astype(kind)
        interval = cal.apply(band[: len(mixed)])
        with pytest.raises(ValueError, match=r"2 of 12 images calibrated \(10, 11\).*leave them out"):
            evaluate(mixed, interval, calibration=cal)
    assert evaluate(truth[:5], cal.apply(band[:5])).apart_from is None  # nobody could know
    with pytest.raises(TypeError, match=r"pixelbounds\.calibrate"):
        evaluate(truth[40:], cal.apply(band[40:]), calibration=0.1)


def test_one_truth_in_several_units_is_told(rng, recwarn):
    truth, band, cal = calibrated(rng)
    twice = np.concatenate([truth[40:], truth[45:48]])
    interval = cal.apply(band[: len(twice)])
    with pytest.warns(UserWarning, match=r"3 of 23 images have the truth of another one.*narrow: give them one unit"):
        evaluate(twice, interval, calibration=cal)
    recwarn.clear()
    evaluate(twice, interval, calibration=cal, units=[*range(20), 5, 6, 7])
    assert not [x for x in recwarn if "truth of another" in str(x.message)]


def test_images_of_one_value_are_not_compared(rng):
    truth, band, cal = calibrated(rng)
    air = np.zeros((2, 6, 6))
    cal = pb.calibrate(np.concatenate([air, truth[:40]]), band[:42], risk_level=0.2)
    assert evaluate(np.concatenate([air, truth[42:]]), cal.apply(band[40:]), calibration=cal).apart_from is not None


def test_the_calibration_knows_limits_and_the_name_of_a_unit(rng):
    truth, band, cal = calibrated(rng, units=np.arange(40) // 2, unit_name="scan")
    ev = evaluate(truth[40:], cal.apply(band[40:]), units=np.arange(20) // 2, calibration=cal)
    assert ev.unit_name == "scan"
    assert ev.mean_length < ev.mean_length_interval[1] <= 1
    assert "20 images of 10 scans" in str(ev)
    assert evaluate(truth[40:], cal.apply(band[40:]), units=pb.Units(np.arange(20), "eye")).unit_name == "eye"
