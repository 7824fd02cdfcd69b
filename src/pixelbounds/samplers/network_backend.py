"""A network that `pixelbounds train` saved as what draws the images of a run, and with a linear problem as a sampler:
`bands_from(LinearSampler(network, problem), observations)`. `diffusion/inverse.py` has the theory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..bands import calibrated_ranks
from ..execution.runner import Progress, silent
from ..images.checks import check_choice, check_count, check_line, check_open_unit
from ..images.library import Array
from ..problems.problem import Problem
from .loop import Parts, kept_arrays

_PIXELS_AT_ONCE = 2**17  # of images in the network
_FOR_SAMPLERS = ("sampler", "steps", "miscoverage", "held_out", "keep_samples")  # options for score networks alone
_DEFAULTS: dict[str, Any] = {"samples": 79, "miscoverage": 0.1, "sampler": "heun", "held_out": 0, "keep_samples": False}


def refuse_ignored(options: Any, network: str, kind: str, *, dropout: bool) -> None:
    """Refuse options of the sampler where a network draws no samples, and would ignore them."""
    names = _FOR_SAMPLERS if kind == "regressor" and dropout else ("samples", *_FOR_SAMPLERS)
    given = [name for name in names if getattr(options, name) is not None]
    if given and kind != "score":
        words = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{network} is a {kind} network, which draws no samples; leave {words} out")


class NetworkBackend:
    """Draws what a network gives for an image; `options` are `workflows.SampleOptions`."""

    keeps_seed = True

    def __init__(
        self, network: Any, options: Any, sigma_0: float, pixels: tuple[int, ...], *, kind: str, sde: Any
    ) -> None:
        from ..diffusion.noise import check_seed
        from ..diffusion.posterior import SAMPLERS, Reduction, check_steps

        given = {name: getattr(options, name) for name in ("samples", *_FOR_SAMPLERS)}
        settings = self._settings = given | {
            name: default for name, default in _DEFAULTS.items() if given[name] is None
        }
        self.network, self.options, self.sigma_0, self.pixels, self.sde = network, options, sigma_0, pixels, sde
        self.kind, self.compile = kind, bool(options.compile)
        check_seed(options.seed)
        self.samples = check_count(settings["samples"], "samples", least=2)
        if options.batch is not None:
            check_count(options.batch, "batch")
        self.dropout = kind == "regressor" and network.config.dropout > 0
        self.counted = self.samples if self.dropout else 1
        self.steps = None
        self.heads = ("lower", "estimate", "upper") if kind == "regressor" else ("lower", "upper")
        names = (*self.heads, *(("dropout_mean", "dropout_deviation") if self.dropout else ()))
        self.arrays: dict[str, tuple[int, ...]] = dict.fromkeys(names, ())
        if kind == "score":
            sampler = check_choice(settings["sampler"], SAMPLERS, "sampler")
            self.steps = check_steps(sampler, options.steps, sigma_0, sde)
            level = check_open_unit(settings["miscoverage"], "miscoverage")
            held_out = check_count(settings["held_out"], "held_out", least=0)
            ranks = calibrated_ranks(self.samples, level)
            self.counted = self.samples + held_out
            self.reduction = Reduction(ranks, (level / 2, 1 - level / 2), held_out, settings["keep_samples"])
            self.arrays = kept_arrays(held_out, self.samples if settings["keep_samples"] else 0)

    def compile_where_it_pays(self, images: int, device: Any) -> None:
        """Compile the network where that pays for so many images on this device, or as the options say."""
        from ..diffusion.members import compile_pays, compiled

        if self.options.compile is None:
            evaluations = images * self.counted * ((self.steps or 0) + 1)
            self.compile = self.kind == "score" and compile_pays(evaluations, prod(self.pixels[-2:]), device)
        if self.compile:
            self.network = compiled(self.network)

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

    def draw(self, y: Array, ids: Array, batch: int, within: Progress = silent) -> Iterator[Parts]:
        """The arrays of each image of a block (b, c, h, w)."""
        import torch

        from ..diffusion.batches import even_batch
        from ..diffusion.posterior import sample
        from ..diffusion.regression import dropout_passes, predict

        network = self.network
        if self.kind == "score":
            if self.compile:  # all blocks have the shape of a full one, the last one padded
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


@dataclass(frozen=True)
class LinearSampler:
    """Posterior samples of what a problem observes, drawn with a network that `pixelbounds train` saved.

    `how` says by which method, in how many steps; images are `batch` at a time in the network. Networks take images
    (c, h, w); where they have one channel, observations and samples go without its axis.
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
