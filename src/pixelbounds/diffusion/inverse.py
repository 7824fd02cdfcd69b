"""Samples of an image given y = A x + noise, for a linear A, drawn with the score of the noised images.

Let x(v) be the image with noise of variance v added. The reverse SDE of `posterior.py`, with the score of x(v) *given
y* in place of that of x(v), samples the posterior of x given y. By Bayes that score is s + grad log p(y | x(v)). With D
the posterior mean of the image given x(v), and C its covariance given x(v), taken as Gaussian,

    p(y | x(v)) = N(A D, S + A C A'),   grad = J' A' (S + A C A')^-1 (y - A D),   J = dD / dx(v),

where S is the variance of the noise of y. By Tweedie's formula C = v J. The methods differ in what they take for C:

    mmps   C = v J, moment matching (Rozet et al. 2024), solved by minimal residuals with products J'u
    pigdm  C = r I with r = v c / (v + c), one number for all pixels, c a guess of the prior variance (Song et al. 2023)
    dps    no covariance: the direction J' A' (y - A D) / |y - A D| (Chung et al. 2023)

For a Gaussian prior x given x(v) is Gaussian, so `mmps` is exact in the limit of many steps, and the others are not.
These two are published as steps, not as a score: from v to w < v a sample of x(w) given x(v) and D is drawn, and then
the pull is added whole, however near w is: r grad for `pigdm`, `step` times the direction for `dps`. So they pull the
harder, the more steps there are; with few steps and a poor network that helps them.

The Jacobian of a denoiser that is a posterior mean is symmetric; that of a trained network nearly is. Conjugate
gradients, which need symmetry, may diverge there, while a residual that is minimised cannot grow. The system of
`pigdm` needs no network, so its solution is cheap: it is the direction in which `mmps` goes first.

The SDE begins at the greatest level that the network knows, sigma_top, with x = m + sigma_top z. Here m is the smooth
image that fits y. What is wrong with that start is forgotten in the measure c / (c + sigma_top^2), for a direction of
posterior variance c. A further sweep (noise is added to the sample, and the SDE is run again: a Gibbs step) multiplies
by that once more; networks that know small levels alone need some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..problems.krylov import conjugate_gradients, dot, minimal_residuals
from .batches import even_batch
from .noise import check_seed, gaussian
from .posterior import (
    SAMPLERS,
    Noise,
    Score,
    at_least_one,
    bridge,
    checked_ids,
    descent,
    for_network,
    in_bfloat16,
    level_row,
    per_image,
)
from .sde import VESDE

GUIDANCES = {  # and the samplers of each, the first by default
    "mmps": ("heun", "reverse_sde"),
    "pigdm": ("ancestral",),
    "dps": ("ancestral",),
}
Guided = Callable[[Tensor, float], tuple[Tensor, Tensor]]  # x, sigma -> D, and what y adds
_CHEAP = 20  # steps of conjugate gradients where the network has no part in a system
_SMOOTH = 60  # and for the start
_STEP = 1 / 3  # deviation of the difference of neighbours, in units of that of a pixel: a guess, for the start
_APART = 2**20  # between the numbers of noises of two sweeps


class Linear(Protocol):
    """A linear problem on tensors (b, c, h, w)."""

    def forward(self, x: Tensor, /) -> Tensor:
        """A x."""

    def adjoint(self, y: Tensor, /) -> Tensor:
        """A' y."""

    def variance(self, y: Tensor, /) -> Tensor:
        """Variance of the noise of each entry of y."""


@dataclass(frozen=True, kw_only=True)
class Guidance:
    """How y bears on the SDE: the method, steps of the SDE, of the solver of `mmps`, sweeps, and what methods need.

    `sampler` is heun (by default) or reverse_sde for `mmps`; the others go by steps of their own, `ancestral`. `prior`
    is a guess of the deviation of pixels: the variance of `pigdm`, a first direction for `mmps`. `step` is that of
    `dps`. Both are in the units of the image.
    """

    method: str = "mmps"
    sampler: str | None = None
    steps: int = 24
    solver_steps: int = 2
    sweeps: int = 1
    prior: float = 0.3
    step: float = 1.0

    def __post_init__(self) -> None:
        if self.method not in GUIDANCES:
            raise ValueError(f"method is {self.method!r}; known are {', '.join(GUIDANCES)}")
        samplers = GUIDANCES[self.method]
        if self.sampler not in (None, *samplers):
            raise ValueError(f"sampler is {self.sampler!r}; for {self.method} known are {', '.join(samplers)}")
        object.__setattr__(self, "sampler", self.sampler or samplers[0])
        for name in ("steps", "solver_steps", "sweeps"):
            at_least_one(getattr(self, name), name)
        for name in ("prior", "step"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")


def guided(score: Score, y: Tensor, problem: Linear, how: Guidance, *, autocast: bool = False) -> Guided:
    """D, and what y adds to it, one row of y for each of x: (b, c, h, w), sigma -> two of (b, c, h, w).

    For `mmps` their sum is the mean of the image given x(v) and y; for the others the second is the pull of a step.
    """
    variance = problem.variance(y)
    if not bool((variance > 0).all()):
        raise ValueError("the problem has no noise, so that its posterior has no density; give a small sigma_0")

    def level(x: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            with in_bfloat16(point, autocast):
                own = score(point, level_row(point, sigma)).to(point.dtype)
            denoised = point + sigma**2 * own

        def pull(u: Tensor) -> Tensor:
            return torch.autograd.grad(denoised, point, u, retain_graph=True)[0]

        mean = denoised.detach()
        residual = y - problem.forward(mean)
        if how.method == "dps":
            norm = dot(residual, residual).sqrt().clamp(min=1e-12).reshape(-1, *[1] * (y.ndim - 1))
            return mean, how.step * pull(problem.adjoint(residual / norm))
        spread = sigma**2 * how.prior**2 / (sigma**2 + how.prior**2)

        def without_network(u: Tensor) -> Tensor:
            """(S + spread A A')^-1 u."""
            return conjugate_gradients(
                lambda w: variance * w + spread * problem.forward(problem.adjoint(w)), u, steps=_CHEAP
            )

        def system(u: Tensor) -> tuple[Tensor, Tensor]:
            """(S + A C A') u, and J' A' u, which is wanted of the solution."""
            pulled = pull(problem.adjoint(u))
            return variance * u + sigma**2 * problem.forward(pulled), pulled

        if how.method == "pigdm":
            return mean, spread * pull(problem.adjoint(without_network(residual)))
        _, pulled = minimal_residuals(system, residual, steps=how.solver_steps, guess=without_network)
        return mean, sigma**2 * pulled

    return level


def sample_linear(
    score: Score,
    observation: Tensor,
    problem: Linear,
    sde: VESDE,
    how: Guidance = Guidance(),  # noqa: B008 - frozen
    *,
    samples: int = 79,
    sigma_top: float | None = None,
    seed: int = 0,
    image_ids: Sequence[int] | None = None,
    batch: int | None = None,
    reduce: Callable[[Tensor], Any] | None = None,
    autocast: bool = False,
) -> Iterator[Any]:
    """Posterior samples of observations (n, *observed) of images (c, h, w), image by image: an iterator of n results.

    `problem` maps (b, c, h, w) to (b, *observed). Each result is reduce((samples, c, h, w)), or these samples. A draw
    depends on (seed, image id, sample number) alone; `batch` draws are worked on at a time, by default
    those of an image. `autocast`: the network in bfloat16 on a GPU.
    """
    top = sde.sigma_max if sigma_top is None else sde.check_level(sigma_top, "sigma_top")
    at_least_one(samples, "samples")
    check_seed(seed)
    ids = checked_ids(image_ids, len(observation))
    pixels = tuple(problem.adjoint(observation[:1]).shape[1:])
    if len(pixels) != 3:
        raise ValueError(f"the problem gives images of shape {pixels}; observations must be of images (c, h, w)")
    for_network(score, observation.real)

    def rows(image: Tensor, number: Tensor) -> Tensor:
        """One draw for each (position of an image, number of a sample)."""
        y = observation[image.to(observation.device)]
        keys = ids[image].to(y.device), number.to(y.device)

        def noise(step: int) -> Tensor:
            return gaussian(seed, *keys, step, pixels, y.device).to(y.real.dtype)

        with torch.no_grad():
            return _swept(
                guided(score, y, problem, how, autocast=autocast),
                smooth_start(y, problem, how.prior),
                top,
                sde,
                how,
                noise,
            )

    batch = even_batch(len(observation) * samples, batch or samples)
    return per_image(rows, len(observation), samples, batch, reduce or (lambda draws: draws), None, ids)


def smooth_start(y: Tensor, problem: Linear, prior: float = 0.3) -> Tensor:
    """The mean given y of images that are smooth and nothing else, whose neighbours differ little.

    Where nothing is seen it goes on from what is seen nearby, where the image of least norm would be 0.
    """
    precision = 1 / problem.variance(y)

    def normal(x: Tensor) -> Tensor:
        rough = x * 0
        for axis in (-2, -1):
            edge = x.narrow(axis, 0, 1) * 0
            slope = torch.cat([edge, x.diff(dim=axis), edge], axis)
            rough = rough - slope.diff(dim=axis)
        rough = rough / _STEP**2 + 0.01 * x
        return problem.adjoint(precision * problem.forward(x)) + rough / prior**2

    return conjugate_gradients(normal, problem.adjoint(precision * y), steps=_SMOOTH)


def _swept(level: Guided, x: Tensor, top: float, sde: VESDE, how: Guidance, noise: Noise) -> Tensor:
    """From a start to a sample: the SDE from the greatest level down, in sweeps."""

    def score(x: Tensor, sigma: float) -> Tensor:
        """The score of x(v) given y."""
        mean, added = level(x, sigma)
        return (mean + added - x) / sigma**2

    for sweep in range(1, how.sweeps + 1):
        x = x + top * noise(_APART * sweep)
        later = lambda step, first=_APART * sweep + 1: noise(first + step)  # noqa: E731
        if how.sampler == "ancestral":
            x = _ancestral(level, x, top, sde, how.steps, later)
        else:
            x = SAMPLERS[str(how.sampler)][0](score, x, top, sde, how.steps, later)
    return x


def _ancestral(level: Guided, x: Tensor, top: float, sde: VESDE, steps: int, noise: Noise) -> Tensor:
    """Steps as published: x(w) given x(v) and D, and the whole pull. Ends at x(sigma_min); one evaluation a step."""
    for i, (sigma, lower) in enumerate(descent(top, sde, steps)):
        mean, pull = level(x, sigma)
        x = bridge(x, mean, sigma**2, lower**2, noise(i)) + pull
    return x
