"""Intervals into files: what was covered stays covered, maps lie where the images lie, and failures leave nothing."""

import resource

import numpy as np
import pytest
from medical import hounsfield, nibabel, pydicom, scan_of, write_dicom, write_nifti
from medical import open_ct as open_images

import pixelbounds as pb
from pixelbounds.formats.maps import write_interval
from pixelbounds.formats.scans import Images

VALUES = hounsfield(5, 7, 6)
PARTS = ("lower", "upper", "length", "open")
REACH = {"BitsStored": 12, "HighBit": 11, "PixelRepresentation": 0}  # of a scanner that measures -1024 to 3071 HU


def around(images, seed=0):
    """An interval whose ends touch the truth itself at a third of the pixels each, and the limits at some."""
    rng, x = np.random.default_rng(seed), np.asarray(images.pixels[:], np.float32)
    widths = rng.exponential(0.1, (2, *x.shape)).astype(np.float32) * (rng.random((2, *x.shape)) > 1 / 3)
    return pb.Interval(np.clip(x - widths[0], 0, 1), np.clip(x + widths[1], 0, 1))


def left_behind(folder):
    return sorted(x.name for x in folder.iterdir())


@pytest.fixture
def plain(rng):
    return Images(rng.random((3, 6, 5)).astype(np.float32), ("a", "<b>", "c"), np.array([1, 1, 2]))


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize("name", ["out.zarr", "out.npz"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_arrays_come_back_bit_for_bit(tmp_path, plain, name, dtype):
    ends = around(plain)
    interval = pb.Interval(ends.lower.astype(dtype), ends.upper.astype(dtype))
    for _ in range(2):  # an earlier output is replaced
        assert write_interval(tmp_path / name, interval, like=plain, identifiers="keep") == tmp_path / name
    for part in ("lower", "upper"):
        back = open_images(tmp_path / name, key=part)
        np.testing.assert_array_equal(back.pixels[:], getattr(interval, part))
        assert back.names == plain.names
        assert back.units.tolist() == [1, 1, 2]
    assert left_behind(tmp_path) == [name]


# ---------------------------------------------------------------- NIfTI


@pytest.mark.parametrize("axes", ["LPS", "RAS", "PIR", "SAL"])
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_nifti_maps_lie_on_the_file_and_hold_its_values(tmp_path, axes, suffix):
    source = tmp_path / f"scan{suffix}"
    write_nifti(source, VALUES, axes, slope=0.5, intercept=-1024)
    images, original = open_images(source), nibabel.load(source)
    out = write_interval(tmp_path / f"out{suffix}", around(images), like=images, identifiers="keep")
    assert out == tmp_path / f"out_lower{suffix}"
    maps = {part: nibabel.load(tmp_path / f"out_{part}{suffix}") for part in PARTS}
    for image in maps.values():
        assert image.shape == original.shape
        np.testing.assert_array_equal(image.affine, original.affine)
        assert nibabel.aff2axcodes(image.affine) == tuple(axes)
        assert image.header["descrip"] == original.header["descrip"]
        assert image.header["sform_code"] == original.header["sform_code"] == 1
        assert image.header["qform_code"] == original.header["qform_code"] == 1
        np.testing.assert_array_equal(image.header.get_zooms(), original.header.get_zooms())
    assert [maps[part].get_data_dtype() for part in PARTS] == [np.float32] * 3 + [np.uint8]
    lower, upper, length, ends = (maps[part].get_fdata() for part in PARTS)
    truth = original.get_fdata()  # compared voxel for voxel, in Hounsfield units, also beyond the window
    assert (lower <= truth).all()
    assert (truth <= upper).all()
    assert (length >= upper - lower).all()
    np.testing.assert_allclose(length, upper - lower, atol=1e-2)
    seen = np.clip(truth, -160, 240)
    near = np.minimum(seen - lower, upper - seen)[ends == 0]
    assert (near < 1e-3).mean() > 0.5  # and no wider than given
    assert set(np.unique(ends)) == {0, 1, 2}
    np.testing.assert_array_equal(np.isin(ends, (1, 3)), lower == 0.5 * -(2**15) - 1024)  # the least the file can hold
    np.testing.assert_array_equal(np.isin(ends, (2, 3)), upper == 0.5 * (2**15 - 1) - 1024)
    assert [float(maps["lower"].header[name]) for name in ("cal_min", "cal_max")] == [-160, 240]  # what viewers show
    assert float(maps["length"].header["cal_max"]) == length[ends == 0].max() < 400
    back = [open_images(tmp_path / f"out_{part}{suffix}").pixels for part in PARTS[:2]]
    np.testing.assert_allclose(back[0], around(images).lower, atol=1e-6)
    assert (back[0] <= around(images).lower).all()
    assert (back[1] >= around(images).upper).all()


# ---------------------------------------------------------------- DICOM


@pytest.mark.parametrize("photometric", ["MONOCHROME2", "MONOCHROME1"])
@pytest.mark.parametrize("window", [(400.0, 40.0), (350.0, 33.3), (2500.0, 100.0)])
def test_dicom_ends_are_rounded_outward(tmp_path, photometric, window):
    write_dicom(tmp_path / "ct", VALUES, photometric=photometric, **REACH)
    images = open_images(tmp_path / "ct", window=window)
    write_interval(tmp_path / "out", around(images), like=images)
    lower, upper, length, ends = (open_images(tmp_path / "out", part=part, window=None).pixels for part in PARTS)
    assert (lower <= VALUES).all()
    assert (upper >= VALUES).all()
    np.testing.assert_allclose(length, upper - lower, atol=1e-3)
    least = min(-1024, window[1] - window[0] / 2)  # what the file can hold, or all of the window where that is more
    step = 2.0 ** np.ceil(np.log2((3071 - np.floor(least)) / 65535))
    expected = around(images)
    span = (expected.upper - expected.lower) * window[0]
    closed = ends == 0
    assert (length <= span + 2 * step + 1e-3)[closed].all()
    assert (length >= span - 1e-3)[closed].all()
    np.testing.assert_array_equal(np.isin(ends, (1, 3)), np.isclose(lower, least, atol=step))
    np.testing.assert_array_equal(np.isin(ends, (2, 3)), upper == 3071)
    back = {part: open_images(tmp_path / "out", part=part, window=window).pixels for part in PARTS[:2]}
    ends = (back["upper"], back["lower"]) if photometric == "MONOCHROME1" else (back["lower"], back["upper"])
    assert (ends[0] <= expected.lower).all()
    assert (ends[1] >= expected.upper).all()


def test_what_lies_beyond_the_window_does_not_look_certain(tmp_path):
    """Bone at 700 HU is seen as 240: its interval says 240 or more, and its length is the largest of the map."""
    values = np.full((1, 4, 4), 40, np.int16)
    values[0, 0] = 700  # bone
    values[0, 1] = -900  # air
    write_dicom(tmp_path / "ct", values, **REACH)
    write_nifti(tmp_path / "ct.nii.gz", values.astype(np.float32))
    for scan, out in ((tmp_path / "ct", tmp_path / "maps"), (tmp_path / "ct.nii.gz", tmp_path / "map.nii.gz")):
        images = open_images(scan)
        seen = images.pixels
        write_interval(out, pb.Interval(np.clip(seen - 0.01, 0, 1), np.clip(seen + 0.01, 0, 1)), like=images)
        where = [scan_of(out) / part if out.is_dir() else out.with_name(f"map_{part}.nii.gz") for part in PARTS]
        lower, upper, length, ends = (open_images(x, window=None).pixels[0] for x in where)
        assert ((lower <= values[0]) & (values[0] <= upper)).all()
        np.testing.assert_array_equal(ends, np.repeat([[2], [1], [0], [0]], 4, axis=1))
        assert (lower[0] >= 235.9).all()  # 240 less 0.01 of the window
        assert (upper[1] <= -155.9).all()
        assert (length[2:] < 8.2).all()
        assert (length[:2] > 800).all()
    said = pydicom.dcmread(next((scan_of(tmp_path / "maps") / "upper").iterdir()))
    assert said.ImageComments.startswith("3071 stands for an open end: the value may lie anywhere above 240 HU")
    assert (float(said.WindowWidth), float(said.WindowCenter)) == (400, 40)
    shown = pydicom.dcmread(next((scan_of(tmp_path / "maps") / "length").iterdir()))
    assert float(shown.WindowWidth) < 10  # lengths of closed intervals from black to white
    codes = pydicom.dcmread(next((scan_of(tmp_path / "maps") / "open").iterdir()))
    assert "1: open below -160 HU; 2: open above 240 HU" in codes.ImageComments
    assert codes.RescaleType == "US"


@pytest.mark.parametrize("identifiers", ["drop", "keep"])
def test_maps_of_several_series_come_back_in_the_order_of_the_scans(tmp_path, identifiers):
    """Series of maps have identifiers of their own, whose order is that of chance."""
    for i in range(6):
        values = np.full((2, 4, 4), 40 * i - 100, np.int16)
        write_dicom(tmp_path / "in" / str(i), values, series=f"1.2.{i + 10}", patient=f"P{i}")
    images = open_images(tmp_path / "in")
    interval = around(images)
    write_interval(tmp_path / "out", interval, like=images, identifiers=identifiers)
    for part in PARTS[:2]:
        back = open_images(tmp_path / "out", part=part).pixels
        np.testing.assert_allclose(back, getattr(interval, part), atol=1.001 / 400)  # steps of 1 HU, rounded outward


def test_from_one_format_to_the_other(tmp_path):
    write_nifti(tmp_path / "scan.nii.gz", VALUES, "PIR")
    write_dicom(tmp_path / "ct", VALUES, **REACH)
    nifti, dicom = open_images(tmp_path / "scan.nii.gz"), open_images(tmp_path / "ct")
    write_interval(tmp_path / "maps", around(nifti), like=nifti, identifiers="keep")
    write_interval(tmp_path / "maps.nii.gz", around(dicom), like=dicom)
    crossed = open_images(tmp_path / "maps", part="lower"), open_images(tmp_path / "maps_lower.nii.gz")
    for back in crossed:
        np.testing.assert_allclose(back.geometry.scans[0].affine, dicom.geometry.scans[0].affine, atol=1e-4)
        np.testing.assert_allclose(back.pixels, around(dicom).lower, atol=2 / 400)  # a step of 16-bit scans is 1 HU
    assert set(crossed[0].units) == {"scan"}


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("name", ["out.zarr", "out.npz", "out.nii", "out.nii.gz", "out"])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_full_disk_leaves_no_broken_output(tmp_path, name, earlier):
    rng = np.random.default_rng(0)
    values = rng.integers(-1000, 1000, (3, 64, 64)).astype(np.int16)
    source = write_dicom(tmp_path / "ct", values)[0].parent
    images = open_images(source)
    interval = around(images)
    out = tmp_path / "out"
    out.mkdir()
    if earlier:
        write_interval(out / name, interval, like=images)
    before = {x: x.read_bytes() for x in sorted(out.rglob("*")) if x.is_file()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # the kernel refuses longer files, as a full disk does
    try:
        with pytest.raises(OSError, match="File too large"):
            write_interval(out / name, interval, like=images)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {x: x.read_bytes() for x in sorted(out.rglob("*")) if x.is_file()} == before
    assert not list(out.glob(".*"))


def test_what_cannot_be_written_is_said_first(tmp_path, plain):
    interval = around(plain)
    with pytest.raises(ValueError, match="needs the place of the images"):
        write_interval(tmp_path / "x.nii.gz", interval, like=plain)
    with pytest.raises(ValueError, match=r"end it in .zarr"):
        write_interval(tmp_path / "x.tiff", interval)
    with pytest.raises(FileNotFoundError, match="make it first"):
        write_interval(tmp_path / "none" / "x.npz", interval)
    with pytest.raises(ValueError, match=r"like has shape \(3, 6, 5\)"):
        write_interval(tmp_path / "x.npz", pb.Interval(interval.lower[:2], interval.upper[:2]), like=plain)
    with pytest.raises(TypeError, match=r"Calibration\.apply"):
        write_interval(tmp_path / "x.npz", (interval.lower, interval.upper))
    holes = interval.lower.copy()
    holes[1, 0, 0] = np.nan
    for name in ("x.npz", "x.zarr"):
        with pytest.raises(ValueError, match=r"interval.lower of image 1 has 1 values that are NaN"):
            write_interval(tmp_path / name, pb.Interval(holes, interval.upper))
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "thesis.txt").write_text("all my work")
    with pytest.raises(FileExistsError, match="holds something else"):
        write_interval(tmp_path / "mine.zarr", interval)
    assert left_behind(tmp_path) == ["mine.zarr"]
    assert (tmp_path / "mine.zarr" / "thesis.txt").read_text() == "all my work"
