"""Regressors on the backbone of the score network: quantile heads, N-Conffusion and MC-Dropout.

A quantile network maps a noisy image y = x + sigma z and its level to several images,

    head(y, sigma) = y / (1 + (sigma / d)^2) + sigma / sqrt(1 + (sigma / d)^2) * F(y, sigma),

where F is the backbone without division by sigma and d the deviation of the data. F is then of order one at every
level: at small noise a head starts from the noisy input, at large noise, where the input says nothing, from zero.
d = infinity gives y + sigma F, and with F = sigma * score that is Tweedie's denoised estimate y + sigma^2 * score.

- The image regressor has three free heads, trained jointly by pinball(a/2) + squared error + pinball(1 - a/2) (Koenker;
  Romano et al.; Angelopoulos et al.); nothing forces the heads into order.
- N-Conffusion starts from a trained score network (d = infinity, its output layer repeated), so that both quantiles
  begin at the denoised estimate, and is fine-tuned by the two pinball losses on further images.
- MC-Dropout runs the regressor many times with nothing but its dropout layers in training mode.

All are trained by `training.train` with `quantile_loss(miscoverage)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .architecture import NetworkConfig
from .batches import Loss
from .lean import LeanUNet, network_of
from .network import Dropout, NCSNpp
from .noise import check_seed, philox
from .posterior import at_least_one, check_observation


class QuantileNetwork(nn.Module):
    """Heads on a backbone: noisy images (b, c, h, w), sigma (b,) -> (b, heads, c, h, w)."""

    def __init__(self, backbone: NCSNpp | LeanUNet, heads: int, *, data_deviation: float = inf) -> None:
        super().__init__()
        config, out = backbone.config, backbone.config.out_channels or backbone.config.channels
        if out != heads * config.channels or config.divide_by_sigma:
            raise ValueError(
                f"{heads} heads for {config.channels} channels need a backbone of {heads * config.channels} output "
                f"channels that does not divide by sigma; this one has {out} and divide_by_sigma is "
                f"{config.divide_by_sigma}"
            )
        if not data_deviation > 0:
            raise ValueError(f"data_deviation is {data_deviation}; it must be positive, 0.5 suits images in [-1, 1]")
        self.backbone, self.heads, self.data_deviation = backbone, heads, float(data_deviation)

    @property
    def config(self) -> NetworkConfig:
        """The configuration of the backbone."""
        return self.backbone.config

    def to_dict(self) -> dict[str, Any]:
        """What makes it more than its backbone, ready for JSON; None stands for infinity."""
        return {"heads": self.heads, "data_deviation": None if self.data_deviation == inf else self.data_deviation}

    def forward(self, y: Tensor, sigma: Tensor) -> Tensor:
        """Noisy images (b, c, h, w), sigma (b,) -> heads (b, heads, c, h, w)."""
        level = sigma.to(torch.float32).reshape(-1, 1, 1, 1, 1)
        shrink = 1 + (level / self.data_deviation).square()
        raw = self.backbone(y, sigma).float().unflatten(1, (self.heads, -1))
        return y.float().unsqueeze(1) / shrink + raw * (level / shrink.sqrt())


def regressor(config: NetworkConfig, *, data_deviation: float = 0.5) -> QuantileNetwork:
    """A new image regressor with heads (lower quantile, estimate, upper quantile) on this configuration's backbone."""
    config = replace(config, out_channels=3 * config.channels, divide_by_sigma=False)
    return QuantileNetwork(network_of(config), 3, data_deviation=data_deviation)


def n_conffusion(score: NCSNpp | LeanUNet) -> QuantileNetwork:
    """N-Conffusion before fine-tuning: two quantile heads that both give y + sigma^2 * score; `score` is left as is."""
    config = score.config
    if not config.divide_by_sigma or config.out_channels not in (None, config.channels):
        raise ValueError("N-Conffusion starts from a score network, and this network is none; give a trained one")
    backbone = network_of(replace(config, out_channels=2 * config.channels, divide_by_sigma=False))
    own = backbone.state_dict()
    tensors = {}
    for name, trained in score.state_dict().items():
        same = own[name].shape == trained.shape
        tensors[name] = trained if same else trained.repeat(2, *[1] * (trained.ndim - 1))  # the output layer
    backbone.load_state_dict(tensors)
    device = next(score.parameters()).device
    return QuantileNetwork(backbone, 2).to(device)


# ---------------------------------------------------------------- losses


def pinball(x: Tensor, quantile: Tensor, level: float) -> Tensor:
    """Koenker's loss, least in expectation at the level-quantile of x; entrywise."""
    error = x - quantile
    return torch.maximum(level * error, (level - 1) * error)


def quantile_loss(miscoverage: float = 0.1) -> Loss:
    """The paper's loss of three heads, pinball(a/2) + squared error + pinball(1 - a/2); of two, the pinballs alone."""
    if not 0 < miscoverage < 1:
        raise ValueError(f"miscoverage is {miscoverage}; it must lie between 0 and 1, 0.1 in the paper")

    def loss(network: nn.Module, x: Tensor, sigma: Tensor, noise: Tensor) -> Tensor:
        heads = network(x + sigma.reshape(-1, 1, 1, 1) * noise, sigma)
        total = pinball(x, heads[:, 0], miscoverage / 2) + pinball(x, heads[:, -1], 1 - miscoverage / 2)
        if heads.shape[1] == 3:
            total = total + (x - heads[:, 1]).square()
        return total.flatten(1).mean(1)

    loss.__name__ = f"quantile_loss({miscoverage:g})"
    return loss


# ---------------------------------------------------------------- predictions


def predict(network: QuantileNetwork, y: Any, sigma: float, *, batch: int = 64) -> tuple[np.ndarray, ...]:
    """One array per head: observations (n, h, w) or (n, c, h, w) -> two or three float32 arrays of the same shape.

    For `bands.quantile_regression(*predict(...))` with three heads and `bands.conffusion(*predict(...))` with two.
    """
    images, shape = _observations(network, y, sigma, batch)
    device, parts = next(network.parameters()).device, []
    with torch.inference_mode(), _half_on_gpus(device), _modes(network, dropout=False):
        for start in range(0, len(images), batch):
            part = images[start : start + batch].to(device)
            parts.append(network(part, torch.full((len(part),), float(sigma), device=device)).float().cpu())
    return tuple(head.reshape(shape).numpy() for head in torch.cat(parts).unbind(1))


def dropout_passes(
    network: QuantileNetwork, y: Any, sigma: float, *, passes: int = 128, seed: int = 0, batch: int = 128
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the estimate over passes with dropout: (n, h, w) or (n, c, h, w) -> two of the same shape.

    The masks of pass k of image i are made from (seed, i, k) alone, so the images that come with it and the batch bear
    on the last bits of a result at most. Only sums are kept, on the device, of differences from the first pass: no pass
    is stored.
    """
    images, shape = _observations(network, y, sigma, batch)
    if network.heads != 3:
        raise ValueError(f"this network has {network.heads} heads and no estimate; MC-Dropout takes an image regressor")
    if passes < 2:
        raise ValueError(f"passes is {passes}; a deviation needs at least 2, the paper takes 128")
    check_seed(seed)
    device, means, deviations = next(network.parameters()).device, [], []
    layers = [module for module in network.modules() if isinstance(module, Dropout)]
    with torch.inference_mode(), _half_on_gpus(device), _modes(network, dropout=True):
        for image in range(len(images)):
            origin, first, second = None, torch.zeros(1, device=device), torch.zeros(1, device=device)
            for start in range(0, passes, batch):
                numbers = torch.arange(start, min(start + batch, passes), device=device)
                some = images[image : image + 1].to(device).expand(len(numbers), -1, -1, -1)
                for layer, keys in zip(layers, _mask_keys(seed, image, numbers, len(layers)), strict=True):
                    layer.keys = keys
                heads = network(some, torch.full((len(some),), float(sigma), device=device)).float()
                estimate = heads[:, 1]
                origin = estimate[0] if origin is None else origin
                difference = estimate - origin
                first, second = first + difference.sum(0), second + difference.square().sum(0)
            means.append((origin + first / passes).cpu())
            deviations.append(((second - first.square() / passes) / (passes - 1)).clamp(min=0).sqrt().cpu())
    return torch.stack(means).reshape(shape).numpy(), torch.stack(deviations).reshape(shape).numpy()


def _mask_keys(seed: int, image: int, passes: Tensor, layers: int) -> Iterator[Tensor]:
    """For every layer in turn the keys of its masks: passes (b,) -> (b, 2)."""
    for layer in range(layers):
        fixed = (torch.full_like(passes, word) for word in (0, layer))
        yield torch.stack(philox((*fixed, passes, torch.full_like(passes, image)), seed)[:2], dim=1)


def _half_on_gpus(device: torch.device) -> Any:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def _observations(network: QuantileNetwork, y: Any, sigma: float, batch: int) -> tuple[Tensor, tuple[int, ...]]:
    """Observations as (n, c, h, w) on the host, and the shape they came in."""
    images = torch.as_tensor(y).detach().cpu()
    shape = tuple(images.shape)
    images = check_observation(images.unsqueeze(1) if images.ndim == 3 else images, network.config.channels)
    if not 0 < sigma < inf:
        raise ValueError(f"sigma is {sigma}; give the noise level of the observations, as a deviation")
    at_least_one(batch, "batch")
    return images.float(), shape


@contextmanager
def _modes(network: nn.Module, *, dropout: bool) -> Iterator[None]:
    """Evaluation mode, with nothing but the dropout layers switched to training if asked; restored afterwards."""
    layers = [module for module in network.modules() if isinstance(module, Dropout)]
    if dropout and not any(layer.p > 0 for layer in layers):
        raise ValueError("this network has no dropout, so all passes are equal; train one with dropout, e.g. 0.1")
    before = {module: module.training for module in network.modules()}
    network.eval()
    try:
        for layer in layers:
            layer.train(dropout)
        yield
    finally:
        for layer in layers:
            layer.keys = None
        for module, training in before.items():
            module.training = training
