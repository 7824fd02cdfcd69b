"""Train a network as a TOML file says; `settings.py` declares what such a file holds."""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..execution.runner import Tell, parse_memory
from ..formats.arrays import Arrays, FilePath
from ..formats.opener import open_images
from ..formats.scans import USUAL, Images
from ..images.library import Array, size_of
from ..report.style import new_figure
from ..storage.chunks import rows_at
from ..storage.files import replace_file
from ..storage.toml import TomlFile, read_toml
from ..storage.version import VERSION

if TYPE_CHECKING:
    from ..diffusion.batches import Loss, Pixels
    from ..diffusion.sde import VESDE
    from ..diffusion.session import Progress
    from ..diffusion.trainer import Trained
    from .settings import TrainSettings

    TrainFile = TomlFile[TrainSettings]

_ENDED = {"patience": "no gain on the validation images", "steps": "all steps done", "seconds": "time is over"}


def train_from(
    config: FilePath, *, tell: Tell = lambda line: None, progress: Progress | None = None, rehearsal: bool = False
) -> Path:
    """Train as a TOML file says, resume the run of its folder, and return the file of the network.

    `progress` is called about once a second (`diffusion.session.Log`). A network no better than a denoiser which
    learned nothing is an error; a longer run resumes from its state. A `rehearsal` need not learn.
    """
    import torch

    from ..diffusion.checkpoint import check_device
    from ..diffusion.session import alone
    from ..diffusion.trainer import train
    from .settings import TrainSettings

    file = read_toml(config, TrainSettings)
    settings, training = file.content, file.content.training
    with file.errors_at("training", "device"):
        device = check_device(training.device)
    images, source = _opened(file, settings.data.path, "path", settings.data.key)
    parts = _parts(file, _units(file, source))
    torch.manual_seed(training.seed)
    start = _tuned(file) if training.kind == "conffusion" else _new(file, images.shape)
    network, sde, _, _, identity = start
    data, unseen = _pixels(file, images, parts, start, device)
    folder = file.resolve(settings.output.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wrong = f"{folder} is no folder and cannot be made one ({error.strerror}); name another"
        raise file.error(wrong, "output", "folder") from error
    with alone(folder):
        for part in ("held_out", "validation"):
            _keep_numbers(file, folder, part, parts[part])
        counts = f"{len(data)} images, {0 if unseen is None else len(unseen)} to choose when to stop"
        size = f"{sum(x.numel() for x in network.parameters()):,} parameters"
        tell(f"{training.kind}: {size}, {counts}, {len(parts['held_out'])} held out, in {folder}")
        try:
            trained = train(
                network, data, _loss(file, data), sde=sde, settings=training.settings(), folder=folder,
                validation=unseen, progress=progress, device=device, identity=identity, held=True,
            )  # fmt: skip
        finally:
            draw_curves(folder)
        if training.kind != "conffusion" and not rehearsal:  # conffusion begins with a network that passed
            with file.errors_at("training", "seconds" if training.steps is None else "steps"):
                trained.check()
        path = folder / f"{training.kind}.safetensors"
        _save(file, path, trained, start, data.limits)
        kept = f"the network of step {trained.best} is kept, loss {trained.loss:.4g}"
        tell(f"ended at step {trained.step} ({_ENDED[trained.ended]}); {kept}, {trained.trivial:.4g} without learning")
    return path


def _opened(file: TrainFile, path: str, name: str, key: str | None) -> tuple[Any, Images]:
    """Pixels (n, h, w) or (n, c, h, w), in memory, mapped or in chunks, and what was read with them."""
    with file.errors_at("data", name):
        window = file.content.data.window
        source = open_images(file.resolve(path), key=key, window=USUAL if window is None else (window[0], window[1]))
        images = source.pixels
        if not isinstance(images, np.ndarray) and size_of(images) <= parse_memory(None):
            images = rows_at(images, 0, len(source))
        if images.ndim not in (3, 4):
            raise ValueError(f"images have shape {images.shape}; they must be (n, h, w) or (n, c, h, w)")
        if images.ndim == 4 and images.shape[3] <= 4 < min(images.shape[1:3]):
            wanted = f"channels belong on axis 1, (n, {images.shape[3]}, h, w): np.moveaxis(images, -1, 1) moves them"
            raise ValueError(f"images have shape {images.shape}; {wanted}")
    return images, source


def _parts(file: TrainFile, units: Array) -> dict[str, Array]:
    data = file.content.data
    share = 0.0 if isinstance(data.validation, str) else data.validation
    parts = training_parts(units, data.held_out, data.seed, validation=share)
    if not len(parts["train"]):
        count = f"{len(units)} images of {len(np.unique(units))} units"
        key, remedy = ("held_out", "hold out fewer") if data.held_out else ("validation", "set validation = 0.0")
        raise file.error(f"of {count} none is left to train on; {remedy}", "data", key)
    return parts


def _pixels(
    file: TrainFile, images: Any, parts: dict[str, Array], start: _Start, device: Any
) -> tuple[Pixels, Pixels | None]:
    from ..diffusion.batches import Pixels
    from ..diffusion.trainer import check_shape

    network, limits, validation = start[0], start[2], file.content.data.validation
    whole = len(parts["train"]) == len(images)
    with file.errors_at("data", "path"):
        data = Pixels(images, limits=limits, device=device, rows=None if whole else parts["train"])
        check_shape(network, data, file.content.training.crop)
        unseen = None
        if len(parts["validation"]):
            unseen = Pixels(images, limits=limits, device=device, rows=parts["validation"])
    if isinstance(validation, str):
        others, _ = _opened(file, validation, "validation", file.content.data.key)
        with file.errors_at("data", "validation"):
            unseen = Pixels(others, limits=limits, device=device)
            check_shape(network, unseen, file.content.training.crop)
    return data, unseen


# network, process, limits, sigma_0, and what else tells the run from others
_Start = tuple[Any, "VESDE", tuple[float, float], float | None, dict[str, str]]


def _new(file: TrainFile, shape: tuple[int, ...]) -> _Start:
    from ..diffusion.lean import network_of
    from ..diffusion.regression import regressor
    from ..diffusion.sde import VESDE

    settings, training = file.content, file.content.training
    channels, height, width = (1, *shape[1:]) if len(shape) == 3 else shape[1:]
    size = training.crop or height
    if height != width and training.crop is None:
        raise file.error(
            f"images are {height} x {width}; crop or pad them to squares, or train on crops", "data", "path"
        )
    with file.errors_at("network", "multipliers"):
        config = settings.network.config(channels, size)
    score = training.kind == "score"
    network = network_of(config) if score else regressor(config, data_deviation=training.data_deviation)
    sde = VESDE(settings.process.sigma_min, settings.process.sigma_max)
    return network, sde, (settings.data.limits[0], settings.data.limits[1]), settings.process.sigma_0, {}


def _tuned(file: TrainFile) -> _Start:
    """N-Conffusion, with the network, the noise levels and the limits of its score network's file."""
    from ..diffusion.checkpoint import load_network
    from ..diffusion.regression import n_conffusion
    from .settings import check_levels

    settings, training = file.content, file.content.training
    if "network" in settings.model_fields_set:
        wrong = "[network] is given, but conffusion has the network named in from; remove the section"
        raise file.error(wrong, "network")
    with file.errors_at("training", "from"):
        path = file.resolve(training.start or "")
        score, sde, meta = load_network(path, kind="score")
        network, digest = n_conffusion(score), hashlib.sha256(path.read_bytes()).hexdigest()
    trained_with = {"sigma_min": sde.sigma_min, "sigma_max": sde.sigma_max, **meta["extra"]}

    def agreed(section: str, name: str) -> Any:
        """What the file of the score network says, else the configuration; where both do, they must say the same."""
        table = getattr(settings, section)
        here, there = getattr(table, name), trained_with.get(name)
        if name in table.model_fields_set and there is not None and here != there:
            wrong = f"{name} is {here}, that of the score network {there}; use the same, or leave it out"
            raise file.error(wrong, section, name)
        return here if there is None else there

    for name in ("sigma_min", "sigma_max"):
        agreed("process", name)
    low, high = agreed("data", "limits")
    sigma_0 = agreed("process", "sigma_0")
    with file.errors_at("process", "sigma_0"):
        check_levels(sde, sigma_0, None)
    with file.errors_at("training", "sigma_top"):
        check_levels(sde, sigma_0, training.sigma_top)
    return network, sde, (low, high), sigma_0, {"from": digest}


def _loss(file: TrainFile, images: Pixels) -> Loss:
    from ..diffusion.regression import quantile_loss
    from ..diffusion.trainer import score_matching, weighted_matching

    training = file.content.training
    if training.kind != "score":
        return quantile_loss(training.miscoverage)
    if training.weighting == "paper":
        return score_matching
    some = images.take(np.unique(np.linspace(0, len(images) - 1, 512).astype(np.int64)))
    deviation = float(some.double().std())
    if not deviation > 0:
        raise file.error('all pixels are equal; set weighting = "paper"', "training", "weighting")
    return weighted_matching(deviation)


def _save(file: TrainFile, path: Path, trained: Trained, start: _Start, limits: tuple[float, float]) -> None:
    from ..diffusion.checkpoint import save_network

    training, sde, sigma_0 = file.content.training, start[1], start[3]
    extra: dict[str, Any] = {"limits": list(limits), "sigma_0": sigma_0, "sigma_top": training.sigma_top}
    extra |= {"miscoverage": training.miscoverage, "step": trained.step, "version": VERSION, "last": trained.last}
    extra |= {"best": trained.best, "loss": trained.loss, "trivial_loss": trained.trivial}
    save_network(path, trained.network, sde, training.kind, extra)


def _keep_numbers(file: TrainFile, folder: Path, part: str, numbers: Array) -> None:
    from ..diffusion.checkpoint import state_files

    path, content = folder / f"{part}.npy", BytesIO()
    begun = path.exists() and any(state.exists() for state in state_files(folder))
    if begun and not np.array_equal(Arrays(path)[""], numbers):
        words = {"held_out": "holds out other images", "validation": "has other validation images"}[part]
        wrong = f"the run in {folder} {words}; use the same, or another folder to start again"
        raise file.error(wrong, "data", part)
    np.save(content, numbers)
    replace_file(path, content.getvalue())


def training_parts(units: Array, held_out: float, seed: int, *, validation: float = 0.0) -> dict[str, Array]:
    """Numbers of the images of each part, ascending; units (n,) stay whole, `validation` is a share of the others.

    >>> parts = training_parts(np.repeat(np.arange(10), 2), 0.4, 0, validation=0.2)
    >>> {name: len(numbers) for name, numbers in parts.items()}
    {'train': 10, 'validation': 2, 'held_out': 8}
    """
    shuffled = np.random.default_rng(seed).permutation(np.unique(units))
    count = len(shuffled)
    out = round(held_out * count) or int(held_out > 0)
    looked = round(validation * (count - out)) or int(validation > 0)
    chosen = {"train": shuffled[out + looked :], "validation": shuffled[out : out + looked], "held_out": shuffled[:out]}
    return {part: np.flatnonzero(np.isin(units, names)) for part, names in chosen.items()}


def _units(file: TrainFile, images: Images) -> Array:
    """The units that the configuration names, else those that the files tell, else every image is one."""
    data, n = file.content.data, len(images)
    if data.units is None:
        return np.arange(n) if images.units is None else images.units
    path = file.resolve(data.path)
    inside = path.suffix == ".npz" and not data.units.endswith(".npy")
    with file.errors_at("data", "units"):
        units = np.asarray(Arrays(path)[data.units] if inside else Arrays(file.resolve(data.units))[""])
        if units.shape != (n,):
            raise ValueError(f"units have shape {units.shape}; give one number for each of {n} images")
    return units


def draw_curves(folder: Path) -> Path | None:
    """Draw the losses of `log.jsonl` over the steps into `curves.png`; None where there is nothing to draw yet."""
    from ..diffusion.session import read_log

    if not (folder / "log.jsonl").exists():
        return None
    log = read_log(folder)
    if len(log.get("step", ())) < 2:
        return None
    figure, axes = new_figure(7, 4)
    axes.plot(log["step"], log["loss"], color="0.6", label="training images")
    if "validation" in log:
        seen = np.isfinite(log["validation"])
        steps, losses = log["step"][seen], log["validation"][seen]
        best = int(np.argmin(losses))
        axes.plot(steps, losses, color="tab:blue", marker=".", label="validation images, averaged network")
        axes.axvline(steps[best], color="tab:blue", linestyle=":")
        axes.annotate(f"kept: {losses[best]:.4g} at step {steps[best]:.0f}", (steps[best], losses[best]), (4, 12),
                      textcoords="offset points")  # fmt: skip
    axes.set(xlabel="step", ylabel="loss", yscale="log")
    axes.legend()
    path = folder / "curves.png"
    figure.savefig(path, dpi=100)
    return path
