"""Several networks as one: exact where its members are, one file, compiled once, and of like members alone."""

import hashlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

import gaussian_world as world  # noqa: E402
from gaussian_prior import PRIOR, SDE, SIGMA, collect, gaussian_score  # noqa: E402
from scipy import stats  # noqa: E402
from torch import nn  # noqa: E402

from pixelbounds.diffusion.checkpoint import load_network, read, save_network  # noqa: E402
from pixelbounds.diffusion.members import Ensemble  # noqa: E402
from pixelbounds.diffusion.posterior import SAMPLERS  # noqa: E402
from pixelbounds.samplers import loop  # noqa: E402
from pixelbounds.storage.files import seal  # noqa: E402
from pixelbounds.workflows import SampleOptions, combine_networks, sample_to  # noqa: E402
from pixelbounds.workflows.info import about_file  # noqa: E402


class Exact(nn.Module):
    """The score of the Gaussian prior, plus an error."""

    def __init__(self, error=0.0):
        super().__init__()
        self.error = error

    def forward(self, x, sigma):
        return gaussian_score(x, sigma) + self.error


def awake(seed):
    return world.awake(world.network(seed), seed)


@pytest.fixture
def images():
    return torch.from_numpy(world.draw(3, 0))[:, None], torch.tensor([0.02, 0.3, 1.0])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_equal_members_draw_what_one_of_them_draws(sampler):
    y = torch.full((2, *PRIOR.shape), 0.5, dtype=torch.float64)
    one = collect(gaussian_score, y, samples=3, sampler=sampler)
    several = collect(Ensemble([Exact(), Exact(), Exact()]).eval(), y, samples=3, sampler=sampler)
    torch.testing.assert_close(several, one, rtol=1e-9, atol=1e-12)


def test_errors_that_cancel_leave_the_exact_law_and_those_of_one_member_do_not():
    y = 0.8 * torch.randn(3, *PRIOR.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    v = SDE.sigma_min**2
    shrink = PRIOR / (PRIOR + v)
    slope = PRIOR / (PRIOR + SIGMA**2)
    deviation = shrink * ((PRIOR + v) * (SIGMA**2 - v) / (PRIOR + SIGMA**2)).sqrt()
    chances = []
    for members in ([Exact(0.5), Exact(-0.5)], [Exact(0.5)]):
        draws = collect(Ensemble(members).eval(), y, samples=100, steps=16, seed=3)
        z = (draws - (slope * y)[:, None]) / deviation
        chances.append(stats.kstest(z.numpy().ravel(), "norm").pvalue)
    assert chances[0] > 1e-3
    assert chances[1] < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_ensemble_is_one_file(tmp_path, images, dtype):
    ensemble = Ensemble([awake(0), awake(1)]).eval().to(memory_format=torch.channels_last)
    save_network(tmp_path / "two.safetensors", ensemble, SDE, "score", {"sigma_0": 0.4}, dtype=dtype)
    loaded, sde, meta = load_network(tmp_path / "two.safetensors", kind="score")
    assert (sde, meta["members"], loaded.training) == (SDE, 2, False)
    assert loaded.config == ensemble.config
    with torch.no_grad():
        here, there = ensemble(*images), loaded(*images)
    assert float((here - there).abs().max() / here.abs().max()) < (1e-6 if dtype == torch.float32 else 5e-3)


@pytest.fixture
def two(tmp_path):
    for seed in (0, 1):
        save_network(tmp_path / f"{seed}.safetensors", awake(seed), SDE, "score", {"sigma_0": 0.4, "limits": [0, 1]})
    return [tmp_path / f"{seed}.safetensors" for seed in (0, 1)]


def test_joined_networks_are_sampled_stopped_and_gone_on_with_like_one(two, tmp_path, monkeypatch):
    joint = combine_networks(two, tmp_path / "both.safetensors")
    y = world.draw(3, 1).clip(-1, 2)
    options = SampleOptions(samples=19, steps=2, batch=40)  # two images and one
    whole = sample_to(joint, y, tmp_path / "whole.zarr", options)
    keep = loop._keep
    monkeypatch.setattr(loop, "_keep", _once(keep))
    with pytest.raises(KeyboardInterrupt):
        sample_to(joint, y, tmp_path / "part.zarr", options)
    monkeypatch.setattr(loop, "_keep", keep)
    part = sample_to(joint, y, tmp_path / "part.zarr", options)
    for name in ("lower", "upper", "mean"):
        np.testing.assert_array_equal(part[name][:], whole[name][:])
    about = about_file(joint)
    assert about.facts["networks"] == [hashlib.sha256(path.read_bytes()).hexdigest() for path in two]
    assert whole.source("calibrated").network == hashlib.sha256(joint.read_bytes()).hexdigest()
    assert "An ensemble of 2 score networks" in about.sentence


def _once(function):
    calls = []

    def first(*words):
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        function(*words)

    return first


@pytest.mark.parametrize("members", [0, -1, 3, 2**40, "two", True])
def test_a_file_that_says_to_hold_other_members_is_refused(two, tmp_path, members):
    joint = combine_networks(two, tmp_path / "both.safetensors")
    tensors, meta = read(joint, "diffusion network")
    joint.write_bytes(seal({**meta, "members": members}, {name: x.numpy() for name, x in tensors.items()}))
    with pytest.raises(ValueError, match=r"both\.safetensors"):
        load_network(joint)
