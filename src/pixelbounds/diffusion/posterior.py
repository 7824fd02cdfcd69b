"""Samples of an image given a noisy view of it, y = x + sigma_0 noise, drawn with the score of the noised images.

Let x(v) be the image with noise of variance v added, a Brownian motion in v that starts at x and passes y at
v_0 = sigma_0^2. Given x(v), what lies at smaller v is independent of y. So the *unconditional* reverse SDE,

    dx = s(x, v) |dv| + dw,   v from v_0 down, started at x(v_0) = y,   s = grad log p_v,

samples the posterior of x given y exactly; `reverse_sde` and `heun` discretise it down to sigma_min. Small steps make
them exact for detail coarser than sigma_min. Of finer detail, `heun` loses about sigma_min of spread (it ends with a
mean given x(sigma_min)), and `reverse_sde` adds as much (the noise that is left): for a prior deviation of sigma_min
and large sigma_0 the samples have 0.71 and 1.41 times the posterior's deviation, for five times that 0.98 and 1.02.

Algorithm 3 of the paper (`euler_maruyama`, here to reproduce it) adds (y - x) / (v_0 - v) to the score. The sum is
the score of x(v) given y, but the reverse SDE of that law has the drift -(y - x) / (v_0 - v) of the Brownian bridge as
well, and the two cancel. Left in, the term pulls the samples towards y and narrows them, and more steps do not help:
for a prior N(0, c) the limit has mean y (c / v_0) log(1 + v_0 / c) instead of y c / (c + v_0), and for c = v_0 a
variance of 0.45 times the posterior's. Its samples still make valid bands, only not those of the posterior.

With D = x + v s, the posterior mean of the image given x(v), the linear part is solved exactly. For D held fixed,

    x(w) given x(v) ~ N(D + (w / v) (x(v) - D), w (v - w) / v),   w < v,

and x(w) / w is a Brownian motion in 1 / w with drift D: the noise is additive, so that schemes of order 2 for ODEs
have weak order 2 here. `heun` predicts x(w) with D extrapolated from the last two levels, evaluates D there, and
corrects by the trapezoid between the two ends; that evaluation also starts the next step, so a step costs one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .batches import even_batch
from .members import is_compiled
from .noise import check_seed, gaussian
from .sde import VESDE

Score = Callable[[Tensor, Tensor], Tensor]  # x (b, c, h, w), sigma (b,) -> score (b, c, h, w)
Level = Callable[[Tensor, float], Tensor]  # x, sigma -> score or denoised image: one level for the whole batch
Noise = Callable[[int], Tensor]  # step -> standard normal noise, as y
Sampler = Callable[[Level, Tensor, float, VESDE, int, Noise], Tensor]  # score, y, sigma_0, sde, steps, noise -> x


# ---------------------------------------------------------------- samplers: y (b, c, h, w) -> one sample of each row


def euler_maruyama(score: Level, y: Tensor, sigma_0: float, sde: VESDE, steps: int, noise: Noise) -> Tensor:
    """Algorithm 3 as printed, with `steps` over [0, 1], of which floor(t_0 steps) are taken; biased, see above."""
    x, n = y, _printed_steps(sigma_0, sde, steps)
    for i in range(n, 0, -1):
        sigma, g = sde.sigma(i / steps), sde.diffusion(i / steps)
        drift = score(x, sigma)
        if i < n:  # at the start y - x is 0, and so may sigma_0 - sigma be
            drift = drift + (y - x) / (sigma_0**2 - sigma**2)
        x = x + (g**2 / steps) * drift + (g / math.sqrt(steps)) * noise(i)
    return x


def _printed_steps(sigma_0: float, sde: VESDE, steps: int) -> int:
    """How many of `steps` over [0, 1] Algorithm 3 takes from sigma_0 down."""
    t_0 = sde.time(sigma_0)
    n = math.floor(t_0 * steps + 1e-9)
    if n < 1:
        remedy = f"take at least {math.ceil(1 / t_0)}" if t_0 > 0 else "take another sampler"
        raise ValueError(f"{steps} steps over [0, 1] leave none below sigma_0 = {sigma_0:g}; {remedy}")
    return n


def reverse_sde(score: Level, y: Tensor, sigma_0: float, sde: VESDE, steps: int, noise: Noise) -> Tensor:
    """Euler-Maruyama for the posterior: Algorithm 3 without its extra term, from sigma_0 itself; weak order 1.

    Ends at x(sigma_min), as Algorithm 3 does, with that much noise left.
    """
    x = y
    for i, (sigma, lower) in enumerate(descent(sigma_0, sde, steps)):
        square = 2 * sigma**2 * math.log(sigma / lower)  # g^2 dt
        x = x + square * score(x, sigma) + math.sqrt(square) * noise(i)
    return x


def heun(score: Level, y: Tensor, sigma_0: float, sde: VESDE, steps: int, noise: Noise) -> Tensor:
    """Second order, one evaluation a step and one more: extrapolate, evaluate, correct by the trapezoid.

    The last evaluation is the result: the posterior mean of the image given x(sigma_min).
    """
    x, v_0 = y, sigma_0**2
    now, before = x + v_0 * score(x, sigma_0), None
    for i, (sigma, lower) in enumerate(descent(sigma_0, sde, steps)):
        v, w, z = sigma**2, lower**2, noise(i)
        weight = _trapezoid(v / w)
        ahead = now if before is None else now + weight * (now - before)
        predicted = bridge(x, ahead, v, w, z)
        before, now = now, predicted + w * score(predicted, lower)
        x = bridge(x, torch.lerp(before, now, weight), v, w, z)
    return now


def descent(sigma_0: float, sde: VESDE, steps: int) -> Iterator[tuple[float, float]]:
    """Pairs (sigma, next sigma) from sigma_0 down to sigma_min, equal steps in log sigma; never up, by rounding."""
    ratio = sde.sigma_min / sigma_0
    levels = [max(sde.sigma_min, sigma_0 * ratio ** (i / steps)) for i in range(steps)] + [sde.sigma_min]
    return pairwise(sorted(levels, reverse=True))


def bridge(x: Tensor, denoised: Tensor, v: float, w: float, noise: Tensor) -> Tensor:
    """x(w) given x(v) and the image: D + (w / v) (x - D) + sqrt(w (v - w) / v) noise."""
    return torch.lerp(denoised, x, w / v) + math.sqrt(w * (v - w) / v) * noise


def _trapezoid(ratio: float) -> float:
    """Weight of the far end in the mean of a function linear in log v over 1 / v, which grows by `ratio` (1/2 at 1)."""
    log = math.log(ratio)
    if log < 1e-4:  # where the quotient cancels
        return 0.5 + log / 12
    return (ratio * log - ratio + 1) / ((ratio - 1) * log)


SAMPLERS: dict[str, tuple[Sampler, int]] = {  # and the number of steps by default
    "euler_maruyama": (euler_maruyama, 300),
    "reverse_sde": (reverse_sde, 150),
    "heun": (heun, 12),
}


# ---------------------------------------------------------------- reduction of the samples of an image


@dataclass(frozen=True)
class Draws:
    """What is kept of the m samples of one image, each of shape (c, h, w); None where not asked for."""

    mean: Tensor
    deviation: Tensor
    lower: Tensor | None = None
    upper: Tensor | None = None
    naive_lower: Tensor | None = None
    naive_upper: Tensor | None = None
    held_out: Tensor | None = None  # (held_out, c, h, w)
    samples: Tensor | None = None  # (m, c, h, w) float16, nearest


@dataclass(frozen=True)
class Reduction:
    """From the samples of an image to `Draws`, on the device they lie on.

    ranks: order statistics that make the calibrated quantiles, counted from 1 (`bands.calibrated_ranks`);
    probabilities: levels of the interpolated, naive quantiles; held_out: draws beyond the m, kept apart to check
    coverage; keep: all m samples in float16.
    """

    ranks: tuple[int, int] | None = None
    probabilities: tuple[float, float] | None = None
    held_out: int = 0
    keep: bool = False

    def check(self, m: int) -> None:
        """Whether m samples suffice."""
        if m < 2:
            raise ValueError(f"samples is {m}; mean and deviation need at least 2")
        if self.ranks is not None and not 1 <= self.ranks[0] <= self.ranks[1] <= m:
            raise ValueError(f"ranks are {self.ranks}; they must ascend within 1..{m}: draw more samples")

    def __call__(self, draws: Tensor) -> Draws:
        """Reduce (m + held_out, c, h, w)."""
        m = len(draws) - self.held_out
        self.check(m)
        samples = draws[:m]
        parts: dict[str, Any] = {"mean": samples.mean(0), "deviation": samples.std(0)}
        ordered = samples.sort(dim=0).values if self.ranks or self.probabilities else samples
        if self.ranks is not None:
            parts["lower"], parts["upper"] = (ordered[rank - 1].clone() for rank in self.ranks)
        if self.probabilities is not None:
            parts["naive_lower"], parts["naive_upper"] = (_quantile(ordered, p) for p in self.probabilities)
        if self.held_out:
            parts["held_out"] = draws[m:].clone()
        if self.keep:
            parts["samples"] = samples.half()
        return Draws(**parts)


def _quantile(ordered: Tensor, probability: float) -> Tensor:
    """Interpolated quantile of samples in ascending order: (m, c, h, w) -> (c, h, w)."""
    position = (len(ordered) - 1) * probability
    low = min(math.floor(position), len(ordered) - 2)
    return torch.lerp(ordered[low], ordered[low + 1], position - low)


# ---------------------------------------------------------------- the front door


def posterior_mean(score: Score, y: Tensor, sigma_0: float) -> Tensor:
    """Posterior mean of the image, y + sigma_0^2 score(y, sigma_0): (b, c, h, w) -> the same."""
    if not 0 < sigma_0 < math.inf:
        raise ValueError(f"sigma_0 is {sigma_0}; give the noise level of the observation, a positive deviation")
    y = for_network(score, check_observation(y))
    with torch.no_grad():
        return y + sigma_0**2 * score(y, level_row(y, sigma_0)).to(y.dtype)


def sample(
    score: Score,
    observation: Tensor,
    sigma_0: float,
    sde: VESDE,
    *,
    samples: int = 79,
    sampler: str = "heun",
    steps: int | None = None,
    seed: int = 0,
    image_ids: Sequence[int] | None = None,
    batch: int | None = None,
    reduce: Callable[[Tensor], Any] | None = None,
    autocast: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Any]:
    """Posterior samples of (n, c, h, w) observations, image by image: an iterator of n results, in order.

    Each result is reduce((samples, c, h, w)), or these samples themselves. A `Reduction` with `held_out` draws as many
    more. A draw depends on (seed, image id, sample number) alone; image_ids are 0..n-1 by default. At most `batch`
    images pass through the network at a time (default: what suits the device); a compiled one always sees as many, the
    last batch padded. `autocast` is bfloat16 on GPUs. `progress` is called with samples done and their total.
    """
    sigma_0 = sde.check_level(sigma_0)
    steps = check_steps(sampler, steps, sigma_0, sde)
    draw, _ = SAMPLERS[sampler]
    at_least_one(samples, "samples")
    at_least_one(1 if batch is None else batch, "batch")
    check_seed(seed)
    y = for_network(score, check_observation(observation))
    ids = checked_ids(image_ids, len(y))
    if isinstance(reduce, Reduction):
        reduce.check(samples)
        samples += reduce.held_out
    if batch is None:
        batch = automatic_batch(score, y, sigma_0, autocast=autocast)
    batch = batch if is_compiled(score) else even_batch(len(y) * samples, batch)

    def rows(image: Tensor, number: Tensor) -> Tensor:
        """One draw for each (position of an image, number of a sample)."""
        start = y[image.to(y.device)]
        keys = ids[image].to(y.device), number.to(y.device)

        def level(x: Tensor, sigma: float) -> Tensor:
            return score(x, level_row(x, sigma)).to(x.dtype)

        def noise(step: int) -> Tensor:
            return gaussian(seed, *keys, step, tuple(y.shape[1:]), y.device).to(y.dtype)

        with torch.no_grad(), in_bfloat16(y, autocast):
            return draw(level, start, sigma_0, sde, steps, noise)

    return per_image(rows, len(y), samples, batch, reduce or (lambda draws: draws), progress, ids)


def per_image(
    rows: Callable[[Tensor, Tensor], Tensor],
    n: int,
    m: int,
    batch: int,
    reduce: Callable[[Tensor], Any],
    progress: Callable[[int, int], None] | None,
    ids: Tensor,
) -> Iterator[Any]:
    """Run over n x m draws in batches of one shape, and reduce every image as soon as its m draws are there."""
    total = n * m
    pending: list[Tensor] = []
    held = finished = 0
    for start in range(0, total, batch):
        index = torch.arange(start, start + batch).clamp(max=total - 1)  # padded: the network sees one shape
        drawn = rows(index // m, index % m)[: total - start]
        if progress is not None:
            progress(min(start + batch, total), total)
        while len(drawn):
            pending.append(drawn[: m - held])
            drawn, held = drawn[m - held :], held + len(pending[-1])
            if held == m:
                whole = torch.cat(pending)
                if not bool(torch.isfinite(whole).all()):
                    raise ValueError(
                        f"samples of image {int(ids[finished])} are not finite: the score diverged; take more steps, "
                        "sample with autocast=False, or train the network further"
                    )
                pending, held, finished = [], 0, finished + 1
                yield reduce(whole)


def check_steps(sampler: str, steps: int | None, sigma_0: float, sde: VESDE) -> int:
    """The number of steps of a sampler, its own where None; a number that it cannot take is refused."""
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler is {sampler!r}; known are {', '.join(SAMPLERS)}")
    steps = at_least_one(SAMPLERS[sampler][1] if steps is None else steps, "steps")
    if sampler == "euler_maruyama":
        _printed_steps(sigma_0, sde, steps)
    return steps


def automatic_batch(score: Score, observation: Tensor, sigma_0: float, *, autocast: bool = True) -> int:
    """Images that suit one pass of the network: 2^22 pixels on a GPU, fewer where memory is short; 2^17 on a CPU."""
    pixels = math.prod(observation.shape[-2:])
    if observation.device.type != "cuda":
        return max(1, 2**17 // pixels)
    most, device = max(1, 2**22 // pixels), observation.device
    probe = observation[:1].expand(min(4, most), -1, -1, -1).contiguous()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    with torch.no_grad(), in_bfloat16(probe, autocast), torch.compiler.set_stance("force_eager"):  # no second shape
        score(probe, level_row(probe, sigma_0))
    each = max(1, (torch.cuda.max_memory_allocated(device) - before) / len(probe))
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - before
    return max(1, min(most, int(0.6 * free / each)))


# ---------------------------------------------------------------- small parts


def level_row(x: Tensor, sigma: float) -> Tensor:
    """One level for every image of a batch, (b,)."""
    return torch.full((len(x),), sigma, dtype=x.dtype, device=x.device)


def in_bfloat16(x: Tensor, wanted: bool) -> Any:
    """Half precision on a GPU, where wanted."""
    return torch.autocast(x.device.type, torch.bfloat16, enabled=wanted and x.device.type == "cuda")


def at_least_one(value: int, name: str) -> int:
    """A count of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be an integer of at least 1")
    return value


def checked_ids(image_ids: Any, n: int) -> Tensor:
    """The number of each image, (n,) int64."""
    ids = np.arange(n) if image_ids is None else np.asarray(image_ids)
    distinct = ids.shape == (n,) and ids.dtype.kind in "iu" and len(np.unique(ids)) == n
    if not distinct or ids.min() < 0 or ids.max() >= 2**32:
        raise ValueError(f"image_ids must be {n} different integers in [0, 2^32), one per observation")
    return torch.from_numpy(ids.astype(np.int64))


def check_observation(y: Tensor, channels: int | None = None) -> Tensor:
    """Observations (n, c, h, w) in float32 or float64, with as many channels where these are given."""
    if not isinstance(y, Tensor) or y.ndim != 4 or 0 in y.shape or channels not in (None, y.shape[1]):
        shape = tuple(y.shape) if hasattr(y, "shape") else type(y).__name__
        raise ValueError(f"observation is {shape}; it must be a tensor of shape (n, {channels or 'c'}, h, w)")
    if not y.is_floating_point():
        raise ValueError(f"observation is {y.dtype}; convert it to float32, in the units of the network")
    bad = (~torch.isfinite(y)).flatten(1).any(1).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"observation {bad[0]} holds NaN or infinite values ({len(bad)} do); drop or repair it")
    return y if y.dtype == torch.float64 else y.float()


def for_network(score: Score, y: Tensor) -> Tensor:
    """The observation in the precision of the network, which must be ready and on the same device."""
    network = getattr(score, "_orig_mod", score)  # a compiled module wraps the original
    if getattr(network, "training", False):
        raise ValueError("the score network is in training mode, where dropout is on; call .eval() before sampling")
    parameter = next(network.parameters(), None) if isinstance(network, nn.Module) else None
    if parameter is None:
        return y
    if parameter.device != y.device:
        raise ValueError(f"observation is on {y.device}, the score network on {parameter.device}; move one of them")
    return y.to(parameter.dtype) if parameter.dtype in (torch.float32, torch.float64) else y
