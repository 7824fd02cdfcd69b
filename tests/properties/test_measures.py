"""What numbers stand for is part of a promise: windows, limits, scales, units and images that were left out."""

import warnings

import numpy as np
import pytest
import zarr
from commands import call, done, flat
from tensors import as_tensor

import pixelbounds as pb

nibabel = pytest.importorskip("nibabel")
pytest.importorskip("pydicom")
from medical import write_nifti  # noqa: E402

SCANS = 24
RISK = ("--risk-level", 0.2, "--failure-prob", 0.2, "--method", "rcps")
WIDE = ("--window", 2000, 0)


def scan(seed):
    """Hounsfield units (slice, row, column): air, bone and soft tissue."""
    rng = np.random.default_rng(seed)
    values = rng.normal(40, 60, (2, 10, 8))
    values[:, :3] = rng.normal(-850, 60, (2, 3, 8))
    values[:, 3:6] = rng.normal(700, 60, (2, 3, 8))
    return np.clip(values.round(), -1000, 3000).astype(np.int16)


def write_scans(folder, seeds, wide=True):
    """Scans, and a band about what a window makes of them."""
    values = np.concatenate([scan(seed) for seed in seeds])
    for seed in seeds:
        write_nifti(folder / f"{seed:03}.nii.gz", scan(seed))
    width, level = (2000, 0) if wide else (400, 40)
    unit = np.clip((values - (level - width / 2)) / width, 0, 1)
    centre = unit + 0.03 * np.random.default_rng(seeds[0]).standard_normal(unit.shape)
    band = {"lower": centre - 0.01, "upper": centre + 0.01}
    np.savez(folder.with_suffix(".npz"), **{name: x.astype(np.float32) for name, x in band.items()})
    return folder, folder.with_suffix(".npz")


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A calibration through a wide window, and new scans with their bands."""
    folder = tmp_path_factory.mktemp("wide")
    done("calibrate", *write_scans(folder / "old", range(SCANS)), *RISK, *WIDE, "--out", folder / "cal.safetensors")
    write_scans(folder / "new", range(100, 110))
    return folder


# ---------------------------------------------------------------- item 6: windows and limits


def test_a_calibration_knows_its_window(wide, tmp_path):
    cal = pb.load_calibration(wide / "cal.safetensors")
    assert cal.measure == pb.Measure(-1000, 1000)
    assert "within the window of -1000 to 1000" in cal.guarantee
    words = wide / "new", wide / "new.npz", "--calibration", wide / "cal.safetensors"
    said = done("evaluate", *words)  # nothing is told: the window is that of the calibration
    assert said == done("evaluate", *words, *WIDE)
    assert said["risk"] < 0.2
    done("apply", wide / "cal.safetensors", wide / "new.npz", "--like", wide / "new", "--out", tmp_path / "m.nii.gz")
    done("apply", wide / "cal.safetensors", wide / "new.npz", "--out", tmp_path / "i.npz")
    done("apply", wide / "cal.safetensors", wide / "new.npz", "--out", tmp_path / "i.zarr")
    for written in ("m.nii.gz", "i.npz", "i.zarr"):  # intervals know it, too
        assert done("evaluate", wide / "new", tmp_path / written)["risk"] == pytest.approx(said["risk"], abs=2e-3)
        refused = call("evaluate", wide / "new", tmp_path / written, "--window", 400, 40)
        assert refused.exit_code == 2
        assert "--window 400 40 is asked for, but" in flat(refused.stderr)
        assert "--window 2000 0" in flat(refused.stderr)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (("--window", 400, 40), "--window 400 40 is asked for, but the calibration has --window 2000 0"),
        (("--raw",), "--raw is asked for, but the calibration has --window 2000 0"),
        (("--window", 400, 40, "--raw"), "give one of them"),
    ],
)
def test_another_window_is_refused(wide, tmp_path, other, named):
    cal = wide / "cal.safetensors"
    report = "report", wide / "new", wide / "new.npz", "--calibration", cal, "--out", tmp_path / "page.html"
    for words in (
        ("apply", cal, wide / "new.npz", "--like", wide / "new", "--out", tmp_path / "m.nii.gz"),
        ("evaluate", wide / "new", wide / "new.npz", "--calibration", cal),
        report,
    ):
        result = call(*words, *other)
        assert result.exit_code == 2
        assert named in flat(result.stderr)
    assert not list(tmp_path.iterdir())


def test_values_as_stored_stay_so(tmp_path):
    folder, bands = write_scans(tmp_path / "old", range(SCANS))
    raw = {name: 2000 * x - 1000 for name, x in np.load(bands).items()}
    np.savez(bands, **raw)
    cal = tmp_path / "cal.safetensors"
    done("calibrate", folder, bands, *RISK, "--raw", "--limits", -1024, 3071, "--out", cal)
    assert pb.load_calibration(cal).measure == pb.Measure()
    new, bands = write_scans(tmp_path / "new", range(100, 110))
    np.savez(bands, **{name: 2000 * x - 1000 for name, x in np.load(bands).items()})
    assert done("evaluate", new, bands, "--calibration", cal)["risk"] < 0.2
    result = call("evaluate", new, bands, "--calibration", cal, "--limits", 0, 1)
    assert "--limits 0 1 is asked for, but the calibration has the limits -1024 3071" in flat(result.stderr)
    done("apply", cal, bands, "--like", new, "--out", tmp_path / "maps.nii.gz")
    assert not list(tmp_path.glob("maps_*open*"))  # no window, no open ends


# ---------------------------------------------------------------- item 8: what is independent


def test_independence_is_not_assumed_silently(wide, tmp_path):
    truth = np.concatenate([scan(i) for i in range(SCANS)])
    np.save(tmp_path / "truth.npy", np.clip((truth + 1000) / 2000, 0, 1).astype(np.float32))
    new = np.concatenate([scan(i) for i in range(100, 110)])
    np.save(tmp_path / "new.npy", np.clip((new + 1000) / 2000, 0, 1).astype(np.float32))
    (tmp_path / "patients.txt").write_text("\n".join(str(i // 2) for i in range(2 * SCANS)))
    cal = tmp_path / "cal.safetensors"
    words = "calibrate", tmp_path / "truth.npy", wide / "old.npz", *RISK, "--out", cal, "--force"
    assert ["no --units: every image counts as independent" in x for x in done(*words)["notes"]] == [True]
    fresh = tmp_path / "new.npy", wide / "new.npz", "--calibration", cal
    assert "no --units" in done("evaluate", *fresh)["notes"][0]
    assert "no --units" in done("report", *fresh, "--out", tmp_path / "page.html")["notes"][0]
    assert "notes" not in done("evaluate", *fresh, "--units", "each")
    assert "notes" not in done(*words, "--units", "each")
    said = done(*words, "--units", tmp_path / "patients.txt", "--unit-name", "patient")
    assert "no --units" not in " ".join(said["notes"])  # but that this is a second try on the same images
    assert "its own chance" in said["notes"][0]
    assert "of a future patient, averaged over its images" in said["guarantee"]
    said = done(
        *words, "--units", tmp_path / "patients.txt", "--unit-name", "patient", "--weighting", "images",
        "--max-images", 2,
    )  # fmt: skip
    assert "each image counts the same, a patient of more than 2 images as one of 2" in said["guarantee"]
    refused = call(*words, "--unit-name", "patient")
    assert refused.exit_code == 2
    assert "give --units" in flat(refused.stderr)


# ---------------------------------------------------------------- item 10: scales


def on_scales(truth_scale, band_scale, n=60, seed=0):
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0.1, 0.9, (n, 8, 8))
    truth = np.clip(centre + 0.05 * rng.standard_normal(centre.shape), 0, 1)
    return truth_scale * truth, pb.Band(band_scale * (centre - 0.05), band_scale * (centre + 0.05))


def test_scales_that_differ_are_told():
    truth, band = on_scales(255, 1)
    with pytest.warns(UserWarning, match=r"a sliver of the truth's, .* are they on one scale\?"):
        cal = pb.calibrate(truth, band, risk_level=0.2, method="rcps", limits=(0, 255))
    assert cal.apply(band).length.mean() > 50  # it certifies, and is of no use
    for both in (1, 255):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pb.calibrate(*on_scales(both, both), risk_level=0.2, method="rcps", limits=(0, both))


@pytest.mark.parametrize("limits", [(0.0, 1.0), (-1.0, 3.0)])
def test_eight_bits_are_read_alike_everywhere(tmp_path, rng, limits):
    truth = rng.integers(0, 256, (60, 8, 8), np.uint8)
    centre = limits[0] + (truth / 255) * (limits[1] - limits[0])
    centre += 0.05 * rng.standard_normal(centre.shape)
    band = pb.Band((centre - 0.05).astype(np.float32), (centre + 0.05).astype(np.float32))
    np.save(tmp_path / "truth.npy", truth)
    np.savez(tmp_path / "bands.npz", lower=band.lower, upper=band.upper)
    words = "--limits", *limits, "--units", "each", "--out", tmp_path / "cal.safetensors"
    done("calibrate", tmp_path / "truth.npy", tmp_path / "bands.npz", *RISK, *words)
    wanted = (tmp_path / "cal.safetensors").read_bytes()
    settings = {"risk_level": 0.2, "failure_prob": 0.2, "method": "rcps", "limits": limits}
    stored = zarr.create_array(tmp_path / "truth.zarr", data=truth, chunks=(7, 8, 8))
    for given in (truth, stored, as_tensor(truth), np.load(tmp_path / "truth.npy", mmap_mode="r")):
        assert pb.calibrate(given, band, **settings).to_bytes() == wanted
    mixed = [truth[0], truth[1, :4], *truth[2:]]
    bands = [pb.Band(band.lower[i : i + 1, : len(x)], band.upper[i : i + 1, : len(x)]) for i, x in enumerate(mixed)]
    assert pb.calibrate(mixed, bands, **settings).risk <= 0.2
    with pytest.raises(ValueError, match=r"8-bit images span the limits, and these are -inf and inf"):
        pb.calibrate(truth, band, **{**settings, "limits": None})
