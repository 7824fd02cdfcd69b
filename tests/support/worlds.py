"""Simulated worlds whose true risk is known in closed form.

A pixel has a type, drawn afresh in every image with probabilities that depend on its position; the band shows the type,
so a calibration may treat types and positions differently. Given the type, the law of the truth is known exactly:
apply a calibration to one canonical image per type, read off the ends, and the chance of a miss is a difference of
distribution functions. Averaged over positions and types it is the true risk, without Monte-Carlo error. How the
pixels of one image depend on each other does not enter the risk at all, but decides how hard it is to certify:

independent    pixels do not know of each other: losses hardly vary between images
correlated     pixels share a Gaussian factor: same risk, losses vary a lot
scale          the noise of a whole image is small, medium or large
skewed         one image in five or so is bad and all its pixels but one are missed: losses are nearly coin tosses
bounded        truth uniform on the limits and correlated: the closed form includes clipping

Ends are dyadic numbers, so that bands of one type are equal to the last bit and no bin edge can cut through a type.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

import pixelbounds as pb

TYPES = 3


@dataclass(frozen=True)
class Part:
    """Noise of an image: with probability `chance`, +-shift + scale * deviation of the pixel's type * normal."""

    chance: float
    scale: float
    shift: float = 0.0


@dataclass(frozen=True)
class Draw:
    """Images of a world: truth and band (n, *pixels), and what the simulation knows of each pixel."""

    truth: np.ndarray
    band: pb.Band
    types: np.ndarray


def shares_of(pixels):
    """Chance of each type at each position, (p, types): the left of an image is mostly of type 0, the right of 2."""
    at = np.linspace(0, TYPES - 1, int(np.prod(pixels)))
    weight = np.exp(-2 * np.abs(at[:, None] - np.arange(TYPES)))
    return weight / weight.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class World:
    """What the two kinds of world share: drawing types, factors common to an image or a unit, and the risk."""

    family: str = "additive"
    correlation: float = 0.0
    spared: bool = False  # one pixel of every image is spared the worst
    pixels: tuple = (16,)

    @cached_property
    def size(self):
        return int(np.prod(self.pixels))

    @cached_property
    def shares(self):
        return shares_of(self.pixels)

    def draw(self, rng, n, *, slices=1):
        """n units of as many slices each, n * slices images in all; slices share all that images have in common."""
        images = n * slices
        cumulative = self.shares.cumsum(axis=1)[None, :, :-1]
        types = (rng.random((images, self.size, 1)) > cumulative).sum(axis=2)
        factor = rng.standard_normal((n, 1)).repeat(slices, axis=0)
        own = rng.standard_normal((images, self.size))
        normal = np.sqrt(self.correlation) * factor + np.sqrt(1 - self.correlation) * own
        spared = np.zeros((images, self.size), bool)
        if self.spared:
            spared[np.arange(images), rng.integers(self.size, size=images)] = True
        truth, band = self.realise(rng, types, normal, spared, slices)
        shape = (images, *self.pixels)
        return Draw(truth.reshape(shape), band.map(lambda x: x.reshape(shape)), types.reshape(shape))

    def risk(self, calibration, cost=None):
        """True mean, over positions and types, of the expected cost of a pixel; by default of its chance to be missed.

        `cost(interval, types)` is the exact conditional expectation given the band.
        """
        types = np.arange(TYPES)[:, None].repeat(self.size, axis=1)
        shape = (TYPES, *self.pixels)
        interval = calibration.apply(self.canonical(types).map(lambda x: x.reshape(shape)))
        values = (cost or self.missed)(interval, types.reshape(shape))
        return float((values.reshape(TYPES, -1) * self.shares.T).sum() / self.size)

    def kept(self):
        """Chance that a pixel is not the spared one of its image."""
        return 1 - 1 / self.size if self.spared else 1.0


@dataclass(frozen=True)
class NoiseWorld(World):
    """Truth = centre + noise (additive, scaled) or level * exp(noise) (multiplicative), without limits."""

    parts: tuple = (Part(1.0, 1.0),)
    limits = None

    HALF = np.array([1 / 8, 1 / 4, 1 / 2])
    DEVIATION = np.array([0.25, 0.2, 0.75])
    LEVEL = np.array([0.5, 1.0, 2.0])

    def band(self, types, centre):
        half = self.HALF[types]
        if self.family == "multiplicative":
            level = self.LEVEL[types]
            return pb.Band(level * np.exp(-half), level * np.exp(half))
        return pb.Band(centre - half, centre + half, centre if self.family == "scaled" else None)

    def canonical(self, types):
        return self.band(types, np.zeros(types.shape))

    def realise(self, rng, types, normal, spared, slices):
        chances = np.cumsum([part.chance for part in self.parts])[:-1]
        part = (rng.random((len(types) // slices, 1)) > chances).sum(axis=1).repeat(slices)
        part = np.where(spared, 0, part[:, None])
        scale = np.array([p.scale for p in self.parts])[part]
        shift = np.array([p.shift for p in self.parts])[part]
        noise = rng.choice([-1, 1], types.shape) * shift + scale * self.DEVIATION[types] * normal
        centre = rng.integers(-128, 128, types.shape) / 64
        truth = self.LEVEL[types] * np.exp(noise) if self.family == "multiplicative" else centre + noise
        return truth, self.band(types, centre)

    def missed(self, interval, types, centre=0.0):
        """Chance that the truth of a pixel of known type falls outside its interval."""
        lower, upper = interval.lower - centre, interval.upper - centre
        if self.family == "multiplicative":
            lower, upper = np.log(interval.lower / self.LEVEL[types]), np.log(interval.upper / self.LEVEL[types])
        out = np.zeros(types.shape)
        for i, part in enumerate(self.parts):
            chance = part.chance * self.kept() + (1 - self.kept()) * (i == 0)
            deviation = part.scale * self.DEVIATION[types]
            for shift in (-part.shift, part.shift):
                out += chance / 2 * (ndtr((lower - shift) / deviation) + ndtr((shift - upper) / deviation))
        return out


@dataclass(frozen=True)
class BoundedWorld(World):
    """Truth uniform on (0, 1) through a Gaussian copula, bands of three types; intervals are clipped to the limits."""

    lower: tuple = (1 / 16, 3 / 8, 1 / 2)
    upper: tuple = (1 / 4, 5 / 8, 15 / 16)
    limits = (0.0, 1.0)

    def canonical(self, types):
        lower, upper = np.array(self.lower)[types], np.array(self.upper)[types]
        return pb.Band(lower, upper, 0.75 * lower + 0.25 * upper if self.family == "scaled" else None)

    def realise(self, rng, types, normal, spared, slices):
        band = self.canonical(types)
        return np.where(spared, (band.lower + band.upper) / 2, ndtr(normal)), band

    def missed(self, interval, types):
        """Chance that a uniform truth falls outside; a spared pixel never does."""
        return self.kept() * (1 - interval.length)

    def excess(self, interval, types):
        """Expected distance of a uniform truth from its interval."""
        return self.kept() * ((1 - interval.upper) ** 2 + interval.lower**2) / 2


BAD = 0.22  # share of bad images: just above the risk level of the tests, so that leaving them out is a failure
KINDS = {
    "independent": NoiseWorld(),
    "correlated": NoiseWorld(correlation=0.9),
    "scale": NoiseWorld(parts=(Part(0.4, 0.5), Part(0.4, 1.0), Part(0.2, 2.0)), correlation=0.3),
    "skewed": NoiseWorld(parts=(Part(1 - BAD, 0.25), Part(BAD, 0.25, shift=3.0)), spared=True),
    "bounded": BoundedWorld(correlation=0.8),
}


def world_of(kind, family="additive", **changes):
    """A world of a kind, its bands made for a family."""
    return replace(KINDS[kind], family=family, **changes)


def heteroscedastic(n, rng, size=32, dtype=np.float32):
    """Truth and band where width, level and image all say something about the error: (n, size, size)."""
    shape = (n, size, size)
    level = rng.uniform(0.05, 0.95, shape)
    deviation = np.exp(rng.normal(-3, 0.6, shape)) * np.exp(rng.normal(0, 0.2, (n, 1, 1)))
    truth = np.clip(level + deviation * rng.standard_t(4, shape), 0, 1)
    half = 0.6 * deviation + 0.02
    band = pb.Band(np.clip(level - half, 0, 1).astype(dtype), np.clip(level + half, 0, 1).astype(dtype))
    return truth.astype(dtype), band
