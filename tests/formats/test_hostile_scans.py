"""Scans whose headers are odd: a message that names the file, whatever the libraries make of it."""

import gzip
import struct

import numpy as np
import pytest

from pixelbounds import execution
from pixelbounds.formats.opener import open_images

nibabel = pytest.importorskip("nibabel")
pydicom = pytest.importorskip("pydicom")
from medical import edit, hounsfield, write_dicom, write_nifti  # noqa: E402

VALUES = hounsfield(3)

ODD = {
    "many rows": {"Rows": 65535, "Columns": 65535},
    "no rows": {"Rows": 0},
    "empty rows": {"Rows": None},
    "no spacing": {"PixelSpacing": [0, 0]},
    "one spacing": {"PixelSpacing": 3},
    "no directions": {"ImageOrientationPatient": [0] * 6},
    "five directions": {"ImageOrientationPatient": [1, 0, 0, 0, 1]},
    "a plane": {"ImagePositionPatient": [0, 0]},
    "negative frames": {"NumberOfFrames": -1},
    "colours": {"SamplesPerPixel": 3},
    "few bits": {"BitsAllocated": 8},
    "no slope": {"RescaleSlope": 0},
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_dicom_is_refused(tmp_path, kind):
    write_dicom(tmp_path / "ct", VALUES, **ODD[kind])
    with execution.running(memory="64M"), pytest.raises(ValueError, match="ct"):
        open_images(tmp_path / "ct")


@pytest.mark.filterwarnings("ignore")
def test_edited_dicom_raises_nothing_else(tmp_path):
    (file,) = write_dicom(tmp_path / "ct", VALUES[:1])
    edit(file, InstitutionName="x")
    good = file.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        data = bytearray(good)
        for at in rng.integers(132, len(data), rng.integers(1, 6)):
            data[at] = rng.integers(256)
        file.write_bytes(data)
        with execution.running(memory="64M"):
            try:
                open_images(tmp_path / "ct")
            except ValueError:
                refused += 1
    assert refused > 5


HEADERS = {  # offset, format, values
    "many voxels": (40, "<8h", 3, 32767, 32767, 32767, 1, 1, 1, 1),
    "negative": (40, "<8h", 3, -8, 8, 4, 1, 1, 1, 1),
    "many axes": (40, "<8h", 99, 8, 8, 4, 1, 1, 1, 1),
    "far": (108, "<f", 1e30),
    "far enough": (108, "<f", 1e9),
    "before": (108, "<f", -1e9),
    "unknown": (70, "<h", 9999),
}


@pytest.mark.parametrize("kind", HEADERS)
@pytest.mark.parametrize("packed", [False, True])
def test_odd_nifti_is_refused(tmp_path, kind, packed):
    write_nifti(tmp_path / "good.nii", VALUES)
    data = bytearray((tmp_path / "good.nii").read_bytes())
    at, form, *values = HEADERS[kind]
    struct.pack_into(form, data, at, *values)
    file = tmp_path / ("x.nii.gz" if packed else "x.nii")
    file.write_bytes(gzip.compress(data) if packed else data)
    with execution.running(memory="64M"), pytest.raises(ValueError, match=r"x\.nii"):
        open_images(file)
