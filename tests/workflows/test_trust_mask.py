"""The trust mask: short intervals and no open end, the same in every file, and a sentence that claims no more."""

from dataclasses import replace

import numpy as np
import pytest
from medical import hounsfield, nibabel, pydicom, to_unit, write_dicom, write_nifti

import pixelbounds as pb
from pixelbounds.calibration.text import trust_in_words
from pixelbounds.formats.arrays import Arrays
from pixelbounds.images.measure import Tolerance
from pixelbounds.workflows.apply import apply_files
from pixelbounds.workflows.request import ApplyOptions

HU = pb.Measure.of_window((400, 40))
LIMIT = 40.0  # HU


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A calibration that widens nothing, seen through a window, a scan, and a band about it, open at some pixels."""
    folder = tmp_path_factory.mktemp("trust")
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.3, 0.7, (60, 7, 6))
    band = pb.Band(truth - rng.uniform(0.01, 0.1, truth.shape), truth + rng.uniform(0.01, 0.1, truth.shape))
    calibration = replace(pb.calibrate(truth, band, risk_level=0.2, method="rcps"), measure=HU)
    calibration.save(folder / "cal.safetensors")
    values = hounsfield()
    write_nifti(folder / "scan.nii.gz", values)
    write_dicom(folder / "series", values)
    middle = to_unit(values).astype(np.float32)
    ends = [np.clip(middle + sign * rng.uniform(0.01, 0.1, middle.shape), 0, 1).astype(np.float32) for sign in (-1, 1)]
    np.savez(folder / "bands.npz", lower=ends[0], upper=ends[1])
    interval = calibration.apply(pb.Band(*ends))
    return folder, interval, interval.trust_mask(LIMIT, calibration.measure)


def test_short_and_closed_is_what_the_mask_says(given):
    _, interval, mask = given
    lower, upper = (np.asarray(x, np.float64) for x in (interval.lower, interval.upper))
    closed = (lower > 1e-6) & (upper < 1 - 1e-6)
    short = 400 * (upper - lower) <= LIMIT
    assert np.array_equal(mask, short & closed)
    assert (short & ~closed).any(), "open ends that look short are what the test is about"
    assert mask.any()
    assert np.array_equal(interval.trust_mask(LIMIT / 400), short)  # without a measure limits are no window
    assert not interval.trust_mask(1e9, HU)[~closed].any()
    pieces = pb.Interval([lower[0], lower[1, :4]], [upper[0], upper[1, :4]]).trust_mask(LIMIT, HU)
    assert [x.tolist() for x in pieces] == [mask[0].tolist(), mask[1, :4].tolist()]
    torch = pytest.importorskip("torch")
    tensor = pb.Interval(torch.from_numpy(lower), torch.from_numpy(upper)).trust_mask(LIMIT, HU)
    assert tensor.dtype == torch.bool
    assert np.array_equal(tensor.numpy(), mask)
    with pytest.raises(ValueError, match="tolerance is -1"):
        interval.trust_mask(-1)


@pytest.mark.parametrize("name", ["a.npz", "a.zarr", "a.nii.gz", "dicom"])
def test_the_mask_is_the_same_in_every_file(given, tmp_path, name):
    folder, _, mask = given
    like = {"a.nii.gz": folder / "scan.nii.gz", "dicom": folder / "series"}.get(name)
    options = ApplyOptions(tolerance=LIMIT, like=like)
    done = apply_files(folder / "cal.safetensors", folder / "bands.npz", tmp_path / name, options)
    if name == "a.npz":
        found = np.load(tmp_path / name)["trusted"]
    elif name == "a.zarr":
        found = np.asarray(Arrays(tmp_path / name)["trusted"][:])
    elif name == "dicom":
        slices = [pydicom.dcmread(x) for x in sorted((tmp_path / name).glob("scan_1*/trusted/*"))]
        found = np.stack([x.pixel_array for x in slices])
        assert "does not say that it holds the truth" in slices[0].ImageComments
    else:
        found = np.asarray(nibabel.load(tmp_path / "a_trusted.nii.gz").dataobj).transpose(2, 1, 0)
    assert np.array_equal(found.astype(bool), mask)
    assert done.trusted_share == pytest.approx(mask.mean())


def test_the_sentence_claims_no_more_than_follows(given):
    """All misses may lie in the mask: there are worlds in which they do, and the sentence allows for them."""
    rng = np.random.default_rng(1)
    truth = rng.uniform(size=(400, 20))
    lower, upper = np.zeros_like(truth), np.ones_like(truth)
    lower[:, :4], upper[:, :4] = truth[:, :4] + 0.001, truth[:, :4] + 0.05  # short, and always wrong
    lower[:, 1:4] -= 0.01
    cal = pb.calibrate(truth[:300], pb.Band(lower[:300], upper[:300]), risk_level=0.1, method="rcps", limits=None)
    interval = cal.apply(pb.Band(lower[300:], upper[300:]))
    mask = interval.trust_mask(0.2)
    ev = pb.evaluate(truth[300:], interval, calibration=cal)
    inside = pb.evaluate(truth[300:], interval, promises=[pb.share(0.1, within=mask, name="trusted")]).promises[0]
    assert ev.risk <= 0.1 < inside.interval[0]  # the promise is kept, and broken within the mask
    assert inside.risk == pytest.approx(0.25, abs=0.01)
    assert inside.risk <= 0.1 / mask.mean()
    words = trust_in_words(cal, mask.mean())
    assert "up to 50%" in words
    assert "leaves room for all of these" in trust_in_words(cal, 0.05)
    # two units count the same, and the large one misses every pixel that is judged: no share of these follows
    by_unit = pb.calibrate(
        truth[:300], pb.Band(lower[:300], upper[:300]), risk_level=0.1, method="rcps", limits=None,
        units=np.arange(300) // 2,
    )  # fmt: skip
    assert "leaves room" not in trust_in_words(by_unit, mask.mean())
    assert str(Tolerance(0.2)) == "at most 0.2 long"
