"""A user's own sampler: its samples become bands, in memory or in a run.

The loop is the one of `pixelbounds sample`, so a run of a function goes on where it stopped, checks what it reads,
tells how far it is and may be drawn by the workers of a cluster. Samples are reduced as they come.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..bands import calibrated_ranks, quantile_source
from ..execution.progress import Progress, Tell, silent
from ..formats.runs import Run
from ..images.checks import check_count, check_limits, check_line, check_open_unit
from ..images.ends import Band
from ..images.foreign import as_plain_array
from ..images.library import Array, library_of, to_numpy
from ..images.measure import Measure
from ..images.source import Source
from ..storage.digests import row_digests
from ..storage.version import VERSION
from .loop import Parts, RunOptions, fill_run, fitted, place_for
from .protocol import Sampler, check_sampler, checked_samples, image_seed, sampler_name
from .tails import SampleTails

_ROWS_BYTES = 2**26  # observations read at a time
_WHOLE_KEPT = ("lower", "upper", "naive_lower", "naive_upper", "mean", "deviation")


class AnyObservations:
    """Observations (n, ...) of any shape and kind of number, also complex, with the numbers that seed their images."""

    def __init__(self, observations: Any, ids: Any = None, images: range | None = None) -> None:
        if isinstance(observations, Iterator):
            observations = list(observations)
        observations = as_plain_array(observations, "observations")
        if not library_of(observations):
            observations = _together(observations)
        n = int(observations.shape[0]) if len(observations.shape) > 1 else 0
        chosen = range(n) if images is None else images
        if not n or chosen.step != 1 or chosen.start < 0 or chosen.stop > n or not len(chosen):
            raise ValueError(
                f"observations have shape {tuple(observations.shape)} and images are {chosen}; give (n, ...) and a "
                "range within n"
            )
        self._all = observations
        self._start = chosen.start
        self.shape = tuple(int(size) for size in observations.shape[1:])
        self.dtype = "complex64" if "complex" in str(observations.dtype) else "float32"
        self.ids = np.asarray(chosen if ids is None else ids)
        if (
            self.ids.shape != (len(chosen),)
            or self.ids.dtype.kind not in "iu"
            or len(np.unique(self.ids)) != len(chosen)
        ):
            raise ValueError(f"ids must be {len(chosen)} different whole numbers, one per observation")
        if self.ids.min() < 0 or self.ids.max() >= 2**32:
            raise ValueError(f"ids reach from {self.ids.min()} to {self.ids.max()}; they must lie in [0, 2^32)")

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, start: int, stop: int) -> Any:
        """Observations as they are: tensors of torch, else of NumPy."""
        x = self._all[self._start + start : self._start + stop]
        return x if library_of(x) == "torch" else to_numpy(x)

    def digest(self) -> str:
        """A hash of values and numbers; what is not finite is refused here."""
        total = hashlib.sha256(self.ids.astype(np.int64).tobytes())
        step = max(1, _ROWS_BYTES // max(1, to_numpy(self.rows(0, 1)).nbytes))
        for start in range(0, len(self), step):
            x = np.ascontiguousarray(to_numpy(self.rows(start, min(start + step, len(self)))))
            if x.dtype.kind not in "fciub":
                raise TypeError(f"observations are {x.dtype}; give numbers")
            bad = ~np.isfinite(x).reshape(len(x), -1).all(axis=1)
            if bad.any():
                image = int(self.ids[start + int(np.argmax(bad))])
                raise ValueError(f"observation {image} holds NaN or infinite values; mend or drop it")
            total.update(f"{x.dtype.str} {x.shape[1:]}".encode())
            total.update(x.tobytes())
        return total.hexdigest()


def _together(observations: Any) -> Array:
    try:
        return np.stack([to_numpy(x) if library_of(x) else np.asarray(x) for x in observations])
    except (TypeError, ValueError) as error:
        raise ValueError(
            "observations must form an array (n, ...): give a NumPy, torch, zarr or Dask array, or a list of arrays of "
            "one shape; where they differ in size, draw each size by itself"
        ) from error


@dataclass(frozen=True, eq=False)
class FunctionRecipe:
    """A sampler with all that bears on its draws."""

    sampler: Sampler
    samples: int
    miscoverage: float
    seed: int
    held_out: int
    keep_samples: bool

    def drawer(self) -> FunctionDrawer:
        """What draws with it."""
        return FunctionDrawer(self)


class FunctionDrawer:
    """Draws the images of a function one by one and reduces their samples as they come."""

    draws = 1
    pixels = None
    keeps_seed = False

    def __init__(self, recipe: FunctionRecipe) -> None:
        self._recipe = recipe
        self._warned = False
        self.arrays: dict[str, tuple[int, ...]] = dict.fromkeys(_WHOLE_KEPT, ())
        self.arrays |= {"held_out": (recipe.held_out,)} if recipe.held_out else {}
        self.arrays |= {"samples": (recipe.samples,)} if recipe.keep_samples else {}

    @property
    def counted(self) -> int:
        """Draws of an image that progress tells of."""
        return self._recipe.samples + self._recipe.held_out

    def automatic_batch(self, images: Any) -> int:
        """A function draws one image at a time."""
        return 1

    def prepare(self) -> None:
        """Nothing is to be done."""

    def draw(self, y: Any, ids: Array, batch: int, within: Progress = silent) -> Iterator[Parts]:
        """What is kept of each image of a block, (*pixels) each."""
        for before, (observation, number) in enumerate(zip(y, ids, strict=True)):

            def tell(taken: int, of: int, before: int = before) -> None:
                within(before * of + taken, len(y) * of)

            yield self._image(observation, int(number), tell)

    def _image(self, observation: Any, number: int, tell: Progress) -> Parts:
        recipe = self._recipe
        count = self.counted
        tails = SampleTails(recipe.samples, recipe.miscoverage)
        whole: list[Array] = []
        beyond: list[Array] = []
        seen: list[int] = []
        taken = 0
        for block in _drawn(recipe.sampler, observation, count, image_seed(recipe.seed, number), number):
            own = block[: max(0, recipe.samples - taken)]
            taken += len(block)
            if len(own):
                tails.push(own)
                whole += [own.astype(np.float16)] if recipe.keep_samples else []
            if len(own) < len(block):
                beyond.append(block[len(own) :])
            seen += row_digests(block).tolist()
            tell(taken, count)
        self._warn_of_copies(count - len(set(seen)), count, number)
        more = {"held_out": beyond, "samples": whole}
        return tails.parts() | {name: np.concatenate(x) for name, x in more.items() if x}

    def _warn_of_copies(self, copies: int, count: int, number: int) -> None:
        if copies and not self._warned:
            self._warned = True
            warnings.warn(
                f"{copies} of the {count} samples of image {number} are copies of others: the sampler has no "
                "randomness, or uses one seed for several samples; its bands are narrower than they say",
                stacklevel=2,
            )


def _drawn(sampler: Sampler, observation: Any, count: int, seed: int, number: int) -> Iterator[Array]:
    """Blocks of samples; what the sampler itself raises is told apart from what is wrong with its samples."""
    try:
        found = sampler(observation, count, seed)
        if not library_of(found) and hasattr(found, "__iter__"):
            found = _watched(iter(found), number)
    except Exception as error:
        raise _raised(error, number) from error
    return checked_samples(found, count, number)


def _watched(samples: Iterator[Any], number: int) -> Iterator[Any]:
    while True:
        try:
            sample = next(samples)
        except StopIteration:
            return
        except Exception as error:
            raise _raised(error, number) from error
        yield sample


def _raised(error: Exception, number: int) -> ValueError:
    called = ". It is called as sampler(observation, samples, seed)" if isinstance(error, TypeError) else ""
    return ValueError(
        f"the sampler raised {type(error).__name__} at image {number}: {error}{called}. Mend it and call again with "
        "the same `out`: images that a run has finished are kept"
    )


# ---------------------------------------------------------------- the front door


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
    measure: Measure | None = None,
    patients: str | None = None,
    held_out: int = 0,
    keep_samples: bool = False,
    repair: bool = False,
    scheduler: Any = None,
    tell: Tell = lambda line: None,
    progress: Progress = silent,
) -> Run:
    """Draw samples of observations (n, ...) into the run `out`, going on where it stands.

    `ids` are the numbers that with `seed` seed the images, their numbers among the observations unless told; `images`
    chooses a range of them. `held_out` further samples per image are kept apart, `keep_samples` keeps all in float16.
    `limits` and `measure` say what the pixels of an image are, for a calibration, `patients` whose they are
    (`patients_digest`). With a `scheduler` the workers of a Dask cluster draw, one image at a time each: one worker
    per GPU.
    """
    recipe = _recipe(sampler, samples, miscoverage, seed, held_out, keep_samples)
    observed = AnyObservations(observations, ids, images)
    about = {
        "kind": "sampler",
        "sampler": _named(sampler, name),
        "observations": observed.digest(),
        "images": len(observed),
        "limits": None if limits is None else list(check_limits(limits)),
        "measure": None if measure is None else measure.state(),
        "patients": patients,
        "seed": recipe.seed,
        "samples": recipe.samples,
        "miscoverage": recipe.miscoverage,
        "held_out": recipe.held_out,
        "keep_samples": recipe.keep_samples,
        "version": VERSION,
    }
    orders = RunOptions(repair=repair, scheduler=scheduler, tell=tell, progress=progress)
    return fill_run(Path(out), about, observed, recipe.drawer(), recipe, orders)


def bands_from(
    sampler: Sampler,
    observations: Any,
    *,
    samples: int = 79,
    miscoverage: float = 0.1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    name: str | None = None,
    scheduler: Any = None,
    progress: Progress = silent,
    **more: Any,
) -> Band:
    """Calibrated quantiles of what a sampler draws: observations (n, ...) -> Band of (n, *pixels).

    `sampler(observation, samples, seed)` gives (samples, *pixels), as an array or tensor, or one by one. With `out` the
    band lies in a run, which goes on where it stopped; `more` is then what `sample_function_to` takes.

    >>> def noisy(observation, samples, seed):
    ...     return observation + np.random.default_rng(seed).normal(size=(samples, *observation.shape))
    >>> bands_from(noisy, np.zeros((2, 4, 4)), samples=19, name="noisy")
    Band of 2 images of shape (4, 4), float64, calibrated quantiles, samples 19, miscoverage 1/10, sampler noisy
    """
    known: dict[str, Any] = {"samples": samples, "miscoverage": miscoverage, "seed": seed}
    if out is not None:
        run = sample_function_to(
            sampler, observations, out, name=name, scheduler=scheduler, progress=progress, **known, **more
        )
        return run.band()
    ids = more.pop("ids", None)
    if more:
        raise TypeError(f"{', '.join(more)}: for runs only; give out=, or leave it out")
    recipe = _recipe(sampler, held_out=0, keep_samples=False, **known)
    observed = AnyObservations(observations, ids)
    observed.digest()  # what is not finite is refused before anything is drawn
    lower: list[Array] = []
    upper: list[Array] = []
    with ExitStack() as stack:
        progress(0, len(observed))
        place = place_for(stack, recipe.drawer(), recipe, scheduler)
        for done, parts in enumerate(place.each(observed)):
            shape = lower[0].shape if lower else parts["lower"].shape
            lower.append(fitted(parts["lower"], shape, int(observed.ids[done])))
            upper.append(fitted(parts["upper"], shape, int(observed.ids[done])))
            progress(done + 1, len(observed))
    level = quantile_source("calibrated", samples, miscoverage)
    source = Source(level.kind, level.samples, level.miscoverage, _named(sampler, name))
    return Band(np.stack(lower), np.stack(upper), source=source)


def _named(sampler: Sampler, name: str | None) -> str:
    return sampler_name(sampler) if name is None else check_line(name, "name")


def _recipe(
    sampler: Any, samples: int, miscoverage: float, seed: int, held_out: int, keep_samples: bool
) -> FunctionRecipe:
    """All that bears on the draws, checked at the door."""
    samples = check_count(samples, "samples", least=2)
    calibrated_ranks(samples, miscoverage)  # samples must suffice
    level = float(miscoverage) if isinstance(miscoverage, Fraction) else miscoverage
    return FunctionRecipe(
        check_sampler(sampler),
        samples,
        check_open_unit(level, "miscoverage"),
        check_count(seed, "seed", least=0),
        check_count(held_out, "held_out", least=0),
        bool(keep_samples),
    )
