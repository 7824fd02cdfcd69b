"""Devices that torch can use."""

from __future__ import annotations

import os


def let_threads_sleep() -> None:
    """Make the threads of OpenMP sleep while they wait for each other; call it before torch is imported.

    Unless told, they wait by running in circles, at every one of the hundreds of layers of a step. Where another
    program has one of the cores, the thread that is waited for does not run, while the others keep busy the core that
    it needs: a step then takes longer than with one thread (`python -m benchmarks.cpu_training`). Threads that sleep
    are a little slower where the machine is otherwise idle, and much faster where it is not.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def check_device(device: str | None) -> str | None:
    """A device that torch can use, or None for the best there is."""
    import torch

    if device is None:
        return None
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ValueError(f"device is {device!r}; it must be cpu, cuda or cuda:0") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {device!r}, but torch sees no GPU; use cpu, or install torch for your CUDA")
    return device


def best_device() -> str:
    """A GPU if there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
