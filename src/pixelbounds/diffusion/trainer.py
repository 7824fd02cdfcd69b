"""One training loop for the score network and for every regressor.

Denoising score matching fits s(x(t), sigma(t)) to the score of the transition kernel N(x, sigma(t)^2), which is
-(x(t) - x) / sigma(t)^2 = -z / sigma(t) for x(t) = x + sigma(t) z (the paper prints sigma in place of sigma^2). With
the paper's weight xi(t) = sigma(t)^2 the loss of an image is the mean over pixels of

    (sigma(t) s(x(t), sigma(t)) + z)^2,      t uniform on [0, 1] or up to t(sigma_top), see `batches`.

The regressors pass `regression.quantile_loss(a)` instead. A run ends after `steps`, after `seconds`, or at whichever
comes first; the learning rate follows the fraction that is done. Its folder holds the newest state and the one before,
and `log.jsonl`. Called again with the same folder, `train` goes on where the state is: bit for bit as if it had never
stopped, on a CPU with the same number of threads and with `steps` (a rate that follows the clock cannot be repeated).
Learning rate, warmup and clip may change on the way, which is said aloud: they are what saves a run that diverged.

Started by torchrun, each process takes its share of every batch and DDP averages the gradients. Processes must see the
same folder; the first one writes, and holds the folder until the run ends: another run is refused there.
"""

from __future__ import annotations

import json
import signal
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from math import cos, isfinite, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .batches import Augmentation, Images, Loss, batch_indices, noise_levels, rotations, step_seed
from .checkpoint import load_state, load_tensors, save_state, state_files
from .noise import check_seed
from .regression import QuantileNetwork
from .sde import VESDE
from .session import Group, Log, Progress, alone, processes, signals

_AWAKE = 16  # steps after which every weight has seen a gradient, also behind layers that start at 0
_POSITIVE = "steps", "seconds", "batch", "learning_rate", "clip", "log_every", "checkpoint_every", "sigma_top"
_TUNED = "learning_rate", "warmup", "clip"  # may change between the parts of a run
_HELD_OUT = 512  # images that are scored with every checkpoint


def score_matching(network: nn.Module, x: Tensor, sigma: Tensor, noise: Tensor) -> Tensor:
    """Weighted denoising score matching: images (b, c, h, w), levels (b,), noise like the images -> (b,)."""
    level = sigma.reshape(-1, 1, 1, 1)
    return (level * network(x + level * noise, sigma).float() + noise).square().flatten(1).mean(1)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. `batch` counts the images of a step over all processes; None in the last four means: on a GPU."""

    steps: int | None = None
    seconds: float | None = None
    batch: int = 64
    learning_rate: float = 2e-4
    warmup: int = 500
    cosine: bool = True
    weight_decay: float = 0.0
    clip: float = 1.0
    ema: float = 0.999
    sigma_top: float | None = None
    augment: Augmentation = rotations
    seed: int = 0
    log_every: int = 50
    checkpoint_every: int = 1000
    compile: bool = False
    half: bool | None = None
    channels_last: bool | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise ValueError("neither steps nor seconds is given; say when to stop, e.g. steps=10_000 or seconds=480")
        for name in ("steps", "batch", "warmup", "log_every", "checkpoint_every"):
            value = getattr(self, name)
            if value is None and name == "steps":
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise ValueError(f"{name} is {value!r}; it must be a whole number")
            object.__setattr__(self, name, int(value))  # JSON knows no integers of NumPy
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not (value > 0 and isfinite(value)):
                raise ValueError(f"{name} is {value}; it must be positive")
        for name in ("warmup", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        check_seed(self.seed)
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema is {self.ema}; it must be at least 0 and below 1, e.g. 0.999")

    def done(self, step: int, seconds: float) -> float:
        """The fraction of the run that is over, at most 1."""
        by_step = step / self.steps if self.steps else 0.0
        return min(1.0, max(by_step, seconds / self.seconds if self.seconds else 0.0))

    def rate(self, step: int, done: float) -> float:
        """The learning rate of a step: a linear rise over `warmup` steps, then half a cosine down to 0."""
        fall = (1 + cos(pi * done)) / 2 if self.cosine else 1.0
        return self.learning_rate * min(1.0, (step + 1) / max(1, self.warmup)) * fall


@dataclass(frozen=True)
class Trained:
    """The averaged network in evaluation mode, how far it came, and the last line of its log."""

    network: Any
    step: int
    seconds: float
    last: dict[str, Any] = field(default_factory=dict)


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
    held_out: Any = None,
    progress: Progress | None = None,
    device: Any = None,
    identity: Mapping[str, Any] | None = None,
) -> Trained:
    """Train a network on images (n, h, w) or (n, c, h, w), uint8 or within the limits, and return its moving average.

    `network` itself is trained in place and moved to the device (default: a GPU if there is one). With a `folder` the
    run is kept there and goes on where it stopped, if network, images, process, loss, settings and what `identity` adds
    (values for JSON, by name) are the same. `held_out` images are scored at every checkpoint, with equal noise.
    Images may be mapped, zarr, or `batches.Images` on the device, which were checked before and have their own limits.
    An interrupt or SIGTERM lets the step end, saves the state and then raises KeyboardInterrupt or SystemExit.
    """
    with ExitStack() as stack:
        group = processes(device)
        data = _checked(images, limits, group.device)
        unseen = None if held_out is None else _checked(held_out, limits, group.device)
        _check(network, data, unseen, sde, settings, group)
        about = _about(network, data, loss, sde, settings, identity or {})
        learner = _Learner(network, settings, group)
        place = Path(folder) if folder is not None and group.rank == 0 else None
        if place is not None:
            stack.enter_context(alone(place))
        if folder is not None:
            learner.resume(folder, about)
        stack.enter_context(torch.random.fork_rng([group.device] if group.device.type == "cuda" else []))
        stack.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
        torch.backends.cudnn.benchmark = True
        received = stack.enter_context(signals())
        log = Log(place, learner.step, settings.batch, progress if group.rank == 0 else None)

        def report(save: bool) -> None:
            learner.check(folder)
            numbers = {"learning_rate": settings.rate(learner.step, done), **learner.numbers(group)}
            if save and unseen is not None:
                numbers["held_out"] = mean_loss(learner.ema, unseen, loss, sde=sde, settings=settings)
            log.write(learner.step, learner.seconds, **numbers)
            if save and place is not None:
                save_state(place, learner.tensors(), {"step": learner.step, "seconds": learner.seconds, "about": about})

        began, first = time.monotonic() - learner.seconds, learner.step
        generator = torch.Generator(group.device)
        while True:
            learner.seconds, stop = group.agree(learner.step, time.monotonic() - began, bool(received))
            done = settings.done(learner.step, learner.seconds)
            if done >= 1 or stop:
                break
            save = learner.step % settings.checkpoint_every == 0
            if learner.step > first and (save or learner.step % settings.log_every == 0):
                report(save)
            seed = step_seed(settings.seed, learner.step, group.rank)
            generator.manual_seed(seed)
            torch.manual_seed(seed)  # dropout draws from the global generator
            index = batch_indices(len(data), batch=settings.batch, step=learner.step, seed=settings.seed)
            x = settings.augment(data.take(index[group.rank :: group.size]), generator)
            sigma = noise_levels(sde, len(x), generator, sigma_top=settings.sigma_top)
            noise = torch.randn(x.shape, generator=generator, device=x.device)
            learner.update(loss, x, sigma, noise, settings.rate(learner.step, done))
            if learner.step == first + 1 and settings.compile:
                float(learner.sums[0])  # wait for the device: the first step compiles, and is not of the run's seconds
                began = time.monotonic() - learner.seconds
        if learner.step > first:
            report(save=True)
            group.wait()  # until the state is written
        if stop or received:
            number = received[0] if received else signal.SIGTERM  # the signal may have reached another process
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        return Trained(learner.ema, learner.step, learner.seconds, log.last)


def mean_loss(
    network: nn.Module, images: Images, loss: Loss, *, sde: VESDE, settings: Settings, count: int = _HELD_OUT
) -> float:
    """The loss of a network on up to `count` images, evenly spread over the set, with the same noise at every call."""
    generator = torch.Generator(images.device).manual_seed(step_seed(settings.seed, 0, 2**31))
    chosen = np.unique(np.linspace(0, len(images) - 1, min(count, len(images))).astype(np.int64))
    sigma = noise_levels(sde, len(chosen), generator, sigma_top=settings.sigma_top)
    total = 0.0
    half = images.device.type == "cuda" if settings.half is None else settings.half
    with torch.inference_mode(), torch.autocast(images.device.type, torch.bfloat16, enabled=half):
        for start in range(0, len(chosen), settings.batch):
            x = images.take(chosen[start : start + settings.batch])
            noise = torch.randn(x.shape, generator=generator, device=x.device)
            total += float(loss(network, x, sigma[start : start + len(x)], noise).sum())
    return total / len(chosen)


def check_shape(network: Any, images: Images) -> None:
    """Images have the channels and the size that the network is made for, where it says so."""
    config, (c, h, w) = getattr(network, "config", None), images.shape
    if config is not None and (c, h, w) != (config.channels, config.size, config.size):
        raise ValueError(
            f"images have {c} channels of {h} x {w} pixels, but the network is made for {config.channels} of "
            f"{config.size} x {config.size}; resize the images or change the configuration"
        )


def _checked(images: Any, limits: tuple[float, float], device: torch.device) -> Images:
    if not isinstance(images, Images):
        return Images(images, limits=limits, device=device)
    if images.device.type != device.type:
        raise ValueError(f"images are for {images.device}, the network for {device}; make Images with this device")
    return images


def _check(network: Any, data: Images, unseen: Images | None, sde: VESDE, settings: Settings, group: Group) -> None:
    check_shape(network, data)
    if unseen is not None:
        check_shape(network, unseen)
    if settings.batch % group.size:
        raise ValueError(f"a batch of {settings.batch} cannot be shared by {group.size} processes; use a multiple")
    if settings.sigma_top is not None:
        sde.check_level(settings.sigma_top, "sigma_top")


def _about(
    network: Any, data: Images, loss: Loss, sde: VESDE, settings: Settings, identity: Mapping[str, Any]
) -> dict[str, Any]:
    """What must not change between the parts of a run, but for `_TUNED`."""
    free = ("steps", "seconds", "log_every", "checkpoint_every", "compile", "half", "channels_last", "augment")
    config = network.config.to_dict() if hasattr(network, "config") else type(network).__name__
    about = {name: value for name, value in asdict(settings).items() if name not in free}
    about |= {"network": config, "images": data.digest(), "limits": data.limits, "sde": asdict(sde)}
    about |= {"loss": _name(loss), "augment": _name(settings.augment)}
    about |= network.to_dict() if isinstance(network, QuantileNetwork) else {}
    taken = sorted(about.keys() & identity.keys())
    if taken:
        raise ValueError(f"identity names {', '.join(taken)}, which a run keeps already; choose other names")
    about |= identity
    return dict(json.loads(json.dumps(about)))


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


# ---------------------------------------------------------------- what learns


class _Learner:
    """What a step changes and a state keeps: weights, their moving average, the optimizer's moments, counts."""

    def __init__(self, network: nn.Module, settings: Settings, group: Group) -> None:
        cuda = group.device.type == "cuda"
        self.first = group.rank == 0
        self.settings, self.half = settings, cuda if settings.half is None else settings.half
        wanted = cuda if settings.channels_last is None else settings.channels_last
        self.format = torch.channels_last if wanted else torch.contiguous_format
        self.network = network.to(group.device, memory_format=self.format).train()
        self.model = group.wrap(self.network)  # first: it gives all processes the same weights
        self.ema = deepcopy(self.network).requires_grad_(False).eval()
        learns = [weight.requires_grad for weight in self.network.parameters()]
        if not any(learns):
            raise ValueError("no weight of this network takes a gradient; call network.requires_grad_() to train it")
        self.weights = [weight for weight in self.network.parameters() if weight.requires_grad]
        self.averages = [x for x, learned in zip(self.ema.parameters(), learns, strict=True) if learned]
        self.optimizer = torch.optim.AdamW(
            self.weights, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=cuda or None
        )
        if settings.compile:
            self.model = torch.compile(self.model)
        self.step, self.seconds, self._count = 0, 0.0, 0
        self.sums = torch.zeros(2, dtype=torch.float64, device=group.device)

    def update(self, loss: Loss, x: Tensor, sigma: Tensor, noise: Tensor, rate: float) -> None:
        """One step of AdamW and of the moving average."""
        x = x.contiguous(memory_format=self.format)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half):
            value = loss(self.model, x, sigma, noise).mean()
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        norm = nn.utils.clip_grad_norm_(self.weights, self.settings.clip)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        self.optimizer.step()
        decay = min(self.settings.ema, (1 + self.step) / (10 + self.step))  # a young average forgets the first weights
        torch._foreach_lerp_(self.averages, [weight.detach() for weight in self.weights], 1 - decay)
        self.sums += torch.stack([value.detach(), norm.detach()]).double()
        self.step, self._count = self.step + 1, self._count + 1

    def numbers(self, group: Group) -> dict[str, float]:
        """Mean loss and gradient norm since the last call, over all processes."""
        loss, norm = group.mean(self.sums / max(1, self._count)).tolist()
        self.sums.zero_()
        self._count = 0
        return {"loss": loss, "gradient_norm": norm}

    def check(self, folder: str | Path | None) -> None:
        """Stop a run that diverged, or that leaves weights as they were, before it replaces a good state."""
        rates = f"the learning rate ({self.settings.learning_rate:g}) or the clip ({self.settings.clip:g})"
        if not bool(torch.isfinite(torch.stack([weight.detach().abs().amax() for weight in self.weights])).all()):
            kept = folder is not None and any(path.exists() for path in state_files(folder))
            then = f"to go on from the last good state in {folder}" if kept else "and start anew; no state was saved"
            raise FloatingPointError(f"the weights are no longer finite at step {self.step}: lower {rates} {then}")
        if self.step < _AWAKE:
            return
        weights = {name: weight for name, weight in self.network.named_parameters() if weight.requires_grad}
        moments = {name: self.optimizer.state.get(weight, {}).get("exp_avg_sq") for name, weight in weights.items()}
        asleep = [name for name, moment in moments.items() if moment is None or not bool(moment.any())]
        if asleep:
            remedy = "train with compile = false" if self.settings.compile else f"change {rates}"
            raise ValueError(
                f"in {self.step} steps no gradient reached {len(asleep)} of {len(moments)} weights, {asleep[0]} among "
                f"them: that part of the network does not learn; {remedy}, or freeze it on purpose"
            )

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of a state, by name."""
        state = {f"network/{name}": x for name, x in self.network.state_dict().items()}
        state |= {f"ema/{name}": x for name, x in self.ema.state_dict().items()}
        for name, weight in self.network.named_parameters():
            state |= {f"optimizer/{key}/{name}": x for key, x in self.optimizer.state.get(weight, {}).items()}
        return state

    def resume(self, folder: str | Path, about: dict[str, Any]) -> None:
        """Take over the state of a folder, if there is one and it is of this very run."""
        state = load_state(folder)
        if state is None:
            return
        tensors, meta = state
        before = meta["about"]
        for name in before | about:
            if name not in _TUNED and before.get(name) != about.get(name):
                raise ValueError(
                    f"the run in {folder} has {name} = {before.get(name)}, this call has {about.get(name)}; "
                    "use the same to go on, or another folder to start anew"
                )
        changed = [
            f"{name} was {before[name]:g} and is {about[name]:g}" for name in _TUNED if before[name] != about[name]
        ]
        if changed and self.first:
            warnings.warn(f"going on from step {meta['step']} in {folder}: {', '.join(changed)} now", stacklevel=3)
        for part, module in (("network/", self.network), ("ema/", self.ema)):
            own = {name.removeprefix(part): x for name, x in tensors.items() if name.startswith(part)}
            load_tensors(module, own, str(folder))
        for name, weight in self.network.named_parameters():
            for key in ("step", "exp_avg", "exp_avg_sq"):
                stored = tensors.get(f"optimizer/{key}/{name}")
                if stored is not None:  # a weight that never had a gradient has no moments
                    like = torch.empty((), device=weight.device) if key == "step" else torch.empty_like(weight)
                    self.optimizer.state[weight][key] = like.detach().copy_(stored)
        self.step, self.seconds = meta["step"], meta["seconds"]
