"""Calibrated quantiles of (128, 512, 512) float32 against sorting and torch.quantile."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.timing import extra_memory, seconds
from pixelbounds import calibrated_quantiles


def run() -> list[dict[str, object]]:
    samples = np.random.default_rng(0).random((128, 512, 512), dtype=np.float32)
    rows = torch.from_numpy(samples).reshape(128, -1)
    levels = torch.tensor([0.05, 0.95])

    def by_torch() -> None:  # torch.quantile takes at most 16M values at a time
        for part in rows.split(2**16, dim=1):
            torch.quantile(part.contiguous(), levels, dim=0)

    def ours() -> object:
        return calibrated_quantiles(samples, 0.1, axis=0)

    calibrated_quantiles(samples[:, :8], 0.1, axis=0)  # compile
    extra = extra_memory(ours) / samples.nbytes  # first, while freed memory cannot hide it
    times = {
        "calibrated_quantiles": seconds(ours),
        "np.sort": seconds(lambda: np.sort(samples, axis=0), 3),
        "np.partition": seconds(lambda: np.partition(samples, (5, 122), axis=0), 3),
        "torch.quantile": seconds(by_torch, 2),
    }
    return [
        {
            "what": name,
            "seconds": t,
            "times ours": t / times["calibrated_quantiles"],
            "extra memory": f"{extra:.1%} of the samples" if name == "calibrated_quantiles" else "",
        }
        for name, t in times.items()
    ]
