"""Streams without a change: a monitor ever raises an alarm as rarely as was asked, each detector and all together.

With PIXELBOUNDS_WORLDS of 1,000 there are 1,000 streams of 2,000 images. Teeth: a test for a fixed number of images
that is checked every day, and new images ranked among the reference alone, are caught.
"""

import numpy as np
import pytest
from trials import WORLDS, check_failures, generator

from benchmarks import monitoring

pytestmark = pytest.mark.guarantees

SIZE = STREAMS, IMAGES = (1000, 2000) if WORLDS >= 1000 else (200, 250)
REFERENCE = 100
FALSE_ALARM = 0.1
REFERENCE_ALONE = "ranks among the reference alone", 0.22  # how often a wrong one raises an alarm
DAILY = "a test for a fixed number, checked every day", 0.3


def test_each_promise_by_itself(record_property):
    for draw in (monitoring.shares, monitoring.tails):
        best = monitoring.promise_e_values(generator("alarms", draw, seed=0), draw, 0.1, SIZE)
        alarms = int((best >= np.log(1 / FALSE_ALARM)).sum())
        check_failures(alarms, STREAMS, FALSE_ALARM, DAILY, record_property)
        assert alarms >= STREAMS * FALSE_ALARM / 20  # not far below it either: the risk is the level itself


def test_a_statistic_without_truth_by_itself(record_property):
    best = monitoring.statistic_e_values(generator("ranks", seed=0), SIZE, REFERENCE)
    alarms = int((best >= np.log(1 / FALSE_ALARM)).sum())
    check_failures(alarms, STREAMS, FALSE_ALARM, REFERENCE_ALONE, record_property)


def test_all_detectors_jointly(record_property):
    alarms = monitoring.joint_alarms(generator("jointly", seed=0), SIZE, REFERENCE)[FALSE_ALARM]
    check_failures(int(alarms.sum()), STREAMS, FALSE_ALARM, DAILY, record_property)


def test_what_is_wrong_is_caught():
    best = monitoring.statistic_e_values(generator("wrong ranks", seed=0), SIZE, REFERENCE, learn=False)
    assert (best >= np.log(1 / FALSE_ALARM)).mean() > REFERENCE_ALONE[1]
    assert monitoring.daily_test(generator("daily", seed=0), SIZE)[FALSE_ALARM].mean() > DAILY[1]
