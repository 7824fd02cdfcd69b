"""NIfTI and DICOM: any stored orientation, slope, order or numbering gives the same slices; a hole is an error."""

import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from medical import LPS, edit, hounsfield, nibabel, to_unit, write_dicom, write_nifti
from medical import open_ct as open_images

from pixelbounds.formats import nifti
from reproduce.abdomen import abdomen

VALUES = hounsfield()


def all_axes():
    """All 48 ways in which a file may order and direct its axes."""
    for order in itertools.permutations(range(3)):
        for ends in itertools.product(*("LR", "PA", "SI")):
            yield "".join(ends[axis] for axis in order)


# ---------------------------------------------------------------- NIfTI


@pytest.mark.parametrize("axes", list(all_axes()))
def test_any_orientation_gives_the_same_slices(tmp_path, monkeypatch, axes):
    monkeypatch.setattr(nifti, "_SLAB", 2 * VALUES[0].nbytes * 4 // VALUES.itemsize)  # two slices at a time
    write_nifti(tmp_path / "x.nii", VALUES, axes)
    images = open_images(tmp_path / "x.nii", window=None)
    np.testing.assert_array_equal(images.pixels, VALUES)
    np.testing.assert_allclose(images.geometry.scans[0].affine[:, [2, 1, 0, 3]], LPS, atol=1e-5)


@pytest.mark.parametrize("kind", ["nifti", "dicom"])
def test_a_volume_is_held_once_while_it_is_read(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(nifti, "_SLAB", 2**16)
    tall = np.tile(VALUES, (20, 20, 20) if kind == "nifti" else (4, 50, 50))
    path = tmp_path / ("x.nii.gz" if kind == "nifti" else "series")
    write_nifti(path, tall, "RAI") if kind == "nifti" else write_dicom(path, tall)
    tracemalloc.start()
    try:
        pixels = open_images(path, window=None).pixels
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(pixels, tall)
    assert most < 1.5 * pixels.nbytes + 2**20


def test_window_slope_and_intercept(tmp_path):
    even = VALUES // 2 * 2
    write_nifti(tmp_path / "x.nii.gz", even, "RAS", slope=2.0, intercept=-1024.0)
    raw = open_images(tmp_path / "x.nii.gz", window=None)
    np.testing.assert_array_equal(raw.pixels, even)
    images = open_images(tmp_path / "x.nii.gz")
    assert images.pixels.dtype == np.float32
    np.testing.assert_array_equal(images.pixels, to_unit(even).astype(np.float32))
    assert {0.0, 1.0} <= set(images.pixels.ravel().tolist())
    lung = open_images(tmp_path / "x.nii.gz", window=(1500, -600)).pixels
    np.testing.assert_allclose(lung, to_unit(even, 1500, -600), atol=1e-6)
    assert images.names[:2] == ("x[0]", "x[1]")
    assert set(images.units) == {"x"}


def test_folders_of_volumes_and_their_units(tmp_path):
    write_nifti(tmp_path / "a.nii.gz", VALUES)
    write_nifti(tmp_path / "b.nii.gz", VALUES[:3])
    images = open_images(tmp_path)
    assert images.units.tolist() == ["a"] * 5 + ["b"] * 3
    assert [(x.name, x.start, x.stop) for x in images.geometry.scans] == [("a", 0, 5), ("b", 5, 8)]
    for name in ("p1/early", "p1/late", "p2/early"):
        write_nifti(tmp_path / "patients" / f"{name}.nii.gz", VALUES[:2])
    assert open_images(tmp_path / "patients").units.tolist() == ["p1"] * 4 + ["p2"] * 2
    write_nifti(tmp_path / "c.nii.gz", hounsfield(2, 5, 5))
    with pytest.raises(ValueError, match=r"c has slices of 5 x 5, a of 7 x 6; read them apart"):
        open_images(tmp_path)


def test_volumes_that_cannot_be_read(tmp_path):
    file = tmp_path / "x.nii"
    nibabel.save(nibabel.Nifti1Image(np.zeros((3, 3, 3, 2), np.float32), np.eye(4)), file)
    with pytest.raises(ValueError, match=r"shape \(3, 3, 3, 2\); give a volume"):
        open_images(file)
    file.write_bytes(b"no header")
    with pytest.raises(ValueError, match="cannot be read as NIfTI"):
        open_images(file)
    broken = np.zeros((3, 4, 5), np.float32)
    broken[1, 1, 2] = np.nan
    nibabel.save(nibabel.Nifti1Image(broken, LPS), file)
    with pytest.raises(ValueError, match="slice 2 holds NaN"):
        open_images(file)
    write_nifti(file, VALUES)
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(ValueError, match="cut off or damaged"):
        open_images(file)


# ---------------------------------------------------------------- AbdomenCT-1K


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "AbdomenCT-1K"
    write_nifti(folder / "ImagePart1" / "Case_00001_0000.nii.gz", VALUES, "RAS")
    write_nifti(folder / "ImagePart2" / "Case_00002_0000.nii.gz", VALUES[:3], "LAS")
    write_nifti(folder / "Mask" / "Case_00001.nii.gz", VALUES * 0)
    return folder


def test_abdomen_is_read_once(published, tmp_path):
    cache, seen = tmp_path / "ct.zarr", []
    images = abdomen(published, cache=cache, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
    np.testing.assert_array_equal(images.pixels[:5], to_unit(VALUES).astype(np.float32))
    np.testing.assert_array_equal(images.pixels[5:], to_unit(VALUES[:3]).astype(np.float32))
    assert images.units.tolist() == ["Case_00001"] * 5 + ["Case_00002"] * 3
    before = {x: x.stat().st_mtime_ns for x in cache.rglob("*")}
    again = abdomen(published, cache=cache)
    assert {x: x.stat().st_mtime_ns for x in cache.rglob("*")} == before
    np.testing.assert_array_equal(again.pixels[:], images.pixels[:])
    alone = open_images(cache)  # the store stands by itself
    assert alone.names == images.names
    assert alone.units.tolist() == images.units.tolist()
    with pytest.raises(ValueError, match=r"\(window\); delete it"):
        abdomen(published, cache=cache, window=(1500, -600))


# ---------------------------------------------------------------- DICOM


def test_slices_are_sorted_by_place_not_by_name_or_number(tmp_path):
    write_dicom(tmp_path / "ct", VALUES)
    images = open_images(tmp_path / "ct", window=None)
    np.testing.assert_array_equal(images.pixels, VALUES)
    np.testing.assert_allclose(images.geometry.scans[0].affine[:, [2, 1, 0, 3]], LPS)
    np.testing.assert_array_equal(open_images(tmp_path / "ct").pixels, to_unit(VALUES).astype(np.float32))


def test_oblique_planes_are_sorted_along_their_normal(tmp_path):
    files = write_dicom(tmp_path, VALUES)
    row, column = np.array([0.0, 0.8, 0.6]), np.array([0.0, -0.6, 0.8])
    normal = np.cross(row, column)
    for k, file in enumerate(files):  # the in-plane drift would mislead a sort by any one coordinate
        place = normal * 2.5 * k + np.array([0, -3.0, 1.0]) * ((k * 3) % 5)
        edit(file, ImageOrientationPatient=[*row, *column], ImagePositionPatient=place.round(6).tolist())
    np.testing.assert_array_equal(open_images(tmp_path, window=None).pixels, VALUES)


def test_rescale_and_inversion(tmp_path):
    even = VALUES // 2 * 2
    write_dicom(tmp_path / "two", even, slope=2.0, intercept=-1000.0)
    np.testing.assert_array_equal(open_images(tmp_path / "two", window=None).pixels, even)
    write_dicom(tmp_path / "one", VALUES, photometric="MONOCHROME1")
    np.testing.assert_allclose(open_images(tmp_path / "one").pixels, 1 - to_unit(VALUES), atol=1e-6)
    np.testing.assert_array_equal(open_images(tmp_path / "one", window=None).pixels, VALUES)


def test_series_are_told_apart_and_patients_are_units(tmp_path):
    write_dicom(tmp_path, VALUES[:3], series="1.2.5", patient="P1")
    write_dicom(tmp_path, VALUES, series="1.2.4", patient="P1")
    write_dicom(tmp_path, VALUES[1:], series="1.2.6", patient="")
    images = open_images(tmp_path, window=None)
    assert [scan.name for scan in images.geometry.scans] == ["1.2.4", "1.2.5", "1.2.6"]
    np.testing.assert_array_equal(images.pixels[5:8], VALUES[:3])
    assert images.units.tolist() == ["P1"] * 8 + ["1.2.6"] * 4
    write_dicom(tmp_path, hounsfield(2, 9, 9), series="1.2.7")
    with pytest.raises(ValueError, match=r"1.2.7 has slices of 9 x 9, 1.2.4 of 7 x 6"):
        open_images(tmp_path)


@pytest.mark.parametrize("missing", [1, 3])
def test_a_missing_slice_is_named(tmp_path, missing):
    files = write_dicom(tmp_path, VALUES)
    files[missing].unlink()
    below, above = files[missing - 1].name, files[missing + 1].name
    with pytest.raises(ValueError, match=rf"missing between .*{below} and .*{above}, .* mm apart: bring 1"):
        open_images(tmp_path)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"ImagePositionPatient": [-100, -90, -30]}, "lie at the same place, -30 mm"),
        ({"ImagePositionPatient": None}, "has no ImagePositionPatient"),
        ({"ImageOrientationPatient": [0, 1, 0, 0, 0, -1]}, "not parallel"),
        ({"PhotometricInterpretation": "MONOCHROME1"}, "differ in PhotometricInterpretation"),
        ({"PhotometricInterpretation": "RGB"}, "only grey images"),
        ({"NumberOfFrames": 3}, "holds 3 frames"),
        ({"Rows": 6}, "of the same series is 6 x 6"),
        ({"Rows": None}, "without an image"),
        ({"PixelData": b"\0\0"}, "pixels cannot be read"),
    ],
)
def test_series_that_cannot_be_read(tmp_path, changes, said):
    files = write_dicom(tmp_path, VALUES)
    edit(files[2], **changes)
    with pytest.raises(ValueError, match=said):
        open_images(tmp_path)


def test_a_single_file_and_files_without_a_suffix(tmp_path):
    files = write_dicom(tmp_path / "ct", VALUES)
    np.testing.assert_array_equal(open_images(files[3], window=None).pixels, VALUES[3:4])
    for number, file in enumerate(files):
        file.rename(tmp_path / "ct" / f"IM{number:04d}")
    (tmp_path / "ct" / "README").write_text("no image")
    np.testing.assert_array_equal(open_images(tmp_path / "ct", window=None).pixels, VALUES)
    (tmp_path / "junk.dcm").write_bytes(b"junk")
    with pytest.raises(ValueError, match="cannot be read as DICOM"):
        open_images(tmp_path / "junk.dcm")


def test_neither_library_is_imported_before_it_is_used():
    code = "import sys, pixelbounds.formats; sys.exit('nibabel' in sys.modules or 'pydicom' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
