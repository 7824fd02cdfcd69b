"""Who trains and who is measured on a GPU: no scan and no patient is on two sides."""

import numpy as np
import pytest

pytest.importorskip("torch")

from reproduce.gpu import sets
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
    who = [set(patients[numbers].tolist()) for numbers in vars(sets.patient_parts(patients)).values()]
    assert [len(x) for x in who] == [10, 1, 7]
    assert sum(map(len, who)) == len(set.union(*who)) == 18
