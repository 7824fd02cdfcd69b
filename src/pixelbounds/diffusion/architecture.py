"""The shape of a score network: design, widths, depth, what it is made for, and the shapes that have a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DESIGNS = "ncsnpp", "lean"


@dataclass(frozen=True)
class NetworkConfig:
    """Shape of a network; `size` is the training image size, which says at which levels attention sits."""

    channels: int = 1
    out_channels: int | None = None  # as many as the input has
    base: int = 32
    multipliers: tuple[int, ...] = (1, 2, 2, 2)
    blocks: int = 2
    attention: tuple[int, ...] = (16,)
    size: int = 64
    dropout: float = 0.1
    divide_by_sigma: bool = True
    fourier_scale: float = 16.0  # 16 as published; less lets neighbouring noise levels share what is learned
    patch: int = 1  # squares of so many pixels a side are the channels of one: fewer, wider maps
    design: str = "ncsnpp"  # or "lean"

    def __post_init__(self) -> None:
        for name in ("multipliers", "attention"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        counts = (self.channels, self.base, self.blocks, self.size, self.patch, *self.multipliers, *self.attention)
        counts += () if self.out_channels is None else (self.out_channels,)
        if not self.multipliers or any(isinstance(x, bool) or not isinstance(x, int) or x < 1 for x in counts):
            raise ValueError(
                f"{self}: channels, base, blocks, size, patch, multipliers and attention must be positive integers"
            )
        if self.design not in DESIGNS:
            raise ValueError(f"design is {self.design!r}; known are {', '.join(DESIGNS)}")
        if self.base % 4:
            raise ValueError(f"base is {self.base}; it must be divisible by 4 (16 is fast on GPUs), for group norms")
        if self.size % self.stride:
            raise ValueError(
                f"size is {self.size}; it must be divisible by {self.stride}: patches of {self.patch} are halved "
                f"{len(self.multipliers) - 1} times"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; it must lie in [0, 1)")

    @property
    def stride(self) -> int:
        """What height and width of an image must be divisible by."""
        halvings = len(self.multipliers) - 1
        return self.patch * 2 ** (max(1, halvings) if self.design == "lean" else halvings)  # lean: at its end, too


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "tiny": {"base": 16, "multipliers": (1, 2, 2, 4), "blocks": 1, "size": 64, "dropout": 0.05, "fourier_scale": 1.0},
    "small": {"base": 64, "multipliers": (1, 1, 2, 2), "blocks": 1, "size": 64, "dropout": 0.1, "fourier_scale": 1.0},
    "lean": {
        "design": "lean",
        "base": 64,
        "multipliers": (1, 1, 2, 4),
        "blocks": 1,
        "attention": (),
        "fourier_scale": 1.0,
    },
    "celeba": {"base": 128, "multipliers": (1, 2, 2, 2), "blocks": 4, "size": 128},
    "abdomen": {"base": 16, "multipliers": (1, 2, 4, 8, 16, 32, 32, 32), "blocks": 1, "size": 512},
}


def configuration(name: str, *, channels: int = 1, size: int | None = None, **changes: Any) -> NetworkConfig:
    """A named configuration, with changes.

    `tiny` runs on a CPU; `small` has about 5 million parameters; `celeba` is the paper's for 128 x 128 faces; `abdomen`
    has the paper's widths for 512 x 512 slices (score_sde's FFHQ), with the residual progressive input of the others
    in place of FFHQ's input and output skips.
    """
    if name not in CONFIGURATIONS:
        raise ValueError(f"configuration is {name!r}; known are {', '.join(CONFIGURATIONS)}")
    changes |= {} if size is None else {"size": size}
    return NetworkConfig(channels=channels, **CONFIGURATIONS[name] | changes)
