"""Timing and memory within one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep
from typing import Any


def seconds(function: Callable[[], Any], repeats: int = 5, clock: Callable[[], float] = perf_counter) -> float:
    """Least of several runs after one warm-up: the machine is shared, and noise only adds.

    With `time.process_time` as clock it is the time that all threads of this process computed.
    """
    function()
    best = float("inf")
    for _ in range(repeats):
        begin = clock()
        function()
        best = min(best, clock() - begin)
    return best


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def extra_memory(function: Callable[[], Any]) -> int:
    """Bytes by which the resident memory rises, at its peak, while a function runs; sampled every millisecond."""
    base = resident()
    peak = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], resident())
            sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = function()
    done.set()
    watcher.join()
    del result
    return max(0, peak[0] - base)
