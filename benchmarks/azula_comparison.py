"""Beside azula, with the same network, problem, start and evaluations: certified length, risk and seconds of each.

python -m benchmarks azula_comparison [METHOD LIBRARY]    (needs azula; minutes on one core)

Half of the pixels of the middle of phantoms are missing. The packaged network knows noise up to 0.22, so both begin
there, at the smooth image that fits the observation, and not at pure noise, which neither could start from. azula's
samplers are DDIM with eta = 1 around its MMPS and PGDM, and its DPS; that one draws one sample at a time, because its
norm spans the batch. The strength of DPS is 1 in both, the default of both. Ours takes three sweeps for `mmps`,
of a third of the evaluations each, which were chosen on other phantoms. With METHOD and a library (ours,
azula) that row alone is measured, into the same file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import pixelbounds as pb
from benchmarks.pages import result
from benchmarks.problems import middle, psnr
from pixelbounds.demo.packaged import NEW, network_file, some_phantoms
from pixelbounds.images.library import Array
from pixelbounds.problems import inpaint

PAGE = "docs/research/samplers.md"
SIDE, CALIBRATE, HELD_OUT = 24, 48, 48
FIRST = NEW + 3000  # of the phantoms: others were looked at while this was written
SAMPLES, MISCOVERAGE, LEVEL, CAP = 9, 0.25, 0.05, 0.25
EVALUATIONS, STEP = 12, 1.0  # of the network for a sample; STEP is that of DPS, in both
SWEEPS = 3  # of mmps, ours
PROBLEM = inpaint(0.5, 0.05)


def ours(method: str) -> Callable[[Any, int], Any]:
    """Our sampler: (1, 1, h, w), seed -> (samples, 1, h, w)."""
    import torch

    from pixelbounds.diffusion import Guidance, sample_linear
    from pixelbounds.diffusion.checkpoint import load_network

    network, sde, meta = load_network(network_file(), kind="score")
    network.requires_grad_(False)
    how = Guidance(method=method, steps=EVALUATIONS, step=STEP)
    if (
        method == "mmps"
    ):  # a sweep of `heun` takes an evaluation more than steps; azula's solver differentiates twice too
        how = Guidance(steps=EVALUATIONS // SWEEPS - 1, sweeps=SWEEPS, solver_steps=2)

    def draw(y: torch.Tensor, seed: int) -> torch.Tensor:
        top = meta["extra"]["sigma_top"]
        found = sample_linear(network, y, PROBLEM, sde, how, samples=SAMPLES, sigma_top=top, seed=seed)
        return torch.as_tensor(next(found))

    return draw


def theirs(method: str) -> Callable[[Any, int], Any]:
    """Azula's sampler of that name, from our start."""
    import torch

    from pixelbounds.diffusion.checkpoint import load_network
    from pixelbounds.diffusion.inverse import smooth_start

    network, sde, meta = load_network(network_file(), kind="score")
    network.requires_grad_(False)
    top = meta["extra"]["sigma_top"]
    denoise = import_module("azula.denoise")
    schedule_of = import_module("azula.noise").VESchedule
    isotropic = import_module("azula.linalg.covariance").IsotropicCovariance

    class Denoiser(denoise.Denoiser):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.schedule = schedule_of(sde.sigma_min, top)

        def forward(self, x_t: Any, t: Any, **_: Any) -> Any:
            _, sigma = self.schedule(t)
            return denoise.DiracPosterior(x_t + sigma**2 * network(x_t, sigma.expand(len(x_t))))

    def draw(y: torch.Tensor, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        words = {"steps": EVALUATIONS, "silent": True}
        batch = 1 if method == "dps" else SAMPLES
        rows = y.expand(batch, -1, -1, -1)
        if method == "mmps":
            covariance = isotropic(torch.tensor(PROBLEM.sigma_0**2))
            guided = import_module("azula.guidance.mmps").MMPSDenoiser(Denoiser(), rows, PROBLEM.forward, covariance)
            sampler = import_module("azula.sample").DDIMSampler(guided, eta=1.0, **words)
        elif method == "pigdm":
            made = import_module("azula.guidance.pgdm").PGDMSampler
            sampler = made(Denoiser(), rows, PROBLEM.forward, PROBLEM.adjoint, eta=1.0, **words)  # A' is the inverse
        else:
            sampler = import_module("azula.guidance.dps").DPSSampler(
                Denoiser(), rows, PROBLEM.forward, zeta=STEP, **words
            )
        start = smooth_start(y, PROBLEM)
        drawn = [sampler(start + top * torch.randn(batch, *y.shape[1:])) for _ in range(SAMPLES // batch)]
        return torch.cat(drawn)

    return draw


def row(library: str, method: str, draw: Callable[[Any, int], Any], truth: Array) -> dict[str, Any]:
    """Figures of one sampler."""
    import torch

    y = torch.from_numpy(PROBLEM(truth, 0))[:, None]
    draw(y[:1], 0)  # warms up
    begun = time.process_time()
    samples = np.stack([draw(y[i : i + 1], i)[:, 0].numpy() for i in range(len(y))])
    seconds = (time.process_time() - begun) / len(y)
    band = pb.calibrated_quantiles(samples, miscoverage=MISCOVERAGE, axis=1)
    first, rest = slice(0, CALIBRATE), slice(CALIBRATE, None)
    cal = pb.calibrate(truth[first], band[first], failure_prob=0.1, promises=[pb.share(LEVEL, cap=CAP)])
    interval = cal.apply(band[rest])
    missed = (truth[rest] < interval.lower) | (truth[rest] > interval.upper)
    return {
        "library": library,
        "method": method,
        "psnr_mean": psnr(truth[rest], samples[rest].mean(1)),
        "length": float(interval.length.mean()),
        "risk": float(missed.mean()),
        "seconds": seconds,
    }


def run(*wanted: str) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    truth = middle(some_phantoms(CALIBRATE + HELD_OUT, FIRST).images, SIDE)
    rows = []
    for method in ("mmps", "pigdm", "dps"):
        for library, made in (("ours", ours), ("azula", theirs)):
            if wanted in ((), (method, library)):
                rows.append(row(library, method, made(method), truth))
                print(rows[-1], flush=True)
    settings = {
        "side": SIDE, "calibrate": CALIBRATE, "held_out": HELD_OUT, "samples": SAMPLES, "evaluations": EVALUATIONS,
        "sweeps": SWEEPS, "step": STEP, "level": LEVEL, "cap": CAP, "miscoverage": MISCOVERAGE,
    }  # fmt: skip
    before = result("azula_comparison")
    if before["settings"] == settings:
        own = {(one["library"], one["method"]) for one in rows}
        rows = [one for one in before["rows"] if (one["library"], one["method"]) not in own] + rows
    return {"settings": settings, "azula": import_module("azula").__version__, "rows": rows}


def text() -> str:
    """The table of the page."""
    kept = result("azula_comparison")
    about, at = kept["settings"], kept["machine"]
    found = {(one["library"], one["method"]): one for one in kept["rows"]}
    lines = [
        "| method | certified length: ours, azula | difference | PSNR of the mean | risk | CPU seconds an image |",
        "|---|---|---|---|---|---|",
    ]
    for method in ("mmps", "pigdm", "dps"):
        own, other = found["ours", method], found["azula", method]
        lines.append(
            f"| `{method}` | {own['length']:.3f}, {other['length']:.3f} | {own['length'] / other['length'] - 1:+.1%} "
            f"| {own['psnr_mean']:.1f}, {other['psnr_mean']:.1f} | {own['risk']:.3f}, {other['risk']:.3f} "
            f"| {own['seconds']:.2f}, {other['seconds']:.2f} |"
        )
    said = (
        f"Half of the pixels missing, the middle {about['side']} x {about['side']} of {about['calibrate']} phantoms "
        f"that calibrate and {about['held_out']} that are held out, {about['samples']} samples of "
        f"{about['evaluations']} evaluations of the packaged network each, from one start; at most "
        f"{about['level']:.0%} missed, an image counting for at most {about['cap']:g}. azula {kept['azula']}, "
        f"commit {at['commit']}, {at['cpu'] or 'an unnamed CPU'}; one run each "
        "(`python -m benchmarks azula_comparison`)."
    )
    return "\n".join([*lines, "", said])
