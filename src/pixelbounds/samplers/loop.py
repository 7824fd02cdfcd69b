"""The one loop that fills a run: block by block, by this process or on a cluster, going on where the run stands.

A block is a function of the run alone: `batch // draws` images in order, at least one. A run that is resumed draws an
unfinished block whole, as the uninterrupted one did, and keeps what was missing; since a network's last bits may depend
on what else is in its batch, that is what makes both runs equal bit for bit. A sampler of a user's own may ignore its
seed: before such a run goes on, a finished image is drawn again, and what differs is an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np

from ..execution.progress import Progress, Tell, silent
from ..execution.runner import Execution, running
from ..formats.runs import Run, create_run, open_run, run_differences, write_image
from ..images.library import Array, to_numpy
from ..storage.files import exclusive

Parts = dict[str, Array]  # what is kept of an image, by name


class Observed(Protocol):
    """Observations with their numbers, read a few at a time."""

    ids: Array
    shape: tuple[int, ...]  # of one observation
    dtype: str  # in which it is kept

    def __len__(self) -> int: ...

    def rows(self, start: int, stop: int) -> Any:
        """Some observations, (stop - start, ...)."""


class SamplerBackend(Protocol):
    """What draws: a network with its options, or a function."""

    arrays: dict[str, tuple[int, ...]]  # kept of an image, and the axes of each before its pixels
    draws: int  # that count towards a batch, per image

    @property
    def counted(self) -> int:
        """Draws of an image that progress tells of."""

    @property
    def pixels(self) -> tuple[int, ...] | None:
        """Shape of an image; None: the first draw tells."""

    @property
    def keeps_seed(self) -> bool:
        """Whether a draw depends on seed and numbers alone, for certain."""

    def automatic_batch(self, images: Any) -> int:
        """As many images as suit the device."""

    def prepare(self) -> None:
        """Make ready to draw."""

    def draw(self, y: Any, ids: Array, batch: int, within: Progress = silent) -> Iterator[Parts]:
        """What is kept of each image of a block; `within` is told the draws of it that are done, and their total."""


class BackendFactory(Protocol):
    """How a worker comes by its drawer, once; it must be hashable, and travels."""

    def __hash__(self) -> int: ...

    def drawer(self) -> SamplerBackend:
        """What draws."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is filled: images in a batch (None: as suits), draw damaged images again, on which cluster."""

    batch: int | None = None
    repair: bool = False
    scheduler: Any = None
    tell: Tell = lambda line: None
    progress: Progress = silent


# ---------------------------------------------------------------- where blocks are drawn


class _Here:
    """By this process."""

    def __init__(self, drawer: SamplerBackend) -> None:
        self._drawer = drawer
        self._ready = False

    def batch(self, images: Observed) -> int:
        """As many images as suit the device."""
        return int(self._drawer.automatic_batch(images))

    def one(self, images: Observed, position: int) -> Parts:
        """What is drawn for one image."""
        return _draw_one(self._prepared(), images, position)

    def each(self, images: Observed) -> Iterator[Parts]:
        """What is drawn for every image, in order."""
        return (self.one(images, position) for position in range(len(images)))

    def blocks(
        self, out: Path, images: Observed, cuts: list[tuple[int, int]], within: Progress = silent
    ) -> Iterator[int]:
        """Images drawn, block by block."""
        return (_draw_block(out, images, self._prepared(), *cut, within) for cut in cuts)

    def _prepared(self) -> SamplerBackend:
        if not self._ready:
            self._drawer.prepare()
            self._ready = True
        return self._drawer


@dataclass(frozen=True)
class _Elsewhere:
    """By the workers of a cluster, each with a drawer of its own; each block is a task."""

    recipe: BackendFactory
    execution: Execution

    def batch(self, images: Observed) -> int:
        """As many images as suit a worker's device."""
        return int(next(self.execution.each(partial(_batch_there, self.recipe, images), [()], 0, 1)))

    def one(self, images: Observed, position: int) -> Parts:
        """What a worker draws for one image."""
        return next(self.execution.each(partial(_one_there, self.recipe, images), [(position,)], 0, 2**26))

    def each(self, images: Observed) -> Iterator[Parts]:
        """What workers draw for every image, in order."""
        jobs = [(position,) for position in range(len(images))]
        return self.execution.each(partial(_one_there, self.recipe, images), jobs, 0, 2**26)

    def blocks(
        self, out: Path, images: Observed, cuts: list[tuple[int, int]], within: Progress = silent
    ) -> Iterator[int]:
        """Images drawn, block by block; what goes on within one is not known here."""
        return self.execution.each(partial(_block_there, self.recipe, out.absolute(), images), cuts, 0, 2**26)


_DRAWING = Lock()


@lru_cache(maxsize=1)
def drawer_of(recipe: BackendFactory) -> SamplerBackend:
    """A worker's drawer, made once and ready to draw."""
    drawer = recipe.drawer()
    drawer.prepare()
    return drawer


def _batch_there(recipe: BackendFactory, images: Observed) -> int:
    return int(drawer_of(recipe).automatic_batch(images))


def _one_there(recipe: BackendFactory, images: Observed, position: int) -> Parts:
    with _DRAWING:
        return _draw_one(drawer_of(recipe), images, position)


def _block_there(recipe: BackendFactory, out: Path, images: Observed, start: int, stop: int) -> int:
    with _DRAWING:
        return _draw_block(out, images, drawer_of(recipe), start, stop)


def _draw_one(drawer: SamplerBackend, images: Observed, position: int) -> Parts:
    y = images.rows(position, position + 1)
    return next(iter(drawer.draw(y, images.ids[position : position + 1], drawer.draws)))


def _draw_block(
    out: Path, images: Observed, drawer: SamplerBackend, start: int, stop: int, within: Progress = silent
) -> int:
    """Draw a block whole and write the images of it that are missing; how many those were."""
    run = open_run(out, mode="r+")
    done = run.finished(start, stop)
    y = images.rows(start, stop)
    for i, parts in enumerate(drawer.draw(y, images.ids[start:stop], int(run.about["batch"]), within)):
        if not done[i]:
            _keep(run, start + i, parts, y[i])
    return int((~done).sum())


def _keep(run: Run, position: int, parts: Mapping[str, Array], y: Any) -> None:
    """Write what was drawn of an image, with its observation."""
    number = int(run.ids[position])
    shaped = {name: fitted(x, run.group[name].shape[1:], number) for name, x in parts.items()}
    observation = to_numpy(y).reshape(run.group["observation"].shape[1:])
    write_image(run.group, position, {**shaped, "observation": observation})


def fitted(x: Array, wanted: tuple[int, ...], number: int) -> Array:
    """What was drawn of an image in the shape of all images; a channel axis of length 1 may come or go."""
    if _without_ones(x.shape) != _without_ones(wanted):
        raise ValueError(
            f"samples of image {number} give {x.shape} where the first image gave {tuple(wanted)}; a sampler must "
            "give images of one shape"
        )
    return x.reshape(wanted)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


# ---------------------------------------------------------------- filling


def place_for(stack: ExitStack, drawer: SamplerBackend, recipe: BackendFactory, scheduler: Any) -> _Here | _Elsewhere:
    """Where blocks are drawn; the stack ends it."""
    if scheduler is None:
        return _Here(drawer)
    return _Elsewhere(recipe, stack.enter_context(running(scheduler)))


def fill_run(
    out: Path,
    about: Mapping[str, Any],
    images: Observed,
    drawer: SamplerBackend,
    recipe: BackendFactory,
    orders: RunOptions,
) -> Run:
    """Draw what is missing of the run `out`, which is made where it is not there; `about` is all that bears on it."""
    with ExitStack() as stack:
        place = place_for(stack, drawer, recipe, orders.scheduler)
        first = None
        if not out.exists():
            first = _create(out, about, images, drawer, place, orders.batch)
        stack.enter_context(exclusive(out))
        run = open_run(out, mode="r+")
        wrong = run_differences(run.about, {"shape": run.about.get("shape"), **about})
        if wrong:
            raise ValueError(f"{out} is another run: {'; '.join(wrong)}; use the same, or another --out")
        for stale in out.rglob("*.partial"):  # of a process that was killed
            stale.unlink(missing_ok=True)
        _set_batch(run, orders)
        if orders.repair:
            for image in {image for image, _, _ in run.damaged()}:
                orders.tell(f"image {int(run.ids[image])} is damaged and will be drawn again")
                run.group["done"][image] = 0
        else:
            run.check()
        if first is not None and not run.done[0]:
            _keep(run, 0, first, images.rows(0, 1)[0])
        _draw_rest(out, run, images, drawer, place, orders, going_on=first is None)
    return open_run(out)


def _create(
    out: Path, about: Mapping[str, Any], images: Observed, drawer: SamplerBackend, place: Any, batch: Any
) -> Parts | None:
    """Make the store; where only a draw tells the shape of an image, the first one is drawn, and comes back."""
    first = None
    pixels = drawer.pixels
    if pixels is None:
        first = place.one(images, 0)
        pixels = first["lower"].shape
    told = {**about, "shape": list(pixels), "batch": place.batch(images) if batch is None else batch}
    with suppress(FileExistsError):  # another process made it meanwhile: the lock and its configuration decide
        create_run(out, told, pixels, images.ids, drawer.arrays, (images.shape, images.dtype))
    return first


def _set_batch(run: Run, orders: RunOptions) -> None:
    batch = run.about["batch"]
    if orders.batch is not None and orders.batch != batch:
        orders.tell(f"batch was {batch} and is {orders.batch} now: last bits of the rest may differ")
        run.about["batch"] = orders.batch
        run.group.attrs["pixelbounds"] = run.about


def _draw_rest(
    out: Path, run: Run, images: Observed, drawer: SamplerBackend, place: Any, orders: RunOptions, *, going_on: bool
) -> None:
    cuts = _unfinished(run, drawer, orders.tell if going_on else lambda line: None)
    done = run.done
    count = int(done.sum())
    if going_on and cuts and count and not drawer.keeps_seed:
        known = int(np.argmax(done))
        _check_repeats(run, known, place.one(images, known))
    each = drawer.counted  # an image may take minutes: samples are counted
    total = each * len(images)

    def within(done: int, of: int) -> None:
        orders.progress(min(each * count + done, total - 1), total)

    orders.progress(each * count, total)
    pace = _Pace()
    for drawn in place.blocks(out, images, cuts, within):
        count += drawn
        pace.add(drawn)
        orders.progress(each * count, total)
    if pace.known is not None and orders.scheduler is None:
        run.about["pace"] = pace.known
        run.group.attrs["pixelbounds"] = run.about


def _unfinished(run: Run, drawer: SamplerBackend, tell: Tell) -> list[tuple[int, int]]:
    """Blocks that are not finished, images start and stop of each."""
    done = run.done
    per_block = max(1, int(run.about["batch"]) // drawer.draws)
    if done.any():
        tell(f"{int(done.sum())} of {len(done)} images are finished; going on")
    cuts = ((start, min(start + per_block, len(done))) for start in range(0, len(done), per_block))
    return [(start, stop) for start, stop in cuts if not done[start:stop].all()]


def _check_repeats(run: Run, position: int, parts: Parts) -> None:
    """A finished image drawn again has the mean that it had: within a tenth of what another seed would change."""
    stored = np.asarray(run["mean"][position], np.float64)
    apart = np.sqrt(np.mean((fitted(parts["mean"], stored.shape, int(run.ids[position])) - stored) ** 2))
    spread = np.sqrt(np.mean(np.square(run["deviation"][position], dtype=np.float64)))
    chance = spread / np.sqrt(int(run.about["samples"]))
    if apart > 0.1 * chance + 1e-5 * np.abs(stored).max():
        raise ValueError(
            f"image {int(run.ids[position])} of {run.path} is finished, and the sampler now draws something else for "
            "it: it ignores its seed, or is not the sampler that began the run; make it repeat with its seed, or begin "
            "another run. What is finished is kept"
        )


class _Pace:
    """Seconds that an image takes on this device, without the first block, in which a network may be compiled."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._images = 0

    def add(self, images: int) -> None:
        """Take note of a block that was drawn now."""
        self._last = time.monotonic()
        if self._first is None:
            self._first = self._last
        else:
            self._images += images

    @property
    def known(self) -> float | None:
        """The pace, or None after one block."""
        return (self._last - self._first) / self._images if self._first is not None and self._images else None
