"""Several score networks as one: the mean of their scores, and of what each says of turned images.

Networks that were trained on the same images with other seeds agree where the images told them what to say and differ
where they did not: the error of their mean is less than the mean of their errors. The same holds of one network that
sees an image mirrored or turned, where its training images might as well have been. With D = x + v s, the mean of
scores is the mean of posterior means, so every sampler takes an ensemble where it takes a network, at the price of
members times symmetries evaluations in place of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_Motion = tuple[tuple[int, ...], bool]  # axes that are flipped, and whether height and width change places then
_FLIPS: tuple[_Motion, ...] = (((), False), ((-1,), False), ((-2,), False), ((-2, -1), False))
SYMMETRIES: dict[str, tuple[_Motion, ...]] = {
    "none": _FLIPS[:1],
    "mirror": _FLIPS[:2],
    "flips": _FLIPS,
    "turns": (*_FLIPS, *((axes, True) for axes, _ in _FLIPS)),
}


class Ensemble(nn.Module):
    """The mean of the scores of its members, each asked once for every motion of `symmetries`, and moved back.

    `mirror` is left to right, `flips` top to bottom too, and `turns` has the four quarter turns besides, of squares.
    Members have one configuration. They are modules that take (b, c, h, w), (b,) and give scores (b, c, h, w).
    """

    def __init__(self, members: Sequence[nn.Module], symmetries: str = "none") -> None:
        super().__init__()
        if symmetries not in SYMMETRIES:
            raise ValueError(f"symmetries is {symmetries!r}; known are {', '.join(SYMMETRIES)}")
        if not members:
            raise ValueError("an ensemble of no networks gives no score; give at least one")
        self.symmetries = symmetries
        self.config: Any = getattr(members[0], "config", None)
        for number, member in enumerate(members):
            config = getattr(member, "config", None)
            if config != self.config:
                raise ValueError(
                    f"member {number} is {config}, the first one {self.config}; members must be of one configuration"
                )
        self.members = nn.ModuleList(members)
        self.train(members[0].training)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Mean score: (b, c, h, w), (b,) -> (b, c, h, w)."""
        motions = SYMMETRIES[self.symmetries]
        if any(turned for _, turned in motions) and x.shape[-1] != x.shape[-2]:
            raise ValueError(f"images of {x.shape[-2]} x {x.shape[-1]} cannot turn by 90 degrees; use flips")
        total = torch.zeros_like(x)
        for motion in motions:
            moved = _moved(x, motion)
            for member in self.members:
                total = total + _moved_back(member(moved, sigma), motion)
        return total / (len(motions) * len(self.members))


def compiled(network: nn.Module, **options: Any) -> nn.Module:
    """`torch.compile`, of an ensemble member by member: members share one program, which is compiled once.

    `dynamic=False` where few shapes are drawn in a process that has also trained: torch would take the number of images
    to be unknown there, since it saw another, and the program for any number is slower on a GPU (docs/diffusion.md).
    """
    if not isinstance(network, Ensemble):
        return torch.compile(network, **options)
    fast = Ensemble([torch.compile(member, **options) for member in network.members], network.symmetries)
    fast.__dict__["_orig_mod"] = network  # where torch keeps it, too; no module of its own, which would count twice
    return fast


def _moved(x: Tensor, motion: _Motion) -> Tensor:
    axes, turned = motion
    flipped = x.flip(axes) if axes else x
    return flipped.transpose(-1, -2).contiguous() if turned else flipped


def _moved_back(x: Tensor, motion: _Motion) -> Tensor:
    axes, turned = motion
    straight = x.transpose(-1, -2) if turned else x
    return straight.flip(axes) if axes else straight
