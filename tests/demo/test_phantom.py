"""The phantom keeps its promises: same seed same bits, organs where and what they should be, any size."""

import numpy as np
import pytest

from pixelbounds.demo.phantom import ORGANS, phantoms

LABEL = {name: label for label, name in enumerate(ORGANS)}
MEDIAN_RANGE = {  # Hounsfield units over all contrast phases
    "air": (-1010, -990),
    "fat": (-115, -60),
    "muscle": (25, 70),
    "bone": (200, 700),
    "liver": (50, 120),
    "spleen": (45, 140),
    "kidney": (90, 200),
    "aorta": (80, 320),
    "vena cava": (50, 150),
    "bowel": (0, 90),
    "gas": (-1000, -800),
    "disc": (70, 110),
    "gallbladder": (0, 35),
    "pancreas": (30, 100),
    "spinal canal": (5, 60),
    "lung": (-900, -700),
}


@pytest.fixture(scope="module")
def many():
    return phantoms(200, 64, seed=11)


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("hounsfield", "organs", "units"))


@pytest.mark.parametrize("per_patient", [1, 4])
def test_a_slice_depends_on_seed_and_number_alone(per_patient):
    whole = phantoms(15, 48, 5, slices_per_patient=per_patient)
    part = phantoms(10, 48, 5, first=5, slices_per_patient=per_patient)
    assert np.array_equal(part.hounsfield, whole.hounsfield[5:])
    assert np.array_equal(part.organs, whole.organs[5:])
    assert np.array_equal(part.units, whole.units[5:])
    assert same(phantoms(3, 48, 5, slices_per_patient=per_patient), phantoms(3, 48, 5, slices_per_patient=per_patient))


def test_every_organ_occurs_and_has_its_density(many):
    assert set(np.unique(many.organs)) == set(range(len(ORGANS)))
    for name, (low, high) in MEDIAN_RANGE.items():
        median = np.median(many.hounsfield[many.organs == LABEL[name]])
        assert low <= median <= high, (name, median)


@pytest.mark.parametrize("size", [8, 33, 96, (40, 64), (64, 40), (130, 200), 512])
def test_sizes(size):
    one = phantoms(2, size, seed=1)
    assert one.hounsfield.shape == (2, *(size if isinstance(size, tuple) else (size, size)))
    assert np.isfinite(one.hounsfield).all()
    assert {LABEL["fat"], LABEL["muscle"], LABEL["bone"]} <= set(np.unique(one.organs)) or size == 8
    assert not np.isin(one.organs[:, :, [0, -1]], [LABEL["fat"], LABEL["skin"]]).any()


def test_images_are_windowed():
    one = phantoms(1, 32)
    assert one.images.dtype == np.float32
    assert (one.images.min(), one.images.max()) == (0, 1)
    at = np.abs(one.hounsfield - 40) < 150
    np.testing.assert_allclose(one.images[at], (one.hounsfield[at] + 160) / 400, rtol=1e-6)
