"""A user's own sampler: its samples become bands, in memory or in a run.

The loop is the one of `pixelbounds sample`, so an interrupted run of a function resumes, checks what it reads and
reports progress. Samples are reduced as they come: of m samples only the k smallest and the k largest of every pixel
are kept, k about m a / 2 for a miscoverage a. So 999 samples at 0.1 take the memory of some hundred, and an iterator of
samples never has to be held whole.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from ..bands import calibrated_ranks, least_samples, quantile_source
from ..execution.runner import Progress, bar, silent
from ..images.checks import check_count, check_limits, check_line, check_open_unit
from ..images.ends import Band
from ..images.library import Array
from ..storage.store import row_digests
from .loop import Parts, RunOptions, draw_images, fill_run, fitted, kept_arrays
from .observations import Observations
from .protocol import Sampler, check_sampler, drawn_samples, sampler_name
from .runs import Run


@dataclass(eq=False)
class FunctionBackend:
    """A sampler with all that bears on its draws: it draws images one by one and reduces samples as they come."""

    sampler: Sampler
    samples: int
    miscoverage: float
    seed: int
    held_out: int = 0
    keep_samples: bool = False
    keeps_seed: bool = field(default=False, init=False)
    pixels: tuple[int, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        check_sampler(self.sampler)
        check_count(self.samples, "samples", least=2)
        calibrated_ranks(self.samples, self.miscoverage)  # samples must suffice
        level = float(self.miscoverage) if isinstance(self.miscoverage, Fraction) else self.miscoverage
        self.miscoverage = check_open_unit(level, "miscoverage")
        check_count(self.seed, "seed", least=0)
        check_count(self.held_out, "held_out", least=0)
        self.arrays = kept_arrays(self.held_out, self.samples if self.keep_samples else 0)
        self.counted = self.samples + self.held_out
        self._warned = False

    def automatic_batch(self, images: Any) -> int:
        """A function draws one image at a time, or as many as it says to take."""
        return self.counted * int(getattr(self.sampler, "batched", None) or 1)

    def draw(self, y: Any, ids: Array, batch: int, within: Progress = silent) -> Iterator[Parts]:
        """What is kept of each image of a block, (*pixels) each."""
        count = self.counted
        drawn = drawn_samples(self.sampler, y, count, self.seed, ids)
        for before, (number, blocks) in enumerate(zip(ids, drawn, strict=True)):
            tails = SampleTails(self.samples, self.miscoverage)
            more: dict[str, list[Array]] = {"held_out": [], "samples": []}
            digests: set[int] = set()
            taken = 0
            for block in blocks:
                kept = block[: max(0, self.samples - taken)]
                taken += len(block)
                if len(kept):
                    tails.push(kept)
                    more["samples"] += [kept.astype(np.float16)] if self.keep_samples else []
                if len(kept) < len(block):
                    more["held_out"].append(block[len(kept) :])
                digests.update(row_digests(block).tolist())
                within(before * count + taken, len(y) * count)
            if len(digests) < count and not self._warned:
                self._warned = True
                warnings.warn(
                    f"{count - len(digests)} of the {count} samples of image {int(number)} are copies of others: the "
                    "sampler has no randomness, or uses one seed for several samples; its bands are narrower than "
                    "they say",
                    stacklevel=2,
                )
            yield tails.parts() | {name: np.concatenate(x) for name, x in more.items() if x}


class SampleTails:
    """Order statistics and moments of m samples (*pixels), pushed in blocks; the cut of the blocks changes no quantile.

    >>> tails = SampleTails(19, 0.1)
    >>> for block in np.split(np.arange(19.0), [4, 5]):
    ...     tails.push(block[:, None])
    >>> {name: float(x[0]) for name, x in tails.parts().items() if name in ("lower", "upper", "mean")}
    {'lower': 0.0, 'upper': 18.0, 'mean': 9.0}
    """

    def __init__(self, m: int, miscoverage: float | Fraction) -> None:
        self._rank, _ = calibrated_ranks(m, miscoverage)
        position = (m - 1) * float(miscoverage) / 2
        self._naive = floor(position)
        self._share = position - self._naive
        self._kept = min(m, max(self._rank, self._naive + 2))
        self._count = 0
        self._low: Array | None = None
        self._high: Array | None = None
        self._mean = np.zeros(())
        self._squares = np.zeros(())

    def push(self, block: Array) -> None:
        """Take some more samples, (b, *pixels)."""
        self._low = _least(block, self._low, self._kept)
        self._high = _least(-block, self._high, self._kept)
        single = block.astype(np.float64)
        mean = single.mean(axis=0)
        total = self._count + len(block)
        apart = mean - self._mean
        self._squares = (
            self._squares + ((single - mean) ** 2).sum(axis=0) + apart**2 * (self._count * len(block) / total)
        )
        self._mean = self._mean + apart * (len(block) / total)
        self._count = total

    def parts(self) -> dict[str, Array]:
        """Calibrated and naive quantiles, mean and deviation of all samples that were pushed, each (*pixels)."""
        assert self._low is not None
        assert self._high is not None
        low = np.sort(self._low, axis=0)
        high = -np.sort(self._high, axis=0)  # from the greatest down
        beside = min(self._naive + 1, self._kept - 1)
        return {
            "lower": low[self._rank - 1],
            "upper": high[self._rank - 1],
            "naive_lower": low[self._naive] + (low[beside] - low[self._naive]) * low.dtype.type(self._share),
            "naive_upper": high[self._naive] + (high[beside] - high[self._naive]) * low.dtype.type(self._share),
            "mean": self._mean.astype(low.dtype),
            "deviation": (np.sqrt(self._squares) / sqrt(self._count - 1)).astype(low.dtype),
        }


def _least(block: Array, before: Array | None, kept: int) -> Array:
    """The `kept` smallest of every pixel, in any order, among new samples and those kept before."""
    every = block if before is None else np.concatenate([before, block])
    return every.copy() if len(every) <= kept else np.partition(every, kept - 1, axis=0)[:kept].copy()


# ---------------------------------------------------------------- what users call


def sample_function_to(
    sampler: Sampler,
    observations: Any,
    out: str | os.PathLike[str],
    *,
    samples: int = 79,
    miscoverage: float = 0.1,
    seed: int = 0,
    name: str | None = None,
    ids: Any = None,
    images: range | None = None,
    limits: tuple[float, float] | None = None,
    held_out: int = 0,
    keep_samples: bool = False,
    **run: Any,
) -> Run:
    """Draw samples of observations (n, ...) into the run `out`; an interrupted run resumes.

    `ids` are the numbers that with `seed` seed the images, by default their numbers among the observations; `images`
    chooses a range of them. `held_out` further samples per image are kept apart, `keep_samples` keeps all in float16.
    `limits` are those of the pixels, for a calibration; `run` are fields of `RunOptions`.
    """
    backend = FunctionBackend(sampler, samples, miscoverage, seed, held_out, bool(keep_samples))
    about = {
        "kind": "sampler",
        "sampler": _name(sampler, name),
        "limits": None if limits is None else list(check_limits(limits)),
        "seed": seed,
        "samples": samples,
        "miscoverage": backend.miscoverage,
        "held_out": held_out,
        "keep_samples": backend.keep_samples,
    }
    return fill_run(Path(out), about, Observations(observations, ids, images), backend, RunOptions(**run))


def bands_from(
    sampler: Sampler,
    observations: Any,
    *,
    samples: int = 79,
    miscoverage: float = 0.1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: Progress | None = None,
    **more: Any,
) -> Band:
    """Calibrated quantiles of what a sampler draws: observations (n, ...) -> Band of (n, *pixels).

    `sampler(observation, samples, seed)` returns (samples, *pixels), as an array or tensor, or one by one; one with an
    attribute `batched = b` is called with up to b observations and a seed for each. `name` says which sampler it is,
    where its function and weights do not. With `out` the band lies in a run, which resumes when it was interrupted;
    `more` is then what `sample_function_to` takes. `progress` is called with the samples that are drawn and their
    total; by default a terminal or notebook shows a bar with what is drawn and the time that is left.

    >>> def noisy(observation, samples, seed):
    ...     return observation + np.random.default_rng(seed).normal(size=(samples, *observation.shape))
    >>> bands_from(noisy, np.zeros((2, 4, 4)), samples=19, name="noisy")
    Band of 2 images of shape (4, 4), float64, calibrated quantiles, samples 19, miscoverage 1/10, sampler noisy
    """
    with ExitStack() as stack:
        report = progress or stack.enter_context(bar(_cost(observations, samples, miscoverage), of="samples"))
        if out is not None:
            return sample_function_to(
                sampler, observations, out, samples=samples, miscoverage=miscoverage, seed=seed, name=name,
                progress=report, **more,
            ).band()  # fmt: skip
        ids = more.pop("ids", None)
        if more:
            raise TypeError(f"{', '.join(more)}: for runs only; give out=, or leave it out")
        backend = FunctionBackend(sampler, samples, miscoverage, seed)
        source = replace(quantile_source("calibrated", samples, miscoverage), sampler=_name(sampler, name))
        observed = Observations(observations, ids)
        observed.digest()  # what is not finite is refused before anything is drawn
        lower: list[Array] = []
        upper: list[Array] = []
        total = samples * len(observed)

        def within(done: int, of: int) -> None:
            report(samples * len(lower) + done, total)

        report(0, total)
        batch = backend.automatic_batch(observed)
        for done, parts in enumerate(draw_images(backend, observed, range(len(observed)), batch, within)):
            shape = lower[0].shape if lower else parts["lower"].shape
            lower.append(fitted(parts["lower"], shape, int(observed.ids[done])))
            upper.append(fitted(parts["upper"], shape, int(observed.ids[done])))
            report(samples * len(lower), total)
    return Band(np.stack(lower), np.stack(upper), source=source)


def _cost(observations: Any, samples: int, miscoverage: float) -> str:
    """What is about to be drawn, and how little would do."""
    images = f"{len(observations):,} images, " if hasattr(observations, "__len__") else ""
    least = least_samples(miscoverage)
    return f"{images}{samples} samples of each" + (f" (samples={least} would do)" if samples > least else "")


def _name(sampler: Sampler, name: str | None) -> str:
    return sampler_name(sampler) if name is None else check_line(name, "name")
