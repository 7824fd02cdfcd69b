"""Groups of positions: quantiles of the loss, multi-Otsu, a partition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.filters import threshold_multiotsu

import pixelbounds as pb
from pixelbounds import groups
from pixelbounds.calibration.data import CalibrationData
from pixelbounds.images.regions import otsu_thresholds


def test_loss_groups_are_quantiles_of_the_loss():
    """Position j is missed in j of the fitting images: quantiles cut the positions evenly, in order."""
    truth = (np.arange(16)[:, None] < np.arange(16)[None]) * 0.9
    pairs = CalibrationData(truth, pb.Band(np.zeros((16, 16)), np.full((16, 16), 0.5)))
    labels = groups.by_loss(pairs, np.arange(16), 4).labels
    np.testing.assert_array_equal(labels, np.arange(16) // 4)


def test_ties_merge():
    truth = np.zeros((10, 12))
    truth[:5, 9:] = 0.9  # three positions are missed half of the time, the others never
    pairs = CalibrationData(truth, pb.Band(np.zeros((10, 12)), np.full((10, 12), 0.5)))
    grouping = groups.by_loss(pairs, np.arange(10), 8)
    assert grouping.count == 2
    np.testing.assert_array_equal(grouping.labels, np.arange(12) >= 9)
    constant = CalibrationData(np.zeros((10, 12)), pairs.band)
    for fit in (groups.by_loss, groups.by_otsu):
        assert fit(constant, np.arange(10), 8).count == 1
    assert groups.fit_band_groups(pairs, np.arange(10)).count == 2  # one width, one room per side: the sides are left


@settings(max_examples=40, deadline=None, derandomize=True)
@given(values=st.lists(st.integers(0, 40), min_size=2, max_size=60), k=st.integers(1, 12), n=st.integers(1, 8))
def test_no_loss_group_is_ever_empty(values, k, n):
    misses = np.array(values) % (n + 1)
    truth = (np.arange(n)[:, None] < misses[None]) * 0.9
    pairs = CalibrationData(truth, pb.Band(np.zeros(truth.shape), np.full(truth.shape, 0.5)))
    for fit in (groups.by_loss, groups.by_otsu):
        grouping = fit(pairs, np.arange(n), k)
        assert set(grouping.labels.reshape(-1)) == set(range(grouping.count))
        assert grouping.count <= k
        for a in np.unique(misses):  # equal losses, equal groups; higher loss, no lower group
            assert len(np.unique(grouping.labels[misses == a])) == 1
        assert (np.diff(grouping.labels[np.argsort(misses, kind="stable")]) >= 0).all()


def test_a_partition_is_renumbered_and_checked():
    labels = np.array([[30, -2], [7, 30]])
    grouping = groups.partition(labels, (2, 2))
    np.testing.assert_array_equal(grouping.labels, [[2, 0], [1, 2]])
    with pytest.raises(ValueError, match=r"shape \(2, 2\).*whole numbers of shape \(3, 3\)"):
        groups.partition(labels, (3, 3))
    with pytest.raises(ValueError, match="float64"):
        groups.partition(labels.astype(float), (2, 2))


# ---------------------------------------------------------------- multi-Otsu


def otsu_worlds():
    rng = np.random.default_rng(31)
    yield "smooth", rng.beta(1.5, 4, (40, 40))
    yield "clusters", rng.choice([0.1, 0.35, 0.6, 0.9], (40, 40)) + 0.02 * rng.standard_normal((40, 40))
    yield "losses of 16 images", rng.binomial(16, rng.beta(1, 3, (40, 40))) / 16
    yield "losses of 256 images", np.r_[0.0, 1.0, rng.binomial(256, rng.beta(2, 2, 1598)) / 256].reshape(40, 40)


def between_classes(labels, values):
    """What Otsu maximises, but for a constant."""
    return sum((labels == c).sum() * values[labels == c].mean() ** 2 for c in np.unique(labels))


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("values", [pytest.param(v, id=name) for name, v in otsu_worlds()])
def test_multi_otsu_is_that_of_skimage(values, k):
    """Both cut between cells of a histogram, skimage after the cell whose middle it returns."""
    _, edges = np.histogram(values, 256)
    cell = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, 255)
    middle = ((edges[:-1] + edges[1:]) / 2)[cell]
    theirs = np.digitize(middle, threshold_multiotsu(values, k) + 1e-9)
    ours = np.searchsorted(otsu_thresholds(values, k), values, side="right")  # as by_otsu labels pixels
    gain = between_classes(ours, middle) - between_classes(theirs, middle)
    assert gain > -1e-9
    if gain < 1e-9:  # skimage computes in float32: on the losses of 16 images with k = 4 it misses the best cut
        np.testing.assert_array_equal(ours, theirs)
