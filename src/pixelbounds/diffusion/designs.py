"""A network for every design: those of a configuration, and models of diffusers under the same contract.

The contract: noisy images (b, c, h, w) and their noise levels (b,) -> scores (b, c, h, w).
"""

from __future__ import annotations

from torch import Tensor, nn

from .architecture import NetworkConfig
from .lean import LeanUNet
from .network import NCSNpp


def network_of(config: NetworkConfig) -> NCSNpp | LeanUNet:
    """A fresh network of a configuration."""
    return LeanUNet(config) if config.design == "lean" else NCSNpp(config)


class Diffusers(nn.Module):
    """A diffusers UNet2DModel under the contract of our networks."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet
        self.fourier = unet.config.time_embedding_type == "fourier"

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Score: (b, c, h, w), (b,) -> (b, c, h, w)."""
        if self.fourier:  # takes log sigma and divides by sigma on its own
            return self.unet(x, sigma, return_dict=False)[0]
        noise = self.unet(x, 250 * sigma.log(), return_dict=False)[0]
        return noise / sigma[:, None, None, None]


def from_diffusers(unet: nn.Module) -> Diffusers:
    """Use a `diffusers.UNet2DModel` in place of a network of ours; its time is the noise level.

    With time_embedding_type "fourier" the model itself reads log sigma and divides by sigma; a "positional" one gets
    250 log sigma as its timestep, and its output is divided here.
    """
    kind = getattr(getattr(unet, "config", None), "time_embedding_type", None)
    if kind not in ("fourier", "positional"):
        raise ValueError(
            f"{type(unet).__name__} has time embedding {kind!r}; give a diffusers.UNet2DModel whose "
            "time_embedding_type is 'fourier' or 'positional'"
        )
    return Diffusers(unet)
