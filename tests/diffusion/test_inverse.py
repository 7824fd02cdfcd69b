"""Posterior samples of linear problems: exact for Gaussian priors, and the biased relatives are told apart."""

from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from trials import WORLDS  # noqa: E402

from pixelbounds.diffusion import VESDE, Guidance, sample_linear  # noqa: E402
from pixelbounds.diffusion.inverse import smooth_start  # noqa: E402
from pixelbounds.diffusion.noise import gaussian  # noqa: E402
from pixelbounds.problems import ct, deblur, inpaint, mri, super_resolve  # noqa: E402

SIDE, SDE = 4, VESDE(0.01, 10.0)
M = 300 if WORLDS <= 15 else 6000
PROBLEMS = {
    "inpaint": inpaint(0.4, 0.2),
    "super-resolve": super_resolve(2, 0.1),
    "deblur": deblur(1.0, 0.3),
    "ct": ct(3, SIDE, 0.1),
    "mri": mri(2, 0.2, coils=1),
}


def prior():
    """Covariance of smooth images, deviation 1, (pixels, pixels)."""
    i, j = np.divmod(np.arange(SIDE**2), SIDE)
    return 0.9 * np.exp(-((i[:, None] - i) ** 2 + (j[:, None] - j) ** 2) / 4) + 0.1 * np.eye(SIDE**2)


VALUES, VECTORS = (torch.from_numpy(x) for x in np.linalg.eigh(prior()))


def score(x, sigma):
    """Of the noised images, as a network would give it."""
    inner = (x.flatten(1) @ VECTORS) / (VALUES + sigma[:, None] ** 2)
    return -(inner @ VECTORS.T).reshape(x.shape)


def real(y):
    y = y.reshape(len(y), -1)
    return np.concatenate([y.real, y.imag], 1) if np.iscomplexobj(y) else y


def world(problem):
    """An observation (1, 1, ...), and mean and variance of the posterior of each pixel."""
    c = prior()
    x = (np.linalg.cholesky(c) @ np.random.default_rng(5).normal(size=SIDE**2)).reshape(1, 1, SIDE, SIDE)
    y = problem(x, 1)
    a = real(problem.forward(np.eye(SIDE**2).reshape(-1, 1, SIDE, SIDE))).T
    gain = c @ a.T @ np.linalg.inv(a @ c @ a.T + problem.sigma_0**2 * np.eye(len(a)))
    return torch.from_numpy(y), gain @ real(y)[0], np.diag(c - gain @ a @ c)


def apart(problem, how, m=M):
    """How far mean and variance of samples are from the closed form, in deviations by chance: the largest of all."""
    y, mean, variance = world(problem)
    draws = next(sample_linear(score, y, problem, SDE, how, samples=m)).flatten(1).numpy()
    by_mean = np.abs(draws.mean(0) - mean) / np.sqrt(variance / m)
    by_variance = np.abs(draws.var(0, ddof=1) / variance - 1) / np.sqrt(2 / m)
    return max(by_mean.max(), by_variance.max())


EXACT = Guidance(steps=30, solver_steps=10)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_moment_matching_is_exact_for_a_gaussian_prior(problem):
    assert apart(problem, EXACT) < 5


def test_a_fixed_step_is_told_apart_by_the_same_test():
    for name, problem in PROBLEMS.items():
        assert apart(problem, Guidance(method="dps", steps=30)) > 6, name


def test_one_variance_for_all_pixels_is_told_apart_where_pixels_hang_together():
    assert apart(PROBLEMS["inpaint"], Guidance(method="pigdm", prior=1.0, steps=30), m=2 * M) > 6


@pytest.mark.parametrize("method", ["dps", "pigdm"])
def test_relatives_step_as_published(method):
    """DDIM with eta = 1, and the whole gradient: written out for inpainting, whose pseudo-inverse is A'."""
    problem, steps, c = PROBLEMS["inpaint"], 3, 0.7**2
    y, _, _ = world(problem)
    how = Guidance(method=method, steps=steps, prior=0.7, step=0.4)
    found = next(sample_linear(score, y, problem, SDE, how, samples=2, seed=3))
    for number, drawn in enumerate(found):
        keys = torch.tensor([0]), torch.tensor([number])
        z = [gaussian(3, *keys, 2**20 + i, (1, SIDE, SIDE)).double() for i in range(steps + 1)]
        x = smooth_start(y, problem, 0.7) + SDE.sigma_max * z[0]
        levels = [10.0 * 0.001 ** (i / steps) for i in range(steps + 1)]
        for i, (sigma, lower) in enumerate(pairwise(levels)):
            x.requires_grad_()
            mean = x + sigma**2 * score(x, torch.tensor([sigma]))
            error = y - problem.forward(mean)
            if method == "dps":
                pull = -0.4 * torch.autograd.grad(error.norm(), x)[0]
            else:
                r = sigma**2 * c / (sigma**2 + c)
                weighted = problem.adjoint(error / (problem.sigma_0**2 + r)).detach()
                pull = r * torch.autograd.grad(mean, x, weighted)[0]
            eta = 1 - lower**2 / sigma**2
            x = mean + lower * (1 - eta) ** 0.5 / sigma * (x - mean) + lower * eta**0.5 * z[i + 1] + pull
            x = x.detach()
        torch.testing.assert_close(drawn, x[0])


# ---------------------------------------------------------------- a mixture


HIGH, WIDTH = 1.0, 0.3  # images are all about 1 or all about -1


def mixture_score(x, sigma):
    v = WIDTH**2 + sigma[:, None] ** 2
    flat = x.flatten(1)
    side = torch.tanh((HIGH * flat / v).sum(1, keepdim=True))
    return ((side * HIGH - flat) / v).reshape(x.shape)


def test_inpainting_finds_both_modes_of_a_mixture():
    missing = np.ones((SIDE, SIDE), bool)
    missing[0, :2] = False
    problem, sigma = inpaint(missing, 1.5), 1.5
    y = torch.zeros(1, 1, SIDE, SIDE, dtype=torch.float64)
    y[0, 0, 0, :2] = 0.6
    total = 2 * HIGH * 1.2 / (WIDTH**2 + sigma**2)  # log odds of the high mode
    share = 1 / (1 + np.exp(-total))
    how = Guidance(steps=40, solver_steps=6)
    draws = next(sample_linear(mixture_score, y, problem, SDE, how, samples=M)).flatten(1).numpy()
    high = draws.mean(1) > 0
    assert abs(high.mean() - share) < 0.05 + 3 * np.sqrt(share * (1 - share) / M)
    unseen = draws[:, 2:] - np.where(high, HIGH, -HIGH)[:, None]
    assert abs(unseen.mean()) < 0.05
    assert unseen.std() == pytest.approx(WIDTH, rel=0.05)


# ---------------------------------------------------------------- draws and refusals


def test_a_draw_depends_on_seed_and_numbers_alone():
    problem = PROBLEMS["deblur"]
    y = problem(np.random.default_rng(0).normal(size=(2, 1, SIDE, SIDE)), 0)
    y, how = torch.from_numpy(y), Guidance(steps=4)
    whole = list(sample_linear(score, y, problem, SDE, how, samples=3, seed=4))
    part = list(sample_linear(score, y[1:], problem, SDE, how, samples=3, seed=4, image_ids=[1], batch=2))
    np.testing.assert_allclose(part[0], whole[1], atol=1e-9)
    assert (whole[0][0] != whole[0][1]).any()
