"""What several tests share."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores already; before torch and the BLAS are loaded
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

collect_ignore_glob = ["*conftest.py"]  # no doctests there, and several files of one name cannot be collected at once


@pytest.fixture
def rng():
    return np.random.default_rng(0)
