"""What is written, in a real archive: Orthanc keeps patients apart and returns each object, by C-STORE and DICOMweb."""

import os

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.formats.maps import write_interval
from pixelbounds.formats.opener import open_images
from pixelbounds.formats.scans import FormatError

pydicom = pytest.importorskip("pydicom")
pytest.importorskip("highdicom")
from commands import call, done  # noqa: E402
from medical import hounsfield, trusted, write_dicom  # noqa: E402
from orthanc import MISSING, PLUGIN, running_archive  # noqa: E402

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} missing: apt-get install orthanc dcmtk")
dicomweb = pytest.mark.skipif(not PLUGIN.exists(), reason="no DICOMweb: apt-get install orthanc-dicomweb")


@pytest.fixture
def archive(tmp_path):
    with running_archive(tmp_path / "archive") as running:
        yield running


@pytest.fixture
def maps(tmp_path):
    """Maps of three patients: captures, Parametric Maps, segmentations and a report of each."""
    for i in range(3):
        words = {"series": f"1.2.{i + 1}.1", "patient": f"P{i}", "StudyInstanceUID": f"1.2.{i + 1}"}
        write_dicom(tmp_path / "in" / str(i), hounsfield(2, 6, 5, seed=i), **words)
    images = open_images(tmp_path / "in")
    interval = pb.Interval(
        np.clip(images.pixels - 0.05, 0, 1), np.clip(images.pixels + 0.05, 0, 1), measure=images.measure
    )
    rest = {"masks": trusted(interval, 50), "report": {"bright": images.pixels > 0.5}}
    write_interval(tmp_path / "maps", interval, like=images, **rest)
    return sorted((tmp_path / "maps").rglob("*.dcm"))


def check_stored(archive, files, tmp_path):
    """Every object is in the archive once and as it was, and nothing else; patients and their studies are apart."""
    patients = [archive.ask(f"patients/{x}") for x in archive.ask("patients")]
    wanted = {str(pydicom.dcmread(file).PatientID) for file in files}
    assert {x["MainDicomTags"]["PatientID"] for x in patients} == wanted
    assert [len(x["Studies"]) for x in patients] == [1, 1, 1]
    back = {x["MainDicomTags"]["SOPInstanceUID"]: x["ID"] for x in archive.ask("instances?expand")}
    kinds = [archive.ask(f"series/{x}")["MainDicomTags"] for x in archive.ask("series")]
    assert len(kinds) == 3 * (5 + 5 + 2)  # captures, Parametric Maps and the mask, structures and report
    assert {x["Modality"] for x in kinds} == {"CT", "OT", "SEG", "SR"}
    for file in files:
        data = pydicom.dcmread(file)
        (tmp_path / "back.dcm").write_bytes(archive.ask(f"instances/{back.pop(data.SOPInstanceUID)}/file", raw=True))
        assert pydicom.dcmread(tmp_path / "back.dcm") == data
    assert not back


def test_three_patients_are_three_in_an_archive_with_maps_segmentations_and_reports(archive, maps, tmp_path):
    archive.store(*maps)
    check_stored(archive, maps, tmp_path)


@dicomweb
def test_dicomweb_stores_each_object_once(archive, maps, tmp_path):
    pytest.importorskip("dicomweb_client")
    from pixelbounds.formats.dicomweb import search_series, store_files

    assert store_files(archive.dicomweb, maps[:5]) == 5
    assert store_files(archive.dicomweb, maps) == len(maps) - 5
    assert store_files(archive.dicomweb, maps) == 0
    check_stored(archive, maps, tmp_path)
    assert search_series(archive.dicomweb, {}) == {}  # what we wrote is no series to do
    with pytest.raises(FormatError, match="is no series; give https://HOST"):
        open_images(f"{archive.dicomweb}/studies/1.2")


@dicomweb
def test_apply_takes_a_series_from_an_archive_and_sends_maps_back(tmp_path, archive):
    """The same maps as from a folder, with a password that ~/.netrc holds."""
    pytest.importorskip("dicomweb_client")
    truth = np.random.default_rng(0).uniform(0.2, 0.8, (60, 6, 5)).astype(np.float32)
    band = pb.Band(truth - 0.05, truth + 0.05)
    archive.store(*write_dicom(tmp_path / "in", hounsfield(2, 6, 5)))
    images = open_images(tmp_path / "in")
    pb.calibrate(truth, band, risk_level=0.2, method="rcps", measure=images.measure).save(tmp_path / "cal.safetensors")
    np.savez(tmp_path / "new.npz", lower=band.lower[:2], upper=band.upper[:2])
    address = f"{archive.dicomweb}/studies/1.2/series/1.2.3"
    words = "apply", tmp_path / "cal.safetensors", tmp_path / "new.npz", "--report"
    sent = done(*words, "--from", address, "--out", tmp_path / "maps", "--send", archive.dicomweb)["sent"]
    done(*words, "--like", tmp_path / "in", "--out", tmp_path / "same")
    ours, same = (sorted((tmp_path / name).rglob("*.dcm")) for name in ("maps", "same"))
    assert [x.read_bytes() for x in ours] == [x.read_bytes() for x in same]
    assert sent == len(ours) == 4 * 2 + 4 + 1
    assert len(archive.ask("instances")) == 2 + sent
    result = call(*words, "--from", address, "--out", tmp_path / "m.npz", "--send", archive.dicomweb)
    assert result.exit_code == 2
    assert "--report is for a folder of DICOM" in " ".join(result.output.split())


@dicomweb
def test_who_asks_is_said_by_netrc(tmp_path, monkeypatch):
    requests = pytest.importorskip("requests")
    pytest.importorskip("dicomweb_client")
    from pixelbounds.formats.dicomweb import search_series

    users = {"AuthenticationEnabled": True, "RegisteredUsers": {"ct": "secret"}}
    with running_archive(tmp_path / "archive", **users) as archive:
        monkeypatch.setenv("NETRC", os.devnull)
        with pytest.raises(requests.HTTPError, match="401"):
            search_series(archive.dicomweb, {})
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login ct password secret\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        assert search_series(archive.dicomweb, {}) == {}
