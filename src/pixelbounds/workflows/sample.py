"""Sample observations into a store.

Sampling goes block by block, and a block is a function of the run alone: `batch // draws` images in order, at least
one. A run that is resumed draws an unfinished block whole, as the uninterrupted one did, and keeps what was missing;
since a network's last bits may depend on what else is in its batch, that is what makes both runs equal bit for bit.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from ..diffusion.devices import best_device, check_device
from ..execution.progress import Progress, Tell, silent
from ..execution.runner import Execution, running
from ..formats.runs import Run, create_run, open_run, run_differences, write_image
from ..images.checks import check_limits
from ..images.measure import Measure
from ..storage.files import exclusive
from ..storage.version import VERSION
from .observations import Drawer, Observations, SampleOptions, check_sampling


def sample_to(
    network: str | os.PathLike[str],
    observations: Any,
    out: str | os.PathLike[str],
    options: SampleOptions = SampleOptions(),  # noqa: B008 - frozen
    *,
    ids: Any = None,
    images: range | None = None,
    measure: Measure | None = None,
    scheduler: Any = None,
    tell: Tell = lambda line: None,
    progress: Progress = silent,
) -> Run:
    """Sample observations (n, h, w) or (n, c, h, w) into the store `out`, going on where it stands.

    A network that is no score network gives its quantiles, and a regressor with dropout its mean and deviation over
    `samples` passes; options of the sampler are refused there. `images` chooses a range of the observations, all unless
    told; ids are the numbers that seed these images, their numbers among the observations unless told. `measure` says
    what the numbers stand for, and a calibration of the run's bands takes it from there. With a
    `scheduler` (a `distributed.Client` or an address) the workers of a Dask cluster draw, each with the network on its
    own device; network, observations and store must be files that all of them see.
    """
    from ..diffusion.checkpoint import load_network

    out = Path(out)
    device = "cpu" if scheduler is not None else check_device(options.device) or best_device()
    model, sde, meta = load_network(Path(network), device=device)
    kind = meta["kind"]
    extra = meta["extra"]
    check_sampling(network, kind, options, dropout=model.config.dropout > 0)
    limits, remedy = _limits(network, extra.get("limits"), options.limits)
    sigma_0 = options.sigma_0 if options.sigma_0 is not None else extra.get("sigma_0")
    if sigma_0 is None:
        raise ValueError(f"sigma_0 is not given, and {network} knows none; give the noise deviation, e.g. --sigma0 0.4")
    sigma_0 = sde.check_level(sigma_0)
    top = extra.get("sigma_top")
    if top is not None and sigma_0 > top:
        raise ValueError(f"sigma_0 is {sigma_0:g}, but {network} was trained up to {top:g}; train another one")
    observed = Observations(observations, limits, sigma_0, ids, images, meta["config"], remedy)
    drawer = Drawer(kind, model, sde, sigma_0, options)
    about = {
        "kind": kind,
        "network": hashlib.sha256(Path(network).read_bytes()).hexdigest(),
        "observations": observed.digest(),
        "images": len(observed),
        "shape": list(observed.pixels),
        "sigma_0": sigma_0,
        "sde": [sde.sigma_min, sde.sigma_max],
        "limits": list(limits),
        "measure": None if measure is None else measure.state(),
        "seed": options.seed,
        "compile": options.compile,
        **drawer.about(),
        "network_file": Path(network).name,  # folders may tell whose it is
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
                batch = drawer.automatic_batch(observed) if there is None else there.batch(execution, observed)
            with suppress(FileExistsError):  # another process made it meanwhile: the lock and its configuration decide
                create_run(out, {**about, "batch": batch}, observed.pixels, observed.ids, drawer.arrays)
        stack.enter_context(exclusive(out))
        run = open_run(out, mode="r+")
        wrong = run_differences(run.about, about)
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
            drawer.prepare()
            blocks = (_draw_block(out, observed, drawer, *cut) for cut in _unfinished(run, drawer, tell))
        else:
            blocks = there.draw(execution, out, observed, _unfinished(run, drawer, tell))
        done = int(run.done.sum())
        progress(done, len(observed))
        pace = _Pace()
        for drawn in blocks:
            done += drawn
            pace.add(drawn)
            progress(done, len(observed))
        if pace.known is not None and there is None:
            run.about["pace"] = pace.known
            run.group.attrs["pixelbounds"] = run.about
    return open_run(out)


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


def _limits(
    network: str | os.PathLike[str], known: Any, wanted: tuple[float, float] | None
) -> tuple[tuple[float, float], str]:
    """The network's limits, else those wanted, else 0 and 1; and what to do about observations far beyond them."""
    if known is None:
        return check_limits(wanted or (0.0, 1.0)), "rescale the observations, or give their limits (--limits)"
    if wanted is not None and check_limits(wanted) != check_limits(known):
        low, high = wanted
        least, most = known
        raise ValueError(
            f"limits are ({low:g}, {high:g}), but {network} was trained on images in ({least:g}, {most:g}); rescale "
            "the observations to those, sigma_0 in proportion, and leave --limits out"
        )
    return check_limits(known), "rescale the observations to these limits"


def _unfinished(run: Run, drawer: Drawer, tell: Tell) -> list[tuple[int, int]]:
    """Blocks that are not finished, images start and stop of each."""
    done = run.done
    per_block = max(1, int(run.about["batch"]) // drawer.draws)
    if done.any():
        tell(f"{int(done.sum())} of {len(done)} images are finished; going on")
    cuts = ((start, min(start + per_block, len(done))) for start in range(0, len(done), per_block))
    return [(start, stop) for start, stop in cuts if not done[start:stop].all()]


def _draw_block(out: Path, images: Observations, drawer: Drawer, start: int, stop: int) -> int:
    """Draw a block whole and write the images of it that are missing; how many those were."""
    run = open_run(out, mode="r+")
    done = run.finished(start, stop)
    y = images.rows(start, stop)
    for i, parts in enumerate(drawer.draw(y, images.ids[start:stop], int(run.about["batch"]))):
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

    def batch(self, execution: Execution, images: Observations) -> int:
        """As many images as suit a worker's device."""
        return next(execution.each(lambda: _drawer_of(self).automatic_batch(images), [()], 0, 1))

    def draw(self, execution: Execution, out: Path, images: Observations, cuts: list[tuple[int, int]]) -> Iterator[int]:
        """Images drawn, block by block; each block is a task of its own."""
        return execution.each(partial(_draw_there, self, out.absolute(), images), cuts, 0, 2**26)


_DRAWING = Lock()


def _draw_there(there: _Elsewhere, out: Path, images: Observations, start: int, stop: int) -> int:
    with _DRAWING:
        return _draw_block(out, images, _drawer_of(there), start, stop)


@lru_cache(maxsize=1)
def _drawer_of(there: _Elsewhere) -> Drawer:
    from ..diffusion.checkpoint import load_network

    path = Path(there.network)
    options = there.options
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != there.digest:
        raise ValueError(f"a worker sees no {path}, or another one; put the network where all of them see it")
    model, sde, meta = load_network(path, device=check_device(options.device) or best_device())
    drawer = Drawer(meta["kind"], model, sde, there.sigma_0, options)
    drawer.prepare()
    return drawer
