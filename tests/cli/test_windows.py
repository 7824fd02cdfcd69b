"""One window from files to files: numbers that came through another are never written or judged as HU."""

import gzip
import hashlib

import numpy as np
import pytest
from commands import call, done, flat

import pixelbounds as pb
from pixelbounds.formats.inputs import open_bands, open_interval
from pixelbounds.formats.maps import write_interval
from pixelbounds.formats.opener import open_images
from pixelbounds.samplers import sample_function_to

pytest.importorskip("nibabel")
pytest.importorskip("pydicom")
from medical import LPS, write_dicom, write_nifti

SCANS, SHAPE = 24, (2, 6, 5)
WIDE = ("--window", 2000, 0)
RISK = ("--risk-level", 0.3, "--failure-prob", 0.2, "--groups", "band")


def noisy(observation, samples, seed):
    return observation + 0.05 * np.random.default_rng(seed).standard_normal((samples, *observation.shape))


def run_of(path, file, window):
    images = open_images(file, window=window)
    sample_function_to(noisy, images.pixels, path, samples=19, measure=images.measure)
    return images.pixels


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Scans and their run through the usual window; a new scan as NIfTI and DICOM, and its run; all of a wide one."""
    folder = tmp_path_factory.mktemp("windows")
    rng = np.random.default_rng(0)
    for i in range(SCANS):
        write_nifti(folder / "scans" / f"{i:02}.nii.gz", rng.integers(-150, 230, SHAPE).astype(np.int16))
    new = rng.integers(-150, 230, SHAPE).astype(np.int16)
    write_nifti(folder / "new.nii.gz", new)
    write_dicom(folder / "new", new)
    truth = run_of(folder / "run.zarr", folder / "scans", (400.0, 40.0))
    np.save(folder / "truth.npy", truth)
    for name, window in (("usual", (400.0, 40.0)), ("wide", (2000.0, 0.0))):
        run_of(folder / f"{name}.zarr", folder / "new.nii.gz", window)
    band = open_bands(folder / "run.zarr")[:]
    np.savez(folder / "bands.npz", lower=band.lower, upper=band.upper)
    np.savez(folder / "one.npz", lower=band.lower[:2], upper=band.upper[:2])
    done("calibrate", folder / "scans", folder / "run.zarr", *RISK, "--out", folder / "knows.safetensors")
    done("calibrate", folder / "truth.npy", folder / "bands.npz", *RISK, "--out", folder / "plain.safetensors")
    return folder


def said_no(*words):
    result = call(*words)
    assert result.exit_code == 2, result.output
    return flat(result.stderr)


@pytest.mark.parametrize("like", ["new.nii.gz", "new"])
@pytest.mark.parametrize("out", ["map.nii.gz", "maps", "array.npz", "array.zarr"])
def test_a_run_through_another_window_is_refused_whatever_is_written(world, tmp_path, like, out):
    words = "apply", world / "knows.safetensors", world / "wide.zarr", "--like", world / like, "--out", tmp_path / out
    assert "window of -1000 to 1000, but the calibration is about window of -160 to 240," in said_no(*words)
    assert "the calibration has --window 400 40" in said_no(*words, *WIDE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("out", ["map.nii.gz", "maps"])
def test_from_python_maps_get_the_window_of_the_calibration_or_none(world, tmp_path, out):
    calibration = pb.load_calibration(world / "knows.safetensors")
    interval = calibration.apply(open_bands(world / "usual.zarr")[:])
    assert interval.measure == calibration.measure
    with pytest.raises(ValueError, match=r"wrong values: the interval is about window of -160 to 240, but like was"):
        write_interval(tmp_path / out, interval, like=open_images(world / "new", window=(2000, 0)))
    with pytest.raises(ValueError, match="wrong values"):
        write_interval(tmp_path / out, interval, like=open_images(world / "new", window=None))
    write_interval(tmp_path / out, interval, like=open_images(world / "new"), about=calibration)
    written = [x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()]
    checksum = hashlib.sha256((world / "knows.safetensors").read_bytes()).hexdigest()
    texts = [gzip.decompress(x) if out.endswith(".gz") else x for x in written]
    assert all(checksum.encode() in x and calibration.guarantee.encode() in x for x in texts)
    again = open_interval(tmp_path / out)  # and what lies in files still knows it
    with pytest.raises(ValueError, match="wrong values"):
        write_interval(tmp_path / "other", again, like=open_images(world / "new", window=(2000, 0)))


# ---------------------------------------------------------------- what a window is for


@pytest.mark.parametrize("kind", ["mr", "nifti"])
def test_values_that_are_no_hounsfield_units_need_a_window_and_what_it_clips_is_said(tmp_path, kind):
    """MR of 50 to 1850 was clipped at 240 and certified "in HU", without a note."""
    rng = np.random.default_rng(0)
    values = rng.integers(50, 1850, (SCANS, *SHAPE)).astype(np.int16)
    for i, x in enumerate(values):
        if kind == "nifti":
            write_nifti(tmp_path / "truth" / f"{i:02}.nii.gz", x)
        else:
            words = {"Modality": "MR", "RescaleType": "US"}
            write_dicom(tmp_path / "truth" / f"{i:02}", x, series=f"1.2.{i + 10}", patient=f"P{i:02}", **words)
    centre = np.clip(np.concatenate(values) / 2000, 0, 1).astype(np.float32)
    np.savez(tmp_path / "bands.npz", lower=centre - np.float32(0.05), upper=centre + np.float32(0.05))
    words = "calibrate", tmp_path / "truth", tmp_path / "bands.npz", *RISK, "--out", tmp_path / "cal.safetensors"
    assert "give their --window WIDTH LEVEL" in said_no(*words)
    said = done(*words, "--window", 2000, 1000)
    assert "HU" not in said["guarantee"]
    assert any(note.startswith("0.0% of the values of") for note in said["notes"])
    assert "of the true values" not in said["guarantee"]
    said = done(*words, "--window", 1700, 1000, "--force")
    share = ((values < 150) | (values > 1850)).mean()
    assert any(f"{share:.1%} of the values of" in note and "what matters?" in note for note in said["notes"])
    assert f"what lies beyond it ({share:.1%} of the true values) counts as its edge" in said["guarantee"]
    assert pb.load_calibration(tmp_path / "cal.safetensors").guarantee == said["guarantee"]
    said = done(*words, "--raw", "--limits", 0, 2000, "--force")
    assert not any("of the values of" in note for note in said["notes"])


def test_pixels_of_another_size_are_said(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(300, 1500, (SCANS, *SHAPE)).astype(np.int16)
    for i, x in enumerate(truth):
        write_nifti(tmp_path / "truth" / f"{i:02}.nii.gz", x)
    half = np.diag([0.5, 0.5, 1, 1]) @ LPS
    for name, affine in (("same", LPS), ("finer", half)):
        for end, by in (("lower", -60), ("upper", 60)):
            write_nifti(tmp_path / name / f"{end}.nii.gz", truth[0] + by, affine=affine)
    centre = np.concatenate(truth).astype(np.float32) / 2000
    np.savez(tmp_path / "bands.npz", lower=centre - np.float32(0.05), upper=centre + np.float32(0.05))
    cal = tmp_path / "cal.safetensors"
    done("calibrate", tmp_path / "truth", tmp_path / "bands.npz", *RISK, "--window", 2000, 1000, "--out", cal)
    said = done("apply", cal, tmp_path / "same", "--out", tmp_path / "same.nii.gz")
    assert not any("mm" in note for note in said.get("notes", ()))
    said = done("apply", cal, tmp_path / "finer", "--out", tmp_path / "finer.nii.gz")
    assert any("pixels of 0.35 to 0.4 mm, and the calibration images had 0.7 to 0.8 mm" in x for x in said["notes"])
