"""Denoising and sampling with the tiny NCSN++ on a CPU, against its plain eager forward in contiguous float32."""

from __future__ import annotations

from time import perf_counter
from unittest.mock import patch

import torch
from torch import Tensor, nn

from pixelbounds.diffusion import NCSNpp, configuration
from pixelbounds.diffusion.posterior import SAMPLERS, automatic_batch, posterior_mean, sample
from pixelbounds.diffusion.sde import VESDE

SIZE = 64
SAMPLES = 64
SIGMA = 0.4
SDE = VESDE(0.01, 1.0)
REPEATS = 7


def tiny() -> NCSNpp:
    """The network with random weights everywhere: a zero convolution could be cheaper than a real one."""
    torch.manual_seed(0)
    network = NCSNpp(configuration("tiny", size=SIZE)).eval()
    for parameter in network.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    return network


def plain_forward(network: NCSNpp, x: Tensor, sigma: Tensor) -> Tensor:
    """The same network with maps in torch's default layout, (b, c, h, w) contiguous."""
    with patch.object(torch, "channels_last", torch.contiguous_format):
        return network(x, sigma)


def run() -> list[dict[str, object]]:
    network = tiny().to(memory_format=torch.channels_last)  # as `load` gives it
    contiguous = tiny()
    y = torch.rand(1, 1, SIZE, SIZE) + SIGMA * torch.randn(1, 1, SIZE, SIZE)
    batch = automatic_batch(network, y, SIGMA)
    x = y.expand(batch, -1, -1, -1).contiguous()
    levels = torch.full((batch,), SIGMA)

    def plain() -> Tensor:
        with torch.no_grad():
            return x + SIGMA**2 * plain_forward(contiguous, x, levels)

    def ours() -> Tensor:
        return posterior_mean(network, x, SIGMA)

    torch.testing.assert_close(ours(), plain(), rtol=1e-4, atol=1e-4)
    steps: dict[str, list[float]] = {
        "plain eager": [],
        "shipped": [],
    }  # in turns, so that a loaded machine slows both alike
    for _ in range(REPEATS):
        for name, function in (("plain eager", plain), ("shipped", ours)):
            begin = perf_counter()
            function()
            steps[name].append(perf_counter() - begin)
    best = {name: min(times) for name, times in steps.items()}
    begin = perf_counter()
    next(sample(network, y, SIGMA, SDE, samples=SAMPLES))
    whole = perf_counter() - begin
    threads = torch.get_num_threads()
    rows: list[dict[str, object]] = [
        {
            "what": f"denoising step, {name}, batch {batch}",
            "seconds": t,
            "ms per image": 1e3 * t / batch,
            "times plain": t / best["plain eager"],
            "threads": threads,
        }
        for name, t in best.items()
    ]
    evaluations = SAMPLES * (SAMPLERS["heun"][1] + 1)
    return [
        *rows,
        {
            "what": f"{SAMPLES} samples of {SIZE} x {SIZE}, heun, {SAMPLERS['heun'][1]} steps",
            "seconds": whole,
            "ms per image": 1e3 * whole / evaluations,
            "times plain": whole / evaluations * batch / best["plain eager"],
            "threads": threads,
        },
    ]
