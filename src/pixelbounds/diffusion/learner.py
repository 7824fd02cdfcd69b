"""What a step changes and a state keeps: weights, their moving averages, the optimizer's moments, counts; and which of
the averages was best so far on images that it did not learn from.

Networks overfit small sets quickly: the loss on other images falls, then rises, while that of training goes on falling.
The loss of some validation images, always with the same noise, therefore decides which average is kept. These images
choose the network, so a band of theirs is better than that of a new image: they must not calibrate. Nor may images of
the same scan or patient as those that train, which would never tell that a network learns its images by heart.

The yardstick is the trivial denoiser: at each level of noise the better one of two that have seen nothing, the noisy
image as it is and the mean of all pixels. In the loss of score matching, |D(y) - x|^2 / sigma^2, the first has 1 and
the second the variance of the pixels over sigma^2. A network that is no better has learned nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .batches import Loss, Pixels, noise_levels, random_crops, step_seed
from .checkpoint import load_state, save_state, state_files
from .members import compiled
from .regression import QuantileNetwork
from .schedule import Settings
from .sde import VESDE

_AWAKE = 16  # steps after which every weight has seen a gradient, also behind layers that start at 0
_TUNED = "learning_rate", "warmup", "clip"  # may change between the parts of a run
_MOST, _BATCHES = 512, 4  # images of a look at most, and passes through the network: a look costs a step or two


class Learner:
    """A network that learns, its moving average, and the best of these averages."""

    def __init__(self, network: nn.Module, settings: Settings, device: torch.device) -> None:
        cuda = device.type == "cuda"
        self.settings, self.half = settings, cuda
        self.format = torch.channels_last if cuda else torch.contiguous_format
        self.network = network.to(device, memory_format=self.format).train()
        self.model = compiled(self.network) if settings.compile else self.network
        self.ema = deepcopy(self.network).requires_grad_(False).eval()
        self.best = Best()
        both = zip(self.network.parameters(), self.ema.parameters(), strict=True)
        learned = [(weight, average) for weight, average in both if weight.requires_grad]
        if not learned:
            raise ValueError("no weight of this network takes a gradient; call network.requires_grad_() to train it")
        self.weights, self.averages = (list(x) for x in zip(*learned, strict=True))
        self.optimizer = torch.optim.AdamW(
            self.weights, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=cuda or None
        )
        self.step, self.seconds = 0, 0.0
        self.count = 0  # steps since the last line of the log
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)

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
        self.step, self.count = self.step + 1, self.count + 1

    def recent_loss(self) -> float | None:
        """Mean loss since the last line of the log; it waits for the device."""
        return float(self.sums[0]) / self.count if self.count else None

    def numbers(self) -> dict[str, float]:
        """Mean loss and gradient norm since the last call."""
        loss, norm = (self.sums / max(1, self.count)).tolist()
        self.sums.zero_()
        self.count = 0
        return {"loss": loss, "gradient_norm": norm}

    def kept(self) -> nn.Module:
        """The best average where validation images chose one, else the newest."""
        if self.best.weights:
            self.ema.load_state_dict(self.best.weights)
        return self.ema

    def check(self, folder: str | Path | None) -> None:
        """Stop a run that diverged, or that leaves weights as they were, before it replaces a good state."""
        rates = f"the learning rate ({self.settings.learning_rate:g}) or the clip ({self.settings.clip:g})"
        if not bool(torch.isfinite(torch.stack([weight.detach().abs().amax() for weight in self.weights])).all()):
            kept = folder is not None and any(path.exists() for path in state_files(folder))
            then = f"to resume from the last good state in {folder}" if kept else "and start again; no state was saved"
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

    def save(self, folder: Path, about: dict[str, Any]) -> None:
        """Write the state into the folder of the run."""
        meta = {"step": self.step, "seconds": self.seconds, "about": about, "best": self.best.about()}
        state = {f"network/{name}": x for name, x in self.network.state_dict().items()}
        state |= {f"ema/{name}": x for name, x in self.ema.state_dict().items()}
        state |= {f"best/{name}": x for name, x in self.best.weights.items()}
        for name, weight in self.network.named_parameters():
            state |= {f"optimizer/{key}/{name}": x for key, x in self.optimizer.state.get(weight, {}).items()}
        save_state(folder, state, meta)

    def resume(self, folder: str | Path, about: dict[str, Any]) -> None:
        """Take over the state of a folder, if there is one and it is of this very run."""
        state = load_state(folder)
        if state is None:
            return
        tensors, meta = state
        self._compare(folder, meta, about)
        parts: dict[str, dict[str, Tensor]] = {"network": {}, "ema": {}, "best": {}, "optimizer": {}}
        for name, x in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = x
        self.network.load_state_dict(parts["network"])
        self.ema.load_state_dict(parts["ema"])
        like = self.ema.state_dict()
        weights = {name: torch.empty_like(like[name]).copy_(x) for name, x in parts["best"].items()}
        self.best = Best(**meta.get("best", {}), weights=weights)
        learned = dict(self.network.named_parameters())
        for name, x in parts["optimizer"].items():  # a weight that never had a gradient has no moments
            key, _, rest = name.partition("/")
            weight = learned[rest]
            moment = torch.empty((), device=weight.device) if key == "step" else torch.empty_like(weight)
            self.optimizer.state[weight][key] = moment.detach().copy_(x)
        self.step, self.seconds = meta["step"], meta["seconds"]

    def _compare(self, folder: str | Path, meta: dict[str, Any], about: dict[str, Any]) -> None:
        """Refuse a state of another run, and say what was tuned since."""
        before = meta["about"]
        for name in before | about:
            if name not in _TUNED and before.get(name) != about.get(name):
                raise ValueError(
                    f"the run in {folder} has {name} = {before.get(name)}, this call has {about.get(name)}; "
                    "use the same to resume, or another folder to start again"
                )
        tuned = [name for name in _TUNED if before[name] != about[name]]
        changed = [f"{name} was {before[name]:g} and is {about[name]:g}" for name in tuned]
        if changed:
            warnings.warn(f"resuming from step {meta['step']} in {folder}: {', '.join(changed)} now", stacklevel=4)


# ---------------------------------------------------------------- validation


def mean_loss(network: Any, images: Pixels, loss: Loss, sde: VESDE, settings: Settings) -> float:
    """The loss of a network on images spread over the set, 512 and four batches at most; equal noise at every call."""
    kind, total, count = images.device.type, 0.0, 0
    with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        for x, sigma, noise in _views(images, sde, settings):
            total += float(loss(network, x, sigma, noise).sum())
            count += len(x)
    return total / count


def trivial_loss(network: nn.Module, images: Pixels, loss: Loss, sde: VESDE, settings: Settings) -> float:
    """What `mean_loss` is for the better one, image by image, of two that change nothing or answer with the mean."""
    heads = network.heads if isinstance(network, QuantileNetwork) else None
    mean = torch.stack([x.mean((0, 2, 3)) for x, _, _ in _views(images, sde, settings)]).mean(0).reshape(-1, 1, 1)

    def answer(y: Tensor, sigma: Tensor, denoised: Tensor) -> Tensor:
        """What a network that denoises so would answer: a score, or equal heads."""
        if heads is None:
            return (denoised - y) / sigma.reshape(-1, 1, 1, 1) ** 2
        return denoised.unsqueeze(1).expand(-1, heads, -1, -1, -1)

    def better(_: Any, *views: Tensor) -> Tensor:
        unchanged = loss(lambda y, sigma: answer(y, sigma, y), *views)
        return torch.minimum(unchanged, loss(lambda y, sigma: answer(y, sigma, mean.expand_as(y)), *views))

    return mean_loss(None, images, better, sde, settings)


def _views(images: Pixels, sde: VESDE, settings: Settings) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Images, levels and noise, a batch at a time, the same at every call."""
    generator = torch.Generator(images.device).manual_seed(step_seed(settings.seed, 0, 2**31))
    count = min(_MOST, _BATCHES * settings.batch, len(images))
    chosen = np.unique(np.linspace(0, len(images) - 1, count).astype(np.int64))
    order = np.random.default_rng(settings.seed).permutation(len(chosen))  # no level for neighbours alone
    sigma = noise_levels(sde, len(chosen), generator, sigma_top=settings.sigma_top)
    for start in range(0, len(chosen), settings.batch):
        x = random_crops(images.take(chosen[order[start : start + settings.batch]]), settings.crop, generator)
        yield x, sigma[start : start + len(x)], torch.randn(x.shape, generator=generator, device=x.device)


@dataclass
class Best:
    """The averaged network of the least validation loss so far, and where the looks stand."""

    loss: float = inf
    step: int = 0
    looked: int = 0  # the step of the last look
    stale: int = 0  # looks since the least loss
    weights: dict[str, Tensor] = field(default_factory=dict)

    def see(self, network: nn.Module, loss: float, step: int) -> None:
        """Take note of a look, and keep the network if it is the best."""
        self.looked, self.stale = step, self.stale + 1
        if loss < self.loss:
            self.loss, self.step, self.stale = loss, step, 0
            self.weights = {name: x.detach().clone() for name, x in network.state_dict().items()}

    def about(self) -> dict[str, Any]:
        """What is kept beside the weights, ready for JSON, which knows no infinity."""
        counts = {"step": self.step, "looked": self.looked, "stale": self.stale}
        return counts | ({"loss": self.loss} if self.weights else {})
