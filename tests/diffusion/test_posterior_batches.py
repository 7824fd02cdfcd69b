"""Draws do not know their batch, reductions are those of the core, and mistakes are named at the door."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from gaussian_prior import PRIOR, SDE, SIGMA, collect, gaussian_score  # noqa: E402
from gaussian_world import awake  # noqa: E402

import pixelbounds as pb  # noqa: E402
from pixelbounds.bands import calibrated_ranks  # noqa: E402
from pixelbounds.diffusion import NCSNpp, compiled, configuration, network_of  # noqa: E402
from pixelbounds.diffusion.posterior import SAMPLERS, Reduction, sample  # noqa: E402
from pixelbounds.diffusion.trainer import Settings, train  # noqa: E402


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_draw_does_not_know_its_batch(name):
    y = torch.randn(3, *PRIOR.shape, generator=torch.Generator().manual_seed(0))
    options = {"samples": 7, "sampler": name, "steps": 20, "seed": 5}
    whole = collect(gaussian_score, y, **options)
    assert whole.dtype == torch.float32
    assert whole.shape == (3, 7, 1, 4, 8)
    for batch in (1, 4, 21, 50):
        assert torch.equal(whole, collect(gaussian_score, y, batch=batch, **options))
    assert torch.equal(whole[[2, 0]], collect(gaussian_score, y[[2, 0]], image_ids=[2, 0], batch=5, **options))
    fewer = collect(gaussian_score, y, **options | {"samples": 3})
    assert torch.equal(whole[:, :3], fewer)
    assert not torch.equal(whole, collect(gaussian_score, y, **options | {"seed": 6}))


def network():
    torch.manual_seed(0)
    return awake(NCSNpp(configuration("tiny", size=16, divide_by_sigma=False)), deviation=0.02)


def test_a_network_samples_alike_in_any_batch():
    y = torch.randn(2, 1, 16, 16)
    whole = collect(network(), y, samples=3, steps=4)
    torch.testing.assert_close(whole, collect(network(), y, samples=3, steps=4, batch=2), rtol=1e-3, atol=1e-3)


@pytest.fixture
def programs(monkeypatch):
    """The numbers of images of the programs that are compiled, without a compiler of C++."""
    sizes, real = [], torch.compile

    def backend(graph, inputs):
        sizes.append([len(x) for x in inputs if x.ndim == 4 and x.shape[2:] == (8, 8)])
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda network, **how: real(network, backend=backend, **how))
    torch._dynamo.reset()
    yield sizes
    torch._dynamo.reset()


@pytest.mark.parametrize("design, channels", [("small", 1), ("lean", 3)])
def test_training_and_sampling_compile_one_program_each(design, channels, programs):
    config = configuration(design, channels=channels, base=8, multipliers=(1, 2), size=8, patch=2, attention=())
    settings, images = Settings(steps=3, batch=4, compile=True), np.zeros((8, channels, 8, 8), np.float32)
    for _ in range(2):
        done = train(network_of(config), images, sde=SDE, settings=settings, validation=images[:3], device="cpu")
        fast, y = compiled(done.network), torch.zeros(5, channels, 8, 8)
        with torch.no_grad():
            fast(torch.zeros(8, channels, 8, 8), torch.full((8,), 0.3))
        for samples in (3, 5):  # no total divides into batches of 8
            list(sample(fast, y, SIGMA, SDE, samples=samples, steps=2, batch=8))
    assert programs == [[4], [8]]


class Around(torch.nn.Module):
    """Somebody's own wrapper of a network."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.eval()

    def forward(self, x, sigma):
        return self.network(x, sigma)


def in_place(network):
    network.compile(dynamic=False, backend="eager")
    return network


@pytest.mark.parametrize(
    "fast",
    [
        lambda network: Around(compiled(network, backend="eager")),
        lambda network: (lambda one: lambda x, sigma: one(x, sigma))(compiled(network, backend="eager")),
        in_place,
    ],
    ids=["wrapped", "in a function", "in place"],
)
def test_a_compiled_network_within_something_sees_the_batch_it_was_warmed_with(fast):
    """Only `compiled` itself was known: others got a batch of another size, and 43 s of compiling in the middle."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    config = configuration("lean", base=8, multipliers=(1, 1), size=8)
    score, y = fast(network_of(config).eval().requires_grad_(False)), torch.zeros(5, 1, 8, 8)
    with torch.no_grad():
        score(torch.zeros(8, 1, 8, 8), torch.full((8,), 0.3))
    list(sample(score, y, SIGMA, SDE, samples=2, steps=2, batch=8))  # 10 draws: two passes of 5 would do
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


def test_no_pass_is_larger_than_the_batch_and_all_have_one_shape():
    sizes, done = [], []

    def score(x, sigma):
        sizes.append(len(x))
        return gaussian_score(x, sigma)

    y = torch.zeros(3, *PRIOR.shape)
    results = sample(score, y, SIGMA, SDE, samples=7, steps=2, batch=6, progress=lambda *x: done.append(x))
    next(results)
    assert done == [(6, 21), (12, 21)]  # the first image comes as soon as its 7 draws are there
    assert len(list(results)) == 2
    assert set(sizes) == {6}
    assert done[-1] == (21, 21)


# ---------------------------------------------------------------- reduction


def test_reduction_gives_the_bands_of_the_core():
    y = torch.randn(2, *PRIOR.shape, generator=torch.Generator().manual_seed(0))
    ranks = calibrated_ranks(39, 0.1)
    reduction = Reduction(ranks, (0.05, 0.95), held_out=1, keep=True)
    results = list(sample(gaussian_score, y, SIGMA, SDE, samples=39, steps=5, batch=16, reduce=reduction))
    draws = collect(gaussian_score, y, samples=40, steps=5)
    band = pb.calibrated_quantiles(draws[:, :39], 0.1)
    naive = pb.naive_quantiles(draws[:, :39], 0.1)
    for i, result in enumerate(results):
        assert torch.equal(result.lower, band.lower[i])
        assert torch.equal(result.upper, band.upper[i])
        torch.testing.assert_close(result.naive_lower, naive.lower[i])
        torch.testing.assert_close(result.naive_upper, naive.upper[i])
        torch.testing.assert_close(result.mean, draws[i, :39].mean(0))
        torch.testing.assert_close(result.deviation, draws[i, :39].std(0))
        assert torch.equal(result.held_out, draws[i, 39:])
        assert torch.equal(result.samples, draws[i, :39].half())


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sigma_0": 0.01}, r"sigma_0 is 0.01, outside \(sigma_min, sigma_max\]"),
        ({"sigma_0": 1.2}, "outside"),
        ({"observation": torch.zeros(4, 8)}, r"shape \(n, c, h, w\)"),
        ({"observation": torch.tensor([0.0, math.nan]).reshape(2, 1, 1, 1)}, "observation 1 holds NaN"),
        ({"sampler": "ddim"}, "known are euler_maruyama"),
        ({"steps": 0}, "steps is 0"),
        ({"samples": 0}, "samples is 0"),
        ({"batch": -1}, "batch is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"image_ids": [0, 1]}, "one per observation"),
        ({"image_ids": [0.2]}, "1 different integers"),
        ({"image_ids": [True]}, "1 different integers"),
        ({"image_ids": torch.tensor([-1])}, "1 different integers"),
        ({"image_ids": [2**70]}, "1 different integers"),
        ({"image_ids": [7, 7], "observation": torch.zeros(2, *PRIOR.shape)}, "2 different integers"),
        ({"observation": torch.zeros(1, *PRIOR.shape, dtype=torch.uint8)}, "observation is torch.uint8; convert"),
        ({"observation": torch.zeros(0, *PRIOR.shape)}, r"shape \(n, c, h, w\)"),
        ({"steps": 1, "sampler": "euler_maruyama", "sigma_0": 0.011}, "1 steps .* take at least 49"),
        ({"reduce": Reduction((6, 123)), "samples": 64}, "draw more samples"),
        ({"score": torch.nn.Dropout()}, "training mode"),
    ],
)
def test_mistakes_are_named_at_the_door(changes, message):
    arguments = {"score": gaussian_score, "observation": torch.zeros(1, *PRIOR.shape), "sigma_0": SIGMA, "sde": SDE}
    with pytest.raises(ValueError, match=message):
        sample(**arguments | changes)


def test_a_score_that_diverges_names_the_image():
    def score(x, sigma):
        return torch.where(x.mean((1, 2, 3), keepdim=True) > 5, math.inf, 0.0) * torch.ones_like(x)

    y = torch.stack([torch.zeros(1, 4, 4), torch.full((1, 4, 4), 9.0)])
    results = sample(score, y, SIGMA, SDE, samples=2, image_ids=[10, 11], batch=2)
    next(results)  # the finished image is not lost
    with pytest.raises(ValueError, match="image 11 are not finite"):
        next(results)
