"""Where the time of a network goes on a GPU, and what ways there are to spend less of it.

    python -m reproduce.gpu.rates all --out DIR --commit C [plain tuned batch-128 ...]     # on the GPU
    python -m reproduce.gpu.rates collect DIR/rates.json ...      # at home: into results/rates_gpu.json, for `page`

Every way compiles in a process of its own, all at once, waits for the others to be ready or given up, and for its turn
to be timed: a compiler that tries kernels takes the GPU from whoever is timed. Evaluations a second (bfloat16, channels
last) and their share of the matrix peak that the same run measures; training steps a second; for `plain` the kernels
that take longest. torch and numpy are all it needs.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pixelbounds.diffusion import network as network_module
from pixelbounds.diffusion.network import NCSNpp, _doubled, configuration, double
from pixelbounds.diffusion.trainer import score_matching

from .speed import peak, timed
from .variants import network_of, variant

SPREAD = (0.1718, 0.2173)  # of ct64
BATCH, TRAIN = 1152, 256
RESULTS = Path(__file__).parents[1] / "results"


def phases(x: torch.Tensor) -> torch.Tensor:
    """`network.double` as four maps of the old size, one for each place of a pixel among its four, then interleaved."""
    wide = nn.functional.pad(x, (1, 1, 1, 1), mode="replicate")
    rows = [0.75 * wide[:, :, 1:-1] + 0.25 * near for near in (wide[:, :, :-2], wide[:, :, 2:])]
    parts = [0.75 * row[..., 1:-1] + 0.25 * near for row in rows for near in (row[..., :-2], row[..., 2:])]
    (b, c, h, w), out = x.shape, torch.stack(parts, -1)
    out = out.view(b, c, h, w, 2, 2).permute(0, 1, 2, 4, 3, 5).reshape(b, c, 2 * h, 2 * w)
    return out.contiguous(memory_format=torch.channels_last)


@torch.library.custom_op("pixelbounds_rates::double", mutates_args=())
def native(x: torch.Tensor) -> torch.Tensor:
    """`network.double` by the kernel of torch, which a compiler does not take apart."""
    return double(x)


@native.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    shape = (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
    return x.new_empty(shape).contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Way:
    """A network, how many images it takes at once, what is changed about it or its compiler, and whether it trains."""

    variant: str = "plain"  # of `small`; or "celeba", of 128 x 128 x 3
    batch: int = BATCH
    options: dict[str, Any] = field(default_factory=dict)
    trains: bool = False
    size: int = 64

    def network(self) -> nn.Module:
        """With fresh weights."""
        if self.variant == "celeba":
            return NCSNpp(configuration("celeba", channels=3))
        return network_of(variant(self.variant), self.size, SPREAD)


_CAST: dict[str, Any] = {"cast": True}  # weights are cast once, not in every evaluation
_FROZEN: dict[str, Any] = {"freezing": True}  # weights are constants: a program for each network
_PHASES: dict[str, Any] = {"double": phases}
WAYS = {
    "plain": Way(trains=True),
    "large-batch": Way(batch=4 * BATCH, options=_CAST),
    "batch-128": Way(batch=128),  # maps stay in the second cache
    "batch-64": Way(batch=64, options=_PHASES | _CAST),
    "batch-32": Way(batch=32, options=_PHASES | _CAST),  # the widest map is 17 MB, a third of the cache
    "batch-32-frozen": Way(batch=32, options=_PHASES | _FROZEN),
    "tuned": Way(options={"coordinate_descent_tuning": True}),
    "shifted": Way(options={"double": _doubled}),  # the doubling of training, in place of a gather
    "native": Way(options={"double": native}),
    "phases": Way(options=_PHASES),
    "cast": Way(options=_CAST),
    "phases-cast": Way(options=_PHASES | _CAST),
    "frozen": Way(options=_FROZEN),
    "phases-frozen": Way(options=_PHASES | _FROZEN),
    "autotuned": Way(options={"max_autotune": True}),  # compiles for minutes
    "patch": Way("patch", trains=True),
    "width-32": Way("width-32", trains=True),
    "width-128": Way("width-128", trains=True),
    "size-128": Way(batch=BATCH // 4, size=128),
    "celeba": Way("celeba", batch=64, size=128),
}


def kernels(work: Callable[[], object], rows: int = 28) -> list[list[Any]]:
    """Milliseconds, count and name of the kernels that take longest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.device_time_total)
    total = sum(event.device_time_total for event in events)
    found = [[event.device_time_total / 1e3, event.count, event.key[:110]] for event in events[:rows]]
    return [[total / 1e3, sum(event.count for event in events), "all"], *found]


def graph_of(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """The kernels of some work, to be launched at once."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def one(way: str, out: Path, device: str, seconds: float) -> None:
    """Compile a way, wait for the turn, time it."""
    told = WAYS[way]
    batch, options, trains = told.batch, told.options, told.trains
    for option, value in options.items():
        if option == "double":
            network_module.double = value
        elif option != "cast":
            setattr(torch._inductor.config, option, value)
    cuda = device == "cuda"
    batch, train = (batch, TRAIN) if cuda else (4, 4)
    network = told.network().to(device, memory_format=torch.channels_last)
    shape = (network.config.channels, told.size, told.size)
    for weight in network.parameters():
        nn.init.normal_(weight, std=0.05)  # layers that start at 0 would let their input be anything
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(torch.zeros(1, *shape, device=device), torch.ones(1, device=device))
    if options.get("cast"):  # what autocast would make of them, every time
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.to(torch.bfloat16)
    compiled = torch.compile(network) if cuda else network
    x, sigma = torch.randn(batch, *shape, device=device), torch.full((batch,), 0.3, device=device)

    def evaluate() -> torch.Tensor:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            return compiled(x, sigma)

    begin = time.monotonic()
    evaluate()
    found: dict[str, Any] = {"way": way, "batch": batch, "flops": counter.get_total_flops()}
    found |= {"compile": round(time.monotonic() - begin, 1), "torch": torch.__version__}
    found |= {"device": torch.cuda.get_device_name() if cuda else "CPU"}

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            loss = score_matching(compiled, x[:train], sigma[:train], torch.randn_like(x[:train])).mean()
        loss.backward()

    if trains:
        network.train()
        begin = time.monotonic()
        step()
        found |= {"compile_training": round(time.monotonic() - begin, 1)}
        network.eval()
    print(way, "is ready", json.dumps(found), flush=True)
    (out / f"compiling-{way}").unlink(missing_ok=True)
    end = time.monotonic() + seconds
    while any(out.glob("compiling-*")) and time.monotonic() < end:
        time.sleep(0.2)
    with (out / "turn.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if cuda:
            top = peak()
            each = counter.get_total_flops() / top
            rate, replayed = batch / timed(evaluate, 10), batch / timed(graph_of(evaluate).replay, 10)
            found |= {"evaluations": rate, "share": rate * each, "peak": top}
            found |= {"evaluations_in_a_graph": replayed, "share_in_a_graph": replayed * each}
            if way == "plain":
                found["kernels"] = kernels(evaluate)
            if trains:
                network.train()
                found |= {"training_steps": 1 / timed(step, 6)}
                if way == "plain":
                    found["training_kernels"] = kernels(step)
    (out / f"rate-{way}.json").write_text(json.dumps(found) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("does", choices=("all", "one", "collect"))
    parser.add_argument("ways", nargs="*", help=f"of {', '.join(WAYS)}; all unless told; files for collect")
    parser.add_argument("--out", default="rates", type=Path, help="a folder; JSON is written there")
    parser.add_argument("--commit", default="", help="of what is timed, kept beside the figures")
    parser.add_argument("--seconds", type=float, default=240, help="after which nothing more is waited for")
    options = parser.parse_args()
    if options.does == "collect":
        rows = [row for file in options.ways for row in json.loads(Path(file).read_text())]
        (RESULTS / "rates_gpu.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    if options.does == "one":
        one(options.ways[0], options.out, "cuda" if torch.cuda.is_available() else "cpu", options.seconds)
        return
    end = time.monotonic() + options.seconds
    words = [sys.executable, "-m", "reproduce.gpu.rates", "one"]
    ways = options.ways or list(WAYS)
    running = {}
    for way in ways:
        (options.out / f"compiling-{way}").touch()
    for way in ways:  # what is compiled with the usual options is worth keeping
        cache = {"TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor-others"} if WAYS[way].options else {}
        running[way] = subprocess.Popen([*words, way, "--out", str(options.out)], env=os.environ | cache)
    while any(options.out.glob("compiling-*")) and time.monotonic() < end:
        for way in [way for way, process in running.items() if process.poll() is not None]:
            (options.out / f"compiling-{way}").unlink(missing_ok=True)  # one that failed holds nobody up
        time.sleep(0.2)
    for way, process in running.items():
        mark = options.out / f"compiling-{way}"
        if mark.exists():
            process.kill()
            mark.unlink()
    for process in running.values():
        process.wait()
    rows = []
    for way in ways:
        file = options.out / f"rate-{way}.json"
        if not file.exists():
            print(way, "was not ready in time", flush=True)
            continue
        found = json.loads(file.read_text()) | {"commit": options.commit}
        file.unlink()
        rows.append(found)
        for name in ("kernels", "training_kernels"):
            for milliseconds, count, kernel in found.get(name, ()):
                print(f"{milliseconds:9.2f} ms x{count:4d} {kernel}")
        print(json.dumps({key: x for key, x in found.items() if "kernels" not in key}), flush=True)
    (options.out / "rates.json").write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
