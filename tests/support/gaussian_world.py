"""Images x ~ N(0, C) of 8 x 8 pixels with smooth C, where score, posterior mean and posterior quantiles are known."""

from functools import cache

import numpy as np
import torch

from pixelbounds.diffusion import NCSNpp, configuration

SIZE = 8
LIMITS = (-6.0, 6.0)


@cache
def covariance():
    """C (64, 64): a squared-exponential kernel of length 2 pixels and a little white noise, unit variance."""
    i, j = np.divmod(np.arange(SIZE * SIZE), SIZE)
    distance = (i[:, None] - i) ** 2 + (j[:, None] - j) ** 2
    return 0.95 * np.exp(-distance / 8) + 0.05 * np.eye(SIZE * SIZE)


def draw(n, seed):
    """Images (n, 8, 8), float32."""
    root = np.linalg.cholesky(covariance())
    return (np.random.default_rng(seed).normal(size=(n, SIZE * SIZE)) @ root.T).reshape(n, SIZE, SIZE).astype("f4")


def score(y, sigma):
    """The score of N(0, C + sigma^2) at y (n, 8, 8)."""
    precision = np.linalg.inv(covariance() + sigma**2 * np.eye(SIZE * SIZE))
    return -(y.reshape(len(y), -1) @ precision).reshape(y.shape)


def posterior(y, sigma):
    """Mean (n, 8, 8) and deviation (8, 8) of x given y = x + sigma z."""
    gain = covariance() @ np.linalg.inv(covariance() + sigma**2 * np.eye(SIZE * SIZE))
    variance = np.diag(covariance() - gain @ covariance())
    return (y.reshape(len(y), -1) @ gain.T).reshape(y.shape), np.sqrt(variance).reshape(SIZE, SIZE)


def config(**changes):
    """A network that learns this world in seconds."""
    settings = {"base": 16, "multipliers": (1, 2), "blocks": 1, "attention": (), "dropout": 0.0, **changes}
    return configuration("tiny", channels=1, size=SIZE, **settings)


def network(seed=0, **changes):
    """A fresh score network."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return NCSNpp(config(**changes))


def awake(network, seed=0, deviation=0.05):
    """Weights as after training: layers that begin at zero say something."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(deviation * torch.randn(weight.shape, generator=generator))
    return network.eval()
