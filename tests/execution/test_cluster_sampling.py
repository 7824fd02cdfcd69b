"""Sampling on a cluster: a network in every worker, one store, and the bits of one process."""

import os
import signal

import numpy as np
import pytest
import zarr

torch = pytest.importorskip("torch")

from pixelbounds.diffusion import NCSNpp, NetworkConfig  # noqa: E402
from pixelbounds.diffusion.checkpoint import save_network  # noqa: E402
from pixelbounds.diffusion.sde import VESDE  # noqa: E402
from pixelbounds.samplers.runs import open_run  # noqa: E402
from pixelbounds.workflows import SampleOptions, sample_to  # noqa: E402

pytest_plugins = ["clusters"]
N, M = 12, 19
OPTIONS = SampleOptions(samples=M, steps=4, batch=2 * M, device="cpu")  # two images a block


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A network, noisy images, and the run of one process."""
    folder, threads = tmp_path_factory.mktemp("sampling"), torch.get_num_threads()
    torch.manual_seed(0)
    network = NCSNpp(NetworkConfig(base=4, multipliers=(1, 1), attention=(), size=8))
    save_network(folder / "score.safetensors", network, VESDE(0.01, 1.0), "score", {"sigma_0": 0.3})
    np.save(folder / "y.npy", np.random.default_rng(0).uniform(0, 1, (N, 8, 8)).astype(np.float32))
    torch.set_num_threads(1)
    sample_to(folder / "score.safetensors", np.load(folder / "y.npy", mmap_mode="r"), folder / "whole.zarr", OPTIONS)
    torch.set_num_threads(threads)
    return folder


def same(path, other):
    first, second = (zarr.open_group(x, mode="r") for x in (path, other))
    for name in ("lower", "upper", "mean", "deviation", "observation", "done"):
        np.testing.assert_array_equal(first[name][:], second[name][:], err_msg=name)


def draw(files, out, client, **more):
    client.run(torch.set_num_threads, 1)
    y = np.load(files / "y.npy", mmap_mode="r")
    return sample_to(files / "score.safetensors", y, out, OPTIONS, scheduler=client, **more)


def test_a_cluster_draws_the_same_and_goes_on(files, tmp_path, client):
    out = tmp_path / "run.zarr"
    draw(files, out, client)
    same(out, files / "whole.zarr")
    out.rename(tmp_path / "run.zarr.part")  # as a driver that was killed leaves it
    group = zarr.open_group(tmp_path / "run.zarr.part", mode="r+")
    group["done"][4:9] = 0
    group["lower"][4:9] = np.nan
    seen = []
    draw(files, out, client, progress=lambda done, total: seen.append(done))
    assert seen[0] == (N - 5) * M
    assert seen[-1] == N * M
    same(out, files / "whole.zarr")


def test_a_worker_dies_while_it_draws(files, tmp_path, client):
    killed = []

    def kill(done, total):
        if not killed and 0 < done < total:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    out = tmp_path / "run.zarr"
    draw(files, out, client, progress=kill)
    assert killed
    assert open_run(out).done.all()
    found, wanted = (zarr.open_group(x, mode="r")["mean"][:] for x in (out, files / "whole.zarr"))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)  # the new worker may use more threads


def test_another_network_on_a_worker_is_refused(files, tmp_path, client):
    from pixelbounds.samplers.network_backend import loaded

    with pytest.raises(ValueError, match="or another one"):
        client.submit(loaded, str(files / "score.safetensors"), "0" * 64, "cpu").result()


def test_a_function_of_a_users_own_is_drawn_by_workers(files, tmp_path, client):
    from pixelbounds.samplers import bands_from

    def noisy(observation, samples, seed):
        return observation + np.random.default_rng(seed).normal(size=(samples, *observation.shape))

    y = np.load(files / "y.npy", mmap_mode="r")[:5]
    wanted = bands_from(noisy, y, samples=M, out=tmp_path / "here.zarr")
    found = bands_from(noisy, y, samples=M, out=tmp_path / "there.zarr", scheduler=client)
    np.testing.assert_array_equal(found.lower[:], wanted.lower[:])
    in_memory = bands_from(noisy, y, samples=M, scheduler=client)
    np.testing.assert_array_equal(in_memory.upper, bands_from(noisy, y, samples=M).upper)
