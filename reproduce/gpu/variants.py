"""What `generalise` tries: changes to the network `small`, to how it is trained, and to its loss."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from pixelbounds.diffusion import NCSNpp, NetworkConfig, configuration
from pixelbounds.diffusion.batches import AUGMENTATIONS, Loss
from pixelbounds.diffusion.network import Residual
from pixelbounds.diffusion.trainer import score_matching, weighted_matching

Spread = tuple[float, float]  # mean and deviation of the pixels


@dataclass(frozen=True)
class Variant:
    """What differs from `small` as it was: in the network, in the settings of training, in the loss."""

    network: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    weighted: bool = False  # the loss as EDM weighs it, 1 + (sigma / d)^2 times that of score matching
    preconditioned: bool = False  # as in EDM, by mean and deviation of the pixels

    @property
    def dropout(self) -> float:
        """The share that is dropped: no part of what a compiler sees, see `Dropped`."""
        return float(self.network.get("dropout", 0.1))

    @property
    def architecture(self) -> str:
        """What a compiler tells apart."""
        shape = {name: value for name, value in self.network.items() if name != "dropout"}
        return json.dumps([shape, self.preconditioned], sort_keys=True)

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
    "width-128": Variant({"base": 128}),
    "patch": Variant({"base": 128, "multipliers": (1, 1, 1), "patch": 2}),
    "patch-wide": Variant({"base": 128, "multipliers": (1, 2, 2), "patch": 2}),
    "batch-128": Variant(settings={"batch": 128}),
    "blocks-2": Variant({"blocks": 2}),
    "edm-network": Variant(preconditioned=True),
    "edm-loss": Variant(weighted=True),
    "rate-3e-4": Variant(settings={"learning_rate": 3e-4}),
    "constant-rate": Variant(settings={"cosine": False}),
}


def variant(name: str) -> Variant:
    """A variant, or several joined by commas; what follows @ is a seed, see `seed_of`."""
    total = Variant()
    for part in name.split("@")[0].split(","):
        total = total | VARIANTS[part]
    return total


def seed_of(name: str) -> int:
    """The seed in the name of a variant, 0 unless told: NAME or NAME@SEED."""
    return int(name.partition("@")[2] or 0)


class Dropped(nn.Module):
    """Dropout whose share is an input of the compiled network: any share serves with the same code."""

    share: Tensor

    def __init__(self, share: float) -> None:
        super().__init__()
        self.register_buffer("share", torch.tensor(share), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Drop values: (b, c, h, w) -> the same, what is kept divided by the probability to be kept."""
        if not self.training:
            return x
        return torch.where(torch.rand_like(x, dtype=torch.float32) >= self.share, x / (1 - self.share), 0).to(x.dtype)


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


def network_of(change: Variant, size: int, spread: Spread, seed: int = 0) -> nn.Module:
    """A fresh network of a variant, from one seed for all."""
    torch.manual_seed(seed)
    config = configuration("small", size=size, **change.network)
    network = Preconditioned(config, spread) if change.preconditioned else NCSNpp(config)
    for module in list(network.modules()):
        if isinstance(module, Residual):
            module.dropout = Dropped(change.dropout)
    return network


def start_anew(network: nn.Module, change: Variant, size: int, spread: Spread, seed: int) -> None:
    """Give a network that was used before the weights and the dropout with which a variant starts."""
    fresh = network_of(change, size, spread, seed)
    network.load_state_dict(fresh.state_dict())
    network.requires_grad_()
    for module in network.modules():
        if isinstance(module, Dropped):
            module.share.fill_(change.dropout)


def loss_of(change: Variant, spread: Spread) -> Loss:
    """The loss of a variant."""
    return weighted_matching(spread[1]) if change.weighted else score_matching
