"""Train a network as a TOML file says."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..diffusion.devices import check_device
from ..execution import parse_memory
from ..execution.progress import Tell
from ..formats import Images, open_images
from ..formats.arrays import Arrays
from ..images import Array
from ..storage.files import replace_file
from ..storage.version import VERSION

if TYPE_CHECKING:
    from ..diffusion.sde import VESDE
    from .settings import Configuration


def train_from(configuration: Configuration, *, tell: Tell = lambda line: None, quiet: bool = False) -> Path:
    """Train as a configuration says, going on where its folder stands, and return the file of the network."""
    import torch

    from ..diffusion.batches import Chunks
    from ..diffusion.batches import Images as Pixels
    from ..diffusion.checkpoint import save_network
    from ..diffusion.regression import quantile_loss
    from ..diffusion.session import alone, processes, progress_bar
    from ..diffusion.trainer import check_shape, score_matching, train

    settings, training = configuration.settings, configuration.settings.training
    with _blamed(configuration, "training", "device"):
        device = check_device(training.device)
    with _blamed(configuration, "data", "path"):
        source = open_images(configuration.resolve(settings.data.path), key=settings.data.key)
        images = source.pixels if isinstance(source.pixels, np.ndarray) else Chunks(source.pixels, _memory())
        if images.ndim not in (3, 4):
            raise ValueError(f"images have shape {images.shape}; they must be (n, h, w) or (n, c, h, w)")
        if images.ndim == 4 and images.shape[3] <= 4 < min(images.shape[1:3]):
            wanted = f"channels belong on axis 1, (n, {images.shape[3]}, h, w): np.moveaxis(images, -1, 1) moves them"
            raise ValueError(f"images have shape {images.shape}; {wanted}")
    units = _units(configuration, source)
    learnt, unseen = split(units, settings.data.held_out, settings.data.seed)
    if not len(learnt):
        raise configuration.error(
            "data", "held_out", f"of {len(images)} images none is left to train on; hold out fewer"
        )
    torch.manual_seed(training.seed)
    tunes = training.kind == "conffusion"
    network, sde, limits, sigma_0, identity = _tuned(configuration) if tunes else _new(configuration, images.shape)
    group = processes(device)
    with _blamed(configuration, "data", "path"):
        data = Pixels(images, limits=limits, device=group.device, rows=learnt if len(unseen) else None)
        aside = Pixels(images, limits=limits, device=group.device, rows=unseen) if len(unseen) else None
        check_shape(network, data)
    folder, first = configuration.resolve(settings.output.folder), group.rank == 0
    path = folder / f"{training.kind}.safetensors"
    if first:
        _make(configuration, folder)
    with alone(folder) if first else nullcontext():
        if first:
            _keep_numbers(configuration, folder, unseen)
            count = sum(x.numel() for x in network.parameters())
            tell(f"{training.kind}: {count:,} parameters, {len(learnt)} images, {len(unseen)} held out, in {folder}")
        result = train(
            network,
            data,
            score_matching if training.kind == "score" else quantile_loss(training.miscoverage),
            sde=sde,
            settings=training.settings(),
            folder=folder,
            held_out=aside,
            progress=None if quiet or not first else progress_bar(steps=training.steps, seconds=training.seconds),
            device=device,
            identity=identity,
        )
        if first:
            extra: dict[str, Any] = {"limits": list(data.limits), "sigma_0": sigma_0, "sigma_top": training.sigma_top}
            extra |= {"miscoverage": training.miscoverage, "step": result.step, "version": VERSION, "last": result.last}
            save_network(path, result.network, sde, training.kind, extra)
    return path


def _memory() -> int:
    """Bytes of images in a zarr store that this process may keep: a quarter of RAM, shared under torchrun."""
    return parse_memory(None) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


# ---------------------------------------------------------------- what is trained

# network, process, limits, sigma_0, and what else tells the run from others
_Start = tuple[Any, "VESDE", tuple[float, float], float | None, dict[str, str]]


def _new(configuration: Configuration, shape: tuple[int, ...]) -> _Start:
    """A fresh network for images of this shape."""
    from ..diffusion.network import NCSNpp
    from ..diffusion.regression import regressor
    from ..diffusion.sde import VESDE

    settings, training = configuration.settings, configuration.settings.training
    channels, height, width = (1, *shape[1:]) if len(shape) == 3 else shape[1:]
    if height != width:
        raise configuration.error("data", "path", f"images are {height} x {width}; crop or pad them to squares")
    with _blamed(configuration, "network", "multipliers"):
        config = settings.network.config(channels, height)
    network = NCSNpp(config) if training.kind == "score" else regressor(config, data_deviation=training.data_deviation)
    sde = VESDE(settings.process.sigma_min, settings.process.sigma_max)
    return network, sde, (settings.data.limits[0], settings.data.limits[1]), settings.process.sigma_0, {}


def _tuned(configuration: Configuration) -> _Start:
    """N-Conffusion, with the network, the noise levels and the limits of its score network's file."""
    from ..diffusion.checkpoint import load_network
    from ..diffusion.regression import conffusion
    from .settings import check_levels

    settings, training = configuration.settings, configuration.settings.training
    if "network" in settings.model_fields_set:
        wrong = "[network] is given, but conffusion has the network named in from; remove the section"
        raise configuration.error("network", None, wrong)
    with _blamed(configuration, "training", "from"):
        path = configuration.resolve(training.start or "")
        score, sde, meta = load_network(path, kind="score")
        network, digest = conffusion(score), hashlib.sha256(path.read_bytes()).hexdigest()
    known = {"sigma_min": sde.sigma_min, "sigma_max": sde.sigma_max, **meta["extra"]}

    def agreed(section: str, name: str) -> Any:
        """What the file of the score network says, else the configuration; where both do, they must say the same."""
        own = getattr(settings, section)
        here, there = getattr(own, name), known.get(name)
        if name in own.model_fields_set and there is not None and here != there:
            wrong = f"{name} is {here}, that of the score network {there}; use the same, or leave it out"
            raise configuration.error(section, name, wrong)
        return here if there is None else there

    for name in ("sigma_min", "sigma_max"):
        agreed("process", name)
    low, high = agreed("data", "limits")
    sigma_0 = agreed("process", "sigma_0")
    with _blamed(configuration, "process", "sigma_0"):
        check_levels(sde, sigma_0, None)
    with _blamed(configuration, "training", "sigma_top"):
        check_levels(sde, sigma_0, training.sigma_top)
    return network, sde, (low, high), sigma_0, {"from": digest}


# ---------------------------------------------------------------- what is kept


def _make(configuration: Configuration, folder: Path) -> None:
    """The folder of the run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wrong = f"{folder} is no folder and cannot be made one ({error.strerror}); name another"
        raise configuration.error("output", "folder", wrong) from error


def _keep_numbers(configuration: Configuration, folder: Path, unseen: Array) -> None:
    """Write the numbers of the held-out images, unless a run has begun that holds out others."""
    from ..diffusion.checkpoint import state_files

    path, content = folder / "held_out.npy", BytesIO()
    begun = path.exists() and any(state.exists() for state in state_files(folder))
    if begun and not np.array_equal(Arrays(path)[""], unseen):
        wrong = f"the run in {folder} holds out other images; use the same, or another folder to start anew"
        raise configuration.error("data", "held_out", wrong)
    np.save(content, unseen)
    replace_file(path, content.getvalue())


def split(units: Array, share: float, seed: int) -> tuple[Array, Array]:
    """Numbers of the images to train on and of those held out, ascending; units (n,) stay whole."""
    names = np.unique(units)
    count = round(share * len(names)) or int(share > 0)
    kept = np.random.default_rng(seed).permutation(names)[:count]
    aside = np.isin(units, kept)
    return np.flatnonzero(~aside), np.flatnonzero(aside)


def _units(configuration: Configuration, images: Images) -> Array:
    """The units that the configuration names, else those that the files tell, else every image is one."""
    data, n = configuration.settings.data, len(images)
    if data.units is None:
        return np.arange(n) if images.units is None else images.units
    path = configuration.resolve(data.path)
    try:
        if path.suffix == ".npz" and not data.units.endswith(".npy"):
            units = Arrays(path)[data.units]
        else:
            units = Arrays(configuration.resolve(data.units))[""]
    except (OSError, KeyError, ValueError) as error:
        raise configuration.error(
            "data", "units", f"{data.units!r} cannot be read: {error}; give a key or file"
        ) from error
    if units.shape != (n,):
        raise configuration.error(
            "data", "units", f"units have shape {units.shape}; give one number for each of {n} images"
        )
    return np.asarray(units)


@contextmanager
def _blamed(configuration: Configuration, section: str, key: str) -> Iterator[None]:
    """Errors inside are about this field."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise configuration.error(section, key, str(error)) from error
