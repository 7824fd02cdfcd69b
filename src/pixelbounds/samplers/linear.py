"""A score network and a linear problem make a sampler: `bands_from(LinearSampler(network, problem), observations)`.

It is a sampler like any other; `diffusion/inverse.py` has the theory. Networks take images (c, h, w); where they have
one channel, observations and samples go without its axis.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..images.checks import check_line
from ..problems.problem import Problem

if TYPE_CHECKING:
    from ..diffusion.inverse import Guidance

_PIXELS_AT_ONCE = 2**17  # of images in the network


@dataclass(frozen=True)
class LinearSampler:
    """Posterior samples of what a problem observes, drawn with a network that `pixelbounds train` saved.

    `how` says by which method, in how many steps; images are `batch` at a time in the network. A worker of a cluster
    loads the network from its file.
    """

    network: str | os.PathLike[str]
    problem: Problem
    how: Guidance | None = None
    device: str | None = None
    batch: int | None = None
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        path = Path(self.network)
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; give a network that `pixelbounds train` saved")
        object.__setattr__(self, "network", str(path.absolute()))
        object.__setattr__(self, "digest", hashlib.sha256(path.read_bytes()).hexdigest())
        _loaded(str(self.network), self.digest, self.device)

    @property
    def name(self) -> str:
        """What a run calls this sampler: method, problem, steps, and the network's digest."""
        how = self._how
        words = [f"{how.method} of {self.problem}", f"{how.sampler} {how.steps} steps", f"solver {how.solver_steps}"]
        words += [f"sweeps {how.sweeps}"] if how.sweeps > 1 else []
        words += [f"network {self.digest[:12]}"]
        return check_line(", ".join(words), "name of the sampler")

    @property
    def limits(self) -> tuple[float, float] | None:
        """Least and greatest pixel value that the network was trained on, where its file tells."""
        _, _, extra = _loaded(str(self.network), self.digest, self.device)
        limits = extra.get("limits")
        return None if limits is None else (float(limits[0]), float(limits[1]))

    @property
    def _how(self) -> Guidance:
        from ..diffusion.inverse import Guidance

        return Guidance() if self.how is None else self.how

    def __call__(self, observation: Any, samples: int, seed: int) -> Any:
        """Samples of one observation, (samples, h, w), or (samples, c, h, w) where the network has channels."""
        import torch

        from ..diffusion.inverse import sample_linear

        network, sde, extra = _loaded(str(self.network), self.digest, self.device)
        weights = next(network.parameters())
        y = torch.as_tensor(observation)[None]
        y = y.to(weights.device, torch.complex64 if y.is_complex() else torch.float32)
        channels = int(network.config.channels)
        plain = channels == 1
        draws = next(
            sample_linear(
                network, y[:, None] if plain else y, self.problem, sde, self._how, samples=samples, seed=seed,
                sigma_top=extra.get("sigma_top"), batch=self._batch(y[:, None] if plain else y, samples),
            )
        )  # fmt: skip
        return draws[:, 0] if plain else draws

    def _batch(self, y: Any, samples: int) -> int:
        pixels = prod(self.problem.adjoint(y).shape[-2:])
        return self.batch or max(1, min(samples, _PIXELS_AT_ONCE // pixels))


@lru_cache(maxsize=2)
def _loaded(network: str, digest: str, device: str | None) -> tuple[Any, Any, dict[str, Any]]:
    """A score network, its process and what its file tells besides; once in a process."""
    from ..diffusion.checkpoint import load_network
    from ..diffusion.devices import best_device, check_device

    path = Path(network)
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise ValueError(f"there is no {path} here, or another one; put the network where all workers see it")
    model, sde, meta = load_network(path, device=check_device(device) or best_device(), kind="score")
    return model, sde, dict(meta["extra"])
