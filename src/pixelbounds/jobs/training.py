"""Train a network as a TOML file says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array
from ..data import Images, open_images
from ..version import VERSION
from .devices import check_device

if TYPE_CHECKING:
    from ..settings import Configuration

Tell = Callable[[str], None]  # called with a line for the user


def train_from(configuration: Configuration, *, tell: Tell = lambda line: None, quiet: bool = False) -> Path:
    """Train as a configuration says, going on where its folder stands, and return the file of the network."""
    import torch

    from ..diffusion.checkpoint import load_network, save_network
    from ..diffusion.network import NCSNpp
    from ..diffusion.regression import conffusion, quantile_loss, regressor
    from ..diffusion.runs import progress_bar
    from ..diffusion.sde import VESDE
    from ..diffusion.training import score_matching, train

    settings, training = configuration.settings, configuration.settings.training
    device = check_device(training.device)
    with _blamed(configuration, "data", "path"):
        source = open_images(configuration.resolve(settings.data.path), key=settings.data.key)
        images = source.pixels if isinstance(source.pixels, np.ndarray) else source.pixels[...]
        if images.ndim not in (3, 4):
            raise ValueError(f"images have shape {images.shape}; they must be (n, h, w) or (n, c, h, w)")
    units = _units(configuration, source)
    learnt, unseen = split(units, settings.data.held_out, settings.data.seed)
    if not len(learnt):
        raise configuration.error(
            "data", "held_out", f"of {len(images)} images none is left to train on; hold out fewer"
        )
    channels, height, width = (1, *images.shape[1:]) if images.ndim == 3 else images.shape[1:]
    if height != width:
        raise configuration.error("data", "path", f"images are {height} x {width}; crop or pad them to squares")
    torch.manual_seed(training.seed)
    sde = VESDE(settings.process.sigma_min, settings.process.sigma_max)
    network: Any
    if training.kind == "conffusion":
        with _blamed(configuration, "training", "from"):
            score, sde, _ = load_network(configuration.resolve(training.start or ""), kind="score")
            network = conffusion(score)
        for name in settings.process.model_fields_set & {"sigma_min", "sigma_max"}:
            here, there = getattr(settings.process, name), getattr(sde, name)
            if here != there:
                wrong = f"{name} is {here:g}, that of the score network {there:g}; use the same, or leave it out"
                raise configuration.error("process", name, wrong)
    else:
        with _blamed(configuration, "network", "multipliers"):
            config = settings.network.config(channels, height)
        network = (
            NCSNpp(config) if training.kind == "score" else regressor(config, data_deviation=training.data_deviation)
        )
    loss = score_matching if training.kind == "score" else quantile_loss(training.miscoverage)
    folder = configuration.resolve(settings.output.folder)
    first = int(os.environ.get("RANK", "0")) == 0
    if first:
        folder.mkdir(parents=True, exist_ok=True)
        count = sum(x.numel() for x in network.parameters())
        tell(f"{training.kind}: {count:,} parameters, {len(learnt)} images, {len(unseen)} held out, in {folder}")
    result = train(
        network,
        images[learnt] if len(unseen) else images,
        loss,
        sde=sde,
        settings=training.settings(),
        limits=(settings.data.limits[0], settings.data.limits[1]),
        folder=folder,
        held_out=images[unseen] if len(unseen) else None,
        progress=None if quiet or not first else progress_bar(steps=training.steps, seconds=training.seconds),
        device=device,
    )
    path = folder / f"{training.kind}.safetensors"
    if first:
        extra: dict[str, Any] = {
            "limits": settings.data.limits,
            "sigma_0": settings.process.sigma_0,
            "sigma_top": training.sigma_top,
        }
        extra |= {"miscoverage": training.miscoverage, "step": result.step, "version": VERSION, "last": result.last}
        save_network(path, result.network, sde, training.kind, extra)
        np.save(folder / "held_out.npy", unseen)
    return path


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
            with np.load(path, allow_pickle=False) as file:
                units = file[data.units]
        else:
            units = np.load(configuration.resolve(data.units), allow_pickle=False)
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
