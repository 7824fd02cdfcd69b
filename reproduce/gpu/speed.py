"""Training and sampling speed on a GPU against plain loops: python -m reproduce.gpu.speed --out speed_gpu.json.

Samples x steps per second of the shipped path with `--compile` (bfloat16, channels last) against the plain fp32 eager
loop of Algorithm 3 with the same network; shares of the matrix peak that the same run measures; memory. torch and numpy
only.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from pixelbounds.diffusion import VESDE, Reduction, automatic_batch, configuration, network_of, sample
from pixelbounds.diffusion.posterior import SAMPLERS
from pixelbounds.diffusion.trainer import Settings, train


def peak() -> float:
    """Operations per second of a large bfloat16 matrix product on random data."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = timed(lambda: a @ b, 10)
    return 2 * 8192**3 / seconds


def timed(function: Callable[[], object], repeats: int, warm: int = 2) -> float:
    """Seconds of one call, after some to warm up."""
    for _ in range(warm):
        function()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeats


def plain(network: torch.nn.Module, y: torch.Tensor, sigma_0: float, sde: VESDE, steps: int) -> torch.Tensor:
    """Algorithm 3 as printed, step by step."""
    dt = 1 / 300
    n, x = int(sde.time(sigma_0) / dt), y.clone()
    for i in range(n, n - steps, -1):
        sigma, g2 = sde.sigma(i * dt), sde.diffusion(i * dt) ** 2
        pull = (y - x) / (sigma_0**2 - sigma**2) if sigma_0 > sigma else torch.zeros_like(x)
        score = network(x, torch.full((len(x),), sigma, device=x.device))
        x = x + g2 * (score + pull) * dt + (g2 * dt) ** 0.5 * torch.randn_like(x)
    return x


def kernels(work: Callable[[], object], rows: int = 28) -> list[list[Any]]:
    """Milliseconds, count and name of the kernels that take longest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.device_time_total)
    total = sum(event.device_time_total for event in events)
    found = [[event.device_time_total / 1e3, event.count, event.key[:110]] for event in events[:rows]]
    return [[total / 1e3, sum(event.count for event in events), "all"], *found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="small")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--train-seconds", type=float, default=20)
    parser.add_argument("--profile", action="store_true", help="print where the time of one evaluation goes")
    parser.add_argument("--out", required=True, help="a JSON file, written after every part")
    options = parser.parse_args()
    config = configuration(options.network, size=64, blocks=options.blocks, dropout=0.1)
    sde, sigma_0, top = VESDE(0.01, 1.0), 0.4, peak()
    network = network_of(config).cuda().eval().to(memory_format=torch.channels_last)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, 1, 64, 64, device="cuda"), torch.ones(1, device="cuda"))
    flops = counter.get_total_flops()
    figures: dict[str, object] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "peak_bf16": top,
        "parameters": sum(p.numel() for p in network.parameters()), "flops_per_evaluation": flops,
    }  # fmt: skip

    def say(what: str, numbers: dict[str, object]) -> None:
        figures[what] = numbers
        print(what, json.dumps(numbers), flush=True)
        Path(options.out).write_text(json.dumps(figures, indent=1) + "\n")

    compiled = torch.compile(network, fullgraph=True)
    y = torch.randn(24, 1, 64, 64, device="cuda") * 0.4
    reduction, evaluations = Reduction(ranks=(6, 123)), SAMPLERS["heun"][1] + 1
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    batch = automatic_batch(compiled, y, sigma_0)

    def shipped() -> None:
        list(sample(compiled, y, sigma_0, sde, samples=128, reduce=reduction, batch=batch))

    begin = time.perf_counter()
    shipped()
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    ours = 24 * 128 * evaluations / timed(shipped, 2, warm=0)
    memory = (torch.cuda.max_memory_allocated() - before) / 2**30
    eager, z = network_of(config).cuda().eval(), y[:1].expand(256, -1, -1, -1).contiguous()
    with torch.no_grad():
        theirs = 256 * 8 / timed(lambda: plain(eager, z, sigma_0, sde, 8), 1)
    say("sampling", {
        "batch": batch, "evaluations_per_second": ours, "share_of_peak": ours * flops / top,
        "plain_fp32_eager": theirs, "ratio": ours / theirs, "first_run_seconds": first, "memory_gib": memory,
        "free_gib": torch.cuda.mem_get_info()[0] / 2**30,
    })  # fmt: skip
    if options.profile:
        x, sigma = y[:1].expand(batch, -1, -1, -1).contiguous(), torch.full((batch,), 0.3, device="cuda")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile, torch.no_grad():
            with torch.autocast("cuda", torch.bfloat16):
                compiled(x, sigma)
            torch.cuda.synchronize()
        events = sorted(profile.key_averages(), key=lambda event: -event.device_time_total)
        for event in events[:24]:
            print(f"{event.device_time_total / 1e3:8.2f} ms x{event.count:3d} {event.key[:100]}", flush=True)
    images = np.random.default_rng(0).integers(0, 255, (4096, 64, 64), dtype=np.uint8)
    lines: list[dict[str, object]] = []
    settings = Settings(seconds=options.train_seconds, batch=256, compile=True, log_every=20, checkpoint_every=10**9)
    train(network_of(config), images, sde=sde, settings=settings, progress=lines.append)
    speed = max(float(str(line["images_per_second"])) for line in lines)
    say("training", {"images_per_second": speed, "share_of_peak": 3 * flops * speed / top})


if __name__ == "__main__":
    main()
