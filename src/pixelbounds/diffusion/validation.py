"""How good a network is on images that it did not learn from, and which of its averages was best so far.

Networks overfit small sets quickly: the loss on other images falls, then rises, while that of training goes on falling.
The loss of some validation images, always with the same noise, therefore decides which average is kept. These images
choose the network, so a band of theirs is better than that of a new image: they must not calibrate. Nor may images of
the same scan or patient as those that train, which would never tell that a network learns its images by heart.

The yardstick is the trivial denoiser: at each level of noise the better one of two that have seen nothing, the noisy
image as it is and the mean of all pixels. In the loss of score matching, |D(y) - x|^2 / sigma^2, the first has 1 and
the second the variance of the pixels over sigma^2. A network that is no better has learned nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .batches import Loss, Pixels, noise_levels, random_crops, step_seed
from .regression import QuantileNetwork
from .schedule import Settings
from .sde import VESDE

_MOST, _BATCHES = 512, 4  # images of a look at most, and passes through the network: a look costs a step or two


def mean_loss(network: Any, images: Pixels, loss: Loss, sde: VESDE, settings: Settings) -> float:
    """The loss of a network on images spread over the set, 512 and four batches at most; equal noise at every call."""
    half = images.device.type == "cuda" if settings.half is None else settings.half
    total, count = 0.0, 0
    with torch.inference_mode(), torch.autocast(images.device.type, torch.bfloat16, enabled=half):
        for x, sigma, noise in _views(images, sde, settings):
            total += float(loss(network, x, sigma, noise).sum())
            count += len(x)
    return total / count


def trivial_loss(network: nn.Module, images: Pixels, loss: Loss, sde: VESDE, settings: Settings) -> float:
    """What `mean_loss` is for the better one, image by image, of two that change nothing or answer with the mean."""
    heads = network.heads if isinstance(network, QuantileNetwork) else None
    mean = torch.stack([x.mean((0, 2, 3)) for x, _, _ in _views(images, sde, settings)]).mean(0).reshape(-1, 1, 1)

    def answer(y: Tensor, sigma: Tensor, denoised: Tensor) -> Tensor:
        """What a network that denoises so would answer: a score, or equal heads."""
        if heads is None:
            return (denoised - y) / sigma.reshape(-1, 1, 1, 1) ** 2
        return denoised.unsqueeze(1).expand(-1, heads, -1, -1, -1)

    def better(_: Any, *views: Tensor) -> Tensor:
        unchanged = loss(lambda y, sigma: answer(y, sigma, y), *views)
        return torch.minimum(unchanged, loss(lambda y, sigma: answer(y, sigma, mean.expand_as(y)), *views))

    return mean_loss(None, images, better, sde, settings)


def _views(images: Pixels, sde: VESDE, settings: Settings) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Images, levels and noise, a batch at a time, the same at every call."""
    generator = torch.Generator(images.device).manual_seed(step_seed(settings.seed, 0, 2**31))
    count = min(_MOST, _BATCHES * settings.batch, len(images))
    chosen = np.unique(np.linspace(0, len(images) - 1, count).astype(np.int64))
    order = np.random.default_rng(settings.seed).permutation(len(chosen))  # no level for neighbours alone
    sigma = noise_levels(sde, len(chosen), generator, sigma_top=settings.sigma_top)
    for start in range(0, len(chosen), settings.batch):
        x = random_crops(images.take(chosen[order[start : start + settings.batch]]), settings.crop, generator)
        yield x, sigma[start : start + len(x)], torch.randn(x.shape, generator=generator, device=x.device)


@dataclass
class Best:
    """The averaged network of the least validation loss so far, and where the looks stand."""

    loss: float = inf
    step: int = 0
    looked: int = 0  # the step of the last look
    stale: int = 0  # looks since the least loss
    weights: dict[str, Tensor] = field(default_factory=dict)

    def see(self, network: nn.Module, loss: float, step: int) -> None:
        """Take note of a look, and keep the network if it is the best."""
        self.looked, self.stale = step, self.stale + 1
        if loss < self.loss:
            self.loss, self.step, self.stale = loss, step, 0
            self.weights = {name: x.detach().clone() for name, x in network.state_dict().items()}

    def about(self) -> dict[str, Any]:
        """What is kept beside the weights, ready for JSON, which knows no infinity."""
        counts = {"step": self.step, "looked": self.looked, "stale": self.stale}
        return counts | ({"loss": self.loss} if self.weights else {})
