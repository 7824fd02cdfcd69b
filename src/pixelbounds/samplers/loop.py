"""The one loop that fills a run: block by block, by this process or on a cluster; an interrupted run resumes.

A block is a function of the run alone: `batch // draws` images in order, at least one. A run that is resumed draws an
unfinished block whole, as the uninterrupted one did, and keeps what was missing; since a network's last bits may depend
on what else is in its batch, that is what makes both runs equal bit for bit. A sampler of a user's own may ignore its
seed: before such a run resumes, a finished image is drawn again, and what differs is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np

from ..execution.runner import Execution, Progress, Tell, running, silent
from ..images.library import Array, to_numpy
from ..storage.store import MARKS, Store, attributes_of, part_of, read_marks, reopen, request_differences
from .observations import Observations
from .runs import Run, open_run, run_request, run_under_way, write_image

Parts = dict[str, Array]  # what is kept of an image, by name


def kept_arrays(held_out: int, samples: int) -> dict[str, tuple[int, ...]]:
    """What is kept of samples of an image, and the axes of each array before its pixels."""
    drawn = dict.fromkeys(("lower", "upper", "naive_lower", "naive_upper", "mean", "deviation"), ())
    return drawn | {name: (count,) for name, count in (("held_out", held_out), ("samples", samples)) if count}


class SamplerBackend(Protocol):
    """What draws, here or on a worker that it is sent to: a network with its options, or a function."""

    keeps_seed: bool  # whether a draw depends on seed and numbers alone, for certain

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """What is kept of an image, and the axes of each array before its pixels."""

    @property
    def counted(self) -> int:
        """Draws of an image, which count towards a batch and in progress."""

    @property
    def pixels(self) -> tuple[int, ...] | None:
        """Shape of an image; None: the first draw tells."""

    def automatic_batch(self, images: Any) -> int:
        """As many images as suit the device."""

    def draw(self, y: Any, ids: Array, batch: int, within: Progress = silent) -> Iterator[Parts]:
        """What is kept of each image of a block; `within` is given the draws of it that are done, and their total."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is filled: images in a batch (None: as suits), draw damaged images again, on which cluster."""

    batch: int | None = None
    repair: bool = False
    scheduler: Any = None
    tell: Tell = lambda line: None
    progress: Progress = silent


# ---------------------------------------------------------------- where blocks are drawn


class Place:
    """Where jobs `job(backend, *arguments, within)` run: in this process, or on workers."""

    def __init__(self, stack: ExitStack, backend: SamplerBackend, scheduler: Any) -> None:
        self._backend = backend
        self._execution: Execution | None = None if scheduler is None else stack.enter_context(running(scheduler))

    def map(self, job: Callable[..., Any], jobs: Sequence[tuple[int, ...]], within: Progress = silent) -> Iterator[Any]:
        """Results in order; what goes on within a job of a worker is not reported."""
        if self._execution is not None:
            yield from self._execution.each(partial(_on_worker, self._backend, job), jobs, 0, 2**26)
            return
        for arguments in jobs:
            yield job(self._backend, *arguments, within=within)

    def batch(self, images: Observations) -> int:
        """As many images as suit the device."""
        if self._execution is None:
            return int(self._backend.automatic_batch(images))
        return int(next(self.map(lambda backend: backend.automatic_batch(images), [()])))

    def draw(
        self, images: Observations, positions: range, batch: int | None = None, within: Progress = silent
    ) -> Iterator[Parts]:
        """What is drawn for some images, as many at a time as make a batch, by default one."""
        jobs = _cuts(positions, self._backend, batch or self._backend.counted)
        return chain.from_iterable(self.map(partial(_drawn, images, batch), jobs, within))


_DRAWING = Lock()


def _on_worker(backend: SamplerBackend, job: Callable[..., Any], *arguments: int) -> Any:
    with _DRAWING:
        return job(backend, *arguments)


def _cuts(positions: range, backend: SamplerBackend, batch: int) -> list[tuple[int, int]]:
    """Images in blocks, each of which fills a batch."""
    step = max(1, batch // backend.counted)
    return [(start, min(start + step, positions.stop)) for start in range(positions.start, positions.stop, step)]


def _drawn(
    images: Observations, batch: int | None, backend: SamplerBackend, start: int, stop: int, within: Progress = silent
) -> list[Parts]:
    return list(backend.draw(images.rows(start, stop), images.ids[start:stop], batch or backend.counted, within))


def _block(
    images: Observations,
    store: Store,
    batch: int,
    backend: SamplerBackend,
    start: int,
    stop: int,
    within: Progress = silent,
) -> int:
    """Draw a block whole and write the images of it that are missing; how many those were."""
    missing = read_marks(store.array(MARKS), start, stop) == 0
    y = images.rows(start, stop)
    for i, parts in enumerate(backend.draw(y, images.ids[start:stop], batch, within)):
        if missing[i]:
            _keep(store, start + i, parts, y[i], int(images.ids[start + i]))
    return int(missing.sum())


def _keep(store: Store, position: int, parts: Mapping[str, Array], y: Any, number: int) -> None:
    """Write what was drawn of an image, with its observation."""
    shaped = {name: fitted(x, store.array(name).shape[1:], number) for name, x in parts.items()}
    observation = to_numpy(y).reshape(store.array("observation").shape[1:])
    write_image(store, position, {**shaped, "observation": observation}, number)


def fitted(x: Array, wanted: tuple[int, ...], number: int) -> Array:
    """What was drawn of an image in the shape of all images; a channel axis of length 1 may come or go."""
    if [size for size in x.shape if size != 1] != [size for size in wanted if size != 1]:
        raise ValueError(
            f"samples of image {number} give {x.shape} where the first image gave {tuple(wanted)}; a sampler must "
            "give images of one shape"
        )
    return x.reshape(wanted)


# ---------------------------------------------------------------- filling


def fill_run(
    out: Path,
    about: Mapping[str, Any],
    images: Observations,
    backend: SamplerBackend,
    options: RunOptions,
) -> Run:
    """Draw what is missing of the run `out`, which grows as NAME.part; `about` is all that bears on it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists():
        run = open_run(out)
        stored = run.group.attrs.get("request") or {}
        differences = request_differences(stored, {"shape": stored.get("shape"), **run_request(about)})
        if differences:
            raise ValueError(f"{out} is another run: {'; '.join(differences)}; use the same, or another --out")
        damaged = next(run.damaged(), None)
        if damaged and not options.repair:
            run.check()
        if run.done.all() and not damaged:
            return run
        reopen(out)
    earlier = attributes_of(part_of(out)).get("pixelbounds") or {}
    with ExitStack() as stack:
        place = Place(stack, backend, options.scheduler)
        pixels, batch, first = backend.pixels or earlier.get("shape"), options.batch or earlier.get("batch"), None
        if pixels is None:  # only a draw tells the shape of an image
            first = next(place.draw(images, range(1)))
            pixels = first["lower"].shape
        if batch is None:
            batch = place.batch(images)
        described = {**about, "shape": list(pixels), "batch": batch}
        observed = images.shape, images.dtype
        store = stack.enter_context(run_under_way(out, described, tuple(pixels), images.ids, backend.arrays, observed))
        if batch != earlier.get("batch", batch):
            options.tell(f"batch was {earlier['batch']} and is {batch} now: last bits of the rest may differ")
        done = _finished(store, images, options.tell)
        if first is not None and not done[0]:
            _keep(store, 0, first, images.rows(0, 1)[0], int(images.ids[0]))
            done[0] = True
        elif done.any() and not done.all() and not backend.keeps_seed:
            _check_repeats(store, int(np.argmax(done)), images, place, int(about["samples"]))
        pace = _draw_rest(store, done, images, batch, backend, place, options)
        stored = attributes_of(Path(store.path))["pixelbounds"] | {"batch": batch}
        timed = pace is not None and options.scheduler is None
        store.update(pixelbounds=stored | ({"pace": pace} if timed else {}))
    return open_run(out)


def _finished(store: Store, images: Observations, tell: Tell) -> Array:
    """Which images are finished and whole, (n,) bool."""
    marked = store.marks() != 0
    done = np.ones(len(marked), bool)
    done[store.unfinished()] = False
    for image in np.flatnonzero(marked & ~done):
        tell(f"image {int(images.ids[image])} is damaged and will be drawn again")
    if done.any():
        tell(f"{int(done.sum())} of {len(done)} images are finished; the run resumes")
    return done


def _draw_rest(
    store: Store,
    done: Array,
    images: Observations,
    batch: int,
    backend: SamplerBackend,
    place: Place,
    options: RunOptions,
) -> float | None:
    """Draw the blocks that are not finished; seconds that an image took, without the first block, which may compile."""
    blocks = _cuts(range(len(done)), backend, batch)
    cuts = [(start, stop) for start, stop in blocks if not done[start:stop].all()]
    count = int(done.sum())
    each = backend.counted  # an image may take minutes: samples are counted
    total = each * len(images)

    def within(drawn: int, of: int) -> None:
        options.progress(min(each * count + drawn, total - 1), total)

    options.progress(each * count, total)
    began, timed, seconds = None, 0, 0.0
    for drawn in place.map(partial(_block, images, store, batch), cuts, within):
        count += drawn
        options.progress(each * count, total)
        if began is None:
            began = time.monotonic()
        else:
            timed += drawn
            seconds = time.monotonic() - began
    return seconds / timed if timed else None


def _check_repeats(store: Store, position: int, images: Observations, place: Place, samples: int) -> None:
    """A finished image drawn again has the mean that it had: within a tenth of what another seed would change."""
    parts = next(place.draw(images, range(position, position + 1)))
    number = int(images.ids[position])
    stored = np.asarray(store.array("mean")[position], np.float64)
    apart = np.sqrt(np.mean((fitted(parts["mean"], stored.shape, number) - stored) ** 2))
    spread = np.sqrt(np.mean(np.square(store.array("deviation")[position], dtype=np.float64)))
    if apart > 0.1 * spread / np.sqrt(samples) + 1e-5 * np.abs(stored).max():
        raise ValueError(
            f"image {number} of {store.path} is finished, and the sampler now draws something else for it: it ignores "
            "its seed, or is not the sampler that began the run; make it repeat with its seed, or begin another run. "
            "What is finished is kept"
        )
