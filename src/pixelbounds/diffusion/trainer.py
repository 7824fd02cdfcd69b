"""One training loop for the score network and for every regressor.

Denoising score matching fits s(x(t), sigma(t)) to the score of the transition kernel N(x, sigma(t)^2), which is
-(x(t) - x) / sigma(t)^2 = -z / sigma(t) for x(t) = x + sigma(t) z (the paper prints sigma in place of sigma^2). With
the paper's weight xi(t) = sigma(t)^2 the loss of an image is the mean over pixels of

    (sigma(t) s(x(t), sigma(t)) + z)^2,      t uniform on [0, 1] or up to t(sigma_top), see `batches`.

`weighted_matching` counts high noise for more; the regressors pass `regression.quantile_loss(a)` instead. A run ends
after `steps`, after `seconds`, or when its validation images have not gained for `patience` looks, at whichever comes
first; with such images the averaged network that served them best is the one that is kept (`learner` says why,
`schedule` when they are looked at). Its folder holds the newest state and the one before, and `log.jsonl`. Called again
with the same folder, `train` resumes from the state: bit for bit as if it had never stopped, on a CPU with the same
number of threads and with `steps` (a rate that follows the clock cannot be repeated). Learning rate, warmup and clip
may change on the way, which is said aloud: they are what saves a run that diverged.
A run holds its folder until it ends: another one is refused there.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .batches import Loss, Pixels, batch_indices, noise_levels, random_crops, step_seed
from .checkpoint import check_device
from .learner import Learner, mean_loss, trivial_loss
from .regression import QuantileNetwork
from .schedule import Settings
from .sde import VESDE
from .session import Log, Progress, alone, signals

__all__ = ["Settings", "Trained", "check_shape", "score_matching", "train", "weighted_matching"]

_TELL = 1.0  # seconds between two calls of `progress`


def score_matching(network: nn.Module, x: Tensor, sigma: Tensor, noise: Tensor) -> Tensor:
    """Weighted denoising score matching: images (b, c, h, w), levels (b,), noise like the images -> (b,)."""
    level = sigma.reshape(-1, 1, 1, 1)
    return (level * network(x + level * noise, sigma).float() + noise).square().flatten(1).mean(1)


def weighted_matching(deviation: float) -> Loss:
    """Score matching weighted as in EDM (Karras et al., 2022), by 1 + (sigma / d)^2, for pixels of deviation d.

    The paper's weight counts the error of the denoised image in units of the noise, |D(y) - x|^2 / sigma^2, which makes
    little of high noise, where sampling decides what an image shows; this one counts it in units of what even the best
    linear denoiser of single pixels leaves.
    """

    def loss(network: nn.Module, x: Tensor, sigma: Tensor, noise: Tensor) -> Tensor:
        return score_matching(network, x, sigma, noise) * (1 + (sigma / deviation).square())

    loss.__name__ = f"weighted_matching({deviation:.4g})"
    return loss


@dataclass(frozen=True)
class Trained:
    """The network that is kept, in evaluation mode, how far the run came, and the last line of its log.

    `loss` is that of the network on the validation images, or on those it learned from where there are none; `trivial`
    is that of a denoiser that learned nothing (see `learner`). `best` is the step at which the network stood.
    """

    network: Any
    step: int
    seconds: float
    last: dict[str, Any] = field(default_factory=dict)
    loss: float = float("nan")
    trivial: float = float("inf")
    best: int = 0
    ended: str = ""  # by "steps", "seconds" or "patience"

    def check(self) -> None:
        """Refuse a network that is no better than none."""
        if not self.loss < self.trivial:
            raise ValueError(
                f"after {self.step} steps the loss is {self.loss:.4g}, no better than the {self.trivial:.4g} of a "
                "denoiser that changes nothing: nothing was learned; give the run more steps or seconds (the same "
                "command resumes), or start again with another learning rate"
            )


# ---------------------------------------------------------------- the loop


def train(
    network: nn.Module,
    images: Any,
    loss: Loss = score_matching,
    *,
    sde: VESDE,
    settings: Settings,
    limits: tuple[float, float] = (0.0, 1.0),
    folder: str | Path | None = None,
    validation: Any = None,
    progress: Progress | None = None,
    device: Any = None,
    identity: Mapping[str, Any] | None = None,
    held: bool = False,
) -> Trained:
    """Train a network on images (n, h, w) or (n, c, h, w), uint8 or within the limits, and return its moving average.

    `network` itself is trained in place and moved to the device (default: a GPU if there is one). With a `folder` the
    run is kept there and resumes where it stopped, if network, images, process, loss, settings and what `identity` adds
    (values for JSON, by name) are the same; `held`: the caller holds the folder (`session.alone`). `validation` images
    choose the average that is returned, and when to stop.
    Images may be mapped, zarr, or `batches.Pixels` on the device, which were checked before and have their own limits.
    `progress` is called with every line of the log, and at least about once a second with what is known between them.
    An interrupt or SIGTERM lets the step end, saves the state and then raises KeyboardInterrupt or SystemExit.
    """
    with ExitStack() as stack:
        device = torch.device(check_device(device))
        data = _checked(images, limits, network, settings, device)
        unseen = None if validation is None else _checked(validation, limits, network, settings, device)
        if settings.sigma_top is not None:
            sde.check_level(settings.sigma_top, "sigma_top")
        about = _about(network, data, unseen, loss, sde, settings, identity or {})
        learner = Learner(network, settings, device)
        place = None if folder is None else Path(folder)
        if place is not None:
            if not held:
                stack.enter_context(alone(place))
            learner.resume(place, about)
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        stack.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
        torch.backends.cudnn.benchmark = True
        received = stack.enter_context(signals())
        log = Log(place, learner.step, settings.batch, progress)
        run = _Run(learner, log, device, data, unseen, loss, sde, settings, place, about)
        done = run.go(received)
        if received:
            raise KeyboardInterrupt if received[0] == signal.SIGINT else SystemExit(128 + received[0])
        return _result(run, done)


@dataclass(frozen=True)
class _Run:
    """What a run needs at every step."""

    learner: Learner
    log: Log
    device: torch.device
    data: Pixels
    unseen: Pixels | None
    loss: Loss
    sde: VESDE
    settings: Settings
    folder: Path | None
    about: dict[str, Any]

    def go(self, received: list[int]) -> float:
        """Step until the run ends or a signal is received: the fraction that is done."""
        learner, settings = self.learner, self.settings
        began, first = time.monotonic() - learner.seconds, learner.step
        generator = torch.Generator(self.device)
        while True:
            learner.seconds = time.monotonic() - began
            done = settings.done(learner.step, learner.seconds)
            look = self.unseen is not None and settings.looks(learner.step) and learner.step > learner.best.looked
            if done >= 1 or received or settings.exhausted(learner.best.stale):
                break
            save = learner.step % settings.checkpoint_every == 0
            if learner.step > first and (look or save or learner.step % settings.log_every == 0):
                self.report(done, look=look, save=save)
                if settings.exhausted(learner.best.stale):
                    break
            elif learner.seconds >= self.log.reported + _TELL:
                self.log.tell(learner.step, learner.seconds, done, learner.recent_loss())
            self.step(generator, done)
            if learner.step == first + 1 and settings.compile:
                float(learner.sums[0])  # wait for the device: the first step compiles, and is not of the run's seconds
                began = time.monotonic() - learner.seconds
        if learner.step > first:
            finished = done >= 1 and learner.step > learner.best.looked
            self.report(done, look=look or finished, save=True)
        return done

    def step(self, generator: torch.Generator, done: float) -> None:
        """One step, whose random numbers depend on the seed and its number alone."""
        learner, settings = self.learner, self.settings
        seed = step_seed(settings.seed, learner.step)
        generator.manual_seed(seed)
        torch.manual_seed(seed)  # dropout draws from the global generator
        index = batch_indices(len(self.data), batch=settings.batch, step=learner.step, seed=settings.seed)
        x = random_crops(self.data.take(index), settings.crop, generator)
        x = settings.augment(x, generator)
        sigma = noise_levels(self.sde, len(x), generator, sigma_top=settings.sigma_top)
        noise = torch.randn(x.shape, generator=generator, device=x.device)
        learner.update(self.loss, x, sigma, noise, settings.rate(learner.step, done))

    def report(self, done: float, *, look: bool, save: bool) -> None:
        """A line of the log, perhaps with a look at the validation images, and perhaps the state."""
        learner, settings = self.learner, self.settings
        learner.check(self.folder)
        if learner.count:  # else the line of this step is written
            numbers = {"learning_rate": settings.rate(learner.step, done), **learner.numbers()}
            if look and self.unseen is not None:
                numbers["validation"] = mean_loss(learner.ema, self.unseen, self.loss, self.sde, settings)
                learner.best.see(learner.ema, numbers["validation"], learner.step)
            self.log.write(learner.step, learner.seconds, done, **numbers)
        if save and self.folder is not None:
            learner.save(self.folder, self.about)


def _result(run: _Run, done: float) -> Trained:
    """What a run returns, its network measured on the validation images, or on those that it learned from."""
    learner, log, loss, sde, settings = run.learner, run.log, run.loss, run.sde, run.settings
    images, best, network = run.unseen or run.data, learner.best, learner.kept()
    by_step = settings.steps is not None and learner.step >= settings.steps
    return Trained(
        network,
        learner.step,
        learner.seconds,
        log.last,
        best.loss if best.weights else mean_loss(network, images, loss, sde, settings),
        trivial_loss(network, images, loss, sde, settings),
        best.step if best.weights else learner.step,
        "patience" if done < 1 else "steps" if by_step else "seconds",
    )


def check_shape(network: Any, images: Pixels, crop: int | None = None) -> None:
    """Images, or squares of them, have the channels and the size that the network is made for, where it says so."""
    config, (c, h, w) = getattr(network, "config", None), images.shape
    if crop is not None and crop > min(h, w):
        raise ValueError(f"crop is {crop}, but images are {h} x {w}; take smaller squares, or leave crop out")
    h, w = (h, w) if crop is None else (crop, crop)
    if config is not None and (c, h, w) != (config.channels, config.size, config.size):
        raise ValueError(
            f"images have {c} channels of {h} x {w} pixels, but the network is made for {config.channels} of "
            f"{config.size} x {config.size}; resize the images or change the configuration"
        )


def _checked(
    images: Any, limits: tuple[float, float], network: Any, settings: Settings, device: torch.device
) -> Pixels:
    pixels = images if isinstance(images, Pixels) else Pixels(images, limits=limits, device=device)
    if pixels.device.type != device.type:
        raise ValueError(f"images are for {pixels.device}, the network for {device}; make Pixels with this device")
    check_shape(network, pixels, settings.crop)
    return pixels


# augment is named below
_FREE = {"steps", "seconds", "patience", "look_every", "log_every", "checkpoint_every", "compile", "augment"}


def _about(
    network: Any,
    data: Pixels,
    unseen: Pixels | None,
    loss: Loss,
    sde: VESDE,
    settings: Settings,
    identity: Mapping[str, Any],
) -> dict[str, Any]:
    """What must not change between the parts of a run, but for what `learner` allows to be tuned."""
    config = asdict(network.config) if hasattr(network, "config") else type(network).__name__
    about = {name: value for name, value in asdict(settings).items() if name not in _FREE}
    about |= {"network": config, "images": data.digest, "limits": data.limits, "sde": asdict(sde)}
    for name, function in (("loss", loss), ("augment", settings.augment)):
        about[name] = getattr(function, "__name__", type(function).__name__)
    if unseen is not None:
        about |= {"validation": unseen.digest, "look_every": settings.look_every}
    about |= network.to_dict() if isinstance(network, QuantileNetwork) else {}
    taken = sorted(about.keys() & identity.keys())
    if taken:
        raise ValueError(f"identity names {', '.join(taken)}, which a run keeps already; choose other names")
    return dict(json.loads(json.dumps(about | dict(identity))))
