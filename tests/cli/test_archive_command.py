"""A day in a hospital: series arrive in Orthanc, `pixelbounds archive` does each once, whatever ends its calls."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pydicom = pytest.importorskip("pydicom")
pytest.importorskip("highdicom")
pytest.importorskip("dicomweb_client")
import day  # noqa: E402
from commands import call, flat  # noqa: E402
from orthanc import MISSING, PLUGIN, running_archive  # noqa: E402

from pixelbounds.calibration.calibration_file import load_calibration  # noqa: E402
from pixelbounds.monitoring import load_monitor  # noqa: E402

pytestmark = pytest.mark.skipif(
    bool(MISSING) or not PLUGIN.exists(), reason="apt-get install orthanc orthanc-dicomweb dcmtk"
)
SLICES = 2
MADE = 4 * SLICES + 4 + 1  # of a series: captures of four parts, their Parametric Maps, a report
KILLS = 50


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospital")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield day.calibrated(folder)


@pytest.fixture
def hospital(tmp_path, calibration):
    """An archive, which would replace an object that came twice, what calls the command, and what lets some arrive."""
    with running_archive(tmp_path / "archive", OverwriteInstances=True) as archive:
        words = (
            calibration,
            "hospital:denoise",
            "--from",
            archive.dicomweb,
            "--samples",
            19,
            "--work",
            tmp_path / "work",
        )

        def arrive(*numbers, more=0):
            for number in numbers:
                values = day.series_of(number, 20)[1] + np.int16(more)
                archive.store(*day.write_patient(tmp_path / "new" / str(number), number, values))

        yield archive, words, arrive


def test_series_are_done_once_they_have_arrived_and_a_change_ends_with_5(hospital, tmp_path):
    archive, words, arrive = hospital
    arrive(100, 101)
    first, second, third = (call("archive", *words) for _ in range(3))
    assert [x.exit_code for x in (first, second, third)] == [0, 0, 0]
    assert "waiting 2 series" in flat(first.output)
    assert f"done 2 series, {2 * MADE} objects sent" in flat(second.output)
    assert "done 0 series" in flat(third.output)
    patients = [archive.ask(f"patients/{x}") for x in archive.ask("patients")]
    assert sorted(x["MainDicomTags"]["PatientID"] for x in patients) == ["P100", "P101"]  # maps lie with their scans
    assert len(archive.ask("instances")) == 2 * (SLICES + MADE)
    assert load_monitor(tmp_path / "work" / "monitor.safetensors").without_truth.images == 2 * SLICES
    assert not list((tmp_path / "work" / "series").iterdir())
    arrive(*range(102, 114), more=80)
    last = [call("archive", *words) for _ in range(2)][1]
    assert last.exit_code == 5
    assert "ALARM, source changed" in flat(last.output)


def test_a_series_that_is_refused_is_named_and_does_not_stop_the_others(hospital, calibration, tmp_path):
    archive, words, arrive = hospital
    files = day.write_patient(Path(words[-1]).parent / "gap", 7, np.zeros((4, 8, 8), np.int16))
    archive.store(*(file for file in files if not str(pydicom.dcmread(file).SOPInstanceUID).endswith(".2")))  # a gap
    arrive(100)
    call("archive", *words)
    result = call("archive", *words)
    assert result.exit_code == 2
    assert "done 1 series" in flat(result.output)
    assert "refused 1.2.826.8.1" in flat(result.output)
    assert not list((tmp_path / "work" / "series").iterdir())  # nothing of a patient stays here
    assert call("archive", *words).exit_code == 0
    assert "refused 1.2.826.8.1" in flat(call("archive", *words, "--identifiers", "drop").output)  # again
    again = load_calibration(calibration).without_hashes().to_bytes()
    (tmp_path / "other.safetensors").write_bytes(again)
    other = call("archive", tmp_path / "other.safetensors", *words[1:])
    assert other.exit_code == 2
    assert "monitors another calibration" in flat(other.output)


def test_nothing_is_lost_or_sent_twice_by_calls_that_are_killed(hospital, calibration, tmp_path):
    archive, words, arrive = hospital
    alive, arrived = 0, 0
    for number in range(5):  # series arrive while calls are killed
        arrive(100 + 2 * number, 101 + 2 * number)
        arrived += 2
        command = [sys.executable, day.__file__, str(number), str(KILLS // 5), "1.0", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=calibration.parent, timeout=300)
        alive += int(done.stdout)
    assert alive > KILLS / 2  # the others had done all there was
    print(f"{KILLS} kills, {alive} of running calls; {arrived} series of {SLICES} images and {MADE} objects to send")
    for _ in range(2):
        assert call("archive", *words).exit_code == 0
    assert len(archive.ask("instances")) == arrived * (SLICES + MADE)
    changes = archive.ask("changes?limit=100000")["Changes"]
    stored = [x["ID"] for x in changes if x["ChangeType"] == "NewInstance"]
    assert len(stored) == len(set(stored)) == arrived * (SLICES + MADE)
    assert load_monitor(tmp_path / "work" / "monitor.safetensors").without_truth.images == arrived * SLICES
