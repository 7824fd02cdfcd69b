"""What is written, in a real archive: Orthanc takes it from storescu, keeps patients apart, and gives it back."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.formats.maps import write_interval
from pixelbounds.formats.opener import open_images

pydicom = pytest.importorskip("pydicom")
pytest.importorskip("highdicom")
from medical import hounsfield, trusted, write_dicom  # noqa: E402

missing = [name for name in ("Orthanc", "storescu") if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} missing: apt-get install orthanc dcmtk")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def archive(tmp_path):
    """An empty Orthanc on loopback: what asks its REST interface, and its DICOM port."""
    web, dicom = free_port(), free_port()
    settings = {
        "StorageDirectory": str(tmp_path / "store"), "IndexDirectory": str(tmp_path / "store"), "HttpPort": web,
        "DicomPort": dicom, "RemoteAccessAllowed": False, "AuthenticationEnabled": False, "Plugins": [],
    }  # fmt: skip
    (tmp_path / "orthanc.json").write_text(json.dumps(settings))
    process = subprocess.Popen(
        ["Orthanc", tmp_path / "orthanc.json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def ask(path, raw=False):
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/{path}", timeout=10) as answer:
            return answer.read() if raw else json.loads(answer.read())

    try:
        for _ in range(100):
            try:
                ask("system")
                break
            except OSError:
                time.sleep(0.1)
        yield ask, dicom
    finally:
        process.terminate()
        process.wait()


def test_three_patients_are_three_in_an_archive_with_maps_segmentations_and_reports(tmp_path, archive):
    ask, port = archive
    for i in range(3):
        words = {"series": f"1.2.{i + 1}.1", "patient": f"P{i}", "StudyInstanceUID": f"1.2.{i + 1}"}
        write_dicom(tmp_path / "in" / str(i), hounsfield(2, 6, 5, seed=i), **words)
    images = open_images(tmp_path / "in")
    interval = pb.Interval(
        np.clip(images.pixels - 0.05, 0, 1), np.clip(images.pixels + 0.05, 0, 1), measure=images.measure
    )
    rest = {"masks": trusted(interval, images, 50), "report": {"bright": images.pixels > 0.5}}
    write_interval(tmp_path / "maps", interval, like=images, **rest)
    files = sorted((tmp_path / "maps").rglob("*.dcm"))
    sent = subprocess.run(["storescu", "-R", "127.0.0.1", str(port), *files], capture_output=True, text=True)
    assert sent.returncode == 0, sent.stderr[-2000:]
    patients = [ask(f"patients/{x}") for x in ask("patients")]
    wanted = {str(pydicom.dcmread(file).PatientID) for file in files}
    assert {x["MainDicomTags"]["PatientID"] for x in patients} == wanted
    assert [len(x["Studies"]) for x in patients] == [1, 1, 1]
    back = {x["MainDicomTags"]["SOPInstanceUID"]: x["ID"] for x in ask("instances?expand")}
    kinds = [ask(f"series/{x}")["MainDicomTags"] for x in ask("series")]
    assert len(kinds) == 3 * (5 + 5 + 2)  # captures, Parametric Maps and the mask, structures and report
    assert {x["Modality"] for x in kinds} == {"CT", "OT", "SEG", "SR"}
    for file in files:
        data = pydicom.dcmread(file)
        stored = ask(f"instances/{back.pop(data.SOPInstanceUID)}/file", raw=True)
        (tmp_path / "back.dcm").write_bytes(stored)
        again = pydicom.dcmread(tmp_path / "back.dcm")
        assert again == data
    assert not back
