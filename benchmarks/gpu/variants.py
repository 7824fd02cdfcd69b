"""What `generalise` tries: changes to the network `small`, to how it is trained, and to its loss."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from pixelbounds.diffusion import NCSNpp, NetworkConfig, configuration
from pixelbounds.diffusion.batches import AUGMENTATIONS, Loss
from pixelbounds.diffusion.trainer import score_matching

Spread = tuple[float, float]  # mean and deviation of the pixels


@dataclass(frozen=True)
class Variant:
    """What differs from `small` as it was: in the network, in the settings of training, in the loss."""

    network: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    weighted: bool = False  # the loss as EDM weighs it, 1 + (sigma / d)^2 times that of score matching
    preconditioned: bool = False  # as in EDM, by mean and deviation of the pixels

    @property
    def architecture(self) -> str:
        """What a compiler tells apart."""
        return json.dumps([{"dropout": 0.1} | self.network, self.preconditioned], sort_keys=True)

    def __or__(self, other: Variant) -> Variant:
        """Both changes."""
        return Variant(
            self.network | other.network,
            self.settings | other.settings,
            self.weighted or other.weighted,
            self.preconditioned or other.preconditioned,
        )


VARIANTS = {
    "plain": Variant(),
    "dropout-0.0": Variant({"dropout": 0.0}),
    "dropout-0.2": Variant({"dropout": 0.2}),
    "dropout-0.3": Variant({"dropout": 0.3}),
    "decay-0.1": Variant(settings={"weight_decay": 0.1}),
    "decay-1": Variant(settings={"weight_decay": 1.0}),
    "moves": Variant(settings={"augment": AUGMENTATIONS["small_moves"]}),
    "changes": Variant(settings={"augment": AUGMENTATIONS["small_changes"]}),
    "moves+rotations": Variant(settings={"augment": AUGMENTATIONS["moves_and_rotations"]}),
    "flips": Variant(settings={"augment": AUGMENTATIONS["flips"]}),
    "ema-0.99": Variant(settings={"ema": 0.99}),
    "ema-0.9995": Variant(settings={"ema": 0.9995}),
    "width-32": Variant({"base": 32}),
    "width-96": Variant({"base": 96}),
    "blocks-2": Variant({"blocks": 2}),
    "edm-network": Variant(preconditioned=True),
    "edm-loss": Variant(weighted=True),
    "rate-3e-4": Variant(settings={"learning_rate": 3e-4}),
    "constant-rate": Variant(settings={"cosine": False}),
}


def variant(name: str) -> Variant:
    """A variant, or several joined by commas."""
    total = Variant()
    for part in name.split(","):
        total = total | VARIANTS[part]
    return total


class Preconditioned(nn.Module):
    """A score network as in EDM (Karras et al., 2022), for pixels of this mean and deviation d.

    Its score is (D - y) / sigma^2 with D = mean + y' d^2 / (sigma^2 + d^2) + F sigma d / sqrt(sigma^2 + d^2) and
    y' = y - mean. F sees y' in units of its deviation, and D starts as Wiener's filter of white images instead of y.
    """

    def __init__(self, config: NetworkConfig, spread: Spread) -> None:
        super().__init__()
        self.config, self.spread = config, spread
        self.backbone = NCSNpp(replace(config, divide_by_sigma=False))

    def forward(self, y: Tensor, sigma: Tensor) -> Tensor:
        """Score: (b, c, h, w), (b,) -> (b, c, h, w)."""
        mean, deviation = self.spread
        level = sigma[:, None, None, None]
        total = level**2 + deviation**2
        centred = y - mean
        raw = self.backbone(centred / total.sqrt(), sigma)
        return raw * (deviation / (level * total.sqrt())) - centred / total


def network_of(change: Variant, size: int, spread: Spread) -> nn.Module:
    """A fresh network of a variant, from one seed for all."""
    torch.manual_seed(0)
    config = configuration("small", size=size, **({"dropout": 0.1} | change.network))
    return Preconditioned(config, spread) if change.preconditioned else NCSNpp(config)


def loss_of(change: Variant, spread: Spread) -> Loss:
    """The loss of a variant."""
    if not change.weighted:
        return score_matching
    deviation = spread[1]

    def weighted(network: nn.Module, x: Tensor, sigma: Tensor, noise: Tensor) -> Tensor:
        return score_matching(network, x, sigma, noise) * (1 + (sigma / deviation).square())

    return weighted
