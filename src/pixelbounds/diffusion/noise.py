"""Gaussian noise by counting, not by state: Philox 4x32-10 (Salmon et al., SC 2011) and Box-Muller.

The counter of a number is (pixel, step, sample, image) and the key is the seed, so a draw depends on these alone:
not on the batch that it is computed in, on what was drawn before, or on the device. A run that is split, resumed or
moved gives the same samples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 random bits for four words of counter, as int64 tensors that broadcast together."""
    a, b, c, d = counter
    keys = seed & _LOW, seed >> 32
    for turn in range(10):
        # int64 products wrap modulo 2^64, which leaves both halves of the unsigned product in place
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        k0, k1 = ((key + turn * weyl) & _LOW for key, weyl in zip(keys, _WEYL, strict=True))
        a, b, c, d = (
            ((second >> 32) & _LOW) ^ b ^ k0,
            second & _LOW,
            ((first >> 32) & _LOW) ^ d ^ k1,
            first & _LOW,
        )
    return a, b, c, d


def gaussian(
    seed: int,
    image: Tensor,
    sample: Tensor,
    step: int,
    shape: tuple[int, int, int],
    device: torch.device | str | None = None,
) -> Tensor:
    """Standard normal noise of the given images, samples and step: (b,), (b,) -> float32 (b, c, h, w).

    Worked out in float64, so that the last bit of a vectorised sine does not tell where in a batch a pixel lay.
    """
    check_seed(seed)
    pixels = math.prod(shape)
    block = torch.arange((pixels + 3) // 4, device=device)  # a turn of Philox gives four pixels
    rows = [x.to(device=device, dtype=torch.int64)[:, None] for x in (sample, image)]
    words = philox((block[None], torch.full_like(block[None], step), rows[0], rows[1]), seed)
    u, v, w, z = ((word.double() + 0.5) * 2.0**-32 for word in words)
    near, far = ((-2 * x.log()).sqrt() for x in (u, w))
    turn, other = 2 * math.pi * v, 2 * math.pi * z
    four = (near * turn.cos(), near * turn.sin(), far * other.cos(), far * other.sin())
    return torch.stack([x.float() for x in four], dim=-1).flatten(1)[:, :pixels].reshape(-1, *shape)


def check_seed(seed: int) -> int:
    """A seed of 64 bits."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ValueError(f"seed is {seed!r}; it must be an integer in [0, 2^64)")
    return seed
