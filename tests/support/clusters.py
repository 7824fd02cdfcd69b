"""The world calibrated in memory, and a real cluster of two processes."""

import pytest
from distributed import Client, LocalCluster
from stores import CHOICES, world

import pixelbounds as pb


@pytest.fixture(scope="session")
def arrays():
    return world()


@pytest.fixture(scope="session")
def wanted(arrays):
    """The calibration in memory, and its band."""
    truth, samples = arrays
    band = pb.calibrated_quantiles(samples, 0.1)
    return pb.calibrate(truth, band, **CHOICES), band


@pytest.fixture(scope="module")
def cluster():
    """Ended with its file: an idle one takes a tenth of a core."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="1GiB"
    ) as started:
        yield started


@pytest.fixture
def client(cluster):
    with Client(cluster, set_as_default=False) as client:
        yield client
