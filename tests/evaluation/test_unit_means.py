"""Ends of means and ratios: at least what a calibration's bound says, in order, and the same whatever the scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixelbounds import bounds
from pixelbounds.evaluation.evaluation import length_ends, share_ends
from pixelbounds.evaluation.unit_means import mean_interval, ratio_interval

shares = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40).map(np.array)
quick = settings(max_examples=60, deadline=None, derandomize=True)


@quick
@given(losses=shares, level=st.floats(0.5, 0.999))
def test_the_high_end_is_the_bound_of_a_calibration_and_holds_the_mean(losses, level):
    low, high = mean_interval(losses, level)
    assert 0 <= low <= losses.mean() + 1e-12
    assert high == pytest.approx(max(bounds.betting(losses, (1 - level) / 2), losses.mean()), abs=1e-8)
    assert high <= 1


def test_units_that_might_have_been_four_times_as_large_leave_more_open():
    losses = np.random.default_rng(0).beta(2, 18, 200)
    few = np.full(200, 0.25)
    low, high = ratio_interval(losses / 4, few, 0.95)
    assert low < mean_interval(losses, 0.95)[0] < losses.mean() < mean_interval(losses, 0.95)[1] < high


def test_few_alike_units_still_have_a_low_end():
    rng = np.random.default_rng(0)
    low, high = mean_interval(rng.gamma(16, 0.2 / 16, 20), 0.95)
    assert 0.13 < low < 0.2 < high < 0.4
    assert 1 - bounds.betting(1 - np.full(20, 0.05), 0.025) == 0  # the plug-in bettor alone has none
    assert mean_interval(np.full(20, 0.05), 0.95)[0] > 0.035


@pytest.mark.parametrize("n", [15, 100, 2000, 200_000])
def test_no_miss_leaves_room_for_what_was_not_seen(n):
    low, high = mean_interval(np.zeros(n), 0.95)
    assert low == 0
    least = 1 - 0.025 ** (1 / n)  # losses of 0 and 1 would need that much
    assert least <= high < 1.15 * least
    assert share_ends(low, high)[1] != "0.00%"


def test_words_are_rounded_outward():
    assert share_ends(0.123456, 0.123456) == ("12.34%", "12.35%")
    assert share_ends(0.0, 1.0) == ("0.00%", "100.00%")
    assert length_ends(0.123456, 123.456) == ("0.1234", "123.5")
    assert length_ends(np.nan, np.nan) == ("", "")
