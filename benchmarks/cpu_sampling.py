"""Networks side by side on a CPU: evaluations of 64 x 64 in turns, so that a busy machine slows all alike."""

from __future__ import annotations

import os
from functools import partial
from time import process_time
from typing import Any

import torch
from torch import nn

from pixelbounds.diffusion import configuration, network_of
from pixelbounds.diffusion.posterior import posterior_mean

SIZE, BATCH, SIGMA, REPEATS = 64, 32, 0.4, 5
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "small": ("small", {}),
    "lean": ("lean", {}),
    "tiny": ("tiny", {}),
    "lean, base 16": ("lean", {"base": 16}),  # of docs/diffusion.md
}


def awake(name: str, changes: dict[str, Any]) -> nn.Module:
    """The network with random weights everywhere: a zero convolution could be cheaper than a real one."""
    torch.manual_seed(0)
    network = network_of(configuration(name, size=SIZE, **changes)).eval()
    for parameter in network.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    return network.to(memory_format=torch.channels_last)


def run() -> dict[str, Any]:
    """Evaluations a second of the cores, by the fastest of several passes."""
    networks = {name: awake(*how) for name, how in NETWORKS.items()}
    y, load = torch.rand(BATCH, 1, SIZE, SIZE), os.getloadavg()[0]
    seconds = {name: float("inf") for name in networks}
    for _ in range(REPEATS):
        for name, evaluate in (
            (name, partial(posterior_mean, network, y, SIGMA)) for name, network in networks.items()
        ):
            begin = process_time()
            evaluate()
            seconds[name] = min(seconds[name], process_time() - begin)
    rows = [
        {
            "what": name,
            "parameters": sum(x.numel() for x in networks[name].parameters()),
            "evaluations/s": BATCH / taken,
        }
        for name, taken in seconds.items()
    ]
    return {"load": load, "threads": torch.get_num_threads(), "rows": rows}
