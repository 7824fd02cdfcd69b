"""The monitor: order of arrival, what it counts of each promise, and its file."""

import sys

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.calibration.provenance import CalibrationImages
from pixelbounds.monitoring.promise_monitors import PromiseMonitor, rounds_of, update_promises
from pixelbounds.monitoring.state_file import monitor_bytes, monitor_from_bytes

N = 300


@pytest.fixture(scope="module")
def world():
    """Images with a region, a band that is as wide as its error, and a calibration of four promises."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=(N, 6, 6)).astype(np.float32)
    centre = truth + 0.1 * rng.standard_normal(truth.shape).astype(np.float32)
    band = pb.Band(centre - 0.1, centre + 0.1)
    region = np.zeros(truth.shape, bool)
    region[:, 1:4, 1:4] = True
    old = np.arange(N) % 2 == 0
    promises = [
        pb.share(0.15),
        pb.share(0.2, within=region[:200], name="heart"),
        pb.tail(0.3, above=0.3),
        pb.share(0.15, cap=0.5, within=old[:200], name="old"),
    ]
    cal = pb.calibrate(truth[:200], band[:200], promises=promises, method=pb.Frontier(groups="band", n_fit=20))
    return cal, truth, band, {"heart": region, "old": old}


def within(regions, start, stop):
    return {name: x[start:stop] for name, x in regions.items()}


def test_pieces_are_the_whole(world):
    cal, truth, band, regions = world
    whole = pb.Monitor(cal)
    whole.update(truth[200:], band[200:], within=within(regions, 200, N))
    whole.check_drift(band[200:])
    pieces = pb.Monitor(cal)
    for start, stop in ((200, 230), (230, 231), (231, N)):
        pieces.update(truth[start:stop], band[start:stop], within=within(regions, start, stop))
        pieces.check_drift(band[start:stop])
        pieces = monitor_from_bytes(monitor_bytes(pieces))
    assert pieces.status() == whole.status()
    assert [promise.units for promise in pieces.status().promises] == [100, 100, 100, 50]


def test_an_update_costs_the_same_however_much_was_seen():
    """Work is counted in calls of functions and in bytes of the state, which no other program slows down."""
    rng = np.random.default_rng(0)

    def images(n):
        centre = rng.uniform(0.2, 0.8, (n, 4, 4)).astype(np.float32)
        return centre + rng.normal(scale=0.05, size=centre.shape).astype(np.float32), pb.Band(
            centre - 0.1, centre + 0.1
        )

    monitor = pb.Monitor(pb.calibrate(*images(60), risk_level=0.3, method="rcps"))
    costs = []
    for seen in (100, 20_000):
        monitor.update(*images(seen))
        one, calls = images(1), []
        sys.setprofile(lambda frame, event, arg, calls=calls: calls.append(event))
        try:
            monitor.update(*one)
        finally:
            sys.setprofile(None)
        costs.append((len(calls), len(monitor_bytes(monitor))))
    (few, small), (many, large) = costs
    assert few > 500  # something was counted
    assert many <= 1.05 * few
    assert large <= small + 1000


def test_what_is_seen_of_a_promise_is_what_an_evaluation_sees(world):
    cal, truth, band, regions = world
    status = pb.Monitor(cal).update(truth[200:], band[200:], within=within(regions, 200, N))
    asked = [
        pb.share(0.15),
        pb.share(0.2, within=regions["heart"][200:], name="heart"),
        pb.tail(0.3, above=0.3),
        pb.share(0.15, cap=0.5, within=regions["old"][200:], name="old"),
    ]
    seen = pb.evaluate(truth[200:], cal.apply(band[200:]), promises=asked, calibration=cal).promises
    assert np.allclose([x.risk for x in status.promises], [x.risk for x in seen])
    assert not status.alarm


def test_a_region_that_is_broken_is_named(world):
    cal, truth, band, regions = world
    worse = truth[200:].copy()
    worse[regions["heart"][200:]] = 1 - worse[regions["heart"][200:]]
    status = pb.Monitor(cal).update(worse, band[200:], within=within(regions, 200, N))
    assert status.alarm
    assert status.promises[1].broken
    assert "heart" in status.sentence
    assert status.promises[1].interval[0] > 0.2


@pytest.mark.parametrize("weighting", ["units", "images", "pixels"])
def test_units_count_as_they_did_at_calibration(rng, weighting):
    unit_of = np.sort(rng.integers(0, 8, 40))
    losses, sizes = rng.random(40), rng.integers(0, 30, 40).astype(float)
    counts = sizes > 3
    most = {"units": 0.0, "images": 3.0, "pixels": 40.0}[weighting]
    promise = pb.calibration.promises.CertifiedPromise(
        "share", "x", "region", 0.2, 0.0, 1.0, weighting, most, 0.1, 8
    )  # fmt: skip
    rounds = rounds_of(promise, losses, sizes, counts, unit_of)
    assert list(rounds) == [unit for unit in range(8) if (counts & (unit_of == unit)).any()]
    for unit, (loss, weight) in rounds.items():
        here = counts & (unit_of == unit)
        weights = sizes[here] if weighting == "pixels" else np.ones(here.sum())
        assert loss == pytest.approx(np.average(losses[here], weights=weights))
        assert weight == (1 if weighting == "units" else min(weights.sum(), most) / most)


def test_pooled_weights_may_have_any_sum(rng, tmp_path):
    """A unit counts for at most the weight of the largest that fitted, which once had to be below 2**53."""
    truth = rng.uniform(size=(120, 4, 4))
    band, weights = pb.Band(truth - 0.3, truth + 0.3), 1e20 * rng.uniform(size=truth.shape)
    asked = [pb.share(0.2, within=weights, name="w", weighting="pixels")]
    cal = pb.calibrate(truth, band, promises=asked, limits=None, method=pb.RCPS(n_fit=20))
    assert cal.promises[0].most > 2**53
    cal.save(tmp_path / "cal.safetensors")
    monitor = pb.Monitor(pb.load_calibration(tmp_path / "cal.safetensors"))
    monitor.update(rng.uniform(size=truth.shape), band, within={"w": weights})
    assert monitor_bytes(monitor_from_bytes(monitor_bytes(monitor))) == monitor_bytes(monitor)


def test_the_alarm_is_raised_by_the_mean_e_value_and_by_none_alone(world):
    """Of two promises one is broken: its e-value must be twice as great as if it were alone."""
    monitors = tuple(map(PromiseMonitor, world[0].promises[:2]))
    bad, good = ({0: (loss, 1.0)} for loss in (0.4, 0.1))
    greatest, mean = [], []
    for _ in range(200):
        monitors, reached = update_promises(monitors, [bad, good], 0.1)
        logs = np.array([monitor.e_process.log_e_value for monitor in monitors])
        greatest.append(logs.max() >= np.log(10))
        mean.append(np.exp(logs).mean() >= 10)
        assert reached == mean[-1]
    assert greatest.index(True) < mean.index(True)


def test_units_that_return_do_not_count(rng):
    truth = rng.uniform(size=(240, 5, 5))
    band = pb.Band(np.full_like(truth, 0.05), np.full_like(truth, 0.95))
    units = np.arange(240) // 2
    cal = pb.calibrate(truth[:160], band[:160], risk_level=0.2, units=pb.Units(units[:160], "patient"), method="rcps")
    monitor = pb.Monitor(cal)
    assert monitor.update(truth[160:200], band[160:200], units=units[160:200]).promises[0].units == 20
    again = monitor.update(truth[200:], band[200:], units=units[160:200])  # other images of the same patients
    assert (again.repeated, again.late, again.promises[0].units) == (0, 40, 20)
    assert "40 images were left out" in str(again)
    assert "patient" in again.notes[-1]
    assert monitor.check_drift(band[160:], units=units[160:]).drift_images == 80
    assert monitor.drift[0].e_process.rounds == 40
    with pytest.raises(ValueError, match="patient of each image"):
        monitor.update(truth[:2], band[:2])


def test_wider_bands_are_noticed_without_truth_and_usual_ones_are_not(world):
    cal, _, band, _ = world
    monitor = pb.Monitor(cal)
    assert not monitor.check_drift(band[200:]).alarm
    status = monitor.check_drift(pb.Band(band.lower[200:] - 0.02, band.upper[200:] + 0.02))
    assert status.changed
    assert not status.broken
    assert "bands of the last 40 images are wider" in status.sentence
    assert (pb.conformal_p_values(cal, pb.Band(band.lower[200:] - 0.2, band.upper[200:] + 0.2)) == 1 / 181).all()
    shares = np.mean(pb.conformal_p_values(cal, band[200:]) <= 0.1)
    assert shares < 0.3


def test_what_cannot_be_watched_is_said(world):
    cal, truth, band, regions = world
    monitor = pb.Monitor(cal)
    with pytest.raises(ValueError, match="None for one that was not drawn"):
        monitor.update(truth[200:], band[200:])
    with pytest.raises(CalibrationImages):
        monitor.update(truth[100:110], band[100:110], within=within(regions, 100, 110))
    status = monitor.update(truth[200:], band[200:], within={"heart": None, "old": regions["old"][200:]})
    assert status.promises[1].risk is None
    assert "nothing seen yet" in str(status)
