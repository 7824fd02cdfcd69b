"""A network and a problem make a sampler: in Python and as a command, with runs that go on."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sampling_world import call  # noqa: E402

from pixelbounds.diffusion import (  # noqa: E402
    Guidance,
    NCSNpp,
    NetworkConfig,
)
from pixelbounds.diffusion.checkpoint import save_network  # noqa: E402
from pixelbounds.diffusion.sde import VESDE  # noqa: E402
from pixelbounds.problems import ct, mri  # noqa: E402
from pixelbounds.samplers import LinearSampler, bands_from  # noqa: E402
from pixelbounds.samplers.network_backend import NetworkBackend  # noqa: E402
from pixelbounds.samplers.runs import open_run  # noqa: E402
from pixelbounds.workflows import SampleOptions  # noqa: E402

M = 19
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A score network, not trained."""
    path = tmp_path_factory.mktemp("linear") / "score.safetensors"
    torch.manual_seed(0)
    model = NCSNpp(NetworkConfig(base=4, multipliers=(1, 1), attention=(), size=8))
    save_network(path, model, VESDE(0.01, 1.0), "score", {"limits": [0.0, 1.0], "sigma_top": 0.5})
    return path


@pytest.mark.parametrize("problem", [ct(4, 8, 0.05), mri(2, 0.05, coils=2)], ids=repr)
def test_a_network_inverts_what_it_was_not_trained_for(network, problem, tmp_path):
    y = problem(np.random.default_rng(0).random((2, 8, 8)).astype(np.float32), 0)
    sampler = LinearSampler(network, problem, Guidance(steps=2, solver_steps=2))
    band = bands_from(sampler, y, samples=M, out=tmp_path / "run.zarr")
    assert band.shape == (2, 8, 8)
    assert band.source.sampler == sampler.name
    assert sampler.name.startswith(f"mmps of {problem}, heun 2 steps, solver 2, network ")
    assert sampler.limits == (0.0, 1.0)
    one = sampler(y[0], 3, 5)
    assert one.shape == (3, 8, 8)
    assert torch.equal(one, sampler(y[0], 3, 5))
    assert not torch.equal(one, sampler(y[0], 3, 6))
    small = LinearSampler(network, problem, Guidance(steps=2, solver_steps=2), batch=2)
    np.testing.assert_allclose(small(y[0], 3, 5), one, atol=1e-4)


def test_the_command_inverts_a_declared_problem(network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problem.toml").write_text('problem = "mri"\nacceleration = 2\ncoils = 2\nsigma_0 = 0.05\n')
    y = mri(2, 0.05, coils=2)(np.random.default_rng(0).random((3, 8, 8)).astype(np.float32), 0)
    np.save("y.npy", y)
    words = ("sample", network, "y.npy", "--problem", "problem.toml", "--samples", M, "--steps", 2, "--images", "1:3")
    result = call(*words, "--out", "run.zarr")
    assert result.exit_code == 0, result.output
    run = open_run("run.zarr")
    assert run.about["limits"] == [0.0, 1.0]
    np.testing.assert_array_equal(run["observation"][:], y[1:])
    for more, said in {
        ("--method", "dps", "--out", "run.zarr"): "is another run: sampler is 'mmps of",
        ("--method", "magic", "--out", "o.zarr"): "known are mmps, pigdm, dps",
        ("--sigma0", 0.1, "--out", "o.zarr"): "says what its noise is; leave --sigma0 out",
    }.items():
        result = call(*words, *more)
        assert result.exit_code == 2
        assert said in " ".join(result.output.replace("│", " ").split())
    result = call("sample", network, "y.npy", "--sweeps", 2, "--out", "o.zarr")
    assert result.exit_code == 2
    assert "without --problem a network denoises; leave --sweeps out" in " ".join(
        result.output.replace("│", " ").split()
    )


@pytest.mark.parametrize("asked, images, device, wanted", [
    (None, 10**5, "cuda", True), (None, 10, "cuda", False), (None, 10**5, "cpu", False), (False, 10**5, "cuda", False),
])  # fmt: skip
def test_a_run_compiles_where_it_pays(asked, images, device, wanted):
    network, sde = torch.nn.Identity(), VESDE(0.01, 1.0)
    backend = NetworkBackend(network, SampleOptions(compile=asked), 0.3, (1, 64, 64), kind="score", sde=sde)
    backend.compile_where_it_pays(images, device)
    assert backend.compile is wanted
    assert (backend.network is not network) is wanted
