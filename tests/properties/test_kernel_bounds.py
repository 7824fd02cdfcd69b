"""No compiled loop leaves its arrays: every index is checked where kernels run uncompiled, or with Numba's own checks.

Without compilation the kernels are plain loops over NumPy arrays, which refuse an index beyond their end: that takes a
second. Numba's bounds checking compiles everything anew and runs whole calibrations too: `make guarantees`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from every_kernel import run_files

SUPPORT = Path(__file__).parents[1] / "support"
FOLLOW_FILES = {
    "trees:predict_all", "features:band_labels", "features:prediction_labels", "intervals:widen_ends",
    "entry_scores:entry_scores",
}  # fmt: skip


def run(words, **environment):
    command = [sys.executable, str(SUPPORT / "every_kernel.py"), *words]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, cwd=SUPPORT)


def test_kernels_stay_within_their_arrays():
    done = run([], NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(run_files())]  # none was compiled, and compiled ones find the same to the bit


@pytest.mark.guarantees
@pytest.mark.skipif("PIXELBOUNDS_WORLDS" not in os.environ, reason="compiles every kernel anew: make guarantees")
def test_kernels_stay_within_their_arrays_by_numbas_checks(tmp_path):
    done = run(["all"], NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    digest, *ran = done.stdout.split()
    assert digest == str(run_files())
    assert set(ran) >= FOLLOW_FILES
    assert len(ran) > 35
