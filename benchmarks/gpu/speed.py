"""Training and sampling speed on a GPU against plain loops: python -m benchmarks.gpu.speed [--quick].

Samples x steps per second of the shipped path (compiled, bfloat16, channels last) against the plain fp32 eager loop of
Algorithm 3 with the same network; shares of the matrix peak that the same run measures; memory. torch and numpy only.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from pixelbounds.diffusion import VESDE, NCSNpp, Reduction, automatic_batch, configuration, sample
from pixelbounds.diffusion.training import Settings, train


def peak() -> float:
    """Operations per second of a large bfloat16 matrix product on random data."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = timed(lambda: a @ b, 10)
    return 2 * 8192**3 / seconds


def timed(function: Callable[[], object], repeats: int) -> float:
    """Seconds of one call, after two to warm up."""
    for _ in range(2):
        function()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeats


def plain(network: NCSNpp, y: torch.Tensor, sigma_0: float, sde: VESDE, steps: int) -> torch.Tensor:
    """Algorithm 3 as printed, step by step."""
    dt = 1 / 300
    n, x = int(sde.time(sigma_0) / dt), y.clone()
    for i in range(n, n - steps, -1):
        sigma, g2 = sde.sigma(i * dt), sde.diffusion(i * dt) ** 2
        pull = (y - x) / (sigma_0**2 - sigma**2) if sigma_0 > sigma else torch.zeros_like(x)
        score = network(x, torch.full((len(x),), sigma, device=x.device))
        x = x + g2 * (score + pull) * dt + (g2 * dt) ** 0.5 * torch.randn_like(x)
    return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="small")
    parser.add_argument("--base", type=int, default=None)
    parser.add_argument("--quick", action="store_true", help="only the compiled forward pass and a few training steps")
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    changes = {} if options.base is None else {"base": options.base}
    config, sde, sigma_0 = configuration(options.network, size=64, **changes), VESDE(0.01, 1.0), 0.4
    top = peak()
    figures: dict[str, object] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "peak_bf16": top}
    network = NCSNpp(config).cuda().eval().to(memory_format=torch.channels_last)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, 1, 64, 64, device="cuda"), torch.ones(1, device="cuda"))
    flops = counter.get_total_flops()
    figures["parameters"], figures["flops_per_image"] = sum(p.numel() for p in network.parameters()), flops
    begin = time.perf_counter()
    compiled = torch.compile(network)
    for batch in (512, 1024):
        x, sigma = torch.randn(batch, 1, 64, 64, device="cuda"), torch.full((batch,), 0.3, device="cuda")

        def forward(x: torch.Tensor = x, sigma: torch.Tensor = sigma, f: torch.nn.Module = compiled) -> torch.Tensor:
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                return f(x, sigma)

        seconds = timed(forward, 5)
        eager = timed(lambda x=x, sigma=sigma: forward(x, sigma, network), 3)
        figures[f"forward_{batch}"] = {
            "evaluations_per_second": batch / seconds,
            "share_of_peak": flops * batch / seconds / top,
            "eager_share_of_peak": flops * batch / eager / top,
        }
    figures["compile_and_time_seconds"] = time.perf_counter() - begin
    print(json.dumps(figures, indent=1), flush=True)
    if options.quick:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            forward()
            torch.cuda.synchronize()
        print(
            profile.key_averages().table(sort_by="cuda_time_total", row_limit=16, max_name_column_width=70), flush=True
        )
    images = np.random.default_rng(0).integers(0, 255, (4096, 64, 64), dtype=np.uint8)
    seconds = 60.0 if options.quick else 90.0
    lines: list[dict[str, object]] = []
    train(NCSNpp(config), images, sde=sde, settings=Settings(seconds=seconds, batch=256, compile=True, log_every=20,
          checkpoint_every=10**9), progress=lines.append)  # fmt: skip
    speed = max(float(line["images_per_second"]) for line in lines)
    figures["training"] = {
        "images_per_second": speed,
        "share_of_peak": 3 * flops * speed / top,
        "first": lines[0],
        "last": lines[-1],
    }
    print(json.dumps(figures["training"]), flush=True)
    if not options.quick:
        y = torch.randn(24, 1, 64, 64, device="cuda") * 0.4
        torch.cuda.reset_peak_memory_stats()
        batch = automatic_batch(compiled, y, sigma_0)
        reduction = Reduction(ranks=(6, 123), held_out=0)
        begin = time.perf_counter()
        list(sample(compiled, y, sigma_0, sde, samples=128, reduce=reduction, batch=batch))
        torch.cuda.synchronize()
        ours = 24 * 128 * 25 / (time.perf_counter() - begin)
        begin = time.perf_counter()
        list(sample(compiled, y, sigma_0, sde, samples=128, reduce=reduction, batch=batch))
        torch.cuda.synchronize()
        ours = max(ours, 24 * 128 * 25 / (time.perf_counter() - begin))
        figures["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
        z = y[:1].expand(256, -1, -1, -1).contiguous()
        eager = NCSNpp(config).cuda().eval()
        with torch.no_grad():
            theirs = 256 * 8 / timed(lambda: plain(eager, z, sigma_0, sde, 8), 2)
        figures["sampling"] = {"batch": batch, "evaluations_per_second": ours, "share_of_peak": ours * flops / top,
                               "plain_fp32_eager": theirs, "ratio": ours / theirs}  # fmt: skip
        print(json.dumps(figures["sampling"]), flush=True)
    if options.out:
        Path(options.out).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
