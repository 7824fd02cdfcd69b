"""The variance-exploding process: noise is added to an image, and nothing else happens to it.

    dx = g(t) dw,   sigma(t) = sigma_min (sigma_max / sigma_min)^t,   g(t)^2 = d sigma(t)^2 / dt,   t in [0, 1].

x(t) given x is N(x, sigma(t)^2). Every method takes floats or tensors and answers in kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class VESDE:
    """Geometric noise levels from sigma_min to sigma_max; 90 suits faces in [-1, 1], 1 suits CT in [0, 1].

    >>> sde = VESDE(0.01, 1.0)
    >>> round(sde.sigma(0.5), 12), round(sde.time(0.1), 12)
    (0.1, 0.5)
    """

    sigma_min: float = 0.01
    sigma_max: float = 90.0

    def __post_init__(self) -> None:
        if not self.sigma_min > 0:
            raise ValueError(
                f"sigma_min is {self.sigma_min}; it must be positive, since "
                "sigma(t) = sigma_min (sigma_max / sigma_min)^t is undefined at 0 (printed in the paper; use 0.01)"
            )
        if not self.sigma_min < self.sigma_max < math.inf:
            raise ValueError(f"sigma_max is {self.sigma_max}; it must be finite and above sigma_min = {self.sigma_min}")

    @property
    def log_ratio(self) -> float:
        """log(sigma_max / sigma_min), the length of the process in log sigma."""
        return math.log(self.sigma_max / self.sigma_min)

    def sigma(self, t: Any) -> Any:
        """Noise level at time t, same shape."""
        return self.sigma_min * (self.sigma_max / self.sigma_min) ** t

    def time(self, sigma: Any) -> Any:
        """Time at which the noise level is sigma, same shape: the inverse of `sigma`."""
        log = torch.log if isinstance(sigma, Tensor) else math.log
        return log(sigma / self.sigma_min) / self.log_ratio

    def diffusion(self, t: Any) -> Any:
        """g(t) = sigma(t) sqrt(2 log(sigma_max / sigma_min)), same shape."""
        return self.sigma(t) * math.sqrt(2 * self.log_ratio)

    def check_level(self, sigma: float, name: str = "sigma_0") -> float:
        """The noise level of an observation, in (sigma_min, sigma_max]."""
        sigma = float(sigma)
        if not self.sigma_min < sigma <= self.sigma_max:
            raise ValueError(
                f"{name} is {sigma:g}, outside (sigma_min, sigma_max] = ({self.sigma_min:g}, {self.sigma_max:g}]: "
                "the score network knows no such noise; give the standard deviation, not the variance, of the noise "
                "in the units of the image, or train over a wider range"
            )
        return sigma
