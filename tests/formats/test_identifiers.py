"""Nothing that tells whose images they are goes along into outputs, unless that is asked for."""

import numpy as np
import pytest
from commands import call, done

import pixelbounds as pb
from pixelbounds.formats.maps import write_interval

nibabel = pytest.importorskip("nibabel")
pydicom = pytest.importorskip("pydicom")
from medical import hounsfield, scan_of, write_dicom, write_nifti  # noqa: E402
from medical import open_ct as open_images  # noqa: E402

VALUES = hounsfield(3)
SECRETS = {
    "PatientName": "SECRET^Name", "PatientID": "SECRET-ID", "PatientBirthDate": "19700203", "PatientSex": "F",
    "PatientAge": "056Y", "PatientAddress": "SECRET street", "OtherPatientIDs": "SECRET-OTHER",
    "ReferringPhysicianName": "SECRET^Doctor", "OperatorsName": "SECRET^Operator", "AccessionNumber": "SECRET-ACC",
    "StudyDescription": "SECRET study", "StudyDate": "20240102", "StudyTime": "101112", "StudyID": "SECRET-77",
    "InstitutionName": "SECRET hospital", "PatientComments": "SECRET comment", "IssuerOfPatientID": "SECRET-ISSUER",
    "PositionReferenceIndicator": "SECRET place",
}  # fmt: skip
WORDS = [b"SECRET", b"19700203", b"20240102", b"101112", b"056Y", b"secret"]
ASKED = ("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyDate")


def around(images):
    return pb.Interval(np.clip(images.pixels - 0.02, 0, 1), np.clip(images.pixels + 0.03, 0, 1))


def nifti_with_secrets(path):
    """A scan whose header tells of people in all its free text."""
    write_nifti(path, VALUES)
    image = nibabel.load(path)
    for name in ("descrip", "aux_file", "db_name", "intent_name"):
        image.header[name] = b"SECRET"
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"SECRET extension"))
    nibabel.save(image, path)


def written_bytes(folder):
    """Everything below a folder, unpacked, with the names."""
    import gzip

    for path in sorted(folder.rglob("*")):
        yield path.name.encode()
        if path.is_file():
            data = path.read_bytes()
            yield gzip.decompress(data) if path.suffix == ".gz" else data
            if path.suffix == ".npz":
                yield from (np.asarray(x).astype("S").tobytes() for x in np.load(path).values())


def tells(folder):
    """Which of the words that tell of people lie in a folder."""
    return {word for data in written_bytes(folder) for word in WORDS if word in data}


@pytest.mark.parametrize("name", ["parametric", "maps", "maps.nii.gz", "maps.npz", "maps.zarr"])
@pytest.mark.parametrize("source", ["dicom", "nifti"])
def test_outputs_tell_of_nobody_unless_asked(tmp_path, name, source):
    if source == "dicom":
        write_dicom(tmp_path / "in", VALUES, **SECRETS)
    else:
        for patient in "ab":
            nifti_with_secrets(tmp_path / "in" / f"secret_{patient}.nii.gz")
    images = open_images(tmp_path / "in")
    for identifiers in ("drop", "pseudonym", "keep"):
        (tmp_path / identifiers).mkdir()
        rest = {"like": images, "identifiers": identifiers, "parametric": name == "parametric"}
        write_interval(tmp_path / identifiers / name, around(images), **rest)
    assert not tells(tmp_path / "drop")
    assert not tells(tmp_path / "pseudonym")
    assert tells(tmp_path / "keep") or (source, name) == ("dicom", "maps.nii.gz")  # its header has no place for them
    with pytest.raises(ValueError, match="identifiers is 'some'; it must be one of pseudonym, keep, drop"):
        write_interval(tmp_path / "x.npz", around(images), like=images, identifiers="some")


def test_what_stays_places_a_map_on_its_scan(tmp_path):
    files = write_dicom(tmp_path / "in", VALUES, **SECRETS)
    images = open_images(tmp_path / "in")
    write_interval(tmp_path / "maps", around(images), like=images, identifiers="drop")
    for file, source in zip(sorted((scan_of(tmp_path / "maps") / "lower").iterdir()), files, strict=True):
        data, original = pydicom.dcmread(file), pydicom.dcmread(source)
        for name in ("StudyInstanceUID", "FrameOfReferenceUID", "ImagePositionPatient", "PixelSpacing"):
            assert data[name].value == original[name].value
        assert data.SourceImageSequence[0].ReferencedSOPInstanceUID == original.SOPInstanceUID
        assert data.PatientIdentityRemoved == "YES"
        assert not data.PatientID
        assert not data.PatientName
    write_interval(tmp_path / "asked", around(images), like=images, identifiers="keep")
    data = pydicom.dcmread(next((scan_of(tmp_path / "asked") / "lower").iterdir()))
    assert {name: str(data[name].value) for name in ASKED} == {name: SECRETS[name] for name in ASKED}
    assert "PatientIdentityRemoved" not in data
    assert "InstitutionName" not in data  # a map needs it in no case


def test_patients_stay_apart_in_an_archive_and_variants_share_no_uid(tmp_path):
    """Three patients, one with two series; a pseudonym for each patient, and other identifiers for whatever differs."""
    for number, patient in enumerate("ABAC"):
        where = {"series": f"1.2.3.{number}", "patient": f"SECRET-{patient}", "StudyInstanceUID": f"1.2.{ord(patient)}"}
        write_dicom(tmp_path / "in" / str(number), VALUES + number, **where)
    images = open_images(tmp_path / "in")
    variants = {
        "pseudonym": {},
        "again": {},
        "drop": {"identifiers": "drop"},
        "keep": {"identifiers": "keep"},
        "other": {"about": {"guarantee": "another promise"}},
    }
    uids, patients = {}, {}
    for name, rest in variants.items():
        write_interval(tmp_path / name, around(images), like=images, **rest)
        data = [pydicom.dcmread(file) for file in sorted((tmp_path / name).rglob("*.dcm"))]
        patients[name] = {str(x.StudyInstanceUID): str(x.PatientID) for x in data}
        assert len({x.SOPInstanceUID for x in data}) == len(data)
        for x in data:
            uids.setdefault(str(x.SOPInstanceUID), set()).add(name)
    assert set(map(frozenset, uids.values())) == {
        frozenset(("pseudonym", "again")),
        *map(frozenset, (["drop"], ["keep"], ["other"])),
    }
    assert len(set(patients["pseudonym"].values())) == 3
    assert all(x.startswith("PB-") for x in patients["pseudonym"].values())
    assert set(patients["drop"].values()) == {""}
    assert set(patients["keep"].values()) == {"SECRET-A", "SECRET-B", "SECRET-C"}
    assert sorted(x.name[:9] for x in (tmp_path / "pseudonym").iterdir()) == [f"scan_{i}_PB" for i in range(1, 5)]


def test_units_stay_apart_without_their_names(tmp_path):
    for patient in "ba":
        nifti_with_secrets(tmp_path / "in" / f"secret_{patient}.nii.gz")
    images = open_images(tmp_path / "in")
    write_interval(tmp_path / "maps.npz", around(images), like=images)
    found = np.load(tmp_path / "maps.npz")
    assert sorted(found) == ["lower", "units", "upper"]
    assert found["units"].tolist() == [0, 0, 0, 1, 1, 1]
    write_interval(tmp_path / "m.nii.gz", around(images), like=images)
    assert sorted(x.name for x in tmp_path.glob("m_*")) == sorted(
        f"m_scan_{number}_{part}.nii.gz" for number in (1, 2) for part in ("lower", "upper", "length", "open")
    )


def scans_and_bands(folder, count, seed):
    """Scans under names that tell, and bands that miss some of their pixels."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        write_nifti(folder / "scans" / f"secret_{i:02}.nii.gz", rng.integers(-200, 300, (2, 8, 8)).astype(np.int16))
    truth = open_images(folder / "scans").pixels
    centre = truth + rng.normal(0, 0.05, truth.shape).astype(np.float32)
    np.savez(folder / "bands.npz", lower=centre - np.float32(0.05), upper=centre + np.float32(0.05))
    return folder / "scans", folder / "bands.npz"


def test_commands_drop_and_keep(tmp_path):
    cal = tmp_path / "cal.safetensors"
    words = "--risk-level", 0.2, "--failure-prob", 0.2, "--groups", "band", "--window", 400, 40
    done("calibrate", *scans_and_bands(tmp_path / "old", 24, 0), *words, "--out", cal)
    assert b"secret" not in cal.read_bytes()
    scans, bands = scans_and_bands(tmp_path / "new", 4, 1)
    for identifiers in ((), ("--identifiers", "keep")):
        out = tmp_path / ("kept" if identifiers else "dropped")
        out.mkdir()
        for name in ("maps.npz", "maps"):
            done("apply", cal, bands, "--like", scans, *identifiers, "--out", out / name)
        words = scans, bands, "--calibration", cal, "--examples", 2, *identifiers, "--out", out / "page.html"
        result = call("report", *words)
        assert result.exit_code in (0, 1), result.output
    assert not tells(tmp_path / "dropped")
    assert b"secret" in (tmp_path / "kept" / "page.html").read_bytes()
    assert call("apply", cal, bands, "--out", tmp_path / "x.npz", "--identifiers", "so").exit_code == 2
