"""A network that `pixelbounds train` saved as what draws the images of a run, here or on a worker."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..bands import calibrated_ranks
from ..execution.runner import Progress, silent
from ..images.checks import check_choice, check_count, check_open_unit
from ..images.library import Array
from .loop import Parts, kept_arrays

_FOR_SAMPLERS = ("sampler", "steps", "miscoverage", "held_out", "keep_samples")  # options for score networks alone
_DEFAULTS: dict[str, Any] = {"samples": 79, "miscoverage": 0.1, "sampler": "heun", "held_out": 0, "keep_samples": False}


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """How to sample; None takes what the network file or the sampler says, else 79 samples, 0.1, heun, 0 and False.

    `compile` None compiles where it pays: on a GPU, where sampling takes longer than compiling.
    """

    sigma_0: float | None = None
    samples: int | None = None
    miscoverage: float | None = None
    sampler: str | None = None
    steps: int | None = None
    seed: int = 0
    batch: int | None = None
    held_out: int | None = None
    keep_samples: bool | None = None
    limits: tuple[float, float] | None = None
    device: str | None = None
    compile: bool | None = None
    repair: bool = False

    def check(self, network: str, kind: str, *, dropout: bool) -> None:
        """Refuse options of the sampler where a network draws no samples, and would ignore them."""
        names = _FOR_SAMPLERS if kind == "regressor" and dropout else ("samples", *_FOR_SAMPLERS)
        given = [name for name in names if getattr(self, name) is not None]
        if given and kind != "score":
            words = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(f"{network} is a {kind} network, which draws no samples; leave {words} out")


class NetworkBackend:
    """Draws what the network of a file gives for an image; a worker of a cluster loads it once, on its own device."""

    keeps_seed = True

    def __init__(
        self,
        network: str,
        digest: str,
        options: SampleOptions,
        sigma_0: float,
        pixels: tuple[int, ...],
        *,
        kind: str,
        sde: Any,
        dropout: bool,
    ) -> None:
        from ..diffusion.noise import check_seed
        from ..diffusion.posterior import SAMPLERS, Reduction, check_steps

        given = {name: getattr(options, name) for name in ("samples", *_FOR_SAMPLERS)}
        settings = self._settings = given | {
            name: default for name, default in _DEFAULTS.items() if given[name] is None
        }
        self._file = network, digest, options.device
        self.options, self.sigma_0, self.pixels, self.kind, self.sde = options, sigma_0, pixels, kind, sde
        check_seed(options.seed)
        self.samples = check_count(settings["samples"], "samples", least=2)
        if options.batch is not None:
            check_count(options.batch, "batch")
        self.dropout = kind == "regressor" and dropout
        self.counted = self.samples if self.dropout else 1
        self.steps = None
        self.heads = ("lower", "estimate", "upper") if kind == "regressor" else ("lower", "upper")
        names = (*self.heads, *(("dropout_mean", "dropout_deviation") if self.dropout else ()))
        self.arrays: dict[str, tuple[int, ...]] = dict.fromkeys(names, ())
        if kind == "score":
            steps = None if options.steps is None else check_count(options.steps, "steps")
            self.steps = check_steps(check_choice(settings["sampler"], SAMPLERS, "sampler"), steps, sigma_0, sde)
            level = check_open_unit(settings["miscoverage"], "miscoverage")
            held_out = check_count(settings["held_out"], "held_out", least=0)
            ranks = calibrated_ranks(self.samples, level)
            self.counted = self.samples + held_out
            self.reduction = Reduction(ranks, (level / 2, 1 - level / 2), held_out, settings["keep_samples"])
            self.arrays = kept_arrays(held_out, self.samples if settings["keep_samples"] else 0)

    def compile_where_it_pays(self, images: int, device: Any) -> None:
        """Decide whether to compile the network for so many images on this device, where the options leave it open."""
        from ..diffusion.members import compile_pays

        if self.options.compile is None:
            evaluations = images * self.counted * ((self.steps or 0) + 1)
            pays = self.kind == "score" and compile_pays(evaluations, prod(self.pixels[-2:]), device)
            self.options = replace(self.options, compile=pays)

    def about(self) -> dict[str, Any]:
        """What of the options bears on the result."""
        if self.kind != "score":
            return {"passes": self.samples if self.dropout else None}
        return self._settings | {"steps": self.steps}

    def automatic_batch(self, images: Any) -> int:
        """As many images as suit the device."""
        import torch

        from ..diffusion.posterior import automatic_batch

        network = loaded(*self._file)[0]
        probe = torch.from_numpy(images.rows(0, 1)).to(next(network.parameters()).device)
        return automatic_batch(network, probe, self.sigma_0)

    def draw(self, y: Array, ids: Array, batch: int, within: Progress = silent) -> Iterator[Parts]:
        """The arrays of each image of a block (b, c, h, w)."""
        import torch

        from ..diffusion.batches import even_batch
        from ..diffusion.posterior import sample
        from ..diffusion.regression import dropout_passes, predict

        network = _compiled(*self._file) if self.options.compile else loaded(*self._file)[0]
        if self.kind == "score":
            if self.options.compile:  # all blocks have the shape of a full one, the last one padded
                batch = even_batch(max(1, batch // self.counted) * self.counted, batch)
            for draws in sample(
                network, torch.from_numpy(y).to(next(network.parameters()).device), self.sigma_0, self.sde,
                samples=self.samples, sampler=self._settings["sampler"], steps=self.steps, seed=self.options.seed,
                image_ids=ids.tolist(), batch=batch, reduce=self.reduction, progress=within,
            ):  # fmt: skip
                yield {name: getattr(draws, name).cpu().numpy() for name in self.arrays}
            return
        heads = predict(network, y, self.sigma_0, batch=batch)
        for image, number in enumerate(ids):
            parts = {name: head[image] for name, head in zip(self.heads, heads, strict=True)}
            if self.dropout:
                seed = int(np.random.SeedSequence([self.options.seed, int(number)]).generate_state(1)[0])
                mean, deviation = dropout_passes(
                    network, y[image : image + 1], self.sigma_0, passes=self.samples, seed=seed, batch=batch
                )
                parts |= {"dropout_mean": mean[0], "dropout_deviation": deviation[0]}
            yield parts


def network_digest(network: str | os.PathLike[str]) -> str:
    """SHA-256 of the file of a network, which must be there."""
    from ..diffusion.checkpoint import file_bytes

    return hashlib.sha256(file_bytes(Path(network))).hexdigest()


@lru_cache(maxsize=2)
def loaded(network: str, digest: str, device: str | None) -> tuple[Any, Any, dict[str, Any]]:
    """The network of a file that must have this digest, its process, what the file tells besides; once in a process."""
    from ..diffusion.checkpoint import check_device, load_network

    if not Path(network).exists() or network_digest(network) != digest:
        raise ValueError(f"there is no {network} here, or another one; put the network where all workers see it")
    return load_network(network, device=check_device(device))


@lru_cache(maxsize=1)
def _compiled(network: str, digest: str, device: str | None) -> Any:
    from ..diffusion.members import compiled

    return compiled(loaded(network, digest, device)[0])
