"""Segmentations and trust masks in files: the commands say what the calls in Python say."""

import numpy as np
import pytest
from commands import done

import pixelbounds as pb
from pixelbounds.formats.arrays import Arrays
from pixelbounds.formats.label_maps import open_label_map
from pixelbounds.formats.opener import open_images

nibabel = pytest.importorskip("nibabel")
pydicom = pytest.importorskip("pydicom")
pytest.importorskip("highdicom")
from medical import draw_segmentation, scan_of, write_dicom, write_nifti  # noqa: E402

SCANS, SHAPE = 60, (3, 8, 8)
PROMISES = "--promise", "share:0.3,within=organ,name=organ", "--promise", "share:0.2,within=background,name=background"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Scans with a true organ (label 2) as NIfTI and as DICOM segmentations, and a network's probabilities of it."""
    place, rng = tmp_path_factory.mktemp("masks"), np.random.default_rng(0)
    (place / "seg").mkdir()
    ramp = np.linspace(-4, 4, SHAPE[2]) + np.zeros(SHAPE)
    for i in range(SCANS):
        truth = rng.random(SHAPE) < 1 / (1 + np.exp(-(ramp + rng.normal(0, 1))))
        labels = np.where(truth, 2, rng.integers(0, 2, SHAPE)).astype(np.uint8)
        p = 1 / (1 + np.exp(-ramp + rng.normal(0, 0.5, SHAPE)))
        write_nifti(place / "p" / f"{i:02}.nii.gz", p, slope=0.001)
        write_nifti(place / "labels" / f"{i:02}.nii.gz", labels)
        write_dicom(place / "ct" / f"{i:02}", (100 * p).astype(np.int16), series=f"1.2.{i + 10}", patient=f"P{i}")
        draw_segmentation(place / "seg" / f"{i:02}.dcm", place / "ct" / f"{i:02}", labels)
    words = "calibrate", f"{place}/labels:2", place / "p", "--kind", "segmentation", *PROMISES, "--failure-prob", 0.2
    done(*words, "--out", place / "cal.safetensors")
    return place


def test_a_calibration_of_files_is_that_of_arrays(folder):
    p = np.asarray(open_images(folder / "p", window=None).pixels)
    truth = (np.asarray(open_images(folder / "labels", window=None).pixels) == 2).astype(np.float32)
    promises = pb.segmentation_promises(truth, missed=0.3, false=0.2)
    images = open_images(folder / "p", window=None)
    units = pb.Units(images.units, name=images.unit_name)
    cal = pb.calibrate(truth, pb.segmentation_band(p), promises=promises, failure_prob=0.2, units=units)
    made = pb.load_calibration(folder / "cal.safetensors")
    assert [x.risk for x in made.promises] == [x.risk for x in cal.promises]
    assert np.array_equal(made.widening, cal.widening)


def test_a_dicom_segmentation_is_a_truth(folder, tmp_path):
    words = "calibrate", f"{folder}/seg:2", folder / "p", "--kind", "segmentation", *PROMISES, "--failure-prob", 0.2
    done(*words, "--out", tmp_path / "cal.safetensors")
    one, other = (pb.load_calibration(x / "cal.safetensors") for x in (folder, tmp_path))
    assert np.array_equal(one.widening, other.widening)
    assert np.array_equal(one.record.image_hashes, other.record.image_hashes)


@pytest.mark.parametrize("out", ["masks.npz", "masks.zarr", "masks.nii.gz", "masks"])
def test_masks_are_written_where_the_images_lie(folder, tmp_path, out):
    new = folder / "p" / "07.nii.gz"
    like = folder / "ct" / "07" if out == "masks" else new
    words = "apply", folder / "cal.safetensors", new, "--like", like, "--out", tmp_path / out
    done(*words, *(["--parametric"] if out == "masks" else []))
    images = open_images(new, window=None)
    interval = pb.load_calibration(folder / "cal.safetensors").apply(pb.segmentation_band(np.asarray(images.pixels)))
    for name in ("outer", "inner"):
        if out == "masks.npz":
            mask = np.load(tmp_path / out)[name]
        elif out == "masks.zarr":
            import zarr

            mask = zarr.open_group(tmp_path / out, mode="r")[name][:]
        elif out == "masks.nii.gz":
            mask = open_images(tmp_path / f"masks_{name}.nii.gz", window=None).pixels
        else:
            mask = open_label_map(scan_of(tmp_path / out) / "parametric" / f"{name}.dcm", open_images(like))
        assert np.array_equal(np.asarray(mask) > 0, getattr(interval, name)), name
        assert 0 < getattr(interval, name).mean() < 1


def test_they_are_judged_reported_and_watched(folder, tmp_path):
    truth, p = f"{folder}/labels:2", folder / "p"
    for i in range(SCANS):  # other bytes, so that they are no images that calibrated
        for name in ("p", "labels"):
            image = nibabel.load(folder / name / f"{i:02}.nii.gz")
            values = np.asarray(image.dataobj)[::-1].copy()
            (tmp_path / name).mkdir(exist_ok=True)
            nibabel.save(
                nibabel.Nifti1Image(values.astype(np.float32), image.affine), tmp_path / name / f"{i:02}.nii.gz"
            )
    truth, p = f"{tmp_path}/labels:2", tmp_path / "p"
    facts = done("evaluate", truth, p, "--calibration", folder / "cal.safetensors", *PROMISES)
    assert [x["name"] for x in facts["evaluation"]["promises"]] == ["organ", "background"]
    done("report", truth, p, "--calibration", folder / "cal.safetensors", *PROMISES, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "between both masks" in page
    assert 'alt="outer mask of' in page
    words = "monitor", "update", tmp_path / "state.safetensors", truth, p, "--calibration", folder / "cal.safetensors"
    done(*words, "--region", "organ", "--region", "background")
    assert {x.name for x in pb.load_monitor(tmp_path / "state.safetensors").status().promises} >= {"organ"}


def test_a_trust_mask_is_written_and_shown(tmp_path):
    rng = np.random.default_rng(1)
    deviation = np.where(rng.random((360, 8, 8)) < 0.5, 0.02, 0.2)
    estimate = rng.uniform(0.3, 0.7, deviation.shape)
    truth = np.clip(estimate + deviation * rng.standard_normal(deviation.shape), 0, 1)
    band = pb.Band(estimate - deviation, estimate + deviation)
    mask = pb.trust(estimate[:160], band[:160], truth[:160], tolerance=0.1, at_most=0.1)
    mask.save(tmp_path / "trust.safetensors")
    pb.calibrate(truth[160:320], band[160:320], risk_level=0.3).save(tmp_path / "cal.safetensors")
    np.savez(tmp_path / "new.npz", lower=band.lower[320:], upper=band.upper[320:])
    np.save(tmp_path / "truth.npy", truth[320:])
    trust = "--trust", tmp_path / "trust.safetensors"
    words = "apply", tmp_path / "cal.safetensors", tmp_path / "new.npz"
    facts = done(*words, *trust, "--out", tmp_path / "i.npz")
    trusted = np.load(tmp_path / "i.npz")["trusted"]
    assert np.array_equal(trusted, mask.apply(band[320:]))
    assert facts["trusted_share"] == pytest.approx(trusted.mean())
    done(*words, *trust, "--out", tmp_path / "i.zarr")
    assert np.array_equal(Arrays(tmp_path / "i.zarr")["trusted"][:], trusted)
    words = "report", tmp_path / "truth.npy", tmp_path / "new.npz", "--calibration", tmp_path / "cal.safetensors"
    done(*words, *trust, "--units", "each", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '"trusted"' in page
    assert mask.guarantee in page
