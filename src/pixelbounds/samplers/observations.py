"""What is observed: images with the numbers that seed them, read a few at a time, checked once as they are hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..images.foreign import as_plain_array
from ..images.library import Array, library_of, to_numpy

_ROWS_BYTES = 2**26  # observations read at a time


class Observations:
    """Observations (n, ...) of any shape and kind of number, also complex, with the numbers that seed their images.

    `ids` are by default their numbers among the observations; `images` chooses a range of these.
    """

    def __init__(self, observations: Any, ids: Any = None, images: range | None = None) -> None:
        given = list(observations) if isinstance(observations, Iterator) else observations
        observations = as_plain_array(given, "observations")
        if not hasattr(observations, "shape"):
            observations = _stacked(observations)
        n = int(observations.shape[0]) if len(observations.shape) > 1 else 0
        chosen = range(n) if images is None else images
        if not n or chosen.step != 1 or chosen.start < 0 or chosen.stop > n or not len(chosen):
            raise ValueError(
                f"observations have shape {tuple(observations.shape)} and images are {chosen}; choose a range within "
                f"the {n} observations (n, ...)"
            )
        self._observations = observations
        self._start = chosen.start
        self.shape = tuple(int(size) for size in observations.shape[1:])
        self.dtype = "complex64" if "complex" in str(getattr(observations, "dtype", "")) else "float32"
        self.ids = np.asarray(chosen if ids is None else ids)
        different = self.ids.shape == (len(chosen),) and len(np.unique(self.ids)) == len(chosen)
        if not different or self.ids.dtype.kind not in "iu" or self.ids.min() < 0 or self.ids.max() >= 2**32:
            raise ValueError(f"ids must be {len(chosen)} different whole numbers in [0, 2^32), one per observation")

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, start: int, stop: int) -> Any:
        """Observations as they are: tensors of torch, else of NumPy."""
        x = self._observations[self._start + start : self._start + stop]
        return x if library_of(x) == "torch" else to_numpy(x)

    def digest(self) -> str:
        """A hash of values and numbers; what cannot be sampled is refused here."""
        total = hashlib.sha256(self.ids.astype(np.int64).tobytes())
        step = max(1, _ROWS_BYTES // max(1, to_numpy(self.rows(0, 1)).nbytes))
        for start in range(0, len(self), step):
            x = np.ascontiguousarray(to_numpy(self.rows(start, min(start + step, len(self)))))
            if x.dtype.kind not in "fciub":
                raise TypeError(f"observations are {x.dtype}; give numbers")
            bad = ~np.isfinite(x).reshape(len(x), -1).all(axis=1)
            if bad.any():
                image = int(self.ids[start + int(np.argmax(bad))])
                raise ValueError(f"observation {image} holds NaN or infinite values; correct or drop it")
            self._check_rows(x, start)
            total.update(f"{x.dtype.str} {x.shape[1:]}".encode())
            total.update(x.tobytes())
        return total.hexdigest()

    def _check_rows(self, x: Array, start: int) -> None:
        """Refuse what a kind of observations cannot hold."""


def _stacked(observations: Any) -> Array:
    try:
        return np.stack([to_numpy(x) if library_of(x) else np.asarray(x) for x in observations])
    except (TypeError, ValueError) as error:
        raise ValueError(
            "observations must form an array (n, ...): give a NumPy, torch, zarr or Dask array, or a list of arrays of "
            "one shape; where they differ in size, draw each size by itself"
        ) from error


class NoisyImages(Observations):
    """Noisy images (n, h, w) or (n, c, h, w) within limits, as a network takes them."""

    def __init__(
        self,
        images: Any,
        limits: tuple[float, float],
        sigma_0: float,
        ids: Any,
        chosen: range | None,
        config: Any,
        remedy: str,
    ) -> None:
        super().__init__(images, ids, chosen)
        self._limits, self._sigma_0, self._remedy = limits, sigma_0, remedy
        channels, shape = config.channels, (len(self), *self.shape)
        if len(shape) not in (3, 4) or 0 in shape or (shape[1] if len(shape) == 4 else 1) != channels:
            wanted = f"(n, {channels}, h, w)" if channels > 1 else "(n, h, w) or (n, 1, h, w)"
            raise ValueError(f"observations have shape {shape}; this network takes {wanted}")
        if shape[-1] % config.stride or shape[-2] % config.stride:
            wrong = f"observations are {shape[-2]} x {shape[-1]}"
            raise ValueError(f"{wrong}; crop or pad them to multiples of {config.stride}")

    def rows(self, start: int, stop: int) -> Array:
        """Float32 (b, c, h, w)."""
        x = np.asarray(self._observations[self._start + start : self._start + stop])
        if x.dtype != np.uint8 and x.dtype.kind != "f":
            raise ValueError(f"observations are {x.dtype}; convert them to float32 within the limits, or to uint8")
        low, high = self._limits
        values = x.astype(np.float32) * np.float32((high - low) / 255) + np.float32(low) if x.dtype == np.uint8 else x
        values = np.array(values, np.float32)
        return values if values.ndim == 4 else values[:, None]

    def _check_rows(self, x: Array, start: int) -> None:
        """Pixels that no noise of this level explains are refused."""
        low, high = self._limits
        slack = 8 * self._sigma_0 + 1e-3 * (high - low)
        flat = x.reshape(len(x), -1)
        lowest, highest = flat.min(axis=1), flat.max(axis=1)
        far = (lowest < low - slack) | (highest > high + slack)
        if far.any():
            i = int(np.argmax(far))
            raise ValueError(
                f"observation {int(self.ids[start + i])} spans [{lowest[i]:.4g}, {highest[i]:.4g}], further beyond the "
                f"limits ({low:g}, {high:g}) than noise of sigma_0 = {self._sigma_0:g} goes; "
                f"{self._remedy}, and give the deviation of their noise in the same units (--sigma0)"
            )
