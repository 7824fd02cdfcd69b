"""The lean U-net keeps the contract of the NCSN++, in one graph, and learns."""

import gaussian_world as world
import numpy as np
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from pixelbounds.diffusion import VESDE, LeanUNet, NCSNpp, configuration, network_of, posterior_mean  # noqa: E402
from pixelbounds.diffusion.checkpoint import load_network, save_network  # noqa: E402
from pixelbounds.diffusion.regression import n_conffusion, regressor  # noqa: E402
from pixelbounds.diffusion.trainer import Settings, train  # noqa: E402

SDE = VESDE(0.01, 1.0)
SMALL = {"base": 8, "multipliers": (1, 2), "size": 16}


def awake(name="lean", **changes):
    """A small network as after training."""
    torch.manual_seed(0)
    network = network_of(configuration(name, **(SMALL | changes)))
    assert isinstance(network, LeanUNet if name == "lean" else NCSNpp)
    return world.awake(network)


@pytest.mark.parametrize("shape", [(2, 1, 16, 16), (1, 3, 32, 20), (3, 1, 4, 8)])
@pytest.mark.parametrize("changes", [
    {}, {"patch": 2}, {"multipliers": (1, 2, 2), "attention": (8,)}, {"name": "tiny"}, {"name": "tiny", "patch": 2},
])  # fmt: skip
def test_any_size_that_the_strides_divide_goes_through(shape, changes):
    network = awake(channels=shape[1], **changes)
    with torch.no_grad():
        out = network(torch.randn(shape), torch.full(shape[:1], 0.3))
    assert out.shape == shape
    assert torch.isfinite(out).all()
    with pytest.raises(ValueError, match=f"divisible by {network.config.stride}"):
        network(torch.zeros(1, shape[1], 6 * network.config.stride + 1, 16), torch.ones(1))


@pytest.mark.parametrize("name", ["lean", "tiny"])
def test_rows_of_a_batch_do_not_meet_and_their_levels_matter(name):
    network, x, sigma = awake(name), torch.randn(4, 1, 16, 16), torch.tensor([0.05, 0.1, 0.5, 1.0])
    with torch.no_grad():
        whole, parts = network(x, sigma), torch.cat([network(x[i : i + 1], sigma[i : i + 1]) for i in range(4)])
        torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(whole, awake(name, divide_by_sigma=False)(x, sigma) / sigma[:, None, None, None])
        assert not torch.allclose(whole * sigma[:, None, None, None], network(x, sigma.flip(0)), rtol=0.1)
        assert not network_of(network.config)(x, sigma).any()  # untrained, it says nothing


def test_it_is_one_graph_and_every_weight_learns():
    network, x, sigma = awake(), torch.randn(2, 1, 16, 16), torch.tensor([0.1, 1.0])
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    with torch.no_grad():  # in place
        torch.testing.assert_close(compiled(x, sigma), network(x, sigma), rtol=1e-4, atol=1e-4)
    outputs = [f(x, sigma) for f in (compiled, network)]
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-4)
    weights = list(network.parameters())
    slopes = [torch.autograd.grad(output.square().mean(), weights) for output in outputs]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
        assert one.any()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        half = network(x, sigma)
    assert half.dtype == torch.float32
    assert (half - outputs[1]).norm() < 0.05 * outputs[1].norm()


def test_a_file_and_the_regressors_know_the_design(tmp_path):
    network, x, sigma = awake(), torch.randn(2, 1, 16, 16), torch.tensor([0.1, 1.0])
    save_network(tmp_path / "lean.safetensors", network, SDE, "score")
    back, _, meta = load_network(tmp_path / "lean.safetensors", kind="score")
    assert meta["config"]["design"] == "lean"
    with torch.no_grad():
        torch.testing.assert_close(back(x, sigma), network(x, sigma))
        denoised = x + sigma.reshape(-1, 1, 1, 1).square() * network(x, sigma)
        for head in n_conffusion(network).eval()(x, sigma).unbind(1):
            torch.testing.assert_close(head, denoised, rtol=1e-4, atol=1e-4)
    three = regressor(network.config)
    save_network(tmp_path / "heads.safetensors", three, SDE, "regressor")
    assert load_network(tmp_path / "heads.safetensors")[0](x, sigma).shape == (2, 3, 1, 16, 16)


def test_it_learns_a_law_that_is_known():
    torch.manual_seed(0)
    network = network_of(
        configuration("lean", base=16, multipliers=(1, 2), size=world.SIZE, fourier_scale=1.0, dropout=0.0)
    )
    settings = Settings(steps=120, batch=32, learning_rate=5e-3, warmup=10, sigma_top=1.0, ema=0.95)
    done = train(network, world.draw(4000, 0), sde=SDE, settings=settings, limits=world.LIMITS, device="cpu")
    y = world.draw(200, 1) + 0.7 * np.random.default_rng(2).standard_normal((200, 8, 8)).astype("f4")
    exact, _ = world.posterior(y, 0.7)
    mean = posterior_mean(done.network, torch.from_numpy(y)[:, None], 0.7)[:, 0].numpy()
    assert np.square(mean - exact).mean() < 0.1 * np.square(y - exact).mean()
