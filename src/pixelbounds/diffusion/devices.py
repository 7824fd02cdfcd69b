"""Devices that torch can use."""

from __future__ import annotations


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
