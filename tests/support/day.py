"""A hospital's day: a calibration of phantoms as CT series, and series that arrive in an archive later.

As a program it calls `pixelbounds archive` again and again and kills it at random moments, all from one process that
has loaded everything, so that a call takes no time to start: python day.py SEED KILLS SECONDS WORDS...
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

SAMPLER = """
import numpy as np


def denoise(observation, samples, seed):
    noise = np.random.default_rng(seed).standard_normal((samples, *observation.shape))
    return np.clip(observation, 0, 1) + 0.05 * noise
"""


def series_of(number, noise):
    """Two slices of a patient, 8 x 8, in Hounsfield units: as they are, and as they are seen."""
    import numpy as np

    rng = np.random.default_rng(number)
    truth = rng.uniform(-100, 180, (2, 8, 8)).round()
    return truth.astype(np.int16), (truth + noise * rng.standard_normal(truth.shape)).round().astype(np.int16)


def write_patient(folder, number, values):
    from medical import write_dicom

    uid = f"1.2.826.{number + 1}"
    return write_dicom(
        folder, values, series=f"{uid}.1", patient=f"P{number:03}", StudyInstanceUID=uid, FrameOfReferenceUID=f"{uid}.9"
    )


def calibrated(folder, patients=60):
    """A calibration in a folder, of patients whose noise deviates by 20 HU."""
    from commands import done

    (folder / "hospital.py").write_text(SAMPLER)
    for number in range(patients):
        truth, seen = series_of(number, 20)
        write_patient(folder / "truth" / f"P{number:03}", number, truth)
        write_patient(folder / "seen" / f"P{number:03}", number, seen)
    done("sample", "hospital:denoise", folder / "seen", "--samples", 19, "--out", folder / "run.zarr")
    calibration = folder / "cal.safetensors"
    done("calibrate", folder / "truth", folder / "run.zarr", "--risk-level", 0.2, "--out", calibration)
    return calibration


def kill_calls(seed, kills, seconds, words):
    """Start the command so often, and kill each after up to so many seconds; how many were alive when killed."""
    from pixelbounds.cli import app
    from pixelbounds.workflows import archive  # noqa: F401 - loaded once

    sys.path.insert(0, os.getcwd())
    rng, alive = random.Random(seed), 0
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            try:
                app(["archive", *words])
            except SystemExit as end:
                os._exit(int(end.code or 0))
            os._exit(0)
        time.sleep(rng.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        alive += os.WIFSIGNALED(status)
    print(alive)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    kill_calls(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
