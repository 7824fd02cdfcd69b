"""A U-net that reads and writes its maps as seldom as it can: score networks are bound by memory, not by arithmetic.

On a GPU, two thirds of the time of an NCSN++ are passes over maps (group norms, resampling filters, concatenated
skips), and a third is convolutions. Here everything between two convolutions is one pass, which a compiler fuses:

    block:  x + conv(dropout(SiLU(conv((1 + a) norm(x) + b)))),   a and b linear in the embedding of the noise level

where `norm` is over the channels of each pixel, so that no sum over an image stands between two kernels. A level is
entered by a 2 x 2 convolution of stride 2 and left by a linear map to 2 x 2 pixels; skips are added. The
coarsest maps are the widest: they multiply more per value that they move. The input is padded to 8 channels and the
last convolution writes squares of 2 x 2 pixels as channels: matrix units take channels by eight. Attention sits at the
coarsest level, and where `attention` names the size of a map. Last convolutions of blocks, and the network's, start at
zero.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .architecture import NetworkConfig
from .network import Attention, Dropout, Fourier, NCSNpp, check_input, conv, linear, zero

_CHANNELS = 8  # matrix units multiply channels in groups of so many


class LeanBlock(nn.Module):
    """Residual block with one norm, whose scale and shift follow the noise level."""

    def __init__(self, width: int, embedding: int, dropout: float) -> None:
        super().__init__()
        self.modulation = linear(embedding, 2 * width)
        nn.init.normal_(self.modulation.weight, std=1e-2 * embedding**-0.5)
        self.first, self.second = conv(width, width), zero(nn.Conv2d(width, width, 3, padding=1))
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """Apply the block: (b, c, h, w), (b, e) -> (b, c, h, w)."""
        scale, shift = self.modulation(embedding)[:, :, None, None].chunk(2, dim=1)
        h = torch.addcmul(shift, _norm(x), 1 + scale).to(x.dtype)
        h = self.second(self.dropout(_active(self.first(h))))
        return x + h if torch.is_grad_enabled() else h.add_(x)


class Double(nn.Module):
    """Twice the size: a linear map from each pixel to 2 x 2."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.map = conv(inside, 4 * outside, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        """Double: (b, inside, h, w) -> (b, outside, 2 h, 2 w)."""
        rows = self.map(x).movedim(1, -1).unflatten(-1, (2, 2, -1))  # (b, h, w, 2, 2, outside)
        return rows.transpose(2, 3).flatten(3, 4).flatten(1, 2).movedim(-1, 1)


class LeanUNet(nn.Module):
    """The network; its output is the score where the config divides by sigma."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        widths = [config.base * multiplier for multiplier in config.multipliers]
        last, embedding = len(widths) - 1, 4 * config.base
        inputs = config.channels * config.patch**2
        outputs = (config.out_channels or config.channels) * config.patch**2

        def blocks(width: int, count: int) -> nn.ModuleList:
            return nn.ModuleList([LeanBlock(width, embedding, config.dropout) for _ in range(count)])

        def attention(level: int) -> nn.Module:
            attends = level == last or config.size // (config.patch * 2**level) in config.attention
            return Attention(widths[level]) if attends else nn.Identity()

        self.padding = -inputs % _CHANNELS
        self.embedding = Fourier(config.base, embedding, config.fourier_scale)
        self.first = conv(inputs + self.padding, config.base * config.multipliers[0])
        nn.init.normal_(self.first.weight, std=(9 * inputs) ** -0.5)
        self.down = nn.ModuleList([blocks(width, config.blocks) for width in widths])
        self.attention = nn.ModuleList([attention(level) for level in range(len(widths))])
        self.halving = nn.ModuleList([nn.Conv2d(a, b, 2, stride=2) for a, b in pairwise(widths)])
        self.middle = blocks(widths[-1], config.blocks + 1)
        self.doubling = nn.ModuleList([Double(b, a) for a, b in pairwise(widths)])
        self.up = nn.ModuleList([blocks(width, config.blocks + 1) for width in widths[:-1]])
        self.last = zero(nn.Conv2d(widths[0], 4 * outputs, 4, stride=2, padding=1))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Score, or plain output: (b, c, h, w), (b,) -> (b, out, h, w)."""
        check_input(self.config, x, sigma)
        level = sigma[:, None, None, None]
        h = F.pixel_unshuffle(x * torch.rsqrt(1 + level.square()), self.config.patch)
        h = F.pad(h, (0, 0, 0, 0, 0, self.padding)).contiguous(memory_format=torch.channels_last)
        embedding = self.embedding(sigma)
        h, skips = self.first(h), []
        for number, blocks in enumerate(self.down):
            for block in blocks:
                h = block(h, embedding)
            h = self.attention[number](h)
            if number < len(self.halving):
                skips.append(h)
                h = self.halving[number](h)
        for block in self.middle:
            h = block(h, embedding)
        for number in reversed(range(len(skips))):
            h = self.doubling[number](h) + skips[number]
            for block in self.up[number]:
                h = block(h, embedding)
        out = self.last(_active(_norm(h).to(h.dtype))).to(x.dtype)
        out = F.pixel_shuffle(out, 2 * self.config.patch)
        return out / level if self.config.divide_by_sigma else out


def network_of(config: NetworkConfig) -> NCSNpp | LeanUNet:
    """A fresh network of a configuration, of either design."""
    return LeanUNet(config) if config.design == "lean" else NCSNpp(config)


def _norm(x: Tensor) -> Tensor:
    """Each pixel's channels with mean 0 and variance 1: (b, c, h, w) -> the same, in float32 where in halves."""
    return F.layer_norm(x.movedim(1, -1), (x.shape[1],), eps=1e-6).movedim(-1, 1)


def _active(x: Tensor) -> Tensor:
    """SiLU."""
    return F.silu(x, inplace=not torch.is_grad_enabled())
