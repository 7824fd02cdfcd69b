"""Labels of organs that a small network finds in noisy slices of chests: what is known at test time."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from pixelbounds.diffusion import network_of
from pixelbounds.diffusion.posterior import in_bfloat16

from .bench import Bench, observe, write_arrays
from .sets import organs_of

Array = np.ndarray
ORGANS = ("trachea", "heart", "lung")  # classes from 1 on; 0 is none


def organs(options: argparse.Namespace) -> None:
    """Train a network to tell organs in noisy slices of the patients that train, and label the measured ones."""
    bench = Bench(options)
    bench.turn()
    labels, sigma_0, device = organs_of(Path(options.data)), bench.data.sigma_0, bench.device
    config = replace(bench.config, out_channels=1 + len(ORGANS), divide_by_sigma=False)
    network = network_of(config).to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    images = torch.from_numpy(bench.shown.train).to(device)
    known = torch.from_numpy(labels[bench.shown.learned]).to(device)
    rows = torch.Generator(device).manual_seed(0)
    level = torch.full((options.batch,), sigma_0, device=device)
    steps, begin = 0, time.monotonic()
    while time.monotonic() - begin < (options.seconds or np.inf) and steps < (options.steps or np.inf):
        chosen = torch.randint(len(images), (options.batch,), generator=rows, device=device)
        x = images[chosen][:, None].float() / 255
        noisy = (x + sigma_0 * torch.randn_like(x)).contiguous(memory_format=torch.channels_last)
        with in_bfloat16(x, True):
            scores = network(noisy, level)
        loss = functional.cross_entropy(scores.float(), known[chosen].long())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        steps += 1
    network.eval()
    found = []
    for y in torch.from_numpy(observe(bench.shown, bench.data))[:, None].split(options.batch):
        with torch.no_grad(), in_bfloat16(images, True):
            scores = network(y.to(device, memory_format=torch.channels_last), level[: len(y)])
        found.append(scores.argmax(1).byte().cpu().numpy())
    told, true = np.concatenate(found), labels[bench.shown.numbers]
    write_arrays(bench.out, {"labels": told, "organs": true})
    overlap = {name: dice(told == c, true == c) for c, name in enumerate(ORGANS, 1)}
    bench.figures |= {
        "steps": steps,
        "seconds": time.monotonic() - begin,
        "loss": float(loss.detach()),
        "dice": overlap,
    }
    bench.keep()
    print("labels", steps, "steps", overlap, flush=True)


def dice(told: Array, true: Array) -> float:
    """Overlap of an organ over all slices, 2 |A and B| / (|A| + |B|)."""
    return 2 * int((told & true).sum()) / max(1, int(told.sum()) + int(true.sum()))
