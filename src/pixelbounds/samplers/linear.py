"""A score network and a linear problem make a sampler: `bands_from(LinearSampler(network, problem), observations)`.

It is a sampler like any other; `diffusion/inverse.py` has the theory. Networks take images (c, h, w); where they have
one channel, observations and samples go without its axis.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from ..images.checks import check_line
from ..problems.problem import Problem
from .network_backend import network_digest

_PIXELS_AT_ONCE = 2**17  # of images in the network


@dataclass(frozen=True)
class LinearSampler:
    """Posterior samples of what a problem observes, drawn with a network that `pixelbounds train` saved.

    `how` says by which method, in how many steps; images are `batch` at a time in the network.
    """

    network: str | os.PathLike[str]
    problem: Problem
    how: Any = None  # a `diffusion.Guidance`, by default as it is
    device: str | None = None
    batch: int | None = None
    digest: str = field(init=False)
    _loaded: tuple[Any, Any, dict[str, Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from ..diffusion.checkpoint import check_device, load_network
        from ..diffusion.inverse import Guidance

        object.__setattr__(self, "how", self.how or Guidance())
        object.__setattr__(self, "digest", network_digest(self.network))
        loaded = load_network(Path(self.network), kind="score", device=check_device(self.device))
        object.__setattr__(self, "_loaded", loaded)

    @property
    def name(self) -> str:
        """What a run calls this sampler: method, problem, steps, and the network's digest."""
        how = self.how
        words = [f"{how.method} of {self.problem}", f"{how.sampler} {how.steps} steps", f"solver {how.solver_steps}"]
        words += [f"sweeps {how.sweeps}"] if how.sweeps > 1 else []
        words += [f"network {self.digest[:12]}"]
        return check_line(", ".join(words), "name of the sampler")

    @property
    def limits(self) -> tuple[float, float] | None:
        """Least and greatest pixel value that the network was trained on, where its file tells."""
        limits = self._loaded[2]["extra"].get("limits")
        return None if limits is None else (float(limits[0]), float(limits[1]))

    def __call__(self, observation: Any, samples: int, seed: int) -> Any:
        """Samples of one observation, (samples, h, w), or (samples, c, h, w) where the network has channels."""
        import torch

        from ..diffusion.inverse import sample_linear

        network, sde, meta = self._loaded
        plain = network.config.channels == 1
        y = torch.as_tensor(observation)[None, None] if plain else torch.as_tensor(observation)[None]
        y = y.to(next(network.parameters()).device, torch.complex64 if y.is_complex() else torch.float32)
        suits = max(1, min(samples, _PIXELS_AT_ONCE // prod(self.problem.adjoint(y).shape[-2:])))
        draws = next(
            sample_linear(
                network, y, self.problem, sde, self.how, samples=samples, seed=seed,
                sigma_top=meta["extra"].get("sigma_top"), batch=self.batch or suits,
            )
        )  # fmt: skip
        return draws[:, 0] if plain else draws
