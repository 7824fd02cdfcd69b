"""What one training step sees: some images, turned at random, and a noise level for each.

Everything drawn at step k is a function of (seed, k) alone: the images of the step come from one
permutation per epoch, the turns, levels and noise from a generator that is seeded anew at every step. A resumed run
therefore draws what the uninterrupted one would have drawn, and no state of a generator has to be kept.

The levels are sigma(t) with t uniform on [0, 1], as in the paper. Sampling starts at the noise level sigma_0 of the
observation and never goes above it; a network that serves observations of known level can be trained on levels up to a
`sigma_top` slightly above sigma_0 alone (t uniform on [0, t(sigma_top)]), which spends its capacity where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from math import ceil, pi, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .sde import VESDE

Augmentation = Callable[[Tensor, torch.Generator], Tensor]  # images (b, c, h, w) -> the same shape
Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]  # network, x, sigma (b,), noise -> loss per image (b,)

_CHECK_BYTES = 2**26  # pixels checked at a time
_SOME = 64  # images that a digest reads at a time, and in all of a large set


# ---------------------------------------------------------------- images


class Pixels:
    """Images (n, h, w) or (n, c, h, w), kept on a GPU where they fit, else where they are; `take` gives float32.

    `rows` are the numbers of those that count; all of them by default. uint8 images span the limits from 0 to 255.
    Images of other dtypes must already lie within the limits.
    """

    def __init__(
        self,
        images: Any,
        *,
        limits: tuple[float, float] = (0.0, 1.0),
        device: Any = "cpu",
        rows: np.ndarray | None = None,
    ) -> None:
        low, high = (float(x) for x in limits)
        if not np.isfinite([low, high]).all() or low >= high:
            raise ValueError(f"limits are {limits}; give the smallest and the largest pixel value, e.g. (0.0, 1.0)")
        self.limits, self.device, self._rows = (low, high), torch.device(device), rows
        data = images.detach().cpu().numpy() if isinstance(images, Tensor) else images
        if not hasattr(data, "dtype") or data.ndim not in (3, 4) or 0 in data.shape:
            raise ValueError(
                f"images have shape {getattr(data, 'shape', None)}; give an array of shape (n, h, w) or (n, c, h, w)"
            )
        if rows is not None and not len(rows):
            raise ValueError(f"rows name none of {len(data)} images; name at least one")
        if data.dtype not in (np.uint8, np.float16, np.float32, np.float64):
            raise ValueError(f"images are {data.dtype}; convert them to uint8, or to float32 within {self.limits}")
        self._data: Any = data  # of zarr, which has oindex, it is read where it lies
        self._count = int(data.shape[0]) if rows is None else len(rows)
        c, h, w = (1, *data.shape[1:]) if data.ndim == 3 else data.shape[1:]
        self.shape = int(c), int(h), int(w)  # of one image
        self._check_range()
        self.digest = self._sum_up()
        self._moved = self._move()

    def __len__(self) -> int:
        return self._count

    def take(self, index: np.ndarray) -> Tensor:
        """The images of these numbers, on the device: (b,) -> float32 (b, c, h, w)."""
        if self._moved is not None:
            return self._scaled(self._moved[torch.from_numpy(index).to(self.device)])
        x = torch.from_numpy(self._read(index))
        return self._scaled((x.pin_memory() if self.device.type == "cuda" else x).to(self.device, non_blocking=True))

    def _sum_up(self) -> list[Any]:
        """Count, shape and a checksum: tells, before a run is resumed, that images have changed, or their order.

        It covers all images of a set of up to 64 MiB, and 64 of a larger one, spread over it. It is of the pixels as
        they are stored: it does not depend on the device or on its free memory.
        """
        total, kind = blake2b(digest_size=8), self._data.dtype
        small = len(self) * prod(self.shape) * kind.itemsize <= _CHECK_BYTES
        chosen = np.arange(len(self)) if small else np.unique(np.linspace(0, len(self) - 1, _SOME).astype(int))
        for start in range(0, len(chosen), _SOME):
            total.update(self._read(chosen[start : start + _SOME]).tobytes())
        return [len(self), *self.shape, f"{kind.name} {total.hexdigest()}"]

    def _scaled(self, x: Tensor) -> Tensor:
        low, high = self.limits
        return x.float().mul_((high - low) / 255).add_(low) if x.dtype == torch.uint8 else x.float()

    def _read(self, index: Any) -> np.ndarray:
        """Pixels as they are stored, in memory: numbers (b,) or a slice -> (b, c, h, w)."""
        chosen = index if self._rows is None else self._rows[index]
        try:
            return np.ascontiguousarray(getattr(self._data, "oindex", self._data)[chosen]).reshape(-1, *self.shape)
        except Exception as error:  # codecs of zarr raise what they like
            raise ValueError(f"some of the images cannot be read ({error}); write them again") from error

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        step = max(1, _CHECK_BYTES // (prod(self.shape) * self._data.dtype.itemsize))
        for start in range(0, len(self), step):
            yield start, self._read(slice(start, start + step))

    def _check_range(self) -> None:
        low, high = self.limits
        slack = 1e-3 * (high - low)
        for start, block in () if self._data.dtype == np.uint8 else self._blocks():
            flat = block.reshape(len(block), -1)
            smallest, largest = flat.min(axis=1).astype(np.float64), flat.max(axis=1).astype(np.float64)
            outside = ~((smallest >= low - slack) & (largest <= high + slack))  # or NaN
            if outside.any():
                i = int(np.argmax(outside))
                image = start + i if self._rows is None else int(self._rows[start + i])
                if not np.isfinite([smallest[i], largest[i]]).all():
                    raise ValueError(f"image {image} holds NaN or infinite values; drop or repair it")
                raise ValueError(
                    f"image {image} spans [{smallest[i]:g}, {largest[i]:g}], the limits are [{low:g}, {high:g}]; "
                    "rescale the images, give them as uint8, or name their limits"
                )

    def _move(self) -> Tensor | None:
        """The pixels on the GPU if they take less than half of its free memory; no image is rounded to fit."""
        if self.device.type != "cuda":
            return None
        kind = np.dtype(np.float32 if self._data.dtype == np.float64 else self._data.dtype)
        shape = (len(self), *self.shape)
        if prod(shape) * kind.itemsize > torch.cuda.mem_get_info(self.device)[0] / 2:
            return None
        whole = torch.empty(shape, dtype=getattr(torch, kind.name), device=self.device)
        for start, block in self._blocks():
            whole[start : start + len(block)] = torch.from_numpy(np.array(block, dtype=kind))
        return whole


# ---------------------------------------------------------------- what is drawn at a step


def step_seed(seed: int, step: int, stream: int = 0) -> int:
    """The seed of everything random at one step; another stream has other numbers."""
    return int(np.random.SeedSequence([seed, step, stream, 1]).generate_state(1, np.uint64)[0] >> np.uint64(1))


@lru_cache(maxsize=2)
def _permutation(n: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch, 0]).permutation(n)


def batch_indices(n: int, *, batch: int, step: int, seed: int) -> np.ndarray:
    """Numbers of the images of one step, (batch,): the steps walk through one fresh permutation per epoch.

    >>> sorted(int(i) for step in range(2) for i in batch_indices(6, batch=3, step=step, seed=0))
    [0, 1, 2, 3, 4, 5]
    """
    first, last = step * batch, (step + 1) * batch
    epochs = range(first // n, (last - 1) // n + 1)
    return np.concatenate([_permutation(n, seed, k)[max(first - k * n, 0) : last - k * n] for k in epochs])


def even_batch(total: int, batch: int) -> int:
    """The least batch that needs no more passes for `total` draws than `batch` does: little of the last is padding.

    >>> even_batch(40, 16), even_batch(40, 64)
    (14, 40)
    """
    return ceil(total / ceil(total / batch))


def noise_levels(sde: VESDE, count: int, generator: torch.Generator, *, sigma_top: float | None = None) -> Tensor:
    """Levels sigma(t), (count,), each t uniform on [0, t(sigma_top)]; one offset for all spreads them evenly."""
    top = 1.0 if sigma_top is None else sde.time(sigma_top)
    offset = torch.rand(1, generator=generator, device=generator.device)
    t = (offset + torch.arange(count, device=generator.device) / count) % 1.0
    return sde.sigma(t * top)


def random_crops(images: Tensor, size: int | None, generator: torch.Generator) -> Tensor:
    """A square of each image, anywhere in it: (b, c, h, w) -> (b, c, size, size); whole images where None."""
    if size is None:
        return images
    b, c, *extents = images.shape
    starts = [torch.rand(b, generator=generator, device=images.device) * (extent - size + 1) for extent in extents]
    rows, columns = (start.long()[:, None] + torch.arange(size, device=images.device) for start in starts)
    each, channel = (torch.arange(count, device=images.device) for count in (b, c))
    return images[each[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None]]


# ---------------------------------------------------------------- augmentation


def keep(images: Tensor, generator: torch.Generator) -> Tensor:
    """The images as they are."""
    return images


def flips(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image mirrored or not, left to right and top to bottom: (b, c, h, w) -> the same."""
    coins = torch.rand(2, len(images), 1, 1, 1, generator=generator, device=images.device) < 0.5
    images = torch.where(coins[0], images.flip(-1), images)
    return torch.where(coins[1], images.flip(-2), images)


def rotations(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flips and turns by an angle uniform in [-90, 90] degrees, as in the paper: (b, c, h, w) -> the same.

    Corners are filled by reflection. Interpolation (bilinear) takes away some of the finest detail and noise of an
    image, and a network that sees turned images only learns images that are a little too smooth: `some_rotations`
    leaves half of them untouched.
    """
    b, device = len(images), images.device
    angle = (torch.rand(b, generator=generator, device=device) - 0.5) * pi
    coins = torch.rand(2, b, generator=generator, device=device) < 0.5
    across, down = torch.where(coins, -1.0, 1.0)
    zero = torch.zeros_like(angle)
    return _moved(images, angle, across, down, zero, zero)


def _moved(images: Tensor, angle: Tensor, across: Tensor, down: Tensor, right: Tensor, below: Tensor) -> Tensor:
    """Images (b, c, h, w) turned, scaled and shifted, each by its own (b,), shifts in halves of the image."""
    _, _, h, w = images.shape
    cos, sin = angle.cos(), angle.sin()
    rows = [torch.stack([cos * across, -sin * down * (h / w), right], 1)]
    rows.append(torch.stack([sin * across * (w / h), cos * down, below], 1))
    grid = torch.nn.functional.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return torch.nn.functional.grid_sample(
        images, grid.to(images.dtype), mode="bilinear", padding_mode="reflection", align_corners=False
    )


def some_rotations(images: Tensor, generator: torch.Generator) -> Tensor:
    """`rotations` for every other image, `flips` for the rest: (b, c, h, w) -> the same."""
    coin = torch.rand(len(images), 1, 1, 1, generator=generator, device=images.device) < 0.5
    return torch.where(coin, rotations(images, generator), flips(images, generator))


def small_moves(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turns up to 10 degrees, shifts up to 5%, zooms up to 10%, of seven images in eight; nothing is mirrored.

    What lies where, and which way up, stays as it is in a body or a face. (b, c, h, w) -> the same.
    """
    b, device = len(images), images.device
    angle, right, below, zoom = torch.rand(4, b, generator=generator, device=device) * 2 - 1
    scale = 1 + 0.1 * zoom
    moved = _moved(images, angle * (pi / 18), scale, scale, 0.1 * right, 0.1 * below)
    coin = torch.rand(b, 1, 1, 1, generator=generator, device=device) < 0.125
    return torch.where(coin, images, moved)


AUGMENTATIONS: dict[str, Augmentation] = {f.__name__: f for f in (keep, flips, rotations, some_rotations, small_moves)}
