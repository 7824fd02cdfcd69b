"""NIfTI and DICOM in, NIfTI and DICOM out: the geometry is kept, and what was covered stays covered in the files."""

import numpy as np
import pytest
from commands import call, done, flat, leftovers

import pixelbounds as pb

nibabel = pytest.importorskip("nibabel")
pydicom = pytest.importorskip("pydicom")
from medical import open_ct as open_images  # noqa: E402
from medical import to_unit, write_dicom, write_nifti  # noqa: E402

SCANS, DEPTH, HEIGHT, WIDTH = 24, 3, 10, 8


TWELVE_BITS = {"BitsStored": 12, "HighBit": 11, "PixelRepresentation": 0}  # from -1024 to 3071 HU
RISK = ("--risk-level", 0.2, "--failure-prob", 0.2, "--groups", "band")


def anatomy(seed):
    """Whole Hounsfield units of a scan, (slice, row, column)."""
    return np.random.default_rng(seed).integers(-250, 330, (DEPTH, HEIGHT, WIDTH)).astype(np.int16)


def band_of(values, seed):
    """A band about the windowed values that misses many."""
    rng, unit = np.random.default_rng(seed), to_unit(values).astype(np.float32)
    centre = unit + 0.05 * rng.standard_normal(unit.shape).astype(np.float32)
    return {"lower": centre - np.float32(0.05), "upper": centre + np.float32(0.05)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Scans to calibrate on as NIfTI and as DICOM, with bands as arrays; one scan more in both, and its band."""
    folder = tmp_path_factory.mktemp("medical")
    values, bands = [anatomy(i) for i in range(SCANS)], []
    for i, x in enumerate(values):
        write_nifti(folder / "nifti" / f"scan{i:02}.nii.gz", x)
        write_dicom(folder / "dicom" / f"{i:02}", x, series=f"1.2.{i + 10}", patient=f"P{i:02}", **TWELVE_BITS)
        bands.append(band_of(x, 100 + i))
    np.savez(folder / "bands.npz", **{part: np.concatenate([b[part] for b in bands]) for part in ("lower", "upper")})
    new = anatomy(99)
    write_nifti(folder / "new.nii.gz", new, axes="RAS", slope=2.0, intercept=-1.0)
    write_dicom(folder / "new", new, series="1.2.99", patient="P99", **TWELVE_BITS)
    np.savez(folder / "new.npz", **band_of(new, 199))
    done(
        "calibrate",
        folder / "nifti",
        folder / "bands.npz",
        *RISK,
        "--window",
        400,
        40,
        "--out",
        folder / "cal.safetensors",
    )
    return folder


@pytest.mark.parametrize(("kind", "unit"), [("nifti", "scan"), ("dicom", "patient")])
def test_scans_and_patients_are_units(files, tmp_path, kind, unit):
    out = tmp_path / "cal.safetensors"
    words = "calibrate", files / kind, files / "bands.npz", *RISK, "--window", 400, 40, "--out", out
    said = done(*words)
    assert said["record"]["images"] == SCANS * DEPTH
    assert said["record"]["units"] == SCANS - 3  # an eighth fits
    assert f"of a future {unit}, averaged over its images" in said["guarantee"]
    assert not any("counts as independent" in note for note in said["notes"])
    one, other = (pb.load_calibration(path) for path in (out, files / "cal.safetensors"))
    assert one.promises == other.promises  # the same anatomy in both formats
    assert one.guarantee.replace(" HU", "").replace("patient", "scan") == other.guarantee
    said = done(*words, "--units", "each", "--force")
    assert said["record"]["units"] == 0


def test_nifti_maps_lie_on_the_scan(files, tmp_path):
    words = "apply", files / "cal.safetensors", files / "new.npz", "--like", files / "new.nii.gz"
    said = done(*words, "--out", tmp_path / "map.nii.gz")
    assert said["file"] == str(tmp_path / "map_lower.nii.gz")
    length = nibabel.load(tmp_path / "map_length.nii.gz").get_fdata()
    done(*words, "--out", tmp_path / "array.npz")  # the same intervals between 0 and 1
    arrays, unit = np.load(tmp_path / "array.npz"), open_images(files / "new.nii.gz").pixels
    held = (arrays["lower"] <= unit) & (unit <= arrays["upper"])
    names = tmp_path / "map_lower.nii.gz", files / "new.nii.gz", tmp_path / "map_upper.nii.gz"
    lower, values, upper = (open_images(name, window=None).pixels for name in names)
    assert (((lower <= values) & (values <= upper)) | ~held).all()  # beyond the window, too: there ends are open
    closed = nibabel.load(tmp_path / "map_open.nii.gz").get_fdata() == 0
    assert said["open_share"] == pytest.approx(1 - closed.mean())
    assert said["closed_length"] * 400 == pytest.approx(length[closed].mean(), rel=1e-3)
    assert said["mean_length"] == pytest.approx((arrays["upper"] - arrays["lower"]).mean(), rel=1e-5)
    # the maps are intervals, and the scan is their truth
    both = [done("evaluate", files / "new.nii.gz", tmp_path / name)["risk"] for name in ("map.nii.gz", "array.npz")]
    assert both[0] == pytest.approx(both[1], abs=0.01)
    assert not leftovers(tmp_path)
    result = call(*words, "--out", tmp_path / "map.nii.gz")
    assert result.exit_code == 2
    assert "map_length.nii.gz exists" in flat(result.stderr)


SAMPLER = """
import numpy as np


def draw(observation, samples, seed):
    noise = np.random.default_rng(seed).standard_normal((samples, *observation.shape))
    return np.clip(observation, 0, 1) + 0.02 * noise
"""


@pytest.fixture
def two_folders(tmp_path, monkeypatch):
    """Twelve patients in two folders whose series' UIDs, and files in them, have opposite orders."""
    for i in range(12):
        values = anatomy(i)
        name = f"P{i:02}"
        write_dicom(tmp_path / "full" / name, values, series=f"1.2.{i + 10}", patient=name)
        write_dicom(tmp_path / "low" / f"{11 - i:02}", values, series=f"1.3.{99 - i}", patient=name, seed=i)
    (tmp_path / "drawing.py").write_text(SAMPLER)
    monkeypatch.chdir(tmp_path)
    done("sample", "drawing:draw", "low", "--samples", 9, "--miscoverage", 0.2, "--out", "run.zarr")
    return tmp_path


def test_two_folders_of_series_belong_together_by_patient(two_folders):
    words = "--risk-level", 0.3, "--failure-prob", 0.2, "--method", "rcps", "--out", "cal.safetensors"
    said = done("calibrate", "full", "run.zarr", *words)
    assert said["record"]["units"] == 12
    assert said["promises"][0]["risk"] < 0.05  # a sampler that knows the truth: paired otherwise it misses nearly all
    np.testing.assert_array_equal(open_images("full").units, open_images("low").units)


def test_bands_of_other_patients_are_refused(two_folders):
    write_dicom(two_folders / "full" / "P05", anatomy(5), series="1.2.15", patient="Q05")
    words = "calibrate", "full", "run.zarr", "--risk-level", 0.3, "--failure-prob", 0.2, "--method", "rcps"
    result = call(*words, "--out", "cal.safetensors")
    assert result.exit_code == 2
    assert "not of the same patients" in flat(result.stderr)
    (two_folders / "who.txt").write_text("\n".join(f"{i // DEPTH}" for i in range(12 * DEPTH)))
    said = done(*words, "--units", "who.txt", "--out", "cal.safetensors")  # who is who was said
    assert said["record"]["units"] == 12
    result = call("apply", "cal.safetensors", "run.zarr", "--like", "full", "--out", "maps")
    assert result.exit_code == 2
    assert "full and the bands are not of the same patients" in flat(result.stderr)
