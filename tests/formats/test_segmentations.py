"""DICOM segmentations as labels: drawn by another library, laid on the images voxel by voxel, or refused."""

import numpy as np
import pytest
from commands import call, done, flat

from pixelbounds.formats.label_maps import open_label_map, open_labels
from pixelbounds.formats.maps import write_interval
from pixelbounds.images.ends import Interval

pydicom = pytest.importorskip("pydicom")
pytest.importorskip("highdicom")
from medical import LABELS, LPS, draw_segmentation, edit, hounsfield, scan_of, trusted, write_dicom, write_nifti  # noqa: E402
from medical import open_ct as open_images  # noqa: E402

VALUES = hounsfield(4, 7, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("segmentations")
    write_dicom(place / "ct", VALUES, SeriesNumber=3)
    draw_segmentation(place / "seg.dcm", place / "ct", LABELS)
    return place


@pytest.mark.parametrize("kind", ["BINARY", "LABELMAP", "FRACTIONAL"])
def test_labels_lie_where_they_were_drawn(folder, tmp_path, kind):
    file = draw_segmentation(tmp_path / "seg.dcm", folder / "ct", LABELS, kind)
    if kind == "BINARY":
        assert int(pydicom.dcmread(file).NumberOfFrames) == 3  # of two segments in four slices
    images = open_images(folder / "ct")
    assert np.array_equal(open_labels(file, images), LABELS)
    assert np.array_equal(open_label_map(file, images), LABELS)


@pytest.mark.parametrize("axes", ["LPS", "RAS", "SPL", "AIR"])
def test_they_serve_the_same_scan_as_nifti(folder, tmp_path, axes):
    write_nifti(tmp_path / "ct.nii.gz", VALUES, axes=axes, affine=LPS)
    images = open_images(tmp_path / "ct.nii.gz")
    assert np.array_equal(open_labels(folder / "seg.dcm", images), LABELS)


def test_each_scan_has_its_own(tmp_path):
    for i in range(2):
        where = {"FrameOfReferenceUID": f"1.2.9.{i}"}
        write_dicom(tmp_path / "ct" / str(i), VALUES, series=f"1.2.{30 - i}", patient=f"P{i}", **where)
    (tmp_path / "seg").mkdir()
    for i in range(2):
        draw_segmentation(tmp_path / "seg" / f"{i}.dcm", tmp_path / "ct" / str(i), np.where(i < LABELS, LABELS, 0))
    images = open_images(tmp_path / "ct")
    found = open_labels(tmp_path / "seg", images)
    for scan in images.geometry.scans:
        i = 30 - int(scan.name.rsplit(".", 1)[1])
        assert np.array_equal(found[scan.start : scan.stop], np.where(i < LABELS, LABELS, 0))
    (tmp_path / "seg" / "1.dcm").unlink()
    with pytest.raises(ValueError, match=r"no segmentation of the scan 1\.2\.29"):
        open_labels(tmp_path / "seg", images)


def test_what_does_not_fit_is_refused(folder, tmp_path):
    images = open_images(folder / "ct")
    with pytest.raises(ValueError, match="give the images it was drawn on"):
        open_labels(folder / "seg.dcm")
    both = np.stack([LABELS > 0, LABELS > 1], axis=-1)
    with pytest.raises(ValueError, match="segments 1 and 2 overlap at 16 voxels"):
        open_labels(draw_segmentation(tmp_path / "both.dcm", folder / "ct", both), images)
    for moved, words in ((0.3, "does not lie on the voxels"), (8, "lies beyond the scan")):
        for k, file in enumerate(write_dicom(tmp_path / f"other{moved}", VALUES)):
            edit(file, ImagePositionPatient=[-100 + moved * 0.8, -90, -30 + 2.5 * k])
        with pytest.raises(ValueError, match=words):
            open_labels(folder / "seg.dcm", open_images(tmp_path / f"other{moved}"))
    data = bytearray((folder / "seg.dcm").read_bytes())
    (tmp_path / "cut.dcm").write_bytes(data[: len(data) - 20])
    with pytest.raises(ValueError, match=r"cut\.dcm"):
        open_labels(tmp_path / "cut.dcm", images)


def test_a_trust_mask_comes_back_as_a_region(folder, tmp_path):
    images = open_images(folder / "ct")
    half = np.linspace(0, 0.2, images.pixels.size, dtype=np.float32).reshape(images.pixels.shape)
    interval = Interval(
        np.clip(images.pixels - half, 0, 1), np.clip(images.pixels + half, 0, 1), measure=images.measure
    )
    write_interval(tmp_path / "maps", interval, like=images, masks=trusted(interval, 40), parametric=True)
    mask = open_label_map(scan_of(tmp_path / "maps") / "parametric" / "trusted.dcm", images)
    assert np.array_equal(mask, trusted(interval, 40)["trusted"][0])
    assert mask.any()


def test_promises_and_labels_of_commands(tmp_path):
    """Calibrated, applied and judged with segmentations; the calibration is that of the same labels as an array."""
    rng = np.random.default_rng(0)
    (tmp_path / "seg").mkdir()
    every, band = [], []
    for i in range(24):
        values = rng.integers(-150, 230, VALUES.shape).astype(np.int16)
        labels = np.where(rng.uniform(size=VALUES.shape) < 0.4, 2, LABELS).astype(np.uint8)
        words = {"series": f"1.2.{i + 10}", "patient": f"P{i}", "FrameOfReferenceUID": f"1.2.9.{i + 1}"}
        write_dicom(tmp_path / "ct" / f"{i:02}", values, **words)
        draw_segmentation(tmp_path / "seg" / f"{i:02}.dcm", tmp_path / "ct" / f"{i:02}", labels)
        every.append(labels)
        band.append((values + 160) / 400 + 0.05 * rng.standard_normal(values.shape))
    np.save(tmp_path / "labels.npy", np.concatenate(every))
    centre = np.concatenate(band).astype(np.float32)
    np.savez(tmp_path / "bands.npz", lower=centre - 0.05, upper=centre + 0.05)
    words = "calibrate", tmp_path / "ct", tmp_path / "bands.npz", "--failure-prob", 0.3, "--promise", "share:0.4"
    for labels, out in ((tmp_path / "seg", "a"), (tmp_path / "labels.npy", "b")):
        more = "--promise", f"share:0.5,within={labels}:2,name=liver", "--labels", labels
        done(*words, *more, "--out", tmp_path / f"{out}.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    words = "apply", tmp_path / "a.safetensors", tmp_path / "bands.npz", "--labels", tmp_path / "seg"
    refused = call(*words, "--out", tmp_path / "x.npz")
    assert "drawn on (--like)" in flat(refused.stderr)
    done(*words, "--like", tmp_path / "ct", "--out", tmp_path / "x.npz")
