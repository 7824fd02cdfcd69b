"""The table of losses: in memory or on disk the same bits, and memory that does not grow with the images."""

import os
import tracemalloc

import numpy as np
import pytest
from flat import flat_calibrate
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds import execution
from pixelbounds.calibration import certify
from pixelbounds.calibration.certify import tabulated
from pixelbounds.calibration.paths.path import misses
from pixelbounds.images.library import Runner, set_runner
from pixelbounds.images.ragged import Ragged

N = 200


@pytest.fixture
def small_room(tmp_path, monkeypatch):
    """So little memory that every table goes to disk, and the list of files that were made."""
    made, real = [], certify.tempfile.TemporaryFile

    def noted(*place, **how):
        file = real(*place, **how)
        if how.get("buffering") == 0:  # a table's; a compiler has files of its own
            made.append(file)
        return file

    monkeypatch.setattr(certify.tempfile, "TemporaryFile", noted)
    runner = Runner()
    runner.table_bytes = 20_000
    runner.scratch = tmp_path
    reset = set_runner(runner)
    yield made
    reset()


@pytest.mark.parametrize("most", [0, 500, 10**9])
def test_columns_are_those_of_the_rows(most, tmp_path, rng):
    rows = rng.integers(0, 2**31 - 1, (300, 7), dtype=np.int32)
    data = pb.CalibrationData(np.zeros((300, 2)), pb.Band(np.zeros((300, 2)), np.ones((300, 2))))
    data.runner = Runner()
    data.runner.table_bytes, data.runner.scratch = most, tmp_path
    cuts = np.sort(rng.integers(0, 300, 12))
    data.parts = lambda statistic, **_: ((part, part[:, 0]) for part in np.split(rows, cuts))
    table, (others,) = tabulated(data, misses)
    np.testing.assert_array_equal(table, rows.T)
    np.testing.assert_array_equal(others, rows[:, 0])
    assert isinstance(table, np.memmap) == (most < rows.nbytes)
    assert not list(tmp_path.iterdir())


HOWS = {
    "betting": {"groups": "band"},
    "order between knots": {"groups": "band", "bound": "hoeffding_bentkus"},
    "variance": {"method": "rcps", "bound": "empirical_bernstein"},
    "units": {"groups": "band", "units": np.arange(N) // 2},
    "units, mean": {"method": "rcps", "bound": "bentkus", "units": np.arange(N) // 3},
    "line": {"method": "krcps"},
}


@pytest.mark.parametrize("ragged", [False, True], ids=["one size", "ragged"])
@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
def test_a_table_on_disk_changes_no_bit(how, ragged, tmp_path, small_room):
    truth, band = heteroscedastic(N, np.random.default_rng(1), size=8)
    if ragged:
        if how.get("method") == "krcps":
            how = {**how, "method": "rcps"}  # krcps needs one grid
        truth, band = Ragged(list(truth)), band.map(lambda x: Ragged(list(x)))
    how = {"risk_level": 0.3, **how}
    found = flat_calibrate(truth, band, **how)
    assert len(small_room) == 1
    assert small_room[0].closed
    reset = set_runner(Runner())
    assert flat_calibrate(truth, band, **how).to_bytes() == found.to_bytes()
    reset()
    assert len(small_room) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(4))
def test_more_ends_between_two_knots_than_memory_holds(seed, monkeypatch):
    """A finer path between the two knots leads to the same place."""
    truth, band = heteroscedastic(N, np.random.default_rng(seed), size=16, dtype=np.float64)
    how = {"risk_level": 0.2, "method": "rcps", "bound": "hoeffding_bentkus"}
    wanted = flat_calibrate(truth, band, **how)
    monkeypatch.setattr(certify, "_MOST_ENDS", 2)  # some twenty lie between two knots
    paths = []
    real = certify.Path.between
    monkeypatch.setattr(certify.Path, "between", lambda *given: paths.append(real(*given)) or paths[-1])
    found = flat_calibrate(truth, band, **how)
    assert len(paths) == 1
    assert found.risk == pytest.approx(wanted.risk, abs=1e-14)
    np.testing.assert_allclose(found.widening, wanted.widening, rtol=1e-12)
    inside = found.apply(band).contains(truth)
    assert 1 - inside.mean() <= found.risk + 1e-12  # nothing that was counted is lost to rounding


def test_nothing_is_left_after_an_error(tmp_path, small_room):
    truth, band = heteroscedastic(N, np.random.default_rng(1), size=20)
    truth[N - 2, 0, 0] = np.nan  # found in the last block of the pass, not among the images that tell scales
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    with pytest.raises(ValueError, match=f"image {N - 2}"):
        pb.calibrate(truth, band, risk_level=0.3, method="rcps")
    assert [file.closed for file in small_room] == [True]
    assert not list(tmp_path.iterdir())
    assert not before or len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.filterwarnings("ignore:.*have the truth of another one")
def test_memory_does_not_grow_with_the_images(tmp_path):
    """Four times as many images, a table of 33 MB instead of 8: some bytes per image more, not 8 kB."""

    def peak(n, memory):
        truth, band = heteroscedastic(250, np.random.default_rng(1), size=16)
        for name, x in {"truth": truth, "lower": band.lower, "upper": band.upper}.items():
            np.save(tmp_path / f"{name}.npy", np.tile(x, (n // 250, 1, 1)))
        truth, lower, upper = (np.load(tmp_path / f"{x}.npy", mmap_mode="r") for x in ("truth", "lower", "upper"))
        tracemalloc.start()
        try:
            with execution.running(memory=memory, threads=1):
                pb.calibrate(truth, pb.Band(lower, upper), risk_level=0.3, method="rcps")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many, held = peak(1000, "8M"), peak(4000, "8M"), peak(4000, "1G")
    assert many - few < 3000 * 500
    assert held - many > 15e6  # what it would take in memory
