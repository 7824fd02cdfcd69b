"""Independent Gaussian pixels of many variances: the score and the posterior of each are explicit."""

import torch

from pixelbounds.diffusion.posterior import sample
from pixelbounds.diffusion.sde import VESDE

SDE, SIGMA = VESDE(0.01, 1.0), 0.4
PRIOR = torch.logspace(-4, 1, 32, dtype=torch.float64).reshape(1, 4, 8)  # variances of the pixels, mean 0


def gaussian_score(x, sigma):
    """The score of the noised images, as a network would give it."""
    return -x / (PRIOR.to(x.dtype) + sigma.reshape(-1, 1, 1, 1) ** 2)


def posterior(v=0.0, sigma_0=SIGMA):
    """Slope of the mean and variance of x(v) given y = x(v_0); of the image itself at v = 0."""
    c, v_0 = PRIOR, sigma_0**2
    return (c + v) / (c + v_0), (c + v) * (v_0 - v) / (c + v_0)


def collect(score, y, **options):
    """All draws of all observations, stacked."""
    return torch.stack(list(sample(score, y, SIGMA, SDE, **options)))
