"""What several tests share."""

import numpy as np
import pytest

collect_ignore_glob = ["*conftest.py"]  # no doctests there, and several files of one name cannot be collected at once


@pytest.fixture
def rng():
    return np.random.default_rng(0)
