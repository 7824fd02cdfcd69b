"""Calibration files of format 1, written by the last version: they are read, and their sentence says what they lack.

`format_1/` holds files of synthetic images, and `intervals.npz` what that version gave for the first three of them.
"""

from pathlib import Path

import numpy as np
import pytest
from worlds import heteroscedastic

import pixelbounds as pb

FOLDER = Path(__file__).parent / "format_1"
SIZE, N = 6, 40
_, BAND = heteroscedastic(N, np.random.default_rng(0), size=SIZE, dtype=np.float64)
LABELS = np.broadcast_to(np.arange(SIZE) // 2, (3, SIZE, SIZE)).astype(np.int64)
NAMES = sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def first_three(name):
    """The band that a calibration was made for, and what else it needs."""
    source = pb.Source("calibrated quantiles", samples=19, miscoverage=0.1) if name == "band" else pb.Source()
    band = pb.Band(BAND.lower[:3], BAND.upper[:3], source=source)
    return band, {"labels": LABELS} if name == "segmentation" else {}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_format_1_gives_the_same_intervals(name):
    cal = pb.load_calibration(FOLDER / f"{name}.safetensors")
    band, given = first_three(name)
    interval = cal.apply(band, **given)
    with np.load(FOLDER / "intervals.npz") as before:
        np.testing.assert_allclose(interval.lower, before[f"{name}.lower"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(interval.upper, before[f"{name}.upper"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_its_sentence_says_what_is_not_known_also_when_it_is_written_again(name, tmp_path):
    cal = pb.load_calibration(FOLDER / f"{name}.safetensors")
    assert "what the numbers stand for (a window, a unit) was not kept" in cal.guarantee
    if name == "band":
        assert "miscoverage 1/10; of how many samples is not known here" in cal.guarantee
    else:
        assert "how is not known here, so it cannot be checked" in cal.guarantee
    if name == "units":
        assert "a future unit, averaged over its images," in cal.guarantee
    cal.save(tmp_path / "again.safetensors")
    again = pb.load_calibration(tmp_path / "again.safetensors")
    assert again.guarantee == cal.guarantee
    assert again.to_bytes() == cal.to_bytes()
