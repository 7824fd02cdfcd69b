"""Paths: nested, best where they claim to be; certifying walks them from the wide end; what they gain in length."""

from functools import reduce
from itertools import product

import numpy as np
import pytest
from flat import flat_calibrate
from scipy.stats import binom
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds import bounds, families
from pixelbounds.calibration.block import Single
from pixelbounds.calibration.data import CalibrationData
from pixelbounds.calibration.groups.positions import Partition
from pixelbounds.calibration.paths import frontier as paths
from pixelbounds.calibration.paths import path as along
from pixelbounds.calibration.paths.path import Path

# ---------------------------------------------------------------- arrivals


@pytest.mark.parametrize("kind", ["geometric", "random", "ties", "few"])
def test_an_arrival_is_the_first_knot_that_covers(kind, rng):
    knots = {
        "geometric": np.r_[0.0, 2.0 ** np.linspace(-20, 20, 4001)][None],
        "random": np.sort(rng.lognormal(-3, 2, (5, 700)), axis=1),
        "ties": np.sort(rng.integers(0, 9, (4, 300)) / 8.0, axis=1),
        "few": np.array([[0.0], [0.5], [1.0]]),
    }[kind]
    path = Path(knots, Single())
    label = rng.integers(len(knots), size=5000).astype(np.int32)
    need = rng.lognormal(-3, 3, 5000)
    on_a_knot = knots[label, rng.integers(knots.shape[1], size=5000)]
    need[:2000] = on_a_knot[:2000]
    need[2000:3000] = np.nextafter(on_a_knot[2000:3000], np.inf)
    need[3000:4000] = np.nextafter(on_a_knot[3000:4000], 0)
    need[-6:] = [np.inf, 0.0, 5e-324, 1e-310, 1e300, knots.max()]
    expected = [np.searchsorted(knots[k], w, side="left") for k, w in zip(label, need, strict=True)]
    np.testing.assert_array_equal(path.entry_scores(label, need), expected)


def test_a_path_that_shrinks_is_refused():
    with pytest.raises(ValueError, match="nondecreasing"):
        Path(np.array([[0.0, 0.2, 0.1]]), Single())


# ---------------------------------------------------------------- certifying along a given path


def certified(truth, band, bound, risk_level, path, rows=None):
    """What is certified along a path, with a table of losses that is given or counted."""
    target = pb.Target([pb.share(risk_level)], bound=bound)
    data, risks = pb.CalibrationData(truth, band).with_promises(target)
    certifying = pb.split_at(data, risks, np.arange(0), np.arange(len(truth))).certifying
    table = pb.loss_table(certifying, path)
    if rows is not None:
        table.missed = np.ascontiguousarray(rows.T)
    return pb.certify(table, target)


def bettor_who_learns_less_when_less_is_missed():
    """Losses of 1000 images that only grow, yet their betting bound falls: the first losses, nearer to the later ones,
    leave the bettor surer of himself, and he wins before the bad images come."""
    fewer = np.r_[np.zeros(4), np.full(40, 0.2), np.ones(956)]
    more = np.r_[np.full(44, 0.2), np.ones(956)]
    return fewer, more


def test_betting_is_walked_from_the_wide_end():
    """Knots, narrow to wide: pass, pass, pass, fail, pass. Bisection would stop among the first three."""
    fewer, more = bettor_who_learns_less_when_less_is_missed()
    assert (fewer <= more).all()
    assert not bounds.rejects(bounds.betting, fewer, 0.1, 0.3)
    assert bounds.rejects(bounds.betting, more, 0.1, 0.3)
    table = np.rint(10 * np.stack([more, more, more, fewer, 0 * more], axis=1)).astype(np.int32)
    truth = np.full((1000, 10), 0.5)
    band = pb.Band(truth, truth)
    path = Path(np.linspace(0, 1, 5)[None], Single())
    found = certified(truth, band, "betting", 0.3, path, table)
    assert (found.point, found.part) == (4, 1.0)
    assert found.promises[0].risk == 0


def test_a_users_bound_is_walked_too():
    """A bound that dips in the narrow part must not lead there."""

    def dips(losses, failure_prob):
        return 0.05 if losses.mean() > 0.6 else float(losses.mean())

    rng = np.random.default_rng(0)
    truth = rng.random((50, 100))
    half = pb.Band(np.full_like(truth, 0.5), np.full_like(truth, 0.5))
    cal = pb.calibrate(truth, half, risk_level=0.2, bound=dips, method="rcps")
    assert 0.19 < cal.risk < 0.2


@pytest.mark.parametrize("knots", [
    np.r_[np.zeros(1500), 0.45, 0.5, 1.0][None],
    np.linspace(0, 1, 2049)[None],
    np.r_[0.0, 2.0 ** np.linspace(-14, 0, 2045)][None],
], ids=["one long step", "even", "geometric"])  # fmt: skip
def test_between_knots_no_pixel_is_lost_to_rounding(knots):
    """The widening at the certified position covers every end that the certificate counts as covered."""
    path, lost = Path(knots, Single()), 0
    for seed in range(20):
        truth = np.random.default_rng(seed).random((60, 50))
        band = pb.Band(np.full_like(truth, 0.4), np.full_like(truth, 0.6))
        found = certified(truth, band, "hoeffding_bentkus", 0.3, path)
        lower, upper = families.additive.widen(band, path.at(found.point, found.part)[0])
        lost += ((truth < lower) | (truth > upper)).mean() > found.promises[0].risk + 1e-12
    assert lost == 0


def test_the_table_counts_what_the_intervals_miss():
    """Column by column, the table of arrivals is the 01 loss recounted on widened intervals."""
    truth, band = heteroscedastic(20, np.random.default_rng(1), size=8, dtype=np.float64)
    labels = np.arange(64).reshape(8, 8) % 3
    pairs, grouping = CalibrationData(truth, band), Partition(labels)
    path = paths.frontier_path(paths.trades(pairs, np.arange(8), grouping), grouping, 0.1, 1.0)
    table = pairs.aggregate(along.misses, path=path)[0]
    for j in range(0, len(path), 37):
        inside = path.points[labels, j]
        missed = np.maximum(band.lower - truth, truth - band.upper) > inside
        np.testing.assert_array_equal(table[:, j], missed.reshape(20, -1).sum(axis=1))
    assert (np.diff(table, axis=1) <= 0).all()


# ---------------------------------------------------------------- the frontier is the frontier


def is_above(point, left, right):
    """Whether a point lies on or above the chord between its neighbours."""
    (x, y), (x0, y0), (x1, y1) = point, left, right
    return (y - y0) * (x1 - x0) >= (y1 - y0) * (x - x0)


def hull_length(length, missed, at):
    """Least length, on the lower convex hull of all combinations of groups, for a number of misses: brute force."""
    misses, which = np.unique(reduce(np.add.outer, missed).reshape(-1), return_inverse=True)
    least = np.full(len(misses), np.inf)
    np.minimum.at(least, which, reduce(np.add.outer, length).reshape(-1))
    hull = []
    for m, c in zip(misses, least, strict=True):
        while len(hull) > 1 and is_above(hull[-1], hull[-2], (m, c)):
            hull.pop()
        hull.append((m, c))
    x, y = np.array(hull).T
    return np.interp(at, x, y)


def knot_sums(path, found):
    """Length and misses of all groups together at every knot, up to the last that the fitting images asked for."""
    known = np.isin(path.points, found.edges).all(axis=0)
    knots = path.points[:, : len(known) if known.all() else known.argmin()]  # beyond, all groups grow by one factor
    index = np.searchsorted(found.edges, knots)
    groups = np.arange(len(knots))[:, None]
    length, missed = found.length[groups, index].sum(axis=0), found.missed[groups, index].sum(axis=0)
    assert missed[-1] == found.missed[:, -1].sum()  # nothing that the fitting images could mend was left out
    return length, missed


def convex_trades(rng, edges=40):
    """Three groups whose misses fall convexly with length: every grid point is a hull vertex."""
    w = np.r_[0.0, np.geomspace(0.01, 1, edges - 1)]
    size = np.array([100.0, 300.0, 50.0])
    decay, share = np.array([3.0, 8.0, 1.5]), np.array([4000.0, 9000.0, 2500.0])
    missed = np.rint(share[:, None] * np.exp(-decay[:, None] * w) * 1000).astype(np.int64)
    return paths.Trades(w, missed, size[:, None] * w, int(1e8))


def test_where_trades_are_convex_every_knot_is_on_the_hull(rng):
    found = convex_trades(rng)
    path = paths.frontier_path(found, Single(), 0.05, 1.0)
    length, missed = knot_sums(path, found)
    assert len(length) > 20
    np.testing.assert_allclose(length, hull_length(found.length, found.missed, missed), rtol=1e-9, atol=1e-9)
    assert (np.diff(path.points, axis=1) >= 0).all()
    assert (path.points[:, 0] == 0).all()
    assert (path.points[:, -1] == found.edges[-1]).all()


def test_trades_are_clipped_lengths_and_misses(rng):
    """On images: what the sums of fixed-point numbers say is what the intervals say."""
    truth, band = heteroscedastic(6, rng, size=8, dtype=np.float64)
    labels = np.arange(64).reshape(8, 8) % 2
    found = paths.trades(CalibrationData(truth, band), np.arange(6), Partition(labels))
    for e in range(0, len(found.edges), 50):
        w = found.edges[e]
        lower, upper = np.clip(band.lower - w, 0, 1), np.clip(band.upper + w, 0, 1)
        for k in range(2):
            mine = np.broadcast_to(labels == k, truth.shape)
            added = (upper - lower - band.width)[mine].sum()
            assert found.length[k, e] == pytest.approx(added, abs=1e-6)
            assert found.missed[k, e] == ((truth < band.lower - w) | (truth > band.upper + w))[mine].sum()


def test_on_images_the_frontier_is_the_shortest_for_its_risk():
    """Against a brute-force search over pairs of widenings, on the images that the path was fitted on."""
    truth, band = heteroscedastic(30, np.random.default_rng(3), size=8, dtype=np.float64)
    narrow = np.arange(64).reshape(8, 8) < 32
    wide = np.where(narrow, 0.0, 0.1)
    band = pb.Band(np.maximum(band.lower - wide, 0), np.minimum(band.upper + wide, 1))
    pairs = CalibrationData(truth, band)
    found = paths.trades(pairs, np.arange(30), Partition((~narrow).astype(np.int32)))
    path = paths.frontier_path(found, Single(), 0.1, 1.0)
    length, missed = knot_sums(path, found)
    every = found.length[0][:, None] + found.length[1][None]
    left = found.missed[0][:, None] + found.missed[1][None]
    for j in range(0, len(length), 25):
        assert length[j] <= every[left <= missed[j]].min() * 1.02 + 1e-9
    one = int(np.searchsorted(-found.missed.sum(axis=0), -0.05 * found.entries))
    at = int(np.searchsorted(-missed, -0.05 * found.entries))
    assert length[at] < 0.97 * found.length[:, one].sum()


# ---------------------------------------------------------------- the paper's Figure 1

SYMMETRIC, ASYMMETRIC = (-1.0, 1.0), (-2.0, 0.75)


@pytest.mark.parametrize("method", ["krcps", "frontier"])
def test_two_groups_get_the_gain_of_figure_1_where_there_is_one(method):
    lengths = {}
    for mu, seed in product((SYMMETRIC, ASYMMETRIC), range(5)):
        truth = np.random.default_rng(seed).normal(mu, 1, (640, 2))
        band = pb.Band(np.full((640, 2), -1.0), np.full((640, 2), 1.0))
        words = {"risk_level": 0.1, "bound": "hoeffding_bentkus", "limits": None, "seed": seed}
        one = flat_calibrate(truth, band, method="rcps", **words)
        two = flat_calibrate(truth, band, method=method, groups=np.array([0, 1]), n_fit=160, **words)
        lengths.setdefault(mu, []).append([cal.apply(band).length.mean() for cal in (one, two)])
    gain = {mu: 1 - np.mean(found, axis=0)[1] / np.mean(found, axis=0)[0] for mu, found in lengths.items()}
    assert gain[ASYMMETRIC] > 0.06
    assert abs(gain[SYMMETRIC]) < 0.03


# ---------------------------------------------------------------- shorter


def draws(words, count, n=320, size=16, level=0.1):
    """Mean length and risk of 300 held-out images for each of some draws of a heteroscedastic set: (draws, 2)."""
    out = []
    for draw in range(count):
        rng = np.random.default_rng([2024, draw])
        truth, band = heteroscedastic(n, rng, size=size)
        fresh, fresh_band = heteroscedastic(300, rng, size=size)
        interval = flat_calibrate(truth, band, risk_level=level, failure_prob=0.1, seed=draw, **words).apply(fresh_band)
        out.append([interval.length.mean(), 1 - interval.contains(fresh).mean()])
    return np.array(out)


def test_frontier_and_betting_are_shorter_than_the_papers_at_a_controlled_risk():
    paper = draws({"method": "krcps", "bound": "hoeffding_bentkus"}, 10)
    ours = draws({"method": "frontier", "bound": "betting", "groups": "band"}, 10)
    assert ours[:, 0].mean() <= 0.92 * paper[:, 0].mean()
    assert (ours[:, 0] < paper[:, 0]).all()
    for found in (paper, ours):
        risk = found[:, 1]
        assert risk.mean() <= 0.1
        assert binom.sf((risk > 0.1).sum() - 1, 10, 0.1) > 0.01  # so many violations are likely at delta = 0.1


@pytest.mark.parametrize("method", ["rcps", "krcps", pb.Frontier(groups="band")], ids=["rcps", "krcps", "frontier"])
@pytest.mark.parametrize("scale", [1e-12, 1e-8, 1e9])
def test_without_limits_intervals_follow_the_scale_of_the_data(method, scale):
    """The grid of widenings began at 2**-20: intervals of values of 1e-8 were fifty times too long."""
    rng = np.random.default_rng(0)
    middle = rng.uniform(5, 10, (200, 8))
    truth = middle + rng.standard_normal(middle.shape)
    lengths = []
    for unit in (1.0, scale):
        band = pb.Band(unit * (middle - 1), unit * (middle + 1))
        interval = pb.calibrate(unit * truth, band, risk_level=0.1, method=method, limits=None).apply(band)
        lengths.append(float(interval.length.mean()) / unit)
    assert lengths[1] < 1.06 * lengths[0]
