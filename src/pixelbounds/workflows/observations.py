"""What a sampling run is made of: its options, what was observed, and what a network draws from it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bands import calibrated_ranks
from ..execution.progress import Progress, silent
from ..images.checks import check_choice, check_count, check_open_unit
from ..images.foreign import as_plain_array
from ..images.library import Array

_ROWS_BYTES = 2**26  # observations read at a time
_FOR_SAMPLERS = ("sampler", "steps", "miscoverage", "held_out", "keep_samples")  # options for score networks alone
_USUAL: dict[str, Any] = {"samples": 79, "miscoverage": 0.1, "sampler": "heun", "held_out": 0, "keep_samples": False}


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


def check_sampling(network: str | os.PathLike[str], kind: str, options: SampleOptions, *, dropout: bool) -> None:
    """Options of the sampler are for score networks, passes for dropout too; elsewhere they would be ignored."""
    names = _FOR_SAMPLERS if kind == "regressor" and dropout else ("samples", *_FOR_SAMPLERS)
    given = [name for name in names if getattr(options, name) is not None]
    if given and kind != "score":
        words = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{network} is a {kind} network, which draws no samples; leave {words} out")


# ---------------------------------------------------------------- what is observed


class Observations:
    """Noisy images with their numbers, read and scaled a few at a time; checked once, while the digest is made."""

    def __init__(
        self,
        images: Any,
        limits: tuple[float, float],
        sigma_0: float,
        ids: Any,
        chosen: range | None,
        config: dict[str, Any],
        remedy: str,
    ) -> None:
        images = as_plain_array(images, "observations")
        self._images = images
        self._limits = limits
        self._sigma_0 = sigma_0
        self._remedy = remedy
        channels = config["channels"]
        stride = config.get("patch", 1) * 2 ** (len(config["multipliers"]) - 1)
        n = int(images.shape[0]) if len(images.shape) else 0
        chosen = range(n) if chosen is None else chosen
        if chosen.step != 1 or chosen.start < 0 or chosen.stop > n:
            raise ValueError(f"images are {chosen}; choose a range within the {n} observations")
        self._start = chosen.start
        shape = (len(chosen), *(int(x) for x in images.shape[1:]))
        self.shape = shape[1:]
        self.dtype = "float32"
        own = shape[1] if len(shape) == 4 else 1
        if len(shape) not in (3, 4) or 0 in shape or own != channels:
            wanted = f"(n, {channels}, h, w)" if channels > 1 else "(n, h, w) or (n, 1, h, w)"
            raise ValueError(f"observations have shape {shape}; this network takes {wanted}")
        if shape[-1] % stride or shape[-2] % stride:
            raise ValueError(f"observations are {shape[-2]} x {shape[-1]}; crop or pad them to multiples of {stride}")
        self.ids = np.asarray(chosen if ids is None else ids)
        if self.ids.shape != shape[:1] or self.ids.dtype.kind not in "iu" or len(np.unique(self.ids)) != shape[0]:
            raise ValueError(f"ids must be {shape[0]} different whole numbers, one per observation")
        if self.ids.min() < 0 or self.ids.max() >= 2**32:
            raise ValueError(f"ids reach from {self.ids.min()} to {self.ids.max()}; they must lie in [0, 2^32)")

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, start: int, stop: int) -> Array:
        """Float32 (b, c, h, w)."""
        x = np.asarray(self._images[self._start + start : self._start + stop])
        if x.dtype != np.uint8 and x.dtype.kind != "f":
            raise ValueError(f"observations are {x.dtype}; convert them to float32 within the limits, or to uint8")
        low, high = self._limits
        values = x.astype(np.float32) * np.float32((high - low) / 255) + np.float32(low) if x.dtype == np.uint8 else x
        values = np.array(values, np.float32)
        return values if values.ndim == 4 else values[:, None]

    def digest(self) -> str:
        """A hash of pixels and numbers; pixels that no noise of this level explains are refused here."""
        low, high = self._limits
        slack = 8 * self._sigma_0 + 1e-3 * (high - low)
        total = hashlib.sha256(self.ids.astype(np.int64).tobytes())
        step = max(1, _ROWS_BYTES // self.rows(0, 1).nbytes)
        for start in range(0, len(self), step):
            x = self.rows(start, min(start + step, len(self)))
            bad = ~np.isfinite(x).reshape(len(x), -1).all(1)
            if bad.any():
                image = int(self.ids[start + int(np.argmax(bad))])
                raise ValueError(f"observation {image} holds NaN or infinite values; mend or drop it")
            least = x.reshape(len(x), -1).min(axis=1)
            most = x.reshape(len(x), -1).max(axis=1)
            far = (least < low - slack) | (most > high + slack)
            if far.any():
                i = int(np.argmax(far))
                raise ValueError(
                    f"observation {int(self.ids[start + i])} spans [{least[i]:.4g}, {most[i]:.4g}], further beyond the "
                    f"limits ({low:g}, {high:g}) than noise of sigma_0 = {self._sigma_0:g} goes; "
                    f"{self._remedy}, and give the deviation of their noise in the same units (--sigma0)"
                )
            total.update(x.tobytes())
        return total.hexdigest()


# ---------------------------------------------------------------- what is drawn


class NetworkDrawer:
    """What a kind of network gives for an image: the arrays, and how they are drawn."""

    keeps_seed = True

    def __init__(
        self, kind: str, network: Any, sde: Any, sigma_0: float, options: SampleOptions, pixels: tuple[int, ...]
    ) -> None:
        from ..diffusion.noise import check_seed
        from ..diffusion.posterior import SAMPLERS, Reduction, check_steps

        told = {name: getattr(options, name) for name in ("samples", *_FOR_SAMPLERS)}
        told |= {name: usual for name, usual in _USUAL.items() if told[name] is None}
        self.kind = kind
        self.network = network
        self.sde = sde
        self.sigma_0 = sigma_0
        self.options = options
        self.pixels = pixels
        self._told: dict[str, Any] = told
        check_seed(options.seed)
        self.samples = check_count(told["samples"], "samples", least=2)
        if options.batch is not None:
            check_count(options.batch, "batch")
        self.dropout = kind == "regressor" and network.config.dropout > 0
        self.steps = None
        self.draws = self.samples if self.dropout else 1
        self.arrays: dict[str, tuple[int, ...]]
        if kind == "score":
            steps = None if options.steps is None else check_count(options.steps, "steps")
            self.steps = check_steps(check_choice(told["sampler"], SAMPLERS, "sampler"), steps, sigma_0, sde)
            level = check_open_unit(told["miscoverage"], "miscoverage")
            held_out = check_count(told["held_out"], "held_out", least=0)
            ranks = calibrated_ranks(self.samples, level)
            self.draws = self.samples + held_out
            self.reduction = Reduction(ranks, (level / 2, 1 - level / 2), held_out, told["keep_samples"])
            self.arrays = dict.fromkeys(("lower", "upper", "naive_lower", "naive_upper", "mean", "deviation"), ())
            self.arrays |= {"held_out": (held_out,)} if held_out else {}
            self.arrays |= {"samples": (self.samples,)} if told["keep_samples"] else {}
        else:
            self.arrays = dict.fromkeys(
                ("lower", "estimate", "upper") if kind == "regressor" else ("lower", "upper"), ()
            )
            self.arrays |= dict.fromkeys(("dropout_mean", "dropout_deviation") if self.dropout else (), ())

    @property
    def counted(self) -> int:
        """Draws of an image that progress tells of."""
        return self.draws

    def about(self) -> dict[str, Any]:
        """What of the options bears on the result."""
        if self.kind != "score":
            return {"passes": self.samples if self.dropout else None}
        return self._told | {"steps": self.steps}

    def automatic_batch(self, images: Observations) -> int:
        """As many images as suit the device."""
        import torch

        from ..diffusion.posterior import automatic_batch

        probe = torch.from_numpy(images.rows(0, 1)).to(next(self.network.parameters()).device)
        return automatic_batch(self.network, probe, self.sigma_0)

    def prepare(self) -> None:
        """Compile the network where that is asked for."""
        if self.options.compile:
            from ..diffusion.members import compiled

            self.network = compiled(self.network, dynamic=False)  # all blocks but the last have one shape

    def draw(self, y: Array, ids: Array, batch: int, within: Progress = silent) -> Iterator[dict[str, Array]]:
        """The arrays of each image of a block (b, c, h, w)."""
        import torch

        from ..diffusion.posterior import sample
        from ..diffusion.regression import dropout_passes, predict

        if self.kind == "score":
            device = next(self.network.parameters()).device
            for draws in sample(
                self.network, torch.from_numpy(y).to(device), self.sigma_0, self.sde,
                samples=self.samples, sampler=self._told["sampler"], steps=self.steps, seed=self.options.seed,
                image_ids=[int(i) for i in ids], batch=batch, reduce=self.reduction, progress=within,
            ):  # fmt: skip
                yield {name: getattr(draws, name).cpu().numpy() for name in self.arrays}
            return
        heads = predict(self.network, y, self.sigma_0, batch=batch)
        names = ("lower", "estimate", "upper") if self.kind == "regressor" else ("lower", "upper")
        for image, number in enumerate(ids):
            parts = {name: head[image] for name, head in zip(names, heads, strict=True)}
            if self.dropout:
                seed = int(np.random.SeedSequence([self.options.seed, int(number)]).generate_state(1)[0])
                mean, deviation = dropout_passes(
                    self.network, y[image : image + 1], self.sigma_0, passes=self.samples, seed=seed, batch=batch
                )
                parts |= {"dropout_mean": mean[0], "dropout_deviation": deviation[0]}
            yield parts
