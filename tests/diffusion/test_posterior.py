"""Samplers against laws known in closed form: with a Gaussian prior the score and the posterior are explicit."""

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from gaussian_prior import PRIOR, SDE, SIGMA, collect, gaussian_score, posterior  # noqa: E402

from pixelbounds.diffusion.posterior import SAMPLERS, sample  # noqa: E402
from pixelbounds.diffusion.sde import VESDE  # noqa: E402

POSTERIOR = ("reverse_sde", "heun")


def law(name, steps, sde=SDE, sigma_0=SIGMA):
    """Exact slope of the mean in y, exact variance, and evaluations, of a sampler under the Gaussian prior.

    Everything is linear, so a row of the batch answers to one impulse: the first to y = 1, row k to the k-th noise.
    """
    sampler, evaluations, calls = SAMPLERS[name][0], [], []
    rows = 2 * steps + 1
    y = torch.zeros(rows, *PRIOR.shape, dtype=torch.float64)
    y[0] = 1

    def score(x, sigma):
        evaluations.append(sigma)
        return gaussian_score(x, torch.tensor([sigma], dtype=x.dtype))

    def noise(step):
        calls.append(step)
        impulse = torch.zeros_like(y)
        impulse[len(calls)] = 1
        return impulse

    x = sampler(score, y, sigma_0, sde, steps, noise)
    assert len(set(calls)) == len(calls)  # no noise is used twice
    return x[0], (x[1:] ** 2).sum(0), len(evaluations)


def target(name, sde=SDE):
    """What the sampler aims at: x(sigma_min) given y, or its denoised version."""
    v = sde.sigma_min**2
    slope, variance = posterior(v)
    shrink = PRIOR / (PRIOR + v) if name == "heun" else 1.0  # it ends with the posterior mean at sigma_min
    return shrink * slope, shrink**2 * variance


def error(name, steps):
    """Largest error of mean and of deviation over all pixels, in posterior deviations, and the evaluations."""
    slope, variance, evaluations = law(name, steps)
    true_slope, true_variance = target(name)
    deviation, spread = posterior()[1].sqrt(), (PRIOR + SIGMA**2).sqrt()
    mean = ((slope - true_slope).abs() * spread / deviation).max()
    width = ((variance.sqrt() - true_variance.sqrt()).abs() / deviation).max()
    return max(float(mean), float(width)), evaluations


# ---------------------------------------------------------------- exactness


@pytest.mark.parametrize("name, tolerance", [("reverse_sde", 0.03), ("heun", 0.025)])
def test_the_usual_steps_come_near_the_limit_of_the_sampler(name, tolerance):
    assert error(name, SAMPLERS[name][1])[0] < tolerance


@pytest.mark.parametrize("name, steps", [("reverse_sde", 1500), ("heun", 60)])
def test_detail_coarser_than_sigma_min_has_the_law_of_the_posterior(name, steps):
    slope, variance, _ = law(name, steps)
    true_slope, true_variance = posterior()
    ratio = (variance / true_variance).sqrt()
    coarse = PRIOR.sqrt() >= 5 * SDE.sigma_min
    assert 10 < coarse.sum() < PRIOR.numel()
    mean = (slope - true_slope).abs() * (PRIOR + SIGMA**2).sqrt() / true_variance.sqrt()
    assert mean[coarse].max() < 0.025
    assert (ratio[coarse] - 1).abs().max() < 0.025
    # finer detail loses sigma_min of spread where a mean given x(sigma_min) is taken, and has it added elsewhere
    lost = (1 + SDE.sigma_min**2 / PRIOR) ** (-0.5 if name == "heun" else 0.5)
    torch.testing.assert_close(ratio, lost, rtol=0.02, atol=0)


# ---------------------------------------------------------------- Algorithm 3


def algorithm_3(score, y, sigma_0, sigma_max, sigma_min, steps, z):
    """The paper's Algorithm 3, line by line; where 0 / 0 appears it is 0."""
    t_0 = (np.log(sigma_0) - np.log(sigma_min)) / (np.log(sigma_max) - np.log(sigma_min))
    dt = 1 / steps
    n = int(np.floor(round(t_0 / dt, 9)))
    x = y
    for i in range(n, 0, -1):
        sigma = sigma_min * (sigma_max / sigma_min) ** (i * dt)
        g = sigma * np.sqrt(2 * np.log(sigma_max / sigma_min))
        pull = np.divide(y - x, sigma_0**2 - sigma**2) if i < n else np.zeros_like(y)
        x = x + g**2 * (score(x, sigma) + pull) * dt + g * np.sqrt(dt) * z[i]
    return x


@pytest.mark.parametrize("sigma_0, steps", [(0.4, 57), (0.1, 50), (1.0, 20)])  # the last two: sigma_n = sigma_0
def test_euler_maruyama_is_algorithm_3(sigma_0, steps):
    rng = np.random.default_rng(0)
    y, z = rng.normal(size=(3, 1, 4, 8)), rng.normal(size=(steps + 1, 3, 1, 4, 8))
    expected = algorithm_3(lambda x, s: -x / (PRIOR.numpy() + s**2), y, sigma_0, 1.0, 0.01, steps, z)

    def score(x, sigma):
        return gaussian_score(x, torch.tensor([sigma], dtype=x.dtype))

    x = SAMPLERS["euler_maruyama"][0](score, torch.as_tensor(y), sigma_0, SDE, steps, lambda i: torch.as_tensor(z[i]))
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_algorithm_3_converges_to_another_law_than_the_posterior():
    # its limit in closed form: the extra term doubles the pull of the bridge towards y
    c, v_0 = PRIOR, SIGMA**2
    slope, variance, _ = law("euler_maruyama", 1500, VESDE(1e-3, 1.0))
    log = torch.log1p(v_0 / c)
    limit_slope = c / v_0 * log
    limit_variance = (c / v_0) ** 2 * (v_0 + (c + v_0) * (v_0 / c - 2 * log))
    wide = c > 1e-3  # below, sigma_min shows
    torch.testing.assert_close(slope[wide], limit_slope[wide], rtol=0.02, atol=1e-3)
    torch.testing.assert_close(variance[wide], limit_variance[wide], rtol=0.03, atol=1e-6)
    true_slope, true_variance = posterior()
    assert (slope[wide] > true_slope[wide]).all()
    assert (variance[wide] < 0.95 * true_variance[wide]).all()
    assert (variance < 0.5 * true_variance)[c > v_0].all()


# ---------------------------------------------------------------- draws


@pytest.mark.parametrize("name", POSTERIOR)
def test_draws_follow_the_exact_law(name):
    y = 0.8 * torch.randn(3, *PRIOR.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    draws = collect(gaussian_score, y, samples=100, sampler=name, steps=4 * SAMPLERS[name][1] // 3, seed=3)
    slope, variance = target(name)
    z = ((draws - (slope * y)[:, None]) / variance.sqrt()).numpy().ravel()
    assert stats.kstest(z, "norm").pvalue > 1e-3


def test_algorithm_3_is_caught_by_the_same_test():
    y = torch.full((3, *PRIOR.shape), 0.5, dtype=torch.float64)
    draws = collect(gaussian_score, y, samples=100, sampler="euler_maruyama")
    slope, variance = target("euler_maruyama")
    z = ((draws - (slope * y)[:, None]) / variance.sqrt()).numpy().ravel()
    assert stats.kstest(z, "norm").pvalue < 1e-10


def test_priors_that_are_not_gaussian_are_sampled_too():
    weights, means = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.0, 0.5, 1.0]).double()
    widths = torch.tensor([0.02, 0.05, 0.15]).double() ** 2

    def parts(x, v):
        """Weight and mean of the image in each component, given its noised version."""
        distance, total = x[..., None] - means, widths + v
        log = weights.log() - 0.5 * distance**2 / total - 0.5 * total.log()
        return log.softmax(-1), means + widths / total * distance

    def score(x, sigma):
        v = float(sigma[0]) ** 2
        weight, mean = parts(x, v)
        return ((weight * mean).sum(-1) - x) / v

    y = torch.tensor([[-0.3, 0.2], [0.6, 1.1]]).double()[None, None]
    draws = torch.stack(list(sample(score, y, 0.5, VESDE(0.003, 1.0), samples=5000, batch=5000, steps=40)))[0]
    weight, mean = parts(y[0], 0.25)
    deviation = (widths * 0.25 / (widths + 0.25)).sqrt()
    below = (weight * torch.special.ndtr((draws[..., None] - mean) / deviation)).sum(-1)  # the exact distribution
    for pixel in below.flatten(1).T.numpy():
        assert stats.kstest(pixel, "uniform").pvalue > 1e-3
