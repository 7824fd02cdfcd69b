"""Losses of a user's own among promises: the walk is the literal one at fixed points, and few of them are visited."""

from dataclasses import replace

import numpy as np
import pytest
from flat import flat_calibrate
from refusals import refuses
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.calibration import certify
from pixelbounds.calibration.calibration_file import calibration_from_bytes

N = 120


def data(n=N):
    return heteroscedastic(n, np.random.default_rng(7), size=8, dtype=np.float64)


class Rows:
    """The share of rows of an image with a missed pixel, and how often it was asked."""

    __name__ = "rows with a miss"

    def __init__(self):
        self.images = 0

    def __call__(self, truth, interval):
        self.images += len(truth)
        return (~interval.contains(truth)).any(axis=2).mean(axis=1)


def noted(monkeypatch):
    """What certifying was given, and the points at which own losses are tested."""
    seen = {}
    certified, points = certify.certify, certify.points_to_test
    monkeypatch.setattr(certify, "points_to_test", lambda *how: seen.setdefault("points", points(*how)))
    monkeypatch.setattr(
        "pixelbounds.calibration.calibration.certify",
        lambda table, target: (seen.update(path=table.path, images=table.images), certified(table, target))[1],
    )
    return seen


@pytest.mark.parametrize("confidence", ["betting", "hoeffding_bentkus"])
@pytest.mark.parametrize("method", ["rcps", "frontier"])
def test_the_walk_is_the_literal_one_at_fixed_points(method, confidence, monkeypatch):
    truth, band = data()
    seen = noted(monkeypatch)
    loss, group = Rows(), np.arange(N) % 4 > 0
    how = {"groups": "band"} if method == "frontier" else {}
    promises = [pb.share(0.3), pb.loss(0.5, loss), pb.loss(0.45, loss, within=group, cap=0.9, name="group")]
    cal = flat_calibrate(truth, band, promises=promises, method=method, bound=confidence, **how)
    path, units_certifying = seen["path"], seen["images"]
    bound = getattr(pb.bounds, confidence)

    def passes(knot):
        interval = replace(cal, widening=path.points[:, knot].copy()).apply(band)
        rows = (~interval.contains(truth)).any(axis=2).mean(axis=1)
        share = (~interval.contains(truth)).mean(axis=(1, 2))
        order, own = units_certifying.order, units_certifying.order[group[units_certifying.order]]
        return (
            bound(share[order], 0.1) < 0.3,
            bound(rows[order], 0.1) < 0.5 and bound(np.minimum(rows[own], 0.9) / 0.9, 0.1) < 0.5,
        )

    knot = next(k for k in range(len(path)) if (path.points[:, k] == cal.widening).all())
    points = seen["points"]
    assert points[-1] == len(path) - 1
    assert all(passes(k)[1] for k in points if k >= knot)
    assert passes(knot)[0]
    before = points[points < knot]
    assert not passes(knot - 1)[0] or not passes(before[-1])[1]  # the next one fails
    for found, mean in zip(cal.promises[1:], (slice(None), group), strict=True):
        interval = cal.apply(band)
        counted = np.isin(np.arange(N), units_certifying.order) & (
            np.arange(N) >= 0 if isinstance(mean, slice) else mean
        )
        assert found.risk == pytest.approx(np.minimum(Rows()(truth, interval)[counted], found.cap).mean(), abs=1e-12)
        assert found.certifying == counted.sum()
    assert calibration_from_bytes(cal.to_bytes()).to_bytes() == cal.to_bytes()
    assert 'the loss "rows with a miss" of a future image is on average at most 0.5' in cal.guarantee
    assert 'the loss "group" of a future image in its subgroup is on average at most 0.45 (an image' in cal.guarantee
    if method == "frontier":
        assert loss.images < 2 * 40 * N  # of some two thousand knots


def test_losses_of_counts_cost_no_pass_and_equal_those_that_see_images():
    truth, band = data()
    mask = truth > 0.4
    mask[::5] = False
    promises = [pb.loss(0.3, lambda missed, size: missed / size, within=mask, counts=True, name="m")]
    same = [pb.share(0.3, within=mask, name="m")]
    ours, plain = (pb.calibrate(truth, band, promises=p, method=pb.Frontier(groups="band")) for p in (promises, same))
    assert (ours.widening == plain.widening).all()
    assert ours.promises[0].risk == plain.promises[0].risk
    assert 'the loss "m" of a future image with its region is on average at most 0.3' in ours.guarantee
    seen = pb.evaluate(truth, ours.apply(band), promises=[*promises, pb.loss(0.5, Rows())])
    wanted = pb.evaluate(truth, ours.apply(band), promises=same)
    assert seen.promises[0].risk == wanted.promises[0].risk
    assert seen.promises[1].risk == pytest.approx(Rows()(truth, ours.apply(band)).mean())


def test_what_cannot_be_a_loss_is_refused():
    truth, band = data(60)

    def calibrate(promise):
        return pb.calibrate(truth, band, promises=[pb.share(0.3), promise], method="rcps")

    refuses(lambda: pb.loss(0.1, "l01"), "function is 'l01'", error=TypeError)
    refuses(lambda: pb.loss(0.1, Rows(), weighting="pixels"), "one number for each image")
    refuses(lambda: calibrate(pb.loss(0.5, Rows(), within=truth > 0.5)), "one bool per image", "counts=True")
    refuses(lambda: calibrate(pb.loss(0.5, lambda x, i: 1.0)), "returned shape ()")
    refuses(lambda: calibrate(pb.loss(0.5, lambda x, i: 2 + x.mean(axis=(1, 2)))), "loss")
    rising = pb.loss(0.9, lambda x, i: np.minimum(i.length.mean(axis=(1, 2)), 0.5), name="length")
    refuses(lambda: calibrate(rising), "'length' rises where intervals widen")
    refuses(lambda: calibrate(pb.loss(0.9, lambda missed, size: 0.5 - missed / size / 2, counts=True)), "rises where")


def test_pixels_of_any_channel_are_certified_in_one_pass_wherever_channels_lie(monkeypatch):
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.2, 0.8, (120, 8, 8, 3))
    truth = centre + 0.05 * rng.standard_normal(centre.shape)
    monkeypatch.setattr(pb.losses.AnyChannel, "__call__", None)  # a pass for each point would call it
    made = {}
    for name, axes in {"last": (0, 1, 2, 3), "first": (0, 3, 1, 2)}.items():
        x, c = truth.transpose(axes), centre.transpose(axes)
        asked = [pb.loss(0.2, pb.losses.any_channel())]
        made[name] = pb.calibrate(x, pb.Band(c - 0.05, c + 0.05), promises=asked, method="rcps", limits=None)
    np.testing.assert_array_equal(made["last"].widening, made["first"].widening)
    interval = made["last"].apply(pb.Band(centre - 0.05, centre + 0.05))
    missed = ((truth < interval.lower) | (truth > interval.upper)).any(axis=-1)
    assert made["last"].promises[0].risk == pytest.approx(missed.mean(), abs=1e-12)
    assert missed.mean() < 0.2


def test_rows_are_no_channels():
    x = np.zeros((4, 8, 8, 3))
    interval = pb.Interval(x, x + 1)
    assert pb.losses.any_channel()(x, interval).shape == (4,)
    with pytest.raises(ValueError, match=r"axis 1 of .* holds no channels, axis 3 does"):
        pb.losses.any_channel(1)(x, interval)
    with pytest.raises(ValueError, match="give the axis of the channels"):
        pb.losses.any_channel()(x[..., 0], pb.Interval(x[..., 0], x[..., 0]))
