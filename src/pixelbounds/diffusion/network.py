"""NCSN++ (Song et al., 2021): a U-net that takes an image and its noise level.

    log sigma -> Gaussian Fourier features -> two linear layers -> a bias in every residual block
    image -> per level: residual blocks (attention where the map is 16 x 16), halve, add the halved input -> middle
          -> per level, upwards: residual blocks on [map, skip], attention, double -> norm, SiLU, convolution [/ sigma]

The blocks are those of BigGAN: resampling by the filter [1, 3, 3, 1] in both branches, and every sum of two branches
is divided by sqrt 2. The halved input is carried along and added at each level (progressive input "residual"). Second
convolutions, attention outputs and the last convolution start at zero. Maps are channels-last throughout. With `patch`
p the network sees p x p squares of pixels as channels, and its maps are p times smaller: a GPU moves maps more slowly
than it multiplies, so a network of fewer pixels and more channels does the same work in less time.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .architecture import NetworkConfig


class Fourier(nn.Module):
    """Gaussian Fourier features of log sigma and a small network on them."""

    def __init__(self, features: int, width: int, scale: float) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(features) * scale)
        self.layers = nn.Sequential(linear(2 * features, width), nn.SiLU(), linear(width, width), nn.SiLU())

    def forward(self, sigma: Tensor) -> Tensor:
        """Embed noise levels: (b,) -> (b, width)."""
        angles = 2 * math.pi * sigma.log()[:, None] * self.frequencies
        return self.layers(torch.cat([angles.sin(), angles.cos()], dim=1))


class Resample(nn.Module):
    """Halve or double height and width with the filter [1, 3, 3, 1], edges repeated: constants stay as they are."""

    def __init__(self, direction: str) -> None:
        super().__init__()
        self.up = direction == "up"

    def forward(self, x: Tensor) -> Tensor:
        """Resample: (b, c, h, w) -> (b, c, h / 2, w / 2) or (b, c, 2 h, 2 w)."""
        if not torch.is_grad_enabled():
            return double(x) if self.up else halve(x)
        if torch.compiler.is_compiling():  # torch 2.11 compiles an autograd.Function to one without gradient, silently
            return _doubled(x) if self.up else halve(x)
        return _Double.apply(x) if self.up else _Halve.apply(x)


class _Double(torch.autograd.Function):
    """Twice the size. Its transpose is four times the halving, also at the edges, and needs no atomic sums."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return double(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 4 * halve(gradient)


class _Halve(torch.autograd.Function):
    """Half the size. Its transpose is a quarter of the doubling."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return halve(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 0.25 * double(gradient)


def double(x: Tensor) -> Tensor:
    """Along both axes two values for each: (x[i - 1] + 3 x[i]) / 4 and (3 x[i] + x[i + 1]) / 4."""
    wide = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)  # these weights, edges repeated
    return wide.contiguous(memory_format=torch.channels_last)


def halve(x: Tensor) -> Tensor:
    """Along both axes every second filtered value: (x[2i - 1] + 3 x[2i] + 3 x[2i + 1] + x[2i + 2]) / 8.

    Shifted sums, which a compiler fuses with what surrounds them; depthwise convolutions were slower.
    """
    for axis in (2, 3):
        x = _with_edges(x, axis)
        n = x.shape[axis] // 2 - 1
        even, odd = x.unflatten(axis, (-1, 2)).unbind(axis + 1)  # even: x[2i - 1], odd: x[2i]
        near = odd.narrow(axis, 0, n) + even.narrow(axis, 1, n)
        x = near * 0.375 + (even.narrow(axis, 0, n) + odd.narrow(axis, 1, n)) * 0.125
    return x.contiguous(memory_format=torch.channels_last)


def _doubled(x: Tensor) -> Tensor:
    """`double` in shifted sums, for a compiler: fused, and with a gradient that needs no atomic sums."""
    for axis in (2, 3):
        n, wide = x.shape[axis], _with_edges(x, axis) * 0.25
        ends = [wide.narrow(axis, 0, n), wide.narrow(axis, 2, n)]
        x = torch.stack([x * 0.75 + end for end in ends], axis + 1).flatten(axis, axis + 1)
    return x.contiguous(memory_format=torch.channels_last)


def _with_edges(x: Tensor, axis: int) -> Tensor:
    """The first and the last value repeated along an axis."""
    return torch.cat([x.narrow(axis, 0, 1), x, x.narrow(axis, x.shape[axis] - 1, 1)], axis)


class Attention(nn.Module):
    """Every pixel looks at every other, with one head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = norm(channels)
        self.queries_keys_values = linear(channels, 3 * channels, fan_out=channels)
        self.out = zero(nn.Linear(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Attend: (b, c, h, w) -> the same."""
        tokens = self.norm(x).flatten(2).transpose(1, 2)[:, None]
        q, k, v = self.queries_keys_values(tokens).chunk(3, dim=-1)
        seen = self.out(F.scaled_dot_product_attention(q, k, v))
        return mean_of(x, seen[:, 0].transpose(1, 2).reshape(x.shape))


class Dropout(nn.Dropout):
    """Dropout that can draw each image's mask from keys of its own, so that it does not depend on the batch."""

    keys: Tensor | None = None  # (b, 2), 32 random bits each; None: the generator of torch draws

    def forward(self, x: Tensor) -> Tensor:
        """Drop values: (b, c, h, w) -> the same, what is kept divided by the probability to be kept."""
        if not self.training or self.keys is None:
            return super().forward(x)
        low, first, second = 0xFFFFFFFF, self.keys[:, :1], self.keys[:, 1:]
        # two multiplications and three shifts mix 32 bits well enough for masks (C. Wellons, hash-prospector)
        z = (torch.arange((x[0].numel() + 1) // 2, device=x.device) + first) & low
        z = ((z ^ (z >> 16)) * 0x21F0AAAD + second) & low
        z = ((z ^ (z >> 15)) * 0x735A2D97) & low
        z = z ^ (z >> 15)
        halves = torch.stack([z & 0xFFFF, z >> 16], dim=-1).flatten(1)[:, : x[0].numel()]
        kept = halves >= round(self.p * 2**16)
        kept = kept.reshape(len(x), *x.shape[2:], x.shape[1]).movedim(-1, 1)  # channels last, as the map
        return torch.where(kept, x / (1 - self.p), 0)


class Residual(nn.Module):
    """BigGAN block: norm, SiLU, [resample], convolve, add the noise level's bias, norm, SiLU, dropout, convolve."""

    def __init__(
        self, inside: int, outside: int, embedding: int, dropout: float, direction: str = "", attention: bool = False
    ) -> None:
        super().__init__()
        self.doubles = direction == "up"
        self.norm_in, self.norm_out = norm(inside), norm(outside)
        self.resample = Resample(direction) if direction else nn.Identity()
        self.first, self.second = conv(inside, outside), zero(nn.Conv2d(outside, outside, 3, padding=1))
        self.bias = linear(embedding, outside)
        self.dropout = Dropout(dropout)
        self.shortcut = conv(inside, outside, kernel=1) if direction or inside != outside else nn.Identity()
        self.attention = Attention(outside) if attention else nn.Identity()

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """Apply the block: (b, inside, h, w), (b, embedding) -> (b, outside, h, w), resampled."""
        h = self.first(self.resample(active(self.norm_in, x))).add_(self.bias(embedding)[:, :, None, None])
        h = self.second(self.dropout(active(self.norm_out, h)))
        # a 1 x 1 convolution and the filter commute: convolve where the map is small
        straight = self.resample(self.shortcut(x)) if self.doubles else self.shortcut(self.resample(x))
        return self.attention(mean_of(straight, h))


class NCSNpp(nn.Module):
    """The network; its output is the score where the config divides by sigma."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        widths = [config.base * multiplier for multiplier in config.multipliers]
        last, embedding = len(widths) - 1, 4 * config.base
        inputs = config.channels * config.patch**2
        outputs = (config.out_channels or config.channels) * config.patch**2
        attends = [config.size // (config.patch * 2**level) in config.attention for level in range(last + 1)]

        def residual(inside: int, outside: int, **kind: Any) -> Residual:
            return Residual(inside, outside, embedding, config.dropout, **kind)

        self.embedding = Fourier(config.base, embedding, config.fourier_scale)
        self.first = conv(inputs, config.base)
        self.down, self.halving, self.pyramid = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        width, pyramid, skips = config.base, inputs, [config.base]
        for level, wide in enumerate(widths):
            blocks = [residual(width if i == 0 else wide, wide, attention=attends[level]) for i in range(config.blocks)]
            self.down.append(nn.ModuleList(blocks))
            skips += [wide] * config.blocks
            if level < last:
                self.halving.append(residual(wide, wide, direction="down"))
                self.pyramid.append(nn.Sequential(Resample("down"), conv(pyramid, wide)))
                pyramid = wide
                skips.append(wide)
            width = wide
        self.middle = nn.ModuleList([residual(width, width, attention=True), residual(width, width)])
        self.up, self.doubling = nn.ModuleList(), nn.ModuleList()
        for level, wide in reversed(list(enumerate(widths))):
            blocks = []
            for i in range(config.blocks + 1):
                attention = attends[level] and i == config.blocks
                blocks.append(residual(width + skips.pop(), wide, attention=attention))
                width = wide
            self.up.append(nn.ModuleList(blocks))
            if level > 0:
                self.doubling.append(residual(wide, wide, direction="up"))
        self.norm = norm(width)
        self.last = zero(nn.Conv2d(width, outputs, 3, padding=1))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Score, or plain output: (b, c, h, w), (b,) -> (b, out, h, w)."""
        check_input(self.config, x, sigma)
        pyramid = x if self.config.patch == 1 else F.pixel_unshuffle(x, self.config.patch)
        embedding = self.embedding(sigma)
        h = self.first(pyramid).contiguous(memory_format=torch.channels_last)
        skips = [h]
        for level, blocks in enumerate(self.down):
            for block in blocks:
                h = block(h, embedding)
                skips.append(h)
            if level < len(self.halving):
                h = pyramid = mean_of(self.pyramid[level](pyramid), self.halving[level](h, embedding))
                skips.append(h)
        for block in self.middle:
            h = block(h, embedding)
        for level, blocks in enumerate(self.up):
            for block in blocks:
                h = block(torch.cat([h, skips.pop()], dim=1), embedding)
            if level < len(self.doubling):
                h = self.doubling[level](h, embedding)
        out = self.last(active(self.norm, h)).to(x.dtype)
        out = out if self.config.patch == 1 else F.pixel_shuffle(out, self.config.patch)
        return out / sigma[:, None, None, None] if self.config.divide_by_sigma else out


def check_input(config: NetworkConfig, x: Tensor, sigma: Tensor) -> None:
    """Whether images and levels suit a network."""
    if x.ndim != 4 or x.shape[1] != config.channels:
        raise ValueError(f"x has shape {tuple(x.shape)}; it must be (b, {config.channels}, h, w)")
    if x.shape[2] % config.stride or x.shape[3] % config.stride:
        raise ValueError(
            f"images of {x.shape[2]} x {x.shape[3]} do not fit {len(config.multipliers)} levels: "
            f"height and width must be divisible by {config.stride}; crop or pad them"
        )
    if tuple(sigma.shape) != (x.shape[0],):
        raise ValueError(f"sigma has shape {tuple(sigma.shape)}; it must be ({x.shape[0]},), one level per image")


def mean_of(x: Tensor, y: Tensor) -> Tensor:
    """Sum of two branches that keeps the variance."""
    return torch.add(x, y).mul_(0.5**0.5)


class GroupNorm(nn.GroupNorm):
    """Group norm. Compiled, it first sums each channel: channels-last maps are then read along their rows."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise: (b, c, h, w) -> the same, in float32 where computed in halves."""
        if not torch.compiler.is_compiling():
            return super().forward(x)
        wide = x.float()
        sums = torch.stack([wide.mean((2, 3)), wide.square().mean((2, 3))])
        mean, square = sums.unflatten(2, (self.num_groups, -1)).mean(3, keepdim=True)
        scale = (square - mean.square()).clamp(min=0).add(self.eps).rsqrt()
        shape = (self.num_groups, -1)
        scale = scale * self.weight.float().view(shape)
        shift = self.bias.float().view(shape) - mean * scale
        return wide * scale.flatten(1)[:, :, None, None] + shift.flatten(1)[:, :, None, None]


def norm(channels: int) -> GroupNorm:
    """Group norm of at most 32 groups with at least 4 channels each."""
    groups = next(n for n in range(min(32, max(1, channels // 4)), 0, -1) if channels % n == 0)
    return GroupNorm(groups, channels, eps=1e-6)


def active(norm: nn.Module, x: Tensor) -> Tensor:
    """SiLU of the normalised map, in the map's own precision."""
    return F.silu(norm(x), inplace=not torch.is_grad_enabled()).to(x.dtype)


def conv(inside: int, outside: int, kernel: int = 3) -> nn.Conv2d:
    """Convolution that keeps the size; weights uniform with variance 1 / mean(fan in, fan out), bias 0."""
    layer = nn.Conv2d(inside, outside, kernel, padding=kernel // 2)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def linear(inside: int, outside: int, fan_out: int | None = None) -> nn.Linear:
    """Linear layer, initialised likewise; `fan_out` is that of one part where several are stacked."""
    layer = nn.Linear(inside, outside)
    bound = math.sqrt(6 / (inside + (fan_out or outside)))
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.zeros_(layer.bias)
    return layer


def zero(layer: nn.Module) -> nn.Module:
    """The layer with weights and bias 0."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer
