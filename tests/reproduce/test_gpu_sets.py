"""What travels to a GPU and back: no scan is on two sides, and bands go outward."""

import numpy as np
import pytest

pytest.importorskip("torch")

from reproduce.gpu import chest, coded_bands, sets
from reproduce.splits import split_images


def test_scans_train_choose_or_are_measured():
    scan = np.repeat(np.arange(180), 27)
    parts = sets.parts(scan, 384)
    scans = [set(scan[numbers]) for numbers in vars(parts).values()]
    assert len(set.union(*scans)) == sum(map(len, scans))
    assert len(parts.measured) == 384
    assert set(parts.measured) <= set(split_images(len(scan), held_out=768, tune=564, units=scan)["held_out"])


def test_chest_slices_are_split_by_patient():
    patients = np.repeat(np.arange(18), 5)
    found = chest.split(patients)
    who = [set(patients[found[name]].tolist()) for name in chest.PARTS]
    assert [len(x) for x in who] == [10, 1, 7]
    assert sum(map(len, who)) == len(set.union(*who)) == 18
    alone, together = chest.observe(np.zeros((9, 3, 3), np.uint8), np.array([4])), np.arange(9)
    np.testing.assert_array_equal(alone[0], chest.observe(np.zeros((9, 3, 3), np.uint8), together)[4])


def test_bands_come_back_in_files(tmp_path):
    ends = np.random.default_rng(0).random((2, 9, 3, 3)).astype(np.float32)
    lower, upper = ends.min(axis=0), ends.max(axis=0)
    numbers = np.arange(9) * 7
    kept = coded_bands.CodedBands(tmp_path, "ours-1", numbers, 4)
    for low, high in zip(lower, upper, strict=True):
        kept.add({19: coded_bands.codes(low, high)})
    kept.write()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"ours-1-{i}.npz" for i in range(3)]
    [(samples, read, low, high)] = coded_bands.decoded(tmp_path, "ours-1")
    assert samples == 19
    np.testing.assert_array_equal(read, numbers)
    assert (low <= lower).all()
    assert (high >= upper).all()
    assert (high - low <= upper - lower + 2 / 2048 + 1e-6).all()
