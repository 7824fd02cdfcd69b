"""A network that `pixelbounds train` saved as what draws the images of a run, here or on a worker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..bands import calibrated_ranks
from ..execution.progress import Progress, silent
from ..images.checks import check_choice, check_count, check_open_unit
from ..images.library import Array
from .loop import DRAWN, Parts

_FOR_SAMPLERS = ("sampler", "steps", "miscoverage", "held_out", "keep_samples")  # options for score networks alone
_DEFAULTS: dict[str, Any] = {"samples": 79, "miscoverage": 0.1, "sampler": "heun", "held_out": 0, "keep_samples": False}


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """How to sample; None takes what the network file or the sampler says, else 79 samples, 0.1, heun, 0 and False."""

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
    compile: bool = False
    repair: bool = False

    def check(self, network: str, kind: str, *, dropout: bool) -> None:
        """Refuse options of the sampler where a network draws no samples, and would ignore them."""
        names = _FOR_SAMPLERS if kind == "regressor" and dropout else ("samples", *_FOR_SAMPLERS)
        given = [name for name in names if getattr(self, name) is not None]
        if given and kind != "score":
            words = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(f"{network} is a {kind} network, which draws no samples; leave {words} out")


class NetworkBackend:
    """Draws what a kind of network gives for an image."""

    keeps_seed = True

    def __init__(
        self, kind: str, network: Any, sde: Any, sigma_0: float, options: SampleOptions, pixels: tuple[int, ...]
    ) -> None:
        from ..diffusion.noise import check_seed
        from ..diffusion.posterior import SAMPLERS, Reduction, check_steps

        given = {name: getattr(options, name) for name in ("samples", *_FOR_SAMPLERS)}
        self._settings = given | {name: default for name, default in _DEFAULTS.items() if given[name] is None}
        settings = self._settings
        self.kind = kind
        self.network = network
        self.sde = sde
        self.sigma_0 = sigma_0
        self.options = options
        self.pixels = pixels
        check_seed(options.seed)
        self.samples = check_count(settings["samples"], "samples", least=2)
        if options.batch is not None:
            check_count(options.batch, "batch")
        self.dropout = kind == "regressor" and network.config.dropout > 0
        self.steps = None
        self.draws = self.samples if self.dropout else 1
        if kind == "score":
            steps = None if options.steps is None else check_count(options.steps, "steps")
            self.steps = check_steps(check_choice(settings["sampler"], SAMPLERS, "sampler"), steps, sigma_0, sde)
            level = check_open_unit(settings["miscoverage"], "miscoverage")
            held_out = check_count(settings["held_out"], "held_out", least=0)
            ranks = calibrated_ranks(self.samples, level)
            self.draws = self.samples + held_out
            self.reduction = Reduction(ranks, (level / 2, 1 - level / 2), held_out, settings["keep_samples"])
            kept = self.samples if settings["keep_samples"] else 0
            self.arrays = DRAWN | {name: (m,) for name, m in (("held_out", held_out), ("samples", kept)) if m}
        else:
            self.arrays = dict.fromkeys(self._heads, ())
            self.arrays |= dict.fromkeys(("dropout_mean", "dropout_deviation") if self.dropout else (), ())
        self.counted = self.draws

    @property
    def _heads(self) -> tuple[str, ...]:
        return ("lower", "estimate", "upper") if self.kind == "regressor" else ("lower", "upper")

    def about(self) -> dict[str, Any]:
        """What of the options bears on the result."""
        if self.kind != "score":
            return {"passes": self.samples if self.dropout else None}
        return self._settings | {"steps": self.steps}

    def automatic_batch(self, images: Any) -> int:
        """As many images as suit the device."""
        import torch

        from ..diffusion.posterior import automatic_batch

        probe = torch.from_numpy(images.rows(0, 1)).to(next(self.network.parameters()).device)
        return automatic_batch(self.network, probe, self.sigma_0)

    @cached_property
    def _drawing(self) -> Any:
        """The network, compiled where that is asked for."""
        from ..diffusion.members import compiled

        return compiled(self.network) if self.options.compile else self.network

    def draw(self, y: Array, ids: Array, batch: int, within: Progress = silent) -> Iterator[Parts]:
        """The arrays of each image of a block (b, c, h, w)."""
        import torch

        from ..diffusion.batches import even_batch
        from ..diffusion.posterior import sample
        from ..diffusion.regression import dropout_passes, predict

        if self.kind == "score":
            device = next(self.network.parameters()).device
            if self.options.compile:  # all blocks have the shape of a full one, the last one padded
                batch = even_batch(max(1, batch // self.draws) * self.draws, batch)
            for draws in sample(
                self._drawing, torch.from_numpy(y).to(device), self.sigma_0, self.sde,
                samples=self.samples, sampler=self._settings["sampler"], steps=self.steps, seed=self.options.seed,
                image_ids=[int(i) for i in ids], batch=batch, reduce=self.reduction, progress=within,
            ):  # fmt: skip
                yield {name: getattr(draws, name).cpu().numpy() for name in self.arrays}
            return
        heads = predict(self._drawing, y, self.sigma_0, batch=batch)
        for image, number in enumerate(ids):
            parts = {name: head[image] for name, head in zip(self._heads, heads, strict=True)}
            if self.dropout:
                seed = int(np.random.SeedSequence([self.options.seed, int(number)]).generate_state(1)[0])
                mean, deviation = dropout_passes(
                    self._drawing, y[image : image + 1], self.sigma_0, passes=self.samples, seed=seed, batch=batch
                )
                parts |= {"dropout_mean": mean[0], "dropout_deviation": deviation[0]}
            yield parts


@dataclass(frozen=True)
class NetworkFactory:
    """How a worker comes by the network: it loads the file once, on its own device."""

    network: str
    digest: str
    sigma_0: float
    options: SampleOptions
    pixels: tuple[int, ...]

    def backend(self) -> NetworkBackend:
        """What draws with the network of the file, which must be the very one."""
        from ..diffusion.checkpoint import load_network
        from ..diffusion.devices import best_device, check_device

        path = Path(self.network)
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != self.digest:
            raise ValueError(f"a worker sees no {path}, or another one; put the network where all of them see it")
        model, sde, meta = load_network(path, device=check_device(self.options.device) or best_device())
        return NetworkBackend(meta["kind"], model, sde, self.sigma_0, self.options, self.pixels)
