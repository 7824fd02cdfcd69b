"""Which integrator needs the fewest evaluations: the default against others, on laws known in closed form.

python -m benchmarks.integrators run    (writes benchmarks/results/integrators.json)
python -m benchmarks.integrators        (writes the figures of it into docs/diffusion.md)

`third order` is the exponential multistep with one more level of memory: D is a quadratic in log v through the newest
levels, in predictor and corrector. `fitted` has free levels and free weights: with s = 1 / v and B a Brownian motion,
evaluation j sees x_j s_j = x_0 s_0 + B(s_j) + (s_j - s_0) sum_k w_jk D_k, and levels and weights are those that bring
the joint law of all D_j nearest to the exact one, over Gaussian priors of all variances (least squares). For Gaussian
laws errors are exact; for a mixture of three Gaussians they are of draws, which leaves some 0.003.
"""

from __future__ import annotations

import json
import math
import sys
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.__main__ import RESULTS, machine
from benchmarks.readme import HERE, result, where, with_figures
from pixelbounds.diffusion.posterior import Level, Noise, Sampler, heun
from pixelbounds.diffusion.sde import VESDE

PAGE = "docs/diffusion.md"
BEGIN = "<!-- figures: python -m benchmarks.integrators -->"
SDE, SIGMA = VESDE(0.01, 1.0), 0.4
VARIANCES = torch.logspace(-4, 1, 64, dtype=torch.float64)
STEPS = (5, 6, 7, 8, 10, 12, 24)
FITTED_STEPS = 8  # at most; a fit of more takes long, and none is needed
DRAWS = 100_000
SEEN = (-0.3, 0.2, 0.6, 1.1)  # observations of the mixture
WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
MEANS = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
WIDTHS = torch.tensor([0.02, 0.05, 0.15], dtype=torch.float64) ** 2
_JOINT = 0.1  # weight of the joint law beside that of the result


# ---------------------------------------------------------------- integrators


def third_order(score: Level, y: Tensor, sigma_0: float, sde: VESDE, steps: int, noise: Noise) -> Tensor:
    """Extrapolate D through three levels, evaluate, correct through the new one and two before."""
    levels = [sigma_0 * (sde.sigma_min / sigma_0) ** (i / steps) for i in range(steps + 1)]
    x = y
    known = [(math.log(sigma_0**2), y + sigma_0**2 * score(y, sigma_0))]
    for i, (sigma, lower) in enumerate(pairwise(levels)):
        v, w = sigma**2, lower**2
        noisy = w / v * x + math.sqrt(w * (v - w) / v) * noise(i)
        predicted = noisy + (1 - w / v) * _mean_over(known[-3:], v, w)
        known.append((math.log(w), predicted + w * score(predicted, lower)))
        x = noisy + (1 - w / v) * _mean_over(known[-3:], v, w)
    return known[-1][1]


def _mean_over(known: list[tuple[float, Tensor]], v: float, w: float) -> Tensor:
    """Mean over 1 / u, for u from v to w, of the polynomial in log u through some values."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    log = -np.log(1 / v + (1 / w - 1 / v) * (nodes + 1) / 2)
    parts = []
    for i, (here, value) in enumerate(known):
        others = [there for j, (there, _) in enumerate(known) if j != i]
        basis = np.prod([(log - there) / (here - there) for there in others], axis=0)
        parts.append(float((weights * basis).sum() / 2) * value)
    return sum(parts[1:], parts[0])


def fitted(score: Level, y: Tensor, sigma_0: float, sde: VESDE, steps: int, noise: Noise) -> Tensor:
    """Levels and weights of a least-squares fit to Gaussian laws."""
    scaled, weights = fit(steps, sigma_0 / sde.sigma_min)
    s = scaled / sigma_0**2
    means = [y + sigma_0**2 * score(y, sigma_0)]
    path = torch.zeros_like(y)
    for j in range(1, steps + 1):
        path = path + math.sqrt(s[j] - s[j - 1]) * noise(j)
        drift = sum(float(w) * mean for w, mean in zip(weights[j - 1], means, strict=True))
        x = (s[0] * y + path + (s[j] - s[0]) * drift) / s[j]
        means.append(x + score(x, float(s[j] ** -0.5)) / s[j])
    return means[-1]


@lru_cache
def fit(steps: int, ratio: float) -> tuple[np.ndarray, list[np.ndarray]]:
    """s_j in units of 1 / sigma_0^2, and the rows of weights, each of sum 1: Levenberg-Marquardt from Euler's."""
    variances = torch.logspace(-2 * math.log10(ratio) - 1, 1.3, 48, dtype=torch.float64)
    even = np.exp(2 * math.log(ratio) * np.arange(steps + 1) / steps)
    rows = [np.diff(even[: j + 1])[:-1] / (even[j] - 1) for j in range(1, steps + 1)]
    theta = torch.tensor(np.concatenate([np.zeros(steps), *rows]))

    def residual(point: Tensor) -> Tensor:
        return _residual(point, steps, ratio, variances)

    damping, now = 0.1, residual(theta)
    for _ in range(200):
        slope = torch.func.jacfwd(residual)(theta)
        normal = slope.T @ slope
        while damping < 1e12:
            step = torch.linalg.solve(normal + damping * torch.diag(normal.diagonal() + 1e-9), -slope.T @ now)
            new = residual(theta + step)
            if new.square().sum() < now.square().sum():
                break
            damping *= 4
        else:
            break
        gain = float(1 - new.square().sum() / now.square().sum())
        theta, now, damping = theta + step, new, damping / 5
        if gain < 1e-6:
            break
    s, weights = _levels_and_weights(theta, steps, ratio)
    return s.numpy(), [row.numpy() for row in weights]


def _levels_and_weights(theta: Tensor, steps: int, ratio: float) -> tuple[Tensor, list[Tensor]]:
    shares = torch.softmax(theta[:steps], 0)
    s = torch.exp(2 * math.log(ratio) * torch.cat([torch.zeros_like(shares[:1]), shares.cumsum(0)]))
    free = torch.split(theta[steps:], list(range(steps)))
    return s, [torch.cat([row, 1 - row.sum()[None]]) for row in free]


def _residual(theta: Tensor, steps: int, ratio: float, c: Tensor) -> Tensor:
    """Deviation of the result, and covariances of all D_j, against the exact ones, in exact deviations."""
    s, weights = _levels_and_weights(theta, steps, ratio)
    step = (s[1:] - s[:-1]).sqrt()
    means = [torch.zeros(steps, len(c), dtype=theta.dtype)]  # answers to each step's noise; the mean is exact
    for j in range(1, steps + 1):
        noise = torch.where(torch.arange(steps) < j, step, 0.0)[:, None]
        drift = (weights[j - 1][:, None, None] * torch.stack(means)).sum(0)
        means.append(c / (c * s[j] + 1) * (noise + (s[j] - 1) * drift))
    found = torch.stack(means[1:])
    exact = c**2 * (s[1:, None] - 1) / ((c + 1) * (c * s[1:, None] + 1))  # D is a martingale
    covariance = torch.einsum("jzc,kzc->jkc", found, found)
    scale = (exact[:, None] * exact[None]).sqrt()
    smaller = torch.minimum(exact[:, None], exact[None])
    joint = ((covariance - smaller) / scale)[torch.tril(torch.ones(steps, steps, dtype=torch.bool))]
    result = (covariance[-1, -1].sqrt() - exact[-1].sqrt()) / (c / (c + 1)).sqrt()
    return torch.cat([result, _JOINT * joint.flatten()])


WAYS: dict[str, Sampler] = {"heun": heun, "third order": third_order, "fitted": fitted}


# ---------------------------------------------------------------- laws


def gaussian_error(way: Sampler, steps: int) -> float:
    """Greatest error of the deviation over all prior variances, in posterior deviations; the mean is exact."""
    c, calls = VARIANCES, []
    y = torch.zeros(steps + 1, len(c), dtype=torch.float64)  # a row answers to one noise

    def noise(step: int) -> Tensor:
        calls.append(step)
        impulse = torch.zeros_like(y)
        impulse[len(calls)] = 1
        return impulse

    found = way(lambda x, sigma: -x / (c + sigma**2), y, SIGMA, SDE, steps, noise).square().sum(0).sqrt()
    v, v_0 = SDE.sigma_min**2, SIGMA**2
    exact = c / (c + v) * ((c + v) * (v_0 - v) / (c + v_0)).sqrt()
    return float(((found - exact).abs() / (c * v_0 / (c + v_0)).sqrt()).max())


def parts(x: Tensor, v: float) -> tuple[Tensor, Tensor]:
    """Weight and mean of the image in each component of the mixture, given its noised version."""
    distance, total = x[..., None] - MEANS, WIDTHS + v
    log = WEIGHTS.log() - 0.5 * distance**2 / total - 0.5 * total.log()
    return log.softmax(-1), MEANS + WIDTHS / total * distance


def mixture_score(x: Tensor, sigma: float) -> Tensor:
    """The score of the noised mixture."""
    weight, mean = parts(x, sigma**2)
    return ((weight * mean).sum(-1) - x) / sigma**2


def mixture_errors(way: Sampler, steps: int) -> tuple[float, float]:
    """Mean Wasserstein distance, and mean error of the 5% and 95% quantiles, in posterior deviations."""
    generator = torch.Generator().manual_seed(0)
    levels = torch.tensor([0.05, 0.95], dtype=torch.float64)
    distances, ends = [], []
    for seen in SEEN:
        y = torch.full((DRAWS,), seen, dtype=torch.float64)
        drawn = way(mixture_score, y, SIGMA, SDE, steps, lambda _: torch.randn(DRAWS, generator=generator).double())
        exact = _exact(seen, generator)
        spread = float(exact.std())
        distances.append(float((drawn.sort().values - exact.sort().values).abs().mean()) / spread)
        ends.append(float((drawn.quantile(levels) - exact.quantile(levels)).abs().mean()) / spread)
    return float(np.mean(distances)), float(np.mean(ends))


def _exact(seen: float, generator: torch.Generator) -> Tensor:
    """Draws of the posterior mean given x(sigma_min), given what was seen."""
    weight, mean = parts(torch.tensor(seen, dtype=torch.float64), SIGMA**2)
    chosen = torch.multinomial(weight, DRAWS, replacement=True, generator=generator)
    deviation = (WIDTHS * SIGMA**2 / (WIDTHS + SIGMA**2)).sqrt()
    noise = torch.randn(2, DRAWS, generator=generator).double()
    noisy = mean[chosen] + deviation[chosen] * noise[0] + SDE.sigma_min * noise[1]
    return noisy + SDE.sigma_min**2 * mixture_score(noisy, SDE.sigma_min)


# ---------------------------------------------------------------- figures


def run() -> list[dict[str, Any]]:
    """Errors of every way at every number of steps."""
    rows = []
    for name, way in WAYS.items():
        for steps in STEPS:
            if name == "fitted" and steps > FITTED_STEPS:
                continue
            distance, ends = mixture_errors(way, steps)
            rows.append(
                {"way": name, "evaluations": steps + 1, "gaussian": gaussian_error(way, steps), "mixture": distance,
                 "ends": ends}
            )  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def text() -> str:
    found = result("integrators")
    by = {(row["way"], row["evaluations"]): row for row in found["rows"]}
    counts = sorted({row["evaluations"] for row in found["rows"]})
    lines = [
        "| evaluations | " + " | ".join(f"{way}: Gaussian | mixture | its ends" for way in WAYS) + " |",
        "|---:|" + "---:|" * (3 * len(WAYS)),
    ]
    for count in counts:
        cells = []
        for way in WAYS:
            row = by.get((way, count))
            cells += [f"{row[name]:.3f}" if row else "" for name in ("gaussian", "mixture", "ends")]
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"`python -m benchmarks.integrators run`, {where(found)}."])


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        torch.set_num_threads(1)
        found = {"machine": machine(), "rows": run()}
        (RESULTS / "integrators.json").write_text(json.dumps(found, indent=1) + "\n")
    else:
        (HERE.parent / PAGE).write_text(with_figures(PAGE, BEGIN, text()))
