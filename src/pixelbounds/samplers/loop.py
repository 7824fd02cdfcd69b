"""The one loop that fills a run: block by block; an interrupted run resumes.

A block is a function of the run alone: `batch // draws` images in order, at least one. A run that is resumed draws an
unfinished block whole, as the uninterrupted one did, and keeps what was missing; since a network's last bits may depend
on what else is in its batch, that is what makes both runs equal bit for bit. A sampler of a user's own may ignore its
seed: before such a run resumes, a finished image is drawn again, and what differs is an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..execution.runner import Progress, Tell, silent
from ..images.library import Array, to_numpy
from ..images.measure import Measure
from ..storage.store import Store, attributes_of, part_of, reopen, request_differences
from ..storage.version import VERSION
from .observations import Observations
from .runs import Run, open_run, run_request, run_under_way, write_image

Parts = dict[str, Array]  # what is kept of an image, by name


def kept_arrays(held_out: int, samples: int) -> dict[str, tuple[int, ...]]:
    """What is kept of samples of an image, and the axes of each array before its pixels."""
    drawn = dict.fromkeys(("lower", "upper", "naive_lower", "naive_upper", "mean", "deviation"), ())
    return drawn | {name: (count,) for name, count in (("held_out", held_out), ("samples", samples)) if count}


class SamplerBackend(Protocol):
    """What draws: a network with its options, or a function."""

    keeps_seed: bool  # whether a draw depends on seed and numbers alone, for certain
    arrays: dict[str, tuple[int, ...]]  # what is kept of an image, and the axes of each array before its pixels
    counted: int  # draws of an image, which count towards a batch and in progress
    pixels: tuple[int, ...]  # shape of an image; (): the first draw tells

    def automatic_batch(self, images: Any) -> int:
        """As many images as suit the device."""

    def draw(self, y: Any, ids: Array, batch: int, within: Progress = silent) -> Iterator[Parts]:
        """What is kept of each image of a block; `within` is given the draws of it that are done, and their total."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the pixels of a run are (`measure`) and whose (`patients_digest`), for a calibration; and how it is filled.

    `batch` images at a time (None: as suits), `repair`: damaged images are drawn again.
    """

    measure: Measure | None = None
    patients: str | None = None
    batch: int | None = None
    repair: bool = False
    tell: Tell = lambda line: None
    progress: Progress = silent


# ---------------------------------------------------------------- blocks


def _cuts(positions: range, backend: SamplerBackend, batch: int) -> list[tuple[int, int]]:
    """Images in blocks, each of which fills a batch."""
    step = max(1, batch // backend.counted)
    return [(start, min(start + step, positions.stop)) for start in range(positions.start, positions.stop, step)]


def draw_images(
    backend: SamplerBackend, images: Observations, positions: range, batch: int | None = None,
    within: Progress = silent,
) -> Iterator[Parts]:  # fmt: skip
    """What is drawn for some images, as many at a time as make a batch, by default one."""
    batch = batch or backend.counted
    for start, stop in _cuts(positions, backend, batch):
        yield from backend.draw(images.rows(start, stop), images.ids[start:stop], batch, within)


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
    out: Path, about: Mapping[str, Any], images: Observations, backend: SamplerBackend, options: RunOptions
) -> Run:
    """Draw what is missing of the run `out`, which grows as NAME.part; `about` is what of the backend bears on it."""
    measure = None if options.measure is None else options.measure.state()
    about = {**about, "observations": images.digest(), "images": len(images), "measure": measure}
    about |= {"patients": options.patients, "version": VERSION}
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
        pixels, batch, first = backend.pixels or earlier.get("shape"), options.batch or earlier.get("batch"), None
        if pixels is None:  # only a draw tells the shape of an image
            first = next(draw_images(backend, images, range(1)))
            pixels = first["lower"].shape
        if batch is None:
            batch = int(backend.automatic_batch(images))
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
            _check_repeats(store, int(np.argmax(done)), images, backend, int(about["samples"]))
        pace = _draw_rest(store, done, images, batch, backend, options.progress)
        stored = attributes_of(Path(store.path))["pixelbounds"] | {"batch": batch}
        store.update(pixelbounds=stored | ({} if pace is None else {"pace": pace}))
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
    store: Store, done: Array, images: Observations, batch: int, backend: SamplerBackend, progress: Progress
) -> float | None:
    """Draw the blocks that are not finished, each whole, and write the images of it that are missing.

    Returns the seconds that an image took, without the first block, which may compile.
    """
    each = backend.counted  # an image may take minutes: samples are counted
    count, total = int(done.sum()), each * len(images)

    def within(drawn: int, of: int) -> None:
        progress(min(each * count + drawn, total - 1), total)

    progress(each * count, total)
    began, timed, seconds = None, 0, 0.0
    for start, stop in _cuts(range(len(done)), backend, batch):
        missing = ~done[start:stop]
        if not missing.any():
            continue
        y = images.rows(start, stop)
        for i, parts in enumerate(backend.draw(y, images.ids[start:stop], batch, within)):
            if missing[i]:
                _keep(store, start + i, parts, y[i], int(images.ids[start + i]))
        count += int(missing.sum())
        progress(each * count, total)
        if began is None:
            began = time.monotonic()
        else:
            timed, seconds = timed + int(missing.sum()), time.monotonic() - began
    return seconds / timed if timed else None


def _check_repeats(store: Store, position: int, images: Observations, backend: SamplerBackend, samples: int) -> None:
    """A finished image drawn again has the mean that it had: within a tenth of what another seed would change."""
    parts = next(draw_images(backend, images, range(position, position + 1)))
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
