"""NIfTI and DICOM files for the tests, written with the real libraries."""

import warnings
from functools import partial

import numpy as np
import pytest

from pixelbounds.formats.opener import open_images

nibabel = pytest.importorskip("nibabel")
pydicom = pytest.importorskip("pydicom")

open_ct = partial(open_images, window=(400.0, 40.0))
LPS = np.diag([-0.8, -0.7, 2.5, 1.0])  # columns go left, rows posterior, slices up; in R, A, S millimetres
LPS[:3, 3] = 100, 90, -30


def hounsfield(depth=5, height=7, width=6, seed=0):
    """Whole Hounsfield units (slice, row, column), all different, beyond the window at both ends."""
    values = np.random.default_rng(seed).permutation(np.linspace(-1000, 1200, depth * height * width).round())
    return values.reshape(depth, height, width).astype(np.int16)


def trusted(interval, length):
    """A mask, here of intervals of at most a length in HU, as `write_interval` takes masks."""
    return {"trusted": (400 * (interval.upper - interval.lower) <= length, f"1: at most {length} HU long")}


def to_unit(values, width=400.0, level=40.0):
    """What windowing should give, in float64."""
    return np.clip((values - (level - width / 2)) / width, 0, 1)


def write_nifti(path, values, axes="LPS", *, affine=LPS, slope=1.0, intercept=0.0):
    """The same anatomy (slice, row, column), stored along any axes, with slope and intercept."""
    image = nibabel.Nifti1Image(values.transpose(2, 1, 0).astype(np.float64), affine)
    start = nibabel.orientations.axcodes2ornt("LPS")
    image = image.as_reoriented(
        nibabel.orientations.ornt_transform(start, nibabel.orientations.axcodes2ornt(tuple(axes)))
    )
    stored = np.rint((np.asarray(image.dataobj) - intercept) / slope).astype(np.int16)
    out = nibabel.Nifti1Image(stored, image.affine, image.header)
    out.set_sform(image.affine, code="scanner")
    out.set_qform(image.affine, code="scanner")
    out.header.set_data_dtype(np.int16)
    out.header["descrip"] = b"made by a test"
    out.header.set_slope_inter(slope, intercept)
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(out, path)
    return out.affine


def write_dicom(folder, values, *, series="1.2.3", patient="P1", slope=1.0, intercept=-1024.0, seed=0, **changes):
    """A series of one file per slice, in shuffled order and with misleading names and numbers; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    photometric = changes.pop("photometric", "MONOCHROME2")
    files = [None] * len(values)
    for number, k in enumerate(np.random.default_rng(seed).permutation(len(values))):
        data = pydicom.Dataset()
        data.SOPClassUID, data.SOPInstanceUID = pydicom.uid.CTImageStorage, f"{series}.{k + 1}"
        data.PatientID, data.PatientName, data.Modality = patient, "Doe^Jane", "CT"
        data.PatientBirthDate, data.PatientSex, data.StudyDate = "19700101", "F", "20240102"
        data.StudyInstanceUID, data.SeriesInstanceUID, data.SeriesNumber = "1.2", series, 4
        data.FrameOfReferenceUID = "1.2.9"
        data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        data.ImagePositionPatient = [-100, -90, -30 + 2.5 * int(k)]
        data.PixelSpacing, data.SliceThickness, data.InstanceNumber = [0.7, 0.8], 2.5, number + 1
        data.Rows, data.Columns, data.SamplesPerPixel = *values.shape[1:], 1
        data.PhotometricInterpretation = photometric
        data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 16, 15, 1
        data.RescaleSlope, data.RescaleIntercept, data.RescaleType = slope, intercept, "HU"
        data.PixelData = np.rint((values[k] - intercept) / slope).astype("<i2").tobytes()
        for name, value in changes.items():
            setattr(data, name, value)
        data.file_meta = pydicom.dataset.FileMetaDataset()
        data.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
        files[k] = folder / f"{series}_{number:03d}.dcm"
        data.save_as(files[k], enforce_file_format=True)
    return files


def edit(file, **changes):
    """Change some elements of a DICOM file; None deletes one."""
    data = pydicom.dcmread(file)
    for name, value in changes.items():
        if value is None:
            delattr(data, name)
        else:
            setattr(data, name, value)
    data.save_as(file, enforce_file_format=True)


# ---------------------------------------------------------------- segmentations, as highdicom writes them

LABELS = np.zeros((4, 7, 6), np.uint8)
LABELS[1, 2:5, 1:3] = 1
LABELS[2, 2:6, 1:5] = 2
LABELS[2, 0, 0] = 1


def _segment(number):
    import highdicom

    tissue = pydicom.sr.codedict.codes.SCT.Tissue
    return highdicom.seg.SegmentDescription(number, f"organ {number}", tissue, tissue, "MANUAL")


def draw_segmentation(file, folder, pixels, kind="BINARY", numbers=(1, 2)):
    """A segmentation of a series as highdicom writes it; slices without a segment are left out."""
    import highdicom

    series = [pydicom.dcmread(x) for x in sorted(folder.iterdir())]
    series.sort(key=lambda x: float(x.ImagePositionPatient[2]))
    for x in series:
        for word in ("StudyTime", "StudyID", "AccessionNumber", "ReferringPhysicianName", "PatientBirthDate"):
            setattr(x, word, x.get(word, ""))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = highdicom.seg.Segmentation(
            series, pixels, kind, [_segment(i) for i in numbers], highdicom.UID(), 1, highdicom.UID(), 1, "a maker",
            "a model", "1", "2",
        )  # fmt: skip
        made.save_as(file)
    return file


def scan_of(maps):
    """The folder of the only scan of a folder of DICOM maps."""
    (folder,) = maps.iterdir()
    return folder
