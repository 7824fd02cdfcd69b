"""Several score networks as one: the mean of their scores; and networks that are compiled.

Networks that were trained on the same images with other seeds agree where the images told them what to say and differ
where they did not: the error of their mean is less than the mean of their errors. With D = x + v s, the mean of scores
is the mean of posterior means, so every sampler takes an ensemble where it takes a network, at the price of as many
evaluations as it has members.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_PROGRAMS = 64  # that one class of networks may have in a process: every shape is one, with and without gradients
_COMPILING, _SAVED = 45.0, 17e-9  # seconds to compile `small`, and saved by each pixel evaluated (eager: an estimate)


class Ensemble(nn.Module):
    """The mean of the scores of its members, modules of one configuration: (b, c, h, w), (b,) -> (b, c, h, w)."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if not members:
            raise ValueError("an ensemble of no networks gives no score; give at least one")
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
        total = torch.zeros_like(x)
        for member in self.members:
            total = total + member(x, sigma)
        return total / len(self.members)


def compiled(network: nn.Module, **options: Any) -> nn.Module:
    """`torch.compile`, one program for each shape; of an ensemble member by member, which share their programs.

    Training and sampling both compile by this, because torch compiles anew for other options. Without `dynamic=False`
    it makes the number of images a variable once it saw a second one, which is slower on a GPU. It counts the programs
    of all networks of a class together, and stops compiling after 8 of them unless its limit is raised. Programs are
    kept for later runs in `~/.cache/pixelbounds/torch`, or where TORCHINDUCTOR_CACHE_DIR says.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / "pixelbounds" / "torch"))
    torch._dynamo.config.cache_size_limit = max(_PROGRAMS, torch._dynamo.config.cache_size_limit)
    options = {"dynamic": False} | options
    if not isinstance(network, Ensemble):
        return torch.compile(network, **options)
    fast = Ensemble([torch.compile(member, **options) for member in network.members])
    fast.__dict__["_orig_mod"] = network  # where torch keeps it, too; no module of its own, which would count twice
    return fast


def is_compiled(score: Any) -> bool:
    """Whether torch compiled a score or a network within it, which should then see one number of images only."""
    parts = [score, *(cell.cell_contents for cell in getattr(score, "__closure__", None) or ())]
    networks = [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]
    marks = "_orig_mod", "_compiled_call_impl", "_torchdynamo_orig_callable"
    return any(getattr(one, mark, None) is not None for one in (*parts, *networks) for mark in marks)


def compile_pays(evaluations: int, pixels: int, device: Any) -> bool:
    """Whether so many evaluations of images of so many pixels take longer than compiling and then evaluating.

    By what `small` takes on an H200; on a CPU it does not pay: convolutions are nearly all of the time there.

    >>> [compile_pays(images * 40 * 13, 64 * 64, "cuda") for images in (400, 4000)]
    [False, True]
    """
    return torch.device(device).type == "cuda" and evaluations * pixels * _SAVED > _COMPILING
