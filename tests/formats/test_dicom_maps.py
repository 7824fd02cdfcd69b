"""Parametric Maps and the segmentation of a trust mask: other libraries read them to the voxel; nothing is lost."""

import hashlib
import shutil
import subprocess

import numpy as np
import pytest
from commands import done
from refusals import refuses

import pixelbounds as pb
from pixelbounds.formats.dicom_maps import MASKS
from pixelbounds.formats.maps import write_interval
from pixelbounds.formats.scans import FormatError

pydicom = pytest.importorskip("pydicom")
highdicom = pytest.importorskip("highdicom")
from medical import (  # noqa: E402
    LABELS,
    draw_segmentation,
    edit,
    hounsfield,
    nibabel,
    scan_of,
    trusted,
    write_dicom,
    write_nifti,
)
from medical import open_ct as open_images  # noqa: E402

VALUES = hounsfield(4, 7, 6)


def turned(angle, tilt):
    """Row and column directions of a slice that is turned in its plane and tilted, and its normal."""
    row = np.array([np.cos(angle), np.sin(angle), 0.0])
    column = np.array([-np.sin(angle) * np.cos(tilt), np.cos(angle) * np.cos(tilt), np.sin(tilt)])
    return row, column, np.cross(row, column)


def oblique(folder, **changes):
    row, column, normal = turned(0.3, 0.5)
    files = write_dicom(folder, VALUES, **changes)
    for k, file in enumerate(files):
        orientation = [round(float(x), 10) for x in (*row, *column)]
        position = [round(float(x), 8) for x in np.array([-70, 12.5, 300.25]) + 2.5 * k * normal]
        edit(file, ImageOrientationPatient=orientation, ImagePositionPatient=position)


def reversed_order(folder):
    """Columns from left to right, slices from head to feet."""
    for k, file in enumerate(write_dicom(folder, VALUES)):
        edit(file, ImageOrientationPatient=[-1, 0, 0, 0, 1, 0], ImagePositionPatient=[100, -90, 30 - 2.5 * k])


def uneven(folder):
    for k, file in enumerate(write_dicom(folder, VALUES)):
        edit(file, ImagePositionPatient=[-100, -90, 2.5 * k + 0.4 * (k == 2)])


SERIES = {
    "plain": lambda folder: write_dicom(folder, VALUES),
    "oblique": oblique,
    "oblique and dark": lambda folder: oblique(folder, photometric="MONOCHROME1"),
    "reversed": reversed_order,
    "uneven": uneven,
    "dark": lambda folder: write_dicom(folder, VALUES, photometric="MONOCHROME1"),
    "slopes": lambda folder: write_dicom(folder, VALUES, slope=0.1, intercept=-1000.7),
    "one slice": lambda folder: write_dicom(folder, VALUES[:1]),
    "twelve bits": lambda folder: write_dicom(folder, VALUES, BitsStored=12, HighBit=11, PixelRepresentation=0),
    "abdomen": lambda folder: write_dicom(folder, VALUES, BodyPartExamined="ABDOMEN"),  # unpaired: no laterality
    "left breast": lambda folder: write_dicom(folder, VALUES, BodyPartExamined="BREAST", Laterality="L"),
    "Japanese": lambda folder: write_dicom(
        folder, VALUES[:1], SpecificCharacterSet=["", "ISO 2022 IR 87"], PatientName="Yamada^Tarou=山田^太郎"
    ),
    "NIfTI": lambda folder: write_nifti(folder / "scan.nii.gz", VALUES, axes="RAS", slope=2.0, intercept=-1.0),
}
LONG = {"guarantee": "With probability at least 90%: " + "; ".join(f"({i}) at most {i}%" for i in range(90)) + "."}
WARNINGS = (  # of dciodvfy, as docs/research/dicom.md lists them
    "needed to build DICOMDIR", "Laterality", "not present in standard", "<QUANTITY>", "CodingSchemeDesignator"
)  # fmt: skip


def intervals(images, seed=0):
    """Intervals that hold most pixels, some of them to a hair, some beyond the window."""
    rng = np.random.default_rng(seed)
    unit = images.pixels.astype(np.float64)
    scale = 0.1 if images.geometry.window is not None else 40.0
    slack = scale * rng.uniform(-0.1, 1, (2, *unit.shape)) * (rng.uniform(size=unit.shape) > 0.2)
    ends = np.stack([unit - slack[0], unit + slack[1]]).astype(np.float32)
    ends = np.clip(ends, 0, 1) if images.geometry.window is not None else ends
    return pb.Interval(np.minimum(*ends), np.maximum(*ends), measure=images.measure)


def in_slices(data, scan, shape):
    """Frames in the order of the scan's slices, each found by its place, and their numbers."""
    lps = np.diag([-1.0, -1.0, 1.0]) @ scan.affine[:3]
    wanted = [lps @ [k, 0, 0, 1] for k in range(shape[0])]
    if scan.kind == "dicom":
        wanted = [np.array(header.ImagePositionPatient, float) for header in scan.header]
    frames = data.PerFrameFunctionalGroupsSequence
    places = np.array([frame.PlanePositionSequence[0].ImagePositionPatient for frame in frames], float)
    apart = np.abs(places[None] - np.array(wanted)[:, None]).max(axis=2)
    assert (apart.min(axis=1) < 1e-6).all()
    order = apart.argmin(axis=1)
    return np.atleast_3d(data.pixel_array.reshape(shape))[order].astype(np.float64), order


@pytest.mark.parametrize(
    "kind, window", [*((kind, (400.0, 40.0)) for kind in SERIES), ("oblique", None), ("slopes", None), ("NIfTI", None)]
)
def test_no_voxel_is_uncovered_and_each_lies_where_it_lay(tmp_path, kind, window):
    SERIES[kind](tmp_path / "scan")
    images = open_images(tmp_path / "scan", window=window)
    values = open_images(tmp_path / "scan", window=None).pixels.astype(np.float64)
    interval = intervals(images)
    masks = trusted(interval, 20)
    write_interval(tmp_path / "maps", interval, like=images, masks=masks, parametric=True)
    held = interval.contains(images.pixels)
    assert 0.3 < held.mean() < 1
    (scan,) = images.geometry.scans
    found = {}
    names = ("lower", "upper", "length") + (("open",) if window else ())
    for name in names:
        file = scan_of(tmp_path / "maps") / "parametric" / f"{name}.dcm"
        data = pydicom.dcmread(file)
        assert data.SOPClassUID == pydicom.uid.ParametricMapStorage
        (shared,) = data.SharedFunctionalGroupsSequence
        (mapping,) = shared.RealWorldValueMappingSequence
        unit = mapping.MeasurementUnitsCodeSequence[0].CodeValue
        assert unit == ("1" if name == "open" or kind == "NIfTI" else "[hnsf'U]")
        found[name], order = in_slices(data, scan, values.shape)
        image = highdicom.imread(file)
        assert np.array_equal(image.get_frames(apply_real_world_transform=True)[order], found[name])
        if scan.kind == "dicom":
            assert data.FrameOfReferenceUID == scan.header[0].FrameOfReferenceUID
            assert data.StudyInstanceUID == scan.header[0].StudyInstanceUID
        if kind != "uneven" and len(values) > 1:
            volume = image.get_volume()
            lps = np.diag([-1.0, -1.0, 1.0]) @ scan.affine[:3]
            for at in ([0, 0, 0], [1, 2, 3], [3, 6, 5]):  # highdicom may count slices the other way round
                there = np.linalg.inv(volume.affine) @ [*(lps @ [*at, 1]), 1]
                np.testing.assert_allclose(there, there.round(), atol=1e-5)
                assert volume.array[tuple(there[:3].round().astype(int))] == found[name][tuple(at)]
    covered = (found["lower"] <= values) & (values <= found["upper"])
    assert (covered | ~held).all()
    assert (found["length"] >= found["upper"] - found["lower"]).all()
    mask = highdicom.seg.segread(scan_of(tmp_path / "maps") / "parametric" / "trusted.dcm")
    assert np.array_equal(in_slices(mask, scan, values.shape)[0], masks["trusted"][0])
    assert list(mask.segment_numbers) == [1]


def test_every_object_says_what_it_was_made_by(tmp_path):
    about = {"guarantee": "at most 10% of the pixels", "calibration": "c0ffee", "source": "network with digest beef"}
    SERIES["plain"](tmp_path / "scan")
    SERIES["NIfTI"](tmp_path / "other")
    for scan, out in (("scan", "maps"), ("other", "map.nii.gz")):
        images = open_images(tmp_path / scan)
        rest = {"like": images, "about": about, "masks": trusted(intervals(images), 20)}
        rest |= {"report": {"bright": images.pixels > 0.5}} if out == "maps" else {}
        write_interval(tmp_path / out, intervals(images), **rest)
    said = [pydicom.dcmread(file).ContributingEquipmentSequence for file in (tmp_path / "maps").rglob("*.dcm")]
    texts = [" ".join(item.get("ContributionDescription", "") for item in items) for items in said]
    for file in tmp_path.glob("map_*.nii.gz"):
        texts += [str(x.get_content()) for x in nibabel.load(file).header.extensions]
    assert len(texts) == 5 * 4 + 5 + 2 + 5  # captures, Parametric Maps and mask, structures and report; NIfTI
    for text in texts:
        assert all(word in text for word in ("pixelbounds 0.", *about.values())), text


def test_a_guarantee_that_is_cut_says_so_and_is_whole_elsewhere(tmp_path):
    write_dicom(tmp_path / "scan", VALUES[:1])
    images = open_images(tmp_path / "scan")
    write_interval(tmp_path / "maps", intervals(images), like=images, about=LONG, report={})
    for file in (tmp_path / "maps").rglob("*.dcm"):
        data = pydicom.dcmread(file)
        said = data.ContributingEquipmentSequence[0].ContributionDescription
        assert len(said) <= 1024
        assert said.endswith("ImageComments, or in the algorithm of the report")
        whole = data.get("ImageComments") or data.to_json()
        assert LONG["guarantee"] in whole, file


def test_a_source_of_many_frames_is_refused_however_few_it_has(tmp_path):
    """One frame of an enhanced image has its place and rescaling elsewhere; of an angiography no map is parametric."""
    groups = [pydicom.Dataset()]
    write_dicom(tmp_path / "enhanced", VALUES[:1], NumberOfFrames=1, SharedFunctionalGroupsSequence=groups)
    write_dicom(tmp_path / "dose", VALUES[:1], Modality="RTDOSE", DoseGridScaling="0.01")
    for name in ("enhanced", "dose"):
        refuses(lambda path=tmp_path / name: open_images(path), "convert it to one plain file", error=FormatError)
    write_dicom(tmp_path / "scan", VALUES[:1], SOPClassUID=pydicom.uid.XRayAngiographicImageStorage, Modality="XA")
    images = open_images(tmp_path / "scan")
    write_interval(tmp_path / "maps", intervals(images), like=images)
    wanted = "X-Ray Angiographic", "leave --parametric and --report out"
    refuses(lambda: write_interval(tmp_path / "more", intervals(images), like=images, report={}), *wanted)


def test_open_ends_are_padding_that_viewers_leave_out(tmp_path):
    """Air at the open lower end is no silhouette, and not the brightest of the lengths."""
    values = np.full((1, 4, 4), 40, np.int16)
    values[0, 0] = -900
    write_dicom(tmp_path / "scan", values)
    images = open_images(tmp_path / "scan")
    held = pb.Interval(np.clip(images.pixels - 0.01, 0, 1), np.clip(images.pixels + 0.01, 0, 1))
    write_interval(tmp_path / "maps", held, like=images, parametric=True)
    for part, prefix in (("lower", ""), ("length", ""), ("lower", "Float"), ("length", "Float")):
        file = "parametric/{}.dcm" if prefix else "{0}/{0}_001.dcm"
        data = pydicom.dcmread(scan_of(tmp_path / "maps") / file.format(part))
        first, last = (data[f"{prefix}PixelPadding{x}"].value for x in ("Value", "RangeLimit"))
        padded = (data.pixel_array >= first) & (data.pixel_array <= last)
        assert np.array_equal(padded.reshape(4, 4), values[0] < -160), part
    assert "PixelPaddingValue" not in pydicom.dcmread(scan_of(tmp_path / "maps") / "upper" / "upper_001.dcm")


def test_a_structured_report_says_what_each_structure_comes_to(tmp_path):
    """Read back by highdicom: means over closed intervals, what was promised, and what the report refers to."""
    write_dicom(tmp_path / "scan", VALUES)
    draw_segmentation(tmp_path / "seg.dcm", tmp_path / "scan", LABELS)
    images = open_images(tmp_path / "scan")
    centre = np.tile(images.pixels, (24, 1, 1)).reshape(-1, *images.pixels.shape[1:])
    truth = np.clip(centre + np.random.default_rng(0).normal(0, 0.02, centre.shape), 0, 1).astype(np.float32)
    band = pb.Band(np.clip(centre - 0.05, 0, 1), np.clip(centre + 0.05, 0, 1))
    organ = {"within": np.tile(LABELS == 1, (24, 1, 1)), "name": "organ 1"}
    promises = [pb.share(1 / 3), pb.share(0.4, **organ), pb.tail(0.5, above=0.2, **organ)]
    cal = pb.calibrate(truth, band, promises=promises, failure_prob=0.2, method="rcps", measure=images.measure)
    cal.save(tmp_path / "cal.safetensors")
    np.savez(tmp_path / "new.npz", lower=band.lower[: len(images)], upper=band.upper[: len(images)])
    words = "apply", tmp_path / "cal.safetensors", tmp_path / "new.npz", "--like", tmp_path / "scan"
    done(*words, "--structures", tmp_path / "seg.dcm", "--out", tmp_path / "maps")
    scan = scan_of(tmp_path / "maps")
    report = highdicom.sr.srread(scan / "report.dcm")
    groups = *report.content.get_image_measurement_groups(), *report.content.get_volumetric_roi_measurement_groups()
    parts = ("lower", "upper", "open")
    lower, upper, ends = (open_images(tmp_path / "maps", part=part, window=None).pixels for part in parts)
    drawn = highdicom.seg.segread(scan / "parametric" / "structures.dcm")
    assert [x.SegmentLabel for x in drawn.SegmentSequence] == ["organ 1", "organ 2"]
    assert {x.SegmentAlgorithmType for x in drawn.SegmentSequence} == {"SEMIAUTOMATIC"}  # pixelbounds drew none of them
    digest = hashlib.sha256((tmp_path / "cal.safetensors").read_bytes()).hexdigest()
    regions = [np.ones_like(LABELS, bool), LABELS == 1, LABELS == 2]
    levels = [
        {"share": 33.3334},
        {"share": 40, "tail-0.2": 50},
        {},
    ]  # rounded up; about another organ nothing is promised
    for number, (group, inside, level) in enumerate(zip(groups, regions, levels, strict=True)):
        found = {x.name.value: x.value for x in group.get_measurements()}
        assert {name: x for name, x in found.items() if name in ("share", "tail-0.2")} == level
        closed = inside & (ends == 0)
        assert found["voxels"] == inside.sum()
        assert found["open"] == pytest.approx(100 * (1 - closed.sum() / inside.sum()), abs=1e-3)
        assert found["mean-lower"] == pytest.approx(lower[closed].mean(), abs=1.01)  # captures have steps of 1 HU
        assert found["mean-upper"] == pytest.approx(upper[closed].mean(), abs=1.01)
        said = " ".join(str(item.get("TextValue", "")) for item in group[0].ContentSequence)
        assert all(x in said for x in (cal.guarantee, digest, f"pixelbounds {pb.__version__}")), said
        if number:
            (reference,) = group.referenced_segment[0].ReferencedSOPSequence
            assert reference.ReferencedSOPInstanceUID == drawn.SOPInstanceUID
            assert reference.ReferencedSegmentNumber == number
    if shutil.which("dsr2html"):  # a viewer that shows what each number is called
        page = subprocess.run(["dsr2html", scan / "report.dcm"], capture_output=True, text=True).stdout
        assert page.count("Promised on average: images that miss more than 20%, at most") == 1
        assert page.count("Mean lower end of closed intervals") == 3
    items = report.CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence
    referred = {x.ReferencedSOPInstanceUID for item in items for x in item.ReferencedSOPSequence}
    sources = {x.SOPInstanceUID for x in images.geometry.scans[0].header}
    assert referred >= {
        *sources,
        drawn.SOPInstanceUID,
        pydicom.dcmread(scan / "parametric" / "lower.dcm").SOPInstanceUID,
    }


@pytest.mark.skipif(shutil.which("dciodvfy") is None, reason="dciodvfy is missing: apt-get install dicom3tools")
@pytest.mark.parametrize("identifiers", ["drop", "keep", "pseudonym"])
@pytest.mark.parametrize(
    "kind", ["plain", "oblique and dark", "one slice", "abdomen", "left breast", "Japanese", "NIfTI"]
)
def test_every_object_passes_dciodvfy(tmp_path, kind, identifiers):
    SERIES[kind](tmp_path / "scan")
    images = open_images(tmp_path / "scan")
    masks = dict.fromkeys(MASKS, (images.pixels > 0.5, "said"))
    rest = {"like": images, "parametric": True, "masks": masks, "identifiers": identifiers, "about": LONG}
    if kind != "NIfTI":
        rest["report"] = {"Läsion 病変": images.pixels > 0.5}
    write_interval(tmp_path / "maps", intervals(images), **rest)
    for file in sorted((tmp_path / "maps").rglob("*.dcm")):
        if identifiers == "keep" and kind == "Japanese":
            assert pydicom.dcmread(file).PatientName == "Yamada^Tarou=山田^太郎"
        if file.stem == "structures":
            assert pydicom.dcmread(file).SegmentSequence[0].SegmentLabel == "Läsion 病変"
        verdict = subprocess.run(["dciodvfy", "-new", file], capture_output=True, text=True)
        lines = (verdict.stdout + verdict.stderr).splitlines()
        wrong = [x for x in lines if x.startswith("Error")]
        wrong += [x for x in lines if x.startswith("Warning") and not any(known in x for known in WARNINGS)]
        assert not wrong, f"{file.relative_to(tmp_path)}: {wrong}"
