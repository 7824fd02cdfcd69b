"""Threads that wait for each other, in training on a CPU: python -m benchmarks.cpu_training.

A step of `tiny` at 64 x 64 in a process of its own, with one thread, with a thread a core that wait by running in
circles (OpenMP's default), and with threads that sleep while they wait (`OMP_WAIT_POLICY=PASSIVE`, which
`pixelbounds train` sets); alone, and beside a program that keeps one core busy. A way that has not done its steps after
a minute and a half is ended, and its images per second are below what is written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

BATCH, STEPS, MOST = 32, 3, 90
STEP = f"""
import sys, time, torch
from pixelbounds.diffusion import NCSNpp, configuration
from pixelbounds.diffusion.trainer import score_matching
torch.set_num_threads(int(sys.argv[1]))
network = NCSNpp(configuration("tiny", size=64)).train()
optimizer = torch.optim.AdamW(network.parameters())
x, sigma = torch.rand({BATCH}, 1, 64, 64), torch.full(({BATCH},), 0.2)
for step in range({STEPS + 1}):
    if step == 1:
        begin = time.perf_counter()
    loss = score_matching(network, x, sigma, torch.randn_like(x)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print({BATCH * STEPS} / (time.perf_counter() - begin))
"""
BUSY = "while True: pass"
OUT = Path(__file__).parent / "results" / "cpu_training.json"


def speed(threads: int, sleep: bool) -> dict[str, float | bool]:
    """Images per second, and whether all steps were done in time."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environment |= {"OMP_WAIT_POLICY": "PASSIVE"} if sleep else {}
    words = [sys.executable, "-c", STEP, str(threads)]
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=MOST)
    except subprocess.TimeoutExpired:
        return {"images_per_second": BATCH * (STEPS + 1) / MOST, "finished": False}
    return {"images_per_second": float(done.stdout), "finished": True}


def main() -> None:
    cores = os.cpu_count() or 1
    ways = {"one thread": (1, False), "a thread a core": (cores, False), "a thread a core, asleep": (cores, True)}
    found: dict[str, object] = {"cores": cores, "load_before": os.getloadavg()[0]}
    for neighbours in (0, 1):
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(neighbours)]
        try:
            for name, way in ways.items():
                found[f"{name}, {neighbours} neighbours"] = speed(*way)
                print(name, neighbours, found[f"{name}, {neighbours} neighbours"], flush=True)
        finally:
            for process in busy:
                process.kill()
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
