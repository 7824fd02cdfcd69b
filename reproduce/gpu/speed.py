"""How fast a GPU is: the peak of its matrix units, seconds of a call, and what they go to."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


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


def kernels(work: Callable[[], object], rows: int = 28) -> list[list[Any]]:
    """Milliseconds, count and name of the kernels that take longest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.device_time_total)
    total = sum(event.device_time_total for event in events)
    found = [[event.device_time_total / 1e3, event.count, event.key[:110]] for event in events[:rows]]
    return [[total / 1e3, sum(event.count for event in events), "all"], *found]
