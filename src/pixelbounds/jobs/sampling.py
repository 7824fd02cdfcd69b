"""Sample observations into a store.

Sampling goes block by block, and a block is a function of the run alone: `batch // draws` images in order, at least
one. A run that is resumed draws an unfinished block whole, as the uninterrupted one did, and keeps what was missing;
since a network's last bits may depend on what else is in its batch, that is what makes both runs equal bit for bit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ..arrays import Array, check_choice, check_count, check_limits, check_open_unit
from ..bands import calibrated_ranks
from ..execution import Execution, running
from ..files import exclusive
from ..store import Run, create_run, differences, open_run, write_image
from ..version import VERSION
from .devices import best_device, check_device

Tell = Callable[[str], None]  # called with a line for the user
Count = Callable[[int, int], None]  # called with images finished and their total

_ROWS_BYTES = 2**26  # observations read at a time


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """How to sample; None takes what the network file or the sampler says."""

    sigma_0: float | None = None
    samples: int = 128
    miscoverage: float = 0.1
    sampler: str = "heun"
    steps: int | None = None
    seed: int = 0
    batch: int | None = None
    held_out: int = 0
    keep_samples: bool = False
    limits: tuple[float, float] | None = None
    device: str | None = None
    compile: bool = False
    repair: bool = False


def sample_to(
    network: str | os.PathLike[str],
    observations: Any,
    out: str | os.PathLike[str],
    options: SampleOptions = SampleOptions(),  # noqa: B008 - frozen
    *,
    ids: Any = None,
    images: range | None = None,
    scheduler: Any = None,
    tell: Tell = lambda line: None,
    progress: Count = lambda done, total: None,
) -> Run:
    """Sample observations (n, h, w) or (n, c, h, w) into the store `out`, going on where it stands.

    A network that is no score network gives its quantiles, and a regressor with dropout its mean and deviation over
    `samples` passes. `images` chooses a range of the observations, all unless told; ids are the numbers that seed these
    images, their numbers among the observations unless told. With a `scheduler` (a `distributed.Client` or an address)
    the workers of a Dask cluster draw, each with the network on its own device; network, observations and store must be
    files that all of them see.
    """
    from ..diffusion.checkpoint import load_network

    out = Path(out)
    device = "cpu" if scheduler is not None else check_device(options.device) or best_device()
    model, sde, meta = load_network(Path(network), device=device)
    kind, extra = meta["kind"], meta["extra"]
    limits = check_limits(options.limits or extra.get("limits") or (0.0, 1.0))
    sigma_0 = options.sigma_0 if options.sigma_0 is not None else extra.get("sigma_0")
    if sigma_0 is None:
        raise ValueError(f"sigma_0 is not given, and {network} knows none; give the noise deviation, e.g. --sigma0 0.4")
    sigma_0, top = sde.check_level(sigma_0), extra.get("sigma_top")
    if top is not None and sigma_0 > top:
        raise ValueError(f"sigma_0 is {sigma_0:g}, but {network} was trained up to {top:g}; train another one")
    observed = _Observations(observations, limits, sigma_0, ids, images, meta["config"])
    plan = _Plan(kind, model, sde, sigma_0, options)
    about = {
        "kind": kind,
        "network": hashlib.sha256(Path(network).read_bytes()).hexdigest(),
        "observations": observed.digest(),
        "images": len(observed),
        "shape": list(observed.pixels),
        "sigma_0": sigma_0,
        "sde": [sde.sigma_min, sde.sigma_max],
        "limits": list(limits),
        "seed": options.seed,
        "compile": options.compile,
        **plan.about(),
        "network_file": str(network),
        "device": device,
        "version": VERSION,
    }
    with ExitStack() as stack:
        there: _Elsewhere | None = None
        if scheduler is not None:
            there = _Elsewhere(str(Path(network).absolute()), about["network"], sigma_0, options)
            execution = stack.enter_context(running(scheduler))
        if not out.exists():
            batch = options.batch
            if batch is None:
                batch = plan.automatic_batch(observed) if there is None else there.batch(execution, observed)
            with suppress(FileExistsError):  # another process made it meanwhile: the lock and its configuration decide
                create_run(out, {**about, "batch": batch}, observed.pixels, observed.ids, plan.arrays)
        stack.enter_context(exclusive(out))
        run = open_run(out, mode="r+")
        wrong = differences(run.about, about)
        if wrong:
            raise ValueError(f"{out} is another run: {'; '.join(wrong)}; use the same, or another --out")
        for stale in out.rglob("*.partial"):  # of a process that was killed
            stale.unlink(missing_ok=True)
        if options.batch is not None and options.batch != run.about["batch"]:
            tell(f"batch was {run.about['batch']} and is {options.batch} now: last bits of the rest may differ")
            run.about["batch"] = options.batch
            run.group.attrs["pixelbounds"] = run.about
        if options.repair:
            for image in {image for image, _, _ in run.damaged()}:
                tell(f"image {int(run.ids[image])} is damaged and will be drawn again")
                run.group["done"][image] = 0
        else:
            run.check()
        blocks: Iterator[int]
        if there is None:
            plan.prepare()
            blocks = (_draw_block(out, observed, plan, *cut) for cut in _unfinished(run, plan, tell))
        else:
            blocks = there.draw(execution, out, observed, _unfinished(run, plan, tell))
        done = int(run.done.sum())
        progress(done, len(observed))
        for drawn in blocks:
            done += drawn
            progress(done, len(observed))
    return open_run(out)


def _unfinished(run: Run, plan: _Plan, tell: Tell) -> list[tuple[int, int]]:
    """Blocks that are not finished, images start and stop of each."""
    done, per_block = run.done, max(1, int(run.about["batch"]) // plan.draws)
    if done.any():
        tell(f"{int(done.sum())} of {len(done)} images are finished; going on")
    cuts = ((start, min(start + per_block, len(done))) for start in range(0, len(done), per_block))
    return [(start, stop) for start, stop in cuts if not done[start:stop].all()]


def _draw_block(out: Path, images: _Observations, plan: _Plan, start: int, stop: int) -> int:
    """Draw a block whole and write the images of it that are missing; how many those were."""
    run = open_run(out, mode="r+")
    done, y = run.finished(start, stop), images.rows(start, stop)
    for i, parts in enumerate(plan.draw(y, images.ids[start:stop], int(run.about["batch"]))):
        if not done[i]:
            shaped = {name: x.reshape(run.group[name].shape[1:]) for name, x in parts.items()}
            write_image(run.group, start + i, {**shaped, "observation": y[i].reshape(images.pixels)})
    return int((~done).sum())


@dataclass(frozen=True)
class _Elsewhere:
    """How a worker comes by the network: it loads the file once, on its own device, and draws one block at a time."""

    network: str
    digest: str
    sigma_0: float
    options: SampleOptions

    def batch(self, execution: Execution, images: _Observations) -> int:
        """As many images as suit a worker's device."""
        return next(execution.each(lambda: _plan_of(self).automatic_batch(images), [()], 0, 1))

    def draw(
        self, execution: Execution, out: Path, images: _Observations, cuts: list[tuple[int, int]]
    ) -> Iterator[int]:
        """Images drawn, block by block; each block is a task of its own."""
        return execution.each(partial(_draw_there, self, out.absolute(), images), cuts, 0, 2**26)


_DRAWING = Lock()


def _draw_there(there: _Elsewhere, out: Path, images: _Observations, start: int, stop: int) -> int:
    with _DRAWING:
        return _draw_block(out, images, _plan_of(there), start, stop)


@lru_cache(maxsize=1)
def _plan_of(there: _Elsewhere) -> _Plan:
    from ..diffusion.checkpoint import load_network

    path, options = Path(there.network), there.options
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != there.digest:
        raise ValueError(f"a worker sees no {path}, or another one; put the network where all of them see it")
    model, sde, meta = load_network(path, device=check_device(options.device) or best_device())
    plan = _Plan(meta["kind"], model, sde, there.sigma_0, options)
    plan.prepare()
    return plan


class _Observations:
    """Noisy images with their numbers, read and scaled a few at a time; checked once, while the digest is made."""

    def __init__(
        self,
        images: Any,
        limits: tuple[float, float],
        sigma_0: float,
        ids: Any,
        chosen: range | None,
        config: dict[str, Any],
    ) -> None:
        self._images, self._limits, self._sigma_0 = images, limits, sigma_0
        channels, stride = config["channels"], 2 ** (len(config["multipliers"]) - 1)
        n = int(images.shape[0]) if len(images.shape) else 0
        chosen = range(n) if chosen is None else chosen
        if chosen.step != 1 or chosen.start < 0 or chosen.stop > n:
            raise ValueError(f"images are {chosen}; choose a range within the {n} observations")
        self._start, shape = chosen.start, (len(chosen), *(int(x) for x in images.shape[1:]))
        self.pixels = shape[1:]
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
        total, step = hashlib.sha256(self.ids.astype(np.int64).tobytes()), self.rows(0, 1).nbytes
        step = max(1, _ROWS_BYTES // step)
        for start in range(0, len(self), step):
            x = self.rows(start, min(start + step, len(self)))
            bad = ~np.isfinite(x).reshape(len(x), -1).all(1)
            if bad.any():
                image = int(self.ids[start + int(np.argmax(bad))])
                raise ValueError(f"observation {image} holds NaN or infinite values; mend or drop it")
            least, most = (end(x.reshape(len(x), -1), axis=1) for end in (np.min, np.max))
            far = (least < low - slack) | (most > high + slack)
            if far.any():
                i = int(np.argmax(far))
                raise ValueError(
                    f"observation {int(self.ids[start + i])} spans [{least[i]:.4g}, {most[i]:.4g}], further beyond the "
                    f"limits ({low:g}, {high:g}) than noise of sigma_0 = {self._sigma_0:g} goes; rescale the "
                    "observations, or give their limits (--limits) and the deviation of their noise (--sigma0)"
                )
            total.update(x.tobytes())
        return total.hexdigest()


class _Plan:
    """What a kind of network gives for an image: the arrays, and how they are drawn."""

    def __init__(self, kind: str, network: Any, sde: Any, sigma_0: float, options: SampleOptions) -> None:
        from ..diffusion.noise import check_seed
        from ..diffusion.sampling import SAMPLERS, Reduction, check_steps

        self.kind, self.network, self.sde, self.sigma_0, self.options = kind, network, sde, sigma_0, options
        check_seed(options.seed)
        self.samples = check_count(options.samples, "samples", least=2)
        if options.batch is not None:
            check_count(options.batch, "batch")
        self.dropout = kind == "regressor" and network.config.dropout > 0
        self.steps, self.draws = None, self.samples if self.dropout else 1
        self.arrays: dict[str, tuple[int, ...]]
        if kind == "score":
            steps = None if options.steps is None else check_count(options.steps, "steps")
            self.steps = check_steps(check_choice(options.sampler, SAMPLERS, "sampler"), steps, sigma_0, sde)
            level = check_open_unit(options.miscoverage, "miscoverage")
            held_out = check_count(options.held_out, "held_out", least=0)
            ranks = calibrated_ranks(self.samples, level)
            self.draws = self.samples + held_out
            self.reduction = Reduction(ranks, (level / 2, 1 - level / 2), held_out, options.keep_samples)
            self.arrays = dict.fromkeys(("lower", "upper", "naive_lower", "naive_upper", "mean", "deviation"), ())
            self.arrays |= {"held_out": (held_out,)} if held_out else {}
            self.arrays |= {"samples": (self.samples,)} if options.keep_samples else {}
        else:
            if options.held_out or options.keep_samples:
                raise ValueError(f"a {kind} network draws no samples; leave held_out and keep_samples out")
            self.arrays = dict.fromkeys(
                ("lower", "estimate", "upper") if kind == "regressor" else ("lower", "upper"), ()
            )
            self.arrays |= dict.fromkeys(("dropout_mean", "dropout_deviation") if self.dropout else (), ())

    def about(self) -> dict[str, Any]:
        """What of the options bears on the result."""
        options = self.options
        if self.kind != "score":
            return {"passes": self.samples if self.dropout else None}
        names = ("sampler", "samples", "miscoverage", "held_out", "keep_samples")
        return {name: getattr(options, name) for name in names} | {"steps": self.steps}

    def automatic_batch(self, images: _Observations) -> int:
        """As many images as suit the device."""
        import torch

        from ..diffusion.sampling import automatic_batch

        probe = torch.from_numpy(images.rows(0, 1)).to(next(self.network.parameters()).device)
        return automatic_batch(self.network, probe, self.sigma_0)

    def prepare(self) -> None:
        """Compile the network where that is asked for."""
        if self.options.compile:
            import torch

            self.network = torch.compile(self.network)

    def draw(self, y: Array, ids: Array, batch: int) -> Iterator[dict[str, Array]]:
        """The arrays of each image of a block (b, c, h, w)."""
        import torch

        from ..diffusion.regression import dropout_passes, predict
        from ..diffusion.sampling import sample

        if self.kind == "score":
            device = next(self.network.parameters()).device
            for draws in sample(
                self.network, torch.from_numpy(y).to(device), self.sigma_0, self.sde,
                samples=self.samples, sampler=self.options.sampler, steps=self.steps, seed=self.options.seed,
                image_ids=[int(i) for i in ids], batch=batch, reduce=self.reduction,
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
