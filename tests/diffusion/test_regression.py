"""Regressors: heads approach the true conditional quantiles, N-Conffusion starts at the denoised image."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gaussian_world as world  # noqa: E402

from pixelbounds import bands  # noqa: E402
from pixelbounds.diffusion import batches  # noqa: E402
from pixelbounds.diffusion.regression import (  # noqa: E402
    dropout_passes,
    n_conffusion,
    pinball,
    predict,
    quantile_loss,
    regressor,
)
from pixelbounds.diffusion.sde import VESDE  # noqa: E402
from pixelbounds.diffusion.trainer import Settings, train  # noqa: E402

torch.set_num_threads(1)
SDE = VESDE(sigma_min=0.05, sigma_max=2.0)
NORMAL_95 = 1.6449


def fitted(network, steps, **changes):
    settings = Settings(
        steps=steps,
        **{"batch": 32, "learning_rate": 5e-3, "warmup": 20, "ema": 0.97, "augment": batches.keep, **changes},
    )
    images = world.draw(4096, 0)
    return train(network, images, quantile_loss(0.1), sde=SDE, settings=settings, limits=world.LIMITS, device="cpu")


def observed(n, sigma):
    x = world.draw(n, 1)
    return x, x + np.float32(sigma) * np.random.default_rng(2).normal(size=x.shape).astype("f4")


def test_pinball_is_least_at_the_quantile(rng):
    x = torch.from_numpy(rng.normal(size=100_000))
    grid = torch.linspace(-3, 3, 121, dtype=torch.float64)
    for level in (0.05, 0.5, 0.95):
        losses = torch.stack([pinball(x, q, level).mean() for q in grid])
        assert abs(float(grid[losses.argmin()] - torch.quantile(x[:10_000], level))) < 0.08


def test_the_heads_approach_the_true_conditional_quantiles():
    torch.manual_seed(0)
    how = {"batch": 16, "learning_rate": 1e-2, "ema": 0.95}
    network = fitted(regressor(world.config(), data_deviation=1.0), 150, **how).network
    for sigma in (0.2, 0.7, 2.0):
        x, y = observed(256, sigma)
        lower, estimate, upper = predict(network, y, sigma)
        mean, deviation = world.posterior(y, sigma)
        errors = [
            float(np.abs(head - (mean + shift * deviation)).mean() / deviation.mean())
            for head, shift in ((lower, -NORMAL_95), (estimate, 0), (upper, NORMAL_95))
        ]
        coverage = float(((lower <= x) & (x <= upper)).mean())
        print(f"sigma {sigma}: errors in deviations {np.round(errors, 3)}, coverage {coverage:.3f}")
        assert max(errors) < 0.5
        assert errors[1] < 0.35
        assert abs(coverage - 0.9) < 0.03
        band = bands.quantile_regression(lower, estimate, upper)
        assert band.shape == y.shape


def test_conffusion_starts_at_the_denoised_image_and_learns_the_quantiles():
    score = world.awake(world.network(), deviation=0.1)
    network = n_conffusion(score)
    x, y = observed(64, 0.7)
    with torch.inference_mode():
        images, sigma = torch.from_numpy(y)[:, None], torch.full((64,), 0.7)
        denoised = (images + 0.7**2 * score(images, sigma))[:, 0].numpy()
    lower, upper = predict(network, y, 0.7)
    assert np.allclose(lower, denoised, atol=1e-4)
    assert np.array_equal(lower, upper)
    before = [weight.clone() for weight in score.parameters()]
    network = fitted(network, 120, batch=16, sigma_top=0.8).network
    assert all(torch.equal(a, b) for a, b in zip(before, score.parameters(), strict=True))
    lower, upper = predict(network, y, 0.7)
    assert abs(((lower <= x) & (x <= upper)).mean() - 0.9) < 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no pair is crossed
        assert bands.conffusion(lower, upper).shape == y.shape


# ---------------------------------------------------------------- dropout


@pytest.fixture
def dropping():
    return world.awake(regressor(world.config(base=8, dropout=0.3)), deviation=0.1)


def test_dropout_moments_equal_those_of_stored_passes(dropping):
    _, y = observed(2, 0.5)
    stored = []
    handle = dropping.register_forward_hook(lambda network, inputs, heads: stored.append(heads[:, 1, 0].double()))
    mean, deviation = dropout_passes(dropping, y, 0.5, passes=24, seed=1, batch=10)
    handle.remove()
    assert [len(part) for part in stored] == [10, 10, 4] * 2
    passes = torch.cat(stored).reshape(2, 24, 8, 8).numpy()
    assert np.allclose(mean, passes.mean(1), atol=1e-5)
    assert np.allclose(deviation, passes.std(1, ddof=1), atol=1e-5)
    assert deviation.mean() > 1e-3


def test_a_pass_depends_on_seed_image_and_number_alone(dropping):
    """Masks were drawn for a batch of passes at once, and another batch gave other intervals."""
    _, y = observed(2, 0.5)
    stored = {}
    for batch in (1, 7, 128):
        parts = stored[batch] = []
        handle = dropping.register_forward_hook(lambda network, inputs, heads, to=parts: to.append(heads))
        dropout_passes(dropping, y, 0.5, passes=16, seed=1, batch=batch)
        handle.remove()
    whole = torch.cat(stored[128])
    assert torch.allclose(torch.cat(stored[1]), whole, atol=1e-5)
    assert torch.allclose(torch.cat(stored[7]), whole, atol=1e-5)
    assert len(torch.unique(whole[:16, 0, 0, 0, 0])) == 16  # of one image, all passes differ
    fewer = dropout_passes(dropping, y, 0.5, passes=9, seed=1, batch=4)
    assert np.allclose(fewer[0], whole[:, 1, 0].reshape(2, 16, 8, 8)[:, :9].mean(1), atol=1e-5)
    with torch.random.fork_rng([]):
        torch.manual_seed(7)  # the generator of torch has no part in it
        assert np.array_equal(dropout_passes(dropping, y, 0.5, passes=9, seed=1, batch=4)[1], fewer[1])
